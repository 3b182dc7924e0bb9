//! Replacements that wait for room: newest payload, in order, bounded, told of, and insisted on.

use std::sync::Arc;

use runstore::protocol::{layout, limits};
use runstore::store::atomic::{Durability, Options, Step, Target};
use runstore::store::deferred::{Change, Deferred, Item, Submitted};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::reserve;
use testkit::fault::{Crash, FaultHost, Injected, NodeId, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, every_call};
use crate::table;

const OLD: &str = "{\"state\": \"running\"}";
const NEW: &str = "{\"state\": \"complete\"}";
const ENOSPC: i32 = 28;
const CAPACITY: [i32; 4] = [ENOSPC, 122, 24, 23];

fn item(name: &str, text: &str, terminal: bool) -> Item<NodeId> {
    Item {
        place: "run".to_owned(),
        dir: Arc::new(0),
        name: name.to_owned(),
        bytes: text.as_bytes().to_vec(),
        options: Options::new(Durability::Durable),
        terminal,
    }
}

fn content(host: &FaultHost, name: &str) -> Option<String> {
    host.text(&format!("/{name}"))
}

fn with_old(host: &FaultHost) {
    host.put("/status.json", OLD);
}

/// A host on which nothing can be written.
fn full() -> FaultHost {
    let host = FaultHost::new();
    with_old(&host);
    host.set_room_bytes(Some(0));
    host
}

fn defer(queue: &mut Deferred<FaultHost>, host: &FaultHost, item: Item<NodeId>) {
    let done = queue.write(host, item).expect("deferred");
    assert!(matches!(done, Submitted::Deferred(_)), "there is no room: {done:?}");
}

fn written_names(reports: &[runstore::store::deferred::Report]) -> Vec<&str> {
    let done = reports.iter().filter(|r| matches!(r.change, Change::Completed(_)));
    done.map(|report| report.path.as_str()).collect()
}

#[test]
fn every_error_that_passes_defers_and_every_other_is_given_back() {
    for errno in [28, 122, 24, 23, 5, 13, 1, 16] {
        for n in 0..5 {
            let host = FaultHost::new();
            with_old(&host);
            host.begin();
            host.fail_at(n, Injected::Errno(errno));
            let mut queue = Deferred::new();
            let done = queue.write(&host, item(layout::STATUS, NEW, false));
            let at = format!("effect {n}, errno {errno}");
            assert!(!host.tree().keys().any(|name| name.ends_with(".tmp")), "{at}: no litter");
            if CAPACITY.contains(&errno) {
                assert!(matches!(done, Ok(Submitted::Deferred(_))), "{at}: {done:?}");
                let drained = queue.drain(&host, host.now_ms() + 5_000);
                assert_eq!(written_names(&drained.reports), ["run/status.json"], "{at}");
                assert_eq!(content(&host, layout::STATUS).as_deref(), Some(NEW), "{at}");
            } else {
                let e = done.expect_err("given back");
                assert!(e.to_string().contains("run/status.json"), "{at}: it names the file: {e}");
                assert!(queue.is_empty(), "{at}: nothing waits");
            }
        }
    }
}

#[test]
fn the_error_of_a_full_disk_tells_its_free_space() {
    let host = full();
    let mut queue = Deferred::new().within(0, 0);
    let e = queue.write(&host, item(layout::STATUS, NEW, false)).expect_err("no place to wait");
    assert!(e.to_string().contains("0 bytes are free on its file system"), "{e}");
}

#[test]
fn the_newest_payload_of_a_path_is_written_in_the_order_in_which_paths_began_to_wait() {
    let host = full();
    let mut queue = Deferred::new();
    for (name, text) in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")] {
        defer(&mut queue, &host, item(name, text, false));
    }
    assert_eq!(queue.len(), 3, "one payload for each path");
    let now = host.now_ms();
    let news = queue.tick(&host, now + 1_000);
    assert!(matches!(news[..], [_]) && matches!(news[0].change, Change::Superseded), "{news:?}");
    host.set_room_bytes(None);
    assert!(queue.tick(&host, now + 1_999).is_empty(), "a second has not passed");
    let news = queue.tick(&host, now + 2_000);
    assert_eq!(written_names(&news), ["run/a", "run/b", "run/c"]);
    assert_eq!(content(&host, "a").as_deref(), Some("2"), "the newest");
    assert_eq!(news[0].deferred_ms, 2_000, "how long the path has waited");
    assert!(queue.is_empty());
}

#[test]
fn a_newer_payload_that_is_written_at_once_ends_the_wait_of_the_older() {
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item("a", "1", false));
    host.set_room_bytes(None);
    let done = queue.write(&host, item("a", "2", false)).expect("there is room");
    assert!(matches!(done, Submitted::Written(_)));
    let news = queue.tick(&host, host.now_ms() + 1_000);
    assert!(matches!(news[0].change, Change::Superseded), "{news:?}");
    assert_eq!(content(&host, "a").as_deref(), Some("2"), "the older never comes back");
}

