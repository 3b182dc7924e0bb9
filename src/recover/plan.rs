//! A plan: what would be done with a store, and what is refused. Reads only.
//!
//! Theory of operation. Each run is looked at twice at most: first as a row of a list, which is cheap and
//! ends the matter for nearly every run of a store in order, then in full. From the full look the rules of
//! [`decide`](super::decide) say what is done about its end; the rest of its actions is decided for the run
//! *as it will be then*, so that one plan is enough and a second one is empty.
//!
//! Runs are looked at on a few threads; what they find is put into the order of the listing. An action has
//! an id made of what it does, so that the same action of a later plan has the same one.
//! Spec: RS-REC-01, RS-REC-17 to RS-REC-19.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::protocol::diagnose::{diagnose, diagnose_briefly};
use crate::protocol::evidence::RunEvidence;
use crate::protocol::layout;
use crate::protocol::limits;
use crate::protocol::open::Word as _;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::verdict::{Diagnosis, Flag, Verdict};
use crate::store::host::{FileKind, Host};
use crate::store::{Depth, RunsRoot, Snapshot, Store};

use super::change::{Change, ChangeError};
use super::decide::{ActionKind, Policy};
use super::draft::below;
use super::run::RunDesk;
use super::sweep::{Looked, Mark, Memory};
use super::together::Lost;

/// Something that an action relies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// A path below the root.
    pub path: String,
    /// `absent`, `sha256:` and the digest of the content, or `file:` and device, inode and size in bytes.
    pub seen: String,
}

/// What is done, with everything that it writes.
#[derive(Clone, Debug)]
pub struct Action {
    /// Made of what it does and where: the same action of a later plan has the same one.
    pub id: String,
    /// The run that it is about.
    pub run_id: String,
    /// The run directory, or what else it is about; absolute.
    pub path: PathBuf,
    /// What it does.
    pub kind: ActionKind,
    /// Why, in one sentence.
    pub why: String,
    /// What it rests on, a line each.
    pub evidence: Vec<String>,
    /// What it changes, in order.
    pub changes: Vec<Change>,
    /// What has to be as it was when it is carried out.
    pub requires: Vec<Requirement>,
    /// How its run lost its runner, where that is what it is about.
    pub lost: Option<Lost>,
}

/// A run that is left alone although something is wrong with it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The run.
    pub run_id: String,
    /// Its directory; absolute.
    pub path: PathBuf,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why it is left alone.
    pub why: String,
}

/// What would be done.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The instant of the look, ms since the epoch.
    pub now_ms: i64,
    /// The root that the paths of changes begin at.
    pub root: PathBuf,
    /// What would be done, in order.
    pub actions: Vec<Action>,
    /// What is left alone.
    pub refused: Vec<Refusal>,
    /// Number of runs that were looked at.
    pub looked_at: usize,
    /// Number of those that were read: without a memory all of them.
    pub read: usize,
}

/// Which part of a store is wanted.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Only this run: the index of its runs root and its name.
    pub run: Option<(usize, OsString)>,
    /// Only runs of this session.
    pub session: Option<String>,
}

/// What was found at one name.
#[derive(Default)]
pub(super) struct Found {
    pub(super) actions: Vec<Action>,
    pub(super) refused: Option<Refusal>,
}

/// What one look at a store needs besides the store.
pub(super) struct Around<'p, H: Host> {
    pub(super) root: H::Dir,
    pub(super) policy: &'p Policy,
    /// In how many runs roots a name stands, where there are several; `None` asks for each name anew.
    doubles: Option<HashMap<OsString, usize>>,
    /// The terminal index as far as it was asked for, by the path of a session directory.
    terminal: Mutex<HashMap<String, Indexed>>,
}

impl<'p, H: Host> Around<'p, H> {
    pub(super) fn of(store: &Store<'_, H>, policy: &'p Policy) -> io::Result<Self> {
        let root = store.host().open_dir(&store.root)?;
        let mut doubles: HashMap<OsString, usize> = HashMap::new();
        if store.runs_roots.len() > 1 {
            for runs in &store.runs_roots {
                runs.each_name(store.host(), &mut |name, _| {
                    *doubles.entry(name).or_default() += 1;
                    ControlFlow::Continue(())
                })?;
            }
        }
        Ok(Self { root, policy, doubles: Some(doubles), terminal: Mutex::default() })
    }

    /// For looks at one run after another, between which anything may change: nothing of the whole store is
    /// relied on, because it was seen too long ago.
    pub(super) fn for_one_at_a_time(mut self) -> Self {
        self.doubles = None;
        self
    }

    /// Forgets what the terminal index said.
    pub(super) fn forget(&mut self) {
        // A look that panicked has ended the program.
        if let Ok(terminal) = self.terminal.get_mut() {
            terminal.clear();
        }
    }

