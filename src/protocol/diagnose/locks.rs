//! What a run holds, and what a workflow's steps left: leases, capacity slots, runs of steps.
//!
//! A slot is judged by the table of facts K-29 or K-31 with nothing but the evidence at hand; what was
//! not looked at keeps it. Two rules of this library follow where the table retains: they release what the
//! death of a launcher or an observer would hold for ever. Spec: RS-SLOT-*, RS-FLAG-11 to RS-FLAG-13.

use super::super::evidence::{FileFact, LaunchFact, ObserverFact};
use super::super::liveness::Alive;
use super::super::process::Liveness;
use super::super::proof::{ProofReason, ProofState};
use super::super::slot::{
    self, ChildFacts, SlotEvidence, SlotKind, SlotOwner, SlotStatus, SlotVerdict,
};
use super::super::status::StepView;
use super::super::{Open, RunState};
use super::{Flag, Grade, Notes, Ruling, RunEvidence, Verdict, finding, proofs, status};

/// Spec: RS-FLAG-11, RS-FLAG-12, RS-FLAG-13.
pub(super) fn from_locks(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    for lease in &e.leases {
        let at = Some(lease.owner.updated_at_ms);
        notes.flag(Flag::LeaseHeld);
        match &lease.held_because {
            Some(why) => {
                notes.say(
                    Grade::Claimed,
                    format_args!("a session lease is held: {why}"),
                    Some(&lease.path),
                    at,
                );
            }
            None => {
                let text = "its lease outlived its owner and may be reclaimed";
                notes.find(&finding::LEASE_STALE, text, Some(&lease.path));
            }
        }
    }
    for fact in &e.slots {
        let verdict = slot_verdict(e, &fact.owner);
        let release = verdict.release && !fact.claimed;
        let file = Some(fact.path.as_str());
        if release {
            notes.flag(Flag::SlotReleasable);
            let by = if verdict.by_policy { " by policy" } else { "" };
            let text = format!("its slot may be released{by}: {}", verdict.reason);
            notes.find(&finding::SLOT_RELEASABLE, text, file);
        } else if !is_under_way(ruling.verdict) {
            notes.flag(Flag::SlotRetained);
            let why = if fact.claimed { "a claim file freezes it" } else { verdict.reason };
            notes.find(&finding::SLOT_RETAINED, format_args!("its slot stays: {why}"), file);
        }
    }
    // One of several slots decides for the worse.
    if notes.flags.contains(&Flag::SlotRetained) {
        notes.flags.retain(|f| *f != Flag::SlotReleasable);
    }
}

/// The release verdict of a slot that names this run. Facts K-29. Spec: RS-SLOT-19, RS-SLOT-20.
pub fn slot_verdict(e: &RunEvidence, owner: &SlotOwner) -> SlotVerdict {
    let s = status(e);
    let state = s.and_then(|s| s.state.clone());
    let slot_status = s.zip(state).map(|(s, state)| SlotStatus {
        run_id: s.run_id.as_deref(),
        session_id: s.session_id.as_deref(),
        state,
        mode: s.mode.as_ref().and_then(Open::known),
        #[expect(clippy::cast_precision_loss, reason = "a pid is far below 2^53")]
        pid: s.pid.filter(|p| *p > 0).map(|p| p as f64),
        error: s.error.as_deref(),
        overlay: s.valid_overlay(),
        last_activity_ms: s.last_activity_ms.or(s.last_update_ms).or(s.ended_at_ms),
    });
    // The slot names the instance that it waits for; a proof of another one frees nothing.
    let proof = e.proof.value().filter(|p| {
        p.run_id == owner.run_id
            && owner.runner_instance_id.as_deref().is_none_or(|id| id == p.instance_id)
            && proofs::mismatch(e, p).is_none()
    });
    let alive = match e.life.word {
        // A reused pid is a process that is gone.
        Liveness::Dead | Liveness::Reused => Alive::No,
        Liveness::Live => Alive::Yes,
        _ => Alive::Unknown,
    };
    let verdict = slot::verdict(
        owner,
        &SlotEvidence {
            status: slot_status,
            proof: proof.map(|p| p.state),
            pid_alive: alive,
            abandoned_after_ms: e.times.abandoned_slot_ms,
            now_ms: e.now_ms,
            // Only a host that is demonstrably gone has no controller left.
            controller_live: !e.life.word.is_gone(),
            children: &workflow_children(e),
        },
    );
    match verdict.rule {
        1 if abandoned_start(e, owner) => SlotVerdict {
            release: true,
            rule: 15,
            reason: "its launcher is gone and had recorded no process",
            by_policy: false,
        },
        9 if alive == Alive::No && abandoned_end(e) => SlotVerdict {
            release: true,
            rule: 16,
            reason: "it ended, its observer died before it could prove it, and it has been silent \
                     beyond the limit",
            by_policy: true,
        },
        _ => verdict,
    }
}

