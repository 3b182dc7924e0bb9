//! The lock among our own processes, in memory: bounded, named, and never a reason to lose a record.

use runstore::protocol::{Document, layout};
use runstore::store::advisory::{LockError, Locks, STRIPES, lock_name};
use runstore::store::atomic::{Durability, Options};
use runstore::store::host::Host as _;
use runstore::store::sidecar::{Decision, PatchError, Patched, patch_locked};
use testkit::fault::{Crash, FaultHost, Injected, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, every_call};
use crate::table;

const NAME: &str = "status.json";
const STATUS: &str = "/status.json";
const OLD: &str = "{\n  \"state\": \"running\",\n  \"odd\": 1e400\n}";
const NEW: &str = "{\n  \"state\": \"failed\",\n  \"odd\": 1e400\n}";
const KEY: &str = "run-1";

fn with_status(host: &FaultHost) {
    host.put(STATUS, OLD);
}

fn content(host: &FaultHost) -> String {
    host.text(STATUS).expect("there")
}

fn locks(host: &FaultHost) -> Locks<'_, FaultHost> {
    Locks::new(host, &0, "/runs", 200)
}

fn operation(host: &FaultHost) -> Result<Patched, PatchError> {
    let to_failed = |_: &Document<'_>| Decision::Patch(vec![("state", "\"failed\"".to_owned())]);
    let options = Options::new(Durability::Durable);
    patch_locked(&locks(host), KEY, (&0, NAME), 1 << 20, &options, to_failed)
}

#[test]
fn a_lock_is_held_until_its_guard_is_dropped_and_keeps_others_out() {
    let host = FaultHost::new();
    with_status(&host);
    let held = locks(&host).acquire(KEY).expect("free");
    let start = host.now_ms();
    let e = operation(&host).expect_err("held by another");
    assert_eq!(host.now_ms(), start + 200, "it waits for its budget and no longer");
    assert!(matches!(e, PatchError::Locked(LockError::Contended { waited_ms: 200, .. })), "{e:?}");
    let text = e.to_string();
    let path = format!("/runs/.runstore/{}", lock_name(KEY));
    assert!(text.contains("contended") && text.contains(&path), "it names the lock: {text}");
    assert_eq!(held.path(), path);
    assert_eq!(content(&host), OLD);
    drop(held);
    assert!(matches!(operation(&host), Ok(Patched::Written { .. })));
    assert_eq!(content(&host), NEW);
    drop(locks(&host).acquire(KEY).expect("let go after the patch"));
}

#[test]
fn lock_files_are_few_and_stay() {
    let host = FaultHost::new();
    for run in 0..1_000 {
        drop(locks(&host).acquire(&format!("run-{run}")).expect("free"));
    }
    let files = host.tree().keys().filter(|path| path.ends_with(layout::LOCK_SUFFIX)).count();
    assert_eq!(files, usize::from(STRIPES));
    assert!(host.tree().keys().all(|path| path.starts_with(layout::OWN_DIR)), "all in one place");
}

#[test]
pub(crate) fn a_patch_under_the_lock_is_whole_or_absent_after_every_crash() {
    let patched = |host: &FaultHost| operation(host).expect("nothing fails");
    let whole_and_kept = |host: &FaultHost, crash: &Crash| {
        let now = content(host);
        let kept = !crash.acknowledged || now == NEW;
        // Whoever died holds nothing, and what it left of the lock keeps nobody out.
        drop(locks(host).acquire(KEY).map_err(|e| format!("not free: {e}"))?);
        if (now == OLD || now == NEW) && kept { Ok(()) } else { Err(format!("it is {now}")) }
    };
    let seen = explore(with_status, patched, whole_and_kept);
    table::seen("sidecar::patch_locked and advisory::Locks::acquire", &seen);
    for (mistake, sabotage) in [
        ("the new text is never flushed", Sabotage::Drop(4)),
        ("the directory is never flushed", Sabotage::Drop(6)),
    ] {
        let seen = explore_sabotaged(with_status, patched, whole_and_kept, sabotage);
        table::caught("sidecar::patch_locked", mistake, &seen);
    }
}

#[test]
fn every_failing_call_in_every_way_leaves_the_old_text_or_the_new_one() {
    let points = every_call(with_status, operation, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        // Directory, lock file, lock; a lock that cannot be had keeps nothing from being written.
        let written = fault.call < 3 || fault.is_made_good();
        assert_eq!(done.is_ok(), written, "{at}");
        let told = matches!(done, Ok(Patched::Written { .. }) | Err(PatchError::Write(_)));
        assert!(told, "{at}: the patch itself decides");
        let new = written || fault.is_of_a_directory_flush();
        assert_eq!(content(host), if new { NEW } else { OLD }, "{at}");
        drop(locks(host).acquire(KEY).expect("let go whatever became of the patch"));
    });
    assert_eq!(points, 8 * 8);
}

#[test]
fn a_file_system_without_locks_leaves_the_patch_as_it_is_without() {
    const ENOLCK: i32 = 37;
    // Make the directory, open the lock file, lock; then the five of a replacement.
    for n in 0..8 {
        let host = FaultHost::new();
        with_status(&host);
        host.begin();
        host.fail_at(n, Injected::Errno(ENOLCK));
        let done = operation(&host);
        let at = format!("effect {n}: {done:?}");
        assert_eq!(done.is_ok(), n < 3, "{at}");
        assert_eq!(content(&host), if n < 3 || n == 7 { NEW } else { OLD }, "{at}");
        assert_eq!(sweep::litter(&host), [""; 0], "{at}: no temp file is left");
        drop(locks(&host).acquire(KEY).expect("let go in any case"));
    }
}
