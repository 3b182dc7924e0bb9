//! What a stranger gets who asks the wrong thing: each line says what was wrong and what to do next, and what
//! it says to do can be done as it stands. Covers RS-DIAG-32.

use runstore::protocol::layout;
use testkit::Store;
use testkit::process::now_ms;
use testkit::records;

use crate::ask::{self, assert_harmless, utf8};

/// The line that tells what to do next.
fn hint(args: &[&str]) -> (i32, String) {
    let outcome = ask::run(args);
    assert_harmless("an error", outcome.errors().as_bytes());
    let errors = outcome.errors();
    let hint = errors.lines().find_map(|line| line.strip_prefix("hint: "));
    (outcome.code, hint.unwrap_or_else(|| panic!("{args:?}: no next step: {errors}")).to_owned())
}

#[test]
fn without_a_store_each_verb_says_how_it_is_asked() {
    assert_eq!(hint(&["inspect"]), (4, "name a store: runstore inspect PATH".to_owned()));
    assert_eq!(hint(&["list"]), (4, "name a store: runstore list PATH".to_owned()));
    let (code, hint) = hint(&["inspect", "run-12345678"]);
    assert_eq!(code, 4);
    assert!(hint.contains("runstore inspect run-12345678 --root STORE"), "of the id: {hint}");
}

#[test]
fn an_id_that_no_run_has_leads_to_the_runs_of_that_store() {
    let store = Store::new();
    records::finish(&store.run("run-finished"), now_ms());
    let root = utf8(store.root());
    let (code, hint) = hint(&["inspect", "run-nowhere", "--root", root]);
    assert_eq!(code, 4);
    let step = hint.strip_suffix(" shows every run").unwrap_or_else(|| panic!("{hint}"));
    let args: Vec<&str> = step.split(' ').skip(1).collect();
    let listed = ask::run(&args);
    assert!(listed.text().contains("run-finished"), "{step}: {}", listed.errors());
}

#[test]
fn the_root_of_all_files_is_no_empty_store_and_not_absent() {
    for verb in ["inspect", "list"] {
        let outcome = ask::run(&[verb, "/"]);
        assert_eq!(outcome.code, 2, "{verb}: {}", outcome.text());
        let errors = outcome.errors();
        assert!(errors.contains("/ has no name") && errors.contains("hint: "), "{errors}");
    }
}

#[test]
fn what_is_wrong_with_a_store_is_told_with_the_word_that_explains_it() {
    let store = Store::new();
    records::finish(&store.run("run-finished"), now_ms());
    let slot = store.root().join(layout::CAPACITY_DIR).join("pool/slot-0");
    std::fs::create_dir_all(&slot).expect("room");
    std::fs::write(slot.join("owner.json"), "garbage").expect("room");
    let root = utf8(store.root());
    for args in [&["list", root][..], &["inspect", root, "--format", "jsonl"]] {
        let errors = ask::run(args).errors();
        assert!(errors.contains("[slot-unreadable: session-active"), "{args:?}: {errors}");
    }
    let text = ask::run(&["inspect", root]).text();
    let line = text.lines().find(|line| line.starts_with("slot ")).expect("it is listed");
    assert!(line.contains("until a person removes it"), "nobody else ever will: {line}");
}

#[test]
fn a_plan_or_policy_that_cannot_be_read_is_told_with_how_one_is_made() {
    let store = Store::new();
    let (root, home) = (utf8(store.root()), store.beside("home"));
    let file = |name: &str| home.join(name);
    std::fs::create_dir(file("folder")).expect("room");
    std::fs::File::create(file("huge")).expect("room").set_len(1 << 40).expect("sparse");
    let below = file("huge/below");
    for (path, code) in [
        (file("none"), 4),
        (file("no/where"), 4),
        (below, 4),
        (file("folder"), 2),
        (file("huge"), 2),
    ] {
        let path = utf8(&path);
        let from = hint(&["recover", "--from", path]);
        assert!(from.0 == code && from.1.starts_with("save one with: "), "{path}: {from:?}");
        let policy = hint(&["recover", root, "--policy", path]);
        assert!(policy.0 == code && policy.1.contains("\"version\":1"), "{path}: {policy:?}");
    }
    let errors = ask::run(&["recover", "--from", utf8(&file("huge"))]).errors();
    assert!(errors.contains("1099511627776 bytes") && !errors.contains('{'), "{errors}");
}

#[test]
fn a_list_of_meanings_cuts_no_sentence_in_two() {
    for line in ask::run(&["explain"]).text().lines() {
        assert!(line.matches('`').count().is_multiple_of(2), "{line}");
    }
}
