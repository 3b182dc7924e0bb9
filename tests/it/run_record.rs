//! A run that the library records itself, of a process that is really there and then is not.
//!
//! Theory of operation. The store is made with the writing half and asked about with the program, as two
//! parties would. What was recorded of the process is compared with what the system says of it without
//! the library.

use std::path::{Path, PathBuf};

use runstore::protocol::account::Author;
use runstore::protocol::ids::RunId;
use runstore::protocol::segment::SegmentInput;
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{RunMode, RunState};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StatusPlace};
use runstore::store::{RealHost, directory, identity, markers, proof};
use serde_json::Value;
use testkit::process::{self, Live, now_ms, skip};

use crate::ask;

/// Records a run of this process, as a launcher does, and returns its directory.
fn record(root: &Path, pid: u32) -> PathBuf {
    let host = RealHost::new();
    let never = RetryPolicy::never();
    let temp = directory::open_root(&host, root).expect("ours");
    let (runs, _) =
        directory::create_durable(&host, &temp, "async-subagent-runs", &never).expect("room");
    let run_id = RunId::parse("run-1").expect("an id");
    let run_dir = run::create(&host, &runs, &run_id, &never).expect("room");
    let process = identity::child(&host, pid);
    let first = FirstStatus {
        run_id: "run-1",
        session_id: Some("S"),
        completion_owner_id: Some("owner"),
        tool_call_id: Some("call"),
        mode: RunMode::Single,
        agents: &["a"],
        groups: &[],
        started_at_ms: now_ms(),
        process: &process,
        instance_id: "i",
    };
    run::write_first(&host, &run_dir, &first).expect("room");
    let call = SegmentInput::from("call");
    markers::update(&host, &runs, &run_id, RunState::Running, Some(&call), &never).expect("room");
    proof::initialise(&host, &run_dir, &run_id, "i").expect("room");
    root.join("async-subagent-runs/run-1")
}

/// Changes the status as the runner does.
fn update(root: &Path, patch: &StatusPatch) {
    let host = RealHost::new();
    let temp = directory::open_root(&host, root).expect("ours");
    let path = ["async-subagent-runs", "run-1"];
    let run_dir = directory::open_path(&host, &temp, &path).expect("ours").expect("made");
    let run_id = RunId::parse("run-1").expect("an id");
    let place = StatusPlace { host: &host, run_dir: &run_dir, run_id: &run_id, locks: None };
    run::update(&place, Author::Runner { instance: "i" }, patch).expect("its own");
}

fn private_root() -> tempfile::TempDir {
    // Mode 0700 by itself.
    tempfile::tempdir().expect("a temporary directory")
}

fn status(run: &Path) -> Value {
    let bytes = std::fs::read(run.join("status.json")).expect("there");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn a_recorded_process_runs_until_it_is_killed_and_is_orphaned_then() {
    let root = private_root();
    let mut live = Live::start();
    let run = record(root.path(), live.pid());
    let answer = ask::inspect(&run);
    let (verdict, liveness, _) = answer.only();
    assert_eq!((&*verdict, &*liveness), ("starting", "live"), "nothing has begun: {answer:?}");
    let working = r#"[{"agent": "a", "status": "running"}]"#.to_owned();
    update(root.path(), &StatusPatch::at(now_ms()).member("steps", working));
    let answer = ask::inspect(&run);
    let (verdict, liveness, _) = answer.only();
    assert_eq!((&*verdict, &*liveness), ("running", "live"), "{answer:?}");
    let (recorded, seen) = (status(&run), process::identity(live.pid()));
    assert_eq!(recorded["pid"], live.pid());
    assert_eq!(recorded["processStartIdentity"].as_str(), seen.start.as_deref());
    assert_eq!(recorded["bootId"].as_str(), seen.boot_id.as_deref());
    assert_eq!(recorded["pidNamespaceScope"].as_str(), process::pid_namespace().as_deref());
    assert!(recorded["hostname"].as_str().is_some_and(|name| !name.is_empty()), "{recorded}");
    let inode = seen.pidfd_inode.map(|inode| inode.to_string());
    assert_eq!(recorded["pidfdInode"].as_str(), inode.as_deref(), "as text");
    if inode.is_none() {
        skip("a recorded inode", "this kernel gives pidfds no inode of their own");
    }
    live.kill_unreaped();
    let answer = ask::inspect(&run);
    assert_eq!(answer.only().0, "orphaned", "a zombie runs nothing: {answer:?}");
    live.kill();
    let answer = ask::inspect(&run);
    let (verdict, liveness, _) = answer.only();
    assert_eq!((&*verdict, &*liveness), ("orphaned", "dead"), "{answer:?}");
}

#[test]
fn a_recorded_process_is_not_taken_for_another_one_of_its_number() {
    let root = private_root();
    let (live, other) = (Live::start(), Live::start());
    let run = record(root.path(), other.pid());
    if status(&run)["pidfdInode"].is_null() {
        return skip("a number that another process has now", "no inode tells them apart here");
    }
    // As if the number had been given to another process: everything but the number stays.
    let bytes = std::fs::read_to_string(run.join("status.json")).expect("there");
    let (from, to) = (format!("\"pid\": {}", other.pid()), format!("\"pid\": {}", live.pid()));
    assert!(bytes.contains(&from), "{bytes}");
    std::fs::write(run.join("status.json"), bytes.replace(&from, &to)).expect("ours");
    let answer = ask::inspect(&run);
    let (verdict, liveness, _) = answer.only();
    assert_eq!((&*verdict, &*liveness), ("orphaned", "reused"), "{answer:?}");
}

#[test]
fn a_child_that_ended_before_it_was_recorded_has_its_number_and_no_identity() {
    let host = RealHost::new();
    let mut live = Live::start();
    live.kill_unreaped();
    let record = identity::child(&host, live.pid());
    assert_eq!(record.pid, i64::from(live.pid()));
    assert_eq!((record.identity.start_identity, record.identity.pidfd_inode), (None, None));
}

#[test]
fn an_end_that_the_runner_tells_is_what_inspect_shows() {
    let root = private_root();
    let mut live = Live::start();
    let run = record(root.path(), live.pid());
    let end = StatusPatch::at(now_ms()).state(RunState::Complete).ended_at_ms(now_ms());
    update(root.path(), &end);
    live.kill();
    let answer = ask::inspect(&run);
    assert_eq!(answer.runs()[0]["recordedState"], "complete", "{answer:?}");
}
