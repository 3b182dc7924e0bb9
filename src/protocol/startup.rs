//! The start-up conversation of launcher and runner: messages and one pure step for each side.
//!
//! Theory of operation. The launcher owns the control files (`ack`, `confirm`, `proceed`), the runner
//! owns `runner-startup.json`; each side polls the other's file. A fresh run waits for `proceed` only.
//! A revived run goes *ready*, ack, *acknowledged*, [confirm, *confirmed*,] proceed, all under one
//! token, which the launcher learns from *ready*. The rename of `proceed` is the commit point.
//!
//! [`read_startup`] and [`read_control`] turn what one poll found into a step; [`launcher_pause_ms`]
//! and [`runner_pause_ms`] say how long to pause before the next one, or that time is up. The caller
//! owns clock and files, so a whole conversation can be played with plain values.
//!
//! A crash leaves the last message in place: *ready* without an ack is a launcher that died, a
//! control file that was not consumed is a runner that never came so far. Messages carry no version
//! and no run id, so nothing here says which dialect or which attempt wrote them; the set of known
//! actions is the caller's to choose. Facts §4.

use std::fmt;

use super::document::{Document, text_of};
use super::error::DecodeError;
use super::open::{Open, words};
use super::raw::{Kind, Raw};

words! {
    /// What the runner says in `runner-startup.json`. Facts §4.2.
    StartupState {
        /// It holds the session lease; the token is in the message.
        Ready = "ready",
        /// It has read the ack.
        Acknowledged = "acknowledged",
        /// It has read the confirm; not in every dialect.
        Confirmed = "confirmed",
        /// It gave up; the reason is in the message, the token is not.
        Error = "error",
    }
}

words! {
    /// What the launcher says in a control file. Facts §4.2.
    Action {
        /// The *ready* was read.
        Ack = "ack",
        /// The *acknowledged* was read; not in every dialect.
        Confirm = "confirm",
        /// The run is committed.
        Proceed = "proceed",
    }
}

/// The actions that runners without the confirm step know (facts U-23).
pub const ACTIONS_WITHOUT_CONFIRM: &[Action] = &[Action::Ack, Action::Proceed];
/// The actions that runners with the confirm step know (facts U-23).
/// Spec: RS-START-08.
pub const ACTIONS_WITH_CONFIRM: &[Action] = &[Action::Ack, Action::Confirm, Action::Proceed];

/// Pause between two polls of either side, in milliseconds.
pub const POLL_MS: u64 = 20;
/// Pause of our own sides while the other one has just been answered: it usually goes on at once, and a whole
/// conversation of such pauses takes less than one of [`POLL_MS`].
pub const EAGER_POLL_MS: u64 = 1;
/// For how long that is, in milliseconds: a process that is that late has other things to do, and looking
/// for it would take its processor time.
pub const EAGER_MS: u64 = 100;
/// How long the launcher waits for each state, in milliseconds (facts U-31).
pub const LAUNCHER_BUDGET_MS: u64 = 10_000;
/// How long a process that was asked to end, and then one that was not asked, is waited for, each in
/// milliseconds (facts §4.7).
pub const TERMINATE_MS: i64 = 1_000;
/// How long the runner waits for each action, in milliseconds (facts U-20, U-21).
pub const RUNNER_BUDGET_MS: u64 = 30_000;

/// `runner-startup.json`, read leniently: a member of a wrong type counts as absent.
/// Spec: RS-START-02, RS-START-04, RS-START-05.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupMessage {
    /// The state, known or not.
    pub state: Option<Open<StartupState>>,
    /// The token; `None` as well when it is not valid Unicode.
    pub token: Option<String>,
    /// The process that wrote it; for information only.
    pub pid: Option<i64>,
    /// Why the runner gave up.
    pub error: Option<String>,
    /// Whether the lease owner record is in the message.
    pub has_owner: bool,
}

