//! The texts of a repair: a status that is closed or follows its result, the result of a run that left none,
//! and the event that says so.
//!
//! Theory of operation. A repairer speaks for a process that is gone, so everything here is made from what
//! that process left. Members that nobody here knows stay, in the run and in each step; only what a repair
//! decides is set. The two rules of steps are those of [`reconcile`](super::reconcile): an open step takes
//! the account of its child in the result, else that of the run; a closed one is left alone.
//!
//! A repair is told by itself: the overlay of a status that can have one names no runner
//! ([`OBSERVER_UNAVAILABLE`](super::proof::OBSERVER_UNAVAILABLE)), and the log gets an event. Nothing here
//! ever says `observed`. Facts Q-20 to Q-34.

use super::document::{Document, object_text, spliced, string_text};
use super::error::DecodeError;
use super::open::{Open, Word as _};
use super::proof::ProofReason;
use super::raw::Raw;
use super::reconcile::{repair_overlay, step_after};
use super::state::{RunState, StepState};
use super::status::StatusView;
use super::{member, written, written_run};

/// Why a run is closed, the most certain cause that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its runner recorded that it could not start.
    StartUp(String),
    /// An observer saw it exit, with this code or signal.
    Exit(String),
    /// It left last words.
    LastWords,
    /// The system was started anew since.
    Reboot,
    /// Its own writes had failed.
    DiskFull,
    /// Nothing tells.
    Unknown,
}

impl Cause {
    /// A stable word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::StartUp(_) => "start-up",
            Self::Exit(_) => "exit",
            Self::LastWords => "last-words",
            Self::Reboot => "reboot",
            Self::DiskFull => "disk-full",
            Self::Unknown => "unknown",
        }
    }

    /// The end of a sentence about the run.
    fn clause(&self) -> String {
        match self {
            Self::StartUp(error) => format!("it could not start: {error}"),
            Self::Exit(how) => format!("its exit was seen ({how})"),
            Self::LastWords => "its last words follow".to_owned(),
            Self::Reboot => "the system was restarted since".to_owned(),
            Self::DiskFull => "its own writes had failed, as on a full disk".to_owned(),
            Self::Unknown => "nothing says why".to_owned(),
        }
    }
}

/// The explanation that a closed run carries: what became of its process, the cause, and its last words.
/// `gone` is the reason of the liveness. Facts Q-30.
/// Spec: RS-REC-10.
pub fn closing_message(gone: &str, cause: &Cause, last_words: Option<&str>) -> String {
    let mut text = format!(
        "The run was closed by a repair: {gone}, and it left no result; {}",
        cause.clause()
    );
    if let Some(words) = last_words.map(str::trim_end).filter(|words| !words.trim().is_empty()) {
        text.push_str("\n\n");
        text.push_str(words);
    }
    text
}

/// What a status becomes.
#[derive(Clone, Copy, Debug)]
pub struct Repair<'a> {
    /// The run.
    pub run_id: &'a str,
    /// When it is repaired, in ms since the epoch.
    pub now_ms: i64,
    /// The state that it gets.
    pub state: RunState,
    /// Why it did not succeed: the error of each open step, and of the run.
    pub error: Option<&'a str>,
    /// The payload whose account is taken, where there is one.
    pub result: Option<&'a Document<'a>>,
}

/// Members of a child in a result that its step takes over. Facts Q-21.
const OF_CHILD: [&str; 8] = [
    "sessionName",
    "sessionFile",
    "model",
    "thinking",
    "attemptedModels",
    "modelAttempts",
    "contextOverflow",
    "stopped",
];

