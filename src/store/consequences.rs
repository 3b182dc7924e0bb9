//! What follows from a proof: the marker goes, the status shows it, the log tells of it.
//!
//! Steps 4 to 6 of a finalisation (see [`proof`](super::proof), which calls this once the proof is durable).
//! Each can be made again from the proof and the candidate at any time, and leaves what is there
//! already as it is, so a crash between them is completed by the same calls. None keeps another from
//! being made. Spec: RS-PROOF-21, RS-PROOF-23, RS-PROOF-24; facts §5.6, X-4, X-5, P-20.

use std::fmt;
use std::io;

use crate::protocol::candidate::Candidate;
use crate::protocol::document::spliced;
use crate::protocol::error::with_causes;
use crate::protocol::finalize::{self, StepSeen};
use crate::protocol::proof::{Proof, ProofState};
use crate::protocol::{Document, layout, limits, written};

use super::atomic::{Durability, Options};
use super::host::{Host, Part, WriteHost};
use super::proof::{RunPlace, exists, text};
use super::sidecar::{self, Decision};
use super::{journal, markers, run};

/// A step that follows from a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consequence {
    /// The active marker and its aliases are removed.
    Marker,
    /// The status has the proof.
    Overlay,
    /// The log has the event.
    Event,
}

/// What is so as long as it was not made.
impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Marker => "the run is still in the active index",
            Self::Overlay => "the status does not have the proof",
            Self::Event => "the log does not have the event",
        })
    }
}

/// Steps 4 to 6. What is there already is left as it is.
pub(super) fn consequences<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    proof: &Proof,
    proof_text: &str,
    candidate: Option<&Candidate>,
) -> Vec<(Consequence, String)> {
    let mut missing = Vec::new();
    let mut note = |what, made: Result<(), String>| {
        if let Err(why) = made {
            missing.push((what, why));
        }
    };
    if proof.state == ProofState::Observed {
        // Aliases are best effort: readers believe the marker.
        let removed = markers::release_for_good(host, place.runs_root, place.run_id);
        note(Consequence::Marker, removed.map(drop).map_err(|e| with_causes(&e)));
    }
    note(Consequence::Overlay, overlay(host, place, proof, proof_text, candidate));
    note(Consequence::Event, event(host, place, proof_text));
    missing
}

/// Step 5. Facts P-20.
fn overlay<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    proof: &Proof,
    proof_text: &str,
    candidate: Option<&Candidate>,
) -> Result<(), String> {
    let patched = sidecar::patch_at(
        host,
        place.run_dir,
        layout::STATUS,
        limits::STATUS_MAX_BYTES,
        &Options::new(Durability::Durable),
        // One unflushed replace would undo the runner's durable terminal status.
        Some(run::LEVEL),
        |status| Ok(members(host, status, place.run_id.as_str(), proof, (proof_text, candidate))),
    );
    patched.map(drop).map_err(|e| with_causes(&e))
}

/// What a status gets from a proof. Facts P-20.
pub(crate) fn members<H: Host>(
    host: &H,
    status: &Document<'_>,
    run_id: &str,
    proof: &Proof,
    (proof_text, candidate): (&str, Option<&Candidate>),
) -> Decision {
    let theirs = text(status, "runId").filter(|id| id != run_id);
    if let Some(theirs) = theirs {
        return Decision::Refuse(format!("it belongs to run {theirs}"));
    }
    let there = status.get("processTerminal").map(Proof::read_raw);
    if there.is_some_and(|there| there.as_ref() == Ok(proof)) {
        return Decision::Keep;
    }
    let mut members = vec![("processTerminal", written::indented(proof_text, 2))];
    match step_texts(host, status, proof, candidate) {
        Ok(steps) => members.extend(steps.map(|steps| ("steps", steps))),
        // An overlay that is there is not made again, so a wrong one would stay.
        Err(e) => {
            return Decision::Refuse(format!("a session: {}", super::read::plain(&e)));
        }
    }
    Decision::Patch(members)
}

/// The text of `steps` with each step's overlay in it, every other byte as it was. `None` when there
/// is nothing to patch.
///
/// # Errors
/// When it cannot be told for now whether a session is there.
fn step_texts<H: Host>(
    host: &H,
    status: &Document<'_>,
    proof: &Proof,
    candidate: Option<&Candidate>,
) -> io::Result<Option<String>> {
    let Some(steps) = status.get("steps") else { return Ok(None) };
    let Some(elements) = steps.array() else { return Ok(None) };
    let docs: Vec<Option<Document<'_>>> = elements.iter().map(|raw| raw.object()).collect();
    let named = candidate.and_then(|candidate| candidate.session_file.as_deref());
    let states: Vec<Option<String>> =
        docs.iter().map(|step| step.as_ref().and_then(|step| text(step, "status"))).collect();
    let mut seen: Vec<StepSeen<'_>> = Vec::with_capacity(docs.len());
    for (step, state) in docs.iter().zip(&states) {
        let own = step.as_ref().and_then(|step| text(step, "sessionFile"));
        let file = own.as_deref().filter(|file| !file.is_empty()).or(named);
        let session_exists = file.map_or(Ok(false), |file| exists(host, file))?;
        seen.push(StepSeen { state: state.as_deref(), session_exists });
    }
    let overlays = finalize::step_overlays(proof, candidate, &seen);
    Ok(Some(spliced(steps, &elements, |at| {
        let text = written::indented(&written::proof(overlays.get(at)?, None), 6);
        docs.get(at)?.as_ref()?.patched(&[("processTerminal", &text)]).ok()
    })))
}

/// Whether the log tells of the proof, as far as its end is looked at.
pub(crate) fn is_told<H: Host>(host: &H, run_dir: &H::Dir, run_id: &str) -> bool {
    let part = Part::Tail(limits::EVENTS_TAIL_BYTES);
    let read = host.read_at(run_dir, layout::EVENTS.as_ref(), part);
    read.is_ok_and(|read| {
        read.bytes.split(|b| *b == b'\n').any(|line| {
            Document::from_bytes(line).is_ok_and(|event| {
                text(&event, "type").as_deref() == Some("subagent.run.process_terminal")
                    && text(&event, "runId").as_deref() == Some(run_id)
            })
        })
    })
}

/// Step 6.
fn event<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    proof_text: &str,
) -> Result<(), String> {
    let run_id = place.run_id.as_str();
    if is_told(host, place.run_dir, run_id) {
        return Ok(());
    }
    let line = written::proof_event(run_id, host.now_ms(), proof_text);
    journal::append(host, place.run_dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES)
        .map_err(|e| with_causes(&e))
}
