//! `runstore recover`: runs whose runner is gone get a truthful end.
//!
//! Theory of operation. The plan is the default and writes nothing; `--apply` has the library make it anew under
//! the recovery lock and carry it out. A plan that was saved as JSON is carried out with `--from`: an action
//! goes ahead only if the rules still ask for it and everything that it relied on is as it was.
//! Spec: RS-REC-18, RS-REC-29 to RS-REC-32.

use std::collections::BTreeMap;
use std::io::ErrorKind::{InvalidFilename, NotADirectory};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use runstore::protocol::Document;
use runstore::protocol::error::with_causes;
use runstore::protocol::evidence::Times;
use runstore::recover::{
    self, Action, Applied, ApplyError, LeftOver, Plan, Policy, Refusal, Requirement, Scope, Wanted,
};
use runstore::store::host::{Part, ReadError};
use runstore::store::{Host as _, Opened, RealHost};
use serde::{Deserialize, Serialize};

use crate::cli::args::{Format, RecoverArgs, RecoverCommand};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render::{self, escape};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ActionText<'a> {
    id: &'a str,
    run_id: &'a str,
    path: String,
    root: String,
    action: String,
    why: &'a str,
    evidence: &'a [String],
    writes: Vec<String>,
    requires: &'a [Requirement],
    safe: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RefusalText<'a> {
    run_id: &'a str,
    path: String,
    verdict: String,
    why: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanText<'a> {
    schema: &'static str,
    now_ms: i64,
    actions: Vec<ActionText<'a>>,
    refused: Vec<RefusalText<'a>>,
    summary: PlanSummary,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanSummary {
    runs: usize,
    actions: usize,
    refused: usize,
    by_action: BTreeMap<String, usize>,
}

/// Actions of a saved plan: their ids and what they rely on.
type Saved = Vec<(String, Vec<Requirement>)>;

/// What is read of a saved plan.
#[derive(Debug, Deserialize)]
struct SavedPlan {
    schema: String,
    actions: Vec<SavedAction>,
}

#[derive(Debug, Deserialize)]
struct SavedAction {
    id: String,
    root: PathBuf,
    requires: Vec<Requirement>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoneText<'a> {
    id: &'a str,
    run_id: &'a str,
    path: String,
    action: &'a str,
    why: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftText<'a> {
    id: &'a str,
    run_id: &'a str,
    why: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppliedText<'a> {
    schema: &'static str,
    now_ms: i64,
    applies: Vec<&'a str>,
    done: Vec<DoneText<'a>>,
    finished: Vec<&'a str>,
    left: Vec<LeftText<'a>>,
    refused: Vec<RefusalText<'a>>,
    problems: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stopped: Vec<&'a str>,
    summary: AppliedSummary,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedSummary {
    done: usize,
    finished: usize,
    left: usize,
    refused: usize,
}

/// Answers.
pub(crate) fn run(args: &RecoverArgs, output: &mut Output) -> Result<Code, Failure> {
    match &args.command {
        Some(RecoverCommand::Undo { id, root, format }) => {
            super::recover_log::undo(id.as_deref(), root, *format, output)
        }
        Some(RecoverCommand::Log { root, format }) => {
            super::recover_log::log(root, *format, output)
        }
        None if args.apply || args.from.is_some() => apply(args, output),
        None => plan(args, output),
    }
}

/// The policy of a file, else the default one.
pub(super) fn read_policy(host: &RealHost, path: Option<&Path>) -> Result<Policy, Failure> {
    let Some(path) = path else { return Ok(Policy::default()) };
    let how = r#"a policy is a file with, for example, {"version":1,"abandonedSlots":true,"graceMs":60000}"#;
    let bytes = read(host, path, how)?;
    let read = Document::from_bytes(&bytes).and_then(|doc| Policy::read(&doc));
    read.map_err(|e| {
        let what = format!("{} is no policy", path.display());
        Failure::user(Code::USAGE, what).because(e).hint(how)
    })
}

/// The policy that is asked for.
fn policy(host: &RealHost, args: &RecoverArgs) -> Result<Policy, Failure> {
    let mut policy = read_policy(host, args.policy.as_deref())?;
    if let Some(grace_ms) = args.grace_ms {
        policy.grace_ms = grace_ms;
    }
    Ok(policy)
}

/// Most bytes of a plan or policy.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// Reads a file that the user named, links followed on the way to it. `how` says how one is made.
fn read(host: &RealHost, path: &Path, how: &str) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let failed = |code, why: String| {
        Failure::user(code, format!("{shown} cannot be read")).because(why).hint(how)
    };
    let absolute = host.absolute(path);
    let (Some(dir), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(failed(Code::USAGE, "it names no file".to_owned()));
    };
    let read = match host.open_dir(dir) {
        Ok(dir) => host.read_at(&dir, name, Part::All(FILE_MAX_BYTES)),
        Err(e) => Err(e.into()),
    };
    read.map(|read| read.bytes).map_err(|e| match e {
        ReadError::Absent => failed(Code::NOT_FOUND, "it is not there".to_owned()),
        // Nothing can be below a file, or under a name that is too long to be one.
        ReadError::Io(e) if matches!(e.kind(), NotADirectory | InvalidFilename) => {
            failed(Code::NOT_FOUND, e.to_string())
        }
        ReadError::Io(e) => failed(Code::IO, e.to_string()),
        e => failed(Code::USAGE, e.to_string()),
    })
}

