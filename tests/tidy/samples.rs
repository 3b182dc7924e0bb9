//! The rules on samples: each reports what it must and nothing else.
//!
//! Theory of operation. A sample is a path with a text. Bad samples are written so that the rules,
//! which read this file too, do not take them for this file's own: code in strings is not code, and
//! clause ids and machine paths are put together from pieces.

use crate::rules::{self, File};
use crate::{code, coverage};

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// Says that `rule` reports the sample, with a line that holds `what`, or that it does not.
fn check(rule: fn(&File) -> Vec<String>, path: &str, text: &str, what: Option<&str>) {
    let found = rule(&file(path, text));
    match what {
        None => assert_eq!(found, [""; 0], "{path}: {text}: keeps the rule"),
        Some(what) => assert!(
            found.iter().any(|line| line.starts_with(path) && line.contains(what)),
            "{path}: {text}: breaks the rule with {what}, found {found:?}"
        ),
    }
}

#[test]
fn a_role_that_imports_a_role_is_reported() {
    let arrows = |path, text, what| check(rules::arrows, path, text, what);
    arrows("src/recover/plan.rs", "use crate::inspect::Report;", Some("recover uses inspect"));
    arrows(
        "src/inspect/mod.rs",
        "use crate::{protocol, recover::Plan};",
        Some("inspect uses recover"),
    );
    arrows("src/inspect/mod.rs", "use super::recover;", Some("inspect uses recover"));
    arrows("src/inspect/report.rs", "use super::super::{launcher};", Some("inspect uses launcher"));
    arrows(
        "src/runner/mod.rs",
        "\n\nfn f() { crate::observer::go() }",
        Some(":3: runner uses observer"),
    );
    arrows("src/inspect/mod.rs", "use crate::{protocol::Verdict, store};", None);
    arrows("src/inspect/report.rs", "use super::render;\nuse crate::inspect::explain;", None);
    arrows("src/inspect/mod.rs", "// as crate::recover does\nlet s = \"crate::recover\";", None);
}

#[test]
fn an_arrow_that_points_up_is_reported() {
    let arrows = |path, text, what| check(rules::arrows, path, text, what);
    arrows("src/protocol/status.rs", "use crate::store::Host;", Some("protocol uses store"));
    arrows("src/protocol/status.rs", "use super::super::store::Host;", Some("protocol uses store"));
    arrows("src/store/mod.rs", "use crate::inspect;", Some("store uses inspect"));
    arrows(
        "src/store/host/real.rs",
        "use super::super::super::inspect;",
        Some("store uses inspect"),
    );
    arrows("src/protocol/status.rs", "use super::state::RunState;", None);
    arrows("src/store/host/real.rs", "use super::super::read;\nuse crate::protocol::limits;", None);
    arrows("src/lib.rs", "pub use crate::inspect::Report;", None);
}

#[test]
fn a_command_line_that_reaches_into_the_library_is_reported() {
    let arrows = |path, text, what| check(rules::arrows, path, text, what);
    arrows("src/cli/mod.rs", "use crate::store::Store;", Some("cli uses store"));
    arrows("src/main.rs", "use crate::protocol;", Some("main uses protocol"));
    arrows("src/inspect/mod.rs", "use runstore::cli;", Some("inspect uses cli"));
    arrows("src/cli/mod.rs", "use runstore::store::Store;\nuse crate::cli::args;", None);
}

