//! Markers: files whose existence is the statement.
//!
//! Theory of operation. Two indexes spare listings a scan of all runs. The *active* index holds one
//! empty file per run that may be under way; the *terminal* index holds one small record per ended
//! run and session, named so that sorting by name is sorting by time. Both are hints that any reader
//! may rebuild: the status decides what a run is, and a marker never proves that a process lives or
//! died.
//!
//! [`judge_active`] and [`judge_terminal`] say what a marker is worth beside the status; they change
//! nothing. A crash between a status write and its marker leaves the pair in disagreement, which is
//! why every reader has to judge. Facts §6.1, §6.2.

use std::fmt;

use super::document::Document;
use super::error::DecodeError;
use super::limits;
use super::open::Open;
use super::segment::{SegmentInput, encode};
use super::state::RunState;

/// File name of a terminal marker: the instant padded to 16 digits, the encoded run id, `.json`.
///
/// `ended_at_ms` is the first of end, last update and start that the status has. The result may be
/// longer than a file name can be, because the id alone may fill the limit (facts X-20).
pub fn terminal_marker_name(ended_at_ms: f64, run_id: &SegmentInput) -> String {
    format!("{:0>16}-{}.json", stamp(ended_at_ms), encode(run_id, limits::NAME_MAX_BYTES))
}

/// An instant as the reference writers spell numbers, which matters beyond the range of real clocks.
fn stamp(ms: f64) -> String {
    if ms.is_nan() {
        return "NaN".to_owned();
    }
    let ms = if ms > 0.0 { ms.floor() } else { 0.0 };
    if ms.is_infinite() {
        return "Infinity".to_owned();
    }
    // From here on their number format changes to one with an exponent.
    if ms >= 1e21 { format!("{ms:e}").replace('e', "e+") } else { format!("{ms}") }
}

/// The content of a terminal marker. Facts X-21.
/// Spec: RS-INDEX-08.
#[derive(Clone, Debug, PartialEq)]
pub struct TerminalEntry {
    /// The run.
    pub run_id: String,
    /// The session whose listing the marker serves.
    pub session_id: String,
    /// When the run ended, in milliseconds since the Unix epoch, possibly with a fraction.
    pub ended_at_ms: f64,
}

impl TerminalEntry {
    /// Reads a marker. Unknown members are ignored.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong. Facts X-24.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let text = |key: &str| {
            let found = doc.get(key).and_then(|v| v.string()).filter(|s| !s.is_empty());
            found.ok_or_else(|| DecodeError::member(key, "a non-empty string"))
        };
        if doc.get("version").and_then(|v| v.integer()) != Some(1) {
            return Err(DecodeError::member("version", "1"));
        }
        let ended_at_ms = doc.get("endedAt").and_then(|v| v.number());
        Ok(Self {
            run_id: text("runId")?.into_owned(),
            session_id: text("sessionId")?.into_owned(),
            ended_at_ms: ended_at_ms.ok_or_else(|| DecodeError::member("endedAt", "a number"))?,
        })
    }
}

/// What the status of a marked run says, as far as the indexes care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkedStatus {
    /// The name of the marker does not lead to a proper run directory.
    NotARun,
    /// The run directory has no status.
    Missing,
    /// The status is there and cannot be read.
    Unreadable,
    /// The state it gives.
    State(Open<RunState>),
}

/// What an active marker is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActiveVerdict {
    /// It stays.
    Keep(KeepReason),
    /// It has outlived its purpose; a repairing listing removes it.
    Release(ReleaseReason),
    /// Nothing but its age speaks against it; a repairing listing removes it.
    Stale {
        /// Its age in milliseconds.
        age_ms: i64,
    },
}

/// Why an active marker stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepReason {
    /// The run says that it is under way.
    Active,
    /// The run says that it ended, and no proof shows that its processes did.
    AwaitingProof,
    /// The status cannot be read, so nothing speaks against the marker yet.
    Unreadable,
}

