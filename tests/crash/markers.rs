//! The run indexes: a run is in one of them after every crash, and aliases lead to nothing wrong.

use std::path::Path;

use runstore::protocol::RunState;
use runstore::protocol::evidence::Times;
use runstore::protocol::ids::RunId;
use runstore::protocol::segment::SegmentInput;
use runstore::store::host::Host as _;
use runstore::store::markers::{Marker, Terminal, Updated, release, update, write_terminal};
use runstore::store::retry::RetryPolicy;
use runstore::store::{Opened, Store};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, at, every_call, recorded};
use crate::table;

const ROOT: &str = "/async-subagent-runs";
const ENDED: &str =
    r#"{"runId":"run-1","sessionId":"S","state":"complete","endedAt":1700000000000}"#;
const MARKER: &str = "async-subagent-runs/.active-runs/run-1";
const CALLS: &str = "async-subagent-runs/.active-runs/tool-calls/";
const TERMINAL: &str = "async-subagent-runs/.terminal-runs/S/0001700000000000-run-1.json";

fn run() -> RunId {
    RunId::parse("run-1").expect("an id")
}

fn runs(host: &FaultHost) -> usize {
    host.dir(ROOT)
}

fn with_status(host: &FaultHost, status: &str) {
    host.make_dir(ROOT);
    host.make_dir(&format!("{ROOT}/run-1"));
    host.put(&format!("{ROOT}/run-1/status.json"), status);
}

fn updated(host: &FaultHost, state: RunState, call: Option<&str>) -> Updated {
    let call = call.map(SegmentInput::from);
    update(host, &runs(host), &run(), state, call.as_ref(), &RetryPolicy::never())
        .expect("nothing fails here")
}

fn ended_with_marker_and_alias(host: &FaultHost) {
    with_status(host, ENDED);
    updated(host, RunState::Running, Some("call"));
    updated(host, RunState::Running, Some("other"));
}

fn enter(host: &FaultHost) {
    updated(host, RunState::Running, Some("call"));
}

fn end(host: &FaultHost) {
    updated(host, RunState::Complete, None);
}

// Invariants.

/// A run whose indexes were in step once is found through one of them, by the library's own reader.
fn a_listing_finds_the_run(host: &FaultHost) -> Result<(), String> {
    let now_ms = host.now_ms();
    let opened = Store::open(host, Path::new(ROOT), now_ms, Times::default());
    let Ok(Opened::Store(store)) = opened else { return Err("no store".to_owned()) };
    let root = store.runs_roots.first().ok_or("no runs root")?;
    let active = root.active_names(host).unwrap_or_default();
    let ended = root.ended_names(host, Some("S"), 10);
    if active.iter().chain(&ended).any(|name| name == "run-1") {
        Ok(())
    } else {
        Err("no index names the run".to_owned())
    }
}

/// A terminal marker is whole or absent.
fn no_marker_is_torn(host: &FaultHost) -> Result<(), String> {
    match host.tree().get(TERMINAL) {
        Some(Some(bytes)) if bytes.len() != 86 => Err(format!("{} bytes", bytes.len())),
        _ => Ok(()),
    }
}

/// An acknowledged active update leaves a marker; an acknowledged end a terminal one.
fn acknowledged_is_kept(host: &FaultHost, crash: &Crash, path: &str) -> Result<(), String> {
    if crash.acknowledged && !host.tree().contains_key(path) {
        return Err(format!("{path} is lost"));
    }
    Ok(())
}

/// After the process ended nothing of an ended run is left in the active index.
fn nothing_is_left_behind(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let tree = host.tree();
    let left: Vec<_> =
        tree.keys().filter(|path| *path == MARKER || path.starts_with(CALLS)).collect();
    if crash.acknowledged && crash.model == Model::Process && left != [CALLS] {
        return Err(format!("left: {left:?}"));
    }
    Ok(())
}

fn entering(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    acknowledged_is_kept(host, crash, MARKER)?;
    if crash.acknowledged { a_listing_finds_the_run(host) } else { Ok(()) }
}

fn ending(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    a_listing_finds_the_run(host)?;
    no_marker_is_torn(host)?;
    acknowledged_is_kept(host, crash, TERMINAL)?;
    nothing_is_left_behind(host, crash)?;
    // Whatever a crash left, the same call completes it.
    end(host);
    let (active, terminal) = (host.tree().contains_key(MARKER), host.tree().contains_key(TERMINAL));
    if active || !terminal { Err("a second call does not complete it".to_owned()) } else { Ok(()) }
}

