//! `runstore conformance`: implementations of the protocol are judged from the outside.
//!
//! Theory of operation. Everything is done by the crate `conformance`, which shares nothing with the library; here are
//! the arguments, the exit code, and where the answer goes. 0: every check is as expected; 1: one failed; 2: nothing
//! was selected, or the subject cannot be started; 5: nothing failed and something could not be determined.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use conformance::cases::{self, Grade, Scenario};
use conformance::subject::{Adapter, Template};
use conformance::suite::{self, Gap, Outcome, Refused, Verdict, Wanted};
use conformance::{prove, report, zoo};
use serde_json::{Value, json};

use crate::cli::conformance_args::{
    ConformanceArgs, ConformanceDiffArgs, ConformanceListArgs, ConformanceProveArgs,
    ConformanceReportArgs, ConformanceRunArgs, ConformanceVerb, ConformanceZooArgs, ReportFormat,
    RunFormat, SelectArgs,
};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// Roles that have checks.
const ROLES: [&str; 5] = ["runner", "reader", "observer", "launcher", "repairer"];

/// How this program itself is called as a subject.
const REFERENCE: &str = include_str!("../../../conformance/subjects/runstore.json");

/// Answers.
pub(crate) fn run(args: &ConformanceArgs, output: &mut Output) -> Result<Code, Failure> {
    match &args.verb {
        ConformanceVerb::List(args) => list(args, output),
        ConformanceVerb::Run(args) => judge(args, output),
        ConformanceVerb::Prove(args) => prove(args, output),
        ConformanceVerb::Report(args) => show_kept(args, output),
        ConformanceVerb::Diff(args) => diff(args, output),
        ConformanceVerb::Adapter => super::adapter::run(output),
        ConformanceVerb::Zoo(args) => faulty(args, output),
    }
}

/// An implementation with a mistake, as it is called by [`prove`].
fn faulty(args: &ConformanceZooArgs, output: &mut Output) -> Result<Code, Failure> {
    let path = args.path.clone().unwrap_or_default();
    let code = match args.role.as_str() {
        "reader" => {
            super::write_json(output, &zoo::read(&args.fault, &path))?;
            return Ok(Code::FINE);
        }
        "observer" => {
            let (dir, instance) = (args.run_dir.clone(), args.instance.clone());
            let (dir, instance) = (dir.unwrap_or_default(), instance.unwrap_or_default());
            zoo::observe(&args.fault, &path, &dir, &instance, &args.runner)
        }
        "around" => zoo::around(&args.runner),
        _ => zoo::run(&args.fault, &path),
    };
    Ok(Code::of_runner(code))
}

fn all(checks: Option<&Path>) -> Result<Vec<Scenario>, Failure> {
    let wrong = |code, what: &str, why| Failure::user(code, what.to_owned()).because(why);
    match checks {
        None => cases::all().map_err(|e| wrong(Code::INTERNAL, "a built-in case is wrong", e)),
        Some(top) => cases::in_directory(top).map_err(|e| {
            wrong(Code::USAGE, "a scenario is wrong", e)
                .hint("conformance/checks/README.md says what a scenario holds")
        }),
    }
}

/// Where this program is.
fn own() -> Result<String, Failure> {
    let own = std::env::current_exe().map_err(|e| {
        Failure::user(Code::IO, "this program does not know where it is").because(e)
    })?;
    Ok(own.to_string_lossy().into_owned())
}

fn wanted(args: &SelectArgs) -> Result<Wanted, Failure> {
    if !ROLES.contains(&args.role.as_str()) {
        return Err(Failure::user(
            Code::USAGE,
            format!("there are no checks for the role '{}'", args.role),
        )
        .hint(format!("roles with checks: {}", ROLES.join(", "))));
    }
    let level = Grade::parse(&args.level).ok_or_else(|| {
        Failure::user(Code::USAGE, format!("'{}' is no level", args.level))
            .hint("levels: L1, L2, L3")
    })?;
    Ok(Wanted {
        level,
        clauses: args.clause.clone(),
        scenarios: args.scenario.clone(),
        dialect: args.dialect.clone(),
        ..Wanted::of(&args.role, jobs(None), scratch())
    })
}

/// Nearly all of the time is waiting, so there are more at once than there are processors.
fn jobs(asked: Option<usize>) -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    asked.unwrap_or((processors * 4).clamp(4, 16))
}

#[expect(clippy::disallowed_methods, reason = "the program asks for its own environment")]
fn scratch() -> std::path::PathBuf {
    std::env::temp_dir()
}

fn nothing_selected() -> Failure {
    Failure::user(Code::USAGE, "no check is selected")
        .hint("runstore conformance list shows every check with its clause and level")
}

