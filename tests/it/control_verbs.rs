//! The verbs `stop` and `interrupt`: with real runs, and on every run that is not to be asked.
//!
//! Theory of operation. See `launch` and `runner`. A runner that is stopped by a signal takes nothing up, so
//! that a test can see a request lie there; it is let go on when the test says so. What is not to be asked
//! is compared byte by byte before and after.

use std::fs;
use std::path::Path;

use runstore::protocol::layout;
use runstore::protocol::proof::ProofState;
use serde_json::{Value, json};
use testkit::process::{Live, identity, now_ms};
use testkit::records::{self, with, without};
use testkit::{Store, tree};

use crate::ask::{self, assert_harmless, utf8};
use crate::launch::{Launch, has_handles};
use crate::place::until;
use crate::runner::{launch, met, sh};

/// Asks a verb for JSON.
fn asked(args: &[&str]) -> (i32, Value) {
    let mut args = args.to_vec();
    args.extend(["--format", "json"]);
    let outcome = ask::run(&args);
    let answer = serde_json::from_slice(&outcome.stdout);
    let answer = answer.unwrap_or_else(|e| panic!("{args:?}: {e}: {}", outcome.errors()));
    ask::assert_valid(&answer);
    (outcome.code, answer)
}

fn signal(name: &str, pid: i64) {
    let sent = std::process::Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("there is kill").success(), "{name} {pid}");
}

impl Launch {
    /// Stops the runner, and waits until the system says so.
    fn freeze(&self) {
        signal("-STOP", self.runner.pid);
        let stat = || fs::read_to_string(format!("/proc/{}/stat", self.runner.pid)).expect("ours");
        until("the runner is stopped", || {
            stat().rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        });
    }

    fn thaw(&self) {
        signal("-CONT", self.runner.pid);
    }

    fn requests(&self) -> usize {
        let dir = self.dir().join(layout::CONTROL_DIR).join(layout::STOP_REQUESTS_DIR);
        fs::read_dir(dir).map_or(0, Iterator::count)
    }
}

/// Covers RS-CTRL-20, RS-CTRL-24.
#[test]
fn a_live_run_is_stopped_and_asking_again_changes_nothing() {
    if !has_handles("stop") {
        return;
    }
    let launch =
        launch(&json!([[met("trap '' TERM; while :; do sleep 1000; done")], [sh("true")]]));
    launch.go();
    launch.meet();
    let dir = launch.dir();
    let dir = utf8(&dir);
    launch.freeze();
    let (code, answer) =
        asked(&["stop", "run-1", "--root", utf8(launch.root.path()), "--reason", "enough"]);
    assert_eq!((code, &answer["outcome"]), (0, &json!("asked")), "{answer}");
    let file = launch.dir().join(answer["file"].as_str().expect("a path"));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let before = tree::snapshot(launch.root.path()).expect("ours");
    let (code, again) = asked(&["stop", dir]);
    assert_eq!((code, &again["outcome"]), (0, &json!("already-asked")), "{again}");
    assert_eq!((&again["file"], launch.requests()), (&answer["file"], 1));
    let changes = tree::diff(&before, &tree::snapshot(launch.root.path()).expect("ours"));
    assert!(changes.is_empty(), "{changes:?}");
    let late = ask::run(&["stop", dir, "--wait", "--timeout", "50ms"]);
    assert_eq!(late.code, 7, "{}", late.text());
    assert!(late.text().contains("the request stays"), "{}", late.text());

    launch.until_it_ends(|| {
        launch.thaw();
        // It was taken up, and the step does not listen: the status says that the run is being stopped.
        until("the stop is taken up", || launch.status()["stopped"] == json!(true));
        let (code, again) = asked(&["stop", dir, "--wait"]);
        assert_eq!((code, &again["done"]), (0, &json!(true)), "{again}");
        assert_eq!(again["recordedState"], "stopped");
    });
    launch.ended_in_order(0);
    assert_eq!(launch.words(), ["stopped", "stopped", "pending"]);
    assert_eq!(launch.status()["error"], "enough", "the reason is on record");
    assert_eq!(launch.requests(), 0);
    let before = tree::snapshot(launch.root.path()).expect("ours");
    let ended = ask::run(&["stop", dir]);
    assert_eq!(ended.code, 0, "{}", ended.text());
    assert!(ended.text().starts_with("already ended  run-1  (stop)\n"), "{}", ended.text());
    let changes = tree::diff(&before, &tree::snapshot(launch.root.path()).expect("ours"));
    assert!(changes.is_empty(), "an ended run is not asked: {changes:?}");
}

