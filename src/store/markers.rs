//! Keeping the two run indexes in step with a status.
//!
//! Ordered steps of [`update`] with an active state:
//! 1. make `.active-runs` and the empty marker in it, and flush the directory: the marker is what a
//!    listing after a power cut finds the run by;
//! 2. make the alias for the tool call, best effort and not flushed: without it the run is still found
//!    by its id.
//!
//! Ordered steps of [`update`] with any other state:
//! 1. read the status again; if it says the same state, write the terminal marker, durable;
//! 2. remove the active marker;
//! 3. remove the run's name from every alias directory, then those directories if they are empty.
//!
//! The terminal marker comes *first*. The reference removes the active marker before it writes the
//! terminal one, and a crash in between leaves a run that no listing shows (facts ). This way
//! round a crash leaves a run in both indexes, which is what every reader sees anyway between a
//! terminal status and the removal of the marker. For the same reason a failure of step 1 ends the
//! update: the active marker stays until the terminal one is there. Only a name that is too long for
//! the file system would never go away, so it is told and the update goes on.
//!
//! Removals are not flushed here: a marker that a power cut brings back is a hint about a run whose status
//! says otherwise, and a listing takes it away (`RS-INDEX-05`). Only what follows from a proof is
//! (`release_for_good`). Alias directories are removed by
//! whoever finds them empty; a writer whose alias directory vanishes makes it again.
//!
//! Not promised: that the marker of a run and its status agree at every moment. The caller writes the
//! status first, and the marker is a hint. Spec: RS-INDEX-14 to RS-INDEX-19; facts to
//!

use std::io;

use crate::protocol::document::{object_text, string_text};
use crate::protocol::ids::RunId;
use crate::protocol::marker::terminal_marker_name;
use crate::protocol::segment::{self, SegmentInput};
use crate::protocol::{DecodeError, Document, Open, RunState, layout, limits};

use super::atomic::{self, Durability, FILE_MODE, Options, Step, WriteError};
use super::directory;
use super::host::{FileKind, Host, Part, ReadError, WriteHost};
use super::read::ExpectedOwner;
use super::retry::RetryPolicy;

/// What became of the active marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// It was made.
    Made,
    /// It was there.
    Kept,
    /// It was removed.
    Removed,
    /// There was none.
    Absent,
}

/// What became of the terminal marker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Terminal {
    /// None was due: the state is active, or the run was only released.
    NotDue,
    /// It was written under this name, below `.terminal-runs`.
    Written(String),
    /// There is no status that can be read; the text says why.
    NoStatus(String),
    /// The status says another state than the caller.
    OtherState(Open<RunState>),
    /// The status names another run than its directory, so every reader would refuse the marker.
    OtherRun,
    /// The run belongs to no session, so there is no list to be in.
    NoSession,
    /// Its name would be too long for a file (facts X-20); see the problems.
    Failed,
}

/// What an update or a release did.
#[derive(Debug)]
pub struct Updated {
    /// The active marker.
    pub marker: Marker,
    /// Number of aliases that were made or removed.
    pub aliases: usize,
    /// The terminal marker.
    pub terminal: Terminal,
    /// What failed of the parts that are best effort.
    pub problems: Vec<WriteError>,
}

/// Brings the indexes in step with a state that was just written to the status of `run`.
///
/// # Errors
/// [`WriteError`] when the active marker cannot be made or removed, or the terminal one not written.
/// When there was no room ([`WriteError::is_capacity`]) it makes sense to call again later. Everything that
/// was done stays; calling again with the same state completes it.
pub fn update<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
    state: RunState,
    tool_call: Option<&SegmentInput>,
    retry: &RetryPolicy,
) -> Result<Updated, WriteError> {
    if state.is_active() {
        return enter(host, runs, run, tool_call, retry);
    }
    let mut problems = Vec::new();
    // Before the removal: a run must be in one index at least.
    let terminal = match write_terminal(host, runs, run, state, retry) {
        Ok(terminal) => terminal,
        // A name that no file system takes will never be taken.
        Err(e) if e.source.kind() == io::ErrorKind::InvalidFilename => {
            problems.push(e);
            Terminal::Failed
        }
        Err(e) => return Err(e),
    };
    let mut updated = release(host, runs, run)?;
    updated.terminal = terminal;
    updated.problems.splice(0..0, problems);
    Ok(updated)
}

