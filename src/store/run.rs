//! A run directory from its making to the account of its end: who writes `status.json`, and how surely.
//!
//! Theory of operation. A launcher makes the directory ([`create`]), prepares what the runner needs,
//! starts it, and writes the first status ([`write_first`]), which names the process. From then on
//! everybody changes the status through [`update`]: a patch of members that the author owns, judged
//! against the account that is on disk at that moment. A launch that fails before the runner may
//! proceed ends in [`record_startup_failure`].
//!
//! Ordered steps of [`create`]:
//! 1. make the directory under its own name, which must be free, with mode 0700;
//! 2. flush the runs root. Before anything is put into it: the first status must not be durable in a
//!    directory that a power cut takes away.
//!
//! The directory is made in place and filled after it, instead of being filled under another name and
//! renamed: every other implementation takes any directory of the runs root for a run, so a
//! half-made one of another name would be listed as a run of that name, for ever if its maker dies. A directory
//! without a status is what they all know from every launch (facts CW-1), and name it so.
//!
//! Ordered steps of [`write_first`]: those of [`atomic::replace`] at the level durable, onto a name that
//! must be free. With step 2 above it is three flushes for a new run: status, run directory, runs root.
//!
//! Ordered steps of [`update`]:
//! 1. take the advisory lock of the run, where there is one;
//! 2. read the status, and, where it names no runner instance, proof and candidate for theirs;
//! 3. judge: the members have to be the author's own, and the account one that gives way to the new one
//!    ([`account::may_write`]);
//! 4. replace it as [`sidecar`] does, at the [`level`] of the new text. The level follows the words that
//!    are written, not what the caller takes itself to be doing: one unflushed replacement would undo
//!    an earlier durable one;
//! 5. if nothing had to change and the run has ended, flush the directory: whoever wrote the same
//!    account may have died before its own flush.
//!
//! Ordered steps of [`record_startup_failure`]:
//! 1. ask the status whether it would take the failure. If it is damaged, another run's, or tells an end,
//!    nothing is written: counts of zero beside a run that has begun would hide its writers;
//! 2. the candidate with a zero for each step;
//! 3. the status (updated, or made if there is none).
//!
//! The candidate comes first. A runner may be gone at any moment, and whoever waits for it makes a proof of
//! its end at once: without the counts that proof is `unknown` for ever, and with them it is `observed`,
//! which is true also while the status still says `running` (facts CW-40; RS-START-13).
//!
//! What a crash leaves: no directory, an empty one, or one with a whole status; later the old status or
//! the new one. An empty directory is reported as abandoned before its start and may be removed.
//!
//! Not promised: that a run directory is ever removed; and that an update of another implementation at
//! the same instant is kept (see [`sidecar`]).
//! Spec: RS-RUN-01 to RS-RUN-07, RS-RMW-06, RS-START-13; facts S-1, S-2, §4.8, T-3 to T-14.

use std::cell::Cell;
use std::fmt;
use std::io;

use crate::protocol::account::{self, Author, Recorded};
use crate::protocol::ids::RunId;
use crate::protocol::proof::ProofState;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::written_status::{FirstStatus, StatusPatch};
use crate::protocol::{Document, Open, Raw, layout, limits, written};

use super::advisory::Locks;
use super::atomic::{self, Durability, Options, Step, Target, WriteError};
use super::host::{Part, ReadError, WriteHost};
use super::retry::RetryPolicy;
use super::sidecar::{self, ByMember, Decision, PatchError, Patched};
use super::{candidate, directory};

/// Why a run directory or its first status was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// Something stands at the name: a run directory is used once, so take another id.
    Taken(String),
    /// It could not be written.
    Write(WriteError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(name) => {
                write!(f, "{name} is there already; a run directory is used once, take another id")
            }
            Self::Write(e) => write!(f, "{} could not be made", e.name),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Write(e) = self { Some(e) } else { None }
    }
}

