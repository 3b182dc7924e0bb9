//! What the existing implementations make of the bytes of a `status.json`, and what we make of them.
//!
//! A status that they return is compared by the members that this project reads. One that they refuse
//! has to be refused here for the same member, or not be decoded where they do not get that far.
//! Vectors that we treat differently are listed in [`DIFFERENT`] with the reason and our own answer,
//! and the test insists on both.

use std::collections::BTreeSet;

use runstore::protocol::status::StatusView;
use runstore::protocol::{DecodeError, Document, Open};
use serde_json::{Value, json};

use super::vectors::{self, bytes_of, text};

/// The file that is run here.
pub(super) const FILE: &str = "status-read";

/// Vector, our answer, why it is another one.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("empty object", "damaged: state", STATE_IS_NEEDED),
    ("steps null", "damaged: state", STATE_IS_NEEDED),
    ("array", NOT_DECODED, ONE_OBJECT),
    ("number", NOT_DECODED, ONE_OBJECT),
    ("string", NOT_DECODED, ONE_OBJECT),
    ("bad utf-8 is replaced", NOT_DECODED, NOT_UTF8),
    ("lane string", "damaged: state", LANE_IS_OPAQUE),
];
const NOT_DECODED: &str = "not decoded";
const STATE_IS_NEEDED: &str = "a run without a state word has no account of itself, so nothing may be concluded (RS-STATUS-01)";
const LANE_IS_OPAQUE: &str = "nothing here depends on the lane, so it is a complaint about the record and no damage (RS-JSON-15)";
const ONE_OBJECT: &str =
    "another JSON value has no members; they return it and fail wherever one is used (RS-JSON-08)";
const NOT_UTF8: &str = "a replaced byte makes another id of the recorded one; the bytes are reported instead (RS-JSON-01)";

#[test]
fn every_status_is_read_or_refused_as_recorded_or_listed_as_different() {
    let vectors = vectors::of(FILE);
    assert_eq!(vectors.len(), 13, "the list of vectors changed");
    let mut seen = BTreeSet::new();
    for vector in &vectors {
        let name = vector.name.as_str();
        let ours = ours(&bytes_of(&vector.input).expect("a vector has bytes"));
        let same = match vector.expected.get("ok") {
            Some(status) => ours == Ok(known_members(status)),
            None => refused_alike(&ours, text(&vector.expected, "error")),
        };
        match DIFFERENT.iter().find(|(listed, ..)| *listed == name) {
            Some((_, answer, reason)) => {
                assert!(!same, "{name} is listed as different, so it must differ");
                assert_eq!(ours, Err((*answer).to_owned()), "{name}: {reason}");
                seen.insert(name);
            }
            None => assert!(same, "{name} must agree or be listed with its reason, got {ours:?}"),
        }
    }
    assert_eq!(seen.len(), DIFFERENT.len(), "every listed vector exists");
}

/// The members that the vectors hold, as this project reads them, or how it refuses the bytes.
fn ours(bytes: &[u8]) -> Result<Value, String> {
    let Ok(doc) = Document::from_bytes(bytes) else {
        return Err(NOT_DECODED.to_owned());
    };
    let view = StatusView::read(&doc);
    if !view.damage.is_empty() {
        let members: Vec<_> = view.damage.iter().map(member_of).collect();
        return Err(format!("damaged: {}", members.join(", ")));
    }
    Ok(json!({
        "runId": view.run_id,
        "state": view.state.as_ref().map(Open::as_str),
        "steps": view.steps.len(),
    }))
}

fn member_of(damage: &DecodeError) -> &str {
    match damage {
        DecodeError::Member { member, .. } => member,
        other => panic!("damage of a status is about a member: {other}"),
    }
}

/// Whether our refusal is about what their text names: a member, or the bytes as such.
fn refused_alike(ours: &Result<Value, String>, theirs: &str) -> bool {
    let Err(ours) = ours else {
        return false;
    };
    let member = [(".lane must", "lane"), ("status.steps", "steps")];
    match member.iter().find(|(text, _)| theirs.contains(text)) {
        Some((_, member)) => {
            let members = ours.strip_prefix("damaged: ").unwrap_or_default();
            members.split(", ").any(|name| name == *member)
        }
        None => ours == NOT_DECODED,
    }
}

#[test]
fn a_lane_of_another_type_is_a_complaint_and_no_damage() {
    let doc = Document::parse(r#"{"runId":"r","state":"running","lane":"x"}"#).expect("parses");
    let view = StatusView::read(&doc);
    assert_eq!(view.damage, [], "an opaque member damages nothing");
    let members: Vec<_> = view.complaints.iter().map(member_of).collect();
    assert_eq!(members, ["lane"], "what others refuse is said");
}

fn known_members(status: &Value) -> Value {
    json!({
        "runId": status["runId"],
        "state": status["state"],
        "steps": status["steps"].as_array().map_or(0, Vec::len),
    })
}
