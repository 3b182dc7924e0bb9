//! Looking changes nothing.
//!
//! Theory of operation. Two independent proofs. The first takes a picture of a tree (bytes, modes,
//! times of change, inodes, names), asks every reading verb in every form, and compares. The change
//! time of a file moves with anything that is done to it, so even a write of equal bytes would show.
//! The second reads the system calls of the program through `strace`: no call that could change,
//! lock, signal or start anything is made at all, whatever the tree holds.
//!
//! The access time is left out on purpose: reading may move it, and mount options decide that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::Store;
use testkit::peer_runs::Recording;
use testkit::process::{Live, now_ms, skip};
use testkit::program;
use testkit::records;
use testkit::tree;

use crate::ask::{self, utf8};

/// A slot of the store of everything.
const SLOT: &str = "session-active-async-capacity/pool/slot-0";

/// Every reading verb in every form, on one path.
fn questions(path: &Path) -> Vec<Vec<String>> {
    let path = utf8(path);
    let texts = [
        vec!["inspect", path],
        vec!["inspect", path, "--verbose", "--color", "always"],
        vec!["inspect", path, "--format", "json"],
        vec!["inspect", path, "--format", "jsonl", "--session", "session-1"],
        vec!["list", path],
        vec!["list", path, "--all"],
        vec!["list", path, "--all", "--format", "jsonl"],
        vec!["list", path, "--active", "--format", "json"],
        vec!["inspect", "r1", "--root", path],
        vec!["slots", path],
        vec!["leases", path, "--format", "json"],
        vec!["results", path, "--format", "jsonl"],
        vec!["check", path],
        vec!["check", path, "--strict", "--format", "json"],
        vec!["release", SLOT, "--root", path, "--dry-run"],
        vec!["prune", path, "--older-than", "0s"],
        vec!["roots"],
        vec!["explain", "orphaned"],
        vec!["spec", "RS-ROLE-04"],
    ];
    texts.map(|args| args.into_iter().map(str::to_owned).collect()).to_vec()
}

fn assert_unchanged_by_looking(name: &str, root: &Path) {
    let before = tree::snapshot(root).expect("the tree is ours");
    for question in questions(root) {
        let args: Vec<&str> = question.iter().map(String::as_str).collect();
        ask::run(&args);
    }
    let changes = tree::diff(&before, &tree::snapshot(root).expect("the tree is ours"));
    assert!(changes.is_empty(), "{name}: looking changes nothing: {changes:#?}");
}

#[test]
fn looking_at_recorded_stores_changes_nothing() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/peer-runs");
    let recordings = Recording::all(&top).expect("the recordings are part of the repository");
    let mut looked = 0;
    for recording in &recordings {
        let snapshots: BTreeSet<&str> =
            recording.expected().iter().filter_map(|e| e["snapshot"].as_str()).collect();
        // One snapshot of each recording is enough: what differs between them is what they record.
        let Some(snapshot) = snapshots.last() else { continue };
        let (_dir, root) = recording.fresh(snapshot).expect("the recording is whole");
        assert_unchanged_by_looking(&format!("{} {snapshot}", recording.name), &root);
        looked += 1;
    }
    assert!(looked >= 40, "the recordings of both harnesses are looked at: {looked}");
}

/// A store that has something of everything: healthy and broken runs, links, pipes, locks, litter.
fn everything() -> Store {
    let store = Store::new();
    records::finish(&store.run("finished"), now_ms());
    let broken = store.run("r1");
    broken.status(&records::running("r1", 999_999_999, now_ms() - 1000)).event(&json!({"ts": 1}));
    broken.file(".status.json.12.1790000000000.abc.tmp", "{}").file("runner.stderr.log", "oops\n");
    broken.file("output-0.log", "work\n").file("control/interrupt.json", "{}");
    broken.file("control/stop-requests/1.json", "{}").file("append-requests/1.json", "{}");
    broken.control("ack", "t").startup(&json!({"state": "ready", "token": "t", "pid": 1}));
    store.run("torn").file("status.json", "{\"runId\":");
    store.run("unsafe").link("status.json", "/etc/hostname");
    let pipe = store.run("pipe").folder("control").path().join("status.json");
    make_fifo(&pipe);
    std::os::unix::fs::symlink("/", store.root().join("async-subagent-runs/link")).expect("made");
    store.run("empty");
    store.nested_run("r1", "n1").status(&records::running("n1", 999_999_998, now_ms()));
    store.active_marker("r1").active_marker("gone").terminal_marker("session-1", "finished", 7);
    store.tool_call_alias("call-1", "r1").result("r1", &records::result("r1", 5));
    store.slot("pool", 0, &records::slot("r1", 5)).slot("pool", 1, &json!({}));
    store.lease("lease-1", &records::lease("r1", 999_999_999, "h", 5)).lease("bad", &json!(7));
    make_fifo(&store.folder("session-leases/pipe").join("owner.json"));
    store.file("async-cfg-r1.json", "{}");
    store.file("async-subagent-results/result-pending/session-1/x.json", "{");
    store
}

