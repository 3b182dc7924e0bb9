//! `runstore run` with the real program as launcher, shim and runner.
//!
//! Theory of operation. A store of its own for each test, and commands that end by themselves or wait for a
//! pipe that the test opens. `run` in the foreground returns after the proof, so nothing is waited for.
//! Spec: RS-STEP-09, RS-START-35, RS-OBS-02.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use runstore::store::RealHost;
use runstore::store::host::{ProcessHost as _, WriteHost as _};
use serde_json::{Value, json};
use testkit::program::Outcome;

use crate::ask;
use crate::launch::has_handles;

pub(crate) struct Root(tempfile::TempDir);

impl Root {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.path().join("new").join("store")
    }

    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        let store = self.store();
        let mut words = vec!["run", "--root", ask::utf8(&store)];
        words.extend_from_slice(args);
        ask::run(&words)
    }

    pub(crate) fn detached(&self, args: &[&str]) -> Value {
        let mut words = vec!["--detach", "--format", "json"];
        words.extend_from_slice(args);
        let outcome = self.run(&words);
        assert_eq!(outcome.code, 0, "{}", outcome.errors());
        let answer = serde_json::from_slice(&outcome.stdout).expect("one object");
        ask::assert_valid(&answer);
        answer
    }

    /// A place beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Waits until a step of a run is at work, by its log.
    pub(crate) fn until_started(&self, run: &Path, step: usize) {
        let line = format!("\"stepIndex\":{step}");
        let host = RealHost::new();
        let is_there = || {
            let log = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
            log.lines().any(|l| l.contains("subagent.step.started") && l.contains(&line))
        };
        for _ in 0..2_000 {
            if is_there() {
                return;
            }
            host.wait_ms(10);
        }
        panic!("step {step} of {} is never at work in {}", run.display(), self.store().display());
    }

    /// The only run of the store, as `inspect` sees it when its shim has ended.
    pub(crate) fn settled(&self) -> Value {
        wait_for_the_shim(Path::new(self.report()["path"].as_str().expect("a path")));
        self.report()
    }

    fn report(&self) -> Value {
        let answer = ask::inspect(&self.store());
        assert_eq!(answer.runs().len(), 1, "{}", answer.json);
        answer.runs()[0].clone()
    }
}

pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("there")).expect("JSON")
}

fn read_log(run: &Value, step: usize) -> String {
    let path = Path::new(run["path"].as_str().expect("a path")).join(format!("output-{step}.log"));
    fs::read_to_string(path).unwrap_or_default()
}

/// A shim ends last: after the proof, and after the slot.
pub(crate) fn wait_for_the_shim(run: &Path) {
    let host = RealHost::new();
    let pid = read(&run.join(".runstore-observer.json"))["pid"].as_i64().expect("a number");
    // One that is not there any more has ended.
    if let Some(shim) = host.hold(pid).expect("there are handles") {
        assert!(host.wait_held(&shim, Some(20_000)).expect("waited"), "the shim ends");
    }
}

#[test]
fn commands_run_in_order_and_their_end_is_proven() {
    if !has_handles("commands_run_in_order_and_their_end_is_proven") {
        return;
    }
    let root = Root::new();
    let place = root.0.path().join("place");
    let write = |word: &str| format!("echo {word} >>{}", place.display());
    let (one, two, three) = (write("one"), write("two"), write("two"));
    let outcome = root.run(&[
        "--step",
        &one,
        "--parallel",
        &two,
        "--parallel",
        &three,
        "--",
        "sh",
        "-c",
        "cat \"$1\"; pwd",
        "x",
        ask::utf8(&place),
    ]);
    assert_eq!(outcome.code, 0, "{}", outcome.errors());
    let run = root.settled();
    assert_eq!((&run["verdict"], &run["recordedState"]), (&json!("finished"), &json!("complete")));
    assert_eq!(run["proof"]["counts"], true, "{run}");
    assert_eq!(run["flags"], json!([]), "nothing is left of it");
    let here = std::env::current_dir().expect("a directory");
    assert_eq!(read_log(&run, 3), format!("one\ntwo\ntwo\n{}\n", here.display()));
    let status = read(&Path::new(run["path"].as_str().expect("a path")).join("status.json"));
    let names: Vec<_> =
        status["steps"].as_array().expect("steps").iter().map(|s| &s["agent"]).collect();
    assert_eq!(names, ["sh", "sh", "sh", "sh"]);
    assert_eq!(status["mode"], "chain");
    let left: Vec<_> = fs::read_dir(root.store())
        .expect("there")
        .map(|e| e.expect("readable").file_name())
        .collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("async-cfg-")), "{left:?}");
}

