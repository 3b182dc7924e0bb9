//! Starting, watching and ending processes: the third part of the door.
//!
//! Theory of operation. Only code that asks for a [`ProcessHost`] can start or signal anything. A number
//! is never enough for a signal: it is sent to a child that nobody has reaped, whose number cannot have
//! changed hands, to the group that such a child leads, or through a handle. So a group is cleared
//! *before* its leader is reaped; afterwards the number may name strangers.
//!
//! The end of a process is told by the system alone, as an [`Exit`]: to its parent by [`ProcessHost::peek`],
//! [`ProcessHost::reap`] and [`ProcessHost::wait_any`], to the holder of a handle by [`ProcessHost::told`]
//! where the system does so.
//!
//! What a crash leaves: children of a dead process belong to the nearest reaper above it, or to the first
//! process of the system. Not promised: anything of this on Windows, where no host implements it yet.
//! Spec: RS-OBS-01, RS-OBS-02, RS-OBS-12.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use super::WriteHost;
use crate::protocol::process::ProcessSeen;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i64),
    /// By a signal, named like `SIGKILL`.
    Signal(String),
}

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The request to end.
    Terminate,
    /// The end, which no process can refuse.
    Kill,
    /// Go on after a stop: a stopped process would never see a request to end.
    Continue,
}

/// What is started.
#[derive(Debug)]
pub struct Command<'a, F> {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: &'a OsStr,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Its working directory, if not that of this process.
    pub cwd: Option<&'a Path>,
    /// Variables that are set, or removed.
    pub env: &'a [(OsString, Option<OsString>)],
    /// Whether it gets a process group of its own. Without one it can make a session of its own, which
    /// the leader of a group cannot.
    pub own_group: bool,
    /// Where its standard output goes; nowhere if `None`.
    pub stdout: Option<&'a F>,
    /// Where its standard error goes; nowhere if `None`.
    pub stderr: Option<&'a F>,
}

/// What came of a wait for any child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// This child ended and was reaped.
    Ended(u32, Exit),
    /// There is no child at all.
    NoChild,
    /// The time was over first.
    TimeOver,
}

/// A child of this process that it did not start, but was given when its parent died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its number.
    pub pid: u32,
    /// Whether it is still in the session of this process.
    pub in_session: bool,
    /// Whether it has ended and waits to be reaped.
    pub ended: bool,
}

/// Processes. See the module's text.
pub trait ProcessHost: WriteHost {
    /// A child that this process started.
    type Child: Send;
    /// A handle of any process: it never comes to mean another one.
    type Handle: Send;
    /// The end of a pipe that is read.
    type Pipe: Send;

    /// A pipe: the end that is read, which never waits, and the end for a child.
    ///
    /// # Errors
    /// As the system says.
    fn pipe(&self) -> io::Result<(Self::Pipe, Self::File)>;

    /// Reads what is there. `None`: nothing for now; 0: nobody can write any more.
    ///
    /// # Errors
    /// As the system says.
    fn read_pipe(&self, pipe: &Self::Pipe, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Starts a program with nothing on its standard input and no descriptor that this process opened
    /// but the given two.
    ///
    /// # Errors
    /// As the system says, for example `NotFound`; nothing was started then.
    fn spawn(&self, command: &Command<'_, Self::File>) -> io::Result<Self::Child>;

    /// The number of a child, which is also that of its group.
    fn child_pid(&self, child: &Self::Child) -> u32;

    /// Whether a child has ended, and how. It is not reaped.
    ///
    /// # Errors
    /// As the system says, for example when somebody else has reaped it.
    fn peek(&self, child: &Self::Child) -> io::Result<Option<Exit>>;

    /// Waits until a child has ended, and reaps it.
    ///
    /// # Errors
    /// As [`ProcessHost::peek`].
    fn reap(&self, child: &mut Self::Child) -> io::Result<Exit>;

    /// Waits until one of these children has ended, one of these pipes has something to be read, or so
    /// many ms are over. Nothing is reaped.
    ///
    /// # Errors
    /// As the system says.
    fn wait_for_one(
        &self,
        children: &[&Self::Child],
        pipes: &[&Self::Pipe],
        ms: u64,
    ) -> io::Result<()>;

    /// Sends a signal to a child that was not reaped.
    ///
    /// # Errors
    /// As the system says; `NotFound` when it was reaped.
    fn signal(&self, child: &Self::Child, signal: Signal) -> io::Result<()>;

    /// Sends a signal to the group that an unreaped child leads.
    ///
    /// # Errors
    /// As [`ProcessHost::signal`].
    fn signal_group(&self, child: &Self::Child, signal: Signal) -> io::Result<()>;

    /// How many processes of the group that an unreaped child leads have not ended; `None` where it
    /// cannot be told.
    fn group_size(&self, child: &Self::Child) -> Option<usize>;

    /// Makes this process the parent of every descendant that loses its own. `false` where the system
    /// has no such thing.
    ///
    /// # Errors
    /// As the system says.
    fn become_reaper(&self) -> io::Result<bool>;

    /// Waits until any child has ended, and reaps it; at most so many ms, or for ever. Without a bound
    /// the process sleeps until the system wakes it.
    ///
    /// # Errors
    /// As the system says.
    fn wait_any(&self, ms: Option<u64>) -> io::Result<Waited>;

    /// Every child of this process, where the system shows them.
    ///
    /// # Errors
    /// As the system says.
    fn adopted(&self) -> io::Result<Vec<Adopted>>;

    /// Sends a signal to a child of this process, which cannot have been reaped by anybody else.
    ///
    /// # Errors
    /// As the system says.
    fn signal_adopted(&self, child: &Adopted, signal: Signal) -> io::Result<()>;

    /// A handle of the process at a number; `None` when nothing is there.
    ///
    /// # Errors
    /// As the system says; `Unsupported` where there are no handles.
    fn hold(&self, pid: i64) -> io::Result<Option<Self::Handle>>;

    /// What the system shows of the process of a handle.
    fn look_at(&self, handle: &Self::Handle) -> ProcessSeen;

    /// Waits until the process of a handle has ended; `false` when the time was over first.
    ///
    /// # Errors
    /// As the system says.
    fn wait_held(&self, handle: &Self::Handle, ms: Option<u64>) -> io::Result<bool>;

    /// How the process of a handle ended, where the system tells it to one that is not its parent. Linux does
    /// so since 6.15, from the moment the parent has reaped it: until then the answer is `None` as well, so
    /// one who can wait asks again. Spec: RS-OBS-30.
    ///
    /// # Errors
    /// As the system says.
    fn told(&self, handle: &Self::Handle) -> io::Result<Option<Exit>>;

    /// Sends a signal to the process of a handle.
    ///
    /// # Errors
    /// As the system says; `NotFound` when it has ended.
    fn signal_held(&self, handle: &Self::Handle, signal: Signal) -> io::Result<()>;
}
