//! One table of exit codes for every verb. Source: the contract; nothing here may change.

use runstore::inspect::{LeaseReport, ProblemReport, ResultReport, RunReport, SlotReport};
use runstore::protocol::Word as _;
use runstore::protocol::verdict::{Flag, Severity, Verdict};
use runstore::wait::Outcome;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    /// Answered, and nothing needs attention.
    pub(crate) const FINE: Self = Self(0);
    /// Answered: something needs attention.
    pub(crate) const ATTENTION: Self = Self(1);
    /// The command line is wrong.
    pub(crate) const USAGE: Self = Self(2);
    /// No such run or path.
    pub(crate) const NOT_FOUND: Self = Self(4);
    /// Answered, but something could not be determined.
    pub(crate) const UNDETERMINED: Self = Self(5);
    /// A newer version, refused.
    pub(crate) const NEWER: Self = Self(6);
    /// Somebody else has it now.
    pub(crate) const CONTENDED: Self = Self(7);
    /// The time was over first.
    pub(crate) const TIMED_OUT: Self = Self(7);
    /// Damaged or unsafe records met.
    pub(crate) const DAMAGED: Self = Self(8);
    /// The run did not start.
    #[cfg(unix)]
    pub(crate) const START_FAILED: Self = Self(9);
    /// An error of this program.
    pub(crate) const INTERNAL: Self = Self(70);
    /// An I/O error.
    pub(crate) const IO: Self = Self(74);

    /// What a runner of the conformance suite ends with: 0, or 1 for a run that did not begin.
    #[cfg(unix)]
    pub(crate) fn of_runner(code: u8) -> Self {
        Self(code)
    }

    /// The number.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Of two codes the more serious: 74, 70, 8, 6, 4, 7, 1, 5, 0. Only a wait has 4 and 7 beside others.
    /// Spec: RS-DIAG-31, RS-OBS-27.
    pub(crate) fn worse(self, other: Self) -> Self {
        let rank = |code: Self| match code {
            Self::IO => 9,
            Self::INTERNAL => 8,
            Self::DAMAGED => 7,
            Self::NEWER => 6,
            Self::NOT_FOUND => 5,
            Self::TIMED_OUT => 4,
            Self::ATTENTION => 3,
            Self::UNDETERMINED => 2,
            _ => 1,
        };
        if rank(other) > rank(self) { other } else { self }
    }

    /// The code of one verdict.
    pub(crate) fn of_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Orphaned | Verdict::StartStuck | Verdict::StartFailed | Verdict::Conflict => {
                Self::ATTENTION
            }
            Verdict::RunningUnverified | Verdict::FinishedUnproven => Self::UNDETERMINED,
            Verdict::Corrupt | Verdict::Unsafe => Self::DAMAGED,
            Verdict::Unsupported => Self::NEWER,
            _ => Self::FINE,
        }
    }

    /// The code of one report.
    pub(crate) fn of_report(report: &RunReport) -> Self {
        let code = report.verdict_word.map_or(Self::FINE, Self::of_verdict);
        if report.has(Flag::Undeliverable) { code.worse(Self::ATTENTION) } else { code }
    }

    /// The code of the end of a wait, with what was known of the run then.
    /// Spec: RS-OBS-27.
    pub(crate) fn of_wait(outcome: Outcome, report: Option<&RunReport>) -> Self {
        let verdict = report.and_then(|report| report.verdict_word);
        let by_verdict = verdict.map_or(Self::FINE, Self::of_verdict);
        let is_complete =
            report.and_then(|report| report.recorded_state.as_deref()) == Some("complete");
        match outcome {
            Outcome::Ready => by_verdict,
            Outcome::Ended | Outcome::Proven if is_complete => Self::FINE,
            // All went well but for the proof that was asked for.
            Outcome::CannotChange if is_complete => by_verdict.worse(Self::UNDETERMINED),
            Outcome::Ended | Outcome::Proven | Outcome::Orphaned | Outcome::CannotChange => {
                by_verdict.worse(Self::ATTENTION)
            }
            Outcome::Gone => Self::NOT_FOUND,
            Outcome::Timeout => Self::TIMED_OUT,
        }
    }

    /// The code of a result that was not delivered.
    pub(crate) fn of_result(report: &ResultReport) -> Self {
        if report.problem.is_some() { Self::ATTENTION } else { Self::FINE }
    }

    /// The code of a slot: that of the run that it is held for. Spec: RS-CHECK-02.
    pub(crate) fn of_slot(report: &SlotReport) -> Self {
        report.run_verdict_word.map_or(Self::FINE, Self::of_verdict)
    }

    /// The code of a lease. One that cannot be read is a problem of the store. Spec: RS-CHECK-02.
    pub(crate) fn of_lease(report: &LeaseReport) -> Self {
        match (report.state, report.liveness) {
            ("held", Some("unknown" | "foreign")) => Self::UNDETERMINED,
            _ => Self::FINE,
        }
    }

    /// The code of a problem of the store itself.
    pub(crate) fn of_problem(problem: &ProblemReport) -> Self {
        match problem.severity {
            s if s == Severity::Error.as_str() => Self::DAMAGED,
            _ => Self::FINE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_serious_code_wins() {
        let order = [
            Code::IO,
            Code::INTERNAL,
            Code::DAMAGED,
            Code::NEWER,
            Code::NOT_FOUND,
            Code::TIMED_OUT,
            Code::ATTENTION,
            Code::UNDETERMINED,
            Code::FINE,
        ];
        for (i, worse) in order.iter().enumerate() {
            for better in &order[i..] {
                assert_eq!(worse.worse(*better), *worse);
                assert_eq!(better.worse(*worse), *worse);
            }
        }
    }

    #[test]
    fn every_verdict_has_its_code() {
        let fine = Verdict::ALL.iter().filter(|v| Code::of_verdict(**v) == Code::FINE).count();
        assert_eq!(
            fine, 7,
            "starting, never-started, running, settling, paused, finished, not-a-run"
        );
    }
}
