//! Attaching to a live run that has no observer.
//!
//! Ordered steps of [`witness`]:
//! 1. leave the run alone if its proof is final, or if an observer of this library is at it and alive;
//! 2. hold the recorded process, then compare it with the record *through the handle*. The other order could
//!    hold a successor of the same number;
//! 3. tell the caller that it is held: from now on its end can be observed;
//! 4. wait until it ends, or the caller's time is over;
//! 5. ask the system how it ended. It tells that from the moment the parent has reaped the process, so
//!    it is asked for [`OBSERVER_GRACE_MS`](limits::OBSERVER_GRACE_MS); meanwhile whoever launched the run may
//!    say what it saw, which stays;
//! 6. told, wait until the launch is decided ([`launch`](super::launch)) and settle the end as every
//!    observer does ([`settle`](super::settle)); that is an observation, because the handle was there
//!    before the end;
//! 7. not told, record that nobody saw it, with what is known: its lease released, its identity gone, or
//!    the machine started anew.
//!
//! A process that is gone before step 2 leads to step 5 without the question. One that cannot be judged is
//! left alone, however long it has been silent: silence ends nothing.
//!
//! A crash leaves the proof as it was, until step 6. Spec: RS-OBS-07 to RS-OBS-11, RS-OBS-13, RS-OBS-30,
//! RS-OBS-31.

use std::fmt;
use std::io;

use crate::protocol::candidate::Candidate;
use crate::protocol::process::Liveness;
use crate::protocol::proof::{ExitGrade, Proof, ProofState};
use crate::protocol::status::StatusView;
use crate::protocol::{layout, limits};
use crate::store::host::Exit;
use crate::store::identity::{self, Held};
use crate::store::proof::{self, ExitWitness, Finalised, ProofError};
use crate::store::{ProcessHost, observer_record};

use super::launch::Launch;
use super::settle::{self, Settled};
use super::{Subject, judge, record, status};

/// What came of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Witnessed {
    /// The proof was final already.
    Settled(ProofState),
    /// An observer is at it: a live process with this number.
    Attended(i64),
    /// The system told this end, and this is what holds now.
    Observed(Exit, Settled),
    /// Nobody saw the end; this is what holds now, and what is known.
    Unobserved(Finalised, ExitGrade),
    /// Whether the runner lives cannot be told, for this reason. Nothing was done.
    Undetermined(String),
    /// The runner still runs.
    StillRunning,
}

/// Why nothing came of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum WitnessError {
    /// There is no status that names a process.
    NoProcess,
    /// Something could not be looked at or waited for.
    Look(io::Error),
    /// What holds could not be written.
    Proof(ProofError),
}

impl fmt::Display for WitnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("no status of this run names a process"),
            Self::Look(_) => f.write_str("the run or its process could not be looked at"),
            Self::Proof(_) => f.write_str("the proof could not be written"),
        }
    }
}

impl std::error::Error for WitnessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoProcess => None,
            Self::Look(e) => Some(e),
            Self::Proof(e) => Some(e),
        }
    }
}

impl From<io::Error> for WitnessError {
    fn from(e: io::Error) -> Self {
        Self::Look(e)
    }
}

