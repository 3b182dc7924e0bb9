//! Commands and runners that do not behave, under the real program: what becomes of them, and of their run.
//!
//! Theory of operation. Each test has a place of its own, so whatever is left of a run is found by its mark
//! ([`place`](crate::place)). A command that misbehaves is a step of `runstore run`; a runner that does is a
//! shell under the real shim, let in by the library's launcher, or the built-in runner itself. What a runner
//! leaves that was killed is in `shim`, single requests in `runner`.
//!
//! `RUNSTORE_FLOOD_BYTES` says how much a command floods its output with: 1 GB unless it is set.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use runstore::protocol::process::Presence;
use runstore::protocol::{layout, limits};
use runstore::store::host::Host as _;
use serde_json::{Value, json};
use testkit::driver;
use testkit::process::skip;

use crate::ask;
use crate::launch::has_handles;
use crate::place::{Place, until};
use crate::run_verb::read;

/// Runs one command as a step to the end of its run, with these options, and says how it ended: the state of
/// the run, its status, and its proof. Nothing is held for it.
fn step(place: &Place, options: &[&str], script: &str) -> (String, Value, Value) {
    let mut words = vec!["--detach", "--session", "S", "--slot-limit", "1"];
    words.extend_from_slice(options);
    words.extend_from_slice(&["--", "sh", "-c", script]);
    let out = place.run(&words).env("PLACE", place.path("")).output().expect("the program");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let run = place.only_run();
    let shim = read(&run.join(layout::OBSERVER))["pid"].as_i64().expect("a number");
    place.until_ended(shim);
    let (status, proof) = (read(&run.join(layout::STATUS)), read(&run.join(layout::PROOF)));
    assert_eq!(proof["state"], "observed", "{script}: {proof}");
    assert_eq!(proof["instances"][0]["exitCode"], 0, "{script}: the runner ended in order");
    let answer = ask::inspect(&run);
    assert_eq!(answer.only().0, "finished", "{script}: {}", answer.only().2);
    assert_eq!(place.slots("S"), 0, "{script}: the slot is free");
    (status["state"].as_str().expect("a word").to_owned(), status, proof)
}

#[test]
fn a_command_that_ignores_the_request_to_end_is_killed_after_its_time() {
    if !has_handles("a stubborn command under the program") {
        return;
    }
    let place = Place::new();
    let script = "trap '' TERM; while :; do sleep 1000; done";
    let (state, status, _) = step(&place, &["--timeout", "50ms"], script);
    assert_eq!((&*state, &status["timedOut"]), ("failed", &json!(true)));
    assert_eq!(status["steps"][0]["processSignal"], "SIGKILL", "{status}");
    place.until_nothing_runs();
}

#[test]
fn a_command_that_sleeps_through_its_deadline_is_ended() {
    if !has_handles("a sleeping command under the program") {
        return;
    }
    let place = Place::new();
    let (state, status, _) = step(&place, &["--timeout", "50ms"], "exec sleep 1000");
    assert_eq!((&*state, &status["timedOut"]), ("failed", &json!(true)));
    assert_eq!(status["steps"][0]["processSignal"], "SIGTERM", "{status}");
    place.until_nothing_runs();
}

#[test]
fn a_command_that_stops_itself_is_let_go_on_to_hear_that_its_time_is_over() {
    if !has_handles("a stopped command under the program") {
        return;
    }
    let place = Place::new();
    let (state, status, _) =
        step(&place, &["--timeout", "300ms"], "kill -STOP $$; exec sleep 1000");
    assert_eq!((&*state, &status["timedOut"]), ("failed", &json!(true)));
    assert_eq!(status["steps"][0]["processSignal"], "SIGTERM", "{status}");
    place.until_nothing_runs();
}

#[test]
fn what_a_command_leaves_by_forking_twice_ends_with_it() {
    if !has_handles("a forking command under the program") {
        return;
    }
    let place = Place::new();
    place.pipe("ready");
    let script = "(sh -c 'echo >\"$PLACE/ready\"; exec sleep 1000' &) & cat \"$PLACE/ready\"";
    let (state, _, proof) = step(&place, &[], script);
    assert_eq!(state, "complete");
    assert_eq!(proof["instances"][1]["processTree"]["state"], "observed", "{proof}");
    place.until_nothing_runs();
}

