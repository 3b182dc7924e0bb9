//! Results: found by name for one run, or listed for a store.
//!
//! A result of one run is looked up directly, because its names follow from the run and its session;
//! listing the whole area for each run would make a store quadratic. The whole area is listed once,
//! for the store's own answer, so that a result whose run is gone is seen as well.
//! Spec: RS-RESULT-*, facts §3.10.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, OnceLock};

use crate::protocol::evidence::{FileFact, ResultFact};
use crate::protocol::ids::RunId;
use crate::protocol::index_entry::ResultIndexEntry;
use crate::protocol::replay::Replay;
use crate::protocol::result::{ResultPlace, ResultView};
use crate::protocol::{Document, layout, limits, segment};

use super::host::{DirEntry, FileKind, Host, Stat};
use super::read::{self, ExpectedOwner};

/// From this size on a payload is not decoded twice in one look at a store.
const LARGE_BYTES: u64 = 1 << 20;
/// So many of them are kept at most; what is kept of one is small.
const MOST_LARGE: usize = 256;

/// An open results root.
pub struct ResultsRoot<H: Host> {
    dir: H::Dir,
    /// Path relative to the store, for display.
    label: String,
    pending: Option<H::Dir>,
    replay: Option<H::Dir>,
    /// Whether the places for pending ones are there and could not be opened.
    pending_unread: bool,
    /// Whether no payload of any kind was there when somebody first asked.
    bare: OnceLock<bool>,
    /// What the large public payloads said, by name, with the look of each file at that time.
    large: Mutex<HashMap<String, (Stat, FileFact<ResultView>)>>,
    /// Pending payloads that lie under other names than their content gives them, by run.
    strays: OnceLock<Strays>,
}

/// See [`ResultsRoot::find_strays`].
#[derive(Default)]
struct Strays {
    by_run: HashMap<String, Vec<ResultFact>>,
    unread: Unread,
}

/// What could not be looked at of the places for pending payloads.
#[derive(Default)]
struct Unread {
    /// Whether the sessions are not known.
    whole: bool,
    /// Directories of sessions in which something is not known.
    sessions: HashSet<OsString>,
}

/// A result found by listing the area.
#[derive(Clone, Debug)]
pub struct ListedResult {
    /// The stem of the file, or the id inside.
    pub run_id: String,
    /// The fact.
    pub result: ResultFact,
    /// Modification time of the file, ms since the epoch.
    pub mtime_ms: Option<i64>,
    /// Whether a valid replay shows that it was delivered (`RS-RESULT-13`).
    pub replayed: bool,
}

/// Which results are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'w> {
    /// The run.
    pub run_id: &'w str,
    /// Its session, where it is known.
    pub session: Option<&'w str>,
    /// The instant at which a replay must be valid.
    pub now_ms: i64,
}

/// What was found for one run.
pub(super) struct FoundResults {
    /// Payloads and a valid replay.
    pub results: Vec<ResultFact>,
    /// Replays that are evidence of nothing, and why.
    pub unused_replays: Vec<(String, String)>,
    /// Whether a place could not be looked at where one may lie.
    pub unread: bool,
}

impl<H: Host> ResultsRoot<H> {
    /// Opens a results root below an open directory.
    ///
    /// # Errors
    /// The system's; not found where there is none.
    pub(super) fn open(host: &H, parent: &H::Dir, name: &str, label: String) -> io::Result<Self> {
        let dir = host.open_dir_at(parent, name.as_ref())?;
        let pending = host.open_dir_at(&dir, layout::RESULT_PENDING.as_ref());
        let pending_unread = pending.as_ref().is_err_and(is_unread);
        // Without replays a result counts as waiting, and is kept.
        let replay = host.open_dir_at(&dir, layout::COMPLETION_REPLAY.as_ref()).ok();
        let (bare, large, strays) = (OnceLock::new(), Mutex::default(), OnceLock::new());
        let pending = pending.ok();
        Ok(Self { dir, label, pending, replay, pending_unread, bare, large, strays })
    }

