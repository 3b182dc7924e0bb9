//! Lists of words and names of members, in the schemas and in the code.
//!
//! Words are compared as lists in order: a word that is added on one side only is met here. Members are
//! compared one way: what the code reads has to be described; a schema may describe more.

use std::collections::BTreeSet;

use runstore::protocol::candidate::InstanceKind;
use runstore::protocol::lease::WriterState;
use runstore::protocol::process::Liveness;
use runstore::protocol::proof::{ProofReason, ProofState, ResumeDisposition};
use runstore::protocol::result::ResultPlace;
use runstore::protocol::slot::SlotKind;
use runstore::protocol::startup::{Action, StartupState};
use runstore::protocol::verdict::{Flag, Grade, Severity, Stage, Verdict};
use runstore::protocol::{RunMode, RunState, StepState, Word};
use runstore::recover::ActionKind;
use runstore::wait::{Outcome, Until};
use serde_json::Value;

use super::{here, schemas};

fn all<W: Word>() -> Vec<String> {
    W::ALL.iter().map(|word| word.as_str().to_owned()).collect()
}

/// Where a list of words stands in a schema, and the list in the code.
fn lists() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let of_instances: Vec<_> =
        all::<InstanceKind>().into_iter().filter(|kind| kind != "runner").collect();
    vec![
        ("status", "/properties/mode/anyOf/0/enum", all::<RunMode>()),
        ("status", "/properties/state/anyOf/0/enum", all::<RunState>()),
        ("status", "/$defs/step/properties/status/anyOf/0/enum", all::<StepState>()),
        ("result", "/properties/mode/anyOf/0/enum", all::<RunMode>()),
        ("result", "/properties/state/anyOf/0/enum", all::<RunState>()),
        ("event", "/properties/status/anyOf/0/enum", all::<RunState>()),
        ("nested-event", "/properties/child/properties/state/anyOf/0/enum", all::<RunState>()),
        ("process-terminal", "/properties/state/enum", all::<ProofState>()),
        ("process-terminal", "/properties/resumeDisposition/enum", all::<ResumeDisposition>()),
        ("process-terminal", "/$defs/writerInstance/properties/kind/enum", of_instances.clone()),
        ("process-terminal-candidate", "/$defs/writerInstance/properties/kind/enum", of_instances),
        ("runner-startup", "/properties/state/anyOf/0/enum", all::<StartupState>()),
        ("startup-control", "/properties/action/anyOf/0/enum", all::<Action>()),
        ("lease-owner", "/properties/writerState/enum", all::<WriterState>()),
        ("capacity-owner", "/properties/kind/enum", all::<SlotKind>()),
        ("inspect", "/$defs/run/properties/verdict/enum", all::<Verdict>()),
        (
            "inspect",
            "/properties/summary/properties/byVerdict/propertyNames/enum",
            all::<Verdict>(),
        ),
        ("inspect", "/$defs/run/properties/liveness/enum", all::<Liveness>()),
        ("inspect", "/$defs/run/properties/flags/items/enum", all::<Flag>()),
        ("inspect", "/$defs/run/properties/stage/enum", all::<Stage>()),
        ("inspect", "/$defs/evidence/properties/kind/enum", all::<Grade>()),
        ("inspect", "/$defs/finding/properties/severity/enum", all::<Severity>()),
        ("plan", "/$defs/action/properties/action/enum", all::<ActionKind>()),
        ("plan", "/properties/summary/properties/byAction/propertyNames/enum", all::<ActionKind>()),
        ("plan", "/$defs/refusal/properties/verdict/enum", all::<Verdict>()),
        ("apply", "/properties/done/items/properties/action/enum", all::<ActionKind>()),
        ("apply", "/$defs/refusal/properties/verdict/enum", all::<Verdict>()),
        (
            "sweep",
            "/properties/roots/items/properties/done/items/properties/action/enum",
            all::<ActionKind>(),
        ),
        ("sweep", "/$defs/refusal/properties/verdict/enum", all::<Verdict>()),
        ("slots", "/$defs/slot/properties/runVerdict/enum", all::<Verdict>()),
        ("slots", "/$defs/problem/properties/severity/enum", all::<Severity>()),
        ("leases", "/$defs/lease/properties/liveness/enum", all::<Liveness>()),
        ("leases", "/$defs/problem/properties/severity/enum", all::<Severity>()),
        ("results", "/$defs/result/properties/place/enum", all::<ResultPlace>()),
        ("results", "/$defs/result/properties/outcome/enum", all::<RunState>()),
        ("results", "/$defs/problem/properties/severity/enum", all::<Severity>()),
        ("check", "/$defs/problem/properties/severity/enum", all::<Severity>()),
        ("list", "/properties/runs/items/properties/verdict/enum", all::<Verdict>()),
        ("list", "/properties/runs/items/properties/liveness/enum", all::<Liveness>()),
        ("run", "/properties/verdict/enum", all::<Verdict>()),
        ("control", "/properties/liveness/enum", all::<Liveness>()),
        ("control", "/properties/verdict/enum", all::<Verdict>()),
        ("witness", "/properties/proof/enum", all::<ProofState>()),
        ("wait", "/properties/for/enum", all::<Until>()),
        ("wait", "/$defs/run/properties/outcome/enum", all::<Outcome>()),
        ("wait", "/$defs/run/properties/verdict/enum", all::<Verdict>()),
        ("wait", "/$defs/run/properties/liveness/enum", all::<Liveness>()),
    ]
}

