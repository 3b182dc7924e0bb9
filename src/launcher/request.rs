//! What is to be launched, where, and what comes of it.
//!
//! Plain values: nothing here touches the world. A [`Request`] says what a caller wants; [`Place`] where
//! the store is; [`Outcome`] tells one of four ways in which a launch ends, each with what a caller has
//! to know to go on. Spec: RS-START-35, RS-START-36.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::protocol::budget::BudgetRef;
use crate::protocol::error::with_causes;
use crate::protocol::ids::RunId;
use crate::protocol::nested::Route;
use crate::protocol::startup::{LAUNCHER_BUDGET_MS, LauncherFailure};
use crate::protocol::written_launch::{DescriptorText, Member, RevivalText};
use crate::protocol::written_nested::NestedSelf;
use crate::protocol::{DecodeError, RunMode};
use crate::store::atomic::WriteError;
use crate::store::budget::BudgetError;
use crate::store::nested::RouteError;
use crate::store::process::Exit;
use crate::store::slot::{SlotError, Source};

use super::handshake::{Confirm, Why};

/// Where runs are made.
#[derive(Debug)]
pub struct Place<'a, D> {
    /// The temp root: configurations, leases and slots lie in it.
    pub temp: &'a D,
    /// Its path, absolute.
    pub temp_path: &'a Path,
    /// The runs root.
    pub runs_root: &'a D,
    /// Its path, absolute.
    pub runs_path: &'a Path,
}

impl<D> Clone for Place<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Place<'_, D> {}

/// The capacity slot that a run is to occupy.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotWish<'a> {
    /// How many slots the session has; 0 is no limit, and then there is no slot.
    pub limit: u32,
    /// In a revival: the run whose slot is taken over, and what its status says. `None` takes a new slot.
    pub source: Option<Source<'a>>,
}

/// What a run has to do with nested runs.
#[derive(Clone, Copy, Debug)]
pub struct Nested<'a> {
    /// The route: of a root run that is to have nested runs, or the one that its parent has. It has to be there
    /// ([`create_route`](crate::store::nested::create_route)).
    pub route: &'a Route,
    /// Whose child the run is; `None` for the root of the route. A child lies where
    /// [`runs_root`](crate::store::nested::runs_root) is, and its result where
    /// [`results_dir`](crate::store::nested::results_dir) is.
    pub own: Option<&'a NestedSelf>,
}

/// One run that is to be launched.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The run. A run directory is used once.
    pub run_id: &'a RunId,
    /// The shape of the run.
    pub mode: RunMode,
    /// The steps, a JSON array.
    pub steps: &'a str,
    /// The working directory, which has to exist.
    pub cwd: &'a Path,
    /// Where the public result goes, absolute.
    pub result_path: &'a Path,
    /// What stands for the previous output in a prompt.
    pub placeholder: &'a str,
    /// The owning session. Without it no result is ever written (facts S-98).
    pub session_id: Option<&'a str>,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// The tool call that launched the run.
    pub tool_call_id: Option<&'a str>,
    /// The session that asks for the run.
    pub parent_session_id: Option<&'a str>,
    /// How the runner is limited, in ms.
    pub timeout_ms: Option<i64>,
    /// Until when it may run, ms since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// The route of nested runs, and whose child the run is.
    pub nested: Option<Nested<'a>>,
    /// The fan-out budget of the tree that the run is in. It has to be there
    /// ([`create`](crate::store::budget::create)), and a descriptor has to name the same.
    pub budget: Option<&'a BudgetRef>,
    /// Further members of the configuration.
    pub more: &'a [Member<'a>],
    /// How the run could be resumed; single runs only.
    pub descriptor: Option<&'a DescriptorText<'a>>,
    /// What is revived; `None` for a fresh run.
    pub revival: Option<RevivalText<'a>>,
    /// The slot, if the session has a limit.
    pub slot: Option<SlotWish<'a>>,
    /// Where `confirm` is written in a revival.
    pub confirm: Confirm,
    /// Budget of the launcher for each state, in ms.
    pub state_budget_ms: u64,
    /// Budget of the whole start-up after the spawn, in ms. `None`: only each state has one.
    pub budget_ms: Option<u64>,
    /// Variables that the runner gets, beside its parent session.
    pub set_env: &'a [(OsString, OsString)],
    /// Variables of the launcher that the runner does not get, beside those of
    /// [`NOT_INHERITED`](super::environment::NOT_INHERITED).
    pub remove_env: &'a [OsString],
}

impl<'a> Request<'a> {
    /// A fresh run with nothing but what it needs, and the budgets of the known launchers.
    pub fn new(
        run_id: &'a RunId,
        mode: RunMode,
        steps: &'a str,
        cwd: &'a Path,
        result_path: &'a Path,
    ) -> Self {
        Self {
            run_id,
            mode,
            steps,
            cwd,
            result_path,
            placeholder: "{previous}",
            session_id: None,
            completion_owner_id: None,
            tool_call_id: None,
            parent_session_id: None,
            timeout_ms: None,
            deadline_at_ms: None,
            nested: None,
            budget: None,
            more: &[],
            descriptor: None,
            revival: None,
            slot: None,
            confirm: Confirm::Both,
            state_budget_ms: LAUNCHER_BUDGET_MS,
            budget_ms: None,
            set_env: &[],
            remove_env: &[],
        }
    }
}