fn leave(host: &FaultHost) {
    release(host, &runs(host), &run()).expect("nothing fails here");
}

fn leaving(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    nothing_is_left_behind(host, crash)?;
    leave(host);
    if host.tree().contains_key(MARKER) { Err("still there".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn a_marker_is_kept_after_every_crash() {
    let seen = explore(|host| with_status(host, "{}"), enter, entering);
    table::stepped("markers::update, a start", &seen, 7);
    assert!(seen.states >= 29, "{} states", seen.states);
}

#[test]
pub(crate) fn a_run_that_ends_is_in_an_index_after_every_crash() {
    let seen = explore(ended_with_marker_and_alias, end, ending);
    table::stepped("markers::update, an end", &seen, 14);
    assert!(seen.states >= 101, "{} states", seen.states);
}

#[test]
pub(crate) fn a_released_run_is_out_of_the_active_index_after_every_crash() {
    let seen = explore(ended_with_marker_and_alias, leave, leaving);
    table::stepped("markers::release", &seen, 5);
    assert!(seen.states >= 69, "{} states", seen.states);
}

#[test]
pub(crate) fn a_wrong_order_or_a_dropped_flush_of_the_indexes_is_caught() {
    let with_empty_status = |host: &FaultHost| with_status(host, "{}");
    // Making the marker: make the index, flush its parent, make the marker, flush the index.
    for (mistake, sabotage) in [
        ("the runs root is never flushed", Sabotage::Drop(1)),
        ("the marker's directory is never flushed", Sabotage::Drop(3)),
        ("the directory is flushed before the marker is made", Sabotage::Swap(2)),
    ] {
        let seen = explore_sabotaged(with_empty_status, enter, entering, sabotage);
        table::caught("markers::update, a start", mistake, &seen);
    }
    let effects = recorded(ended_with_marker_and_alias, end);
    let (removal, rename) =
        (at(&effects, |e| e.starts_with("Unlink")), at(&effects, |e| e.starts_with("Rename")));
    assert_eq!(removal, rename + 2, "rename, flush, then the removal");
    for (mistake, sabotage) in [
        ("the terminal index is never flushed", Sabotage::Drop(1)),
        ("the session's directory is never flushed", Sabotage::Drop(3)),
        ("the terminal marker is never flushed", Sabotage::Drop(rename - 1)),
        ("the terminal marker's name is never flushed", Sabotage::Drop(rename + 1)),
        ("the active marker goes before the terminal one is kept", Sabotage::Swap(rename + 1)),
    ] {
        let seen = explore_sabotaged(ended_with_marker_and_alias, end, ending, sabotage);
        table::caught("markers::update, an end", mistake, &seen);
    }
}

#[test]
pub(crate) fn a_removal_that_does_not_happen_is_caught() {
    for (mistake, dropped) in
        [("the marker stays", 0), ("an empty directory stays", 2), ("the last one stays", 4)]
    {
        let sabotage = Sabotage::Drop(dropped);
        let seen = explore_sabotaged(ended_with_marker_and_alias, leave, leaving, sabotage);
        table::caught("markers::release", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_start_or_a_release_is_completed_by_a_second_call() {
    let starting: fn(&FaultHost) = |host| with_status(host, "{}");
    for (setup, operation, is_active) in
        [(starting, enter as fn(&FaultHost), true), (ended_with_marker_and_alias, leave, false)]
    {
        let change = |host: &FaultHost| {
            let (runs, call) = (runs(host), SegmentInput::from("call"));
            if is_active {
                let never = RetryPolicy::never();
                update(host, &runs, &run(), RunState::Running, Some(&call), &never)
            } else {
                release(host, &runs, &run())
            }
        };
        let points = every_call(setup, change, |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            match done {
                Err(e) => assert!(e.name.contains(".active-runs"), "{at}"),
                Ok(done) => {
                    assert_eq!(host.tree().contains_key(MARKER), is_active, "{at}: acknowledged");
                    let failed = usize::from(!fault.is_made_good());
                    assert_eq!(done.problems.len(), failed, "{at}: what failed is told");
                }
            }
            operation(host);
            let tree = host.tree();
            assert_eq!(tree.contains_key(MARKER), is_active, "{at}");
            let alias = format!("{CALLS}call/run-1");
            assert_eq!(tree.contains_key(&alias), is_active, "{at}: the aliases as well");
        });
        assert!(points >= 40, "{points} points");
    }
}

#[test]
fn every_failing_effect_leaves_the_run_in_an_index() {
    let end_once = |host: &FaultHost| {
        let never = RetryPolicy::never();
        update(host, &runs(host), &run(), RunState::Complete, None, &never)
    };
    let points = every_call(ended_with_marker_and_alias, end_once, |host, result, fault| {
        let at = format!("{fault:?}: {result:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        if let Err(e) = result {
            let named = [".terminal-runs", ".active-runs"].iter().any(|n| e.name.contains(n));
            assert!(named, "{at}: the error names the file");
        }
        a_listing_finds_the_run(host).unwrap_or_else(|why| panic!("{at}: {why}"));
        end(host);
        assert!(host.tree().contains_key(TERMINAL), "{at}: a second call completes it");
        assert!(!host.tree().contains_key(MARKER), "{at}: a second call completes it");
    });
    assert!(points >= 80, "{points} points");
}

/// The terminal marker alone.
fn mark_ended(host: &FaultHost) {
    let done = write_terminal(host, &runs(host), &run(), RunState::Complete, &RetryPolicy::never());
    assert!(matches!(done, Ok(Terminal::Written(_))), "{done:?}");
}

fn marking(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    no_marker_is_torn(host)?;
    acknowledged_is_kept(host, crash, TERMINAL)?;
    mark_ended(host);
    if host.tree().contains_key(TERMINAL) { Ok(()) } else { Err("not made again".to_owned()) }
}

#[test]
pub(crate) fn a_terminal_marker_is_whole_and_kept_after_every_crash() {
    let setup = |host: &FaultHost| with_status(host, ENDED);
    let seen = explore(setup, mark_ended, marking);
    table::seen("markers::write_terminal", &seen);
    // Make and flush twice; create, write, flush, rename, flush.
    for (mistake, sabotage) in [
        ("the terminal index is never flushed", Sabotage::Drop(1)),
        ("the marker is never flushed", Sabotage::Drop(6)),
        ("the marker's name is never flushed", Sabotage::Drop(8)),
    ] {
        let seen = explore_sabotaged(setup, mark_ended, marking, sabotage);
        table::caught("markers::write_terminal", mistake, &seen);
    }
}

#[test]
fn an_alias_that_cannot_be_made_costs_only_itself() {
    let host = FaultHost::new();
    with_status(&host, "{}");
    // A file stands where the alias directories should be.
    updated(&host, RunState::Running, None);
    host.put("/async-subagent-runs/.active-runs/tool-calls", "");
    let done = updated(&host, RunState::Running, Some("call"));
    assert_eq!((done.marker, done.aliases), (Marker::Kept, 0));
    assert_eq!(done.problems.len(), 1, "{:?}", done.problems);
    assert!(done.problems[0].name.contains("tool-calls"), "{}", done.problems[0]);
}

#[test]
fn the_end_is_told_apart_from_what_the_status_says() {
    for (status, want) in [
        (r#"{"state":"running","sessionId":"S"}"#, "OtherState"),
        (r#"{"state":"complete"}"#, "NoSession"),
        (r#"{"state":"complete","sessionId":""}"#, "NoSession"),
        (r#"{"state":"complete","sessionId":"S","runId":"run-2"}"#, "OtherRun"),
        (r#"{"state":"comp"#, "NoStatus"),
        (r#"{"state":"complete","sessionId":"S","startedAt":7.9}"#, "Written"),
    ] {
        let host = FaultHost::new();
        with_status(&host, status);
        let done = updated(&host, RunState::Complete, None);
        let said = format!("{:?}", done.terminal);
        assert!(said.starts_with(want), "{status}: {said}");
    }
}

#[test]
fn a_terminal_marker_repeats_the_status_as_it_is_spelled() {
    let host = FaultHost::new();
    let status = r#"{"state":"paused","sessionId":"\u0053","endedAt":1e400,"lastUpdate":7.90}"#;
    with_status(&host, status);
    let done = updated(&host, RunState::Paused, None);
    assert_eq!(done.terminal, Terminal::Written("S/0000000000000007-run-1.json".to_owned()));
    let path = format!("{ROOT}/.terminal-runs/S/0000000000000007-run-1.json");
    let text = host.text(&path).expect("there");
    let want = "{\n  \"version\": 1,\n  \"runId\": \"run-1\",\n  \"sessionId\": \"\\u0053\",\n  \"endedAt\": 7.90\n}";
    assert_eq!(text, want);
}
