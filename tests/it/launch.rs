//! A run that a test launches: prepared with the library, started by the real program as a shim.
//!
//! Theory of operation. The test is the launcher: it prepares a run, starts the shim through a shell that
//! it may kill, and writes the status with what the shim told. Two pipes, `go` and `ready`, lie in the
//! store: a reader of `go` waits until the test lets it go on, a writer of `ready` tells the test how far it
//! is. Every wait is one for a process or a pipe; none is for time.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use runstore::observer::{Subject, Witnessed, witness};
use runstore::protocol::ids::RunId;
use runstore::protocol::observer_record::Told;
use runstore::protocol::process::ProcessRecord;
use runstore::protocol::proof::Proof;
use runstore::protocol::slot::SlotKind;
use runstore::protocol::written_status::FirstStatus;
use runstore::protocol::{Document, RunMode, RunState, layout};
use runstore::store::directory::create_path;
use runstore::store::host::{Host as _, ProcessHost, RealHost, Signal};
use runstore::store::proof::{RunPlace, initialise};
use runstore::store::retry::RetryPolicy;
use runstore::store::slot::{self, SlotRequest};
use runstore::store::{journal, markers, observer_record, run};
use testkit::process::{now_ms, skip};

use crate::ask;
use crate::place::LIMIT_MS;

const RUN: &str = "run-1";

/// A prepared run and, once it was started, who is who.
pub(crate) struct Launch {
    pub(crate) root: tempfile::TempDir,
    pub(crate) host: RealHost,
    starter: Option<Child>,
    pub(crate) runner: ProcessRecord,
    /// Its observer; the runner itself where there is none.
    pub(crate) shim: i64,
}

impl Launch {
    /// Prepares a run and starts `script` under a shim, whose starter is a shell.
    pub(crate) fn of(script: &str) -> Self {
        Self::with(script, "")
    }

    /// The same; the shell first does something.
    pub(crate) fn with(script: &str, before: &str) -> Self {
        Self::start(&["sh"], before, |root| {
            ["sh", "-c", script, "runner", ask::utf8(root)].map(str::to_owned).to_vec()
        })
    }

    /// Prepares a run and starts `script` as a child of a shell that waits for it and tells nobody: as a
    /// launcher of a peer does whose session is over.
    pub(crate) fn unobserved(script: &str) -> Self {
        Self::begin(&["sh"], "", false, |root| {
            ["sh", "-c", script, "runner", ask::utf8(root)].map(str::to_owned).to_vec()
        })
    }

    /// Prepares a run of these steps and starts a runner under a shim.
    pub(crate) fn start(
        agents: &[&str],
        before: &str,
        runner: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        Self::begin(agents, before, true, runner)
    }

