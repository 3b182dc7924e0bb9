//! `runstore conformance`: the suite judges our runner and others, and is not harmed by any.
//!
//! Theory of operation. The real program plays the suite with real processes as subjects, each in stores below a
//! directory of its own. Answers are held to `conformance/schemas/conformance-v1`. A suite takes as long as its longest wait, so
//! the whole one is played once.

mod hostile;
mod minimal;
mod page;
mod proving;
mod reports;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use testkit::process::skip;
use testkit::program::{self, Outcome};
use testkit::schema::Schemas;

use crate::ask;

/// The whole suite for one runner ends within this time.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs `runstore conformance`; its scratch directories lie in `scratch`.
pub(crate) fn suite_in(scratch: &Path, args: &[&str]) -> Outcome {
    let args: Vec<&str> = ["conformance"].iter().chain(args).copied().collect();
    let mut command = program::command(&ask::binary(), &args, scratch);
    command.env("TMPDIR", scratch);
    // One at a time: they bear other work beside them, and would slow each other without end.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // A proof plays the suite once and a part of it for each of the mistakes, which are more than a thousand.
    let limit = if args.contains(&"prove") { 15 * LIMIT } else { LIMIT };
    let outcome = program::run(command, limit, None).expect("the program can be started");
    assert!(!outcome.late, "{args:?}: the suite must end within {limit:?}");
    assert!(!outcome.errors().contains("panicked"), "{args:?}: {}", outcome.errors());
    outcome
}

/// The same, with a scratch directory that has to be empty afterwards.
pub(crate) fn suite(args: &[&str]) -> Outcome {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let outcome = suite_in(scratch.path(), args);
    let left: Vec<_> = scratch.path().read_dir().expect("there").flatten().collect();
    assert!(left.is_empty(), "{args:?} left {left:?}");
    outcome
}

/// A report, held to its schema.
pub(crate) fn report(outcome: &Outcome) -> Value {
    held_to("report", outcome)
}

/// An answer, held to a schema of `conformance/schemas/conformance-v1`.
pub(crate) fn held_to(schema: &str, outcome: &Outcome) -> Value {
    let report: Value = serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|e| panic!("no JSON: {e}: {}{}", outcome.text(), outcome.errors()));
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/schemas/conformance-v1");
    let schemas = Schemas::load(&top).expect("the schemas are of known keywords");
    let problems = schemas.check(schema, "", &report);
    assert!(problems.is_empty(), "{problems:?}");
    report
}

/// What did not pass, as text.
pub(crate) fn misses(report: &Value) -> Vec<String> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks
        // What needs a record of system calls is skipped where there is none.
        .filter(|check| check["verdict"] != "pass" && check["verdict"] != "skipped")
        .map(|check| {
            format!("{} {} {}: {}", check["verdict"], check["clause"], check["id"], check["seen"])
        })
        .collect()
}

/// Whether system calls can be recorded here.
pub(crate) fn has_strace() -> bool {
    let mut strace = std::process::Command::new("strace");
    let ended = strace.args(["-qq", "-o", "/dev/null", "--", "true"]).output();
    ended.is_ok_and(|out| out.status.success())
}

/// Whether this system tells in which order files change; elsewhere many checks say nothing.
pub(crate) fn tells_orders(test: &str) -> bool {
    if !cfg!(target_os = "linux") {
        skip(test, "this system does not tell in which order files change");
    }
    cfg!(target_os = "linux")
}

/// Judges a subject in JSON.
pub(crate) fn judge(more: &[&str], subject: &[&str]) -> (Value, i32) {
    let mut args = vec!["run", "--format", "json"];
    args.extend_from_slice(more);
    args.push("--");
    args.extend_from_slice(subject);
    let outcome = suite(&args);
    (report(&outcome), outcome.code)
}

/// This program in a role, as it is declared, against every check there is.
fn passes(role: &str, at_least: u64) {
    if !tells_orders(role) {
        return;
    }
    let declared = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/subjects/runstore.json");
    let args = ["run", "--format", "json", "--role", role, "--subject", ask::utf8(&declared)];
    let outcome = suite(&args);
    let report = report(&outcome);
    assert_eq!(misses(&report), Vec::<String>::new());
    assert_eq!((outcome.code, &report["levelReached"]), (0, &Value::from("L3")));
    let verdicts = &report["summary"]["verdicts"];
    assert!(verdicts["pass"].as_u64() >= Some(at_least), "{verdicts}");
    // Nothing is left out but what this system cannot show.
    for check in report["checks"].as_array().expect("checks") {
        let seen = check["seen"].as_str().expect("a text");
        let lacks = seen.strip_prefix("the subject does not do what this needs: ");
        let lacks = lacks.filter(|_| check["verdict"] == "skipped").unwrap_or_default();
        for lack in lacks.split(", ").filter(|lack| !lack.is_empty()) {
            assert!(["strace", "pidfs"].contains(&lack), "{} needs {lack}", check["id"]);
        }
    }
}

