//! Things that stand in the place of files and directories.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use testkit::process::{is_root, now_ms, skip};
use testkit::records;

use super::Hostile;
use crate::ask::{self, utf8};
use crate::read_only::make_fifo;

/// Files of a run directory that are evidence: nothing else than a plain file is safe in their place.
const EVIDENCE: [&str; 8] = [
    "status.json",
    "process-terminal.json",
    "process-terminal-candidate.json",
    "runner-startup.json",
    "runner-startup-ack.json",
    "runner-startup-confirm.json",
    "runner-startup-proceed.json",
    "events.jsonl",
];

/// Files that are shown or counted.
const SHOWN: [&str; 6] = [
    "runner.stderr.log",
    "runner.stdout.log",
    "output-0.log",
    "workflow-result.json",
    "recovery-descriptor.json",
    ".status.json.12.1790000000000.abcdef.tmp",
];

/// Puts something at a path that is no plain file.
type Put<'a> = &'a dyn Fn(&Path);

fn things() -> Vec<(&'static str, Put<'static>)> {
    let mut things: Vec<(&str, Put<'_>)> = vec![
        ("a named pipe", &|path| make_fifo(path)),
        ("a socket", &|path| bind(path)),
        ("a directory", &|path| fs::create_dir(path).expect("made")),
        ("a link to a file", &|path| symlink("/etc/hostname", path).expect("made")),
        ("a link to a whole status", &|path| symlink("../../../outside.json", path).expect("made")),
        ("a link to nothing", &|path| symlink("nowhere", path).expect("made")),
        ("a link to itself", &|path| {
            symlink(path.file_name().expect("named"), path).expect("made")
        }),
        ("a link to a terminal", &|path| symlink("/dev/tty", path).expect("made")),
    ];
    if is_root() {
        things.push(("a device that never ends", &|path| make_device(path, 1, 5)));
        things.push(("a block device", &|path| make_device(path, 250, 77)));
    } else {
        skip("devices in the place of files", "only root can make them");
    }
    things
}

/// A socket file. Its path may be longer than an address can be, so it is made nearby and moved.
fn bind(path: &Path) {
    let dir = tempfile::tempdir_in(path.ancestors().nth(4).expect("deep")).expect("a directory");
    let near = dir.path().join("s");
    UnixListener::bind(&near).expect("a short path");
    fs::rename(near, path).expect("the same file system");
}

fn make_device(path: &Path, major: u32, minor: u32) {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let kind = if major == 1 { FileType::CharacterDevice } else { FileType::BlockDevice };
    let made = mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), makedev(major, minor));
    if let Err(e) = made {
        skip("a device in the place of a file", &e.to_string());
        make_fifo(path);
    }
}

/// A store in which `file` of a finished run is each of the things.
fn store_with(file: &str) -> (Hostile, Vec<&'static str>) {
    let hostile = Hostile::new();
    let outside = records::complete("outside", now_ms()).to_string();
    fs::write(hostile.store.root().join("outside.json"), outside).expect("written");
    let mut names = Vec::new();
    for (i, (name, put)) in things().into_iter().enumerate() {
        let run = hostile.store.run(&format!("bad-{i}"));
        records::finish(&run, now_ms());
        let path = run.path().join(file);
        if path.exists() {
            fs::remove_file(&path).expect("the tree is ours");
        }
        put(&path);
        names.push(name);
    }
    (hostile, names)
}

#[test]
fn whatever_stands_in_the_place_of_evidence_is_unsafe() {
    for file in EVIDENCE {
        let (hostile, names) = store_with(file);
        let answer = hostile.assert_answered(file);
        for (i, name) in names.iter().enumerate() {
            let id = format!("bad-{i}");
            assert_eq!(answer.verdict(&id), "unsafe", "{file} is {name}: {:#}", answer.one(&id));
        }
        assert_eq!(answer.code, 8, "{file}: unsafe records were met");
    }
}

#[test]
fn whatever_stands_in_the_place_of_a_log_is_not_followed() {
    for file in SHOWN {
        let (hostile, names) = store_with(file);
        let answer = hostile.assert_answered(file);
        for (i, name) in names.iter().enumerate() {
            let verdict = answer.verdict(&format!("bad-{i}"));
            let fine = matches!(verdict, "finished" | "unsafe");
            assert!(fine, "{file} is {name}: {verdict}");
        }
    }
}

#[test]
fn whatever_stands_in_the_place_of_a_directory_is_not_entered() {
    for folder in ["control", "append-requests"] {
        let (hostile, names) = store_with(folder);
        let answer = hostile.assert_answered(folder);
        for (i, name) in names.iter().enumerate() {
            let expected = if *name == "a directory" { "finished" } else { "unsafe" };
            assert_eq!(answer.verdict(&format!("bad-{i}")), expected, "{folder} is {name}");
        }
    }
    let hostile = Hostile::new();
    for (i, (_, put)) in things().into_iter().enumerate() {
        put(&hostile.store.root().join(format!("async-subagent-runs/bad-{i}")));
    }
    let answer = hostile.assert_answered("things in the place of run directories");
    for (i, (name, _)) in things().iter().enumerate() {
        let expected = if *name == "a directory" { "starting" } else { "unsafe" };
        assert_eq!(answer.verdict(&format!("bad-{i}")), expected, "a run directory is {name}");
        let path = hostile.store.root().join(format!("async-subagent-runs/bad-{i}"));
        assert_eq!(
            ask::inspect(&path).verdict(&format!("bad-{i}")),
            expected,
            "asked alone: {name}"
        );
    }
}

