//! `runstore wait` with real processes: what ends a wait, how it is told, and that nothing is changed.
//! Spec: RS-OBS-20 to RS-OBS-27.
//!
//! Theory of operation. A waiter is a process of the program. It gets a pause between looks that is longer
//! than the test, so what ends its wait in time can only be what woke it. Before something happens the test looks
//! at the waiter's descriptors until it holds the runner.

use std::fs;
use std::process::{Child, Command, Stdio};

use runstore::store::RealHost;
use runstore::store::host::WriteHost as _;
use serde_json::{Value, json};
use testkit::Store;
use testkit::process::{Live, now_ms, skip};
use testkit::program;
use testkit::records::{self, with};
use testkit::tree;

use crate::ask::{self, Answer, assert_harmless, utf8};
use crate::schemas::schemas;
use crate::watching::without_instances;

/// A pause that no test outlasts.
const LONG: &str = "600000";

/// A store with one run under a process that idles.
fn running() -> (Store, Live) {
    let (store, live) = (Store::new(), Live::start());
    store.run("run-1").status(&records::running("run-1", live.pid(), now_ms()));
    (store, live)
}

fn wait(store: &Store, more: &[&str]) -> program::Outcome {
    let mut args = vec!["wait", "--root", utf8(store.root())];
    args.extend_from_slice(more);
    ask::run(&args)
}

/// A waiter for JSON, asleep for good.
fn waiter(mut program: Command, store: &Store, more: &[&str]) -> Child {
    program.args(["wait", "--root", utf8(store.root()), "--look-ms", LONG, "--format", "json"]);
    program.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}

fn of_program() -> Command {
    Command::new(ask::binary())
}

/// Whether a process has a descriptor of each of these kinds.
fn holds(pid: u32, kinds: &[&str]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let links: Vec<_> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    kinds.iter().all(|kind| links.iter().any(|link| link.contains(kind)))
}

fn until_it_holds(child: &Child, kinds: &[&str]) {
    for _ in 0..20_000 {
        if holds(child.id(), kinds) {
            return;
        }
        RealHost::new().wait_ms(1);
    }
    panic!("the waiter never slept");
}

/// A waiter that a directory wakes; `None` when others keep all instances of this user.
fn woken_waiter(store: &Store, test: &str) -> Option<Child> {
    for _ in 0..100 {
        let mut child = waiter(of_program(), store, &["run-1"]);
        // The runner is held last.
        until_it_holds(&child, &["pidfd"]);
        if holds(child.id(), &["inotify"]) {
            return Some(child);
        }
        child.kill().expect("ours");
        child.wait().expect("ours");
        RealHost::new().wait_ms(50);
    }
    skip(test, "others have all inotify instances of this user");
    None
}

fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().expect("ours");
    let json = serde_json::from_slice(&output.stdout).expect("JSON");
    Answer { json, code: output.status.code().expect("not killed") }
}

fn is_linux(test: &str) -> bool {
    let is = cfg!(target_os = "linux");
    if !is {
        skip(test, "only Linux wakes a wait");
    }
    is
}

/// Replaces the status as writers do.
fn replace_status(store: &Store, status: &Value) {
    let run = store.run("run-1");
    run.json(".status.json.1.2.ab.tmp", status);
    let from = run.path().join(".status.json.1.2.ab.tmp");
    fs::rename(from, run.path().join("status.json")).expect("ours");
}

#[test]
fn a_hundred_waiters_are_woken_by_the_death_of_the_runner() {
    if !is_linux("a hundred waiters") {
        return;
    }
    let (store, mut live) = running();
    let waiters: Vec<Child> = (0..100).map(|_| waiter(of_program(), &store, &["run-1"])).collect();
    for child in &waiters {
        // More than the user has instances for may run here at once; then the handle alone wakes it.
        until_it_holds(child, &["pidfd"]);
    }
    live.kill();
    for child in waiters {
        let answer = answer(child);
        assert_eq!(answer.code, 1, "{:#}", answer.json);
        let run = answer.one("run-1");
        assert_eq!((&run["outcome"], &run["verdict"]), (&json!("orphaned"), &json!("orphaned")));
        assert_eq!((&run["recordedState"], &run["liveness"]), (&json!("running"), &json!("dead")));
    }
}

