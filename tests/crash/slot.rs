//! Slots: never two owners, never a directory without one, never frozen, and nothing acknowledged lost.

use std::sync::{Arc, Mutex};

use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::slot::{SlotKind, SlotOwner, SlotVerdict};
use runstore::protocol::{Document, Open, RunState};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::slot::{
    HeldSlot, RolledBack, SlotError, SlotRequest, Source, acquire, bind, occupied, pool_name,
    reconcile, release, rollback, rollback_before_proceed, transfer,
};
use testkit::fault::{Crash, FaultHost, Injected, Sabotage, explore, explore_sabotaged};

use crate::sweep::every_call;
use crate::table;

fn request(run_id: &str) -> SlotRequest<'_> {
    let kind = SlotKind::Runner;
    SlotRequest { session_id: "S", run_id, async_dir: "/RUNS/r", kind, limit: 1 }
}

fn source(run_id: &str) -> Source<'_> {
    Source { run_id, status: Some((Some(run_id), Some(Open::Known(RunState::Failed)))) }
}

fn alive(host: &FaultHost) {
    let start_identity = Some("linux:9".to_owned());
    let seen =
        ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() };
    host.set_process(host.system().own_pid, seen);
}

fn take(host: &FaultHost, run_id: &str) -> Result<HeldSlot, SlotError> {
    acquire(host, &0, &request(run_id)).map(|slot| slot.expect("there is a limit"))
}

fn held(host: &FaultHost) {
    alive(host);
    let _ = take(host, "run-1").expect("free");
}

/// A slot with the claim of a process that died.
fn claimed(host: &FaultHost) {
    held(host);
    let text = r#"{"token":"old","pid":99,"hostname":"host-a","bootId":"boot-1"}"#;
    put_claim(host, text);
}

fn slot_path() -> String {
    format!("{}/slot-0", pool_path())
}

fn pool_path() -> String {
    format!("/session-active-async-capacity/{}", pool_name("S"))
}

fn slot_dir(host: &FaultHost) -> usize {
    host.dir(&slot_path())
}

fn claim_path() -> String {
    format!("{}/capacity.claim", slot_path())
}

fn put_claim(host: &FaultHost, text: &str) {
    host.put(&claim_path(), text);
}

/// The record of the slot; `None` when there is no slot.
fn owner(host: &FaultHost) -> Option<Result<SlotOwner, String>> {
    if !host.has(&slot_path()) {
        return None;
    }
    let Some(bytes) = host.bytes(&format!("{}/owner.json", slot_path())) else {
        return Some(Err("there is no record".to_owned()));
    };
    let doc = Document::from_bytes(&bytes).map_err(|e| e.to_string());
    Some(doc.and_then(|doc| SlotOwner::read(&doc).map_err(|e| e.to_string())))
}

fn held_slot(host: &FaultHost) -> SlotOwner {
    owner(host).expect("there").expect("valid")
}

/// No directory under a final name is without a valid record: it would be occupied for ever.
fn no_slot_without_owner(host: &FaultHost) -> Result<Option<SlotOwner>, String> {
    owner(host).transpose().map_err(|e| format!("the slot is occupied for ever: {e}"))
}

/// With every process of before gone, the slot can be released and taken again: no claim freezes it.
fn the_next_one_gets_in(host: &FaultHost) -> Result<(), String> {
    if let Some(owner) = no_slot_without_owner(host)? {
        release(host, &0, &owner).map_err(|e| format!("frozen: {e} {e:?}"))?;
    }
    let next = take(host, "next").map_err(|e| format!("the next one is refused: {e}"))?;
    if held_slot(host) == next.owner { Ok(()) } else { Err("another one holds it".to_owned()) }
}

type Check = fn(Option<&SlotOwner>) -> bool;

/// All invariants; `done` says whether the acknowledged state is there.
fn invariants(done: Check) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> {
    move |host, crash| {
        let owner = no_slot_without_owner(host)?;
        if crash.acknowledged && !done(owner.as_ref()) {
            return Err(format!("what was acknowledged is lost: {owner:?}"));
        }
        the_next_one_gets_in(host)
    }
}

type Operation = fn(&FaultHost);

fn acquired(host: &FaultHost) {
    let _ = take(host, "run-1").expect("free");
}

