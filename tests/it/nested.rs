//! Runs of runs, and the ways from an id to a run.
//!
//! Theory of operation. Recorded stores of two harnesses show that a nested run is a run of its own;
//! built stores show what routes add, and that no broken route costs more than itself. The second half
//! asks for runs by the ids that people have: of a nested run, of a tool call, or the beginning of one.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::peer_runs::Recording;
use testkit::store::Store;

use crate::ask::{self, utf8};

/// An instant after everything in the built stores.
const NOW: &str = "1795980000000";
const TOKEN: &str = "00000000-0000-4000-8000-000000000001";
/// No system gives out this process id.
const NO_PROCESS: i64 = 4_200_001;

/// The answer of `runstore inspect TARGETS --format json`: exit code, document, standard error.
pub(crate) fn inspect(targets: &[&str]) -> (i32, Value, String) {
    let mut args = vec!["inspect", "--host", "host-a", "--now", NOW, "--format", "json"];
    args.extend(targets);
    let outcome = ask::run(&args);
    let document = serde_json::from_slice(&outcome.stdout).unwrap_or(Value::Null);
    (outcome.code, document, outcome.errors())
}

/// The report of one run of a whole store.
pub(crate) fn report(store: &Store, run: &str) -> Value {
    let (_, document, errors) = inspect(&[utf8(store.root())]);
    run_of(&document, run).unwrap_or_else(|| panic!("no report of {run}: {errors}"))
}

/// The text of the first finding with this id.
pub(crate) fn finding(report: &Value, id: &str) -> Option<String> {
    let all = report["findings"].as_array().expect("a report has findings");
    all.iter().find(|f| f["id"] == id).map(|f| f["text"].as_str().expect("a text").to_owned())
}

/// Whether a report has a flag.
pub(crate) fn has_flag(report: &Value, flag: &str) -> bool {
    report["flags"].as_array().expect("a report has flags").iter().any(|f| f == flag)
}

/// A status of a run that ended, or that claims a process which is not there.
pub(crate) fn status(id: &str, state: &str) -> Value {
    let mut status = json!({"lifecycleArtifactVersion": 1, "runId": id, "sessionId": "session-1",
        "mode": "single", "state": state, "startedAt": 1_795_972_930_000_i64,
        "lastUpdate": 1_795_972_939_000_i64, "pid": NO_PROCESS, "hostname": "host-a",
        "steps": [{"agent": "a", "status": state}]});
    if state != "running" {
        status["endedAt"] = json!(1_795_972_939_000_i64);
    }
    status
}

fn run_of(document: &Value, run: &str) -> Option<Value> {
    document["runs"].as_array()?.iter().find(|r| r["runId"] == run).cloned()
}

fn ids(document: &Value) -> Vec<&str> {
    let runs = document["runs"].as_array().map_or(&[][..], Vec::as_slice);
    runs.iter().map(|r| r["runId"].as_str().expect("an id")).collect()
}

fn problems<'d>(document: &'d Value, id: &str) -> Vec<&'d Value> {
    let all = document["problems"].as_array().expect("an answer has problems");
    all.iter().filter(|p| p["id"] == id).collect()
}

#[test]
fn recorded_nested_runs_are_reported_beside_their_root() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/peer-runs");
    let mut seen = 0;
    for recording in Recording::all(&top).expect("the recordings are part of the repository") {
        if !recording.name.ends_with("/nested") {
            continue;
        }
        for snapshot in ["both-running", "final"] {
            let (_dir, root) = recording.fresh(snapshot).expect("a whole snapshot");
            let (_, document, errors) = inspect(&[utf8(&root)]);
            let name = format!("{} {snapshot}: {errors}", recording.name);
            let parent = run_of(&document, "run-root").expect(&name);
            let child = run_of(&document, "run-child").expect(&name);
            assert_eq!(parent["children"], json!(["run-child"]), "{name}");
            assert_eq!(child["nested"], true, "{name}");
            for id in ["nested-route-invalid", "nested-event-ignored", "nested-child-missing"] {
                assert!(problems(&document, id).is_empty(), "{name}: {id} in a sound store");
            }

            let (_, one, _) = inspect(&["run-child", "--root", utf8(&root)]);
            assert_eq!(ids(&one), ["run-child"], "{name}: a nested run is found by its id");
            let alone = root.join("async-subagent-runs/run-root");
            let (_, one, _) = inspect(&[utf8(&alone)]);
            let parent = run_of(&one, "run-root").expect(&name);
            assert_eq!(parent["children"], json!(["run-child"]), "{name}: asked for alone");
            seen += 1;
        }
    }
    assert_eq!(seen, 4, "two harnesses, two snapshots each");
}

