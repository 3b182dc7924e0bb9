//! One slot or lease, freed by hand: `release`.
//!
//! Theory of operation. What is over is freed, once; what is not is left byte for byte, with the rule that
//! blocks it. RS-CHECK-30 to RS-CHECK-33.

use runstore::protocol::segment::sha256_hex;
use runstore::store::slot::pool_name;
use serde_json::{Value, json};
use testkit::process::{Live, host_name, now_ms};
use testkit::records::{self, SESSION};
use testkit::{Store, tree};

use crate::ask::{self, Answer, assert_harmless, utf8};
use crate::lists::slot;

fn slot_path(number: u32) -> String {
    format!("session-active-async-capacity/{}/slot-{number}", pool_name(SESSION))
}

fn lease_path(name: &str) -> String {
    format!("session-leases/{}", sha256_hex(name.as_bytes()))
}

/// Asks to free what lies at a path of the store.
fn release(store: &Store, path: &str, more: &[&str]) -> Answer {
    let mut args = vec!["release", path, "--root", utf8(store.root()), "--format", "json"];
    args.extend_from_slice(more);
    Answer::of(&ask::run(&args))
}

/// The answer when nothing may have changed.
fn refused(store: &Store, path: &str, more: &[&str]) -> Answer {
    let before = tree::snapshot(store.root()).expect("ours");
    let answer = release(store, path, more);
    let after = tree::snapshot(store.root()).expect("ours");
    assert_eq!(tree::diff(&before, &after), [""; 0], "{path} {more:?}: {}", answer.json);
    answer
}

fn proven() -> Store {
    let store = Store::new();
    records::finish(&store.run("run-1"), now_ms());
    slot(&store, 0, "run-1", SESSION);
    store
}

#[test]
fn the_slot_of_a_proven_end_is_freed_once() {
    let store = proven();
    let plan = refused(&store, &slot_path(0), &["--dry-run"]);
    assert_eq!((plan.code, &plan.json["state"]), (0, &json!("releasable")));
    assert_eq!(plan.json["writes"].as_array().map(Vec::len), Some(2), "{}", plan.json);
    let done = release(&store, &slot_path(0), &[]);
    assert_eq!((done.code, &done.json["state"]), (0, &json!("freed")), "{}", done.json);
    assert_eq!(done.json["writes"], plan.json["writes"], "what the plan said");
    let pool = store.root().join(slot_path(0));
    let pool = pool.parent().expect("a pool");
    assert_eq!(std::fs::read_dir(pool).expect("there").count(), 0, "nothing is left");
    let again = refused(&store, &slot_path(0), &[]);
    assert_eq!((again.code, &again.json["state"]), (0, &json!("free")));
}

#[test]
fn a_slot_is_named_by_its_whole_path_as_well() {
    let store = proven();
    let path = store.root().join(slot_path(0)).join("owner.json");
    let outcome = ask::run(&["release", utf8(&path)]);
    assert_eq!(outcome.code, 0, "{}", outcome.errors());
    assert!(outcome.text().starts_with("freed       the slot of run run-1"), "{}", outcome.text());
}

#[test]
fn the_slot_of_a_run_that_may_go_on_stays_with_its_rule() {
    let (store, live) = (Store::new(), Live::start());
    store.run("works").status(&records::running("works", live.pid(), now_ms()));
    store.run("gone").status(&records::running("gone", 999_999_999, now_ms()));
    let paused = records::with(records::complete("paused", now_ms()), "state", "paused");
    store.run("paused").status(&paused);
    for (number, run) in ["works", "gone", "paused"].into_iter().enumerate() {
        let number = u32::try_from(number).expect("small");
        slot(&store, number, run, SESSION);
        let answer = refused(&store, &slot_path(number), &["--policy", "abandoned"]);
        assert_eq!((answer.code, &answer.json["state"]), (1, &json!("held")), "{run}");
        assert_eq!(answer.json["why"], "the run has not ended", "{run}");
    }
    slot(&store, 3, "nobody", SESSION);
    let answer = refused(&store, &slot_path(3), &["--policy", "abandoned"]);
    assert_eq!(answer.code, 1);
    assert!(answer.json["why"].as_str().is_some_and(|why| why.contains("no directory")));
    store.slot(&pool_name(SESSION), 4, &json!({}));
    let answer = refused(&store, &slot_path(4), &["--policy", "abandoned"]);
    assert_eq!((answer.code, &answer.json["state"]), (8, &json!("unreadable")));
}

