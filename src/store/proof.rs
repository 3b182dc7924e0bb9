//! The proof of an end: prepared by the launcher, decided by the observer, completed by anybody.
//!
//! Theory of operation. Only a process that saw the runner close may say `observed`, so [`finalise`]
//! takes an [`ExitWitness`], which only a wait gives. The proof is written once. What follows from it
//! (marker, overlay, event) can be made again from the proof and the candidate at any time, so a
//! finalisation that was cut off is completed by [`complete`], without a witness.
//!
//! Ordered steps of [`initialise`]:
//! 1. the pending proof, flushed, under a name that must be free;
//! 2. the launcher's candidate, likewise;
//! 3. flush the run directory: both are kept from here on, and only then may the runner proceed.
//!
//! The proof comes first: after a crash between the two the directory says "an end was not observed",
//! which is true, instead of saying nothing, like a run of a time without proofs (facts CW-6).
//!
//! Ordered steps of [`finalise`]:
//! 1. gather the evidence: proof, candidate, lease of its session file, status. If one of them cannot be
//!    looked at for a reason that passes (no handle, a disk that does not answer) nothing is decided:
//!    a proof is written once, and `unknown` for want of a handle would be `unknown` for ever. The
//!    witness stays good, so the caller tries again;
//! 2. decide ([`finalize::decide`]); a final proof that is there stays, and steps 4 to 6 complete it;
//! 3. write the proof, durable, unless another one has come in between: then decide again. Everything
//!    below follows from it, so none of it may survive a power cut that the proof does not;
//! 4. if the proof says `observed`: remove the active marker and its aliases, and flush their index;
//! 5. overlay the status and its steps, keeping every other byte;
//! 6. append the event, if the log does not have it.
//!
//! If step 3 fails nothing else is done. Steps 4 to 6 do not depend on one another: a failure of one
//! is reported and the others are made all the same.
//!
//! A crash before step 3 leaves `pending`, which nobody may turn into `observed` any more; after it
//! the proof stands and the rest can be completed.
//!
//! Not promised: that the lease is still free when the proof is written; and that a proof which
//! somebody else writes between the last look and the rename over `pending` is kept. Only the runner
//! may write one, and its end was witnessed.
//! Spec: RS-PROOF-18 to RS-PROOF-25; facts §5.3 to §5.6, CW-30, CW-31.

use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::candidate::{Candidate, Instance, InstanceKind};
use crate::protocol::finalize::{
    self, CandidateFound, FinalizeDecision, FinalizeEvidence, SessionLease,
};
use crate::protocol::ids::RunId;
use crate::protocol::lease::LeaseState;
use crate::protocol::proof::{ExitGrade, Proof, ProofState};
use crate::protocol::{Document, Open, layout, limits, written};

pub use super::consequences::Consequence;
pub use super::host::Exit;

use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::consequences::consequences;
use super::host::{FileRead, Host, Part, ReadError, Stat, WriteHost};
use super::lease;
use super::retry::may_pass;

/// Times that the evidence is gathered when the proof changes meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// That this process saw the runner close. There is no other way to an observed proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitWitness {
    close: Instance,
    grade: ExitGrade,
}

impl ExitWitness {
    /// The outcome of a wait for the own child, made right after the system returned it. Whoever
    /// calls this without having waited makes a proof that is a lie: neither a pid that is gone nor a
    /// result nor a record on disk shows that a process has ended.
    pub fn from_wait(instance_id: &str, closed_at_ms: i64, exit: Exit) -> Self {
        Self::seen(instance_id, closed_at_ms, exit, ExitGrade::ParentWait)
    }

    /// What the system told to this process, which is not the parent but held a handle of the runner
    /// from before its end. Whoever calls this without it makes a proof that is a lie.
    /// Spec: RS-OBS-08.
    pub fn from_handle(instance_id: &str, closed_at_ms: i64, exit: Exit) -> Self {
        Self::seen(instance_id, closed_at_ms, exit, ExitGrade::PidfdExit)
    }