    /// Whether a name stands in several runs roots.
    pub(super) fn is_doubled(&self, store: &Store<'_, H>, name: &OsStr) -> bool {
        match &self.doubles {
            Some(doubles) => doubles.get(name).is_some_and(|n| *n > 1),
            None if store.runs_roots.len() < 2 => false,
            None => {
                let host = store.host();
                store.runs_roots.iter().filter(|runs| runs.has_name(host, name)).nth(1).is_some()
            }
        }
    }

    /// What a session directory of the terminal index says.
    fn indexed<T>(&self, host: &H, dir: &str, ask: impl FnOnce(&Indexed) -> T) -> Option<T> {
        let mut known = self.terminal.lock().ok()?;
        if let Some(indexed) = known.get(dir) {
            return Some(ask(indexed));
        }
        let mut indexed = Indexed::default();
        let parts: Vec<&str> = dir.split('/').collect();
        if let Ok(Some(opened)) = crate::store::directory::open_path(host, &self.root, &parts) {
            let _ = host.list(&opened, &mut |entry| {
                if let Some((stamp, run)) = entry.name.to_str().and_then(|n| n.split_once('-')) {
                    let at_ms = stamp.parse().unwrap_or(i64::MAX);
                    indexed.first_ms = Some(indexed.first_ms.map_or(at_ms, |ms| at_ms.min(ms)));
                    indexed.runs.insert(run.to_owned());
                }
                ControlFlow::Continue(())
            });
        }
        let answer = ask(&indexed);
        known.insert(dir.to_owned(), indexed);
        Some(answer)
    }
}

/// One session directory of the terminal index.
#[derive(Default)]
struct Indexed {
    /// The ends of the names in it.
    runs: HashSet<String>,
    /// The oldest end in it, in ms since the epoch.
    first_ms: Option<i64>,
}

/// How a run that has ended stands in the terminal index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// It has an entry.
    Yes,
    /// It has none, and the index was in use when it ended.
    Lacking,
    /// It has none, and nothing says that the index was in use then: its writers may not know it.
    NotInUse,
    /// It belongs to no session, so there is no list for it.
    NoSession,
}

/// The path of a runs root below the root of its store.
pub(super) fn label<H: Host>(store: &Store<'_, H>, runs: &RunsRoot<H>) -> String {
    let below = runs.path.strip_prefix(&store.root).ok();
    let names = below.into_iter().flat_map(|path| path.iter());
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// What would be done with a store, or a part of one.
///
/// # Errors
/// The system's, when the root or a runs root cannot be listed.
pub fn plan<H: Host>(store: &Store<'_, H>, scope: &Scope, policy: &Policy) -> io::Result<Plan> {
    let around = Around::of(store, policy)?;
    planned(store, &around, scope, None)
}

/// The same with what is around the store; with a memory of earlier looks at all of it, what has not changed
/// since is not read again.
pub(super) fn planned<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    scope: &Scope,
    memory: Option<&mut Memory>,
) -> io::Result<Plan> {
    let is_whole = scope.run.is_none() && scope.session.is_none();
    let mut memory = memory.filter(|_| is_whole);
    let mut names: Vec<(usize, OsString, Option<FileKind>)> = Vec::new();
    match &scope.run {
        Some((root, name)) => names.push((*root, name.clone(), None)),
        None => {
            for (root, runs) in store.runs_roots.iter().enumerate() {
                runs.each_name(store.host(), &mut |name, kind| {
                    names.push((root, name, kind));
                    ControlFlow::Continue(())
                })?;
            }
        }
    }
    if let Some(memory) = &mut memory {
        memory.begin(store, around.policy);
    }
    let known = memory.as_deref();
    let look = |at: usize| {
        let (root, name, kind) = &names[at];
        match known {
            Some(memory) => Some(memory.look(store, around, (*root, name), *kind)),
            None => {
                let found = look_at(store, around, (*root, name), *kind, scope.session.as_deref());
                let was_read = true;
                found.map(|found| Looked { found: Some(found), mark: None, was_read })
            }
        }
    };
    let mut looked = on_threads(names.len(), &look);
    let read = match known {
        Some(_) => looked.iter().filter(|(_, looked)| looked.was_read).count(),
        None => names.len(),
    };
    let (now_ms, root) = (store.now_ms, store.root.clone());
    let mut plan = Plan { now_ms, root, looked_at: names.len(), read, ..Plan::default() };
    looked.sort_by_key(|(at, _)| *at);
    let mut marks: Vec<((usize, OsString), Arc<Mark>)> = Vec::new();
    for (at, looked) in looked {
        if let Some(found) = looked.found {
            plan.actions.extend(found.actions);
            plan.refused.extend(found.refused);
        }
        marks.extend(looked.mark.map(|mark| ((names[at].0, names[at].1.clone()), mark)));
    }
    if is_whole {
        let alone = super::store_wide::found(store, around, &names)?;
        plan.actions.extend(alone);
    }
    if let Some(memory) = memory {
        memory.keep(marks);
    }
    Ok(plan)
}

