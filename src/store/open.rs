//! Opening a store, or a part of one, from whatever path somebody named.
//!
//! Steps: look at the path without following a link in its last part → tell what it is (a run
//! directory, a runs root, a temp root) by name first and by content second → open handles for what
//! belongs to it → read slots and leases. Everything below is opened relative to these handles.
//!
//! What goes wrong with a part of the store becomes a [`StoreProblem`], not an error: the runs that
//! can be read are read.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::protocol::evidence::Times;
use crate::protocol::finding::{self, FindingKind};
use crate::protocol::{layout, limits};

use super::host::{DirEntry, FileKind, Host, Stat};
use super::locks::Locks;
use super::read::{self, ExpectedOwner};
use super::results::{self, ResultsRoot};

/// Something wrong with the store itself.
#[derive(Clone, Debug)]
pub struct StoreProblem {
    /// Kind of finding.
    pub kind: &'static FindingKind,
    /// Path relative to the store, or the path asked for.
    pub path: String,
    /// The statement.
    pub text: String,
}

/// A directory of run directories.
pub struct RunsRoot<H: Host> {
    pub(super) dir: H::Dir,
    /// Absolute path.
    pub path: PathBuf,
    /// Path relative to the store, such as `async-subagent-runs`.
    pub label: String,
    /// The name of a fallback root (facts L-6), when this is one.
    pub split: Option<String>,
    /// The root run, when the runs in it are nested.
    pub nested_under: Option<String>,
    pub(super) active_index: Option<H::Dir>,
    /// Names in the active index when the store was opened; `None` when they are too many to keep.
    pub(super) marked: Option<HashSet<OsString>>,
    pub(super) results: Vec<usize>,
    /// Whether its own area of results is there and could not be entered.
    pub(super) results_unread: bool,
    pub(super) owner: ExpectedOwner,
}

/// An open store, or the part of one that was asked for.
pub struct Store<'h, H: Host> {
    pub(super) host: &'h H,
    /// Instant of the whole look, ms since the epoch.
    pub now_ms: i64,
    /// Times of the judgement.
    pub times: Times,
    /// Absolute path of the temp root, or of the runs root where there is no temp root.
    pub root: PathBuf,
    /// Runs roots: the usual one, its fallback siblings, then one per nested root run.
    pub runs_roots: Vec<RunsRoot<H>>,
    pub(super) results_roots: Vec<ResultsRoot<H>>,
    /// Whether a results root is there, or may be, that could not be entered.
    pub(super) results_unread: bool,
    pub(super) temp_dir: Option<H::Dir>,
    /// The root run to which a look at one run is confined.
    pub(super) only_root_run: Option<String>,
    /// Slots and leases.
    pub locks: Locks,
    /// What is wrong with the store itself.
    pub problems: Vec<StoreProblem>,
    /// Whether the store's name is of the D family.
    pub is_dm: bool,
    pub(super) owner: ExpectedOwner,
}

