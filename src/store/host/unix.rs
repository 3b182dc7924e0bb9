//! The real host on Unix: descriptors relative to a directory, no link followed, no wait.
//!
//! A file is opened in two steps: the name is looked at (or the listing has told its kind), then it
//! is opened with `O_NOFOLLOW | O_NONBLOCK` and looked at again through the descriptor. The first
//! look keeps a device or pipe from being opened at all; the second one settles a race with whoever
//! swaps the name in between.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::{DirEntry, FileKind, FileRead, Host, Part, ReadError, Stat};
use crate::protocol::process::{ProcessSeen, SystemFacts};

/// The real system.
#[derive(Debug)]
pub struct RealHost {
    system: SystemFacts,
    /// Read when something is first written, and kept: this program never changes it.
    pub(super) umask: std::sync::OnceLock<u32>,
    /// What wakes pauses, kept from one to the next. Dropping the host closes it, which can take some
    /// dozens of ms: keep the host until the answer was given.
    #[cfg(target_os = "linux")]
    pub(super) instances: std::sync::Arc<super::linux_watch::Instances>,
}

/// An open directory. Its descriptor has a position, which only a listing moves; the first listing of
/// a handle needs no rewinding.
#[derive(Debug)]
pub struct DirHandle {
    fd: OwnedFd,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    moved: AtomicBool,
    /// Whether its file system may split a rename; asked when that first matters.
    #[cfg(target_os = "linux")]
    pub(super) splits: std::sync::OnceLock<bool>,
}

impl From<OwnedFd> for DirHandle {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            moved: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            splits: std::sync::OnceLock::new(),
        }
    }
}

impl AsFd for DirHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes of one directory-listing call on the stack.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LIST_BUFFER: usize = 16 << 10;

/// The position behind the last name of a directory, where the file system says it so (ext4, btrfs): the largest
/// that there is, so no name can come after it. Others have positions of their own for it and are asked until they
/// answer with nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LAST_POSITION: u64 = i64::MAX as u64;

impl RealHost {
    /// Looks at the system once; the facts hold for the life of the process.
    pub fn new() -> Self {
        Self {
            system: system_facts(),
            umask: std::sync::OnceLock::new(),
            #[cfg(target_os = "linux")]
            instances: std::sync::Arc::default(),
        }
    }

    /// The same system under another host name (`--host`).
    #[must_use]
    pub fn with_host_name(mut self, host: &str) -> Self {
        host.clone_into(&mut self.system.host);
        self
    }
}

impl Default for RealHost {
    fn default() -> Self {
        Self::new()
    }
}

fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => FileKind::Device,
        FileType::Unknown => FileKind::Other,
    }
}

#[cfg_attr(
    target_os = "linux",
    expect(clippy::useless_conversion, reason = "the width of a mode differs between systems")
)]
#[expect(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the field types differ between Unix systems"
)]
fn stat_of(s: &rustix::fs::Stat) -> Stat {
    let ns = |sec: i64, nsec: i64| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let mtime = ns(s.st_mtime as i64, s.st_mtime_nsec as i64);
    let ctime = ns(s.st_ctime as i64, s.st_ctime_nsec as i64);
    Stat {
        kind: kind_of(FileType::from_raw_mode(s.st_mode)),
        mode: u32::from(s.st_mode) & 0o7777,
        uid: s.st_uid,
        bytes: s.st_size as u64,
        links: s.st_nlink as u64,
        id: (s.st_dev as u64, s.st_ino as u64),
        mtime_ms: i64::try_from(mtime.div_euclid(1_000_000)).unwrap_or(i64::MAX),
        stamp_ns: (mtime, ctime),
    }
}

fn read_open(
    fd: BorrowedFd<'_>,
    stat: Stat,
    part: Part,
    mut bytes: Vec<u8>,
) -> Result<FileRead, ReadError> {
    let (offset, want) = part.of(stat)?;
    let want = usize::try_from(want).map_err(|_| io::Error::other("file too long to hold"))?;
    bytes.clear();
    bytes.reserve_exact(want);
    // The length at opening bounds the read: a log that grows faster than it is read must end.
    while bytes.len() < want {
        let at = offset + bytes.len() as u64;
        let room = rustix::buffer::spare_capacity(&mut bytes);
        if rustix::io::pread(fd, room, at).map_err(io::Error::from)? == 0 {
            break;
        }
    }
    // The room may be larger than what was asked for.
    bytes.truncate(want);
    Ok(FileRead { stat, bytes, from_start: offset == 0 })
}

impl Host for RealHost {
    type Dir = DirHandle;

