//! Which process a record is about, as this host knows it while it is certain.
//!
//! A number alone names nobody for long, so whoever records a process asks for its identity while the
//! number cannot have changed hands: [`own`] at any time, [`child`] from the spawn until the first wait.
//! Reads only; a crash leaves nothing. Spec: RS-RUN-05, RS-LEASE-14.

use crate::protocol::process::ProcessRecord;

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

fn of<H: Host>(host: &H, pid: i64) -> ProcessRecord {
    ProcessRecord::of(pid, &host.process(pid), host.system())
}
