//! Runs whose process is really there, or really gone.
//!
//! Theory of operation. Each test starts real processes, records them as a writer would, and asks the
//! program. What is recorded comes from `testkit::process`, which reads the system on its own. Nothing
//! waits for time to pass: a process is killed and reaped before the question is asked.
//!
//! Tests that need another user, a pid namespace or `python3` say so when they cannot run. The test of
//! a reused pid runs the whole test binary again inside a new pid namespace, where the next pid can be
//! chosen; a variable tells the inner one what it is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Store;
use testkit::process::{self, Identity, Live, NOBODY, identity, now_ms, skip};
use testkit::program;
use testkit::records::{self, with};

use crate::ask::{self, Answer};
use crate::place::until;

const HOUR_MS: i64 = 3_600_000;

/// A store with one active run, whose status is given.
fn store_of(status: &Value) -> (Store, PathBuf) {
    let store = Store::new();
    let id = status["runId"].as_str().expect("a run has an id").to_owned();
    let path = store.run(&id).status(status).path().to_owned();
    store.active_marker(&id);
    (store, path)
}

/// Verdict and liveness of a run with this status.
fn judged(status: &Value) -> (String, String) {
    let (_store, path) = store_of(status);
    let answer = ask::inspect(&path);
    let (verdict, liveness, because) = answer.only();
    assert!(!because.is_empty(), "every verdict has its reason");
    (verdict, liveness)
}

fn assert_judged(status: &Value, verdict: &str, liveness: &str, rule: &str) {
    let expected = (verdict.to_owned(), liveness.to_owned());
    assert_eq!(judged(status), expected, "{rule}: {status:#}");
}

/// The additive member in which a writer records who it is.
fn recorded(id: &Identity) -> Value {
    let inode = id.pidfd_inode.map(|inode| inode.to_string());
    json!({"startIdentity": id.start, "pidfdInode": inode, "bootId": id.boot_id})
}

/// An instant `ms` after the boot of this system, so that it is no record of an earlier boot.
fn after_boot(ms: i64) -> i64 {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("Linux tells its uptime");
    let seconds: f64 = uptime.split(' ').next().and_then(|s| s.parse().ok()).expect("a number");
    #[expect(clippy::cast_possible_truncation, reason = "an uptime is far below 2^63 ms")]
    let up = (seconds * 1000.0) as i64;
    now_ms() - up + ms
}

#[test]
fn a_live_process_runs_and_is_orphaned_once_it_was_killed() {
    let mut live = Live::start();
    let (_store, path) = store_of(&records::running("r1", live.pid(), now_ms()));
    let answer = ask::inspect(&path);
    assert_eq!(answer.only().0, "running", "the process started before the record: {answer:?}");
    assert_eq!((answer.only().1.as_str(), answer.code), ("live", 0), "a live run needs nothing");
    live.kill();
    let answer = ask::inspect(&path);
    assert_eq!(answer.only().0, "orphaned", "its process is gone: {answer:?}");
    assert_eq!((answer.only().1.as_str(), answer.code), ("dead", 1), "an orphan needs attention");
    assert_eq!(answer.runs()[0]["recordedState"], "running", "the claim stays as it was found");
}

#[test]
fn a_zombie_is_dead_although_its_pid_is_taken() {
    let mut live = Live::start();
    let mut status = records::running("r1", live.pid(), now_ms());
    live.kill_unreaped();
    assert_judged(&status, "orphaned", "dead", "a zombie runs nothing");
    status["runnerIdentity"] = recorded(&identity(live.pid()));
    assert_judged(&status, "orphaned", "dead", "a recorded identity does not revive a zombie");
}

