//! Publishing a result so that the session finds it, whatever dies in between.
//!
//! Ordered steps of [`publish`]:
//! 1. check the payload and its names, before anything is written;
//! 2. write the pending file, durable: from here on the result is found by a scan of the pending area;
//! 3. write the session index, durable: from here on it is found by name. It comes after the pending
//!    file, so that no index leads to nothing;
//! 4. write the index by run, by tool call (if the payload names one) and for a mission (if its run
//!    directory holds a binding), best effort: they are short cuts;
//! 5. [`promote`]: rename the pending file to the public name, then flush the directory of the
//!    new name, then that of the old one.
//!
//! What a crash leaves: before step 2 nothing; then a result that is pending, and from step 5 on one
//! that is public. An older result of the same run stays until step 5, and a reader prefers the pending
//! one (`RS-RESULT-02`). Any reader may finish step 5, so its failure is no failure of the publication.
//! An error of step 2 or 3 leaves at most a pending result; publishing again completes it.
//!
//! Order against the status: the caller publishes before it writes the terminal status
//! (`RS-RESULT-10`).
//!
//! Every text here is kept whole: members are added byte for byte by their writer, and an entry repeats
//! ids as the payload spells them. Not promised: one step over all files, or that a short cut exists.
//! Spec: RS-RESULT-15 to RS-RESULT-24; facts S-90 to S-99.

use std::fmt;
use std::io;

use crate::protocol::document::{object_text, string_text};
use crate::protocol::evidence::FileFact;
use crate::protocol::segment::{self, SegmentInput};
use crate::protocol::{DecodeError, Document, Raw, layout, limits};

use super::atomic::{self, Durability, Options, Step, WriteError};
use super::directory;
use super::host::{FileKind, Host, Part, WriteHost};
use super::read::{self, ExpectedOwner};
use super::retry::RetryPolicy;

/// Where a result is, or stays, after a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Under its public name.
    Public,
    /// Still pending; the text says why. Any later reader may promote it.
    Pending(String),
    /// Nowhere: it was delivered, or there never was one.
    Nowhere,
}

/// A published result.
#[derive(Debug)]
pub struct Published {
    /// Where it is.
    pub place: Place,
    /// What failed of the parts that are best effort: short cuts and promotion.
    pub problems: Vec<WriteError>,
}

/// Why a result was not published.
#[derive(Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The payload names no session, so nobody would take it (facts S-98). Nothing was written.
    NoSession(String),
    /// The public name is no base name that ends in `.json`. Nothing was written.
    BadName(String),
    /// The payload is no JSON object. Nothing was written.
    NotADocument(String, DecodeError),
    /// A file could not be written. The result may be pending.
    Write(WriteError),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession(file) => {
                write!(f, "cannot write the result {file} without a sessionId")
            }
            Self::BadName(file) => {
                write!(f, "{file:?} is no name for a result: a base name that ends in .json is")
            }
            Self::NotADocument(file, _) => write!(f, "the result {file} cannot be written"),
            Self::Write(_) => f.write_str("the result could not be written"),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotADocument(_, e) => Some(e),
            Self::Write(e) => Some(e),
            _ => None,
        }
    }
}

impl From<WriteError> for PublishError {
    fn from(e: WriteError) -> Self {
        Self::Write(e)
    }
}

/// The names under which a result and its index entries lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultNames {
    /// Public base name.
    pub(super) file: String,
    /// Name in the pending area and in every index.
    pub(super) entry: String,
    /// Segment of the session.
    pub(super) session: String,
}

impl ResultNames {
    /// Names of the result of a run that is to be public as `file`.
    ///
    /// # Errors
    /// [`PublishError::BadName`] unless `file` is a base name that ends in `.json`.
    pub fn new(
        file: &str,
        session: &SegmentInput,
        run: &SegmentInput,
    ) -> Result<Self, PublishError> {
        // The backslash as well: readers refuse an entry with one.
        let is_base_name = !file.starts_with('.') && !file.contains(['/', '\\', '\0']);
        if !is_base_name || file.strip_suffix(".json").is_none_or(str::is_empty) {
            return Err(PublishError::BadName(file.to_owned()));
        }
        Ok(Self {
            file: file.to_owned(),
            entry: segment::encode(run, limits::JSON_STEM_MAX_BYTES) + ".json",
            session: segment::encode(session, limits::NAME_MAX_BYTES),
        })
    }
}

