//! `runstore shim`, which launchers start: the parent of one runner, away from everybody else.
//!
//! Theory of operation. The first start leaves the session of whoever started it and becomes the same
//! program once more without any descriptor but the three standard ones; so whoever waits for the end of
//! a pipe of the launcher does not wait for the run. The second one says on its standard output, in one
//! line, who the runner is or why there is none ([`Told`]), gives up its outputs, and sleeps until the
//! runner has ended. The rest is the library's ([`observer::shim`]).
//!
//! Spec: RS-OBS-02, RS-OBS-04.

use std::io::Write as _;

use runstore::observer::{self, ShimCommand, Subject};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::observer_record::Told;
use runstore::store::proof::RunPlace;
use runstore::store::{Host as _, RealHost};

use crate::cli::args::ShimArgs;
use crate::cli::exit_code::Code;
use crate::cli::output::Failure;

/// Runs the shim to the end of its runner.
pub(crate) fn run(args: &ShimArgs) -> Result<Code, Failure> {
    let host = RealHost::new();
    if !args.alone {
        return Err(alone(&host, args));
    }
    let mut told = false;
    let outcome = watch(&host, args, &mut |process| {
        tell(&Told::Started(process.clone()));
        told = true;
        // Nobody may wait for our outputs as long as the run lasts.
        let _ = host.give_up_outputs();
    });
    match outcome {
        Ok(()) => Ok(Code::FINE),
        Err(why) => {
            if !told {
                tell(&Told::Failed(why.clone()));
            }
            Err(Failure::user(Code::IO, "the run is not observed").because(why))
        }
    }
}

/// Becomes the second start; returns only when that fails.
fn alone(host: &RealHost, args: &ShimArgs) -> Failure {
    let failed = |what: &str, e: std::io::Error| {
        tell(&Told::Failed(format!("{what}: {e}")));
        Failure::user(Code::IO, what).because(e)
    };
    if let Err(e) = host.leave_session() {
        return failed("the shim cannot have a session of its own", e);
    }
    let mut again = vec!["shim".into(), "--alone".into()];
    again.extend(["--root".into(), args.root.clone().into_os_string()]);
    again.extend(["--run-dir".into(), args.run_dir.clone().into_os_string()]);
    again.extend(["--instance".into(), args.instance.clone().into()]);
    if let Some(cwd) = &args.cwd {
        again.extend(["--cwd".into(), cwd.clone().into_os_string()]);
    }
    again.push("--".into());
    again.extend(args.command.iter().cloned());
    failed("the shim cannot start again", host.become_alone(&again))
}

fn watch(
    host: &RealHost,
    args: &ShimArgs,
    started: &mut dyn FnMut(&runstore::protocol::process::ProcessRecord),
) -> Result<(), String> {
    let dir = host.absolute(&args.run_dir);
    let no_run = |why: &str| format!("{} is no run directory: {why}", dir.display());
    let named = dir.parent().zip(dir.file_name());
    let (parent, name) = named.ok_or_else(|| no_run("it has no name"))?;
    let run_id = RunId::parse(&name.to_string_lossy()).map_err(|e| no_run(&with_causes(&e)))?;
    let open = |path| host.open_dir(path).map_err(|e| format!("{}: {e}", path.display()));
    let (temp, runs_root) = (open(&args.root)?, open(parent)?);
    let run_dir = host
        .open_dir_at(&runs_root, name)
        .map_err(|e| format!("{}: {e}", args.run_dir.display()))?;
    let place = RunPlace { temp: &temp, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id };
    let subject = Subject { place, instance_id: &args.instance };
    let (program, rest) = args.command.split_first().ok_or("there is no command")?;
    let cwd = args.cwd.as_deref();
    let command = ShimCommand { program, args: rest, cwd, env: &[] };
    let report = observer::shim(host, &subject, &command, started).map_err(|e| with_causes(&e))?;
    if report.problems.is_empty() { Ok(()) } else { Err(report.problems.join("; ")) }
}

fn tell(told: &Told) {
    // A starter that is gone does not hear it, which changes nothing.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", told.text()).and_then(|()| out.flush());
}
