//! Removing runs that nobody can want any more: a plan, and its application.
//!
//! Theory of operation. What may be removed is decided by [`retention::keep`](crate::protocol::retention::keep)
//! from everything that is known of a run and around it; [`plan`] only reads. [`apply`] owns the retention lock
//! while it works, which all implementations respect, makes its own plan under it, and judges each run again,
//! twice: before it is set aside, and after, when nobody finds it by its name any more.
//!
//! Ordered steps of [`apply`]:
//! 1. take the retention lock (`retention`); somebody else's stays;
//! 2. finish what an earlier removal left: a run that was set aside is put back, one that was being deleted is
//!    deleted;
//! 3. read the whole store and make the plan;
//! 4. for each run: note every entry of its directory, and judge it again;
//! 5. write the note of the removal, *moving*, durable. Before the rename: a directory under a private name
//!    that no note tells of would stay for ever;
//! 6. rename it to `.deleting-run-<uuid>`, which must be free, and flush the runs root;
//! 7. look again: its entries, waits, marker, slots, leases and results. Whoever came first has touched one of
//!    them, whoever comes now does not find the run. At an objection it is renamed back;
//! 8. say *deleting* in the note, durable. From here on the next one deletes on instead of putting back,
//!    because a part of a run is worse than none;
//! 9. delete, flush the runs root, and only then remove the note: a power cut may keep the removal of the note
//!    and undo the deletion, and nobody would know then;
//! 10. let go of the lock.
//!
//! A crash leaves a note, and the run in its place or under a private name, until the next removal. What stays
//! in any case: entries of the terminal index and of result indexes, which their readers clean.
//!
//! Results without a run, archives and replays are not removed. Spec: RS-RET-01 to RS-RET-14; facts §8.7, Z-60.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use crate::protocol::error::with_causes;
use crate::protocol::evidence::{FileFact, ResultFact, Times};
use crate::protocol::ids::RunId;
use crate::protocol::retention::{Keep, Phase, RemovalNote, Wish, ended_ms};
use crate::protocol::{layout, limits};

use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::host::{FileKind, Host, Stat, WriteHost};
use super::locks::Locks;
use super::open::{Opened, RunsRoot, Store};
use super::prune_around::{Extra, References, closed_area, judged, may_be_there};
use super::results::Wanted;
use super::snapshot::Depth;
use super::{directory, lock_dir, read, retention};

/// A run that may be removed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The run.
    pub run_id: String,
    /// Its directory.
    pub path: String,
    /// When it ended, ms since the epoch.
    pub ended_ms: Option<i64>,
    /// Size of the files in it.
    pub bytes: u64,
    root: usize,
}

/// A run that stays.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The run.
    pub run_id: String,
    /// Its directory.
    pub path: String,
    /// Why.
    pub keep: Keep,
}

/// What would be removed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Runs that may be removed, the oldest first.
    pub remove: Vec<Candidate>,
    /// Runs that stay.
    pub kept: Vec<Kept>,
    /// Why nothing at all may be removed, if so.
    pub blocked: Option<String>,
    /// Removals that were interrupted.
    pub leftovers: usize,
}

/// What was removed.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Removed runs.
    pub removed: Vec<Candidate>,
    /// Runs that stay, those included that an objection saved at the last moment.
    pub kept: Vec<Kept>,
    /// Why nothing at all was removed, if so.
    pub blocked: Option<String>,
    /// Interrupted removals that were finished, by run.
    pub finished: Vec<String>,
    /// Interrupted removals that were taken back, by run.
    pub put_back: Vec<String>,
    /// What could not be removed or cleaned up; the next removal tries again.
    pub problems: Vec<String>,
    /// Why it stopped before its end, if so.
    pub stopped: Option<WriteError>,
}

/// Why nothing was removed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PruneError {
    /// The store cannot be opened.
    Open(io::Error),
    /// The path leads to something that has no place for the retention lock.
    NotAStore,
    /// Somebody else removes runs now, or may.
    Locked(String),
    /// Something could not be written.
    Write(WriteError),
}

impl fmt::Display for PruneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(_) => f.write_str("the store cannot be opened"),
            Self::NotAStore => f.write_str("the path leads to no whole store"),
            Self::Locked(why) => f.write_str(why),
            Self::Write(_) => f.write_str("the removal could not be prepared"),
        }
    }
}

impl std::error::Error for PruneError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) => Some(e),
            Self::Write(e) => Some(e),
            _ => None,
        }
    }
}

