//! Lines appended to a log.

use runstore::protocol::event::summarize;
use runstore::store::journal::{append, rotated_name};
use testkit::fault::{Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged};

use crate::table;

const NAME: &str = "events.jsonl";
const LINE: &str = r#"{"type":"subagent.run.started","ts":5}"#;
const MAX: u64 = 1 << 20;

fn put(host: &FaultHost, text: &str) {
    host.put(&format!("/{NAME}"), text);
}

fn content(host: &FaultHost, name: &str) -> String {
    host.text(&format!("/{name}")).expect("there")
}

#[test]
fn a_torn_tail_is_not_glued_to_the_next_line() {
    let host = FaultHost::new();
    put(&host, "{\"type\":\"a\"}\n{\"type\":\"b");
    append(&host, &0, NAME, LINE, MAX).expect("appended");
    let text = content(&host, NAME);
    assert_eq!(text, format!("{{\"type\":\"a\"}}\n{{\"type\":\"b\n{LINE}\n"));
    let summary = summarize(text.as_bytes(), true);
    assert_eq!((summary.events, summary.corrupt_lines.len()), (2, 1), "only the torn line is lost");
}

#[test]
fn a_line_is_one_write() {
    let host = FaultHost::new();
    host.begin();
    append(&host, &0, NAME, LINE, MAX).expect("appended");
    append(&host, &0, NAME, LINE, MAX).expect("appended");
    let writes = host.effects().iter().filter(|e| format!("{e:?}").starts_with("Write")).count();
    assert_eq!(writes, 2, "one call for each line");
    assert_eq!(content(&host, NAME), format!("{LINE}\n{LINE}\n"));
}

#[test]
fn a_full_log_is_moved_aside_before_it_exceeds_its_bound() {
    let host = FaultHost::new();
    for _ in 0..10 {
        append(&host, &0, NAME, LINE, 100).expect("appended");
        assert!(content(&host, NAME).len() <= 100, "the log is never above its bound");
    }
    assert!(content(&host, &rotated_name(NAME)).starts_with(LINE), "the older part is kept");
}

// RS-EVENT-12.
#[test]
fn a_log_with_a_second_name_is_moved_aside() {
    let host = FaultHost::new();
    put(&host, "{\"type\":\"a\"}\n");
    host.link(0, NAME, 0, "elsewhere");
    append(&host, &0, NAME, LINE, MAX).expect("the line is not lost");
    append(&host, &0, NAME, LINE, MAX).expect("and the new log goes on");
    assert_eq!(content(&host, "elsewhere"), "{\"type\":\"a\"}\n", "not written to");
    assert_eq!(content(&host, &rotated_name(NAME)), "{\"type\":\"a\"}\n", "still to be found");
    assert_eq!(content(&host, NAME), format!("{LINE}\n{LINE}\n"));
}

#[test]
pub(crate) fn a_process_crash_loses_no_earlier_line() {
    let seen = explore(
        one_line,
        |host| append(host, &0, NAME, LINE, MAX).expect("appended"),
        |host, crash| {
            let text = content(host, NAME);
            let first = text.starts_with("{\"type\":\"a\"}\n");
            let readable = summarize(text.as_bytes(), true).corrupt_lines.is_empty();
            let there = crash.model == Model::Power || !crash.acknowledged || text.ends_with("\n");
            if first && readable && there { Ok(()) } else { Err(format!("the log is {text:?}")) }
        },
    );
    table::seen("journal::append", &seen);
}

fn one_line(host: &FaultHost) {
    put(host, "{\"type\":\"a\"}\n");
}

/// After the death of a process the older line is under one of the two names, and the new one follows
/// it in the log. A power cut may take both: events are advice.
fn no_line_is_lost(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let text = |name: &str| host.text(&format!("/{name}")).unwrap_or_default();
    let all = text(&rotated_name(NAME)) + &text(NAME);
    let kept = all.starts_with("{\"type\":\"a\"}\n");
    let told = !crash.acknowledged || all.ends_with(&format!("{LINE}\n"));
    let whole = crash.model == Model::Power || kept && told;
    if whole { Ok(()) } else { Err(format!("the logs hold {all:?}")) }
}

#[test]
pub(crate) fn a_log_that_is_moved_aside_loses_no_line_to_the_death_of_a_process() {
    let append = |host: &FaultHost| append(host, &0, NAME, LINE, 40).expect("appended");
    let seen = explore(one_line, append, no_line_is_lost);
    assert_eq!(seen.steps, 3, "rename, create, write");
    table::seen("journal::append, above the bound", &seen);
    for (mistake, sabotage) in [
        ("the new log is begun before the old one is moved", Sabotage::Swap(0)),
        ("the line is never written", Sabotage::Drop(2)),
    ] {
        let seen = explore_sabotaged(one_line, append, no_line_is_lost, sabotage);
        table::caught("journal::append, above the bound", mistake, &seen);
    }
}

#[test]
fn a_short_append_is_an_error_and_leaves_a_torn_line_only() {
    let host = FaultHost::new();
    put(&host, "{\"type\":\"a\"}\n");
    host.begin();
    host.fail_at(1, Injected::ShortWrite(4));
    append(&host, &0, NAME, LINE, MAX).expect_err("half a line is no line");
    let summary = summarize(content(&host, NAME).as_bytes(), true);
    assert_eq!((summary.events, summary.torn), (1, true));
}
