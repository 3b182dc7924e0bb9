//! Every case under `conformance/cases`, asked of the program.
//!
//! Theory of operation. Each case is built in a directory of its own, every check is asked with
//! `--format json` and, where its text is judged, once more with `--format text`; after each question
//! the tree must be the same in every byte, mode, time and inode. Everything that is not as expected
//! is collected, and the test fails at the end with one line per failing check. What `expect.json`
//! may hold is told in the README beside the cases.
//!
//! A case that moves its times to the present is judged at the real time; no other depends on it.

mod compare;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testkit::case::{self, Case, SelfPid};
use testkit::program::{self, Outcome};
use testkit::tree::{self, Entry};

/// The cases that are stored, with all their checks and one `unchanged` each.
const CHECKS: usize = 123;

/// A limit of a case is meant for the release build. An unoptimised program on a busy machine gets
/// this many times as long; a program that does the wrong amount of work is still late.
const SLOWER: f64 = if cfg!(debug_assertions) { 4.0 } else { 1.0 };

#[test]
fn every_case_gets_the_answer_that_it_expects() {
    let mut tally = Tally::default();
    for case in stored_cases() {
        run_case(&case, &mut tally);
    }
    let total = tally.passed + tally.failures.len() + tally.skipped;
    let summary = format!(
        "{} passed, {} failed, {} skipped",
        tally.passed,
        tally.failures.len(),
        tally.skipped
    );
    assert_eq!(total, CHECKS, "every check of every case is asked: {summary}");
    assert!(
        tally.failures.is_empty(),
        "every case holds: {summary}\n{}",
        tally.failures.join("\n")
    );
}

#[derive(Default)]
struct Tally {
    passed: usize,
    skipped: usize,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, case: &str, check: &str, problems: &[String]) {
        if problems.is_empty() {
            self.passed += 1;
        } else {
            self.failures.push(format!("FAIL {case} [{check}] {}", problems.join("; ")));
        }
    }
}

fn stored_cases() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases");
    let mut out: Vec<_> = fs::read_dir(&top)
        .expect("the cases are part of the repository")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.join("expect.json").is_file())
        .collect();
    out.sort();
    out
}

fn run_case(stored: &Path, tally: &mut Tally) {
    let name = stored.file_name().expect("a case has a name").to_string_lossy().into_owned();
    let spec = fs::read(stored.join("expect.json")).expect("listed because it is there");
    let spec: Value = serde_json::from_slice(&spec).unwrap_or_else(|e| panic!("{name}: {e}"));
    let dir = tempfile::Builder::new().prefix("cases-").tempdir().expect("a temporary directory");
    let work = fs::canonicalize(dir.path()).expect("exists");
    let built = match case::build(stored, &work) {
        Ok(built) => built,
        Err(error) => return tally.add(&name, "setup", &[error.to_string()]),
    };
    let mut question = Question::new(built, &work, spec["selfPid"].as_u64());
    for check in spec["checks"].as_array().expect("a case has checks") {
        let title = check["name"].as_str().expect("a check has a name");
        let only = check.get("only").and_then(Value::as_array);
        if only.is_some_and(|systems| !systems.iter().any(|s| s == system())) {
            tally.skipped += 1;
            continue;
        }
        tally.add(&name, title, &question.check(check));
    }
    if spec.get("unchanged") != Some(&Value::Bool(false)) {
        let touched: Vec<_> = question
            .touched
            .iter()
            .map(|what| format!("expected an unchanged tree, got {what}"))
            .collect();
        tally.add(&name, "unchanged", &touched);
    }
}

/// The name of this system in `only`.
fn system() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    }
}

/// One built case, the program to ask, and what the tree was like before the next question.
struct Question {
    case: Case,
    work: PathBuf,
    home: PathBuf,
    self_pid: Option<SelfPid>,
    before: BTreeMap<String, Entry>,
    touched: Vec<String>,
}