/// What a payload says of itself, ids as it spells them.
pub(super) struct Payload<'a> {
    pub(super) names: ResultNames,
    session: Raw<'a>,
    pub(super) run: (SegmentInput, String),
    tool_call: Option<SegmentInput>,
    async_dir: Option<Raw<'a>>,
}

impl<'a> Payload<'a> {
    pub(super) fn read(file: &str, doc: &Document<'a>) -> Result<Self, PublishError> {
        let id = |key: &str| {
            let raw = doc.get(key)?;
            let id = SegmentInput::read(raw).filter(|id| !id.text().is_empty())?;
            Some((id, raw))
        };
        let (session_id, session) =
            id("sessionId").ok_or_else(|| PublishError::NoSession(file.to_owned()))?;
        // Without an id the file is named after the run.
        let run = match id("runId").or_else(|| id("id")) {
            Some((id, raw)) => (id, raw.text().to_owned()),
            None => {
                let stem = file.strip_suffix(".json").unwrap_or(file);
                (stem.into(), string_text(stem))
            }
        };
        let names = ResultNames::new(file, &session_id, &run.0)?;
        let async_dir = doc.get("asyncDir").filter(|raw| raw.string().is_some());
        Ok(Self { names, session, run, tool_call: id("toolCallId").map(|(id, _)| id), async_dir })
    }

    /// The index entry. Facts §3.10.
    fn entry(&self, now_ms: i64) -> String {
        let (file, now) = (string_text(&self.names.file), now_ms.to_string());
        let mut members = vec![
            ("version", "1"),
            ("runId", self.run.1.as_str()),
            ("sessionId", self.session.text()),
            ("file", &file),
            ("writtenAt", &now),
        ];
        if let Some(dir) = self.async_dir {
            members.push(("asyncDir", dir.text()));
        }
        object_text(&members)
    }
}

/// Publishes a result. See the module's ordered steps.
///
/// `results` is the results root (for a child that a workflow awaits: its run directory), `file` the
/// public name in it, and `payload` the whole text. `run_dir` is the run's directory, where it is known;
/// it is looked at for a mission binding only, because a path in a payload is data.
///
/// # Errors
/// [`PublishError`]. Publishing again completes what was begun.
pub fn publish<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    file: &str,
    payload: &str,
    run_dir: Option<&H::Dir>,
    retry: &RetryPolicy,
) -> Result<Published, PublishError> {
    let doc = document(file, payload)?;
    let parsed = Payload::read(file, &doc)?;
    let (pending, mut problems) = write_pending(host, results, &parsed, payload, run_dir, retry)?;
    let names = &parsed.names;
    let place = match move_to_public(host, results, &pending, names, retry) {
        Ok(place) => place,
        // The result is found all the same, and any reader may try again.
        Err(e) => {
            let why = e.to_string();
            problems.push(e);
            place_now(host, results, &pending, names).unwrap_or(Place::Pending(why))
        }
    };
    Ok(Published { place, problems })
}

/// Where the files of a publication lie, below the results root.
#[derive(Debug)]
pub(crate) struct ResultFiles {
    /// The pending payload.
    pub(crate) pending: String,
    /// The public one.
    pub(crate) public: String,
    /// The index entries, that of the session first.
    pub(crate) entries: Vec<String>,
    /// The text of each of them.
    pub(crate) entry: String,
}

/// Where the files of a publication lie, in the order of its steps, without those for a mission.
///
/// # Errors
/// [`PublishError`], as [`publish`] before it writes anything.
pub(crate) fn files(file: &str, payload: &str, now_ms: i64) -> Result<ResultFiles, PublishError> {
    let doc = document(file, payload)?;
    let payload = Payload::read(file, &doc)?;
    let ResultNames { file, entry: name, session } = &payload.names;
    let index = |path: &[&str]| format!("{}/{}/{name}", layout::RESULT_INDEX, path.join("/"));
    let mut entries = vec![index(&[layout::INDEX_SESSIONS, session]), index(&[layout::INDEX_RUNS])];
    if let Some(tool_call) = &payload.tool_call {
        let segment = segment::encode(tool_call, limits::NAME_MAX_BYTES);
        entries.push(index(&[layout::INDEX_TOOL_CALLS, &segment]));
    }
    let pending = format!("{}/{session}/{name}", layout::RESULT_PENDING);
    Ok(ResultFiles { pending, public: file.clone(), entries, entry: payload.entry(now_ms) })
}

