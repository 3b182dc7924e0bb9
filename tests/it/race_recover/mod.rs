//! Runs that end, and are killed, at random, while recoverers work on their store all the time.
//!
//! Theory of operation. Every run is a process of its own (`race-run`), so pids and their ends are real. It is
//! told beforehand how it ends and when, drawn from a seed, and tells through one pipe what it has written for
//! certain. New ones are started whenever one has ended, so that as many live at any time as were asked for. Four
//! recoverers work on the store meanwhile: two sweepers without any grace time, and two loops of `recover --apply`,
//! one of them without; a fifth in another pid namespace, where that is permitted. Some runs have a clock that is an hour off, some belong to
//! another pid namespace or to another host; nobody here may touch the last two.
//!
//! When the time is over, everything that lives is let end, the store is recovered until nothing is to be done,
//! and [`judge`] compares the raw files with what each run has told.
//!
//! `RUNSTORE_RACE_RUNS` (how many live at a time), `RUNSTORE_RACE_SECONDS` and `RUNSTORE_RACE_SEED` make it as
//! long as somebody likes. Spec: RS-REC-03 to RS-REC-05, RS-REC-13, RS-REC-20, RS-REC-21, RS-REC-23.

mod judge;
mod loops;
mod places;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use testkit::process::wait_for_the_next_millisecond;
use testkit::{Store, driver};

use self::loops::{Loops, Over, Race, Turn, apply};
use crate::ask::binary;

/// No recovery of these stores takes longer, on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(600);

/// An hour, in ms.
const HOUR_MS: i64 = 3_600_000;

/// Numbers that are the same for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Where a run belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    /// To another pid namespace.
    Inside,
    /// To another host, by its record.
    Elsewhere,
}

/// How a run is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Complete,
    Failed,
    Die,
    /// Killed so many µs after it began to end.
    Cut(u64),
}

/// What is drawn for a run.
#[derive(Clone, Debug)]
struct Story {
    id: String,
    session: String,
    life_ms: u64,
    fate: Fate,
    offset_ms: i64,
    place: Place,
    traits: String,
}

impl Story {
    fn draw(number: usize, dice: &mut Dice, mean_life_ms: u64, may_nest: bool) -> Self {
        let fate = match dice.below(10) {
            0..=3 => Fate::Complete,
            4 => Fate::Failed,
            5 | 6 => Fate::Die,
            // From the first write of an end to its last it is about a millisecond, longer on a busy machine.
            _ => {
                let within_us = 16 << dice.below(9);
                Fate::Cut(dice.below(within_us))
            }
        };
        let place = match dice.below(20) {
            0 if may_nest => Place::Inside,
            1 => Place::Elsewhere,
            _ => Place::Here,
        };
        let offset_ms = [0, 0, HOUR_MS, -HOUR_MS][usize::try_from(dice.below(4)).unwrap_or(0)];
        let chances = [('l', 2), ('p', 3), ('s', 5)];
        let traits: Vec<_> = chances.iter().map(|(c, n)| (*c, dice.below(*n) == 0)).collect();
        Self {
            id: format!("race-{number:05}"),
            session: format!("session-{}", dice.below(8)),
            life_ms: dice.below(2 * mean_life_ms),
            fate,
            offset_ms,
            place,
            traits: traits.iter().filter(|(_, has)| *has).map(|(c, _)| *c).collect(),
        }
    }

    fn command(&self, racer: &Path, root: &Path) -> Command {
        let fate = match self.fate {
            Fate::Complete => "end".to_owned(),
            Fate::Failed => "fail".to_owned(),
            Fate::Die => "die".to_owned(),
            Fate::Cut(us) => format!("cut:{us}"),
        };
        let mut command = match self.place {
            Place::Inside => inside(racer),
            Place::Here | Place::Elsewhere => Command::new(racer),
        };
        let place = if self.place == Place::Elsewhere { "another-host" } else { "here" };
        command.arg(root).args([&self.id, &self.session, &self.life_ms.to_string(), &fate]);
        command.args([&self.offset_ms.to_string(), place, &format!("-{}", self.traits)]);
        command
    }
}

/// A program in a pid namespace of its own.
fn inside(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc"]).arg(program);
    command
}

fn may_nest() -> bool {
    inside(Path::new("true")).output().is_ok_and(|done| done.status.success())
}

/// What a run has told, and how its process ended.
#[derive(Clone, Debug, Default)]
struct Told {
    up: Option<String>,
    result: Option<String>,
    status: Option<String>,
    done: bool,
    problems: Vec<String>,
    end: Option<ExitStatus>,
}

impl Told {
    fn hear(&mut self, what: &str, more: &str) {
        match what {
            "up" => self.up = Some(more.to_owned()),
            "result" => self.result = Some(more.to_owned()),
            "status" => self.status = Some(more.to_owned()),
            "done" => self.done = true,
            _ => self.problems.push(more.to_owned()),
        }
    }
}

/// Every run, by its id.
type Runs = BTreeMap<String, (Story, Told)>;

/// One line of a run.
fn hear(told: &mut Runs, line: &str) {
    let mut words = line.splitn(3, ' ');
    let (what, id) = (words.next().unwrap_or_default(), words.next().unwrap_or("?"));
    let known = told.get_mut(id).unwrap_or_else(|| panic!("who says {line:?}?"));
    known.1.hear(what, words.next().unwrap_or_default());
}