#[test]
fn a_protocol_that_does_io_is_reported() {
    let pure = |path, text, what| check(rules::pure_protocol, path, text, what);
    let inside = "src/protocol/proof.rs";
    pure(inside, "use std::fs;", Some("std::fs"));
    pure(inside, "use std::{borrow::Cow, env};", Some("std::env"));
    pure(inside, "fn f() { std::process::id(); }", Some("std::process"));
    pure(inside, "use std::io::Read;", Some("std::io"));
    pure(inside, "use std::net::TcpStream;", Some("std::net"));
    pure(inside, "use std::thread;", Some("std::thread"));
    pure(inside, "use std::time::{Duration, SystemTime};", Some("SystemTime"));
    pure(inside, "let start = Instant::now();", Some("Instant"));
    pure(inside, "use rustix::fs::openat;", Some("rustix"));
    pure("src/protocol/mod.rs", "\nuse std::fs;", Some(":2:"));
    pure(inside, "use std::{borrow::Cow, fmt};\nuse std::time::Duration;", None);
    pure(inside, "/// Not `std::fs`, not SystemTime.\nfn instant_ms() {}", None);
    pure(inside, "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}", None);
    pure(inside, "#[cfg(test)]\nuse x;\nuse std::fs;\n", Some("std::fs"));
    pure("src/protocol/slot_tests.rs", "use std::fs;", None);
    pure("src/store/host/real.rs", "use std::fs;", None);
}

#[test]
fn a_module_without_docs_is_reported() {
    let docs = |path, text, what| check(rules::docs, path, text, what);
    docs("src/store/mod.rs", "use std::fs;", Some("docs"));
    docs("src/store/mod.rs", "// A comment is none.\n//! Too late.", Some("docs"));
    docs("src/store/mod.rs", "//!\n", Some("docs"));
    docs("tests/it/x.rs", "", Some("docs"));
    docs("src/store/mod.rs", "\n//! The store.\n", None);
    docs("spec/README.md", "# Spec", None);
}

#[test]
fn unfinished_code_is_reported() {
    let finished = |path, text, what| check(rules::finished, path, text, what);
    finished("src/a.rs", "fn f() {\n    todo!()\n}", Some(":2: unfinished"));
    finished("src/a.rs", "unimplemented!(\"later\")", Some("unimplemented"));
    finished("tests/it/a.rs", "#[ignore]\nfn a() {}", Some("ignored"));
    finished("tests/it/a.rs", "#[test]\n#[ignore = \"needs a network\"]\nfn a() {}", None);
    finished("src/a.rs", "// no todo! here\nlet s = \"todo!()\"; let r = r#\"\"todo!()\"#;", None);
}

#[test]
fn a_file_over_the_limit_is_reported() {
    let size = |path, text: &str, what| check(rules::size, path, text, what);
    size("src/a.rs", &"\n".repeat(rules::LINES + 1), Some("701 lines"));
    size("src/a.rs", &"\n".repeat(rules::LINES), None);
    size("spec/a.md", &"\n".repeat(rules::LINES + 1), None);
}

#[test]
fn a_second_row_for_one_place_is_reported() {
    let rows = |path, text: &str, what| check(rules::rows_once, path, text, what);
    let twice = "| `src/a/` | old |\n| `src/b/` | b |\n| `src/a/` | new |\n";
    rows("ARCHITECTURE.md", twice, Some(":3: `src/a/` has a row in line 1"));
    rows("ARCHITECTURE.md", "| `src/a/` | a |\n| `src/a/`, `b` | both |\n", None);
    rows("docs/a.md", twice, None);
}

#[test]
fn a_path_of_a_machine_is_reported() {
    let paths = |text: &str, what| check(rules::machine_paths, "docs/a.md", text, what);
    for name in [["/wo", "rk/x"], ["/tmp/", "wt-x"], ["/fa", "rm/x"]].map(|parts| parts.concat()) {
        paths(&name, Some(":1:"));
        paths(&format!("see\n`{name}`"), Some(":2:"));
        paths(&format!("net{name}"), None);
        paths(&format!("https://example.org{name}"), None);
    }
    paths("/tmp/pi-subagents-uid-1000", None);
}

