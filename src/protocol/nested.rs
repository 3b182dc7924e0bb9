//! Nested routes: how news of nested runs travels, and what may be believed of it.
//!
//! Theory of operation. A route is a directory `ROOT_RUN_ID-TOKEN` with `route.json` in it and an
//! index entry beside it. The nested runner drops event files into it; whoever projects for the root
//! folds them into `registry.json`. All of this is news about a run, never the run: the nested run's
//! own directory decides, and a route only says that there is one and whose child it is
//! ([`super::nested_summary`] holds the summary and the rule of two accounts).
//!
//! The token is a capability: an event counts only with the root and the token of the route that it
//! lies in. So [`Route`] never shows its token, and comparisons are of exact strings.
//!
//! A crash can leave a route without `route.json` (the index entry holds the same), event files that
//! nobody folded in, and an unfinished last line in a `.jsonl` event file, which is dropped.
//! Spec: chapter 10, RS-NEST-*; facts Q-40 to Q-46.

use std::fmt;

use super::document::{Document, object_text, string_text};
use super::error::DecodeError;
use super::member;
use super::nested_summary::{ChildEvent, Summary};
use super::raw::Raw;
use super::temp_name::is_uuid;
use super::{layout, segment};

/// The entry of a route in its own directory.
pub const ROUTE_FILE: &str = "route.json";
/// What was folded in so far.
pub const REGISTRY_FILE: &str = "registry.json";
/// The directory of events in a route.
pub const EVENTS_DIR: &str = "events";
/// The directory of control requests in a route.
pub const CONTROLS_DIR: &str = "controls";
/// The index of routes: `.route-index/roots/ENC(ROOT)/ENC(TOKEN).json`.
pub const ROUTE_INDEX_DIR: &str = ".route-index";
/// Inside [`ROUTE_INDEX_DIR`].
pub const ROUTE_INDEX_ROOTS: &str = "roots";

/// Largest event, control or route file that is read, in bytes (facts Q-42).
pub const RECORD_MAX_BYTES: u64 = 64 << 10;
/// Longest nested id, in UTF-16 units (facts Q-41).
pub const ID_MAX_CHARS: usize = 128;

/// Why a text is not the id of a nested run. The text itself is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NestedIdError {
    /// No characters.
    Empty,
    /// More than [`ID_MAX_CHARS`].
    TooLong,
    /// A `/`, a `\` or a NUL, which also covers absolute paths.
    Separator,
    /// A `..`, or the name of the directory itself.
    ParentReference,
}

impl fmt::Display for NestedIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a nested id cannot be empty",
            Self::TooLong => "a nested id has at most 128 characters",
            Self::Separator => "a nested id cannot contain a path separator",
            Self::ParentReference => "a nested id cannot be '.' or contain '..'",
        })
    }
}

impl std::error::Error for NestedIdError {}

/// Checks an id by the rule of nested runs (`RS-NEST-02`, facts Q-41). What passes can be joined to
/// the directory of its root run without leaving it.
///
/// # Errors
/// [`NestedIdError`] naming the first rule that the text breaks.
pub fn check_id(text: &str) -> Result<(), NestedIdError> {
    if text.is_empty() {
        return Err(NestedIdError::Empty);
    }
    if text.encode_utf16().count() > ID_MAX_CHARS {
        return Err(NestedIdError::TooLong);
    }
    if text.contains(['/', '\\', '\0']) {
        return Err(NestedIdError::Separator);
    }
    if text == "." || text.contains("..") {
        return Err(NestedIdError::ParentReference);
    }
    Ok(())
}

/// What `route.json` says.
#[derive(Clone, PartialEq, Eq)]
pub struct Route {
    /// `rootRunId`.
    pub root_run_id: String,
    /// `createdAt`, in milliseconds since the epoch.
    pub created_at_ms: i64,
    token: String,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token grants something, so it appears in no log.
        f.debug_struct("Route")
            .field("root_run_id", &self.root_run_id)
            .field("created_at_ms", &self.created_at_ms)
            .finish_non_exhaustive()
    }
}

