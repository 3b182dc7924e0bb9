//! The recorded decisions of the existing implementations, one by one.
//!
//! Every vector is run. Where a vector was recorded from one implementation only, it still counts:
//! the two disagree about each other's writer records, and we must agree with the one that accepts.
//! The vectors that we answer differently are listed in [`DIFFERENT`], each with its reason. The list
//! is exact: a vector that is listed and agrees, or is not listed and differs, fails the test.
//! Compared are decisions, not the wording of messages.

use std::collections::BTreeSet;
use std::path::Path;

use runstore::protocol::candidate::{Candidate, Instance, ProcessTree};
use runstore::protocol::finalize::{
    self, CandidateFound, FinalizeEvidence, SessionLease, StepSeen,
};
use runstore::protocol::lease::{
    self, Acquisition, LeaseFacts, LeaseOwner, LeaseState, ProcessSeen,
};
use runstore::protocol::liveness::{self, Alive, KillOutcome};
use runstore::protocol::proof::{Proof, ProofReason};
use runstore::protocol::reconcile::{
    self, Found, ReconcileEvidence, StartHint, StatusSeen, Written,
};
use runstore::protocol::slot::{self, SlotEvidence, SlotOwner, SlotStatus};
use runstore::protocol::{DecodeError, Document, Open, Raw, Word as _};
use serde_json::{Map, Value, json};

const FIRST: &str = "pi-subagents@0.67.0";
const SECOND: &str = "@duckmind/dm-linux-x64@0.65.4";

/// (file, the implementation that recorded it or "both", name, why we differ)
const DIFFERENT: &[(&str, &str, &str, &str)] = &[
    ("candidate", FIRST, "writer kind dm-writer", THREE_FORMS),
    ("candidate", SECOND, "writer kind pi-writer", THREE_FORMS),
    ("candidate", FIRST, "tree missing", THREE_FORMS),
    ("candidate", FIRST, "writer exitCode fraction", WHOLE_EXIT_CODE),
    ("candidate", SECOND, "writer exitCode fraction", WHOLE_EXIT_CODE),
    ("candidate", "both", "__proto__ key", PLAIN_KEY),
    ("proof", FIRST, "observed foreign writer kind dm-writer [run+runner]", THREE_FORMS),
    ("proof", SECOND, "observed foreign writer kind pi-writer [run+runner]", THREE_FORMS),
    ("proof", "both", "state array ['pending'] [run+runner]", STATE_IS_A_WORD),
    (
        "lease-stale",
        "both",
        "runtime: identity vs linux: identity counts as different",
        "identities of two schemes cannot be compared, and a live owner must not lose its lease",
    ),
    (
        "pid-liveness",
        "both",
        "real kill: pid 0 (own process group)",
        "signal 0 to pid 0 asks about the asker's own group and says nothing about the run",
    ),
];
const THREE_FORMS: &str =
    "each implementation reads its own form of writer record, we read all three";
const STATE_IS_A_WORD: &str =
    "a state is a string; the other language compares a list of one word as that word";
const WHOLE_EXIT_CODE: &str = "a fraction is no exit code, so it is read as none";
const PLAIN_KEY: &str =
    "the key is lost in the other language only; here it is a key like any other";

struct Vector {
    name: String,
    peer: String,
    input: Value,
    expected: Value,
}

fn load(file: &str) -> Vec<Vector> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("conformance/vectors/{file}.json"));
    let text = std::fs::read_to_string(&path).expect("the vectors are in the repository");
    let root: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let vectors = root["vectors"].as_array().expect("a list of vectors");
    vectors
        .iter()
        .map(|vector| {
            let peers = vector["peers"].as_array().expect("a list of peers");
            let peer = if let [one] = peers.as_slice() { string(one) } else { "both".to_owned() };
            Vector {
                name: string(&vector["name"]),
                peer,
                input: vector["input"].clone(),
                expected: vector["expected"].clone(),
            }
        })
        .collect()
}

