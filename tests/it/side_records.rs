//! Records beside the status that confirm or qualify what a report says: replays, pending results,
//! control requests, a configuration that was left.

use serde_json::{Value, json};
use testkit::store::Store;

use crate::nested::{finding, has_flag, inspect, report, status};

/// An expiry after the instant of the look, and one before it.
const LATER: i64 = 1_796_000_000_000;
const EARLIER: i64 = 1_795_970_000_000;

fn result(run: &str) -> Value {
    json!({"id": run, "sessionId": "session-1", "success": true, "state": "complete",
        "timestamp": 1_795_972_939_000_i64})
}

fn replay(store: &Store, run: &str, session: &str, expires: i64) {
    let replay = json!({"version": 1, "runId": run, "sessionId": session,
        "completedAt": 1_795_972_939_000_i64, "expiresAt": expires, "completion": result(run),
        "archivePath": format!("/moved/async-subagent-results/output-archives/{run}.json")});
    let path = format!("async-subagent-results/completion-replay/{run}.json");
    store.file(&path, replay.to_string());
}

#[test]
fn a_valid_replay_shows_that_the_result_was_delivered() {
    let store = Store::new();
    for run in ["taken", "both", "late", "foreign", "never"] {
        store.run(run).status(&status(run, "complete"));
    }
    store.result("both", &result("both"));
    replay(&store, "taken", "session-1", LATER);
    replay(&store, "both", "session-1", LATER);
    replay(&store, "late", "session-1", EARLIER);
    replay(&store, "foreign", "session-2", LATER);

    for (run, missing, unused) in [
        ("taken", false, None),
        ("both", false, None),
        ("late", true, Some("expired")),
        ("foreign", true, Some("another session")),
        ("never", true, None),
    ] {
        let report = report(&store, run);
        assert!(!has_flag(&report, "undelivered"), "{run}");
        assert_eq!(has_flag(&report, "result-missing"), missing, "{run}");
        let found = finding(&report, "replay-unused");
        assert_eq!(found.is_some(), unused.is_some(), "{run}: {found:?}");
        assert!(found.unwrap_or_default().contains(unused.unwrap_or_default()), "{run}");
    }
    let root = store.root().to_str().expect("text");
    let (_, document, _) = inspect(&[root]);
    assert_eq!(document["results"], json!([]), "a replayed result waits for nobody");
    replay(&store, "both", "session-1", EARLIER);
    let (_, document, _) = inspect(&[root]);
    assert_eq!(document["results"].as_array().map(Vec::len), Some(1));
    assert!(has_flag(&report(&store, "both"), "undelivered"), "an expired replay shows nothing");
}

#[test]
fn a_pending_result_is_found_by_what_it_says() {
    let store = Store::new();
    for run in ["stray", "other"] {
        store.run(run).status(&status(run, "complete"));
    }
    let place = "async-subagent-results/result-pending/moved-session";
    store.file(&format!("{place}/strange-name.json"), result("stray").to_string());
    let mut foreign = result("other");
    foreign["sessionId"] = json!("session-2");
    store.file(&format!("{place}/other.json"), foreign.to_string());

    let found = report(&store, "stray");
    assert!(has_flag(&found, "undelivered"), "the payload names the run and its session");
    assert!(!has_flag(&found, "result-missing"));
    let other = report(&store, "other");
    assert!(has_flag(&other, "result-missing"), "a payload of another session is not the run's");
}

#[test]
fn a_pending_result_counts_before_an_older_public_one_and_no_other() {
    let store = Store::new();
    for (run, public_ms, verdict) in
        [("older", 5, "finished-unproven"), ("later", LATER, "conflict")]
    {
        store.run(run).status(&status(run, "complete"));
        let place = "async-subagent-results/result-pending/session-1";
        store.file(&format!("{place}/{run}.json"), result(run).to_string());
        let mut public = result(run);
        (public["success"], public["state"]) = (json!(false), json!("failed"));
        public["timestamp"] = json!(public_ms);
        store.result(run, &public);
        assert_eq!(report(&store, run)["verdict"], verdict, "{run}");
    }
}

#[test]
fn the_pending_result_of_a_child_of_a_workflow_lies_in_its_run_directory() {
    let store = Store::new();
    for (run, told, missing) in [("own", "own", false), ("other", "another", true)] {
        let dir = store.run(run);
        dir.status(&status(run, "complete"));
        dir.json(&format!("result-pending/session-1/{run}.json"), &result(told));
        assert_eq!(has_flag(&report(&store, run), "result-missing"), missing, "{run}");
    }
}

