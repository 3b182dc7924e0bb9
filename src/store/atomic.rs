//! Replacing a file so that a reader sees the old text or the new one, and nothing else.
//!
//! Ordered steps of [`replace`]:
//! 1. look at the target: a link or another kind of file is refused, and the new mode is the stricter
//!    of the old one and 0600 (left out when the caller knows the mode);
//! 2. create a temp file in the same directory: exclusively, following no link, mode 0600;
//! 3. set the mode, if the umask took more than it should or the old mode is stricter, *before* any
//!    byte is in the file: the other order leaves a moment in which others can read it;
//! 4. write all bytes;
//! 5. flush the file (from [`Durability::Ordered`]) *before* the rename: the other order can leave the
//!    name on an empty or zero-filled file after a power cut, which is worse than the old text;
//! 6. rename it onto the target, trying again where another program holds the target; whoever asked looks
//!    once more right before each attempt, and may say no: a look before the first wait only would lose
//!    what others write meanwhile;
//! 7. flush the directory (from [`Durability::Durable`]): before that the rename may be lost.
//!
//! Around steps 6 and 7 the old file has a second name, at the level durable and where the file system
//! may need it; when and why is told in `second_name`.
//!
//! Where umask and mode are known and right, steps 2, 4 and 6 are four system calls, with the closing of the
//! file; steps 1 and 3 are one each. Steps 5 and 7 are the only flushes.
//!
//! What a crash leaves: before step 6 the old file and at most one temp file, after it the new file.
//! What an error leaves: the old file and no temp file, except that a failing step 7 leaves the new
//! file in place and says so. A failed flush is final for its temp file: after it nothing is known of
//! what reached the disk, so the file is removed and never flushed again.
//!
//! Not promised: one atomic step over several files; the level ordered after a power cut where the file
//! system does not rename in one step, as ext4 without a journal. There is no fall-back that writes in place.
//! Spec: RS-ATOM-01 to RS-ATOM-11, RS-ATOM-14, RS-DUR-01 to RS-DUR-04, RS-DUR-07; facts W-1 to W-9.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::io;

use crate::protocol::temp_name;

use super::host::{FileKind, WriteHost};
use super::retry::{self, Attempts, RetryPolicy};
use super::second_name;

/// What survives. Each level includes the one before.
///
/// The level belongs to the file, not to the call: one unflushed replace undoes what an earlier
/// flushed one had made durable, because the new text takes the place of the old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Survives the death of a process: rename only. A power cut may leave the file torn or empty.
    ProcessSafe,
    /// Never torn: the file is flushed before the rename. A power cut may bring the old text back.
    Ordered,
    /// Acknowledged means kept: the directory is flushed as well.
    Durable,
}

/// What is known of the target before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: look.
    Unknown,
    /// This caller wrote it last, with this mode.
    Known(u32),
    /// It must not exist; a replace fails when it does.
    New,
    /// It gets the mode that it once had, with the content that it once had.
    Restored(u32),
}

/// How a file is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What must survive.
    pub durability: Durability,
    /// What is known of the target.
    pub target: Target,
    /// How often a refused rename is tried, and until when.
    pub retry: RetryPolicy,
}

impl Options {
    /// Options of one level, with nothing known and the system's default of retries.
    pub fn new(durability: Durability) -> Self {
        Self { durability, target: Target::Unknown, retry: RetryPolicy::default() }
    }

    /// The same with a known target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// The same with another retry policy.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }
}

/// What a successful replace took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The mode the file has now; a later replace of this caller may rely on it.
    pub mode: u32,
    /// Attempts at the rename.
    pub rename: Attempts,
    /// Whether a second name of the old file is left over: it was needed until now and could not be
    /// removed. It is litter of a known form.
    pub left_over: bool,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Looking at the target.
    Look,
    /// Creating the temp file.
    Create,
    /// Setting its mode.
    SetMode,
    /// Writing.
    Write,
    /// Flushing the file.
    Flush,
    /// Renaming it onto the target.
    Rename,
    /// Flushing the directory: the new file is in place, but may not survive a power cut.
    FlushDirectory,
    /// Creating a directory.
    CreateDirectory,
    /// Appending.
    Append,
    /// Removing a name.
    Remove,
    /// Taking an advisory lock.
    Lock,
}

