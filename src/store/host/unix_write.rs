//! The writing half of the real host on Unix.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

#[cfg(target_os = "linux")]
use super::Host as _;
use super::unix::{DirHandle, RealHost};
use super::write::{Space, WriteHost};

fn mode_of(bits: u32) -> Mode {
    // The width of a mode differs between systems.
    Mode::from_raw_mode((bits & 0o7777) as rustix::fs::RawMode)
}

impl WriteHost for RealHost {
    type File = OwnedFd;

    fn create(&self, dir: &DirHandle, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name, flags, mode_of(mode))?)
    }

    fn open_append(
        &self,
        dir: &DirHandle,
        name: &OsStr,
        mode: u32,
        create: bool,
    ) -> io::Result<OwnedFd> {
        let mut flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        if create {
            flags |= OFlags::CREATE;
        }
        let fd = rustix::fs::openat(dir, name, flags, mode_of(mode))?;
        // A pipe with a reader can be opened for writing; only a plain file is a log.
        let stat = rustix::fs::fstat(&fd)?;
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return refuse("it is not a plain file");
        }
        // What is written would show under a name that may lie anywhere.
        if stat.st_nlink > 1 {
            return refuse("it has another name somewhere");
        }
        Ok(fd)
    }

    fn set_mode(&self, file: &OwnedFd, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(file, mode_of(mode))?)
    }

    fn write(&self, file: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(file, bytes)?)
    }

    fn sync(&self, file: &OwnedFd) -> io::Result<()> {
        // On Apple systems fsync does not reach the disk itself.
        #[cfg(target_vendor = "apple")]
        return Ok(rustix::fs::fcntl_fullfsync(file)?);
        #[cfg(not(target_vendor = "apple"))]
        Ok(rustix::fs::fsync(file)?)
    }

    fn sync_dir(&self, dir: &DirHandle) -> io::Result<()> {
        Ok(rustix::fs::fsync(dir)?)
    }

    fn rename(
        &self,
        from_dir: &DirHandle,
        from: &OsStr,
        to_dir: &DirHandle,
        to: &OsStr,
    ) -> io::Result<()> {
        Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
    }

    fn rename_new(
        &self,
        from_dir: &DirHandle,
        from: &OsStr,
        to_dir: &DirHandle,
        to: &OsStr,
    ) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        {
            use rustix::fs::RenameFlags;
            match rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
                // A file system or sandbox without the flag.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
                other => return Ok(other?),
            }
        }
        // A link cannot be made over a name that is taken; directories have no other way here.
        rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty())?;
        Ok(rustix::fs::unlinkat(from_dir, from, AtFlags::empty())?)
    }

    fn add_name(&self, dir: &DirHandle, name: &OsStr, other: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(dir, name, dir, other, AtFlags::empty())?)
    }

    fn may_split_rename(&self, dir: &DirHandle) -> bool {
        #[cfg(target_os = "linux")]
        return *dir.splits.get_or_init(|| super::linux::may_lack_a_journal(dir));
        // Elsewhere no such file system is one of the system's own.
        #[cfg(not(target_os = "linux"))]
        {
            let _ = dir;
            false
        }
    }

    fn unlink(&self, dir: &DirHandle, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
    }

    fn create_dir(&self, dir: &DirHandle, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(dir, name, mode_of(mode))?)
    }

    fn set_dir_mode(&self, dir: &DirHandle, name: &OsStr, mode: u32) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            // The system call takes no flag against links before Linux 6.6. A handle that only names
            // the directory follows none, and its entry in `/proc` is the directory itself.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let named = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&named);
            Ok(rustix::fs::chmod(format!("/proc/self/fd/{number}"), mode_of(mode))?)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::chmodat(dir, name, mode_of(mode), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn remove_dir(&self, dir: &DirHandle, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
    }

    fn try_lock(&self, file: &OwnedFd) -> io::Result<bool> {
        // A copy of the descriptor is the same opening: its lock outlives the copy.
        super::lock::try_lock(&std::fs::File::from(file.try_clone()?))
    }

    fn unlock(&self, file: &OwnedFd) -> io::Result<()> {
        super::lock::unlock(&std::fs::File::from(file.try_clone()?))
    }

    fn umask(&self) -> u32 {
        *self.umask.get_or_init(read_umask)
    }

    fn random(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return random_of_system(self.now_ms());
        #[cfg(not(target_os = "linux"))]
        super::chance::chance()
    }

    fn random_for_name(&self) -> u64 {
        // Each replacement needs one: with a call of its own it would make five calls instead of four.
        super::chance::chance()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the host: the one home of waiting")]
    fn wait_ms(&self, ms: u64) {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }

    fn space(&self, dir: &DirHandle) -> Option<Space> {
        let fs = rustix::fs::fstatvfs(dir).ok()?;
        Some(Space {
            free_bytes: fs.f_bavail.saturating_mul(fs.f_frsize),
            total_bytes: fs.f_blocks.saturating_mul(fs.f_frsize),
        })
    }
}

/// The umask, read without changing it where the system shows it: setting it, the only other way,
/// changes it for all threads for a moment.
fn read_umask() -> u32 {
    #[cfg(target_os = "linux")]
    if let Some(mask) = super::linux::umask() {
        return mask;
    }
    let old = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(old);
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, reason = "the width of a mode differs between systems")
    )]
    u32::from(old.as_raw_mode())
}

#[cfg(target_os = "linux")]
fn random_of_system(now_ms: i64) -> u64 {
    let mut bytes = [0_u8; 8];
    let mut have = 0;
    while have < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[have..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => have += n,
            Err(rustix::io::Errno::INTR) => {}
            // Before Linux 3.17, or in a sandbox without the call: the clock and an address are
            // poor chance, but the name is still created exclusively.
            Err(_) => {
                let now = now_ms.to_le_bytes();
                let place = (&raw const bytes as usize).to_le_bytes();
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte ^= now[i % now.len()].rotate_left(3) ^ place[i % place.len()];
                }
                break;
            }
        }
    }
    u64::from_le_bytes(bytes)
}