/// What may be removed, and why the rest stays. Reads only. `None` for a store without a temp root, whose
/// waits cannot be known.
/// Spec: RS-RET-09.
pub fn plan<H: Host>(store: &Store<'_, H>, wish: &Wish) -> Option<Plan> {
    planned(store, wish).map(|(plan, _)| plan)
}

fn planned<H: Host>(store: &Store<'_, H>, wish: &Wish) -> Option<(Plan, References)> {
    let (host, temp) = (store.host, store.temp_dir.as_ref()?);
    let mut plan = Plan { leftovers: notes(host, temp).len(), ..Plan::default() };
    let routes = store.routes();
    plan.blocked = closed_area(store.problems.iter().chain(&routes.problems), &store.locks);
    let waits = match retention::waited_for(host, temp) {
        Ok(waits) => waits,
        Err(why) => {
            plan.blocked.get_or_insert(why);
            Vec::new()
        }
    };
    let mut references = References::new();
    for lease in store.locks.leases.iter().filter_map(|lease| lease.owner.value()) {
        let by = || format!("the lease of run {}", lease.run_id);
        references.entry(lease.source_run_id.clone()).or_insert_with(by);
    }
    for slot in store.locks.slots.iter().filter_map(|slot| slot.owner.value()) {
        let by = || format!("the slot of run {}", slot.run_id);
        let source = slot.source_run_id.clone();
        source.map(|source| references.entry(source).or_insert_with(by));
    }
    for child in &routes.children {
        for id in [&child.parent, &child.root] {
            let by = || format!("the nested run {}", child.id);
            references.entry(id.clone()).or_insert_with(by);
        }
    }
    let mut looked = Vec::new();
    for (root, runs) in store.runs_roots.iter().enumerate() {
        let mut names = Vec::new();
        let listed = runs.each_name(host, &mut |name, kind| {
            names.push((name, kind));
            ControlFlow::Continue(())
        });
        // Who refers to whom is not known then.
        if let Err(e) = listed {
            plan.blocked.get_or_insert(format!("{}: {}", runs.label, read::plain(&e)));
        }
        for (name, kind) in names {
            let Some(snapshot) = store.snapshot(runs, &name, kind, Depth::Full) else { continue };
            let own = snapshot.evidence.run_id.clone();
            let extra = Extra::of(store, runs, &name);
            // It was read a moment ago; what it refers to is not known now.
            if let (Err(why), Some(_)) = (&extra, snapshot.evidence.status.value()) {
                plan.blocked.get_or_insert(format!("{}/{own}: {why}", runs.label));
            }
            let source = extra.as_ref().ok().and_then(|extra| extra.source_run_id.as_ref());
            for other in snapshot.children.iter().chain(source) {
                let by = || format!("run {own}");
                references.entry(other.clone()).or_insert_with(by);
            }
            let session = snapshot.evidence.status.value().and_then(|s| s.session_id.as_deref());
            let asked = wish.session.as_deref().is_none_or(|wanted| session == Some(wanted));
            if runs.nested_under.is_none() && asked {
                let reason = judged(store, runs, &snapshot, extra, (&waits, None), wish);
                let ended = ended_ms(&snapshot.evidence);
                looked.push((
                    root,
                    own,
                    snapshot.path.to_string_lossy().into_owned(),
                    ended,
                    reason,
                ));
            }
        }
    }
    // Those that ended last first: so many of them stay.
    looked.sort_by(|a, b| (b.3, &b.1).cmp(&(a.3, &a.1)));
    for (at, (root, run_id, path, ended_ms, mut reason)) in looked.into_iter().enumerate() {
        if reason.is_none() && at < wish.keep_last {
            reason =
                Some(Keep::new("kept-last", format!("it is one of the last {}", wish.keep_last)));
        }
        if let (None, Some(by)) = (&reason, references.get(&run_id)) {
            reason = Some(Keep::new("referenced", format!("{by} refers to it")));
        }
        if let Some(why) = plan.blocked.as_ref().filter(|_| reason.is_none()) {
            reason = Some(Keep::new("blocked", why.clone()));
        }
        match reason {
            Some(keep) => plan.kept.push(Kept { run_id, path, keep }),
            None => {
                let runs = &store.runs_roots[root];
                let bytes = host.open_dir_at(&runs.dir, OsStr::new(&run_id));
                let bytes = bytes.map_or(0, |dir| size_of(host, &dir, limits::TREE_DEPTH));
                plan.remove.push(Candidate { run_id, path, ended_ms, bytes, root });
            }
        }
    }
    plan.remove.reverse();
    Some((plan, references))
}

