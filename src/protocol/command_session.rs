//! The session of a run of plain commands: what is left to be done, for a run that resumes it.
//!
//! Theory of operation. Of an agent the session file holds the conversation; of plain commands it holds the
//! steps that have not ended well, in one line of JSON; of several the last whole one counts. A runner writes
//! it when its run is paused, and at each end of a run that resumes one, so that
//! nothing is done twice: after a run that did the rest the line says that nothing is left.
//!
//! The file is made for a run that is paused, below the store and in no run directory; whoever resumes it goes
//! on with the same file, under the lease of the session (chapter 9). Other implementations see a session file that exists
//! and ends in `.jsonl`, which is all that they ask for before they look at their own descriptor.
//!
//! A crash leaves a torn line at most, which is passed over. Spec: RS-STEP-10.

use super::command_step::{CommandStep, groups, steps_text};
use super::document::{Document, object_text, string_text};
use super::error::DecodeError;
use super::member;
use super::written;

/// The word in `type`.
const TYPE: &str = "runstore.session";

/// What is left of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSession {
    /// The run that told it.
    pub run_id: String,
    /// When, in ms since the epoch.
    pub at_ms: i64,
    /// The working directory of the run.
    pub cwd: String,
    /// What is left, one group after the other; empty when all is done.
    pub groups: Vec<Vec<CommandStep>>,
}

impl CommandSession {
    /// One line, without its end.
    pub fn line(&self) -> String {
        written::one_line(&object_text(&[
            ("type", string_text(TYPE)),
            ("version", "1".to_owned()),
            ("runId", string_text(&self.run_id)),
            ("ts", self.at_ms.to_string()),
            ("cwd", string_text(&self.cwd)),
            ("steps", steps_text(&self.groups)),
        ]))
    }

    /// The last whole line of a session file that is one of ours.
    ///
    /// # Errors
    /// [`DecodeError`] of the last line that can be parsed, or of the whole when there is none.
    pub fn last(text: &str) -> Result<Self, DecodeError> {
        let mut lines = text.lines().rev().filter(|line| !line.trim().is_empty());
        let doc = lines.find_map(|line| Document::parse(line).ok());
        let doc =
            doc.ok_or_else(|| DecodeError::member("type", "a line of a session of commands"))?;
        if member::filled_string(&doc, "type")? != TYPE {
            return Err(DecodeError::member("type", "a line of a session of commands"));
        }
        member::version_one(&doc)?;
        Ok(Self {
            run_id: member::filled_string(&doc, "runId")?,
            at_ms: member::instant_ms(&doc, "ts")?,
            cwd: member::filled_string(&doc, "cwd")?,
            groups: groups(&doc)?,
        })
    }
}

/// What is left of groups: the steps that are not done, without the groups in which all are. `done` tells of
/// each step in flat order.
pub fn left(groups: &[Vec<CommandStep>], done: &[bool]) -> Vec<Vec<CommandStep>> {
    let mut done = done.iter().copied().chain(std::iter::repeat(false));
    let group = |steps: &Vec<CommandStep>| {
        let left = |step: &CommandStep| (!done.next().unwrap_or(false)).then(|| step.clone());
        steps.iter().filter_map(left).collect::<Vec<_>>()
    };
    groups.iter().map(group).filter(|steps| !steps.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(word: &str) -> CommandStep {
        CommandStep {
            agent: "a".to_owned(),
            command: vec![word.to_owned()],
            ..CommandStep::default()
        }
    }

    // RS-STEP-10
    #[test]
    fn the_last_whole_line_says_what_is_left() {
        let plan = [vec![step("one")], vec![step("two"), step("three")], vec![step("four")]];
        let left = left(&plan, &[true, false, true]);
        assert_eq!(left, [vec![step("two")], vec![step("four")]]);
        let first =
            CommandSession { run_id: "r".to_owned(), at_ms: 5, cwd: "/w".to_owned(), groups: left };
        let done = CommandSession { run_id: "s".to_owned(), groups: Vec::new(), ..first.clone() };
        let text = format!("{}\n", first.line());
        assert_eq!(CommandSession::last(&text), Ok(first));
        let text = format!("{text}{}\n{{\"type\":\"runsto", done.line());
        assert_eq!(CommandSession::last(&text), Ok(done), "a torn line is passed over");
    }

    // RS-STEP-10
    #[test]
    fn a_session_of_an_agent_is_none_of_commands() {
        for text in [
            "",
            "\n",
            "torn",
            r#"{"type":"message","id":1}"#,
            r#"{"type":"runstore.session","version":2}"#,
        ] {
            assert!(CommandSession::last(text).is_err(), "{text}");
        }
    }
}
