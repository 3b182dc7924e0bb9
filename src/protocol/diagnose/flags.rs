//! Which flags and findings stand beside the verdict, and the evidence lines.

use std::fmt::{self, Display};

use super::super::candidate::Instance;
use super::super::evidence::ResultFact;
use super::super::limits;
use super::super::process::Liveness;
use super::super::result::ResultPlace;
use super::super::state::RunState;
use super::super::status::StatusView;
use super::accounts::{self, Account};
use super::{
    FileFact, Flag, Grade, Notes, ProofSummary, Ruling, RunEvidence, Verdict, finding, has_begun,
    locks, proofs, rules, stages, status,
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
    from_accounts(ruling, accounts, notes);
    from_events(e, ruling, notes);
    from_stderr(e, ruling, notes);
    from_leftovers(e, ruling, notes);
    from_index(e, proof, notes);
    locks::from_children(e, ruling, notes);
    locks::from_locks(e, ruling, notes);
    from_place(e, notes);
}

fn from_unsafe(e: &RunEvidence, notes: &mut Notes) {
    for (file, what) in &e.unsafe_things {
        let file = (!file.is_empty()).then_some(file.as_str());
        let name = file.unwrap_or("the run directory");
        notes.find(&finding::NOT_PLAIN, format_args!("{name} is {what}; it was not opened"), file);
    }
}

