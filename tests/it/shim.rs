//! A shim with real processes under it: what it proves, ends, lets go of and leaves alone.
//!
//! Theory of operation. See `launch`. The runner is a shell that waits for the pipe `go`, so that it ends
//! when the test says so.

use std::fs;
use std::process::Command;

use runstore::observer::Witnessed;
use runstore::protocol::Open;
use runstore::protocol::candidate::Instance;
use runstore::protocol::layout;
use runstore::protocol::observer_record::Told;
use runstore::protocol::process::Presence;
use runstore::protocol::proof::{ExitGrade, ProofState};
use runstore::store::host::Host as _;
use testkit::process::skip;

use crate::ask;
use crate::launch::{Launch, has_handles, run_dir};
use crate::place::until;

#[test]
fn every_end_of_a_runner_is_proven_although_its_launcher_is_gone() {
    if !has_handles("ends under a shim") {
        return;
    }
    for (end, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 3", Some(3), None),
        ("kill -SEGV $$", None, Some("SIGSEGV")),
        ("kill -KILL $$", None, Some("SIGKILL")),
    ] {
        let mut launch = Launch::of(&format!("cat \"$1/go\"; {end}"));
        assert_eq!((launch.is_marked(), launch.slots()), (true, 1), "{end}: it runs");
        let answer = ask::inspect(&launch.dir());
        assert_eq!(answer.only().0, "running", "{end}: {answer:?}");
        launch.kill_starter();
        launch.until_it_ends(|| launch.go());
        let proof = launch.proof();
        assert_eq!(proof.state, ProofState::Observed, "{end}: {proof:?} {}", launch.events());
        let Instance { exit_code, signal: named, .. } = &proof.instances[0];
        assert_eq!((*exit_code, named.as_deref()), (code, signal), "{end}");
        assert_eq!(proof.exit_evidence, Some(Open::Known(ExitGrade::ParentWait)), "{end}");
        assert_eq!((launch.is_marked(), launch.slots()), (false, 0), "{end}: all is let go of");
        let answer = ask::inspect(&launch.dir());
        assert_eq!(answer.only().1, "dead", "{end}: {answer:?}");
    }
}

#[test]
fn what_a_runner_leaves_in_its_session_is_ended_even_if_it_does_not_listen() {
    if !has_handles("leftovers of a runner") {
        return;
    }
    // A child of a child, so that its parent is gone long before the runner is; its group is its own.
    let script = "sh -c 'trap \"\" TERM; echo $$ >\"$1/left\"; cat \"$1/ready\"; while :; do sleep 1000; \
                  done' left \"$1\" & cat \"$1/go\"; kill -KILL $$";
    let launch = Launch::of(script);
    launch.open("ready");
    launch.until_it_ends(|| launch.go());
    assert_eq!(launch.proof().state, ProofState::Observed, "{}", launch.events());
    let left = fs::read_to_string(launch.root.path().join("left")).expect("it said who it is");
    let pid: i64 = left.trim().parse().expect("a number");
    assert_eq!(launch.host.process(pid).presence, Presence::Gone, "nothing of the run is left");
}

#[test]
fn what_leaves_the_session_is_left_alone_and_keeps_the_end_of_a_killed_runner_unproven() {
    if !has_handles("a daemon of a runner") {
        return;
    }
    if Command::new("setsid").arg("true").status().is_err() {
        return skip("a daemon of a runner", "there is no setsid");
    }
    let script = "setsid sh -c 'echo $$ >\"$1/left\"; cat \"$1/ready\"; exec sleep 1000' left \"$1\" & \
                  cat \"$1/go\"; kill -KILL $$";
    let launch = Launch::of(script);
    launch.open("ready");
    launch.until_it_ends(|| launch.go());
    let proof = launch.proof();
    assert_eq!(proof.state, ProofState::Unknown, "the runner left no account of it");
    assert_eq!(launch.slots(), 1, "so nothing is let go of");
    assert!(launch.events().contains("1 processes of the run are left"), "{}", launch.events());
    let left = fs::read_to_string(launch.root.path().join("left")).expect("it said who it is");
    let pid: i64 = left.trim().parse().expect("a number");
    assert_eq!(launch.host.process(pid).presence, Presence::Present, "it left on purpose");
    launch.kill(pid);
}

#[test]
fn a_shim_and_its_runner_hold_no_descriptor_of_the_launcher() {
    if !has_handles("descriptors of a shim") {
        return;
    }
    let launch = Launch::with("cat \"$1/go\"", "exec 9>\"$ROOT/held\"");
    let held = launch.root.path().join("held");
    assert!(held.exists(), "the starter opened it");
    for pid in [launch.shim, launch.runner.pid] {
        let open = || -> Vec<_> {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("ours");
            open.filter_map(|entry| fs::read_link(entry.expect("readable").path()).ok()).collect()
        };
        assert!(!open().contains(&held), "{pid}: {:?}", open());
        // Nobody waits for its outputs, once it has given up the one on which it told.
        until("it gives up its pipes", || {
            !open().iter().any(|to| to.to_string_lossy().starts_with("pipe:"))
        });
    }
    launch.until_it_ends(|| launch.go());
}

