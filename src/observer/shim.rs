//! The shim: the runner's parent, which outlives the launcher.
//!
//! Ordered steps of [`shim`]:
//! 1. become the reaper of all descendants. Before the runner is there: what loses its parent earlier
//!    would be nobody's, and its end could never be told;
//! 2. record who observes. Before the start: a runner whose observer nobody knows of looks like one
//!    without;
//! 3. open the runner's logs for appending, and start it in a group of its own;
//! 4. tell the starter who the runner is. That the starter is gone changes nothing: a runner that nobody
//!    lets in gives up by itself, and its end is witnessed all the same;
//! 5. sleep until the system tells that a child has ended; reap whatever ends, until it is the runner;
//! 6. end and reap what the runner left in the session ([`leftovers`]). Before the proof: it says
//!    that nothing is left;
//! 7. if the launch is not decided yet, wait for its launcher ([`launch`](super::launch)). After the leftovers: nobody
//!    needs those. Before the candidate and the proof, for which the launcher lays the ground; one that died
//!    before it could is stood in for;
//! 8. if nothing at all is left and the runner gave no account of its writers, say so in the
//!    candidate. Before the decision, which asks for counts (F-10), and only with an empty house: then it
//!    is what was seen, also of a runner that was killed;
//! 9. settle the end: the proof, what follows from it, and the slot ([`settle`](super::settle)).
//!
//! What a crash leaves, step by step: after 1 nothing; after 2 a record of a dead observer; after 3 a runner
//! that the starter never hears of and that gives up when it is not let in; after 4 to 7 a runner whose
//! proof stays pending, until a witness attaches or records that nobody saw its end; after 8 the
//! same, with an account of no writers that is true; after 9 a proof with a slot, which the next
//! launcher of the session releases by rule (`RS-SLOT-*`).
//!
//! Not promised: that descendants with a session of their own end. They are counted and told.
//! Spec: RS-OBS-01 to RS-OBS-06, RS-OBS-09, RS-OBS-13.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::error::with_causes;
use crate::protocol::observer_record::ObserverRecord;
use crate::protocol::process::ProcessRecord;
use crate::protocol::{layout, limits, written};
use crate::store::atomic::WriteError;
use crate::store::host::{Command, Exit, Waited};
use crate::store::proof::{ExitWitness, Finalised, ProofError};
use crate::store::{ProcessHost, candidate, identity, journal, observer_record};

use super::launch::Launch;
use super::leftovers::{self, Leftovers};
use super::settle::{self, Settled};
use super::{Subject, status};

/// The runner to be started.
#[derive(Clone, Copy, Debug)]
pub struct ShimCommand<'a> {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: &'a OsStr,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Its working directory, if not that of this process.
    pub cwd: Option<&'a Path>,
    /// Variables that are set, or removed.
    pub env: &'a [(OsString, Option<OsString>)],
}

/// Why a runner was not started, or its end not proven.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShimError {
    /// Nothing was started, because this failed.
    Prepare(&'static str, io::Error),
    /// Nothing was started: the record of the observer could not be written.
    Record(WriteError),
    /// The program could not be started.
    Start(io::Error),
    /// The system no longer knows the runner: somebody else has waited for it.
    Lost(io::Error),
    /// The end was seen, but no proof could be written.
    Proof(ProofError),
}

impl fmt::Display for ShimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare(what, _) => write!(f, "{what}; nothing was started"),
            Self::Record(_) => f.write_str("the observer could not be recorded"),
            Self::Start(_) => f.write_str("the runner could not be started"),
            Self::Lost(_) => f.write_str("the runner cannot be waited for any more"),
            Self::Proof(_) => f.write_str("the end of the runner was seen and could not be proven"),
        }
    }
}

impl std::error::Error for ShimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Prepare(_, e) | Self::Start(e) | Self::Lost(e) => Some(e),
            Self::Record(e) => Some(e),
            Self::Proof(e) => Some(e),
        }
    }
}

/// What a shim saw and did.
#[derive(Debug)]
pub struct ShimReport {
    /// How the runner ended.
    pub exit: Exit,
    /// What it left.
    pub leftovers: Leftovers,
    /// The proof.
    pub finalised: Finalised,
    /// Whether a slot was released.
    pub slot_released: bool,
    /// What was best effort and failed, in words.
    pub problems: Vec<String>,
}