impl Route {
    /// Reads a route. Facts Q-40.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let root_run_id = member::filled_string(doc, "rootRunId")?;
        if check_id(&root_run_id).is_err() {
            return Err(DecodeError::member("rootRunId", "a run id"));
        }
        let token = doc
            .get("capabilityToken")
            .and_then(Raw::exact_string)
            .filter(|t| check_id(t).is_ok())
            .ok_or_else(|| DecodeError::member("capabilityToken", "a token"))?;
        let created_at_ms = member::instant_ms(doc, "createdAt")?;
        Ok(Self { root_run_id, created_at_ms, token })
    }

    /// A new route.
    ///
    /// # Errors
    /// [`DecodeError::Member`] when an id is not one of a nested run.
    pub fn new(root_run_id: &str, token: &str, created_at_ms: i64) -> Result<Self, DecodeError> {
        for (key, id) in [("rootRunId", root_run_id), ("capabilityToken", token)] {
            check_id(id).map_err(|_| DecodeError::member(key, "an id of a nested run"))?;
        }
        let (root_run_id, token) = (root_run_id.to_owned(), token.to_owned());
        Ok(Self { root_run_id, created_at_ms, token })
    }

    /// The two members that admit a record to this route.
    pub(super) fn credentials(&self) -> String {
        let (root, token) = (string_text(&self.root_run_id), string_text(&self.token));
        format!(r#""rootRunId":{root},"capabilityToken":{token}"#)
    }

    /// The text of `route.json`.
    pub fn text(&self) -> String {
        object_text(&[
            ("rootRunId", string_text(&self.root_run_id)),
            ("capabilityToken", string_text(&self.token)),
            ("createdAt", self.created_at_ms.to_string()),
        ])
    }

    /// The name and the text of its entry in the route index, below the directory of its root.
    pub fn index_entry(&self) -> (String, String) {
        let text = object_text(&[
            ("rootRunId", string_text(&self.root_run_id)),
            ("capabilityToken", string_text(&self.token)),
            ("routeRoot", string_text(&self.dir_name())),
            ("createdAt", self.created_at_ms.to_string()),
        ]);
        (segment::percent_encode(&self.token) + ".json", text)
    }

    /// The member `nestedRoute` of a configuration. `events_root` is the path of the directory of routes.
    pub fn member_text(&self, events_root: &str) -> String {
        let at = |name: &str| string_text(&format!("{events_root}/{}/{name}", self.dir_name()));
        object_text(&[
            ("rootRunId", string_text(&self.root_run_id)),
            ("eventSink", at(EVENTS_DIR)),
            ("controlInbox", at(CONTROLS_DIR)),
            ("capabilityToken", string_text(&self.token)),
        ])
    }

    /// Reads that member. Its paths lead nowhere but to the names that root and token make, so they are
    /// compared and never opened (`RS-NEST-07`).
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong, or that leads elsewhere.
    pub fn read_member(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let text = |key: &str| {
            let wrong = || DecodeError::member(format!("nestedRoute.{key}"), "a text");
            doc.get(key).and_then(Raw::exact_string).ok_or_else(wrong)
        };
        let route = Self::new(&text("rootRunId")?, &text("capabilityToken")?, 0).map_err(|e| {
            let DecodeError::Member { member, expected } = e else { return e };
            DecodeError::member(format!("nestedRoute.{member}"), expected)
        })?;
        for (key, name) in [("eventSink", EVENTS_DIR), ("controlInbox", CONTROLS_DIR)] {
            let own = [layout::NESTED_EVENTS_DIR, &route.dir_name(), name];
            let path = text(key)?;
            let mut parts = path.rsplit(['/', '\\']);
            if !own.iter().rev().all(|own| parts.next() == Some(own)) {
                let at = format!("nestedRoute.{key}");
                return Err(DecodeError::member(at, "a directory of the route of root and token"));
            }
        }
        Ok(route)
    }

    /// The name that the route's directory must have.
    pub fn dir_name(&self) -> String {
        format!("{}-{}", self.root_run_id, self.token)
    }

    /// Whether a document names the root and the token of this route (`RS-NEST-03`).
    pub fn admits(&self, doc: &Document<'_>) -> bool {
        let is =
            |key: &str, own: &str| doc.get(key).and_then(Raw::exact_string).as_deref() == Some(own);
        is("rootRunId", &self.root_run_id) && is("capabilityToken", &self.token)
    }
}

/// An entry of the route index: a route, and where its directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteIndexEntry {
    /// The same as in `route.json`, which is rebuilt from it.
    pub route: Route,
    /// `routeRoot`, as found. Only a [`RouteIndexEntry::base_name`] may be opened.
    pub route_root: String,
}

impl RouteIndexEntry {
    /// Reads an entry. Facts Q-40.
    ///
    /// # Errors
    /// As [`Route::read`].
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let route = Route::read(doc)?;
        let route_root = member::filled_string(doc, "routeRoot")?;
        Ok(Self { route, route_root })
    }

    /// The name of the route's directory inside the events root; `None` when `routeRoot` is anything
    /// but one plain component, and so leads outside (`RS-NEST-07`).
    pub fn base_name(&self) -> Option<&str> {
        let name = self.route_root.as_str();
        let is_one = !name.contains(['/', '\\', '\0']) && !matches!(name, "" | "." | "..");
        (is_one && !name.starts_with('.')).then_some(name)
    }
}

