//! Asking a live runner: the client's side of the control inbox. The reader's is `inbox`.
//!
//! Ordered steps of [`ask`]:
//! 1. check that a runner would take the request, and not remove it and do nothing;
//! 2. read the status: a run that has ended takes none, and one that was asked already says so. Before
//!    anything is made: a request beside an ended run is read by nobody, for ever;
//! 3. open `control`, or make it with mode 0700, following no link;
//! 4. look for a closed marker and for an earlier request that asks the same;
//! 5. put the file in place under a new name, whole from its first moment, with mode 0600;
//! 6. look at markers and status once more. Where the runner has closed the inbox meanwhile, the request is
//!    withdrawn: it may have looked for the last time just before, and then nobody reads what lies there.
//!    A request that is gone by then was taken up (facts C-5).
//!
//! At most once: of an interrupt and a timeout there is one name, and a second one fails at it. Of a stop two
//! clients that ask in the same moment leave two, and the second changes nothing that the first did not.
//!
//! What a crash leaves: after step 3 an empty directory, after step 5 the request, which counts. Nothing is
//! flushed: no runner outlives a power cut.
//!
//! Not promised: that somebody reads it. A runner may be gone, stopped or of a dialect without this inbox.
//! Spec: RS-CTRL-20 to RS-CTRL-24; facts C-1 to C-5, C-11.

use std::fmt;
use std::io;

use crate::protocol::control::{REQUEST_MAX_BYTES, StopRequest};
use crate::protocol::open::Open;
use crate::protocol::status::StatusView;
use crate::protocol::written_control::{Asking, RequestPlace, base64url};
use crate::protocol::{DecodeError, Document, RunState, StepState, layout, limits};

use super::atomic::{self, Durability, Options, Target, WriteError};
use super::host::{Part, ReadError, WriteHost};
use super::retry::RetryPolicy;
use super::{directory, lock_dir, read};

/// What came of it. Paths are below the run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// The request lies there.
    Placed(String),
    /// It was placed, and the runner has taken it up already.
    Taken(String),
    /// An earlier request asks the same and was not taken up yet.
    Already(String),
    /// An earlier request was taken up: the status says so.
    UnderWay,
}

/// Why nothing was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// There is no status, so there is nobody to be asked.
    NoStatus,
    /// The status cannot be understood: this is wrong with it.
    Status(String),
    /// The run has ended in this state.
    Ended(RunState),
    /// There is no step of this index; the run has so many.
    NoStep(i64, usize),
    /// The step has ended in this state.
    StepEnded(i64, StepState),
    /// The runner takes no more requests: this marker says so.
    Closed(&'static str),
    /// A runner of this dialect knows no such request.
    Unknown(&'static str),
    /// A runner would ignore the request.
    Refused(DecodeError),
    /// Something that had to be looked at could not be.
    Look(&'static str, io::Error),
    /// The request could not be written.
    Write(WriteError),
    /// The inbox was closed meanwhile, and this file, which nobody will read, could not be withdrawn.
    LeftOver(String, io::Error),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStatus => f.write_str("the run has no status, so nobody can be asked"),
            Self::Status(what) => write!(f, "its status cannot be relied on: {what}"),
            Self::Ended(state) => write!(f, "the run has ended: {state}"),
            Self::NoStep(step, steps) => {
                write!(f, "there is no step {step}; the run has {steps}, counted from 0")
            }
            Self::StepEnded(step, state) => write!(f, "step {step} has ended: {state}"),
            Self::Closed(marker) => write!(f, "its runner takes no more requests ({marker})"),
            Self::Unknown(what) => write!(f, "a runner of this dialect knows no {what}"),
            Self::Refused(_) => f.write_str("a runner would ignore the request"),
            Self::Look(what, _) => write!(f, "{what} could not be looked at"),
            Self::Write(_) => f.write_str("the request could not be written"),
            Self::LeftOver(file, _) => {
                write!(f, "the inbox was closed meanwhile; {file} is left, and nobody will read it")
            }
        }
    }
}

impl std::error::Error for AskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(e) => Some(e),
            Self::Look(_, e) | Self::LeftOver(_, e) => Some(e),
            Self::Write(e) => Some(e),
            _ => None,
        }
    }
}

/// Who asks and why, for people.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// Who.
    pub source: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
}

