//! The recorded decisions of the existing implementations, one by one.
//!
//! Every vector is run. Where a vector was recorded from one implementation only, it still counts:
//! the two disagree about each other's writer records, and we must agree with the one that accepts.
//! The vectors that we answer differently are listed in [`DIFFERENT`], each with its reason. The list
//! is exact: a vector that is listed and agrees, or is not listed and differs, fails the test.
//! Compared are decisions, not the wording of messages.

mod locks;
mod proofs;
mod runs;

use runstore::protocol::liveness::{self, Alive, KillOutcome};
use runstore::protocol::{DecodeError, Document, Word as _};
use serde_json::{Map, Value, json};

use super::vectors::{self, Difference, FIRST, SECOND, Vector, bytes_of, text_of};

/// The files that are run here, each by the test that hands it to [`check`].
pub(super) const FILES: [&str; 10] = [
    "candidate",
    "proof",
    "proof-in-status",
    "finalize",
    "reconcile",
    "lease-owner",
    "lease-stale",
    "capacity-owner",
    "capacity",
    "pid-liveness",
];

const DIFFERENT: &[Difference] = &[
    ("candidate", FIRST, "writer kind dm-writer", THREE_FORMS),
    ("candidate", SECOND, "writer kind pi-writer", THREE_FORMS),
    ("candidate", FIRST, "tree missing", THREE_FORMS),
    ("candidate", FIRST, "writer exitCode fraction", WHOLE_EXIT_CODE),
    ("candidate", SECOND, "writer exitCode fraction", WHOLE_EXIT_CODE),
    ("candidate", "both", "__proto__ key", PLAIN_KEY),
    ("proof", FIRST, "observed foreign writer kind dm-writer [run+runner]", THREE_FORMS),
    ("proof", SECOND, "observed foreign writer kind pi-writer [run+runner]", THREE_FORMS),
    ("proof", "both", "state array ['pending'] [run+runner]", STATE_IS_A_WORD),
    (
        "lease-stale",
        "both",
        "runtime: identity vs linux: identity counts as different",
        "identities of two schemes cannot be compared, and a live owner must not lose its lease",
    ),
    (
        "pid-liveness",
        "both",
        "real kill: pid 0 (own process group)",
        "signal 0 to pid 0 asks about the asker's own group and says nothing about the run",
    ),
];
const THREE_FORMS: &str =
    "each implementation reads its own form of writer record, we read all three";
const STATE_IS_A_WORD: &str =
    "a state is a string; the other language compares a list of one word as that word";
const WHOLE_EXIT_CODE: &str = "a fraction is no exit code, so it is read as none";
const PLAIN_KEY: &str =
    "the key is lost in the other language only; here it is a key like any other";

/// Runs all vectors of a file; `ours` and `theirs` reduce an input and an expectation to the same
/// shape.
pub(super) fn check(
    file: &str,
    count: usize,
    ours: impl Fn(&Vector) -> Value,
    theirs: impl Fn(&Vector) -> Value,
) {
    assert!(FILES.contains(&file), "{file} is one of the files that are run here");
    vectors::compare(file, count, DIFFERENT, ours, theirs);
}

pub(super) fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// Parses the text of a file the way the store does.
pub(super) fn parse<T>(
    bytes: &[u8],
    read: impl Fn(&Document<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    read(&Document::from_bytes(bytes)?)
}

pub(super) fn put<T: Into<Value>>(map: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

pub(super) fn keep(value: &Value, keys: &[&str]) -> Map<String, Value> {
    let map = value.as_object().expect("an object");
    map.iter()
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The status of a vector, or `None` when it is missing or damaged.
pub(super) fn intact(status: &Value) -> Option<&Value> {
    Some(status).filter(|status| status.is_object() && status.get("raw").is_none())
}

pub(super) fn alive_word(word: &Value) -> Alive {
    match word.as_str().expect("a word") {
        "alive" | "true" => Alive::Yes,
        "dead" | "false" => Alive::No,
        _ => Alive::Unknown,
    }
}

/// Signal 0 to a number that names one process.
fn probe(pid: i32) -> KillOutcome {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};
    match test_kill_process(Pid::from_raw(pid).expect("never zero")) {
        Ok(()) => KillOutcome::Ok,
        Err(Errno::SRCH) => KillOutcome::Esrch,
        Err(Errno::PERM) => KillOutcome::Eperm,
        Err(_) => KillOutcome::Other,
    }
}

#[test]
fn every_probe_of_a_pid_gives_the_recorded_word() {
    let ours = |vector: &Vector| {
        let input = &vector.input;
        if input["realKill"] != true {
            let outcome = match input["killError"].as_str() {
                None => KillOutcome::Ok,
                Some("ESRCH") => KillOutcome::Esrch,
                Some("EPERM") => KillOutcome::Eperm,
                Some(_) => KillOutcome::Other,
            };
            return json!(liveness::probe_word(outcome).as_str());
        }
        let number = if input["pid"] == "<self>" {
            f64::from(std::process::id())
        } else {
            input["pid"].as_f64().expect("a number")
        };
        let word =
            liveness::pid_of(number).map_or(Alive::Unknown, |pid| liveness::probe_word(probe(pid)));
        json!(word.as_str())
    };
    let theirs = |vector: &Vector| {
        let expected = &vector.expected;
        expected.get("verdict").or_else(|| expected.get("ok")).cloned().expect("a word")
    };
    check("pid-liveness", 10, ours, theirs);
}

#[test]
fn every_difference_names_a_file_that_is_run_and_a_reason() {
    vectors::assert_explained(&FILES, DIFFERENT, 11);
}
