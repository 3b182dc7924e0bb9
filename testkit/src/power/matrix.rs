//! Every file system with every workload: recorded, cut, mounted, judged, counted.
//!
//! Theory of operation. A [`System`] is a file system with its mount options. [`base`] makes it once; what
//! cannot be made or mounted here is its reason to be left out. [`Bench::examine`] records one workload on it and
//! looks at its cuts. It counts and does not judge the counts: what a workload may show is the business of
//! the program that calls it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fuse::{self, Disk};
use super::judge::{self, Verdict};
use super::recording::{Content, Cut, Event, Recording};
use super::system::{self, Mounted, Place, run, tool};
use super::{FRESH, NEIGHBOUR, REPLACED, VERSIONS, WRITER, Workload};
use crate::driver;

/// A file system and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// What it is called in the counts.
    pub name: &'static str,
    kind: &'static str,
    make: &'static [&'static str],
    size_mib: u64,
    options: &'static str,
    /// Whether it has a journal or the like. One without is checked and repaired before it is mounted, as
    /// a system does when it starts.
    pub journal: bool,
}

/// Blocks of the usual size, and no thread that writes tables while something is recorded.
const EXT4: [&str; 6] = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0"];

impl System {
    /// Every one of the ring.
    pub const ALL: [Self; 6] = [
        Self::ext4("ext4 data=ordered", "data=ordered"),
        Self::ext4("ext4 data=writeback", "data=writeback"),
        Self::ext4("ext4 data=journal", "data=journal"),
        Self {
            name: "ext4 without journal",
            kind: "ext4",
            make: &[EXT4[0], EXT4[1], EXT4[2], EXT4[3], EXT4[4], EXT4[5], "-O", "^has_journal"],
            size_mib: 64,
            options: "rw",
            journal: false,
        },
        Self {
            name: "xfs",
            kind: "xfs",
            make: &["mkfs.xfs", "-q"],
            // The smallest that its tool makes.
            size_mib: 320,
            options: "rw",
            journal: true,
        },
        Self {
            name: "btrfs",
            kind: "btrfs",
            make: &["mkfs.btrfs", "-q"],
            size_mib: 128,
            options: "rw",
            journal: true,
        },
    ];

    const fn ext4(name: &'static str, options: &'static str) -> Self {
        Self { name, kind: "ext4", make: &EXT4, size_mib: 64, options, journal: true }
    }
}

/// What the images of one file system and workload showed.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Images that were looked at.
    pub images: usize,
    /// Images with a torn file.
    pub torn: usize,
    /// Images without an acknowledged version.
    pub lost: usize,
    /// Images with an acknowledged version under a temp name only.
    pub astray: usize,
    /// Images with a mode that is not private.
    pub loose: usize,
    /// Images that could not be mounted or read.
    pub broken: usize,
    /// Block writes, flushes and acknowledgements of the recording.
    pub recorded: [usize; 3],
    /// The first example of each kind of trouble, with its cut.
    pub examples: Vec<String>,
}

impl Counts {
    fn add(&mut self, cut: &Cut, looked: Result<Verdict, String>) {
        self.images += 1;
        let (verdict, broken) = match looked {
            Ok(verdict) => (verdict, None),
            Err(why) => (Verdict::default(), Some(why)),
        };
        let kinds = [
            ("torn", &mut self.torn, verdict.torn),
            ("lost", &mut self.lost, verdict.lost),
            ("astray", &mut self.astray, verdict.astray),
            ("loose", &mut self.loose, verdict.loose),
            ("broken", &mut self.broken, broken),
        ];
        for (kind, count, why) in kinds {
            let Some(why) = why else { continue };
            if *count == 0 {
                self.examples.push(format!("{kind}: {why} ({cut:?})"));
            }
            *count += 1;
        }
    }
}

/// The file systems of one kind before anything was written to them, and places to work in.
#[derive(Debug)]
pub struct Bench {
    system: System,
    base: Content,
    folder: PathBuf,
    // Held for its drop.
    _place: Place,
}

/// Makes a file system, as all of its recordings find it.
///
/// # Errors
/// Why it cannot be had on this machine.
pub fn base(system: System) -> Result<Bench, String> {
    let place = Place::new()?;
    let folder = place.folder("work")?;
    for name in ["mounted", "served"] {
        place.folder(&format!("work/{name}"))?;
    }
    if !system.journal {
        run(tool("e2fsck").arg("-V"), 0)?;
    }
    let image = folder.join("image");
    let file = image_file(&image)?;
    file.set_len(system.size_mib << 20).map_err(|e| e.to_string())?;
    system::format(system.make, &image)?;
    let served = file.try_clone().map_err(|e| e.to_string())?;
    // On the disk of the recordings, so that whatever they need is missed here.
    let disk = RecordingDisk::mount(system, &folder, served)?;
    prepare(&disk.top).map_err(|e| format!("cannot prepare {}: {e}", system.name))?;
    disk.mounted.unmount()?;
    let base = Content::read(&file).map_err(|e| e.to_string())?;
    Ok(Bench { system, base, folder, _place: place })
}

