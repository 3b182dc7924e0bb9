//! The texts that launcher and runner say to each other before the commit point, and the launcher's note.
//!
//! Theory of operation. Every message has exactly the members of facts §4.2, so that a peer of any
//! dialect reads what it expects: nothing of ours is added to a conversation. The text of an error is
//! cut so that the longest one, escaped, stays below the bound of a message: a runner that has much to
//! say must not become one that cannot be read.
//!
//! The *launch note* is ours alone: `.runstore-launch.json` says which process prepares a run, before
//! anything is reserved for it. Peers do not know the name and leave it alone.
//!
//! Not promised: that a message tells which attempt or which dialect it belongs to; only its token does.
//! Spec: RS-START-01, RS-START-21, RS-START-22; facts §4.2, U-1 to U-5.

use serde::Serialize;

use super::document::Document;
use super::lease::LeaseOwner;
use super::open::Word as _;
use super::process::ProcessRecord;
use super::raw::Raw;
use super::startup::{Action, StartupState};
use super::{limits, member, written};

/// `ready`, with the owner record of the lease that the runner holds. Facts U-1, U-2.
pub fn ready(pid: i64, owner: &LeaseOwner) -> String {
    format!(
        "{{\n  \"state\": \"ready\",\n  \"token\": {},\n  \"pid\": {pid},\n  \"owner\": {}\n}}",
        written::string(&owner.token),
        written::indented(&written::lease_owner(owner), 2)
    )
}

#[derive(Serialize)]
struct StateText<'a> {
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    pid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// A state that carries nothing but its token: `acknowledged` or `confirmed`.
pub fn state(state: StartupState, token: &str, pid: i64) -> String {
    written::pretty(&StateText { state: state.as_str(), token: Some(token), pid, error: None })
}

/// `error`, which carries no token. The text is cut to [`limits::STARTUP_ERROR_CHARS`] characters.
/// Spec: RS-START-22.
pub fn error(pid: i64, text: &str) -> String {
    let end = text.char_indices().nth(limits::STARTUP_ERROR_CHARS).map_or(text.len(), |(at, _)| at);
    let error = Some(&text[..end]);
    written::pretty(&StateText { state: StartupState::Error.as_str(), token: None, pid, error })
}

#[derive(Serialize)]
struct ControlText<'a> {
    action: &'a str,
    token: &'a str,
}

/// What the launcher puts into a control file.
pub fn control(action: Action, token: &str) -> String {
    written::pretty(&ControlText { action: action.as_str(), token })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NoteText<'a> {
    version: u8,
    run_id: &'a str,
    runner_process_instance_id: &'a str,
    config_file: &'a str,
    created_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(flatten)]
    launcher: &'a ProcessRecord,
}

/// `.runstore-launch.json`: who prepares a run, and what it will have to take back.
/// Spec: RS-START-23.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchNote {
    /// The run.
    pub run_id: String,
    /// The instance that was chosen for the runner, which a slot of this launch is bound to.
    pub instance_id: String,
    /// Name of the runner configuration in the temp root.
    pub config_file: String,
    /// When, ms since the epoch.
    pub created_at_ms: i64,
    /// The session that the run belongs to, for whoever records its end in the launcher's place.
    pub session_id: Option<String>,
    /// The launcher's process.
    pub launcher: ProcessRecord,
}

impl LaunchNote {
    /// The text of the file.
    pub fn text(&self) -> String {
        written::pretty(&NoteText {
            version: 1,
            run_id: &self.run_id,
            runner_process_instance_id: &self.instance_id,
            config_file: &self.config_file,
            created_at: self.created_at_ms,
            session_id: self.session_id.as_deref(),
            launcher: &self.launcher,
        })
    }

