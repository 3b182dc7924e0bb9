//! Capacity slots, the writing half: acquire, bind, release, roll back, transfer, reconcile.
//!
//! Theory of operation. The owner of a slot is the run that its record names; whoever changes the
//! slot does so under its claim (`capacity.claim`) and compares token, run and generation
//! first. The directory is the reservation, so it appears finished and disappears at once:
//!
//! Ordered steps of [`acquire`]:
//! 1. create the root and the pool (0700), each flushed into its parent;
//! 2. count what is occupied; at the limit, refuse;
//! 3. for the first free number below the limit: build the directory with its record under a private
//!    name, all of it flushed;
//! 4. rename it to `slot-<n>`, which must be free: an empty directory there is somebody's reservation
//!    as well. If it is taken, go on with the next number;
//! 5. flush the pool: from here on the slot is acknowledged.
//!
//! Ordered steps of [`release`]: under the claim, compare the owner; rename the slot to a private
//! name; flush the pool; delete. The flush comes before the deletion, or a power cut may bring back
//! the name of a directory without its record, which is occupied for ever (facts CW-60).
//!
//! A crash leaves at most a directory under a private name and a claim of a dead process; the slot is
//! there with its whole record, or it is not there.
//!
//! Not promised: a slot on a file system that cannot refuse to rename onto a taken name; step 4 fails
//! there. Nor that the facts behind a verdict still hold: [`reconcile`] asks again under the claim.
//! Spec: RS-SLOT-09 to RS-SLOT-18; facts K-20 to K-32.

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use crate::protocol::open::Word as _;
use crate::protocol::segment::sha256_hex;
use crate::protocol::slot::{SlotKind, SlotOwner, SlotVerdict};
use crate::protocol::state::RunState;
use crate::protocol::{Document, Open, layout, limits, written};

use super::atomic::{self, Durability, Options, Step, WriteError};
use super::host::{FileKind, Host, Part, ReadError, WriteHost};
use super::lock_dir;
use super::retry::RetryPolicy;
use super::sidecar::{self, Decision, PatchError};
use super::{claim, directory};

pub(crate) use super::claim::restore as restore_claim;

/// What a run says about itself.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest<'a> {
    /// The session whose capacity is used.
    pub session_id: &'a str,
    /// The run.
    pub run_id: &'a str,
    /// Its run directory.
    pub async_dir: &'a str,
    /// What it is.
    pub kind: SlotKind,
    /// How many slots the session has; 0 is no limit, and then there are no slots.
    pub limit: u32,
}

/// A slot that this process reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a slot is occupied until it is released"]
pub struct HeldSlot {
    /// The owner, as this process knows it; [`bind`] changes it before the file.
    pub owner: SlotOwner,
    /// The record that a transfer replaced.
    previous: Option<String>,
}

impl HeldSlot {
    /// Whether the slot was taken over from another run.
    pub fn is_transferred(&self) -> bool {
        self.previous.is_some()
    }
}

/// Why a slot was not changed. It is as it was, except after a failed flush.
#[derive(Debug)]
#[non_exhaustive]
pub enum SlotError {
    /// Every slot is occupied.
    Full {
        /// Occupied slots, those without a valid owner included.
        used: usize,
        /// The limit.
        limit: u32,
    },
    /// Another process changes it right now, or died while it did and left no name.
    Claimed(String),
    /// It is not, or no longer, what the caller takes it for.
    Changed(&'static str),
    /// Its record cannot be read.
    Unreadable(String),
    /// The run that it is to be taken over from has not ended, as far as its status tells.
    SourceActive(&'static str),
    /// Something could not be written.
    Write(WriteError),
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { used, limit } => {
                write!(f, "the session has {used} of {limit} detached runs already")
            }
            Self::Claimed(why) => f.write_str(why),
            Self::Changed(why) | Self::SourceActive(why) => f.write_str(why),
            Self::Unreadable(why) => write!(f, "the owner record of the slot {why}"),
            Self::Write(_) => f.write_str("the slot could not be changed"),
        }
    }
}

impl std::error::Error for SlotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Write(e) = self { Some(e) } else { None }
    }
}

impl From<WriteError> for SlotError {
    fn from(e: WriteError) -> Self {
        Self::Write(e)
    }
}

/// The name of a session's pool. Facts K-20.
pub fn pool_name(session_id: &str) -> String {
    sha256_hex(session_id.as_bytes())
}

