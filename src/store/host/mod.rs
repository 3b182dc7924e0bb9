//! The one door to files, clock, processes and environment.
//!
//! Theory of operation. The store asks everything of a [`Host`], so that a test can put a scripted
//! world under it and replay any fault. The trait is shaped by what a reader needs and may do: open a
//! directory, look at one name in it without following links, read one plain file up to a bound, list
//! names, look at a process. It has no way to follow a link, to block on a pipe, or to write.
//!
//! A name passed to an `…_at` method is one path component; the host never joins paths for opening,
//! so a directory that is renamed away keeps answering for itself.
//!
//! [`RealHost`] is the only implementation that touches the system; only it and its platform files
//! may call the standard library for effects. It exists on Unix and on Windows. Elsewhere the library
//! works with a host that its user brings.
//! Spec: RS-READ-11.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::protocol::DecodeError;
use crate::protocol::process::{ProcessSeen, SystemFacts};

#[cfg(any(unix, windows))]
mod chance;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod linux_watch;
#[cfg(any(unix, windows))]
mod lock;
#[cfg(target_os = "linux")]
mod pidfd_info;
#[cfg(all(any(unix, windows), not(target_os = "linux")))]
mod plain_watch;
mod process;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod unix_process;
#[cfg(unix)]
mod unix_write;
mod watch;
#[cfg(windows)]
mod windows;
#[cfg(any(windows, test))]
mod windows_name;
#[cfg(windows)]
mod windows_write;
mod write;

#[cfg(target_os = "linux")]
pub use linux_watch::RealWatch;
pub use process::{Adopted, Command, Exit, ProcessHost, Signal, Waited};
#[cfg(unix)]
pub use unix::RealHost;
#[cfg(unix)]
pub use unix_process::{RealChild, RealHandle};
pub use watch::WatchHost;
#[cfg(windows)]
pub use windows::RealHost;
pub use write::{Space, WriteHost};

/// What kind of thing a name is, without following a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
    /// Anything else.
    Other,
}

impl FileKind {
    /// The noun used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regular => "a plain file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "not a plain file",
        }
    }
}

/// What is known of a name or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind, without following a link.
    pub kind: FileKind,
    /// Permission bits (0 where the platform has none).
    pub mode: u32,
    /// Owner (0 where the platform has none).
    pub uid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of names of a file; 1 where the platform does not tell.
    pub links: u64,
    /// Device and inode; zeros where the platform tells none.
    pub id: (u64, u64),
    /// Modification time, ms since the epoch.
    pub mtime_ms: i64,
    /// Modification and change time in ns, for telling whether anything changed. On Windows the
    /// second one is the time of creation.
    pub stamp_ns: (i128, i128),
}

impl Stat {
    /// Whether the file has a number of its own. Where it has none, a file that was replaced by one of
    /// the same length within one tick of the clock looks the same: compare the bytes as well.
    pub fn is_numbered(&self) -> bool {
        self.id != (0, 0)
    }

    /// Whether two observations are of the same unchanged file, as far as its [`Stat`] tells.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.id == other.id && self.bytes == other.bytes && self.stamp_ns == other.stamp_ns
    }
}

/// Which part of a file is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// All of it, if it is at most this long; otherwise nothing.
    All(u64),
    /// At most this many bytes from the end.
    Tail(u64),
    /// What comes after so many bytes, at most this many; nothing of a file that is shorter.
    After {
        /// Bytes that are passed over.
        start_bytes: u64,
        /// Most bytes that are read.
        limit_bytes: u64,
    },
}

impl Part {
    /// Where the part of a file begins and how long it is, in bytes.
    #[cfg(any(unix, windows))]
    fn of(self, stat: Stat) -> Result<(u64, u64), ReadError> {
        match self {
            Self::All(limit_bytes) if stat.bytes > limit_bytes => {
                Err(ReadError::TooLarge { bytes: stat.bytes, limit_bytes, stat })
            }
            Self::All(_) => Ok((0, stat.bytes)),
            Self::Tail(limit) => Ok((stat.bytes.saturating_sub(limit), stat.bytes.min(limit))),
            Self::After { start_bytes, limit_bytes } => {
                Ok((start_bytes, stat.bytes.saturating_sub(start_bytes).min(limit_bytes)))
            }
        }
    }
}