fn document<'a>(file: &str, text: &'a str) -> Result<Document<'a>, PublishError> {
    Document::parse(text).map_err(|e| PublishError::NotADocument(file.to_owned(), e))
}

/// Steps 2 to 4.
fn write_pending<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    payload: &Payload<'_>,
    text: &str,
    run_dir: Option<&H::Dir>,
    retry: &RetryPolicy,
) -> Result<(H::Dir, Vec<WriteError>), PublishError> {
    let names = &payload.names;
    let options = Options::new(Durability::Durable).retry(*retry);

    let place = format!("{}/{}", layout::RESULT_PENDING, names.session);
    let pending =
        directory::create_path(host, results, &[layout::RESULT_PENDING, &names.session], retry)?;
    atomic::replace(host, &pending, &names.entry, text.as_bytes(), &options)
        .map_err(|e| e.below(&place))?;

    // Only now: an entry must not lead to a result that a power cut can take away.
    let entry = payload.entry(host.now_ms());
    let (top, _) = directory::create_durable(host, results, layout::RESULT_INDEX, retry)?;
    let index = |path: &[&str]| -> Result<(), WriteError> {
        let written = directory::create_path(host, &top, path, retry).and_then(|dir| {
            atomic::replace(host, &dir, &names.entry, entry.as_bytes(), &options)
                .map_err(|e| e.below(&path.join("/")))
        });
        written.map(drop).map_err(|e| e.below(layout::RESULT_INDEX))
    };
    index(&[layout::INDEX_SESSIONS, &names.session])?;

    let mut problems = Vec::new();
    problems.extend(index(&[layout::INDEX_RUNS]).err());
    if let Some(tool_call) = &payload.tool_call {
        let segment = segment::encode(tool_call, limits::NAME_MAX_BYTES);
        problems.extend(index(&[layout::INDEX_TOOL_CALLS, &segment]).err());
    }
    let has_mission = run_dir.is_some_and(|dir| {
        host.stat_at(dir, layout::MISSION.as_ref()).is_ok_and(|s| s.kind == FileKind::Regular)
    });
    if has_mission {
        problems.extend(index(&[layout::INDEX_OBSERVERS, layout::INDEX_MISSION]).err());
    }
    Ok((pending, problems))
}

/// Step 5.
fn move_to_public<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    pending: &H::Dir,
    names: &ResultNames,
    retry: &RetryPolicy,
) -> Result<Place, WriteError> {
    let (renamed, attempts) = retry
        .run(host, || host.rename(pending, names.entry.as_ref(), results, names.file.as_ref()));
    if let Err(e) = renamed {
        let why = read::plain(&e);
        return match place_now(host, results, pending, names) {
            // Another reader was faster, or the name cannot be had: what is there counts.
            Some(Place::Pending(_)) if is_inconclusive(&e) => Ok(Place::Pending(why)),
            Some(place) if is_inconclusive(&e) => Ok(place),
            _ => {
                let failed = WriteError::of(host, results, Step::Rename, &names.file, e);
                Err(WriteError { attempts, ..failed })
            }
        };
    }
    // The new name first: a power cut between the two may leave both names, never none.
    host.sync_dir(results)
        .map_err(|e| WriteError::of(host, results, Step::FlushDirectory, &names.file, e))?;
    host.sync_dir(pending)
        .map_err(|e| WriteError::of(host, pending, Step::FlushDirectory, &names.entry, e))?;
    Ok(Place::Public)
}

/// Errors of a promotion that say nothing about where the result is. Facts S-91.
fn is_inconclusive(e: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, NotFound, PermissionDenied};
    // EACCES and EPERM have one kind; ENAMETOOLONG is an invalid file name.
    matches!(e.kind(), NotFound | AlreadyExists | PermissionDenied | InvalidFilename)
}

/// Looks where a result is; `None` when the system does not tell.
fn place_now<H: Host>(
    host: &H,
    results: &H::Dir,
    pending: &H::Dir,
    names: &ResultNames,
) -> Option<Place> {
    let there = |dir: &H::Dir, name: &str| match host.stat_at(dir, name.as_ref()) {
        Ok(stat) => Some(stat.kind == FileKind::Regular),
        Err(e) if is_inconclusive(&e) => Some(false),
        Err(_) => None,
    };
    if there(pending, &names.entry)? {
        return Some(Place::Pending("it was not moved".to_owned()));
    }
    Some(if there(results, &names.file)? { Place::Public } else { Place::Nowhere })
}

