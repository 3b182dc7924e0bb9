//! Routes, events and registries of nested runs, as this library writes them.
//!
//! Theory of operation. A nested run is somebody's child: [`NestedSelf`] says whose, [`SummaryText`] what is
//! known of it, [`event_text`] puts both into one line that its route takes. Every text is clipped to what a
//! reader keeps, so that no run is passed over for being large, and checked by the very reader
//! ([`NestedEvent::read`]) before it is handed out. A projector folds events into a [`RegistryText`], in
//! which every summary stays as its writer put it: what this library does not know of a foreign run is
//! kept.
//!
//! The token of a route is in these texts and nowhere else. Not promised: that anybody reads them; they are
//! news, and the run's own directory decides. Spec: RS-NEST-30 to RS-NEST-36; facts Q-40 to Q-44, W-31.

use serde::Serialize;

use super::document::Document;
use super::error::DecodeError;
use super::limits;
use super::nested::{NestedEvent, RECORD_MAX_BYTES, Route, check_id};
use super::nested_summary::{
    ChildEvent, MAX_SUMMARY_STEPS, Merge, Registry, Summary, claims_running, merge,
};
use super::open::Word as _;
use super::raw::Raw;
use super::state::{RunMode, RunState};
use super::written::{compact, pretty, rebuilt, string};
use super::written_run::StepAccount;

/// Deepest level that readers tell apart (facts Q-43).
pub const MAX_DEPTH: u32 = 3;
/// Most ancestors in a path that readers keep.
pub const MAX_PATH: usize = 4;
/// Longest name of an agent in a summary, in characters.
const AGENT_MAX_CHARS: usize = 128;
/// Longest path of a directory in a summary, in characters.
const PATH_MAX_CHARS: usize = 2048;
/// Longest session id in a summary, in characters.
const SESSION_MAX_CHARS: usize = 256;
/// Longest error of a run in a summary, in characters.
const ERROR_MAX_CHARS: usize = 1024;

/// One ancestor of a nested run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathPart {
    /// The run.
    pub run_id: String,
    /// Its step that launched the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_index: Option<u32>,
    /// The agent of that step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Whose child a nested run is: the member `nestedSelf` of its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NestedSelf {
    /// The run that launched it.
    pub parent_run_id: String,
    /// The step of that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_step_index: Option<u32>,
    /// How deep it lies: 1 for a child of the root.
    pub depth: u32,
    /// Its ancestors, the root first.
    pub path: Vec<PathPart>,
}

impl NestedSelf {
    /// The child of a step of the root run.
    pub fn of_root(root_run_id: &str, step: Option<u32>) -> Self {
        let part = PathPart { run_id: root_run_id.to_owned(), step_index: step, agent: None };
        Self {
            parent_run_id: root_run_id.to_owned(),
            parent_step_index: step,
            depth: 1,
            path: vec![part],
        }
    }

    /// Reads the member, as strictly as its ids are used.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let id = |doc: &Document<'_>, key: &str| {
            let text = doc.get(key).and_then(Raw::exact_string);
            text.filter(|text| check_id(text).is_ok())
        };
        let index = |doc: &Document<'_>, key: &str| {
            doc.get(key).and_then(Raw::integer).and_then(|n| u32::try_from(n).ok())
        };
        let at = |key: &str| format!("nestedSelf.{key}");
        let parent_run_id = id(doc, "parentRunId")
            .ok_or_else(|| DecodeError::member(at("parentRunId"), "the id of a run"))?;
        let parts = doc.get("path").and_then(Raw::array).unwrap_or_default();
        let path = parts.into_iter().filter_map(|raw| {
            let part = raw.object()?;
            let agent = part.get("agent").and_then(Raw::string).map(|agent| agent.into_owned());
            Some(PathPart {
                run_id: id(&part, "runId")?,
                step_index: index(&part, "stepIndex"),
                agent,
            })
        });
        Ok(Self {
            parent_run_id,
            parent_step_index: index(doc, "parentStepIndex"),
            depth: index(doc, "depth").unwrap_or(1).clamp(1, MAX_DEPTH),
            path: path.take(MAX_PATH).collect(),
        })
    }

    /// The text of the member.
    pub fn text(&self) -> String {
        pretty(self)
    }
}

