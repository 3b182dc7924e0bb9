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
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::process::skip;
use testkit::trace::refusal;

use super::prove::{Recovered, age, prove, safe_actions};
use crate::killed::rig::{Rig, Role, effects};
use crate::killed::{Point, part_of};
use crate::launch::has_handles;

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

/// The points at which processes are killed; `None` where nothing may be watched.
fn points() -> Option<Vec<Point>> {
    let mut points = Vec::new();
    for role in [Role::Launcher, Role::Shim, Role::Runner] {
        for is_revival in [false, true] {
            let rig = Rig::new(role, is_revival);
            if !rig.launch(None) {
                return None;
            }
            let part = part_of(effects(role, &rig.log())).into_iter();
            points.extend(part.map(|effect| Point { role, is_revival, effect }));
        }
    }
    Some(points)
}

#[test]
fn whatever_a_killed_process_of_a_run_leaves_is_recovered() {
    let test = "recovery after a kill at every effect";
    if let Some(why) = refusal() {
        return skip(test, &why);
    }
    if !has_handles(test) {
        return;
    }
    let Some(points) = points() else {
        return skip(test, "strace may not attach to a process that runs");
    };
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(BTreeMap::<(Role, bool), (usize, usize)>::new());
    let violations = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Point { role, is_revival, effect } = point;
                    let rig = Rig::new(*role, *is_revival);
                    assert!(rig.launch(Some(effect)), "strace could attach before");
                    if !rig.root().exists() {
                        continue;
                    }
                    let work = rig.work();
                    age(&rig.root());
                    let proven = prove(&rig.root(), |seen| told(seen, work));
                    let acted = !safe_actions(&proven.plan).is_empty();
                    let mut counts = counts.lock().expect("no worker panics");
                    let count = counts.entry((*role, *is_revival)).or_default();
                    count.0 += 1;
                    count.1 += usize::from(acted);
                    let mut violations = violations.lock().expect("no worker panics");
                    let kind = if *is_revival { "revival" } else { "fresh" };
                    let name = format!("{role:?}, {kind}, before {effect}");
                    violations.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
                }
            });
        }
    });
    for ((role, is_revival), (stores, acted)) in counts.into_inner().expect("no worker panics") {
        let kind = if is_revival { "revival" } else { "fresh" };
        println!("{role:?}, {kind}: {stores} stores, {acted} with something to do");
    }
    let violations = violations.into_inner().expect("no worker panics");
    println!("{} points, {} violations", points.len(), violations.len());
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}
