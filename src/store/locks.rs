//! Slots and leases: read once per store, judged with the run they name.
//!
//! Nothing here is locked, reclaimed or released. An owner record that cannot be read is a fact of
//! its own: by the protocol it blocks its slot or session for ever, and nobody may guess otherwise.
//! Spec: RS-LEASE-*, RS-SLOT-*; facts §7.1, §7.2.

use std::collections::HashMap;
use std::ffi::OsStr;

use crate::protocol::evidence::{FileFact, LeaseFact, SlotFact};
use crate::protocol::finding;
use crate::protocol::lease::{
    self, LeaseFacts, LeaseOwner, ProcessSeen as LeaseProcess, Staleness,
};
use crate::protocol::liveness::Alive;
use crate::protocol::process::{self, Liveness, RecordedIdentity, RecordedProcess};
use crate::protocol::slot::SlotOwner;
use crate::protocol::{layout, limits};

use super::host::{FileKind, Host};
use super::identity;
use super::open::StoreProblem;
use super::read::{self, ExpectedOwner};
use super::slot;

/// One slot directory.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Path relative to the store.
    pub path: String,
    /// The owner record.
    pub owner: FileFact<SlotOwner>,
    /// Age basis of a claim file, when there is one.
    pub claim_mtime_ms: Option<i64>,
}

/// One lease directory.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Path relative to the store.
    pub path: String,
    /// The owner record.
    pub owner: FileFact<LeaseOwner>,
    /// Whether it is demonstrably stale (facts K-5).
    pub stale: bool,
    /// Why it is held, or why it is stale.
    pub why: String,
    /// What became of its owner's process; `None` without a readable owner.
    pub owner_life: Option<Liveness>,
}

/// Slots and leases of a store.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Every slot.
    pub slots: Vec<Slot>,
    /// Every lease.
    pub leases: Vec<Lease>,
    /// Tombstones and abandoned candidates of both: never data.
    pub litter: u64,
    slots_by_run: HashMap<String, Vec<usize>>,
    leases_by_run: HashMap<String, Vec<usize>>,
}

impl Locks {
    /// Reads all slots and leases below a temp root.
    pub(super) fn load<H: Host>(
        host: &H,
        temp: &H::Dir,
        owner: ExpectedOwner,
        problems: &mut Vec<StoreProblem>,
    ) -> Self {
        let mut locks = Self::default();
        locks.load_leases(host, temp, owner, problems);
        locks.load_slots(host, temp, owner, problems);
        for (i, slot) in locks.slots.iter().enumerate() {
            if let Some(owner) = slot.owner.value() {
                locks.slots_by_run.entry(owner.run_id.clone()).or_default().push(i);
            }
        }
        for (i, lease) in locks.leases.iter().enumerate() {
            if let Some(owner) = lease.owner.value() {
                locks.leases_by_run.entry(owner.run_id.clone()).or_default().push(i);
            }
        }
        locks
    }

    fn load_leases<H: Host>(
        &mut self,
        host: &H,
        temp: &H::Dir,
        owner: ExpectedOwner,
        problems: &mut Vec<StoreProblem>,
    ) {
        let Some((root, names)) =
            entries(host, temp, (layout::LEASES_DIR, layout::LEASES_DIR), problems)
        else {
            return;
        };
        for name in names {
            if name.contains(".stale-") || name.contains(".candidate-") || name.starts_with('.') {
                self.litter += 1;
                continue;
            }
            let path = format!("{}/{name}", layout::LEASES_DIR);
            let Some(fact) = owner_record(host, &root, &name, owner, LeaseOwner::read) else {
                continue;
            };
            let (stale, why, owner_life) = judge_lease(host, &fact);
            if fact.value().is_none() {
                problems.push(unreadable(&finding::LEASE_UNREADABLE, &path, &fact));
            }
            self.leases.push(Lease { path, owner: fact, stale, why, owner_life });
        }
    }