fn from_status(e: &RunEvidence, notes: &mut Notes) {
    const FILE: Option<&str> = Some("status.json");
    let Some(s) = status(e) else { return };
    if let Some(word) = &s.state {
        let at = s.last_update_ms.or(s.started_at_ms);
        notes.say(
            Grade::Claimed,
            format_args!("state is '{}'", clip(word.as_str(), 400)),
            FILE,
            at,
        );
    }
    if let Some(end) = s.ended_at_ms {
        notes.say(Grade::Claimed, "the run ended", FILE, Some(end));
    }
    if let Some(error) = &s.error {
        notes.say(Grade::Claimed, format_args!("error: {}", clip(error, 400)), FILE, None);
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
            format_args!("{complaint}; other readers refuse the file"),
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
    // An unconfirmed pause has not ended either.
    let open =
        active || s.known_state().is_some_and(|st| !st.is_outcome()) && s.ended_at_ms.is_none();
    if let Some(deadline) = s.due_at_ms().filter(|at| open && *at < e.now_ms) {
        notes.flag(Flag::Overdue);
        let late = rules::ms(e.now_ms.saturating_sub(deadline));
        notes.say(
            Grade::Inferred,
            format_args!("{late} past its own deadline"),
            FILE,
            Some(deadline),
        );
    }
    if s.has_more_steps {
        notes.flag(Flag::Truncated);
        notes.say(Grade::Observed, "there are more steps than were looked at", FILE, None);
    }
    let last = s.last_write_ms().max(e.events.as_ref().and_then(|log| log.newest_ms));
    let silent_ms = last.map(|at| e.now_ms.saturating_sub(at));
    if let Some(last) = last.filter(|_| active && silent_ms > Some(e.times.queued_ms)) {
        let text =
            format!("no evidence of progress since then, {}", rules::ms(silent_ms.unwrap_or(0)));
        notes.say(Grade::Inferred, text, None, Some(last));
    }
    if last.is_some() && active && silent_ms > Some(e.times.stale_alive_ms) {
        let silent = rules::ms(silent_ms.unwrap_or(0));
        let text = format!("no evidence of progress for {silent}; age alone decides nothing");
        notes.find(&finding::SILENT, text, FILE);
    }
    let newest = s.last_write_ms().unwrap_or(0);
    if newest > e.now_ms.saturating_add(limits::SETTLING_MS) {
        notes.find(&finding::CLOCK_AHEAD, "the record is dated in the future", FILE);
    }
    if accounts::status_is_repaired(e) {
        notes.flag(Flag::Repaired);
        notes.say(Grade::Claimed, "a repairer wrote this account", FILE, s.ended_at_ms);
    }
}

/// Spec: RS-FLAG-19, RS-LIVE-13.
fn from_process(e: &RunEvidence, notes: &mut Notes) {
    let grade = match e.life.word {
        Liveness::Dead | Liveness::Live => Grade::Observed,
        Liveness::NotRecorded => Grade::Claimed,
        _ => Grade::Inferred,
    };
    // Where no record could be read nothing claims that it names no process.
    if e.life.word != Liveness::NotRecorded || e.status.value().is_some() {
        notes.say(grade, &e.life.why, None, Some(e.now_ms));
    }
    if let Some(life) = &e.startup_life {
        let file = Some("runner-startup.json");
        notes.say(Grade::Observed, &life.why, file, Some(e.now_ms));
    }
    if !e.pid_shared_with.is_empty() {
        notes.flag(Flag::SharedPid);
        let others = e.pid_shared_with.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let text = format!("the same pid is recorded by {others}: it is a host's pid");
        notes.find(&finding::SHARED_PID, text, Some("status.json"));
    }
}

/// Spec: RS-PROOF-08, RS-PROOF-13, RS-PROOF-14.
fn from_proof(e: &RunEvidence, proof: &ProofSummary, notes: &mut Notes) {
    const FILE: Option<&str> = Some("process-terminal.json");
    match &e.proof {
        FileFact::Present(p, _) if proof.counts => {
            let text = "an observer saw the runner's exit";
            let at = p.observed_at_ms;
            match p.runner().map(|runner| (runner.exit_code, &runner.signal)) {
                Some((Some(code), _)) => {
                    notes.say(Grade::Claimed, format_args!("{text} (exit code {code})"), FILE, at);
                }
                Some((None, Some(signal))) => {
                    notes.say(Grade::Claimed, format_args!("{text} (signal {signal})"), FILE, at);
                }
                _ => notes.say(Grade::Claimed, text, FILE, at),
            }
            if p.instances.iter().any(Instance::tree_observed) {
                let text = "for each writer it covers the process group, and nothing outside of that group";
                notes.say(Grade::Claimed, text, FILE, at);
            }
        }
        FileFact::Present(p, _) => {
            let why = proof.reason.as_deref().unwrap_or("no reason given");
            let word = &proof.state;
            notes.say(Grade::Claimed, format_args!("proof is {word}: {why}"), FILE, None);
            if proofs::nobody_observes(e, p) {
                let text = "whoever could have seen the end of the runner is gone: nobody can observe it any more, \
                            however long it is waited for";
                notes.find(&finding::END_UNOBSERVABLE, text, FILE);
            }
            if proofs::mismatch(e, p).is_some() {
                notes.find(&finding::PROOF_FOREIGN, format_args!("the proof {why}"), FILE);
            }
        }
        FileFact::Damaged(error, _) => {
            notes.find(&finding::PROOF_INVALID, error, FILE);
        }
        FileFact::Unreadable(why) => notes.find(&finding::PROOF_INVALID, why, FILE),
        FileFact::Absent | FileFact::Unsafe(_) => {}
    }
    let candidate = Some("process-terminal-candidate.json");
    match &e.candidate {
        FileFact::Damaged(error, _) => {
            notes.find(&finding::CANDIDATE_INVALID, error, candidate);
        }
        FileFact::Unreadable(why) => {
            notes.find(&finding::CANDIDATE_INVALID, why, candidate);
        }
        _ => {}
    }
    let overlay = status(e).and_then(StatusView::valid_overlay);
    if let (Some(sidecar), Some(overlay)) = (e.proof.value(), overlay)
        && sidecar.state != overlay.state
    {
        let text = format!(
            "the sidecar says {}, the copy in the status says {}; the sidecar decides",
            sidecar.state, overlay.state
        );
        notes.find(&finding::OVERLAY_DIFFERS, text, Some("status.json"));
    }
}

/// Spec: RS-START-10, RS-START-17.
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
        let state = config_state(e);
        let text =
            format!("the runner configuration, which holds prompts, was never removed{state}");
        notes.find(&finding::CONFIG_LEFT, text, None);
    }
}

/// What is known of a configuration that was left, as the end of a sentence.
fn config_state(e: &RunEvidence) -> String {
    let age = e.config.meta().map(|m| rules::ms(e.now_ms.saturating_sub(m.mtime_ms).max(0)));
    let age = age.map_or_else(String::new, |age| format!(" ({age} old)"));
    match &e.config {
        FileFact::Absent => String::new(),
        FileFact::Unsafe(what) => format!("; it is {what}"),
        FileFact::Unreadable(why) => format!("; it cannot be read: {why}"),
        FileFact::Damaged(error, _) => format!("{age}; no runner can read it: {error}"),
        FileFact::Present(config, _) => match &config.refusal {
            Some(error) => format!("{age}; a runner that checks refuses it: {error}"),
            None if config.id.as_deref() != Some(&e.run_id) => {
                format!("{age}; it is valid, but for another run")
            }
            None => format!("{age}; it is valid"),
        },
    }
}

