//! A slot or lease that somebody asks to free: free or as it was, and never anybody else's.
//!
//! Covers RS-CHECK-30 to RS-CHECK-33.

use std::path::Path;
use std::sync::{Arc, Mutex};

use runstore::protocol::lease::LeaseState;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::slot::SlotKind;
use runstore::store::host::Host as _;
use runstore::store::lease::{self, LeaseRequest, acquire, canonical_id};
use runstore::store::release::{FreeError, Freed, Place, Standing, free};
use runstore::store::slot::{self, SlotRequest, pool_name};
use serde_json::{Value, json};
use testkit::fault::{Crash, FaultHost, Sabotage, explore, explore_sabotaged};
use testkit::records::{self, INSTANCE, SESSION};

use crate::sweep::{at, every_call, every_look, recorded};
use crate::table;

const RUN: &str = "/async-subagent-runs/run-1";
const FILE: &str = "/s.jsonl";

fn put(host: &FaultHost, name: &str, value: &Value) {
    host.put(&format!("{RUN}/{name}"), value.to_string());
}

fn lives(host: &FaultHost, start: &str) {
    let start_identity = Some(start.to_owned());
    let seen =
        ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() };
    host.set_process(host.system().own_pid, seen);
}

/// The slot of a run, bound to its runner.
fn bound(host: &FaultHost) {
    for path in ["/async-subagent-runs", RUN] {
        host.make_dir(path);
    }
    lives(host, "linux:9");
    let kind = SlotKind::Runner;
    let request =
        SlotRequest { session_id: SESSION, run_id: "run-1", async_dir: RUN, kind, limit: 1 };
    let mut held = slot::acquire(host, &0, &request).expect("free").expect("there is a limit");
    slot::bind(host, &0, &mut held, INSTANCE, 5).expect("ours");
}

/// The run has ended, and somebody saw it.
fn proven(host: &FaultHost) {
    bound(host);
    put(host, "status.json", &records::complete("run-1", host.now_ms()));
    put(host, "process-terminal.json", &records::proof("run-1", host.now_ms()));
}

/// The run failed a day ago, and nobody saw its end.
fn abandoned(host: &FaultHost) {
    bound(host);
    let pending = json!({"version": 1, "state": "pending", "runId": "run-1",
        "runnerProcessInstanceId": INSTANCE});
    let status = records::complete("run-1", host.now_ms() - 86_400_000);
    let status = records::with(status, "state", "failed");
    put(host, "status.json", &records::with(status, "processTerminal", pending.clone()));
    put(host, "process-terminal.json", &pending);
}

fn slot_place() -> Place {
    Place::Slot { pool: pool_name(SESSION), name: "slot-0".to_owned() }
}

fn free_slot(host: &FaultHost, by_policy: bool) -> Result<Freed, FreeError> {
    free(host, (&0, Path::new("/")), &slot_place(), by_policy)
}

fn is_slot_there(host: &FaultHost) -> bool {
    host.has(&format!("/{}", slot_place().path()))
}

fn log(host: &FaultHost) -> String {
    host.text(&format!("{RUN}/events.jsonl")).unwrap_or_default()
}

/// Whatever the crash left, asking again frees it, and a third time finds nothing.
fn asking_again_frees_it(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    if crash.acknowledged && is_slot_there(host) {
        return Err("what was acknowledged came back".to_owned());
    }
    for _ in 0..2 {
        let done = free_slot(host, true).map_err(|e| format!("it is frozen: {e:?}"))?;
        if !matches!(done, Freed::Freed { .. } | Freed::Left(Standing::Free)) {
            return Err(format!("it is held: {done:?}"));
        }
    }
    if is_slot_there(host) { Err("it is still there".to_owned()) } else { Ok(()) }
}

fn freed(by_policy: bool) -> impl Fn(&FaultHost) {
    move |host| {
        let done = free_slot(host, by_policy).expect("nothing fails here");
        let whole = matches!(done, Freed::Freed { litter: None, untold: None, .. });
        assert!(whole, "{done:?}");
    }
}