fn enter<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
    tool_call: Option<&SegmentInput>,
    retry: &RetryPolicy,
) -> Result<Updated, WriteError> {
    let index = directory::create_durable(host, runs, layout::ACTIVE_INDEX, retry)?.0;
    let below = |e: WriteError| e.below(layout::ACTIVE_INDEX);
    let marker = create_empty(host, &index, run.as_str()).map_err(below)?;
    // Also when it was there: whoever made it may not have flushed it.
    host.sync_dir(&index)
        .map_err(|e| WriteError::of(host, &index, Step::FlushDirectory, run.as_str(), e))
        .map_err(below)?;
    let mut updated =
        Updated { marker, aliases: 0, terminal: Terminal::NotDue, problems: Vec::new() };
    // An empty id is none, as the reference has it.
    if let Some(tool_call) = tool_call.filter(|id| !id.text().is_empty()) {
        match create_alias(host, &index, run, tool_call, retry) {
            Ok(Marker::Made) => updated.aliases = 1,
            Ok(_) => {}
            Err(e) => updated.problems.push(below(e)),
        }
    }
    Ok(updated)
}

/// Times that an alias directory is made anew when somebody prunes it before the alias is in it.
const PRUNED_ATTEMPTS: u32 = 4;

fn create_alias<H: WriteHost>(
    host: &H,
    index: &H::Dir,
    run: &RunId,
    tool_call: &SegmentInput,
    retry: &RetryPolicy,
) -> Result<Marker, WriteError> {
    let calls = directory::create(host, index, layout::TOOL_CALLS_DIR, retry)?.0;
    let segment = segment::encode(tool_call, limits::NAME_MAX_BYTES);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let dir = directory::create(host, &calls, &segment, retry)
            .map_err(|e| e.below(layout::TOOL_CALLS_DIR))?
            .0;
        match create_empty(host, &dir, run.as_str()) {
            Err(e) if e.source.kind() == io::ErrorKind::NotFound && attempt < PRUNED_ATTEMPTS => {}
            other => {
                return other.map_err(|e| e.below(&segment).below(layout::TOOL_CALLS_DIR));
            }
        }
    }
}

/// Makes an empty plain file, or finds one.
fn create_empty<H: WriteHost>(host: &H, dir: &H::Dir, name: &str) -> Result<Marker, WriteError> {
    let failed = |step, e| WriteError::of(host, dir, step, name, e);
    match host.create(dir, name.as_ref(), FILE_MODE) {
        Ok(file) => {
            // Another writer opens the marker to make it again, so its owner must be able to.
            atomic::overrule_umask(host, &file).map_err(|e| failed(Step::SetMode, e))?;
            Ok(Marker::Made)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let stat = host.stat_at(dir, name.as_ref()).map_err(|e| failed(Step::Look, e))?;
            if stat.kind == FileKind::Regular {
                return Ok(Marker::Kept);
            }
            let why = format!("{} stands in its place; remove it by hand", stat.kind.name());
            Err(failed(Step::Create, io::Error::new(io::ErrorKind::AlreadyExists, why)))
        }
        Err(e) => Err(failed(Step::Create, e)),
    }
}

/// Takes a run out of the active index, without a terminal marker. Facts X-5.
///
/// # Errors
/// [`WriteError`] when the marker is there and cannot be removed.
pub fn release<H: WriteHost>(host: &H, runs: &H::Dir, run: &RunId) -> Result<Updated, WriteError> {
    leave(host, runs, run).map(|(updated, _)| updated)
}

/// [`release`], and a flush of the index, for what follows from a proof. Also where there was no marker:
/// whoever removed it may have died before its own flush.
///
/// # Errors
/// As [`release`], and when the index cannot be flushed.
pub(super) fn release_for_good<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
) -> Result<Updated, WriteError> {
    let (updated, index) = leave(host, runs, run)?;
    if let Some(index) = index {
        host.sync_dir(&index).map_err(|e| {
            WriteError::of(host, &index, Step::FlushDirectory, run.as_str(), e)
                .below(layout::ACTIVE_INDEX)
        })?;
    }
    Ok(updated)
}

