//! Every recorded and every example document: what the schema accepts, the decoder accepts.
//!
//! Only the bytes of one document are judged here. That a run is unsupported, that a proof belongs to
//! another run or that an owner record lies in another's place is for the chapters to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

use runstore::protocol::candidate::Candidate;
use runstore::protocol::lease::LeaseOwner;
use runstore::protocol::marker::TerminalEntry;
use runstore::protocol::proof::Proof;
use runstore::protocol::result::ResultView;
use runstore::protocol::slot::SlotOwner;
use runstore::protocol::startup::{ControlMessage, StartupMessage, StartupState};
use runstore::protocol::status::StatusView;
use runstore::protocol::{Document, Open, event, layout};
use serde_json::Value;
use testkit::schema::Schemas;
use testkit::tree;

use super::{here, schemas};
use crate::vectors::{self, Vector, bytes_of};

/// Recorded documents of which schema and decoder say different things, with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "tests/golden/peer-runs/dm-0.65.4/unknown-proofs/final/async-subagent-runs/run-unknown-foreign-proof/process-terminal.json",
        OWN_RUNNER,
    ),
    (
        "tests/golden/peer-runs/pi-0.67.0/unknown-proofs/final/async-subagent-runs/run-unknown-foreign-proof/process-terminal.json",
        OWN_RUNNER,
    ),
];
const OWN_RUNNER: &str = "that the listed runner is the one that the proof names compares two members, \
                          which a schema cannot (RS-PROOF-01)";

/// Schemas of what the program prints.
const OUTPUTS: [&str; 21] = [
    "apply", "check", "control", "explain", "inspect", "leases", "list", "log", "logs", "plan",
    "prune", "release", "results", "roots", "run", "slots", "spec", "sweep", "undo", "wait",
    "witness",
];

/// Schemas of documents that nothing decodes yet: a recorded one has to be valid.
const NOT_DECODED: [&str; 4] =
    ["nested-event", "nested-route", "result-index-entry", "runner-config"];

/// The schema for a file at this place of a store, if it has one.
pub(super) fn schema_of(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let below = |part: &str| path.components().any(|c| c == Component::Normal(part.as_ref()));
    let json = name.ends_with(".json");
    Some(match name {
        layout::STATUS => "status",
        layout::PROOF => "process-terminal",
        layout::CANDIDATE => "process-terminal-candidate",
        layout::STARTUP => "runner-startup",
        layout::STARTUP_ACK | layout::STARTUP_CONFIRM | layout::STARTUP_PROCEED => {
            "startup-control"
        }
        layout::EVENTS => "event",
        layout::WORKFLOW_RESULT => "result",
        layout::OWNER if below(layout::LEASES_DIR) => "lease-owner",
        layout::OWNER if below(layout::CAPACITY_DIR) => "capacity-owner",
        "route.json" if below(layout::NESTED_EVENTS_DIR) => "nested-route",
        _ if json && below(".route-index") => "nested-route",
        _ if json && below(layout::NESTED_EVENTS_DIR) && below("events") => "nested-event",
        _ if json && below(layout::TERMINAL_INDEX) => "terminal-run-entry",
        _ if json && below(layout::RESULT_INDEX) => "result-index-entry",
        _ if json && name.starts_with(layout::RUNNER_CONFIG_PREFIX) => "runner-config",
        _ if json && in_results(path) && !below(layout::COMPLETION_REPLAY) => "result",
        _ => return None,
    })
}

/// Whether a path lies in a results root, usual or fallback, and carries no temp name.
fn in_results(path: &Path) -> bool {
    let is_root = |name: &str| {
        name == layout::RESULTS_DIR || layout::fallback_pid(name, layout::RESULTS_DIR).is_some()
    };
    path.components().any(|c| c.as_os_str().to_str().is_some_and(is_root))
        && !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether the code accepts the bytes of a document; `None` when nothing decodes its kind.
fn decodes(schema: &str, bytes: &[u8]) -> Option<bool> {
    if NOT_DECODED.contains(&schema) {
        return None;
    }
    if schema == "event" {
        return Some(event::summarize(bytes, true).events == 1);
    }
    let Ok(doc) = Document::from_bytes(bytes) else {
        return Some(false);
    };
    Some(match schema {
        "status" => StatusView::read(&doc).damage.is_empty(),
        "process-terminal" => Proof::read(&doc).is_ok(),
        "process-terminal-candidate" => Candidate::read(&doc).is_ok(),
        "lease-owner" => LeaseOwner::read(&doc).is_ok(),
        "capacity-owner" => SlotOwner::read(&doc).is_ok(),
        "terminal-run-entry" => TerminalEntry::read(&doc).is_ok(),
        "result" => ResultView::read(&doc).run_id.is_some(),
        "runner-startup" => {
            let message = StartupMessage::read(&doc);
            match message.state {
                None => false,
                Some(Open::Known(StartupState::Error)) => message.error.is_some(),
                Some(Open::Known(_)) => message.token.is_some(),
                Some(Open::Unrecognized(_)) => true,
            }
        }
        "startup-control" => {
            let message = ControlMessage::read(&doc);
            message.action.is_some() && message.token.is_some()
        }
        other => panic!("no decoder and no reason for {other}"),
    })
}

pub(crate) fn validates(schemas: &Schemas, schema: &str, bytes: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| "no JSON".to_owned())?;
    let bad = schemas.check(schema, "", &value);
    if bad.is_empty() { Ok(()) } else { Err(bad.join("; ")) }
}

