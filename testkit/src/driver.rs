//! The driver program: where it is, how it is called, and the texts that it writes.
//!
//! Theory of operation. `store-driver` performs one operation of the store in a process of its own
//! (see its source). Cargo tells a test the place of the programs of its own package only, so
//! [`program`] asks cargo to build this one, with the features of the whole workspace: after
//! `cargo test --workspace` nothing is left to build and the answer comes at once. [`power_cut`] does the
//! same for the rig of the power cuts, [`start_runner`] for a runner that only begins, [`step_runner`] for
//! one of plain commands, [`launch_run`] for a launcher, and [`race_run`] for a run of a race. [`main`] is what
//! these programs have in common.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use runstore::protocol::error::with_causes;

/// Every operation that the driver knows.
pub const OPERATIONS: [&str; 33] = [
    "replace-process",
    "replace-ordered",
    "replace-durable",
    "replace-new",
    "patch",
    "patch-locked",
    "run-create",
    "status-step",
    "status-end",
    "status-failed",
    "status-failed-first",
    "append",
    "append-rotate",
    "marker-active",
    "marker-ended",
    "marker-release",
    "result-publish",
    "result-first",
    "result-snapshot",
    "result-promote",
    "result-deliver",
    "lease-acquire",
    "lease-writer",
    "lease-release",
    "slot-acquire",
    "slot-bind",
    "slot-release",
    "slot-transfer",
    "slot-rollback",
    "slot-reconcile",
    "proof-initialise",
    "proof-finalise",
    "proof-complete",
];

/// A status before an operation.
pub const OLD_STATUS: &str = r#"{"runId":"run-1","sessionId":"S","state":"running","odd":1e400}"#;
/// A status after it.
pub const NEW_STATUS: &str =
    r#"{"runId":"run-1","sessionId":"S","state":"complete","endedAt":1700000000000}"#;
/// A result before an operation.
pub const OLD_RESULT: &str =
    r#"{"id":"run-1","sessionId":"S","toolCallId":"t","state":"paused","timestamp":1}"#;
/// A result after it.
pub const NEW_RESULT: &str = r#"{"id":"run-1","sessionId":"S","toolCallId":"t","state":"complete","success":true,"timestamp":2}"#;
/// What a runner says when its writers have ended.
pub const CANDIDATE: &str = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{"0":[]},"expectedWriters":{"0":0}}"#;
/// The line that is in the log before an operation.
pub const FIRST_EVENT: &str = r#"{"type":"first"}"#;
/// A size that no log of these tests reaches.
pub const EVENT_LIMIT_BYTES: u64 = 1 << 20;

/// What came of a program of this crate.
pub type Done = Result<(), Box<dyn Error>>;

/// Gives a program its words and ends it with what comes of them: 0, or 1 with the chain of the error, one
/// line, on the standard error.
#[expect(clippy::print_stderr, reason = "it is the answer of a program")]
pub fn main(program: impl FnOnce(&[&str]) -> Done) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match program(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}", with_causes(e.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// One text of the race for one file: of a length that differs from turn to turn, and known from its
/// first two numbers.
pub fn hammered(writer: u64, turn: u64) -> String {
    let length = usize::try_from((writer * 7919 + turn * 104_729) % 20_000).unwrap_or(0);
    let fill = char::from(b'a' + u8::try_from((writer + turn) % 26).unwrap_or(0));
    let pad = fill.to_string().repeat(length);
    format!("{{\"writer\":{writer},\"turn\":{turn},\"pad\":\"{pad}\"}}")
}

/// Whether bytes are one whole text of [`hammered`].
pub fn is_hammered(bytes: &[u8]) -> bool {
    hammered_by(bytes).is_some()
}

/// Writer and turn of one whole text of [`hammered`].
pub fn hammered_by(bytes: &[u8]) -> Option<(u64, u64)> {
    let number = |text: &str, key: &str| -> Option<u64> {
        let (_, rest) = text.split_once(key)?;
        rest.split(',').next()?.parse().ok()
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let (writer, turn) = (number(text, "\"writer\":")?, number(text, "\"turn\":")?);
    (hammered(writer, turn) == text).then_some((writer, turn))
}

/// Where the driver is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn program() -> PathBuf {
    built("store-driver")
}

/// Where the rig of the power cuts is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn power_cut() -> PathBuf {
    built("power-cut")
}

/// Where the runner that only begins is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn start_runner() -> PathBuf {
    built("start-runner")
}

/// Where the runner of plain commands is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn step_runner() -> PathBuf {
    built("step-runner")
}

/// Where the launcher is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn launch_run() -> PathBuf {
    built("launch-run")
}

/// Where the run of a race is, built if it has to be.
///
/// # Panics
/// When it cannot be built.
pub fn race_run() -> PathBuf {
    built("race-run")
}

/// Where a program of this crate is. Built once in a process, and one after the other: cargo would wait for
/// itself in any case.
fn built(name: &'static str) -> PathBuf {
    static PLACES: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    // What cannot be built is told by each test that needs it.
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.entry(name).or_insert_with(|| build(name)).clone()
}

fn build(name: &str) -> PathBuf {
    // A test lies in `TARGET/PROFILE/deps`.
    let test = std::env::current_exe().expect("a test has a place");
    let profile = test.ancestors().nth(2).expect("a test lies in a build directory");
    let target = profile.parent().expect("a profile lies in a build directory");
    let place = profile.join(name);
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--workspace", "--bin", name, "--target-dir"]);
    command.arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = command.output().expect("cargo is there, it built this test");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{name} cannot be built: {errors}");
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_or_mixed_is_not_taken_for_a_whole_one() {
        let (one, other) = (hammered(1, 5), hammered(2, 5));
        assert!(is_hammered(one.as_bytes()) && is_hammered(other.as_bytes()));
        assert!(!is_hammered(&one.as_bytes()[..one.len() - 1]), "it is cut");
        assert!(!is_hammered(b""), "it is empty");
        let mixed = [&one.as_bytes()[..30], &other.as_bytes()[30..]].concat();
        assert!(!is_hammered(&mixed), "its second half is of another writer");
    }
}