impl StartupMessage {
    /// Reads the message.
    pub fn read(doc: &Document<'_>) -> Self {
        Self {
            state: doc.get("state").and_then(|v| v.string()).map(|word| Open::read(&word)),
            token: doc.get("token").and_then(Raw::exact_string),
            pid: doc.get("pid").and_then(Raw::integer),
            error: doc.get("error").and_then(|v| v.string()).map(Into::into),
            has_owner: doc.get("owner").is_some_and(|v| v.kind() == Kind::Object),
        }
    }
}

/// A control file, read leniently: a member of a wrong type counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// The action, known or not.
    pub action: Option<Open<Action>>,
    /// The token; `None` as well when it is not valid Unicode.
    pub token: Option<String>,
}

impl ControlMessage {
    /// Reads the message.
    pub fn read(doc: &Document<'_>) -> Self {
        Self {
            action: doc.get("action").and_then(|v| v.string()).map(|word| Open::read(&word)),
            token: doc.get("token").and_then(Raw::exact_string),
        }
    }
}

/// What one poll means for the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherStep {
    /// Nothing yet.
    Wait,
    /// The expected state, under this token.
    Accept {
        /// The token of the conversation.
        token: String,
    },
    /// The start-up failed.
    Fail(LauncherFailure),
}

/// Why the launcher gives a start-up up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LauncherFailure {
    /// The runner said so, in these words, possibly none.
    Reported {
        /// The runner's words, to be escaped before they are shown.
        text: String,
    },
    /// `runner-startup.json` is there and cannot be read.
    Unreadable(DecodeError),
    /// The expected state came without a token or under another one.
    WrongToken {
        /// The expected state.
        state: StartupState,
    },
    /// The expected state did not come in time.
    TimedOut {
        /// The expected state.
        state: StartupState,
        /// How long it was waited for, in milliseconds.
        budget_ms: u64,
    },
}

impl fmt::Display for LauncherFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported { text } => f.write_str(text),
            // The cause is the error's source.
            Self::Unreadable(_) => f.write_str("the start-up message of the runner is unreadable"),
            Self::WrongToken { state } => {
                write!(f, "the runner reported '{state}' without the token of this start-up")
            }
            Self::TimedOut { state, budget_ms } => {
                write!(f, "the runner did not report '{state}' within {budget_ms} ms")
            }
        }
    }
}

impl std::error::Error for LauncherFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(e) => Some(e),
            _ => None,
        }
    }
}

/// Judges one poll of `runner-startup.json`, `None` meaning that it is not there.
///
/// `token` is the one learnt from *ready*, or `None` while waiting for it. A reported error wins over
/// everything; any state but the expected one, later ones included, is waited on. Facts U-30.
/// Spec: RS-START-09.
pub fn read_startup(
    file: Option<&[u8]>,
    expected: StartupState,
    token: Option<&str>,
) -> LauncherStep {
    let unreadable = |e| LauncherStep::Fail(LauncherFailure::Unreadable(e));
    let Some(bytes) = file else {
        return LauncherStep::Wait;
    };
    let message = match object_of(bytes) {
        Ok(Some(doc)) => StartupMessage::read(&doc),
        // Another JSON value has no state, which is like a state that nobody expects.
        Ok(None) => return LauncherStep::Wait,
        Err(e) => return unreadable(e),
    };
    let state = message.state.as_ref().and_then(Open::known);
    if let (Some(StartupState::Error), Some(text)) = (state, message.error) {
        return LauncherStep::Fail(LauncherFailure::Reported { text });
    }
    if state != Some(expected) {
        return LauncherStep::Wait;
    }
    match message.token {
        Some(found) if token.is_none_or(|t| t == found) => LauncherStep::Accept { token: found },
        _ => LauncherStep::Fail(LauncherFailure::WrongToken { state: expected }),
    }
}

/// What one poll means for the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerStep {
    /// Nothing yet.
    Wait,
    /// The wanted action, under the right token.
    Done,
    /// The start-up failed.
    Fail(RunnerFailure),
}

