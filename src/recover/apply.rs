//! Carrying a plan out: one recoverer at a time, each action judged again, each recorded first.
//!
//! Ordered steps of [`apply`]:
//! 1. open the root, and refuse one that others control or that is another user's;
//! 2. lock `.runstore/recovery.lock`; who finds it locked goes away;
//! 3. finish what an earlier apply had begun: an unfinished replacement that passes for an end of the run goes,
//!    and changes that were not made are made. Where somebody else has been since, what was made stands, and the
//!    run is planned for afresh;
//! 4. read the store and make a plan, or take the one that was saved;
//! 5. for each action: look at its run again, with the process; go on only if the same action follows from
//!    what is there now, and everything that it relies on is as it was;
//! 6. look at each file that it changes once more, and write its record, durable;
//! 7. make its changes in order; the verdict on a slot is asked once more under its claim, because a run that is taken
//!    up again changes its records before the slot. If somebody else is met on the way, what was made is taken back;
//! 8. mark the record as done.
//!
//! The look of step 5 comes under the lock, so that two recoverers never act on one run; the lock of the
//! run's own writers ([`advisory`](crate::store::advisory)) is held from there to step 8, so that no writer of
//! ours comes between. Other programs ask for neither: against them the second looks are what helps.
//!
//! A crash leaves a record that says `begun`. A full disk stops the apply before its next action; room is
//! made, and it is called again. Whatever else the system refuses concerns one action: what was made of it is taken
//! back, or stays begun where that is refused as well, and the others go on. Spec: RS-REC-20 to RS-REC-27, RS-REC-32, RS-SLOT-18.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::protocol::error::with_causes;
use crate::protocol::evidence::Times;
use crate::protocol::layout;
use crate::protocol::slot::SlotOwner;
use crate::store::atomic::WriteError;
use crate::store::host::{Host, WriteHost};
use crate::store::retry::RetryPolicy;
use crate::store::{Opened, RunsRoot, Store, advisory, directory, journal as log_file, release};

use super::change::{self, Change, ChangeError, MayFree, Stand};
use super::decide::Policy;
use super::journal::{self, Logged, State};
use super::plan::{self, Action, Around, Refusal, Requirement, Scope};
use super::sweep::Memory;
use super::together::Lost;

/// What is wanted of an apply.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these ids, of actions or runs; empty means all.
    pub only: Vec<String>,
    /// Only this session.
    pub session: Option<String>,
    /// Actions of a saved plan: their ids and what they rely on. `None` plans anew.
    pub saved: Option<Vec<(String, Vec<Requirement>)>>,
    /// What is done beyond the rules.
    pub policy: Policy,
    /// Times of the judgement.
    pub times: Times,
}

/// An action that was carried out.
#[derive(Clone, Debug)]
pub struct Done {
    /// The action.
    pub id: String,
    /// The run.
    pub run_id: String,
    /// What it was about.
    pub path: PathBuf,
    /// What was done.
    pub action: String,
    /// Why.
    pub why: String,
    /// How its run lost its runner, where that is what it was about.
    pub lost: Option<Lost>,
}

/// An action that was not carried out.
#[derive(Clone, Debug)]
pub struct LeftOver {
    /// The action.
    pub id: String,
    /// The run.
    pub run_id: String,
    /// Why: the precondition that broke, or what was in the way.
    pub why: String,
}

/// What an apply did.
#[derive(Debug, Default)]
pub struct Applied {
    /// The root of the store.
    pub root: PathBuf,
    /// The id of this apply; `None` when nothing was begun.
    pub id: Option<String>,
    /// What was done.
    pub done: Vec<Done>,
    /// Actions of an earlier apply that were finished, by run.
    pub finished: Vec<String>,
    /// What was not done.
    pub left: Vec<LeftOver>,
    /// Runs that are left alone.
    pub refused: Vec<Refusal>,
    /// What went wrong beside that.
    pub problems: Vec<String>,
    /// Why it stopped before its end, if so. Calling again goes on.
    pub stopped: Option<String>,
    /// Number of runs that were looked at.
    pub looked_at: usize,
    /// Number of those that were read to make the plan.
    pub read: usize,
}

/// Why nothing was applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum ApplyError {
    /// The root cannot be opened for writing.
    Open(io::Error),
    /// The store belongs to another user.
    OtherUser,
    /// Another recoverer is at work.
    Contended(String),
    /// Something could not be written.
    Write(WriteError),
    /// Something could not be read.
    Read(io::Error),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(_) => f.write_str("the store cannot be opened for writing"),
            Self::OtherUser => f.write_str("the store belongs to another user"),
            Self::Contended(path) => write!(f, "another recovery is at work: it holds {path}"),
            Self::Write(_) => f.write_str("the recovery could not be prepared"),
            Self::Read(_) => f.write_str("the store cannot be read"),
        }
    }
}

