//! What a runner and its session say to each other: the work, what became of a step, what is asked.
//!
//! Plain values: nothing here touches the world, and no crash leaves anything of it. What each of them
//! leads to is the session's ([`session`](super::session)). Spec: RS-STEP-08, RS-START-81, RS-START-84.

use crate::protocol::candidate::Instance;
use crate::protocol::written_status::StepGroup;
use crate::protocol::{RunMode, StepState};
use crate::store::append::Append;
use crate::store::host::Exit;
use crate::store::inbox::Message;

use super::board::Cut;

/// What a session is about.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The shape of the run.
    pub mode: RunMode,
    /// The steps in flat order, all pending: the agents of
    /// [`config::shape`](crate::protocol::config::shape).
    pub agents: &'a [&'a str],
    /// Where groups stand among them.
    pub groups: &'a [StepGroup],
    /// When the run has to have ended, in ms since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// The name of the result in its directory, if it is not that of the run.
    /// Spec: RS-RESULT-40.
    pub result_file: Option<&'a str>,
    /// The session file of the run, absolute, if it is there already; one that is made later is named by
    /// [`Session::name_session`](super::session::Session::name_session).
    /// Spec: RS-STEP-10.
    pub session_file: Option<&'a str>,
}

impl<'a> Work<'a> {
    /// Steps of these agents, and nothing else.
    pub fn new(mode: RunMode, agents: &'a [&'a str]) -> Self {
        Self {
            mode,
            agents,
            groups: &[],
            deadline_at_ms: None,
            result_file: None,
            session_file: None,
        }
    }
}

/// What a runner is asked to do. It was told in the log, and is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// End all work that is under way, and begin none. The status says why already. After a [`Cut::Interrupted`]
    /// there may come another one that ends the run for good.
    End(Cut),
    /// End this step, and go on with the others.
    StopStep(usize),
    /// Hand this message to its steps; [`Session::answer`](super::session::Session::answer) says what became of it.
    Message(Message),
    /// Take these steps after all others; [`Session::append`](super::session::Session::append) takes them and
    /// [`Session::refuse_append`](super::session::Session::refuse_append) says why not.
    Append(Append),
}

/// How a step ended, if nobody told it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepEnd {
    pub(super) state: StepState,
    pub(super) error: Option<String>,
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<String>,
    pub(super) writer: Option<Instance>,
    pub(super) members: Vec<(&'static str, String)>,
}

impl StepEnd {
    fn of(state: StepState, error: Option<String>, exit_code: i64) -> Self {
        let exit_code = Some(exit_code);
        Self { state, error, exit_code, signal: None, writer: None, members: Vec::new() }
    }

    /// The work is done.
    pub fn complete() -> Self {
        Self::of(StepState::Complete, None, 0)
    }

    /// It failed; why.
    pub fn failed(why: &str) -> Self {
        Self::of(StepState::Failed, Some(why.to_owned()), 1)
    }

    /// Part of it is done and nothing failed; what is missing.
    pub fn partial(why: &str) -> Self {
        Self::of(StepState::Partial, Some(why.to_owned()), 1)
    }

    /// A process ended like this.
    pub fn exited(exit: Exit) -> Self {
        match exit {
            Exit::Code(0) => Self::complete(),
            Exit::Code(code) => {
                let why = format!("it ended with code {code}");
                Self::of(StepState::Failed, Some(why), code)
            }
            Exit::Signal(name) => {
                let why = format!("it was ended by {name}");
                let end = Self::of(StepState::Failed, Some(why), 1);
                Self { exit_code: None, signal: Some(name), ..end }
            }
        }
    }

    /// The process that did the work, for the proof of the end. A step without one had no process of its own.
    #[must_use]
    pub fn writer(mut self, writer: Instance) -> Self {
        self.writer = Some(writer);
        self
    }

    /// A further member of the event that tells of it, as a JSON text that was made here.
    pub(super) fn member(mut self, key: &'static str, text: String) -> Self {
        self.members.push((key, text));
        self
    }
}
