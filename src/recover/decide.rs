//! What may be done with one run: the rules, from its evidence alone.
//!
//! Theory of operation. [`end_of`] asks the questions of the decision table of chapter 16 in its order. The
//! first reason to leave a run alone is told; where there is none, one of three things is done about its end:
//! it follows its result, it is closed as failed, or a proven end is completed. What is held and left over is
//! decided on its own ([`may_remove`], and the verdicts of slots and leases), with the run as it will be.
//!
//! Unknown is never dead: only a process that is demonstrably gone from this host lets anything be done.
//! Spec: RS-REC-01 to RS-REC-08.

use crate::protocol::diagnose::{Fate, fate, slot_verdict, unfit};
use crate::protocol::evidence::{FileFact, ObserverFact, ResultFact, RunEvidence, SlotFact};
use crate::protocol::open::{Open, words};
use crate::protocol::process::Liveness;
use crate::protocol::proof::ProofState;
use crate::protocol::repair::Cause;
use crate::protocol::startup::StartupState;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::temp_name::TempName;
use crate::protocol::verdict::{Diagnosis, Flag, Verdict};
use crate::protocol::{DecodeError, Document, Raw, layout, limits};

words! {
    /// What is done.
    ActionKind {
        /// A run whose runner is gone, and left no result, ends as failed.
        CloseAsFailed = "close-as-failed",
        /// A run whose runner is gone follows the result that it left.
        AdoptResult = "adopt-result",
        /// What follows from a proof is made: overlay, event, the active marker goes.
        CompleteEnd = "complete-end",
        /// An ended run is put into the terminal index, or taken out of the active one.
        IndexRun = "index-run",
        /// An active run is put into the active index.
        AddMarker = "add-marker",
        /// A pending result is made public, or its index entry made.
        PublishResult = "publish-result",
        /// A capacity slot is freed.
        FreeSlot = "free-slot",
        /// A session lease is set aside.
        FreeLease = "free-lease",
        /// The configuration of a runner that is gone is set aside.
        RemoveConfig = "remove-config",
        /// Unfinished replacements of writers that are gone are set aside.
        RemoveLitter = "remove-litter",
        /// A status that cannot be read is set aside.
        SetAsideStatus = "set-aside-status",
    }
}

/// What is done beyond the rules, because somebody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a run must have been quiet, in ms.
    pub grace_ms: i64,
    /// Whether the slots of runs that were given up are freed (facts K-30).
    pub abandoned_slots: bool,
    /// Whether a queued run is closed whose recorded process is gone.
    pub close_queued: bool,
    /// Whether a status that cannot be read is set aside, where nothing else contradicts.
    pub set_aside_corrupt: bool,
}

impl Default for Policy {
    fn default() -> Self {
        let (abandoned_slots, close_queued, set_aside_corrupt) = (false, false, false);
        let grace_ms = limits::RECOVERY_GRACE_MS;
        Self { grace_ms, abandoned_slots, close_queued, set_aside_corrupt }
    }
}

impl Policy {
    /// Reads a policy: an object with `version` 1 and any of `graceMs`, `abandonedSlots`, `closeQueued` and
    /// `setAsideCorrupt`.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the member that is wrong, or that nobody knows: a misspelt policy must
    /// not pass for a default.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let mut policy = Self::default();
        if doc.get("version").and_then(Raw::integer) != Some(1) {
            return Err(DecodeError::member("version", "the number 1"));
        }
        for (key, raw) in doc.members() {
            let boolean = || raw.boolean().ok_or_else(|| DecodeError::member(key, "a boolean"));
            match key {
                "version" => {}
                "abandonedSlots" => policy.abandoned_slots = boolean()?,
                "closeQueued" => policy.close_queued = boolean()?,
                "setAsideCorrupt" => policy.set_aside_corrupt = boolean()?,
                "graceMs" => {
                    let ms = raw.integer().filter(|ms| *ms >= 0);
                    policy.grace_ms = ms.ok_or_else(|| {
                        DecodeError::member(key, "a whole number of milliseconds, 0 or more")
                    })?;
                }
                _ => return Err(DecodeError::member(key, "absent: no policy has this name")),
            }
        }
        Ok(policy)
    }
}