impl Repair<'_> {
    /// The text of the repaired status. Facts Q-21 to Q-23, Q-31, Q-32.
    /// Spec: RS-REC-09, RS-REC-11, RS-REC-12.
    ///
    /// # Errors
    /// [`DecodeError::ReadOnly`] for a document that may not be rewritten.
    pub fn status(&self, doc: &Document<'_>) -> Result<String, DecodeError> {
        if let Some(why) = doc.read_only_reason() {
            return Err(DecodeError::ReadOnly { why });
        }
        let ended_at = doc.get("endedAt").and_then(Raw::number);
        let mut set = vec![
            ("state", string_text(self.state.as_str())),
            ("lastUpdate", self.now_ms.to_string()),
        ];
        // An end that was recorded is better than the time of a repair.
        if self.result.is_none() || ended_at.is_none() {
            set.push(("endedAt", self.now_ms.to_string()));
        }
        let own = self.result.and_then(|result| member::loose_string(result, "error"));
        let succeeded = matches!(self.state, RunState::Complete | RunState::Paused);
        if let Some(error) = own.as_deref().or(self.error).filter(|_| !succeeded) {
            set.push(("error", string_text(error)));
        }
        if let Some(steps) = self.steps(doc) {
            set.push(("steps", steps));
        }
        if let Some(overlay) = self.overlay(doc) {
            set.push(("processTerminal", overlay));
        }
        let mut without = vec!["activityState"];
        if self.result.is_some() {
            without.push("displayDismissedAt");
        }
        if without.iter().any(|key| doc.get(key).is_some()) {
            return Ok(written::rebuilt(doc, &without, &set));
        }
        let members: Vec<_> = set.iter().map(|(key, text)| (*key, text.as_str())).collect();
        doc.patched(&members)
    }

    fn overlay(&self, doc: &Document<'_>) -> Option<String> {
        let version = doc.get("lifecycleArtifactVersion").and_then(Raw::number);
        let there = match doc.get("processTerminal").filter(|raw| !raw.is_null()) {
            None => None,
            // One that does not read is somebody's account all the same.
            Some(raw) => Some(super::proof::Proof::read_raw(raw).ok()?.state),
        };
        let reason = match self.result {
            Some(_) => ProofReason::ObserverUnavailable,
            None => ProofReason::StaleRepair,
        };
        let proof = repair_overlay(version, there, self.run_id, reason)?;
        Some(written::indented(&written::proof(&proof, None), 2))
    }

    fn steps(&self, doc: &Document<'_>) -> Option<String> {
        let steps = doc.get("steps");
        let elements = steps.and_then(Raw::array).unwrap_or_default();
        if elements.is_empty() {
            // A failed run has a step that failed, for those who show steps only.
            let error = self.error.filter(|_| self.result.is_none())?;
            let at = self.now_ms.to_string();
            let step = object_text(&[
                ("agent", string_text("subagent")),
                ("status", string_text(StepState::Failed.as_str())),
                ("endedAt", at),
                ("exitCode", "1".to_owned()),
                ("error", string_text(error)),
            ]);
            return Some(format!("[\n    {}\n  ]", written::indented(&step, 4)));
        }
        let children = self.result.and_then(|r| r.get("results")).and_then(Raw::array);
        let children = children.unwrap_or_default();
        let repaired = |at: usize| {
            let step = elements.get(at)?.object()?;
            self.step(&step, children.get(at).and_then(|raw| raw.object()).as_ref())
        };
        Some(spliced(steps?, &elements, repaired))
    }

    /// One step; `None` leaves it as it is.
    fn step(&self, step: &Document<'_>, child: Option<&Document<'_>>) -> Option<String> {
        let word = step.get("status").and_then(Raw::string)?;
        let success = child.and_then(|child| child.get("success")).and_then(Raw::boolean);
        let after = step_after(&Open::read(&word), success, self.state)?;
        let number = |key: &str| step.get(key).and_then(Raw::number);
        let mut set: Vec<(&str, String)> = vec![("status", string_text(after.state.as_str()))];
        if number("endedAt").is_none() {
            set.push(("endedAt", self.now_ms.to_string()));
            if let Some(start) = step.get("startedAt").and_then(Raw::instant_ms) {
                let duration = self.now_ms.saturating_sub(start).max(0);
                set.push(("durationMs", duration.to_string()));
            }
        }
        if number("exitCode").is_none() {
            set.push(("exitCode", after.exit_code.to_string()));
        }
        let failed =
            matches!(after.state, StepState::Failed | StepState::Partial | StepState::Stopped);
        let own = child.and_then(|child| member::loose_string(child, "error"));
        let known = step.get("error").and_then(Raw::string).is_some_and(|text| !text.is_empty());
        if let Some(error) = own.as_deref().or(self.error).filter(|_| failed && !known) {
            set.push(("error", string_text(error)));
        }
        let of_child = |key: &'static str| {
            let raw = child?.get(key).filter(|raw| !raw.is_null())?;
            Some((key, raw.text().to_owned()))
        };
        set.extend(OF_CHILD.into_iter().filter_map(of_child));
        let members: Vec<_> = set.iter().map(|(key, text)| (*key, text.as_str())).collect();
        step.patched(&members).ok()
    }
}

