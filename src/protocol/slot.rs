//! Capacity slots: how many detached runs a session may have at a time.
//!
//! Theory of operation. Each slot is a directory `slot-<n>` in a pool named after the session, with
//! `owner.json` inside. The directory is the reservation: it occupies the slot even when the record
//! is missing or unreadable, so that a crash can only ever make the pool too small, never too large.
//! A slot is released when it is *proven* that its run has ended, or, for failed runs only, by a
//! policy that gives up after a long silence. [`verdict`] decides; whoever acts on it does so under
//! the slot's claim file.
//!
//! A run that completes after its launcher died keeps its slot for ever: no observed proof exists
//! and the policy covers failed runs only.
//!
//! Not promised: that the facts still hold when the verdict is acted on. The claim is taken and the
//! owner compared before anything is renamed.

use super::document::Document;
use super::error::DecodeError;
use super::limits;
use super::liveness::{self, Alive};
use super::member;
use super::open::{Open, Word as _, words};
use super::proof::{Proof, ProofState};
use super::raw::Raw;
use super::state::{RunMode, RunState};

words! {
    /// What holds a slot.
    SlotKind {
        /// A run with a runner process.
        Runner = "runner",
        /// A workflow, led by a controller inside the host process.
        Workflow = "workflow",
    }
}

/// `owner.json` of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotOwner {
    /// The token of the reservation.
    pub reservation_token: String,
    /// The session that owns the pool.
    pub owner_session_id: String,
    /// The name of the pool; the reader does not compare it.
    pub owner_session_key: String,
    /// The number of the slot.
    pub slot: i64,
    /// The run that holds it.
    pub run_id: String,
    /// How often it was handed from run to run.
    pub generation: i64,
    /// What holds it.
    pub kind: SlotKind,
    /// The run directory.
    pub async_dir: String,
    /// When it was reserved.
    pub reserved_at_ms: i64,
    /// The run it was handed over from.
    pub source_run_id: Option<String>,
    /// The runner it is bound to, never empty; absent until it is bound.
    pub runner_instance_id: Option<String>,
    /// When that runner was started.
    pub runner_started_at_ms: Option<i64>,
}

impl SlotOwner {
    /// Reads an owner record.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that breaks the rules of facts K-21. Such a
    /// slot is still occupied.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let kind = doc
            .get("kind")
            .and_then(Raw::string)
            .and_then(|word| SlotKind::from_word(&word))
            .ok_or_else(|| DecodeError::member("kind", "runner or workflow"))?;
        let instance = "runnerProcessInstanceId";
        let runner_started_at_ms = doc
            .get("runnerStartedAt")
            .map(|_| member::instant_ms(doc, "runnerStartedAt"))
            .transpose()?;
        Ok(Self {
            reservation_token: member::filled_string(doc, "reservationToken")?,
            owner_session_id: member::filled_string(doc, "ownerSessionId")?,
            owner_session_key: member::filled_string(doc, "ownerSessionKey")?,
            slot: member::whole(doc, "slot", 0)?,
            run_id: member::filled_string(doc, "runId")?,
            generation: member::whole(doc, "generation", 0)?,
            kind,
            async_dir: member::filled_string(doc, "asyncDir")?,
            reserved_at_ms: member::instant_ms(doc, "reservedAt")?,
            source_run_id: member::optional_string(doc, "sourceRunId")?,
            runner_instance_id: doc
                .get(instance)
                .map(|_| member::filled_string(doc, instance))
                .transpose()?,
            runner_started_at_ms,
        })
    }
}

/// What the status of the slot's run says, as far as the verdict needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotStatus<'a> {
    /// `runId`.
    pub run_id: Option<&'a str>,
    /// `sessionId`.
    pub session_id: Option<&'a str>,
    /// `state`.
    pub state: Open<RunState>,
    /// `mode`.
    pub mode: Option<RunMode>,
    /// `pid` as the number in the file, which may be no pid at all.
    pub pid: Option<f64>,
    /// `error` when it is a string.
    pub error: Option<&'a str>,
    /// The overlay `processTerminal`, when it reads.
    pub overlay: Option<&'a Proof>,
    /// The first finite one of `lastActivityAt`, `lastUpdate` and `endedAt`.
    pub last_activity_ms: Option<i64>,
}

