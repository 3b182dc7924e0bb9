//! Runs that nobody can want any more are removed: `prune`.
//!
//! Theory of operation. A store with one old, proven, delivered run; then one reason at a time that keeps it. The
//! plan changes nothing; what it names is what `--apply` removes. RS-RET-01 to RS-RET-09.

use std::path::Path;

use runstore::protocol::segment::sha256_hex;
use serde_json::{Value, json};
use testkit::process::{Live, host_name, now_ms};
use testkit::records::{self, GONE, SESSION};
use testkit::store::Run;
use testkit::{Store, case, tree};

use crate::ask::{self, Answer, assert_harmless, utf8};
use crate::lists::slot;

const DAY_MS: i64 = 86_400_000;

fn prune(store: &Store, more: &[&str]) -> Answer {
    let mut args = vec!["prune", utf8(store.root()), "--format", "json"];
    args.extend_from_slice(more);
    Answer::of(&ask::run(&args))
}

/// Everything of a run is as old as its end.
fn age(run: &Run, at_ms: i64) {
    tree::age(run.path(), at_ms).expect("ours");
}

/// A run that ended so many days ago, proven and delivered.
pub(crate) fn old(store: &Store, id: &str, days: i64) -> Run {
    let run = store.run(id);
    let at = now_ms() - days * DAY_MS;
    records::finish(&run, at);
    run.file("output-0.log", "answer\n");
    age(&run, at);
    run
}

fn ids<'a>(answer: &'a Answer, list: &str) -> Vec<&'a str> {
    let all = answer.json[list].as_array().expect("a list");
    all.iter().map(|one| one["runId"].as_str().expect("an id")).collect()
}

fn reasons(answer: &Answer) -> Vec<(String, String)> {
    let all = answer.json["kept"].as_array().expect("a list");
    let text = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    all.iter().map(|one| (text(one, "runId"), text(one, "reason"))).collect()
}

#[test]
fn a_plan_changes_nothing_and_what_it_names_is_removed() {
    let store = Store::new();
    old(&store, "old", 40);
    old(&store, "new", 3);
    let bytes: u64 = tree::walk(store.run("old").path())
        .expect("ours")
        .iter()
        .filter(|path| path.is_file())
        .map(|path| path.metadata().expect("there").len())
        .sum();
    let before = tree::snapshot(store.root()).expect("ours");
    let plan = prune(&store, &[]);
    assert_eq!(tree::diff(&before, &tree::snapshot(store.root()).expect("ours")), [""; 0]);
    assert_eq!((plan.code, &plan.json["schema"]), (0, &json!("runstore.prune/1")));
    assert_eq!((ids(&plan, "remove"), &plan.json["applied"]), (vec!["old"], &json!(false)));
    assert_eq!(reasons(&plan), [("new".to_owned(), "recent".to_owned())]);
    assert_eq!(plan.json["summary"], json!({"runs": 1, "bytes": bytes, "kept": 1}));
    let done = prune(&store, &["--apply"]);
    assert_eq!((done.code, ids(&done, "remove")), (0, vec!["old"]), "{:#}", done.json);
    assert!(!store.root().join("async-subagent-runs/old").exists());
    let after = tree::snapshot(store.root()).expect("ours");
    let changes = tree::diff(&before, &after);
    let other = |line: &&String| line.contains("async-subagent-runs/new");
    assert_eq!(changes.iter().find(other), None, "another run is not touched");
    let left: Vec<_> =
        after.keys().filter(|k| k.contains("deleting") || k.contains("lock")).collect();
    assert!(left.is_empty(), "{left:?}");
    let again = prune(&store, &["--apply"]);
    assert_eq!((again.code, ids(&again, "remove").len()), (0, 0), "twice changes nothing");
    assert_eq!(ask::inspect(store.root()).verdict("new"), "finished");
}

/// What keeps the run `old` in a store.
type Reason = fn(&Store, &Run);

