//! Strings that want to speak to the terminal.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use testkit::process::now_ms;
use testkit::records::{self, with};

use super::Hostile;
use crate::ask::{self, assert_harmless, utf8};

/// Everything that a terminal obeys: escape sequences in both notations, a title, a bell, carriage
/// return and backspace, a forged line, and characters that reorder or hide what is near them.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}2J\u{9d}x\u{9c}\r\u{8}\u{0}\t\u{7f}\
    \nFORGED finished\n\u{202e}txt\u{2066}\u{2069}\u{200f}\u{61c}\u{feff}\u{2028}FORGED\u{85}end";

/// The same without what a file name cannot hold.
fn evil_name() -> String {
    EVIL.replace(['\0', '/'], "")
}

/// A value in which every string is evil.
fn poison(value: &Value) -> Value {
    match value {
        Value::String(_) => json!(EVIL),
        Value::Array(items) => items.iter().map(poison).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), poison(value))).collect()
        }
        other => other.clone(),
    }
}

/// A document once for each of its strings, with that string evil, and once with all.
fn poisoned(document: &Value) -> Vec<Value> {
    let members = document.as_object().expect("a document is an object");
    let one = members.iter().map(|(key, value)| with(document.clone(), key, poison(value)));
    one.chain([poison(document)]).collect()
}

fn assert_no_forgery(what: &str, text: &str) {
    let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert_eq!(forged, None, "{what}: a string from a file begins no line:\n{text}");
}

/// Asks for text in every way and checks that nothing reaches the terminal.
fn assert_silent(hostile: &Hostile, what: &str) {
    hostile.assert_answered(what);
    let root = utf8(hostile.store.root());
    let runs = format!("{root}/async-subagent-runs");
    for args in [
        vec!["inspect", root, "--verbose"],
        vec!["inspect", &runs],
        vec!["list", root, "--all"],
        vec!["list", root],
        vec!["inspect", root, "--session", EVIL.split('\0').next().unwrap_or_default()],
    ] {
        let plain = ask::run(&args);
        assert_harmless(what, &plain.stdout);
        assert_harmless(what, &plain.stderr);
        assert_no_forgery(what, &plain.text());
        assert_no_forgery(what, &plain.errors());
        let mut coloured = args.clone();
        coloured.extend(["--color", "always"]);
        let outcome = ask::run(&coloured);
        assert_harmless(what, without_colours(&outcome.text()).as_bytes());
        assert_harmless(what, without_colours(&outcome.errors()).as_bytes());
    }
}

/// A text without the colours that the program itself may set: `ESC [ digits ; digits m`.
fn without_colours(text: &str) -> String {
    let colour = regex_lite::Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern");
    colour.replace_all(text, "").into_owned()
}

#[test]
fn strings_of_a_status_reach_no_terminal() {
    let hostile = Hostile::new();
    let mut documents = Vec::new();
    let extra = [
        ("error", json!("x")),
        ("hostname", json!("h")),
        ("pidNamespaceScope", json!("pid:[1]")),
        ("sessionFile", json!("/x.jsonl")),
        ("toolCallId", json!("t")),
        ("lane", json!("x")),
        ("runnerIdentity", json!({"startIdentity": "x", "bootId": "b"})),
        ("parentWorkflowRunId", json!("p")),
        ("outputFile", json!("/x")),
    ];
    let steps = json!([{"agent": "a", "status": "failed", "error": "e", "runId": "c", "async": true,
        "sessionFile": "f", "model": 7}]);
    for base in [records::running("r", 999_999_999, 5), records::complete("r", 5)] {
        let with_all = extra.iter().fold(base, |doc, (key, value)| with(doc, key, value.clone()));
        documents.extend(poisoned(&with(with_all, "steps", steps.clone())));
    }
    for (i, status) in documents.iter().enumerate() {
        let run = hostile.store.run(&format!("r-{i:03}"));
        run.status(status).proof(&poison(&records::proof("r", 5)));
    }
    assert_silent(&hostile, "strings of a status");
}

#[test]
fn strings_of_other_records_reach_no_terminal() {
    let hostile = Hostile::new();
    let store = &hostile.store;
    let mut n = 0;
    let mut next = |kind: &str| {
        n += 1;
        store.run(&format!("{kind}-{n:03}"))
    };
    for proof in poisoned(&with(records::proof("r", 5), "reason", "x")) {
        let run = next("proof");
        run.status(&records::complete("r", 5)).proof(&proof);
    }
    for candidate in poisoned(&with(records::candidate("r"), "sessionFile", "/x")) {
        next("candidate").status(&records::complete("r", 5)).candidate(&candidate);
    }
    let startup = json!({"state": "error", "token": "t", "pid": 999_999_999, "error": "e"});
    for message in poisoned(&startup) {
        let run = next("startup");
        run.startup(&message)
            .json("runner-startup-ack.json", &json!({"action": EVIL, "token": EVIL}));
        next("startup").status(&records::running("r", 999_999_999, 5)).startup(&message);
    }
    let event = json!({"type": "subagent.run.completed", "ts": 5, "runId": "r", "status": "failed",
        "error": "e", "message": "m", "agent": "a"});
    for event in poisoned(&event) {
        let run = next("event");
        run.status(&records::running("r", 999_999_999, 5)).event(&event);
        run.event_text(EVIL).event_text("\n{\"type\":\"\x1b[2J");
    }
    for (i, result) in poisoned(&with(records::result("r", 5), "error", "e")).iter().enumerate() {
        store.result(&format!("result-{i}"), result);
        store.run(&format!("result-{i}")).status(&records::complete("r", 5));
        next("workflow").status(&records::complete("r", 5)).json("workflow-result.json", result);
    }
    for (i, lease) in poisoned(&records::lease("r", 1, "h", 5)).iter().enumerate() {
        store.lease(&format!("lease-{i}"), lease);
    }
    for (i, slot) in (0..).zip(poisoned(&records::slot("r", 5))) {
        store.slot("pool", i, &slot);
    }
    assert_silent(&hostile, "strings of other records");
}

