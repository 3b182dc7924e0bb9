//! Owner records of session leases and capacity slots, and who gets a contested one.

use runstore::protocol::lease::{
    self, Acquisition, LeaseFacts, LeaseOwner, LeaseState, ProcessSeen,
};
use runstore::protocol::liveness::Alive;
use runstore::protocol::proof::Proof;
use runstore::protocol::slot::{self, SlotEvidence, SlotOwner, SlotStatus};
use runstore::protocol::{Open, Raw, Word as _};
use serde_json::{Map, Value, json};

use super::proofs::read_proof;
use super::{Vector, alive_word, bytes_of, check, intact, parse, put, string};

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
        let verdict = match &state {
            LeaseState::Owned(owner) => {
                let writer = owner.writer_pid.map(seen);
                let facts = LeaseFacts { our_host: &our_host, owner: seen(owner.pid), writer };
                Some(lease::staleness(owner, &facts))
            }
            _ => None,
        };
        let exists = input["tombstoneExists"] == true;
        match lease::acquisition("<sid>", &state, verdict, exists) {
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
