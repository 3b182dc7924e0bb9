//! Ends, their proofs, pauses, and what can be resumed.

use super::super::super::evidence::{Keepers, LaunchFact, ObserverFact};
use super::super::finding;
use super::*;

#[test]
fn an_end_with_a_proof_that_counts_is_finished_at_once() {
    for state in ["complete", "failed", "partial", "stopped", "rejected"] {
        let case = Case::of(&ended(state, "")).proof(&observed());
        let d = case.is(Verdict::Finished, state);
        assert!(d.proof.counts, "the proof counts");
        case.lacks(Flag::ResultMissing, "delivery deletes results");
    }
}

#[test]
fn an_end_without_a_proof_settles_for_a_minute_after_it() {
    let pending = proof("pending", "");
    let cases = [("missing", None), ("pending", Some(&pending))];
    for (word, text) in cases {
        let case = || {
            let case = Case::of(&ended("complete", ""));
            text.map_or(Case::of(&ended("complete", "")), |text| case.proof(text))
        };
        let d = case().at(60_000).is(Verdict::Settling, "60 s are inside");
        assert_eq!((d.proof.state, d.proof.counts), (word, false), "what is known");
        case().at(60_001).is(Verdict::FinishedUnproven, "one more is not");
    }
}

#[test]
fn settling_counts_from_the_end_else_the_last_update_and_never_from_a_file() {
    let unended = begun("complete", "");
    Case::of(&unended).at(60_000).is(Verdict::Settling, "lastUpdate stands in");
    Case::of(&unended).at(60_001).is(Verdict::FinishedUnproven, "lastUpdate stands in");
    let later = begun("complete", &format!(r#","endedAt":{}"#, T - 60_001));
    Case::of(&later).is(Verdict::FinishedUnproven, "endedAt goes before lastUpdate");
    let timeless = unended.replace(&format!(r#""lastUpdate":{T},"#), "");
    Case::of(&timeless).is(Verdict::FinishedUnproven, "the file's time plays no part");
}

#[test]
fn an_end_whose_proof_will_never_count_is_unproven_at_once() {
    let strange = observed().replace("\"i\"", "\"other\"");
    let named = overlay(&proof("pending", ""));
    let cases = [
        ("unknown", ended("complete", ""), proof("unknown", r#","reason":"stale-repair""#)),
        ("of another runner", ended("complete", &named), strange),
        ("of another run", ended("complete", ""), observed().replace("run-1", "run-2")),
        (
            "pending of another run",
            ended("complete", ""),
            proof("pending", "").replace("run-1", "r"),
        ),
        ("invalid", ended("complete", ""), "{\"version\":2}".to_owned()),
        ("torn", ended("complete", ""), "{".to_owned()),
        ("empty", ended("complete", ""), String::new()),
    ];
    for (what, status, proof) in cases {
        let d = Case::of(&status).proof(&proof).is(Verdict::FinishedUnproven, what);
        assert!(!d.proof.counts, "{what} does not count");
        assert!(d.proof.reason.is_some(), "{what} has its reason");
    }
}

#[test]
fn the_repairers_word_that_nobody_observes_ends_the_settling() {
    let repaired = overlay(&proof("unknown", r#","reason":"stale-repair""#));
    let case = Case::of(&ended("failed", &repaired)).proof(&proof("pending", ""));
    case.is(Verdict::FinishedUnproven, "the observer is gone");
}

#[test]
fn a_proof_counts_when_it_names_this_run_and_the_runner_of_status_and_candidate() {
    let candidate = |run: &str, instance: &str| {
        format!(
            r#"{{"version":1,"runId":"{run}","runnerProcessInstanceId":"{instance}","writers":{{}}}}"#
        )
    };
    let counts = |case: Case| case.diagnose().proof.counts;
    let base = || Case::of(&ended("complete", "")).proof(&observed());
    assert!(counts(base()), "nobody contradicts it");
    assert!(counts(base().candidate(&candidate("run-1", "i"))), "the candidate agrees");
    assert!(!counts(base().candidate(&candidate("run-1", "j"))), "it names another runner");
    assert!(!counts(base().candidate(&candidate("run-2", "i"))), "it names another run");
    let with = |text: &str| Case::of(&ended("complete", &overlay(text))).proof(&observed());
    assert!(counts(with(&proof("pending", ""))), "the status names the same runner");
    assert!(!counts(with(&proof("pending", "").replace("\"i\"", "\"j\""))), "it names another");
    let gone = proof("unknown", "").replace("\"i\"", "\"observer-unavailable\"");
    assert!(counts(with(&gone)), "a repairer's placeholder names nobody");
    let claim = Case::of(&ended("complete", &overlay(&observed())));
    let d = claim.diagnose();
    assert!(!d.proof.counts, "without the sidecar the copy is a claim");
    assert_eq!(d.proof.state, "observed", "and is shown as what it says");
    assert!(!counts(base().proof(&proof("observed", ""))), "observed needs its witness");
    assert!(counts(Case::empty().proof(&observed())), "no status contradicts it");
    assert!(counts(Case::healthy().proof(&observed())), "it is judged apart from the state");
}

#[test]
fn a_failed_start_is_told_by_its_four_marks_also_with_an_observed_proof() {
    let failed = || launched("failed", r#","pid":42,"error":"no lease\nmore""#);
    let d = Case::of(&failed()).at(9_000_000).is(Verdict::StartFailed, "all four");
    assert_eq!(d.because, "the start-up failure is recorded: no lease");
    let seen = Case::of(&failed()).proof(&observed()).at(9_000_000);
    assert!(seen.is(Verdict::StartFailed, "also with a proof").proof.counts, "which still counts");
    Case::of(&failed()).at(9_000_000).lacks(Flag::ResultMissing, "it writes no result");
    let rows = [
        failed().replace(r#","error":"no lease\nmore""#, ""),
        failed().replace("pending", "failed"),
        failed().replace(r#","pid""#, &format!(r#","endedAt":{T},"pid""#)),
        failed().replace(r#""state":"failed""#, r#""state":"stopped""#),
    ];
    for status in rows {
        Case::of(&status).at(9_000_000).is(Verdict::FinishedUnproven, "three marks are too few");
    }
}

#[test]
fn a_proof_not_started_is_a_failed_start() {
    let not = overlay(&proof("not-started", ""));
    for state in ["failed", "stopped", "rejected", "partial"] {
        Case::of(&ended(state, &not)).is(Verdict::StartFailed, "by the copy");
    }
    let sidecar = Case::of(&ended("failed", "")).proof(&proof("not-started", ""));
    sidecar.is(Verdict::StartFailed, "by the sidecar");
    let d = Case::of(&ended("complete", &not)).is(Verdict::Conflict, "success without a start");
    assert_eq!(d.preferred, Some("status"));
}

#[test]
fn an_unconfirmed_pause_is_orphaned_when_its_process_is_gone() {
    let pause = || Case::of(&begun("paused", "")).with(|e| e.session_file_exists = Some(true));
    for word in [Liveness::Dead, Liveness::Reused] {
        pause().life(word).is(Verdict::Orphaned, "interrupted, then gone");
    }
    for word in [Liveness::Live, Liveness::Unknown, Liveness::Foreign, Liveness::NotRecorded] {
        let d = pause().life(word).is(Verdict::Paused, "else it is paused");
        let why = (false, "the pause is not confirmed");
        assert_eq!(d.resumable, Some(why), "and not resumable yet");
    }
}

#[test]
fn a_confirmed_pause_stays_paused_whatever_its_process_and_proof() {
    for word in Liveness::ALL {
        Case::of(&ended("paused", "")).life(*word).is(Verdict::Paused, "confirmed");
    }
    Case::of(&ended("paused", "")).proof(&observed()).is(Verdict::Paused, "with a proof");
    Case::of(&ended("paused", "")).at(9_000_000).lacks(Flag::ResultMissing, "it has not ended");
}

#[test]
fn a_run_is_resumable_only_when_everything_for_it_is_there_now() {
    let ready = |status: &str| {
        Case::of(status).proof(&observed()).with(|e| {
            e.session_file_exists = Some(true);
            e.cwd_exists = Some(true);
        })
    };
    let answer = |case: Case| case.diagnose().resumable.map(|(yes, _)| yes);
    let complete = ended("complete", "");
    assert_eq!(answer(ready(&ended("paused", ""))), Some(true), "a pause");
    assert_eq!(answer(ready(&complete)), Some(true), "an end");
    let unproven = ready(&complete).with(|e| e.proof = FileFact::Absent).at(60_001);
    assert_eq!(answer(unproven), Some(true), "an end without a proof");
    assert_eq!(answer(ready(&ended("stopped", ""))), Some(false), "never a stopped run");
    let rows: [(&str, Change); 4] = [
        ("no session file is named", |e| e.session_file_exists = None),
        ("the session file is gone", |e| e.session_file_exists = Some(false)),
        ("the working directory is gone", |e| e.cwd_exists = Some(false)),
        ("its session is leased", |e| e.leases = vec![super::locks::lease(Some("held"))]),
    ];
    for (what, change) in rows {
        assert_eq!(answer(ready(&complete).with(change)), Some(false), "{what}");
        assert_eq!(answer(ready(&ended("paused", "")).with(change)), Some(false), "{what}");
    }
    let stale = ready(&complete).with(|e| e.leases = vec![super::locks::lease(None)]);
    assert_eq!(answer(stale), Some(true), "a lease that outlived its owner is reclaimed");
    let never = proof("observed", &format!(r#"{SEEN},"resumeDisposition":"non-resumable""#));
    assert_eq!(answer(ready(&complete).proof(&never)), Some(false), "ruled out for good");
    let then = proof("observed", &format!(r#"{SEEN},"resumeDisposition":"unavailable""#));
    assert_eq!(answer(ready(&complete).proof(&then)), Some(true), "what was gone may be back");
    assert_eq!(answer(Case::healthy()), None, "no question while it runs");
}

#[test]
fn an_observed_proof_says_that_it_covers_process_groups_and_no_more() {
    let writer = r#",{"processInstanceId":"W","kind":"pi-writer","attempt":0,"closeObservedAt":5,"exitCode":0,
        "signal":null,"processTree":{"state":"observed","mechanism":"posix-process-group","processGroupId":77,
        "verifiedAt":6}}]"#;
    let says = |proof: &str| {
        let d = Case::of(&ended("complete", "")).proof(proof).diagnose();
        assert!(d.proof.counts, "{:?}", d.proof);
        d.evidence.iter().any(|line| line.text.contains("nothing outside of that group"))
    };
    let with_group = observed().replace("]}", &format!("{writer}}}"));
    assert!(says(&with_group), "{with_group}");
    assert!(!says(&observed()), "there was no group");
}

#[test]
fn a_pending_proof_that_nobody_can_make_any_more_is_told() {
    let told = |state: &str, launcher_gone, instance: &str, observer| {
        let launch = LaunchFact { instance_id: instance.to_owned(), launcher_gone };
        let keepers = Keepers { launch: Some(launch), observer };
        let case = Case::of(&begun("running", "")).proof(&proof(state, ""));
        let d = case.with(|e| e.keepers = keepers).diagnose();
        d.findings.iter().any(|found| found.id == finding::END_UNOBSERVABLE.id)
    };
    assert!(told("pending", true, "i", ObserverFact::NotRecorded), "its launcher is gone");
    assert!(told("pending", false, "i", ObserverFact::Gone), "its observer is gone");
    assert!(!told("pending", true, "i", ObserverFact::MayLive), "its observer may live");
    assert!(!told("pending", false, "i", ObserverFact::NotRecorded), "its launcher lives");
    assert!(!told("pending", true, "other", ObserverFact::NotRecorded), "another launch");
    assert!(!told("unknown", true, "i", ObserverFact::NotRecorded), "nothing is waited for");
}
