//! `runstore inspect`: what is true of runs and stores.

use std::ffi::OsStr;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use runstore::inspect::LookupError;
use runstore::inspect::{
    Filter, Inspection, LeaseReport, ProblemReport, ResultReport, RunReport, Scope, SlotReport,
    StoreReport, Summary, find,
};
use runstore::protocol::Word as _;
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};

use crate::cli::args::{Format, InspectArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// What is gathered while runs stream by.
struct Answer<'o> {
    format: Format,
    output: &'o mut Output,
    filter: Filter,
    now_ms: i64,
    began_ms: i64,
    shown_ms: i64,
    runs: Vec<RunReport>,
    slots: Vec<SlotReport>,
    leases: Vec<LeaseReport>,
    results: Vec<ResultReport>,
    problems: Vec<ProblemReport>,
    summary: Summary,
    /// Last evidence of orphans, to tell one event from many.
    orphan_ends: Vec<(i64, String)>,
    code: Code,
    failed: Option<Failure>,
}

/// How many orphans are compared with one another.
const ORPHANS_COMPARED: usize = 10_000;

impl Answer<'_> {
    fn take(&mut self, report: RunReport, host: &RealHost) -> ControlFlow<()> {
        self.progress(host);
        if !self.filter.wants(&report) {
            return ControlFlow::Continue(());
        }
        self.code = self.code.worse(Code::of_report(&report));
        self.summary.count(&report);
        let room = self.orphan_ends.len() < ORPHANS_COMPARED;
        if let Some(at) = report.last_evidence_ms.filter(|_| room && report.verdict == "orphaned") {
            self.orphan_ends.push((at, report.run_id.clone()));
        }
        if self.format != Format::Jsonl {
            self.runs.push(report);
            return ControlFlow::Continue(());
        }
        let out = self.output.writer();
        let written = serde_json::to_writer(&mut *out, &report)
            .map_err(Failure::from)
            .and_then(|()| Ok(writeln!(out)?));
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    /// Shows progress when a walk takes longer than a second and somebody watches.
    fn progress(&mut self, host: &RealHost) {
        if !self.summary.total.is_multiple_of(256) || !self.output.shows_progress() {
            return;
        }
        let now = host.now_ms();
        if now - self.began_ms > 1000 && now - self.shown_ms > 200 {
            self.shown_ms = now;
            self.output.progress(&format!("{} runs read …", self.summary.total));
        }
    }

    fn problem(&mut self, problem: ProblemReport) {
        self.code = self.code.worse(Code::of_problem(&problem));
        self.problems.push(problem);
    }
}

/// Answers.
pub(crate) fn run(args: &InspectArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let (paths, ids) = split_targets(&host, args)?;
    let now_ms = args.common.now.unwrap_or_else(|| host.now_ms());
    let mut scope = Scope {
        ids: ids.clone(),
        session: args.common.session.clone(),
        verdicts: args.verdict.iter().map(|v| v.as_str()).collect(),
        host: host.system().host.clone(),
        ..Scope::default()
    };
    let mut answer = Answer {
        format: args.common.format,
        output,
        filter: Filter { session: args.common.session.clone(), verdicts: args.verdict.clone() },
        now_ms,
        began_ms: host.now_ms(),
        shown_ms: 0,
        runs: Vec::new(),
        slots: Vec::new(),
        leases: Vec::new(),
        results: Vec::new(),
        problems: Vec::new(),
        summary: Summary::default(),
        orphan_ends: Vec::new(),
        code: Code::FINE,
        failed: None,
    };
    for path in &paths {
        scope.paths.push(host.absolute(path).to_string_lossy().into_owned());
        match super::open(&host, path, &args.common)? {
            Opened::Run(store, root, name) => one_run(&store, root, &name, path, &mut answer)?,
            Opened::Store(store) => whole_store(&store, &mut answer),
        }
        if let Some(failure) = answer.failed.take() {
            return Err(failure);
        }
    }
    if !ids.is_empty() {
        by_id(&host, args, &ids, &mut scope, &mut answer)?;
    }
    same_moment(&mut answer);
    finish(answer, scope, args.verbose)
}

/// The paths to look at, and the ids to look up.
fn split_targets(
    host: &RealHost,
    args: &InspectArgs,
) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    if args.targets.is_empty() {
        let hint = "name a store: runstore inspect PATH";
        return Ok((super::default_paths(host, args.common.root.as_ref(), hint)?, Vec::new()));
    }
    Ok(super::split_targets(host, &args.targets, args.common.root.as_ref()))
}

fn one_run(
    store: &Store<'_, RealHost>,
    root: usize,
    name: &OsStr,
    path: &Path,
    answer: &mut Answer<'_>,
) -> Result<(), Failure> {
    let mut inspection = Inspection::new(store, Depth::Full);
    let Some((_, report)) = inspection.one(root, name, None) else {
        return Err(super::no_run_at(store.host(), path));
    };
    let run_id = report.run_id.clone();
    let _ = answer.take(report, store.host());
    let own = |id: &Option<String>| id.as_deref() == Some(&run_id);
    answer.slots.extend(inspection.slots(None).into_iter().filter(|s| own(&s.run_id)));
    answer
        .leases
        .extend(store.locks.leases.iter().map(LeaseReport::new).filter(|l| own(&l.run_id)));
    Ok(())
}