impl std::error::Error for ApplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) | Self::Read(e) => Some(e),
            Self::Write(e) => Some(e),
            Self::OtherUser | Self::Contended(_) => None,
        }
    }
}

/// The recovery lock of a root, held until this is dropped.
pub(super) struct Held<'a, H: WriteHost> {
    host: &'a H,
    file: H::File,
}

impl<H: WriteHost> Drop for Held<'_, H> {
    fn drop(&mut self) {
        // A forked child may share the open file.
        let _ = self.host.unlock(&self.file);
    }
}

/// Steps 1 and 2.
/// Spec: RS-REC-23, RS-REC-27.
pub(super) fn enter<'a, H: WriteHost>(
    host: &'a H,
    path: &Path,
) -> Result<(H::Dir, Held<'a, H>), ApplyError> {
    let root = directory::open_root(host, path).map_err(ApplyError::Open)?;
    let stat = host.stat_dir(&root).map_err(ApplyError::Read)?;
    if host.system().uid.is_some_and(|own| own != stat.uid) {
        return Err(ApplyError::OtherUser);
    }
    let retry = RetryPolicy::default();
    let own = directory::create_durable(host, &root, layout::OWN_DIR, &retry);
    let own = own.map_err(ApplyError::Write)?.0;
    let shown = || format!("{}/{}/{}", path.display(), layout::OWN_DIR, layout::RECOVERY_LOCK);
    let file = log_file::open(host, &own, layout::RECOVERY_LOCK).map_err(ApplyError::Read)?;
    match host.try_lock(&file) {
        Ok(true) => Ok((root, Held { host, file })),
        Ok(false) => Err(ApplyError::Contended(shown())),
        // Without it two recoverers could act on one run.
        Err(e) => Err(ApplyError::Open(io::Error::new(
            e.kind(),
            format!("{} cannot be locked: {e}", shown()),
        ))),
    }
}

/// Carries out what follows from the rules, or a saved plan. `path` is the root of the store. See the module's
/// ordered steps.
///
/// # Errors
/// [`ApplyError`]; nothing was changed then, except for what an earlier apply had begun.
pub fn apply<H: WriteHost>(
    host: &H,
    path: &Path,
    run: Option<&Path>,
    wanted: &Wanted,
    each: &mut dyn FnMut(&Done),
) -> Result<Applied, ApplyError> {
    carried_out(host, (path, run), wanted, None, &mut |done| {
        each(done);
        ControlFlow::Continue(())
    })
}

/// The same, with what earlier sweeps of the store know. A break of `each` ends it before its next action.
pub(super) fn carried_out<H: WriteHost>(
    host: &H,
    (path, run): (&Path, Option<&Path>),
    wanted: &Wanted,
    mut memory: Option<&mut Memory>,
    each: &mut dyn FnMut(&Done) -> ControlFlow<()>,
) -> Result<Applied, ApplyError> {
    let (root, _held) = enter(host, path)?;
    let mut applied = Applied { root: path.to_owned(), ..Applied::default() };
    let finished = memory.as_deref_mut().map(|memory| &mut memory.finished);
    let unfinished =
        finish_begun(host, (path, &root), finished, &mut applied).map_err(ApplyError::Read)?;
    if applied.stopped.is_some() {
        return Ok(applied);
    }
    let opened = Store::open(host, run.unwrap_or(path), host.now_ms(), wanted.times);
    let (mut store, only_run) = match opened.map_err(ApplyError::Read)? {
        Opened::Store(store) => (store, None),
        Opened::Run(store, root, name) => (store, Some((root, name))),
    };
    let scope = Scope { run: only_run, session: wanted.session.clone() };
    let around = Around::of(&store, &wanted.policy).map_err(ApplyError::Read)?;
    let plan = plan::planned(&store, &around, &scope, memory).map_err(ApplyError::Read)?;
    applied.refused = plan.refused;
    (applied.looked_at, applied.read) = (plan.looked_at, plan.read);
    let chosen = chosen(plan.actions, wanted, &mut applied);
    let mut around = around.for_one_at_a_time();
    let mut work = Work { host, root: &root, apply: None, number: 0 };
    for (action, requires) in chosen {
        if unfinished.contains(&action.path) {
            let why = "what an earlier recovery began of it is not finished".to_owned();
            applied.left.push(LeftOver { id: action.id, run_id: action.run_id, why });
            continue;
        }
        store.now_ms = host.now_ms();
        around.forget();
        match work.carry_out(&store, &around, &action, &requires) {
            Ok(()) => {
                let Action { id, run_id, path, kind, why, lost, .. } = action;
                let done = Done { id, run_id, path, action: kind.to_string(), why, lost };
                let flow = each(&done);
                applied.done.push(done);
                if flow.is_break() {
                    break;
                }
            }
            Err(Stop::Left(why)) => {
                let (id, run_id) = (action.id, action.run_id);
                applied.left.push(LeftOver { id, run_id, why });
            }
            Err(Stop::All(why)) => {
                let (id, run_id) = (action.id, action.run_id);
                applied.left.push(LeftOver { id, run_id, why: why.clone() });
                applied.stopped = Some(why);
                break;
            }
        }
    }
    applied.id = work.apply.map(|(id, _)| id);
    Ok(applied)
}