#[test]
fn whatever_stands_in_the_place_of_shared_records_hides_no_run() {
    let places = [
        "async-subagent-results",
        "async-subagent-results/healthy.json",
        "async-subagent-results/result-pending",
        "async-subagent-results/result-pending/session-1",
        "async-subagent-results/completion-replay",
        "session-leases",
        "session-leases/lease",
        "session-leases/lease/owner.json",
        "session-active-async-capacity",
        "session-active-async-capacity/pool",
        "session-active-async-capacity/pool/slot-0",
        "session-active-async-capacity/pool/slot-0/owner.json",
        "nested-subagent-runs",
        "nested-subagent-runs/healthy",
        "nested-subagent-runs/healthy/n1",
        "async-subagent-runs/.active-runs",
        "async-subagent-runs/.active-runs/healthy",
        "async-subagent-runs/.active-runs/tool-calls",
        "async-subagent-runs/.terminal-runs",
        "async-subagent-runs/.terminal-runs/session-1",
        "async-subagent-runs/.terminal-runs/session-1/0000000000000005-healthy.json",
        "async-cfg-healthy.json",
        "nested-subagent-events",
    ];
    for place in places {
        for (name, put) in things() {
            let hostile = Hostile::new();
            let path = hostile.store.root().join(place);
            hostile.store.folder(place.rsplit_once('/').map_or("", |(parent, _)| parent));
            put(&path);
            let root = utf8(hostile.store.root());
            let outcome = ask::run(&["inspect", root, "--format", "json"]);
            let answer = ask::Answer::of(&outcome);
            let verdict = answer.verdict("healthy");
            let fine = matches!(verdict, "finished" | "unsafe" | "conflict");
            assert!(fine, "{place} is {name}: {verdict}");
            assert!(matches!(outcome.code, 0 | 1 | 5 | 8), "{place} is {name}: {}", outcome.code);
            ask::run(&["list", root]);
        }
    }
}

#[test]
fn a_linked_runs_root_is_not_entered_and_a_linked_store_is_the_callers_choice() {
    let hostile = Hostile::new();
    let other = Hostile::new();
    records::finish(&other.store.run("theirs"), now_ms());
    let theirs = other.store.root().join("async-subagent-runs");
    symlink(&theirs, hostile.store.root().join("async-subagent-runs-12345")).expect("made");
    symlink(&theirs, hostile.store.folder("nested-subagent-runs").join("n1")).expect("made");
    let answer = hostile.assert_answered("a linked fallback root");
    assert!(answer.runs().iter().all(|run| run["runId"] != "theirs"), "a link is not entered");
    assert_eq!(answer.code, 8, "an unsafe record was met: {:#}", answer.json["problems"]);

    let empty = testkit::Store::new();
    fs::remove_dir(empty.root().join("async-subagent-runs")).expect("empty");
    symlink(&theirs, empty.root().join("async-subagent-runs")).expect("made");
    let answer = ask::inspect(empty.root());
    assert_eq!((answer.runs().len(), answer.code), (0, 8), "the runs root itself is a link");

    let link = empty.beside("links").join("store");
    symlink(other.store.root(), &link).expect("made");
    let answer = ask::inspect(&link);
    assert_eq!(answer.verdict("theirs"), "finished", "a path on the command line is followed");
}

#[test]
fn long_names_and_names_that_are_no_text_get_their_report() {
    let hostile = Hostile::new();
    let runs = hostile.store.root().join("async-subagent-runs");
    let long = "n".repeat(255);
    records::finish(&hostile.store.run(&long), now_ms());
    fs::create_dir(runs.join(OsStr::from_bytes(b"not-\xff\xfe-utf8"))).expect("made");
    fs::create_dir(runs.join(OsStr::from_bytes(b"\xc3("))).expect("made");
    for name in ["CON", " ", "a b", "-rf", "--help", "%2e%2e", "%", "é", "e\u{301}", "…", "\\", "~"]
    {
        records::finish(&hostile.store.run(name), now_ms());
    }
    let answer = hostile.assert_answered("odd names");
    assert_eq!(answer.verdict(&long), "finished", "a name may have 255 bytes");
    let alone = ask::inspect(&runs.join(OsStr::from_bytes("-rf".as_bytes())));
    assert_eq!(alone.verdict("-rf"), "finished", "a name is no option");
    let root = utf8(hostile.store.root());
    let outcome = ask::run(&["inspect", &long, "--root", root, "--format", "json"]);
    assert_eq!(ask::Answer::of(&outcome).verdict(&long), "finished", "found by its whole name");
}
