//! Session leases, the writing half: acquire, say what the writer does, inspect, release.
//!
//! Theory of operation. The owner of a lease is the process that renamed its prepared directory onto
//! the lease's path; the rename decides, whatever was read before. A stale lease is set aside first,
//! to a tombstone named after its owner's token, so that all who saw the same owner aim at one name.
//!
//! Ordered steps of [`acquire`]:
//! 1. resolve the session file to its real path; its hash names the lease;
//! 2. create `session-leases` (0700) and flush its parent;
//! 3. build the candidate: a private directory with the whole owner record, all of it flushed;
//! 4. look at the lease. Owned: ask whether owner and writer are gone, *then* read the owner again.
//!    Only if it is still the same one, rename it to its tombstone. The second reading comes after
//!    the question because an owner that ends in between may have released the lease, and somebody
//!    else may hold it now; once the owner is known to be gone nobody releases it any more;
//! 5. rename the candidate onto the lease. If something has come in between, back to 4, four times;
//! 6. flush `session-leases`: from here on the lease is acknowledged.
//!
//! Ordered steps of [`release`]:
//! 1. read the owner; another token, or none, is not ours;
//! 2. rename the lease to a private name, which frees it in one step;
//! 3. flush `session-leases` *before* anything is deleted: else a power cut may bring back the name
//!    of a directory that has lost its record, which nobody may ever reclaim (facts CW-64);
//! 4. delete.
//!
//! A crash leaves at most a directory under a private name, and otherwise no lease or a whole one. An
//! owned lease whose process died is reclaimed by the next contender.
//!
//! Not promised: anything against a contender on another host or in another pid namespace, which
//! never reclaims; nor against implementations that take an empty directory for free.
//! Spec: RS-LEASE-09 to RS-LEASE-17; facts §7.1.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::lease::{self, Acquisition, LeaseOwner, LeaseState, WriterState};
use crate::protocol::open::Word as _;
use crate::protocol::segment::sha256_hex;
use crate::protocol::{DecodeError, Document, layout, limits, written};

use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::host::{FileKind, Host, Part, ReadError, WriteHost};
use super::identity;
use super::lock_dir;
use super::locks;
use super::retry::{Attempts, RetryPolicy};

/// Times that the rename is tried when others come in between. Facts K-6.
const MAX_ATTEMPTS: u32 = 4;

/// A session file by its real path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalId {
    /// The name of the lease: 64 lower-case hexadecimal digits.
    pub id: String,
    /// The path that was hashed.
    pub path: PathBuf,
}

/// The lease name of a session file: the hash of its real path. Facts K-1.
///
/// # Errors
/// As the system says; the file must exist.
pub fn canonical_id<H: Host>(host: &H, session_file: &Path) -> io::Result<CanonicalId> {
    let path = host.real_path(&host.absolute(session_file))?;
    // What is no text is hashed with U+FFFD in place of each bad part, as the other implementations
    // see such a path.
    let mut text = path.to_string_lossy().into_owned();
    if cfg!(windows) {
        text = text.to_lowercase();
    }
    Ok(CanonicalId { id: sha256_hex(text.as_bytes()), path })
}

/// What a contender says about itself.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// The session file.
    pub session_file: &'a Path,
    /// The run that is to hold the lease.
    pub run_id: &'a str,
    /// The run whose session is continued.
    pub source_run_id: &'a str,
    /// The session that asks for it.
    pub parent_session_id: Option<&'a str>,
    /// The token of the revival handshake; never used before.
    pub token: &'a str,
}

/// A lease that this process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease is held until it is released by its token"]
pub struct HeldLease {
    /// The name of the lease.
    pub id: String,
    /// The owner record as written.
    pub owner: LeaseOwner,
    /// Tombstones that this acquisition made.
    pub set_aside: Vec<String>,
}

