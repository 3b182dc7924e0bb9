//! A report in every form: parsers that know nothing of us take them, and all of them tell the same.

use std::fs;

use serde_json::{Value, json};
use tap_parser::{DirectiveKind, TapParser, TapStatement};

use super::{judge, suite};
use crate::ask;

/// A report of a subject that passes, misses, and cannot be judged, with markup in what was seen.
pub(super) fn mixed() -> (tempfile::TempDir, String, Value) {
    let (mut report, code) = judge(&["--scenario", "fresh-complete"], &["true"]);
    assert_eq!(code, 1, "`true` does nothing");
    let checks = report["checks"].as_array_mut().expect("checks");
    checks[0]["seen"] = "<script>alert(1)</script> # TODO \u{1b}[31m & \"x\"".into();
    checks[0]["verdict"] = "fail".into();
    checks[1]["verdict"] = "gap".into();
    checks[2]["verdict"] = "skipped".into();
    report["smoke"] = "\u{1b}[31m<script>".into();
    for number in
        ["/tookMs", "/summary/mustClauses", "/scenarios/0/tookMs", "/scenarios/0/trace/0/atMs"]
    {
        *report.pointer_mut(number).expect("it is there") = "<script>".into();
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("report.json");
    fs::write(&path, report.to_string()).expect("room");
    let path = ask::utf8(&path).to_owned();
    (dir, path, report)
}

fn count(report: &Value, words: &[&str]) -> usize {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks.filter(|check| words.contains(&check["verdict"].as_str().expect("a word"))).count()
}

pub(super) fn shown(path: &str, format: &str) -> String {
    let outcome = suite(&["report", path, "--format", format]);
    assert_eq!(outcome.code, 0, "{format}: {}", outcome.errors());
    outcome.text()
}

#[test]
fn a_published_parser_takes_the_junit_report() {
    let (_dir, path, report) = mixed();
    let xml = shown(&path, "junit");
    let parsed = quick_junit::Report::deserialize_from_str(&xml).expect("JUnit XML");
    let cases = || parsed.test_suites.iter().flat_map(|suite| &suite.test_cases);
    let total = report["checks"].as_array().expect("checks").len();
    assert_eq!((parsed.tests, cases().count()), (total, total));
    assert_eq!(parsed.failures, count(&report, &["fail"]));
    let is_failure = |case: &&quick_junit::TestCase| {
        matches!(case.status, quick_junit::TestCaseStatus::NonSuccess { .. })
    };
    let is_skip = |case: &&quick_junit::TestCase| {
        matches!(case.status, quick_junit::TestCaseStatus::Skipped { .. })
    };
    assert_eq!(cases().filter(is_failure).count(), count(&report, &["fail"]));
    let passed_over = count(&report, &["skipped", "gap", "inconclusive"]);
    assert_eq!(cases().filter(is_skip).count(), passed_over);
    assert!(cases().any(|case| case.name.as_str() == "fresh-complete/quiet"));
}

#[test]
fn a_published_parser_takes_the_tap_report() {
    let (_dir, path, report) = mixed();
    let tap = shown(&path, "tap");
    let statements = TapParser::new().parse(&tap).expect("TAP");
    let total = report["checks"].as_array().expect("checks").len();
    let (mut points, mut bad, mut skipped, mut known) = (0, 0, 0, 0);
    for statement in &statements {
        match statement {
            TapStatement::Plan(plan) => assert_eq!(plan.count, total),
            TapStatement::TestPoint(point) => {
                points += 1;
                assert_eq!(point.number, Some(points));
                match point.directive.as_ref().map(|directive| &directive.kind) {
                    Some(DirectiveKind::Skip) => skipped += 1,
                    Some(DirectiveKind::Todo) => known += 1,
                    None => bad += usize::from(!point.result),
                }
            }
            _ => {}
        }
    }
    assert_eq!((points, bad), (total, count(&report, &["fail"])));
    assert_eq!(skipped, count(&report, &["skipped", "inconclusive"]));
    assert_eq!(known, count(&report, &["gap"]));
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_shows_what_a_subject_said_as_text() {
    let (_dir, path, report) = mixed();
    let mut other = report.clone();
    other["levelReached"] = "<script>".into();
    fs::write(&path, other.to_string()).expect("room");
    let page = shown(&path, "html");
    for foreign in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<script>").count(), 1, "only its own");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "it is shown");
    assert!(!page.contains('\u{1b}'), "nothing that a terminal obeys");
    let rows = page.matches("data-verdict=").count();
    // The script names the attribute too.
    assert_eq!(rows, report["checks"].as_array().expect("checks").len());
    let balanced = |tag: &str| {
        page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count()
            == page.matches(&format!("</{tag}>")).count()
    };
    for tag in ["details", "summary", "dl", "ol", "li", "svg", "button", "section", "main"] {
        assert!(balanced(tag), "{tag}");
    }
    for needed in
        ["lang=\"en\"", "prefers-color-scheme:dark", "Content-Security-Policy", "role=\"status\""]
    {
        assert!(page.contains(needed), "{needed}");
    }
}

#[test]
fn a_kept_report_reads_as_the_first_one_and_a_difference_is_named() {
    let (dir, path, mut report) = mixed();
    let text = shown(&path, "text");
    assert!(text.contains("fail  RS-START-47  L1  fresh-complete/quiet"), "{text}");
    assert!(!text.contains('\u{1b}'), "nothing that a terminal obeys: {text}");
    assert!(shown(&path, "badge").contains("\"message\":\"none\""));
    report["checks"][3]["verdict"] = "fail".into();
    let later = dir.path().join("later.json");
    fs::write(&later, report.to_string()).expect("room");
    let outcome = suite(&["diff", &path, ask::utf8(&later), "--format", "json"]);
    let diff: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let id = &report["checks"][3]["id"];
    assert_eq!(diff["changes"].as_array().map(Vec::len), Some(1), "{diff}");
    assert_eq!((&diff["changes"][0]["id"], &diff["changes"][0]["new"]), (id, &json!("fail")));
    assert_eq!(outcome.code, 1, "something fails that did not");
    let same = suite(&["diff", &path, &path]);
    assert_eq!((same.code, same.text().as_str()), (0, "nothing differs\n"));
    assert_eq!(suite(&["report", "/nowhere/report.json"]).code, 2);
}
