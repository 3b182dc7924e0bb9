//! Who tells which outcome, and do they agree?
//!
//! A run's outcome may be told by its status, by a result, and by a completion event. Each of them
//! outlives the others in some crash, and each can be a repairer's word instead of the runner's.

use std::borrow::Cow;

use super::super::result::ResultPlace;
use super::super::state::RunState;
use super::super::status::StatusView;
use super::{RunEvidence, status};

/// Which record tells an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `status.json`.
    Status,
    /// A result payload.
    Result,
    /// A completion event.
    Events,
}

impl Source {
    /// The word used for `preferred`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Result => "result",
            Self::Events => "events",
        }
    }
}

/// One record's account of the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Which record.
    pub source: Source,
    /// The outcome it tells.
    pub outcome: RunState,
    /// The instant it names.
    pub at_ms: Option<i64>,
    /// The file, for display.
    pub file: Cow<'static, str>,
    /// Whether a repairer wrote it.
    pub repaired: bool,
}

/// Whether the status carries a repairer's signature (facts ).
/// Spec: RS-PROOF-16, RS-FLAG-01.
pub(super) fn status_is_repaired(e: &RunEvidence) -> bool {
    overlay_is_repaired(e) || e.events.as_ref().is_some_and(|log| log.repaired)
}

fn overlay_is_repaired(e: &RunEvidence) -> bool {
    status(e).is_some_and(StatusView::is_repaired)
}

/// Every account of a final outcome. `paused` is none: a later account may rightly follow it.
/// Spec: RS-RESULT-11, RS-RESULT-12.
pub(super) fn collect(e: &RunEvidence) -> Vec<Account> {
    let mut accounts = Vec::new();
    let repaired = status_is_repaired(e);
    let told = status(e).and_then(|s| Some((s, s.known_state()?)));
    if let Some((s, state)) = told.filter(|(_, state)| state.is_outcome()) {
        accounts.push(Account {
            source: Source::Status,
            outcome: state,
            at_ms: s.ended_at_ms.or(s.last_update_ms),
            file: "status.json".into(),
            // A repairer that leaves only its line in the log wrote `failed`; another outcome is the
            // runner's own, written over the repair.
            repaired: overlay_is_repaired(e) || (repaired && state == RunState::Failed),
        });
    }
    for result in e.own_results() {
        let Some(view) = result.fact.value() else { continue };
        let Some(outcome) = view.outcome.filter(|o| o.is_outcome()) else { continue };
        // A repairer writes status and result in one go and with one outcome.
        let by_repairer = repaired
            && told.is_some_and(|(s, state)| {
                state == outcome && (view.at_ms == s.ended_at_ms || view.at_ms == s.last_update_ms)
            });
        accounts.push(Account {
            source: Source::Result,
            outcome,
            at_ms: view.at_ms,
            file: result.path.clone().into(),
            repaired: by_repairer,
        });
    }
    if let Some(log) = &e.events {
        accounts.extend(log.outcomes().filter(|(o, _)| o.is_outcome()).map(|(outcome, at_ms)| {
            Account {
                source: Source::Events,
                outcome,
                at_ms,
                file: "events.jsonl".into(),
                repaired: false,
            }
        }));
    }
    accounts
}

/// The first pair of accounts that disagree, and which of all accounts has the better evidence.
/// Spec: RS-DIAG-12.
pub(super) fn disagreement(accounts: &[Account]) -> Option<(&Account, &Account, Source)> {
    let first = accounts.first()?;
    let other = accounts.iter().find(|a| a.outcome != first.outcome)?;
    // The runner's own word before a repairer's; then the record that says most: a result is the
    // work itself, a status is a summary, an event is a remark.
    let rank = |a: &Account| {
        let weight = match a.source {
            Source::Result => 2,
            Source::Status => 1,
            Source::Events => 0,
        };
        (!a.repaired, weight)
    };
    let best = accounts.iter().max_by_key(|a| rank(a))?;
    Some((first, other, best.source))
}

/// Whether a payload is there that outlived an active status.
pub(super) fn surviving_result(e: &RunEvidence) -> Option<&super::super::evidence::ResultFact> {
    e.own_results().find(|r| r.fact.value().is_some())
}

/// Whether the result was already handed over: only its replay is left.
pub(super) fn is_replay(place: ResultPlace) -> bool {
    place == ResultPlace::Replay
}
