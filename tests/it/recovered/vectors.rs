//! What the peers' reconcilers and observers were recorded to do, held against a recovery of the same stores.
//!
//! Theory of operation. Each vector of `reconcile` and `finalize` becomes a store: the same records, except that
//! a pid which is to be dead is one that no process has, that one which is to live is that of a process here, and
//! that all times are moved along with it. The store is recovered and taken back ([`prove`]), and in between
//! reduced to the shape of what was recorded.
//!
//! A recovery does the same or less. Each difference stands in a table with the clause that asks for it; the
//! tables are exact, so that a difference which is not there, or one which is there and is none, is wrong.

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use runstore::store::RealHost;
use runstore::store::lease::canonical_id;
use serde_json::{Value, json};
use testkit::process::{Live, now_ms};
use testkit::records::GONE;
use testkit::{Store, tree};

use super::prove::prove;
use crate::ask::utf8;
use crate::vectors::{self, Vector, text_of};

const RUN: &str = "async-subagent-runs/run-1";
const RESULT: &str = "async-subagent-results/run-1.json";

/// The text of a record with every instant moved and a pid replaced.
fn moved(text: &str, by_ms: i64, pid: u32) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        out.push_str(before);
        match digits.parse::<i64>() {
            Ok(ms)
                if digits.len() == 13 && digits.starts_with("17")
                    || digits.starts_with("16999") =>
            {
                out.push_str(&(ms + by_ms).to_string());
            }
            Ok(4321 | 99) if before.ends_with("\"pid\":") => out.push_str(&pid.to_string()),
            _ => out.push_str(digits),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn read(root: &Path, path: &str) -> Option<Value> {
    serde_json::from_slice(&fs::read(root.join(path)).ok()?).ok()
}

/// How many files of a name end so below a directory.
fn count(root: &Path, below: &str) -> usize {
    let dir = root.join(below);
    let all = if dir.exists() { tree::walk(&dir).expect("readable") } else { Vec::new() };
    all.iter().filter(|path| path.extension().is_some_and(|end| end == "json")).count()
}

/// State and exit code of each step.
fn steps(status: &Value) -> Value {
    let all = status["steps"].as_array().cloned().unwrap_or_default();
    all.iter().map(|step| json!([step["status"], step["exitCode"]])).collect()
}

fn overlay(status: &Value) -> Value {
    let proof = &status["processTerminal"];
    json!([proof["state"], proof["reason"]])
}

/// Members that are not the same.
fn differing(ours: &Value, theirs: &Value) -> Vec<String> {
    let all = theirs.as_object().expect("an object");
    let keys = all.keys().filter(|key| ours[key.as_str()] != theirs[key.as_str()]);
    keys.map(|key| format!("{key}: {}, recorded {}", ours[key.as_str()], theirs[key.as_str()]))
        .collect()
}

/// One reconciled store; with its process, if that is to live.
fn reconciled_store(vector: &Vector, store: &Store) -> Option<Live> {
    let input = &vector.input;
    let live = (input["pidLiveness"] != "dead").then(Live::start);
    let pid = live.as_ref().map_or(GONE, Live::pid);
    let status = text_of(&input["status"]);
    let started = input["status"]["startedAt"].as_i64().unwrap_or(1_700_000_000_000);
    // A process that lives is older than what names it.
    let by_ms = now_ms() - started;
    let write = |path: &str, text: &str| store.file(path, moved(text, by_ms, pid));
    let run = store.run("run-1");
    if let Some(status) = status {
        write(&format!("{RUN}/status.json"), &status);
    }
    if let Some(result) = text_of(&input["result"]) {
        write(RESULT, &result);
    }
    if let Some(pending) = input.get("pendingResult").and_then(text_of) {
        write("async-subagent-results/result-pending/S/run-1.json", &pending);
        let entry = json!({"version": 1, "runId": "run-1", "sessionId": "S", "file": "run-1.json",
            "writtenAt": now_ms()});
        store.file("async-subagent-results/result-index/sessions/S/run-1.json", entry.to_string());
    }
    if let Some(said) = input["runnerStderr"].as_str() {
        run.file("runner.stderr.log", said);
    }
    if input["activeMarker"] == true {
        store.active_marker("run-1");
    }
    if let Some(alias) = input["toolCallAlias"].as_str() {
        store.tool_call_alias(alias, "run-1");
    }
    // The hint of a launching process is in its memory, which nobody else has.
    live
}

/// What is there of it afterwards, in the shape of what was recorded.
fn reconciled_ours(root: &Path) -> Value {
    let status = read(root, &format!("{RUN}/status.json")).unwrap_or_default();
    let log = fs::read_to_string(root.join(RUN).join("events.jsonl")).unwrap_or_default();
    let active = root.join("async-subagent-runs/.active-runs");
    let aliases = count_names(&active.join("tool-calls"));
    json!({
        "state": status["state"], "steps": steps(&status), "overlay": overlay(&status),
        "result": read(root, RESULT).unwrap_or_default()["state"],
        "active": active.join("run-1").exists(), "alias": aliases > 0,
        "ended": count(root, "async-subagent-runs/.terminal-runs"),
        "event": log.lines().filter(|line| line.contains("repaired_stale")).count(),
    })
}

fn count_names(dir: &Path) -> usize {
    let all = if dir.exists() { tree::walk(dir).expect("readable") } else { Vec::new() };
    all.iter().filter(|path| path.is_file()).count()
}

fn reconciled_theirs(vector: &Vector) -> Value {
    let expected = &vector.expected;
    // Where there was an error nothing was written.
    let status = if expected["statusAfter"].is_object() {
        &expected["statusAfter"]
    } else {
        &vector.input["status"]
    };
    let list = |key: &str| expected[key].as_array().map_or(0, Vec::len);
    json!({
        "state": status["state"], "steps": steps(status), "overlay": overlay(status),
        "result": expected["resultAfter"]["state"],
        "active": expected["activeMarkerAfter"], "alias": expected["toolCallAliasAfter"],
        "ended": list("terminalRuns"), "event": list("events"),
    })
}

/// A vector, and the clause that asks for another end than the recorded one.
type Difference = (&'static str, &'static str);

const RECONCILED: [Difference; 8] = [
    // The process lives, or it cannot be told.
    ("alive, 24 h + 1 ms", "RS-REC-03"),
    ("EPERM, 24 h + 1 ms", "RS-REC-03"),
    ("alive, no lastUpdate, old start", "RS-REC-03"),
    ("result success, status running", "RS-REC-03"),
    ("result failed, status running", "RS-REC-03"),
    // What stands in the place of the result is of another run, and there is none of its own.
    ("result of another run id", "RS-REC-05"),
    // Only the launching process remembers that it was started.
    ("no status, started metadata, grace over, dead", "RS-REC-06"),
    // An empty name is another one than that of the directory.
    ("status runId empty -> directory name", "RS-REC-07"),
];

/// Fails unless the specification has this clause.
fn is_a_clause(clause: &str) {
    let clauses = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec/clauses.toml");
    let clauses = fs::read_to_string(clauses).expect("part of the project");
    assert!(clauses.contains(&format!("\"{clause}\"")), "{clause} is a clause");
}

#[test]
fn a_recovery_does_what_a_reconciler_does_or_less() {
    let vectors = vectors::of("reconcile");
    assert_eq!(vectors.len(), 55, "the list of vectors changed");
    let (mut bad, mut same, mut met) = (Vec::new(), 0, Vec::new());
    for vector in &vectors {
        let store = Store::in_memory();
        let _live = reconciled_store(vector, &store);
        let mut differs = Vec::new();
        let proven = prove(store.root(), |seen| {
            differs = differing(&reconciled_ours(seen.root), &reconciled_theirs(vector));
            Vec::new()
        });
        let name = vector.name.as_str();
        bad.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
        let listed = RECONCILED.iter().find(|(listed, _)| *listed == name);
        match (listed, differs.is_empty()) {
            (None, true) => same += 1,
            (Some((name, clause)), false) => {
                is_a_clause(clause);
                println!("{name}: {clause}: {}", differs.join("; "));
                met.push(*name);
            }
            (None, false) => bad.push(format!("{name}: {}", differs.join("; "))),
            (Some(_), true) => bad.push(format!("{name}: listed, yet the same")),
        }
    }
    println!("{} vectors, {same} the same, {} by a clause", vectors.len(), met.len());
    assert!(bad.is_empty(), "{} wrong:\n{}", bad.len(), bad.join("\n"));
    assert_eq!(met.len(), RECONCILED.len(), "every listed vector exists");
}

/// The store of a run whose runner has ended, without anybody who saw it.
fn finalized_store(vector: &Vector, store: &Store) {
    let input = &vector.input;
    let sessions = store.beside("sessions");
    let here = format!("{}/", utf8(&sessions));
    let text = |value: &Value| {
        text_of(value).map(|text| moved(&text.replace("/SESSIONS/", &here), 0, GONE))
    };
    for file in input["existingSessionFiles"].as_array().into_iter().flatten() {
        let name = file.as_str().expect("a path").trim_start_matches("/SESSIONS/");
        fs::write(sessions.join(name), "{}\n").expect("room");
    }
    store.run("run-1");
    for (name, key) in [
        ("status.json", "status"),
        ("process-terminal-candidate.json", "candidate"),
        ("process-terminal.json", "existingProof"),
    ] {
        if let Some(text) = text(&input[key]) {
            store.file(&format!("{RUN}/{name}"), text);
        }
    }
    store.active_marker("run-1");
    let lease = &input["lease"];
    if lease != "free" {
        let session = sessions.join("s.jsonl");
        let id = canonical_id(&RealHost::new(), &session).expect("there").id;
        let dir = format!("session-leases/{id}");
        store.folder(&dir);
        let owner = lease.get("owner").and_then(text);
        if let Some(owner) = owner.or_else(|| lease["rawOwner"].as_str().map(str::to_owned)) {
            store.file(&format!("{dir}/owner.json"), owner);
        }
    }
}

/// What a proof says, in words.
fn words(proof: &Value) -> String {
    let word = |key: &str| proof[key].as_str().unwrap_or("-").to_owned();
    match proof["state"].as_str() {
        Some(_) if proof["reason"].is_null() => word("state"),
        Some(_) => format!("{} {}", word("state"), word("reason")),
        None => "nothing".to_owned(),
    }
}

/// What is said of an end: by the sidecar, by the overlay, and whether the run is in the active index.
fn said(sidecar: &Value, overlay: &Value, is_active: bool) -> String {
    let index = if is_active { "active" } else { "not active" };
    format!("{}, {}, {index}", words(sidecar), words(overlay))
}

/// What was recorded, what a recovery leaves in its place, how often, and the clause that asks for it: a recoverer
/// has seen no end, so it writes no sidecar; and where one stands it makes what follows from it.
const FINALIZED: [(&str, &str, usize, &str); 15] = [
    ("observed, nothing, active", "observed, observed, active", 1, "RS-REC-15"),
    ("observed, nothing, not active", "nothing, nothing, active", 2, "RS-REC-12"),
    ("observed, observed, not active", "not-started, nothing, active", 1, "RS-REC-12"),
    ("observed, observed, not active", "nothing, nothing, active", 30, "RS-REC-12"),
    ("observed, observed, not active", "nothing, unknown stale-repair, not active", 1, "RS-REC-12"),
    ("observed, observed, not active", "pending, nothing, active", 1, "RS-REC-12"),
    (
        "unknown canonical-session-lease-active, unknown canonical-session-lease-active, active",
        "nothing, nothing, active",
        6,
        "RS-REC-12",
    ),
    (
        "unknown canonical-session-release-unverified, unknown canonical-session-release-unverified, active",
        "nothing, nothing, active",
        8,
        "RS-REC-12",
    ),
    (
        "unknown canonical-session-unavailable, unknown canonical-session-unavailable, active",
        "nothing, nothing, active",
        4,
        "RS-REC-12",
    ),
    (
        "unknown process-tree-unverified, unknown process-tree-unverified, active",
        "nothing, nothing, active",
        4,
        "RS-REC-12",
    ),
    (
        "unknown proof-write-failed, unknown proof-write-failed, active",
        "nothing, nothing, active",
        3,
        "RS-REC-12",
    ),
    (
        "unknown runner-candidate-missing, nothing, active",
        "nothing, nothing, active",
        1,
        "RS-REC-12",
    ),
    (
        "unknown runner-candidate-missing, unknown runner-candidate-missing, active",
        "nothing, nothing, active",
        1,
        "RS-REC-12",
    ),
    (
        "unknown runner-instance-mismatch, unknown runner-instance-mismatch, active",
        "nothing, nothing, active",
        6,
        "RS-REC-12",
    ),
    (
        "unknown writer-close-unverified, unknown writer-close-unverified, active",
        "nothing, nothing, active",
        13,
        "RS-REC-12",
    ),
];

/// What an observer was recorded to leave, and what a recovery leaves of the same store.
fn finalized(vector: &Vector, bad: &mut Vec<String>) -> (String, String) {
    let store = Store::in_memory();
    finalized_store(vector, &store);
    let sidecar =
        |root: &Path| read(root, &format!("{RUN}/process-terminal.json")).unwrap_or_default();
    let before = sidecar(store.root());
    let mut ours = String::new();
    let proven = prove(store.root(), |seen| {
        let status = read(seen.root, &format!("{RUN}/status.json")).unwrap_or_default();
        let overlay = &status["processTerminal"];
        let is_active = seen.root.join("async-subagent-runs/.active-runs/run-1").exists();
        ours = said(&sidecar(seen.root), overlay, is_active);
        let mut bad = Vec::new();
        if sidecar(seen.root) != before {
            bad.push("the sidecar is another one".to_owned());
        }
        if overlay["state"] == "observed" && *overlay != before {
            bad.push("the overlay says what no sidecar says".to_owned());
        }
        bad
    });
    let name = format!("{}, {}", vector.name, vector.peer);
    bad.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
    let expected = &vector.expected;
    let is_active = expected["activeMarkerAfter"] == true;
    let theirs = said(&expected["proofFile"], &expected["statusProcessTerminal"], is_active);
    (theirs, ours)
}

#[test]
fn a_recovery_says_of_an_end_what_an_observer_says_or_less() {
    let vectors = vectors::of("finalize");
    assert_eq!(vectors.len(), 87, "the list of vectors changed");
    let mut bad = Vec::new();
    let mut seen = BTreeMap::<(String, String), usize>::new();
    for vector in &vectors {
        *seen.entry(finalized(vector, &mut bad)).or_default() += 1;
    }
    for ((theirs, ours), count) in &seen {
        let is_same = theirs == ours;
        let row = FINALIZED.iter().find(|(t, o, n, _)| t == theirs && o == ours && n == count);
        match row {
            Some((.., clause)) if !is_same => {
                is_a_clause(clause);
                println!("{count}: {theirs}; here {ours}: {clause}");
            }
            None if is_same => println!("{count}: {theirs}; the same here"),
            _ => bad.push(format!("(\"{theirs}\", \"{ours}\", {count}, \"\"),")),
        }
    }
    assert!(bad.is_empty(), "{} wrong:\n{}", bad.len(), bad.join("\n"));
    let listed = seen.keys().filter(|(theirs, ours)| theirs != ours).count();
    assert_eq!(listed, FINALIZED.len(), "every row is met");
}
