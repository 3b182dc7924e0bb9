//! The proof: the public verdict on how a runner ended.
//!
//! Theory of operation. `process-terminal.json` is written once as `pending` by the launcher before
//! the runner may proceed, and replaced once by the observer, the process that received the runner's
//! close. Only the observer may publish `observed`. The same object appears as `processTerminal` in
//! `status.json` (the overlay), where reconcilers may also put an `unknown` of their own.
//!
//! Reading is strict where the verdict depends on it: the state word, both ids, every instance, and
//! for `observed` the witness of the runner itself. The existing readers turn whatever fails into an
//! `unknown` with reason `proof-write-failed`, without touching the file; [`Proof::or_unknown`] gives
//! that reading. A missing file is not an invalid one: it says nothing.
//!
//! A crash of the observer leaves `pending` for ever. Nobody else may turn it into `observed`.
//!
//! Not promised: that an `observed` proof is true. It is a claim of its writer, well formed.

use super::candidate::{Instance, InstanceKind};
use super::document::{Document, Keys, Lookup};
use super::error::DecodeError;
use super::member;
use super::open::{Open, Word as _, words};
use super::raw::Raw;

words! {
    /// What a proof says. Facts §5.2.
    ProofState {
        /// The runner has not been seen to close.
        Pending = "pending",
        /// The runner and all its writers were seen to end.
        Observed = "observed",
        /// The end cannot be proven, and never will be.
        Unknown = "unknown",
        /// No separate process was started; occurs only in overlays.
        NotStarted = "not-started",
    }
}

words! {
    /// Why an end cannot be proven.
    ProofReason {
        /// No process is left that saw the close.
        ObserverUnavailable = "observer-unavailable",
        /// The runner left no candidate.
        RunnerCandidateMissing = "runner-candidate-missing",
        /// The candidate belongs to another run or runner.
        RunnerInstanceMismatch = "runner-instance-mismatch",
        /// The writer records do not add up.
        WriterCloseUnverified = "writer-close-unverified",
        /// A writer's process tree was not seen to end.
        ProcessTreeUnverified = "process-tree-unverified",
        /// The lease of the session file is there but cannot be read.
        CanonicalSessionUnavailable = "canonical-session-unavailable",
        /// The lease of the session file is still owned.
        CanonicalSessionLeaseActive = "canonical-session-lease-active",
        /// The runner did not confirm that it released its lease.
        CanonicalSessionReleaseUnverified = "canonical-session-release-unverified",
        /// The proof could not be decided, written or read.
        ProofWriteFailed = "proof-write-failed",
        /// A reconciler declared the run failed.
        StaleRepair = "stale-repair",
    }
}

words! {
    /// Whether the session of a run can be continued.
    ResumeDisposition {
        /// It can.
        Resumable = "resumable",
        /// The run was stopped on request.
        NonResumable = "non-resumable",
        /// Nothing is there to continue, or nobody knows.
        Unavailable = "unavailable",
    }
}

words! {
    /// What a statement about the end of a runner rests on, the strongest first. The additive member
    /// `exitEvidence` of a proof; it decides nothing about the proof's validity.
    /// Spec: RS-OBS-07, RS-OBS-08.
    ExitGrade {
        /// The system told the end to the parent that waited.
        ParentWait = "parent-wait",
        /// The system told the end to a process that held a handle from before it.
        PidfdExit = "pidfd-exit",
        /// The runner confirmed that it released its lease, which is its last act but one.
        LeaseReleased = "lease-released",
        /// The recorded process is demonstrably not there any more.
        IdentityGone = "identity-gone",
        /// The machine was started anew after the last word of the run.
        Rebooted = "rebooted",
        /// Nothing was heard for a long time. It ends nothing.
        Silence = "silence",
    }
}

impl ExitGrade {
    /// Whether the end itself was told by the system: only then may a proof say `observed`.
    pub fn is_observation(self) -> bool {
        matches!(self, Self::ParentWait | Self::PidfdExit)
    }
}

/// The instance id that reconcilers write when they know none. Facts §5.2.
pub const OBSERVER_UNAVAILABLE: &str = "observer-unavailable";

/// The instance id of a reading that has none and expects none.
const NO_INSTANCE: &str = "unknown";

/// `process-terminal.json`, or `processTerminal` of a status or step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// What it says.
    pub state: ProofState,
    /// `runId`, never empty.
    pub run_id: String,
    /// `runnerProcessInstanceId`, never empty.
    pub instance_id: String,
    /// The step, in an overlay of a step.
    pub child_index: Option<i64>,
    /// When the end was observed.
    pub observed_at_ms: Option<i64>,
    /// The runner and its writers; of a step only that step's writers.
    pub instances: Vec<Instance>,
    /// Whether the session can be continued.
    pub resume_disposition: Option<ResumeDisposition>,
    /// Why the end cannot be proven. Any word is read.
    pub reason: Option<Open<ProofReason>>,
    /// What went wrong, for people.
    pub diagnostic: Option<String>,
    /// `exitEvidence`, which only writers of this library leave. Any word is read.
    pub exit_evidence: Option<Open<ExitGrade>>,
}