#[test]
pub(crate) fn every_crash_of_freeing_a_slot_leaves_it_with_its_owner_or_free() {
    let seen = explore(proven, freed(false), asking_again_frees_it);
    table::stepped("release::free, a slot", &seen, 9);
    let told = |host: &FaultHost, crash: &Crash| {
        // The log is not flushed, so only the death of the process keeps its last line.
        let lines = log(host).matches("abandoned-timeout").count();
        if lines > 1 {
            return Err(format!("told {lines} times"));
        }
        asking_again_frees_it(host, crash)
    };
    table::seen("release::free, a slot by policy", &explore(abandoned, freed(true), told));
    // Behind the rename: a power cut keeps the deletion and undoes it.
    let effects = recorded(proven, freed(false));
    let flush = at(&effects, |effect| effect.contains("Unlink")) - 1;
    let seen =
        explore_sabotaged(proven, freed(false), asking_again_frees_it, Sabotage::Drop(flush));
    table::caught("release::free, a slot", "deleted before the rename is flushed", &seen);
}

fn id(host: &FaultHost) -> String {
    canonical_id(host, Path::new(FILE)).expect("there").id
}

fn take(host: &FaultHost, token: &str) -> bool {
    let session_file = Path::new(FILE);
    let (run_id, source_run_id, parent_session_id) = (token, "run-0", None);
    let request = LeaseRequest { session_file, run_id, source_run_id, parent_session_id, token };
    acquire(host, &0, &request).is_ok()
}

fn held(host: &FaultHost) {
    host.make_dir("/async-subagent-runs");
    host.put(FILE, "");
    lives(host, "linux:9");
    assert!(take(host, "old"), "it is free");
}

fn stale(host: &FaultHost) {
    held(host);
    lives(host, "linux:500");
}

fn free_lease(host: &FaultHost) -> Result<Freed, FreeError> {
    free(host, (&0, Path::new("/")), &Place::Lease(id(host)), false)
}

fn owner(host: &FaultHost) -> Option<String> {
    match lease::inspect(host, &0, &id(host)) {
        LeaseState::Owned(owner) => Some(owner.token),
        _ => None,
    }
}

#[test]
pub(crate) fn every_crash_of_freeing_a_lease_leaves_it_stale_or_free() {
    let operation = |host: &FaultHost| {
        let done = free_lease(host).expect("nothing fails here");
        assert!(matches!(done, Freed::Freed { .. }), "{done:?}");
    };
    let check = |host: &FaultHost, crash: &Crash| {
        if crash.acknowledged && owner(host).is_some() {
            return Err("what was acknowledged came back".to_owned());
        }
        if let LeaseState::NoOwner | LeaseState::Unreadable(_) = lease::inspect(host, &0, &id(host))
        {
            return Err("it blocks its session for ever".to_owned());
        }
        free_lease(host).map_err(|e| format!("{e:?}"))?;
        if take(host, "next") { Ok(()) } else { Err("the next one is refused".to_owned()) }
    };
    table::stepped("release::free, a lease", &explore(stale, operation, check), 2);
    let seen = explore_sabotaged(stale, operation, check, Sabotage::Drop(1));
    table::caught("release::free, a lease", "the rename is not durable", &seen);
}

// RS-CHECK-31: what cannot be looked at is not told to be free.
#[test]
fn a_look_that_fails_makes_nothing_free() {
    let of_host = FaultHost::new();
    stale(&of_host);
    // Its name is that of its file, which is no look of the release.
    let place = Place::Lease(id(&of_host));
    let free_lease = |host: &FaultHost| free(host, (&0, Path::new("/")), &place, false);
    let is_lease_there = |host: &FaultHost| owner(host).is_some();
    let told = not_free(proven, is_slot_there, |host| free_slot(host, true));
    let told = told + not_free(stale, is_lease_there, free_lease);
    assert!(told > 0, "a look may fail that nothing depends on");
}