/// The actions that are wanted, each with what it relies on.
fn chosen(
    actions: Vec<Action>,
    wanted: &Wanted,
    applied: &mut Applied,
) -> Vec<(Action, Vec<Requirement>)> {
    let asked = |action: &Action| {
        let is_named = |id: &String| *id == action.id || *id == action.run_id;
        wanted.only.is_empty() || wanted.only.iter().any(is_named)
    };
    let Some(saved) = &wanted.saved else {
        let fresh = actions.into_iter().filter(asked);
        return fresh.map(|action| (action.clone(), action.requires)).collect();
    };
    let mut chosen = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    for action in actions.into_iter().filter(asked) {
        if let Some((id, requires)) = saved.iter().find(|(id, _)| *id == action.id) {
            known.insert(id.clone());
            chosen.push((action, requires.clone()));
        }
    }
    for (id, _) in saved.iter().filter(|(id, _)| !known.contains(id)) {
        if wanted.only.is_empty() || wanted.only.contains(id) {
            let why = "the plan is stale: the rules do not ask for it any more".to_owned();
            applied.left.push(LeftOver { id: id.clone(), run_id: String::new(), why });
        }
    }
    chosen
}

/// Why an action was not carried out.
enum Stop {
    /// Only this one.
    Left(String),
    /// It makes no sense to go on.
    All(String),
}

impl From<ChangeError> for Stop {
    fn from(e: ChangeError) -> Self {
        if e.is_capacity() { Self::All(e.to_string()) } else { Self::Left(e.to_string()) }
    }
}

struct Work<'a, H: WriteHost> {
    host: &'a H,
    root: &'a H::Dir,
    apply: Option<(String, H::Dir)>,
    number: u32,
}

