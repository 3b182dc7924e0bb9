//! One run, read as of one moment.
//!
//! Ordered steps of a look at one run directory:
//! 1. open the directory by its name, following no link;
//! 2. list it once, so that only files that exist are opened;
//! 3. read `status.json` first, then everything else. Writers end with the status (result → status →
//!    proof → overlay), so what is read after the status is at least as new as the status: a result
//!    that the status speaks of is seen. The other order could show a terminal status without it;
//! 4. look at `status.json` again: if it was replaced meanwhile, start over, a bounded number of
//!    times;
//! 5. ask for the process; if the run says active and its process is gone, start over once more with
//!    the process known to be gone. Nothing that it wrote can be missed then. Asking first and reading
//!    once could take a run for orphaned that wrote its end between the two.
//!
//! Steps 1, 2 and the beginning of 3 may have been taken for several runs ahead ([`ahead`](super::ahead)); whoever starts
//! over takes them again.
//!
//! A crash of the reader at any step leaves nothing. Spec: RS-READ-06, RS-READ-14.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::candidate::Candidate;
use crate::protocol::config::RunnerConfig;
use crate::protocol::event::{self, EventSummary};
use crate::protocol::evidence::{FileFact, RunEvidence, StderrTail, TempFacts};
use crate::protocol::layout::{self, RunEntry};
use crate::protocol::process::{Liveness, Presence, RecordedProcess};
use crate::protocol::proof::{Proof, ProofState};
use crate::protocol::result::{ResultPlace, ResultView};
use crate::protocol::startup::{ControlMessage, StartupMessage};
use crate::protocol::status::StatusView;
use crate::protocol::temp_name::TempName;
use crate::protocol::{DecodeError, Document, limits};

use super::ahead::{Ahead, Early, Refused, Seen, Why};
use super::host::{FileKind, FileRead, Host, Part, Stat};
use super::listing::{Listing, text_of};
use super::open::{RunsRoot, Store};
use super::read::{self, ExpectedOwner};
use super::results::{self, Wanted};
use super::{control, identity, keepers};

/// How much of each run is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Everything, for a full report.
    Full,
    /// What verdict and flags need; short tails, no texts.
    Row,
}

/// One run as found.
#[derive(Debug)]
pub struct Snapshot {
    /// What is known.
    pub evidence: RunEvidence,
    /// The directory's path.
    pub path: PathBuf,
    /// Ids of runs that belong to this one: asynchronous children of a workflow.
    pub children: Vec<String>,
}

/// Where one look is taken, and how deep.
struct LookAt<'l, H: Host> {
    runs: &'l RunsRoot<H>,
    dir: &'l H::Dir,
    depth: Depth,
}

