//! A store at rest, checked: `check`.
//!
//! Theory of operation. A store in which everything is in order has no problem, also not by `--strict`; then one
//! thing is broken at a time, and the check has to tell that one and no other. RS-CHECK-03 to RS-CHECK-20.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use runstore::protocol::segment::sha256_hex;
use runstore::store::slot::pool_name;
use serde_json::{Value, json};
use testkit::peer_runs::Recording;
use testkit::process::now_ms;
use testkit::records::{self, SESSION};
use testkit::{Store, tree};

use crate::ask::{self, Answer, assert_harmless, utf8};
use crate::lists::slot;

const DAY_MS: i64 = 86_400_000;

fn check(root: &Path, more: &[&str]) -> Answer {
    let mut args = vec!["check", utf8(root), "--format", "json"];
    args.extend_from_slice(more);
    Answer::of(&ask::run(&args))
}

/// The ids of the problems, in order.
fn ids(answer: &Answer) -> Vec<&str> {
    let problems = answer.json["problems"].as_array().expect("a list");
    problems.iter().map(|problem| problem["id"].as_str().expect("an id")).collect()
}

fn index_entry(store: &Store, folder: &str, run: &str, session: &str, at_ms: i64) {
    let entry = json!({"version": 1, "runId": run, "sessionId": session,
        "file": format!("{run}.json"), "writtenAt": at_ms});
    let path = format!("async-subagent-results/result-index/{folder}/{run}.json");
    store.file(&path, entry.to_string());
}

/// A run that has ended, with its result, all indexes, a lease and a slot, and a run that is queued.
fn orderly() -> Store {
    let (store, now) = (Store::new(), now_ms());
    records::finish(&store.run("run-1"), now);
    let ended = u64::try_from(now).expect("after 1970");
    store.terminal_marker(SESSION, "run-1", ended).result("run-1", &records::result("run-1", now));
    index_entry(&store, &format!("sessions/{SESSION}"), "run-1", SESSION, now);
    index_entry(&store, "runs", "run-1", SESSION, now);
    let queued = records::without(records::running("run-2", 1, now), "pid");
    store.run("run-2").status(&records::with(queued, "state", "queued"));
    store.active_marker("run-2").tool_call_alias("call-1", "run-2");
    slot(&store, 0, "run-2", SESSION);
    lease(&store, &session_file(&store));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    for path in tree::walk(store.root()).expect("ours").iter().filter(|path| path.is_dir()) {
        std::fs::set_permissions(path, std::fs::Permissions::clone(&private)).expect("ours");
    }
    store
}

fn session_file(store: &Store) -> PathBuf {
    let file = store.beside("sessions").join("s.jsonl");
    std::fs::write(&file, "").expect("room");
    file
}

/// A lease of another host, which nobody here may judge.
fn lease(store: &Store, file: &Path) {
    let owner = records::lease("run-2", 1, "another-host", now_ms());
    let owner = records::with(owner, "canonicalSessionFile", utf8(file));
    store.lease(&sha256_hex(utf8(file).as_bytes()), &owner);
}

#[test]
fn a_store_in_order_has_no_problem() {
    let store = orderly();
    let answer = check(store.root(), &["-x", "--slots", "1"]);
    assert_eq!(ids(&answer), [""; 0], "{:#}", answer.json);
    assert_eq!((answer.code, &answer.json["schema"]), (0, &json!("runstore.check/1")));
    assert_eq!(answer.json["summary"]["runs"], 2);
    assert_eq!(check(Store::new().root(), &["-x"]).code, 0, "an empty store is in order");
}

/// Breaks one thing of an orderly store.
type Break = fn(&Store);