/// The anonymous memory of a process in kB, without what the loader writes into the image of the program: in the
/// build that is tested that grows with every verb, to six times that of a release, whose whole is measured by
/// `measure-starts`.
fn own_memory_kb(smaps: &str, program: &str) -> u64 {
    let (mut total_kb, mut is_image) = (0, false);
    for line in smaps.lines() {
        if let Some(number) = line.strip_prefix("Anonymous:") {
            let number: u64 = number.trim().trim_end_matches(" kB").parse().expect("a number");
            total_kb += if is_image { 0 } else { number };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            is_image = line.ends_with(program);
        }
    }
    assert!(total_kb > 0, "Linux tells it");
    total_kb
}

#[test]
fn a_shim_sleeps_in_little_memory_until_the_system_wakes_it() {
    if !has_handles("the memory of a shim") {
        return;
    }
    let launch = Launch::of("cat \"$1/go\"");
    let read =
        |name: &str| fs::read_to_string(format!("/proc/{}/{name}", launch.shim)).expect("ours");
    // It is on its way to sleep; a kernel that hides where it sleeps says 0.
    let sleeps = || {
        let waits = read("wchan");
        let state = read("stat").rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
        state && (waits == "0" || waits.contains("wait"))
    };
    until("it sleeps", sleeps);
    let memory_kb = own_memory_kb(&read("smaps"), ask::utf8(&ask::binary()));
    assert!(memory_kb <= 1024, "{memory_kb} kB of its own memory");
    launch.until_it_ends(|| launch.go());
}

#[test]
fn after_the_death_of_a_shim_the_records_stay_true_and_a_witness_takes_over() {
    if !has_handles("the death of a shim") {
        return;
    }
    let launch = Launch::of("cat \"$1/go\"; exit 3");
    assert!(matches!(launch.witness(), Witnessed::Attended(pid) if pid == launch.shim));
    launch.kill(launch.shim);
    let answer = ask::inspect(&launch.dir());
    assert_eq!(answer.only().0, "running", "the runner lives: {answer:?}");
    launch.go();
    match launch.witness() {
        Witnessed::Observed(_, settled) => {
            assert_eq!(
                settled.finalised.row, "F-10",
                "told the end, but not what became of its writers"
            );
        }
        Witnessed::Unobserved(done, grade) => {
            assert_eq!(grade, ExitGrade::IdentityGone, "{done:?}");
        }
        other => panic!("{other:?}"),
    }
    let proof = launch.proof();
    assert_eq!(proof.state, ProofState::Unknown, "nobody saw everything end: {proof:?}");
    assert_eq!(launch.slots(), 1, "so nothing is let go of");
    let answer = ask::inspect(&launch.dir());
    assert_eq!(answer.only().0, "orphaned", "its process is gone: {answer:?}");
    assert!(matches!(launch.witness(), Witnessed::Settled(ProofState::Unknown)), "said once");
}

#[test]
fn a_runner_that_cannot_be_started_is_told_and_changes_nothing() {
    let root = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir_all(run_dir(root.path())).expect("room");
    let (root_text, dir) = (ask::utf8(root.path()), run_dir(root.path()));
    let dir = ask::utf8(&dir);
    let shim = |dir: &str, program: &str| {
        let args =
            ["shim", "--root", root_text, "--run-dir", dir, "--instance", "i", "--", program];
        let outcome = ask::run(&args);
        (outcome.code, Told::read(&outcome.text()).expect("one line of JSON"))
    };
    let (code, told) = shim(dir, "/nowhere/runner");
    assert!(matches!(&told, Told::Failed(why) if why.contains("No such file")), "{told:?}");
    assert_eq!(code, 74);
    assert!(!run_dir(root.path()).join(layout::PROOF).exists(), "no end of what never began");
    let (code, told) = shim("/nowhere/run", "true");
    assert!(matches!(&told, Told::Failed(why) if why.contains("/nowhere")), "{told:?}");
    assert_eq!(code, 74);
}

#[test]
fn a_shim_whose_run_was_removed_ends_with_its_runner() {
    if !has_handles("a run that is removed") {
        return;
    }
    let launch = Launch::of("cat \"$1/go\"");
    fs::remove_dir_all(launch.dir()).expect("ours");
    launch.until_it_ends(|| launch.go());
    assert!(!launch.dir().exists(), "nothing of it is made again");
}