impl<H: Host> Store<'_, H> {
    /// Looks at one run directory. `None` when the name is not there (any more).
    ///
    /// `name` is one component of the runs root; `kind` is what a listing said of it, if it did.
    pub fn snapshot(
        &self,
        runs: &RunsRoot<H>,
        name: &OsStr,
        kind: Option<FileKind>,
        depth: Depth,
    ) -> Option<Snapshot> {
        self.snapshot_with(runs, (name, kind), depth, None)
    }

    /// As [`Store::snapshot`], with what [`Store::read_ahead`] gave for the same name.
    pub fn snapshot_with(
        &self,
        runs: &RunsRoot<H>,
        (name, kind): (&OsStr, Option<FileKind>),
        depth: Depth,
        ahead: Option<&mut Ahead<H::Dir>>,
    ) -> Option<Snapshot> {
        let evidence = self.blank(runs, text_of(name).into_owned());
        let path = joined(&runs.path, name);
        // Filled in its place: it is large, and there is one for every run of a list.
        let mut snapshot = Snapshot { evidence, path, children: Vec::new() };
        let e = &mut snapshot.evidence;
        let mut entered;
        let ahead = match ahead {
            Some(ahead) => ahead,
            None => match self.enter(runs, name, kind) {
                Ok(plain) => {
                    entered = plain;
                    &mut entered
                }
                Err(Refused { seen: Seen { mtime_ms, mode }, why }) => {
                    (e.dir_mtime_ms, e.dir_mode) = (mtime_ms, mode);
                    match why {
                        Why::Gone => return None,
                        Why::Unsafe(what) => e.unsafe_things.push((String::new(), what)),
                        Why::Unreadable(what) => e.status = FileFact::Unreadable(what),
                    }
                    return Some(snapshot);
                }
            },
        };
        let Seen { mtime_ms, mode } = ahead.seen;
        (e.dir_mtime_ms, e.dir_mode) = (mtime_ms, mode);
        let look = LookAt { runs, dir: &ahead.dir, depth };
        self.look_at(&look, ahead.early.take(), e);
        snapshot.children = children_of(&snapshot.evidence);
        Some(snapshot)
    }

    /// Fills evidence that knows nothing yet.
    fn look_at(&self, at: &LookAt<'_, H>, early: Option<Early>, e: &mut RunEvidence) {
        let (runs, dir, depth) = (at.runs, at.dir, at.depth);
        self.stable_pass(at, early, e);
        self.add_lives(e);
        let pid = |e: &RunEvidence| e.status.value().and_then(|s| s.pid);
        if says_it_goes_on(e) && e.life.word.is_gone() {
            let again = self.anew(runs, e);
            let before = std::mem::replace(e, again);
            self.stable_pass(at, None, e);
            // The same process is known to be gone; another one needs its own look.
            if pid(e) == pid(&before) {
                e.life = before.life;
                e.startup_life = before.startup_life;
            } else {
                self.add_lives(e);
            }
        }
        // Whether a pending proof can still come is a note of a full report.
        let awaits = depth == Depth::Full
            && e.proof.value().is_some_and(|proof| proof.state == ProofState::Pending);
        if awaits || !e.slots.is_empty() || says_it_goes_on(e) && e.life.word.is_gone() {
            e.keepers = keepers::of(self.host, dir, &e.run_id);
        }
        self.add_children(runs, e);
        if depth == Depth::Full {
            self.add_artifacts(e);
        }
    }

    fn blank(&self, runs: &RunsRoot<H>, run_id: String) -> RunEvidence {
        let (slots, leases) = (self.locks.slots_of(&run_id), self.locks.leases_of(&run_id));
        // Filled in place: it is large, and there is one for every run of a list.
        let mut e = RunEvidence::empty(run_id, self.now_ms);
        e.times = self.times;
        (e.slots, e.leases) = (slots, leases);
        e.results_unread = self.results_unread || runs.results_unread;
        e.split_root.clone_from(&runs.split);
        e.is_nested = runs.nested_under.is_some();
        e.is_dm_store = self.is_dm;
        e
    }

    /// Of some evidence what was known before the first pass.
    fn anew(&self, runs: &RunsRoot<H>, e: &RunEvidence) -> RunEvidence {
        let (dir_mtime_ms, dir_mode) = (e.dir_mtime_ms, e.dir_mode);
        RunEvidence { dir_mtime_ms, dir_mode, ..self.blank(runs, e.run_id.clone()) }
    }

    /// Passes until the status did not change under one, at most [`limits::SNAPSHOT_RETRIES`] times.
    fn stable_pass(&self, at: &LookAt<'_, H>, mut early: Option<Early>, e: &mut RunEvidence) {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let status_stat = self.one_pass(at, early.take(), e);
            if at.depth == Depth::Row && is_settled(e) {
                return;
            }
            let now = self.host.stat_at(at.dir, layout::STATUS.as_ref()).ok();
            let same = match (&status_stat, &now) {
                (Some(then), Some(now)) => then.is_same_as(now),
                (None, None) => true,
                // A damaged or unsafe status has no handle to compare; its presence is what counts.
                (None, Some(_)) => e.status.is_there(),
                (Some(_), None) => false,
            };
            if same || attempt > limits::SNAPSHOT_RETRIES {
                e.unstable = !same;
                return;
            }
            *e = self.anew(at.runs, e);
        }
    }

    /// One pass over the directory; gives how the status looked when it was read.
    fn one_pass(
        &self,
        at: &LookAt<'_, H>,
        early: Option<Early>,
        e: &mut RunEvidence,
    ) -> Option<Stat> {
        let (host, runs, dir, depth) = (self.host, at.runs, at.dir, at.depth);
        let owner = runs.owner;
        let Early { listing, status, proof } = early.unwrap_or_else(|| Early::of(host, dir));
        let look = Look { host, dir, owner, listing: &listing, unsafe_things: RefCell::default() };
        let status_stat;
        (e.status, e.proof, status_stat) = look.status_and_proof(status, proof);
        let side = limits::SIDECAR_MAX_BYTES;
        e.candidate =
            look.document(&RunEntry::Candidate, layout::CANDIDATE, side, Candidate::read).0;
        let start = limits::STARTUP_MAX_BYTES;
        let startup = |doc: &Document<'_>| Ok(StartupMessage::read(doc));
        e.startup = look.document(&RunEntry::Startup, layout::STARTUP, start, startup).0;
        let control = |doc: &Document<'_>| Ok(ControlMessage::read(doc));
        e.ack = look.document(&RunEntry::Ack, layout::STARTUP_ACK, start, control).0;
        e.confirm = look.document(&RunEntry::Confirm, layout::STARTUP_CONFIRM, start, control).0;
        e.proceed = look.document(&RunEntry::Proceed, layout::STARTUP_PROCEED, start, control).0;
        // A proven end is told by the last lines; what has not ended may have begun long ago.
        let ended =
            e.status.value().and_then(StatusView::known_state).is_some_and(|s| s.is_terminal());
        let short = depth == Depth::Row && ended && e.proof.value().is_some();
        (e.events, e.events_mode) = look.events(short);
        for (entry, name) in [
            (RunEntry::Control, layout::CONTROL_DIR),
            (RunEntry::AppendRequests, layout::APPEND_REQUESTS_DIR),
        ] {
            if let Some(Some(kind)) =
                listing.kind(&entry).filter(|k| k.is_some_and(|k| k != FileKind::Directory))
            {
                look.note_unsafe(name, read::describe(kind));
            }
        }
        e.unsafe_things.append(&mut look.unsafe_things.into_inner());
        // Also what is not read here: whoever reads it by name would follow it.
        for (name, kind) in &listing.strange {
            if !e.unsafe_things.iter().any(|(known, _)| known == name) {
                e.unsafe_things.push((name.clone(), read::describe(*kind)));
            }
        }
        e.has_protocol_files = listing.known;
        e.truncated = listing.truncated;
        let session = e.status.value().and_then(|s| s.session_id.clone());
        let settled = depth == Depth::Row && is_settled(e);
        for index in &runs.results {
            let root = &self.results_roots[*index];
            let wanted =
                Wanted { run_id: &e.run_id, session: session.as_deref(), now_ms: e.now_ms };
            // What is waiting for nobody any more needs no look, where nothing waits at all.
            if settled && root.is_bare(host) {
                continue;
            }
            let found = root.of_run(host, &wanted, owner, depth == Depth::Full);
            e.results.extend(found.results);
            e.unused_replays.extend(found.unused_replays);
            e.results_unread |= found.unread;
        }
        if listing.has(&RunEntry::WorkflowPending) {
            let session = session.as_deref();
            let found = results::pending_of_child(host, dir, &e.run_id, session, owner);
            e.results.extend(found.results);
            e.results_unread |= found.unread;
        }
        if listing.has(&RunEntry::WorkflowResult) {
            let limit = limits::RESULT_MAX_BYTES;
            let (fact, _) =
                read::document_unlisted(host, dir, layout::WORKFLOW_RESULT, limit, owner, |doc| {
                    Ok(ResultView::read(doc))
                });
            let path = layout::WORKFLOW_RESULT.to_owned();
            e.results.push(crate::protocol::evidence::ResultFact {
                place: ResultPlace::Workflow,
                path,
                fact,
            });
        }
        let state = e.status.value().and_then(StatusView::known_state);
        let open = state.is_none_or(|s| s.is_active());
        if let Some(index) = &runs.active_index {
            e.marker.index_exists = true;
            // A run that has ended gets no marker any more, so one that had none when the store was
            // opened needs no look.
            let name = OsStr::new(&e.run_id);
            if open || runs.marked.as_ref().is_none_or(|marked| marked.contains(name)) {
                let stat = host.stat_at(index, name).ok();
                // A directory of that name is no marker (RS-INDEX-02).
                let marker = stat.filter(|stat| stat.kind == FileKind::Regular);
                e.marker.marker_mtime_ms = marker.map(|stat| stat.mtime_ms);
            }
        }
        if open {
            for name in &listing.output_logs {
                let stat = host.stat_at(dir, OsStr::new(name));
                e.output_bytes += stat.map_or(0, |s| s.bytes);
            }
            let logs = [
                (RunEntry::Stdout, layout::RUNNER_STDOUT_LOG),
                (RunEntry::Stderr, layout::RUNNER_STDERR_LOG),
            ];
            e.has_runner_logs = logs.iter().any(|(entry, name)| {
                listing.has(entry) && host.stat_at(dir, OsStr::new(name)).is_ok_and(|s| s.bytes > 0)
            });
            e.config_left = self.has_config(&e.run_id);
            if e.config_left && depth == Depth::Full {
                e.config = self.config(&e.run_id);
            }
        }
        if listing.has(&RunEntry::Control) || listing.has(&RunEntry::AppendRequests) {
            e.control = control::facts(host, dir, owner, depth == Depth::Full);
        }
        let proven = e.proof.value().is_some();
        if depth == Depth::Full && listing.may_open(&RunEntry::Stderr) && (open || !proven) {
            e.stderr = stderr_tail(host, dir, owner);
        }
        e.temp = temp_facts(host, dir, e, &listing, owner);
        e.foreign_names = listing.foreign;
        status_stat
    }

    fn has_config(&self, run_id: &str) -> bool {
        let name = layout::runner_config_name(run_id);
        name.len() <= limits::NAME_MAX_BYTES
            && self
                .temp_dir
                .as_ref()
                .is_some_and(|dir| self.host.stat_at(dir, name.as_ref()).is_ok())
    }

    /// The configuration that a runner has not taken up. Its prompts are not kept.
    fn config(&self, run_id: &str) -> FileFact<RunnerConfig> {
        let Some(dir) = &self.temp_dir else { return FileFact::Absent };
        let name = layout::runner_config_name(run_id);
        let limit = limits::CONFIG_MAX_BYTES;
        let read = |doc: &Document<'_>| Ok(RunnerConfig::read(doc));
        read::document_unlisted(self.host, dir, &name, limit, self.owner, read).0
    }

    /// Judges the processes that the records name.
    fn add_lives(&self, e: &mut RunEvidence) {
        let life = e.process().map(|record| identity::judge(self.host, &record));
        if let Some(life) = life {
            e.life = life;
        }
        let startup_pid = e.startup.value().and_then(|m| m.pid);
        if let Some(pid) = startup_pid.filter(|_| e.life.word == Liveness::NotRecorded) {
            let at = e.startup.meta().map(|m| m.mtime_ms);
            let record = RecordedProcess {
                pid: Some(pid),
                host: e.leases.first().map(|l| &*l.owner.hostname),
                first_named_ms: at,
                last_write_ms: at,
                ..RecordedProcess::default()
            };
            e.startup_life = Some(identity::judge(self.host, &record));
        }
    }

    /// Whether what a resume needs is there now. Only looked at, never opened. Spec: RS-READ-09.
    fn add_artifacts(&self, e: &mut RunEvidence) {
        let Some(s) = e.status.value() else { return };
        if s.known_state().is_none_or(|state| state.is_active()) {
            return;
        }
        let exists = |path: &str, kind: FileKind| {
            let path = std::path::Path::new(path);
            path.is_absolute() && self.host.stat(path).is_ok_and(|stat| stat.kind == kind)
        };
        let session = s
            .resume_session_file()
            .or_else(|| e.candidate.value().and_then(|c| c.session_file.as_deref()));
        let found = session.map(|f| f.ends_with(".jsonl") && exists(f, FileKind::Regular));
        let cwd = s.cwd.as_deref().map(|dir| exists(dir, FileKind::Directory));
        e.session_file_exists = found;
        e.cwd_exists = cwd;
    }
}