/// Makes the directory of a new run. See the module's ordered steps.
/// Spec: RS-RUN-01, RS-RUN-02, RS-ROLE-05.
///
/// # Errors
/// [`RunError`]; the directory is not there then, except that the error says if it could not be removed.
pub fn create<H: WriteHost>(
    host: &H,
    runs_root: &H::Dir,
    run_id: &RunId,
    retry: &RetryPolicy,
) -> Result<H::Dir, RunError> {
    let name = run_id.as_str();
    let dir = directory::create_new(host, runs_root, name, retry).map_err(|e| {
        let taken = e.source.kind() == io::ErrorKind::AlreadyExists;
        if taken { RunError::Taken(e.name) } else { RunError::Write(e) }
    })?;
    if let Err(e) = host.sync_dir(runs_root) {
        let mut e = WriteError::of(host, runs_root, Step::FlushDirectory, name, e);
        // It is empty and nobody knows of it yet.
        e.cleanup = directory::remove_if_empty(host, runs_root, name).err();
        return Err(RunError::Write(e));
    }
    Ok(dir)
}

/// Writes the first status of a run, which must have none. See the module's ordered steps.
/// Spec: RS-RUN-02, RS-RUN-05.
///
/// # Errors
/// [`RunError`]; there is no status of ours then, unless only the last flush failed.
pub fn write_first<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    status: &FirstStatus<'_>,
) -> Result<(), RunError> {
    write_new(host, run_dir, &status.text())
}

fn write_new<H: WriteHost>(host: &H, run_dir: &H::Dir, text: &str) -> Result<(), RunError> {
    let options = Options::new(Durability::Durable).target(Target::New);
    match atomic::replace(host, run_dir, layout::STATUS, text.as_bytes(), &options) {
        Ok(_) => Ok(()),
        Err(e) if e.is_taken() => Err(RunError::Taken(e.name)),
        Err(e) => Err(RunError::Write(e)),
    }
}

/// The level of a status, by what it says: ordered while the run is active, because the next account
/// catches up; durable for every other word, because nobody may write it again.
/// Spec: RS-RUN-03, RS-DUR-05.
pub fn level(status: &Document<'_>) -> Durability {
    (LEVEL.level)(status.get(LEVEL.key))
}

/// [`level`] for a status that is being patched.
pub(super) const LEVEL: ByMember = ByMember { key: "state", level: level_of };

fn level_of(state: Option<Raw<'_>>) -> Durability {
    let word = state.and_then(|raw| raw.string());
    let state = word.and_then(|word| Open::<RunState>::read(&word).known());
    // A word that is not ours may be an end.
    if state.is_some_and(RunState::is_active) { Durability::Ordered } else { Durability::Durable }
}

/// The status of one run, for those who change it.
#[derive(Debug)]
pub struct StatusPlace<'a, H: WriteHost> {
    /// The host.
    pub host: &'a H,
    /// The run directory.
    pub run_dir: &'a H::Dir,
    /// Its name.
    pub run_id: &'a RunId,
    /// The locks of the runs root, where our own processes are to take turns.
    pub locks: Option<&'a Locks<'a, H>>,
}

/// Changes the status of a run. See the module's ordered steps.
/// Spec: RS-RUN-03, RS-RUN-04, RS-RUN-06, RS-RMW-06.
///
/// # Errors
/// [`PatchError`], with [`PatchError::Refused`] when the account on disk does not give way or a member is
/// not the author's. The status is as it was then, unless only the last flush failed.
pub fn update<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    author: Author<'_>,
    patch: &StatusPatch,
) -> Result<Patched, PatchError> {
    change(place, author, |_| patch.clone())
}

