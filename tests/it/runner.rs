//! The built-in runner with real commands under a real shim: what is recorded, what is ended, what is kept.
//!
//! Theory of operation. See `launch`. `step-runner` is the library's runner in a process of its own; it is
//! let in by the pipe `go`. A step that the test has to meet tells so by the pipe `ready`. A test that waits
//! for a runner waits for its shim, which ends last.

use std::fs;

use runstore::protocol::proof::ProofState;
use runstore::protocol::{Document, layout};
use runstore::store::host::{Host as _, ProcessHost as _, Signal};
use serde_json::{Value, json};
use testkit::driver;

use crate::ask;
use crate::launch::{Launch, has_handles, run_dir};
use crate::place::until;

/// A step that tells that it is there, and does something.
pub(crate) fn met(then: &str) -> Value {
    json!(["sh", "-c", format!("echo $$ >\"$ROOT/ready\"; {then}")])
}

pub(crate) fn sh(script: &str) -> Value {
    json!(["sh", "-c", script])
}

fn launch_with(groups: &Value, more: &Value) -> Launch {
    let mut plan = json!({"groups": groups, "outputMaxBytes": 1 << 20});
    for (key, value) in more.as_object().expect("members") {
        plan[key] = value.clone();
    }
    let steps = groups.as_array().expect("groups").iter().flat_map(|group| {
        group.as_array().expect("a group").iter().map(|step| step[0].as_str().expect("a word"))
    });
    let agents: Vec<&str> = steps.collect();
    Launch::start(&agents, "", |root| {
        let program = driver::step_runner();
        let dir = run_dir(root);
        let (root, dir) = (ask::utf8(root), ask::utf8(&dir));
        [ask::utf8(&program), root, dir, "i", &plan.to_string()].map(str::to_owned).to_vec()
    })
}

pub(crate) fn launch(groups: &Value) -> Launch {
    launch_with(groups, &json!({}))
}

impl Launch {
    /// Waits until a step says that it is there; who it is.
    pub(crate) fn meet(&self) -> i64 {
        let text = fs::read_to_string(self.root.path().join("ready")).expect("a writer");
        text.trim().parse().expect("a number")
    }

    fn request(&self, name: &str, text: &str) {
        let path = self.dir().join(layout::CONTROL_DIR).join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        // As clients do: whole from its first moment.
        let temp = path.with_extension("tmp");
        fs::write(&temp, text).expect("room");
        fs::rename(&temp, &path).expect("room");
    }

    pub(crate) fn status(&self) -> Value {
        let text = fs::read_to_string(self.dir().join(layout::STATUS)).expect("there");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let status = self.status();
        let steps = status["steps"].as_array().expect("steps");
        let words = steps.iter().map(|step| step["status"].as_str().expect("a word").to_owned());
        std::iter::once(status["state"].as_str().expect("a word").to_owned()).chain(words).collect()
    }

    fn result(&self) -> Value {
        let path = self.root.path().join(layout::RESULTS_DIR).join("run-1.json");
        serde_json::from_str(&fs::read_to_string(path).expect("published")).expect("JSON")
    }

    pub(crate) fn output(&self, name: &str) -> String {
        fs::read_to_string(self.dir().join(name)).unwrap_or_default()
    }

    /// Everything agrees that the run ended in order and that nothing is left of it.
    pub(crate) fn ended_in_order(&self, slots: usize) {
        let proof = self.proof();
        assert_eq!(proof.state, ProofState::Observed, "{proof:?} {}", self.events());
        assert_eq!(proof.instances[0].exit_code, Some(0), "an orderly end, whatever came of it");
        assert!(proof.instances[1..].iter().all(|writer| writer.tree_observed()), "{proof:?}");
        assert_eq!((self.is_marked(), self.slots()), (false, slots), "{}", self.events());
        let answer = ask::inspect(&self.dir());
        let (verdict, liveness, because) = answer.only();
        let expected = if slots == 0 { "finished" } else { "paused" };
        assert_eq!((&*verdict, &*liveness), (expected, "dead"), "{because}");
        for line in self.events().lines() {
            let event = Document::parse(line).expect("whole lines");
            assert!(event.get("type").is_some() && event.get("ts").is_some(), "{line}");
        }
        assert_eq!(self.result()["state"], self.status()["state"], "result and status agree");
    }
}

