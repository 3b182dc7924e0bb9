//! What launcher and runner say to each other, and a runner that gives up: a session is given back before
//! anybody is told, and never promised to be free while it is held.
//! Spec: RS-START-13, RS-START-28, RS-START-30, RS-START-44, RS-START-52, RS-START-53.

use std::path::Path;

use runstore::protocol::lease::LeaseState;
use runstore::protocol::status::StatusView;
use runstore::protocol::{Document, RunState};
use runstore::runner::startup::{Config, Startup, read_config};
use runstore::store::candidate::{acknowledge_release, name_session};
use runstore::store::lease::{self, canonical_id};
use runstore::store::message::{self, Look, clear, say};
use runstore::store::sidecar::PatchError;
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};

use crate::launch::{empty, launched, put};
use crate::sweep::{self, at, every_call, recorded};
use crate::table;

const RUN: &str = "/async-subagent-runs/run-1";
const STARTUP: &str = "runner-startup.json";
const OLD: &str = r#"{"state":"ready","token":"t"}"#;
const NEW: &str = r#"{"state":"acknowledged","token":"t"}"#;
const CANDIDATE: &str =
    r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{},"odd":1e400}"#;

fn run_dir(host: &FaultHost) -> usize {
    host.dir(RUN)
}

fn bare(host: &FaultHost) {
    empty(host);
    host.make_dir(RUN);
}

fn with_old(host: &FaultHost) {
    bare(host);
    put(host, STARTUP, OLD);
}

fn in_run(host: &FaultHost, name: &str) -> Option<String> {
    host.text(&format!("{RUN}/{name}"))
}

fn try_say(host: &FaultHost) -> Result<(), runstore::store::atomic::WriteError> {
    say(host, &run_dir(host), STARTUP, NEW)
}

fn a_message_is_old_or_new(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let found = in_run(host, STARTUP);
    match (crash.model, found.as_deref()) {
        (_, Some(NEW)) => Ok(()),
        (_, Some(OLD)) if !crash.acknowledged || crash.model == Model::Power => Ok(()),
        // Nobody is left who would read it, and the next start is in another directory.
        (Model::Power, _) => Ok(()),
        (Model::Process, other) => Err(format!("a reader finds {other:?}")),
    }
}

fn cleared(host: &FaultHost) {
    let left = clear(host, &run_dir(host), &["runner-startup-ack.json", STARTUP]);
    assert!(left.is_empty(), "what is not there is no problem");
}

#[test]
pub(crate) fn a_message_is_whole_or_absent_after_the_death_of_its_process() {
    let told = |host: &FaultHost| try_say(host).expect("nothing fails here");
    let seen = explore(with_old, told, a_message_is_old_or_new);
    assert_eq!(seen.steps, 3, "it is not flushed");
    table::seen("message::say", &seen);
    let seen = explore_sabotaged(with_old, told, a_message_is_old_or_new, Sabotage::Swap(1));
    table::caught("message::say", "it has its name before it has its bytes", &seen);
    let seen = explore(with_old, cleared, |host, crash| {
        let there = in_run(host, STARTUP).is_some();
        let lost = crash.acknowledged && crash.model == Model::Process && there;
        if lost { Err("it is still there".to_owned()) } else { Ok(()) }
    });
    table::seen("message::clear", &seen);
}

fn with_config(host: &FaultHost) {
    empty(host);
    launched(host, false);
}

fn read(host: &FaultHost) -> Config {
    read_config(host, Path::new("/async-cfg-run-1.json")).expect("it is ours")
}

#[test]
pub(crate) fn a_configuration_is_there_or_gone_after_every_crash() {
    let seen = explore(with_config, read, |host, crash| {
        match (host.bytes("/async-cfg-run-1.json"), crash.model) {
            (None, _) => Ok(()),
            (Some(_), Model::Process) if crash.acknowledged => Err("the prompts stay".to_owned()),
            (Some(bytes), _) => {
                Document::from_bytes(&bytes).map(drop).map_err(|e| format!("it is torn: {e}"))
            }
        }
    });
    assert_eq!(seen.steps, 1, "it is read, and removed");
    table::seen("config::read_config", &seen);
}

fn with_candidate(host: &FaultHost) {
    bare(host);
    put(host, "process-terminal-candidate.json", CANDIDATE);
}

fn try_name(host: &FaultHost) -> Result<(), PatchError> {
    name_session(host, &run_dir(host), ("run-1", "i"), Path::new("/s.jsonl"), "t").map(drop)
}

