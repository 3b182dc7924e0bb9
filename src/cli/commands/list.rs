//! `runstore list`: one line for each run.
//!
//! Without `--all` the indexes lead: what is active, then what ended last; and then the directories that changed
//! last, where there are few enough to ask, because not every run is in an index. So a store of any size
//! answers at once. With `--all` every directory is read and rows appear as they are read.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use runstore::inspect::{Filter, Inspection, ProblemReport, RunReport, Summary};
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};

use crate::cli::args::{Format, ListArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

const DEFAULT_LIMIT: usize = 50;

/// Which runs are listed, and how. Shared by the threads that read them.
struct Style {
    filter: Filter,
    active: bool,
    format: Format,
    color: bool,
    now_ms: i64,
}

/// Runs that are listed and follow one another, ready to be written.
#[derive(Default)]
struct Part {
    rows: Vec<Row>,
    /// The lines of them all, where each has one.
    lines: Vec<u8>,
    /// Else their reports, for an answer that is written as a whole.
    reports: Vec<RunReport>,
    /// Why the line of the last one could not be made.
    failed: Option<Failure>,
}

/// What is counted of a run.
struct Row {
    verdict: &'static str,
    temp_files: u64,
    code: Code,
    /// Where its line ends.
    end: usize,
}

impl Style {
    /// Adds a run, if it is asked for.
    fn add(&self, part: &mut Part, report: RunReport) {
        let active = matches!(report.recorded_state.as_deref(), Some("queued" | "running"));
        if !self.filter.wants(&report) || (self.active && !active) || part.failed.is_some() {
            return;
        }
        let (verdict, temp_files) = (report.verdict, report.temp_files);
        let code = Code::of_report(&report);
        if self.format == Format::Json {
            part.reports.push(report);
        } else {
            part.failed = self.write_line(&mut part.lines, &report).err();
        }
        part.rows.push(Row { verdict, temp_files, code, end: part.lines.len() });
    }

    /// One run alone.
    fn part(&self, report: RunReport) -> Part {
        let mut part = Part::default();
        self.add(&mut part, report);
        part
    }

    fn write_line(&self, lines: &mut Vec<u8>, report: &RunReport) -> Result<(), Failure> {
        if self.format == Format::Text {
            render::row(lines, report, self.now_ms, self.color)?;
        } else {
            serde_json::to_writer(&mut *lines, report)?;
            lines.push(b'\n');
        }
        Ok(())
    }

    /// Looks no further than the output needs.
    fn inspection<'s, 'h>(&self, store: &'s Store<'h, RealHost>) -> Inspection<'s, 'h, RealHost> {
        let inspection = Inspection::new(store, Depth::Row);
        if self.format == Format::Text { inspection.brief() } else { inspection }
    }
}

struct Rows<'o> {
    output: &'o mut Output,
    limit: usize,
    summary: Summary,
    kept: Vec<RunReport>,
    code: Code,
    failed: Option<Failure>,
    /// Whether there are runs that were not looked at.
    has_more: bool,
}

impl Rows<'_> {
    fn is_full(&self) -> bool {
        self.summary.total >= self.limit as u64
    }

    fn take(&mut self, part: Part, style: &Style) -> ControlFlow<()> {
        let is_first = self.summary.total == 0;
        let mut end = 0;
        let mut reports = part.reports.into_iter();
        for row in &part.rows {
            if self.is_full() {
                break;
            }
            self.code = self.code.worse(row.code);
            self.summary.add(row.verdict, row.temp_files);
            self.kept.extend(reports.next());
            end = row.end;
        }
        let lines = part.lines.get(..end).unwrap_or_default();
        self.failed = self.write(lines, is_first, style).err().or(part.failed);
        if self.failed.is_some() || self.is_full() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn write(&mut self, lines: &[u8], is_first: bool, style: &Style) -> Result<(), Failure> {
        if lines.is_empty() {
            return Ok(());
        }
        if is_first && style.format == Format::Text {
            render::row_head(self.output.writer())?;
        }
        Ok(self.output.write_styled(lines)?)
    }
}

