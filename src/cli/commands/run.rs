//! `runstore run`: commands as a detached run, started by the library's own launcher, shim and runner.
//!
//! Theory of operation. What is started is told here; how is [`launch`]'s. Once the run is let in nothing depends on this process any more, so `--detach` returns then,
//! and without it the same run is followed ([`follow`](super::follow)): its output is shown, and a signal
//! becomes a request to stop.
//!
//! Spec: RS-STEP-09.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use runstore::launcher::SlotWish;
use runstore::protocol::command_step::CommandStep;
use runstore::store::{Host as _, RealHost, discover};

use super::launch::{Launched, Wish, launch};
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::start_args::RunArgs;

/// How a run that was started is left or followed, and in which form that is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) detach: bool,
    pub(crate) format: Format,
}

/// Starts a run, and follows it unless it is to be left alone.
pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = Arc::new(RealHost::new());
    let root = match &args.root {
        Some(root) => host.absolute(root),
        // The first family's rule: its tools find the run without being told.
        None => discover::default_roots(&*host).swap_remove(0).path,
    };
    let cwd = host.absolute(args.cwd.as_deref().unwrap_or(Path::new(".")));
    let wish = Wish {
        root: &root,
        groups: &groups(args)?,
        cwd: &cwd,
        session: args.session.as_deref(),
        timeout: args.timeout,
        slot: (args.slot_limit > 0).then_some(SlotWish { limit: args.slot_limit, source: None }),
        revival: None,
    };
    let launched = launch(&host, &wish, output)?;
    let manner = Manner { detach: args.manner.detach, format: args.format };
    begun(&host, &launched, manner, args.root.as_deref(), output)
}

/// Says what was started, and follows it unless it is to be left alone.
pub(crate) fn begun(
    host: &RealHost,
    launched: &Launched,
    manner: Manner,
    root: Option<&Path>,
    output: &mut Output,
) -> Result<Code, Failure> {
    say(manner, launched, root, output)?;
    output.finish()?;
    if manner.detach {
        Ok(Code::FINE)
    } else {
        super::follow::to_the_end(host, launched, manner.format, output)
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
    if groups.is_empty() {
        return Err(Failure::user(Code::USAGE, "there is nothing to run")
            .because("neither a command nor a step was given")
            .hint("give a command: runstore run -- CMD ARGS")
            .hint("or command lines for sh: runstore run --step LINE --step LINE"));
    }
    Ok(groups)
}

fn name(args: &RunArgs, otherwise: &str) -> String {
    args.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

/// Says what was started.
fn say(
    manner: Manner,
    launched: &Launched,
    named: Option<&Path>,
    output: &mut Output,
) -> Result<(), Failure> {
    let Launched { run_id, path, root, pid, .. } = launched;
    let answer = serde_json::json!({
        "schema": "runstore.run/1",
        "runId": run_id,
        "path": path.to_string_lossy(),
        "root": root.to_string_lossy(),
        "pid": pid,
    });
    let out = output.writer();
    match manner.format {
        // In the foreground the standard output is the commands'.
        Format::Text if !manner.detach => {
            output.talk(&format!("run {run_id} is under way (pid {pid})"));
        }
        Format::Text => {
            let with_root = match named {
                Some(root) => format!(" --root {}", render::shell_word(&root.to_string_lossy())),
                None => String::new(),
            };
            writeln!(out, "{run_id}  started, pid {pid}")?;
            writeln!(out, "  path: {}", render::escape(&path.to_string_lossy()))?;
            for verb in ["wait", "logs -f", "stop"] {
                writeln!(out, "  next: runstore {verb} {run_id}{with_root}")?;
            }
        }
        // In the foreground there is one object, at the end.
        Format::Json | Format::Jsonl if !manner.detach => {}
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