/// Why a lease was not acquired. Nothing of the contender is left then.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// The session file cannot be resolved.
    SessionFile(PathBuf, io::Error),
    /// Somebody holds it.
    Held {
        /// Who.
        owner: Box<LeaseOwner>,
        /// Why it is not set aside.
        why: &'static str,
    },
    /// Its directory has no owner that can be read; a person has to remove it.
    Blocked {
        /// The name of the lease.
        id: String,
        /// What is wrong.
        why: String,
    },
    /// Something could not be written.
    Write(WriteError),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionFile(path, _) => {
                write!(f, "the session file {} cannot be resolved", path.display())
            }
            Self::Held { owner, why } => write!(
                f,
                "session {} is held by run {} (source run {}, pid {} on {}): {why}",
                owner.canonical_session_file,
                owner.run_id,
                owner.source_run_id,
                owner.pid,
                owner.hostname
            ),
            Self::Blocked { id, why } => {
                let dir = layout::LEASES_DIR;
                write!(f, "the lease {dir}/{id} blocks its session: {why}; remove it by hand")
            }
            Self::Write(_) => f.write_str("the lease could not be written"),
        }
    }
}

impl std::error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::SessionFile(_, e) => Some(e),
            Self::Write(e) => Some(e),
            _ => None,
        }
    }
}

impl From<WriteError> for AcquireError {
    fn from(e: WriteError) -> Self {
        Self::Write(e)
    }
}

/// Acquires the lease of a session file. `temp` is the temp root. See the module's ordered steps.
///
/// # Errors
/// [`AcquireError`].
pub fn acquire<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    request: &LeaseRequest<'_>,
) -> Result<HeldLease, AcquireError> {
    let CanonicalId { id, path } = canonical_id(host, request.session_file)
        .map_err(|e| AcquireError::SessionFile(request.session_file.to_owned(), e))?;
    let owner = new_owner(host, request, &path);
    let root = lock_dir::ensure(host, temp, layout::LEASES_DIR)?;
    let candidate = lease::candidate_name(&id, request.token);
    lock_dir::build(host, &root, &candidate, &written::lease_owner(&owner))?;
    let mut set_aside = Vec::new();
    let taken = contend(host, &root, &id, &candidate, &mut set_aside);
    if let Err(e) = taken {
        // Its failure would hide the reason, and what is left is litter that every reader ignores.
        let _ = lock_dir::remove_tree(host, &root, &candidate);
        return Err(e);
    }
    if let Err(e) = host.sync_dir(&root) {
        // Not acknowledged, so it must not stand in anybody's way either.
        let e = WriteError::of(host, &root, Step::FlushDirectory, &id, e).below(layout::LEASES_DIR);
        let _ = lock_dir::discard(host, &root, &id);
        return Err(e.into());
    }
    Ok(HeldLease { id, owner, set_aside })
}

/// Steps 4 and 5.
fn contend<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    id: &str,
    candidate: &str,
    set_aside: &mut Vec<String>,
) -> Result<(), AcquireError> {
    let mut refusal = None;
    for _ in 0..MAX_ATTEMPTS {
        // A lease that merely could not be looked at is no reason to tell anybody to remove it.
        let state = look_or_say(host, root, id).map_err(|(_, e)| {
            WriteError::of(host, root, Step::Look, id, e).below(layout::LEASES_DIR)
        })?;
        let staleness = match &state {
            LeaseState::Owned(owner) => {
                // Its answer holds only for the owner that was asked about: see step 4.
                let staleness = locks::lease_staleness(host, owner);
                if look(host, root, id) != state {
                    continue;
                }
                Some(staleness)
            }
            _ => None,
        };
        // A tombstone that is taken shows when the lease is to be renamed to it.
        match lease::acquisition(id, &state, staleness, false) {
            Acquisition::Take => {
                let (moved, attempts) = RetryPolicy::default()
                    .run(host, || host.rename(root, candidate.as_ref(), root, id.as_ref()));
                match moved {
                    Ok(()) => return Ok(()),
                    Err(e) if is_taken(&e) => {
                        refusal = Some(AcquireError::Blocked {
                            id: id.to_owned(),
                            why: "its directory has no owner record".to_owned(),
                        });
                    }
                    Err(e) => return Err(not_renamed(host, root, id, e, attempts)),
                }
            }
            Acquisition::Reclaim { tombstone } => {
                let (moved, attempts) =
                    RetryPolicy::default().run(host, || lock_rename(host, root, id, &tombstone));
                match moved {
                    Ok(()) => set_aside.push(tombstone),
                    Err(e) if is_taken(&e) || e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(not_renamed(host, root, id, e, attempts)),
                }
                refusal = held(state, "its tombstone is taken");
            }
            Acquisition::Refuse { why } => {
                return Err(held(state.clone(), why).unwrap_or_else(|| {
                    let why = match state {
                        LeaseState::Unreadable(error) => format!("{why} ({error})"),
                        _ => why.to_owned(),
                    };
                    AcquireError::Blocked { id: id.to_owned(), why }
                }));
            }
        }
    }
    Err(refusal.unwrap_or_else(|| AcquireError::Blocked {
        id: id.to_owned(),
        why: "its owner changed each time it was read".to_owned(),
    }))
}

