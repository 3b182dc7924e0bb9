//! One slot or one lease that somebody names, freed if the rules prove that it may be.
//!
//! Theory of operation. The owner of a slot is the run that it names, the owner of a lease the process; neither
//! is asked to give it back here. What is freed is what is demonstrably over: a slot by the verdict of chapter 9
//! (and by the policy for abandoned ones only where that was asked for), a lease whose owner and writer are gone
//! from this host. Everything else is told with the rule that blocks it, and left alone; also what cannot be
//! read, which no implementation may take back.
//!
//! Ordered steps of [`free`]:
//! 1. open the store and judge; what is free already, or blocked, ends here, and nothing was written;
//! 2. a slot: take its claim, compare the owner, judge *again* with what is known of the run now, rename it to a
//!    private name, flush the pool, delete ([`slot`]). The second judgement stands under the claim, because a
//!    resume may have taken the slot over since the first one;
//! 3. a lease: rename it to the tombstone of the owner that was judged, which every contender aims at as well,
//!    and flush ([`lease`]). The owner is read again after the question what became of it: one
//!    that ended in between may have released the lease, and somebody else may hold it now. Once it is known to
//!    be gone nobody releases it any more;
//! 4. a release by policy is told in the log of the run, after it was made (RS-SLOT-06).
//!
//! A crash leaves the slot with its owner (and a claim of a dead process) or none; the lease or its tombstone.
//! To ask again finishes or finds nothing to do. Spec: RS-CHECK-30 to RS-CHECK-33, RS-SLOT-04, RS-LEASE-02.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::diagnose::slot_verdict;
use crate::protocol::evidence::{FileFact, Times};
use crate::protocol::finding;
use crate::protocol::layout;
use crate::protocol::lease::{LeaseState, tombstone_name};
use crate::protocol::slot::{SlotOwner, SlotVerdict};

use super::atomic::{Step, WriteError};
use super::host::{Host, WriteHost};
use super::open::{Opened, RunsRoot, Store, StoreProblem};
use super::slot::{self, SlotError};
use super::snapshot::{Depth, Snapshot};
use super::{ended_slots, lease};

/// What can be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A capacity slot.
    Slot {
        /// The name of the pool.
        pool: String,
        /// The name of the slot in it, `slot-<n>`.
        name: String,
    },
    /// A session lease, by its name.
    Lease(String),
}

impl Place {
    /// The temp root and what a path in it names; also the owner record in it. `None` for any other path.
    pub fn of(path: &Path) -> Option<(PathBuf, Self)> {
        let path = if path.ends_with(layout::OWNER) { path.parent()? } else { path };
        let name = path.file_name()?.to_str()?.to_owned();
        let above = path.parent()?;
        if above.ends_with(layout::LEASES_DIR) {
            let is_lease = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
            return is_lease.then_some((above.parent()?.to_owned(), Self::Lease(name)));
        }
        let pool = above.file_name()?.to_str()?.to_owned();
        let root = above.parent().filter(|root| root.ends_with(layout::CAPACITY_DIR))?;
        slot::digits_of(&name)?;
        Some((root.parent()?.to_owned(), Self::Slot { pool, name }))
    }

    /// Its path in the temp root.
    pub fn path(&self) -> String {
        match self {
            Self::Slot { pool, name } => format!("{}/{pool}/{name}", layout::CAPACITY_DIR),
            Self::Lease(id) => format!("{}/{id}", layout::LEASES_DIR),
        }
    }

    /// `slot` or `lease`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Slot { .. } => "slot",
            Self::Lease(_) => "lease",
        }
    }
}

/// What stands at a place, judged now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is held there.
    Free,
    /// It must stay.
    Held {
        /// The run that it is held for.
        run_id: String,
        /// The rule that blocks it.
        why: String,
    },
    /// Its record is none, so nobody may take it back but a person.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// It may be freed.
    Over {
        /// The run that it was held for.
        run_id: String,
        /// What shows it.
        why: String,
        /// Whether that is the policy for abandoned slots and not a proof.
        by_policy: bool,
        /// The name that it gets, in its directory; of a slot the beginning of it.
        aside: String,
    },
}

/// What came of it.
#[derive(Debug)]
pub enum Freed {
    /// Nothing was changed: this is how it stands.
    Left(Standing),
    /// It is free, and stays free after a power cut.
    Freed {
        /// How it stood.
        was: Standing,
        /// Why something is left of a slot under a private name, if so.
        litter: Option<io::Error>,
        /// Why the release by policy is not told in the log of its run, if so.
        untold: Option<String>,
    },
}