/// A file system on a disk that remembers.
struct RecordingDisk {
    top: PathBuf,
    // Before the disk, so that a drop unmounts in this order.
    mounted: Mounted,
    disk: Disk,
}

impl RecordingDisk {
    fn mount(system: System, folder: &Path, content: File) -> Result<Self, String> {
        let disk = Disk::serve(&folder.join("served"), content)
            .map_err(|e| format!("no disk can be served through {}: {e}", fuse::DEVICE))?;
        let device = system::attach(&disk.disk())?;
        let top = folder.join("mounted");
        let mounted = Mounted::new(system.kind, system.options, &device, &top);
        system::free_with_mount(&device)?;
        Ok(Self { top, mounted: mounted?, disk })
    }
}

/// The first version of what is replaced, and an empty place for fresh directories.
fn prepare(top: &Path) -> io::Result<()> {
    for name in [REPLACED, FRESH] {
        fs::DirBuilder::new().mode(0o700).create(top.join(name))?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(top.join(NEIGHBOUR))?;
    let text = driver::hammered(WRITER, 0);
    options.open(top.join(REPLACED).join("status.json"))?.write_all(text.as_bytes())
}

fn image_file(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.open(path).map_err(|e| format!("cannot make {}: {e}", path.display()))
}

impl Bench {
    /// Records one workload and looks at its cuts, with this many rounds (see [`Recording::cuts`]).
    ///
    /// # Errors
    /// When the recording could not be made: the machine permitted it a moment ago.
    pub fn examine(
        &self,
        workload: Workload,
        driver: &Path,
        rounds: usize,
        seed: u64,
    ) -> Result<Counts, String> {
        let recording = self.record(workload, driver)?;
        let count =
            |wanted: fn(&Event) -> bool| recording.events.iter().filter(|e| wanted(e)).count();
        let mut counts = Counts {
            recorded: [
                count(|event| matches!(event, Event::Write(..))),
                count(|event| matches!(event, Event::Flush)),
                count(|event| matches!(event, Event::Acknowledged(_))),
            ],
            ..Counts::default()
        };
        if counts.recorded[2] as u64 != VERSIONS {
            return Err(format!("{} of {VERSIONS} versions came", counts.recorded[2]));
        }
        for cut in recording.cuts(rounds, seed) {
            counts.add(&cut, self.look(&recording, &cut, workload));
        }
        Ok(counts)
    }

    fn record(&self, workload: Workload, driver: &Path) -> Result<Recording, String> {
        let content = image_file(&self.folder.join("recorded"))?;
        self.base.write(&content).map_err(|e| format!("no room for a disk: {e}"))?;
        let disk = RecordingDisk::mount(self.system, &self.folder, content)?;
        let mut command = Command::new(driver);
        command.arg(&disk.top).args(["acknowledge", workload.name()]).arg(disk.disk.word());
        run(&mut command, 0)?;
        // Before the unmounting, which writes what was still in memory.
        let events = disk.disk.events();
        disk.mounted.unmount()?;
        Ok(Recording { base: self.base.clone(), events })
    }

    /// Builds, repairs as a system does, mounts and judges one image.
    fn look(
        &self,
        recording: &Recording,
        cut: &Cut,
        workload: Workload,
    ) -> Result<Verdict, String> {
        let image = self.folder.join("image");
        let file = image_file(&image)?;
        recording.build(cut, &file).map_err(|e| format!("no room for an image: {e}"))?;
        if !self.system.journal {
            // Up to 3 it has repaired everything; what it asks about, it is told to repair, as a person would.
            let preened = run(tool("e2fsck").arg("-p").arg(&image), 3);
            preened.or_else(|_| run(tool("e2fsck").arg("-fy").arg(&image), 3))?;
        }
        let at = self.folder.join("mounted");
        let options = format!("{},loop", self.system.options);
        let mounted = Mounted::new(self.system.kind, &options, &image, &at)?;
        let looked =
            system::without_children(|| judge::look(&at, workload.shape, cut.acknowledged));
        let verdict = looked.map_err(|e| format!("it cannot be read: {e}"))?;
        mounted.unmount()?;
        Ok(verdict)
    }
}
