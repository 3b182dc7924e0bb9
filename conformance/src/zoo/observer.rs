//! An observer that can be told to make one mistake.
//!
//! Theory of operation. It starts a runner as its child, waits for its end, and settles it: the proof by the table of
//! chapter 6, then the marker, the status, the event, and the slot, in this order. It knows nothing of what the runner
//! leaves, so it adds no counts of its own. With a fault it does one thing wrong. It shares no line with the library.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::{Map, Value, json};

use crate::raw;

struct Observer<'f> {
    fault: &'f str,
    root: PathBuf,
    dir: PathBuf,
    id: String,
    instance: String,
}

/// Starts the runner, observes its end, and settles it; the exit code.
pub fn observe(fault: &str, root: &Path, run_dir: &Path, instance: &str, runner: &[String]) -> u8 {
    let id = run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (root, dir, instance) = (root.to_owned(), run_dir.to_owned(), instance.to_owned());
    let observer = Observer { fault, root, dir, id, instance };
    u8::from(observer.settle(runner).is_err())
}

fn document(path: &Path) -> io::Result<Option<Value>> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) => Err(e),
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Observer<'_> {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn put(&self, path: &Path, value: &Value) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if self.is("proof-in-place") {
            return fs::write(path, raw::pretty(value));
        }
        let temp = format!(
            ".{name}.{}.{}.{}.tmp",
            std::process::id(),
            raw::now_ms(),
            &raw::sha256(name.as_bytes())[..16]
        );
        let temp = if self.is("temp-at-the-root") {
            self.root.join(temp)
        } else {
            path.with_file_name(temp)
        };
        let mut file = File::create_new(&temp)?;
        file.write_all(&raw::pretty(value))?;
        file.sync_all()?;
        fs::rename(&temp, path)
    }

    fn settle(&self, runner: &[String]) -> io::Result<()> {
        let (program, args) = runner.split_first().ok_or_else(|| io::Error::other("no runner"))?;
        let ended = Command::new(program).args(args).stdin(Stdio::null()).status()?;
        let path = self.dir.join("process-terminal.json");
        if self.is("status-needed")
            && !matches!(document(&self.dir.join("status.json")), Ok(Some(_)))
        {
            return Ok(());
        }
        let proof = match self.kept(&path) {
            Some(kept) => kept,
            None => {
                let proof = self.decide(ended);
                self.put(&path, &proof)?;
                proof
            }
        };
        if proof.is_null() {
            return Ok(());
        }
        if !self.is("overlay-before-marker") {
            self.release_marker(&proof);
        }
        if self.is("event-before-overlay") {
            self.tell(&proof)?;
        }
        self.overlay(&proof);
        self.release_marker(&proof);
        if !self.is("event-before-overlay") {
            self.tell(&proof)?;
        }
        self.release_slot(&proof)
    }

    /// A proof that stays, rows F-1 and F-2: `null` where nothing follows from it.
    fn kept(&self, path: &Path) -> Option<Value> {
        let text = fs::read(path).ok()?;
        let Ok(proof) = serde_json::from_slice::<Value>(&text) else {
            return (!self.is("damaged-proof-replaced")).then_some(Value::Null);
        };
        let own = proof["runId"] == self.id.as_str()
            && proof["runnerProcessInstanceId"] == self.instance.as_str();
        match proof["state"].as_str() {
            _ if !own && self.is("foreign-proof-obeyed") => Some(proof),
            _ if !own => (!self.is("foreign-proof-replaced")).then_some(Value::Null),
            Some("observed") if self.is("observed-replaced") => None,
            Some("observed") if self.is("rest-not-completed") => Some(Value::Null),
            Some("unknown") if self.is("unknown-replaced") => None,
            Some("observed" | "unknown") => Some(proof),
            _ => None,
        }
    }

    fn unknown(&self, reason: &str, why: &str) -> Value {
        let mut proof = json!({
            "version": 1, "state": "unknown", "runId": self.id, "runnerProcessInstanceId": self.instance, "reason": reason,
        });
        if !why.is_empty() && !self.is("undiagnosed") {
            proof["diagnostic"] = why.into();
        }
        proof
    }

    /// The table of 6.3, from F-3 on.
    fn decide(&self, ended: ExitStatus) -> Value {
        let candidate = match document(&self.dir.join("process-terminal-candidate.json")) {
            Err(_) if self.is("no-candidate-needed") => {
                json!({"writers": {}, "expectedWriters": {"0": 0}})
            }
            Err(_) => return self.unknown("runner-candidate-missing", ""),
            Ok(None) if self.is("damaged-candidate-missing") => {
                return self.unknown("runner-candidate-missing", "");
            }
            Ok(None) => return self.unknown("proof-write-failed", "the candidate is no JSON"),
            Ok(Some(candidate)) => candidate,
        };
        if let Some(why) = self.invalid(&candidate) {
            return self.unknown("proof-write-failed", why);
        }
        let named = text(&candidate, "runId") == self.id || self.is("other-run-believed");
        let instance = text(&candidate, "runnerProcessInstanceId") == self.instance
            || self.is("other-instance-believed");
        let is_own = (named && instance) || self.is("no-candidate-needed");
        if !is_own {
            return self.unknown("runner-instance-mismatch", "");
        }
        if let Some(reason) = self.session(text(&candidate, "sessionFile")) {
            return self.unknown(reason, "");
        }
        let nothing = Map::new();
        let writers = candidate["writers"].as_object().unwrap_or(&nothing);
        let counts = candidate["expectedWriters"].as_object().unwrap_or(&nothing);
        let records =
            |step: &str| writers.get(step).and_then(Value::as_array).map_or(0, Vec::len) as u64;
        let uncounted =
            writers.keys().any(|step| !counts.contains_key(step)) && !self.is("uncounted-believed");
        let missing = counts.iter().any(|(step, n)| n.as_u64() != Some(records(step)))
            && !self.is("counts-unread");
        let nobody =
            writers.is_empty() && counts.is_empty() && !self.is("untouched-account-believed");
        if uncounted || missing || nobody {
            return self.unknown("writer-close-unverified", "");
        }
        let all: Vec<&Value> = writers.values().filter_map(Value::as_array).flatten().collect();
        let seen = |writer: &&Value| {
            writer.pointer("/processTree/state").is_some_and(|state| state == "observed")
        };
        if !all.iter().all(seen) && !self.is("trees-unread") {
            return self.unknown("process-tree-unverified", "");
        }
        self.observed(ended, &all)
    }

    fn observed(&self, ended: ExitStatus, writers: &[&Value]) -> Value {
        let now = raw::now_ms();
        let code = if self.is("code-untold") { Some(0) } else { ended.code() };
        let signal = match ended.signal() {
            Some(9) if !self.is("signal-untold") => json!("SIGKILL"),
            Some(n) if !self.is("signal-untold") => format!("SIG{n}").into(),
            _ => Value::Null,
        };
        let code = if self.is("signal-untold") { Some(code.unwrap_or(137)) } else { code };
        let runner = json!({"kind": "runner", "processInstanceId": self.instance, "closeObservedAt": now, "exitCode": code, "signal": signal});
        let mut instances = vec![runner];
        if !self.is("writers-untold") {
            instances.extend(writers.iter().map(|writer| (*writer).clone()));
        }
        if self.is("runner-last") {
            instances.reverse();
        }
        let status = document(&self.dir.join("status.json")).ok().flatten().unwrap_or_default();
        let session =
            fs::symlink_metadata(text(&status, "sessionFile")).is_ok_and(|meta| meta.is_file());
        let disposition = match text(&status, "state") {
            "stopped" if !self.is("stopped-resumable") => "non-resumable",
            "complete" | "completed" | "failed" | "paused"
                if session && !self.is("never-resumable") =>
            {
                "resumable"
            }
            _ if self.is("always-resumable") => "resumable",
            _ => "unavailable",
        };
        let mut proof = json!({
            "version": 1, "state": "observed", "runId": self.id, "runnerProcessInstanceId": self.instance,
            "observedAt": now, "instances": instances, "resumeDisposition": disposition,
        });
        if self.is("instant-untold") {
            drop(proof.as_object_mut().map(|members| members.remove("observedAt")));
        }
        proof
    }

    fn invalid(&self, candidate: &Value) -> Option<&'static str> {
        if self.is("candidate-unchecked") {
            return None;
        }
        let whole =
            candidate.get("version") == Some(&Value::from(1)) || self.is("any-version-believed");
        let Some(writers) = candidate.get("writers").and_then(Value::as_object) else {
            return Some("its writers are no object");
        };
        let mut all = writers.values().filter_map(Value::as_array).flatten();
        let counts = candidate.get("expectedWriters").and_then(Value::as_object);
        if !whole {
            Some("its version is not 1")
        } else if !all.all(|w| w.get("attempt").is_some_and(Value::is_u64)) {
            Some("a writer has no attempt")
        } else if counts.is_some_and(|counts| !counts.values().all(Value::is_u64)) {
            Some("a count is negative")
        } else {
            None
        }
    }

    /// Rows F-6 and F-7.
    fn session(&self, file: &str) -> Option<&'static str> {
        if file.is_empty() || self.is("session-unread") {
            return None;
        }
        let real = fs::canonicalize(file).ok()?;
        let lease =
            self.root.join("session-leases").join(raw::sha256(real.as_os_str().as_encoded_bytes()));
        match document(&lease.join("owner.json")) {
            Err(_) => None,
            Ok(Some(_)) => Some("canonical-session-lease-active"),
            Ok(None) if self.is("damaged-lease-free") => None,
            Ok(None) => Some("canonical-session-unavailable"),
        }
    }

    fn release_marker(&self, proof: &Value) {
        let is_proven = proof["state"] == "observed" || self.is("marker-always-released");
        if let Some(runs) = self.dir.parent().filter(|_| is_proven && !self.is("marker-kept")) {
            let _ = fs::remove_file(runs.join(".active-runs").join(&self.id));
        }
    }

    fn overlay(&self, proof: &Value) {
        let path = self.dir.join("status.json");
        let Ok(status) = document(&path) else { return };
        let Some(mut status) = status.filter(Value::is_object) else {
            if self.is("damaged-status-rewritten") {
                let _ = self.put(&path, &json!({"processTerminal": proof}));
            }
            return;
        };
        if self.is("no-overlay") {
            return;
        }
        status["processTerminal"] = proof.clone();
        if self.is("state-changed") {
            status["state"] = "failed".into();
        }
        if self.is("other-members-dropped") {
            drop(status.as_object_mut().map(|members| members.remove("x-other")));
        }
        let candidate = document(&self.dir.join("process-terminal-candidate.json"))
            .ok()
            .flatten()
            .unwrap_or_default();
        let steps = status["steps"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let steps: Vec<Value> = steps
            .into_iter()
            .enumerate()
            .map(|(i, mut step)| {
                let records = candidate.pointer(&format!("/writers/{i}")).and_then(Value::as_array).map_or(0, Vec::len);
                let expected = candidate.pointer(&format!("/expectedWriters/{i}")).and_then(Value::as_u64);
                let expected = expected.unwrap_or(records as u64);
                let state = match proof["state"].as_str() {
                    _ if expected == 0 && !self.is("steps-all-alike") => "not-started",
                    Some("observed") => "observed",
                    _ => "unknown",
                };
                step["processTerminal"] = json!({
                    "version": 1, "state": state, "runId": self.id, "childIndex": i, "runnerProcessInstanceId": self.instance,
                });
                step
            })
            .collect();
        if !self.is("steps-left") {
            status["steps"] = steps.into();
        }
        let _ = self.put(&path, &status);
    }

    fn tell(&self, proof: &Value) -> io::Result<()> {
        if self.is("event-untold") {
            return Ok(());
        }
        let event = json!({"type": "subagent.run.process_terminal", "ts": raw::now_ms(), "runId": self.id, "processTerminal": proof});
        let mut file =
            OpenOptions::new().append(true).create(true).open(self.dir.join("events.jsonl"))?;
        let end = if self.is("event-not-ended") { "" } else { "\n" };
        file.write_all(format!("{event}{end}").as_bytes())
    }

    fn release_slot(&self, proof: &Value) -> io::Result<()> {
        let status = document(&self.dir.join("status.json")).ok().flatten().unwrap_or_default();
        let keeps = text(&status, "state") == "paused" && !self.is("paused-slot-released");
        let proven = proof["state"] == "observed" || self.is("slot-always-released");
        if !proven || keeps || self.is("slot-kept") {
            return Ok(());
        }
        for pool in fs::read_dir(self.root.join("session-active-async-capacity"))?.flatten() {
            let slot = pool.path().join("slot-0");
            let owner = document(&slot.join("owner.json")).ok().flatten().unwrap_or_default();
            if text(&owner, "runnerProcessInstanceId") == self.instance {
                let away = pool.path().join(".slot-0.released-1");
                fs::rename(&slot, &away)?;
                fs::remove_dir_all(away)?;
            }
        }
        Ok(())
    }
}
