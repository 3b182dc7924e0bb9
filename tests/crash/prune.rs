//! Runs that are removed: whole, or gone, or found and finished by the next removal; the others untouched.
//!
//! Covers RS-RET-07 to RS-RET-14.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::retention::Wish;
use runstore::store::host::Host as _;
use runstore::store::prune::{Outcome, PruneError, apply};
use runstore::store::slot::pool_name;
use serde_json::{Value, json};
use testkit::fault::{Crash, FaultHost, Sabotage, explore, explore_sabotaged};
use testkit::records::{self, SESSION};

use crate::sweep::{every_call, every_look, last, recorded};
use crate::table;

const RUNS: &str = "/async-subagent-runs";
const RESULTS: &str = "/async-subagent-results";
const DAY_MS: i64 = 86_400_000;

fn put(host: &FaultHost, run: &str, name: &str, value: &Value) {
    host.put(&format!("{RUNS}/{run}/{name}"), value.to_string());
}

/// A run that ended so long ago, proven and delivered.
fn ended(host: &FaultHost, run: &str, age_ms: i64) {
    let at = host.now_ms() - age_ms;
    host.make_dir(&format!("{RUNS}/{run}"));
    put(host, run, "status.json", &records::complete(run, at));
    put(host, run, "process-terminal.json", &records::proof(run, at));
}

/// An old run, with a directory in it, and a new one. Files have the time at which they were made.
fn store(host: &FaultHost) {
    host.make_dir(RUNS);
    let start_identity = Some("linux:9".to_owned());
    let seen =
        ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() };
    host.set_process(host.system().own_pid, seen);
    ended(host, "old", 0);
    host.make_dir(&format!("{RUNS}/old/control"));
    host.put(&format!("{RUNS}/old/control/stop-inbox-closed.json"), "{}");
    host.set_now_ms(host.now_ms() + 40 * DAY_MS);
    ended(host, "new", DAY_MS);
}

fn prune(host: &FaultHost) -> Result<Outcome, PruneError> {
    let wish = Wish { older_than_ms: 30 * DAY_MS, keep_last: 0, session: None };
    apply(host, (&0, Path::new("/")), &wish, &mut |_| {})
}

fn pruned(host: &FaultHost) {
    let done = prune(host).expect("nothing fails here");
    let removed: Vec<_> = done.removed.iter().map(|run| run.run_id.as_str()).collect();
    assert_eq!(removed, ["old"], "{done:?}");
    assert!(done.problems.is_empty() && done.stopped.is_none(), "{done:?}");
}

/// Everything of a run, below its directory.
fn of_run(host: &FaultHost, run: &str) -> BTreeMap<String, Option<Vec<u8>>> {
    let below = format!("{RUNS}/{run}/");
    host.tree().into_iter().filter(|(path, _)| path.starts_with(&below)).collect()
}

fn leftovers(host: &FaultHost) -> Vec<String> {
    let tree = host.tree().into_keys();
    let left = |path: &String| {
        path.contains(".deleting-run-")
            || path.contains("/.runstore/prune/") && !path.ends_with(".tmp")
            || path == "/.async-retention.lock"
    };
    tree.filter(left).collect()
}

fn whole() -> BTreeMap<String, Option<Vec<u8>>> {
    let host = FaultHost::new();
    store(&host);
    of_run(&host, "old")
}

/// What the crash left is found: the next removal ends like one that was never disturbed.
fn the_next_one_ends_alike(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let old = of_run(host, "old");
    if !old.is_empty() && old != whole() {
        return Err(format!("a part of the run is in its place: {:?}", old.keys()));
    }
    if crash.acknowledged && !old.is_empty() {
        return Err("a removed run came back".to_owned());
    }
    let done = prune(host).map_err(|e| format!("the next one is refused: {e}"))?;
    if !done.problems.is_empty() || done.stopped.is_some() {
        return Err(format!("the next one has problems: {done:?}"));
    }
    if host.has(&format!("{RUNS}/old")) {
        return Err(format!("the run is still there: {done:?}"));
    }
    let left = leftovers(host);
    if !left.is_empty() {
        return Err(format!("something is left: {left:?}"));
    }
    let kept = host.has(&format!("{RUNS}/new/status.json"));
    let kept = kept && host.has(&format!("{RUNS}/new/process-terminal.json"));
    if kept { Ok(()) } else { Err("another run was touched".to_owned()) }
}