impl Step {
    fn verb(self) -> &'static str {
        match self {
            Self::Look => "look at",
            Self::Create => "create a temp file for",
            Self::SetMode => "set the mode of the temp file for",
            Self::Write => "write the temp file for",
            Self::Flush => "flush the temp file for",
            Self::Rename => "rename the temp file onto",
            Self::FlushDirectory => "flush the directory after replacing",
            Self::CreateDirectory => "create the directory",
            Self::Append => "append to",
            Self::Remove => "remove",
            Self::Lock => "lock",
        }
    }
}

/// A write that failed. The target is as it was, except after [`Step::FlushDirectory`]. Then a second name
/// of the old file may be there as well (RS-ATOM-14).
#[derive(Debug)]
pub struct WriteError {
    /// The step.
    pub step: Step,
    /// The file, as the caller named it.
    pub name: String,
    /// What it took until then.
    pub attempts: Attempts,
    /// Free bytes of the file system, when it was full.
    pub free_bytes: Option<u64>,
    /// Why removing the temp file failed as well, if it did.
    pub cleanup: Option<io::Error>,
    /// The cause.
    pub source: io::Error,
}

impl WriteError {
    /// An error of one attempt. Asks for the free bytes when the file system of `dir` is full.
    pub(super) fn of<H: WriteHost>(
        host: &H,
        dir: &H::Dir,
        step: Step,
        name: &str,
        source: io::Error,
    ) -> Self {
        let free_bytes =
            if is_capacity(&source) { host.space(dir).map(|s| s.free_bytes) } else { None };
        let name = name.to_owned();
        Self { step, name, attempts: Attempts::default(), free_bytes, cleanup: None, source }
    }

    /// The same with the path of the directory before the name.
    #[must_use]
    pub(super) fn below(mut self, place: &str) -> Self {
        self.name = format!("{place}/{}", self.name);
        self
    }

    /// Whether something stood at a name that was to be new.
    pub(super) fn is_taken(&self) -> bool {
        self.step == Step::Rename && self.source.kind() == io::ErrorKind::AlreadyExists
    }

    /// Whether there was no room (or no handle) for now, so that trying later makes sense.
    pub fn is_capacity(&self) -> bool {
        is_capacity(&self.source)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.step.verb(), self.name)?;
        if self.attempts.made > 1 {
            write!(f, " ({} attempts over {} ms)", self.attempts.made, self.attempts.waited_ms)?;
        }
        // Only the rename and the creation of a directory are tried again.
        if self.attempts.made > 1 && retry::is_transient(&self.source) {
            f.write_str(
                "; another program holds it or forbids it: let go of it there and try again",
            )?;
        }
        if let Some(free) = self.free_bytes {
            write!(f, " ({free} bytes are free on its file system)")?;
        }
        if self.cleanup.is_some() {
            f.write_str("; its temp file is left over")?;
        }
        Ok(())
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Whether an error says that there is no room (or no handle) for now. Facts W-20.
pub fn is_capacity(e: &io::Error) -> bool {
    // ENFILE and EMFILE have no stable kind, nor has ERROR_TOO_MANY_OPEN_FILES.
    let no_handle: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
    is_space(e) || e.raw_os_error().is_some_and(|code| no_handle.contains(&code))
}

/// Whether the disk lacks space, which a reserve can give, and not handles.
pub(super) fn is_space(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The mode of every file that is written here.
pub const FILE_MODE: u32 = 0o600;
/// The mode of every directory that is created here.
pub const DIR_MODE: u32 = 0o700;

/// Times that a temp name is made anew when it is taken. With 64 random bits a second one is chance,
/// a third is an attack.
const NAME_ATTEMPTS: u32 = 3;

/// Replaces one file. See the module's ordered steps.
///
/// # Errors
/// [`WriteError`] with the step that failed.
pub fn replace<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    bytes: &[u8],
    options: &Options,
) -> Result<Written, WriteError> {
    let filled = Filled::make(host, dir, name, bytes, options)?;
    let Ok(written) = filled.put(host, dir, name, options, || Ok::<(), Infallible>(()))?;
    Ok(written)
}

/// Replaces one file if `is_still` says yes right before the rename: after everything that takes time, the flush
/// above all and each wait for another program, so that what it looks at has next to no time to change. `None` if it says
/// no; the old file stays then.
///
/// # Errors
/// As [`replace`].
pub(super) fn replace_if<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    bytes: &[u8],
    options: &Options,
    mut is_still: impl FnMut() -> bool,
) -> Result<Option<Written>, WriteError> {
    let filled = Filled::make(host, dir, name, bytes, options)?;
    let written = filled.put(host, dir, name, options, || is_still().then_some(()).ok_or(()))?;
    Ok(written.ok())
}

