//! The control inbox: requests to a live runner, and what a runner does with each.
//!
//! Theory of operation. A client drops a file, the runner lists, reads, *removes* and then acts, so a
//! file that is there is a request that nobody took up, and a file that is gone says nothing. Of an
//! interrupt or a timeout only the existence counts. A stop or steer request is checked when it is
//! read; one that breaks a rule is removed and ignored, which [`StopRequest::read`] and
//! [`SteerRequest::read`] decide. A closed marker says that the runner listens no more; what lies
//! beside it is consumed once more at the end, or never.
//!
//! A crash between removal and action loses the request. Messages are never shown: they are prompts.
//! Spec: RS-CTRL-*; facts C-1 to C-8.

use super::document::Document;
use super::error::DecodeError;
use super::layout;
use super::member;
use super::open::{Open, words};
use super::raw::Raw;

/// Largest request file that is read, in bytes: a message of 128 KiB in the longest spelling that
/// JSON has for it, six bytes for each, and room for the rest.
pub const REQUEST_MAX_BYTES: u64 = 1 << 20;
/// Longest `childId`, request id or source, in UTF-16 units.
pub const ID_MAX_CHARS: usize = 256;
/// Longest message, in bytes.
pub const MESSAGE_MAX_BYTES: usize = 128 << 10;
/// Largest target index of a stop request.
pub const TARGET_INDEX_MAX: i64 = 1_000_000;
/// Most targets of one steer request.
pub const TARGETS_MAX: usize = 1000;

/// The queues of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// `control/stop-requests`.
    Stop,
    /// `control/steer-requests`.
    Steer,
    /// `append-requests`.
    Append,
}

impl Queue {
    /// The file name that says the queue is closed; append requests have none. Facts C-5.
    pub fn closed_marker(self) -> Option<&'static str> {
        match self {
            Self::Stop => Some(layout::STOP_INBOX_CLOSED),
            Self::Steer => Some(layout::STEER_INBOX_CLOSED),
            Self::Append => None,
        }
    }

    /// Whether the name of a file is one that clients of this queue give. Readers take any name that
    /// ends in `.json`, in the order of names; the grammar only makes that the order of time. Facts
    /// C-2, C-3, C-6.
    pub fn names(self, name: &str) -> bool {
        let Some((digits, id)) = name.strip_suffix(".json").and_then(|stem| stem.split_once('-'))
        else {
            return false;
        };
        let is_time = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let base64url = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        match self {
            Self::Stop => is_time && digits.len() == 13 && super::temp_name::is_uuid(id),
            Self::Steer => {
                is_time && digits.len() == 13 && !id.is_empty() && id.bytes().all(base64url)
            }
            Self::Append => is_time && !id.is_empty(),
        }
    }

    /// Why a runner would remove this request and do nothing, if it would.
    pub fn refusal(self, bytes: &[u8]) -> Option<DecodeError> {
        let read = Document::from_bytes(bytes).and_then(|doc| match self {
            Self::Stop => StopRequest::read(&doc).map(|_| ()),
            Self::Steer => SteerRequest::read(&doc).map(|_| ()),
            Self::Append => AppendRequest::read(&doc).map(|_| ()),
        });
        read.err()
    }
}

/// `interrupt.json` or `timeout.json`. Its content decides nothing. Facts C-1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// `ts`, in milliseconds since the epoch.
    pub at_ms: Option<i64>,
    /// `source`.
    pub source: Option<String>,
    /// `reason`.
    pub reason: Option<String>,
}

impl Interrupt {
    /// Reads what there is.
    pub fn read(doc: &Document<'_>) -> Self {
        let text = |key: &str| member::loose_string(doc, key);
        let at_ms = doc.get("ts").and_then(Raw::instant_ms);
        Self { at_ms, source: text("source"), reason: text("reason") }
    }
}

/// A request to stop the run, or one of its steps. Facts C-2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// `ts`, in milliseconds since the epoch.
    pub at_ms: Option<i64>,
    /// `targetIndex`; without one the whole run is stopped.
    pub target_index: Option<i64>,
    /// `childId`.
    pub child_id: Option<String>,
    /// `source`.
    pub source: Option<String>,
    /// `reason`.
    pub reason: Option<String>,
}

impl StopRequest {
    /// Reads a request by the rules of a runner.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member for which it would be dropped.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        of_type(doc, "stop")?;
        let at_ms = optional(doc, "ts", "a number", |raw| raw.number().and(raw.instant_ms()))?;
        let source = optional(doc, "source", "a string", string)?;
        let reason = optional(doc, "reason", "a string", string)?;
        let target_index = optional(doc, "targetIndex", "a step index", |raw| index(raw))?;
        let child_id = optional(doc, "childId", "a short line of text", |raw| {
            string(raw).filter(|id| {
                !id.trim().is_empty()
                    && id.encode_utf16().count() <= ID_MAX_CHARS
                    && !id.contains(['\r', '\n'])
            })
        })?;
        Ok(Self { at_ms, target_index, child_id, source, reason })
    }
}

