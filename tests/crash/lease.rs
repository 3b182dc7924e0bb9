//! Leases: never two owners, never a directory without one, and nothing acknowledged is lost.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use runstore::protocol::lease::{LeaseState, WriterState, tombstone_name};
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::store::host::Host as _;
use runstore::store::lease::{
    AcquireError, HeldLease, LeaseRequest, Released, Writer, acquire, canonical_id, inspect,
    release, update_writer,
};
use testkit::fault::{Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, ERRNOS, every_call};
use crate::table;

const SESSION: &str = "/s.jsonl";

fn request(token: &str) -> LeaseRequest<'_> {
    LeaseRequest {
        session_file: Path::new(SESSION),
        run_id: token,
        source_run_id: "run-0",
        parent_session_id: None,
        token,
    }
}

fn present() -> ProcessSeen {
    let start_identity = Some("linux:9".to_owned());
    ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() }
}

fn session(host: &FaultHost) {
    host.put(SESSION, "");
    host.set_process(host.system().own_pid, present());
}

/// A lease whose owner died.
fn stale(host: &FaultHost) {
    session(host);
    let _ = take(host, "old").expect("free");
    host.set_process(
        host.system().own_pid,
        ProcessSeen { start_identity: Some("linux:500".to_owned()), ..present() },
    );
}

fn held(host: &FaultHost) {
    session(host);
    let _ = take(host, "a").expect("free");
}

fn take(host: &FaultHost, token: &str) -> Result<HeldLease, AcquireError> {
    acquire(host, &0, &request(token))
}

fn id(host: &FaultHost) -> String {
    canonical_id(host, Path::new(SESSION)).expect("the session is there").id
}

fn token_of(host: &FaultHost) -> Option<String> {
    match inspect(host, &0, &id(host)) {
        LeaseState::Owned(owner) => Some(owner.token),
        _ => None,
    }
}

fn names(host: &FaultHost) -> Vec<String> {
    let Ok(root) = host.open_dir(Path::new("/session-leases")) else { return Vec::new() };
    let mut names = Vec::new();
    host.list(&root, &mut |entry| {
        names.push(entry.name.to_string_lossy().into_owned());
        ControlFlow::Continue(())
    })
    .expect("a directory");
    names
}

/// No directory under a final name is without a valid owner record: it would block for ever.
fn no_lease_without_owner(host: &FaultHost) -> Result<(), String> {
    match inspect(host, &0, &id(host)) {
        LeaseState::Free | LeaseState::Owned(_) => Ok(()),
        other => Err(format!("the lease is blocked: {other:?}")),
    }
}

/// What the acknowledged operation said holds.
fn acknowledged_holds(host: &FaultHost, crash: &Crash, token: Option<&str>) -> Result<(), String> {
    let now = token_of(host);
    if crash.acknowledged && now.as_deref() != token {
        return Err(format!("acknowledged {token:?} but found {now:?}"));
    }
    Ok(())
}

/// After the crash, with every process of before gone, a contender gets in.
fn the_next_one_gets_in(host: &FaultHost) -> Result<(), String> {
    let next = take(host, "next").map_err(|e| format!("the next one is refused: {e}"))?;
    if token_of(host).as_deref() != Some("next") {
        return Err("the next one holds nothing".to_owned());
    }
    match release(host, &0, &next.id, "next") {
        Ok(Released::Free { litter: None }) => Ok(()),
        other => Err(format!("the next one cannot release: {other:?}")),
    }
}

fn invariants(
    token: Option<&'static str>,
) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> + Copy {
    move |host, crash| {
        no_lease_without_owner(host)?;
        acknowledged_holds(host, crash, token)?;
        the_next_one_gets_in(host)
    }
}

fn acquired(host: &FaultHost) {
    let _ = take(host, "a").expect("nothing is in the way");
}

fn released(host: &FaultHost) {
    release(host, &0, &id(host), "a").expect("it is ours");
}

#[test]
pub(crate) fn every_crash_of_an_acquisition_leaves_a_lease_that_someone_can_take() {
    let seen = explore(session, acquired, invariants(Some("a")));
    table::stepped("lease::acquire", &seen, 9);
    let seen = explore(stale, acquired, invariants(Some("a")));
    table::stepped("lease::acquire, over a stale one", &seen, 9);
}

#[test]
pub(crate) fn every_crash_of_a_release_leaves_a_lease_that_someone_can_take() {
    let seen = explore(held, released, invariants(None));
    table::stepped("lease::release", &seen, 4);
}

