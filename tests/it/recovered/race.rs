//! Two who write: recoveries at once, and a runner that ends meanwhile. Facts CW-52 and CW-53.
//!
//! Theory of operation. Whoever comes second looks again before it writes, and finds that there is nothing left to
//! do, or that what it saw is not so any more. So there is one result, one event and one entry in the index of
//! ended runs, whoever wins; and what a runner wrote in between stays.

use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::Store;
use testkit::process::now_ms;
use testkit::records;
use testkit::tree::differing;

use super::prove::{Hasty, actions, picture, safe_actions, undo};
use super::table;
use crate::ask::{self, Answer, utf8};
use crate::killed::rig::{Rig, Role};
use crate::launch::has_handles;

const RUN: &str = "async-subagent-runs/run-1";

/// How many lines of the log of a run hold a text.
fn told(root: &Path, text: &str) -> usize {
    let log = fs::read_to_string(root.join(RUN).join("events.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.contains(text)).count()
}

fn read(root: &Path, path: &str) -> Value {
    serde_json::from_slice(&fs::read(root.join(path)).expect("there")).expect("whole")
}

#[test]
fn of_recoveries_at_once_one_acts() {
    for _ in 0..8 {
        let store = Store::in_memory();
        table::orphan(&store);
        let first = picture(store.root());
        let words = ["recover", utf8(store.root()), "--apply", "--grace-ms", "0"];
        std::thread::scope(|scope| {
            let racers = [(); 3].map(|()| scope.spawn(|| ask::run(&words)));
            for racer in racers {
                let done = racer.join().expect("it ends by itself, in time");
                assert!([0, 1, 5, 7].contains(&done.code), "{}: {}", done.code, done.errors());
            }
        });
        assert_eq!(safe_actions(&Hasty::plan(store.root())), [""; 0], "all is done");
        assert_eq!(told(store.root(), "repaired_stale"), 1, "one of them tells it");
        let ended = store.root().join("async-subagent-runs/.terminal-runs/session-1");
        assert_eq!(fs::read_dir(ended).expect("there").count(), 1, "one entry");
        assert_eq!(undo(store.root()).code, 0);
        let differing = differing(&first, &picture(store.root()));
        assert!(differing.is_empty(), "{differing:?}");
    }
}

/// What a runner writes of its end while nobody looks.
type Ending = fn(&Store);

#[test]
fn a_run_that_ends_between_plan_and_apply_is_not_closed() {
    let endings: [(&str, Ending); 3] = [
        ("its result", |store| {
            store.result("run-1", &records::result("run-1", now_ms()));
        }),
        ("its status", |store| {
            let status = records::without(records::complete("run-1", now_ms()), "processTerminal");
            store.run("run-1").status(&status);
        }),
        ("both", |store| {
            store.result("run-1", &records::result("run-1", now_ms()));
            let status = records::without(records::complete("run-1", now_ms()), "processTerminal");
            store.run("run-1").status(&status);
        }),
    ];
    for (what, end) in endings {
        let store = Store::in_memory();
        table::orphan(&store);
        let plan = Hasty::plan(store.root());
        assert_eq!(actions(&plan), ["run-1 close-as-failed safe"], "{what}");
        let saved = store.beside("plans").join("plan.json");
        fs::write(&saved, plan.json.to_string()).expect("room");
        end(&store);
        let before = picture(store.root());
        let from = ["recover", "--from", utf8(&saved), "--grace-ms", "0", "--format", "json"];
        let answer = Answer::of(&ask::run(&from));
        assert_eq!(answer.code, 1, "{what}: {}", answer.json);
        let why = answer.json["left"][0]["why"].as_str().expect("it says why");
        assert!(why.contains("stale"), "{what}: {why}");
        let differing = differing(&before, &picture(store.root()));
        assert!(differing.is_empty(), "{what}: {differing:?}");
    }
}

#[test]
fn a_runner_that_works_beside_recoveries_ends_as_if_alone() {
    if !has_handles("a runner beside recoveries") {
        return;
    }
    for is_revival in [false, true, false, true] {
        let rig = Rig::new(Role::Launcher, is_revival);
        let root = rig.root();
        let looks = std::thread::scope(|scope| {
            let launch = scope.spawn(|| rig.launch_unwatched("run-1"));
            let mut looks = 0;
            while !launch.is_finished() {
                if root.join("async-subagent-runs").exists() {
                    let words = ["recover", utf8(&root), "--apply", "--grace-ms", "0"];
                    let code = ask::run(&words).code;
                    assert!([0, 1, 5].contains(&code), "{code}");
                    looks += 1;
                }
            }
            assert!(launch.join().expect("it ends"), "it is let in: {}", rig.errors());
            looks
        });
        assert!(looks > 0, "there was a recovery");
        assert_eq!(told(&root, "repaired_stale"), 0, "nobody closed it");
        assert_eq!(read(&root, &format!("{RUN}/status.json"))["state"], "complete");
        assert_eq!(read(&root, "async-subagent-results/run-1.json")["state"], "complete");
        assert_eq!(ask::inspect(&root).verdict("run-1"), "finished");
        assert_eq!(rig.work(), 1, "the work was done once");
    }
}
