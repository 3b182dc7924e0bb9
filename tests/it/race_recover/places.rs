//! A pid that came to mean another process, and a store that two pid namespaces share.
//!
//! Theory of operation. The test starts itself again as the root of a pid namespace, where the next pid can be
//! chosen; so a reuse is forced, not waited for. What is outside shares the store with what is inside, and each
//! side is asked to recover it. RS-REC-03, RS-REC-29.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::Store;
use testkit::process::{self, Identity, Live, identity, now_ms, wait_for_the_next_millisecond};
use testkit::records::{self, with, without};

use super::apply;
use crate::ask::binary;
use crate::live::{INSIDE, again_in_a_namespace, force_reuse};

/// The store that both sides share, inside.
const SHARED: &str = "RUNSTORE_TEST_SHARED_STORE";

/// The members of an identity.
fn with_identity(status: Value, identity: &Identity) -> Value {
    let status = with(status, "processStartIdentity", identity.start.clone());
    let status = with(status, "bootId", identity.boot_id.clone());
    with(status, "pidfdInode", identity.pidfd_inode.map(|inode| inode.to_string()))
}

fn status(root: &Path, id: &str) -> Vec<u8> {
    fs::read(root.join(format!("async-subagent-runs/{id}/status.json"))).expect("there")
}

fn state(root: &Path, id: &str) -> Value {
    let status: Value = serde_json::from_slice(&status(root, id)).expect("JSON");
    status["state"].clone()
}

/// What a recovery without any grace time did: the runs in order.
fn recovered(root: &Path) -> Vec<String> {
    wait_for_the_next_millisecond();
    let applied = apply(Command::new(binary()), root, &["--grace-ms", "0"]);
    assert_eq!(applied.json["left"], json!([]), "{:#}", applied.json);
    let done = applied.json["done"].as_array().expect("a list").iter();
    let mut done: Vec<_> =
        done.map(|one| format!("{} {}", one["action"], one["runId"]).replace('"', "")).collect();
    done.sort();
    done
}

#[test]
fn a_pid_that_was_reused_is_a_process_that_is_gone_and_the_stranger_is_left_in_peace() {
    if std::env::var_os(INSIDE).is_some() {
        return reused();
    }
    let test = "race_recover::places::\
                a_pid_that_was_reused_is_a_process_that_is_gone_and_the_stranger_is_left_in_peace";
    let Some(outcome) = again_in_a_namespace(test, None) else { return };
    assert_eq!(outcome.code, 0, "inside:\n{}{}", outcome.text(), outcome.errors());
    assert!(outcome.text().contains("1 passed"), "the test ran inside: {}", outcome.text());
}

fn reused() {
    let store = Store::new();
    let root = store.root();
    let (stranger, victim) = force_reuse();
    let pid = stranger.pid();
    let running = |id: &str, at_ms: i64| records::running(id, pid, at_ms);
    let long_ago = now_ms() - 30_000;
    // The process of its record is gone, whoever has its number now.
    if victim.pidfd_inode.is_some() {
        store.run("told").status(&with_identity(running("told", long_ago), &victim));
    } else {
        process::skip("forced reuse", "this kernel gives pidfds no inode of their own");
    }
    // The stranger began after the run, but nobody knows whether it is the same program.
    store.run("bare").status(&running("bare", long_ago));
    // The number was taken over at once: nothing tells the two apart.
    store.run("quick").status(&running("quick", now_ms()));
    // The start alone, in ticks, is equal in a quick reuse; where it is not, it tells.
    let stranger_is = identity(pid);
    let ticks = Identity { start: victim.start.clone(), ..Identity::default() };
    store.run("ticks").status(&with_identity(running("ticks", now_ms()), &ticks));
    store.run("own").status(&with_identity(running("own", now_ms()), &stranger_is));
    for id in ["told", "bare", "quick", "ticks", "own"] {
        store.active_marker(id);
    }
    if victim.pidfd_inode.is_none() {
        fs::remove_file(root.join("async-subagent-runs/.active-runs/told")).expect("ours");
    }
    let mut expected = Vec::new();
    if victim.start != stranger_is.start {
        expected.push("close-as-failed ticks");
    }
    if victim.pidfd_inode.is_some() {
        expected.push("close-as-failed told");
    }
    assert_eq!(recovered(root), expected);
    assert_eq!(recovered(root), [""; 0], "and once only");
    for id in ["bare", "quick", "own"] {
        assert_eq!(state(root, id), "running", "{id}: unknown is never dead");
    }
    assert_eq!(identity(pid), stranger_is, "no signal reached the stranger");
}