#[test]
fn a_waiter_is_woken_by_the_status_that_tells_the_end() {
    if !is_linux("a status that wakes") {
        return;
    }
    let (store, live) = running();
    let Some(child) = woken_waiter(&store, "a status that wakes") else { return };
    replace_status(&store, &with(records::complete("run-1", now_ms()), "pid", live.pid()));
    let answer = answer(child);
    assert_eq!((answer.code, &answer.one("run-1")["outcome"]), (0, &json!("ended")));
    assert_eq!(answer.json["summary"]["byOutcome"]["ended"], 1);
}

#[test]
fn without_an_instance_a_death_still_wakes_and_a_status_is_found_by_looking() {
    let none = || is_linux("no instance").then(|| without_instances(&ask::binary())).flatten();
    let (Some(one), Some(mut other)) = (none(), none()) else {
        return skip("waiting without an instance", "no user namespace can be had");
    };
    let (store, mut live) = running();
    let child = waiter(one, &store, &["run-1"]);
    until_it_holds(&child, &["pidfd"]);
    assert!(!holds(child.id(), &["inotify"]), "there is none");
    live.kill();
    assert_eq!(answer(child).one("run-1")["outcome"], "orphaned");
    let (store, live) = running();
    other.args(["wait", "--root", utf8(store.root()), "--look-ms", "5", "run-1"]);
    let mut child = other.stdout(Stdio::null()).spawn().expect("it starts");
    until_it_holds(&child, &["pidfd"]);
    replace_status(&store, &with(records::complete("run-1", now_ms()), "pid", live.pid()));
    assert_eq!(child.wait().expect("ours").code(), Some(0));
}

#[test]
fn what_is_over_before_the_call_is_told_at_once() {
    let store = Store::new();
    records::finish(&store.run("run-1"), now_ms());
    for (until, outcome) in [("ready", "ended"), ("terminal", "ended"), ("proof", "proven")] {
        let asked = ["run-1", "--for", until, "--look-ms", LONG, "--format", "json"];
        let answer = Answer::of(&wait(&store, &asked));
        let run = answer.one("run-1");
        assert_eq!((answer.code, &run["outcome"]), (0, &json!(outcome)), "{until}: {run:#}");
        assert_eq!((&run["exitCode"], &run["proof"]["counts"]), (&json!(0), &json!(true)));
        assert_eq!(
            (&answer.json["schema"], &answer.json["for"]),
            (&json!("runstore.wait/1"), &json!(until))
        );
    }
}

#[test]
fn the_time_that_is_over_has_a_code_of_its_own_and_every_form_tells_it() {
    let (store, _live) = running();
    for timeout in ["0s", "30ms"] {
        let outcome = wait(&store, &["run-1", "--timeout", timeout]);
        assert_eq!(outcome.code, 7, "{}", outcome.errors());
        let text = outcome.text();
        assert!(text.starts_with("timeout") && text.contains("run-1"), "{text}");
        assert!(text.contains("you may") && text.contains("runstore wait "), "{text}");
        assert_harmless("a timeout", &outcome.stdout);
    }
    let outcome = wait(&store, &["run-1", "--timeout", "0s", "--for", "ready"]);
    assert_eq!((outcome.code, outcome.text().starts_with("ready")), (0, true), "it works already");
    let outcome = wait(&store, &["run-1", "--timeout", "5 parsecs"]);
    assert_eq!(outcome.code, 2, "that is no time");
}

#[test]
fn runs_are_told_as_their_waits_end_and_the_worst_end_counts() {
    let (store, _live) = running();
    records::finish(&store.run("run-2"), now_ms());
    store.run("run-3").status(&records::running("run-3", 999_999_999, now_ms()));
    store.run("run-4").file("status.json", "{");
    let asked = ["run-1", "run-2", "run-2", "run-3", "--timeout", "20ms", "--format", "jsonl"];
    let outcome = wait(&store, &asked);
    let text = outcome.text();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> = lines.iter().map(|run| (&run["runId"], &run["outcome"])).collect();
    let expected = [("run-2", "ended"), ("run-3", "orphaned"), ("run-1", "timeout")];
    assert_eq!(told.len(), 3, "each run once: {text}");
    for (told, (run, outcome)) in told.iter().zip(expected) {
        assert_eq!(*told, (&json!(run), &json!(outcome)), "{text}");
    }
    assert_eq!(outcome.code, 7, "nobody may take it for a wait that came to its end");
    assert_eq!(wait(&store, &["run-2", "run-3"]).code, 1);
    assert_eq!(wait(&store, &["run-2", "run-3", "run-4"]).code, 8);
    let answer = Answer::of(&wait(&store, &["run-3", "run-2", "--format", "json"]));
    let order: Vec<_> = answer.runs().iter().map(|run| run["runId"].clone()).collect();
    assert_eq!(order, ["run-3", "run-2"], "one object lists them as they were asked for");
}

