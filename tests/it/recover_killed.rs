//! An apply, an undo and a removal of old runs in real processes, each killed with SIGKILL at every effect.
//!
//! Theory of operation. The program is run once under `strace`, which lists its effects: the system calls that change
//! the store. Then there is one run for each of them, on a fresh copy of the same store, in which `strace`
//! kills it before it makes that call. The same command is given again, with nobody watching, and what it comes to is
//! compared with what an undisturbed one comes to, times left out. RS-REC-20, RS-REC-26, RS-REC-28, RS-RET-10.
//!
//! A part of the effects is tried unless `RUNSTORE_CRASH_MATRIX` says `all`.

#![expect(clippy::print_stdout, reason = "the counts of the matrix are shown with --nocapture")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::process::{host_name, now_ms, skip};
use testkit::records::{self, GONE, SESSION, with};
use testkit::trace::{Seen, refusal, seen, was_killed};
use testkit::{Store, tree};

use crate::ask::{self, utf8};
use crate::killed::rig::Effect;
use crate::killed::share_of;
use crate::lists::slot;
use crate::prune;

const DAY_MS: i64 = 86_400_000;

/// Calls that may change something.
const CALLS: &str = "trace=/^(rename|unlink|mkdir|rmdir|link|symlink|open|creat|write|pwrite|fsync|\
                     fdatasync|ftruncate|fchmod|chmod|flock)";

/// How many effects are tried where not all are.
const SHARE: usize = 16;

/// One command and the store that it is given.
struct Scene {
    name: &'static str,
    args: fn(&Path) -> Vec<String>,
    store: fn() -> Store,
    /// What is done to each copy before.
    before: Option<fn(&Path)>,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn apply(root: &Path) -> Vec<String> {
    words(&["recover", utf8(root), "--apply", "--grace-ms", "0"])
}

fn undo(root: &Path) -> Vec<String> {
    words(&["recover", "undo", "--root", utf8(root)])
}

fn remove(root: &Path) -> Vec<String> {
    words(&["prune", utf8(root), "--apply"])
}

/// An orphan without a result and with litter and a configuration, one with a pending result, a proven end that was
/// left half done and holds a slot, and a lease of nobody.
fn broken() -> Store {
    let store = Store::new();
    let at = now_ms() - 60_000;
    let run = store.run("lost");
    run.status(&with(records::running("lost", GONE, at), "toolCallId", "call-1"));
    run.file(&format!(".status.json.{GONE}.{}.abc.tmp", at - DAY_MS), "{");
    run.event(&json!({"type": "subagent.run.started", "runId": "lost", "ts": at}));
    store.active_marker("lost").tool_call_alias("call-1", "lost");
    store.file("async-cfg-lost.json", "{\"id\":\"lost\"}");
    store.run("told").status(&records::running("told", GONE, at));
    let pending = format!("async-subagent-results/result-pending/{SESSION}/told.json");
    store.file(&pending, records::result("told", at).to_string());
    let half = store.run("half");
    records::finish(&half, at);
    let overlay = json!({
        "version": 1, "state": "pending", "runId": "half", "runnerProcessInstanceId": records::INSTANCE,
    });
    half.status(&with(records::complete("half", at), "processTerminal", overlay));
    slot(&store, 0, "half", SESSION);
    store.lease(&"ab".repeat(32), &records::lease("gone", GONE, &host_name(), at));
    store
}

/// Two runs that nobody wants any more, and one that is new.
fn outlived() -> Store {
    let store = Store::new();
    for (id, days) in [("old-1", 40), ("old-2", 50), ("new", 1)] {
        prune::old(&store, id, days);
    }
    store
}

const SCENES: [Scene; 3] = [
    Scene { name: "recover --apply", args: apply, store: broken, before: None },
    Scene { name: "recover undo", args: undo, store: broken, before: Some(applied) },
    Scene { name: "prune --apply", args: remove, store: outlived, before: None },
];

fn applied(root: &Path) {
    run(&apply(root));
}

fn run(args: &[String]) -> i32 {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    ask::run(&args).code
}

/// The calls of a log that change the store.
fn effects(log: &str) -> Vec<Effect> {
    let changes = |call: &Seen<'_>| match call.name {
        "open" | "openat" | "openat2" => call.text.contains("O_CREAT"),
        // What it says changes nothing.
        "write" => !["1,", "2,"].iter().any(|fd| call.text.starts_with(fd)),
        _ => true,
    };
    seen(log).filter(changes).map(|call| Effect::seen(&call, "")).collect()
}

