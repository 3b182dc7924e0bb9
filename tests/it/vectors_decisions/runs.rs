//! The two decisions about a whole run: how its end is sealed, and how a dead one is repaired.

use runstore::protocol::candidate::{Candidate, Instance};
use runstore::protocol::finalize::{
    self, CandidateFound, FinalizeEvidence, SessionLease, StepSeen,
};
use runstore::protocol::lease::LeaseOwner;
use runstore::protocol::proof::{Proof, ProofReason};
use runstore::protocol::reconcile::{
    self, Found, ReconcileEvidence, StartHint, StatusSeen, Written,
};
use runstore::protocol::{Open, Raw, Word as _};
use serde_json::{Value, json};

use super::proofs::{known_proof, proof_json, read_proof};
use super::{Vector, alive_word, bytes_of, check, intact, keep, parse, string, text_of};

fn finalize_ours(vector: &Vector) -> Value {
    let input = &vector.input;
    let exists = |file: Option<&str>| {
        let files = input["existingSessionFiles"].as_array().expect("a list");
        file.is_some_and(|file| files.iter().any(|known| known == file))
    };
    let run_id = string(&input["runId"]);
    let close = &input["close"];
    let runner = format!("{{\"kind\":\"runner\",{}", &close.to_string()[1..]);
    let close = Instance::read(Raw::parse(&runner).expect("JSON"), "close").expect("a close");
    let expect = json!({ "runId": run_id, "runnerProcessInstanceId": close.id });
    let existing = read_proof(&input["existingProof"], &expect);
    let read = bytes_of(&input["candidate"]).map(|bytes| parse(&bytes, Candidate::read));
    let candidate = match &read {
        None => CandidateFound::Missing,
        Some(Err(_)) => CandidateFound::Invalid("it cannot be read"),
        Some(Ok(candidate)) => CandidateFound::Found(candidate),
    };
    let readable = read.as_ref().and_then(|read| read.as_ref().ok());
    let named = readable.and_then(|candidate| candidate.session_file.as_deref());
    let lease = match &input["lease"] {
        _ if named.is_some() && !exists(named) => SessionLease::Unresolvable("no such file"),
        Value::String(free) if free == "free" => SessionLease::Free,
        lease if lease.get("owner").is_some() => {
            let owner = lease["owner"].to_string();
            parse(owner.as_bytes(), LeaseOwner::read).expect("a readable owner");
            SessionLease::Owned
        }
        _ => SessionLease::Unreadable,
    };
    let status = intact(&input["status"]);
    let status_session = status.and_then(|status| status["sessionFile"].as_str());
    let decision = finalize::decide(&FinalizeEvidence {
        run_id: &run_id,
        close: &close,
        existing: existing.as_ref(),
        candidate,
        lease,
        status_state: status.and_then(|status| status["state"].as_str()),
        session_exists: exists(named.or(status_session)),
        trouble: None,
    });
    let session = decision.canonical_session.map(|session| match session.released {
        true => json!({
            "leaseDisposition": "released", "freeAtObservation": true,
            "canonicalSessionLeaseReleased": true,
        }),
        false => json!({ "leaseDisposition": "not-held", "freeAtObservation": true }),
    });
    let steps = status.filter(|_| decision.write).map_or_else(Vec::new, |status| {
        let steps = status["steps"].as_array().cloned().unwrap_or_default();
        let seen: Vec<_> = steps
            .iter()
            .map(|step| StepSeen {
                state: step["status"].as_str(),
                session_exists: exists(step["sessionFile"].as_str().or(named)),
            })
            .collect();
        finalize::step_overlays(&decision.proof, readable, &seen).iter().map(proof_json).collect()
    });
    json!({
        "proof": proof_json(&decision.proof),
        "session": session,
        "write": decision.write,
        "keepsIndex": !decision.releases_index(),
        "steps": steps,
    })
}

#[test]
fn every_run_is_finalised_as_recorded() {
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        let session = expected["proof"].get("canonicalSession").map(|session| {
            let keys = ["leaseDisposition", "freeAtObservation", "canonicalSessionLeaseReleased"];
            Value::from(keep(session, &keys))
        });
        // One event per finalisation that wrote; an existing final proof adds none.
        let write = expected["events"].as_array().is_some_and(|events| !events.is_empty());
        let steps = expected["statusSteps"].as_array().cloned().unwrap_or_default();
        let steps: Vec<_> = steps.iter().filter(|step| !step.is_null()).map(known_proof).collect();
        json!({
            "proof": known_proof(&expected["proof"]),
            "session": session.filter(|_| write),
            "write": write,
            "keepsIndex": expected["activeMarkerAfter"],
            "steps": steps,
        })
    };
    check("finalize", 87, finalize_ours, theirs);
}

fn status_seen(text: &str) -> Found<StatusSeen> {
    let read = parse(text.as_bytes(), |doc| {
        reconcile::check_models(doc, "steps")?;
        let time = |key| doc.get(key).and_then(Raw::instant_ms);
        let state = doc.get("state").and_then(Raw::string).unwrap_or_default();
        Ok(StatusSeen {
            state: Open::read(&state),
            has_pid: doc.get("pid").is_some_and(|pid| pid.number().is_some()),
            dismissed: doc.get("displayDismissedAt").is_some(),
            started_at_ms: time("startedAt"),
            last_update_ms: time("lastUpdate"),
        })
    });
    read.map_or_else(|error| Found::Invalid(error.to_string()), Found::Valid)
}

