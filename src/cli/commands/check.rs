//! `runstore check`: is a store at rest as the spec wants it?
//!
//! Theory of operation. Everything that `inspect` finds counts by the table of the library's `check`; then the
//! records between the runs are held against one another. Each problem has three lines: what, do, see. It reads
//! only, and takes no lock: a store that is at work may show a pair of records in between two writes.
//! Spec: RS-CHECK-03 to RS-CHECK-06.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;

use runstore::check::{Held, Level, RunFact, across, level, of_verdict};
use runstore::inspect::{Inspection, RunReport, explain};
use runstore::protocol::finding::{self, FindingKind};
use runstore::protocol::verdict::Severity;
use runstore::protocol::{Open, Word as _, layout};
use runstore::store::{Depth, Host as _, Opened, RealHost, Store, StoreProblem};

use crate::cli::args::{CheckArgs, Format};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// One problem in wire form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Problem {
    id: &'static str,
    severity: &'static str,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    path: String,
    what: String,
    #[serde(rename = "do")]
    advice: String,
    see: Vec<String>,
}

/// Whether a path of a finding begins at the store and not at the run directory.
fn is_of_store(file: &str) -> bool {
    let first = file.split('/').next().unwrap_or_default();
    let dirs = [layout::RESULTS_DIR, layout::LEASES_DIR, layout::CAPACITY_DIR, layout::RUNS_DIR];
    dirs.iter().any(|dir| first == *dir || layout::fallback_pid(first, dir).is_some())
}

/// An absolute path stays what it is.
fn joined(root: &Path, relative: &str) -> String {
    root.join(relative).to_string_lossy().trim_end_matches('/').to_owned()
}

struct Check<'a> {
    strict: bool,
    session: Option<&'a str>,
    problems: Vec<Problem>,
    runs: u64,
    passed_over: u64,
}

/// Answers.
pub(crate) fn run(args: &CheckArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let paths = super::store_paths(&host, "check", &args.targets, &args.common)?;
    let now_ms = args.common.now.unwrap_or_else(|| host.now_ms());
    let session = args.common.session.as_deref();
    let (problems, runs, passed_over) = (Vec::new(), 0, 0);
    let mut check = Check { strict: args.strict, session, problems, runs, passed_over };
    for path in &paths {
        match super::open(&host, path, &args.common)? {
            Opened::Run(store, root, name) => {
                let found = Inspection::new(&store, Depth::Full).one(root, &name, None);
                let (_, report) = found.ok_or_else(|| super::no_run_at(&host, path))?;
                check.one(&store.root, &report);
            }
            Opened::Store(store) => check.whole(&store, args.slots),
        }
    }
    check.problems.sort_by(|a, b| (a.level, &a.path, a.id).cmp(&(b.level, &b.path, b.id)));
    check.finish(args, now_ms, output)
}

