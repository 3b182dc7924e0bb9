//! `status.json`, read leniently.
//!
//! Theory of operation. The file has up to eleven kinds of writers (facts §3.1) and no schema
//! version, so a view never fails on what it does not know. It takes the members that decide
//! something, notes every member whose type the protocol needs and does not get ([`StatusView::damage`]),
//! and leaves the rest where it is. Whoever rewrites the file patches the
//! [`Document`], never this view.
//!
//! Not promised: that the values are true. A status is a claim of its last writer.
//! Spec: chapter 04, RS-STATUS-*.

use std::borrow::Cow;
use std::sync::Arc;

use super::document::{Document, Keys, Lookup};
use super::error::DecodeError;
use super::limits;
use super::open::Open;
use super::process::{RecordedIdentity, RecordedProcess};
use super::proof::Proof;
use super::raw::{Kind, Raw};
use super::scan;
use super::state::{RunMode, RunState, StepState};

/// What `status.json` claims, as far as it decides anything.
#[derive(Clone, Debug, Default)]
pub struct StatusView {
    /// `runId`; the directory's name is the identity, this is only compared with it.
    pub run_id: Option<String>,
    /// `sessionId`: the owning parent session.
    pub session_id: Option<String>,
    /// `toolCallId`: the host's id of the call that launched the run.
    pub tool_call_id: Option<String>,
    /// `lifecycleArtifactVersion`; absent before 0.32 and on workflow statuses.
    pub lifecycle_version: Option<i64>,
    /// `mode`.
    pub mode: Option<Open<RunMode>>,
    /// `state`, verbatim when it is not one of ours.
    pub state: Option<Open<RunState>>,
    /// The process the record names: `runnerPid`, else `ownerPid`, else `pid`.
    pub pid: Option<i64>,
    /// Which member gave [`StatusView::pid`].
    pub pid_member: Option<&'static str>,
    /// `pidNamespaceScope`, such as `pid:[4026531836]`.
    pub pid_namespace: Option<String>,
    /// `hostname`.
    pub hostname: Option<String>,
    /// Identity members beyond the pid.
    pub identity: RecordedIdentity,
    /// `startedAt`.
    pub started_at_ms: Option<i64>,
    /// `endedAt`.
    pub ended_at_ms: Option<i64>,
    /// `lastUpdate`; not a heartbeat.
    pub last_update_ms: Option<i64>,
    /// `lastActivityAt`.
    pub last_activity_ms: Option<i64>,
    /// `deadlineAt`.
    pub deadline_at_ms: Option<i64>,
    /// `timeoutMs`, a duration.
    pub timeout_ms: Option<i64>,
    /// `displayDismissedAt`.
    pub dismissed_at_ms: Option<i64>,
    /// `error`, when it is a non-empty string.
    pub error: Option<String>,
    /// `cwd`.
    pub cwd: Option<String>,
    /// `sessionFile` of the run.
    pub session_file: Option<String>,
    /// `isNested`.
    pub is_nested: bool,
    /// `parentWorkflowRunId`.
    pub parent_workflow_run_id: Option<String>,
    /// `stopped`.
    /// Spec: RS-STATUS-09.
    pub stopped: bool,
    /// `timedOut`.
    pub timed_out: bool,
    /// `steps`, at most [`limits::MAX_STEPS`] of them.
    pub steps: Vec<StepView>,
    /// Whether there are more steps than that.
    pub has_more_steps: bool,
    /// The overlay copy of the proof, as it reads.
    pub overlay: Option<Result<Arc<Proof>, DecodeError>>,
    /// Whether any step has `requestedModel` (0.68 and later).
    pub has_requested_model: bool,
    /// Whether any step has `attemptedModels` (0.67 and older).
    pub has_attempted_models: bool,
    /// Whether the object has a `steering` member: the runner writes it, the launcher does not.
    pub has_steering: bool,
    /// Whether a key occurs twice, which makes the record read-only.
    pub duplicate_keys: bool,
    /// Members whose type is not what the protocol needs. Non-empty means damaged.
    pub damage: Vec<DecodeError>,
    /// Members that the peers' own readers refuse although nothing here depends on them.
    pub complaints: Vec<DecodeError>,
}

/// What one step claims.
/// Spec: RS-STATUS-18.
#[derive(Clone, Debug, Default)]
pub struct StepView {
    /// `agent`.
    pub agent: Option<String>,
    /// `status`.
    pub state: Option<Open<StepState>>,
    /// `error`.
    pub error: Option<String>,
    /// `runId` of a workflow child.
    pub run_id: Option<String>,
    /// `async`: the child has its own run directory.
    pub is_async: Option<bool>,
    /// `sessionFile`.
    pub session_file: Option<String>,
    /// `startedAt`.
    pub started_at_ms: Option<i64>,
    /// `endedAt`.
    pub ended_at_ms: Option<i64>,
}

