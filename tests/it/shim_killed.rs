//! A shim that is killed at each of its last system calls: what it leaves is true and can be gone on from.
//!
//! Theory of operation. See `launch`. A shim waits for its runner; `strace` is attached to it and told to
//! kill it at the n-th call of one name; then the runner is let go on and kills itself. This is done for every
//! call that changes something, until the shim comes through. Of the calls before the runner is there the
//! exploration in memory has every one (`tests/crash/ending.rs`).

use runstore::protocol::ids::RunId;
use runstore::protocol::layout;
use runstore::protocol::proof::ProofState;
use runstore::store::host::{Host as _, ProcessHost as _};
use runstore::store::proof::{RunPlace, complete};
use runstore::store::slot;
use testkit::process::skip;
use testkit::trace;

use crate::ask;
use crate::launch::{Launch, has_handles};

/// Calls with which a shim changes something.
const CALLS: [&str; 4] = ["write", "fsync", "/^renameat", "unlinkat"];

/// Lets a shim be killed at one call; whether it was.
fn killed_at(call: &str, number: usize) -> Option<bool> {
    let launch = Launch::of("cat \"$1/go\"; kill -KILL $$");
    let (trace, inject) =
        (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={number}"));
    let mut strace = trace::attach(launch.shim, &["-e", &trace, "-e", &inject]).ok()??;
    launch.until_it_ends(|| launch.go());
    strace.wait().expect("ours");
    let at = format!("{call} {number}: {}", launch.events());
    let before = launch.proof();
    let came_through =
        before.state == ProofState::Observed && launch.slots() == 0 && !launch.is_marked();
    let answer = ask::inspect(&launch.dir());
    assert_eq!(answer.only().1, "dead", "{at}: {answer:?}");
    assert_eq!(answer.runs()[0]["recordedState"], "running", "{at}: nobody told another state");
    assert!(launch.host.hold(launch.runner.pid).expect("asked").is_none(), "{at}: nothing runs");
    if before.state != ProofState::Observed {
        assert_eq!(before.state, ProofState::Pending, "{at}: nobody saw the end");
        assert_eq!((launch.is_marked(), launch.slots()), (true, 1), "{at}: nothing is let go of");
        return Some(true);
    }
    // Whoever comes next goes on from the proof.
    let host = &launch.host;
    let temp = host.open_dir(launch.root.path()).expect("there");
    let runs = host.open_dir(&launch.root.path().join(layout::RUNS_DIR)).expect("there");
    let dir = host.open_dir(&launch.dir()).expect("there");
    let run_id = RunId::parse("run-1").expect("an id");
    let place = RunPlace { temp: &temp, runs_root: &runs, run_dir: &dir, run_id: &run_id };
    let done = complete(host, &place).expect("readable").expect("there is a proof");
    assert_eq!(done.missing, [], "{at}");
    slot::release_of_run(host, &temp, "S", "run-1", "i").expect("no dead process freezes it");
    assert_eq!((launch.is_marked(), launch.slots()), (false, 0), "{at}: all is let go of");
    assert_eq!(launch.proof(), before, "{at}: the proof stays");
    assert_eq!(launch.events().matches("process_terminal").count(), 1, "{at}: told once");
    Some(!came_through)
}

#[test]
fn a_shim_that_is_killed_at_any_call_leaves_what_is_true_and_can_be_gone_on_from() {
    let test = "a shim killed at each of its last calls";
    if !has_handles(test) {
        return;
    }
    for call in CALLS {
        let mut number = 1;
        loop {
            match killed_at(call, number) {
                None => return skip(test, "strace is not there or may not attach"),
                Some(false) => break,
                Some(true) => number += 1,
            }
        }
        assert!(number > 1, "{call}: it was met");
    }
}
