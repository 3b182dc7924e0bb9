//! Words beside the verdict: evidence of the process, dialects, next steps and prohibitions.

use super::super::super::verdict::Grade;
use super::*;

#[test]
fn only_what_this_look_saw_of_a_process_is_observed() {
    let rows = [
        (Liveness::Live, Grade::Observed),
        (Liveness::Dead, Grade::Observed),
        (Liveness::Reused, Grade::Inferred),
        (Liveness::Foreign, Grade::Inferred),
        (Liveness::Unknown, Grade::Inferred),
        (Liveness::NotRecorded, Grade::Claimed),
    ];
    for (word, grade) in rows {
        let d = Case::healthy().life(word).diagnose();
        let line = d.evidence.iter().find(|l| l.text.contains("the process is")).expect("a line");
        assert_eq!(line.grade, grade, "{word}");
    }
}

#[test]
fn the_liveness_of_a_run_that_has_ended_changes_no_verdict() {
    for word in Liveness::ALL {
        let done = Case::of(&ended("complete", "")).life(*word);
        done.at(60_001).is(Verdict::FinishedUnproven, "a missing process proves no end");
        let seen = Case::of(&ended("complete", "")).life(*word).proof(&observed());
        seen.is(Verdict::Finished, "and a stranger at its pid disproves none");
    }
}

#[test]
fn a_pid_that_is_not_proven_to_be_the_runs_is_never_signalled() {
    let forbidden =
        |case: Case| case.diagnose().must_not.iter().any(|m| m.contains("signal the recorded pid"));
    for word in [Liveness::Reused, Liveness::Foreign, Liveness::Unknown] {
        assert!(forbidden(Case::healthy().life(word)), "{word}, active");
        assert!(forbidden(Case::of(&ended("complete", "")).life(word)), "{word}, ended");
    }
    assert!(!forbidden(Case::healthy()), "a live process of its own");
    let shared = Case::healthy().with(|e| e.pid_shared_with = vec!["run-2".to_owned()]);
    assert!(forbidden(shared), "the host of several runs");
}

