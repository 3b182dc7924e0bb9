//! The control inbox of a live runner: requests are taken up once, and the inbox is closed at the end.
//!
//! Ordered steps of [`take`], for each request, in the order stop, timeout, interrupt, steer, append, and within
//! a queue that of the names:
//! 1. read and check it; what breaks a rule is removed and ignored;
//! 2. tell in the log that it is taken up. Before the removal: a client that finds its file gone finds
//!    there what became of it, also when the runner dies right after;
//! 3. remove it;
//! 4. hand it to the caller, who acts. After the removal: a request that stayed would be carried out
//!    again. So a stop or steering request that cannot be removed is not handed over; an interrupt or
//!    a timeout is, because carrying it out twice changes nothing (facts C-4).
//!
//! Ordered steps of [`close`]: make `control` if it is not there, then the two markers, each ordered. Clients
//! look for a marker before and after they write, so nothing that they take for accepted is left; what
//! came before the marker is taken by one more [`take`].
//!
//! A crash leaves requests that nobody took up, or a line in the log about one that nobody carried out.
//! Spec: RS-STEP-04, RS-STEP-05; facts C-1 to C-5.

use std::fmt;
use std::io;

use crate::protocol::control::{REQUEST_MAX_BYTES, SteerMode, SteerRequest, StopRequest};
use crate::protocol::state::RunState;
use crate::protocol::{Document, layout, limits, written, written_run};

use super::append::Append;
use super::atomic::{self, Durability, Options, WriteError};
use super::directory;
use super::host::{Part, ReadError, WriteHost};
use super::retry::RetryPolicy;
use super::{journal, lock_dir, read};

/// A request that was taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stop the run, or one of its steps.
    Stop {
        /// The index of the step.
        step: Option<i64>,
        /// Why, as the client says.
        reason: Option<String>,
    },
    /// End the run for lack of time.
    Timeout,
    /// Pause the run.
    Interrupt,
    /// A message to the steps.
    Steer(Message),
    /// Further steps.
    Append(Append),
}

/// A message to steps that are at work. Facts C-3.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id, for the answer.
    pub id: String,
    /// What it says.
    pub text: String,
    /// When it is to be delivered; `None` leaves it to the runner.
    pub mode: Option<SteerMode>,
    /// The indexes of the steps; none leaves them to the runner.
    pub targets: Vec<i64>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What somebody writes to an agent appears in no log.
        let bytes = self.text.len();
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl Request {
    fn word(&self) -> &'static str {
        match self {
            Self::Stop { .. } => "stop",
            Self::Timeout => "timeout",
            Self::Interrupt => "interrupt",
            Self::Steer(_) => "steer",
            Self::Append(_) => "append",
        }
    }
}

/// What a look into the inbox gave.
#[derive(Debug, Default)]
pub struct Taken {
    /// The requests, in the order in which they are to be carried out.
    pub requests: Vec<Request>,
    /// How many files broke a rule and were removed.
    pub ignored: usize,
    /// What could not be read or removed, in words.
    pub problems: Vec<String>,
}

/// Takes up what lies in the inbox of a run. See the module's ordered steps.
/// Spec: RS-STEP-04.
///
/// # Errors
/// As the system says when the inbox is there and cannot be looked at.
pub fn take<H: WriteHost>(host: &H, run_dir: &H::Dir, run_id: &str) -> io::Result<Taken> {
    let mut taken = Taken::default();
    let mut inbox = Inbox { host, run_dir, run_id, taken: &mut taken };
    inbox.control()?;
    // Last: whoever stops the run wants no further steps.
    inbox.queue(run_dir, layout::APPEND_REQUESTS_DIR, &|doc| {
        Append::read(doc).ok().map(Request::Append)
    })?;
    Ok(taken)
}

type Read = dyn Fn(&Document<'_>) -> Option<Request>;

fn stop(doc: &Document<'_>) -> Option<Request> {
    let request = StopRequest::read(doc).ok()?;
    Some(Request::Stop { step: request.target_index, reason: request.reason })
}

fn steer(doc: &Document<'_>) -> Option<Request> {
    let SteerRequest { id, mode, targets, .. } = SteerRequest::read(doc).ok()?;
    let text = doc.get("message")?.string()?.into_owned();
    Some(Request::Steer(Message { id, text, mode, targets }))
}

struct Inbox<'a, H: WriteHost> {
    host: &'a H,
    run_dir: &'a H::Dir,
    run_id: &'a str,
    taken: &'a mut Taken,
}

