//! A result on its way to its session: found after every crash, never torn, never lost to an older one.

use std::ops::ControlFlow;
use std::path::Path;

use runstore::protocol::Document;
use runstore::protocol::error::with_causes;
use runstore::protocol::evidence::Times;
use runstore::protocol::result::ResultPlace;
use runstore::store::atomic::{Durability, Options, replace};
use runstore::store::delivery::{Delivered, mark_delivered};
use runstore::store::directory::create_path;
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::publish::{
    Place, PublishError, Published, ResultNames, Snapshotted, promote, publish, snapshot,
};
use runstore::store::retry::RetryPolicy;
use runstore::store::{Opened, Store};
use testkit::fault::{
    Crash, Effect, Exploration, FaultHost, Injected, Sabotage, explore, explore_sabotaged,
};

use crate::sweep::{self, every_call, recorded};
use crate::table;

const FILE: &str = "run-1.json";
const OLD: &str =
    r#"{"id":"run-1","sessionId":"S","toolCallId":"t","state":"paused","timestamp":1}"#;
const NEW: &str = r#"{"id":"run-1","sessionId":"S","toolCallId":"t","state":"complete","success":true,"timestamp":2}"#;
const ROOT: &str = "/async-subagent-results";
const RUN: &str = "/async-subagent-runs/run-1";
const PENDING: &str = "async-subagent-results/result-pending/S/run-1.json";
const PUBLIC: &str = "async-subagent-results/run-1.json";
const BY_SESSION: &str = "async-subagent-results/result-index/sessions/S/run-1.json";
const SHORT_CUTS: [&str; 3] = [
    "async-subagent-results/result-index/runs/run-1.json",
    "async-subagent-results/result-index/tool-calls/t/run-1.json",
    "async-subagent-results/result-index/observers/mission/run-1.json",
];

fn never() -> RetryPolicy {
    RetryPolicy::never()
}

fn results(host: &FaultHost) -> usize {
    host.dir(ROOT)
}

fn names() -> ResultNames {
    ResultNames::new(FILE, &"S".into(), &"run-1".into()).expect("a base name")
}

/// An empty results root, and a run directory with a mission.
fn empty(host: &FaultHost) {
    host.make_dir(ROOT);
    host.make_dir("/async-subagent-runs");
    host.make_dir(RUN);
    host.put(&format!("{RUN}/mission.json"), "{}");
}

fn run_dir(host: &FaultHost) -> usize {
    host.dir(RUN)
}

fn published(host: &FaultHost, text: &str) -> Published {
    let dir = run_dir(host);
    publish(host, &results(host), FILE, text, Some(&dir), &never()).expect("nothing fails here")
}

/// A snapshot is pending, and an older public result lies beside it.
fn with_old(host: &FaultHost) {
    empty(host);
    published(host, OLD);
}

/// The writer died before the promotion.
fn with_pending(host: &FaultHost) {
    empty(host);
    snapshot_old(host);
}

/// Everything of a publication's directories is there but the pending area and the session index.
fn with_short_cuts(host: &FaultHost) {
    empty(host);
    let paths: [&[&str]; 3] = [
        &["result-index", "runs"],
        &["result-index", "tool-calls", "t"],
        &["result-index", "observers", "mission"],
    ];
    for path in paths {
        create_path(host, &results(host), path, &never()).expect("room");
    }
}

fn publish_new(host: &FaultHost) {
    published(host, NEW);
}

fn promote_old(host: &FaultHost) {
    promote(host, &results(host), &names(), &never()).expect("nothing fails here");
}

// What is on the disk.

fn text(host: &FaultHost, path: &str) -> Option<String> {
    host.text(&format!("/{path}"))
}

/// What the session takes: pending before public.
fn taken(host: &FaultHost) -> Option<String> {
    text(host, PENDING).or_else(|| text(host, PUBLIC))
}

// Invariants.

