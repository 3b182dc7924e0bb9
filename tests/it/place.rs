//! A place of its own for a test with processes that outlive whoever started them.
//!
//! Theory of operation. What is started for a place has a variable in its environment that names it, and
//! passes it on; so everything that still runs is found, whoever is its parent, and it can be waited for until
//! nothing does. Processes are waited for by their handles, each for [`LIMIT_MS`] at most.
//!
//! Not promised: finding a process that cleared its environment, or that this user may not look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use runstore::protocol::layout;
use runstore::store::RealHost;
use runstore::store::host::{Host as _, ProcessHost as _, Signal, WriteHost as _};
use runstore::store::slot::occupied;

use crate::ask;

/// Nothing that a test starts takes longer, in ms, however busy the machine is.
pub(crate) const LIMIT_MS: u64 = 120_000;

const MARK: &str = "RUNSTORE_TEST_PLACE";

/// Waits until something holds, and fails when that takes longer than [`LIMIT_MS`].
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_millis(LIMIT_MS), "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Waits for the end of a child; one that goes on for longer than [`LIMIT_MS`] is killed, and that is a failure.
pub(crate) fn end_of(what: &str, child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("ours") {
            return status;
        }
        if begin.elapsed() > Duration::from_millis(LIMIT_MS) {
            child.kill().and_then(|()| child.wait()).expect("ours");
            panic!("it does not end: {what}");
        }
        std::thread::yield_now();
    }
}

pub(crate) struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
    pub(crate) host: RealHost,
}

impl Place {
    /// In memory, where that can be had: nothing here waits for a disk.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
        let path = dir.path().canonicalize().expect("there");
        Self { _dir: dir, path, host: RealHost::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The store, which is not there yet.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// A pipe with a name.
    pub(crate) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a pipe");
        path
    }

    /// A program with nothing on its input and the mark of this place.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(MARK, &self.path).stdin(Stdio::null());
        command
    }

    /// `runstore run` with these words in the store of this place.
    pub(crate) fn run(&self, args: &[&str]) -> Command {
        let mut command = self.command(&ask::binary());
        command.arg("run").arg("--root").arg(self.root()).args(args);
        command
    }

    /// The only run of the store.
    pub(crate) fn only_run(&self) -> PathBuf {
        let runs = self.root().join(layout::RUNS_DIR);
        let names = fs::read_dir(&runs).expect("there").map(|e| e.expect("readable").file_name());
        let found: Vec<_> = names.filter(|n| !n.to_string_lossy().starts_with('.')).collect();
        assert_eq!(found.len(), 1, "one alone: {found:?}");
        runs.join(&found[0])
    }

    /// How many slots of a session are occupied.
    pub(crate) fn slots(&self, session: &str) -> usize {
        let temp = self.host.open_dir(&self.root()).expect("there");
        occupied(&self.host, &temp, session).expect("readable").len()
    }

    /// Everything of this place that has not ended.
    pub(crate) fn living(&self) -> Vec<i64> {
        let mark = format!("{MARK}={}", self.path.display());
        let entries = fs::read_dir("/proc").expect("Linux");
        let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i64>().ok());
        pids.filter(|pid| {
            // That of a process which has ended is empty.
            let vars = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            vars.split(|b| *b == 0).any(|var| var == mark.as_bytes())
        })
        .collect()
    }

    /// Waits until nothing of this place runs.
    pub(crate) fn until_nothing_runs(&self) {
        let mut looks = 0;
        // A process that was made during a look, by one that then ended, is found by the next.
        while looks < 2 {
            looks += 1;
            for pid in self.living() {
                looks = 0;
                self.until_ended(pid);
            }
        }
    }

    /// Kills whatever runs here but its shims, which end after it, until nothing is left.
    pub(crate) fn kill_all(&self) {
        let since = self.host.steady_ms();
        // Again: a process that is only being made looks like the one that makes it.
        loop {
            let living = self.living();
            if living.is_empty() {
                return;
            }
            for pid in living {
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let is_shim = words.split(|b| *b == 0).any(|word| word == b"shim");
                if let Some(process) = self.host.hold(pid).expect("there are handles")
                    && !is_shim
                {
                    // It may have ended.
                    let _ = self.host.signal_held(&process, Signal::Kill);
                }
            }
            let waited = self.host.steady_ms() - since;
            assert!(waited.unsigned_abs() < LIMIT_MS, "killed ones end: {}", self.path.display());
            self.host.wait_ms(10);
        }
    }

    /// Waits for the end of one process.
    pub(crate) fn until_ended(&self, pid: i64) {
        if let Some(process) = self.host.hold(pid).expect("there are handles") {
            let ended = self.host.wait_held(&process, Some(LIMIT_MS)).expect("a handle");
            assert!(ended, "{pid} ends by itself: {}", self.path.display());
        }
    }

    /// Descriptors of any process that lead into this place, as `pid: path`.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").expect("Linux").filter_map(Result::ok) {
            let open = fs::read_dir(process.path().join("fd")).into_iter().flatten();
            for to in open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()) {
                if to.starts_with(&self.path) {
                    found.push(format!("{}: {}", process.path().display(), to.display()));
                }
            }
        }
        found
    }
}