fn not_renamed<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    id: &str,
    e: io::Error,
    attempts: Attempts,
) -> AcquireError {
    let e = WriteError::of(host, root, Step::Rename, id, e).below(layout::LEASES_DIR);
    WriteError { attempts, ..e }.into()
}

fn held(state: LeaseState, why: &'static str) -> Option<AcquireError> {
    match state {
        LeaseState::Owned(owner) => Some(AcquireError::Held { owner, why }),
        _ => None,
    }
}

/// Renames to a name that must be free. Where the file system cannot refuse a taken name by itself, a
/// tombstone that has its record still refuses, because it is not empty.
fn lock_rename<H: WriteHost>(host: &H, root: &H::Dir, from: &str, to: &str) -> io::Result<()> {
    match host.rename_new(root, from.as_ref(), root, to.as_ref()) {
        // On Windows access denied says that the directory is held, and to refuse is no problem.
        Err(e) if cfg!(unix) && e.kind() == io::ErrorKind::PermissionDenied => {
            host.rename(root, from.as_ref(), root, to.as_ref())
        }
        other => other,
    }
}

/// Whether a rename failed because something stands at the new name.
fn is_taken(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
    )
}

fn new_owner<H: WriteHost>(host: &H, request: &LeaseRequest<'_>, path: &Path) -> LeaseOwner {
    let system = host.system();
    let identity = identity::own(host).identity;
    let now_ms = host.now_ms();
    LeaseOwner {
        token: request.token.to_owned(),
        canonical_session_file: path.to_string_lossy().into_owned(),
        run_id: request.run_id.to_owned(),
        source_run_id: request.source_run_id.to_owned(),
        parent_session_id: request.parent_session_id.map(str::to_owned),
        pid: system.own_pid,
        hostname: system.host.clone(),
        process_start_identity: identity.start_identity,
        writer_state: WriterState::None,
        writer_pid: None,
        writer_process_start_identity: None,
        acquired_at: iso_8601(now_ms),
        acquired_at_ms: now_ms,
        updated_at_ms: now_ms,
        boot_id: identity.boot_id,
        pidfd_inode: identity.pidfd_inode,
        pid_namespace: system.pid_namespace.clone(),
    }
}

/// What stands at a lease now. It says nothing about whether the owner still lives. Facts K-9.
pub fn inspect<H: Host>(host: &H, temp: &H::Dir, id: &str) -> LeaseState {
    inspect_or_say(host, temp, id).unwrap_or_else(|(state, _)| state)
}

/// As [`inspect`], with the error of the system beside the state when one was the reason for it.
pub(super) fn inspect_or_say<H: Host>(
    host: &H,
    temp: &H::Dir,
    id: &str,
) -> Result<LeaseState, (LeaseState, io::Error)> {
    match host.open_dir_at(temp, layout::LEASES_DIR.as_ref()) {
        Ok(root) => look_or_say(host, &root, id),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(LeaseState::Free),
        // Nothing is known, and an unknown lease is not a free one.
        Err(e) => Err((LeaseState::NoOwner, e)),
    }
}

fn look<H: Host>(host: &H, root: &H::Dir, id: &str) -> LeaseState {
    look_or_say(host, root, id).unwrap_or_else(|(state, _)| state)
}

