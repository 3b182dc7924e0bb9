//! A reader that can be told to make one mistake.
//!
//! Theory of operation. It walks the runs of a store and says of each what chapter 11 has it say, as far as the checks
//! of a reader ask. It opens nothing but plain files, follows no link, and changes nothing. With a fault it does one
//! thing wrong. It shares no line with the library.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// One look at a store, with one mistake or none.
struct Reader<'f> {
    fault: &'f str,
}

/// The report on a store.
pub fn read(fault: &str, root: &Path) -> Value {
    let reader = Reader { fault };
    let runs = root.join("async-subagent-runs");
    let mut names: Vec<String> = fs::read_dir(&runs)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut reports = Vec::new();
    for name in names {
        let path = runs.join(&name);
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let is_hidden = name.starts_with('.') && !reader.is("hidden-reported");
        if is_hidden || meta.is_file() {
            continue;
        }
        let mut report = if meta.is_symlink() && !reader.is("linked-run-entered") {
            json!({"verdict": "unsafe", "recordedState": null, "proof": {"state": "missing", "counts": false}})
        } else {
            reader.run(&path, &name)
        };
        if !report.get("runId").is_some_and(Value::is_string) {
            report["runId"] = name.into();
        }
        if report["recordedState"].is_null() && reader.is("empty-runs-unreported") {
            continue;
        }
        let is_damaged = report["verdict"] == "corrupt";
        if reader.is("reported-twice") {
            reports.push(report.clone());
        }
        reports.push(report);
        if is_damaged && reader.is("stops-at-damage") {
            break;
        }
    }
    if reader.is("leaves-a-note") {
        let _ = fs::write(root.join("read.txt"), b"");
    }
    json!({"runs": reports})
}

const KNOWN: [&str; 24] = [
    "lifecycleArtifactVersion",
    "runId",
    "sessionId",
    "mode",
    "state",
    "startedAt",
    "endedAt",
    "lastUpdate",
    "pid",
    "runnerPid",
    "ownerPid",
    "steps",
    "processTerminal",
    "hostname",
    "error",
    "lane",
    "context",
    "steering",
    "sessionFile",
    "displayDismissedAt",
    "toolCallId",
    "currentStep",
    "stopped",
    "timedOut",
];
const OUTCOMES: [&str; 5] = ["complete", "failed", "partial", "stopped", "rejected"];

