//! The built-in runner: plain commands, one after the other and side by side.
//!
//! Theory of operation. A [`Plan`] is a sequence of groups; the steps of a group run side by side, and
//! the next group begins when every step of the one before has ended with code 0. One thread does
//! everything: it takes output, looks into the inbox, keeps the deadline, and waits for whatever comes
//! first. Who may write what is settled elsewhere: the status changes through [`run::update`], output
//! through [`output`](super::output), the end through [`finish`].
//!
//! Ordered steps of [`run()`]:
//! 1. the first status of the runner and the event that it began. Before any step: work that began
//!    under a status that says nothing of it would look like a launch that is stuck;
//! 2. for each group: start its steps, tell of each, and go round until all have ended. A step that
//!    cannot be started has failed, and ends nobody else;
//! 3. a stop, a deadline, a timeout or an interruption is told first and then carried out: the status says
//!    why before the processes are gone (facts T-7, T-9, T-10). The first of them decides; a stop after an
//!    interruption is honoured;
//! 4. the end ([`finish`]).
//!
//! A status that cannot be written for now is caught up with by the next one. One that is refused, because
//! somebody else's account stands there for good, ends the steps and the run without another word.
//!
//! What a crash leaves: a status that says `running` with a process that is gone, steps that the shim
//! ends, and no account of writers. Spec: RS-STEP-01 to RS-STEP-08.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::account::Author;
use crate::protocol::candidate::{Instance, InstanceKind};
use crate::protocol::written_run::{self, StepAccount};
use crate::protocol::written_status::StatusPatch;
use crate::protocol::{RunMode, RunState, StepState, Word as _, layout, limits, written};
use crate::store::advisory::Locks;
use crate::store::host::Exit;
use crate::store::inbox::{self, Request};
use crate::store::proof::RunPlace;
use crate::store::retry::RetryPolicy;
use crate::store::run::{self, StatusPlace};
use crate::store::sidecar::PatchError;
use crate::store::{ProcessHost, discover, identity, journal, markers};

use super::finish::{self, Finished};
use super::live::{Ended, Live};
use super::output::log_name;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name in the status.
    pub agent: String,
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working directory, if not that of the runner.
    pub cwd: Option<PathBuf>,
    /// Variables that are set, or removed.
    pub env: Vec<(OsString, Option<OsString>)>,
}

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Groups, one after the other; the steps of each side by side.
    pub groups: Vec<Vec<Step>>,
    /// When the run has to have ended, in ms since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// From which size the output of a step is moved aside.
    pub output_max_bytes: u64,
}

impl Plan {
    /// The shape of the run.
    pub fn mode(&self) -> RunMode {
        match self.groups.as_slice() {
            [group] if group.len() <= 1 => RunMode::Single,
            [_] => RunMode::Parallel,
            _ => RunMode::Chain,
        }
    }
}

/// The run that is executed, and who executes it.
pub struct Job<'a, H: ProcessHost> {
    /// The host.
    pub host: &'a H,
    /// Where the run lies.
    pub place: RunPlace<'a, H::Dir>,
    /// The results root.
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

impl<H: ProcessHost> fmt::Debug for Job<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("run_id", self.place.run_id).finish_non_exhaustive()
    }
}

/// Why a run was given up.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunnerError {
    /// The plan has no step.
    Nothing,
    /// The account of somebody else stands in the status for good.
    Displaced(PatchError),
    /// The end could not be recorded.
    Status(PatchError),
    /// The system no longer knows a step.
    Lost(io::Error),
}

impl fmt::Display for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "there is nothing to be run",
            Self::Displaced(_) => "somebody else has told the end of this run",
            Self::Status(_) => "the end of the run could not be recorded",
            Self::Lost(_) => "a step cannot be waited for any more",
        })
    }
}

impl std::error::Error for RunnerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Nothing => None,
            Self::Displaced(e) | Self::Status(e) => Some(e),
            Self::Lost(e) => Some(e),
        }
    }
}

/// Why a run ends before its plan does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Stopped(String),
    TimedOut(String),
    Interrupted,
}

/// What is known of the run, in memory.
pub(super) struct Board {
    pub(super) started_at_ms: i64,
    pub(super) accounts: Vec<StepAccount>,
    pub(super) writers: Vec<Vec<Instance>>,
    pub(super) writer_kind: InstanceKind,
    pub(super) cut: Option<Cut>,
    pub(super) mode: RunMode,
}

impl Board {
    /// How the run ends by what is known. Facts T-11.
    pub(super) fn outcome(&self) -> RunState {
        match &self.cut {
            // Whatever came at the last moment: work that is done is not reported as undone.
            _ if self.is_complete() => RunState::Complete,
            Some(Cut::Stopped(_)) => RunState::Stopped,
            Some(Cut::TimedOut(_)) | None => RunState::Failed,
            Some(Cut::Interrupted) => RunState::Paused,
        }
    }