/// The result of a run that is closed as failed; `None` without a session. `status` is the repaired one.
/// Facts Q-33.
/// Spec: RS-REC-13.
pub fn failed_result(
    status: &Document<'_>,
    run_id: &str,
    async_dir: &str,
    message: &str,
    now_ms: i64,
) -> Option<String> {
    let view = StatusView::read(status);
    view.session_id.as_deref().filter(|id| !id.is_empty())?;
    let session = status.get("sessionId")?;
    let names: Vec<&str> =
        view.steps.iter().map(|step| step.agent.as_deref().unwrap_or("subagent")).collect();
    let mode = view.mode.as_ref().and_then(Open::known);
    let agent = written_run::agent_label(mode, &names);
    let children: Vec<String> = view
        .steps
        .iter()
        .zip(&names)
        .map(|(step, name)| {
            let done = step.state.as_ref().and_then(Open::known).is_some_and(StepState::is_success);
            let mut child = vec![
                ("agent", string_text(name)),
                ("output", string_text("")),
                ("success", done.to_string()),
            ];
            if !done {
                child.push(("error", string_text(step.error.as_deref().unwrap_or(message))));
            }
            if let Some(file) = &step.session_file {
                child.push(("sessionFile", string_text(file)));
            }
            format!("\n    {}", written::indented(&object_text(&child), 4))
        })
        .collect();
    let mut members = vec![("id", string_text(run_id)), ("agent", string_text(&agent))];
    let copied = |key: &'static str| {
        let raw = status.get(key).filter(|raw| !raw.is_null())?;
        Some((key, raw.text().to_owned()))
    };
    members.extend(copied("mode"));
    members.extend(copied("completionOwnerId"));
    let duration = now_ms.saturating_sub(view.started_at_ms.unwrap_or(now_ms)).max(0);
    members.extend([
        ("success", "false".to_owned()),
        ("state", string_text(RunState::Failed.as_str())),
        ("summary", string_text(message)),
        ("results", format!("[{}\n  ]", children.join(","))),
        ("exitCode", "1".to_owned()),
        ("timestamp", now_ms.to_string()),
        ("durationMs", duration.to_string()),
        ("asyncDir", string_text(async_dir)),
        ("sessionId", session.text().to_owned()),
    ]);
    members.extend(copied("sessionFile"));
    Some(object_text(&members))
}