    /// Whether the area has neither a public payload nor places for pending ones and replays. Looked
    /// up once: what comes later is what the next look at the store shows.
    pub(super) fn is_bare(&self, host: &H) -> bool {
        *self.bare.get_or_init(|| {
            let mut found = self.pending.is_some() || self.replay.is_some() || self.pending_unread;
            let listed = host.list(&self.dir, &mut |entry| {
                found |= payload_name(&entry).is_some();
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            listed.is_ok() && !found
        })
    }

    /// The open root and its path relative to the store.
    pub(super) fn place(&self) -> (&H::Dir, &str) {
        (&self.dir, &self.label)
    }

    /// Opens the area of the nested runs of one root run.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn nested(&self, host: &H, root_run: &str) -> io::Result<Self> {
        let nested = host.open_dir_at(&self.dir, layout::NESTED_RESULTS.as_ref())?;
        let label = format!("{}/{}/{root_run}", self.label, layout::NESTED_RESULTS);
        Self::open(host, &nested, root_run, label)
    }

    /// The results of one run, pending first: a pending payload is newer than the public one. With
    /// `by_content`, pending payloads that lie under a name that no reader would derive are found too
    /// (`RS-RESULT-03`). Spec: RS-RESULT-01, RS-RESULT-02, RS-SEG-06.
    pub(super) fn of_run(
        &self,
        host: &H,
        wanted: &Wanted<'_>,
        owner: ExpectedOwner,
        by_content: bool,
    ) -> FoundResults {
        let run_id = wanted.run_id;
        let (mut results, mut unread) = (Vec::new(), self.pending_unread);
        let mut look = |dir: &H::Dir, name: &str, place, label: &dyn Fn() -> String| {
            let (fact, stat) = payload(host, dir, name, owner, ResultView::read);
            if place == ResultPlace::Public {
                self.keep_large(name, &fact, stat);
            }
            if fact.is_there() {
                results.push(ResultFact { place, path: label(), fact });
            }
        };
        if let Some(pending) = &self.pending {
            for (session, file) in pending_names(run_id, wanted.session) {
                match host.open_dir_at(pending, session.as_ref()) {
                    Ok(dir) => {
                        let label = || self.pending_label(&session, &file);
                        look(&dir, &file, ResultPlace::Pending, &label);
                    }
                    Err(e) => unread |= is_unread(&e),
                }
            }
        }
        let public = format!("{run_id}.json");
        if public.len() <= limits::NAME_MAX_BYTES {
            let label = || format!("{}/{public}", self.label);
            look(&self.dir, &public, ResultPlace::Public, &label);
        }
        if let Some(session) = wanted.session.filter(|_| by_content) {
            let strays = self.strays.get_or_init(|| self.find_strays(host, owner));
            // A payload of another session is not the run's, whatever run it names (RS-RESULT-04).
            unread |= strays.unread.whole
                || segment::aliases(&session.into(), limits::NAME_MAX_BYTES)
                    .iter()
                    .any(|session| strays.unread.sessions.contains(OsStr::new(session)));
            let own = strays.by_run.get(run_id).into_iter().flatten().filter(|stray| {
                stray.fact.value().is_some_and(|v| v.session_id.as_deref() == Some(session))
                    && results.iter().all(|r: &ResultFact| r.path != stray.path)
            });
            let own: Vec<_> = own.cloned().collect();
            results.splice(0..0, own);
        }
        let mut found = FoundResults { results, unused_replays: Vec::new(), unread };
        self.add_replay(host, wanted, owner, &mut found);
        found
    }

    /// Keeps what a large payload says: a look at a whole store reads the results of every run, and
    /// then lists them all.
    fn keep_large(&self, name: &str, fact: &FileFact<ResultView>, stat: Option<Stat>) {
        let Some(stat) = stat.filter(|stat| stat.bytes >= LARGE_BYTES) else { return };
        if let Ok(mut large) = self.large.lock()
            && large.len() < MOST_LARGE
        {
            large.insert(name.to_owned(), (stat, fact.clone()));
        }
    }

    /// What was kept of a payload, if its file has not changed since.
    fn kept(&self, host: &H, name: &str) -> Option<(FileFact<ResultView>, Option<Stat>)> {
        let large = self.large.lock().ok()?;
        let (then, fact) = large.get(name)?;
        let now = host.stat_at(&self.dir, name.as_ref()).ok()?;
        then.is_same_as(&now).then(|| (fact.clone(), Some(now)))
    }

    fn pending_label(&self, session: &str, file: &str) -> String {
        format!("{}/{}/{session}/{file}", self.label, layout::RESULT_PENDING)
    }

    /// Adds the replay of a run, if it is evidence.
    fn add_replay(
        &self,
        host: &H,
        wanted: &Wanted<'_>,
        owner: ExpectedOwner,
        found: &mut FoundResults,
    ) {
        let Some(replay) = &self.replay else { return };
        let file = segment::percent_encode(wanted.run_id) + ".json";
        if file.len() > limits::NAME_MAX_BYTES {
            return;
        }
        let label = format!("{}/{}/{file}", self.label, layout::COMPLETION_REPLAY);
        let limit = limits::RESULT_MAX_BYTES;
        let (fact, _) = read::document_unlisted(host, replay, &file, limit, owner, |doc| {
            Ok((Replay::read(doc)?, ResultView::read(doc)))
        });
        let (fact, why) = match fact {
            FileFact::Present(read, meta) => {
                let (header, view) = *read;
                match header.problem(wanted.run_id, wanted.session, wanted.now_ms) {
                    None => (FileFact::Present(Box::new(view), meta), None),
                    Some(problem) => (FileFact::Absent, Some(problem.to_string())),
                }
            }
            // A copy that is damaged takes nothing from the result itself.
            FileFact::Damaged(error, _) => (FileFact::Absent, Some(error.to_string())),
            FileFact::Absent => (FileFact::Absent, None),
            FileFact::Unsafe(what) => (FileFact::Unsafe(what), None),
            FileFact::Unreadable(why) => (FileFact::Absent, Some(why)),
        };
        if let Some(why) = why {
            found.unused_replays.push((label, why));
        } else if fact.is_there() {
            found.results.push(ResultFact { place: ResultPlace::Replay, path: label, fact });
        }
    }

    /// Every pending payload that lies under another name than its content gives it. The area holds
    /// what was not delivered yet, so it is small; it is read once per look at the store.
    fn find_strays(&self, host: &H, owner: ExpectedOwner) -> Strays {
        let mut strays: HashMap<String, Vec<ResultFact>> = HashMap::new();
        let mut seen = 0_usize;
        let unread = self.list_pending(host, owner, &mut |session, name, fact, _| {
            seen += 1;
            let named = fact.value().and_then(|v| v.run_id.as_deref().zip(v.session_id.as_deref()));
            if let Some((run, own)) = named {
                let is_own =
                    pending_names(run, Some(own)).any(|(s, file)| s == session && file == name);
                if !is_own {
                    let path = self.pending_label(session, name);
                    let place = ResultPlace::Pending;
                    strays.entry(run.to_owned()).or_default().push(ResultFact {
                        place,
                        path,
                        fact,
                    });
                }
            }
            if seen < limits::MAX_SMALL_RECORDS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        Strays { by_run: strays, unread }
    }

    /// Run ids that the tool-call index files under a tool call, each confirmed by the payload that
    /// its entry leads to, and those that could not be confirmed here: the caller has the status.
    pub(super) fn tool_call_runs(
        &self,
        host: &H,
        tool_call: &str,
        owner: ExpectedOwner,
    ) -> Vec<ToolCallRun> {
        let mut runs = Vec::new();
        let Ok(index) = host.open_dir_at(&self.dir, layout::RESULT_INDEX.as_ref()) else {
            return runs;
        };
        let Ok(calls) = host.open_dir_at(&index, layout::INDEX_TOOL_CALLS.as_ref()) else {
            return runs;
        };
        for call in segment::aliases(&tool_call.into(), limits::NAME_MAX_BYTES) {
            let Ok(dir) = host.open_dir_at(&calls, call.as_ref()) else { continue };
            for name in names(host, &dir) {
                let Some(name) = name.to_str().filter(|n| n.ends_with(".json")) else { continue };
                let limit = limits::SIDECAR_MAX_BYTES;
                let (fact, _) =
                    read::document_unlisted(host, &dir, name, limit, owner, ResultIndexEntry::read);
                let Some(entry) = fact.value() else { continue };
                let wanted =
                    Wanted { run_id: &entry.run_id, session: Some(&entry.session_id), now_ms: 0 };
                let confirmed = RunId::from_entry(&entry.run_id).is_ok()
                    && self.of_run(host, &wanted, owner, false).results.iter().any(|r| {
                        let told = r.fact.value().and_then(|v| v.tool_call_id.as_deref());
                        told == Some(tool_call)
                    });
                runs.push(ToolCallRun { run_id: entry.run_id.clone(), confirmed });
            }
        }
        runs
    }

    /// Every public and pending result, until `each` breaks.
    /// Spec: RS-RESULT-03.
    pub(super) fn list(
        &self,
        host: &H,
        now_ms: i64,
        owner: ExpectedOwner,
        each: &mut dyn FnMut(ListedResult) -> ControlFlow<()>,
    ) {
        if self.list_public(host, now_ms, owner, each).is_break() {
            return;
        }
        self.list_pending(host, owner, &mut |session, name, fact, mtime_ms| {
            let stem = name.strip_suffix(".json").unwrap_or(name);
            // A hashed pending name does not tell its run; only the content does.
            let inside = fact.value().and_then(|v| v.run_id.clone());
            let run_id = inside.unwrap_or_else(|| stem.to_owned());
            let path = self.pending_label(session, name);
            let replayed = self.is_replayed(host, &run_id, &fact, now_ms, owner);
            let result = ResultFact { place: ResultPlace::Pending, path, fact };
            each(ListedResult { run_id, result, mtime_ms, replayed })
        });
    }

    /// Whether a valid replay shows that a payload was delivered.
    fn is_replayed(
        &self,
        host: &H,
        run_id: &str,
        fact: &FileFact<ResultView>,
        now_ms: i64,
        owner: ExpectedOwner,
    ) -> bool {
        let Some(view) = fact.value() else { return false };
        let wanted = Wanted { run_id, session: view.session_id.as_deref(), now_ms };
        let mut found =
            FoundResults { results: Vec::new(), unused_replays: Vec::new(), unread: false };
        self.add_replay(host, &wanted, owner, &mut found);
        found.results.iter().any(|r| r.fact.value().is_some())
    }

    /// Every pending payload: session directory, file name, what it says, its time. Says what could not be looked
    /// at.
    fn list_pending(&self, host: &H, owner: ExpectedOwner, each: &mut EachPending<'_>) -> Unread {
        let mut unread = Unread { whole: self.pending_unread, ..Unread::default() };
        let Some(pending) = &self.pending else { return unread };
        let (sessions, listed) =
            read::listed(host, pending, limits::MAX_SMALL_RECORDS, |entry| Some(entry.name));
        unread.whole |= listed.is_err() || sessions.len() >= limits::MAX_SMALL_RECORDS;
        for name in sessions {
            let dir = match host.open_dir_at(pending, &name) {
                Ok(dir) => dir,
                Err(e) => {
                    unread.sessions.extend(is_unread(&e).then_some(name));
                    continue;
                }
            };
            let session = name.to_string_lossy().into_owned();
            let (mut flow, mut all_read) = (ControlFlow::Continue(()), true);
            let listed = host.list(&dir, &mut |entry| {
                if let Some(name) = payload_name(&entry) {
                    let (fact, stat) = payload(host, &dir, name, owner, ResultView::read);
                    all_read &= !matches!(fact, FileFact::Unreadable(_));
                    if fact.is_there() {
                        flow = each(&session, name, fact, stat.map(|s| s.mtime_ms));
                    }
                }
                flow
            });
            if listed.is_err() || !all_read {
                unread.sessions.insert(name);
            }
            if flow.is_break() {
                // What comes after the bound is as little known as what cannot be entered.
                unread.whole = true;
                break;
            }
        }
        unread
    }

    fn list_public(
        &self,
        host: &H,
        now_ms: i64,
        owner: ExpectedOwner,
        each: &mut dyn FnMut(ListedResult) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let _ = host.list(&self.dir, &mut |entry| {
            let Some(name) = payload_name(&entry) else { return ControlFlow::Continue(()) };
            let kept = self.kept(host, name);
            let (fact, stat) = kept
                .unwrap_or_else(|| payload(host, &self.dir, name, owner, ResultView::read_listed));
            if fact.is_there() {
                let run_id = name.strip_suffix(".json").unwrap_or(name).to_owned();
                let path = format!("{}/{name}", self.label);
                let mtime_ms = stat.map(|s| s.mtime_ms);
                let replayed = self.is_replayed(host, &run_id, &fact, now_ms, owner);
                let result = ResultFact { place: ResultPlace::Public, path, fact };
                flow = each(ListedResult { run_id, result, mtime_ms, replayed });
            }
            flow
        });
        flow
    }
}

/// Takes a pending payload: session directory, file name, what it says, its time in ms.
type EachPending<'e> =
    dyn FnMut(&str, &str, FileFact<ResultView>, Option<i64>) -> ControlFlow<()> + 'e;

/// A run that a tool-call index names.
pub(super) struct ToolCallRun {
    /// The run; not yet checked as a name.
    pub run_id: String,
    /// Whether its payload says so too.
    pub confirmed: bool,
}

/// The directories and files under which a pending payload of a run and session is looked for.
pub(super) fn pending_names(
    run_id: &str,
    session: Option<&str>,
) -> impl Iterator<Item = (String, String)> {
    let file = segment::encode_str(run_id, limits::JSON_STEM_MAX_BYTES) + ".json";
    let sessions = session.map(|s| segment::aliases(&s.into(), limits::NAME_MAX_BYTES));
    sessions.into_iter().flatten().map(move |session| (session, file.clone()))
}

/// Whether an area that was not opened may hold something: a plain file in its place holds nothing, and what is
/// gone does not either.
pub(super) fn is_unread(e: &io::Error) -> bool {
    !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The pending result of the child of a workflow, which lies in a pending area of the run directory itself.
/// Spec: RS-RESULT-01.
pub(super) fn pending_of_child<H: Host>(
    host: &H,
    run_dir: &H::Dir,
    run_id: &str,
    session: Option<&str>,
    owner: ExpectedOwner,
) -> FoundResults {
    let (mut results, mut unread) = (Vec::new(), false);
    match host.open_dir_at(run_dir, layout::RESULT_PENDING.as_ref()) {
        Err(e) => unread = is_unread(&e),
        Ok(pending) => {
            for (session, file) in pending_names(run_id, session) {
                match host.open_dir_at(&pending, session.as_ref()) {
                    Err(e) => unread |= is_unread(&e),
                    Ok(dir) => {
                        let (fact, _) = payload(host, &dir, &file, owner, ResultView::read);
                        let path = format!("{}/{session}/{file}", layout::RESULT_PENDING);
                        let found = ResultFact { place: ResultPlace::Workflow, path, fact };
                        results.extend(found.fact.is_there().then_some(found));
                    }
                }
            }
        }
    }
    FoundResults { results, unused_replays: Vec::new(), unread }
}

fn payload<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    owner: ExpectedOwner,
    view: fn(&Document<'_>) -> ResultView,
) -> (FileFact<ResultView>, Option<Stat>) {
    let limit = limits::RESULT_MAX_BYTES;
    read::document_unlisted(host, dir, name, limit, owner, |doc| Ok(view(doc)))
}

/// The name of an entry that may be a payload.
fn payload_name(entry: &DirEntry) -> Option<&str> {
    let name = entry.name.to_str()?;
    let is_one = !name.starts_with('.')
        && name.ends_with(".json")
        && entry.kind != Some(FileKind::Directory);
    is_one.then_some(name)
}

/// The names in a directory, bounded.
fn names<H: Host>(host: &H, dir: &H::Dir) -> Vec<OsString> {
    read::listed(host, dir, limits::MAX_SMALL_RECORDS, |entry| Some(entry.name)).0
}
