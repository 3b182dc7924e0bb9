//! A launch that failed after its process was made and before it was let in.
//!
//! Ordered steps:
//! 1. [`Ending::begin`]: record the failure, candidate first ([`run::record_startup_failure`]). Before the
//!    process is made to end: whoever waits for it makes a proof of its end at once, and without the counts
//!    that proof is unknown for ever;
//! 2. ask the process to end; after [`TERMINATE_MS`] make it end; wait as long again. [`Ending::step`];
//! 3. [`Ending::finish`], if its end was seen: give back the lease that it held for this run. Before that it
//!    may still write to the session;
//! 4. likewise, give back the slot. A process that cannot be ended still uses it; then the recorded failure
//!    lets the next reconciliation of the session release it (facts K-29 row 6);
//! 5. remove the configuration, which holds prompts. Last, because a runner that still starts may read it.
//!
//! The active marker stays, as with all launchers of its time: the proof of the end takes it away. No result,
//! event or terminal marker is written: a result would be delivered as if somebody had worked.
//!
//! What a crash leaves: a prefix; a runner that was not asked to end gives up by itself after its budget. A
//! lease of a dead process is taken back by the next revival, a slot by the next reconciliation.
//!
//! Nothing here makes the launch fail for another reason than the first one: what could not be done is told
//! beside it. Spec: RS-START-13, RS-START-41 to RS-START-43; facts §4.8, CW-40 to CW-42.

use std::path::Path;

use crate::protocol::account::Author;
use crate::protocol::error::with_causes;
use crate::protocol::lease::LeaseState;
use crate::protocol::startup::{LauncherFailure, TERMINATE_MS};
use crate::store::host::WriteHost;
use crate::store::process::{Exit, Life, Spawned, Terminate};
use crate::store::run::{self, StartupFailure, StatusPlace};
use crate::store::{lease, message};

use super::handshake::Why;
use super::prepare::Prepared;
use super::request::{Cause, Failed};

/// Pause between two looks at a process that was asked to end, in ms.
const LOOK_MS: u64 = 10;

/// The end of a failed launch. See the module's ordered steps.
pub(super) struct Ending {
    cause: Option<Cause>,
    words: Option<String>,
    stderr_tail: Option<String>,
    unrecorded: Option<String>,
    left: Vec<String>,
    /// When the process was last asked, and how.
    asked: Option<(i64, Terminate)>,
    ended: Option<Option<Exit>>,
}

impl Ending {
    /// Step 1, and the first question of step 2.
    pub(super) fn begin<H: WriteHost>(
        run: &Prepared<'_, H>,
        child: &mut dyn Spawned,
        cause: Cause,
        life: &Life,
    ) -> Self {
        let words = match &cause {
            Cause::Handshake(Why::Conversation(LauncherFailure::Reported { text })) => {
                Some(text.clone())
            }
            _ => None,
        };
        let tail = message::last_words(run.host, &run.run_dir).map(|tail| tail.text);
        let ended = match life {
            Life::Running => None,
            Life::Ended(exit) => Some(exit.clone()),
        };
        let exit = ended.as_ref().map_or_else(String::new, |exit| told(exit.as_ref()));
        let message = format!("{cause}{exit}");
        let failure = StartupFailure {
            instance_id: &run.instance_id,
            session_id: run.request.session_id,
            completion_owner_id: run.request.completion_owner_id,
            message: &message,
        };
        let place = StatusPlace {
            host: run.host,
            run_dir: &run.run_dir,
            run_id: run.request.run_id,
            locks: None,
        };
        let recorded = run::record_startup_failure(&place, Author::Launcher, &failure);
        let mut ending = Self {
            cause: Some(cause),
            words,
            stderr_tail: tail.filter(|text| !text.trim().is_empty()),
            unrecorded: recorded.err().map(|e| with_causes(&e)),
            left: Vec::new(),
            asked: None,
            ended,
        };
        if ending.ended.is_none() {
            ending.ask(run, child, Terminate::Ask);
        }
        ending
    }

    fn ask<H: WriteHost>(
        &mut self,
        run: &Prepared<'_, H>,
        child: &mut dyn Spawned,
        how: Terminate,
    ) {
        if let Err(e) = child.terminate(how) {
            self.left.push(format!("process {} could not be ended: {e}", child.pid()));
        }
        self.asked = Some((run.host.steady_ms(), how));
    }

    /// Step 2: how long to wait before the next look, or `None` when there is nothing left to wait for.
    pub(super) fn step<H: WriteHost>(
        &mut self,
        run: &Prepared<'_, H>,
        child: &mut dyn Spawned,
    ) -> Option<u64> {
        if self.ended.is_some() {
            return None;
        }
        if let Life::Ended(exit) = child.look() {
            self.ended = Some(exit);
            return None;
        }
        let (since_ms, how) = self.asked?;
        let elapsed = run.host.steady_ms().saturating_sub(since_ms);
        let left = u64::try_from(TERMINATE_MS.saturating_sub(elapsed)).unwrap_or(0);
        match (left, how) {
            (0, Terminate::Ask) => {
                self.ask(run, child, Terminate::Force);
                Some(LOOK_MS)
            }
            (0, Terminate::Force) => None,
            (left, _) => Some(left.min(LOOK_MS)),
        }
    }

    /// Steps 3 to 5.
    pub(super) fn finish<H: WriteHost>(
        &mut self,
        run: &Prepared<'_, H>,
        child: &dyn Spawned,
    ) -> Failed {
        if self.ended.is_some() {
            self.give_back_lease(run);
            self.left.extend(run.give_back_slot().err());
        } else {
            self.left.push(format!("process {} did not end", child.pid()));
        }
        let config = run.config_name();
        for e in message::clear(run.host, run.place.temp, &[&config]) {
            self.left.push(with_causes(&e));
        }
        Failed {
            cause: self.cause.take().unwrap_or(Cause::Cancelled),
            pid: child.pid(),
            instance_id: run.instance_id.clone(),
            words: self.words.take(),
            stderr_tail: self.stderr_tail.take(),
            ended: self.ended.take(),
            unrecorded: self.unrecorded.take(),
            left: std::mem::take(&mut self.left),
        }
    }

    /// The lease of the session, if this run holds it. Its process has ended, and no other process may hold
    /// it for this run.
    fn give_back_lease<H: WriteHost>(&mut self, run: &Prepared<'_, H>) {
        let Some(revival) = &run.request.revival else { return };
        let (host, temp) = (run.host, run.place.temp);
        // A session file that cannot be resolved has no lease that this run could have taken.
        let Ok(session) = lease::canonical_id(host, Path::new(revival.session_file)) else {
            return;
        };
        let LeaseState::Owned(owner) = lease::inspect(host, temp, &session.id) else { return };
        if owner.run_id != run.request.run_id.as_str() {
            return;
        }
        if let Err(e) = lease::release(host, temp, &session.id, &owner.token) {
            self.left.push(format!("the lease of the session is still held: {}", with_causes(&e)));
        }
    }
}

fn told(exit: Option<&Exit>) -> String {
    match exit {
        None => String::new(),
        Some(Exit::Code(code)) => format!(" (exit code {code})"),
        Some(Exit::Signal(name)) => format!(" ({name})"),
    }
}
