//! The start-up: our launcher and our runner, each against the other and against peers of every dialect.
//!
//! Theory of operation. Almost everything happens on a disk in memory, whose clock only waits move; [`real`] is
//! the store of the tests that need real files or processes. One side is the
//! library; the other is played: [`peers`] holds scripted launchers and runners, one for each row of the
//! table of dialects, which look at raw files and know nothing of the library. Whenever the library's side
//! pauses, the other side gets its turn, so no order depends on chance and nothing sleeps.

mod hostile;
mod launching;
mod nested;
mod pairs;
mod peers;
mod processes;
mod real;
mod running;
mod shimmed;
mod slots;
mod told;
mod vectors;
mod woken;

use std::path::Path;

use runstore::launcher::{Launch, Place, Prepared, Request, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::host::WriteHost as _;
use serde_json::Value;
use testkit::child::{Child, Spawner};
use testkit::fault::FaultHost;
use testkit::launch::STEPS;

pub(super) const REVIVAL: RevivalText<'static> =
    RevivalText { session_file: "/s.jsonl", source_run_id: "run-0" };
const RUN: &str = "/async-subagent-runs/run-1";

/// A store in memory.
pub(super) struct World {
    pub(super) host: FaultHost,
    pub(super) run_id: RunId,
    runs: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let host = FaultHost::new();
        host.put("/s.jsonl", "{}\n");
        host.make_dir("/async-subagent-runs");
        let runs = host.dir("/async-subagent-runs");
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
        self.host.dir(RUN)
    }

    /// A file of the run, if it is there.
    pub(super) fn file(&self, name: &str) -> Option<Value> {
        let bytes = self.host.bytes(&format!("{RUN}/{name}"))?;
        Some(serde_json::from_slice(&bytes).expect("JSON"))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.host.has(path)
    }

    /// Puts a file into the run directory, as another process would.
    pub(super) fn put(&self, name: &str, text: &str) {
        self.host.put(&format!("{RUN}/{name}"), text);
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = self.host.unlink(&self.run_dir(), name.as_ref());
    }
}