/// What was read.
#[derive(Clone, Debug)]
pub struct FileRead {
    /// The open file, as it was when it was opened.
    pub stat: Stat,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether `bytes` start at the start of the file.
    pub from_start: bool,
}

/// Why a file was not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The name is not there.
    Absent,
    /// The name is not a plain file.
    NotPlain(FileKind),
    /// Longer than the bound.
    TooLarge {
        /// Size of the file.
        bytes: u64,
        /// The bound.
        limit_bytes: u64,
        /// The file.
        stat: Stat,
    },
    /// The system refused.
    Io(io::Error),
}

/// The end of a sentence about the file: what is wrong with it, without its name.
impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it is gone"),
            Self::NotPlain(kind) => write!(f, "it is {}", kind.name()),
            Self::TooLarge { bytes, limit_bytes, .. } => {
                DecodeError::TooLarge { bytes: *bytes, limit_bytes: *limit_bytes }.fmt(f)
            }
            Self::Io(e) => f.write_str(&super::read::plain(e)),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::NotFound { Self::Absent } else { Self::Io(e) }
    }
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name, as bytes of the platform.
    pub name: OsString,
    /// The kind, where the listing tells it for free.
    pub kind: Option<FileKind>,
    /// The number that the file system has for it; 0 where the listing tells none.
    pub inode: u64,
}

/// The door. See the module's theory of operation.
pub trait Host: Send + Sync {
    /// An open directory.
    type Dir: Send + Sync;

    /// Opens a directory by path. Links in the path are followed: the caller chose it.
    ///
    /// # Errors
    /// As the system says.
    fn open_dir(&self, path: &Path) -> io::Result<Self::Dir>;

    /// Opens a directory by one name, following no link.
    ///
    /// # Errors
    /// As the system says; a link is an error.
    fn open_dir_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Self::Dir>;

    /// Looks at an open directory.
    ///
    /// # Errors
    /// As the system says.
    fn stat_dir(&self, dir: &Self::Dir) -> io::Result<Stat>;

    /// Looks at one name, following no link.
    ///
    /// # Errors
    /// As the system says.
    fn stat_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Stat>;

    /// How many files this process may have open; `None` where nothing says.
    fn most_open(&self) -> Option<u64> {
        None
    }

    /// Looks at a path, not following a link in its last component.
    ///
    /// # Errors
    /// As the system says.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Reads a part of one plain file, following no link and never waiting for another process.
    /// Spec: RS-READ-02.
    ///
    /// # Errors
    /// [`ReadError`].
    fn read_at(&self, dir: &Self::Dir, name: &OsStr, part: Part) -> Result<FileRead, ReadError>;

    /// As [`Host::read_at`], into `room` if the host can use it: whoever reads many files gives what the last one
    /// was read into. What is in it does not matter.
    ///
    /// # Errors
    /// As [`Host::read_at`]; the room is lost then.
    fn read_into(
        &self,
        dir: &Self::Dir,
        name: &OsStr,
        part: Part,
        room: Vec<u8>,
    ) -> Result<FileRead, ReadError> {
        drop(room);
        self.read_at(dir, name, part)
    }

    /// Calls `each` for every name but `.` and `..`, in the system's order, until it breaks.
    ///
    /// # Errors
    /// As the system says.
    fn list(
        &self,
        dir: &Self::Dir,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()>;

    /// Turns a path into an absolute one without looking at the disk.
    fn absolute(&self, path: &Path) -> PathBuf;

    /// The path of what a path leads to, with every link followed. It must exist.
    ///
    /// # Errors
    /// As the system says.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf>;

    /// The wall clock, ms since the epoch.
    fn now_ms(&self) -> i64;

    /// A clock that nobody sets, in ms since some instant: for how long something took, never for when it
    /// was. A host without one answers with the wall clock.
    fn steady_ms(&self) -> i64 {
        self.now_ms()
    }

    /// The observing side: host name, boot, namespace, own pid.
    fn system(&self) -> &SystemFacts;

    /// What is at a pid now. `pid` must be in `1..=i32::MAX`.
    fn process(&self, pid: i64) -> ProcessSeen;

    /// An environment variable.
    fn env(&self, name: &str) -> Option<OsString>;

    /// The system's directory for temporary files.
    fn temp_dir(&self) -> PathBuf;
}