#[test]
fn each_rule_that_binds_is_told_when_it_is_broken() {
    let rows: [(&str, i32, Break); 13] = [
        ("terminal-entry-wrong", 1, |s| {
            s.file(
                "async-subagent-runs/.terminal-runs/session-1/0000000000000005-run-1.json",
                "{}",
            );
        }),
        ("terminal-entry-wrong", 1, |s| {
            s.terminal_marker("session-1", "run-2", 5);
        }),
        ("terminal-entry-wrong", 1, |s| {
            let text = r#"{"version":1,"runId":"run-1","sessionId":"session-1","endedAt":5}"#;
            s.file("async-subagent-runs/.terminal-runs/other/0000000000000005-run-1.json", text);
        }),
        ("result-entry-wrong", 1, |s| {
            index_entry(s, "sessions/other", "run-1", SESSION, now_ms());
        }),
        ("result-entry-wrong", 1, |s| {
            s.file("async-subagent-results/result-index/runs/x.json", "[]");
        }),
        ("result-unindexed", 1, |s| {
            let path = "async-subagent-results/result-index/sessions/session-1/run-1.json";
            std::fs::remove_file(s.root().join(path)).expect("there");
        }),
        ("lease-misplaced", 1, |s| {
            let owner = records::lease("run-2", 1, "another-host", now_ms());
            let owner = records::with(owner, "canonicalSessionFile", utf8(&session_file(s)));
            s.lease("elsewhere", &owner);
        }),
        ("lease-unreadable", 8, |s| {
            s.lease("bad", &json!(7));
        }),
        ("slot-unreadable", 8, |s| {
            s.slot(&pool_name(SESSION), 1, &json!({}));
        }),
        ("orphaned", 1, |s| {
            s.run("run-3").status(&records::running("run-3", 999_999_999, now_ms()));
            s.active_marker("run-3");
        }),
        ("status-torn", 8, |s| {
            s.run("run-1").file("status.json", "{\"runId\":");
        }),
        ("not-plain", 8, |s| {
            s.run("run-3").link("status.json", "/etc/hostname");
        }),
        ("loose-permissions", 1, |s| {
            let run = s.run("run-1");
            run.mode("status.json", 0o666);
        }),
    ];
    for (id, code, breaks) in rows {
        let store = orderly();
        breaks(&store);
        let answer = check(store.root(), &[]);
        assert_eq!(ids(&answer), [id], "{id}: {:#}", answer.json);
        assert_eq!(answer.code, code, "{id}");
        let problem = &answer.json["problems"][0];
        assert_eq!(problem["level"], "MUST");
        assert!(problem["path"].as_str().is_some_and(|p| p.starts_with(utf8(store.root()))));
    }
}

#[test]
fn what_should_not_stay_is_told_only_when_it_is_asked_for() {
    let rows: [(&str, Break); 14] = [
        ("terminal-entry-orphan", |s| {
            s.terminal_marker("session-1", "run-9", 5);
        }),
        ("terminal-entry-missing", |s| {
            let at = now_ms() - DAY_MS;
            records::finish(&s.run("run-3"), at);
        }),
        ("in-both-indexes", |s| {
            let pending = json!({"version": 1, "state": "pending", "runId": "run-1",
                "runnerProcessInstanceId": records::INSTANCE});
            let status = records::complete("run-1", now_ms());
            s.run("run-1").proof(&pending);
            s.run("run-1").status(&records::with(status, "processTerminal", pending));
            s.active_marker("run-1");
        }),
        ("alias-orphan", |s| {
            s.tool_call_alias("call-2", "run-9");
        }),
        ("marker-orphan", |s| {
            s.active_marker("run-9");
        }),
        ("result-entry-orphan", |s| {
            index_entry(s, "runs", "run-9", SESSION, now_ms() - 2 * DAY_MS);
        }),
        ("result-without-run", |s| {
            s.result("run-9", &records::result("run-9", now_ms()));
            index_entry(s, &format!("sessions/{SESSION}"), "run-9", SESSION, now_ms());
        }),
        ("slot-without-run", |s| slot(s, 1, "run-9", SESSION)),
        ("claim-left", |s| {
            let path = format!(
                "session-active-async-capacity/{}/slot-0/capacity.claim",
                pool_name(SESSION)
            );
            let path = s.file(&path, "token");
            tree::set_time_ms(&path, 1_790_000_000_000).expect("ours");
        }),
        ("lease-of-no-session", |s| lease(s, &s.root().join("no-such.jsonl"))),
        ("temp-litter-outside", |s| {
            s.file("async-subagent-results/.run-1.json.12.1790000000000.abc.tmp", "{}");
        }),
        ("name-outside", |s| {
            s.file("notes.txt", "");
        }),
        ("deletion-unfinished", |s| {
            let run = "async-subagent-runs/.deleting-run-0f4d8a3e-1c1b-4e43-9f0e-6d1f5d1a2b3c";
            let path = s.folder(run);
            tree::set_time_ms(&path, 1_790_000_000_000).expect("ours");
        }),
        ("temp-litter", |s| {
            s.run("run-1").file(".status.json.12.1790000000000.abc.tmp", "{}");
        }),
    ];
    for (id, breaks) in rows {
        let store = orderly();
        breaks(&store);
        let answer = check(store.root(), &[]);
        assert_eq!(ids(&answer), [""; 0], "{id}: {:#}", answer.json);
        assert_eq!(answer.json["summary"]["notAsked"], 1, "{id}: what was left out is counted");
        assert_eq!(answer.code, 0, "{id}");
        let strict = check(store.root(), &["--strict"]);
        assert_eq!(ids(&strict), [id], "{id}: {:#}", strict.json);
        assert_eq!(strict.code, 1, "{id}");
        assert_eq!(strict.json["problems"][0]["level"], "SHOULD");
    }
}

