//! Who observes a run: the record that an observer of this library leaves beside it.
//!
//! Ordered steps of [`write()`]: those of a replacement at the level ordered. Before the runner is started: a
//! runner whose observer nobody knows of would look like one without an observer.
//!
//! A crash leaves no record or a whole one, of a process that is gone in either case. Spec: RS-OBS-03.

use std::io;

use crate::protocol::observer_record::ObserverRecord;
use crate::protocol::{Document, layout, limits};

use super::atomic::{self, Durability, Options, WriteError};
use super::host::{Host, Part, ReadError, WriteHost};

/// Says which process waits for the end of a runner.
/// Spec: RS-OBS-03.
///
/// # Errors
/// [`WriteError`].
pub fn write<H: WriteHost>(
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
pub fn read<H: Host>(host: &H, run_dir: &H::Dir) -> io::Result<Option<ObserverRecord>> {
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    match host.read_at(run_dir, layout::OBSERVER.as_ref(), part) {
        Ok(read) => {
            Ok(Document::from_bytes(&read.bytes).and_then(|doc| ObserverRecord::read(&doc)).ok())
        }
        Err(ReadError::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}
