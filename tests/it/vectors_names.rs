//! The recorded answers of the reference implementations for names, markers and start-up messages.
//!
//! Every vector of every file listed in [`FILES`] is run. Where this project answers differently on
//! purpose, the vector stands in [`DIFFERENT`] with the reason, and the test insists that it differs.

use runstore::protocol::marker::{TerminalEntry, terminal_marker_name};
use runstore::protocol::segment::{HASH_PREFIX, SegmentInput, aliases, encode, sha256_hex};
use runstore::protocol::startup::{
    self, Action, LauncherFailure, LauncherStep, RunnerFailure, RunnerStep, StartupState,
};
use runstore::protocol::temp_name::{TempName, TempTarget, temp_name};
use runstore::protocol::{Document, RunState, Word as _};
use serde_json::{Value, json};

use super::vectors::{self, Check, Difference, same, text};

/// File, number of vectors in it, and how one vector (input, expected) is checked.
pub(super) const FILES: [(&str, usize, Check); 8] = [
    ("encode-index-segment", 97, encoded_segment),
    ("index-segment-aliases", 97, segment_aliases),
    ("temp-name", 19, temporary_name),
    ("marker-name", 18, marker_name),
    ("terminal-entry", 10, terminal_entry),
    ("states", 12, state),
    ("runner-startup", 45, runner_startup),
    ("startup-control", 14, startup_control),
];

/// Vectors whose answer differs on purpose.
const DIFFERENT: &[Difference] = &[];

#[test]
fn every_vector_is_answered_as_recorded_or_listed_as_different() {
    vectors::check_all(&FILES, DIFFERENT);
    vectors::assert_explained(&FILES.map(|(file, ..)| file), DIFFERENT, 0);
}

/// The id of a segment vector, given as text or, with unpaired surrogates, as code units.
fn segment_input(input: &Value) -> (SegmentInput, usize) {
    let value = match input["utf16"].as_array() {
        Some(units) => {
            let unit = |u: &Value| u.as_u64().and_then(|u| u16::try_from(u).ok()).expect("a unit");
            SegmentInput::from_utf16(&units.iter().map(unit).collect::<Vec<_>>())
        }
        None => text(input, "value").into(),
    };
    let max = input["maxBytes"].as_u64().expect("a limit");
    (value, usize::try_from(max).expect("a small limit"))
}

fn encoded_segment(input: &Value, expected: &Value) -> Result<(), String> {
    let (value, max) = segment_input(input);
    let encoded = encode(&value, max);
    // A readable name may look like a digest, so what was hashed is told by computing the digest.
    let digest = format!("{HASH_PREFIX}{}", sha256_hex(value.text().as_bytes()));
    let hashed = encoded == digest;
    same(&json!({ "encoded": encoded, "bytes": encoded.len(), "hashed": hashed }), expected)
}

fn segment_aliases(input: &Value, expected: &Value) -> Result<(), String> {
    let (value, max) = segment_input(input);
    same(&json!({ "aliases": aliases(&value, max) }), expected)
}

fn temporary_name(input: &Value, expected: &Value) -> Result<(), String> {
    let (file, random) = (text(input, "file"), text(input, "randomText"));
    let pid = input["pid"].as_u64().expect("a pid");
    let now_ms = input["nowMs"].as_i64().expect("an instant");
    let name = temp_name(file, pid, now_ms, random);
    same(&json!(name), &expected["temp"])?;
    if let Some(bytes) = expected["bytes"].as_u64() {
        same(&json!(name.len()), &json!(bytes))?;
    }
    let parsed = TempName::parse(&name).ok_or("its own name is not recognised")?;
    let hashed = !name.contains(file);
    let as_made = matches!(parsed.target, TempTarget::Hashed(_)) == hashed
        && parsed.target.is(file)
        && (parsed.pid, parsed.at_ms) == (Some(pid), Some(now_ms))
        && parsed.random == random;
    if as_made { Ok(()) } else { Err(format!("read back as {parsed:?}")) }
}

fn marker_name(input: &Value, expected: &Value) -> Result<(), String> {
    let ended_at = match input["endedAtText"].as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some(other) => panic!("no such number: {other}"),
        None => input["endedAt"].as_f64().expect("a number"),
    };
    let name = terminal_marker_name(ended_at, &text(input, "runId").into());
    same(&json!(name), &expected["marker"])?;
    match expected["bytes"].as_u64() {
        Some(bytes) => same(&json!(name.len()), &json!(bytes)),
        None => Ok(()),
    }
}

fn terminal_entry(input: &Value, expected: &Value) -> Result<(), String> {
    let raw = text(input, "raw");
    let entry = Document::from_bytes(raw.as_bytes()).and_then(|doc| TerminalEntry::read(&doc));
    let (Ok(entry), Some(ok)) = (&entry, expected.get("ok")) else {
        let as_recorded = entry.is_err() && expected["undefined"] == true;
        return if as_recorded { Ok(()) } else { Err(format!("got {entry:?}")) };
    };
    let same_text = entry.run_id == text(ok, "runId") && entry.session_id == text(ok, "sessionId");
    if same_text && ok["version"] == 1 && ok["endedAt"].as_f64() == Some(entry.ended_at_ms) {
        Ok(())
    } else {
        Err(format!("got {entry:?}, recorded {ok}"))
    }
}

