//! A lock that keeps our own processes from changing the same file at the same time.
//!
//! No lock of the protocol protects a status, and no peer asks for this one (facts Z-20). What it adds
//! is that two of *ours* do not make each other start over, and that none of their updates is lost in
//! the window that [`sidecar`](super::sidecar) leaves. Against all others the second look of a
//! read-modify-write stays what helps.
//!
//! Ordered steps of [`Locks::acquire`]:
//! 1. make `.runstore` in the root of the store, or open the one that is there;
//! 2. open the lock file for appending, following no link; create it with mode 0600;
//! 3. take the system's lock of the open file without waiting;
//! 4. while another opening holds it, wait a little and try again, up to the budget.
//!
//! There are [`STRIPES`] lock files, and a key always has the same one, so the files never grow in number. None
//! is ever removed: a removed lock file would let two processes hold a lock under one name. For the
//! same reason a process that holds a lock asks for no second one: the two may be one file.
//!
//! A crash leaves an empty lock file that nobody holds: the system lets go for a process that dies.
//! Not promised: a lock where the file system has none or the lock file cannot be made. That is
//! [`LockError::Unavailable`], and a caller goes on without the lock: a full disk must not keep a
//! terminal record from being written.
//! Spec: RS-LOCK-01 to RS-LOCK-04.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::protocol::layout;

use super::atomic::{FILE_MODE, Step, WriteError, overrule_umask};
use super::directory;
use super::host::WriteHost;
use super::retry::RetryPolicy;

/// Number of lock files of one store.
pub const STRIPES: u8 = 16;

/// Waits between attempts, in ms; the last one repeats.
const WAITS_MS: [u64; 5] = [1, 2, 5, 10, 25];

/// The locks of one store.
#[derive(Debug)]
pub struct Locks<'a, H: WriteHost> {
    host: &'a H,
    root: &'a H::Dir,
    place: &'a str,
    wait_ms: u64,
}

/// A lock that is held until this is dropped.
#[must_use = "the lock is let go when this is dropped"]
pub struct Guard<'a, H: WriteHost> {
    host: &'a H,
    file: H::File,
    path: String,
}

impl<H: WriteHost> fmt::Debug for Guard<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<H: WriteHost> Guard<'_, H> {
    /// The path of the lock file, below the root as the caller named it.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl<H: WriteHost> Drop for Guard<'_, H> {
    fn drop(&mut self) {
        // Said in so many words: a child that was forked meanwhile shares the open file and would
        // keep the lock. A failure changes nothing, the file is closed next.
        let _ = self.host.unlock(&self.file);
    }
}

/// Why there is no lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another of our processes held it all the time.
    Contended {
        /// The lock file.
        path: String,
        /// How long it was waited for, in ms.
        waited_ms: u64,
    },
    /// The lock file cannot be made or has no lock. The caller goes on without.
    Unavailable(WriteError),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contended { path, waited_ms } => {
                write!(f, "contended: another process has held the lock {path} for {waited_ms} ms")
            }
            Self::Unavailable(_) => f.write_str("there is no lock"),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Contended { .. } => None,
            Self::Unavailable(e) => Some(e),
        }
    }
}

impl<'a, H: WriteHost> Locks<'a, H> {
    /// The locks below a runs root. `place` is its path for messages; `wait_ms` is how long one
    /// acquisition may take.
    pub fn new(host: &'a H, root: &'a H::Dir, place: &'a str, wait_ms: u64) -> Self {
        Self { host, root, place, wait_ms }
    }

    /// The host of the store.
    pub(super) fn host(&self) -> &'a H {
        self.host
    }

    /// Takes the lock of `key`, for example a run id. See the module's ordered steps.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn acquire(&self, key: &str) -> Result<Guard<'a, H>, LockError> {
        let name = lock_name(key);
        let path = format!("{}/{}/{name}", self.place, layout::OWN_DIR);
        let no_lock = |e: WriteError| LockError::Unavailable(e.below(self.place));
        let host = self.host;
        let (dir, _) = directory::create(host, self.root, layout::OWN_DIR, &RetryPolicy::default())
            .map_err(no_lock)?;
        let failed = |e| {
            let e = WriteError::of(host, &dir, Step::Lock, &name, e);
            no_lock(e.below(layout::OWN_DIR))
        };
        let file = host.open_append(&dir, name.as_ref(), FILE_MODE, true).map_err(failed)?;
        overrule_umask(host, &file).map_err(failed)?;
        let mut waited_ms = 0;
        let mut waits = WAITS_MS.iter().chain(std::iter::repeat(&WAITS_MS[WAITS_MS.len() - 1]));
        loop {
            if host.try_lock(&file).map_err(failed)? {
                return Ok(Guard { host, file, path });
            }
            let next = waits.next().copied().unwrap_or(1).min(self.wait_ms - waited_ms);
            if next == 0 {
                return Err(LockError::Contended { path, waited_ms });
            }
            host.wait_ms(next);
            waited_ms += next;
        }
    }
}

/// The lock file of a key: one of [`STRIPES`].
pub fn lock_name(key: &str) -> String {
    let stripe = Sha256::digest(key.as_bytes())[0] % STRIPES;
    format!("{}{stripe:x}{}", layout::LOCK_PREFIX, layout::LOCK_SUFFIX)
}
