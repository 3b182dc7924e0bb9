//! A store of its own for each scenario, and what a launcher lays down in it.
//!
//! Theory of operation. Below the suite's scratch directory each cell has `root` (the temp root of a store), `work`
//! (where steps leave their marks) and `put` (where the suite makes its files before it renames them into place).
//! [`Cell::make`] lays down what is there before the subject: directories, capacity slot, planted files, session file,
//! configuration. [`Cell::launched`] is what a launcher writes once it has a process: status, marker, proof,
//! candidate, in this order (RS-START-11). Everything is made from raw text; no other writer is asked.
//!
//! A cell is removed when it is dropped, unless it is to be kept.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::cases::Scenario;
use crate::evidence::{Entry, Tree, fill_value};
use crate::raw;
use crate::recorder::MARKS;

/// The largest text that a picture of the store keeps.
const KEEP_BYTES: u64 = 1 << 20;
/// Names in a picture; more are left out.
const NAMES: usize = 20_000;

/// One store.
#[derive(Debug)]
pub(crate) struct Cell {
    base: PathBuf,
    /// The temp root.
    pub(crate) root: PathBuf,
    /// Names for texts of scenarios.
    pub(crate) names: BTreeMap<String, String>,
    config: Value,
    status: Value,
    keep: bool,
}

fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn aged(path: &Path, at: std::time::SystemTime) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            aged(&entry?.path(), at)?;
        }
    }
    if kind.is_dir() || kind.is_file() {
        fs::File::open(path)?.set_times(fs::FileTimes::new().set_accessed(at).set_modified(at))?;
    }
    Ok(())
}

