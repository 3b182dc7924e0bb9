//! Looking ahead: runs are read on other threads and met in an order that the caller knows.
//!
//! Theory of operation. [`Eyes`] is the part of a walk that is free of shared state: it looks at one
//! run and, where the answer does not depend on other runs, judges it and does with the report what the
//! caller wants done with it (`prepare`), such as writing its line. What is made of neighbours is made in one place, so
//! that a batch is handed over as a whole and not as many small pieces, and is ready to be used: the one thread that
//! everything passes through has little left to do. The first runs are looked at on the caller's thread, so a small
//! store starts no thread.
//!
//! 1. Names are held until there is a window of them, and put in the order of their inodes: what a file system keeps
//!    of neighbours lies together, in memory and on a disk, and a listing may give names in the order of a hash. The
//!    first window is small, so that the threads begin soon; while they are busy there is time to list the next one.
//! 2. A window is cut into batches, and whichever thread is free takes the next one: to give each its share before would
//!    let all wait for the one that has less of a processor.
//! 3. Of a batch some runs are read before the first of them is looked at ([`Ahead`]).
//! 4. Every batch has its own way back, and the caller takes the answers in the order of the batches, the oldest
//!    as soon as [`AHEAD`] are under way: that bounds both memory and how old an answer can be when it is handed on.
//!
//! The threads live in the caller's scope. They end when the crew is dropped, whether the walk came to
//! its end or was broken off; where no thread can be started, the caller looks alone. A thread that panics drops the
//! way back of its batch, and the scope ends the walk with that panic.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope};

use crate::protocol::diagnose::{diagnose, diagnose_briefly};
use crate::store::host::{DirEntry, FileKind, Host};
use crate::store::{Ahead, Depth, Snapshot, Store};

use super::report::RunReport;
use super::walk::active_pid;

/// Threads that look ahead. Most of the work is system calls, of which the caller does none.
const THREADS: usize = 2;
/// Runs that are looked at before any thread is started.
const ALONE: usize = 16;
/// Names of the first window, and how many times as many the next one has.
const FIRST_WINDOW: usize = 64;
const WINDOW_GROWTH: usize = 16;
/// Names of any window at most: they are what a walk holds in memory.
const WINDOW: usize = 8192;
/// Runs in one batch: few enough to start soon, enough to make handing over cheap.
const BATCH: usize = 128;
/// Batches under way at most.
const AHEAD: usize = 4 * THREADS;
/// Runs that are read before the first of them is looked at. Their directories are open all the while.
const READ_AHEAD: usize = 16;
/// Where fewer files may be open than this, each run is looked at when it was read.
const MANY_OPEN: u64 = 256;
const _: () =
    assert!(MANY_OPEN as usize >= 4 * THREADS * READ_AHEAD, "most of them are for others");

/// How many runs are read ahead.
pub(super) fn at_a_time<H: Host>(host: &H) -> usize {
    if host.most_open().is_none_or(|most| most >= MANY_OPEN) { READ_AHEAD } else { 1 }
}

/// What can look at runs from any thread.
pub(super) struct Eyes<'a, 'h, H: Host> {
    pub(super) store: &'a Store<'h, H>,
    /// Nested runs by root run.
    pub(super) nested: &'a HashMap<String, Vec<String>>,
    /// Nested runs that routes name, by the run that launched them.
    pub(super) routed: &'a HashMap<String, Vec<String>>,
    pub(super) depth: Depth,
    pub(super) brief: bool,
    pub(super) at_a_time: usize,
}

impl<H: Host> Clone for Eyes<'_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Eyes<'_, '_, H> {}

/// One name of a runs root.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) root: usize,
    pub(super) entry: DirEntry,
}