/// Why nothing was started.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The configuration, descriptor or environment would not be taken by its reader.
    Invalid(&'static str, DecodeError),
    /// The working directory cannot be entered.
    WorkingDirectory(std::io::Error),
    /// Something stands at the name of the run.
    Taken(String),
    /// There is no route for the run's news, or it is not to be used.
    Route(RouteError),
    /// The fan-out budget is not there, or not that of the reference.
    Budget(BudgetError),
    /// There is no slot.
    Slot(SlotError),
    /// Something could not be written.
    Write(WriteError),
    /// The process could not be made.
    Spawn(std::io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what, _) => write!(f, "the {what} is one that would be refused"),
            Self::WorkingDirectory(_) => f.write_str("the working directory cannot be entered"),
            Self::Taken(name) => {
                write!(f, "{name} is there already; a run directory is used once, take another id")
            }
            Self::Route(_) => f.write_str("the route of the nested run cannot be used"),
            Self::Budget(_) => f.write_str("the fan-out budget of the run cannot be used"),
            Self::Slot(_) => f.write_str("there is no slot for the run"),
            Self::Write(e) => write!(f, "{} could not be prepared", e.name),
            Self::Spawn(_) => f.write_str("the runner's process could not be made"),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(_, e) => Some(e),
            Self::WorkingDirectory(e) | Self::Spawn(e) => Some(e),
            Self::Route(e) => Some(e),
            Self::Budget(e) => Some(e),
            Self::Slot(e) => Some(e),
            Self::Write(e) => Some(e),
            Self::Taken(_) => None,
        }
    }
}

/// A launch that was refused. Nothing runs and nothing is held.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub why: Refusal,
    /// What could not be taken back, each as one sentence.
    pub left: Vec<String>,
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Self {
        Self { why, left: Vec::new() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        self.left.iter().try_for_each(|left| write!(f, "; {left}"))
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.why.source()
    }
}

/// A run that was started: `proceed` is in its place.
#[derive(Debug)]
pub struct Started {
    /// The runner's process.
    pub pid: u32,
    /// The instance that it is known by.
    pub instance_id: String,
    /// Whether the runner had begun before it was let in, as runners without a barrier do.
    pub ran_ahead: bool,
    /// What went wrong without harm: an alias that was not made, a message that was not removed.
    pub problems: Vec<WriteError>,
    /// Why the root of a nested run was not told that it was started, if it was not. Its runner tells it as well.
    pub untold: Option<String>,
}

/// What ended a launch after its process was made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The start-up was given up.
    Handshake(Why),
    /// Something of the run could not be written.
    Store(String),
    /// The caller gave it up.
    Cancelled,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(Why::Conversation(LauncherFailure::Reported { text })) => {
                write!(f, "the runner gave up before it was let in: {text}")
            }
            Self::Handshake(Why::Conversation(failure)) => f.write_str(&with_causes(failure)),
            Self::Handshake(Why::Unsafe(what)) => {
                write!(f, "the start-up message of the runner is not taken: it is {what}")
            }
            Self::Handshake(Why::Ended(Some(state))) => {
                write!(f, "the runner ended before it reported '{state}'")
            }
            Self::Handshake(Why::Ended(None)) => {
                f.write_str("the runner ended before it was let in")
            }
            Self::Handshake(Why::Deadline) => {
                f.write_str("the runner was not ready within the time of this launch")
            }
            Self::Store(what) => f.write_str(what),
            Self::Cancelled => f.write_str("the launch was given up"),
        }
    }
}

/// A launch that failed after its process was made and before it was let in.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub cause: Cause,
    /// The runner's process.
    pub pid: u32,
    /// The instance that it was known by.
    pub instance_id: String,
    /// The runner's own words, if it said why. To be escaped before they are shown.
    pub words: Option<String>,
    /// The end of its log of standard error. To be escaped before it is shown.
    pub stderr_tail: Option<String>,
    /// Whether its end was seen, and how it ended where that is known.
    pub ended: Option<Option<Exit>>,
    /// Why the failure is not on the disk, if it is not.
    pub unrecorded: Option<String>,
    /// What could not be taken back, each as one sentence.
    pub left: Vec<String>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(why) = &self.unrecorded {
            write!(f, "; the failure could not be recorded: {why}")?;
        }
        self.left.iter().try_for_each(|left| write!(f, "; {left}"))
    }
}

/// How a launch ended.
/// Spec: RS-START-35.
#[derive(Debug)]
pub enum Outcome {
    /// The run is under way.
    Started(Started),
    /// The launcher did not let the runner in: what it found or what it wrote was not as it has to be, the
    /// disk refused, or the caller gave up. Its process was made to end.
    Refused(Failed),
    /// The runner gave up or ended before it was let in.
    Died(Failed),
    /// The runner did not come so far in time. Its process was made to end.
    TimedOut(Failed),
}

impl Outcome {
    /// The outcome of a failure, by its cause.
    pub(super) fn of(failed: Failed) -> Self {
        match &failed.cause {
            Cause::Handshake(
                Why::Deadline | Why::Conversation(LauncherFailure::TimedOut { .. }),
            ) => Self::TimedOut(failed),
            Cause::Handshake(
                Why::Ended(_) | Why::Conversation(LauncherFailure::Reported { .. }),
            ) => Self::Died(failed),
            Cause::Handshake(_) | Cause::Store(_) | Cause::Cancelled => Self::Refused(failed),
        }
    }

    /// The failure, if it is one.
    pub fn failed(&self) -> Option<&Failed> {
        match self {
            Self::Started(_) => None,
            Self::Refused(failed) | Self::Died(failed) | Self::TimedOut(failed) => Some(failed),
        }
    }
}
