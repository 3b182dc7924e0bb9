//! The minimal runners of `conformance/minimal` reach L1, and the one in Perl all of it.

use std::path::Path;

use testkit::process::skip;
use testkit::program;

use super::{judge, misses, tells_orders};
use crate::ask;

fn reaches_l1(name: &str, interpreter: &str) {
    reaches("L1", name, interpreter);
}

fn reaches(level: &str, name: &str, interpreter: &str) {
    if !tells_orders(name) {
        return;
    }
    if interpreter != "sh" && !program::is_there(interpreter) {
        return skip(name, &format!("there is no {interpreter}"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/minimal").join(name);
    // Called by its own first line, as an author would.
    let (report, code) = judge(&["--level", level], &[ask::utf8(&path)]);
    assert_eq!(misses(&report), Vec::<String>::new(), "{name}");
    assert_eq!((code, &report["levelReached"]), (0, &level.into()), "{name}");
}

#[test]
fn the_shell_runner_reaches_l1_in_150_lines() {
    reaches_l1("runner.sh", "sh");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/minimal/runner.sh");
    let lines = std::fs::read_to_string(path).expect("there").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn the_python_runner_reaches_l1() {
    reaches_l1("runner.py", "python3");
}

#[test]
fn the_node_runner_reaches_l1() {
    reaches_l1("runner.mjs", "node");
}

#[test]
fn the_perl_runner_reaches_l3() {
    reaches("L3", "runner.pl", "perl");
}
