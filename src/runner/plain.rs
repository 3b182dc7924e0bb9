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
//! ([`Committed::fail`](super::startup::Committed::fail)); one before it is told to the launcher. Spec: RS-STEP-09, RS-START-44 to RS-START-53.

use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::command_session::{self, CommandSession};
use crate::protocol::command_step::{self, CommandStep};
use crate::protocol::error::with_causes;
use crate::protocol::{DecodeError, Document, layout, limits};
use crate::store::atomic::{self, Durability, Options};
use crate::store::host::{Part, ReadError};
use crate::store::retry::RetryPolicy;
use crate::store::{ProcessHost, WatchHost, WriteHost, directory};

use super::finish::Finished;
use super::job::{Desk, DeskError};
use super::startup::{Config, ConfigError, Startup, StartupError, Variant, read_config};
use super::steps::{self, Plan, Remainder, RunnerError, Step};

/// How long it is waited for another process of ours that changes the same file, in ms.
const LOCK_MS: u64 = 2_000;

/// Why a runner ended without the end of a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The configuration is none that a runner takes.
    Config(ConfigError),
    /// The store that the configuration lay in cannot be opened.
    Store(io::Error),
    /// It was not let in, or could not begin. The launcher was told, or the run.
    Startup(StartupError),
    /// A place that the run needs is not there. The run was told.
    Desk(DeskError),
    /// It was let in, and the steps could not be led to an end.
    Run(RunnerError),
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(_) => f.write_str("the configuration is not taken"),
            Self::Store(_) => f.write_str("the store of the configuration cannot be opened"),
            Self::Startup(_) => f.write_str("the runner did not begin"),
            Self::Desk(_) => f.write_str("a place that the run needs cannot be opened"),
            Self::Run(_) => f.write_str("the run was given up"),
        }
    }
}

impl std::error::Error for ExecuteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(e) => Some(e),
            Self::Store(e) => Some(e),
            Self::Startup(e) => Some(e),
            Self::Desk(e) => Some(e),
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
    let config_path = host.absolute(config_path);
    let store = config_path.parent().unwrap_or(&config_path);
    let temp = host.open_dir(store).map_err(ExecuteError::Store)?;
    let startup = Startup::begin(host, &temp, &config, budget_ms).map_err(ExecuteError::Startup)?;
    let (plan, groups) = match plan(&config, host.now_ms()) {
        Ok(planned) => planned,
        Err(e) => {
            let why = format!("the steps are not taken: {}", with_causes(&e));
            return Err(ExecuteError::Startup(startup.refuse(&why)));
        }
    };
    let committed = startup.wait().map_err(ExecuteError::Startup)?;
    let desk = match Desk::open(&committed) {
        Ok(desk) => desk,
        Err(e) => {
            // What could not be recorded either is for the shim to tell.
            let _ = committed.fail(&with_causes(&e));
            return Err(ExecuteError::Desk(e));
        }
    };
    let session = Session::of(host, store, &temp, &config, groups);
    let locks = desk.locks(LOCK_MS);
    let done = steps::run_at(&desk, &desk.job(Some(&locks)), &plan, Some(&session));
    if let Err(RunnerError::Begin(e)) = &done {
        // Best effort: what could not be written a moment ago may be written now.
        let why = with_causes(e);
        let _ = committed.fail(&why);
    }
    done.map_err(ExecuteError::Run)
}

/// The session of a run: its own file, or that of the run that it resumes.
/// Spec: RS-STEP-10.
struct Session<'a, H: WriteHost> {
    host: &'a H,
    temp: &'a H::Dir,
    config: &'a Config,
    groups: Vec<Vec<CommandStep>>,
    path: String,
    is_revival: bool,
}

impl<'a, H: WriteHost> Session<'a, H> {
    fn of(
        host: &'a H,
        store: &Path,
        temp: &'a H::Dir,
        config: &'a Config,
        groups: Vec<Vec<CommandStep>>,
    ) -> Self {
        let (path, is_revival) = match config.variant() {
            Variant::Revival { session_file, .. } => (session_file.clone(), true),
            // In no run directory: that of a run that is resumed is only referred to.
            _ => {
                let file = format!("{}.jsonl", config.run_id());
                let own = store.join(layout::OWN_DIR);
                (own.join(layout::SESSIONS_DIR).join(file), false)
            }
        };
        let path = path.to_string_lossy().into_owned();
        Self { host, temp, config, groups, path, is_revival }
    }
}

impl<H: WriteHost> Remainder for Session<'_, H> {
    fn resumed(&self) -> Option<&str> {
        self.is_revival.then_some(&*self.path)
    }

    fn leave(&self, done: &[bool], is_paused: bool) -> Result<Option<&str>, String> {
        // Nobody resumes a run that was not paused; one that resumes another says what it has done of it.
        if !is_paused && !self.is_revival {
            return Ok(None);
        }
        let text = CommandSession {
            run_id: self.config.run_id().to_string(),
            at_ms: self.host.now_ms(),
            cwd: self.config.view().cwd.clone().unwrap_or_default(),
            groups: command_session::left(&self.groups, done),
        };
        let failed = |why: String| format!("{}: what is left is not on record: {why}", self.path);
        let path = Path::new(&self.path);
        let (parent, name) = path
            .parent()
            .zip(path.file_name().and_then(|name| name.to_str()))
            .ok_or_else(|| failed("it is no file".to_owned()))?;
        // That of another run is there: its lease is held.
        let dir = if self.is_revival {
            self.host.open_dir(parent).map_err(|e| failed(e.to_string()))
        } else {
            let names = [layout::OWN_DIR, layout::SESSIONS_DIR];
            directory::create_path(self.host, self.temp, &names, &RetryPolicy::default())
                .map_err(|e| failed(with_causes(&e)))
        }?;
        let mut bytes = self.before(&dir, name).map_err(failed)?;
        bytes.extend_from_slice(text.line().as_bytes());
        bytes.push(b'\n');
        // Durable: a step that was done and is told as left would be done twice.
        let options = Options::new(Durability::Durable);
        atomic::replace(self.host, &dir, name, &bytes, &options)
            .map(|_| Some(&*self.path))
            .map_err(|e| failed(with_causes(&e)))
    }
}

impl<H: WriteHost> Session<'_, H> {
    /// What the file holds already, ended by a newline. It may be the conversation of an agent, of which the only
    /// copy would be lost.
    fn before(&self, dir: &H::Dir, name: &str) -> Result<Vec<u8>, String> {
        match self.host.read_at(dir, name.as_ref(), Part::All(limits::CONFIG_MAX_BYTES)) {
            Ok(read) => {
                let is_torn = read.bytes.last().is_some_and(|last| *last != b'\n');
                let mut bytes = read.bytes;
                bytes.extend(is_torn.then_some(b'\n'));
                Ok(bytes)
            }
            Err(ReadError::Absent) => Ok(Vec::new()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// What a configuration asks for. Spec: RS-STEP-09.
fn plan(config: &Config, now_ms: i64) -> Result<(Plan, Vec<Vec<CommandStep>>), DecodeError> {
    let doc = Document::parse(config.text())?;
    let step = |step: &CommandStep| {
        let step = step.clone();
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
    let steps = groups.iter().map(|group| group.iter().map(step).collect()).collect();
    let view = config.view();
    let limit = view.timeout_ms.map(|ms| now_ms.saturating_add(ms));
    let deadline_at_ms = [view.deadline_at_ms, limit].into_iter().flatten().min();
    let output_max_bytes = limits::OUTPUT_MAX_BYTES;
    Ok((Plan { groups: steps, deadline_at_ms, output_max_bytes }, groups))
}
