//! `runstore interrupt` and `runstore resume`: a run is paused, and another one does the rest.
//!
//! Theory of operation. See `run_verb`. The first step of a run tells in a file that it was done, the second one
//! waits for a pipe, so that the run is interrupted while it waits; the third one tells that it was done. What
//! is in the file says how often each was done. Spec: RS-STEP-10, RS-START-46, RS-SLOT-17, RS-OBS-40.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::ask;
use crate::launch::has_handles;
use crate::run_verb::{Root, read, wait_for_the_shim};

/// A run that waits in its second step, and its answer.
fn waiting(root: &Root, more: &[&str]) -> Value {
    let (done, go) = (root.path("done"), root.path("go"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, 0o600.into()).expect("a pipe can be made");
    let tell = |word: &str| format!("echo {word} >>{}", done.display());
    // The reader waits until a writer has come and gone.
    let wait = format!("read x <{}; {}", go.display(), tell("two"));
    let (one, three) = (tell("one"), tell("three"));
    let words = ["--step", &one, "--step", &wait, "--step", &three];
    let told = root.detached(&[more, &words].concat());
    let path = Path::new(told["path"].as_str().expect("a path"));
    root.until_started(path, 1);
    told
}

fn interrupt(root: &Root, told: &Value) {
    let id = told["runId"].as_str().expect("an id");
    let store = root.store();
    let asked = ask::run(&["interrupt", id, "--root", ask::utf8(&store), "--wait"]);
    assert_eq!(asked.code, 0, "{}{}", asked.text(), asked.errors());
    wait_for_the_shim(Path::new(told["path"].as_str().expect("a path")));
}

fn resume(root: &Root, id: &str) -> testkit::program::Outcome {
    let store = root.store();
    ask::run(&["resume", id, "--root", ask::utf8(&store)])
}

fn report(root: &Root, id: &str) -> Value {
    let answer = ask::inspect(&root.store());
    let found = answer.runs().iter().find(|run| run["runId"] == id);
    found.unwrap_or_else(|| panic!("{id} is there: {}", answer.json)).clone()
}

#[test]
fn a_paused_run_is_resumed_once_and_nothing_is_done_twice() {
    if !has_handles("a_paused_run_is_resumed_once_and_nothing_is_done_twice") {
        return;
    }
    let root = Root::new();
    let told = waiting(&root, &["--session", "S", "--slot-limit", "1"]);
    let id = told["runId"].as_str().expect("an id");
    interrupt(&root, &told);
    let paused = report(&root, id);
    assert_eq!(
        (&paused["verdict"], &paused["resumable"]),
        (&json!("paused"), &json!(true)),
        "{paused}"
    );
    let store = root.store();
    let slots = |of: &str| {
        let answer = ask::inspect(&store);
        answer.json["slots"].as_array().expect("slots").iter().filter(|s| s["runId"] == of).count()
    };
    assert_eq!(slots(id), 1, "a paused run keeps its slot");
    // The step that was cut short is done again, and finds its writer.
    let go = root.path("go");
    let writer = std::thread::spawn(move || fs::write(go, "\n").expect("a reader comes"));
    let resumed = resume(&root, id);
    writer.join().expect("it wrote");
    assert_eq!(resumed.code, 0, "{}", resumed.errors());
    assert_eq!(fs::read_to_string(root.path("done")).expect("there"), "one\ntwo\nthree\n");
    let answer = ask::inspect(&store);
    let other = answer.runs().iter().find(|run| run["runId"] != id).expect("a new run").clone();
    wait_for_the_shim(Path::new(other["path"].as_str().expect("a path")));
    let other = report(&root, other["runId"].as_str().expect("an id"));
    assert_eq!(
        (&other["verdict"], &other["recordedState"]),
        (&json!("finished"), &json!("complete")),
        "{other}"
    );
    let status = read(&Path::new(other["path"].as_str().expect("a path")).join("status.json"));
    assert_eq!(
        status["steps"].as_array().expect("steps").len(),
        2,
        "what was done is no step any more"
    );
    assert_eq!(
        (slots(id), ask::inspect(&store).json["slots"].clone()),
        (0, json!([])),
        "the slot went over and is free"
    );
    assert_eq!(ask::inspect(&store).json["leases"], json!([]), "the session is free");
    let again = resume(&root, id);
    assert_eq!(again.code, 1, "{}", again.errors());
    assert!(again.errors().contains("nothing is left to be done"), "{}", again.errors());
    assert_eq!(fs::read_to_string(root.path("done")).expect("there"), "one\ntwo\nthree\n");
}

#[test]
fn what_a_session_file_holds_already_stays() {
    if !has_handles("what_a_session_file_holds_already_stays") {
        return;
    }
    let root = Root::new();
    let told = waiting(&root, &["--session", "S"]);
    let id = told["runId"].as_str().expect("an id");
    interrupt(&root, &told);
    let status = read(&Path::new(told["path"].as_str().expect("a path")).join("status.json"));
    let file = Path::new(status["sessionFile"].as_str().expect("it is named"));
    // As if an agent had spoken there, and the last write was cut off.
    let before = fs::read_to_string(file).expect("there");
    let before = format!("{{\"type\":\"message\"}}\n{before}{{\"type\":\"mess");
    fs::write(file, &before).expect("ours");
    let go = root.path("go");
    let writer = std::thread::spawn(move || fs::write(go, "\n").expect("a reader comes"));
    assert_eq!(resume(&root, id).code, 0);
    writer.join().expect("it wrote");
    let after = fs::read_to_string(file).expect("there");
    let line = after.strip_prefix(&format!("{before}\n")).expect("what was there stays");
    let last: Value = serde_json::from_str(line).expect("one line of JSON");
    assert_eq!((&last["type"], &last["steps"]), (&json!("runstore.session"), &json!([])));
}

#[test]
fn a_run_that_is_not_paused_is_not_resumed_and_says_why() {
    if !has_handles("a_run_that_is_not_paused_is_not_resumed_and_says_why") {
        return;
    }
    let root = Root::new();
    assert_eq!(root.run(&["--", "true"]).code, 0);
    let finished = root.settled();
    let status = read(&Path::new(finished["path"].as_str().expect("a path")).join("status.json"));
    assert_eq!(status["sessionFile"], Value::Null, "a file that is not there is not named");
    let refused = resume(&root, finished["runId"].as_str().expect("an id"));
    assert_eq!(refused.code, 1, "{}", refused.errors());
    assert!(
        refused.errors().contains("is not resumed") && refused.errors().contains("inspect"),
        "{}",
        refused.errors()
    );
    let unknown = resume(&root, "no-such-run");
    assert_eq!(unknown.code, 4, "{}", unknown.errors());
    assert_eq!(ask::inspect(&root.store()).runs().len(), 1, "nothing was made");
}

#[test]
fn the_session_of_an_agent_is_left_to_its_own_program() {
    if !has_handles("the_session_of_an_agent_is_left_to_its_own_program") {
        return;
    }
    let root = Root::new();
    let told = waiting(&root, &[]);
    interrupt(&root, &told);
    let path = Path::new(told["path"].as_str().expect("a path"));
    let status = read(&path.join("status.json"));
    let session = status["sessionFile"].as_str().expect("a file").to_owned();
    fs::write(&session, "{\"type\":\"session\",\"id\":\"x\"}\n").expect("room");
    let refused = resume(&root, told["runId"].as_str().expect("an id"));
    assert_eq!(refused.code, 1, "{}", refused.errors());
    assert!(refused.errors().contains("the program that started it"), "{}", refused.errors());
    fs::remove_file(&session).expect("there");
    let gone = resume(&root, told["runId"].as_str().expect("an id"));
    assert_eq!(gone.code, 1, "{}", gone.errors());
    assert!(gone.errors().contains("the session file is gone"), "{}", gone.errors());
    assert_eq!(ask::inspect(&root.store()).runs().len(), 1, "nothing was made");
}
