//! What an operation of the driver leaves on a real disk: the old state, the new one, or a violation.
//!
//! Theory of operation. [`is_new`] looks at a temp root after an operation, however it ended, and says
//! whether its new state is there. Anything that is neither the old state nor the new one, such as an
//! index that leads to nothing or a lock without an owner, is an error with its reason.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use runstore::protocol::lease::{LeaseState, WriterState};
use runstore::protocol::slot::SlotOwner;
use runstore::protocol::status::StatusView;
use runstore::protocol::{Document, RunState};
use runstore::store::lease::{canonical_id, inspect};
use runstore::store::slot::pool_name;
use runstore::store::{Host as _, RealHost};
use testkit::driver::{FIRST_EVENT, NEW_RESULT, NEW_STATUS, OLD_RESULT, OLD_STATUS};

/// Makes a directory that only its owner may enter, whatever the umask.
pub(crate) fn make_private(path: &Path) {
    fs::DirBuilder::new().mode(0o700).create(path).expect("the place is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("it is ours");
}

/// Names of which an error of an operation has to hold one.
pub(crate) fn names_of(operation: &str) -> Vec<String> {
    let names: &[&str] = match operation.split('-').next().unwrap_or_default() {
        "replace" | "patch" => &["status.json"],
        "run" => &["run-1", "status.json"],
        "status" => &["status.json", "process-terminal-candidate.json", "process-terminal.json"],
        "append" => &["events.jsonl"],
        "marker" => &["run-1", ".active-runs", ".terminal-runs", "status.json"],
        "result" => &["run-1.json", "result-pending", "result-index"],
        "lease" => &["session.jsonl", "session-leases", "owner.json", "lease", "token-1"],
        "slot" => &["slot-0", "owner.json", "capacity", "pool"],
        _ => &[
            "process-terminal.json",
            "process-terminal-candidate.json",
            "status.json",
            "events.jsonl",
            "run-1",
            ".active-runs",
        ],
    };
    let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    if operation.starts_with("slot") {
        names.push(pool_name("S"));
    }
    names
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Whether the new state of an operation is there.
pub(crate) fn is_new(host: &RealHost, root: &Path, operation: &str) -> Result<bool, String> {
    let runs = root.join("async-subagent-runs");
    let run = runs.join("run-1");
    match operation.split('-').next().unwrap_or_default() {
        "replace" => match text(&run.join("status.json")) {
            None if operation == "replace-new" => Ok(false),
            Some(text) if text == OLD_STATUS => Ok(false),
            Some(text) if text == NEW_STATUS => Ok(true),
            other => Err(format!("the status is {other:?}")),
        },
        "patch" => match text(&run.join("status.json")) {
            Some(text) if text == OLD_STATUS => Ok(false),
            Some(text) if text.contains("\"odd\":1e400") && text.contains("\"complete\"") => {
                Ok(true)
            }
            other => Err(format!("the status is {other:?}")),
        },
        "run" | "status" => status(&run, operation),
        "append" => log(&run, operation == "append-rotate"),
        "marker" => marker(&runs, operation),
        "result" => result(&root.join("async-subagent-results"), operation),
        "lease" => lease(host, root, operation),
        "slot" => slot(root, operation),
        "proof" => proof(&runs, operation),
        _ => Err(format!("there is no operation {operation}")),
    }
}

/// Reads the status with the library's own eyes: whole, and telling the old state or the new one.
fn status(run: &Path, operation: &str) -> Result<bool, String> {
    let made_here = matches!(operation, "run-create" | "status-failed-first");
    let Some(text) = text(&run.join("status.json")) else {
        return if made_here { Ok(false) } else { Err("the status is lost".to_owned()) };
    };
    let doc = Document::parse(&text).map_err(|e| format!("the status is torn: {e}"))?;
    let view = StatusView::read(&doc);
    let told = view.known_state().ok_or("the status tells no state")?;
    let candidate = fs::read_to_string(run.join("process-terminal-candidate.json")).ok();
    let counted = candidate.is_some_and(|text| text.contains("\"expectedWriters\""));
    Ok(match operation {
        "run-create" => told == RunState::Running && view.pid.is_some(),
        "status-step" => text.contains("\"currentStep\": 1"),
        "status-end" => told == RunState::Complete,
        _ if told == RunState::Failed && !counted => {
            return Err("the status is ahead of the counts".to_owned());
        }
        _ => told == RunState::Failed && counted,
    })
}

fn log(run: &Path, rotates: bool) -> Result<bool, String> {
    let (now, before) = (text(&run.join("events.jsonl")), text(&run.join("events.previous.jsonl")));
    let first = format!("{FIRST_EVENT}\n");
    let new = "{\"type\":\"new\"}\n";
    let is = |text: &Option<String>, want: &str| text.as_deref() == Some(want);
    if rotates && is(&before, &first) {
        return match now.as_deref() {
            None | Some("") => Ok(false),
            Some(text) if text == new => Ok(true),
            other => Err(format!("the log is {other:?}")),
        };
    }
    if before.is_none() && is(&now, &first) {
        return Ok(false);
    }
    if !rotates && is(&now, &format!("{first}{new}")) {
        return Ok(true);
    }
    Err(format!("the log is {now:?} and before it {before:?}"))
}

fn marker(runs: &Path, operation: &str) -> Result<bool, String> {
    let active = runs.join(".active-runs/run-1").is_file();
    let ended = runs.join(".terminal-runs/S/0001700000000000-run-1.json").is_file();
    match operation {
        "marker-active" => Ok(active),
        "marker-release" => Ok(!active),
        _ if !active && !ended => Err("the run is in no index".to_owned()),
        _ => Ok(ended && !active),
    }
}

fn result(results: &Path, operation: &str) -> Result<bool, String> {
    let pending = text(&results.join("result-pending/S/run-1.json"));
    let public = text(&results.join("run-1.json"));
    let index = results.join("result-index/sessions/S/run-1.json").is_file();
    if index && pending.is_none() && public.is_none() {
        return Err("the index leads to nothing".to_owned());
    }
    let taken = pending.clone().or(public);
    let marked = taken.as_ref().is_some_and(|text| text.contains("notificationDeliveredAt"));
    match taken.as_deref() {
        None if matches!(operation, "result-first" | "result-snapshot") => Ok(false),
        Some(_) if operation == "result-deliver" && marked => Ok(true),
        Some(text) if operation == "result-promote" && text.contains("\"complete\"") => {
            Ok(pending.is_none())
        }
        Some(text) if text == NEW_RESULT && operation == "result-deliver" => Ok(false),
        // An acknowledged result is found by name.
        Some(text) if text == NEW_RESULT => Ok(index),
        Some(text) if text == OLD_RESULT && operation == "result-publish" => Ok(false),
        other => Err(format!("the result is {other:?}")),
    }
}

fn lease(host: &RealHost, root: &Path, operation: &str) -> Result<bool, String> {
    let session = root.join("async-subagent-runs/run-1/session.jsonl");
    let id = canonical_id(host, &session).map_err(|e| e.to_string())?.id;
    let temp = host.open_dir(root).map_err(|e| e.to_string())?;
    match inspect(host, &temp, &id) {
        LeaseState::Free if operation == "lease-writer" => Err("the lease is lost".to_owned()),
        LeaseState::Free => Ok(operation == "lease-release"),
        LeaseState::Owned(owner) if owner.token == "token-1" => Ok(match operation {
            "lease-acquire" => true,
            "lease-writer" => owner.writer_state == WriterState::Spawning,
            _ => false,
        }),
        other => Err(format!("the lease is blocked: {other:?}")),
    }
}

fn slot(root: &Path, operation: &str) -> Result<bool, String> {
    let pool = root.join("session-active-async-capacity").join(pool_name("S"));
    let slot = pool.join("slot-0");
    if !slot.is_dir() {
        return match operation {
            "slot-acquire" => Ok(false),
            "slot-release" | "slot-rollback" | "slot-reconcile" => Ok(true),
            _ => Err("the slot is lost".to_owned()),
        };
    }
    let bytes = fs::read(slot.join("owner.json"))
        .map_err(|e| format!("the slot is occupied for ever: {e}"))?;
    let owner = Document::from_bytes(&bytes).and_then(|doc| SlotOwner::read(&doc));
    let owner = owner.map_err(|e| format!("the slot is occupied for ever: {e}"))?;
    Ok(match operation {
        "slot-acquire" => owner.run_id == "run-1",
        "slot-bind" => owner.runner_instance_id.as_deref() == Some("i"),
        "slot-transfer" => owner.run_id == "run-2" && owner.generation == 1,
        _ => false,
    })
}

/// Whether a run that ended in order is said to have ended in an unknown way.
pub(crate) fn is_unknown(root: &Path) -> bool {
    let proof = text(&root.join("async-subagent-runs/run-1/process-terminal.json"));
    proof.is_some_and(|text| text.contains("\"unknown\""))
}

fn proof(runs: &Path, operation: &str) -> Result<bool, String> {
    let run = runs.join("run-1");
    let proof = text(&run.join("process-terminal.json"));
    let candidate = text(&run.join("process-terminal-candidate.json"));
    if operation == "proof-initialise" {
        return match (proof, candidate) {
            (Some(_), Some(_)) => Ok(true),
            (None, Some(_)) => Err("there is a candidate without a proof".to_owned()),
            _ => Ok(false),
        };
    }
    let proof = proof.ok_or("the proof is lost")?;
    let doc = Document::parse(&proof).map_err(|e| e.to_string())?;
    let state = doc.get("state").and_then(|raw| raw.string()).map(|text| text.into_owned());
    let marked = runs.join(".active-runs/run-1").is_file();
    match state.as_deref() {
        Some("pending") if !marked => Err("the marker is gone before the proof".to_owned()),
        Some("pending") => Ok(false),
        Some("observed") if operation == "proof-complete" => {
            let told = text(&run.join("events.jsonl")).is_some_and(|log| log.ends_with("}\n"));
            let shown = text(&run.join("status.json")).is_some_and(|s| s.contains("observed"));
            Ok(told && shown && !marked)
        }
        Some("observed" | "unknown") => Ok(true),
        other => Err(format!("the proof is {other:?}")),
    }
}