/// Makes a named pipe.
pub(crate) fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[test]
fn looking_at_a_hostile_store_changes_nothing() {
    let store = everything();
    assert_unchanged_by_looking("a store of everything", store.root());
    let run = store.root().join("async-subagent-runs/r1");
    assert_unchanged_by_looking("one run", &run);
}

#[test]
fn looking_leaves_the_process_alone() {
    let live = Live::start();
    let store = Store::new();
    store.run("r1").status(&records::running("r1", live.pid(), now_ms()));
    let before = testkit::process::identity(live.pid());
    assert_unchanged_by_looking("a live run", store.root());
    assert_eq!(testkit::process::identity(live.pid()), before, "the process is the same");
}

/// The system calls of one run of the program, one line each.
fn trace(args: &[String], out: &Path) -> Vec<String> {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "300", "-o", utf8(out), "--"]).arg(ask::binary()).args(args);
    command.env_remove("RUST_BACKTRACE");
    let outcome = program::run(command, ask::LIMIT, None).expect("strace was there before");
    assert!(!outcome.late, "{args:?}: the traced program ends in time");
    let text = fs::read_to_string(out).expect("strace has written its file");
    text.lines().map(str::to_owned).collect()
}

/// The name of the call in a line such as `123 openat(AT_FDCWD, …) = 3`; `None` for signals and exits.
fn call(line: &str) -> Option<&str> {
    let rest = line.split_once(' ').map(|(_, rest)| rest.trim_start())?;
    let name = &rest[..rest.find('(')?];
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(name)
}

/// What is wrong with one call of a program that only reads, if anything.
fn objection(line: &str, root: &str, executed: &mut bool) -> Option<&'static str> {
    let name = call(line)?;
    let changes = [
        "rename",
        "unlink",
        "mkdir",
        "rmdir",
        "chmod",
        "chown",
        "link",
        "symlink",
        "utime",
        "truncate",
        "mknod",
        "setxattr",
        "removexattr",
        "fallocate",
        "flock",
        "sendfile",
        "copy_file_range",
        "fsync",
        "fdatasync",
        "pwrite",
        "mount",
        "statmount_set",
    ];
    let lookups = ["readlink", "readlinkat", "mlock"];
    if changes.iter().any(|change| name.contains(change)) && !lookups.contains(&name) {
        return Some("a call that changes or locks something");
    }
    let net = ["socket", "connect", "bind", "listen", "accept", "sendto", "sendmsg"];
    if net.contains(&name) {
        return Some("the network or another process is spoken to");
    }
    match name {
        "execve" | "execveat" => {
            std::mem::replace(executed, true).then_some("another program is started")
        }
        "fork" | "vfork" => Some("another process is started"),
        "kill" | "tkill" | "tgkill" | "pidfd_send_signal" => {
            let harmless = line.contains(", 0)") || line.contains(", 0, NULL, 0)");
            (!harmless).then_some("a signal other than number 0 is sent")
        }
        "fcntl" => ["F_SETLK", "F_OFD_SETLK", "F_SETLEASE", "F_NOTIFY"]
            .iter()
            .any(|lock| line.contains(lock))
            .then_some("something is locked or watched"),
        "write" | "writev" => {
            (line.contains(&format!("<{root}"))).then_some("something is written into the store")
        }
        "open" | "openat" | "openat2" | "creat" => {
            let flags = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"];
            let writes = name == "creat" || flags.iter().any(|flag| line.contains(flag));
            (writes && line.contains(root)).then_some("something is opened for writing")
        }
        _ => None,
    }
}

#[test]
fn the_system_calls_of_a_look_can_change_nothing() {
    if !program::is_there("strace") {
        return skip("the trace of system calls", "there is no strace");
    }
    let store = everything();
    let live = Live::start();
    store.run("live").status(&records::running("live", live.pid(), now_ms()));
    let out = store.beside("trace").join("calls");
    if !trace(&["--version".to_owned()], &out).iter().any(|line| call(line) == Some("execve")) {
        return skip("the trace of system calls", "strace may not trace here");
    }
    let mut opened = 0;
    for question in questions(store.root()) {
        let calls = trace(&question, &out);
        let mut executed = false;
        for line in &calls {
            let objection = objection(line, utf8(store.root()), &mut executed);
            assert_eq!(objection, None, "{question:?}: a reader only reads: {line}");
        }
        opened += calls
            .iter()
            .filter(|line| call(line) == Some("openat") && line.contains(utf8(store.root())))
            .count();
    }
    assert!(opened > 100, "the trace shows how the store is read: {opened} openings");
}