/// No payload and no entry is torn, empty or zero-filled.
fn nothing_is_torn(host: &FaultHost) -> Result<(), String> {
    for (path, content) in host.tree() {
        let Some(content) = content.filter(|_| path.ends_with(".json")) else { continue };
        Document::from_bytes(&content).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}

/// Every index that is there leads to a payload that is there.
fn no_index_leads_to_nothing(host: &FaultHost) -> Result<(), String> {
    let tree = host.tree();
    let payload = tree.contains_key(PENDING) || tree.contains_key(PUBLIC);
    match [BY_SESSION].iter().chain(&SHORT_CUTS).find(|path| tree.contains_key(**path)) {
        Some(path) if !payload => Err(format!("{path} leads to nothing")),
        _ => Ok(()),
    }
}

/// An acknowledged result is found by name: the index is there and leads to it.
fn acknowledged_is_found_by_name(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    if !crash.acknowledged {
        return Ok(());
    }
    let entry = text(host, BY_SESSION).ok_or("the session index is lost")?;
    if !entry.contains("\"file\": \"run-1.json\"") {
        return Err(format!("the session index says {entry}"));
    }
    match taken(host) {
        Some(text) if text == NEW => Ok(()),
        other => Err(format!("the session takes {other:?}")),
    }
}

/// The library's own reader lists the acknowledged result, pending or public.
fn acknowledged_is_listed(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let opened = Store::open(host, Path::new("/"), host.now_ms(), Times::default());
    let Ok(Opened::Store(store)) = opened else { return Err("no store".to_owned()) };
    let mut places: Vec<ResultPlace> = Vec::new();
    store.each_result(&mut |listed| {
        let view = listed.result.fact.value();
        if listed.run_id == "run-1" && view.is_some_and(|v| v.at_ms == Some(2)) {
            places.push(listed.result.place);
        }
        ControlFlow::Continue(())
    });
    if places.is_empty() && crash.acknowledged {
        return Err("the reader does not list it".to_owned());
    }
    Ok(())
}

/// A session that could take a result before can take it or a newer one at any moment.
fn an_older_result_is_not_lost(host: &FaultHost) -> Result<(), String> {
    match taken(host) {
        Some(text) if text == OLD || text == NEW => Ok(()),
        other => Err(format!("the session takes {other:?}")),
    }
}

fn first_publication(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    nothing_is_torn(host)?;
    no_index_leads_to_nothing(host)?;
    acknowledged_is_found_by_name(host, crash)?;
    acknowledged_is_listed(host, crash)?;
    // Whatever a crash left, publishing again completes it.
    let done = published(host, NEW);
    if done.place != Place::Public || !done.problems.is_empty() {
        return Err(format!("publishing again: {done:?}"));
    }
    Ok(())
}

fn second_publication(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    an_older_result_is_not_lost(host)?;
    first_publication(host, crash)
}

fn promotion(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    nothing_is_torn(host)?;
    no_index_leads_to_nothing(host)?;
    let (pending, public) = (text(host, PENDING).is_some(), text(host, PUBLIC).is_some());
    let done = public && !pending;
    if !done && (crash.acknowledged || !pending) {
        return Err(format!("pending: {pending}, public: {public}"));
    }
    let place = promote(host, &results(host), &names(), &never());
    match place {
        Ok(Place::Public) => Ok(()),
        other => Err(format!("a second promotion: {other:?}")),
    }
}

fn counted(what: &str, seen: &Exploration, steps: usize, states: usize) {
    table::stepped(what, seen, steps);
    assert!(seen.states >= states, "{} states", seen.states);
}

#[test]
pub(crate) fn a_first_result_is_found_after_every_crash() {
    counted(
        "publish::publish, a first result",
        &explore(empty, publish_new, first_publication),
        48,
        170,
    );
}

#[test]
pub(crate) fn a_second_result_takes_the_place_of_the_first_after_every_crash() {
    counted(
        "publish::publish, over an older one",
        &explore(with_old, publish_new, second_publication),
        28,
        120,
    );
}

#[test]
pub(crate) fn a_promotion_is_complete_or_still_to_do_after_every_crash() {
    counted("publish::promote", &explore(with_pending, promote_old, promotion), 3, 10);
}

fn mark_old(host: &FaultHost) {
    let done = mark_delivered(host, &results(host), &names(), 9, |_| true, &never());
    assert!(matches!(done, Ok(Delivered::Marked(_))), "{done:?}");
}

fn marking(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    nothing_is_torn(host)?;
    let text = taken(host).ok_or("the result is lost")?;
    let marked = text.contains("\"notificationDeliveredAt\": 9");
    if text == OLD && !crash.acknowledged || marked { Ok(()) } else { Err(text) }
}

#[test]
pub(crate) fn a_delivery_mark_is_whole_after_every_crash() {
    counted("delivery::mark_delivered", &explore(with_old, mark_old, marking), 23, 98);
}

/// A payload of the form of a snapshot: it has a `runId`.
fn snapshot_text() -> String {
    OLD.replace("\"id\"", "\"runId\"")
}

fn snapshot_old(host: &FaultHost) {
    let done = snapshot(host, &results(host), FILE, &snapshot_text(), None, &never());
    assert!(matches!(done, Ok(Snapshotted::Pending(_))), "{done:?}");
}

fn snapshotting(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    nothing_is_torn(host)?;
    no_index_leads_to_nothing(host)?;
    if text(host, PUBLIC).is_some() {
        return Err("a snapshot is public".to_owned());
    }
    let found = text(host, BY_SESSION).is_some() && text(host, PENDING) == Some(snapshot_text());
    if found || !crash.acknowledged { Ok(()) } else { Err("the snapshot is lost".to_owned()) }
}

#[test]
pub(crate) fn a_snapshot_is_found_after_every_crash() {
    counted("publish::snapshot", &explore(empty, snapshot_old, snapshotting), 36, 130);
}

#[test]
pub(crate) fn a_wrong_order_or_a_dropped_flush_of_the_smaller_operations_is_caught() {
    let names = positions(with_pending, promote_old, |e| matches!(e, Effect::SyncDir { .. }));
    for flush in names {
        let dropped = Sabotage::Drop(flush);
        let seen = explore_sabotaged(with_pending, promote_old, promotion, dropped);
        table::caught("publish::promote", &format!("effect {flush} is never flushed"), &seen);
    }
    let flushed = |e: &Effect| matches!(e, Effect::Sync { .. });
    let delivering = "delivery::mark_delivered";
    for (what, setup, operation, check) in [
        (delivering, with_old as fn(&FaultHost), mark_old as fn(&FaultHost), marking as Check),
        ("publish::snapshot", empty, snapshot_old, snapshotting),
    ] {
        let file = positions(setup, operation, flushed)[0];
        for (mistake, sabotage) in [
            ("the pending payload is never flushed", Sabotage::Drop(file)),
            ("it is renamed before it is flushed", Sabotage::Swap(file)),
        ] {
            let seen = explore_sabotaged(setup, operation, check, sabotage);
            table::caught(what, mistake, &seen);
        }
    }
}

type Check = fn(&FaultHost, &Crash) -> Result<(), String>;

#[test]
fn every_failing_effect_of_the_smaller_operations_is_completed_by_a_second_call() {
    let promoting = |host: &FaultHost| {
        promote(host, &results(host), &names(), &never()).map(|_| ()).map_err(|e| with_causes(&e))
    };
    let marking = |host: &FaultHost| {
        mark_delivered(host, &results(host), &names(), 9, |_| true, &never())
            .map(|_| ())
            .map_err(|e| with_causes(&e))
    };
    let snapshotting = |host: &FaultHost| {
        snapshot(host, &results(host), FILE, &snapshot_text(), None, &never())
            .map(|_| ())
            .map_err(|e| with_causes(&e))
    };
    let public = |host: &FaultHost| text(host, PUBLIC).is_some() && text(host, PENDING).is_none();
    let marked = |host: &FaultHost| taken(host).is_some_and(|t| t.contains("DeliveredAt"));
    let pending = |host: &FaultHost| text(host, PENDING) == Some(snapshot_text());
    let points = each_failure(with_pending, &promoting, &public)
        + each_failure(with_old, &marking, &marked)
        + each_failure(empty, &snapshotting, &pending);
    assert!(points >= 200, "{points} points");
}

/// Makes each effect fail in every way, and says how many points that were.
fn each_failure(
    setup: fn(&FaultHost),
    operation: &dyn Fn(&FaultHost) -> Result<(), String>,
    done: &dyn Fn(&FaultHost) -> bool,
) -> usize {
    let before = host_after(setup);
    every_call(setup, operation, |host, result, fault| {
        let at = format!("{fault:?}: {result:?}");
        nothing_is_left_or_torn(host, &at);
        assert!(taken(&before).is_none() || taken(host).is_some(), "{at}: a result is lost");
        if let Err(e) = result {
            assert!(e.contains("run-1.json") || e.contains("result-"), "{at}: it names the file");
        }
        operation(host).unwrap_or_else(|e| panic!("{at}: a second call: {e}"));
        assert!(done(host), "{at}: a second call completes it");
    })
}

fn host_after(setup: fn(&FaultHost)) -> FaultHost {
    let host = FaultHost::new();
    setup(&host);
    host
}

fn nothing_is_left_or_torn(host: &FaultHost, at: &str) {
    assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
    nothing_is_torn(host).unwrap_or_else(|why| panic!("{at}: {why}"));
    no_index_leads_to_nothing(host).unwrap_or_else(|why| panic!("{at}: {why}"));
}

/// Positions of the effects that fit.
fn positions(
    setup: fn(&FaultHost),
    operation: fn(&FaultHost),
    fits: impl Fn(&Effect) -> bool,
) -> Vec<usize> {
    let effects = recorded(setup, operation);
    effects.iter().enumerate().filter(|(_, e)| fits(e)).map(|(i, _)| i).collect()
}

#[test]
pub(crate) fn a_wrong_order_or_a_dropped_flush_of_a_publication_is_caught() {
    let flushed = positions(empty, publish_new, |e| matches!(e, Effect::SyncDir { .. }));
    let files = positions(empty, publish_new, |e| matches!(e, Effect::Sync { .. }));
    let renames = positions(empty, publish_new, |e| matches!(e, Effect::Rename { .. }));
    // Flushes of directories: two for the pending path, then the pending file; three for the path of
    // the session index, then the index; the short cuts; the public name; the pending area.
    for (mistake, sabotage) in [
        ("the pending payload is never flushed", Sabotage::Drop(files[0])),
        ("the session's pending directory is never flushed", Sabotage::Drop(flushed[1])),
        ("the pending name is never flushed", Sabotage::Drop(flushed[2])),
        ("the pending file is renamed before it is flushed", Sabotage::Swap(renames[0] - 1)),
        ("the session's index is never flushed", Sabotage::Drop(flushed[5])),
        ("the index entry is never flushed", Sabotage::Drop(files[1])),
        ("the entry's name is never flushed", Sabotage::Drop(flushed[6])),
    ] {
        let seen = explore_sabotaged(empty, publish_new, first_publication, sabotage);
        table::caught("publish::publish", mistake, &seen);
    }
    // In an empty store a later flush of the same directory stands in for these two.
    let flushed = positions(with_short_cuts, publish_new, |e| matches!(e, Effect::SyncDir { .. }));
    for (mistake, flush) in [
        ("the pending area is never flushed into the root", flushed[0]),
        ("the index by session is never flushed", flushed[3]),
    ] {
        let sabotage = Sabotage::Drop(flush);
        let seen = explore_sabotaged(with_short_cuts, publish_new, first_publication, sabotage);
        table::caught("publish::publish", mistake, &seen);
    }
}

#[test]
fn a_promotion_that_is_not_kept_leaves_the_result_pending() {
    // So the two flushes after the last rename are worth an error of their own, not a loss.
    let flushed = positions(empty, publish_new, |e| matches!(e, Effect::SyncDir { .. }));
    for after in &flushed[flushed.len() - 2..] {
        let seen = explore_sabotaged(empty, publish_new, first_publication, Sabotage::Drop(*after));
        assert!(seen.violations.is_empty(), "{:#?}", seen.violations);
    }
}

#[test]
pub(crate) fn an_index_before_its_payload_is_caught() {
    // The wrong order as an operation: index first.
    let wrong = |host: &FaultHost| {
        let other = FaultHost::new();
        empty(&other);
        publish_new(&other);
        let entry = text(&other, BY_SESSION).expect("published");
        let path = ["result-index", "sessions", "S"];
        let dir = create_path(host, &results(host), &path, &never());
        let options = Options::new(Durability::Durable);
        let dir = dir.expect("room");
        replace(host, &dir, FILE, entry.as_bytes(), &options).expect("room");
        publish_new(host);
    };
    let seen = explore(empty, wrong, first_publication);
    assert!(seen.violations.iter().any(|v| v.contains("leads to nothing")), "by its invariant");
    table::caught("publish::publish", "an index before its payload", &seen);
}

#[test]
fn every_failing_effect_leaves_a_result_that_can_be_taken_or_an_error() {
    let mut points = 0;
    for setup in [empty, with_old] {
        let before = taken(&host_after(setup));
        let put = |host: &FaultHost| {
            publish(host, &results(host), FILE, NEW, Some(&run_dir(host)), &never())
        };
        points += every_call(setup, put, |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            nothing_is_left_or_torn(host, &at);
            let now = taken(host);
            match done {
                Ok(_) => assert_eq!(now.as_deref(), Some(NEW), "{at}: acknowledged"),
                Err(PublishError::Write(e)) => {
                    let named = e.name.contains("result-") || e.name.contains(FILE);
                    assert!(named, "{at}: the error names the file");
                    assert!(now == before || now.as_deref() == Some(NEW), "{at}: {now:?}");
                }
                Err(e) => panic!("{at}: {e}"),
            }
            let again = published(host, NEW);
            assert_eq!(again.place, Place::Public, "{at}: publishing again completes it");
        });
    }
    assert!(points >= 300, "{points} points");
}

