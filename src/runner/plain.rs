//! The built-in runner from its configuration to the end of the run.
//!
//! Ordered steps of [`execute`]:
//! 1. read the configuration, which removes it ([`read_config`]);
//! 2. take the session, if one is revived, and see whether every step is a command. Before the runner is let in:
//!    a launcher that hears of it says so at once, and nothing is recorded as begun;
//! 3. wait to be let in, and commit ([`Startup`]);
//! 4. open what the end will need. Before the first step: a run whose result has no place is better failed
//!    than worked for;
//! 5. run the steps and end in order ([`steps::run`]).
//!
//! What a crash leaves is in the text of each step's module. A failure after step 3 is recorded in the run
//! ([`Committed::fail`]); one before it is told to the launcher. Spec: RS-STEP-09, RS-START-44 to RS-START-53.

use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::command_step::{self, CommandStep};
use crate::protocol::error::with_causes;
use crate::protocol::{DecodeError, Document, layout, limits};
use crate::store::advisory::Locks;
use crate::store::atomic::WriteError;
use crate::store::proof::RunPlace;
use crate::store::retry::RetryPolicy;
use crate::store::{ProcessHost, WatchHost, directory};

use super::finish::Finished;
use super::startup::{Committed, Config, ConfigError, Startup, StartupError, read_config};
use super::steps::{self, Job, Plan, RunnerError, Step};

/// How long it is waited for another process of ours that changes the same file, in ms.
const LOCK_MS: u64 = 2_000;

/// Why a runner ended without the end of a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The configuration is none that a runner takes.
    Config(ConfigError),
    /// A directory of the store cannot be opened.
    Place(&'static str, io::Error),
    /// It was not let in, or could not begin. The launcher was told, or the run.
    Startup(StartupError),
    /// There is no place for the result. The run was told.
    Results(WriteError),
    /// It was let in, and the steps could not be led to an end.
    Run(RunnerError),
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(_) => f.write_str("the configuration is not taken"),
            Self::Place(what, _) => write!(f, "{what} cannot be opened"),
            Self::Startup(_) => f.write_str("the runner did not begin"),
            Self::Results(_) => f.write_str("there is no place for the result"),
            Self::Run(_) => f.write_str("the run was given up"),
        }
    }
}

impl std::error::Error for ExecuteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(e) => Some(e),
            Self::Place(_, e) => Some(e),
            Self::Startup(e) => Some(e),
            Self::Results(e) => Some(e),
            Self::Run(e) => Some(e),
        }
    }
}

/// Runs what a configuration asks for. See the module's ordered steps.
///
/// # Errors
/// [`ExecuteError`]; whoever can be told was told.
pub fn execute<H: ProcessHost + WatchHost>(
    host: &H,
    config_path: &Path,
    budget_ms: u64,
) -> Result<Finished, ExecuteError> {
    let config = read_config(host, config_path).map_err(ExecuteError::Config)?;
    let open = |what: &'static str, path: Option<&Path>| {
        let path = path.ok_or_else(|| ExecuteError::Place(what, io::ErrorKind::NotFound.into()))?;
        host.open_dir(path).map_err(|e| ExecuteError::Place(what, e))
    };
    let config_path = host.absolute(config_path);
    let temp = open("the store of the configuration", config_path.parent())?;
    let runs_root = open("the directory of all runs", config.async_dir().parent())?;
    let startup = Startup::begin(host, &temp, &config, budget_ms).map_err(ExecuteError::Startup)?;
    let plan = match plan(&config, host.now_ms()) {
        Ok(plan) => plan,
        Err(e) => {
            let why = format!("the steps are not taken: {}", with_causes(&e));
            return Err(ExecuteError::Startup(startup.refuse(&why)));
        }
    };
    let committed = startup.wait().map_err(ExecuteError::Startup)?;
    let names = [layout::RESULTS_DIR];
    let results = match directory::create_path(host, &temp, &names, &RetryPolicy::default()) {
        Ok(results) => results,
        Err(e) => {
            // What could not be recorded either is for the shim to tell.
            let _ = committed.fail(&with_causes(&e));
            return Err(ExecuteError::Results(e));
        }
    };
    work(&committed, &runs_root, &results, &plan).map_err(ExecuteError::Run)
}

fn work<H: ProcessHost>(
    committed: &Committed<'_, H>,
    runs_root: &H::Dir,
    results: &H::Dir,
    plan: &Plan,
) -> Result<Finished, RunnerError> {
    let (host, config) = (committed.host, committed.config);
    let locks = Locks::new(host, runs_root, layout::RUNS_DIR, LOCK_MS);
    let run_id = config.run_id();
    let job = Job {
        host,
        place: RunPlace { temp: committed.temp, runs_root, run_dir: &committed.run_dir, run_id },
        results,
        locks: Some(&locks),
        instance_id: config.instance_id().unwrap_or_default(),
        session_id: config.session_id(),
        completion_owner_id: config.completion_owner_id(),
        cwd: config.view().cwd.as_deref().unwrap_or_default(),
        async_dir: &config.async_dir().to_string_lossy(),
        lease: committed.lease.as_ref().map(|held| (&*held.id, &*held.owner.token)),
    };
    steps::run(&job, plan)
}

/// What a configuration asks for. Spec: RS-STEP-09.
fn plan(config: &Config, now_ms: i64) -> Result<Plan, DecodeError> {
    let doc = Document::parse(config.text())?;
    let step = |step: CommandStep| {
        let mut words = step.command.into_iter();
        Step {
            agent: step.agent,
            program: words.next().unwrap_or_default().into(),
            args: words.map(Into::into).collect(),
            cwd: step.cwd.map(Into::into),
            env: step
                .env
                .into_iter()
                .map(|(key, value)| (key.into(), value.map(Into::into)))
                .collect(),
        }
    };
    let groups = command_step::groups(&doc)?;
    let groups = groups.into_iter().map(|group| group.into_iter().map(step).collect()).collect();
    let view = config.view();
    let limit = view.timeout_ms.map(|ms| now_ms.saturating_add(ms));
    let deadline_at_ms = [view.deadline_at_ms, limit].into_iter().flatten().min();
    Ok(Plan { groups, deadline_at_ms, output_max_bytes: limits::OUTPUT_MAX_BYTES })
}
