//! Changing some members of a file that others write as well.
//!
//! Ordered steps of [`patch`]:
//! 1. read the file: bounded, no link followed;
//! 2. refuse what cannot be kept: not an object, duplicate or undecodable keys;
//! 3. ask the caller for its patch, with the decoded document at hand;
//! 4. make the new text: the patched members, every other byte as it was;
//! 5. put the new text into a temp file, and flush it (see [`atomic`]);
//! 6. look at the file again: if inode, size or time differ from what was read, start over; where
//!    files have no inode, read it again and compare the bytes. After the flush, which takes longer than all the
//!    rest: a look before it would miss whoever writes meanwhile;
//! 7. rename the temp file onto it.
//!
//! No lock of the protocol protects a status (facts Z-20), so a foreign writer can still come between
//! step 6 and the rename. The window is two system calls wide instead of a whole read-modify-write, and what
//! is lost in it is the foreign writer's update of the same instant, never a torn file. [`patch_locked`]
//! closes the window among our own processes.
//!
//! A crash leaves what [`atomic::replace`] leaves. Spec: RS-RMW-01 to RS-RMW-05.

use std::fmt;

use crate::protocol::{DecodeError, Document, Outline, Raw};

use super::advisory::{Guard, LockError, Locks};
use super::atomic::{self, Durability, Options, Target, WriteError, Written};
use super::host::{Host, Part, ReadError, Stat, WriteHost};

/// How often a patch is tried when others keep writing.
pub const MAX_ATTEMPTS: u32 = 8;

/// What a caller wants to do with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Replace or add these members: key and JSON text.
    Patch(Vec<(&'static str, String)>),
    /// Leave the file as it is.
    Keep,
    /// Refuse, with the reason.
    Refuse(String),
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patched {
    /// The file was replaced.
    Written {
        /// How.
        written: Written,
        /// Its new text.
        text: String,
        /// How many times the file was read.
        attempts: u32,
    },
    /// Nothing had to change.
    Kept,
}

/// Why a patch was not made. The file is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum PatchError {
    /// The file is not there.
    Absent(String),
    /// The file cannot be read.
    Unreadable(String, String),
    /// The file is not a document that may be rewritten.
    Damaged(String, DecodeError),
    /// The caller refused.
    Refused(String, String),
    /// Others wrote it each time it was read.
    Contended(String, u32),
    /// Another of our processes held the lock all the time.
    Locked(LockError),
    /// The new file could not be written.
    Write(WriteError),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(name) => write!(f, "{name} is not there"),
            Self::Unreadable(name, why) => write!(f, "{name} cannot be read: {why}"),
            Self::Damaged(name, _) => write!(f, "{name} cannot be rewritten"),
            Self::Refused(name, why) => write!(f, "{name} is left as it is: {why}"),
            Self::Contended(name, n) => {
                write!(f, "{name} was written by others each of the {n} times it was read")
            }
            Self::Locked(e) => write!(f, "{e}"),
            Self::Write(_) => f.write_str("the new text could not be written"),
        }
    }
}

impl std::error::Error for PatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Damaged(_, e) => Some(e),
            Self::Write(e) => Some(e),
            _ => None,
        }
    }
}

/// Patches one document. `decide` may be called several times, each time with what is there now.
///
/// # Errors
/// [`PatchError`]; the file is then as it was, except after a failed flush of the directory.
pub fn patch<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit_bytes: u64,
    options: &Options,
    decide: impl Fn(&Document<'_>) -> Decision,
) -> Result<Patched, PatchError> {
    patch_at(host, dir, name, limit_bytes, options, None, |doc| Ok(decide(doc)))
}

/// The level of a replacement, by what one member of the new text says.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByMember {
    /// The member.
    pub(super) key: &'static str,
    /// What follows from its value.
    pub(super) level: fn(Option<Raw<'_>>) -> Durability,
}

