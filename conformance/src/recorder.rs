//! The record of what happens to the names of a store, in the order in which the system tells it.
//!
//! Theory of operation. One inotify instance watches every directory of a store, and one thread reads it; the order of
//! its events is that of the system, across all directories. A directory that is made while it is watched gets a
//! watch, and what is in it by then is *found*: it came at some moment between the two. A file that the suite wants to
//! read is read right after its event, so its text may be a later one; the inode tells. A moment of the script is a
//! file in the watched directory of marks.
//!
//! What is made and removed in a new directory before that has its watch is not seen at all. So whoever makes one for the
//! subject waits for the watch before anything is put there ([`Recorder::settle`]); of what the subject makes itself
//! there is no such promise.
//!
//! The thread ends when it is told to, or with the recorder. Where there is no inotify nothing is recorded, and no
//! check may conclude anything from an order.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::evidence::{Event, Op, Version};
use crate::process;
use crate::raw;

/// Directory of the store in which marks are put.
pub(crate) const MARKS: &str = ".marks";

/// The mark of [`Recorder::settle`], which stays in no record.
const SETTLED: &str = ".settled";

/// Texts above this size are not kept.
const KEEP_BYTES: u64 = 1 << 20;

/// More events than this are not kept: the subject floods.
const EVENTS: usize = 100_000;

/// What recorder and script share.
#[derive(Default)]
struct Shared {
    trace: Vec<Event>,
    is_lost: bool,
}

/// A running record.
pub(crate) struct Recorder {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    stop: Arc<AtomicBool>,
    root: PathBuf,
    thread: Option<std::thread::JoinHandle<()>>,
    start: Instant,
}

