//! Sweeping: one store is recovered again and again, and what has not changed is not read again.
//!
//! Theory of operation. A sweep is an [`apply`](super::apply()) with a [`Memory`]. For each run with which nothing
//! is to be done the memory keeps everything that this judgement rests on, as looks at names
//! ([`stamps`](crate::store::stamps)). While all of it is as it was, the run is passed over: no file of it is
//! opened. A run is only remembered if nothing else can change the judgement:
//!
//! | it depends on | what is asked at each sweep |
//! |---|---|
//! | the files of the run | its directory, its status, its proof, its log: same file, same stamps |
//! | its results | each name that they can have; where all payloads were searched, all areas of them |
//! | the active index | whether it names the run |
//! | the terminal index | whether it lists the run, or was in use when the run ended |
//! | slots and leases | whether any names the run |
//! | its process | a run that works: whether its process is still there. One that has ended: nothing |
//! | the time | nothing, because only what no time can change is remembered |
//!
//! Whatever waits for a time (a grace, a settling end, an unfinished replacement), is held, refused, replayed
//! or doubled is read at each sweep, and so is all that is too young to have a stamp that vouches for it. What is
//! remembered never makes an action: a run that is acted on was read in this sweep, and again right before.
//!
//! Ordered steps of a look at one run:
//! 1. take its stamps. Before it is read, so that what changes meanwhile has other stamps the next time;
//! 2. compare them, and all else that was remembered; if nothing differs, pass over;
//! 3. read and judge it as every plan does;
//! 4. look at the names of its results, and remember it if they are what was read.
//!
//! The memory lives as long as its process: a crash loses it, and the next sweep reads everything.
//! Spec: RS-REC-40 to RS-REC-43.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::evidence::{RunEvidence, Times};
use crate::protocol::limits;
use crate::protocol::process::{Liveness, ProcessRecord, RecordedProcess};
use crate::protocol::result::ResultPlace;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::verdict::{Diagnosis, Flag, Verdict};
use crate::store::host::{FileKind, Host, Stat, WriteHost};
use crate::store::stamps::{self, RunStamps};
use crate::store::{RunsRoot, Store, identity};

use super::apply::{Applied, ApplyError, Done, Wanted, carried_out};
use super::decide::{self, Policy};
use super::plan::{Around, Found, Listed, Listing, see};

/// What is known of one store from earlier sweeps. One memory is for one store and one wish.
#[derive(Debug, Default)]
pub struct Memory {
    frame: Option<Frame>,
    runs: HashMap<(usize, OsString), Arc<Mark>>,
    /// How the areas of waiting results looked, and how often they have changed.
    areas: Vec<(String, Stat)>,
    are_fresh: bool,
    generation: u64,
    /// Applies without a record that is only begun.
    pub(super) finished: HashSet<String>,
}

/// What the judgement of every run rests on. If any of it is another, nothing is remembered.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    policy: Policy,
    times: Times,
    host: String,
    boot_id: Option<String>,
    pid_namespace: Option<String>,
    roots: Vec<(PathBuf, (u64, u64))>,
}

/// What proves that nothing is to be done with a run.
#[derive(Debug)]
pub(super) struct Mark {
    stamps: RunStamps,
    /// Whether the active index names it.
    marked: bool,
    /// Where results of it can lie, and what is there.
    results: Vec<(String, Option<Stat>)>,
    /// The state of all areas of results, where the judgement rests on a search through them.
    generation: Option<u64>,
    /// Its place in the terminal index, and how it stood there.
    listing: (Result<Listing, Listed>, Listed),
    /// The process of a run that works.
    process: Option<Process>,
}

/// A record of a process that owns its texts.
#[derive(Debug)]
struct Process {
    record: ProcessRecord,
    first_named_ms: Option<i64>,
    last_write_ms: Option<i64>,
}

impl Process {
    /// `None` where no process is named.
    fn of(record: &RecordedProcess<'_>) -> Option<Self> {
        let (first_named_ms, last_write_ms) = (record.first_named_ms, record.last_write_ms);
        let record = ProcessRecord {
            pid: record.pid?,
            host: record.host.map(str::to_owned),
            pid_namespace: record.pid_namespace.map(str::to_owned),
            identity: record.identity.clone(),
        };
        Some(Self { record, first_named_ms, last_write_ms })
    }

