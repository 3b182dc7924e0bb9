//! What our runner does and leaves, whatever its launcher says.
//! Spec: RS-START-22, RS-START-30, RS-START-44 to RS-START-53.

use std::path::Path;

use runstore::launcher::Prepared;
use runstore::protocol::lease::LeaseState;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::runner::startup::{
    Config, ConfigError, Progress, Startup, StartupError, Variant, read_config,
};
use runstore::store::host::WriteHost as _;
use runstore::store::lease::{self, LeaseRequest, canonical_id};
use runstore::store::proof;
use serde_json::json;
use testkit::fault::FaultHost;

use super::World;
use super::pairs::{config, run};

const BUDGET_MS: u64 = 30_000;

fn begin<'a>(world: &'a World, config: &'a Config) -> Startup<'a, FaultHost> {
    Startup::begin(&world.host, &0, config, BUDGET_MS).expect("nothing is in the way")
}

fn lease_state(world: &World) -> LeaseState {
    let id = canonical_id(&world.host, Path::new("/s.jsonl")).expect("there").id;
    lease::inspect(&world.host, &0, &id)
}

fn said(world: &World) -> serde_json::Value {
    world.file("runner-startup.json").unwrap_or_default()
}

fn prepared(world: &World, is_revival: bool) -> Prepared<'_, FaultHost> {
    world.prepared(if is_revival { world.revival() } else { world.request() })
}

#[test]
fn a_fresh_runner_touches_nothing_before_it_is_let_in() {
    let world = World::new();
    let prepared = prepared(&world, false);
    let config = config(&world);
    let before = world.host.tree();
    let mut startup = begin(&world, &config);
    for _ in 0..3 {
        assert!(matches!(startup.poll().expect("it waits"), Progress::Wait(_)));
        world.host.wait_ms(20);
    }
    assert_eq!(world.host.tree(), before, "it only looks");
    let token = prepared.instance_id();
    let control = json!({"action": "proceed", "token": token, "more": 1}).to_string();
    world.put("runner-startup-proceed.json", &control);
    assert_eq!(startup.poll().expect("let in"), Progress::Let);
    let committed = startup.commit().expect("nothing fails here");
    assert!(committed.lease.is_none());
    assert_eq!(world.host.tree(), before, "the control is consumed");
}

#[test]
fn a_control_that_is_wrong_is_told_and_the_lease_is_given_back() {
    for (control, words) in [
        (json!({"action": "proceed", "token": "u"}).to_string(), "another token"),
        (json!({"action": "proceed"}).to_string(), "another token"),
        (json!({"action": "bogus", "token": "TOKEN"}).to_string(), "no known action"),
        ("{\"action\":\"pro".to_owned(), "unreadable"),
        (String::new(), "unreadable"),
        ("null".to_owned(), "unreadable"),
        ("[]".to_owned(), "another token"),
    ] {
        for is_revival in [false, true] {
            let at = format!("{control}, revival: {is_revival}");
            let world = World::new();
            let prepared = prepared(&world, is_revival);
            let config = config(&world);
            let mut startup = begin(&world, &config);
            let token = if is_revival {
                said(&world)["token"].clone()
            } else {
                json!(prepared.instance_id())
            };
            let control = control.replace("TOKEN", token.as_str().expect("a token"));
            let name =
                if is_revival { "runner-startup-ack.json" } else { "runner-startup-proceed.json" };
            world.put(name, &control);
            let error = startup.poll().expect_err(&at);
            assert!(error.to_string().contains(words), "{at}: {error}");
            let said = said(&world);
            assert_eq!((&said["state"], &said["pid"]), (&json!("error"), &json!(4242)), "{at}");
            assert!(said["error"].as_str().is_some_and(|e| e.contains(words)), "{at}: {said}");
            assert!(said.get("token").is_none(), "{at}");
            assert_eq!(lease_state(&world), LeaseState::Free, "{at}");
            assert!(world.file("status.json").is_none(), "{at}: the run is the launcher's");
        }
    }
}

#[test]
fn each_word_of_the_launcher_has_thirty_seconds_of_its_own() {
    let world = World::new();
    let _prepared = prepared(&world, true);
    let config = config(&world);
    let mut startup = begin(&world, &config);
    let token = said(&world)["token"].as_str().expect("a token").to_owned();
    for (action, state) in [("ack", "acknowledged"), ("confirm", "confirmed")] {
        world.host.wait_ms(29_000);
        assert!(matches!(startup.poll(), Ok(Progress::Wait(_))), "{action}");
        let text = json!({"action": action, "token": token}).to_string();
        world.put(&format!("runner-startup-{action}.json"), &text);
        assert!(matches!(startup.poll(), Ok(Progress::Wait(_))));
        assert_eq!(said(&world)["state"], state);
        assert_eq!(said(&world)["token"], token.as_str(), "one token for all states");
    }
    world.host.wait_ms(30_000);
    assert!(matches!(startup.poll(), Ok(Progress::Wait(_))), "the budget itself is inside");
    world.host.wait_ms(20);
    let error = startup.poll().expect_err("time is up");
    assert!(error.to_string().contains("'proceed'"), "{error}");
    assert_eq!(said(&world)["state"], "error");
    assert_eq!(lease_state(&world), LeaseState::Free);
}