#[test]
fn our_runner_passes_everything_there_is() {
    passes("runner", 380);
}

#[test]
fn our_reader_passes_everything_there_is() {
    passes("reader", 500);
}

#[test]
fn our_observer_passes_everything_there_is() {
    passes("observer", 90);
}

#[test]
fn our_launcher_passes_everything_there_is() {
    passes("launcher", 90);
}

#[test]
fn our_repairer_passes_everything_there_is() {
    passes("repairer", 50);
}

#[test]
fn a_reader_that_does_not_answer_in_json_has_a_wrong_adapter() {
    for (subject, said) in [("echo", "but `"), ("true", "and said nothing")] {
        let outcome = suite(&["run", "--role", "reader", "--", subject]);
        assert_eq!(outcome.code, 2, "{}", outcome.text());
        let errors = outcome.errors();
        assert!(errors.contains("gave no JSON object") && errors.contains(said), "{errors}");
    }
}

#[test]
fn what_fits_nothing_or_cannot_be_started_is_a_usage_error() {
    for (args, wanted) in [
        (&["run", "--clause", "nothing", "--", "true"][..], "no check is selected"),
        (&["run", "--scenario", "nothing", "--", "true"], "no check is selected"),
        (&["list", "--clause", "nothing"], "no check is selected"),
        (&["run", "--role", "cook", "--", "true"], "no checks for the role"),
        (&["run", "--level", "L9", "--", "true"], "is no level"),
        (&["run", "--", "/nowhere/program"], "/nowhere/program cannot be started"),
        (&["prove", "--fault", "nothing"], "there is no mistake 'nothing'"),
        (&["prove", "--fault", "odd-state", "--fault", "nothing"], "no mistake 'nothing'"),
        (&["run", "--subject", "/nowhere/file", "--", "true"], "does not declare a subject"),
    ] {
        let outcome = suite(args);
        assert_eq!(outcome.code, 2, "{args:?}: {}{}", outcome.text(), outcome.errors());
        assert!(outcome.errors().contains(wanted), "{args:?}: {}", outcome.errors());
    }
}

#[test]
fn the_list_names_each_check_once_and_a_level_includes_those_before() {
    let of = |level: &str| {
        let outcome = suite(&["list", "--level", level, "--format", "json"]);
        assert_eq!(outcome.code, 0, "{}", outcome.errors());
        let list: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
        let checks = list["checks"].as_array().expect("checks").clone();
        checks.iter().map(|check| check["id"].to_string()).collect::<Vec<_>>()
    };
    let (one, two, three) = (of("L1"), of("L2"), of("L3"));
    assert!(one.len() < two.len() && two.len() < three.len(), "each level asks for more");
    assert!(one.iter().all(|id| two.contains(id)) && two.iter().all(|id| three.contains(id)));
    let text = suite(&["list"]).text();
    assert!(text.contains("RS-START-47") && text.contains("MUST clauses"), "{text}");
}

#[test]
fn a_gap_that_is_declared_counts_until_it_expires_and_only_while_it_is_one() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let declare = |id: &str, expires: &str| {
        let gap = serde_json::json!({"id": id, "reason": "known", "expires": expires});
        let doc = serde_json::json!({"schema": "runstore.conformance.subject/1", "gaps": [gap]});
        std::fs::write(file.path(), doc.to_string()).expect("room");
    };
    let path = ask::utf8(file.path()).to_owned();
    // `true` exits with 0 and does nothing else.
    let verdict = |check: &str| {
        let (report, code) = judge(&["--clause", check, "--subject", &path], &["true"]);
        (report["checks"][0]["verdict"].as_str().expect("a word").to_owned(), code)
    };
    declare("fresh-complete/state", "2999-01-01T00:00:00Z");
    assert_eq!(verdict("fresh-complete/state"), ("gap".to_owned(), 0));
    declare("fresh-complete/state", "2001-01-01T00:00:00Z");
    assert_eq!(verdict("fresh-complete/state"), ("fail".to_owned(), 1));
    declare("fresh-complete/exit", "2999-01-01T00:00:00Z");
    assert_eq!(verdict("fresh-complete/exit"), ("fail".to_owned(), 1), "it passes after all");
}