/// Why an active marker has outlived its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReason {
    /// There is no such run.
    NotARun,
    /// The run has no status.
    NoStatus,
    /// The proof shows that the processes of the run ended.
    ProofObserved,
}

impl fmt::Display for ActiveVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(KeepReason::Active) => f.write_str("the run is under way"),
            Self::Keep(KeepReason::AwaitingProof) => {
                f.write_str("the run says it ended and no proof is observed yet")
            }
            Self::Keep(KeepReason::Unreadable) => f.write_str("the status cannot be read"),
            Self::Release(ReleaseReason::NotARun) => f.write_str("there is no such run"),
            Self::Release(ReleaseReason::NoStatus) => f.write_str("the run has no status"),
            Self::Release(ReleaseReason::ProofObserved) => {
                f.write_str("the processes of the run are proven to have ended")
            }
            Self::Stale { age_ms } => {
                write!(f, "the run is not under way and its marker is {age_ms} ms old")
            }
        }
    }
}

/// Age of a marker in milliseconds, never negative. Facts X-9.
pub fn age_ms(now_ms: i64, modified_ms: i64) -> i64 {
    now_ms.saturating_sub(modified_ms).max(0)
}

/// Judges an active marker beside the reconciled status, the proof beside it, and the marker's age.
/// An unknown state word counts as not active. Facts X-8, S-27, S-28.
/// Spec: RS-INDEX-04, RS-INDEX-05.
pub fn judge_active(status: &MarkedStatus, proof_observed: bool, age_ms: i64) -> ActiveVerdict {
    let waiting_for = match status {
        MarkedStatus::NotARun => return ActiveVerdict::Release(ReleaseReason::NotARun),
        MarkedStatus::Missing => return ActiveVerdict::Release(ReleaseReason::NoStatus),
        MarkedStatus::State(s) if s.known().is_some_and(RunState::is_active) => {
            return ActiveVerdict::Keep(KeepReason::Active);
        }
        MarkedStatus::State(_) => KeepReason::AwaitingProof,
        MarkedStatus::Unreadable => KeepReason::Unreadable,
    };
    if proof_observed {
        ActiveVerdict::Release(ReleaseReason::ProofObserved)
    } else if age_ms > limits::STALE_MARKER_MS {
        ActiveVerdict::Stale { age_ms }
    } else {
        ActiveVerdict::Keep(waiting_for)
    }
}

/// What a terminal marker is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TerminalVerdict {
    /// It describes an ended run of its session.
    Valid,
    /// It stands in the directory of another session than it names.
    OtherSession,
    /// The run has no status, or none that can be read.
    NoStatus,
    /// The status does not name an end: it is active, or a word that nobody knows.
    NotTerminal,
    /// The status names another run or another session.
    Mismatch,
}

/// The members of a status that a terminal marker is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalStatus {
    /// The state.
    pub state: Open<RunState>,
    /// The run id in the status, or the directory name where it has none.
    pub run_id: String,
    /// The session id, if any.
    pub session_id: Option<String>,
}