#[test]
fn no_pipe_is_even_opened() {
    const NAME: &str = "the trace of openings";
    if !program::is_there("strace") {
        return skip(NAME, "there is no strace");
    }
    let store = Store::new();
    store.run("r1").status(&records::running("r1", 999_999_999, now_ms()));
    // To open a pipe wakes whoever waits for a reader, and to open a device may do anything.
    let pipes = [
        "async-subagent-runs/r1/process-terminal.json",
        "async-subagent-runs/r1/events.jsonl",
        "async-subagent-runs/r1/runner.stderr.log",
        "async-subagent-runs/r1/output-0.log",
        "async-subagent-runs/r1/workflow-result.json",
        "async-subagent-runs/r1/.status.json.1.1795000000000.abc.tmp",
        "async-subagent-runs/r2/status.json",
        "async-subagent-runs/.active-runs/r1",
        "async-subagent-runs/.terminal-runs/session-1/0000000000000005-r1.json",
        "async-subagent-results/r1.json",
        "async-subagent-results/result-pending/session-1/r1.json",
        "session-leases/lease/owner.json",
        "session-active-async-capacity/pool/slot-0/owner.json",
    ];
    for pipe in pipes {
        make_fifo(&store.file(pipe, "").with_file_name("new"));
        let path = store.root().join(pipe);
        fs::rename(path.with_file_name("new"), path).expect("the tree is ours");
    }
    let out = store.beside("trace").join("calls");
    let mut seen = 0;
    for question in questions(store.root()) {
        for line in trace(&question, &out) {
            let opens = call(&line).is_some_and(|name| name.starts_with("open"));
            seen += usize::from(opens && line.contains(utf8(store.root())));
            for pipe in pipes {
                let (folder, name) = pipe.rsplit_once('/').expect("a pipe lies in a folder");
                let hit = opens && line.contains(&format!("/{folder}>, \"{name}\""));
                assert!(!hit, "{question:?}: a pipe is not opened: {line}");
            }
        }
    }
    if seen == 0 {
        skip(NAME, "strace may not trace here");
    }
}

#[test]
fn the_check_of_system_calls_sees_what_it_must() {
    let bad = [
        "1 openat(3</s/root>, \"x\", O_WRONLY|O_CREAT, 0666) = 4</s/root/x>",
        "1 openat(AT_FDCWD</>, \"/s/root/x\", O_RDWR) = 4</s/root/x>",
        "1 renameat2(3</s/root>, \"a\", 3</s/root>, \"b\", 0) = 0",
        "1 unlinkat(3</s/root>, \"a\", 0) = 0",
        "1 utimensat(3</s/root>, \"a\", NULL, 0) = 0",
        "1 fchmodat(3</s/root>, \"a\", 0600) = 0",
        "1 symlinkat(\"x\", 3</s/root>, \"a\") = 0",
        "1 flock(4</s/root/x>, LOCK_SH) = 0",
        "1 fcntl(4</s/root/x>, F_SETLK, {l_type=F_RDLCK}) = 0",
        "1 write(4</s/root/x>, \"x\", 1) = 1",
        "1 kill(7, SIGTERM) = 0",
        "1 socket(AF_UNIX, SOCK_STREAM, 0) = 3",
    ];
    for line in bad {
        assert!(objection(line, "/s/root", &mut true).is_some(), "this must be seen: {line}");
    }
    assert!(objection("1 execve(\"/bin/ps\", …) = 0", "/s", &mut true).is_some(), "a helper");
    let good = [
        "1 openat(3</s/root>, \"x\", O_RDONLY|O_NOFOLLOW|O_NONBLOCK) = 4</s/root/x>",
        "1 write(1<pipe:[7]>, \"/s/root\", 7) = 7",
        "1 kill(7, 0) = 0",
        "1 readlink(\"/proc/self/ns/pid\", \"pid:[1]\", 256) = 7",
        "1 newfstatat(3</s/root>, \"x\", {}, AT_SYMLINK_NOFOLLOW) = 0",
        "1 +++ exited with 0 +++",
    ];
    for line in good {
        assert_eq!(objection(line, "/s/root", &mut false), None, "this is reading: {line}");
    }
}