/// A text of the form of a UUID from a seed and a word.
fn uuid(seed: &str, word: &str) -> String {
    let hex = raw::sha256(format!("{seed}:{word}").as_bytes());
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

impl Cell {
    /// Makes the store of a scenario in an empty directory.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn make(
        base: &Path,
        scenario: &Scenario,
        seed: &str,
        keep: bool,
        more: Option<&Value>,
    ) -> io::Result<Self> {
        let root = base.join(format!("{}-subagents-conformance", scenario.family()));
        for dir in [&root, &root.join(MARKS), &base.join("work"), &base.join("put")] {
            make_dir(dir)?;
        }
        let root = fs::canonicalize(root)?;
        let base = fs::canonicalize(base)?;
        let names = names(&base, &root, scenario, seed);
        let mut cell = Self { base, root, names, config: Value::Null, status: Value::Null, keep };
        cell.lay_down(scenario, more)?;
        Ok(cell)
    }

    /// A path of the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Puts a request where a subject can read it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn request(&self, request: &Value) -> io::Result<PathBuf> {
        let path = self.base.join("put/request.json");
        fs::write(&path, request.to_string())?;
        Ok(path)
    }

    /// A new gate for the process of a call.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn gate(&self) -> io::Result<Gate> {
        Gate::make(self.base.join("put/gate"))
    }

    /// Where the record of system calls lies.
    pub(crate) fn calls_path(&self) -> PathBuf {
        self.base.join("calls.txt")
    }

    fn name(&self, key: &str) -> &str {
        self.names.get(key).map_or("", String::as_str)
    }

    /// The configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.path(&format!("async-cfg-{}.json", self.name("runId")))
    }

    /// Puts a file in place, from the top of the store or by its whole path.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn put(&self, name: &str, text: &[u8]) -> io::Result<()> {
        raw::put(&self.base.join("put"), &self.path(name), text)
    }

    /// Makes the directories on the way to a name; says whether one was lacking.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn make_way(&self, name: &str) -> io::Result<bool> {
        let full = self.path(name);
        let lacking = full.parent().filter(|parent| !parent.is_dir());
        lacking.map_or(Ok(()), make_dir).map(|()| lacking.is_some())
    }

    /// Plants something in a directory that is there: `kind` is `file`, `directory`, `link`, `hard-link` or `pipe`.
    ///
    /// # Errors
    /// What the system says; an unknown kind.
    pub(crate) fn plant(&self, what: &Value) -> io::Result<()> {
        let text = |key: &str| what.get(key).and_then(Value::as_str);
        let path = text("path").unwrap_or_default();
        let full = self.path(path);
        match text("kind").unwrap_or("file") {
            "directory" => make_dir(&full),
            "link" => std::os::unix::fs::symlink(text("target").unwrap_or_default(), full),
            "hard-link" => fs::hard_link(text("target").unwrap_or_default(), full),
            "pipe" => {
                rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &full,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::from_raw_mode(0o600),
                    0,
                )?;
                Ok(())
            }
            "file" => self.put(path, &bytes_of(what)),
            other => Err(io::Error::other(format!("nothing of the kind `{other}` can be planted"))),
        }
    }

    /// Sets the times of what stands at a path, and of everything below it, to so many milliseconds ago.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn age(&self, name: &str, ms: u64) -> io::Result<()> {
        let now_ms = u64::try_from(raw::now_ms()).unwrap_or_default();
        let at =
            std::time::UNIX_EPOCH + std::time::Duration::from_millis(now_ms.saturating_sub(ms));
        aged(&self.path(name), at)
    }

    fn lay_down(&mut self, scenario: &Scenario, more: Option<&Value>) -> io::Result<()> {
        let is_bare = scenario.store.get("variant").and_then(Value::as_str) == Some("bare");
        let run = self.name("run").to_owned();
        for dir in ["async-subagent-runs/.active-runs", "async-subagent-results", &run] {
            if !(is_bare && dir == run) {
                make_dir(&self.path(dir))?;
            }
        }
        let store = numbers(&fill_value(&self.names, &scenario.store));
        let list = |key: &str| store.get(key).and_then(Value::as_array).cloned();
        for dir in list("directories").unwrap_or_default() {
            make_dir(&self.path(dir.as_str().unwrap_or_default()))?;
        }
        let is_revival = store.get("variant").and_then(Value::as_str) == Some("revival");
        (self.config, self.status) = documents(&self.names, &store, is_revival, more);
        // A session file that a subject is to resume holds what is left to do, as RS-STEP-10 has it.
        if is_revival {
            let line = json!({"type": "runstore.session", "version": 1, "runId": self.name("source"), "ts": raw::now_ms(), "cwd": self.name("work"), "steps": self.config["steps"]});
            self.put("session.jsonl", format!("{line}\n").as_bytes())?;
        }
        if store.get("session") != Some(&Value::Null) && !is_bare {
            self.slot()?;
        }
        for what in list("plant").unwrap_or_default() {
            self.make_way(what.get("path").and_then(Value::as_str).unwrap_or_default())?;
            self.plant(&what)?;
        }
        Ok(())
    }

    /// A slot that is bound to the instance, as a launcher has it before the process.
    fn slot(&self) -> io::Result<()> {
        let key = raw::sha256(self.name("session").as_bytes());
        let dir = format!("session-active-async-capacity/{key}/slot-0");
        make_dir(&self.path(&dir))?;
        let owner = json!({
            "version": 1, "slot": 0, "reservationToken": self.name("reservation"), "generation": 0,
            "ownerSessionId": self.name("session"), "ownerSessionKey": key, "runId": self.name("runId"),
            "asyncDir": self.name("runDir"), "kind": "runner", "reservedAt": raw::now_ms(),
            "runnerProcessInstanceId": self.name("instance"), "runnerStartedAt": raw::now_ms(),
        });
        self.put(&format!("{dir}/owner.json"), format!("{owner}\n").as_bytes())
    }

    /// Puts the configuration in place, or the text that a scenario has for it, as a file, a `link` or a `pipe`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn write_config(&self, text: Option<&str>, kind: Option<&str>) -> io::Result<()> {
        let bytes = text.map_or_else(|| raw::pretty(&self.config), |t| t.as_bytes().to_vec());
        let path = self.config_path();
        match kind {
            Some("link") => {
                self.put("cfg-elsewhere.json", &bytes)?;
                std::os::unix::fs::symlink(self.path("cfg-elsewhere.json"), path)
            }
            Some("pipe") => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.plant(&json!({"kind": "pipe", "path": name}))
            }
            _ => raw::put(&self.base.join("put"), &path, &bytes),
        }
    }

    /// What a launcher writes once it has a process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn launched(&self, pid: i64) -> io::Result<()> {
        let run = self.name("run").to_owned();
        let (id, instance) = (self.name("runId"), self.name("instance"));
        let mut status = self.status.clone();
        status["pid"] = pid.into();
        self.put(&format!("{run}/status.json"), &raw::pretty(&status))?;
        self.put(&format!("async-subagent-runs/.active-runs/{id}"), b"")?;
        let proof = json!({"version": 1, "state": "pending", "runId": id, "runnerProcessInstanceId": instance});
        self.put(&format!("{run}/process-terminal.json"), &raw::pretty(&proof))?;
        let candidate =
            json!({"version": 1, "runId": id, "runnerProcessInstanceId": instance, "writers": {}});
        let name = format!("{run}/process-terminal-candidate.json");
        self.put(&name, &raw::pretty(&candidate))
    }

    /// A picture of the store, links not followed.
    pub(crate) fn picture(&self) -> Tree {
        let mut tree = Tree::new();
        self.walk("", &mut tree);
        tree
    }

    fn walk(&self, below: &str, tree: &mut Tree) {
        let Ok(entries) = fs::read_dir(self.root.join(below)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if path == MARKS || tree.len() >= NAMES {
                continue;
            }
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            let kind = match meta.file_type() {
                kind if kind.is_dir() => "directory",
                kind if kind.is_symlink() => "link",
                kind if kind.is_file() => "file",
                _ => "pipe",
            };
            let is_small = kind == "file" && meta.len() <= KEEP_BYTES;
            let text = is_small.then(|| fs::read_to_string(entry.path()).ok()).flatten();
            let mode = meta.permissions().mode() & 0o7777;
            tree.insert(path.clone(), Entry { kind, mode, size: meta.len(), text });
            if kind == "directory" {
                self.walk(&path, tree);
            }
        }
    }
}

