//! One file replaced: old or new, nothing else, and kept once acknowledged.

use runstore::store::atomic::{Durability, Options, Target, replace};
use runstore::store::host::{Host as _, Part, WriteHost as _};
use testkit::fault::{Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged};

use crate::table;

const NAME: &str = "status.json";
const OLD: &[u8] = b"{\"state\": \"running\"}";
const NEW: &[u8] = b"{\"state\": \"complete\", \"more\": 1}";

fn with_old(host: &FaultHost) {
    let file = host.create(&0, NAME.as_ref(), 0o600).expect("an empty disk");
    host.write(&file, OLD).expect("an empty disk");
}

fn content(host: &FaultHost) -> Option<Vec<u8>> {
    host.read_at(&0, NAME.as_ref(), Part::All(1 << 20)).ok().map(|read| read.bytes)
}

/// What a level promises of a file that was there before.
fn promise(durability: Durability) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> {
    move |host, crash| {
        let now = content(host);
        let is = |text: &[u8]| now.as_deref() == Some(text);
        let whole = is(OLD) || is(NEW);
        let kept = !crash.acknowledged || is(NEW);
        let holds = match (crash.model, durability) {
            (Model::Process, _) | (Model::Power, Durability::Durable) => whole && kept,
            (Model::Power, Durability::Ordered) => whole,
            (Model::Power, Durability::ProcessSafe) => true,
        };
        if holds { Ok(()) } else { Err(format!("the file is {now:?}")) }
    }
}

fn operation(durability: Durability) -> impl Fn(&FaultHost) {
    move |host| {
        replace(host, &0, NAME, NEW, &Options::new(durability)).expect("nothing fails here");
    }
}

#[test]
pub(crate) fn each_level_keeps_its_promise_after_every_crash() {
    for durability in [Durability::ProcessSafe, Durability::Ordered, Durability::Durable] {
        let seen = explore(with_old, operation(durability), promise(durability));
        table::seen(&format!("atomic::replace, {durability:?}"), &seen);
    }
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_is_caught() {
    // Effects of a durable replace: create, write, flush, rename, flush the directory.
    let mistakes = [
        ("the file is never flushed", Sabotage::Drop(2)),
        ("the directory is never flushed", Sabotage::Drop(4)),
        ("flushed before it is written", Sabotage::Swap(1)),
        ("renamed before it is flushed", Sabotage::Swap(2)),
        ("the directory is flushed before the rename", Sabotage::Swap(3)),
    ];
    for (mistake, sabotage) in mistakes {
        let level = Durability::Durable;
        let seen = explore_sabotaged(with_old, operation(level), promise(level), sabotage);
        table::caught("atomic::replace", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_leaves_the_old_file_and_no_litter() {
    const ERRNOS: [i32; 7] = [28, 5, 13, 1, 16, 24, 4];
    let mut points = 0;
    for durability in [Durability::ProcessSafe, Durability::Ordered, Durability::Durable] {
        let host = FaultHost::new();
        with_old(&host);
        host.begin();
        operation(durability)(&host);
        let calls = host.calls();
        for n in 0..calls {
            for errno in ERRNOS {
                let host = FaultHost::new();
                with_old(&host);
                host.begin();
                host.fail_at(n, Injected::Errno(errno));
                let result = replace(&host, &0, NAME, NEW, &Options::new(durability));
                points += 1;
                let at = format!("{durability:?}, effect {n}, errno {errno}");
                let tree = host.tree();
                assert_eq!(tree.len(), 1, "{at}: no temp file is left: {:?}", tree.keys());
                // An interrupted write is tried again; the last effect of a durable replace comes
                // after the rename.
                let done = result.is_ok() || (durability == Durability::Durable && n + 1 == calls);
                let expected = if done { NEW } else { OLD };
                assert_eq!(content(&host).as_deref(), Some(expected), "{at}");
                if let Err(e) = result {
                    assert!(e.to_string().contains(NAME), "{at}: the error names the file: {e}");
                }
            }
        }
    }
    assert!(points >= 80, "{points} points");
}

#[test]
fn a_failed_flush_is_final_for_its_temp_file() {
    let host = FaultHost::new();
    with_old(&host);
    host.begin();
    host.fail_at(2, Injected::Errno(5));
    replace(&host, &0, NAME, NEW, &Options::new(Durability::Ordered))
        .expect_err("the flush failed");
    assert_eq!(host.calls(), 4, "create, write, flush, remove: the flush is not tried again");
}

#[test]
fn a_short_write_is_completed() {
    let host = FaultHost::new();
    with_old(&host);
    host.begin();
    host.fail_at(1, Injected::ShortWrite(3));
    replace(&host, &0, NAME, NEW, &Options::new(Durability::Durable)).expect("completed");
    assert_eq!(content(&host).as_deref(), Some(NEW));
}

#[test]
fn the_mode_is_never_looser_than_before_nor_than_0600() {
    let mode_after = |old: Option<u32>, umask: u32| {
        let host = FaultHost::new();
        host.set_umask(0);
        if let Some(old) = old {
            host.create(&0, NAME.as_ref(), old).expect("an empty disk");
        }
        host.set_umask(umask);
        replace(&host, &0, NAME, NEW, &Options::new(Durability::Durable)).expect("written");
        host.stat_at(&0, NAME.as_ref()).expect("there").mode
    };
    assert_eq!(mode_after(None, 0o022), 0o600);
    assert_eq!(mode_after(None, 0o777), 0o600, "a umask that takes the owner's bits is overruled");
    assert_eq!(mode_after(Some(0o644), 0), 0o600);
    assert_eq!(mode_after(Some(0o400), 0), 0o400);
}

#[test]
fn a_target_that_must_be_new_is_not_replaced() {
    let host = FaultHost::new();
    with_old(&host);
    let options = Options::new(Durability::Durable).target(Target::New);
    replace(&host, &0, NAME, NEW, &options).expect_err("it is there");
    assert_eq!(content(&host).as_deref(), Some(OLD));
    assert_eq!(host.tree().len(), 1, "no temp file is left");
}
