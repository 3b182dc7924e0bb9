//! A request to a live runner: every crash and every failing call of placing it, and what it is refused for.

use runstore::protocol::Document;
use runstore::protocol::control::{SteerMode, StopRequest};
use runstore::protocol::evidence::{FileFact, FileMeta, RunEvidence};
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::status::StatusView;
use runstore::protocol::written_control::Asking;
use runstore::store::ask::{AskError, Asked, Said, ask};
use runstore::store::host::{Signal, WriteHost as _};
use runstore::store::inbox::{Message, Request, close, take};
use runstore::store::signal::end_runner;
use testkit::fault::{Crash, FaultHost, Model, explore};

use crate::ending::{put, run_dir, under_way};
use crate::sweep::{at, every_call, recorded};
use crate::table;

const STOP: Asking<'static> = Asking::Stop { step: None, as_file: false };
const SAID: Said<'static> = Said { source: "runstore", reason: Some("why") };

fn try_ask(host: &FaultHost, asking: &Asking<'_>) -> Result<Asked, AskError> {
    ask(host, &run_dir(host), asking, SAID)
}

fn stopped(host: &FaultHost) {
    let asked = try_ask(host, &STOP).expect("nothing fails here");
    assert!(matches!(asked, Asked::Placed(_)), "{asked:?}");
}

/// The texts of the requests that lie in the queue of stops.
fn stops(host: &FaultHost) -> Vec<Vec<u8>> {
    let is_one = |path: &str| path.contains("/stop-requests/") && path.ends_with(".json");
    let tree = host.tree();
    let found = tree.iter().filter(|(path, _)| is_one(path));
    found.map(|(_, bytes)| bytes.clone().unwrap_or_default()).collect()
}

fn taken(host: &FaultHost) -> Vec<Request> {
    take(host, &run_dir(host), "run-1").expect("readable").requests
}

/// Covers RS-CTRL-20, RS-CTRL-24.
#[test]
pub(crate) fn every_crash_of_a_request_leaves_it_whole_or_absent() {
    let seen = explore(under_way, stopped, |host: &FaultHost, crash: &Crash| {
        let there = stops(host);
        if there.len() > 1 {
            return Err(format!("{} requests", there.len()));
        }
        // A power cut may leave anything of it: its runner is gone as well, and a reader drops it.
        if crash.model == Model::Power {
            return Ok(());
        }
        for text in &there {
            let doc = Document::from_bytes(text).map_err(|e| format!("torn: {e}"))?;
            StopRequest::read(&doc).map_err(|e| e.to_string())?;
        }
        if crash.acknowledged && there.is_empty() {
            return Err("acknowledged, but not there".to_owned());
        }
        let again = try_ask(host, &STOP).map_err(|e| format!("not asked again: {e}"))?;
        match again {
            Asked::Placed(_) if there.is_empty() => Ok(()),
            Asked::Already(_) if there.len() == 1 => Ok(()),
            other => Err(format!("{} were there: {other:?}", there.len())),
        }
    });
    table::stepped("ask::ask", &seen, 5);
}

#[test]
fn a_failing_call_of_a_request_is_told_and_leaves_no_half_of_it() {
    every_call(
        under_way,
        |host| try_ask(host, &STOP),
        |host, answer, fault| {
            let at = format!("{fault:?}: {answer:?}");
            let there = stops(host);
            match &answer {
                Ok(Asked::Placed(_)) => assert_eq!(there.len(), 1, "{at}"),
                Ok(other) => panic!("{at}: {other:?}"),
                Err(_) => assert!(there.is_empty(), "{at}: an error leaves no request"),
            }
            for text in there {
                let doc = Document::from_bytes(&text).unwrap_or_else(|e| panic!("{at}: {e}"));
                StopRequest::read(&doc).unwrap_or_else(|e| panic!("{at}: {e}"));
            }
        },
    );
}

#[test]
fn a_full_disk_is_told_with_its_room_and_nothing_is_asked() {
    let host = FaultHost::new();
    under_way(&host);
    host.set_room_bytes(Some(0));
    let why = try_ask(&host, &STOP).expect_err("there is no room");
    let AskError::Write(e) = &why else { panic!("{why:?}") };
    assert!(e.is_capacity() && e.free_bytes == Some(0), "{e}");
    assert!(stops(&host).is_empty());
    host.set_room_bytes(None);
    stopped(&host);
}