impl Job {
    pub(super) fn name(&self) -> &OsStr {
        &self.entry.name
    }
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
    /// Looks at one run, of which something may have been read ahead.
    pub(super) fn look(
        self,
        root: usize,
        name: &OsStr,
        kind: Option<FileKind>,
        ahead: Option<&mut Ahead<H::Dir>>,
    ) -> Option<Snapshot> {
        let runs = &self.store.runs_roots[root];
        // Changed in its place: it is large.
        let mut found = self.store.snapshot_with(runs, (name, kind), self.depth, ahead);
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
    fn meet<T: Default>(
        self,
        job: &Job,
        ahead: Option<&mut Ahead<H::Dir>>,
        prepare: &Prepare<'_, T>,
        met: &mut Vec<Met<T>>,
    ) {
        let found = self.look(job.root, job.name(), job.entry.kind, ahead);
        let Some(snapshot) = &found else {
            met.push(Met::Nothing(job.clone()));
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
    fn meet_all<T: Default>(self, batch: &[Job], prepare: &Prepare<'_, T>) -> Vec<Met<T>> {
        let mut met = Vec::new();
        let mut ahead = Vec::with_capacity(self.at_a_time);
        let mut left = batch;
        while !left.is_empty() {
            ahead.extend(left.iter().take(self.at_a_time).map_while(|job| {
                let runs = &self.store.runs_roots[job.root];
                self.store.read_ahead(runs, job.name(), job.entry.kind)
            }));
            let (plain, others) = left.split_at(ahead.len());
            for (job, ahead) in plain.iter().zip(&mut ahead) {
                self.meet(job, Some(ahead), prepare, &mut met);
            }
            // Closed together, not between two looks.
            ahead.clear();
            left = others;
            // What could not be read ahead is looked at by itself, with nothing else open: of many open directories
            // one too many cannot be opened, and that is no fault of its run (RS-READ-07).
            if plain.len() < self.at_a_time
                && let Some((odd, others)) = others.split_first()
            {
                self.meet(odd, None, prepare, &mut met);
                left = others;
            }
        }
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

/// A batch, and the way back of its answer.
struct Task<T> {
    batch: Vec<Job>,
    done: SyncSender<Answer<T>>,
}

/// What was met, and the names that are done with: they are freed by the thread that made them, because an allocator
/// keeps what is freed at hand for the thread that frees it.
struct Answer<T> {
    met: Vec<Met<T>>,
    _spent: Vec<Job>,
}

/// What hands one thing on; breaks when nobody wants more.
type Take<'t, T> = dyn FnMut(Met<T>) -> ControlFlow<()> + 't;

/// The way to the threads.
enum Way<T> {
    /// They were not needed yet.
    NotAsked,
    /// Whoever is free takes the next one.
    Open(SyncSender<Task<T>>),
    /// None could be started.
    Nobody,
}

/// The threads of one walk.
pub(super) struct Crew<'scope, 'env, 'a, 'h, H: Host, T> {
    scope: &'scope Scope<'scope, 'env>,
    eyes: Eyes<'a, 'h, H>,
    prepare: &'a Prepare<'a, T>,
    alone: usize,
    way: Way<T>,
    /// Names that were not handed out yet, and how many of them are the next window.
    names: Vec<Job>,
    window: usize,
    /// The answers of the batches under way, the oldest first.
    under_way: VecDeque<Receiver<Answer<T>>>,
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
        let (names, under_way) = (Vec::new(), VecDeque::new());
        let (alone, window) = (ALONE, FIRST_WINDOW);
        Self { scope, eyes, prepare, alone, way: Way::NotAsked, names, window, under_way }
    }

    /// Adds a name, and hands on whatever has to be taken by now.
    pub(super) fn add(&mut self, job: Job, take: &mut Take<'_, T>) -> ControlFlow<()> {
        if self.alone > 0 {
            self.alone -= 1;
            return self.eyes.meet_all(&[job], self.prepare).into_iter().try_for_each(take);
        }
        self.names.push(job);
        if self.names.len() < self.window {
            return ControlFlow::Continue(());
        }
        self.window = WINDOW.min(self.window * WINDOW_GROWTH);
        self.hand_out(take)
    }

    /// Hands on everything that is under way.
    pub(super) fn drain(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        self.hand_out(take)?;
        while !self.under_way.is_empty() {
            self.take_oldest(take)?;
        }
        ControlFlow::Continue(())
    }

    /// Hands out the names at hand.
    fn hand_out(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        // Where a listing tells no inodes, its order stays.
        self.names.sort_by_key(|job| job.entry.inode);
        let mut names = std::mem::take(&mut self.names).into_iter();
        while names.len() > 0 {
            self.send(names.by_ref().take(BATCH).collect(), take)?;
        }
        ControlFlow::Continue(())
    }

    fn send(&mut self, batch: Vec<Job>, take: &mut Take<'_, T>) -> ControlFlow<()> {
        if let Way::NotAsked = self.way {
            self.way = self.start().map_or(Way::Nobody, Way::Open);
        }
        let Way::Open(tasks) = &self.way else {
            return self.eyes.meet_all(&batch, self.prepare).into_iter().try_for_each(take);
        };
        let (done, met) = sync_channel(1);
        // They hang up only by panicking, all of them.
        if tasks.send(Task { batch, done }).is_err() {
            return ControlFlow::Break(());
        }
        self.under_way.push_back(met);
        if self.under_way.len() < AHEAD {
            ControlFlow::Continue(())
        } else {
            self.take_oldest(take)
        }
    }

    fn take_oldest(&mut self, take: &mut Take<'_, T>) -> ControlFlow<()> {
        let Some(met) = self.under_way.pop_front() else { return ControlFlow::Continue(()) };
        // Without an answer its thread has panicked.
        let Ok(answer) = met.recv() else { return ControlFlow::Break(()) };
        answer.met.into_iter().try_for_each(take)
    }

    /// Starts the threads; `None` where not even one can be started.
    fn start(&self) -> Option<SyncSender<Task<T>>> {
        let (tasks, to_do) = sync_channel::<Task<T>>(AHEAD);
        let to_do = Arc::new(Mutex::new(to_do));
        let started = (0..THREADS).map_while(|_| {
            let (eyes, prepare, to_do) = (self.eyes, self.prepare, Arc::clone(&to_do));
            // The lock is held while a thread waits for a task, and not while it looks.
            let next = move || to_do.lock().ok()?.recv().ok();
            let work = move || {
                while let Some(Task { batch, done }) = next() {
                    let met = eyes.meet_all(&batch, prepare);
                    // Nobody listens any more: the walk was broken off.
                    if done.send(Answer { met, _spent: batch }).is_err() {
                        return;
                    }
                }
            };
            Builder::new().name("looker".to_owned()).spawn_scoped(self.scope, work).ok()
        });
        (started.count() > 0).then_some(tasks)
    }
}
