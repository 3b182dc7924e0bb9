//! What is put into a candidate after the launcher has prepared it: session, writers, releases, failures.
//!
//! Theory of operation. The candidate decides over the proof, and the lease of the session that it names
//! decides as well. Every function here changes members of what is there, so that what another one put in
//! stays, and none changes the candidate of another runner:
//! * a revived runner names session and token right after it was told to proceed ([`name_session`]), before
//!   it does anything: from then on an end that nobody prepared is not proven while the lease is held;
//! * whoever knows how the writers ended puts their records in: the runner as its last act but the release
//!   of its lease ([`record_writers`]), or an observer that has seen with its own eyes that nothing the
//!   runner started is left ([`record_no_writers`]);
//! * a launch that failed says that there was no writer (`record_failed_start`);
//! * after a runner gave its lease back it says so ([`acknowledge_release`]), and only then: an
//!   acknowledgement beside a lease that is still there would free a session that is written to.
//!
//! Ordered steps of each: those of a replacement at the level durable ([`sidecar::patch`]); if nothing had
//! to change, a flush of the directory alone, because whoever wrote the same text may have died before its
//! own flush. Writers and failures make a whole candidate, under a name that must be free, where there is none.
//!
//! A crash leaves the old candidate or the new one. Spec: RS-CAND-06, RS-CAND-07, RS-OBS-06, RS-START-13,
//! RS-START-30; facts P-3 to P-5, U-25, U-27, CW-26.

use std::path::Path;

use crate::protocol::candidate::{Candidate, Instance};
use crate::protocol::{Document, layout, limits, written};

use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::host::WriteHost;
use super::sidecar::{self, Decision, PatchError, Patched};

/// Names the session file and the token of its lease. A run without a candidate has a launcher that makes
/// none, so there is nothing to be done.
///
/// # Errors
/// [`PatchError`]; the candidate is as it was then, unless only the last flush failed.
pub fn name_session<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    (run_id, instance_id): (&str, &str),
    session_file: &Path,
    token: &str,
) -> Result<Patched, PatchError> {
    let patched = patch(host, run_dir, |doc| {
        if let Some(refusal) = of_another(doc, run_id, instance_id) {
            return refusal;
        }
        Decision::Patch(vec![
            ("sessionFile", written::string(&session_file.to_string_lossy())),
            ("revivalLeaseToken", written::string(token)),
        ])
    });
    match patched {
        Err(PatchError::Absent(_)) => Ok(Patched::Kept),
        other => other,
    }
}

/// Says whether the lease of this token was given back, if the candidate names that lease.
/// Spec: RS-CAND-07, RS-START-30, RS-STEP-07; facts P-5.
///
/// # Errors
/// [`PatchError`], with [`PatchError::Refused`] when the candidate names another lease or none. It is as it
/// was then, unless only the last flush failed.
pub fn acknowledge_release<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    token: &str,
    released: bool,
) -> Result<(), PatchError> {
    let patched = patch(host, run_dir, |doc| {
        let named = doc.get("revivalLeaseToken").and_then(|raw| raw.exact_string());
        if named.as_deref() != Some(token) {
            return Decision::Refuse("it names another lease".to_owned());
        }
        Decision::Patch(vec![("revivalLeaseReleaseAcknowledged", released.to_string())])
    });
    patched.map(drop)
}

/// Puts the records of a runner's writers into its candidate: for each step of the run, in their order,
/// its attempts.
/// Spec: RS-CAND-06.
///
/// # Errors
/// [`PatchError`], with [`PatchError::Refused`] when the candidate is another runner's. It is as it was
/// then, unless only the last flush failed.
pub fn record_writers<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &str,
    instance_id: &str,
    steps: &[Vec<Instance>],
) -> Result<(), PatchError> {
    record(host, run_dir, run_id, instance_id, steps, false)
}

/// Says for a runner that left no account that nothing of what it started is left: an expected count of
/// zero for each step. Only an observer that has waited for every descendant may say so. A candidate
/// with counts is left as it is, because the runner's own account is worth more.
/// Spec: RS-OBS-06.
///
/// # Errors
/// As [`record_writers`].
pub fn record_no_writers<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &str,
    instance_id: &str,
    steps: usize,
) -> Result<(), PatchError> {
    record(host, run_dir, run_id, instance_id, &vec![Vec::new(); steps.max(1)], true)
}

fn record<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &str,
    instance_id: &str,
    steps: &[Vec<Instance>],
    stand_in: bool,
) -> Result<(), PatchError> {
    let (writers, counts) = written::writers(steps);
    // An observer knows of no single writer, and its counts say that there is none to wait for.
    let writers = if stand_in { "{}".to_owned() } else { writers };
    let patched = patch(host, run_dir, |doc| {
        let read = match Candidate::read(doc) {
            Ok(read) => read,
            Err(e) => return Decision::Refuse(e.to_string()),
        };
        if let Some(refusal) = of_another(doc, run_id, instance_id) {
            return refusal;
        }
        if stand_in && read.has_counts() {
            return Decision::Keep;
        }
        Decision::Patch(vec![
            ("writers", written::indented(&writers, 2)),
            ("expectedWriters", written::indented(&counts, 2)),
        ])
    });
    let text = || written::candidate(run_id, instance_id, &writers, &counts);
    or_make(host, run_dir, patched, text)
}

/// Says of a launch that failed that there was no writer: an expected count of zero for each step. What is
/// known of the session is kept, because its lease decides over the proof. Facts §4.8.
/// Spec: RS-START-13.
///
/// # Errors
/// As [`record_writers`].
pub(super) fn record_failed_start<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &str,
    instance_id: &str,
    steps: usize,
) -> Result<(), PatchError> {
    let counts = written::indented(&written::zero_counts(steps), 2);
    let patched = patch(host, run_dir, |doc| {
        of_another(doc, run_id, instance_id)
            .unwrap_or_else(|| Decision::Patch(vec![("expectedWriters", counts.clone())]))
    });
    or_make(host, run_dir, patched, || written::failed_candidate(run_id, instance_id, steps))
}

/// The refusal of a candidate that belongs to another run or runner.
fn of_another(doc: &Document<'_>, run_id: &str, instance_id: &str) -> Option<Decision> {
    let is =
        |key: &str, own: &str| doc.get(key).and_then(|raw| raw.string()).as_deref() == Some(own);
    let ours = is("runId", run_id) && is("runnerProcessInstanceId", instance_id);
    (!ours).then(|| Decision::Refuse("it belongs to another runner instance".to_owned()))
}

fn patch<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    decide: impl Fn(&Document<'_>) -> Decision,
) -> Result<Patched, PatchError> {
    let options = Options::new(Durability::Durable);
    let limit = limits::SIDECAR_MAX_BYTES;
    let patched = sidecar::patch(host, run_dir, layout::CANDIDATE, limit, &options, decide)?;
    if patched == Patched::Kept {
        host.sync_dir(run_dir).map_err(|e| {
            let step = Step::FlushDirectory;
            PatchError::Write(WriteError::of(host, run_dir, step, layout::CANDIDATE, e))
        })?;
    }
    Ok(patched)
}

/// A whole candidate in the place of one that was to be patched and is not there.
fn or_make<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    patched: Result<Patched, PatchError>,
    text: impl FnOnce() -> String,
) -> Result<(), PatchError> {
    match patched {
        Err(PatchError::Absent(_)) => {}
        other => return other.map(drop),
    }
    let options = Options::new(Durability::Durable).target(Target::New);
    atomic::replace(host, run_dir, layout::CANDIDATE, text().as_bytes(), &options)
        .map(drop)
        .map_err(PatchError::Write)
}
