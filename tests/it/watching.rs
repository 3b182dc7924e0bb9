//! What ends a pause: renames, the end of a process, the time, and nothing else.
//! Spec: RS-OBS-20, RS-OBS-21, RS-OBS-22, RS-START-60 to RS-START-62.
//!
//! Theory of operation. A pause that has to end early is given a bound in which no test would come to its end,
//! and one that must not end early a bound of some ms. Where no instance of inotify is left is played in a
//! user namespace of its own, which has a limit of its own: this test starts itself again there.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use runstore::protocol::process::RecordedProcess;
use runstore::store::RealHost;
use runstore::store::host::{Host as _, WatchHost as _, WriteHost as _};
use testkit::process::{Live, identity, skip};

/// Longer than any test may take.
const LONG_MS: u64 = 600_000;
/// Names the test that was started again.
const ROLE: &str = "RUNSTORE_TEST_ROLE";

/// A command that runs a program where its user has no inotify instance left; `None` where no user
/// namespace can be had.
pub(crate) fn without_instances(program: &Path) -> Option<Command> {
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]);
        command
    };
    let none = "echo 0 >/proc/sys/user/max_inotify_instances";
    let can = unshared(none).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = unshared(&format!("{none} && exec \"$0\" \"$@\""));
    command.arg(program);
    Some(command)
}

/// The descriptors of inotify that this process has.
fn instances() -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("Linux");
    let kinds = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    kinds.filter(|kind| kind.to_string_lossy().contains("inotify")).count()
}

fn is_linux(test: &str) -> bool {
    let is = cfg!(target_os = "linux");
    if !is {
        skip(test, "only Linux tells what happens in a directory");
    }
    is
}

/// Whether this user has an instance left; a test that needs more than that says so itself.
fn has_instance(host: &RealHost, test: &str) -> bool {
    for _ in 0..100 {
        let dir = host.open_dir(Path::new("/proc")).expect("Linux");
        // What a host has made it keeps.
        if host.watch_dir(&mut host.watch(), &dir, 0) {
            return true;
        }
        host.wait_ms(50);
    }
    skip(test, "others have all inotify instances of this user");
    false
}

#[test]
fn a_rename_ends_a_pause_and_tells_where_it_happened() {
    if !is_linux("renames") {
        return;
    }
    let (host, temp) = (RealHost::new(), tempfile::tempdir().expect("room"));
    if !has_instance(&host, "renames") {
        return;
    }
    let mut watch = host.watch();
    for (number, name) in ["one", "other"].iter().enumerate() {
        let path = temp.path().join(name);
        fs::create_dir(&path).expect("room");
        let dir = host.open_dir(&path).expect("there");
        // The path may lead elsewhere later; the open directory is what is watched.
        assert!(host.watch_dir(&mut watch, &dir, number + 5));
        fs::rename(&path, temp.path().join(format!("{name}-moved"))).expect("ours");
    }
    assert_eq!(host.pause(&mut watch, LONG_MS), [5, 6], "both were moved");
    for (name, number) in [("one-moved", 5), ("other-moved", 6)] {
        let dir = temp.path().join(name);
        fs::write(dir.join("new"), "x").expect("room");
        fs::rename(dir.join("new"), dir.join(".status.json.1.2.ab.tmp")).expect("ours");
        assert!(host.pause(&mut watch, 5).is_empty(), "{name}: a temp file is no news");
        fs::rename(dir.join(".status.json.1.2.ab.tmp"), dir.join("status.json")).expect("ours");
        assert_eq!(host.pause(&mut watch, LONG_MS), [number], "{name}");
        assert!(host.pause(&mut watch, 5).is_empty(), "{name}: it is told once");
    }
    fs::remove_dir_all(temp.path().join("one-moved")).expect("ours");
    assert_eq!(host.pause(&mut watch, LONG_MS), [5], "the directory is gone");
}