/// The line of the log that tells of a run that was closed. Facts Q-34.
pub fn closed_event(run_id: &str, now_ms: i64, cause: &Cause, message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let members = [
        ("status", string_text(RunState::Failed.as_str())),
        ("cause", string_text(cause.word())),
        ("message", string_text(first)),
    ];
    written_run::event("subagent.run.repaired_stale", run_id, now_ms, true, &members)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{"lifecycleArtifactVersion":3,"runId":"r","sessionId":"s","mode":"chain","state":"running",
        "startedAt":10,"lastUpdate":11,"odd":{"x":  1e400},
        "steps":[{"agent":"a","status":"complete","mine":1},{"agent":"b","status":"running","startedAt":20,"own":[1]},
        {"agent":"c","status":"frozen"}],"pid":7,
        "processTerminal":{"version":1,"state":"pending","runId":"r","runnerProcessInstanceId":"i"}}"#;

    fn repaired(source: &str, repair: &Repair<'_>) -> String {
        let doc = Document::parse(source).expect("JSON");
        repair.status(&doc).expect("may be rewritten")
    }

    fn closing(error: &str) -> Repair<'_> {
        let state = RunState::Failed;
        Repair { run_id: "r", now_ms: 100, state, error: Some(error), result: None }
    }

    #[test]
    fn a_closed_run_keeps_what_nobody_knows_and_what_had_ended() {
        let text = repaired(STATUS, &closing("gone"));
        for kept in [
            r#""odd":{"x":  1e400}"#,
            r#"{"agent":"a","status":"complete","mine":1}"#,
            r#""own":[1]"#,
        ] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        assert!(
            text.contains(r#"{"agent":"c","status":"frozen"}"#),
            "an unknown word is left alone: {text}"
        );
        let doc = Document::parse(&text).expect("JSON");
        let view = StatusView::read(&doc);
        assert_eq!(view.known_state(), Some(RunState::Failed));
        assert_eq!((view.ended_at_ms, view.error.as_deref()), (Some(100), Some("gone")));
        let step = &view.steps[1];
        assert_eq!(step.state.as_ref().and_then(Open::known), Some(StepState::Failed));
        assert_eq!((step.ended_at_ms, step.error.as_deref()), (Some(100), Some("gone")));
        let overlay = view.valid_overlay().expect("an overlay");
        assert!(overlay.is_of_a_repairer(), "the mark of a repair");
        assert_eq!(view.overlay_instance(), None, "it names no runner");
    }

    #[test]
    fn a_run_without_steps_gets_one_that_failed() {
        let text = repaired(r#"{"runId":"r","state":"running","pid":7}"#, &closing("gone"));
        let view = StatusView::read(&Document::parse(&text).expect("JSON"));
        assert_eq!(view.steps.len(), 1);
        assert_eq!(view.steps[0].error.as_deref(), Some("gone"));
        assert!(view.overlay.is_none(), "a status of an old version gets no overlay");
    }

    #[test]
    fn a_run_follows_its_result_step_by_step() {
        let result = r#"{"success":false,"state":"partial","results":[{"success":false},
            {"success":true,"model":"m","sessionFile":"/s.jsonl"}]}"#;
        let payload = Document::parse(result).expect("JSON");
        let state = RunState::Partial;
        let repair =
            Repair { run_id: "r", now_ms: 100, state, error: None, result: Some(&payload) };
        let dismissed =
            STATUS.replace(r#""pid":7"#, r#""pid":7,"displayDismissedAt":5,"activityState":"x""#);
        let text = repaired(&dismissed, &repair);
        assert!(!text.contains("displayDismissedAt") && !text.contains("activityState"), "{text}");
        let view = StatusView::read(&Document::parse(&text).expect("JSON"));
        assert_eq!(view.known_state(), Some(RunState::Partial));
        let states: Vec<_> =
            view.steps.iter().map(|s| s.state.as_ref().map_or("", |w| w.as_str())).collect();
        assert_eq!(
            states,
            ["complete", "complete", "frozen"],
            "its own end, the child's, a stranger's"
        );
        assert_eq!(view.steps[1].session_file.as_deref(), Some("/s.jsonl"));
    }

    #[test]
    fn a_result_is_made_only_for_a_session_and_says_which_steps_had_succeeded() {
        let text = repaired(STATUS, &closing("gone"));
        let doc = Document::parse(&text).expect("JSON");
        let result = failed_result(&doc, "r", "/runs/r", "gone", 100).expect("it has a session");
        let payload = Document::parse(&result).expect("JSON");
        assert_eq!(super::super::reconcile::result_state(&payload), RunState::Failed);
        assert!(result.contains(r#""agent": "chain:a->b->c""#), "{result}");
        let children = payload.get("results").and_then(Raw::array).expect("children");
        let success: Vec<_> = children
            .iter()
            .map(|c| c.object().and_then(|c| c.get("success")).and_then(Raw::boolean))
            .collect();
        assert_eq!(success, [Some(true), Some(false), Some(false)]);
        let old = STATUS.replace(r#""status":"complete""#, r#""status":"completed""#);
        let old = Document::parse(&old).expect("JSON");
        let of_old = failed_result(&old, "r", "/runs/r", "gone", 100).expect("it has a session");
        assert_eq!(of_old, result, "the old spelling is a success as well");
        let nobody = Document::parse(r#"{"state":"failed","sessionId":""}"#).expect("JSON");
        assert_eq!(failed_result(&nobody, "r", "/runs/r", "gone", 100), None);
    }

    #[test]
    fn a_document_with_duplicate_keys_is_not_rewritten() {
        let doc = Document::parse(r#"{"state":"running","state":"running"}"#).expect("JSON");
        assert!(closing("gone").status(&doc).is_err());
    }

    #[test]
    fn the_message_ends_in_the_last_words() {
        let text = closing_message("pid 7 is gone", &Cause::LastWords, Some("boom\n"));
        assert!(text.ends_with("its last words follow\n\nboom"), "{text}");
        let text = closing_message("pid 7 is gone", &Cause::Unknown, Some(" \n"));
        assert!(text.ends_with("nothing says why"), "{text}");
    }
}
