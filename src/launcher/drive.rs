//! The handle of a launch whose process was made.
//!
//! Theory of operation. A [`Launch`] owns the child and goes through three stages: it *talks* until it may
//! commit or gives up, it *ends* the child if it gave up, and it is *done*. [`Launch::poll`] makes as many
//! steps as can be made now and never waits for anything but the disk; it says how long to wait at most
//! before the next look. [`Launch::wait`] polls and sleeps until it is done, and is woken by a message of the
//! runner and by its end.
//!
//! Ordered steps of one look while it talks:
//! 1. look at the child, then at `runner-startup.json`: what is read after an end is the last word;
//! 2. ask the handshake what follows;
//! 3. write what it says. `confirm` goes into its own file first, because the copy in the ack file is for a
//!    short-lived dialect only, and failing it harms nobody else;
//! 4. to commit: look at the child again, then rename `proceed` into place. The look comes last: whoever
//!    ended before it is never authorised. From the rename on the run is started, whatever happens;
//! 5. in a revival, remove `runner-startup.json`. The control files are the runner's to remove;
//! 6. tell the root of a nested run that it was started. After the rename: news of a run that did not begin
//!    would be believed until somebody looks at its directory.
//!
//! A crash leaves the last message in place (see `message`). What is dropped without being done leaves a
//! child that nobody asks to end: drive a launch to its end, or [`Launch::cancel`] it first.
//!
//! Not promised: that the runner lives when `proceed` is in place (facts Z-63).
//! Spec: RS-START-31 to RS-START-36, RS-START-40, RS-START-60, RS-START-61; facts U-31 to U-35.

use crate::protocol::error::with_causes;
use crate::protocol::process::RecordedProcess;
use crate::protocol::startup::Action;
use crate::protocol::{layout, written_startup};
use crate::store::atomic::WriteError;
use crate::store::host::{WatchHost, WriteHost};
use crate::store::message::{self, Look};
use crate::store::process::{Life, Spawned};

use super::handshake::{Act, Confirm, File, Handshake, Seen, Why};
use super::prepare::Prepared;
use super::request::{Cause, Failed, Outcome, Started};
use super::undo::Ending;

/// What a look at a launch found.
#[derive(Debug)]
pub enum Poll<'l> {
    /// It is under way. Look again when something has changed, at the latest after so many ms.
    Wait(u64),
    /// It is done, and stays so.
    Done(&'l Outcome),
}

pub(super) enum Stage {
    Talking(Handshake),
    Ending(Ending),
    Done(Box<Outcome>),
}

/// A launch whose process was made. See the module's theory of operation.
#[must_use = "a launch is led to its end by polling it"]
pub struct Launch<'a, H: WriteHost> {
    pub(super) run: Prepared<'a, H>,
    pub(super) child: Box<dyn Spawned>,
    stage: Stage,
    ran_ahead: bool,
    problems: Vec<WriteError>,
}

impl<H: WriteHost> std::fmt::Debug for Launch<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("run", &self.run).finish_non_exhaustive()
    }
}

impl<'a, H: WriteHost> Launch<'a, H> {
    pub(super) fn new(
        run: Prepared<'a, H>,
        child: Box<dyn Spawned>,
        talk: Handshake,
        ran_ahead: bool,
        problems: Vec<WriteError>,
        failed: Option<Cause>,
    ) -> Self {
        let mut launch = Self { run, child, stage: Stage::Talking(talk), ran_ahead, problems };
        if let Some(cause) = failed {
            launch.give_up(cause, None);
        }
        launch
    }

    /// The runner's process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The instance that the runner is known by.
    pub fn instance_id(&self) -> &str {
        &self.run.instance_id
    }

    /// The process, once the launch is done: its end is for somebody to observe.
    pub fn into_child(self) -> Box<dyn Spawned> {
        self.child
    }

