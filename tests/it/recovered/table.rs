//! The rows of the reconcile table, and the crash windows that only the peers' order of writes can leave.
//! Facts §8.2 and §9.2.
//!
//! Theory of operation. Each store is built by hand, with the records of a peer; nobody of ours wrote it. A row
//! says what a reader makes of it, and what is there after a recovery: nothing else than before ([`Then::Left`]),
//! or a run that is finished or closed ([`Then::Is`]). Where a peer would act and we do not, the row says why.
//!
//! are about what the launching process remembers of a run without a status. No other process has
//! that; nearest to it is what our launcher notes on the disk, and of a dead launcher that is a run which never
//! began.

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use runstore::protocol::segment::sha256_hex;
use runstore::store::slot::pool_name;
use serde_json::{Value, json};
use testkit::process::{Live, host_name, identity, now_ms};
use testkit::records::{self, GONE, INSTANCE, SESSION, with, without};
use testkit::store::Run;
use testkit::{Store, tree};

use super::after::{After, CLOSED, ENDED, FAILED, FINISHED, ORPHAN, TOLD_FAILED, UNBORN, judge};
use super::prove::{Recovered, prove};
use crate::lists::slot;

const MINUTE_MS: i64 = 60_000;

/// When what is recorded happened.
fn then() -> i64 {
    now_ms() - 30 * MINUTE_MS
}

/// What has to be there after a recovery.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// What was there before.
    Left,
    /// This.
    Is(After),
}

struct Row {
    row: &'static str,
    what: &'static str,
    build: fn(&Store) -> Vec<Live>,
    before: &'static [&'static str],
    then: Then,
}

fn pending() -> Value {
    json!({"version": 1, "state": "pending", "runId": "run-1", "runnerProcessInstanceId": INSTANCE})
}

/// What a launcher writes before it lets its runner in.
fn uncounted() -> Value {
    without(with(records::candidate("run-1"), "writers", json!({})), "expectedWriters")
}

/// A running status with the overlay of its launcher.
fn working(pid: u32) -> Value {
    with(records::running("run-1", pid, then()), "processTerminal", pending())
}

/// A run whose process is gone, with the files that its launcher wrote.
pub(super) fn orphan(store: &Store) -> Run {
    store.active_marker("run-1");
    launched(store, &working(GONE))
}

/// A run with this status and the other files that its launcher wrote.
fn launched(store: &Store, status: &Value) -> Run {
    let run = store.run("run-1");
    run.status(status).proof(&pending()).candidate(&uncounted());
    run
}

/// The same, with a lease, a configuration and the alias of a tool call.
pub(super) fn orphan_with_all(store: &Store) {
    another(store);
    orphan(store);
    store.lease(&sha256_hex(b"x"), &records::lease("run-1", GONE, &host_name(), then()));
    store.file("async-cfg-run-1.json", "{}");
    store.tool_call_alias("tc-1", "run-1");
}

fn result(state: &str, success: bool) -> Value {
    let of = records::result("run-1", then() + MINUTE_MS);
    let child = json!([{"agent": "worker", "output": "text", "success": success}]);
    let of = with(of, "results", child);
    let code = i64::from(!success);
    with(with(with(of, "state", state), "success", success), "exitCode", code)
}

fn indexed(store: &Store) {
    let entry = json!({"version": 1, "runId": "run-1", "sessionId": SESSION, "file": "run-1.json",
        "writtenAt": then()});
    for at in [format!("sessions/{SESSION}"), "runs".to_owned()] {
        store.file(
            &format!("async-subagent-results/result-index/{at}/run-1.json"),
            entry.to_string(),
        );
    }
}

fn pending_result(store: &Store) {
    let path = format!("async-subagent-results/result-pending/{SESSION}/run-1.json");
    store.file(&path, result("complete", true).to_string());
}

/// What a delivery leaves of a result that it took away.
fn replay(store: &Store, expires_at_ms: i64) {
    let completion = with(result("complete", true), "runId", "run-1");
    let replay = json!({"version": 1, "runId": "run-1", "sessionId": SESSION,
        "completedAt": then() + MINUTE_MS, "expiresAt": expires_at_ms, "completion": completion});
    store.file("async-subagent-results/completion-replay/run-1.json", replay.to_string());
}

/// A run that ended while nobody saw it.
fn ended(store: &Store) -> Run {
    let run = store.run("run-1");
    let status = with(records::complete("run-1", then()), "processTerminal", pending());
    run.status(&status).proof(&pending()).candidate(&records::candidate("run-1"));
    store.result("run-1", &result("complete", true));
    indexed(store);
    run
}

fn nobody(_: Run) -> Vec<Live> {
    Vec::new()
}

