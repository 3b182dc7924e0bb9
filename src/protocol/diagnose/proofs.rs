//! Does an exit proof count? The sidecar decides; the overlay in the status is only a copy.

use super::super::Word as _;
use super::super::evidence::ObserverFact;
use super::super::proof::{Proof, ProofState};
use super::super::status::StatusView;
use super::{FileFact, ProofSummary, RunEvidence, status};
use crate::protocol::Open;

/// Summarizes sidecar and overlay. Spec: RS-PROOF-*, facts §5.2, §5.6 P-22.
/// Spec: RS-PROOF-04, RS-PROOF-05.
pub(super) fn summarize(e: &RunEvidence) -> ProofSummary {
    match &e.proof {
        FileFact::Present(proof, _) => sidecar(e, proof),
        FileFact::Absent => overlay(e),
        // A damaged sidecar reads as an unknown proof, and stays where it is.
        FileFact::Damaged(error, _) => summary(
            "unknown",
            Some(format!("proof-write-failed: the proof is invalid, {error}")),
            false,
        ),
        FileFact::Unsafe(what) => {
            summary("unknown", Some(format!("proof-write-failed: the proof is {what}")), false)
        }
        FileFact::Unreadable(why) => summary(
            "unknown",
            Some(format!("proof-write-failed: the proof is unreadable, {why}")),
            false,
        ),
    }
}

fn summary(state: &'static str, reason: Option<String>, counts: bool) -> ProofSummary {
    ProofSummary { state, reason, counts }
}

fn recorded_reason(proof: &Proof) -> Option<String> {
    proof.reason.as_ref().map(Open::as_str).map(str::to_owned)
}

fn sidecar(e: &RunEvidence, proof: &Proof) -> ProofSummary {
    let word = proof.state.as_str();
    match mismatch(e, proof) {
        Some(why) => summary(word, Some(format!("does not count: {why}")), false),
        None if proof.state == ProofState::Observed => summary(word, None, true),
        None => summary(word, recorded_reason(proof), false),
    }
}

/// Why a proof is not about this run's runner, if it is not. Spec: RS-PROOF-06.
pub(super) fn mismatch(e: &RunEvidence, proof: &Proof) -> Option<String> {
    if proof.run_id != e.run_id {
        return Some(format!("it names run '{}'", proof.run_id));
    }
    let named = [
        ("the status", status(e).and_then(|s| s.overlay_instance())),
        ("the candidate", e.candidate.value().map(|c| &*c.instance_id)),
    ];
    for (who, instance) in named {
        if let Some(instance) = instance.filter(|i| *i != proof.instance_id) {
            return Some(format!(
                "it names runner '{}', but {who} names '{instance}'",
                proof.instance_id
            ));
        }
    }
    if e.candidate.value().is_some_and(|c| c.run_id != e.run_id) {
        return Some("the candidate names another run".to_owned());
    }
    None
}

fn overlay(e: &RunEvidence) -> ProofSummary {
    match status(e).and_then(|s| s.overlay.as_ref()) {
        None => summary("missing", None, false),
        Some(Err(error)) => summary(
            "unknown",
            Some(format!("proof-write-failed: the overlay is invalid, {error}")),
            false,
        ),
        // Without its sidecar a copy that says observed is a claim nobody signed.
        Some(Ok(proof)) if proof.state == ProofState::Observed => summary(
            "observed",
            Some("does not count: only the overlay says so, the sidecar is missing".to_owned()),
            false,
        ),
        Some(Ok(proof)) => summary(proof.state.as_str(), recorded_reason(proof), false),
    }
}

/// Whether a proof is pending that nobody can make any more: its observer is demonstrably gone, or its launcher,
/// where no observer is recorded. Only the parent of a process receives its end.
/// Spec: RS-PROOF-14.
pub(super) fn nobody_observes(e: &RunEvidence, proof: &Proof) -> bool {
    let is_gone = match e.keepers.observer {
        ObserverFact::Gone => true,
        ObserverFact::MayLive => false,
        ObserverFact::NotRecorded => e
            .keepers
            .launch
            .as_ref()
            .is_some_and(|l| l.launcher_gone && l.instance_id == proof.instance_id),
    };
    proof.state == ProofState::Pending && is_gone
}

/// Whether the proof may still come: it is pending or missing, and nothing says it never will.
pub(super) fn may_still_come(e: &RunEvidence, proof: &ProofSummary) -> bool {
    // Somebody else's pending proof will never become this run's.
    let sidecar_pending =
        e.proof.value().is_none_or(|p| p.state == ProofState::Pending && mismatch(e, p).is_none());
    // A repairer's overlay is its word that nobody observes any more, while the sidecar of the dead
    // observer stays pending for ever.
    let given_up = status(e)
        .and_then(StatusView::valid_overlay)
        .is_some_and(|p| p.state == ProofState::Unknown);
    matches!(proof.state, "pending" | "missing") && sidecar_pending && !given_up
}