#[test]
fn an_older_payload_never_comes_after_a_newer_one_that_is_in_place() {
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item("a", "1", false));
    host.set_room_bytes(None);
    host.begin();
    // The flush of the directory: the newer text is in place, and only its survival is in doubt.
    host.fail_at(4, Injected::Errno(5));
    let e = queue.write(&host, item("a", "2", false)).expect_err("the flush failed");
    assert_eq!(e.step, Step::FlushDirectory);
    queue.drain(&host, host.now_ms() + 2_000);
    assert_eq!(content(&host, "a").as_deref(), Some("2"));
    // Before the rename the older text is still the newest that can be had.
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item("a", "3", false));
    host.set_room_bytes(None);
    host.begin();
    host.fail_at(0, Injected::Errno(13));
    queue.write(&host, item("a", "4", false)).expect_err("refused");
    queue.drain(&host, host.now_ms() + 2_000);
    assert_eq!(content(&host, "a").as_deref(), Some("3"));
}

#[test]
fn a_terminal_payload_stays_terminal_and_durable_under_a_newer_one() {
    let host = full();
    let mut queue = Deferred::new().within(1, 1 << 20);
    defer(&mut queue, &host, item("a", "1", true));
    let newer = Item { options: Options::new(Durability::ProcessSafe), ..item("a", "2", false) };
    defer(&mut queue, &host, newer);
    let e = queue.write(&host, item("b", "1", true)).expect_err("only terminal ones wait");
    assert!(e.is_capacity());
    host.set_room_bytes(None);
    host.begin();
    queue.tick(&host, host.now_ms() + 1_000);
    assert!(host.effects().iter().any(|e| format!("{e:?}").starts_with("SyncDir")), "durable");
}

#[test]
fn a_terminal_write_makes_room_in_the_queue_and_others_do_not() {
    let host = full();
    let mut queue = Deferred::new().within(2, 10);
    defer(&mut queue, &host, item("a", "1", false));
    defer(&mut queue, &host, item("b", "1", false));
    queue.write(&host, item("c", "1", false)).expect_err("the queue is full");
    queue.write(&host, item("c", "01234567890", true)).expect_err("larger than the whole queue");
    assert_eq!(queue.len(), 2, "nothing was given up in vain");
    defer(&mut queue, &host, item("c", "1", true));
    let news = queue.tick(&host, host.now_ms() + 1_000);
    assert!(matches!(news[0].change, Change::GivenUp), "{news:?}");
    assert_eq!(news[0].path, "run/a", "the oldest");
    defer(&mut queue, &host, item("d", "123456789", true));
    assert_eq!(queue.len(), 2, "bounded in bytes as well");
}

#[test]
fn a_wait_is_told_in_the_log_and_its_end_too() {
    let host = FaultHost::new();
    host.begin();
    host.fail_at(0, Injected::Errno(24));
    let mut queue = Deferred::for_run(Arc::new(0), "run-1");
    defer(&mut queue, &host, item(layout::STATUS, NEW, false));
    queue.tick(&host, host.now_ms() + 1_000);
    let log = content(&host, layout::EVENTS).expect("there is a log");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(lines[0]["type"], "runstore.write.deferred");
    assert_eq!(lines[0]["file"], layout::STATUS);
    assert_eq!(lines[0]["runId"], "run-1");
    assert!(lines[0]["cause"].as_str().is_some_and(|cause| cause.contains("run/status.json")));
    assert_eq!(lines[1]["type"], "runstore.write.completed");
    assert_eq!(lines[1]["attempts"], 2);
    assert_eq!(lines[1]["deferredMs"], 1_000);
}

#[test]
fn a_path_that_waits_for_a_minute_is_told_of_once() {
    let host = full();
    let mut queue = Deferred::new();
    let mut overdue = 0;
    for second in 0..200 {
        // As a status that changes each second.
        defer(&mut queue, &host, item("a", &second.to_string(), false));
        let news = queue.tick(&host, host.now_ms());
        overdue += news.iter().filter(|r| matches!(r.change, Change::Overdue(_))).count();
        host.wait_ms(1_000);
    }
    assert_eq!(overdue, 1, "a leak of handles never heals by itself");
}

#[test]
fn a_retry_that_fails_for_another_reason_is_told_of_and_given_up() {
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item("a", "1", true));
    host.set_room_bytes(None);
    host.begin();
    host.fail_at(0, Injected::Errno(13));
    let news = queue.tick(&host, host.now_ms() + 1_000);
    assert!(matches!(&news[0].change, Change::Failed(e) if e.step == Step::Create), "{news:?}");
    assert!(queue.is_empty());
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_the_retries() {
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item("a", "1", false));
    host.set_room_bytes(None);
    assert_eq!(written_names(&queue.tick(&host, 5)), ["run/a"]);
}