#[test]
fn a_file_that_no_module_declares_is_reported() {
    let declared = |files: &[(&str, &str)], what: Option<&str>| {
        let files: Vec<_> = files.iter().map(|(path, text)| file(path, text)).collect();
        let found = rules::declared(&files);
        match what {
            None => assert_eq!(found, [""; 0], "every file is declared"),
            Some(path) => {
                assert_eq!(found.len(), 1, "one file is not declared: {found:?}");
                assert!(found[0].starts_with(path), "{path} is not declared: {found:?}");
            }
        }
    };
    let main = "tests/it/main.rs";
    declared(
        &[(main, "mod a;"), ("tests/it/a.rs", ""), ("tests/it/b.rs", "")],
        Some("tests/it/b.rs"),
    );
    declared(&[(main, "// mod a;"), ("tests/it/a.rs", "")], Some("tests/it/a.rs"));
    declared(
        &[(main, "mod ab;"), ("tests/it/ab.rs", ""), ("tests/it/b.rs", "")],
        Some("tests/it/b.rs"),
    );
    declared(&[(main, "mod a;"), ("tests/it/a.rs", "mod b;"), ("tests/it/a/b.rs", "")], None);
    declared(
        &[(main, "mod a;"), ("tests/it/a.rs", ""), ("tests/it/a/b.rs", "")],
        Some("tests/it/a/b.rs"),
    );
    declared(&[("src/lib.rs", "pub mod p;"), ("src/p/mod.rs", "mod q;"), ("src/p/q.rs", "")], None);
    declared(&[("src/main.rs", "mod cli;"), ("src/cli/mod.rs", "")], None);
    declared(&[("src/lib.rs", ""), ("src/p/mod.rs", "")], Some("src/p/mod.rs"));
    let named = "#[path = \"q_tests.rs\"]\nmod tests;";
    declared(&[("src/lib.rs", "mod q;"), ("src/q.rs", named), ("src/q_tests.rs", "")], None);
    declared(&[("tests/tidy.rs", ""), ("fuzz/fuzz_targets/a.rs", "")], None);
}

#[test]
fn clauses_that_are_unknown_or_not_written_down_are_reported() {
    let id = |area: &str, number: u32| format!("RS-{area}-{number:02}");
    let (one, two) = (id("ATOM", 1), id("ATOM", 2));
    let entry = |id: &str| format!("[[clause]]\nid = \"{id}\"\nchapter = \"a.md\"\n");
    let clauses = |registry: Option<String>, rest: &[(&str, String)], what: Option<&str>| {
        let mut files: Vec<_> = rest.iter().map(|(path, text)| file(path, text)).collect();
        files.extend(registry.map(|text| file("spec/clauses.toml", &text)));
        let found = rules::clauses(&files);
        match what {
            None => assert_eq!(found, [""; 0], "every clause is known and written down"),
            Some(what) => {
                assert_eq!(found.len(), 1, "one thing is wrong: {found:?}");
                assert!(found[0].contains(what), "{what} is reported: {found:?}");
            }
        }
    };
    let chapter = ("spec/a.md", format!("**{one}** A reader MUST read."));
    let good = Some(entry(&one));
    clauses(None, &[], Some("missing"));
    clauses(Some(String::new()), &[], Some("no clause is registered"));
    clauses(good.clone(), &[chapter.clone(), ("src/a.rs", format!("//! `{one}`."))], None);
    for place in
        ["src/a.rs", "tests/it/a.rs", "conformance/src/a.rs", "testkit/src/a.rs", "spec/b.md"]
    {
        let text = format!("\n//! Spec: {one}, {two}.");
        let line = format!("{place}:2: unknown clause {two}");
        clauses(good.clone(), &[chapter.clone(), (place, text)], Some(&line));
    }
    clauses(good.clone(), &[chapter.clone(), ("docs/a.md", two.clone())], None);
    clauses(
        good.clone(),
        &[chapter.clone(), ("src/a.rs", "RS-<AREA>-01 RS-A-1 XRS-A-01".into())],
        None,
    );
    clauses(good.clone(), &[("spec/a.md", format!("See {one}."))], Some("at 0 paragraphs"));
    clauses(good.clone(), &[("spec/b.md", chapter.1.clone())], Some("at 0 paragraphs"));
    let twice = format!("{0}\n{0}", chapter.1);
    clauses(good.clone(), &[("spec/a.md", twice)], Some("at 2 paragraphs"));
    clauses(Some(entry(&one) + &entry(&one)), std::slice::from_ref(&chapter), Some("twice"));
    let withdrawn = entry(&one) + &entry(&two) + "status = \"withdrawn\"\n";
    clauses(Some(withdrawn), &[chapter, ("src/a.rs", two)], None);
}

