//! The reserve of a run on a real file system, and what readers make of it: nothing.

use std::os::unix::fs::MetadataExt as _;

use runstore::protocol::{layout, limits};
use runstore::store::RealHost;
use runstore::store::advisory::Locks;
use runstore::store::host::Host as _;
use runstore::store::reserve;
use serde_json::{Value, json};
use testkit::Store;

use crate::ask;

const T: u64 = 1_790_000_000_000;
const RUN: &str = "00000000-0000-4000-8000-000000000001";

#[test]
fn a_reserve_has_real_blocks_and_is_private() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    reserve::create(&host, &dir).expect("room");
    let stat = std::fs::metadata(top.path().join(layout::RESERVE)).expect("there");
    let blocks_bytes = stat.blocks() * 512;
    assert!(blocks_bytes >= limits::RESERVE_BYTES as u64, "{blocks_bytes} bytes of blocks");
    assert_eq!(stat.mode() & 0o7777, 0o600);
    assert!(reserve::release(&host, &dir).expect("released"));
    assert!(std::fs::read_dir(top.path()).expect("there").next().is_none(), "nothing is left");
}

fn inspect(store: &Store) -> Value {
    ask::inspect_with(store.root(), &["--now", &(T + 60_000).to_string()]).json
}

/// Spec: RS-DEFER-07, RS-LOCK-02.
#[test]
fn a_report_is_the_same_with_a_reserve_and_a_lock_file() {
    let store = Store::new();
    let run = store.run(RUN);
    run.status(&json!({
        "lifecycleArtifactVersion": 3, "runId": RUN, "sessionId": "S", "mode": "single",
        "state": "complete", "startedAt": T, "lastUpdate": T, "endedAt": T, "pid": 999_999_999,
        "cwd": "/p", "steps": [],
    }));
    let without = inspect(&store);
    let host = RealHost::new();
    let dir = host.open_dir(run.path()).expect("there");
    reserve::create(&host, &dir).expect("room");
    let runs = host.open_dir(run.path().parent().expect("a runs root")).expect("there");
    drop(Locks::new(&host, &runs, "runs", 0).acquire(RUN).expect("free"));
    assert_eq!(inspect(&store)["runs"], without["runs"], "both say nothing about the run");
}
