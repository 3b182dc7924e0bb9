//! Indexes, leases and names of a whole store, side by side: what a check needs that no look at one run shows.
//!
//! Theory of operation. Each record of the indexes is read once and told with what it leads to: whether the
//! directory, the payload, the session file is there. Whether that is right is for the role `check` to say;
//! nothing is judged here. Everything is opened by handles, bounded as everywhere, and no link is followed.
//!
//! Ordered steps: the runs roots (both indexes, tool calls, names), the results roots (the three indexes,
//! names), the leases, the temp root. An entry is read before what it leads to is looked at: whoever removes
//! both begins with what the entry leads to, so a removal in between may show an entry without its payload,
//! which is only told when it is a day old; the other order could show it for a payload that was just published.
//!
//! Reads only; a crash leaves nothing. Spec: RS-CHECK-03, RS-CHECK-10 to RS-CHECK-20.

use std::ffi::OsStr;
use std::io;

use crate::protocol::evidence::FileFact;
use crate::protocol::ids::RunId;
use crate::protocol::index_entry::ResultIndexEntry;
use crate::protocol::marker::TerminalEntry;
use crate::protocol::temp_name::TempName;
use crate::protocol::{layout, limits, segment};

use super::host::{FileKind, Host};
use super::lease;
use super::open::{RunsRoot, Store};
use super::read;
use super::results::{self, ResultsRoot};

/// An entry of a terminal index.
#[derive(Clone, Debug)]
pub struct TerminalFound {
    /// Path relative to the store.
    pub path: String,
    /// The directory that it lies in: the encoded session.
    pub session_dir: String,
    /// The content.
    pub fact: FileFact<TerminalEntry>,
    /// The path that the run would have, for an entry with a usable id.
    pub run_path: Option<String>,
}

/// A tool call of the active index, and a run that it leads to.
#[derive(Clone, Debug)]
pub struct AliasFound {
    /// Path relative to the store.
    pub path: String,
    /// Whether the active index has a marker of that run.
    pub is_marked: bool,
}

/// Which of the result indexes an entry lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultIndex {
    /// By session.
    Session,
    /// By run.
    Run,
    /// By tool call.
    ToolCall,
}

/// An entry of a result index.
#[derive(Clone, Debug)]
pub struct EntryFound {
    /// Path relative to the store.
    pub path: String,
    /// The results root, relative to the store.
    pub root: String,
    /// Which index it lies in.
    pub index: ResultIndex,
    /// The directory that it lies in; of the index by run the empty text.
    pub dir: String,
    /// Its file name.
    pub name: String,
    /// The content.
    pub fact: FileFact<ResultIndexEntry>,
    /// Whether a payload lies where it leads to, public or pending.
    pub has_payload: bool,
}

/// What stands at the session file of a lease.
#[derive(Clone, Debug)]
pub struct LeaseSession {
    /// Path of the lease, relative to the store.
    pub path: String,
    /// The session file, as its owner saw it.
    pub file: String,
    /// The name that its lease would have now; `None` when there is no such file.
    pub id: Option<String>,
}

/// A name, with an instant that tells its age, ms since the epoch.
#[derive(Clone, Debug)]
pub struct NameFound {
    /// Path relative to the store.
    pub path: String,
    /// Begin of an unfinished replacement, else the time of the file.
    pub at_ms: Option<i64>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Entries of the terminal indexes.
    pub terminal: Vec<TerminalFound>,
    /// Paths of the runs roots that have a terminal index.
    pub indexed_roots: Vec<String>,
    /// Paths of the runs that an active index names.
    pub active: Vec<String>,
    /// Tool calls of the active indexes.
    pub aliases: Vec<AliasFound>,
    /// Entries of the result indexes.
    pub entries: Vec<EntryFound>,
    /// Leases with a readable owner.
    pub leases: Vec<LeaseSession>,
    /// Unfinished replacements outside of run directories.
    pub temps: Vec<NameFound>,
    /// Names that are none of the protocol's.
    pub strange: Vec<NameFound>,
    /// Run directories and results in the middle of their deletion.
    pub deletions: Vec<NameFound>,
    /// Directories that other users may write to: path relative to the store, and mode.
    pub loose: Vec<(String, u32)>,
    /// Directories that are there and were not looked at, or not to their end: path relative to the store, and why.
    pub unread: Vec<(String, String)>,
}

