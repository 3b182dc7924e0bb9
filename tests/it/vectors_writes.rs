//! The recorded answers of the reference implementations for what writers leave on the disk.
//!
//! Every vector of every file listed in [`FILES`] is run: trees on a real file system, the order of
//! calls on a recording one. Three differences hold for all of them, so they are rules here and no
//! vector is listed for them:
//!
//! * *modes*: a directory has 0700 and a file 0600 where the reference leaves both to the umask. The
//!   comparison insists on exactly that (`RS-ATOM-03`);
//! * *flushes*: they are added and change no file (`RS-DUR-01`);
//! * *clean-up*: a temp file is removed after a failure only. After a rename its name is gone, and the
//!   reference's removal of it can do nothing but fail (`RS-ATOM-09`).
//!
//! Where this project answers differently beyond that, the vector stands in [`DIFFERENT`] with the
//! reason, and the test insists that it differs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use runstore::protocol::RunState;
use runstore::protocol::Word as _;
use runstore::protocol::account::Author;
use runstore::protocol::ids::RunId;
use runstore::protocol::segment::SegmentInput;
use runstore::store::RealHost;
use runstore::store::atomic::{Durability, Options, WriteError, replace};
use runstore::store::directory::create_durable;
use runstore::store::host::Host as _;
use runstore::store::markers::{release, update, write_terminal};
use runstore::store::publish::{Place, publish};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{StartupFailure, StatusPlace, record_startup_failure};
use serde_json::{Value, json};
use testkit::fault::{Effect, FaultHost, Injected};

use super::vectors::{self, Check, Difference, SECOND, same, text};

/// File, number of vectors in it, and how one vector (input, expected) is checked.
pub(super) const FILES: [(&str, usize, Check); 5] = [
    ("active-index", 15, active_index),
    ("marker-write", 7, marker_write),
    ("result-layout", 10, result_layout),
    ("atomic-json-calls", 17, atomic_calls),
    ("startup-failure", 3, startup_failure),
];

/// Vectors whose answer differs on purpose.
const DIFFERENT: &[Difference] = &[
    (
        "atomic-json-calls",
        "both",
        "numbers",
        "a number of ours is an integer; one of somebody else keeps its spelling, and is not respelled \
         as JavaScript does (1e21 for 1e+21, -0.0 for 0)",
    ),
    (
        "atomic-json-calls",
        "both",
        "integer-like keys are reordered first",
        "members stand where their writer put them; only a JavaScript object moves number keys first",
    ),
    (
        "atomic-json-calls",
        "both",
        "cleanup rm fails after success",
        "nothing is removed after a success, so nothing can fail (facts W-8, Z-9)",
    ),
    (
        "atomic-json-calls",
        SECOND,
        "cleanup rm fails after success, ignored",
        "as before; this recording is of the peer that reports it all the same",
    ),
    (
        "startup-failure",
        "both",
        "status broken",
        "a status that cannot be read is not rewritten (RS-RMW-02), as from P71 on; the reference of that \
         time began anew over it",
    ),
];

#[test]
fn every_write_vector_is_answered_as_recorded_or_listed_as_different() {
    vectors::check_all(&FILES, DIFFERENT);
}

#[test]
fn every_difference_names_a_file_that_is_run_and_a_reason() {
    vectors::assert_explained(&FILES.map(|(file, ..)| file), DIFFERENT, 5);
}