#[test]
fn a_pid_with_another_identity_is_reused() {
    let live = Live::start();
    let id = identity(live.pid());
    let plain = records::running("r1", live.pid(), now_ms());
    let other_start = Identity { start: Some("linux:1".to_owned()), ..Identity::default() };
    let status = with(plain.clone(), "runnerIdentity", recorded(&other_start));
    assert_judged(&status, "orphaned", "reused", "another start is another process");
    let flat = with(plain.clone(), "processStartIdentity", "linux:1");
    assert_judged(&flat, "orphaned", "reused", "the flat member is an identity too");
    let other_boot = Identity { boot_id: Some("another-boot".to_owned()), ..id.clone() };
    let status = with(plain.clone(), "runnerIdentity", recorded(&other_boot));
    assert_judged(&status, "orphaned", "reused", "ticks of another boot mean nothing");
    let Some(inode) = id.pidfd_inode else {
        return skip("a reused pid by its inode", "this kernel gives pidfds no inode of their own");
    };
    let other_inode = Identity { pidfd_inode: Some(inode ^ 1), ..id.clone() };
    let status = with(plain.clone(), "runnerIdentity", recorded(&other_inode));
    assert_judged(&status, "orphaned", "reused", "equal ticks do not outweigh another inode");
    let both = Identity { start: Some("linux:1".to_owned()), boot_id: None, ..id };
    let status = with(plain, "runnerIdentity", recorded(&both));
    assert_judged(&status, "orphaned", "reused", "a number of another boot may be equal by chance");
}

#[test]
fn an_equal_identity_is_live_even_if_the_times_are_odd() {
    let live = Live::start();
    let id = recorded(&identity(live.pid()));
    // The clock was set forward after the record was written, backward, or never set at all.
    for at in [1_000_000, after_boot(1), now_ms() + 1000 * HOUR_MS] {
        let status = with(records::running("r1", live.pid(), at), "runnerIdentity", id.clone());
        assert_judged(&status, "running", "live", "identity outweighs the clock");
    }
    let status = records::running("r1", live.pid(), now_ms() - 12 * HOUR_MS);
    let start = identity(live.pid()).start.expect("Linux tells the start");
    let in_this_boot = with(status, "lastUpdate", now_ms());
    let flat = with(in_this_boot, "processStartIdentity", start);
    assert_judged(&flat, "running", "live", "the flat member is an identity too");
}

#[test]
fn without_identity_a_later_start_is_unknown_and_never_orphaned() {
    let live = Live::start();
    let status = records::running("r1", live.pid(), after_boot(1));
    let (verdict, liveness) = judged(&status);
    if after_boot(2 * HOUR_MS + 60_000) > now_ms() {
        let expected = ("running-unverified", "unknown");
        assert_eq!((&*verdict, &*liveness), expected, "within two hours nobody can tell");
    } else {
        assert_eq!(
            (&*verdict, &*liveness),
            ("orphaned", "reused"),
            "after two hours it is another"
        );
    }
    let earlier_boot = records::running("r1", live.pid(), after_boot(-HOUR_MS));
    assert_judged(&earlier_boot, "orphaned", "reused", "no process outlives a boot");
}

#[test]
fn a_record_of_elsewhere_or_of_nobody_is_never_dead() {
    let mut gone = Live::start();
    let pid = gone.pid();
    gone.kill();
    let plain = records::running("r1", pid, now_ms());
    let elsewhere = with(plain.clone(), "hostname", "another-host");
    assert_judged(&elsewhere, "running-unverified", "foreign", "another host has its own pids");
    let namespace = with(plain.clone(), "pidNamespaceScope", "pid:[1]");
    assert_judged(&namespace, "running-unverified", "foreign", "so has another pid namespace");
    let nobody = records::without(plain.clone(), "pid");
    assert_judged(&nobody, "running-unverified", "not-recorded", "no pid is not a dead pid");
    for no_pid in [json!(0), json!(-1), json!(1.5), json!(2_147_483_648_u64), json!(1e300)] {
        let status = with(plain.clone(), "pid", no_pid);
        assert_judged(&status, "running-unverified", "unknown", "such a number is no pid");
    }
    if let Some(own) = process::pid_namespace() {
        let here = with(plain, "pidNamespaceScope", own);
        assert_judged(&here, "orphaned", "dead", "in the own namespace the answer is certain");
    }
}

#[test]
fn a_run_without_host_belongs_to_the_host_of_its_lease() {
    let mut gone = Live::start();
    let pid = gone.pid();
    gone.kill();
    let (store, path) = store_of(&records::running("r1", pid, now_ms()));
    store.lease("lease-1", &records::lease("r1", pid, "another-host", now_ms()));
    let (verdict, liveness, _) = ask::inspect(&path).only();
    assert_eq!(
        (&*verdict, &*liveness),
        ("running-unverified", "foreign"),
        "the lease names a host"
    );
}