    fn is_complete(&self) -> bool {
        self.accounts.iter().all(|step| step.state == StepState::Complete)
    }

    /// Why it did not succeed, for people.
    pub(super) fn error(&self) -> Option<String> {
        match &self.cut {
            _ if self.is_complete() => None,
            Some(Cut::Stopped(why) | Cut::TimedOut(why)) => Some(why.clone()),
            Some(Cut::Interrupted) => None,
            None => self.accounts.iter().find_map(|step| {
                step.error.as_ref().map(|error| format!("{}: {error}", step.agent))
            }),
        }
    }
}

/// Runs a plan to its end. See the module's ordered steps.
///
/// # Errors
/// [`RunnerError`]; no step is left running then.
pub fn run<H: ProcessHost>(job: &Job<'_, H>, plan: &Plan) -> Result<Finished, RunnerError> {
    let steps: Vec<&Step> = plan.groups.iter().flatten().collect();
    if steps.is_empty() {
        return Err(RunnerError::Nothing);
    }
    let family = discover::family_of_run(job.host, Path::new(job.async_dir));
    let mut board = Board {
        started_at_ms: job.host.now_ms(),
        accounts: steps.iter().map(|step| StepAccount::pending(&step.agent)).collect(),
        writers: vec![Vec::new(); steps.len()],
        writer_kind: InstanceKind::writer_of(family),
        cut: None,
        mode: plan.mode(),
    };
    begin(job, &board)?;
    let mut index = 0;
    for group in &plan.groups {
        let mut round = Round { job, plan, board: &mut board, live: Vec::new(), looked_ms: None };
        let ended = round.start(index, group).and_then(|()| round.until_all_ended());
        if let Err(e) = ended {
            round.end_all();
            return Err(e);
        }
        let here = index..index + group.len();
        index = here.end;
        let done = |step: &StepAccount| step.state == StepState::Complete;
        if board.cut.is_some() || !board.accounts[here].iter().all(done) {
            break;
        }
    }
    finish::finish(job, board)
}

/// Step 1.
fn begin<H: ProcessHost>(job: &Job<'_, H>, board: &Board) -> Result<(), RunnerError> {
    let patch = status(job, board)
        .state(RunState::Running)
        .process(identity::own(job.host))
        .member("startedAt", board.started_at_ms.to_string())
        .member("mode", written::string(board.mode.as_str()))
        .member("cwd", written::string(job.cwd))
        .member("outputFile", written::string(&log_name(0)));
    update(job, &patch).map_err(RunnerError::Displaced)?;
    let pid = job.host.system().own_pid.to_string();
    let mode = written::string(board.mode.as_str());
    let members = [("mode", mode), ("cwd", written::string(job.cwd)), ("pid", pid)];
    tell(job, "subagent.run.started", true, &members);
    Ok(())
}

/// A change of the status that tells of every step.
pub(super) fn status<H: ProcessHost>(job: &Job<'_, H>, board: &Board) -> StatusPatch {
    let run_id = job.place.run_id.as_str();
    let open = board.accounts.iter().position(|step| step.state.is_open());
    let current = open.unwrap_or(board.accounts.len().saturating_sub(1));
    StatusPatch::at(job.host.now_ms())
        .member("currentStep", current.to_string())
        .member("steps", written_run::steps(&board.accounts, run_id, job.instance_id))
}

pub(super) fn update<H: ProcessHost>(
    job: &Job<'_, H>,
    patch: &StatusPatch,
) -> Result<(), PatchError> {
    let RunPlace { run_dir, run_id, .. } = &job.place;
    let place = StatusPlace { host: job.host, run_dir, run_id, locks: job.locks };
    run::update(&place, Author::Runner { instance: job.instance_id }, patch).map(drop)
}

