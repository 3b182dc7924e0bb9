//! How a runner begins: from its configuration to the moment at which it may work, or to a stated failure.
//!
//! Theory of operation. Until `proceed` the run belongs to its launcher, so a runner touches nothing of it
//! but its own `runner-startup.json` and, in a revival, the lease of the session. [`read_config`] takes the
//! configuration and removes it; [`Startup`] waits for the launcher; [`Committed`] is the right to work.
//!
//! Ordered steps of a revival:
//! 1. take the lease of the session;
//! 2. say `ready` with its token, wait for `ack`; say `acknowledged`, wait for `confirm`; say `confirmed`,
//!    wait for `proceed`. Each wait has its own budget;
//! 3. name session and token in the candidate, durable: from here on the lease decides over the proof, and
//!    nothing has been done yet that a proof would have to account for;
//! 4. remove ack, confirm, proceed and the own message.
//!
//! A fresh run waits for `proceed` only, and goes on with step 4.
//!
//! Dialects. `confirm` is taken from its own file and from the ack file, where launchers of P69 put it. While
//! it waits for `confirm`, a `proceed` of this token is taken as well: a launcher without the confirm step
//! writes it then, and has told its user that the run was started. A launcher with that step never does.
//!
//! A failure before `proceed`: give back the lease, then say `error` with the reason. In this order, because a
//! launcher that reads the error ends the process, and a lease that is left blocks its session, while lost
//! words only cost an explanation. After `proceed` nothing is said any more: [`Committed::fail`] records the
//! failure in candidate and status.
//!
//! What a crash leaves: before the commit the last message, and perhaps the lease of a dead process, which
//! the next revival takes back; after it a run that is running with a dead process, as later as well.
//!
//! Not promised: that the launcher still lives when `proceed` is read.
//! Spec: RS-START-44 to RS-START-53, RS-START-60, RS-START-62; facts §4.4, §4.9, IR-1 to IR-22.

mod config;
mod conversation;

use std::fmt;

use crate::protocol::account::Author;
use crate::protocol::error::with_causes;
use crate::protocol::ids::RunId;
use crate::protocol::startup::{Action, EAGER_POLL_MS, RunnerFailure, StartupState};
use crate::protocol::{layout, written_startup};
use crate::store::atomic::WriteError;
use crate::store::host::{WatchHost, WriteHost};
use crate::store::lease::{self, AcquireError, HeldLease, LeaseRequest, Released};
use crate::store::run::{self, StartupFailure, StatusPlace};
use crate::store::sidecar::PatchError;
use crate::store::{candidate, identity, message};

pub use config::{Config, ConfigError, Variant, read_config};
pub use conversation::{Heard, Listener};

/// Why a runner may not work. It exits with a code other than 0.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartupError {
    /// The run directory cannot be entered.
    RunDirectory(std::io::Error),
    /// The run has ended already, so the configuration is an old one.
    Settled,
    /// The lease of the session was not to be had.
    Lease(AcquireError),
    /// What the launcher said is not what this start-up needs, or did not come.
    Conversation(RunnerFailure),
    /// What stands in the place of a control file is no message.
    Unsafe {
        /// The file.
        name: &'static str,
        /// What it is.
        what: String,
    },
    /// The own message could not be written.
    Write(WriteError),
    /// Session and token could not be named in the candidate. The run was let in, so this is recorded as a
    /// failure of it.
    Candidate(PatchError),
    /// The runner itself found that it cannot do what the configuration asks for.
    Refused(String),
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunDirectory(_) => f.write_str("the run directory cannot be entered"),
            Self::Settled => {
                f.write_str("the run has ended already; this configuration is an old one")
            }
            Self::Lease(_) => f.write_str("the session could not be taken over"),
            Self::Conversation(failure) => write!(f, "{failure}"),
            Self::Unsafe { name, what } => write!(f, "{name} is not taken: it is {what}"),
            Self::Write(_) => f.write_str("the launcher could not be told"),
            Self::Candidate(_) => f.write_str("the session could not be named in the candidate"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::RunDirectory(e) => Some(e),
            Self::Lease(e) => Some(e),
            Self::Conversation(e) => e.source(),
            Self::Write(e) => Some(e),
            Self::Candidate(e) => Some(e),
            Self::Settled | Self::Unsafe { .. } | Self::Refused(_) => None,
        }
    }
}

/// A start-up under way. See the module's ordered steps.
#[must_use = "a start-up holds a lease until it is led to its end"]
pub struct Startup<'a, H: WriteHost> {
    host: &'a H,
    temp: &'a H::Dir,
    run_dir: H::Dir,
    config: &'a Config,
    lease: Option<HeldLease>,
    stage: Stage,
}

enum Stage {
    Listening(Listener),
    Let,
    Failed,
}

/// What one look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Look again when something has changed, at the latest after so many ms.
    Wait(u64),
    /// The runner was let in: [`Startup::commit`].
    Let,
}