/// Asks with each look failing in turn; the number of answers that are not free.
fn not_free(
    setup: fn(&FaultHost),
    is_there: impl Fn(&FaultHost) -> bool,
    ask: impl Fn(&FaultHost) -> Result<Freed, FreeError>,
) -> usize {
    let mut told = 0;
    let whole = every_look(setup, ask, |host, done, at| {
        let is_free = matches!(done, Ok(Freed::Left(Standing::Free) | Freed::Freed { .. }));
        assert!(!is_free || !is_there(host), "{at}: {done:?}");
        told += usize::from(!is_free);
    });
    whole.expect("nothing fails here");
    told
}

#[test]
fn what_is_not_over_is_left_alone_with_its_rule() {
    let host = FaultHost::new();
    bound(&host);
    put(&host, "status.json", &records::running("run-1", 7, host.now_ms()));
    host.begin();
    for by_policy in [false, true] {
        let done = free_slot(&host, by_policy).expect("nothing fails here");
        let Freed::Left(Standing::Held { why, .. }) = done else { panic!("{done:?}") };
        assert_eq!(why, "the run has not ended");
    }
    assert_eq!(host.effects().len(), 0, "nothing was written");
    let host = FaultHost::new();
    abandoned(&host);
    host.begin();
    let done = free_slot(&host, false).expect("nothing fails here");
    let by_policy = matches!(done, Freed::Left(Standing::Over { by_policy: true, .. }));
    assert!(by_policy, "a policy that was not asked for frees nothing: {done:?}");
    assert_eq!(host.effects().len(), 0, "nothing was written");
    let host = FaultHost::new();
    held(&host);
    host.begin();
    let done = free_lease(&host).expect("nothing fails here");
    assert!(matches!(done, Freed::Left(Standing::Held { .. })), "{done:?}");
    assert_eq!(host.effects().len(), 0, "nothing was written");
}

/// A release of a slot whose run is resumed before each effect in turn: the slot goes to the new run, or is
/// freed, and never freed from under the new one.
#[test]
fn a_slot_that_a_revival_takes_over_meanwhile_is_not_freed() {
    let mut kept = 0;
    for n in 0..9 {
        let host = FaultHost::new();
        proven(&host);
        host.begin();
        let taken = Arc::new(Mutex::new(false));
        let told = Arc::clone(&taken);
        host.interrupt_at(n, move |host| {
            let state = runstore::protocol::Open::Known(runstore::protocol::RunState::Complete);
            let status = Some((Some("run-1"), Some(state)));
            let source = slot::Source { run_id: "run-1", status };
            let (kind, limit) = (SlotKind::Runner, 1);
            let request =
                SlotRequest { session_id: SESSION, run_id: "run-2", async_dir: "/r", kind, limit };
            let done = slot::transfer(host, &0, &request, &source);
            *told.lock().expect("one thread") = done.is_ok_and(|slot| slot.is_some());
        });
        let freed = matches!(free_slot(&host, false), Ok(Freed::Freed { .. }));
        let taken = *taken.lock().expect("one thread");
        let text = host.text(&format!("/{}/owner.json", slot_place().path())).unwrap_or_default();
        assert_eq!(taken, text.contains("run-2"), "before effect {n}: freed {freed}: {text}");
        assert!(freed || taken, "before effect {n}: nobody got anywhere");
        kept += usize::from(taken && !freed);
    }
    assert!(kept > 0, "before the claim the revival is first");
}

#[test]
fn every_failing_effect_leaves_slot_and_lease_as_it_says() {
    let check = |host: &FaultHost, done: &Result<Freed, FreeError>, is_there: bool, fault: &str| {
        match done {
            Ok(Freed::Freed { .. }) => assert!(!is_there, "{fault}: said to be free"),
            Ok(left) => panic!("{fault}: {left:?}"),
            Err(e) => assert!(!e.to_string().is_empty(), "{fault}"),
        }
        assert!(host.has("/async-subagent-runs"), "{fault}");
    };
    every_call(
        proven,
        |host| free_slot(host, false),
        |host, done, fault| {
            check(host, &done, is_slot_there(host), &format!("{fault:?}: {done:?}"));
        },
    );
    every_call(stale, free_lease, |host, done, fault| {
        check(host, &done, owner(host).is_some(), &format!("{fault:?}: {done:?}"));
    });
}
