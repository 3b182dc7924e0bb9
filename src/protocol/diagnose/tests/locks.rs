//! Leases and capacity slots, as far as a run's report speaks of them.

use super::super::super::evidence::{
    ChildFact, Keepers, LaunchFact, LeaseFact, ObserverFact, SlotFact,
};
use super::super::super::lease::{LeaseOwner, WriterState};
use super::super::super::slot::SlotOwner;
use super::*;

/// A lease for the run; `held` says why nobody may reclaim it.
pub(super) fn lease(held: Option<&str>) -> LeaseFact {
    let owner = LeaseOwner {
        token: "t".to_owned(),
        canonical_session_file: "/s.jsonl".to_owned(),
        run_id: ID.to_owned(),
        source_run_id: "run-0".to_owned(),
        parent_session_id: None,
        pid: 42,
        hostname: "h".to_owned(),
        process_start_identity: None,
        writer_state: WriterState::None,
        writer_pid: None,
        writer_process_start_identity: None,
        acquired_at: String::new(),
        acquired_at_ms: T,
        updated_at_ms: T,
        boot_id: None,
        pid_namespace: None,
        pidfd_inode: None,
    };
    LeaseFact { path: "leases/x".to_owned(), owner, held_because: held.map(str::to_owned) }
}

fn slot(kind: &str) -> SlotFact {
    let text = format!(
        r#"{{"version":1,"reservationToken":"t","ownerSessionId":"S","ownerSessionKey":"k","slot":0,
        "runId":"run-1","generation":0,"kind":"{kind}","asyncDir":"/r","reservedAt":{T},
        "runnerProcessInstanceId":"i"}}"#
    );
    let doc = Document::parse(&text).expect("valid");
    let owner = SlotOwner::read(&doc).expect("valid");
    SlotFact { path: "pool/slot-0".to_owned(), owner, claimed: false }
}

fn holding(case: Case, kind: &str) -> Case {
    case.with(|e| e.slots.push(slot(kind)))
}

#[track_caller]
fn released(case: Case, yes: bool, rule: &str) {
    let d = case.diagnose();
    assert_eq!(d.has(Flag::SlotReleasable), yes, "releasable: {rule}");
    assert_eq!(d.has(Flag::SlotRetained), !yes, "retained: {rule}");
}

#[test]
fn a_lease_that_names_the_run_is_held_also_when_it_outlived_its_owner() {
    Case::healthy().lacks(Flag::LeaseHeld, "none");
    let held = Case::healthy().with(|e| e.leases = vec![lease(Some("its owner lives"))]);
    held.has(Flag::LeaseHeld, "held");
    let stale = Case::healthy().with(|e| e.leases = vec![lease(None)]);
    stale.has(Flag::LeaseHeld, "the record is still there");
    assert!(stale.diagnose().findings.iter().any(|f| f.id == "lease-stale"), "and said so");
}

#[test]
fn a_slot_is_news_only_when_its_run_is_not_under_way() {
    let under_way = [
        Case::healthy(),
        Case::healthy().life(Liveness::Unknown),
        Case::of(&launched("queued", "")),
        Case::of(&launched("queued", "")).at(9_000_000),
    ];
    for case in under_way {
        let d = holding(case, "runner").diagnose();
        assert!(!d.has(Flag::SlotRetained) && !d.has(Flag::SlotReleasable), "{}", d.verdict);
    }
    released(holding(Case::healthy().life(Liveness::Dead), "runner"), false, "an orphan keeps it");
    released(holding(Case::of("{"), "runner"), false, "a damaged status keeps it");
    released(holding(Case::of(&ended("paused", "")), "runner"), false, "a pause keeps it");
    done_lacks();
}

fn done_lacks() {
    let done = Case::of(&ended("complete", "")).proof(&observed());
    done.lacks(Flag::SlotRetained, "it has no slot");
    done.lacks(Flag::SlotReleasable, "it has no slot");
}

