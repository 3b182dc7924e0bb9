//! What the program prints against the schema of its answer.
//!
//! Every recorded store is inspected in every form. A whole answer is one document; a line of the
//! jsonl form is one report. So are the answers of the other verbs that look at a store, and what a repair
//! of it says. The answers about one run are checked wherever a test asks for them ([`ask::assert_valid`]).

use std::path::Path;

use serde_json::Value;
use testkit::peer_runs::each_snapshot;

use super::{here, schemas};
use crate::ask;

#[test]
fn every_answer_about_a_recorded_store_is_valid() {
    let schemas = schemas();
    let (mut answers, mut lines) = (0, 0);
    each_snapshot(&here("tests/golden/peer-runs"), |name, root| {
        let whole: Value =
            serde_json::from_slice(&inspect(root, "json")).expect("one JSON document");
        let bad = schemas.check("inspect", "", &whole);
        assert!(bad.is_empty(), "{name}: the answer is valid: {}", bad.join("; "));
        answers += 1;
        let text = inspect(root, "jsonl");
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
    })
    .expect("recordings");
    assert!(answers >= 44 && lines >= 100, "{answers} answers and {lines} lines were checked");
}

/// Verbs that look at a store, and what a line of their jsonl form is.
const VERBS: &[(&[&str], &str, &[&str])] = &[
    (&["list", "--all"], "list", &["/properties/runs/items"]),
    (&["slots"], "slots", &["/$defs/slot"]),
    (&["leases"], "leases", &["/$defs/lease"]),
    (&["results"], "results", &["/$defs/result"]),
    (&["check", "-x"], "check", &["/$defs/problem"]),
    (&["prune"], "prune", &["/$defs/removed", "/$defs/kept"]),
    (&["recover", "--grace-ms", "0"], "plan", &["/$defs/action", "/$defs/refusal"]),
];

#[test]
fn what_is_said_of_no_store_is_valid() {
    let schemas = schemas();
    for (words, schema, part) in [
        (&["roots"][..], "roots", "/$defs/root"),
        (&["explain"], "explain", "/$defs/entry"),
        (&["explain", "RS-REC-05"], "explain", "/$defs/entry"),
        (&["spec"], "spec", "/$defs/chapter"),
        (&["spec", "16"], "spec", "/$defs/chapter"),
        (&["spec", "RS-REC"], "spec", "/$defs/clause"),
    ] {
        let asked = |format: &str| ask::run(&[words, &["--format", format]].concat()).stdout;
        let whole: Value = serde_json::from_slice(&asked("json")).expect("one document");
        assert_eq!(schemas.check(schema, "", &whole), [""; 0], "{words:?}: {whole:#}");
        let text = String::from_utf8(asked("jsonl")).expect("JSON is UTF-8");
        assert!(!text.is_empty(), "{words:?} says something");
        for line in text.lines() {
            let one: Value = serde_json::from_str(line).expect("one JSON document a line");
            assert_eq!(schemas.check(schema, part, &one), [""; 0], "{words:?}: {line}");
        }
    }
}

#[test]
fn what_other_verbs_say_of_a_recorded_store_is_valid() {
    let schemas = schemas();
    let mut lines = std::collections::BTreeMap::<&str, usize>::new();
    each_snapshot(&here("tests/golden/peer-runs"), |name, root| {
        for (words, schema, parts) in VERBS {
            let asked = |format: &str| {
                let mut args = words.to_vec();
                args.extend([ask::utf8(root), "--format", format]);
                ask::run(&args).stdout
            };
            let whole: Value = serde_json::from_slice(&asked("json")).expect("one document");
            let bad = schemas.check(schema, "", &whole);
            assert!(bad.is_empty(), "{name}: {words:?} is valid: {}", bad.join("; "));
            let text = String::from_utf8(asked("jsonl")).expect("JSON is UTF-8");
            for line in text.lines() {
                let one: Value = serde_json::from_str(line).expect("one JSON document a line");
                let fits = parts.iter().any(|part| schemas.check(schema, part, &one).is_empty());
                assert!(fits, "{name}: {words:?}: {line}");
                *lines.entry(schema).or_default() += 1;
            }
        }
        let repair = |words: &[&str]| {
            let answer = ask::run(words).stdout;
            let answer: Value = serde_json::from_slice(&answer).expect("one document");
            ask::assert_valid(&answer);
            answer
        };
        let root = ask::utf8(root);
        repair(&["recover", root, "--grace-ms", "0", "--apply", "--format", "json"]);
        let log = repair(&["recover", "log", "--root", root, "--format", "json"]);
        let undone = repair(&["recover", "undo", "--root", root, "--format", "json"]);
        let applied = &log["applies"][0]["actions"];
        let number = |list: &Value| list.as_array().map_or(0, Vec::len);
        assert_eq!(number(applied), number(&undone["undone"]), "{name}: all is taken back");
        *lines.entry("log").or_default() += number(applied);
    })
    .expect("recordings");
    for of in ["slots", "leases", "results", "check", "prune", "plan", "log"] {
        assert!(lines.get(of).is_some_and(|n| *n > 0), "{of} had something to say: {lines:?}");
    }
}

fn inspect(root: &Path, format: &str) -> Vec<u8> {
    ask::run(&["inspect", ask::utf8(root), "--host", "host-a", "--format", format]).stdout
}