    fn begin(
        agents: &[&str],
        before: &str,
        observed: bool,
        runner: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let host = RealHost::new();
        let temp = host.open_dir(root.path()).expect("there");
        let retry = RetryPolicy::default();
        let runs = create_path(&host, &temp, &[layout::RUNS_DIR], &retry).expect("room");
        let dir = run::create(&host, &runs, &run_id(), &retry).expect("room");
        initialise(&host, &dir, &run_id(), "i").expect("room");
        let request = SlotRequest {
            session_id: "S",
            run_id: RUN,
            async_dir: ask::utf8(&run_dir(root.path())).to_owned().leak(),
            kind: SlotKind::Runner,
            limit: 1,
        };
        let mut held = slot::acquire(&host, &temp, &request).expect("free").expect("a limit");
        slot::bind(&host, &temp, &mut held, "i", now_ms()).expect("ours");
        let pipes = ["go", "ready"].map(|name| root.path().join(name));
        let made = Command::new("mkfifo").args(pipes).status();
        assert!(made.expect("there is mkfifo").success(), "a pipe can be made");
        // The starter outlives its word until it is killed.
        let says = if observed { "" } else { "echo $!;" };
        let shell = format!("{before}\n\"$@\" & {says} wait $!; exec sleep 1000");
        let mut starter = Command::new("sh");
        starter.args(["-c", &shell, "starter"]);
        if observed {
            starter
                .arg(ask::binary())
                .arg("shim")
                .arg("--root")
                .arg(root.path())
                .arg("--run-dir")
                .arg(run_dir(root.path()))
                .args(["--instance", "i", "--"]);
        }
        let mut starter = starter
            .args(runner(root.path()))
            .env("ROOT", root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let mut line = String::new();
        let out = starter.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("the shim says something");
        let runner = if observed {
            match Told::read(&line).expect("one line of JSON") {
                Told::Started(runner) => runner,
                Told::Failed(why) => panic!("not started: {why}"),
            }
        } else {
            let pid = line.trim().parse().expect("the shell says the number");
            ProcessRecord::of(pid, &host.process(pid), host.system())
        };
        let first = FirstStatus {
            run_id: RUN,
            session_id: Some("S"),
            completion_owner_id: None,
            tool_call_id: None,
            mode: if agents.len() > 1 { RunMode::Chain } else { RunMode::Single },
            agents,
            groups: &[],
            started_at_ms: now_ms(),
            process: &runner,
            instance_id: "i",
        };
        run::write_first(&host, &dir, &first).expect("room");
        markers::update(&host, &runs, &run_id(), RunState::Running, None, &retry).expect("room");
        let started = format!(
            r#"{{"type":"subagent.run.started","ts":{},"runId":"{RUN}","pid":{}}}"#,
            now_ms(),
            runner.pid
        );
        journal::append(&host, &dir, layout::EVENTS, &started, 1 << 20).expect("room");
        let shim = observer_record::read(&host, &dir).expect("readable");
        let shim = shim.map_or(runner.pid, |record| record.process.pid);
        Self { root, host, starter: Some(starter), runner, shim }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        run_dir(self.root.path())
    }

    pub(crate) fn kill_starter(&mut self) {
        let mut starter = self.starter.take().expect("it was not killed yet");
        starter.kill().expect("ours");
        starter.wait().expect("ours");
    }

    /// Lets the runner go on.
    pub(crate) fn go(&self) {
        self.open("go");
    }

    /// Opens a pipe for writing, which waits for its reader, and closes it.
    pub(crate) fn open(&self, pipe: &str) {
        drop(OpenOptions::new().write(true).open(self.root.path().join(pipe)).expect("a reader"));
    }

    /// Does `act`, then waits until the shim has ended.
    pub(crate) fn until_it_ends(&self, act: impl FnOnce()) {
        let handle = self.host.hold(self.shim).expect("Linux has handles").expect("it is there");
        act();
        self.is_over(&handle, "the shim");
    }

    pub(crate) fn kill(&self, pid: i64) {
        let handle = self.host.hold(pid).expect("Linux has handles").expect("it is there");
        self.host.signal_held(&handle, Signal::Kill).expect("ours");
        self.is_over(&handle, "what was killed");
    }

    fn is_over(&self, handle: &<RealHost as ProcessHost>::Handle, who: &str) {
        let ended = self.host.wait_held(handle, Some(LIMIT_MS)).expect("a handle");
        assert!(ended, "{who} ends: {}", self.root.path().display());
    }

    pub(crate) fn proof(&self) -> Proof {
        let text = fs::read_to_string(self.dir().join(layout::PROOF)).expect("there");
        Proof::read(&Document::parse(&text).expect("JSON")).expect("valid")
    }

    pub(crate) fn is_marked(&self) -> bool {
        let runs = self.root.path().join(layout::RUNS_DIR);
        runs.join(layout::ACTIVE_INDEX).join(RUN).exists()
    }

    pub(crate) fn slots(&self) -> usize {
        let temp = self.host.open_dir(self.root.path()).expect("there");
        slot::occupied(&self.host, &temp, "S").expect("readable").len()
    }

    pub(crate) fn witness(&self) -> Witnessed {
        let temp = self.host.open_dir(self.root.path()).expect("there");
        let runs = self.host.open_dir(&self.root.path().join(layout::RUNS_DIR)).expect("there");
        let dir = self.host.open_dir(&self.dir()).expect("there");
        let run_id = run_id();
        let place = RunPlace { temp: &temp, runs_root: &runs, run_dir: &dir, run_id: &run_id };
        witness(&self.host, &Subject { place, instance_id: "i" }, None, &mut |_| {})
            .expect("readable")
    }

    pub(crate) fn events(&self) -> String {
        fs::read_to_string(self.dir().join(layout::EVENTS)).unwrap_or_default()
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if let Some(mut starter) = self.starter.take() {
            // Both fail only if it was reaped already.
            let _ = starter.kill();
            let _ = starter.wait();
        }
        for pid in [self.runner.pid, self.shim] {
            if let Ok(Some(handle)) = self.host.hold(pid) {
                let _ = self.host.signal_held(&handle, Signal::Kill);
            }
        }
    }
}

pub(crate) fn run_dir(root: &Path) -> PathBuf {
    root.join(layout::RUNS_DIR).join(RUN)
}

pub(crate) fn run_id() -> RunId {
    RunId::parse(RUN).expect("an id")
}

/// Whether this system has what a shim needs to see everything.
pub(crate) fn has_handles(test: &str) -> bool {
    let there = RealHost::new().hold(i64::from(std::process::id())).is_ok();
    if !there {
        skip(test, "this system has no handles of processes");
    }
    there
}
