//! What an observer does once it knows how its runner ended, whether as its parent or by a handle.
//!
//! Ordered steps of [`settle`]:
//! 1. free the lease of the session, if the runner ended without doing so, and say in the candidate that it
//!    is gone. Before the decision, which calls an end unknown for ever whose session is held (F-6) or whose
//!    release nobody acknowledged (F-9): both are what a runner leaves that was killed, and the observer
//!    has just seen that it is gone;
//! 2. decide and write the proof with what follows from it ([`proof::finalise`]), again and again
//!    while the evidence cannot be looked at or there is no room, because nobody else will ever know;
//! 3. make what follows from the proof and could not be made at once, a few times more: anybody can
//!    make it later;
//! 4. if the end is observed and the run is not paused, release the slot. After the proof: a slot that is
//!    free while the proof could still become `unknown` would be used twice. After a launch that failed its
//!    launcher comes first, which may have to give the slot back to another run.
//!
//! What a crash leaves: a lease that is free without an acknowledgement; before the proof one that stays
//! pending; after it a proof with a marker or a
//! slot, which the next one who may write releases by rule (`RS-PROOF-23`, `RS-SLOT-18`).
//! Spec: RS-OBS-09, RS-OBS-13, RS-OBS-40; facts CW-27, CW-28.

use std::io;
use std::path::Path;

use crate::protocol::candidate::Candidate;
use crate::protocol::error::with_causes;
use crate::protocol::proof::ProofState;
use crate::protocol::{RunState, layout, limits};
use crate::store::proof::{self, ExitWitness, Finalised, ProofError, RunPlace};
use crate::store::{ProcessHost, candidate, lease, slot};

use super::launch::Launch;
use super::{Subject, record, status};

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
    let freed = free_session(host, subject);
    let finalised = insist(host, || proof::finalise(host, &subject.place, witness))?;
    let finalised = complete(host, subject, finalised);
    let missing = finalised.missing.iter().map(|(what, why)| format!("{what}: {why}"));
    let mut problems: Vec<_> = freed.err().into_iter().chain(missing).collect();
    let slot_released = finalised.proof.state == ProofState::Observed
        && release_slot(host, subject, launch).unwrap_or_else(|e| {
            problems.push(e);
            false
        });
    Ok(Settled { finalised, slot_released, problems })
}

/// Step 1. What is not as it should be is for the decision to tell.
fn free_session<H: ProcessHost>(host: &H, subject: &Subject<'_, H::Dir>) -> Result<(), String> {
    let RunPlace { temp, run_dir, run_id, .. } = &subject.place;
    let candidate = record(host, run_dir, layout::CANDIDATE, |doc| Candidate::read(doc).ok());
    let own = candidate.ok().flatten().filter(|candidate| {
        candidate.run_id == run_id.as_str() && candidate.instance_id == subject.instance_id
    });
    let Some(own) = own.filter(|own| own.lease_release_acknowledged != Some(true)) else {
        return Ok(());
    };
    let Some((file, token)) = own.session_file.as_deref().zip(own.lease_token.as_deref()) else {
        return Ok(());
    };
    let Ok(session) = lease::canonical_id(host, Path::new(file)) else { return Ok(()) };
    let failed = |why: String| format!("the session of the runner could not be freed: {why}");
    let mut attempt = 0;
    loop {
        attempt += 1;
        match lease::free_of_dead(host, temp, &session.id, token) {
            Ok(true) => break,
            Ok(false) => return Ok(()),
            Err(_) if attempt < limits::COMPLETE_ATTEMPTS => host.wait_ms(limits::PROOF_RETRY_MS),
            Err(e) => return Err(failed(with_causes(&e))),
        }
    }
    candidate::acknowledge_release(host, run_dir, token, true).map_err(|e| failed(with_causes(&e)))
}

/// Step 2: again while it may still succeed.
fn insist<H: ProcessHost>(
    host: &H,
    mut act: impl FnMut() -> Result<Finalised, ProofError>,
) -> Result<Finalised, ProofError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match act() {
            // The run directory was removed, and no proof will ever have a place.
            Err(ProofError::Write(e)) if e.source.kind() == io::ErrorKind::NotFound => {
                return Err(ProofError::Write(e));
            }
            Err(ProofError::Evidence(_) | ProofError::Write(_) | ProofError::Contended)
                if attempt < limits::PROOF_ATTEMPTS =>
            {
                host.wait_ms(limits::PROOF_RETRY_MS);
            }
            other => return other,
        }
    }
}

/// Step 3.
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

/// Step 4.
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