const OF_FILES: &str = "the words of recorded actions; real ones are held to the schema";
const OF_THE_REGISTRY: &str =
    "words of the registry of clauses; every clause is held to the schema";
const OF_THE_PROGRAM: &str = "words of an answer alone; real answers are held to the schema";

/// Lists that the code does not hold as words, with the reason.
const NOT_WORDS: &[(&str, &str, &str)] = &[
    (
        "event",
        "/properties/type/anyOf/0/enum",
        "the log is advice: the code looks for the few types that it needs, any other is shown",
    ),
    ("nested-event", "/properties/type/anyOf/0/enum", "nothing decodes nested events yet"),
    ("nested-event", "/properties/action/anyOf/0/enum", "nothing decodes nested events yet"),
    ("nested-event", "/if/properties/type/enum", "a condition on three of the types"),
    (
        "process-terminal",
        "/$defs/writerInstance/properties/processTree/oneOf/1/properties/reason/enum",
        "the reason is kept as text; recorded candidates and vectors hold the list to the code",
    ),
    (
        "process-terminal-candidate",
        "/$defs/writerInstance/properties/processTree/oneOf/1/properties/reason/enum",
        "the reason is kept as text; recorded candidates and vectors hold the list to the code",
    ),
    ("runner-startup", "/allOf/0/if/properties/state/enum", "the states that carry a token"),
    ("log", "/$defs/entry/properties/state/enum", OF_FILES),
    ("log", "/$defs/change/properties/kind/enum", OF_FILES),
    ("leases", "/$defs/lease/properties/state/enum", OF_THE_PROGRAM),
    ("check", "/$defs/problem/properties/level/enum", OF_THE_PROGRAM),
    ("release", "/properties/kind/enum", OF_THE_PROGRAM),
    ("release", "/properties/state/enum", OF_THE_PROGRAM),
    ("control", "/properties/request/enum", OF_THE_PROGRAM),
    ("control", "/properties/outcome/enum", OF_THE_PROGRAM),
    ("witness", "/properties/outcome/enum", OF_THE_PROGRAM),
    ("sweep", "/properties/roots/items/properties/outcome/enum", OF_THE_PROGRAM),
    ("spec", "/$defs/clause/properties/level/enum", OF_THE_REGISTRY),
    ("spec", "/$defs/clause/properties/roles/items/enum", OF_THE_REGISTRY),
];