#[test]
pub(crate) fn every_crash_of_a_removal_leaves_a_run_that_is_whole_gone_or_found_again() {
    table::seen("prune::apply", &explore(store, pruned, the_next_one_ends_alike));
}

#[test]
pub(crate) fn a_note_that_is_lost_or_goes_too_early_is_caught() {
    let effects = recorded(store, pruned);
    let moved =
        last(&effects, |effect| effect.contains("Rename") && effect.contains("deleting-run"));
    let unlink_note = last(&effects, |effect| {
        effect.contains("Unlink") && {
            effect.contains(".json") && !effect.contains("status") && !effect.contains("owner")
        }
    });
    for (mistake, sabotage) in [
        ("the directory of the note is not flushed before the rename", Sabotage::Drop(moved - 1)),
        ("the deletion is not flushed before the note is removed", Sabotage::Drop(unlink_note - 1)),
    ] {
        let seen = explore_sabotaged(store, pruned, the_next_one_ends_alike, sabotage);
        table::caught("prune::apply", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_removal_is_made_good_by_the_next_one() {
    every_call(store, prune, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        let old = of_run(host, "old");
        assert!(old.is_empty() || old == whole(), "{at}: a part of the run is in its place");
        // The retention lock of a process that lives on and could not let go stays until it ends.
        if !host.has("/.async-retention.lock") {
            let again = prune(host).expect(&at);
            assert!(again.problems.is_empty(), "{at}: {again:?}");
            assert!(!host.has(&format!("{RUNS}/old")), "{at}: {again:?}");
            assert!(leftovers(host).is_empty(), "{at}: {:?}", leftovers(host));
        }
    });
}

// RS-RET-13: what the system refuses for one run concerns no other, unless there is no room for anything.
#[test]
fn a_failing_effect_on_one_run_keeps_no_other_from_being_removed() {
    let pair = |host: &FaultHost| {
        store(host);
        let now = host.now_ms();
        host.set_now_ms(now - 39 * DAY_MS);
        ended(host, "old-too", 0);
        host.set_now_ms(now);
    };
    let (failed, stopped) = (Cell::new(0), Cell::new(0));
    every_call(pair, prune, |_, done, fault| {
        let Ok(done) = done else { return };
        let at = format!("{fault:?}: {done:?}");
        let no_room = fault.is_of_no_room();
        if let Some(e) = &done.stopped {
            stopped.set(stopped.get() + 1);
            assert!(no_room || !e.name.starts_with("old"), "only its note may stop it: {at}");
        } else if done.problems.is_empty() {
            assert_eq!(done.removed.len() + done.kept.len(), 3, "{at}");
        } else {
            failed.set(failed.get() + 1);
            assert!(!no_room && done.removed.len() == 1 && done.problems.len() == 1, "{at}");
        }
    });
    assert!(failed.get() > 0 && stopped.get() > 0, "{failed:?} failed, {stopped:?} stopped");
}

/// One thing that keeps the old run, made when it ended.
type Reason = fn(&FaultHost);

fn status_with(host: &FaultHost, key: &str, value: Value) {
    let status = records::complete("old", host.now_ms());
    put(host, "old", "status.json", &records::with(status, key, value));
}

/// Somebody waits for the old run.
fn armed(host: &FaultHost) {
    let wait = json!({"version": 1, "token": "t", "runId": "old", "expiresAt": 1});
    host.put_below("/wait-subscriptions/t.json", wait.to_string());
}

const REASONS: [(&str, Reason); 16] = [
    ("workflow", |host| status_with(host, "workflowKey", json!("k"))),
    ("nested", |host| {
        let step = json!({"agent": "a", "status": "complete", "children": [{}]});
        status_with(host, "steps", json!([step]));
    }),
    ("resumable", |host| {
        host.put("/s.jsonl", "");
        status_with(host, "sessionFile", json!("/s.jsonl"));
    }),
    ("mission", |host| put(host, "old", "mission.json", &json!({}))),
    ("mission", |host| {
        host.put_below(&format!("{RESULTS}/result-index/observers/mission/old.json"), "{}");
    }),
    ("hand-off", |host| put(host, "old", "handoff.json", &json!({"version": 1, "groups": []}))),
    ("referenced", |host| {
        let status = records::complete("revival", host.now_ms());
        let status = records::with(status, "sourceRunId", "old");
        host.put_below(&format!("{RUNS}/revival/status.json"), status.to_string());
    }),
    ("referenced", |host| {
        let lease = records::with(lease("revival"), "sourceRunId", "old");
        host.put(&format!("{LEASE}/owner.json"), lease.to_string());
    }),
    ("nested", |host| {
        let status = records::complete("child", host.now_ms());
        host.put_below("/nested-subagent-runs/old/child/status.json", status.to_string());
    }),
    ("held", |host| host.put(&format!("{LEASE}/owner.json"), lease("old").to_string())),
    ("held", |host| {
        let pool = pool_name(SESSION);
        let owner = format!("/session-active-async-capacity/{pool}/slot-0/owner.json");
        let slot = records::with(records::slot("old", host.now_ms()), "ownerSessionKey", pool);
        host.put_below(&owner, slot.to_string());
    }),
    ("waited-for", armed),
    ("active-marker", |host| host.put_below(&format!("{RUNS}/.active-runs/old"), "")),
    ("unread", |host| {
        let result = records::result("old", host.now_ms());
        host.put_below(&format!("{RESULTS}/old.json"), result.to_string());
    }),
    ("unread", |host| {
        let result = records::result("old", host.now_ms());
        let pending = format!("{RESULTS}/result-pending/{SESSION}/old.json");
        host.put_below(&pending, result.to_string());
    }),
    ("resumable", |host| put(host, "old", "recovery-descriptor.json", &json!({}))),
];

const LEASE: &str =
    "/session-leases/00000000000000000000000000000000000000000000000000000000000000ff";

fn lease(run: &str) -> Value {
    records::lease(run, 7, "another-host", 5)
}

// RS-RET-14: what cannot be looked at keeps a run as what is there does.
#[test]
fn a_look_that_fails_takes_no_reason_away() {
    for (reason, make) in REASONS {
        let setup = |host: &FaultHost| {
            store(host);
            let now = host.now_ms();
            host.set_now_ms(now - 40 * DAY_MS);
            for path in ["/session-leases", LEASE] {
                host.make_dir(path);
            }
            make(host);
            host.set_now_ms(now);
        };
        let done = every_look(setup, prune, |host, done, at| {
            let whole = host.has(&format!("{RUNS}/old/status.json"));
            assert!(whole, "{reason}: {at}: {done:?}");
        });
        let done = done.expect("nothing fails here");
        let told = done.kept.iter().find(|kept| kept.run_id == "old");
        assert_eq!(told.map(|kept| kept.keep.word), Some(reason), "{done:?}");
    }
}

/// Somebody acts right before each effect of a removal: the run is gone, or he finds it whole.
fn interleaved(other: fn(&FaultHost) -> bool) -> Vec<(bool, bool)> {
    let steps = recorded(store, pruned).len();
    (0..steps)
        .map(|n| {
            let host = FaultHost::new();
            store(&host);
            host.begin();
            let acted = Arc::new(Mutex::new(false));
            let told = Arc::clone(&acted);
            host.interrupt_at(n, move |host| *told.lock().expect("one thread") = other(host));
            let done = prune(&host).expect("nobody else has the lock");
            let acted = *acted.lock().expect("one thread");
            (acted, done.removed.iter().any(|run| run.run_id == "old"))
        })
        .collect()
}

#[test]
fn a_run_that_somebody_wants_meanwhile_is_put_back() {
    // A wait that is armed: it may come too late, when the run is judged for the last time already.
    let wait = |host: &FaultHost| {
        armed(host);
        true
    };
    let rows = interleaved(wait);
    assert!(rows.iter().any(|(_, removed)| !removed), "a wait keeps a run: {rows:?}");
    // Somebody who opens the run by its name and writes to it: then it is there, and stays.
    let write = |host: &FaultHost| {
        let is_there = host.has(&format!("{RUNS}/old/status.json"));
        if is_there {
            put(host, "old", "note.json", &json!({}));
        }
        is_there
    };
    let rows = interleaved(write);
    for (n, (wrote, removed)) in rows.iter().enumerate() {
        assert!(!(*wrote && *removed), "before effect {n}: a run that was written to is removed");
    }
    assert!(rows.iter().any(|(wrote, _)| *wrote) && rows.iter().any(|(_, removed)| *removed));
}
