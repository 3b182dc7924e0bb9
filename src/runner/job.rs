//! Which run is executed, by whom, and the two ways in which it is told of: its status and its log.
//!
//! Theory of operation. A [`Job`] names the run and everything of the store that its runner writes to; it owns
//! nothing. A runner that was let in opens these places once ([`Desk`]), before it does anything: a run whose
//! result has no place is better failed than worked for. `update` and `tell` are the only two ways in
//! which a runner's modules speak of the run; the first is refused when somebody else has told the end, the
//! second is advice.
//!
//! Ordered steps of [`Desk::open`]: the runs root, which is there; the directory of the result, which the
//! configuration names and which is made if it is missing; of a nested run the route of its news ([`News`]). A
//! route that cannot be used costs the run nothing but its news, which is said in its log. A crash in between
//! leaves an empty directory. Spec: RS-STEP-03, RS-RESULT-40, RS-NEST-37; facts L-32, Q-42, S-99.

use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::account::Author;
use crate::protocol::error::with_causes;
use crate::protocol::nested::Route;
use crate::protocol::nested_summary::ChildEvent;
use crate::protocol::written_nested::{NestedSelf, SummaryText};
use crate::protocol::written_status::StatusPatch;
use crate::protocol::{Document, Raw, layout, limits, written, written_run};
use crate::store::advisory::Locks;
use crate::store::host::WriteHost;
use crate::store::nested::{self, OpenRoute};
use crate::store::proof::RunPlace;
use crate::store::retry::RetryPolicy;
use crate::store::run::{self, StatusPlace};
use crate::store::sidecar::PatchError;
use crate::store::{directory, journal};

use super::startup::Committed;

/// The run that is executed, and who executes it.
pub struct Job<'a, H: WriteHost> {
    /// The host.
    pub host: &'a H,
    /// Where the run lies.
    pub place: RunPlace<'a, H::Dir>,
    /// The directory of its result: the results root, if nobody wants it elsewhere.
    pub results: &'a H::Dir,
    /// The locks of the runs root, where our own processes are to take turns.
    pub locks: Option<&'a Locks<'a, H>>,
    /// The instance that the launcher chose for this runner.
    pub instance_id: &'a str,
    /// The owning session. Without it there is no result (facts S-98).
    pub session_id: Option<&'a str>,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// The working directory, for the records.
    pub cwd: &'a str,
    /// The path of the run directory, for the records.
    pub async_dir: &'a str,
    /// Name and token of the lease that a revived run holds.
    pub lease: Option<(&'a str, &'a str)>,
}

impl<H: WriteHost> fmt::Debug for Job<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("run_id", self.place.run_id).finish_non_exhaustive()
    }
}

/// Why a run was given up.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunnerError {
    /// The run has no step.
    Nothing,
    /// The first status could not be written. Nothing was begun.
    Begin(PatchError),
    /// The account of somebody else stands in the status for good.
    Displaced(PatchError),
    /// The end could not be recorded.
    Status(PatchError),
    /// The system no longer knows a step.
    Lost(io::Error),
    /// Something was told of a step that cannot be: what the step would have to be.
    Misplaced {
        /// The step.
        step: usize,
        /// What it is not.
        expected: &'static str,
    },
}

impl fmt::Display for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("there is nothing to be run"),
            Self::Begin(_) => f.write_str("the begin of the run could not be recorded"),
            Self::Displaced(_) => f.write_str("somebody else has told the end of this run"),
            Self::Status(_) => f.write_str("the end of the run could not be recorded"),
            Self::Lost(_) => f.write_str("a step cannot be waited for any more"),
            Self::Misplaced { step, expected } => write!(f, "steps[{step}] is not {expected}"),
        }
    }
}

impl std::error::Error for RunnerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Nothing | Self::Misplaced { .. } => None,
            Self::Begin(e) | Self::Displaced(e) | Self::Status(e) => Some(e),
            Self::Lost(e) => Some(e),
        }
    }
}

/// Changes the status of a run, as its runner.
pub(super) fn update<H: WriteHost>(
    job: &Job<'_, H>,
    patch: &StatusPatch,
) -> Result<(), PatchError> {
    let RunPlace { run_dir, run_id, .. } = &job.place;
    let place = StatusPlace { host: job.host, run_dir, run_id, locks: job.locks };
    run::update(&place, Author::Runner { instance: job.instance_id }, patch).map(drop)
}

/// Appends a line to the log; it is advice, so its failure is nobody's.
pub(super) fn tell<H: WriteHost>(
    job: &Job<'_, H>,
    kind: &str,
    is_versioned: bool,
    members: &[(&str, String)],
) {
    let (host, run_id) = (job.host, job.place.run_id.as_str());
    let line = written_run::event(kind, run_id, host.now_ms(), is_versioned, members);
    let max_bytes = limits::EVENTS_MAX_BYTES;
    let _ = journal::append(host, job.place.run_dir, layout::EVENTS, &line, max_bytes);
}

/// Where news of a nested run goes, and whose child it is.
#[derive(Debug)]
pub struct News<D> {
    route: OpenRoute<D>,
    own: NestedSelf,
}

impl<D> News<D> {
    /// The news of a nested run go into this route.
    pub fn new(route: OpenRoute<D>, own: NestedSelf) -> Self {
        Self { route, own }
    }

    /// Puts news into the route. A failure is told in the log of the run, and is nobody's.
    pub(super) fn put<H: WriteHost<Dir = D>>(
        &self,
        job: &Job<'_, H>,
        kind: ChildEvent,
        of: &SummaryText<'_>,
    ) {
        if let Err(e) = nested::put_event(job.host, &self.route, kind, &self.own, of) {
            untold(job, &with_causes(&e));
        }
    }
}