/// What is done about the end of a run.
#[derive(Clone, Debug)]
pub(super) enum End<'e> {
    /// Nothing is to be done.
    Nothing,
    /// Something is wrong, and nothing is done; why.
    Refuse(String),
    /// It follows its result.
    Adopt(&'e ResultFact, RunState),
    /// It ends as failed.
    Close(Cause),
    /// What follows from its proof is made.
    Complete,
    /// Its status is set aside.
    SetAside(String),
}

fn refuse<'e>(why: impl Into<String>) -> End<'e> {
    End::Refuse(why.into())
}

/// What is known beside the evidence.
#[derive(Clone, Copy)]
pub(super) struct Beside<'b> {
    /// An unfinished replacement of the status that is whole, was begun later than the status was written,
    /// and tells an end.
    pub(super) later_end: Option<&'b str>,
    /// Whether a run that is taken out of the active index is found by its session all the same.
    /// Only asked where it decides: the answer is read from an index.
    pub(super) is_listed: &'b dyn Fn() -> bool,
    /// Whether the system was restarted since its process was recorded.
    pub(super) restarted: bool,
}

/// What is done about the end of a run.
/// Spec: RS-REC-02 to RS-REC-08.
pub(super) fn end_of<'e>(
    e: &'e RunEvidence,
    d: &Diagnosis,
    look: Beside<'_>,
    policy: &Policy,
) -> End<'e> {
    match d.verdict {
        Verdict::Corrupt if policy.set_aside_corrupt => return corrupt(e, d),
        Verdict::Unsafe | Verdict::Corrupt | Verdict::Unsupported | Verdict::Conflict => {
            return refuse(d.because.clone());
        }
        Verdict::NeverStarted => {
            return refuse("it was never started: there is no status to close, and nothing ran");
        }
        Verdict::StartStuck => return refuse(d.because.clone()),
        Verdict::RunningUnverified => {
            return refuse(format!("{}; unknown is never dead", d.because));
        }
        _ => {}
    }
    let Some(s) = e.status.value() else { return End::Nothing };
    if let Some(why) = unfit(e, s) {
        return if d.verdict == Verdict::Orphaned { refuse(why) } else { End::Nothing };
    }
    let is_active = s.known_state().is_some_and(RunState::is_active);
    let is_gone = e.life.word.is_gone();
    match d.verdict {
        Verdict::Orphaned => orphaned(e, s, look, policy),
        // The runner recorded why it could not start, and nobody told the status.
        Verdict::StartFailed if is_active && is_gone => orphaned(e, s, look, policy),
        Verdict::StartFailed if is_active => {
            refuse("its start failed, and its process is not known")
        }
        _ if is_half_done(e, d, look.is_listed) && is_quiet(e, policy).is_ok() => End::Complete,
        _ => End::Nothing,
    }
}

fn orphaned<'e>(e: &'e RunEvidence, s: &StatusView, look: Beside<'_>, policy: &Policy) -> End<'e> {
    let is_paused = s.known_state() == Some(RunState::Paused);
    // A pause is not a matter of time.
    if let Some(why) = is_quiet(e, policy).err().filter(|_| !is_paused) {
        return refuse(why);
    }
    match fate(e, s) {
        Fate::Keep(why) => refuse(why),
        Fate::Adopt(result, outcome) => End::Adopt(result, outcome),
        Fate::Queued if !policy.close_queued => {
            refuse("it was queued and never ran; a policy with closeQueued closes it")
        }
        Fate::Queued | Fate::Close => match look.later_end {
            Some(later) => {
                refuse(format!("{later} tells an end of the run, and was never published"))
            }
            None => End::Close(cause(e, look.restarted)),
        },
    }
}

/// Whether nobody is about to tell more of a run; else why it is left alone for now.
/// Spec: RS-REC-04.
pub(super) fn is_quiet(e: &RunEvidence, policy: &Policy) -> Result<(), String> {
    let age = |at_ms: i64| e.now_ms.saturating_sub(at_ms).saturating_abs();
    let metas = [e.status.meta(), e.proof.meta(), e.candidate.meta(), e.startup.meta()];
    let newest = metas.into_iter().flatten().map(|m| m.mtime_ms).chain(e.dir_mtime_ms);
    let newest = newest.chain(e.own_results().filter_map(|r| r.fact.meta()).map(|m| m.mtime_ms));
    let youngest = newest.map(age).min();
    let grace_ms = match e.keepers.observer {
        // It is about to write what it knows.
        ObserverFact::MayLive => policy.grace_ms.max(e.times.settling_ms),
        _ => policy.grace_ms,
    };
    match youngest.filter(|age| *age <= grace_ms) {
        None => Ok(()),
        Some(age) => Err(format!(
            "it changed {age} ms ago; a run is left alone until it has been quiet for {grace_ms} ms"
        )),
    }
}