impl<H: WriteHost> Inbox<'_, H> {
    /// What lies in `control`.
    fn control(&mut self) -> io::Result<()> {
        let host = self.host;
        let control = match host.open_dir_at(self.run_dir, layout::CONTROL_DIR.as_ref()) {
            Ok(control) => control,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        self.queue(&control, layout::STOP_REQUESTS_DIR, &stop)?;
        self.file(&control, layout::CONTROL_STOP.as_ref(), &stop);
        for (name, request) in [
            (layout::CONTROL_TIMEOUT, Request::Timeout),
            (layout::CONTROL_INTERRUPT, Request::Interrupt),
        ] {
            if host.stat_at(&control, name.as_ref()).is_ok() {
                self.tell(name, &request);
                if let Err(e) = lock_dir::remove_tree(host, &control, name) {
                    self.taken.problems.push(format!("{name} could not be removed: {e}"));
                }
                self.taken.requests.push(request);
            }
        }
        self.queue(&control, layout::STEER_REQUESTS_DIR, &steer)
    }

    fn queue(&mut self, control: &H::Dir, name: &str, read: &Read) -> io::Result<()> {
        let dir = match self.host.open_dir_at(control, name.as_ref()) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let (mut names, listed) =
            read::listed(self.host, &dir, limits::MAX_SMALL_RECORDS, |entry| {
                entry.name.to_string_lossy().ends_with(".json").then_some(entry.name)
            });
        listed?;
        // Names begin with the time.
        names.sort();
        for name in names.iter().take(limits::REQUESTS_TAKEN) {
            self.file(&dir, name, read);
        }
        Ok(())
    }

    fn file(&mut self, dir: &H::Dir, name: &std::ffi::OsStr, read: &Read) {
        let shown = name.to_string_lossy();
        let request = match self.host.read_at(dir, name, Part::All(REQUEST_MAX_BYTES)) {
            Ok(found) => Document::from_bytes(&found.bytes).ok().and_then(|doc| read(&doc)),
            Err(ReadError::Absent) => return,
            Err(ReadError::Io(e)) => {
                self.taken.problems.push(format!("{shown} could not be read: {e}"));
                return;
            }
            // A link, a pipe, a directory or too much is no request.
            Err(_) => None,
        };
        if let Some(request) = &request {
            self.tell(&shown, request);
        }
        if let Err(e) = lock_dir::remove_tree(self.host, dir, &shown) {
            self.taken.problems.push(format!("{shown} could not be removed: {e}"));
            return;
        }
        match request {
            Some(request) => self.taken.requests.push(request),
            None => self.taken.ignored += 1,
        }
    }

    /// Step 2. A log that cannot be written keeps nobody from being obeyed.
    fn tell(&mut self, file: &str, request: &Request) {
        let members =
            [("file", written::string(file)), ("request", written::string(request.word()))];
        let kind = "runstore.control.taken";
        let line = written_run::event(kind, self.run_id, self.host.now_ms(), false, &members);
        let max_bytes = limits::EVENTS_MAX_BYTES;
        if let Err(e) = journal::append(self.host, self.run_dir, layout::EVENTS, &line, max_bytes) {
            self.taken.problems.push(e.to_string());
        }
    }
}

/// Says that no request will be taken up any more. Facts C-5.
/// Spec: RS-STEP-05.
///
/// # Errors
/// [`WriteError`].
pub fn close<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    state: Option<RunState>,
) -> Result<(), WriteError> {
    let control = directory::create(host, run_dir, layout::CONTROL_DIR, &RetryPolicy::default())?.0;
    let text = written_run::inbox_closed(host.now_ms(), state);
    // No request outlives a power cut either.
    let options = Options::new(Durability::Ordered);
    for name in [layout::STOP_INBOX_CLOSED, layout::STEER_INBOX_CLOSED] {
        atomic::replace(host, &control, name, text.as_bytes(), &options)
            .map_err(|e| e.below(layout::CONTROL_DIR))?;
    }
    Ok(())
}