#[test]
fn another_users_process_is_judged_by_its_identity_and_never_dead_for_lack_of_permission() {
    if !process::is_root() {
        return skip("another user's process", "only root can start one");
    }
    let theirs = Live::start();
    let id = identity(theirs.pid());
    let rows = [
        (None, "running", "live"),
        (Some(recorded(&id)), "running", "live"),
        (Some(json!({"startIdentity": "linux:1"})), "orphaned", "reused"),
    ];
    for (identity, verdict, liveness) in rows {
        let mut status = records::running("r1", theirs.pid(), now_ms());
        if let Some(identity) = identity {
            status["runnerIdentity"] = identity;
        }
        let (store, path) = store_of(&status);
        let copy = store.open_to(NOBODY, &ask::binary());
        let outcome = ask::run_as_nobody(&copy, &["inspect", ask::utf8(&path), "--format", "json"]);
        let answer = Answer::of(&outcome);
        let (v, l, because) = answer.only();
        assert_eq!((&*v, &*l), (verdict, liveness), "signals are refused, /proc is not: {because}");
    }
    // Process 1 belongs to root and started with this boot.
    let (store, path) = store_of(&records::running("r1", 1, now_ms()));
    let copy = store.open_to(NOBODY, &ask::binary());
    let answer = ask::run_as_nobody(&copy, &["inspect", ask::utf8(&path), "--format", "json"]);
    assert_eq!(Answer::of(&answer).only().1, "live", "it was there before the record named it");
}

#[test]
fn the_number_of_a_thread_is_alive_while_the_thread_is_and_never_dead_before() {
    let (tell, tid) = mpsc::channel();
    let (end, wait) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let tid = rustix::thread::gettid().as_raw_pid();
        tell.send(u32::try_from(tid).expect("a thread id is positive")).expect("somebody listens");
        // Ends when the other side is dropped.
        let _ = wait.recv();
    });
    let tid = tid.recv().expect("the thread tells its number");
    let status = records::running("r1", tid, now_ms());
    let (verdict, liveness) = judged(&status);
    assert_ne!(liveness, "dead", "something has that number: {verdict}");
    assert_ne!(verdict, "orphaned", "unknown is never dead");
    // Without identity, a thread that started after the record was written proves nothing.
    if after_boot(2000) < now_ms() && after_boot(2 * HOUR_MS) > now_ms() {
        let status = records::running("r1", tid, after_boot(1));
        assert_judged(&status, "running-unverified", "unknown", "a thread took the number later");
    }
    drop(end);
    thread.join().expect("the thread ends");
}

#[test]
fn a_process_whose_main_thread_has_ended_is_alive() {
    const NAME: &str = "a process without its main thread";
    // The number of the exit system call, which ends one thread only.
    let exit = match std::env::consts::ARCH {
        "x86_64" => 60,
        "aarch64" => 93,
        _ => return skip(NAME, "the number of the system call is not known here"),
    };
    let script = format!(
        "import ctypes, threading\n\
         threading.Thread(target=threading.Event().wait).start()\n\
         ctypes.CDLL(None).syscall({exit}, 0)\n"
    );
    if !program::is_there("python3") {
        return skip(NAME, "there is no python3");
    }
    let live = Live::of(Command::new("python3").args(["-c", &script]));
    let status = with(
        records::running("r1", live.pid(), now_ms()),
        "runnerIdentity",
        recorded(&identity(live.pid())),
    );
    let shows_zombie = || {
        let line = std::fs::read_to_string(format!("/proc/{}/stat", live.pid())).ok()?;
        Some(line.rsplit_once(") ")?.1.starts_with('Z'))
    };
    until("its main thread ends", || shows_zombie() != Some(false));
    assert_eq!(shows_zombie(), Some(true), "the main thread has ended, the process has not");
    assert_judged(&status, "running", "live", "a process ends with its last thread");
}