/// What is told of a nested run.
#[derive(Clone, Copy, Debug)]
pub struct SummaryText<'a> {
    /// The run.
    pub run_id: &'a str,
    /// Its run directory.
    pub async_dir: &'a str,
    /// Its process.
    pub pid: Option<i64>,
    /// The owning session.
    pub session_id: Option<&'a str>,
    /// Its shape.
    pub mode: RunMode,
    /// Where it is.
    pub state: RunState,
    /// Why it did not succeed.
    pub error: Option<&'a str>,
    /// Its steps.
    pub steps: &'a [StepAccount],
    /// When it began, in ms since the epoch.
    pub started_at_ms: i64,
    /// When it ended, in ms since the epoch.
    pub ended_at_ms: Option<i64>,
    /// Now, in ms since the epoch. Of two accounts the newer counts.
    pub now_ms: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChildText<'a> {
    id: &'a str,
    parent_run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_step_index: Option<u32>,
    depth: u32,
    path: &'a [PathPart],
    state: &'a str,
    async_dir: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    agents: Vec<&'a str>,
    started_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    last_update: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    steps: Vec<StepText<'a>>,
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
}

fn clipped(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).map_or(text, |(at, _)| &text[..at])
}

/// Too long a path leads nowhere, so it is left out as a whole.
fn whole(text: &str, max_chars: usize) -> Option<&str> {
    (clipped(text, max_chars).len() == text.len()).then_some(text)
}

