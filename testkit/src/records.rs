//! Records as healthy writers leave them, for tests that break one thing.
//!
//! Theory of operation. Each function returns one whole document of the target dialect; a test
//! changes what it is about with [`with`] or [`without`] and leaves the rest healthy.

use serde_json::{Value, json};

use crate::store::Run;

/// The instance id that all records here name.
pub const INSTANCE: &str = "inst-1";

/// A pid that no process has.
pub const GONE: u32 = 999_999_999;

/// The session that all records here name.
pub const SESSION: &str = "session-1";

/// The status of a run that works: one step, one process.
pub fn running(id: &str, pid: u32, at_ms: i64) -> Value {
    json!({
        "lifecycleArtifactVersion": 3, "runId": id, "sessionId": SESSION, "mode": "single",
        "state": "running", "startedAt": at_ms, "lastUpdate": at_ms, "pid": pid, "cwd": "/",
        "currentStep": 0, "chainStepCount": 1, "parallelGroups": [], "steering": true,
        "steps": [{"agent": "worker", "status": "running", "startedAt": at_ms}],
    })
}

/// The status of a run that has ended well.
pub fn complete(id: &str, at_ms: i64) -> Value {
    json!({
        "lifecycleArtifactVersion": 3, "runId": id, "sessionId": SESSION, "mode": "single",
        "state": "complete", "startedAt": at_ms, "lastUpdate": at_ms, "endedAt": at_ms,
        "pid": GONE, "cwd": "/", "currentStep": 0, "chainStepCount": 1,
        "parallelGroups": [], "steering": true, "processTerminal": proof(id, at_ms),
        "steps": [{"agent": "worker", "status": "complete", "startedAt": at_ms, "endedAt": at_ms}],
    })
}

/// An observed exit proof.
pub fn proof(id: &str, at_ms: i64) -> Value {
    json!({
        "version": 1, "state": "observed", "runId": id, "runnerProcessInstanceId": INSTANCE,
        "observedAt": at_ms, "instances": [{"kind": "runner", "processInstanceId": INSTANCE,
            "closeObservedAt": at_ms, "exitCode": 0, "signal": null}],
    })
}

/// The runner's evidence for that proof.
pub fn candidate(id: &str) -> Value {
    json!({
        "version": 1, "runId": id, "runnerProcessInstanceId": INSTANCE,
        "writers": {"0": []}, "expectedWriters": {"0": 0},
    })
}

/// The public result of a run that has ended well.
pub fn result(id: &str, at_ms: i64) -> Value {
    json!({
        "id": id, "agent": "worker", "mode": "single", "success": true, "state": "complete",
        "summary": "done", "exitCode": 0, "timestamp": at_ms, "durationMs": 1,
        "sessionId": SESSION, "results": [{"agent": "worker", "output": "ok", "success": true}],
    })
}

/// The owner record of a session lease.
pub fn lease(id: &str, pid: u32, host: &str, at_ms: i64) -> Value {
    json!({
        "version": 1, "token": "token-1", "canonicalSessionFile": "/s.jsonl", "runId": id,
        "sourceRunId": "source-1", "parentSessionId": SESSION, "pid": pid, "hostname": host,
        "writerState": "none", "acquiredAt": "2026-01-01T00:00:00.000Z", "acquiredAtMs": at_ms,
        "updatedAtMs": at_ms,
    })
}

/// The owner record of a capacity slot.
pub fn slot(id: &str, at_ms: i64) -> Value {
    json!({
        "version": 1, "reservationToken": "token-1", "ownerSessionId": SESSION,
        "ownerSessionKey": "key-1", "slot": 0, "runId": id, "generation": 0, "kind": "runner",
        "asyncDir": "/runs", "reservedAt": at_ms,
    })
}

/// Fills a run directory with everything that a finished run leaves.
pub fn finish(run: &Run, at_ms: i64) {
    let id = run.path().file_name().expect("a run has a name").to_string_lossy().into_owned();
    run.status(&complete(&id, at_ms)).proof(&proof(&id, at_ms)).candidate(&candidate(&id));
}

/// The document with `key` set.
#[must_use]
pub fn with(mut document: Value, key: &str, value: impl Into<Value>) -> Value {
    document[key] = value.into();
    document
}

/// The document without `key`.
#[must_use]
pub fn without(mut document: Value, key: &str) -> Value {
    if let Some(members) = document.as_object_mut() {
        members.remove(key);
    }
    document
}
