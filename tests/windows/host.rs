//! The real host, with something that happens at the writer's waits.
//!
//! A test that holds a file lets go of it at the wait with a given number, so what is seen does not
//! depend on how fast a machine is. The wait itself is left out. A new directory can be refused with any
//! code of the system, also one that cannot be brought about here.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use runstore::protocol::process::{ProcessSeen, SystemFacts};
use runstore::store::RealHost;
use runstore::store::host::{DirEntry, FileRead, Host, Part, ReadError, Space, Stat, WriteHost};

type Event = Box<dyn FnOnce() + Send>;

/// A real host without real waits.
pub(crate) struct Hooked {
    real: RealHost,
    at_wait: Mutex<Option<(usize, Event)>>,
    waits_ms: Mutex<Vec<u64>>,
    /// A code of the system, and how many new directories are still refused with it.
    refused: Mutex<(i32, usize)>,
}

impl Hooked {
    /// Lets `event` happen at the `n`-th wait, from 1.
    pub(crate) fn at_wait(n: usize, event: impl FnOnce() + Send + 'static) -> Self {
        let at_wait = Mutex::new(Some((n, Box::new(event) as Event)));
        let (waits_ms, refused) = (Mutex::default(), Mutex::default());
        Self { real: RealHost::new(), at_wait, waits_ms, refused }
    }

    /// Refuses the first `times` attempts to make a directory with a code of the system.
    pub(crate) fn refusing(code: i32, times: usize) -> Self {
        let (at_wait, waits_ms) = (Mutex::default(), Mutex::default());
        Self { real: RealHost::new(), at_wait, waits_ms, refused: Mutex::new((code, times)) }
    }

    /// What was waited, in order.
    pub(crate) fn waits_ms(&self) -> Vec<u64> {
        self.waits_ms.lock().expect("no test panics here").clone()
    }
}

/// Calls that the real host answers.
macro_rules! answered_by_the_real_host {
    ($(fn $name:ident(&self $(, $word:ident: $kind:ty)*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $word: $kind)*) -> $answer {
            self.real.$name($($word),*)
        })*
    };
}

impl Host for Hooked {
    type Dir = PathBuf;

    answered_by_the_real_host! {
        fn open_dir(&self, path: &Path) -> io::Result<PathBuf>;
        fn open_dir_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<PathBuf>;
        fn stat_dir(&self, dir: &PathBuf) -> io::Result<Stat>;
        fn stat_at(&self, dir: &PathBuf, name: &OsStr) -> io::Result<Stat>;
        fn stat(&self, path: &Path) -> io::Result<Stat>;
        fn read_at(&self, dir: &PathBuf, name: &OsStr, part: Part) -> Result<FileRead, ReadError>;
        fn list(
            &self, dir: &PathBuf, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>
        ) -> io::Result<()>;
        fn absolute(&self, path: &Path) -> PathBuf;
        fn real_path(&self, path: &Path) -> io::Result<PathBuf>;
        fn now_ms(&self) -> i64;
        fn system(&self) -> &SystemFacts;
        fn process(&self, pid: i64) -> ProcessSeen;
        fn temp_dir(&self) -> PathBuf;
    }

    fn env(&self, _name: &str) -> Option<OsString> {
        // The environment of who runs the tests changes nothing.
        None
    }
}

impl WriteHost for Hooked {
    type File = File;

    answered_by_the_real_host! {
        fn create(&self, dir: &PathBuf, name: &OsStr, mode: u32) -> io::Result<File>;
        fn open_append(
            &self, dir: &PathBuf, name: &OsStr, mode: u32, create: bool
        ) -> io::Result<File>;
        fn set_mode(&self, file: &File, mode: u32) -> io::Result<()>;
        fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize>;
        fn sync(&self, file: &File) -> io::Result<()>;
        fn sync_dir(&self, dir: &PathBuf) -> io::Result<()>;
        fn rename(
            &self, from_dir: &PathBuf, from: &OsStr, to_dir: &PathBuf, to: &OsStr
        ) -> io::Result<()>;
        fn rename_new(
            &self, from_dir: &PathBuf, from: &OsStr, to_dir: &PathBuf, to: &OsStr
        ) -> io::Result<()>;
        fn add_name(&self, dir: &PathBuf, name: &OsStr, other: &OsStr) -> io::Result<()>;
        fn may_split_rename(&self, dir: &PathBuf) -> bool;
        fn unlink(&self, dir: &PathBuf, name: &OsStr) -> io::Result<()>;
        fn set_dir_mode(&self, dir: &PathBuf, name: &OsStr, mode: u32) -> io::Result<()>;
        fn remove_dir(&self, dir: &PathBuf, name: &OsStr) -> io::Result<()>;
        fn try_lock(&self, file: &File) -> io::Result<bool>;
        fn unlock(&self, file: &File) -> io::Result<()>;
        fn umask(&self) -> u32;
        fn random(&self) -> u64;
        fn space(&self, dir: &PathBuf) -> Option<Space>;
    }

    fn create_dir(&self, dir: &PathBuf, name: &OsStr, mode: u32) -> io::Result<()> {
        let mut refused = self.refused.lock().expect("no test panics here");
        if refused.1 > 0 {
            refused.1 -= 1;
            return Err(io::Error::from_raw_os_error(refused.0));
        }
        self.real.create_dir(dir, name, mode)
    }

    fn wait_ms(&self, ms: u64) {
        let mut waits = self.waits_ms.lock().expect("no test panics here");
        waits.push(ms);
        let mut event = self.at_wait.lock().expect("no test panics here");
        if event.as_ref().is_some_and(|(n, _)| *n == waits.len())
            && let Some((_, happen)) = event.take()
        {
            happen();
        }
    }
}
