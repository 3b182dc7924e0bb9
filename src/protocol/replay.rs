//! Completion replays: short-lived copies of completions that were delivered.
//!
//! Theory of operation. Before a completion is handed to its session, the deliverer writes a replay
//! and an archive of the outputs; only then may the result go. So a replay is evidence of a delivery,
//! but only while it lives and only of its own run and session: a reader of the protocol removes an
//! expired or mismatching one when it meets it. [`Replay::problem`] is that rule; nothing is removed
//! here. The completion inside is read by [`super::result::ResultView`].
//!
//! A crash between the replay and the hand-over leaves a replay of a completion that its session never
//! saw. Nothing on disk tells the two apart. Spec: RS-RESULT-13; facts S-95, S-96.

use std::fmt;

use super::document::Document;
use super::error::DecodeError;
use super::raw::Raw;
use super::{layout, member, segment};

/// The header of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// `runId`.
    pub run_id: String,
    /// `sessionId`.
    pub session_id: String,
    /// `completedAt`, in milliseconds since the epoch.
    pub completed_at_ms: i64,
    /// `expiresAt`, in milliseconds since the epoch.
    pub expires_at_ms: i64,
    /// `archivePath`, where there is one. Never opened.
    pub archive_path: Option<String>,
}

/// Why a replay is evidence of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayProblem {
    /// It names another run than its file.
    OtherRun,
    /// It names another session than its run.
    OtherSession,
    /// Its time is over.
    Expired,
    /// Its archive is not the one that belongs to the run.
    OtherArchive,
}

impl fmt::Display for ReplayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherRun => "it names another run",
            Self::OtherSession => "it names another session than the run",
            Self::Expired => "it has expired",
            Self::OtherArchive => "its archive is not the one of the run",
        })
    }
}

impl Replay {
    /// Reads the header. Facts S-96.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        if doc.get("completion").and_then(Raw::object).is_none() {
            return Err(DecodeError::member("completion", "an object"));
        }
        Ok(Self {
            run_id: member::filled_string(doc, "runId")?,
            session_id: member::filled_string(doc, "sessionId")?,
            completed_at_ms: member::instant_ms(doc, "completedAt")?,
            expires_at_ms: member::instant_ms(doc, "expiresAt")?,
            archive_path: member::optional_string(doc, "archivePath")?,
        })
    }

    /// Why the replay is no evidence for this run at this instant, if it is none. `session_id` is that
    /// of the run, where it is known.
    pub fn problem(
        &self,
        run_id: &str,
        session_id: Option<&str>,
        now_ms: i64,
    ) -> Option<ReplayProblem> {
        if self.run_id != run_id {
            return Some(ReplayProblem::OtherRun);
        }
        if session_id.is_some_and(|own| own != self.session_id) {
            return Some(ReplayProblem::OtherSession);
        }
        if self.expires_at_ms <= now_ms {
            return Some(ReplayProblem::Expired);
        }
        let other = self.archive_path.as_deref().is_some_and(|path| !is_archive_of(path, run_id));
        other.then_some(ReplayProblem::OtherArchive)
    }
}

/// Whether a path ends as the archive of a run does. What is before that depends on where the store
/// was when the replay was written.
fn is_archive_of(path: &str, run_id: &str) -> bool {
    let mut parts = path.rsplit(['/', '\\']);
    let file = segment::percent_encode(run_id) + ".json";
    parts.next() == Some(&file) && parts.next() == Some(layout::OUTPUT_ARCHIVES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(archive: &str) -> Replay {
        let text = format!(
            r#"{{"version":1,"runId":"r 1","sessionId":"s","completedAt":5,"expiresAt":100,
            "completion":{{}}{archive}}}"#
        );
        Replay::read(&Document::parse(&text).expect("valid")).expect("a replay")
    }

    #[test]
    fn a_replay_counts_for_its_run_and_session_until_it_expires() {
        let plain = replay("");
        for (run, session, now, want) in [
            ("r 1", Some("s"), 99, None),
            ("r 1", None, 99, None),
            ("r 1", Some("s"), 100, Some(ReplayProblem::Expired)),
            ("r 2", Some("s"), 99, Some(ReplayProblem::OtherRun)),
            ("r 1", Some("t"), 99, Some(ReplayProblem::OtherSession)),
        ] {
            assert_eq!(plain.problem(run, session, now), want, "{run} {session:?} {now}");
        }
    }

    #[test]
    fn the_archive_must_be_that_of_the_run() {
        let at =
            |path: &str| replay(&format!(r#","archivePath":"{path}""#)).problem("r 1", None, 0);
        assert_eq!(at("/any/output-archives/r%201.json"), None);
        assert_eq!(at("/any/output-archives/other.json"), Some(ReplayProblem::OtherArchive));
        assert_eq!(at("/any/r%201.json"), Some(ReplayProblem::OtherArchive));
    }

    #[test]
    fn a_header_needs_all_its_members() {
        for text in [
            r#"{"version":2,"runId":"r","sessionId":"s","completedAt":5,"expiresAt":9,"completion":{}}"#,
            r#"{"version":1,"runId":"r","sessionId":"s","completedAt":5,"completion":{}}"#,
            r#"{"version":1,"runId":"r","sessionId":"","completedAt":5,"expiresAt":9,"completion":{}}"#,
            r#"{"version":1,"runId":"r","sessionId":"s","completedAt":5,"expiresAt":9}"#,
        ] {
            assert!(Replay::read(&Document::parse(text).expect("valid")).is_err(), "{text}");
        }
    }
}
