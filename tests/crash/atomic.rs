//! One file replaced: old or new, nothing else, and kept once acknowledged.

use runstore::protocol::temp_name::TempName;
use runstore::store::atomic::{Durability, Options, Step, Target, replace};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::RetryPolicy;
use testkit::fault::{
    Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged,
    explore_sabotaged_without_journal,
};

use crate::sweep::{every_call, is_second_name};
use crate::table;

const NAME: &str = "status.json";
const OLD: &[u8] = b"{\"state\": \"running\"}";
const NEW: &[u8] = b"{\"state\": \"complete\", \"more\": 1}";

fn with_old(host: &FaultHost) {
    host.put("/status.json", OLD);
}

fn content(host: &FaultHost) -> Option<Vec<u8>> {
    host.bytes("/status.json")
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
            // Without a journal the rename may be split: RS-DUR-01 promises a whole text, not its name.
            (Model::Power, Durability::Ordered) => whole || now.is_none() && !crash.journal,
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
    // Without a journal: create, write, flush, second name, rename, flush the directory, remove the name.
    for (mistake, sabotage) in [
        ("the old file gets no second name", Sabotage::Drop(3)),
        ("it gets its second name after the rename", Sabotage::Swap(3)),
        ("its second name is removed before the directory is flushed", Sabotage::Swap(5)),
    ] {
        let (level, check) = (Durability::Durable, promise(Durability::Durable));
        let seen = explore_sabotaged_without_journal(with_old, operation(level), check, sabotage);
        table::caught("atomic::replace, without a journal", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_leaves_the_old_file_and_no_litter() {
    let mut points = 0;
    for durability in [Durability::ProcessSafe, Durability::Ordered, Durability::Durable] {
        let write = |host: &FaultHost| replace(host, &0, NAME, NEW, &Options::new(durability));
        points += every_call(with_old, write, |host, result, fault| {
            let at = format!("{durability:?}, {fault:?}: {result:?}");
            let files = host.tree().into_keys().filter(|path| !is_second_name(path));
            assert_eq!(files.collect::<Vec<_>>(), [NAME], "{at}: no temp file is left");
            assert_eq!(result.is_ok(), fault.is_made_good(), "{at}");
            // The flush of the directory comes after the rename.
            let done = result.is_ok() || fault.is_of_a_directory_flush();
            assert_eq!(content(host).as_deref(), Some(if done { NEW } else { OLD }), "{at}");
            if let Err(e) = result {
                assert!(e.to_string().contains(NAME), "{at}: the error names the file");
            }
        });
    }
    assert!(points >= 80, "{points} points");
}

// RS-ATOM-14, RS-ATOM-09.
#[test]
fn every_failing_effect_of_a_second_name_leaves_the_replacement_as_it_is_without() {
    const ERRNOS: [i32; 9] = [28, 5, 13, 1, 16, 24, 4, 31, 95];
    // create, write, flush, second name, rename, flush the directory, remove the second name.
    const SECOND: usize = 3;
    const RENAME: usize = 4;
    const FLUSH: usize = 5;
    const REMOVE: usize = 6;
    let without_journal = || {
        let host = FaultHost::new().without_journal();
        with_old(&host);
        host.begin();
        host
    };
    let write = |host: &FaultHost| {
        let options = Options::new(Durability::Durable);
        replace(host, &0, NAME, NEW, &options)
    };
    let host = without_journal();
    assert!(!write(&host).expect("nothing fails").left_over);
    assert_eq!((host.calls(), host.tree().len()), (REMOVE + 1, 1), "{:?}", host.tree());
    for n in 0..=REMOVE {
        for errno in ERRNOS {
            let host = without_journal();
            host.fail_at(n, Injected::Errno(errno));
            let result = write(&host);
            let at = format!("effect {n}, errno {errno}: {result:?}");
            let mut left: Vec<_> = host.tree().into_iter().filter(|(n, _)| n != NAME).collect();
            let told = result.as_ref().is_ok_and(|written| written.left_over);
            assert_eq!(told, n == REMOVE, "{at}: success tells what it left");
            if n == FLUSH || n == REMOVE {
                let (name, old) = left.pop().expect("the second name stays");
                let temp = TempName::parse(&name).expect("litter of a known form");
                assert!(temp.target.is("status.json.old") && !temp.target.is(NAME), "{at}: {name}");
                assert_eq!(old.as_deref(), Some(OLD), "{at}");
            }
            assert!(left.is_empty(), "{at}: {left:?}");
            // An interrupted write is tried again.
            let interrupted = n == 1 && errno == 4;
            assert_eq!(result.is_ok(), n == SECOND || n == REMOVE || interrupted, "{at}");
            let new = result.is_ok() || n == FLUSH;
            assert_eq!(content(&host).as_deref(), Some(if new { NEW } else { OLD }), "{at}");
            if let Err(e) = result {
                assert_eq!(e.source.raw_os_error(), Some(errno), "{at}: the first error");
                assert_eq!(e.step == Step::FlushDirectory, n == FLUSH, "{at}");
                assert_eq!(e.step == Step::Rename, n == RENAME, "{at}");
            }
        }
    }
}

// RS-ATOM-14, RS-ATOM-09.
#[test]
fn a_failed_removal_of_a_second_name_does_not_hide_why_the_rename_failed() {
    let host = FaultHost::new().without_journal();
    with_old(&host);
    host.begin();
    // The rename, then the removal of the temp file goes well and that of the second name does not.
    host.fail_at(4, Injected::Errno(5));
    host.fail_at(6, Injected::Errno(13));
    let options = Options::new(Durability::Durable).retry(RetryPolicy::never());
    let e = replace(&host, &0, NAME, NEW, &options).expect_err("it cannot be renamed");
    assert_eq!((e.step, e.source.raw_os_error()), (Step::Rename, Some(5)));
    assert_eq!(e.cleanup.as_ref().and_then(std::io::Error::raw_os_error), Some(13));
    assert!(e.to_string().contains("left over"), "{e}");
    assert_eq!(content(&host).as_deref(), Some(OLD));
}

// RS-ATOM-14.
#[test]
fn a_second_name_is_made_only_where_it_matters() {
    let calls = |host: FaultHost, old: bool, durability, target| {
        if old {
            with_old(&host);
        }
        host.begin();
        replace(&host, &0, NAME, NEW, &Options::new(durability).target(target)).expect("written");
        assert_eq!(host.tree().len(), 1, "nothing is left: {:?}", host.tree());
        host.calls()
    };
    let without = || FaultHost::new().without_journal();
    let durable = Durability::Durable;
    assert_eq!(calls(without(), true, durable, Target::Unknown), 7);
    assert_eq!(calls(without(), true, durable, Target::Known(0o600)), 7);
    assert_eq!(calls(without(), false, durable, Target::Unknown), 5, "no old file");
    assert_eq!(calls(without(), false, durable, Target::New), 5, "no old file");
    assert_eq!(calls(without(), true, Durability::Ordered, Target::Unknown), 4, "not flushed");
    assert_eq!(calls(FaultHost::new(), true, durable, Target::Unknown), 5, "renames in one step");
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
