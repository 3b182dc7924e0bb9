//! One change of a repair: how it stands, how it is made, how it is taken back.
//!
//! Theory of operation. A [`Change`] names everything that it needs: the path below the root, what must be
//! there before, and what is there after. From these and the disk alone [`stand`] tells whether it is still
//! to be made, was made, or somebody else has been there. So a repair that was killed at any step is gone
//! through again from its first change, and each of them is made once.
//!
//! No only copy of what somebody wrote is deleted. What a change replaces stands in its record, what it removes is renamed into the
//! directory of the repair, and a lease is set aside to the tombstone that every contender aims at.
//!
//! Ordered steps of [`make`], for each kind:
//! * a file is replaced at the level durable, because the next change relies on it;
//! * a line is appended with one call and not flushed: events are advice;
//! * a name is moved to a free name, the new directory is flushed before the old one: a power cut may leave
//!   both names, never none;
//! * a slot and a lease are set aside by the operations of the store, under its rules: a slot into the
//!   directory of the repair, with all that is in it, after its verdict was asked once more under its claim.
//!
//! Paths come out of records on disk, so each component is checked, and each directory is opened by its name
//! without following a link. Spec: RS-REC-20 to RS-REC-24.

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::protocol::error::with_causes;
use crate::protocol::lease::LeaseOwner;
use crate::protocol::slot::SlotOwner;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::temp_name::TempName;
use crate::protocol::{Document, layout, limits};
use crate::store::atomic::{self, Durability, Options, Target};
use crate::store::host::{FileKind, Host, Part, WriteHost};
use crate::store::retry::RetryPolicy;
use crate::store::slot::{self, SlotError};
use crate::store::{directory, journal, lease};

use super::place::{at, components, read, stat};

/// A file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Its content.
    pub text: String,
    /// Its permission bits.
    pub mode: u32,
}

/// What is moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moved {
    /// What is there already: device and inode, and the size in bytes.
    There(u64, u64, u64),
    /// What an earlier change of the same action made, with this content.
    Made(String),
}

/// One change. All paths are below the root of the repair, with `/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "kind")]
pub enum Change {
    /// A file is made or replaced.
    Write {
        /// The file.
        path: String,
        /// What was there; `None` when nothing was.
        before: Option<Before>,
        /// Its new content.
        after: String,
    },
    /// Something is appended to a log.
    Append {
        /// The log.
        path: String,
        /// How long it was, in bytes; `None` when it was not there.
        before_bytes: Option<u64>,
        /// What is appended.
        added: String,
    },
    /// A name is moved.
    Move {
        /// The old name.
        path: String,
        /// The new one, which is free. Empty in a plan for what is set aside: the name is given when it is.
        to: String,
        /// What is moved.
        what: Moved,
    },
    /// A directory is made.
    MakeDir {
        /// The directory.
        path: String,
    },
    /// An empty directory is removed.
    RemoveDir {
        /// The directory.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A slot is set aside, whole.
    FreeSlot {
        /// The slot.
        path: String,
        /// Its new name, which is free. Empty in a plan.
        to: String,
        /// Its owner record.
        owner: String,
        /// The claim in it, of a process that is gone, if there is one.
        claim: Option<String>,
    },
    /// A lease is set aside.
    FreeLease {
        /// The lease.
        path: String,
        /// Its tombstone.
        to: String,
        /// Its owner record.
        owner: String,
    },
}

/// How a change stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It is still to be made.
    Before,
    /// It was made.
    After,
    /// What is there is neither: somebody else has been there.
    Other(String),
}

/// Why a change was not made, or not taken back.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// A path of a record leads elsewhere.
    BadPath(String),
    /// Somebody else has been there.
    Changed {
        /// The path.
        path: String,
        /// What is different.
        why: String,
    },
    /// The system refused; the text says what.
    System {
        /// The path.
        path: String,
        /// The error, with its causes.
        why: String,
        /// Whether there was no room for now.
        is_capacity: bool,
    },
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPath(path) => write!(f, "{path:?} is no path below the store"),
            Self::Changed { path, why } => write!(f, "{path} has changed: {why}"),
            Self::System { path, why, .. } => write!(f, "{path}: {why}"),
        }
    }
}

impl std::error::Error for ChangeError {}

impl ChangeError {
    /// Whether there was no room for now, so that nothing else can be done either.
    pub(super) fn is_capacity(&self) -> bool {
        matches!(self, Self::System { is_capacity: true, .. })
    }

