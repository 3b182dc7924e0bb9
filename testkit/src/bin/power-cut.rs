//! Cuts the power under the writer of the library, on every file system that can be had here.
//!
//! `power-cut DRIVER ROUNDS SEED` runs the rig (`testkit::power`) with the driver program as writer. It is
//! started in a mount namespace of its own (`testkit::power::command`). It ends with 1 when the writer broke
//! a promise, when an image could not be judged, or when a writer without flushes was not caught; with 77
//! when nothing could be looked at, for the reasons on its standard error.

#![cfg(unix)]
#![expect(clippy::print_stderr, reason = "says how it is called")]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [driver, rounds, seed] = &args[..] else {
        eprintln!("usage: power-cut DRIVER ROUNDS SEED");
        return ExitCode::FAILURE;
    };
    let (Ok(rounds), Ok(seed)) = (rounds.parse(), seed.parse()) else {
        eprintln!("ROUNDS and SEED are numbers");
        return ExitCode::FAILURE;
    };
    run(Path::new(driver), rounds, seed)
}

#[cfg(target_os = "linux")]
fn run(driver: &Path, rounds: usize, seed: u64) -> ExitCode {
    use testkit::power::rig::{self, Ended};
    match rig::run(driver, rounds, seed) {
        Ended::Well => ExitCode::SUCCESS,
        Ended::Badly => ExitCode::FAILURE,
        Ended::Unable => ExitCode::from(77),
    }
}

#[cfg(not(target_os = "linux"))]
fn run(_: &Path, _: usize, _: u64) -> ExitCode {
    testkit::process::skip("power cuts", "the disk is served to Linux only");
    ExitCode::from(77)
}