/// Starts a runner and waits for its end. See the module's ordered steps. `started` is told who it is, as
/// soon as it is there.
///
/// # Errors
/// [`ShimError`].
pub fn shim<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    command: &ShimCommand<'_>,
    started: &mut dyn FnMut(&ProcessRecord),
) -> Result<ShimReport, ShimError> {
    let run_dir = subject.place.run_dir;
    let reaper = host
        .become_reaper()
        .map_err(|e| ShimError::Prepare("this process cannot become a reaper", e))?;
    let record = ObserverRecord {
        run_id: subject.place.run_id.as_str().to_owned(),
        instance_id: subject.instance_id.to_owned(),
        process: identity::own(host),
        since_ms: host.now_ms(),
    };
    observer_record::write(host, run_dir, &record).map_err(ShimError::Record)?;
    let pid = start(host, run_dir, command, started)?;
    let exit = wait_for(host, pid).map_err(ShimError::Lost)?;
    let closed_at_ms = host.now_ms();
    let mut problems = Vec::new();
    let leftovers = leftovers::end(host).unwrap_or_else(|e| {
        problems.push(format!("what the runner left could not be ended: {e}"));
        Leftovers { remaining: 1, ..Leftovers::default() }
    });
    let mut launch = Launch::decided(host, subject);
    problems.extend(launch.record_if_abandoned(subject).err());
    if reaper && leftovers.remaining == 0 {
        if let Err(e) = account_for(host, subject) {
            problems.push(e);
        }
    } else if leftovers.remaining > 0 {
        problems.push(format!("{} processes of the run are left", leftovers.remaining));
    }
    let witness = ExitWitness::from_wait(subject.instance_id, closed_at_ms, exit.clone());
    let settled = settle::settle(host, subject, &mut launch, &witness)
        .map_err(ShimError::Proof)
        .inspect_err(|e| note(host, subject, &[with_causes(e)]))?;
    problems.extend(settled.problems);
    note(host, subject, &problems);
    let Settled { finalised, slot_released, .. } = settled;
    Ok(ShimReport { exit, leftovers, finalised, slot_released, problems })
}

/// Steps 3 and 4.
fn start<H: ProcessHost>(
    host: &H,
    run_dir: &H::Dir,
    command: &ShimCommand<'_>,
    started: &mut dyn FnMut(&ProcessRecord),
) -> Result<u32, ShimError> {
    let log = |name: &str| {
        journal::open(host, run_dir, name)
            .map_err(|e| ShimError::Prepare("a log of the runner could not be opened", e))
    };
    let (stdout, stderr) = (log(layout::RUNNER_STDOUT_LOG)?, log(layout::RUNNER_STDERR_LOG)?);
    let child = host
        .spawn(&Command {
            program: command.program,
            args: command.args,
            cwd: command.cwd,
            env: command.env,
            own_group: true,
            stdout: Some(&stdout),
            stderr: Some(&stderr),
        })
        .map_err(ShimError::Start)?;
    let pid = host.child_pid(&child);
    // Nobody has waited for it yet, so the number is its own.
    started(&identity::child(host, pid));
    Ok(pid)
}

/// Step 5.
fn wait_for<H: ProcessHost>(host: &H, pid: u32) -> io::Result<Exit> {
    loop {
        match host.wait_any(None)? {
            Waited::Ended(ended, exit) if ended == pid => return Ok(exit),
            // What the runner's descendants left is reaped as it ends.
            Waited::Ended(..) | Waited::TimeOver => {}
            Waited::NoChild => return Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Step 8.
fn account_for<H: ProcessHost>(host: &H, subject: &Subject<'_, H::Dir>) -> Result<(), String> {
    let run_dir = subject.place.run_dir;
    let steps = status(host, run_dir).ok().flatten().map_or(1, |status| status.steps.len());
    let run_id = subject.place.run_id.as_str();
    candidate::record_no_writers(host, run_dir, run_id, subject.instance_id, steps)
        .map_err(|e| format!("the end of all processes could not be recorded: {}", with_causes(&e)))
}

/// Tells in the log what went wrong; nobody reads the outputs of a shim.
fn note<H: ProcessHost>(host: &H, subject: &Subject<'_, H::Dir>, problems: &[String]) {
    let run_id = subject.place.run_id.as_str();
    for problem in problems {
        let line = written::observer_event(run_id, host.now_ms(), problem);
        // Where not even this can be written there is nobody to tell.
        let max_bytes = limits::EVENTS_MAX_BYTES;
        let _ = journal::append(host, subject.place.run_dir, layout::EVENTS, &line, max_bytes);
    }
}
