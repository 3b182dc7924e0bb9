//! A store on a real disk, for start-ups with real files and processes.

use std::fs;
use std::path::PathBuf;

use runstore::launcher::{Place, Prepared, Request, SlotWish, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::lease::LeaseState;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::RealHost;
use runstore::store::host::Host as _;
use runstore::store::lease::{self, canonical_id};
use testkit::launch::STEPS;

/// A store on a real disk.
pub(super) struct Real {
    _temp: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) runs: PathBuf,
    pub(super) host: RealHost,
}

impl Real {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().expect("room");
        let root = temp.path().canonicalize().expect("there");
        let runs = root.join("async-subagent-runs");
        fs::create_dir(&runs).expect("room");
        Self { _temp: temp, root, runs, host: RealHost::new() }
    }

    /// A session file of its own for a run.
    pub(super) fn session(&self, run: &str) -> PathBuf {
        let path = self.root.join(format!("{run}.jsonl"));
        fs::write(&path, "{}\n").expect("room");
        path
    }

    /// Who holds that session.
    pub(super) fn lease(&self, run: &str) -> LeaseState {
        let session = self.root.join(format!("{run}.jsonl"));
        let id = canonical_id(&self.host, &session).expect("there").id;
        let temp = self.host.open_dir(&self.root).expect("there");
        lease::inspect(&self.host, &temp, &id)
    }

    /// Prepares a run and hands it on.
    pub(super) fn with<T>(
        &self,
        run: &str,
        is_revival: bool,
        act: impl FnOnce(Prepared<'_, RealHost>) -> T,
    ) -> T {
        let run_id = RunId::parse(run).expect("an id");
        let temp = self.host.open_dir(&self.root).expect("there");
        let runs_root = self.host.open_dir(&self.runs).expect("there");
        let place = Place {
            temp: &temp,
            temp_path: &self.root,
            runs_root: &runs_root,
            runs_path: &self.runs,
        };
        let session = self.session(run);
        let session_file = session.to_str().expect("text");
        let revival = RevivalText { session_file, source_run_id: "run-0" };
        let result = self.root.join("results").join(run);
        let request = Request {
            session_id: Some("S"),
            slot: Some(SlotWish { limit: 64, source: None }),
            revival: is_revival.then_some(revival),
            ..Request::new(&run_id, RunMode::Single, STEPS, &self.root, &result)
        };
        act(prepare(&self.host, place, request).expect("nothing is in the way"))
    }
}
