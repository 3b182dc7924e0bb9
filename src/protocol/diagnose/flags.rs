//! Which flags and findings stand beside the verdict, and the evidence lines.

use super::super::liveness::Alive;
use super::super::process::Liveness;
use super::super::proof::ProofState;
use super::super::result::ResultPlace;
use super::super::slot::{self, SlotEvidence, SlotOwner, SlotStatus, SlotVerdict};
use super::super::state::RunState;
use super::super::{Open, limits};
use super::accounts::{self, Account};
use super::{
    FileFact, Flag, Grade, Notes, ProofSummary, Ruling, RunEvidence, Verdict, finding, has_begun,
    proofs, rules, stages, status,
};

/// Fills the notes. One function per source of evidence, in the order a reader wants them.
pub(super) fn collect(
    e: &RunEvidence,
    proof: &ProofSummary,
    ruling: &Ruling,
    accounts: &[Account],
    notes: &mut Notes,
) {
    from_unsafe(e, notes);
    from_status(e, notes);
    from_process(e, notes);
    from_proof(e, proof, notes);
    from_startup(e, notes);
    from_results(e, proof, ruling, notes);
    from_accounts(e, ruling, accounts, notes);
    from_events(e, ruling, notes);
    from_stderr(e, ruling, notes);
    from_leftovers(e, ruling, notes);
    from_index(e, proof, notes);
    from_locks(e, ruling, notes);
    from_place(e, notes);
}

fn from_unsafe(e: &RunEvidence, notes: &mut Notes) {
    for (file, what) in &e.unsafe_things {
        let file = (!file.is_empty()).then_some(file.as_str());
        let name = file.unwrap_or("the run directory");
        notes.find(&finding::NOT_PLAIN, format!("{name} is {what}; it was not opened"), file);
    }
}

fn from_status(e: &RunEvidence, notes: &mut Notes) {
    const FILE: Option<&str> = Some("status.json");
    let Some(s) = status(e) else { return };
    if let Some(word) = &s.state {
        let at = s.last_update_ms.or(s.started_at_ms);
        notes.say(Grade::Claimed, format!("state is '{}'", word.as_str()), FILE, at);
    }
    if let Some(end) = s.ended_at_ms {
        notes.say(Grade::Claimed, "the run ended", FILE, Some(end));
    }
    if let Some(error) = &s.error {
        notes.say(Grade::Claimed, format!("error: {}", clip(error, 400)), FILE, None);
    }
    for (i, step) in s.steps.iter().enumerate().filter(|(_, step)| step.error.is_some()) {
        let error = step.error.as_deref().unwrap_or_default();
        if s.error.as_deref() != Some(error) {
            let text = format!("step {i} error: {}", clip(error, 400));
            notes.say(Grade::Claimed, text, FILE, step.ended_at_ms);
        }
    }
    if s.run_id.as_deref().is_some_and(|id| id != e.run_id) {
        let text = format!(
            "runId is '{}'; the directory's name '{}' is the identity",
            s.run_id.as_deref().unwrap_or_default(),
            e.run_id
        );
        notes.find(&finding::RUN_ID_DIFFERS, text, FILE);
    }
    if s.duplicate_keys {
        notes.find(&finding::DUPLICATE_KEYS, "a key occurs twice; the last one was taken", FILE);
    }
    for complaint in &s.complaints {
        notes.find(
            &finding::PEERS_REFUSE,
            format!("{complaint}; other readers refuse the file"),
            FILE,
        );
    }
    if s.pid == Some(0) {
        notes.find(&finding::PID_INVALID, "the recorded pid is not a process id", FILE);
    }
    if let Some(at) = s.dismissed_at_ms {
        notes.find(&finding::DISMISSED, "the run was hidden from listings", FILE);
        notes.say(Grade::Claimed, "dismissed from display", FILE, Some(at));
    }
    let active = s.known_state().is_some_and(RunState::is_active);
    if let Some(deadline) = s.deadline_at_ms.filter(|at| active && *at < e.now_ms) {
        notes.flag(Flag::Overdue);
        let late = rules::ms(e.now_ms - deadline);
        notes.say(Grade::Inferred, format!("{late} past its own deadline"), FILE, Some(deadline));
    }
    let last = s.last_write_ms().max(e.events.as_ref().and_then(|log| log.newest_ms));
    if let Some(last) = last.filter(|at| active && e.now_ms - at > e.times.stale_alive_ms) {
        let silent = rules::ms(e.now_ms - last);
        let text = format!("no evidence of progress for {silent}; age alone decides nothing");
        notes.find(&finding::SILENT, text, FILE);
    }
    let newest = s.last_write_ms().unwrap_or(0);
    if newest > e.now_ms + limits::SETTLING_MS {
        notes.find(&finding::CLOCK_AHEAD, "the record is dated in the future", FILE);
    }
    if accounts::status_is_repaired(e) {
        notes.flag(Flag::Repaired);
        notes.say(Grade::Claimed, "a repairer wrote this account", FILE, s.ended_at_ms);
    }
}

