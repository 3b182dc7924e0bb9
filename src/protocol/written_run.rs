//! The texts of a runner of plain commands: its steps, the lines of its log, its result.
//!
//! Theory of operation. A runner keeps an account of each step in memory ([`StepAccount`]) and writes all
//! of them whenever one changes, as the member `steps` of its status. The result tells the same once more,
//! with the end of each output. Members that say nothing are left out; the order is that of the existing
//! runners.
//!
//! Not promised: members of a step that somebody else added; a runner owns its steps (facts S-4).
//! Spec: RS-STEP-03, RS-STEP-07; facts §3.5, §3.8, S-41, S-93.

use serde::Serialize;

use super::document::Document;
use super::limits::LIFECYCLE_VERSION;
use super::open::Word as _;
use super::state::{RunMode, RunState, StepState};
use super::written::{PreparedProof, indented, pretty, rebuilt, string};

/// What a step is doing just now. Facts §3.5, S-46.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// When it was last seen to do something, in ms since the epoch.
    #[serde(rename = "lastActivityAt", skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<i64>,
    /// The tool that it uses.
    #[serde(rename = "currentTool", skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Since when it uses it, in ms since the epoch.
    #[serde(rename = "currentToolStartedAt", skip_serializing_if = "Option::is_none")]
    pub tool_since_ms: Option<i64>,
    /// The file that it works on.
    #[serde(rename = "currentPath", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many turns it has taken.
    #[serde(rename = "turnCount", skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// How many tools it has used.
    #[serde(rename = "toolCount", skip_serializing_if = "Option::is_none")]
    pub tools: Option<u64>,
}

impl Activity {
    /// The same of somebody who has stopped: what was done stays, what is being done does not.
    #[must_use]
    pub fn at_rest(&self) -> Self {
        Self { tool: None, tool_since_ms: None, path: None, ..self.clone() }
    }

    /// The members of a run that does this, as JSON texts. A member that says nothing is `null`, which every
    /// reader takes for absent, so that nothing of an earlier activity is left. Nothing is said of a run
    /// that was never active.
    pub fn members(&self) -> Vec<(&'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        let text = |text: &Option<String>| text.as_deref().map(string);
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let at = |at: Option<i64>| at.map(|at| at.to_string());
        [
            ("lastActivityAt", at(self.at_ms)),
            ("currentTool", text(&self.tool)),
            ("currentToolStartedAt", at(self.tool_since_ms)),
            ("currentPath", text(&self.path)),
            ("turnCount", number(self.turns)),
            ("toolCount", number(self.tools)),
        ]
        .map(|(key, text)| (key, text.unwrap_or_else(|| "null".to_owned())))
        .into()
    }
}

/// One step, as its runner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepAccount {
    /// Its name.
    pub agent: String,
    /// Where it is.
    pub state: StepState,
    /// When it was started, in ms since the epoch.
    pub started_at_ms: Option<i64>,
    /// When it ended, in ms since the epoch.
    pub ended_at_ms: Option<i64>,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Why it failed, for people.
    pub error: Option<String>,
    /// Whether it was ended for lack of time.
    pub timed_out: bool,
    /// What it is doing.
    pub activity: Activity,
    /// Members of its runner: names and JSON texts. None of ours is among them ([`is_of_step`]).
    pub more: Vec<(String, String)>,
}

