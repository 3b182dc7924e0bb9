//! Directories: private, reachable after a power cut, and pruned only when empty.

use runstore::store::atomic::{Durability, Options, Step, replace};
use runstore::store::directory::{
    Made, create, create_durable, create_new, create_path, create_root, open_path, remove_if_empty,
};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::RetryPolicy;
use testkit::fault::{Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged};

use crate::table;

const PATH: [&str; 3] = ["result-index", "sessions", "S"];
const FILE: &str = "r.json";

fn never() -> RetryPolicy {
    RetryPolicy::never()
}

fn a_file_in_new_directories(host: &FaultHost) {
    let dir = create_path(host, &0, &PATH, &never()).expect("nothing fails here");
    let options = Options::new(Durability::Durable);
    replace(host, &dir, FILE, b"{}", &options).expect("nothing fails here");
}

/// An acknowledged durable file in new directories is reached through all of them.
fn the_file_is_reached(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let dir = open_path(host, &0, &PATH).map_err(|e| e.to_string())?;
    let reached = dir.is_some_and(|dir| host.stat_at(&dir, FILE.as_ref()).is_ok());
    if reached || !crash.acknowledged { Ok(()) } else { Err("the file is not reached".to_owned()) }
}

#[test]
pub(crate) fn a_durable_file_in_new_directories_is_reached_after_every_crash() {
    let seen = explore(|_| {}, a_file_in_new_directories, the_file_is_reached);
    table::seen("directory::create_path and atomic::replace", &seen);
    assert_eq!(seen.steps, 11, "make and flush three times, then the five steps of a replace");
    assert!(seen.states >= 39, "{} states", seen.states);
    let root = "/new/store";
    let in_new_root = |host: &FaultHost| {
        let dir = create_root(host, root.as_ref()).expect("nothing fails here");
        let options = Options::new(Durability::Durable);
        replace(host, &dir, FILE, b"{}", &options).expect("nothing fails here");
    };
    let is_reached = |host: &FaultHost, crash: &Crash| {
        let reached = host.has(&format!("{root}/{FILE}"));
        if reached || !crash.acknowledged {
            Ok(())
        } else {
            Err("the file is not reached".to_owned())
        }
    };
    let seen = explore(|_| {}, in_new_root, is_reached);
    table::seen("directory::create_root and atomic::replace", &seen);
    assert_eq!(seen.steps, 9, "make and flush twice, then the five steps of a replace");
}

#[test]
fn a_root_is_made_once_and_what_stands_in_its_way_is_named() {
    let host = FaultHost::new();
    create_root(&host, "/a/b".as_ref()).expect("made");
    host.begin();
    create_root(&host, "/a/b".as_ref()).expect("there");
    assert_eq!(host.calls(), 0, "nothing is made twice");
    host.put("/a/file", "");
    let error = create_root(&host, "/a/file/store".as_ref()).expect_err("no directory");
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory, "{error}");
}

#[test]
pub(crate) fn a_single_directory_is_there_once_acknowledged_and_gone_once_removed() {
    let there = |host: &FaultHost| host.stat_at(&0, "d".as_ref()).is_ok();
    let made = |host: &FaultHost| {
        create_durable(host, &0, "d", &never()).expect("nothing fails here");
    };
    let kept = |host: &FaultHost, crash: &Crash| {
        if there(host) || !crash.acknowledged { Ok(()) } else { Err("it is lost".to_owned()) }
    };
    let seen = explore(|_| {}, made, kept);
    table::seen("directory::create_durable", &seen);
    let seen = explore_sabotaged(|_| {}, made, kept, Sabotage::Drop(1));
    table::caught("directory::create_durable", "the parent is never flushed", &seen);
    // Without a flush only the death of a process is promised anything.
    let of_process = |host: &FaultHost, crash: &Crash| {
        let lost = crash.acknowledged && crash.model == Model::Process && !there(host);
        if lost { Err("it is lost".to_owned()) } else { Ok(()) }
    };
    let plain = |host: &FaultHost| {
        create(host, &0, "d", &never()).expect("nothing fails here");
    };
    table::seen("directory::create", &explore(|_| {}, plain, of_process));
    let new = |host: &FaultHost| {
        create_new(host, &0, "d", &never()).expect("nothing fails here");
    };
    table::seen("directory::create_new", &explore(|_| {}, new, of_process));
    // A removal that a power cut undoes leaves an empty directory, which is what was there.
    let removed = |host: &FaultHost| {
        assert!(remove_if_empty(host, &0, "d").expect("nothing fails here"), "it is empty");
    };
    let gone = |host: &FaultHost, crash: &Crash| {
        let left = crash.acknowledged && crash.model == Model::Process && there(host);
        if left { Err("it is left".to_owned()) } else { Ok(()) }
    };
    table::seen("directory::remove_if_empty", &explore(made, removed, gone));
}

