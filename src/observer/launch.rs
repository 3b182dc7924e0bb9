//! A runner that ends before its launch is decided: its end waits for what the launcher has to say.
//!
//! Theory of operation. The end of a runner that was never let in is two processes' business. Its observer
//! proves it; its launcher lays down what every run has, records that the launch failed, and gives back what
//! it took: a slot that was taken over goes back to the run that it belonged to. The observer hears of the end first.
//! A proof that is there before the rest finds no candidate or one without counts, which may make it
//! `unknown` for ever; it stands in the way of the pending one; and a slot that is released at once cannot
//! be given back any more. So as long as the launcher lives and has neither let the runner in nor recorded
//! a failure, the observer waits, at most [`LAUNCH_GRACE_MS`](limits::LAUNCH_GRACE_MS).
//!
//! That a runner was let in shows in `proceed`, in what it says first (the event that it began, the lease
//! in its candidate), or in an end of its own. One that takes `proceed` away and ends before it says
//! anything is waited for as if it had not been let in.
//!
//! A launcher that died before its first status can record nothing any more. The process that it made is
//! known to the observer alone, so the observer records the failed start in its place
//! ([`Launch::record_if_abandoned`]): without a status the proof that follows would look like one of a run
//! whose status was lost, and no rule would free the slot. `proceed` comes after the status, so such a runner
//! was never let in.
//!
//! A crash leaves nothing, or what a launcher leaves that dies while it records a failure.
//! Spec: RS-OBS-13, RS-OBS-41; facts §4.8, CW-3, CW-40.

use std::io;

use crate::protocol::account::Author;
use crate::protocol::candidate::Candidate;
use crate::protocol::error::with_causes;
use crate::protocol::proof::ProofState;
use crate::protocol::status::StatusView;
use crate::protocol::written_startup::LaunchNote;
use crate::protocol::{RunState, layout, limits};
use crate::store::host::{FileKind, WriteHost};
use crate::store::message::{self, Look};
use crate::store::proof::RunPlace;
use crate::store::run::{self, StartupFailure, StatusPlace};

use super::{Subject, judge, record, status};

/// How far a launch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The launcher may still let the runner in, or record that the launch failed.
    Open,
    /// It has recorded that the launch failed, and gives back what it took.
    Failed,
    /// The runner was let in, or nobody is left who could decide.
    Over,
}

/// The launch of a runner, as its observer sees it.
pub(super) struct Launch<'a, H: WriteHost> {
    host: &'a H,
    run_dir: &'a H::Dir,
    /// What the launcher left about itself, if it is one of this library.
    note: Option<LaunchNote>,
    stage: Stage,
    left_ms: u64,
}

impl<'a, H: WriteHost> Launch<'a, H> {
    /// Waits until the launch is decided.
    pub(super) fn decided(host: &'a H, subject: &Subject<'a, H::Dir>) -> Self {
        let run_dir = subject.place.run_dir;
        let note = record(host, run_dir, layout::LAUNCH_NOTE, LaunchNote::read).ok().flatten();
        let is_ours = |note: &LaunchNote| {
            note.run_id == subject.place.run_id.as_str() && note.instance_id == subject.instance_id
        };
        let note = note.filter(is_ours);
        let left_ms = limits::LAUNCH_GRACE_MS;
        let mut launch = Self { host, run_dir, note, stage: Stage::Open, left_ms };
        launch.stage = launch.look();
        while launch.stage == Stage::Open && launch.pause() {
            launch.stage = launch.look();
        }
        launch
    }

    /// Records that the start failed, if its launcher is gone and wrote no status. See the module's text.
    pub(super) fn record_if_abandoned(&self, subject: &Subject<'_, H::Dir>) -> Result<(), String> {
        let Some(note) = self.note.as_ref().filter(|_| !self.launcher_may_act()) else {
            return Ok(());
        };
        // Looked at after the launcher: it has written what it will ever write.
        let status = self.host.stat_at(self.run_dir, layout::STATUS.as_ref());
        if !status.is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Ok(());
        }
        let RunPlace { run_dir, run_id, .. } = &subject.place;
        let place = StatusPlace { host: self.host, run_dir, run_id, locks: None };
        let failure = StartupFailure {
            instance_id: subject.instance_id,
            session_id: note.session_id.as_deref(),
            completion_owner_id: None,
            message: "the launcher ended before it let the runner in",
        };
        run::record_startup_failure(&place, Author::Launcher, &failure)
            .map_err(|e| format!("the failed start could not be recorded: {}", with_causes(&e)))
    }

    /// Waits as long as something is `held` that the launcher of a failed launch gives back.
    pub(super) fn until_given_back<E>(
        &mut self,
        held: impl Fn() -> Result<bool, E>,
    ) -> Result<(), E> {
        while self.stage == Stage::Failed && self.launcher_may_act() && held()? && self.pause() {}
        Ok(())
    }

    /// `false` when the time is over.
    fn pause(&mut self) -> bool {
        let ms = limits::OBSERVER_LOOK_MS.min(self.left_ms);
        self.left_ms -= ms;
        self.host.wait_ms(ms);
        ms > 0
    }

    fn launcher_may_act(&self) -> bool {
        let living =
            |note: &LaunchNote| !judge(self.host, &note.launcher, note.created_at_ms).is_gone();
        self.note.as_ref().is_some_and(living)
    }

    fn look(&self) -> Stage {
        // The launcher first: what is read after its end is the last that it said.
        if !self.launcher_may_act() || self.was_let_in() {
            return Stage::Over;
        }
        // A status that is not there yet, or cannot be read now, is looked at again.
        let Ok(Some(status)) = status(self.host, self.run_dir) else { return Stage::Open };
        match status.known_state() {
            Some(state) if state.is_active() => Stage::Open,
            Some(RunState::Failed) if tells_that_nothing_began(&status) => Stage::Failed,
            _ => Stage::Over,
        }
    }

    fn was_let_in(&self) -> bool {
        let said = message::look(self.host, self.run_dir, layout::STARTUP_PROCEED);
        if matches!(said, Look::Said(_) | Look::Unsafe(_)) {
            return true;
        }
        // Nobody but a runner that was let in writes the first line.
        let log = self.host.stat_at(self.run_dir, layout::EVENTS.as_ref());
        if log.is_ok_and(|log| log.kind == FileKind::Regular && log.bytes > 0) {
            return true;
        }
        let candidate =
            record(self.host, self.run_dir, layout::CANDIDATE, |doc| Candidate::read(doc).ok());
        matches!(candidate, Ok(Some(candidate)) if candidate.lease_token.is_some())
    }
}

fn tells_that_nothing_began(status: &StatusView) -> bool {
    let overlay = status.overlay.as_ref().and_then(|read| read.as_ref().ok());
    overlay.is_some_and(|proof| proof.state == ProofState::NotStarted)
}
