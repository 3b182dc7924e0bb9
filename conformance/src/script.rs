//! The suite in the place of the other roles: one scenario from its store to what was seen.
//!
//! Theory of operation. Ordered steps: make the cell; take a picture; begin to record; do what the script says; wait
//! for nothing any more and end what is left; take the last picture; end the record. A script stops at the first thing
//! that it waits for in vain, and says at which; what it had not done is then not there for any check. Every wait is
//! bounded by itself and by the scenario, so a subject that does nothing costs its limit and no more.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cases::Scenario;
use crate::cell::{Cell, bytes_of, numbers};
use crate::evidence::{Event, Evidence, Op, fill, fill_value};
use crate::helpers::Helpers;
use crate::process::{Subject, pause};
use crate::recorder::{Recorder, read};
use crate::subject::{Adapter, Mistake};

/// How long a step of a script waits where it does not say so itself.
const WAIT_MS: u64 = 25_000;

/// Plays a scenario. `base` is a directory of its own that need not be there.
pub(crate) fn play(
    scenario: &Scenario,
    subject: &Adapter,
    base: &Path,
    seed: &str,
    keep: bool,
) -> Evidence {
    let cell = match fs::create_dir_all(base)
        .and_then(|()| Cell::make(base, scenario, seed, keep, subject.step.as_ref()))
    {
        Ok(cell) => cell,
        Err(e) => {
            return Evidence {
                broken: Some(format!("the store cannot be made: {e}")),
                ..Evidence::default()
            };
        }
    };
    let token = crate::raw::sha256(format!("{seed}:{}", base.display()).as_bytes());
    let recorder = Recorder::start(&cell.root, &token);
    let until = Instant::now() + Duration::from_millis(scenario.limit_ms);
    let mut player = Player {
        cell,
        recorder,
        subject,
        scenario,
        token,
        until,
        child: None,
        past: Vec::new(),
        helpers: Helpers::default(),
        gates: Vec::new(),
        hammer: None,
        seen: Evidence::default(),
    };
    player.seen.trees.insert("start".into(), player.cell.picture());
    for step in &scenario.script {
        if let Err(missed) = player.step(step) {
            player.seen.missed = Some(missed);
            break;
        }
        if player.seen.broken.is_some() {
            break;
        }
    }
    player.finish()
}

struct Player<'t> {
    cell: Cell,
    recorder: Recorder,
    subject: &'t Adapter,
    scenario: &'t Scenario,
    token: String,
    until: Instant,
    child: Option<(Option<String>, Subject)>,
    /// Calls before the last one.
    past: Vec<(Option<String>, Subject)>,
    helpers: Helpers,
    /// Open ends of gates, until the scenario is over: a process may come to its gate late.
    gates: Vec<fs::File>,
    hammer: Option<Hammer>,
    seen: Evidence,
}