    /// Reads a note; `None` when a member that it needs is missing or has another type.
    pub fn read(doc: &Document<'_>) -> Option<Self> {
        let text = |key: &str| member::loose_string(doc, key);
        member::version_one(doc).ok()?;
        Some(Self {
            run_id: text("runId")?,
            instance_id: text("runnerProcessInstanceId")?,
            config_file: text("configFile")?,
            created_at_ms: doc.get("createdAt").and_then(Raw::instant_ms)?,
            session_id: text("sessionId"),
            launcher: ProcessRecord::read(doc)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::lease::WriterState;
    use crate::protocol::open::Open;
    use crate::protocol::process::RecordedIdentity;
    use crate::protocol::startup::{
        ACTIONS_WITH_CONFIRM, LauncherFailure, LauncherStep, RunnerStep, StartupMessage,
        read_control, read_startup,
    };

    fn owner() -> LeaseOwner {
        LeaseOwner {
            token: "t \"q\"".to_owned(),
            canonical_session_file: "/s".to_owned(),
            run_id: "r".to_owned(),
            source_run_id: "q".to_owned(),
            parent_session_id: None,
            pid: 7,
            hostname: "h".to_owned(),
            process_start_identity: None,
            writer_state: WriterState::None,
            writer_pid: None,
            writer_process_start_identity: None,
            acquired_at: "x".to_owned(),
            acquired_at_ms: 1,
            updated_at_ms: 2,
            boot_id: None,
            pidfd_inode: None,
            pid_namespace: None,
        }
    }

    #[test]
    fn each_message_is_what_the_other_side_waits_for() {
        let token = "t \"q\"";
        for (text, expected) in [
            (ready(7, &owner()), StartupState::Ready),
            (state(StartupState::Acknowledged, token, 7), StartupState::Acknowledged),
            (state(StartupState::Confirmed, token, 7), StartupState::Confirmed),
        ] {
            let step = read_startup(Some(text.as_bytes()), expected, Some(token));
            assert_eq!(step, LauncherStep::Accept { token: token.to_owned() }, "{text}");
        }
        for action in [Action::Ack, Action::Confirm, Action::Proceed] {
            let text = control(action, token);
            let step = read_control(Some(text.as_bytes()), token, action, ACTIONS_WITH_CONFIRM);
            assert_eq!(step, RunnerStep::Done, "{text}");
        }
        let text = error(7, "why");
        let step = read_startup(Some(text.as_bytes()), StartupState::Ready, None);
        let want = LauncherFailure::Reported { text: "why".to_owned() };
        assert_eq!(step, LauncherStep::Fail(want));
    }

    #[test]
    fn a_message_has_the_members_of_its_table_and_no_other() {
        let keys = |text: &str| -> Vec<String> {
            let doc = Document::parse(text).expect("JSON");
            doc.members().map(|(key, _)| key.to_owned()).collect()
        };
        assert_eq!(keys(&ready(7, &owner())), ["state", "token", "pid", "owner"]);
        assert_eq!(keys(&state(StartupState::Confirmed, "t", 7)), ["state", "token", "pid"]);
        assert_eq!(keys(&error(7, "why")), ["state", "pid", "error"]);
        assert_eq!(keys(&control(Action::Ack, "t")), ["action", "token"]);
        let text = ready(7, &owner());
        let doc = Document::parse(&text).expect("JSON");
        let message = StartupMessage::read(&doc);
        assert_eq!(message.state, Some(Open::Known(StartupState::Ready)));
        assert!(message.has_owner, "{text}");
    }

    #[test]
    fn the_longest_error_stays_below_the_bound_of_a_message() {
        for c in ['\u{1}', '\u{10ffff}', '"'] {
            let text = error(i64::MAX, &c.to_string().repeat(limits::STARTUP_ERROR_CHARS + 1));
            assert!((text.len() as u64) < limits::STARTUP_MAX_BYTES, "{} bytes", text.len());
            let doc = Document::parse(&text).expect("JSON");
            let kept = StartupMessage::read(&doc).error.expect("there");
            assert_eq!(kept.chars().count(), limits::STARTUP_ERROR_CHARS);
        }
    }

    #[test]
    fn a_note_reads_back_as_it_was() {
        let note = LaunchNote {
            run_id: "r".to_owned(),
            instance_id: "i".to_owned(),
            config_file: "async-cfg-r.json".to_owned(),
            created_at_ms: 5,
            session_id: Some("s \"q\"".to_owned()),
            launcher: ProcessRecord {
                pid: 7,
                host: Some("h".to_owned()),
                pid_namespace: Some("pid:[1]".to_owned()),
                identity: RecordedIdentity {
                    start_identity: Some("linux:1".to_owned()),
                    boot_id: Some("b".to_owned()),
                    pidfd_inode: Some(u64::MAX),
                },
            },
        };
        let text = note.text();
        assert_eq!(LaunchNote::read(&Document::parse(&text).expect("JSON")), Some(note));
        let other = text.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(LaunchNote::read(&Document::parse(&other).expect("JSON")), None);
    }
}