fn size_of<H: Host>(host: &H, dir: &H::Dir, depth: u32) -> u64 {
    let (names, _) = read::listed(host, dir, limits::RUN_DIR_MAX_ENTRIES, |entry| Some(entry.name));
    let size = |name: &OsString| match host.stat_at(dir, name) {
        Ok(stat) if stat.kind == FileKind::Regular => stat.bytes,
        Ok(stat) if stat.kind == FileKind::Directory && depth > 0 => {
            host.open_dir_at(dir, name).map_or(0, |inner| size_of(host, &inner, depth - 1))
        }
        _ => 0,
    };
    names.iter().map(size).sum()
}

/// Every entry of a directory as it is now: what did not change since says what it said.
fn entries<H: Host>(host: &H, dir: &H::Dir) -> io::Result<Vec<(OsString, Stat)>> {
    let (mut names, listed) =
        read::listed(host, dir, limits::RUN_DIR_MAX_ENTRIES, |entry| Some(entry.name));
    listed?;
    names.sort_unstable();
    names.into_iter().map(|name| Ok((name.clone(), host.stat_at(dir, &name)?))).collect()
}

fn are_same(before: &[(OsString, Stat)], now: &[(OsString, Stat)]) -> bool {
    before.len() == now.len()
        && before.iter().zip(now).all(|(a, b)| a.0 == b.0 && a.1.is_same_as(&b.1))
}

/// Removes what may be removed; each removed run is handed to `each` when it is gone for good. `temp_path` is the
/// path of the open temp root. See the module's ordered steps.
///
/// # Errors
/// [`PruneError`]; nothing was removed then. What stops a removal later is in the [`Outcome`].
/// Spec: RS-RET-07 to RS-RET-12.
pub fn apply<H: WriteHost>(
    host: &H,
    (temp, temp_path): (&H::Dir, &Path),
    wish: &Wish,
    each: &mut dyn FnMut(&Candidate),
) -> Result<Outcome, PruneError> {
    let token = retention::acquire(host, temp).map_err(PruneError::Write)?;
    let token = token.map_err(PruneError::Locked)?;
    let done = under_lock(host, (temp, temp_path), wish, &token, each);
    retention::release(host, temp, &token);
    done
}

fn under_lock<H: WriteHost>(
    host: &H,
    (temp, temp_path): (&H::Dir, &Path),
    wish: &Wish,
    token: &str,
    each: &mut dyn FnMut(&Candidate),
) -> Result<Outcome, PruneError> {
    let mut outcome = Outcome::default();
    for name in notes(host, temp) {
        if let Err(e) = finish_leftover(host, temp, &name, &mut outcome) {
            outcome.problems.push(e);
        }
    }
    let opened = Store::open(host, temp_path, host.now_ms(), Times::default());
    let Opened::Store(store) = opened.map_err(PruneError::Open)? else {
        return Err(PruneError::NotAStore);
    };
    let (plan, references) = planned(&store, wish).ok_or(PruneError::NotAStore)?;
    (outcome.kept, outcome.blocked) = (plan.kept, plan.blocked);
    for candidate in plan.remove {
        if !retention::is_held(host, temp, token) {
            outcome.blocked = Some("somebody took the retention lock away".to_owned());
            break;
        }
        let removal = Removal { host, temp, store: &store, token, references: &references, wish };
        match removal.run(&candidate) {
            Ok(None) => {
                each(&candidate);
                outcome.removed.push(candidate);
            }
            Ok(Some(keep)) => {
                let Candidate { run_id, path, .. } = candidate;
                outcome.kept.push(Kept { run_id, path, keep });
            }
            Err(Failed::One(e)) => {
                let (run, why) = (&candidate.run_id, with_causes(&e));
                outcome.problems.push(format!("{run}: {why}; the next removal tries again"));
            }
            Err(Failed::All(e)) => {
                outcome.stopped = Some(e);
                break;
            }
        }
    }
    Ok(outcome)
}

/// What a failed removal concerns.
enum Failed {
    /// Its run alone.
    One(WriteError),
    /// Every removal: there is no room, or the note cannot be written.
    All(WriteError),
}

impl Failed {
    fn of(e: WriteError) -> Self {
        if e.is_capacity() { Self::All(e) } else { Self::One(e) }
    }
}

struct Removal<'a, 'h, H: WriteHost> {
    host: &'a H,
    temp: &'a H::Dir,
    store: &'a Store<'h, H>,
    token: &'a str,
    references: &'a References,
    wish: &'a Wish,
}