#[test]
fn a_result_without_a_session_is_an_error_and_writes_nothing() {
    for payload in [r#"{"id":"run-1"}"#, r#"{"id":"run-1","sessionId":""}"#, r#"{"sessionId":7}"#] {
        let host = FaultHost::new();
        empty(&host);
        host.begin();
        let done = publish(&host, &results(&host), FILE, payload, None, &never());
        assert!(matches!(done, Err(PublishError::NoSession(_))), "{payload}: {done:?}");
        assert_eq!(host.calls(), 0, "{payload}: nothing is written");
        let done = snapshot(&host, &results(&host), FILE, payload, None, &never());
        assert!(matches!(done, Ok(Snapshotted::NoSession)), "{payload}: {done:?}");
    }
    for file in ["", ".json", "../x.json", "a/b.json", "a\\b.json", ".hidden.json", "x.txt"] {
        let host = FaultHost::new();
        empty(&host);
        let done = publish(&host, &results(&host), file, NEW, None, &never());
        assert!(matches!(done, Err(PublishError::BadName(_))), "{file}: {done:?}");
    }
}

#[test]
fn a_promotion_says_where_the_result_is() {
    let place = |host: &FaultHost| promote(host, &results(host), &names(), &never());
    let host = FaultHost::new();
    empty(&host);
    assert_eq!(place(&host).expect("looked"), Place::Nowhere, "there never was one");
    publish_new(&host);
    assert_eq!(place(&host).expect("looked"), Place::Public, "somebody else promoted it");

    let host = FaultHost::new();
    with_pending(&host);
    for errno in [13, 1, 36, 17] {
        host.begin();
        host.fail_at(0, Injected::Errno(errno));
        let stays = place(&host).expect("it stays pending");
        assert!(matches!(stays, Place::Pending(_)), "errno {errno}: {stays:?}");
        host.begin();
    }
    host.fail_at(0, Injected::Errno(5));
    place(&host).expect_err("a broken disk is an error");
    assert!(text(&host, PENDING).is_some(), "it stays pending");
}