/// Waits for the end of a runner that somebody else started, at most so many ms if there is a bound; `held` is
/// told its number once it is held. See the module's ordered steps.
///
/// # Errors
/// [`WitnessError`]; no proof was written then.
pub fn witness<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    ms: Option<u64>,
    held: &mut dyn FnMut(i64),
) -> Result<Witnessed, WitnessError> {
    let run_dir = subject.place.run_dir;
    if let Some(state) = final_proof(host, subject)? {
        return Ok(Witnessed::Settled(state));
    }
    if let Some(record) = observer_record::read(host, run_dir)?
        && judge(host, &record.process, record.since_ms) == Liveness::Live
    {
        return Ok(Witnessed::Attended(record.process.pid));
    }
    let status = status(host, run_dir)?.ok_or(WitnessError::NoProcess)?;
    let recorded = status.process();
    let pid = recorded.pid.ok_or(WitnessError::NoProcess)?;
    let (witness, life) = match identity::hold(host, &recorded)? {
        Held::Live(handle) => (Some(handle), Liveness::Live),
        Held::Gone(life) => (None, life.word),
        Held::Undetermined(life) => return Ok(Witnessed::Undetermined(life.why.into_owned())),
    };
    if let Some(handle) = &witness {
        held(pid);
        if !host.wait_held(handle, ms)? {
            return Ok(Witnessed::StillRunning);
        }
    }
    let closed_at_ms = host.now_ms();
    match outcome(host, subject, witness.as_ref())? {
        Outcome::Settled(state) => Ok(Witnessed::Settled(state)),
        Outcome::Told(exit) => {
            let witness = ExitWitness::from_handle(subject.instance_id, closed_at_ms, exit.clone());
            let mut launch = Launch::decided(host, subject);
            let settled = settle::settle(host, subject, &mut launch, &witness);
            settled.map(|it| Witnessed::Observed(exit, it)).map_err(WitnessError::Proof)
        }
        Outcome::Nothing if life.is_gone() => unobserved(host, subject, &status, life),
        Outcome::Nothing => unobserved(host, subject, &status, Liveness::Dead),
    }
}

/// What is heard after an end.
enum Outcome {
    /// Somebody else's final proof.
    Settled(ProofState),
    /// How it ended, told by the system.
    Told(Exit),
    /// Nothing.
    Nothing,
}

/// Step 5.
fn outcome<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    witness: Option<&H::Handle>,
) -> Result<Outcome, WitnessError> {
    // What is recorded after this is recorded for ever, and the real observer may be about to write.
    let mut waited_ms = 0;
    while waited_ms < limits::OBSERVER_GRACE_MS {
        if let Some(state) = final_proof(host, subject)? {
            return Ok(Outcome::Settled(state));
        }
        if let Some(handle) = witness
            && let Some(exit) = host.told(handle)?
        {
            return Ok(Outcome::Told(exit));
        }
        host.wait_ms(limits::OBSERVER_LOOK_MS);
        waited_ms += limits::OBSERVER_LOOK_MS;
    }
    Ok(Outcome::Nothing)
}

/// Step 7.
fn unobserved<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    status: &StatusView,
    life: Liveness,
) -> Result<Witnessed, WitnessError> {
    let grade = grade(host, subject, status, life)?;
    let done = proof::record_unobserved(host, &subject.place, subject.instance_id, grade);
    done.map(|done| Witnessed::Unobserved(done, grade)).map_err(WitnessError::Proof)
}

/// The strongest evidence for an end that was not observed.
fn grade<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
    status: &StatusView,
    life: Liveness,
) -> io::Result<ExitGrade> {
    let run_dir = subject.place.run_dir;
    let candidate = record(host, run_dir, layout::CANDIDATE, |doc| Candidate::read(doc).ok())?;
    let own = candidate.filter(|candidate| candidate.instance_id == subject.instance_id);
    if own.is_some_and(|own| own.lease_release_acknowledged == Some(true)) {
        return Ok(ExitGrade::LeaseReleased);
    }
    let boots = status.identity.boot_id.as_ref().zip(host.system().boot_id.as_ref());
    let other_boot = boots.is_some_and(|(recorded, now)| recorded != now);
    Ok(if other_boot && life.is_gone() { ExitGrade::Rebooted } else { ExitGrade::IdentityGone })
}

/// The state of the proof, if it is final and of this runner.
fn final_proof<H: ProcessHost>(
    host: &H,
    subject: &Subject<'_, H::Dir>,
) -> io::Result<Option<ProofState>> {
    let proof = record(host, subject.place.run_dir, layout::PROOF, |doc| Proof::read(doc).ok())?;
    let is_final =
        |proof: &Proof| matches!(proof.state, ProofState::Observed | ProofState::Unknown);
    Ok(proof.filter(is_final).map(|proof| proof.state))
}
