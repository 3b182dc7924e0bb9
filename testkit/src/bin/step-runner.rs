//! A runner of plain commands for tests: the library's, without the start-up messages.
//!
//! `step-runner ROOT RUN-DIR INSTANCE PLAN` waits until somebody has opened and closed the pipe `ROOT/go`,
//! as a runner waits to be let in, and runs the plan. `PLAN` is one line of JSON: `groups`, an array of
//! arrays of commands, each an array of words; `outputMaxBytes`; and maybe `deadlineInMs`, counted from
//! the start of the steps. It ends with 0 after a run that ended in order, whatever came of it.

#![cfg(unix)]
#![expect(clippy::print_stderr, reason = "its outputs are its answer")]
#![expect(clippy::disallowed_methods, reason = "runs outside the store and waits for a pipe")]

use std::path::Path;
use std::process::ExitCode;

use runstore::protocol::ids::RunId;
use runstore::protocol::layout;
use runstore::runner::steps::{Job, Plan, Step, run};
use runstore::store::advisory::Locks;
use runstore::store::proof::RunPlace;
use runstore::store::retry::RetryPolicy;
use runstore::store::{Host as _, RealHost, directory};
use serde_json::Value;
use testkit::driver::{self, Done};

fn main() -> ExitCode {
    driver::main(|args| match *args {
        [root, run_dir, instance, plan] => execute(root, run_dir, instance, plan),
        _ => Err("usage: step-runner ROOT RUN-DIR INSTANCE PLAN".into()),
    })
}

fn execute(root: &str, dir: &str, instance: &str, plan: &str) -> Done {
    let host = RealHost::new();
    let plan: Value = serde_json::from_str(plan)?;
    std::fs::read(Path::new(root).join("go"))?;
    let deadline = plan["deadlineInMs"].as_i64().map(|ms| host.now_ms() + ms);
    let words = |command: &Value| -> Option<Step> {
        let words: Vec<_> = command.as_array()?.iter().filter_map(Value::as_str).collect();
        let (program, args) = words.split_first()?;
        Some(Step {
            agent: (*program).to_owned(),
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            cwd: None,
            env: Vec::new(),
        })
    };
    let group = |group: &Value| group.as_array()?.iter().map(words).collect::<Option<Vec<_>>>();
    let groups = plan["groups"].as_array().ok_or("no groups")?.iter().map(group);
    let plan = Plan {
        groups: groups.collect::<Option<_>>().ok_or("a command is an array of words")?,
        deadline_at_ms: deadline,
        output_max_bytes: plan["outputMaxBytes"].as_u64().ok_or("no bound")?,
    };
    let temp = host.open_dir(root.as_ref())?;
    let path = Path::new(dir);
    let runs_root = host.open_dir(path.parent().ok_or("no parent")?)?;
    let run_dir = host.open_dir(path)?;
    let retry = RetryPolicy::default();
    let results = directory::create_path(&host, &temp, &[layout::RESULTS_DIR], &retry)?;
    let name = path.file_name().ok_or("no name")?.to_string_lossy();
    let run_id = RunId::parse(&name)?;
    let locks = Locks::new(&host, &runs_root, layout::RUNS_DIR, 2000);
    let job = Job {
        host: &host,
        place: RunPlace { temp: &temp, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id },
        results: &results,
        locks: Some(&locks),
        instance_id: instance,
        session_id: Some("S"),
        completion_owner_id: None,
        cwd: root,
        async_dir: dir,
        lease: None,
    };
    let finished = run(&job, &plan)?;
    for problem in finished.problems {
        eprintln!("problem: {problem}");
    }
    Ok(())
}