impl<H: WriteHost> Work<'_, H> {
    /// Steps 5 to 8.
    fn carry_out(
        &mut self,
        store: &Store<'_, H>,
        around: &Around<'_, H>,
        planned: &Action,
        requires: &[Requirement],
    ) -> Result<(), Stop> {
        let _turn = turn(self.host, store, &planned.path).map_err(Stop::Left)?;
        let action = match runs_root_of(store, &planned.path) {
            Some(runs) => Self::again(store, around, runs, planned)?,
            // Its changes tell all that it relies on.
            None => planned.clone(),
        };
        for wanted @ Requirement { path, seen } in requires {
            // The action need not rely on the same files any more.
            let now = match action.requires.iter().find(|now| now.path == *path) {
                Some(now) => now.seen.clone(),
                None => wanted.seen_now(self.host, self.root)?,
            };
            if now != *seen {
                return Err(Stop::Left(format!(
                    "the plan is stale: {path} was {seen}, and is {now}"
                )));
            }
        }
        let mut changes = action.changes.clone();
        for (change, stand) in change::stands(self.host, self.root, &changes)? {
            let why = match stand {
                _ if change.is_of_the_way() => continue,
                Stand::Before => continue,
                // To take it back would be to take back what somebody else did.
                Stand::After => "somebody has done it".to_owned(),
                Stand::Other(why) => why,
            };
            let path = change.path();
            return Err(Stop::Left(format!("the plan is stale: {path}: {why}")));
        }
        if self.apply.is_none() {
            let begun = journal::begin(self.host, self.root);
            self.apply = Some(begun.map_err(|e| Stop::All(with_causes(&e)))?);
        }
        let Some((id, dir)) = &self.apply else { return Ok(()) };
        self.number += 1;
        let number = self.number;
        name_asides(&mut changes, id, number);
        let record = Logged::new(&action, self.host.now_ms(), changes);
        // What keeps one record from being written keeps the next one as well.
        let unwritten = |e| Stop::All(format!("{}/{e}", journal::place(id)));
        journal::write(self.host, dir, number, &record).map_err(unwritten)?;
        let may_free = |owner: &SlotOwner| {
            let verdict = release::judge(store, owner);
            verdict.release && (!verdict.by_policy || around.policy.abandoned_slots)
        };
        for (at, change) in record.changes.iter().enumerate() {
            if let Err(e) = step(self.host, self.root, change, &may_free) {
                return Err(self.back_out(dir, number, &record.changes[..=at], e));
            }
        }
        // See the module `journal` for what a failure leaves.
        let _ = journal::mark(self.host, dir, number, (State::Begun, State::Done));
        Ok(())
    }

    /// The same action as it follows from what is there now.
    fn again(
        store: &Store<'_, H>,
        around: &Around<'_, H>,
        runs: &RunsRoot<H>,
        planned: &Action,
    ) -> Result<Action, Stop> {
        let name = planned.path.file_name().unwrap_or_default();
        let found = plan::see_whole(store, around, runs, name);
        let found = found.map(|seen| seen.found).unwrap_or_default();
        let stale = |why: String| Stop::Left(format!("the plan is stale: {why}"));
        match found.actions.into_iter().find(|now| now.id == planned.id) {
            Some(action) => Ok(action),
            None => Err(stale(match found.refused {
                Some(refusal) => refusal.why,
                None => "the rules do not ask for it any more".to_owned(),
            })),
        }
    }

    /// Takes back what was made of an action that cannot go on: of these changes the last one failed.
    fn back_out(&self, dir: &H::Dir, number: u32, tried: &[Change], e: ChangeError) -> Stop {
        let (host, root) = (self.host, self.root);
        // Without room nothing is taken back either; the next apply goes on from here.
        if e.is_capacity() {
            return e.into();
        }
        // One that the system refused may have been made and not flushed; where somebody else was met it was not.
        let failed = usize::from(!matches!(e, ChangeError::System { .. }));
        for change in tried[..tried.len() - failed].iter().rev() {
            let taken = match change::stand(host, root, change) {
                Ok(Stand::After) => change::take_back(host, root, change),
                Ok(_) => Ok(()),
                Err(e) => Err(e),
            };
            match taken {
                Ok(()) => {}
                Err(also @ ChangeError::System { .. }) => {
                    return Stop::Left(format!(
                        "{e}; what was made of it stands for now ({also}), and the next recovery goes on with it"
                    ));
                }
                Err(also) => {
                    let _ = journal::mark(host, dir, number, (State::Begun, State::Superseded));
                    return Stop::Left(format!("{e}; a part of it stands: {also}"));
                }
            }
        }
        let _ = journal::forget(host, dir, number);
        e.into()
    }
}

/// How long another writer of ours may hold a run, in ms.
const LOCK_WAIT_MS: u64 = 2_000;

/// The runs root of a run directory; `None` for what belongs to no run. A record may name the store by another path
/// than the one by which it was opened now, so only the way below it counts.
fn runs_root_of<'s, H: Host>(store: &'s Store<'_, H>, path: &Path) -> Option<&'s RunsRoot<H>> {
    let parent = path.parent()?;
    store.runs_roots.iter().find(|runs| {
        let label = plan::label(store, runs);
        parent == runs.path || (!label.is_empty() && parent.ends_with(label))
    })
}

/// The turn to write to a run, among the writers of ours, who lock in its runs root. What belongs to no run has no
/// other writer of ours.
///
/// # Errors
/// A sentence, when another writer keeps it.
/// Spec: RS-REC-23.
pub(super) fn turn<'a, H: WriteHost>(
    host: &'a H,
    store: &'a Store<'_, H>,
    path: &Path,
) -> Result<Option<advisory::Guard<'a, H>>, String> {
    let run = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let Some(runs) = runs_root_of(store, path) else { return Ok(None) };
    let place = runs.path.to_str().unwrap_or(&runs.label);
    match advisory::Locks::new(host, runs.dir(), place, LOCK_WAIT_MS).acquire(&run) {
        Ok(guard) => Ok(Some(guard)),
        Err(advisory::LockError::Unavailable(_)) => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Gives what is set aside its name.
fn name_asides(changes: &mut [Change], apply: &str, number: u32) {
    let place = journal::place(apply);
    for (at, change) in changes.iter_mut().enumerate() {
        if let Change::Move { to, .. } | Change::FreeSlot { to, .. } = change
            && to.is_empty()
        {
            *to = format!("{place}/{number:05}-{at}.aside");
        }
    }
}

/// Makes one change, if it stands before; one that was made is passed over.
/// Spec: RS-REC-20.
fn step<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    change: &Change,
    may_free: &MayFree<'_>,
) -> Result<(), ChangeError> {
    match change::stand(host, root, change)? {
        Stand::Before => change::make(host, root, change, may_free),
        Stand::After => Ok(()),
        Stand::Other(why) => Err(ChangeError::changed(change.path(), why)),
    }
}

