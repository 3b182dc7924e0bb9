//! The recorded whole operations on leases, slots and proofs: the files that they leave.
//!
//! The decisions behind them are compared elsewhere; here each operation runs on a disk in memory
//! with scripted processes, and what is compared is the tree, the records and the events. Where we
//! leave something else on purpose it is listed with its reason, and the list is exact.

use std::path::Path;

use runstore::protocol::ids::RunId;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::proof::Proof;
use runstore::protocol::segment::sha256_hex;
use runstore::protocol::slot::{self, SlotEvidence, SlotKind, SlotOwner, SlotStatus};
use runstore::protocol::{Document, Open, Raw, layout};
use runstore::store::host::{Host as _, RealHost, WriteHost as _};
use runstore::store::lease::{self, LeaseRequest};
use runstore::store::proof::{Exit, ExitWitness, RunPlace, finalise};
use runstore::store::slot::{
    SlotRequest, acquire, bind, occupied, pool_name, reconcile, released_event,
};
use serde_json::{Value, json};
use testkit::fault::FaultHost;

use super::vectors::{self, Difference, FIRST, SECOND, Vector, text_of};

/// The file that is run here alone; the others give the pure decisions their questions as well.
pub(super) const CANONICAL: &str = "lease-canonical";

const DIFFERENT: &[Difference] = &[
    (
        "lease-stale",
        "both",
        "runtime: identity vs linux: identity counts as different",
        "identities of two schemes cannot be compared, and a live owner must not lose its lease",
    ),
    ("finalize", "both", "existing observed, same", COMPLETED),
    ("finalize", FIRST, "existing unknown stays, though candidate is good", COMPLETED),
    ("finalize", SECOND, "existing unknown stays, though candidate is good", COMPLETED),
];
const COMPLETED: &str =
    "the proof stays, but a finalisation that was cut off after it is completed: CW-30, CW-31";

fn check(
    file: &str,
    count: usize,
    ours: impl Fn(&Vector) -> Value,
    theirs: impl Fn(&Vector) -> Value,
) {
    vectors::compare(file, count, DIFFERENT, ours, theirs);
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn dir(host: &FaultHost, path: &str) -> usize {
    let mut at = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let parent = host.open_dir(Path::new(&format!("/{at}"))).expect("made before");
        let _ = host.create_dir(&parent, name.as_ref(), 0o755);
        at = format!("{at}/{name}");
    }
    host.open_dir(Path::new(&format!("/{at}"))).expect("made now")
}

fn put(host: &FaultHost, path: &str, text: &str) {
    let (folder, name) = path.rsplit_once('/').expect("a path");
    let folder = dir(host, folder);
    let file = host.create(&folder, name.as_ref(), 0o644).expect("room");
    host.write(&file, text.as_bytes()).expect("room");
}

/// Lines `MODE path` below a directory, with `hash` spelled as `word`, as the recording has them.
fn tree(host: &FaultHost, below: &str, hash: &str, word: &str) -> Vec<String> {
    let prefix = format!("{below}/");
    let mut lines: Vec<_> = host
        .tree()
        .into_keys()
        .filter_map(|path| {
            let rest = path.strip_prefix(&prefix).filter(|rest| !rest.is_empty())?;
            let stat = host.stat(Path::new(path.trim_end_matches('/'))).expect("there");
            Some(format!("{:04o} {}", stat.mode & 0o7777, rest.replace(hash, word)))
        })
        .collect();
    lines.sort_by(|a, b| a[5..].cmp(&b[5..]));
    lines
}

fn sorted(lines: &Value) -> Vec<String> {
    let mut lines: Vec<_> = lines.as_array().expect("a tree").iter().map(string).collect();
    lines.sort_by(|a, b| a[5..].cmp(&b[5..]));
    lines
}

#[test]
fn a_session_file_is_named_by_the_hash_of_its_real_path() {
    let names: Vec<_> = vectors::of(CANONICAL).into_iter().map(|vector| vector.name).collect();
    assert_eq!(names.len(), 2, "every vector is run: {names:?}");
    let temp = tempfile::tempdir().expect("a directory");
    let real = temp.path().canonicalize().expect("there").join("s.jsonl");
    std::fs::write(&real, "").expect("room");
    let link = temp.path().join("link.jsonl");
    std::os::unix::fs::symlink(&real, &link).expect("room");
    let hash = sha256_hex(real.to_str().expect("text").as_bytes());
    let id = |path: &Path| lease::canonical_id(&RealHost::new(), path).map(|found| found.id);
    assert_eq!(id(&real).expect("there"), hash, "plain path hashed as sha256 hex");
    assert_eq!(id(&link).expect("there"), hash, "symlink resolves to target");
    assert!(id(&temp.path().join("gone")).is_err(), "a missing file has no lease");
}

