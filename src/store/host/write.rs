//! The writing half of the door: one method for each effect on the disk, and for waiting and chance.
//!
//! A reader takes a [`Host`] and cannot reach any of this; only code that asks for a [`WriteHost`]
//! can change something. Each method is one effect, so that a test host can stop before or after any
//! of them, or make it fail. Rows for each operation that is built from them: `spec/durability.md`.
//!
//! Names are single components relative to an open directory, so that a swapped path cannot redirect
//! a write. No method follows a link in its name.

use std::ffi::OsStr;
use std::io;

use super::Host;

/// How much room a file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Effects. See the module's text.
pub trait WriteHost: Host {
    /// An open file that was created or opened for appending here.
    type File;

    /// Creates a file that must not exist, with `mode` less the umask.
    ///
    /// # Errors
    /// As the system says; `AlreadyExists` when anything stands at the name, a link included.
    fn create(&self, dir: &Self::Dir, name: &OsStr, mode: u32) -> io::Result<Self::File>;

    /// Opens a plain file for appending, creating it with `mode` less the umask if `create`.
    ///
    /// # Errors
    /// As the system says; anything but a plain file is an error, and so is one with a second name.
    fn open_append(
        &self,
        dir: &Self::Dir,
        name: &OsStr,
        mode: u32,
        create: bool,
    ) -> io::Result<Self::File>;

    /// Sets the mode of an open file.
    ///
    /// # Errors
    /// As the system says.
    fn set_mode(&self, file: &Self::File, mode: u32) -> io::Result<()>;

    /// Writes some bytes and says how many.
    ///
    /// # Errors
    /// As the system says.
    fn write(&self, file: &Self::File, bytes: &[u8]) -> io::Result<usize>;

    /// Flushes data and size of a file to the disk.
    ///
    /// # Errors
    /// As the system says. After an error nothing is known of what reached the disk, also when a
    /// later call succeeds.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Flushes the entries of a directory to the disk.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self, dir: &Self::Dir) -> io::Result<()>;

    /// Renames, replacing what stands at the new name.
    ///
    /// # Errors
    /// As the system says.
    fn rename(
        &self,
        from_dir: &Self::Dir,
        from: &OsStr,
        to_dir: &Self::Dir,
        to: &OsStr,
    ) -> io::Result<()>;

    /// Renames, unless something stands at the new name.
    ///
    /// # Errors
    /// `AlreadyExists` then; else as the system says.
    fn rename_new(
        &self,
        from_dir: &Self::Dir,
        from: &OsStr,
        to_dir: &Self::Dir,
        to: &OsStr,
    ) -> io::Result<()>;

    /// Gives a plain file another name in its directory. A link at `name` is not followed.
    ///
    /// # Errors
    /// As the system says; `AlreadyExists` when anything stands at the other name, a link included.
    fn add_name(&self, dir: &Self::Dir, name: &OsStr, other: &OsStr) -> io::Result<()>;

    /// Whether the file system of a directory may bring a rename to the disk in two parts, so that a power
    /// cut between them leaves a directory that leads to a file which has ended.
    ///
    /// The system is asked at most once for each open directory. A wrong *yes* costs two calls for each
    /// durable replacement, so it is said where only the family of the file system is known.
    fn may_split_rename(&self, dir: &Self::Dir) -> bool;

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// As the system says.
    fn unlink(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;

    /// Creates a directory with `mode` less the umask.
    ///
    /// # Errors
    /// As the system says.
    fn create_dir(&self, dir: &Self::Dir, name: &OsStr, mode: u32) -> io::Result<()>;

    /// Sets the mode of a directory by its name, following no link.
    ///
    /// By name, because a directory that the umask closed to its owner cannot be opened.
    ///
    /// # Errors
    /// As the system says; anything but a directory is an error.
    fn set_dir_mode(&self, dir: &Self::Dir, name: &OsStr, mode: u32) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the system says.
    fn remove_dir(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;

    /// Takes the exclusive advisory lock of an open file without waiting. `false`: another opening of
    /// the file holds it. Programs that do not ask for the lock are not kept from anything.
    ///
    /// # Errors
    /// As the system says, for example where the file system has no locks.
    fn try_lock(&self, file: &Self::File) -> io::Result<bool>;

    /// Lets go of the lock. The end of the process does so as well.
    ///
    /// # Errors
    /// As the system says.
    fn unlock(&self, file: &Self::File) -> io::Result<()>;

    /// Bits that the system takes away from the mode of what is created.
    fn umask(&self) -> u32;

    /// 64 bits of chance.
    fn random(&self) -> u64;

    /// 64 bits of chance for a name that is created exclusively. Nobody is kept out by such a name, so a
    /// system may draw them without a call where [`WriteHost::random`] makes one. Spec: RS-ATOM-02.
    fn random_for_name(&self) -> u64 {
        self.random()
    }

    /// Waits.
    fn wait_ms(&self, ms: u64);

    /// Room on the file system of a directory, where it can be told.
    fn space(&self, dir: &Self::Dir) -> Option<Space>;
}
