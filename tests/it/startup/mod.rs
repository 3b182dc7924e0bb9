//! The start-up: our launcher and our runner, each against the other and against peers of every dialect.
//!
//! Theory of operation. Everything happens on a disk in memory, whose clock only waits move. One side is the
//! library; the other is played: [`peers`] holds scripted launchers and runners, one for each row of the
//! table of dialects, which look at raw files and know nothing of the library. Whenever the library's side
//! pauses, the other side gets its turn, so no order depends on chance and nothing sleeps.

mod hostile;
mod launching;
mod pairs;
mod peers;
mod processes;
mod running;
mod told;
mod vectors;

use std::path::Path;

use runstore::launcher::{Launch, Outcome, Place, Poll, Prepared, Request, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::directory::create;
use runstore::store::host::{Host as _, Part, WriteHost as _};
use runstore::store::retry::RetryPolicy;
use serde_json::Value;
use testkit::child::{Child, Spawner};
use testkit::fault::FaultHost;

pub(super) const STEPS: &str = r#"[{"agent":"a","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false}]"#;
pub(super) const REVIVAL: RevivalText<'static> =
    RevivalText { session_file: "/s.jsonl", source_run_id: "run-0" };
/// More turns than any start-up takes: 90 s in steps of 20 ms.
const MAX_TURNS: usize = 4_500;

/// A store in memory.
pub(super) struct World {
    pub(super) host: FaultHost,
    pub(super) run_id: RunId,
    runs: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let host = FaultHost::new();
        let file = host.create(&0, "s.jsonl".as_ref(), 0o600).expect("room");
        host.write(&file, b"{}\n").expect("room");
        let (runs, _) =
            create(&host, &0, "async-subagent-runs", &RetryPolicy::never()).expect("room");
        Self { host, run_id: RunId::parse("run-1").expect("an id"), runs }
    }

    pub(super) fn request(&self) -> Request<'_> {
        let (cwd, result) = (Path::new("/"), Path::new("/async-subagent-results/run-1.json"));
        Request {
            session_id: Some("S"),
            completion_owner_id: Some("o"),
            ..Request::new(&self.run_id, RunMode::Single, STEPS, cwd, result)
        }
    }

    pub(super) fn revival(&self) -> Request<'_> {
        Request { revival: Some(REVIVAL), ..self.request() }
    }

    pub(super) fn place(&self) -> Place<'_, usize> {
        Place {
            temp: &0,
            temp_path: Path::new("/"),
            runs_root: &self.runs,
            runs_path: Path::new("/async-subagent-runs"),
        }
    }

    pub(super) fn prepared<'a>(&'a self, request: Request<'a>) -> Prepared<'a, FaultHost> {
        prepare(&self.host, self.place(), request).expect("nothing is in the way")
    }

    pub(super) fn launch<'a>(
        &'a self,
        request: Request<'a>,
        child: &Child,
    ) -> Launch<'a, FaultHost> {
        self.prepared(request).start(&mut Spawner::of(child)).expect("it is made")
    }

    pub(super) fn run_dir(&self) -> usize {
        self.host.open_dir(Path::new("/async-subagent-runs/run-1")).expect("made")
    }

    /// A file of the run, if it is there.
    pub(super) fn file(&self, name: &str) -> Option<Value> {
        let read = self.host.read_at(&self.run_dir(), name.as_ref(), Part::All(1 << 20)).ok()?;
        Some(serde_json::from_slice(&read.bytes).expect("JSON"))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.host.stat(Path::new(path)).is_ok()
    }

    /// Puts a file into the run directory, as another process would.
    pub(super) fn put(&self, name: &str, text: &str) {
        let dir = self.run_dir();
        let _ = self.host.unlink(&dir, name.as_ref());
        let file = self.host.create(&dir, name.as_ref(), 0o600).expect("room");
        self.host.write(&file, text.as_bytes()).expect("room");
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = self.host.unlink(&self.run_dir(), name.as_ref());
    }
}

/// Leads a launch to its end; the other side has its turn at every pause. Says how long it took, in ms.
pub(super) fn lead<'l>(
    world: &World,
    launch: &'l mut Launch<'_, FaultHost>,
    mut other: impl FnMut(),
) -> (&'l Outcome, i64) {
    let since = world.host.now_ms();
    let mut turns = 0;
    while let Poll::Wait(ms) = launch.poll() {
        turns += 1;
        assert!(turns < MAX_TURNS, "a start-up has an end");
        other();
        world.host.wait_ms(ms);
    }
    let took = world.host.now_ms() - since;
    match launch.poll() {
        Poll::Done(outcome) => (outcome, took),
        Poll::Wait(_) => unreachable!("done stays done"),
    }
}