/// Steps 2 and 3 of an end. With the index, where there is one.
fn leave<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
) -> Result<(Updated, Option<H::Dir>), WriteError> {
    let mut updated = Updated {
        marker: Marker::Absent,
        aliases: 0,
        terminal: Terminal::NotDue,
        problems: Vec::new(),
    };
    let index = match host.open_dir_at(runs, layout::ACTIVE_INDEX.as_ref()) {
        Ok(index) => index,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((updated, None)),
        Err(e) => return Err(WriteError::of(host, runs, Step::Look, layout::ACTIVE_INDEX, e)),
    };
    match host.unlink(&index, run.as_str().as_ref()) {
        Ok(()) => updated.marker = Marker::Removed,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => {
            let failed = WriteError::of(host, &index, Step::Remove, run.as_str(), e);
            return Err(failed.below(layout::ACTIVE_INDEX));
        }
    }
    remove_aliases(host, &index, run, &mut updated);
    Ok((updated, Some(index)))
}

fn remove_aliases<H: WriteHost>(host: &H, index: &H::Dir, run: &RunId, updated: &mut Updated) {
    let place = format!("{}/{}", layout::ACTIVE_INDEX, layout::TOOL_CALLS_DIR);
    let mut problem = |dir: &H::Dir, step, name: &str, e: io::Error| {
        if e.kind() != io::ErrorKind::NotFound {
            updated.problems.push(WriteError::of(host, dir, step, name, e).below(&place));
        }
    };
    let calls = match host.open_dir_at(index, layout::TOOL_CALLS_DIR.as_ref()) {
        Ok(calls) => calls,
        Err(e) => return problem(index, Step::Look, ".", e),
    };
    let names = match directory::names_of_directories(host, &calls) {
        Ok(names) => names,
        Err(e) => return problem(&calls, Step::Look, ".", e),
    };
    let mut removed = 0;
    for name in names {
        let dir = match host.open_dir_at(&calls, name.as_ref()) {
            Ok(dir) => dir,
            Err(e) => {
                problem(&calls, Step::Look, &name, e);
                continue;
            }
        };
        match host.unlink(&dir, run.as_str().as_ref()) {
            Ok(()) => removed += 1,
            Err(e) => problem(&dir, Step::Remove, &format!("{name}/{run}"), e),
        }
        // Also when the run was not in it: a writer that died in between left it empty.
        if let Err(e) = directory::remove_if_empty(host, &calls, &name) {
            problem(&calls, Step::Remove, &name, e);
        }
    }
    updated.aliases = removed;
}

/// Names of the directories in one of aliases that have an alias of this run.
///
/// # Errors
/// As the system says.
pub(crate) fn aliases_of<H: Host>(
    host: &H,
    calls: &H::Dir,
    run: &RunId,
) -> io::Result<Vec<String>> {
    let mut names = directory::names_of_directories(host, calls)?;
    names.retain(|name| {
        let dir = host.open_dir_at(calls, name.as_ref());
        dir.is_ok_and(|dir| host.stat_at(&dir, run.as_str().as_ref()).is_ok())
    });
    names.sort_unstable();
    Ok(names)
}

/// What a terminal marker takes from the status, each as the status spells it.
struct Source {
    state: Open<RunState>,
    names_another_run: bool,
    session: Option<(SegmentInput, String)>,
    ended_at: (f64, String),
}

impl Source {
    fn read(doc: &Document<'_>, run: &RunId) -> Result<Self, DecodeError> {
        let state = doc.get("state").and_then(|raw| raw.string());
        let state = state.ok_or_else(|| DecodeError::member("state", "a string"))?;
        let session = doc.get("sessionId").and_then(|raw| {
            let id = SegmentInput::read(raw).filter(|id| !id.text().is_empty())?;
            Some((id, raw.text().to_owned()))
        });
        // The first of the three that is a number (facts X-20).
        let ended_at = ["endedAt", "lastUpdate", "startedAt"].iter().find_map(|key| {
            let raw = doc.get(key)?;
            Some((raw.number()?, raw.text().to_owned()))
        });
        let own = doc.get("runId").and_then(|raw| raw.string());
        Ok(Self {
            state: Open::read(&state),
            names_another_run: own.is_some_and(|id| id != run.as_str()),
            session,
            ended_at: ended_at.unwrap_or_else(|| (0.0, "0".to_owned())),
        })
    }
}