impl<H: Host> Store<'_, H> {
    /// Reads what lies between the runs. See the module's ordered steps.
    pub fn survey(&self) -> Survey {
        let mut look = Look { host: self.host, owner: self.owner, found: Survey::default() };
        for runs in &self.runs_roots {
            look.runs_root(runs);
        }
        for root in &self.results_roots {
            look.results_root(root);
        }
        for lease in &self.locks.leases {
            let Some(owner) = lease.owner.value() else { continue };
            let file = owner.canonical_session_file.clone();
            let id = lease::canonical_id(self.host, file.as_ref()).ok().map(|found| found.id);
            look.found.leases.push(LeaseSession { path: lease.path.clone(), file, id });
        }
        if let Some(temp) = &self.temp_dir {
            look.temp_root(temp);
        }
        look.found
    }

    /// Whether a run of this name has a directory in any runs root.
    pub fn has_run_anywhere(&self, run_id: &str) -> bool {
        RunId::from_entry(run_id).is_ok()
            && self.runs_roots.iter().any(|runs| runs.has_name(self.host, OsStr::new(run_id)))
    }
}

struct Look<'h, H: Host> {
    host: &'h H,
    owner: read::ExpectedOwner,
    found: Survey,
}

impl<H: Host> Look<'_, H> {
    fn runs_root(&mut self, runs: &RunsRoot<H>) {
        let (host, label) = (self.host, &runs.label);
        self.modes(&runs.dir, label);
        self.names(&runs.dir, label, |name, kind| {
            let run = kind != FileKind::Regular && RunId::from_entry(name).is_ok();
            run || layout::is_reserved_in_runs_root(name)
        });
        let index_label = format!("{label}/{}", layout::ACTIVE_INDEX);
        let marked = runs.active_names(host).unwrap_or_default();
        let place = |id: &str| runs.path.join(id).to_string_lossy().into_owned();
        self.found.active.extend(marked.iter().map(|id| place(id)));
        if let Some(index) = self.entered(&runs.dir, layout::ACTIVE_INDEX, &index_label) {
            self.modes(&index, &index_label);
            let label = format!("{index_label}/{}", layout::TOOL_CALLS_DIR);
            for (call, dir) in self.folders_below(&index, layout::TOOL_CALLS_DIR, &label) {
                let label = format!("{label}/{call}");
                for name in self.listed(&dir, &label) {
                    let path = format!("{label}/{name}");
                    let is_marked = marked.binary_search(&name).is_ok();
                    self.found.aliases.push(AliasFound { path, is_marked });
                }
            }
        }
        let label = format!("{label}/{}", layout::TERMINAL_INDEX);
        let Some(index) = self.entered(&runs.dir, layout::TERMINAL_INDEX, &label) else { return };
        self.found.indexed_roots.push(runs.path.to_string_lossy().into_owned());
        self.modes(&index, &label);
        for (session_dir, dir) in self.folders(&index, &label) {
            let label = format!("{label}/{session_dir}");
            self.temps(&dir, &label);
            for name in self.listed(&dir, &label).into_iter().filter(|name| name.ends_with(".json"))
            {
                let fact = self.record(&dir, &name, TerminalEntry::read);
                let id = fact.value().map(|entry| &entry.run_id);
                let run_path = id.filter(|id| RunId::from_entry(id).is_ok()).map(|id| place(id));
                let (path, session_dir) = (format!("{label}/{name}"), session_dir.clone());
                self.found.terminal.push(TerminalFound { path, session_dir, fact, run_path });
            }
        }
    }

    fn results_root(&mut self, root: &ResultsRoot<H>) {
        let (dir, label) = root.place();
        self.modes(dir, label);
        self.names(dir, label, |name, kind| match kind {
            FileKind::Directory => [
                layout::RESULT_PENDING,
                layout::RESULT_INDEX,
                layout::COMPLETION_REPLAY,
                layout::OUTPUT_ARCHIVES,
                layout::NESTED_RESULTS,
            ]
            .contains(&name),
            _ => name.ends_with(".json") && !name.starts_with('.'),
        });
        let pending_label = format!("{label}/{}", layout::RESULT_PENDING);
        for (session, pending) in self.folders_below(dir, layout::RESULT_PENDING, &pending_label) {
            self.temps(&pending, &format!("{pending_label}/{session}"));
        }
        let index_label = format!("{label}/{}", layout::RESULT_INDEX);
        let Some(index) = self.entered(dir, layout::RESULT_INDEX, &index_label) else { return };
        let mut places: Vec<(ResultIndex, &str, String, H::Dir)> = Vec::new();
        for (kind, name) in [
            (ResultIndex::Session, layout::INDEX_SESSIONS),
            (ResultIndex::ToolCall, layout::INDEX_TOOL_CALLS),
        ] {
            let label = format!("{index_label}/{name}");
            let folders = self.folders_below(&index, name, &label).into_iter();
            places.extend(folders.map(|(folder, dir)| (kind, name, folder, dir)));
        }
        let runs_label = format!("{index_label}/{}", layout::INDEX_RUNS);
        if let Some(runs) = self.entered(&index, layout::INDEX_RUNS, &runs_label) {
            places.push((ResultIndex::Run, layout::INDEX_RUNS, String::new(), runs));
        }
        for (index, of, folder, entries) in places {
            let mut label_of = format!("{index_label}/{of}");
            if !folder.is_empty() {
                label_of = format!("{label_of}/{folder}");
            }
            self.modes(&entries, &label_of);
            self.temps(&entries, &label_of);
            for name in
                self.listed(&entries, &label_of).into_iter().filter(|name| name.ends_with(".json"))
            {
                let fact = self.record(&entries, &name, ResultIndexEntry::read);
                let has_payload = fact.value().is_some_and(|entry| self.has_payload(dir, entry));
                self.found.entries.push(EntryFound {
                    path: format!("{label_of}/{name}"),
                    root: label.to_owned(),
                    index,
                    dir: folder.clone(),
                    name,
                    fact,
                    has_payload,
                });
            }
        }
    }

    fn has_payload(&self, results: &H::Dir, entry: &ResultIndexEntry) -> bool {
        let host = self.host;
        let is_there = |dir: &H::Dir, name: &str| host.stat_at(dir, name.as_ref()).is_ok();
        if is_there(results, &entry.file) {
            return true;
        }
        let Ok(pending) = host.open_dir_at(results, layout::RESULT_PENDING.as_ref()) else {
            return false;
        };
        let own = segment::encode_str(&entry.run_id, limits::JSON_STEM_MAX_BYTES) + ".json";
        let sessions = segment::aliases(&(&*entry.session_id).into(), limits::NAME_MAX_BYTES);
        sessions.iter().any(|session| {
            let dir = host.open_dir_at(&pending, session.as_ref());
            dir.is_ok_and(|dir| is_there(&dir, &own) || is_there(&dir, &entry.file))
        })
    }

    fn temp_root(&mut self, temp: &H::Dir) {
        self.names(temp, "", |name, _| is_of_temp_root(name));
        for name in [layout::LEASES_DIR, layout::CAPACITY_DIR] {
            // What cannot be entered here was told when the store was opened.
            let Ok(dir) = self.host.open_dir_at(temp, name.as_ref()) else { continue };
            self.modes(&dir, name);
            for inner in self.listed(&dir, name) {
                if let Ok(folder) = self.host.open_dir_at(&dir, inner.as_ref()) {
                    self.modes(&folder, &format!("{name}/{inner}"));
                }
            }
        }
    }

    /// Names in a directory that are not `known`, and unfinished replacements and deletions there.
    fn names(&mut self, dir: &H::Dir, label: &str, known: impl Fn(&str, FileKind) -> bool) {
        let host = self.host;
        let (names, listed) = read::listed(host, dir, limits::MAX_SMALL_RECORDS, |entry| {
            let name = entry.name.to_string_lossy().into_owned();
            let kind = entry.kind;
            // A run directory is the common case, and its time is nobody's business here.
            let kind =
                kind.or_else(|| host.stat_at(dir, &entry.name).ok().map(|stat| stat.kind))?;
            let deleting = is_deleting(&name);
            (deleting || TempName::parse(&name).is_some() || !known(&name, kind)).then_some(name)
        });
        self.bounded(label, names.len(), listed);
        for name in names {
            let stat = host.stat_at(dir, OsStr::new(&name)).ok().map(|stat| stat.mtime_ms);
            let path = if label.is_empty() { name.clone() } else { format!("{label}/{name}") };
            if is_deleting(&name) {
                self.found.deletions.push(NameFound { path, at_ms: stat });
            } else if let Some(temp) = TempName::parse(&name) {
                self.found.temps.push(NameFound { path, at_ms: temp.at_ms.or(stat) });
            } else {
                self.found.strange.push(NameFound { path, at_ms: stat });
            }
        }
    }

    /// Unfinished replacements and deletions in a directory whose names lead somewhere.
    fn temps(&mut self, dir: &H::Dir, label: &str) {
        self.names(dir, label, |_, _| true);
    }

    fn modes(&mut self, dir: &H::Dir, label: &str) {
        let Ok(stat) = self.host.stat_dir(dir) else { return };
        if stat.mode & 0o022 != 0 && stat.mode & 0o1000 == 0 {
            self.found.loose.push((label.to_owned(), stat.mode));
        }
    }

    fn unread(&mut self, label: &str, why: impl Into<String>) {
        self.found.unread.push((label.to_owned(), why.into()));
    }

    /// Tells of a listing that broke off, or of which a part is all that is looked at.
    fn bounded(&mut self, label: &str, count: usize, listed: io::Result<()>) {
        if let Err(e) = listed {
            self.unread(label, read::plain(&e));
        } else if count >= limits::MAX_SMALL_RECORDS {
            self.unread(label, format!("only {count} names of it are looked at"));
        }
    }

    fn listed(&mut self, dir: &H::Dir, label: &str) -> Vec<String> {
        let name = |entry: super::host::DirEntry| entry.name.to_str().map(str::to_owned);
        let (mut names, listed) = read::listed(self.host, dir, limits::MAX_SMALL_RECORDS, name);
        self.bounded(label, names.len(), listed);
        names.sort_unstable();
        names
    }

    /// A directory of a directory; `None` where there is none, or it cannot be entered, which is told.
    fn entered(&mut self, dir: &H::Dir, name: &str, label: &str) -> Option<H::Dir> {
        match self.host.open_dir_at(dir, name.as_ref()) {
            Ok(inner) => Some(inner),
            Err(e) => {
                if results::is_unread(&e) {
                    self.unread(label, read::plain(&e));
                }
                None
            }
        }
    }

    /// The directories in a directory, by name.
    fn folders(&mut self, dir: &H::Dir, label: &str) -> Vec<(String, H::Dir)> {
        let mut folders = Vec::new();
        for name in self.listed(dir, label) {
            let inner = self.entered(dir, &name, &format!("{label}/{name}"));
            folders.extend(inner.map(|inner| (name, inner)));
        }
        folders
    }

    /// The directories in a directory of a directory; `label` is the path of that one.
    fn folders_below(&mut self, dir: &H::Dir, name: &str, label: &str) -> Vec<(String, H::Dir)> {
        let inner = self.entered(dir, name, label);
        inner.map_or_else(Vec::new, |inner| self.folders(&inner, label))
    }

    fn record<T>(
        &self,
        dir: &H::Dir,
        name: &str,
        decode: fn(&crate::protocol::Document<'_>) -> Result<T, crate::protocol::DecodeError>,
    ) -> FileFact<T> {
        let limit = limits::SIDECAR_MAX_BYTES;
        read::document_unlisted(self.host, dir, name, limit, self.owner, decode).0
    }
}