fn slot_name(number: i64) -> String {
    format!("slot-{number}")
}

/// The digits in the name of a slot, which is exactly `slot-<digits>`. Facts K-23.
pub(super) fn digits_of(name: &str) -> Option<&str> {
    name.strip_prefix("slot-").filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The occupied numbers of a session's pool, ascending. Facts K-23: a directory counts, whatever is
/// in it; a number that is too large to be one of ours counts as `None`.
///
/// # Errors
/// As the system says; a missing pool is empty.
pub fn occupied<H: Host>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
) -> io::Result<Vec<Option<i64>>> {
    let pool = directory::open_path(host, temp, &[layout::CAPACITY_DIR, &pool_name(session_id)])?;
    pool.map_or_else(|| Ok(Vec::new()), |pool| occupied_in(host, &pool))
}

fn occupied_in<H: Host>(host: &H, pool: &H::Dir) -> io::Result<Vec<Option<i64>>> {
    let mut names = Vec::new();
    host.list(pool, &mut |entry| {
        if let Some(name) = entry.name.to_str().filter(|name| digits_of(name).is_some()) {
            names.push((name.to_owned(), entry.kind));
        }
        ControlFlow::Continue(())
    })?;
    let is_dir = |(name, kind): &(String, Option<FileKind>)| {
        let kind = kind.or_else(|| host.stat_at(pool, name.as_ref()).ok().map(|stat| stat.kind));
        kind == Some(FileKind::Directory)
    };
    let mut numbers: Vec<Option<i64>> = names
        .iter()
        .filter(|found| is_dir(found))
        .map(|(name, _)| digits_of(name)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn pool<H: WriteHost>(host: &H, temp: &H::Dir, session_id: &str) -> Result<H::Dir, WriteError> {
    let root = lock_dir::ensure(host, temp, layout::CAPACITY_DIR)?;
    lock_dir::ensure(host, &root, &pool_name(session_id))
}

/// The pool of a slot that is there.
fn pool_of<H: WriteHost>(host: &H, temp: &H::Dir, session_id: &str) -> Result<H::Dir, SlotError> {
    directory::open_path(host, temp, &[layout::CAPACITY_DIR, &pool_name(session_id)])
        .map_err(|e| WriteError::of(host, temp, Step::Look, layout::CAPACITY_DIR, e))?
        .ok_or(SlotError::Changed("the slot is gone"))
}

/// Acquires a slot; `None` when there is no limit. See the module's ordered steps. The caller has
/// reconciled the pool before, if it wants to.
///
/// # Errors
/// [`SlotError::Full`], [`SlotError::Write`]. Nothing is reserved then.
pub fn acquire<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    request: &SlotRequest<'_>,
) -> Result<Option<HeldSlot>, SlotError> {
    if request.limit == 0 {
        return Ok(None);
    }
    let pool = pool(host, temp, request.session_id)?;
    let look = |e| WriteError::of(host, &pool, Step::Look, "the pool", e);
    for number in 0..i64::from(request.limit) {
        let occupied = occupied_in(host, &pool).map_err(look)?;
        if occupied.len() >= request.limit as usize {
            let (used, limit) = (occupied.len(), request.limit);
            return Err(SlotError::Full { used, limit });
        }
        if occupied.contains(&Some(number)) {
            continue;
        }
        let owner = new_owner(host, request, number);
        if put_in_place(host, &pool, &owner)? {
            return Ok(Some(HeldSlot { owner, previous: None }));
        }
    }
    let used = occupied_in(host, &pool).map_err(look)?.len();
    Err(SlotError::Full { used, limit: request.limit })
}

/// Steps 3 to 5; `false` when the number is taken.
fn put_in_place<H: WriteHost>(
    host: &H,
    pool: &H::Dir,
    owner: &SlotOwner,
) -> Result<bool, SlotError> {
    let name = slot_name(owner.slot);
    let private = format!(".{name}.candidate-{}", owner.reservation_token);
    lock_dir::build(host, pool, &private, &written::slot_owner(owner))?;
    let (moved, attempts) = RetryPolicy::default()
        .run(host, || host.rename_new(pool, private.as_ref(), pool, name.as_ref()));
    if let Err(e) = moved {
        let cleanup = lock_dir::remove_tree(host, pool, &private).err();
        let taken = [io::ErrorKind::AlreadyExists, io::ErrorKind::DirectoryNotEmpty];
        if taken.contains(&e.kind()) {
            return Ok(false);
        }
        let e = WriteError::of(host, pool, Step::Rename, &name, e);
        return Err(WriteError { attempts, cleanup, ..e }.into());
    }
    if let Err(e) = host.sync_dir(pool) {
        let e = WriteError::of(host, pool, Step::FlushDirectory, &name, e);
        // Not acknowledged, so it must not occupy anything either.
        let _ = lock_dir::discard(host, pool, &name);
        return Err(e.into());
    }
    Ok(true)
}

fn new_owner<H: WriteHost>(host: &H, request: &SlotRequest<'_>, slot: i64) -> SlotOwner {
    SlotOwner {
        reservation_token: lock_dir::uuid(host),
        owner_session_id: request.session_id.to_owned(),
        owner_session_key: pool_name(request.session_id),
        slot,
        run_id: request.run_id.to_owned(),
        generation: 0,
        kind: request.kind,
        async_dir: request.async_dir.to_owned(),
        reserved_at_ms: host.now_ms(),
        source_run_id: None,
        runner_instance_id: None,
        runner_started_at_ms: None,
    }
}

/// The record in a slot and its text.
fn record<H: WriteHost>(host: &H, slot: &H::Dir) -> Result<(SlotOwner, String), SlotError> {
    let unreadable = |why: String| SlotError::Unreadable(why);
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let read = host.read_at(slot, layout::OWNER.as_ref(), part).map_err(|e| match e {
        ReadError::Absent => unreadable("is not there".to_owned()),
        ReadError::Io(e) => {
            SlotError::Write(WriteError::of(host, slot, Step::Look, layout::OWNER, e))
        }
        other => unreadable(format!("cannot be read: {other}")),
    })?;
    let damaged = |e| SlotError::Unreadable(format!("is damaged: {e}"));
    let doc = Document::from_bytes(&read.bytes).map_err(damaged)?;
    let owner = SlotOwner::read(&doc).map_err(damaged)?;
    Ok((owner, doc.source().to_owned()))
}

/// The record of a slot, if it is still the expected one. Asked under the claim only.
fn expected<H: WriteHost>(
    host: &H,
    slot: &H::Dir,
    owner: &SlotOwner,
) -> Result<(SlotOwner, String), SlotError> {
    let (found, text) = record(host, slot)?;
    let same = found.reservation_token == owner.reservation_token
        && found.run_id == owner.run_id
        && found.generation == owner.generation;
    if same { Ok((found, text)) } else { Err(SlotError::Changed("the slot has another owner")) }
}

/// Binds a slot to the runner that is about to proceed: in memory first, then in the file. Facts K-25.
///
/// # Errors
/// [`SlotError`]; memory is bound all the same, which [`rollback_before_proceed`] knows.
pub fn bind<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    held: &mut HeldSlot,
    instance_id: &str,
    started_at_ms: i64,
) -> Result<(), SlotError> {
    held.owner.runner_instance_id = Some(instance_id.to_owned());
    held.owner.runner_started_at_ms = Some(started_at_ms);
    let owner = &held.owner;
    let pool = pool_of(host, temp, &owner.owner_session_id)?;
    claim::under(host, &pool, &slot_name(owner.slot), |slot| {
        expected(host, slot, owner)?;
        let options = Options::new(Durability::Durable);
        let limit = limits::SIDECAR_MAX_BYTES;
        let patched = sidecar::patch(host, slot, layout::OWNER, limit, &options, |_| {
            Decision::Patch(vec![
                ("runnerProcessInstanceId", written::string(instance_id)),
                ("runnerStartedAt", started_at_ms.to_string()),
            ])
        });
        match patched {
            Ok(_) => Ok(()),
            Err(PatchError::Write(e)) => Err(SlotError::Write(e)),
            Err(e) => Err(SlotError::Unreadable(e.to_string())),
        }
    })
}