/// Whether something that follows from a proof is missing. Facts CW-30, CW-31.
fn is_half_done(e: &RunEvidence, d: &Diagnosis, is_listed: &dyn Fn() -> bool) -> bool {
    let Some(proof) = e.proof.value().filter(|_| d.proof.counts) else { return false };
    let Some(s) = e.status.value() else { return false };
    if s.known_state().is_none_or(RunState::is_active) {
        return false;
    }
    let is_shown = s.overlay.as_ref().is_some_and(|overlay| overlay.as_deref() == Ok(proof));
    // A line that is missing alone is not worth a repair: events are advice (facts CW-25).
    !is_shown || d.has(Flag::MarkerStale) && is_listed()
}

/// Spec: RS-REC-08.
fn corrupt<'e>(e: &RunEvidence, d: &Diagnosis) -> End<'e> {
    let is_whole = matches!(e.status, FileFact::Damaged(..));
    if !is_whole {
        return refuse(d.because.clone());
    }
    if !matches!(e.life.word, Liveness::NotRecorded | Liveness::Dead | Liveness::Reused)
        || e.startup_life.as_ref().is_some_and(|life| !life.word.is_gone())
    {
        return refuse("its status cannot be read, and a process of it may live");
    }
    End::SetAside(d.because.clone())
}

/// The most certain cause of the end of a run.
/// Spec: RS-REC-10.
pub(super) fn cause(e: &RunEvidence, restarted: bool) -> Cause {
    let startup = e.startup.value().filter(|message| {
        message.state.as_ref().and_then(Open::known) == Some(StartupState::Error)
    });
    if let Some(message) = startup {
        let error = message.error.as_deref().unwrap_or("no reason was given");
        return Cause::StartUp(error.lines().next().unwrap_or_default().to_owned());
    }
    if e.stderr.as_ref().is_some_and(|tail| !tail.text.trim().is_empty()) {
        return Cause::LastWords;
    }
    let exit = e.proof.value().filter(|p| p.state == ProofState::Observed).and_then(|p| p.runner());
    if let Some(exit) = exit {
        return Cause::Exit(match (&exit.signal, exit.exit_code) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "neither code nor signal".to_owned(),
        });
    }
    if restarted {
        return Cause::Reboot;
    }
    if e.events.as_ref().is_some_and(|log| log.status_write_failed > 0) {
        return Cause::DiskFull;
    }
    Cause::Unknown
}

/// Whether a slot is freed; else why it stays, where that needs to be told.
/// Spec: RS-REC-14.
pub(super) fn frees(e: &RunEvidence, slot: &SlotFact, policy: &Policy) -> Option<&'static str> {
    let verdict = slot_verdict(e, &slot.owner);
    (verdict.release && (!verdict.by_policy || policy.abandoned_slots)).then_some(verdict.reason)
}

/// Whether an unfinished replacement may be set aside: its writer is gone, it is older than an hour, and its
/// target is there and newer. `is_gone` tells of a pid of this system, `target_ms` when the target was
/// written last.
/// Spec: RS-REC-16.
pub(super) fn may_remove(
    temp: &TempName,
    now_ms: i64,
    is_gone: impl Fn(i64) -> bool,
    target_ms: Option<i64>,
) -> bool {
    let (Some(pid), Some(at_ms)) = (temp.pid.and_then(|pid| i64::try_from(pid).ok()), temp.at_ms)
    else {
        return false;
    };
    let is_old = now_ms.saturating_sub(at_ms) > limits::LITTER_AGE_MS;
    is_old && target_ms.is_some_and(|target| target >= at_ms) && is_gone(pid)
}

/// Whether the status of a run carries the mark of a repair, so that its time tells nothing of the writes
/// before it.
pub(super) fn was_repaired(d: &Diagnosis, target: &str) -> bool {
    let of_status = [layout::STATUS, layout::PROOF, layout::CANDIDATE].contains(&target);
    of_status && d.has(Flag::Repaired)
}