fn planned(
    host: &RealHost,
    path: &Path,
    args: &RecoverArgs,
    policy: &Policy,
) -> Result<Plan, Failure> {
    let (store, run) = match super::open(host, path, &args.common)? {
        Opened::Store(store) => (store, None),
        Opened::Run(store, root, name) => {
            if !store.runs_roots[root].has_name(host, &name) {
                return Err(super::no_run_at(host, path));
            }
            (store, Some((root, name)))
        }
    };
    let scope = Scope { run, session: args.common.session.clone() };
    recover::plan(&store, &scope, policy).map_err(|e| super::not_opened(path, e))
}

fn plan(args: &RecoverArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = super::host(&args.common);
    let policy = policy(&host, args)?;
    let paths = super::store_paths(&host, "recover", &args.targets, &args.common)?;
    let mut plans = Vec::new();
    for path in &paths {
        let mut plan = planned(&host, path, args, &policy)?;
        if !args.only.is_empty() {
            plan.actions.retain(|a| args.only.contains(&a.id) || args.only.contains(&a.run_id));
            plan.refused.retain(|r| args.only.contains(&r.run_id));
        }
        plans.push(plan);
    }
    let mut code = Code::FINE;
    let mut summary = PlanSummary::default();
    for plan in &plans {
        summary.runs += plan.looked_at;
        summary.actions += plan.actions.len();
        summary.refused += plan.refused.len();
        for action in &plan.actions {
            code = code.worse(Code::ATTENTION);
            *summary.by_action.entry(action.kind.to_string()).or_default() += 1;
        }
        code = plan.refused.iter().fold(code, |code, r| code.worse(Code::of_verdict(r.verdict)));
    }
    let now_ms = args.common.now.unwrap_or_else(|| host.now_ms());
    let actions = plans.iter().flat_map(|p| p.actions.iter().map(|a| action_text(p, a)));
    let refused = plans.iter().flat_map(|p| p.refused.iter().map(refusal_text));
    let text = PlanText {
        schema: "runstore.plan/1",
        now_ms,
        actions: actions.collect(),
        refused: refused.collect(),
        summary,
    };
    let apply = if text.actions.is_empty() { None } else { Some(apply_command(args, &paths)) };
    write_plan(&text, args.common.format, apply.as_deref(), output)?;
    Ok(code)
}

/// The command that carries out what was planned.
fn apply_command(args: &RecoverArgs, paths: &[PathBuf]) -> String {
    let mut command = "runstore recover".to_owned();
    let mut add = |word: &str| {
        command.push(' ');
        command.push_str(&render::shell_word(word));
    };
    for path in paths {
        add(&path.to_string_lossy());
    }
    if !args.only.is_empty() {
        add("--only");
        add(&args.only.join(","));
    }
    if let Some(session) = &args.common.session {
        add("--session");
        add(session);
    }
    if let Some(policy) = &args.policy {
        add("--policy");
        add(&policy.to_string_lossy());
    }
    if let Some(grace_ms) = args.grace_ms {
        add("--grace-ms");
        add(&grace_ms.to_string());
    }
    add("--apply");
    command
}

fn action_text<'a>(plan: &'a Plan, action: &'a Action) -> ActionText<'a> {
    let absolute = |path: &str| plan.root.join(path).to_string_lossy().into_owned();
    ActionText {
        id: &action.id,
        run_id: &action.run_id,
        path: action.path.to_string_lossy().into_owned(),
        root: plan.root.to_string_lossy().into_owned(),
        action: action.kind.to_string(),
        why: &action.why,
        evidence: &action.evidence,
        writes: action.writes().into_iter().map(absolute).collect(),
        requires: &action.requires,
        // What the rules do not call safe is refused, not planned.
        safe: true,
    }
}