#[test]
fn what_must_be_new_is_completed_after_only_the_flush_of_its_directory_failed() {
    let host = FaultHost::new();
    let new = || Item {
        options: Options::new(Durability::Durable).target(Target::New),
        ..item("a", "1", true)
    };
    host.begin();
    // Create, write, flush, rename, flush the directory.
    host.fail_at(4, Injected::Errno(ENOSPC));
    let mut queue = Deferred::new();
    defer(&mut queue, &host, new());
    let drained = queue.drain(&host, host.now_ms() + 2_000);
    assert_eq!(written_names(&drained.reports), ["run/a"], "it is ours: {drained:?}");

    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, new());
    host.set_room_bytes(None);
    host.create(&0, "a".as_ref(), 0o600).expect("somebody else's");
    let news = queue.tick(&host, host.now_ms() + 1_000);
    assert!(matches!(news[0].change, Change::Failed(_)), "another's file is kept: {news:?}");
}

#[test]
fn a_drain_waits_for_room_until_its_deadline() {
    let host = full();
    let mut queue = Deferred::new();
    defer(&mut queue, &host, item(layout::STATUS, NEW, true));
    let start = host.now_ms();
    let drained = queue.drain(&host, start + 2_500);
    assert_eq!(host.now_ms(), start + 2_500, "it waits to the end and no longer");
    assert_eq!(drained.left.len(), 1);
    assert_eq!(drained.left[0].0, "run/status.json");
    assert!(drained.left[0].1.contains("0 bytes are free"), "{drained:?}");
    host.set_room_bytes(None);
    let drained = queue.drain(&host, start + 60_000);
    assert!(drained.left.is_empty() && host.now_ms() < start + 60_000, "it ends with the work");
    assert_eq!(content(&host, layout::STATUS).as_deref(), Some(NEW));
}

/// A run with a reserve, on a disk that has no byte more.
fn full_with_reserve(host: &FaultHost) {
    with_old(host);
    reserve::create(host, &0).expect("room");
    host.set_room_bytes(Some((OLD.len() + limits::RESERVE_BYTES) as u64));
}

#[test]
fn a_terminal_record_is_written_at_once_out_of_the_reserve() {
    let host = FaultHost::new();
    full_with_reserve(&host);
    let mut queue = Deferred::for_run(Arc::new(0), "run-1");
    defer(&mut queue, &host, item("a", NEW, false));
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_ok(), "not for what can wait");
    let done = queue.write(&host, item(layout::STATUS, NEW, true)).expect("out of the reserve");
    assert!(matches!(done, Submitted::Written(_)), "{done:?}");
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_err(), "it was released");
    assert_eq!(content(&host, layout::STATUS).as_deref(), Some(NEW));
    queue.tick(&host, host.now_ms() + 1_000);
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_err(), "there is no room for another");
    host.set_room_bytes(Some(8 << 20));
    queue.tick(&host, host.now_ms() + 5_000);
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_ok(), "made again when there is room");
    let drained = queue.finish(&host, host.now_ms());
    assert!(drained.left.is_empty());
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_err(), "an ended run needs none");
}

#[test]
fn a_lack_of_handles_releases_no_reserve() {
    let host = FaultHost::new();
    with_old(&host);
    reserve::create(&host, &0).expect("room");
    host.begin();
    host.fail_at(0, Injected::Errno(24));
    let mut queue = Deferred::for_run(Arc::new(0), "run-1");
    defer(&mut queue, &host, item(layout::STATUS, NEW, true));
    assert!(host.stat_at(&0, layout::RESERVE.as_ref()).is_ok(), "it would not help");
}

fn terminal_out_of_the_reserve(host: &FaultHost) {
    let mut queue = Deferred::for_run(Arc::new(0), "run-1");
    let done = queue.write(host, item(layout::STATUS, NEW, true)).expect("out of the reserve");
    assert!(matches!(done, Submitted::Written(_)));
}

/// The status is the old text or the new one, and the new one once acknowledged.
fn status_is_whole_and_kept(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let now = content(host, layout::STATUS).unwrap_or_default();
    let kept = !crash.acknowledged || now == NEW;
    let whole = now == OLD || now == NEW;
    if whole && kept { Ok(()) } else { Err(format!("the status is {now:?}")) }
}