#[test]
fn a_sequence_runs_in_order_and_its_end_is_recorded_and_proven() {
    if !has_handles("a sequence of commands") {
        return;
    }
    let mut launch = launch(&json!([
        [sh("echo one; echo 1 >\"$ROOT/first\"")],
        [sh("echo two; cat \"$ROOT/first\" >&2")]
    ]));
    launch.kill_starter();
    launch.until_it_ends(|| launch.go());
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["complete", "complete", "complete"]);
    assert_eq!(launch.output("output-0.log"), "one\n");
    assert_eq!(launch.output("output-1.log"), "two\n1\n", "both outputs, in order");
    let result = launch.result();
    assert_eq!((&result["success"], &result["exitCode"]), (&json!(true), &json!(0)));
    assert_eq!(result["results"][1]["output"], "two\n1\n");
    let status = launch.status();
    assert_eq!(status["steps"][1]["processTerminal"]["state"], "observed", "{status}");
    assert_eq!((&status["mode"], &status["sessionId"]), (&json!("chain"), &json!("S")));
    let terminal = launch.root.path().join(layout::RUNS_DIR).join(layout::TERMINAL_INDEX);
    assert!(terminal.exists(), "it is in the index of ended runs");
}

#[test]
fn a_step_that_fails_ends_the_sequence_and_says_how() {
    if !has_handles("a command that fails") {
        return;
    }
    for (step, code, signal) in [
        (sh("exit 3"), json!(3), Value::Null),
        (sh("kill -SEGV $$"), Value::Null, json!("SIGSEGV")),
        (json!(["/nowhere/program"]), Value::Null, Value::Null),
    ] {
        let launch = launch(&json!([[step], [sh("echo never")]]));
        launch.until_it_ends(|| launch.go());
        launch.ended_in_order(0);
        assert_eq!(launch.words(), ["failed", "failed", "pending"], "{step}");
        let status = launch.status();
        assert_eq!(status["steps"][0]["exitCode"], code, "{step}");
        assert_eq!(status["steps"][0]["processSignal"], signal, "{step}");
        assert!(status["error"].as_str().is_some_and(|why| !why.is_empty()), "{step}");
        assert_eq!(launch.output("output-1.log"), "", "what comes after it never began");
    }
}

#[test]
fn steps_of_a_group_run_side_by_side() {
    if !has_handles("commands side by side") {
        return;
    }
    // Each waits for the other: one after the other they would never end.
    let launch =
        launch(&json!([[sh("echo a >\"$ROOT/ready\"; echo done"), sh("cat \"$ROOT/ready\"")]]));
    launch.until_it_ends(|| launch.go());
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["complete", "complete", "complete"]);
    assert_eq!(launch.output("output-1.log"), "a\n");
    assert_eq!(launch.status()["mode"], "parallel");
}

