//! What a reconciler makes of a run: leave it, repair it from its result, or declare it failed.
//!
//! Theory of operation. Every ordinary read of a run by the existing implementations reconciles it.
//! [`decide`] gives the verdict that they reach, from the same evidence and in the same order; the
//! first row that applies decides. It describes them, so that their repairs can be told and foreseen.
//! A recoverer that acts on a run may ask for more evidence than this, never for less.
//!
//! A repair from a result writes the status, then the indexes. A failed repair writes the result
//! first, because a status that says `failed` without a result would never be looked at again, then
//! the status, the indexes and an event. A crash in between leaves a result beside an active status,
//! which the next reconciler takes for a repair from a result.
//!
//! Not promised: that the writer does not live. There is no lock and no second look, a pid may have
//! been reused, and "silent for a day" is not "dead".

use super::document::Document;
use super::error::DecodeError;
use super::limits;
use super::liveness::Alive;
use super::open::Open;
use super::proof::{OBSERVER_UNAVAILABLE, Proof, ProofReason, ProofState};
use super::raw::Raw;
use super::state::{RunState, StepState};

/// What a reconciler looks at in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSeen {
    /// `state`.
    pub state: Open<RunState>,
    /// Whether `pid` is a number.
    pub has_pid: bool,
    /// Whether `displayDismissedAt` is present.
    pub dismissed: bool,
    /// `startedAt`.
    pub started_at_ms: Option<i64>,
    /// `lastUpdate`.
    pub last_update_ms: Option<i64>,
}

/// What was found in place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found<T> {
    /// No file.
    Missing,
    /// A file that cannot be read or breaks a rule, with the reason.
    Invalid(String),
    /// Its content.
    Valid(T),
}

/// What the launching process remembers of a run whose status may not be written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartHint {
    /// Whether it knows the pid.
    pub has_pid: bool,
    /// When it started the runner.
    pub started_at_ms: i64,
}

/// Everything that decides. Facts §8.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileEvidence {
    /// The status; invalid also when [`check_models`] refuses its steps.
    pub status: Found<StatusSeen>,
    /// The memory of the launching process, if it is the one that asks.
    pub hint: Option<StartHint>,
    /// The state that the run's result names ([`result_state`]).
    pub result: Found<RunState>,
    /// Whether the recorded process lives.
    pub pid_alive: Alive,
    /// The clock.
    pub now_ms: i64,
}

/// Why a run is declared failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailedBecause {
    /// Its process is gone and left no result.
    ProcessGone,
    /// Its process is not known to be gone, but the status has been silent for this long.
    Silent {
        /// Since the last update, else since the start.
        silent_ms: i64,
    },
}

/// What is done with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconcileAction {
    /// There is no run to show.
    None,
    /// The run is shown as it is.
    Unchanged,
    /// The status takes over the state of the result.
    RepairFromResult {
        /// That state.
        state: RunState,
    },
    /// The run is declared failed.
    RepairFailed {
        /// Why.
        because: FailedBecause,
    },
    /// The caller gets an error and nothing is written.
    Error {
        /// What was wrong.
        why: String,
    },
}

/// One of the things that a repair writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// The result and its indexes.
    Result,
    /// `status.json`.
    Status,
    /// The active and terminal index.
    Indexes,
    /// The event `subagent.run.repaired_stale`.
    Event,
}

/// The verdict of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileDecision {
    /// The row of facts §8.2 that decided, `Q-1` to `Q-11`.
    pub row: &'static str,
    /// What is done.
    pub action: ReconcileAction,
}

impl ReconcileDecision {
    /// Whether anything is repaired.
    pub fn repairs(&self) -> bool {
        self.state_after().is_some()
    }

    /// The state that a repair writes.
    pub fn state_after(&self) -> Option<RunState> {
        match self.action {
            ReconcileAction::RepairFromResult { state } => Some(state),
            ReconcileAction::RepairFailed { .. } => Some(RunState::Failed),
            _ => None,
        }
    }

    /// What is written, in order. A result needs a session to belong to. Facts Q-24, Q-34.
    pub fn written(&self, has_session: bool) -> &'static [Written] {
        match self.action {
            ReconcileAction::RepairFromResult { .. } => &[Written::Status, Written::Indexes],
            ReconcileAction::RepairFailed { .. } if has_session => {
                &[Written::Result, Written::Status, Written::Indexes, Written::Event]
            }
            ReconcileAction::RepairFailed { .. } => {
                &[Written::Status, Written::Indexes, Written::Event]
            }
            _ => &[],
        }
    }
}

/// Decides what the existing implementations do with a run. Facts §8.2.
pub fn decide(evidence: &ReconcileEvidence) -> ReconcileDecision {
    let (row, action) = decide_row(evidence);
    ReconcileDecision { row, action }
}