#[test]
fn the_death_of_the_root_changes_nothing_for_its_nested_run() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "running"));
    store.nested_run("run-root", "run-done").status(&status("run-done", "complete"));
    let mut live = status("run-live", "running");
    live["pid"] = json!(std::process::id());
    live["startedAt"] = json!(1);
    live["lastUpdate"] = json!(4_000_000_000_000_i64);
    live.as_object_mut().expect("an object").remove("hostname");
    store.nested_run("run-root", "run-live").status(&live);

    assert_eq!(report(&store, "run-root")["verdict"], "orphaned");
    assert_eq!(report(&store, "run-done")["verdict"], "finished-unproven");
    let verdict = report(&store, "run-live")["verdict"].clone();
    assert_ne!(verdict, "orphaned", "a nested run is judged by its own process");
}

/// A route of `run-root` with its index entry; returns its path below the store.
fn route(store: &Store) -> String {
    let name = format!("run-root-{TOKEN}");
    let path = format!("nested-subagent-events/{name}");
    let mut route = json!({"rootRunId": "run-root", "capabilityToken": TOKEN, "createdAt": 5});
    store.file(&format!("{path}/route.json"), route.to_string());
    store.folder(&format!("{path}/events"));
    route["routeRoot"] = json!(name);
    let index = format!("nested-subagent-events/.route-index/roots/run-root/{TOKEN}.json");
    store.file(&index, route.to_string());
    path
}

fn event(token: &str, child: &str, parent: &str, more: &Value) -> String {
    let mut summary = json!({"id": child, "parentRunId": parent, "state": "running",
        "lastUpdate": 7});
    for (key, value) in more.as_object().into_iter().flatten() {
        summary[key] = value.clone();
    }
    json!({"type": "subagent.nested.started", "ts": 7, "rootRunId": "run-root",
        "parentRunId": parent, "capabilityToken": token, "child": summary})
    .to_string()
}

fn event_name(n: u32) -> String {
    format!("179597293000{n}-00000000-0000-4000-8000-00000000000{n}.json")
}

#[test]
fn a_run_that_only_a_route_names_is_listed_with_its_parent() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "complete"));
    store.nested_run("run-root", "run-child").status(&status("run-child", "complete"));
    let path = route(&store);
    let gone = json!({"asyncDir": "/elsewhere/run-gone"});
    store.file(
        &format!("{path}/events/{}", event_name(1)),
        event(TOKEN, "run-gone", "run-root", &gone),
    );
    let none = json!({});
    let file = format!("{path}/events/{}", event_name(2));
    store.file(&file, event(TOKEN, "run-inner", "run-child", &none));
    let registry = json!({"rootRunId": "run-root", "updatedAt": 6,
        "children": [{"id": "run-folded", "parentRunId": "run-root", "state": "complete"}],
        "processedEvents": []});
    store.file(&format!("{path}/registry.json"), registry.to_string());

    let (code, document, errors) = inspect(&[utf8(store.root())]);
    let parent = run_of(&document, "run-root").expect(&errors);
    assert_eq!(parent["children"], json!(["run-child", "run-folded", "run-gone"]));
    let child = run_of(&document, "run-child").expect(&errors);
    assert_eq!(child["children"], json!(["run-inner"]), "a child of a child is its parent's");
    let missing = problems(&document, "nested-child-missing");
    assert_eq!(missing.len(), 1, "only a run that has a directory of its own can miss it");
    assert!(missing[0]["text"].as_str().is_some_and(|t| t.contains("run-gone")));
    assert_eq!(code, 5, "news of runs changes no exit code: unproven ends are not determined");
}

#[test]
fn a_lost_route_file_is_read_from_the_index() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "complete"));
    let path = route(&store);
    fs::remove_file(store.root().join(&path).join("route.json")).expect("was written");
    store.file(
        &format!("{path}/events/{}", event_name(1)),
        event(TOKEN, "c", "run-root", &json!({})),
    );
    assert_eq!(report(&store, "run-root")["children"], json!(["c"]));
}

