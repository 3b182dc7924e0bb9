//! Files of other users, and files that may not be read.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::{fs, os::unix::fs::lchown};

use testkit::process::{NOBODY, is_root, now_ms, skip};
use testkit::program::Outcome;
use testkit::records;

use super::Hostile;
use crate::ask::{self, Answer, utf8};

#[test]
fn files_of_another_user_are_unsafe() {
    if !is_root() {
        return skip("files of another user", "only root can give files away");
    }
    let hostile = Hostile::new();
    let give = |path: &Path| lchown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    let files = [
        "",
        "status.json",
        "process-terminal.json",
        "process-terminal-candidate.json",
        "events.jsonl",
    ];
    for (i, file) in files.iter().enumerate() {
        let run = hostile.store.run(&format!("theirs-{i}"));
        records::finish(&run, now_ms());
        run.file("events.jsonl", "{}\n");
        give(&if file.is_empty() { run.path().to_owned() } else { run.path().join(file) });
    }
    let answer = hostile.assert_answered("files of another user");
    for (i, file) in files.iter().enumerate() {
        let id = format!("theirs-{i}");
        assert_eq!(answer.verdict(&id), "unsafe", "'{file}' belongs to another user");
        let alone = ask::inspect(&hostile.store.root().join("async-subagent-runs").join(&id));
        assert_eq!(alone.verdict(&id), answer.verdict(&id), "asked alone it is the same: '{file}'");
    }
    assert_eq!(answer.code, 8, "unsafe records were met");
}

#[test]
fn a_result_or_lock_of_another_user_proves_nothing() {
    if !is_root() {
        return skip("locks of another user", "only root can give files away");
    }
    let hostile = Hostile::new();
    let store = &hostile.store;
    store.run("r1").status(&records::running("r1", 999_999_999, 5));
    store.result("r1", &records::result("r1", 5)).lease("l", &records::lease("r1", 1, "h", 5));
    store.slot("p", 0, &records::slot("r1", 5));
    for file in [
        "async-subagent-results/r1.json",
        "session-leases/l/owner.json",
        "session-active-async-capacity/p/slot-0/owner.json",
    ] {
        chown(store.root().join(file), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let answer = hostile.assert_answered("locks of another user");
    assert_eq!(answer.one("r1")["liveness"], "dead", "a foreign lease names no host for it");
    let next = answer.one("r1")["next"].to_string();
    assert!(!next.contains("adopt"), "a foreign result is not adopted: {next}");
}

/// A store of nobody's, and nobody asking.
fn as_nobody(hostile: &Hostile) -> impl Fn(&[&str]) -> Outcome {
    let copy = hostile.store.open_to(NOBODY, &ask::binary());
    move |args: &[&str]| ask::run_as_nobody(&copy, args)
}

#[test]
fn what_may_not_be_read_is_said_and_hides_nothing() {
    if !is_root() {
        return skip("unreadable files", "only root can ask as another user");
    }
    let hostile = Hostile::new();
    let at = now_ms() - 600_000;
    let rows = [
        ("", "corrupt"),
        ("status.json", "corrupt"),
        ("process-terminal.json", "finished-unproven"),
        ("process-terminal-candidate.json", "finished"),
        ("events.jsonl", "finished"),
    ];
    for (i, (file, _)) in rows.iter().enumerate() {
        let id = format!("closed-{i}");
        let run = hostile.store.run(&id);
        records::finish(&run, at);
        run.status(&records::without(records::complete(&id, at), "processTerminal"));
        run.file("events.jsonl", "{}\n").mode(file, 0);
    }
    let ask = as_nobody(&hostile);
    let answer = hostile.assert_answered_by("unreadable files", &ask);
    for (i, (file, verdict)) in rows.iter().enumerate() {
        let report = answer.one(&format!("closed-{i}"));
        assert_eq!(report["verdict"], *verdict, "'{file}' has mode 0000: {report:#}");
        if file.ends_with("terminal.json") {
            let said = report["findings"].to_string() + &report["evidence"].to_string();
            assert!(said.contains(file), "what could not be read is said: {said}");
        }
    }
    assert_eq!(answer.code, 8, "unreadable is damaged");
}

#[test]
fn closed_directories_of_a_store_are_said_and_hide_nothing() {
    if !is_root() {
        return skip("closed directories", "only root can ask as another user");
    }
    let places = [
        "async-subagent-results",
        "async-subagent-results/result-pending",
        "session-leases",
        "session-leases/l",
        "session-active-async-capacity",
        "session-active-async-capacity/p",
        "nested-subagent-runs",
        "nested-subagent-runs/healthy",
        "async-subagent-runs-4242",
        "async-subagent-runs/.active-runs",
        "async-subagent-runs/.terminal-runs",
    ];
    for place in places {
        let hostile = Hostile::new();
        let path = hostile.store.folder(place);
        let ask = as_nobody(&hostile);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("root may");
        let answer = hostile.assert_answered_by(place, &ask);
        let hint = !place.contains("/.") && !place.ends_with("pending") && !place.ends_with("/l");
        let said = answer.json["problems"].as_array().is_some_and(|all| !all.is_empty());
        let elsewhere = answer.json["leases"].to_string() + &answer.one("healthy").to_string();
        let said = said || elsewhere.contains("permission denied");
        assert!(said || !hint, "{place} is closed, and that is said: {:#}", answer.json);
    }
}

#[test]
fn a_closed_store_is_an_error_of_input_and_output() {
    if !is_root() {
        return skip("a closed store", "only root can ask as another user");
    }
    let hostile = Hostile::new();
    let ask = as_nobody(&hostile);
    let root = hostile.store.root().to_owned();
    let runs = root.join("async-subagent-runs");
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o000)).expect("root may");
    let outcome = ask(&["inspect", utf8(&root), "--format", "json"]);
    let answer = Answer::of(&outcome);
    assert_eq!(answer.runs().len(), 0, "nothing could be read");
    assert!(!answer.json["problems"].as_array().expect("problems").is_empty(), "and that is said");
    assert_ne!(outcome.code, 0, "an answer that lacks every run is not fine");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o000)).expect("root may");
    for args in [vec!["inspect", utf8(&root)], vec!["list", utf8(&root)]] {
        let outcome = ask(&args);
        assert_eq!(outcome.code, 74, "a store that may not be opened: {}", outcome.errors());
        assert!(outcome.stdout.is_empty(), "an error is no answer");
        assert!(outcome.errors().contains("cannot be opened"), "{}", outcome.errors());
    }
}

#[test]
fn root_may_look_at_a_store_that_is_another_users_as_a_whole() {
    if !is_root() {
        return skip("a store of another user", "only root can look at one");
    }
    let hostile = Hostile::new();
    hostile.store.open_to(NOBODY, &ask::binary());
    let answer = hostile.assert_answered("another user's store");
    assert_eq!(answer.code, 0, "everything in it belongs to its owner: {:#}", answer.json);
    // Another user may not: nobody asks for a store of root's.
    let hostile = Hostile::new();
    let copy = hostile.store.open_to(NOBODY, &ask::binary());
    for path in testkit::tree::walk(hostile.store.root()).expect("ours") {
        chown(&path, Some(0), Some(0)).expect("root may");
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("root may");
    }
    let root = utf8(hostile.store.root());
    let outcome = ask::run_as_nobody(&copy, &["inspect", root, "--format", "json"]);
    assert_eq!(Answer::of(&outcome).verdict("healthy"), "unsafe", "it belongs to somebody else");
    assert_eq!(outcome.code, 8, "unsafe records were met");
}