fn decide_row(evidence: &ReconcileEvidence) -> (&'static str, ReconcileAction) {
    let from_hint;
    let (status, hinted) = match (&evidence.status, evidence.hint) {
        (Found::Invalid(why), _) => return ("Q-3", ReconcileAction::Error { why: why.clone() }),
        (Found::Valid(status), _) => (status, false),
        (Found::Missing, None) => return ("Q-1", ReconcileAction::None),
        (Found::Missing, Some(hint)) => {
            from_hint = status_from(hint);
            (&from_hint, true)
        }
    };
    let active = status.state.known().is_some_and(RunState::is_active);
    match &evidence.result {
        Found::Invalid(why) => return ("Q-4", ReconcileAction::Error { why: why.clone() }),
        Found::Valid(state) if active => {
            return ("Q-4", ReconcileAction::RepairFromResult { state: *state });
        }
        Found::Valid(_) if !status.dismissed => return ("Q-5", ReconcileAction::Unchanged),
        Found::Valid(_) | Found::Missing => {}
    }
    if status.dismissed {
        return ("Q-6", ReconcileAction::None);
    }
    if status.state.known() != Some(RunState::Running) || !status.has_pid {
        return ("Q-7", ReconcileAction::Unchanged);
    }
    let since = |from: i64| evidence.now_ms.saturating_sub(from);
    let young = status.started_at_ms.is_none_or(|at| since(at) < limits::STARTED_GRACE_MS);
    if hinted && young {
        return ("Q-8", ReconcileAction::None);
    }
    if evidence.pid_alive == Alive::No {
        let because = FailedBecause::ProcessGone;
        return ("Q-11", ReconcileAction::RepairFailed { because });
    }
    // Without any time the silence cannot be measured, and a run is not failed for that.
    let silent_ms = status.last_update_ms.or(status.started_at_ms).map_or(0, since);
    if silent_ms <= limits::STALE_ALIVE_MS {
        return ("Q-9", ReconcileAction::Unchanged);
    }
    let because = FailedBecause::Silent { silent_ms };
    ("Q-10", ReconcileAction::RepairFailed { because })
}

/// Row Q-2: the status that the launching process imagines.
fn status_from(hint: StartHint) -> StatusSeen {
    StatusSeen {
        state: Open::Known(RunState::Running),
        has_pid: hint.has_pid,
        dismissed: false,
        started_at_ms: Some(hint.started_at_ms),
        last_update_ms: Some(hint.started_at_ms),
    }
}

/// Refuses a status (`steps`) or result (`results`) in which a `model` or `thinking` is not a string.
///
/// # Errors
/// [`DecodeError::Member`] naming the first such member. Facts Q-3, S-24.
pub fn check_models(doc: &Document<'_>, list: &str) -> Result<(), DecodeError> {
    let entries = doc.get(list).and_then(Raw::array).unwrap_or_default();
    for (at, entry) in entries.into_iter().enumerate() {
        let Some(entry) = entry.object() else {
            continue;
        };
        for key in ["model", "thinking"] {
            if entry.get(key).is_some_and(|raw| raw.string().is_none()) {
                return Err(DecodeError::member(format!("{list}[{at}].{key}"), "a string"));
            }
        }
    }
    Ok(())
}

/// The state that a result names. Facts Q-20.
/// Spec: RS-RESULT-05.
pub fn result_state(result: &Document<'_>) -> RunState {
    if result.get("success").and_then(Raw::boolean) == Some(true) {
        return RunState::Complete;
    }
    let word = result.get("state").and_then(Raw::string);
    match word.as_deref() {
        Some("stopped") => RunState::Stopped,
        Some("rejected") => RunState::Rejected,
        Some("partial") => RunState::Partial,
        Some("paused") => RunState::Paused,
        _ if result.get("exitCode").and_then(Raw::number) == Some(0.0) => RunState::Paused,
        _ => RunState::Failed,
    }
}

/// What a repair makes of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepAfter {
    /// Its state.
    pub state: StepState,
    /// Its exit code, unless it has one already.
    pub exit_code: i64,
}

/// What a repair makes of a step, given `success` of its entry in the result and the state of the
/// run; `None` leaves the step alone. A run that is declared failed has no entries. Facts Q-21, Q-31.
pub fn step_after(
    step: &Open<StepState>,
    child_success: Option<bool>,
    run: RunState,
) -> Option<StepAfter> {
    if !step.known().is_some_and(StepState::is_open) {
        return None;
    }
    let state = match child_success {
        Some(true) => StepState::Complete,
        Some(false) => StepState::Failed,
        None => match run {
            RunState::Complete => StepState::Complete,
            RunState::Partial => StepState::Partial,
            RunState::Paused => StepState::Paused,
            RunState::Stopped => StepState::Stopped,
            RunState::Rejected => StepState::Rejected,
            RunState::Failed | RunState::Queued | RunState::Running => StepState::Failed,
        },
    };
    let fine = matches!(state, StepState::Complete | StepState::Paused);
    Some(StepAfter { state, exit_code: i64::from(!fine) })
}

