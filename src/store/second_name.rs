//! The second name of an old file, for as long as its replacement may still be lost.
//!
//! Theory of operation. On a file system without a journal a rename onto an old file is two writes that the
//! disk may take in any order: the directory, which now leads to the new file, and the end of the old file,
//! which nothing names any more. After a power cut between them the directory still leads to the old file,
//! which has ended, and the repair at the next start takes the name away: neither text is found there.
//! A file with another name does not end. So a durable replacement (`atomic::replace`)
//! * gives the old file a second name ([`give`]) *before* the rename: after it the old file has no name left
//!   to be linked from, and may have ended already;
//! * removes it ([`take_back`]) *after* the flush of the directory: before, the old file would end while the
//!   new entry is still on its way, which is what the second name is there to prevent.
//!
//! The name is the temp name for `NAME.old`. So every reader takes it for litter of a known form, with
//! the process and the time in it; and because no file of the protocol is called `NAME.old`, nobody takes the
//! *old* text behind it for an unfinished newer one of `NAME`, which the time in it would make it. Its chance
//! is drawn anew for each replacement: nobody can plant it, and a name that is taken is left alone.
//!
//! What a crash leaves: one such name, before the rename beside the temp file. What an error leaves: none,
//! except that a failed flush of the directory leaves it, because what was acknowledged last may hang on it;
//! and that a removal may fail, which [`super::atomic::Written`] tells.
//!
//! All of it is best effort. Where no second name can be made (forbidden, too many of them, no room) the
//! replacement goes on without, and no failure here is one of the replacement.
//!
//! Not promised: anything at the level ordered, whose rename nobody flushes; for a rename between two
//! directories, which does not pass here; where the family of the file system is hidden, as below an overlay.
//! Spec: RS-ATOM-14.

use std::io;

use crate::protocol::temp_name;

use super::atomic::fresh_temp_name;
use super::host::WriteHost;

/// Gives the old file a second name where that may keep it, and says which.
pub(super) fn give<H: WriteHost>(host: &H, dir: &H::Dir, name: &str) -> Option<String> {
    if !host.may_split_rename(dir) {
        return None;
    }
    let second = fresh_temp_name(host, &temp_name::old_of(name));
    host.add_name(dir, name.as_ref(), second.as_ref()).ok().map(|()| second)
}

/// Removes a second name.
///
/// # Errors
/// As the system says; a name that is not there is fine.
pub(super) fn take_back<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    second: Option<&str>,
) -> io::Result<()> {
    let Some(second) = second else { return Ok(()) };
    match host.unlink(dir, second.as_ref()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
