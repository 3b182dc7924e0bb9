//! A session whose slots are all occupied: the next launcher frees those that nobody else will.
//!
//! Covers RS-SLOT-21.

use std::fs;

use runstore::launcher::{Place, Refusal, Request, SlotWish, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::store::host::Host as _;
use runstore::store::slot::{SlotError, occupied};
use testkit::launch::STEPS;
use testkit::process::Live;

use super::real::Real;

/// Prepares a run in the only slot of its session; what is refused is told. Nothing is started or taken back.
fn prepared(real: &Real, run: &str) -> Result<(), SlotError> {
    let (run_id, result) = (RunId::parse(run).expect("an id"), real.root.join("result"));
    let temp = real.host.open_dir(&real.root).expect("there");
    let runs_root = real.host.open_dir(&real.runs).expect("there");
    let place =
        Place { temp: &temp, temp_path: &real.root, runs_root: &runs_root, runs_path: &real.runs };
    let request = Request {
        session_id: Some("S"),
        slot: Some(SlotWish { limit: 1, source: None }),
        ..Request::new(&run_id, RunMode::Single, STEPS, &real.root, &result)
    };
    match prepare(&real.host, place, request) {
        Ok(_) => Ok(()),
        Err(refused) => match refused.why {
            Refusal::Slot(why) => Err(why),
            why => panic!("{why}"),
        },
    }
}

/// Changes a file of a run.
fn change(real: &Real, run: &str, name: &str, change: impl FnOnce(String) -> String) {
    let path = real.runs.join(run).join(name);
    fs::write(&path, change(fs::read_to_string(&path).expect("there"))).expect("room");
}

fn used(real: &Real) -> usize {
    let temp = real.host.open_dir(&real.root).expect("there");
    occupied(&real.host, &temp, "S").expect("readable").len()
}

#[test]
fn a_slot_of_a_launcher_that_died_before_it_started_anything_is_freed_by_the_next_one() {
    let real = Real::new();
    prepared(&real, "run-1").expect("the only slot is free");
    let full = prepared(&real, "run-2");
    assert!(matches!(full, Err(SlotError::Full { used: 1, limit: 1 })), "it may live: {full:?}");
    assert!(!real.runs.join("run-2").exists(), "nothing is left of what was refused");
    let mut dead = Live::start();
    let (own, pid) = (std::process::id(), dead.pid());
    change(&real, "run-1", ".runstore-launch.json", |text| {
        text.replace(&format!("\"pid\": {own}"), &format!("\"pid\": {pid}"))
            .replace("\"processStartIdentity\": \"linux:", "\"processStartIdentity\": \"linux:9")
    });
    dead.kill();
    prepared(&real, "run-2").expect("nobody is left who could let the other one in");
    assert_eq!(used(&real), 1, "it is the slot of the second");
}

#[test]
fn a_release_by_policy_is_told_in_the_log_of_its_run() {
    let real = Real::new();
    prepared(&real, "run-1").expect("the only slot is free");
    // A run that failed a long time ago, whose end nobody saw.
    let status = r#"{"runId":"run-1","sessionId":"S","mode":"single","state":"failed","startedAt":1000,
        "lastUpdate":2000,"endedAt":2000,"pid":2000000000,"steps":[{"agent":"a","status":"failed"}]}"#;
    fs::write(real.runs.join("run-1/status.json"), status).expect("room");
    prepared(&real, "run-2").expect("it was silent for long enough");
    let log = fs::read_to_string(real.runs.join("run-1/events.jsonl")).expect("it is told");
    for word in ["subagent.capacity.released", "abandoned-timeout", "\"runId\":\"run-1\""] {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert_eq!(used(&real), 1);
}
