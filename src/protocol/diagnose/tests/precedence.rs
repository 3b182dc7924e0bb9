//! Of two verdicts that both fit the first of the contract's order wins.

use super::*;

fn link(e: &mut RunEvidence) {
    e.unsafe_things.push(("events.jsonl".to_owned(), "a symbolic link".to_owned()));
}

fn contradicted(case: Case) -> Case {
    case.result(ResultPlace::Public, &payload(false, "failed", ""))
}

const WRONG: &str = r#","startedAt":"yesterday""#;
const NEWER: &str = r#","lifecycleArtifactVersion":4"#;

#[test]
fn unsafe_goes_before_everything() {
    let cases = [
        ("corrupt", Case::of("{")),
        ("wrong types", Case::of(&ended("complete", WRONG))),
        ("unsupported", Case::of(&ended("complete", NEWER))),
        ("conflict", contradicted(Case::of(&ended("complete", "")))),
        ("finished", Case::of(&ended("complete", "")).proof(&observed())),
        ("running", Case::healthy()),
        ("no status", Case::empty()),
    ];
    for (what, case) in cases {
        case.with(link).is(Verdict::Unsafe, what);
    }
    let status = Case::empty().with(|e| e.status = FileFact::Unsafe("a pipe".to_owned()));
    status.is(Verdict::Unsafe, "a status that is no plain file");
    let whole = Case::empty().with(|e| e.unsafe_things.push((String::new(), "a link".to_owned())));
    assert!(whole.is(Verdict::Unsafe, "").because.starts_with("the run directory"), "named");
}

#[test]
fn corrupt_goes_before_unsupported_and_conflict() {
    Case::of(&ended("complete", &format!("{WRONG}{NEWER}"))).is(Verdict::Corrupt, "newer");
    Case::of(&ended("strange", WRONG)).is(Verdict::Corrupt, "an unknown state");
    contradicted(Case::of(&ended("complete", WRONG))).is(Verdict::Corrupt, "a conflict");
    contradicted(Case::of("{")).is(Verdict::Corrupt, "torn, with a result");
    Case::of("").is(Verdict::Corrupt, "empty");
    Case::of("[]").is(Verdict::Corrupt, "no object");
    Case::of("\u{feff}{}").is(Verdict::Corrupt, "a byte-order mark");
    Case::of(&"\0".repeat(64)).is(Verdict::Corrupt, "zero-filled");
    Case::of("{}").is(Verdict::Corrupt, "no state");
    let unreadable = Case::empty().with(|e| e.status = FileFact::Unreadable("denied".to_owned()));
    unreadable.is(Verdict::Corrupt, "unreadable");
}