#[test]
fn a_directory_in_the_active_index_is_no_marker() {
    let store = Store::new();
    store.run("led").status(&status("led", "running"));
    let index = store.root().join("async-subagent-runs/.active-runs");
    std::fs::create_dir_all(index.join("led")).expect("room");
    assert!(has_flag(&report(&store, "led"), "marker-missing"), "a directory names no run");
    std::fs::remove_dir(index.join("led")).expect("there");
    std::fs::write(index.join("led"), "any text").expect("room");
    assert!(!has_flag(&report(&store, "led"), "marker-missing"), "a file does");
}

#[test]
fn a_payload_of_another_run_or_session_tells_nothing_of_this_one() {
    let store = Store::new();
    for (run, member) in [("wrong-run", "id"), ("wrong-session", "sessionId")] {
        store.run(run).status(&status(run, "failed"));
        let mut payload = result(run);
        payload[member] = json!("another");
        store.result(run, &payload);
        let report = report(&store, run);
        assert_eq!(report["verdict"], "finished-unproven", "{run}: no second account");
        assert!(has_flag(&report, "undeliverable"), "{run}");
        let text = finding(&report, "result-undeliverable").expect(run);
        assert!(text.contains("'another'"), "{run}: {text}");
    }
    let mut payload = result("gone");
    payload["id"] = json!("another");
    store.run("gone").status(&status("gone", "running"));
    store.result("gone", &payload);
    let report = report(&store, "gone");
    let next = report["next"].as_array().expect("steps");
    assert!(next.iter().all(|n| n["action"] != "adopt-result"), "{next:?}");
}

#[test]
fn a_request_that_a_runner_would_drop_is_counted_and_named() {
    let store = Store::new();
    let run = store.run("asked");
    run.status(&status("asked", "running"));
    let stop = "control/stop-requests/1795972934289-00000000-0000-4000-8000-00000000000";
    run.json(&format!("{stop}1.json"), &json!({"type": "stop", "targetIndex": -1}));
    run.json(&format!("{stop}2.json"), &json!({"type": "stop"}));
    let steer = json!({"type": "steer", "id": "a", "ts": 5, "message": "secret words"});
    run.json("control/steer-requests/1795972934289-YQ.json", &steer);

    let text = finding(&report(&store, "asked"), "control-pending").expect("three requests");
    assert!(text.contains("3 control requests"), "{text}");
    assert!(text.contains("would drop 1 of them") && text.contains("targetIndex"), "{text}");
    assert!(!text.contains("secret") && !text.contains("closed"), "{text}");

    run.json("control/stop-inbox-closed.json", &json!({"version": 1, "closedAt": 5}));
    let text = finding(&report(&store, "asked"), "control-pending").expect("three requests");
    assert!(text.contains("stop-inbox-closed.json"), "{text}");
    assert!(!text.contains("steer-inbox-closed.json"), "{text}");
}

#[test]
fn a_closed_inbox_without_requests_is_nothing_to_tell() {
    let store = Store::new();
    let run = store.run("quiet");
    run.status(&status("quiet", "running"));
    let closed = json!({"version": 1, "closedAt": 5, "state": "complete"});
    run.json("control/steer-inbox-closed.json", &closed);
    assert_eq!(finding(&report(&store, "quiet"), "control-pending"), None);
}

#[test]
fn a_configuration_that_was_left_says_whether_a_runner_would_take_it() {
    let store = Store::new();
    let whole = |id: &str| {
        json!({"id": id, "resultPath": "/r", "cwd": "/w", "asyncDir": "/d", "placeholder": "p",
            "steps": [{"agent": "a", "task": "secret words", "inheritProjectContext": false,
                "inheritGlobalContext": false, "inheritSkills": false}]})
    };
    for (run, config, want) in [
        ("sound", whole("sound").to_string(), "it is valid"),
        ("other", whole("another").to_string(), "for another run"),
        ("torn", "{\"id\":".to_owned(), "no runner can read it"),
        ("wrong", "{\"id\":\"wrong\"}".to_owned(), "member resultPath must be"),
    ] {
        store.run(run).status(&status(run, "running"));
        store.file(&format!("async-cfg-{run}.json"), config);
        let text = finding(&report(&store, run), "config-left").expect(run);
        assert!(text.contains(want) && text.contains(" old)"), "{run}: {text}");
        assert!(!text.contains("secret"), "{run}: {text}");
    }
}
