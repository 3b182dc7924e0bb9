//! One step that runs: from its start until everything in its process group has ended.
//!
//! Theory of operation. A step is a process in a group of its own, and its end is the end of the group. The
//! leader is looked at without being reaped, because only an unreaped leader proves that the number of
//! the group is still its own (`RS-OBS-12`); it is reaped last.
//!
//! Ordered steps of an end, whoever wants it:
//! 1. the leader ends by itself, or the group is asked to end, with a request to go on for what is stopped;
//! 2. what is left of the group when the leader has ended is asked as well;
//! 3. [`GROUP_TERM_MS`](limits::GROUP_TERM_MS) later what is still there is killed;
//! 4. once nobody is left, or [`GROUP_KILL_MS`](limits::GROUP_KILL_MS) after that, what is still in the
//!    pipe is taken and the leader is reaped.
//!
//! The record says `observed` only if the group was seen empty. What made a session or group of its
//! own is not covered, as every reader has to say of such a proof.
//!
//! A crash of the runner leaves the group to the shim. Spec: RS-STEP-01, RS-STEP-06.

use std::io;

use crate::protocol::candidate::{Instance, InstanceKind, ProcessTree};
use crate::protocol::limits;
use crate::store::ProcessHost;
use crate::store::host::{Command, Exit, Signal};

use super::output::OutputLog;
use super::steps::Step;

/// How far the end of a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Asked { since_ms: i64 },
    Killed { since_ms: i64 },
}

/// A step that runs.
pub(super) struct Live<H: ProcessHost> {
    pub(super) index: usize,
    pub(super) child: H::Child,
    pub(super) pipe: Option<H::Pipe>,
    kind: InstanceKind,
    log: OutputLog<H::File>,
    phase: Phase,
}

/// A step that has ended.
pub(super) struct Ended {
    pub(super) exit: Exit,
    pub(super) writer: Instance,
    pub(super) dropped_bytes: u64,
}

impl<H: ProcessHost> Live<H> {
    /// Starts a step, which is recorded as a writer of this kind.
    ///
    /// # Errors
    /// As the system says; nothing was started then.
    pub(super) fn start(
        host: &H,
        index: usize,
        step: &Step,
        kind: InstanceKind,
        output_max_bytes: u64,
    ) -> io::Result<Self> {
        let (pipe, end) = host.pipe()?;
        let child = host.spawn(&Command {
            program: &step.program,
            args: &step.args,
            cwd: step.cwd.as_deref(),
            env: &step.env,
            own_group: true,
            stdout: Some(&end),
            stderr: Some(&end),
        })?;
        let log = OutputLog::new(index, output_max_bytes);
        // The end for the child is closed here: else the pipe would never be seen to close.
        drop(end);
        Ok(Self { index, child, pipe: Some(pipe), kind, log, phase: Phase::Running })
    }

    /// Whether its end is under way, which is looked at more often.
    pub(super) fn is_ending(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Asks the whole group to end, once.
    pub(super) fn ask_to_end(&mut self, host: &H) {
        if self.phase == Phase::Running {
            self.phase = Phase::Asked { since_ms: host.now_ms() };
            // Nobody there to be asked is what the next look finds out.
            let _ = host.signal_group(&self.child, Signal::Terminate);
            let _ = host.signal_group(&self.child, Signal::Continue);
        }
    }

    /// Takes a part of what the step wrote; at the end everything that is there.
    pub(super) fn take_output(&mut self, host: &H, run_dir: &H::Dir, all: bool) {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut taken = 0;
        while let Some(pipe) =
            self.pipe.as_ref().filter(|_| all || taken < limits::OUTPUT_TURN_BYTES)
        {
            match host.read_pipe(pipe, &mut buffer) {
                Ok(None) => break,
                Ok(Some(n)) if n > 0 => {
                    self.log.write(host, run_dir, &buffer[..n]);
                    taken += n;
                    // Somebody outside the group may write for ever.
                    if all && taken > LAST_BYTES {
                        break;
                    }
                }
                // Closed by everybody, or broken: nothing comes any more.
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    /// Goes one step on with its end; `Some` when it has ended.
    ///
    /// # Errors
    /// As the system says when the child is no longer ours.
    pub(super) fn tick(
        &mut self,
        host: &H,
        run_dir: &H::Dir,
        attempt_id: impl FnOnce() -> String,
    ) -> io::Result<Option<Ended>> {
        let now_ms = host.now_ms();
        let ended = host.peek(&self.child)?.is_some();
        let left = if ended { host.group_size(&self.child) } else { Some(1) };
        match (left, self.phase) {
            (Some(0), _) => {}
            (None, _) => {
                // Nobody can count the group here; what is left of it gets what cannot be refused.
                let _ = host.signal_group(&self.child, Signal::Kill);
            }
            (Some(_), Phase::Running) => {
                if ended {
                    self.ask_to_end(host);
                }
                return Ok(None);
            }
            (Some(_), Phase::Asked { since_ms }) => {
                if is_over(now_ms, since_ms, limits::GROUP_TERM_MS) {
                    self.phase = Phase::Killed { since_ms: now_ms };
                    let _ = host.signal_group(&self.child, Signal::Kill);
                }
                return Ok(None);
            }
            (Some(_), Phase::Killed { since_ms }) => {
                // A leader that cannot be killed is waited for: there is no end without it.
                if !ended || !is_over(now_ms, since_ms, limits::GROUP_KILL_MS) {
                    return Ok(None);
                }
            }
        }
        self.take_output(host, run_dir, true);
        let pid = i64::from(host.child_pid(&self.child));
        let exit = host.reap(&mut self.child)?;
        let unknown =
            |reason: &str| ProcessTree::Unknown { reason: reason.to_owned(), diagnostic: None };
        let tree = match left {
            Some(0) => ProcessTree::Observed { process_group_id: pid, verified_at_ms: now_ms },
            Some(_) => unknown("verification-failed"),
            None => unknown("unsupported-platform"),
        };
        let (exit_code, signal) = match &exit {
            Exit::Code(code) => (Some(*code), None),
            Exit::Signal(name) => (None, Some(name.clone())),
        };
        let writer = Instance {
            kind: self.kind,
            id: attempt_id(),
            close_observed_at_ms: host.now_ms(),
            exit_code,
            signal,
            attempt: Some(0),
            tree: Some(tree),
        };
        Ok(Some(Ended { exit, writer, dropped_bytes: self.log.dropped_bytes() }))
    }
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most that is taken when a step has ended: a pipe holds no more, unless somebody still writes.
const LAST_BYTES: usize = 4 << 20;

/// Whether a budget is spent. A clock that was set back begins it anew, which only takes longer.
fn is_over(now_ms: i64, since_ms: i64, budget_ms: u64) -> bool {
    u64::try_from(now_ms - since_ms).is_ok_and(|spent| spent >= budget_ms)
}