#[test]
fn the_end_of_a_command_is_the_end_of_the_program() {
    if !has_handles("the_end_of_a_command_is_the_end_of_the_program") {
        return;
    }
    for (script, state) in
        [("exit 3", "failed"), ("kill -SEGV $$", "failed"), ("exit 0", "complete")]
    {
        let root = Root::new();
        let outcome = root.run(&["--name", "it", "--", "sh", "-c", script]);
        assert_eq!(outcome.code, i32::from(state != "complete"), "{script}: {}", outcome.errors());
        assert!(outcome.errors().contains(state), "{script}: {}", outcome.errors());
        let run = root.report();
        assert_eq!(
            (&run["verdict"], &run["recordedState"]),
            (&json!("finished"), &json!(state)),
            "{script}"
        );
    }
}

#[test]
fn a_detached_run_goes_on_alone_and_says_where_it_is() {
    if !has_handles("a_detached_run_goes_on_alone_and_says_where_it_is") {
        return;
    }
    let root = Root::new();
    let go = root.0.path().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, 0o600.into()).expect("a pipe can be made");
    // With all outputs closed the program has ended; nothing of the run holds them.
    let told = root.detached(&["--", "cat", ask::utf8(&go)]);
    assert_eq!(told["schema"], "runstore.run/1");
    let run = root.report();
    assert_eq!((&run["runId"], &run["path"]), (&told["runId"], &told["path"]));
    assert_eq!(run["liveness"], "live", "{run}");
    let pid = told["pid"].as_i64().expect("a number");
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the runner is there");
    fs::write(&go, "went\n").expect("a reader");
    let path = PathBuf::from(told["path"].as_str().expect("a path"));
    wait_for_the_shim(&path);
    assert_eq!(root.report()["verdict"], "finished");
    assert_eq!(read_log(&run, 0), "went\n");
}

#[test]
fn what_keeps_a_run_from_being_started_is_said_with_its_code() {
    let root = Root::new();
    let no_store = |outcome: &Outcome| {
        assert!(
            !root.store().join("async-subagent-runs").exists() || root_is_empty(&root),
            "{outcome:?}"
        );
    };
    let outcome = root.run(&["--cwd", "/there/is/no/such/place", "--", "true"]);
    assert_eq!(outcome.code, 2, "{}", outcome.errors());
    assert!(
        outcome.errors().contains("--cwd") && outcome.errors().contains("/there/is/no/such/place")
    );
    no_store(&outcome);
    let nothing = root.run(&["--detach"]);
    assert_eq!(nothing.code, 2, "there is nothing to be run");
    assert!(nothing.errors().contains("--step"), "{}", nothing.errors());
    no_store(&nothing);
    assert_eq!(
        root.run(&["--slot-limit", "1", "--", "true"]).code,
        2,
        "a limit is one of a session"
    );
    assert_eq!(root.run(&["--timeout", "soon", "--", "true"]).code, 2);
    let file = root.0.path().join("file");
    fs::write(&file, "").expect("room");
    let outcome = ask::run(&["run", "--root", ask::utf8(&file), "--", "true"]);
    assert_eq!(outcome.code, 74, "{}", outcome.errors());
    assert!(outcome.errors().contains(ask::utf8(&file)), "{}", outcome.errors());
}

fn root_is_empty(root: &Root) -> bool {
    fs::read_dir(root.store().join("async-subagent-runs"))
        .map_or(true, |mut runs| runs.next().is_none())
}

