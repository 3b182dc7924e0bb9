//! Runs whose runner is gone get a truthful end: `recover`.
//!
//! Theory of operation. Each test makes a store with one thing wrong, asks for the plan, carries it out, asks again,
//! looks with `inspect`, and takes it back. What must not be touched stands beside it. RS-REC-01 to RS-REC-32.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use runstore::protocol::observer_record::ObserverRecord;
use runstore::protocol::process::{ProcessRecord, RecordedIdentity};
use runstore::protocol::segment::sha256_hex;
use runstore::store::advisory::lock_name;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use testkit::process::{Live, host_name, now_ms, wait_for_the_next_millisecond};
use testkit::records::{self, GONE, SESSION, with};
use testkit::store::Run;
use testkit::{Store, tree};

use crate::ask::{self, Answer, inspect, utf8};
use crate::lists::slot;
use crate::recovered::prove::{self, Picture, picture};

/// Asks `recover`, with runs that may have changed a moment ago.
fn recover(store: &Store, more: &[&str]) -> Answer {
    let mut args = vec!["recover", utf8(store.root()), "--format", "json", "--grace-ms", "0"];
    args.extend_from_slice(more);
    // A run that was written in this very millisecond has not been quiet.
    wait_for_the_next_millisecond();
    Answer::of(&ask::run(&args))
}

fn undo(store: &Store) -> Answer {
    prove::undo(store.root())
}

fn state(store: &Store) -> Picture {
    picture(store.root())
}

fn actions(answer: &Answer) -> Vec<(String, String)> {
    let all = answer.json["actions"].as_array().expect("a list");
    let text = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    all.iter().map(|one| (text(one, "runId"), text(one, "action"))).collect()
}

fn refusal(answer: &Answer, run: &str) -> String {
    let all = answer.json["refused"].as_array().expect("a list");
    let found = all.iter().find(|one| one["runId"] == run).unwrap_or_else(|| panic!("{answer:?}"));
    found["why"].as_str().expect("a text").to_owned()
}

fn status(store: &Store, run: &str) -> Value {
    json_of(&store.root().join(format!("async-subagent-runs/{run}/status.json")))
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("there")).expect("JSON")
}

/// A run that says it works, and whose process is gone.
fn orphan(store: &Store, id: &str) -> Run {
    let run = store.run(id);
    run.status(&records::running(id, GONE, now_ms() - 60_000));
    store.active_marker(id);
    run
}

/// The run `ended`, with everything that such a run leaves, its end in the log as well.
fn ended(store: &Store, at_ms: i64) -> Run {
    let run = store.run("ended");
    records::finish(&run, at_ms);
    run.event(&json!({"type": "subagent.run.process_terminal", "runId": "ended", "ts": at_ms}));
    run
}

/// Holds the lock of a file of the store, as long as it is kept.
pub(crate) fn locked(path: &Path) -> fs::File {
    let lock = fs::OpenOptions::new().append(true).open(path).expect("ours");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody holds it");
    lock
}

/// Carries out a plan that was saved.
fn recover_from(saved: &Path) -> Answer {
    let args = ["recover", "--from", utf8(saved), "--format", "json", "--grace-ms", "0"];
    Answer::of(&ask::run(&args))
}

fn log_of(store: &Store) -> Answer {
    let args = ["recover", "log", "--root", utf8(store.root()), "--format", "json"];
    Answer::of(&ask::run(&args))
}

/// Says in few words how two states differ.
fn assert_same(now: &Picture, before: &Picture, what: &str) {
    let differ = tree::differing(now, before);
    assert!(differ.is_empty(), "{what}: {differ:?}");
}