/// [`patch`] at the level that follows from the new text: what a file says may decide what must survive,
/// and only here it is known what it will say. With it the level of `options` does not count.
///
/// `decide` may fail, when it has to look at another file first and that one cannot be read.
pub(super) fn patch_at<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit_bytes: u64,
    options: &Options,
    level: Option<ByMember>,
    decide: impl Fn(&Document<'_>) -> Result<Decision, PatchError>,
) -> Result<Patched, PatchError> {
    for attempt in 1..=MAX_ATTEMPTS {
        let (bytes, stat) = read(host, dir, name, limit_bytes)?;
        let damaged = |e| PatchError::Damaged(name.to_owned(), e);
        // Who asks for a level looks into the whole text, and then one pass over it is less than many. For
        // others the first level of the text is enough.
        let mut room = Outline::default();
        let doc = match level {
            Some(_) => Document::outlined(&bytes, &mut room),
            None => Document::from_bytes(&bytes),
        }
        .map_err(damaged)?;
        let members = match decide(&doc)? {
            Decision::Keep => return Ok(Patched::Kept),
            Decision::Refuse(why) => return Err(PatchError::Refused(name.to_owned(), why)),
            Decision::Patch(members) => members,
        };
        let members: Vec<_> = members.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let text = doc.patched(&members).map_err(damaged)?;
        if text.as_bytes() == bytes {
            return Ok(Patched::Kept);
        }
        let mut options = options.target(Target::Known(stat.mode));
        if let Some(ByMember { key, level }) = level {
            let new = members.iter().find(|(patched, _)| *patched == key);
            let new = new.map(|(_, text)| Raw::parse(text)).transpose().map_err(damaged)?;
            options.durability = level(new.or_else(|| doc.get(key)));
        }
        let is_still = || is_unchanged(host, dir, name, &bytes, &stat);
        let written = atomic::replace_if(host, dir, name, text.as_bytes(), &options, is_still)
            .map_err(PatchError::Write)?;
        if let Some(written) = written {
            return Ok(Patched::Written { written, text, attempts: attempt });
        }
    }
    Err(PatchError::Contended(name.to_owned(), MAX_ATTEMPTS))
}

/// Patches one document as [`patch`] does, while no other process of ours patches under the same key.
///
/// Where there is no lock to be had, it goes on without: the second look of [`patch`] is what helps
/// against everybody. The caller holds no lock of the store.
/// Spec: RS-LOCK-01, RS-LOCK-03.
///
/// # Errors
/// [`PatchError`], with [`PatchError::Locked`] when the lock was held by another all the time.
pub fn patch_locked<H: WriteHost>(
    locks: &Locks<'_, H>,
    key: &str,
    (dir, name): (&H::Dir, &str),
    limit_bytes: u64,
    options: &Options,
    decide: impl Fn(&Document<'_>) -> Decision,
) -> Result<Patched, PatchError> {
    // Before the file is read: a lock that is taken after it protects nothing.
    let _held = hold(locks, key)?;
    patch(locks.host(), dir, name, limit_bytes, options, decide)
}

/// Step 5.
fn is_unchanged<H: Host>(host: &H, dir: &H::Dir, name: &str, bytes: &[u8], stat: &Stat) -> bool {
    if stat.is_numbered() {
        return host.stat_at(dir, name.as_ref()).is_ok_and(|now| now.is_same_as(stat));
    }
    // Another writer's text of the same length, within one tick of the clock, has the same look.
    let again = host.read_at(dir, name.as_ref(), Part::All(stat.bytes));
    again.is_ok_and(|now| now.stat.is_same_as(stat) && now.bytes == bytes)
}

/// The lock of `key`; `None` where there is no lock to be had.
pub(super) fn hold<'a, H: WriteHost>(
    locks: &Locks<'a, H>,
    key: &str,
) -> Result<Option<Guard<'a, H>>, PatchError> {
    match locks.acquire(key) {
        Ok(guard) => Ok(Some(guard)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(e @ LockError::Contended { .. }) => Err(PatchError::Locked(e)),
    }
}

fn read<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit_bytes: u64,
) -> Result<(Vec<u8>, Stat), PatchError> {
    let unreadable = |why: String| PatchError::Unreadable(name.to_owned(), why);
    match host.read_at(dir, name.as_ref(), Part::All(limit_bytes)) {
        Ok(read) => Ok((read.bytes, read.stat)),
        Err(ReadError::Absent) => Err(PatchError::Absent(name.to_owned())),
        Err(ReadError::NotPlain(kind)) => Err(unreadable(format!("it is {}", kind.name()))),
        Err(ReadError::TooLarge { bytes, limit_bytes, .. }) => {
            let e = DecodeError::TooLarge { bytes, limit_bytes };
            Err(PatchError::Damaged(name.to_owned(), e))
        }
        Err(ReadError::Io(e)) => Err(unreadable(e.to_string())),
    }
}
