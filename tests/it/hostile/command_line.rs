//! Questions that cannot be answered, and readers that go away.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use testkit::Store;
use testkit::program;
use testkit::records;

use super::Hostile;
use crate::ask::{self, utf8};

#[test]
fn a_wrong_command_line_is_usage() {
    let store = Store::new();
    let root = utf8(store.root());
    for args in [
        vec![],
        vec!["no-such-verb"],
        vec!["inspect", root, "--now", "yesterday"],
        vec!["inspect", root, "--now", ""],
        vec!["inspect", root, "--now", "99999999999999999999"],
        vec!["inspect", root, "--now", "1.5"],
        vec!["inspect", root, "--format", "yaml"],
        vec!["inspect", root, "--format", ""],
        vec!["inspect", root, "--verdict", "fine"],
        vec!["inspect", root, "--verdict", "finished,fine"],
        vec!["inspect", root, "--verdict", ""],
        vec!["inspect", root, "--color", "sometimes"],
        vec!["inspect", root, "--no-such-option"],
        vec!["list", root, "--limit", "-1"],
        vec!["list", root, "--limit", "many"],
        vec!["explain", "one", "two"],
        vec!["spec", "no-such-word"],
        vec!["spec", "one", "two"],
        vec!["inspect", ""],
        vec!["inspect", "../x", "--root", utf8(&store.run("r1").path().join(".."))],
    ] {
        let outcome = ask::run(&args);
        let expected = if args.contains(&"../x") { 4 } else { 2 };
        assert_eq!(outcome.code, expected, "{args:?}: {}", outcome.errors());
        assert!(outcome.stdout.is_empty(), "{args:?}: an error is no answer");
        assert!(!outcome.errors().is_empty(), "{args:?}: an error is said");
    }
}

#[test]
fn a_missing_path_or_run_is_not_found() {
    let store = Store::new();
    records::finish(&store.run("healthy"), 5);
    let root = utf8(store.root());
    let file = store.file("async-subagent-runs/healthy/plain", "");
    let long = "n".repeat(300);
    let (under_file, long_path) = (file.join("x"), store.root().join(&long));
    let far = format!("/{}", "d/".repeat(3000));
    for args in [
        vec!["inspect", "/no/such/path"],
        vec!["inspect", "./no-such-path"],
        vec!["inspect", "healthy2", "--root", root],
        vec!["inspect", "no-such-run-at-all", "--root", root],
        vec!["inspect", utf8(&file)],
        vec!["inspect", utf8(&under_file)],
        vec!["inspect", utf8(&long_path)],
        vec!["inspect", &far],
        vec!["inspect", &long],
        vec!["inspect", "x", "--root", "/no/such/root"],
        vec!["list", "/no/such/path"],
        vec!["list", utf8(&long_path)],
        vec!["explain", "no-such-word"],
    ] {
        let outcome = ask::run(&args);
        assert_eq!(outcome.code, 4, "{args:?}: {}", outcome.errors());
        assert!(outcome.stdout.is_empty(), "{args:?}: an error is no answer");
    }
    let mut command = program::command::<&str>(&ask::binary(), &["inspect"], store.root());
    command.arg(OsStr::from_bytes(b"/no/\xff\xfe"));
    let outcome = program::run(command, ask::LIMIT, None).expect("it can be started");
    assert_eq!(outcome.code, 4, "a path that is no text: {}", outcome.errors());
}

#[test]
fn an_id_that_no_run_can_have_is_refused() {
    let hostile = Hostile::new();
    let root = utf8(hostile.store.root());
    for id in ["n".repeat(300), "a\\b".to_owned(), "..".to_owned(), ".hidden".to_owned()] {
        let outcome = ask::run(&["inspect", &id, "--root", root]);
        let code = outcome.code;
        assert!(matches!(code, 2 | 4), "'{id}': {code}: {}", outcome.errors());
        assert!(outcome.stdout.is_empty(), "'{id}': an error is no answer");
    }
}

#[test]
fn an_empty_store_is_fine() {
    let store = Store::new();
    for verb in [vec!["inspect"], vec!["list"], vec!["list", "--all"]] {
        let mut args = verb.clone();
        args.push(utf8(store.root()));
        assert_eq!(ask::run(&args).code, 0, "{verb:?}: nothing needs attention");
    }
    let answer = ask::inspect(store.root());
    assert_eq!(answer.json["summary"]["total"], 0, "there is nothing in it");
    fs::remove_dir(store.root().join("async-subagent-runs")).expect("empty");
    let answer = ask::inspect(store.root());
    assert_eq!(answer.code, 0, "an empty directory holds no run that needs attention");
}

#[test]
fn a_reader_that_has_gone_away_ends_the_program_quietly() {
    let store = Store::in_memory();
    for i in 0..500 {
        store.run(&format!("r-{i:03}")).status(&records::running("x", 999_999_999, 5));
    }
    let root = utf8(store.root());
    for args in [
        vec!["inspect", root],
        vec!["inspect", root, "--format", "json"],
        vec!["inspect", root, "--format", "jsonl"],
        vec!["list", root, "--all"],
        vec!["list", root, "--all", "--format", "jsonl"],
        vec!["list", root, "--all", "--format", "json"],
        vec!["explain"],
        vec!["spec", "durability"],
        vec!["roots"],
        vec!["--help"],
        vec!["--version"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = program::command(&ask::binary(), &args, store.root());
        let output = command.stdin(Stdio::null()).stdout(writer).output().expect("started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: a closed pipe is quiet: {errors}");
        assert!(!errors.contains("error"), "{args:?}: a closed pipe is no error: {errors}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        return testkit::process::skip("a full device", "there is none");
    };
    let store = Store::new();
    records::finish(&store.run("healthy"), 5);
    let root = utf8(store.root());
    for args in [vec!["inspect", root], vec!["list", root, "--all"], vec!["explain"]] {
        let mut command = program::command(&ask::binary(), &args, store.root());
        let out = full.try_clone().expect("a descriptor");
        let output = command.stdin(Stdio::null()).stdout(out).output().expect("started");
        assert_eq!(output.status.code(), Some(74), "{args:?}: a full device is an I/O error");
        assert!(!output.stderr.is_empty(), "{args:?}: and it is said");
    }
}