/// The tree as the vectors write it, with the reference's mode in the place of ours: 0700 for 0755 and
/// 0600 for 0644. Any other mode stays and makes the comparison fail.
fn tree(top: &Path, with_sizes: bool, leave_out: &str) -> Value {
    let mut lines: Vec<(String, String)> = Vec::new();
    for entry in walkdir::WalkDir::new(top).min_depth(1) {
        let entry = entry.expect("a tree of our own");
        let path = entry.path().strip_prefix(top).expect("below").to_string_lossy().into_owned();
        if !leave_out.is_empty() && path.split('/').next() == Some(leave_out) {
            continue;
        }
        let meta = entry.metadata().expect("there");
        let mode = match meta.permissions().mode() & 0o7777 {
            0o700 if meta.is_dir() => 0o755,
            0o600 if meta.is_file() => 0o644,
            other => other,
        };
        let line = match (meta.is_dir(), with_sizes) {
            (true, _) => format!("{mode:04o} {path}/"),
            (false, true) => format!("{mode:04o} {path} {}", meta.len()),
            (false, false) => format!("{mode:04o} {path}"),
        };
        lines.push((path, line));
    }
    lines.sort();
    Value::from(lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>())
}

/// A recorded tree in the order of [`tree`].
fn sorted(recorded: &Value) -> Value {
    let lines = recorded.as_array().expect("a tree is a list");
    let mut lines: Vec<&str> = lines.iter().map(|l| l.as_str().expect("a line")).collect();
    lines.sort_by_key(|line| line[5..].trim_end_matches('/').to_owned());
    Value::from(lines)
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn put_status(runs: &Path, run: &str, status: &Value) {
    let dir = runs.join(run);
    std::fs::create_dir_all(&dir).expect("room");
    std::fs::write(dir.join("status.json"), status.to_string()).expect("room");
}

fn active_index(input: &Value, expected: &Value) -> Result<(), String> {
    let top = temp();
    let host = RealHost::new();
    let runs = host.open_dir(top.path()).expect("there");
    let run = RunId::parse(text(input, "run")).expect("an id");
    let never = RetryPolicy::never();
    let mut results = Vec::new();
    for operation in input["operations"].as_array().expect("a list of operations") {
        let word = |i: usize| operation[i].as_str();
        let state = |i| word(i).and_then(RunState::from_word).expect("a state");
        let done = match word(0).expect("an operation") {
            "status" | "status-nosession" => {
                let mut status = json!({
                    "runId": run.as_str(), "state": word(1), "endedAt": 1_700_000_000_000_i64,
                });
                if word(0) == Some("status") {
                    status["sessionId"] = json!("S");
                }
                put_status(top.path(), run.as_str(), &status);
                Ok(())
            }
            "update" => {
                let call = word(2).map(SegmentInput::from);
                update(&host, &runs, &run, state(1), call.as_ref(), &never).map(|done| {
                    assert!(done.problems.is_empty(), "{:?}", done.problems);
                })
            }
            "release" => release(&host, &runs, &run).map(|_| ()),
            other => panic!("no such operation: {other}"),
        };
        results.push(json!({ "ok": done.is_ok() }));
    }
    same(&json!(results), &expected["results"])?;
    same(&tree(top.path(), true, run.as_str()), &sorted(&expected["tree"]))
}

fn marker_write(input: &Value, expected: &Value) -> Result<(), String> {
    let top = temp();
    let host = RealHost::new();
    let runs = host.open_dir(top.path()).expect("there");
    let bytes = usize::try_from(input["runIdBytes"].as_u64().expect("a length")).expect("small");
    let run = RunId::parse(&"r".repeat(bytes)).expect("an id");
    let status = json!({ "sessionId": "S", "state": "complete", "endedAt": input["endedAt"] });
    put_status(top.path(), run.as_str(), &status);
    let written = write_terminal(&host, &runs, &run, RunState::Complete, &RetryPolicy::never());
    let names = |dir: &Path| -> Vec<usize> {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.expect("a tree of our own").file_name().len()).collect()
    };
    let left = names(&top.path().join(".terminal-runs/S"));
    if let Err(e) = written {
        assert_eq!(left, Vec::<usize>::new(), "no marker and no temp file is left");
        let too_long = e.source.kind() == std::io::ErrorKind::InvalidFilename;
        let code = if too_long { "ENAMETOOLONG".to_owned() } else { e.source.to_string() };
        // A name that will always be too long does not keep the run in the active index.
        update(&host, &runs, &run, RunState::Running, None, &RetryPolicy::never())
            .map_err(|e| e.to_string())?;
        let ended = update(&host, &runs, &run, RunState::Complete, None, &RetryPolicy::never());
        assert_eq!(ended.map_err(|e| e.to_string())?.problems.len(), 1, "it is told");
        return same(&json!({ "error": code }), expected);
    }
    same(&json!({ "ok": left }), expected)
}

