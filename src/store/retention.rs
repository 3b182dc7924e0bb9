//! The retention lock and the armed waits: what all implementations share that remove runs.
//!
//! Theory of operation. The lock is the directory `.async-retention.lock` in the temp root; its owner is the
//! process that its record names. The existing implementations make the directory first and write the record
//! then; a death in between blocks everybody for a day. Here it is built under a private name and appears with
//! its record.
//!
//! Ordered steps of [`acquire`]:
//! 1. build the directory with its record under a private name, flushed;
//! 2. rename it to its name, which must be free: then the lock is held;
//! 3. else read the owner, ask what became of its process, and read it again: only the lock of the very owner
//!    that is gone is set aside, to the tombstone of its token, which stays. Back to 2, four times.
//!
//! Not flushed: nobody who holds it outlives a power cut. A crash leaves a lock of a dead process, which the next
//! one sets aside, or a directory under a private name. Spec: RS-RET-07, RS-RET-08; facts K-50 to K-52, K-60.

use std::io;

use crate::protocol::evidence::FileFact;
use crate::protocol::lease::tombstone_name;
use crate::protocol::process::{RecordedIdentity, RecordedProcess};
use crate::protocol::retention::{RetentionOwner, Subscription, lock_held_because};
use crate::protocol::{layout, limits};

use super::atomic::{Step, WriteError};
use super::host::{Host, WriteHost};
use super::read::{self, ExpectedOwner};
use super::retry::RetryPolicy;
use super::{identity, lock_dir};

/// Times that the rename is tried when others come in between. Facts K-51.
const MAX_ATTEMPTS: u32 = 4;

/// Who holds it, if somebody does.
fn owner_of<H: Host>(
    host: &H,
    temp: &H::Dir,
) -> io::Result<Option<(FileFact<RetentionOwner>, i64)>> {
    let dir = match host.open_dir_at(temp, layout::RETENTION_LOCK_DIR.as_ref()) {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let stat = host.stat_dir(&dir)?;
    let (limit, owner) = (limits::SIDECAR_MAX_BYTES, ExpectedOwner(None));
    let fact =
        read::document_unlisted(host, &dir, layout::OWNER, limit, owner, RetentionOwner::read).0;
    Ok(Some((fact, stat.mtime_ms)))
}

fn token_of(fact: &FileFact<RetentionOwner>) -> Option<&str> {
    fact.value().map(|owner| &*owner.token)
}

/// Takes the lock; `Err` of the inner result says who holds it.
pub(super) fn acquire<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
) -> Result<Result<String, String>, WriteError> {
    let name = layout::RETENTION_LOCK_DIR;
    let own = identity::own(host);
    let token = lock_dir::uuid(host);
    let owner = RetentionOwner {
        token: token.clone(),
        pid: own.pid,
        hostname: host.system().host.clone(),
        started_at_ms: host.now_ms(),
        process_start_identity: own.identity.start_identity,
    };
    let private = format!("{}{token}", layout::RETENTION_LOCK_CANDIDATE_PREFIX);
    lock_dir::build(host, temp, &private, &owner.text())?;
    let taken = contend(host, temp, &private);
    match taken {
        Ok(Ok(())) => Ok(Ok(token)),
        other => {
            // What is left of it is litter that every reader ignores.
            let _ = lock_dir::remove_tree(host, temp, &private);
            let failed = |e| WriteError::of(host, temp, Step::Rename, name, e);
            other.map(|held| held.map(|()| token)).map_err(failed)
        }
    }
}