impl Player<'_> {
    fn step(&mut self, step: &Value) -> Result<(), String> {
        let step = numbers(&fill_value(&self.cell.names, step));
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let path = text("path").unwrap_or_default().to_owned();
        let ms = step.get("ms").and_then(Value::as_u64);
        match text("do").unwrap_or_default() {
            "start" => self.start(&step),
            "call" => {
                let args = step.get("args").and_then(Value::as_object).cloned();
                let op = text("op").unwrap_or_default();
                return self.call(&step, op, args.unwrap_or_default());
            }
            "process" => {
                let name = text("name").unwrap_or_default();
                match self.helpers.start(name, text("script"), &mut self.cell.names) {
                    Ok(()) => {}
                    Err(e) => self.seen.broken = Some(format!("no process can be started: {e}")),
                }
            }
            "end-process" => {
                let reap = step.get("reap").and_then(Value::as_bool).unwrap_or(true);
                self.helpers.end(text("name").unwrap_or_default(), reap);
            }
            "prepare" => {
                // No process has this number, so nobody is taken for the runner.
                self.launched(2_147_480_000);
            }
            "observe" => {
                let runner = json!(["sh", "-c", text("runner").unwrap_or_default()]);
                return self.call(&step, "observe", Map::from_iter([("runner".into(), runner)]));
            }
            "say" => {
                self.seen.said.insert(path.clone());
                let done = self.cell.put(&path, &bytes_of(&step));
                self.made(done, &path);
            }
            "plant" => self.plant(&step, path),
            "age" => {
                let done = self.cell.age(&path, ms.unwrap_or_default());
                self.made(done, &path);
            }
            "remove" => {
                // The subject may have done so itself.
                let _ = fs::remove_file(self.cell.path(&path));
            }
            "await" => {
                let what = step.get("where").cloned().unwrap_or(Value::Null);
                let there = |player: &Self| holds(&player.cell.path(&path), &what);
                return self.wait(&step, &path, there);
            }
            "await-gone" => {
                let gone = |player: &Self| player.cell.path(&path).symlink_metadata().is_err();
                return self.wait(&step, &format!("{path} to go"), gone);
            }
            "await-said" => {
                let wanted = text("text").unwrap_or_default();
                let said = |player: &Self| {
                    player.child.as_ref().is_some_and(|(_, child)| child.has_said(wanted))
                };
                return self.wait(&step, &format!("`{wanted}`"), said);
            }
            "await-exit" => return self.end_of_child(&step),
            "hold" => {
                let limit = Duration::from_millis(ms.unwrap_or(300)).min(self.rest());
                match &mut self.child {
                    // What the subject has left behind may go on.
                    _ if step.get("patient").is_some() => std::thread::sleep(limit),
                    Some((_, child)) => drop(child.wait(limit)),
                    None => {}
                }
            }
            "mark" => self.recorder.mark(text("name").unwrap_or_default()),
            "snapshot" => {
                let name = text("name").unwrap_or_default().to_owned();
                self.seen.trees.insert(name, self.cell.picture());
            }
            "remember" => {
                let found = read(&self.cell.path(&path), None).and_then(|version| version.json());
                let value =
                    found.as_ref().and_then(|v| v.pointer(text("member").unwrap_or_default()));
                let value = value.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
                let name = text("name").unwrap_or_default().to_owned();
                let value = value.ok_or_else(|| format!("{path} does not have {name}"))?;
                self.cell.names.insert(name, value);
            }
            "signal" => {
                let signal = match text("name").unwrap_or_default() {
                    "TERM" => rustix::process::Signal::TERM,
                    "USR2" => rustix::process::Signal::USR2,
                    "KILL" => rustix::process::Signal::KILL,
                    other => {
                        self.seen.broken = Some(format!("nobody knows the signal `{other}`"));
                        return Ok(());
                    }
                };
                if let Some((_, child)) = &mut self.child {
                    // What makes a mistake passes no signal on, and hears none.
                    let is_deaf = self.subject.mistake.as_ref().is_some_and(Mistake::is_deaf);
                    child.signal(signal, is_deaf);
                }
            }
            other => self.seen.broken = Some(format!("nobody knows how to `{other}`")),
        }
        Ok(())
    }

    fn rest(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn made(&mut self, done: std::io::Result<()>, path: &str) {
        if let Err(e) = done {
            self.seen.broken = Some(format!("{path} cannot be made: {e}"));
        }
    }

    fn start(&mut self, step: &Value) {
        let word = |key: &str| step.get(key).and_then(Value::as_str);
        if let Err(e) = self.cell.write_config(word("config"), word("configAs")) {
            self.seen.broken = Some(format!("the configuration cannot be written: {e}"));
            return;
        }
        let config = self.cell.config_path().to_string_lossy().into_owned().into();
        if let Err(why) = self.begin(step, "run", Map::from_iter([("config".into(), config)])) {
            self.seen.broken = Some(why);
            return;
        }
        self.launched(self.pid());
        if self.scenario.hammer {
            self.hammer = Some(Hammer::start(&self.cell));
        }
        self.recorder.mark("launched");
    }

    /// The number of the process that was begun last.
    fn pid(&self) -> i64 {
        self.child.as_ref().map_or(0, |(_, child)| child.pid())
    }

    /// A command whose system calls are recorded and refused as the scenario says.
    fn recorded(&self, mut command: Vec<String>) -> Vec<String> {
        let Some(calls) = &self.scenario.calls else { return command };
        let log = self.cell.calls_path().to_string_lossy().into_owned();
        let mut words: Vec<String> =
            ["strace", "-f", "-y", "-qq", "-A", "-s", "4096", "-o", &log].map(str::to_owned).into();
        words.extend(calls.words(&self.cell.names));
        words.push("--".into());
        command.splice(0..0, words);
        command
    }

    /// What a launcher writes once it has a process.
    fn launched(&mut self, pid: i64) {
        let run = fill(&self.cell.names, "${run}");
        for name in ["status.json", "process-terminal.json", "process-terminal-candidate.json"] {
            self.seen.said.insert(format!("{run}/{name}"));
        }
        self.seen.said.insert(fill(&self.cell.names, "${runs}/.active-runs/${runId}"));
        let done = self.cell.launched(pid);
        self.made(done, &run);
    }

    /// Begins an operation of the subject: in the hands of the mistake that is made around it, with its system calls recorded,
    /// and held at a gate while what is to name its process is planted. All but a runner get the request on their standard input.
    ///
    /// # Errors
    /// Why it cannot be started.
    fn begin(&mut self, step: &Value, op: &str, given: Map<String, Value>) -> Result<(), String> {
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let now = step.get("now").and_then(Value::as_i64).unwrap_or_else(crate::raw::now_ms);
        let root = self.cell.root.to_string_lossy().into_owned();
        let names = self.cell.names.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
        let args = names.chain(given.clone()).chain([("now".to_owned(), now.into())]).collect();
        let words = self.subject.words(&self.scenario.role, op, &args);
        let words =
            words.ok_or_else(|| format!("the subject has no command for the operation `{op}`"))?;
        let (words, made) = self.subject.called(words, op, text("as"), &self.cell.names);
        let umask = text("umask").map(|umask| format!("umask {umask}; exec \"$@\""));
        // An observer may need a session of its own, which no leader of a group can make.
        let child = (op == "observe").then(|| "\"$@\"; exit $?".to_owned());
        let mut command: Vec<String> = Vec::new();
        for script in umask.into_iter().chain(child) {
            command.extend(["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]);
        }
        command.extend(words);
        let mut command = self.recorded(command);
        let input = (op != "run").then(|| {
            let request = json!({"schema": "runstore.conformance.request/1", "op": op, "root": root, "now": now, "args": given});
            self.cell.request(&request)
        });
        let input = input.transpose().map_err(|e| format!("no request: {e}"))?;
        let own = step.get("own");
        let gate = own.map(|_| self.cell.gate()).transpose();
        let gate = gate.map_err(|e| format!("its process cannot be held: {e}"))?;
        if let Some(gate) = &gate {
            command = gate.before(command);
        }
        let family = self.scenario.family().to_uppercase();
        let mut env = vec![(format!("{family}_SUBAGENTS_TEMP_ROOT"), root)];
        for (key, value) in step.get("env").and_then(Value::as_object).into_iter().flatten() {
            env.push((key.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        env.extend(made);
        self.past.extend(self.child.take());
        self.recorder.mark("start");
        let on_terminal = step.get("terminal") == Some(&Value::Bool(true));
        let child = Subject::start(&command, &self.token, &env, input.as_deref(), on_terminal)?;
        self.child = Some((text("as").map(str::to_owned), child));
        if let (Some(own), Some(gate)) = (own, gate) {
            self.plant_own(own);
            self.gates.extend(gate.open());
        }
        Ok(())
    }

    /// Calls an operation; waits for its end, unless `wait` says no.
    fn call(&mut self, step: &Value, op: &str, given: Map<String, Value>) -> Result<(), String> {
        if let Err(why) = self.begin(step, op, given) {
            self.seen.broken = Some(why);
            return Ok(());
        }
        if step.get("wait") == Some(&Value::Bool(false)) {
            return Ok(());
        }
        let ended = self.end_of_child(step);
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let (name, save) = (text("as"), text("save"));
        let is_wanted = name.is_some() || save.is_some();
        let said = self.child.as_mut().filter(|_| is_wanted).map(|(_, child)| child.said());
        if let (Some(path), Some(said)) = (save, &said) {
            self.seen.said.insert(path.to_owned());
            let done = self.cell.put(path, said.stdout.as_bytes());
            self.made(done, path);
        }
        if let (Some(name), Some(said)) = (name, said) {
            self.seen.said_as.insert(name.to_owned(), said);
        }
        ended
    }

    /// Plants a file that names the process of a call, which is held meanwhile.
    fn plant_own(&mut self, own: &Value) {
        self.cell.names.insert("own.pid".into(), self.pid().to_string());
        let own = numbers(&fill_value(&self.cell.names, own));
        let path = own.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.plant(&own, path);
    }

    fn plant(&mut self, what: &Value, path: String) {
        let is_dir = what.get("kind").is_some_and(|kind| kind == "directory");
        let done = self.cell.make_way(&path).and_then(|made| {
            // Before the file is there: whoever it is for may remove it at once.
            if made {
                self.recorder.settle();
            }
            self.cell.plant(what)
        });
        if is_dir {
            self.recorder.settle();
        }
        self.made(done, &path);
        self.seen.said.insert(path);
    }

    /// How long a step may wait.
    fn limit(&self, step: &Value) -> Duration {
        let ms = step.get("ms").and_then(Value::as_u64).unwrap_or(WAIT_MS);
        Duration::from_millis(ms).min(self.rest())
    }

    /// Waits for the end of the subject.
    fn end_of_child(&mut self, step: &Value) -> Result<(), String> {
        let limit = self.limit(step);
        if !self.child.as_mut().is_none_or(|(_, child)| child.wait(limit)) {
            let ms = limit.as_millis();
            return Err(format!("the end of the subject did not come within {ms} ms"));
        }
        self.recorder.mark("exit");
        Ok(())
    }

    /// Waits for something: a moment longer than the subject lives, with `patient` also after that. With `maybe` the script goes on
    /// where that is in vain.
    fn wait(
        &mut self,
        step: &Value,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let says = |key: &str| step.get(key) == Some(&Value::Bool(true));
        let limit = self.limit(step);
        let until = Instant::now() + limit;
        loop {
            let ended = self.child.as_mut().is_none_or(|(_, child)| child.ended().is_some());
            if is_so(self) {
                return Ok(());
            }
            let missed = if ended && !says("patient") {
                format!("the subject ended without {what}")
            } else if Instant::now() >= until {
                format!("{what} did not come within {} ms", limit.as_millis())
            } else {
                pause();
                continue;
            };
            return if says("maybe") { Ok(()) } else { Err(missed) };
        }
    }

    fn finish(mut self) -> Evidence {
        if let Some(hammer) = self.hammer.take() {
            (self.seen.whole, self.seen.torn) = hammer.finish();
        }
        let began = self.recorder.began();
        let last = self.child.take().map(|(name, mut child)| {
            if child.ended().is_some() {
                self.seen.left =
                    child.left().into_iter().map(|(pid, what)| format!("{pid} {what}")).collect();
            }
            (name, child.finish())
        });
        let past = self.past.drain(..).map(|(name, child)| (name, child.finish()));
        let said = past.collect::<Vec<_>>();
        self.seen.last = last.as_ref().map(|(_, said)| said.clone()).unwrap_or_default();
        for (name, said) in said.into_iter().chain(last) {
            let name = name.filter(|name| !self.seen.said_as.contains_key(name));
            self.seen.said_as.extend(name.map(|name| (name, said)));
        }
        drop(std::mem::take(&mut self.helpers));
        self.recorder.mark("over");
        let (mut trace, is_ordered) = self.recorder.finish();
        for event in &mut trace {
            event.by_suite = is_of_suite(event, &self.seen);
        }
        self.seen.trees.insert("end".into(), self.cell.picture());
        let calls = fs::read_to_string(self.cell.calls_path()).unwrap_or_default();
        self.seen.calls = calls.lines().map(str::to_owned).collect();
        self.seen.trace = trace;
        self.seen.is_ordered = is_ordered;
        self.seen.took_ms = crate::raw::since_ms(began);
        self.seen.names = std::mem::take(&mut self.cell.names);
        self.seen
    }
}

/// The suite renames its files from a directory that nobody watches.
fn is_of_suite(event: &Event, seen: &Evidence) -> bool {
    let said = event.path.starts_with("async-cfg-") || seen.said.contains(&event.path);
    if event.is_dir && event.op == Op::Created {
        let below = format!("{}/", event.path);
        return seen.said.iter().any(|path| path.starts_with(&below));
    }
    event.op == Op::Mark || (event.op == Op::Renamed && event.from.is_none() && said)
}

/// Whether a file is there and holds members of these values.
fn holds(path: &Path, what: &Value) -> bool {
    let Some(members) = what.as_object() else { return fs::symlink_metadata(path).is_ok() };
    let Some(found) = read(path, None).and_then(|version| version.json()) else { return false };
    members.iter().all(|(pointer, wanted)| found.pointer(pointer) == Some(wanted))
}

/// A reader at full rate of everything that is to be replaced as a whole.
struct Hammer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, std::collections::BTreeMap<String, u64>)>,
}

impl Hammer {
    fn start(cell: &Cell) -> Self {
        let run = cell.names.get("run").cloned().unwrap_or_default();
        let names = ["status.json", "process-terminal-candidate.json", "runner-startup.json"];
        let paths: Vec<_> = names
            .into_iter()
            .map(|name| format!("{run}/{name}"))
            .chain([fill(&cell.names, "async-subagent-results/${runId}.json")])
            .map(|name| (cell.path(&name), name))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut whole, mut torn) = (0, std::collections::BTreeMap::new());
            while !ended.load(Ordering::Relaxed) {
                for (path, name) in &paths {
                    let Ok(bytes) = fs::read(path) else { continue };
                    match serde_json::from_slice::<Value>(&bytes) {
                        Ok(_) => whole += 1,
                        Err(_) => *torn.entry(name.clone()).or_default() += 1,
                    }
                }
                std::thread::yield_now();
            }
            (whole, torn)
        });
        Self { stop, thread }
    }

    fn finish(self) -> (u64, std::collections::BTreeMap<String, u64>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
