//! An answer of the program against what a case expects.
//!
//! Theory of operation. Pure functions of the expectation and of what the program printed; each
//! returns one line per thing that is not as expected, and none when all is. The words of
//! `expect.json`: a list means any of these is right, `null` means absent or null, `"*"` means any
//! text that is not empty. A path as key of `runs` is relative to the root; any other key is a run id
//! or the name of a run directory. Where several reports carry one id, one of them must fit.

use std::path::{Component, Path, PathBuf};

use regex_lite::Regex;
use serde_json::Value;
use testkit::program::Outcome;

const VERDICTS: &[&str] = &[
    "starting",
    "start-stuck",
    "start-failed",
    "never-started",
    "running",
    "running-unverified",
    "orphaned",
    "settling",
    "paused",
    "finished",
    "finished-unproven",
    "conflict",
    "corrupt",
    "unsupported",
    "unsafe",
    "not-a-run",
];

const LIVENESS: &[&str] = &["live", "dead", "reused", "foreign", "unknown", "not-recorded"];

const FLAGS: &[&str] = &[
    "repaired",
    "undelivered",
    "undeliverable",
    "result-missing",
    "unpublished-write",
    "output-committed",
    "control-pending",
    "overdue",
    "log-torn",
    "log-corrupt",
    "slot-retained",
    "slot-releasable",
    "lease-held",
    "shadow",
    "split-root",
    "temp-litter",
    "marker-stale",
    "marker-missing",
    "shared-pid",
    "loose-permissions",
    "truncated",
];

/// Compares a JSON answer with everything that `expect` says of it but patterns and time.
pub(super) fn json(
    expect: &Value,
    outcome: &Outcome,
    root: &Path,
    now: Option<i64>,
) -> Vec<String> {
    let Ok(document) = serde_json::from_slice::<Value>(&outcome.stdout) else {
        let (out, err) = (outcome.text(), outcome.errors());
        let first = out.trim().lines().next().or(err.trim().lines().next()).unwrap_or("nothing");
        let first: String = first.chars().take(120).collect();
        return vec![format!("output: expected one JSON object, got {first}")];
    };
    let reports = document.get("runs").and_then(Value::as_array);
    let Some(reports) = reports.filter(|all| all.iter().all(Value::is_object)) else {
        return vec!["output: expected an object with an array `runs` of objects".into()];
    };
    let mut bad = Vec::new();
    if document["schema"] != "runstore.inspect/1" {
        bad.push(format!("schema: expected runstore.inspect/1, got {}", show(&document["schema"])));
    }
    if let Some(now) = now.filter(|now| document["nowMs"] != *now) {
        bad.push(format!("nowMs: expected {now}, got {}", show(&document["nowMs"])));
    }
    reports.iter().for_each(|report| words(report, &mut bad));
    for (key, want) in members(expect, "runs") {
        let tries: Vec<_> =
            find(reports, key, root).into_iter().map(|got| run(key, want, got)).collect();
        match tries.into_iter().min_by_key(Vec::len) {
            None => bad.push(format!("{key}: expected a report, got none")),
            Some(best) => bad.extend(best),
        }
    }
    for key in strings(expect, "absentRuns") {
        if !find(reports, key, root).is_empty() {
            bad.push(format!("{key}: expected no report, got one"));
        }
    }
    for flag in strings(expect, "anyRunHasFlag") {
        if !reports.iter().any(|report| strings(report, "flags").any(|f| f == flag)) {
            bad.push(format!("flags: expected {flag} on some run, got it on none"));
        }
    }
    for (key, want) in members(expect, "counts") {
        let got = document.get(key).and_then(Value::as_array).map(|a| a.len() as u64);
        let bound = |name: &str| want.get(name).and_then(Value::as_u64);
        let fits = match (got, want) {
            (None, _) => false,
            (Some(n), Value::Object(_)) => {
                bound("min").unwrap_or(0) <= n && n <= bound("max").unwrap_or(u64::MAX)
            }
            (Some(n), exact) => exact.as_u64() == Some(n),
        };
        if !fits {
            bad.push(format!("{key}: expected {want} entries, got {got:?}"));
        }
    }
    bad
}

/// Compares an exit code. `how` names the question in the message.
pub(super) fn exit_code(expect: &Value, outcome: &Outcome, how: &str) -> Vec<String> {
    match expect.get("exitCode") {
        Some(want) if !among(want, &Value::from(outcome.code)) => {
            vec![format!("exit code ({how}): expected {}, got {}", show(want), outcome.code)]
        }
        _ => Vec::new(),
    }
}