/// The overlay that a repair puts into the status, or `None` when it keeps what is there. Only
/// statuses of lifecycle version 3 get one, and only when they have none or a `pending` one. It names
/// no real runner, because the reconciler knows none. Facts Q-22, Q-32.
pub fn repair_overlay(
    lifecycle_version: Option<f64>,
    overlay: Option<ProofState>,
    run_id: &str,
    reason: ProofReason,
) -> Option<Proof> {
    let replaceable = matches!(overlay, None | Some(ProofState::Pending));
    (lifecycle_version == Some(3.0) && replaceable)
        .then(|| Proof::unknown(run_id, OBSERVER_UNAVAILABLE, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn running() -> StatusSeen {
        StatusSeen {
            state: Open::Known(RunState::Running),
            has_pid: true,
            dismissed: false,
            started_at_ms: Some(0),
            last_update_ms: None,
        }
    }

    fn evidence(status: StatusSeen) -> ReconcileEvidence {
        ReconcileEvidence {
            status: Found::Valid(status),
            hint: None,
            result: Found::Missing,
            pid_alive: Alive::No,
            now_ms: 2_000,
        }
    }

    #[test]
    fn every_row_decides_in_its_turn() {
        let missing = ReconcileEvidence { status: Found::Missing, ..evidence(running()) };
        let hint = |at| Some(StartHint { has_pid: true, started_at_ms: at });
        let hinted = |at| ReconcileEvidence { hint: hint(at), ..missing.clone() };
        let invalid =
            ReconcileEvidence { status: Found::Invalid("x".to_owned()), ..missing.clone() };
        let with_result = |status| ReconcileEvidence {
            result: Found::Valid(RunState::Complete),
            ..evidence(status)
        };
        let complete = StatusSeen { state: Open::Known(RunState::Complete), ..running() };
        let dismissed = StatusSeen { dismissed: true, ..running() };
        let alive =
            |now_ms| ReconcileEvidence { pid_alive: Alive::Unknown, now_ms, ..evidence(running()) };
        let rows = [
            (missing.clone(), "Q-1", false),
            (invalid, "Q-3", false),
            (with_result(running()), "Q-4", true),
            (with_result(complete.clone()), "Q-5", false),
            (evidence(dismissed.clone()), "Q-6", false),
            (with_result(dismissed), "Q-4", true),
            (evidence(complete), "Q-7", false),
            (evidence(StatusSeen { has_pid: false, ..running() }), "Q-7", false),
            (hinted(1_001), "Q-8", false),
            (hinted(1_000), "Q-11", true),
            (alive(DAY_MS), "Q-9", false),
            (alive(DAY_MS + 1), "Q-10", true),
            (evidence(running()), "Q-11", true),
        ];
        for (evidence, row, repairs) in rows {
            let decision = decide(&evidence);
            assert_eq!((decision.row, decision.repairs()), (row, repairs), "{evidence:?}");
        }
    }

    #[test]
    fn a_strangers_state_is_never_repaired() {
        let strange = StatusSeen { state: Open::read("frozen"), ..running() };
        assert_eq!(decide(&evidence(strange)).row, "Q-7", "its owner knows what it means");
    }

    #[test]
    fn a_failed_repair_writes_the_result_first_and_only_with_a_session() {
        let decision = decide(&evidence(running()));
        assert_eq!(decision.written(true).first(), Some(&Written::Result));
        assert_eq!(decision.written(false).first(), Some(&Written::Status));
    }

    #[test]
    fn success_outweighs_the_state_of_a_result() {
        let read = |text| result_state(&Document::parse(text).expect("parses"));
        assert_eq!(read(r#"{"success":true,"state":"stopped"}"#), RunState::Complete);
        assert_eq!(read(r#"{"success":false,"state":"complete","exitCode":1}"#), RunState::Failed);
        assert_eq!(read(r#"{"exitCode":0}"#), RunState::Paused, "an exit without success");
        assert_eq!(read("{}"), RunState::Failed, "nothing is said");
    }

    #[test]
    fn a_closed_step_is_left_alone() {
        let step = Open::Known(StepState::Complete);
        assert_eq!(step_after(&step, Some(false), RunState::Failed), None, "it has its end");
        let open = Open::Known(StepState::Pending);
        let after = step_after(&open, None, RunState::Stopped).expect("it is open");
        assert_eq!((after.state, after.exit_code), (StepState::Stopped, 1), "as the run");
    }
}
