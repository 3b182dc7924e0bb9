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
//! Not promised: that an end is told with its exit. Who is not the parent may learn only that it ended.
//! A crash of the launcher leaves the process running; what becomes of it is its observer's business.
//! Spec: RS-START-27.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

pub use super::proof::Exit;

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