/// Releases a slot, if it still has this owner. Facts K-26. Returns why something is left under a
/// private name, if so.
///
/// # Errors
/// [`SlotError`]; after [`Step::FlushDirectory`] the slot is free but may come back with a power cut.
pub fn release<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    owner: &SlotOwner,
) -> Result<Option<io::Error>, SlotError> {
    let pool = pool_of(host, temp, &owner.owner_session_id)?;
    let name = slot_name(owner.slot);
    claim::under(host, &pool, &name, |slot| {
        expected(host, slot, owner)?;
        Ok(lock_dir::discard(host, &pool, &name)?)
    })
}

/// Moves a slot with all that is in it to a name that is free, in a directory on the same disk, if `may_free` says so
/// under its claim. It is free then, and stays free after a power cut; nothing of it is lost.
/// Spec: RS-REC-22, RS-SLOT-18.
///
/// # Errors
/// [`SlotError`]; the slot is held then, unless it was a flush that failed.
pub(crate) fn set_aside<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    owner: &SlotOwner,
    (to, new_name): (&H::Dir, &str),
    may_free: &dyn Fn(&SlotOwner) -> bool,
) -> Result<(), SlotError> {
    let pool = pool_of(host, temp, &owner.owner_session_id)?;
    let name = slot_name(owner.slot);
    claim::under(host, &pool, &name, |slot| {
        let (file, _) = expected(host, slot, owner)?;
        may_free(&file).then_some(()).ok_or(SlotError::Changed("its run goes on"))?;
        let fail = |step, e| SlotError::Write(WriteError::of(host, &pool, step, &name, e));
        let (moved, _) = RetryPolicy::default()
            .run(host, || host.rename_new(&pool, name.as_ref(), to, new_name.as_ref()));
        moved.map_err(|e| fail(Step::Rename, e))?;
        // The new name first: a power cut may leave the slot under both, never under none.
        host.sync_dir(to).map_err(|e| fail(Step::FlushDirectory, e))?;
        host.sync_dir(&pool).map_err(|e| fail(Step::FlushDirectory, e))
    })
}