#[test]
fn each_reason_keeps_a_run_and_is_named() {
    let rows: [(&str, Reason); 22] = [
        ("damaged", |_, run| {
            run.file("status.json", "{");
        }),
        ("damaged", |_, run| {
            run.link("control", "/");
        }),
        ("no-status", |_, run| {
            for name in [
                "status.json",
                "process-terminal.json",
                "process-terminal-candidate.json",
                "output-0.log",
            ] {
                std::fs::remove_file(run.path().join(name)).expect("there");
            }
        }),
        ("identity-mismatch", |_, run| {
            let status = records::complete("old", now_ms() - 40 * DAY_MS);
            run.status(&records::with(status, "runId", "other"));
        }),
        ("non-terminal", |_, run| {
            let status = records::complete("old", now_ms() - 40 * DAY_MS);
            run.status(&records::with(status, "state", "paused"));
        }),
        ("non-terminal", |_, run| {
            run.status(&records::running("old", GONE, now_ms() - 40 * DAY_MS));
            std::fs::remove_file(run.path().join("process-terminal.json")).expect("there");
        }),
        ("unproven", |_, run| {
            std::fs::remove_file(run.path().join("process-terminal.json")).expect("there");
        }),
        ("waited-for", |store, _| {
            let wait = json!({"version": 1, "token": "t", "sessionId": SESSION, "runId": "old",
                "targetKind": "async", "requestedId": "old", "createdAt": 1, "expiresAt": 2});
            store.file("wait-subscriptions/t.json", wait.to_string());
        }),
        ("active-marker", |store, _| {
            store.active_marker("old");
        }),
        ("held", |store, _| slot(store, 0, "old", SESSION)),
        ("held", |store, _| {
            let lease = records::lease("old", 1, "another-host", 5);
            store.lease(&sha256_hex(b"x"), &lease);
        }),
        ("unread", |store, _| {
            store.result("old", &records::result("old", 5));
        }),
        ("unread", |store, _| {
            store.file("async-subagent-results/old.json", "{");
        }),
        ("workflow", |_, run| {
            let status = records::complete("old", now_ms() - 40 * DAY_MS);
            run.status(&records::with(status, "workflowKey", "k"));
        }),
        ("workflow", |_, run| {
            let status = records::complete("old", now_ms() - 40 * DAY_MS);
            run.status(&records::with(status, "parentWorkflowRunId", "w"));
        }),
        ("nested", |store, _| {
            records::finish(&store.nested_run("old", "child"), now_ms());
        }),
        ("mission", |_, run| {
            run.file("mission.json", "{}");
        }),
        ("hand-off", |_, run| {
            let groups = json!([{"index": 0, "cleanup": {"state": "pending"}}]);
            run.json("handoff.json", &json!({"version": 1, "groups": groups}));
        }),
        ("referenced", |store, _| {
            let status = records::complete("revival", now_ms());
            let status = records::with(status, "sourceRunId", "old");
            store.run("revival").status(&status);
        }),
        ("resumable", |_, run| {
            run.file("recovery-descriptor.json", "{}");
        }),
        ("resumable", |store, run| {
            let file = store.beside("sessions").join("s.jsonl");
            std::fs::write(&file, "").expect("room");
            let status = records::complete("old", now_ms() - 40 * DAY_MS);
            run.status(&records::with(status, "sessionFile", utf8(&file)));
        }),
        ("recent", |_, run| {
            run.file("process-terminal.json", records::proof("old", 5).to_string());
        }),
    ];
    for (reason, keep) in rows {
        let store = Store::new();
        let run = old(&store, "old", 40);
        keep(&store, &run);
        if reason != "recent" {
            age(&run, now_ms() - 40 * DAY_MS);
        }
        for apply in [&["--apply"][..], &[]] {
            let answer = prune(&store, apply);
            let told = reasons(&answer).into_iter().find(|(run, _)| run == "old");
            let want = Some(("old".to_owned(), reason.to_owned()));
            assert_eq!(told, want, "{reason}: {:#}", answer.json);
            assert!(run.path().exists(), "{reason}: it stays");
        }
    }
}

