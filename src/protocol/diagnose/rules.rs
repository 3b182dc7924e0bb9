//! Which verdict? The rules of the contract, in its order; the first match wins.

use super::super::Word as _;
use super::super::limits;
use super::super::process::Liveness;
use super::super::proof::{ProofState, ResumeDisposition};
use super::super::state::RunState;
use super::super::status::StatusView;
use super::accounts::{self, Account, Source};
use super::flags::clip;
use super::{
    FileFact, Notes, ProofSummary, Ruling, RunEvidence, Stage, Verdict, finding, life_word, proofs,
    stages, status,
};

/// The verdict of one run. Spec: RS-DIAG-05, RS-DIAG-06, RS-DIAG-07.
pub(super) fn rule(
    e: &RunEvidence,
    proof: &ProofSummary,
    accounts: &[Account],
    notes: &mut Notes,
) -> Ruling {
    if let Some((file, what)) = e.unsafe_things.first() {
        let name = if file.is_empty() { "the run directory" } else { file };
        return Ruling::new(Verdict::Unsafe, format!("{name} is {what}"));
    }
    match &e.status {
        FileFact::Absent => rule_without_status(e, notes),
        FileFact::Unsafe(what) => Ruling::new(Verdict::Unsafe, format!("status.json is {what}")),
        FileFact::Unreadable(why) => {
            notes.find(&finding::STATUS_UNREADABLE, why, Some("status.json"));
            Ruling::new(Verdict::Corrupt, format!("status.json cannot be read: {why}"))
        }
        FileFact::Damaged(error, _) => {
            notes.find(finding::of_damage(error), error, Some("status.json"));
            Ruling::new(Verdict::Corrupt, format!("status.json is damaged: {error}"))
        }
        FileFact::Present(s, _) => rule_with_status(e, s, proof, accounts, notes),
    }
}

/// Spec: RS-DIAG-09.
fn rule_with_status(
    e: &RunEvidence,
    s: &StatusView,
    proof: &ProofSummary,
    accounts: &[Account],
    notes: &mut Notes,
) -> Ruling {
    if let Some(error) = s.damage.first() {
        for error in &s.damage {
            notes.find(&finding::STATUS_WRONG_TYPE, error, Some("status.json"));
        }
        return Ruling::new(Verdict::Corrupt, format!("status.json has wrong types: {error}"));
    }
    if let Some(version) = s.lifecycle_version.filter(|v| *v > limits::LIFECYCLE_VERSION) {
        let text = format!("lifecycleArtifactVersion {version} is newer than this program knows");
        notes.find(&finding::STATUS_NEWER, &text, Some("status.json"));
        return Ruling::new(Verdict::Unsupported, text);
    }
    let Some(state) = s.known_state() else {
        let word = s.state.as_ref().map_or("", |w| w.as_str());
        let text = format!("'{}' is not a state of the protocol", clip(word, 400));
        notes.find(&finding::STATE_UNKNOWN, &text, Some("status.json"));
        return Ruling::new(Verdict::Unsupported, text);
    };
    if let Some(ruling) = conflict(e, s, state, accounts, notes) {
        return ruling;
    }
    if state.is_active() {
        return rule_active(e, s, state);
    }
    if state == RunState::Paused {
        return rule_paused(e, s);
    }
    rule_terminal(e, s, state, proof)
}