impl StepAccount {
    /// A step that has not begun.
    pub fn pending(agent: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            state: StepState::Pending,
            started_at_ms: None,
            ended_at_ms: None,
            exit_code: None,
            signal: None,
            error: None,
            timed_out: false,
            activity: Activity::default(),
            more: Vec::new(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepText<'a> {
    agent: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_signal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(flatten)]
    activity: &'a Activity,
    process_terminal: PreparedProof<'a>,
}

/// The members of a step that this library writes.
const OF_STEP: [&str; 16] = [
    "agent",
    "status",
    "startedAt",
    "endedAt",
    "durationMs",
    "exitCode",
    "processSignal",
    "timedOut",
    "stopped",
    "error",
    "lastActivityAt",
    "currentTool",
    "currentToolStartedAt",
    "currentPath",
    "turnCount",
    "toolCount",
];

/// Whether a member of a step is written by this library, or by an observer, and so is nobody else's to set.
pub fn is_of_step(key: &str) -> bool {
    OF_STEP.contains(&key) || key == "processTerminal"
}

/// The member `steps` of a status, moved to its place. Every step is pending for a proof (facts S-41).
pub fn steps(accounts: &[StepAccount], run_id: &str, instance_id: &str) -> String {
    let texts: Vec<_> = accounts
        .iter()
        .enumerate()
        .map(|(at, step)| {
            let text = pretty(&step_text(step, run_id, instance_id, at));
            format!("\n    {}", indented(&with_more(text, &step.more), 4))
        })
        .collect();
    if texts.is_empty() { "[]".to_owned() } else { format!("[{}\n  ]", texts.join(",")) }
}

fn with_more(text: String, more: &[(String, String)]) -> String {
    if more.is_empty() {
        return text;
    }
    let doc = Document::parse(&text).expect("an object that was written here");
    let more: Vec<_> = more.iter().map(|(key, text)| (key.as_str(), text.clone())).collect();
    rebuilt(&doc, &[], &more)
}

fn step_text<'a>(
    step: &'a StepAccount,
    run_id: &'a str,
    instance_id: &'a str,
    at: usize,
) -> StepText<'a> {
    StepText {
        agent: &step.agent,
        status: step.state.as_str(),
        started_at: step.started_at_ms,
        ended_at: step.ended_at_ms,
        duration_ms: step.ended_at_ms.zip(step.started_at_ms).map(|(end, start)| end - start),
        exit_code: step.exit_code,
        process_signal: step.signal.as_deref(),
        timed_out: step.timed_out.then_some(true),
        stopped: (step.state == StepState::Stopped).then_some(true),
        error: step.error.as_deref(),
        activity: &step.activity,
        process_terminal: PreparedProof::pending_step(run_id, instance_id, at),
    }
}