    fn seen(instance_id: &str, closed_at_ms: i64, exit: Exit, grade: ExitGrade) -> Self {
        let (exit_code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(name) => (None, Some(name)),
        };
        let close = Instance {
            kind: InstanceKind::Runner,
            id: instance_id.to_owned(),
            close_observed_at_ms: closed_at_ms,
            exit_code,
            signal,
            attempt: None,
            tree: None,
        };
        Self { close, grade }
    }

    /// What was seen.
    pub fn close(&self) -> &Instance {
        &self.close
    }
}

/// Where a run lies.
#[derive(Debug)]
pub struct RunPlace<'a, D> {
    /// The temp root, for leases.
    pub temp: &'a D,
    /// The runs root, for the active index.
    pub runs_root: &'a D,
    /// The run directory.
    pub run_dir: &'a D,
    /// Its name.
    pub run_id: &'a RunId,
}

/// Why a proof was not prepared or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProofError {
    /// Something else stands at the name: a run directory is used once.
    Occupied(&'static str),
    /// The proof changed each time it was to be written.
    Contended,
    /// The evidence could not be looked at for a reason that passes; the step is [`Step::Look`].
    /// Nothing was done: try again.
    Evidence(WriteError),
    /// It could not be written.
    Write(WriteError),
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(name) => {
                write!(
                    f,
                    "{name} is there already and is another one; a run directory is used once"
                )
            }
            Self::Contended => {
                write!(f, "{} changed each time it was to be written", layout::PROOF)
            }
            Self::Evidence(_) => {
                f.write_str("the evidence for a proof could not be read, try again")
            }
            Self::Write(_) => f.write_str("the proof could not be written"),
        }
    }
}

impl std::error::Error for ProofError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Evidence(e) | Self::Write(e) => Some(e),
            Self::Occupied(_) | Self::Contended => None,
        }
    }
}

/// Prepares a run directory for a proof, before the runner may proceed. Facts §5.3. Doing it again
/// for the same runner changes nothing.
///
/// # Errors
/// [`ProofError`].
pub fn initialise<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &RunId,
    instance_id: &str,
) -> Result<(), ProofError> {
    let run_id = run_id.as_str();
    write_new(host, run_dir, layout::PROOF, &written::pending_proof(run_id, instance_id))?;
    write_new(host, run_dir, layout::CANDIDATE, &written::initial_candidate(run_id, instance_id))?;
    // One flush for both names; each content was flushed before its rename.
    host.sync_dir(run_dir).map_err(|e| {
        ProofError::Write(WriteError::of(host, run_dir, Step::FlushDirectory, layout::CANDIDATE, e))
    })
}

fn write_new<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &'static str,
    text: &str,
) -> Result<(), ProofError> {
    let options = Options::new(Durability::Ordered).target(Target::New);
    match atomic::replace(host, dir, name, text.as_bytes(), &options) {
        Ok(_) => Ok(()),
        Err(e) if e.is_taken() => {
            let read = host.read_at(dir, name.as_ref(), Part::All(limits::SIDECAR_MAX_BYTES));
            let same = read.is_ok_and(|read| read.bytes == text.as_bytes());
            if same { Ok(()) } else { Err(ProofError::Occupied(name)) }
        }
        Err(e) => Err(ProofError::Write(e)),
    }
}

/// What holds after a finalisation.
#[derive(Debug)]
pub struct Finalised {
    /// The row of facts §5.5 that decided.
    pub row: &'static str,
    /// The proof that holds.
    pub proof: Proof,
    /// Whether it was written now.
    pub written: bool,
    /// What could not be made of what follows from it; [`complete`] makes it later.
    pub missing: Vec<(Consequence, String)>,
}

/// Turns the close of the runner into a proof. See the module's ordered steps.
///
/// # Errors
/// [`ProofError`] when nothing could be decided or the proof could not be written; nothing else was
/// done then, and the same call may be made again with the same witness.
/// Spec: RS-PROOF-25.
pub fn finalise<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    witness: &ExitWitness,
) -> Result<Finalised, ProofError> {
    settle(host, place, &witness.close.id, witness.grade, |evidence| {
        evidence.decide(place.run_id.as_str(), &witness.close)
    })
}