/// Releases the slot that a run holds for this runner, whose end was observed. `false` when the run holds
/// none, or one that another runner is bound to.
/// Spec: RS-OBS-09.
///
/// # Errors
/// [`SlotError`], as [`release`]; also when a slot cannot be looked at, which may be the run's.
pub fn release_of_run<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
    run_id: &str,
    instance_id: &str,
) -> Result<bool, SlotError> {
    match of_runner(host, temp, session_id, run_id, instance_id)? {
        None => Ok(false),
        Some(owner) => release(host, temp, &owner).map(|_| true),
    }
}

/// The owner of the slot that a run holds for this runner. `None` when the run holds none, or one that
/// another runner is bound to.
///
/// # Errors
/// [`SlotError`] when a slot cannot be looked at, which may be the run's.
pub fn of_runner<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
    run_id: &str,
    instance_id: &str,
) -> Result<Option<SlotOwner>, SlotError> {
    let owner = slot_of(host, temp, session_id, run_id)?;
    Ok(owner.filter(|owner| owner.runner_instance_id.as_deref() == Some(instance_id)))
}

/// What became of a slot that was rolled back.
#[derive(Debug)]
pub enum RolledBack {
    /// A fresh slot was released.
    Released {
        /// Why something is left under a private name, if so.
        litter: Option<io::Error>,
    },
    /// A transferred slot has its previous owner again.
    Restored,
    /// It is bound, so it stays.
    Bound,
}

/// Rolls back a slot whose launch failed before it was bound. Facts K-27.
///
/// # Errors
/// [`SlotError`].
pub fn rollback<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    held: &HeldSlot,
) -> Result<RolledBack, SlotError> {
    roll_back_if(host, temp, held, |file| !is_bound(file) && !is_bound(&held.owner))
}

/// Rolls back a slot whose runner was never told to proceed: it is bound to exactly this runner, or
/// binding failed on the way to the disk. Facts K-27.
///
/// # Errors
/// [`SlotError`].
pub fn rollback_before_proceed<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    held: &HeldSlot,
    instance_id: &str,
) -> Result<RolledBack, SlotError> {
    let this = Some(instance_id);
    roll_back_if(host, temp, held, |file| {
        file.runner_instance_id.as_deref() == this
            || !is_bound(file) && held.owner.runner_instance_id.as_deref() == this
    })
}

fn is_bound(owner: &SlotOwner) -> bool {
    owner.runner_instance_id.is_some() || owner.runner_started_at_ms.is_some()
}

