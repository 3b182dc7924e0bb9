//! A runner that ends before its launch is decided: what its shim leaves to the launcher, and how long.
//!
//! Theory of operation. The launcher is another process, with another number; it acts whenever the shim has
//! looked whether it lives. Spec: RS-OBS-13, RS-START-13, RS-START-42.

use std::sync::{Arc, Mutex};

use runstore::observer::{ShimCommand, ShimReport, Subject, shim};
use runstore::protocol::account::Author;
use runstore::protocol::process::{Presence, ProcessRecord, ProcessSeen, RecordedIdentity};
use runstore::protocol::proof::ProofState;
use runstore::protocol::slot::SlotKind;
use runstore::protocol::written_startup::LaunchNote;
use runstore::protocol::written_status::FirstStatus;
use runstore::protocol::{Open, RunMode, RunState};
use runstore::store::host::{Exit, Host as _};
use runstore::store::markers;
use runstore::store::proof::{RunPlace, initialise};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{StartupFailure, StatusPlace, record_startup_failure, write_first};
use runstore::store::slot::{self, HeldSlot, RolledBack, SlotRequest, Source};
use testkit::fault::FaultHost;

use crate::ending::{put, run_dir, run_id};

const LAUNCHER: i64 = 50;

/// A run that is prepared in every way but the first status and what follows it, with the slot of the run
/// that it revives; its runner ends at once.
fn prepared() -> (FaultHost, HeldSlot) {
    let host = FaultHost::new();
    for path in ["/runs", "/runs/.active-runs", "/runs/run-1"] {
        host.make_dir(path);
    }
    for pid in [host.system().own_pid, LAUNCHER] {
        let start_identity = Some(format!("linux:{pid}"));
        let seen = ProcessSeen { presence: Presence::Present, start_identity, ..<_>::default() };
        host.set_process(pid, seen);
    }
    let identity =
        RecordedIdentity { start_identity: Some(format!("linux:{LAUNCHER}")), ..<_>::default() };
    let note = LaunchNote {
        run_id: "run-1".to_owned(),
        instance_id: "i".to_owned(),
        config_file: "async-cfg-run-1.json".to_owned(),
        created_at_ms: host.now_ms(),
        session_id: Some("S".to_owned()),
        launcher: ProcessRecord { pid: LAUNCHER, identity, ..<_>::default() },
    };
    put(&host, ".runstore-launch.json", &note.text());
    let of = |run_id, async_dir| SlotRequest {
        session_id: "S",
        run_id,
        async_dir,
        kind: SlotKind::Runner,
        limit: 1,
    };
    let old = slot::acquire(&host, &0, &of("run-0", "/runs/run-0"));
    let _ = old.expect("free").expect("there is a limit");
    let paused = (Some("run-0"), Some(Open::Known(RunState::Paused)));
    let source = Source { run_id: "run-0", status: Some(paused) };
    let held = slot::transfer(&host, &0, &of("run-1", "/runs/run-1"), &source);
    let mut held = held.expect("free").expect("there is a limit");
    slot::bind(&host, &0, &mut held, "i", 5).expect("ours");
    let mut script = host.script();
    script.spawns.push_back(7);
    script.ends.push_back((7, Exit::Code(3)));
    drop(script);
    (host, held)
}

/// What a launcher does after the process is made.
fn lay_down(host: &FaultHost) {
    let first = FirstStatus {
        run_id: "run-1",
        session_id: Some("S"),
        completion_owner_id: None,
        tool_call_id: None,
        mode: RunMode::Single,
        agents: &["a"],
        groups: &[],
        started_at_ms: host.now_ms(),
        process: &ProcessRecord { pid: 7, ..<_>::default() },
        instance_id: "i",
    };
    write_first(host, &run_dir(host), &first).expect("nobody wrote one");
    let (runs, retry) = (host.dir("/runs"), RetryPolicy::default());
    markers::update(host, &runs, &run_id(), RunState::Running, None, &retry).expect("room");
    initialise(host, &run_dir(host), &run_id(), "i").expect("nobody else made a proof");
}

fn record(host: &FaultHost) {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    let failure = StartupFailure {
        instance_id: "i",
        session_id: Some("S"),
        completion_owner_id: None,
        message: "it ended",
    };
    record_startup_failure(&place, Author::Launcher, &failure).expect("the status is ours");
}

fn observe(host: &FaultHost) -> (ShimReport, i64) {
    let (runs_root, run_dir, run_id) = (host.dir("/runs"), run_dir(host), run_id());
    let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id };
    let command = ShimCommand { program: "runner".as_ref(), args: &[], cwd: None, env: &[] };
    let began_ms = host.now_ms();
    let subject = Subject { place, instance_id: "i" };
    let report = shim(host, &subject, &command, &mut |_| {}).expect("nothing fails here");
    (report, host.now_ms() - began_ms)
}

