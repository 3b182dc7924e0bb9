//! The recoverers of a race: loops of `recover --apply`, and sweepers that remember.
//!
//! Theory of operation. A loop starts one recovery after the other until the race is over, one that found the store
//! held waits until another one has let go of it. A sweeper is one process for the whole race, and the last to
//! stop: it goes on until it found nothing to do a few times, so that nothing is left that its memory hides.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::program;

use super::{LIMIT, inside};
use crate::ask::{binary, utf8};
use crate::place::end_of;

/// One answer of `recover --apply`.
pub(super) struct Applied {
    pub(super) code: i32,
    pub(super) json: Value,
    errors: String,
}

pub(super) fn apply(mut command: Command, root: &Path, more: &[&str]) -> Applied {
    command.args(["recover", utf8(root), "--apply", "--format", "json"]).args(more);
    command.env("HOME", "/").env("NO_COLOR", "1");
    let done = program::run(command, LIMIT, None).expect("the program can be started");
    assert!(!done.late, "a recovery has an end");
    let json = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
    Applied { code: done.code, json, errors: done.errors() }
}

/// What the loops have done.
#[derive(Debug, Default)]
pub(super) struct Loops {
    pub(super) applies: usize,
    /// Passes of the sweepers, and how many runs were there and were read in all of them.
    pub(super) sweeps: usize,
    pub(super) runs_seen: u64,
    pub(super) runs_read: u64,
    pub(super) contended: usize,
    /// Actions of those here, and of the one in another namespace: kind and run.
    pub(super) here: Vec<(String, String)>,
    pub(super) inside: Vec<(String, String)>,
    pub(super) bad: Vec<String>,
}

/// Wakes whoever found the store held by another recoverer.
#[derive(Default)]
pub(super) struct Turn(Mutex<usize>, Condvar);

impl Turn {
    pub(super) fn over(&self) {
        *self.0.lock().expect("nobody panics with it") += 1;
        self.1.notify_all();
    }

    fn wait(&self) {
        let seen = self.0.lock().expect("nobody panics with it");
        let _ = self.1.wait_timeout(seen, Duration::from_millis(100));
    }
}

pub(super) struct Race<'a> {
    pub(super) root: &'a Path,
    pub(super) stop: AtomicBool,
    pub(super) turn: Turn,
    pub(super) loops: Mutex<Loops>,
}

/// Ends the race when it is dropped, by a panic as well: else its loops would go on, and whoever waits for them.
pub(super) struct Over<'a>(pub(super) &'a Race<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.0.turn.over();
    }
}

impl Race<'_> {
    /// Recovers again and again until the race is over.
    pub(super) fn recover_in_a_loop(&self, nested: bool, more: &[&str]) {
        while !self.stop.load(Ordering::SeqCst) {
            let program = binary();
            let command = if nested { inside(&program) } else { Command::new(program) };
            let applied = apply(command, self.root, more);
            let mut loops = self.loops.lock().expect("nobody panics with it");
            if applied.code == 7 {
                loops.contended += 1;
                drop(loops);
                self.turn.wait();
                continue;
            }
            loops.applies += 1;
            loops.note(nested, &applied);
            drop(loops);
            self.turn.over();
        }
    }

    /// Sweeps until the race is over and nothing is left to do.
    pub(super) fn sweep(&self, policy: &Path) {
        let args = ["--every", "100ms", "--format", "jsonl", "--policy", utf8(policy)];
        let mut command = Command::new(binary());
        command.args(["sweep", utf8(self.root)]).args(args).env("HOME", "/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut sweeper = command.spawn().expect("the program can be started");
        let lines = program::lines(sweeper.stdout.take().expect("a pipe"));
        let (mut idle, mut over_since) = (0, None);
        while let Ok(line) = lines.recv_timeout(LIMIT) {
            let pass: Value =
                serde_json::from_str(&line.expect("text")).expect("one object a line");
            let is_over = self.stop.load(Ordering::SeqCst);
            if is_over && over_since.get_or_insert_with(Instant::now).elapsed() > LIMIT {
                break;
            }
            let mut loops = self.loops.lock().expect("nobody panics with it");
            let json = pass["roots"][0].clone();
            match json["outcome"].as_str() {
                Some("contended") => loops.contended += 1,
                Some("swept") => {
                    loops.sweeps += 1;
                    loops.runs_seen += json["runs"].as_u64().unwrap_or_default();
                    loops.runs_read += json["read"].as_u64().unwrap_or_default();
                    let is_idle = json["done"].as_array().is_some_and(Vec::is_empty);
                    idle = if is_over && is_idle { idle + 1 } else { 0 };
                    loops.note(false, &Applied { code: 0, json, errors: String::new() });
                }
                _ => loops.bad.push(format!("a sweep: {json}")),
            }
            drop(loops);
            self.turn.over();
            if idle == 3 {
                break;
            }
        }
        // Nobody reads its answers any more, and it ends by itself.
        drop(lines);
        let end = end_of("a sweeper that nobody reads", &mut sweeper);
        if end.code() != Some(0) || idle < 3 {
            let mut loops = self.loops.lock().expect("nobody panics with it");
            loops.bad.push(format!("a sweeper ended: {end:?}"));
        }
    }
}

impl Loops {
    pub(super) fn note(&mut self, nested: bool, applied: &Applied) {
        // 5: whether the runs of others live cannot be told here.
        let is_strange = !matches!(applied.code, 0 | 1 | 5)
            || applied.json["stopped"].is_string()
            || applied.json["problems"].as_array().is_some_and(|all| !all.is_empty());
        if is_strange {
            let Applied { code, json, errors } = applied;
            self.bad.push(format!("a recovery ended with {code}: {json} {errors}"));
        }
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let done = applied.json["done"].as_array().into_iter().flatten();
        let done = done.map(|one| (text(one, "action"), text(one, "runId")));
        if nested { self.inside.extend(done) } else { self.here.extend(done) }
    }
}