/// Steps 1 to 5 are done: the new text lies in a temp file.
struct Filled {
    temp: String,
    mode: u32,
    is_there: bool,
}

impl Filled {
    fn make<H: WriteHost>(
        host: &H,
        dir: &H::Dir,
        name: &str,
        bytes: &[u8],
        options: &Options,
    ) -> Result<Self, WriteError> {
        let fail = |step, e| WriteError::of(host, dir, step, name, e);
        let (mode, is_there) =
            wanted_mode(host, dir, name, options.target).map_err(|e| fail(Step::Look, e))?;
        let (temp, file) = create_temp(host, dir, name).map_err(|e| fail(Step::Create, e))?;
        let filled = fill(host, &file, bytes, mode, options.durability);
        // Closed before the rename: Windows refuses to rename an open file.
        drop(file);
        if let Err((step, e)) = filled {
            let cleanup = host.unlink(dir, temp.as_ref()).err().filter(not_gone);
            return Err(WriteError { cleanup, ..fail(step, e) });
        }
        Ok(Self { temp, mode, is_there })
    }

    /// Steps 6 and 7, if `may` does not say no right before the rename.
    fn put<H: WriteHost, N>(
        self,
        host: &H,
        dir: &H::Dir,
        name: &str,
        options: &Options,
        mut may: impl FnMut() -> Result<(), N>,
    ) -> Result<Result<Written, N>, WriteError> {
        let Self { temp, mode, is_there } = self;
        let fail = |step, e| WriteError::of(host, dir, step, name, e);
        let mut wants_second = is_there && options.durability == Durability::Durable;
        let (mut second, mut refused) = (None, None);
        let (renamed, attempts) = options.retry.run(host, || {
            // At each attempt: the wait for another program is long enough for a third one to write.
            if let Err(no) = may() {
                refused = Some(no);
                return Ok(());
            }
            // After the look: a second name is a change of the old file, by which a look tells that others wrote. At a
            // later attempt the look says so, and whoever asked starts over.
            if std::mem::take(&mut wants_second) {
                second = second_name::give(host, dir, name);
            }
            if options.target == Target::New {
                host.rename_new(dir, temp.as_ref(), dir, name.as_ref())
            } else {
                host.rename(dir, temp.as_ref(), dir, name.as_ref())
            }
        });
        let clean_up = || {
            let cleanup = host.unlink(dir, temp.as_ref()).err().filter(not_gone);
            let also = second_name::take_back(host, dir, second.as_deref()).err();
            cleanup.or(also)
        };
        if let Some(no) = refused {
            // What cannot be removed is litter with a name of its own, and keeps nobody from starting over.
            let _ = clean_up();
            return Ok(Err(no));
        }
        if let Err(e) = renamed {
            return Err(WriteError { attempts, cleanup: clean_up(), ..fail(Step::Rename, e) });
        }
        if options.durability == Durability::Durable {
            // The second name stays when this fails: the entry on the disk may still be that of the old file.
            let failed = |e| WriteError { attempts, ..fail(Step::FlushDirectory, e) };
            host.sync_dir(dir).map_err(failed)?;
        }
        let left_over = second_name::take_back(host, dir, second.as_deref()).is_err();
        Ok(Ok(Written { mode, rename: attempts, left_over }))
    }
}