/// A terminal marker: where it lies below the terminal index, and what it says.
#[derive(Debug)]
pub(crate) struct TerminalFile {
    /// The directory of its session.
    pub(crate) segment: String,
    /// Its name.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    fn file(&self, run: &RunId) -> Option<TerminalFile> {
        let (session, session_text) = self.session.as_ref()?;
        let text = object_text(&[
            ("version", "1"),
            ("runId", &string_text(run.as_str())),
            ("sessionId", session_text),
            ("endedAt", &self.ended_at.1),
        ]);
        let name = terminal_marker_name(self.ended_at.0, &run.as_str().into());
        Some(TerminalFile { segment: segment::encode(session, limits::NAME_MAX_BYTES), name, text })
    }
}

/// The terminal marker that belongs to a status; `None` when none does.
pub(crate) fn terminal_file(status: &Document<'_>, run: &RunId) -> Option<TerminalFile> {
    let source = Source::read(status, run).ok()?;
    let is_due = source.state.known().is_some_and(RunState::is_terminal);
    if is_due && !source.names_another_run { source.file(run) } else { None }
}

/// Writes the terminal marker of a run, if its status says the state that the caller believes.
///
/// # Errors
/// [`WriteError`]; no marker was written then, except after a failed flush of its directory.
pub fn write_terminal<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
    state: RunState,
    retry: &RetryPolicy,
) -> Result<Terminal, WriteError> {
    if state.is_active() {
        return Ok(Terminal::NotDue);
    }
    let source = match read_source(host, runs, run) {
        Ok(Ok(source)) => source,
        Ok(Err(why)) => return Ok(Terminal::NoStatus(why)),
        Err(e) => {
            return Err(
                WriteError::of(host, runs, Step::Look, layout::STATUS, e).below(run.as_str())
            );
        }
    };
    if source.state.known() != Some(state) {
        return Ok(Terminal::OtherState(source.state));
    }
    if source.names_another_run {
        return Ok(Terminal::OtherRun);
    }
    let Some(TerminalFile { segment, name, text }) = source.file(run) else {
        return Ok(Terminal::NoSession);
    };
    let dir = directory::create_path(host, runs, &[layout::TERMINAL_INDEX, &segment], retry)?;
    let place = format!("{segment}/{name}");
    let options = Options::new(Durability::Durable).retry(*retry);
    atomic::replace(host, &dir, &name, text.as_bytes(), &options)
        .map_err(|e| e.below(&format!("{}/{segment}", layout::TERMINAL_INDEX)))?;
    Ok(Terminal::Written(place))
}

/// Reads the status of a run. The outer error is of the system and may pass; the inner text says why
/// there is no status, which will not.
fn read_source<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    run: &RunId,
) -> io::Result<Result<Source, String>> {
    let owner = ExpectedOwner::of(&host.stat_dir(runs)?, host.system().uid);
    let dir = match host.open_dir_at(runs, run.as_str().as_ref()) {
        Ok(dir) => dir,
        Err(e) => {
            use io::ErrorKind::{InvalidFilename, NotFound};
            return match host.stat_at(runs, run.as_str().as_ref()) {
                Ok(stat) if stat.kind != FileKind::Directory => {
                    Ok(Err(format!("its run directory is {}", stat.kind.name())))
                }
                Err(gone) if matches!(gone.kind(), NotFound | InvalidFilename) => {
                    Ok(Err("its run directory is not there".to_owned()))
                }
                _ => Err(e),
            };
        }
    };
    let part = Part::All(limits::STATUS_MAX_BYTES);
    Ok(match host.read_at(&dir, layout::STATUS.as_ref(), part) {
        Ok(read) => match owner.objection(&read.stat) {
            Some(what) => Err(format!("it is {what}")),
            None => Document::from_bytes(&read.bytes)
                .and_then(|doc| Source::read(&doc, run))
                .map_err(|e| e.to_string()),
        },
        Err(ReadError::Absent) => Err("it is not there".to_owned()),
        Err(ReadError::NotPlain(kind)) => Err(format!("it is {}", kind.name())),
        Err(ReadError::TooLarge { bytes, limit_bytes, .. }) => {
            Err(DecodeError::TooLarge { bytes, limit_bytes }.to_string())
        }
        Err(ReadError::Io(e)) => return Err(e),
    })
}
