//! The runner's configuration and the recovery descriptor, as this launcher writes them.
//!
//! Theory of operation. Of both files only the members that the protocol needs are ours; everything
//! about agents, prompts and models is the caller's, handed over as JSON texts and put in unread. So a
//! text is made in three steps: each text of the caller is checked to be one JSON value, the members are
//! put together, ours first, and the whole is judged by the very check that its reader makes
//! ([`config::validate`], [`RecoveryDescriptor::objections`]). What a runner would refuse is refused
//! here, before anything exists.
//!
//! No error carries a value: it may be a prompt.
//!
//! Not promised: that the caller's members mean anything to the runner.
//! Spec: RS-START-24 to RS-START-26, RS-NEST-38; facts L-30 to L-34, Q-40, Q-52, Q-54.

use super::budget::BudgetRef;
use super::config;
use super::document::{Document, object_text, string_text};
use super::error::DecodeError;
use super::limits;
use super::nested::{Route, check_id};
use super::raw::Raw;
use super::recovery::RecoveryDescriptor;
use super::written_nested::NestedSelf;

/// A member of the caller: its name and its JSON text.
pub type Member<'a> = (&'a str, &'a str);

/// The session that a revived run takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevivalText<'a> {
    /// The session file.
    pub session_file: &'a str,
    /// The run that is resumed.
    pub source_run_id: &'a str,
}

/// What goes into `async-cfg-<run>.json`.
#[derive(Clone, Copy, Debug)]
pub struct ConfigText<'a> {
    /// The run.
    pub run_id: &'a str,
    /// Its run directory, absolute.
    pub async_dir: &'a str,
    /// Where its public result goes, absolute.
    pub result_path: &'a str,
    /// The working directory.
    pub cwd: &'a str,
    /// What stands for the previous output in a prompt.
    pub placeholder: &'a str,
    /// The steps, a JSON array.
    pub steps: &'a str,
    /// The owning session.
    pub session_id: Option<&'a str>,
    /// Which parent delivers the completion.
    pub completion_owner_id: Option<&'a str>,
    /// How the runner is limited, in ms.
    pub timeout_ms: Option<i64>,
    /// Until when it may run, ms since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// The instance that was chosen for the runner; of a fresh run also the token of its barrier.
    pub instance_id: &'a str,
    /// The session that asks for the run. Every step names the same one, or none does. A runner learns of
    /// it from its environment; in the file it stands in the steps and in the lease.
    pub parent_session_id: Option<&'a str>,
    /// What is revived; `None` for a fresh run.
    pub revival: Option<RevivalText<'a>>,
    /// The route of the run's news and of its own children, and whose child it is if it is nested.
    pub nested: Option<NestedText<'a>>,
    /// The fan-out budget of the tree that the run is in.
    pub budget: Option<&'a BudgetRef>,
    /// Further members of the caller.
    pub more: &'a [Member<'a>],
}

/// What a configuration says of nested runs.
#[derive(Clone, Copy, Debug)]
pub struct NestedText<'a> {
    /// The route.
    pub route: &'a Route,
    /// The path of the directory of routes, absolute.
    pub events_root: &'a str,
    /// Whose child the run is; `None` for the root of the route.
    pub own: Option<&'a NestedSelf>,
}

impl NestedText<'_> {
    /// Spec: RS-NEST-38.
    fn members(&self, run_id: &str) -> Result<Vec<(&'static str, String)>, DecodeError> {
        let refuse = |member, expected| Err(DecodeError::member(member, expected));
        let route = self.route.member_text(self.events_root);
        let mut members = vec![("nestedRoute", super::written::indented(&route, 2))];
        let is_root = run_id == self.route.root_run_id;
        match self.own {
            None if !is_root => return refuse("nestedSelf", "the parent of a run that is no root"),
            None => {}
            Some(_) if is_root || check_id(run_id).is_err() => {
                return refuse("id", "an id that a nested run may have, and not that of its root");
            }
            Some(own) => {
                let text = own.text();
                // As its reader judges it.
                NestedSelf::read(&Document::parse(&text)?)?;
                members.push(("nestedSelf", super::written::indented(&text, 2)));
            }
        }
        Ok(members)
    }
}

const OF_CONFIG: [&str; 16] = [
    "id",
    "steps",
    "resultPath",
    "cwd",
    "placeholder",
    "asyncDir",
    "sessionId",
    "completionOwnerId",
    "timeoutMs",
    "deadlineAt",
    "runnerProcessInstanceId",
    "launchBarrierToken",
    "revivalLease",
    "nestedRoute",
    "nestedSelf",
    "runFanoutBudget",
];