fn is_deleting(name: &str) -> bool {
    name.starts_with(layout::DELETING_RUN_PREFIX)
        || name.starts_with(layout::DELETING_RESULT_PREFIX)
}

/// Whether a name of a temp root is the protocol's, or is known to be outside of it. Facts §1.2.
fn is_of_temp_root(name: &str) -> bool {
    let known = [
        layout::RUNS_DIR,
        layout::RESULTS_DIR,
        layout::LEASES_DIR,
        layout::CAPACITY_DIR,
        layout::FANOUT_BUDGETS_DIR,
        layout::NESTED_RUNS_DIR,
        layout::NESTED_EVENTS_DIR,
        layout::WAIT_SUBSCRIPTIONS_DIR,
        layout::SUPERVISOR_CHANNELS_DIR,
        layout::RETENTION_LOCK_DIR,
        layout::RETENTION_CURSOR,
        layout::RETENTION_LOG,
        layout::RETENTION_TOMBSTONES_DIR,
        layout::OWN_DIR,
        "chain-runs",
        "artifacts",
        "model-exclusions.json",
    ];
    known.contains(&name)
        || layout::fallback_pid(name, layout::RUNS_DIR).is_some()
        || layout::fallback_pid(name, layout::RESULTS_DIR).is_some()
        || layout::runner_config_run_id(name).is_some()
        || name.starts_with(layout::RETENTION_LOCK_STALE_PREFIX)
        || name.starts_with(layout::RETENTION_LOCK_CANDIDATE_PREFIX)
        || name.starts_with("orca-progress")
}