/// Judges a terminal marker found in the directory of `session_id`. Duplicates of one run are the
/// caller's to see. Facts X-24.
/// Spec: RS-INDEX-11.
pub fn judge_terminal(
    entry: &TerminalEntry,
    session_id: &str,
    status: Option<&TerminalStatus>,
) -> TerminalVerdict {
    if entry.session_id != session_id {
        return TerminalVerdict::OtherSession;
    }
    let Some(status) = status else {
        return TerminalVerdict::NoStatus;
    };
    if !status.state.known().is_some_and(RunState::is_terminal) {
        TerminalVerdict::NotTerminal
    } else if status.run_id != entry.run_id
        || status.session_id.as_deref() != Some(&*entry.session_id)
    {
        TerminalVerdict::Mismatch
    } else {
        TerminalVerdict::Valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(word: &str) -> MarkedStatus {
        MarkedStatus::State(Open::read(word))
    }

    #[test]
    fn an_active_marker_is_judged_by_state_then_proof_then_age() {
        let day = limits::STALE_MARKER_MS;
        let keep = ActiveVerdict::Keep;
        let release = ActiveVerdict::Release;
        for (status, observed, age, want) in [
            (state("running"), true, 2 * day, keep(KeepReason::Active)),
            (state("queued"), false, 0, keep(KeepReason::Active)),
            (state("failed"), false, 0, keep(KeepReason::AwaitingProof)),
            (state("failed"), false, day, keep(KeepReason::AwaitingProof)),
            (state("failed"), false, day + 1, ActiveVerdict::Stale { age_ms: day + 1 }),
            (state("failed"), true, 0, release(ReleaseReason::ProofObserved)),
            (state("mystery"), false, 0, keep(KeepReason::AwaitingProof)),
            (MarkedStatus::Unreadable, false, 0, keep(KeepReason::Unreadable)),
            (MarkedStatus::Unreadable, true, 0, release(ReleaseReason::ProofObserved)),
            (MarkedStatus::Unreadable, false, day + 1, ActiveVerdict::Stale { age_ms: day + 1 }),
            (MarkedStatus::Missing, false, 0, release(ReleaseReason::NoStatus)),
            (MarkedStatus::NotARun, false, 0, release(ReleaseReason::NotARun)),
        ] {
            assert_eq!(judge_active(&status, observed, age), want, "{status:?} {observed} {age}");
        }
        assert_eq!(age_ms(5, 9), 0, "a marker from the future is new");
        assert_eq!(age_ms(i64::MAX, i64::MIN), i64::MAX);
    }

    #[test]
    fn a_terminal_marker_must_agree_with_its_directory_and_its_status() {
        let entry = TerminalEntry { run_id: "r".into(), session_id: "s".into(), ended_at_ms: 1.0 };
        let status = |word, run: &str, session: Option<&str>| TerminalStatus {
            state: Open::read(word),
            run_id: run.into(),
            session_id: session.map(Into::into),
        };
        for (session, status, want) in [
            ("s", Some(status("complete", "r", Some("s"))), TerminalVerdict::Valid),
            ("s", Some(status("paused", "r", Some("s"))), TerminalVerdict::Valid),
            ("t", Some(status("complete", "r", Some("s"))), TerminalVerdict::OtherSession),
            ("s", None, TerminalVerdict::NoStatus),
            ("s", Some(status("running", "r", Some("s"))), TerminalVerdict::NotTerminal),
            ("s", Some(status("completed", "r", Some("s"))), TerminalVerdict::NotTerminal),
            ("s", Some(status("failed", "q", Some("s"))), TerminalVerdict::Mismatch),
            ("s", Some(status("failed", "r", Some("t"))), TerminalVerdict::Mismatch),
            ("s", Some(status("failed", "r", None)), TerminalVerdict::Mismatch),
        ] {
            assert_eq!(judge_terminal(&entry, session, status.as_ref()), want, "{status:?}");
        }
    }

    #[test]
    fn names_sort_by_time_within_the_range_of_real_clocks() {
        let name = |ms| terminal_marker_name(ms, &"r".into());
        assert_eq!(name(-0.0), "0000000000000000-r.json");
        assert_eq!(name(0.9), "0000000000000000-r.json");
        assert!(name(999.0) < name(1_000.0));
        assert_eq!(name(1.5e21), "0000000001.5e+21-r.json");
    }

    #[test]
    fn the_entry_parser_names_the_wrong_member() {
        let read = |text| TerminalEntry::read(&Document::parse(text).expect("object"));
        let err = |text| read(text).expect_err("refused").to_string();
        assert!(err(r#"{"runId":"r","sessionId":"s","endedAt":1}"#).contains("version"));
        assert!(
            err(r#"{"version":1,"runId":"r","sessionId":"s","endedAt":1e400}"#).contains("endedAt")
        );
        let entry = read(r#"{"version":1.0,"runId":"r","sessionId":"s","endedAt":1.5}"#);
        assert_eq!(entry.expect("valid").ended_at_ms, 1.5);
    }
}
