//! `runstore run`: commands as a detached run, started by the library's own launcher, shim and runner.
//!
//! Theory of operation. This program is the launcher; the shim and the runner are this program again, under
//! hidden verbs. Once the run is let in nothing depends on this process any more, so `--detach` returns then,
//! and without it the same run is followed ([`follow`](super::follow)): its output is shown, and a signal
//! becomes a request to stop.
//!
//! A start that fails is told with the words of the runner and the end of its standard error, and with the
//! place where its record lies. Spec: RS-START-35, RS-STEP-09.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstore::launcher::{Failed, Outcome, Place, Request, Shims, SlotWish, Started, prepare};
use runstore::protocol::command_step::{self, CommandStep};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::{RunMode, layout};
use runstore::store::retry::RetryPolicy;
use runstore::store::{Host as _, RealHost, directory, discover, identity};

use crate::cli::args::{Format, RunArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// A run that was started.
pub(crate) struct Launched {
    /// The run.
    pub(crate) run_id: String,
    /// Its directory.
    pub(crate) path: PathBuf,
    /// The store, absolute.
    pub(crate) root: PathBuf,
    /// The runner.
    pub(crate) pid: u32,
}

/// Starts a run, and follows it unless it is to be left alone.
pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = Arc::new(RealHost::new());
    let launched = launch(&host, args, output)?;
    say(args, &launched, output)?;
    output.finish()?;
    if args.detach {
        Ok(Code::FINE)
    } else {
        super::follow::to_the_end(&host, args, &launched, output)
    }
}

fn launch(host: &Arc<RealHost>, args: &RunArgs, output: &Output) -> Result<Launched, Failure> {
    let failed =
        |code: Code, what: &str| Failure::user(code, format!("the run was not started: {what}"));
    let groups = groups(args)?;
    let steps = command_step::steps_text(&groups);
    let mode = match groups.as_slice() {
        [group] if group.len() == 1 => RunMode::Single,
        [_] => RunMode::Parallel,
        _ => RunMode::Chain,
    };
    let root = match &args.root {
        Some(root) => host.absolute(root),
        // The first family's rule: its tools find the run without being told.
        None => discover::default_roots(&**host).swap_remove(0).path,
    };
    let shown = root.display().to_string();
    let no_root = |why: String| {
        failed(Code::IO, &format!("the store {shown} cannot be used"))
            .because(why)
            .hint("name a directory of your own: runstore run --root PATH …")
    };
    let temp = directory::create_root(&**host, &root).map_err(|e| no_root(e.to_string()))?;
    let retry = RetryPolicy::default();
    let runs_root = directory::create_path(&**host, &temp, &[layout::RUNS_DIR], &retry)
        .map_err(|e| no_root(with_causes(&e)))?;
    let runs_path = root.join(layout::RUNS_DIR);
    let run_id = RunId::parse(&identity::instance_id(&**host))
        .map_err(|e| failed(Code::INTERNAL, "no id could be made").because(with_causes(&e)))?;
    let cwd = host.absolute(args.cwd.as_deref().unwrap_or(Path::new(".")));
    let result = root.join(layout::RESULTS_DIR).join(format!("{run_id}.json"));
    let timeout_ms = args.timeout.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let slot = (args.slot_limit > 0).then_some(SlotWish { limit: args.slot_limit, source: None });
    let request = Request {
        session_id: args.session.as_deref(),
        timeout_ms: timeout_ms.map(|ms| ms.max(1)),
        slot,
        ..Request::new(&run_id, mode, &steps, &cwd, &result)
    };
    let place =
        Place { temp: &temp, temp_path: &root, runs_root: &runs_root, runs_path: &runs_path };
    let program = host
        .own_program()
        .map_err(|e| failed(Code::IO, "this program does not find itself").because(e))?;
    let runner: Vec<OsString> = vec![program.clone().into(), "runner".into()];
    let mut shims = Shims::new(Arc::clone(host), program.into(), root.clone(), runner);
    let refused = |e: runstore::launcher::Refused| refusal(&e, &cwd);
    let prepared = prepare(&**host, place, request).map_err(refused)?;
    let mut launch = prepared.start(&mut shims).map_err(refused)?;
    let path = runs_path.join(run_id.as_str());
    match launch.wait() {
        Outcome::Started(Started { pid, problems, .. }) => {
            for problem in problems {
                output.talk(&format!("note: {}", render::escape(&with_causes(problem))));
            }
            Ok(Launched { run_id: run_id.to_string(), path, root: root.clone(), pid: *pid })
        }
        outcome => Err(not_begun(outcome, &path)),
    }
}

