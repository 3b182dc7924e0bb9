//! A launcher in a process of its own: the library's, with any program as shim and any as runner.
//!
//! `launch-run ROOT RUN-ID SESSION-FILE BUDGET_MS SHIM RUNNER COMMAND…` launches one run of one command, in the session `S` that
//! has one slot, as a revival of the session file unless that is `-`. `SHIM` is started as `runstore shim …`
//! would be, `RUNNER` by it as `runstore runner --budget-ms BUDGET_MS CONFIG`. It ends with 0 once the run
//! was let in, else with 1 and the reason on the standard error.
//!
//! Not promised: anything about what a killed one leaves; that is what its tests look at.

#![cfg(unix)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use runstore::launcher::{Outcome, Place, Request, Shims, SlotWish, prepare};
use runstore::protocol::command_step::{CommandStep, steps_text};
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::protocol::{RunMode, layout};
use runstore::store::retry::RetryPolicy;
use runstore::store::{RealHost, directory};
use testkit::driver::{self, Done};

fn main() -> ExitCode {
    driver::main(|args| match args {
        [root, run_id, session, budget_ms, shim, runner, command @ ..] if !command.is_empty() => {
            let runner = [*runner, "runner", "--budget-ms", budget_ms].map(OsString::from);
            launch(Path::new(root), run_id, session, (*shim).into(), runner.to_vec(), command)
        }
        _ => {
            Err("usage: launch-run ROOT RUN-ID SESSION-FILE|- BUDGET_MS SHIM RUNNER COMMAND…"
                .into())
        }
    })
}

fn launch(
    root: &Path,
    run_id: &str,
    session: &str,
    shim: OsString,
    runner: Vec<OsString>,
    command: &[&str],
) -> Done {
    let host = Arc::new(RealHost::new());
    let temp = directory::create_root(&*host, root)?;
    let retry = RetryPolicy::default();
    let runs_root = directory::create_path(&*host, &temp, &[layout::RUNS_DIR], &retry)?;
    let runs_path = root.join(layout::RUNS_DIR);
    let run_id = RunId::parse(run_id)?;
    let step = CommandStep {
        agent: "work".to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandStep::default()
    };
    let steps = steps_text(&[vec![step]]);
    let result = root.join(layout::RESULTS_DIR).join(format!("{run_id}.json"));
    let revival = RevivalText { session_file: session, source_run_id: "run-0" };
    let request = Request {
        session_id: Some("S"),
        slot: Some(SlotWish { limit: 1, source: None }),
        revival: (session != "-").then_some(revival),
        ..Request::new(&run_id, RunMode::Single, &steps, root, &result)
    };
    let place =
        Place { temp: &temp, temp_path: root, runs_root: &runs_root, runs_path: &runs_path };
    let mut shims = Shims::new(Arc::clone(&host), shim, root.to_owned(), runner);
    let mut launch = prepare(&*host, place, request)?.start(&mut shims)?;
    match launch.wait() {
        Outcome::Started(_) => Ok(()),
        outcome => {
            Err(outcome.failed().map_or("no outcome".to_owned(), ToString::to_string).into())
        }
    }
}