/// The documents of a file: the lines of a log, else the file.
fn documents_of(schema: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    if schema != "event" {
        return vec![bytes.to_vec()];
    }
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii().is_empty()).map(<[u8]>::to_vec).collect()
}

/// The documents of recorded stores and of cases: schema, file with the number of the document in it, bytes.
pub(crate) fn of_recordings() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut found = Vec::new();
    for top in ["tests/golden/peer-runs", "conformance/cases"] {
        for path in tree::walk(&here(top)).expect("the recordings are part of the project") {
            let Some(schema) = schema_of(&path).filter(|_| path.is_file()) else { continue };
            let bytes = fs::read(&path).expect("readable");
            let name = path.strip_prefix(here("")).expect("below the top").display();
            let documents = documents_of(schema, &bytes).into_iter().enumerate();
            found.extend(documents.map(|(n, bytes)| (schema, format!("{name}:{}", n + 1), bytes)));
        }
    }
    found
}

#[test]
fn every_recorded_document_is_valid_exactly_when_its_decoder_accepts_it() {
    let schemas = schemas();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (schema, place, document) in of_recordings() {
        *counts.entry(schema).or_default() += 1;
        let valid = validates(&schemas, schema, &document);
        let same = decodes(schema, &document).map_or(valid.is_ok(), |d| d == valid.is_ok());
        let (name, _) = place.rsplit_once(':').expect("a number");
        match (same, DIFFERENT.iter().find(|(file, _)| *file == name)) {
            (true, None) => {}
            (false, Some((file, _))) => {
                seen.insert(*file);
            }
            (true, Some(_)) => wrong.push(format!("{place}: listed, yet the same")),
            (false, None) => wrong.push(format!("{place}: {schema}: the schema says {valid:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(seen.len(), DIFFERENT.len(), "every listed document exists");
    let unseen: Vec<_> = schemas.names().filter(|name| !counts.contains_key(name)).collect();
    assert_eq!(unseen, OUTPUTS, "every schema of a document is tried on a recorded one");
}

/// Vectors of which schema and decoder say different things: schema, vector, reason.
const DIFFERENT_VECTORS: &[(&str, &str, &str)] = &[
    ("process-terminal", "observed runner mismatch [run+runner]", OWN_RUNNER),
    ("process-terminal", "observed two runners, first wrong [run+runner]", OWN_RUNNER),
];

/// The vectors that are documents: schema, file, and where in the question the document stands.
const VECTORS: [(&str, &str, &str); 8] = [
    ("status", "status-read", "/raw"),
    ("process-terminal-candidate", "candidate", ""),
    ("process-terminal", "proof", "/raw"),
    ("lease-owner", "lease-owner", "/raw"),
    ("capacity-owner", "capacity-owner", "/raw"),
    ("terminal-run-entry", "terminal-entry", "/raw"),
    ("runner-startup", "runner-startup", "/raw"),
    ("startup-control", "startup-control", "/raw"),
];

/// The documents of the vectors: schema, name of the vector, bytes.
pub(crate) fn of_vectors() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut found = Vec::new();
    for (schema, file, pointer) in VECTORS {
        for Vector { name, input, .. } in vectors::of(file) {
            let given = input.pointer(pointer).filter(|given| given.get("directory").is_none());
            if let Some(bytes) = given.and_then(bytes_of) {
                found.push((schema, name, bytes));
            }
        }
    }
    found
}

#[test]
fn every_vector_of_a_document_is_valid_exactly_when_its_decoder_accepts_it() {
    let schemas = schemas();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (schema, name, bytes) in of_vectors() {
        let valid = validates(&schemas, schema, &bytes);
        let same = decodes(schema, &bytes) == Some(valid.is_ok());
        match (same, DIFFERENT_VECTORS.iter().find(|(s, n, _)| (*s, *n) == (schema, name.as_str())))
        {
            (true, None) => {}
            (false, Some((schema, name, _))) => {
                seen.insert((*schema, *name));
            }
            (true, Some(_)) => wrong.push(format!("{schema} {name:?}: listed, yet the same")),
            (false, None) => wrong.push(format!("{schema} {name:?}: the schema says {valid:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(seen.len(), DIFFERENT_VECTORS.len(), "every listed vector exists");
}

/// The examples: schema, file, bytes.
pub(crate) fn of_examples() -> Vec<(String, String, Vec<u8>)> {
    let paths = tree::walk(&here("spec/examples/v1")).expect("there are examples").into_iter();
    let named = paths.filter(|path| path.is_file()).map(|path| {
        let name = path.file_name().expect("named").to_string_lossy().into_owned();
        let schema = name.split('.').next().unwrap_or_default().to_owned();
        (schema, name, fs::read(&path).expect("readable"))
    });
    named.collect()
}

#[test]
fn every_example_is_valid_and_accepted() {
    let schemas = schemas();
    let mut tried = BTreeSet::new();
    for (schema, name, bytes) in of_examples() {
        assert_eq!(validates(&schemas, &schema, &bytes), Ok(()), "{name} is valid");
        if !OUTPUTS.contains(&schema.as_str()) {
            let value: Value = serde_json::from_slice(&bytes).expect("valid, so it parses");
            // A line of a log is one line; an example is written for people.
            let bytes = if schema == "event" { value.to_string().into_bytes() } else { bytes };
            assert_ne!(decodes(&schema, &bytes), Some(false), "{name} is accepted");
        }
        tried.insert(schema);
    }
    let all: BTreeSet<_> = schemas.names().map(str::to_owned).collect();
    assert_eq!(tried, all, "every schema has an example");
}