/// What is to be run: the steps in their order, then the command.
fn groups(args: &RunArgs) -> Result<Vec<Vec<CommandStep>>, Failure> {
    let shell = |line: &String| CommandStep {
        agent: name(args, "sh"),
        command: vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        ..CommandStep::default()
    };
    let mut groups: Vec<Vec<CommandStep>> =
        args.steps.groups.iter().map(|group| group.iter().map(shell).collect()).collect();
    if let Some(program) = args.command.first() {
        let words = args.command.iter().map(|word| word.to_str().map(str::to_owned));
        let command = words.collect::<Option<Vec<_>>>().ok_or_else(|| {
            Failure::user(Code::USAGE, "a word of the command is no UTF-8 text")
                .because("a run keeps its command in a JSON file")
                .hint("put such words into a script, and run that")
        })?;
        let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
        let agent = name(args, &base);
        groups.push(vec![CommandStep { agent, command, ..CommandStep::default() }]);
    }
    Ok(groups)
}

fn name(args: &RunArgs, otherwise: &str) -> String {
    args.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

/// Nothing was started.
fn refusal(refused: &runstore::launcher::Refused, cwd: &Path) -> Failure {
    use runstore::launcher::Refusal;
    use runstore::store::slot::SlotError;
    let (code, hint) = match &refused.why {
        Refusal::WorkingDirectory(_) => {
            (Code::USAGE, format!("{} has to be there: --cwd PATH", cwd.display()))
        }
        Refusal::Slot(SlotError::Full { .. }) => (
            Code::CONTENDED,
            "wait for a run of this session to end, or allow more: --slot-limit N".to_owned(),
        ),
        Refusal::Spawn(_) => {
            (Code::START_FAILED, "nothing runs and nothing is left; try again".to_owned())
        }
        _ => (Code::IO, "nothing runs; free what is named and try again".to_owned()),
    };
    Failure::user(code, "the run was not started").because(with_causes(refused)).hint(hint)
}

/// A process was made, and was not let in.
fn not_begun(outcome: &Outcome, path: &Path) -> Failure {
    let Some(failed) = outcome.failed() else {
        return Failure::user(Code::INTERNAL, "the run was started and is said not to be");
    };
    let mut why = failed.to_string();
    if let Failed { stderr_tail: Some(tail), .. } = failed {
        why = format!("{why}; its standard error ends with: {}", tail.trim_end());
    }
    Failure::user(Code::START_FAILED, "the run did not start")
        .because(why)
        .hint(format!("runstore inspect {} shows what is on record", path.display()))
}

/// Says what was started.
fn say(args: &RunArgs, launched: &Launched, output: &mut Output) -> Result<(), Failure> {
    let Launched { run_id, path, root, pid } = launched;
    let answer = serde_json::json!({
        "schema": "runstore.run/1",
        "runId": run_id,
        "path": path.to_string_lossy(),
        "root": root.to_string_lossy(),
        "pid": pid,
    });
    let out = output.writer();
    match args.format {
        // In the foreground the standard output is the commands'.
        Format::Text if !args.detach => {
            output.talk(&format!("run {run_id} is under way (pid {pid})"));
        }
        Format::Text => {
            let with_root = match &args.root {
                Some(root) => format!(" --root {}", render::shell_word(&root.to_string_lossy())),
                None => String::new(),
            };
            writeln!(out, "{run_id}  started, pid {pid}")?;
            writeln!(out, "  path: {}", render::escape(&path.to_string_lossy()))?;
            for verb in ["wait", "logs -f", "stop"] {
                writeln!(out, "  next: runstore {verb} {run_id}{with_root}")?;
            }
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            serde_json::to_writer(&mut *out, &answer)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
