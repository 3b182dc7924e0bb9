//! The recorded answers of the peers, given by the launcher and the runner themselves.
//!
//! The pure decisions answer the same vectors in `vectors_names`; here they go through files, clock and child.
//! A vector that no conversation can come to is counted, not run: `ready` is waited for without a token only.
//! Spec: RS-START-07, RS-START-09, RS-START-13, RS-START-32, RS-START-48.

use runstore::launcher::handshake::Why;
use runstore::launcher::{Cause, Outcome, Poll, Request};
use runstore::protocol::startup::LauncherFailure;
use runstore::runner::startup::{Progress, Startup};
use runstore::store::host::WriteHost as _;
use serde_json::{Value, json};
use testkit::child::Child;

use super::World;
use super::pairs::config;
use crate::vectors::{self, Vector, text};

#[test]
fn the_launcher_answers_every_recorded_message_of_a_runner() {
    let (mut run, mut unreachable) = (0, 0);
    for Vector { input, expected, name, .. } in &vectors::of("runner-startup") {
        let wanted = text(input, "expectedState");
        if wanted == "ready" && input["expectedToken"].is_string() {
            unreachable += 1;
            continue;
        }
        run += 1;
        let world = World::new();
        let budget = input["timeoutMs"].as_u64().unwrap_or(10_000);
        let child = Child::new(77);
        let request = Request { state_budget_ms: budget, ..world.revival() };
        let mut launch = world.launch(request, &child);
        if wanted == "acknowledged" {
            let ready = json!({"state": "ready", "token": input["expectedToken"]});
            world.put("runner-startup.json", &ready.to_string());
            assert!(matches!(launch.poll(), Poll::Wait(_)), "{name}: it was acked");
            assert!(world.file("runner-startup-ack.json").is_some(), "{name}");
        }
        match input["raw"].as_str() {
            Some(raw) => world.put("runner-startup.json", raw),
            None => world.remove("runner-startup.json"),
        }
        let reply = if wanted == "ready" { "ack" } else { "confirm" };
        let recorded = &expected["ok"];
        if input.get("timeoutMs").is_some() {
            assert!(matches!(launch.poll(), Poll::Wait(1)), "{name}");
            world.host.wait_ms(budget);
        }
        match launch.poll() {
            Poll::Wait(_) => {
                let said = world.file(&format!("runner-startup-{reply}.json"));
                let went_on = said.as_ref().is_some_and(|m| m["action"] == reply);
                assert_eq!(went_on, recorded["ok"] == true, "{name}");
                assert_eq!(!went_on, expected["undefined"] == true, "{name}");
                if went_on {
                    assert_eq!(said.expect("there")["token"], recorded["token"], "{name}");
                }
            }
            Poll::Done(outcome) => {
                assert_eq!(recorded["ok"], false, "{name}: {outcome:?}");
                let failed = outcome.failed().expect("it is a failure");
                let error = text(recorded, "error");
                let Cause::Handshake(Why::Conversation(why)) = &failed.cause else {
                    panic!("{name}: {outcome:?}")
                };
                let (agrees, kind) = match why {
                    LauncherFailure::Reported { text } => {
                        (text == error, matches!(outcome, Outcome::Died(_)))
                    }
                    LauncherFailure::Unreadable(_) => (
                        error.starts_with("Failed to read "),
                        matches!(outcome, Outcome::Refused(_)),
                    ),
                    LauncherFailure::WrongToken { .. } => (
                        error.contains("startup handshake"),
                        matches!(outcome, Outcome::Refused(_)),
                    ),
                    LauncherFailure::TimedOut { .. } => {
                        (error.starts_with("Timed out "), matches!(outcome, Outcome::TimedOut(_)))
                    }
                    other => panic!("{name}: no rule for {other:?}"),
                };
                assert!(agrees && kind, "{name}: {outcome:?}, recorded {error}");
                assert_eq!(world.file("status.json").expect("there")["state"], "failed", "{name}");
                assert!(child.has_ended(), "{name}");
            }
        }
    }
    assert_eq!((run, unreachable), (40, 5), "every vector is run or cannot be come to");
}

