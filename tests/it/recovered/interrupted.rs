//! The windows of a recovery, and of a removal, that are killed themselves. Facts CW-50, CW-51, CW-65 and CW-66.
//!
//! Theory of operation. What a killed recovery leaves is recovered again: it ends as after one that nobody killed,
//! and everything that was done, by both of them, can be taken back. What a killed removal leaves is no business
//! of a recovery; the next removal finishes it. Every other effect of both is in [`crate::recover_killed`].

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use std::path::Path;

use serde_json::Value;
use testkit::process::skip;
use testkit::trace::refusal;
use testkit::{Store, tree};

use super::prove::{Hasty, Picture, actions, picture, prove, safe_actions, timeless, undo};
use super::rig::{Before, program, words};
use super::table;
use crate::ask;
use crate::prune::old;

/// A store, and what it was like at first.
struct Built {
    store: Store,
    first: Picture,
}

/// An orphan that holds a lease and left its configuration.
fn build() -> Built {
    let store = Store::in_memory();
    table::orphan_with_all(&store);
    let first = picture(store.root());
    Built { store, first }
}

fn apply(built: &Built) -> Vec<String> {
    words(built.store.root(), &["recover", "ROOT", "--apply", "--grace-ms", "0"])
}

/// What a killed recovery leaves at named points.
const POINTS: [(&str, &str, Before); 3] = [
    (
        "CW-50",
        "a result and no status",
        &[("rename", ", \"run-1.json\", "), ("rename", ", \"status.json\"")],
    ),
    (
        "CW-51",
        "a status and no index",
        &[("rename", ", \"status.json\""), ("rename", "-run-1.json\"")],
    ),
    (
        "CW-51",
        "both indexes",
        &[("rename", ", \"status.json\""), ("rename", "-run-1.json\""), ("rename", "(")],
    ),
];

/// The paths of a tree, with the state of the run: stamps and tokens differ from one recovery to the next.
fn shape(root: &Path) -> (Vec<String>, Value) {
    let status = root.join("async-subagent-runs/run-1/status.json");
    let status = std::fs::read(status).expect("there");
    let status: Value = serde_json::from_slice(&status).expect("whole");
    let state = [&status["state"], &status["steps"][0]["status"]].map(Clone::clone).to_vec().into();
    (picture(root).keys().map(|path| timeless(path)).collect(), state)
}

/// Removes what the killed writer left under a private name: it is litter as that of any other, which nobody may
/// touch for an hour.
fn sweep(root: &Path) {
    for path in tree::walk(root).expect("readable") {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            std::fs::remove_file(&path).expect("ours");
        }
    }
}

/// Finishes a recovery that was killed, and takes everything back.
fn finish(built: &Built, whole: &(Vec<String>, Value)) -> Vec<String> {
    let (root, first) = (built.store.root(), &built.first);
    sweep(root);
    let mut bad = Vec::new();
    let applied = Hasty::apply(root);
    if shape(root) != *whole {
        bad.push(format!("it ends otherwise: {:?}", shape(root)));
    }
    let left = Hasty::plan(root);
    if !safe_actions(&left).is_empty() || ![0, 1, 5].contains(&applied.code) {
        bad.push(format!("apply ends with {} and leaves {:?}", applied.code, actions(&left)));
    }
    for _ in 0..4 {
        let undone = undo(root);
        if undone.json["id"].is_null() {
            break;
        }
    }
    let differing = tree::differing(first, &picture(root));
    if !differing.is_empty() {
        bad.push(format!("undo does not bring back {differing:?}"));
    }
    bad
}

#[test]
fn a_recovery_that_was_killed_is_finished_by_the_next() {
    let test = "killed recoveries";
    if let Some(why) = refusal() {
        return skip(test, &why);
    }
    let built = build();
    let applied = Hasty::apply(built.store.root());
    assert!([0, 1].contains(&applied.code), "{}", applied.json);
    let whole = shape(built.store.root());
    let mut bad = Vec::new();
    for (row, what, before) in POINTS {
        let name = format!("{row}, {what}");
        match program(build, apply, before) {
            Ok(built) => {
                let why = finish(&built, &whole);
                bad.extend(why.iter().map(|why| format!("{name}: {why}")));
            }
            Err(why) => bad.push(format!("{name}: it could not be built: {why}")),
        }
    }
    println!("{} killed recoveries, {} violations", POINTS.len(), bad.len());
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}

/// What a killed removal leaves at named points.
const REMOVALS: [(&str, &str, Before); 2] = [
    ("CW-65", "a run on its way out", &[("rename", ".deleting-run-"), ("unlink", "status.json")]),
    ("CW-66", "a run that is to go", &[("rename", ".deleting-run-")]),
];

#[test]
fn a_removal_that_was_killed_is_left_to_the_next_removal() {
    let test = "killed removals";
    if let Some(why) = refusal() {
        return skip(test, &why);
    }
    let mut bad = Vec::new();
    let build = || {
        let store = Store::in_memory();
        old(&store, "run-1", 40);
        store
    };
    let removal = |store: &Store| words(store.root(), &["prune", "ROOT", "--apply"]);
    for (row, what, before) in REMOVALS {
        let name = format!("{row}, {what}");
        let store = match program(build, removal, before) {
            Ok(store) => store,
            Err(why) => {
                bad.push(format!("{name}: it could not be built: {why}"));
                continue;
            }
        };
        let proven = prove(store.root(), |_| Vec::new());
        println!("{name}: {:?}", actions(&proven.plan));
        bad.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
        let done = ask::run(&["prune", ask::utf8(store.root()), "--apply"]);
        let left = picture(store.root());
        let left: Vec<_> = left.keys().filter(|path| path.contains("run-1")).collect();
        if done.code != 0 || !left.is_empty() {
            bad.push(format!("{name}: {left:?} is left, {}", done.errors()));
        }
    }
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}
