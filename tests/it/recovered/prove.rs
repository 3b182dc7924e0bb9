//! What must hold of every store that is recovered, and how it is asked.
//!
//! Theory of operation. [`prove`] takes a store through one whole recovery, with the real program: look, plan,
//! apply, look, plan again, undo, plan again. After each of them it compares what is on the disk with what has
//! to be there, and notes every difference in words; it never panics on one, so that a table of stores is gone
//! through to its end. What is special about a store is judged by its own test, by a look at it
//! between the recovery and the undo ([`Recovered`]).
//!
//! runstore's own files (`.runstore`) are left out of every comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::tree::{self, Content, differing};

use crate::ask::{self, Answer, utf8};

/// Older than anything that is left alone because it is young, in ms.
const OLD_MS: i64 = 48 * 3_600_000;

/// Makes every file and directory of a store old.
pub(crate) fn age(root: &Path) {
    tree::age(root, testkit::process::now_ms() - OLD_MS).expect("ours");
}

/// Entries of a tree: mode, size and content by path.
pub(crate) type Picture = BTreeMap<String, (u32, u64, Content)>;

/// What a tree holds, without runstore's own files.
pub(crate) fn picture(root: &Path) -> Picture {
    let all = tree::snapshot(root).expect("a readable tree");
    all.into_iter()
        .filter(|(path, _)| !tree::is_own(path))
        .map(|(path, entry)| (path, (entry.mode, entry.size, entry.content)))
        .collect()
}

/// Questions that wait for nothing that may still come.
pub(crate) struct Hasty;

impl Hasty {
    fn ask(root: &Path, words: &[&str]) -> Answer {
        let mut all = words.to_vec();
        all.extend(["--missing-status-ms", "0", "--startup-stage-ms", "0", "--settling-ms", "0"]);
        all.extend([utf8(root), "--format", "json"]);
        Answer::of(&ask::run(&all))
    }

    pub(crate) fn inspect(root: &Path) -> Answer {
        Self::ask(root, &["inspect"])
    }

    pub(crate) fn plan(root: &Path) -> Answer {
        Self::ask(root, &["recover", "--plan", "--grace-ms", "0"])
    }

    pub(crate) fn apply(root: &Path) -> Answer {
        Self::ask(root, &["recover", "--apply", "--grace-ms", "0"])
    }
}

/// Takes back the last apply.
pub(crate) fn undo(root: &Path) -> Answer {
    Answer::of(&ask::run(&["recover", "undo", "--root", utf8(root), "--format", "json"]))
}

/// Actions of a plan, as `run action safe`.
pub(crate) fn actions(plan: &Answer) -> Vec<String> {
    let all = plan.json["actions"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or("-").to_owned();
    let safe = |one: &Value| if one["safe"] == true { "safe" } else { "unsafe" };
    all.iter().map(|a| format!("{} {} {}", text(a, "runId"), text(a, "action"), safe(a))).collect()
}

/// Only those that are carried out.
pub(crate) fn safe_actions(plan: &Answer) -> Vec<String> {
    actions(plan).into_iter().filter(|line| line.ends_with(" safe")).collect()
}

/// Verdicts by run id.
pub(crate) fn verdicts(answer: &Answer) -> BTreeMap<String, String> {
    let text = |run: &Value, key: &str| run[key].as_str().unwrap_or("-").to_owned();
    answer.runs().iter().map(|run| (text(run, "path"), text(run, "verdict"))).collect()
}

/// One recovery of a store, told from its beginning to its end.
pub(crate) struct Proven {
    /// Whatever did not hold.
    pub(crate) problems: Vec<String>,
    pub(crate) before: Answer,
    pub(crate) plan: Answer,
    pub(crate) after: Answer,
}

impl Proven {
    /// What was done with `run-1`, in words, and whatever did not hold of the recovery of this store.
    pub(crate) fn told(&self, name: &str, before: &[&str]) -> (String, Vec<String>) {
        let was = self.before.verdict("run-1");
        let (done, is) = (actions(&self.plan), self.after.verdict("run-1"));
        let mut bad = Vec::new();
        if !before.contains(&was) {
            let because = self.before.one("run-1")["because"].as_str().unwrap_or_default();
            bad.push(format!("{name}: before, it is {was}: {because}"));
        }
        bad.extend(self.problems.iter().map(|why| format!("{name}: {why}")));
        (format!("{name}: {was} -> {is} by {done:?}"), bad)
    }
}

/// What a store is like once it is recovered, and before that is taken back.
pub(crate) struct Recovered<'a> {
    pub(crate) root: &'a Path,
    pub(crate) plan: &'a Answer,
    pub(crate) after: &'a Answer,
    /// Paths that are not as they were.
    pub(crate) changed: &'a BTreeSet<String>,
}