/// Why it is not known to be free.
#[derive(Debug)]
#[non_exhaustive]
pub enum FreeError {
    /// The store cannot be opened.
    Open(io::Error),
    /// The path of the store leads to something else.
    NotAStore,
    /// The slot was not changed, or not known to be.
    Slot(SlotError),
    /// The lease was not changed, or not known to be.
    Lease(WriteError),
    /// Somebody else has it by now.
    Taken,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(_) => f.write_str("the store cannot be opened"),
            Self::NotAStore => f.write_str("the path of the store leads to something else"),
            Self::Slot(e) => e.fmt(f),
            Self::Lease(_) => f.write_str("the lease could not be set aside"),
            Self::Taken => f.write_str("somebody else has it by now"),
        }
    }
}

impl std::error::Error for FreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) => Some(e),
            Self::Slot(e) => e.source(),
            Self::Lease(e) => Some(e),
            Self::NotAStore | Self::Taken => None,
        }
    }
}

/// What stands at a place of an open store. Reads only. Spec: RS-CHECK-30, RS-CHECK-31.
pub fn look<H: Host>(store: &Store<'_, H>, place: &Place) -> Standing {
    let path = place.path();
    match place {
        Place::Slot { name, .. } => {
            let Some(slot) = store.locks.slots.iter().find(|slot| slot.path == path) else {
                return unseen(store, &path);
            };
            let Some(owner) = slot.owner.value() else { return unreadable(&slot.owner) };
            let run_id = owner.run_id.clone();
            let verdict = judge(store, owner);
            if verdict.release {
                let aside = format!(".{name}.released-");
                let (why, by_policy) = (verdict.reason.to_owned(), verdict.by_policy);
                Standing::Over { run_id, why, by_policy, aside }
            } else {
                Standing::Held { run_id, why: verdict.reason.to_owned() }
            }
        }
        Place::Lease(id) => {
            let Some(lease) = store.locks.leases.iter().find(|lease| lease.path == path) else {
                return unseen(store, &path);
            };
            let Some(owner) = lease.owner.value() else { return unreadable(&lease.owner) };
            let (run_id, why) = (owner.run_id.clone(), lease.why.clone());
            if lease.stale {
                let aside = tombstone_name(id, &owner.token);
                Standing::Over { run_id, why, by_policy: false, aside }
            } else {
                Standing::Held { run_id, why }
            }
        }
    }
}

fn unreadable<T>(fact: &FileFact<T>) -> Standing {
    let what = match fact {
        // That may pass.
        FileFact::Unreadable(why) => {
            return Standing::Unreadable { why: format!("its owner record cannot be read: {why}") };
        }
        FileFact::Unsafe(what) => format!("its owner record is {what}"),
        FileFact::Damaged(error, _) => format!("its owner record is damaged: {error}"),
        FileFact::Absent | FileFact::Present(..) => "it has no owner record".to_owned(),
    };
    Standing::Unreadable { why: format!("{what}; it is held until a person removes it") }
}

/// What was not seen is free, unless it lies where nothing could be seen.
fn unseen<H: Host>(store: &Store<'_, H>, path: &str) -> Standing {
    let hides = |problem: &&StoreProblem| {
        [&finding::DIR_UNREADABLE, &finding::NOT_PLAIN].contains(&problem.kind)
            && Path::new(path).starts_with(&problem.path)
    };
    match store.problems.iter().find(hides) {
        None => Standing::Free,
        Some(StoreProblem { path, text, .. }) => {
            Standing::Unreadable { why: format!("{path} cannot be entered: {text}") }
        }
    }
}

/// The run of a slot, wherever it lies.
fn run_of<'s, H: Host>(
    store: &'s Store<'_, H>,
    owner: &SlotOwner,
) -> Option<(&'s RunsRoot<H>, Snapshot)> {
    let name = OsStr::new(&owner.run_id);
    if crate::protocol::ids::RunId::from_entry(&owner.run_id).is_err() {
        return None;
    }
    store.runs_roots.iter().find_map(|runs| {
        store.snapshot(runs, name, None, Depth::Full).map(|snapshot| (runs, snapshot))
    })
}

/// The verdict on a slot, with what is known of its run now.
pub(crate) fn judge<H: Host>(store: &Store<'_, H>, owner: &SlotOwner) -> SlotVerdict {
    run_of(store, owner).map_or(
        SlotVerdict {
            release: false,
            rule: 1,
            reason: "its run has no directory here, so its end cannot be proven",
            by_policy: false,
        },
        |(_, snapshot)| slot_verdict(&snapshot.evidence, owner),
    )
}

