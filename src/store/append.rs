//! Asking a chain that runs to take further steps.
//!
//! Theory of operation. Whoever asks writes a request into the run directory; the runner takes it up with its
//! inbox ([`inbox::take`](super::inbox::take)), once. Nobody answers but the run itself: its status has the
//! steps then, and its log says so. A runner that takes none says that in its log.
//!
//! Ordered steps of [`request`]:
//! 1. check the steps, as a launcher does, and that the run is a chain that runs with a step that has not
//!    ended. A request to another one would lie there for ever;
//! 2. write the request under its own name, ordered;
//! 3. look again: a run that ended meanwhile takes nothing up, so its request is withdrawn. What is gone by
//!    then was taken up. After the write: a look before it alone could miss the end;
//! 4. count the open requests in the status (`pendingAppends`), which says so to people, and tell it in the log.
//!    Both are advice, so their failure is none of the request.
//!
//! What a crash leaves: no request, or one that the runner takes up, perhaps without a count. Not promised: that
//! a runner takes it; those of the newest dialects have no chains. Spec: RS-START-87, RS-START-88; facts C-6,
//! S-9.

use std::fmt;
use std::io;

use crate::protocol::account::Author;
use crate::protocol::config::validate_steps;
use crate::protocol::control::{AppendRequest, REQUEST_MAX_BYTES};
use crate::protocol::document::object_text;
use crate::protocol::written_status::StatusPatch;
use crate::protocol::{
    DecodeError, Document, Open, Raw, RunMode, RunState, StepState, layout, limits, written,
    written_run,
};

use super::atomic::{self, Durability, Options, Target, WriteError};
use super::directory;
use super::host::{Part, WriteHost};
use super::read;
use super::retry::RetryPolicy;
use super::run::{self, StatusPlace};
use super::{identity, journal};
use crate::protocol::status::StatusView;

/// Steps that a chain is asked to take.
#[derive(Clone, PartialEq, Eq)]
pub struct Append {
    /// The request.
    pub id: String,
    /// The steps, a JSON array. They may hold prompts.
    pub steps: String,
}

impl fmt::Debug for Append {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.steps.len();
        f.debug_struct("Append")
            .field("id", &self.id)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl Append {
    /// Reads a request.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong, never its value.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let id = AppendRequest::read(doc)?.id;
        let steps = doc.get("steps").ok_or_else(|| DecodeError::member("steps", "an array"))?;
        validate_steps(steps)?;
        Ok(Self { id, steps: steps.text().to_owned() })
    }
}

/// Why a request was not made. Nothing lies in the run directory then.
#[derive(Debug)]
#[non_exhaustive]
pub enum AppendError {
    /// The steps are none that a runner takes.
    Invalid(DecodeError),
    /// The run takes no steps: why not.
    NotTaken(&'static str),
    /// Its status cannot be read.
    Status(String),
    /// The request could not be written, or not be withdrawn.
    Write(WriteError),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(_) => f.write_str("the steps are ones that a runner would refuse"),
            Self::NotTaken(why) => write!(f, "the run takes no further steps: {why}"),
            Self::Status(why) => write!(f, "the status of the run cannot be read: {why}"),
            Self::Write(_) => f.write_str("the request could not be written"),
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(e) => Some(e),
            Self::Write(e) => Some(e),
            Self::NotTaken(_) | Self::Status(_) => None,
        }
    }
}

/// Asks a run to take further steps, a JSON array. The answer is the id of the request.
/// Spec: RS-START-87.
///
/// # Errors
/// [`AppendError`]; nothing is asked then.
pub fn request<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    steps: &str,
) -> Result<String, AppendError> {
    let (host, run_dir) = (place.host, place.run_dir);
    let (id, now_ms) = (identity::instance_id(host), host.now_ms());
    let raw = Raw::parse(steps).map_err(|_| DecodeError::member("steps", "one JSON value"));
    let raw = raw.map_err(AppendError::Invalid)?;
    validate_steps(raw).map_err(AppendError::Invalid)?;
    let count = raw.array().map_or(0, |steps| steps.len());
    let text = object_text(&[
        ("id", written::string(&id)),
        ("createdAt", now_ms.to_string()),
        ("steps", steps.to_owned()),
    ]);
    let (bytes, limit_bytes) = (text.len() as u64, REQUEST_MAX_BYTES);
    if bytes > limit_bytes {
        return Err(AppendError::Invalid(DecodeError::TooLarge { bytes, limit_bytes }));
    }
    takes_steps(place)?;
    let retry = RetryPolicy::default();
    let (queue, _) = directory::create(host, run_dir, layout::APPEND_REQUESTS_DIR, &retry)
        .map_err(AppendError::Write)?;
    let name = format!("{now_ms:013}-{id}.json");
    let options = Options::new(Durability::Ordered).target(Target::New);
    atomic::replace(host, &queue, &name, text.as_bytes(), &options)
        .map_err(|e| AppendError::Write(e.below(layout::APPEND_REQUESTS_DIR)))?;
    if let Err(e) = takes_steps(place) {
        match host.unlink(&queue, name.as_ref()) {
            // It was taken up before the end.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(e),
        }
    }
    let open = open_requests(host, &queue);
    let patch = StatusPatch::at(host.now_ms()).member("pendingAppends", open.to_string());
    // A runner that took it up already counts by itself.
    let _ = run::update(place, Author::Client, &patch);
    let members = [
        ("requestId", written::string(&id)),
        ("stepCount", count.to_string()),
        ("pendingAppends", open.to_string()),
    ];
    let kind = "subagent.chain.append.requested";
    let line = written_run::event(kind, place.run_id.as_str(), host.now_ms(), false, &members);
    let _ = journal::append(host, run_dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES);
    Ok(id)
}

fn open_requests<H: WriteHost>(host: &H, queue: &H::Dir) -> usize {
    let (names, _) = read::listed(host, queue, limits::REQUESTS_LISTED, |entry| {
        let name = entry.name.to_string_lossy();
        (name.ends_with(".json") && !name.starts_with('.')).then_some(())
    });
    names.len()
}

/// Whether a run is a chain that runs, with a step that has not ended. Facts C-6.
fn takes_steps<H: WriteHost>(place: &StatusPlace<'_, H>) -> Result<(), AppendError> {
    let part = Part::All(limits::STATUS_MAX_BYTES);
    let found = place.host.read_at(place.run_dir, layout::STATUS.as_ref(), part);
    let found = found.map_err(|e| AppendError::Status(e.to_string()))?;
    let doc = Document::from_bytes(&found.bytes).map_err(|e| AppendError::Status(e.to_string()))?;
    let view = StatusView::read(&doc);
    if view.known_state() != Some(RunState::Running) {
        return Err(AppendError::NotTaken("it does not run"));
    }
    if view.mode != Some(Open::Known(RunMode::Chain)) {
        return Err(AppendError::NotTaken("it is no chain"));
    }
    let is_open = |state: Option<StepState>| state.is_none_or(StepState::is_open);
    if !view.steps.iter().any(|step| is_open(step.state.as_ref().and_then(Open::known))) {
        return Err(AppendError::NotTaken("all its steps have ended"));
    }
    Ok(())
}