fn result_layout(input: &Value, expected: &Value) -> Result<(), String> {
    let top = temp();
    let host = RealHost::new();
    let results = host.open_dir(top.path()).expect("there");
    let payload = serde_json::to_string_pretty(&input["data"]).expect("JSON");
    let file = text(input, "file");
    let done = publish(&host, &results, file, &payload, None, &RetryPolicy::never());
    same(&tree(top.path(), false, ""), &sorted(&expected["tree"]))?;
    match done {
        Ok(done) => {
            assert!(done.problems.is_empty(), "{:?}", done.problems);
            let state = if done.place == Place::Public { "public" } else { "pending" };
            same(&json!({ "ok": { "state": state } }), &expected["result"])?;
            let public = std::fs::read_to_string(top.path().join(file)).expect("public");
            assert_eq!(public, payload, "the payload is as it was given");
        }
        Err(e) => {
            // The words are ours; that it is an error, and about what, is recorded.
            let recorded = expected["result"]["error"].as_str().unwrap_or_default();
            let about = recorded.contains("without a sessionId") && recorded.contains(file);
            if !about || !e.to_string().contains("without a sessionId") {
                return Err(format!("{e}, recorded {}", expected["result"]));
            }
        }
    }
    for (path, recorded) in expected["index"].as_object().expect("an object") {
        let text = std::fs::read_to_string(top.path().join(path)).map_err(|e| e.to_string())?;
        let mut entry: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        assert!(entry["writtenAt"].is_i64(), "{path}: an instant");
        entry["writtenAt"] = json!("<now>");
        same(&entry, recorded)?;
        let pretty =
            text.starts_with("{\n  \"version\": 1,\n  \"runId\": ") && text.ends_with("\n}");
        assert!(pretty, "{path}: the form of every writer: {text}");
    }
    Ok(())
}