fn from_process(e: &RunEvidence, notes: &mut Notes) {
    let grade = match e.life.word {
        Liveness::Dead | Liveness::Live => Grade::Observed,
        Liveness::NotRecorded => Grade::Claimed,
        _ => Grade::Inferred,
    };
    notes.say(grade, e.life.why.clone(), None, Some(e.now_ms));
    if let Some(life) = &e.startup_life {
        let file = Some("runner-startup.json");
        notes.say(Grade::Observed, life.why.clone(), file, Some(e.now_ms));
    }
    if !e.pid_shared_with.is_empty() {
        notes.flag(Flag::SharedPid);
        let others = e.pid_shared_with.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let text = format!("the same pid is recorded by {others}: it is a host's pid");
        notes.find(&finding::SHARED_PID, text, Some("status.json"));
    }
}

fn from_proof(e: &RunEvidence, proof: &ProofSummary, notes: &mut Notes) {
    const FILE: Option<&str> = Some("process-terminal.json");
    match &e.proof {
        FileFact::Present(p, _) if proof.counts => {
            let exit = p.runner().map_or_else(String::new, |r| match (r.exit_code, &r.signal) {
                (Some(code), _) => format!(" (exit code {code})"),
                (None, Some(signal)) => format!(" (signal {signal})"),
                (None, None) => String::new(),
            });
            let text = format!("an observer saw the runner's exit{exit}");
            notes.say(Grade::Claimed, text, FILE, p.observed_at_ms);
        }
        FileFact::Present(p, _) => {
            let why = proof.reason.as_deref().unwrap_or("no reason given");
            let word = &proof.state;
            notes.say(Grade::Claimed, format!("proof is {word}: {why}"), FILE, None);
            if p.state == ProofState::Observed {
                notes.find(&finding::PROOF_FOREIGN, format!("the proof {why}"), FILE);
            }
        }
        FileFact::Damaged(error, _) => {
            notes.find(&finding::PROOF_INVALID, error.to_string(), FILE);
        }
        FileFact::Unreadable(why) => notes.find(&finding::PROOF_INVALID, why.clone(), FILE),
        FileFact::Absent | FileFact::Unsafe(_) => {}
    }
    let candidate = Some("process-terminal-candidate.json");
    match &e.candidate {
        FileFact::Damaged(error, _) => {
            notes.find(&finding::CANDIDATE_INVALID, error.to_string(), candidate);
        }
        FileFact::Unreadable(why) => {
            notes.find(&finding::CANDIDATE_INVALID, why.clone(), candidate);
        }
        _ => {}
    }
    let overlay = status(e).and_then(|s| s.overlay.as_ref());
    if let (Some(sidecar), Some(Ok(overlay))) = (e.proof.value(), overlay) {
        if sidecar.state != overlay.state {
            let text = format!(
                "the sidecar says {}, the copy in the status says {}; the sidecar decides",
                sidecar.state, overlay.state
            );
            notes.find(&finding::OVERLAY_DIFFERS, text, Some("status.json"));
        }
    }
}

fn from_startup(e: &RunEvidence, notes: &mut Notes) {
    if let Some(error) = stages::startup_error(e) {
        let at = e.startup.meta().map(|m| m.mtime_ms);
        let text = format!("the runner could not start: {}", clip(error, 400));
        notes.say(Grade::Claimed, text, Some("runner-startup.json"), at);
    }
    for (file, error) in stages::damaged(e) {
        notes.find(&finding::STARTUP_INVALID, error, Some(file));
    }
    if e.proceed.is_there() && !has_begun(e) {
        let text = "proceed is still there: the runner never took it up";
        let at = e.proceed.meta().map(|m| m.mtime_ms);
        notes.say(Grade::Inferred, text, Some("runner-startup-proceed.json"), at);
    }
    if e.config_left {
        let text = "the runner configuration, which holds prompts, was never removed";
        notes.find(&finding::CONFIG_LEFT, text, None);
    }
}