fn roll_back_if<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    held: &HeldSlot,
    allowed: impl Fn(&SlotOwner) -> bool,
) -> Result<RolledBack, SlotError> {
    let pool = pool_of(host, temp, &held.owner.owner_session_id)?;
    let name = slot_name(held.owner.slot);
    claim::under(host, &pool, &name, |slot| {
        let (file, _) = expected(host, slot, &held.owner)?;
        if !allowed(&file) {
            return Ok(RolledBack::Bound);
        }
        let Some(previous) = &held.previous else {
            let litter = lock_dir::discard(host, &pool, &name)?;
            return Ok(RolledBack::Released { litter });
        };
        let options = Options::new(Durability::Durable);
        atomic::replace(host, slot, layout::OWNER, previous.as_bytes(), &options)?;
        Ok(RolledBack::Restored)
    })
}

/// What the status of the run says from which a slot is taken over.
#[derive(Clone, Debug, PartialEq)]
pub struct Source<'a> {
    /// The run.
    pub run_id: &'a str,
    /// `runId` and `state` of its status; `None` when the status is missing or unreadable.
    pub status: Option<(Option<&'a str>, Option<Open<RunState>>)>,
}

/// Takes over the slot of the run that is resumed; acquires one when that run has none. Facts K-28.
///
/// # Errors
/// [`SlotError`].
pub fn transfer<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    request: &SlotRequest<'_>,
    source: &Source<'_>,
) -> Result<Option<HeldSlot>, SlotError> {
    if request.limit == 0 {
        return Ok(None);
    }
    let Some(old) = slot_of(host, temp, request.session_id, source.run_id)? else {
        return acquire(host, temp, request);
    };
    let active = SlotError::SourceActive;
    let Some((run_id, state)) = &source.status else {
        return Err(active("the status of the run that holds the slot cannot be read"));
    };
    if *run_id != Some(source.run_id) {
        return Err(active("the status of the run that holds the slot names another run"));
    }
    // A stranger's word is no end.
    if state.as_ref().and_then(Open::known).is_none_or(RunState::is_active) {
        return Err(active("the run that holds the slot has not ended"));
    }
    let pool = pool_of(host, temp, request.session_id)?;
    claim::under(host, &pool, &slot_name(old.slot), |slot| {
        let (file, text) = expected(host, slot, &old)?;
        let now_ms = host.now_ms();
        let generation = file.generation.saturating_add(1);
        let set = [
            ("runId", written::string(request.run_id)),
            ("sourceRunId", written::string(source.run_id)),
            ("generation", generation.to_string()),
            ("kind", written::string(SlotKind::Runner.as_str())),
            ("asyncDir", written::string(request.async_dir)),
            ("reservedAt", now_ms.to_string()),
        ];
        let unbound = ["runnerProcessInstanceId", "runnerStartedAt"];
        let doc = Document::parse(&text).map_err(|e| SlotError::Unreadable(e.to_string()))?;
        let new = written::rebuilt(&doc, &unbound, &set) + "\n";
        let options = Options::new(Durability::Durable);
        atomic::replace(host, slot, layout::OWNER, new.as_bytes(), &options)?;
        let owner = SlotOwner {
            run_id: request.run_id.to_owned(),
            source_run_id: Some(source.run_id.to_owned()),
            generation,
            kind: SlotKind::Runner,
            async_dir: request.async_dir.to_owned(),
            reserved_at_ms: now_ms,
            runner_instance_id: None,
            runner_started_at_ms: None,
            ..file
        };
        Ok(Some(HeldSlot { owner, previous: Some(text.clone()) }))
    })
}

/// The owner of the slot that a run holds in its session's pool.
fn slot_of<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
    run_id: &str,
) -> Result<Option<SlotOwner>, SlotError> {
    let (owners, unseen) = owners(host, temp, session_id)?;
    match (owners.into_iter().find(|owner| owner.run_id == run_id), unseen) {
        (Some(owner), _) => Ok(Some(owner)),
        // It may be the one that could not be seen.
        (None, Some(e)) => Err(e),
        (None, None) => Ok(None),
    }
}