/// A launch of this library that died before its first status. Nothing was let in, because that comes after
/// it. What shows work shows that the status was lost. Spec: RS-SLOT-19.
fn abandoned_start(e: &RunEvidence, owner: &SlotOwner) -> bool {
    let worked = e.proof.is_there()
        || e.own_results().next().is_some()
        || e.output_bytes > 0
        || e.events.as_ref().is_some_and(|log| log.begun);
    let is_its = |launch: &LaunchFact| {
        launch.launcher_gone
            && owner.runner_instance_id.as_deref().is_none_or(|id| id == launch.instance_id)
    };
    matches!(e.status, FileFact::Absent)
        && owner.kind == SlotKind::Runner
        && owner.run_id == e.run_id
        && e.keepers.launch.as_ref().is_some_and(is_its)
        && e.keepers.observer != ObserverFact::MayLive
        && !worked
}

/// A run that told its end, whose observer of this library died before it could prove it: the rows 10 to 14 for every end instead of
/// a failure alone. A proof that is unknown for another reason tells of something that may be left, and keeps
/// the slot. Spec: RS-SLOT-20.
fn abandoned_end(e: &RunEvidence) -> bool {
    let Some(s) = status(e) else { return false };
    let unseen = match e.proof.value() {
        None => !e.proof.is_there(),
        Some(proof) => match proof.state {
            ProofState::Pending => true,
            ProofState::Unknown => {
                proof.reason == Some(Open::Known(ProofReason::ObserverUnavailable))
            }
            _ => false,
        },
    };
    let last_ms = s.last_activity_ms.or(s.last_update_ms).or(s.ended_at_ms);
    let silent = last_ms
        .zip(e.times.abandoned_slot_ms)
        .is_some_and(|(last_ms, limit_ms)| e.now_ms.saturating_sub(last_ms) > limit_ms);
    let has_pid = s.pid.is_some_and(|pid| pid > 0);
    s.known_state().is_some_and(RunState::is_outcome)
        && has_pid
        && unseen
        && silent
        && e.keepers.observer == ObserverFact::Gone
}

/// Whether the run may still be doing what its slot is for, so that holding it is no news.
fn is_under_way(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Running | Verdict::RunningUnverified | Verdict::Starting | Verdict::StartStuck
    )
}

/// What K-31 asks of each step. A step whose run was not looked at counts as not found.
fn workflow_children(e: &RunEvidence) -> Vec<ChildFacts> {
    let steps = status(e).filter(|s| s.is_workflow()).map_or(&[][..], |s| &s.steps);
    let facts = |step: &StepView| {
        let run = step.run_id.as_deref();
        let child = e.children.iter().find(|child| Some(child.run_id.as_str()) == run);
        ChildFacts {
            detached: step.is_async,
            found: child.is_some_and(|c| c.found),
            terminal: child.is_some_and(|c| c.has_ended),
            bound: child.is_some_and(|c| c.bound),
            failed_to_start: child.is_some_and(|c| c.failed_to_start),
            observed: child.is_some_and(|c| c.observed),
        }
    };
    steps.iter().map(facts).collect()
}

/// What an abandoned workflow left of its steps' runs, each of which has a report of its own.
pub(super) fn from_children(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    if ruling.verdict != Verdict::Orphaned {
        return;
    }
    for child in &e.children {
        let id = &child.run_id;
        let file = format!("{id}/status.json");
        let (grade, text) = match &child.state {
            Some(state) if child.has_ended => {
                let seen = if child.observed { ", and its end was observed" } else { "" };
                (Grade::Claimed, format!("the run {id} of a step is '{state}'{seen}: salvageable"))
            }
            Some(state) => (Grade::Claimed, format!("the run {id} of a step is '{state}'")),
            None if child.has_status => (
                Grade::Observed,
                format!("the run {id} of a step has a status that tells no state"),
            ),
            None if child.found => {
                (Grade::Observed, format!("the run {id} of a step has no status: it never started"))
            }
            None => (Grade::Observed, format!("the run {id} of a step has no directory here")),
        };
        notes.say(grade, text, child.has_status.then_some(&*file), None);
    }
}