#[test]
fn a_stderr_log_reaches_no_terminal() {
    let hostile = Hostile::new();
    let raw = b"\x9b2J\xff\xfe \xe2\x80\xae \x1b[2J\x07\n".repeat(50);
    for (i, bytes) in
        [EVIL.as_bytes().to_vec(), raw, EVIL.repeat(500).into_bytes()].iter().enumerate()
    {
        let run = hostile.store.run(&format!("r-{i}"));
        run.status(&records::running("r", 999_999_999, 5)).file("runner.stderr.log", bytes);
        run.file("output-0.log", bytes);
    }
    assert_silent(&hostile, "a stderr log");
}

#[test]
fn names_reach_no_terminal() {
    let hostile = Hostile::new();
    let store = &hostile.store;
    let name = evil_name();
    records::finish(&store.run(&name), now_ms());
    store.run(&format!("b{name}")).status(&records::running("x", 999_999_999, 5));
    let run = store.run("names");
    run.status(&records::running("names", 999_999_999, 5));
    run.file(&name, "").file(&format!(".status.json.1.2.{name}.tmp"), "{}");
    run.file(&format!(".{name}.12.1790000000000.abc.tmp"), "{}");
    run.file(&format!("control/stop-requests/{name}.json"), "{}");
    run.file(&format!("append-requests/{name}.json"), "{}");
    run.folder(&format!("d{name}"));
    store.nested_run(&name, &format!("n{name}")).status(&records::running("n", 999_999_999, 5));
    std::os::unix::fs::symlink("x", store.root().join(format!("async-subagent-runs/l{name}")))
        .expect("made");
    store.file(&format!("async-subagent-results/{name}.json"), "{");
    store.file(&format!("async-subagent-results/result-pending/{name}/x.json"), "{");
    store.file(&format!("async-subagent-runs/.active-runs/{name}"), "");
    store.active_marker("gone\u{202e}").active_marker("names");
    store.lease(&name, &json!(7)).slot(&name, 0, &json!(7));
    store.file(&format!("session-leases/l{name}"), "");
    store.file(&format!("session-active-async-capacity/pool/{name}/owner.json"), "");
    let runs = store.root().join("async-subagent-runs");
    fs::create_dir(runs.join(OsStr::from_bytes(b"\x1b[2J\xff\x9b"))).expect("made");
    // A name of 255 bytes that is no text: each byte takes more room when it is shown.
    fs::create_dir(runs.join(OsStr::from_bytes(&b"\x9b".repeat(255)))).expect("made");
    assert_silent(&hostile, "names");
}

#[test]
fn a_store_with_an_evil_path_reaches_no_terminal() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join(evil_name());
    let run = root.join("async-subagent-runs/r1");
    fs::create_dir_all(&run).expect("made");
    let run = testkit::store::Run::at(run);
    run.status(&records::running("r1", 999_999_999, 5));
    fs::create_dir(root.join("session-leases")).expect("made");
    let root = utf8(&root);
    for args in [
        vec!["inspect", root],
        vec!["inspect", root, "--format", "jsonl"],
        vec!["inspect", "no-such-run", "--root", root],
        vec!["inspect", utf8(run.path())],
        vec!["inspect", "x", "--root", utf8(run.path())],
        vec!["list", root, "--all"],
    ] {
        let outcome = ask::run(&args);
        if !args.contains(&"jsonl") {
            assert_harmless(&format!("{args:?}"), &outcome.stdout);
        }
        assert_harmless(&format!("{args:?}"), &outcome.stderr);
        assert_no_forgery("a path", &outcome.text());
        assert_no_forgery("a path", &outcome.errors());
    }
}

#[test]
fn evil_arguments_reach_no_terminal() {
    let hostile = Hostile::new();
    let root = utf8(hostile.store.root());
    let name = evil_name();
    let (path, now) = (format!("/nowhere/{name}"), format!("--now={name}"));
    for args in [
        vec!["inspect", &*path],
        vec!["inspect", &*name],
        vec!["inspect", &*name, "--root", root],
        vec!["explain", &*name],
        vec!["spec", &*name],
        vec!["inspect", root, "--host", &*name],
        vec!["inspect", root, "--session", &*name],
        vec!["list", root, "--session", &*name],
        vec!["inspect", root, "--verdict", &*name],
        vec!["inspect", root, "--format", &*name],
        vec!["inspect", root, &*now],
        vec![&*name],
        vec!["list", &*path],
        vec!["inspect", root, &format!("--{name}")],
    ] {
        let outcome = ask::run(&args);
        assert_harmless(&format!("{args:?}"), &outcome.stdout);
        assert_harmless(&format!("{args:?}"), &outcome.stderr);
    }
}
