//! Every recorded run of two other harnesses, inspected.
//!
//! Theory of operation. Each entry of each recording's `expected` list is one question: the snapshot
//! is made whole in a fresh directory, the program inspects the whole store as on the host that was
//! recorded, and the report of the one run is compared with what the recording says. Recorded pids
//! were never alive, so an active run is an orphan in every snapshot. Whether a proof counts is worked
//! out here from the raw records, by the rule of the contract, without the library.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use testkit::peer_runs::{Recording, run_directory};

use crate::ask::{run, utf8};

/// Entries that the two peers have together.
const ENTRIES: usize = 102;

/// What an active run with a dead process may be called.
const GONE: [&str; 5] = ["orphaned", "start-stuck", "start-failed", "never-started", "conflict"];

/// Entries whose recording is judged wrong, as `PEER/CASE SNAPSHOT RUN`, with the reason.
const DISAGREE: [(&str, &str); 0] = [];

#[test]
fn every_recorded_run_gets_the_answer_that_was_recorded() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/peer-runs");
    let mut checked = 0;
    let mut failures = Vec::new();
    for recording in Recording::all(&top).expect("the recordings are part of the repository") {
        for entry in recording.expected() {
            let text = |name: &str| entry[name].as_str().expect("an entry is complete");
            let key = format!("{} {} {}", recording.name, text("snapshot"), text("run"));
            checked += 1;
            let problems = match inspected(&recording, text("snapshot"), text("run")) {
                Ok((report, counts)) => judge(entry, &report, counts),
                Err(error) => vec![error.to_string()],
            };
            let reason = DISAGREE.iter().find(|(name, _)| *name == key).map(|(_, reason)| reason);
            match (problems.is_empty(), reason) {
                (true, None) | (false, Some(_)) => {}
                (true, Some(reason)) => failures.push(format!("{key}: agrees after all: {reason}")),
                (false, None) => failures.push(format!("{key}: {}", problems.join("; "))),
            }
        }
    }
    assert_eq!(checked, ENTRIES, "no entry of a recording is skipped");
    assert!(failures.is_empty(), "{} of {checked} fail:\n{}", failures.len(), failures.join("\n"));
}

/// Inspects one snapshot: the report of the run, and whether its proof counts by the raw records.
fn inspected(recording: &Recording, snapshot: &str, id: &str) -> io::Result<(Value, bool)> {
    let (_dir, root) = recording.fresh(snapshot)?;
    let folder = run_directory(&root, id)?;
    let outcome = run(&["inspect", utf8(&root), "--host", "host-a", "--format", "json"]);
    let document: Value = serde_json::from_slice(&outcome.stdout).map_err(|e| {
        io::Error::other(format!("no JSON answer: {e} {}", outcome.errors().trim()))
    })?;
    let reports = document["runs"].as_array().map_or(&[][..], Vec::as_slice);
    let mut named = reports.iter().filter(|r| r["path"].as_str().map(Path::new) == Some(&folder));
    match (named.next(), named.next()) {
        (Some(report), None) => Ok((report.clone(), proof_counts(&folder, id))),
        (found, _) => {
            let how = if found.is_some() { "more than one report" } else { "no report" };
            Err(io::Error::other(format!("{how} of {}", folder.display())))
        }
    }
}

/// What is wrong with a report, by what the recording says of the run.
fn judge(entry: &Value, report: &Value, counts: bool) -> Vec<String> {
    let mut bad = Vec::new();
    if report["recordedState"] != entry["state"] {
        bad.push(format!("recordedState {} is not {}", report["recordedState"], entry["state"]));
    }
    let verdict = report["verdict"].as_str().unwrap_or_default();
    let gone = GONE.contains(&verdict);
    let start_failed =
        entry["nextAction"].as_str().is_some_and(|a| a.starts_with("report-startup-failure"));
    match entry["orphaned"].as_bool() {
        Some(true) if !gone => bad.push(format!("an orphan is called {verdict}")),
        Some(true) if report["liveness"] != "dead" => {
            bad.push(format!("the process of an orphan is {}", report["liveness"]));
        }
        Some(false) if gone && !start_failed => bad.push(format!("no orphan is called {verdict}")),
        Some(_) => {}
        None => bad.push("the recording does not say whether it is an orphan".into()),
    }
    if report["proof"]["counts"] != counts {
        bad.push(format!("proof.counts {} is not {counts}", report["proof"]["counts"]));
    }
    bad
}