#[test]
fn the_session_is_held_before_ready_is_said_and_a_conflict_is_told() {
    let world = World::new();
    let _prepared = prepared(&world, true);
    let config = config(&world);
    let startup = begin(&world, &config);
    let LeaseState::Owned(owner) = lease_state(&world) else { panic!("it is held") };
    let ready = said(&world);
    assert_eq!(ready["token"], owner.token.as_str());
    assert_eq!((&ready["pid"], &ready["owner"]["runId"]), (&json!(4242), &json!("run-1")));
    assert_eq!(ready["owner"]["sourceRunId"], "run-0");
    drop(startup);
    // Another contender, while the first one holds it.
    let world = World::new();
    let request = LeaseRequest {
        session_file: Path::new("/s.jsonl"),
        run_id: "run-9",
        source_run_id: "run-0",
        parent_session_id: Some("P"),
        token: "t",
    };
    let held = lease::acquire(&world.host, &0, &request).expect("free");
    let presence = Presence::Present;
    world.host.set_process(4242, ProcessSeen { presence, ..ProcessSeen::default() });
    let _prepared = prepared(&world, true);
    let config = self::config(&world);
    let error = Startup::begin(&world.host, &0, &config, BUDGET_MS).expect_err("it is held");
    assert!(matches!(error, StartupError::Lease(_)), "{error:?}");
    let words = said(&world)["error"].as_str().expect("told").to_owned();
    assert!(words.contains("run-9") && words.contains("run-0"), "who holds it: {words}");
    let LeaseState::Owned(owner) = lease_state(&world) else { panic!("it is held") };
    assert_eq!(owner.token, held.owner.token, "the other one's lease stays");
}

#[test]
fn confirm_is_taken_from_either_file_and_proceed_in_its_place() {
    for (name, action, next) in [
        ("runner-startup-confirm.json", "confirm", "confirmed"),
        ("runner-startup-ack.json", "confirm", "confirmed"),
        ("runner-startup-proceed.json", "proceed", "acknowledged"),
    ] {
        let world = World::new();
        let _prepared = prepared(&world, true);
        let config = config(&world);
        let mut startup = begin(&world, &config);
        let token = said(&world)["token"].clone();
        let say = |name: &str, action: &str| {
            world.put(name, &json!({"action": action, "token": token}).to_string());
        };
        say("runner-startup-ack.json", "ack");
        assert!(matches!(startup.poll(), Ok(Progress::Wait(_))));
        say(name, action);
        let progress = startup.poll().expect(name);
        assert_eq!(said(&world)["state"], next, "{name}");
        assert_eq!(progress == Progress::Let, action == "proceed", "{name}");
    }
}

#[test]
fn a_failure_after_proceed_is_recorded_in_the_run_and_never_said() {
    for is_revival in [false, true] {
        let world = World::new();
        let prepared = prepared(&world, is_revival);
        let instance = prepared.instance_id().to_owned();
        proof::initialise(&world.host, &world.run_dir(), &world.run_id, &instance).expect("room");
        world.put("status.json", r#"{"runId":"run-1","state":"running","steps":[{},{}]}"#);
        let config = config(&world);
        let mut startup = begin(&world, &config);
        let token = said(&world)["token"].as_str().unwrap_or(&instance).to_owned();
        for action in ["ack", "confirm", "proceed"] {
            let text = json!({"action": action, "token": token}).to_string();
            world.put(&format!("runner-startup-{action}.json"), &text);
            let _ = startup.poll().expect("our words");
        }
        let committed = startup.commit().expect("let in");
        committed.fail("no code").expect("room");
        let status = world.file("status.json").expect("there");
        assert_eq!(status["state"], "failed");
        assert!(status["error"].as_str().is_some_and(|e| e.contains("could not begin: no code")));
        assert_eq!(status["processTerminal"]["state"], "not-started");
        let candidate = world.file("process-terminal-candidate.json").expect("there");
        assert_eq!(candidate["expectedWriters"], json!({"0": 0, "1": 0}), "one for each step");
        assert_eq!(candidate["revivalLeaseReleaseAcknowledged"] == true, is_revival, "{candidate}");
        assert_eq!(lease_state(&world), LeaseState::Free);
        assert!(world.file("runner-startup.json").is_none(), "no error after the commit");
    }
}

#[test]
fn a_candidate_of_another_instance_ends_the_start_and_is_left_alone() {
    let world = World::new();
    let prepared = prepared(&world, true);
    let other = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"x","writers":{}}"#;
    world.put("process-terminal-candidate.json", other);
    let config = config(&world);
    let mut startup = begin(&world, &config);
    let token = said(&world)["token"].clone();
    for action in ["ack", "confirm", "proceed"] {
        let text = json!({"action": action, "token": token}).to_string();
        world.put(&format!("runner-startup-{action}.json"), &text);
        let _ = startup.poll().expect("our words");
    }
    let error = startup.commit().expect_err("the candidate is not ours");
    assert!(matches!(error, StartupError::Candidate(_)), "{error:?}");
    assert_eq!(lease_state(&world), LeaseState::Free);
    let candidate = world.file("process-terminal-candidate.json").expect("there");
    assert_eq!(candidate["runnerProcessInstanceId"], "x");
    drop(prepared);
}

