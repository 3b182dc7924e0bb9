//! Each flag, with its cause and without.

use super::*;

fn done() -> Case {
    Case::of(&ended("complete", "")).proof(&observed())
}

fn public(case: Case, text: &str) -> Case {
    case.result(ResultPlace::Public, text)
}

#[test]
fn a_healthy_run_and_a_clean_end_have_no_flags() {
    assert_eq!(Case::healthy().diagnose().flags, [], "running");
    assert_eq!(done().diagnose().flags, [], "finished");
    assert_eq!(Case::empty().diagnose().flags, [], "starting");
}

#[test]
fn repaired_is_told_by_the_copy_of_the_proof_or_by_the_log() {
    let marked = overlay(&proof("unknown", r#","reason":"stale-repair""#));
    Case::of(&ended("failed", &marked)).has(Flag::Repaired, "the copy says so");
    let signed = "{\"type\":\"subagent.run.repaired_stale\",\"ts\":1}\n";
    Case::of(&ended("failed", "")).events(signed).has(Flag::Repaired, "the log says so");
    let unknown = overlay(&proof("unknown", r#","reason":"runner-candidate-missing""#));
    Case::of(&ended("failed", &unknown)).lacks(Flag::Repaired, "an observer wrote that");
}

#[test]
fn undelivered_is_a_result_that_still_waits_for_its_session() {
    let success = payload(true, "complete", "");
    public(done(), &success).has(Flag::Undelivered, "public");
    done().result(ResultPlace::Pending, &success).has(Flag::Undelivered, "pending");
    done().result(ResultPlace::Replay, &success).lacks(Flag::Undelivered, "handed over");
    let stamped = payload(true, "complete", r#","notificationDeliveredAt":5"#);
    public(done(), &stamped).lacks(Flag::Undelivered, "handed over");
    done().lacks(Flag::Undelivered, "none");
    public(Case::healthy(), &success).lacks(Flag::Undelivered, "the run has not ended");
    let orphan = public(Case::healthy().life(Liveness::Dead), &success);
    orphan.has(Flag::Undelivered, "a run that is gone has ended");
}

#[test]
fn undeliverable_is_a_result_that_no_session_can_take() {
    let success = payload(true, "complete", "");
    public(done(), &success).lacks(Flag::Undeliverable, "it names the run's session");
    let rows = [
        ("no session", success.replace(r#""sessionId":"S","#, "")),
        ("an empty session", success.replace(r#""S""#, r#""""#)),
        ("another session", success.replace(r#""S""#, r#""X""#)),
        ("another run", success.replace("run-1", "run-2")),
        ("not readable", "{".to_owned()),
    ];
    for (what, text) in rows {
        public(done(), &text).has(Flag::Undeliverable, what);
    }
    let replay = success.replace(r#""sessionId":"S","#, "");
    done().result(ResultPlace::Replay, &replay).lacks(Flag::Undeliverable, "it was delivered");
}

#[test]
fn result_missing_needs_a_session_no_proof_that_counts_and_a_minute() {
    let gone = |status: &str| Case::of(status).at(60_001);
    let failed = ended("failed", "");
    gone(&failed).has(Flag::ResultMissing, "neither result nor proof");
    gone(&failed).at(60_000).lacks(Flag::ResultMissing, "it may still come");
    gone(&failed).proof(&observed()).lacks(Flag::ResultMissing, "delivery deletes results");
    gone(&failed.replace(r#""sessionId":"S","#, "")).lacks(Flag::ResultMissing, "no session");
    gone(&failed.replace(r#""S""#, r#""""#)).lacks(Flag::ResultMissing, "an empty session");
    for place in ResultPlace::ALL {
        let with = gone(&failed).result(*place, &payload(false, "failed", ""));
        with.lacks(Flag::ResultMissing, "it is there, or a sign of its delivery");
    }
    let unknown = || gone(&failed).proof(&proof("unknown", ""));
    unknown().has(Flag::ResultMissing, "an unknown proof proves no delivery");
    unknown().at(60_000).is(Verdict::FinishedUnproven, "unproven at once");
    unknown().at(60_000).lacks(Flag::ResultMissing, "but the result has its minute");
    let unread = gone(&failed).with(|e| e.results_unread = true);
    unread.lacks(Flag::ResultMissing, "nobody could look");
    let start = launched("failed", r#","error":"e""#);
    gone(&start).lacks(Flag::ResultMissing, "a start-up failure writes none");
    gone(&begun("running", "")).life(Liveness::Dead).lacks(Flag::ResultMissing, "not terminal");
    let conflict = gone(&failed).events(COMPLETED);
    conflict.is(Verdict::Conflict, "the log tells another outcome");
    conflict.has(Flag::ResultMissing, "and the result is nowhere either");
}

#[test]
fn output_committed_is_a_failure_with_an_answer_and_a_clean_exit() {
    let answer = |output: &str| {
        payload(false, "failed", &format!(r#","results":[{{"output":"{output}"}}]"#))
    };
    let failed = || Case::of(&ended("failed", "")).proof(&observed());
    public(failed(), &answer("text")).has(Flag::OutputCommitted, "all three");
    public(failed(), &answer(" ")).lacks(Flag::OutputCommitted, "no answer");
    let success = payload(true, "complete", r#","results":[{"output":"text"}]"#);
    public(done(), &success).lacks(Flag::OutputCommitted, "a success needs no such flag");
    let crashed = observed().replace(r#""exitCode":0"#, r#""exitCode":1"#);
    public(failed().proof(&crashed), &answer("text")).lacks(Flag::OutputCommitted, "exit code 1");
    let unproven = Case::of(&ended("failed", ""));
    public(unproven, &answer("text")).lacks(Flag::OutputCommitted, "the exit is not known");
}

#[test]
fn overdue_is_a_run_that_has_not_ended_past_its_deadline_else_its_timeout() {
    let late = |status: &str, after| Case::of(status).at(after);
    let deadline = begun("running", &format!(r#","deadlineAt":{}"#, T + 1000));
    late(&deadline, 1000).lacks(Flag::Overdue, "at the deadline");
    late(&deadline, 1001).has(Flag::Overdue, "past it");
    late(&deadline, 1001).life(Liveness::Dead).has(Flag::Overdue, "also when it is gone");
    let timeout = begun("running", r#","timeoutMs":2000"#);
    late(&timeout, 2000).lacks(Flag::Overdue, "at its timeout");
    late(&timeout, 2001).has(Flag::Overdue, "past it");
    let both = begun("running", &format!(r#","timeoutMs":2000,"deadlineAt":{}"#, T + 9000));
    late(&both, 2001).lacks(Flag::Overdue, "the deadline goes before the timeout");
    Case::healthy().at(9_000_000).lacks(Flag::Overdue, "it has neither");
    let over = ended("complete", r#","timeoutMs":2000"#);
    late(&over, 9000).lacks(Flag::Overdue, "it has ended");
    let pausing = begun("paused", r#","timeoutMs":2000"#);
    late(&pausing, 2001).has(Flag::Overdue, "an unconfirmed pause has not ended");
    late(&ended("paused", r#","timeoutMs":2000"#), 2001).lacks(Flag::Overdue, "confirmed");
}

#[test]
fn a_torn_last_line_and_a_damaged_earlier_one_are_two_flags() {
    let torn = Case::healthy().events("{\"type\":\"a\"}\n{\"ty");
    torn.has(Flag::LogTorn, "the last line is cut");
    torn.lacks(Flag::LogCorrupt, "nothing else is damaged");
    let corrupt = Case::healthy().events("{\"type\":{\"type\":\"b\"}\n{\"type\":\"c\"}\n");
    corrupt.has(Flag::LogCorrupt, "an earlier line is damaged");
    corrupt.lacks(Flag::LogTorn, "the last line is whole");
    let d = corrupt.diagnose();
    assert_eq!(d.findings.iter().find_map(|f| f.line), Some(1), "its line is named");
    let whole = Case::healthy().events("{\"type\":\"a\"}");
    whole.lacks(Flag::LogTorn, "a whole line without a newline is read");
}

#[test]
fn truncated_means_that_the_reader_stopped_and_not_that_a_writer_did() {
    let case = Case::healthy();
    case.lacks(Flag::Truncated, "everything was looked at");
    Case::healthy().with(|e| e.truncated = true).has(Flag::Truncated, "entries were left out");
    let tail = Case::healthy().events(COMPLETED).with(|e| {
        if let Some(log) = &mut e.events {
            log.tail_only = true;
        }
    });
    tail.has(Flag::Truncated, "only the end of the log was read");
    let budget = Case::healthy().events("{\"type\":\"subagent.events.truncated\",\"ts\":1}\n");
    budget.lacks(Flag::Truncated, "its writer stopped, which is a note");
    assert!(budget.diagnose().findings.iter().any(|f| f.id == "log-budget"), "the note");
}

#[test]
fn leftovers_and_requests_are_flagged() {
    let litter = |newer: &[&str]| TempFacts {
        count: 300,
        measured: 256,
        bytes: 9,
        newer_than_target: newer.iter().map(|n| (*n).to_owned()).collect(),
    };
    let old = Case::healthy().with(|e| e.temp = litter(&[]));
    old.has(Flag::TempLitter, "temp names are there");
    old.lacks(Flag::UnpublishedWrite, "none is newer than its target");
    let d = old.diagnose();
    let text = &d.findings.iter().find(|f| f.id == "temp-litter").expect("found").text;
    assert!(text.ends_with("9 bytes in the first 256"), "a part is told as a part: {text}");
    Case::healthy().with(|e| e.temp = litter(&["x"])).has(Flag::UnpublishedWrite, "one is newer");
    let asked = |case: Case| {
        case.with(|e| {
            e.control.pending = vec!["control/interrupt.json".to_owned()];
            e.control.oldest_ms = Some(T);
        })
        .at(5_000)
    };
    let text = |case: Case| {
        case.has(Flag::ControlPending, "nobody took it up");
        case.diagnose()
            .findings
            .into_iter()
            .find(|f| f.id == "control-pending")
            .expect("found")
            .text
    };
    assert!(text(asked(Case::healthy())).ends_with("the oldest 5 s old"), "with its age");
    let orphan = text(asked(Case::healthy().life(Liveness::Dead)));
    assert!(orphan.ends_with("nobody will read them"), "{orphan}");
    Case::healthy().lacks(Flag::ControlPending, "no request");
}

#[test]
fn a_marker_is_stale_when_the_proof_counts_or_after_a_day() {
    let marked = |case: Case, at| {
        case.with(|e| e.marker = MarkerFacts { index_exists: true, marker_mtime_ms: Some(at) })
    };
    marked(done(), T).has(Flag::MarkerStale, "the proof is in");
    let day = 86_400_000;
    let unproven = || Case::of(&ended("complete", ""));
    marked(unproven().at(day), T).lacks(Flag::MarkerStale, "24 h are inside");
    marked(unproven().at(day + 1), T).has(Flag::MarkerStale, "one more is not");
    marked(Case::of(&ended("paused", "")).at(day + 1), T)
        .has(Flag::MarkerStale, "paused is no work");
    marked(Case::healthy().at(day + 1), T).lacks(Flag::MarkerStale, "the run is active");
    done().lacks(Flag::MarkerStale, "no marker");
}

#[test]
fn a_marker_is_missing_when_an_active_run_is_not_in_an_index_that_exists() {
    let index = |case: Case, exists, at| {
        case.with(|e| e.marker = MarkerFacts { index_exists: exists, marker_mtime_ms: at })
    };
    index(Case::healthy(), true, None).has(Flag::MarkerMissing, "not in the index");
    index(Case::healthy(), true, Some(T)).lacks(Flag::MarkerMissing, "in the index");
    index(Case::healthy(), false, None).lacks(Flag::MarkerMissing, "there is no index");
    index(done(), true, None).lacks(Flag::MarkerMissing, "it has ended");
    let launch = Case::of(&launched("running", r#","pid":42"#));
    index(launch, true, None).lacks(Flag::MarkerMissing, "the launch is not over");
}

#[test]
fn loose_permissions_are_those_that_let_others_write() {
    for mode in [0o700, 0o755, 0o750, 0o1755] {
        Case::healthy().with(|e| e.dir_mode = mode).lacks(Flag::LoosePermissions, "only the owner");
    }
    for mode in [0o770, 0o777, 0o702] {
        Case::healthy().with(|e| e.dir_mode = mode).has(Flag::LoosePermissions, "others may write");
    }
    fn loosen<T>(fact: &mut FileFact<T>) {
        if let FileFact::Present(_, meta) = fact {
            meta.mode = 0o666;
        }
    }
    let full = || done().startup(r#"{"state":"ready"}"#).ack("ack").confirm().proceed();
    let rows: [Change; 7] = [
        |e| loosen(&mut e.status),
        |e| loosen(&mut e.proof),
        |e| loosen(&mut e.startup),
        |e| loosen(&mut e.ack),
        |e| loosen(&mut e.confirm),
        |e| loosen(&mut e.proceed),
        |e| e.events_mode = 0o622,
    ];
    full().lacks(Flag::LoosePermissions, "every file is the owner's");
    for loose in rows {
        full().with(loose).has(Flag::LoosePermissions, "others may write to a file");
    }
}

#[test]
fn a_fallback_root_and_a_shadow_are_flagged() {
    Case::healthy().lacks(Flag::SplitRoot, "the usual root");
    Case::healthy().lacks(Flag::Shadow, "one directory");
    let split = Case::healthy().with(|e| e.split_root = Some("runs-7".to_owned()));
    split.has(Flag::SplitRoot, "a fallback root");
    let shadow = Case::empty().with(|e| e.shadowed_by = Some("nested/r/run-1".to_owned()));
    shadow.has(Flag::Shadow, "the run is elsewhere");
}