/// Says in the log of a run that news of it did not reach its root.
pub(super) fn untold<H: WriteHost>(job: &Job<'_, H>, why: &str) {
    tell(job, "runstore.nested.untold", false, &[("message", written::string(why))]);
}

/// Why the places of a run could not be opened. The runner was let in: [`Committed::fail`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DeskError {
    /// The runs root is not to be entered.
    RunsRoot(io::Error),
    /// The configuration names no file for the result, or one that no index can lead to.
    NoResult,
    /// The directory of the result is not to be entered, and could not be made.
    Results(io::Error),
}

impl fmt::Display for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunsRoot(_) => "the directory of all runs cannot be entered",
            Self::NoResult => "resultPath names no absolute path that ends in .json",
            Self::Results(_) => "there is no place for the result",
        })
    }
}

impl std::error::Error for DeskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::RunsRoot(e) | Self::Results(e) => Some(e),
            Self::NoResult => None,
        }
    }
}

/// The places of a run whose runner was let in. See the module's ordered steps.
pub struct Desk<'c, 'a, H: WriteHost> {
    committed: &'c Committed<'a, H>,
    runs_root: H::Dir,
    results: H::Dir,
    result_file: String,
    async_dir: String,
    news: Result<Option<News<H::Dir>>, String>,
}

impl<H: WriteHost> fmt::Debug for Desk<'_, '_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut desk = f.debug_struct("Desk");
        desk.field("committed", &self.committed).field("result_file", &self.result_file);
        desk.finish_non_exhaustive()
    }
}

impl<'c, 'a, H: WriteHost> Desk<'c, 'a, H> {
    /// Opens the places of a run.
    /// Spec: RS-RESULT-40.
    ///
    /// # Errors
    /// [`DeskError`]; nothing of the run was touched.
    pub fn open(committed: &'c Committed<'a, H>) -> Result<Self, DeskError> {
        let (host, config) = (committed.host, committed.config);
        let async_dir = config.async_dir();
        let above = async_dir.parent().unwrap_or(async_dir);
        let runs_root = host.open_dir(above).map_err(DeskError::RunsRoot)?;
        let path = Path::new(config.view().result_path.as_deref().unwrap_or_default());
        let file = path.file_name().and_then(|name| name.to_str());
        // No index can lead to another name (RS-RESULT-06), and it is too late to find that out at the end.
        let file = file.filter(|name| name.len() > ".json".len() && name.ends_with(".json"));
        let file = file.ok_or(DeskError::NoResult)?;
        let parent = path.parent().filter(|_| path.is_absolute()).ok_or(DeskError::NoResult)?;
        let results = reached(host, parent).map_err(DeskError::Results)?;
        let async_dir = async_dir.to_string_lossy().into_owned();
        let (result_file, news) = (file.to_owned(), news_of(committed));
        Ok(Self { committed, runs_root, results, result_file, async_dir, news })
    }

    /// The locks of the runs root, for [`Desk::job`]. A change waits for another process of ours at most so
    /// long.
    pub fn locks(&self, wait_ms: u64) -> Locks<'_, H> {
        Locks::new(self.committed.host, &self.runs_root, layout::RUNS_DIR, wait_ms)
    }

    /// The run, and who executes it.
    pub fn job<'d>(&'d self, locks: Option<&'d Locks<'d, H>>) -> Job<'d, H> {
        let Committed { host, temp, run_dir, config, lease } = self.committed;
        let run_id = config.run_id();
        Job {
            host,
            place: RunPlace { temp, runs_root: &self.runs_root, run_dir, run_id },
            results: &self.results,
            locks,
            instance_id: config.instance_id().unwrap_or_default(),
            session_id: config.session_id(),
            completion_owner_id: config.completion_owner_id(),
            cwd: config.view().cwd.as_deref().unwrap_or_default(),
            async_dir: &self.async_dir,
            lease: lease.as_ref().map(|held| (&*held.id, &*held.owner.token)),
        }
    }

    /// The name of the result in its directory.
    pub fn result_file(&self) -> &str {
        &self.result_file
    }

    /// Where news of the run goes, if it is a nested one; or why it cannot go there.
    ///
    /// # Errors
    /// One sentence. The run goes on without news.
    pub fn news(&self) -> Result<Option<&News<H::Dir>>, &str> {
        self.news.as_ref().map(Option::as_ref).map_err(String::as_str)
    }
}

/// The route of a nested run. A run with a route and no parent is a root, which has no news for itself.
fn news_of<H: WriteHost>(committed: &Committed<'_, H>) -> Result<Option<News<H::Dir>>, String> {
    let Ok(doc) = Document::parse(committed.config.text()) else { return Ok(None) };
    let object = |key: &str| doc.get(key).and_then(Raw::object);
    let (Some(route), Some(own)) = (object("nestedRoute"), object("nestedSelf")) else {
        return Ok(None);
    };
    let named = Route::read_member(&route).map_err(|e| e.to_string())?;
    let own = NestedSelf::read(&own).map_err(|e| e.to_string())?;
    let route = nested::open_route(committed.host, committed.temp, &named);
    route.map(|route| Some(News { route, own })).map_err(|e| with_causes(&e))
}

/// A directory, made with those above it that are missing. What is there already is the caller's choice, links
/// included; no link is followed below it.
fn reached<H: WriteHost>(host: &H, path: &Path) -> io::Result<H::Dir> {
    match host.open_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let parent = reached(host, parent)?;
    let made = directory::create_durable(host, &parent, name, &RetryPolicy::default());
    made.map(|(dir, _)| dir).map_err(|e| e.source)
}