enum News {
    Line(String),
    Ended(String, ExitStatus),
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Starts runs until the time is over, then lets all of them end.
struct Starter<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    root: &'env Path,
    racer: &'env Path,
    news: Sender<News>,
    told: Runs,
    alive: usize,
    /// All racers read from it, and find its end when the race is over.
    life: PipeReader,
    lines: PipeWriter,
}

impl Starter<'_, '_> {
    fn start(&mut self, story: Story) {
        let mut command = story.command(self.racer, self.root);
        command.stdin(self.life.try_clone().expect("a descriptor"));
        command.stdout(self.lines.try_clone().expect("a descriptor"));
        let mut child = command.spawn().expect("a run can be started");
        // It holds the pipe, and the lines would have no end.
        drop(command);
        let (news, id) = (self.news.clone(), story.id.clone());
        self.told.insert(story.id.clone(), (story, Told::default()));
        self.alive += 1;
        self.scope.spawn(move || {
            let end = child.wait().expect("it is ours");
            let _ = news.send(News::Ended(id, end));
        });
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Line(line) => hear(&mut self.told, &line),
            News::Ended(id, end) => {
                self.alive -= 1;
                self.told.get_mut(&id).expect("it was started").1.end = Some(end);
            }
        }
    }

    fn run(
        &mut self,
        heard: &Receiver<News>,
        dice: &mut Dice,
        (runs, seconds, nests): (usize, u64, bool),
    ) {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mean_life_ms = seconds * 1_000 / 6;
        let mut number = 0;
        while Instant::now() < end {
            while self.alive < runs {
                number += 1;
                self.start(Story::draw(number, dice, mean_life_ms, nests));
            }
            match heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(news) => self.hear(news),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => panic!("the lines ended"),
            }
        }
    }
}

fn race(store: &Store, runs: usize, seconds: u64, seed: u64) -> judge::Counts {
    let (root, racer, nests) = (store.root(), driver::race_run(), may_nest());
    if !nests {
        testkit::process::skip("race_recover", "pid namespaces are not permitted here (unshare)");
    }
    let race =
        Race { root, stop: AtomicBool::default(), turn: Turn::default(), loops: Mutex::default() };
    let policy = store.beside("home").join("policy.json");
    std::fs::write(&policy, r#"{"version":1,"graceMs":0}"#).expect("ours");
    let told = std::thread::scope(|scope| {
        let (news, heard) = channel();
        let (life, alive) = std::io::pipe().expect("a pipe");
        let (listen, lines) = std::io::pipe().expect("a pipe");
        let tell = news.clone();
        scope.spawn(move || {
            for line in BufReader::new(listen).lines() {
                let _ = tell.send(News::Line(line.expect("they write text")));
            }
        });
        let race = &race;
        let over = Over(race);
        let no_grace = &["--grace-ms", "0"][..];
        let sweeping = [0, 1].map(|_| scope.spawn(|| race.sweep(&policy)));
        let looping: Vec<_> = [(false, no_grace), (false, &[]), (true, no_grace)]
            .into_iter()
            .filter(|(nested, _)| nests || !nested)
            .map(|(nested, more)| scope.spawn(move || race.recover_in_a_loop(nested, more)))
            .collect();
        let (told, racer) = (BTreeMap::new(), racer.as_path());
        let mut starter = Starter { scope, root, racer, news, told, alive: 0, life, lines };
        starter.run(&heard, &mut Dice(seed), (runs, seconds, nests));
        drop(alive);
        while starter.alive > 0 {
            let news = heard.recv_timeout(LIMIT).expect("they all end");
            starter.hear(news);
        }
        drop(over);
        for one in looping.into_iter().chain(sweeping) {
            one.join().expect("a loop");
        }
        // The last writer of the lines is gone, so they end.
        let Starter { mut told, news, lines, .. } = starter;
        drop((news, lines));
        for late in heard {
            if let News::Line(line) = late {
                hear(&mut told, &line);
            }
        }
        told
    });
    let mut loops = race.loops.into_inner().expect("nobody panicked with it");
    let by_then = loops.here.len();
    at_rest(root, &mut loops);
    // A sweeper passes over what has not changed, and no end of a process may hide there.
    for missed in &loops.here[by_then..] {
        loops.bad.push(format!("the sweepers missed {missed:?}"));
    }
    judge::judge(root, &told, &loops)
}

/// Recovers until there is nothing to be done.
fn at_rest(root: &Path, loops: &mut Loops) {
    for _ in 0..10 {
        // What was written in this very millisecond has not been quiet.
        wait_for_the_next_millisecond();
        let applied = apply(Command::new(binary()), root, &["--grace-ms", "0"]);
        loops.note(false, &applied);
        if applied.json["done"].as_array().is_some_and(Vec::is_empty) {
            return;
        }
    }
    panic!("a store at rest is recovered once, and then there is nothing to be done");
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts of a race are shown with --nocapture")]
fn nothing_that_lives_is_hurt_and_every_orphan_is_closed_once() {
    let runs = number("RUNSTORE_RACE_RUNS", 60);
    let seconds = number("RUNSTORE_RACE_SECONDS", 6);
    let seed = number("RUNSTORE_RACE_SEED", 20_260_101);
    let store = Store::in_memory();
    let counts = race(&store, usize::try_from(runs).expect("a few"), seconds, seed);
    println!("{runs} runs at a time for {seconds} s, seed {seed}:\n{counts}");
    if !counts.wrong.is_empty() {
        let place = store.keep();
        panic!("in {}:\n{}", place.display(), counts.wrong.join("\n"));
    }
    assert!(counts.done > 0 && counts.closed > 0, "there was a race:\n{counts}");
}