#[test]
fn one_step_is_stopped_and_the_others_go_on() {
    if !has_handles("stop of a step") {
        return;
    }
    let launch = launch(&json!([[met("exec sleep 1000"), sh("cat \"$ROOT/go\"; echo other")]]));
    launch.go();
    launch.meet();
    let dir = launch.dir();
    let nobody = ask::run(&["stop", utf8(&dir), "--step", "2"]);
    assert_eq!(nobody.code, 2, "{}", nobody.errors());
    assert!(nobody.errors().contains("there is no step 2; the run has 2"), "{}", nobody.errors());
    let (code, answer) = asked(&["stop", utf8(&dir), "--step", "0", "--wait"]);
    assert_eq!((code, &answer["done"], &answer["step"]), (0, &json!(true), &json!(0)), "{answer}");
    assert_eq!(answer["recordedState"], "running", "{answer}");
    let (code, again) = asked(&["stop", utf8(&dir), "--step", "0"]);
    assert_eq!((code, &again["outcome"]), (0, &json!("ended")), "{again}");
    launch.until_it_ends(|| launch.go());
    assert_eq!(launch.words(), ["failed", "stopped", "complete"], "{}", launch.events());
}

#[test]
fn an_interrupted_run_is_paused_and_nobody_is_left_to_be_asked() {
    if !has_handles("interrupt") {
        return;
    }
    let launch = launch(&json!([[met("exec sleep 1000")]]));
    launch.go();
    launch.meet();
    let dir = launch.dir();
    launch.until_it_ends(|| {
        let (code, answer) = asked(&["interrupt", utf8(&dir), "--wait"]);
        assert_eq!((code, &answer["done"]), (0, &json!(true)), "{answer}");
        assert_eq!(answer["recordedState"], "paused");
    });
    launch.ended_in_order(1);
    for verb in ["interrupt", "stop"] {
        let (code, answer) = asked(&[verb, utf8(&dir)]);
        assert_eq!((code, &answer["outcome"]), (0, &json!("ended")), "{verb}: {answer}");
        assert!(answer["because"].as_str().expect("text").contains("paused"), "{answer}");
        assert_ne!(answer["next"], json!([]), "{verb}: it says what may be done");
    }
}

/// Covers RS-CTRL-25.
#[test]
fn a_runner_that_takes_nothing_up_is_sent_a_signal_if_that_was_asked_for() {
    if !has_handles("stop by a signal") {
        return;
    }
    let launch = launch(&json!([[met("exec sleep 1000")]]));
    launch.go();
    launch.meet();
    launch.freeze();
    let dir = launch.dir();
    launch.until_it_ends(|| {
        let (code, answer) = asked(&["stop", utf8(&dir), "--signal", "--wait"]);
        assert_eq!(answer["signal"], "SIGTERM", "{answer}");
        assert_eq!((code, &answer["outcome"]), (1, &json!("dead")), "it died of it: {answer}");
    });
    let proof = launch.proof();
    assert_eq!(proof.state, ProofState::Observed, "{proof:?}");
    assert_eq!(proof.instances[0].signal.as_deref(), Some("SIGTERM"));
}

/// Each verb on a run that it must not touch: the code, and a word of the answer.
fn untouched(store: &Store, id: &str, code: i32, words: &[&str]) {
    let before = tree::snapshot(store.root()).expect("ours");
    for verb in ["stop", "interrupt"] {
        let outcome = ask::run(&[verb, id, "--root", utf8(store.root()), "--wait"]);
        let text = outcome.text() + &outcome.errors();
        assert_harmless(verb, text.as_bytes());
        assert_eq!(outcome.code, code, "{verb} {id}: {text}");
        for word in words {
            assert!(text.contains(word), "{verb} {id}: no '{word}' in {text}");
        }
    }
    let changes = tree::diff(&before, &tree::snapshot(store.root()).expect("ours"));
    assert!(changes.is_empty(), "{id}: {changes:?}");
}