fn from_results(e: &RunEvidence, proof: &ProofSummary, ruling: &Ruling, notes: &mut Notes) {
    let mut waiting = false;
    for result in &e.results {
        let file = Some(result.path.as_str());
        match &result.fact {
            FileFact::Present(view, meta) => {
                let outcome = view.outcome.map_or("no outcome", |o| super::super::Word::as_str(o));
                let place = result.place;
                let at = view.at_ms.or(Some(meta.mtime_ms));
                notes.say(Grade::Claimed, format!("{place} result says {outcome}"), file, at);
                let lies = matches!(place, ResultPlace::Public | ResultPlace::Pending);
                waiting |= lies && view.delivered_at_ms.is_none();
                undeliverable(e, result.place, view, file, notes);
            }
            FileFact::Damaged(error, _) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::RESULT_INVALID, error.to_string(), file);
            }
            FileFact::Unreadable(why) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::RESULT_INVALID, why.clone(), file);
            }
            FileFact::Unsafe(what) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::NOT_PLAIN, format!("the result is {what}"), file);
            }
            FileFact::Absent => {}
        }
    }
    let Some(s) = status(e) else { return };
    let ended = s.known_state().is_some_and(RunState::is_terminal) || e.life.word.is_gone();
    if waiting && ended {
        notes.flag(Flag::Undelivered);
    }
    let has_session = s.session_id.as_deref().is_some_and(|id| !id.is_empty());
    let past = matches!(ruling.verdict, Verdict::FinishedUnproven);
    if past && has_session && !proof.counts && e.results.is_empty() && !rules::is_failed_start(e) {
        notes.flag(Flag::ResultMissing);
        let text = "no result in the public, pending or replay area, and no proof of a delivery";
        notes.find(&finding::RESULT_MISSING, text, None);
    }
    let unsuccessful =
        s.known_state().is_some_and(|st| st.is_outcome() && st != RunState::Complete);
    let runner_ok =
        e.proof.value().and_then(|p| p.runner()).is_some_and(|r| r.exit_code == Some(0));
    let has_answer = e.results.iter().any(|r| r.fact.value().is_some_and(|v| v.has_output));
    if unsuccessful && has_answer && runner_ok && proof.counts {
        notes.flag(Flag::OutputCommitted);
        let text = "not successful, but the runner exited 0 and the result holds an answer";
        notes.say(Grade::Inferred, text, None, None);
    }
}

fn undeliverable(
    e: &RunEvidence,
    place: ResultPlace,
    view: &super::super::result::ResultView,
    file: Option<&str>,
    notes: &mut Notes,
) {
    if !matches!(place, ResultPlace::Public | ResultPlace::Pending) {
        return;
    }
    let own = status(e).and_then(|s| s.session_id.as_deref());
    let why = match (&view.session_id, own) {
        (None, _) => "the result names no session".to_owned(),
        (Some(theirs), Some(own)) if theirs != own => {
            format!("the result names session '{theirs}', the run '{own}'")
        }
        _ => return,
    };
    notes.flag(Flag::Undeliverable);
    notes.find(&finding::RESULT_UNDELIVERABLE, why, file);
}

fn from_accounts(e: &RunEvidence, ruling: &Ruling, accounts: &[Account], notes: &mut Notes) {
    if ruling.verdict != Verdict::Conflict {
        return;
    }
    for account in accounts {
        let by = if account.repaired { " (a repairer's word)" } else { "" };
        let text = format!("{} tells the outcome {}{by}", account.source.as_str(), account.outcome);
        notes.say(Grade::Claimed, text, Some(&account.file), account.at_ms);
    }
    let _ = e;
}