#[test]
fn a_clause_for_readers_that_nothing_names_is_reported() {
    let [must, should, writer] = ["01", "02", "03"].map(|number| ["RS", "A", number].join("-"));
    let entry = |id: &str, level: &str, role: &str| {
        format!("[[clause]]\nid = \"{id}\"\nlevel = \"{level}\"\nrole = [\"{role}\"]\n")
    };
    let registry = entry(&must, "MUST", "reader")
        + &entry(&should, "SHOULD", "reader")
        + &entry(&writer, "MUST", "writer");
    let covered = |path: &str, waived: &[(&str, &str)]| {
        let place = file(path, &format!("/// Spec: {must}."));
        coverage::covered(&[file("spec/clauses.toml", &registry), place], waived)
    };
    for place in ["src/a.rs", "tests/it/a.rs"] {
        assert_eq!(covered(place, &[]), [""; 0], "a clause that {place} names is kept");
    }
    for place in ["docs/a.md", "testkit/src/a.rs", "tests/tidy/a.rs"] {
        let found = covered(place, &[]);
        assert!(found.len() == 1 && found[0].contains(":2: "), "{place} keeps nothing: {found:?}");
        assert_eq!(covered(place, &[(&must, "not yet")]), [""; 0], "a waiver has its reason");
    }
    let needless = covered("src/a.rs", &[(&must, "not yet")]);
    assert_eq!(needless.len(), 1, "a waiver of a clause that is named: {needless:?}");
    let strange = covered("src/a.rs", &[(&writer, "not for readers")]);
    assert_eq!(strange.len(), 1, "a waiver of a clause that binds no reader: {strange:?}");
}

#[test]
fn a_crash_row_without_its_test_is_reported() {
    let problems = |row: &str| {
        let page = format!("# Page\n\n| step | test |\n|---|---|\n{row}\n");
        let test = file("tests/crash/a.rs", "//! A.\nfn it_holds() {}\n");
        rules::crash_rows(&[file("spec/durability.md", &page), test])
    };
    assert!(problems("| 1 `x::y` | `a::it_holds` |").is_empty());
    assert!(problems("| 1 | `a::it_holds`, `a::it_holds` |").is_empty());
    for bad in ["| 1 | none |", "| 1 | `a::other` |", "| 1 | `b::it_holds` |", "| 1 | `it_holds` |"]
    {
        assert_eq!(problems(bad).len(), 1, "{bad}");
    }
    assert_eq!(problems("| 1 | `a::it_holds`, `a::other` |").len(), 1, "each name is looked up");
}

#[test]
fn stripping_keeps_code_and_lines() {
    let same_length = |source: &str| {
        let code = code::strip(source);
        assert_eq!(code.lines().count(), source.lines().count(), "lines keep their numbers");
        code
    };
    let code = same_length("a /* b /* c */ d */ e // f\n\"g\\\"h\" i 'j' '\\'' 'k: l<'m> 'ä' n");
    for gone in ["b", "c", "d", "f", "g", "h", "j", "ä"] {
        assert!(!code.contains(gone), "{gone} is no code: {code}");
    }
    for kept in ["a", "e", "i", "'k: l<'m>", "n"] {
        assert!(code.contains(kept), "{kept} is code: {code}");
    }
    let code = same_length("x r#\"y \"\n z\"# br\"q\" for\"s\" t");
    for gone in ["y", "z", "q", "s"] {
        assert!(!code.contains(gone), "{gone} is inside a literal: {code}");
    }
    assert!(code.contains('t'), "what follows a literal is code: {code}");
}