fn bound(host: &FaultHost) {
    let mut slot = take_over(host);
    bind(host, &0, &mut slot, "i", 5).expect("ours");
}

/// The held slot as its holder knows it, by the way of a restart that the tests only have.
fn take_over(host: &FaultHost) -> HeldSlot {
    let old = held_slot(host);
    let other = FaultHost::new();
    alive(&other);
    let mut slot = take(&other, &old.run_id).expect("free");
    slot.owner = old;
    slot
}

fn released(host: &FaultHost) {
    release(host, &0, &held_slot(host)).expect("ours");
}

fn transferred(host: &FaultHost) {
    let _ = transfer(host, &0, &request("run-2"), &source("run-1")).expect("it has ended");
}

fn rolled_back(host: &FaultHost) {
    let done = rollback(host, &0, &take_over(host)).expect("ours");
    assert!(matches!(done, RolledBack::Released { litter: None }), "{done:?}");
}

fn held_bound(host: &FaultHost) {
    held(host);
    bound(host);
}

fn rolled_back_bound(host: &FaultHost) {
    let done = rollback_before_proceed(host, &0, &take_over(host), "i").expect("ours");
    assert!(matches!(done, RolledBack::Released { litter: None }), "{done:?}");
}

const RELEASE: SlotVerdict =
    SlotVerdict { release: true, rule: 6, reason: "it has ended", by_policy: false };

fn reconciled(host: &FaultHost) {
    let done = reconcile(host, &0, "S", |_| RELEASE).expect("nothing fails here");
    assert_eq!((done.released.len(), done.failed.len(), done.used), (1, 0, 0), "{done:?}");
}

fn is_run_1(owner: Option<&SlotOwner>) -> bool {
    owner.is_some_and(|owner| owner.run_id == "run-1")
}

fn is_bound(owner: Option<&SlotOwner>) -> bool {
    owner.is_some_and(|owner| owner.runner_instance_id.as_deref() == Some("i"))
}

fn is_run_2(owner: Option<&SlotOwner>) -> bool {
    owner.is_some_and(|owner| owner.run_id == "run-2" && owner.generation == 1)
}

fn is_free(owner: Option<&SlotOwner>) -> bool {
    owner.is_none()
}

/// Name, disk before, operation, what is acknowledged, number of effects.
const OPERATIONS: [(&str, Operation, Operation, Check, usize); 9] = [
    ("slot::acquire", alive, acquired, is_run_1, 11),
    ("slot::bind", held, bound, is_bound, 10),
    ("slot::release", held, released, is_free, 9),
    ("slot::release, with a stale claim", claimed, released, is_free, 15),
    ("slot::transfer", held, transferred, is_run_2, 10),
    ("slot::rollback", held, rolled_back, is_free, 9),
    ("slot::rollback_before_proceed", held_bound, rolled_back_bound, is_free, 9),
    ("slot::reconcile", held, reconciled, is_free, 9),
    ("slot::acquire, in a pool that is there", made, acquired, is_run_1, 9),
];

/// A pool that was used before.
fn made(host: &FaultHost) {
    held(host);
    released(host);
}

