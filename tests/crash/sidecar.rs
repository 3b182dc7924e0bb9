//! Some members changed, the rest byte for byte as it was.

use std::cell::Cell;

use runstore::store::atomic::{Durability, Options};
use runstore::store::retry::RetryPolicy;
use runstore::store::sidecar::{Decision, PatchError, Patched, patch};
use testkit::fault::{Crash, Effect, FaultHost, Injected, Sabotage, explore, explore_sabotaged};

use crate::table;

const NAME: &str = "status.json";
const STATUS: &str = "/status.json";
const EBUSY: i32 = 16;
const OLD: &str = "{\n  \"state\": \"running\",\n  \"odd\": 1e400,\n  \"more\": {\"x\":  1}\n}";
const NEW: &str = "{\n  \"state\": \"failed\",\n  \"odd\": 1e400,\n  \"more\": {\"x\":  1}\n}";

fn to_failed() -> Decision {
    Decision::Patch(vec![("state", "\"failed\"".to_owned())])
}

fn options() -> Options {
    Options::new(Durability::Durable)
}

#[test]
pub(crate) fn a_patch_is_whole_or_absent_after_every_crash() {
    let setup = |host: &FaultHost| host.put(STATUS, OLD);
    let patched = |host: &FaultHost| {
        patch(host, &0, NAME, 1 << 20, &options(), |_| to_failed()).expect("nothing fails")
    };
    let whole_and_kept = |host: &FaultHost, crash: &Crash| {
        let now = host.text(STATUS).unwrap_or_default();
        let kept = !crash.acknowledged || now == NEW;
        if (now == OLD || now == NEW) && kept { Ok(()) } else { Err(format!("it is {now}")) }
    };
    let seen = explore(setup, patched, whole_and_kept);
    table::seen("sidecar::patch", &seen);
    for (mistake, sabotage) in [
        ("the new text is never flushed", Sabotage::Drop(2)),
        ("the directory is never flushed", Sabotage::Drop(4)),
        ("the new text is renamed before it is flushed", Sabotage::Swap(2)),
    ] {
        let seen = explore_sabotaged(setup, patched, whole_and_kept, sabotage);
        table::caught("sidecar::patch", mistake, &seen);
    }
}

/// Changes the file once while it is patched, from 1e400 to another number.
fn changed_once(host: &FaultHost, number: &str) {
    host.put(STATUS, OLD);
    let times = Cell::new(0);
    let changed = OLD.replace("1e400", number);
    let done = patch(host, &0, NAME, 1 << 20, &options(), |_| {
        times.set(times.get() + 1);
        if times.get() == 1 {
            host.put(STATUS, &changed);
        }
        to_failed()
    });
    assert!(matches!(done, Ok(Patched::Written { attempts: 2, .. })), "{done:?}");
    let kept = NEW.replace("1e400", number);
    assert_eq!(host.text(STATUS), Some(kept), "the other writer's change is kept");
}

#[test]
fn a_file_that_changes_underneath_is_read_again() {
    changed_once(&FaultHost::new(), "2");
}

#[test]
fn what_others_write_while_the_new_text_is_made_and_flushed_is_kept() {
    // Before the temp file is made, before it is filled, and before it is flushed.
    for n in 0..3 {
        let host = FaultHost::new();
        host.put(STATUS, OLD);
        host.begin();
        host.interrupt_at(n, |host| host.put(STATUS, OLD.replace("1e400", "2")));
        let done = patch(&host, &0, NAME, 1 << 20, &options(), |_| to_failed());
        assert!(matches!(done, Ok(Patched::Written { attempts: 2, .. })), "before {n}: {done:?}");
        assert_eq!(host.text(STATUS), Some(NEW.replace("1e400", "2")), "before {n}");
    }
}

#[test]
fn what_others_write_while_the_rename_is_tried_again_is_kept() {
    let patched = |host: &FaultHost| {
        host.put(STATUS, OLD);
        host.begin();
        patch(host, &0, NAME, 1 << 20, &options().retry(RetryPolicy::always()), |_| to_failed())
    };
    let host = FaultHost::new();
    patched(&host).expect("nothing is in its way");
    let is_rename = |(_, effect): &(usize, Effect)| matches!(effect, Effect::Rename { .. });
    let (at, _) = host.numbered_effects().into_iter().find(is_rename).expect("it is renamed");
    let host = FaultHost::new();
    // Somebody writes, by three effects, and another program holds the file for a moment.
    host.interrupt_at(at, |host| host.put(STATUS, OLD.replace("1e400", "2")));
    host.fail_at(at + 3, Injected::Errno(EBUSY));
    let done = patched(&host);
    assert!(matches!(done, Ok(Patched::Written { attempts: 2, .. })), "{done:?}");
    assert_eq!(host.text(STATUS), Some(NEW.replace("1e400", "2")), "their number is kept");
}

#[test]
fn where_files_have_no_number_another_text_of_the_same_look_is_seen() {
    let host = FaultHost::new();
    host.without_numbers();
    // As long, and written within the same tick of the clock.
    changed_once(&host, "1e399");
}

#[test]
fn a_file_that_never_rests_is_contended_and_left_alone() {
    let host = FaultHost::new();
    host.put(STATUS, OLD);
    let done = patch(&host, &0, NAME, 1 << 20, &options(), |_| {
        host.put(STATUS, OLD);
        to_failed()
    });
    assert!(matches!(done, Err(PatchError::Contended(..))), "{done:?}");
    assert_eq!(host.text(STATUS).as_deref(), Some(OLD));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for text in ["{\"a\":1,\"a\":2}", "[1]", "{\"a\":", ""] {
        let host = FaultHost::new();
        host.put(STATUS, text);
        let done = patch(&host, &0, NAME, 1 << 20, &options(), |_| to_failed());
        assert!(matches!(done, Err(PatchError::Damaged(..))), "{text}: {done:?}");
        assert_eq!(host.text(STATUS).as_deref(), Some(text), "it is left as it was");
    }
}

#[test]
fn a_patch_that_changes_nothing_writes_nothing() {
    let host = FaultHost::new();
    host.put(STATUS, NEW);
    host.begin();
    let done = patch(&host, &0, NAME, 1 << 20, &options(), |_| to_failed()).expect("kept");
    assert_eq!(done, Patched::Kept);
    assert_eq!(host.calls(), 0, "no effect at all");
}
