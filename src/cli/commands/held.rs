//! `runstore slots`, `runstore leases` and `runstore results`: what a store holds for somebody.
//!
//! The same reports that `inspect` gives of a whole store, one kind at a time, each with the reason why it is
//! held. Nothing is judged here, so the two can never disagree. Reads only. Spec: RS-CHECK-01, RS-CHECK-02.

use std::io::{self, Write as _};

use serde::Serialize;

use runstore::inspect::{Inspection, LeaseReport, ProblemReport, ResultReport, SlotReport};
use runstore::protocol::finding;
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};

use crate::cli::args::{Format, HeldArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// One kind of thing that is held.
trait Kind: Serialize + Sized {
    /// The verb, which is also the member of the answer.
    const VERB: &'static str;
    /// The schema of the answer.
    const SCHEMA: &'static str;
    /// What one and many of them are called.
    const NAMES: [&'static str; 2];
    /// Problems of the store that are about them.
    const PROBLEMS: &'static [&'static finding::FindingKind];

    fn all(inspection: &Inspection<'_, '_, RealHost>, session: Option<&str>) -> Vec<Self>;
    fn run_id(&self) -> Option<&str>;
    fn code(&self) -> Code;
    fn row(&self, out: &mut impl io::Write, now_ms: i64) -> io::Result<()>;
}

/// A text of a record, or what stands for a missing one.
fn text(text: Option<&String>) -> std::borrow::Cow<'_, str> {
    text.map_or("-".into(), |text| render::escape(text))
}

fn age(at_ms: Option<i64>, now_ms: i64) -> String {
    at_ms.map_or("-".to_owned(), |at| render::age(now_ms.saturating_sub(at).max(0)))
}

impl Kind for SlotReport {
    const VERB: &'static str = "slots";
    const SCHEMA: &'static str = "runstore.slots/1";
    const NAMES: [&'static str; 2] = ["slot", "slots"];
    const PROBLEMS: &'static [&'static finding::FindingKind] = &[&finding::SLOT_UNREADABLE];

    fn all(inspection: &Inspection<'_, '_, RealHost>, session: Option<&str>) -> Vec<Self> {
        inspection.slots(session)
    }

    fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    fn code(&self) -> Code {
        Code::of_slot(self)
    }

    fn row(&self, out: &mut impl io::Write, now_ms: i64) -> io::Result<()> {
        let word = match (self.releasable, self.by_policy) {
            (false, _) => "held",
            (true, false) => "releasable",
            (true, true) => "by-policy",
        };
        let (verdict, since) = (self.run_verdict.unwrap_or("-"), age(self.reserved_at_ms, now_ms));
        let (run, session) = (text(self.run_id.as_ref()), text(self.session_id.as_ref()));
        writeln!(out, "{word:<11} {since:>8}  {verdict:<18}  run {run}  session {session}")?;
        reason(out, if self.releasable { "because" } else { "blocked" }, &self.reason)?;
        reason(out, "path", &self.path)
    }
}

impl Kind for LeaseReport {
    const VERB: &'static str = "leases";
    const SCHEMA: &'static str = "runstore.leases/1";
    const NAMES: [&'static str; 2] = ["lease", "leases"];
    const PROBLEMS: &'static [&'static finding::FindingKind] = &[&finding::LEASE_UNREADABLE];

    fn all(inspection: &Inspection<'_, '_, RealHost>, session: Option<&str>) -> Vec<Self> {
        inspection.leases(session)
    }

    fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    fn code(&self) -> Code {
        Code::of_lease(self)
    }

    fn row(&self, out: &mut impl io::Write, now_ms: i64) -> io::Result<()> {
        let (since, run) = (age(self.acquired_at_ms, now_ms), text(self.run_id.as_ref()));
        let session = text(self.session_id.as_ref());
        let (state, life) = (self.state, self.liveness.unwrap_or("-"));
        writeln!(out, "{state:<11} {since:>8}  {life:<18}  run {run}  session {session}")?;
        if let Some(pid) = self.pid {
            let host = text(self.hostname.as_ref());
            let writer = text(self.writer_state.as_ref());
            reason(out, "owner", &format!("pid {pid} on {host}, writer {writer}"))?;
        }
        if let Some(file) = &self.session_file {
            reason(out, "file", file)?;
        }
        reason(out, if self.state == "stale" { "because" } else { "blocked" }, &self.reason)?;
        reason(out, "path", &self.path)
    }
}

impl Kind for ResultReport {
    const VERB: &'static str = "results";
    const SCHEMA: &'static str = "runstore.results/1";
    const NAMES: [&'static str; 2] = ["undelivered result", "undelivered results"];
    const PROBLEMS: &'static [&'static finding::FindingKind] = &[];