/// Places a request. See the module's ordered steps.
/// Spec: RS-CTRL-20 to RS-CTRL-24.
///
/// # Errors
/// [`AskError`]; no request of this call is there then, but for [`AskError::LeftOver`].
pub fn ask<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    asking: &Asking<'_>,
    said: Said<'_>,
) -> Result<Asked, AskError> {
    let now_ms = host.now_ms();
    let text = asking.text(said.source, said.reason, now_ms);
    if let Some(why) = asking.refusal(&text) {
        return Err(AskError::Refused(why));
    }
    if let Asking::Stop { step: Some(_), as_file: true } = asking {
        return Err(AskError::Unknown("stop of a single step"));
    }
    if is_under_way(&goes_on(host, run_dir)?, asking)? {
        return Ok(Asked::UnderWay);
    }
    let control = create(host, run_dir, layout::CONTROL_DIR).map_err(AskError::Write)?;
    is_open(host, &control)?;
    if let Some(file) = earlier(host, &control, asking)? {
        return Ok(Asked::Already(file));
    }
    let place = asking.place(now_ms, &lock_dir::uuid(host));
    let queue = match place.queue {
        Some(queue) => {
            let made = create(host, &control, queue);
            Some(made.map_err(|e| AskError::Write(e.below(layout::CONTROL_DIR)))?)
        }
        None => None,
    };
    let dir = queue.as_ref().unwrap_or(&control);
    // A name that is taken is that of a request: it was not there at step 4.
    let options = Options::new(Durability::ProcessSafe).target(Target::New);
    match atomic::replace(host, dir, &place.name, text.as_bytes(), &options) {
        Ok(_) => {}
        Err(e) if e.is_taken() => return Ok(Asked::Already(place.path())),
        Err(e) => return Err(AskError::Write(e.below(&parent(&place)))),
    }
    let still = is_open(host, &control).and_then(|()| goes_on(host, run_dir).map(drop));
    settle(host, dir, &place, still)
}

/// Step 6: what became of a request that was placed, when the run was looked at once more.
fn settle<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    place: &RequestPlace,
    still: Result<(), AskError>,
) -> Result<Asked, AskError> {
    let path = place.path();
    let closed = match still {
        Ok(()) | Err(AskError::Look(..)) => {
            let gone = matches!(host.stat_at(dir, place.name.as_ref()),
                Err(e) if e.kind() == io::ErrorKind::NotFound);
            return Ok(if gone { Asked::Taken(path) } else { Asked::Placed(path) });
        }
        Err(closed) => closed,
    };
    match host.unlink(dir, place.name.as_ref()) {
        Ok(()) => Err(closed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Asked::Taken(path)),
        Err(e) => Err(AskError::LeftOver(path, e)),
    }
}

fn parent(place: &RequestPlace) -> String {
    let queue = place.queue.map_or_else(String::new, |queue| format!("/{queue}"));
    format!("{}{queue}", layout::CONTROL_DIR)
}

fn create<H: WriteHost>(host: &H, parent: &H::Dir, name: &str) -> Result<H::Dir, WriteError> {
    directory::create(host, parent, name, &RetryPolicy::default()).map(|(dir, _)| dir)
}

/// The status of a run that has not ended.
fn goes_on<H: WriteHost>(host: &H, run_dir: &H::Dir) -> Result<StatusView, AskError> {
    let part = Part::All(limits::STATUS_MAX_BYTES);
    let found = match host.read_at(run_dir, layout::STATUS.as_ref(), part) {
        Ok(found) => found,
        Err(ReadError::Absent) => return Err(AskError::NoStatus),
        Err(ReadError::NotPlain(kind)) => return Err(AskError::Status(read::describe(kind))),
        Err(ReadError::TooLarge { bytes, .. }) => {
            return Err(AskError::Status(format!("it has {bytes} bytes")));
        }
        Err(ReadError::Io(e)) => return Err(AskError::Look("its status", e)),
    };
    let doc = Document::from_bytes(&found.bytes).map_err(|e| AskError::Status(e.to_string()))?;
    let status = StatusView::read(&doc);
    match &status.state {
        None => Err(AskError::Status("it names no state".to_owned())),
        Some(Open::Unrecognized(word)) => {
            Err(AskError::Status(format!("its state '{word}' is not known")))
        }
        Some(Open::Known(state)) if state.is_outcome() => Err(AskError::Ended(*state)),
        // A pause without an end is not confirmed: the runner is still ending its steps.
        Some(Open::Known(RunState::Paused)) if status.ended_at_ms.is_some() => {
            Err(AskError::Ended(RunState::Paused))
        }
        Some(Open::Known(_)) => Ok(status),
    }
}

