//! The verb `logs`: what steps wrote, also while they write, also while their log is moved aside.
//!
//! Theory of operation. Logs at rest are files that a test lays down. For what grows there is a real run (see
//! `launch` and `runner`) and the real program that follows it; the program ends by itself when the run does.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use runstore::protocol::layout;
use runstore::store::host::{Host as _, RealHost};
use runstore::store::logs::Cursor;
use serde_json::{Value, json};
use testkit::process::{Live, identity, now_ms, skip};
use testkit::records::{self, with};
use testkit::store::Run;
use testkit::{Store, tree};

use crate::ask::{self, assert_harmless, utf8};
use crate::launch::has_handles;
use crate::runner::{launch, sh};

fn logs(run: &Run, more: &[&str]) -> (i32, String, String) {
    let mut args = vec!["logs", utf8(run.path())];
    args.extend_from_slice(more);
    let outcome = ask::run(&args);
    (outcome.code, outcome.text(), outcome.errors())
}

fn ended(store: &Store, steps: &Value) -> Run {
    let run = store.run("run-1");
    records::finish(&run, now_ms());
    run.status(&with(records::complete("run-1", now_ms()), "steps", steps.clone()));
    run
}

/// Covers RS-OBS-32.
#[test]
fn what_was_moved_aside_comes_first_and_each_step_is_named() {
    let store = Store::new();
    let steps = json!([{"agent": "a", "status": "complete"}, {"agent": "b", "status": "pending"}]);
    let run = ended(&store, &steps);
    run.file("output-0.previous.log", "one\n").file("output-0.log", "two\nthree");
    run.file("output-1.log", "four\n").file("runner.stderr.log", "warning\n");
    let before = tree::snapshot(store.root()).expect("ours");
    let all = "==> step 0 <==\none\ntwo\nthree\n==> step 1 <==\nfour\n";
    assert_eq!(logs(&run, &[]), (0, all.to_owned(), String::new()));
    assert_eq!(logs(&run, &["--follow"]).1, all, "it has ended, so it is over");
    assert_eq!(logs(&run, &["--step", "0"]).1, "one\ntwo\nthree", "as it is");
    assert_eq!(logs(&run, &["--step", "0", "--lines", "2"]).1, "two\nthree");
    assert_eq!(logs(&run, &["--step", "0", "-n", "9"]).1, "one\ntwo\nthree");
    assert_eq!(logs(&run, &["--step", "0", "-n", "0"]).1, "");
    assert_eq!(logs(&run, &["--stderr"]).1, "warning\n");
    let lines: Vec<Value> = logs(&run, &["--format", "jsonl"])
        .1
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let line = |step: u32, text: &str| json!({"step": step, "text": text});
    assert_eq!(lines, [line(0, "one"), line(0, "two"), line(1, "four"), line(0, "three")]);
    let (_, text, _) = logs(&run, &["--stderr", "--format", "json"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["schema"], "runstore.logs/1");
    ask::assert_valid(&answer);
    assert_eq!(answer["lines"], json!([{"log": "runner.stderr.log", "text": "warning"}]));
    let changes = tree::diff(&before, &tree::snapshot(store.root()).expect("ours"));
    assert!(changes.is_empty(), "looking changes nothing: {changes:?}");
}

#[test]
fn without_a_log_it_says_so_and_why() {
    let store = Store::new();
    let steps = json!([{"agent": "a", "status": "complete"}, {"agent": "b", "status": "pending"}]);
    let run = ended(&store, &steps);
    for (args, why) in [
        (&[][..], "no step has written anything; the run is finished"),
        (&["--step", "0"], "step 0 wrote nothing; it is complete"),
        (&["--step", "1"], "step 1 has not begun; the run is finished"),
        (&["--stderr"], "its runner wrote nothing on standard error; the run is finished"),
    ] {
        let (code, text, errors) = logs(&run, args);
        assert_eq!((code, text.as_str(), errors.trim_end()), (0, "", why), "{args:?}");
    }
    let left = store.run("run-left");
    left.status(&records::running("run-left", 999_999_999, now_ms()));
    left.file("runner.stderr.log", "no model\n");
    let (_, _, errors) = logs(&left, &[]);
    assert!(errors.contains("the run is orphaned; --stderr shows"), "{errors}");
    let (_, text, _) = logs(&run, &["--format", "json"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    ask::assert_valid(&answer);
    assert_eq!((&answer["lines"], &answer["because"].is_string()), (&json!([]), &true), "{text}");
    let (code, _, errors) = logs(&run, &["--step", "2"]);
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("there is no step 2; the run has 2"), "{errors}");
}

#[test]
fn what_is_no_plain_file_is_not_read() {
    let store = Store::new();
    let run = ended(&store, &json!([{"agent": "a", "status": "complete"}]));
    let outside = store.beside("outside").join("secret");
    fs::write(&outside, "secret").expect("room");
    run.link("output-0.log", &outside);
    let (code, text, errors) = logs(&run, &["--step", "0"]);
    assert_eq!((code, text.as_str()), (8, ""), "{errors}");
    assert!(errors.contains("a symbolic link"), "{errors}");
    let path = run.path().join("output-0.log");
    fs::remove_file(&path).expect("ours");
    assert!(Command::new("mkfifo").arg(&path).status().expect("it can be run").success());
    let (code, _, errors) = logs(&run, &["--step", "0"]);
    assert_eq!(code, 8, "it waits for nobody: {errors}");
}

/// Covers RS-OBS-33.
#[test]
fn a_terminal_gets_no_control_characters_and_a_pipe_gets_the_bytes() {
    let store = Store::new();
    let run = ended(&store, &json!([{"agent": "a", "status": "complete"}]));
    let hostile = b"\x1b]0;title\x07\ta\r\nb\xff\xe2\x80\xae \xc3\xa4\n";
    run.file("output-0.log", hostile);
    let outcome = ask::run(&["logs", utf8(run.path())]);
    assert_eq!(outcome.stdout, hostile, "data for the next program");
    // The program `script` gives it a terminal.
    let line = format!("{} logs {}", utf8(&ask::binary()), utf8(run.path()));
    let shown = Command::new("script").args(["-qec", &line, "/dev/null"]).output();
    let Ok(shown) = shown else { return skip("logs on a terminal", "there is no script") };
    let text = String::from_utf8(shown.stdout).expect("text").replace("\r\n", "\n");
    assert_harmless("logs", text.replace('\t', " ").as_bytes());
    assert_eq!(text, "\\u{1b}]0;title\\u{7}\ta\nb\u{fffd}\\u{202e} \u{e4}\n");
}

#[test]
fn the_last_lines_are_found_from_the_end_of_a_long_log() {
    let store = Store::new();
    let run = ended(&store, &json!([{"agent": "a", "status": "complete"}]));
    let long: String = (0..60_000).map(|n| format!("line {n}\n")).collect();
    run.file("output-0.log", &long);
    assert_eq!(logs(&run, &["-n", "2"]).1, "line 59998\nline 59999\n");
    let many = logs(&run, &["-n", "20000"]).1;
    assert!(many.starts_with("line 40000\n") && many.ends_with("line 59999\n"));
    assert_eq!(logs(&run, &[]).1, long);
    run.file("output-0.log", "x".repeat(20 << 20));
    assert_eq!(logs(&run, &["-n", "1"]).1.len(), 16 << 20, "as much of one line as is looked for");
}

#[test]
fn it_is_followed_across_a_log_that_is_moved_aside_until_the_run_ends() {
    if !has_handles("logs of a live run") {
        return;
    }
    // More than the bound of the log (1 MiB) after the follower is there, and a last word.
    let flood = "echo first; cat \"$ROOT/ready\"; i=0; while [ $i -lt 30000 ]; do \
                 echo \"line $i of a step that writes a lot\"; i=$((i+1)); done; printf last";
    let launch = launch(&json!([[sh(flood)]]));
    launch.go();
    let root = launch.root.path().to_owned();
    let mut follower = Command::new(ask::binary())
        .args(["logs", "-f", "run-1", "--root", utf8(&root)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut out = BufReader::new(follower.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    assert_eq!(line, "first\n", "it is shown while the step waits");
    launch.until_it_ends(|| launch.open("ready"));
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let mut errors = String::new();
    follower.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
    assert_eq!(follower.wait().expect("ours").code(), Some(0), "{errors}");
    assert!(launch.dir().join("output-0.previous.log").exists(), "it was moved aside");
    assert!(rest.ends_with("last"), "everything was printed");
    let expected: String =
        (0..30_000).map(|n| format!("line {n} of a step that writes a lot\n")).collect();
    if errors.is_empty() {
        assert!(rest == expected + "last", "every line once, in order");
    } else {
        assert!(errors.contains("overwritten before it was read"), "{errors}");
    }
}

#[test]
fn an_orphan_is_followed_to_what_it_left() {
    let store = Store::new();
    let mut process = Live::start();
    let who = json!({"startIdentity": identity(process.pid()).start});
    let run = store.run("run-1");
    run.status(&with(records::running("run-1", process.pid(), now_ms()), "runnerIdentity", who));
    run.file("output-0.log", "words\n");
    let mut follower = Command::new(ask::binary())
        .args(["logs", "-f", utf8(run.path())])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut out = BufReader::new(follower.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    assert_eq!(line, "words\n");
    process.kill();
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!((follower.wait().expect("ours").code(), rest.as_str()), (Some(0), ""));
}

#[test]
fn recorded_runs_of_both_peers_show_what_their_steps_wrote() {
    for (peer, run) in [("pi-0.67.0", "success"), ("dm-0.65.4", "chain")] {
        let runs = format!(
            "{}/tests/golden/peer-runs/{peer}/{run}/final/{}/run-{run}",
            env!("CARGO_MANIFEST_DIR"),
            layout::RUNS_DIR
        );
        let outcome = ask::run(&["logs", &runs]);
        assert_eq!(outcome.code, 0, "{peer}: {}", outcome.errors());
        assert!(!outcome.text().is_empty(), "{peer}: {}", outcome.errors());
    }
}

/// Everything that a cursor has now, and whether something before it was lost.
fn drained(cursor: &mut Cursor, host: &RealHost, dir: &Path) -> (String, bool) {
    let dir = host.open_dir(dir).expect("there");
    let (mut text, mut lost) = (String::new(), false);
    loop {
        let piece = cursor.next(host, &dir).expect("readable");
        lost |= piece.lost;
        if piece.bytes.is_empty() {
            return (text, lost);
        }
        text += std::str::from_utf8(&piece.bytes).expect("text");
    }
}

/// Covers RS-OBS-32.
#[test]
fn a_cursor_goes_on_in_the_file_that_it_was_in_and_tells_of_gaps() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let (host, dir) = (RealHost::new(), top.path());
    let (log, aside) = (dir.join("output-0.log"), dir.join("output-0.previous.log"));
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&log).expect("room");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("room");
    };
    let rotate = || fs::rename(&log, &aside).expect("ours");
    let mut cursor = Cursor::begin("output-0.log");
    let told = |text: &str, lost: bool| (text.to_owned(), lost);
    assert_eq!(drained(&mut cursor, &host, dir), told("", false), "there is none yet");
    append("a");
    assert_eq!(drained(&mut cursor, &host, dir), told("a", false));
    append("b");
    rotate();
    assert_eq!(drained(&mut cursor, &host, dir), told("b", false), "no new one was begun");
    append("c");
    assert_eq!(drained(&mut cursor, &host, dir), told("c", false));
    append("d");
    rotate();
    append("e");
    assert_eq!(drained(&mut cursor, &host, dir), told("de", false), "the rest, then the new one");
    append("f");
    rotate();
    append("g");
    rotate();
    append("h");
    assert_eq!(drained(&mut cursor, &host, dir), told("gh", true), "what was dropped is told");
    fs::write(&log, "").expect("room");
    append("i");
    assert_eq!(drained(&mut cursor, &host, dir), told("i", true), "as long as before");
    fs::write(&log, "").expect("room");
    assert_eq!(drained(&mut cursor, &host, dir), told("", false), "shorter, and nothing there");
    append("j");
    assert_eq!(drained(&mut cursor, &host, dir), told("j", true), "it was cut in place");
    fs::remove_file(&aside).expect("ours");
    append("l");
    assert_eq!(drained(&mut cursor, &host, dir), told("l", false), "what was read may go");
    rotate();
    append("m");
    assert_eq!(drained(&mut cursor, &host, dir), told("m", false));
    fs::write(dir.join("other"), "new").expect("room");
    fs::rename(dir.join("other"), &log).expect("ours");
    assert_eq!(drained(&mut cursor, &host, dir), told("new", true), "replaced, not moved");
    let mut late = Cursor::begin("output-0.log");
    assert_eq!(drained(&mut late, &host, dir), told("jlnew", false), "all that is kept");
    let open = host.open_dir(dir).expect("there");
    let (mut end, text) = Cursor::last_lines(&host, &open, "output-0.log", 5).expect("readable");
    assert_eq!(text, b"jlnew", "lines that are one");
    append("k");
    assert_eq!(drained(&mut end, &host, dir), told("k", false), "only what is new");
    // After so many moves the number of the file that was read has been given to another one.
    for turn in 0..20 {
        rotate();
        append(&format!("turn {turn}, "));
    }
    assert_eq!(drained(&mut end, &host, dir), told("turn 18, turn 19, ", true), "a gap is told");
}

/// Covers RS-OBS-32.
#[test]
fn a_cursor_that_begins_at_the_end_knows_the_file_by_what_it_passed_over() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let (host, dir) = (RealHost::new(), top.path());
    let log = dir.join("output-0.log");
    for (lines, after) in [(0, "new\n"), (0, "anew\nlines\n"), (1, "b\nb\n"), (1, "longer\nb\nc\n")]
    {
        fs::write(&log, "a\nb\n").expect("room");
        let open = host.open_dir(dir).expect("there");
        let found = Cursor::last_lines(&host, &open, "output-0.log", lines).expect("readable");
        let (mut end, text) = found;
        assert_eq!(text, &b"b\n"[..2 * lines]);
        assert_eq!(drained(&mut end, &host, dir), (String::new(), false), "nothing is new");
        // Cut in place: the file keeps its number.
        fs::write(&log, after).expect("room");
        assert_eq!(drained(&mut end, &host, dir), (after.to_owned(), true), "{lines} {after:?}");
    }
}
