//! Every case directory and every store that a peer left, recovered and taken back.
//!
//! Theory of operation. A case is built as for its questions, a recording snapshot by snapshot as on the host on
//! which it was made; then one recovery is proven ([`prove`]). A case that names the runs which a plan may touch,
//! and those which it must leave alone, is held to that at its own instant and at the real time.

#![expect(clippy::print_stdout, reason = "the counts are shown with --nocapture")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::case::{self, Case};
use testkit::peer_runs::each_snapshot;
use testkit::process::host_name;
use testkit::tree;

use super::prove::{prove, safe_actions};
use crate::ask::{self, Answer, utf8};

/// The cases that are stored.
const CASES: usize = 54;

/// The stored cases that say what a plan may touch.
const SWEPT: usize = 30;

/// The snapshots of both peers.
const SNAPSHOTS: usize = 72;

fn stored() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases");
    let all = fs::read_dir(top).expect("part of the repository");
    let mut all: Vec<PathBuf> = all.map(|entry| entry.expect("readable").path()).collect();
    all.retain(|path| path.join("expect.json").is_file());
    all.sort();
    all
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("there")).expect("JSON")
}

/// The instant of the first question of a case; none means the real time.
fn instant(case: &Case, check: &Value) -> Option<i64> {
    let Some(file) = check.get("nowFromMtimeOf").and_then(Value::as_str) else {
        return check.get("nowMs").and_then(Value::as_i64);
    };
    let meta = fs::symlink_metadata(case.root.join(file)).expect("the case has this file");
    let plus = check.get("plusMs").and_then(Value::as_i64).unwrap_or(0);
    Some(meta.mtime() * 1000 + meta.mtime_nsec() / 1_000_000 + plus)
}

/// Runs that a plan names in an action.
fn named(plan: &Answer) -> BTreeSet<&str> {
    let all = plan.json["actions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(|action| action["runId"].as_str()).collect()
}

/// What is wrong with a plan, by what the case says.
fn swept(plan: &Answer, sweep: &Value) -> Vec<String> {
    let list = |key: &str| -> BTreeSet<&str> {
        let all = sweep[key].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().filter_map(Value::as_str).collect()
    };
    let may = list("mayTouch");
    let wild = named(plan).into_iter().filter(|run| !may.contains(run));
    wild.map(|run| format!("the plan names {run}")).collect()
}

#[test]
fn every_case_is_recovered_and_taken_back() {
    let (mut bad, mut sweeps, mut acts) = (Vec::new(), 0, 0);
    let cases = stored();
    assert_eq!(cases.len(), CASES, "no case is skipped");
    for stored in &cases {
        let name = stored.file_name().expect("a name").to_string_lossy().into_owned();
        let spec = read(&stored.join("expect.json"));
        let dir = tempfile::tempdir().expect("room");
        let work = fs::canonicalize(dir.path()).expect("there");
        let case = case::build(stored, &work).unwrap_or_else(|e| panic!("{name}: {e}"));
        let sweep = spec.get("sweep");
        let now = instant(&case, &spec["checks"][0]);
        if let (Some(sweep), Some(now)) = (sweep, now) {
            let now = now.to_string();
            let root = utf8(&case.root);
            let plan = ask::run(&["recover", root, "--format", "json", "--now", &now]);
            let wild = swept(&Answer::of(&plan), sweep).into_iter();
            bad.extend(wild.map(|why| format!("{name}, at its instant: {why}")));
        }
        let proven = prove(&case.root, |_| Vec::new());
        if let Some(sweep) = sweep {
            sweeps += 1;
            let wild = swept(&proven.plan, sweep).into_iter();
            bad.extend(wild.map(|why| format!("{name}, now: {why}")));
        }
        acts += usize::from(!safe_actions(&proven.plan).is_empty());
        println!("{name}: {:?}", safe_actions(&proven.plan));
        bad.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
    }
    println!("{CASES} cases, {sweeps} with a sweep, {acts} recovered, {} violations", bad.len());
    assert_eq!(sweeps, SWEPT, "no sweep is skipped");
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}

/// Gives the records of the host on which they were made to this one: else nobody could tell that its processes
/// are gone.
fn adopt(root: &Path) {
    let host = host_name();
    for path in tree::walk(root).expect("readable").iter().filter(|path| path.is_file()) {
        let mode = fs::metadata(path).expect("there").permissions();
        if let Ok(text) = fs::read_to_string(path)
            && text.contains("\"host-a\"")
        {
            fs::write(path, text.replace("\"host-a\"", &format!("{host:?}"))).expect("ours");
            fs::set_permissions(path, mode).expect("ours");
        }
    }
}

#[test]
fn every_recorded_store_is_recovered_and_taken_back() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/peer-runs");
    let (mut bad, mut count, mut acts) = (Vec::new(), 0, 0);
    let look = |name: &str, root: &Path| {
        count += 1;
        adopt(root);
        let proven = prove(root, |_| Vec::new());
        acts += usize::from(!safe_actions(&proven.plan).is_empty());
        println!("{name}: {:?}", safe_actions(&proven.plan));
        bad.extend(proven.problems.iter().map(|why| format!("{name}: {why}")));
    };
    each_snapshot(&top, look).expect("part of the repository");
    println!("{count} stores of peers, {acts} recovered, {} violations", bad.len());
    assert_eq!(count, SNAPSHOTS, "no snapshot is skipped");
    assert!(bad.is_empty(), "{} violations:\n{}", bad.len(), bad.join("\n"));
}
