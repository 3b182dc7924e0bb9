//! Lock directories: built under a private name, put in place by one rename, taken away by another.
//!
//! Theory of operation. A lease and a slot are both a directory whose *name* is the lock and whose
//! `owner.json` says whose. A directory under the final name without that record blocks for ever
//! (facts CW-60, CW-64), so none may exist at any moment, also not after a power cut:
//!
//! * [`build`] makes the directory under a private name: create, write the record, flush the record,
//!   flush the directory. Only then may it be renamed to its final name;
//! * [`discard`] takes it away: rename to `.<name>.released-<uuid>`, flush the parent, and only then delete. The
//!   flush comes before the deletion, because a power cut may keep the deletion and undo the rename.
//!
//! What a crash leaves: a directory under a private name (it starts with a dot or has `.candidate-`
//! in it), which every reader ignores. Spec: RS-LEASE-*, RS-SLOT-*; facts Z-10.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;

use crate::protocol::{layout, limits};

use super::atomic::{FILE_MODE, Step, WriteError, overrule_umask, write_all};
use super::directory;
use super::host::{FileKind, WriteHost};
use super::retry::RetryPolicy;

/// Deepest nesting that [`remove_tree`] enters: a lock directory holds files only.
const MAX_DEPTH: u32 = 8;

/// Opens a directory of this user, creating it with mode 0700 if it is not there.
///
/// The parent is flushed also when the directory was there: whoever made it may have died before its
/// own flush, and what is acknowledged below must not be lost with it.
pub(super) fn ensure<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
) -> Result<H::Dir, WriteError> {
    let (dir, _) = directory::create(host, parent, name, &RetryPolicy::default())?;
    host.sync_dir(parent)
        .map_err(|e| WriteError::of(host, parent, Step::FlushDirectory, name, e))?;
    Ok(dir)
}

/// Builds a lock directory under a private name: everything in it is flushed when this returns.
///
/// A failure leaves nothing, or what could not be removed either.
pub(super) fn build<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    owner_text: &str,
) -> Result<(), WriteError> {
    // The name holds a token of this caller alone: what stands there is its own earlier attempt.
    remove_tree(host, parent, name)
        .map_err(|e| WriteError::of(host, parent, Step::Remove, name, e))?;
    let made = directory::create_new(host, parent, name, &RetryPolicy::default());
    let filled = made.and_then(|dir| fill(host, &dir, name, owner_text));
    if let Err(mut e) = filled {
        e.cleanup = remove_tree(host, parent, name).err();
        return Err(e);
    }
    Ok(())
}

fn fill<H: WriteHost>(host: &H, dir: &H::Dir, name: &str, text: &str) -> Result<(), WriteError> {
    let label = format!("{name}/{}", layout::OWNER);
    let fail = |step, e| WriteError::of(host, dir, step, &label, e);
    let file =
        host.create(dir, layout::OWNER.as_ref(), FILE_MODE).map_err(|e| fail(Step::Create, e))?;
    overrule_umask(host, &file).map_err(|e| fail(Step::SetMode, e))?;
    write_all(host, &file, text.as_bytes()).map_err(|e| fail(Step::Write, e))?;
    // Both before the rename: the final name must never lead to a directory without its record.
    host.sync(&file).map_err(|e| fail(Step::Flush, e))?;
    host.sync_dir(dir).map_err(|e| fail(Step::FlushDirectory, e))
}

/// Takes a lock directory away. After an error of the rename it is as it was; after an error of the
/// flush its final name is free, but a power cut may bring the whole directory back.
///
/// Returns why something is left under the private name, if so: the lock is gone all the same.
pub(super) fn discard<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
) -> Result<Option<io::Error>, WriteError> {
    let private = format!(".{name}.released-{}", uuid(host));
    let (moved, attempts) = RetryPolicy::default()
        .run(host, || host.rename(parent, name.as_ref(), parent, private.as_ref()));
    moved.map_err(|e| WriteError {
        attempts,
        ..WriteError::of(host, parent, Step::Rename, name, e)
    })?;
    host.sync_dir(parent)
        .map_err(|e| WriteError::of(host, parent, Step::FlushDirectory, name, e))?;
    Ok(remove_tree(host, parent, &private).err())
}

/// Removes a directory and what is in it, following no link. A name that is not there is fine.
pub(super) fn remove_tree<H: WriteHost>(host: &H, parent: &H::Dir, name: &str) -> io::Result<()> {
    remove_below(host, parent, name.as_ref(), MAX_DEPTH)
}

/// The same of a directory that somebody filled as he liked.
pub(super) fn remove_deep_tree<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
) -> io::Result<()> {
    remove_below(host, parent, name.as_ref(), limits::TREE_DEPTH)
}

fn remove_below<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &OsStr,
    depth: u32,
) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let stat = match host.stat_at(parent, name) {
        Ok(stat) => stat,
        Err(e) => return gone(Err(e)),
    };
    if stat.kind != FileKind::Directory {
        return gone(host.unlink(parent, name));
    }
    if depth == 0 {
        return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "it is nested too deeply"));
    }
    let dir = host.open_dir_at(parent, name)?;
    let mut names = Vec::new();
    host.list(&dir, &mut |entry| {
        names.push(entry.name);
        ControlFlow::Continue(())
    })?;
    for inner in names {
        remove_below(host, &dir, &inner, depth - 1)?;
    }
    gone(host.remove_dir(parent, name))
}

/// A random version 4 UUID in lower case.
pub(super) fn uuid<H: WriteHost>(host: &H) -> String {
    let (high, low) = (host.random(), host.random());
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    let high_text = format!("{high:016x}");
    let low_text = format!("{low:016x}");
    let (a, b, c) = (&high_text[..8], &high_text[8..12], &high_text[12..]);
    format!("{a}-{b}-{c}-{}-{}", &low_text[..4], &low_text[4..])
}
