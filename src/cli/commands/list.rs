//! `runstore list`: one line for each run.
//!
//! Without `--all` the indexes lead: what is active, then what ended last, so a store of any size
//! answers at once. With `--all` every directory is read and rows appear as they are read.

use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;

use runstore::inspect::{Filter, Inspection, ProblemReport, RunReport, Summary};
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};

use crate::cli::args::{Format, ListArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

const DEFAULT_LIMIT: usize = 50;

struct Rows<'o> {
    output: &'o mut Output,
    args: &'o ListArgs,
    filter: Filter,
    now_ms: i64,
    limit: usize,
    summary: Summary,
    kept: Vec<RunReport>,
    code: Code,
    failed: Option<Failure>,
}

impl Rows<'_> {
    fn is_full(&self) -> bool {
        self.summary.total >= self.limit as u64
    }

    /// Looks no further than the output needs.
    fn inspection<'s, 'h>(&self, store: &'s Store<'h, RealHost>) -> Inspection<'s, 'h, RealHost> {
        let inspection = Inspection::new(store, Depth::Row);
        if self.args.common.format == Format::Text { inspection.brief() } else { inspection }
    }

    fn take(&mut self, report: RunReport) -> ControlFlow<()> {
        let active = matches!(report.recorded_state.as_deref(), Some("queued" | "running"));
        if !self.filter.wants(&report) || (self.args.active && !active) {
            return ControlFlow::Continue(());
        }
        self.code = self.code.worse(Code::of_report(&report));
        self.summary.count(&report);
        if let Err(failure) = self.write(report) {
            self.failed = Some(failure);
            return ControlFlow::Break(());
        }
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, report: RunReport) -> Result<(), Failure> {
        match self.args.common.format {
            Format::Text => {
                let first = self.summary.total == 1;
                let out = self.output.writer();
                if first {
                    render::row_head(out)?;
                }
                render::row(out, &report, self.now_ms)?;
            }
            Format::Json => self.kept.push(report),
            Format::Jsonl => {
                let out = self.output.writer();
                serde_json::to_writer(&mut *out, &report)?;
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

/// Answers.
pub(crate) fn run(args: &ListArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let paths = match args.targets.as_slice() {
        [] => super::default_paths(&host, args.common.root.as_ref())?,
        named => named.to_vec(),
    };
    let limit = args.limit.unwrap_or(if args.all { usize::MAX } else { DEFAULT_LIMIT });
    let mut rows = Rows {
        output,
        args,
        filter: Filter { session: args.common.session.clone(), verdicts: Vec::new() },
        now_ms: args.common.now.unwrap_or_else(|| host.now_ms()),
        limit,
        summary: Summary::default(),
        kept: Vec::new(),
        code: Code::FINE,
        failed: None,
    };
    let mut problems = Vec::new();
    for path in &paths {
        if rows.is_full() {
            break;
        }
        match super::open(&host, path, &args.common)? {
            Opened::Run(store, root, name) => {
                if let Some((_, report)) = rows.inspection(&store).one(root, &name, None) {
                    let _ = rows.take(report);
                }
            }
            Opened::Store(store) => {
                problems.extend(store.problems.iter().map(ProblemReport::new));
                if args.all {
                    let mut met = Vec::new();
                    rows.inspection(&store).each(&mut |report| rows.take(report), &mut met);
                    problems.extend(met.iter().map(ProblemReport::new));
                } else {
                    indexed(&store, &mut rows);
                }
            }
        }
        if let Some(failure) = rows.failed.take() {
            return Err(failure);
        }
    }
    finish(rows, &problems)
}

/// Active runs, then those that ended last.
fn indexed(store: &Store<'_, RealHost>, rows: &mut Rows<'_>) {
    let mut inspection = rows.inspection(store);
    for root in 0..store.runs_roots.len() {
        let runs = &store.runs_roots[root];
        let active = runs.active_names(store.host()).unwrap_or_default();
        let room = rows.limit.saturating_sub(active.len());
        let session = rows.filter.session.clone();
        let ended = if rows.args.active {
            Vec::new()
        } else {
            runs.ended_names(store.host(), session.as_deref(), room)
        };
        let names = active.iter().chain(ended.iter().filter(|name| !active.contains(name)));
        for name in names {
            let found = inspection.one(root, &OsString::from(name), None);
            if found.is_some_and(|(_, report)| rows.take(report).is_break()) {
                return;
            }
        }
    }
}

fn finish(rows: Rows<'_>, problems: &[ProblemReport]) -> Result<Code, Failure> {
    let Rows { output, args, now_ms, summary, kept, mut code, .. } = rows;
    for problem in problems {
        code = code.worse(Code::of_problem(problem));
        let line = format!("{}: {} [{}]", problem.severity, problem.text, problem.path);
        output.talk(&render::escape(&line));
    }
    match args.common.format {
        Format::Json => {
            let answer = serde_json::json!({
                "schema": "runstore.list/1", "nowMs": now_ms, "runs": kept, "summary": summary,
            });
            let out = output.writer();
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            writeln!(out)?;
        }
        Format::Text => {
            output.finish()?;
            let scope = args
                .common
                .session
                .as_deref()
                .map_or(String::new(), |s| format!(" of session {}", render::escape(s)));
            let more =
                if args.all { "" } else { " (from the indexes; --all reads every directory)" };
            output.talk(&format!("{} run(s){scope}{more}", summary.total));
        }
        Format::Jsonl => {}
    }
    Ok(code)
}
