//! What only Linux tells: process identity (pidfd, `/proc`, boot id, pid namespace), and the family of a
//! file system.
//!
//! Steps of one look at a process, in this order:
//! 1. open a pidfd: from here on the handle means one process, whatever becomes of the number;
//! 2. read the start time from `/proc/PID/stat`;
//! 3. ask the pidfd whether its process has ended. If not, the number has meant that process all the
//!    time, so step 2 read about it. The other order could pair one process's handle with the start
//!    of its successor.
//!
//! Where a sandbox has no pidfd, signal 0 tells gone from there, and the start time is read twice.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::protocol::process::{Presence, ProcessSeen, SystemFacts};

/// `f_type` of pidfs (Linux 6.9 and later): only there is the inode of a pidfd its own.
const PID_FS_MAGIC: u64 = 0x5049_4446;
/// `f_type` of ext2, ext3 and ext4 alike.
const EXT_FS_MAGIC: u64 = 0xef53;

#[expect(clippy::disallowed_methods, reason = "this is the host: the one home of process facts")]
fn proc_text(path: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// Adds boot id, boot time and pid namespace.
#[expect(clippy::disallowed_methods, reason = "this is the host: the one home of process facts")]
pub(super) fn fill(facts: &mut SystemFacts) {
    facts.boot_id = proc_text("/proc/sys/kernel/random/boot_id")
        .ok()
        .map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    facts.pid_namespace = std::fs::read_link("/proc/self/ns/pid")
        .ok()
        .map(|link| link.to_string_lossy().into_owned());
    facts.boot_time_ms = Some(boot_time_ms());
}

/// The umask of this process, from the line that the kernel shows since Linux 4.7.
pub(super) fn umask() -> Option<u32> {
    let status = proc_text("/proc/self/status").ok()?;
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// Wall clock minus time since boot, suspended time included.
fn boot_time_ms() -> i64 {
    use rustix::time::{ClockId, clock_gettime};
    let wall = clock_gettime(ClockId::Realtime);
    let up = clock_gettime(ClockId::Boottime);
    let ms = |t: rustix::time::Timespec| t.tv_sec * 1000 + t.tv_nsec / 1_000_000;
    ms(wall) - ms(up)
}

/// What is at `pid` now.
pub(super) fn process(pid: i64, boot_time_ms: Option<i64>) -> ProcessSeen {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return unknown("the number is out of range");
    };
    match rustix::process::pidfd_open(target, PidfdFlags::empty()) {
        Ok(fd) => by_handle(target, &fd, boot_time_ms),
        Err(Errno::SRCH) => gone(),
        // The number of a thread that is no process leader (EINVAL, or ENOENT since 6.15) holds no
        // process of that id; a kernel or sandbox without pidfd says ENOSYS or EPERM.
        Err(_) => by_signal(target, boot_time_ms),
    }
}

fn gone() -> ProcessSeen {
    ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() }
}

fn unknown(why: &str) -> ProcessSeen {
    ProcessSeen { presence: Presence::Unknown(why.to_owned()), ..ProcessSeen::default() }
}

pub(super) fn by_handle(pid: Pid, fd: &OwnedFd, boot_time_ms: Option<i64>) -> ProcessSeen {
    let stat = stat_line(pid);
    if has_ended(fd) {
        // Ended but not reaped: the number is still its own.
        return ProcessSeen { presence: Presence::Zombie, ..ProcessSeen::default() };
    }
    let mut seen = ProcessSeen { presence: Presence::Present, ..ProcessSeen::default() };
    if let Some(stat) = stat {
        add_start(&mut seen, stat.start_ticks, boot_time_ms);
    }
    seen.pidfd_inode = own_inode(fd);
    seen
}

/// A pidfd is readable once its whole process has ended. A leader that ended while other threads
/// run shows state `Z` in its stat line although the process lives; this test is not fooled.
fn has_ended(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
        && fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP)
}

fn own_inode(fd: &OwnedFd) -> Option<u64> {
    (magic(fd)? == PID_FS_MAGIC).then(|| rustix::fs::fstat(fd).ok().map(|s| s.st_ino))?
}

/// Which file system it is.
fn magic(fd: impl AsFd) -> Option<u64> {
    let fs = rustix::fs::fstatfs(fd).ok()?;
    #[expect(clippy::cast_sign_loss, reason = "a magic number, not a quantity")]
    Some(fs.f_type as u64)
}

