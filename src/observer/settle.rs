//! What an observer does once it knows how its runner ended, whether as its parent or by a handle.
//!
//! Ordered steps of [`settle`]:
//! 1. decide and write the proof with what follows from it ([`proof::finalise`]), again and again
//!    while the evidence cannot be looked at or there is no room, because nobody else will ever know;
//! 2. make what follows from the proof and could not be made at once, a few times more: anybody can
//!    make it later;
//! 3. if the end is observed and the run is not paused, release the slot. After the proof: a slot that is
//!    free while the proof could still become `unknown` would be used twice. After a launch that failed its
//!    launcher comes first, which may have to give the slot back to another run.
//!
//! What a crash leaves: before the proof one that stays pending; after it a proof with a marker or a
//! slot, which the next one who may write releases by rule (`RS-PROOF-23`, `RS-SLOT-18`).
//! Spec: RS-OBS-09, RS-OBS-13.

use crate::protocol::error::with_causes;
use crate::protocol::proof::ProofState;
use crate::protocol::{RunState, limits};
use crate::store::proof::{self, ExitWitness, Finalised, ProofError};
use crate::store::{ProcessHost, slot};

use super::launch::Launch;
use super::{Subject, status};

/// An end that was seen, and what holds now.
#[derive(Debug)]
pub struct Settled {
    /// The proof.
    pub finalised: Finalised,
    /// Whether a slot was released.
    pub slot_released: bool,
    /// What was best effort and failed, in words.
    pub problems: Vec<String>,
}

/// Proves an end and lets go of what the run held. See the module's ordered steps.
pub(super) fn settle<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    launch: &mut Launch<'_, H>,
    witness: &ExitWitness,
) -> Result<Settled, ProofError> {
    let finalised = insist(host, || proof::finalise(host, &subject.place, witness))?;
    let finalised = complete(host, subject, finalised);
    let mut problems: Vec<_> =
        finalised.missing.iter().map(|(what, why)| format!("{what:?}: {why}")).collect();
    let slot_released = finalised.proof.state == ProofState::Observed
        && release_slot(host, subject, launch).unwrap_or_else(|e| {
            problems.push(e);
            false
        });
    Ok(Settled { finalised, slot_released, problems })
}

/// Step 1: again while it may still succeed.
fn insist<H: ProcessHost>(
    host: &H,
    mut act: impl FnMut() -> Result<Finalised, ProofError>,
) -> Result<Finalised, ProofError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match act() {
            Err(ProofError::Evidence(_) | ProofError::Write(_) | ProofError::Contended)
                if attempt < limits::PROOF_ATTEMPTS =>
            {
                host.wait_ms(limits::PROOF_RETRY_MS);
            }
            other => return other,
        }
    }
}

/// Step 2.
fn complete<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    mut done: Finalised,
) -> Finalised {
    for _ in 0..limits::COMPLETE_ATTEMPTS {
        if done.missing.is_empty() {
            break;
        }
        host.wait_ms(limits::PROOF_RETRY_MS);
        if let Ok(Some(again)) = proof::complete(host, &subject.place) {
            done.missing = again.missing;
        }
    }
    done
}

/// Step 3.
fn release_slot<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    launch: &mut Launch<'_, H>,
) -> Result<bool, String> {
    let failed = |why: String| format!("the slot could not be released: {why}");
    let status = status(host, subject.place.run_dir).map_err(|e| failed(e.to_string()))?;
    // Without a session there is no pool.
    let Some(status) = status else { return Ok(false) };
    // A paused run keeps its slot for the run that resumes it.
    let paused = status.known_state() == Some(RunState::Paused);
    let Some(session) = status.session_id.filter(|_| !paused) else { return Ok(false) };
    let (temp, run_id) = (subject.place.temp, subject.place.run_id.as_str());
    let held = || {
        slot::of_runner(host, temp, &session, run_id, subject.instance_id).map(|it| it.is_some())
    };
    launch
        .until_given_back(held)
        .and_then(|()| slot::release_of_run(host, temp, &session, run_id, subject.instance_id))
        .map_err(|e| failed(with_causes(&e)))
}
