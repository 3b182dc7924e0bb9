//! Which process a record is about, as this host knows it while it is certain, and what became of it.
//!
//! A number alone names nobody for long, so whoever records a process asks for its identity while the
//! number cannot have changed hands: [`own`] at any time, [`child`] from the spawn until the first wait.
//! Whoever reads such a record asks with [`judge`], which looks at a number only where that means anything, and
//! whoever is to act on the process asks with [`hold`].
//! Reads only; a crash leaves nothing. Spec: RS-RUN-05, RS-LEASE-14, RS-LIVE-12.

use std::io;

use crate::protocol::process::{
    self, Life, Liveness, Presence, ProcessRecord, ProcessSeen, RecordedProcess,
};

use super::host::{Host, ProcessHost, WriteHost};
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

/// What is at the number of a record, held.
#[derive(Debug)]
pub enum Held<T> {
    /// The recorded process, demonstrably: the handle is of it and never comes to mean another.
    Live(T),
    /// It is demonstrably gone.
    Gone(Life),
    /// It cannot be told whether it is there.
    Undetermined(Life),
}

/// Holds the process of a record. It is compared with the record *through the handle*: the other order could
/// hold a successor of the same number. Spec: RS-OBS-11, RS-OBS-12.
///
/// # Errors
/// As the system says; `Unsupported` where there are no handles.
pub fn hold<H: ProcessHost>(host: &H, record: &RecordedProcess<'_>) -> io::Result<Held<H::Handle>> {
    if let Some(life) = process::judge_unprobed(record, host.system()) {
        return Ok(Held::Undetermined(life));
    }
    let handle = record.pid.map(|pid| host.hold(pid)).transpose()?.flatten();
    let gone = ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
    let seen = handle.as_ref().map_or(gone, |handle| host.look_at(handle));
    let life = process::judge(record, &seen, host.system());
    Ok(match handle {
        Some(handle) if life.word == Liveness::Live => Held::Live(handle),
        _ if life.word.is_gone() => Held::Gone(life),
        _ => Held::Undetermined(life),
    })
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