/// The members of a proof, in the order in which they are looked at.
static MEMBERS: Keys<11> = Keys::new([
    "version",
    "state",
    "runId",
    "runnerProcessInstanceId",
    "childIndex",
    "observedAt",
    "diagnostic",
    "reason",
    "exitEvidence",
    "instances",
    "resumeDisposition",
]);

impl Proof {
    /// Reads a proof.
    /// Spec: RS-PROOF-01, RS-PROOF-02.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that breaks the rules of facts §5.2.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let proof = Self::read_parts(doc)?;
        let own = proof.runner().is_some_and(|runner| runner.id == proof.instance_id);
        if proof.state == ProofState::Observed && !own {
            return Err(DecodeError::member("instances", "a list with this runner in it"));
        }
        Ok(proof)
    }

    /// Reads the overlay of one step, which lists that step's writers and no runner.
    ///
    /// # Errors
    /// As [`Proof::read_raw`], except that `observed` needs no runner.
    pub fn read_step(raw: Raw<'_>) -> Result<Self, DecodeError> {
        let found = raw.kind().name();
        Self::read_parts(&raw.object().ok_or(DecodeError::NotAnObject { found })?)
    }

    fn read_parts(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let doc = &doc.pick(&MEMBERS);
        let mut proof = Self::read_header(doc)?;
        proof.child_index = doc.get("childIndex").and_then(member::whole_number);
        proof.observed_at_ms = doc.get("observedAt").and_then(member::finite_ms);
        proof.diagnostic = member::loose_string(doc, "diagnostic");
        proof.reason = member::text(doc, "reason").map(|word| Open::read(&word));
        proof.exit_evidence = member::text(doc, "exitEvidence").map(|word| Open::read(&word));
        let instances = doc.get("instances");
        if let Some(raw) = instances {
            let records = raw
                .elements(usize::MAX)
                .ok_or_else(|| DecodeError::member("instances", "an array"))?;
            for (at, raw) in records.enumerate() {
                proof.instances.push(Instance::read(raw, &format_args!("instances[{at}]"))?);
            }
        }
        if let Some(raw) = doc.get("resumeDisposition") {
            let known = raw.string().and_then(|word| ResumeDisposition::from_word(&word));
            let expected = "resumable, non-resumable or unavailable";
            proof.resume_disposition =
                Some(known.ok_or_else(|| DecodeError::member("resumeDisposition", expected))?);
        }
        if proof.state == ProofState::Observed {
            if proof.observed_at_ms.is_none() {
                return Err(DecodeError::member("observedAt", "a finite number"));
            }
            if instances.is_none() {
                return Err(DecodeError::member("instances", "an array"));
            }
        }
        Ok(proof)
    }

    /// Reads a proof that is a member of another document, such as the overlay in `status.json`.
    /// `null` and strings are invalid there, which differs from an absent member.
    ///
    /// # Errors
    /// As [`Proof::read`], and [`DecodeError::NotAnObject`].
    pub fn read_raw(raw: Raw<'_>) -> Result<Self, DecodeError> {
        let found = raw.kind().name();
        Self::read(&raw.object().ok_or(DecodeError::NotAnObject { found })?)
    }

    fn read_header<'a>(doc: &impl Lookup<'a>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let state = member::text(doc, "state").and_then(|word| ProofState::from_word(&word));
        let expected = "pending, observed, unknown or not-started";
        let state = state.ok_or_else(|| DecodeError::member("state", expected))?;
        let run_id = member::filled_string(doc, "runId")?;
        let instance_id = member::filled_string(doc, "runnerProcessInstanceId")?;
        Ok(Self { state, ..Self::bare(run_id, instance_id) })
    }

    fn bare(run_id: String, instance_id: String) -> Self {
        Self {
            state: ProofState::Unknown,
            run_id,
            instance_id,
            child_index: None,
            observed_at_ms: None,
            instances: Vec::new(),
            resume_disposition: None,
            reason: None,
            diagnostic: None,
            exit_evidence: None,
        }
    }

    /// An `unknown` proof with a reason, as an observer or reconciler writes it.
    pub fn unknown(run_id: &str, instance_id: &str, reason: ProofReason) -> Self {
        let bare = Self::bare(run_id.to_owned(), instance_id.to_owned());
        Self { reason: Some(Open::Known(reason)), ..bare }
    }

    /// The reading that the existing implementations give to a proof that is invalid, unreadable or
    /// somebody else's: `unknown` with reason `proof-write-failed`. Ids that the caller does not
    /// expect are taken from the name of the run directory and the word `unknown`.
    pub fn write_failed(
        run_id: Option<&str>,
        instance_id: Option<&str>,
        dir_name: &str,
        diagnostic: String,
    ) -> Self {
        let unknown = Self::unknown(
            run_id.unwrap_or(dir_name),
            instance_id.unwrap_or(NO_INSTANCE),
            ProofReason::ProofWriteFailed,
        );
        Self { diagnostic: Some(diagnostic), ..unknown }
    }

    /// What the existing implementations make of a read: the proof when it is valid and belongs to
    /// the expected run and runner, otherwise [`Proof::write_failed`].
    /// Spec: RS-PROOF-03.
    pub fn or_unknown(
        read: Result<Self, DecodeError>,
        run_id: Option<&str>,
        instance_id: Option<&str>,
        dir_name: &str,
    ) -> Self {
        let checked = read
            .map_err(|error| error.to_string())
            .and_then(|proof| proof.check_identity(run_id, instance_id).map(|()| proof));
        checked.unwrap_or_else(|why| Self::write_failed(run_id, instance_id, dir_name, why))
    }

    /// Whether the proof belongs to the expected run and runner; what is not expected is not
    /// compared.
    ///
    /// # Errors
    /// The difference in words, the run's before the runner's.
    pub fn check_identity(
        &self,
        run_id: Option<&str>,
        instance_id: Option<&str>,
    ) -> Result<(), String> {
        let pairs = [("run", &self.run_id, run_id), ("runner", &self.instance_id, instance_id)];
        for (what, found, expected) in pairs {
            if let Some(expected) = expected.filter(|expected| expected != found) {
                return Err(format!("the proof names {what} {found}, not {expected}"));
            }
        }
        Ok(())
    }

    /// Whether a repairer put this proof into a status. The word that no observer is left does not say so
    /// by itself: a witness says it of a runner that it knows. Facts Q-22, Q-32.
    /// Spec: RS-PROOF-16.
    pub fn is_of_a_repairer(&self) -> bool {
        self.instance_id == OBSERVER_UNAVAILABLE
            || self.reason == Some(Open::Known(ProofReason::StaleRepair))
    }

    /// The first runner among the instances, which is the one that counts.
    pub fn runner(&self) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.kind == InstanceKind::Runner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Proof, DecodeError> {
        Proof::read(&Document::parse(text).expect("parses"))
    }

    const RUNNER: &str = r#"{"kind":"runner","processInstanceId":"i","closeObservedAt":5,"exitCode":0,"signal":null}"#;

    #[test]
    fn observed_needs_the_witness_of_its_own_runner() {
        let observed = |instances: &str| {
            read(&format!(
                r#"{{"version":1,"state":"observed","runId":"r","runnerProcessInstanceId":"i","observedAt":5,"instances":{instances}}}"#
            ))
        };
        assert!(observed(&format!("[{RUNNER}]")).is_ok(), "its runner is listed");
        assert!(observed("[]").is_err(), "nobody is listed");
        let other = RUNNER.replace("\"i\"", "\"o\"");
        assert!(observed(&format!("[{other},{RUNNER}]")).is_err(), "the first runner counts");
    }

    #[test]
    fn an_unknown_state_word_is_invalid_and_an_unknown_reason_is_kept() {
        let with = |state: &str| {
            read(&format!(
                r#"{{"version":1,"state":"{state}","runId":"r","runnerProcessInstanceId":"i","reason":"new"}}"#
            ))
        };
        assert!(with("maybe").is_err(), "a state decides what follows, so no stranger is believed");
        let proof = with("unknown").expect("reads");
        assert_eq!(proof.reason.as_ref().map(Open::as_str), Some("new"), "the reason is shown");
    }

    #[test]
    fn an_identity_is_compared_only_when_it_is_expected() {
        let proof = Proof::unknown("r", "i", ProofReason::StaleRepair);
        assert_eq!(proof.check_identity(None, None), Ok(()), "nothing expected");
        assert_eq!(proof.check_identity(Some("r"), Some("i")), Ok(()), "both match");
        let why = proof.check_identity(Some("s"), Some("j")).unwrap_err();
        assert!(why.contains("run r, not s"), "the run comes first: {why}");
    }

    #[test]
    fn an_unreadable_proof_takes_its_ids_from_the_caller_then_from_the_directory() {
        let failed = Proof::or_unknown(Err(DecodeError::Empty), None, None, "run-1");
        assert_eq!((failed.run_id.as_str(), failed.instance_id.as_str()), ("run-1", "unknown"));
        let failed = Proof::or_unknown(Err(DecodeError::Empty), Some("a"), Some("b"), "run-1");
        assert_eq!((failed.run_id.as_str(), failed.instance_id.as_str()), ("a", "b"));
        assert_eq!(failed.reason, Some(Open::Known(ProofReason::ProofWriteFailed)));
    }

    #[test]
    fn an_overlay_that_is_null_or_a_string_is_invalid() {
        for text in ["null", "\"x\"", "[]"] {
            assert!(Proof::read_raw(Raw::parse(text).expect("parses")).is_err(), "{text}");
        }
    }
}