/// Runs all vectors of a file; `ours` and `theirs` reduce an input and an expectation to the same
/// shape.
fn check(
    file: &str,
    count: usize,
    ours: impl Fn(&Vector) -> Value,
    theirs: impl Fn(&Vector) -> Value,
) {
    let vectors = load(file);
    assert_eq!(vectors.len(), count, "{file}: every vector is run");
    let listed: BTreeSet<(&str, &str)> = DIFFERENT
        .iter()
        .filter(|(of, ..)| *of == file)
        .map(|(_, peer, name, _)| (*peer, *name))
        .collect();
    let mut seen = BTreeSet::new();
    for vector in &vectors {
        let key = (vector.peer.as_str(), vector.name.as_str());
        let (ours, theirs) = (ours(vector), theirs(vector));
        if listed.contains(&key) {
            assert_ne!(ours, theirs, "{file}: {key:?} is listed as different, so it must differ");
            seen.insert(key);
        } else {
            assert_eq!(ours, theirs, "{file}: {key:?} must agree or be listed with its reason");
        }
    }
    assert_eq!(seen, listed, "{file}: every listed vector exists");
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// Parses the text of a file the way the store does.
fn parse<T>(
    bytes: &[u8],
    read: impl Fn(&Document<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    read(&Document::from_bytes(bytes)?)
}

/// The bytes of a file given as text, as bytes, as a value, or not at all.
fn bytes_of(input: &Value) -> Option<Vec<u8>> {
    match input {
        Value::Null => None,
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Object(map) if map.contains_key("raw") => bytes_of(&map["raw"]),
        Value::Object(map) if map.contains_key("bytesHex") => {
            let hex = string(&map["bytesHex"]);
            let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            Some((0..hex.len()).step_by(2).map(pair).collect())
        }
        value => Some(value.to_string().into_bytes()),
    }
}

fn put<T: Into<Value>>(map: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

fn keep(value: &Value, keys: &[&str]) -> Map<String, Value> {
    let map = value.as_object().expect("an object");
    map.iter()
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn instance_json(instance: &Instance) -> Value {
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
fn known_instance(value: &Value) -> Value {
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

fn proof_json(proof: &Proof) -> Value {
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
fn known_proof(value: &Value) -> Value {
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

fn read_proof(input: &Value, expect: &Value) -> Option<Proof> {
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

/// The status of a vector, or `None` when it is missing or damaged.
fn intact(status: &Value) -> Option<&Value> {
    Some(status).filter(|status| status.is_object() && status.get("raw").is_none())
}

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

fn alive_word(word: &Value) -> Alive {
    match word.as_str().expect("a word") {
        "alive" | "true" => Alive::Yes,
        "dead" | "false" => Alive::No,
        _ => Alive::Unknown,
    }
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

fn text_of(input: &Value) -> Option<String> {
    bytes_of(input).map(|bytes| String::from_utf8(bytes).expect("text"))
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

fn lease_json(owner: &LeaseOwner) -> Value {
    let mut map = Map::new();
    put(&mut map, "version", Some(1));
    put(&mut map, "token", Some(owner.token.as_str()));
    put(&mut map, "canonicalSessionFile", Some(owner.canonical_session_file.as_str()));
    put(&mut map, "runId", Some(owner.run_id.as_str()));
    put(&mut map, "sourceRunId", Some(owner.source_run_id.as_str()));
    put(&mut map, "parentSessionId", owner.parent_session_id.as_deref());
    put(&mut map, "pid", Some(owner.pid));
    put(&mut map, "hostname", Some(owner.hostname.as_str()));
    put(&mut map, "processStartIdentity", owner.process_start_identity.as_deref());
    put(&mut map, "writerState", Some(owner.writer_state.as_str()));
    put(&mut map, "writerPid", owner.writer_pid);
    let writer = owner.writer_process_start_identity.as_deref();
    put(&mut map, "writerProcessStartIdentity", writer);
    put(&mut map, "acquiredAt", Some(owner.acquired_at.as_str()));
    put(&mut map, "acquiredAtMs", Some(owner.acquired_at_ms));
    put(&mut map, "updatedAtMs", Some(owner.updated_at_ms));
    map.into()
}

#[test]
fn every_lease_owner_is_accepted_or_refused_as_recorded() {
    let ours = |vector: &Vector| {
        // The path of a lease comes from the real path of the session file, so a missing file has
        // no lease to look at; the store reports it.
        if vector.input.get("sessionFile").is_some() {
            return json!("error");
        }
        let directory = vector.input.get("leaseDir") != Some(&json!(false));
        let bytes = vector.input.get("raw").and_then(bytes_of);
        let owner = bytes.map(|bytes| parse(&bytes, LeaseOwner::read));
        match LeaseState::of(directory, owner) {
            LeaseState::Free => json!("free"),
            LeaseState::Owned(owner) => lease_json(&owner),
            _ => json!("unreadable"),
        }
    };
    let theirs = |vector: &Vector| match vector.expected["state"].as_str() {
        Some("owned") => {
            let mut owner = vector.expected["owner"].clone();
            owner.as_object_mut().expect("an object").remove("zz");
            owner
        }
        Some(other) => json!(other),
        None => json!("error"),
    };
    check("lease-owner", 40, ours, theirs);
}

#[test]
fn every_contested_lease_goes_to_the_recorded_side() {
    let ours = |vector: &Vector| {
        let input = &vector.input;
        let owner = bytes_of(&input["existingOwner"]).map(|b| parse(&b, LeaseOwner::read));
        let state = LeaseState::of(true, owner);
        let seen = |pid: i64| {
            let pid = pid.to_string();
            let alive = &input["processAlive"][&pid];
            ProcessSeen {
                alive: if alive.is_null() { Alive::Unknown } else { alive_word(alive) },
                start_identity: input["processStartIdentity"][&pid].as_str(),
            }
        };
        let our_host = string(&input["ourHostname"]);
        let facts = match &state {
            LeaseState::Owned(owner) => Some(LeaseFacts {
                our_host: &our_host,
                owner: seen(owner.pid),
                writer: owner.writer_pid.map(seen),
            }),
            _ => None,
        };
        let exists = input["tombstoneExists"] == true;
        match lease::acquisition("<sid>", &state, facts.as_ref(), exists) {
            Acquisition::Take => json!([true, null]),
            Acquisition::Reclaim { tombstone } => json!([true, tombstone]),
            _ => json!([false, null]),
        }
    };
    let theirs = |vector: &Vector| {
        let acquired = vector.expected["acquired"] == true;
        let tree = vector.expected["tree"].as_array().expect("a tree");
        let tombstone = tree.iter().filter_map(Value::as_str).find_map(|line| {
            let name = line.split_once(' ')?.1.strip_suffix('/')?;
            name.contains(".stale-").then(|| name.to_owned())
        });
        json!([acquired, tombstone.filter(|_| acquired)])
    };
    check("lease-stale", 29, ours, theirs);
}

fn slot_json(owner: &SlotOwner) -> Value {
    let mut map = Map::new();
    put(&mut map, "version", Some(1));
    put(&mut map, "reservationToken", Some(owner.reservation_token.as_str()));
    put(&mut map, "ownerSessionId", Some(owner.owner_session_id.as_str()));
    put(&mut map, "ownerSessionKey", Some(owner.owner_session_key.as_str()));
    put(&mut map, "slot", Some(owner.slot));
    put(&mut map, "runId", Some(owner.run_id.as_str()));
    put(&mut map, "generation", Some(owner.generation));
    put(&mut map, "kind", Some(owner.kind.as_str()));
    put(&mut map, "asyncDir", Some(owner.async_dir.as_str()));
    put(&mut map, "reservedAt", Some(owner.reserved_at_ms));
    put(&mut map, "sourceRunId", owner.source_run_id.as_deref());
    put(&mut map, "runnerProcessInstanceId", owner.runner_instance_id.as_deref());
    put(&mut map, "runnerStartedAt", owner.runner_started_at_ms);
    map.into()
}

#[test]
fn every_slot_owner_is_accepted_or_refused_as_recorded() {
    let ours = |vector: &Vector| {
        let bytes = bytes_of(&vector.input["raw"]).expect("a text");
        parse(&bytes, SlotOwner::read).map_or_else(|_| json!("refused"), |o| slot_json(&o))
    };
    let theirs =
        |vector: &Vector| vector.expected.get("ok").cloned().unwrap_or_else(|| json!("refused"));
    check("capacity-owner", 17, ours, theirs);
}

#[test]
fn every_slot_is_released_or_retained_as_recorded() {
    let ours = |vector: &Vector| {
        let input = &vector.input;
        let owner = vector.expected["owner"].to_string();
        let owner = parse(owner.as_bytes(), SlotOwner::read).expect("an owner");
        let status = intact(&input["status"]);
        let overlay_text = status.map(|status| status["processTerminal"].to_string());
        let overlay = overlay_text
            .as_deref()
            .and_then(|text| Raw::parse(text).and_then(Proof::read_raw).ok());
        let expect = json!({
            "runId": owner.run_id, "runnerProcessInstanceId": owner.runner_instance_id,
        });
        let last = |status: &Value| {
            let keys = ["lastActivityAt", "lastUpdate", "endedAt"];
            keys.iter().find_map(|key| status[key].as_i64())
        };
        let off = input.get("abandonedSlotReleaseAfterMs").map(Value::to_string);
        let configured = off.as_deref().map(|text| Raw::parse(text).expect("JSON"));
        let verdict = slot::verdict(
            &owner,
            &SlotEvidence {
                status: status.map(|status| SlotStatus {
                    run_id: status["runId"].as_str(),
                    session_id: status["sessionId"].as_str(),
                    state: Open::read(status["state"].as_str().expect("a state")),
                    mode: None,
                    pid: status["pid"].as_f64(),
                    error: status["error"].as_str(),
                    overlay: overlay.as_ref(),
                    last_activity_ms: last(status),
                }),
                proof: read_proof(&input["proof"], &expect).map(|proof| proof.state),
                pid_alive: alive_word(&input["pidLiveness"]),
                abandoned_after_ms: slot::abandoned_after_ms(configured),
                now_ms: input["now"].as_i64().expect("a time"),
                controller_live: false,
                children: &[],
            },
        );
        json!([verdict.release, verdict.by_policy])
    };
    let theirs = |vector: &Vector| {
        let release = &vector.expected["release"];
        json!([release["state"] == "releasable", release.get("evidence").is_some()])
    };
    check("capacity", 19, ours, theirs);
}

/// Signal 0 to a number that names one process.
fn probe(pid: i32) -> KillOutcome {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};
    match test_kill_process(Pid::from_raw(pid).expect("never zero")) {
        Ok(()) => KillOutcome::Ok,
        Err(Errno::SRCH) => KillOutcome::Esrch,
        Err(Errno::PERM) => KillOutcome::Eperm,
        Err(_) => KillOutcome::Other,
    }
}

#[test]
fn every_probe_of_a_pid_gives_the_recorded_word() {
    let ours = |vector: &Vector| {
        let input = &vector.input;
        if input["realKill"] != true {
            let outcome = match input["killError"].as_str() {
                None => KillOutcome::Ok,
                Some("ESRCH") => KillOutcome::Esrch,
                Some("EPERM") => KillOutcome::Eperm,
                Some(_) => KillOutcome::Other,
            };
            return json!(liveness::probe_word(outcome).as_str());
        }
        let number = if input["pid"] == "<self>" {
            f64::from(std::process::id())
        } else {
            input["pid"].as_f64().expect("a number")
        };
        let word =
            liveness::pid_of(number).map_or(Alive::Unknown, |pid| liveness::probe_word(probe(pid)));
        json!(word.as_str())
    };
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        expected.get("verdict").or_else(|| expected.get("ok")).cloned().expect("a word")
    };
    check("pid-liveness", 10, ours, theirs);
}

#[test]
fn every_difference_names_a_file_that_is_run_and_a_reason() {
    let files = ["candidate", "proof", "lease-stale", "pid-liveness"];
    for (file, peer, name, reason) in DIFFERENT {
        assert!(files.contains(file), "{file} is run by this test");
        assert!(["both", FIRST, SECOND].contains(peer), "{name}: recorded by {peer}");
        assert!(reason.len() > 20, "{name}: the reason is a sentence");
    }
    assert_eq!(DIFFERENT.len(), 11, "a new difference is counted on purpose");
}
