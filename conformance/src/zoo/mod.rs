//! A runner, a reader and an observer that can be told to make one mistake.
//!
//! Theory of operation. Without a fault this is a runner of plain commands that keeps everything which the suite
//! checks, written for the suite alone: it shares no line with the library. With a fault (`faults.rs`) it does one
//! thing wrong. [`crate::prove`] lets the suite judge each of them, and a fault that the suite does not see is a hole
//! in the suite. A fault is asked for by name at the one place where it makes a difference.
//!
//! Ordered steps: configuration (`start`), lease (`lease`), conversation (`start`), work (`work`), end (`end`). All
//! files are written by `disk`. The others are `reader` and `observer`. What a crash leaves is what a crash of any runner leaves.

mod around;
mod disk;
mod end;
mod faults;
mod lease;
mod observer;
mod reader;
mod start;
mod work;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub(crate) use around::MISTAKE;
pub use around::around;
pub use faults::{FAULTS, Fault};
pub use observer::observe;
pub use reader::read;

use crate::raw;

/// One run in the hands of this runner.
struct Zoo {
    fault: String,
    config: Value,
    dir: PathBuf,
    id: String,
    instance: String,
    session: Option<String>,
    lease: Option<lease::Lease>,
    steps: Vec<Value>,
    writers: Vec<Vec<Value>>,
    began_ms: i64,
    cut: Option<work::Cut>,
}

/// Why it gives up.
#[derive(Debug)]
enum Stop {
    /// Before anything of the run was touched.
    Refused(String),
    /// Before it was let in.
    Failed(String),
    /// Somebody else has told the end.
    Displaced,
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}

/// Runs a configuration with a fault, or with none (an empty name); the exit code.
pub fn run(fault: &str, config: &Path) -> u8 {
    let mut zoo = match Zoo::read(fault, config) {
        Ok(zoo) => zoo,
        Err(why) => return complain(&why),
    };
    match zoo.play() {
        Ok(code) => code,
        Err(why) => {
            zoo.give_up(&why);
            let code = complain(&why);
            if zoo.is("failure-exits-with-zero") { 0 } else { code }
        }
    }
}

fn complain(why: &Stop) -> u8 {
    use std::io::Write as _;
    let text = match why {
        Stop::Refused(text) | Stop::Failed(text) => text,
        Stop::Displaced => "somebody else has told the end of this run",
    };
    let _ = writeln!(std::io::stderr().lock(), "zoo: {}", raw::brief(text, 400));
    1
}

impl Zoo {
    /// Whether the fault is the one that it was told to make.
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory of all runs.
    fn runs(&self) -> PathBuf {
        self.dir.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// The temp root of the store.
    fn root(&self) -> PathBuf {
        self.runs().parent().map(Path::to_owned).unwrap_or_default()
    }

    fn text(&self, key: &str) -> &str {
        self.config.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn play(&mut self) -> Result<u8, Stop> {
        self.talk()?;
        // What was let in and cannot begin is told in the status; the launcher has gone on.
        match self.work_and_end() {
            Err(Stop::Displaced) => Ok(1),
            other => other,
        }
    }

    /// The status of this moment.
    fn status(&self, state: &str, more: &Value) -> Value {
        let mut status = json!({
            "lifecycleArtifactVersion": if self.is("older-version") { 2 } else { 3 }, "runId": self.id,
            "mode": self.config.get("resultMode").cloned().unwrap_or_else(|| "single".into()),
            "state": state, "startedAt": self.began_ms, "lastUpdate": raw::now_ms(), "steps": self.steps,
            "cwd": self.text("cwd"), "pid": std::process::id(), "hostname": raw::host(),
            "processStartIdentity": raw::start_identity(std::process::id()), "bootId": raw::boot_id(),
            "processTerminal": {"version": 1, "state": "pending", "runId": self.id, "runnerProcessInstanceId": self.instance},
        });
        if let Some(session) = &self.session {
            status["sessionId"] = session.clone().into();
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            status[key] = value.clone();
        }
        match self.fault.as_str() {
            "status-names-nobody" => drop(status.as_object_mut().map(|m| m.remove("pid"))),
            "status-names-another" => status["pid"] = 1.into(),
            "status-without-proof" => {
                drop(status.as_object_mut().map(|m| m.remove("processTerminal")))
            }
            "status-claims-observed" => status["processTerminal"]["state"] = "observed".into(),
            "odd-state" if state == "running" => status["state"] = "working".into(),
            "steps-untold" => status["steps"] = json!([]),
            "step-without-word" => drop(
                status
                    .pointer_mut("/steps/0")
                    .and_then(Value::as_object_mut)
                    .map(|m| m.remove("status")),
            ),
            _ => {}
        }
        status
    }
}