#[test]
pub(crate) fn a_terminal_record_out_of_the_reserve_is_whole_after_every_crash() {
    let seen = explore(full_with_reserve, terminal_out_of_the_reserve, status_is_whole_and_kept);
    table::seen("deferred::Deferred::write, out of the reserve", &seen);
    // Create, remove the temp file; remove the reserve, flush; create, write, flush, rename, flush.
    assert_eq!(seen.steps, 9);
    for (mistake, sabotage) in [
        ("the new file is never flushed", Sabotage::Drop(6)),
        ("the directory is never flushed after the rename", Sabotage::Drop(8)),
        ("renamed before it is flushed", Sabotage::Swap(6)),
        ("the directory is flushed before the rename", Sabotage::Swap(7)),
    ] {
        let seen = explore_sabotaged(
            full_with_reserve,
            terminal_out_of_the_reserve,
            status_is_whole_and_kept,
            sabotage,
        );
        table::caught("deferred::Deferred::write, out of the reserve", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_terminal_record_on_a_full_disk_is_an_error_or_made_good() {
    let host = FaultHost::new();
    full_with_reserve(&host);
    host.begin();
    terminal_out_of_the_reserve(&host);
    let calls = host.calls();
    let mut points = 0;
    for n in 0..calls {
        for errno in [28, 122, 24, 23, 5, 13, 1, 16, 4] {
            let host = FaultHost::new();
            full_with_reserve(&host);
            host.begin();
            host.fail_at(n, Injected::Errno(errno));
            let mut queue = Deferred::for_run(Arc::new(0), "run-1");
            let done = queue.write(&host, item(layout::STATUS, NEW, true));
            let at = format!("call {n}, errno {errno}");
            points += 1;
            if matches!(done, Ok(Submitted::Deferred(_))) {
                let drained = queue.drain(&host, host.now_ms() + 3_000);
                assert!(drained.left.is_empty(), "{at}: the reserve makes room: {drained:?}");
            }
            let now = content(&host, layout::STATUS).unwrap_or_default();
            match done {
                Ok(_) => assert_eq!(now, NEW, "{at}: what was accepted is written"),
                Err(e) => {
                    assert!(now == OLD || e.step == Step::FlushDirectory, "{at}: {now}");
                    assert!(e.to_string().contains(layout::STATUS), "{at}: {e}");
                }
            }
        }
    }
    assert!(points >= 90, "{points} points");
}

#[test]
pub(crate) fn what_waits_is_lost_in_a_crash_and_nothing_else() {
    let seen = explore(
        |host| {
            with_old(host);
            host.set_room_bytes(Some(OLD.len() as u64 + 4));
        },
        |host| {
            let mut queue = Deferred::new();
            defer(&mut queue, host, item(layout::STATUS, NEW, false));
            queue.tick(host, host.now_ms() + 1_000);
            host.set_room_bytes(None);
            queue.tick(host, host.now_ms() + 2_000)
        },
        status_is_whole_and_kept,
    );
    table::seen("deferred::Deferred::write and tick", &seen);
    // The end of a run that had to wait: written, and then the reserve goes.
    let seen = explore(
        full_with_reserve,
        |host| {
            let mut queue = Deferred::for_run(Arc::new(0), "run-1");
            defer(&mut queue, host, item(layout::STATUS, NEW, false));
            host.set_room_bytes(None);
            let drained = queue.finish(host, host.now_ms() + 5_000);
            assert!(drained.left.is_empty(), "there is room");
        },
        |host, crash| {
            status_is_whole_and_kept(host, crash)?;
            let reserve = host.stat_at(&0, layout::RESERVE.as_ref()).is_ok();
            let told = content(host, layout::STATUS).as_deref() == Some(NEW);
            let held = reserve || told;
            if held { Ok(()) } else { Err("the room went before the end was told".to_owned()) }
        },
    );
    table::seen("deferred::Deferred::write, drain and finish", &seen);
}

#[test]
fn every_failing_effect_of_a_wait_and_its_end_leaves_the_old_record_or_the_new_one() {
    let setup = |host: &FaultHost| {
        full_with_reserve(host);
        host.set_room_bytes(None);
    };
    let operation = |host: &FaultHost| {
        let mut queue = Deferred::for_run(Arc::new(0), "run-1");
        let done = queue.write(host, item(layout::STATUS, NEW, true));
        (done.map(drop).map_err(|e| e.to_string()), queue.finish(host, host.now_ms() + 5_000))
    };
    let points = every_call(setup, operation, |host, (done, drained), fault| {
        let at = format!("{fault:?}: {done:?}, {drained:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        assert!(drained.left.is_empty(), "{at}: nothing waits any more");
        let now = content(host, layout::STATUS).expect("never without a record");
        // What passes is made good by the queue; everything else is told. The reserve is its own matter.
        if done.is_ok() {
            assert_eq!(now, NEW, "{at}");
        } else {
            assert!(!fault.is_made_good() && fault.call < 6, "{at}");
            let in_doubt = fault.is_of_a_directory_flush();
            assert_eq!(now == NEW, in_doubt, "{at}: only its survival may be in doubt");
        }
    });
    assert!(points >= 56, "{points} points");
}