/// Says that the end of a runner was not observed and cannot be any more, with what is known of it.
/// A proof that is final already stays, and is completed. The caller has given whoever may still have
/// seen the close the time to say so: this is sticky.
/// Spec: RS-OBS-10.
///
/// # Errors
/// As [`finalise`].
pub fn record_unobserved<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    instance_id: &str,
    grade: ExitGrade,
) -> Result<Finalised, ProofError> {
    settle(host, place, instance_id, grade, |evidence| {
        let existing = evidence.existing.as_ref().map(|existing| &existing.proof);
        finalize::decide_unobserved(place.run_id.as_str(), instance_id, existing)
    })
}

fn settle<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    instance_id: &str,
    grade: ExitGrade,
    decide: impl Fn(&Gathered) -> FinalizeDecision,
) -> Result<Finalised, ProofError> {
    for _ in 0..MAX_ATTEMPTS {
        let evidence = Gathered::gather(host, place, Some(instance_id))?;
        let mut decision = decide(&evidence);
        if !decision.write {
            // Only a proof that is valid as it stands has consequences: what merely reads as
            // `unknown` is left alone, and so is everything else.
            let text = evidence.valid_text();
            let missing = text.map_or_else(Vec::new, |text| {
                consequences(host, place, &decision.proof, text, evidence.candidate())
            });
            let FinalizeDecision { row, proof, .. } = decision;
            return Ok(Finalised { row, proof, written: false, missing });
        }
        decision.proof.exit_evidence = Some(Open::Known(grade));
        let session = evidence.session_id.as_deref().zip(decision.canonical_session);
        let text = written::proof(&decision.proof, session);
        if !write_proof(host, place.run_dir, &evidence, &text)? {
            continue;
        }
        let missing = consequences(host, place, &decision.proof, &text, evidence.candidate());
        let FinalizeDecision { row, proof, .. } = decision;
        return Ok(Finalised { row, proof, written: true, missing });
    }
    Err(ProofError::Contended)
}

/// Completes what follows from a proof that is there: marker, overlay, event. Facts CW-30, CW-31.
/// `None` when there is no valid final proof of this run; then nothing is changed. It never writes a
/// proof.
///
/// # Errors
/// [`ProofError::Evidence`] when it cannot be told whether there is one; nothing was done then.
pub fn complete<H: WriteHost>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
) -> Result<Option<Finalised>, ProofError> {
    let evidence = Gathered::gather(host, place, None)?;
    let (Some(text), Some(existing)) = (evidence.valid_text(), &evidence.existing) else {
        return Ok(None);
    };
    let proof = existing.proof.clone();
    let row = if proof.state == ProofState::Observed { "F-1" } else { "F-2" };
    let missing = consequences(host, place, &proof, text, evidence.candidate());
    Ok(Some(Finalised { row, proof, written: false, missing }))
}

/// Step 3; `false` when another proof has come in between.
fn write_proof<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    evidence: &Gathered,
    text: &str,
) -> Result<bool, ProofError> {
    let (options, text) = (Options::new(Durability::Durable), text.as_bytes());
    let Some(existing) = &evidence.existing else {
        let options = options.target(Target::New);
        return match atomic::replace(host, dir, layout::PROOF, text, &options) {
            Ok(_) => Ok(true),
            Err(e) if e.is_taken() => Ok(false),
            Err(e) => Err(ProofError::Write(e)),
        };
    };
    let Some(stat) = existing.stat else { return Ok(false) };
    let options = options.target(Target::Known(stat.mode));
    let mut blind = None;
    // After the flush of the new one: another observer has all that time to publish its own.
    let is_still = || match host.stat_at(dir, layout::PROOF.as_ref()) {
        Ok(now) => now.is_same_as(&stat),
        Err(e) if may_pass(&e) => {
            blind = Some(WriteError::of(host, dir, Step::Look, layout::PROOF, e));
            false
        }
        Err(_) => false,
    };
    let written = atomic::replace_if(host, dir, layout::PROOF, text, &options, is_still);
    match (written.map_err(ProofError::Write)?, blind) {
        (_, Some(e)) => Err(ProofError::Evidence(e)),
        (written, None) => Ok(written.is_some()),
    }
}