/// Whether the run says that it has not come to its end, or says nothing that is known.
fn says_it_goes_on(e: &RunEvidence) -> bool {
    let Some(status) = e.status.value() else { return true };
    status.known_state().is_none_or(|s| s.is_active() || status.ended_at_ms.is_none())
}

/// Whether the run is over for good: an end that an observer has proven is the last thing that is
/// written about a run, so a row of it needs no second look.
fn is_settled(e: &RunEvidence) -> bool {
    let ended = e.status.value().and_then(StatusView::known_state).is_some_and(|s| s.is_terminal());
    ended && e.proof.value().is_some_and(|proof| proof.state == ProofState::Observed)
}

/// A path and a name below it, in one allocation.
fn joined(path: &Path, name: &OsStr) -> PathBuf {
    let mut whole = PathBuf::with_capacity(path.as_os_str().len() + 1 + name.len());
    whole.push(path);
    whole.push(name);
    whole
}

/// Ids of the asynchronous children that a workflow's steps name. Spec: RS-STATUS-19.
fn children_of(e: &RunEvidence) -> Vec<String> {
    let steps = e.status.value().map(|s| s.steps.as_slice()).unwrap_or_default();
    let named = steps.iter().filter_map(|step| step.run_id.clone());
    named.filter(|id| *id != e.run_id).take(limits::MAX_STEPS).collect()
}