/// A status that names a process which lives, and its identity.
fn lives(store: &Store, at_ms: i64) -> Vec<Live> {
    let live = Live::start();
    let status = records::running("run-1", live.pid(), at_ms);
    let identity = identity(live.pid());
    let start = identity.start.expect("Linux");
    let status = with(with(status, "processStartIdentity", start), "bootId", identity.boot_id);
    store.run("run-1").status(&with(status, "processTerminal", pending())).proof(&pending());
    store.active_marker("run-1");
    vec![live]
}

const fn row(
    row: &'static str,
    what: &'static str,
    before: &'static [&'static str],
    then: Then,
    build: fn(&Store) -> Vec<Live>,
) -> Row {
    Row { row, what, build, before, then }
}

const LIVING: &[&str] = &["running", "running-unverified"];
const CORRUPT: &[&str] = &["corrupt"];

/// Closed with the state of its result.
const fn closed_as(state: &'static str, step: &'static str) -> Then {
    Then::Is(After {
        verdicts: &["finished-unproven", "paused"],
        state: Some(state),
        step,
        ..CLOSED
    })
}

const DONE: Then = Then::Is(After { slots: None, ..FINISHED });
const FAIL: Then = Then::Is(CLOSED);

/// The table of the reconcilers.
fn reconciled() -> Vec<Row> {
    vec![
        row("Q-1", "an empty directory", UNBORN, Then::Left, |store| nobody(store.run("run-1"))),
        row("Q-2", "what a dead launcher noted", UNBORN, Then::Left, |store| {
            let note = json!({"version": 1, "runId": "run-1", "instanceId": INSTANCE, "pid": GONE,
                "createdAt": then()});
            nobody(store.run("run-1").json(".runstore-launch.json", &note).clone())
        }),
        row("Q-3", "a model that is no text", ORPHAN, Then::Left, |store| {
            let step = json!([{"agent": "a", "status": "running", "model": 7}]);
            orphan(store);
            nobody(store.run("run-1").status(&with(working(GONE), "steps", step)).clone())
        }),
        row("Q-4", "a public result", ORPHAN, DONE, |store| {
            store.result("run-1", &result("complete", true));
            indexed(store);
            nobody(orphan(store))
        }),
        row("Q-4", "a public result that no index names", ORPHAN, DONE, |store| {
            store.result("run-1", &result("complete", true));
            nobody(orphan(store))
        }),
        row("Q-4", "a pending result", ORPHAN, DONE, |store| {
            pending_result(store);
            nobody(orphan(store))
        }),
        row("Q-4", "a queued run with a result", ORPHAN, DONE, |store| {
            store.result("run-1", &result("complete", true));
            indexed(store);
            orphan(store);
            nobody(store.run("run-1").status(&with(working(GONE), "state", "queued")).clone())
        }),
        row("Q-4", "a failure", ORPHAN, FAIL, |store| told(store, &result("failed", false))),
        row("Q-4", "a stop", ORPHAN, closed_as("stopped", "stopped"), |store| {
            told(store, &without(result("stopped", false), "results"))
        }),
        row("Q-4", "a rejection", ORPHAN, closed_as("rejected", "rejected"), |store| {
            told(store, &without(result("rejected", false), "results"))
        }),
        row("Q-4", "a part of it", ORPHAN, closed_as("partial", "partial"), |store| {
            told(store, &without(result("partial", false), "results"))
        }),
        row("Q-4", "a pause", ORPHAN, closed_as("paused", "paused"), |store| {
            told(store, &without(with(result("paused", false), "exitCode", 0), "results"))
        }),
        row("Q-4", "dismissed, and a result", ORPHAN, DONE, |store| {
            store.result("run-1", &result("complete", true));
            indexed(store);
            orphan(store);
            let status = with(working(GONE), "displayDismissedAt", then());
            nobody(store.run("run-1").status(&status).clone())
        }),
        row("Q-4", "a result that cannot be read", &["orphaned", "corrupt"], Then::Left, |store| {
            store.file("async-subagent-results/run-1.json", "{");
            nobody(orphan(store))
        }),
        row("Q-4", "a process that lives: a peer takes the result", LIVING, Then::Left, |store| {
            store.result("run-1", &result("complete", true));
            indexed(store);
            lives(store, now_ms())
        }),
        row("Q-5", "ended, with a result", ENDED, DONE, |store| nobody(ended(store))),
        row("Q-6", "dismissed", ORPHAN, Then::Left, |store| {
            orphan(store);
            let status = with(working(GONE), "displayDismissedAt", then());
            nobody(store.run("run-1").status(&status).clone())
        }),
        row("Q-7", "no process is named", &["running-unverified"], Then::Left, |store| {
            orphan(store);
            nobody(store.run("run-1").status(&without(working(GONE), "pid")).clone())
        }),
        row("Q-7", "a pid that is no number", CORRUPT, Then::Left, |store| {
            orphan(store);
            nobody(store.run("run-1").status(&with(working(GONE), "pid", "7")).clone())
        }),
        row(
            "Q-7",
            "queued, nobody to do it",
            &["orphaned", "start-stuck", "running-unverified"],
            Then::Left,
            |store| {
                orphan(store);
                let status = without(with(working(GONE), "state", "queued"), "pid");
                nobody(store.run("run-1").status(&status).clone())
            },
        ),
        row("Q-7", "a state of a newer version", &["unsupported"], Then::Left, |store| {
            orphan(store);
            nobody(store.run("run-1").status(&with(working(GONE), "state", "frozen")).clone())
        }),
        row("Q-9", "a process that lives", LIVING, Then::Left, |store| lives(store, now_ms())),
        row("Q-10", "silent for two days: a peer fails it", LIVING, Then::Left, |store| {
            lives(store, now_ms() - 48 * 60 * MINUTE_MS)
        }),
        row("Q-11", "the process is gone", ORPHAN, FAIL, |store| nobody(orphan(store))),
        row(
            "Q-11",
            "no session: no result",
            ORPHAN,
            Then::Is(After { result: false, ..CLOSED.unlisted() }),
            |store| {
                orphan(store);
                nobody(store.run("run-1").status(&without(working(GONE), "sessionId")).clone())
            },
        ),
        row("Q-11", "no step", ORPHAN, FAIL, |store| {
            orphan(store);
            nobody(store.run("run-1").status(&with(working(GONE), "steps", json!([]))).clone())
        }),
    ]
}

