//! Power cuts under a real file system: what a disk may hold when the power goes, mounted and looked at.
//!
//! Theory of operation. A disk is one file of a small FUSE file system (`fuse`) that notes each block
//! write and each flush in a [`recording`]. A loop device makes a block device of that file, and the
//! kernel's own ext4, xfs or btrfs lies on it. A workload writes there in a process of its own and says
//! after each write that it was acknowledged; that word goes into a second file of the same FUSE file
//! system, so it has its place among the block writes. Ordered steps for each file system and workload (`matrix`):
//! 1. make the file system, with the first version of what is replaced, unmount it: the *base*;
//! 2. mount it again on the recording disk and run the workload to its end;
//! 3. unmount; what the unmounting wrote is not part of the recording;
//! 4. for each [`recording::Cut`]: build the image, mount it, so that the file system repairs itself as
//!    after a real power cut, and look at the files with plain reads ([`judge`]).
//!
//! The model of the disk. A flush makes every write before it certain. Of the writes since the last
//! flush each sector of 4 KiB has arrived or has not, independent of all others. A sector is never torn,
//! as the disks of today promise: with smaller ones the superblock of ext4 itself could be torn, which no
//! writer can help.
//!
//! A neighbour, which flushes a file of its own now and then, makes the journal move on: without it a
//! short recording never shows that a name came to the disk before its content.
//!
//! Everything is in a mount namespace of its own ([`command`]), which ends with the process: no mount
//! outlives it, however it ends. `rig` runs the whole and holds the counts against the promises.
//!
//! Not covered: disks that lie about a flush, bytes that rot, and what only shows after a longer time
//! than a recording takes.

use std::path::Path;
use std::process::Command;

#[cfg(target_os = "linux")]
pub mod fuse;
pub mod judge;
#[cfg(target_os = "linux")]
pub mod matrix;
pub mod recording;
#[cfg(target_os = "linux")]
pub mod rig;
#[cfg(target_os = "linux")]
pub mod system;

/// What of a tree a workload works on, and what its level promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// One file that is replaced, or a fresh run directory with its first file for each version.
    pub shape: Shape,
    /// What the writer flushes.
    pub level: Level,
}

/// What a workload makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `replaced/status.json` gets a new text for each version.
    Replaced,
    /// `fresh/run-<version>/status.json` is made for each version.
    Fresh,
}

/// What a writer flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing: the first saboteur.
    Process,
    /// The file and not its directories: the level *ordered*, and where durability is expected the second
    /// saboteur.
    Ordered,
    /// Both.
    Durable,
    /// Both, but an old file has no second name meanwhile (RS-ATOM-14): the third saboteur, where there is no
    /// journal.
    Nameless,
}

impl Workload {
    /// Every one, the two of the durable writer first.
    pub const ALL: [Self; 7] = {
        use {Level::*, Shape::*};
        [
            Self { shape: Replaced, level: Durable },
            Self { shape: Fresh, level: Durable },
            Self { shape: Replaced, level: Ordered },
            Self { shape: Fresh, level: Ordered },
            Self { shape: Replaced, level: Process },
            Self { shape: Fresh, level: Process },
            Self { shape: Replaced, level: Nameless },
        ]
    };

    /// Its name, as the driver takes it.
    pub fn name(self) -> &'static str {
        match (self.shape, self.level) {
            (Shape::Replaced, Level::Process) => "replaced-process",
            (Shape::Replaced, Level::Ordered) => "replaced-ordered",
            (Shape::Replaced, Level::Durable) => "replaced-durable",
            (Shape::Replaced, Level::Nameless) => "replaced-nameless",
            (Shape::Fresh, Level::Nameless) => "fresh-nameless",
            (Shape::Fresh, Level::Process) => "fresh-process",
            (Shape::Fresh, Level::Ordered) => "fresh-ordered",
            (Shape::Fresh, Level::Durable) => "fresh-durable",
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

/// The directory of the file that is replaced.
pub const REPLACED: &str = "replaced";
/// The directory in which run directories are made.
pub const FRESH: &str = "fresh";
/// The file of the neighbour.
pub const NEIGHBOUR: &str = "neighbour";
/// After how many versions the neighbour flushes its file: not a divisor of [`VERSIONS`], so that the last
/// versions of a writer that flushes nothing are still in memory at the end.
pub const NEIGHBOUR_EVERY: u64 = 7;
/// Versions of one recording.
pub const VERSIONS: u64 = 24;
/// The writer number in the texts of the workloads (see [`crate::driver::hammered`]).
pub const WRITER: u64 = 1;

/// The name of the run directory of a version.
pub fn run_name(version: u64) -> String {
    format!("run-{version}")
}

/// Starts a program in a mount namespace of its own.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program);
    command
}

/// Why no program can be started so here, if so.
pub fn refusal() -> Option<String> {
    match command(Path::new("true")).output() {
        Err(e) => Some(format!("unshare cannot be started: {e}")),
        Ok(out) if !out.status.success() => {
            Some(format!("nothing may be mounted: {}", String::from_utf8_lossy(&out.stderr).trim()))
        }
        Ok(_) => None,
    }
}
