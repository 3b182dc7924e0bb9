//! The texts and names of control requests, as clients write them.
//!
//! Theory of operation. An [`Asking`] is what somebody wants of a live runner. Its text has the members of
//! facts C-1 to C-3 and no others, so that a runner of any dialect reads what it expects; its name says when
//! and, for a queue, which one it is. Before it is written it is read by the rules of a runner
//! ([`Asking::refusal`]): a request that would be removed and ignored is an error of whoever asks.
//!
//! Not promised: that a runner of this run looks at the place. Which dialects do is a table of chapter 7.
//! Spec: RS-CTRL-20, RS-CTRL-21; facts C-1 to C-3.

use serde::Serialize;

use super::control::{Queue, SteerMode};
use super::error::DecodeError;
use super::layout;
use super::open::Word as _;
use super::written;

/// What is asked of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking<'a> {
    /// Stop the run, or one of its steps.
    Stop {
        /// The index of the step.
        step: Option<i64>,
        /// Whether the runner is so old that it knows no queue, and takes `stop.json` alone.
        as_file: bool,
    },
    /// Pause the run.
    Interrupt,
    /// End the run for lack of time.
    Timeout,
    /// Give a message to steps that run.
    Steer {
        /// A name of the message, without white space.
        id: &'a str,
        /// The message.
        message: &'a str,
        /// When it is to be delivered.
        mode: Option<SteerMode>,
        /// Indexes of the steps; none means that the runner chooses.
        targets: &'a [i64],
    },
}

/// Where a request goes: the queue below `control`, if it has one, and the name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPlace {
    /// Name of the queue's directory.
    pub queue: Option<&'static str>,
    /// Name of the file.
    pub name: String,
}

impl RequestPlace {
    /// The path below the run directory.
    pub fn path(&self) -> String {
        let queue = self.queue.map_or_else(String::new, |queue| format!("{queue}/"));
        format!("{}/{queue}{}", layout::CONTROL_DIR, self.name)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    ts: i64,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_indexes: Option<&'a [i64]>,
}

impl Asking<'_> {
    /// The word of the request: the `type` of its text.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Stop { .. } => "stop",
            Self::Interrupt => "interrupt",
            Self::Timeout => "timeout",
            Self::Steer { .. } => "steer",
        }
    }

    /// The text of the file. `source` says who asks, `reason` why, for people.
    pub fn text(&self, source: &str, reason: Option<&str>, now_ms: i64) -> String {
        let mut text = Text {
            kind: self.word(),
            id: None,
            ts: now_ms,
            source,
            reason,
            message: None,
            mode: None,
            target_index: None,
            target_indexes: None,
        };
        match self {
            Self::Stop { step, .. } => text.target_index = *step,
            Self::Steer { id, message, mode, targets } => {
                (text.id, text.message) = (Some(*id), Some(*message));
                text.mode = mode.map(SteerMode::as_str);
                match targets {
                    [] => {}
                    [one] => text.target_index = Some(*one),
                    many => text.target_indexes = Some(many),
                }
            }
            Self::Interrupt | Self::Timeout => {}
        }
        written::pretty(&text) + "\n"
    }

    /// Where the file goes. `uuid` is drawn for this request.
    pub fn place(&self, now_ms: i64, uuid: &str) -> RequestPlace {
        let file = |name: &str| RequestPlace { queue: None, name: name.to_owned() };
        match self {
            Self::Stop { as_file: true, .. } => file(layout::CONTROL_STOP),
            Self::Interrupt => file(layout::CONTROL_INTERRUPT),
            Self::Timeout => file(layout::CONTROL_TIMEOUT),
            Self::Stop { .. } => RequestPlace {
                queue: Some(layout::STOP_REQUESTS_DIR),
                name: format!("{now_ms:013}-{uuid}.json"),
            },
            Self::Steer { id, .. } => RequestPlace {
                queue: Some(layout::STEER_REQUESTS_DIR),
                name: format!("{now_ms:013}-{}.json", base64url(id.as_bytes())),
            },
        }
    }

    /// Why a runner would remove the text and do nothing, if it would.
    pub fn refusal(&self, text: &str) -> Option<DecodeError> {
        match self {
            Self::Stop { .. } => Queue::Stop.refusal(text.as_bytes()),
            Self::Steer { .. } => Queue::Steer.refusal(text.as_bytes()),
            // Of these the content decides nothing.
            Self::Interrupt | Self::Timeout => None,
        }
    }
}

