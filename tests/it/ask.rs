//! Questions to the program, and what every answer must keep to.
//!
//! Theory of operation. A question is one run of the real program with an empty home and a time limit;
//! a program that is not through by then is killed and the test fails. What holds for every answer in
//! a form for people is checked here, in one place: no control character but the line feed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use testkit::process::NOBODY;
use testkit::program::{self, Outcome};
use testkit::schema::Schemas;

use crate::schemas::schemas;

/// Nothing that a store can hold may keep the program busy for longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The program under test.
pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_runstore"))
}

/// Runs the program.
pub(crate) fn run(args: &[&str]) -> Outcome {
    let home = tempfile::tempdir().expect("a temporary directory");
    let outcome = program::run(program::command(&binary(), args, home.path()), LIMIT, None);
    in_time(args, outcome.expect("the program can be started"))
}

/// Runs a copy of the program as a user who owns nothing. Only root can ask so.
pub(crate) fn run_as_nobody(copy: &Path, args: &[&str]) -> Outcome {
    let mut command = program::command(copy, args, Path::new("/"));
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    in_time(args, program::run(command, LIMIT, None).expect("the program can be started"))
}

fn in_time(args: &[&str], outcome: Outcome) -> Outcome {
    assert!(!outcome.late, "{args:?}: the program must end within {LIMIT:?}");
    assert!(outcome.code >= 0, "{args:?}: ended by signal {}: {}", outcome.code, outcome.errors());
    let errors = outcome.errors();
    assert!(!errors.contains("panicked"), "{args:?}: no input is a reason to panic: {errors}");
    outcome
}

/// The text of a path.
pub(crate) fn utf8(path: &Path) -> &str {
    path.to_str().expect("the test made this path")
}

/// An answer in JSON, with its exit code.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) json: Value,
    pub(crate) code: i32,
}

/// Asks `inspect` for JSON of a path, with more arguments.
pub(crate) fn inspect_with(path: &Path, more: &[&str]) -> Answer {
    let mut args = vec!["inspect", utf8(path), "--format", "json"];
    args.extend_from_slice(more);
    Answer::of(&run(&args))
}

/// Asks `inspect` for JSON of a path.
pub(crate) fn inspect(path: &Path) -> Answer {
    inspect_with(path, &[])
}

/// The schema that an answer names.
pub(crate) fn schema_of(answer: &Value) -> Option<&str> {
    answer["schema"].as_str()?.strip_prefix("runstore.")?.strip_suffix("/1")
}

/// Holds an answer to the schema that it names, if it names one.
pub(crate) fn assert_valid(answer: &Value) {
    static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(schemas);
    let Some(name) = schema_of(answer) else { return };
    assert_eq!(schemas.check(name, "", answer), [""; 0], "valid by {name}: {answer:#}");
}

impl Answer {
    /// Reads the JSON of an outcome, which has to be valid by the schema that it names.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let json = serde_json::from_slice(&outcome.stdout)
            .unwrap_or_else(|e| panic!("not JSON: {e}: {}{}", outcome.text(), outcome.errors()));
        assert_valid(&json);
        Self { json, code: outcome.code }
    }

    /// All reports.
    pub(crate) fn runs(&self) -> &[Value] {
        self.json["runs"].as_array().expect("an answer has runs")
    }

    /// The only report of a run id.
    pub(crate) fn one(&self, id: &str) -> &Value {
        let mut found = self.runs().iter().filter(|r| r["runId"] == id);
        let one = found.next().unwrap_or_else(|| panic!("{id} has no report: {:#}", self.json));
        assert!(found.next().is_none(), "{id} has one report per directory");
        one
    }

    /// The verdict of a run id.
    pub(crate) fn verdict(&self, id: &str) -> &str {
        self.one(id)["verdict"].as_str().expect("a report has a verdict")
    }

    /// Verdict and liveness of the only run, and its reason for messages.
    pub(crate) fn only(&self) -> (String, String, String) {
        assert_eq!(self.runs().len(), 1, "one run was asked for: {:#}", self.json);
        let text = |key: &str| self.runs()[0][key].as_str().expect("a text").to_owned();
        (text("verdict"), text("liveness"), text("because"))
    }
}

/// Fails when a text for people holds anything that a terminal would obey, or that reorders text.
pub(crate) fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes);
    let text = text.unwrap_or_else(|e| panic!("{what}: the text must be UTF-8: {e}"));
    let harmful = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    if let Some(at) = text.find(harmful) {
        let line = text[..at].lines().count();
        let around: String = text[at..].chars().take(12).collect();
        panic!("{what}: line {line} holds {around:?}, which a terminal obeys");
    }
}
