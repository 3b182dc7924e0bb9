//! What a store holds for whom: `slots`, `leases`, `results`.
//!
//! Theory of operation. Stores are built with slots, leases and results in each of their states; the lists
//! are held against `inspect` of the same store, because there is one judgement. RS-CHECK-01, RS-CHECK-02.

use runstore::store::slot::pool_name;
use serde_json::{Value, json};
use testkit::process::{Live, host_name, now_ms};
use testkit::records::{self, SESSION};
use testkit::{Store, tree};

use crate::ask::{self, Answer, assert_harmless, utf8};

fn list(verb: &str, store: &Store, more: &[&str]) -> Answer {
    let mut args = vec![verb, utf8(store.root()), "--format", "json"];
    args.extend_from_slice(more);
    Answer::of(&ask::run(&args))
}

/// The owner record of a slot where it belongs.
pub(crate) fn slot(store: &Store, number: u32, run: &str, session: &str) {
    let pool = pool_name(session);
    let mut owner = records::slot(run, 5);
    for (key, value) in [
        ("ownerSessionId", json!(session)),
        ("ownerSessionKey", json!(pool)),
        ("slot", json!(number)),
        ("runnerProcessInstanceId", json!(records::INSTANCE)),
    ] {
        owner[key] = value;
    }
    store.slot(&pool, number, &owner);
}

/// A slot that a proof frees, one of a living run, and one of a run that failed long ago.
fn three_slots(live: &Live) -> Store {
    let (store, now) = (Store::new(), now_ms());
    records::finish(&store.run("proven"), now - 60_000);
    store.run("works").status(&records::running("works", live.pid(), now));
    let failed = records::with(records::complete("failed", now - 3_600_000), "state", "failed");
    let pending = json!({"version": 1, "state": "pending", "runId": "failed",
        "runnerProcessInstanceId": records::INSTANCE});
    store.run("failed").status(&records::with(failed, "processTerminal", pending.clone()));
    store.run("failed").proof(&pending);
    for (number, run) in ["proven", "works", "failed"].into_iter().enumerate() {
        slot(&store, u32::try_from(number).expect("small"), run, SESSION);
    }
    store
}

fn of_run<'a>(list: &'a Value, run: &str) -> &'a Value {
    let all = list.as_array().expect("a list");
    all.iter().find(|one| one["runId"] == run).unwrap_or_else(|| panic!("{run}: {list:#}"))
}

#[test]
fn slots_tell_the_verdict_of_their_run_and_what_blocks_them() {
    let live = Live::start();
    let store = three_slots(&live);
    let answer = list("slots", &store, &[]);
    assert_eq!(answer.json["schema"], "runstore.slots/1");
    let slots = &answer.json["slots"];
    let told = |run: &str| {
        let slot = of_run(slots, run);
        (slot["runVerdict"].clone(), slot["releasable"].clone(), slot["byPolicy"].clone())
    };
    assert_eq!(told("proven"), (json!("finished"), json!(true), json!(false)));
    assert_eq!(told("works").1, json!(false));
    assert_eq!(of_run(slots, "works")["reason"], "the run has not ended");
    assert_eq!(told("failed"), (json!("finished-unproven"), json!(true), json!(true)));
    let inspected = ask::inspect(store.root());
    assert_eq!(*slots, inspected.json["slots"], "there is one judgement");
    let strict = list("slots", &store, &["--abandoned-slot-ms", "0"]);
    let failed = of_run(&strict.json["slots"], "failed");
    assert_eq!(failed["releasable"], false, "only the policy frees it: {failed}");
    let text = ask::run(&["slots", utf8(store.root())]);
    for word in ["releasable", "by-policy", "held", "blocked  the run has not ended", "because"] {
        assert!(text.text().contains(word), "{word}: {}", text.text());
    }
    assert_eq!(text.errors().trim(), "3 slots");
}

