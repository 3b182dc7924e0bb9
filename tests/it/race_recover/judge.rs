//! What became of the runs of a race, from raw files.
//!
//! Theory of operation. For each run three things are put side by side: what it told, which is less than what
//! it wrote or the same; what the files say; and what the records of the recoverer say of it. Nothing of the
//! library reads here. A run that told its status may never have been touched; one that told its result may
//! have been led to it; any other that was killed here was closed once, with one event and one failed result,
//! unless its own result had got there. A run of others is as it left itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use runstore::protocol::segment::sha256_hex;
use serde_json::Value;
use testkit::tree;

use super::loops::Loops;
use super::{Fate, Place, Runs, Story, Told};

/// What was counted.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) started: usize,
    pub(super) done: usize,
    pub(super) killed: usize,
    pub(super) closed: usize,
    pub(super) adopted: usize,
    pub(super) killed_with_their_own_end: usize,
    pub(super) of_others_left_alone: usize,
    pub(super) closed_by_a_namespace_of_the_same_number: usize,
    pub(super) with_a_clock_that_is_off: usize,
    pub(super) slots_left: usize,
    pub(super) applies: usize,
    pub(super) sweeps: usize,
    pub(super) runs_seen: u64,
    pub(super) runs_read: u64,
    pub(super) contended: usize,
    pub(super) actions_here: usize,
    pub(super) actions_in_another_namespace: usize,
    /// What must not be, the first ones.
    pub(super) wrong: Vec<String>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("started", self.started),
            ("  with a clock that is an hour off", self.with_a_clock_that_is_off),
            ("ended as they meant to", self.done),
            ("killed", self.killed),
            ("  closed as failed, once", self.closed),
            ("  led to their result", self.adopted),
            ("  with an end of their own", self.killed_with_their_own_end),
            ("  of another host or namespace, left alone", self.of_others_left_alone),
            (
                "  closed by a namespace of the same number",
                self.closed_by_a_namespace_of_the_same_number,
            ),
            ("slots left", self.slots_left),
            ("recoveries", self.applies),
            ("passes of sweepers", self.sweeps),
            ("  that found another at work, beside", self.contended),
            ("actions", self.actions_here),
            ("actions from another namespace", self.actions_in_another_namespace),
        ];
        lines.iter().try_for_each(|(what, count)| writeln!(f, "{count:>8} {what}"))?;
        writeln!(f, "{:>8} runs read of {} in all passes", self.runs_read, self.runs_seen)
    }
}

/// What the records of the recoverer say: how often each action was done for a run.
fn records(root: &Path) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for path in files(&root.join(".runstore/recovery")) {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        if !name.ends_with(".done.json") && !name.ends_with(".begun.json") {
            assert!(name.ends_with(".aside") || name.ends_with(".superseded.json"), "{name}");
            continue;
        }
        let record = json(&path).unwrap_or_else(|| panic!("{} is whole", path.display()));
        let text = |key: &str| record[key].as_str().expect("a text").to_owned();
        *counts.entry((text("action"), text("runId"))).or_default() += 1;
    }
    counts
}

fn files(below: &Path) -> Vec<PathBuf> {
    let all = walkdir::WalkDir::new(below).into_iter().filter_map(Result::ok);
    all.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path).collect()
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn digest(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| sha256_hex(&bytes))
}

/// One run with everything about it.
struct Case<'a> {
    root: &'a Path,
    story: &'a Story,
    told: &'a Told,
    status_path: PathBuf,
    status: Value,
    result_path: PathBuf,
    events: String,
    closed: usize,
    adopted: usize,
}

impl<'a> Case<'a> {
    fn of(
        root: &'a Path,
        (story, told): &'a (Story, Told),
        done: &BTreeMap<(String, String), usize>,
    ) -> Self {
        let run = root.join("async-subagent-runs").join(&story.id);
        let status_path = run.join("status.json");
        let count = |action: &str| {
            done.get(&(action.to_owned(), story.id.clone())).copied().unwrap_or_default()
        };
        Self {
            root,
            story,
            told,
            status: json(&status_path).unwrap_or_default(),
            status_path,
            result_path: root.join(format!("async-subagent-results/{}.json", story.id)),
            events: fs::read_to_string(run.join("events.jsonl")).unwrap_or_default(),
            closed: count("close-as-failed"),
            adopted: count("adopt-result"),
        }
    }

