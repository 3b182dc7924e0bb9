//! Two bare processes that say what launcher and runner say in a revival, and nothing else.
//!
//! Theory of operation. One process plays the runner ([`runner`]), the measuring one the launcher
//! ([`Launcher::talk`]). They replace the same files in the same order as the library's sides do, each by a new
//! file and a rename, and read what the other one wrote; nothing is checked, judged or flushed. Each waits as its
//! [`Manner`] says: for an event of an inotify instance that is there before, or by looking every 20 ms,
//! which is what the published peers do.
//!
//! The conversation is timed from the moment at which `ready` is there to that at which `proceed` is in its
//! place: that is the part in which either side waits for the other.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Mode, OFlags};

/// What the runner says.
pub const SAID: &str = "runner-startup.json";
/// What the launcher says, in order.
const ACK: &str = "runner-startup-ack.json";
const CONFIRM: &str = "runner-startup-confirm.json";
const PROCEED: &str = "runner-startup-proceed.json";

/// How a side waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// For an event.
    Woken,
    /// By looking every 20 ms.
    Polling,
}

impl Manner {
    /// Its word on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Woken => "woken",
            Self::Polling => "polling",
        }
    }

    /// The manner of a word.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Woken, Self::Polling].into_iter().find(|manner| manner.as_str() == word)
    }
}

/// A directory in which one side speaks and hears.
struct Side {
    dir: OwnedFd,
    events: Option<OwnedFd>,
    number: u32,
}

impl Side {
    fn open(path: &Path, events: Option<OwnedFd>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        if let Some(events) = &events {
            inotify::add_watch(events, path, WatchFlags::MOVED_TO)?;
        }
        Ok(Self { dir, events, number: 0 })
    }

    fn say(&mut self, name: &str, word: &str) -> io::Result<()> {
        self.number += 1;
        let temp = format!(".{name}.{}.{:013}.tmp", std::process::id(), self.number);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &temp, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::io::write(&file, word.as_bytes())?;
        drop(file);
        Ok(rustix::fs::renameat(&self.dir, &temp, &self.dir, name)?)
    }

    fn is_said(&self, name: &str, word: &str) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            file => file?,
        };
        let mut bytes = [0; 512];
        let n = rustix::io::read(&file, &mut bytes)?;
        Ok(bytes[..n] == *word.as_bytes())
    }

    fn hear(&self, name: &str, word: &str) -> io::Result<()> {
        while !self.is_said(name, word)? {
            match &self.events {
                Some(events) => {
                    let mut buffer = [MaybeUninit::uninit(); 1024];
                    inotify::Reader::new(events, &mut buffer).next()?;
                }
                #[expect(clippy::disallowed_methods, reason = "this is the polling side")]
                None => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
        Ok(())
    }
}

/// A message of about the usual size.
fn message(key: &str, word: &str) -> String {
    format!(
        "{{\"{key}\":\"{word}\",\"token\":\"0f8fad5b-d9cb-469f-a165-70867728950e\",\"pid\":4242}}"
    )
}

fn instance(manner: Manner) -> io::Result<Option<OwnedFd>> {
    Ok(match manner {
        // It may wait in the read.
        Manner::Woken => Some(inotify::init(CreateFlags::CLOEXEC)?),
        Manner::Polling => None,
    })
}

/// The runner's side, from `ready` to the end.
///
/// # Errors
/// As the system says.
pub fn runner(dir: &Path, manner: Manner) -> io::Result<()> {
    let mut side = Side::open(dir, instance(manner)?)?;
    side.say(SAID, &message("state", "ready"))?;
    side.hear(ACK, &message("action", "ack"))?;
    side.say(SAID, &message("state", "acknowledged"))?;
    side.hear(CONFIRM, &message("action", "confirm"))?;
    side.say(SAID, &message("state", "confirmed"))?;
    side.hear(PROCEED, &message("action", "proceed"))
}

/// The launcher's side, for one conversation after the other.
pub struct Launcher {
    side: Side,
}

impl Launcher {
    /// One for a directory, before its runner is there.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(dir: &Path, manner: Manner) -> io::Result<Self> {
        Ok(Self { side: Side::open(dir, instance(manner)?)? })
    }

    /// Waits until the runner has said `ready`.
    ///
    /// # Errors
    /// As the system says.
    pub fn until_ready(&self) -> io::Result<()> {
        self.side.hear(SAID, &message("state", "ready"))
    }

    /// From there to `proceed`.
    ///
    /// # Errors
    /// As the system says.
    pub fn talk(&mut self) -> io::Result<()> {
        let side = &mut self.side;
        side.hear(SAID, &message("state", "ready"))?;
        side.say(ACK, &message("action", "ack"))?;
        side.hear(SAID, &message("state", "acknowledged"))?;
        side.say(CONFIRM, &message("action", "confirm"))?;
        side.say(ACK, &message("action", "confirm"))?;
        side.hear(SAID, &message("state", "confirmed"))?;
        side.say(PROCEED, &message("action", "proceed"))?;
        Ok(rustix::fs::unlinkat(&side.dir, SAID, AtFlags::empty())?)
    }
}