/// The proof that was found.
struct Existing {
    proof: Proof,
    /// The text, when it is a valid proof of this run and runner.
    text: Option<String>,
    stat: Option<Stat>,
}

/// Step 1.
struct Gathered {
    existing: Option<Existing>,
    candidate: Option<Result<Candidate, String>>,
    /// The name of the lease of the candidate's session file.
    session_id: Option<String>,
    lease: Lease,
    status_state: Option<String>,
    session_exists: bool,
}

enum Lease {
    Free,
    Owned,
    Unreadable,
    Unresolvable(String),
}

impl Gathered {
    /// # Errors
    /// When the system fails at one of them for a reason that passes, and at the proof for any: neither
    /// "there is none" nor "there is a bad one" may be concluded from it.
    fn gather<H: WriteHost>(
        host: &H,
        place: &RunPlace<'_, H::Dir>,
        instance_id: Option<&str>,
    ) -> Result<Self, ProofError> {
        let passing = |name: &str, e| {
            ProofError::Evidence(WriteError::of(host, place.run_dir, Step::Look, name, e))
        };
        let existing = existing(host, place, instance_id).map_err(|e| passing(layout::PROOF, e))?;
        let read = read(host, place.run_dir, layout::CANDIDATE, limits::SIDECAR_MAX_BYTES)
            .map_err(|e| passing(layout::CANDIDATE, e))?;
        let candidate = read.map(|read| {
            let decode = |read: FileRead| {
                Document::from_bytes(&read.bytes).and_then(|doc| Candidate::read(&doc))
            };
            read.and_then(|read| decode(read).map_err(|e| e.to_string()))
        });
        let status = read_status(host, place.run_dir).map_err(|e| passing(layout::STATUS, e))?;
        let named = candidate
            .as_ref()
            .and_then(|read| read.as_ref().ok())
            .and_then(|candidate| candidate.session_file.clone());
        let resolved = named.as_ref().map(|file| lease::canonical_id(host, Path::new(file)));
        let (lease, session_id) = match resolved {
            None => (Lease::Free, None),
            Some(Err(e)) if may_pass(&e) => {
                return Err(passing(named.as_deref().unwrap_or_default(), e));
            }
            Some(Err(e)) => (Lease::Unresolvable(super::read::plain(&e)), None),
            Some(Ok(canonical)) => {
                let state = match lease::inspect_or_say(host, place.temp, &canonical.id) {
                    Err((_, e)) if may_pass(&e) => return Err(passing(layout::LEASES_DIR, e)),
                    Ok(state) | Err((state, _)) => state,
                };
                let lease = match state {
                    LeaseState::Free => Lease::Free,
                    LeaseState::Owned(_) => Lease::Owned,
                    LeaseState::NoOwner | LeaseState::Unreadable(_) => Lease::Unreadable,
                };
                (lease, Some(canonical.id))
            }
        };
        let (status_state, status_session) = status.unwrap_or_default();
        let file = named.or(status_session);
        let session_exists = match &file {
            Some(file) => exists(host, file).map_err(|e| passing(file, e))?,
            None => false,
        };
        Ok(Self { existing, candidate, session_id, lease, status_state, session_exists })
    }

    fn candidate(&self) -> Option<&Candidate> {
        self.candidate.as_ref()?.as_ref().ok()
    }

    /// The text of a final proof that is valid as it stands.
    fn valid_text(&self) -> Option<&str> {
        let existing = self.existing.as_ref()?;
        let is_final = matches!(existing.proof.state, ProofState::Observed | ProofState::Unknown);
        existing.text.as_deref().filter(|_| is_final)
    }