/// What a path turned out to be.
pub enum Opened<'h, H: Host> {
    /// A whole store or one runs root.
    Store(Store<'h, H>),
    /// One run directory: its store, the index of its runs root, its name.
    Run(Store<'h, H>, usize, OsString),
}

/// How the three kinds of path are told apart.
enum Shape {
    Run,
    RunsRoot,
    TempRoot,
}

impl<'h, H: Host> Store<'h, H> {
    /// Opens whatever `path` names.
    ///
    /// # Errors
    /// The system's error when the path does not exist or is no directory.
    pub fn open(host: &'h H, path: &Path, now_ms: i64, times: Times) -> io::Result<Opened<'h, H>> {
        let path = host.absolute(path);
        let stat = host.stat(&path)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        // Whatever stands in a runs root, also what cannot be entered, stands for a run and gets its report.
        let in_runs_root = path.parent().filter(|parent| is_runs_root_name(parent));
        if stat.kind != FileKind::Directory {
            return match in_runs_root {
                Some(runs) => Self::open_run(host, runs, name, now_ms, times),
                None if stat.kind == FileKind::Link => {
                    // The caller chose the path, so a link in it is followed, and said.
                    let dir = host.open_dir(&path)?;
                    let stat = host.stat_dir(&dir)?;
                    Self::open_by_shape(host, &path, dir, &stat, now_ms, times)
                }
                None => Err(io::ErrorKind::NotADirectory.into()),
            };
        }
        match (host.open_dir(&path), in_runs_root) {
            (Ok(dir), _) => Self::open_by_shape(host, &path, dir, &stat, now_ms, times),
            (Err(_), Some(runs)) => Self::open_run(host, runs, name, now_ms, times),
            (Err(e), None) => Err(e),
        }
    }

    fn open_by_shape(
        host: &'h H,
        path: &Path,
        dir: H::Dir,
        stat: &Stat,
        now_ms: i64,
        times: Times,
    ) -> io::Result<Opened<'h, H>> {
        match shape_of(host, &dir, path) {
            Shape::Run => {
                let name = path.file_name().unwrap_or_default().to_owned();
                let parent = path.parent().unwrap_or(path);
                Self::open_run(host, parent, name, now_ms, times)
            }
            Shape::RunsRoot => Ok(Opened::Store(Self::open_runs_root(host, path, now_ms, times)?)),
            Shape::TempRoot => {
                let mut store = Self::empty(host, path, stat, now_ms, times);
                store.check_root(stat, path);
                store.add_temp_root(dir);
                Ok(Opened::Store(store))
            }
        }
    }

    fn empty(host: &'h H, root: &Path, stat: &Stat, now_ms: i64, times: Times) -> Self {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        Self {
            host,
            now_ms,
            times,
            root: root.to_owned(),
            runs_roots: Vec::new(),
            results_roots: Vec::new(),
            results_unread: false,
            temp_dir: None,
            only_root_run: None,
            locks: Locks::default(),
            problems: Vec::new(),
            is_dm: name.starts_with("dm-subagents-"),
            owner: ExpectedOwner::of(stat, host.system().uid),
        }
    }

    fn problem(
        &mut self,
        kind: &'static FindingKind,
        path: impl Into<String>,
        text: impl Into<String>,
    ) {
        self.problems.push(StoreProblem { kind, path: path.into(), text: text.into() });
    }

    /// A root that others can change may hold anything. Reading goes on; the answer says so.
    fn check_root(&mut self, stat: &Stat, path: &Path) {
        let shown = path.to_string_lossy().into_owned();
        if stat.kind == FileKind::Link {
            self.problem(
                &finding::ROOT_UNSAFE,
                shown.clone(),
                "the store's path is a symbolic link",
            );
        }
        if let Some(what) = self.owner.objection(stat) {
            self.problem(&finding::ROOT_UNSAFE, shown.clone(), format!("the store is {what}"));
        }
        if stat.mode & 0o022 != 0 && stat.mode & 0o1000 == 0 {
            let text = format!("other users may write to the store (mode {:04o})", stat.mode);
            self.problem(&finding::ROOT_UNSAFE, shown, text);
        }
    }

    /// Opens the store around one runs root, which is its only one.
    fn open_runs_root(host: &'h H, path: &Path, now_ms: i64, times: Times) -> io::Result<Self> {
        let nested = nested_root(path);
        let temp = match &nested {
            Some((temp, _)) => Some(temp.clone()),
            None if is_runs_root_name(path) => path.parent().map(Path::to_owned),
            None => None,
        };
        let opened = temp.and_then(|temp| {
            let dir = host.open_dir(&temp).ok()?;
            let stat = host.stat_dir(&dir).ok()?;
            Some((temp, dir, stat))
        });
        let dir = host.open_dir(path)?;
        let stat = host.stat_dir(&dir)?;
        let (root, root_stat) = match &opened {
            Some((temp, _, temp_stat)) => (temp.as_path(), temp_stat),
            None => (path, &stat),
        };
        let mut store = Self::empty(host, root, root_stat, now_ms, times);
        store.check_root(&stat, path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((_, temp_dir, _)) = opened {
            store.add_results(&temp_dir);
            store.locks = Locks::load(host, &temp_dir, store.owner, &mut store.problems);
            store.temp_dir = Some(temp_dir);
        }
        let label = match &nested {
            Some((_, root_run)) => format!("{}/{root_run}", layout::NESTED_RUNS_DIR),
            None => name.clone(),
        };
        let split = layout::fallback_pid(&name, layout::RUNS_DIR).map(|_| name);
        store.add_runs_root(dir, path.to_owned(), label, split, nested.map(|(_, run)| run));
        Ok(store)
    }

    fn open_run(
        host: &'h H,
        runs: &Path,
        name: OsString,
        now_ms: i64,
        times: Times,
    ) -> io::Result<Opened<'h, H>> {
        let mut store = Self::open_runs_root(host, runs, now_ms, times)?;
        let root_run = store.runs_roots[0].nested_under.clone();
        store.only_root_run = Some(root_run.unwrap_or_else(|| name.to_string_lossy().into_owned()));
        Ok(Opened::Run(store, 0, name))
    }

    fn add_temp_root(&mut self, dir: H::Dir) {
        let host = self.host;
        let mut roots = Vec::new();
        let listed = host.list(&dir, &mut |entry| {
            let is_root = |name: &&str| {
                *name == layout::RUNS_DIR || layout::fallback_pid(name, layout::RUNS_DIR).is_some()
            };
            roots.extend(entry.name.to_str().filter(is_root).map(str::to_owned));
            ControlFlow::Continue(())
        });
        if let Err(e) = listed {
            self.problem(&finding::DIR_UNREADABLE, "", read::plain(&e));
        }
        // The usual root has the shortest name, so it comes first.
        roots.sort_unstable();
        self.add_results(&dir);
        self.locks = Locks::load(host, &dir, self.owner, &mut self.problems);
        for name in roots {
            match host.open_dir_at(&dir, OsStr::new(&name)) {
                Ok(runs) => {
                    let path = self.root.join(&name);
                    let split = layout::fallback_pid(&name, layout::RUNS_DIR).map(|_| name.clone());
                    if let Some(split) = &split {
                        let text =
                            "a fallback root beside the usual one: one user's runs are split";
                        self.problem(&finding::SPLIT_ROOT, split.clone(), text);
                    }
                    self.add_runs_root(runs, path, name, split, None);
                }
                Err(e) => self.unopened(&dir, &name, &e),
            }
        }
        self.add_nested(&dir);
        self.temp_dir = Some(dir);
    }

    /// Spec: RS-LAYOUT-12.
    fn unopened(&mut self, dir: &H::Dir, name: &str, e: &io::Error) {
        match self.host.stat_at(dir, OsStr::new(name)) {
            Ok(stat) if stat.kind != FileKind::Directory => {
                let text = format!("it is {}; it was not entered", stat.kind.name());
                self.problem(&finding::NOT_PLAIN, name, text);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.problem(&finding::VANISHED, name, "it was gone before it could be read");
            }
            _ => self.problem(&finding::DIR_UNREADABLE, name, read::plain(e)),
        }
    }

    fn add_runs_root(
        &mut self,
        dir: H::Dir,
        path: PathBuf,
        label: String,
        split: Option<String>,
        nested_under: Option<String>,
    ) {
        let host = self.host;
        let active_index = host.open_dir_at(&dir, layout::ACTIVE_INDEX.as_ref()).ok();
        let marked = active_index.as_ref().and_then(|index| names_in(host, index));
        let owner = self.owner;
        let objection = host.stat_dir(&dir).ok().and_then(|stat| owner.objection(&stat));
        if let Some(what) = objection {
            let text = format!("the runs root is {what}");
            self.problem(&finding::ROOT_UNSAFE, label.clone(), text);
        }
        let mut results_unread = false;
        let results = match &nested_under {
            None => (0..self.results_roots.len()).collect(),
            Some(root_run) => {
                let mut opened = Vec::new();
                for root in &self.results_roots {
                    match root.nested(host, root_run) {
                        Ok(root) => opened.push(root),
                        Err(e) => results_unread |= results::is_unread(&e),
                    }
                }
                let first = self.results_roots.len();
                self.results_roots.extend(opened);
                (first..self.results_roots.len()).collect()
            }
        };
        self.runs_roots.push(RunsRoot {
            dir,
            path,
            label,
            split,
            nested_under,
            active_index,
            marked,
            results,
            results_unread,
            owner,
        });
    }

    fn add_results(&mut self, temp: &H::Dir) {
        let host = self.host;
        let mut names = Vec::new();
        let listed = host.list(temp, &mut |entry| {
            if let Some(name) = entry.name.to_str() {
                let is_one = name == layout::RESULTS_DIR
                    || layout::fallback_pid(name, layout::RESULTS_DIR).is_some();
                if is_one {
                    names.push(name.to_owned());
                }
            }
            ControlFlow::Continue(())
        });
        self.results_unread = listed.is_err();
        names.sort_unstable();
        for name in names {
            match ResultsRoot::open(host, temp, &name, name.clone()) {
                Ok(root) => self.results_roots.push(root),
                Err(e) => {
                    self.unopened(temp, &name, &e);
                    self.results_unread = true;
                }
            }
        }
    }

    /// Adds one runs root for each root run that has nested runs.
    fn add_nested(&mut self, temp: &H::Dir) {
        let host = self.host;
        let nested = match host.open_dir_at(temp, layout::NESTED_RUNS_DIR.as_ref()) {
            Ok(nested) => nested,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(e) => return self.unopened(temp, layout::NESTED_RUNS_DIR, &e),
        };
        let (mut names, listed) = read::listed(host, &nested, limits::MAX_SMALL_RECORDS, |entry| {
            entry.name.to_str().filter(|n| !n.starts_with('.')).map(str::to_owned)
        });
        if let Err(e) = listed {
            self.problem(&finding::DIR_UNREADABLE, layout::NESTED_RUNS_DIR, read::plain(&e));
        }
        names.sort_unstable();
        for name in names {
            let label = format!("{}/{name}", layout::NESTED_RUNS_DIR);
            match host.open_dir_at(&nested, OsStr::new(&name)) {
                Ok(dir) => {
                    let path = self.root.join(&label);
                    self.add_runs_root(dir, path, label, None, Some(name));
                }
                Err(e) => {
                    let is_nothing = match host.stat_at(&nested, OsStr::new(&name)) {
                        Ok(stat) => stat.kind == FileKind::Regular,
                        Err(e) => e.kind() == io::ErrorKind::NotFound,
                    };
                    if !is_nothing {
                        let text = format!("it cannot be entered: {}", read::plain(&e));
                        self.problem(&finding::NOT_PLAIN, label, text);
                    }
                }
            }
        }
    }

    /// The host behind the store.
    pub fn host(&self) -> &'h H {
        self.host
    }

    /// The path of the results root of a runs root, below the store; `None` where no store is around it.
    pub(crate) fn results_label(&self, runs: &RunsRoot<H>) -> Option<String> {
        self.temp_dir.as_ref()?;
        if let Some(root_run) = &runs.nested_under {
            return Some(format!("{}/{}/{root_run}", layout::RESULTS_DIR, layout::NESTED_RESULTS));
        }
        // A process that fell back to a sibling fell back with both.
        let pid =
            runs.split.as_deref().and_then(|name| layout::fallback_pid(name, layout::RUNS_DIR));
        let beside = pid.map(|pid| format!("{}-{pid}", layout::RESULTS_DIR));
        let is_there = |label: &String| self.results_roots.iter().any(|r| r.place().1 == label);
        Some(beside.filter(is_there).unwrap_or_else(|| layout::RESULTS_DIR.to_owned()))
    }

    /// Runs that the tool-call indexes of the results name for a tool call, and whether a payload
    /// confirms it. An unconfirmed one needs the run's own status.
    pub fn result_tool_call_runs(&self, tool_call: &str) -> Vec<(String, bool)> {
        let roots = self.results_roots.iter();
        roots
            .flat_map(|root| root.tool_call_runs(self.host, tool_call, self.owner))
            .map(|run| (run.run_id, run.confirmed))
            .collect()
    }

    /// Every result in the store, whether or not its run is there.
    pub fn each_result(
        &self,
        each: &mut dyn FnMut(super::results::ListedResult) -> ControlFlow<()>,
    ) {
        for root in &self.results_roots {
            root.list(self.host, self.now_ms, self.owner, each);
        }
    }
}