/// Recovers a store and takes that back; `look` says what is wrong in between. See the module's text.
pub(crate) fn prove(root: &Path, look: impl FnOnce(&Recovered<'_>) -> Vec<String>) -> Proven {
    let mut problems = Vec::new();
    let mut same = |what: &str, one: &Picture, other: &Picture| {
        let differing = differing(one, other);
        if !differing.is_empty() {
            problems.push(format!("{what}: {differing:?}"));
        }
    };
    let (first, ends) = (picture(root), observed(root));
    let before = Hasty::inspect(root);
    let plan = Hasty::plan(root);
    same("a plan changes", &first, &picture(root));
    let applied = Hasty::apply(root);
    let recovered = picture(root);
    let after = Hasty::inspect(root);
    let second = Hasty::plan(root);
    same("a second plan changes", &recovered, &picture(root));
    let changed = differing(&first, &recovered);
    let invented: Vec<_> = observed(root).difference(&ends).cloned().collect();
    let looked = look(&Recovered { root, plan: &plan, after: &after, changed: &changed });
    let undone = undo_if_applied(root, &plan);
    same("undo does not bring back", &first, &picture(root));
    let third = Hasty::plan(root);
    problems.extend(looked);
    problems.extend(undone);
    problems.extend(only_what_was_planned(root, &plan, &changed));
    problems.extend(nothing_is_left(&plan, &applied, &second, &after));
    if !invented.is_empty() {
        problems.push(format!("an end is said to be observed: {invented:?}"));
    }
    if actions(&third) != actions(&plan) {
        problems.push(format!("after the undo {:?}, first {:?}", actions(&third), actions(&plan)));
    }
    Proven { problems, before, plan, after }
}

fn undo_if_applied(root: &Path, plan: &Answer) -> Option<String> {
    if safe_actions(plan).is_empty() {
        return None;
    }
    let undone = undo(root);
    (undone.code != 0).then(|| format!("undo ends with {}: {}", undone.code, undone.json))
}

/// A path without the instant in the name of an entry of the terminal index: an apply makes its plan anew, and what
/// it ends ends then.
pub(crate) fn timeless(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_stamp = name.len() > 17 && name.as_bytes()[..16].iter().all(u8::is_ascii_digit);
    if is_stamp { format!("{dir}/<stamp>{}", &name[16..]) } else { path.to_owned() }
}

/// What a safe action writes, below the root.
fn planned(root: &Path, plan: &Answer) -> BTreeSet<String> {
    let all = plan.json["actions"].as_array().map_or(&[][..], Vec::as_slice);
    let writes =
        all.iter().filter(|one| one["safe"] == true).filter_map(|a| a["writes"].as_array());
    let paths = writes.flatten().filter_map(Value::as_str).map(Path::new);
    let below = paths.map(|path| path.strip_prefix(root).unwrap_or(path));
    below.map(|path| timeless(path.to_string_lossy().trim_end_matches('/'))).collect()
}

/// Whether each change was in the plan: the path itself, what lies below it, or a directory that leads to it.
fn only_what_was_planned(root: &Path, plan: &Answer, changed: &BTreeSet<String>) -> Option<String> {
    let planned = planned(root, plan);
    let is_planned = |path: &str| {
        planned.iter().any(|planned| {
            let below = |one: &str, other: &str| Path::new(one).starts_with(other);
            below(path, planned) || below(planned, path) || path.is_empty()
        })
    };
    let wild: Vec<_> = changed.iter().filter(|path| !is_planned(&timeless(path))).collect();
    (!wild.is_empty()).then(|| format!("changed without a word in the plan: {wild:?}"))
}

/// A second plan has nothing to carry out, and no run that could be recovered is an orphan still.
fn nothing_is_left(
    plan: &Answer,
    applied: &Answer,
    second: &Answer,
    after: &Answer,
) -> Vec<String> {
    let mut problems = Vec::new();
    if !safe_actions(second).is_empty() {
        problems.push(format!("a second plan has {:?}", safe_actions(second)));
    }
    if ![0, 1, 5, 6, 8].contains(&applied.code) {
        problems.push(format!("apply ends with {}", applied.code));
    }
    // What the rules do not end may be freed of what it holds, and stays an orphan.
    let ends = ["close-as-failed", "adopt-result", "complete-end"];
    let all = plan.json["actions"].as_array().map_or(&[][..], Vec::as_slice);
    let ended =
        all.iter().filter(|a| a["action"].as_str().is_some_and(|kind| ends.contains(&kind)));
    let ended: BTreeSet<&str> = ended.filter_map(|a| a["path"].as_str()).collect();
    let refused = plan.json["refused"].as_array().map_or(&[][..], Vec::as_slice);
    let refused: BTreeSet<&str> = refused.iter().filter_map(|r| r["path"].as_str()).collect();
    for (path, verdict) in verdicts(after) {
        let is_told = ended.contains(&*path) != refused.contains(&*path);
        if verdict == "orphaned" && (ended.contains(&*path) || !is_told) {
            problems.push(format!("{path} is an orphan still"));
        }
    }
    problems
}

/// Runs of which a file says that their end was observed.
fn observed(root: &Path) -> BTreeSet<String> {
    let files = tree::walk(root).expect("readable").into_iter();
    let named = files.filter_map(|path| {
        let name = path.file_name()?;
        let is_plain = fs::symlink_metadata(&path).ok()?.is_file();
        if !is_plain || name != "status.json" && name != "process-terminal.json" {
            return None;
        }
        let value: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let sidecar = name == "process-terminal.json";
        let proof = if sidecar { &value } else { value.get("processTerminal")? };
        let run = proof["runId"].as_str()?;
        (proof["state"] == "observed").then(|| run.to_owned())
    });
    named.collect()
}