    fn is_live<H: Host>(&self, host: &H) -> bool {
        let (first_named_ms, last_write_ms) = (self.first_named_ms, self.last_write_ms);
        let record = self.record.told_at(0);
        let record = RecordedProcess { first_named_ms, last_write_ms, ..record };
        identity::judge(host, &record).word == Liveness::Live
    }
}

/// What came of a look at one run.
pub(super) struct Looked {
    pub(super) found: Option<Found>,
    pub(super) mark: Option<Arc<Mark>>,
    /// Whether anything of it was read.
    pub(super) was_read: bool,
}

/// How long a directory must have been quiet until it is remembered, in ms: a replacement that is under way is
/// passed over in silence, and is told when its time is over.
const QUIET_MS: i64 = 2 * limits::REPLACEMENT_MS;

impl Memory {
    /// Number of runs that would be passed over if nothing changed.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether every run would be read.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Prepares a look at the whole store.
    pub(super) fn begin<H: Host>(&mut self, store: &Store<'_, H>, policy: &Policy) {
        let system = store.host().system();
        let frame = Frame {
            policy: *policy,
            times: store.times,
            host: system.host.clone(),
            boot_id: system.boot_id.clone(),
            pid_namespace: system.pid_namespace.clone(),
            roots: store.surroundings(),
        };
        if self.frame.as_ref() != Some(&frame) || store.has_unread_results() {
            self.runs.clear();
        }
        self.frame = Some(frame);
        let areas = store.waiting_areas();
        let is_same = |(one, other): (&(String, Stat), &(String, Stat))| {
            one.0 == other.0 && stamps::is_same(Some(&one.1), Some(&other.1))
        };
        let are_same =
            areas.len() == self.areas.len() && areas.iter().zip(&self.areas).all(is_same);
        if !are_same || self.are_fresh {
            self.generation += 1;
        }
        self.are_fresh = areas.iter().any(|(_, stat)| stamps::is_fresh(stat, store.now_ms));
        self.areas = areas;
    }

    /// See the module's ordered steps.
    pub(super) fn look<H: Host>(
        &self,
        store: &Store<'_, H>,
        around: &Around<'_, H>,
        (root, name): (usize, &OsString),
        kind: Option<FileKind>,
    ) -> Looked {
        let runs = &store.runs_roots[root];
        let stamps = store.run_stamps(runs, name);
        // The key is a pair, so a look at it needs an owned name.
        let known = self.runs.get(&(root, name.clone()));
        if let (Some(mark), Some(now)) = (known, &stamps)
            && self.holds(mark, store, around, (runs, name), now)
        {
            return Looked { found: None, mark: Some(Arc::clone(mark)), was_read: false };
        }
        let Some(seen) = see(store, around, (root, name), kind, None) else {
            return Looked { found: None, mark: None, was_read: false };
        };
        let is_done = seen.found.actions.is_empty() && seen.found.refused.is_none();
        let place = (store, around, runs, name.as_os_str());
        let mark = stamps
            .filter(|stamps| is_done && is_old(stamps, store.now_ms))
            .and_then(|stamps| {
                self.mark(place, stamps, &seen.evidence, &seen.diagnosis, seen.searched)
            })
            .map(Arc::new);
        Looked { found: Some(seen.found), mark, was_read: true }
    }

    /// Whether everything that a mark rests on is as it was.
    /// Spec: RS-REC-42.
    fn holds<H: Host>(
        &self,
        mark: &Mark,
        store: &Store<'_, H>,
        around: &Around<'_, H>,
        (runs, name): (&RunsRoot<H>, &OsStr),
        now: &RunStamps,
    ) -> bool {
        let is_held = name.to_str().is_none_or(|run| store.is_held_for(run));
        let (listing, stood) = &mark.listing;
        mark.stamps.is_same_as(now)
            && !is_held
            && !around.is_doubled(store, name)
            && runs.is_marked(name) == Some(mark.marked)
            && mark.generation.is_none_or(|generation| generation == self.generation)
            && mark
                .results
                .iter()
                .all(|(path, then)| stamps::is_same(store.stat_below(path).as_ref(), then.as_ref()))
            && listing.as_ref().map_or_else(|how| *how, |l| l.ask(store.host(), around)) == *stood
            && mark.process.as_ref().is_none_or(|process| process.is_live(store.host()))
    }

