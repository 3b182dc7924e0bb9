//! What the runner hears from its launcher, one look at a time.
//!
//! Theory of operation. A [`Listener`] knows the token, the action that it waits for and since when. One look
//! reads the files in which that action may come and judges each by [`read_control`]; the first that brings
//! the action, or that is wrong, decides. It writes nothing. Spec: RS-START-07, RS-START-48, RS-START-49;
//! facts U-20 to U-24, §4.6.

use crate::protocol::startup::{
    ACTIONS_WITH_CONFIRM, Action, RunnerFailure, RunnerStep, eager_pause_ms, read_control,
    runner_pause_ms,
};
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::{Document, layout, limits};
use crate::store::host::{Host, Part};
use crate::store::message::{self, Look};

/// What one look brought.
#[derive(Debug)]
pub enum Heard {
    /// Nothing: look again, at the latest after so many ms.
    Nothing(u64),
    /// The launcher wants this.
    Action(Action),
    /// What it said is wrong, or it said nothing in time.
    Wrong(RunnerFailure),
    /// What stands in the place of this file is no message; the text says what it is.
    Unsafe(&'static str, String),
}

/// A wait for the launcher's next word.
#[derive(Clone, Debug)]
pub struct Listener {
    token: String,
    wanted: Action,
    budget_ms: u64,
    since_ms: i64,
}

impl Listener {
    /// For the only word of a fresh start.
    pub fn fresh(token: &str, budget_ms: u64, now_ms: i64) -> Self {
        Self { token: token.to_owned(), wanted: Action::Proceed, budget_ms, since_ms: now_ms }
    }

    /// For the first word of a revival.
    pub fn revival(token: &str, budget_ms: u64, now_ms: i64) -> Self {
        Self { wanted: Action::Ack, ..Self::fresh(token, budget_ms, now_ms) }
    }

    /// The token of this start-up.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The files in which the wanted word may come, and as which action.
    fn places(&self) -> &'static [(&'static str, Action)] {
        match self.wanted {
            Action::Ack => &[(layout::STARTUP_ACK, Action::Ack)],
            Action::Confirm => &[
                (layout::STARTUP_CONFIRM, Action::Confirm),
                // Where a launcher of P69 puts it.
                (layout::STARTUP_ACK, Action::Confirm),
                // What a launcher without the confirm step writes instead.
                (layout::STARTUP_PROCEED, Action::Proceed),
            ],
            Action::Proceed => &[(layout::STARTUP_PROCEED, Action::Proceed)],
        }
    }

    /// Looks once. An action that is heard is waited for no longer.
    pub fn listen<H: Host>(&mut self, host: &H, run_dir: &H::Dir) -> Heard {
        for (name, action) in self.places() {
            let bytes = match message::look(host, run_dir, name) {
                Look::Absent | Look::Busy(_) => continue,
                Look::Unsafe(what) => return Heard::Unsafe(name, what),
                Look::Said(bytes) => bytes,
            };
            match read_control(Some(&bytes), &self.token, *action, ACTIONS_WITH_CONFIRM) {
                RunnerStep::Wait => {}
                RunnerStep::Fail(failure) => return Heard::Wrong(failure),
                RunnerStep::Done => {
                    self.wanted = match action {
                        Action::Ack => Action::Confirm,
                        Action::Confirm | Action::Proceed => Action::Proceed,
                    };
                    // Each word has its own budget.
                    self.since_ms = host.steady_ms();
                    return Heard::Action(*action);
                }
            }
        }
        let elapsed = host.steady_ms().saturating_sub(self.since_ms);
        let (elapsed, budget_ms) = (u64::try_from(elapsed).unwrap_or(0), self.budget_ms);
        match runner_pause_ms(elapsed, budget_ms) {
            Some(pause_ms) => Heard::Nothing(eager_pause_ms(elapsed, pause_ms)),
            None => Heard::Wrong(RunnerFailure::TimedOut { action: self.wanted, budget_ms }),
        }
    }
}

/// Whether the run tells an outcome already: then the configuration is one that was used before.
pub(super) fn is_settled<H: Host>(host: &H, run_dir: &H::Dir) -> bool {
    let part = Part::All(limits::STATUS_MAX_BYTES);
    let Ok(read) = host.read_at(run_dir, layout::STATUS.as_ref(), part) else { return false };
    let Ok(doc) = Document::from_bytes(&read.bytes) else { return false };
    StatusView::read(&doc).known_state().is_some_and(RunState::is_outcome)
}