#[test]
fn the_runner_answers_every_recorded_control_of_a_launcher() {
    for Vector { input, expected, name, .. } in &vectors::of("startup-control") {
        let is_revival = text(input, "action") == "ack";
        let budget = input["timeoutMs"].as_u64().expect("a budget");
        let world = World::new();
        let prepared = world.prepared(if is_revival { world.revival() } else { world.request() });
        let config = config(&world);
        let mut startup =
            Startup::begin(&world.host, &0, &config, budget).expect("nothing is in the way");
        let token = match world.file("runner-startup.json") {
            Some(ready) => text(&ready, "token").to_owned(),
            None => prepared.instance_id().to_owned(),
        };
        let file = format!("runner-startup-{}.json", text(input, "action"));
        if let Some(raw) = input["raw"].as_str() {
            // The recorded token is `t`; a conversation of ours makes its own.
            world.put(&file, &raw.replace("\"token\":\"t\"", &format!("\"token\":\"{token}\"")));
        }
        let mut took = 0;
        let got = loop {
            match startup.poll() {
                Ok(Progress::Wait(ms)) if took <= budget + 20 => {
                    if is_revival
                        && world
                            .file("runner-startup.json")
                            .is_some_and(|m| m["state"] == "acknowledged")
                    {
                        break Ok(());
                    }
                    took += ms;
                    world.host.wait_ms(ms);
                }
                Ok(Progress::Wait(_)) => panic!("{name}: {took} ms of {budget}"),
                Ok(Progress::Let) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        match got {
            Ok(()) => assert_eq!(expected["ok"], true, "{name}"),
            Err(e) => {
                let (error, said) = (text(expected, "error"), e.to_string());
                let agrees = if error.starts_with("Timed out") {
                    said.contains(&format!("within {budget} ms"))
                } else if error.ends_with("token does not match.") {
                    said.contains("another token")
                } else if error.ends_with("action is invalid.") {
                    said.contains("no known action")
                } else {
                    said.contains("unreadable")
                };
                assert!(agrees, "{name}: {said}, recorded {error}");
                let told = world.file("runner-startup.json").expect("it says so");
                assert_eq!(told["state"], "error", "{name}");
            }
        }
    }
}

#[test]
fn a_failed_launch_leaves_what_the_recorded_ones_left() {
    let vectors = vectors::of("startup-failure");
    let mut run = 0;
    for Vector { input, expected, name, .. } in &vectors {
        if name == "status broken" {
            // From P71 on it is not rewritten; `vectors_writes` insists on the difference.
            continue;
        }
        run += 1;
        let world = World::new();
        let child = Child::new(5);
        let mut launch = world.launch(
            Request {
                session_id: input["sessionId"].as_str(),
                completion_owner_id: input["completionOwnerId"].as_str(),
                ..world.revival()
            },
            &child,
        );
        let instance = launch.instance_id().to_owned();
        match input["status"]["raw"].as_str() {
            Some(raw) => world.put("status.json", raw),
            None => world.remove("status.json"),
        }
        let why = json!({"state": "error", "error": input["message"]});
        world.put("runner-startup.json", &why.to_string());
        let Poll::Done(Outcome::Died(failed)) = launch.poll() else {
            panic!("{name}: it said an error")
        };
        assert_eq!(failed.words.as_deref(), input["message"].as_str(), "{name}");
        let recorded = |value: &Value| {
            let id = text(input, "runnerProcessInstanceId");
            serde_json::from_str::<Value>(&value.to_string().replace(id, &instance)).expect("JSON")
        };
        let mut status = world.file("status.json").expect("there");
        assert!(status["lastUpdate"].is_i64(), "{name}");
        status["lastUpdate"] = json!("<now>");
        let message = text(&status, "error").to_owned();
        assert!(message.ends_with(text(input, "message")), "{name}: {message}");
        status["error"] = input["message"].clone();
        assert_eq!(status, recorded(&expected["status"]), "{name}");
        let candidate = world.file("process-terminal-candidate.json").expect("there");
        assert_eq!(candidate, recorded(&expected["candidate"]), "{name}");
    }
    assert_eq!((run, vectors.len()), (2, 3), "every vector but the one that differs on purpose");
}
