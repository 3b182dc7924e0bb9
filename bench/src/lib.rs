//! Stores for measuring, and what the measuring programs share.
//!
//! Theory of operation. [`write_store`] makes a temp root of finished runs: a status of about 2 KB
//! and an observed proof of about 0.8 KB each, in the shape that recorded stores have, with the empty
//! index and the results root that every real store has beside them. Everything follows from the
//! number of the run, so two machines measure the same bytes.
//!
//! Not promised: times of files, and the order in which a file system lists them.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "builds stores with plain files")]

use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

pub mod bare;
pub mod contest;
pub mod ground;
pub mod hostile;
pub mod peer;
pub mod report;
#[cfg(target_os = "linux")]
pub mod talk;

/// The runs root of a store.
pub const RUNS: &str = "async-subagent-runs";
/// The two files of a finished run that the floor reads.
pub const FILES: [&std::ffi::CStr; 2] = [c"status.json", c"process-terminal.json"];
/// The first instant in a made store, in ms since the epoch.
pub const START_MS: u64 = 1_790_000_000_000;

/// Makes a directory that only this user may enter.
///
/// # Errors
/// As the system says.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user may read.
///
/// # Errors
/// As the system says.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Makes a temp root with `runs` finished runs.
///
/// # Errors
/// As the system says.
pub fn write_store(root: &Path, runs: u64) -> io::Result<()> {
    make_dir(&root.join(RUNS).join(".active-runs"))?;
    make_dir(&root.join("async-subagent-results"))?;
    for number in 0..runs {
        let id = run_id(number);
        let dir = root.join(RUNS).join(&id);
        make_dir(&dir)?;
        put(&dir.join("status.json"), status(number, &id).as_bytes())?;
        put(&dir.join("process-terminal.json"), proof(number, &id, "").as_bytes())?;
    }
    Ok(())
}

/// Adds a run of the last boot to a store: it says that it works, and its process is gone.
///
/// # Errors
/// As the system says.
pub fn orphan(root: &Path, number: u64, at_ms: u64) -> io::Result<()> {
    let id = run_id(number);
    let dir = root.join(RUNS).join(&id);
    make_dir(&dir)?;
    let session = number % 97;
    let mut text = format!(
        r#"{{
  "lifecycleArtifactVersion": 3,
  "runId": "{id}",
  "sessionId": "session-{session:04}",
  "mode": "single",
  "state": "running",
  "startedAt": {at_ms},
  "lastUpdate": {at_ms},
  "currentStep": 0,
  "chainStepCount": 1,
  "pid": {NOBODY},
  "cwd": "/home/someone/projects/example",
  "steps": [
    {{
      "agent": "worker",
      "status": "running",
      "model": "vendor/model-name",
      "startedAt": {at_ms},
      "recentOutput": ["#
    );
    for line in 0..24 {
        let comma = if line < 23 { "," } else { "" };
        let _ = write!(text, "\n        \"line {line} of what the worker said last\"{comma}");
    }
    text.push_str("\n      ]\n    }\n  ],\n  \"steering\": { \"accepted\": 0 }\n}");
    put(&dir.join("status.json"), text.as_bytes())?;
    put(&dir.join("events.jsonl"), b"{\"type\":\"subagent.run.started\"}\n")?;
    put(&root.join(RUNS).join(".active-runs").join(&id), b"")
}

/// No process has this number.
const NOBODY: u64 = 999_999_999;

/// The id of a run. Neighbours share no prefix, as with random ids.
pub fn run_id(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:08x}-{:04x}-4000-8000-{number:012x}", mixed >> 32, mixed & 0xffff)
}

fn instance(number: u64, writer: u64) -> String {
    format!("{number:08x}-0000-4000-9000-{writer:012x}")
}

/// A proof, each line after `indent`.
fn proof(number: u64, id: &str, indent: &str) -> String {
    let end = START_MS + number * 1000 + 61_000;
    let group = 100_001 + number;
    let (runner, writer) = (instance(number, 0), instance(number, 1));
    format!(
        r#"{{
{indent}  "version": 1,
{indent}  "state": "observed",
{indent}  "runId": "{id}",
{indent}  "runnerProcessInstanceId": "{runner}",
{indent}  "observedAt": {end},
{indent}  "instances": [
{indent}    {{
{indent}      "kind": "runner",
{indent}      "processInstanceId": "{runner}",
{indent}      "closeObservedAt": {end},
{indent}      "exitCode": 0,
{indent}      "signal": null
{indent}    }},
{indent}    {{
{indent}      "kind": "pi-writer",
{indent}      "processInstanceId": "{writer}",
{indent}      "childIndex": 0,
{indent}      "attempt": 1,
{indent}      "processTree": {{
{indent}        "state": "observed",
{indent}        "mechanism": "posix-process-group",
{indent}        "processGroupId": {group},
{indent}        "verifiedAt": {end}
{indent}      }},
{indent}      "closeObservedAt": {end},
{indent}      "exitCode": 0,
{indent}      "signal": null
{indent}    }}
{indent}  ],
{indent}  "resumeDisposition": "resumable"
{indent}}}"#
    )
}

/// A JSON object of this many bytes, with two spaces of indentation. Every writer makes the same text of it.
///
/// # Panics
/// When `bytes` is too small for it.
pub fn text_of(bytes: usize) -> String {
    let start = format!("{{\n  \"runId\": \"run-1\",\n  \"startedAt\": {START_MS},\n  \"pad\": \"");
    let end = "\"\n}";
    let pad = bytes.checked_sub(start.len() + end.len()).expect("there is room for the members");
    format!("{start}{}{end}", "x".repeat(pad))
}

/// A status of about 2 KB.
fn status(number: u64, id: &str) -> String {
    let start = START_MS + number * 1000;
    let end = start + 60_000;
    let session = number % 97;
    let mut text = format!(
        r#"{{
  "lifecycleArtifactVersion": 3,
  "runId": "{id}",
  "sessionId": "session-{session:04}",
  "completionOwnerId": "owner-{session}",
  "mode": "single",
  "state": "complete",
  "startedAt": {start},
  "lastUpdate": {end},
  "endedAt": {end},
  "currentStep": 0,
  "chainStepCount": 1,
  "cwd": "/home/someone/projects/example",
  "outputFile": "/home/someone/projects/example/out/{id}.md",
  "sessionFile": "/home/someone/.sessions/{id}.jsonl",
  "steps": [
    {{
      "agent": "worker",
      "status": "complete",
      "model": "vendor/model-name",
      "requestedModel": "vendor/model-name",
      "thinking": "medium",
      "startedAt": {start},
      "endedAt": {end},
      "durationMs": 60000,
      "exitCode": 0,
      "toolCount": 17,
      "tokens": {{ "input": 120345, "output": 4521, "total": 124866 }},
      "recentOutput": ["#
    );
    for line in 0..4 {
        let comma = if line < 3 { "," } else { "" };
        let _ = write!(text, "\n        \"line {line} of what the worker said last\"{comma}");
    }
    let pid = 100_000 + number;
    let proof = proof(number, id, "  ");
    let _ = write!(
        text,
        "\n      ]\n    }}\n  ],\n  \"steering\": {{ \"accepted\": 0 }},\n  \"runnerPid\": {pid},\n  \
         \"processTerminal\": {proof}\n}}"
    );
    text
}
