//! A signal to the runner of a run: the last resort when it takes no request.
//!
//! Ordered steps of [`end_runner`]:
//! 1. refuse by what the records say: the run has ended, its process is that of several runs or of the host of
//!    a workflow, or no process is named. Before anything is looked at: no look makes these right;
//! 2. hold the recorded process and compare it through the handle ([`identity::hold`]). A process whose
//!    identity is not proven gets no signal;
//! 3. send the request to end through the handle, and then one to go on: a process that is stopped would
//!    never see the first. In this order: the other one would let it work on.
//!
//! Only the request to end (SIGTERM) is ever sent. An interruption is never sent as a signal: existing runners
//! know SIGUSR2, and every program that does not know it is ended by it.
//!
//! Not promised: that the run ends in order. A runner that has no handler for the signal dies of it.
//! A crash leaves nothing. Spec: RS-CTRL-25; facts C-10, T-11.

use std::fmt;
use std::io;

use crate::protocol::evidence::RunEvidence;
use crate::protocol::status::StatusView;

use super::host::{ProcessHost, Signal};
use super::identity::{self, Held};

/// Why no signal was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoSignal {
    /// The run does not say that it is under way.
    NotActive,
    /// Its process is that of these runs as well, or of the host of a workflow.
    Shared(Vec<String>),
    /// It is gone, as this says.
    Gone(String),
    /// Whether it is there cannot be told, as this says.
    Unproven(String),
    /// The system refused.
    System(io::Error),
}

impl fmt::Display for NoSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotActive => f.write_str("the run is not under way"),
            Self::Shared(runs) if runs.is_empty() => {
                f.write_str("its process is the host of a workflow")
            }
            Self::Shared(runs) => write!(f, "its process runs others too: {}", runs.join(", ")),
            Self::Gone(why) => write!(f, "its process is gone: {why}"),
            Self::Unproven(why) => write!(f, "whose process it is cannot be proven: {why}"),
            Self::System(_) => f.write_str("the system refused"),
        }
    }
}

impl std::error::Error for NoSignal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(e) => Some(e),
            _ => None,
        }
    }
}

/// Asks the runner of a run to end, by a signal. See the module's ordered steps. The evidence is to be fresh.
/// Spec: RS-CTRL-25.
///
/// # Errors
/// [`NoSignal`]; nothing was sent then.
pub fn end_runner<H: ProcessHost>(host: &H, e: &RunEvidence) -> Result<(), NoSignal> {
    let status = e.status.value().ok_or(NoSignal::NotActive)?;
    if !status.known_state().is_some_and(crate::protocol::RunState::is_active) {
        return Err(NoSignal::NotActive);
    }
    if StatusView::is_workflow(status) || !e.pid_shared_with.is_empty() {
        return Err(NoSignal::Shared(e.pid_shared_with.clone()));
    }
    let record = e.process().ok_or(NoSignal::NotActive)?;
    match identity::hold(host, &record).map_err(NoSignal::System)? {
        Held::Gone(life) => Err(NoSignal::Gone(life.why.into_owned())),
        Held::Undetermined(life) => Err(NoSignal::Unproven(life.why.into_owned())),
        Held::Live(handle) => {
            host.signal_held(&handle, Signal::Terminate).map_err(NoSignal::System)?;
            // Where this fails it has ended, or it was not stopped.
            let _ = host.signal_held(&handle, Signal::Continue);
            Ok(())
        }
    }
}