impl ConfigText<'_> {
    /// The text of the file, which a runner that checks takes.
    ///
    /// # Errors
    /// [`DecodeError`] naming the first member that a runner would refuse, that the caller may not set,
    /// or that is no JSON value; never with a value.
    /// Spec: RS-START-24, RS-START-25.
    pub fn text(&self) -> Result<String, DecodeError> {
        parts("steps", self.steps)?;
        let mut members: Vec<(&str, String)> = vec![
            ("id", string_text(self.run_id)),
            ("steps", self.steps.to_owned()),
            ("resultPath", string_text(self.result_path)),
            ("cwd", string_text(self.cwd)),
            ("placeholder", string_text(self.placeholder)),
            ("asyncDir", string_text(self.async_dir)),
        ];
        let mut text = |key: &'static str, value: Option<&str>| {
            if let Some(value) = value {
                members.push((key, string_text(value)));
            }
        };
        text("sessionId", self.session_id);
        text("completionOwnerId", self.completion_owner_id);
        text("runnerProcessInstanceId", Some(self.instance_id));
        if self.instance_id.is_empty() {
            return Err(DecodeError::member("runnerProcessInstanceId", "a non-empty string"));
        }
        // Exactly one of the two: a runner looks for the barrier first and would not take the lease.
        text("launchBarrierToken", self.revival.is_none().then_some(self.instance_id));
        for (key, number) in [("timeoutMs", self.timeout_ms), ("deadlineAt", self.deadline_at_ms)] {
            if let Some(number) = number {
                if number <= 0 {
                    return Err(DecodeError::member(key, "a number above 0"));
                }
                members.push((key, number.to_string()));
            }
        }
        if let Some(revival) = &self.revival {
            members.push(("revivalLease", self.lease(revival)?));
        }
        if let Some(nested) = &self.nested {
            members.extend(nested.members(self.run_id)?);
        }
        if let Some(budget) = self.budget {
            self.is_of_this_tree(budget)?;
            members.push(("runFanoutBudget", super::written::indented(&budget.text(), 2)));
        }
        let text = with_more(members, self.more, &OF_CONFIG, limits::CONFIG_MAX_BYTES)?;
        let doc = Document::parse(&text)?;
        config::validate(&doc)?;
        config::one_parent_session(&doc, self.parent_session_id)?;
        Ok(text)
    }

    /// There is one budget in a tree, and it has the name of its root. A revived run goes on with that of the
    /// run that it continues.
    /// Spec: RS-START-92.
    fn is_of_this_tree(&self, budget: &BudgetRef) -> Result<(), DecodeError> {
        let root = match &self.nested {
            Some(nested) => nested.route.root_run_id.as_str(),
            None if self.revival.is_some() => return Ok(()),
            None => self.run_id,
        };
        if budget.root_run_id == root {
            return Ok(());
        }
        Err(DecodeError::member("runFanoutBudget.rootRunId", "the root of the tree of this run"))
    }

    fn lease(&self, revival: &RevivalText<'_>) -> Result<String, DecodeError> {
        for (member, value) in [
            ("revivalLease.sessionFile", revival.session_file),
            ("revivalLease.sourceRunId", revival.source_run_id),
        ] {
            if value.is_empty() {
                return Err(DecodeError::member(member, "a non-empty string"));
            }
        }
        let mut members = vec![
            ("sessionFile", string_text(revival.session_file)),
            ("runId", string_text(self.run_id)),
            ("sourceRunId", string_text(revival.source_run_id)),
        ];
        if let Some(id) = self.parent_session_id {
            members.push(("parentSessionId", string_text(id)));
        }
        Ok(super::written::indented(&object_text(&members), 2))
    }
}

/// What goes into `recovery-descriptor.json`.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorText<'a> {
    /// The run that it lies in.
    pub run_id: &'a str,
    /// The agent of its only step.
    pub agent: &'a str,
    /// The working directory.
    pub cwd: &'a str,
    /// `append` or `replace`.
    pub system_prompt_mode: &'a str,
    /// `inline` or `file-only`.
    pub output_mode: &'a str,
    /// The reference to a fan-out budget, a JSON object.
    pub fanout_budget: &'a str,
    /// `inheritProjectContext`.
    pub inherit_project_context: bool,
    /// `inheritSkills`.
    pub inherit_skills: bool,
    /// `share`.
    pub share: bool,
    /// How deep its own runs may nest.
    pub max_subagent_depth: u32,
    /// The session file.
    pub session_file: Option<&'a str>,
    /// `absoluteDeadlineAt`, ms since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// Further members of the caller. An older resume refuses a descriptor with a member that it does
    /// not know.
    pub more: &'a [Member<'a>],
}

