//! The system's file lock, and the room of a file system where nothing nearer tells it: the one module
//! that names `fs2`.
//!
//! The lock belongs to the open file, not to the process: two openings exclude each other, also within
//! one process, and a process that dies lets go. The functions of the trait are called by their path:
//! the standard library has methods of the same names on `File`, which would win silently and are
//! newer than the oldest compiler that builds this crate.

use std::fs::File;
use std::io;

/// Takes the exclusive lock, without waiting. `false`: another opening holds it.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    loop {
        match fs2::FileExt::try_lock_exclusive(file) {
            Ok(()) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.raw_os_error() == fs2::lock_contended_error().raw_os_error() => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Lets go of the lock.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    fs2::FileExt::unlock(file)
}

/// Room on the file system of a path.
#[cfg(windows)]
pub(super) fn space(path: &std::path::Path) -> Option<super::Space> {
    let fs = fs2::statvfs(path).ok()?;
    Some(super::Space { free_bytes: fs.available_space(), total_bytes: fs.total_space() })
}