#[test]
fn an_abandoned_slot_is_freed_only_by_the_policy_and_that_is_told() {
    let store = Store::new();
    let pending = json!({"version": 1, "state": "pending", "runId": "run-1",
        "runnerProcessInstanceId": records::INSTANCE});
    let status = records::with(records::complete("run-1", now_ms() - 3_600_000), "state", "failed");
    let run = store.run("run-1");
    run.status(&records::with(status, "processTerminal", pending.clone())).proof(&pending);
    slot(&store, 0, "run-1", SESSION);
    let strict = refused(&store, &slot_path(0), &[]);
    assert_eq!((strict.code, &strict.json["state"]), (1, &json!("held")), "{}", strict.json);
    assert!(strict.json["why"].as_str().is_some_and(|why| why.starts_with("only by policy: ")));
    let plan = refused(&store, &slot_path(0), &["--policy", "abandoned", "--dry-run"]);
    assert_eq!(plan.json["state"], "releasable");
    let done = release(&store, &slot_path(0), &["--policy", "abandoned"]);
    assert_eq!((&done.json["state"], &done.json["byPolicy"]), (&json!("freed"), &json!(true)));
    let log = std::fs::read_to_string(run.path().join("events.jsonl")).expect("it is told");
    let event: Value = serde_json::from_str(log.trim_end()).expect("one line");
    assert_eq!(event["releasedBy"], "abandoned-timeout");
    assert_eq!(refused(&store, &slot_path(0), &["--policy", "abandoned"]).code, 0);
}

#[test]
fn a_claim_of_another_process_is_honoured() {
    let store = proven();
    store.file(&format!("{}/capacity.claim", slot_path(0)), "somebody");
    let outcome = ask::run(&["release", &slot_path(0), "--root", utf8(store.root())]);
    assert_eq!(outcome.code, 7, "{}{}", outcome.text(), outcome.errors());
    assert!(store.root().join(slot_path(0)).join("owner.json").exists(), "it is as it was");
}

#[test]
fn a_stale_lease_becomes_a_tombstone_and_another_one_stays() {
    let (store, live) = (Store::new(), Live::start());
    let name = |name: &str| lease_path(name).split('/').next_back().expect("a name").to_owned();
    store.lease(&name("gone"), &records::lease("run-1", 999_999_999, &host_name(), 5));
    store.lease(&name("lives"), &records::lease("run-2", live.pid(), &host_name(), now_ms()));
    store.lease(&name("away"), &records::lease("run-3", 1, "another-host", 5));
    let spawning = records::lease("run-4", 999_999_999, &host_name(), 5);
    store.lease(&name("spawning"), &records::with(spawning, "writerState", "spawning"));
    store.lease(&name("torn"), &json!(7));
    for (lease, code) in [("lives", 1), ("away", 1), ("spawning", 1), ("torn", 8)] {
        let answer = refused(&store, &lease_path(lease), &[]);
        assert_eq!(answer.code, code, "{lease}: {}", answer.json);
    }
    let plan = refused(&store, &lease_path("gone"), &["--dry-run"]);
    assert_eq!(plan.json["state"], "releasable", "{}", plan.json);
    let done = release(&store, &lease_path("gone"), &[]);
    assert_eq!((done.code, &done.json["state"]), (0, &json!("freed")));
    assert!(!store.root().join(lease_path("gone")).exists());
    let tombstone = store.root().join(format!("{}.stale-token-1", lease_path("gone")));
    assert!(tombstone.join("owner.json").exists(), "the tombstone stays");
    assert_eq!(refused(&store, &lease_path("gone"), &[]).json["state"], "free");
}

#[test]
fn what_is_neither_slot_nor_lease_is_refused() {
    let store = proven();
    for (path, code) in
        [("async-subagent-runs/run-1", 2), ("session-leases/short", 4), ("nowhere", 4)]
    {
        let outcome = ask::run(&["release", path, "--root", utf8(store.root())]);
        assert_eq!(outcome.code, code, "{path}: {}", outcome.errors());
        assert!(outcome.errors().contains("hint:"), "{path}");
    }
    let lost = format!("/no/such/{}", slot_path(0));
    assert_eq!(ask::run(&["release", &lost]).code, 4);
    assert!(store.root().join(slot_path(0)).exists());
}

#[test]
fn a_store_that_others_may_write_to_is_not_touched() {
    let store = proven();
    let loose = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(store.root(), loose).expect("ours");
    let outcome = ask::run(&["release", &slot_path(0), "--root", utf8(store.root())]);
    assert_eq!(outcome.code, 8, "{}", outcome.errors());
    assert!(store.root().join(slot_path(0)).exists());
}

#[test]
fn an_answer_is_harmless_whatever_a_record_says() {
    let store = Store::new();
    slot(&store, 0, "e\u{1b}[31mvil", SESSION);
    let outcome = ask::run(&["release", &slot_path(0), "--root", utf8(store.root())]);
    assert_eq!(outcome.code, 1);
    assert_harmless("a strange run", &outcome.stdout);
}