/// Where a text is cut: nothing that decides anything is that long, and a view is copied.
const LONGEST_TEXT_BYTES: usize = 64 << 10;

/// The members of a status that are looked at, in the order in which that is done.
static MEMBERS: Keys<34> = Keys::new([
    "runId",
    "sessionId",
    "toolCallId",
    "mode",
    "state",
    "pidNamespaceScope",
    "hostname",
    RecordedIdentity::KEYS[0],
    RecordedIdentity::KEYS[1],
    RecordedIdentity::KEYS[2],
    RecordedIdentity::KEYS[3],
    RecordedIdentity::KEYS[4],
    "startedAt",
    "endedAt",
    "lastUpdate",
    "lastActivityAt",
    "deadlineAt",
    "timeoutMs",
    "displayDismissedAt",
    "error",
    "cwd",
    "sessionFile",
    "isNested",
    "parentWorkflowRunId",
    "stopped",
    "timedOut",
    "steering",
    "processTerminal",
    "lifecycleArtifactVersion",
    "runnerPid",
    "ownerPid",
    "pid",
    "steps",
    "lane",
]);

/// The members of a step that are looked at, in that order.
static STEP_MEMBERS: Keys<12> = Keys::new([
    "requestedModel",
    "attemptedModels",
    "model",
    "thinking",
    "agent",
    "status",
    "error",
    "runId",
    "async",
    "sessionFile",
    "startedAt",
    "endedAt",
]);

/// Reads members with a needed type, noting each mismatch.
struct Members<L> {
    doc: L,
    /// The step, when the members are those of one.
    step: Option<usize>,
    damage: Vec<DecodeError>,
}

impl<'a, L: Lookup<'a>> Members<L> {
    /// Absent and `null` both mean "unset": writers turn non-finite numbers into `null`.
    fn get(&self, key: &str) -> Option<Raw<'a>> {
        self.doc.get(key).filter(|raw| !raw.is_null())
    }

    fn note(&mut self, key: &str, expected: &'static str) {
        let prefix = self.step.map_or(String::new(), |i| format!("steps[{i}]."));
        self.damage.push(DecodeError::member(prefix + key, expected));
    }

    fn string(&mut self, key: &str) -> Option<Cow<'a, str>> {
        let raw = self.get(key)?;
        let text = raw.string_start(LONGEST_TEXT_BYTES);
        if text.is_none() {
            self.note(key, "a string");
        }
        text
    }

    fn instant(&mut self, key: &str) -> Option<i64> {
        let raw = self.get(key)?;
        let at = raw.instant_ms();
        if at.is_none() {
            self.note(key, "an instant in milliseconds since 1970");
        }
        at
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Raw::boolean).unwrap_or(false)
    }

    fn loose_string(&self, key: &str) -> Option<String> {
        let text = self.get(key)?.string_start(LONGEST_TEXT_BYTES)?;
        Some(text.into_owned())
    }

    fn filled(&self, key: &str) -> Option<String> {
        self.loose_string(key).filter(|text| !text.is_empty())
    }
}

impl StatusView {
    /// Reads the members that matter. Never fails: what is wrong is in [`StatusView::damage`].
    /// Spec: RS-STATUS-01, RS-STATUS-02.
    pub fn read(doc: &Document<'_>) -> Self {
        let (members, duplicate_keys) = doc.pick_noting_repeats(&MEMBERS);
        let mut m = Members { doc: members, step: None, damage: Vec::new() };
        let mut view = Self {
            run_id: m.string("runId").map(Cow::into_owned),
            session_id: m.string("sessionId").map(Cow::into_owned),
            tool_call_id: m.loose_string("toolCallId"),
            mode: m.string("mode").map(|w| Open::read(&w)),
            state: m.string("state").map(|w| Open::read(&w)),
            pid_namespace: m.loose_string("pidNamespaceScope"),
            hostname: m.loose_string("hostname"),
            identity: RecordedIdentity::of(&m.doc),
            started_at_ms: m.instant("startedAt"),
            ended_at_ms: m.instant("endedAt"),
            last_update_ms: m.instant("lastUpdate"),
            last_activity_ms: m.instant("lastActivityAt"),
            deadline_at_ms: m.instant("deadlineAt"),
            timeout_ms: m.get("timeoutMs").and_then(Raw::integer).filter(|ms| *ms >= 0),
            dismissed_at_ms: m.instant("displayDismissedAt"),
            error: m.filled("error"),
            cwd: m.loose_string("cwd"),
            session_file: m.filled("sessionFile"),
            is_nested: m.flag("isNested"),
            parent_workflow_run_id: m.loose_string("parentWorkflowRunId"),
            stopped: m.flag("stopped"),
            timed_out: m.flag("timedOut"),
            has_steering: m.get("steering").is_some(),
            overlay: m.doc.get("processTerminal").map(|raw| Proof::read_raw(raw).map(Arc::new)),
            duplicate_keys,
            ..Self::default()
        };
        if let Some(raw) = m.get("lifecycleArtifactVersion") {
            view.lifecycle_version = raw.integer();
            if view.lifecycle_version.is_none() {
                m.note("lifecycleArtifactVersion", "a whole number");
            }
        }
        if view.state.is_none() && m.get("state").is_none() {
            m.note("state", "a string");
        }
        view.read_pid(&mut m);
        view.read_steps(&mut m);
        view.read_lane(&m);
        view.damage.append(&mut m.damage);
        view
    }

