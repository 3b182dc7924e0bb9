//! What a word or id of an answer means: verdicts, flags, findings, clauses.
//!
//! The clause texts come from the registry, which is compiled in, so that the program and the spec of one
//! release cannot disagree.

use super::registry;
use crate::protocol::finding;
use crate::protocol::verdict::{Flag, Verdict};
use crate::protocol::{RunState, Word};

/// One explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The word or id.
    pub id: String,
    /// `verdict`, `flag`, `finding`, `clause` or `state`.
    pub kind: &'static str,
    /// What it means.
    pub meaning: String,
    /// What to do, where there is something to do.
    pub advice: Option<String>,
    /// Clauses that it rests on.
    pub clauses: Vec<String>,
}

fn verdict_meaning(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Starting => (
            "A launch is under way and inside its time. The stage says how far it came.",
            "Look again later; do not launch twice.",
        ),
        Verdict::StartStuck => (
            "A launch stage is over its time and nothing has begun.",
            "Find out whether the launcher lives.",
        ),
        Verdict::StartFailed => {
            ("The failure of the start-up is recorded. Nothing ran.", "Report the recorded error.")
        }
        Verdict::NeverStarted => (
            "The launch was abandoned before any work: a directory, no status, past the grace time.",
            "Launch anew; a launch always makes a new directory.",
        ),
        Verdict::Running => (
            "The run is active, and its runner is demonstrably the same live process.",
            "Leave it alone.",
        ),
        Verdict::RunningUnverified => (
            "The run is active; the life of its runner is neither proven nor excluded.",
            "Never treat it as dead. Ask on the recorded host.",
        ),
        Verdict::Orphaned => (
            "The run is recorded active, and its runner is demonstrably gone from this host.",
            "It needs a repair: adopt a result that outlived the status, or close it as failed.",
        ),
        Verdict::Settling => (
            "The run has ended; its result or proof is still inside its time.",
            "Look again in a minute.",
        ),
        Verdict::Paused => (
            "The run is recorded paused. `resumable` says whether it can be resumed now.",
            "Resume it, or keep it.",
        ),
        Verdict::Finished => {
            ("The run has ended, and an observer proved the exit of its runner.", "Nothing.")
        }
        Verdict::FinishedUnproven => (
            "The run has ended by its own account, but nobody proved the exit of its runner.",
            "Use the outcome; release nothing on its word.",
        ),
        Verdict::Conflict => (
            "Two records tell different outcomes. `preferred` names the one with the better evidence.",
            "Read both; let neither vanish.",
        ),
        Verdict::Corrupt => (
            "The status is unreadable, torn, zero-filled, not JSON or of wrong types; or there is work without a status.",
            "Keep the files; they are the evidence for a repair.",
        ),
        Verdict::Unsupported => (
            "The record is well-formed, but of a newer version or with an unknown state word.",
            "Use a newer program; rewrite nothing.",
        ),
        Verdict::Unsafe => (
            "Something is not a plain file of this user in its place: a link, a pipe, a device, another owner.",
            "Examine it by hand; it was not opened.",
        ),
        Verdict::NotARun => ("The directory holds no evidence of a run.", "Nothing."),
    }
}

fn flag_meaning(flag: Flag) -> &'static str {
    match flag {
        Flag::Repaired => "A repairer wrote the account, not the runner.",
        Flag::Undelivered => "A result waits for its session to pick it up.",
        Flag::Undeliverable => "A result is there that no session can receive.",
        Flag::ResultMissing => "The run has ended, has a session, and its result is in no area.",
        Flag::UnpublishedWrite => "A writer died before it published a newer version of a record.",
        Flag::OutputCommitted => {
            "The run did not succeed, but its answer was committed and its runner exited 0."
        }
        Flag::ControlPending => "Requests lie in the control inbox that nobody has taken up.",
        Flag::Overdue => "The run is past its own deadline and still active.",
        Flag::LogTorn => "The last line of the event log is cut.",
        Flag::LogCorrupt => "A line in the middle of the event log is damaged.",
        Flag::SlotRetained => "A capacity slot is held for the run and must stay for now.",
        Flag::SlotReleasable => "A capacity slot is held for the run and may be released.",
        Flag::LeaseHeld => "A session lease is recorded for the run.",
        Flag::Shadow => "Another directory has the same id and is the run.",
        Flag::SplitRoot => "The run lies in a fallback root beside the usual one.",
        Flag::TempLitter => "Temp files of interrupted replacements are left over.",
        Flag::MarkerStale => "The active index still names the run although it has ended.",
        Flag::MarkerMissing => "The run is active, but the active index does not name it.",
        Flag::SharedPid => "Several active runs record the same pid: it is a host's.",
        Flag::LoosePermissions => "Other users may write to the run directory or its records.",
        Flag::Truncated => "Not everything was looked at, because of a bound.",
    }
}

/// Explains one word or id; `None` when nothing has that name. Words of two kinds give two answers.
pub fn explain(id: &str) -> Vec<Explanation> {
    explain_all().into_iter().filter(|e| e.id.eq_ignore_ascii_case(id)).collect()
}

/// Everything that can be explained.
pub fn explain_all() -> Vec<Explanation> {
    let mut all = Vec::new();
    for verdict in Verdict::ALL {
        let (meaning, advice) = verdict_meaning(*verdict);
        all.push(plain(verdict.as_str(), "verdict", meaning, Some(advice)));
    }
    for flag in Flag::ALL {
        all.push(plain(flag.as_str(), "flag", flag_meaning(*flag), None));
    }
    for state in RunState::ALL {
        let meaning = match (state.is_active(), state.is_outcome()) {
            (true, _) => "A recorded state: the run claims a process.",
            (_, true) => "A recorded state: the run claims this outcome.",
            _ => "A recorded state: interrupted; another run may carry on.",
        };
        all.push(plain(state.as_str(), "state", meaning, None));
    }
    for kind in finding::ALL {
        let mut e = plain(kind.id, "finding", kind.meaning, Some(kind.advice));
        e.clauses = kind.clauses.iter().map(|c| (*c).to_owned()).collect();
        all.push(e);
    }
    all.extend(clauses());
    all
}

fn plain(id: &str, kind: &'static str, meaning: &str, advice: Option<&str>) -> Explanation {
    Explanation {
        id: id.to_owned(),
        kind,
        meaning: meaning.to_owned(),
        advice: advice.map(str::to_owned),
        clauses: Vec::new(),
    }
}

/// What the registry says of each clause.
fn clauses() -> impl Iterator<Item = Explanation> {
    registry::clauses().into_iter().map(|clause| {
        let mut e = plain(clause.id, "clause", &clause.text, None);
        e.clauses.push(format!("{}, spec/{}", clause.level, clause.chapter));
        e
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_that_a_finding_rests_on_is_in_the_registry() {
        let known: Vec<_> = clauses().collect();
        assert!(known.len() > 100, "the registry is read");
        for kind in finding::ALL {
            for clause in kind.clauses {
                assert!(known.iter().any(|k| k.id == *clause), "{} names {clause}", kind.id);
            }
        }
    }

    #[test]
    fn every_word_of_an_answer_is_explained() {
        for word in
            Verdict::ALL.iter().map(|v| v.as_str()).chain(Flag::ALL.iter().map(|f| f.as_str()))
        {
            assert!(!explain(word).is_empty(), "{word} is explained");
        }
        assert!(explain("no-such-word").is_empty());
    }
}
