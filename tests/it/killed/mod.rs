//! Launcher, shim and runner, each killed with SIGKILL at every effect of launch, run and end.
//!
//! Theory of operation. Three processes make a run: a launcher (`launch-run`, the library's, whose runner
//! loses patience soon), the shim and the runner (the real program). One of them is watched ([`rig`]): a first
//! launch lists its effects, the system calls that change the world; then there is one launch for each of
//! them, in which `strace` kills the process before it makes that call. Nothing else is played. When every
//! process of the launch has ended by itself, the store is asked what happened, and the answer is compared
//! with what is known to have happened ([`truth`]): the work leaves a line in a file outside the store. At last
//! the session is used again: its slot and its lease must be had.
//!
//! A fresh run and a revival. In a revival the runner holds the lease of a session file.
//!
//! The whole matrix takes some minutes, so a part of it is made unless `RUNSTORE_CRASH_MATRIX` says `all`.
//! Every stage has its share.

#![expect(clippy::print_stdout, reason = "the counts of the matrix are shown with --nocapture")]

mod ends;
pub(crate) mod rig;
mod truth;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::process::skip;
use testkit::trace::refusal;

use crate::launch::has_handles;
use rig::{Effect, Rig, Role, effects};

/// One process that is killed.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) role: Role,
    pub(crate) is_revival: bool,
    pub(crate) effect: Effect,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, is_revival, effect } = self;
        write!(f, "{role:?}, {}, before {effect}", kind(*is_revival))
    }
}

/// What kind of launch.
pub(crate) fn kind(is_revival: bool) -> &'static str {
    if is_revival { "revival" } else { "fresh" }
}

/// How many of the effects of one stage are tried in a part of the matrix.
const SHARE: usize = 4;

/// So many of these, evenly spread, the first and the last among them; all of them if that is asked for.
pub(crate) fn share_of(effects: Vec<Effect>, share: usize) -> Vec<Effect> {
    if std::env::var("RUNSTORE_CRASH_MATRIX").is_ok_and(|word| word == "all") {
        return effects;
    }
    let last = effects.len() - 1;
    let mut at: Vec<usize> = (0..share).map(|n| n * last / (share - 1)).collect();
    at.dedup();
    at.into_iter().map(|at| effects[at].clone()).collect()
}

/// A share of each stage.
fn part_of(effects: Vec<Effect>) -> Vec<Effect> {
    let mut stages: BTreeMap<&str, Vec<Effect>> = BTreeMap::new();
    for effect in effects {
        stages.entry(effect.stage).or_default().push(effect);
    }
    stages.into_values().flat_map(|stage| share_of(stage, SHARE)).collect()
}

/// The points at which the processes of a launch are killed, as long as those may be watched. `count` is told of
/// every effect that was seen.
pub(crate) fn points(mut count: impl FnMut(Role, bool, &Effect)) -> Option<Vec<Point>> {
    let mut points = Vec::new();
    for role in [Role::Launcher, Role::Shim, Role::Runner] {
        for is_revival in [false, true] {
            let rig = Rig::new(role, is_revival);
            if !rig.launch(None) {
                return None;
            }
            let effects = effects(role, &rig.log());
            effects.iter().for_each(|effect| count(role, is_revival, effect));
            let part = part_of(effects).into_iter();
            points.extend(part.map(|effect| Point { role, is_revival, effect }));
        }
    }
    Some(points)
}

/// Makes one launch for each point, so many at a time for each processor, and hands over what it left.
pub(crate) fn at_each(points: &[Point], at_a_time: usize, look: impl Fn(&Point, Rig) + Sync) {
    let next = AtomicUsize::new(0);
    let processors = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 8);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time * processors {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let rig = Rig::new(point.role, point.is_revival);
                    assert!(rig.launch(Some(&point.effect)), "strace could attach before");
                    look(point, rig);
                }
            });
        }
    });
}

/// Whether processes of a launch can be watched here, and held. Says so if not.
pub(crate) fn may_watch(test: &str) -> bool {
    if let Some(why) = refusal() {
        skip(test, &why);
        return false;
    }
    has_handles(test)
}

#[derive(Debug, Default)]
struct Counts {
    effects: usize,
    killed: usize,
    came_through: usize,
    worked: usize,
    proven: usize,
}

#[test]
fn any_process_of_a_run_may_be_killed_at_any_effect() {
    let test = "launcher, shim and runner killed at every effect";
    if !may_watch(test) {
        return;
    }
    let mut counts: BTreeMap<(Role, bool, &str), Counts> = BTreeMap::new();
    let points = points(|role, is_revival, effect| {
        counts.entry((role, is_revival, effect.stage)).or_default().effects += 1;
    });
    let Some(points) = points else {
        return skip(test, "strace may not attach to a process that runs");
    };
    let counts = Mutex::new(counts);
    let violations = Mutex::new(Vec::new());
    // Two at a time: most of a launch whose launcher is dead is waiting.
    at_each(&points, 2, |point, rig| {
        let seen = truth::check(&rig);
        let mut counts = counts.lock().expect("no worker panics");
        let stage = (point.role, point.is_revival, point.effect.stage);
        let sum = counts.entry(stage).or_default();
        match seen {
            Ok(seen) => {
                sum.killed += usize::from(seen.was_killed);
                sum.came_through += usize::from(!seen.was_killed);
                sum.worked += usize::from(seen.worked);
                sum.proven += usize::from(seen.proven);
            }
            Err(why) => {
                violations.lock().expect("no worker panics").push(format!("{point}: {why}"));
            }
        }
    });
    let mut sum = Counts::default();
    for ((role, is_revival, stage), seen) in counts.into_inner().expect("no worker panics") {
        let kind = kind(is_revival);
        let Counts { effects, killed, came_through, worked, proven } = seen;
        println!(
            "{role:?}, {kind}, {stage}: {effects} effects, {killed} killed, {came_through} came \
             through; {worked} worked, {proven} ends observed"
        );
        sum.effects += effects;
        sum.killed += killed;
        sum.came_through += came_through;
    }
    println!(
        "in all: {} effects, {} killed, {} came through",
        sum.effects, sum.killed, sum.came_through
    );
    let violations = violations.into_inner().expect("no worker panics");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    assert!(sum.killed * 10 >= points.len() * 9, "what was to be killed was killed: {sum:?}");
}