/// What is known about one step of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildFacts {
    /// `async` of the step; `None` when it is not a boolean.
    pub detached: Option<bool>,
    /// Whether the step names a run and its sibling directory is there.
    pub found: bool,
    /// Whether that run's status reads and names an end.
    pub terminal: bool,
    /// Whether an instance id is recorded for it.
    pub bound: bool,
    /// Whether its overlay says `not-started` and its status has an error.
    pub failed_to_start: bool,
    /// Whether its proof, read with the expected ids, is `observed`.
    pub observed: bool,
}

/// Everything besides the record that decides whether a slot is released. Facts K-29, K-31.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotEvidence<'a> {
    /// The status of the run; `None` when it is missing or unreadable.
    pub status: Option<SlotStatus<'a>>,
    /// The state of the proof file, read with the ids of the slot ([`Proof::or_unknown`]); `None`
    /// when there is no file.
    pub proof: Option<ProofState>,
    /// Whether the process of the status's pid lives.
    pub pid_alive: Alive,
    /// How long a failed run must be silent; `None` when the policy is off.
    pub abandoned_after_ms: Option<i64>,
    /// The clock.
    pub now_ms: i64,
    /// Of a workflow: whether its controller may still live.
    pub controller_live: bool,
    /// Of a workflow: its steps.
    pub children: &'a [ChildFacts],
}

/// Whether a slot is released.
/// Spec: RS-SLOT-06.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotVerdict {
    /// Released or retained.
    pub release: bool,
    /// The row that decided: of a runner the row of facts K-29; of a workflow 21 to 29 in the order
    /// in which facts K-31 names the conditions; 15 and 16 are RS-SLOT-19 and RS-SLOT-20.
    pub rule: u8,
    /// Why, for people.
    pub reason: &'static str,
    /// Whether the release rests on the policy and not on a proof.
    pub by_policy: bool,
}

impl SlotVerdict {
    fn retain(rule: u8, reason: &'static str) -> Self {
        Self { release: false, rule, reason, by_policy: false }
    }

    fn release(rule: u8, reason: &'static str) -> Self {
        Self { release: true, rule, reason, by_policy: false }
    }
}

/// Whether the slot of `owner` is released. An unreadable owner never gets here: its slot is
/// retained.
pub fn verdict(owner: &SlotOwner, evidence: &SlotEvidence<'_>) -> SlotVerdict {
    match owner.kind {
        SlotKind::Runner => runner_verdict(owner, evidence),
        SlotKind::Workflow => workflow_verdict(owner, evidence),
    }
}

/// Facts K-29: the first row that applies decides.
/// Spec: RS-SLOT-04, RS-SLOT-07.
fn runner_verdict(owner: &SlotOwner, evidence: &SlotEvidence<'_>) -> SlotVerdict {
    let Some(status) = &evidence.status else {
        return SlotVerdict::retain(1, "the status is missing or unreadable");
    };
    let Some(instance) = owner.runner_instance_id.as_deref() else {
        return SlotVerdict::retain(2, "the slot is not bound to a runner");
    };
    if status.session_id != Some(&owner.owner_session_id) {
        return SlotVerdict::retain(3, "the status belongs to another session");
    }
    if status.run_id != Some(&owner.run_id) {
        return SlotVerdict::retain(4, "the status belongs to another run");
    }
    // A word of a later version is no end either.
    if status.state.known().is_none_or(RunState::holds_slot) {
        return SlotVerdict::retain(5, "the run has not ended");
    }
    let never_started = status.overlay.is_some_and(|overlay| {
        overlay.state == ProofState::NotStarted
            && overlay.check_identity(Some(&owner.run_id), Some(instance)).is_ok()
    });
    if never_started && status.error.is_some_and(|error| !error.is_empty()) {
        return SlotVerdict::release(6, "the run failed before its process started");
    }
    if evidence.proof == Some(ProofState::Observed) {
        return SlotVerdict::release(7, "the end of its process was observed");
    }
    abandoned_verdict(status, evidence)
}

