//! Tests of the slot verdict: one row per rule.

use super::*;
use crate::protocol::proof::ProofReason;

fn owner(kind: SlotKind, instance: Option<&str>) -> SlotOwner {
    SlotOwner {
        reservation_token: "t".to_owned(),
        owner_session_id: "S".to_owned(),
        owner_session_key: "k".to_owned(),
        slot: 0,
        run_id: "r".to_owned(),
        generation: 0,
        kind,
        async_dir: "/runs/r".to_owned(),
        reserved_at_ms: 1,
        source_run_id: None,
        runner_instance_id: instance.map(str::to_owned),
        runner_started_at_ms: None,
    }
}

fn status(state: RunState) -> SlotStatus<'static> {
    SlotStatus {
        run_id: Some("r"),
        session_id: Some("S"),
        state: Open::Known(state),
        mode: Some(RunMode::Single),
        pid: Some(9.0),
        error: None,
        overlay: None,
        last_activity_ms: Some(0),
    }
}

fn evidence(status: Option<SlotStatus<'_>>) -> SlotEvidence<'_> {
    SlotEvidence {
        status,
        proof: None,
        pid_alive: Alive::No,
        abandoned_after_ms: Some(1_000),
        now_ms: 1_001,
        controller_live: false,
        children: &[],
    }
}

fn check(evidence: &SlotEvidence<'_>, rule: u8, release: bool) {
    let verdict = verdict(&owner(SlotKind::Runner, Some("i")), evidence);
    assert_eq!((verdict.rule, verdict.release), (rule, release), "{}", verdict.reason);
    assert_eq!(verdict.by_policy, rule == 14, "only row 14 rests on the policy");
}

#[test]
fn every_row_of_the_runner_table_decides_in_its_turn() {
    let failed = || status(RunState::Failed);
    check(&evidence(None), 1, false);
    let unbound = verdict(&owner(SlotKind::Runner, None), &evidence(Some(failed())));
    assert_eq!(unbound.rule, 2, "an unbound slot is retained");
    check(&evidence(Some(SlotStatus { session_id: Some("T"), ..failed() })), 3, false);
    check(&evidence(Some(SlotStatus { run_id: None, ..failed() })), 4, false);
    check(&evidence(Some(status(RunState::Paused))), 5, false);
    let mut overlay = Proof::unknown("r", "i", ProofReason::StaleRepair);
    overlay.state = ProofState::NotStarted;
    let started = SlotStatus { error: Some("e"), overlay: Some(&overlay), ..failed() };
    check(&evidence(Some(started)), 6, true);
    let observed = SlotEvidence { proof: Some(ProofState::Observed), ..evidence(Some(failed())) };
    check(&observed, 7, true);
    check(&SlotEvidence { abandoned_after_ms: None, ..evidence(Some(failed())) }, 8, false);
    check(&evidence(Some(status(RunState::Complete))), 9, false);
    check(&evidence(Some(SlotStatus { pid: Some(1.5), ..failed() })), 10, false);
    let unknown = SlotEvidence { pid_alive: Alive::Unknown, ..evidence(Some(failed())) };
    check(&unknown, 11, false);
    check(&evidence(Some(SlotStatus { last_activity_ms: None, ..failed() })), 12, false);
    check(&SlotEvidence { now_ms: 1_000, ..evidence(Some(failed())) }, 13, false);
    check(&evidence(Some(failed())), 14, true);
}

#[test]
fn a_pid_that_cannot_be_probed_never_releases() {
    check(&evidence(Some(SlotStatus { pid: Some(4e9), ..status(RunState::Failed) })), 11, false);
}

#[test]
fn a_strangers_state_is_no_end_whatever_is_proven() {
    let strange = SlotStatus { state: Open::read("frozen"), ..status(RunState::Failed) };
    let evidence = evidence(Some(strange));
    check(&evidence, 5, false);
    check(&SlotEvidence { proof: Some(ProofState::Observed), ..evidence }, 5, false);
}

#[test]
fn a_workflow_is_released_when_it_and_all_its_detached_steps_are_over() {
    let flow = |state| SlotStatus { mode: Some(RunMode::Workflow), ..status(state) };
    let over = ChildFacts {
        detached: Some(true),
        found: true,
        terminal: true,
        bound: true,
        failed_to_start: false,
        observed: true,
    };
    let inline = ChildFacts { detached: Some(false), found: false, ..over };
    let rows: &[(RunState, bool, &[ChildFacts], u8)] = &[
        (RunState::Complete, false, &[], 29),
        (RunState::Complete, false, &[over, inline], 29),
        (RunState::Running, false, &[], 25),
        (RunState::Paused, false, &[], 25),
        (RunState::Complete, true, &[], 26),
        (RunState::Complete, false, &[ChildFacts { detached: None, ..over }], 27),
        (RunState::Complete, false, &[ChildFacts { found: false, ..over }], 28),
        (RunState::Complete, false, &[ChildFacts { terminal: false, ..over }], 28),
        (RunState::Complete, false, &[ChildFacts { bound: false, ..over }], 28),
        (RunState::Complete, false, &[ChildFacts { observed: false, ..over }], 28),
    ];
    for (state, controller_live, children, rule) in rows {
        let facts = SlotEvidence {
            controller_live: *controller_live,
            children,
            ..evidence(Some(flow(*state)))
        };
        let verdict = verdict(&owner(SlotKind::Workflow, None), &facts);
        assert_eq!((verdict.rule, verdict.release), (*rule, *rule == 29), "{}", verdict.reason);
    }
}

#[test]
fn an_invalid_threshold_falls_back_and_false_turns_the_policy_off() {
    let read = |text| abandoned_after_ms(Some(Raw::parse(text).expect("parses")));
    assert_eq!(read("false"), None, "off");
    assert_eq!(read("300000"), Some(300_000), "the least");
    assert_eq!(read("86400000"), Some(86_400_000), "the most");
    for text in ["299999", "86400001", "true", "\"x\"", "null"] {
        assert_eq!(read(text), Some(limits::ABANDONED_SLOT_MS), "{text} falls back");
    }
    assert_eq!(abandoned_after_ms(None), Some(limits::ABANDONED_SLOT_MS), "the default");
}