/// Plan, apply, an empty second plan, undo: as it was, byte for byte. The verdict in between is returned.
fn cycle(store: &Store, run: &str, expected: &[&str]) -> Value {
    let before = state(store);
    let plan = recover(store, &[]);
    let named: Vec<_> = actions(&plan).into_iter().map(|(_, action)| action).collect();
    assert_eq!(named, expected, "{:#}", plan.json);
    assert_eq!(plan.code, 1, "there is something to do");
    assert_same(&state(store), &before, "a plan writes nothing");
    let applied = recover(store, &["--apply"]);
    assert_eq!(
        (applied.code, applied.json["left"].as_array().map(Vec::len)),
        (0, Some(0)),
        "{applied:?}"
    );
    let again = recover(store, &[]);
    assert_eq!(actions(&again), [], "a second plan is empty");
    let after = state(store);
    let twice = recover(store, &["--apply"]);
    assert_eq!(twice.code, 0);
    assert_same(&state(store), &after, "a second apply changes nothing");
    let path = store.root().join("async-subagent-runs").join(run);
    let report = inspect(&path).json["runs"][0].clone();
    let undone = undo(store);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_same(&state(store), &before, "taken back, byte for byte");
    report
}

#[test]
fn an_orphan_is_closed_as_failed_and_its_session_is_told() {
    let store = Store::new();
    let run = orphan(&store, "lost");
    run.file("runner.stderr.log", "thread main panicked at nothing\n");
    let report = cycle(&store, "lost", &["close-as-failed"]);
    assert_eq!(
        (&report["verdict"], &report["recordedState"]),
        (&json!("finished-unproven"), &json!("failed"))
    );
    let flags = report["flags"].to_string();
    assert!(flags.contains("repaired") && flags.contains("undelivered"), "{flags}");
    recover(&store, &["--apply"]);
    let status = status(&store, "lost");
    let error = status["error"].as_str().expect("a text");
    assert!(
        error.contains("999999999") && error.ends_with("thread main panicked at nothing"),
        "{error}"
    );
    assert_eq!(status["processTerminal"]["reason"], "stale-repair");
    assert_eq!(status["steps"][0]["status"], "failed");
    let root = store.root();
    let result = root.join("async-subagent-results/lost.json");
    let payload: Value = serde_json::from_slice(&fs::read(result).expect("there")).expect("JSON");
    assert_eq!((&payload["success"], &payload["sessionId"]), (&json!(false), &json!(SESSION)));
    assert!(
        !root.join("async-subagent-runs/.active-runs/lost").exists(),
        "out of the active index"
    );
    let events = fs::read_to_string(run.path().join("events.jsonl")).expect("there");
    assert!(events.contains("subagent.run.repaired_stale"), "{events}");
    assert!(!run.path().join("process-terminal.json").exists(), "nobody saw the exit");
}

#[test]
fn without_a_session_there_is_no_result() {
    let store = Store::new();
    let run = store.run("lost");
    run.status(&records::without(records::running("lost", GONE, now_ms() - 60_000), "sessionId"));
    cycle(&store, "lost", &["close-as-failed"]);
    recover(&store, &["--apply"]);
    assert!(!store.root().join("async-subagent-results").exists(), "nobody would take it");
    assert_eq!(status(&store, "lost")["state"], "failed");
}

#[test]
fn a_result_wins_over_the_end_of_its_process() {
    let store = Store::new();
    orphan(&store, "told");
    store.result("told", &records::result("told", now_ms() - 30_000));
    let report = cycle(&store, "told", &["adopt-result"]);
    assert_eq!(
        (&report["recordedState"], &report["verdict"]),
        (&json!("complete"), &json!("finished-unproven"))
    );
}

#[test]
fn a_pending_result_is_adopted_and_made_public() {
    let store = Store::new();
    orphan(&store, "told");
    let pending = format!("async-subagent-results/result-pending/{SESSION}/told.json");
    store.file(&pending, records::result("told", now_ms() - 30_000).to_string());
    cycle(&store, "told", &["adopt-result"]);
    recover(&store, &["--apply"]);
    let root = store.root().join("async-subagent-results");
    assert!(root.join("told.json").exists(), "public");
    assert!(root.join(format!("result-index/sessions/{SESSION}/told.json")).exists(), "and found");
    assert!(!store.root().join(pending).exists(), "and not pending any more");
}