    pub(super) fn system(path: &str, e: &io::Error) -> Self {
        let (path, why) = (path.to_owned(), e.to_string());
        Self::System { path, why, is_capacity: atomic::is_capacity(e) }
    }

    pub(super) fn write(path: &str, e: &atomic::WriteError) -> Self {
        let (path, why) = (path.to_owned(), with_causes(e));
        Self::System { path, why, is_capacity: e.is_capacity() }
    }

    pub(super) fn changed(path: &str, why: impl Into<String>) -> Self {
        Self::Changed { path: path.to_owned(), why: why.into() }
    }
}

impl Change {
    /// Everything that it writes to, renames or removes, below the root.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Move { path, to, .. }
            | Self::FreeSlot { path, to, .. }
            | Self::FreeLease { path, to, .. } => vec![path, to],
            _ => vec![self.path()],
        }
    }

    /// Whether it makes or removes a directory on the way to something else.
    pub(super) fn is_of_the_way(&self) -> bool {
        matches!(self, Self::MakeDir { .. } | Self::RemoveDir { .. })
    }

    /// Whether it was made, and one of these later changes has taken away what it made.
    pub(super) fn is_moved_on(&self, later: &[(Self, Stand)]) -> bool {
        let Self::Write { path, .. } = self else { return false };
        later.iter().any(|(other, stand)| {
            *stand == Stand::After && matches!(other, Self::Move { path: from, .. } if from == path)
        })
    }

    /// Whether it ends a run with a text that is not marked as a repair.
    fn passes_for_an_end(&self) -> bool {
        let Self::Write { path, before: Some(before), after } = self else { return false };
        let read = |text| Document::parse(text).map(|doc| StatusView::read(&doc)).ok();
        let state = |status: &StatusView| status.known_state().is_some_and(RunState::is_active);
        let is_status = path.rsplit('/').next() == Some(layout::STATUS);
        is_status
            && read(&before.text).is_some_and(|before| state(&before))
            && read(after).is_some_and(|after| !state(&after) && !after.is_repaired())
    }

    /// The path that it begins at.
    pub fn path(&self) -> &str {
        match self {
            Self::Write { path, .. }
            | Self::Append { path, .. }
            | Self::Move { path, .. }
            | Self::MakeDir { path }
            | Self::RemoveDir { path, .. }
            | Self::FreeSlot { path, .. }
            | Self::FreeLease { path, .. } => path,
        }
    }
}

const WHOLE: Part = Part::All(limits::RESULT_MAX_BYTES);

/// How a change stands now. Reads only.
///
/// # Errors
/// [`ChangeError`] when it cannot be told.
/// Spec: RS-REC-20.
pub fn stand<H: Host>(host: &H, root: &H::Dir, change: &Change) -> Result<Stand, ChangeError> {
    let other = |why: &str| Ok(Stand::Other(why.to_owned()));
    match change {
        Change::Write { path, before, after } => match (read(host, root, path, WHOLE)?, before) {
            (None, None) => Ok(Stand::Before),
            (None, Some(_)) => other("it is gone"),
            (Some((now, _)), _) if now == after.as_bytes() => Ok(Stand::After),
            (Some((now, _)), Some(before)) if now == before.text.as_bytes() => Ok(Stand::Before),
            (Some(_), None) => other("it was not there"),
            (Some(_), Some(_)) => other("its content is another"),
        },
        Change::Append { path, before_bytes, added } => {
            let (start_bytes, limit_bytes) = (before_bytes.unwrap_or(0), added.len() as u64);
            let part = Part::After { start_bytes, limit_bytes };
            match (read(host, root, path, part)?, before_bytes) {
                (None, None) => Ok(Stand::Before),
                (None, Some(_)) => other("it is gone"),
                (Some((there, _)), _) if there == added.as_bytes() => Ok(Stand::After),
                // Made and still empty counts as not there.
                (Some((_, stat)), _) if stat.bytes == start_bytes => Ok(Stand::Before),
                // What a power cut left of the line: it ends the log, cut or filled with zeros.
                (Some((there, stat)), _)
                    if stat.bytes == start_bytes + there.len() as u64
                        && (added.as_bytes().starts_with(&there)
                            || there.iter().all(|byte| *byte == 0)) =>
                {
                    Ok(Stand::After)
                }
                (Some(_), _) => other("something else was appended"),
            }
        }
        Change::Move { path, to, what } => {
            // In a plan the new name is not known yet.
            let to = if to.is_empty() { None } else { moved(host, root, to, what)? };
            match (moved(host, root, path, what)?, to) {
                (Some(true), None) => Ok(Stand::Before),
                // A power cut kept both names.
                (Some(true), Some(true)) => Ok(Stand::Before),
                // Whatever stands at the old name now was put there later.
                (None | Some(false), Some(true)) => Ok(Stand::After),
                // It is made by an earlier change.
                (None, None) if matches!(what, Moved::Made(_)) => Ok(Stand::Before),
                (None, None) => other("it is gone"),
                (Some(false), None) => other("it is another file"),
                (_, Some(_)) => other("its new name is taken"),
            }
        }
        Change::MakeDir { path } | Change::RemoveDir { path, .. } => {
            let is_there = match stat(host, root, path)? {
                Some(stat) if stat.kind != FileKind::Directory => {
                    return other(&format!("it is {}", stat.kind.name()));
                }
                stat => stat.is_some(),
            };
            let made = is_there == matches!(change, Change::MakeDir { .. });
            Ok(if made { Stand::After } else { Stand::Before })
        }
        // In a plan the new name is not known yet.
        Change::FreeSlot { path, to, owner, .. } => {
            owned(host, root, path, owner, Some(to).filter(|to| !to.is_empty()))
        }
        Change::FreeLease { path, to, owner } => owned(host, root, path, owner, Some(to)),
    }
}

