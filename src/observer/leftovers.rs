//! What a runner leaves behind when it ends.
//!
//! Theory of operation. The observer is a reaper: a process whose parent has ended becomes its child. So
//! once the runner has been reaped, every child that the observer still has is something the runner left.
//! Those in the observer's session belong to the run, and nobody is left to control them: they are ended.
//! One that made a session of its own left the run on purpose, as a nested detached run does; it is
//! counted and left alone.
//!
//! Ordered steps, until no child in the session is left:
//! 1. send the request to end, and let stopped ones go on, or they would never see it;
//! 2. reap what ends, for [`GROUP_TERM_MS`](limits::GROUP_TERM_MS);
//! 3. send the end that cannot be refused, and reap. Again and again, because the children of what ends
//!    only then become ours, up to [`LEFTOVER_ROUNDS`](limits::LEFTOVER_ROUNDS) times.
//!
//! A crash leaves processes without an observer. Spec: RS-OBS-05.

use std::io;

use crate::protocol::limits;
use crate::store::ProcessHost;
use crate::store::host::{Adopted, Signal, Waited};

/// What became of what a runner left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes that were reaped after the runner.
    pub reaped: usize,
    /// How many of them there were to be ended.
    pub signalled: usize,
    /// Processes that are there still, in sessions of their own or refusing to end.
    pub remaining: usize,
}

/// Ends and reaps what is left in the session of this process. The runner was reaped before.
///
/// # Errors
/// As the system says.
pub(super) fn end<H: ProcessHost>(host: &H) -> io::Result<Leftovers> {
    let mut left = Leftovers::default();
    for round in 0..limits::LEFTOVER_ROUNDS {
        let ours: Vec<Adopted> =
            host.adopted()?.into_iter().filter(|child| child.in_session).collect();
        if ours.is_empty() {
            break;
        }
        let (signal, budget_ms) = match round {
            0 => (Signal::Terminate, limits::GROUP_TERM_MS),
            _ => (Signal::Kill, limits::GROUP_KILL_MS),
        };
        for child in ours.iter().filter(|child| !child.ended) {
            // One that ended meanwhile is reaped below.
            if host.signal_adopted(child, signal).is_ok() {
                left.signalled += usize::from(round == 0);
                let _ = host.signal_adopted(child, Signal::Continue);
            }
        }
        reap(host, &mut left, budget_ms)?;
    }
    left.remaining = host.adopted()?.len();
    Ok(left)
}

/// Reaps until no child in the session is left or the budget is spent. The budget counts waits, not the
/// clock, which may be set meanwhile.
fn reap<H: ProcessHost>(host: &H, left: &mut Leftovers, budget_ms: u64) -> io::Result<()> {
    let mut spent_ms = 0;
    while spent_ms < budget_ms {
        match host.wait_any(Some(limits::GROUP_POLL_MS))? {
            Waited::Ended(..) => left.reaped += 1,
            Waited::NoChild => return Ok(()),
            Waited::TimeOver => spent_ms += limits::GROUP_POLL_MS,
        }
        if !host.adopted()?.iter().any(|child| child.in_session) {
            return Ok(());
        }
    }
    Ok(())
}
