//! A disk that remembers every write and every flush: one file of a FUSE file system.
//!
//! Theory of operation. The kernel's side of FUSE is a conversation over `/dev/fuse`: a request is one
//! read, its answer one write, both with a fixed head and fields in the machine's byte order. Of its
//! requests only those are answered that a loop device and a writer of short lines need; the kernel takes
//! *no such call* for an answer to all others. There are two files:
//!
//! * [`DISK`]: its reads and writes go to a file of the owner, its writes and flushes into the log. The kernel
//!   keeps what is read, but passes each write on at once, so the log has the order of the loop device;
//! * [`WORD`]: a number written to it is logged as an acknowledgement, past every cache.
//!
//! One thread answers one request after the other, so there is one order of everything. It ends when the file
//! system is unmounted. When the process ends first, the kernel fails whatever is still asked.
//!
//! Not promised: anything for a second user of the disk at the same time.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::recording::Event;

/// The device through which the kernel asks.
pub const DEVICE: &str = "/dev/fuse";
/// Name of the file that is the disk.
pub const DISK: &str = "disk";
/// Name of the file that takes acknowledgements.
pub const WORD: &str = "word";

const ROOT_ID: u64 = 1;
const DISK_ID: u64 = 2;
const WORD_ID: u64 = 3;

/// Bytes before the arguments of a request, and of an answer.
const HEAD_IN: usize = 40;
const HEAD_OUT: usize = 16;
/// Bytes before the data of a write request.
const WRITE_HEAD: usize = 40;
/// The longest write; with this one the kernel needs no further agreement.
const MAX_WRITE: usize = 128 << 10;
/// The version of the conversation that is spoken.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Writes may be longer than a page.
const BIG_WRITES: u32 = 1 << 5;
/// An open file whose reads and writes are kept in no cache.
const DIRECT_IO: u32 = 1;
/// Seconds for which the kernel may keep names and attributes: they never change.
const KEPT_S: u64 = 3600;

/// A disk that is mounted as a file. Dropping it unmounts.
#[derive(Debug)]
pub struct Disk {
    top: PathBuf,
    log: Arc<Mutex<Vec<Event>>>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Mounts, at an empty directory, a disk whose content is in a file.
    ///
    /// # Errors
    /// As the system says; only root may do this.
    pub fn serve(top: &Path, content: File) -> io::Result<Self> {
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).expect("no zero byte is in it");
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        rustix::mount::mount("power-cut", top, "fuse", flags, options.as_c_str())?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let server = Server { size: content.metadata()?.len(), content, log: Arc::clone(&log) };
        let thread = std::thread::spawn(move || server.answer_all(&device));
        Ok(Self { top: top.to_owned(), log, thread: Some(thread) })
    }

    /// The file that is the disk.
    pub fn disk(&self) -> PathBuf {
        self.top.join(DISK)
    }

    /// The file that takes acknowledgements.
    pub fn word(&self) -> PathBuf {
        self.top.join(WORD)
    }

    /// Everything that has happened so far.
    pub fn events(&self) -> Vec<Event> {
        held(&self.log).clone()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a loop device may let go of its file a moment later, and the thread ends with that.
        let unmounted = rustix::mount::unmount(&self.top, UnmountFlags::DETACH).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| unmounted) {
            // It panics only on a request that is not as agreed; the log up to there is good.
            let _ = thread.join();
        }
    }
}

fn held(log: &Mutex<Vec<Event>>) -> MutexGuard<'_, Vec<Event>> {
    log.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Server {
    size: u64,
    content: File,
    log: Arc<Mutex<Vec<Event>>>,
}

/// A request without its head.
struct Request<'a> {
    node: u64,
    rest: &'a [u8],
}

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32_at(self.rest, at)
    }

    fn u64(&self, at: usize) -> u64 {
        u64_at(self.rest, at)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Fields one after the other, as an answer has them.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}

