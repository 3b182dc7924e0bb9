//! Walks over stores with enough runs that other threads look ahead.

use std::ops::ControlFlow;

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::evidence::Times;
use runstore::store::{Depth, Opened, RealHost, Store};
use serde_json::json;
use testkit::process::now_ms;

/// A store of finished runs, and of some active ones that all record the pid of this test.
fn many(runs: usize, active: &[usize]) -> testkit::Store {
    let store = testkit::Store::new();
    for n in 0..runs {
        let id = format!("run-{n:04}");
        let status = if active.contains(&n) {
            // Now: a record of an earlier time would make a living process a reused pid.
            json!({"runId": id, "state": "running", "startedAt": now_ms(), "pid": std::process::id()})
        } else {
            json!({"runId": id, "state": "complete", "startedAt": 1, "endedAt": 2})
        };
        store.run(&id).status(&status);
    }
    store
}

fn walk(built: &testkit::Store, each: &mut dyn FnMut(RunReport) -> ControlFlow<()>) {
    let host = RealHost::new();
    let opened = Store::open(&host, built.root(), now_ms(), Times::default()).expect("it opens");
    let Opened::Store(store) = opened else { panic!("a temp root is a store") };
    let mut problems = Vec::new();
    Inspection::new(&store, Depth::Row).each(each, &mut problems);
    assert!(problems.is_empty(), "nothing vanished from a quiet store: {problems:?}");
}

#[test]
fn reports_come_in_the_order_of_the_listing_and_each_once() {
    let built = many(800, &[]);
    let listed: Vec<String> = std::fs::read_dir(built.root().join("async-subagent-runs"))
        .expect("the runs root is there")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    let mut met = Vec::new();
    walk(&built, &mut |report| {
        met.push(report.run_id);
        ControlFlow::Continue(())
    });
    assert_eq!(met, listed, "looking ahead changes no order");
}

#[test]
fn a_walk_that_is_broken_off_ends_at_once_wherever_it_is() {
    let built = many(600, &[]);
    for wanted in [1, 64, 65, 200, 599] {
        let mut met = 0;
        walk(&built, &mut |_| {
            met += 1;
            if met == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(met, wanted, "nothing is handed on after a break");
    }
}

#[test]
fn a_shared_pid_is_seen_however_far_apart_the_runs_are() {
    let built = many(700, &[0, 350, 699]);
    let mut flags = Vec::new();
    walk(&built, &mut |report| {
        if report.recorded_state.as_deref() == Some("running") {
            flags.push(report.flags.contains(&"shared-pid"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(flags, [true; 3], "each of them is known to share its pid");
}
