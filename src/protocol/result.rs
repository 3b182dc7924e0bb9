//! Result payloads: what a run wants to hand to the session that launched it.
//!
//! Theory of operation. A result lies in the pending area, then under its public name, then (after
//! delivery) only in a short-lived replay record. It outlives a status that was never written, so it
//! is an account of the outcome in its own right. Spec: RS-RESULT-*; facts §3.10.

use super::Word as _;
use super::document::Document;
use super::member;
use super::open::words;
use super::raw::{Kind, Raw};
use super::state::RunState;

words! {
    /// Where a result was found.
    ResultPlace {
        /// `<runId>.json` in the results root.
        Public = "public",
        /// `result-pending/<session>/<run>.json`.
        Pending = "pending",
        /// `completion-replay/<run>.json`: a copy of a completion that was delivered.
        Replay = "replay",
        /// `workflow-result.json` inside the run directory.
        Workflow = "workflow",
    }
}

/// What a result payload claims, as far as it decides anything.
#[derive(Clone, Debug, Default)]
pub struct ResultView {
    /// `runId`, else `id`.
    pub run_id: Option<String>,
    /// `sessionId`.
    pub session_id: Option<String>,
    /// `toolCallId`: the host's id of the call that launched the run.
    pub tool_call_id: Option<String>,
    /// The outcome per facts Q-20; `None` when nothing names one.
    pub outcome: Option<RunState>,
    /// `timestamp`, or `completedAt` of a replay.
    pub at_ms: Option<i64>,
    /// `notificationDeliveredAt`.
    pub delivered_at_ms: Option<i64>,
    /// Whether any child has a non-empty `output`.
    pub has_output: bool,
}

impl ResultView {
    /// Reads a payload. Members of a wrong type read as absent.
    pub fn read(doc: &Document<'_>) -> Self {
        // A replay wraps the completion; the outcome is inside.
        if let Some(inner) = doc.get("completion").and_then(Raw::object) {
            let mut view = Self::read(&inner);
            let own = Self::read_listed(doc);
            view.run_id = own.run_id.or(view.run_id);
            view.session_id = own.session_id.or(view.session_id);
            view.at_ms = doc.get("completedAt").and_then(Raw::instant_ms).or(view.at_ms);
            return view;
        }
        let has_output = doc.get("results").and_then(Raw::array).is_some_and(|children| {
            children.iter().any(|child| {
                child
                    .object()
                    .and_then(|c| c.get("output"))
                    .and_then(Raw::string)
                    .is_some_and(|o| !o.trim().is_empty())
            })
        });
        Self { has_output, ..Self::read_listed(doc) }
    }

    /// Reads what a list of results shows: everything but [`ResultView::has_output`], for which all
    /// children, and so most of a large payload, would have to be gone through.
    pub fn read_listed(doc: &Document<'_>) -> Self {
        let text = |key: &str| member::loose_string(doc, key);
        Self {
            run_id: text("runId").or_else(|| text("id")),
            session_id: text("sessionId").filter(|s| !s.is_empty()),
            tool_call_id: text("toolCallId"),
            outcome: outcome_of(doc),
            at_ms: doc.get("timestamp").and_then(Raw::instant_ms),
            delivered_at_ms: doc.get("notificationDeliveredAt").and_then(Raw::instant_ms),
            has_output: false,
        }
    }
}

/// The outcome that a payload names: `success`, then the state word, then the exit code (Q-20).
fn outcome_of(doc: &Document<'_>) -> Option<RunState> {
    let success = doc.get("success").and_then(Raw::boolean);
    if success == Some(true) {
        return Some(RunState::Complete);
    }
    let word = doc.get("state").and_then(Raw::string);
    if let Some(state) = word.as_deref().and_then(RunState::from_word) {
        // A word that claims success without `success: true` is not taken at its word.
        let claims_success = state == RunState::Complete && success == Some(false);
        return Some(if claims_success { RunState::Failed } else { state });
    }
    match doc.get("exitCode") {
        Some(raw) if raw.kind() == Kind::Number && raw.integer() == Some(0) => {
            Some(RunState::Paused)
        }
        _ if success == Some(false) => Some(RunState::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> Option<RunState> {
        ResultView::read(&Document::parse(text).expect("valid")).outcome
    }

    #[test]
    fn the_outcome_follows_success_then_word_then_exit_code() {
        assert_eq!(outcome(r#"{"success":true,"state":"failed"}"#), Some(RunState::Complete));
        assert_eq!(outcome(r#"{"success":false,"state":"stopped"}"#), Some(RunState::Stopped));
        assert_eq!(outcome(r#"{"success":false,"exitCode":0}"#), Some(RunState::Paused));
        assert_eq!(outcome(r#"{"success":false}"#), Some(RunState::Failed));
        assert_eq!(outcome(r#"{"summary":"x"}"#), None);
    }

    #[test]
    fn a_replay_is_read_through_its_wrapper() {
        let text = r#"{"version":1,"runId":"r","sessionId":"s","completedAt":7,
            "completion":{"id":"r","success":true,"timestamp":5}}"#;
        let view = ResultView::read(&Document::parse(text).expect("valid"));
        assert_eq!(view.outcome, Some(RunState::Complete));
        assert_eq!((view.at_ms, view.session_id.as_deref()), (Some(7), Some("s")));
    }
}
