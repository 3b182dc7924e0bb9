//! The status of a new run, and intended changes of one, as this implementation writes them.
//!
//! Theory of operation. [`FirstStatus`] is the whole text that a launcher writes right after the spawn:
//! two spaces of indentation, absent members left out, in the order in which the existing launchers
//! write them, our additive members right after the pid. Everything later is a [`StatusPatch`]: a list
//! of members and their new texts, which the store puts into the text that is there, so that no
//! member of anybody else is lost.
//!
//! A patch says what is wanted, not whether it may be: who owns which member, and which account gives
//! way to which, is [`account`](super::account)'s.
//!
//! Not promised: that a later writer keeps our members. A runner of another implementation replaces the
//! whole status from its memory; then the record says of its process what that implementation says.
//! Spec: RS-RUN-04, RS-RUN-05, RS-ATOM-10; facts S-1, S-2, S-40.

use serde::Serialize;

use super::open::Word as _;
use super::process::ProcessRecord;
use super::state::{RunMode, RunState};
use super::written;

/// The first status of a detached run. Facts S-1, S-40.
#[derive(Clone, Copy, Debug)]
pub struct FirstStatus<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The owning session. Without it no result is ever written (facts S-98).
    pub session_id: Option<&'a str>,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// The tool call that launched the run.
    pub tool_call_id: Option<&'a str>,
    /// The shape of the run.
    pub mode: RunMode,
    /// The agents of its steps, all pending.
    pub agents: &'a [&'a str],
    /// The groups among them.
    pub groups: &'a [StepGroup],
    /// When it was started, by the launcher's account.
    pub started_at_ms: i64,
    /// The runner's process.
    pub process: &'a ProcessRecord,
    /// The instance that the launcher chose for the runner.
    pub instance_id: &'a str,
}

/// Steps that run side by side: a part of the flat list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepGroup {
    /// Flat index of the first one.
    pub start: usize,
    /// How many there are.
    pub count: usize,
    /// The logical step that they are.
    pub step_index: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupText {
    start: usize,
    count: usize,
    step_index: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FirstText<'a> {
    lifecycle_artifact_version: i64,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_owner_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    mode: &'a str,
    state: &'a str,
    started_at: i64,
    last_update: i64,
    current_step: usize,
    chain_step_count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parallel_groups: Vec<GroupText>,
    steps: Vec<StepText<'a>>,
    #[serde(flatten)]
    process: &'a ProcessRecord,
    process_terminal: written::PreparedProof<'a>,
}

#[derive(Serialize)]
struct StepText<'a> {
    agent: &'a str,
    status: &'a str,
}

fn group_text(group: &StepGroup) -> GroupText {
    GroupText { start: group.start, count: group.count, step_index: group.step_index }
}

/// The member `parallelGroups` of a status, moved to its place.
pub fn groups_text(groups: &[StepGroup]) -> String {
    let texts: Vec<_> = groups.iter().map(group_text).collect();
    written::indented(&written::pretty(&texts), 2)
}

impl FirstStatus<'_> {
    /// The text of the file.
    pub fn text(&self) -> String {
        written::pretty(&FirstText {
            lifecycle_artifact_version: super::limits::LIFECYCLE_VERSION,
            run_id: self.run_id,
            session_id: self.session_id,
            completion_owner_id: self.completion_owner_id,
            tool_call_id: self.tool_call_id,
            mode: self.mode.as_str(),
            state: RunState::Running.as_str(),
            started_at: self.started_at_ms,
            last_update: self.started_at_ms,
            current_step: 0,
            // A group is one logical step, however many run in it.
            chain_step_count: self
                .groups
                .iter()
                .fold(self.agents.len(), |n, group| (n + 1).saturating_sub(group.count)),
            parallel_groups: self.groups.iter().map(group_text).collect(),
            steps: self.agents.iter().map(|agent| StepText { agent, status: "pending" }).collect(),
            process: self.process,
            process_terminal: written::PreparedProof::pending(self.run_id, self.instance_id),
        })
    }
}

/// An intended change of a status: members and the JSON text of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPatch {
    state: Option<RunState>,
    process: Option<ProcessRecord>,
    members: Vec<(&'static str, String)>,
}

impl StatusPatch {
    /// A change made at an instant that changes nothing else yet.
    pub fn at(now_ms: i64) -> Self {
        Self::empty().member("lastUpdate", now_ms.to_string())
    }

    /// A change that changes nothing yet.
    pub fn empty() -> Self {
        Self { state: None, process: None, members: Vec::new() }
    }

