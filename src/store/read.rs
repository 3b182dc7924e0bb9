//! One file into one fact: bounded, no link followed, plain files of the expected owner only. And the names
//! in a directory, bounded as well.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;

use crate::protocol::evidence::{FileFact, FileMeta};
use crate::protocol::{DecodeError, Document, Outline};

use super::host::{DirEntry, FileKind, FileRead, Host, Part, ReadError, Stat};

thread_local! {
    /// Room for the places of documents, kept from one to the next: thousands are read in a row. As many as were
    /// ever read one within the other.
    static ROOMS: Cell<Vec<Outline>> = const { Cell::new(Vec::new()) };
}

/// Who may own the files of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedOwner(pub Option<u32>);

impl ExpectedOwner {
    /// The rule: the owner of what was asked for must be this user. Root may look at another user's
    /// store; then everything in it must be that user's.
    pub(super) fn of(root: &Stat, uid: Option<u32>) -> Self {
        Self(match uid {
            Some(0) => Some(root.uid),
            own => own,
        })
    }

    /// What is wrong with the owner of an open file or directory, if anything.
    pub(super) fn objection(self, stat: &Stat) -> Option<String> {
        match self.0 {
            Some(uid) if uid != stat.uid => {
                Some(format!("owned by another user (uid {})", stat.uid))
            }
            _ => None,
        }
    }
}

pub(super) fn meta_of(stat: &Stat) -> FileMeta {
    FileMeta { mtime_ms: stat.mtime_ms, bytes: stat.bytes, mode: stat.mode }
}

/// Says what stands at a name, for a sentence that starts with the name.
pub(super) fn describe(kind: FileKind) -> String {
    kind.name().to_owned()
}

/// Reads a part of a file. The outer result is the fact when there are no bytes to decode.
/// Spec: RS-READ-01, RS-READ-03, RS-READ-12.
pub(super) fn bytes<H: Host, T>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    part: Part,
    owner: ExpectedOwner,
) -> Result<FileRead, FileFact<T>> {
    match host.read_at(dir, OsStr::new(name), part) {
        Ok(read) => match owner.objection(&read.stat) {
            Some(what) => Err(FileFact::Unsafe(what)),
            None => Ok(read),
        },
        Err(ReadError::Absent) => Err(FileFact::Absent),
        Err(ReadError::NotPlain(kind)) => Err(FileFact::Unsafe(describe(kind))),
        Err(ReadError::TooLarge { bytes, limit_bytes, stat }) => {
            Err(FileFact::Damaged(DecodeError::TooLarge { bytes, limit_bytes }, meta_of(&stat)))
        }
        Err(ReadError::Io(e)) => Err(FileFact::Unreadable(plain(&e))),
    }
}

/// What `pick` makes of the names in a directory, in the system's order, until there are `limit` of them. A
/// listing that breaks off leaves what it had found, and its error. Spec: RS-READ-04.
pub(super) fn listed<H: Host, T>(
    host: &H,
    dir: &H::Dir,
    limit: usize,
    mut pick: impl FnMut(DirEntry) -> Option<T>,
) -> (Vec<T>, io::Result<()>) {
    let mut found = Vec::new();
    let done = host.list(dir, &mut |entry| {
        found.extend(pick(entry));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (found, done)
}

/// An I/O error in words, without the number.
pub(super) fn plain(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Reads one JSON document of at most `limit` bytes and decodes it. Also returns how the open file
/// looked, for telling later whether it changed.
pub(super) fn document<H: Host, T>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit: u64,
    owner: ExpectedOwner,
    decode: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
) -> (FileFact<T>, Option<Stat>) {
    document_or_known(host, dir, name, limit, owner, |_| None, decode)
}

/// As [`document`], where bytes may be known: what `known` makes of them is what decoding would make of them.
pub(super) fn document_or_known<H: Host, T>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit: u64,
    owner: ExpectedOwner,
    known: impl FnOnce(&[u8]) -> Option<T>,
    decode: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
) -> (FileFact<T>, Option<Stat>) {
    let read = match bytes(host, dir, name, Part::All(limit), owner) {
        Ok(read) => read,
        Err(fact) => return (fact, None),
    };
    let meta = meta_of(&read.stat);
    if let Some(value) = known(&read.bytes) {
        return (FileFact::Present(Box::new(value), meta), Some(read.stat));
    }
    let mut rooms = ROOMS.take();
    let mut room = rooms.pop().unwrap_or_default();
    ROOMS.set(rooms);
    let fact = match Document::outlined(&read.bytes, &mut room).and_then(|doc| decode(&doc)) {
        Ok(value) => FileFact::Present(Box::new(value), meta),
        Err(e) => FileFact::Damaged(e, meta),
    };
    let mut rooms = ROOMS.take();
    rooms.push(room);
    ROOMS.set(rooms);
    (fact, Some(read.stat))
}

/// As [`document`], for a name that no listing told the kind of: it is looked at before it is opened,
/// because opening a pipe wakes a waiting writer and opening a device may do anything.
pub(super) fn document_unlisted<H: Host, T>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit: u64,
    owner: ExpectedOwner,
    decode: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
) -> (FileFact<T>, Option<Stat>) {
    match host.stat_at(dir, OsStr::new(name)) {
        Ok(stat) if stat.kind != FileKind::Regular => (FileFact::Unsafe(describe(stat.kind)), None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (FileFact::Absent, None),
        // What else went wrong is told by the attempt.
        _ => document(host, dir, name, limit, owner, decode),
    }
}
