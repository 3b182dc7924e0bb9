//! The runner's configuration, `async-cfg-<run>.json`: what it says, and whether a runner takes it.
//!
//! Theory of operation. The launcher writes the file just before the spawn, and the runner deletes it
//! right after parsing it. So a file that is still there belongs to a runner that never came so far.
//! It holds prompts and may hold environment bindings; the view takes only the members that the
//! protocol needs, and no error carries a value.
//!
//! [`RunnerConfig::read`] is lenient and never fails; [`validate`] is the check that a runner makes
//! before it touches any file of the run. Facts L-30 to L-33; spec RS-START-06.

use super::document::Document;
use super::error::DecodeError;
use super::member;
use super::raw::{Kind, Raw};
use super::written_status::StepGroup;

/// What launched the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launch {
    /// `launchBarrierToken`: a fresh run waits for *proceed* under this token.
    Fresh {
        /// The token, equal to the runner's process-instance id.
        token: String,
    },
    /// `revivalLease`: a revived run takes over a session.
    Revival {
        /// `sessionFile`.
        session_file: Option<String>,
        /// `runId` in the lease: the new run.
        run_id: Option<String>,
        /// `sourceRunId`: the run that is resumed.
        source_run_id: Option<String>,
    },
    /// Both are there, which no launcher writes.
    Both,
}

/// The members of a runner configuration that decide something. A wrong type reads as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerConfig {
    /// `id`: the run.
    pub id: Option<String>,
    /// `asyncDir`: the run directory.
    pub async_dir: Option<String>,
    /// `resultPath`: the public result.
    pub result_path: Option<String>,
    /// `cwd`.
    pub cwd: Option<String>,
    /// `placeholder`.
    pub placeholder: Option<String>,
    /// Number of `steps`.
    pub steps: usize,
    /// `sessionId`.
    pub session_id: Option<String>,
    /// `completionOwnerId`.
    pub completion_owner_id: Option<String>,
    /// `resultMode`.
    pub result_mode: Option<String>,
    /// `runnerProcessInstanceId`.
    pub runner_instance_id: Option<String>,
    /// `launchBarrierToken` or `revivalLease`; older launchers write neither.
    pub launch: Option<Launch>,
    /// `deadlineAt`, in milliseconds since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// `timeoutMs`, a duration in milliseconds.
    pub timeout_ms: Option<i64>,
    /// Whether there is a `nestedRoute`: the run may have nested runs.
    pub has_nested_route: bool,
    /// Whether there is a `nestedSelf`: the run is nested.
    pub is_nested: bool,
    /// `parentWorkflowRunId`.
    pub parent_workflow_run_id: Option<String>,
    /// What a runner that checks would refuse, naming the member.
    pub refusal: Option<DecodeError>,
}

impl RunnerConfig {
    /// Reads a configuration.
    pub fn read(doc: &Document<'_>) -> Self {
        let text = |key: &str| member::loose_string(doc, key);
        let object = |key: &str| doc.get(key).and_then(Raw::object);
        Self {
            id: text("id"),
            async_dir: text("asyncDir"),
            result_path: text("resultPath"),
            cwd: text("cwd"),
            placeholder: text("placeholder"),
            steps: doc.get("steps").and_then(Raw::array).map_or(0, |steps| steps.len()),
            session_id: text("sessionId"),
            completion_owner_id: text("completionOwnerId"),
            result_mode: text("resultMode"),
            runner_instance_id: text("runnerProcessInstanceId"),
            launch: launch(doc),
            deadline_at_ms: doc.get("deadlineAt").and_then(Raw::instant_ms),
            timeout_ms: doc.get("timeoutMs").and_then(Raw::integer),
            has_nested_route: object("nestedRoute").is_some(),
            is_nested: object("nestedSelf").is_some(),
            parent_workflow_run_id: text("parentWorkflowRunId"),
            refusal: validate(doc).err(),
        }
    }
}

fn launch(doc: &Document<'_>) -> Option<Launch> {
    let token = doc.get("launchBarrierToken").and_then(Raw::exact_string);
    let lease = doc.get("revivalLease").and_then(Raw::object);
    match (token, lease) {
        (Some(token), None) => Some(Launch::Fresh { token }),
        (None, Some(lease)) => {
            let text = |key: &str| member::loose_string(&lease, key);
            Some(Launch::Revival {
                session_file: text("sessionFile"),
                run_id: text("runId"),
                source_run_id: text("sourceRunId"),
            })
        }
        (Some(_), Some(_)) => Some(Launch::Both),
        (None, None) => None,
    }
}

/// The check that runners since 0.71 make. Facts L-33.
///
/// # Errors
/// [`DecodeError::Member`] naming the first member that is wrong, never its value.
pub fn validate(doc: &Document<'_>) -> Result<(), DecodeError> {
    for key in ["id", "resultPath", "cwd", "asyncDir"] {
        filled(doc, "", key)?;
    }
    of_kind(doc, "", "placeholder", Kind::String, "a string")?;
    let steps =
        doc.get("steps").ok_or_else(|| DecodeError::member("steps", "a non-empty array"))?;
    validate_steps(steps)
}