/// Why the runner gives its start-up up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunnerFailure {
    /// The control file is there and cannot be read.
    Unreadable(DecodeError),
    /// It has no token or another one.
    WrongToken,
    /// It has no action that this runner knows.
    UnknownAction,
    /// The wanted action did not come in time.
    TimedOut {
        /// The wanted action.
        action: Action,
        /// How long it was waited for, in milliseconds.
        budget_ms: u64,
    },
}

impl fmt::Display for RunnerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(_) => f.write_str("the start-up control is unreadable"),
            Self::WrongToken => f.write_str("the start-up control has another token"),
            Self::UnknownAction => f.write_str("the start-up control has no known action"),
            Self::TimedOut { action, budget_ms } => {
                write!(f, "no start-up control '{action}' came within {budget_ms} ms")
            }
        }
    }
}

impl std::error::Error for RunnerFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(e) => Some(e),
            _ => None,
        }
    }
}

/// Judges one poll of a control file, `None` meaning that it is not there.
///
/// The token is looked at before the action, so that a stranger's file never counts as a step.
/// `known` is what the dialect of this runner knows. Facts U-22.
/// Spec: RS-START-07.
pub fn read_control(
    file: Option<&[u8]>,
    token: &str,
    wanted: Action,
    known: &[Action],
) -> RunnerStep {
    let Some(bytes) = file else {
        return RunnerStep::Wait;
    };
    let message = match object_of(bytes) {
        Ok(Some(doc)) => ControlMessage::read(&doc),
        // Another JSON value has no token.
        Ok(None) => return RunnerStep::Fail(RunnerFailure::WrongToken),
        Err(e) => return RunnerStep::Fail(RunnerFailure::Unreadable(e)),
    };
    if message.token.as_deref() != Some(token) {
        return RunnerStep::Fail(RunnerFailure::WrongToken);
    }
    match message.action.and_then(|a| a.known()) {
        Some(action) if action == wanted => RunnerStep::Done,
        Some(action) if known.contains(&action) => RunnerStep::Wait,
        _ => RunnerStep::Fail(RunnerFailure::UnknownAction),
    }
}

/// How long the launcher pauses after a poll that said wait, or `None` when time is up and this was
/// the final poll. Both times in milliseconds. Facts U-31.
pub fn launcher_pause_ms(elapsed_ms: u64, budget_ms: u64) -> Option<u64> {
    (elapsed_ms < budget_ms).then(|| POLL_MS.min(budget_ms - elapsed_ms))
}

/// How long the runner pauses after a poll that said wait, or `None` when time is up. The last poll
/// may come up to one pause after the budget. Both times in milliseconds. Facts U-24.
pub fn runner_pause_ms(elapsed_ms: u64, budget_ms: u64) -> Option<u64> {
    (elapsed_ms <= budget_ms).then_some(POLL_MS)
}

/// A pause of [`launcher_pause_ms`] or [`runner_pause_ms`], shorter right after the other side was answered.
/// Both times in milliseconds.
/// Spec: RS-START-54.
pub fn eager_pause_ms(elapsed_ms: u64, pause_ms: u64) -> u64 {
    if elapsed_ms < EAGER_MS { pause_ms.min(EAGER_POLL_MS) } else { pause_ms }
}