/// An orphan with this result.
fn told(store: &Store, result: &Value) -> Vec<Live> {
    store.result("run-1", result);
    indexed(store);
    nobody(orphan(store))
}

fn pool(rest: &str) -> String {
    format!("session-active-async-capacity/{}/{rest}", pool_name(SESSION))
}

/// An active marker that nobody will take away any more.
fn old_marker(store: &Store) {
    store.active_marker("run-1");
    let at_ms = u64::try_from(now_ms() - 48 * 60 * MINUTE_MS).expect("after 1970");
    let marker = store.root().join("async-subagent-runs/.active-runs/run-1");
    tree::set_time_ms(&marker, at_ms).expect("ours");
}

/// A slot that was reserved and not bound.
fn unbound(store: &Store) {
    slot(store, 0, "run-1", SESSION);
    let path = store.root().join(pool("slot-0/owner.json"));
    let owner = std::fs::read(&path).expect("there");
    let owner: Value = serde_json::from_slice(&owner).expect("JSON");
    let owner = without(owner, "runnerProcessInstanceId");
    std::fs::write(&path, owner.to_string()).expect("ours");
}

/// The windows of a peer.
fn windows_of_peers() -> Vec<Row> {
    vec![
        row(
            "CW-7",
            "the slot is not bound: ours is before the runner",
            ORPHAN,
            Then::Is(CLOSED.holding()),
            |store| {
                unbound(store);
                nobody(orphan(store))
            },
        ),
        row(
            "CW-23",
            "delivered and taken away, with a replay",
            ORPHAN,
            Then::Is(After { result: false, ..FINISHED }),
            |store| {
                replay(store, now_ms() + 24 * 60 * MINUTE_MS);
                nobody(orphan(store))
            },
        ),
        row("CW-23", "the replay has expired", ORPHAN, FAIL, |store| {
            replay(store, now_ms() - MINUTE_MS);
            nobody(orphan(store))
        }),
        row(
            "CW-24",
            "in the active index only, for two days: a peer's order",
            ENDED,
            DONE,
            |store| {
                old_marker(store);
                nobody(ended(store))
            },
        ),
        row(
            "CW-24",
            "in the active index only, which may last a day",
            ENDED,
            Then::Left,
            |store| {
                store.active_marker("run-1");
                nobody(ended(store))
            },
        ),
        row("CW-40", "the failure and no account", FAILED, Then::Is(TOLD_FAILED), |store| {
            let status = with(records::running("run-1", GONE, then()), "state", "failed");
            let steps = json!([{"agent": "a", "status": "pending"}]);
            let never = with(pending(), "state", "not-started");
            let status = with(with(status, "steps", steps), "processTerminal", never);
            let status = with(status, "error", "the runner did not answer");
            store.active_marker("run-1");
            nobody(launched(store, &status))
        }),
        row("CW-50", "a failed result and a running status", ORPHAN, FAIL, |store| {
            told(store, &result("failed", false))
        }),
        row("CW-51", "a failed status in the active index", ENDED, FAIL, |store| {
            store.result("run-1", &result("failed", false));
            indexed(store);
            old_marker(store);
            let stale = json!({"version": 1, "state": "unknown", "runId": "run-1",
                "runnerProcessInstanceId": "observer-unavailable", "reason": "stale-repair"});
            let step = json!([{"agent": "a", "status": "failed", "exitCode": 1}]);
            let status = with(records::complete("run-1", then()), "state", "failed");
            let status = with(with(status, "steps", step), "processTerminal", stale);
            nobody(launched(store, &status))
        }),
        row(
            "CW-60",
            "a slot without an owner: ours is renamed into its place",
            ENDED,
            Then::Is(FINISHED.with_any_slot().at_will()),
            |store| {
                store.folder(&pool("slot-0"));
                nobody(ended(store))
            },
        ),
        row(
            "CW-61",
            "a claim that names nobody: ours names its process",
            ENDED,
            Then::Is(FINISHED.at_will()),
            |store| {
                slot(store, 0, "run-1", SESSION);
                store.file(&pool("slot-0/capacity.claim"), "0d1c9d5e-6c8f-4f3b-9a55-8a4a2c6a7b10");
                nobody(ended(store))
            },
        ),
        row("CW-62", "a slot on its way out", ENDED, Then::Is(FINISHED.at_will()), |store| {
            store.file(
                &pool(".slot-0.released-0d1c9d5e-6c8f-4f3b-9a55-8a4a2c6a7b10/owner.json"),
                "{}",
            );
            nobody(ended(store))
        }),
        row("CW-63", "a candidate of a dead owner", ENDED, Then::Is(FINISHED.at_will()), |store| {
            let lease = records::lease("run-1", GONE, &host_name(), then());
            let name = format!("{}.candidate-token-1", sha256_hex(b"x"));
            store.lease(&name, &lease);
            nobody(ended(store))
        }),
        row(
            "CW-64",
            "a lease without an owner: ours is renamed first",
            ENDED,
            Then::Is(FINISHED.at_will()),
            |store| {
                store.folder(&format!("session-leases/{}", sha256_hex(b"x")));
                nobody(ended(store))
            },
        ),
    ]
}