fn list(args: &ConformanceListArgs, output: &mut Output) -> Result<Code, Failure> {
    let all = all(args.select.checks.as_deref())?;
    let selected = suite::select(&all, &wanted(&args.select)?);
    if selected.is_empty() {
        return Err(nothing_selected());
    }
    if args.format == ReportFormat::Json {
        let checks = selected.iter().flat_map(|scenario| {
            scenario.checks.iter().map(|check| {
                json!({"id": check.id, "clause": check.clause, "strength": report::strength(check.is_must),
                    "level": check.grade.word(), "scenario": scenario.id, "expected": check.expect})
            })
        });
        let checks: Vec<Value> = checks.collect();
        super::write_json(
            output,
            &json!({"schema": "runstore.conformance.list/1", "checks": checks}),
        )?;
        return Ok(Code::FINE);
    }
    let out = output.writer();
    for scenario in &selected {
        writeln!(out, "{}: {}", scenario.id, scenario.about)?;
        for check in &scenario.checks {
            let strength = report::strength(check.is_must);
            writeln!(
                out,
                "  {}  {:<13} {strength:<6} {}",
                check.grade.word(),
                check.clause,
                check.id
            )?;
        }
    }
    let checks: usize = selected.iter().map(|scenario| scenario.checks.len()).sum();
    let (must, with_check) = report::coverage(&all, &args.select.role);
    writeln!(
        out,
        "{checks} checks in {} scenarios; {with_check} of the {must} MUST clauses that bind a {} have a check",
        selected.len(),
        args.select.role
    )?;
    Ok(Code::FINE)
}

fn judge(args: &ConformanceRunArgs, output: &mut Output) -> Result<Code, Failure> {
    let all = all(args.select.checks.as_deref())?;
    let mut wanted = wanted(&args.select)?;
    wanted.repeat = args.repeat;
    wanted.seed.clone_from(&args.seed);
    wanted.jobs = jobs(args.jobs);
    wanted.keep = args.keep;
    let mut subject = Adapter::default();
    if let Some(path) = &args.subject {
        (subject, wanted.gaps) = declared(path)?;
    }
    subject.main = Template(args.command.clone());
    let talks = std::io::stderr().is_terminal();
    let told = |id: &str, took_ms: u64| {
        if talks {
            let _ = writeln!(std::io::stderr().lock(), "{id}: {took_ms} ms");
        }
    };
    let outcome = suite::run(&all, &wanted, &subject, &told);
    let outcome = outcome.map_err(refused)?;
    if let Some(place) = &outcome.kept {
        writeln!(std::io::stderr().lock(), "the stores stay below {}", place.display())?;
    }
    show(output, &report::json(&outcome, &all), args.format)?;
    Ok(code(&outcome))
}

fn refused(refused: Refused) -> Failure {
    match refused {
        Refused::NothingSelected => nothing_selected(),
        Refused::Adapter(why) => Failure::user(Code::USAGE, "the subject cannot be judged")
            .because(why)
            .hint("how the command after `--` is called: docs/conformance.md, docs/conformance-adapter.md"),
        Refused::NoCommand(role) => {
            Failure::user(Code::USAGE, format!("the subject is not declared as a {role}"))
                .hint("give it after `--`, or declare it in the file of --subject: docs/conformance-adapter.md")
        }
        Refused::Scratch(why) => Failure::user(Code::IO, "the scratch directory cannot be made")
            .because(why)
            .hint("TMPDIR says below which directory it is made"),
    }
}

/// The faulty runner is this program, so that nothing else has to be installed.
fn prove(args: &ConformanceProveArgs, output: &mut Output) -> Result<Code, Failure> {
    let all = all(args.checks.as_deref())?;
    let own = own()?;
    let words = [own.clone(), "conformance".into(), "zoo".into()].to_vec();
    let known = prove::mistakes(&all, &words);
    let is_known =
        |name: &str| known.iter().any(|fault| fault.name == name || fault.scenario == name);
    if let Some(name) = args.fault.iter().find(|name| !is_known(name)) {
        return Err(Failure::user(Code::USAGE, format!("there is no mistake '{name}'"))
            .hint("runstore conformance prove --format json names every one"));
    }
    let wrong =
        |why: String| Failure::user(Code::INTERNAL, "the built-in subject is wrong").because(why);
    let doc: Value = serde_json::from_str(REFERENCE).map_err(|e| wrong(e.to_string()))?;
    let request = prove::Request {
        zoo: words,
        reference: Adapter::declared(&doc, &own).map_err(wrong)?,
        role: args.role.clone(),
        faults: args.fault.clone(),
        jobs: jobs(args.jobs),
        scratch: scratch(),
    };
    let proof = prove::run(&all, &request).map_err(|e| match e {
        Refused::NothingSelected => Failure::user(Code::USAGE, "no mistake can be tried")
            .because("what was named shows in system calls alone, and strace records none here")
            .hint("install strace, or name another one"),
        other => refused(other),
    })?;
    match args.format {
        ReportFormat::Json => super::write_json(output, &prove::json(&proof))?,
        ReportFormat::Text => tell(output, &prove::text(&proof))?,
    }
    let clean = proof.survivors().next().is_none() && proof.false_alarms().is_empty();
    Ok(if clean { Code::FINE } else { Code::ATTENTION })
}