#[test]
fn a_session_has_no_more_runs_than_it_may_and_a_slot_is_free_after_the_end() {
    if !has_handles("a_session_has_no_more_runs_than_it_may_and_a_slot_is_free_after_the_end") {
        return;
    }
    let root = Root::new();
    let go = root.0.path().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, 0o600.into()).expect("a pipe can be made");
    let limit = ["--session", "S", "--slot-limit", "1", "--"];
    let told = root.detached(&[&limit[..], &["cat", ask::utf8(&go)]].concat());
    let outcome = root.run(&[&limit[..], &["true"]].concat());
    assert_eq!(outcome.code, 7, "{}", outcome.errors());
    assert!(outcome.errors().contains("--slot-limit"), "{}", outcome.errors());
    assert_eq!(ask::inspect(&root.store()).runs().len(), 1, "nothing is left of the second");
    fs::write(&go, "").expect("a reader");
    let path = PathBuf::from(told["path"].as_str().expect("a path"));
    wait_for_the_shim(&path);
    let outcome = root.run(&[&limit[..], &["true"]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.errors());
}

#[test]
fn a_run_ends_at_its_time() {
    if !has_handles("a_run_ends_at_its_time") {
        return;
    }
    let root = Root::new();
    let outcome = root.run(&["--timeout", "50ms", "--", "sleep", "1000"]);
    assert_eq!(outcome.code, 1, "{}", outcome.errors());
    let run = root.report();
    assert_eq!(
        (&run["verdict"], &run["recordedState"]),
        (&json!("finished"), &json!("failed")),
        "{run}"
    );
}

#[test]
fn a_run_in_the_foreground_shows_what_its_steps_write() {
    if !has_handles("a_run_in_the_foreground_shows_what_its_steps_write") {
        return;
    }
    let root = Root::new();
    let outcome =
        root.run(&["--", "sh", "-c", "printf 'a\\033[1mb\\n'; echo no-end >&2; printf last"]);
    assert_eq!(outcome.text(), "a\u{1b}[1mb\nno-end\nlast", "as it is: {}", outcome.errors());
    assert!(outcome.errors().contains("is complete"), "{}", outcome.errors());
    let root = Root::new();
    let both = root.run(&["--step", "echo one", "--step", "echo two"]);
    assert_eq!(both.text(), "==> step 0 <==\none\n==> step 1 <==\ntwo\n", "{}", both.errors());
    let json = root.run(&["--format", "json", "--", "sh", "-c", "echo hidden; exit 3"]);
    let answer: Value = serde_json::from_slice(&json.stdout).expect("one object");
    ask::assert_valid(&answer);
    assert_eq!((json.code, &answer["recordedState"]), (1, &json!("failed")), "{answer}");
    assert_eq!(answer["error"], "sh: it ended with code 3", "{answer}");
}

#[test]
fn a_signal_to_a_run_in_the_foreground_stops_it_in_order_and_a_second_one_leaves_it() {
    if !has_handles("a_signal_to_a_run_in_the_foreground_stops_it_in_order") {
        return;
    }
    // A step that listens ends at the first; one that does not is left by the second.
    for (script, second) in [("read x", false), ("trap '' TERM; read x; read x; read x", true)] {
        let root = Root::new();
        let go = root.path("go");
        rustix::fs::mkfifoat(rustix::fs::CWD, &go, 0o600.into()).expect("a pipe can be made");
        // Open at both ends for as long as it likes: nothing comes, and no end.
        let script = format!("exec <>{}; {script}", go.display());
        let store = root.store();
        let mut child = std::process::Command::new(ask::binary())
            .args(["run", "--root", ask::utf8(&store), "--", "sh", "-c", &script])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut next = || lines.next().expect("a line").expect("text");
        let told = next();
        let id = told.split(' ').nth(1).expect("the id is the second word").to_owned();
        let path = store.join("async-subagent-runs").join(&id);
        root.until_started(&path, 0);
        let pid = rustix::process::Pid::from_child(&child);
        let send = || {
            rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there")
        };
        send();
        assert!(next().contains("asked to stop"), "the first");
        if second {
            send();
            let left = next();
            assert!(left.contains("left to itself") && left.contains("runstore wait"), "{left}");
        } else {
            let end = next();
            assert!(end.contains("is stopped"), "{end}");
        }
        assert_eq!(child.wait().expect("it ends").code(), Some(1));
        // The one that does not listen is killed after its time.
        wait_for_the_shim(&path);
        let run = root.report();
        assert_eq!(
            (&run["verdict"], &run["recordedState"]),
            (&json!("finished"), &json!("stopped")),
            "{run}"
        );
    }
}