/// The part of [`validate`] that is about the steps, a JSON array.
///
/// # Errors
/// As [`validate`]; every member is named with its step.
pub fn validate_steps(steps: Raw<'_>) -> Result<(), DecodeError> {
    let steps = steps.array().filter(|steps| !steps.is_empty());
    let steps = steps.ok_or_else(|| DecodeError::member("steps", "a non-empty array"))?;
    for (i, raw) in steps.into_iter().enumerate() {
        let at = format!("steps[{i}]");
        let step = raw.object().ok_or_else(|| DecodeError::member(&at, "an object"))?;
        if let Some(group) = step.get("parallel") {
            match group.array() {
                Some(members) => {
                    if members.is_empty() {
                        return Err(DecodeError::member(
                            format!("{at}.parallel"),
                            "a non-empty array",
                        ));
                    }
                    for (j, one) in members.into_iter().enumerate() {
                        child(one, &format!("{at}.parallel[{j}]"))?;
                    }
                }
                // A template: the group is made when its expansion is known.
                None => {
                    for key in ["expand", "collect"] {
                        of_kind(&step, &at, key, Kind::Object, "an object")?;
                    }
                    child(group, &format!("{at}.parallel"))?;
                }
            }
        } else {
            child(raw, &at)?;
        }
    }
    Ok(())
}

/// What every step that becomes a child process must have.
fn child(raw: Raw<'_>, at: &str) -> Result<(), DecodeError> {
    let step = raw.object().ok_or_else(|| DecodeError::member(at, "an object"))?;
    filled(&step, at, "agent")?;
    of_kind(&step, at, "task", Kind::String, "a string")?;
    for key in ["inheritProjectContext", "inheritGlobalContext", "inheritSkills"] {
        of_kind(&step, at, key, Kind::Bool, "a boolean")?;
    }
    Ok(())
}

/// Every step that becomes a child process, with its place; of a dynamic group the template.
fn children<'a>(doc: &Document<'a>) -> Vec<(String, Raw<'a>)> {
    let mut out = Vec::new();
    let steps = doc.get("steps").and_then(Raw::array).unwrap_or_default();
    for (i, raw) in steps.into_iter().enumerate() {
        let at = format!("steps[{i}]");
        match raw.object().and_then(|step| step.get("parallel")) {
            None => out.push((at, raw)),
            Some(group) => match group.array() {
                Some(members) => {
                    let members = members.into_iter().enumerate();
                    out.extend(members.map(|(j, one)| (format!("{at}.parallel[{j}]"), one)));
                }
                None => out.push((format!("{at}.parallel"), group)),
            },
        }
    }
    out
}

/// The steps of a configuration as the first status of its run names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The agents in flat order: one for each child, and `expand:<agent>` for a group that is made later.
    pub agents: Vec<String>,
    /// Where groups stand in that order. A group that is made later is none yet.
    pub groups: Vec<StepGroup>,
}

/// The steps of a configuration in flat order, with its groups. Facts §3.4, §3.5.
pub fn shape(doc: &Document<'_>) -> Shape {
    let mut shape = Shape::default();
    let name = |raw: Raw<'_>| {
        let step = raw.object();
        let agent = step.as_ref().and_then(|step| step.get("agent")).and_then(Raw::string);
        agent.unwrap_or_default().into_owned()
    };
    let steps = doc.get("steps").and_then(Raw::array).unwrap_or_default();
    for (step_index, raw) in steps.into_iter().enumerate() {
        let group = raw.object().and_then(|step| step.get("parallel"));
        match group.map(|group| (group, group.array())) {
            None => shape.agents.push(name(raw)),
            Some((template, None)) => shape.agents.push(format!("expand:{}", name(template))),
            Some((_, Some(members))) => {
                let (start, count) = (shape.agents.len(), members.len());
                shape.groups.push(StepGroup { start, count, step_index });
                shape.agents.extend(members.into_iter().map(name));
            }
        }
    }
    shape
}

/// Checks that every step names the parent session of the launch, or none does. Facts L-34.
///
/// # Errors
/// [`DecodeError::Member`] naming the first member that is wrong, never its value.
/// Spec: RS-START-25.
pub fn one_parent_session(doc: &Document<'_>, parent: Option<&str>) -> Result<(), DecodeError> {
    const MEMBER: &str = "parentSessionId";
    if parent.is_some_and(|id| id.is_empty() || id.trim() != id) {
        return Err(DecodeError::member(MEMBER, "a string without white space around it"));
    }
    for (at, raw) in children(doc) {
        let step = raw.object();
        let named = step.as_ref().and_then(|step| step.get(MEMBER));
        let named = named.filter(|raw| !raw.is_null());
        let same = match (named, parent) {
            (None, None) => true,
            (Some(raw), Some(id)) => raw.exact_string().as_deref() == Some(id),
            _ => false,
        };
        if !same {
            return Err(DecodeError::member(name(&at, MEMBER), "that of the launch"));
        }
    }
    Ok(())
}

