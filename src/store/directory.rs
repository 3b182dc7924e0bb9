//! Directories: made private, durable where asked, and removed when empty.
//!
//! Ordered steps of [`create`]:
//! 1. open the one that is there (and go on with step 4), or make it with mode 0700; try both again
//!    while another program holds the name;
//! 2. if the umask took bits of the owner, set the mode by name: without them not even the owner could
//!    open it;
//! 3. open it, following no link;
//! 4. check the open directory: of this user, and, if it was made here, with mode 0700;
//! 5. in [`create_durable`], flush the parent, if it was made here.
//!
//! [`open_root`] opens the directory that everything else is relative to, and refuses one that others
//! control; [`create_root`] makes it first.
//!
//! [`create_path`] does this for one component after the other. Each parent is flushed before the
//! next component is made, so that after a power cut a directory that is there can be reached.
//!
//! What a crash leaves: an empty directory, which every reader takes for an index without entries.
//! Between steps 1 and 2 it leaves one that its owner cannot enter; the error of the next attempt
//! says so.
//!
//! Not promised: that a directory made by another program is durable. Its maker flushes it or does
//! not; a flush of it for each write here would double the price of every write.
//! An old mode is left alone, also a looser one: whoever shares the store may rely on it.
//! Spec: RS-ATOM-03, RS-ATOM-07, RS-ATOM-12, RS-DUR-06, RS-RETRY-01; facts W-1, W-10, Z-5.

use std::io;
use std::path::Path;

use crate::protocol::error::with_causes;
use crate::protocol::limits;

use super::atomic::{DIR_MODE, Step, WriteError};
use super::host::{FileKind, Host, Stat, WriteHost};
use super::read;
use super::retry::{Attempts, RetryPolicy};