/// Plays one contested acquisition and returns what it left.
fn contest(vector: &Vector) -> Value {
    let input = &vector.input;
    let host = FaultHost::new().with_pid(1234).with_host_name(&string(&input["ourHostname"]));
    host.set_now_ms(1_700_000_100_000);
    put(&host, "/SESSIONS/s.jsonl", "");
    let words = input["processAlive"].as_object().expect("processes");
    for (pid, alive) in words {
        let presence = match alive.as_str().expect("a word") {
            "true" => Presence::Present,
            "false" => Presence::Gone,
            _ => Presence::Unknown("not known".to_owned()),
        };
        let start_identity = input["processStartIdentity"][pid].as_str().map(str::to_owned);
        let seen = ProcessSeen { presence, start_identity, ..ProcessSeen::default() };
        host.set_process(pid.parse().expect("a pid"), seen);
    }
    let start_identity = Some("linux:9".to_owned());
    let own = ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() };
    host.set_process(1234, own);
    let id = sha256_hex(b"/SESSIONS/s.jsonl");
    dir(&host, &format!("/session-leases/{id}"));
    if let Some(text) = text_of(&input["existingOwner"]) {
        put(&host, &format!("/session-leases/{id}/owner.json"), &text);
    }
    if input["tombstoneExists"] == true {
        put(&host, &format!("/session-leases/{id}.stale-tok/x"), "");
    }
    let request = LeaseRequest {
        session_file: Path::new("/SESSIONS/s.jsonl"),
        run_id: "run-new",
        source_run_id: "run-1",
        parent_session_id: None,
        token: "new-token",
    };
    let acquired = lease::acquire(&host, &0, &request).is_ok();
    let owner = acquired.then(|| {
        let text = host.text(&format!("/session-leases/{id}/owner.json")).expect("held");
        let mut owner = parsed(&text);
        // Additive members, which every other reader ignores.
        let members = owner.as_object_mut().expect("an object");
        assert_eq!(members.remove("bootId"), Some(json!("boot-1")), "{}", vector.name);
        assert_eq!(members.remove("pidNamespaceScope"), Some(json!("pid:[1]")));
        owner
    });
    json!([acquired, owner, tree(&host, "session-leases", &id, "<sid>")])
}

#[test]
fn every_contested_lease_leaves_the_recorded_files() {
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        let owner = expected["ok"]["owner"].clone();
        json!([expected["acquired"], owner, sorted(&expected["tree"])])
    };
    check("lease-stale", 29, contest, theirs);
}

/// The verdict on a slot from the files of its run, as a caller of [`reconcile`] gathers it.
fn judge(host: &FaultHost, vector: &Vector, owner: &SlotOwner) -> slot::SlotVerdict {
    let status_text = host.text("/RUNS/run-1/status.json");
    let status = status_text.as_deref().and_then(|text| Document::parse(text).ok());
    let text = |key: &str| Some(status.as_ref()?.get(key)?.string()?.into_owned());
    let (run_id, session_id, error) = (text("runId"), text("sessionId"), text("error"));
    let overlay = status.as_ref().and_then(|s| s.get("processTerminal")?.object());
    let overlay = overlay.and_then(|doc| Proof::read(&doc).ok());
    let proof_text = host.text("/RUNS/run-1/process-terminal.json");
    let proof = proof_text.as_deref().map(|text| {
        let read = Document::parse(text).and_then(|doc| Proof::read(&doc));
        let instance = owner.runner_instance_id.as_deref();
        Proof::or_unknown(read, Some(&owner.run_id), instance, "run-1").state
    });
    let pid = status.as_ref().and_then(|s| s.get("pid")?.number());
    let off = vector.input.get("abandonedSlotReleaseAfterMs").map(Value::to_string);
    slot::verdict(
        owner,
        &SlotEvidence {
            status: status.as_ref().map(|_| SlotStatus {
                run_id: run_id.as_deref(),
                session_id: session_id.as_deref(),
                state: Open::read(&text("state").expect("a state")),
                mode: None,
                pid,
                error: error.as_deref(),
                overlay: overlay.as_ref(),
                last_activity_ms: last_activity_ms(status.as_ref()),
            }),
            proof,
            pid_alive: match vector.input["pidLiveness"].as_str().expect("a word") {
                "alive" => runstore::protocol::liveness::Alive::Yes,
                "dead" => runstore::protocol::liveness::Alive::No,
                _ => runstore::protocol::liveness::Alive::Unknown,
            },
            abandoned_after_ms: slot::abandoned_after_ms(
                off.as_deref().map(|text| Raw::parse(text).expect("JSON")),
            ),
            now_ms: host.now_ms(),
            controller_live: false,
            children: &[],
        },
    )
}

