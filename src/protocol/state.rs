//! The words for where a run and its steps are, and what each word means for indexes and slots.
//!
//! Predicates live here and nowhere else, so that the writer, the inspector and the recoverer cannot
//! disagree about them. Spec: RS-STATUS-03, RS-STATUS-04.

use super::open::words;

words! {
    /// Where a run is, by its own account. Facts §3.6.
    RunState {
        /// Accepted, no process yet.
        Queued = "queued",
        /// Under way.
        Running = "running",
        /// Ended with success.
        Complete = "complete",
        /// Ended without success.
        Failed = "failed",
        /// Ended with part of the work done and no concrete failure.
        Partial = "partial",
        /// Interrupted; may be revived as another run.
        Paused = "paused",
        /// Ended because somebody asked.
        Stopped = "stopped",
        /// Refused by a workflow controller.
        Rejected = "rejected",
    }
}

impl RunState {
    /// Whether the run still claims a process (`queued`, `running`).
    pub fn is_active(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Whether the indexes treat the state as an end: everything that is not active.
    pub fn is_terminal(self) -> bool {
        !self.is_active()
    }

    /// Whether the state names a final outcome: `paused` does not, since a later account may follow.
    pub fn is_outcome(self) -> bool {
        self.is_terminal() && self != Self::Paused
    }

    /// Whether the state keeps a capacity slot whatever else is known (facts K-29 rule 5).
    pub fn holds_slot(self) -> bool {
        self.is_active() || self == Self::Paused
    }
}

words! {
    /// Where one step is. `completed` is an old spelling of `complete`; readers accept both.
    StepState {
        /// Not begun.
        Pending = "pending",
        /// Under way.
        Running = "running",
        /// Ended with success.
        Complete = "complete",
        /// The same, as older writers spell it.
        Completed = "completed",
        /// Ended without success.
        Failed = "failed",
        /// Ended with part of the work done.
        Partial = "partial",
        /// Interrupted.
        Paused = "paused",
        /// Ended because somebody asked.
        Stopped = "stopped",
        /// Refused.
        Rejected = "rejected",
    }
}

impl StepState {
    /// Whether the step ended with success, in either spelling.
    /// Spec: RS-STATUS-17.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Complete | Self::Completed)
    }

    /// Whether the step is still `pending` or `running`.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

words! {
    /// The shape of a run.
    RunMode {
        /// One step.
        Single = "single",
        /// Steps side by side.
        Parallel = "parallel",
        /// Steps one after the other.
        Chain = "chain",
        /// Led by a controller inside the host process; no runner of its own.
        Workflow = "workflow",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Word as _;

    #[test]
    fn each_state_has_its_row() {
        let rows = [
            ("queued", true, false, true),
            ("running", true, false, true),
            ("complete", false, true, false),
            ("failed", false, true, false),
            ("partial", false, true, false),
            ("paused", false, false, true),
            ("stopped", false, true, false),
            ("rejected", false, true, false),
        ];
        assert_eq!(rows.len(), RunState::ALL.len(), "every state has a row");
        for (word, active, outcome, holds_slot) in rows {
            let state = RunState::from_word(word).expect("known");
            assert_eq!(state.is_active(), active, "{word} active");
            assert_eq!(state.is_terminal(), !active, "{word} terminal");
            assert_eq!(state.is_outcome(), outcome, "{word} outcome");
            assert_eq!(state.holds_slot(), holds_slot, "{word} slot");
        }
    }
}
