//! The exit code of every verdict, and of several at once.
//!
//! Theory of operation. [`BUILDERS`] makes one run of each verdict, all judged at one instant, so that
//! no time of this machine is part of an answer. Each verdict is asked for alone; then every pair of
//! them is put into one store. The expected code of a pair is worked out from the contract's order,
//! not from the program's table.

use serde_json::json;
use testkit::Store;
use testkit::process::{Live, identity, now_ms};
use testkit::records::{self, with, without};
use testkit::store::Run;

use crate::ask::{self, utf8};

/// Long enough ago that every grace is over.
const LONG_MS: i64 = 3_600_000;

/// Makes a run of one verdict. `now` is the instant of the question.
type Build = fn(&Run, now: i64, live: u32);

/// A verdict, its exit code by the contract, and a run that has it.
const BUILDERS: [(&str, i32, Build); 17] = [
    ("starting", 0, |run, now, _| {
        run.modified("", u64::try_from(now).expect("after 1970"));
    }),
    ("start-stuck", 1, |run, now, _| {
        let id = id_of(run);
        let status = with(records::running(&id, 1, now - LONG_MS), "state", "queued");
        run.status(&without(without(status, "pid"), "steering"));
    }),
    ("start-failed", 1, |run, _, _| {
        run.startup(&json!({"state": "error", "token": "t", "error": "no model"}));
    }),
    ("never-started", 0, |run, now, _| {
        run.modified("", u64::try_from(now - LONG_MS).expect("after 1970"));
    }),
    ("running", 0, |run, now, live| {
        let who = json!({"startIdentity": identity(live).start});
        run.status(&with(records::running(&id_of(run), live, now), "runnerIdentity", who));
    }),
    ("running-unverified", 5, |run, now, _| {
        run.status(&without(records::running(&id_of(run), 1, now), "pid"));
    }),
    ("orphaned", 1, |run, now, _| {
        run.status(&records::running(&id_of(run), 999_999_999, now));
    }),
    ("settling", 0, |run, now, _| {
        run.status(&without(records::complete(&id_of(run), now), "processTerminal"));
    }),
    ("paused", 0, |run, now, _| {
        let status = with(records::complete(&id_of(run), now), "state", "paused");
        run.status(&without(status, "processTerminal"));
    }),
    ("finished", 0, |run, now, _| records::finish(run, now)),
    ("finished-unproven", 5, |run, now, _| {
        run.status(&without(records::complete(&id_of(run), now - LONG_MS), "processTerminal"));
    }),
    ("conflict", 1, |run, now, _| {
        let (id, at) = (id_of(run), now - LONG_MS);
        run.status(&records::running(&id, 999_999_999, at)).event(&json!({
            "type": "subagent.run.completed", "ts": at, "runId": id, "status": "complete",
        }));
    }),
    ("corrupt", 8, |run, _, _| {
        run.file("status.json", "{");
    }),
    ("unsafe", 8, |run, _, _| {
        run.link("status.json", "/etc/hostname");
    }),
    ("unsupported", 6, |run, now, _| {
        run.status(&with(records::running(&id_of(run), 1, now), "state", "dreaming"));
    }),
    ("unsupported", 6, |run, now, _| {
        let status = records::complete(&id_of(run), now);
        run.status(&with(status, "lifecycleArtifactVersion", 4));
    }),
    ("not-a-run", 0, |run, _, _| {
        run.file("holiday.jpg", "…");
    }),
];

fn id_of(run: &Run) -> String {
    run.path().file_name().expect("a run has a name").to_string_lossy().into_owned()
}

/// The most serious of two codes, by the contract: 74, 70, 8, 6, 1, 5, 0.
fn worse(one: i32, other: i32) -> i32 {
    let order = [74, 70, 8, 6, 1, 5, 0];
    let rank = |code| order.iter().position(|c| *c == code).expect("a code of the contract");
    if rank(one) <= rank(other) { one } else { other }
}

#[test]
fn every_verdict_has_the_exit_code_of_the_contract() {
    let live = Live::start();
    for (verdict, code, build) in BUILDERS {
        let store = Store::new();
        let run = store.run("r1");
        let now = now_ms();
        build(&run, now, live.pid());
        let at = format!("--now={now}");
        for path in [store.root(), run.path()] {
            let answer = ask::inspect_with(path, &[&at]);
            assert_eq!(answer.verdict("r1"), verdict, "{:#}", answer.one("r1"));
            assert_eq!(answer.code, code, "{verdict}: of a {} alone", path.display());
        }
        let list = ask::run(&["list", utf8(store.root()), "--all", &at]);
        assert_eq!(list.code, code, "{verdict}: one table for every verb");
    }
}

#[test]
fn of_two_verdicts_the_more_serious_decides() {
    let live = Live::start();
    for (i, (one, code_one, build_one)) in BUILDERS.iter().enumerate() {
        for (other, code_other, build_other) in &BUILDERS[i + 1..] {
            let store = Store::in_memory();
            let now = now_ms();
            build_one(&store.run("one"), now, live.pid());
            build_other(&store.run("two"), now, live.pid());
            let answer = ask::inspect_with(store.root(), &[&format!("--now={now}")]);
            // Two runs on one pid would not be running; no pair here shares one.
            let verdicts = (answer.verdict("one"), answer.verdict("two"));
            assert_eq!(verdicts, (*one, *other), "runs do not disturb one another");
            let expected = worse(*code_one, *code_other);
            assert_eq!(answer.code, expected, "{one} ({code_one}) and {other} ({code_other})");
        }
    }
}

#[test]
fn the_code_is_that_of_the_runs_that_were_asked_for() {
    let store = Store::new();
    records::finish(&store.run("fine"), now_ms());
    store.run("gone").status(&records::running("gone", 999_999_999, now_ms()));
    store.run("torn").file("status.json", "{");
    let (root, fine) = (utf8(store.root()), store.run("fine").path().to_owned());
    let rows = [
        (vec!["inspect", root], 8),
        (vec!["inspect", root, "--verdict", "finished"], 0),
        (vec!["inspect", root, "--verdict", "orphaned"], 1),
        (vec!["inspect", root, "--verdict", "orphaned,corrupt"], 8),
        (vec!["inspect", root, "--verdict", "conflict"], 0),
        (vec!["inspect", root, "--session", "session-1"], 1),
        (vec!["inspect", root, "--session", "no-such-session"], 0),
        (vec!["inspect", utf8(&fine)], 0),
        (vec!["inspect", "fine", "--root", root], 0),
        (vec!["inspect", "fine", "gone", "--root", root], 1),
        (vec!["list", root, "--all", "--session", "session-1"], 1),
    ];
    for (args, code) in rows {
        let outcome = ask::run(&args);
        assert_eq!(outcome.code, code, "{args:?}: {}{}", outcome.text(), outcome.errors());
    }
}

#[test]
fn an_undeliverable_result_needs_attention() {
    let store = Store::new();
    records::finish(&store.run("r1"), now_ms() - LONG_MS);
    store.result("r1", &without(records::result("r1", now_ms() - LONG_MS), "sessionId"));
    let answer = ask::inspect(store.root());
    let flags = answer.one("r1")["flags"].to_string();
    assert!(flags.contains("undeliverable"), "a result without a session reaches nobody: {flags}");
    assert_eq!(answer.code, 1, "and that needs attention");
}