impl<H: WriteHost> fmt::Debug for Startup<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Startup").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl<'a, H: WriteHost> Startup<'a, H> {
    /// Begins: takes the lease and says `ready` in a revival. `temp` is the temp root.
    /// Spec: RS-START-46, RS-START-47.
    ///
    /// # Errors
    /// [`StartupError`]; the launcher was told, and no lease is held.
    pub fn begin(
        host: &'a H,
        temp: &'a H::Dir,
        config: &'a Config,
        budget_ms: u64,
    ) -> Result<Self, StartupError> {
        let run_dir = host.open_dir(config.async_dir()).map_err(StartupError::RunDirectory)?;
        let now_ms = host.steady_ms();
        let (stage, wanted) = match config.variant() {
            Variant::Immediate => (Stage::Let, None),
            Variant::Fresh { token } => {
                (Stage::Listening(Listener::fresh(token, budget_ms, now_ms)), None)
            }
            Variant::Revival { .. } => (Stage::Let, Some(())),
        };
        let mut startup = Self { host, temp, run_dir, config, lease: None, stage };
        if conversation::is_settled(host, &startup.run_dir) {
            return Err(startup.failed(StartupError::Settled));
        }
        if wanted.is_some() {
            startup.take_session(budget_ms)?;
        }
        Ok(startup)
    }

    /// Step 1, and the first word of step 2.
    fn take_session(&mut self, budget_ms: u64) -> Result<(), StartupError> {
        let Variant::Revival { session_file, source_run_id, parent_session_id } =
            self.config.variant()
        else {
            return Ok(());
        };
        let token = identity::instance_id(self.host);
        let request = LeaseRequest {
            session_file,
            run_id: self.config.run_id().as_str(),
            source_run_id,
            parent_session_id: parent_session_id.as_deref(),
            token: &token,
        };
        // Before `ready`: a launcher that reads it may rely on the session being held.
        match lease::acquire(self.host, self.temp, &request) {
            Ok(held) => self.lease = Some(held),
            Err(e) => return Err(self.failed(StartupError::Lease(e))),
        }
        let pid = self.host.system().own_pid;
        let text = self.lease.as_ref().map(|held| written_startup::ready(pid, &held.owner));
        if let Err(e) = self.say(&text.unwrap_or_default()) {
            return Err(self.failed(StartupError::Write(e)));
        }
        let now_ms = self.host.steady_ms();
        self.stage = Stage::Listening(Listener::revival(&token, budget_ms, now_ms));
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), WriteError> {
        message::say(self.host, &self.run_dir, layout::STARTUP, text)
    }

    /// Makes every step that can be made now. Waits for nothing but the disk.
    /// Spec: RS-START-48, RS-START-49.
    ///
    /// # Errors
    /// [`StartupError`]; the launcher was told, and no lease is held.
    pub fn poll(&mut self) -> Result<Progress, StartupError> {
        loop {
            let Stage::Listening(listener) = &mut self.stage else {
                return Ok(Progress::Let);
            };
            let token = listener.token().to_owned();
            let answer = match listener.listen(self.host, &self.run_dir) {
                Heard::Nothing(pause_ms) => return Ok(Progress::Wait(pause_ms)),
                Heard::Action(Action::Ack) => StartupState::Acknowledged,
                Heard::Action(Action::Confirm) => StartupState::Confirmed,
                Heard::Action(Action::Proceed) => {
                    self.stage = Stage::Let;
                    return Ok(Progress::Let);
                }
                Heard::Wrong(e) => return Err(self.failed(StartupError::Conversation(e))),
                Heard::Unsafe(name, what) => {
                    return Err(self.failed(StartupError::Unsafe { name, what }));
                }
            };
            let pid = self.host.system().own_pid;
            if let Err(e) = self.say(&written_startup::state(answer, &token, pid)) {
                return Err(self.failed(StartupError::Write(e)));
            }
        }
    }

    /// Gives the start-up up, because the runner cannot do what the configuration asks for: the launcher is
    /// told so, and no lease is held. Before it is let in it may say so at any time.
    pub fn refuse(mut self, why: &str) -> StartupError {
        self.failed(StartupError::Refused(why.to_owned()))
    }

    /// Waits until the runner is let in, and commits. `pause` returns when something may have changed, at the
    /// latest after so many ms.
    ///
    /// # Errors
    /// [`StartupError`]; what has to be said or recorded was, as far as it can be.
    pub fn wait_with(
        mut self,
        pause: &mut dyn FnMut(u64),
    ) -> Result<Committed<'a, H>, StartupError> {
        while let Progress::Wait(ms) = self.poll()? {
            pause(ms);
        }
        self.commit()
    }

    /// The same; a message of the launcher is looked at when it comes, and at the latest after the pauses
    /// that [`Startup::poll`] asks for.
    /// Spec: RS-START-60, RS-START-62.
    ///
    /// # Errors
    /// [`StartupError`].
    pub fn wait(mut self) -> Result<Committed<'a, H>, StartupError>
    where
        H: WatchHost,
    {
        let host = self.host;
        let mut watch = host.watch();
        let mut is_watched = false;
        while let Progress::Wait(ms) = self.poll()? {
            // The only word to a fresh runner mostly comes within some ms, and what would wake it makes
            // its process end later.
            let is_worth_it = self.lease.is_some() || ms > EAGER_POLL_MS;
            if is_worth_it && !is_watched {
                host.watch_dir(&mut watch, &self.run_dir, 0);
                is_watched = true;
                // What came before this would wake nobody.
                continue;
            }
            host.pause(&mut watch, ms);
        }
        self.commit()
    }

    /// Takes the right to work, once [`Startup::poll`] said that the runner was let in. Before that it is a
    /// failure.
    /// Spec: RS-START-50, RS-START-51.
    ///
    /// # Errors
    /// [`StartupError::Candidate`]; the failure is recorded in the run, and the lease is given back.
    pub fn commit(mut self) -> Result<Committed<'a, H>, StartupError> {
        if !matches!(self.stage, Stage::Let) {
            let e = RunnerFailure::TimedOut { action: Action::Proceed, budget_ms: 0 };
            return Err(self.failed(StartupError::Conversation(e)));
        }
        let Self { host, temp, run_dir, config, ref mut lease, .. } = self;
        let committed = Committed { host, temp, run_dir, config, lease: lease.take() };
        if let Some(held) = &committed.lease {
            let ids = (config.run_id().as_str(), config.instance_id().unwrap_or_default());
            let file = std::path::Path::new(&held.owner.canonical_session_file);
            let named =
                candidate::name_session(host, &committed.run_dir, ids, file, &held.owner.token);
            if let Err(e) = named {
                let e = StartupError::Candidate(e);
                let _ = committed.fail(&with_causes(&e));
                return Err(e);
            }
        }
        let names = [
            layout::STARTUP_ACK,
            layout::STARTUP_CONFIRM,
            layout::STARTUP_PROCEED,
            layout::STARTUP,
        ];
        // A fresh runner has said nothing, and its acks are none.
        let names: &[&str] = match config.variant() {
            Variant::Revival { .. } => &names,
            Variant::Fresh { .. } => &names[2..3],
            Variant::Immediate => &[],
        };
        // What stays means nothing once work has begun (RS-START-16).
        let _ = message::clear(host, &committed.run_dir, names);
        Ok(committed)
    }

    /// A failure before `proceed`. See the module's text.
    /// Spec: RS-START-52.
    fn failed(&mut self, e: StartupError) -> StartupError {
        self.stage = Stage::Failed;
        let lease = self.lease.take();
        give_back(self.host, self.temp, &self.run_dir, lease.as_ref());
        let pid = self.host.system().own_pid;
        // There is nobody else to tell: it is on the standard error of the runner as well.
        let _ = self.say(&written_startup::error(pid, &with_causes(&e)));
        e
    }
}