/// As [`look`], with the error of the system beside the state when one was the reason for it.
fn look_or_say<H: Host>(
    host: &H,
    root: &H::Dir,
    id: &str,
) -> Result<LeaseState, (LeaseState, io::Error)> {
    let dir = match host.open_dir_at(root, id.as_ref()) {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(LeaseState::Free),
        Err(e) => {
            let directory =
                host.stat_at(root, id.as_ref()).is_ok_and(|stat| stat.kind == FileKind::Directory);
            let member = if directory { "the directory" } else { "the lease" };
            let error = DecodeError::member(member, "a directory that can be opened");
            return Err((LeaseState::Unreadable(error), e));
        }
    };
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let owner = match host.read_at(&dir, layout::OWNER.as_ref(), part) {
        Ok(read) => Document::from_bytes(&read.bytes).and_then(|doc| LeaseOwner::read(&doc)),
        Err(ReadError::Absent) => return Ok(LeaseState::of(true, None)),
        Err(ReadError::TooLarge { bytes, limit_bytes, .. }) => {
            Err(DecodeError::TooLarge { bytes, limit_bytes })
        }
        Err(other) => {
            let owner = Err(DecodeError::member(layout::OWNER, "a plain file that can be read"));
            let state = LeaseState::of(true, Some(owner));
            return if let ReadError::Io(e) = other { Err((state, e)) } else { Ok(state) };
        }
    };
    Ok(LeaseState::of(true, Some(owner)))
}

/// What the owner says about its separate writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writer {
    /// There is none.
    None,
    /// One is about to be started. Until its pid is recorded nobody may reclaim the lease.
    Spawning,
    /// It runs.
    Running {
        /// Its pid.
        pid: i64,
        /// When it started, as `scheme:value`.
        start_identity: Option<String>,
    },
}

/// Why a held lease could not be changed. It is as it was, except after a failed flush.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeldError {
    /// The lease is not there, or belongs to another token.
    NotOurs,
    /// Its record cannot be read.
    Unreadable(String),
    /// Something could not be written.
    Write(WriteError),
}

impl fmt::Display for HeldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("the lease is not held under this token"),
            Self::Unreadable(why) => write!(f, "the owner record of the lease {why}"),
            Self::Write(_) => f.write_str("the lease could not be changed"),
        }
    }
}

impl std::error::Error for HeldError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Write(e) = self { Some(e) } else { None }
    }
}

/// Records what the writer does. Facts K-7.
///
/// Durable, because `spawning` has to be on the disk before the writer exists: a power cut must not
/// leave a writer under a lease that says there is none.
///
/// # Errors
/// [`HeldError`].
pub fn update_writer<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    lease: &mut HeldLease,
    writer: &Writer,
) -> Result<(), HeldError> {
    let open = || {
        let root = host.open_dir_at(temp, layout::LEASES_DIR.as_ref())?;
        host.open_dir_at(&root, lease.id.as_ref())
    };
    // The handle keeps meaning this directory: were it set aside now, the write would go with it.
    let dir = open().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => HeldError::NotOurs,
        _ => HeldError::Write(
            WriteError::of(host, temp, Step::Look, &lease.id, e).below(layout::LEASES_DIR),
        ),
    })?;
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let read = host.read_at(&dir, layout::OWNER.as_ref(), part).map_err(|e| match e {
        ReadError::Absent => HeldError::NotOurs,
        ReadError::Io(e) => {
            HeldError::Write(WriteError::of(host, &dir, Step::Look, layout::OWNER, e))
        }
        other => HeldError::Unreadable(format!("cannot be read: {other}")),
    })?;
    let unreadable = |e: DecodeError| HeldError::Unreadable(format!("is damaged: {e}"));
    let doc = Document::from_bytes(&read.bytes).map_err(unreadable)?;
    let owner = LeaseOwner::read(&doc).map_err(unreadable)?;
    if owner.token != lease.owner.token {
        return Err(HeldError::NotOurs);
    }
    let now_ms = host.now_ms();
    let state = match writer {
        Writer::None => WriterState::None,
        Writer::Spawning => WriterState::Spawning,
        Writer::Running { .. } => WriterState::Running,
    };
    let mut set = vec![("writerState", written::string(state.as_str()))];
    if let Writer::Running { pid, start_identity } = writer {
        set.push(("writerPid", pid.to_string()));
        if let Some(start) = start_identity {
            set.push(("writerProcessStartIdentity", written::string(start)));
        }
    }
    set.push(("updatedAtMs", now_ms.to_string()));
    // A writer's members are forbidden unless it runs, and an old pid must not stay beside a new one.
    let text = written::rebuilt(&doc, &["writerPid", "writerProcessStartIdentity"], &set);
    let options = Options::new(Durability::Durable).target(Target::Known(read.stat.mode));
    atomic::replace(host, &dir, layout::OWNER, text.as_bytes(), &options)
        .map_err(HeldError::Write)?;
    let doc = Document::parse(&text).map_err(unreadable)?;
    lease.owner = LeaseOwner::read(&doc).map_err(unreadable)?;
    Ok(())
}