/// Whether a name leads to what is moved; `None` when it leads nowhere.
fn moved<H: Host>(
    host: &H,
    root: &H::Dir,
    path: &str,
    what: &Moved,
) -> Result<Option<bool>, ChangeError> {
    Ok(match what {
        Moved::There(device, inode, bytes) => stat(host, root, path)?.map(|stat| {
            let is_same = stat.kind == FileKind::Directory || stat.bytes == *bytes;
            stat.id == (*device, *inode) && is_same
        }),
        Moved::Made(text) => {
            read(host, root, path, WHOLE)?.map(|(there, _)| there == text.as_bytes())
        }
    })
}

/// Removes the unfinished replacements that whoever was to end a run left when it died. Nothing is lost with them:
/// their text stands in the change. Left behind they would pass for an end that the run itself was about to tell,
/// and keep it from being closed. One that is marked as a repair passes for nothing and stays, because to remove
/// it is a change of the run, which then has not been quiet. The caller holds the recovery lock, so nobody is
/// making them.
///
/// # Errors
/// [`ChangeError`].
/// Spec: RS-REC-26.
pub(super) fn drop_unfinished<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    changes: &[Change],
) -> Result<(), ChangeError> {
    for change in changes.iter().filter(|change| change.passes_for_an_end()) {
        let Change::Write { path, after, .. } = change else { continue };
        let dropped = at(host, root, path, |dir, name| {
            let mut temps = Vec::new();
            host.list(dir, &mut |entry| {
                let temp = entry.name.to_str().and_then(TempName::parse);
                temps.extend(temp.filter(|temp| temp.target.is(name)).map(|_| entry.name));
                ControlFlow::Continue(())
            })?;
            for temp in temps {
                let read = host.read_at(dir, &temp, WHOLE);
                if read.is_ok_and(|read| read.bytes == after.as_bytes()) {
                    host.unlink(dir, &temp)?;
                }
            }
            Ok(())
        })?;
        dropped.transpose().map_err(|e: io::Error| ChangeError::system(path, &e))?;
    }
    Ok(())
}

/// Every change with how it stands, before all that come ahead of it were made: a name that one of them moves
/// away is as good as free.
///
/// # Errors
/// [`ChangeError`] for the first that cannot be told.
pub(super) fn stands<H: Host>(
    host: &H,
    root: &H::Dir,
    changes: &[Change],
) -> Result<Vec<(Change, Stand)>, ChangeError> {
    let mut stands: Vec<(Change, Stand)> = Vec::with_capacity(changes.len());
    for change in changes {
        let mut now = stand(host, root, change)?;
        if let (Stand::Other(_), Change::Move { path, to, what }) = (&now, change) {
            let makes_room = |(ahead, stand): &(Change, Stand)| {
                *stand == Stand::Before
                    && matches!(ahead, Change::Move { path: from, .. } if from == to)
            };
            if stands.iter().any(makes_room) && moved(host, root, path, what)? == Some(true) {
                now = Stand::Before;
            }
        }
        stands.push((change.clone(), now));
    }
    Ok(stands)
}

