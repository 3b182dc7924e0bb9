//! Stores that want to hurt their reader.
//!
//! Theory of operation. Every test builds a store with one healthy, finished run and something hostile
//! beside it, and asks for it in every form. [`Hostile::assert_answered`] holds what must be true of
//! each of them, whatever the hostile thing is: the program ends in time, by itself; the healthy run is
//! reported `finished`; every directory of the runs root has exactly one report; text holds nothing
//! that a terminal obeys; all forms agree on the exit code. A test adds what is special about its case.
//!
//! Nothing hostile is stored in the repository: devices and huge files could not be, and a name that
//! is no UTF-8 would break a clone.

mod bytes;
mod command_line;
mod owners;
mod places;
mod sizes;
mod texts;

use std::collections::BTreeMap;
use std::fs;

use testkit::Store;
use testkit::process::now_ms;
use testkit::program::Outcome;
use testkit::records;

use crate::ask::{self, Answer, utf8};

/// A store with a healthy run, and whatever a test adds.
struct Hostile {
    store: Store,
}

/// How a program is asked.
type Asker<'a> = &'a dyn Fn(&[&str]) -> Outcome;

impl Hostile {
    fn new() -> Self {
        Self::of(Store::new())
    }

    fn of(store: Store) -> Self {
        records::finish(&store.run("healthy"), now_ms());
        Self { store }
    }

    /// Asks in every form and checks what every answer must keep to; gives the answer in JSON.
    fn assert_answered(&self, what: &str) -> Answer {
        self.assert_answered_by(what, &ask::run)
    }

    fn assert_answered_by(&self, what: &str, ask: Asker<'_>) -> Answer {
        let root = utf8(self.store.root());
        let outcome = ask(&["inspect", root, "--format", "json"]);
        let answer = Answer::of(&outcome);
        ask::assert_harmless(what, &outcome.stderr);
        assert_eq!(answer.verdict("healthy"), "finished", "{what}: a bad record hides no other");
        assert_eq!(self.names(), reported(&answer), "{what}: one report for each directory");
        let lines = ask(&["inspect", root, "--format", "jsonl"]);
        ask::assert_harmless(what, &lines.stderr);
        let count = lines.text().lines().count();
        assert_eq!(count, answer.runs().len(), "{what}: a line for each report");
        let list = ask(&["list", root, "--all", "--format", "jsonl"]);
        let listed = list.text().lines().count();
        assert_eq!(listed, answer.runs().len(), "{what}: a row for each report");
        let text = ask(&["inspect", root, "--verbose"]);
        let rows = ask(&["list", root, "--all"]);
        for outcome in [&text, &rows] {
            ask::assert_harmless(what, &outcome.stdout);
            ask::assert_harmless(what, &outcome.stderr);
        }
        let codes = [outcome.code, lines.code, list.code, text.code, rows.code];
        assert_eq!(codes, [answer.code; 5], "{what}: every form has the same exit code");
        answer
    }

    /// What must have a report: everything in the runs root but plain files and dotted names.
    fn names(&self) -> BTreeMap<String, usize> {
        let entries = fs::read_dir(self.store.root().join("async-subagent-runs"));
        let mut names = BTreeMap::new();
        for entry in entries.expect("the tree is ours") {
            let entry = entry.expect("the tree is ours");
            let name = entry.file_name().to_string_lossy().into_owned();
            let plain = entry.file_type().expect("the tree is ours").is_file();
            if !name.starts_with('.') && !plain {
                *names.entry(name).or_default() += 1;
            }
        }
        names
    }
}

fn reported(answer: &Answer) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for run in answer.runs().iter().filter(|run| run["nested"] != true) {
        *names.entry(run["runId"].as_str().expect("an id").to_owned()).or_default() += 1;
    }
    names
}