/// Base64 with the letters for names and without padding.
pub fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let at = |i: usize| u32::from(part.get(i).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=part.len() {
            let index = bits >> (18 - 6 * digit) & 63;
            out.push(char::from(LETTERS[index as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "00000000-0000-4000-8000-000000000002";
    const NOW: i64 = 1_795_972_934_289;

    #[test]
    fn every_request_has_the_name_and_the_text_that_a_runner_takes() {
        let steer = Asking::Steer { id: "req-1", message: "go on", mode: None, targets: &[0, 2] };
        for (asking, path, text) in [
            (
                Asking::Stop { step: None, as_file: false },
                format!("control/stop-requests/{NOW}-{UUID}.json"),
                r#"{"type":"stop","ts":1795972934289,"source":"me","reason":"why"}"#,
            ),
            (
                Asking::Stop { step: Some(3), as_file: false },
                format!("control/stop-requests/{NOW}-{UUID}.json"),
                r#"{"type":"stop","ts":1795972934289,"source":"me","reason":"why","targetIndex":3}"#,
            ),
            (
                Asking::Stop { step: None, as_file: true },
                "control/stop.json".to_owned(),
                r#"{"type":"stop","ts":1795972934289,"source":"me","reason":"why"}"#,
            ),
            (
                Asking::Interrupt,
                "control/interrupt.json".to_owned(),
                r#"{"type":"interrupt","ts":1795972934289,"source":"me","reason":"why"}"#,
            ),
            (
                Asking::Timeout,
                "control/timeout.json".to_owned(),
                r#"{"type":"timeout","ts":1795972934289,"source":"me","reason":"why"}"#,
            ),
            (
                steer,
                format!("control/steer-requests/{NOW}-cmVxLTE.json"),
                r#"{"type":"steer","id":"req-1","ts":1795972934289,"source":"me","reason":"why","message":"go on","targetIndexes":[0,2]}"#,
            ),
        ] {
            let place = asking.place(NOW, UUID);
            assert_eq!(place.path(), path);
            let written = asking.text("me", Some("why"), NOW);
            assert_eq!(written::one_line(&written), text);
            assert_eq!(asking.refusal(&written), None, "{text}");
            let queue = match place.queue {
                Some(layout::STOP_REQUESTS_DIR) => Queue::Stop,
                Some(_) => Queue::Steer,
                None => continue,
            };
            assert!(queue.names(&place.name), "{path}");
        }
    }

    #[test]
    fn what_a_runner_would_ignore_is_known_before_it_is_written() {
        for (asking, member) in [
            (Asking::Stop { step: Some(-1), as_file: false }, "targetIndex"),
            (Asking::Steer { id: "a b", message: "m", mode: None, targets: &[] }, "id"),
            (Asking::Steer { id: "a", message: " ", mode: None, targets: &[] }, "message"),
            (
                Asking::Steer { id: "a", message: "m", mode: None, targets: &[1, 1] },
                "targetIndexes",
            ),
        ] {
            let refusal = asking.refusal(&asking.text("me", None, NOW)).expect("a rule is broken");
            assert!(refusal.to_string().contains(member), "{member}: {refusal}");
        }
    }

    #[test]
    fn names_are_in_base64_without_padding() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"a", "YQ"),
            (b"ab", "YWI"),
            (b"abc", "YWJj"),
            (&[0xfb, 0xff, 0xfe], "-__-"),
        ] {
            assert_eq!(base64url(bytes), text);
        }
    }
}