/// How a lock directory stands that is to be freed.
fn owned<H: Host>(
    host: &H,
    root: &H::Dir,
    path: &str,
    owner: &str,
    to: Option<&String>,
) -> Result<Stand, ChangeError> {
    let record = format!("{path}/{}", layout::OWNER);
    match read(host, root, &record, Part::All(limits::SIDECAR_MAX_BYTES))? {
        Some((now, _)) if now == owner.as_bytes() => Ok(Stand::Before),
        Some(_) => Ok(Stand::Other("it has another owner".to_owned())),
        None if stat(host, root, path)?.is_some() => {
            Ok(Stand::Other("it has no owner record".to_owned()))
        }
        None => match to.map(|to| stat(host, root, to)).transpose()? {
            Some(None) => Ok(Stand::Other("it is gone".to_owned())),
            _ => Ok(Stand::After),
        },
    }
}

/// Whether the rules free a slot, asked under its claim.
pub(super) type MayFree<'a> = dyn Fn(&SlotOwner) -> bool + 'a;

/// Makes a change that stands before; a slot only if `may_free` still says so. See the module's text.
///
/// # Errors
/// [`ChangeError`].
/// Spec: RS-REC-21, RS-REC-22.
pub(super) fn make<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    change: &Change,
    may_free: &MayFree<'_>,
) -> Result<(), ChangeError> {
    let path = change.path();
    let gone = || ChangeError::changed(path, "its directory is gone");
    match change {
        Change::Write { before, after, .. } => {
            let target = if before.is_some() { Target::Unknown } else { Target::New };
            let options = Options::new(Durability::Durable).target(target);
            at(host, root, path, |dir, name| {
                atomic::replace(host, dir, name, after.as_bytes(), &options)
            })?
            .ok_or_else(gone)?
            .map_err(|e| ChangeError::write(path, &e))?;
            Ok(())
        }
        Change::Append { added, .. } => at(host, root, path, |dir, name| {
            let file = journal::open(host, dir, name)?;
            let written = host.write(&file, added.as_bytes())?;
            let whole = written == added.len();
            if whole { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
        })?
        .ok_or_else(gone)?
        .map_err(|e| ChangeError::system(path, &e)),
        Change::Move { to, .. } => rename(host, root, path, to),
        Change::MakeDir { .. } => at(host, root, path, |dir, name| {
            directory::create_durable(host, dir, name, &RetryPolicy::default()).map(drop)
        })?
        .ok_or_else(gone)?
        .map_err(|e| ChangeError::write(path, &e)),
        Change::RemoveDir { .. } => {
            let removed = at(host, root, path, |dir, name| {
                if directory::remove_if_empty(host, dir, name)? {
                    host.sync_dir(dir)
                } else {
                    Ok(())
                }
            })?;
            removed.transpose().map_err(|e| ChangeError::system(path, &e)).map(drop)
        }
        Change::FreeSlot { to, owner, .. } => {
            let owner = slot_owner(path, owner)?;
            at(host, root, to, |dir, name| {
                slot::set_aside(host, root, &owner, (dir, name), may_free)
            })?
            .ok_or_else(gone)?
            .map_err(|e| match e {
                // It may have been moved, and not be flushed.
                SlotError::Write(e) => ChangeError::write(path, &e),
                e => ChangeError::changed(path, with_causes(&e)),
            })
        }
        Change::FreeLease { owner, .. } => {
            let (_, id) = components(path)?;
            let token = lease_owner(path, owner)?.token;
            match lease::free_of_dead(host, root, id, &token) {
                Ok(true) => Ok(()),
                Ok(false) => Err(ChangeError::changed(path, "somebody holds it")),
                Err(e) => Err(ChangeError::write(path, &e)),
            }
        }
    }
}

fn slot_owner(path: &str, text: &str) -> Result<SlotOwner, ChangeError> {
    let read = Document::parse(text).and_then(|doc| SlotOwner::read(&doc));
    read.map_err(|e| ChangeError::changed(path, e.to_string()))
}

fn lease_owner(path: &str, text: &str) -> Result<LeaseOwner, ChangeError> {
    let read = Document::parse(text).and_then(|doc| LeaseOwner::read(&doc));
    read.map_err(|e| ChangeError::changed(path, e.to_string()))
}

fn rename<H: WriteHost>(host: &H, root: &H::Dir, path: &str, to: &str) -> Result<(), ChangeError> {
    let gone = || ChangeError::changed(path, "its directory is gone");
    let moved = at(host, root, path, |from_dir, from| {
        at(host, root, to, |to_dir, to| {
            match host.rename_new(from_dir, from.as_ref(), to_dir, to.as_ref()) {
                // A power cut kept both names of one file.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    let old = host.stat_at(from_dir, from.as_ref())?;
                    let new = host.stat_at(to_dir, to.as_ref())?;
                    if old.kind == FileKind::Directory || !old.is_numbered() || old.id != new.id {
                        return Err(e);
                    }
                    host.unlink(from_dir, from.as_ref())?;
                }
                other => other?,
            }
            // See the module's text.
            host.sync_dir(to_dir)?;
            host.sync_dir(from_dir)
        })
    })?;
    let moved = moved.ok_or_else(gone)??;
    moved.ok_or_else(gone)?.map_err(|e| ChangeError::system(path, &e))
}