words! {
    /// When a steering message is to be delivered.
    SteerMode {
        /// At the next turn.
        Steer = "steer",
        /// After the work is done.
        FollowUp = "follow_up",
        /// As the runner sees fit.
        Auto = "auto",
    }
}

/// A message to a running child. The text itself is not kept. Facts C-3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerRequest {
    /// `id`.
    pub id: String,
    /// `ts`, in milliseconds since the epoch.
    pub at_ms: i64,
    /// `mode`.
    pub mode: Option<SteerMode>,
    /// `targetIndex` or `targetIndexes`; empty means that the runner chooses.
    pub targets: Vec<i64>,
    /// Size of `message`, in bytes.
    pub message_bytes: usize,
    /// `source`.
    pub source: Option<String>,
}

impl SteerRequest {
    /// Reads a request by the rules of a runner.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member for which it would be dropped.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        of_type(doc, "steer")?;
        let short = |text: &String| text.encode_utf16().count() <= ID_MAX_CHARS;
        let id = member::loose_string(doc, "id")
            .filter(|id| !id.is_empty() && !id.contains(char::is_whitespace) && short(id))
            .ok_or_else(|| DecodeError::member("id", "a short string without white space"))?;
        let at_ms = doc
            .get("ts")
            .and_then(Raw::instant_ms)
            .filter(|at| *at > 0)
            .ok_or_else(|| DecodeError::member("ts", "a number above 0"))?;
        let message_bytes = doc
            .get("message")
            .and_then(Raw::string)
            .filter(|text| !text.trim().is_empty() && text.len() <= MESSAGE_MAX_BYTES)
            .map(|text| text.len())
            .ok_or_else(|| DecodeError::member("message", "a text of at most 128 KiB"))?;
        let mode = optional(doc, "mode", "steer, follow_up or auto", |raw| {
            Open::read(&raw.string()?).known()
        })?;
        let one = optional(doc, "targetIndex", "a step index", |raw| index(raw))?;
        let many = optional(doc, "targetIndexes", "1 to 1000 different step indexes", indexes)?;
        if one.is_some() && many.is_some() {
            return Err(DecodeError::member("targetIndexes", "absent beside targetIndex"));
        }
        let source = optional(doc, "source", "a short string", |raw| string(raw).filter(short))?;
        let targets = many.unwrap_or_else(|| one.into_iter().collect());
        Ok(Self { id, at_ms, mode, targets, message_bytes, source })
    }
}

/// A request to append steps to a chain; up to 0.76. Facts C-6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRequest {
    /// `id`.
    pub id: String,
    /// `createdAt`, in milliseconds since the epoch.
    pub created_at_ms: i64,
    /// Number of `steps`.
    pub steps: usize,
}

impl AppendRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let id = member::filled_string(doc, "id")?;
        let created_at_ms = member::instant_ms(doc, "createdAt")?;
        let steps = doc.get("steps").and_then(Raw::array);
        let steps = steps.ok_or_else(|| DecodeError::member("steps", "an array"))?.len();
        Ok(Self { id, created_at_ms, steps })
    }
}

/// A closed marker: the inbox takes no more requests (`RS-CTRL-02`). Facts C-5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxClosed {
    /// `closedAt`, in milliseconds since the epoch.
    pub closed_at_ms: i64,
    /// `state`: how the run ended, where the marker says it.
    pub state: Option<String>,
}

impl InboxClosed {
    /// Reads a marker.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let closed_at_ms = member::instant_ms(doc, "closedAt")?;
        Ok(Self { closed_at_ms, state: member::loose_string(doc, "state") })
    }
}

fn string(raw: Raw<'_>) -> Option<String> {
    raw.string().map(std::borrow::Cow::into_owned)
}

fn index(raw: Raw<'_>) -> Option<i64> {
    raw.integer().filter(|n| (0..=TARGET_INDEX_MAX).contains(n))
}

fn indexes(raw: Raw<'_>) -> Option<Vec<i64>> {
    let raws = raw.array().filter(|all| (1..=TARGETS_MAX).contains(&all.len()))?;
    let all: Vec<i64> = raws.into_iter().map(index).collect::<Option<_>>()?;
    let mut sorted = all.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == all.len()).then_some(all)
}

fn of_type(doc: &Document<'_>, word: &'static str) -> Result<(), DecodeError> {
    let is = doc.get("type").and_then(Raw::string).as_deref() == Some(word);
    is.then_some(()).ok_or_else(|| DecodeError::member("type", word))
}