    /// Spec: RS-SLOT-01, RS-SLOT-03.
    fn load_slots<H: Host>(
        &mut self,
        host: &H,
        temp: &H::Dir,
        owner: ExpectedOwner,
        problems: &mut Vec<StoreProblem>,
    ) {
        let Some((root, pools)) =
            entries(host, temp, (layout::CAPACITY_DIR, layout::CAPACITY_DIR), problems)
        else {
            return;
        };
        for pool in pools {
            let label = format!("{}/{pool}", layout::CAPACITY_DIR);
            let Some((dir, slots)) = entries(host, &root, (&pool, &label), problems) else {
                continue;
            };
            for name in slots {
                let Some(digits) = slot::digits_of(&name) else {
                    // A released slot begins with a dot.
                    self.litter += u64::from(name.starts_with(".slot-"));
                    continue;
                };
                let path = format!("{label}/{name}");
                let Some(mut fact) = owner_record(host, &dir, &name, owner, SlotOwner::read) else {
                    continue;
                };
                let agrees = fact
                    .value()
                    .is_none_or(|o| o.owner_session_key == pool && digits == o.slot.to_string());
                if !agrees {
                    let meta = fact.meta().unwrap_or_default();
                    let member = "ownerSessionKey and slot".to_owned();
                    let expected = "those of the directory";
                    let error = crate::protocol::DecodeError::Member { member, expected };
                    fact = FileFact::Damaged(error, meta);
                }
                let claim_mtime_ms = host
                    .open_dir_at(&dir, OsStr::new(&name))
                    .ok()
                    .and_then(|slot| host.stat_at(&slot, layout::SLOT_CLAIM.as_ref()).ok())
                    .map(|stat| stat.mtime_ms);
                if fact.value().is_none() {
                    problems.push(unreadable(&finding::SLOT_UNREADABLE, &path, &fact));
                }
                self.slots.push(Slot { path, owner: fact, claim_mtime_ms });
            }
        }
    }

    /// Slots whose owner record names a run.
    pub(super) fn slots_of(&self, run_id: &str) -> Vec<SlotFact> {
        let indexes = self.slots_by_run.get(run_id).into_iter().flatten();
        indexes
            .filter_map(|i| {
                let slot = &self.slots[*i];
                let owner = slot.owner.value()?.clone();
                let claimed = slot.claim_mtime_ms.is_some();
                Some(SlotFact { path: slot.path.clone(), owner, claimed })
            })
            .collect()
    }

    /// An owner record that the system does not let read, and why; it may name any run.
    pub(super) fn unread(&self) -> Option<(&str, &str)> {
        let slots = self.slots.iter().filter_map(|slot| match &slot.owner {
            FileFact::Unreadable(why) => Some((&*slot.path, &**why)),
            _ => None,
        });
        let leases = self.leases.iter().filter_map(|lease| match &lease.owner {
            FileFact::Unreadable(why) => Some((&*lease.path, &**why)),
            _ => None,
        });
        slots.chain(leases).next()
    }

    /// Whether any owner record names a run.
    pub(super) fn names(&self, run_id: &str) -> bool {
        self.slots_by_run.contains_key(run_id) || self.leases_by_run.contains_key(run_id)
    }

    /// Leases whose owner record names a run.
    pub(super) fn leases_of(&self, run_id: &str) -> Vec<LeaseFact> {
        let indexes = self.leases_by_run.get(run_id).into_iter().flatten();
        indexes
            .filter_map(|i| {
                let lease = &self.leases[*i];
                let owner = lease.owner.value()?.clone();
                let held_because = (!lease.stale).then(|| lease.why.clone());
                Some(LeaseFact { path: lease.path.clone(), owner, held_because })
            })
            .collect()
    }
}

/// The names in a directory of a directory, sorted and bounded. `path` is its path relative to the store.
fn entries<H: Host>(
    host: &H,
    parent: &H::Dir,
    (name, path): (&str, &str),
    problems: &mut Vec<StoreProblem>,
) -> Option<(H::Dir, Vec<String>)> {
    let dir = match host.open_dir_at(parent, OsStr::new(name)) {
        Ok(dir) => dir,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => {
            let (kind, text) = match kind_of(host, parent, name)? {
                Some(FileKind::Regular) => return None,
                None | Some(FileKind::Directory) => (&finding::DIR_UNREADABLE, read::plain(&e)),
                Some(other) => (&finding::NOT_PLAIN, format!("it is {}", other.name())),
            };
            problems.push(StoreProblem { kind, path: path.to_owned(), text });
            return None;
        }
    };
    let (mut names, listed) = read::listed(host, &dir, limits::MAX_SMALL_RECORDS, |entry| {
        Some(entry.name.to_string_lossy().into_owned())
    });
    if let Err(e) = listed {
        let kind = &finding::DIR_UNREADABLE;
        problems.push(StoreProblem { kind, path: path.to_owned(), text: read::plain(&e) });
    }
    names.sort_unstable();
    Some((dir, names))
}