    /// Sets the state.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.state = Some(state);
        self.member("state", written::string(state.as_str()))
    }

    /// Sets the instant of a confirmed end.
    #[must_use]
    pub fn ended_at_ms(self, at_ms: i64) -> Self {
        self.member("endedAt", at_ms.to_string())
    }

    /// Sets the error of the run.
    #[must_use]
    pub fn error(self, text: &str) -> Self {
        self.member("error", written::string(text))
    }

    /// Sets the process, with everything that is recorded of it.
    #[must_use]
    pub fn process(mut self, process: ProcessRecord) -> Self {
        self.process = Some(process);
        self
    }

    /// Sets any other member to a JSON text. The same key again replaces what was set before.
    #[must_use]
    pub fn member(mut self, key: &'static str, json: String) -> Self {
        match self.members.iter_mut().find(|(known, _)| *known == key) {
            Some(member) => member.1 = json,
            None => self.members.push((key, json)),
        }
        self
    }

    /// The state that it sets, if it does so through [`StatusPatch::state`].
    pub fn new_state(&self) -> Option<RunState> {
        self.state
    }

    /// Whether it sets a member.
    pub fn sets(&self, key: &str) -> bool {
        self.keys().any(|known| known == key)
    }

    /// Every member that it sets.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let process = self.process.iter().flat_map(ProcessRecord::members).map(|(key, _)| key);
        self.members.iter().map(|(key, _)| *key).chain(process)
    }

    /// The members for a text in which `has` says what is there: a member of the process that is not
    /// known is set to `null`, which every reader takes for absent, where an old one stands.
    pub fn texts(&self, has: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let process = self.process.iter().flat_map(ProcessRecord::members);
        let process = process.filter_map(|(key, text)| match text {
            Some(text) => Some((key, text)),
            None => has(key).then(|| (key, "null".to_owned())),
        });
        self.members.iter().cloned().chain(process).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Document;
    use crate::protocol::process::RecordedIdentity;
    use crate::protocol::proof::ProofState;
    use crate::protocol::status::StatusView;

    fn process() -> ProcessRecord {
        ProcessRecord {
            pid: 42,
            host: Some("h".to_owned()),
            pid_namespace: Some("pid:[1]".to_owned()),
            identity: RecordedIdentity {
                start_identity: Some("linux:7".to_owned()),
                boot_id: Some("b".to_owned()),
                pidfd_inode: Some(u64::MAX),
            },
        }
    }

    #[test]
    fn a_first_status_reads_back_as_it_was_meant() {
        let text = FirstStatus {
            run_id: "r",
            session_id: Some("S \"q\""),
            completion_owner_id: Some("o"),
            tool_call_id: Some("t"),
            mode: RunMode::Parallel,
            agents: &["a", "b"],
            groups: &[StepGroup { start: 0, count: 2, step_index: 0 }],
            started_at_ms: 5,
            process: &process(),
            instance_id: "i",
        }
        .text();
        assert!(text.contains("\"chainStepCount\": 1"), "a group is one logical step: {text}");
        assert!(text.contains("\"stepIndex\": 0"), "{text}");
        let view = StatusView::read(&Document::parse(&text).expect("JSON"));
        assert_eq!((&view.damage, &view.complaints), (&vec![], &vec![]), "{text}");
        assert_eq!(view.run_id.as_deref(), Some("r"));
        assert_eq!(view.session_id.as_deref(), Some("S \"q\""));
        assert_eq!(view.known_state(), Some(RunState::Running));
        assert_eq!((view.pid, view.identity.clone()), (Some(42), process().identity));
        assert_eq!(view.hostname.as_deref(), Some("h"));
        assert_eq!(view.pid_namespace.as_deref(), Some("pid:[1]"));
        assert_eq!((view.steps.len(), view.all_steps_pending()), (2, true));
        assert_eq!(view.overlay_instance(), Some("i"));
        let overlay = view.overlay.expect("there").expect("valid");
        assert_eq!(overlay.state, ProofState::Pending);
    }

    #[test]
    fn nothing_of_an_old_process_stays_beside_a_new_one() {
        let new = ProcessRecord { pid: 7, ..ProcessRecord::default() };
        let patch = StatusPatch::at(9).process(new);
        let source = r#"{"pid":42,"bootId":"b","pidfdInode":"1"}"#;
        let doc = Document::parse(source).expect("JSON");
        let texts = patch.texts(|key| doc.get(key).is_some());
        let texts: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let patched = doc.patched(&texts).expect("an object");
        let view = StatusView::read(&Document::parse(&patched).expect("JSON"));
        assert_eq!((view.pid, view.identity), (Some(7), RecordedIdentity::default()), "{patched}");
        assert!(!patched.contains("hostname"), "what was not there is not added: {patched}");
    }
}