/// Threads that look. Most of the work is system calls.
const THREADS: usize = 3;
/// From so many runs on threads are worth their start.
const MANY: usize = 128;

/// What `look` finds at each number, where it finds something.
fn on_threads<T: Send>(
    count: usize,
    look: &(dyn Fn(usize) -> Option<T> + Sync),
) -> Vec<(usize, T)> {
    let all = |from: &AtomicUsize| {
        let mut found = Vec::new();
        loop {
            // Every number is drawn once; nothing else is shared.
            let at = from.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return found;
            }
            found.extend(look(at).map(|one| (at, one)));
        }
    };
    let next = AtomicUsize::new(0);
    if count < MANY {
        return all(&next);
    }
    std::thread::scope(|scope| {
        let helper = |_| {
            let work = || all(&next);
            std::thread::Builder::new().name("planner".to_owned()).spawn_scoped(scope, work).ok()
        };
        let helpers: Vec<_> = (1..THREADS).map_while(helper).collect();
        let mut found = all(&next);
        for helper in helpers {
            match helper.join() {
                Ok(more) => found.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    })
}

/// What is to be done with one run; `None` when there is nothing, or it is gone.
pub(super) fn look_at<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    place: (usize, &OsStr),
    kind: Option<FileKind>,
    session: Option<&str>,
) -> Option<Found> {
    see(store, around, place, kind, session).map(|seen| seen.found)
}

/// What was seen of one run.
pub(super) struct Seen {
    pub(super) found: Found,
    pub(super) evidence: RunEvidence,
    pub(super) diagnosis: Diagnosis,
    /// Whether the search through all waiting results has decided anything: a row does without, and says the same
    /// of a run with which nothing is to be done.
    pub(super) searched: bool,
}

/// Reads one run; `None` when it is gone or of another session.
pub(super) fn see<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    (root, name): (usize, &OsStr),
    kind: Option<FileKind>,
    session: Option<&str>,
) -> Option<Seen> {
    let runs = &store.runs_roots[root];
    // What the active index names works or has lost its runner: nearly always a full look is needed, and a first one
    // as a row would be for nothing.
    let is_full = runs.is_marked(name) == Some(true);
    let depth = if is_full { Depth::Full } else { Depth::Row };
    let first = store.snapshot(runs, name, kind, depth)?;
    let own = first.evidence.status.value().and_then(|s| s.session_id.as_deref());
    if session.is_some_and(|wanted| own != Some(wanted)) {
        return None;
    }
    let brief = diagnose_briefly(&first.evidence);
    if !is_interesting(store, around, runs, &first.evidence, &brief) {
        let (found, evidence) = (Found::default(), first.evidence);
        return Some(Seen { found, evidence, diagnosis: brief, searched: false });
    }
    let snapshot = if is_full { first } else { store.snapshot(runs, name, kind, Depth::Full)? };
    Some(decided(store, around, runs, snapshot))
}

/// Reads one run in full; `None` when it is gone.
pub(super) fn see_whole<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    runs: &RunsRoot<H>,
    name: &OsStr,
) -> Option<Seen> {
    let snapshot = store.snapshot(runs, name, None, Depth::Full)?;
    Some(decided(store, around, runs, snapshot))
}

/// What is to be done with a run that was looked at in full.
fn decided<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    runs: &RunsRoot<H>,
    snapshot: Snapshot,
) -> Seen {
    let Snapshot { mut evidence, path, .. } = snapshot;
    if path.file_name().is_some_and(|name| around.is_doubled(store, name)) {
        evidence.shadowed_by = Some("in another runs root".to_owned());
    }
    let diagnosis = diagnose(&evidence);
    let desk = RunDesk { store, around, runs, path, label: label(store, runs) };
    let found = desk.plan(&evidence, &diagnosis);
    Seen { found, evidence, diagnosis, searched: true }
}

/// Whether a full look at a run may find something to do.
fn is_interesting<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    runs: &RunsRoot<H>,
    e: &RunEvidence,
    d: &Diagnosis,
) -> bool {
    let told = [
        Flag::MarkerStale,
        Flag::MarkerMissing,
        Flag::SlotReleasable,
        Flag::SlotRetained,
        Flag::LeaseHeld,
        Flag::Undelivered,
        Flag::TempLitter,
    ];
    if told.into_iter().any(|flag| d.has(flag)) || !e.leases.is_empty() || e.config_left {
        return true;
    }
    match d.verdict {
        Verdict::Running | Verdict::Starting | Verdict::Settling | Verdict::NotARun => false,
        Verdict::Finished | Verdict::FinishedUnproven | Verdict::Paused | Verdict::StartFailed => {
            let s = e.status.value();
            let shown = s.and_then(StatusView::valid_overlay);
            let is_shown =
                e.proof.value().is_none_or(|proof| !d.proof.counts || shown == Some(proof));
            let is_active = s.and_then(StatusView::known_state).is_none_or(RunState::is_active);
            !is_shown || is_active || lacks_marker(store, around, runs, e, d)
        }
        _ => true,
    }
}

