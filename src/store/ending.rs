//! What a runner and its observer leave for the proof: the writers' records, and who observes.
//!
//! Theory of operation. The launcher prepares the candidate; whoever knows how the writers ended puts
//! their records into it: the runner as its last act but the release of its lease ([`record_writers`]), or
//! an observer that has seen with its own eyes that nothing the runner started is left
//! ([`record_no_writers`]). Both change members of what is there, so that session file and lease token
//! stay, and both refuse the candidate of another runner.
//!
//! Ordered steps of [`record_writers`] and [`record_no_writers`]: those of a replacement at the level
//! durable ([`sidecar::patch`]); of the second only if the candidate has no counts yet, because the
//! runner's own account is worth more. Where there is no candidate a whole one is written under a name
//! that must be free.
//!
//! Ordered steps of [`record_observer`]: those of a replacement at the level ordered. Before the runner
//! is started: a runner whose observer nobody knows of would look like one without an observer.
//!
//! A crash leaves the old text or the new one. Spec: RS-CAND-06, RS-OBS-03, RS-OBS-06; facts P-4, CW-26.

use crate::protocol::candidate::{Candidate, Instance};
use crate::protocol::observer_record::ObserverRecord;
use crate::protocol::{Document, layout, limits, written};

use super::atomic::{self, Durability, Options, Target, WriteError};
use super::host::{Host, Part, ReadError, WriteHost};
use super::sidecar::{self, Decision, PatchError, Patched};

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
/// with counts is left as it is.
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
    let options = Options::new(Durability::Durable);
    let (writers, counts) = written::writers(steps);
    // An observer knows of no single writer, and its counts say that there is none to wait for.
    let writers = if stand_in { "{}".to_owned() } else { writers };
    let limit = limits::SIDECAR_MAX_BYTES;
    let patched = sidecar::patch(host, run_dir, layout::CANDIDATE, limit, &options, |doc| {
        let read = match Candidate::read(doc) {
            Ok(read) => read,
            Err(e) => return Decision::Refuse(e.to_string()),
        };
        if read.run_id != run_id || read.instance_id != instance_id {
            return Decision::Refuse("it belongs to another runner instance".to_owned());
        }
        if stand_in && read.has_counts() {
            return Decision::Keep;
        }
        Decision::Patch(vec![
            ("writers", written::indented(&writers, 2)),
            ("expectedWriters", written::indented(&counts, 2)),
        ])
    });
    match patched {
        Err(PatchError::Absent(_)) => {}
        Ok(Patched::Kept) => return flush(host, run_dir),
        other => return other.map(drop),
    }
    let text = written::candidate(run_id, instance_id, &writers, &counts);
    atomic::replace(host, run_dir, layout::CANDIDATE, text.as_bytes(), &options.target(Target::New))
        .map(drop)
        .map_err(PatchError::Write)
}

/// Whoever wrote the same text may have died before its own flush.
fn flush<H: WriteHost>(host: &H, run_dir: &H::Dir) -> Result<(), PatchError> {
    host.sync_dir(run_dir).map_err(|e| {
        let step = atomic::Step::FlushDirectory;
        PatchError::Write(WriteError::of(host, run_dir, step, layout::CANDIDATE, e))
    })
}

/// Says in the candidate whether the lease of its session was released, if the candidate names that lease.
/// After the release: `true` beside a lease that is there would be a lie (RS-CAND-07).
/// Spec: RS-CAND-07, RS-STEP-07; facts P-5.
///
/// # Errors
/// [`PatchError`], with [`PatchError::Refused`] when the candidate names another lease.
pub fn acknowledge_release<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    token: &str,
    released: bool,
) -> Result<(), PatchError> {
    let options = Options::new(Durability::Durable);
    let limit = limits::SIDECAR_MAX_BYTES;
    let patched = sidecar::patch(host, run_dir, layout::CANDIDATE, limit, &options, |doc| {
        match Candidate::read(doc) {
            Ok(read) if read.lease_token.as_deref() == Some(token) => {
                let text = released.to_string();
                Decision::Patch(vec![("revivalLeaseReleaseAcknowledged", text)])
            }
            Ok(_) => Decision::Refuse("it names another lease".to_owned()),
            Err(e) => Decision::Refuse(e.to_string()),
        }
    });
    match patched? {
        Patched::Kept => flush(host, run_dir),
        Patched::Written { .. } => Ok(()),
    }
}

/// Says which process waits for the end of a runner.
/// Spec: RS-OBS-03.
///
/// # Errors
/// [`WriteError`].
pub fn record_observer<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    record: &ObserverRecord,
) -> Result<(), WriteError> {
    // Ordered is enough: no observer outlives a power cut.
    let options = Options::new(Durability::Ordered);
    atomic::replace(host, run_dir, layout::OBSERVER, record.text().as_bytes(), &options).map(drop)
}

/// Who observes a run, if an observer of this library does and its record can be read.
///
/// # Errors
/// As the system says when it cannot be told.
pub fn observer<H: Host>(host: &H, run_dir: &H::Dir) -> std::io::Result<Option<ObserverRecord>> {
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    match host.read_at(run_dir, layout::OBSERVER.as_ref(), part) {
        Ok(read) => {
            Ok(Document::from_bytes(&read.bytes).and_then(|doc| ObserverRecord::read(&doc)).ok())
        }
        Err(ReadError::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}