/// Frees a slot or lease if it is over; one that only the policy frees if `by_policy`. `temp_path` is the path
/// of the open temp root. See the module's ordered steps.
///
/// # Errors
/// [`FreeError`].
/// Spec: RS-CHECK-30, RS-CHECK-32, RS-CHECK-33.
pub fn free<H: WriteHost>(
    host: &H,
    (temp, temp_path): (&H::Dir, &Path),
    place: &Place,
    by_policy: bool,
) -> Result<Freed, FreeError> {
    let times = Times::default();
    let opened = Store::open(host, temp_path, host.now_ms(), times).map_err(FreeError::Open)?;
    let Opened::Store(store) = opened else { return Err(FreeError::NotAStore) };
    let was = look(&store, place);
    match &was {
        Standing::Over { by_policy: needs_policy, .. } if by_policy || !needs_policy => {}
        _ => return Ok(Freed::Left(was)),
    }
    match place {
        Place::Slot { .. } => free_slot(host, temp, &store, (place, was), by_policy),
        Place::Lease(id) => free_lease(host, temp, id, was),
    }
}

fn free_slot<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    store: &Store<'_, H>,
    (place, was): (&Place, Standing),
    by_policy: bool,
) -> Result<Freed, FreeError> {
    let path = place.path();
    let slot = store.locks.slots.iter().find(|slot| slot.path == path);
    let Some(owner) = slot.and_then(|slot| slot.owner.value()) else {
        return Ok(Freed::Left(Standing::Free));
    };
    let again = |owner: &SlotOwner| {
        let verdict = judge(store, owner);
        SlotVerdict { release: verdict.release && (by_policy || !verdict.by_policy), ..verdict }
    };
    let released = slot::release_judged(host, temp, owner, again).map_err(FreeError::Slot)?;
    let Some((verdict, litter)) = released else {
        // Its run was found to be over, and is not any more: a revival has it.
        return Ok(Freed::Left(look(store, place)));
    };
    let untold = match run_of(store, owner).filter(|_| verdict.by_policy) {
        Some((runs, snapshot)) => ended_slots::tell(host, &runs.dir, &snapshot, owner).err(),
        None => None,
    };
    Ok(Freed::Freed { was, litter, untold })
}

fn free_lease<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    id: &str,
    was: Standing,
) -> Result<Freed, FreeError> {
    // This reading decides who is asked about; the one in `free_of_dead` comes after the answer.
    let owner = match lease::inspect_or_say(host, temp, id) {
        Ok(LeaseState::Owned(owner)) => owner,
        Ok(LeaseState::Free) => return Ok(Freed::Left(Standing::Free)),
        Ok(LeaseState::NoOwner) => return Ok(Freed::Left(unreadable(&FileFact::<()>::Absent))),
        Ok(LeaseState::Unreadable(error)) => {
            return Ok(Freed::Left(unreadable(&FileFact::<()>::Damaged(error, <_>::default()))));
        }
        Err((_, e)) => {
            return Err(FreeError::Lease(WriteError::of(host, temp, Step::Look, id, e)));
        }
    };
    let staleness = super::locks::lease_staleness(host, &owner);
    if !staleness.is_stale() {
        let (run_id, why) = (owner.run_id, staleness.why().to_owned());
        return Ok(Freed::Left(Standing::Held { run_id, why }));
    }
    match lease::free_of_dead(host, temp, id, &owner.token).map_err(FreeError::Lease)? {
        true => Ok(Freed::Freed { was, litter: None, untold: None }),
        false => Err(FreeError::Taken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slot_and_a_lease_are_places() {
        let hex = "ab".repeat(32);
        let lease = format!("/t/session-leases/{hex}");
        let slot = format!("/t/session-active-async-capacity/{hex}/slot-7");
        let place =
            |path: &str| Place::of(Path::new(path)).map(|(root, place)| (root, place.path()));
        for path in [&lease, &slot] {
            let told = path.strip_prefix("/t/").expect("below").to_owned();
            assert_eq!(place(path), Some((PathBuf::from("/t"), told.clone())), "{path}");
            assert_eq!(place(&format!("{path}/owner.json")), Some((PathBuf::from("/t"), told)));
        }
        for path in [
            format!("{lease}.stale-x"),
            "/t/session-leases/short".to_owned(),
            format!("/t/session-active-async-capacity/{hex}"),
            format!("/t/session-active-async-capacity/{hex}/.slot-7.released-x"),
            format!("/t/session-active-async-capacity/{hex}/slot-"),
            "/t/async-subagent-runs/run-1".to_owned(),
            "/".to_owned(),
        ] {
            assert_eq!(place(&path), None, "{path}");
        }
    }
}