fn refusal_text(refusal: &Refusal) -> RefusalText<'_> {
    RefusalText {
        run_id: &refusal.run_id,
        path: refusal.path.to_string_lossy().into_owned(),
        verdict: refusal.verdict.to_string(),
        why: &refusal.why,
    }
}

fn write_plan(
    plan: &PlanText<'_>,
    format: Format,
    apply: Option<&str>,
    output: &mut Output,
) -> Result<(), Failure> {
    let out = output.writer();
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, plan)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for action in &plan.actions {
                serde_json::to_writer(&mut *out, action)?;
                writeln!(out)?;
            }
            for refusal in &plan.refused {
                serde_json::to_writer(&mut *out, refusal)?;
                writeln!(out)?;
            }
        }
        Format::Text => {
            for action in &plan.actions {
                let (run, why) = (escape(action.run_id), escape(action.why));
                writeln!(out, "{:<16} {run}", action.action)?;
                writeln!(out, "  because  {why}")?;
                for (at, path) in action.writes.iter().enumerate() {
                    let head = if at == 0 { "writes" } else { "" };
                    writeln!(out, "  {head:<8} {}", escape(path))?;
                }
                writeln!(out, "  id       {}", action.id)?;
            }
            write_refused(&plan.refused, out)?;
            let PlanSummary { runs, actions, refused, .. } = plan.summary;
            let (looked, found) = (counted(runs, "run"), counted(actions, "action"));
            writeln!(out, "{looked} looked at: {found}, {refused} left alone")?;
            if let Some(apply) = apply {
                output.talk(&format!(
                    "hint: carry this out, it can be taken back: {}",
                    escape(apply)
                ));
            }
        }
    }
    Ok(())
}

/// A number and its noun.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn write_refused(
    refused: &[RefusalText<'_>],
    out: &mut impl std::io::Write,
) -> std::io::Result<()> {
    for refusal in refused {
        let (run, why) = (escape(refusal.run_id), escape(refusal.why));
        writeln!(out, "left alone       {run}")?;
        writeln!(out, "  because  {}: {why}", refusal.verdict)?;
        writeln!(out, "  path     {}", escape(&refusal.path))?;
    }
    Ok(())
}

/// The actions of a saved plan, by the root that they are about.
fn saved(host: &RealHost, path: &Path) -> Result<BTreeMap<PathBuf, Saved>, Failure> {
    let how = "save one with: runstore recover STORE --plan --format json > plan.json";
    let bytes = read(host, path, how)?;
    let bad = |why: String| {
        let what = format!("{} is no saved plan", path.display());
        Failure::user(Code::USAGE, what).because(why).hint(how)
    };
    let plan: SavedPlan = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
    if plan.schema != "runstore.plan/1" {
        return Err(bad(format!("its schema is '{}', not 'runstore.plan/1'", plan.schema)));
    }
    let mut by_root: BTreeMap<PathBuf, Saved> = BTreeMap::new();
    for action in plan.actions {
        by_root.entry(action.root).or_default().push((action.id, action.requires));
    }
    Ok(by_root)
}

fn apply(args: &RecoverArgs, output: &mut Output) -> Result<Code, Failure> {
    if args.common.now.is_some() || args.common.host.is_some() {
        let what = "what is repaired is judged as of now and of this host";
        return Err(Failure::user(Code::USAGE, what).hint("leave --now and --host to the plan"));
    }
    let host = super::host(&args.common);
    let policy = policy(&host, args)?;
    let mut wanted = Wanted {
        only: args.only.clone(),
        session: args.common.session.clone(),
        saved: None,
        policy,
        times: Times::from(&args.common.times),
    };
    let mut all = Vec::new();
    let done = each_store(&host, args, &mut wanted, &mut all);
    // What was done in one store is told also where the next one cannot be touched.
    if done.is_ok() || !all.is_empty() {
        write_applied(&all, host.now_ms(), args.common.format, output)?;
    }
    done.map(|()| code_of(&all))
}

/// Carries out what is wanted of each store in turn, up to the first that cannot be touched.
fn each_store(
    host: &RealHost,
    args: &RecoverArgs,
    wanted: &mut Wanted,
    all: &mut Vec<Applied>,
) -> Result<(), Failure> {
    if let Some(path) = &args.from {
        for (root, actions) in saved(host, path)? {
            wanted.saved = Some(actions);
            all.push(applied(host, (&root, None), wanted)?);
        }
        return Ok(());
    }
    for path in super::store_paths(host, "recover", &args.targets, &args.common)? {
        // The root of the store around it: that is where its records lie.
        let (root, run) = match super::open(host, &path, &args.common)? {
            Opened::Store(store) => (store.root, None),
            Opened::Run(store, at, name) => {
                if !store.runs_roots[at].has_name(host, &name) {
                    return Err(super::no_run_at(host, &path));
                }
                (store.root, Some(host.absolute(&path)))
            }
        };
        all.push(applied(host, (&root, run.as_deref()), wanted)?);
    }
    Ok(())
}