/// Runs the program under `strace`; whether it was killed.
fn traced(args: &[String], log: &Path, kill: Option<&Effect>) -> bool {
    let mut command = Command::new("strace");
    command.arg("-o").arg(log);
    match kill {
        None => command.args(["-e", CALLS]),
        Some(effect) => command.args(effect.killing()),
    };
    command.arg(ask::binary()).args(args).env("HOME", "/nonexistent");
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("strace was there before");
    was_killed(&fs::read_to_string(log).unwrap_or_default())
}

/// What a store has come to ([`tree::timeless`]), wherever it lies; the lock of a removal is left out.
fn state(root: &Path) -> BTreeMap<String, String> {
    let paths = tree::walk(root).expect("ours").into_iter();
    let entries = paths.map(|path| {
        let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
        (name, fs::read(&path).ok())
    });
    let mut files = tree::timeless(entries.filter(|(name, _)| !name.contains("retention")));
    files.values_mut().for_each(|text| *text = text.replace(utf8(root), "ROOT"));
    files
}

#[test]
fn an_apply_an_undo_and_a_removal_may_be_killed_at_any_effect() {
    let test = "apply, undo and prune killed at every effect";
    if let Some(why) = refusal() {
        return skip(test, &why);
    }
    for scene in SCENES {
        let store = (scene.store)();
        fs::set_permissions(store.root(), fs::Permissions::from_mode(0o700)).expect("ours");
        let (mut number, places) = (0, tempfile::tempdir().expect("room"));
        let mut fresh = || -> PathBuf {
            number += 1;
            let root = places.path().join(format!("store-{number}"));
            // With modes and times: the ages of files decide.
            tree::copy(store.root(), &root).expect("ours");
            if let Some(before) = scene.before {
                before(&root);
            }
            root
        };
        let log = places.path().join("log");
        let whole = fresh();
        assert!(!traced(&(scene.args)(&whole), &log, None), "nobody kills it");
        let end = state(&whole);
        assert!(
            !tree::differing(&state(&fresh()), &end).is_empty(),
            "{}: it does something",
            scene.name
        );
        let all = effects(&fs::read_to_string(&log).expect("a log"));
        let (count, tried) = (all.len(), share_of(all, SHARE));
        let (mut killed, mut came_through) = (0, 0);
        for effect in &tried {
            let root = fresh();
            let args = (scene.args)(&root);
            match traced(&args, &log, Some(effect)) {
                true => killed += 1,
                // The number of a call may be another when something was faster.
                false => came_through += 1,
            }
            let code = run(&args);
            assert!([0, 1].contains(&code), "{} {effect}: {code}", scene.name);
            let differ = tree::differing(&state(&root), &end);
            assert!(differ.is_empty(), "{} killed at {effect}: {differ:?}", scene.name);
            let after = state(&root);
            run(&args);
            if scene.name != "recover undo" {
                let differ = tree::differing(&state(&root), &after);
                assert!(differ.is_empty(), "{} {effect}: done twice: {differ:?}", scene.name);
            }
            fs::remove_dir_all(&root).expect("ours");
        }
        println!(
            "{}: {count} effects, {} tried, {killed} killed, {came_through} came through, 0 violations",
            scene.name,
            tried.len()
        );
        assert!(
            killed * 10 >= tried.len() * 9,
            "{}: {killed} of {} killed",
            scene.name,
            tried.len()
        );
    }
}
