//! What launcher and runner say to each other: one small file for each sentence.
//!
//! Theory of operation. A message is worth something only while both processes live, so it is replaced
//! as a whole and not flushed: after a power cut nobody is left to read it, and what has to be kept
//! (status, proof, candidate, lease) was flushed before the message that speaks of it. A flush for each
//! of seven messages would make the slowest part of a start-up out of it.
//!
//! Ordered steps of [`say`]: those of [`atomic::replace`] at the level process-safe, with mode 0600.
//!
//! A crash leaves the old message or the new one, and litter of a known form. A power cut may leave the
//! name with any content, which a reader reports and judges nothing by (RS-START-16).
//!
//! Not promised: that a message was read. That the other side goes on is the only sign.
//! Spec: RS-START-28, RS-START-29; facts U-4, W-9, Z-24, Z-40, Z-41.

use std::io;

use crate::protocol::evidence::StderrTail;
use crate::protocol::{layout, limits};

use super::atomic::{self, Durability, Options, Step, WriteError};
use super::host::{Host, Part, ReadError, WriteHost};
use super::read::ExpectedOwner;
use super::snapshot;

/// What is at the name of a message.
#[derive(Debug)]
pub enum Look {
    /// Nothing yet.
    Absent,
    /// These bytes.
    Said(Vec<u8>),
    /// Something that is no message of the other side: a link, a pipe, another user's, or too large.
    Unsafe(String),
    /// The system did not answer. The next look may.
    Busy(io::Error),
}

/// Looks at a message once. Nothing is followed, nothing waits, and at most
/// [`limits::STARTUP_MAX_BYTES`] are read.
/// Spec: RS-START-29.
pub fn look<H: Host>(host: &H, dir: &H::Dir, name: &str) -> Look {
    match host.read_at(dir, name.as_ref(), Part::All(limits::STARTUP_MAX_BYTES)) {
        Ok(read) => match owner(host, dir).and_then(|owner| owner.objection(&read.stat)) {
            Some(what) => Look::Unsafe(what),
            None => Look::Said(read.bytes),
        },
        Err(ReadError::Absent) => Look::Absent,
        Err(ReadError::NotPlain(kind)) => Look::Unsafe(kind.name().to_owned()),
        Err(ReadError::TooLarge { bytes, limit_bytes, .. }) => {
            Look::Unsafe(format!("{bytes} bytes long, and a message has at most {limit_bytes}"))
        }
        Err(ReadError::Io(e)) => Look::Busy(e),
    }
}

fn owner<H: Host>(host: &H, dir: &H::Dir) -> Option<ExpectedOwner> {
    let stat = host.stat_dir(dir).ok()?;
    Some(ExpectedOwner::of(&stat, host.system().uid))
}

/// Writes a message. See the module's ordered steps.
/// Spec: RS-START-28.
///
/// # Errors
/// [`WriteError`]; the other side cannot see anything of it then.
pub fn say<H: WriteHost>(host: &H, dir: &H::Dir, name: &str, text: &str) -> Result<(), WriteError> {
    let options = Options::new(Durability::ProcessSafe);
    atomic::replace(host, dir, name, text.as_bytes(), &options).map(drop)
}

/// Removes messages that nobody needs any more, in this order. One that is not there is fine.
///
/// Returns what could not be removed: a message that stays means nothing once work has begun.
pub fn clear<H: WriteHost>(host: &H, dir: &H::Dir, names: &[&str]) -> Vec<WriteError> {
    let remove = |name: &&str| match host.unlink(dir, (*name).as_ref()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Some(WriteError::of(host, dir, Step::Remove, name, e))
        }
        _ => None,
    };
    names.iter().filter_map(remove).collect()
}

/// The end of the runner's log of standard error, which may say why it ended. Facts Q-30.
pub fn last_words<H: Host>(host: &H, run_dir: &H::Dir) -> Option<StderrTail> {
    let owner = owner(host, run_dir)?;
    // A pipe in its place is not opened.
    let stat = host.stat_at(run_dir, layout::RUNNER_STDERR_LOG.as_ref()).ok()?;
    (stat.kind == super::host::FileKind::Regular).then_some(())?;
    snapshot::stderr_tail(host, run_dir, owner)
}
