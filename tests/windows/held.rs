//! A file that others hold: the rename goes through, or is tried again, and the caller is told.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

use runstore::store::RealHost;
use runstore::store::atomic::{Durability, Options, Step, Target, replace};
use runstore::store::host::Host as _;
use runstore::store::retry::{LADDER_MS, RetryPolicy, is_transient};

use crate::host::Hooked;
use crate::{names, text};

const NAME: &str = "status.json";
/// `FILE_SHARE_READ` and `FILE_SHARE_WRITE`, without `FILE_SHARE_DELETE`.
const NO_DELETE: u32 = 3;

fn with_old() -> tempfile::TempDir {
    let top = tempfile::tempdir().expect("room");
    std::fs::write(top.path().join(NAME), "old").expect("room");
    top
}

/// Opens the file as a virus scanner or another run time does.
fn hold(top: &Path, share: u32) -> File {
    OpenOptions::new().read(true).share_mode(share).open(top.join(NAME)).expect("there")
}

fn options() -> Options {
    Options::new(Durability::Ordered)
}

#[test]
fn a_file_held_without_delete_sharing_is_replaced_once_it_is_let_go() {
    for share in [NO_DELETE, 0] {
        for wait in 1..=LADDER_MS.len() {
            let top = with_old();
            let holder = hold(top.path(), share);
            let host = Hooked::at_wait(wait, move || drop(holder));
            let dir = host.open_dir(top.path()).expect("there");
            let done = replace(&host, &dir, NAME, b"new", &options()).expect("let go in time");
            let waited_ms = LADDER_MS[..wait].iter().sum();
            let told = (done.rename.made as usize, done.rename.waited_ms);
            assert_eq!(told, (wait + 1, waited_ms), "share mode {share}");
            assert_eq!(host.waits_ms(), LADDER_MS[..wait], "the ladder, from its start");
            assert_eq!(text(&top.path().join(NAME)), "new");
            assert_eq!(names(top.path()), [NAME], "no temp file is left");
        }
    }
}

#[test]
fn a_reader_that_shares_everything_is_no_obstacle_or_is_waited_for() {
    let top = with_old();
    let mut reader = File::open(top.path().join(NAME)).expect("there");
    let (sender, kept) = mpsc::channel();
    let mut handed = reader.try_clone().expect("a second handle");
    let host = Hooked::at_wait(3, move || {
        // Both handles are gone when this has happened.
        let mut seen = String::new();
        reader.read_to_string(&mut seen).expect("the old text");
        drop(reader);
        sender.send(seen).expect("somebody listens");
    });
    let dir = host.open_dir(top.path()).expect("there");
    let at_once = {
        let never = options().retry(RetryPolicy::never());
        replace(&host, &dir, NAME, b"new", &never).is_ok()
    };
    if at_once {
        println!("the system renames over an open file");
        let mut seen = String::new();
        handed.read_to_string(&mut seen).expect("readable");
        assert_eq!(seen, "old", "who has the old file open keeps reading it");
    } else {
        println!("the system refuses to rename over an open file");
        drop(handed);
        let done = replace(&host, &dir, NAME, b"new", &options()).expect("let go in time");
        assert_eq!((done.rename.made, done.rename.waited_ms), (4, 85));
        assert_eq!(kept.recv().expect("it was let go"), "old");
    }
    assert_eq!(text(&top.path().join(NAME)), "new");
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn a_file_that_is_never_let_go_stays_and_the_error_says_what_to_do() {
    for share in [NO_DELETE, 0] {
        let top = with_old();
        let holder = hold(top.path(), share);
        let host = Hooked::at_wait(usize::MAX, || {});
        let dir = host.open_dir(top.path()).expect("there");
        let e = replace(&host, &dir, NAME, b"new", &options()).expect_err("it is held");
        assert_eq!((e.step, e.attempts.made, e.attempts.waited_ms), (Step::Rename, 10, 7885));
        assert_eq!(host.waits_ms(), LADDER_MS);
        assert!(is_transient(&e.source), "{}", e.source);
        let told = e.to_string();
        println!("{told}: {}", e.source);
        for part in [NAME, "10 attempts over 7885 ms", "another program", "try again"] {
            assert!(told.contains(part), "{part:?} is missing in: {told}");
        }
        drop(holder);
        assert_eq!(text(&top.path().join(NAME)), "old");
        assert_eq!(names(top.path()), [NAME], "no temp file is left");
    }
}

#[test]
fn a_budget_of_nothing_still_makes_ten_attempts() {
    let top = with_old();
    let holder = hold(top.path(), 0);
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let at_once = options().retry(RetryPolicy::default().within(0));
    let e = replace(&host, &dir, NAME, b"new", &at_once).expect_err("it is held");
    assert_eq!((e.attempts.made, e.attempts.waited_ms), (10, 0));
    drop(holder);
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn a_deadline_of_the_caller_ends_the_attempts() {
    let top = with_old();
    let holder = hold(top.path(), 0);
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let soon = RetryPolicy::default().until(host.now_ms() + 40);
    let e = replace(&host, &dir, NAME, b"new", &options().retry(soon)).expect_err("it is held");
    assert!(e.attempts.made < 10, "the ladder has not been climbed: {:?}", e.attempts);
    assert!(e.attempts.waited_ms <= 40, "nothing is waited past the deadline: {:?}", e.attempts);
    assert!(e.to_string().contains(NAME), "{e}");
    drop(holder);
    assert_eq!(text(&top.path().join(NAME)), "old");
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn somebody_who_lets_go_meanwhile_is_noticed_within_the_real_ladder() {
    let top = with_old();
    let holder = hold(top.path(), NO_DELETE);
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let (path, over) = (top.path(), &over);
        scope.spawn(move || {
            // The temp file is there when the replacement is under way.
            while names(path).len() < 2 && !over.load(SeqCst) {
                std::thread::yield_now();
            }
            drop(holder);
        });
        let host = RealHost::new();
        let dir = host.open_dir(path).expect("there");
        let done = replace(&host, &dir, NAME, b"new", &options());
        over.store(true, SeqCst);
        done
    });
    let done = done.expect("without being asked, the ladder is climbed on Windows");
    println!("{} attempts, {} ms", done.rename.made, done.rename.waited_ms);
    assert_eq!(text(&top.path().join(NAME)), "new");
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn a_new_name_does_not_wait_for_the_holder_of_the_file_that_has_it() {
    let top = with_old();
    let holder = hold(top.path(), 0);
    let host = Hooked::at_wait(usize::MAX, || {});
    let dir = host.open_dir(top.path()).expect("there");
    let e = replace(&host, &dir, NAME, b"new", &options().target(Target::New));
    let e = e.expect_err("it is there");
    assert_eq!((e.source.kind(), e.attempts.made), (std::io::ErrorKind::AlreadyExists, 1));
    drop(holder);
    assert_eq!(text(&top.path().join(NAME)), "old");
}