// Facts S-91: whoever publishes again is cut off between its pending payload and the public name.
#[test]
fn a_pending_result_takes_the_place_of_an_older_public_one() {
    let store = Store::new();
    orphan(&store, "told");
    store.result("told", &records::result("told", now_ms() - 40_000));
    let pending = format!("async-subagent-results/result-pending/{SESSION}/told.json");
    let newer = with(records::result("told", now_ms() - 30_000), "summary", "the newer one");
    store.file(&pending, newer.to_string());
    cycle(&store, "told", &["adopt-result"]);
    recover(&store, &["--apply"]);
    let public = store.root().join("async-subagent-results/told.json");
    let public: Value = serde_json::from_slice(&fs::read(public).expect("there")).expect("JSON");
    assert_eq!(public["summary"], "the newer one");
    assert!(!store.root().join(pending).exists(), "and not pending any more");
}

// RS-REC-05: only so many are looked at, and its own may be one of the others.
#[test]
fn a_run_whose_result_may_be_beyond_the_bound_is_left_alone() {
    let store = Store::new();
    orphan(&store, "told");
    let pending = "async-subagent-results/result-pending";
    let stray = format!("{pending}/{SESSION}/stray.json");
    store.file(&stray, records::result("told", now_ms() - 30_000).to_string());
    let others = store.folder(&format!("{pending}/a-session"));
    for n in 0..10_000 {
        fs::write(others.join(format!("{n}.json")), "{}").expect("room");
    }
    let answer = recover(&store, &[]);
    assert!(actions(&answer).is_empty(), "{answer:?}");
    assert!(refusal(&answer, "told").contains("not to its end"), "{answer:?}");
    fs::remove_dir_all(others).expect("ours");
    assert_eq!(actions(&recover(&store, &[])), [("told".to_owned(), "adopt-result".to_owned())]);
}

#[test]
fn a_result_that_cannot_be_read_keeps_the_run_as_it_is() {
    let store = Store::new();
    orphan(&store, "told");
    store.file("async-subagent-results/told.json", "{\"success\":tr");
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), []);
    assert!(refusal(&plan, "told").contains("cannot be read"), "{plan:?}");
    assert_eq!(recover(&store, &["--apply"]).code, 1, "an orphan is left");
}

#[test]
fn unknown_is_never_dead() {
    let store = Store::new();
    let live = Live::start();
    let at = now_ms();
    store.run("live").status(&records::running("live", live.pid(), at));
    let elsewhere = with(records::running("elsewhere", GONE, at), "hostname", "another-host");
    store.run("elsewhere").status(&elsewhere);
    let nobody = records::without(records::running("nobody", GONE, at - 600_000), "pid");
    store.run("nobody").status(&nobody);
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [], "{:#}", plan.json);
    for run in ["elsewhere", "nobody"] {
        assert!(refusal(&plan, run).contains("unknown is never dead"), "{plan:?}");
    }
    assert_eq!(plan.code, 5, "some of it could not be determined");
}

#[test]
fn what_changed_a_moment_ago_is_left_alone() {
    let store = Store::new();
    orphan(&store, "lost");
    let args = ["recover", utf8(store.root()), "--format", "json", "--grace-ms", "3600000"];
    let plan = Answer::of(&ask::run(&args));
    assert_eq!(actions(&plan), []);
    assert!(refusal(&plan, "lost").contains("quiet for 3600000 ms"), "{plan:?}");
}