#[test]
fn slots_are_counted_against_a_limit_that_was_told() {
    let store = orderly();
    slot(&store, 1, "run-2", SESSION);
    assert_eq!(ids(&check(store.root(), &["-x"])), [""; 0], "no file tells the limit");
    assert_eq!(ids(&check(store.root(), &["-x", "--slots", "2"])), [""; 0]);
    assert_eq!(ids(&check(store.root(), &["-x", "--slots", "1"])), ["slots-above-limit"]);
}

#[test]
fn a_problem_has_three_lines_and_its_clause_is_explained() {
    let store = orderly();
    store.run("run-3").status(&records::running("run-3", 999_999_999, now_ms()));
    store.active_marker("run-3").run("run-4").file("status.json", "{\u{1b}[31m");
    let outcome = ask::run(&["check", utf8(store.root()), "-x"]);
    let text = outcome.text();
    assert_harmless("a check", &outcome.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len() % 3, 1, "three lines each, and the sum:\n{text}");
    for problem in lines.chunks(3).filter(|chunk| chunk.len() == 3) {
        let what = ["error: /", "warning: /", "note: /"];
        assert!(what.iter().any(|start| problem[0].starts_with(start)), "{problem:?}");
        assert!(problem[1].starts_with("  do:  "), "{problem:?}");
        let see = problem[2].strip_prefix("  see: ").expect("a clause");
        let clause = see.split(' ').next().expect("a word");
        assert!(clause.starts_with("RS-"), "{problem:?}");
        assert_eq!(ask::run(&["explain", clause]).code, 0, "{clause} is explained");
    }
    assert!(lines.last().is_some_and(|l| l.starts_with("4 runs checked")), "{text}");
}

#[test]
fn a_check_of_a_run_or_a_session_is_about_its_runs() {
    let store = orderly();
    store.file("notes.txt", "");
    let run = store.run("run-3").path().to_owned();
    store.run("run-3").status(&records::running("run-3", 999_999_999, now_ms()));
    let one = check(&run, &["-x"]);
    assert_eq!(one.json["summary"]["runs"], 1);
    assert!(ids(&one).contains(&"orphaned") && !ids(&one).contains(&"name-outside"));
    let other = check(store.root(), &["-x", "--session", "other"]);
    assert_eq!((ids(&other).len(), &other.json["summary"]["runs"]), (0, &json!(0)));
    assert_eq!(ask::run(&["check", "/no/such/store"]).code, 4);
}

#[test]
fn recorded_stores_of_peers_keep_the_rules_between_records() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/peer-runs");
    let recordings = Recording::all(&top).expect("the recordings are part of the repository");
    let between = [
        "terminal-entry-wrong",
        "result-entry-wrong",
        "result-unindexed",
        "name-outside",
        "in-both-indexes",
    ];
    let mut checked = 0;
    let mut broken = Vec::new();
    for recording in &recordings {
        let snapshots: BTreeSet<&str> =
            recording.expected().iter().filter_map(|e| e["snapshot"].as_str()).collect();
        let Some(snapshot) = snapshots.last() else { continue };
        let (_dir, root) = recording.fresh(snapshot).expect("the recording is whole");
        let answer = check(&root, &["-x"]);
        let problems: Vec<Value> = answer.json["problems"].as_array().expect("a list").clone();
        let told = problems.into_iter().filter(|p| between.iter().any(|id| p["id"] == *id));
        broken.extend(told.map(|p| format!("{}: {}: {}", recording.name, p["path"], p["what"])));
        checked += 1;
    }
    assert!(checked >= 40, "the recordings of both harnesses are checked: {checked}");
    assert_eq!(broken, [""; 0], "what peers write is in order");
}

#[test]
fn the_shipped_store_has_the_problems_that_it_was_shipped_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/store");
    tree::copy(&shipped, &root).expect("it is ours");
    let before = tree::snapshot(&root).expect("ours");
    let answer = check(&root, &[]);
    assert!(ids(&answer).contains(&"orphaned"), "{:#}", answer.json);
    assert_eq!(tree::diff(&before, &tree::snapshot(&root).expect("ours")), [""; 0]);
}