/// A pipe at which a process waits before it becomes a subject, so that its number is known before it looks at anything.
#[derive(Debug)]
pub(crate) struct Gate(PathBuf);

impl Gate {
    fn make(path: PathBuf) -> io::Result<Self> {
        // A gate of an earlier call: its process is past it.
        let _ = fs::remove_file(&path);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)?;
        Ok(Self(path))
    }

    /// The command, held. What waits becomes the command itself: its number stays.
    pub(crate) fn before(&self, command: Vec<String>) -> Vec<String> {
        let path = self.0.to_string_lossy().into_owned();
        let script = "read -r line <\"$1\"; shift; exec \"$@\"".to_owned();
        let mut held = vec!["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned(), path];
        held.extend(command);
        held
    }

    /// Lets it go on. The end that is given back is kept open until it has.
    pub(crate) fn open(self) -> Option<fs::File> {
        use std::io::Write as _;
        let mut end = fs::File::options().read(true).write(true).open(&self.0).ok()?;
        end.write_all(b"\n").ok()?;
        Some(end)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.base);
        }
    }
}

/// The bytes that a scenario has for a file: `json`, `hex`, else `text`.
pub(crate) fn bytes_of(what: &Value) -> Vec<u8> {
    if let Some(hex) = what.get("hex").and_then(Value::as_str) {
        let pair = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("00"), 16);
        return (0..hex.len()).step_by(2).filter_map(|at| pair(at).ok()).collect();
    }
    match what.get("json") {
        Some(value) => raw::pretty(value),
        None => what.get("text").and_then(Value::as_str).unwrap_or_default().as_bytes().to_vec(),
    }
}