#[test]
pub(crate) fn every_crash_leaves_a_slot_with_its_owner_or_none_and_never_a_frozen_one() {
    for (what, setup, operation, done, steps) in OPERATIONS {
        let seen = explore(setup, operation, invariants(done));
        table::stepped(what, &seen, steps);
    }
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_is_caught() {
    // acquire: mkdir, flush, mkdir, flush, mkdir, create, write, flush, flush, rename, flush.
    // release: create, write, flush, rename of the claim; rename, flush, two unlinks, rmdir.
    // bind: the claim as above; create, write, flush, rename, flush of the record; unlink.
    let rows: [(&str, usize, Sabotage); 9] = [
        ("the root is not durable", 0, Sabotage::Drop(1)),
        ("the pool is not durable", 0, Sabotage::Drop(3)),
        ("the owner record is never flushed", 0, Sabotage::Drop(7)),
        ("the slot is never flushed", 0, Sabotage::Drop(8)),
        ("renamed before it is flushed", 0, Sabotage::Swap(8)),
        ("the reservation is not durable", 0, Sabotage::Drop(10)),
        ("the claim is never flushed", 2, Sabotage::Drop(2)),
        ("the release is not durable", 2, Sabotage::Drop(5)),
        ("the binding is not durable", 1, Sabotage::Drop(8)),
    ];
    for (mistake, row, sabotage) in rows {
        let (what, setup, operation, done, _) = OPERATIONS[row];
        let seen = explore_sabotaged(setup, operation, invariants(done), sabotage);
        table::caught(what, mistake, &seen);
    }
    // Without the flush between rename and deletion a power cut brings back a name without a record.
    let (_, setup, operation, done, _) = OPERATIONS[2];
    let seen = explore_sabotaged(setup, operation, invariants(done), Sabotage::Drop(5));
    let blocked = seen.violations.iter().any(|why| why.contains("occupied for ever"));
    assert!(blocked, "not caught: deleted before the rename is flushed");
}

#[test]
fn every_failing_effect_leaves_a_slot_that_is_ours_or_free_as_it_says() {
    for (what, setup, _, done, steps) in OPERATIONS {
        let operation = |host: &FaultHost| {
            let held = || take_over(host);
            match what {
                "slot::bind" => bind(host, &0, &mut held(), "i", 5),
                "slot::transfer" => {
                    transfer(host, &0, &request("run-2"), &source("run-1")).map(drop)
                }
                "slot::rollback" => rollback(host, &0, &held()).map(drop),
                "slot::rollback_before_proceed" => {
                    rollback_before_proceed(host, &0, &held(), "i").map(drop)
                }
                "slot::reconcile" => reconcile(host, &0, "S", |_| RELEASE).and_then(|done| {
                    let failed = done.failed.into_iter().next();
                    failed.map_or(Ok(()), |(_, e)| Err(e))
                }),
                release if release.starts_with("slot::release") => {
                    self::release(host, &0, &held_slot(host)).map(drop)
                }
                _ => take(host, "run-1").map(drop),
            }
        };
        let points = every_call(setup, operation, |host, result, fault| {
            let at = format!("{what}, {fault:?}: {result:?}");
            let now = no_slot_without_owner(host).expect(&at);
            if result.is_ok() {
                assert!(done(now.as_ref()), "{at}: said to be done, but {now:?}");
            }
            let tree = host.tree();
            let litter = tree.keys().filter(|path| path.contains(".candidate-")).count();
            assert_eq!(litter, 0, "{at}: no candidate is left");
            if let Err(SlotError::Write(e)) = &result {
                assert!(e.to_string().starts_with("cannot "), "{at}: {e}");
            }
        });
        assert!(points >= steps * 8, "{what}: {points} points");
    }
}

/// Lets another process act right before each effect of ours; how each of the two ended.
fn interleaved(
    setup: Operation,
    ours: impl Fn(&FaultHost) -> bool,
    theirs: fn(&FaultHost) -> bool,
    steps: usize,
) -> Vec<(bool, bool, Option<SlotOwner>)> {
    (0..steps)
        .map(|n| {
            let host = FaultHost::new();
            setup(&host);
            host.begin();
            let ended = Arc::new(Mutex::new(false));
            let other = Arc::clone(&ended);
            host.interrupt_at(n, move |host| {
                *other.lock().expect("one thread") = theirs(host);
            });
            let ours = ours(&host);
            let theirs = *ended.lock().expect("one thread");
            (ours, theirs, no_slot_without_owner(&host).expect("never without an owner"))
        })
        .collect()
}

#[test]
fn of_two_contenders_for_the_last_slot_one_holds_it() {
    let ours = |host: &FaultHost| take(host, "a").is_ok();
    let theirs = |host: &FaultHost| take(host, "b").is_ok();
    for (n, (ours, theirs, owner)) in interleaved(alive, ours, theirs, 10).into_iter().enumerate() {
        assert!(ours ^ theirs, "before effect {n}: ours {ours}, theirs {theirs}: one of the two");
        let run_id = owner.expect("held").run_id;
        assert_eq!(run_id, if ours { "a" } else { "b" }, "before effect {n}");
    }
}

#[test]
fn of_two_that_change_a_slot_one_at_a_time_is_let_in() {
    for (setup, steps) in [(held as Operation, 10), (claimed, 16)] {
        let ours = |host: &FaultHost| {
            let mut slot = take_over(host);
            bind(host, &0, &mut slot, "i", 5).is_ok()
        };
        let theirs = |host: &FaultHost| release(host, &0, &held_slot(host)).is_ok();
        let rows = interleaved(setup, ours, theirs, steps);
        assert!(rows.iter().any(|(ours, ..)| *ours), "a claim keeps the other out");
        assert!(rows.iter().any(|(_, theirs, _)| *theirs), "before the claim the other is first");
        for (n, (ours, theirs, owner)) in rows.into_iter().enumerate() {
            assert!(!(ours && theirs), "before effect {n}: both changed it");
            assert_eq!(owner.is_none(), theirs, "before effect {n}: {owner:?}");
        }
    }
}

#[test]
fn a_claim_is_taken_back_only_from_a_process_that_is_gone_here() {
    let rows = [
        ("6f1c2a54-0000-4000-8000-000000000000", false, "a bare token names nobody"),
        ("", false, "an empty claim names nobody"),
        (r#"{"token":"t","pid":99,"hostname":"elsewhere"}"#, false, "another host"),
        (r#"{"token":"t","pid":4242,"hostname":"host-a"}"#, false, "it lives, or may"),
        (
            r#"{"token":"t","pid":4242,"hostname":"host-a","processStartIdentity":"linux:8"}"#,
            true,
            "its number has another process",
        ),
        (
            r#"{"token":"t","pid":99,"hostname":"host-a","pidNamespaceScope":"pid:[7]"}"#,
            false,
            "another namespace",
        ),
        (r#"{"token":"t","pid":99,"hostname":"host-a"}"#, true, "it is gone"),
    ];
    for (text, let_in, case) in rows {
        let host = FaultHost::new();
        held(&host);
        put_claim(&host, text);
        let result = release(&host, &0, &held_slot(&host));
        assert_eq!(result.is_ok(), let_in, "{case}: {result:?}");
        if !let_in {
            assert!(matches!(result, Err(SlotError::Claimed(_))), "{case}: {result:?}");
            let claim = host.text(&claim_path());
            assert_eq!(claim.as_deref(), Some(text), "{case}: it is left alone");
        }
    }
}

fn pool_dir(host: &FaultHost) -> usize {
    host.dir(&pool_path())
}

#[test]
fn a_slot_that_another_run_has_now_is_not_released_through_an_old_handle() {
    for n in 0..4 {
        let host = FaultHost::new();
        held(&host);
        let ours = held_slot(&host);
        host.begin();
        // Another process has renamed our slot away, its record still in it, and the number is taken
        // again, all after we opened the directory.
        host.interrupt_at(n, |host| {
            let pool = pool_dir(host);
            let away = ".slot-0.released-x";
            host.rename(&pool, "slot-0".as_ref(), &pool, away.as_ref()).expect("there");
            let _ = take(host, "b").expect("free");
        });
        let result = release(&host, &0, &ours);
        assert!(matches!(result, Err(SlotError::Changed(_))), "before effect {n}: {result:?}");
        assert_eq!(held_slot(&host).run_id, "b", "before effect {n}: the new run keeps it");
    }
}

#[test]
fn a_claim_that_changed_hands_while_it_was_judged_is_honoured() {
    const OTHERS: &str = "6f1c2a54-0000-4000-8000-000000000000";
    let host = FaultHost::new();
    claimed(&host);
    // The first look is at ourselves, the second one at the process of the claim.
    host.interrupt_probe(1, |host| {
        put_claim(host, OTHERS);
    });
    let result = release(&host, &0, &held_slot(&host));
    assert!(matches!(result, Err(SlotError::Claimed(_))), "{result:?}");
    let claim = host.text(&claim_path());
    assert_eq!(claim.as_deref(), Some(OTHERS), "the claim of the other stays");
}

#[test]
fn a_reservation_that_is_empty_yet_is_not_replaced() {
    for n in 0..8 {
        let host = FaultHost::new();
        made(&host);
        host.begin();
        // Another implementation creates the directory first and writes its record later.
        host.interrupt_at(n, |host| {
            host.create_dir(&pool_dir(host), "slot-0".as_ref(), 0o700).expect("free");
        });
        let two = SlotRequest { limit: 2, ..request("a") };
        let slot = acquire(&host, &0, &two).expect("one is free").expect("there is a limit");
        assert_eq!(slot.owner.slot, 1, "before effect {n}: the next number");
        assert!(owner(&host).is_some_and(|owner| owner.is_err()), "it is left as it was");
    }
}

#[test]
fn a_directory_without_an_owner_is_occupied_and_left_alone() {
    let host = FaultHost::new();
    held(&host);
    let dir = slot_dir(&host);
    host.unlink(&dir, "owner.json".as_ref()).expect("there");
    assert!(matches!(take(&host, "b"), Err(SlotError::Full { used: 1, limit: 1 })), "occupied");
    // The rename refuses an empty directory as well: it is the reservation of somebody.
    let two = SlotRequest { limit: 2, ..request("b") };
    let slot = acquire(&host, &0, &two).expect("one is free").expect("there is a limit");
    assert_eq!(slot.owner.slot, 1, "the next number");
    assert_eq!(occupied(&host, &0, "S").expect("readable"), [Some(0), Some(1)]);
    assert!(acquire(&host, &0, &SlotRequest { limit: 0, ..request("c") }).expect("ok").is_none());
}

#[test]
fn a_roll_back_follows_what_was_bound() {
    // Bound: it stays, unless it is bound to the very runner that never proceeds.
    let host = FaultHost::new();
    alive(&host);
    let mut slot = take(&host, "run-1").expect("free");
    bind(&host, &0, &mut slot, "i", 5).expect("ours");
    assert!(matches!(rollback(&host, &0, &slot), Ok(RolledBack::Bound)));
    let other = rollback_before_proceed(&host, &0, &slot, "j");
    assert!(matches!(other, Ok(RolledBack::Bound)), "{other:?}");
    let own = rollback_before_proceed(&host, &0, &slot, "i");
    assert!(matches!(own, Ok(RolledBack::Released { litter: None })), "{own:?}");
    assert!(matches!(rollback(&host, &0, &slot), Err(SlotError::Changed(_))), "once");
    // Memory is bound, the file is not: binding failed on the way to the disk.
    let host = FaultHost::new();
    alive(&host);
    let mut slot = take(&host, "run-1").expect("free");
    host.begin();
    host.fail_at(7, Injected::Errno(28));
    bind(&host, &0, &mut slot, "i", 5).expect_err("the disk is full");
    assert!(matches!(rollback(&host, &0, &slot), Ok(RolledBack::Bound)), "memory counts");
    let own = rollback_before_proceed(&host, &0, &slot, "i");
    assert!(matches!(own, Ok(RolledBack::Released { litter: None })), "{own:?}");
}

#[test]
fn a_transfer_replaces_the_run_and_a_roll_back_gives_the_slot_back() {
    let host = FaultHost::new();
    alive(&host);
    let mut first = take(&host, "run-1").expect("free");
    bind(&host, &0, &mut first, "i", 5).expect("ours");
    let before = held_slot(&host);
    let active = Source {
        run_id: "run-1",
        status: Some((Some("run-1"), Some(Open::Known(RunState::Running)))),
    };
    let gone = Source { run_id: "run-1", status: None };
    for source in [active, gone] {
        let refused = transfer(&host, &0, &request("run-2"), &source);
        assert!(matches!(refused, Err(SlotError::SourceActive(_))), "{refused:?}");
    }
    let slot = transfer(&host, &0, &request("run-2"), &source("run-1")).expect("ended");
    let slot = slot.expect("there is a limit");
    assert!(slot.is_transferred());
    let now = held_slot(&host);
    assert_eq!(now, slot.owner, "memory and file agree");
    assert_eq!((now.generation, now.source_run_id.as_deref()), (1, Some("run-1")));
    assert_eq!((now.runner_instance_id, now.runner_started_at_ms), (None, None), "unbound");
    assert!(matches!(release(&host, &0, &before), Err(SlotError::Changed(_))), "not the old one's");
    assert!(matches!(rollback(&host, &0, &slot), Ok(RolledBack::Restored)));
    assert_eq!(held_slot(&host), before, "the previous owner has it again");
    // A run without a slot is resumed in a slot of its own.
    released(&host);
    let fresh = transfer(&host, &0, &request("run-3"), &source("run-1")).expect("free");
    assert!(!fresh.expect("there is a limit").is_transferred());
}