/// Covers RS-CTRL-22, RS-CTRL-26.
#[test]
fn runs_that_are_not_to_be_asked_are_told_of_and_not_touched() {
    let store = Store::new();
    let now = now_ms();
    let old = now - 3_600_000;
    store.run("run-orphan").status(&records::running("run-orphan", 999_999_999, now));
    untouched(&store, "run-orphan", 1, &["already dead", "you may", "must not"]);
    records::finish(&store.run("run-finished"), now);
    untouched(&store, "run-finished", 0, &["already ended", "recorded 'complete'"]);
    let unproven = without(records::complete("run-unproven", old), "processTerminal");
    store.run("run-unproven").status(&unproven);
    untouched(&store, "run-unproven", 5, &["already ended"]);
    store.run("run-corrupt").file("status.json", "{");
    untouched(&store, "run-corrupt", 8, &["not asked", "its records are not touched"]);
    let later = with(records::running("run-later", 1, now), "state", "later");
    store.run("run-later").status(&later);
    untouched(&store, "run-later", 6, &["not asked"]);
    let link = store.beside("elsewhere");
    let runs = store.root().join(layout::RUNS_DIR);
    std::os::unix::fs::symlink(&link, runs.join("run-linked")).expect("room");
    untouched(&store, "run-linked", 8, &["not asked"]);
    untouched(&store, "run-nowhere", 4, &["no run with the id"]);
}

/// A run whose process lives: this test's.
fn live(store: &Store, id: &str, pid: u32) {
    let who = json!({"startIdentity": identity(pid).start});
    store.run(id).status(&with(records::running(id, pid, now_ms()), "runnerIdentity", who));
    store.active_marker(id);
}

/// Covers RS-CTRL-22.
#[test]
fn an_inbox_that_is_no_directory_of_ours_is_not_written_to() {
    let process = Live::start();
    for place in ["control", "control/stop-requests"] {
        for kind in ["a plain file", "a symbolic link", "a named pipe"] {
            let store = Store::new();
            live(&store, "run-live", process.pid());
            let path = store.root().join(layout::RUNS_DIR).join("run-live").join(place);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            let outside = store.beside("outside");
            match kind {
                "a plain file" => fs::write(&path, "").expect("room"),
                "a symbolic link" => std::os::unix::fs::symlink(&outside, &path).expect("room"),
                _ => assert!(
                    std::process::Command::new("mkfifo")
                        .arg(&path)
                        .status()
                        .expect("run")
                        .success()
                ),
            }
            let outcome = ask::run(&["stop", "run-live", "--root", utf8(store.root())]);
            let text = outcome.text() + &outcome.errors();
            assert_eq!(outcome.code, 8, "{place} is {kind}: {text}");
            assert!(text.contains(kind), "{place} is {kind}: {text}");
            assert_eq!(
                fs::read_dir(&outside).expect("there").count(),
                0,
                "{place}: nothing outside"
            );
        }
    }
    let store = Store::new();
    live(&store, "run-live", process.pid());
    store
        .run("run-live")
        .json("control/stop-inbox-closed.json", &json!({"version": 1, "closedAt": 5}));
    let (code, answer) = asked(&["stop", "run-live", "--root", utf8(store.root())]);
    assert_eq!((code, &answer["outcome"]), (0, &json!("closing")), "{answer}");
    let queue = store.root().join(layout::RUNS_DIR).join("run-live/control/stop-requests");
    assert!(!Path::exists(&queue), "nobody would read it");
}

#[test]
fn a_run_of_elsewhere_or_with_a_shared_process_is_asked_and_never_signalled() {
    let store = Store::new();
    let process = Live::start();
    live(&store, "run-one", process.pid());
    live(&store, "run-two", process.pid());
    let far = with(records::running("run-far", 1, now_ms()), "hostname", "elsewhere");
    store.run("run-far").status(&far);
    let nobody = without(records::running("run-nobody", 1, now_ms()), "pid");
    store.run("run-nobody").status(&nobody);
    for id in ["run-one", "run-far", "run-nobody"] {
        let (code, answer) = asked(&["stop", id, "--root", utf8(store.root())]);
        assert_eq!((code, &answer["outcome"]), (5, &json!("asked")), "{id}: {answer}");
        assert_eq!(answer["signal"], Value::Null, "{id}");
    }
    // Twice at once: both wait for ten seconds.
    let root = utf8(store.root());
    std::thread::scope(|scope| {
        for (id, why) in [("run-one", "run-two"), ("run-far", "elsewhere")] {
            scope.spawn(move || {
                let (code, answer) = asked(&["stop", id, "--root", root, "--signal"]);
                assert_eq!((code, &answer["signal"]), (1, &Value::Null), "{id}: {answer}");
                let because = answer["because"].as_str().expect("text");
                assert!(
                    because.contains("no signal was sent") && because.contains(why),
                    "{because}"
                );
            });
        }
    });
}
