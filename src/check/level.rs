//! Which findings are problems of a store at rest, and how much they matter.
//!
//! One table; a test asserts that every finding stands in it once. Spec: RS-CHECK-04, RS-CHECK-05.

use crate::protocol::finding::FindingKind;
use crate::protocol::verdict::Verdict;

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A rule that binds is broken.
    Must,
    /// Something that should not stay; nothing relies on its absence.
    Should,
}

impl Level {
    /// The word of an answer.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
        }
    }
}

/// Ordinary, a matter of time, or a bound of the look.
const NO_PROBLEM: [&str; 13] = [
    "dismissed",
    "silent",
    "shared-pid",
    "log-large",
    "log-budget",
    "dir-truncated",
    "unstable",
    "vanished",
    "slot-retained",
    "split-root",
    "same-moment",
    "replay-unused",
    "nested-child-missing",
];

const SHOULD: [&str; 26] = [
    "overlay-differs",
    "config-left",
    "clock-ahead",
    "log-torn",
    "temp-litter",
    "control-pending",
    "marker-stale",
    "marker-orphan",
    "lease-stale",
    "slot-releasable",
    "result-missing",
    "status-writes-lost",
    "nested-event-ignored",
    "terminal-entry-orphan",
    "terminal-entry-missing",
    "in-both-indexes",
    "alias-orphan",
    "result-entry-orphan",
    "result-without-run",
    "slot-without-run",
    "claim-left",
    "lease-of-no-session",
    "temp-litter-outside",
    "name-outside",
    "deletion-unfinished",
    "slots-above-limit",
];

/// How much a finding matters at rest; `None` when it is no problem. Everything that is in neither list binds.
/// Spec: RS-CHECK-04, RS-CHECK-05.
pub fn level(kind: &FindingKind) -> Option<Level> {
    if NO_PROBLEM.contains(&kind.id) {
        None
    } else if SHOULD.contains(&kind.id) {
        Some(Level::Should)
    } else {
        Some(Level::Must)
    }
}

/// Whether a verdict is a problem of its own at rest: something that claims to go on and does not, or two ends
/// of one run. What is wrong with the records of other verdicts is told by their findings.
/// Spec: RS-CHECK-06.
pub fn of_verdict(verdict: Verdict) -> Option<Level> {
    match verdict {
        Verdict::Orphaned | Verdict::StartStuck | Verdict::Conflict => Some(Level::Must),
        Verdict::NeverStarted | Verdict::NotARun => Some(Level::Should),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::finding;

    #[test]
    fn both_lists_name_findings_that_exist_once() {
        let all: Vec<_> = NO_PROBLEM.iter().chain(&SHOULD).collect();
        for (i, id) in all.iter().enumerate() {
            assert!(finding::by_id(id).is_some(), "{id} is a finding");
            assert!(!all[..i].contains(id), "{id} stands in one list");
        }
    }

    #[test]
    fn nothing_that_is_damaged_or_unsafe_is_taken_for_ordinary() {
        for kind in finding::ALL {
            if kind.severity == crate::protocol::verdict::Severity::Error {
                assert_eq!(level(kind), Some(Level::Must), "{} is an error", kind.id);
            }
        }
    }
}
