//! What a report says of the records beside the run: runs of steps, slots, results of other runs,
//! fallback roots, a results area that is not one.

use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use testkit::Store;

use crate::ask;

const T: u64 = 1_790_000_000_000;
const FLOW: &str = "00000000-0000-4000-8000-000000000001";
const CHILD: &str = "00000000-0000-4000-8000-000000000002";
const OTHER: &str = "00000000-0000-4000-8000-000000000003";
/// A pid that no system gives out.
const GONE: u64 = 999_999_999;

fn inspect(store: &Store, now: u64) -> (Value, i32) {
    let answer = ask::inspect_with(store.root(), &["--now", &now.to_string()]);
    (answer.json, answer.code)
}

fn report<'a>(answer: &'a Value, id: &str) -> &'a Value {
    let runs = answer["runs"].as_array().expect("an array");
    runs.iter().find(|r| r["runId"] == id).expect("a report of the run")
}

fn has(report: &Value, flag: &str) -> bool {
    report["flags"].as_array().expect("an array").iter().any(|f| f == flag)
}

fn status(id: &str, mode: &str, state: &str, steps: Value) -> Value {
    json!({
        "lifecycleArtifactVersion": 3, "runId": id, "sessionId": "S", "mode": mode, "state": state,
        "startedAt": T, "lastUpdate": T, "pid": GONE, "cwd": "/p", "steps": steps,
    })
}

fn overlay(status: &mut Value, id: &str, state: &str) {
    status["endedAt"] = json!(T);
    status["processTerminal"] =
        json!({"version": 1, "state": state, "runId": id, "runnerProcessInstanceId": "i"});
}

fn seen(id: &str) -> Value {
    json!({
        "version": 1, "state": "observed", "runId": id, "runnerProcessInstanceId": "i",
        "observedAt": T, "instances": [{"kind": "runner", "processInstanceId": "i",
            "closeObservedAt": T, "exitCode": 0, "signal": null}],
    })
}

/// A finished workflow with a slot and one asynchronous step.
fn workflow_with_slot() -> Store {
    let store = Store::new();
    let steps = json!([{"agent": "a", "status": "complete", "async": true, "runId": CHILD}]);
    let mut flow = status(FLOW, "workflow", "complete", steps);
    flow["endedAt"] = json!(T);
    store.run(FLOW).status(&flow);
    let owner = json!({
        "version": 1, "reservationToken": "t", "ownerSessionId": "S", "ownerSessionKey": "pool",
        "slot": 0, "runId": FLOW, "generation": 0, "kind": "workflow", "asyncDir": "/r",
        "reservedAt": T,
    });
    store.slot("pool", 0, &owner);
    store
}

fn slot_is_releasable(store: &Store) -> bool {
    let (answer, _) = inspect(store, T + 120_000);
    let flow = report(&answer, FLOW);
    let flagged = has(flow, "slot-releasable");
    assert_ne!(flagged, has(flow, "slot-retained"), "a slot is the one or the other");
    assert_eq!(answer["slots"][0]["releasable"], flagged, "run and slot tell the same");
    flagged
}

#[test]
fn a_workflows_slot_is_judged_by_the_runs_of_its_steps() {
    let store = workflow_with_slot();
    assert!(!slot_is_releasable(&store), "the run of its step has no directory");
    let child = store.run(CHILD);
    assert!(!slot_is_releasable(&store), "it has no status");
    let mut text = status(CHILD, "single", "complete", json!([]));
    overlay(&mut text, CHILD, "pending");
    child.status(&text);
    assert!(!slot_is_releasable(&store), "its end is not proven");
    child.proof(&seen(OTHER));
    assert!(!slot_is_releasable(&store), "the proof is another run's");
    child.proof(&seen(CHILD));
    assert!(slot_is_releasable(&store), "it ended and was seen to");
}

#[test]
fn a_step_that_names_a_path_or_a_link_is_not_followed() {
    let store = workflow_with_slot();
    let outside = store.beside("outside");
    std::fs::create_dir_all(&outside).expect("made");
    let mut text = status(CHILD, "single", "complete", json!([]));
    overlay(&mut text, CHILD, "pending");
    std::fs::write(outside.join("status.json"), text.to_string()).expect("written");
    std::fs::write(outside.join("process-terminal.json"), seen(CHILD).to_string())
        .expect("written");
    symlink(&outside, store.root().join("async-subagent-runs").join(CHILD)).expect("linked");
    assert!(!slot_is_releasable(&store), "a link is no run");
}