/// Takes a change back that stands after. What others have done since stays.
///
/// # Errors
/// [`ChangeError`].
/// Spec: RS-REC-24.
pub(super) fn take_back<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    change: &Change,
) -> Result<(), ChangeError> {
    let path = change.path();
    let gone = || ChangeError::changed(path, "its directory is gone");
    match change {
        Change::Write { before: Some(before), .. } => {
            restore(host, root, path, before.text.as_bytes(), before.mode)
        }
        Change::Write { before: None, .. } => remove(host, root, path),
        Change::Append { before_bytes, added, .. } => {
            let whole = Part::All(limits::EVENTS_MAX_BYTES * 2);
            let (mut log, stat) = read(host, root, path, whole)?.ok_or_else(gone)?;
            let start = usize::try_from(before_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
            // Only our line: what others have appended since stays.
            log.drain(start.min(log.len())..start.saturating_add(added.len()).min(log.len()));
            if before_bytes.is_none() && log.is_empty() {
                return remove(host, root, path);
            }
            restore(host, root, path, &log, stat.mode)
        }
        Change::Move { to, .. } => rename(host, root, to, path),
        Change::MakeDir { path } => {
            make(host, root, &Change::RemoveDir { path: path.clone(), mode: 0 }, &|_| false)
        }
        Change::RemoveDir { path, mode } => {
            make(host, root, &Change::MakeDir { path: path.clone() }, &|_| false)?;
            at(host, root, path, |dir, name| host.set_dir_mode(dir, name.as_ref(), mode & 0o777))?
                .ok_or_else(gone)?
                .map_err(|e| ChangeError::system(path, &e))
        }
        Change::FreeSlot { to, claim, .. } => {
            // Before it has its name again, under which others may claim it.
            at(host, root, to, |dir, name| {
                let slot = host.open_dir_at(dir, name.as_ref())?;
                slot::restore_claim(host, &slot, claim.as_deref())
            })?
            .ok_or_else(gone)?
            .map_err(|e| ChangeError::system(to, &e))?;
            rename(host, root, to, path)
        }
        Change::FreeLease { to, .. } => rename(host, root, to, path),
    }
}

fn restore<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    path: &str,
    bytes: &[u8],
    mode: u32,
) -> Result<(), ChangeError> {
    let options = Options::new(Durability::Durable).target(Target::Restored(mode));
    at(host, root, path, |dir, name| atomic::replace(host, dir, name, bytes, &options))?
        .ok_or_else(|| ChangeError::changed(path, "its directory is gone"))?
        .map(drop)
        .map_err(|e| ChangeError::write(path, &e))
}

fn remove<H: WriteHost>(host: &H, root: &H::Dir, path: &str) -> Result<(), ChangeError> {
    let removed = at(host, root, path, |dir, name| {
        host.unlink(dir, name.as_ref())?;
        host.sync_dir(dir)
    })?;
    removed.transpose().map_err(|e| ChangeError::system(path, &e)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reads_back_as_it_was_written() {
        let before = Some(Before { text: "{}".to_owned(), mode: 0o644 });
        let changes = vec![
            Change::Write { path: "a".to_owned(), before, after: "{\"x\":1}".to_owned() },
            Change::Append { path: "l".to_owned(), before_bytes: None, added: "x\n".to_owned() },
            Change::Move {
                path: "m".to_owned(),
                to: "n".to_owned(),
                what: Moved::There(1, u64::MAX, 3),
            },
            Change::MakeDir { path: "d".to_owned() },
            Change::RemoveDir { path: "r".to_owned(), mode: 0o755 },
            Change::FreeSlot {
                path: "s".to_owned(),
                to: String::new(),
                owner: "{}".to_owned(),
                claim: None,
            },
        ];
        let text = serde_json::to_string(&changes).expect("plain members");
        assert!(text.contains(r#""beforeBytes":null"#), "{text}");
        assert_eq!(serde_json::from_str::<Vec<Change>>(&text).expect("reads"), changes);
    }
}
