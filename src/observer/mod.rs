//! Witnessing the end of a runner: only a real wait makes a proof that says `observed`.
//!
//! Theory of operation. An observer has one subject, the runner of one run, and one duty: to turn what the
//! *system* tells of its end into a proof. Two ways lead there. [`shim`] is the runner's parent: it starts
//! it, waits, ends what the runner left behind, decides and lets go of marker and slot; it is a process of
//! its own, so it outlives the launcher. [`witness`] comes later, to a run that has no observer: it holds a
//! handle of the live runner, and where the system tells it the end, that is an observation as well.
//! Everything else is evidence of a lesser grade ([`ExitGrade`](crate::protocol::proof::ExitGrade)), and
//! never says `observed`.
//!
//! What a crash of an observer leaves is in each function's text. A proof that is pending with a dead
//! observer stays so until a witness records that nobody saw the end.
//! Spec: chapter 15, RS-OBS-*.

mod launch;
mod leftovers;
mod settle;
mod shim;
mod witness;

pub use leftovers::Leftovers;
pub use settle::Settled;
pub use shim::{ShimCommand, ShimError, ShimReport, shim};
pub use witness::{WitnessError, Witnessed, witness};

use std::io;

use crate::protocol::process::{Liveness, ProcessRecord};
use crate::protocol::status::StatusView;
use crate::protocol::{Document, layout, limits};
use crate::store::host::{Part, ReadError};
use crate::store::proof::RunPlace;
use crate::store::{Host, identity};

/// A run and the runner in it that is observed.
#[derive(Debug)]
pub struct Subject<'a, D> {
    /// Where the run lies.
    pub place: RunPlace<'a, D>,
    /// The instance that the launcher chose for the runner.
    pub instance_id: &'a str,
}

/// The status of a run; `None` when there is none that can be read.
fn status<H: Host>(host: &H, run_dir: &H::Dir) -> io::Result<Option<StatusView>> {
    read(host, run_dir, layout::STATUS, limits::STATUS_MAX_BYTES, |doc| Some(StatusView::read(doc)))
}

/// Another record of a run; `None` when there is none that can be read.
fn record<H: Host, T>(
    host: &H,
    run_dir: &H::Dir,
    name: &str,
    meaning: impl FnOnce(&Document<'_>) -> Option<T>,
) -> io::Result<Option<T>> {
    read(host, run_dir, name, limits::SIDECAR_MAX_BYTES, meaning)
}

fn read<H: Host, T>(
    host: &H,
    run_dir: &H::Dir,
    name: &str,
    limit_bytes: u64,
    meaning: impl FnOnce(&Document<'_>) -> Option<T>,
) -> io::Result<Option<T>> {
    match host.read_at(run_dir, name.as_ref(), Part::All(limit_bytes)) {
        Ok(read) => Ok(Document::from_bytes(&read.bytes).ok().as_ref().and_then(meaning)),
        Err(ReadError::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}

/// Whether a process that recorded itself at this instant lives.
fn judge<H: Host>(host: &H, own: &ProcessRecord, at_ms: i64) -> Liveness {
    identity::judge(host, &own.told_at(at_ms)).word
}
