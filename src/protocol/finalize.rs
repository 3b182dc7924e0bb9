//! From the runner's close to a proof: the decision of the observer, and what follows for the steps.
//!
//! Theory of operation. The observer is the process that launched the runner and received its close.
//! It gathers a [`FinalizeEvidence`] and [`decide`] walks the table of facts §5.5 from the top: the
//! first row that applies gives the proof. Then, in this order, it writes the proof, releases the
//! active index if the end was observed, overlays the status and its steps ([`step_overlays`]), and
//! appends an event. The proof comes first because it is the only one of the four that cannot be
//! rebuilt from the others.
//!
//! A proof that already says `observed` or `unknown` is final: nothing is written, also not the steps
//! after it that a crash may have left undone. `pending` and `not-started` are replaced.
//!
//! Not promised: that the evidence is still true when the proof is written. The lease of the session
//! may be taken by a new owner in between.

use super::candidate::{Candidate, Instance};
use super::open::Open;
use super::proof::{Proof, ProofReason, ProofState, ResumeDisposition};

/// What was found in place of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CandidateFound<'a> {
    /// No file.
    Missing,
    /// A file that cannot be read, with the reason.
    Invalid(&'a str),
    /// A candidate.
    Found(&'a Candidate),
}

/// What was found about the lease of the session file that the candidate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionLease<'a> {
    /// Nobody holds it.
    Free,
    /// It has a readable owner, dead or alive.
    Owned,
    /// Its directory is there without a readable owner.
    Unreadable,
    /// The session file cannot be resolved to a real path, with the reason.
    Unresolvable(&'a str),
}

/// Everything that decides how a run is finalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalizeEvidence<'a> {
    /// The run that was launched.
    pub run_id: &'a str,
    /// The close of its runner, as witnessed.
    pub close: &'a Instance,
    /// The proof that is there already, as [`Proof::or_unknown`] reads it.
    pub existing: Option<&'a Proof>,
    /// The candidate.
    pub candidate: CandidateFound<'a>,
    /// The lease of the candidate's session file; consulted only when it names one.
    pub lease: SessionLease<'a>,
    /// `state` of the status; `None` when the status is missing or damaged.
    pub status_state: Option<&'a str>,
    /// Whether the session file exists: the candidate's, else the status's.
    pub session_exists: bool,
    /// Anything else that failed while the evidence was gathered.
    pub trouble: Option<&'a str>,
}

/// `canonicalSession` of an observed proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalSession {
    /// Whether the runner held the lease and confirmed its release (`leaseDisposition` `released`
    /// and `canonicalSessionLeaseReleased`), or never held it (`not-held`).
    pub released: bool,
}

/// How a run is finalised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody acts on leaves the run pending"]
pub struct FinalizeDecision {
    /// The row of facts §5.5 that decided, `F-1` to `F-13`; `unobserved` where there was no close.
    pub row: &'static str,
    /// The proof that holds from now on.
    pub proof: Proof,
    /// What the proof says about the session file, when the candidate names one and the end was
    /// observed.
    pub canonical_session: Option<CanonicalSession>,
    /// Whether anything is written: not when a final proof is there already.
    pub write: bool,
}

impl FinalizeDecision {
    /// Whether the active index is released: only for an end observed now.
    pub fn releases_index(&self) -> bool {
        self.write && self.proof.state == ProofState::Observed
    }
}

/// Decides how a run is finalised. Facts §5.5.
pub fn decide(evidence: &FinalizeEvidence<'_>) -> FinalizeDecision {
    if let Some(decision) = settled(evidence.existing) {
        return decision;
    }
    let candidate = match evidence.candidate {
        CandidateFound::Missing => {
            return unknown(evidence, "F-3", ProofReason::RunnerCandidateMissing, None);
        }
        CandidateFound::Invalid(why) => {
            return unknown(evidence, "F-4", ProofReason::ProofWriteFailed, Some(why));
        }
        CandidateFound::Found(candidate) => candidate,
    };
    match objection(evidence, candidate) {
        Some((row, reason, diagnostic)) => unknown(evidence, row, reason, diagnostic),
        None => observed(evidence, candidate),
    }
}

