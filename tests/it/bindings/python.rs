//! The Python types, asked by Python: `bindings/python/check.py` walks what `typing.get_type_hints` says.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::process::skip;
use testkit::program;

use super::samples::{self, Sample};
use crate::schemas::here;

/// Whether there is an interpreter; without one the test says so.
fn is_there(test: &str) -> bool {
    let is_there = program::is_there("python3");
    if !is_there {
        skip(test, "there is no python3");
    }
    is_there
}

fn check() -> Command {
    let mut command = Command::new("python3");
    // Nothing is to be left beside the sources.
    command.arg("-B").arg(here("bindings/python/check.py"));
    command
}

/// What the checker calls the type of a document.
fn name(of: &Sample) -> String {
    let layer = if of.is_written { "written:" } else { "" };
    format!("{layer}{}", of.schema)
}

/// What the checker says of each document.
fn answers(samples: &[Sample], dir: &Path) -> Vec<String> {
    let lines: Vec<String> =
        samples.iter().map(|one| json!([name(one), one.document]).to_string() + "\n").collect();
    let input = dir.join("documents");
    fs::write(&input, lines.concat()).expect("room");
    let out =
        check().stdin(File::open(&input).expect("there")).output().expect("it can be started");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn every_document_that_a_schema_accepts_is_of_its_python_type() {
    if !is_there("python types") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let samples = samples::all();
    let answers = answers(samples, dir.path());
    assert_eq!(answers.len(), samples.len(), "an answer for each");
    let other = samples.iter().zip(&answers).filter(|(one, said)| (*said == "ok") != one.fits);
    let wrong: Vec<_> =
        other.map(|(one, said)| format!("{}: {}: {said}", name(one), one.what)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), samples.len(), wrong.join("\n"));
}

#[test]
fn an_author_asks_about_files_and_is_told_where_it_is_wrong() {
    if !is_there("python checker") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("room");
        path
    };
    let good = file("good.json", r#"{"state": "running", "steps": [{"agent": "a"}], "other": 1}"#);
    let bad = file("bad.json", r#"{"state": "running", "steps": [{}, {"async": "yes"}]}"#);
    let torn = file("torn.json", "{");
    let ask = |paths: &[&Path]| {
        let out = check().arg("Status").args(paths).output().expect("it can be started");
        (out.status.code(), String::from_utf8(out.stdout).expect("text"))
    };
    assert_eq!(ask(&[&good]), (Some(0), String::new()));
    let (code, said) = ask(&[&good, &bad, &torn]);
    assert_eq!((code, said.lines().count()), (Some(1), 2), "{said}");
    assert!(said.contains("bad.json: the document.steps[1].async: must be bool"), "{said}");
    assert!(said.contains("torn.json: no JSON: "), "{said}");
    let out = check().args(["NoSuchType", "x"]).output().expect("it can be started");
    assert!(!out.status.success() && !out.stderr.is_empty(), "a wrong name is told");
}
