//! What a route says of a nested run, and which of two accounts is kept.
//!
//! Theory of operation. A [`Summary`] is a clipped copy of a nested run's status, made by its runner
//! or by a projector. [`merge`] folds an event into what was known: news never goes back in time, an
//! end is never undone, and of two ends at one instant the first stays. The function is pure, so the
//! registry can be computed anew from the events in any process.
//!
//! Not promised: that a summary is true or complete. The status of the nested run itself is preferred
//! to every summary of it. Spec: RS-NEST-05, RS-NEST-06; facts Q-43, Q-44.

use super::document::Document;
use super::error::DecodeError;
use super::member;
use super::nested::check_id;
use super::open::{Open, words};
use super::raw::Raw;
use super::state::{RunState, StepState};

/// How deep children of children are looked at (facts Q-43).
pub const MAX_SUMMARY_DEPTH: usize = 3;
/// Most steps of one summary that are looked at (facts Q-43).
pub const MAX_SUMMARY_STEPS: usize = 12;
/// Most children of one summary that are looked at (facts Q-43).
pub const MAX_SUMMARY_CHILDREN: usize = 16;
/// Most runs of one registry that are looked at. The protocol has no bound; one registry is at most
/// as large as any sidecar, and a thousand runs under one root is far beyond the fan-out budget.
pub const MAX_REGISTRY_CHILDREN: usize = 1000;

words! {
    /// News of a nested run, as the last part of the event's type.
    ChildEvent {
        /// It was launched.
        Started = "started",
        /// It went on.
        Updated = "updated",
        /// It ended, by its own word or a reconciler's.
        Completed = "completed",
    }
}

impl ChildEvent {
    /// The news with this word.
    pub(super) fn of(word: &str) -> Option<Self> {
        <Self as super::Word>::from_word(word)
    }
}

/// A clipped copy of a nested run's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// `id`, valid by the rule of nested ids.
    pub id: String,
    /// `parentRunId`.
    pub parent_run_id: Option<String>,
    /// `parentStepIndex`.
    pub parent_step_index: Option<i64>,
    /// `state`, known or not.
    pub state: Option<Open<RunState>>,
    /// `asyncDir`: where its writer had the run's directory. Never opened.
    pub async_dir: Option<String>,
    /// `pid`; for information only.
    pub pid: Option<i64>,
    /// `sessionId`.
    pub session_id: Option<String>,
    /// `startedAt`, ms since the epoch.
    pub started_at_ms: Option<i64>,
    /// `endedAt`, ms since the epoch.
    pub ended_at_ms: Option<i64>,
    /// `lastUpdate`, ms since the epoch.
    pub last_update_ms: Option<i64>,
    /// `steps`: agent and state of the first [`MAX_SUMMARY_STEPS`].
    pub steps: Vec<(Option<String>, Option<Open<StepState>>)>,
    /// `children`: the first [`MAX_SUMMARY_CHILDREN`], to a depth of [`MAX_SUMMARY_DEPTH`].
    pub children: Vec<Summary>,
}

impl Summary {
    /// Reads a summary. Members of a wrong type read as absent; a child that is no summary is left
    /// out.
    ///
    /// # Errors
    /// [`DecodeError::Member`] when it is no object or its `id` is not that of a nested run.
    pub fn read(raw: Raw<'_>) -> Result<Self, DecodeError> {
        Self::read_at(raw, 1)
    }

    fn read_at(raw: Raw<'_>, depth: usize) -> Result<Self, DecodeError> {
        let doc = raw.object().ok_or_else(|| DecodeError::member("child", "an object"))?;
        let text = |key: &str| member::loose_string(&doc, key);
        let at = |key: &str| doc.get(key).and_then(Raw::instant_ms);
        let id = text("id")
            .filter(|id| check_id(id).is_ok())
            .ok_or_else(|| DecodeError::member("child.id", "the id of a nested run"))?;
        let list = |key: &str| doc.get(key).and_then(Raw::array).unwrap_or_default();
        let children = if depth < MAX_SUMMARY_DEPTH {
            list("children")
                .into_iter()
                .take(MAX_SUMMARY_CHILDREN)
                .filter_map(|raw| Self::read_at(raw, depth + 1).ok())
                .collect()
        } else {
            Vec::new()
        };
        let steps = list("steps").into_iter().take(MAX_SUMMARY_STEPS).map(step).collect();
        Ok(Self {
            id,
            parent_run_id: text("parentRunId"),
            parent_step_index: doc.get("parentStepIndex").and_then(Raw::integer),
            state: text("state").map(|word| Open::read(&word)),
            async_dir: text("asyncDir"),
            pid: doc.get("pid").and_then(Raw::integer),
            session_id: text("sessionId"),
            started_at_ms: at("startedAt"),
            ended_at_ms: at("endedAt"),
            last_update_ms: at("lastUpdate"),
            steps,
            children,
        })
    }

