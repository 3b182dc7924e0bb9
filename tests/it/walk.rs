//! Walks over stores with enough runs that other threads look ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::DirEntryExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::evidence::Times;
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};
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
fn each_run_is_met_once_and_most_in_the_order_of_their_inodes() {
    let built = many(800, &[]);
    let inodes: BTreeMap<String, u64> = fs::read_dir(built.root().join("async-subagent-runs"))
        .expect("the runs root is there")
        .map(|entry| entry.expect("readable"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.ino()))
        .collect();
    for _ in 0..3 {
        let mut met = Vec::new();
        walk(&built, &mut |report| {
            met.push(report.run_id);
            ControlFlow::Continue(())
        });
        let all: BTreeSet<_> = met.iter().cloned().collect();
        assert!(met.len() == 800 && all.iter().eq(inodes.keys()), "each once: {met:?}");
        // The first ones are looked at while the others are listed.
        assert!(met[100..].is_sorted_by_key(|id| inodes[id]), "looking ahead changes no order");
    }
}

#[test]
fn a_listing_has_every_name_however_many_there_are() {
    let host = RealHost::new();
    for count in [0, 1, 2, 250, 251, 252, 1000, 5000] {
        let built = testkit::Store::new();
        let folder = built.root().join("async-subagent-results");
        fs::create_dir(&folder).expect("the tree is ours");
        for n in 0..count {
            fs::write(folder.join(format!("a-name-of-some-length-{n:026}.json")), "")
                .expect("ours");
        }
        let there: BTreeSet<_> = fs::read_dir(&folder)
            .expect("ours")
            .map(|e| e.expect("readable").file_name())
            .collect();
        let dir = host.open_dir(&folder).expect("ours");
        // The same handle is listed from its start each time.
        for _ in 0..2 {
            let mut listed = Vec::new();
            let whole = host.list(&dir, &mut |entry| {
                listed.push(entry.name);
                ControlFlow::Continue(())
            });
            whole.expect("ours");
            assert_eq!(listed.len(), count);
            assert!(listed.iter().collect::<BTreeSet<_>>().into_iter().eq(&there), "{count}");
        }
    }
}

#[test]
fn a_panic_on_a_thread_that_looks_ahead_ends_the_walk() {
    let built = many(1000, &[]);
    let host = RealHost::new();
    let opened = Store::open(&host, built.root(), now_ms(), Times::default()).expect("it opens");
    let Opened::Store(store) = opened else { panic!("a temp root is a store") };
    // One thread goes on when the other has ended; then none is left.
    for lost in [1, 2] {
        let judged = AtomicUsize::new(0);
        let prepare = |_: &mut (), _: RunReport| {
            let nth = judged.fetch_add(1, Ordering::SeqCst);
            assert!(nth < 400 || nth >= 400 + lost, "as a defect would");
        };
        let mut inspection = Inspection::new(&store, Depth::Row);
        let walked = catch_unwind(AssertUnwindSafe(|| {
            inspection.each_prepared(
                &prepare,
                &mut |()| ControlFlow::Continue(()),
                &mut Vec::new(),
            );
        }));
        assert!(walked.is_err(), "it is told, and nobody waits for an answer that cannot come");
    }
}

#[test]
fn what_cannot_be_read_ahead_is_met_among_the_others() {
    let built = many(300, &[]);
    let runs = built.root().join("async-subagent-runs");
    let odd = ["run-0100", "run-0101", "run-0150"];
    for id in odd {
        fs::remove_dir_all(runs.join(id)).expect("the tree is ours");
        std::os::unix::fs::symlink("run-0000", runs.join(id)).expect("the tree is ours");
    }
    let status = runs.join("run-0200/status.json");
    fs::remove_file(&status).expect("the tree is ours");
    fs::create_dir(&status).expect("the tree is ours");
    let long = json!({"runId": "run-0201", "state": "complete", "startedAt": 1, "endedAt": 2,
        "padding": "x".repeat(100_000)});
    built.run("run-0201").status(&long);
    let mut verdicts = BTreeMap::new();
    walk(&built, &mut |report| {
        verdicts.insert(report.run_id, report.verdict);
        ControlFlow::Continue(())
    });
    assert_eq!(verdicts.len(), 300);
    for (id, verdict) in &verdicts {
        let is_odd = odd.contains(&&**id) || id == "run-0200";
        assert_eq!(*verdict, if is_odd { "unsafe" } else { verdicts["run-0000"] }, "{id}");
    }
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