/// Finishes a publication that died before its last step. Any reader that may write may call it.
///
/// A pending file that cannot be read, or whose content names another run or session, stays where it
/// is: its name may be a digest, and an empty file that a power cut left must not take the place of
/// an older public result.
///
/// # Errors
/// [`WriteError`] when the system fails in a way that says nothing about the result. It stays pending.
pub fn promote<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    names: &ResultNames,
    retry: &RetryPolicy,
) -> Result<Place, WriteError> {
    let path = [layout::RESULT_PENDING, &names.session];
    let pending = directory::open_path(host, results, &path)
        .map_err(|e| WriteError::of(host, results, Step::Look, &path.join("/"), e))?;
    let Some(pending) = pending else {
        return Ok(match host.stat_at(results, names.file.as_ref()) {
            Ok(stat) if stat.kind == FileKind::Regular => Place::Public,
            _ => Place::Nowhere,
        });
    };
    match read_payload(host, &pending, &names.entry) {
        Ok(Some(text)) => {
            let own = Document::parse(&text)
                .map_err(|e| e.to_string())
                .and_then(|doc| Payload::read(&names.file, &doc).map_err(|e| e.to_string()));
            match own {
                Ok(payload) if payload.names == *names => {}
                Ok(_) => {
                    return Ok(Place::Pending("it is of another run or session".to_owned()));
                }
                Err(why) => return Ok(Place::Pending(why)),
            }
        }
        // The rename finds out what is there instead.
        Ok(None) => {}
        Err(why) => return Ok(Place::Pending(why)),
    }
    move_to_public(host, results, &pending, names, retry)
}

/// The text of a payload; `None` when there is none.
pub(super) fn read_payload<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
) -> Result<Option<String>, String> {
    let owner =
        ExpectedOwner::of(&host.stat_dir(dir).map_err(|e| read::plain(&e))?, host.system().uid);
    match read::bytes::<H, ()>(host, dir, name, Part::All(limits::RESULT_MAX_BYTES), owner) {
        Ok(read) => String::from_utf8(read.bytes).map(Some).map_err(|e| e.to_string()),
        Err(FileFact::Absent | FileFact::Present(..)) => Ok(None),
        Err(FileFact::Unsafe(what)) => Err(format!("it is {what}")),
        Err(FileFact::Damaged(e, _)) => Err(e.to_string()),
        Err(FileFact::Unreadable(why)) => Err(why),
    }
}

/// What became of a snapshot.
#[derive(Debug)]
#[non_exhaustive]
pub enum Snapshotted {
    /// It is pending, with its indexes. The problems are those of the short cuts.
    Pending(Vec<WriteError>),
    /// The run has no session, so nobody would take it.
    NoSession,
    /// The final result is there already, and a snapshot would hide it.
    Committed,
}

/// Writes a recoverable snapshot: a result in the pending area that is not promoted, for the case that
/// the runner dies before its final one. Facts S-94.
///
/// A pending file hides a public one, so nothing is written once the final result is public, or pending
/// (a final result has no `runId` member, a delivered one says so).
///
/// # Errors
/// As [`publish`], except that a payload without a session is no error.
pub fn snapshot<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    file: &str,
    payload: &str,
    run_dir: Option<&H::Dir>,
    retry: &RetryPolicy,
) -> Result<Snapshotted, PublishError> {
    let doc = document(file, payload)?;
    let parsed = match Payload::read(file, &doc) {
        Ok(parsed) => parsed,
        Err(PublishError::NoSession(_)) => return Ok(Snapshotted::NoSession),
        Err(e) => return Err(e),
    };
    if is_committed(host, results, &parsed.names) {
        return Ok(Snapshotted::Committed);
    }
    let (_, problems) = write_pending(host, results, &parsed, payload, run_dir, retry)?;
    Ok(Snapshotted::Pending(problems))
}

fn is_committed<H: Host>(host: &H, results: &H::Dir, names: &ResultNames) -> bool {
    if host.stat_at(results, names.file.as_ref()).is_ok() {
        return true;
    }
    let path = [layout::RESULT_PENDING, &names.session];
    let Ok(Some(pending)) = directory::open_path(host, results, &path) else { return false };
    let Ok(Some(text)) = read_payload(host, &pending, &names.entry) else { return false };
    // What cannot be read is not a final result that somebody could still take.
    Document::parse(&text)
        .is_ok_and(|doc| doc.get("runId").is_none() || doc.get("notificationDeliveredAt").is_some())
}