/// Every valid owner of a pool that agrees with the names of pool and slot, and the first error of the
/// system that kept one from being seen. Facts K-32.
fn owners<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
) -> Result<(Vec<SlotOwner>, Option<SlotError>), SlotError> {
    let pool = match pool_of(host, temp, session_id) {
        Ok(pool) => pool,
        Err(SlotError::Changed(_)) => return Ok((Vec::new(), None)),
        Err(e) => return Err(e),
    };
    let key = pool_name(session_id);
    let numbers = occupied_in(host, &pool)
        .map_err(|e| WriteError::of(host, &pool, Step::Look, layout::CAPACITY_DIR, e))?;
    let (mut owners, mut unseen) = (Vec::new(), None);
    for number in numbers.into_iter().flatten() {
        let name = slot_name(number);
        let found = match host.open_dir_at(&pool, name.as_ref()) {
            Ok(slot) => record(host, &slot),
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => Err(WriteError::of(host, &pool, Step::Look, &name, e).into()),
        };
        let owner = match found {
            Ok((owner, _)) => owner,
            Err(e @ SlotError::Write(_)) => {
                unseen = unseen.or(Some(e));
                continue;
            }
            // A slot without a valid owner is occupied and nobody's: it is left alone.
            Err(_) => continue,
        };
        if owner.owner_session_key == key
            && owner.owner_session_id == session_id
            && owner.slot == number
        {
            owners.push(owner);
        }
    }
    Ok((owners, unseen))
}

/// What a reconciliation did.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Released slots, with the verdict that released each.
    pub released: Vec<(SlotOwner, SlotVerdict)>,
    /// Slots that were to be released and could not be.
    pub failed: Vec<(SlotOwner, SlotError)>,
    /// Occupied slots afterwards.
    pub used: usize,
    /// Why a slot could not be looked at, of the first one: it was not judged, and is occupied.
    pub unseen: Option<SlotError>,
    /// What was left over of released slots under private names; the slots are free all the same.
    pub litter: Vec<io::Error>,
}

/// Releases the slots of a session whose runs have ended. `judge` gathers the facts of a slot's run
/// and asks [`slot::verdict`](crate::protocol::slot::verdict); it is asked again under the claim, so
/// that no slot is released on facts of before.
///
/// # Errors
/// [`SlotError`] when the pool cannot be read.
pub fn reconcile<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    session_id: &str,
    judge: impl Fn(&SlotOwner) -> SlotVerdict,
) -> Result<Reconciled, SlotError> {
    let (owners, unseen) = owners(host, temp, session_id)?;
    let mut done = Reconciled { unseen, ..Reconciled::default() };
    for owner in owners {
        if !judge(&owner).release {
            continue;
        }
        match release_judged(host, temp, &owner, &judge) {
            Ok(Some((verdict, litter))) => {
                done.released.push((owner, verdict));
                done.litter.extend(litter);
            }
            Ok(None) => {}
            Err(e) => done.failed.push((owner, e)),
        }
    }
    let look = |e| WriteError::of(host, temp, Step::Look, layout::CAPACITY_DIR, e);
    done.used = occupied(host, temp, session_id).map_err(look)?.len();
    Ok(done)
}

/// Releases one slot if `judge` says so under its claim: with which verdict, and why something is left under a
/// private name, if so. `None` when it is not to be released.
///
/// # Errors
/// [`SlotError`], as [`release`].
pub(super) fn release_judged<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    owner: &SlotOwner,
    judge: impl Fn(&SlotOwner) -> SlotVerdict,
) -> Result<Option<(SlotVerdict, Option<io::Error>)>, SlotError> {
    let pool = pool_of(host, temp, &owner.owner_session_id)?;
    let name = slot_name(owner.slot);
    claim::under(host, &pool, &name, |slot| {
        let (file, _) = expected(host, slot, owner)?;
        let verdict = judge(&file);
        if !verdict.release {
            return Ok(None);
        }
        let litter = lock_dir::discard(host, &pool, &name)?;
        Ok(Some((verdict, litter)))
    })
}

/// The event that tells of a release by policy, as one line without its newline. It goes to the log of
/// the slot's run. Facts §3.8.
pub fn released_event(
    owner: &SlotOwner,
    now_ms: i64,
    last_activity_age_ms: i64,
    abandoned_after_ms: i64,
) -> String {
    format!(
        concat!(
            r#"{{"type":"subagent.capacity.released","ts":{},"runId":{},"sessionId":{},"#,
            r#""releasedBy":"abandoned-timeout","processProof":"unknown","runnerPid":"gone","#,
            r#""lastActivityAgeMs":{},"abandonedSlotReleaseAfterMs":{}}}"#
        ),
        now_ms,
        written::string(&owner.run_id),
        written::string(&owner.owner_session_id),
        last_activity_age_ms,
        abandoned_after_ms,
    )
}