/// Spec: RS-DIAG-10, RS-DIAG-11.
fn conflict(
    e: &RunEvidence,
    s: &StatusView,
    state: RunState,
    accounts: &[Account],
    notes: &mut Notes,
) -> Option<Ruling> {
    if let Some((one, other, preferred)) = accounts::disagreement(accounts) {
        let because =
            format!("{} says {}, {} says {}", one.file, one.outcome, other.file, other.outcome);
        notes.find(&finding::OUTCOMES_DISAGREE, &because, None);
        return Some(Ruling::conflict(because, preferred));
    }
    // The log tells the end and nothing else does: the status was lost on the way. A result that
    // cannot be read tells nothing either.
    let told_by_log = e.events.as_ref().is_some_and(|log| !log.completed.is_empty());
    let no_result = accounts::surviving_result(e).is_none();
    if state.is_active() && told_by_log && no_result && e.life.word.is_gone() {
        let because = format!("status.json says {state}, events.jsonl says the run completed");
        notes.find(&finding::LOG_AHEAD_OF_STATUS, &because, Some("events.jsonl"));
        return Some(Ruling::conflict(because, Source::Events));
    }
    // Run-level `not-started` beside a success: one of them is about another process.
    let not_started = s.valid_overlay().is_some_and(|p| p.state == ProofState::NotStarted);
    if state == RunState::Complete && not_started {
        let because = "status.json says complete, its proof says the runner never started";
        notes.find(&finding::OUTCOMES_DISAGREE, because, Some("status.json"));
        return Some(Ruling::conflict(because, Source::Status));
    }
    None
}

/// Spec: RS-DIAG-17, RS-DIAG-19, RS-DIAG-21, RS-DIAG-22, RS-DIAG-23, RS-ROLE-06.
fn rule_active(e: &RunEvidence, s: &StatusView, state: RunState) -> Ruling {
    if let Some(ruling) = rule_startup_error(e) {
        return ruling;
    }
    let why = &e.life.why;
    if e.life.word.is_gone() {
        return Ruling::new(Verdict::Orphaned, format!("recorded {state}, but {why}"))
            .at(stages::reached(e));
    }
    if e.life.word == Liveness::NotRecorded {
        if state != RunState::Queued && !stages::has_messages(e) {
            let because = format!("recorded {state} with no process: no pid is not a dead pid");
            return Ruling::new(Verdict::RunningUnverified, because);
        }
        return rule_queued(e, s, state);
    }
    if let Some((stage, age)) = stages::under_way(e) {
        return by_time(
            age,
            e.times.startup_stage_ms,
            stage,
            format!("the launch has reached '{stage}' and nothing has begun"),
        );
    }
    if !e.pid_shared_with.is_empty() {
        let because = format!(
            "pid {} is recorded by {} other active {}: it is a host's, and says nothing of this run",
            s.pid.unwrap_or_default(),
            e.pid_shared_with.len(),
            if e.pid_shared_with.len() == 1 { "run" } else { "runs" },
        );
        return Ruling::new(Verdict::RunningUnverified, because);
    }
    if e.life.word == Liveness::Live && s.is_workflow() {
        let because =
            format!("recorded {state}, and its host lives ({why}); that says nothing of the work");
        return Ruling::new(Verdict::Running, because);
    }
    if e.life.word == Liveness::Live {
        return Ruling::new(Verdict::Running, format!("recorded {state}, and {why}"));
    }
    Ruling::new(Verdict::RunningUnverified, format!("recorded {state}; {why}"))
}

/// `queued` (or a launch) with no process recorded: judged by age alone, and never as dead.
/// Spec: RS-DIAG-18.
fn rule_queued(e: &RunEvidence, s: &StatusView, state: RunState) -> Ruling {
    if let Some((stage, age)) = stages::under_way(e).filter(|_| stages::has_messages(e)) {
        let because = format!("the launch has reached '{stage}' and nothing has begun");
        return by_time(age, e.times.startup_stage_ms, stage, because);
    }
    let since = s.last_update_ms.or(s.started_at_ms).or(e.status.meta().map(|m| m.mtime_ms));
    let age = since.map_or(i64::MAX, |at| e.now_ms.saturating_sub(at).max(0));
    let because = format!("recorded {state}, and no process is recorded yet");
    by_time(age, e.times.queued_ms, stages::reached(e), because)
}

fn by_time(age: i64, limit: i64, stage: Stage, because: String) -> Ruling {
    let (verdict, clock) =
        if age <= limit { (Verdict::Starting, "inside") } else { (Verdict::StartStuck, "over") };
    let times = format!("{} of {}", ms(age), ms(limit));
    Ruling::new(verdict, format!("{because}; {clock} its time ({times})")).at(stage)
}

