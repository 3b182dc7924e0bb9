//! The writing half of the real host on Windows.
//!
//! What differs from Unix, and what takes its place:
//! * modes and the umask do not exist: a new file inherits the access list of its directory;
//! * a directory cannot be flushed by what the standard library offers: see [`WriteHost::sync_dir`];
//! * a rename is made with POSIX semantics where the system has them, so that it goes through although
//!   readers have the old file open; where another program forbids it, [`crate::store::retry`] waits;
//! * access denied is also what a rename onto a directory says; it is told apart here, so that nobody
//!   waits for a directory to go away;
//! * the lock of a file is not advisory here: it keeps others from the bytes of the lock file. Nobody
//!   has business with those.
//!
//! One effect for each method: a crash leaves what stood before it or what it makes.
//! Spec: RS-ATOM-13, RS-RETRY-07.
#![expect(clippy::disallowed_methods, reason = "this is the host: the one home of effects")]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::windows::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::windows::{NO_FOLLOW, RealHost, at, stat_of};
use super::write::{Space, WriteHost};
use super::{FileKind, Host as _};

/// `ERROR_ACCESS_DENIED`.
const ACCESS_DENIED: i32 = 5;

impl WriteHost for RealHost {
    type File = File;

    fn create(&self, dir: &PathBuf, name: &OsStr, _mode: u32) -> io::Result<File> {
        let path = at(dir, name)?;
        OpenOptions::new().write(true).create_new(true).custom_flags(NO_FOLLOW).open(path)
    }

    fn open_append(
        &self,
        dir: &PathBuf,
        name: &OsStr,
        _mode: u32,
        create: bool,
    ) -> io::Result<File> {
        let path = at(dir, name)?;
        // Reading as well: a file that is open for appending only cannot be locked here.
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(create)
            .custom_flags(NO_FOLLOW)
            .open(path)?;
        if stat_of(&file.metadata()?).kind == FileKind::Regular {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"))
        }
    }

    fn set_mode(&self, _file: &File, _mode: u32) -> io::Result<()> {
        // There are no modes; the access list that was inherited stays.
        Ok(())
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_dir(&self, _dir: &PathBuf) -> io::Result<()> {
        // Flushing a directory is no documented operation here: a file system of this platform brings
        // its own journal of names to the disk, within seconds. An error instead of silence would
        // fail every durable write of the platform; what is not promised stands in `LIMITATIONS.md`.
        Ok(())
    }

    fn rename(
        &self,
        from_dir: &PathBuf,
        from: &OsStr,
        to_dir: &PathBuf,
        to: &OsStr,
    ) -> io::Result<()> {
        let (from, to) = (at(from_dir, from)?, at(to_dir, to)?);
        std::fs::rename(&from, &to).map_err(|e| taken(&from, &to, &e).unwrap_or(e))
    }

    fn rename_new(
        &self,
        from_dir: &PathBuf,
        from: &OsStr,
        to_dir: &PathBuf,
        to: &OsStr,
    ) -> io::Result<()> {
        // The standard library always replaces. A hard link and a removal would be two steps, and the
        // second one can be refused; `tempfile` has the one call of the system that does not replace.
        let (from, to) = (verbatim(at(from_dir, from)?), verbatim(at(to_dir, to)?));
        let mut path = tempfile::TempPath::try_from_path(from)?;
        // The store removes what it made by itself, and knows when.
        path.disable_cleanup(true);
        path.persist_noclobber(to).map_err(|e| e.error)
    }

    fn add_name(&self, dir: &PathBuf, name: &OsStr, other: &OsStr) -> io::Result<()> {
        std::fs::hard_link(at(dir, name)?, at(dir, other)?)
    }

    fn may_split_rename(&self, _dir: &PathBuf) -> bool {
        // NTFS and ReFS do not; FAT may, and has no second names.
        false
    }

    fn unlink(&self, dir: &PathBuf, name: &OsStr) -> io::Result<()> {
        let path = at(dir, name)?;
        // A link to a directory, or a junction, is removed as a directory is; what it leads to stays.
        if std::fs::symlink_metadata(&path)?.file_type().is_symlink_dir() {
            return std::fs::remove_dir(path);
        }
        std::fs::remove_file(path)
    }

    fn create_dir(&self, dir: &PathBuf, name: &OsStr, _mode: u32) -> io::Result<()> {
        std::fs::create_dir(at(dir, name)?)
    }

    fn set_dir_mode(&self, dir: &PathBuf, name: &OsStr, _mode: u32) -> io::Result<()> {
        self.open_dir_at(dir, name).map(drop)
    }

    fn remove_dir(&self, dir: &PathBuf, name: &OsStr) -> io::Result<()> {
        // Looked at first, because the call would remove a link as well.
        std::fs::remove_dir(self.open_dir_at(dir, name)?)
    }

    fn try_lock(&self, file: &File) -> io::Result<bool> {
        super::lock::try_lock(file)
    }

    fn unlock(&self, file: &File) -> io::Result<()> {
        super::lock::unlock(file)
    }

    fn umask(&self) -> u32 {
        0
    }

    fn random(&self) -> u64 {
        super::chance::chance()
    }

    fn wait_ms(&self, ms: u64) {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }

    fn space(&self, dir: &PathBuf) -> Option<Space> {
        super::lock::space(dir)
    }
}

/// What Unix would have said of a rename onto, or of, a directory; `None` when none is concerned.
fn taken(from: &Path, to: &Path, e: &io::Error) -> Option<io::Error> {
    if e.raw_os_error() != Some(ACCESS_DENIED) {
        return None;
    }
    let is_dir = |path| std::fs::symlink_metadata(path).ok().map(|m| m.is_dir());
    match (is_dir(from)?, is_dir(to)?) {
        (true, true) => Some(io::ErrorKind::DirectoryNotEmpty.into()),
        (false, true) => Some(io::ErrorKind::IsADirectory.into()),
        (true, false) => Some(io::ErrorKind::NotADirectory.into()),
        (false, false) => None,
    }
}

/// A long path as the system takes it at any length. The standard library does the same for its own
/// calls, and others pass a path on as it is. Every directory here has an absolute path without dots.
fn verbatim(path: PathBuf) -> PathBuf {
    // Where the system stops taking plain paths of directories; of files a little later.
    const LONG: usize = 247;
    let Some(text) = path.to_str().filter(|text| text.encode_utf16().count() > LONG) else {
        return path;
    };
    match text.strip_prefix(r"\\") {
        None => PathBuf::from(format!(r"\\?\{text}")),
        Some(rest) if rest.starts_with(r"?\") || rest.starts_with(r".\") => path,
        Some(share) => PathBuf::from(format!(r"\\?\UNC\{share}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_path_is_made_verbatim() {
        let (short, long) = ("d".repeat(100), "d".repeat(300));
        let made = |path: String| verbatim(PathBuf::from(path)).to_str().map(str::to_owned);
        let kept = |path: String| assert_eq!(made(path.clone()), Some(path));
        kept(format!(r"C:\{short}"));
        kept(format!(r"\\server\share\{short}"));
        kept(format!(r"\\?\C:\{long}"));
        kept(format!(r"\\.\C:\{long}"));
        assert_eq!(made(format!(r"C:\{long}")), Some(format!(r"\\?\C:\{long}")));
        let share = format!(r"\\server\share\{long}");
        assert_eq!(made(share), Some(format!(r"\\?\UNC\server\share\{long}")));
    }
}
