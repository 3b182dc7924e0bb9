//! Directories: made, found, refused, and made again while the old one is on its way out.

use std::fs::OpenOptions;
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;

use runstore::store::RealHost;
use runstore::store::atomic::Step;
use runstore::store::directory::{
    Made, create, create_durable, create_path, open_path, open_root, remove_if_empty,
};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::{Attempts, LADDER_MS, RetryPolicy};

use crate::host::Hooked;
use crate::names;

/// `FILE_FLAG_BACKUP_SEMANTICS`: without it no directory can be opened.
const DIRECTORY: u32 = 0x0200_0000;

fn retry() -> RetryPolicy {
    RetryPolicy::default()
}

#[test]
fn a_path_of_directories_is_made_once_and_found_again() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let root = open_root(&host, top.path()).expect("our own");
    let path = ["result-index", "sessions", "S"];
    create_path(&host, &root, &path, &retry()).expect("made");
    assert!(open_path(&host, &root, &path).expect("looked").is_some());
    let (_, made) = create_durable(&host, &root, "result-index", &retry()).expect("opened");
    assert_eq!(made, Made::Existed);
    let (_, made) = create_durable(&host, &root, "other", &retry()).expect("made");
    assert_eq!(made, Made::Created(Attempts { made: 1, waited_ms: 0 }));
    assert!(!remove_if_empty(&host, &root, "result-index").expect("looked"), "it is not empty");
    assert!(remove_if_empty(&host, &root, "other").expect("removed"));
    assert!(!remove_if_empty(&host, &root, "other").expect("looked"), "it is not there");
}

#[test]
fn a_file_in_the_place_of_a_directory_is_refused_at_once() {
    let top = tempfile::tempdir().expect("room");
    std::fs::write(top.path().join("d"), "").expect("room");
    let host = RealHost::new();
    let root = host.open_dir(top.path()).expect("there");
    let e = create(&host, &root, "d", &retry()).expect_err("it is a file");
    assert_eq!((e.step, e.attempts.waited_ms), (Step::CreateDirectory, 0));
    assert!(e.source.to_string().contains("a plain file stands in its place"), "{}", e.source);
}

#[test]
fn each_code_of_windows_for_a_held_name_is_waited_for_and_no_other() {
    let top = tempfile::tempdir().expect("room");
    // Access denied, sharing violation, lock violation, busy.
    for code in [5, 32, 33, 170] {
        let host = Hooked::refusing(code, 2);
        let root = host.open_dir(top.path()).expect("there");
        let name = format!("d-{code}");
        let (_, made) = create(&host, &root, &name, &retry()).expect("let go in time");
        let waited_ms = LADDER_MS[..2].iter().sum();
        assert_eq!(made, Made::Created(Attempts { made: 3, waited_ms }), "code {code}");
        assert_eq!(host.waits_ms(), LADDER_MS[..2]);
        let host = Hooked::refusing(code, 10);
        let e = create(&host, &root, "never", &retry()).expect_err("refused all the time");
        assert_eq!((e.attempts.made, e.attempts.waited_ms), (10, 7885), "code {code}");
    }
    // Invalid parameter, disk full, a bad path, a device that failed.
    for code in [87, 112, 161, 31] {
        let host = Hooked::refusing(code, 1);
        let root = host.open_dir(top.path()).expect("there");
        let e = create(&host, &root, "never", &retry()).expect_err("refused");
        assert_eq!((e.step, e.attempts.made), (Step::CreateDirectory, 1), "code {code}");
    }
    assert_eq!(names(top.path()), ["d-170", "d-32", "d-33", "d-5"]);
}

#[test]
fn a_name_that_is_on_its_way_out_is_waited_for() {
    const ACCESS_DENIED: i32 = 5;
    let top = tempfile::tempdir().expect("room");
    let path = top.path().join("d");
    // Removed while somebody has it open, a directory may stay until that one lets go. Meanwhile its
    // name can neither be used nor made, and the system says "access denied".
    std::fs::create_dir(&path).expect("room");
    let holder =
        OpenOptions::new().read(true).custom_flags(DIRECTORY).open(&path).expect("a handle");
    std::fs::remove_dir(&path).expect("it is empty, and everything is shared");
    let expected = match std::fs::create_dir(&path) {
        Ok(()) => {
            println!("the system frees the name of a removed directory at once");
            std::fs::remove_dir(&path).expect("our own");
            Attempts { made: 1, waited_ms: 0 }
        }
        Err(e) if e.raw_os_error() == Some(ACCESS_DENIED) => {
            println!("the system keeps the name of a removed directory that is open");
            Attempts { made: 3, waited_ms: LADDER_MS[..2].iter().sum() }
        }
        Err(e) => {
            println!("SKIP: a removed directory that is open is still there, as under Wine: {e}");
            return;
        }
    };
    let host = Hooked::at_wait(2, move || drop(holder));
    let root = host.open_dir(top.path()).expect("there");
    let (_, made) = create(&host, &root, "d", &retry()).expect("let go in time");
    assert_eq!(made, Made::Created(expected));
    assert_eq!(names(top.path()), ["d"]);
}

#[test]
fn a_directory_takes_no_place_that_is_taken_and_the_error_is_not_access_denied() {
    let top = tempfile::tempdir().expect("room");
    for name in ["from", "full", "from-2"] {
        std::fs::create_dir(top.path().join(name)).expect("room");
        std::fs::write(top.path().join(name).join("owner.json"), name).expect("room");
    }
    std::fs::write(top.path().join("file"), "").expect("room");
    let host = RealHost::new();
    let root = host.open_dir(top.path()).expect("there");
    let rename = |from: &str, to: &str| host.rename(&root, from.as_ref(), &root, to.as_ref());
    let rename_new =
        |from: &str, to: &str| host.rename_new(&root, from.as_ref(), &root, to.as_ref());
    let kind = |done: io::Result<()>| done.expect_err("it is taken").kind();
    assert_eq!(kind(rename("from", "full")), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(rename_new("from", "full")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(rename_new("from", "file")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(rename_new("file", "full")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(rename("nothing", "x")), io::ErrorKind::NotFound);
    assert_eq!(kind(rename_new("nothing", "x")), io::ErrorKind::NotFound);
    rename_new("from", "to").expect("the name is free");
    rename("from-2", "to-2").expect("the name is free");
    assert_eq!(names(top.path()), ["file", "full", "to", "to-2"]);
    assert_eq!(crate::text(&top.path().join("to/owner.json")), "from");
}