/// Milliseconds for a person.
pub(super) fn ms(ms: i64) -> String {
    let s = ms / 1000;
    match s {
        _ if ms == i64::MAX => "an unknown time".to_owned(),
        0 => format!("{ms} ms"),
        1..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        7200..=172_799 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// What a recorded start-up error decides. Of a process that cannot be judged from here it decides
/// nothing: the message is only evidence then.
/// Spec: RS-DIAG-14.
fn rule_startup_error(e: &RunEvidence) -> Option<Ruling> {
    let first_line = stages::startup_error(e)?.lines().next().unwrap_or_default();
    let said = format!("the runner recorded a start-up error: {first_line}");
    let ruling = match life_word(e) {
        Liveness::Dead | Liveness::Reused | Liveness::NotRecorded => {
            Ruling::new(Verdict::StartFailed, said)
        }
        Liveness::Live => {
            Ruling::new(Verdict::StartStuck, format!("{said}; its process is still there"))
        }
        Liveness::Foreign | Liveness::Unknown => return None,
    };
    Some(ruling.at(stages::reached(e)))
}

/// Spec: RS-DIAG-24, RS-DIAG-25, RS-STATUS-08.
fn rule_paused(e: &RunEvidence, s: &StatusView) -> Ruling {
    if s.ended_at_ms.is_some() {
        return Ruling::new(Verdict::Paused, "recorded paused, and the pause is confirmed");
    }
    if e.life.word.is_gone() {
        let because = format!("the pause was never confirmed, and {}", e.life.why);
        return Ruling::new(Verdict::Orphaned, because).at(stages::reached(e));
    }
    Ruling::new(Verdict::Paused, "recorded paused; the pause is not confirmed (no endedAt)")
}

/// Facts T-3: `failed`, no `endedAt`, an error of the run, every step untouched; or an end without
/// success whose proof says that the runner never started.
/// Spec: RS-START-14, RS-DIAG-13, RS-CAND-05.
pub(super) fn is_failed_start(e: &RunEvidence) -> bool {
    let Some(s) = status(e) else { return false };
    let Some(state) = s.known_state().filter(|s| s.is_outcome() && *s != RunState::Complete) else {
        return false;
    };
    let untouched = state == RunState::Failed
        && s.ended_at_ms.is_none()
        && s.error.is_some()
        && (s.steps.is_empty() || s.all_steps_pending());
    let not_started = |p: &super::super::proof::Proof| p.state == ProofState::NotStarted;
    let said = [s.valid_overlay(), e.proof.value().map(AsRef::as_ref)]
        .into_iter()
        .flatten()
        .any(not_started);
    untouched || said
}

/// Spec: RS-DIAG-26, RS-DIAG-27.
fn rule_terminal(e: &RunEvidence, s: &StatusView, state: RunState, proof: &ProofSummary) -> Ruling {
    if is_failed_start(e) {
        let error = s.error.as_deref().or_else(|| stages::startup_error(e)).unwrap_or("no reason");
        let line = error.lines().next().unwrap_or_default();
        let because = format!("the start-up failure is recorded: {line}");
        return Ruling::new(Verdict::StartFailed, because).at(stages::reached(e));
    }
    if proof.counts {
        // Of thousands nearly all say this: put together without the machinery of a format.
        let because = [state.as_str(), ", and its exit was observed"].concat();
        return Ruling::new(Verdict::Finished, because);
    }
    let what = match &proof.reason {
        Some(reason) => format!("proof {}: {reason}", proof.state),
        None => format!("proof {}", proof.state),
    };
    if !proofs::may_still_come(e, proof) {
        let because = format!("{state}, but the exit is unproven ({what})");
        return Ruling::new(Verdict::FinishedUnproven, because);
    }
    let Some(end) = s.ended_at_ms.or(s.last_update_ms) else {
        let because = format!("{state} at no recorded time, and the exit is unproven ({what})");
        return Ruling::new(Verdict::FinishedUnproven, because);
    };
    // A time far ahead of the clock must not settle for ever.
    let age = e.now_ms.saturating_sub(end).saturating_abs();
    if age <= e.times.settling_ms {
        let because = format!("{state} {} ago; result and proof may still come ({what})", ms(age));
        return Ruling::new(Verdict::Settling, because);
    }
    let because = format!("{state} {} ago, and the exit was never observed ({what})", ms(age));
    Ruling::new(Verdict::FinishedUnproven, because)
}

/// Spec: RS-DIAG-08, RS-DIAG-15, RS-DIAG-16.
fn rule_without_status(e: &RunEvidence, notes: &mut Notes) -> Ruling {
    let work = [
        (
            e.candidate.value().is_some_and(super::super::candidate::Candidate::has_counts),
            "a candidate with counts",
        ),
        (e.proof.is_there(), "a proof"),
        (e.own_results().next().is_some(), "a result"),
        (e.output_bytes > 0, "step output"),
        (e.events.as_ref().is_some_and(|log| log.begun), "step events"),
    ];
    if let Some((_, what)) = work.iter().find(|(there, _)| *there) {
        let text = format!("there is {what}, but no status.json");
        notes.find(&finding::STATUS_MISSING, &text, Some("status.json"));
        return Ruling::new(Verdict::Corrupt, text);
    }
    if let Some(ruling) = rule_startup_error(e) {
        return ruling;
    }
    let stage = stages::reached(e);
    if stages::has_messages(e) {
        let age = stages::last_move_ms(e).map_or(i64::MAX, |at| e.now_ms.saturating_sub(at).max(0));
        let because = format!("the launch has reached '{stage}' and there is no status yet");
        if life_word(e).is_gone() {
            let text = format!("{because}; the process that spoke is gone");
            return Ruling::new(Verdict::StartStuck, text).at(stage);
        }
        return by_time(age, e.times.startup_stage_ms, stage, because);
    }
    if !e.has_protocol_files && !e.foreign_names.is_empty() {
        let text = "nothing in the directory belongs to a run";
        return Ruling::new(Verdict::NotARun, text);
    }
    let age = e.dir_mtime_ms.map_or(i64::MAX, |at| e.now_ms.saturating_sub(at).max(0));
    if age <= e.times.missing_status_ms {
        let because = format!(
            "the directory is {} old and has no status yet; a status is due within {}",
            ms(age),
            ms(e.times.missing_status_ms)
        );
        return Ruling::new(Verdict::Starting, because).at(stage);
    }
    let because = format!("no status after {}: the launch was abandoned before any work", ms(age));
    Ruling::new(Verdict::NeverStarted, because).at(stage)
}

/// Whether the run can be resumed now, and why (not). `None` while the question makes no sense.
/// Spec: RS-PROOF-17, RS-DIAG-25.
pub(super) fn resumable(e: &RunEvidence, verdict: Verdict) -> Option<(bool, &'static str)> {
    let s = status(e)?;
    let state = s.known_state().filter(|state| state.is_terminal())?;
    let no = |why: &'static str| Some((false, why));
    match verdict {
        Verdict::Paused | Verdict::Finished | Verdict::FinishedUnproven => {}
        _ => return None,
    }
    if state == RunState::Stopped {
        return no("a stopped run is never resumed");
    }
    if verdict == Verdict::Paused && s.ended_at_ms.is_none() {
        return no("the pause is not confirmed");
    }
    if e.leases.iter().any(|l| l.held_because.is_some()) {
        return no("its session is leased");
    }
    match e.session_file_exists {
        None => no("no session file is recorded"),
        Some(false) => no("the session file is gone"),
        Some(true) if e.cwd_exists == Some(false) => no("the working directory is gone"),
        // Given for a run that was stopped on request, so no file brings it back.
        Some(true) if said_non_resumable(e) => no("its proof says that it is not resumable"),
        Some(true) => Some((true, "the session file exists and nobody holds its lease")),
    }
}

/// Whether the observer of the end ruled a resume out for good.
fn said_non_resumable(e: &RunEvidence) -> bool {
    let proof = e.proof.value().filter(|p| proofs::mismatch(e, p).is_none());
    proof.is_some_and(|p| p.resume_disposition == Some(ResumeDisposition::NonResumable))
}