#[test]
fn broken_events_are_passed_over_and_cost_the_others_nothing() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "complete"));
    let path = route(&store);
    let at = |n| format!("{path}/events/{}", event_name(n));
    store.file(&at(1), event("another-token", "c1", "run-root", &json!({})));
    store.file(&at(2), "{");
    let large = json!({"asyncDir": "x".repeat(66_000)});
    store.file(&at(3), event(TOKEN, "c3", "run-root", &large));
    std::os::unix::fs::symlink("/dev/zero", store.root().join(at(4))).expect("linked");
    store.file(&at(5), event(TOKEN, "../c5", "run-root", &json!({})));
    store.file(&at(6), event(TOKEN, "c6", "run-root", &json!({})));

    let (_, document, errors) = inspect(&[utf8(store.root())]);
    let parent = run_of(&document, "run-root").expect(&errors);
    assert_eq!(parent["children"], json!(["c6"]));
    let found = problems(&document, "nested-event-ignored");
    assert_eq!(found.len(), 1, "one problem for each route: {found:?}");
    let text = found[0]["text"].as_str().expect("a text");
    assert!(text.contains("5 events") && text.contains("another root or token"), "{text}");
    assert_eq!(found[0]["severity"], "warning");

    let control = format!("{path}/controls/{}", event_name(7));
    store.file(&control, "{");
    store.file(&format!("{path}/controls/{}", event_name(8)), "{}");
    let (_, document, _) = inspect(&[utf8(store.root())]);
    let found = problems(&document, "nested-event-ignored");
    assert_eq!(found.len(), 2, "and one for its control files: {found:?}");
    assert!(found.iter().any(|problem| problem["path"] == control.as_str()), "{found:?}");
}

#[test]
fn a_route_that_leads_outside_is_reported_and_not_followed() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "complete"));
    let elsewhere = store.beside("elsewhere");
    let route = json!({"rootRunId": "run-root", "capabilityToken": "t", "createdAt": 5,
        "routeRoot": "../../elsewhere"});
    let events = store.folder("nested-subagent-events");
    let index = "nested-subagent-events/.route-index/roots/run-root/t.json";
    store.file(index, route.to_string());
    std::os::unix::fs::symlink(&elsewhere, events.join("run-root-link")).expect("linked");
    let other = json!({"rootRunId": "run-root", "capabilityToken": "u", "createdAt": 5});
    store.file("nested-subagent-events/run-root-v/route.json", other.to_string());
    store.folder("nested-subagent-events/run-root-empty/events");
    store.file("nested-subagent-events/run-root-w/events/e.json", "{}");

    let (code, document, _) = inspect(&[utf8(store.root())]);
    assert_eq!(problems(&document, "nested-route-outside").len(), 1);
    let link = problems(&document, "not-plain");
    assert_eq!(link[0]["path"], "nested-subagent-events/run-root-link");
    let invalid = problems(&document, "nested-route-invalid");
    assert_eq!(
        invalid.len(),
        2,
        "a token of another directory, and events without a route: {invalid:?}"
    );
    assert_eq!(code, 8, "an unsafe record was met");
}

#[test]
fn of_two_directories_of_one_id_the_one_with_a_status_is_the_run() {
    let store = Store::new();
    store.run("run-root").status(&status("run-root", "complete"));
    store.nested_run("run-root", "run-twice").status(&status("run-twice", "complete"));
    store.run("run-twice").file("output-0.log", "work");
    let (_, document, _) = inspect(&["run-twice", "--root", utf8(store.root())]);
    let runs = document["runs"].as_array().expect("reports");
    assert_eq!(runs.len(), 2, "both directories get a report");
    let real = |r: &&Value| r["path"].as_str().is_some_and(|p| p.contains("nested-subagent-runs"));
    let (run, shadow) = (runs.iter().find(real), runs.iter().find(|r| !real(r)));
    assert!(!has_flag(run.expect("the run"), "shadow"));
    let shadow = shadow.expect("the other directory");
    assert!(has_flag(shadow, "shadow"));
    let text = finding(shadow, "shadow").expect("a finding");
    assert!(text.contains("nested-subagent-runs/run-root/run-twice"), "{text}");
}

#[test]
fn a_tool_call_leads_to_its_run_only_if_the_run_says_so() {
    let store = Store::new();
    let mut called = status("run-called", "running");
    called["toolCallId"] = json!("call-1");
    store.run("run-called").status(&called);
    store.run("run-other").status(&status("run-other", "running"));
    store.tool_call_alias("call-2", "run-other").tool_call_alias("call-2", "run-gone");
    let root = utf8(store.root());
    let (code, _, _) = inspect(&["call-2", "--root", root]);
    assert_eq!(code, 4, "an alias that no status confirms leads nowhere");

    store.tool_call_alias("call-1", "run-called").tool_call_alias("call-1", "run-other");
    let (_, document, errors) = inspect(&["call-1", "--root", root]);
    assert_eq!(ids(&document), ["run-called"], "{errors}");
}