fn whole_store(store: &Store<'_, RealHost>, answer: &mut Answer<'_>) {
    for problem in &store.problems {
        answer.problem(ProblemReport::new(problem));
    }
    let mut inspection = Inspection::new(store, Depth::Full);
    let mut problems = Vec::new();
    inspection.each(&mut |report| answer.take(report, store.host()), &mut problems);
    problems.extend(inspection.orphan_markers());
    problems.extend(inspection.route_problems());
    for problem in &problems {
        answer.problem(ProblemReport::new(problem));
    }
    let session = answer.filter.session.clone();
    let lines = answer.format == Format::Jsonl;
    let (code, results) = (&mut answer.code, &mut answer.results);
    inspection.each_result(session.as_deref(), &mut |report| {
        // Also of a run that has no directory: nobody will pick it up.
        *code = code.worse(Code::of_result(&report));
        if !lines {
            results.push(report);
        }
    });
    if lines {
        return;
    }
    results.sort_by(|a, b| (a.at_ms, &a.path).cmp(&(b.at_ms, &b.path)));
    answer.slots.extend(inspection.slots(session.as_deref()));
    answer.leases.extend(inspection.leases(None));
    answer.summary.lock_litter += store.locks.litter;
}

fn by_id(
    host: &RealHost,
    args: &InspectArgs,
    ids: &[String],
    scope: &mut Scope,
    answer: &mut Answer<'_>,
) -> Result<(), Failure> {
    let root = args.common.root.as_ref();
    let hint = format!("say which store it is in: runstore inspect {} --root STORE", ids.join(" "));
    let roots = super::default_paths(host, root, &hint)?;
    let mut missing: Vec<&String> = ids.iter().collect();
    for root in &roots {
        scope.paths.push(host.absolute(root).to_string_lossy().into_owned());
        let store = match super::open(host, root, &args.common)? {
            Opened::Store(store) => store,
            Opened::Run(..) => return Err(super::not_a_store(root)),
        };
        let mut inspection = Inspection::new(&store, Depth::Full);
        for id in ids {
            let found = match find(&store, id) {
                Ok(found) => found,
                Err(LookupError::NotFound(_)) => continue,
                Err(e) => return Err(super::no_lookup(&e)),
            };
            for place in found {
                if let Some((_, report)) = inspection.one(place.root, &place.name, None) {
                    missing.retain(|m| *m != id);
                    let _ = answer.take(report, host);
                }
            }
        }
    }
    if let Some(id) = missing.first() {
        return Err(super::no_run_of(id, root, &roots));
    }
    Ok(())
}

/// Several orphans whose last evidence lies within one second were ended by one event.
fn same_moment(answer: &mut Answer<'_>) {
    let mut ends = std::mem::take(&mut answer.orphan_ends);
    ends.sort_unstable();
    let within = runstore::protocol::limits::SAME_EVENT_MS;
    let mut start = 0;
    while start < ends.len() {
        let mut end = start + 1;
        while end < ends.len() && ends[end].0 - ends[start].0 <= within {
            end += 1;
        }
        if end - start > 1 {
            let runs: Vec<_> = ends[start..end].iter().take(5).map(|(_, id)| id.as_str()).collect();
            let more = if end - start > 5 { ", …" } else { "" };
            answer.problems.push(ProblemReport {
                id: runstore::protocol::finding::SAME_MOMENT.id,
                severity: "note",
                path: String::new(),
                text: format!(
                    "{} orphaned runs wrote last within the same second, so one event ended them: {}{more}",
                    end - start,
                    runs.join(", ")
                ),
            });
        }
        start = end;
    }
}

fn finish(answer: Answer<'_>, scope: Scope, verbose: bool) -> Result<Code, Failure> {
    let Answer {
        format,
        output,
        now_ms,
        mut runs,
        slots,
        leases,
        results,
        problems,
        summary,
        code,
        ..
    } = answer;
    if output.shows_progress() {
        output.end_progress();
    }
    match format {
        Format::Jsonl => {
            // The answer is one report a line; what is wrong with the store itself is talk.
            for problem in &problems {
                output.talk(&render::problem(problem));
            }
        }
        Format::Json => {
            runs.sort_by(|a, b| a.path.cmp(&b.path));
            let schema = "runstore.inspect/1";
            let report = StoreReport {
                schema,
                now_ms,
                scope,
                runs,
                slots,
                leases,
                results,
                problems,
                summary,
            };
            let out = output.writer();
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        }
        Format::Text => {
            runs.sort_by(|a, b| {
                (render::is_quiet(b), &a.path).cmp(&(render::is_quiet(a), &b.path))
            });
            let single = runs.len() == 1;
            let out = output.writer();
            if let Some(session) = &scope.session {
                writeln!(out, "only session {}\n", render::escape(session))?;
            }
            // Quiet runs first and short: what needs a look stands last, next to the prompt.
            let mut head = false;
            for report in &runs {
                if render::is_quiet(report) && !verbose && !single {
                    if !std::mem::replace(&mut head, true) {
                        render::row_head(out)?;
                    }
                    render::row(out, report, now_ms, true)?;
                } else {
                    if std::mem::take(&mut head) {
                        writeln!(out)?;
                    }
                    render::run(out, report, now_ms)?;
                }
            }
            if head {
                writeln!(out)?;
            }
            render::store_end(out, &slots, &leases, &results, &problems)?;
            render::summary(out, &summary)?;
        }
    }
    Ok(code)
}