    fn open_dir(&self, path: &Path) -> io::Result<Self::Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
    }

    fn open_dir_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Self::Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?.into())
    }

    fn stat_dir(&self, dir: &Self::Dir) -> io::Result<Stat> {
        Ok(stat_of(&rustix::fs::fstat(dir)?))
    }

    fn stat_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Stat> {
        Ok(stat_of(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(stat_of(&rustix::fs::lstat(path)?))
    }

    fn read_at(&self, dir: &Self::Dir, name: &OsStr, part: Part) -> Result<FileRead, ReadError> {
        self.read_into(dir, name, part, Vec::new())
    }

    fn read_into(
        &self,
        dir: &Self::Dir,
        name: &OsStr,
        part: Part,
        room: Vec<u8>,
    ) -> Result<FileRead, ReadError> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Err(ReadError::Absent),
            Err(e) => {
                // A link gives ELOOP and a socket ENXIO; say what is there, not what the call said.
                if let Ok(stat) = self.stat_at(dir, name)
                    && stat.kind != FileKind::Regular
                {
                    return Err(ReadError::NotPlain(stat.kind));
                }
                return Err(io::Error::from(e).into());
            }
        };
        let stat = stat_of(&rustix::fs::fstat(&fd).map_err(io::Error::from)?);
        if stat.kind != FileKind::Regular {
            return Err(ReadError::NotPlain(stat.kind));
        }
        read_open(fd.as_fd(), stat, part, room)
    }

    fn list(
        &self,
        dir: &Self::Dir,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        list(dir, each)
    }

    fn most_open(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the host: the one home of files")]
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the host: the one home of the clock")]
    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady_ms(&self) -> i64 {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        t.tv_sec * 1000 + t.tv_nsec / 1_000_000
    }

    fn system(&self) -> &SystemFacts {
        &self.system
    }

    fn process(&self, pid: i64) -> ProcessSeen {
        #[cfg(target_os = "linux")]
        return super::linux::process(pid, self.system.boot_time_ms);
        #[cfg(not(target_os = "linux"))]
        probe_only(pid)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the host: the one home of the environment"
    )]
    fn env(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the host: the one home of the environment"
    )]
    fn temp_dir(&self) -> PathBuf {
        std::env::temp_dir()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn list(dir: &DirHandle, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
    if dir.moved.swap(true, Ordering::Relaxed) {
        rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    }
    let mut buffer = [MaybeUninit::<u8>::uninit(); LIST_BUFFER];
    let mut entries = rustix::fs::RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let behind = entry.next_entry_cookie();
        if hand_on(entry.file_name(), entry.file_type(), entry.ino(), each).is_break() {
            break;
        }
        // Asking once more would be answered with nothing.
        if behind == LAST_POSITION && entries.is_buffer_empty() {
            break;
        }
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn list(dir: &DirHandle, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        if hand_on(entry.file_name(), entry.file_type(), entry.ino(), each).is_break() {
            break;
        }
    }
    Ok(())
}

/// Hands one entry of a listing on, unless it is the directory itself or its parent.
fn hand_on(
    name: &CStr,
    file_type: FileType,
    inode: u64,
    each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let name = name.to_bytes();
    if name == b"." || name == b".." {
        return ControlFlow::Continue(());
    }
    let kind = match file_type {
        FileType::Unknown => None,
        known => Some(kind_of(known)),
    };
    each(DirEntry { name: OsString::from_vec(name.to_vec()), kind, inode })
}

/// Without a start time only absence is certain; presence stays unknown.
#[cfg(not(target_os = "linux"))]
fn probe_only(pid: i64) -> ProcessSeen {
    use crate::protocol::process::Presence;
    let gone = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
    let presence = if gone {
        Presence::Gone
    } else {
        Presence::Unknown("this platform's process start times are not read yet".to_owned())
    };
    ProcessSeen { presence, ..ProcessSeen::default() }
}

#[expect(clippy::disallowed_methods, reason = "this is the host: the one home of process facts")]
fn system_facts() -> SystemFacts {
    let uname = rustix::system::uname();
    let mut facts = SystemFacts {
        host: uname.nodename().to_string_lossy().into_owned(),
        own_pid: i64::from(std::process::id()),
        uid: Some(rustix::process::geteuid().as_raw()),
        ..SystemFacts::default()
    };
    #[cfg(target_os = "linux")]
    super::linux::fill(&mut facts);
    // An empty name would match every record that has none.
    if facts.host.is_empty() {
        facts.host = "localhost".to_owned();
    }
    facts
}