/// Numbers that are known only when a scenario is played: `@suite`, the process of the suite, `@now+<ms>`, and
/// `@number <text>`.
pub(crate) fn numbers(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "@suite" => std::process::id().into(),
        Value::String(text) => {
            let number = |prefix| text.strip_prefix(prefix).and_then(|n| n.parse::<i64>().ok());
            match (number("@now+"), number("@number ")) {
                (Some(ms), _) => (raw::now_ms() + ms).into(),
                (_, Some(number)) => number.into(),
                _ => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(numbers).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), numbers(value)));
            members.collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn names(base: &Path, root: &Path, scenario: &Scenario, seed: &str) -> BTreeMap<String, String> {
    let member = |key: &str| scenario.store.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = member("runId").unwrap_or_else(|| uuid(seed, "run"));
    let session = member("session").unwrap_or_else(|| "session a/b".to_owned());
    let run = format!("async-subagent-runs/{id}");
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let session_file = text(root.join("session.jsonl"));
    BTreeMap::from(
        [
            ("root", text(root.to_owned())),
            ("work", text(base.join("work"))),
            ("runDir", text(root.join(&run))),
            ("resultPath", text(root.join(format!("async-subagent-results/{id}.json")))),
            ("run", run),
            ("results", "async-subagent-results".to_owned()),
            ("runs", "async-subagent-runs".to_owned()),
            ("sessionSeg", raw::segment(&session, 255)),
            ("runFile", format!("{}.json", raw::segment(&id, 250))),
            ("runSeg", raw::segment(&id, 255)),
            ("session", session),
            ("instance", uuid(seed, "instance")),
            ("token", uuid(seed, "instance")),
            ("reservation", uuid(seed, "reservation")),
            ("source", uuid(seed, "source")),
            ("lease", format!("session-leases/{}", raw::sha256(session_file.as_bytes()))),
            ("sessionFile", session_file),
            ("host", raw::host()),
            ("bootId", raw::boot_id().unwrap_or_default()),
            ("pidScope", raw::pid_scope().unwrap_or_default()),
            ("suiteStart", raw::start_identity(std::process::id()).unwrap_or_default()),
            ("runId", id),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}

/// One step of a configuration: a script for the shell, the members that a runner checks, and those that a subject
/// declares it needs (`more`), with `${script}` for the script.
fn step(number: usize, script: &Value, more: Option<&Value>) -> Value {
    let mut out = json!({
        "agent": format!("worker-{number}"), "task": "do what the command says",
        "inheritProjectContext": false, "inheritGlobalContext": false, "inheritSkills": false,
    });
    match script {
        Value::String(text) => {
            out["command"] = json!(["sh", "-c", text]);
            let script = BTreeMap::from([("script".to_owned(), text.clone())]);
            let more = more.map(|more| fill_value(&script, more));
            for (key, value) in more.as_ref().and_then(Value::as_object).into_iter().flatten() {
                out[key] = value.clone();
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                out[key] = value.clone();
            }
        }
        _ => {}
    }
    out
}

/// Configuration and first status.
fn documents(
    names: &BTreeMap<String, String>,
    store: &Value,
    is_revival: bool,
    more: Option<&Value>,
) -> (Value, Value) {
    let name = |key: &str| names.get(key).cloned().unwrap_or_default();
    let scripts = store.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut count = 0;
    let mut next = |script: &Value| {
        count += 1;
        step(count - 1, script, more)
    };
    let group = |script: &Value| match script.get("parallel").and_then(Value::as_array) {
        Some(members) => json!({"parallel": members.iter().map(&mut next).collect::<Vec<_>>()}),
        None => next(script),
    };
    let groups: Vec<_> = scripts.iter().map(group).collect();
    let mut config = json!({
        "id": name("runId"), "steps": groups, "resultPath": name("resultPath"), "cwd": name("work"),
        "placeholder": "{previous}", "asyncDir": name("runDir"), "sessionId": name("session"),
        "runnerProcessInstanceId": name("instance"), "launchBarrierToken": name("token"),
    });
    if is_revival {
        config["revivalLease"] = json!({
            "sessionFile": name("sessionFile"), "runId": name("runId"), "sourceRunId": name("source"),
        });
        remove(&mut config, "launchBarrierToken");
    }
    if store.get("session") == Some(&Value::Null) {
        remove(&mut config, "sessionId");
    }
    let mode = if scripts.len() > 1 || groups.iter().any(|g| g.get("parallel").is_some()) {
        "chain"
    } else {
        "single"
    };
    config["resultMode"] = mode.into();
    merge(&mut config, store.get("config"));
    let steps: Vec<_> =
        (0..count).map(|i| json!({"agent": format!("worker-{i}"), "status": "pending"})).collect();
    let mut status = json!({
        "lifecycleArtifactVersion": 3, "runId": name("runId"), "mode": mode, "state": "running",
        "startedAt": raw::now_ms(), "lastUpdate": raw::now_ms(), "currentStep": 0,
        "chainStepCount": scripts.len(), "steps": steps, "pid": 0, "hostname": name("host"), "cwd": name("work"),
        "processTerminal": {"version": 1, "state": "pending", "runId": name("runId"), "runnerProcessInstanceId": name("instance")},
    });
    if let Some(scope) = raw::pid_scope() {
        status["pidNamespaceScope"] = scope.into();
    }
    if let Some(session) = config.get("sessionId") {
        status["sessionId"] = session.clone();
    }
    merge(&mut status, store.get("status"));
    (config, status)
}

fn remove(value: &mut Value, key: &str) {
    if let Some(members) = value.as_object_mut() {
        members.remove(key);
    }
}

/// Sets members; `null` takes one away, as in a merge patch of one level.
fn merge(value: &mut Value, patch: Option<&Value>) {
    let none = Map::new();
    for (key, new) in patch.and_then(Value::as_object).unwrap_or(&none) {
        if new.is_null() {
            remove(value, key);
        } else {
            value[key] = new.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Subject;

    #[test]
    fn a_held_process_says_nothing_and_becomes_its_subject_under_the_same_number() {
        let path = std::env::temp_dir().join(format!("conformance-gate-{}", std::process::id()));
        let gate = Gate::make(path.clone()).expect("a pipe");
        let command = gate.before(["sh", "-c", "echo $$"].map(str::to_owned).into());
        let mut subject = Subject::start(&command, "gate", &[], None, false).expect("a shell");
        assert!(subject.ended().is_none(), "it waits");
        let end = gate.open().expect("the gate opens");
        assert!(subject.wait(std::time::Duration::from_secs(20)), "it goes on");
        let said = subject.said();
        assert_eq!(said.stdout.trim(), subject.pid().to_string(), "{}", said.stderr);
        drop(end);
        fs::remove_file(path).expect("removed");
    }

    #[test]
    fn what_is_aged_was_changed_before() {
        let dir = std::env::temp_dir().join(format!("runstore-aged-{}", std::process::id()));
        make_dir(&dir.join("below")).expect("ours");
        fs::write(dir.join("below/file"), "x").expect("ours");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        aged(&dir, at).expect("ours");
        for name in ["", "below", "below/file"] {
            let told = fs::metadata(dir.join(name)).and_then(|meta| meta.modified());
            assert_eq!(told.expect("there"), at, "{name}");
        }
        fs::remove_dir_all(&dir).expect("ours");
    }
}