/// The instant in the name of an event or control file, in milliseconds since the epoch:
/// thirteen digits, a dash, a UUID, `.json` or `.jsonl`. `None` for any other name. Facts Q-42.
pub fn event_file_ms(name: &str) -> Option<i64> {
    let stem = name.strip_suffix(".json").or_else(|| name.strip_suffix(".jsonl"))?;
    let (digits, id) = stem.split_at_checked(13)?;
    let valid = digits.bytes().all(|b| b.is_ascii_digit()) && is_uuid(id.strip_prefix('-')?);
    valid.then(|| digits.parse().ok())?
}

/// The documents in an event file: all of a `.json`, each finished line of a `.jsonl`. Facts Q-42.
pub fn texts_of<'b>(name: &str, bytes: &'b [u8]) -> Vec<&'b [u8]> {
    if !name.ends_with(".jsonl") {
        return vec![bytes];
    }
    // What follows the last newline was still being written, so it is not news yet.
    let finished = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    bytes[..finished].split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect()
}

/// One event of a route.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NestedEvent {
    /// News of a nested run.
    Child {
        /// Which news.
        kind: ChildEvent,
        /// `ts`, ms since the epoch.
        at_ms: i64,
        /// What is said of the run.
        child: Box<Summary>,
    },
    /// The answer to a control request.
    ControlResult {
        /// `ts`, ms since the epoch.
        at_ms: i64,
        /// `requestId`.
        request_id: String,
        /// `targetRunId`.
        target_run_id: String,
        /// `ok`.
        ok: bool,
    },
    /// A control request, or a type of another version.
    Other,
}

/// Why an event says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventRefusal {
    /// It names another root or another token than its route (`RS-NEST-03`).
    Foreign,
    /// It is not what an event must be (`RS-NEST-04`).
    Malformed(DecodeError),
}

impl fmt::Display for EventRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it names another root or token than its route"),
            Self::Malformed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EventRefusal {}