    fn decide(&self, run_id: &str, close: &Instance) -> FinalizeDecision {
        finalize::decide(&FinalizeEvidence {
            run_id,
            close,
            existing: self.existing.as_ref().map(|existing| &existing.proof),
            candidate: match &self.candidate {
                None => CandidateFound::Missing,
                Some(Err(why)) => CandidateFound::Invalid(why),
                Some(Ok(candidate)) => CandidateFound::Found(candidate),
            },
            lease: match &self.lease {
                Lease::Free => SessionLease::Free,
                Lease::Owned => SessionLease::Owned,
                Lease::Unreadable => SessionLease::Unreadable,
                Lease::Unresolvable(why) => SessionLease::Unresolvable(why),
            },
            status_state: self.status_state.as_deref(),
            session_exists: self.session_exists,
            trouble: None,
        })
    }
}

/// A file, `None` when it is not there; in words what is wrong with it.
///
/// # Errors
/// As the system says, when the reason passes.
fn read<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit_bytes: u64,
) -> io::Result<Option<Result<FileRead, String>>> {
    match host.read_at(dir, name.as_ref(), Part::All(limit_bytes)) {
        Err(ReadError::Io(e)) if may_pass(&e) => Err(e),
        read => Ok(in_words(name, read)),
    }
}

fn in_words(name: &str, read: Result<FileRead, ReadError>) -> Option<Result<FileRead, String>> {
    match read {
        Ok(read) => Some(Ok(read)),
        Err(ReadError::Absent) => None,
        Err(ReadError::NotPlain(kind)) => Some(Err(format!("{name} is {}", kind.name()))),
        Err(e) => Some(Err(e.to_string())),
    }
}

fn existing<H: Host>(
    host: &H,
    place: &RunPlace<'_, H::Dir>,
    instance_id: Option<&str>,
) -> io::Result<Option<Existing>> {
    let run_id = Some(place.run_id.as_str());
    let failed = |why| Proof::write_failed(run_id, instance_id, place.run_id.as_str(), why);
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let read = match host.read_at(place.run_dir, layout::PROOF.as_ref(), part) {
        Err(ReadError::Io(e)) => return Err(e),
        read => in_words(layout::PROOF, read),
    };
    let read = match read {
        None => return Ok(None),
        Some(Ok(read)) => read,
        Some(Err(why)) => {
            return Ok(Some(Existing { proof: failed(why), text: None, stat: None }));
        }
    };
    let parsed = Document::from_bytes(&read.bytes)
        .and_then(|doc| Ok((Proof::read(&doc)?, doc.source().trim_ascii().to_owned())));
    let checked = parsed.map_err(|e| e.to_string()).and_then(|(proof, text)| {
        proof.check_identity(run_id, instance_id).map(|()| (proof, text))
    });
    let stat = Some(read.stat);
    Ok(Some(match checked {
        Ok((proof, text)) => Existing { proof, text: Some(text), stat },
        Err(why) => Existing { proof: failed(why), text: None, stat },
    }))
}

/// `state` and `sessionFile` of a status that reads.
fn read_status<H: Host>(
    host: &H,
    dir: &H::Dir,
) -> io::Result<Option<(Option<String>, Option<String>)>> {
    let read = read(host, dir, layout::STATUS, limits::STATUS_MAX_BYTES)?;
    let Some(Ok(read)) = read else { return Ok(None) };
    Ok(Document::from_bytes(&read.bytes).ok().map(|doc| {
        (text(&doc, "state"), text(&doc, "sessionFile").filter(|file| !file.is_empty()))
    }))
}

pub(super) fn text(doc: &Document<'_>, key: &str) -> Option<String> {
    Some(doc.get(key)?.string()?.into_owned())
}

/// Whether a session file exists.
///
/// # Errors
/// When it cannot be told for now.
pub(super) fn exists<H: Host>(host: &H, file: &str) -> io::Result<bool> {
    match host.real_path(&host.absolute(Path::new(file))) {
        Err(e) if may_pass(&e) => Err(e),
        found => Ok(found.is_ok()),
    }
}
