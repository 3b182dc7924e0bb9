//! A launcher that is killed once its runner was let in: the end of the runner is proven all the same.

use std::fs;
use std::process::Stdio;

use runstore::protocol::layout;
use runstore::store::host::ProcessHost as _;
use serde_json::{Value, json};

use crate::ask;
use crate::launch::has_handles;
use crate::place::{Place, until};
use crate::run_verb::read;

use super::may_watch;
use super::rig::{Effect, Rig, Role};

/// The proof says that this was seen, and nothing is held for the run any more.
fn is_proven(place: &Place, run: &std::path::Path, (code, signal): (Value, Value), at: &str) {
    let proof = read(&run.join(layout::PROOF));
    assert_eq!(proof["state"], "observed", "{at}: {proof}");
    let runner = &proof["instances"][0];
    assert_eq!((&runner["exitCode"], &runner["signal"]), (&code, &signal), "{at}: {proof}");
    let root = place.root();
    let active = root.join(layout::RUNS_DIR).join(layout::ACTIVE_INDEX);
    assert_eq!(fs::read_dir(active).expect("there").count(), 0, "{at}: no marker is left");
    assert_eq!(place.slots("S"), 0, "{at}: no slot is left");
    let answer = ask::inspect(run);
    let (verdict, liveness, because) = answer.only();
    assert_eq!((&*verdict, &*liveness), ("orphaned", "dead"), "{at}: {because}");
}

#[test]
fn every_end_of_a_runner_is_proven_although_its_launcher_was_killed_after_proceed() {
    let test = "a launcher killed after proceed";
    if !may_watch(test) {
        return;
    }
    for (end, code, signal) in [
        ("exit 3", json!(3), Value::Null),
        ("kill -SEGV $$", Value::Null, json!("SIGSEGV")),
        ("kill -KILL $$", Value::Null, json!("SIGKILL")),
    ] {
        // Lets itself in, and ends when its launcher is gone.
        let script = format!(
            "for config; do :; done\nroot=$(dirname \"$config\")\nrun=$root/async-subagent-runs/run-1\n\
             until [ -e \"$run/runner-startup-proceed.json\" ]; do sleep 0.01; done\n\
             launcher=$(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' \"$run/.runstore-launch.json\")\n\
             while kill -0 \"$launcher\" 2>/dev/null; do sleep 0.01; done\n{end}"
        );
        let rig = Rig::new(Role::Launcher, false).with_runner(&script);
        assert!(rig.launch(Some(&Effect::of("exit_group", 1))), "strace may attach");
        assert!(rig.was_killed(), "{end}: {}", rig.errors());
        let run = rig.root().join(layout::RUNS_DIR).join("run-1");
        is_proven(rig.place(), &run, (code, signal), end);
    }
}

#[test]
fn the_program_in_the_foreground_is_killed_and_its_runner_ends_by_a_signal() {
    if !has_handles("runstore run killed") {
        return;
    }
    for (word, name) in [("SEGV", "SIGSEGV"), ("KILL", "SIGKILL"), ("TERM", "SIGTERM")] {
        let place = Place::new();
        let (ready, go) = (place.pipe("ready"), place.pipe("go"));
        let step = format!("echo here >'{}'; cat '{}'", ready.display(), go.display());
        let words = ["--session", "S", "--slot-limit", "1", "--", "sh", "-c", &step];
        let mut launcher = place.run(&words);
        let mut launcher = launcher.stderr(Stdio::null()).spawn().expect("the program");
        assert_eq!(fs::read_to_string(&ready).expect("a writer"), "here\n", "{word}: it works");
        let run = place.only_run();
        // The status with the runner's process is there before a step begins.
        let pid = read(&run.join("status.json"))["pid"].as_i64().expect("a number");
        launcher.kill().expect("ours");
        launcher.wait().expect("ours");
        let runner = place.host.hold(pid).expect("handles").expect("it outlives its launcher");
        // The standard library takes the first SIGSEGV for one of its own and gives the handler up.
        until("a signal ends the runner", || {
            let is_over = place.host.wait_held(&runner, Some(20)).expect("a handle");
            if !is_over {
                let pid = pid.to_string();
                let sent = std::process::Command::new("kill").args(["-s", word, &pid]).output();
                sent.expect("there is kill");
            }
            is_over
        });
        place.until_nothing_runs();
        is_proven(&place, &run, (Value::Null, json!(name)), word);
    }
}