/// The text that our writers make of a payload that a vector gives as JavaScript.
fn payload(js: &str) -> String {
    let value = match js {
        "{ a: 1, b: [ 1, 2 ], c: { d: null } }" => {
            json!({ "a": 1, "b": [1, 2], "c": { "d": null } })
        }
        "{ a: 1 }" => json!({ "a": 1 }),
        "{}" | "{ u: undefined }" => json!({}),
        "{ a: [], b: {} }" => json!({ "a": [], "b": {} }),
        "{ '2': 'y', '10': 'x', b: 1, a: 2 }" => json!({ "2": "y", "10": "x", "b": 1, "a": 2 }),
        // No string of ours can hold it; one of somebody else's is passed on as it is spelled.
        r"{ s: '\ud800' }" => {
            return runstore::protocol::document::object_text(&[("s", r#""\ud800""#)]);
        }
        js if js.starts_with("{ s: '\u{e9}") => {
            json!({ "s": "\u{e9}\u{4f1a}\u{1f680}\u{1}\u{2028}\"\\/" })
        }
        js if js.contains("1e+21") => json!({
            "a": 1e21, "b": 1e-7, "c": -0.0, "d": 0.1, "e": 1_700_000_000_000_i64,
            "f": 1.234_567_890_123_456_8e20, "g": f64::NAN, "h": f64::INFINITY,
        }),
        other => panic!("no such payload: {other}"),
    };
    serde_json::to_string_pretty(&value).expect("JSON")
}

/// The error number of a recorded failure.
fn errno(code: &str) -> i32 {
    match code {
        "ENOENT" => 2,
        "EACCES" => 13,
        "ENOSPC" => 28,
        "EPERM" => 1,
        other => panic!("no such error: {other}"),
    }
}

fn atomic_calls(input: &Value, expected: &Value) -> Result<(), String> {
    const MKDIR: usize = 0;
    const WRITE: usize = 2;
    let host = FaultHost::new();
    host.set_now_ms(input["now"].as_i64().expect("an instant"));
    let fail = |op: &str| input["fail"][op].as_str().map(errno);
    let retry = match input["retryRenameErrors"].as_bool() {
        Some(true) => RetryPolicy::always(),
        _ => RetryPolicy::never(),
    };
    // Effects: mkdir, flush, create, write, flush, rename, flush; without the flushes of the file and
    // its name here, since a process-safe replace is what the reference makes.
    let shift = 1;
    if let Some(errno) = fail("mkdir") {
        host.fail_at(MKDIR, Injected::Errno(errno));
    }
    if let Some(errno) = fail("writeFile") {
        host.fail_at(WRITE + shift, Injected::Errno(errno));
    }
    let mut next = WRITE + shift + 1;
    if let Some(errno) = fail("rename") {
        // Only a file that another program may hold is tried again.
        let attempts = if errno == 2 { 1 } else { 1 + retry.waits_ms().len() };
        (next..next + attempts).for_each(|n| host.fail_at(n, Injected::Errno(errno)));
        next += attempts;
    } else {
        next += 1;
    }
    if let Some(errno) = fail("rm") {
        host.fail_at(next, Injected::Errno(errno));
    }
    let body = payload(text(input, "payloadJs"));
    let started_ms = host.now_ms();
    let done = create_durable(&host, &0, "d", &retry).and_then(|(dir, _)| {
        let options = Options::new(Durability::ProcessSafe).retry(retry);
        replace(&host, &dir, "x.json", body.as_bytes(), &options)
    });
    compare_calls(&host, input, expected, &body, &done.as_ref().map(|w| w.rename.made))?;
    let waited: i64 =
        calls(expected, "wait").map(|call| call["args"][0].as_i64().expect("ms")).sum();
    same(&json!(host.now_ms() - started_ms), &json!(waited))?;
    match (&done, expected["result"]["error"].as_str()) {
        (Ok(_), None) => Ok(()),
        (Err(e), Some(recorded)) if same_error(e, recorded) => Ok(()),
        (done, recorded) => Err(format!("{done:?}, recorded {recorded:?}")),
    }
}

fn calls<'a>(expected: &'a Value, op: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = expected["calls"].as_array().expect("a list of calls");
    all.iter().filter(move |call| call["op"] == op)
}

/// Whether an error has the recorded code and is about the recorded operation.
fn same_error(e: &WriteError, recorded: &str) -> bool {
    let (code, op) = recorded.split_once(": ").expect("code and operation");
    let verb = match op {
        "mkdir" => "create the directory",
        "writeFile" => "write",
        "rename" => "rename",
        other => other,
    };
    e.source.raw_os_error() == Some(errno(code)) && e.to_string().contains(verb)
}

fn compare_calls(
    host: &FaultHost,
    input: &Value,
    expected: &Value,
    body: &str,
    renames: &Result<u32, &WriteError>,
) -> Result<(), String> {
    let mut got = Vec::new();
    for effect in host.effects() {
        match effect {
            Effect::CreateDir { .. } => got.push("mkdir".to_owned()),
            Effect::Create { name, .. } => {
                let name = name.to_string_lossy().into_owned();
                // The recorded name, with 64 random bits in the place of its few.
                let now = input["now"].as_i64().expect("an instant");
                assert!(name.starts_with(&format!(".x.json.4242.{now}.")), "{name}");
                assert!(name.ends_with(".tmp") && name.len() > 40, "{name}");
            }
            Effect::Write { bytes, .. } => {
                got.push(format!("write {}", String::from_utf8(bytes).expect("text")));
            }
            Effect::Rename { to, .. } => got.push(format!("rename {}", to.to_string_lossy())),
            Effect::AddName { .. } => got.push("link".to_owned()),
            Effect::Unlink { .. } => got.push("rm".to_owned()),
            Effect::Sync { .. } | Effect::SyncDir { .. } | Effect::SetMode { .. } => {}
        }
    }
    let failed = |op: &str| input["fail"][op].is_string();
    let mut want = Vec::new();
    for call in expected["calls"].as_array().expect("a list of calls") {
        match text(call, "op") {
            "mkdir" if !failed("mkdir") => want.push("mkdir".to_owned()),
            "writeFile" => {
                let recorded = call["args"][1].as_str().expect("a text");
                if recorded != body {
                    return Err(format!("writes {body}, recorded {recorded}"));
                }
                if !failed("writeFile") {
                    want.push(format!("write {recorded}"));
                }
            }
            "rename" if !failed("rename") => want.push("rename x.json".to_owned()),
            "rm" if (failed("writeFile") || failed("rename")) && !failed("rm") => {
                want.push("rm".to_owned());
            }
            _ => {}
        }
    }
    same(&json!(got), &json!(want))?;
    let recorded = calls(expected, "rename").count();
    let made = match renames {
        Ok(made) => *made as usize,
        Err(e) if failed("rename") => e.attempts.made as usize,
        Err(_) => 0,
    };
    same(&json!(made), &json!(recorded))
}

/// The files of a launch that failed: members by value, since the bytes of a status that is there stay,
/// and sizes only where the whole text is ours.
fn startup_failure(input: &Value, expected: &Value) -> Result<(), String> {
    let temp = temp();
    let host = RealHost::new();
    let dir = host.open_dir(temp.path()).expect("there");
    let status = temp.path().join("status.json");
    if let Some(raw) = input["status"]["raw"].as_str() {
        std::fs::write(&status, raw).expect("room");
    }
    let run_id = RunId::parse(text(input, "runId")).expect("an id");
    let place = StatusPlace { host: &host, run_dir: &dir, run_id: &run_id, locks: None };
    let failure = StartupFailure {
        instance_id: text(input, "runnerProcessInstanceId"),
        session_id: Some(text(input, "sessionId")),
        completion_owner_id: Some(text(input, "completionOwnerId")),
        message: text(input, "message"),
    };
    let before = host.now_ms();
    record_startup_failure(&place, Author::Launcher, &failure).map_err(|e| e.to_string())?;
    let read = |name: &str| -> Value {
        let bytes = std::fs::read(temp.path().join(name)).expect("it was written");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    let mut told = read("status.json");
    let now = before..=host.now_ms();
    if !told["lastUpdate"].as_i64().is_some_and(|at| now.contains(&at)) {
        return Err(format!("lastUpdate is no present instant: {told}"));
    }
    told["lastUpdate"] = json!("<now>");
    same(&told, &expected["status"])?;
    same(&read("process-terminal-candidate.json"), &expected["candidate"])?;
    let proof = temp.path().join("process-terminal.json").exists();
    same(&json!(proof), &expected["proofFileExists"])?;
    let made = input["status"].is_null();
    let recorded = expected["tree"].as_array().expect("a tree is a list");
    let entries = std::fs::read_dir(temp.path()).expect("there").count();
    same(&json!(entries), &json!(recorded.len()))?;
    for entry in recorded {
        let path = text(entry, "path");
        let meta = std::fs::metadata(temp.path().join(path)).expect("it was written");
        same(&json!(format!("{:04o}", meta.permissions().mode() & 0o7777)), &entry["mode"])?;
        if made || path != "status.json" {
            same(&json!(meta.len()), &entry["size"])?;
        }
    }
    Ok(())
}