fn last_activity_ms(status: Option<&Document<'_>>) -> Option<i64> {
    let keys = ["lastActivityAt", "lastUpdate", "endedAt"];
    keys.iter().find_map(|key| status?.get(key)?.instant_ms())
}

/// Acquires, binds and reconciles one slot, and returns what each left.
fn pool_life(vector: &Vector) -> Value {
    let input = &vector.input;
    let host = FaultHost::new();
    host.set_now_ms(input["now"].as_i64().expect("a time"));
    dir(&host, "/RUNS/run-1");
    for (name, text) in
        [("status.json", &input["status"]), ("process-terminal.json", &input["proof"])]
    {
        if let Some(text) = text_of(text) {
            put(&host, &format!("/RUNS/run-1/{name}"), &text);
        }
    }
    let request = SlotRequest {
        session_id: "S",
        run_id: "run-1",
        async_dir: "/RUNS/run-1",
        kind: SlotKind::Runner,
        limit: 2,
    };
    let mut held = acquire(&host, &0, &request).expect("free").expect("there is a limit");
    if input["runnerBound"] == true {
        bind(&host, &0, &mut held, "ri-1", host.now_ms()).expect("ours");
    }
    let key = pool_name("S");
    let pool = format!("/{}/{key}", layout::CAPACITY_DIR);
    let text = host.text(&format!("{pool}/slot-0/owner.json")).expect("held");
    assert!(text.ends_with("}\n"), "{}: a slot's owner ends in a newline", vector.name);
    let mut owner = parsed(&text.replace(&key, "<sha256('S')>"));
    owner["reservationToken"] = json!("rt-1");
    let before = tree(&host, layout::CAPACITY_DIR, &key, "<sha256('S')>");
    let done = reconcile(&host, &0, "S", |owner| judge(&host, vector, owner)).expect("readable");
    let events: Vec<_> = done
        .released
        .iter()
        .filter(|(_, verdict)| verdict.by_policy)
        .map(|(owner, _)| {
            let status = host.text("/RUNS/run-1/status.json").expect("there");
            let last_ms = last_activity_ms(Document::parse(&status).ok().as_ref()).expect("judged");
            let age_ms = host.now_ms() - last_ms;
            parsed(&released_event(owner, host.now_ms(), age_ms, 1_200_000))
        })
        .collect();
    assert_eq!(occupied(&host, &0, "S").expect("readable").len(), done.used, "{}", vector.name);
    let after = tree(&host, layout::CAPACITY_DIR, &key, "<sha256('S')>");
    assert_eq!(after.len(), 1 + 2 * done.used, "{}: nothing else is left: {after:?}", vector.name);
    json!({ "owner": owner, "before": before, "used": done.used, "events": events })
}

#[test]
fn every_pool_is_left_as_recorded() {
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        json!({
            "owner": expected["owner"],
            "before": sorted(&expected["treeBefore"]),
            "used": expected["afterReconcile"]["used"],
            "events": expected["events"],
        })
    };
    check("capacity", 19, pool_life, theirs);
}

#[test]
fn every_invalid_owner_occupies_its_slot_and_is_left_alone() {
    let ours = |vector: &Vector| {
        let host = FaultHost::new();
        let path = format!("/{}/{}/slot-0/owner.json", layout::CAPACITY_DIR, pool_name("S"));
        let text = text_of(&vector.input).expect("a text");
        put(&host, &path, &text);
        let release = |_: &SlotOwner| slot::SlotVerdict {
            release: true,
            rule: 7,
            reason: "whatever is judged",
            by_policy: false,
        };
        let done = reconcile(&host, &0, "S", release).expect("readable");
        let left = host.text(&path);
        assert!(done.used == 0 || left.as_deref() == Some(&text), "{}: as it was", vector.name);
        json!(done.used)
    };
    let theirs = |vector: &Vector| {
        // Of the valid ones only an owner that agrees with its pool and slot is touched: K-32.
        let owner = &vector.expected["ok"];
        let agrees = owner["ownerSessionKey"] == json!(pool_name("S")) && owner["slot"] == 0;
        json!(usize::from(!agrees))
    };
    check("capacity-owner", 17, ours, theirs);
}