/// Appends a line to the log; it is advice, so its failure is nobody's.
pub(super) fn tell<H: ProcessHost>(
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

/// One group under way.
struct Round<'a, 'b, H: ProcessHost> {
    job: &'a Job<'b, H>,
    plan: &'a Plan,
    board: &'a mut Board,
    live: Vec<Live<H>>,
    looked_ms: Option<i64>,
}

impl<H: ProcessHost> Round<'_, '_, H> {
    fn start(&mut self, first: usize, group: &[Step]) -> Result<(), RunnerError> {
        for (at, step) in group.iter().enumerate() {
            let index = first + at;
            let (host, kind) = (self.job.host, self.board.writer_kind);
            let started = Live::start(host, index, step, kind, self.plan.output_max_bytes);
            let account = &mut self.board.accounts[index];
            account.started_at_ms = Some(self.job.host.now_ms());
            match started {
                Ok(live) => {
                    account.state = StepState::Running;
                    let pid = self.job.host.child_pid(&live.child).to_string();
                    self.live.push(live);
                    self.tell_step("started", index, &[("pid", pid)]);
                }
                Err(e) => {
                    account.state = StepState::Failed;
                    account.ended_at_ms = account.started_at_ms;
                    account.error = Some(format!("it could not be started: {e}"));
                    self.tell_step("failed", index, &[]);
                }
            }
        }
        self.write_status()
    }

    fn until_all_ended(&mut self) -> Result<(), RunnerError> {
        loop {
            self.obey()?;
            let (host, run_dir) = (self.job.host, self.job.place.run_dir);
            let mut changed = false;
            let mut at = 0;
            while at < self.live.len() {
                let live = &mut self.live[at];
                live.take_output(host, run_dir, false);
                let name = format!("{}/step-{}/0", self.job.instance_id, live.index);
                match live.tick(host, run_dir, || name).map_err(RunnerError::Lost)? {
                    Some(ended) => {
                        let index = self.live.remove(at).index;
                        self.record(index, ended);
                        changed = true;
                    }
                    None => at += 1,
                }
            }
            if changed {
                self.write_status()?;
            }
            if self.live.is_empty() {
                return Ok(());
            }
            self.wait();
        }
    }

    /// Waits for whatever comes first.
    fn wait(&self) {
        let host = self.job.host;
        let mut ms = limits::CONTROL_POLL_MS.unsigned_abs();
        if self.live.iter().any(Live::is_ending) {
            ms = limits::GROUP_POLL_MS;
        }
        if let Some(deadline) = self.plan.deadline_at_ms {
            ms = ms.min(u64::try_from(deadline - host.now_ms()).unwrap_or(0).max(1));
        }
        // One that has ended would wake at once until its group is empty.
        let children: Vec<_> =
            self.live.iter().filter(|live| !live.is_ending()).map(|live| &live.child).collect();
        let pipes: Vec<_> = self.live.iter().filter_map(|live| live.pipe.as_ref()).collect();
        // A wait that fails is a short one; the next look tells what is wrong.
        if host.wait_for_one(&children, &pipes, ms).is_err() {
            host.wait_ms(limits::GROUP_POLL_MS);
        }
    }

    /// Deadline and inbox.
    fn obey(&mut self) -> Result<(), RunnerError> {
        let host = self.job.host;
        let now_ms = host.now_ms();
        if let Some(deadline) = self.plan.deadline_at_ms.filter(|deadline| *deadline <= now_ms) {
            self.cut(Cut::TimedOut("the run did not end in time".to_owned()), Some(deadline))?;
        }
        let due = |looked: i64| now_ms < looked || now_ms - looked >= limits::CONTROL_POLL_MS;
        if !self.looked_ms.is_none_or(due) {
            return Ok(());
        }
        self.looked_ms = Some(now_ms);
        // An inbox that cannot be looked at now is looked at again.
        let taken = inbox::take(host, self.job.place.run_dir, self.job.place.run_id.as_str());
        for request in taken.map(|taken| taken.requests).unwrap_or_default() {
            match request {
                Request::Stop { step: None, reason } => {
                    let why = reason.unwrap_or_else(|| "stopped on request".to_owned());
                    self.cut(Cut::Stopped(why), None)?;
                }
                Request::Stop { step: Some(index), .. } => self.stop_step(index),
                Request::Timeout => {
                    self.cut(Cut::TimedOut("ended for lack of time".to_owned()), None)?;
                }
                Request::Interrupt => self.cut(Cut::Interrupted, None)?,
                Request::Steer { id } => {
                    let reason = written::string("a plain command takes no messages");
                    let members = [("requestId", written::string(&id)), ("reason", reason)];
                    tell(self.job, "subagent.steer.failed", false, &members);
                }
            }
        }
        Ok(())
    }

    fn stop_step(&mut self, index: i64) {
        let live = self.live.iter_mut().find(|live| i64::try_from(live.index) == Ok(index));
        let Some(live) = live else { return };
        if matches!(self.job.host.peek(&live.child), Ok(Some(_))) {
            return;
        }
        let at = live.index;
        self.board.accounts[at].state = StepState::Stopped;
        self.board.accounts[at].error = Some("stopped on request".to_owned());
        live.ask_to_end(self.job.host);
        self.tell_step("stop_requested", at, &[]);
    }

    /// Step 3: tells why the run ends, then ends its steps.
    fn cut(&mut self, cut: Cut, deadline: Option<i64>) -> Result<(), RunnerError> {
        let stops_a_pause =
            matches!(cut, Cut::Stopped(_)) && self.board.cut == Some(Cut::Interrupted);
        if self.board.cut.is_some() && !stops_a_pause {
            return Ok(());
        }
        let now_ms = self.job.host.now_ms();
        let state = match &cut {
            Cut::Stopped(_) => StepState::Stopped,
            Cut::TimedOut(_) => StepState::Failed,
            Cut::Interrupted => StepState::Paused,
        };
        for live in &self.live {
            // One that has just ended by itself is recorded as it ended.
            if matches!(self.job.host.peek(&live.child), Ok(Some(_))) {
                continue;
            }
            let account = &mut self.board.accounts[live.index];
            account.state = state;
            account.timed_out = matches!(cut, Cut::TimedOut(_));
            account.ended_at_ms = (state == StepState::Paused).then_some(now_ms);
        }
        let patch = status(self.job, self.board);
        let patch = match &cut {
            Cut::Stopped(why) => patch.member("stopped", "true".to_owned()).error(why),
            Cut::TimedOut(why) => patch.member("timedOut", "true".to_owned()).error(why),
            Cut::Interrupted => patch.state(RunState::Paused),
        };
        self.write(&patch)?;
        match &cut {
            Cut::Stopped(why) => {
                tell(self.job, "subagent.run.stopped", false, &[("message", written::string(why))]);
            }
            Cut::TimedOut(why) => {
                let at = deadline.map(|at| ("deadlineAt", at.to_string()));
                let members: Vec<_> =
                    at.into_iter().chain([("message", written::string(why))]).collect();
                tell(self.job, "subagent.run.timed_out", false, &members);
            }
            Cut::Interrupted => {
                tell(self.job, "subagent.run.paused", false, &[]);
                self.leave_the_active_index();
            }
        }
        self.board.cut = Some(cut);
        for live in &mut self.live {
            live.ask_to_end(self.job.host);
        }
        Ok(())
    }

    /// An unconfirmed pause is no longer active (facts T-7). The end does it again.
    fn leave_the_active_index(&self) {
        let (host, place, retry) = (self.job.host, &self.job.place, RetryPolicy::default());
        let (runs, run_id) = (place.runs_root, place.run_id);
        let _ = markers::update(host, runs, run_id, RunState::Paused, None, &retry);
    }

    /// What became of a step.
    fn record(&mut self, index: usize, ended: Ended) {
        let now_ms = self.job.host.now_ms();
        let account = &mut self.board.accounts[index];
        match ended.exit {
            Exit::Code(code) => account.exit_code = Some(code),
            Exit::Signal(name) => account.signal = Some(name),
        }
        account.ended_at_ms = Some(account.ended_at_ms.unwrap_or(now_ms));
        // A step that was told to end keeps the reason, whatever it said when it ended.
        if account.state == StepState::Running {
            let failed = match (account.exit_code, &account.signal) {
                (Some(0), _) => None,
                (Some(code), _) => Some(format!("it ended with code {code}")),
                (None, signal) => {
                    Some(format!("it was ended by {}", signal.as_deref().unwrap_or("a signal")))
                }
            };
            account.state = if failed.is_none() { StepState::Complete } else { StepState::Failed };
            account.error = failed;
        }
        let word = match account.state {
            StepState::Complete => "completed",
            StepState::Stopped => "stopped",
            StepState::Paused => "paused",
            _ => "failed",
        };
        let exit = account.exit_code.map_or_else(|| "null".to_owned(), |code| code.to_string());
        let mut members = vec![("exitCode", exit)];
        if let Some(signal) = &account.signal {
            members.push(("signal", written::string(signal)));
        }
        if ended.dropped_bytes > 0 {
            members.push(("outputDroppedBytes", ended.dropped_bytes.to_string()));
        }
        self.board.writers[index].push(ended.writer);
        self.tell_step(word, index, &members);
    }

    fn tell_step(&self, word: &str, index: usize, more: &[(&str, String)]) {
        let agent = written::string(&self.board.accounts[index].agent);
        let mut members = vec![("stepIndex", index.to_string()), ("agent", agent)];
        members.extend(more.iter().cloned());
        tell(self.job, &format!("subagent.step.{word}"), false, &members);
    }

    fn write_status(&mut self) -> Result<(), RunnerError> {
        let patch = status(self.job, self.board);
        self.write(&patch)
    }

    fn write(&mut self, patch: &StatusPatch) -> Result<(), RunnerError> {
        match update(self.job, patch) {
            Err(e @ PatchError::Refused(..)) => Err(RunnerError::Displaced(e)),
            // The next one catches up.
            _ => Ok(()),
        }
    }

    /// Ends every step of a run that is given up.
    fn end_all(&mut self) {
        let (host, run_dir) = (self.job.host, self.job.place.run_dir);
        for live in &mut self.live {
            live.ask_to_end(host);
        }
        while !self.live.is_empty() {
            self.live.retain_mut(|live| {
                live.take_output(host, run_dir, false);
                matches!(live.tick(host, run_dir, String::new), Ok(None))
            });
            host.wait_ms(limits::GROUP_POLL_MS);
        }
    }
}