fn change<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    author: Author<'_>,
    wanted: impl Fn(&StatusView) -> StatusPatch,
) -> Result<Patched, PatchError> {
    let StatusPlace { host, run_dir, run_id, locks } = place;
    let _held = locks.map(|locks| sidecar::hold(locks, run_id.as_str())).transpose()?;
    let ended = Cell::new(false);
    let patched = sidecar::patch_at(
        *host,
        run_dir,
        layout::STATUS,
        limits::STATUS_MAX_BYTES,
        // The level of the text counts.
        &Options::new(Durability::Durable),
        Some(LEVEL),
        |doc| {
            let view = StatusView::read(doc);
            ended.set(view.known_state().is_some_and(RunState::is_terminal));
            let beside = match view.overlay_instance() {
                Some(_) => None,
                None => instance_beside(*host, run_dir)?,
            };
            Ok(judge(doc, &view, run_id.as_str(), author, beside.as_deref(), wanted(&view)))
        },
    )?;
    if patched == Patched::Kept && ended.get() {
        host.sync_dir(run_dir).map_err(|e| {
            let e = WriteError::of(*host, run_dir, Step::FlushDirectory, layout::STATUS, e);
            PatchError::Write(e)
        })?;
    }
    Ok(patched)
}

/// Step 3.
fn judge(
    doc: &Document<'_>,
    view: &StatusView,
    run_id: &str,
    author: Author<'_>,
    beside: Option<&str>,
    mut patch: StatusPatch,
) -> Decision {
    if let Some(theirs) = view.run_id.as_deref().filter(|theirs| *theirs != run_id) {
        return Decision::Refuse(format!("it belongs to run {theirs}"));
    }
    if let Some(member) = patch.keys().find(|member| !author.owns(member)) {
        return Decision::Refuse(format!("{member} is not a member that its author may set"));
    }
    let recorded = Recorded::of(view, beside);
    // Where nobody names an instance, whoever runs in this directory is believed: it is used once, and
    // a refusal would lose the only real account.
    let (old, new) = (recorded.state, patch.new_state().or(recorded.state));
    if let Err(why) = new.map_or(Err(account::Refused::UnknownState), |new| {
        account::may_write(&recorded, author, new)
    }) {
        return Decision::Refuse(why.to_string());
    }
    let is_runner = matches!(author, Author::Runner { .. });
    if let Some(end) = old.filter(|old| old.is_outcome())
        && is_runner
        && !recorded.repaired
        && patch.new_state().is_none()
    {
        // News of a run that goes on. Somebody else has told its end for good.
        return Decision::Refuse(account::Refused::Settled(end).to_string());
    }
    if old.is_some_and(RunState::is_outcome) && !recorded.repaired && !is_runner {
        // The same word, told by the run itself: its own text is worth more than one about it.
        return Decision::Keep;
    }
    if let (Author::Runner { instance }, true) = (author, recorded.repaired)
        && !patch.sets("processTerminal")
    {
        // Else the account would still count as one of the repairer.
        let own = written::pending_proof(run_id, instance);
        patch = patch.member("processTerminal", written::indented(&own, 2));
    }
    Decision::Patch(patch.texts(|key| doc.get(key).is_some()))
}

/// The runner instance that proof or candidate name.
fn instance_beside<H: WriteHost>(host: &H, run_dir: &H::Dir) -> Result<Option<String>, PatchError> {
    for name in [layout::PROOF, layout::CANDIDATE] {
        let read = match host.read_at(run_dir, name.as_ref(), Part::All(limits::SIDECAR_MAX_BYTES))
        {
            Ok(read) => read,
            // Nothing is known then of whose account may give way.
            Err(ReadError::Io(e)) => {
                return Err(PatchError::Unreadable(name.to_owned(), super::read::plain(&e)));
            }
            Err(_) => continue,
        };
        let Ok(doc) = Document::from_bytes(&read.bytes) else { continue };
        let named = doc.get("runnerProcessInstanceId").and_then(|raw| raw.string());
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            return Ok(Some(named.into_owned()));
        }
    }
    Ok(None)
}

/// A launch that failed before its runner could begin. Facts §4.8.
#[derive(Clone, Copy, Debug)]
pub struct StartupFailure<'a> {
    /// The instance that the launcher chose for the runner.
    pub instance_id: &'a str,
    /// The owning session.
    pub session_id: Option<&'a str>,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// What went wrong, for people.
    pub message: &'a str,
}