fn name(host: &FaultHost) {
    try_name(host).expect("nothing fails here");
}

fn named(host: &FaultHost) {
    with_candidate(host);
    name(host);
}

fn acknowledge(host: &FaultHost) {
    acknowledge_release(host, &run_dir(host), "t", true).expect("nothing fails here");
}

fn a_candidate_has(key: &'static str) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> {
    move |host, crash| {
        let text = in_run(host, "process-terminal-candidate.json").ok_or("it is lost")?;
        let doc = Document::parse(&text).map_err(|e| format!("it is torn: {e}"))?;
        if !text.contains("\"odd\":1e400") {
            return Err(format!("unknown data is lost: {text}"));
        }
        if crash.acknowledged && doc.get(key).is_none() {
            return Err(format!("{key} is lost"));
        }
        Ok(())
    }
}

#[test]
pub(crate) fn the_session_in_a_candidate_is_whole_after_every_crash() {
    let holds = a_candidate_has("revivalLeaseToken");
    table::seen("candidate::name_session", &explore(with_candidate, name, &holds));
    let seen = explore_sabotaged(with_candidate, name, &holds, Sabotage::Drop(4));
    table::caught("candidate::name_session", "the candidate is not durable", &seen);
    let holds = a_candidate_has("revivalLeaseReleaseAcknowledged");
    table::seen("candidate::acknowledge_release", &explore(named, acknowledge, &holds));
    let seen = explore_sabotaged(named, acknowledge, &holds, Sabotage::Drop(2));
    table::caught("candidate::acknowledge_release", "the candidate is never flushed", &seen);
}