impl Reader<'_> {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn run(&self, path: &Path, name: &str) -> Value {
        let proof = self.proof(path, name);
        let say = |verdict: &str, state: Value| json!({"verdict": verdict, "recordedState": state, "proof": {"state": proof.0, "counts": false}});
        let file = path.join("status.json");
        let bytes = match fs::symlink_metadata(&file) {
            Err(_) => return say("never-started", Value::Null),
            Ok(meta) if meta.is_symlink() && !self.is("linked-status-followed") => {
                return say("unsafe", Value::Null);
            }
            Ok(meta) if meta.is_dir() => {
                let verdict = if self.is("directory-ignored") { "never-started" } else { "unsafe" };
                return say(verdict, Value::Null);
            }
            Ok(meta)
                if !meta.is_file()
                    && !meta.is_symlink()
                    && !self.is("pipe-waited-for")
                    && !self.is("hangs-at-a-pipe") =>
            {
                return say("unsafe", Value::Null);
            }
            Ok(_) => fs::read(&file).unwrap_or_default(),
        };
        let bytes =
            if self.is("temp-file-read") { newest_temp(path).unwrap_or(bytes) } else { bytes };
        let is_blank = bytes.iter().all(|byte| *byte == 0);
        if is_blank
            && (self.is("blank-is-missing") || (self.is("zeros-are-missing") && !bytes.is_empty()))
        {
            return say("never-started", Value::Null);
        }
        let Some(status) = self.document(&bytes) else { return say("corrupt", Value::Null) };
        let state = status.get("state").cloned().unwrap_or(Value::Null);
        if self.is_damaged(&status, path, name) {
            return say("corrupt", state);
        }
        let mut report = self.judge(&status, path, name, &proof.0, proof.1.as_ref());
        if self.is("named-by-its-status") {
            report["runId"] = status.get("runId").cloned().unwrap_or(Value::Null);
        }
        report
    }

    /// The one object of a text.
    fn document(&self, bytes: &[u8]) -> Option<Map<String, Value>> {
        let lossy = String::from_utf8_lossy(bytes).into_owned();
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) if self.is("other-bytes-accepted") => lossy.as_str(),
            Err(_) => return None,
        };
        let text = if self.is("byte-order-mark-skipped") {
            text.trim_start_matches('\u{feff}')
        } else {
            text
        };
        if self.is("one-form-only") && text.ends_with('\n') {
            return None;
        }
        let parsed = if self.is("text-after-accepted") {
            serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok()
        } else {
            serde_json::from_str::<Value>(text).ok()
        };
        match parsed {
            Some(Value::Object(members)) => {
                let mut members = members;
                let first = text.find("\"state\": \"running\"");
                if self.is("first-key-counts") && first.is_some() {
                    members.insert("state".into(), "running".into());
                }
                Some(members)
            }
            Some(Value::Array(items)) if self.is("list-unwrapped") => {
                items.first()?.as_object().cloned()
            }
            None if self.is("cut-text-completed")
                && text.starts_with('{')
                && !text.trim_end().ends_with('}') =>
            {
                Some(Map::from_iter([("state".to_owned(), "complete".into())]))
            }
            None if self.is("any-depth-accepted") && text.contains("[[[[[[[[") => {
                Some(Map::from_iter([("state".to_owned(), "complete".into())]))
            }
            _ => None,
        }
    }

    fn is_damaged(&self, status: &Map<String, Value>, path: &Path, name: &str) -> bool {
        let kind = |key: &str, good: fn(&Value) -> bool| {
            status
                .get(key)
                .is_none_or(|value| (value.is_null() && !self.is("null-refused")) || good(value))
        };
        let instants = ["startedAt", "endedAt", "lastUpdate"];
        let whole = |value: &Value| value.is_i64() || value.is_u64();
        let instant: fn(&Value) -> bool =
            if self.is("fraction-refused") { whole } else { Value::is_number };
        let pids = ["pid", "runnerPid", "ownerPid"];
        let bad = [
            !status.get("state").is_some_and(Value::is_string) && !self.is("state-not-needed"),
            !instants.iter().all(|key| kind(key, instant)) && !self.is("instants-unchecked"),
            !pids.iter().all(|key| kind(key, whole)) && !self.is("pid-coerced"),
            !kind("error", Value::is_string),
            self.is("unknown-member-refused")
                && status.keys().any(|key| !KNOWN.contains(&key.as_str())),
            self.is("opaque-member-judged")
                && status.get("lane").is_some_and(|lane| !lane.is_object()),
            self.is("other-name-refused")
                && status.get("runId").and_then(Value::as_str) != Some(name),
            self.is("unknown-file-refused") && path.join("notes.txt").is_file(),
        ];
        bad.contains(&true)
    }

    fn judge(
        &self,
        status: &Map<String, Value>,
        path: &Path,
        name: &str,
        proof: &str,
        sidecar: Option<&Value>,
    ) -> Value {
        let word = status.get("state").and_then(Value::as_str).unwrap_or_default();
        let folded = word.to_ascii_lowercase();
        let read = match self.fault {
            "case-folded" => folded.as_str(),
            "beginning-matched" if word.starts_with("complete") => "complete",
            _ => word,
        };
        let version = status.get("lifecycleArtifactVersion").and_then(Value::as_i64);
        let known = OUTCOMES.contains(&read) || ["queued", "running", "paused"].contains(&read);
        let overlay = status.get("processTerminal");
        let counts = self.counts(status, name, sidecar);
        let pid = self.process(status);
        let active = matches!(read, "running" | "queued");
        let start_failed = read == "failed"
            && overlay.and_then(|overlay| overlay.get("state")).and_then(Value::as_str)
                == Some("not-started");
        let open_step = status.get("steps").and_then(Value::as_array).is_some_and(|steps| {
            steps.iter().any(|step| step.get("status").and_then(Value::as_str) == Some("pondering"))
        });
        let unsupported = version.is_some_and(|v| v > 3 && !self.is("newer-accepted"))
            || (!known && !self.is("unknown-word-is-an-end"))
            || (self.is("rejected-not-known") && read == "rejected")
            || (self.is("version-2-refused") && version == Some(2))
            || (self.is("version-needed") && version.is_none());
        let verdict = if unsupported {
            "unsupported"
        } else if start_failed && !self.is("start-failure-unseen") {
            "start-failed"
        } else if self.is("dismissed-is-over") && status.contains_key("displayDismissedAt") {
            "never-started"
        } else if self.is("step-word-judged") && open_step {
            "conflict"
        } else if self.is("leftover-judged") && path.join("runner-startup.json").is_file() {
            "start-stuck"
        } else if active {
            let marked =
                path.parent().is_some_and(|runs| runs.join(".active-runs").join(name).is_file());
            match pid {
                _ if marked && self.is("marker-believed") => "running",
                None if self.is("nobody-is-dead") => "orphaned",
                None => "running-unverified",
                Some(pid) if is_gone(pid) => "orphaned",
                Some(_) => "running",
            }
        } else if read == "paused"
            && !self.is("pause-is-an-end")
            && (status.contains_key("endedAt") || !self.is("pause-is-an-end-too"))
        {
            "paused"
        } else if self.is("result-needed") && name == "a-noresult" {
            "undeliverable"
        } else if counts {
            "finished"
        } else {
            "finished-unproven"
        };
        let told = if self.is("words-normalised") && !known { "unknown" } else { word };
        json!({"verdict": verdict, "recordedState": told, "proof": {"state": proof, "counts": counts}})
    }

    fn process(&self, status: &Map<String, Value>) -> Option<i64> {
        let keys = if self.is("plain-pid-first") {
            ["pid", "runnerPid", "ownerPid"]
        } else {
            ["runnerPid", "ownerPid", "pid"]
        };
        keys.iter().find_map(|key| status.get(*key)?.as_i64())
    }

    /// The sidecar: its state, and the document if it is one.
    fn proof(&self, path: &Path, _name: &str) -> (String, Option<Value>) {
        let Ok(bytes) = fs::read(path.join("process-terminal.json")) else {
            let word = if self.is("missing-proof-unknown") { "unknown" } else { "missing" };
            return (word.into(), None);
        };
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(proof) => (
                proof.get("state").and_then(Value::as_str).unwrap_or("unknown").to_owned(),
                Some(proof),
            ),
            Err(_) => (
                "unknown".into(),
                self.is("damaged-proof-counts").then(|| json!({"damaged": true})),
            ),
        }
    }

    fn counts(&self, status: &Map<String, Value>, name: &str, sidecar: Option<&Value>) -> bool {
        let overlay = status.get("processTerminal");
        let word = |value: Option<&Value>, key: &str| {
            value.and_then(|value| value.get(key)).and_then(Value::as_str).map(str::to_owned)
        };
        let Some(proof) = sidecar else {
            return self.is("overlay-counts")
                && word(overlay, "state").as_deref() == Some("observed");
        };
        if proof.get("damaged").is_some() {
            return true;
        }
        let own = word(Some(proof), "runnerProcessInstanceId");
        let claimed = word(overlay, "runnerProcessInstanceId");
        let placeholder = claimed.as_deref() == Some("observer-unavailable");
        let instances = proof.get("instances").and_then(Value::as_array);
        let runner = instances.and_then(|list| {
            list.iter().find(|one| one.get("kind").is_some_and(|k| k == "runner"))
        });
        let state = word(Some(proof), "state").unwrap_or_default();
        let states: &[&str] = match self.fault {
            "pending-counts" => &["observed", "pending"],
            "unknown-counts" => &["observed", "unknown"],
            "any-state-counts" => &["observed", "seen"],
            _ => &["observed"],
        };
        let evidence = word(Some(proof), "exitEvidence");
        let needs_runner = state == "observed" && !self.is("runner-not-needed");
        let needs = [
            states.contains(&state.as_str()),
            proof.get("version") == Some(&Value::from(1)) || self.is("newer-proof-counts"),
            word(Some(proof), "runId").as_deref() == Some(name)
                || self.is("other-runs-proof-counts"),
            claimed.is_none()
                || claimed == own
                || self.is("other-instance-counts")
                || (placeholder && !self.is("placeholder-contradicts")),
            !needs_runner || word(runner, "processInstanceId") == own,
            state != "observed"
                || proof.get("observedAt").is_some_and(Value::is_number)
                || self.is("instant-not-needed"),
            !self.is("evidence-decides") || evidence.is_none(),
            !self.is("reason-decides") || proof.get("reason").is_none_or(Value::is_string),
        ];
        !needs.contains(&false)
    }
}

fn newest_temp(path: &Path) -> Option<Vec<u8>> {
    let entries = fs::read_dir(path).ok()?.flatten();
    let temp =
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp")).last()?;
    fs::read(temp.path()).ok()
}

fn is_gone(pid: i64) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        matches!(rustix::process::test_kill_process(pid), Err(e) if e == rustix::io::Errno::SRCH)
    })
}