#[test]
fn every_member_that_decides_something_must_have_its_type() {
    let texts = [
        begun("running", "").replace(":42", r#":"42""#),
        begun("running", r#","endedAt":"2026-01-01""#),
        begun("running", r#","steps":{}"#),
        begun("running", r#","sessionId":7"#),
        begun("running", "")
            .replace(r#""running","startedAt":1790000000000,"last"#, r#"true,"last"#),
        begun("running", r#","lifecycleArtifactVersion":"3""#),
    ];
    for text in texts {
        let d = Case::of(&text).is(Verdict::Corrupt, &text);
        assert!(d.findings.iter().any(|f| f.id == "status-wrong-type"), "named: {text}");
    }
}

#[test]
fn unsupported_goes_before_conflict_and_the_rest() {
    for text in [ended("complete", NEWER), ended("exploded", ""), ended("Complete", "")] {
        Case::of(&text).is(Verdict::Unsupported, "a word or version of the future");
        contradicted(Case::of(&text)).is(Verdict::Unsupported, "also in a conflict");
        Case::of(&text).proof(&observed()).is(Verdict::Unsupported, "also with a proof");
        Case::of(&text).life(Liveness::Dead).is(Verdict::Unsupported, "also with a dead process");
    }
    Case::of(&begun("complet", "")).is(Verdict::Unsupported, "never matched by prefix");
}

#[test]
fn conflict_goes_before_the_rest() {
    contradicted(Case::of(&ended("complete", ""))).is(Verdict::Conflict, "settling");
    contradicted(Case::of(&ended("complete", "")).proof(&observed()))
        .is(Verdict::Conflict, "finished");
    contradicted(Case::of(&ended("complete", "")).at(60_001)).is(Verdict::Conflict, "unproven");
    let start = launched("failed", r#","error":"e""#);
    Case::of(&start)
        .result(ResultPlace::Public, &payload(true, "complete", ""))
        .is(Verdict::Conflict, "a failed start with a success");
    let log = COMPLETED.replace("complete\"", "failed\"");
    Case::healthy()
        .events(&log)
        .result(ResultPlace::Public, &payload(true, "complete", ""))
        .is(Verdict::Conflict, "an active status, of which two others tell the end");
}

#[test]
fn records_that_agree_or_tell_no_outcome_are_no_conflict() {
    let done = || Case::of(&ended("complete", "")).proof(&observed());
    let rows = [
        ("the same outcome", payload(true, "complete", "")),
        ("an interruption, after which more may come", payload(false, "paused", "")),
        ("no outcome", r#"{"id":"run-1","sessionId":"S"}"#.to_owned()),
        ("not readable", "{".to_owned()),
        ("another run's", payload(false, "failed", "").replace("run-1", "run-2")),
    ];
    for (what, text) in rows {
        done().result(ResultPlace::Public, &text).is(Verdict::Finished, what);
    }
    done().events(COMPLETED).is(Verdict::Finished, "the log agrees");
    let differs = overlay(&proof("pending", ""));
    Case::of(&ended("complete", &differs)).proof(&observed()).is(Verdict::Finished, "a copy lags");
}

#[test]
fn the_better_evidence_is_the_runners_own_and_of_equals_the_one_that_says_most() {
    let preferred = |case: Case| case.is(Verdict::Conflict, "two outcomes").preferred;
    let repaired = overlay(&proof("unknown", r#","reason":"stale-repair""#));
    let unavailable = proof("unknown", "").replace("\"i\"", "\"observer-unavailable\"");
    let success = payload(true, "complete", "");
    let failure = payload(false, "failed", "");
    let of = |state: &str, more: &str| Case::of(&ended(state, more));
    assert_eq!(preferred(of("complete", "").result(ResultPlace::Public, &failure)), Some("result"));
    assert_eq!(
        preferred(of("failed", &repaired).result(ResultPlace::Public, &success)),
        Some("result"),
        "the runner's result before a repaired status"
    );
    assert_eq!(preferred(of("failed", &repaired).events(COMPLETED)), Some("events"));
    assert_eq!(preferred(of("failed", &overlay(&unavailable)).events(COMPLETED)), Some("events"));
    assert_eq!(preferred(of("failed", "").events(COMPLETED)), Some("status"), "more than a remark");
    let both = of("failed", &repaired).result(ResultPlace::Public, &failure).events(COMPLETED);
    assert_eq!(preferred(both), Some("events"), "status and result are of one repair");
    let signed = format!("{{\"type\":\"subagent.run.repaired_stale\",\"ts\":1}}\n{COMPLETED}");
    assert_eq!(preferred(of("failed", "").events(&signed)), Some("events"), "the log signs it");
    let later = payload(false, "failed", "").replace(&T.to_string(), "5");
    assert_eq!(
        preferred(of("complete", "").events(&signed).result(ResultPlace::Replay, &later)),
        Some("result"),
        "an outcome other than failed is the runner's own, written over the repair"
    );
}

// RS-PROOF-16: a witness names the runner that it came too late for, and repairs nothing.
#[test]
fn an_end_that_nobody_saw_makes_no_repair_of_the_runners_own_account() {
    let unseen = overlay(&proof("unknown", r#","reason":"observer-unavailable""#));
    let own = Case::of(&ended("failed", &unseen));
    assert!(!own.diagnose().has(Flag::Repaired), "the runner told it");
    let d = own.events(COMPLETED).is(Verdict::Conflict, "two outcomes");
    assert_eq!(d.preferred, Some("status"), "more than a remark");
}

#[test]
fn the_directory_is_the_identity_and_duplicates_take_the_last() {
    let other = ended("complete", "").replace("run-1", "run-2");
    let d = Case::of(&other).proof(&observed()).is(Verdict::Finished, "by the directory's name");
    assert!(d.findings.iter().any(|f| f.id == "run-id-differs"), "a finding");
    let twice = ended("failed", r#","state":"complete""#);
    let d = Case::of(&twice).proof(&observed()).is(Verdict::Finished, "the last wins");
    assert!(d.findings.iter().any(|f| f.id == "duplicate-keys"), "a warning");
    assert!(d.must_not.iter().any(|m| m.contains("duplicate keys")), "read-only");
}

#[test]
fn hiding_and_nesting_change_no_verdict() {
    let hidden = r#","displayDismissedAt":5"#;
    let d = Case::of(&begun("running", hidden)).life(Liveness::Dead);
    let d = d.is(Verdict::Orphaned, "hidden or not");
    assert!(d.findings.iter().any(|f| f.id == "dismissed"), "a note");
    Case::healthy().with(|e| e.is_nested = true).is(Verdict::Running, "by its own process");
    let nested = Case::healthy().life(Liveness::Dead).with(|e| e.is_nested = true);
    nested.is(Verdict::Orphaned, "by its own process");
}
