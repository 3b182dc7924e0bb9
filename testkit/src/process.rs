//! Real processes that records can name, and what the system shows of them.
//!
//! Theory of operation. [`Live`] owns one child that does nothing until it is ended; it can be ended
//! with or without being reaped, because a zombie holds its pid. [`identity`] reads what a writer
//! could have recorded of a process, without the library: a test compares two accounts that were made
//! independently. Every wait here waits for a state of a child, never for time to pass.
//!
//! Not promised: identity outside Linux, where the members stay `None`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

/// The user and group id of `nobody`: owns nothing that matters.
pub const NOBODY: u32 = 65534;

/// `f_type` of the file system in which every pidfd has an inode of its own.
const PID_FS_MAGIC: i64 = 0x5049_4446;

/// A child process that idles until it is ended. Dropping it ends and reaps it.
#[derive(Debug)]
pub struct Live {
    child: Child,
}

impl Live {
    /// Starts one.
    pub fn start() -> Self {
        Self::of(Command::new("sleep").arg("1000"))
    }

    /// Starts one that belongs to another user; only root can.
    pub fn start_as(uid: u32) -> Self {
        Self::of(Command::new("sleep").arg("1000").uid(uid).gid(uid))
    }

    /// Starts any program that idles.
    pub fn of(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: child.spawn().expect("a child can be started") }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and leaves it unreaped: its pid stays taken.
    pub fn kill_unreaped(&mut self) {
        self.child.kill().expect("the child is ours");
        let pid = Pid::from_child(&self.child);
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .expect("the child is ours");
    }

    /// Ends and reaps it: its pid is free.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child is ours");
        self.child.wait().expect("the child is ours");
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Both fail only if it was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a writer could have recorded of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `linux:<start time in ticks>`.
    pub start: Option<String>,
    /// The inode of its pidfd, where every process has its own.
    pub pidfd_inode: Option<u64>,
    /// The boot id of the kernel.
    pub boot_id: Option<String>,
}

/// Reads the identity of a process that exists.
pub fn identity(pid: u32) -> Identity {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    // The name in the second field may hold spaces and parentheses, so count from its end.
    let start = stat.and_then(|line| {
        let rest = line.rsplit_once(')')?.1;
        Some(format!("linux:{}", rest.split_whitespace().nth(19)?))
    });
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    Identity {
        start,
        pidfd_inode: pidfd_inode(pid),
        boot_id: boot_id.map(|text| text.trim().to_owned()),
    }
}

fn pidfd_inode(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let kind = rustix::fs::fstatfs(&fd).ok()?.f_type;
    #[expect(clippy::useless_conversion, reason = "the type differs between platforms")]
    let ours = i64::from(kind) == PID_FS_MAGIC;
    ours.then(|| rustix::fs::fstat(&fd).ok().map(|stat| stat.st_ino))?
}

/// The pid namespace of this process, as `pid:[…]`.
pub fn pid_namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

/// The wall clock, in milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    i64::try_from(since.as_millis()).expect("the clock is before the year 292277026")
}

/// Waits until what was written a moment ago has been quiet for a millisecond.
pub fn wait_for_the_next_millisecond() {
    let before = now_ms();
    while now_ms() <= before + 1 {
        std::thread::yield_now();
    }
}

/// The name of this host, as records have it.
pub fn host_name() -> String {
    let output = Command::new("uname").arg("-n").output().expect("there is uname");
    String::from_utf8(output.stdout).expect("a name is text").trim().to_owned()
}

/// Whether this process may become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies a program to a place where any user may run it: a build directory may be closed to others.
///
/// # Errors
/// When it could not be copied.
pub fn for_everybody(program: &Path, folder: &Path) -> io::Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let to = folder.join(program.file_name().expect("a program has a name"));
    fs::copy(program, &to)?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    Ok(to)
}

/// Says that a part of a test is left out, and why. It goes to standard error, past the capture of the
/// test harness, so that it stands in every log.
pub fn skip(test: &str, why: &str) {
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(io::stderr(), "SKIP {test}: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_child_holds_its_pid_until_it_is_reaped() {
        let mut live = Live::start();
        let before = identity(live.pid());
        live.kill_unreaped();
        assert_eq!(identity(live.pid()).start, before.start, "a zombie keeps its number");
        live.kill();
        assert_ne!(identity(live.pid()), before, "a reaped process has left its number");
    }
}
