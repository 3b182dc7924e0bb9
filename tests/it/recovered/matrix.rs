//! Launcher, shim and runner, each killed at any effect of launch, run and end, and the store recovered.
//!
//! Theory of operation. As in [`crate::killed`], with its processes and its effects; here the store is recovered
//! afterwards and taken back ([`prove`]). Between the two it has to tell what is known to have happened: a success
//! has its work and its result, work without a result is a failure, and of a run that nobody let in nothing is
//! told but that.
//!
//! A part of the matrix is made unless `RUNSTORE_CRASH_MATRIX` says `all`.

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use testkit::process::skip;

use super::prove::{Recovered, age, prove, safe_actions};
use crate::killed::rig::Role;
use crate::killed::{at_each, kind, may_watch, points};

/// What may be left of a run once it was recovered.
const OVER: [&str; 4] = ["finished", "finished-unproven", "start-failed", "never-started"];

/// What is wrong with what is told of a run, by what is known of it.
fn told(seen: &Recovered<'_>, work: usize) -> Vec<String> {
    let mut bad = Vec::new();
    let runs = seen.after.runs();
    let results = seen.after.json["results"].as_array().map_or(0, Vec::len);
    if runs.len() > 1 || work > 1 || runs.is_empty() && work > 0 {
        bad.push(format!("{} runs, and the work was done {work} times", runs.len()));
    }
    for run in runs {
        let text = |key: &str| run[key].as_str().unwrap_or("-");
        let (verdict, state) = (text("verdict"), text("recordedState"));
        let is_right = match state {
            "complete" => work == 1 && results == 1,
            "failed" => results <= 1,
            "-" => work == 0 && results == 0,
            _ => false,
        };
        if !OVER.contains(&verdict) || !is_right {
            let because = text("because");
            bad.push(format!("{verdict}, {state}, work {work}, results {results}: {because}"));
        }
    }
    bad
}

/// What was counted of the launches of one kind.
#[derive(Default)]
struct Counts {
    killed: usize,
    stores: usize,
    acted: usize,
}

#[test]
fn whatever_a_killed_process_of_a_run_leaves_is_recovered() {
    let test = "recovery after a kill at every effect";
    if !may_watch(test) {
        return;
    }
    let Some(points) = points(|_, _, _| ()) else {
        return skip(test, "strace may not attach to a process that runs");
    };
    let counts = Mutex::new(BTreeMap::<(Role, bool), Counts>::new());
    let violations = Mutex::new(Vec::new());
    at_each(&points, 1, |point, rig| {
        let count = |add: &dyn Fn(&mut Counts)| {
            let mut counts = counts.lock().expect("no worker panics");
            add(counts.entry((point.role, point.is_revival)).or_default());
        };
        if rig.was_killed() {
            count(&|one| one.killed += 1);
        }
        if !rig.root().exists() {
            return;
        }
        let work = rig.work();
        age(&rig.root());
        let proven = prove(&rig.root(), |seen| told(seen, work));
        let acted = !safe_actions(&proven.plan).is_empty();
        count(&|one| {
            one.stores += 1;
            one.acted += usize::from(acted);
        });
        let mut violations = violations.lock().expect("no worker panics");
        violations.extend(proven.problems.iter().map(|why| format!("{point}: {why}")));
    });
    let (mut all_killed, mut all_acted) = (0, 0);
    for ((role, is_revival), count) in counts.into_inner().expect("no worker panics") {
        let (kind, Counts { killed, stores, acted }) = (kind(is_revival), count);
        println!(
            "{role:?}, {kind}: {killed} killed, {stores} stores, {acted} with something to do"
        );
        all_killed += killed;
        all_acted += acted;
    }
    let violations = violations.into_inner().expect("no worker panics");
    println!("{} points, {} violations", points.len(), violations.len());
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    let aimed = points.len();
    assert!(all_killed * 10 >= aimed * 9, "{all_killed} of {aimed} were killed as they were to be");
    assert!(all_acted > 0, "there was something to be done");
}
