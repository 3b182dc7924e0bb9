//! Where the recorded vectors lie, and that none of the promised files is left out.
//!
//! The modules `vectors_*` each run some of the files and say which; here their claims are added up.

use std::path::Path;

use serde_json::Value;

use super::{vectors_decisions, vectors_names, vectors_status, vectors_writes};

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

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/vectors").join(file);
    let bytes = std::fs::read(&path).expect("the vectors are part of the project");
    serde_json::from_slice(&bytes).expect("the vectors are JSON")
}

/// The vectors of one file.
pub(super) fn of(file: &str) -> Vec<Value> {
    read(file)["vectors"].as_array().expect("a list of vectors").clone()
}

/// How many vectors the index promises for one file.
pub(super) fn recorded_count(file: &str) -> usize {
    let index = read("INDEX.json");
    let files = index["files"].as_array().expect("a list of files");
    let row = files.iter().find(|row| row["file"] == file).expect("the index lists every file");
    usize::try_from(row["vectors"].as_u64().expect("a count")).expect("a small count")
}

#[test]
fn every_promised_file_is_run_by_exactly_one_module() {
    let mut claimed: Vec<String> = vectors_decisions::FILES.map(str::to_owned).to_vec();
    claimed.extend(vectors_names::FILES.iter().map(|(file, ..)| stem(file)));
    claimed.push(stem(vectors_status::FILE));
    // The rest of that module is what the pure decisions were given already, on a disk.
    claimed.push("lease-canonical".to_owned());
    claimed.extend(vectors_writes::FILES.iter().map(|(file, ..)| stem(file)));
    for file in PROMISED {
        let times = claimed.iter().filter(|name| *name == file).count();
        assert_eq!(times, 1, "{file} is run by one module");
    }
    let index = read("INDEX.json");
    for row in index["files"].as_array().expect("a list of files") {
        let file = stem(row["file"].as_str().expect("a name"));
        assert!(claimed.contains(&file), "{file} is run");
    }
}

fn stem(file: &str) -> String {
    file.strip_suffix(".json").expect("a vector file is JSON").to_owned()
}