/// Covers RS-CTRL-21: each request is taken up by the reader of this library, and asked once.
#[test]
fn each_request_is_what_a_runner_takes_up_and_is_asked_once() {
    let steer = Asking::Steer { id: "m 1", message: "go on", mode: None, targets: &[] };
    let host = FaultHost::new();
    under_way(&host);
    let refused = try_ask(&host, &steer).expect_err("an id has no white space");
    assert!(matches!(refused, AskError::Refused(_)), "{refused:?}");
    let mode = Some(SteerMode::FollowUp);
    let steer = Asking::Steer { id: "m1", message: "go on", mode, targets: &[0] };
    let step = Asking::Stop { step: Some(0), as_file: false };
    let all = [step, STOP, Asking::Timeout, Asking::Interrupt, steer];
    for asking in &all {
        let first = try_ask(&host, asking).expect("room");
        assert!(matches!(first, Asked::Placed(_)), "{asking:?}: {first:?}");
        let Asked::Placed(path) = first else { continue };
        assert_eq!(try_ask(&host, asking).expect("room"), Asked::Already(path), "{asking:?}");
        host.wait_ms(1);
    }
    let covered = try_ask(&host, &Asking::Stop { step: Some(0), as_file: false });
    assert!(matches!(covered, Ok(Asked::Already(_))), "{covered:?}");
    let reason = Some("why".to_owned());
    assert_eq!(
        taken(&host),
        [
            Request::Stop { step: Some(0), reason: reason.clone() },
            Request::Stop { step: None, reason },
            Request::Timeout,
            Request::Interrupt,
            Request::Steer(Message {
                id: "m1".to_owned(),
                text: "go on".to_owned(),
                mode,
                targets: vec![0],
            }),
        ]
    );
    let old = Asking::Stop { step: None, as_file: true };
    assert_eq!(try_ask(&host, &old).expect("room"), Asked::Placed("control/stop.json".to_owned()));
    assert!(matches!(try_ask(&host, &STOP), Ok(Asked::Already(_))), "one for the whole run");
    assert_eq!(taken(&host).len(), 1);
    let step = Asking::Stop { step: Some(0), as_file: true };
    assert!(matches!(try_ask(&host, &step), Err(AskError::Unknown(_))), "older than the queue");
}

