//! A runner that begins as the library has it, in a process of its own, and then does nothing.
//!
//! `start-runner CONFIG TEMP BUDGET_MS HOW` reads the configuration, waits for its launcher, and then:
//!
//! * `work`: gives its session back, as at the end of a run, and ends with 0;
//! * `fail`: says that it cannot begin, and ends with 1;
//! * `die-STATE`: kills itself once it has said that state and has to wait, or `die-begin` before it says anything.
//!
//! A start-up that fails is told on the standard error, and it ends with 1. Not promised: anything about
//! what a killed one leaves; that is what its tests look at.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "it lies outside the store and looks at its files")]

use std::path::Path;
use std::process::ExitCode;

use runstore::runner::startup::{Startup, read_config};
use runstore::store::lease::Released;
use runstore::store::{Host as _, RealHost, WriteHost as _, candidate, lease};
use testkit::driver::{self, Done};

fn main() -> ExitCode {
    driver::main(|args| match *args {
        [config, temp, budget_ms, how] => run(Path::new(config), Path::new(temp), budget_ms, how),
        _ => Err("usage: start-runner CONFIG TEMP BUDGET_MS HOW".into()),
    })
}

fn die() {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
}

fn run(config: &Path, temp: &Path, budget_ms: &str, how: &str) -> Done {
    let host = RealHost::new();
    if how == "die-begin" {
        die();
    }
    let config = read_config(&host, config)?;
    let temp = host.open_dir(temp)?;
    let said = config.async_dir().join("runner-startup.json");
    let startup = Startup::begin(&host, &temp, &config, budget_ms.parse()?)?;
    // A launcher that is quick may have gone on from the state before the first pause after it.
    let states = ["ready", "acknowledged", "confirmed"];
    let last = states.iter().position(|state| how.strip_prefix("die-") == Some(*state));
    let is_said = |state: &&str| -> bool {
        std::fs::read_to_string(&said).is_ok_and(|text| text.contains(&format!("\"{state}\"")))
    };
    let committed = match last {
        None => startup.wait()?,
        Some(last) => startup.wait_with(&mut |ms| {
            if states[last..].iter().any(is_said) {
                die();
            }
            host.wait_ms(ms);
        })?,
    };
    if how == "fail" {
        committed.fail("there is nothing to do")?;
        return Err("there is nothing to do".into());
    }
    if let Some(held) = &committed.lease {
        let released = lease::release(&host, &temp, &held.id, &held.owner.token)?;
        let is_free = matches!(released, Released::Free { .. });
        let token = &held.owner.token;
        candidate::acknowledge_release(&host, &committed.run_dir, token, is_free)?;
    }
    Ok(())
}
