//! Waiting until runs have come to what somebody waits for.
//!
//! Theory of operation. A waiter is a reader like any other: nobody knows of it, it changes nothing, and a
//! hundred of them disturb no run. It judges each run as inspection does, by
//! [`Store::snapshot`] and [`diagnose`], and asks [`decide`] whether the wait is over. In between it sleeps, until a
//! file of a run was renamed, the recorded runner has ended, or [`Wish::look_ms`] are over.
//!
//! Ordered steps of [`wait`]:
//! 1. look at every run. Most waits for what is over already end here, and take nothing from their user that
//!    can wake them;
//! 2. ask to be woken by the directories of those that are left;
//! 3. look at those that may have changed, and hand out what is over. After step 2: what happens between a
//!    look and a later step 2 would wake nobody. A runner that a look finds is watched from then on, and its
//!    run is looked at once more, for the same reason;
//! 4. sleep, and go on with step 3. Whatever wakes, every run is looked at at least each `look_ms`: what changes by
//!    time alone (a start that takes too long, a proof that does not come) has no event, and events are lost.
//!
//! An answer is given from a store that was opened for it, and with all its words. In between a brief look at
//! the one that is open serves, in which a results root that was made meanwhile is missing.
//!
//! What a crash leaves: nothing. Not promised: that a state was seen which did not last. A run that was
//! paused and revived between two looks was revived.
//! Spec: RS-OBS-20 to RS-OBS-27.

mod rule;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::protocol::diagnose::{diagnose, diagnose_briefly};
use crate::protocol::evidence::Times;
use crate::protocol::verdict::Diagnosis;
use crate::store::host::WatchHost;
use crate::store::{Depth, Opened, Snapshot, Store};

pub use rule::{Outcome, Until, decide};

/// How often every run is looked at if nothing wakes, in ms. A person notices no second, and a look costs
/// well below a millisecond.
pub const LOOK_MS: u64 = 1_000;

/// What is waited for, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What is waited for.
    pub until: Until,
    /// The time after which the wait is given up, in ms; none is no bound. With 0 each run is looked at once.
    pub timeout_ms: Option<u64>,
    /// The longest time without a look, in ms.
    pub look_ms: u64,
    /// Times that verdicts depend on.
    pub times: Times,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            until: Until::default(),
            timeout_ms: None,
            look_ms: LOOK_MS,
            times: Times::default(),
        }
    }
}

/// What was known of a run when the wait for it ended.
#[derive(Debug)]
pub struct Seen {
    /// What was found.
    pub snapshot: Snapshot,
    /// What it means.
    pub diagnosis: Diagnosis,
}

/// The end of the wait for one run.
#[derive(Debug)]
pub struct Waited {
    /// Which of the paths it is.
    pub number: usize,
    /// The run directory, absolute.
    pub path: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
    /// What was known last; nothing of a run whose directory was gone at the first look.
    pub seen: Option<Seen>,
    /// How long it was waited for, in ms.
    pub waited_ms: u64,
}

/// Why there is no wait.
#[derive(Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// A path cannot be opened.
    Open(PathBuf, io::Error),
    /// A path is a store or a runs root, and holds many runs.
    Many(PathBuf),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, _) => write!(f, "{} cannot be opened", path.display()),
            Self::Many(path) => write!(f, "{} holds many runs", path.display()),
        }
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(_, e) => Some(e),
            Self::Many(_) => None,
        }
    }
}

/// Waits for the runs at these paths. Each is handed out once, as soon as the wait for it is over; a caller that
/// breaks waits for no other. See the module's ordered steps.
/// Spec: RS-OBS-20, RS-OBS-23 to RS-OBS-27.
///
/// # Errors
/// [`WaitError`], before anything was waited for.
pub fn wait<H: WatchHost>(
    host: &H,
    paths: &[PathBuf],
    wish: &Wish,
    each: &mut dyn FnMut(Waited) -> ControlFlow<()>,
) -> Result<(), WaitError> {
    let since_ms = host.steady_ms();
    let mut waiting = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        waiting.push(Waiting::open(host, number, path, wish)?);
    }
    let mut waits = Waits { host, wish, since_ms, waiting, each };
    let _ = waits.run_all();
    Ok(())
}

/// All that are waited for still.
struct Waits<'a, 'h, H: WatchHost> {
    host: &'h H,
    wish: &'a Wish,
    since_ms: i64,
    waiting: Vec<Waiting<'h, H>>,
    each: &'a mut dyn FnMut(Waited) -> ControlFlow<()>,
}

impl<H: WatchHost> Waits<'_, '_, H> {
    fn run_all(&mut self) -> ControlFlow<()> {
        self.look(&mut None)?;
        if self.waiting.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut watch = self.host.watch();
        for run in &mut self.waiting {
            run.watch_dir(&mut watch);
            run.is_due = true;
        }
        let mut all_at_ms = self.host.steady_ms();
        let mut watch = Some(watch);
        loop {
            self.look(&mut watch)?;
            if self.waiting.is_empty() {
                return ControlFlow::Continue(());
            }
            let now_ms = self.host.steady_ms();
            let left_ms = self.wish.timeout_ms.map(|ms| ms.saturating_sub(self.waited_ms()));
            if left_ms == Some(0) {
                return self.give_up();
            }
            let unlooked_ms = u64::try_from(now_ms.saturating_sub(all_at_ms)).unwrap_or(0);
            let pause_ms = self.wish.look_ms.max(1).saturating_sub(unlooked_ms);
            let pause_ms = left_ms.map_or(pause_ms, |left_ms| pause_ms.min(left_ms));
            // One that was just found to have a runner is looked at once more, without a sleep.
            let is_due = self.waiting.iter().any(|run| run.is_due);
            let woken = match &mut watch {
                Some(watch) if pause_ms > 0 && !is_due => self.host.pause(watch, pause_ms),
                _ => Vec::new(),
            };
            // A busy run must not keep the others from being looked at.
            if woken.is_empty() && !is_due {
                all_at_ms = self.host.steady_ms();
                self.waiting.iter_mut().for_each(|run| run.is_due = true);
            }
            for run in &mut self.waiting {
                run.is_due |= woken.contains(&run.number);
            }
        }
    }