#[test]
fn a_runners_slot_is_released_by_proof_by_a_failed_start_and_by_policy() {
    let end = |state: &str| Case::of(&ended(state, ""));
    released(holding(end("complete").proof(&observed()), "runner"), true, "observed");
    released(holding(end("complete").at(9_000_000), "runner"), false, "success without a proof");
    let other = observed().replace("\"i\"", "\"j\"");
    released(holding(end("failed").proof(&other), "runner"), false, "another runner's proof");
    let claim = Case::of(&ended("complete", &overlay(&observed())));
    released(holding(claim, "runner"), false, "the copy of a proof frees nothing");
    let start =
        launched("failed", &format!(r#","error":"e"{}"#, overlay(&proof("not-started", ""))));
    released(holding(Case::of(&start), "runner"), true, "it never started");
    let silent = |word, after| holding(end("failed").life(word).at(after), "runner");
    released(silent(Liveness::Dead, 1_200_000), false, "20 min are inside");
    released(silent(Liveness::Dead, 1_200_001), true, "one more is not");
    released(silent(Liveness::Reused, 1_200_001), true, "a reused pid is a process that is gone");
    for word in [Liveness::Live, Liveness::Unknown, Liveness::Foreign, Liveness::NotRecorded] {
        released(silent(word, 9_000_000), false, "it may live");
    }
    let off = silent(Liveness::Dead, 9_000_000).with(|e| e.times.abandoned_slot_ms = None);
    released(off, false, "the policy is off");
}

fn kept(launcher_gone: bool, instance: &str, observer: ObserverFact) -> Keepers {
    let launch = Some(LaunchFact { instance_id: instance.to_owned(), launcher_gone });
    Keepers { launch, observer }
}

/// Covers RS-SLOT-19.
#[test]
fn a_slot_whose_launcher_died_before_it_recorded_a_process_is_released() {
    let none = ObserverFact::NotRecorded;
    let start = |keepers| {
        let case = Case::empty().at(9_000_000).with(|e| e.has_protocol_files = true);
        holding(case, "runner").with(|e| e.keepers = keepers)
    };
    released(start(kept(true, "i", none)), true, "nobody is left who could let it in");
    released(start(kept(true, "i", ObserverFact::Gone)), true, "nor its observer");
    released(start(Keepers::default()), false, "nobody knows who launched it");
    released(start(kept(false, "i", none)), false, "its launcher may live");
    released(start(kept(true, "j", none)), false, "that was another launch");
    released(start(kept(true, "i", ObserverFact::MayLive)), false, "its observer knows more");
    let worked = start(kept(true, "i", none)).with(|e| e.output_bytes = 1);
    released(worked, false, "its status was lost");
    let damaged = holding(Case::of("{"), "runner").with(|e| e.keepers = kept(true, "i", none));
    released(damaged, false, "there was a status");
}

/// Covers RS-SLOT-20.
#[test]
fn a_slot_whose_observer_died_is_released_by_policy_after_the_silence() {
    let end = |after| {
        let case = Case::of(&ended("complete", "")).life(Liveness::Dead).at(after);
        let observer = ObserverFact::Gone;
        holding(case, "runner").with(|e| e.keepers = Keepers { observer, launch: None })
    };
    released(end(1_200_000), false, "20 min are inside");
    released(end(1_200_001), true, "one more is not");
    released(end(9_000_000).proof(&proof("pending", "")), true, "pending for ever");
    let unseen = proof("unknown", r#","reason":"observer-unavailable""#);
    released(end(9_000_000).proof(&unseen), true, "nobody saw it");
    let left = proof("unknown", r#","reason":"writer-close-unverified""#);
    released(end(9_000_000).proof(&left), false, "something may be left");
    released(end(9_000_000).life(Liveness::Unknown), false, "it may live");
    for observer in [ObserverFact::NotRecorded, ObserverFact::MayLive] {
        let case = end(9_000_000).with(|e| e.keepers.observer = observer);
        released(case, false, "it is no run whose observer died");
    }
    let off = end(9_000_000).with(|e| e.times.abandoned_slot_ms = None);
    released(off, false, "the policy is off");
}

#[test]
fn a_claimed_slot_stays_and_of_several_slots_the_worse_decides() {
    let done = || Case::of(&ended("complete", "")).proof(&observed());
    let claimed = holding(done(), "runner").with(|e| e.slots[0].claimed = true);
    released(claimed, false, "a claim freezes it");
    let two = holding(holding(done(), "runner"), "runner").with(|e| e.slots[1].claimed = true);
    released(two, false, "one of them stays");
}

const CHILD: &str = r#"{"agent":"a","status":"complete","async":true,"runId":"run-2"}"#;

fn flow(steps: &str) -> Case {
    let text = format!(
        r#"{{"runId":"run-1","sessionId":"S","mode":"workflow","state":"complete","startedAt":{T},
        "lastUpdate":{T},"endedAt":{T},"pid":42,"steps":[{steps}]}}"#
    );
    holding(Case::of(&text).life(Liveness::Dead), "workflow")
}

fn child() -> ChildFact {
    ChildFact {
        run_id: "run-2".to_owned(),
        found: true,
        has_status: true,
        state: Some("complete".to_owned()),
        has_ended: true,
        bound: true,
        failed_to_start: false,
        observed: true,
    }
}

fn flow_with(change: impl FnOnce(&mut ChildFact)) -> Case {
    let mut fact = child();
    change(&mut fact);
    flow(CHILD).with(|e| e.children = vec![fact])
}

#[test]
fn a_workflows_slot_is_released_when_it_and_every_run_of_its_steps_are_over() {
    let inline = r#"{"agent":"a","status":"complete","async":false}"#;
    released(flow(""), true, "it has no steps");
    released(flow(inline), true, "its steps ran in the host");
    released(flow_with(|_| {}), true, "its run ended and was seen to");
    let failed = |c: &mut ChildFact| (c.observed, c.failed_to_start) = (false, true);
    released(flow_with(failed), true, "its run never started");
    released(flow(CHILD), false, "a run that was not looked at keeps it");
    released(flow(&inline.replace("false", "\"no\"")), false, "a step that does not say");
    released(flow(r#"{"agent":"a","status":"complete"}"#), false, "a step that does not say");
    released(flow(r#"{"agent":"a","status":"complete","async":true}"#), false, "a step without id");
    let rows: [fn(&mut ChildFact); 4] =
        [|c| c.found = false, |c| c.has_ended = false, |c| c.bound = false, |c| c.observed = false];
    for change in rows {
        released(flow_with(change), false, "one condition is not met");
    }
}

#[test]
fn a_workflows_slot_stays_while_its_controller_may_live() {
    for word in [Liveness::Live, Liveness::Unknown, Liveness::Foreign, Liveness::NotRecorded] {
        released(flow("").life(word), false, "unknown is never dead");
    }
    released(flow("").life(Liveness::Reused), true, "its host is gone");
}

#[test]
fn an_abandoned_workflow_names_what_its_steps_left() {
    let text = begun("running", "").replace("single", "workflow");
    let orphan = |fact: ChildFact| {
        let case = Case::of(&text).life(Liveness::Dead).with(|e| e.children = vec![fact]);
        let d = case.is(Verdict::Orphaned, "its host is gone");
        d.evidence.iter().find(|l| l.text.contains("run-2")).expect("a line").text.clone()
    };
    assert!(orphan(child()).ends_with("end was observed: salvageable"), "an end is salvageable");
    let open = ChildFact { state: Some("running".to_owned()), has_ended: false, ..child() };
    assert!(orphan(open).ends_with("'running'"), "an open one is only named");
    let bare = ChildFact { run_id: "run-2".to_owned(), found: true, ..ChildFact::default() };
    assert!(orphan(bare.clone()).ends_with("it never started"), "one without a status");
    let none = ChildFact { found: false, ..bare };
    assert!(orphan(none).ends_with("no directory here"), "one without a directory");
}
