//! Candidates, proofs and their copies in a status: accepted or refused as recorded.

use runstore::protocol::candidate::{Candidate, Instance, ProcessTree};
use runstore::protocol::proof::{Proof, ProofReason};
use runstore::protocol::{Open, Raw, Word as _};
use serde_json::{Map, Value, json};

use super::{Vector, bytes_of, check, keep, parse, put};

pub(super) fn instance_json(instance: &Instance) -> Value {
    let mut map = Map::new();
    put(&mut map, "kind", Some(instance.kind.as_str()));
    put(&mut map, "processInstanceId", Some(instance.id.as_str()));
    put(&mut map, "closeObservedAt", Some(instance.close_observed_at_ms));
    put(&mut map, "exitCode", Some(instance.exit_code.map_or(Value::Null, Value::from)));
    put(&mut map, "signal", Some(instance.signal.clone().map_or(Value::Null, Value::from)));
    put(&mut map, "attempt", instance.attempt);
    let tree = instance.tree.as_ref().map(|tree| match tree {
        ProcessTree::Observed { process_group_id, verified_at_ms } => json!({
            "state": "observed", "mechanism": "posix-process-group",
            "processGroupId": process_group_id, "verifiedAt": verified_at_ms,
        }),
        ProcessTree::Unknown { reason, diagnostic } => {
            let mut map = Map::new();
            put(&mut map, "state", Some("unknown"));
            put(&mut map, "reason", Some(reason.as_str()));
            put(&mut map, "diagnostic", diagnostic.as_deref());
            map.into()
        }
        other => panic!("a tree of a new kind: {other:?}"),
    });
    put(&mut map, "processTree", tree);
    map.into()
}

/// An instance as recorded, reduced to the members that a view has.
pub(super) fn known_instance(value: &Value) -> Value {
    let keys = [
        "kind",
        "processInstanceId",
        "closeObservedAt",
        "exitCode",
        "signal",
        "attempt",
        "processTree",
    ];
    keep(value, &keys).into()
}

fn candidate_json(candidate: &Candidate) -> Value {
    let mut map = Map::new();
    put(&mut map, "version", Some(1));
    put(&mut map, "runId", Some(candidate.run_id.as_str()));
    put(&mut map, "runnerProcessInstanceId", Some(candidate.instance_id.as_str()));
    let writers: Map<String, Value> = candidate
        .writers
        .iter()
        .map(|(index, records)| (index.clone(), records.iter().map(instance_json).collect()))
        .collect();
    put(&mut map, "writers", Some(Value::Object(writers)));
    let counts = candidate.expected_writers.as_ref().map(|counts| {
        counts.iter().map(|(index, n)| (index.clone(), Value::from(*n))).collect::<Map<_, _>>()
    });
    put(&mut map, "expectedWriters", counts);
    put(&mut map, "sessionFile", candidate.session_file.as_deref());
    put(&mut map, "revivalLeaseToken", candidate.lease_token.as_deref());
    let acknowledged = candidate.lease_release_acknowledged;
    put(&mut map, "revivalLeaseReleaseAcknowledged", acknowledged);
    map.into()
}

#[test]
fn every_candidate_is_accepted_or_refused_as_recorded() {
    let ours = |vector: &Vector| {
        // A directory in place of the file cannot be read at all; the store reports it.
        if vector.input["directory"] == true {
            return json!("error");
        }
        match bytes_of(&vector.input).map(|bytes| parse(&bytes, Candidate::read)) {
            None => json!("absent"),
            Some(Err(_)) => json!("error"),
            Some(Ok(candidate)) => candidate_json(&candidate),
        }
    };
    let theirs = |vector: &Vector| {
        if vector.expected.get("undefined").is_some() {
            return json!("absent");
        }
        let Some(mut accepted) = vector.expected.get("ok").cloned() else {
            return json!("error");
        };
        for (_, records) in accepted["writers"].as_object_mut().expect("writers") {
            *records = records.as_array().expect("records").iter().map(known_instance).collect();
        }
        accepted
    };
    check("candidate", 159, ours, theirs);
}

pub(super) fn proof_json(proof: &Proof) -> Value {
    let mut map = Map::new();
    put(&mut map, "version", Some(1));
    put(&mut map, "state", Some(proof.state.as_str()));
    put(&mut map, "runId", Some(proof.run_id.as_str()));
    put(&mut map, "runnerProcessInstanceId", Some(proof.instance_id.as_str()));
    put(&mut map, "childIndex", proof.child_index);
    put(&mut map, "observedAt", proof.observed_at_ms);
    if !proof.instances.is_empty() {
        put(
            &mut map,
            "instances",
            Some(proof.instances.iter().map(instance_json).collect::<Value>()),
        );
    }
    put(&mut map, "resumeDisposition", proof.resume_disposition.map(|word| word.as_str()));
    put(&mut map, "reason", proof.reason.as_ref().map(Open::as_str));
    put(&mut map, "diagnostic", proof.diagnostic.as_deref());
    without_wording(map)
}

/// A proof as recorded, reduced to the members that a view has.
pub(super) fn known_proof(value: &Value) -> Value {
    let keys = [
        "version",
        "state",
        "runId",
        "runnerProcessInstanceId",
        "childIndex",
        "observedAt",
        "instances",
        "resumeDisposition",
        "reason",
        "diagnostic",
    ];
    let mut map = keep(value, &keys);
    if let Some(records) = map.get("instances").and_then(Value::as_array) {
        let known: Value = records.iter().map(known_instance).collect();
        map.insert("instances".to_owned(), known);
    }
    if map.get("instances") == Some(&json!([])) {
        map.remove("instances");
    }
    without_wording(map)
}

/// The text of a failure is ours; that there is one is compared.
fn without_wording(mut map: Map<String, Value>) -> Value {
    if map.get("reason") == Some(&json!(ProofReason::ProofWriteFailed.as_str()))
        && map.contains_key("diagnostic")
    {
        map.insert("diagnostic".to_owned(), json!(true));
    }
    map.into()
}

fn expected_proof(vector: &Vector) -> Value {
    vector.expected.get("ok").map_or_else(|| json!("absent"), known_proof)
}

pub(super) fn read_proof(input: &Value, expect: &Value) -> Option<Proof> {
    let read = parse(&bytes_of(input)?, Proof::read);
    let (run, runner) = (expect["runId"].as_str(), expect["runnerProcessInstanceId"].as_str());
    Some(Proof::or_unknown(read, run, runner, "run-1"))
}

#[test]
fn every_proof_file_reads_as_recorded() {
    let ours = |vector: &Vector| {
        let proof = read_proof(&vector.input["raw"], &vector.input["expect"]);
        proof.as_ref().map_or_else(|| json!("absent"), proof_json)
    };
    check("proof", 91, ours, expected_proof);
}

#[test]
fn every_overlay_in_a_status_reads_as_recorded() {
    let ours = |vector: &Vector| {
        let value = &vector.input["value"];
        if value.get("undefined").is_some() {
            return json!("absent");
        }
        let text = value.to_string();
        let read = Raw::parse(&text).and_then(Proof::read_raw);
        let expect = &vector.input["expect"];
        let (run, runner) = (expect["runId"].as_str(), expect["runnerProcessInstanceId"].as_str());
        proof_json(&Proof::or_unknown(read, run, runner, "status"))
    };
    check("proof-in-status", 12, ours, expected_proof);
}