    /// Makes every step that can be made now. Waits for nothing but the disk.
    /// Spec: RS-START-36.
    pub fn poll(&mut self) -> Poll<'_> {
        let pause_ms = loop {
            let next = match &mut self.stage {
                Stage::Done(_) => None,
                Stage::Ending(_) => self.end(),
                Stage::Talking(_) => self.talk(),
            };
            match (next, &self.stage) {
                (Some(0), _) => {}
                (Some(pause_ms), _) => break pause_ms,
                (None, _) => break 0,
            }
        };
        match &self.stage {
            Stage::Done(outcome) => Poll::Done(outcome),
            _ => Poll::Wait(pause_ms),
        }
    }

    /// Leads the launch to its end. `pause` returns when something may have changed, at the latest after so
    /// many ms.
    pub fn wait_with(&mut self, pause: &mut dyn FnMut(u64)) -> &Outcome {
        while let Poll::Wait(ms) = self.poll() {
            pause(ms);
        }
        match &self.stage {
            Stage::Done(outcome) => outcome,
            _ => unreachable!("a poll that is not to be waited for is done"),
        }
    }

    /// Leads the launch to its end. A message of the runner and its end are looked at when they come, and at
    /// the latest after the pauses that [`Launch::poll`] asks for.
    /// Spec: RS-START-60, RS-START-61.
    pub fn wait(&mut self) -> &Outcome
    where
        H: WatchHost,
    {
        let host = self.run.host;
        let mut watch = None;
        while let Poll::Wait(ms) = self.poll() {
            match &mut watch {
                Some(watch) => drop(host.pause(watch, ms)),
                // Only now: a fresh runner is let in without any wait. What came before this is found by
                // the next look.
                None => watch = Some(self.watched(host)),
            }
        }
        self.wait_with(&mut |_| unreachable!("a launch that is done stays so"))
    }

    fn watched(&self, host: &H) -> H::Watch
    where
        H: WatchHost,
    {
        let mut watch = host.watch();
        host.watch_dir(&mut watch, &self.run.run_dir, 0);
        // Its number is its own as long as it is said to run, which the next look tells.
        let pid = Some(i64::from(self.child.pid()));
        host.watch_process(&mut watch, &RecordedProcess { pid, ..RecordedProcess::default() }, 0);
        watch
    }

    /// Gives the launch up, unless the runner was let in already. It is done once the child has ended.
    pub fn cancel(&mut self) {
        if matches!(self.stage, Stage::Talking(_)) {
            self.give_up(Cause::Cancelled, None);
        }
    }

    /// One look. `None` and `Some(0)` mean that the stage changed or that the next look may come at once.
    fn talk(&mut self) -> Option<u64> {
        let (host, dir) = (self.run.host, &self.run.run_dir);
        let life = self.child.look();
        let look = message::look(host, dir, layout::STARTUP);
        let file = match &look {
            Look::Absent => File::Absent,
            Look::Said(bytes) => File::Said(bytes),
            Look::Unsafe(what) => File::Unsafe(what),
            Look::Busy(_) => File::Busy,
        };
        let seen = Seen { has_ended: life.has_ended(), file, now_ms: host.steady_ms() };
        let Stage::Talking(talk) = &mut self.stage else { return None };
        let said = match talk.step(&seen) {
            Act::Wait { pause_ms } => return Some(pause_ms.max(1)),
            Act::Fail(why) => {
                self.give_up(Cause::Handshake(why), Some(life));
                return Some(0);
            }
            Act::Ack { token } => self.say(layout::STARTUP_ACK, Action::Ack, &token),
            Act::Confirm { token, place } => self.confirm(&token, place),
            Act::Commit { token } => return self.commit(&token),
        };
        if let Err(e) = said {
            self.give_up(Cause::Store(with_causes(&e)), None);
        }
        Some(0)
    }

    fn say(&self, name: &str, action: Action, token: &str) -> Result<(), WriteError> {
        let text = written_startup::control(action, token);
        message::say(self.run.host, &self.run.run_dir, name, &text)
    }

    fn confirm(&mut self, token: &str, place: Confirm) -> Result<(), WriteError> {
        if place != Confirm::AckFile {
            self.say(layout::STARTUP_CONFIRM, Action::Confirm, token)?;
        }
        match place {
            Confirm::AckFile => self.say(layout::STARTUP_ACK, Action::Confirm, token),
            Confirm::Both => {
                // The runner has its confirm already, if it is of the usual dialect.
                let copied = self.say(layout::STARTUP_ACK, Action::Confirm, token);
                self.problems.extend(copied.err());
                Ok(())
            }
            Confirm::OwnFile | Confirm::Never => Ok(()),
        }
    }

    /// Steps 4 and 5.
    fn commit(&mut self, token: &str) -> Option<u64> {
        let life = self.child.look();
        if life.has_ended() {
            // What it said with its last breath is read once more.
            let words = self.last_words_of_the_runner();
            let why = words.unwrap_or(Why::Ended(None));
            self.give_up(Cause::Handshake(why), Some(life));
            return Some(0);
        }
        if let Err(e) = self.say(layout::STARTUP_PROCEED, Action::Proceed, token) {
            self.give_up(Cause::Store(with_causes(&e)), None);
            return Some(0);
        }
        if self.run.request.revival.is_some() {
            let cleared = message::clear(self.run.host, &self.run.run_dir, &[layout::STARTUP]);
            self.problems.extend(cleared);
        }
        let started = Started {
            pid: self.child.pid(),
            instance_id: self.run.instance_id.clone(),
            ran_ahead: self.ran_ahead,
            problems: std::mem::take(&mut self.problems),
            untold: self.run.tell_root(self.child.pid()),
        };
        self.stage = Stage::Done(Box::new(Outcome::Started(started)));
        None
    }

    fn last_words_of_the_runner(&self) -> Option<Why> {
        let look = message::look(self.run.host, &self.run.run_dir, layout::STARTUP);
        let Look::Said(bytes) = look else { return None };
        let mut talk = Handshake::fresh("", 0);
        let seen = Seen { has_ended: true, file: File::Said(&bytes), now_ms: 0 };
        match talk.step(&seen) {
            Act::Fail(why @ Why::Conversation(_)) => Some(why),
            _ => None,
        }
    }

    fn give_up(&mut self, cause: Cause, life: Option<Life>) {
        let life = life.unwrap_or_else(|| self.child.look());
        let ending = Ending::begin(&self.run, &mut *self.child, cause, &life);
        self.stage = Stage::Ending(ending);
    }

    fn end(&mut self) -> Option<u64> {
        let Stage::Ending(ending) = &mut self.stage else { return None };
        match ending.step(&self.run, &mut *self.child) {
            Some(pause_ms) => Some(pause_ms),
            None => {
                let failed: Failed = ending.finish(&self.run, &*self.child);
                self.stage = Stage::Done(Box::new(Outcome::of(failed)));
                None
            }
        }
    }
}