impl Server {
    fn answer_all(&self, device: &OwnedFd) {
        let mut buffer = vec![0; MAX_WRITE + 4096];
        loop {
            let length = match rustix::io::read(device.as_fd(), &mut buffer) {
                Ok(length) => length,
                // The asker was interrupted before its request was taken.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                // Unmounted.
                Err(_) => return,
            };
            let request = &buffer[..length];
            let (call, unique) = (u32_at(request, 4), u64_at(request, 8));
            let request = Request { node: u64_at(request, 16), rest: &request[HEAD_IN..] };
            let Some(answer) = self.answer(call, &request) else { continue };
            let (error, fields) = match answer {
                Ok(fields) => (0, fields.0),
                Err(e) => (-e.raw_os_error(), Vec::new()),
            };
            let length = u32::try_from(HEAD_OUT + fields.len()).expect("an answer is short");
            let head = Fields::default().u32(length).u32(error.cast_unsigned()).u64(unique);
            // It fails when the asker has gone, or with the file system: the next read tells which.
            let _ = rustix::io::write(device.as_fd(), &[head.0, fields].concat());
        }
    }

    /// The answer to a request, unless it takes none.
    fn answer(&self, call: u32, request: &Request<'_>) -> Option<Result<Fields, Errno>> {
        Some(match call {
            // FORGET, INTERRUPT, BATCH_FORGET.
            2 | 36 | 42 => return None,
            // LOOKUP
            1 => Self::id(request.rest).ok_or(Errno::NOENT).map(|id| {
                let head = Fields::default().u64(id).u64(0).u64(KEPT_S).u64(KEPT_S).zeros(8);
                self.attributes(head, id)
            }),
            // GETATTR; SETATTR, of which nothing is taken over.
            3 | 4 => Ok(self.attributes(Fields::default().u64(KEPT_S).zeros(8), request.node)),
            // OPEN
            14 => {
                let flags = if request.node == WORD_ID { DIRECT_IO } else { 0 };
                Ok(Fields::default().u64(0).u32(flags).zeros(4))
            }
            // READ
            15 => self.read(request.node, request.u64(8), request.u32(16) as usize),
            // WRITE
            16 => {
                let length = request.u32(16);
                let data = &request.rest[WRITE_HEAD..WRITE_HEAD + length as usize];
                self.write(request.node, request.u64(8), data)
                    .map(|()| Fields::default().u32(length).zeros(4))
            }
            // FSYNC
            20 => {
                if request.node == DISK_ID {
                    held(&self.log).push(Event::Flush);
                }
                Ok(Fields::default())
            }
            // RELEASE, FLUSH: a close is no flush of a disk.
            18 | 25 => Ok(Fields::default()),
            // INIT
            26 => Ok(Fields::default()
                .u32(MAJOR)
                .u32(MINOR.min(request.u32(4)))
                .u32(request.u32(8))
                .u32(BIG_WRITES & request.u32(12))
                .u16(0)
                .u16(0)
                .u32(u32::try_from(MAX_WRITE).expect("it is small"))
                .u32(1)
                .zeros(36)),
            _ => Err(Errno::NOSYS),
        })
    }

    fn id(name: &[u8]) -> Option<u64> {
        match name.strip_suffix(b"\0").and_then(|name| std::str::from_utf8(name).ok())? {
            DISK => Some(DISK_ID),
            WORD => Some(WORD_ID),
            _ => None,
        }
    }

    fn attributes(&self, head: Fields, id: u64) -> Fields {
        let size = if id == DISK_ID { self.size } else { 0 };
        let mode = if id == ROOT_ID { 0o040_700 } else { 0o100_600 };
        // Number, size, blocks; three times with their nanoseconds; mode, links; owner, group and
        // device; the size of a block, flags.
        let head = head.u64(id).u64(size).u64(size / 512).zeros(3 * 8 + 3 * 4);
        head.u32(mode).u32(1).zeros(3 * 4).u32(4096).zeros(4)
    }

    fn read(&self, node: u64, offset: u64, length: usize) -> Result<Fields, Errno> {
        let length = match node {
            DISK_ID => self.size.saturating_sub(offset).min(length as u64),
            _ => 0,
        };
        let mut bytes = vec![0; usize::try_from(length).expect("as long as was asked for")];
        self.content.read_exact_at(&mut bytes, offset).map_err(|_| Errno::IO)?;
        Ok(Fields(bytes))
    }

    fn write(&self, node: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let event = if node == DISK_ID {
            self.content.write_all_at(data, offset).map_err(|_| Errno::IO)?;
            Event::Write(offset, data.to_vec())
        } else {
            let number = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse().ok());
            Event::Acknowledged(number.ok_or(Errno::INVAL)?)
        };
        held(&self.log).push(event);
        Ok(())
    }
}