impl Recorder {
    /// Begins to watch a store. `token` is what the processes of the subject carry in their environment.
    pub(crate) fn start(root: &Path, token: &str) -> Self {
        let shared = Arc::new((Mutex::new(Shared::default()), Condvar::new()));
        let (stop, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let thread = platform::spawn(root, token, start, &shared, &stop);
        Self { shared, stop, root: root.to_owned(), thread, start }
    }

    /// Whether the system tells events.
    pub(crate) fn is_ordered(&self) -> bool {
        self.thread.is_some()
    }

    /// When the record began.
    pub(crate) fn began(&self) -> Instant {
        self.start
    }

    /// Puts a mark, and waits until it was seen.
    pub(crate) fn mark(&self, name: &str) {
        if !self.is_ordered() {
            let at_ms = raw::since_ms(self.start);
            lock(&self.shared).trace.push(event(at_ms, Op::Mark, name.to_owned()));
            return;
        }
        self.put(name);
    }

    /// Waits until all that was done in the store before was seen, so that a directory that was just made is watched.
    pub(crate) fn settle(&self) {
        if !self.is_ordered() {
            return;
        }
        self.put(SETTLED);
        lock(&self.shared).trace.retain(|event| event.op != Op::Mark || event.path != SETTLED);
        let _ = fs::remove_file(self.root.join(MARKS).join(SETTLED));
    }

    /// Makes a file in the directory of marks, and waits until it was seen.
    fn put(&self, name: &str) {
        if fs::write(self.root.join(MARKS).join(name), b"").is_err() {
            return;
        }
        let until = Instant::now() + Duration::from_secs(5);
        let mut shared = lock(&self.shared);
        let seen = |shared: &Shared| {
            shared.trace.iter().any(|event| event.op == Op::Mark && event.path == name)
        };
        while !seen(&shared) && Instant::now() < until {
            let pause = Duration::from_millis(200);
            let waited = self.shared.1.wait_timeout(shared, pause);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the record; what was seen, and whether all of it was.
    pub(crate) fn finish(mut self) -> (Vec<Event>, bool) {
        let is_ordered = self.is_ordered();
        self.stop();
        let mut shared = lock(&self.shared);
        (std::mem::take(&mut shared.trace), is_ordered && !shared.is_lost)
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(shared: &(Mutex<Shared>, Condvar)) -> std::sync::MutexGuard<'_, Shared> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn event(at_ms: u64, op: Op, path: String) -> Event {
    Event { at_ms, op, path, from: None, version: None, by_suite: false, is_dir: false }
}

/// Reads a small file without waiting and without following a link.
pub(crate) fn read(path: &Path, token: Option<&str>) -> Option<Version> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > KEEP_BYTES {
        return None;
    }
    let mut file = fs::File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    let mut bytes = Vec::new();
    file.by_ref().take(KEEP_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok();
    let own_process = token.and_then(|token| named_process(text.as_deref()?, token));
    Some(Version { text, ino: meta.ino(), mode: meta.mode() & 0o7777, own_process })
}

/// Whether the process that a status names carries the token.
fn named_process(text: &str, token: &str) -> Option<bool> {
    let status: serde_json::Value = serde_json::from_str(text).ok()?;
    let pid = ["runnerPid", "ownerPid", "pid"].iter().find_map(|key| status.get(key)?.as_i64())?;
    Some(process::carries(pid, token))
}

/// The paths that lead to a watched directory, and what is still to be told about renames.
struct Watched {
    root: PathBuf,
    token: String,
    start: Instant,
    dirs: HashMap<i32, String>,
    found: HashSet<String>,
    left: HashMap<u32, String>,
}

impl Watched {
    fn full(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    fn told(&self, op: Op, path: String, is_dir: bool, from: Option<String>) -> Event {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_status = name == "status.json";
        let is_read = matches!(op, Op::Renamed | Op::Modified | Op::Found | Op::Created)
            && [".json", ".md", ".claim"].iter().any(|end| path.ends_with(end))
            && !is_dir;
        let token = is_status.then_some(self.token.as_str());
        let version = is_read.then(|| read(&self.full(&path), token)).flatten();
        Event { at_ms: raw::since_ms(self.start), op, path, from, version, by_suite: false, is_dir }
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd as _, OwnedFd};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::{
        Arc, AtomicBool, Condvar, EVENTS, Event, HashMap, HashSet, Instant, MARKS, Mutex, Op,
        Ordering, Path, Shared, Watched, event, fs, lock, raw,
    };

    /// Starts the thread, if the system has an instance left.
    pub(super) fn spawn(
        root: &Path,
        token: &str,
        start: Instant,
        shared: &Arc<(Mutex<Shared>, Condvar)>,
        stop: &Arc<AtomicBool>,
    ) -> Option<std::thread::JoinHandle<()>> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let mut watched = Watched {
            root: root.to_owned(),
            token: token.to_owned(),
            start,
            dirs: HashMap::new(),
            found: HashSet::new(),
            left: HashMap::new(),
        };
        watch(&fd, &mut watched, "", &mut |_| {});
        let (shared, stop) = (Arc::clone(shared), Arc::clone(stop));
        Some(std::thread::spawn(move || follow(&fd, watched, &shared, &stop)))
    }

    fn watch(fd: &OwnedFd, watched: &mut Watched, path: &str, told: &mut dyn FnMut(Event)) {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        let full = watched.full(path);
        let Ok(wd) = inotify::add_watch(fd, &full, flags) else { return };
        let is_new = watched.dirs.insert(wd, path.to_owned()).is_none();
        let Ok(entries) = fs::read_dir(&full) else { return };
        let mut names: Vec<_> = entries.flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let name = entry.file_name().to_string_lossy().into_owned();
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_new {
                watched.found.insert(below.clone());
                told(watched.told(Op::Found, below.clone(), is_dir, None));
            }
            if is_dir {
                watch(fd, watched, &below, told);
            }
        }
    }

    fn follow(
        fd: &OwnedFd,
        mut watched: Watched,
        shared: &Arc<(Mutex<Shared>, Condvar)>,
        stop: &AtomicBool,
    ) {
        let mut room = vec![MaybeUninit::uninit(); 64 * 1024];
        loop {
            // Looked at before the last read, so that what was told by then is read.
            let last = stop.load(Ordering::SeqCst);
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = poll(&mut [PollFd::new(&fd.as_fd(), PollFlags::IN)], Some(&wait));
            let mut reader = inotify::Reader::new(fd, &mut room);
            while let Ok(seen) = reader.next() {
                let name = seen.file_name().map(|n| n.to_string_lossy().into_owned());
                let what = (seen.wd(), seen.events(), seen.cookie());
                let events = one(fd, &mut watched, what, name);
                let mut held = lock(shared);
                held.is_lost |= what.1.contains(ReadFlags::QUEUE_OVERFLOW);
                for event in events {
                    if held.trace.len() < EVENTS {
                        held.trace.push(event);
                    } else {
                        held.is_lost = true;
                    }
                }
                shared.1.notify_all();
            }
            if last {
                return;
            }
        }
    }

    fn one(
        fd: &OwnedFd,
        watched: &mut Watched,
        (wd, flags, cookie): (i32, ReadFlags, u32),
        name: Option<String>,
    ) -> Vec<Event> {
        let (Some(dir), Some(name)) = (watched.dirs.get(&wd).cloned(), name) else {
            return Vec::new();
        };
        if dir == MARKS {
            let is_new = flags.contains(ReadFlags::CREATE);
            let mark = event(raw::since_ms(watched.start), Op::Mark, name);
            return is_new.then_some(mark).into_iter().collect();
        }
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        let is_dir = flags.contains(ReadFlags::ISDIR);
        if flags.contains(ReadFlags::MOVED_FROM) {
            watched.left.insert(cookie, path.clone());
            return vec![watched.told(Op::Removed, path, is_dir, None)];
        }
        let from =
            flags.contains(ReadFlags::MOVED_TO).then(|| watched.left.remove(&cookie)).flatten();
        let op = match flags {
            f if f.contains(ReadFlags::MOVED_TO) => Op::Renamed,
            f if f.contains(ReadFlags::CREATE) => Op::Created,
            f if f.contains(ReadFlags::MODIFY) => Op::Modified,
            f if f.contains(ReadFlags::DELETE) => Op::Removed,
            _ => return Vec::new(),
        };
        // What was found and is told as made is the same thing twice.
        if op == Op::Created && watched.found.remove(&path) {
            return Vec::new();
        }
        let mut out = vec![watched.told(op, path.clone(), is_dir, from.clone())];
        if is_dir && matches!(op, Op::Created | Op::Renamed) {
            if let Some(from) = from {
                renamed(watched, &from, &path);
            }
            watch(fd, watched, &path, &mut |event| out.push(event));
        }
        out
    }

    /// Watches stay with their directories when these get other names.
    fn renamed(watched: &mut Watched, from: &str, to: &str) {
        for path in watched.dirs.values_mut() {
            if let Some(rest) =
                path.strip_prefix(from).filter(|r| r.is_empty() || r.starts_with('/'))
            {
                *path = format!("{to}{rest}");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Arc, AtomicBool, Condvar, Instant, Mutex, Path, Shared};

    /// The system tells no order of events across directories.
    pub(super) fn spawn(
        _root: &Path,
        _token: &str,
        _start: Instant,
        _shared: &Arc<(Mutex<Shared>, Condvar)>,
        _stop: &Arc<AtomicBool>,
    ) -> Option<std::thread::JoinHandle<()>> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_in_a_directory_that_was_settled_is_seen() {
        let root = std::env::temp_dir().join(format!("conformance-settle-{}", std::process::id()));
        fs::create_dir_all(root.join(MARKS)).expect("room");
        let recorder = Recorder::start(&root, "token");
        for n in 0..300 {
            let dir = format!("a-{n}/b");
            fs::create_dir_all(root.join(&dir)).expect("room");
            recorder.settle();
            fs::write(root.join(&dir).join("x"), b"").expect("room");
            fs::remove_file(root.join(&dir).join("x")).expect("ours");
        }
        recorder.mark("end");
        let (trace, is_whole) = recorder.finish();
        let of = |op: Op| trace.iter().filter(|e| e.op == op && e.path.ends_with("/x")).count();
        assert!(is_whole && (of(Op::Created), of(Op::Removed)) == (300, 300));
        let marks = trace.iter().filter(|event| event.op == Op::Mark).map(|event| &*event.path);
        assert_eq!(marks.collect::<Vec<_>>(), ["end"], "it leaves no mark");
        fs::remove_dir_all(root).expect("ours");
    }
}