#[test]
fn a_configuration_of_a_run_that_has_ended_is_an_old_one() {
    let world = World::new();
    let prepared = prepared(&world, true);
    world.put("status.json", r#"{"runId":"run-1","state":"complete"}"#);
    let config = config(&world);
    let error = Startup::begin(&world.host, &0, &config, BUDGET_MS).expect_err("it ended");
    assert!(matches!(error, StartupError::Settled), "{error:?}");
    assert_eq!(lease_state(&world), LeaseState::Free, "the session was not touched");
    drop(prepared);
}

#[test]
fn a_configuration_that_is_not_taken_leaves_the_run_untouched() {
    let world = World::new();
    let prepared = prepared(&world, false);
    let whole = world.host.text("/async-cfg-run-1.json").expect("there");
    let instance = prepared.instance_id();
    let lease = r#""revivalLease":{"runId":"run-9","sourceRunId":"q","sessionFile":"/s.jsonl"}"#;
    let barrier = format!("\"launchBarrierToken\": \"{instance}\"");
    let before = world.host.tree();
    for (text, member, is_left) in [
        ("{".to_owned(), "", true),
        (String::new(), "", true),
        ("[]".to_owned(), "", true),
        (whole.replace("\"agent\":\"a\"", "\"agent\":\"\""), "steps[0].agent", false),
        (
            whole.replace("/async-subagent-runs/run-1", "/async-subagent-runs/run-2"),
            "asyncDir",
            false,
        ),
        (whole.replace("\"id\": \"run-1\"", "\"id\": \"../x\""), "id", false),
        (whole.replace(&barrier, "\"launchBarrierToken\": \"t\""), "launchBarrierToken", false),
        (whole.replace(&barrier, lease), "revivalLease.runId", false),
        (
            whole.replace(&barrier, &lease.replace("/s.jsonl", "").replace("run-9", "run-1")),
            "revivalLease.sessionFile",
            false,
        ),
    ] {
        assert_ne!(text, whole, "{member}: the sample has it");
        world.host.put("/cfg.json", &text);
        let error = read_config(&world.host, Path::new("/cfg.json")).expect_err(member);
        match &error {
            ConfigError::Damaged(_) => assert!(is_left, "{error:?}"),
            ConfigError::Invalid(e) => assert!(e.to_string().contains(member), "{member}: {e}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.has("/cfg.json"), is_left, "{member}");
        let _ = world.host.unlink(&0, "cfg.json".as_ref());
        assert_eq!(world.host.tree(), before, "{member}: nothing else was touched");
    }
    let absent = read_config(&world.host, Path::new("/nothing.json")).expect_err("it is not there");
    assert!(matches!(absent, ConfigError::Unreadable(_)), "{absent:?}");
}

#[test]
fn a_configuration_without_a_barrier_begins_at_once() {
    let world = World::new();
    let prepared = prepared(&world, false);
    let whole = world.host.text("/async-cfg-run-1.json").expect("there");
    let barrier = format!("\"launchBarrierToken\": \"{}\"", prepared.instance_id());
    let text = whole.replace(&barrier, "\"x\": 1");
    world.host.put("/cfg.json", text);
    let config = read_config(&world.host, Path::new("/cfg.json")).expect("an old one");
    assert_eq!(*config.variant(), Variant::Immediate);
    let committed = run(&world, &config, || panic!("there is nothing to wait for"));
    assert!(committed.expect("at once").lease.is_none());
}

#[test]
fn a_runner_that_was_not_let_in_cannot_commit() {
    let world = World::new();
    let _prepared = prepared(&world, true);
    let config = config(&world);
    let startup = begin(&world, &config);
    assert!(startup.commit().is_err());
    assert_eq!(said(&world)["state"], "error");
    assert_eq!(lease_state(&world), LeaseState::Free);
}