/// Whether the status tells that a runner has taken up the same request. Facts T-7, T-9, T-10.
fn is_under_way(status: &StatusView, asking: &Asking<'_>) -> Result<bool, AskError> {
    Ok(match asking {
        Asking::Stop { step: None, .. } => status.stopped,
        Asking::Stop { step: Some(step), .. } => {
            let found = usize::try_from(*step).ok().and_then(|at| status.steps.get(at));
            let steps = status.steps.len();
            let found = found.ok_or(AskError::NoStep(*step, steps))?;
            match found.state.as_ref().and_then(Open::known) {
                Some(state) if !state.is_open() => return Err(AskError::StepEnded(*step, state)),
                _ => status.stopped,
            }
        }
        Asking::Interrupt => status.known_state() == Some(RunState::Paused),
        Asking::Timeout => status.timed_out,
        Asking::Steer { .. } => false,
    })
}

/// Any marker closes every queue: each is written at the end of the run alone (facts C-5).
fn is_open<H: WriteHost>(host: &H, control: &H::Dir) -> Result<(), AskError> {
    for marker in [layout::STOP_INBOX_CLOSED, layout::STEER_INBOX_CLOSED] {
        match host.stat_at(control, marker.as_ref()) {
            Ok(_) => return Err(AskError::Closed(marker)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(AskError::Look("its inbox", e)),
        }
    }
    Ok(())
}

/// An earlier request that asks the same and lies there, bounded.
fn earlier<H: WriteHost>(
    host: &H,
    control: &H::Dir,
    asking: &Asking<'_>,
) -> Result<Option<String>, AskError> {
    let (file, queue) = match asking {
        Asking::Interrupt => (Some(layout::CONTROL_INTERRUPT), None),
        Asking::Timeout => (Some(layout::CONTROL_TIMEOUT), None),
        // One from before the queue counts for the whole run.
        Asking::Stop { .. } => (Some(layout::CONTROL_STOP), Some(layout::STOP_REQUESTS_DIR)),
        Asking::Steer { .. } => (None, Some(layout::STEER_REQUESTS_DIR)),
    };
    if let Some(file) = file.filter(|file| host.stat_at(control, file.as_ref()).is_ok()) {
        return Ok(Some(format!("{}/{file}", layout::CONTROL_DIR)));
    }
    let Some(queue) = queue else { return Ok(None) };
    let dir = match host.open_dir_at(control, queue.as_ref()) {
        Ok(dir) => dir,
        // What stands in its place is told when it is to be made.
        Err(_) => return Ok(None),
    };
    let (mut names, listed) = read::listed(host, &dir, limits::REQUESTS_LISTED, |entry| {
        let name = entry.name.to_str()?;
        (name.ends_with(".json") && !name.starts_with('.')).then(|| name.to_owned())
    });
    listed.map_err(|e| AskError::Look("its inbox", e))?;
    names.sort_unstable();
    let same = names.into_iter().find(|name| match asking {
        Asking::Steer { id, .. } => name.ends_with(&format!("-{}.json", base64url(id.as_bytes()))),
        _ => stops(host, &dir, name, asking),
    });
    Ok(same.map(|name| format!("{}/{queue}/{name}", layout::CONTROL_DIR)))
}

/// Whether a file is a stop request of the whole run or of the same step.
fn stops<H: WriteHost>(host: &H, dir: &H::Dir, name: &str, asking: &Asking<'_>) -> bool {
    let Asking::Stop { step, .. } = asking else { return false };
    let Ok(found) = host.read_at(dir, name.as_ref(), Part::All(REQUEST_MAX_BYTES)) else {
        return false;
    };
    let request = Document::from_bytes(&found.bytes).and_then(|doc| StopRequest::read(&doc));
    request.is_ok_and(|it| {
        it.child_id.is_none() && (it.target_index.is_none() || it.target_index == *step)
    })
}