/// Spec: RS-RESULT-07, RS-RESULT-08, RS-RESULT-09, RS-RESULT-13, RS-FLAG-02, RS-FLAG-04,
/// RS-FLAG-06.
fn from_results(e: &RunEvidence, proof: &ProofSummary, ruling: &Ruling, notes: &mut Notes) {
    let mut waiting = false;
    for result in &e.results {
        let file = Some(result.path.as_str());
        match &result.fact {
            FileFact::Present(view, meta) => {
                let outcome = view.outcome.map_or("no outcome", |o| super::super::Word::as_str(o));
                let place = result.place;
                let at = view.at_ms.or(Some(meta.mtime_ms));
                notes.say(Grade::Claimed, format_args!("{place} result says {outcome}"), file, at);
                let lies = matches!(place, ResultPlace::Public | ResultPlace::Pending);
                waiting |= lies && view.delivered_at_ms.is_none();
                undeliverable(e, result, view, file, notes);
            }
            FileFact::Damaged(error, _) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::RESULT_INVALID, error, file);
            }
            FileFact::Unreadable(why) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::RESULT_INVALID, why, file);
            }
            FileFact::Unsafe(what) => {
                notes.flag(Flag::Undeliverable);
                notes.find(&finding::NOT_PLAIN, format_args!("the result is {what}"), file);
            }
            FileFact::Absent => {}
        }
    }
    for (path, why) in &e.unused_replays {
        let text = format!("the completion replay is not used: {why}");
        notes.find(&finding::REPLAY_UNUSED, text, Some(path));
    }
    // A replay is written before the completion is handed over, and the result is removed after.
    waiting &= !e.results.iter().any(|r| accounts::is_replay(r.place) && r.fact.value().is_some());
    let Some(s) = status(e) else { return };
    let ended = s.known_state().is_some_and(RunState::is_terminal) || e.life.word.is_gone();
    if waiting && ended {
        notes.flag(Flag::Undelivered);
    }
    let has_session = s.session_id.as_deref().is_some_and(|id| !id.is_empty());
    let ended_well_ago = s.known_state().is_some_and(RunState::is_outcome) && {
        let end = s.ended_at_ms.or(s.last_update_ms);
        end.is_none_or(|at| e.now_ms.saturating_sub(at).saturating_abs() > e.times.settling_ms)
    };
    let judged = matches!(ruling.verdict, Verdict::FinishedUnproven | Verdict::Conflict);
    // Where nobody could look nothing is missing.
    let nowhere = e.own_results().next().is_none() && !e.results_unread && !proof.counts;
    if judged && ended_well_ago && has_session && nowhere && !rules::is_failed_start(e) {
        notes.flag(Flag::ResultMissing);
        let text = "no result in the public, pending or replay area, and no proof of a delivery";
        notes.find(&finding::RESULT_MISSING, text, None);
    }
    let unsuccessful =
        s.known_state().is_some_and(|st| st.is_outcome() && st != RunState::Complete);
    let runner_ok =
        e.proof.value().and_then(|p| p.runner()).is_some_and(|r| r.exit_code == Some(0));
    let has_answer = e.own_results().any(|r| r.fact.value().is_some_and(|v| v.has_output));
    if unsuccessful && has_answer && runner_ok && proof.counts {
        notes.flag(Flag::OutputCommitted);
        let text = "not successful, but the runner exited 0 and the result holds an answer";
        notes.say(Grade::Inferred, text, None, None);
    }
}

fn undeliverable(
    e: &RunEvidence,
    result: &ResultFact,
    view: &super::super::result::ResultView,
    file: Option<&str>,
    notes: &mut Notes,
) {
    if !matches!(result.place, ResultPlace::Public | ResultPlace::Pending) {
        return;
    }
    let why = match (e.foreign_name(result), &view.session_id) {
        (Some(("run", theirs)), _) => {
            format!("the result names run '{theirs}', the run is '{}'", e.run_id)
        }
        (Some((_, theirs)), _) => {
            let own = status(e).and_then(|s| s.session_id.as_deref()).unwrap_or_default();
            format!("the result names session '{theirs}', the run '{own}'")
        }
        (None, None) => "the result names no session".to_owned(),
        (None, Some(_)) => return,
    };
    notes.flag(Flag::Undeliverable);
    notes.find(&finding::RESULT_UNDELIVERABLE, why, file);
}