fn not_gone(e: &io::Error) -> bool {
    e.kind() != io::ErrorKind::NotFound
}

/// The stricter of the old mode and ours, and whether there is an old file; refuses what is not a plain one.
fn wanted_mode<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    target: Target,
) -> io::Result<(u32, bool)> {
    match target {
        Target::Known(mode) => Ok((mode & FILE_MODE, true)),
        Target::New => Ok((FILE_MODE, false)),
        // What is put back is put back as it was. Whether a file is there makes no difference to a mode.
        Target::Restored(mode) => Ok((mode & 0o777, true)),
        Target::Unknown => match host.stat_at(dir, name.as_ref()) {
            Ok(stat) if stat.kind == FileKind::Regular => Ok((stat.mode & FILE_MODE, true)),
            Ok(stat) => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} stands in its place; remove it by hand", stat.kind.name()),
            )),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((FILE_MODE, false)),
            Err(e) => Err(e),
        },
    }
}

fn create_temp<H: WriteHost>(host: &H, dir: &H::Dir, name: &str) -> io::Result<(String, H::File)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let temp = fresh_temp_name(host, name);
        match host.create(dir, OsStr::new(&temp), FILE_MODE) {
            Ok(file) => return Ok((temp, file)),
            // Never opened, never removed: it is somebody else's.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < NAME_ATTEMPTS => {}
            Err(e) => return Err(e),
        }
    }
}

/// A temp name of this process for a file, now.
pub(super) fn fresh_temp_name<H: WriteHost>(host: &H, name: &str) -> String {
    let pid = u64::try_from(host.system().own_pid).unwrap_or(0);
    let random = base36(host.random_for_name());
    temp_name::temp_name(name, pid, host.now_ms(), &random)
}

/// Lower-case base 36, thirteen digits for 64 bits.
pub(super) fn base36(mut n: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut out = [b'0'; 13];
    for slot in out.iter_mut().rev() {
        *slot = DIGITS[usize::try_from(n % 36).unwrap_or(0)];
        n /= 36;
    }
    out.iter().map(|b| char::from(*b)).collect()
}

fn fill<H: WriteHost>(
    host: &H,
    file: &H::File,
    bytes: &[u8],
    mode: u32,
    durability: Durability,
) -> Result<(), (Step, io::Error)> {
    // Created with 0600 less the umask: right already unless one of the two takes more.
    if mode != FILE_MODE & !host.umask() {
        host.set_mode(file, mode).map_err(|e| (Step::SetMode, e))?;
    }
    write_all(host, file, bytes).map_err(|e| (Step::Write, e))?;
    if durability >= Durability::Ordered {
        host.sync(file).map_err(|e| (Step::Flush, e))?;
    }
    Ok(())
}

/// Gives a file that was made with [`FILE_MODE`] this mode where the umask took bits of it: without those of
/// its owner no later process of this user could open it. Spec: RS-ATOM-03.
pub(super) fn overrule_umask<H: WriteHost>(host: &H, file: &H::File) -> io::Result<()> {
    if FILE_MODE & host.umask() == 0 { Ok(()) } else { host.set_mode(file, FILE_MODE) }
}

pub(super) fn write_all<H: WriteHost>(
    host: &H,
    file: &H::File,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        match host.write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n.min(bytes.len())..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
