//! A run in the hands of a runner that does its own work: what it tells, what it is asked, how it ends.
//!
//! Theory of operation. A runner that was let in makes a [`Session`] of its [`Job`] and does its work
//! however it likes: in processes, in threads, in a model. It tells the session what its steps do
//! ([`Session::step_started`], [`Session::step_ended`], [`Session::activity`]), looks now and then for what
//! is asked of it ([`Session::look`]), and hands the session back at the end ([`Session::finish`]). Everything
//! that other processes rely on (what is written, at which level, in which order) is the session's, so that
//! no runner can get it wrong. The built-in runner of plain commands ([`steps`](super::steps)) is one of them.
//!
//! Ordered steps:
//! 1. [`Session::begin`]: the first status of the runner, then the event that it began. Before any work: work
//!    that began under a status that says nothing of it would look like a launch that is stuck;
//! 2. what becomes of a step is told in the log and then in the status, at once;
//! 3. activity is kept in memory and written with the next change, at most once in
//!    [`ACTIVITY_MS`](limits::ACTIVITY_MS). It is worth a look, not a flush;
//! 4. a request is told in the log, then removed, then handed over (`RS-STEP-04`). One that ends the run, and
//!    a deadline, is told in status and log before it is handed over: the status says why before the work is
//!    gone (facts T-7, T-9, T-10). The first of them decides; a stop after an interruption is honoured;
//! 5. [`Session::finish`]: the end, in the order of [`finish`].
//!
//! A status that cannot be written for now is caught up with by the next look. One that is refused, because
//! somebody else's account stands there for good, makes every call fail: the work is to be ended, and
//! nothing more is said.
//!
//! What a crash leaves: a status that says `running` with a process that is gone; at most the activity of the
//! last moment is lost. Not promised: that the runner obeys. Spec: RS-STEP-03 to RS-STEP-05, RS-STEP-08,
//! RS-START-80 to RS-START-86.
//!
//! ```no_run
//! use std::path::PathBuf;
//!
//! use runstore::protocol::{RunMode, startup::RUNNER_BUDGET_MS};
//! use runstore::runner::job::Desk;
//! use runstore::runner::session::{Order, Session, StepEnd, Work};
//! use runstore::runner::startup::{Startup, read_config};
//! use runstore::store::{Host as _, RealHost};
//!
//! # fn turn(_: usize) -> Option<&'static str> { None }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: my-runner CONFIG")?);
//! let host = RealHost::new();
//! // The configuration lies in the temp root, with leases and slots.
//! let temp = host.open_dir(path.parent().ok_or("no path")?)?;
//! let config = read_config(&host, &path)?;
//! // Until the launcher has let it in a runner touches nothing of its run.
//! let committed = Startup::begin(&host, &temp, &config, RUNNER_BUDGET_MS)?.wait()?;
//! let desk = match Desk::open(&committed) {
//!     Ok(desk) => desk,
//!     Err(e) => {
//!         let why = e.to_string();
//!         return Ok(committed.fail(&why)?);
//!     }
//! };
//! let locks = desk.locks(2_000);
//! let job = desk.job(Some(&locks));
//! let work = Work {
//!     deadline_at_ms: config.view().deadline_at_ms,
//!     ..Work::new(RunMode::Single, &["writer"])
//! };
//! let mut session = Session::begin_at(&desk, &job, &work)?;
//! session.step_started(0, None)?;
//! let end = 'work: loop {
//!     for order in session.look()? {
//!         match order {
//!             Order::End(_) | Order::StopStep(_) => break 'work StepEnd::failed("not finished"),
//!             Order::Message(message) => session.answer(&message.id, Ok(())),
//!             _ => {}
//!         }
//!     }
//!     match turn(0) {
//!         Some(text) => session.output(0, text.as_bytes()),
//!         None => break StepEnd::complete(),
//!     }
//! };
//! session.step_ended(0, end)?;
//! let finished = session.finish()?;
//! println!("{}", finished.state);
//! # Ok(())
//! # }
//! ```