fn from_accounts(ruling: &Ruling, accounts: &[Account], notes: &mut Notes) {
    if ruling.verdict != Verdict::Conflict {
        return;
    }
    for account in accounts {
        let by = if account.repaired { " (a repairer's word)" } else { "" };
        let text = format!("{} tells the outcome {}{by}", account.source.as_str(), account.outcome);
        notes.say(Grade::Claimed, text, Some(&account.file), account.at_ms);
    }
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
        notes.find(&finding::LOG_BUDGET, "its writer cut the log at its budget", FILE);
    }
    if log.status_write_failed > 0 {
        let n = log.status_write_failed;
        let writes = if n == 1 { "write" } else { "writes" };
        let text = format!("{n} status {writes} failed: the status is behind the log");
        notes.find(&finding::STATUS_WRITES_LOST, text, FILE);
    }
    if !matches!(ruling.verdict, Verdict::Finished | Verdict::Running) {
        for event in log.last.iter().chain(&log.last_of_child) {
            let detail = event.detail.as_deref().map(|d| format!(": {}", clip(d, 200)));
            let text = format!("{}{}", clip(&event.kind, 80), detail.unwrap_or_default());
            notes.say(Grade::Claimed, text, FILE, event.at_ms);
        }
    }
}

/// Spec: RS-START-18.
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

/// Spec: RS-CTRL-04, RS-FLAG-05, RS-FLAG-07, RS-FLAG-16, RS-FLAG-21.
fn from_leftovers(e: &RunEvidence, ruling: &Ruling, notes: &mut Notes) {
    if e.temp.count > 0 {
        notes.flag(Flag::TempLitter);
        let some = if e.temp.measured < e.temp.count {
            format!(" in the first {}", e.temp.measured)
        } else {
            String::new()
        };
        let files = if e.temp.count == 1 { "file" } else { "files" };
        let text = format!("{} leftover temp {files}, {} bytes{some}", e.temp.count, e.temp.bytes);
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
            format!(", the oldest {} old", rules::ms(e.now_ms.saturating_sub(at).max(0)))
        });
        let nobody = if ruling.verdict == Verdict::Orphaned || e.life.word.is_gone() {
            "; nobody will read them"
        } else {
            ""
        };
        let closed = match e.control.closed.as_slice() {
            [] => String::new(),
            names => format!("; the inbox is closed ({})", names.join(", ")),
        };
        let dropped = e.control.invalid.first().map_or_else(String::new, |(file, why)| {
            let n = e.control.invalid.len();
            format!("; a runner would drop {n} of them unread, first {file}: {why}")
        });
        let requests = if n == 1 { "request" } else { "requests" };
        let text = format!("{n} control {requests} unread{age}{nobody}{closed}{dropped}");
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

/// Spec: RS-INDEX-05, RS-FLAG-17, RS-FLAG-18.
fn from_index(e: &RunEvidence, proof: &ProofSummary, notes: &mut Notes) {
    let Some(state) = status(e).and_then(StatusView::known_state) else {
        return;
    };
    match e.marker.marker_mtime_ms {
        // Before the proof is in, both a kept and a released marker are right.
        Some(at) if state.is_terminal() => {
            let age = e.now_ms.saturating_sub(at).max(0);
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

/// Spec: RS-FLAG-14, RS-FLAG-15, RS-FLAG-20.
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
        ("events.jsonl", e.events_mode),
        ("runner-startup.json", e.startup.meta().map_or(0, |m| m.mode)),
        ("runner-startup-ack.json", e.ack.meta().map_or(0, |m| m.mode)),
        ("runner-startup-confirm.json", e.confirm.meta().map_or(0, |m| m.mode)),
        ("runner-startup-proceed.json", e.proceed.meta().map_or(0, |m| m.mode)),
    ];
    if let Some((file, mode)) = modes.into_iter().find(|(_, mode)| mode & 0o022 != 0) {
        notes.flag(Flag::LoosePermissions);
        let name = if file.is_empty() { "the run directory" } else { file };
        let text = format!("{name} can be changed by other users (mode {mode:04o})");
        notes.find(&finding::LOOSE_PERMISSIONS, text, (!file.is_empty()).then_some(file));
    }
}

/// The first characters of a text, at most so many; a cut is shown.
pub(super) fn clip(text: &str, chars: usize) -> impl Display {
    Clipped { text, chars }
}

struct Clipped<'t> {
    text: &'t str,
    chars: usize,
}

impl Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.char_indices().nth(self.chars) {
            None => f.write_str(self.text),
            Some((at, _)) => write!(f, "{}…", &self.text[..at]),
        }
    }
}
