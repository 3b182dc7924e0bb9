//! The real host on Windows: paths, no link followed in the last component, and unknown processes.
//!
//! A directory is a path here, because the standard library opens nothing relative to a handle on this
//! system. Links and junctions are refused at each component when it is looked at, and a file is looked
//! at again through its handle. What that does not protect from: somebody who may write into a parent
//! and swaps a directory for another one, or for a junction, *between* two calls redirects the second
//! one. So a store belongs below a directory that only its user may change, which the user's own
//! directory for temporary files is.
//!
//! Files have no number that the standard library tells, so [`Stat::id`] is zero for all of them; see
//! [`Stat::is_numbered`]. The second stamp is the time of creation, which a replacement has anew most
//! of the time. Owners and modes do not exist; access lists are inherited from the parent and are not
//! looked at. Every process is *unknown*: neither its absence nor its start time is read. Unknown is
//! never dead, so nothing is concluded from it. All of this stands in `LIMITATIONS.md` as well.
//!
//! A crash of a reader leaves nothing. Every file is opened so that others may read, write, rename and
//! delete it meanwhile (the standard library's default), so a reader never stands in a writer's way.
#![expect(clippy::disallowed_methods, reason = "this is the host: the one home of effects")]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{DirEntry, FileKind, FileRead, Host, Part, ReadError, Stat, windows_name};
use crate::protocol::process::{Presence, ProcessSeen, SystemFacts};

/// Opens a link or junction itself instead of what it leads to: `FILE_FLAG_OPEN_REPARSE_POINT`.
pub(super) const NO_FOLLOW: u32 = 0x0020_0000;
/// Without it no directory can be opened: `FILE_FLAG_BACKUP_SEMANTICS`.
const DIRECTORY: u32 = 0x0200_0000;
/// Enough to look at what was opened: `FILE_READ_ATTRIBUTES`.
const LOOK: u32 = 0x80;

/// The real system.
#[derive(Debug)]
pub struct RealHost {
    system: SystemFacts,
    started: std::time::Instant,
}

impl RealHost {
    /// Looks at the system once.
    pub fn new() -> Self {
        let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned());
        let own_pid = i64::from(std::process::id());
        let started = std::time::Instant::now();
        Self { system: SystemFacts { host, own_pid, ..SystemFacts::default() }, started }
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

/// The path of one name in a directory.
///
/// Joining a name that is none would leave the directory (`C:x`, `\x`, `..`), reach another file than
/// the one that was named (`x.`, `x:y`) or a device (`NUL`), so such names are refused before.
pub(super) fn at(dir: &Path, name: &OsStr) -> io::Result<PathBuf> {
    // What is not Unicode cannot hold one of the refused characters where it is replaced here.
    if windows_name::is_plain(&name.to_string_lossy()) {
        return Ok(dir.join(name));
    }
    let why = format!("on Windows {} is no name of a file", name.display());
    Err(io::Error::new(io::ErrorKind::InvalidFilename, why))
}

fn kind_of(t: std::fs::FileType) -> FileKind {
    // A junction is a link to the standard library, so it is never a directory here.
    if t.is_symlink() {
        FileKind::Link
    } else if t.is_dir() {
        FileKind::Directory
    } else if t.is_file() {
        FileKind::Regular
    } else {
        FileKind::Other
    }
}

pub(super) fn stat_of(m: &std::fs::Metadata) -> Stat {
    let ns = |time: io::Result<std::time::SystemTime>| {
        let since = time.ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        since.map_or(0, |d| i128::try_from(d.as_nanos()).unwrap_or(0))
    };
    let modified = ns(m.modified());
    Stat {
        kind: kind_of(m.file_type()),
        mode: 0,
        uid: 0,
        bytes: m.len(),
        links: 1,
        id: (0, 0),
        mtime_ms: i64::try_from(modified / 1_000_000).unwrap_or(i64::MAX),
        stamp_ns: (modified, ns(m.created())),
    }
}

fn read_open(mut file: &File, stat: Stat, part: Part) -> Result<FileRead, ReadError> {
    let (offset, want) = part.of(stat)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    // The length at opening bounds the read: a log that grows faster than it is read must end.
    file.take(want).read_to_end(&mut bytes)?;
    Ok(FileRead { stat, bytes, from_start: offset == 0 })
}

impl Host for RealHost {
    type Dir = PathBuf;

    fn open_dir(&self, path: &Path) -> io::Result<PathBuf> {
        if std::fs::metadata(path)?.is_dir() {
            // Absolute, so that a later change of the working directory moves nothing.
            std::path::absolute(path)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    fn open_dir_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<PathBuf> {
        let path = at(dir, name)?;
        // Opened and not only looked at: a directory that is on its way out, because somebody has it
        // open still, can be looked at, but nothing can be made in it.
        let flags = NO_FOLLOW | DIRECTORY;
        let opened = OpenOptions::new().access_mode(LOOK).custom_flags(flags).open(&path)?;
        if stat_of(&opened.metadata()?).kind == FileKind::Directory {
            Ok(path)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    fn stat_dir(&self, dir: &PathBuf) -> io::Result<Stat> {
        // The handle of a directory that was opened by path is what the path leads to.
        Ok(stat_of(&std::fs::metadata(dir)?))
    }

    fn stat_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<Stat> {
        self.stat(&at(dir, name)?)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(stat_of(&std::fs::symlink_metadata(path)?))
    }

    fn read_at(&self, dir: &PathBuf, name: &OsStr, part: Part) -> Result<FileRead, ReadError> {
        let path = at(dir, name)?;
        // The first look keeps a directory from being opened, which says no more than "access denied"
        // here. The second one, through the handle, settles a race with whoever swaps the name.
        let named = self.stat(&path)?;
        if named.kind != FileKind::Regular {
            return Err(ReadError::NotPlain(named.kind));
        }
        let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(&path)?;
        let stat = stat_of(&file.metadata()?);
        if stat.kind != FileKind::Regular {
            return Err(ReadError::NotPlain(stat.kind));
        }
        read_open(&file, stat, part)
    }

    fn list(
        &self,
        dir: &PathBuf,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type().ok().map(kind_of);
            if each(DirEntry { name: entry.file_name(), kind, inode: 0 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let real = std::fs::canonicalize(path)?;
        // The answer is a verbatim path; other programs name the same file without the prefix, and
        // what is compared with theirs must be spelled like theirs.
        Ok(match real.to_str().and_then(|text| text.strip_prefix(r"\\?\")) {
            Some(plain) if plain.as_bytes().get(1) == Some(&b':') => PathBuf::from(plain),
            _ => real,
        })
    }

    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn system(&self) -> &SystemFacts {
        &self.system
    }

    fn process(&self, _pid: i64) -> ProcessSeen {
        let why = "this platform's processes are not read yet".to_owned();
        ProcessSeen { presence: Presence::Unknown(why), ..ProcessSeen::default() }
    }

    fn env(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn temp_dir(&self) -> PathBuf {
        std::env::temp_dir()
    }
}