#[test]
fn an_id_that_leads_nowhere_is_told_before_anything_is_waited_for() {
    let (store, _live) = running();
    let wrong: [(&[&str], i32, &str); 5] = [
        (&["nobody"], 4, "runstore list --all"),
        (&["run-1", "nobody"], 4, "no run with the id 'nobody'"),
        (&["/nowhere/run-1"], 4, "there is nothing at"),
        (&[utf8(store.root())], 2, "holds many runs"),
        (&["../run-1"], 4, "there is nothing at"),
    ];
    for (args, code, said) in wrong {
        let outcome = wait(&store, args);
        assert_eq!(outcome.code, code, "{args:?}: {}", outcome.errors());
        assert!(outcome.errors().contains(said), "{args:?}: {}", outcome.errors());
        assert!(outcome.stdout.is_empty(), "{args:?}: nothing was waited for");
    }
    let outcome = ask::run(&["wait"]);
    assert_eq!(outcome.code, 2, "somebody has to be waited for");
}

#[test]
fn a_run_directory_that_is_removed_ends_the_wait() {
    if !is_linux("a removed run") {
        return;
    }
    let (store, _live) = running();
    let Some(child) = woken_waiter(&store, "a removed run") else { return };
    fs::remove_dir_all(store.run("run-1").path()).expect("ours");
    let answer = answer(child);
    assert_eq!((answer.code, &answer.one("run-1")["outcome"]), (4, &json!("gone")));
}

#[test]
fn a_run_is_named_by_path_prefix_and_tool_call_as_for_inspect() {
    let store = Store::new();
    let id = "5641ea68-1fd7-4bec-a7c4-a26045360255";
    records::finish(&store.run(id), now_ms());
    let path = store.run(id).path().to_owned();
    for name in [id, "5641ea68", utf8(&path)] {
        let answer = Answer::of(&wait(&store, &[name, "--format", "json"]));
        assert_eq!(answer.one(id)["path"], utf8(&path), "{name}");
    }
}

#[test]
fn every_answer_is_valid_by_its_schema() {
    let schemas = schemas();
    let (store, _live) = running();
    records::finish(&store.run("run-2"), now_ms());
    store.run("run-3").status(&records::running("run-3", 999_999_999, now_ms()));
    store.run("run-4").file("status.json", "{");
    let asked = |form| {
        wait(&store, &["run-1", "run-2", "run-3", "run-4", "--timeout", "0s", "--format", form])
    };
    let whole = Answer::of(&asked("json"));
    assert_eq!(schemas.check("wait", "", &whole.json), [""; 0], "{:#}", whole.json);
    assert_eq!(whole.json["summary"]["total"], 4);
    for line in asked("jsonl").text().lines() {
        let run: Value = serde_json::from_str(line).expect("one JSON document a line");
        assert_eq!(schemas.check("wait", "/$defs/run", &run), [""; 0], "{line}");
    }
    let text = asked("text");
    assert_eq!(text.text().matches("you may").count(), 3, "{}", text.text());
    assert_harmless("every end", &text.stdout);
}

#[test]
fn waiting_changes_nothing() {
    let (store, _live) = running();
    let before = tree::snapshot(store.root()).expect("ours");
    for until in ["ready", "terminal", "proof"] {
        wait(&store, &["run-1", "--timeout", "30ms", "--for", until, "--look-ms", "1"]);
    }
    let after = tree::snapshot(store.root()).expect("ours");
    assert_eq!(tree::diff(&before, &after), [""; 0]);
}