/// Decides what is said of an end that nobody observed: a final proof stays, everything else becomes
/// `unknown` because no observer is left. Spec: RS-OBS-10.
pub fn decide_unobserved(
    run_id: &str,
    instance_id: &str,
    existing: Option<&Proof>,
) -> FinalizeDecision {
    settled(existing).unwrap_or_else(|| FinalizeDecision {
        row: "unobserved",
        proof: Proof::unknown(run_id, instance_id, ProofReason::ObserverUnavailable),
        canonical_session: None,
        write: true,
    })
}

/// The rows F-1 and F-2: a final proof stays.
fn settled(existing: Option<&Proof>) -> Option<FinalizeDecision> {
    let proof = existing?;
    let row = match proof.state {
        ProofState::Observed => "F-1",
        ProofState::Unknown => "F-2",
        ProofState::Pending | ProofState::NotStarted => return None,
    };
    Some(FinalizeDecision { row, proof: proof.clone(), canonical_session: None, write: false })
}

/// The first row between F-5 and F-13 that stands against an observed end.
fn objection<'a>(
    evidence: &FinalizeEvidence<'a>,
    candidate: &Candidate,
) -> Option<(&'static str, ProofReason, Option<&'a str>)> {
    if candidate.run_id != evidence.run_id || candidate.instance_id != evidence.close.id {
        return Some(("F-5", ProofReason::RunnerInstanceMismatch, None));
    }
    if candidate.session_file.is_some() {
        match evidence.lease {
            SessionLease::Free => {}
            SessionLease::Owned => {
                return Some(("F-6", ProofReason::CanonicalSessionLeaseActive, None));
            }
            SessionLease::Unreadable => {
                return Some(("F-7", ProofReason::CanonicalSessionUnavailable, None));
            }
            SessionLease::Unresolvable(why) => {
                return Some(("F-8", ProofReason::ProofWriteFailed, Some(why)));
            }
        }
    }
    if candidate.lease_token.is_some() && candidate.lease_release_acknowledged != Some(true) {
        return Some(("F-9", ProofReason::CanonicalSessionReleaseUnverified, None));
    }
    if !counts_agree(candidate) {
        return Some(("F-10", ProofReason::WriterCloseUnverified, None));
    }
    if !writers(candidate).all(Instance::tree_observed) {
        return Some(("F-11", ProofReason::ProcessTreeUnverified, None));
    }
    evidence.trouble.map(|why| ("F-13", ProofReason::ProofWriteFailed, Some(why)))
}

/// Whether the writer records add up: every entry has its count, every count above zero has its
/// entry, and something was recorded at all.
///
/// The last condition is what tells a runner that ended in order from one that crashed, whose
/// candidate is still the launcher's empty one.
fn counts_agree(candidate: &Candidate) -> bool {
    let entries_agree = candidate
        .writers
        .iter()
        .all(|(index, records)| candidate.expected(index) == Some(records.len() as u64));
    let counts = candidate.expected_writers.as_deref().unwrap_or(&[]);
    let counts_have_entries = counts
        .iter()
        .all(|(index, count)| *count == 0 || candidate.writers.iter().any(|(key, _)| key == index));
    let something_recorded = writers(candidate).next().is_some() || expects_something(candidate);
    entries_agree && counts_have_entries && something_recorded
}

/// Whether any step index is expected; without counts the entries themselves are the expectation.
fn expects_something(candidate: &Candidate) -> bool {
    match &candidate.expected_writers {
        Some(counts) => !counts.is_empty(),
        None => !candidate.writers.is_empty(),
    }
}

fn writers(candidate: &Candidate) -> impl Iterator<Item = &Instance> {
    candidate.writers.iter().flat_map(|(_, records)| records)
}

fn unknown(
    evidence: &FinalizeEvidence<'_>,
    row: &'static str,
    reason: ProofReason,
    diagnostic: Option<&str>,
) -> FinalizeDecision {
    let mut proof = Proof::unknown(evidence.run_id, &evidence.close.id, reason);
    proof.diagnostic = diagnostic.map(str::to_owned);
    FinalizeDecision { row, proof, canonical_session: None, write: true }
}