/// Opens the root of a store for writing, by its path. Spec: RS-ATOM-12.
///
/// # Errors
/// As the system says, and when the root is no place to write to: a link, which whoever made it may
/// lead elsewhere; another user's; or one in which other users may rename what is written. The error
/// says what to do. A root with the sticky bit is taken, because in it nobody renames what is not his.
pub fn open_root<H: Host>(host: &H, path: &Path) -> io::Result<H::Dir> {
    let refuse = |what: String| {
        let why = format!("{} is not written to: {what}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    };
    let named = host.stat(path)?;
    if named.kind == FileKind::Link {
        return refuse("it is a symbolic link; name the directory that it leads to".to_owned());
    }
    let dir = host.open_dir(path)?;
    let stat = host.stat_dir(&dir)?;
    if stat.id != named.id {
        return refuse("it was replaced while it was opened; try again".to_owned());
    }
    // Root may write into the store of another user.
    if let Some(own) = host.system().uid.filter(|own| *own != 0 && *own != stat.uid) {
        let uid = stat.uid;
        return refuse(format!(
            "it is owned by another user (uid {uid}, not {own}); set another root"
        ));
    }
    if stat.mode & 0o022 != 0 && stat.mode & 0o1000 == 0 {
        let mode = stat.mode & 0o7777;
        return refuse(format!(
            "other users may change it (mode {mode:04o}); set its mode to 0700"
        ));
    }
    Ok(dir)
}

/// [`open_root`], after what is missing of the path was made: each level with mode 0700, and durable before
/// the next. Spec: RS-ATOM-12.
///
/// # Errors
/// As [`open_root`], and when a level cannot be made.
pub fn create_root<H: WriteHost>(host: &H, path: &Path) -> io::Result<H::Dir> {
    let path = host.absolute(path);
    let mut there: &Path = &path;
    let mut missing = Vec::new();
    // The longest part that is there. Links in it are the user's own way of naming the place.
    while let Err(e) = host.stat(there) {
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else { return Err(e) };
        if e.kind() != io::ErrorKind::NotFound {
            return Err(e);
        }
        let name = name.to_str().ok_or_else(|| {
            let why = "a directory that is to be made needs a name that is text; make it yourself";
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        missing.push(name);
        there = parent;
    }
    if !missing.is_empty() {
        missing.reverse();
        let top = host.open_dir(there)?;
        create_path(host, &top, &missing, &RetryPolicy::default())
            .map_err(|e| io::Error::new(e.source.kind(), with_causes(&e)))?;
    }
    open_root(host, &path)
}

/// Whether a directory was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made, with mode 0700, and took this.
    Created(Attempts),
    /// It was there.
    Existed,
}

/// Times that a directory is tried when others make and prune it at the same time.
const PRUNED_ATTEMPTS: u32 = 4;

/// Makes one directory, or opens the one that is there. See the module's ordered steps.
///
/// # Errors
/// [`WriteError`] with [`Step::CreateDirectory`]: the system refused, or what is there is no directory
/// of this user.
pub fn create<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    retry: &RetryPolicy,
) -> Result<(H::Dir, Made), WriteError> {
    let failed = |e| WriteError::of(host, parent, Step::CreateDirectory, name, e);
    let mut attempt = 0;
    loop {
        attempt += 1;
        // Most directories are there: looking first saves a call for each. The look is a part of each
        // attempt, because a directory that is on its way out refuses the look as well on Windows.
        let (found, attempts) =
            retry.run(host, || match open_checked(host, parent, name, Made::Existed) {
                Ok(dir) => Ok(Some(dir)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    host.create_dir(parent, name.as_ref(), DIR_MODE).map(|()| None)
                }
                Err(e) => Err(e),
            });
        let opened = match found {
            Ok(Some(dir)) => return Ok((dir, Made::Existed)),
            Ok(None) => open_made(host, parent, name, attempts),
            Err(e) => Err(e),
        };
        use io::ErrorKind::{AlreadyExists, NotFound};
        match opened {
            Ok(dir) => return Ok((dir, Made::Created(attempts))),
            // Somebody made it, or pruned it while it was empty.
            Err(e) if matches!(e.kind(), AlreadyExists | NotFound) && attempt < PRUNED_ATTEMPTS => {
            }
            Err(e) => return Err(WriteError { attempts, ..failed(e) }),
        }
    }
}

/// Makes one directory that must not be there yet.
///
/// # Errors
/// [`WriteError`] with [`Step::CreateDirectory`], of the kind `AlreadyExists` when anything stands at the
/// name.
pub fn create_new<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    retry: &RetryPolicy,
) -> Result<H::Dir, WriteError> {
    let (made, attempts) = retry.run(host, || host.create_dir(parent, name.as_ref(), DIR_MODE));
    made.and_then(|()| open_made(host, parent, name, attempts)).map_err(|e| WriteError {
        attempts,
        ..WriteError::of(host, parent, Step::CreateDirectory, name, e)
    })
}

/// Steps 2 to 4 for a directory that was made here.
fn open_made<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    attempts: Attempts,
) -> io::Result<H::Dir> {
    if DIR_MODE & host.umask() != 0 {
        host.set_dir_mode(parent, name.as_ref(), DIR_MODE)?;
    }
    open_checked(host, parent, name, Made::Created(attempts))
}

/// Steps 3 and 4: handle and check.
fn open_checked<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    made: Made,
) -> io::Result<H::Dir> {
    let dir = match host.open_dir_at(parent, name.as_ref()) {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(e),
        Err(e) => return Err(explained(host, parent, name, e)),
    };
    let stat = host.stat_dir(&dir)?;
    check(host, parent, &stat, made)?;
    Ok(dir)
}

/// Says what stands in the place of a directory that cannot be opened.
fn explained<H: Host>(host: &H, parent: &H::Dir, name: &str, e: io::Error) -> io::Error {
    match host.stat_at(parent, name.as_ref()) {
        Ok(stat) if stat.kind != FileKind::Directory => io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} stands in its place; remove it by hand", stat.kind.name()),
        ),
        Ok(stat) if stat.mode & 0o500 != 0o500 && Some(stat.uid) == host.system().uid => {
            io::Error::new(
                e.kind(),
                format!("its mode {:04o} keeps its owner out; set it to 0700", stat.mode & 0o7777),
            )
        }
        _ => e,
    }
}