/// A member that may be absent but not wrong.
fn optional<'a, T>(
    doc: &Document<'a>,
    key: &str,
    expected: &'static str,
    read: impl FnOnce(Raw<'a>) -> Option<T>,
) -> Result<Option<T>, DecodeError> {
    let Some(raw) = doc.get(key) else { return Ok(None) };
    read(raw).map(Some).ok_or_else(|| DecodeError::member(key, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(queue: Queue, text: &str) -> Option<String> {
        match queue.refusal(text.as_bytes()) {
            None => None,
            Some(DecodeError::Member { member, .. }) => Some(member),
            Some(other) => Some(other.to_string()),
        }
    }

    #[test]
    fn a_stop_request_is_dropped_for_any_wrong_member() {
        let long = format!(r#"{{"type":"stop","childId":"{}"}}"#, "x".repeat(257));
        for (text, want) in [
            (r#"{"type":"stop"}"#, None),
            ("{\n \"type\": \"stop\",\n \"targetIndex\": 1000000\n}\n", None),
            (r#"{"type":"halt"}"#, Some("type")),
            (r#"{"type":"stop","ts":"1"}"#, Some("ts")),
            (r#"{"type":"stop","targetIndex":1000001}"#, Some("targetIndex")),
            (r#"{"type":"stop","targetIndex":-1}"#, Some("targetIndex")),
            (r#"{"type":"stop","targetIndex":0.5}"#, Some("targetIndex")),
            (r#"{"type":"stop","childId":" "}"#, Some("childId")),
            (r#"{"type":"stop","childId":"a\nb"}"#, Some("childId")),
            (&long, Some("childId")),
        ] {
            assert_eq!(wrong(Queue::Stop, text).as_deref(), want, "{text}");
        }
        assert!(wrong(Queue::Stop, "[").is_some(), "what is no JSON is dropped as well");
    }

    #[test]
    fn a_steer_request_needs_id_time_and_message() {
        let with =
            |rest: &str| format!(r#"{{"type":"steer","id":"a","ts":1,"message":"m"{rest}}}"#);
        let long =
            format!(r#"{{"type":"steer","id":"a","ts":1,"message":"{}"}}"#, "m".repeat(131_073));
        for (text, want) in [
            (with(""), None),
            (with(r#","mode":"follow_up","targetIndexes":[0,1]"#), None),
            (with(r#","mode":"later""#), Some("mode")),
            (with(r#","targetIndexes":[]"#), Some("targetIndexes")),
            (with(r#","targetIndexes":[1,1]"#), Some("targetIndexes")),
            (with(r#","targetIndex":0,"targetIndexes":[1]"#), Some("targetIndexes")),
            (r#"{"type":"steer","id":"a b","ts":1,"message":"m"}"#.into(), Some("id")),
            (r#"{"type":"steer","id":"a","ts":0,"message":"m"}"#.into(), Some("ts")),
            (r#"{"type":"steer","id":"a","ts":1,"message":" "}"#.into(), Some("message")),
            (long, Some("message")),
        ] {
            assert_eq!(
                wrong(Queue::Steer, &text).as_deref(),
                want,
                "{}",
                &text[..60.min(text.len())]
            );
        }
    }

    #[test]
    fn request_files_are_named_by_time_and_id() {
        let uuid = "00000000-0000-4000-8000-000000000002";
        assert!(Queue::Stop.names(&format!("1795972934289-{uuid}.json")));
        assert!(!Queue::Stop.names(&format!("179597293428-{uuid}.json")));
        assert!(Queue::Steer.names("1795972934289-cmVxLTE.json"));
        assert!(!Queue::Steer.names("1795972934289-a=.json"));
        assert!(Queue::Append.names("5-a.json") && !Queue::Append.names("5.json"));
    }

    #[test]
    fn markers_interrupts_and_append_requests_are_read() {
        let doc = |text| Document::parse(text).expect("valid");
        let closed = InboxClosed::read(&doc(r#"{"version":1,"closedAt":7,"state":"complete"}"#));
        assert_eq!(closed.expect("a marker").closed_at_ms, 7);
        assert!(InboxClosed::read(&doc(r#"{"version":2,"closedAt":7}"#)).is_err());
        let interrupt = Interrupt::read(&doc(r#"{"type":7,"ts":5,"reason":"r"}"#));
        assert_eq!((interrupt.at_ms, interrupt.reason.as_deref()), (Some(5), Some("r")));
        let append = AppendRequest::read(&doc(r#"{"id":"a","createdAt":3,"steps":[{}]}"#));
        assert_eq!(append.expect("a request").steps, 1);
        assert_eq!(wrong(Queue::Append, r#"{"id":"a","createdAt":3}"#).as_deref(), Some("steps"));
    }
}