/// One line of the log, without its end. `members` are keys and JSON texts. Facts §3.8.
pub fn event(
    kind: &str,
    run_id: &str,
    now_ms: i64,
    is_versioned: bool,
    members: &[(&str, String)],
) -> String {
    let version = match is_versioned {
        true => format!(r#","lifecycleArtifactVersion":{LIFECYCLE_VERSION}"#),
        false => String::new(),
    };
    let (kind, run_id) = (string(kind), string(run_id));
    let rest: String = members.iter().map(|(key, text)| format!(",\"{key}\":{text}")).collect();
    format!(r#"{{"type":{kind}{version},"ts":{now_ms},"runId":{run_id}{rest}}}"#)
}

/// A final result. Facts S-93.
#[derive(Clone, Copy, Debug)]
pub struct RunResult<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The owning session.
    pub session_id: &'a str,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// The shape of the run.
    pub mode: RunMode,
    /// How it ended.
    pub state: RunState,
    /// Why it did not succeed, for people.
    pub error: Option<&'a str>,
    /// Whether it was ended for lack of time.
    pub timed_out: bool,
    /// Its steps.
    pub steps: &'a [StepAccount],
    /// The end of the output of each step.
    pub outputs: &'a [String],
    /// The end, in ms since the epoch.
    pub ended_at_ms: i64,
    /// From start to end, in ms.
    pub duration_ms: i64,
    /// The working directory.
    pub cwd: &'a str,
    /// The run directory.
    pub async_dir: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultText<'a> {
    lifecycle_artifact_version: i64,
    id: &'a str,
    agent: String,
    mode: &'a str,
    success: bool,
    state: &'a str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
    results: Vec<StepResult<'a>>,
    exit_code: i64,
    timestamp: i64,
    duration_ms: i64,
    cwd: &'a str,
    async_dir: &'a str,
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_owner_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepResult<'a> {
    agent: &'a str,
    output: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_signal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// The agent of a whole run, made of those of its steps. Facts S-93.
pub(super) fn agent_label(mode: Option<RunMode>, names: &[&str]) -> String {
    match mode {
        Some(RunMode::Parallel) => format!("parallel:{}", names.join("+")),
        Some(RunMode::Chain) => format!("chain:{}", names.join("->")),
        // A run without steps counts as one of this agent (facts Q-31).
        _ => names.first().copied().unwrap_or("subagent").to_owned(),
    }
}

impl RunResult<'_> {
    /// The text of the payload.
    pub fn text(&self) -> String {
        let names: Vec<_> = self.steps.iter().map(|step| step.agent.as_str()).collect();
        let agent = agent_label(Some(self.mode), &names);
        let success = self.state == RunState::Complete;
        let flag = |yes: bool| yes.then_some(true);
        let results = self.steps.iter().enumerate().map(|(at, step)| StepResult {
            agent: &step.agent,
            output: self.outputs.get(at).map_or("", String::as_str),
            success: step.state == StepState::Complete,
            skipped: flag(step.state == StepState::Pending),
            interrupted: flag(step.state == StepState::Paused),
            timed_out: flag(step.timed_out),
            stopped: flag(step.state == StepState::Stopped),
            exit_code: step.exit_code,
            process_signal: step.signal.as_deref(),
            error: step.error.as_deref(),
        });
        let done = self.steps.iter().filter(|step| step.state == StepState::Complete).count();
        pretty(&ResultText {
            lifecycle_artifact_version: LIFECYCLE_VERSION,
            id: self.run_id,
            agent,
            mode: self.mode.as_str(),
            success,
            state: self.state.as_str(),
            summary: format!("{done} of {} steps succeeded", self.steps.len()),
            error: self.error,
            stopped: flag(self.state == RunState::Stopped),
            timed_out: flag(self.timed_out),
            results: results.collect(),
            exit_code: i64::from(!matches!(self.state, RunState::Complete | RunState::Paused)),
            timestamp: self.ended_at_ms,
            duration_ms: self.duration_ms,
            cwd: self.cwd,
            async_dir: self.async_dir,
            session_id: self.session_id,
            completion_owner_id: self.completion_owner_id,
        })
    }
}

/// A marker that closes an inbox. Facts C-5.
pub fn inbox_closed(closed_at_ms: i64, state: Option<RunState>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Closed<'a> {
        version: u8,
        closed_at: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'a str>,
    }
    pretty(&Closed {
        version: 1,
        closed_at: closed_at_ms,
        state: state.map(|state| state.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Document;
    use crate::protocol::control::InboxClosed;
    use crate::protocol::proof::{Proof, ProofState};
    use crate::protocol::result::ResultView;
    use crate::protocol::status::StatusView;

    fn accounts() -> Vec<StepAccount> {
        let done = StepAccount {
            state: StepState::Complete,
            started_at_ms: Some(5),
            ended_at_ms: Some(9),
            exit_code: Some(0),
            ..StepAccount::pending("a")
        };
        let killed = StepAccount {
            state: StepState::Failed,
            signal: Some("SIGKILL".to_owned()),
            error: Some("ended by \"SIGKILL\"".to_owned()),
            timed_out: true,
            ..StepAccount::pending("b")
        };
        vec![done, killed, StepAccount::pending("c")]
    }

    #[test]
    fn steps_read_back_with_a_pending_proof_each() {
        let steps = steps(&accounts(), "r", "i");
        let text = format!(r#"{{"runId":"r","state":"running","steps":{steps}}}"#);
        let doc = Document::parse(&text).expect("JSON");
        let view = StatusView::read(&doc);
        assert_eq!((view.damage.as_slice(), view.steps.len()), (&[][..], 3), "{text}");
        let raw = doc.get("steps").and_then(|raw| raw.array()).expect("an array");
        let overlay = raw[1].object().expect("an object").get("processTerminal").expect("there");
        let proof = Proof::read_step(overlay).expect("valid");
        assert_eq!((proof.state, proof.child_index), (ProofState::Pending, Some(1)));
        assert!(text.contains(r#""durationMs": 4"#) && text.contains("SIGKILL"), "{text}");
    }

    #[test]
    fn a_result_and_an_event_read_back_as_they_were_meant() {
        let (steps, outputs) = (accounts(), vec!["last words".to_owned()]);
        let result = RunResult {
            run_id: "r",
            session_id: "S",
            completion_owner_id: None,
            mode: RunMode::Chain,
            state: RunState::Failed,
            error: Some("why"),
            timed_out: true,
            steps: &steps,
            outputs: &outputs,
            ended_at_ms: 9,
            duration_ms: 4,
            cwd: "/",
            async_dir: "/r",
        };
        let text = result.text();
        let view = ResultView::read(&Document::parse(&text).expect("JSON"));
        assert_eq!((view.outcome, view.session_id.as_deref()), (Some(RunState::Failed), Some("S")));
        assert!(text.contains("\"agent\": \"chain:a->b->c\""), "{text}");
        assert!(text.contains("\"exitCode\": 1") && text.contains("last words"), "{text}");
        let line = event("subagent.run.started", "r", 5, true, &[("pid", "7".to_owned())]);
        let event = Document::parse(&line).expect("one line of JSON");
        assert_eq!(event.get("lifecycleArtifactVersion").and_then(|raw| raw.integer()), Some(3));
        let closed = inbox_closed(5, Some(RunState::Complete));
        let closed = InboxClosed::read(&Document::parse(&closed).expect("JSON")).expect("a marker");
        assert_eq!((closed.closed_at_ms, closed.state.as_deref()), (5, Some("complete")));
    }
}