const OF_DESCRIPTOR: [&str; 13] = [
    "version",
    "sourceRunId",
    "agent",
    "cwd",
    "systemPromptMode",
    "outputMode",
    "runFanoutBudget",
    "inheritProjectContext",
    "inheritSkills",
    "share",
    "maxSubagentDepth",
    "sessionFile",
    "absoluteDeadlineAt",
];

impl DescriptorText<'_> {
    /// The text of the file, to which a resume has no objection.
    ///
    /// # Errors
    /// [`DecodeError`] naming the first member that a resume would refuse, that the caller may not set,
    /// or that is no JSON value.
    /// Spec: RS-START-26.
    pub fn text(&self) -> Result<String, DecodeError> {
        parts("runFanoutBudget", self.fanout_budget)?;
        let mut members: Vec<(&str, String)> = vec![
            ("version", "1".to_owned()),
            ("sourceRunId", string_text(self.run_id)),
            ("agent", string_text(self.agent)),
            ("cwd", string_text(self.cwd)),
            ("systemPromptMode", string_text(self.system_prompt_mode)),
            ("outputMode", string_text(self.output_mode)),
            ("runFanoutBudget", self.fanout_budget.to_owned()),
            ("inheritProjectContext", self.inherit_project_context.to_string()),
            ("inheritSkills", self.inherit_skills.to_string()),
            ("share", self.share.to_string()),
            ("maxSubagentDepth", self.max_subagent_depth.to_string()),
        ];
        if let Some(file) = self.session_file {
            members.push(("sessionFile", string_text(file)));
        }
        if let Some(at) = self.deadline_at_ms {
            if at <= 0 {
                return Err(DecodeError::member("absoluteDeadlineAt", "a number above 0"));
            }
            members.push(("absoluteDeadlineAt", at.to_string()));
        }
        let text = with_more(members, self.more, &OF_DESCRIPTOR, limits::SIDECAR_MAX_BYTES)?;
        let objections = {
            let doc = Document::parse(&text)?;
            RecoveryDescriptor::read(&doc).objections(self.run_id)
        };
        objections.into_iter().next().map_or(Ok(text), Err)
    }
}

/// Checks that a text of the caller is one JSON value: put in unread, half a value would become a part
/// of what follows it.
fn parts(key: &str, text: &str) -> Result<(), DecodeError> {
    Raw::parse(text).map(drop).map_err(|_| DecodeError::member(key, "one JSON value"))
}