#[test]
fn a_stop_ends_a_step_that_ignores_the_request_to_end() {
    if !has_handles("a stubborn command") {
        return;
    }
    let launch =
        launch(&json!([[met("trap '' TERM; while :; do sleep 1000; done")], [sh("true")]]));
    launch.go();
    launch.meet();
    let name = "stop-requests/1795972934289-00000000-0000-4000-8000-000000000002.json";
    launch.until_it_ends(|| launch.request(name, r#"{"type":"stop","reason":"enough"}"#));
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["stopped", "stopped", "pending"]);
    let status = launch.status();
    assert_eq!((&status["stopped"], &status["error"]), (&json!(true), &json!("enough")));
    assert_eq!(status["steps"][0]["processSignal"], "SIGKILL", "it did not listen");
    let events = launch.events();
    let at = |what: &str| events.find(what).unwrap_or_else(|| panic!("{what}: {events}"));
    assert!(at("runstore.control.taken") < at("subagent.run.stopped"), "{events}");
    assert!(at("subagent.run.stopped") < at("subagent.step.stopped"), "told before it is done");
    assert!(!launch.dir().join(layout::CONTROL_DIR).join(name).exists(), "taken up once");
}

#[test]
fn what_a_step_leaves_in_its_group_ends_with_it() {
    if !has_handles("a command that forks twice") {
        return;
    }
    let launch = launch(&json!([[sh(
        "(sh -c 'echo $$ >\"$ROOT/left\"; echo >\"$ROOT/ready\"; exec sleep 1000' &) & cat \"$ROOT/ready\""
    )]]));
    launch.until_it_ends(|| launch.go());
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["complete", "complete"]);
    let left = fs::read_to_string(launch.root.path().join("left")).expect("it said who it is");
    assert!(launch.host.hold(left.trim().parse().expect("a number")).expect("asked").is_none());
}

#[test]
fn a_step_that_floods_its_output_keeps_within_the_bound() {
    if !has_handles("a command that floods") {
        return;
    }
    let launch = launch(&json!([[sh("head -c 20000000 /dev/zero; echo last")]]));
    launch.until_it_ends(|| launch.go());
    launch.ended_in_order(0);
    for name in ["output-0.log", "output-0.previous.log"] {
        let bytes = fs::metadata(launch.dir().join(name)).expect("there").len();
        assert!(bytes <= 1 << 20, "{name}: {bytes}");
    }
    assert!(launch.output("output-0.log").ends_with("last\n"), "the last part is what is kept");
    let text = launch.result()["results"][0]["output"].as_str().expect("text").to_owned();
    assert!(text.len() < 64 << 10 && text.ends_with("last\n"), "{} bytes", text.len());
}

#[test]
fn a_step_that_closes_its_descriptors_is_waited_for() {
    if !has_handles("a command without descriptors") {
        return;
    }
    let launch = launch(&json!([[sh("exec >&- 2>&-; echo >\"$ROOT/ready\"; exit 7")]]));
    launch.go();
    launch.until_it_ends(|| drop(fs::read(launch.root.path().join("ready")).expect("a writer")));
    launch.ended_in_order(0);
    assert_eq!(launch.status()["steps"][0]["exitCode"], 7);
}

#[test]
fn an_end_that_another_told_ends_the_steps_and_stays() {
    if !has_handles("an end that another told") {
        return;
    }
    let launch = launch(&json!([[met("while :; do sleep 1000; done")]]));
    launch.go();
    let step = launch.meet();
    // A step is met before its runner tells of it; an end that is told in that moment is overtaken (RS-RMW-03).
    until("the runner tells of its step", || launch.status()["steps"][0]["status"] == "running");
    launch.until_it_ends(|| {
        let mut status = launch.status();
        status["state"] = json!("stopped");
        status["endedAt"] = status["lastUpdate"].clone();
        let temp = launch.dir().join("told.tmp");
        fs::write(&temp, status.to_string()).expect("room");
        fs::rename(&temp, launch.dir().join(layout::STATUS)).expect("room");
    });
    let presence = launch.host.process(step).presence;
    assert_eq!(presence, runstore::protocol::process::Presence::Gone, "RS-STEP-08");
    let status = launch.status();
    assert_eq!(status["steps"][0]["status"], "running", "nothing more is written: {status}");
    assert_eq!(status["lastUpdate"], status["endedAt"], "{status}");
}

