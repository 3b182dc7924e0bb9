//! What a runner knows of its run, in memory.
//!
//! Theory of operation. A [`Board`] holds the account of every step and why the run ends early, if it does
//! ([`Cut`]). From it follow, at any moment, the change of the status that tells all of it, and how the run
//! would end. It does no I/O; whatever is to be true on the disk is written from here as a whole, so that a
//! write that failed is caught up with by the next one.
//!
//! Steps are numbered flat, as in the status. A group that was not made yet stands there as one step
//! `expand:<agent>`; [`Board::expand`] puts its members in its place, [`Board::append`] adds groups at the end.
//! Every index after that place moves, as it does for every reader (facts S-47).
//!
//! A crash loses the board; what it said last is in the status. Spec: RS-STEP-03, RS-STEP-08, RS-START-83,
//! RS-START-86; facts T-11, S-41, S-47.

use crate::protocol::candidate::Instance;
use crate::protocol::written_nested::SummaryText;
use crate::protocol::written_run::{self, Activity, StepAccount};
use crate::protocol::written_status::{StatusPatch, StepGroup, groups_text};
use crate::protocol::{RunMode, RunState, StepState, written};

/// Why a run ends before its work does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Somebody wants it to end; why.
    Stopped(String),
    /// Its time is over; how so.
    TimedOut(String),
    /// Somebody wants to go on later, in another run.
    Interrupted,
    /// Its runner cannot go on; why not.
    Failed(String),
}

/// What is known of a run. See the module's theory of operation.
pub(super) struct Board {
    pub(super) started_at_ms: i64,
    pub(super) accounts: Vec<StepAccount>,
    pub(super) writers: Vec<Vec<Instance>>,
    /// Which steps are at work. One that was told to end is until it has ended.
    pub(super) live: Vec<bool>,
    pub(super) cut: Option<Cut>,
    pub(super) mode: RunMode,
    /// Where groups stand among the steps.
    pub(super) groups: Vec<StepGroup>,
    /// Whether steps were added since the run began, so that the groups in the status are not these.
    pub(super) moved: bool,
    /// How many requests for further steps are open, once there was one.
    pub(super) appends: Option<u32>,
    /// The activity of the step that told of it last.
    pub(super) activity: Activity,
    /// The session file, once it is there.
    pub(super) session_file: Option<String>,
}

impl Board {
    pub(super) fn new(
        mode: RunMode,
        agents: &[&str],
        groups: &[StepGroup],
        started_at_ms: i64,
    ) -> Self {
        Self {
            started_at_ms,
            accounts: agents.iter().map(|agent| StepAccount::pending(agent)).collect(),
            writers: vec![Vec::new(); agents.len()],
            live: vec![false; agents.len()],
            cut: None,
            mode,
            groups: groups.to_vec(),
            moved: false,
            appends: None,
            activity: Activity::default(),
            session_file: None,
        }
    }

    /// How the run ends by what is known. Facts T-11.
    pub(super) fn outcome(&self) -> RunState {
        match &self.cut {
            // Whatever came at the last moment: work that is done is not reported as undone.
            _ if self.is_complete() => RunState::Complete,
            Some(Cut::Stopped(_)) => RunState::Stopped,
            Some(Cut::TimedOut(_) | Cut::Failed(_)) => RunState::Failed,
            Some(Cut::Interrupted) => RunState::Paused,
            None if self.is_partial() => RunState::Partial,
            None => RunState::Failed,
        }
    }

    fn is_complete(&self) -> bool {
        self.accounts.iter().all(|step| step.state == StepState::Complete)
    }

    /// Part of the work was done, and nothing failed.
    fn is_partial(&self) -> bool {
        let is = |wanted| move |step: &StepAccount| step.state == wanted;
        let (partial, complete) = (is(StepState::Partial), is(StepState::Complete));
        self.accounts.iter().any(partial)
            && self.accounts.iter().all(|step| partial(step) || complete(step))
    }

    /// Why it did not succeed, for people.
    pub(super) fn error(&self) -> Option<String> {
        match &self.cut {
            _ if self.is_complete() => None,
            Some(Cut::Stopped(why) | Cut::TimedOut(why) | Cut::Failed(why)) => Some(why.clone()),
            Some(Cut::Interrupted) => None,
            None => self.accounts.iter().find_map(|step| {
                step.error.as_ref().map(|error| format!("{}: {error}", step.agent))
            }),
        }
    }

    /// A change of the status that tells of every step.
    pub(super) fn status(&self, run_id: &str, instance_id: &str, now_ms: i64) -> StatusPatch {
        let open = self.accounts.iter().position(|step| step.state.is_open());
        let current = open.unwrap_or(self.accounts.len().saturating_sub(1));
        let mut patch = StatusPatch::at(now_ms)
            .member("currentStep", current.to_string())
            .member("steps", written_run::steps(&self.accounts, run_id, instance_id));
        for (key, text) in self.activity.members() {
            patch = patch.member(key, text);
        }
        // A file that is named and not there would keep others from what the descriptor names.
        if let Some(file) = &self.session_file {
            patch = patch.member("sessionFile", written::string(file));
        }
        if let Some(appends) = self.appends {
            patch = patch.member("pendingAppends", appends.to_string());
        }
        if !self.moved {
            return patch;
        }
        patch
            .member("parallelGroups", groups_text(&self.groups))
            .member("chainStepCount", logical(self.accounts.len(), &self.groups).to_string())
    }

    /// What is told of the run where it is a nested one.
    pub(super) fn summary<'a>(
        &'a self,
        (run_id, async_dir): (&'a str, &'a str),
        state: RunState,
        error: Option<&'a str>,
        now_ms: i64,
    ) -> SummaryText<'a> {
        SummaryText {
            run_id,
            async_dir,
            pid: None,
            session_id: None,
            mode: self.mode,
            state,
            error,
            steps: &self.accounts,
            started_at_ms: self.started_at_ms,
            ended_at_ms: state.is_terminal().then_some(now_ms),
            now_ms,
        }
    }

    /// Puts the members of a group in the place of the step that stood for it.
    pub(super) fn expand(&mut self, at: usize, agents: &[&str]) {
        self.moved = true;
        let before: Vec<_> = self.groups.iter().filter(|g| g.start < at).copied().collect();
        let step_index = logical(at, &before);
        for group in self.groups.iter_mut().filter(|group| group.start > at) {
            group.start = (group.start + agents.len()).saturating_sub(1);
        }
        self.groups.push(StepGroup { start: at, count: agents.len(), step_index });
        self.groups.sort_by_key(|group| group.step_index);
        let here = at..=at;
        self.accounts.splice(here.clone(), agents.iter().map(|agent| StepAccount::pending(agent)));
        self.writers.splice(here.clone(), agents.iter().map(|_| Vec::new()));
        self.live.splice(here, agents.iter().map(|_| false));
    }

    /// Adds a group at the end; one of a single step is none.
    pub(super) fn append(&mut self, agents: &[&str]) {
        self.moved = true;
        let (start, count) = (self.accounts.len(), agents.len());
        if count > 1 {
            let step_index = logical(start, &self.groups);
            self.groups.push(StepGroup { start, count, step_index });
        }
        self.accounts.extend(agents.iter().map(|agent| StepAccount::pending(agent)));
        self.writers.resize(self.accounts.len(), Vec::new());
        self.live.resize(self.accounts.len(), false);
    }
}

/// A group counts as one step, however many run in it.
fn logical(flat: usize, groups: &[StepGroup]) -> usize {
    groups.iter().fold(flat, |n, group| (n + 1).saturating_sub(group.count))
}