/// One look at the files of one directory.
struct Look<'l, H: Host> {
    host: &'l H,
    dir: &'l H::Dir,
    owner: ExpectedOwner,
    listing: &'l Listing,
    unsafe_things: RefCell<Vec<(String, String)>>,
}

impl<H: Host> Look<'_, H> {
    fn note_unsafe(&self, name: &str, what: String) {
        self.unsafe_things.borrow_mut().push((name.to_owned(), what));
    }

    /// The status, then the proof, and how the status looked when it was read. The proof is read while the text
    /// of the status is at hand: nearly always it is the same as the copy in there, which has been decoded.
    fn status_and_proof(
        &self,
        early_status: Option<FileRead>,
        early_proof: Option<FileRead>,
    ) -> (FileFact<StatusView>, FileFact<Arc<Proof>>, Option<Stat>) {
        let (mut proof, mut early_proof) = (None, early_proof);
        let (status, stat) = self.file(&RunEntry::Status, layout::STATUS, |name| {
            let whole = || read::whole(self.host, self.dir, name, limits::STATUS_MAX_BYTES);
            let decode = |doc: &Document<'_>| {
                let view = StatusView::read(doc);
                let known = |bytes: &[u8]| view.proof_like_overlay(doc, bytes);
                proof = Some(self.proof(early_proof.take(), &known));
                Ok(view)
            };
            read::decoded(early_status.map_or_else(whole, Ok), self.owner, |_| None, decode)
        });
        (status, proof.unwrap_or_else(|| self.proof(early_proof, &|_| None)), stat)
    }

    fn proof(
        &self,
        early: Option<FileRead>,
        known: &dyn Fn(&[u8]) -> Option<Arc<Proof>>,
    ) -> FileFact<Arc<Proof>> {
        self.file(&RunEntry::Proof, layout::PROOF, |name| {
            let whole = || read::whole(self.host, self.dir, name, limits::SIDECAR_MAX_BYTES);
            let decode = |doc: &Document<'_>| Proof::read(doc).map(Arc::new);
            read::decoded(early.map_or_else(whole, Ok), self.owner, known, decode)
        })
        .0
    }

    fn document<T>(
        &self,
        entry: &RunEntry,
        name: &str,
        limit: u64,
        decode: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
    ) -> (FileFact<T>, Option<Stat>) {
        self.file(entry, name, |name| {
            read::document(self.host, self.dir, name, limit, self.owner, decode)
        })
    }

    /// What `read` makes of a file that is there and no other thing by what the listing tells.
    fn file<T>(
        &self,
        entry: &RunEntry,
        name: &str,
        read: impl FnOnce(&str) -> (FileFact<T>, Option<Stat>),
    ) -> (FileFact<T>, Option<Stat>) {
        let Some(kind) = self.listing.kind(entry) else { return (FileFact::Absent, None) };
        let (fact, stat) = match kind.filter(|k| *k != FileKind::Regular) {
            // Told by the listing: a pipe or device is not even opened.
            Some(kind) => (FileFact::Unsafe(read::describe(kind)), None),
            None => read(name),
        };
        if let FileFact::Unsafe(what) = &fact {
            self.note_unsafe(name, what.clone());
        }
        (fact, stat)
    }

    /// The summary of the log, or of its last lines, and its permission bits.
    fn events(&self, short: bool) -> (Option<EventSummary>, u32) {
        let Some(kind) = self.listing.kind(&RunEntry::Events) else { return (None, 0) };
        if let Some(kind) = kind.filter(|k| *k != FileKind::Regular) {
            self.note_unsafe(layout::EVENTS, read::describe(kind));
            return (None, 0);
        }
        let tail = if short { limits::EVENTS_ROW_TAIL_BYTES } else { limits::EVENTS_TAIL_BYTES };
        match read::bytes::<H, ()>(
            self.host,
            self.dir,
            layout::EVENTS,
            Part::Tail(tail),
            self.owner,
        ) {
            Ok(read) => {
                let mut summary = event::summarize(&read.bytes, read.from_start);
                // A row reads less than a report; what is `truncated` must not depend on that.
                summary.tail_only = read.stat.bytes > limits::EVENTS_TAIL_BYTES;
                (Some(summary), read.stat.mode)
            }
            Err(FileFact::Unsafe(what)) => {
                self.note_unsafe(layout::EVENTS, what);
                (None, 0)
            }
            Err(_) => (None, 0),
        }
    }
}