fn observed(evidence: &FinalizeEvidence<'_>, candidate: &Candidate) -> FinalizeDecision {
    let close = evidence.close;
    let proof = Proof {
        state: ProofState::Observed,
        run_id: evidence.run_id.to_owned(),
        instance_id: close.id.clone(),
        child_index: None,
        observed_at_ms: Some(close.close_observed_at_ms),
        instances: std::iter::once(close).chain(writers(candidate)).cloned().collect(),
        resume_disposition: Some(resume_disposition(
            evidence.status_state,
            evidence.session_exists,
        )),
        reason: None,
        diagnostic: None,
        exit_evidence: None,
    };
    let released = candidate.lease_token.is_some();
    let canonical_session = candidate.session_file.as_ref().map(|_| CanonicalSession { released });
    FinalizeDecision { row: "F-12", proof, canonical_session, write: true }
}

/// Whether the session of a run or step can be continued, from its state word and whether its
/// session file exists. Facts §5.5.
pub fn resume_disposition(state: Option<&str>, session_exists: bool) -> ResumeDisposition {
    match state {
        Some("stopped") => ResumeDisposition::NonResumable,
        Some("complete" | "completed" | "failed" | "paused") if session_exists => {
            ResumeDisposition::Resumable
        }
        _ => ResumeDisposition::Unavailable,
    }
}

/// What the overlay needs to know about one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSeen<'a> {
    /// `status` of the step.
    pub state: Option<&'a str>,
    /// Whether its session file exists: the step's, else the candidate's.
    pub session_exists: bool,
}

