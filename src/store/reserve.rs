//! A little room in each run directory, for its end on a full disk.
//!
//! A run whose disk fills up can wait with most of what it writes, but not with its terminal record:
//! the process that knows the outcome is about to end. So a run directory gets a file that holds
//! [`RESERVE_BYTES`](limits::RESERVE_BYTES) of blocks and nothing else, and whoever finds no space for
//! a terminal record gives them back first.
//!
//! Ordered steps of [`create`]:
//! 1. look: a whole reserve is left alone, a short one is removed, anything else is refused;
//! 2. create the file: exclusively, following no link, mode 0600 whatever the umask;
//! 3. write it full of chance: a hole or a run of zeros has no blocks on many file systems, and what
//!    can be compressed has fewer;
//! 4. flush it: until then the system has promised the blocks, but may not have set them aside.
//!
//! Ordered steps of [`release`]:
//! 1. remove the file;
//! 2. flush the directory, best effort: a file system with a journal hands out freed blocks only once
//!    the removal is in it.
//!
//! A crash of either leaves no reserve, a whole one, or a short one, which the next [`create`] replaces.
//! The file is never a reason to fail: without it a terminal record waits for room as all others do.
//! Not promised: that no other program takes the room between its release and the retry, nor that a
//! quota or a file system with copy-on-write gives back as much as was taken.
//! Readers see a name that says nothing; whoever ends a run removes it.
//! Spec: RS-DEFER-07 to RS-DEFER-09; facts W-20, Z-8.

use std::io;

use crate::protocol::{layout, limits};

use super::atomic::{FILE_MODE, Step, WriteError, overrule_umask, write_all};
use super::host::{FileKind, WriteHost};

/// What became of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// It was made.
    Made,
    /// A whole one was there.
    Kept,
}

/// Makes the reserve of a run directory. See the module's ordered steps.
///
/// # Errors
/// [`WriteError`]; no reserve is left then, and the run goes on without.
pub fn create<H: WriteHost>(host: &H, run_dir: &H::Dir) -> Result<Reserved, WriteError> {
    let failed = |step, e| WriteError::of(host, run_dir, step, layout::RESERVE, e);
    match host.stat_at(run_dir, layout::RESERVE.as_ref()) {
        Ok(stat) if stat.kind != FileKind::Regular => {
            let why = format!("{} stands in its place; remove it by hand", stat.kind.name());
            return Err(failed(Step::Look, io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        Ok(stat) if stat.bytes >= limits::RESERVE_BYTES as u64 => return Ok(Reserved::Kept),
        Ok(_) => {
            host.unlink(run_dir, layout::RESERVE.as_ref()).map_err(|e| failed(Step::Remove, e))?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(Step::Look, e)),
    }
    let file = host
        .create(run_dir, layout::RESERVE.as_ref(), FILE_MODE)
        .map_err(|e| failed(Step::Create, e))?;
    let filled = overrule_umask(host, &file)
        .map_err(|e| (Step::SetMode, e))
        .and_then(|()| write_all(host, &file, &chance(host)).map_err(|e| (Step::Write, e)))
        // Flushed after it is written: before that no block need have been set aside.
        .and_then(|()| host.sync(&file).map_err(|e| (Step::Flush, e)));
    drop(file);
    filled.map(|()| Reserved::Made).map_err(|(step, e)| {
        let cleanup = host.unlink(run_dir, layout::RESERVE.as_ref()).err();
        WriteError { cleanup, ..failed(step, e) }
    })
}

/// Gives the room back, and says whether there was any. Also the way to remove a reserve at the end of
/// a run.
///
/// # Errors
/// [`WriteError`]; the reserve is still there then.
pub fn release<H: WriteHost>(host: &H, run_dir: &H::Dir) -> Result<bool, WriteError> {
    match host.unlink(run_dir, layout::RESERVE.as_ref()) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(WriteError::of(host, run_dir, Step::Remove, layout::RESERVE, e)),
    }
    // The room is given back in any case, perhaps some seconds later.
    let _ = host.sync_dir(run_dir);
    Ok(true)
}

/// Makes a released reserve again if there is plenty of room; says whether there is one now.
pub fn renew<H: WriteHost>(host: &H, run_dir: &H::Dir) -> bool {
    // Where the room is not known, the file that is written tells.
    let plenty =
        host.space(run_dir).is_none_or(|space| space.free_bytes >= limits::RESERVE_AGAIN_BYTES);
    plenty && create(host, run_dir).is_ok()
}

/// Bytes that cannot be compressed: a xorshift sequence from a start by chance.
fn chance<H: WriteHost>(host: &H) -> Vec<u8> {
    // Zero is the one state that the sequence never leaves.
    let mut state = host.random() | 1;
    let mut bytes = Vec::with_capacity(limits::RESERVE_BYTES + 8);
    while bytes.len() < limits::RESERVE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(limits::RESERVE_BYTES);
    bytes
}