#[test]
fn a_list_ends_with_the_most_serious_code_of_what_it_shows() {
    let store = Store::new();
    assert_eq!(list("slots", &store, &[]).code, 0, "nothing is held");
    records::finish(&store.run("proven"), now_ms());
    slot(&store, 0, "proven", SESSION);
    assert_eq!(list("slots", &store, &[]).code, 0);
    store.run("gone").status(&records::running("gone", 999_999_999, now_ms()));
    slot(&store, 1, "gone", SESSION);
    assert_eq!(list("slots", &store, &[]).code, 1, "it is held for an orphan");
    store.slot(&pool_name(SESSION), 2, &json!({}));
    let damaged = list("slots", &store, &[]);
    assert_eq!(damaged.code, 8, "a damaged record");
    assert_eq!(damaged.json["problems"][0]["id"], "slot-unreadable");
    assert_eq!(list("leases", &store, &[]).code, 0, "that is no news of leases");
    assert_eq!(ask::run(&["slots", "/no/such/store"]).code, 4);
}

#[test]
fn leases_tell_whether_their_owner_lives_and_why_they_are_held() {
    let (store, live) = (Store::new(), Live::start());
    let host = host_name();
    store.lease("a", &records::lease("gone", 999_999_999, &host, 5));
    store.lease("b", &records::lease("lives", live.pid(), &host, now_ms()));
    store.lease("c", &records::lease("elsewhere", 1, "another-host", 5));
    let answer = list("leases", &store, &[]);
    assert_eq!(answer.json["schema"], "runstore.leases/1");
    let leases = &answer.json["leases"];
    let told = |run: &str| {
        let lease = of_run(leases, run);
        (lease["state"].clone(), lease["liveness"].clone(), lease["sessionId"].clone())
    };
    assert_eq!(told("gone"), (json!("stale"), json!("dead"), json!(SESSION)));
    assert_eq!(told("lives").0, json!("held"));
    assert_eq!(told("elsewhere").1, json!("foreign"));
    assert_eq!(answer.code, 5, "whether the foreign owner lives cannot be told");
    assert_eq!(list("leases", &store, &["--session", "other"]).json["leases"], json!([]));
    store.lease("d", &json!(7));
    assert_eq!(list("leases", &store, &[]).code, 8, "a damaged record");
}

#[test]
fn results_that_wait_are_told_the_oldest_first() {
    let (store, now) = (Store::new(), now_ms());
    store.result("young", &records::result("young", now - 1000));
    let place = format!("async-subagent-results/result-pending/{SESSION}");
    let old = records::result("old", now - 90_000);
    store.file(&format!("{place}/old.json"), old.to_string());
    let delivered = records::result("delivered", now);
    store.result("delivered", &records::with(delivered, "notificationDeliveredAt", now));
    let answer = list("results", &store, &["--session", SESSION]);
    let told: Vec<_> = answer.json["results"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|r| (r["runId"].clone(), r["place"].clone(), r["ageMs"].as_i64().expect("an age")))
        .collect();
    assert_eq!(told.len(), 2, "what was delivered waits no more: {told:?}");
    assert_eq!((&told[0].0, &told[0].1), (&json!("old"), &json!("pending")));
    assert_eq!((&told[1].0, &told[1].1), (&json!("young"), &json!("public")));
    assert!(told[0].2 > told[1].2, "the oldest first");
    assert_eq!(answer.code, 0);
    store.file("async-subagent-results/broken.json", "{");
    let broken = list("results", &store, &[]);
    assert_eq!(broken.code, 1, "nobody can receive it");
    assert!(of_run(&broken.json["results"], "broken")["problem"].is_string());
    let lines = ask::run(&["results", utf8(store.root()), "--format", "jsonl"]).text();
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn a_list_of_a_run_is_about_that_run_and_harmless() {
    let live = Live::start();
    let store = three_slots(&live);
    slot(&store, 3, "e\u{1b}[31mvil", SESSION);
    let run = store.run("proven").path().to_owned();
    let answer = Answer::of(&ask::run(&["slots", utf8(&run), "--format", "json"]));
    assert_eq!(answer.json["slots"].as_array().map(Vec::len), Some(1));
    let text = ask::run(&["slots", utf8(store.root())]);
    assert_harmless("a slot of a strange run", &text.stdout);
}

#[test]
fn the_lists_of_the_shipped_store_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/store");
    tree::copy(&shipped, &root).expect("it is ours");
    let before = tree::snapshot(&root).expect("ours");
    for verb in ["slots", "leases", "results"] {
        let outcome = ask::run(&[verb, utf8(&root)]);
        assert_eq!(outcome.code, 0, "{verb}: {}", outcome.errors());
    }
    assert_eq!(tree::diff(&before, &tree::snapshot(&root).expect("ours")), [""; 0]);
}