pub(super) fn stderr_tail<H: Host>(
    host: &H,
    dir: &H::Dir,
    owner: ExpectedOwner,
) -> Option<StderrTail> {
    let part = Part::Tail(limits::STDERR_TAIL_BYTES);
    let read = read::bytes::<H, ()>(host, dir, layout::RUNNER_STDERR_LOG, part, owner).ok()?;
    let text = String::from_utf8_lossy(&read.bytes);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(limits::STDERR_TAIL_LINES);
    let kept = lines[first..].join("\n");
    let skip = kept.chars().count().saturating_sub(limits::STDERR_TAIL_CHARS);
    let cut = !read.from_start || first > 0 || skip > 0;
    Some(StderrTail { text: kept.chars().skip(skip).collect(), cut })
}

/// How many leftovers are looked at one by one; the rest is only counted.
const TEMPS_LOOKED_AT: usize = 256;

/// Whether a replacement may still be completed: it was begun a moment ago, and a process has the number of
/// its writer. The number may be another's by now; then the file is left over a moment later.
/// Spec: RS-FLAG-22.
fn is_under_way<H: Host>(host: &H, temp: &TempName, now_ms: i64) -> bool {
    let (Some(pid), Some(at_ms)) = (temp.pid.and_then(|pid| i64::try_from(pid).ok()), temp.at_ms)
    else {
        return false;
    };
    let is_fresh = (0..=limits::REPLACEMENT_MS).contains(&now_ms.saturating_sub(at_ms));
    is_fresh
        && (1..=i64::from(i32::MAX)).contains(&pid)
        && host.process(pid).presence == Presence::Present
}

