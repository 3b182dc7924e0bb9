//! What the program prints against the schema of its answer.
//!
//! Every recorded store is inspected in every form. A whole answer is one document; a line of the
//! jsonl form is one report.

use std::path::Path;

use serde_json::Value;
use testkit::peer_runs::Recording;

use super::{here, schemas};
use crate::ask;

#[test]
fn every_answer_about_a_recorded_store_is_valid() {
    let schemas = schemas();
    let (mut answers, mut lines) = (0, 0);
    for recording in Recording::all(&here("tests/golden/peer-runs")).expect("recordings") {
        let snapshots = recording.case["files"].as_object().expect("lists of snapshots");
        for snapshot in snapshots.keys() {
            let name = format!("{} {snapshot}", recording.name);
            let dir = tempfile::tempdir().expect("a temporary directory");
            let root = std::fs::canonicalize(dir.path()).expect("exists").join("root");
            recording.materialise(snapshot, &root).expect("a recorded snapshot");
            let whole: Value =
                serde_json::from_slice(&inspect(&root, "json")).expect("one JSON document");
            let bad = schemas.check("inspect", "", &whole);
            assert!(bad.is_empty(), "{name}: the answer is valid: {}", bad.join("; "));
            answers += 1;
            let text = inspect(&root, "jsonl");
            let text = String::from_utf8(text).expect("JSON is UTF-8");
            let mut reports = 0;
            for line in text.lines() {
                let report: Value = serde_json::from_str(line).expect("one JSON document a line");
                let bad = schemas.check("inspect", "/$defs/run", &report);
                assert!(bad.is_empty(), "{name}: the line is valid: {}", bad.join("; "));
                reports += 1;
            }
            let runs = whole["runs"].as_array().expect("a list of reports").len();
            assert_eq!(reports, runs, "{name}: both forms report every run");
            lines += reports;
        }
    }
    assert!(answers >= 44 && lines >= 100, "{answers} answers and {lines} lines were checked");
}

fn inspect(root: &Path, format: &str) -> Vec<u8> {
    ask::run(&["inspect", ask::utf8(root), "--host", "host-a", "--format", format]).stdout
}