fn without_wording(mut proof: Value) -> Value {
    if let Some(diagnostic) = proof.get_mut("diagnostic") {
        *diagnostic = json!("<words>");
    }
    // Additive: no recorded writer leaves it.
    if let Some(members) = proof.as_object_mut() {
        members.remove("exitEvidence");
    }
    if let Some(id) = proof.pointer_mut("/canonicalSession/canonicalSessionId") {
        *id = json!("<sha256 of canonical session path>");
    }
    proof
}

fn place_evidence(host: &FaultHost, input: &Value) {
    for (name, text) in [
        ("process-terminal-candidate.json", &input["candidate"]),
        ("process-terminal.json", &input["existingProof"]),
        ("status.json", &input["status"]),
    ] {
        if let Some(text) = text_of(text) {
            put(host, &format!("/RUNS/run-1/{name}"), &text);
        }
    }
    for file in input["existingSessionFiles"].as_array().expect("a list") {
        put(host, file.as_str().expect("a path"), "");
    }
    put(host, "/RUNS/.active-runs/run-1", "");
    put(host, "/RUNS/.active-runs/tool-calls/tc/run-1", "");
    let lease = format!("/session-leases/{}", sha256_hex(b"/SESSIONS/s.jsonl"));
    match &input["lease"] {
        Value::String(_) => {}
        given => {
            dir(host, &lease);
            let owner = given.get("owner").map(Value::to_string);
            let raw = given.get("rawOwner").map(string);
            if let Some(text) = owner.or(raw) {
                put(host, &format!("{lease}/owner.json"), &text);
            }
        }
    }
}

fn finalised(vector: &Vector) -> Value {
    let input = &vector.input;
    let host = FaultHost::new();
    dir(&host, "/RUNS/run-1");
    place_evidence(&host, input);
    let close = &input["close"];
    let exit = match close["signal"].as_str() {
        Some(signal) => Exit::Signal(signal.to_owned()),
        None => Exit::Code(close["exitCode"].as_i64().expect("a code")),
    };
    let closed_at_ms = close["closeObservedAt"].as_i64().expect("a time");
    let witness = ExitWitness::from_wait(&string(&close["processInstanceId"]), closed_at_ms, exit);
    let (runs_root, run_dir) = (dir(&host, "/RUNS"), dir(&host, "/RUNS/run-1"));
    let run_id = RunId::parse("run-1").expect("an id");
    let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id };
    finalise(&host, &place, &witness).expect("nothing fails");
    let file = |name: &str| host.text(&format!("/RUNS/run-1/{name}"));
    let proof = file("process-terminal.json").expect("written");
    let proof = serde_json::from_str(&proof).unwrap_or(json!({ "unreadable": true }));
    let status = file("status.json").and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let steps = status.as_ref().map(|status| {
        let steps = status["steps"].as_array().cloned().unwrap_or_default();
        let overlay = |step: &Value| without_wording(step["processTerminal"].clone());
        steps.iter().map(overlay).collect::<Vec<_>>()
    });
    let overlay = status.map_or(Value::Null, |status| status["processTerminal"].clone());
    let log = file("events.jsonl").unwrap_or_default();
    let events: Vec<_> = log
        .lines()
        .map(|line| {
            let mut event = parsed(line);
            event["ts"] = json!("<now>");
            event["processTerminal"] = without_wording(event["processTerminal"].clone());
            event
        })
        .collect();
    let there = |path: &str| host.text(path).is_some();
    json!({
        "proofFile": without_wording(proof),
        "marker": there("/RUNS/.active-runs/run-1"),
        "alias": there("/RUNS/.active-runs/tool-calls/tc/run-1"),
        "overlay": without_wording(overlay),
        "steps": steps.unwrap_or_default(),
        "events": events,
    })
}

#[test]
fn every_finalisation_leaves_the_recorded_files() {
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        let steps = expected["statusSteps"].as_array().cloned().unwrap_or_default();
        let steps: Vec<_> = steps.into_iter().map(without_wording).collect();
        let mut events = expected["events"].as_array().cloned().unwrap_or_default();
        for event in &mut events {
            event["processTerminal"] = without_wording(event["processTerminal"].clone());
        }
        json!({
            "proofFile": without_wording(expected["proofFile"].clone()),
            "marker": expected["activeMarkerAfter"],
            "alias": expected["toolCallAliasAfter"],
            "overlay": without_wording(expected["statusProcessTerminal"].clone()),
            "steps": steps,
            "events": events,
        })
    };
    check("finalize", 87, finalised, theirs);
}

#[test]
fn every_difference_names_a_file_that_is_run_and_a_reason() {
    vectors::assert_explained(&["lease-stale", "finalize"], DIFFERENT, 4);
}