    fn pending_path(&self) -> PathBuf {
        let Story { id, session, .. } = self.story;
        self.root.join(format!("async-subagent-results/result-pending/{session}/{id}.json"))
    }

    /// What is wrong with how often it was closed.
    fn expect(&self, closed: usize, adopted: &[usize]) -> Result<(), String> {
        let told = self.events.matches("subagent.run.repaired_stale").count();
        if self.closed != closed || told != closed {
            return Err(format!(
                "closed {} times and told {told} times instead of {closed}",
                self.closed
            ));
        }
        if !adopted.contains(&self.adopted) {
            return Err(format!("led to its result {} times instead of {adopted:?}", self.adopted));
        }
        let overlay = &self.status["processTerminal"];
        let repaired = overlay["runnerProcessInstanceId"] == "observer-unavailable";
        if repaired != (closed + self.adopted > 0) {
            return Err(format!("marked as repaired: {repaired}"));
        }
        Ok(())
    }

    /// Its indexes: one entry of its end, and none among those that run.
    fn is_indexed(&self) -> Result<(), String> {
        let runs = self.root.join("async-subagent-runs");
        let Story { id, session, .. } = self.story;
        let ending = format!("-{id}.json");
        let of_end = files(&runs.join(".terminal-runs").join(session));
        let of_end = of_end.iter().filter(|path| path.to_string_lossy().ends_with(&ending)).count();
        if of_end != 1 {
            return Err(format!("it stands {of_end} times in the index of ends"));
        }
        if runs.join(".active-runs").join(id).exists() {
            return Err("it stands in the index of runs that go on".to_owned());
        }
        Ok(())
    }

    fn result_says(&self, state: &str) -> Result<(), String> {
        if self.pending_path().exists() {
            return Err("its result waits".to_owned());
        }
        let result = json(&self.result_path).ok_or("it has no result")?;
        if result["state"] != state || self.status["state"] != state {
            let of_status = &self.status["state"];
            return Err(format!("result {}, status {of_status}, not {state}", result["state"]));
        }
        if result["success"] != (state == "complete") {
            return Err(format!("success {} of {state}", result["success"]));
        }
        Ok(())
    }

    fn result_is_told(&self) -> Result<(), String> {
        if self.told.result != digest(&self.result_path) {
            return Err("its result is another".to_owned());
        }
        Ok(())
    }

    fn status_is(&self, told: Option<&String>) -> Result<(), String> {
        if told != digest(&self.status_path).as_ref() {
            return Err(format!("its status is another: {:#}", self.status));
        }
        Ok(())
    }

    /// It ended, and lived until everything was written.
    fn ended(&self) -> Result<(), String> {
        self.expect(0, &[0])?;
        self.status_is(self.told.status.as_ref())?;
        self.result_is_told()?;
        self.result_says(if self.story.fate == Fate::Failed { "failed" } else { "complete" })?;
        self.is_indexed()
    }

    fn killed(&self, counts: &mut Counts) -> Result<(), String> {
        if self.told.status.is_some() {
            self.expect(0, &[0])?;
            self.status_is(self.told.status.as_ref())?;
            self.result_is_told()?;
            counts.killed_with_their_own_end += 1;
            return self.result_says("complete");
        }
        let is_own = json(&self.result_path).is_some_and(|result| result["state"] == "complete");
        if self.told.result.is_some() || is_own {
            self.expect(0, &[0, 1])?;
            if self.told.result.is_some() {
                self.result_is_told()?;
            }
            self.result_says("complete")?;
            counts.adopted += self.adopted;
            counts.killed_with_their_own_end += 1 - self.adopted;
            return Ok(());
        }
        self.expect(1, &[0])?;
        self.result_says("failed")?;
        counts.closed += 1;
        self.is_indexed()
    }

    /// It is of others, and was killed: only its own writes are there. The number of a pid namespace is given
    /// to a new one once all processes of the old one are gone, so another recoverer in a namespace of its
    /// own may come to be right about it.
    fn left_alone(&self, counts: &mut Counts, inside: usize) -> Result<(), String> {
        if inside > 0 {
            counts.closed_by_a_namespace_of_the_same_number += 1;
            return match self.closed + self.adopted {
                1 if self.story.place == Place::Inside && inside == 1 => Ok(()),
                _ => Err(format!("ended {inside} times in another namespace")),
            };
        }
        counts.of_others_left_alone += 1;
        self.expect(0, &[0])?;
        let own_result = json(&self.result_path).or_else(|| json(&self.pending_path()));
        if own_result.is_some_and(|result| result["state"] != "complete") {
            return Err("it has a result that it did not write".to_owned());
        }
        if self.told.result.is_none() && self.story.fate == Fate::Die {
            return self.status_is(self.told.up.as_ref());
        }
        Ok(())
    }

