//! From what somebody typed to one run: where it is, what is true of it now, and its open directories.
//!
//! Theory of operation. A verb that acts on a run takes exactly one. [`OneRun::find`] resolves the word as
//! `inspect` does, by path, id, prefix or tool call, and refuses a word that fits several directories: what
//! is done to a run cannot be undone by asking again. [`OneRun::look`] judges it anew each time it is called,
//! because an answer is old as soon as it is read. What a verb that writes needs beside it is in `acting`.
//!
//! Reads only. Spec: RS-DIAG-32.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use runstore::inspect::{Inspection, LookupError, RunReport, find};
use runstore::protocol::evidence::Times;
use runstore::protocol::verdict::Verdict;
use runstore::store::{Depth, Host as _, Opened, RealHost, Snapshot, Store};

use crate::cli::exit_code::Code;
use crate::cli::output::Failure;
use crate::cli::run_args::OneRunArgs;

/// A directory of the real host.
pub(crate) type Dir = <RealHost as runstore::store::Host>::Dir;

/// One run directory.
#[derive(Debug)]
pub(crate) struct OneRun {
    /// Its absolute path.
    pub(crate) path: PathBuf,
    /// Its name.
    pub(crate) name: OsString,
    /// The temp root, where the run lies in one.
    #[cfg(unix)]
    pub(super) temp: Option<PathBuf>,
    /// The runs root: its path, and its names below the temp root.
    pub(super) runs: (PathBuf, String),
}

impl OneRun {
    /// Finds the run that was asked for. `verb` is what to say in a hint.
    pub(crate) fn find(host: &RealHost, verb: &str, args: &OneRunArgs) -> Result<Self, Failure> {
        let target = std::slice::from_ref(&args.target);
        let (_, ids) = super::split_targets(host, target, args.root.as_ref());
        match ids.first() {
            Some(id) => Self::by_id(host, verb, args, id),
            None => Self::by_path(host, verb, &args.target),
        }
    }

    fn by_path(host: &RealHost, verb: &str, path: &Path) -> Result<Self, Failure> {
        match open(host, path)? {
            Opened::Run(store, root, name) => Ok(Self::at(&store, root, name)),
            Opened::Store(_) => {
                let shown = path.display();
                Err(Failure::user(
                    Code::USAGE,
                    format!("{shown} holds many runs, and one is meant"),
                )
                .hint(format!("say which: runstore {verb} ID --root {shown}")))
            }
        }
    }

    fn by_id(host: &RealHost, verb: &str, args: &OneRunArgs, id: &str) -> Result<Self, Failure> {
        let hint = format!("say which store it is in: runstore {verb} {id} --root STORE");
        let roots = super::default_paths(host, args.root.as_ref(), &hint)?;
        let mut found = Vec::new();
        for root in &roots {
            let Opened::Store(store) = open(host, root)? else {
                return Err(super::not_a_store(root));
            };
            match find(&store, id) {
                Ok(places) => {
                    found.extend(places.into_iter().map(|at| Self::at(&store, at.root, at.name)));
                }
                Err(LookupError::NotFound(_)) => {}
                Err(e) => return Err(super::no_lookup(&e)),
            }
        }
        if found.len() > 1 {
            let paths: Vec<_> = found.iter().map(|run| run.path.display().to_string()).collect();
            let what = format!("'{id}' stands in several places: {}", paths.join(", "));
            return Err(Failure::user(Code::USAGE, what)
                .hint(format!("name the directory: runstore {verb} {}", paths[0])));
        }
        found.pop().ok_or_else(|| super::no_run_of(id, args.root.as_ref(), &roots))
    }

    /// The temp root, where the run lies in one.
    #[cfg(unix)]
    pub(crate) fn temp(&self) -> Option<&Path> {
        self.temp.as_deref()
    }

    fn at(store: &Store<'_, RealHost>, root: usize, name: OsString) -> Self {
        let runs = &store.runs_roots[root];
        // Without a temp root the runs root stands for it.
        #[cfg(unix)]
        let temp = (store.root != runs.path).then(|| store.root.clone());
        let path = runs.path.join(&name);
        let runs = (runs.path.clone(), runs.label.clone());
        Self {
            path,
            name,
            #[cfg(unix)]
            temp,
            runs,
        }
    }

    /// What is true of it now.
    pub(crate) fn look(&self, host: &RealHost) -> Result<(Snapshot, RunReport), Failure> {
        if let Opened::Run(store, root, name) = open(host, &self.path)? {
            let found = Inspection::new(&store, Depth::Full).one(root, &name, None);
            return found.ok_or_else(|| super::no_run_at(host, &self.path));
        }
        Err(super::no_run_at(host, &self.path))
    }

    /// How to name it in a command line that can be taken as it stands.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens its directory to read what lies there; the path to it was chosen by the caller.
    pub(crate) fn open_to_read(&self, host: &RealHost) -> Result<Dir, Failure> {
        let opened = host.open_dir(&self.runs.0);
        opened.and_then(|runs| host.open_dir_at(&runs, &self.name)).map_err(|e| self.not_opened(&e))
    }

    pub(super) fn not_opened(&self, e: &io::Error) -> Failure {
        let code = if e.kind() == io::ErrorKind::NotFound { Code::NOT_FOUND } else { Code::IO };
        Failure::user(code, format!("{} cannot be opened", self.path.display())).because(e)
    }
}

pub(super) fn open<'h>(host: &'h RealHost, path: &Path) -> Result<Opened<'h, RealHost>, Failure> {
    super::open_at(host, path, host.now_ms(), Times::default())
}

/// Whether a run may still do something: it has not ended, and its runner is not demonstrably gone. A pause
/// without an end is not confirmed: its steps may still be ending.
pub(crate) fn goes_on(snapshot: &Snapshot, report: &RunReport) -> bool {
    let has_ended = || {
        let status = snapshot.evidence.status.value();
        status.is_some_and(|status| status.ended_at_ms.is_some())
    };
    match report.verdict_word {
        Some(
            Verdict::Starting | Verdict::StartStuck | Verdict::Running | Verdict::RunningUnverified,
        ) => true,
        Some(Verdict::Paused) => !has_ended(),
        _ => false,
    }
}
