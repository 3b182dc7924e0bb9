//! A launch whose process is made by the shim: launcher, shim and runner are three processes.
//! Spec: RS-OBS-13, RS-START-13, RS-START-27, RS-START-42.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runstore::launcher::{Outcome, Place, Request, SlotWish, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::observer_record::Told;
use runstore::store::RealHost;
use runstore::store::host::{Host as _, ProcessHost, Signal};
use runstore::store::process::{Life, Spawn, SpawnPlan, Spawned, Terminate};
use runstore::store::slot::occupied;
use serde_json::{Value, json};

use super::STEPS;
use crate::ask;
use crate::launch::has_handles;

/// A runner that somebody else waits for.
struct Held {
    host: RealHost,
    pid: u32,
    handle: <RealHost as ProcessHost>::Handle,
}

impl Spawned for Held {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn look(&mut self) -> Life {
        let ended = self.host.wait_held(&self.handle, Some(0)).expect("a handle");
        if ended { Life::Ended(None) } else { Life::Running }
    }

    fn terminate(&mut self, how: Terminate) -> io::Result<()> {
        let signal = if how == Terminate::Ask { Signal::Terminate } else { Signal::Kill };
        if self.look().has_ended() { Ok(()) } else { self.host.signal_held(&self.handle, signal) }
    }
}

/// Starts a shell under a shim, and hands it on when it has ended.
struct Shims<'a> {
    root: &'a Path,
    /// A pipe for which the shell waits until somebody holds it.
    go: &'a Path,
    shim: Option<std::process::Child>,
}

impl Spawn for Shims<'_> {
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        let mut shim = Command::new(ask::binary())
            .args(["shim".as_ref(), "--root".as_ref(), self.root.as_os_str()])
            .args(["--run-dir".as_ref(), plan.run_dir.as_os_str()])
            .args(["--instance", &plan.instance_id, "--"])
            .args(["sh", "-c", "cat \"$0\"; echo why >&2; exit 3", ask::utf8(self.go)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = shim.stdout.take().expect("piped");
        self.shim = Some(shim);
        BufReader::new(out).read_line(&mut line)?;
        let Told::Started(runner) = Told::read(&line).expect("one line of JSON") else {
            panic!("{line}")
        };
        let host = RealHost::new();
        let handle = host.hold(runner.pid)?.expect("it waits");
        drop(fs::OpenOptions::new().write(true).open(self.go)?);
        host.wait_held(&handle, None)?;
        Ok(Box::new(Held { host, pid: runner.pid.try_into().expect("a pid"), handle }))
    }
}

#[test]
fn a_runner_that_ends_at_once_under_a_shim_is_a_launch_that_died_and_an_end_that_is_proven() {
    if !has_handles("a launch with a shim") {
        return;
    }
    let temp = tempfile::tempdir().expect("room");
    let root = temp.path().canonicalize().expect("there");
    let runs: PathBuf = root.join("async-subagent-runs");
    fs::create_dir(&runs).expect("room");
    let host = RealHost::new();
    let (temp_dir, runs_root) = (host.open_dir(&root), host.open_dir(&runs));
    let (temp_dir, runs_root) = (temp_dir.expect("there"), runs_root.expect("there"));
    let place =
        Place { temp: &temp_dir, temp_path: &root, runs_root: &runs_root, runs_path: &runs };
    let run_id = RunId::parse("run-1").expect("an id");
    let result = root.join("result");
    let request = Request {
        session_id: Some("S"),
        slot: Some(SlotWish { limit: 1, source: None }),
        ..Request::new(&run_id, RunMode::Single, STEPS, &root, &result)
    };
    let go = root.join("go");
    let made = Command::new("mkfifo").arg(&go).status();
    assert!(made.expect("there is mkfifo").success(), "a pipe can be made");
    let mut shims = Shims { root: &root, go: &go, shim: None };
    let prepared = prepare(&host, place, request).expect("nothing is in the way");
    let mut launch = prepared.start(&mut shims).expect("it is made");
    let Outcome::Died(failed) = launch.wait() else { panic!("it ended before it was let in") };
    assert_eq!((failed.left.as_slice(), &failed.unrecorded), (&[][..], &None), "{failed}");
    assert_eq!(failed.stderr_tail.as_deref(), Some("why"));
    shims.shim.expect("started").wait().expect("ours");
    let json = |name: &str| -> Value {
        let bytes = fs::read(runs.join("run-1").join(name)).expect("there");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    assert_eq!(json("process-terminal.json")["state"], "observed");
    assert_eq!(json("process-terminal-candidate.json")["expectedWriters"], json!({"0": 0}));
    let status = json("status.json");
    assert_eq!((&status["state"], &status["pid"]), (&json!("failed"), &json!(failed.pid)));
    assert_eq!(status["processTerminal"]["state"], "observed", "{status}");
    assert!(!runs.join(".active-runs/run-1").exists(), "the marker is gone");
    assert_eq!(occupied(&host, &temp_dir, "S").expect("readable"), [], "so is the slot");
}