#[test]
fn an_abandoned_workflow_tells_what_its_steps_left() {
    let store = Store::new();
    let steps = json!([
        {"agent": "a", "status": "complete", "async": true, "runId": CHILD},
        {"agent": "b", "status": "running", "async": true, "runId": OTHER},
    ]);
    store.run(FLOW).status(&status(FLOW, "workflow", "running", steps));
    let mut child = status(CHILD, "single", "complete", json!([]));
    overlay(&mut child, CHILD, "observed");
    store.run(CHILD).status(&child).proof(&seen(CHILD));
    store.run(OTHER).json("mission.json", &json!({"schemaVersion": 1}));
    let (answer, code) = inspect(&store, T + 120_000);
    let flow = report(&answer, FLOW);
    assert_eq!((&flow["verdict"], code), (&json!("orphaned"), 1), "its host is gone");
    let lines = flow["evidence"].to_string();
    assert!(lines.contains(&format!("{CHILD} of a step is 'complete'")), "{lines}");
    assert!(lines.contains(&format!("{OTHER} of a step has no status")), "{lines}");
}

#[test]
fn a_result_that_names_another_run_is_undeliverable_and_no_account_of_this_one() {
    let store = Store::new();
    let mut text = status(CHILD, "single", "complete", json!([]));
    overlay(&mut text, CHILD, "observed");
    store.run(CHILD).status(&text).proof(&seen(CHILD));
    let result = json!({"id": OTHER, "sessionId": "S", "success": false, "timestamp": T});
    store.result(CHILD, &result);
    let (answer, code) = inspect(&store, T + 120_000);
    let run = report(&answer, CHILD);
    assert_eq!((&run["verdict"], code), (&json!("finished"), 1), "undeliverable is 1");
    assert!(has(run, "undeliverable"), "nobody will pick it up");
}

#[test]
fn a_results_area_that_is_a_link_is_a_problem_and_nothing_is_missing_in_it() {
    let store = Store::new();
    let mut text = status(CHILD, "single", "complete", json!([]));
    text["endedAt"] = json!(T);
    store.run(CHILD).status(&text);
    let (answer, code) = inspect(&store, T + 120_000);
    assert!(has(report(&answer, CHILD), "result-missing"), "there is no results area at all");
    assert_eq!(code, 5, "unproven");
    let outside = store.beside("outside");
    std::fs::create_dir_all(&outside).expect("made");
    symlink(&outside, store.root().join("async-subagent-results")).expect("linked");
    let (answer, code) = inspect(&store, T + 120_000);
    assert!(!has(report(&answer, CHILD), "result-missing"), "nobody could look");
    assert_eq!((&answer["problems"][0]["id"], code), (&json!("not-plain"), 8), "it is unsafe");
}

#[test]
fn a_loose_result_that_nobody_can_take_needs_attention() {
    let store = Store::new();
    store.folder("async-subagent-runs");
    store.result(OTHER, &json!({"id": OTHER, "sessionId": "S", "success": true, "timestamp": T}));
    assert_eq!(inspect(&store, T).1, 0, "its session will take it");
    store.result(CHILD, &json!({"id": CHILD, "success": true, "timestamp": T}));
    assert_eq!(inspect(&store, T).1, 1, "no session will");
}

#[test]
fn a_file_of_the_protocol_that_is_a_link_makes_the_run_unsafe_also_when_it_is_not_read() {
    for name in ["output-0.log", "recovery-descriptor.json", "runner.stdout.log", "control"] {
        let store = Store::new();
        let mut text = status(CHILD, "single", "complete", json!([]));
        overlay(&mut text, CHILD, "observed");
        let run = store.run(CHILD);
        run.status(&text).proof(&seen(CHILD)).link(name, store.root());
        let (answer, code) = inspect(&store, T + 120_000);
        let report = report(&answer, CHILD);
        assert_eq!((&report["verdict"], code), (&json!("unsafe"), 8), "{name} is a link");
        assert_eq!(report["findings"][0]["file"], name, "and named once");
        assert_eq!(report["recordedState"], "complete", "the rest is still told");
    }
    let store = Store::new();
    let run = store.run(CHILD);
    let mut text = status(CHILD, "single", "complete", json!([]));
    overlay(&mut text, CHILD, "observed");
    run.status(&text).proof(&seen(CHILD)).link("photo", store.root());
    assert_eq!(inspect(&store, T + 120_000).1, 0, "a stranger's link is nobody's business");
}

#[test]
fn a_log_of_the_runner_tells_of_a_process_only_when_it_holds_text() {
    for (text, stage) in [("", "prepared"), ("warning\n", "spawned")] {
        let store = Store::new();
        let run = store.run(CHILD);
        run.file("runner.stdout.log", "").file("runner.stderr.log", text);
        let (answer, _) = inspect(&store, T);
        assert_eq!(report(&answer, CHILD)["stage"], stage, "{text:?}");
    }
}