#[test]
fn every_list_of_words_is_the_same_in_schema_and_code() {
    let schemas = schemas();
    let mut known = BTreeSet::new();
    for (schema, pointer, ours) in lists() {
        let list = schemas.part(schema, pointer);
        let list = list.unwrap_or_else(|| panic!("{schema}{pointer}: there is no list"));
        let theirs: Vec<_> = list.as_array().expect("a list").iter().map(text).collect();
        assert_eq!(theirs, ours, "{schema}{pointer}: the words of the code, in their order");
        known.insert((schema, pointer.to_owned()));
    }
    for (schema, pointer, reason) in NOT_WORDS {
        assert!(schemas.part(schema, pointer).is_some(), "{schema}{pointer}: a list: {reason}");
        known.insert((*schema, (*pointer).to_owned()));
    }
    for schema in schemas.names() {
        let mut found = Vec::new();
        enums(schemas.part(schema, "").expect("loaded"), "", &mut found);
        for pointer in found {
            let compared = known.iter().any(|(s, p)| (*s, p) == (schema, &pointer));
            assert!(compared, "{schema}{pointer}: compared, or listed with its reason");
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a word").to_owned()
}

/// Pointers to every list of words in a schema.
fn enums(schema: &Value, at: &str, found: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match schema {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => return,
    };
    for (key, value) in members {
        let place = format!("{at}/{key}");
        if key == "enum" { found.push(place) } else { enums(value, &place, found) }
    }
}

#[test]
fn every_reason_of_a_proof_is_named_in_its_schema() {
    let schemas = schemas();
    let comment = schemas.part("process-terminal", "/properties/reason/$comment");
    let comment = text(comment.expect("the list stands in the comment, since it decides nothing"));
    let (_, listed) = comment.split_once("Known words: ").expect("the list is introduced");
    let listed: Vec<_> = listed.split(", ").collect();
    assert_eq!(listed, all::<ProofReason>(), "the words of the code, in their order");
}

/// A source file, the schema of what it reads, and where in it the members are described.
const READERS: &[(&str, &str, &[&str])] = &[
    ("src/protocol/status.rs", "status", &["/properties", "/$defs/step/properties"]),
    (
        "src/protocol/candidate.rs",
        "process-terminal-candidate",
        &[
            "/properties",
            "/$defs/writerInstance/properties",
            "/$defs/writerInstance/properties/processTree/oneOf/0/properties",
            "/$defs/writerInstance/properties/processTree/oneOf/1/properties",
        ],
    ),
    ("src/protocol/proof.rs", "process-terminal", &["/properties"]),
    ("src/protocol/startup.rs", "runner-startup", &["/properties"]),
    ("src/protocol/lease.rs", "lease-owner", &["/properties"]),
    ("src/protocol/slot.rs", "capacity-owner", &["/properties"]),
    ("src/protocol/marker.rs", "terminal-run-entry", &["/properties"]),
    ("src/protocol/result.rs", "result", &["/properties", "/$defs/childResult/properties"]),
    ("src/protocol/event.rs", "event", &["/properties"]),
];

/// Members that are read although the schema does not describe them, with the reason.
const NOT_DESCRIBED: &[(&str, &str, &str)] = &[
    ("status", "cwd", "opaque: of any type; a directory that is gone hinders a resume"),
    ("status", "steering", "opaque: only its presence tells who wrote the record"),
    ("status", "requestedModel", "opaque: only its presence tells the dialect"),
    ("status", "attemptedModels", "opaque: only its presence tells the dialect"),
    ("status", "lane", "opaque: other readers refuse some values, which is said"),
    ("status", "model", "opaque: other readers refuse some values, which is said"),
    ("status", "thinking", "opaque: other readers refuse some values, which is said"),
    ("runner-startup", "action", "of the control files, which have a schema of their own"),
    ("result", "completion", "of a replay, which wraps a result"),
    ("result", "completedAt", "of a replay, which wraps a result"),
    ("event", "error", "of lines of the child, shown if it is text"),
];

#[test]
fn every_member_that_the_code_reads_is_described_in_its_schema() {
    let schemas = schemas();
    for (file, schema, places) in READERS {
        let source =
            std::fs::read_to_string(here(file)).expect("the source is part of the project");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let described: BTreeSet<String> = places
            .iter()
            .filter_map(|place| schemas.part(schema, place)?.as_object())
            .flat_map(|members| members.keys().cloned())
            .collect();
        let read = members_read(code);
        assert!(read.len() > 2, "{file}: the members that it reads were found: {read:?}");
        let undescribed: BTreeSet<&str> = read.difference(&described).map(String::as_str).collect();
        let rows = NOT_DESCRIBED.iter().filter(|(of, ..)| of == schema);
        let listed: BTreeSet<&str> = rows.map(|(_, member, _)| *member).collect();
        assert_eq!(
            undescribed, listed,
            "{file}: what it reads is described in {schema}.schema.json, or listed with its reason"
        );
    }
}

/// The literal keys in calls that read a member, and in the lists of keys that such calls go through.
fn members_read(code: &str) -> BTreeSet<String> {
    let pattern = |text| regex_lite::Regex::new(text).expect("a valid pattern");
    let call = pattern(
        r#"\b(?:get|string|loose_string|instant|instant_ms|flag|filled|filled_string|optional_string|whole|text|text_of|optional_filled|optional_instant)\((?:&?doc, )?"([A-Za-z]+)""#,
    );
    let list = pattern(r#"\[((?:"[A-Za-z]+"(?:, )?)+)\]"#);
    let word = pattern(r#""([A-Za-z]+)""#);
    let listed = list.captures_iter(code).map(|found| found.get(1).expect("a group").as_str());
    let in_lists = listed.flat_map(|text| word.captures_iter(text));
    call.captures_iter(code).chain(in_lists).map(|found| found[1].to_owned()).collect()
}
