//! Appending lines to a log that others append to as well.
//!
//! Ordered steps of [`append`]:
//! 1. look at the log; if the line would lead above the bound, move the log aside first, so that the
//!    log on disk is never above it. A log with a second name is moved aside as well: a line would
//!    show under that name, which somebody may have planted, or which keeps a copy of the store as it
//!    was. It is not refused, because a copy made of links is an honest thing, and the events of a run
//!    would be lost from then on;
//! 2. open for appending, following no link; create with mode 0600, and set that mode where the umask
//!    takes bits of the owner;
//! 3. if the last byte is not a newline, the line of a writer that died is torn: begin with a newline,
//!    so that only the torn line is lost and ours is not glued to it;
//! 4. write the line and its newline with one call, which the system does not mix with others'.
//!
//! A crash leaves the log without the line, or with the line cut at its end. Events are advice, so a
//! log is never flushed: a power cut may take the last lines, and no verdict may rest on them alone.
//! Spec: RS-EVENT-08 to RS-EVENT-12; facts E-1 to E-3, W-33, Z-58.

use std::io;

use super::atomic::{FILE_MODE, Step, WriteError, overrule_umask};
use super::host::{Part, ReadError, WriteHost};
use super::retry::RetryPolicy;

/// Where a full log is moved; what was there before is replaced.
pub fn rotated_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}.previous.{ending}"),
        None => format!("{name}.previous"),
    }
}

/// Appends one line. `line` has no newline.
///
/// # Errors
/// [`WriteError`] with [`Step::Append`] (or [`Step::Rename`] when the full log cannot be moved aside).
/// The log may then end in a part of the line.
pub fn append<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    line: &str,
    max_bytes: u64,
) -> Result<(), WriteError> {
    let fail = |step, e| WriteError::of(host, dir, step, name, e);
    debug_assert!(!line.contains('\n'), "a line is one line");
    let mut text = String::with_capacity(line.len() + 2);
    let mut fresh = false;
    match host.read_at(dir, name.as_ref(), Part::Tail(1)) {
        Ok(tail) if tail.stat.links > 1 || tail.stat.bytes + line.len() as u64 >= max_bytes => {
            let aside = rotated_name(name);
            let (moved, attempts) = RetryPolicy::default()
                .run(host, || host.rename(dir, name.as_ref(), dir, aside.as_ref()));
            moved.map_err(|e| WriteError { attempts, ..fail(Step::Rename, e) })?;
            fresh = true;
        }
        Ok(tail) if tail.bytes.last().is_some_and(|b| *b != b'\n') => text.push('\n'),
        Ok(_) => {}
        Err(ReadError::Absent) => fresh = true,
        Err(ReadError::NotPlain(kind)) => {
            let why = format!("{} stands in its place", kind.name());
            return Err(fail(Step::Append, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Err(ReadError::Io(e)) => return Err(fail(Step::Append, e)),
        Err(ReadError::TooLarge { .. }) => {}
    }
    text.push_str(line);
    text.push('\n');
    let file =
        host.open_append(dir, name.as_ref(), FILE_MODE, true).map_err(|e| fail(Step::Append, e))?;
    // A log that the umask closed to its owner could not be appended to a second time.
    if fresh {
        overrule_umask(host, &file).map_err(|e| fail(Step::SetMode, e))?;
    }
    loop {
        match host.write(&file, text.as_bytes()) {
            Ok(n) if n == text.len() => return Ok(()),
            // The rest would no longer be one call: another writer's line may stand between. Half a
            // line is torn, which every reader knows.
            Ok(_) => return Err(fail(Step::Append, cut_short(host, dir, text.len()))),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(fail(Step::Append, e)),
        }
    }
}

/// Opens a log that a process writes to directly: for appending, with mode 0600 whatever the umask, because
/// whoever looks for its last words has to be able to open it. Spec: RS-ATOM-03.
///
/// # Errors
/// As the system says.
pub(crate) fn open<H: WriteHost>(host: &H, dir: &H::Dir, name: &str) -> io::Result<H::File> {
    let file = host.open_append(dir, name.as_ref(), FILE_MODE, true)?;
    overrule_umask(host, &file)?;
    Ok(file)
}

/// The error of a write that took a part. A full disk says so only at the next call, which is not
/// made, so the free room is asked for.
fn cut_short<H: WriteHost>(host: &H, dir: &H::Dir, wanted_bytes: usize) -> io::Error {
    let full = host.space(dir).is_some_and(|space| space.free_bytes < wanted_bytes as u64);
    if full { io::ErrorKind::StorageFull.into() } else { io::ErrorKind::WriteZero.into() }
}
