//! What the rig asks of the machine: a place in memory, file systems, loop devices, mounts.
//!
//! Theory of operation. All of it happens in a mount namespace of its own, so the mounts are seen by nobody
//! else and end with the process, even when it is killed. There a [`Place`] in memory is mounted for the
//! images. A loop device is told to free itself as soon as it has a user, who is the mount, so it is freed
//! with the mount. What is mounted is unmounted by the drop of its guard.
//!
//! A child has every open file of this process until it becomes its program. While a file of an image is
//! open no child may be started, or the image could not be unmounted: [`without_children`].
//!
//! What a machine does not permit is found out by doing it: the error is the reason of a `SKIP`.
//!
//! Not promised: anything outside Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::mount::{MountFlags, UnmountFlags};

/// Room for the images: they are mostly holes.
const PLACE_OPTIONS: &std::ffi::CStr = c"size=2g,mode=0700";

/// A program of the system, also where the path of a user leaves out those of the administrator.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command
}

/// Held while a child is on its way to its program.
static STARTING: Mutex<()> = Mutex::new(());

/// Does something while no other thread starts a child.
pub fn without_children<T>(work: impl FnOnce() -> T) -> T {
    // It guards no data that a panic could leave half changed.
    let _held = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Runs a command to its end and returns what it said.
///
/// # Errors
/// With the command and what it said, when it could not be started or its exit code is above `bearable`.
pub fn run(command: &mut Command, bearable: i32) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A child that is returned has become its program.
    let child = without_children(|| command.spawn());
    let child = child.map_err(|e| format!("{name} cannot be started: {e}"))?;
    let out = child.wait_with_output().map_err(|e| format!("{name} is lost: {e}"))?;
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match out.status.code() {
        Some(code) if code <= bearable => Ok(said),
        _ => Err(format!("{name}: {}: {said}", out.status)),
    }
}

/// A file system that is unmounted when this is dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts the file system in a file or device.
    ///
    /// # Errors
    /// What `mount` said.
    pub fn new(kind: &str, options: &str, from: &Path, at: &Path) -> Result<Self, String> {
        let mut command = tool("mount");
        command.args(["-t", kind, "-o", options]).arg(from).arg(at);
        run(&mut command, 0)?;
        Ok(Self(at.to_owned()))
    }

    /// Unmounts now, so that everything is written.
    ///
    /// # Errors
    /// When it is in use.
    pub fn unmount(self) -> Result<(), String> {
        rustix::mount::unmount(&self.0, UnmountFlags::empty())
            .map_err(|e| format!("cannot unmount {}: {e}", self.0.display()))
        // The drop after it finds nothing mounted.
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a handle of something that failed may still be open.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A directory in memory with places to mount at; all of it goes when this is dropped.
#[derive(Debug)]
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Makes one.
    ///
    /// # Errors
    /// Why this machine does not permit it.
    pub fn new() -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
        rustix::mount::mount("power-cut", dir.path(), "tmpfs", MountFlags::empty(), PLACE_OPTIONS)
            .map_err(|e| format!("a file system cannot be mounted: {e}"))?;
        Ok(Self { dir })
    }

    /// A new empty directory in it.
    ///
    /// # Errors
    /// As the system says.
    pub fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.dir.path().join(name);
        fs::create_dir(&path).map_err(|e| format!("cannot make {name}: {e}"))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

/// Makes a file system in a file, with a program and its options.
///
/// # Errors
/// What the program said.
///
/// # Panics
/// When `make` is empty.
pub fn format(make: &[&str], image: &Path) -> Result<(), String> {
    let (program, args) = make.split_first().expect("there is a program");
    run(tool(program).args(args).arg(image), 0).map(|_| ())
}

/// Makes a block device of a file. It has to be mounted and handed to [`free_with_mount`] next.
///
/// # Errors
/// What `losetup` said.
pub fn attach(file: &Path) -> Result<PathBuf, String> {
    run(tool("losetup").args(["--find", "--show"]).arg(file), 0).map(PathBuf::from)
}

/// Frees a block device: at once, or with the mount that uses it.
///
/// # Errors
/// What `losetup` said.
pub fn free_with_mount(device: &Path) -> Result<(), String> {
    run(tool("losetup").arg("--detach").arg(device), 0).map(|_| ())
}