fn temp_facts<H: Host>(
    host: &H,
    dir: &H::Dir,
    e: &RunEvidence,
    listing: &Listing,
    owner: ExpectedOwner,
) -> TempFacts {
    // Of many the first are asked; so many are under way nowhere.
    let temps: Vec<_> = listing
        .temps
        .iter()
        .enumerate()
        .filter(|(i, (_, temp))| *i >= TEMPS_LOOKED_AT || !is_under_way(host, temp, e.now_ms))
        .map(|(_, temp)| temp)
        .collect();
    let mut facts = TempFacts { count: temps.len() as u64, ..TempFacts::default() };
    for (name, _) in temps.iter().take(TEMPS_LOOKED_AT) {
        facts.measured += 1;
        facts.bytes += host.stat_at(dir, OsStr::new(name)).map_or(0, |s| s.bytes);
    }
    let written = e.status.value().and_then(StatusView::last_write_ms);
    let mut newer: Vec<_> = temps
        .into_iter()
        .filter(|(_, temp)| {
            [layout::STATUS, layout::PROOF, layout::CANDIDATE].iter().any(|t| temp.target.is(t))
        })
        .filter(|(_, temp)| match (temp.at_ms, written) {
            (Some(at), Some(written)) => at > written,
            _ => true,
        })
        .collect();
    newer.sort_unstable_by_key(|(_, temp)| std::cmp::Reverse(temp.at_ms));
    // Only a whole document is worth anything to a later repair; a torn one is mere litter.
    for (name, _) in newer.into_iter().take(16) {
        let (fact, _) =
            read::document_unlisted(host, dir, name, limits::STATUS_MAX_BYTES, owner, |_| Ok(()));
        if fact.value().is_some() {
            facts.newer_than_target.push(name.clone());
        }
    }
    facts
}