fn from_events(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    const FILE: Option<&str> = Some("events.jsonl");
    let Some(log) = &e.events else { return };
    if log.torn {
        notes.flag(Flag::LogTorn);
        notes.find(&finding::LOG_TORN, "the last line is cut, as a crash leaves it", FILE);
    }
    if !log.corrupt_lines.is_empty() {
        notes.flag(Flag::LogCorrupt);
    }
    for line in log.corrupt_lines.iter().take(5) {
        let number = (*line > 0).then_some(*line);
        notes.find_at(&finding::LOG_CORRUPT, "a line in the middle is not JSON", FILE, number);
    }
    if log.tail_only {
        notes.flag(Flag::Truncated);
        notes.find(&finding::LOG_LARGE, "only the end of the log was read", FILE);
    }
    if log.budget_cut {
        notes.flag(Flag::Truncated);
        notes.find(&finding::LOG_BUDGET, "its writer cut the log at its budget", FILE);
    }
    if log.status_write_failed > 0 {
        let n = log.status_write_failed;
        let text = format!("{n} status write(s) failed: the status is behind the log");
        notes.find(&finding::STATUS_WRITES_LOST, text, FILE);
    }
    if !matches!(ruling.verdict, Verdict::Finished | Verdict::Running) {
        for event in &log.last {
            let detail = event.detail.as_deref().map(|d| format!(": {}", clip(d, 200)));
            let text = format!("{}{}", clip(&event.kind, 80), detail.unwrap_or_default());
            notes.say(Grade::Claimed, text, FILE, event.at_ms);
        }
    }
}

fn from_stderr(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    let wanted =
        !matches!(ruling.verdict, Verdict::Finished | Verdict::Running | Verdict::Settling);
    let Some(tail) = e.stderr.as_ref().filter(|t| wanted && !t.text.trim().is_empty()) else {
        return;
    };
    let more = if tail.cut { " (end only)" } else { "" };
    let text = format!("the runner's last words{more}: {}", tail.text.trim_end());
    notes.say(Grade::Claimed, text, Some("runner.stderr.log"), None);
}

fn from_leftovers(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    if e.temp.count > 0 {
        notes.flag(Flag::TempLitter);
        let text = format!("{} leftover temp file(s), {} bytes", e.temp.count, e.temp.bytes);
        notes.find(&finding::TEMP_LITTER, text, None);
    }
    for name in e.temp.newer_than_target.iter().take(5) {
        notes.flag(Flag::UnpublishedWrite);
        let text = "a write was begun after the last one that was completed, and never published";
        notes.find(&finding::UNPUBLISHED_WRITE, text, Some(name));
    }
    if !e.control.pending.is_empty() {
        notes.flag(Flag::ControlPending);
        let n = e.control.pending.len();
        let age = e.control.oldest_ms.map_or_else(String::new, |at| {
            format!(", the oldest {} old", rules::ms((e.now_ms - at).max(0)))
        });
        let nobody = if ruling.verdict == Verdict::Orphaned || e.life.word.is_gone() {
            "; nobody will read them"
        } else {
            ""
        };
        let text = format!("{n} control request(s) unread{age}{nobody}");
        notes.find(&finding::CONTROL_PENDING, text, e.control.pending.first().map(String::as_str));
    }
    if e.truncated {
        notes.flag(Flag::Truncated);
        notes.find(&finding::DIR_TRUNCATED, "the directory has more entries than are read", None);
    }
    if e.unstable {
        notes.find(&finding::UNSTABLE, "files kept changing while they were read", None);
    }
}

fn from_index(e: &RunEvidence, proof: &ProofSummary, notes: &mut Notes) {
    let Some(state) = status(e).and_then(super::super::status::StatusView::known_state) else {
        return;
    };
    match e.marker.marker_mtime_ms {
        // Before the proof is in, both a kept and a released marker are right.
        Some(at) if state.is_outcome() => {
            let age = (e.now_ms - at).max(0);
            if proof.counts || age > limits::STALE_MARKER_MS {
                notes.flag(Flag::MarkerStale);
                let text = format!("still in the active index although {state}");
                notes.find(&finding::MARKER_STALE, text, None);
            }
        }
        None if state.is_active() && e.marker.index_exists && has_begun(e) => {
            notes.flag(Flag::MarkerMissing);
            let text = "active, but not in the active index: listings of peers do not see it";
            notes.find(&finding::MARKER_MISSING, text, None);
        }
        _ => {}
    }
}

