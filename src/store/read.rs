//! One file into one fact: bounded, no link followed, plain files of the expected owner only. And the names
//! in a directory, bounded as well.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::thread::LocalKey;

use crate::protocol::evidence::{FileFact, FileMeta};
use crate::protocol::{DecodeError, Document, Outline};

use super::host::{DirEntry, FileKind, FileRead, Host, Part, ReadError, Stat};

/// Room of more bytes than this is not kept, and a longer file is not read ahead.
const KEPT_BYTES: usize = 64 << 10;

/// Room that is kept from one use to the next: thousands of documents are read in a row. As many as were ever used at
/// a time.
type Kept<T> = LocalKey<Cell<Vec<T>>>;

thread_local! {
    /// To read documents into.
    static BYTES: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
    /// For the places in them.
    static OUTLINES: Cell<Vec<Outline>> = const { Cell::new(Vec::new()) };
}

fn take<T: Default>(kept: &'static Kept<T>) -> T {
    let mut rooms = kept.take();
    let room = rooms.pop().unwrap_or_default();
    kept.set(rooms);
    room
}

fn keep<T>(kept: &'static Kept<T>, room: T) {
    let mut rooms = kept.take();
    rooms.push(room);
    kept.set(rooms);
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
    fact_of(host.read_at(dir, OsStr::new(name), part), owner)
}

fn fact_of<T>(
    read: Result<FileRead, ReadError>,
    owner: ExpectedOwner,
) -> Result<FileRead, FileFact<T>> {
    match read {
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
    decoded(whole(host, dir, name, limit), owner, |_| None, decode)
}

/// Reads a file of at most `limit` bytes, for [`decoded`].
///
/// # Errors
/// [`ReadError`].
pub(super) fn whole<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit: u64,
) -> Result<FileRead, ReadError> {
    host.read_into(dir, OsStr::new(name), Part::All(limit), take(&BYTES))
}

/// The same of a file that is decoded later; `None` when it is long.
///
/// # Errors
/// [`ReadError`], never that it is too large.
pub(super) fn ahead<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    limit: u64,
) -> Result<Option<FileRead>, ReadError> {
    match whole(host, dir, name, limit.min(KEPT_BYTES as u64)) {
        Err(ReadError::TooLarge { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Decodes what was read, where it is not known: what `known` makes of bytes is what decoding would make of them.
pub(super) fn decoded<T>(
    read: Result<FileRead, ReadError>,
    owner: ExpectedOwner,
    known: impl FnOnce(&[u8]) -> Option<T>,
    decode: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
) -> (FileFact<T>, Option<Stat>) {
    let FileRead { stat, bytes, .. } = match fact_of(read, owner) {
        Ok(read) => read,
        Err(fact) => return (fact, None),
    };
    let decoded = known(&bytes).map_or_else(
        || {
            let mut outline = take(&OUTLINES);
            let decoded = Document::outlined(&bytes, &mut outline).and_then(|doc| decode(&doc));
            keep(&OUTLINES, outline);
            decoded
        },
        Ok,
    );
    if bytes.capacity() <= KEPT_BYTES {
        keep(&BYTES, bytes);
    }
    let meta = meta_of(&stat);
    let fact = match decoded {
        Ok(value) => FileFact::Present(Box::new(value), meta),
        Err(e) => FileFact::Damaged(e, meta),
    };
    (fact, Some(stat))
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