/// The text of an event: one line with its end. The token is the route's.
/// Spec: RS-NEST-32, RS-NEST-33.
///
/// # Errors
/// [`DecodeError`] when a reader would pass it over: an id that is no nested id, or one of the root itself.
pub fn event_text(
    kind: ChildEvent,
    route: &Route,
    own: &NestedSelf,
    of: &SummaryText<'_>,
) -> Result<String, DecodeError> {
    if of.run_id == route.root_run_id {
        return Err(DecodeError::member("child.id", "another run than the root"));
    }
    let agents = of.steps.iter().map(|step| clipped(&step.agent, AGENT_MAX_CHARS));
    let agents: Vec<&str> = agents.take(MAX_SUMMARY_STEPS).collect();
    let steps =
        of.steps.iter().take(MAX_SUMMARY_STEPS).zip(&agents).map(|(step, agent)| StepText {
            agent,
            status: step.state.as_str(),
            started_at: step.started_at_ms,
            ended_at: step.ended_at_ms,
        });
    let child = ChildText {
        id: of.run_id,
        parent_run_id: &own.parent_run_id,
        parent_step_index: own.parent_step_index,
        depth: own.depth.min(MAX_DEPTH),
        path: &own.path[..own.path.len().min(MAX_PATH)],
        state: of.state.as_str(),
        async_dir: whole(of.async_dir, PATH_MAX_CHARS).unwrap_or_default(),
        pid: of.pid,
        session_id: of.session_id.and_then(|id| whole(id, SESSION_MAX_CHARS)),
        mode: (of.mode != RunMode::Workflow).then(|| of.mode.as_str()),
        agent: agents.first().copied(),
        steps: steps.collect(),
        agents: agents.clone(),
        started_at: of.started_at_ms,
        ended_at: of.ended_at_ms,
        last_update: of.now_ms,
        error: of.error.map(|error| clipped(error, ERROR_MAX_CHARS)),
    };
    let step = own.parent_step_index.map(|step| format!(r#","parentStepIndex":{step}"#));
    let text = format!(
        "{{\"type\":\"subagent.nested.{}\",\"ts\":{},{},\"parentRunId\":{}{},\"child\":{}}}\n",
        kind.as_str(),
        of.now_ms,
        route.credentials(),
        string(&own.parent_run_id),
        step.unwrap_or_default(),
        compact(&child)
    );
    let (bytes, limit_bytes) = (text.len() as u64, RECORD_MAX_BYTES);
    if bytes > limit_bytes {
        return Err(DecodeError::TooLarge { bytes, limit_bytes });
    }
    match NestedEvent::read(&Document::parse(text.trim_end())?, route) {
        Ok(NestedEvent::Child { .. }) if check_id(&own.parent_run_id).is_ok() => Ok(text),
        Ok(_) => Err(DecodeError::member("parentRunId", "the id of a run")),
        Err(super::nested::EventRefusal::Malformed(e)) => Err(e),
        Err(super::nested::EventRefusal::Foreign) => unreachable!("it was given to its own route"),
    }
}

/// What a projector makes of `registry.json`: the summaries byte for byte.
#[derive(Clone, Debug)]
pub struct RegistryText {
    root_run_id: String,
    children: Vec<(Summary, String)>,
    processed: Vec<String>,
}

impl RegistryText {
    /// An empty one.
    pub fn new(root_run_id: &str) -> Self {
        Self { root_run_id: root_run_id.to_owned(), children: Vec::new(), processed: Vec::new() }
    }

    /// Goes on with what was folded in before. A child that is no summary is left out, as readers leave it.
    ///
    /// # Errors
    /// As [`Registry::read`], and when it is another root's.
    pub fn read(doc: &Document<'_>, root_run_id: &str) -> Result<Self, DecodeError> {
        let read = Registry::read(doc)?;
        if read.root_run_id != root_run_id {
            return Err(DecodeError::member("rootRunId", "the root of the route"));
        }
        let raws = doc.get("children").and_then(Raw::array).unwrap_or_default();
        let children = raws
            .into_iter()
            .filter_map(|raw| Some((Summary::read(raw).ok()?, raw.text().to_owned())));
        let children = children.take(super::nested_summary::MAX_REGISTRY_CHILDREN).collect();
        Ok(Self { root_run_id: read.root_run_id, children, processed: read.processed })
    }

    /// Whether the event file of this name was folded in.
    pub fn knows(&self, name: &str) -> bool {
        self.processed.iter().any(|known| known == name)
    }

    /// Notes that the event file of this name was folded in.
    pub fn note(&mut self, name: &str) {
        self.processed.push(name.to_owned());
    }

    /// Forgets the oldest names beyond those that are kept, and says which: their files are to be removed
    /// once this registry is in its place. Facts Q-43.
    pub fn evict(&mut self) -> Vec<String> {
        let beyond = self.processed.len().saturating_sub(limits::ROUTE_EVENTS);
        self.processed.drain(..beyond).collect()
    }

    /// Folds the news of an event in. The same rule as every reader's ([`merge`]).
    pub fn fold(&mut self, kind: ChildEvent, child: Raw<'_>) -> Option<Merge> {
        let mut summary = Summary::read(child).ok()?;
        let at = self.children.iter().position(|(known, _)| known.id == summary.id);
        let answer = merge(at.map(|at| &self.children[at].0), kind, &summary);
        if answer != Merge::Taken {
            return Some(answer);
        }
        let mut text = child.text().to_owned();
        if kind == ChildEvent::Completed && claims_running(&summary) {
            // It was taken a moment too early.
            let state = RunState::Complete;
            let doc = child.object()?;
            text = rebuilt(&doc, &[], &[("state", string(state.as_str()))]);
            summary.state = Some(super::Open::Known(state));
        }
        match at {
            Some(at) => self.children[at] = (summary, text),
            None if self.children.len() < super::nested_summary::MAX_REGISTRY_CHILDREN => {
                self.children.push((summary, text));
            }
            None => return Some(Merge::Full),
        }
        Some(answer)
    }

    /// What is known of each run.
    pub fn children(&self) -> impl Iterator<Item = &Summary> {
        self.children.iter().map(|(child, _)| child)
    }

    /// The text of the file.
    pub fn text(&self, now_ms: i64) -> String {
        let list = |texts: Vec<String>| match texts.is_empty() {
            true => "[]".to_owned(),
            false => format!("[\n    {}\n  ]", texts.join(",\n    ")),
        };
        let children = self.children.iter().map(|(_, text)| super::written::one_line(text));
        let processed = self.processed.iter().map(|name| string(name));
        super::document::object_text(&[
            ("rootRunId", string(&self.root_run_id)),
            ("updatedAt", now_ms.to_string()),
            ("children", list(children.collect())),
            ("processedEvents", list(processed.collect())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::StepState;

    fn route() -> Route {
        let text = r#"{"rootRunId":"root","capabilityToken":"secret-1","createdAt":5}"#;
        Route::read(&Document::parse(text).expect("valid")).expect("a route")
    }

    fn summary<'a>(run_id: &'a str, steps: &'a [StepAccount]) -> SummaryText<'a> {
        SummaryText {
            run_id,
            async_dir: "/nested/c",
            pid: Some(7),
            session_id: Some("S"),
            mode: RunMode::Chain,
            state: RunState::Running,
            error: None,
            steps,
            started_at_ms: 1,
            ended_at_ms: None,
            now_ms: 9,
        }
    }

    #[test]
    fn an_event_is_one_line_that_its_route_takes() {
        let own = NestedSelf::of_root("root", Some(2));
        let steps = [StepAccount::pending("a")];
        let text = event_text(ChildEvent::Started, &route(), &own, &summary("c", &steps));
        let text = text.expect("valid");
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        let event = NestedEvent::read(&Document::parse(&text).expect("JSON"), &route());
        let Ok(NestedEvent::Child { kind, at_ms, child }) = event else { panic!("{event:?}") };
        assert_eq!((kind, at_ms, child.id.as_str()), (ChildEvent::Started, 9, "c"));
        assert_eq!((child.parent_step_index, child.pid, child.steps.len()), (Some(2), Some(7), 1));
        assert!(text.contains(r#""depth":1,"path":[{"runId":"root","stepIndex":2}]"#), "{text}");
    }

    #[test]
    fn what_a_reader_would_pass_over_is_not_written() {
        let own = NestedSelf::of_root("root", None);
        let tell = |own: &NestedSelf, run_id: &str| {
            event_text(ChildEvent::Updated, &route(), own, &summary(run_id, &[]))
                .map_err(|e| e.to_string())
        };
        assert!(tell(&own, "c").is_ok());
        assert!(tell(&own, "root").is_err(), "the root is nobody's child");
        assert!(tell(&own, "../c").is_err());
        let lost = NestedSelf { parent_run_id: "a/b".to_owned(), ..own.clone() };
        assert!(tell(&lost, "c").expect_err("no id").contains("parentRunId"));
    }

    #[test]
    fn a_large_run_is_clipped_and_not_passed_over() {
        let long = StepAccount {
            state: StepState::Running,
            ..StepAccount::pending(&"\u{1}".repeat(9_999))
        };
        let steps = vec![long; 500];
        let own = NestedSelf {
            depth: 9,
            path: vec![PathPart { run_id: "r".to_owned(), ..PathPart::default() }; 9],
            ..NestedSelf::of_root("root", None)
        };
        let error = "\u{1}".repeat(9_999);
        let (dir, session) = ("d".repeat(9_999), "s".repeat(9_999));
        let of = SummaryText {
            error: Some(&error),
            async_dir: &dir,
            session_id: Some(&session),
            ..summary("c", &steps)
        };
        let text = event_text(ChildEvent::Updated, &route(), &own, &of).expect("it is clipped");
        let doc = Document::parse(&text).expect("JSON");
        let child = doc.get("child").and_then(Raw::object).expect("there");
        let count = |key: &str| child.get(key).and_then(Raw::array).map(|list| list.len());
        assert_eq!((count("steps"), count("agents"), count("path")), (Some(12), Some(12), Some(4)));
        assert_eq!(child.get("depth").and_then(Raw::integer), Some(3));
        assert!(child.get("sessionId").is_none(), "half an id is another one");
    }

    #[test]
    fn an_address_reads_back_and_a_strange_one_names_its_member() {
        let own = NestedSelf {
            parent_step_index: Some(3),
            depth: 2,
            ..NestedSelf::of_root("root", Some(1))
        };
        let text = own.text();
        assert_eq!(NestedSelf::read(&Document::parse(&text).expect("JSON")), Ok(own));
        for text in ["{}", r#"{"parentRunId":"../x"}"#, r#"{"parentRunId":7}"#] {
            let e = NestedSelf::read(&Document::parse(text).expect("JSON")).expect_err("no parent");
            assert!(e.to_string().contains("nestedSelf.parentRunId"), "{e}");
        }
        let text = r#"{"parentRunId":"p","depth":77,"path":[{"runId":"a/b"},7,{"runId":"a"}]}"#;
        let own = NestedSelf::read(&Document::parse(text).expect("JSON")).expect("a parent");
        assert_eq!((own.depth, own.path.len()), (3, 1));
    }

    #[test]
    fn a_registry_keeps_what_it_does_not_know_and_never_undoes_an_end() {
        let old = r#"{"rootRunId":"root","updatedAt":1,"children":[{"id":"c","state":"running","lastUpdate":3,"model":"m"},7],"processedEvents":["e"]}"#;
        let mut registry =
            RegistryText::read(&Document::parse(old).expect("JSON"), "root").expect("of this root");
        assert!(registry.knows("e") && !registry.knows("f"));
        let mut fold = |kind, text: &str| registry.fold(kind, Raw::parse(text).expect("JSON"));
        let done = r#"{"id":"c","state":"running","lastUpdate":5,"theirs": 1e400}"#;
        assert_eq!(fold(ChildEvent::Completed, done), Some(Merge::Taken));
        let late = r#"{"id":"c","state":"running","lastUpdate":9}"#;
        assert_eq!(fold(ChildEvent::Updated, late), Some(Merge::EndStays));
        assert_eq!(fold(ChildEvent::Started, r#"{"id":"d","lastUpdate":1}"#), Some(Merge::Taken));
        assert_eq!(fold(ChildEvent::Started, r#"{"id":"../d"}"#), None);
        registry.note("f");
        let text = registry.text(7);
        assert!(
            text.contains(r#""theirs":1e400"#) && text.contains(r#""state":"complete""#),
            "{text}"
        );
        let read = Registry::read(&Document::parse(&text).expect("JSON")).expect("a registry");
        assert_eq!((read.children.len(), read.processed.len()), (2, 2));
        assert!(RegistryText::read(&Document::parse(&text).expect("JSON"), "other").is_err());
        let empty = RegistryText::new("root").text(7);
        assert!(Registry::read(&Document::parse(&empty).expect("JSON")).is_ok(), "{empty}");
    }

    #[test]
    fn the_oldest_events_are_forgotten() {
        let mut registry = RegistryText::new("root");
        for n in 0..limits::ROUTE_EVENTS {
            registry.note(&n.to_string());
        }
        assert_eq!(registry.evict(), [""; 0]);
        registry.note("x");
        assert_eq!(registry.evict(), ["0"]);
        assert!(!registry.knows("0") && registry.knows("1") && registry.knows("x"));
    }
}