#[test]
fn the_end_of_the_recorded_process_ends_a_pause_once_and_no_other_is_held() {
    if !is_linux("ends of processes") {
        return;
    }
    let host = RealHost::new();
    let (mut ends, stays) = (Live::start(), Live::start());
    let record = |pid: u32| RecordedProcess { pid: Some(pid.into()), ..RecordedProcess::default() };
    let mut watch = host.watch();
    assert!(host.watch_process(&mut watch, &record(ends.pid()), 1));
    assert!(host.watch_process(&mut watch, &record(stays.pid()), 2));
    let mut another = record(stays.pid());
    another.identity.start_identity = Some("linux:1".to_owned());
    assert!(identity(stays.pid()).start.is_some_and(|start| start != "linux:1"));
    assert!(!host.watch_process(&mut watch, &another, 3), "it is not the recorded one");
    let mut elsewhere = record(stays.pid());
    elsewhere.host = Some("another-machine");
    assert!(!host.watch_process(&mut watch, &elsewhere, 3), "the number means nothing here");
    assert!(!host.watch_process(&mut watch, &record(999_999_999), 3), "nobody is there");
    assert!(host.pause(&mut watch, 5).is_empty(), "both run");
    ends.kill_unreaped();
    assert_eq!(host.pause(&mut watch, LONG_MS), [1]);
    assert!(host.pause(&mut watch, 5).is_empty(), "it ends once");
}

/// Starts this test once more, alone in a process of its own, with `ROLE` in its environment.
fn again(command: &mut Command, test: &str) {
    command.args([&format!("watching::{test}"), "--exact", "--nocapture"]).env(ROLE, test);
    let told = command.output().expect("a test can be started again");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(told.status.success() && said.contains("1 passed"), "{said}");
}

fn is_again(test: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|role| role == test)
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().expect("a test has a place")
}

#[test]
fn an_instance_is_used_again_and_a_host_makes_few() {
    let test = "an_instance_is_used_again_and_a_host_makes_few";
    if !is_linux("instances") {
        return;
    }
    if !is_again(test) {
        // Alone, because other tests have instances as well.
        return again(&mut Command::new(own_program()), test);
    }
    let (host, temp) = (RealHost::new(), tempfile::tempdir().expect("room"));
    if !has_instance(&host, test) {
        return;
    }
    let dir = host.open_dir(temp.path()).expect("there");
    for _ in 0..100 {
        let mut watch = host.watch();
        assert!(host.watch_dir(&mut watch, &dir, 0));
        drop(watch);
        assert_eq!(instances(), 1, "it is kept, not closed, and used again");
    }
    let mut watches: Vec<_> = (0..20).map(|_| host.watch()).collect();
    let told = watches.iter_mut().map(|watch| host.watch_dir(watch, &dir, 0));
    let told = told.filter(|is_told| *is_told).count();
    assert_eq!(told, instances());
    assert!(told <= 8, "the others of this user need some as well: {told}");
    fs::write(temp.path().join("a"), "").expect("room");
    fs::rename(temp.path().join("a"), temp.path().join("b")).expect("ours");
    for (n, watch) in watches.iter_mut().enumerate() {
        let woken = host.pause(watch, if n < told { LONG_MS } else { 1 });
        assert_eq!(woken.len(), usize::from(n < told), "each is told for itself, or not at all");
    }
    drop(watches);
    assert_eq!(instances(), told);
    let mut watch = host.watch();
    assert!(host.watch_dir(&mut watch, &dir, 0));
    assert!(host.pause(&mut watch, 1).is_empty(), "what came to somebody else before is no news");
    drop((watch, host));
    assert_eq!(instances(), 0, "they end with their host");
}

#[test]
fn without_an_instance_a_pause_lasts_its_time_and_ends_are_still_told() {
    let test = "without_an_instance_a_pause_lasts_its_time_and_ends_are_still_told";
    if !is_linux("no instance") {
        return;
    }
    if !is_again(test) {
        let Some(mut command) = without_instances(&own_program()) else {
            return skip("no instance", "no user namespace can be had");
        };
        return again(&mut command, test);
    }
    let (host, temp) = (RealHost::new(), tempfile::tempdir().expect("room"));
    let dir = host.open_dir(temp.path()).expect("there");
    let mut watch = host.watch();
    assert!(!host.watch_dir(&mut watch, &dir, 0), "there is none");
    let since = host.steady_ms();
    assert!(host.pause(&mut watch, 20).is_empty());
    assert!(host.steady_ms() - since >= 19, "it does not turn into a busy loop");
    let mut ends = Live::start();
    let record = RecordedProcess { pid: Some(ends.pid().into()), ..RecordedProcess::default() };
    assert!(host.watch_process(&mut watch, &record, 1));
    ends.kill_unreaped();
    assert_eq!(host.pause(&mut watch, LONG_MS), [1]);
}