/// Whether the sidecar is an observed proof of this run and of the runner instance that the status
/// and the candidate name.
fn proof_counts(folder: &Path, run: &str) -> bool {
    let read = |name: &str| {
        let bytes = fs::read(folder.join(name)).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    let Some(proof) = read("process-terminal.json") else {
        return false;
    };
    let status = read("status.json").unwrap_or_default();
    let candidate = read("process-terminal-candidate.json").unwrap_or_default();
    counts(&proof, &status, &candidate, run)
}

fn counts(proof: &Value, status: &Value, candidate: &Value, run: &str) -> bool {
    let instance = &proof["runnerProcessInstanceId"];
    let runner_witnessed = proof["instances"].as_array().is_some_and(|all| {
        all.iter().any(|one| one["kind"] == "runner" && one["processInstanceId"] == *instance)
    });
    proof["state"] == "observed"
        && proof["version"] == 1
        && proof["runId"] == *run
        && runner_witnessed
        && status["processTerminal"]["runnerProcessInstanceId"] == *instance
        && candidate["runnerProcessInstanceId"] == *instance
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_proof_counts_only_for_its_run_and_runner() {
        let proof = json!({"version": 1, "state": "observed", "runId": "r",
            "runnerProcessInstanceId": "i",
            "instances": [{"kind": "runner", "processInstanceId": "i"}]});
        let status = json!({"processTerminal": {"runnerProcessInstanceId": "i"}});
        let candidate = json!({"runnerProcessInstanceId": "i"});
        assert!(counts(&proof, &status, &candidate, "r"), "all agree");
        assert!(!counts(&proof, &status, &candidate, "other"), "another run");
        assert!(!counts(&proof, &json!({}), &candidate, "r"), "the status names no instance");
        assert!(!counts(&proof, &status, &Value::Null, "r"), "there is no candidate");
        for (member, other) in [("state", json!("unknown")), ("instances", json!([]))] {
            let mut changed = proof.clone();
            changed[member] = other;
            assert!(!counts(&changed, &status, &candidate, "r"), "{member} decides");
        }
    }

    #[test]
    fn an_orphan_and_a_finished_run_are_judged_differently() {
        let report = |verdict: &str, liveness: &str| {
            json!({"recordedState": "running", "verdict": verdict, "liveness": liveness,
                "proof": {"counts": false}})
        };
        let entry = |orphaned: bool, next: &str| json!({"state": "running", "orphaned": orphaned, "nextAction": next});
        let lines = |entry: &Value, report: &Value| judge(entry, report, false).len();
        let orphan = entry(true, "reconcile");
        assert_eq!(lines(&orphan, &report("orphaned", "dead")), 0);
        assert_eq!(lines(&orphan, &report("orphaned", "reused")), 1, "its process is gone");
        assert_eq!(lines(&orphan, &report("running-unverified", "dead")), 1);
        let other = entry(false, "none");
        assert_eq!(lines(&other, &report("finished", "dead")), 0);
        assert_eq!(lines(&other, &report("conflict", "dead")), 1);
        let failed = entry(false, "report-startup-failure");
        assert_eq!(lines(&failed, &report("start-failed", "dead")), 0, "a start may have failed");
        assert_eq!(judge(&other, &report("finished", "dead"), true).len(), 1, "the proof counts");
    }
}
