//! Looking ahead: runs are read on other threads and met in the order of the listing.
//!
//! Theory of operation. [`Eyes`] is the part of a walk that is free of shared state: it looks at one
//! run and, where the answer does not depend on other runs, judges it and does with the report what the
//! caller wants done with it (`prepare`), such as writing its line. What is made of neighbours is made in one place, so
//! that a batch is handed over as a whole and not as many small pieces, and is ready to be used: the one thread that
//! everything passes through has little left to do. The first runs are looked at on
//! the caller's thread, so a small store starts no thread. After them names are put into batches,
//! which go to the threads in turn; each thread answers its batches in order, and the caller takes
//! the answers in turn as well, so the order is that of the listing. The caller takes the oldest
//! answer as soon as [`AHEAD`] batches are under way: that bounds both memory and how old an answer
//! can be when it is handed on.
//!
//! The threads live in the caller's scope. They end when the crew is dropped, whether the walk came to
//! its end or was broken off; where no thread can be started, the caller looks alone.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope};

use crate::protocol::diagnose::{diagnose, diagnose_briefly};
use crate::store::host::{FileKind, Host};
use crate::store::{Depth, Snapshot, Store};

use super::report::RunReport;
use super::walk::active_pid;

/// Threads that look ahead. Most of the work is system calls, of which the caller does none.
const THREADS: usize = 2;
/// Runs that are looked at before any thread is started.
const ALONE: usize = 16;
/// Runs in one batch: few enough to start soon, enough to make handing over cheap.
const BATCH: usize = 64;
/// Batches under way at most.
const AHEAD: usize = 4 * THREADS;

/// What can look at runs from any thread.
pub(super) struct Eyes<'a, 'h, H: Host> {
    pub(super) store: &'a Store<'h, H>,
    /// Nested runs by root run.
    pub(super) nested: &'a HashMap<String, Vec<String>>,
    /// Nested runs that routes name, by the run that launched them.
    pub(super) routed: &'a HashMap<String, Vec<String>>,
    pub(super) depth: Depth,
    pub(super) brief: bool,
}

impl<H: Host> Clone for Eyes<'_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Eyes<'_, '_, H> {}

/// One name of a runs root.
pub(super) struct Job {
    pub(super) root: usize,
    pub(super) name: OsString,
    pub(super) kind: Option<FileKind>,
}

/// Adds a report, on the thread that made it, to what was made of those before it.
pub(super) type Prepare<'p, T> = dyn Fn(&mut T, RunReport) + Sync + 'p;

/// What was met at one name, or at several that follow one another.
pub(super) enum Met<T> {
    /// What was made of the reports of runs that depend on no other run.
    Judged(T),
    /// An active run, to be judged with what is known of the others.
    Active(Box<Snapshot>),
    /// The name is gone.
    Nothing(Job),
}

impl<H: Host> Eyes<'_, '_, H> {
    /// Looks at one run.
    pub(super) fn look(
        self,
        root: usize,
        name: &OsStr,
        kind: Option<FileKind>,
    ) -> Option<Snapshot> {
        let runs = &self.store.runs_roots[root];
        // Changed in its place: it is large.
        let mut found = self.store.snapshot(runs, name, kind, self.depth);
        if let Some(snapshot) = &mut found {
            snapshot.evidence.shadowed_by = self.shadow(root, name, snapshot);
        }
        found
    }

    /// Judges one run by its evidence.
    pub(super) fn report(self, snapshot: &Snapshot) -> RunReport {
        if self.brief {
            return RunReport::brief(snapshot, diagnose_briefly(&snapshot.evidence));
        }
        let diagnosis = diagnose(&snapshot.evidence);
        RunReport::new(snapshot, diagnosis, &self.children(&snapshot.evidence.run_id))
    }

    /// Nested runs of a run: those below its directory of nested runs, then those that a route names.
    fn children(self, run: &str) -> Vec<String> {
        let mut children = self.nested.get(run).cloned().unwrap_or_default();
        for id in self.routed.get(run).into_iter().flatten() {
            if !children.contains(id) {
                children.push(id.clone());
            }
        }
        children
    }

    /// Looks at a name, and adds what was met to what was met before it.
    fn meet<T: Default>(self, job: Job, prepare: &Prepare<'_, T>, met: &mut Vec<Met<T>>) {
        let found = self.look(job.root, &job.name, job.kind);
        let Some(snapshot) = &found else {
            met.push(Met::Nothing(job));
            return;
        };
        // Whether an active run shares its pid is known to the caller alone. All other evidence ends
        // here, on the thread that gathered it.
        if active_pid(snapshot).is_some() {
            met.extend(found.map(|snapshot| Met::Active(Box::new(snapshot))));
            return;
        }
        let report = self.report(snapshot);
        if let Some(Met::Judged(made)) = met.last_mut() {
            prepare(made, report);
        } else {
            let mut made = T::default();
            prepare(&mut made, report);
            met.push(Met::Judged(made));
        }
    }

    /// The same of all names of a batch.
    fn meet_all<T: Default>(self, batch: Vec<Job>, prepare: &Prepare<'_, T>) -> Vec<Met<T>> {
        let mut met = Vec::new();
        batch.into_iter().for_each(|job| self.meet(job, prepare, &mut met));
        met
    }