impl Question {
    fn new(case: Case, work: &Path, self_pid: Option<u64>) -> Self {
        let home = work.join("home");
        fs::create_dir(&home).expect("the directory is new");
        let self_pid = self_pid.map(|mark| SelfPid::find(&case.root, mark).expect("readable"));
        let before = tree::snapshot(&case.target).expect("readable");
        Self {
            work: work.to_owned(),
            home,
            self_pid: self_pid.filter(|found| !found.is_empty()),
            before,
            touched: Vec::new(),
            case,
        }
    }

    /// Asks one check and returns what is wrong with the answer.
    fn check(&mut self, check: &Value) -> Vec<String> {
        let expect = &check["expect"];
        let now = self.now(check);
        let max_ms = expect.get("maxMs").and_then(Value::as_f64).map(|ms| ms * SLOWER);
        let limit = Duration::from_secs_f64((max_ms.unwrap_or(0.0) / 1000.0 * 2.0).max(60.0));
        let mut args: Vec<String> = check["args"]
            .as_array()
            .expect("a check has arguments")
            .iter()
            .map(|arg| self.fill(arg.as_str().expect("an argument is text")))
            .collect();
        if let Some(now) = now {
            args.extend(["--now".to_owned(), now.to_string()]);
        }
        let answer = self.ask(&args, "json", limit);
        if answer.late {
            let seconds = limit.as_secs();
            return vec![format!("time: expected an answer, got none in {seconds} s")];
        }
        let mut bad = Vec::new();
        if expect.get("json") != Some(&Value::Bool(false)) {
            bad.extend(compare::json(expect, &answer, &self.case.root, now));
        }
        bad.extend(compare::exit_code(expect, &answer, "json"));
        bad.extend(compare::patterns(expect, "json", &answer.text()));
        if let Some(max_ms) = max_ms.filter(|max_ms| answer.elapsed_ms > *max_ms) {
            bad.push(format!(
                "time: expected at most {max_ms} ms, got {:.0} ms",
                answer.elapsed_ms
            ));
        }
        if expect.get("textContains").is_some() || expect.get("textLacks").is_some() {
            let answer = self.ask(&args, "text", limit);
            bad.extend(compare::patterns(expect, "text", &answer.text()));
            bad.extend(compare::exit_code(expect, &answer, "text"));
        }
        bad
    }

    /// The instant at which a check is to be judged; none means the real time.
    fn now(&self, check: &Value) -> Option<i64> {
        let Some(file) = check.get("nowFromMtimeOf").and_then(Value::as_str) else {
            return check.get("nowMs").and_then(Value::as_i64);
        };
        let meta = fs::symlink_metadata(self.case.root.join(file)).expect("the case has this file");
        let plus = check.get("plusMs").and_then(Value::as_i64).unwrap_or(0);
        Some(meta.mtime() * 1000 + meta.mtime_nsec() / 1_000_000 + plus)
    }

    fn fill(&self, arg: &str) -> String {
        let path = |path: &Path| path.to_str().expect("temporary paths are text").to_owned();
        arg.replace("{root}", &path(&self.case.root)).replace("{target}", &path(&self.case.target))
    }

    /// Runs the program once and notes what it changed in the tree.
    fn ask(&mut self, args: &[String], format: &str, limit: Duration) -> Outcome {
        let mut args = args.to_vec();
        args.extend(["--format".to_owned(), format.to_owned()]);
        let binary = Path::new(env!("CARGO_BIN_EXE_runstore"));
        let outcome = match &self.self_pid {
            None => {
                let mut command = program::command(binary, &args, &self.home);
                command.current_dir(&self.work);
                program::run(command, limit, None)
            }
            Some(self_pid) => {
                let mut command = program::held_command(binary, &args, &self.home);
                command.current_dir(&self.work);
                let (case, before) = (&self.case, &mut self.before);
                let mut adopt = |pid: u32| -> io::Result<()> {
                    self_pid.adopt(&case.root, pid)?;
                    *before = tree::snapshot(&case.target)?;
                    Ok(())
                };
                program::run(command, limit, Some(&mut adopt))
            }
        };
        let outcome = outcome.expect("the program was built for this test");
        let after = tree::snapshot(&self.case.target).expect("readable");
        self.touched.extend(tree::diff(&self.before, &after));
        self.before = after;
        outcome
    }
}