    fn all(inspection: &Inspection<'_, '_, RealHost>, session: Option<&str>) -> Vec<Self> {
        let mut results = Vec::new();
        inspection.each_result(session, &mut |report| results.push(report));
        // The oldest one has waited longest.
        results.sort_by(|a, b| (a.at_ms, &a.path).cmp(&(b.at_ms, &b.path)));
        results
    }

    fn run_id(&self) -> Option<&str> {
        Some(&self.run_id)
    }

    fn code(&self) -> Code {
        Code::of_result(self)
    }

    fn row(&self, out: &mut impl io::Write, _now_ms: i64) -> io::Result<()> {
        let since = self.age_ms.map_or("-".to_owned(), render::age);
        let (outcome, session) = (self.outcome.unwrap_or("-"), text(self.session_id.as_ref()));
        let (place, run) = (self.place, render::escape(&self.run_id));
        writeln!(out, "{place:<11} {since:>8}  {outcome:<18}  run {run}  session {session}")?;
        if let Some(problem) = &self.problem {
            reason(out, "problem", problem)?;
        }
        reason(out, "path", &self.path)
    }
}

fn reason(out: &mut impl io::Write, key: &str, text: &str) -> io::Result<()> {
    writeln!(out, "            {key:<8} {}", render::escape(text))
}

/// Answers `slots`.
pub(crate) fn slots(args: &HeldArgs, output: &mut Output) -> Result<Code, Failure> {
    answer::<SlotReport>(args, output)
}

/// Answers `leases`.
pub(crate) fn leases(args: &HeldArgs, output: &mut Output) -> Result<Code, Failure> {
    answer::<LeaseReport>(args, output)
}

/// Answers `results`.
pub(crate) fn results(args: &HeldArgs, output: &mut Output) -> Result<Code, Failure> {
    answer::<ResultReport>(args, output)
}

fn answer<K: Kind>(args: &HeldArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let paths = super::store_paths(&host, K::VERB, &args.targets, &args.common)?;
    let now_ms = args.common.now.unwrap_or_else(|| host.now_ms());
    let session = args.common.session.as_deref();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for path in &paths {
        let (store, only) = match super::open(&host, path, &args.common)? {
            Opened::Store(store) => (store, None),
            Opened::Run(store, root, name) => {
                if !store.runs_roots[root].has_name(&host, &name) {
                    return Err(super::no_run_at(&host, path));
                }
                (store, Some(name.to_string_lossy().into_owned()))
            }
        };
        let inspection = Inspection::new(&store, Depth::Full);
        let all = K::all(&inspection, session).into_iter();
        found.extend(all.filter(|one| only.is_none() || one.run_id() == only.as_deref()));
        if only.is_none() {
            problems.extend(told::<K>(&store));
        }
    }
    let code = found.iter().map(Kind::code).chain(problems.iter().map(Code::of_problem));
    let code = code.fold(Code::FINE, Code::worse);
    write::<K>(&found, &problems, args.common.format, now_ms, output)?;
    Ok(code)
}

/// The problems of the store that are about this kind of thing, or keep it from being seen.
fn told<K: Kind>(store: &Store<'_, RealHost>) -> Vec<ProblemReport> {
    let hides = [&finding::ROOT_UNSAFE, &finding::DIR_UNREADABLE, &finding::NOT_PLAIN];
    let about = |kind: &finding::FindingKind| K::PROBLEMS.contains(&kind) || hides.contains(&kind);
    let problems = store.problems.iter().filter(|problem| about(problem.kind));
    problems.map(ProblemReport::new).collect()
}

fn write<K: Kind>(
    found: &[K],
    problems: &[ProblemReport],
    format: Format,
    now_ms: i64,
    output: &mut Output,
) -> Result<(), Failure> {
    if format != Format::Json {
        for problem in problems {
            output.talk(&render::problem(problem));
        }
    }
    let out = output.writer();
    match format {
        Format::Json => {
            let answer = serde_json::json!({
                "schema": K::SCHEMA, "nowMs": now_ms, K::VERB: found, "problems": problems,
            });
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for one in found {
                serde_json::to_writer(&mut *out, one)?;
                writeln!(out)?;
            }
        }
        Format::Text => {
            for one in found {
                one.row(out, now_ms)?;
            }
            output.finish()?;
            let name = K::NAMES[usize::from(found.len() != 1)];
            output.talk(&format!("{} {name}", found.len()));
        }
    }
    Ok(())
}
