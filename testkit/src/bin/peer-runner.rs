//! The library's runner for configurations that somebody else's launcher composed.
//!
//! `peer-runner … CONFIG` says of each step that the peers run as an external command (`runner` with `type`
//! `external-cli`, `command` and `args`) which command that is, in the member of our runner, and is that runner
//! then. The configuration is its last word: the ones before it are those of the launcher for its own runner, and mean
//! nothing here. It ends with 0 after a run that ended in order, whatever came of it, else with 1.
//!
//! A crash between the two leaves the configuration as any crash before its reader does. Not promised: that a
//! step gets its task, or the output of the one before it; plain commands do not.

#![cfg(unix)]
#![expect(clippy::print_stderr, reason = "its outputs are its answer")]
#![expect(
    clippy::disallowed_methods,
    reason = "changes what it was given before the store reads it"
)]

use std::path::Path;
use std::process::ExitCode;

use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::runner::plain;
use runstore::store::RealHost;
use serde_json::{Value, json};
use testkit::driver::{self, Done};

fn main() -> ExitCode {
    driver::main(|args| match args.last() {
        Some(config) => run(Path::new(config)),
        None => Err("usage: peer-runner CONFIG".into()),
    })
}

fn run(path: &Path) -> Done {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    for one in config["steps"].as_array_mut().into_iter().flatten() {
        if one["parallel"].is_array() {
            one["parallel"].as_array_mut().into_iter().flatten().for_each(name_command);
        } else {
            name_command(one);
        }
    }
    std::fs::write(path, config.to_string())?;
    for problem in plain::execute(&RealHost::new(), path, RUNNER_BUDGET_MS)?.problems {
        eprintln!("problem: {problem}");
    }
    Ok(())
}

/// A step without such a command stays as it is, and is refused.
fn name_command(step: &mut Value) {
    let runner = &step["runner"];
    if runner["type"] != "external-cli" {
        return;
    }
    let words = runner["args"].as_array().into_iter().flatten();
    let words: Vec<&Value> = std::iter::once(&runner["command"]).chain(words).collect();
    let words = json!(words);
    step["command"] = words;
}