/// Answers.
pub(crate) fn run(args: &ListArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let paths = super::store_paths(&host, "list", &args.targets, &args.common)?;
    let limit = args.limit.unwrap_or(if args.all { usize::MAX } else { DEFAULT_LIMIT });
    let style = Style {
        filter: Filter { session: args.common.session.clone(), verdicts: Vec::new() },
        active: args.active,
        format: args.common.format,
        color: output.has_color(),
        now_ms: args.common.now.unwrap_or_else(|| host.now_ms()),
    };
    let mut rows = Rows {
        output,
        limit,
        summary: Summary::default(),
        kept: Vec::new(),
        code: Code::FINE,
        failed: None,
        has_more: false,
    };
    let mut problems = Vec::new();
    for path in &paths {
        if rows.is_full() {
            break;
        }
        match super::open(&host, path, &args.common)? {
            Opened::Run(store, root, name) => {
                let Some((_, report)) = style.inspection(&store).one(root, &name, None) else {
                    return Err(super::no_run_at(&host, path));
                };
                let _ = rows.take(style.part(report), &style);
            }
            Opened::Store(store) => {
                problems.extend(store.problems.iter().map(ProblemReport::new));
                if args.all {
                    let mut met = Vec::new();
                    style.inspection(&store).each_prepared(
                        &|part, report| style.add(part, report),
                        &mut |part| rows.take(part, &style),
                        &mut met,
                    );
                    problems.extend(met.iter().map(ProblemReport::new));
                } else {
                    indexed(&store, &style, &mut rows);
                }
            }
        }
        if let Some(failure) = rows.failed.take() {
            return Err(failure);
        }
    }
    finish(rows, args, style.now_ms, (&paths, &problems))
}

/// Active runs, those that ended last, and those that changed last.
fn indexed(store: &Store<'_, RealHost>, style: &Style, rows: &mut Rows<'_>) {
    let mut inspection = style.inspection(store);
    for root in 0..store.runs_roots.len() {
        let runs = &store.runs_roots[root];
        let active = runs.active_names(store.host()).unwrap_or_default();
        let room = rows.limit.saturating_sub(active.len());
        let ended = if style.active {
            Vec::new()
        } else {
            runs.ended_names(store.host(), style.filter.session.as_deref(), room)
        };
        let indexed = active.iter().chain(ended.iter().filter(|name| !active.contains(name)));
        let mut names: Vec<OsString> = indexed.map(OsString::from).collect();
        if !style.active {
            // A directory that cannot be listed is told when the store is opened.
            let (changed, has_more) =
                runs.newest_names(store.host(), rows.limit).unwrap_or_default();
            rows.has_more |= has_more;
            let indexed: HashSet<OsString> = names.iter().cloned().collect();
            names.extend(changed.into_iter().filter(|name| !indexed.contains(name)));
        }
        for (at, name) in names.iter().enumerate() {
            let found = inspection.one(root, name, None);
            if found.is_some_and(|(_, report)| rows.take(style.part(report), style).is_break()) {
                rows.has_more |= at + 1 < names.len() || root + 1 < store.runs_roots.len();
                return;
            }
        }
    }
}

fn finish(
    rows: Rows<'_>,
    args: &ListArgs,
    now_ms: i64,
    (paths, problems): (&[PathBuf], &[ProblemReport]),
) -> Result<Code, Failure> {
    let Rows { output, summary, kept, mut code, has_more, .. } = rows;
    for problem in problems {
        code = code.worse(Code::of_problem(problem));
        output.talk(&render::problem(problem));
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
                if has_more { "; there may be more: --all reads every directory" } else { "" };
            let runs = if summary.total == 1 { "run" } else { "runs" };
            output.talk(&format!("{} {runs}{scope}{more}", summary.total));
            if summary.by_verdict.contains_key("orphaned") {
                let shown =
                    |path: &PathBuf| render::shell_word(&path.to_string_lossy()).into_owned();
                let paths = paths.iter().map(shown).collect::<Vec<_>>().join(" ");
                let paths = render::escape(&paths);
                output.talk(&format!(
                    "hint: what can be done with orphans: runstore recover {paths}"
                ));
            }
        }
        Format::Jsonl => {}
    }
    Ok(code)
}