/// Compares a text with the patterns `<kind>Contains` and `<kind>Lacks`.
pub(super) fn patterns(expect: &Value, kind: &str, text: &str) -> Vec<String> {
    let matches = |pattern: &str| match Regex::new(pattern) {
        Ok(regex) => regex.is_match(text),
        Err(error) => panic!("{pattern}: a pattern of a case must be one: {error}"),
    };
    let mut bad = Vec::new();
    for pattern in strings(expect, &format!("{kind}Contains")).filter(|p| !matches(p)) {
        bad.push(format!("{kind}: expected /{pattern}/, not there"));
    }
    for pattern in strings(expect, &format!("{kind}Lacks")).filter(|p| matches(p)) {
        bad.push(format!("{kind}: expected no /{pattern}/, got it"));
    }
    bad
}

/// Every word of a report that has a closed list must be on it.
fn words(report: &Value, bad: &mut Vec<String>) {
    let flags = report.get("flags").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let flags = flags.iter().map(|flag| (flag, FLAGS));
    let pairs = [(&report["verdict"], VERDICTS), (&report["liveness"], LIVENESS)];
    for (word, known) in pairs.into_iter().chain(flags) {
        if !word.as_str().is_some_and(|word| known.contains(&word)) {
            let id = show(&report["runId"]);
            bad.push(format!("{id}: {} is not a word of the contract", show(word)));
        }
    }
}

/// Compares one report with what is expected of its run.
fn run(key: &str, want: &Value, got: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    let mut must = |what: &str, want: &Value, got: &Value| {
        if !among(want, got) {
            bad.push(format!("{key} {what}: expected {}, got {}", show(want), show(got)));
        }
    };
    for name in ["verdict", "recordedState", "liveness", "preferred", "resumable", "stage"] {
        if let Some(want) = want.get(name) {
            must(name, want, &got[name]);
        }
    }
    if let Some(want) = want.get("proofCounts") {
        let no = Value::Array(vec![Value::Bool(false), Value::Null]);
        let counts = got["proof"].get("counts").unwrap_or(&Value::Null);
        must("proof.counts", if want == true { want } else { &no }, counts);
    }
    let flags: Vec<_> = strings(got, "flags").collect();
    let listed = if flags.is_empty() { "none".to_owned() } else { flags.join(",") };
    let rule = want.get("flags").unwrap_or(&Value::Null);
    for flag in strings(rule, "has").filter(|flag| !flags.contains(flag)) {
        bad.push(format!("{key} flags: expected {flag}, got {listed}"));
    }
    for flag in strings(rule, "hasNot").filter(|flag| flags.contains(flag)) {
        bad.push(format!("{key} flags: expected no {flag}, got {listed}"));
    }
    bad
}

/// The reports that `key` names.
fn find<'a>(reports: &'a [Value], key: &str, root: &Path) -> Vec<&'a Value> {
    let named = |report: &&Value| {
        let full = normal(&root.join(report["path"].as_str().unwrap_or_default()));
        if key.contains('/') {
            full == normal(&root.join(key))
        } else {
            report["runId"] == *key || full.file_name().is_some_and(|name| name == key)
        }
    };
    reports.iter().filter(named).collect()
}

