//! The first files of a run, read before they are looked at.
//!
//! Theory of operation. A look at a run is half system calls and half decoding, and each half pushes the code and the
//! guesses of the other one out of the processor. Whoever looks at many runs therefore reads some of them ahead
//! ([`Store::read_ahead`]) and then looks at them one after the other: status and proof, which nearly every run has.
//! The order is that of any look (see [`snapshot`](super::snapshot)): the listing, the status, and only then the
//! proof; what a look reads besides comes later still. So what is read ahead is a first pass that was begun early,
//! and whether the status changed meanwhile is asked at its end as ever.
//!
//! Only what is plain is read ahead. Whatever is the matter with a directory or a file, it is left to the look,
//! which meets it again and says what it is. What is held is bounded: by the number of runs that a caller reads
//! ahead, and by the length of a file.

use std::ffi::OsStr;

use crate::protocol::layout::{self, RunEntry};
use crate::protocol::limits;

use super::host::{FileKind, FileRead, Host, ReadError, Stat};
use super::listing::{Listing, list_run};
use super::open::{RunsRoot, Store};
use super::read;

/// An open run directory, and what was read of it ahead.
#[derive(Debug)]
pub struct Ahead<D> {
    pub(super) dir: D,
    pub(super) seen: Seen,
    pub(super) early: Option<Early>,
}

/// What evidence keeps of the directory itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) mtime_ms: Option<i64>,
    /// 0 where it was not opened.
    pub(super) mode: u32,
}

/// The beginning of a first pass.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) listing: Listing,
    pub(super) status: Option<FileRead>,
    pub(super) proof: Option<FileRead>,
}

impl Early {
    /// Lists a directory and reads nothing yet.
    pub(super) fn of<H: Host>(host: &H, dir: &H::Dir) -> Self {
        Self { listing: list_run(host, dir), status: None, proof: None }
    }

    fn read<H: Host>(mut self, host: &H, dir: &H::Dir) -> Result<Self, ReadError> {
        let file = |entry: &RunEntry, name: &str, limit| {
            let is_plain = self.listing.may_open(entry);
            if is_plain { read::ahead(host, dir, name, limit) } else { Ok(None) }
        };
        // RS-READ-14: what is read after the status is at least as new as the status. The other way round a run could have a
        // status that speaks of a proof, and no proof.
        self.status = file(&RunEntry::Status, layout::STATUS, limits::STATUS_MAX_BYTES)?;
        if self.status.is_some() {
            self.proof = file(&RunEntry::Proof, layout::PROOF, limits::SIDECAR_MAX_BYTES)?;
        }
        Ok(self)
    }
}

/// Why a name of a runs root was not opened as a run directory.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) seen: Seen,
    pub(super) why: Why,
}

#[derive(Debug)]
pub(super) enum Why {
    /// The name is not there (any more).
    Gone,
    /// It is no directory, or somebody else's.
    Unsafe(String),
    /// The system's reason.
    Unreadable(String),
}

impl<H: Host> Store<'_, H> {
    /// Opens a run directory; nothing is read of it yet.
    pub(super) fn enter(
        &self,
        runs: &RunsRoot<H>,
        name: &OsStr,
        kind: Option<FileKind>,
    ) -> Result<Ahead<H::Dir>, Refused> {
        let refused = |seen, why| Err(Refused { seen, why });
        if let Some(kind) = kind.filter(|k| *k != FileKind::Directory) {
            return refused(Seen::default(), Why::Unsafe(read::describe(kind)));
        }
        let host = self.host();
        let opened = host.open_dir_at(&runs.dir, name);
        let stat = match &opened {
            Ok(dir) => host.stat_dir(dir).ok(),
            Err(_) => match host.stat_at(&runs.dir, name) {
                Ok(stat) if stat.kind != FileKind::Directory => {
                    return refused(Seen::default(), Why::Unsafe(read::describe(stat.kind)));
                }
                Ok(stat) => Some(Stat { mode: 0, ..stat }),
                Err(_) => return refused(Seen::default(), Why::Gone),
            },
        };
        let mtime_ms = stat.map(|stat| stat.mtime_ms);
        let seen = Seen { mtime_ms, mode: stat.map_or(0, |stat| stat.mode) };
        if let Some(what) = stat.and_then(|stat| runs.owner.objection(&stat)) {
            return refused(seen, Why::Unsafe(what));
        }
        match opened {
            Ok(dir) => Ok(Ahead { dir, seen, early: None }),
            Err(error) => refused(seen, Why::Unreadable(read::plain(&error))),
        }
    }

    /// Reads ahead what nearly every look at a run needs; `None` when the directory is not a plain one or anything
    /// could not be read, such as when too much is open: it is to be looked at by itself then, with what was read
    /// ahead of others closed.
    pub fn read_ahead(
        &self,
        runs: &RunsRoot<H>,
        name: &OsStr,
        kind: Option<FileKind>,
    ) -> Option<Ahead<H::Dir>> {
        let mut ahead = self.enter(runs, name, kind).ok()?;
        let early = Early::of(self.host(), &ahead.dir);
        ahead.early = Some(early.read(self.host(), &ahead.dir).ok()?);
        Some(ahead)
    }
}
