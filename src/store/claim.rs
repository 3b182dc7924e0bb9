//! The claim on a slot: one process at a time changes it.
//!
//! Theory of operation. A claim is the file `capacity.claim` in the slot. Other implementations put a
//! random token in it and never take one back that was left, so a process that dies in between
//! freezes the slot for ever (facts CW-61). Ours says who holds it, and a claim whose process is
//! demonstrably gone on this host is set aside, to a name made of its token, so that all who saw the
//! same claim aim at one name. A bare token, or a process elsewhere, is honoured without end.
//!
//! Ordered steps of [`under`]:
//! 1. open the slot;
//! 2. write the claim whole under a temporary name, flush it, and rename it to its name, which must be
//!    free. Flushed, because a power cut must not leave a claim that names nobody; the directory is
//!    not: a claim that a power cut takes away is one less in the way;
//! 3. look whether the name of the slot still leads to the directory that was opened. From here on
//!    nobody who honours claims renames it;
//! 4. do the work;
//! 5. remove the claim, if it is still ours.
//!
//! A crash leaves a claim that names a dead process. Spec: RS-SLOT-12, RS-SLOT-13; facts K-24.

use std::io;

use crate::protocol::written::Claim;
use crate::protocol::{layout, limits};

use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::host::{Part, WriteHost};
use super::identity;
use super::lock_dir;
use super::retry::RetryPolicy;
use super::slot::SlotError;

/// Times that a claim is tried when stale ones are in the way.
const MAX_ATTEMPTS: u32 = 4;

/// Does `work` on the slot of this name, alone. The handle is the slot's directory.
pub(super) fn under<H: WriteHost, T>(
    host: &H,
    pool: &H::Dir,
    name: &str,
    work: impl FnOnce(&H::Dir) -> Result<T, SlotError>,
) -> Result<T, SlotError> {
    let slot = host.open_dir_at(pool, name.as_ref()).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => SlotError::Changed("the slot is gone"),
        _ => SlotError::Write(WriteError::of(host, pool, Step::Look, name, e)),
    })?;
    let text = take(host, &slot, name)?;
    let done = match still_there(host, pool, name, &slot) {
        Ok(true) => work(&slot),
        Ok(false) => Err(SlotError::Changed("the slot was released meanwhile")),
        Err(e) => Err(e),
    };
    drop_claim(host, &slot, &text);
    done
}

/// A look that fails says nothing about the slot, so it is an error and not a `false`.
fn still_there<H: WriteHost>(
    host: &H,
    pool: &H::Dir,
    name: &str,
    slot: &H::Dir,
) -> Result<bool, SlotError> {
    let look = |e| SlotError::Write(WriteError::of(host, pool, Step::Look, name, e));
    let opened = host.stat_dir(slot).map_err(look)?;
    match host.stat_at(pool, name.as_ref()) {
        Ok(named) => Ok(named.id == opened.id),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(look(e)),
    }
}

fn take<H: WriteHost>(host: &H, slot: &H::Dir, name: &str) -> Result<String, SlotError> {
    let own = identity::own(host);
    let claim = Claim {
        token: lock_dir::uuid(host),
        pid: own.pid,
        host: host.system().host.clone(),
        pid_namespace: own.pid_namespace,
        identity: own.identity,
    };
    let text = claim.text();
    let options = Options::new(Durability::Ordered).target(Target::New);
    for _ in 0..MAX_ATTEMPTS {
        match atomic::replace(host, slot, layout::SLOT_CLAIM, text.as_bytes(), &options) {
            Ok(_) => return Ok(text),
            Err(WriteError { step: Step::Rename, source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                set_aside(host, slot, name)?;
            }
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => {
                return Err(SlotError::Changed("the slot was released meanwhile"));
            }
            Err(e) => return Err(SlotError::Write(e)),
        }
    }
    Err(SlotError::Claimed("others claimed it each time it was tried".to_owned()))
}

/// Sets the claim aside if its process is gone. That it is gone already is fine as well.
fn set_aside<H: WriteHost>(host: &H, slot: &H::Dir, name: &str) -> Result<(), SlotError> {
    let Some(bytes) = read(host, slot) else { return Ok(()) };
    let honoured = |why: String| Err(SlotError::Claimed(why));
    let Some(claim) = Claim::read(&bytes) else {
        return honoured(format!("{name} is claimed by a process that left no name"));
    };
    let life = identity::judge(host, &claim.process());
    if !life.word.is_gone() {
        return honoured(format!("{name} is claimed: {}", life.why));
    }
    // Read again after the question, as for leases: its holder may have removed it and ended, and the
    // claim that is there now may be somebody else's.
    if read(host, slot).as_ref() != Some(&bytes) {
        return Ok(());
    }
    let aside = stale_name(&claim);
    let (moved, attempts) = RetryPolicy::default()
        .run(host, || host.rename_new(slot, layout::SLOT_CLAIM.as_ref(), slot, aside.as_ref()));
    match moved {
        Ok(()) => Ok(()),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
            Ok(())
        }
        Err(e) => {
            let e = WriteError::of(host, slot, Step::Rename, layout::SLOT_CLAIM, e);
            Err(SlotError::Write(WriteError { attempts, ..e }))
        }
    }
}

/// The name that a claim of a process which is gone gets.
fn stale_name(claim: &Claim) -> String {
    format!(".{}.stale-{}", layout::SLOT_CLAIM, claim.token)
}

/// Makes the claim in a slot that nobody else reaches what it was: `before`, which was set aside for ours, or
/// none. What a crash left of ours goes. Spec: RS-REC-24.
///
/// # Errors
/// The system's.
pub(crate) fn restore<H: WriteHost>(
    host: &H,
    slot: &H::Dir,
    before: Option<&str>,
) -> io::Result<()> {
    let there = read(host, slot);
    if there.as_deref() == before.map(str::as_bytes) {
        return Ok(());
    }
    if there.is_some() {
        host.unlink(slot, layout::SLOT_CLAIM.as_ref())?;
    }
    let Some(claim) = before.and_then(|text| Claim::read(text.as_bytes())) else { return Ok(()) };
    host.rename_new(slot, stale_name(&claim).as_ref(), slot, layout::SLOT_CLAIM.as_ref())
}

fn read<H: WriteHost>(host: &H, slot: &H::Dir) -> Option<Vec<u8>> {
    let part = Part::All(limits::STARTUP_MAX_BYTES);
    host.read_at(slot, layout::SLOT_CLAIM.as_ref(), part).ok().map(|read| read.bytes)
}

/// A claim that cannot be removed is one of a process that will be gone: the next one of ours sets it
/// aside. The work is done or not, whatever becomes of the claim, so nothing is reported.
fn drop_claim<H: WriteHost>(host: &H, slot: &H::Dir, text: &str) {
    if read(host, slot).as_deref() == Some(text.as_bytes()) {
        let _ = host.unlink(slot, layout::SLOT_CLAIM.as_ref());
    }
}
