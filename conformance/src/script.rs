//! The suite in the place of the other roles: one scenario from its store to what was seen.
//!
//! Theory of operation. Ordered steps: make the cell; take a picture; begin to record; do what the script says; wait
//! for nothing any more and end what is left; take the last picture; end the record. A script stops at the first thing
//! that it waits for in vain, and says at which; what it had not done is then not there for any check. Every wait is
//! bounded by itself and by the scenario, so a subject that does nothing costs its limit and no more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cases::{Calls, Scenario};
use crate::cell::{Cell, bytes_of, numbers};
use crate::evidence::{Event, Evidence, Op, fill, fill_value};
use crate::helpers::Helpers;
use crate::process::{Subject, pause};
use crate::recorder::{Recorder, read};
use crate::subject::{Adapter, CALL, Mistake};

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
        role: &scenario.role,
        calls: scenario.calls.clone(),
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
        if let Err(missed) = player.step(step, scenario) {
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
    role: &'t str,
    calls: Option<Calls>,
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
    fn step(&mut self, step: &Value, scenario: &Scenario) -> Result<(), String> {
        let step = numbers(&fill_value(&self.cell.names, step));
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let path = text("path").unwrap_or_default().to_owned();
        let ms = step.get("ms").and_then(Value::as_u64);
        match text("do").unwrap_or_default() {
            "start" => self.start(&step, scenario),
            "ask" => return self.ask(ms),
            "call" => return self.call(&step, ms),
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
                let waits = step.get("wait") != Some(&Value::Bool(false));
                return self.observe(text("runner").unwrap_or_default(), waits, ms);
            }
            "say" => {
                self.seen.said.insert(path.clone());
                let done = self.cell.put(&path, &bytes_of(&step));
                self.made(done, &path);
            }
            "plant" => {
                self.seen.said.insert(path.clone());
                let done = self.cell.plant(&step);
                self.made(done, &path);
            }
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
                let patient = step.get("patient").and_then(Value::as_bool).unwrap_or_default();
                let waited = self.wait(ms, &path, patient, |cell| holds(&cell.path(&path), &what));
                return if may_fail(&step) { Ok(()) } else { waited };
            }
            "await-gone" => {
                let gone = |cell: &Cell| fs::symlink_metadata(cell.path(&path)).is_err();
                let patient = step.get("patient").and_then(Value::as_bool).unwrap_or_default();
                let waited = self.wait(ms, &format!("{path} to go"), patient, gone);
                return if may_fail(&step) { Ok(()) } else { waited };
            }
            "await-said" => {
                let waited = self.await_said(text("text").unwrap_or_default(), ms);
                let may_miss = step.get("maybe").and_then(Value::as_bool).unwrap_or_default();
                return if may_miss { Ok(()) } else { waited };
            }
            "await-exit" => {
                let limit = Duration::from_millis(ms.unwrap_or(WAIT_MS)).min(self.rest());
                let ended = self.child.as_mut().is_none_or(|(_, child)| child.wait(limit));
                if !ended {
                    return Err(format!(
                        "the end of the subject did not come within {} ms",
                        limit.as_millis()
                    ));
                }
                self.recorder.mark("exit");
            }
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
                let signal = match text("name") {
                    Some("TERM") => rustix::process::Signal::TERM,
                    Some("USR2") => rustix::process::Signal::USR2,
                    _ => rustix::process::Signal::KILL,
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

    fn start(&mut self, step: &Value, scenario: &Scenario) {
        let config = step.get("config").and_then(Value::as_str);
        let word = |key: &str| step.get(key).and_then(Value::as_str);
        if let Err(e) = self.cell.write_config(config, word("configAs")) {
            self.seen.broken = Some(format!("the configuration cannot be written: {e}"));
            return;
        }
        self.recorder.mark("start");
        let family = scenario.family();
        let root = self.cell.root.to_string_lossy().into_owned();
        let env = [(format!("{}_SUBAGENTS_TEMP_ROOT", family.to_uppercase()), root)];
        let command = self.subject.main.for_config(&self.cell.config_path());
        let (mut command, made) = self.subject.called(command, "run", &self.cell.names);
        let env = [env.as_slice(), made.as_slice()].concat();
        if let Some(umask) = word("umask") {
            let script = format!("umask {umask}; exec \"$@\"");
            command.splice(0..0, ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]);
        }
        let command = self.recorded(command);
        let child = match Subject::start(&command, &self.token, &env, None) {
            Ok(child) => child,
            Err(e) => {
                self.seen.broken = Some(e);
                return;
            }
        };
        let pid = child.pid();
        self.child = Some((None, child));
        self.launched(pid);
        if scenario.hammer {
            self.hammer = Some(Hammer::start(&self.cell));
        }
        self.recorder.mark("launched");
    }

    /// A command whose system calls are recorded and refused as the scenario says.
    fn recorded(&self, mut command: Vec<String>) -> Vec<String> {
        let Some(calls) = &self.calls else { return command };
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

    /// Lets an observer start a runner, and waits until it has settled the end, if it is to.
    fn observe(&mut self, runner: &str, waits: bool, ms: Option<u64>) -> Result<(), String> {
        let command = self.subject.main.for_runner(&self.cell.names, &["sh", "-c", runner]);
        let (command, made) = self.subject.called(command, "observe", &self.cell.names);
        // An observer may need a session of its own, which no leader of a group can make.
        let wrapped = ["sh", "-c", "\"$@\"; exit $?", "sh"].map(str::to_owned);
        let command = self.recorded([wrapped.as_slice(), command.as_slice()].concat());
        let root = self.cell.root.to_string_lossy().into_owned();
        let env = [("PI_SUBAGENTS_TEMP_ROOT".to_owned(), root)];
        self.recorder.mark("start");
        let env = [env.as_slice(), made.as_slice()].concat();
        if waits { self.run_to_its_end(&command, &env, ms) } else { self.begin(&command, &env) }
    }

    /// Asks a reader about the store; its answer is what it says until it has ended.
    fn ask(&mut self, ms: Option<u64>) -> Result<(), String> {
        let command = self.subject.main.for_store(&self.cell.root, crate::raw::now_ms());
        let (command, made) = self.subject.called(command, "inspect", &self.cell.names);
        let command = self.recorded(command);
        self.recorder.mark("start");
        self.run_to_its_end(&command, &made, ms)
    }

    /// Calls an operation with a request on its standard input; waits for its end, unless `wait` says no.
    fn call(&mut self, step: &Value, ms: Option<u64>) -> Result<(), String> {
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let op = text("op").unwrap_or_default();
        let Some(template) = self.subject.operation(self.role, op) else {
            return Err(format!("the subject has no command for the operation `{op}`"));
        };
        let now = step.get("now").and_then(Value::as_i64).unwrap_or_else(crate::raw::now_ms);
        let given = step.get("args").and_then(Value::as_object).cloned().unwrap_or_default();
        let names = self.cell.names.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
        let mut args: BTreeMap<String, Value> = names.collect();
        args.extend(given.clone());
        args.insert("now".into(), now.into());
        let root = self.cell.root.to_string_lossy().into_owned();
        let request = json!({"schema": "runstore.conformance.request/1", "op": op, "root": root, "now": now, "args": given});
        let input = self.cell.request(&request).map_err(|e| format!("no request: {e}"))?;
        // A mistake may be made at the call of one name alone.
        let name = text("as").unwrap_or_default().to_owned();
        self.cell.names.insert(CALL.to_owned(), name);
        let (command, made) = self.subject.called(template.for_call(&args), op, &self.cell.names);
        self.cell.names.remove(CALL);
        let command = self.recorded(command);
        let mut env = vec![("PI_SUBAGENTS_TEMP_ROOT".to_owned(), root)];
        for (key, value) in step.get("env").and_then(Value::as_object).into_iter().flatten() {
            env.push((key.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        env.extend(made);
        self.past.extend(self.child.take());
        self.recorder.mark("start");
        let name = text("as").map(str::to_owned);
        let own = step.get("own");
        let gate = own.map(|_| self.cell.gate()).transpose();
        let gate = gate.map_err(|e| format!("its process cannot be held: {e}"))?;
        let command = gate.as_ref().map_or(command.clone(), |gate| gate.before(command));
        let start = match step.get("terminal") {
            Some(Value::Bool(true)) => Subject::start_on_terminal,
            _ => Subject::start,
        };
        match start(&command, &self.token, &env, Some(&input)) {
            Ok(child) => self.child = Some((name.clone(), child)),
            Err(e) => {
                self.seen.broken = Some(e);
                return Ok(());
            }
        }
        if let (Some(own), Some(gate)) = (own, gate) {
            self.plant_own(own);
            self.gates.extend(gate.open());
        }
        if step.get("wait") == Some(&Value::Bool(false)) {
            return Ok(());
        }
        let ended = self.end_of_child(ms);
        let is_wanted = name.is_some() || text("save").is_some();
        let said = self.child.as_mut().filter(|_| is_wanted).map(|(_, child)| child.said());
        if let (Some(path), Some(said)) = (text("save"), &said) {
            self.seen.said.insert(path.to_owned());
            let done = self.cell.put(path, said.stdout.as_bytes());
            self.made(done, path);
        }
        if let (Some(name), Some(said)) = (name, said) {
            self.seen.said_as.insert(name, said);
        }
        ended
    }

    /// Plants a file that names the process of a call, which is held meanwhile.
    fn plant_own(&mut self, own: &Value) {
        let pid = self.child.as_ref().map_or(0, |(_, child)| child.pid());
        self.cell.names.insert("own.pid".into(), pid.to_string());
        let own = numbers(&fill_value(&self.cell.names, own));
        let path = own.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.seen.said.insert(path.clone());
        let done = self.cell.plant(&own);
        self.made(done, &path);
    }

    fn begin(&mut self, command: &[String], env: &[(String, String)]) -> Result<(), String> {
        match Subject::start(command, &self.token, env, None) {
            Ok(child) => self.child = Some((None, child)),
            Err(e) => self.seen.broken = Some(e),
        }
        Ok(())
    }

    fn run_to_its_end(
        &mut self,
        command: &[String],
        env: &[(String, String)],
        ms: Option<u64>,
    ) -> Result<(), String> {
        self.begin(command, env)?;
        if self.seen.broken.is_some() { Ok(()) } else { self.end_of_child(ms) }
    }

    fn end_of_child(&mut self, ms: Option<u64>) -> Result<(), String> {
        let limit = Duration::from_millis(ms.unwrap_or(WAIT_MS)).min(self.rest());
        let ended = self.child.as_mut().is_none_or(|(_, child)| child.wait(limit));
        self.recorder.mark("exit");
        if ended { Ok(()) } else { Err(format!("no end came within {} ms", limit.as_millis())) }
    }

    /// Waits for something, also a moment longer than the subject lives.
    fn wait(
        &mut self,
        ms: Option<u64>,
        what: &str,
        patient: bool,
        is_so: impl Fn(&Cell) -> bool,
    ) -> Result<(), String> {
        let limit = Duration::from_millis(ms.unwrap_or(WAIT_MS)).min(self.rest());
        let until = Instant::now() + limit;
        loop {
            let ended = self.child.as_mut().is_none_or(|(_, child)| child.ended().is_some());
            if is_so(&self.cell) {
                return Ok(());
            }
            if ended && !patient {
                return Err(format!("the subject ended without {what}"));
            }
            if Instant::now() >= until {
                return Err(format!("{what} did not come within {} ms", limit.as_millis()));
            }
            pause();
        }
    }

    /// Waits until the subject has said something, so that it is known to be at work.
    fn await_said(&mut self, wanted: &str, ms: Option<u64>) -> Result<(), String> {
        let limit = Duration::from_millis(ms.unwrap_or(WAIT_MS)).min(self.rest());
        let until = Instant::now() + limit;
        loop {
            let ended = self.child.as_mut().is_none_or(|(_, child)| child.ended().is_some());
            if self.child.as_ref().is_some_and(|(_, child)| child.has_said(wanted)) {
                return Ok(());
            }
            if ended || Instant::now() >= until {
                return Err(format!("the subject did not say `{wanted}`"));
            }
            pause();
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

/// Whether a script goes on where this step waits in vain.
fn may_fail(step: &Value) -> bool {
    step.get("maybe").and_then(Value::as_bool).unwrap_or_default()
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