/// The names in a directory; `None` when it cannot be listed to its end or has too many.
fn names_in<H: Host>(host: &H, dir: &H::Dir) -> Option<HashSet<OsString>> {
    let mut names = HashSet::new();
    let listed = host.list(dir, &mut |entry| {
        names.insert(entry.name);
        if names.len() <= limits::MAX_SMALL_RECORDS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    (listed.is_ok() && names.len() <= limits::MAX_SMALL_RECORDS).then_some(names)
}

/// Whether the last part of a path is the name of a runs root, or of a fallback of it.
fn is_runs_root_name(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
    name == layout::RUNS_DIR
        || layout::fallback_pid(name, layout::RUNS_DIR).is_some()
        || nested_root(path).is_some()
}

/// The temp root and root run of `…/nested-subagent-runs/<root run>`.
fn nested_root(path: &Path) -> Option<(PathBuf, String)> {
    let parent = path.parent()?;
    if parent.file_name()? != layout::NESTED_RUNS_DIR {
        return None;
    }
    Some((parent.parent()?.to_owned(), path.file_name()?.to_str()?.to_owned()))
}

/// Tells what an open directory is: by its place, then by what is in it.
fn shape_of<H: Host>(host: &H, dir: &H::Dir, path: &Path) -> Shape {
    if is_runs_root_name(path) {
        return Shape::RunsRoot;
    }
    let (mut run_file, mut store_entry, mut index, mut subdirs) = (false, false, false, Vec::new());
    let _ = host.list(dir, &mut |entry| {
        let Some(name) = entry.name.to_str() else { return ControlFlow::Continue(()) };
        run_file |= matches!(
            name,
            layout::STATUS
                | layout::PROOF
                | layout::CANDIDATE
                | layout::EVENTS
                | layout::STARTUP
                | layout::RECOVERY_DESCRIPTOR
                | layout::RUNNER_STDERR_LOG
                | layout::MISSION
        );
        store_entry |= matches!(
            name,
            layout::RUNS_DIR
                | layout::RESULTS_DIR
                | layout::LEASES_DIR
                | layout::CAPACITY_DIR
                | layout::NESTED_RUNS_DIR
        ) || layout::fallback_pid(name, layout::RUNS_DIR).is_some();
        index |= matches!(name, layout::ACTIVE_INDEX | layout::TERMINAL_INDEX);
        if subdirs.len() < 64 && !name.starts_with('.') && entry.kind == Some(FileKind::Directory) {
            subdirs.push(entry.name);
        }
        ControlFlow::Continue(())
    });
    if store_entry {
        return Shape::TempRoot;
    }
    if run_file || path.parent().is_some_and(is_runs_root_name) {
        return Shape::Run;
    }
    if index {
        return Shape::RunsRoot;
    }
    let holds_runs = subdirs.iter().any(|name| {
        host.open_dir_at(dir, name)
            .is_ok_and(|sub| host.stat_at(&sub, layout::STATUS.as_ref()).is_ok())
    });
    if holds_runs {
        return Shape::RunsRoot;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("pi-subagents-") || name.starts_with("dm-subagents-") {
        return Shape::TempRoot;
    }
    // Anything else is looked at as one directory, so that the answer says what it is.
    Shape::Run
}

/// Whether a name in a runs root has a run.
#[derive(Clone, Copy, Debug)]
pub struct RunThere {
    /// Whether there is a `status.json` in it.
    pub has_status: bool,
}

impl<H: Host> RunsRoot<H> {
    /// The open directory.
    pub(crate) fn dir(&self) -> &H::Dir {
        &self.dir
    }

    /// Calls `each` for every name that must have a report: every directory, and whatever stands in
    /// the place of one, but no plain file and nothing that begins with a dot.
    /// Spec: RS-LAYOUT-18, RS-LAYOUT-19.
    ///
    /// # Errors
    /// As the system says.
    pub fn each_name(
        &self,
        host: &H,
        each: &mut dyn FnMut(OsString, Option<FileKind>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.each_entry(host, &mut |entry| each(entry.name, entry.kind))
    }

    /// As [`RunsRoot::each_name`], with all that the listing tells of a name.
    ///
    /// # Errors
    /// As the system says.
    pub fn each_entry(
        &self,
        host: &H,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        host.list(&self.dir, &mut |entry| {
            let bytes = entry.name.as_encoded_bytes();
            if bytes.starts_with(b".") || entry.kind == Some(FileKind::Regular) {
                return ControlFlow::Continue(());
            }
            let kind = match entry.kind {
                Some(kind) => Some(kind),
                // A file system that tells no kinds: ask, so that a plain file is no run.
                None => host.stat_at(&self.dir, &entry.name).ok().map(|stat| stat.kind),
            };
            if kind == Some(FileKind::Regular) {
                return ControlFlow::Continue(());
            }
            each(DirEntry { kind, ..entry })
        })
    }

    /// Names with a report, those that changed last first: at most so many, and whether there are more. The
    /// directory of a run changes whenever a file in it is replaced. Of more than
    /// [`LIST_DIRECTORIES`](limits::LIST_DIRECTORIES) names none is looked at, so that a store of any size
    /// answers at once.
    ///
    /// # Errors
    /// As the system says.
    pub fn newest_names(&self, host: &H, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        let mut names = Vec::new();
        self.each_name(host, &mut |name, _| {
            names.push(name);
            if names.len() > limits::LIST_DIRECTORIES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if names.len() > limits::LIST_DIRECTORIES {
            return Ok((Vec::new(), true));
        }
        let changed = |name: &OsString| host.stat_at(&self.dir, name).map_or(0, |s| s.mtime_ms);
        names.sort_by_cached_key(|name| (std::cmp::Reverse(changed(name)), name.clone()));
        let has_more = names.len() > most;
        names.truncate(most);
        Ok((names, has_more))
    }

    /// Whether a directory of this name is there.
    pub fn has_run(&self, host: &H, name: &OsStr) -> Option<RunThere> {
        let dir = host.open_dir_at(&self.dir, name).ok()?;
        let has_status = host.stat_at(&dir, layout::STATUS.as_ref()).is_ok();
        Some(RunThere { has_status })
    }

    /// Whether anything at all stands at this name.
    pub fn has_name(&self, host: &H, name: &OsStr) -> bool {
        host.stat_at(&self.dir, name).is_ok()
    }
}
