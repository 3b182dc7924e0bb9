//! The writer's layer of the schemas is the stricter one: documents that only the reader's accepts, and
//! words that are those of the code.

use runstore::protocol::slot::SlotKind;
use runstore::protocol::{RunMode, RunState};
use serde_json::{Value, json};

use super::{schemas, writers};

const UUID: &str = "6f1c2a54-0000-4000-8000-000000000000";

/// Schema, part of it, a valid document, and members that only a reader bears.
type Row<'a> = (&'a str, &'a str, Value, Vec<(&'a str, Value)>);

#[test]
fn the_layer_of_the_writer_refuses_what_a_reader_bears() {
    let (reader, writer) = (schemas(), writers());
    let first = json!({"lifecycleArtifactVersion": 3, "runId": "r", "mode": "single",
        "state": "running", "startedAt": 1, "lastUpdate": 1, "currentStep": 0,
        "chainStepCount": 1, "steps": [{"agent": "a", "status": "pending"}], "pid": 7,
        "processTerminal": {"version": 1, "state": "pending", "runId": "r",
            "runnerProcessInstanceId": "i"}});
    let pending = first["processTerminal"].clone();
    let entry = json!({"version": 1, "runId": "r", "sessionId": "S", "file": "r.json",
        "writtenAt": 1});
    let line = json!({"type": "runstore.write.completed", "ts": 1, "runId": "r", "file": "f",
        "attempts": 2, "deferredMs": 0});
    let candidate = json!({"version": 1, "runId": "r", "runnerProcessInstanceId": "i",
        "writers": {}});
    let rows: [Row<'_>; 9] = [
        (
            "status",
            "/$defs/first",
            first.clone(),
            vec![
                ("more", json!(1)),
                ("startedAt", json!(1.5)),
                ("mode", json!("dreaming")),
                ("pidfdInode", json!(7)),
                ("state", json!("complete")),
            ],
        ),
        (
            "status",
            "",
            first,
            vec![
                ("state", json!("dreaming")),
                ("lastUpdate", json!(null)),
                ("endedAt", json!(1.5)),
                ("processTerminal", json!("no proof")),
            ],
        ),
        (
            "process-terminal",
            "",
            pending,
            vec![("more", json!(1)), ("reason", json!("why")), ("observedAt", json!(5))],
        ),
        (
            "process-terminal-candidate",
            "",
            candidate,
            vec![
                ("more", json!(1)),
                ("expectedWriters", json!({"0": 0, "first": 0})),
                ("sessionFile", json!("")),
            ],
        ),
        ("result-index-entry", "", entry, vec![("more", json!(1)), ("writtenAt", json!(1.5))]),
        ("event", "", line, vec![("more", json!(1)), ("ts", json!(1.5))]),
        (
            "runner-startup",
            "",
            json!({"state": "confirmed", "token": UUID, "pid": 7}),
            vec![("more", json!(1)), ("state", json!("later")), ("token", json!("t"))],
        ),
        (
            "startup-control",
            "",
            json!({"action": "proceed", "token": "t"}),
            vec![("more", json!(1)), ("action", json!("go"))],
        ),
        (
            "runner-config",
            "",
            json!({"id": "r", "steps": [{}], "resultPath": "/r", "cwd": "/", "placeholder": "",
                "asyncDir": "/r", "runnerProcessInstanceId": UUID, "launchBarrierToken": UUID}),
            vec![
                ("launchBarrierToken", json!("t")),
                ("timeoutMs", json!(0.5)),
                ("revivalLease", json!({"sessionFile": "/f", "runId": "r", "sourceRunId": "q"})),
            ],
        ),
    ];
    for (schema, part, valid, members) in rows {
        let check = |value: &Value| {
            let ours = writer.check(schema, part, value).is_empty();
            (ours, reader.check(schema, "", value).is_empty())
        };
        assert_eq!(check(&valid), (true, true), "{schema}{part}: {valid}");
        for (member, value) in members {
            let mut other = valid.clone();
            other[member] = value;
            assert_eq!(check(&other), (false, true), "{schema}{part}: {member}: {other}");
        }
    }
}

#[test]
fn every_word_of_the_writers_layer_is_one_of_the_code() {
    use runstore::protocol::Word as _;
    use runstore::protocol::proof::{ProofReason, ResumeDisposition};
    let writer = writers();
    let list = |schema: &str, pointer: &str| -> Vec<String> {
        let list = writer.part(schema, pointer).and_then(Value::as_array);
        let list = list.unwrap_or_else(|| panic!("{schema}{pointer}: there is a list"));
        list.iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
    };
    let all = |words: Vec<&'static str>| words;
    let reasons = ProofReason::ALL.iter().map(|word| word.as_str()).collect();
    let states = RunState::ALL.iter().map(|word| word.as_str()).collect();
    let modes = RunMode::ALL.iter().map(|word| word.as_str()).collect();
    let kinds = SlotKind::ALL.iter().map(|word| word.as_str()).collect();
    let ways = ResumeDisposition::ALL.iter().map(|word| word.as_str()).collect();
    for (schema, pointer, words) in [
        ("process-terminal", "/oneOf/1/properties/reason/enum", all(reasons)),
        ("process-terminal", "/oneOf/2/properties/resumeDisposition/enum", all(ways)),
        ("status", "/properties/state/enum", all(states)),
        ("status", "/properties/mode/enum", all(modes)),
        ("capacity-owner", "/properties/kind/enum", all(kinds)),
    ] {
        assert_eq!(list(schema, pointer), words, "{schema}{pointer}: the words of the code");
    }
}