/// Covers RS-CTRL-22.
#[test]
fn an_ended_run_a_closed_inbox_and_an_unsafe_place_are_refused_and_nothing_is_made() {
    let status = |state: &str, more: &str| {
        format!(
            r#"{{"runId":"run-1","state":"{state}","startedAt":1,"steps":[{{"status":"complete"}}]{more}}}"#
        )
    };
    let ended = r#","endedAt":5"#;
    for (text, expected) in [
        (status("complete", ended), "the run has ended: complete"),
        (status("stopped", ""), "the run has ended: stopped"),
        (status("paused", ended), "the run has ended: paused"),
        (status("later", ""), "its state 'later' is not known"),
        ("{".to_owned(), "its status cannot be relied on"),
        (r#"{"runId":"run-1"}"#.to_owned(), "it names no state"),
    ] {
        let host = FaultHost::new();
        under_way(&host);
        put(&host, "status.json", &text);
        let why = try_ask(&host, &STOP).expect_err("nobody can be asked").to_string();
        assert!(why.contains(expected), "{text}: {why}");
        assert!(!host.has("/runs/run-1/control"), "{text}: nothing was made");
    }
    let host = FaultHost::new();
    under_way(&host);
    put(&host, "status.json", &status("running", ""));
    let step = |step| Asking::Stop { step: Some(step), as_file: false };
    assert!(matches!(try_ask(&host, &step(0)), Err(AskError::StepEnded(0, _))));
    assert!(matches!(try_ask(&host, &step(1)), Err(AskError::NoStep(1, 1))));
    put(&host, "status.json", &status("running", r#","stopped":true,"timedOut":true"#));
    for asking in [STOP, Asking::Timeout] {
        assert_eq!(try_ask(&host, &asking).expect("told"), Asked::UnderWay, "{asking:?}");
    }
    put(&host, "status.json", &status("paused", ""));
    assert_eq!(try_ask(&host, &Asking::Interrupt).expect("told"), Asked::UnderWay);
    assert!(matches!(try_ask(&host, &STOP), Ok(Asked::Placed(_))), "its steps still end");

    let host = FaultHost::new();
    under_way(&host);
    close(&host, &run_dir(&host), None).expect("room");
    let why = try_ask(&host, &STOP).expect_err("nobody reads it");
    assert!(matches!(why, AskError::Closed("stop-inbox-closed.json")), "{why:?}");
    assert!(stops(&host).is_empty());

    for place in ["control", "control/stop-requests"] {
        let host = FaultHost::new();
        under_way(&host);
        if place != "control" {
            host.make_dir("/runs/run-1/control");
        }
        put(&host, place, "a file");
        let why = try_ask(&host, &STOP).expect_err("it is no directory");
        let AskError::Write(e) = &why else { panic!("{place}: {why:?}") };
        assert!(e.source.to_string().contains("stands in its place"), "{place}: {}", e.source);
        assert_eq!(e.name, place);
    }
}

/// Covers RS-CTRL-22: the inbox is closed between the look at it and the rename.
#[test]
fn a_request_that_comes_too_late_is_withdrawn_or_was_taken_up() {
    let effects = recorded(under_way, stopped);
    let rename = at(&effects, |effect| effect.starts_with("Rename"));
    let shut = |host: &FaultHost| close(host, &run_dir(host), None).expect("room");
    for call in 0..=rename {
        let host = FaultHost::new();
        under_way(&host);
        host.begin();
        host.interrupt_at(call, shut);
        let why = try_ask(&host, &STOP).expect_err("nobody will read it");
        assert!(matches!(why, AskError::Closed(_)), "{call}: {why:?}");
        assert!(stops(&host).is_empty(), "{call}: nothing is left that nobody reads");
    }
    // The runner closes and looks for the last time, before or after the request is withdrawn.
    let mut was_taken = false;
    for later in 1..30 {
        let host = FaultHost::new();
        under_way(&host);
        host.begin();
        host.interrupt_at(rename, shut);
        host.interrupt_at(rename + later, |host| drop(taken(host)));
        match try_ask(&host, &STOP) {
            Ok(Asked::Taken(_)) => was_taken = true,
            Err(AskError::Closed(_)) => {}
            other => panic!("{later}: {other:?}"),
        }
        assert!(stops(&host).is_empty(), "{later}");
    }
    assert!(was_taken, "a runner that looks once more is believed");
}

/// Fresh evidence of a run with this status and nothing else.
fn evidence(status: &str) -> RunEvidence {
    let doc = Document::parse(status).expect("JSON");
    let meta = FileMeta { mtime_ms: 0, bytes: 0, mode: 0o600 };
    let mut e = RunEvidence::empty("run-1".to_owned(), 5);
    e.status = FileFact::Present(Box::new(StatusView::read(&doc)), meta);
    e
}

/// Covers RS-CTRL-25.
#[test]
fn a_signal_goes_to_the_proven_process_of_one_active_run_and_to_nobody_else() {
    const OWN: &str = r#"{"runId":"run-1","state":"running","pid":7,"processStartIdentity":"linux:9","startedAt":1790000000000}"#;
    let host = FaultHost::new();
    let seen = ProcessSeen {
        presence: Presence::Present,
        start_identity: Some("linux:9".to_owned()),
        ..ProcessSeen::default()
    };
    host.set_process(7, seen.clone());
    let mut shared = evidence(OWN);
    shared.pid_shared_with = vec!["run-2".to_owned()];
    for (e, why) in [
        (RunEvidence::empty("run-1".to_owned(), 5), "not under way"),
        (evidence(&OWN.replace("running", "complete")), "not under way"),
        (evidence(&OWN.replace("running", "paused")), "not under way"),
        (evidence(&OWN.replace(r#""state""#, r#""mode":"workflow","state""#)), "workflow"),
        (shared, "run-2"),
        (evidence(&OWN.replace("linux:9", "linux:8")), "gone"),
        (evidence(&OWN.replace(":7,", ":8,")), "gone"),
        (evidence(&OWN.replace(r#""pid":7,"#, "")), "cannot be proven"),
        (evidence(&OWN.replace(r#""startedAt""#, r#""hostname":"far","startedAt""#)), "far"),
        (evidence(&OWN.replace(r#""processStartIdentity":"linux:9","#, "")), "cannot be proven"),
    ] {
        let refused = end_runner(&host, &e).expect_err(why).to_string();
        assert!(refused.contains(why), "{why}: {refused}");
        assert_eq!(host.script().sent, [], "{why}");
    }
    let hidden = Presence::Unknown("hidden".to_owned());
    host.set_process(7, ProcessSeen { presence: hidden, ..seen.clone() });
    end_runner(&host, &evidence(OWN)).expect_err("unknown is never proven");
    assert_eq!(host.script().sent, []);
    host.set_process(7, seen);
    end_runner(&host, &evidence(OWN)).expect("its own");
    assert_eq!(host.script().sent, [(7, Signal::Terminate), (7, Signal::Continue)]);
}
