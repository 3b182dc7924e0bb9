//! What is to become of a run whose runner is gone?
//!
//! One answer for whoever tells what may be done and whoever does it. Grace times and policies are not its
//! business: it says what the records call for. The first row that fits decides.
//! Spec: RS-REC-05 to RS-REC-07.

use super::super::evidence::{ResultFact, RunEvidence};
use super::super::state::RunState;
use super::super::status::StatusView;

/// What the records of a run whose runner is gone call for.
#[derive(Clone, Debug)]
pub enum Fate<'e> {
    /// It follows its result, which tells this outcome.
    Adopt(&'e ResultFact, RunState),
    /// It ends as failed.
    Close,
    /// It was queued and never ran: it is closed only if somebody asks for that.
    Queued,
    /// It stays as it is; why.
    Keep(String),
}

/// What is to become of a run whose recorded process is gone.
pub fn fate<'e>(e: &'e RunEvidence, s: &StatusView) -> Fate<'e> {
    let keep = |why: &str| Fate::Keep(why.to_owned());
    if s.known_state() == Some(RunState::Paused) {
        return keep(
            "a pause that was never confirmed is not ended by rule: its session may be resumed",
        );
    }
    if let Some(bad) = e.own_results().find(|r| r.fact.is_there() && r.fact.value().is_none()) {
        return Fate::Keep(format!("{} cannot be read, and may be its result", bad.path));
    }
    let told = e.own_results().find_map(|r| Some((r, r.fact.value()?.outcome?)));
    if let Some((result, outcome)) = told.filter(|(_, outcome)| outcome.is_terminal()) {
        return Fate::Adopt(result, outcome);
    }
    if let Some(silent) = e.own_results().next() {
        return Fate::Keep(format!("{} names no outcome", silent.path));
    }
    if s.dismissed_at_ms.is_some() {
        return keep("it was hidden from listings and left no result");
    }
    if s.known_state() == Some(RunState::Queued) {
        return Fate::Queued;
    }
    Fate::Close
}

/// Why nothing may be written to a run, whatever became of it.
/// Spec: RS-REC-07.
pub fn unfit(e: &RunEvidence, s: &StatusView) -> Option<String> {
    if s.run_id.as_deref().is_some_and(|id| id != e.run_id) {
        return Some("its status names another run".to_owned());
    }
    if s.duplicate_keys {
        return Some(
            "its status has duplicate keys, so no change could say which it means".to_owned(),
        );
    }
    if e.unstable {
        return Some("its files kept changing while they were read".to_owned());
    }
    if let Some(real) = &e.shadowed_by {
        return Some(format!("another directory has the same id: {real}"));
    }
    if e.results_unread {
        return Some(
            "an area of results was not looked at, or not to its end, and its result may lie there"
                .to_owned(),
        );
    }
    None
}