/// Whether a directory is on a file system of the family of which some have no journal. Which of them it is
/// cannot be asked everywhere: what the system tells of its journals is not shown inside a container.
pub(super) fn may_lack_a_journal(dir: impl AsFd) -> bool {
    magic(dir) == Some(EXT_FS_MAGIC)
}

fn by_signal(pid: Pid, boot_time_ms: Option<i64>) -> ProcessSeen {
    let before = stat_line(pid);
    match rustix::process::test_kill_process(pid) {
        Err(Errno::SRCH) => gone(),
        Ok(()) | Err(Errno::PERM) => {
            let (Some(before), Some(after)) = (before, stat_line(pid)) else {
                return unknown("its identity cannot be read (no permission)");
            };
            if before.start_ticks != after.start_ticks {
                return unknown("the process changed while it was looked at");
            }
            if matches!(after.state, b'Z' | b'X') {
                return ProcessSeen { presence: Presence::Zombie, ..ProcessSeen::default() };
            }
            let mut seen = ProcessSeen { presence: Presence::Present, ..ProcessSeen::default() };
            add_start(&mut seen, after.start_ticks, boot_time_ms);
            seen
        }
        Err(_) => unknown("the system refused to say"),
    }
}

fn add_start(seen: &mut ProcessSeen, ticks: u64, boot_time_ms: Option<i64>) {
    seen.start_identity = Some(format!("linux:{ticks}"));
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let ms = i64::try_from(u128::from(ticks) * 1000 / u128::from(per_second)).ok();
    seen.start_ms = boot_time_ms.zip(ms).map(|(boot, since)| boot + since);
}

/// What the stat line of a process says.
pub(super) struct StatLine {
    state: u8,
    start_ticks: u64,
    /// The number of its parent.
    pub(super) parent: i32,
    /// Its process group.
    pub(super) group: i32,
    /// Its session.
    pub(super) session: i32,
}

impl StatLine {
    /// Whether it waits to be reaped. A leader that ended before its threads looks the same.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Looks at every process of this namespace. One that goes meanwhile is passed over.
#[expect(clippy::disallowed_methods, reason = "this is the host: the one home of process facts")]
pub(super) fn each(mut look: impl FnMut(u32, &StatLine)) -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let stat = Pid::from_raw(pid).and_then(stat_line);
        if let Some(stat) = stat {
            look(pid.unsigned_abs(), &stat);
        }
    }
    Ok(())
}

/// How many processes a condition holds for; `None` when they cannot be looked at.
pub(super) fn count(which: impl Fn(&StatLine) -> bool) -> Option<usize> {
    let mut count = 0;
    each(|_, stat| count += usize::from(which(stat))).ok()?;
    Some(count)
}

fn stat_line(pid: Pid) -> Option<StatLine> {
    parse_stat(&proc_text(&format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

/// Field 22, counted after the *last* closing parenthesis: the name in field 2 is the process's own
/// choice and may hold spaces and parentheses (facts K-2).
fn parse_stat(line: &[u8]) -> Option<StatLine> {
    let after = line.iter().rposition(|b| *b == b')')? + 1;
    let mut fields = line.get(after..)?.split(|b| *b == b' ').filter(|f| !f.is_empty());
    fn number<T: std::str::FromStr>(field: Option<&[u8]>) -> Option<T> {
        std::str::from_utf8(field?).ok()?.parse().ok()
    }
    let state = *fields.next()?.first()?;
    let parent = number(fields.next())?;
    let group = number(fields.next())?;
    let session = number(fields.next())?;
    let start_ticks = number(fields.nth(15))?;
    Some(StatLine { state, start_ticks, parent, group, session })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_a_hostile_name() {
        let line = b"7 (a) R 1) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1\n";
        let stat = parse_stat(line).expect("a stat line");
        assert_eq!((stat.state, stat.start_ticks), (b'S', 4242));
    }

    #[test]
    fn the_own_process_is_present_with_a_start_in_this_boot() {
        let mut facts = SystemFacts::default();
        fill(&mut facts);
        let own = i64::from(rustix::process::getpid().as_raw_pid());
        let seen = process(own, facts.boot_time_ms);
        assert_eq!(seen.presence, Presence::Present);
        assert!(seen.start_ms > facts.boot_time_ms, "a process starts after its boot");
    }

    #[test]
    fn a_number_above_the_largest_pid_is_gone() {
        assert_eq!(process(999_999_999, None).presence, Presence::Gone);
    }
}