#[test]
fn two_namespaces_that_share_a_store_leave_the_runs_of_each_other_alone() {
    if std::env::var_os(INSIDE).is_some() {
        return inside(Path::new(&std::env::var_os(SHARED).expect("the other side set it")));
    }
    let test = "race_recover::places::\
                two_namespaces_that_share_a_store_leave_the_runs_of_each_other_alone";
    let store = Store::new();
    let live = Live::start();
    let mut ended = Live::start();
    let whole = |id: &str, pid: u32| {
        let status = with_identity(records::running(id, pid, now_ms()), &identity(pid));
        with(status, "pidNamespaceScope", process::pid_namespace())
    };
    let scoped = [("live", live.pid()), ("gone", ended.pid())];
    for (id, pid) in scoped {
        store.run(id).status(&whole(id, pid));
        store.active_marker(id);
        // Some writers name the host alone; then the host of the other side has another name.
        let named = format!("{id}-elsewhere");
        let status = with(without(whole(&named, pid), "pidNamespaceScope"), "hostname", "other");
        store.run(&named).status(&status);
        store.active_marker(&named);
    }
    ended.kill();
    let before: Vec<_> = scoped.iter().map(|(id, _)| status(store.root(), id)).collect();
    // The other side runs before this one recovers, and leaves runs of its own.
    let shared = Some((SHARED, store.root()));
    let Some(outcome) = again_in_a_namespace(test, shared) else { return };
    assert_eq!(outcome.code, 0, "inside:\n{}{}", outcome.text(), outcome.errors());
    assert!(outcome.text().contains("1 passed"), "the test ran inside: {}", outcome.text());
    let after: Vec<_> = scoped.iter().map(|(id, _)| status(store.root(), id)).collect();
    assert!(before == after, "the other side wrote to a run of this one");
    assert_eq!(recovered(store.root()), ["close-as-failed gone"], "each side cares for its own");
    assert_eq!(state(store.root(), "live"), "running");
    assert_eq!(
        state(store.root(), "inside"),
        "running",
        "it is gone with its namespace, by hearsay"
    );
    for id in ["live-elsewhere", "gone-elsewhere"] {
        assert_eq!(state(store.root(), id), "running", "{id}");
    }
}

/// Seen from inside, no process of the outside exists at all.
fn inside(root: &Path) {
    let mut own = Live::start();
    let running =
        with_identity(records::running("inside", own.pid(), now_ms()), &identity(own.pid()));
    let running = with(running, "pidNamespaceScope", process::pid_namespace());
    let mine = testkit::store::Run::at(root.join("async-subagent-runs/inside"));
    fs::create_dir_all(mine.path()).expect("shared");
    mine.status(&running);
    fs::write(root.join("async-subagent-runs/.active-runs/inside"), "").expect("shared");
    assert_eq!(recovered(root), [""; 0], "nobody of the other side is judged from here");
    own.kill();
    let was = status(root, "inside");
    assert_eq!(recovered(root), ["close-as-failed inside"], "each side cares for its own");
    // Back to its orphan, for the other side to look at.
    fs::write(mine.path().join("status.json"), was).expect("shared");
    let result = root.join("async-subagent-results/inside.json");
    fs::remove_file(result).expect("it was closed");
}