/// Rows 8 to 14: a failed run that has been silent for long enough.
fn abandoned_verdict(status: &SlotStatus<'_>, evidence: &SlotEvidence<'_>) -> SlotVerdict {
    let Some(threshold_ms) = evidence.abandoned_after_ms else {
        return SlotVerdict::retain(8, "its end is not proven and the abandoned policy is off");
    };
    if status.state.known() != Some(RunState::Failed) {
        return SlotVerdict::retain(9, "its end is not proven and it did not fail");
    }
    // A pid beyond the kernel's range passes this row, as it does in the existing readers; it can
    // never be probed, so row 11 retains.
    if status.pid.is_none_or(|pid| pid.fract() != 0.0 || pid < 1.0) {
        return SlotVerdict::retain(10, "its end is not proven and no process is recorded");
    }
    let probeable = status.pid.and_then(liveness::pid_of).is_some();
    if evidence.pid_alive != Alive::No || !probeable {
        return SlotVerdict::retain(11, "its end is not proven and its process may live");
    }
    let Some(last_ms) = status.last_activity_ms else {
        return SlotVerdict::retain(12, "its end is not proven and its last activity is unknown");
    };
    if evidence.now_ms.saturating_sub(last_ms) <= threshold_ms {
        return SlotVerdict::retain(13, "its end is not proven and it was active recently");
    }
    let reason = "it failed, its process is gone, and it has been silent beyond the limit";
    SlotVerdict { by_policy: true, ..SlotVerdict::release(14, reason) }
}

/// Facts K-31: everything must hold.
/// Spec: RS-SLOT-05.
fn workflow_verdict(owner: &SlotOwner, evidence: &SlotEvidence<'_>) -> SlotVerdict {
    let Some(status) = &evidence.status else {
        return SlotVerdict::retain(21, "the status is missing or unreadable");
    };
    if status.session_id != Some(&owner.owner_session_id) {
        return SlotVerdict::retain(22, "the status belongs to another session");
    }
    if status.run_id != Some(&owner.run_id) {
        return SlotVerdict::retain(23, "the status belongs to another run");
    }
    if status.mode != Some(RunMode::Workflow) {
        return SlotVerdict::retain(24, "the status is not of a workflow");
    }
    // `paused` holds the slot, and a stranger's word is no end.
    if status.state.known().is_none_or(RunState::holds_slot) {
        return SlotVerdict::retain(25, "the workflow has not ended");
    }
    if evidence.controller_live {
        return SlotVerdict::retain(26, "its controller may still live");
    }
    for child in evidence.children {
        match child.detached {
            None => return SlotVerdict::retain(27, "a step does not say whether it is detached"),
            Some(false) => {}
            Some(true) if !(child.found && child.terminal && child.bound) => {
                return SlotVerdict::retain(28, "the run of a step has not ended");
            }
            Some(true) if !(child.failed_to_start || child.observed) => {
                return SlotVerdict::retain(28, "the end of the run of a step is not proven");
            }
            Some(true) => {}
        }
    }
    SlotVerdict::release(29, "the workflow and the runs of all its steps have ended")
}

/// The silence after which a failed run's slot is releasable, from the configured value: `false`
/// turns the policy off, a number outside 5 minutes to 24 hours or of another type falls back to the
/// default. Facts K-30.
pub fn abandoned_after_ms(configured: Option<Raw<'_>>) -> Option<i64> {
    const LEAST_MS: i64 = 300_000;
    const MOST_MS: i64 = 86_400_000;
    let Some(raw) = configured else {
        return Some(limits::ABANDONED_SLOT_MS);
    };
    if raw.boolean() == Some(false) {
        return None;
    }
    let accepted = raw.instant_ms().filter(|ms| (LEAST_MS..=MOST_MS).contains(ms));
    Some(accepted.unwrap_or(limits::ABANDONED_SLOT_MS))
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