impl<H: WriteHost> Removal<'_, '_, H> {
    /// Steps 4 to 9; the reason when the run stays.
    /// Spec: RS-RET-13.
    fn run(&self, candidate: &Candidate) -> Result<Option<Keep>, Failed> {
        let (host, runs) = (self.host, &self.store.runs_roots[candidate.root]);
        let name = OsStr::new(&candidate.run_id);
        let changed = |what: &str| Some(Keep::new("changed", what));
        let Ok(dir) = host.open_dir_at(&runs.dir, name) else {
            return Ok(changed("it was gone"));
        };
        let Ok(before) = entries(host, &dir) else { return Ok(changed("it cannot be listed")) };
        if let Some(keep) = self.judge_again(runs, name) {
            return Ok(Some(keep));
        }
        let uuid = lock_dir::uuid(host);
        let mut note = RemovalNote {
            runs_root: runs.label.clone(),
            run_id: candidate.run_id.clone(),
            aside: format!("{}{uuid}", layout::DELETING_RUN_PREFIX),
            phase: Phase::Moving,
        };
        let own = lock_dir::ensure(host, self.temp, layout::OWN_DIR).map_err(Failed::All)?;
        let notes = lock_dir::ensure(host, &own, layout::PRUNE_DIR).map_err(Failed::All)?;
        let file = format!("{uuid}.json");
        let durable = || Options::new(Durability::Durable);
        let options = durable().target(Target::New);
        atomic::replace(host, &notes, &file, note.text().as_bytes(), &options)
            .map_err(Failed::All)?;
        let fail =
            |step, e| Failed::of(WriteError::of(host, &runs.dir, step, &candidate.run_id, e));
        if let Err(e) = host.rename_new(&runs.dir, name, &runs.dir, note.aside.as_ref()) {
            let _ = host.unlink(&notes, file.as_ref());
            return Err(fail(Step::Rename, e));
        }
        host.sync_dir(&runs.dir).map_err(|e| fail(Step::FlushDirectory, e))?;
        if let Some(keep) = self.objection(runs, candidate, &note.aside, &before) {
            host.rename_new(&runs.dir, note.aside.as_ref(), &runs.dir, name)
                .map_err(|e| fail(Step::Rename, e))?;
            host.sync_dir(&runs.dir).map_err(|e| fail(Step::FlushDirectory, e))?;
            let _ = host.unlink(&notes, file.as_ref());
            return Ok(Some(keep));
        }
        note.phase = Phase::Deleting;
        atomic::replace(host, &notes, &file, note.text().as_bytes(), &durable())
            .map_err(Failed::All)?;
        delete(host, &runs.dir, &note.aside).map_err(|e| fail(Step::Remove, e))?;
        // A note of a run that is gone is removed by the next removal.
        let _ = host.unlink(&notes, file.as_ref());
        Ok(None)
    }

    fn judge_again(&self, runs: &RunsRoot<H>, name: &OsStr) -> Option<Keep> {
        let waits = match retention::waited_for(self.host, self.temp) {
            Ok(waits) => waits,
            Err(why) => return Some(Keep::new("blocked", why)),
        };
        let Some(snapshot) = self.store.snapshot(runs, name, None, Depth::Full) else {
            return Some(Keep::new("changed", "it was gone"));
        };
        let extra = Extra::of(self.store, runs, name);
        let known = (&*waits, Some(self.references));
        judged(self.store, runs, &snapshot, extra, known, self.wish)
    }

