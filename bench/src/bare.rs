//! The bare calls: what no writer with the same steps can do without.
//!
//! Theory of operation. [`Bare`] holds a directory open and replaces one file in it with the calls of the
//! writer and the flushes of its level: create a new file exclusively with mode 0600, following no
//! link, write, close, rename. Its temp names are as long as those of the writer and as fresh. It looks at
//! nothing, removes nothing after an error and draws no chance, so whatever the writer takes more is its
//! own.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RenameFlags};

/// What is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing.
    Nothing,
    /// The file.
    File,
    /// The file and then its directory.
    Both,
}

/// Replaces a file with bare calls.
#[derive(Debug)]
pub struct Bare {
    dir: OwnedFd,
    number: u64,
}

const NAME: &str = "status.json";

fn open_dir(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

impl Bare {
    /// One for a directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(dir: &Path) -> io::Result<Self> {
        Ok(Self { dir: open_dir(rustix::fs::CWD, dir)?, number: 0 })
    }

    fn temp_name(&mut self) -> String {
        self.number += 1;
        // As long as a process, an instant and 64 bits of chance.
        format!(".{NAME}.{:019}.{:013}.tmp", self.number, self.number)
    }

    /// Replaces `status.json`.
    ///
    /// # Errors
    /// As the system says.
    pub fn replace(&mut self, bytes: &[u8], flush: Flush) -> io::Result<()> {
        let temp = self.temp_name();
        fill(&self.dir, &temp, bytes, flush)?;
        rustix::fs::renameat(&self.dir, &temp, &self.dir, NAME)?;
        if flush == Flush::Both {
            rustix::fs::fsync(&self.dir)?;
        }
        Ok(())
    }

    /// Makes a directory with its `status.json`, flushing the parent, the file and the directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn new_run(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(0o700))?;
        let run = open_dir(&self.dir, Path::new(name))?;
        rustix::fs::fsync(&self.dir)?;
        let temp = self.temp_name();
        fill(&run, &temp, bytes, Flush::Both)?;
        rustix::fs::renameat_with(&run, &temp, &run, NAME, RenameFlags::NOREPLACE)?;
        Ok(rustix::fs::fsync(&run)?)
    }
}

/// The same below one directory, by paths: every call opens what it needs.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    number: u64,
    flushes: usize,
}

impl Tree {
    /// One for a directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { root: open_dir(rustix::fs::CWD, root)?, number: 0, flushes: 0 })
    }

    /// How often something was flushed.
    pub fn flushes(&self) -> usize {
        self.flushes
    }

    /// The open directory of a path, and the last name of it.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        Ok((open_dir(&self.root, dir)?, Path::new(name)))
    }

    fn sync(&mut self, dir: &OwnedFd) -> io::Result<()> {
        self.flushes += 1;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// Makes or replaces a file, durable.
    ///
    /// # Errors
    /// As the system says.
    pub fn replace(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        self.number += 1;
        let temp = format!(".{}.{:019}.{:013}.tmp", name.display(), self.number, self.number);
        fill(&dir, &temp, bytes, Flush::Both)?;
        self.flushes += 1;
        rustix::fs::renameat(&dir, &temp, &dir, name)?;
        self.sync(&dir)
    }

    /// Appends to a file.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600))?;
        let written = rustix::io::write(&file, bytes)?;
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Moves a name, and flushes both directories.
    ///
    /// # Errors
    /// As the system says.
    pub fn move_durably(&mut self, path: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from) = self.place(path)?;
        let (to_dir, to) = self.place(to)?;
        rustix::fs::renameat_with(&from_dir, from, &to_dir, to, RenameFlags::NOREPLACE)?;
        self.sync(&to_dir)?;
        self.sync(&from_dir)
    }

    /// Moves a name, and flushes nothing.
    ///
    /// # Errors
    /// As the system says.
    pub fn rename(&mut self, path: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from) = self.place(path)?;
        let (to_dir, to) = self.place(to)?;
        Ok(rustix::fs::renameat(&from_dir, from, &to_dir, to)?)
    }

    /// Makes a directory, and flushes the one around it.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_dir(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.place(Path::new(path))?;
        rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700))?;
        self.sync(&dir)
    }
}

fn fill(dir: &OwnedFd, temp: &str, mut bytes: &[u8], flush: Flush) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, temp, flags, Mode::from_raw_mode(0o600))?;
    while !bytes.is_empty() {
        bytes = &bytes[rustix::io::write(&file, bytes)?..];
    }
    if flush != Flush::Nothing {
        rustix::fs::fsync(&file)?;
    }
    Ok(())
}