fn text(host: &FaultHost, name: &str) -> String {
    host.text(&format!("/runs/run-1/{name}")).unwrap_or_else(|| panic!("{name} is missing"))
}

fn slot_owner(host: &FaultHost) -> String {
    let pool = slot::pool_name("S");
    let name = format!("/session-active-async-capacity/{pool}/slot-0/owner.json");
    host.text(&name).unwrap_or_default()
}

#[test]
fn the_end_of_a_launch_that_fails_is_proven_after_its_records_and_its_slot_goes_back() {
    let (host, held) = prepared();
    // Behind two looks at the shim and its runner: the first four at the launcher.
    let given_back = Arc::new(Mutex::new(None));
    let told = Arc::clone(&given_back);
    host.interrupt_probe(3, move |host| {
        lay_down(host);
        host.interrupt_probe(1, move |host| {
            record(host);
            host.interrupt_probe(1, move |host| {
                let back = slot::rollback_before_proceed(host, &0, &held, "i");
                *told.lock().expect("whole") = Some(back);
            });
        });
    });
    let (report, took_ms) = observe(&host);
    assert_eq!(report.problems, [""; 0], "{report:?}");
    assert_eq!(report.finalised.proof.state, ProofState::Observed, "{report:?}");
    let back = given_back.lock().expect("whole").take();
    assert!(matches!(back, Some(Ok(RolledBack::Restored))), "the launcher did all of it: {back:?}");
    let status = text(&host, "status.json");
    assert!(status.contains(r#""state": "failed""#) && status.contains("it ended"), "{status}");
    assert!(status.contains(r#""state": "observed""#), "{status}");
    assert!(slot_owner(&host).contains(r#""runId": "run-0""#), "{}", slot_owner(&host));
    assert!(!report.slot_released, "a slot that was taken over is not the shim's to free");
    assert!(host.stat("/runs/.active-runs/run-1".as_ref()).is_err(), "no marker is left");
    assert!(took_ms < 1_000, "{took_ms} ms");
}

#[test]
fn only_a_live_launcher_that_has_decided_nothing_is_waited_for_and_not_for_ever() {
    type Change = fn(&FaultHost);
    let rows: [(&str, i64, Change); 6] = [
        ("it says nothing", 10_000, |_| {}),
        ("it is gone", 0, |host| {
            host.set_process(LAUNCHER, ProcessSeen { presence: Presence::Gone, ..<_>::default() })
        }),
        ("proceed is there", 0, |host| {
            put(host, "runner-startup-proceed.json", "{}");
        }),
        ("the runner has told that it began", 0, |host| {
            put(host, "events.jsonl", "{\"type\":\"subagent.run.started\"}\n");
        }),
        ("the run tells an end of its own", 0, |host| {
            let text = r#"{"runId":"run-1","sessionId":"S","state":"complete"}"#;
            put(host, "status.json", text);
        }),
        ("the note is of another launch", 0, |host| {
            let text = text(host, ".runstore-launch.json").replace(r#""i""#, r#""other""#);
            put(host, ".runstore-launch.json", &text);
        }),
    ];
    for (what, wait_ms, change) in rows {
        let (host, _held) = prepared();
        lay_down(&host);
        change(&host);
        let (report, took_ms) = observe(&host);
        assert_eq!(took_ms, wait_ms, "{what}");
        assert_eq!(report.finalised.proof.state, ProofState::Observed, "{what}: {report:?}");
        assert!(report.slot_released, "{what}: it is bound to this runner");
    }
}

/// Covers RS-OBS-41.
#[test]
fn a_start_whose_launcher_died_before_its_first_status_is_recorded_by_the_shim() {
    let gone = |host: &FaultHost| {
        host.set_process(LAUNCHER, ProcessSeen { presence: Presence::Gone, ..<_>::default() });
    };
    let (host, _held) = prepared();
    gone(&host);
    let (report, took_ms) = observe(&host);
    assert_eq!((report.problems.as_slice(), took_ms), (&[][..], 0), "{report:?}");
    assert_eq!(report.finalised.proof.state, ProofState::Observed, "{report:?}");
    assert!(report.slot_released, "it is bound to this runner");
    let status = text(&host, "status.json");
    for member in [r#""state": "failed""#, r#""sessionId": "S""#, "the launcher ended"] {
        assert!(status.contains(member), "{member}: {status}");
    }
    assert!(text(&host, "process-terminal-candidate.json").contains(r#""0": 0"#));

    // One that lives has its time, and a status that is there is left as it is.
    let (host, _held) = prepared();
    observe(&host);
    assert!(host.text("/runs/run-1/status.json").is_none(), "the launcher lives");
    let (host, _held) = prepared();
    gone(&host);
    put(&host, "status.json", "torn");
    observe(&host);
    assert_eq!(text(&host, "status.json"), "torn");
}