/// The overlay of every step, in order: how its writers ended, given the proof of the run. Facts
/// P-20.
///
/// A step whose expected count is 0 had no separate writer process and says `not-started`, even if
/// its work was done inside the runner.
/// Spec: RS-PROOF-07.
pub fn step_overlays(
    proof: &Proof,
    candidate: Option<&Candidate>,
    steps: &[StepSeen<'_>],
) -> Vec<Proof> {
    steps.iter().enumerate().map(|(at, step)| step_overlay(proof, candidate, at, *step)).collect()
}

fn step_overlay(
    proof: &Proof,
    candidate: Option<&Candidate>,
    at: usize,
    step: StepSeen<'_>,
) -> Proof {
    let index = at.to_string();
    let records = candidate.map_or(&[][..], |candidate| candidate.records(&index));
    let recorded = records.len() as u64;
    // Unlike F-10, a step that the counts do not name falls back to its records here.
    let counted = candidate
        .filter(|candidate| candidate.expected_writers.is_some())
        .and_then(|candidate| candidate.expected(&index));
    let expected = counted.unwrap_or(recorded);
    let state = match proof.state {
        _ if expected == 0 => ProofState::NotStarted,
        ProofState::Observed if expected == recorded => ProofState::Observed,
        ProofState::Pending => ProofState::Pending,
        _ => ProofState::Unknown,
    };
    let observed = state == ProofState::Observed;
    let default = || Open::Known(ProofReason::WriterCloseUnverified);
    Proof {
        state,
        run_id: proof.run_id.clone(),
        instance_id: proof.instance_id.clone(),
        child_index: i64::try_from(at).ok(),
        observed_at_ms: if observed { proof.observed_at_ms } else { None },
        instances: if observed { records.to_vec() } else { Vec::new() },
        resume_disposition: Some(resume_disposition(step.state, step.session_exists)),
        reason: (state == ProofState::Unknown)
            .then(|| proof.reason.clone().unwrap_or_else(default)),
        diagnostic: None,
        exit_evidence: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::candidate::{InstanceKind, ProcessTree};

    fn instance(kind: InstanceKind, tree: Option<ProcessTree>) -> Instance {
        let id = if kind == InstanceKind::Runner { "i" } else { "w" }.to_owned();
        let attempt = (kind != InstanceKind::Runner).then_some(0);
        Instance {
            kind,
            id,
            close_observed_at_ms: 5,
            exit_code: Some(0),
            signal: None,
            attempt,
            tree,
        }
    }

    fn candidate(records: usize, expected: Option<u64>, tree: Option<ProcessTree>) -> Candidate {
        let writer = instance(InstanceKind::PiWriter, tree);
        Candidate {
            run_id: "r".to_owned(),
            instance_id: "i".to_owned(),
            writers: vec![("0".to_owned(), vec![writer; records])],
            expected_writers: expected.map(|count| vec![("0".to_owned(), count)]),
            session_file: None,
            lease_token: None,
            lease_release_acknowledged: None,
        }
    }

    fn gone() -> Option<ProcessTree> {
        Some(ProcessTree::Observed { process_group_id: 7, verified_at_ms: 6 })
    }

    fn row(candidate: &Candidate, lease: SessionLease<'_>, trouble: Option<&str>) -> &'static str {
        let close = instance(InstanceKind::Runner, None);
        let evidence = FinalizeEvidence {
            run_id: "r",
            close: &close,
            existing: None,
            candidate: CandidateFound::Found(candidate),
            lease,
            status_state: Some("complete"),
            session_exists: false,
            trouble,
        };
        decide(&evidence).row
    }

    #[test]
    fn every_row_that_needs_a_candidate_decides_in_its_turn() {
        let free = SessionLease::Free;
        let good = candidate(1, Some(1), gone());
        assert_eq!(row(&good, free, None), "F-12", "everything adds up");
        assert_eq!(row(&good, SessionLease::Owned, None), "F-12", "no session file is named");
        assert_eq!(row(&good, free, Some("disk")), "F-13", "trouble never becomes observed");
        let other = Candidate { instance_id: "o".to_owned(), ..good.clone() };
        assert_eq!(row(&other, free, None), "F-5");
        let named = Candidate { session_file: Some("/s".to_owned()), ..good.clone() };
        assert_eq!(row(&named, SessionLease::Owned, None), "F-6");
        assert_eq!(row(&named, SessionLease::Unreadable, None), "F-7");
        assert_eq!(row(&named, SessionLease::Unresolvable("gone"), None), "F-8");
        let token = Candidate { lease_token: Some("t".to_owned()), ..good.clone() };
        assert_eq!(row(&token, free, None), "F-9");
        assert_eq!(row(&candidate(1, Some(2), gone()), free, None), "F-10");
        let unwatched = Candidate { expected_writers: Some(vec![]), ..good };
        assert_eq!(row(&unwatched, free, None), "F-10", "an entry without its count");
        assert_eq!(row(&candidate(1, Some(1), None), free, None), "F-11", "older writer record");
    }

    #[test]
    fn a_final_proof_is_returned_and_nothing_is_written() {
        let close = instance(InstanceKind::Runner, None);
        let mut proof = Proof::unknown("r", "i", ProofReason::StaleRepair);
        let rows = [
            (ProofState::Observed, "F-1", false),
            (ProofState::Unknown, "F-2", false),
            (ProofState::Pending, "F-3", true),
            (ProofState::NotStarted, "F-3", true),
        ];
        for (state, row, write) in rows {
            proof.state = state;
            let evidence = FinalizeEvidence {
                run_id: "r",
                close: &close,
                existing: Some(&proof),
                candidate: CandidateFound::Missing,
                lease: SessionLease::Free,
                status_state: None,
                session_exists: false,
                trouble: None,
            };
            let decision = decide(&evidence);
            assert_eq!((decision.row, decision.write), (row, write), "{state}");
            assert!(!decision.releases_index(), "no end was observed now");
        }
    }

    #[test]
    fn only_a_plain_end_with_its_session_file_can_be_resumed() {
        use ResumeDisposition::{NonResumable, Resumable, Unavailable};
        let rows = [
            (Some("stopped"), true, NonResumable),
            (Some("complete"), true, Resumable),
            (Some("completed"), true, Resumable),
            (Some("failed"), true, Resumable),
            (Some("paused"), true, Resumable),
            (Some("paused"), false, Unavailable),
            (Some("partial"), true, Unavailable),
            (Some("running"), true, Unavailable),
            (None, true, Unavailable),
        ];
        for (state, exists, disposition) in rows {
            assert_eq!(resume_disposition(state, exists), disposition, "{state:?} {exists}");
        }
    }
}