fn name(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn filled(doc: &Document<'_>, at: &str, key: &str) -> Result<(), DecodeError> {
    let ok = doc.get(key).and_then(Raw::string).is_some_and(|text| !text.is_empty());
    ok.then_some(()).ok_or_else(|| DecodeError::member(name(at, key), "a non-empty string"))
}

fn of_kind(
    doc: &Document<'_>,
    at: &str,
    key: &str,
    kind: Kind,
    expected: &'static str,
) -> Result<(), DecodeError> {
    let ok = doc.get(key).is_some_and(|raw| raw.kind() == kind);
    ok.then_some(()).ok_or_else(|| DecodeError::member(name(at, key), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: &str = r#"{"agent":"a","task":"","inheritProjectContext":true,
        "inheritGlobalContext":false,"inheritSkills":false}"#;

    fn config(steps: &str, more: &str) -> String {
        format!(
            r#"{{"id":"r","resultPath":"/s/r.json","cwd":"/w","asyncDir":"/s/r",
            "placeholder":"{{previous}}","steps":{steps}{more}}}"#
        )
    }

    fn refused(text: &str) -> Option<String> {
        match validate(&Document::parse(text).expect("valid")) {
            Ok(()) => None,
            Err(DecodeError::Member { member, .. }) => Some(member),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_first_wrong_member_is_named() {
        let group = |inner: &str| config(&format!(r#"[{{"parallel":{inner}}}]"#), "");
        let dynamic = format!(r#"[{{"parallel":{STEP},"expand":{{}},"collect":{{}}}}]"#);
        for (text, want) in [
            (config(&format!("[{STEP}]"), ""), None),
            ("{}".to_owned(), Some("id")),
            (config("[]", ""), Some("steps")),
            (config("7", ""), Some("steps")),
            (config("[7]", ""), Some("steps[0]")),
            (config(r#"[{"agent":""}]"#, ""), Some("steps[0].agent")),
            (config(r#"[{"agent":"a","task":7}]"#, ""), Some("steps[0].task")),
            (
                config(&format!("[{STEP},{}]", STEP.replace("true", "1")), ""),
                Some("steps[1].inheritProjectContext"),
            ),
            (group("[]"), Some("steps[0].parallel")),
            (group(&format!("[{STEP}]")), None),
            (group(r#"[{"agent":7}]"#), Some("steps[0].parallel[0].agent")),
            (group(STEP), Some("steps[0].expand")),
            (config(&dynamic, ""), None),
        ] {
            assert_eq!(refused(&text).as_deref(), want, "{text}");
        }
        let text = config(&format!("[{STEP}]"), "").replace(r#""/w""#, r#""""#);
        assert_eq!(refused(&text).as_deref(), Some("cwd"));
    }

    #[test]
    fn a_refusal_never_shows_a_value() {
        let text = config(r#"[{"agent":"a","task":["secret prompt"]}]"#, "");
        let error = validate(&Document::parse(&text).expect("valid")).expect_err("a wrong task");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn fresh_and_revived_launches_are_told_apart() {
        let launch = |more: &str| {
            let text = config(&format!("[{STEP}]"), more);
            RunnerConfig::read(&Document::parse(&text).expect("valid")).launch
        };
        let lease = r#","revivalLease":{"sessionFile":"/f.jsonl","runId":"r","sourceRunId":"q"}"#;
        let token = r#","launchBarrierToken":"t""#;
        assert_eq!(launch(""), None, "older launchers write neither");
        assert_eq!(launch(token), Some(Launch::Fresh { token: "t".into() }));
        assert!(matches!(launch(lease), Some(Launch::Revival { source_run_id: Some(_), .. })));
        assert_eq!(launch(&format!("{token}{lease}")), Some(Launch::Both));
    }

    #[test]
    fn the_agents_of_a_status_are_those_of_the_flat_steps() {
        let steps = r#"[{"agent":"a"},{"parallel":[{"agent":"b"},{"agent":"c"}]},
            {"parallel":{"agent":"d"},"expand":{},"collect":{}}]"#;
        let text = config(steps, "");
        let doc = Document::parse(&text).expect("valid");
        let shape = shape(&doc);
        assert_eq!(shape.agents, ["a", "b", "c", "expand:d"]);
        assert_eq!(shape.groups, [StepGroup { start: 1, count: 2, step_index: 1 }]);
    }

    #[test]
    fn the_view_takes_what_it_can() {
        let text = r#"{"id":"r","steps":[{},{}],"timeoutMs":60000,"deadlineAt":9,"nestedRoute":{},
            "sessionId":7}"#;
        let view = RunnerConfig::read(&Document::parse(text).expect("valid"));
        assert_eq!((view.id.as_deref(), view.steps), (Some("r"), 2));
        assert_eq!((view.timeout_ms, view.deadline_at_ms), (Some(60_000), Some(9)));
        assert!(view.has_nested_route && !view.is_nested && view.session_id.is_none());
        assert!(view.refusal.is_some());
    }
}
