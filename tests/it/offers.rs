//! What `inspect` offers about the end of a run is what `recover` would do with it.
//!
//! Theory of operation. Every stored case and every recorded store is asked for both, and each run is compared
//! by its path: an offer to close it or to adopt its result has its action, each such action was offered, and a
//! run that is to be kept is told as left alone. The offers come from evidence alone; the plan has read the files.
//! RS-REC-01, RS-REC-05 to RS-REC-07.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::Store;
use testkit::case;
use testkit::peer_runs::each_snapshot;
use testkit::process::now_ms;
use testkit::records::{self, GONE, with, without};

use crate::ask::{self, Answer, utf8};

/// What ends a run, in the words of both.
const ENDS: [&str; 2] = ["close-as-failed", "adopt-result"];

/// How many runs were compared, by what was offered for them.
type Tally = BTreeMap<String, usize>;

/// Path and word of each object of a list.
fn words(list: &Value, word: &str) -> BTreeSet<(String, String)> {
    let text = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    list.as_array()
        .expect("a list")
        .iter()
        .map(|one| (text(one, "path"), text(one, word)))
        .collect()
}

fn compare(name: &str, root: &Path, tally: &mut Tally) {
    let inspected = ask::inspect(root).json;
    let plan = ["recover", utf8(root), "--grace-ms", "0", "--format", "json"];
    let planned = Answer::of(&ask::run(&plan)).json;
    let actions = words(&planned["actions"], "action");
    let ends = |(_, word): &&(String, String)| ENDS.contains(&word.as_str());
    let planned_ends: BTreeSet<_> = actions.iter().filter(ends).cloned().collect();
    let refused = words(&planned["refused"], "verdict");
    let mut offered = BTreeSet::new();
    for report in inspected["runs"].as_array().expect("a list") {
        let path = report["path"].as_str().expect("a text");
        for next in report["next"].as_array().expect("a list") {
            let action = next["action"].as_str().expect("a word").to_owned();
            let why = &next["why"];
            if ENDS.contains(&action.as_str()) {
                let command = next["command"].as_str().expect("it can be typed");
                assert!(command.starts_with("runstore recover "), "{name}: {command}");
                offered.insert((path.to_owned(), action.clone()));
            } else if action != "keep" || report["verdict"] != "orphaned" {
                continue;
            } else {
                let told = refused.contains(&(path.to_owned(), "orphaned".to_owned()));
                assert!(
                    told,
                    "{name}: {path} is to be kept ({why}), so it is left alone: {refused:?}"
                );
            }
            *tally.entry(action).or_default() += 1;
        }
    }
    assert_eq!(offered, planned_ends, "{name}: what is offered is what would be done");
}

#[test]
fn what_is_offered_for_an_orphan_is_what_a_recovery_would_do() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tally = Tally::new();
    for entry in fs::read_dir(top.join("conformance/cases")).expect("part of the repository") {
        let stored = entry.expect("readable").path();
        if !stored.join("expect.json").is_file() {
            continue;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let work = fs::canonicalize(dir.path()).expect("exists");
        let built = case::build(&stored, &work).expect("a stored case");
        compare(&stored.display().to_string(), &built.root, &mut tally);
    }
    let recordings = top.join("tests/golden/peer-runs");
    each_snapshot(&recordings, |name, root| compare(name, root, &mut tally)).expect("recordings");
    for word in ENDS {
        assert!(tally.get(word).is_some_and(|n| *n > 1), "{word} was offered: {tally:?}");
    }
}

#[test]
fn an_orphan_that_is_to_be_kept_is_left_alone() {
    let store = Store::new();
    let at = now_ms() - 60_000;
    let gone = |id: &str| records::running(id, GONE, at);
    let put = |id: &str, status: &Value| {
        store.run(id).status(status);
    };
    put("paused", &with(gone("paused"), "state", "paused"));
    put("queued", &with(gone("queued"), "state", "queued"));
    put("hidden", &with(gone("hidden"), "displayDismissedAt", at));
    put("other", &gone("another"));
    put("torn", &gone("torn"));
    store.result("torn", &records::result("torn", at));
    store.file("async-subagent-results/torn.json", "{\"success\":tr");
    put("silent", &gone("silent"));
    let silent = without(without(records::result("silent", at), "state"), "success");
    store.result("silent", &without(silent, "exitCode"));
    let twice = gone("twice").to_string().replacen('{', r#"{"mode":"chain","#, 1);
    store.run("twice").file("status.json", &twice);
    put("lost", &gone("lost"));
    put("told", &gone("told"));
    store.result("told", &records::result("told", at));
    let mut tally = Tally::new();
    compare("made", store.root(), &mut tally);
    let expected = [("adopt-result", 1), ("close-as-failed", 1), ("keep", 7)];
    let expected: Tally = expected.into_iter().map(|(word, n)| (word.to_owned(), n)).collect();
    assert_eq!(tally, expected);
}
