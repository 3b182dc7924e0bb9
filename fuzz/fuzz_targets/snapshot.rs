//! Any tree: every directory gets one report, nothing panics, nothing changes.
//!
//! Input: a list of entries, each two bytes of choices (directory and name from the protocol's
//! names), one byte of kind, two bytes of length, then the content. The tree is made in a fresh
//! directory, in memory where the system has such a place.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use runstore::inspect::Inspection;
use runstore::protocol::evidence::Times;
use runstore::store::{Depth, Opened, RealHost, Store};

const RUNS: &str = "async-subagent-runs";

const DIRECTORIES: [&str; 20] = [
    "",
    RUNS,
    "async-subagent-runs/run-1",
    "async-subagent-runs/run-2",
    "async-subagent-runs/run-1/control",
    "async-subagent-runs/run-1/control/stop-requests",
    "async-subagent-runs/.active-runs",
    "async-subagent-runs/.active-runs/tool-calls",
    "async-subagent-runs/.terminal-runs",
    "async-subagent-runs/.terminal-runs/s1",
    "async-subagent-runs-77",
    "async-subagent-runs-77/run-1",
    "async-subagent-results",
    "async-subagent-results/result-pending/s1",
    "async-subagent-results/completion-replay",
    "nested-subagent-runs/run-1",
    "nested-subagent-runs/run-1/run-3",
    "session-leases/aa",
    "session-active-async-capacity/p",
    "session-active-async-capacity/p/slot-0",
];

const NAMES: [&str; 28] = [
    "status.json",
    "process-terminal.json",
    "process-terminal-candidate.json",
    "events.jsonl",
    "runner-startup.json",
    "runner-startup-ack.json",
    "runner-startup-confirm.json",
    "runner-startup-proceed.json",
    "runner.stderr.log",
    "output-0.log",
    "workflow-result.json",
    "owner.json",
    "run-1.json",
    "run-1",
    "run-2",
    "run-3",
    "run-4",
    "control",
    "append-requests",
    "stop.json",
    ".status.json.7.1790000000000.ab12cd.tmp",
    "0001790000000000-run-1.json",
    "slot-0",
    "slot-0.claim",
    "async-cfg-run-1.json",
    "result-pending",
    "1790000000000-aaaa.json",
    "s1",
];

fuzz_target!(|data: &[u8]| {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("runstore-fuzz").tempdir_in(base);
    let dir = dir.expect("a directory can be made");
    let top = dir.path().join("store");
    fs::create_dir_all(top.join(RUNS)).expect("a directory can be made");
    build(&top, data);
    let before = picture(&top);
    for path in [top.clone(), top.join(RUNS), top.join(RUNS).join("run-1")] {
        look(&path);
    }
    assert_eq!(before, picture(&top), "looking changes nothing");
});

/// Makes what the input asks for; what cannot be made is left out.
fn build(top: &Path, mut data: &[u8]) {
    for _ in 0..64 {
        let Some((&[place, name, kind, high, low], rest)) = data.split_first_chunk::<5>() else {
            return;
        };
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        data = rest;
        let dir = top.join(DIRECTORIES[usize::from(place) % DIRECTORIES.len()]);
        let _ = fs::create_dir_all(&dir);
        // A name of any bytes, now and then.
        let path = if name == 0xff {
            let raw: Vec<u8> = content.iter().copied().filter(|b| ![0, b'/'].contains(b)).collect();
            dir.join(std::ffi::OsStr::from_bytes(&raw[..raw.len().min(255)]))
        } else {
            dir.join(NAMES[usize::from(name) % NAMES.len()])
        };
        if !path.starts_with(top) || path == *top || path.file_name().is_none() {
            continue;
        }
        make(&path, kind, content);
    }
}

fn make(path: &Path, kind: u8, content: &[u8]) {
    match kind % 16 {
        0 => drop(fs::create_dir(path)),
        1 => drop(symlink(std::ffi::OsStr::from_bytes(content), path)),
        2 => drop(symlink("/etc/passwd", path)),
        3 => {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let kind = rustix::fs::FileType::Fifo;
            let _ = rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0);
        }
        4 => {
            let socket = rustix::fs::FileType::Socket;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let _ = rustix::fs::mknodat(rustix::fs::CWD, path, socket, mode, 0);
        }
        5 => {
            // Long, but with nothing in it.
            if let Ok(file) = fs::File::create_new(path) {
                let _ = file.set_len(u64::from(content.first().copied().unwrap_or(1)) << 24);
            }
        }
        6 => {
            if !path.exists() && fs::write(path, content).is_ok() {
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o666));
            }
        }
        _ => {
            let is_new = fs::symlink_metadata(path).is_err();
            if is_new {
                let _ = fs::write(path, content);
            }
        }
    }
}

fn look(path: &Path) {
    let host = RealHost::new();
    let now_ms = 1_790_000_000_000;
    let Ok(opened) = Store::open(&host, path, now_ms, Times::default()) else { return };
    match opened {
        Opened::Run(store, root, name) => {
            for depth in [Depth::Full, Depth::Row] {
                let _ = Inspection::new(&store, depth).one(root, &name, None);
            }
        }
        Opened::Store(store) => {
            let mut words = Vec::new();
            for depth in [Depth::Full, Depth::Row] {
                let mut inspection = Inspection::new(&store, depth);
                let mut reports = BTreeMap::new();
                let mut problems = Vec::new();
                inspection.each(
                    &mut |report| {
                        let again = reports.insert(report.path.clone(), report.verdict);
                        assert!(again.is_none(), "two reports of {}", report.path);
                        ControlFlow::Continue(())
                    },
                    &mut problems,
                );
                let expected: Vec<_> =
                    store.runs_roots.iter().flat_map(|r| runs_in(&r.path)).collect();
                assert_eq!(reports.len(), expected.len(), "one report per directory");
                let _ = (inspection.slots(None), inspection.orphan_markers());
                words.push(reports);
            }
            // Of a proven end with a long log a row reads less.
            if !has_long_log(path) {
                assert_eq!(words[0], words[1], "a row and a report have the same verdict");
            }
            store.each_result(&mut |_| ControlFlow::Continue(()));
        }
    }
}

/// Whether anything below is longer than what a row reads of a log.
fn has_long_log(top: &Path) -> bool {
    const ROW_BYTES: u64 = 16 << 10;
    picture(top)
        .values()
        .any(|(mode, bytes, ..)| mode & 0o170_000 == 0o100_000 && *bytes > ROW_BYTES)
}

/// What stands in a runs root in the place of a run.
fn runs_in(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).expect("the root was opened").flatten();
    let wanted = entries.filter(|entry| {
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        !plain && !entry.file_name().as_bytes().starts_with(b".")
    });
    wanted.map(|entry| entry.path()).collect()
}

/// What a reader must leave alone, of every entry.
fn picture(top: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64, u64)> {
    let mut out = BTreeMap::new();
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).expect("an entry can be looked at");
        if meta.is_dir() {
            open.extend(
                fs::read_dir(&path).expect("a directory of ours").flatten().map(|e| e.path()),
            );
        }
        let seen = (meta.mode(), meta.len(), meta.mtime_nsec(), meta.ctime_nsec(), meta.ino());
        out.insert(path, seen);
    }
    out
}
