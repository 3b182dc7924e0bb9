//! Many runs that are launched at once: each is acknowledged, each is proven, and nothing is left of any.
//!
//! Theory of operation. Every launcher is a process of the real program, and all of them are started before
//! one is waited for; so launchers, shims and runners of all runs contend for the processors, the indexes and
//! the slots of four sessions. Then everything is waited for, and the store is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use runstore::protocol::layout;
use serde_json::Value;

use crate::ask;
use crate::launch::has_handles;
use crate::place::Place;

const RUNS: usize = 200;
const SESSIONS: [&str; 4] = ["S", "T", "U", "V"];

/// Names in a folder but those of temporary files and directories.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.expect("readable"));
    let plain = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    plain.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Files at any depth below a folder.
fn files(dir: &Path) -> usize {
    walkdir::WalkDir::new(dir)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|e| e.file_type().is_file())
        .count()
}

#[test]
fn two_hundred_runs_at_once_are_acknowledged_proven_and_leave_nothing() {
    if !has_handles("two hundred runs") {
        return;
    }
    let place = Place::new();
    let slots = (RUNS / SESSIONS.len()).to_string();
    let launchers: Vec<_> = (0..RUNS)
        .map(|n| {
            let session = SESSIONS[n % SESSIONS.len()];
            let words = [
                "--detach",
                "--format",
                "json",
                "--session",
                session,
                "--slot-limit",
                &slots,
                "--",
                "true",
            ];
            let mut command = place.run(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program")
        })
        .collect();
    let mut told = BTreeMap::new();
    for (n, launcher) in launchers.into_iter().enumerate() {
        let out = launcher.wait_with_output().expect("ours");
        assert!(out.status.success(), "{n}: {}", String::from_utf8_lossy(&out.stderr));
        let answer: Value = serde_json::from_slice(&out.stdout).expect("one object");
        let id = answer["runId"].as_str().expect("an id").to_owned();
        told.insert(id, SESSIONS[n % SESSIONS.len()]);
    }
    assert_eq!(told.len(), RUNS, "each has a name of its own");
    place.until_nothing_runs();
    assert_eq!(place.descriptors(), [""; 0], "nobody holds anything of it");

    let answer = ask::inspect(&place.root());
    assert_eq!(answer.runs().len(), RUNS);
    for run in answer.runs() {
        let (id, counts) = (run["runId"].as_str().expect("an id"), &run["proof"]["counts"]);
        assert_eq!(
            (&run["verdict"], &run["recordedState"], counts),
            (&"finished".into(), &"complete".into(), &true.into()),
            "{run}"
        );
        assert_eq!(run["sessionId"], told[id], "{run}");
        let flags = run["flags"].as_array().expect("flags");
        assert!(flags.iter().all(|flag| flag == "undelivered"), "{run}");
    }
    assert_eq!(answer.json["problems"], serde_json::json!([]), "nothing is wrong with the store");

    let runs = place.root().join(layout::RUNS_DIR);
    assert_eq!(files(&runs.join(layout::ACTIVE_INDEX)), 0, "no run is in the index of live ones");
    for session in SESSIONS {
        assert_eq!(place.slots(session), 0, "{session}");
    }
    let ids: BTreeSet<_> = told.keys().map(|id| format!("{id}.json")).collect();
    let results = names(&place.root().join(layout::RESULTS_DIR));
    assert_eq!(results, ids, "each has its result");
    let left = names(&place.root());
    assert_eq!(left, BTreeSet::new(), "every configuration was read and removed");
    for session in SESSIONS {
        let ended = names(&runs.join(layout::TERMINAL_INDEX).join(session));
        // An instant, and the run.
        let ended: BTreeSet<_> =
            ended.iter().filter_map(|n| n.split_once('-')).map(|n| n.1).collect();
        let own = told.iter().filter(|(_, of)| **of == session).map(|(id, _)| format!("{id}.json"));
        let own: Vec<_> = own.collect();
        assert_eq!(ended, own.iter().map(String::as_str).collect(), "{session}");
    }
    assert_eq!(files(&runs.join(layout::TERMINAL_INDEX)), RUNS, "and nothing else is");
}
