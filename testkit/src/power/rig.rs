//! Cuts the power under the writer of the library, on every file system that can be had here.
//!
//! Theory of operation. [`run`] takes the file systems two at a time, and prints one line of counts for each
//! file system and workload. Then it holds the counts against the promises of the levels: *durable* tears
//! nothing, loses nothing that was acknowledged and leaves none of it under a temp name; *ordered* tears
//! nothing where there is a journal. The writer that flushes nothing, and the one that flushes no directory
//! (the level ordered), are held against what durable promises as well: both have to be found out on every
//! file system, with each shape. So has the one that gives an old file no second name, where there is no
//! journal: one in twenty of the images by chance shows it, so more of them are looked at there.
//!
//! Not promised: that two runs see the same images. The choice of cuts follows from the seed, but when a file
//! system writes what is its own affair.

use std::path::Path;
use std::sync::Mutex;

use super::matrix::{self, Bench, Counts, System};
use super::{Level, Shape, Workload};
use crate::process::skip;

/// How many times the rounds are made where only a few images can show what is looked for.
const CLOSER: usize = 8;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every promise was kept and every saboteur caught.
    Well,
    /// Something else; it was printed.
    Badly,
    /// No file system could be had, each with its reason.
    Unable,
}

/// What one file system showed.
struct Shown {
    system: System,
    counts: Result<Vec<(Workload, Counts)>, String>,
}

/// Records and cuts everything. A file system that cannot be had is a `SKIP` on the standard error, with
/// the reason.
#[expect(clippy::print_stdout, reason = "the counts are the answer of the rig")]
pub fn run(driver: &Path, rounds: usize, seed: u64) -> Ended {
    println!("power cuts: rounds {rounds}, seed {seed}");
    let shown = show_all(driver, rounds, seed);
    let (mut wrong, mut looked, mut total) = (Vec::new(), 0, 0);
    for shown in &shown {
        match &shown.counts {
            Ok(counts) => {
                looked += 1;
                total += counts.iter().map(|(_, counts)| counts.images).sum::<usize>();
                wrong.extend(counts.iter().flat_map(|(w, c)| broken_promises(shown.system, *w, c)));
            }
            Err(why) => wrong.push(format!("{}: {why}", shown.system.name)),
        }
    }
    if shown.is_empty() {
        return Ended::Unable;
    }
    wrong.extend(uncaught(&shown));
    println!("power cuts: {looked} of {} file systems, {total} images", System::ALL.len());
    for problem in &wrong {
        println!("WRONG {problem}");
    }
    if wrong.is_empty() { Ended::Well } else { Ended::Badly }
}

/// Every file system that can be had, two at a time: most of the work is waiting for the kernel.
fn show_all(driver: &Path, rounds: usize, seed: u64) -> Vec<Shown> {
    let (next, shown) = (Mutex::new(System::ALL.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        let take = || next.lock().expect("nobody panics with it").next();
        while let Some(system) = take() {
            match matrix::base(system) {
                Ok(bench) => {
                    let counts = show(&bench, system, driver, rounds, seed);
                    shown.lock().expect("nobody panics with it").push(Shown { system, counts });
                }
                Err(why) => skip(&format!("power cuts on {}", system.name), &why),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    shown.into_inner().expect("nobody panics with it")
}

#[expect(clippy::print_stdout, reason = "a line as soon as there is one: the whole takes minutes")]
fn show(
    bench: &Bench,
    system: System,
    driver: &Path,
    rounds: usize,
    seed: u64,
) -> Result<Vec<(Workload, Counts)>, String> {
    let mut all = Vec::new();
    let nameless = |workload: &Workload| workload.level == Level::Nameless;
    for workload in Workload::ALL.into_iter().filter(|w| !(nameless(w) && system.journal)) {
        let durable = Workload { level: Level::Durable, shape: Shape::Replaced };
        let close = !system.journal && (workload == durable || nameless(&workload));
        let rounds = if close { CLOSER * rounds } else { rounds };
        let counts = bench.examine(workload, driver, rounds, seed)?;
        let Counts {
            images,
            torn,
            lost,
            astray,
            loose,
            broken,
            recorded: [writes, flushes, _],
            ..
        } = &counts;
        println!(
            "{:20} {:17} {images:4} images of {writes} writes and {flushes} flushes: \
             torn {torn}, lost {lost}, astray {astray}, loose {loose}, broken {broken}",
            system.name,
            workload.name()
        );
        for example in &counts.examples {
            println!("    {example}");
        }
        all.push((workload, counts));
    }
    Ok(all)
}

/// What a workload must not show.
fn broken_promises(system: System, workload: Workload, counts: &Counts) -> Vec<String> {
    let durable = workload.level == Level::Durable;
    let ordered = workload.level == Level::Ordered && system.journal;
    let mut wrong = Vec::new();
    let promises = [
        ("torn", counts.torn, durable || ordered),
        ("lost", counts.lost, durable),
        ("astray", counts.astray, durable || ordered),
        ("loose", counts.loose, durable || ordered),
        // Nothing can be said of it, whoever wrote.
        ("broken", counts.broken, true),
    ];
    for (kind, count, promised) in promises {
        if promised && count > 0 {
            let name = workload.name();
            let of = counts.images;
            wrong.push(format!("{}: {name}: {kind} in {count} of {of} images", system.name));
            let example = |example: &&String| example.starts_with(kind);
            wrong.extend(counts.examples.iter().filter(example).cloned());
        }
    }
    wrong
}

/// Saboteurs that no image of a file system has found out.
fn uncaught(shown: &[Shown]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Shown { system, counts } in shown {
        let counts = counts.iter().flatten();
        for (workload, counts) in counts.filter(|(workload, _)| workload.level != Level::Durable) {
            let astray = if workload.level == Level::Nameless { counts.astray } else { 0 };
            if counts.torn + counts.lost + astray == 0 {
                wrong.push(format!("{}: {} was not caught", system.name, workload.name()));
            }
        }
    }
    wrong
}