use crate::protocol::nested_summary::ChildEvent;
use crate::protocol::written_nested::SummaryText;
use crate::protocol::written_run::{Activity, is_of_step};
use crate::protocol::written_status::StatusPatch;
use crate::protocol::{DecodeError, Raw, RunState, StepState, Word as _, limits, written};
use crate::store::host::WriteHost;
use crate::store::inbox::{self, Request};
use crate::store::retry::RetryPolicy;
use crate::store::sidecar::PatchError;
use crate::store::{identity, markers};

use super::board::Board;
use super::finish::{self, Finished};
use super::job::{Desk, Job, News, RunnerError, tell, untold, update};
use super::output::{OutputLog, log_name};

pub use super::board::Cut;
pub use super::work::{Order, StepEnd, Work};

/// Kinds of lines that a session writes itself, by how they begin.
const OF_SESSION: [&str; 4] = ["subagent.run.", "subagent.step.", "subagent.steer.", "runstore."];

/// One run under way. See the module's theory of operation.
#[must_use = "a run that was begun is led to its end by finishing it"]
pub struct Session<'j, 'a, H: WriteHost> {
    pub(super) job: &'j Job<'a, H>,
    pub(super) board: Board,
    deadline_at_ms: Option<i64>,
    result_file: String,
    news: Option<&'j News<H::Dir>>,
    logs: Vec<(usize, OutputLog<H::File>)>,
    looked_ms: Option<i64>,
    /// When the status was last written.
    written_ms: i64,
    /// Whether the board knows more than the status.
    pub(super) is_ahead: bool,
}

impl<H: WriteHost> std::fmt::Debug for Session<'_, '_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("job", &self.job).finish_non_exhaustive()
    }
}

impl<'j, 'a, H: WriteHost> Session<'j, 'a, H> {
    /// Begins a run. See the module's ordered steps.
    /// Spec: RS-STEP-03.
    ///
    /// # Errors
    /// [`RunnerError`]; no work may begin then.
    pub fn begin(job: &'j Job<'a, H>, work: &Work<'_>) -> Result<Self, RunnerError> {
        Self::begin_with(job, work, None)
    }