/// Runs one test of this binary again inside a new pid namespace, with a variable of its own if it wants one.
pub(crate) fn again_in_a_namespace(
    test: &str,
    with: Option<(&str, &Path)>,
) -> Option<program::Outcome> {
    let itself = std::env::current_exe().expect("a test knows its binary");
    let args = ["-p", "-f", "--mount-proc"];
    let mut command = Command::new("unshare");
    command.args(args).arg("true");
    if !command.output().is_ok_and(|output| output.status.success()) {
        skip(test, "pid namespaces are not permitted here (unshare)");
        return None;
    }
    let mut command = program::command(Path::new("unshare"), &args, Path::new("/"));
    command.arg(itself).args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    command.env(INSIDE, process::pid_namespace().expect("Linux has pid namespaces"));
    command.envs(with);
    Some(program::run(command, Duration::from_secs(120), None).expect("unshare was there before"))
}

/// Set for a test that runs inside a namespace: the pid namespace outside.
pub(crate) const INSIDE: &str = "RUNSTORE_TEST_OUTER_NAMESPACE";

#[test]
fn a_forced_reuse_of_a_pid_is_seen_inside_a_pid_namespace() {
    if let Some(outer) = std::env::var_os(INSIDE) {
        return inside_a_namespace(&outer.to_string_lossy());
    }
    let test = "live::a_forced_reuse_of_a_pid_is_seen_inside_a_pid_namespace";
    let Some(outcome) = again_in_a_namespace(test, None) else { return };
    assert_eq!(outcome.code, 0, "inside:\n{}{}", outcome.text(), outcome.errors());
    assert!(outcome.text().contains("1 passed"), "the test ran inside: {}", outcome.text());
}

fn inside_a_namespace(outer: &str) {
    let live = Live::start();
    let foreign = with(records::running("r1", live.pid(), now_ms()), "pidNamespaceScope", outer);
    assert_judged(&foreign, "running-unverified", "foreign", "the outer namespace is another");
    let (stranger, victim) = force_reuse();
    let pid = stranger.pid();
    let Some(inode) = victim.pidfd_inode else {
        return skip("forced reuse", "this kernel gives pidfds no inode of their own");
    };
    let before = records::running("r1", pid, now_ms() - 30_000);
    let whole = with(before.clone(), "runnerIdentity", recorded(&victim));
    assert_judged(&whole, "orphaned", "reused", "the stranger has another inode");
    let only = json!({"pidfdInode": inode.to_string()});
    let status = with(before.clone(), "runnerIdentity", only);
    assert_judged(&status, "orphaned", "reused", "an inode alone is identity enough");
    assert_judged(&before, "running-unverified", "unknown", "without identity nobody can tell");
    let own = with(before, "runnerIdentity", recorded(&identity(pid)));
    assert_judged(&own, "running", "live", "the stranger is itself");
}

/// Ends a process and starts another that gets its pid: the new one, and the identity of the old.
pub(crate) fn force_reuse() -> (Live, Identity) {
    for _ in 0..100 {
        let mut victim = Live::start();
        let (pid, was) = (victim.pid(), identity(victim.pid()));
        victim.kill();
        // The kernel counts on from here; only this process starts others in this namespace.
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())
            .expect("the root of a namespace chooses its next pid");
        let stranger = Live::start();
        if stranger.pid() == pid {
            return (stranger, was);
        }
    }
    panic!("no pid was reused in 100 attempts");
}

// RS-FLAG-16, RS-FLAG-22.
#[test]
fn a_replacement_of_a_live_writer_is_under_way_for_a_while_and_then_left_over() {
    let now = now_ms();
    let own = std::process::id();
    let gone = {
        let mut ended = Live::start();
        ended.kill();
        ended.pid()
    };
    for (pid, at_ms, is_left) in [(own, now, false), (own, now - 11_000, true), (gone, now, true)] {
        let (store, path) = store_of(&records::running("run-1", own, now - 20_000));
        let name = format!(".status.json.{pid}.{at_ms}.0fhzkqtufz1ca.tmp");
        std::fs::write(path.join(&name), r#"{"runId":"run-1","state":"running"}"#).expect("room");
        let answer = ask::inspect(&path);
        let flags = answer.runs()[0]["flags"].as_array().expect("flags").clone();
        let at = format!("{name}: {flags:?} in {}", store.root().display());
        assert_eq!(flags.contains(&json!("temp-litter")), is_left, "{at}");
        assert_eq!(flags.contains(&json!("unpublished-write")), is_left, "{at}");
    }
}