/// A run of the same session that ended before, so that its index of ended runs is in use.
fn another(store: &Store) {
    let at_ms = then() - 24 * 60 * MINUTE_MS;
    records::finish(&store.run("run-0"), at_ms);
    store.terminal_marker(SESSION, "run-0", u64::try_from(at_ms).expect("after 1970"));
}

/// What is wrong with a recovered store, by the row.
fn judged(seen: &Recovered<'_>, then: Then) -> Vec<String> {
    match then {
        Then::Left if seen.changed.is_empty() => Vec::new(),
        Then::Left => vec![format!("changed: {:?}", seen.changed)],
        Then::Is(after) => judge(seen, &after),
    }
}

#[test]
fn every_row_of_the_reconcile_table_is_recovered_and_taken_back() {
    check("rows of the table", 26, reconciled());
}

#[test]
fn every_crash_window_of_a_peer_is_recovered_and_taken_back() {
    check("windows of a peer", 13, windows_of_peers());
}

fn check(what: &str, count: usize, rows: Vec<Row>) {
    assert_eq!(rows.len(), count, "no row is skipped");
    let mut bad = Vec::new();
    for Row { row, what, build, before, then } in rows {
        let name = format!("{row}, {what}");
        let store = Store::in_memory();
        another(&store);
        let _living = build(&store);
        let proven = prove(store.root(), |seen| judged(seen, then));
        let (told, wrong) = proven.told(&name, before);
        println!("{told}");
        bad.extend(wrong);
    }
    println!("{count} {what}, {} violations", bad.len());
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn what_has_no_readable_owner_stays() {
    let store = Store::in_memory();
    ended(&store);
    slot(&store, 1, "run-1", SESSION);
    store.folder(&pool("slot-0"));
    store.file(&pool("slot-1/capacity.claim"), "0d1c9d5e-6c8f-4f3b-9a55-8a4a2c6a7b10");
    let lease = format!("session-leases/{}", sha256_hex(b"x"));
    store.folder(&lease);
    let kept = [pool("slot-0"), pool("slot-1/capacity.claim"), lease];
    let proven = prove(store.root(), |seen| {
        kept.iter()
            .filter(|what| !seen.root.join(what).exists())
            .map(|what| format!("{what} is gone"))
            .collect()
    });
    assert_eq!(proven.problems, [""; 0]);
}