    /// The same for a run whose places are open: its result and, if it is a nested one, its news go where the
    /// configuration has them.
    /// Spec: RS-RESULT-40, RS-NEST-37.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn begin_at(
        desk: &'j Desk<'_, '_, H>,
        job: &'j Job<'a, H>,
        work: &Work<'_>,
    ) -> Result<Self, RunnerError> {
        let work = Work { result_file: Some(desk.result_file()), ..*work };
        let news = desk.news();
        let session = Self::begin_with(job, &work, news.ok().flatten())?;
        if let Err(why) = news {
            untold(job, why);
        }
        Ok(session)
    }

    fn begin_with(
        job: &'j Job<'a, H>,
        work: &Work<'_>,
        news: Option<&'j News<H::Dir>>,
    ) -> Result<Self, RunnerError> {
        if work.agents.is_empty() {
            return Err(RunnerError::Nothing);
        }
        let now_ms = job.host.now_ms();
        let own = || format!("{}.json", job.place.run_id.as_str());
        let session = Self {
            job,
            board: Board {
                session_file: work.session_file.map(str::to_owned),
                ..Board::new(work.mode, work.agents, work.groups, now_ms)
            },
            deadline_at_ms: work.deadline_at_ms,
            result_file: work.result_file.map_or_else(own, str::to_owned),
            news,
            logs: Vec::new(),
            looked_ms: None,
            written_ms: now_ms,
            is_ahead: false,
        };
        let mode = written::string(work.mode.as_str());
        let patch = session
            .status()
            .state(RunState::Running)
            .process(identity::own(job.host))
            .member("startedAt", now_ms.to_string())
            .member("mode", mode.clone())
            .member("cwd", written::string(job.cwd))
            .member("outputFile", written::string(&log_name(0)));
        let patch = match news {
            Some(_) => patch.member("isNested", "true".to_owned()),
            None => patch,
        };
        // A reader can say then that a runner which does not see to it is late.
        let patch = match work.deadline_at_ms {
            Some(at_ms) => patch.member("deadlineAt", at_ms.to_string()),
            None => patch,
        };
        // Before any step: what it does must not be done by a run that nobody can look at.
        finish::update_patiently(job, &patch).map_err(|e| match e {
            PatchError::Refused(..) => RunnerError::Displaced(e),
            e => RunnerError::Begin(e),
        })?;
        let pid = job.host.system().own_pid.to_string();
        let members = [("mode", mode), ("cwd", written::string(job.cwd)), ("pid", pid)];
        tell(job, "subagent.run.started", true, &members);
        session.send_news();
        Ok(session)
    }

    /// News of a run that goes on. Its end is told at the end.
    fn send_news(&self) {
        let Some(news) = self.news.filter(|_| self.board.cut != Some(Cut::Interrupted)) else {
            return;
        };
        let (job, now_ms) = (self.job, self.job.host.now_ms());
        let ids = (job.place.run_id.as_str(), job.async_dir);
        let summary = self.board.summary(ids, RunState::Running, None, now_ms);
        let (pid, session_id) = (Some(job.host.system().own_pid), job.session_id);
        news.put(job, ChildEvent::Updated, &SummaryText { pid, session_id, ..summary });
    }

    fn status(&self) -> StatusPatch {
        let (run_id, instance) = (self.job.place.run_id.as_str(), self.job.instance_id);
        self.board.status(run_id, instance, self.job.host.now_ms())
    }

    /// The run, and who executes it.
    pub fn job(&self) -> &'j Job<'a, H> {
        self.job
    }

    /// Where a step is, by this session's account.
    pub fn step(&self, step: usize) -> Option<StepState> {
        self.board.accounts.get(step).map(|account| account.state)
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.board.accounts.len()
    }

    /// Why the run ends early, if it does.
    pub fn is_cut(&self) -> Option<&Cut> {
        self.board.cut.as_ref()
    }

    /// When the run has to have ended, in ms since the epoch.
    pub fn deadline_at_ms(&self) -> Option<i64> {
        self.deadline_at_ms
    }

    /// Tells that a step is at work, and in which process, if it is one of its own.
    /// Spec: RS-STEP-03, RS-START-80.
    ///
    /// # Errors
    /// [`RunnerError::Misplaced`] for a step that is not pending, or in a run that was told to end; else as
    /// [`Session::look`].
    pub fn step_started(&mut self, step: usize, pid: Option<u32>) -> Result<(), RunnerError> {
        self.mark_started(step, pid)?;
        self.write_status()
    }

    pub(super) fn mark_started(
        &mut self,
        step: usize,
        pid: Option<u32>,
    ) -> Result<(), RunnerError> {
        self.only(step, self.is_pending(step), "a pending step of a run that goes on")?;
        let account = &mut self.board.accounts[step];
        account.started_at_ms = Some(self.job.host.now_ms());
        account.state = StepState::Running;
        self.board.live[step] = true;
        let pid = pid.map(|pid| ("pid", pid.to_string()));
        self.tell_step("started", step, pid.as_slice());
        Ok(())
    }

    pub(super) fn is_pending(&self, step: usize) -> bool {
        self.board.cut.is_none() && self.step(step) == Some(StepState::Pending)
    }

    pub(super) fn only(
        &self,
        step: usize,
        holds: bool,
        expected: &'static str,
    ) -> Result<(), RunnerError> {
        if holds { Ok(()) } else { Err(RunnerError::Misplaced { step, expected }) }
    }

    /// Tells that a step could not be started; why.
    ///
    /// # Errors
    /// As [`Session::step_started`].
    pub fn step_not_started(&mut self, step: usize, why: &str) -> Result<(), RunnerError> {
        self.mark_not_started(step, why)?;
        self.write_status()
    }

    pub(super) fn mark_not_started(&mut self, step: usize, why: &str) -> Result<(), RunnerError> {
        self.only(step, self.is_pending(step), "a pending step of a run that goes on")?;
        let account = &mut self.board.accounts[step];
        account.started_at_ms = Some(self.job.host.now_ms());
        account.ended_at_ms = account.started_at_ms;
        account.state = StepState::Failed;
        account.error = Some(format!("it could not be started: {why}"));
        self.tell_step("failed", step, &[]);
        Ok(())
    }

    /// Tells that a step has ended. One that was told to end keeps the reason, whatever it says itself.
    /// Spec: RS-STEP-03, RS-START-81.
    ///
    /// # Errors
    /// [`RunnerError::Misplaced`] for a step that is not at work; else as [`Session::look`].
    pub fn step_ended(&mut self, step: usize, end: StepEnd) -> Result<(), RunnerError> {
        self.mark_ended(step, end)?;
        self.write_status()
    }

    pub(super) fn mark_ended(&mut self, step: usize, end: StepEnd) -> Result<(), RunnerError> {
        let is_live = self.board.live.get(step).copied().unwrap_or_default();
        self.only(step, is_live, "a step at work")?;
        self.board.live[step] = false;
        let now_ms = self.job.host.now_ms();
        let account = &mut self.board.accounts[step];
        (account.exit_code, account.signal) = (end.exit_code, end.signal);
        account.ended_at_ms = Some(account.ended_at_ms.unwrap_or(now_ms));
        account.activity = account.activity.at_rest();
        if account.state == StepState::Running {
            account.state = end.state;
            account.error = end.error;
        }
        let word = match account.state {
            // A part that was done is no failure; its word is in the status.
            StepState::Complete | StepState::Partial => "completed",
            StepState::Stopped => "stopped",
            StepState::Paused => "paused",
            _ => "failed",
        };
        let exit = account.exit_code.map_or_else(|| "null".to_owned(), |code| code.to_string());
        let mut members = vec![("exitCode", exit)];
        if let Some(signal) = &account.signal {
            members.push(("signal", written::string(signal)));
        }
        members.extend(end.members);
        if let Some(at) = self.logs.iter().position(|(of, _)| *of == step) {
            let dropped = self.logs.swap_remove(at).1.dropped_bytes();
            if dropped > 0 {
                members.push(("outputDroppedBytes", dropped.to_string()));
            }
        }
        self.board.writers[step].extend(end.writer);
        self.board.activity = self.board.activity.at_rest();
        self.tell_step(word, step, &members);
        Ok(())
    }

    /// Notes what a step is doing. It is in the status with the next change, or after
    /// [`ACTIVITY_MS`](limits::ACTIVITY_MS) at the next look, however often it is told.
    /// Spec: RS-START-82.
    pub fn activity(&mut self, step: usize, activity: &Activity) {
        if !self.board.live.get(step).copied().unwrap_or_default() {
            return;
        }
        let now_ms = self.job.host.now_ms();
        let activity = Activity { at_ms: activity.at_ms.or(Some(now_ms)), ..activity.clone() };
        self.board.accounts[step].activity = activity.clone();
        self.board.activity = activity;
        self.is_ahead = true;
    }

    /// Names the session file of the run, which is there. It is in the status with the next change.
    /// Spec: RS-STEP-10.
    pub fn name_session(&mut self, file: &str) {
        self.board.session_file = Some(file.to_owned());
        self.is_ahead = true;
    }

    /// Sets a member of a step that is the runner's own business (`sessionFile`, `model`, …), as a JSON text. It
    /// is in the status with the next change or look.
    /// Spec: RS-START-83.
    ///
    /// # Errors
    /// [`DecodeError::Member`] for a step that is not there, a member that this library writes, and a text
    /// that is no JSON value.
    pub fn describe(&mut self, step: usize, key: &str, json: &str) -> Result<(), DecodeError> {
        let name = || format!("steps[{step}].{key}");
        let Some(account) = self.board.accounts.get_mut(step) else {
            return Err(DecodeError::member(name(), "a member of a step of this run"));
        };
        if is_of_step(key) {
            return Err(DecodeError::member(name(), "a member that its owner sets"));
        }
        Raw::parse(json).map_err(|_| DecodeError::member(name(), "one JSON value"))?;
        match account.more.iter_mut().find(|(known, _)| known == key) {
            Some(member) => json.clone_into(&mut member.1),
            None => account.more.push((key.to_owned(), json.to_owned())),
        }
        self.is_ahead = true;
        Ok(())
    }

    /// Puts what a step says into its log, which is bounded; the end of it is in the result.
    /// Spec: RS-STEP-02.
    pub fn output(&mut self, step: usize, text: &[u8]) {
        let at = self.logs.iter().position(|(of, _)| *of == step).unwrap_or_else(|| {
            self.logs.push((step, OutputLog::new(step, limits::OUTPUT_MAX_BYTES)));
            self.logs.len() - 1
        });
        for piece in text.chunks(limits::OUTPUT_TURN_BYTES) {
            self.logs[at].1.write(self.job.host, self.job.place.run_dir, piece);
        }
    }

    /// Adds a line of the runner's own to the log of the run: a kind and members with JSON texts. It is advice.
    ///
    /// # Errors
    /// [`DecodeError::Member`] for a kind that the session tells of itself and a text that is no JSON value;
    /// nothing is written then.
    pub fn tell(&self, kind: &str, members: &[(&str, &str)]) -> Result<(), DecodeError> {
        if kind.is_empty() || OF_SESSION.iter().any(|own| kind.starts_with(own)) {
            return Err(DecodeError::member("type", "a kind of the runner's own"));
        }
        let mut texts = Vec::new();
        for (key, text) in members {
            let refuse = |what| Err(DecodeError::member(*key, what));
            if ["type", "ts", "runId", "lifecycleArtifactVersion"].contains(key) {
                return refuse("a member that every line has already");
            }
            if Raw::parse(text).is_err() || written::string(key) != format!("\"{key}\"") {
                return refuse("one JSON value under a plain name");
            }
            texts.push((*key, written::one_line(text)));
        }
        tell(self.job, kind, false, &texts);
        Ok(())
    }

    /// Says what became of a message: it was delivered, or why not.
    pub fn answer(&self, id: &str, answer: Result<(), &str>) {
        let mut members = vec![("requestId", written::string(id))];
        let kind = match answer {
            Ok(()) => "subagent.steer.delivered",
            Err(why) => {
                members.push(("reason", written::string(why)));
                "subagent.steer.failed"
            }
        };
        tell(self.job, kind, false, &members);
    }

    /// How long a runner may wait before its next look, in ms.
    pub fn next_look_ms(&self) -> u64 {
        let now_ms = self.job.host.now_ms();
        let until = |at: i64| u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0).max(1);
        let most = limits::CONTROL_POLL_MS.unsigned_abs();
        let inbox = self.looked_ms.map_or(1, |at| until(at + limits::CONTROL_POLL_MS));
        [Some(inbox), self.deadline_at_ms.filter(|_| self.board.cut.is_none()).map(until)]
            .into_iter()
            .flatten()
            .fold(most, u64::min)
    }

    /// Looks at the deadline, into the inbox, and whether the status is behind. Does not wait.
    /// Spec: RS-STEP-04, RS-START-84.
    ///
    /// # Errors
    /// [`RunnerError::Displaced`] when somebody else has told the end of the run: all work is to be ended, and
    /// nothing more is said.
    pub fn look(&mut self) -> Result<Vec<Order>, RunnerError> {
        self.look_with(&|_| false)
    }

    /// The same, for a runner that can tell that a step has just ended by itself though it did not say so
    /// yet: such a step is left as it ended.
    ///
    /// # Errors
    /// As [`Session::look`].
    pub fn look_with(
        &mut self,
        has_ended: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Order>, RunnerError> {
        let mut orders = Vec::new();
        let now_ms = self.job.host.now_ms();
        if let Some(deadline) = self.deadline_at_ms.filter(|deadline| *deadline <= now_ms) {
            let cut = Cut::TimedOut("the run did not end in time".to_owned());
            orders.extend(self.cut_at(cut, Some(deadline), has_ended)?);
        }
        if self.is_ahead && now_ms.abs_diff(self.written_ms) >= limits::ACTIVITY_MS {
            // No news: whoever wants to know that much looks at the status.
            let patch = self.status();
            self.write(&patch)?;
        }
        let due = |looked: i64| now_ms < looked || now_ms - looked >= limits::CONTROL_POLL_MS;
        if !self.looked_ms.is_none_or(due) {
            return Ok(orders);
        }
        self.looked_ms = Some(now_ms);
        self.look_for_an_end(now_ms)?;
        // An inbox that cannot be looked at now is looked at again.
        let (run_dir, run_id) = (self.job.place.run_dir, self.job.place.run_id.as_str());
        let taken = inbox::take(self.job.host, run_dir, run_id);
        for request in taken.map(|taken| taken.requests).unwrap_or_default() {
            match request {
                Request::Stop { step: Some(index), .. } => {
                    orders.extend(self.stop_step(index, has_ended));
                }
                Request::Steer(message) => orders.push(Order::Message(message)),
                Request::Append(append) => self.take_append(append, &mut orders),
                other => {
                    if let Some(cut) = cut_of(other) {
                        orders.extend(self.cut_at(cut, None, has_ended)?);
                    }
                }
            }
        }
        Ok(orders)
    }

    /// Whether somebody else has told the end of the run: a change that changes nothing is refused then.
    /// Spec: RS-STEP-08.
    fn look_for_an_end(&mut self, now_ms: i64) -> Result<(), RunnerError> {
        if now_ms.abs_diff(self.written_ms) < limits::ACTIVITY_MS {
            return Ok(());
        }
        let was_ahead = self.is_ahead;
        let looked = self.write(&StatusPatch::empty());
        self.is_ahead = was_ahead;
        looked
    }

    /// A stop of one step is told with the next change.
    fn stop_step(&mut self, index: i64, has_ended: &dyn Fn(usize) -> bool) -> Option<Order> {
        let step =
            usize::try_from(index).ok().filter(|step| self.board.live.get(*step) == Some(&true))?;
        if has_ended(step) {
            return None;
        }
        let account = &mut self.board.accounts[step];
        account.state = StepState::Stopped;
        account.error = Some("stopped on request".to_owned());
        self.is_ahead = true;
        self.tell_step("stop_requested", step, &[]);
        Some(Order::StopStep(step))
    }

    /// Ends the run early for a reason of the runner's own: a signal that it got, a budget that is spent. `false`
    /// when it was told to end before.
    /// Spec: RS-START-85.
    ///
    /// # Errors
    /// As [`Session::look`].
    pub fn cut(&mut self, cut: Cut) -> Result<bool, RunnerError> {
        self.cut_at(cut, None, &|_| false).map(|order| order.is_some())
    }

    fn cut_at(
        &mut self,
        cut: Cut,
        deadline: Option<i64>,
        has_ended: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Order>, RunnerError> {
        let stops_a_pause =
            matches!(cut, Cut::Stopped(_)) && self.board.cut == Some(Cut::Interrupted);
        if self.board.cut.is_some() && !stops_a_pause {
            return Ok(None);
        }
        let now_ms = self.job.host.now_ms();
        let state = match &cut {
            Cut::Stopped(_) => StepState::Stopped,
            Cut::TimedOut(_) | Cut::Failed(_) => StepState::Failed,
            Cut::Interrupted => StepState::Paused,
        };
        for (step, account) in self.board.accounts.iter_mut().enumerate() {
            // One that has just ended by itself is recorded as it ended.
            if self.board.live[step] && !has_ended(step) {
                account.state = state;
                account.timed_out = matches!(cut, Cut::TimedOut(_));
                account.ended_at_ms = (state == StepState::Paused).then_some(now_ms);
            }
        }
        let patch = self.status();
        let patch = match &cut {
            Cut::Stopped(why) => patch.member("stopped", "true".to_owned()).error(why),
            Cut::TimedOut(why) => patch.member("timedOut", "true".to_owned()).error(why),
            Cut::Failed(why) => patch.error(why),
            Cut::Interrupted => patch.state(RunState::Paused),
        };
        self.write(&patch)?;
        let message = |why: &str| ("message", written::string(why));
        match &cut {
            Cut::Stopped(why) => tell(self.job, "subagent.run.stopped", false, &[message(why)]),
            Cut::TimedOut(why) => {
                let at = deadline.map(|at| ("deadlineAt", at.to_string()));
                let members: Vec<_> = at.into_iter().chain([message(why)]).collect();
                tell(self.job, "subagent.run.timed_out", false, &members);
            }
            Cut::Failed(_) => {}
            Cut::Interrupted => {
                tell(self.job, "subagent.run.paused", false, &[]);
                self.leave_the_active_index();
            }
        }
        self.board.cut = Some(cut.clone());
        Ok(Some(Order::End(cut)))
    }

    /// An unconfirmed pause is no longer active (facts T-7). The end does it again.
    fn leave_the_active_index(&self) {
        let (host, place, retry) = (self.job.host, &self.job.place, RetryPolicy::default());
        let (runs, run_id) = (place.runs_root, place.run_id);
        let _ = markers::update(host, runs, run_id, RunState::Paused, None, &retry);
    }

    fn tell_step(&self, word: &str, step: usize, more: &[(&str, String)]) {
        let agent = written::string(&self.board.accounts[step].agent);
        let mut members = vec![("stepIndex", step.to_string()), ("agent", agent)];
        members.extend(more.iter().cloned());
        tell(self.job, &format!("subagent.step.{word}"), false, &members);
    }

    pub(super) fn write_status(&mut self) -> Result<(), RunnerError> {
        let patch = self.status();
        self.write(&patch)?;
        // After the status, which decides.
        self.send_news();
        Ok(())
    }

    fn write(&mut self, patch: &StatusPatch) -> Result<(), RunnerError> {
        self.written_ms = self.job.host.now_ms();
        match update(self.job, patch) {
            Err(e @ PatchError::Refused(..)) => Err(RunnerError::Displaced(e)),
            // A later look catches up.
            written => {
                self.is_ahead = written.is_err();
                Ok(())
            }
        }
    }

    /// Ends the run. A step that is still at work then has failed: its runner is about to end.
    /// Spec: RS-STEP-05, RS-STEP-07, RS-STEP-08, RS-START-81.
    ///
    /// # Errors
    /// [`RunnerError`]; the lease is still held then, and goes with the process.
    pub fn finish(mut self) -> Result<Finished, RunnerError> {
        for step in 0..self.steps() {
            if self.board.live[step] {
                self.mark_ended(step, StepEnd::failed("its runner ended before it"))?;
            }
        }
        finish::finish(self.job, self.board, &self.result_file, self.news)
    }
}

/// What ends a run, of a request.
pub(super) fn cut_of(request: Request) -> Option<Cut> {
    match request {
        Request::Stop { step: None, reason } => {
            Some(Cut::Stopped(reason.unwrap_or_else(|| "stopped on request".to_owned())))
        }
        Request::Timeout => Some(Cut::TimedOut("ended for lack of time".to_owned())),
        Request::Interrupt => Some(Cut::Interrupted),
        Request::Stop { .. } | Request::Steer(_) | Request::Append(_) => None,
    }
}