fn contend<H: WriteHost>(host: &H, temp: &H::Dir, private: &str) -> io::Result<Result<(), String>> {
    let name = layout::RETENTION_LOCK_DIR;
    for _ in 0..MAX_ATTEMPTS {
        let (moved, _) = RetryPolicy::default()
            .run(host, || host.rename_new(temp, private.as_ref(), temp, name.as_ref()));
        match moved {
            Ok(()) => return Ok(Ok(())),
            Err(e) if is_taken(&e) => {}
            Err(e) => return Err(e),
        }
        let Some((fact, mtime_ms)) = owner_of(host, temp)? else { continue };
        let life = fact.value().map(|owner| {
            let start_identity = owner.process_start_identity.clone();
            let record = RecordedProcess {
                pid: Some(owner.pid),
                host: Some(&owner.hostname),
                identity: RecordedIdentity { start_identity, ..RecordedIdentity::default() },
                first_named_ms: Some(owner.started_at_ms),
                last_write_ms: Some(owner.started_at_ms),
                ..RecordedProcess::default()
            };
            identity::judge(host, &record).word
        });
        let age_ms = host.now_ms().saturating_sub(mtime_ms);
        let known = fact.value().zip(life);
        if let Some(why) = lock_held_because(known, &host.system().host, age_ms) {
            let who = fact.value().map_or("somebody".to_owned(), |owner| {
                format!("pid {} on {}", owner.pid, owner.hostname)
            });
            return Ok(Err(format!("{who} holds the retention lock: {why}")));
        }
        // Its owner may have let go and ended, and somebody else may hold it now: see the module's text.
        let again = owner_of(host, temp)?;
        if again.as_ref().map(|(fact, _)| token_of(fact)) != Some(token_of(&fact)) {
            continue;
        }
        let token = token_of(&fact).map_or_else(|| lock_dir::uuid(host), str::to_owned);
        let aside = tombstone_name(name, &token);
        match host.rename_new(temp, name.as_ref(), temp, aside.as_ref()) {
            Err(e) if !is_taken(&e) && e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(Err("others took the retention lock each time it was tried".to_owned()))
}

fn is_taken(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// Whether the lock is still held under this token. Facts K-52.
pub(super) fn is_held<H: Host>(host: &H, temp: &H::Dir, token: &str) -> bool {
    owner_of(host, temp)
        .is_ok_and(|found| found.is_some_and(|(fact, _)| token_of(&fact) == Some(token)))
}

/// Lets go of it, if it is ours; what cannot be removed is one of a process that will be gone.
pub(super) fn release<H: WriteHost>(host: &H, temp: &H::Dir, token: &str) {
    if is_held(host, temp, token) {
        let _ = lock_dir::discard(host, temp, layout::RETENTION_LOCK_DIR);
    }
}

/// The runs that somebody waits for. `Err` says why that is not known: then none may be removed.
/// Spec: RS-RET-03.
pub(super) fn waited_for<H: Host>(host: &H, temp: &H::Dir) -> Result<Vec<String>, String> {
    let dir = match host.open_dir_at(temp, layout::WAIT_SUBSCRIPTIONS_DIR.as_ref()) {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("{}: {}", layout::WAIT_SUBSCRIPTIONS_DIR, read::plain(&e))),
    };
    let most = limits::MAX_SMALL_RECORDS;
    let name = |entry: super::host::DirEntry| {
        let name = entry.name.to_string_lossy().into_owned();
        (name.ends_with(".json") && !name.starts_with('.')).then_some(name)
    };
    let (names, listed) = read::listed(host, &dir, most, name);
    if let Err(e) = listed {
        return Err(format!("{}: {}", layout::WAIT_SUBSCRIPTIONS_DIR, read::plain(&e)));
    }
    if names.len() >= most {
        return Err("there are more armed waits than are read".to_owned());
    }
    let mut runs = Vec::new();
    for name in names {
        let (limit, owner) = (limits::SIDECAR_MAX_BYTES, ExpectedOwner(None));
        let fact = read::document_unlisted(host, &dir, &name, limit, owner, Subscription::read).0;
        match fact {
            // One that has expired is a reference until its owner removes it.
            FileFact::Present(wait, _) => runs.push(wait.run_id),
            // It was settled meanwhile.
            FileFact::Absent => {}
            _ => {
                let dir = layout::WAIT_SUBSCRIPTIONS_DIR;
                return Err(format!("{dir}/{name} cannot be read, so it may be about any run"));
            }
        }
    }
    Ok(runs)
}