#[test]
fn a_delivered_result_does_not_keep_its_run() {
    let store = Store::new();
    old(&store, "old", 40);
    let result = records::result("old", 5);
    store.result("old", &records::with(result, "notificationDeliveredAt", 6));
    assert_eq!(ids(&prune(&store, &[]), "remove"), ["old"]);
}

#[test]
fn a_wait_that_cannot_be_read_keeps_everything() {
    let store = Store::new();
    old(&store, "old", 40);
    store.file("wait-subscriptions/t.json", r#"{"version":1,"token":"t"}"#);
    for apply in [&["--apply"][..], &[]] {
        let answer = prune(&store, apply);
        assert_eq!(reasons(&answer), [("old".to_owned(), "blocked".to_owned())]);
        assert_eq!(answer.code, 8, "a damaged record");
    }
    assert!(store.root().join("async-subagent-runs/old").exists());
}

#[test]
fn the_last_ones_and_other_sessions_are_kept() {
    let store = Store::new();
    for (id, days) in [("a", 50), ("b", 45), ("c", 40)] {
        old(&store, id, days);
    }
    let other = store.run("d");
    let at = now_ms() - 60 * DAY_MS;
    records::finish(&other, at);
    other.status(&records::with(records::complete("d", at), "sessionId", "other"));
    age(&other, at);
    assert_eq!(ids(&prune(&store, &[]), "remove"), ["d", "a", "b", "c"], "the oldest first");
    let own = prune(&store, &["--session", SESSION, "--keep-last", "1"]);
    assert_eq!(ids(&own, "remove"), ["a", "b"]);
    assert_eq!(reasons(&own), [("c".to_owned(), "kept-last".to_owned())]);
    assert_eq!(ids(&prune(&store, &["--older-than", "47d"]), "remove"), ["d", "a"]);
    let done = prune(&store, &["--apply", "--session", SESSION, "--keep-last", "1"]);
    assert_eq!(ids(&done, "remove"), ["a", "b"]);
    let left: Vec<_> = ["a", "b", "c", "d"]
        .into_iter()
        .filter(|id| store.root().join("async-subagent-runs").join(id).exists())
        .collect();
    assert_eq!(left, ["c", "d"]);
}

fn lock(store: &Store, pid: u32, host: &str) {
    let owner = json!({"version": 1, "token": "tok", "pid": pid, "hostname": host,
        "startedAt": now_ms()});
    store.file(".async-retention.lock/owner.json", owner.to_string());
}

#[test]
fn the_retention_lock_of_others_is_honoured_and_that_of_the_dead_set_aside() {
    let (store, live) = (Store::new(), Live::start());
    old(&store, "old", 40);
    for (pid, host) in [(live.pid(), host_name()), (GONE, "another-host".to_owned())] {
        lock(&store, pid, &host);
        let outcome = ask::run(&["prune", utf8(store.root()), "--apply"]);
        assert_eq!(outcome.code, 7, "{}{}", outcome.text(), outcome.errors());
        assert!(outcome.errors().contains("holds the retention lock"), "{}", outcome.errors());
        assert!(store.root().join("async-subagent-runs/old").exists());
        assert_eq!(ids(&prune(&store, &[]), "remove"), ["old"], "a plan needs no lock");
    }
    lock(&store, GONE, &host_name());
    assert_eq!(ids(&prune(&store, &["--apply"]), "remove"), ["old"]);
    assert!(store.root().join(".async-retention.lock.stale-tok/owner.json").exists());
    assert!(!store.root().join(".async-retention.lock").exists(), "and ours is let go of");
}

#[test]
fn what_was_removed_from_one_store_is_told_when_the_next_one_cannot_be_touched() {
    let (first, second) = (Store::new(), Store::new());
    old(&first, "old", 40);
    lock(&second, std::process::id(), &host_name());
    let args = ["prune", utf8(first.root()), utf8(second.root()), "--apply", "--format", "json"];
    let answer = Answer::of(&ask::run(&args));
    assert_eq!((answer.code, ids(&answer, "remove")), (7, vec!["old"]), "{:#}", answer.json);
}

#[test]
fn interrupted_removals_are_put_back_or_finished() {
    let store = Store::new();
    let aside = |n: u32| format!(".deleting-run-0f4d8a3e-1c1b-4e43-9f0e-6d1f5d1a2b3{n}");
    for (n, (run, phase)) in [("moved", "moving"), ("half", "deleting")].into_iter().enumerate() {
        let n = u32::try_from(n).expect("small");
        old(&store, run, 3);
        let runs = store.root().join("async-subagent-runs");
        std::fs::rename(runs.join(run), runs.join(aside(n))).expect("ours");
        let note = json!({"version": 1, "runsRoot": "async-subagent-runs", "runId": run,
            "aside": aside(n), "phase": phase});
        store.file(&format!(".runstore/prune/{n}.json"), note.to_string());
    }
    let evil = json!({"version": 1, "runsRoot": "..", "runId": "x", "aside": aside(7),
        "phase": "deleting"});
    let note = store.file(".runstore/prune/evil.json", evil.to_string());
    assert_eq!(prune(&store, &[]).json["leftovers"], 3);
    let done = prune(&store, &["--apply"]);
    assert_eq!(done.json["putBack"], json!(["moved"]), "{:#}", done.json);
    assert_eq!(done.json["finished"], json!(["half"]));
    assert_eq!((done.code, done.json["problems"].as_array().map(Vec::len)), (1, Some(1)));
    assert!(note.exists(), "what leads elsewhere is not followed");
    assert_eq!(ask::inspect(store.root()).verdict("moved"), "finished");
    assert!(!store.root().join("async-subagent-runs").join(aside(1)).exists());
}

#[test]
fn of_one_run_of_each_class_only_the_free_one_is_removed() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases/PC-026/root");
    let dir = tempfile::tempdir().expect("a directory");
    let root = std::fs::canonicalize(dir.path()).expect("exists").join("root");
    tree::copy(&shipped, &root).expect("it is ours");
    // The case names a session file of a machine; here it is the one that it ships.
    let id = |n: u32| format!("00000026-0000-4000-8000-{n:012}");
    let status = root.join("async-subagent-runs").join(id(2)).join("status.json");
    let text = std::fs::read_to_string(&status).expect("there");
    let kept = root.join("sessions/kept.jsonl");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    record["sessionFile"] = json!(utf8(&kept));
    std::fs::write(&status, record.to_string()).expect("ours");
    case::set_times(&root).expect("ours");
    let args = ["prune", utf8(&root), "--format", "json", "--now", "1795184000000"];
    let plan = Answer::of(&ask::run(&args));
    assert_eq!(ids(&plan, "remove"), [id(7)], "{:#}", plan.json);
    let mut told = reasons(&plan);
    told.sort();
    let want = ["recent", "resumable", "nested", "hand-off", "active-marker", "damaged"];
    let want: Vec<_> = (1..).zip(want).map(|(n, why)| (id(n), why.to_owned())).collect();
    assert_eq!(told, want);
}

#[test]
fn one_run_or_another_instant_is_no_store_to_remove_from() {
    let store = Store::new();
    let run = old(&store, "old", 40);
    assert_eq!(ask::run(&["prune", utf8(run.path())]).code, 2);
    let root = utf8(store.root());
    assert_eq!(ask::run(&["prune", root, "--apply", "--now", "5"]).code, 2);
    assert_eq!(ask::run(&["prune", "/no/such/store"]).code, 4);
    let loose = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(store.root(), loose).expect("ours");
    assert_eq!(ask::run(&["prune", root, "--apply"]).code, 8, "others may write there");
    assert!(run.path().exists());
    let outcome = ask::run(&["prune", root]);
    assert_harmless("a plan", &outcome.stdout);
    assert!(outcome.text().contains("to be removed"), "{}", outcome.text());
}

#[test]
fn the_shipped_store_has_nothing_to_remove_yet() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/store");
    tree::copy(&shipped, &root).expect("it is ours");
    let answer = Answer::of(&ask::run(&["prune", utf8(&root), "--format", "json"]));
    assert_eq!(answer.json["remove"], json!([]), "{:#}", answer.json);
    assert!(reasons(&answer).len() >= 6, "every run is told with its reason");
}