#[test]
fn every_verdict_that_asks_for_something_says_what_may_be_done() {
    let rows = [
        (Case::empty(), "look-again"),
        (Case::of(&launched("queued", "")).at(9_000_000), "check-launcher"),
        (Case::of(&launched("failed", r#","error":"e""#)), "report-start-failure"),
        (Case::empty().at(9_000_000), "launch-anew"),
        (Case::healthy().life(Liveness::Unknown), "verify-process"),
        (Case::healthy().life(Liveness::Dead), "close-as-failed"),
        (Case::of(&ended("complete", "")), "look-again"),
        (Case::of(&ended("paused", "")), "keep"),
        (Case::of(&ended("paused", "")).with(|e| e.session_file_exists = Some(true)), "resume"),
        (Case::of(&ended("complete", "")).at(60_001), "use-outcome"),
        (
            Case::of(&ended("complete", ""))
                .result(ResultPlace::Replay, &payload(false, "failed", "")),
            "decide",
        ),
        (Case::of("{"), "keep-for-repair"),
        (Case::of(&ended("new", "")), "upgrade"),
        (
            Case::empty().with(|e| e.unsafe_things.push((String::new(), "a link".to_owned()))),
            "examine-by-hand",
        ),
    ];
    for (case, action) in rows {
        let d = case.diagnose();
        assert_eq!(d.next.first().map(|n| n.action), Some(action), "{}", d.verdict);
    }
    assert!(Case::healthy().diagnose().next.is_empty(), "a healthy run needs nothing");
}

#[test]
fn a_launch_is_looked_at_again_when_its_own_time_is_over() {
    let rows = [
        (Case::empty(), "in 10 s"),
        (Case::of(&launched("queued", "")), "in 300 s"),
        (Case::of(&launched("running", r#","pid":42"#)), "in 30 s"),
        (Case::empty().startup(r#"{"state":"ready"}"#), "in 30 s"),
    ];
    for (case, when) in rows {
        let d = case.is(Verdict::Starting, "a launch");
        assert!(d.next[0].why.ends_with(when), "{when}: {}", d.next[0].why);
    }
}

#[test]
fn what_waits_is_named_as_a_next_step() {
    let actions = |case: Case| {
        let d = case.diagnose();
        d.next.iter().map(|n| n.action).collect::<Vec<_>>()
    };
    let done = Case::of(&ended("complete", "")).proof(&observed());
    let done = done.result(ResultPlace::Public, &payload(true, "complete", ""));
    assert_eq!(actions(done), ["deliver-result"], "an unread result");
    let hidden = Case::of(&begun("running", r#","displayDismissedAt":5"#)).life(Liveness::Dead);
    assert_eq!(actions(hidden), ["keep"], "a hidden run without a result is left alone");
    let hidden = Case::of(&begun("running", r#","displayDismissedAt":5"#)).life(Liveness::Dead);
    let hidden = hidden.result(ResultPlace::Replay, &payload(true, "complete", ""));
    assert_eq!(actions(hidden), ["adopt-result"], "one with a result is not");
}

#[test]
fn the_dialect_is_told_by_the_strongest_evidence_there_is() {
    let dialect = |case: Case| case.diagnose().dialect;
    let said = |state: &str| format!(r#"{{"state":"{state}","token":"t","pid":42}}"#);
    let rows = [
        ("p70+", Case::healthy().confirm()),
        ("p70+", Case::healthy().startup(&said("confirmed")).ack("ack")),
        ("p69", Case::healthy().startup(&said("confirmed")).ack("confirm")),
        ("p67-", Case::healthy().startup(&said("acknowledged")).ack("ack").proceed()),
        (
            "d4",
            Case::healthy().startup(&said("acknowledged")).proceed().with(|e| e.is_dm_store = true),
        ),
        ("unknown", Case::healthy().startup(&said("acknowledged")).ack("ack")),
        ("p77+", Case::of(&begun("running", "").replace(r#""pid""#, r#""runnerPid""#))),
        ("p72+", Case::of(&begun("running", r#","pidNamespaceScope":"pid:[1]""#))),
        (
            "p68+",
            Case::of(
                &begun("running", "").replace(r#""agent""#, r#""requestedModel":"m","agent""#),
            ),
        ),
        (
            "p67-",
            Case::of(
                &begun("running", "").replace(r#""agent""#, r#""attemptedModels":[],"agent""#),
            ),
        ),
        ("p34", Case::of(&begun("running", r#","lifecycleArtifactVersion":1"#))),
        ("p35-p36", Case::of(&begun("running", r#","lifecycleArtifactVersion":2"#))),
        ("p36-", Case::of(&begun("running", "").replace(r#""lifecycleArtifactVersion":3,"#, ""))),
        ("d", Case::healthy().with(|e| e.is_dm_store = true)),
        ("unknown", Case::healthy()),
        ("unknown", Case::empty()),
    ];
    for (at, (name, case)) in rows.into_iter().enumerate() {
        assert_eq!(dialect(case), name, "row {at}");
    }
    let writer = |kind: &str, tree: &str| {
        format!(
            r#"{{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{{"0":[
            {{"processInstanceId":"W","kind":"{kind}","attempt":0,"closeObservedAt":5,"exitCode":0,
            "signal":null{tree}}}]}},"expectedWriters":{{"0":1}}}}"#
        )
    };
    let tree = r#","processTree":{"state":"observed","mechanism":"posix-process-group","processGroupId":77,"verifiedAt":6}"#;
    let of = |kind, tree| dialect(Case::healthy().candidate(&writer(kind, tree)));
    assert_eq!(of("dm-writer", tree), "d4", "the kind of the writers");
    assert_eq!(of("pi-writer", tree), "p48-p49", "writers with their trees");
    assert_eq!(of("pi-writer", ""), "p43-p44", "writers without");
    let old = Case::of(&begun("running", r#","lifecycleArtifactVersion":2"#));
    assert_eq!(dialect(old.candidate(&writer("dm-writer", tree))), "d4", "writers before versions");
}

#[test]
fn an_active_run_says_since_when_nothing_shows_progress() {
    let said = |after| {
        let d = Case::healthy().at(after).diagnose();
        d.evidence
            .iter()
            .any(|l| l.text.starts_with("no evidence of progress") && l.at_ms == Some(T))
    };
    assert!(!said(300_000), "five minutes are ordinary");
    assert!(said(300_001), "after that the line tells the instant");
}
