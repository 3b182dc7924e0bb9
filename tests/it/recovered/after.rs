//! What has to be there after a recovery of the run `run-1`, and what is wrong with it if it is not.

use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::tree;

use super::prove::{Recovered, safe_actions};

pub(crate) const ORPHAN: &[&str] = &["orphaned"];
pub(crate) const ENDED: &[&str] = &["finished", "finished-unproven"];
pub(crate) const UNBORN: &[&str] = &["never-started"];
pub(crate) const FAILED: &[&str] = &["start-failed"];
pub(crate) const UNSTARTED: &[&str] = &["start-failed", "orphaned"];

/// What has to be there after a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct After {
    /// Verdicts that are right.
    pub(crate) verdicts: &'static [&'static str],
    /// The state of the status; `None` when there is none.
    pub(crate) state: Option<&'static str>,
    /// How every step ended; empty when it is not looked at.
    pub(crate) step: &'static str,
    /// Whether there is a public result.
    pub(crate) result: bool,
    /// Slots that are left, if that is looked at.
    pub(crate) slots: Option<usize>,
    /// Whether anything is to be done, if that is looked at.
    pub(crate) acts: Option<bool>,
    /// Whether the indexes have to be in step with it.
    pub(crate) listed: bool,
}

impl After {
    /// No index of ended runs was in use, so it gets no entry.
    pub(crate) const fn unlisted(self) -> Self {
        Self { listed: false, acts: None, slots: None, ..self }
    }

    /// Its steps had ended, and stay so.
    pub(crate) const fn with_done_steps(self) -> Self {
        Self { step: "complete", ..self }
    }

    /// Nothing has to be done.
    pub(crate) const fn quietly(self) -> Self {
        Self { acts: Some(false), ..self }
    }

    /// Whether anything is done is a matter of what others have done meanwhile.
    pub(crate) const fn at_will(self) -> Self {
        Self { acts: None, slots: None, ..self }
    }

    /// Whether its slot stays is a matter of what is proven.
    pub(crate) const fn with_any_slot(self) -> Self {
        Self { slots: None, ..self }
    }

    /// Its slot stays: the rules prove nothing.
    pub(crate) const fn holding(self) -> Self {
        Self { slots: Some(1), ..self }
    }
}

/// A run that was finished from its result.
pub(crate) const FINISHED: After = After {
    verdicts: ENDED,
    state: Some("complete"),
    step: "complete",
    result: true,
    slots: Some(0),
    acts: Some(true),
    listed: true,
};

/// A run that is closed as failed.
pub(crate) const CLOSED: After = After {
    verdicts: ENDED,
    state: Some("failed"),
    step: "failed",
    result: true,
    slots: Some(0),
    acts: Some(true),
    listed: true,
};

/// A run that ended while nobody saw it: only a person may free its slot.
pub(crate) const UNSEEN: After = After { slots: Some(1), acts: Some(false), ..FINISHED };

/// A run that never began: nothing is written in its name, and what its dead launcher held is free.
pub(crate) const NEVER: After = After {
    verdicts: UNBORN,
    state: None,
    step: "",
    result: false,
    slots: Some(0),
    acts: Some(true),
    listed: false,
};

/// A run of which a whole text tells an end that was never published: a person decides.
pub(crate) const UNTOLD: After = After {
    verdicts: ORPHAN,
    state: Some("running"),
    step: "",
    result: false,
    slots: None,
    acts: Some(false),
    listed: false,
};

/// A start whose failure is told: its outcome stays.
pub(crate) const TOLD_FAILED: After = After {
    verdicts: FAILED,
    state: Some("failed"),
    step: "pending",
    result: false,
    slots: Some(0),
    acts: None,
    listed: false,
};

fn json(root: &Path, path: &str) -> Option<Value> {
    serde_json::from_slice(&fs::read(root.join(path)).ok()?).ok()
}

/// How many markers of the end of `run-1` there are.
fn ended_markers(root: &Path) -> usize {
    let index = root.join("async-subagent-runs/.terminal-runs");
    let paths = if index.exists() { tree::walk(&index).expect("readable") } else { Vec::new() };
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    names.filter(|name| !name.starts_with('.') && name.ends_with("-run-1.json")).count()
}

/// What is wrong with what is there after the recovery.
pub(crate) fn judge(recovered: &Recovered<'_>, after: &After) -> Vec<String> {
    let Recovered { root, plan, after: answer, .. } = recovered;
    let mut bad = Vec::new();
    let verdict = answer.verdict("run-1");
    if !after.verdicts.contains(&verdict) {
        bad.push(format!("afterwards it is {verdict}"));
    }
    let status = json(root, "async-subagent-runs/run-1/status.json");
    let state = status.as_ref().and_then(|status| status["state"].as_str());
    if state != after.state {
        bad.push(format!("its state is {state:?}"));
    }
    let steps = status.as_ref().and_then(|status| status["steps"].as_array());
    for step in steps.into_iter().flatten().filter(|_| !after.step.is_empty()) {
        if step["status"] != after.step {
            bad.push(format!("a step is {}", step["status"]));
        }
    }
    let result = root.join("async-subagent-results/run-1.json").exists();
    if result != after.result {
        bad.push(format!("a public result: {result}"));
    }
    let acts = !safe_actions(plan).is_empty();
    if after.acts.is_some_and(|wanted| wanted != acts) {
        bad.push(format!("anything is done: {acts}"));
    }
    let slots = answer.json["slots"].as_array().map_or(0, Vec::len);
    if after.slots.is_some_and(|wanted| wanted != slots) {
        bad.push(format!("{slots} slots are left"));
    }
    let active = root.join("async-subagent-runs/.active-runs/run-1").exists();
    let ended = ended_markers(root);
    if after.listed && (active || ended != 1) {
        bad.push(format!("in the active index: {active}, in the terminal index: {ended}"));
    }
    bad
}
