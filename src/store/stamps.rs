//! What proves that a run has not changed since somebody read it: looks at names, and no file is opened.
//!
//! Theory of operation. Every file of a run that counts is replaced by a rename or is appended to. A rename
//! shows in the directory; what is appended shows in the size of the file. So a run is as it was if its
//! directory is the same one with the same stamps, and so are the few files that are written in place by
//! somebody. Beside the run directory its results decide, each by a name that follows from run and session
//! ([`Store::result_places`]); the payloads that wait under other names, and the index of the sessions, are
//! covered as a whole ([`Store::waiting_areas`]).
//!
//! Stamps are taken *before* what they are to vouch for is read: a change in between then shows the next time.
//! A clock has ticks, so a stamp that is younger than [`FRESH_MS`] vouches for nothing: a second change within
//! the same tick would leave no trace. Reads only. Spec: RS-REC-42, RS-REC-43.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::protocol::{layout, segment};

use super::host::{FileKind, Host, Stat};
use super::open::{RunsRoot, Store};
use super::results::pending_names;

/// How old a stamp must be to vouch for anything, in ms. Some file systems count in steps of two seconds.
pub(crate) const FRESH_MS: i64 = 3_000;

/// How the directory of a run and the files in it that somebody may write in place looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStamps {
    dir: Stat,
    files: [Option<Stat>; 3],
}

/// Files that a writer may change without a rename: an editor the first two, everybody the log.
const IN_PLACE: [&str; 3] = [layout::STATUS, layout::PROOF, layout::EVENTS];

impl RunStamps {
    /// Whether nothing has changed between two looks.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.dir.is_same_as(&other.dir)
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|(one, other)| is_same(one.as_ref(), other.as_ref()))
    }

    /// Whether any of it is too young to vouch for anything. `now_ms` is the instant before it was taken.
    pub(crate) fn is_fresh(&self, now_ms: i64) -> bool {
        is_fresh(&self.dir, now_ms) || self.files.iter().flatten().any(|s| is_fresh(s, now_ms))
    }

    /// The time of the last change of content, in ms since the epoch.
    pub(crate) fn newest_ms(&self) -> i64 {
        let files = self.files.iter().flatten().map(|stat| stat.mtime_ms);
        files.fold(self.dir.mtime_ms, i64::max)
    }
}

/// Whether two looks at a name, which may not have been there, are of the same unchanged thing.
pub(crate) fn is_same(one: Option<&Stat>, other: Option<&Stat>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same_as(other) && one.is_numbered(),
        _ => false,
    }
}

/// Whether a look is too young to vouch for anything. `now_ms` is the instant before it was taken.
pub(crate) fn is_fresh(stat: &Stat, now_ms: i64) -> bool {
    let changed_ms = i64::try_from(stat.stamp_ns.1 / 1_000_000).unwrap_or(i64::MAX);
    // A stamp that is ahead of the clock vouches for nothing either.
    stat.mtime_ms.max(changed_ms) > now_ms.saturating_sub(FRESH_MS)
}

impl<H: Host> Store<'_, H> {
    /// How a run looks now; `None` when there is no directory of this name.
    pub(crate) fn run_stamps(&self, runs: &RunsRoot<H>, name: &OsStr) -> Option<RunStamps> {
        let dir = self.host.stat_at(&runs.dir, name).ok()?;
        if dir.kind != FileKind::Directory || !dir.is_numbered() {
            return None;
        }
        let path = runs.path.join(name);
        let files = IN_PLACE.map(|name| self.host.stat(&path.join(name)).ok());
        Some(RunStamps { dir, files })
    }

    /// Every path, below the store, at which a result of the run is looked up by its name.
    pub(crate) fn result_places(
        &self,
        runs: &RunsRoot<H>,
        run_id: &str,
        session: Option<&str>,
    ) -> Vec<String> {
        let mut places = Vec::new();
        for index in &runs.results {
            let (_, label) = self.results_roots[*index].place();
            let replay = segment::percent_encode(run_id);
            places.push(format!("{label}/{run_id}.json"));
            places.push(format!("{label}/{}/{replay}.json", layout::COMPLETION_REPLAY));
            let pending = pending_names(run_id, session);
            places.extend(pending.map(|(session, file)| {
                format!("{label}/{}/{session}/{file}", layout::RESULT_PENDING)
            }));
        }
        places
    }

    /// Looks at a path below the store. Its parts may be links, which nobody who reads results follows: then it
    /// seems to be there, and vouches for nothing.
    pub(crate) fn stat_below(&self, path: &str) -> Option<Stat> {
        self.host.stat(&self.root.join(path)).ok()
    }

    /// The directories in which results wait, and those of the index by session: path below the store, and look.
    pub(crate) fn waiting_areas(&self) -> Vec<(String, Stat)> {
        let mut areas = Vec::new();
        for root in &self.results_roots {
            let (dir, label) = root.place();
            self.area(dir, label, &[layout::RESULT_PENDING], &mut areas);
            self.area(dir, label, &[layout::RESULT_INDEX, layout::INDEX_SESSIONS], &mut areas);
        }
        areas.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        areas
    }

    fn area(&self, results: &H::Dir, label: &str, names: &[&str], areas: &mut Vec<(String, Stat)>) {
        let opened = super::directory::open_path(self.host, results, names);
        let Ok(Some(dir)) = opened else { return };
        let label = format!("{label}/{}", names.join("/"));
        let mut inner = Vec::new();
        // One that cannot be listed has no stamps, and a later look that can differs.
        let _ = self.host.list(&dir, &mut |entry| {
            inner.push(entry.name);
            ControlFlow::Continue(())
        });
        areas.extend(self.host.stat_dir(&dir).ok().map(|stat| (label.clone(), stat)));
        for name in inner {
            let stat = self.host.stat_at(&dir, &name).ok();
            areas.extend(stat.map(|stat| (format!("{label}/{}", name.to_string_lossy()), stat)));
        }
    }

    /// Whether a slot or lease names the run.
    pub(crate) fn is_held_for(&self, run_id: &str) -> bool {
        self.locks.names(run_id)
    }

    /// What the whole of a store adds to the judgement of each of its runs.
    pub(crate) fn surroundings(&self) -> Vec<(PathBuf, (u64, u64))> {
        let of_runs = self.runs_roots.iter().map(|runs| (&runs.dir, runs.path.clone()));
        let of_results = self.results_roots.iter().map(|root| {
            let (dir, label) = root.place();
            (dir, self.root.join(label))
        });
        let id = |dir: &H::Dir| self.host.stat_dir(dir).map_or((0, 0), |stat| stat.id);
        of_runs.chain(of_results).map(|(dir, path)| (path, id(dir))).collect()
    }

    /// Whether an area of results is there that could not be entered.
    pub(crate) fn has_unread_results(&self) -> bool {
        self.results_unread
    }
}

impl<H: Host> RunsRoot<H> {
    /// Whether the active index named the run when the store was opened; `None` where that was not kept.
    pub(crate) fn is_marked(&self, name: &OsStr) -> Option<bool> {
        if self.active_index.is_none() {
            return Some(false);
        }
        self.marked.as_ref().map(|marked| marked.contains(name))
    }
}