/// The object in a file; `None` for another JSON value except `null`, which both sides of every
/// dialect take for an unreadable file.
fn object_of(bytes: &[u8]) -> Result<Option<Document<'_>>, DecodeError> {
    let text = text_of(bytes)?;
    match Document::parse(text) {
        Ok(doc) => Ok(Some(doc)),
        Err(e @ DecodeError::NotAnObject { .. }) => {
            let is_null = Raw::parse(text).is_ok_and(Raw::is_null);
            if is_null { Err(e) } else { Ok(None) }
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = br#"{"state":"ready","token":"t","pid":5,"owner":{}}"#;

    #[test]
    fn messages_keep_strange_words_and_drop_wrong_types() {
        let doc = Document::parse(r#"{"state":"later","token":7,"pid":1.5,"error":null}"#);
        let message = StartupMessage::read(&doc.expect("object"));
        assert_eq!(message.state, Some(Open::Unrecognized("later".into())));
        assert_eq!((message.token, message.pid, message.error), (None, None, None));
        assert!(!message.has_owner);
        let doc = Document::from_bytes(READY).expect("object");
        let message = StartupMessage::read(&doc);
        assert_eq!((message.pid, message.has_owner), (Some(5), true));
    }

    #[test]
    fn the_launcher_learns_the_token_from_ready_and_holds_the_runner_to_it() {
        let accept = LauncherStep::Accept { token: "t".into() };
        assert_eq!(read_startup(Some(READY), StartupState::Ready, None), accept);
        assert_eq!(
            read_startup(Some(READY), StartupState::Acknowledged, Some("t")),
            LauncherStep::Wait
        );
        let confirmed: &[u8] = br#"{"state":"confirmed","token":"u"}"#;
        assert_eq!(
            read_startup(Some(confirmed), StartupState::Confirmed, Some("t")),
            LauncherStep::Fail(LauncherFailure::WrongToken { state: StartupState::Confirmed })
        );
        assert_eq!(
            read_startup(Some(confirmed), StartupState::Acknowledged, Some("t")),
            LauncherStep::Wait,
            "a later state is waited on, whatever its token"
        );
    }

    #[test]
    fn a_token_that_is_not_unicode_equals_no_token() {
        let file: &[u8] = br#"{"action":"ack","token":"\ud800"}"#;
        assert_eq!(
            read_control(Some(file), "\u{fffd}", Action::Ack, ACTIONS_WITH_CONFIRM),
            RunnerStep::Fail(RunnerFailure::WrongToken)
        );
    }

    #[test]
    fn confirm_is_a_step_only_for_runners_that_know_it() {
        let file: &[u8] = br#"{"action":"confirm","token":"t"}"#;
        let poll = |wanted, known| read_control(Some(file), "t", wanted, known);
        assert_eq!(poll(Action::Confirm, ACTIONS_WITH_CONFIRM), RunnerStep::Done);
        assert_eq!(poll(Action::Proceed, ACTIONS_WITH_CONFIRM), RunnerStep::Wait);
        assert_eq!(
            poll(Action::Proceed, ACTIONS_WITHOUT_CONFIRM),
            RunnerStep::Fail(RunnerFailure::UnknownAction)
        );
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let file: &[u8] = br#"{"action":"go","action":"ack","token":"u","token":"t"}"#;
        assert_eq!(
            read_control(Some(file), "t", Action::Ack, ACTIONS_WITH_CONFIRM),
            RunnerStep::Done
        );
    }

    #[test]
    fn unreadable_files_say_why() {
        for bytes in [&b""[..], b"\0\0", b"\xef\xbb\xbf{}", b"{\"a\":", b"null", b"\xff"] {
            assert!(
                matches!(
                    read_startup(Some(bytes), StartupState::Ready, None),
                    LauncherStep::Fail(LauncherFailure::Unreadable(_))
                ),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn both_sides_poll_at_least_once_and_stop_at_their_budget() {
        assert_eq!(launcher_pause_ms(0, 0), None);
        assert_eq!(launcher_pause_ms(0, 120), Some(20));
        assert_eq!(launcher_pause_ms(115, 120), Some(5));
        assert_eq!(launcher_pause_ms(120, 120), None);
        assert_eq!(runner_pause_ms(90, 90), Some(20), "the budget itself is still inside");
        assert_eq!(runner_pause_ms(91, 90), None);
        assert_eq!((eager_pause_ms(99, 20), eager_pause_ms(100, 20)), (1, 20));
        assert_eq!(eager_pause_ms(99, 0), 0, "never longer than it would be");
    }
}