fn with_more(
    ours: Vec<(&str, String)>,
    more: &[Member<'_>],
    own: &[&str],
    limit_bytes: u64,
) -> Result<String, DecodeError> {
    let mut members = ours;
    for (key, text) in more {
        if own.contains(key) || members.iter().any(|(known, _)| known == key) {
            return Err(DecodeError::member(*key, "a member that is set once, by its owner"));
        }
        parts(key, text)?;
        members.push((key, (*text).to_owned()));
    }
    let text = object_text(&members);
    let bytes = text.len() as u64;
    if bytes > limit_bytes { Err(DecodeError::TooLarge { bytes, limit_bytes }) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::config::{Launch, RunnerConfig};

    const STEP: &str = r#"{"agent":"a","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false}"#;

    fn config<'a>(steps: &'a str, more: &'a [Member<'a>]) -> ConfigText<'a> {
        ConfigText {
            run_id: "r",
            async_dir: "/s/r",
            result_path: "/s/r.json",
            cwd: "/w",
            placeholder: "{previous}",
            steps,
            session_id: Some("S"),
            completion_owner_id: Some("o"),
            timeout_ms: Some(5),
            deadline_at_ms: Some(6),
            instance_id: "i",
            parent_session_id: None,
            revival: None,
            nested: None,
            budget: None,
            more,
        }
    }

    fn refused(config: &ConfigText<'_>) -> String {
        match config.text() {
            Err(DecodeError::Member { member, .. }) => member,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_configuration_reads_back_and_names_one_way_to_launch() {
        let steps = format!("[{STEP}]");
        let text = config(&steps, &[("model", r#"{"x": 1e400}"#)]).text().expect("valid");
        assert!(text.contains(r#""model": {"x": 1e400}"#), "unread, as it was: {text}");
        let view = RunnerConfig::read(&Document::parse(&text).expect("JSON"));
        assert_eq!(view.launch, Some(Launch::Fresh { token: "i".to_owned() }));
        assert_eq!((view.id.as_deref(), view.steps, view.refusal), (Some("r"), 1, None));
        assert_eq!((view.timeout_ms, view.deadline_at_ms), (Some(5), Some(6)));
        let revival = Some(RevivalText { session_file: "/f.jsonl", source_run_id: "q" });
        let text = ConfigText { revival, ..config(&steps, &[]) }.text().expect("valid");
        let view = RunnerConfig::read(&Document::parse(&text).expect("JSON"));
        let want = Launch::Revival {
            session_file: Some("/f.jsonl".to_owned()),
            run_id: Some("r".to_owned()),
            source_run_id: Some("q".to_owned()),
        };
        assert_eq!(view.launch, Some(want), "{text}");
        assert!(!text.contains("launchBarrierToken"), "exactly one of the two: {text}");
    }

    #[test]
    fn what_a_runner_would_refuse_and_what_is_not_the_callers_is_refused_by_name() {
        let steps = format!("[{STEP}]");
        assert_eq!(refused(&config("[]", &[])), "steps");
        assert_eq!(refused(&config(r#"[],"id":"x""#, &[])), "steps", "no way into our members");
        assert_eq!(refused(&config(r#"[{"agent":""}]"#, &[])), "steps[0].agent");
        assert_eq!(refused(&config(&steps, &[("id", "1")])), "id");
        assert_eq!(
            refused(&config(&steps, &[("launchBarrierToken", "\"x\"")])),
            "launchBarrierToken"
        );
        assert_eq!(refused(&config(&steps, &[("a", "1"), ("a", "2")])), "a");
        assert_eq!(refused(&config(&steps, &[("a", "secret")])), "a");
        let config = ConfigText { timeout_ms: Some(0), ..config(&steps, &[]) };
        assert_eq!(refused(&config), "timeoutMs");
        let revival = Some(RevivalText { session_file: "", source_run_id: "q" });
        assert_eq!(
            refused(&ConfigText { revival, timeout_ms: None, ..config }),
            "revivalLease.sessionFile"
        );
        assert_eq!(
            refused(&ConfigText { instance_id: "", timeout_ms: None, ..config }),
            "runnerProcessInstanceId"
        );
    }

    #[test]
    fn every_step_has_the_parent_session_of_the_launch() {
        let own = STEP.replace(r#""task""#, r#""parentSessionId":"P","task""#);
        let group = |inner: &str| format!(r#"[{own},{{"parallel":[{inner}]}}]"#);
        let with = |steps: &str, id| {
            ConfigText { parent_session_id: id, ..config(steps, &[]) }
                .text()
                .map_err(|e| e.to_string())
        };
        assert!(with(&group(&own), Some("P")).is_ok());
        let missing = with(&group(STEP), Some("P")).expect_err("one step has none");
        assert!(missing.contains("steps[1].parallel[0].parentSessionId"), "{missing}");
        assert!(with(&format!("[{own}]"), None).is_err(), "a step has one, the launch none");
        for id in ["", " P"] {
            assert!(with(&format!("[{own}]"), Some(id)).is_err(), "{id:?} is no id of a session");
        }
    }

    #[test]
    fn a_nested_run_names_its_route_and_its_parent_and_a_root_only_its_route() {
        let steps = format!("[{STEP}]");
        let route = Route::new("root", "secret-9", 5).expect("ids");
        let own = NestedSelf::of_root("root", Some(1));
        let nested =
            |own| Some(NestedText { route: &route, events_root: "/t/nested-subagent-events", own });
        let with = |run_id, own| ConfigText { run_id, nested: nested(own), ..config(&steps, &[]) };
        let text = with("r", Some(&own)).text().expect("valid");
        let doc = Document::parse(&text).expect("JSON");
        let object = |key: &str| doc.get(key).and_then(Raw::object).expect("there");
        let read = Route::read_member(&object("nestedRoute")).expect("of this route");
        assert_eq!(read.dir_name(), "root-secret-9");
        assert_eq!(NestedSelf::read(&object("nestedSelf")).as_ref(), Ok(&own));
        assert!(text.contains("/t/nested-subagent-events/root-secret-9/controls"), "{text}");
        assert!(!with("root", None).text().expect("valid").contains("nestedSelf"));
        assert_eq!(refused(&with("r", None)), "nestedSelf", "no root without being one");
        assert_eq!(refused(&with("root", Some(&own))), "id", "the root is nobody's child");
        let long = "r".repeat(129);
        assert_eq!(refused(&with(&long, Some(&own))), "id");
        let lost = NestedSelf { parent_run_id: "../x".to_owned(), ..own.clone() };
        assert_eq!(refused(&with("r", Some(&lost))), "nestedSelf.parentRunId");
        assert_eq!(refused(&config(&steps, &[("nestedSelf", "{}")])), "nestedSelf");
        let away = text.replace("/events\"", "/elsewhere\"");
        let away = Document::parse(&away).expect("JSON");
        let away = away.get("nestedRoute").and_then(Raw::object).expect("there");
        let e = Route::read_member(&away).expect_err("another directory").to_string();
        assert!(e.contains("nestedRoute.eventSink") && !e.contains("secret"), "{e}");
    }

    #[test]
    fn a_tree_has_one_budget_which_has_the_name_of_its_root() {
        let steps = format!("[{STEP}]");
        let budget = |root: &str| BudgetRef {
            root_run_id: root.to_owned(),
            directory: "/t/run-fanout-budgets/b".to_owned(),
            limit: 3,
            parent_path: None,
        };
        let (own, other) = (budget("r"), budget("root"));
        let with = |budget| ConfigText { budget: Some(budget), ..config(&steps, &[]) };
        let text = with(&own).text().expect("its own");
        let doc = Document::parse(&text).expect("JSON");
        let member = doc.get("runFanoutBudget").and_then(Raw::object).expect("there");
        assert_eq!(BudgetRef::read(&member).as_ref(), Ok(&own));
        assert_eq!(refused(&with(&other)), "runFanoutBudget.rootRunId");
        let route = Route::new("root", "secret-9", 5).expect("ids");
        let nested_self = NestedSelf::of_root("root", None);
        let nested = Some(NestedText { route: &route, events_root: "/t", own: Some(&nested_self) });
        assert!(ConfigText { nested, ..with(&other) }.text().is_ok(), "that of its root");
        assert_eq!(refused(&ConfigText { nested, ..with(&own) }), "runFanoutBudget.rootRunId");
        let revival = Some(RevivalText { session_file: "/f.jsonl", source_run_id: "q" });
        assert!(ConfigText { revival, ..with(&other) }.text().is_ok(), "it goes on with it");
    }

    #[test]
    fn a_descriptor_has_what_a_resume_needs() {
        let descriptor = DescriptorText {
            run_id: "r",
            agent: "a",
            cwd: "/w",
            system_prompt_mode: "append",
            output_mode: "inline",
            fanout_budget: r#"{"version":1}"#,
            inherit_project_context: false,
            inherit_skills: true,
            share: false,
            max_subagent_depth: 2,
            session_file: Some("/f.jsonl"),
            deadline_at_ms: Some(9),
            more: &[("model", "\"m\"")],
        };
        let text = descriptor.text().expect("valid");
        let view = RecoveryDescriptor::read(&Document::parse(&text).expect("JSON"));
        assert_eq!((view.agent.as_deref(), view.deadline_at_ms), (Some("a"), Some(9)), "{text}");
        for (bad, member) in [
            (DescriptorText { output_mode: "none", ..descriptor }, "outputMode"),
            (DescriptorText { fanout_budget: "7", ..descriptor }, "runFanoutBudget"),
            (DescriptorText { fanout_budget: "{", ..descriptor }, "runFanoutBudget"),
            (DescriptorText { more: &[("cwd", "1")], ..descriptor }, "cwd"),
            (DescriptorText { deadline_at_ms: Some(0), ..descriptor }, "absoluteDeadlineAt"),
        ] {
            let error = bad.text().expect_err(member).to_string();
            assert!(error.contains(member), "{error}");
        }
    }

    #[test]
    fn a_configuration_above_the_bound_is_refused() {
        let long =
            format!("\"{}\"", "x".repeat(usize::try_from(limits::CONFIG_MAX_BYTES).expect("fits")));
        let steps = format!("[{STEP}]");
        let more: [Member<'_>; 1] = [("prompt", &long)];
        let refused = config(&steps, &more).text();
        assert!(matches!(refused, Err(DecodeError::TooLarge { .. })), "it would not be read");
    }
}
