//! Rules about this repository, checked like its behaviour.
//!
//! Theory of operation. The repository is read into pairs of path and text; every rule is a function
//! of such pairs that returns problems, so that the rules themselves are tested on samples
//! (`tidy/samples.rs`). Code is looked at without its comments and the content of its strings
//! (`tidy/code.rs`); nothing is parsed beyond that. What a rule cannot see this way — a name smuggled
//! through a macro or a re-export — is left to reviewers.
//!
//! The rules: arrows between areas, no I/O in `protocol`, docs on every module, every file declared,
//! every clause registered, written down and named where it is kept, nothing unfinished, no path of
//! somebody's machine, one row of the code map for a place, and files that fit one sitting.

#![expect(clippy::disallowed_methods, reason = "the repository is read with plain files")]

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/coverage.rs"]
mod coverage;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/samples.rs"]
mod samples;

use std::path::Path;

use rules::File;

/// Folders that are looked at, besides the files at the top.
const FOLDERS: [&str; 10] =
    ["src", "tests", "conformance", "testkit", "spec", "docs", "bindings", "bench", "fuzz", ".ci"];

/// Data and build products: recorded bytes follow other rules than ours.
const LEFT_OUT: [&str; 8] = [
    "tests/golden",
    "conformance/cases",
    "conformance/vectors",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/coverage",
    "fuzz/target",
    "fuzz/hfuzz_target",
];

#[test]
fn the_repository_keeps_its_rules() {
    let files = repository();
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "the repository was found");
    let problems = rules::all(&files);
    assert!(
        problems.is_empty(),
        "{} rules of the repository are broken:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Every text file that the rules look at, in the order of their paths.
fn repository() -> Vec<File> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let relative = |path: &Path| {
        let path = path.strip_prefix(top).expect("a walk stays below its top");
        path.to_string_lossy().replace('\\', "/")
    };
    let mut files = Vec::new();
    let mut add = |path: &Path| {
        // What is not text cannot break a rule about text.
        if let Ok(text) = std::fs::read_to_string(path) {
            files.push(File { path: relative(path), text });
        }
    };
    for folder in FOLDERS.map(|name| top.join(name)).iter().filter(|path| path.is_dir()) {
        let walk = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter();
        let wanted = |entry: &walkdir::DirEntry| !LEFT_OUT.contains(&&*relative(entry.path()));
        for entry in walk.filter_entry(wanted) {
            let entry = entry.expect("the repository is readable");
            if entry.file_type().is_file() {
                add(entry.path());
            }
        }
    }
    for entry in std::fs::read_dir(top).expect("the repository is readable") {
        let entry = entry.expect("the repository is readable");
        // Of a linked worktree `.git` is a file with a path in it.
        let left_out = [".git", "Cargo.lock"].iter().any(|name| entry.file_name() == *name);
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && !left_out {
            add(&entry.path());
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}