fn state(input: &Value, expected: &Value) -> Result<(), String> {
    let state = RunState::from_word(text(input, "state"));
    let terminal = state.is_some_and(RunState::is_terminal);
    let active = state.is_some_and(RunState::is_active);
    same(&json!({ "terminal": terminal, "active": active }), expected)
}

/// Polls a file that never changes until the side gives up, by a clock that only the pauses move.
/// The outcome and the time it took.
fn poll<S>(
    mut step: impl FnMut() -> Option<S>,
    pause: impl Fn(u64) -> Option<u64>,
) -> (Option<S>, u64) {
    let mut elapsed_ms = 0;
    loop {
        if let Some(done) = step() {
            return (Some(done), elapsed_ms);
        }
        match pause(elapsed_ms) {
            Some(ms) => elapsed_ms += ms,
            None => return (None, elapsed_ms),
        }
    }
}

/// The error texts are each implementation's own; what has to agree is the kind of error, and the
/// runner's own words where they are passed on.
fn runner_startup(input: &Value, expected: &Value) -> Result<(), String> {
    let raw = input["raw"].as_str().map(str::as_bytes);
    let word = text(input, "expectedState");
    let state = StartupState::from_word(word).expect("a known state");
    let token = input["expectedToken"].as_str();
    let one_poll = || match startup::read_startup(raw, state, token) {
        LauncherStep::Wait => None,
        done => Some(done),
    };
    let (got, waited_ms, budget_ms) = match input["timeoutMs"].as_u64() {
        None => (one_poll(), 0, 0),
        Some(budget_ms) => {
            let (got, waited) = poll(one_poll, |t| startup::launcher_pause_ms(t, budget_ms));
            let timed_out = LauncherStep::Fail(LauncherFailure::TimedOut { state, budget_ms });
            (got.or(Some(timed_out)), waited, budget_ms)
        }
    };
    if expected["waitedAtLeastTimeout"] == true && waited_ms < budget_ms {
        return Err(format!("gave up after {waited_ms} of {budget_ms} ms"));
    }
    let recorded = &expected["ok"];
    let agrees = match &got {
        None => expected["undefined"] == true,
        Some(LauncherStep::Accept { token }) => *recorded == json!({ "ok": true, "token": token }),
        Some(LauncherStep::Fail(failure)) => {
            let error = recorded["error"].as_str();
            recorded["ok"] == false
                && recorded["startupDidNotProceed"] == true
                && error.is_some_and(|error| match failure {
                    LauncherFailure::Reported { text } => text == error,
                    LauncherFailure::Unreadable(_) => error.starts_with("Failed to read "),
                    LauncherFailure::WrongToken { .. } => {
                        error.contains(&format!("invalid {word} startup handshake"))
                    }
                    LauncherFailure::TimedOut { budget_ms, .. } => {
                        error.starts_with(&format!("Timed out after {budget_ms}ms"))
                            && error.contains(&format!("'{word}'"))
                    }
                    other => panic!("no rule for {other:?}"),
                })
        }
        Some(LauncherStep::Wait) => unreachable!("a wait is no outcome"),
    };
    if agrees { Ok(()) } else { Err(format!("got {got:?}, recorded {expected}")) }
}

fn startup_control(input: &Value, expected: &Value) -> Result<(), String> {
    let raw = input["raw"].as_str().map(str::as_bytes);
    let word = text(input, "action");
    let action = Action::from_word(word).expect("a known action");
    let budget_ms = input["timeoutMs"].as_u64().expect("a budget");
    let token = text(input, "token");
    // The recorded peers are of the dialect without the confirm step.
    let one_poll =
        || match startup::read_control(raw, token, action, startup::ACTIONS_WITHOUT_CONFIRM) {
            RunnerStep::Wait => None,
            done => Some(done),
        };
    let (got, _) = poll(one_poll, |t| startup::runner_pause_ms(t, budget_ms));
    let got = got.unwrap_or(RunnerStep::Fail(RunnerFailure::TimedOut { action, budget_ms }));
    let error = expected["error"].as_str().unwrap_or_default();
    let agrees = match &got {
        RunnerStep::Done => expected["ok"] == true,
        RunnerStep::Fail(RunnerFailure::Unreadable(_)) => {
            error.starts_with("Failed to read ") || error.starts_with("Cannot read properties of")
        }
        RunnerStep::Fail(RunnerFailure::WrongToken) => error.ends_with("token does not match."),
        RunnerStep::Fail(RunnerFailure::UnknownAction) => error.ends_with("action is invalid."),
        RunnerStep::Fail(RunnerFailure::TimedOut { .. }) => {
            error.starts_with(&format!("Timed out after {budget_ms}ms"))
                && error.contains(&format!("'{word}'"))
        }
        other => panic!("no rule for {other:?}"),
    };
    if agrees { Ok(()) } else { Err(format!("got {got:?}, recorded {expected}")) }
}