impl From<DecodeError> for EventRefusal {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl NestedEvent {
    /// Reads an event of a route. Facts Q-42.
    ///
    /// # Errors
    /// [`EventRefusal`].
    pub fn read(doc: &Document<'_>, route: &Route) -> Result<Self, EventRefusal> {
        if !route.admits(doc) {
            return Err(EventRefusal::Foreign);
        }
        let word = member::string(doc, "type")?;
        let Some(rest) = word.strip_prefix("subagent.nested.") else { return Ok(Self::Other) };
        let at_ms = member::instant_ms(doc, "ts")?;
        if rest == "control-result" {
            return Ok(Self::ControlResult {
                at_ms,
                request_id: member::filled_string(doc, "requestId")?,
                target_run_id: member::filled_string(doc, "targetRunId")?,
                ok: doc.get("ok").and_then(Raw::boolean) == Some(true),
            });
        }
        let Some(kind) = ChildEvent::of(rest) else { return Ok(Self::Other) };
        let child = doc.get("child").ok_or_else(|| DecodeError::member("child", "an object"))?;
        let mut child = Summary::read(child)?;
        // The event names the parent once more, for summaries that were clipped.
        if child.parent_run_id.is_none() {
            child.parent_run_id = member::loose_string(doc, "parentRunId");
        }
        Ok(Self::Child { kind, at_ms, child: Box::new(child) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = r#"{"rootRunId":"root","capabilityToken":"secret-1","createdAt":5}"#;

    fn route() -> Route {
        Route::read(&Document::parse(ROUTE).expect("valid")).expect("a route")
    }

    fn event(text: &str) -> Result<NestedEvent, EventRefusal> {
        NestedEvent::read(&Document::parse(text).expect("valid"), &route())
    }

    #[test]
    fn a_nested_id_cannot_leave_the_directory_of_its_root() {
        for (text, want) in [
            ("", Err(NestedIdError::Empty)),
            ("/abs", Err(NestedIdError::Separator)),
            ("a\\b", Err(NestedIdError::Separator)),
            (".", Err(NestedIdError::ParentReference)),
            ("a..b", Err(NestedIdError::ParentReference)),
            ("run-child", Ok(())),
        ] {
            assert_eq!(check_id(text), want, "{text:?}");
        }
        assert_eq!(check_id(&"x".repeat(128)), Ok(()));
        assert_eq!(check_id(&"x".repeat(129)), Err(NestedIdError::TooLong));
        assert_eq!(check_id(&"\u{1f680}".repeat(65)), Err(NestedIdError::TooLong), "UTF-16 units");
    }

    #[test]
    fn a_route_has_a_root_a_token_and_a_time_and_keeps_its_token_to_itself() {
        let route = route();
        assert_eq!(route.dir_name(), "root-secret-1");
        assert!(!format!("{route:?}").contains("secret"), "a token is in no log");
        for text in [
            r#"{"rootRunId":"","capabilityToken":"t","createdAt":5}"#,
            r#"{"rootRunId":"a/b","capabilityToken":"t","createdAt":5}"#,
            r#"{"rootRunId":"r","createdAt":5}"#,
            r#"{"rootRunId":"r","capabilityToken":"../t","createdAt":5}"#,
            r#"{"rootRunId":"r","capabilityToken":"t"}"#,
        ] {
            assert!(Route::read(&Document::parse(text).expect("valid")).is_err(), "{text}");
        }
    }

    #[test]
    fn an_index_entry_leads_to_one_name_inside_the_events_root() {
        for (root, want) in [
            ("root-t", Some("root-t")),
            ("../elsewhere", None),
            ("/abs", None),
            ("..", None),
            ("a/b", None),
            (".route-index", None),
        ] {
            let text = format!(
                r#"{{"rootRunId":"root","capabilityToken":"t","createdAt":5,"routeRoot":"{root}"}}"#
            );
            let entry = RouteIndexEntry::read(&Document::parse(&text).expect("valid"));
            assert_eq!(entry.expect("an entry").base_name(), want, "{root}");
        }
    }

    #[test]
    fn event_files_are_named_by_time_and_uuid() {
        const ID: &str = "00000000-0000-4000-8000-000000000002";
        assert_eq!(event_file_ms(&format!("1795972934289-{ID}.json")), Some(1_795_972_934_289));
        assert_eq!(event_file_ms(&format!("1795972934289-{ID}.jsonl")), Some(1_795_972_934_289));
        for name in ["1-x.json", "17959729342890.json", "1795972934289-x.json", "é", ""] {
            assert_eq!(event_file_ms(name), None, "{name}");
        }
        assert_eq!(event_file_ms(&format!("179597293428x-{ID}.json")), None);
    }

    #[test]
    fn an_unfinished_last_line_is_dropped() {
        assert_eq!(texts_of("a.jsonl", b"{}\n\n{\"a\":1}\n{\"b"), [&b"{}"[..], b"{\"a\":1}"]);
        assert_eq!(texts_of("a.jsonl", b"{\"a\":1}"), [&b""[..]; 0]);
        assert_eq!(texts_of("a.json", b"{\"a\":1}"), [b"{\"a\":1}"]);
    }

    #[test]
    fn an_event_of_another_root_or_token_says_nothing() {
        for (root, token, foreign) in
            [("root", "secret-1", false), ("other", "secret-1", true), ("root", "secret-2", true)]
        {
            let text = format!(
                r#"{{"type":"subagent.nested.started","ts":9,"rootRunId":"{root}",
                "parentRunId":"root","capabilityToken":"{token}","child":{{"id":"c"}}}}"#
            );
            match event(&text) {
                Ok(NestedEvent::Child { kind, child, .. }) => {
                    assert!(!foreign, "{root} {token} is not of this route");
                    assert_eq!(kind, ChildEvent::Started);
                    assert_eq!(child.parent_run_id.as_deref(), Some("root"));
                }
                Err(EventRefusal::Foreign) => assert!(foreign, "{root} {token}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn results_of_control_requests_and_strange_types_are_told_apart() {
        let with = |rest: &str| {
            event(&format!(r#"{{"rootRunId":"root","capabilityToken":"secret-1","ts":9,{rest}}}"#))
        };
        let result = r#""type":"subagent.nested.control-result","requestId":"q","targetRunId":"c","ok":true"#;
        assert!(matches!(with(result), Ok(NestedEvent::ControlResult { ok: true, .. })));
        assert!(matches!(with(r#""type":"subagent.nested.later""#), Ok(NestedEvent::Other)));
        assert!(matches!(
            with(r#""type":"subagent.nested.updated""#),
            Err(EventRefusal::Malformed(DecodeError::Member { .. }))
        ));
        assert!(matches!(
            with(r#""type":"subagent.nested.updated","child":{"id":"../x"}"#),
            Err(EventRefusal::Malformed(_))
        ));
    }
}