#[test]
fn hidden_queued_and_half_paused_runs_are_left_alone() {
    let store = Store::new();
    let at = now_ms() - 60_000;
    let base = |id: &str| records::running(id, GONE, at);
    store.run("hidden").status(&with(base("hidden"), "displayDismissedAt", at));
    store.run("queued").status(&with(base("queued"), "state", "queued"));
    store.run("paused").status(&with(base("paused"), "state", "paused"));
    let twice = base("twice").to_string().replace("\"runId\"", "\"runId\":\"twice\",\"runId\"");
    store.run("twice").file("status.json", twice);
    store.run("other").status(&base("another"));
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [], "{:#}", plan.json);
    for (run, why) in [
        ("hidden", "hidden"),
        ("queued", "closeQueued"),
        ("paused", "pause"),
        ("twice", "duplicate keys"),
        ("other", "names another run"),
    ] {
        assert!(refusal(&plan, run).contains(why), "{run}: {plan:?}");
    }
    let policy = store.beside("home").join("policy.json");
    fs::write(&policy, r#"{"version":1,"closeQueued":true}"#).expect("ours");
    let plan = recover(&store, &["--policy", utf8(&policy)]);
    assert_eq!(actions(&plan), [("queued".to_owned(), "close-as-failed".to_owned())]);
    fs::write(&policy, r#"{"version":1,"closeQueud":true}"#).expect("ours");
    let args = ["recover", utf8(store.root()), "--policy", utf8(&policy)];
    let refused = ask::run(&args);
    assert_eq!(refused.code, 2, "a misspelt policy is no default");
    assert!(refused.errors().contains("closeQueud"), "{}", refused.errors());
}

#[test]
fn one_damaged_record_hides_no_other() {
    let store = Store::new();
    orphan(&store, "lost");
    store.run("torn").file("status.json", "{\"runId\":\"torn\",");
    store.run("pipe").link("status.json", "/etc/hostname");
    let answer = recover(&store, &["--apply"]);
    assert_eq!(answer.code, 8, "damaged records remain");
    assert_eq!(answer.json["done"][0]["runId"], "lost");
    assert_eq!(status(&store, "lost")["state"], "failed");
}

#[test]
fn a_damaged_status_is_set_aside_only_when_asked_for() {
    let store = Store::new();
    let run = store.run("torn");
    run.file("status.json", "{\"runId\":\"torn\",");
    let policy = store.beside("home").join("policy.json");
    fs::write(&policy, r#"{"version":1,"setAsideCorrupt":true}"#).expect("ours");
    let before = state(&store);
    let answer = recover(&store, &["--apply", "--policy", utf8(&policy)]);
    assert_eq!(answer.json["done"][0]["action"], "set-aside-status", "{answer:?}");
    assert!(!run.path().join("status.json").exists());
    assert_eq!(undo(&store).code, 0);
    assert_same(&state(&store), &before, "its bytes were kept");
}

#[test]
fn what_follows_from_a_proof_is_made_up_for() {
    let store = Store::new();
    let run = store.run("ended");
    let at = now_ms() - 120_000;
    records::finish(&run, at);
    let overlay = json!({"version": 1, "state": "pending", "runId": "ended", "runnerProcessInstanceId": "inst-1"});
    run.status(&with(records::complete("ended", at), "processTerminal", overlay));
    store.active_marker("ended");
    store.terminal_marker(SESSION, "another", 1);
    let report = cycle(&store, "ended", &["complete-end"]);
    assert_eq!(report["verdict"], "finished");
    recover(&store, &["--apply"]);
    assert_eq!(status(&store, "ended")["processTerminal"]["state"], "observed");
    let events = fs::read_to_string(run.path().join("events.jsonl")).expect("there");
    assert!(events.contains("subagent.run.process_terminal"), "{events}");
}

#[test]
fn what_a_dead_run_holds_is_freed_by_rule_only() {
    let store = Store::new();
    let at = now_ms() - 120_000;
    ended(&store, at);
    let pool = sha256_hex(SESSION.as_bytes());
    slot(&store, 0, "ended", SESSION);
    orphan(&store, "lost");
    slot(&store, 1, "lost", SESSION);
    let key = "ab".repeat(32);
    store.lease(&key, &records::lease("lost", GONE, &host_name(), at));
    let report = cycle(&store, "ended", &["free-slot", "close-as-failed", "free-lease"]);
    assert_eq!(report["verdict"], "finished");
    recover(&store, &["--apply"]);
    let slots = store.root().join("session-active-async-capacity").join(&pool);
    assert!(!slots.join("slot-0").exists(), "proven");
    assert!(slots.join("slot-1").exists(), "closed without a proof");
}

#[test]
fn litter_of_a_dead_writer_goes_and_the_only_copy_stays() {
    let store = Store::new();
    let at = now_ms() - 120_000;
    let run = ended(&store, at);
    let old = at - 7_200_000;
    run.file(&format!(".status.json.{GONE}.{old}.abc.tmp"), "{");
    run.file(&format!(".recovery-descriptor.json.{GONE}.{old}.abc.tmp"), "{}");
    run.file(&format!(".status.json.{}.{old}.abc.tmp", std::process::id()), "{");
    cycle(&store, "ended", &["remove-litter"]);
    recover(&store, &["--apply"]);
    let left: Vec<_> = fs::read_dir(run.path())
        .expect("ours")
        .map(|entry| entry.expect("ours").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert_eq!(left.len(), 2, "the only copy, and one of a live process: {left:?}");
}

#[test]
fn a_configuration_that_nobody_takes_up_goes() {
    let store = Store::new();
    orphan(&store, "lost");
    store.file("async-cfg-lost.json", "{\"id\":\"lost\"}");
    cycle(&store, "lost", &["close-as-failed"]);
    recover(&store, &["--apply"]);
    assert!(
        !store.root().join("async-cfg-lost.json").exists(),
        "its runner is gone, and it holds prompts"
    );
    store.file("async-cfg-nobody.json", "{}");
    assert_eq!(actions(&recover(&store, &[])), [], "a launcher may be about to make its directory");
    tree::set_time_ms(&store.root().join("async-cfg-nobody.json"), 1).expect("ours");
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [("nobody".to_owned(), "remove-config".to_owned())]);
}

#[test]
fn a_saved_plan_is_carried_out_only_while_it_holds() {
    let store = Store::new();
    let run = orphan(&store, "lost");
    orphan(&store, "also");
    let plan = recover(&store, &[]);
    let saved = store.beside("home").join("plan.json");
    fs::write(&saved, plan.json.to_string()).expect("ours");
    run.status(&with(records::running("lost", GONE, now_ms() - 60_000), "currentStep", 1));
    let answer = recover_from(&saved);
    assert_eq!(answer.code, 1);
    let left = answer.json["left"][0]["why"].as_str().expect("a text");
    assert!(left.contains("stale") && left.contains("lost/status.json"), "{left}");
    assert_eq!(
        (&answer.json["done"][0]["runId"], answer.json["done"].as_array().map(Vec::len)),
        (&json!("also"), Some(1))
    );
    let refused = ask::run(&["recover", "--from", "/etc/hostname"]);
    assert_eq!(refused.code, 2, "{}", refused.errors());
}

// What the action of the plan relied on counts, although the one that follows from what is there now does not.
#[test]
fn a_saved_plan_is_stale_when_something_of_it_is_gone() {
    let store = Store::new();
    let at = now_ms() - 120_000;
    let run = ended(&store, at);
    let old = at - 7_200_000;
    let litter = |tail: &str| format!(".status.json.{GONE}.{old}.{tail}.tmp");
    run.file(&litter("one"), "{");
    run.file(&litter("two"), "{");
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [("ended".to_owned(), "remove-litter".to_owned())]);
    let saved = store.beside("home").join("plan.json");
    fs::write(&saved, plan.json.to_string()).expect("ours");
    fs::remove_file(run.path().join(litter("one"))).expect("ours");
    let answer = recover_from(&saved);
    assert_eq!((answer.code, &answer.json["summary"]["done"]), (1, &json!(0)), "{answer:?}");
    let why = answer.json["left"][0]["why"].as_str().expect("a text");
    assert!(why.contains(&litter("one")) && why.contains("is absent"), "{why}");
    assert!(run.path().join(litter("two")).exists(), "nothing of it was done");
}

#[test]
fn what_belongs_to_no_run_is_locked_nowhere_but_at_the_root() {
    let store = Store::new();
    store.run("other").status(&records::complete("other", now_ms() - 120_000));
    store.active_marker("nobody");
    let key = "ab".repeat(32);
    store.lease(&key, &records::lease("gone", GONE, &host_name(), now_ms() - 120_000));
    let answer = recover(&store, &["--apply"]);
    assert_eq!(answer.json["summary"]["done"], 2, "{answer:?}");
    let own = |path: &std::path::PathBuf| path.file_name().is_some_and(|n| n == ".runstore");
    let made: Vec<_> = tree::walk(store.root()).expect("ours").into_iter().filter(own).collect();
    assert_eq!(made, [store.root().join(".runstore")]);
}

#[test]
fn only_what_is_named_is_done() {
    let store = Store::new();
    orphan(&store, "one");
    orphan(&store, "two");
    let answer = recover(&store, &["--apply", "--only", "two"]);
    assert_eq!(answer.json["summary"]["done"], 1, "{answer:?}");
    assert_eq!(status(&store, "one")["state"], "running");
    let path = store.root().join("async-subagent-runs/one");
    let args = ["recover", utf8(&path), "--apply", "--format", "json", "--grace-ms", "0"];
    let alone = Answer::of(&ask::run(&args));
    assert_eq!(alone.json["done"][0]["runId"], "one", "a run directory is a scope as well");
}

#[test]
fn an_undo_leaves_what_others_have_made_since() {
    let store = Store::new();
    let run = orphan(&store, "one");
    orphan(&store, "two");
    recover(&store, &["--apply"]);
    run.status(&records::complete("one", now_ms()));
    let undone = undo(&store);
    assert_eq!(undone.code, 1);
    assert_eq!(undone.json["left"][0]["runId"], "one", "{undone:?}");
    assert_eq!(status(&store, "one")["state"], "complete");
    assert_eq!(status(&store, "two")["state"], "running");
    let log = log_of(&store);
    let states: Vec<_> = log.json["applies"][0]["actions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| entry["state"].as_str().expect("a word").to_owned())
        .collect();
    let mut sorted = states.clone();
    sorted.sort();
    assert_eq!(sorted, ["done", "undone"], "{:#}", log.json);
}

#[test]
fn what_was_done_in_one_store_is_told_when_the_next_one_cannot_be_touched() {
    let (first, second) = (Store::new(), Store::new());
    orphan(&first, "lost");
    let _lock = locked(&second.file(".runstore/recovery.lock", ""));
    let args = ["recover", utf8(first.root()), utf8(second.root()), "--apply", "--grace-ms", "0"];
    let args = [&args[..], &["--format", "json"]].concat();
    let answer = Answer::of(&ask::run(&args));
    let done = &answer.json["done"][0]["runId"];
    assert_eq!((answer.code, done), (7, &json!("lost")), "{:#}", answer.json);
}

#[test]
fn a_record_that_cannot_be_read_is_told_in_words() {
    let store = Store::new();
    store.file(".runstore/recovery/1790000000000-0123abcd/00001.done.json/x", "");
    let log = log_of(&store);
    let problem = &log.json["applies"][0]["actions"][0]["problem"];
    let told = "00001.done.json cannot be read: it is a directory";
    assert_eq!((log.code, problem), (8, &json!(told)), "{:#}", log.json);
}

#[test]
fn one_recovery_at_a_time() {
    let store = Store::new();
    orphan(&store, "lost");
    let _lock = locked(&store.file(".runstore/recovery.lock", ""));
    let args = ["recover", utf8(store.root()), "--apply"];
    let refused = ask::run(&args);
    assert_eq!(refused.code, 7, "{}", refused.errors());
    assert!(refused.errors().contains("recovery.lock"), "{}", refused.errors());
    assert_eq!(status(&store, "lost")["state"], "running");
}

// RS-REC-23: a writer of ours that holds the lock of a run keeps every kind of recovery from it.
#[test]
fn neither_an_undo_nor_a_begun_action_goes_on_while_a_writer_has_the_run() {
    let store = Store::new();
    orphan(&store, "lost");
    let applied = recover(&store, &["--apply"]);
    let id = applied.json["applies"][0].as_str().expect("an id");
    // The apply made it.
    let lock = store.root().join("async-subagent-runs/.runstore").join(lock_name("lost"));
    let lock = locked(&lock);
    let undone = undo(&store);
    let why = undone.json["left"][0]["why"].as_str().expect("a text");
    assert!(undone.code == 1 && why.contains("held the lock"), "{undone:?}");
    assert_eq!(status(&store, "lost")["state"], "failed");
    let record =
        |state: &str| store.root().join(format!(".runstore/recovery/{id}/00001.{state}.json"));
    fs::rename(record("done"), record("begun")).expect("ours");
    let next = recover(&store, &["--apply"]);
    let problem = next.json["problems"][0].as_str().expect("a text");
    assert!(next.code == 1 && problem.contains("cannot be finished yet"), "{next:?}");
    assert!(record("begun").exists());
    // The store may have had another path when it was written.
    let mut moved = json_of(&record("begun"));
    moved["path"] = "/another/place/async-subagent-runs/lost".into();
    fs::write(record("begun"), moved.to_string()).expect("ours");
    let next = recover(&store, &["--apply"]);
    let problem = next.json["problems"][0].as_str().expect("a text");
    assert!(next.code == 1 && problem.contains("cannot be finished yet"), "{next:?}");
    drop(lock);
    let last = recover(&store, &["--apply"]);
    assert_eq!((last.code, &last.json["finished"][0]), (0, &json!("lost")), "{last:?}");
}

#[test]
fn a_store_that_others_can_change_is_not_repaired() {
    let store = Store::new();
    orphan(&store, "lost");
    fs::set_permissions(store.root(), fs::Permissions::from_mode(0o777)).expect("ours");
    let args = ["recover", utf8(store.root()), "--apply"];
    let refused = ask::run(&args);
    assert_eq!(refused.code, 8, "{}", refused.errors());
    assert_eq!(status(&store, "lost")["state"], "running");
    assert!(!Path::new(store.root()).join(".runstore").exists(), "nothing was written");
}

#[test]
fn a_conflict_and_a_start_that_is_stuck_are_told_and_left() {
    let store = Store::new();
    let at = now_ms() - 120_000;
    let run = store.run("two-ends");
    run.status(&with(records::complete("two-ends", at), "processTerminal", Value::Null));
    let failed = with(records::result("two-ends", at), "success", false);
    store.result("two-ends", &with(failed, "state", "failed"));
    store.run("stuck").startup(&json!({"state": "ready", "token": "t", "pid": GONE}));
    let before = state(&store);
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [], "{:#}", plan.json);
    assert!(refusal(&plan, "two-ends").contains("says"), "both accounts are told: {plan:?}");
    assert!(refusal(&plan, "stuck").contains("no status"), "{plan:?}");
    assert_eq!(recover(&store, &["--apply"]).code, 1);
    assert_same(&state(&store), &before, "an apply leaves them as well");
}

#[test]
fn an_observer_that_lives_tells_first() {
    let store = Store::new();
    let observer = Live::start();
    let run = orphan(&store, "seen");
    let process = testkit::process::identity(observer.pid());
    let record = ObserverRecord {
        run_id: "seen".to_owned(),
        instance_id: records::INSTANCE.to_owned(),
        process: ProcessRecord {
            pid: i64::from(observer.pid()),
            identity: RecordedIdentity { start_identity: process.start, ..Default::default() },
            ..ProcessRecord::default()
        },
        since_ms: now_ms(),
    };
    run.file(".runstore-observer.json", record.text());
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [], "{:#}", plan.json);
    assert!(refusal(&plan, "seen").contains("quiet for 60000 ms"), "{plan:?}");
    drop(observer);
    let plan = recover(&store, &[]);
    assert_eq!(actions(&plan), [("seen".to_owned(), "close-as-failed".to_owned())]);
}