    /// The proof in the bytes of a file beside the status that this view is of, where they are the overlay but
    /// for their indentation: then they read the same and need not be read. `None` says nothing about them.
    pub fn proof_like_overlay(&self, status: &Document<'_>, bytes: &[u8]) -> Option<Arc<Proof>> {
        let overlay = self.overlay.as_ref()?.as_ref().ok()?;
        let copy = status.get("processTerminal")?.text();
        scan::is_same_but_for_indentation(bytes, copy).then(|| Arc::clone(overlay))
    }

    /// Spec: RS-STATUS-14.
    fn read_pid<'a>(&mut self, m: &mut Members<impl Lookup<'a>>) {
        for key in ["runnerPid", "ownerPid", "pid"] {
            let Some(raw) = m.get(key) else { continue };
            if raw.kind() != Kind::Number {
                m.note(key, "a process id");
                continue;
            }
            if self.pid.is_some() {
                continue;
            }
            // A number that is no pid (0, negative, fraction) is kept as 0: recorded, never probed.
            self.pid = Some(raw.integer().filter(|n| *n > 0).unwrap_or(0));
            self.pid_member = Some(key);
        }
    }

    fn read_steps<'a>(&mut self, m: &mut Members<impl Lookup<'a>>) {
        let Some(raw) = m.get("steps") else { return };
        let Some(elements) = raw.elements(limits::MAX_STEPS + 1) else {
            m.note("steps", "an array");
            return;
        };
        for (i, element) in elements.enumerate() {
            if i == limits::MAX_STEPS {
                self.has_more_steps = true;
                break;
            }
            let Some(step) = element.object() else {
                m.note(&format!("steps[{i}]"), "an object");
                continue;
            };
            let doc = step.pick(&STEP_MEMBERS);
            let mut s = Members { doc, step: Some(i), damage: Vec::new() };
            self.has_requested_model |= s.get("requestedModel").is_some();
            self.has_attempted_models |= s.get("attemptedModels").is_some();
            for key in ["model", "thinking"] {
                if s.get(key).is_some_and(|raw| raw.kind() != Kind::String) {
                    let member = format!("steps[{i}].{key}");
                    self.complaints.push(DecodeError::member(member, "a string"));
                }
            }
            self.steps.push(StepView {
                agent: s.loose_string("agent"),
                state: s.string("status").map(|w| Open::read(&w)),
                error: s.filled("error"),
                run_id: s.loose_string("runId"),
                is_async: s.get("async").and_then(Raw::boolean),
                session_file: s.filled("sessionFile"),
                started_at_ms: s.instant("startedAt"),
                ended_at_ms: s.instant("endedAt"),
            });
            m.damage.append(&mut s.damage);
        }
    }

    /// Peers refuse the whole status when `lane` is malformed (facts S-22); we only say so.
    fn read_lane<'a>(&mut self, m: &Members<impl Lookup<'a>>) {
        if m.doc.get("lane").is_some_and(|raw| raw.kind() != Kind::Object) {
            self.complaints.push(DecodeError::member("lane", "an object"));
        }
    }

    /// The state, when it is one of the protocol's words.
    pub fn known_state(&self) -> Option<RunState> {
        self.state.as_ref().and_then(Open::known)
    }

    /// The instant by which the run wanted to be over: `deadlineAt`, else `startedAt` plus
    /// `timeoutMs`. Spec: RS-FLAG-08.
    pub fn due_at_ms(&self) -> Option<i64> {
        let by_timeout = || self.started_at_ms?.checked_add(self.timeout_ms?);
        self.deadline_at_ms.or_else(by_timeout)
    }

    /// Whether the run is led by a controller inside its host process.
    pub fn is_workflow(&self) -> bool {
        self.mode.as_ref().and_then(Open::known) == Some(RunMode::Workflow)
    }

    /// Whether every step is `pending` (and there is at least one).
    pub fn all_steps_pending(&self) -> bool {
        !self.steps.is_empty()
            && self
                .steps
                .iter()
                .all(|s| s.state.as_ref().and_then(Open::known) == Some(StepState::Pending))
    }

    /// The newest instant that the record itself names for a write: never the file's time.
    /// Spec: RS-STATUS-11.
    pub fn last_write_ms(&self) -> Option<i64> {
        let own = self.started_at_ms.max(self.last_update_ms);
        let own = own.max(self.last_activity_ms).max(self.ended_at_ms);
        self.steps.iter().fold(own, |last, s| last.max(s.started_at_ms).max(s.ended_at_ms))
    }

    /// The process that it names.
    pub fn process(&self) -> RecordedProcess<'_> {
        RecordedProcess {
            pid: self.pid,
            // An empty name names no host.
            host: self.hostname.as_deref().filter(|host| !host.is_empty()),
            pid_namespace: self.pid_namespace.as_deref(),
            identity: self.identity.clone(),
            first_named_ms: self.started_at_ms,
            last_write_ms: self.last_write_ms(),
        }
    }

    /// The session file that a resume would use: the run's, else that of the only or last step.
    pub fn resume_session_file(&self) -> Option<&str> {
        self.session_file
            .as_deref()
            .or_else(|| self.steps.iter().rev().find_map(|s| s.session_file.as_deref()))
    }

    /// The overlay, when it reads.
    pub fn valid_overlay(&self) -> Option<&Proof> {
        self.overlay.as_ref()?.as_deref().ok()
    }

    /// Whether it carries the mark of a repair.
    pub fn is_repaired(&self) -> bool {
        self.valid_overlay().is_some_and(Proof::is_of_a_repairer)
    }

    /// The runner instance named by the overlay, unless it is a repairer's placeholder.
    /// Spec: RS-STATUS-16.
    pub fn overlay_instance(&self) -> Option<&str> {
        let proof = self.valid_overlay()?;
        (proof.instance_id != super::proof::OBSERVER_UNAVAILABLE).then_some(&*proof.instance_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_that_is_the_overlay_but_for_indentation_reads_as_it_would_alone() {
        let proof = "{\n  \"version\": 1,\n  \"state\": \"pending\",\n  \"runId\": \"run-1\",\n  \
                     \"runnerProcessInstanceId\": \"i\"\n}";
        let deeper = proof.replace('\n', "\n  ");
        let status = format!("{{\n  \"state\": \"complete\",\n  \"processTerminal\": {deeper}\n}}");
        let doc = Document::parse(&status).expect("an object");
        let view = StatusView::read(&doc);
        let alone = Proof::read(&Document::parse(proof).expect("an object")).expect("a proof");
        assert_eq!(view.proof_like_overlay(&doc, proof.as_bytes()), Some(Arc::new(alone)));
        for other in [
            proof.replace("pending", "unknown"),
            proof.replace("run-1", "run-2"),
            proof.replace('}', ""),
            format!("{proof} x"),
        ] {
            assert_eq!(view.proof_like_overlay(&doc, other.as_bytes()), None, "{other}");
        }
        let broken = status.replace("\"version\": 1", "\"version\": 2");
        let (doc, proof) = (Document::parse(&broken).expect("an object"), proof.replace('1', "2"));
        let view = StatusView::read(&doc);
        let told = view.proof_like_overlay(&doc, proof.as_bytes());
        assert_eq!(told, None, "an overlay that is no proof tells nothing of a file");
    }

    #[test]
    fn a_process_is_told_with_its_newest_write_and_an_empty_host_is_none() {
        let text = r#"{"state":"running","pid":7,"hostname":"","startedAt":5,"lastUpdate":8,
            "steps":[{"agent":"a","status":"running","startedAt":9}]}"#;
        let view = StatusView::read(&Document::parse(text).expect("an object"));
        let process = view.process();
        assert_eq!((process.pid, process.host), (Some(7), None));
        assert_eq!((process.first_named_ms, process.last_write_ms), (Some(5), Some(9)));
    }
}