/// The path without `.` and `..`, as text: nothing is looked up.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Whether `got` is one of the values that `want` allows. Absent reads as null.
fn among(want: &Value, got: &Value) -> bool {
    match want {
        Value::Array(any) => any.iter().any(|want| among(want, got)),
        Value::String(star) if star == "*" => got.as_str().is_some_and(|text| !text.is_empty()),
        one => one == got,
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Array(any) => any.iter().map(show).collect::<Vec<_>>().join(" or "),
        Value::Null => "absent".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn members<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    of.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn strings<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    of.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    const ROOT: &str = "/root/of/case";

    fn outcome(document: &Value) -> Outcome {
        let stdout = document.to_string().into_bytes();
        Outcome { code: 0, stdout, stderr: Vec::new(), elapsed_ms: 0.0, late: false }
    }

    fn report(id: &str, verdict: &str) -> Value {
        value!({"runId": id, "path": format!("{ROOT}/runs/{id}"), "verdict": verdict,
            "liveness": "dead", "flags": ["repaired"], "proof": {"counts": false}})
    }

    fn compare(expect: &Value, runs: Value) -> Vec<String> {
        let document = value!({"schema": "runstore.inspect/1", "nowMs": 5, "runs": runs});
        json(expect, &outcome(&document), Path::new(ROOT), Some(5))
    }

    /// Says that the expectation is met, or is missed with one line that holds `line`.
    fn check(expect: Value, line: Option<&str>) {
        let bad = compare(&expect, value!([report("a", "orphaned"), report("b", "running")]));
        match line {
            None => assert_eq!(bad, [""; 0], "{expect} is met"),
            Some(line) => {
                assert_eq!(bad.len(), 1, "{expect}: one thing is wrong: {bad:?}");
                assert!(bad[0].contains(line), "{expect}: {bad:?} says {line}");
            }
        }
    }

    #[test]
    fn a_list_allows_any_of_its_values_and_null_means_absent() {
        check(value!({"runs": {"a": {"verdict": ["running", "orphaned"]}}}), None);
        check(
            value!({"runs": {"a": {"verdict": "running"}}}),
            Some("expected running, got orphaned"),
        );
        check(value!({"runs": {"a": {"stage": [null, "ready"]}}}), None);
        check(value!({"runs": {"a": {"stage": null}}}), None);
        check(value!({"runs": {"a": {"stage": "*"}}}), Some("got absent"));
        check(value!({"runs": {"a": {"liveness": "*"}}}), None);
        check(value!({"runs": {"a": {"resumable": 0}}}), Some("expected 0"));
    }

    #[test]
    fn a_proof_that_must_not_count_may_also_be_absent() {
        check(value!({"runs": {"a": {"proofCounts": false}}}), None);
        check(value!({"runs": {"a": {"proofCounts": null}}}), None);
        check(value!({"runs": {"a": {"proofCounts": true}}}), Some("proof.counts: expected true"));
    }

    #[test]
    fn flags_are_judged_both_ways() {
        check(value!({"runs": {"a": {"flags": {"has": ["repaired"]}}}}), None);
        check(value!({"runs": {"a": {"flags": {"has": ["shadow"]}}}}), Some("expected shadow"));
        check(value!({"runs": {"a": {"flags": {"hasNot": ["repaired"]}}}}), Some("no repaired"));
        check(value!({"anyRunHasFlag": ["repaired"]}), None);
        check(value!({"anyRunHasFlag": ["shadow"]}), Some("on some run"));
    }

    #[test]
    fn a_run_is_named_by_its_id_its_directory_or_its_path() {
        check(value!({"runs": {"a": {}, "runs/b": {}, "./runs/x/../b": {}}}), None);
        check(value!({"runs": {"c": {}}}), Some("expected a report, got none"));
        check(value!({"runs": {"other/a": {}}}), Some("expected a report, got none"));
        check(value!({"absentRuns": ["c"]}), None);
        check(value!({"absentRuns": ["a"]}), Some("expected no report"));
    }

    #[test]
    fn of_several_reports_with_one_id_one_must_fit() {
        let runs = value!([report("a", "orphaned"), report("a", "running")]);
        let want = |verdict: &str| value!({"runs": {"a": {"verdict": verdict}}});
        assert_eq!(compare(&want("running"), runs.clone()), [""; 0], "the second one fits");
        assert_eq!(compare(&want("paused"), runs).len(), 1, "none fits, the best is reported");
    }

    #[test]
    fn counts_are_exact_or_between_bounds() {
        check(value!({"counts": {"runs": 2}}), None);
        check(value!({"counts": {"runs": 3}}), Some("expected 3 entries"));
        check(value!({"counts": {"runs": {"min": 1, "max": 2}}}), None);
        check(value!({"counts": {"runs": {"min": 3}}}), Some("entries"));
        check(value!({"counts": {"slots": {"min": 0}}}), Some("entries"));
    }

    #[test]
    fn strange_words_and_other_documents_are_reported() {
        let strange = compare(&value!({}), value!([report("a", "dead")]));
        assert_eq!(strange, ["a: dead is not a word of the contract"]);
        let answer =
            |document: &Value| json(&value!({}), &outcome(document), Path::new(ROOT), Some(5));
        assert_eq!(answer(&value!([])).len(), 1, "an array is no answer");
        assert_eq!(answer(&value!({"runs": [1]})).len(), 1, "a report is an object");
        let other = value!({"schema": "x/1", "nowMs": 6, "runs": []});
        assert_eq!(answer(&other).len(), 2, "schema and instant are compared");
        let mut silent = outcome(&Value::Null);
        silent.stdout.clear();
        let said = json(&value!({}), &silent, Path::new(ROOT), None);
        assert_eq!(said, ["output: expected one JSON object, got nothing"]);
    }

    #[test]
    fn exit_codes_and_patterns_are_compared() {
        let ended = outcome(&Value::Null);
        assert_eq!(exit_code(&value!({"exitCode": [0, 1]}), &ended, "json"), [""; 0]);
        assert_eq!(exit_code(&value!({"exitCode": 8}), &ended, "json").len(), 1);
        assert_eq!(exit_code(&value!({}), &ended, "json"), [""; 0], "no code is asked for");
        let expect = value!({"textContains": ["(?i)ORPHANED"], "textLacks": ["\\x1b", "\\x00"]});
        assert_eq!(patterns(&expect, "text", "one orphaned run"), [""; 0]);
        assert_eq!(patterns(&expect, "text", "\u{1b}[31m").len(), 2);
        assert_eq!(patterns(&expect, "json", "\u{1b}"), [""; 0], "the other output is not meant");
    }
}