/// Where a run that has ended would stand in the terminal index of its runs root.
#[derive(Debug)]
pub(super) struct Listing {
    /// The directory of its session, below the root.
    dir: String,
    /// The end of the name of its entry.
    ending: String,
    ended_ms: i64,
}

impl Listing {
    /// The place of a run, or how it stands where it has none.
    pub(super) fn of<H: Host>(
        store: &Store<'_, H>,
        runs: &RunsRoot<H>,
        e: &RunEvidence,
    ) -> Result<Self, Listed> {
        use crate::protocol::segment::{encode, encode_str};
        let Some(s) = e.status.value() else { return Err(Listed::NotInUse) };
        let Some(session) = s.session_id.as_deref().filter(|id| !id.is_empty()) else {
            return Err(Listed::NoSession);
        };
        let Some(ended_ms) = s.ended_at_ms else { return Err(Listed::NotInUse) };
        let index = below(&label(store, runs), layout::TERMINAL_INDEX);
        let dir = format!("{index}/{}", encode(&session.into(), limits::NAME_MAX_BYTES));
        let ending = encode_str(&e.run_id, limits::NAME_MAX_BYTES) + ".json";
        Ok(Self { dir, ending, ended_ms })
    }

    /// How the run stands now.
    pub(super) fn ask<H: Host>(&self, host: &H, around: &Around<'_, H>) -> Listed {
        // Such an end is later than an entry that a recovery makes now, and not because the index was in use.
        let is_to_come = self.ended_ms > host.now_ms();
        let asked = around.indexed(host, &self.dir, |indexed| {
            if indexed.runs.contains(&self.ending) {
                Listed::Yes
            } else if indexed.first_ms.is_some_and(|first| first <= self.ended_ms) && !is_to_come {
                Listed::Lacking
            } else {
                Listed::NotInUse
            }
        });
        asked.unwrap_or(Listed::NotInUse)
    }
}

/// How a run that has ended stands in the terminal index of its runs root.
/// Spec: RS-REC-15, RS-REC-17.
pub(super) fn listed<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    runs: &RunsRoot<H>,
    e: &RunEvidence,
) -> Listed {
    match Listing::of(store, runs, e) {
        Ok(listing) => listing.ask(store.host(), around),
        Err(how) => how,
    }
}

/// Whether a run that has ended is missing in the terminal index.
fn lacks_marker<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    runs: &RunsRoot<H>,
    e: &RunEvidence,
    d: &Diagnosis,
) -> bool {
    let Some(s) = e.status.value() else { return false };
    let ended = s.known_state().is_some_and(RunState::is_terminal);
    let waits = e.marker.marker_mtime_ms.is_some();
    let is_own = s.run_id.as_deref() == Some(&e.run_id);
    let is_judged = !matches!(d.verdict, Verdict::StartFailed | Verdict::Settling);
    ended && !waits && is_own && is_judged && listed(store, around, runs, e) == Listed::Lacking
}

impl Action {
    /// An action with its id.
    pub(super) fn new(
        run_id: &str,
        path: PathBuf,
        kind: ActionKind,
        why: String,
        (changes, requires): (Vec<Change>, Vec<Requirement>),
    ) -> Self {
        let first = changes.iter().find(|c| !matches!(c, Change::MakeDir { .. }));
        let about = match kind {
            ActionKind::FreeSlot | ActionKind::FreeLease => first.map_or("", Change::path),
            _ => "",
        };
        let named = format!("{}\0{}\0{about}", kind.as_str(), path.display());
        let id: String =
            format!("{:x}", Sha256::digest(named.as_bytes())).chars().take(12).collect();
        let (run_id, evidence) = (run_id.to_owned(), Vec::new());
        Self { id, run_id, path, kind, why, evidence, changes, requires, lost: None }
    }

    /// Every file that it would write to, rename or remove, below the root.
    pub fn writes(&self) -> Vec<&str> {
        let files = self.changes.iter().filter(|change| !change.is_of_the_way());
        let paths = files.flat_map(Change::paths).filter(|path| !path.is_empty());
        let mut seen = HashSet::new();
        paths.filter(|path| seen.insert(*path)).collect()
    }
}

/// Why a run cannot be planned for.
pub(super) fn unplanned(e: &ChangeError) -> String {
    format!("what would have to be changed cannot be: {e}")
}