fn tell(output: &mut Output, text: &str) -> Result<(), Failure> {
    for line in text.lines() {
        writeln!(output.writer(), "{}", render::escape(line))?;
    }
    Ok(())
}

/// Writes a report in one of the forms that are made of its JSON.
fn show(output: &mut Output, report: &Value, format: RunFormat) -> Result<(), Failure> {
    let text = match format {
        RunFormat::Junit => report::junit(report),
        RunFormat::Tap => report::tap(report),
        RunFormat::Html => report::html(report),
        RunFormat::Badge => return super::write_json(output, &report::badge(report)),
        RunFormat::Json => return super::write_json(output, report),
        RunFormat::Text => return tell(output, &report::text(report)),
    };
    Ok(output.writer().write_all(text.as_bytes())?)
}

/// Reads a report that was kept.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names, which belongs to no store"
)]
fn kept(path: &Path) -> Result<Value, Failure> {
    let wrong = |why: String| {
        Failure::user(Code::USAGE, format!("{} is no report", path.display()))
            .because(why)
            .hint("runstore conformance run --format json -- CMD writes one")
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    match report.get("schema").and_then(Value::as_str) {
        Some("runstore.conformance/1") => Ok(report),
        _ => Err(wrong("its schema is not runstore.conformance/1".into())),
    }
}

fn show_kept(args: &ConformanceReportArgs, output: &mut Output) -> Result<Code, Failure> {
    show(output, &kept(&args.file)?, args.format)?;
    Ok(Code::FINE)
}

/// 1 where a check fails that did not fail before.
fn diff(args: &ConformanceDiffArgs, output: &mut Output) -> Result<Code, Failure> {
    let (old, new) = (kept(&args.old)?, kept(&args.new)?);
    let changes = report::diff(&old, &new);
    let worse = changes.iter().any(|(_, _, now)| *now == "fail");
    if args.format == ReportFormat::Json {
        let list = changes.iter().map(|(id, old, new)| json!({"id": id, "old": old, "new": new}));
        let list: Vec<Value> = list.collect();
        super::write_json(
            output,
            &json!({"schema": "runstore.conformance.diff/1", "changes": list}),
        )?;
    } else {
        let lines = changes.iter().map(|(id, old, new)| format!("{id}: {old} -> {new}\n"));
        let lines: String = lines.collect();
        tell(output, if lines.is_empty() { "nothing differs" } else { &lines })?;
    }
    Ok(if worse { Code::ATTENTION } else { Code::FINE })
}

fn code(outcome: &Outcome) -> Code {
    if outcome.count(Verdict::Fail) > 0 {
        Code::ATTENTION
    } else if outcome.count(Verdict::Inconclusive) > 0 {
        Code::UNDETERMINED
    } else {
        Code::FINE
    }
}

/// Reads what is declared of a subject.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names, which belongs to no store"
)]
fn declared(path: &Path) -> Result<(Adapter, Vec<Gap>), Failure> {
    let shown = path.display();
    let wrong = |why: String| {
        Failure::user(Code::USAGE, format!("{shown} does not declare a subject"))
            .because(why)
            .hint("docs/conformance.md shows a declaration")
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let doc: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if doc.get("schema").and_then(Value::as_str) != Some("runstore.conformance.subject/1") {
        return Err(wrong("its schema is not runstore.conformance.subject/1".into()));
    }
    let gaps = doc.get("gaps").and_then(Value::as_array).cloned().unwrap_or_default();
    let read = |gap: &Value| {
        let word = |key: &str| {
            let text = gap.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| wrong(format!("a gap has no `{key}`")))
        };
        let expires = word("expires")?;
        let at = humantime::parse_rfc3339_weak(&expires).map_err(|_| {
            wrong(format!("`{expires}` is no instant, such as 2027-01-31T00:00:00Z"))
        })?;
        let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let expires_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Ok(Gap { id: word("id")?, reason: word("reason")?, expires_ms })
    };
    let adapter = Adapter::declared(&doc, &own()?).map_err(wrong)?;
    let gaps: Result<Vec<Gap>, Failure> = gaps.iter().map(read).collect();
    Ok((adapter, gaps?))
}