    fn waited_ms(&self) -> u64 {
        u64::try_from(self.host.steady_ms().saturating_sub(self.since_ms)).unwrap_or(0)
    }

    /// Looks at what is due, and hands out what is over.
    fn look(&mut self, watch: &mut Option<H::Watch>) -> ControlFlow<()> {
        let mut at = 0;
        while at < self.waiting.len() {
            let run = &mut self.waiting[at];
            let over = if std::mem::take(&mut run.is_due) {
                run.look(self.host, self.wish, watch)
            } else {
                None
            };
            match over {
                None => at += 1,
                Some(outcome) => {
                    let run = self.waiting.remove(at);
                    self.hand_out(run, outcome)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn give_up(&mut self) -> ControlFlow<()> {
        for run in std::mem::take(&mut self.waiting) {
            self.hand_out(run, Outcome::Timeout)?;
        }
        ControlFlow::Continue(())
    }

    fn hand_out(&mut self, run: Waiting<'_, H>, outcome: Outcome) -> ControlFlow<()> {
        let waited_ms = self.waited_ms();
        (self.each)(Waited {
            number: run.number,
            path: run.path,
            outcome,
            seen: run.seen,
            waited_ms,
        })
    }
}

/// A store around one run.
type Around<'h, H> = (Store<'h, H>, usize, OsString);

/// One run that is waited for.
struct Waiting<'h, H: WatchHost> {
    number: usize,
    path: PathBuf,
    store: Around<'h, H>,
    /// Whether the store was opened since the last look.
    is_fresh: bool,
    /// Whether something may have changed.
    is_due: bool,
    /// The runner that was asked for.
    watched_pid: Option<i64>,
    seen: Option<Seen>,
}

fn open<'h, H: WatchHost>(
    host: &'h H,
    path: &Path,
    wish: &Wish,
) -> Result<Around<'h, H>, WaitError> {
    match Store::open(host, path, host.now_ms(), wish.times) {
        Ok(Opened::Run(store, root, name)) => Ok((store, root, name)),
        Ok(Opened::Store(_)) => Err(WaitError::Many(path.to_owned())),
        Err(e) => Err(WaitError::Open(path.to_owned(), e)),
    }
}

impl<'h, H: WatchHost> Waiting<'h, H> {
    fn open(host: &'h H, number: usize, path: &Path, wish: &Wish) -> Result<Self, WaitError> {
        let path = host.absolute(path);
        let store = open(host, &path, wish)?;
        let (is_fresh, is_due) = (true, true);
        Ok(Self { number, path, store, is_fresh, is_due, watched_pid: None, seen: None })
    }

    fn watch_dir(&self, watch: &mut H::Watch) {
        let (store, root, name) = &self.store;
        // Where nothing wakes there is the longest pause.
        store.watch_run(&store.runs_roots[*root], name, watch, self.number);
    }

    /// One look: whether the wait is over. With a watch, a runner that was not known before is watched, and
    /// the run is due once more.
    fn look(&mut self, host: &'h H, wish: &Wish, watch: &mut Option<H::Watch>) -> Option<Outcome> {
        if self.judge(host, wish, Depth::Row).is_none() {
            self.is_fresh = false;
            self.watch_runner(watch);
            return None;
        }
        if !self.is_fresh {
            match open(host, &self.path, wish) {
                Ok(store) => self.store = store,
                Err(WaitError::Open(_, e)) if e.kind() == io::ErrorKind::NotFound => {
                    return Some(Outcome::Gone);
                }
                // What cannot be opened now, for want of handles for example, is there the next time.
                Err(_) => return None,
            }
        }
        self.judge(host, wish, Depth::Full)
    }

    fn judge(&mut self, host: &'h H, wish: &Wish, depth: Depth) -> Option<Outcome> {
        let (store, root, name) = &mut self.store;
        store.now_ms = host.now_ms();
        let runs = &store.runs_roots[*root];
        let Some(snapshot) = store.snapshot(runs, name, None, depth) else {
            return Some(Outcome::Gone);
        };
        let diagnosis = match depth {
            Depth::Full => diagnose(&snapshot.evidence),
            Depth::Row => diagnose_briefly(&snapshot.evidence),
        };
        let is_attended = || store.is_attended(runs, name);
        let over = decide(wish.until, &snapshot.evidence, &diagnosis, &is_attended);
        self.seen = Some(Seen { snapshot, diagnosis });
        over
    }

    fn watch_runner(&mut self, watch: &mut Option<H::Watch>) {
        let Some(watch) = watch else { return };
        let seen = self.seen.as_ref();
        let Some(status) = seen.and_then(|seen| seen.snapshot.evidence.status.value()) else {
            return;
        };
        if status.pid.is_some() && self.watched_pid != status.pid {
            self.watched_pid = status.pid;
            self.store.0.watch_runner(status, watch, self.number);
            // Between the look and this it may have ended.
            self.is_due = true;
        }
    }
}