#[test]
pub(crate) fn every_crash_of_an_update_leaves_the_old_record_or_the_new_one() {
    let spawning = |host: &FaultHost| {
        let LeaseState::Owned(owner) = inspect(host, &0, &id(host)) else { panic!("it is held") };
        let mut lease = HeldLease { id: id(host), owner: *owner, set_aside: Vec::new() };
        update_writer(host, &0, &mut lease, &Writer::Spawning).expect("it is ours");
    };
    let check = |host: &FaultHost, crash: &Crash| {
        let LeaseState::Owned(owner) = inspect(host, &0, &id(host)) else {
            return Err("the owner record is gone".to_owned());
        };
        let spawning = owner.writer_state == WriterState::Spawning;
        if crash.acknowledged && !spawning {
            return Err("an acknowledged `spawning` is lost".to_owned());
        }
        // A writer may be at work from here on, so nobody may take the lease.
        match take(host, "next") {
            Err(AcquireError::Held { .. }) if spawning => Ok(()),
            Ok(_) if !spawning => Ok(()),
            other => Err(format!("spawning {spawning}, but the next one got {other:?}")),
        }
    };
    let seen = explore(held, spawning, check);
    table::stepped("lease::update_writer", &seen, 5);
    let seen = explore_sabotaged(held, spawning, check, Sabotage::Drop(4));
    table::caught("lease::update_writer", "the update is not durable", &seen);
}