#[test]
fn a_daemon_of_a_command_is_left_alone_and_told() {
    let test = "a daemon of a command under the program";
    if !has_handles(test) {
        return;
    }
    if Command::new("setsid").arg("true").status().is_err() {
        return skip(test, "there is no setsid");
    }
    let place = Place::new();
    place.pipe("ready");
    let script = "setsid sh -c 'echo $$ >\"$PLACE/pid\"; echo >\"$PLACE/ready\"; exec sleep 1000' & \
                  cat \"$PLACE/ready\"";
    let (state, _, proof) = step(&place, &[], script);
    assert_eq!(state, "complete");
    assert_eq!(proof["instances"][1]["processTree"]["state"], "observed", "its group: {proof}");
    let pid = fs::read_to_string(place.path("pid")).expect("it said who it is");
    let pid: i64 = pid.trim().parse().expect("a number");
    assert_eq!(place.living(), [pid], "it left the run, and nothing else is there");
    assert_eq!(place.host.process(pid).presence, Presence::Present);
    let log = fs::read_to_string(place.only_run().join(layout::EVENTS)).expect("there");
    assert!(log.contains("1 processes of the run are left"), "{log}");
    Command::new("kill").arg(pid.to_string()).status().expect("there is kill");
    place.until_nothing_runs();
}

#[test]
fn a_command_that_floods_its_output_keeps_within_the_bound() {
    if !has_handles("a flood under the program") {
        return;
    }
    let place = Place::new();
    let bytes = std::env::var("RUNSTORE_FLOOD_BYTES").unwrap_or_else(|_| "1000000000".to_owned());
    let (state, ..) = step(&place, &[], &format!("head -c {bytes} /dev/zero; echo last"));
    assert_eq!(state, "complete");
    let run = place.only_run();
    for name in ["output-0.log", "output-0.previous.log"] {
        let len = fs::metadata(run.join(name)).expect("there").len();
        assert!(len <= limits::OUTPUT_MAX_BYTES, "{name}: {len}");
    }
    let kept = fs::read(run.join("output-0.log")).expect("there");
    assert!(kept.ends_with(b"\0last\n"), "the last part is what is kept");
    place.until_nothing_runs();
}

#[test]
fn a_command_that_closes_its_descriptors_is_waited_for() {
    if !has_handles("a command without descriptors under the program") {
        return;
    }
    let place = Place::new();
    let script = "exec <&- >&- 2>&-; : >\"$PLACE/worked\"; exit 7";
    let (state, status, _) = step(&place, &[], script);
    assert_eq!((&*state, &status["steps"][0]["exitCode"]), ("failed", &json!(7)));
    assert!(place.path("worked").exists(), "it was not taken for ended before");
    place.until_nothing_runs();
}

/// Sends a signal to a runner.
fn send(place: &Place, signal: &str, pid: i64) {
    assert_eq!(place.host.process(pid).presence, Presence::Present);
    let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(sent.expect("there is kill").success());
}

/// A run of one command that tells by the pipe `ready` that it is there; who its runner is.
fn under_way(place: &Place, options: &[&str], script: &str) -> (PathBuf, i64) {
    place.pipe("ready");
    let mut words = vec!["--detach", "--session", "S", "--slot-limit", "1"];
    words.extend_from_slice(options);
    let script = format!("echo >\"$PLACE/ready\"; {script}");
    words.extend_from_slice(&["--", "sh", "-c", &script]);
    let out = place.run(&words).env("PLACE", place.path("")).output().expect("the program");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fs::read(place.path("ready")).expect("a writer");
    let run = place.only_run();
    let pid = read(&run.join(layout::STATUS))["pid"].as_i64().expect("a number");
    (run, pid)
}

#[test]
fn a_stopped_runner_is_alive_and_overdue_and_ends_the_run_when_it_goes_on() {
    if !has_handles("a stopped runner") {
        return;
    }
    let place = Place::new();
    let (run, pid) = under_way(&place, &["--timeout", "2s"], "exec sleep 1000");
    send(&place, "STOP", pid);
    let is_overdue = || {
        let answer = ask::inspect(&run);
        assert_eq!(answer.only().0, "running", "it lives: {}", answer.only().2);
        answer.runs()[0]["flags"].as_array().expect("flags").contains(&json!("overdue"))
    };
    until("it is overdue", is_overdue);
    assert_eq!(place.slots("S"), 1, "nothing is let go of");
    send(&place, "CONT", pid);
    place.until_nothing_runs();
    let answer = ask::inspect(&run);
    assert_eq!(answer.only().0, "finished", "{}", answer.only().2);
    assert_eq!(read(&run.join(layout::STATUS))["timedOut"], true);
    assert_eq!(place.slots("S"), 0);
}