fn reconcile_ours(vector: &Vector) -> Value {
    let input = &vector.input;
    let status_text = text_of(&input["status"]);
    // A pending result is found through its index as well as a public one.
    let result_text =
        text_of(&input["result"]).or_else(|| input.get("pendingResult").and_then(text_of));
    let result = result_text.as_ref().map_or(Found::Missing, |text| {
        let read = parse(text.as_bytes(), |doc| {
            reconcile::check_models(doc, "results").map(|()| reconcile::result_state(doc))
        });
        read.map_or_else(|error| Found::Invalid(error.to_string()), Found::Valid)
    });
    let hint = input.get("startedRun");
    let evidence = ReconcileEvidence {
        status: status_text.as_deref().map_or(Found::Missing, status_seen),
        hint: hint.map(|hint| StartHint {
            has_pid: hint["pid"].is_number(),
            started_at_ms: hint["startedAt"].as_i64().expect("a time"),
        }),
        result,
        pid_alive: alive_word(&input["pidLiveness"]),
        now_ms: input["now"].as_i64().expect("a time"),
    };
    let decision = reconcile::decide(&evidence);
    if let reconcile::ReconcileAction::Error { .. } = decision.action {
        return json!("error");
    }
    let status = intact(&input["status"]);
    let source = status.or(hint).unwrap_or(&Value::Null);
    let written = decision.written(source["sessionId"].is_string());
    let shown = match decision.action {
        reconcile::ReconcileAction::None => None,
        _ => decision
            .state_after()
            .map(|state| json!(state.as_str()))
            .or_else(|| status.map(|status| status["state"].clone())),
    };
    let after = decision.state_after().unwrap_or(runstore::protocol::RunState::Failed);
    let (overlay, steps) = if decision.repairs() {
        repaired(&decision, source, status, result_text.as_deref(), after)
    } else {
        (status.map(|status| status["processTerminal"].clone()), Value::Null)
    };
    json!({
        "repaired": decision.repairs(),
        "shown": shown,
        "overlay": overlay.filter(|overlay| !overlay.is_null()),
        "steps": steps,
        "result": written.contains(&Written::Result),
        "event": written.contains(&Written::Event),
        "indexes": written.contains(&Written::Indexes),
    })
}

/// The overlay and the steps of a repaired status.
fn repaired(
    decision: &reconcile::ReconcileDecision,
    source: &Value,
    status: Option<&Value>,
    result: Option<&str>,
    after: runstore::protocol::RunState,
) -> (Option<Value>, Value) {
    let failed = matches!(decision.action, reconcile::ReconcileAction::RepairFailed { .. });
    let reason = if failed { ProofReason::StaleRepair } else { ProofReason::ObserverUnavailable };
    let found = status.map_or(Value::Null, |status| status["processTerminal"].clone());
    let text = found.to_string();
    let state = Raw::parse(&text).and_then(Proof::read_raw).ok().map(|proof| proof.state);
    // An empty run id gives way to the name of the directory.
    let run_id = source["runId"].as_str().filter(|id| !id.is_empty()).unwrap_or("run-1");
    let version = source["lifecycleArtifactVersion"].as_f64();
    let overlay = reconcile::repair_overlay(version, state, run_id, reason);
    let overlay = overlay.as_ref().map_or(found, proof_json);
    let children: Value =
        result.map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"));
    let mut steps = Vec::new();
    let words: Vec<Value> = match (status, source["agents"].as_array()) {
        (Some(status), _) => status["steps"].as_array().cloned().unwrap_or_default(),
        (None, Some(agents)) => vec![json!({ "status": "running" }); agents.len()],
        (None, None) => Vec::new(),
    };
    for (at, step) in words.iter().enumerate() {
        let word = Open::read(step["status"].as_str().expect("a word"));
        let success = children["results"][at]["success"].as_bool();
        let code = step["exitCode"].clone();
        steps.push(match reconcile::step_after(&word, success, after) {
            None => json!([word.as_str(), code]),
            Some(end) if code.is_null() => json!([end.state.as_str(), end.exit_code]),
            Some(end) => json!([end.state.as_str(), code]),
        });
    }
    if steps.is_empty() && failed {
        steps.push(json!(["failed", 1]));
    }
    (Some(overlay), steps.into())
}

#[test]
fn every_run_is_reconciled_as_recorded() {
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        if expected.get("error").is_some() {
            return json!("error");
        }
        let repaired = expected["repaired"] == true;
        let steps = expected["statusAfter"]["steps"].as_array().filter(|_| repaired);
        let steps = steps.map(|steps| {
            steps.iter().map(|step| json!([step["status"], step["exitCode"]])).collect::<Value>()
        });
        let had_result = !vector.input["result"].is_null();
        let overlay = &expected["statusAfter"]["processTerminal"];
        json!({
            "repaired": repaired,
            "shown": expected["returnedState"],
            "overlay": overlay,
            "steps": steps,
            "result": repaired && !had_result
                && vector.input.get("pendingResult").is_none()
                && !expected["resultAfter"].is_null(),
            "event": !expected["events"].as_array().expect("events").is_empty(),
            "indexes": expected["activeMarkerAfter"] == false,
        })
    };
    check("reconcile", 55, reconcile_ours, theirs);
}
