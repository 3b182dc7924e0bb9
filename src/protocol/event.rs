//! `events.jsonl`: an append-only log of advice.
//!
//! Theory of operation. Several processes append single lines without a lock, and the disk may lose
//! or glue some of them. So bytes are split into lines first and decoded line by line; a bad line is
//! counted and skipped; an unterminated last line is *torn* (ordinary after a crash), a bad line
//! before the end is *corrupt* (data was lost). Events are advice: they support or contradict a
//! status, they never replace it (`RS-EVENT-*`).
//!
//! Only the tail of a large log is read. Then line numbers are unknown and the summary says so.

use super::Word as _;
use super::document::Document;
use super::member;
use super::raw::Raw;
use super::state::RunState;

/// One event, as far as it decides or is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `type`, verbatim.
    pub kind: String,
    /// `ts`.
    pub at_ms: Option<i64>,
    /// `status`, `message`, `error` or `agent`: the first that is there, for display.
    pub detail: Option<String>,
    /// Line in the file, counted from 1, when the log was read from its start.
    pub line: Option<u64>,
}

/// What an event log says in all.
/// Spec: RS-EVENT-05, RS-EVENT-06, RS-EVENT-07.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSummary {
    /// Number of lines that are JSON objects.
    pub events: u64,
    /// The last few events of the run's own life (`subagent.…`), oldest first.
    pub last: Vec<Event>,
    /// The newest of the other events: children log by the hundred, and only their newest tells how
    /// far the work came.
    pub last_of_child: Option<Event>,
    /// `ts` of the newest event.
    pub newest_ms: Option<i64>,
    /// The pid and time of the first `subagent.run.started`.
    pub started: Option<(Option<i64>, Option<i64>)>,
    /// Completion events: state word, time.
    pub completed: Vec<(String, Option<i64>)>,
    /// Whether any step event, or a start event, is there: work has begun.
    pub begun: bool,
    /// Number of `…status_write_failed` events.
    pub status_write_failed: u64,
    /// Whether a repairer signed the log.
    pub repaired: bool,
    /// Whether a writer's budget cut the log (`subagent.events.truncated`).
    pub budget_cut: bool,
    /// Lines before the last that are not JSON objects: line number (0 when unknown).
    pub corrupt_lines: Vec<u64>,
    /// Whether the last line is cut.
    pub torn: bool,
    /// Whether only the tail of the log was read.
    pub tail_only: bool,
}

/// How many of the last events are kept for display.
const LAST_EVENTS: usize = 5;
/// How many corrupt lines are kept by number.
const MAX_CORRUPT: usize = 100;

/// Reads a log, or its tail. `from_start` says whether `bytes` begin at the start of the file.
/// Spec: RS-EVENT-01, RS-EVENT-02, RS-EVENT-03, RS-EVENT-04.
pub fn summarize(bytes: &[u8], from_start: bool) -> EventSummary {
    let mut summary = EventSummary { tail_only: !from_start, ..EventSummary::default() };
    let mut rest = bytes;
    if !from_start {
        // The first piece is the end of some line whose start was not read.
        rest = match rest.iter().position(|b| *b == b'\n') {
            Some(end) => &rest[end + 1..],
            None => &[],
        };
    }
    let mut line = 0_u64;
    while !rest.is_empty() {
        line += 1;
        let end = rest.iter().position(|b| *b == b'\n');
        let (text, next) =
            end.map_or((rest, &rest[rest.len()..]), |e| (&rest[..e], &rest[e + 1..]));
        rest = next;
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let number = from_start.then_some(line);
        match Document::from_bytes(text) {
            Ok(doc) => summary.take(&doc, number),
            // An unterminated, or a zero-filled, last line is what a crash leaves.
            Err(_) if end.is_none() || (rest.is_empty() && text.contains(&0)) => {
                summary.torn = true
            }
            Err(_) if summary.corrupt_lines.len() < MAX_CORRUPT => {
                summary.corrupt_lines.push(number.unwrap_or(0));
            }
            Err(_) => {}
        }
    }
    summary
}

fn read(doc: &Document<'_>, line: Option<u64>) -> Event {
    let text = |key: &str| member::loose_string(doc, key);
    Event {
        kind: text("type").unwrap_or_default(),
        at_ms: doc.get("ts").or_else(|| doc.get("observedAt")).and_then(Raw::instant_ms),
        detail: ["status", "message", "error", "agent"].into_iter().find_map(text),
        line,
    }
}

impl EventSummary {
    fn take(&mut self, doc: &Document<'_>, line: Option<u64>) {
        let event = read(doc, line);
        self.events += 1;
        self.newest_ms = self.newest_ms.max(event.at_ms);
        let kind = event.kind.as_str();
        match kind {
            "subagent.run.started" => {
                self.begun = true;
                let pid = doc.get("pid").and_then(Raw::integer);
                self.started.get_or_insert((pid, event.at_ms));
            }
            "subagent.run.completed" | "subagent.workflow.completed" => {
                let status = member::loose_string(doc, "status");
                self.completed.push((status.unwrap_or_default(), event.at_ms));
                self.begun = true;
            }
            "subagent.run.repaired_stale" => self.repaired = true,
            "subagent.events.truncated" => self.budget_cut = true,
            _ if kind.ends_with(".status_write_failed") => self.status_write_failed += 1,
            _ if kind.starts_with("subagent.step.") => self.begun = true,
            _ => {}
        }
        if !event.kind.starts_with("subagent.") {
            self.last_of_child = Some(event);
            return;
        }
        if self.last.len() == LAST_EVENTS {
            self.last.remove(0);
        }
        self.last.push(event);
    }

    /// The outcomes that completion events name, where the word is one of the protocol's.
    pub fn outcomes(&self) -> impl Iterator<Item = (RunState, Option<i64>)> + '_ {
        self.completed.iter().filter_map(|(word, at)| Some((RunState::from_word(word)?, *at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_tail_and_a_corrupt_middle_are_two_things() {
        let log = b"{\"type\":\"a\",\"ts\":1}\n{\"type\":\"b\"{\"type\":\"c\"}\n{\"type\":\"d\",\"ts\":3}\n{\"type\":\"\xc3";
        let s = summarize(log, true);
        assert_eq!((s.events, s.torn, &*s.corrupt_lines), (2, true, &[2][..]));
        assert_eq!(s.newest_ms, Some(3));
    }

    #[test]
    fn an_unterminated_but_whole_last_line_is_read() {
        let s = summarize(
            b"{\"type\":\"subagent.run.completed\",\"ts\":5,\"status\":\"complete\"}",
            true,
        );
        assert!(!s.torn);
        assert_eq!(s.outcomes().collect::<Vec<_>>(), [(RunState::Complete, Some(5))]);
    }

    #[test]
    fn the_cut_first_line_of_a_tail_is_not_corrupt() {
        let s = summarize(b"half\":1}\n{\"type\":\"x\"}\n", false);
        assert_eq!((s.events, s.corrupt_lines.len(), s.tail_only), (1, 0, true));
    }

    #[test]
    fn only_the_last_few_events_are_kept() {
        let log = "{\"type\":\"subagent.x\"}\n{\"type\":\"turn_end\"}\n".repeat(50);
        let s = summarize(log.as_bytes(), true);
        assert_eq!((s.events, s.last.len()), (100, LAST_EVENTS));
        assert_eq!(s.last_of_child.map(|e| e.kind).as_deref(), Some("turn_end"));
    }
}