/// What became of a lease that was to be released.
#[derive(Debug)]
pub enum Released {
    /// It is free, and stays free after a power cut.
    Free {
        /// Why something is left under a private name, if so.
        litter: Option<io::Error>,
    },
    /// It was not held under this token; nothing was changed.
    NotOurs,
}

/// Releases a lease by its token. See the module's ordered steps. Facts K-8, Z-10.
///
/// # Errors
/// [`WriteError`]; after [`Step::FlushDirectory`] the lease is free but may come back with a power
/// cut, so its release must not be acknowledged.
pub fn release<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    id: &str,
    token: &str,
) -> Result<Released, WriteError> {
    let root = match host.open_dir_at(temp, layout::LEASES_DIR.as_ref()) {
        Ok(root) => root,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Released::NotOurs),
        Err(e) => return Err(WriteError::of(host, temp, Step::Look, layout::LEASES_DIR, e)),
    };
    match look_or_say(host, &root, id) {
        Ok(LeaseState::Owned(owner)) if owner.token == token => {}
        Ok(_) => return Ok(Released::NotOurs),
        // It may be ours all the same.
        Err((_, e)) => {
            return Err(WriteError::of(host, &root, Step::Look, id, e).below(layout::LEASES_DIR));
        }
    }
    let litter = lock_dir::discard(host, &root, id).map_err(|e| e.below(layout::LEASES_DIR))?;
    Ok(Released::Free { litter })
}

/// Frees a lease whose owner has ended without doing so, on behalf of that owner. `true` when the lease of
/// this token is gone, and stays gone after a power cut; `false` when somebody else holds the session, or
/// when owner or writer may still live.
///
/// The lease is set aside to the tombstone of its owner, as a contender does it: a contender that saw the
/// same owner finds that name taken, and neither takes the other's lease away.
/// Spec: RS-OBS-40.
///
/// # Errors
/// [`WriteError`]; it is not known then to be gone.
pub(crate) fn free_of_dead<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    id: &str,
    token: &str,
) -> Result<bool, WriteError> {
    let below = |e: WriteError| e.below(layout::LEASES_DIR);
    let root = match host.open_dir_at(temp, layout::LEASES_DIR.as_ref()) {
        Ok(root) => root,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(WriteError::of(host, temp, Step::Look, layout::LEASES_DIR, e)),
    };
    let see = || {
        look_or_say(host, &root, id)
            .map_err(|(_, e)| below(WriteError::of(host, &root, Step::Look, id, e)))
    };
    let state = see()?;
    if let LeaseState::Owned(owner) = &state
        && owner.token == token
    {
        let staleness = locks::lease_staleness(host, owner);
        let Acquisition::Reclaim { tombstone } =
            lease::acquisition(id, &state, Some(staleness), false)
        else {
            return Ok(false);
        };
        let (moved, attempts) =
            RetryPolicy::default().run(host, || lock_rename(host, &root, id, &tombstone));
        match moved {
            Ok(()) => {}
            // A contender was faster.
            Err(e) if is_taken(&e) || e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                let e = below(WriteError::of(host, &root, Step::Rename, id, e));
                return Err(WriteError { attempts, ..e });
            }
        }
    }
    if !matches!(see()?, LeaseState::Free) {
        return Ok(false);
    }
    // Also where it was free already: whoever freed it may have died before its own flush.
    host.sync_dir(&root)
        .map_err(|e| below(WriteError::of(host, &root, Step::FlushDirectory, id, e)))?;
    Ok(true)
}

/// An instant as ISO 8601 text in UTC with milliseconds.
fn iso_8601(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, in_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    // Days since 0000-03-01, so that the leap day is the last of its year.
    let since = days + 719_468;
    let era = since.div_euclid(146_097);
    let day_of_era = since.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_as_text_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_100_000, "2023-11-14T22:15:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso_8601(ms), text, "{ms}");
        }
    }
}