fn check<H: Host>(host: &H, parent: &H::Dir, stat: &Stat, made: Made) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if let Some(own) = host.system().uid {
        // Root may write into the store of another user.
        let of_store = own == 0 && host.stat_dir(parent)?.uid == stat.uid;
        if stat.uid != own && !of_store {
            return refuse(format!("it is owned by another user (uid {})", stat.uid));
        }
        // Where there are users there are modes. A mode that was taken over from the parent, as the
        // set-group-id bit is, does no harm.
        if matches!(made, Made::Created(_)) && stat.mode & 0o777 != DIR_MODE {
            return refuse(format!("it was made with mode {:04o}", stat.mode & 0o7777));
        }
    }
    Ok(())
}

/// [`create`], and a flush of the parent if the directory was made here.
///
/// # Errors
/// As [`create`], and [`Step::FlushDirectory`]: the directory is there, but may not survive a power
/// cut.
pub fn create_durable<H: WriteHost>(
    host: &H,
    parent: &H::Dir,
    name: &str,
    retry: &RetryPolicy,
) -> Result<(H::Dir, Made), WriteError> {
    let (dir, made) = create(host, parent, name, retry)?;
    if matches!(made, Made::Created(_)) {
        host.sync_dir(parent)
            .map_err(|e| WriteError::of(host, parent, Step::FlushDirectory, name, e))?;
    }
    Ok((dir, made))
}

/// Makes a path of nested directories below an open one, each durable before the next.
///
/// # Errors
/// As [`create_durable`], for the first component that fails.
///
/// # Panics
/// When `names` is empty.
pub fn create_path<H: WriteHost>(
    host: &H,
    top: &H::Dir,
    names: &[&str],
    retry: &RetryPolicy,
) -> Result<H::Dir, WriteError> {
    let mut dir: Option<H::Dir> = None;
    for (i, name) in names.iter().enumerate() {
        let made = create_durable(host, dir.as_ref().unwrap_or(top), name, retry);
        let made = made.map_err(|e| if i == 0 { e } else { e.below(&names[..i].join("/")) })?;
        dir = Some(made.0);
    }
    Ok(dir.expect("a path has a component"))
}

/// Opens a path of nested directories; `None` when a component is not there.
///
/// # Errors
/// As the system says; a link is an error.
pub fn open_path<H: Host>(host: &H, top: &H::Dir, names: &[&str]) -> io::Result<Option<H::Dir>> {
    let mut dir: Option<H::Dir> = None;
    for name in names {
        match host.open_dir_at(dir.as_ref().unwrap_or(top), name.as_ref()) {
            Ok(next) => dir = Some(next),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    Ok(dir)
}

/// Removes a directory if it is there and empty. Says whether it was removed.
///
/// # Errors
/// As the system says, except that a directory that is not empty or not there is no error.
pub fn remove_if_empty<H: WriteHost>(host: &H, parent: &H::Dir, name: &str) -> io::Result<bool> {
    match host.remove_dir(parent, name.as_ref()) {
        Ok(()) => Ok(true),
        Err(e) => match e.kind() {
            // Some systems say that a directory with entries exists.
            io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotFound => Ok(false),
            _ => Err(e),
        },
    }
}

/// Names of the directories in a directory, at most [`limits::MAX_SMALL_RECORDS`]. A name that is not
/// Unicode is no name of the protocol and is left out.
///
/// # Errors
/// As the system says.
pub(super) fn names_of_directories<H: Host>(host: &H, dir: &H::Dir) -> io::Result<Vec<String>> {
    let (names, done) = read::listed(host, dir, limits::MAX_SMALL_RECORDS, |entry| {
        let may_be_one = matches!(entry.kind, Some(FileKind::Directory) | None);
        entry.name.to_str().filter(|_| may_be_one).map(str::to_owned)
    });
    done.map(|()| names)
}