#[test]
fn a_runner_that_is_asked_to_end_leaves_its_steps_to_the_shim() {
    if !has_handles("a runner that gets a signal") {
        return;
    }
    let place = Place::new();
    let (run, pid) = under_way(&place, &[], "trap '' TERM; while :; do sleep 1000; done");
    send(&place, "TERM", pid);
    place.until_nothing_runs();
    let proof = read(&run.join(layout::PROOF));
    assert_eq!(
        (&proof["state"], &proof["instances"][0]["signal"]),
        (&json!("observed"), &json!("SIGTERM"))
    );
    let answer = ask::inspect(&run);
    assert_eq!(answer.only().0, "orphaned", "it did not tell its end: {}", answer.only().2);
    assert_eq!(place.slots("S"), 0);
}

/// Launches a runner in the words of a shell, under the real shim. Whether it was let in, and what the
/// launcher said.
fn foreign(place: &Place, script: &str) -> (bool, String) {
    let runner = place.path("runner");
    let text = format!(
        "#!/bin/sh\nfor config; do :; done\nrun='{}'\nlet_in() {{ until [ -e \"$run/runner-startup-proceed.json\" ]; \
         do sleep 0.01; done; }}\n{script}\n",
        place.root().join(layout::RUNS_DIR).join("run-1").display()
    );
    fs::write(&runner, text).expect("room");
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o700)).expect("ours");
    let mut launcher = place.command(&driver::launch_run());
    launcher
        .arg(place.root())
        .args(["run-1", "-", "1500"])
        .arg(ask::binary())
        .arg(runner)
        .arg("true");
    let out = launcher.stdout(Stdio::null()).output().expect("the launcher");
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn a_runner_that_ignores_the_request_to_end_is_killed_and_its_start_has_failed() {
    if !has_handles("a stubborn runner") {
        return;
    }
    // It says that it cannot begin, and does not end.
    let script = "trap '' TERM\necho '{\"state\":\"error\",\"error\":\"no\",\"pid\":1}' >\"$run/x\"\n\
                  mv \"$run/x\" \"$run/runner-startup.json\"\nwhile :; do sleep 1000; done";
    // The launcher of a fresh run asks once, and a runner may be slow to say it.
    let refused = (0..20).find_map(|_| {
        let place = Place::new();
        let (was_let_in, said) = foreign(&place, script);
        if was_let_in {
            place.kill_all();
        }
        place.until_nothing_runs();
        (!was_let_in).then_some((place, said))
    });
    let Some((place, said)) = refused else {
        return skip("a stubborn runner", "it was let in each time before it could say no");
    };
    let run = place.only_run();
    assert!(said.contains("no"), "{said}");
    let proof = read(&run.join(layout::PROOF));
    assert_eq!(
        (&proof["state"], &proof["instances"][0]["signal"]),
        (&json!("observed"), &json!("SIGKILL"))
    );
    assert_eq!(ask::inspect(&run).only().0, "start-failed");
    assert_eq!(place.slots("S"), 0);
}

#[test]
fn a_runner_that_closes_its_descriptors_is_waited_for() {
    if !has_handles("a runner without descriptors") {
        return;
    }
    let place = Place::new();
    let (was_let_in, said) =
        foreign(&place, "let_in\nexec <&- >&- 2>&-\n: >\"$run/.worked\"\nexit 5");
    assert!(was_let_in, "{said}");
    place.until_nothing_runs();
    let run = place.only_run();
    assert!(run.join(".worked").exists(), "it was not taken for ended before");
    let proof = read(&run.join(layout::PROOF));
    assert_eq!(
        (&proof["state"], &proof["instances"][0]["exitCode"]),
        (&json!("observed"), &json!(5))
    );
    assert_eq!(place.slots("S"), 0);
}

#[test]
fn a_runner_that_floods_its_own_log_costs_a_reader_its_tail_only() {
    if !has_handles("a runner that floods") {
        return;
    }
    let place = Place::new();
    let script = "let_in\nhead -c 100000000 /dev/zero >&2\necho last words >&2\nexit 1";
    let (was_let_in, said) = foreign(&place, script);
    assert!(was_let_in, "{said}");
    place.until_nothing_runs();
    let run = place.only_run();
    let log = fs::metadata(run.join(layout::RUNNER_STDERR_LOG)).expect("there").len();
    assert!(log > 100_000_000, "nothing of it is cut: {log}");
    let answer = ask::inspect_with(&run, &["--verbose"]);
    let text = answer.json.to_string();
    assert!(text.contains("last words") && text.len() < 200_000, "{} bytes", text.len());
    assert_eq!(answer.only().0, "orphaned");
    assert_eq!(place.slots("S"), 0);
}
