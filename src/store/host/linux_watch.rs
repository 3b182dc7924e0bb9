//! Watching on Linux: an inotify instance and process handles in one `poll`.
//!
//! Theory of operation. There are few inotify instances (128 for all processes of a user, by default), and
//! closing one makes the kernel wait for readers of its lists, some dozens of ms long. So a host keeps what
//! it made ([`Instances`]): a watch borrows one for its first directory and gives it back, without its
//! directories, when it is dropped. At most [`MOST`] are made by one host; who comes later pauses plainly.
//! They are closed when the host and all its watches are dropped, or by the end of the process: after the
//! outcome was handed out, not before.
//!
//! A directory is named by the descriptor that is open (`/proc/self/fd/N`), so the path that led there may
//! lead elsewhere by now. What is still in the queue of a borrowed instance belongs to numbers of the kernel
//! that are not given out again, and is passed over.
//!
//! A crash leaves nothing: the kernel closes everything. Spec: RS-OBS-20 to RS-OBS-22.
#![expect(clippy::disallowed_methods, reason = "this is the host: the one home of waiting")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::Host as _;
use super::unix::{DirHandle, RealHost};
use super::watch::WatchHost;
use crate::protocol::process::{self, RecordedProcess};

/// Instances that one host makes at most: few enough that a process which waits for many runs at once leaves
/// some to the others of its user.
const MOST: usize = 8;

/// What is told of a directory. Everything of the protocol comes by a rename.
const TOLD: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The instances of a host that nobody uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Instances {
    idle: Mutex<Vec<OwnedFd>>,
    made: AtomicUsize,
}

impl Instances {
    fn borrow(&self) -> Option<OwnedFd> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if idle.is_some() {
            return idle;
        }
        if self.made.fetch_add(1, Ordering::Relaxed) < MOST
            && let Ok(made) = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        {
            return Some(made);
        }
        self.made.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn give_back(&self, instance: OwnedFd) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(instance);
    }
}

/// Directories and processes that end a pause.
#[derive(Debug)]
pub struct RealWatch {
    instances: Arc<Instances>,
    instance: Option<OwnedFd>,
    /// The kernel's number of each directory, and the caller's.
    dirs: Vec<(i32, usize)>,
    processes: Vec<(OwnedFd, usize)>,
}

impl Drop for RealWatch {
    fn drop(&mut self) {
        let Some(instance) = self.instance.take() else { return };
        for (dir, _) in &self.dirs {
            // One that is removed already is gone by itself.
            let _ = inotify::remove_watch(&instance, *dir);
        }
        self.instances.give_back(instance);
    }
}

impl WatchHost for RealHost {
    type Watch = RealWatch;

    fn watch(&self) -> RealWatch {
        RealWatch {
            instances: Arc::clone(&self.instances),
            instance: None,
            dirs: Vec::new(),
            processes: Vec::new(),
        }
    }

    fn watch_dir(&self, watch: &mut RealWatch, dir: &DirHandle, number: usize) -> bool {
        if watch.instance.is_none() {
            watch.instance = watch.instances.borrow();
        }
        let Some(instance) = &watch.instance else { return false };
        let place = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let Ok(told) = inotify::add_watch(instance, place, TOLD) else { return false };
        watch.dirs.push((told, number));
        true
    }

    fn watch_process(
        &self,
        watch: &mut RealWatch,
        record: &RecordedProcess<'_>,
        number: usize,
    ) -> bool {
        if process::judge_unprobed(record, self.system()).is_some() {
            return false;
        }
        let pid = record.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return false };
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        // Held first: what is compared cannot be a successor of the same number any more.
        let seen = super::linux::by_handle(pid, &handle, self.system().boot_time_ms);
        if process::judge(record, &seen, self.system()).word.is_gone() {
            return false;
        }
        watch.processes.push((handle, number));
        true
    }

    fn pause(&self, watch: &mut RealWatch, ms: u64) -> Vec<usize> {
        let end = after(clock_gettime(ClockId::Monotonic), ms);
        loop {
            let left = until(end, clock_gettime(ClockId::Monotonic));
            let woken = watch.sleep(&left);
            if !woken.is_empty() || left == NOTHING {
                return woken;
            }
        }
    }
}

impl RealWatch {
    /// One wait, at most so long. What it brings may be of no interest to anybody.
    fn sleep(&mut self, left: &Timespec) -> Vec<usize> {
        let fds = self.instance.iter().chain(self.processes.iter().map(|(handle, _)| handle));
        let mut fds: Vec<_> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        match rustix::event::poll(&mut fds, Some(left)) {
            Ok(0) | Err(Errno::INTR) => return Vec::new(),
            Ok(_) => {}
            // Without `poll` there is the time alone.
            Err(_) => {
                std::thread::sleep(std::time::Duration::try_from(*left).unwrap_or_default());
                return Vec::new();
            }
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_told = self.instance.is_some() && ready.next().unwrap_or(false);
        let ended: Vec<bool> = ready.collect();
        drop(fds);
        let mut woken = Vec::new();
        let mut place = 0;
        // A handle stays ready for ever once its process has ended.
        self.processes.retain(|(_, number)| {
            let has_ended = ended.get(place).copied().unwrap_or(false);
            place += 1;
            if has_ended {
                woken.push(*number);
            }
            !has_ended
        });
        if has_told {
            self.read(&mut woken);
        }
        woken.sort_unstable();
        woken.dedup();
        woken
    }

    /// Everything that was told so far.
    fn read(&self, woken: &mut Vec<usize>) {
        let Some(instance) = &self.instance else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(instance, &mut buffer);
        while let Ok(event) = events.next() {
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.file_name().is_some_and(|name| is_temp(name.to_bytes())) {
                continue;
            }
            let told = self.dirs.iter().filter(|(dir, _)| lost || *dir == event.wd());
            woken.extend(told.map(|(_, number)| *number));
        }
    }
}

/// Whether a name is that of a file which is to be renamed again.
fn is_temp(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(b".tmp")
}

const NOTHING: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn after(now: Timespec, ms: u64) -> Timespec {
    let nsec = now.tv_nsec + i64::try_from(ms % 1000).unwrap_or_default() * 1_000_000;
    let sec = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: now.tv_sec.saturating_add(sec).saturating_add(nsec / 1_000_000_000),
        tv_nsec: nsec % 1_000_000_000,
    }
}

fn until(end: Timespec, now: Timespec) -> Timespec {
    let (mut sec, mut nsec) = (end.tv_sec.saturating_sub(now.tv_sec), end.tv_nsec - now.tv_nsec);
    if nsec < 0 {
        sec -= 1;
        nsec += 1_000_000_000;
    }
    if sec < 0 { NOTHING } else { Timespec { tv_sec: sec, tv_nsec: nsec } }
}
