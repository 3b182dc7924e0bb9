//! The room that is kept for the end of a run.

use runstore::protocol::{layout, limits};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::reserve::{Reserved, create, release, renew};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};

use crate::sweep::every_call;
use crate::table;

const STATUS: &str = "{\"state\": \"running\"}";

fn with_status(host: &FaultHost) {
    host.put("/status.json", STATUS);
}

fn size(host: &FaultHost) -> Option<u64> {
    host.stat_at(&0, layout::RESERVE.as_ref()).ok().map(|stat| stat.bytes)
}

fn make(host: &FaultHost) {
    create(host, &0).expect("room");
}

fn status_is_left_alone(host: &FaultHost) -> Result<(), String> {
    let same = host.text("/status.json").as_deref() == Some(STATUS);
    if same { Ok(()) } else { Err("the status changed".to_owned()) }
}

/// Once acknowledged it is there (after a power cut: or not at all), and has its blocks. Whatever a
/// crash leaves, the next call makes it whole.
fn reserve_is_whole_or_made_whole(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    status_is_left_alone(host)?;
    let whole = |host: &FaultHost| {
        let bytes = host.bytes(&format!("/{}", layout::RESERVE)).unwrap_or_default();
        bytes.len() == limits::RESERVE_BYTES && bytes.iter().any(|b| *b != 0)
    };
    let gone = size(host).is_none() && crash.model == Model::Power;
    if crash.acknowledged && !gone && !whole(host) {
        return Err(format!("it has {:?} bytes, or no blocks", size(host)));
    }
    create(host, &0).map_err(|e| format!("it cannot be made again: {e}"))?;
    if size(host) == Some(limits::RESERVE_BYTES as u64) {
        Ok(())
    } else {
        Err("it is short".to_owned())
    }
}

#[test]
fn a_reserve_is_private_whatever_the_umask() {
    for umask in [0, 0o022, 0o777] {
        let host = FaultHost::new();
        host.set_umask(umask);
        make(&host);
        let stat = host.stat_at(&0, layout::RESERVE.as_ref()).expect("made");
        assert_eq!(stat.mode, 0o600, "{umask:o}");
    }
}

#[test]
pub(crate) fn a_reserve_is_whole_absent_or_made_whole_after_every_crash() {
    let seen = explore(with_status, make, reserve_is_whole_or_made_whole);
    table::seen("reserve::create", &seen);
    // Create, write, flush.
    for (mistake, sabotage) in [
        ("it is never flushed", Sabotage::Drop(2)),
        ("it is flushed before it is written", Sabotage::Swap(1)),
    ] {
        let seen = explore_sabotaged(with_status, make, reserve_is_whole_or_made_whole, sabotage);
        table::caught("reserve::create", mistake, &seen);
    }
}

fn gone_once_acknowledged(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    status_is_left_alone(host)?;
    match size(host) {
        Some(_) if crash.acknowledged => Err("the room was not given back".to_owned()),
        None => Ok(()),
        Some(bytes) if bytes == limits::RESERVE_BYTES as u64 => Ok(()),
        Some(bytes) => Err(format!("{bytes} bytes are left")),
    }
}

#[test]
pub(crate) fn a_release_gives_the_room_back_in_one_step() {
    let with_reserve = |host: &FaultHost| {
        with_status(host);
        make(host);
    };
    let operation = |host: &FaultHost| release(host, &0).expect("released");
    let seen = explore(with_reserve, operation, gone_once_acknowledged);
    table::seen("reserve::release", &seen);
    for (mistake, sabotage) in [
        ("the directory is never flushed", Sabotage::Drop(1)),
        ("the directory is flushed before the removal", Sabotage::Swap(0)),
    ] {
        let seen = explore_sabotaged(with_reserve, operation, gone_once_acknowledged, sabotage);
        table::caught("reserve::release", mistake, &seen);
    }
}

#[test]
pub(crate) fn a_reserve_that_is_made_again_is_whole_absent_or_made_whole_after_every_crash() {
    let with_room = |host: &FaultHost| {
        with_status(host);
        host.set_room_bytes(Some(8 << 20));
    };
    let again = |host: &FaultHost| assert!(renew(host, &0), "there is room");
    let seen = explore(with_room, again, reserve_is_whole_or_made_whole);
    table::seen("reserve::renew", &seen);
}

#[test]
fn every_failing_effect_in_every_way_leaves_no_reserve_or_a_whole_one() {
    let make = |host: &FaultHost| create(host, &0).map_err(|e| e.to_string());
    let points = every_call(with_status, make, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        let whole = size(host) == Some(limits::RESERVE_BYTES as u64);
        assert_eq!(done.is_ok(), whole, "{at}");
        assert_eq!(done.is_ok(), fault.is_made_good(), "{at}");
        assert!(whole || size(host).is_none(), "{at}: no part of it is left");
        if let Err(e) = done {
            assert!(e.contains(layout::RESERVE), "{at}: the error names the file");
        }
        status_is_left_alone(host).expect(&at);
    });
    assert_eq!(points, 3 * 8);
    let with_reserve = |host: &FaultHost| {
        with_status(host);
        create(host, &0).expect("room");
    };
    let points = every_call(
        with_reserve,
        |host| release(host, &0).map_err(|e| e.to_string()),
        |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            let gone = size(host).is_none();
            assert_eq!(done.is_ok(), gone, "{at}: the answer is true");
            assert_eq!(gone, fault.call == 1 || fault.is_made_good(), "{at}");
            status_is_left_alone(host).expect(&at);
        },
    );
    assert_eq!(points, 2 * 8);
}

#[test]
fn a_whole_reserve_is_kept_a_short_one_replaced_and_anything_else_refused() {
    let host = FaultHost::new();
    assert_eq!(create(&host, &0).expect("room"), Reserved::Made);
    host.begin();
    assert_eq!(create(&host, &0).expect("there"), Reserved::Kept);
    assert_eq!(host.calls(), 0, "no effect at all");
    release(&host, &0).expect("released");
    assert!(!release(&host, &0).expect("nothing to release"), "it was gone");
    host.put(&format!("/{}", layout::RESERVE), "short");
    assert_eq!(create(&host, &0).expect("room"), Reserved::Made);

    let host = FaultHost::new();
    host.create_dir(&0, layout::RESERVE.as_ref(), 0o700).expect("room");
    let e = create(&host, &0).expect_err("a directory is no reserve");
    assert!(e.source.to_string().contains("a directory stands in its place"), "{}", e.source);
}

#[test]
fn a_reserve_takes_no_room_that_is_scarce() {
    let host = FaultHost::new();
    host.set_room_bytes(Some(limits::RESERVE_AGAIN_BYTES - 1));
    assert!(!renew(&host, &0));
    host.set_room_bytes(Some(limits::RESERVE_AGAIN_BYTES));
    assert!(renew(&host, &0));
    let host = FaultHost::new();
    host.set_room_bytes(Some(10));
    create(&host, &0).expect_err("no room");
    assert!(host.tree().is_empty(), "and no part of it");
}