/// A revival that waits for its ack; its runner is another process after the crash.
fn with_revival(host: &FaultHost) {
    empty(host);
    launched(host, true);
    put(host, "runner-startup-ack.json", r#"{"action":"ack","token":"of another start"}"#);
}

fn lease_state(host: &FaultHost) -> LeaseState {
    let id = canonical_id(host, Path::new("/s.jsonl")).expect("there").id;
    lease::inspect(host, &0, &id)
}

fn given_up(host: &FaultHost) {
    let config = read(host);
    if let Ok(mut startup) = Startup::begin(host, &0, &config, 30_000) {
        startup.poll().expect_err("the ack is of another start");
    }
}

fn a_session_is_free_when_it_is_said(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let state = lease_state(host);
    if !matches!(state, LeaseState::Free | LeaseState::Owned(_)) {
        return Err(format!("the session is blocked: {state:?}"));
    }
    let told = in_run(host, STARTUP).is_some_and(|text| text.contains("\"error\""));
    if told && state != LeaseState::Free {
        return Err("it gave up, and holds the session".to_owned());
    }
    if crash.acknowledged && state != LeaseState::Free {
        return Err("the session is held by nobody".to_owned());
    }
    let silent = crash.acknowledged && crash.model == Model::Process && !told;
    if silent { Err("it gave up without a word".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn a_runner_that_gives_up_gives_its_session_back_first_after_every_crash() {
    let seen = explore(with_revival, given_up, a_session_is_free_when_it_is_said);
    table::seen("Startup::begin and Startup::poll, a failure", &seen);
    let effects = recorded(with_revival, given_up);
    let released = at(&effects, |e| e.contains("Rename") && e.contains(".released-"));
    let sabotage = Sabotage::Drop(released + 1);
    let seen =
        explore_sabotaged(with_revival, given_up, a_session_is_free_when_it_is_said, sabotage);
    let mistake = "it says that it gave up before the lease is given back for good";
    table::caught("Startup::begin and Startup::poll, a failure", mistake, &seen);
}

/// A revival that was let in.
fn let_in(host: &FaultHost) {
    empty(host);
    launched(host, true);
}

fn cannot_begin(host: &FaultHost) {
    let config = read(host);
    let mut startup = Startup::begin(host, &0, &config, 30_000).expect("free");
    let Look::Said(ready) = message::look(host, &run_dir(host), STARTUP) else {
        panic!("it is ready")
    };
    let ready = Document::from_bytes(&ready).expect("JSON");
    let token = ready.get("token").expect("there").text().to_owned();
    // As a launcher without the confirm step does it.
    for action in ["ack", "proceed"] {
        let text = format!(r#"{{"action":"{action}","token":{token}}}"#);
        put(host, &format!("runner-startup-{action}.json"), &text);
        startup.poll().expect("our words");
    }
    let committed = startup.commit().expect("nothing fails here");
    committed.fail("no code").expect("nothing fails here");
}

fn a_failure_is_told_before_the_session_is_free(
    host: &FaultHost,
    crash: &Crash,
) -> Result<(), String> {
    let status = in_run(host, "status.json").ok_or("the status is lost")?;
    let doc = Document::parse(&status).map_err(|e| format!("the status is torn: {e}"))?;
    let failed = StatusView::read(&doc).known_state() == Some(RunState::Failed);
    let text = in_run(host, "process-terminal-candidate.json").ok_or("the candidate is lost")?;
    let doc = Document::parse(&text).map_err(|e| format!("the candidate is torn: {e}"))?;
    let has = |key: &str| doc.get(key).is_some();
    let free = match lease_state(host) {
        LeaseState::Free => true,
        LeaseState::Owned(_) => false,
        other => return Err(format!("the session is blocked: {other:?}")),
    };
    if failed && !has("expectedWriters") {
        return Err("it failed, and an observer would find no counts".to_owned());
    }
    if has("revivalLeaseReleaseAcknowledged") && !(free && failed) {
        return Err("the session is promised to be free".to_owned());
    }
    if free && has("revivalLeaseToken") && !failed {
        return Err("the session is free, and the run seems to work on it".to_owned());
    }
    if crash.acknowledged && !has("revivalLeaseReleaseAcknowledged") {
        return Err("the release is not told".to_owned());
    }
    Ok(())
}

#[test]
pub(crate) fn a_runner_that_cannot_begin_says_so_before_it_frees_its_session_after_every_crash() {
    let holds = a_failure_is_told_before_the_session_is_free;
    let seen = explore(let_in, cannot_begin, holds);
    table::seen("Startup::commit and Committed::fail", &seen);
    let effects = recorded(let_in, cannot_begin);
    let released = at(&effects, |e| e.contains("Rename") && e.contains(".released-"));
    let failed = at(&effects, |e| e.contains("Rename") && e.contains("\"status.json\""));
    for (mistake, sabotage) in [
        ("the failure is not durable before the lease is given back", Sabotage::Drop(failed + 1)),
        ("the release is told before it is for good", Sabotage::Drop(released + 1)),
    ] {
        let seen = explore_sabotaged(let_in, cannot_begin, holds, sabotage);
        table::caught("Startup::commit and Committed::fail", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_message_leaves_the_old_one_or_the_new_one() {
    let points = every_call(with_old, try_say, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        let found = in_run(host, STARTUP);
        assert_eq!(done.is_ok(), fault.is_made_good(), "{at}");
        assert_eq!(found.as_deref(), Some(if done.is_ok() { NEW } else { OLD }), "{at}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
    });
    assert!(points >= 24, "{points} points");
}

#[test]
fn every_failing_effect_of_a_runners_start_is_told_or_leaves_a_session_that_can_be_taken() {
    let start = |host: &FaultHost| {
        let config = read(host);
        let begun = Startup::begin(host, &0, &config, 30_000);
        begun.and_then(|mut startup| startup.poll().map(drop)).is_err()
    };
    let points = every_call(with_revival, start, |host, failed, fault| {
        let at = format!("{fault:?}");
        assert!(failed, "{at}: the ack is of another start");
        let state = lease_state(host);
        assert!(matches!(state, LeaseState::Free | LeaseState::Owned(_)), "{at}: {state:?}");
        let told = in_run(host, STARTUP).unwrap_or_default();
        let silent = !told.contains("\"error\"");
        // The one call that failed is the error itself, or the release before it.
        assert!(!(silent && state != LeaseState::Free), "{at}: {told}");
    });
    assert!(points >= 150, "{points} points");
}

#[test]
fn a_candidate_of_another_runner_or_of_none_is_left_alone() {
    let host = FaultHost::new();
    with_candidate(&host);
    let before = host.tree();
    let other = name_session(&host, &run_dir(&host), ("run-1", "j"), Path::new("/s.jsonl"), "t");
    assert!(matches!(other, Err(PatchError::Refused(..))), "{other:?}");
    acknowledge_release(&host, &run_dir(&host), "t", true).expect_err("it names no lease");
    assert_eq!(host.tree(), before, "it names no token");
    let host = FaultHost::new();
    bare(&host);
    name(&host);
    assert_eq!(in_run(&host, "process-terminal-candidate.json"), None, "none is made up");
}
