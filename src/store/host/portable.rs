//! The real host where there are no directory handles: paths, and unknown processes.
//!
//! Limits, written in `LIMITATIONS.md` as well: a directory is a path here, so a swapped path can
//! redirect a later open; owners are not checked; and every process is *unknown*, because neither its
//! absence nor its start time is read yet. Unknown is never dead, so nothing is concluded from it.
#![expect(clippy::disallowed_methods, reason = "this is the host: the one home of effects")]

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::{DirEntry, FileKind, FileRead, Host, Part, ReadError, Stat};
use crate::protocol::process::{Presence, ProcessSeen, SystemFacts};

/// The real system.
#[derive(Debug)]
pub struct RealHost {
    system: SystemFacts,
}

impl RealHost {
    /// Looks at the system once.
    pub fn new() -> Self {
        let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned());
        let own_pid = i64::from(std::process::id());
        Self { system: SystemFacts { host, own_pid, ..SystemFacts::default() } }
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

fn kind_of(t: std::fs::FileType) -> FileKind {
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

fn stat_of(m: &std::fs::Metadata) -> Stat {
    let modified = m.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let ns = modified.map_or(0, |d| i128::try_from(d.as_nanos()).unwrap_or(0));
    Stat {
        kind: kind_of(m.file_type()),
        mode: 0,
        uid: 0,
        bytes: m.len(),
        id: (0, 0),
        mtime_ms: i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX),
        stamp_ns: (ns, ns),
    }
}

impl Host for RealHost {
    type Dir = PathBuf;

    fn open_dir(&self, path: &Path) -> io::Result<PathBuf> {
        if std::fs::metadata(path)?.is_dir() {
            Ok(path.to_owned())
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    fn open_dir_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<PathBuf> {
        let path = dir.join(name);
        if std::fs::symlink_metadata(&path)?.is_dir() {
            Ok(path)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    fn stat_dir(&self, dir: &PathBuf) -> io::Result<Stat> {
        self.stat(dir)
    }

    fn stat_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<Stat> {
        self.stat(&dir.join(name))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(stat_of(&std::fs::symlink_metadata(path)?))
    }

    fn read_at(&self, dir: &PathBuf, name: &OsStr, part: Part) -> Result<FileRead, ReadError> {
        let path = dir.join(name);
        let stat = self.stat(&path)?;
        if stat.kind != FileKind::Regular {
            return Err(ReadError::NotPlain(stat.kind));
        }
        let (offset, want) = match part {
            Part::All(limit) if stat.bytes > limit => {
                return Err(ReadError::TooLarge { bytes: stat.bytes, limit_bytes: limit, stat });
            }
            Part::All(_) => (0, stat.bytes),
            Part::Tail(limit) => (stat.bytes.saturating_sub(limit), stat.bytes.min(limit)),
        };
        let mut file = std::fs::File::open(&path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(want).read_to_end(&mut bytes)?;
        Ok(FileRead { stat, bytes, from_start: offset == 0 })
    }

    fn list(
        &self,
        dir: &PathBuf,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type().ok().map(kind_of);
            if each(DirEntry { name: entry.file_name(), kind }).is_break() {
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
        // On Windows the answer is a verbatim path; other programs name the same file without the
        // prefix, and what is compared with theirs must be spelled like theirs.
        Ok(match real.to_str().and_then(|text| text.strip_prefix(r"\\?\")) {
            Some(plain) if plain.as_bytes().get(1) == Some(&b':') => PathBuf::from(plain),
            _ => real,
        })
    }

    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
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