    /// Where the real run of this id is, when the directory at hand only shadows it.
    fn shadow(self, root: usize, name: &OsStr, snapshot: &Snapshot) -> Option<String> {
        let has_status = snapshot.evidence.status.is_there();
        let text = name.to_str()?;
        let others = self.store.runs_roots.iter().enumerate().filter(|(i, runs)| {
            // Nested roots are many; only those that have the name are asked.
            let listed = runs.nested_under.as_ref().and_then(|r| self.nested.get(r));
            *i != root && listed.is_none_or(|names| names.iter().any(|n| n == text))
        });
        for (i, runs) in others {
            let Some(there) = runs.has_run(self.store.host(), name) else { continue };
            // The one with a status is the run; of two with a status, the first root's.
            if there.has_status && (!has_status || i < root) {
                return Some(format!("{}/{text}", runs.label));
            }
        }
        None
    }
}

/// A batch, and where its answer goes.
struct Task<T> {
    batch: Vec<Job>,
    done: SyncSender<Vec<Met<T>>>,
}

/// What hands one thing on; breaks when nobody wants more.
type Take<'t, T> = dyn FnMut(Met<T>) -> ControlFlow<()> + 't;

/// The threads of one walk.
pub(super) struct Crew<'scope, 'env, 'a, 'h, H: Host, T> {
    scope: &'scope Scope<'scope, 'env>,
    eyes: Eyes<'a, 'h, H>,
    prepare: &'a Prepare<'a, T>,
    alone: usize,
    /// The way to the threads, once they were asked for; `None` in it where none could be started.
    tasks: Option<Option<SyncSender<Task<T>>>>,
    batch: Vec<Job>,
    /// The answers of the batches under way, in the order of the listing.
    under_way: VecDeque<Receiver<Vec<Met<T>>>>,
}

impl<'scope, 'env, 'a, 'h, H, T> Crew<'scope, 'env, 'a, 'h, H, T>
where
    'a: 'scope,
    'h: 'scope,
    H: Host,
    T: Default + Send + 'scope,
{
    /// A crew without threads yet.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        eyes: Eyes<'a, 'h, H>,
        prepare: &'a Prepare<'a, T>,
    ) -> Self {
        let (batch, under_way) = (Vec::with_capacity(BATCH), VecDeque::new());
        Self { scope, eyes, prepare, alone: ALONE, tasks: None, batch, under_way }
    }

    /// Adds a name, and hands on whatever has to be taken by now.
    pub(super) fn add(&mut self, job: Job, take: &mut Take<'_, T>) -> ControlFlow<()> {
        if self.alone > 0 {
            self.alone -= 1;
            return self.eyes.meet_all(vec![job], self.prepare).into_iter().try_for_each(take);
        }
        self.batch.push(job);
        if self.batch.len() < BATCH { ControlFlow::Continue(()) } else { self.send(take) }
    }

    /// Hands on everything that is under way.
    pub(super) fn drain(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        self.send(take)?;
        while !self.under_way.is_empty() {
            self.take_oldest(take)?;
        }
        ControlFlow::Continue(())
    }

    fn send(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if batch.is_empty() {
            return ControlFlow::Continue(());
        }
        if self.tasks.is_none() {
            self.tasks = Some(self.start());
        }
        let Some(tasks) = self.tasks.as_ref().and_then(Option::as_ref) else {
            return self.eyes.meet_all(batch, self.prepare).into_iter().try_for_each(take);
        };
        let (done, met) = sync_channel(1);
        // Nobody is left to take it only when all have panicked, and then the scope ends the walk with that.
        if tasks.send(Task { batch, done }).is_err() {
            return ControlFlow::Break(());
        }
        self.under_way.push_back(met);
        if self.under_way.len() < AHEAD { ControlFlow::Continue(()) } else { self.take_oldest(take) }
    }

    fn take_oldest(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        let Some(met) = self.under_way.pop_front() else { return ControlFlow::Continue(()) };
        // Without an answer its thread has panicked.
        let Ok(met) = met.recv() else { return ControlFlow::Break(()) };
        met.into_iter().try_for_each(take)
    }

    /// Starts the threads; `None` where not even one can be started.
    fn start(&self) -> Option<SyncSender<Task<T>>> {
        let (tasks, to_do) = sync_channel::<Task<T>>(AHEAD);
        let to_do = Arc::new(Mutex::new(to_do));
        let started = (0..THREADS).map_while(|_| {
            let (eyes, prepare, to_do) = (self.eyes, self.prepare, Arc::clone(&to_do));
            let work = move || {
                // Held while it waits, not while it looks.
                while let Some(task) = to_do.lock().ok().and_then(|to_do| to_do.recv().ok()) {
                    // Nobody listens any more: the walk was broken off.
                    if task.done.send(eyes.meet_all(task.batch, prepare)).is_err() {
                        return;
                    }
                }
            };
            Builder::new().name("looker".to_owned()).spawn_scoped(self.scope, work).ok()
        });
        (started.count() > 0).then_some(tasks)
    }
}