/// Carries out what is wanted of one store.
pub(crate) fn applied(
    host: &RealHost,
    (root, run): (&Path, Option<&Path>),
    wanted: &Wanted,
) -> Result<Applied, Failure> {
    recover::apply(host, root, run, wanted, &mut |_| {}).map_err(|e| not_applied(root, &e))
}

/// Says why nothing was applied.
pub(crate) fn not_applied(root: &Path, e: &ApplyError) -> Failure {
    let code = match e {
        ApplyError::Contended(_) => Code::CONTENDED,
        ApplyError::OtherUser => Code::DAMAGED,
        ApplyError::Open(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Code::DAMAGED,
        ApplyError::Open(e) if e.kind() == std::io::ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::IO,
    };
    Failure::user(code, format!("{} was not touched", root.display())).because(with_causes(e))
}

/// The most serious code of what was left.
/// Spec: RS-REC-31.
pub(crate) fn code_of(all: &[Applied]) -> Code {
    let mut code = Code::FINE;
    for applied in all {
        if !applied.left.is_empty() || !applied.problems.is_empty() {
            code = code.worse(Code::ATTENTION);
        }
        if applied.stopped.is_some() {
            code = code.worse(Code::IO);
        }
        let refused = applied.refused.iter();
        code = refused.fold(code, |code, r| code.worse(Code::of_verdict(r.verdict)));
    }
    code
}

pub(super) fn applied_text<'a>(all: &'a [Applied], now_ms: i64) -> AppliedText<'a> {
    let done: Vec<_> = all
        .iter()
        .flat_map(|a| &a.done)
        .map(|d| DoneText {
            id: &d.id,
            run_id: &d.run_id,
            path: d.path.to_string_lossy().into_owned(),
            action: &d.action,
            why: &d.why,
        })
        .collect();
    let left: Vec<_> = all
        .iter()
        .flat_map(|a| &a.left)
        .map(|LeftOver { id, run_id, why, .. }| LeftText { id, run_id, why })
        .collect();
    let refused: Vec<_> = all.iter().flat_map(|a| &a.refused).map(refusal_text).collect();
    let strings = |pick: fn(&'a Applied) -> &'a [String]| {
        all.iter().flat_map(pick).map(String::as_str).collect::<Vec<_>>()
    };
    let finished = strings(|a| &a.finished);
    AppliedText {
        schema: "runstore.apply/1",
        now_ms,
        applies: all.iter().filter_map(|a| a.id.as_deref()).collect(),
        summary: AppliedSummary {
            done: done.len(),
            finished: finished.len(),
            left: left.len(),
            refused: refused.len(),
        },
        done,
        finished,
        left,
        refused,
        problems: strings(|a| &a.problems),
        stopped: all.iter().filter_map(|a| a.stopped.as_deref()).collect(),
    }
}

/// Shows what was done.
pub(crate) fn write_applied(
    all: &[Applied],
    now_ms: i64,
    format: Format,
    output: &mut Output,
) -> Result<(), Failure> {
    let text = applied_text(all, now_ms);
    let out = output.writer();
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &text)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            serde_json::to_writer(&mut *out, &text)?;
            writeln!(out)?;
        }
        Format::Text => {
            for run in &text.finished {
                writeln!(out, "finished         {} (begun by an earlier apply)", escape(run))?;
            }
            for done in &text.done {
                writeln!(out, "{:<16} {}", done.action, escape(done.run_id))?;
                writeln!(out, "  because  {}", escape(done.why))?;
                writeln!(out, "  path     {}", escape(&done.path))?;
            }
            for left in &text.left {
                writeln!(out, "not done         {}", escape(left.run_id))?;
                writeln!(out, "  because  {}", escape(left.why))?;
            }
            write_refused(&text.refused, out)?;
            let AppliedSummary { done, left, refused, .. } = text.summary;
            writeln!(out, "{done} done, {left} not done, {refused} left alone")?;
            for (id, root) in all.iter().filter_map(|a| Some((a.id.as_ref()?, &a.root))) {
                let root = root.to_string_lossy();
                let root = escape(&render::shell_word(&root)).into_owned();
                output
                    .talk(&format!("hint: take it back: runstore recover undo {id} --root {root}"));
            }
        }
    }
    for problem in text.problems.iter().chain(&text.stopped) {
        output.talk(&format!("problem: {}", escape(problem)));
    }
    Ok(())
}
