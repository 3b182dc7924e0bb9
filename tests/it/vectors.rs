//! The recorded vectors: where they lie, how they are compared, and that none of the promised is left out.
//!
//! Theory of operation. The modules `vectors_*` each run some of the files and say which; here their claims
//! are added up. [`of`] reads a file, and [`compare`] holds one answer for each of its vectors against a list
//! of those that are answered otherwise on purpose, each with its reason. The list is exact: a vector that is
//! listed and agrees, or is not listed and differs, is wrong, and so is a line of the list that no vector
//! meets. Some names stand in a file once for each implementation that recorded them, so a line names both.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{vectors_decisions, vectors_locks, vectors_names, vectors_status, vectors_writes};

/// The implementations that recorded.
pub(super) const FIRST: &str = "pi-subagents@0.67.0";
pub(super) const SECOND: &str = "@duckmind/dm-linux-x64@0.65.4";

/// Every file that has to be run.
const PROMISED: [&str; 18] = [
    "encode-index-segment",
    "index-segment-aliases",
    "temp-name",
    "marker-name",
    "candidate",
    "proof",
    "proof-in-status",
    "finalize",
    "reconcile",
    "lease-owner",
    "lease-stale",
    "capacity-owner",
    "runner-startup",
    "startup-control",
    "terminal-entry",
    "states",
    "status-read",
    "pid-liveness",
];

/// One recorded question with its answer.
pub(super) struct Vector {
    pub(super) name: String,
    /// The implementation that recorded it, or "both".
    pub(super) peer: String,
    pub(super) input: Value,
    pub(super) expected: Value,
}

/// A vector that is answered otherwise on purpose: file, the implementation that recorded it or "both", name,
/// why.
pub(super) type Difference = (&'static str, &'static str, &'static str, &'static str);

/// How one vector (input, expected) is checked.
pub(super) type Check = fn(&Value, &Value) -> Result<(), String>;

fn read(file: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/vectors");
    let bytes = std::fs::read(folder.join(format!("{file}.json")));
    let bytes = bytes.expect("the vectors are part of the project");
    serde_json::from_slice(&bytes).expect("the vectors are JSON")
}

/// The rows of the index: file and number of vectors.
fn index() -> Vec<(String, usize)> {
    let rows = read("INDEX")["files"].as_array().expect("a list of files").clone();
    let row = |row: &Value| {
        let file = row["file"].as_str().and_then(|file| file.strip_suffix(".json"));
        let count = row["vectors"].as_u64().and_then(|count| usize::try_from(count).ok());
        (file.expect("a JSON file").to_owned(), count.expect("a count"))
    };
    rows.iter().map(row).collect()
}

/// The vectors of one file, as many as the index counts.
pub(super) fn of(file: &str) -> Vec<Vector> {
    let all = read(file);
    let vectors: Vec<_> = all["vectors"]
        .as_array()
        .expect("a list of vectors")
        .iter()
        .map(|vector| {
            let peers = vector["peers"].as_array().expect("a list of peers");
            let peer = if let [one] = peers.as_slice() { string(one) } else { "both".to_owned() };
            let (input, expected) = (vector["input"].clone(), vector["expected"].clone());
            Vector { name: string(&vector["name"]), peer, input, expected }
        })
        .collect();
    let row = index().into_iter().find(|(name, _)| name == file);
    let (_, recorded) = row.expect("the index lists every file");
    assert_eq!(vectors.len(), recorded, "{file}: the index counts otherwise");
    vectors
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// Runs all `count` vectors of a file; `answer` says what is wrong with ours. Returns what is wrong after the
/// list of differences.
fn wrong(
    file: &str,
    count: usize,
    different: &[Difference],
    answer: impl Fn(&Vector) -> Result<(), String>,
) -> Vec<String> {
    let vectors = of(file);
    assert_eq!(vectors.len(), count, "{file}: the list of vectors changed");
    let listed: BTreeSet<(&str, &str)> = different
        .iter()
        .filter(|(of, ..)| *of == file)
        .map(|(_, peer, name, _)| (*peer, *name))
        .collect();
    let (mut met, mut wrong) = (BTreeSet::new(), Vec::new());
    for vector in &vectors {
        let key = (vector.peer.as_str(), vector.name.as_str());
        let is_listed = listed.contains(&key);
        match answer(vector) {
            Ok(()) if is_listed => wrong.push(format!("{file} {key:?}: listed, yet the same")),
            Err(why) if !is_listed => wrong.push(format!("{file} {key:?}: {why}")),
            _ => {}
        }
        if is_listed {
            assert!(met.insert(key), "{file}: {key:?} is listed, so it stands there once");
        }
    }
    assert_eq!(met, listed, "{file}: every listed vector exists");
    wrong
}

/// Compares `ours` with `theirs`, which reduce a vector to the same shape, for every vector of a file.
pub(super) fn compare(
    file: &str,
    count: usize,
    different: &[Difference],
    ours: impl Fn(&Vector) -> Value,
    theirs: impl Fn(&Vector) -> Value,
) {
    let wrong = wrong(file, count, different, |vector| same(&ours(vector), &theirs(vector)));
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks every vector of these files.
pub(super) fn check_all(files: &[(&str, usize, Check)], different: &[Difference]) {
    let of_file = |(file, count, check): &(&str, usize, Check)| {
        wrong(file, *count, different, |vector| check(&vector.input, &vector.expected))
    };
    let wrong: Vec<_> = files.iter().flat_map(of_file).collect();
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fails unless each difference is of a file that is run, and has its reason.
pub(super) fn assert_explained(files: &[&str], different: &[Difference], count: usize) {
    for (file, peer, name, reason) in different {
        assert!(files.contains(file), "{file} is run by this test");
        assert!(["both", FIRST, SECOND].contains(peer), "{name}: recorded by {peer}");
        assert!(reason.len() > 20, "{name}: the reason is a sentence");
    }
    assert_eq!(different.len(), count, "a new difference is counted on purpose");
}

pub(super) fn same(got: &Value, expected: &Value) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("got {got}, recorded {expected}")) }
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is text in {value}"))
}

/// The bytes of a file given as text, as hexadecimal digits, as a value, or not at all.
pub(super) fn bytes_of(input: &Value) -> Option<Vec<u8>> {
    match input {
        Value::Null => None,
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Object(map) if map.contains_key("raw") => bytes_of(&map["raw"]),
        Value::Object(map) if map.contains_key("bytesHex") => {
            let hex = text(input, "bytesHex");
            let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            Some((0..hex.len()).step_by(2).map(pair).collect())
        }
        value => Some(value.to_string().into_bytes()),
    }
}

/// The text of such a file.
pub(super) fn text_of(input: &Value) -> Option<String> {
    bytes_of(input).map(|bytes| String::from_utf8(bytes).expect("text"))
}

#[test]
fn every_promised_file_is_run_by_exactly_one_module() {
    let mut claimed: Vec<&str> = vectors_decisions::FILES.to_vec();
    claimed.extend(vectors_names::FILES.iter().map(|(file, ..)| *file));
    claimed.push(vectors_status::FILE);
    // The rest of that module is what the pure decisions were given already, on a disk.
    claimed.push(vectors_locks::CANONICAL);
    claimed.extend(vectors_writes::FILES.iter().map(|(file, ..)| *file));
    for file in PROMISED {
        let times = claimed.iter().filter(|name| **name == file).count();
        assert_eq!(times, 1, "{file} is run by one module");
    }
    for (file, _) in index() {
        assert!(claimed.contains(&file.as_str()), "{file} is run");
    }
}