    /// `inside` is how often it was ended by the recoverer in another namespace.
    fn judge(&self, counts: &mut Counts, inside: usize) -> Result<(), String> {
        let Told { up, done, problems, end, .. } = self.told;
        if !problems.is_empty() {
            return Err(format!("it met {problems:?}"));
        }
        if up.is_none() {
            return Err(format!("it never began: {end:?}"));
        }
        if self.status["runId"] != *self.story.id {
            return Err("it is lost: there is no status of it".to_owned());
        }
        counts.with_a_clock_that_is_off += usize::from(self.story.offset_ms != 0);
        let lives_on = matches!(self.story.fate, Fate::Complete | Fate::Failed);
        let code = end.as_ref().and_then(std::process::ExitStatus::code);
        if lives_on && (code != Some(0) || !done) {
            return Err(format!("it failed on its way: {end:?}"));
        }
        if !lives_on && code == Some(1) {
            return Err("it failed before it was killed".to_owned());
        }
        if inside > 0 && (*done || self.story.place != Place::Inside) {
            return Err("it was ended in another namespace than its own".to_owned());
        }
        if *done {
            counts.done += 1;
            return self.ended();
        }
        counts.killed += 1;
        if self.story.place == Place::Here {
            return self.killed(counts);
        }
        self.left_alone(counts, inside)
    }
}

/// Every run against what it told.
pub(super) fn judge(root: &Path, told: &Runs, loops: &Loops) -> Counts {
    let done = records(root);
    let mut counts = Counts {
        started: told.len(),
        applies: loops.applies,
        contended: loops.contended,
        sweeps: loops.sweeps,
        runs_seen: loops.runs_seen,
        runs_read: loops.runs_read,
        actions_here: loops.here.len(),
        actions_in_another_namespace: loops.inside.len(),
        ..Counts::default()
    };
    let mut wrong = loops.bad.clone();
    for one in told.values() {
        let case = Case::of(root, one, &done);
        let ends = |action: &str| matches!(action, "close-as-failed" | "adopt-result");
        let inside = loops.inside.iter().filter(|(action, run)| ends(action) && *run == one.0.id);
        if let Err(why) = case.judge(&mut counts, inside.count()) {
            wrong.push(format!("{}: {why}; {one:?}", one.0.id));
        }
    }
    wrong.extend(places(root, told, &mut counts));
    wrong.extend(words(root));
    wrong.truncate(20);
    counts.wrong = wrong;
    counts
}

/// Whether every run is there, and no slot has two runs, or is left of one that let go of it.
fn places(root: &Path, told: &Runs, counts: &mut Counts) -> Vec<String> {
    let mut wrong = Vec::new();
    let runs = fs::read_dir(root.join("async-subagent-runs")).expect("there");
    let names = runs.map(|entry| entry.expect("ours").file_name().to_string_lossy().into_owned());
    let names: BTreeSet<_> = names.filter(|name| !name.starts_with('.')).collect();
    if names != told.keys().cloned().collect() {
        wrong.push("the runs that are there are not those that were started".to_owned());
    }
    let mut holders = BTreeSet::new();
    for path in files(&root.join("session-active-async-capacity")) {
        if path.file_name().is_none_or(|name| name != "owner.json") {
            continue;
        }
        let owner = json(&path).unwrap_or_default();
        let run = owner["runId"].as_str().unwrap_or_default().to_owned();
        counts.slots_left += 1;
        match told.get(&run) {
            Some((story, told)) if story.traits.contains('s') && !told.done => {}
            _ => wrong.push(format!("{}: a slot of {run:?}", path.display())),
        }
        if !holders.insert(run) {
            wrong.push(format!("{}: its run has two slots", path.display()));
        }
    }
    wrong
}

/// Nobody has seen an exit, so nobody may say so.
fn words(root: &Path) -> Vec<String> {
    let all = files(root);
    let says = |path: &&PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(10).any(|word| word == b"\"observed\"")
    };
    let say = |path: &PathBuf| format!("{} says observed", path.display());
    all.iter().filter(|path| !tree::is_own(path)).filter(says).map(say).collect()
}