    /// Why a run that was set aside has to go back.
    fn objection(
        &self,
        runs: &RunsRoot<H>,
        candidate: &Candidate,
        aside: &str,
        before: &[(OsString, Stat)],
    ) -> Option<Keep> {
        let (host, run_id) = (self.host, candidate.run_id.as_str());
        let now = host.open_dir_at(&runs.dir, aside.as_ref()).and_then(|dir| entries(host, &dir));
        if !now.is_ok_and(|now| are_same(before, &now)) {
            return Some(Keep::new("changed", "something in it changed meanwhile"));
        }
        match retention::waited_for(host, self.temp) {
            Err(why) => return Some(Keep::new("blocked", why)),
            Ok(waits) if waits.iter().any(|run| run == run_id) => {
                return Some(Keep::new("waited-for", "somebody has armed a wait for it"));
            }
            Ok(_) => {}
        }
        let marked = match host.open_dir_at(&runs.dir, layout::ACTIVE_INDEX.as_ref()) {
            Ok(index) => may_be_there(host, &index, run_id),
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        };
        if marked {
            return Some(Keep::new("active-marker", "the active index names it, or may"));
        }
        let mut problems = Vec::new();
        let locks = Locks::load(host, self.temp, runs.owner, &mut problems);
        if let Some(why) = closed_area(&problems, &locks) {
            return Some(Keep::new("blocked", why));
        }
        let source = |id: &str| id == run_id;
        let held = !locks.slots_of(run_id).is_empty()
            || !locks.leases_of(run_id).is_empty()
            || locks
                .leases
                .iter()
                .any(|l| l.owner.value().is_some_and(|o| source(&o.source_run_id)))
            || locks.slots.iter().any(|s| {
                let owner = s.owner.value().and_then(|owner| owner.source_run_id.as_deref());
                owner.is_some_and(source)
            });
        if held {
            return Some(Keep::new("held", "a slot or a lease is held for it"));
        }
        let wanted = Wanted { run_id, session: None, now_ms: host.now_ms() };
        let new_result = runs.results.iter().any(|index| {
            let root = &self.store.results_roots[*index];
            let found = root.of_run(host, &wanted, runs.owner, false);
            let is_new =
                |r: &ResultFact| r.fact.value().is_none_or(|view| view.delivered_at_ms.is_none());
            found.unread || found.results.iter().any(is_new)
        });
        if new_result {
            return Some(Keep::new("unread", "a result of it came meanwhile"));
        }
        let lost = !retention::is_held(host, self.temp, self.token);
        lost.then(|| Keep::new("blocked", "somebody took the retention lock away"))
    }
}

/// Deletes a directory for good.
fn delete<H: WriteHost>(host: &H, runs: &H::Dir, aside: &str) -> io::Result<()> {
    lock_dir::remove_deep_tree(host, runs, aside)?;
    host.sync_dir(runs)
}

/// The names of the notes of removals, sorted.
fn notes<H: Host>(host: &H, temp: &H::Dir) -> Vec<String> {
    let path = [layout::OWN_DIR, layout::PRUNE_DIR];
    let Ok(Some(dir)) = directory::open_path(host, temp, &path) else { return Vec::new() };
    let (mut names, _) = read::listed(host, &dir, limits::MAX_SMALL_RECORDS, |entry| {
        let name = entry.name.to_str()?;
        (name.ends_with(".json") && !name.starts_with('.')).then(|| name.to_owned())
    });
    names.sort_unstable();
    names
}

/// Step 2, for one note. The error is a sentence: the other removals go on.
fn finish_leftover<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    name: &str,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let told = |what: &str, e: &dyn fmt::Display| format!("removal note {name}: {what}: {e}");
    let path = [layout::OWN_DIR, layout::PRUNE_DIR];
    let Ok(Some(dir)) = directory::open_path(host, temp, &path) else { return Ok(()) };
    let limit = limits::SIDECAR_MAX_BYTES;
    let owner = read::ExpectedOwner(None);
    let note = match read::document_unlisted(host, &dir, name, limit, owner, RemovalNote::read).0 {
        FileFact::Present(note, _) => note,
        FileFact::Absent => return Ok(()),
        _ => return Err(told("it cannot be read", &"nothing was done with it")),
    };
    // Names inside a file are checked before they lead anywhere.
    let is_root = note.runs_root == layout::RUNS_DIR
        || layout::fallback_pid(&note.runs_root, layout::RUNS_DIR).is_some();
    if !is_root || RunId::parse(&note.run_id).is_err() || !layout::is_deleting_run(&note.aside) {
        return Err(told("it leads elsewhere", &"nothing was done with it"));
    }
    let runs = match host.open_dir_at(temp, note.runs_root.as_ref()) {
        Ok(runs) => runs,
        Err(e) => return Err(told("its runs root cannot be opened", &e)),
    };
    if host.stat_at(&runs, note.aside.as_ref()).is_ok() {
        match note.phase {
            Phase::Deleting => {
                delete(host, &runs, &note.aside).map_err(|e| told("not deleted", &e))?;
                outcome.finished.push(note.run_id.clone());
            }
            Phase::Moving => {
                host.rename_new(&runs, note.aside.as_ref(), &runs, note.run_id.as_ref())
                    .and_then(|()| host.sync_dir(&runs))
                    .map_err(|e| told("not put back", &e))?;
                outcome.put_back.push(note.run_id.clone());
            }
        }
    } else {
        // Whatever was done with it may not be flushed yet.
        host.sync_dir(&runs).map_err(|e| told("not flushed", &e))?;
    }
    host.unlink(&dir, name.as_ref()).map_err(|e| told("not removed", &e))
}