/// What stands at a name that was not opened: `Some(None)` when that cannot be told, `None` when it is gone.
fn kind_of<H: Host>(host: &H, parent: &H::Dir, name: &str) -> Option<Option<FileKind>> {
    match host.stat_at(parent, OsStr::new(name)) {
        Ok(stat) => Some(Some(stat.kind)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(None),
    }
}

/// The owner record in a directory; `None` when the name is no directory at all.
fn owner_record<H: Host, T>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    owner: ExpectedOwner,
    decode: impl FnOnce(&crate::protocol::Document<'_>) -> Result<T, crate::protocol::DecodeError>,
) -> Option<FileFact<T>> {
    let dir = match host.open_dir_at(parent, OsStr::new(name)) {
        Ok(dir) => dir,
        Err(e) => {
            return match kind_of(host, parent, name)? {
                Some(FileKind::Regular) => None,
                None | Some(FileKind::Directory) => Some(FileFact::Unreadable(read::plain(&e))),
                Some(other) => Some(FileFact::Unsafe(read::describe(other))),
            };
        }
    };
    Some(
        read::document_unlisted(
            host,
            &dir,
            layout::OWNER,
            limits::SIDECAR_MAX_BYTES,
            owner,
            decode,
        )
        .0,
    )
}

fn unreadable<T>(
    kind: &'static finding::FindingKind,
    path: &str,
    fact: &FileFact<T>,
) -> StoreProblem {
    let text = match fact {
        FileFact::Absent => "no owner record: blocked until a person removes it".to_owned(),
        FileFact::Unsafe(what) => format!("the owner record is {what}"),
        FileFact::Unreadable(why) => format!("the owner record cannot be read: {why}"),
        FileFact::Damaged(error, _) => format!("the owner record is damaged: {error}"),
        FileFact::Present(..) => "the owner record is fine".to_owned(),
    };
    StoreProblem { kind, path: path.to_owned(), text }
}

fn judge_lease<H: Host>(host: &H, fact: &FileFact<LeaseOwner>) -> (bool, String, Option<Liveness>) {
    let Some(owner) = fact.value() else {
        let why = "its owner record is unreadable, so nobody may reclaim it".to_owned();
        return (false, why, None);
    };
    let (verdict, life) = staleness_and_life(host, owner);
    (verdict.is_stale(), verdict.why().to_owned(), Some(life))
}

/// Whether a lease may be set aside, judged now. Facts K-5.
///
/// A record that names its boot or its pidfd is judged by them as well; they are as good as a start
/// identity that differs.
pub(super) fn lease_staleness<H: Host>(host: &H, owner: &LeaseOwner) -> Staleness {
    staleness_and_life(host, owner).0
}

/// The same, and what became of the owner's process.
fn staleness_and_life<H: Host>(host: &H, owner: &LeaseOwner) -> (Staleness, Liveness) {
    let look = |pid: i64, identity: RecordedIdentity| {
        let record = RecordedProcess {
            pid: Some(pid),
            host: Some(&owner.hostname),
            pid_namespace: owner.pid_namespace.as_deref(),
            identity,
            ..RecordedProcess::default()
        };
        let seen = identity::look(host, &record);
        let word = process::judge(&record, &seen, host.system()).word;
        let alive = match word {
            Liveness::Dead | Liveness::Reused => Alive::No,
            Liveness::Live => Alive::Yes,
            _ => Alive::Unknown,
        };
        (alive, seen.start_identity, word)
    };
    let (owner_alive, owner_start, owner_life) = look(
        owner.pid,
        RecordedIdentity {
            start_identity: owner.process_start_identity.clone(),
            boot_id: owner.boot_id.clone(),
            pidfd_inode: owner.pidfd_inode,
        },
    );
    let writer = owner.writer_pid.map(|pid| {
        let start_identity = owner.writer_process_start_identity.clone();
        look(
            pid,
            RecordedIdentity { start_identity, boot_id: owner.boot_id.clone(), pidfd_inode: None },
        )
    });
    let verdict = lease::staleness(
        owner,
        &LeaseFacts {
            our_host: &host.system().host,
            owner: LeaseProcess { alive: owner_alive, start_identity: owner_start.as_deref() },
            writer: writer.as_ref().map(|(alive, start, _)| LeaseProcess {
                alive: *alive,
                start_identity: start.as_deref(),
            }),
        },
    );
    (verdict, owner_life)
}
