//! Active runs, launches under way, and directories without a status.

use super::*;

const READY: &str = r#"{"state":"ready","token":"t","pid":42}"#;
const ERROR: &str = r#"{"state":"error","pid":42,"error":"no lease\nmore"}"#;

#[test]
fn an_active_run_whose_process_lives_is_running() {
    let d = Case::healthy().is(Verdict::Running, "the same process lives");
    assert_eq!((d.stage, d.resumable, d.preferred), (None, None, None), "nothing else is said");
}

#[test]
fn unknown_is_never_dead_and_no_pid_is_not_a_dead_pid() {
    for word in [Liveness::Unknown, Liveness::Foreign] {
        Case::healthy().life(word).is(Verdict::RunningUnverified, "neither proven nor excluded");
    }
    let nameless = begun("running", "").replace(r#""pid":42,"#, "");
    Case::of(&nameless).is(Verdict::RunningUnverified, "no pid is not a dead pid");
}

#[test]
fn the_age_of_a_record_decides_nothing() {
    let old = 400 * 86_400_000;
    Case::healthy().at(old).is(Verdict::Running, "a quiet run may be healthy");
    Case::healthy().at(old).life(Liveness::Unknown).is(Verdict::RunningUnverified, "nor unknown");
}

#[test]
fn a_run_silent_for_more_than_a_day_has_a_finding_from_the_next_millisecond_on() {
    let silent = |after| {
        let d = Case::healthy().at(after).diagnose();
        d.findings.iter().any(|f| f.id == "silent")
    };
    assert!(!silent(86_400_000), "24 h are inside");
    assert!(silent(86_400_001), "one more is not");
}

#[test]
fn an_active_run_whose_process_is_gone_is_orphaned_with_its_stage() {
    for word in [Liveness::Dead, Liveness::Reused] {
        let case = Case::healthy().life(word);
        case.at_stage(Verdict::Orphaned, Stage::Proceed, "it had begun");
        let queued = Case::of(&launched("queued", r#","pid":42"#)).life(word);
        queued.at_stage(Verdict::Orphaned, Stage::Spawned, "queued too, and before proceed");
        let launch = Case::of(&launched("running", r#","pid":42"#)).life(word).startup(READY);
        launch.at_stage(Verdict::Orphaned, Stage::Ready, "before proceed");
    }
}

#[test]
fn an_orphan_with_a_result_adopts_it_and_one_without_is_closed() {
    let orphan = || Case::healthy().life(Liveness::Dead);
    let next = |case: Case| case.is(Verdict::Orphaned, "gone").next[0].action;
    assert_eq!(next(orphan()), "close-as-failed", "nothing is left");
    for place in [ResultPlace::Public, ResultPlace::Pending, ResultPlace::Replay] {
        let with = orphan().result(place, &payload(true, "complete", ""));
        assert_eq!(next(with), "adopt-result", "{place} outlived the status");
    }
    let told = orphan().result(ResultPlace::Public, &payload(true, "complete", ""));
    assert_eq!(told.diagnose().next[0].verb, Some("recover"), "there is a verb for it");
    let strange = payload(true, "complete", "").replace("run-1", "other");
    assert_eq!(next(orphan().result(ResultPlace::Public, &strange)), "close-as-failed", "not its");
}

/// RS-REC-05 to RS-REC-07: what is told is what the recoverer does.
#[test]
fn an_orphan_that_no_repair_touches_is_kept() {
    let gone = |status: &str| Case::of(status).life(Liveness::Dead);
    let named = begun("running", "").replace("run-1", "run-2");
    let silent = payload(false, "dreaming", "").replace(r#""success":false,"#, "");
    let kept = [
        gone(&begun("paused", "")),
        gone(&launched("queued", r#","pid":42"#)),
        gone(&begun("running", r#","displayDismissedAt":5"#)),
        gone(&begun("running", r#","state":"running""#)),
        gone(&named),
        gone(&begun("running", "")).result(ResultPlace::Public, &silent),
        gone(&begun("running", "")).with(|e| e.shadowed_by = Some("elsewhere".to_owned())),
        gone(&begun("running", "")).with(|e| e.results_unread = true),
        gone(&begun("running", "")).with(|e| e.unstable = true),
    ];
    for (at, case) in kept.into_iter().enumerate() {
        let d = case.is(Verdict::Orphaned, "gone");
        let next = &d.next[0];
        assert_eq!((next.action, next.verb), ("keep", None), "{at}: {}", next.why);
    }
    let begun_anew = gone(&begun("running", "")).with(|e| {
        let name = ".status.json.42.1790000000001.abcdef.tmp".to_owned();
        e.temp.newer_than_target.push(name);
    });
    let d = begun_anew.is(Verdict::Orphaned, "gone");
    assert_eq!(d.next[0].action, "close-as-failed");
    assert!(d.next[0].why.contains(".status.json.42"), "which may tell more: {}", d.next[0].why);
}

#[test]
fn a_failed_start_that_nobody_told_the_status_is_closed() {
    let case = Case::of(&begun("running", "")).life(Liveness::Dead).startup(ERROR);
    let d = case.is(Verdict::StartFailed, "the error is recorded");
    let next: Vec<_> = d.next.iter().map(|n| (n.action, n.verb)).collect();
    assert_eq!(next, [("report-start-failure", None), ("close-as-failed", Some("recover"))]);
    let told = Case::of(&launched("failed", r#","error":"e""#)).life(Liveness::Dead);
    assert_eq!(told.diagnose().next.len(), 1, "nothing is left to close");
}

#[test]
fn a_completion_event_without_a_result_contradicts_an_active_status() {
    let case = || Case::healthy().events(COMPLETED);
    case().is(Verdict::Running, "the status may be about to follow");
    case().life(Liveness::Unknown).is(Verdict::RunningUnverified, "or so");
    let d = case().life(Liveness::Dead).is(Verdict::Conflict, "nobody will write it");
    assert_eq!(d.preferred, Some("events"), "the only account of the end");
    let done = payload(true, "complete", "");
    case()
        .life(Liveness::Dead)
        .result(ResultPlace::Public, &done)
        .is(Verdict::Orphaned, "with a result there is something to adopt");
    case()
        .life(Liveness::Dead)
        .result(ResultPlace::Public, "{")
        .is(Verdict::Conflict, "a result that cannot be read is none");
    for word in ["paused", "strange"] {
        let log = COMPLETED.replace("complete\"", &format!("{word}\""));
        let case = Case::healthy().life(Liveness::Dead).events(&log);
        case.is(Verdict::Conflict, "whatever outcome the event names");
    }
}

#[test]
fn queued_without_a_process_is_starting_for_five_minutes() {
    let queued = || Case::of(&launched("queued", ""));
    queued().at(300_000).at_stage(Verdict::Starting, Stage::Prepared, "5 min are inside");
    queued().at(300_001).at_stage(Verdict::StartStuck, Stage::Prepared, "one more is not");
    let d = queued().life(Liveness::NotRecorded).diagnose();
    assert_ne!(d.verdict, Verdict::Orphaned, "no pid is not a dead pid");
}

#[test]
fn a_launch_has_thirty_seconds_after_its_newest_file() {
    let launch = || Case::of(&launched("running", r#","pid":42"#)).startup(READY);
    for word in [Liveness::Live, Liveness::Unknown, Liveness::Foreign] {
        let case = launch().life(word);
        case.at(30_000).at_stage(Verdict::Starting, Stage::Ready, "30 s are inside");
        launch().life(word).at(30_001).at_stage(Verdict::StartStuck, Stage::Ready, "1 ms over");
    }
    let newer = launch().with(|e| {
        e.ack = control("ack");
        if let FileFact::Present(_, meta) = &mut e.ack {
            meta.mtime_ms = T + 5_000;
        }
    });
    newer.at(35_000).is(Verdict::Starting, "the newest file counts");
}

#[test]
fn the_stage_is_the_furthest_that_a_file_shows() {
    let launch = || Case::of(&launched("running", r#","pid":42"#));
    let said = |state: &str| READY.replace("ready", state);
    launch().at_stage(Verdict::Starting, Stage::Spawned, "only the launcher wrote");
    launch().startup(READY).at_stage(Verdict::Starting, Stage::Ready, "ready");
    launch().ack("ack").at_stage(Verdict::Starting, Stage::Ready, "an ack answers a ready");
    let acknowledged = launch().startup(&said("acknowledged")).ack("ack");
    acknowledged.at_stage(Verdict::Starting, Stage::Acknowledged, "acknowledged");
    let confirmed = launch().startup(&said("confirmed")).ack("ack").confirm();
    confirmed.at_stage(Verdict::Starting, Stage::Confirmed, "confirmed");
    launch().proceed().at_stage(Verdict::Starting, Stage::Proceed, "the commit point");
}

#[test]
fn a_run_that_has_begun_is_no_launch_whatever_is_left_of_it() {
    Case::healthy().proceed().at(9_000_000).is(Verdict::Running, "its steps run");
    let log = "{\"type\":\"subagent.step.started\",\"ts\":1}\n";
    let launch = || Case::of(&launched("running", r#","pid":42"#)).proceed().at(9_000_000);
    launch().is(Verdict::StartStuck, "nothing shows that it has begun");
    launch().events(log).is(Verdict::Running, "a step event shows it");
    launch().with(|e| e.output_bytes = 1).is(Verdict::Running, "output shows it");
    let candidate = |writers: &str, count: u32| {
        format!(
            r#"{{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{writers},
            "expectedWriters":{{"0":{count}}}}}"#
        )
    };
    let writer = r#"{"0":[{"processInstanceId":"W","kind":"pi-writer","attempt":0,"closeObservedAt":5,
        "exitCode":0,"signal":null}]}"#;
    launch().candidate(&candidate(writer, 0)).is(Verdict::Running, "a writer shows it");
    launch().candidate(&candidate("{}", 1)).is(Verdict::Running, "so does a count");
    launch().candidate(&candidate("{}", 0)).is(Verdict::StartStuck, "a count of zero does not");
    let result = payload(true, "complete", "");
    launch().result(ResultPlace::Public, &result).is(Verdict::Running, "a result shows it");
}

#[test]
fn a_workflow_has_no_launch_of_its_own() {
    let flow = launched("running", r#","pid":42"#).replace("single", "workflow");
    let d = Case::of(&flow).at(9_000_000).is(Verdict::Running, "its host lives");
    assert!(d.because.contains("nothing of the work"), "{}", d.because);
    Case::of(&flow).life(Liveness::Dead).is(Verdict::Orphaned, "a host that is gone ends it");
}

#[test]
fn a_pid_of_several_runs_is_a_hosts_and_proves_no_life() {
    let shared =
        |word| Case::healthy().life(word).with(|e| e.pid_shared_with = vec!["run-2".to_owned()]);
    shared(Liveness::Live).is(Verdict::RunningUnverified, "never better than that");
    shared(Liveness::Unknown).is(Verdict::RunningUnverified, "nor worse");
    shared(Liveness::Dead).is(Verdict::Orphaned, "a host that is gone ends them all");
    shared(Liveness::Live).has(Flag::SharedPid, "several runs record it");
    Case::healthy().lacks(Flag::SharedPid, "one run records it");
}

#[test]
fn a_recorded_start_error_is_judged_by_the_process_that_had_it() {
    let rows = [
        (Liveness::Dead, Verdict::StartFailed),
        (Liveness::Reused, Verdict::StartFailed),
        (Liveness::NotRecorded, Verdict::StartFailed),
        (Liveness::Live, Verdict::StartStuck),
    ];
    for (word, verdict) in rows {
        let active = Case::of(&launched("running", "")).startup(ERROR).life(word);
        let d = active.is(verdict, "an active status");
        assert!(d.because.contains("no lease") && !d.because.contains("more"), "{}", d.because);
        Case::empty().startup(ERROR).life(word).is(verdict, "no status");
    }
    for word in [Liveness::Unknown, Liveness::Foreign] {
        let pid = launched("running", r#","pid":42"#);
        Case::of(&pid).startup(ERROR).life(word).is(Verdict::Starting, "only evidence");
        let over = Case::of(&pid).startup(ERROR).life(word).at(30_001);
        over.is(Verdict::StartStuck, "only evidence, and over its time");
        let begun = Case::healthy().startup(ERROR).life(word);
        begun.is(Verdict::RunningUnverified, "it has begun, and may live");
    }
    let by_message =
        Case::empty().startup(ERROR).with(|e| e.startup_life = Some(life(Liveness::Live)));
    by_message.is(Verdict::StartStuck, "without a status the message names the process");
}

#[test]
fn a_directory_without_a_status_has_ten_seconds_of_grace() {
    let prepared = || Case::empty().with(|e| e.has_protocol_files = true);
    for case in [Case::empty, prepared] {
        case().at(10_000).at_stage(Verdict::Starting, Stage::Prepared, "10 s are inside");
        case().at(10_001).at_stage(Verdict::NeverStarted, Stage::Prepared, "one more is not");
    }
    let spawned = prepared().with(|e| e.has_runner_logs = true);
    spawned.at(10_001).at_stage(Verdict::NeverStarted, Stage::Spawned, "a spawn was tried");
}

#[test]
fn a_start_message_gives_a_directory_without_a_status_the_time_of_a_stage() {
    let case =
        || Case::empty().startup(READY).with(|e| e.startup_life = Some(life(Liveness::Live)));
    case().at(30_000).at_stage(Verdict::Starting, Stage::Ready, "30 s are inside");
    case().at(30_001).at_stage(Verdict::StartStuck, Stage::Ready, "one more is not");
}

#[test]
fn a_directory_of_strange_names_is_not_a_run() {
    let strange = |e: &mut RunEvidence| e.foreign_names = vec!["photo.jpg".to_owned()];
    Case::empty().with(strange).is(Verdict::NotARun, "nothing in it belongs to a run");
    let mixed = Case::empty().with(strange).with(|e| e.has_protocol_files = true);
    mixed.is(Verdict::Starting, "one file of the protocol makes it a run");
}

#[test]
fn evidence_of_work_without_a_status_is_corrupt() {
    let zero = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{},"expectedWriters":{"0":0}}"#;
    let cases = [
        ("a candidate with counts", Case::empty().candidate(zero)),
        ("a proof", Case::empty().proof(&proof("pending", ""))),
        ("a damaged proof", Case::empty().proof("{")),
        ("a result", Case::empty().result(ResultPlace::Public, &payload(true, "complete", ""))),
        ("output", Case::empty().with(|e| e.output_bytes = 1)),
        ("step events", Case::empty().events("{\"type\":\"subagent.step.started\",\"ts\":1}\n")),
    ];
    for (what, case) in cases {
        let d = case.is(Verdict::Corrupt, what);
        assert!(d.findings.iter().any(|f| f.id == "status-missing"), "{what} is named");
    }
    let bare = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{}}"#;
    Case::empty().candidate(bare).is(Verdict::Starting, "a launcher's candidate has no counts");
    let log = "{\"type\":\"subagent.capacity.released\",\"ts\":1}\n";
    Case::empty().events(log).is(Verdict::Starting, "another event is no work");
}