fn from_locks(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    for lease in &e.leases {
        let at = Some(lease.owner.updated_at_ms);
        match &lease.held_because {
            Some(why) => {
                notes.flag(Flag::LeaseHeld);
                notes.say(
                    Grade::Claimed,
                    format!("a session lease is held: {why}"),
                    Some(&lease.path),
                    at,
                );
            }
            None => {
                notes.flag(Flag::LeaseHeld);
                let text = "its lease outlived its owner and may be reclaimed";
                notes.find(&finding::LEASE_STALE, text, Some(&lease.path));
            }
        }
    }
    for fact in &e.slots {
        let verdict = slot_verdict(e, &fact.owner);
        let release = verdict.release && !fact.claimed;
        let file = Some(fact.path.as_str());
        if release {
            notes.flag(Flag::SlotReleasable);
            let by = if verdict.by_policy { " by policy" } else { "" };
            let text = format!("its slot may be released{by}: {}", verdict.reason);
            notes.find(&finding::SLOT_RELEASABLE, text, file);
        } else if !matches!(ruling.verdict, Verdict::Running | Verdict::Starting) {
            notes.flag(Flag::SlotRetained);
            let why = if fact.claimed { "a claim file freezes it" } else { verdict.reason };
            notes.find(&finding::SLOT_RETAINED, format!("its slot stays: {why}"), file);
        }
    }
    // One of several slots decides for the worse.
    if notes.flags.contains(&Flag::SlotRetained) {
        notes.flags.retain(|f| *f != Flag::SlotReleasable);
    }
}

/// The release verdict of a slot that names this run. Facts K-29.
pub fn slot_verdict(e: &RunEvidence, owner: &SlotOwner) -> SlotVerdict {
    let s = status(e);
    let state = s.and_then(|s| s.state.clone());
    let slot_status = s.zip(state).map(|(s, state)| SlotStatus {
        run_id: s.run_id.as_deref(),
        session_id: s.session_id.as_deref(),
        state,
        mode: s.mode.as_ref().and_then(Open::known),
        #[expect(clippy::cast_precision_loss, reason = "a pid is far below 2^53")]
        pid: s.pid.filter(|p| *p > 0).map(|p| p as f64),
        error: s.error.as_deref(),
        overlay: s.overlay.as_ref().and_then(|o| o.as_ref().ok()),
        last_activity_ms: s.last_activity_ms.or(s.last_update_ms).or(s.ended_at_ms),
    });
    // The slot names the instance that it waits for; a proof of another one frees nothing.
    let proof = e.proof.value().filter(|p| {
        p.run_id == owner.run_id
            && owner.runner_instance_id.as_deref().is_none_or(|id| id == p.instance_id)
            && proofs::mismatch(e, p).is_none()
    });
    let alive = match e.life.word {
        // A reused pid is a process that is gone.
        Liveness::Dead | Liveness::Reused => Alive::No,
        Liveness::Live => Alive::Yes,
        _ => Alive::Unknown,
    };
    slot::verdict(
        owner,
        &SlotEvidence {
            status: slot_status,
            proof: proof.map(|p| p.state),
            pid_alive: alive,
            abandoned_after_ms: e.times.abandoned_slot_ms,
            now_ms: e.now_ms,
            controller_live: e.life.word == Liveness::Live,
            // The children of a workflow are other runs; without a look at each of them the slot stays.
            children: &[],
        },
    )
}

fn from_place(e: &RunEvidence, notes: &mut Notes) {
    if let Some(root) = &e.split_root {
        notes.flag(Flag::SplitRoot);
        let text = format!("the run lies in the fallback root {root}");
        notes.find(&finding::SPLIT_ROOT, text, None);
    }
    if let Some(real) = &e.shadowed_by {
        notes.flag(Flag::Shadow);
        let text = format!("another directory has the same id: {real}");
        notes.find(&finding::SHADOW, text, None);
    }
    let modes = [
        ("", e.dir_mode),
        ("status.json", e.status.meta().map_or(0, |m| m.mode)),
        ("process-terminal.json", e.proof.meta().map_or(0, |m| m.mode)),
        ("process-terminal-candidate.json", e.candidate.meta().map_or(0, |m| m.mode)),
    ];
    if let Some((file, mode)) = modes.into_iter().find(|(_, mode)| mode & 0o022 != 0) {
        notes.flag(Flag::LoosePermissions);
        let name = if file.is_empty() { "the run directory" } else { file };
        let text = format!("{name} can be changed by other users (mode {mode:04o})");
        notes.find(&finding::LOOSE_PERMISSIONS, text, (!file.is_empty()).then_some(file));
    }
}

/// The first part of a text, at a character boundary.
fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