#[test]
fn a_pending_file_of_another_run_or_without_content_hides_no_public_result() {
    for foreign in
        ["", "{\"id\":\"run-2\",\"sessionId\":\"S\"}", "{\"id\":\"run-1\",\"sessionId\":\"T\"}"]
    {
        let host = FaultHost::new();
        with_old(&host);
        host.put(&format!("/{PENDING}"), foreign);
        let place = promote(&host, &results(&host), &names(), &never()).expect("looked");
        assert!(matches!(place, Place::Pending(_)), "{foreign:?}: {place:?}");
        assert_eq!(text(&host, PUBLIC).as_deref(), Some(OLD), "{foreign:?}");
    }
}

#[test]
fn a_snapshot_never_hides_a_final_result() {
    let host = FaultHost::new();
    with_pending(&host);
    let newer = NEW.replace("\"id\"", "\"runId\"");
    let again = |host: &FaultHost| snapshot(host, &results(host), FILE, &newer, None, &never());
    assert!(matches!(again(&host), Ok(Snapshotted::Pending(_))), "a snapshot replaces a snapshot");
    assert_eq!(text(&host, PUBLIC), None, "a snapshot is not promoted");
    publish_new(&host);
    assert!(matches!(again(&host), Ok(Snapshotted::Committed)), "the final result is public");

    // A final result whose promotion was refused: by the last effect that can end so.
    let refused = |n| {
        let host = FaultHost::new();
        empty(&host);
        host.begin();
        host.fail_at(n, Injected::Errno(13));
        let dir = run_dir(&host);
        let done = publish(&host, &results(&host), FILE, NEW, Some(&dir), &never());
        done.is_ok_and(|done| matches!(done.place, Place::Pending(_))).then_some(host)
    };
    let host = (0..100).find_map(refused).expect("the rename can be refused");
    assert!(matches!(again(&host), Ok(Snapshotted::Committed)), "the final result is pending");
    assert_eq!(text(&host, PENDING).as_deref(), Some(NEW));
}

#[test]
fn a_delivery_mark_keeps_every_other_byte_and_refuses_another_result() {
    let host = FaultHost::new();
    with_old(&host);
    let mark =
        |is_it: bool| mark_delivered(&host, &results(&host), &names(), 9, |_| is_it, &never());
    assert!(matches!(mark(false), Ok(Delivered::Changed)));
    assert!(matches!(mark(true), Ok(Delivered::Marked(_))));
    let text = text(&host, PUBLIC).expect("public");
    let kept = OLD.strip_suffix('}').expect("an object");
    assert_eq!(text, format!("{kept},\"notificationDeliveredAt\": 9,\"runId\": \"run-1\"}}"));
    assert!(matches!(mark(true), Ok(Delivered::Already)));
    let results = results(&host);
    host.unlink(&results, FILE.as_ref()).expect("there");
    assert!(matches!(mark(true), Ok(Delivered::Gone)));
    assert!(!host.has(&format!("/{PUBLIC}")), "it is not made again");
}