#[test]
fn every_failing_effect_of_an_update_leaves_the_old_record_or_the_new_one() {
    let operation = |host: &FaultHost| {
        let LeaseState::Owned(owner) = inspect(host, &0, &id(host)) else { panic!("it is held") };
        let mut lease = HeldLease { id: id(host), owner: *owner, set_aside: Vec::new() };
        let done = update_writer(host, &0, &mut lease, &Writer::Spawning);
        (done.map_err(|e| e.to_string()), lease.owner.writer_state)
    };
    let points = every_call(held, operation, |host, (done, memory), fault| {
        let at = format!("{fault:?}: {done:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        assert_eq!(done.is_ok(), fault.is_made_good(), "{at}");
        let LeaseState::Owned(owner) = inspect(host, &0, &id(host)) else {
            panic!("{at}: the owner record is gone");
        };
        // After the last flush the record is in place, and only its survival is in doubt.
        let spawning = done.is_ok() || fault.is_of_a_directory_flush();
        assert_eq!(owner.writer_state == WriterState::Spawning, spawning, "{at}");
        // A writer may be started only if the record that says so is kept.
        assert_eq!(memory == WriterState::Spawning, done.is_ok(), "{at}: memory says the same");
        assert!(operation(host).0.is_ok(), "{at}: a second call completes it");
    });
    assert_eq!(points, 5 * 8);
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_is_caught() {
    type Operation = fn(&FaultHost);
    let rows: [(&str, Operation, Operation, Option<&'static str>, Sabotage); 8] = [
        ("the new root is not durable", session, acquired, Some("a"), Sabotage::Drop(1)),
        ("the owner record is never flushed", session, acquired, Some("a"), Sabotage::Drop(5)),
        ("the candidate is never flushed", session, acquired, Some("a"), Sabotage::Drop(6)),
        ("renamed before it is flushed", session, acquired, Some("a"), Sabotage::Swap(6)),
        ("the lease is not durable", session, acquired, Some("a"), Sabotage::Drop(8)),
        ("acknowledged before it is renamed", session, acquired, Some("a"), Sabotage::Swap(7)),
        ("the release is not durable", held, released, None, Sabotage::Drop(1)),
        ("deleted before the rename is flushed", held, released, None, Sabotage::Swap(1)),
    ];
    for (mistake, setup, operation, token, sabotage) in rows {
        let seen = explore_sabotaged(setup, operation, invariants(token), sabotage);
        let what = if token.is_some() { "lease::acquire" } else { "lease::release" };
        table::caught(what, mistake, &seen);
    }
}

#[test]
fn every_failing_effect_leaves_no_lease_and_no_litter_but_what_it_says() {
    for setup in [session as fn(&FaultHost), stale] {
        let points = every_call(
            setup,
            |host| take(host, "a"),
            |host, result, fault| {
                let at = format!("{fault:?}: {result:?}");
                let mine = token_of(host).as_deref() == Some("a");
                assert_eq!(result.is_ok(), mine, "{at}: held exactly if it says so");
                let candidates = names(host).iter().filter(|n| n.contains(".candidate-")).count();
                assert_eq!(candidates, 0, "{at}: no candidate is left");
                if let Err(e) = result {
                    let cause = std::error::Error::source(&e).expect("a write failed");
                    assert!(cause.to_string().starts_with("cannot "), "{at}: {cause}");
                }
            },
        );
        assert_eq!(points, 9 * 8);
    }
}

#[test]
fn a_release_that_fails_is_never_acknowledged_and_never_half_done() {
    for n in 0..4 {
        for errno in ERRNOS {
            let host = FaultHost::new();
            held(&host);
            host.begin();
            host.fail_at(n, Injected::Errno(errno));
            let result = release(&host, &0, &id(&host), "a");
            let at = format!("effect {n}, errno {errno}");
            match n {
                0 => assert!(result.is_err() && token_of(&host).is_some(), "{at}: still ours"),
                1 => assert!(result.is_err(), "{at}: a release that may be undone is no release"),
                // The lease is gone; what could not be deleted is litter.
                _ => assert!(
                    matches!(result, Ok(Released::Free { litter: Some(_) })),
                    "{at}: {result:?}"
                ),
            }
            no_lease_without_owner(&host).expect("never blocked");
        }
    }
}

/// Lets another process do its whole acquisition right before each effect of ours.
fn contend_at_each_effect(setup: fn(&FaultHost), steps: usize) {
    for n in 0..steps {
        let host = FaultHost::new();
        setup(&host);
        host.begin();
        let other = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&other);
        host.interrupt_at(n, move |host| {
            *theirs.lock().expect("one thread") = Some(take(host, "b").is_ok());
        });
        let ours = take(&host, "a").is_ok();
        let theirs = other.lock().expect("one thread").expect("the other had its turn");
        assert!(ours ^ theirs, "before effect {n}: ours {ours}, theirs {theirs}: one of the two");
        let owner = token_of(&host);
        assert_eq!(owner.as_deref(), Some(if ours { "a" } else { "b" }), "before effect {n}");
    }
}

#[test]
fn of_two_contenders_one_holds_the_lease() {
    contend_at_each_effect(session, 8);
    contend_at_each_effect(stale, 8);
}

#[test]
fn a_lease_that_changed_hands_while_its_owner_was_judged_is_not_set_aside() {
    let host = FaultHost::new();
    stale(&host);
    host.set_process(4242, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
    let host = host.with_pid(77);
    host.set_process(77, present());
    // The first look is at ourselves. Before the second one, at the owner that was read, that owner
    // releases and ends, and another process acquires.
    host.interrupt_probe(1, |host| {
        release(host, &0, &id(host), "old").expect("by the one that ends");
        let _ = take(host, "c").expect("free");
    });
    let ours = take(&host, "a");
    assert!(matches!(ours, Err(AcquireError::Held { .. })), "{ours:?}");
    assert_eq!(token_of(&host).as_deref(), Some("c"), "the new owner keeps its lease");
    let tombstone = tombstone_name(&id(&host), "old");
    assert!(!names(&host).contains(&tombstone), "nothing was set aside");
}

#[test]
fn a_lease_is_released_by_its_token_only() {
    let host = FaultHost::new();
    held(&host);
    host.begin();
    let other = release(&host, &0, &id(&host), "b").expect("no error");
    assert!(matches!(other, Released::NotOurs), "{other:?}");
    assert_eq!(host.calls(), 0, "another's lease is not touched");
    assert!(matches!(release(&host, &0, &id(&host), "a"), Ok(Released::Free { litter: None })));
    assert!(matches!(release(&host, &0, &id(&host), "a"), Ok(Released::NotOurs)), "once");
    assert_eq!(names(&host), Vec::<String>::new(), "nothing is left");
}

#[test]
fn what_may_not_be_reclaimed_is_left_alone() {
    let facts = |host: &FaultHost| (token_of(host), names(host));
    // Another host.
    let host = FaultHost::new();
    stale(&host);
    let host = host.with_host_name("elsewhere");
    let before = facts(&host);
    assert!(matches!(take(&host, "a"), Err(AcquireError::Held { .. })), "another host");
    assert_eq!(facts(&host), before);
    // A writer that may have been started.
    let host = FaultHost::new();
    session(&host);
    let mut lease = take(&host, "old").expect("free");
    update_writer(&host, &0, &mut lease, &Writer::Spawning).expect("ours");
    host.set_process(4242, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
    let before = facts(&host);
    assert!(matches!(take(&host, "a"), Err(AcquireError::Held { .. })), "spawning");
    assert_eq!(facts(&host), before);
    // Its writer is recorded and runs; then it is gone.
    let running = Writer::Running { pid: 55, start_identity: Some("linux:9".to_owned()) };
    update_writer(&host, &0, &mut lease, &running).expect("ours");
    host.set_process(55, present());
    assert!(matches!(take(&host, "a"), Err(AcquireError::Held { .. })), "its writer runs");
    host.set_process(55, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
    let lease = take(&host, "a").expect("both are gone");
    assert_eq!(lease.set_aside, [tombstone_name(&lease.id, "old")], "it says what it set aside");
}

#[test]
fn a_record_of_another_boot_or_namespace_is_judged_by_it() {
    let patched = |from: &str, to: &str| {
        let host = FaultHost::new();
        held(&host);
        let owner = format!("/session-leases/{}/owner.json", id(&host));
        let text = host.text(&owner).expect("there");
        assert!(text.contains(from), "{text}");
        host.put(&owner, text.replace(from, to));
        host
    };
    let host = patched("boot-1", "boot-0");
    assert!(take(&host, "a2").is_ok(), "the process of another boot is gone, whatever its number");
    let host = patched("pid:[1]", "pid:[2]");
    host.set_process(4242, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
    let foreign = take(&host, "a2");
    assert!(matches!(foreign, Err(AcquireError::Held { .. })), "another namespace: {foreign:?}");
}

#[test]
fn no_power_cut_leaves_a_lease_before_its_rename() {
    let seen = explore(session, acquired, |host, crash| {
        if crash.model == Model::Power && crash.after < 7 && token_of(host).is_some() {
            return Err("a lease before its rename".to_owned());
        }
        Ok(())
    });
    assert!(seen.violations.is_empty(), "{:#?}", seen.violations);
}
