//! Which process a record is about, as this host knows it while it is certain, and what became of it.
//!
//! A number alone names nobody for long, so whoever records a process asks for its identity while the
//! number cannot have changed hands: [`own`] at any time, [`child`] from the spawn until the first wait.
//! Whoever reads such a record asks with [`judge`], which looks at a number only where that means anything.
//! Reads only; a crash leaves nothing. Spec: RS-RUN-05, RS-LEASE-14, RS-LIVE-12.

use crate::protocol::process::{self, Life, ProcessRecord, ProcessSeen, RecordedProcess};

use super::host::{Host, WriteHost};
use super::lock_dir;

/// This process.
pub fn own<H: Host>(host: &H) -> ProcessRecord {
    of(host, host.system().own_pid)
}

/// A child of this process that nobody has waited for. One that has ended already keeps its number
/// until then, but shows no identity any more: then the record holds what is known.
pub fn child<H: Host>(host: &H, pid: u32) -> ProcessRecord {
    of(host, i64::from(pid))
}

/// A name for one incarnation of a process that is to be made: a random UUID, never used before.
pub fn instance_id<H: WriteHost>(host: &H) -> String {
    lock_dir::uuid(host)
}

/// What became of the process of a record.
/// Spec: RS-LIVE-12.
pub fn judge<H: Host>(host: &H, record: &RecordedProcess<'_>) -> Life {
    process::judge(record, &look(host, record), host.system())
}

/// What the system shows of the process of a record: nothing where its number is not one of this system.
pub(super) fn look<H: Host>(host: &H, record: &RecordedProcess<'_>) -> ProcessSeen {
    match (process::judge_unprobed(record, host.system()), record.pid) {
        (None, Some(pid)) => host.process(pid),
        _ => ProcessSeen::default(),
    }
}

fn of<H: Host>(host: &H, pid: i64) -> ProcessRecord {
    ProcessRecord::of(pid, &host.process(pid), host.system())
}
