//! Who of this library is in charge of a run: the launcher that prepares it, the shim that waits for its end.
//!
//! Reads two small records and asks what became of their processes, for a run that occupies a slot: whether that
//! slot may be released turns on it. A record that is not there, or is damaged, speaks for nobody; one
//! that the system cannot read now may be of an observer that lives. Reads only.
//! Spec: RS-SLOT-19, RS-SLOT-20.

use crate::protocol::evidence::{Keepers, LaunchFact, ObserverFact};
use crate::protocol::process::ProcessRecord;
use crate::protocol::written_startup::LaunchNote;
use crate::protocol::{Document, layout, limits};

use super::host::{Host, Part};
use super::{identity, observer_record};

/// What became of launcher and observer, judged now.
pub(super) fn of<H: Host>(host: &H, run_dir: &H::Dir, run_id: &str) -> Keepers {
    let is_gone = |process: &ProcessRecord, at_ms: i64| {
        identity::judge(host, &process.told_at(at_ms)).word.is_gone()
    };
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let note = host.read_at(run_dir, layout::LAUNCH_NOTE.as_ref(), part).ok();
    let note = note.and_then(|read| {
        let doc = Document::from_bytes(&read.bytes).ok()?;
        LaunchNote::read(&doc).filter(|note| note.run_id == run_id)
    });
    let launch = note.map(|note| LaunchFact {
        launcher_gone: is_gone(&note.launcher, note.created_at_ms),
        instance_id: note.instance_id,
    });
    let observer = match observer_record::read(host, run_dir) {
        Ok(None) => ObserverFact::NotRecorded,
        Ok(Some(record)) if is_gone(&record.process, record.since_ms) => ObserverFact::Gone,
        Ok(Some(_)) | Err(_) => ObserverFact::MayLive,
    };
    Keepers { launch, observer }
}
