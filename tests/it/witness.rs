//! The verb `witness`, with real processes: an end that the system tells to one that is not the parent.
//!
//! Theory of operation. See `launch`. The runner is the child of a shell that reaps it and says nothing, so
//! that only who holds a handle from before the end can tell it. The program says on its standard error that
//! it holds the process; the runner is let go on after that and not before.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use runstore::protocol::Open;
use runstore::protocol::proof::{ExitGrade, ProofState};
use runstore::store::candidate;
use runstore::store::host::{Host as _, ProcessHost as _, RealHost};
use serde_json::{Value, json};
use testkit::process::{now_ms, skip};
use testkit::{Store, records, tree};

use crate::ask;
use crate::launch::{Launch, has_handles};

/// Whether this kernel tells an end to the holder of a handle.
fn tells(test: &str) -> bool {
    if !has_handles(test) {
        return false;
    }
    let host = RealHost::new();
    let mut child = Command::new("true").spawn().expect("there is true");
    let handle = host.hold(i64::from(child.id())).expect("asked").expect("nobody has reaped it");
    child.wait().expect("ours");
    let tells = host.told(&handle).expect("a handle").is_some();
    if !tells {
        skip(test, "this kernel tells the end of a process to its parent alone");
    }
    tells
}

/// A run whose runner says beforehand that it has no writers.
fn accounted_for(end: &str) -> Launch {
    let launch = Launch::unobserved(&format!("cat \"$1/go\"; {end}"));
    let dir = launch.host.open_dir(&launch.dir()).expect("there");
    candidate::record_no_writers(&launch.host, &dir, "run-1", "i", 1).expect("room");
    launch
}

/// Starts the verb, lets the runner end once it is held, and gives exit code and answer.
fn watched(launch: &Launch, target: &[&str]) -> (i32, Value) {
    let mut witness = Command::new(ask::binary())
        .arg("witness")
        .args(target)
        .args(["--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut line = String::new();
    let mut errors = BufReader::new(witness.stderr.take().expect("piped"));
    errors.read_line(&mut line).expect("it says something");
    assert_eq!(line, format!("watching process {} of run-1\n", launch.runner.pid));
    launch.go();
    let mut text = String::new();
    witness.stdout.take().expect("piped").read_to_string(&mut text).expect("readable");
    let code = witness.wait().expect("ours").code().expect("it ends by itself");
    let answer = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    ask::assert_valid(&answer);
    (code, answer)
}

/// Covers RS-OBS-30, RS-OBS-31.
#[test]
fn the_end_of_a_runner_is_told_to_a_witness_and_proven() {
    if !tells("ends under a witness") {
        return;
    }
    for (end, code, signal) in [
        ("exit 3", json!(3), Value::Null),
        ("kill -SEGV $$", Value::Null, json!("SIGSEGV")),
        ("kill -KILL $$", Value::Null, json!("SIGKILL")),
    ] {
        let launch = accounted_for(end);
        assert_eq!((launch.is_marked(), launch.slots()), (true, 1), "{end}: it runs");
        let (exit, answer) = watched(&launch, &["run-1", "--root", ask::utf8(launch.root.path())]);
        assert_eq!(exit, 0, "{end}: {answer}");
        assert_eq!(
            (&answer["outcome"], &answer["proof"]),
            (&json!("observed"), &json!("observed"))
        );
        assert_eq!((&answer["exitCode"], &answer["signal"]), (&code, &signal), "{end}: {answer}");
        let proof = launch.proof();
        assert_eq!(proof.state, ProofState::Observed, "{end}: {proof:?}");
        assert_eq!(proof.exit_evidence, Some(Open::Known(ExitGrade::PidfdExit)), "{end}");
        let told = &proof.instances[0];
        assert_eq!((json!(told.exit_code), json!(told.signal)), (code, signal), "{end}");
        assert_eq!((launch.is_marked(), launch.slots()), (false, 0), "{end}: all is let go of");
        let again = ask::run(&["witness", ask::utf8(&launch.dir())]);
        assert_eq!(again.code, 0, "said once: {}", again.text());
        assert!(again.text().contains("its proof is final: observed"), "{}", again.text());
    }
}

#[test]
fn an_end_without_an_account_of_its_writers_frees_nothing() {
    if !tells("an end without an account") {
        return;
    }
    let launch = Launch::unobserved("cat \"$1/go\"; exit 3");
    let (exit, answer) = watched(&launch, &[ask::utf8(&launch.dir())]);
    assert_eq!((exit, &answer["outcome"]), (5, &json!("observed")), "{answer}");
    assert_eq!((&answer["proof"], &answer["exitCode"]), (&json!("unknown"), &json!(3)));
    assert_eq!((launch.proof().state, launch.slots()), (ProofState::Unknown, 1));
}

#[test]
fn a_witness_leaves_a_run_when_its_time_is_over_and_one_that_has_an_observer() {
    if !has_handles("a witness whose time is over") {
        return;
    }
    let launch = Launch::unobserved("cat \"$1/go\"");
    let dir = launch.dir();
    let outcome = ask::run(&["witness", ask::utf8(&dir), "--timeout", "20ms"]);
    assert_eq!(outcome.code, 7, "{}", outcome.text());
    assert!(outcome.text().starts_with("still-running  run-1\n"), "{}", outcome.text());
    assert_eq!(launch.proof().state, ProofState::Pending, "silence ends nothing");
    launch.go();

    let launch = Launch::of("cat \"$1/go\"");
    let outcome = ask::run(&["witness", ask::utf8(&launch.dir())]);
    assert_eq!(outcome.code, 0, "{}", outcome.text());
    let text = outcome.text();
    assert!(text.contains(&format!("process {}", launch.shim)), "{text}");
    launch.until_it_ends(|| launch.go());
}

#[test]
fn a_witness_does_nothing_about_a_run_of_elsewhere_or_without_a_runner() {
    let store = Store::new();
    let status = records::running("run-far", 1, now_ms());
    let run = store.run("run-far");
    run.status(&records::with(status, "hostname", "elsewhere"));
    let root = ask::utf8(store.root());
    let nobody = ask::run(&["witness", "run-far", "--root", root]);
    assert_eq!(nobody.code, 5, "{}", nobody.errors());
    assert!(nobody.errors().contains("names no runner instance"), "{}", nobody.errors());
    run.candidate(&records::candidate("run-far"));
    let before = tree::snapshot(store.root()).expect("ours");
    let outcome = ask::run(&["witness", "run-far", "--root", root]);
    assert_eq!(outcome.code, 5, "{}{}", outcome.text(), outcome.errors());
    assert!(outcome.text().contains("elsewhere"), "{}", outcome.text());
    let changes = tree::diff(&before, &tree::snapshot(store.root()).expect("ours"));
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(ask::run(&["witness", "run-none", "--root", root]).code, 4);
    let many = ask::run(&["witness", root]);
    assert_eq!(many.code, 2, "{}", many.errors());
}