/// Step 3. What it is about that could not be finished now is returned.
/// Spec: RS-REC-26.
fn finish_begun<H: WriteHost>(
    host: &H,
    (path, root): (&Path, &H::Dir),
    mut finished: Option<&mut HashSet<String>>,
    applied: &mut Applied,
) -> io::Result<HashSet<PathBuf>> {
    let mut unfinished = HashSet::new();
    let mut store = None;
    for id in journal::applies(host, root)? {
        // Nothing is ever begun again in an apply that has ended.
        if finished.as_ref().is_some_and(|finished| finished.contains(&id)) {
            continue;
        }
        let mut has_begun = false;
        let Some(dir) = journal::open(host, root, &id)? else { continue };
        for (number, state) in journal::records(host, &dir)? {
            if state != State::Begun {
                continue;
            }
            let record = match journal::read(host, &dir, (number, state)) {
                Ok(record) => record,
                Err(why) => {
                    has_begun = true;
                    applied.problems.push(format!("recovery {id}: {why}"));
                    continue;
                }
            };
            let store = match &mut store {
                Some(store) => store,
                none => none.insert(opened(host, path)?),
            };
            let about = Path::new(&record.path);
            let turn = turn(host, store, about).map_err(Stop::Left);
            // The policy was asked when it was begun.
            let may_free = |owner: &SlotOwner| release::judge(store, owner).release;
            let done =
                turn.and_then(|_turn| Ok(finish_one(host, root, &record.changes, &may_free)?));
            let run = &record.run_id;
            let marked = match done {
                Ok(State::Done) => {
                    applied.finished.push(run.clone());
                    journal::mark(host, &dir, number, (state, State::Done))
                }
                Ok(State::Superseded) => {
                    applied.problems.push(format!("{run}: somebody else went on with it"));
                    journal::mark(host, &dir, number, (state, State::Superseded))
                }
                Ok(_) => journal::forget(host, &dir, number),
                Err(Stop::All(why)) => {
                    applied.stopped = Some(format!("{run}: {why}"));
                    return Ok(unfinished);
                }
                // It must not keep the other runs from their ends.
                Err(Stop::Left(why)) => {
                    has_begun = true;
                    applied.problems.push(format!(
                        "{run}: what recovery {id} began cannot be finished yet: {why}; the next one tries again"
                    ));
                    unfinished.insert(about.to_owned());
                    Ok(())
                }
            };
            if let Err(e) = marked {
                let place = journal::place(&id);
                applied.stopped =
                    Some(format!("{place}: the record of {run} cannot be moved on: {e}"));
                return Ok(unfinished);
            }
        }
        if let Some(finished) = finished.as_deref_mut().filter(|_| !has_begun) {
            finished.insert(id);
        }
    }
    Ok(unfinished)
}

/// The store at its root, for what is about its writers.
pub(super) fn opened<'h, H: Host>(host: &'h H, path: &Path) -> io::Result<Store<'h, H>> {
    match Store::open(host, path, host.now_ms(), Times::default())? {
        Opened::Store(store) | Opened::Run(store, ..) => Ok(store),
    }
}

/// Finishes the changes of a record that was begun: done, or forgotten ([`State::Undone`]) when none of them
/// had been made, or superseded.
fn finish_one<H: WriteHost>(
    host: &H,
    root: &H::Dir,
    changes: &[Change],
    may_free: &MayFree<'_>,
) -> Result<State, ChangeError> {
    change::drop_unfinished(host, root, changes)?;
    let stands = change::stands(host, root, changes)?;
    // Nothing was made: the run is planned for afresh, with what is known now.
    if stands.iter().all(|(change, stand)| *stand == Stand::Before || change.is_of_the_way()) {
        return Ok(State::Undone);
    }
    if stands.iter().any(|(_, stand)| matches!(stand, Stand::Other(_))) {
        return Ok(State::Superseded);
    }
    for (at, (change, _)) in stands.iter().enumerate() {
        if change.is_moved_on(&stands[at + 1..]) {
            continue;
        }
        match step(host, root, change, may_free) {
            Err(ChangeError::Changed { .. }) => return Ok(State::Superseded),
            other => other?,
        }
    }
    Ok(State::Done)
}