    /// Whether the summary tells an end.
    pub fn is_terminal(&self) -> bool {
        self.state.as_ref().and_then(Open::known).is_some_and(RunState::is_terminal)
    }

    /// Calls `each` with every run in the summary, itself first, and the id of its parent.
    pub fn each_run<'s>(&'s self, parent: &'s str, each: &mut dyn FnMut(&'s Self, &'s str)) {
        let parent = self.parent_run_id.as_deref().unwrap_or(parent);
        each(self, parent);
        for child in &self.children {
            child.each_run(&self.id, each);
        }
    }
}

fn step(raw: Raw<'_>) -> (Option<String>, Option<Open<StepState>>) {
    let Some(doc) = raw.object() else { return (None, None) };
    let state = member::text(&doc, "status").map(|word| Open::read(&word));
    (member::loose_string(&doc, "agent"), state)
}

/// What `registry.json` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// `rootRunId`.
    pub root_run_id: String,
    /// `updatedAt`, ms since the epoch.
    pub updated_at_ms: Option<i64>,
    /// `children`, at most [`MAX_REGISTRY_CHILDREN`].
    pub children: Vec<Summary>,
    /// `processedEvents`: names of the event files that are folded in.
    pub processed: Vec<String>,
}

impl Registry {
    /// Reads a registry. A child that is no summary is left out. Facts Q-43.
    ///
    /// # Errors
    /// [`DecodeError::Member`] when it names no root or has no list of children.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let root_run_id = member::filled_string(doc, "rootRunId")?;
        let children = doc
            .get("children")
            .and_then(Raw::array)
            .ok_or_else(|| DecodeError::member("children", "an array"))?;
        let processed = doc.get("processedEvents").and_then(Raw::array).unwrap_or_default();
        Ok(Self {
            root_run_id,
            updated_at_ms: doc.get("updatedAt").and_then(Raw::instant_ms),
            children: children
                .into_iter()
                .take(MAX_REGISTRY_CHILDREN)
                .filter_map(|raw| Summary::read(raw).ok())
                .collect(),
            processed: processed.into_iter().filter_map(Raw::exact_string).collect(),
        })
    }

    /// Folds an event in; the answer says whether it changed anything.
    pub fn fold(&mut self, kind: ChildEvent, child: Summary) -> Merge {
        let known = self.children.iter().position(|known| known.id == child.id);
        let answer = merge(known.map(|i| &self.children[i]), kind, &child);
        match known {
            Some(i) if answer == Merge::Taken => self.children[i] = settled(kind, child),
            Some(_) => {}
            None if self.children.len() < MAX_REGISTRY_CHILDREN => {
                self.children.push(settled(kind, child));
            }
            None => return Merge::Full,
        }
        answer
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merge {
    /// It is the account now.
    Taken,
    /// It is older than what is known.
    Older,
    /// It would undo an end.
    EndStays,
    /// Both tell an end at the same instant: the first one stays.
    FirstEndStays,
    /// There is no room for another run.
    Full,
}

/// The rule of two accounts of one nested run (`RS-NEST-05`, facts Q-44).
///
/// An account without `lastUpdate` is older than one that has it, and as old as another without.
pub fn merge(known: Option<&Summary>, kind: ChildEvent, update: &Summary) -> Merge {
    let Some(known) = known else { return Merge::Taken };
    if update.last_update_ms < known.last_update_ms {
        return Merge::Older;
    }
    let ends = update.is_terminal() || (kind == ChildEvent::Completed && claims_running(update));
    match (known.is_terminal(), ends) {
        (true, false) => Merge::EndStays,
        (true, true) if update.last_update_ms == known.last_update_ms => Merge::FirstEndStays,
        _ => Merge::Taken,
    }
}

pub(super) fn claims_running(summary: &Summary) -> bool {
    summary.state == Some(Open::Known(RunState::Running))
}

/// A completion whose summary still says `running` was taken a moment too early: it is `complete`.
fn settled(kind: ChildEvent, mut child: Summary) -> Summary {
    if kind == ChildEvent::Completed && claims_running(&child) {
        child.state = Some(Open::Known(RunState::Complete));
    }
    child
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(state: &str, at: i64) -> Summary {
        let text = format!(r#"{{"id":"c","state":"{state}","lastUpdate":{at}}}"#);
        Summary::read(Raw::parse(&text).expect("valid")).expect("a summary")
    }

    #[test]
    fn of_two_accounts_the_newer_wins_and_an_end_is_never_undone() {
        use ChildEvent::{Completed, Started, Updated};
        for (known, kind, update, want) in [
            (None, Started, ("running", 5), Merge::Taken),
            (Some(("running", 5)), Updated, ("running", 4), Merge::Older),
            (Some(("running", 5)), Updated, ("running", 5), Merge::Taken),
            (Some(("running", 5)), Completed, ("failed", 4), Merge::Older),
            (Some(("running", 5)), Completed, ("failed", 5), Merge::Taken),
            (Some(("failed", 5)), Updated, ("running", 9), Merge::EndStays),
            (Some(("failed", 5)), Completed, ("complete", 5), Merge::FirstEndStays),
            (Some(("failed", 5)), Completed, ("complete", 6), Merge::Taken),
            (Some(("failed", 5)), Completed, ("running", 6), Merge::Taken),
            (Some(("failed", 5)), Completed, ("queued", 6), Merge::EndStays),
            (Some(("failed", 5)), Updated, ("strange", 6), Merge::EndStays),
        ] {
            let known = known.map(|(state, at)| summary(state, at));
            let update = summary(update.0, update.1);
            assert_eq!(merge(known.as_ref(), kind, &update), want, "{known:?} {kind} {update:?}");
        }
    }

    #[test]
    fn an_account_without_a_time_is_the_older_one() {
        let timeless = Summary { last_update_ms: None, ..summary("running", 0) };
        let timed = summary("running", 5);
        assert_eq!(merge(Some(&timed), ChildEvent::Updated, &timeless), Merge::Older);
        assert_eq!(merge(Some(&timeless), ChildEvent::Updated, &timed), Merge::Taken);
    }

    #[test]
    fn a_completion_that_says_running_is_complete() {
        let mut registry = Registry::default();
        registry.fold(ChildEvent::Started, summary("running", 1));
        assert_eq!(registry.fold(ChildEvent::Completed, summary("running", 2)), Merge::Taken);
        assert_eq!(registry.children[0].state, Some(Open::Known(RunState::Complete)));
        assert_eq!(registry.fold(ChildEvent::Updated, summary("running", 3)), Merge::EndStays);
    }

    #[test]
    fn summaries_are_clipped_in_depth_and_width() {
        let steps = vec![r#"{"agent":"a","status":"complete"}"#; 13].join(",");
        let deep =
            r#"{"id":"1","children":[{"id":"2","children":[{"id":"3","children":[{"id":"4"}]}]}]}"#;
        let wide = vec![r#"{"id":"w"}"#; 17].join(",");
        let read = |text: &str| Summary::read(Raw::parse(text).expect("valid")).expect("a summary");
        assert_eq!(read(&format!(r#"{{"id":"s","steps":[{steps}]}}"#)).steps.len(), 12);
        assert_eq!(read(&format!(r#"{{"id":"s","children":[{wide}]}}"#)).children.len(), 16);
        let mut ids = Vec::new();
        read(deep)
            .each_run("root", &mut |run, parent| ids.push((run.id.clone(), parent.to_owned())));
        let want = [("1", "root"), ("2", "1"), ("3", "2")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(ids, want, "the fourth level is left out");
    }

    #[test]
    fn a_child_that_could_leave_its_directory_is_left_out() {
        let text = r#"{"rootRunId":"r","updatedAt":1,"children":[{"id":"../x"},{"id":"ok"},7],
            "processedEvents":["e",7]}"#;
        let registry = Registry::read(&Document::parse(text).expect("valid")).expect("a registry");
        assert_eq!(registry.children.len(), 1);
        assert_eq!(registry.processed, ["e"]);
        assert!(Registry::read(&Document::parse(r#"{"rootRunId":"r"}"#).expect("valid")).is_err());
    }
}
