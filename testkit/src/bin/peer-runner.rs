//! The library's runner, in a process of its own, for configurations that somebody else composed.
//!
//! `peer-runner … CONFIG` reads the configuration, which is its last word, waits for its launcher, and runs the
//! steps whose agent is a plain command (`runner` with `type` `external-cli`, `command` and `args`). Words
//! before the last are those of the launcher for its own runner, and mean nothing here. It ends with 0 after
//! a run that ended in order, whatever came of it, and with 1 after a start-up that failed.
//!
//! A crash leaves what any crash of a runner leaves. Not promised: prompts and outputs of one step as
//! inputs of another.

#![cfg(unix)]
#![expect(clippy::print_stderr, reason = "its outputs are its answer")]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::protocol::{layout, limits};
use runstore::runner::startup::{Committed, Startup, read_config};
use runstore::runner::steps::{Job, Plan, Step, run};
use runstore::store::advisory::Locks;
use runstore::store::proof::RunPlace;
use runstore::store::retry::RetryPolicy;
use runstore::store::{Host as _, RealHost, directory};
use serde_json::Value;
use testkit::driver::{self, Done};

fn main() -> ExitCode {
    driver::main(|args| match args.last() {
        Some(config) => begin(Path::new(config)),
        None => Err("usage: peer-runner CONFIG".into()),
    })
}

fn begin(config: &Path) -> Done {
    let host = RealHost::new();
    let temp = host.open_dir(config.parent().ok_or("the configuration lies nowhere")?)?;
    let config = read_config(&host, config)?;
    let committed = Startup::begin(&host, &temp, &config, RUNNER_BUDGET_MS)?.wait()?;
    let plan = match plan(config.text(), config.view().deadline_at_ms) {
        Ok(plan) => plan,
        Err(e) => {
            committed.fail(&e.to_string())?;
            return Err(e);
        }
    };
    work(&committed, &plan)
}

fn plan(config: &str, deadline_at_ms: Option<i64>) -> Result<Plan, Box<dyn std::error::Error>> {
    let config: Value = serde_json::from_str(config)?;
    let step = |step: &Value| -> Option<Step> {
        let runner = &step["runner"];
        let args = runner["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        (runner["type"] == "external-cli").then_some(())?;
        Some(Step {
            agent: step["agent"].as_str()?.to_owned(),
            program: runner["command"].as_str()?.into(),
            args: args.map(OsString::from).collect(),
            cwd: step["cwd"].as_str().map(Into::into),
            env: Vec::new(),
        })
    };
    let group = |one: &Value| match one["parallel"].as_array() {
        Some(members) => members.iter().map(step).collect(),
        None => step(one).map(|step| vec![step]),
    };
    let steps = config["steps"].as_array().ok_or("there are no steps")?;
    let groups: Option<Vec<_>> = steps.iter().map(group).collect();
    Ok(Plan {
        groups: groups.ok_or("a step is no plain command")?,
        deadline_at_ms,
        output_max_bytes: limits::OUTPUT_MAX_BYTES,
    })
}

fn work(committed: &Committed<'_, RealHost>, plan: &Plan) -> Done {
    let Committed { host, temp, run_dir, config, lease } = committed;
    let run_path = config.async_dir();
    let runs_root = host.open_dir(run_path.parent().ok_or("the run directory lies nowhere")?)?;
    let results =
        directory::create_path(*host, *temp, &[layout::RESULTS_DIR], &RetryPolicy::default())?;
    let locks = Locks::new(*host, &runs_root, layout::RUNS_DIR, 2000);
    let job = Job {
        host: *host,
        place: RunPlace { temp: *temp, runs_root: &runs_root, run_dir, run_id: config.run_id() },
        results: &results,
        locks: Some(&locks),
        instance_id: config.instance_id().unwrap_or_default(),
        session_id: config.session_id(),
        completion_owner_id: config.completion_owner_id(),
        cwd: config.view().cwd.as_deref().unwrap_or_default(),
        async_dir: &run_path.to_string_lossy(),
        lease: lease.as_ref().map(|held| (held.id.as_str(), held.owner.token.as_str())),
    };
    for problem in run(&job, plan)?.problems {
        eprintln!("problem: {problem}");
    }
    Ok(())
}
