//! What a launcher asks of whoever starts processes.
//!
//! Theory of operation. A launcher decides what is started and when it has to end; how a process is made
//! (a new session, no inherited handles, its logs opened for appending, somebody who waits for it) is
//! the business of a [`Spawn`]. Between the two there are three questions: start it, does it still run,
//! ask or force it to end. None of them waits.
//!
//! Who implements [`Spawned::look`] answers from a real wait, from a handle of the process, or from
//! somebody who waits for it: never from a number that may have changed hands, and never from a file.
//!
//! A [`ProcessHost`] is the door to the system, and says how this process deals with its own children. A
//! [`Spawn`] is the launcher's question, and its answer may come from elsewhere: where a shim is started, the
//! runner is the shim's child, and the launcher is told of it. So both are there, and [`Children`] is the
//! plain case: a [`Spawn`] whose runners are children of this process, over a [`ProcessHost`].
//!
//! Not promised: that an end is told with its exit. Who is not the parent may learn only that it ended.
//! A crash of the launcher leaves the process running; what becomes of it is its observer's business.
//! Spec: RS-START-27.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::host::{Command, ProcessHost, Signal};
use super::journal;

pub use super::host::Exit;

/// What is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnPlan {
    /// The runner configuration, absolute; it is the runner's first argument.
    pub config_path: PathBuf,
    /// The run directory, absolute; both logs lie in it and are opened for appending, with mode 0600.
    pub run_dir: PathBuf,
    /// The working directory.
    pub cwd: PathBuf,
    /// Name of the log of standard output.
    pub stdout_log: &'static str,
    /// Name of the log of standard error.
    pub stderr_log: &'static str,
    /// Variables that the runner gets beside those of the launcher.
    pub set_env: Vec<(OsString, OsString)>,
    /// Variables of the launcher that the runner does not get.
    pub remove_env: Vec<OsString>,
    /// The instance that the process is known by.
    pub instance_id: String,
}

/// Starts processes.
pub trait Spawn {
    /// Starts one. When it fails nothing runs.
    ///
    /// # Errors
    /// As the system says. A process without a number is an error as well.
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>>;
}

/// Whether a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs, or nothing else is known.
    Running,
    /// It has ended.
    Ended(Option<Exit>),
}

impl Life {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// How a process is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminate {
    /// It is asked to (SIGTERM).
    Ask,
    /// It is not asked (SIGKILL).
    Force,
}

/// A process that was started.
pub trait Spawned {
    /// Its number. It belongs to this process as long as nobody has waited for it.
    fn pid(&self) -> u32;

    /// Whether it runs; does not wait. Once ended it stays ended.
    fn look(&mut self) -> Life;

    /// Makes it end; does not wait. One that has ended already is no error.
    ///
    /// # Errors
    /// As the system says.
    fn terminate(&mut self, how: Terminate) -> io::Result<()>;
}

/// Starts runners as children of this process, which stays the one that is told of their ends.
/// They are in the session of this process; a program that is to outlive it makes one of its own.
pub struct Children<H> {
    host: Arc<H>,
    program: OsString,
    words: Vec<OsString>,
    args: Vec<OsString>,
}

impl<H> fmt::Debug for Children<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("program", &self.program).finish_non_exhaustive()
    }
}

impl<H: ProcessHost> Children<H> {
    /// Starts this program, with these arguments after the configuration.
    pub fn new(host: Arc<H>, program: OsString, args: Vec<OsString>) -> Self {
        Self { host, program, words: Vec::new(), args }
    }

    /// The same with these arguments before the configuration.
    #[must_use]
    pub fn words(mut self, words: Vec<OsString>) -> Self {
        self.words = words;
        self
    }
}

impl<H: ProcessHost + 'static> Spawn for Children<H> {
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        let host = &self.host;
        let run_dir = host.open_dir(&plan.run_dir)?;
        let (stdout, stderr) = (
            journal::open(&**host, &run_dir, plan.stdout_log)?,
            journal::open(&**host, &run_dir, plan.stderr_log)?,
        );
        let config = plan.config_path.clone().into_os_string();
        let args = [self.words.as_slice(), &[config], &self.args].concat();
        let set = plan.set_env.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
        let removed = plan.remove_env.iter().map(|key| (key.clone(), None));
        let child = host.spawn(&Command {
            program: &self.program,
            args: &args,
            cwd: Some(&plan.cwd),
            env: &set.chain(removed).collect::<Vec<_>>(),
            // The leader of a group could not make a session.
            own_group: false,
            stdout: Some(&stdout),
            stderr: Some(&stderr),
        })?;
        let pid = host.child_pid(&child);
        Ok(Box::new(OwnChild { host: Arc::clone(host), child, pid, exit: None }))
    }
}

struct OwnChild<H: ProcessHost> {
    host: Arc<H>,
    child: H::Child,
    pid: u32,
    /// How it ended, once it was reaped.
    exit: Option<Exit>,
}

impl<H: ProcessHost> Spawned for OwnChild<H> {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn look(&mut self) -> Life {
        // An error says nothing about the child.
        if self.exit.is_none() && matches!(self.host.peek(&self.child), Ok(Some(_))) {
            self.exit = self.host.reap(&mut self.child).ok();
        }
        self.exit.clone().map_or(Life::Running, |exit| Life::Ended(Some(exit)))
    }

    fn terminate(&mut self, how: Terminate) -> io::Result<()> {
        if self.look().has_ended() {
            return Ok(());
        }
        let signal = match how {
            Terminate::Ask => Signal::Terminate,
            Terminate::Force => Signal::Kill,
        };
        self.host.signal(&self.child, signal)
    }
}