impl Check<'_> {
    fn whole(&mut self, store: &Store<'_, RealHost>, slot_limit: Option<usize>) {
        for problem in &store.problems {
            self.store_problem(&store.root, problem);
        }
        let mut inspection = Inspection::new(store, Depth::Full);
        let (mut facts, mut met) = (HashMap::new(), Vec::new());
        inspection.each(
            &mut |report| {
                self.one(&store.root, &report);
                let state = report.recorded_state.as_deref().map(Open::read);
                let (session_id, verdict) = (report.session_id, report.verdict_word);
                facts.insert(report.path, RunFact { state, session_id, verdict });
                ControlFlow::Continue(())
            },
            &mut met,
        );
        met.extend(inspection.orphan_markers());
        met.extend(inspection.route_problems());
        let slots: Vec<Held> = store
            .locks
            .slots
            .iter()
            .map(|slot| {
                let run_id = slot.owner.value().map(|o| o.run_id.clone()).unwrap_or_default();
                Held {
                    path: slot.path.clone(),
                    has_run: store.has_run_anywhere(&run_id),
                    run_id,
                    session_id: slot.owner.value().map(|o| o.owner_session_id.clone()),
                    claimed_ms: slot.claim_mtime_ms,
                    is_pending: false,
                }
            })
            .collect();
        let mut results = Vec::new();
        inspection.each_result(None, &mut |result| {
            results.push(Held {
                has_run: store.has_run_anywhere(&result.run_id),
                path: result.path,
                run_id: result.run_id,
                session_id: result.session_id,
                claimed_ms: None,
                is_pending: result.place == "pending",
            });
        });
        // After the runs: an entry that came meanwhile has its run, a run that came meanwhile may lack its entry.
        let survey = store.survey();
        met.extend(across(&survey, &facts, (&slots, slot_limit), &results, store.now_ms));
        // With a session only its runs are asked for; the rest of the store is not its business.
        if self.session.is_none() {
            for problem in &met {
                self.store_problem(&store.root, problem);
            }
        }
    }

    fn one(&mut self, root: &Path, report: &RunReport) {
        if self.session.is_some_and(|s| report.session_id.as_deref() != Some(s)) {
            return;
        }
        self.runs += 1;
        if let Some((verdict, level)) = report.verdict_word.and_then(|v| Some((v, of_verdict(v)?)))
        {
            let meaning = explain(verdict.as_str()).into_iter().find(|e| e.kind == "verdict");
            self.add(Problem {
                id: verdict.as_str(),
                severity: if level == Level::Must { "warning" } else { "note" },
                level: level.as_str(),
                run_id: Some(report.run_id.clone()),
                path: report.path.clone(),
                what: report.because.clone(),
                advice: meaning.and_then(|e| e.advice).unwrap_or_default(),
                see: vec!["RS-CHECK-06".to_owned()],
            });
        }
        for found in &report.findings {
            let Some(kind) = finding::by_id(found.id) else { continue };
            let file = found.file.as_deref().filter(|file| !file.is_empty());
            let path = match file {
                None => report.path.clone(),
                Some(file) if is_of_store(file) => joined(root, file),
                Some(file) => joined(report.path.as_ref(), file),
            };
            self.found(kind, Some(report.run_id.clone()), path, found.text.clone());
        }
    }

    fn store_problem(&mut self, root: &Path, problem: &StoreProblem) {
        if self.session.is_none() {
            let path = joined(root, &problem.path);
            self.found(problem.kind, None, path, problem.text.clone());
        }
    }

    fn found(
        &mut self,
        kind: &'static FindingKind,
        run_id: Option<String>,
        path: String,
        what: String,
    ) {
        let Some(level) = level(kind) else { return };
        self.add(Problem {
            id: kind.id,
            severity: kind.severity.as_str(),
            level: level.as_str(),
            run_id,
            path,
            what,
            advice: kind.advice.to_owned(),
            see: kind.clauses.iter().map(|clause| (*clause).to_owned()).collect(),
        });
    }

    fn add(&mut self, problem: Problem) {
        if problem.level == Level::Should.as_str() && !self.strict {
            self.passed_over += 1;
        } else {
            self.problems.push(problem);
        }
    }

    fn code(&self) -> Code {
        let of = |problem: &Problem| match problem.id {
            _ if problem.severity == Severity::Error.as_str() => Code::DAMAGED,
            "status-newer" | "state-unknown" => Code::NEWER,
            _ => Code::ATTENTION,
        };
        self.problems.iter().map(of).fold(Code::FINE, Code::worse)
    }

    fn finish(self, args: &CheckArgs, now_ms: i64, output: &mut Output) -> Result<Code, Failure> {
        let code = self.code();
        let count = |level: Level| {
            self.problems.iter().filter(|problem| problem.level == level.as_str()).count()
        };
        let (must, should) = (count(Level::Must), count(Level::Should));
        let out = output.writer();
        match args.common.format {
            Format::Json => {
                let answer = serde_json::json!({
                    "schema": "runstore.check/1", "nowMs": now_ms, "strict": self.strict,
                    "problems": self.problems,
                    "summary": {
                        "runs": self.runs, "must": must, "should": should,
                        "notAsked": self.passed_over,
                    },
                });
                serde_json::to_writer_pretty(&mut *out, &answer)?;
                writeln!(out)?;
            }
            Format::Jsonl => {
                for problem in &self.problems {
                    serde_json::to_writer(&mut *out, problem)?;
                    writeln!(out)?;
                }
            }
            Format::Text => {
                for problem in &self.problems {
                    let (severity, path) = (problem.severity, render::escape(&problem.path));
                    // What is told is one line, whatever a file has put into it.
                    let what = problem.what.lines().next().unwrap_or_default();
                    writeln!(out, "{severity}: {path}: {}", render::escape(what))?;
                    writeln!(out, "  do:  {}", render::escape(&problem.advice))?;
                    let clause = problem.see.first().map_or("", String::as_str);
                    writeln!(out, "  see: {clause} and {}, by runstore explain", problem.id)?;
                }
                let runs = if self.runs == 1 { "run" } else { "runs" };
                write!(out, "{} {runs} checked: ", self.runs)?;
                match must + should {
                    0 => write!(out, "no problem")?,
                    1 => write!(out, "1 problem")?,
                    n => write!(out, "{n} problems")?,
                }
                if self.passed_over > 0 {
                    write!(out, "; {} more with --strict", self.passed_over)?;
                }
                writeln!(out)?;
            }
        }
        Ok(code)
    }
}
