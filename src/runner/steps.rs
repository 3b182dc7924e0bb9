//! The built-in runner: plain commands, one after the other and side by side.
//!
//! Theory of operation. A [`Plan`] is a sequence of groups; the steps of a group run side by side, and
//! the next group begins when every step of the one before has ended with code 0. One thread does
//! everything: it takes output, carries out what its [`Session`] is asked, and waits for whatever comes
//! first. What is written when is the session's; who may end what is each step's (`live`).
//!
//! Ordered steps of [`run()`]:
//! 1. the run is begun ([`Session::begin`]);
//! 2. for each group: start its steps, tell of each, and go round until all have ended. A step that
//!    cannot be started has failed, and ends nobody else;
//! 3. a stop, a deadline, a timeout or an interruption was told by the session when it comes here, and is
//!    carried out then;
//! 4. the end ([`Session::finish`]).
//!
//! What a crash leaves: a status that says `running` with a process that is gone, steps that the shim
//! ends, and no account of writers. Spec: RS-STEP-01 to RS-STEP-08.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::protocol::candidate::InstanceKind;
use crate::protocol::{RunMode, StepState, limits};
use crate::store::{ProcessHost, discover};

use super::finish::Finished;
use super::job::Desk;
use super::live::{Ended, Live};
use super::session::{Cut, Order, Session, StepEnd, Work};

pub use super::job::{Job, RunnerError};

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

/// Runs a plan to its end. See the module's ordered steps.
///
/// # Errors
/// [`RunnerError`]; no step is left running then.
pub fn run<H: ProcessHost>(job: &Job<'_, H>, plan: &Plan) -> Result<Finished, RunnerError> {
    execute(job, plan, None, |work| Session::begin(job, work))
}

/// Where a run leaves what is left of it, for one that resumes it.
pub trait Remainder {
    /// The session file that is there from the beginning, absolute: that of the run that is resumed.
    fn resumed(&self) -> Option<&str>;

    /// Leaves it, and says in which file, if it is one that is to be resumed. `done` tells of each step whether
    /// it has ended well; `is_paused` whether the run is.
    ///
    /// # Errors
    /// Why it could not be left, as one sentence.
    fn leave(&self, done: &[bool], is_paused: bool) -> Result<Option<&str>, String>;
}

/// The same for a run whose places are open ([`Session::begin_at`]), and that may be resumed.
/// Spec: RS-STEP-10.
///
/// # Errors
/// As [`run()`].
pub fn run_at<H: ProcessHost>(
    desk: &Desk<'_, '_, H>,
    job: &Job<'_, H>,
    plan: &Plan,
    remainder: Option<&dyn Remainder>,
) -> Result<Finished, RunnerError> {
    execute(job, plan, remainder, |work| Session::begin_at(desk, job, work))
}

fn execute<'j, 'b, H: ProcessHost>(
    job: &'j Job<'b, H>,
    plan: &Plan,
    remainder: Option<&dyn Remainder>,
    begin: impl FnOnce(&Work<'_>) -> Result<Session<'j, 'b, H>, RunnerError>,
) -> Result<Finished, RunnerError> {
    let steps: Vec<&Step> = plan.groups.iter().flatten().collect();
    let agents: Vec<&str> = steps.iter().map(|step| step.agent.as_str()).collect();
    let work = Work {
        deadline_at_ms: plan.deadline_at_ms,
        session_file: remainder.and_then(Remainder::resumed),
        ..Work::new(plan.mode(), &agents)
    };
    let kind = InstanceKind::writer_of(discover::family_of_run(job.host, Path::new(job.async_dir)));
    let mut session = begin(&work)?;
    let mut index = 0;
    for group in &plan.groups {
        let mut round = Round { job, plan, kind, session: &mut session, live: Vec::new() };
        let ended = round.start(index, group).and_then(|()| round.until_all_ended());
        if let Err(e) = ended {
            round.end_all();
            return Err(e);
        }
        let here = index..index + group.len();
        index = here.end;
        let mut done = here.map(|step| session.step(step) == Some(StepState::Complete));
        if session.is_cut().is_some() || !done.all(|done| done) {
            break;
        }
    }
    // Before the end is told: a run that is told as paused has a session that says what is left.
    let done: Vec<_> =
        (0..agents.len()).map(|step| session.step(step) == Some(StepState::Complete)).collect();
    let is_paused = session.is_cut() == Some(&Cut::Interrupted);
    let left = remainder.map_or(Ok(None), |remainder| remainder.leave(&done, is_paused));
    if let Ok(Some(file)) = left {
        session.name_session(file);
    }
    let mut finished = session.finish()?;
    finished.problems.extend(left.err());
    Ok(finished)
}

/// One group under way.
struct Round<'a, 'j, 'b, H: ProcessHost> {
    job: &'j Job<'b, H>,
    plan: &'a Plan,
    /// What a step is recorded as.
    kind: InstanceKind,
    session: &'a mut Session<'j, 'b, H>,
    live: Vec<Live<H>>,
}

impl<H: ProcessHost> Round<'_, '_, '_, H> {
    fn start(&mut self, first: usize, group: &[Step]) -> Result<(), RunnerError> {
        for (at, step) in group.iter().enumerate() {
            let index = first + at;
            let (host, bound) = (self.job.host, self.plan.output_max_bytes);
            match Live::start(host, index, step, self.kind, bound) {
                Ok(live) => {
                    let pid = self.job.host.child_pid(&live.child);
                    self.live.push(live);
                    self.session.mark_started(index, Some(pid))?;
                }
                Err(e) => self.session.mark_not_started(index, &e.to_string())?,
            }
        }
        // Once for all of them.
        self.session.write_status()
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
                        self.session.mark_ended(index, end_of(ended))?;
                        changed = true;
                    }
                    None => at += 1,
                }
            }
            if changed {
                self.session.write_status()?;
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
        let mut ms = self.session.next_look_ms();
        if self.live.iter().any(Live::is_ending) {
            ms = ms.min(limits::GROUP_POLL_MS);
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

    /// Carries out what the session is asked for.
    fn obey(&mut self) -> Result<(), RunnerError> {
        let (host, live) = (self.job.host, &self.live);
        let has_ended = |step: usize| {
            let live = live.iter().find(|live| live.index == step);
            live.is_none_or(|live| matches!(host.peek(&live.child), Ok(Some(_))))
        };
        for order in self.session.look_with(&has_ended)? {
            match order {
                Order::End(_) => self.live.iter_mut().for_each(|live| live.ask_to_end(host)),
                Order::StopStep(step) => {
                    let live = self.live.iter_mut().filter(|live| live.index == step);
                    live.for_each(|live| live.ask_to_end(host));
                }
                Order::Message(message) => {
                    self.session.answer(&message.id, Err("a plain command takes no messages"));
                }
                Order::Append(append) => {
                    let why = "a plan of plain commands is complete when it begins";
                    self.session.refuse_append(&append.id, why);
                }
            }
        }
        Ok(())
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

/// What became of a step, as its run is told of it.
fn end_of(ended: Ended) -> StepEnd {
    let end = StepEnd::exited(ended.exit).writer(ended.writer);
    match ended.dropped_bytes {
        0 => end,
        bytes => end.member("outputDroppedBytes", bytes.to_string()),
    }
}