/// Records that a launch failed, before the runner is ended. See the module's ordered steps. `author` is the
/// launcher, or a runner that was let in and could not begin.
///
/// A status that cannot be rewritten is left as it is, and nothing is written then.
/// Spec: RS-RUN-07, RS-START-13.
///
/// # Errors
/// [`PatchError`] of the first file that could not be written; the status is not touched then when it
/// was the candidate. The same call again goes on from what is there.
pub fn record_startup_failure<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    author: Author<'_>,
    failure: &StartupFailure<'_>,
) -> Result<(), PatchError> {
    let steps = steps_of_a_failure(place, author)?;
    let run_id = place.run_id.as_str();
    candidate::record_failed_start(place.host, place.run_dir, run_id, failure.instance_id, steps)?;
    fail_status(place, author, failure)
}

/// Asks the status whether it would take the failure, and for the number of steps.
fn steps_of_a_failure<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    author: Author<'_>,
) -> Result<usize, PatchError> {
    let StatusPlace { host, run_dir, run_id, .. } = place;
    let beside = instance_beside(*host, run_dir)?;
    let steps = Cell::new(1);
    let options = Options::new(Durability::Durable);
    let limit = limits::STATUS_MAX_BYTES;
    let asked = sidecar::patch(*host, run_dir, layout::STATUS, limit, &options, |doc| {
        if let Some(why) = doc.read_only_reason() {
            return Decision::Refuse(why.to_owned());
        }
        let view = StatusView::read(doc);
        steps.set(view.steps.len().max(1));
        let failed = StatusPatch::empty().state(RunState::Failed);
        match judge(doc, &view, run_id.as_str(), author, beside.as_deref(), failed) {
            Decision::Refuse(why) => Decision::Refuse(why),
            Decision::Keep | Decision::Patch(_) => Decision::Keep,
        }
    });
    match asked {
        Ok(_) | Err(PatchError::Absent(_)) => Ok(steps.get()),
        Err(e) => Err(e),
    }
}

fn fail_status<H: WriteHost>(
    place: &StatusPlace<'_, H>,
    author: Author<'_>,
    failure: &StartupFailure<'_>,
) -> Result<(), PatchError> {
    let now_ms = place.host.now_ms();
    let run_id = place.run_id.as_str();
    let proof = written::indented(&written::not_started_proof(run_id, failure.instance_id), 2);
    let text = |text: &str| written::string(text);
    let wanted = |view: &StatusView| {
        let mut patch = StatusPatch::empty().member("runId", text(run_id));
        if let Some(id) = failure.session_id {
            patch = patch.member("sessionId", text(id));
        }
        if let Some(id) = failure.completion_owner_id {
            patch = patch.member("completionOwnerId", text(id));
        }
        patch = patch.state(RunState::Failed).member("lastUpdate", now_ms.to_string());
        patch = patch.error(failure.message);
        // A proof of an end that was made meanwhile says more than that nothing began.
        let overlay = view.overlay.as_ref().and_then(|read| read.as_ref().ok());
        let is_final = |state| matches!(state, ProofState::Observed | ProofState::Unknown);
        if !overlay.is_some_and(|proof| is_final(proof.state)) {
            patch = patch.member("processTerminal", proof.clone());
        }
        patch
    };
    match change(place, author, wanted) {
        Err(PatchError::Absent(_)) => {}
        other => return other.map(drop),
    }
    let members = wanted(&StatusView::default()).texts(|_| false);
    let empty = Document::parse("{}").expect("an object");
    match write_new(place.host, place.run_dir, &written::rebuilt(&empty, &[], &members)) {
        Ok(()) => Ok(()),
        // The runner came in between; its text is kept.
        Err(RunError::Taken(_)) => change(place, author, wanted).map(drop),
        Err(RunError::Write(e)) => Err(PatchError::Write(e)),
    }
}
