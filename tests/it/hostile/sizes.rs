//! Too much of everything.
//!
//! The program is asked under a limit of its address space, far below what the store would need if it
//! were read whole: whoever reads without a bound dies there.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::Store;
use testkit::process::now_ms;
use testkit::program::{self, Outcome};
use testkit::records::{self, with};

use super::Hostile;
use crate::ask;

/// The address space that any answer must do with, in KiB.
const MEMORY_KIB: u32 = 400 << 10;

/// Runs the program with little memory.
fn run_small(args: &[&str]) -> Outcome {
    run_limited(&format!("-v {MEMORY_KIB}"), args)
}

/// Runs the program under a limit of the shell.
fn run_limited(limit: &str, args: &[&str]) -> Outcome {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = program::command(Path::new("/bin/sh"), &["-c", &script], home.path());
    command.arg(ask::binary()).args(args);
    let outcome = program::run(command, ask::LIMIT, None).expect("a shell is there");
    assert!(!outcome.late, "{args:?}: no size is a reason to be late");
    assert!(outcome.code >= 0, "{args:?}: killed by signal {}", outcome.code);
    assert!(!outcome.errors().contains("memory allocation"), "{args:?}: {}", outcome.errors());
    outcome
}

/// A plain file of this length without contents.
fn sparse(path: &Path, bytes: u64) {
    let file = File::create(path).expect("the tree is ours");
    file.set_len(bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[test]
fn few_descriptors_are_no_reason_to_take_a_run_for_unreadable() {
    let store = Store::in_memory();
    for n in 0..400 {
        records::finish(&store.run(&format!("run-{n:03}")), now_ms() - 600_000);
    }
    let root = ask::utf8(store.root());
    // More directories are read ahead on two threads than may be open.
    for few in [20, 24, 32] {
        let outcome = run_limited(&format!("-n {few}"), &["list", "--all", root]);
        let text = outcome.text();
        let finished = text.lines().filter(|line| line.starts_with("finished ")).count();
        assert_eq!((outcome.code, finished), (0, 400), "{few}: {} {text}", outcome.errors());
    }
}

#[test]
fn a_file_of_two_gibibytes_is_bounded_wherever_it_lies() {
    let hostile = Hostile::new();
    let store = &hostile.store;
    let files = [
        ("status.json", "corrupt"),
        ("process-terminal.json", "finished-unproven"),
        ("process-terminal-candidate.json", "finished"),
        ("runner-startup.json", "finished"),
        ("events.jsonl", "finished"),
        ("runner.stderr.log", "finished"),
        ("output-0.log", "finished"),
        ("recovery-descriptor.json", "finished"),
        (".status.json.12.1790000000000.abcdef.tmp", "finished"),
    ];
    let at = now_ms() - 600_000;
    for (file, _) in files {
        let id = format!("big-{file}");
        let run = store.run(&id);
        records::finish(&run, at);
        run.status(&records::without(records::complete(&id, at), "processTerminal"));
        sparse(&run.path().join(file), 2 << 30);
    }
    for place in ["session-leases/l", "session-active-async-capacity/p/slot-0"] {
        sparse(&store.folder(place).join("owner.json"), 2 << 30);
    }
    sparse(&store.folder("async-subagent-results").join("big.json"), 2 << 30);
    let marker = store.folder("async-subagent-runs/.terminal-runs/s");
    sparse(&marker.join("0000000000000005-x.json"), 2 << 30);
    let answer = hostile.assert_answered_by("2 GiB", &run_small);
    for (file, verdict) in files {
        assert_eq!(answer.verdict(&format!("big-{file}")), verdict, "{file} of 2 GiB");
    }
    assert_eq!(answer.code, 8, "a status that is too large is damaged");
}

#[test]
fn results_above_their_bound_are_not_read() {
    let hostile = Hostile::new();
    let at = now_ms() - 600_000;
    let filler = "y".repeat(17 << 20);
    let large = with(records::result("large", at), "summary", filler.clone()).to_string();
    hostile.store.file("async-subagent-results/large.json", large);
    let status = records::complete("large", at);
    hostile.store.run("large").status(&records::without(status, "processTerminal"));
    let almost =
        with(records::complete("almost", at), "summary", &filler[..(15 << 20)]).to_string();
    let run = hostile.store.run("almost");
    records::finish(&run, at);
    run.file("status.json", almost);
    let answer = hostile.assert_answered_by("a result of 17 MiB", &run_small);
    assert_eq!(answer.verdict("almost"), "finished", "below the bound a status is read");
    assert_eq!(answer.verdict("large"), "finished-unproven", "a result proves no exit");
    let results = answer.json["results"].as_array().expect("an answer has results");
    let large = results.iter().find(|r| r["runId"] == "large").expect("it is listed");
    assert!(large["problem"].is_string(), "it is said that it was not read: {large}");
}

#[test]
fn a_hundred_thousand_entries_and_thousands_of_leftovers_are_bounded() {
    let hostile = Hostile::of(Store::in_memory());
    let store = &hostile.store;
    let many = |id: &str| {
        let run = store.run(id);
        records::finish(&run, now_ms());
        run
    };
    let crowd = many("crowd");
    for i in 0..100_000 {
        File::create(crowd.path().join(format!("x{i:06}"))).expect("the tree is ours");
    }
    let litter = many("litter");
    for i in 0..5000 {
        litter.file(&format!(".status.json.{i}.1790000000000.abcdef.tmp"), "{");
    }
    let asked = many("asked");
    asked.status(&records::running("asked", 999_999_999, 5));
    for i in 0..5000 {
        asked.file(&format!("control/stop-requests/{i}.json"), "{}");
    }
    let answer = hostile.assert_answered_by("many entries", &run_small);
    assert_eq!(answer.verdict("litter"), "finished", "litter changes no verdict");
    assert_eq!(answer.verdict("asked"), "orphaned", "requests change no verdict");
    let flags = |id: &str| answer.one(id)["flags"].to_string();
    assert!(flags("litter").contains("temp-litter"), "{}", flags("litter"));
    assert!(flags("asked").contains("control-pending"), "{}", flags("asked"));
    let verdict = answer.verdict("crowd");
    let cut = flags("crowd").contains("truncated");
    assert!(verdict == "finished" || cut, "what was not looked at is said: {verdict}");
}

#[test]
fn a_status_of_many_steps_and_strings_is_bounded() {
    let hostile = Hostile::new();
    let steps: Vec<_> = (0..50_000)
        .map(|i| {
            json!({"agent": "a", "status": "failed", "error": i,
        "runId": format!("child-{i}"), "async": true})
        })
        .collect();
    let run = hostile.store.run("steps");
    run.status(&with(records::running("steps", 999_999_999, 5), "steps", steps));
    let long = "e".repeat(2 << 20);
    let run = hostile.store.run("long");
    run.status(&with(records::running("long", 999_999_999, 5), "error", long.clone()));
    let run = hostile.store.run("state");
    run.status(&with(records::running("state", 999_999_999, 5), "state", long));
    let answer = hostile.assert_answered_by("many steps and long strings", &run_small);
    assert_eq!(answer.verdict("steps"), "orphaned", "steps change no verdict");
    assert_eq!(answer.verdict("state"), "unsupported", "an unknown word of any length");
    let home = tempfile::tempdir().expect("a temporary directory");
    let args = ["inspect", ask::utf8(hostile.store.root()), "--verbose"];
    let mut command = program::command(&ask::binary(), &args, home.path());
    command.process_group(0);
    let outcome = program::run(command, ask::LIMIT, None).expect("it can be started");
    let bytes = outcome.stdout.len();
    assert!(bytes < 2 << 20, "a text for people is no copy of the store: {bytes} bytes");
}

#[test]
fn a_document_of_many_members_is_read_in_time() {
    let hostile = Hostile::of(Store::in_memory());
    let members: String = (0..300_000).map(|i| format!("\"{i:x}\":0,")).collect();
    let whole = records::running("many", 999_999_999, 5).to_string();
    let run = hostile.store.run("many");
    run.file("status.json", format!("{{{members}{}", &whole[1..]));
    run.file("process-terminal.json", format!("{{{}{}", &members[..1 << 19], &whole[1..]));
    let nested =
        format!("{{\"runnerIdentity\":{{{}}},{}", members.trim_end_matches(','), &whole[1..]);
    hostile.store.run("nested").file("status.json", nested);
    let answer = hostile.assert_answered("300,000 members");
    assert_eq!(answer.verdict("many"), "corrupt", "no writer makes such an object");
    assert_eq!(answer.verdict("nested"), "orphaned", "a member inside changes nothing");
}

#[test]
fn times_of_files_may_be_anything() {
    let hostile = Hostile::of(Store::in_memory());
    // Beyond what some formats hold; a file system that cannot hold it keeps the nearest it can.
    for (i, stamp) in
        ["@-99999999999", "@0", "@253402300800", "@9223372036854775"].iter().enumerate()
    {
        for kind in ["empty", "queued", "startup"] {
            let run = hostile.store.run(&format!("{kind}-{i}"));
            match kind {
                "queued" => {
                    run.json("status.json", &json!({"state": "queued", "runId": "x"}));
                    run.file("control/stop-requests/1.json", "{}");
                }
                "startup" => {
                    run.startup(&json!({"state": "ready", "token": "t", "pid": 1}));
                }
                _ => {}
            }
            for entry in testkit::tree::walk(run.path()).expect("ours").iter().rev() {
                let touched = Command::new("touch").args(["-d", stamp]).arg(entry).output();
                assert!(touched.is_ok(), "touch is there");
            }
        }
        hostile.store.active_marker(&format!("queued-{i}"));
    }
    fs::create_dir_all(hostile.store.root().join("session-leases")).expect("made");
    hostile.assert_answered("times of files");
}