#[test]
fn a_tool_call_comes_before_a_nested_run_of_that_name_and_after_a_run_of_the_store() {
    let store = Store::new();
    let mut called = status("run-called", "running");
    called["toolCallId"] = json!("call-name");
    store.run("run-root").status(&status("run-root", "running"));
    store.run("run-called").status(&called);
    store.tool_call_alias("call-name", "run-called");
    store.nested_run("run-root", "call-name").status(&status("call-name", "running"));
    store.nested_run("run-root", "call-other").status(&status("call-other", "running"));
    let answer = |id: &str| {
        let (_, document, _) = inspect(&[id, "--root", utf8(store.root())]);
        document["runs"][0]["runId"].clone()
    };
    assert_eq!(answer("call-name"), "run-called");
    assert_eq!(answer("call-other"), "call-other", "a nested run is found by its own id");
    store.run("call-name").status(&status("call-name", "running"));
    assert_eq!(answer("call-name"), "call-name", "a run of the store has the name");
}

#[test]
fn the_result_index_leads_from_a_tool_call_to_an_ended_run() {
    let store = Store::new();
    for run in ["run-a", "run-b", "run-c"] {
        store.run(run).status(&status(run, "complete"));
        let entry = json!({"version": 1, "runId": run, "sessionId": "session-1",
            "file": format!("{run}.json"), "writtenAt": 5});
        let call = if run == "run-c" { "call-2" } else { "call-1" };
        let path = format!("async-subagent-results/result-index/tool-calls/{call}/{run}.json");
        store.file(&path, entry.to_string());
    }
    store.result(
        "run-a",
        &json!({"id": "run-a", "sessionId": "session-1", "success": true,
        "toolCallId": "call-1"}),
    );
    store.result("run-b", &json!({"id": "run-b", "sessionId": "session-1", "success": true}));
    let root = utf8(store.root());
    let (_, document, errors) = inspect(&["call-1", "--root", root]);
    assert_eq!(ids(&document), ["run-a"], "the payload confirms the entry: {errors}");
    let (code, _, _) = inspect(&["call-2", "--root", root]);
    assert_eq!(code, 4, "neither status nor result names the call");
    let mut called = status("run-c", "complete");
    called["toolCallId"] = json!("call-2");
    store.run("run-c").status(&called);
    let (_, document, _) = inspect(&["call-2", "--root", root]);
    assert_eq!(ids(&document), ["run-c"], "the status confirms the entry");
}

#[test]
fn the_beginning_of_an_id_is_enough_when_it_is_long_and_fits_one_run() {
    let store = Store::new();
    let long = format!("{}-tail", "b".repeat(36));
    for run in ["aaaa-aaa-1", "aaaa-aaa-2", long.as_str()] {
        store.run(run).status(&status(run, "complete"));
    }
    store.nested_run("aaaa-aaa-1", "cccc-ccc-1").status(&status("cccc-ccc-1", "complete"));
    let root = utf8(store.root());
    let ask = |id: &str| inspect(&[id, "--root", root]);

    let (code, _, errors) = ask("aaaa-aaa");
    assert_eq!(code, 2, "two runs fit eight characters: {errors}");
    assert!(errors.contains("aaaa-aaa-1") && errors.contains("aaaa-aaa-2"), "{errors}");
    assert_eq!(ask("aaaa-aa").0, 4, "seven characters are no prefix");
    assert_eq!(ids(&ask("cccc-ccc").1), ["cccc-ccc-1"], "nested runs are found as well");
    assert_eq!(ids(&ask(&long[..35]).1), [long.as_str()]);
    assert_eq!(ask(&long[..36]).0, 4, "thirty-six characters are a whole id");
    assert_eq!(ids(&ask("aaaa-aaa-2").1), ["aaaa-aaa-2"], "an exact id is no prefix");
}

#[test]
fn runs_in_a_fallback_root_are_found_and_say_so() {
    let store = Store::new();
    store.run("run-usual").status(&status("run-usual", "complete"));
    let folder = store.folder("async-subagent-runs-4242/run-split");
    testkit::store::Run::at(folder).status(&status("run-split", "complete"));
    let (_, document, _) = inspect(&[utf8(store.root())]);
    assert_eq!(ids(&document).len(), 2, "both roots are walked");
    assert_eq!(problems(&document, "split-root").len(), 1);
    let (_, document, _) = inspect(&["run-split", "--root", utf8(store.root())]);
    let split = run_of(&document, "run-split").expect("found by its id");
    assert!(has_flag(&split, "split-root"));
    assert!(!has_flag(&report(&store, "run-usual"), "split-root"));
}