#[test]
fn a_stopped_step_is_ended_at_the_deadline() {
    if !has_handles("a stopped command") {
        return;
    }
    let groups = json!([[met("while :; do sleep 1000; done")]]);
    let launch = launch_with(&groups, &json!({"deadlineInMs": 1500}));
    launch.go();
    let pid = launch.meet();
    launch.until_it_ends(|| {
        assert_eq!(
            launch.host.process(pid).presence,
            runstore::protocol::process::Presence::Present
        );
        let stopped = std::process::Command::new("kill").args(["-STOP", &pid.to_string()]).status();
        assert!(stopped.expect("there is kill").success());
    });
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["failed", "failed"]);
    let status = launch.status();
    assert_eq!(
        (&status["timedOut"], &status["steps"][0]["timedOut"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(status["steps"][0]["processSignal"], "SIGTERM", "it was let go on to hear it");
    assert!(launch.events().contains("subagent.run.timed_out"), "{}", launch.events());
}

#[test]
fn an_interruption_pauses_the_run_and_keeps_its_slot() {
    if !has_handles("an interruption") {
        return;
    }
    let launch = launch(&json!([[met("exec sleep 1000")]]));
    launch.go();
    launch.meet();
    launch.until_it_ends(|| launch.request(layout::CONTROL_INTERRUPT, "{"));
    launch.ended_in_order(1);
    assert_eq!(launch.words(), ["paused", "paused"]);
    assert!(launch.status()["endedAt"].is_i64(), "the pause is confirmed");
    let events = launch.events();
    assert!(events.contains("subagent.run.paused"), "{events}");
    assert_eq!(events.matches(r#""request":"interrupt""#).count(), 1, "taken up once");
}

#[test]
fn a_wrong_request_is_ignored_and_one_for_a_step_stops_that_step_alone() {
    if !has_handles("requests") {
        return;
    }
    let launch = launch(&json!([[met("exec sleep 1000"), sh("cat \"$ROOT/go\"; echo other")]]));
    launch.go();
    launch.meet();
    launch.request("stop-requests/1795972934288-a.json", r#"{"type":"halt"}"#);
    launch.request(
        "steer-requests/1795972934288-YQ.json",
        r#"{"type":"steer","id":"a","ts":1,"message":"m"}"#,
    );
    launch.request("stop-requests/1795972934289-b.json", r#"{"type":"stop","targetIndex":0}"#);
    launch.until_it_ends(|| launch.go());
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["failed", "stopped", "complete"], "{}", launch.events());
    assert_eq!(launch.output("output-1.log"), "other\n");
    assert!(launch.events().contains("subagent.steer.failed"), "{}", launch.events());
    assert!(!launch.events().contains("halt"), "{}", launch.events());
    for queue in ["stop-requests", "steer-requests"] {
        let dir = launch.dir().join(layout::CONTROL_DIR).join(queue);
        assert_eq!(fs::read_dir(dir).expect("there").count(), 0, "{queue}: nothing is left");
    }
    let closed = launch.dir().join(layout::CONTROL_DIR).join(layout::STOP_INBOX_CLOSED);
    assert!(closed.exists(), "clients are told that nobody listens any more");
}

#[test]
fn a_runner_that_is_killed_leaves_its_steps_to_the_shim() {
    if !has_handles("a killed runner") {
        return;
    }
    let launch = launch(&json!([[met("trap '' TERM; exec sleep 1000")]]));
    launch.go();
    let step = launch.meet();
    launch.until_it_ends(|| {
        let runner = launch.host.hold(launch.runner.pid).expect("asked").expect("it is there");
        launch.host.signal_held(&runner, Signal::Kill).expect("ours");
    });
    let proof = launch.proof();
    assert_eq!(proof.state, ProofState::Observed, "{proof:?} {}", launch.events());
    assert_eq!(proof.instances[0].signal.as_deref(), Some("SIGKILL"));
    assert!(launch.host.hold(step).expect("asked").is_none(), "nothing of the run is left");
    assert_eq!(launch.words()[0], "running", "nobody tells what the runner did not");
    let answer = ask::inspect(&launch.dir());
    assert_eq!((&*answer.only().0, &*answer.only().1), ("orphaned", "dead"), "{answer:?}");
    assert_eq!((launch.is_marked(), launch.slots()), (false, 0), "but all is let go of");
}
