//! The file systems that writers are measured on, each made for it and gone after it.
//!
//! Theory of operation. With mounts of its own (the program is started in a mount namespace, see
//! [`testkit::power::command`]) a [`Ground`] is a fresh file system: in memory, or in a file with a loop
//! device under it. That file is in memory as well: a flush makes the file system do all that it does for
//! one, and no other user of a disk is measured. Its drop unmounts it, and the loop device and the file
//! go with it. Where nothing may be mounted there is only the shared memory of the system, if it has one.
//! What cannot be had is an error with the reason.
//!
//! Not promised: how long a flush takes on a real disk. It takes longer, and what a writer does beside its
//! flushes counts for less there.

use std::any::Any;
use std::path::PathBuf;

/// The names of all grounds.
pub const NAMES: [&str; 4] = ["tmpfs", "ext4", "xfs", "btrfs"];

/// A file system to write on.
#[derive(Debug)]
pub struct Ground {
    /// Its name.
    pub name: &'static str,
    /// A directory on it, empty but for what its maker puts there.
    pub top: PathBuf,
    // For their drops, in this order.
    _held: Vec<Box<dyn Any>>,
}

/// Makes the ground of a name. `mounts` is why nothing may be mounted, if so.
///
/// # Errors
/// Why it cannot be had.
#[cfg(target_os = "linux")]
pub fn make(name: &'static str, mounts: Option<&str>) -> Result<Ground, String> {
    linux::make(name, mounts)
}

/// Nothing can be made elsewhere.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn make(_: &'static str, _: Option<&str>) -> Result<Ground, String> {
    Err("file systems are made on Linux only".to_owned())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::path::Path;

    use testkit::power::system::{self, Mounted, Place};

    use super::Ground;

    /// Nothing is written behind the back of who measures.
    const EXT4: [&str; 4] = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

    /// Enough for xfs, which makes no smaller one than 300 MB. The file is mostly holes.
    const SIZE_BYTES: u64 = 512 << 20;

    /// `f_type` of a file system in memory.
    const TMPFS_MAGIC: i64 = 0x0102_1994;

    pub(super) fn make(name: &'static str, mounts: Option<&str>) -> Result<Ground, String> {
        match (name, mounts) {
            ("tmpfs", None) => {
                let place = Place::new()?;
                let top = place.folder("ground")?;
                Ok(Ground { name, top, _held: vec![Box::new(place)] })
            }
            ("tmpfs", Some(_)) => shared_memory(),
            (_, Some(why)) => Err(why.to_owned()),
            ("ext4", None) => disk(name, &EXT4),
            ("xfs", None) => disk(name, &["mkfs.xfs", "-q"]),
            ("btrfs", None) => disk(name, &["mkfs.btrfs", "-q"]),
            _ => Err("there is no such file system".to_owned()),
        }
    }

    fn disk(name: &'static str, make: &[&str]) -> Result<Ground, String> {
        let place = Place::new()?;
        let top = place.folder("mounted")?;
        let image = place.folder("disk")?.join("image");
        let sized = File::create_new(&image).and_then(|file| file.set_len(SIZE_BYTES));
        sized.map_err(|e| format!("no room for a file system: {e}"))?;
        system::format(make, &image)?;
        let mounted = Mounted::new(name, "loop", &image, &top)?;
        Ok(Ground { name, top, _held: vec![Box::new(mounted), Box::new(place)] })
    }

    fn shared_memory() -> Result<Ground, String> {
        let memory = Path::new("/dev/shm");
        let kind = rustix::fs::statfs(memory).map_err(|e| format!("no shared memory: {e}"))?.f_type;
        #[expect(clippy::useless_conversion, reason = "the type differs between platforms")]
        if i64::from(kind) != TMPFS_MAGIC {
            return Err("the shared memory is on another file system".to_owned());
        }
        let folder = tempfile::tempdir_in(memory).map_err(|e| e.to_string())?;
        let top = folder.path().to_owned();
        Ok(Ground { name: "tmpfs", top, _held: vec![Box::new(folder)] })
    }
}