/// Gives a lease back and says so in the candidate. What fails is found by the next revival.
fn give_back<H: WriteHost>(host: &H, temp: &H::Dir, run_dir: &H::Dir, lease: Option<&HeldLease>) {
    let Some(held) = lease else { return };
    let released = lease::release(host, temp, &held.id, &held.owner.token);
    let is_free = matches!(released, Ok(Released::Free { .. }));
    // After the release only: a promise that the lease is gone must not be ahead of it.
    let _ = candidate::acknowledge_release(host, run_dir, &held.owner.token, is_free);
}

/// The right to work on a run.
#[must_use = "a runner that was let in has to work, or to say that it cannot"]
pub struct Committed<'a, H: WriteHost> {
    /// The host.
    pub host: &'a H,
    /// The temp root.
    pub temp: &'a H::Dir,
    /// The run directory.
    pub run_dir: H::Dir,
    /// What the runner was told.
    pub config: &'a Config,
    /// The lease of the session, in a revival.
    pub lease: Option<HeldLease>,
}

impl<H: WriteHost> fmt::Debug for Committed<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committed").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl<H: WriteHost> Committed<'_, H> {
    /// The run.
    pub fn run_id(&self) -> &RunId {
        self.config.run_id()
    }

    /// Records that the runner was let in and cannot work: candidate, status, lease, acknowledgement, in this
    /// order. It exits with a code other than 0 after it.
    /// Spec: RS-START-53.
    ///
    /// # Errors
    /// [`PatchError`] when the failure could not be recorded; the lease is given back all the same.
    pub fn fail(self, message: &str) -> Result<(), PatchError> {
        let place = StatusPlace {
            host: self.host,
            run_dir: &self.run_dir,
            run_id: self.config.run_id(),
            locks: None,
        };
        let instance = self.config.instance_id().unwrap_or_default();
        let message = format!("the runner could not begin: {message}");
        let failure = StartupFailure {
            instance_id: instance,
            session_id: self.config.session_id(),
            completion_owner_id: self.config.completion_owner_id(),
            message: &message,
        };
        let recorded = run::record_startup_failure(&place, Author::Runner { instance }, &failure);
        // Afterwards: whoever takes the session next finds a run that has ended.
        give_back(self.host, self.temp, &self.run_dir, self.lease.as_ref());
        recorded
    }
}