#[test]
pub(crate) fn a_directory_that_is_not_flushed_is_caught() {
    for (mistake, drop) in [("the first parent", 1), ("the second parent", 3), ("the third", 5)] {
        let seen = explore_sabotaged(
            |_| {},
            a_file_in_new_directories,
            the_file_is_reached,
            Sabotage::Drop(drop),
        );
        table::caught("directory::create_path", &format!("{mistake} is never flushed"), &seen);
        let power = |why: &String| why.contains(&format!("{:?}", Model::Power));
        assert!(seen.violations.iter().all(power), "only a power cut can show it");
    }
}

#[test]
fn a_directory_is_private_whatever_the_umask() {
    for umask in [0, 0o022, 0o077, 0o777] {
        let host = FaultHost::new();
        host.set_umask(umask);
        create(&host, &0, "d", &never()).expect("made");
        assert_eq!(host.stat_at(&0, "d".as_ref()).expect("there").mode, 0o700, "{umask:o}");
    }
}

#[test]
fn a_directory_that_is_there_keeps_its_mode_and_costs_no_flush() {
    let host = FaultHost::new();
    host.set_umask(0);
    host.create_dir(&0, "d".as_ref(), 0o755).expect("room");
    host.begin();
    let (_, made) = create_durable(&host, &0, "d", &never()).expect("opened");
    assert_eq!(made, Made::Existed);
    assert!(host.effects().is_empty(), "{:?}", host.effects());
    assert_eq!(host.stat_at(&0, "d".as_ref()).expect("there").mode, 0o755);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_refused_by_name() {
    let host = FaultHost::new();
    host.create(&0, "d".as_ref(), 0o600).expect("room");
    let e = create(&host, &0, "d", &never()).expect_err("it is a file");
    assert_eq!((e.step, e.name.as_str()), (Step::CreateDirectory, "d"));
    assert!(e.source.to_string().contains("a plain file stands in its place"), "{}", e.source);
}

#[test]
fn a_directory_is_tried_again_where_another_program_may_hold_it() {
    const EACCES: i32 = 13;
    let host = FaultHost::new();
    host.fail_at(0, Injected::Errno(EACCES));
    host.fail_at(1, Injected::Errno(EACCES));
    create(&host, &0, "d", &RetryPolicy::always()).expect("the third attempt succeeds");
    let host = FaultHost::new();
    host.fail_at(0, Injected::Errno(EACCES));
    let e = create(&host, &0, "d", &never()).expect_err("one attempt");
    assert_eq!(e.attempts.made, 1);
}

#[test]
fn every_failing_effect_names_its_directory_and_a_second_call_completes() {
    for n in 0..6 {
        let host = FaultHost::new();
        host.fail_at(n, Injected::Errno(28));
        let e = create_path(&host, &0, &PATH, &never()).expect_err("the disk is full");
        assert_eq!(e.name, PATH[..=n / 2].join("/"), "effect {n}: {e}");
        assert_eq!(e.free_bytes, Some(0), "effect {n}: a full disk is told with its free bytes");
        create_path(&host, &0, &PATH, &never()).expect("completed");
    }
}

#[test]
fn only_an_empty_directory_is_removed() {
    let host = FaultHost::new();
    let (dir, _) = create(&host, &0, "d", &never()).expect("made");
    host.create(&dir, "x".as_ref(), 0o600).expect("room");
    assert!(!remove_if_empty(&host, &0, "d").expect("looked"), "it is not empty");
    host.unlink(&dir, "x".as_ref()).expect("there");
    assert!(remove_if_empty(&host, &0, "d").expect("removed"));
    assert!(!remove_if_empty(&host, &0, "d").expect("looked"), "it is not there");
}