    /// What there is to remember of a run that was read, if it may be.
    /// Spec: RS-REC-43.
    fn mark<H: Host>(
        &self,
        (store, around, runs, name): (&Store<'_, H>, &Around<'_, H>, &RunsRoot<H>, &OsStr),
        stamps: RunStamps,
        e: &RunEvidence,
        d: &Diagnosis,
        searched: bool,
    ) -> Option<Mark> {
        let is_free = e.slots.is_empty() && e.leases.is_empty() && !e.config_left;
        let is_plain = e.temp.count == 0 && !e.truncated && !e.unstable && !e.results_unread;
        let is_bound = !e.unused_replays.is_empty()
            || e.results.iter().any(|result| result.place == ResultPlace::Replay);
        let is_quiet = decide::is_quiet(e, around.policy).is_ok();
        if !is_free || !is_plain || is_bound || !is_quiet || around.is_doubled(store, name) {
            return None;
        }
        let marked = runs.is_marked(name)?;
        let status = e.status.value();
        let is_active = status.and_then(StatusView::known_state).is_none_or(RunState::is_active);
        let process = match d.verdict {
            Verdict::Running if e.life.word == Liveness::Live && marked => {
                Some(Process::of(&e.process()?)?)
            }
            // A marker that stays becomes stale in time.
            _ if marked && !d.has(Flag::MarkerStale) => return None,
            Verdict::Finished | Verdict::FinishedUnproven | Verdict::StartFailed if !is_active => {
                None
            }
            Verdict::Paused if status.is_some_and(|s| s.ended_at_ms.is_some()) => None,
            Verdict::NotARun => None,
            _ => return None,
        };
        let listing = Listing::of(store, runs, e);
        let stood = listing.as_ref().map_or_else(|how| *how, |l| l.ask(store.host(), around));
        Some(Mark {
            stamps,
            marked,
            results: results(store, runs, e)?,
            generation: searched.then_some(self.generation),
            listing: (listing, stood),
            process,
        })
    }

    /// Takes over what was found to be worth remembering; everything else is forgotten.
    pub(super) fn keep(&mut self, marks: Vec<((usize, OsString), Arc<Mark>)>) {
        self.runs = marks.into_iter().collect();
    }
}

/// Whether stamps are old enough to vouch for what is read after them.
fn is_old(stamps: &RunStamps, now_ms: i64) -> bool {
    stamps.newest_ms() < now_ms.saturating_sub(QUIET_MS) && !stamps.is_fresh(now_ms)
}

/// How the names of all results of a run look, if that agrees with what was read; `None` where it does not, or
/// where a result lies elsewhere.
fn results<H: Host>(
    store: &Store<'_, H>,
    runs: &RunsRoot<H>,
    e: &RunEvidence,
) -> Option<Vec<(String, Option<Stat>)>> {
    let session = e.status.value().and_then(|s| s.session_id.as_deref());
    let mut read: HashMap<&str, _> = HashMap::new();
    // The one in the run directory is vouched for by that.
    for result in e.results.iter().filter(|result| result.place != ResultPlace::Workflow) {
        read.insert(&result.path, result.fact.meta());
    }
    let mut found = Vec::new();
    for path in store.result_places(runs, &e.run_id, session) {
        let stat = store.stat_below(&path);
        let meta = read.remove(&*path);
        let agrees = match (&stat, meta) {
            (None, None) => true,
            (Some(stat), Some(Some(meta))) => {
                let is_same = (stat.mtime_ms, stat.bytes) == (meta.mtime_ms, meta.bytes);
                is_same && !stamps::is_fresh(stat, store.now_ms)
            }
            _ => false,
        };
        if !agrees {
            return None;
        }
        found.push((path, stat));
    }
    read.is_empty().then_some(found)
}

/// Recovers a store once more. `path` is its root; `each` is told of each action, and ends the sweep before the
/// next one by a break.
///
/// # Errors
/// [`ApplyError`], as [`apply`](super::apply()); the memory is as good as before then.
/// Spec: RS-REC-40.
pub fn sweep<H: WriteHost>(
    host: &H,
    path: &Path,
    wanted: &Wanted,
    memory: &mut Memory,
    each: &mut dyn FnMut(&Done) -> ControlFlow<()>,
) -> Result<Applied, ApplyError> {
    carried_out(host, (path, None), wanted, Some(memory), each)
}
