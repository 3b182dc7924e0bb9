//! The README is followed to the letter: its section on repairs, on the shipped store.
//!
//! Theory of operation. The commands are taken from the text, so that they cannot go stale: each line of the
//! section's shell block is one command, run by a shell with the program of this build on its path and the
//! place of the copy put in. What the section says of each is checked. RS-REC-01, RS-REC-19, RS-REC-24.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::tree;

use crate::ask;

/// The lines of the fenced blocks of one section, by the word behind the fence.
fn blocks(section: &str) -> BTreeMap<String, Vec<String>> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).expect("it is shipped");
    let text = readme.split("\n## ").find(|part| part.starts_with(section));
    let text = text.unwrap_or_else(|| panic!("there is a section {section}"));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &open) {
            (Some(word), None) => open = Some(word.to_owned()),
            (Some(_), Some(_)) => open = None,
            (None, Some(word)) => found.entry(word.clone()).or_default().push(line.to_owned()),
            (None, None) => {}
        }
    }
    found
}

/// Runs a line of the README in the repository, with the copy at another place.
fn sh(line: &str, copy: &Path) -> Output {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = ask::binary();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(binary.parent().expect("it lies somewhere").to_owned());
    let path = std::env::join_paths(dirs.chain(std::env::split_paths(&path))).expect("paths");
    let line = line.replace("/tmp/store", ask::utf8(copy));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(top).env("PATH", path).env("HOME", copy);
    command.output().expect("there is a shell")
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = tree::walk(root).expect("readable").into_iter().filter(|path| !tree::is_own(path));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root).expect("below").to_owned();
        path.is_file().then(|| (name, fs::read(&path).expect("readable")))
    };
    paths.filter_map(read).collect()
}

#[test]
fn the_shipped_store_is_repaired_from_the_readme_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let copy = fs::canonicalize(dir.path()).expect("exists").join("store");
    let blocks = blocks("Repairing");
    let mut said = Vec::new();
    for line in &blocks["sh"] {
        let output = sh(line, &copy);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.is_empty() {
            // The umask of the checkout is not what is tried here.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(&copy, mode).expect("ours");
        }
        said.push((line.clone(), output.status.code(), text, errors));
    }
    let told = |at: usize, head: &str, code: i32, words: &[&str]| {
        let (line, got, text, errors) = &said[at];
        assert!(line.starts_with(head), "line {at} of the section is {line:?}, not {head}");
        assert_eq!(*got, Some(code), "{line}\n{text}{errors}");
        for word in words {
            assert!(text.contains(word), "{line} says {word:?}:\n{text}{errors}");
        }
    };
    told(0, "cp -a examples/store /tmp/store", 0, &[]);
    told(1, "runstore recover /tmp/store", 1, &["8 runs looked at: 4 actions, 0 left alone"]);
    told(2, "runstore recover /tmp/store --apply", 0, &["4 done, 0 not done, 0 left alone"]);
    told(3, "runstore inspect run-orphan", 5, &["recorded 'failed'", "repaired", "[pi-subagents]"]);
    told(4, "runstore inspect run-success", 5, &["recorded 'complete'"]);
    told(5, "runstore recover /tmp/store", 0, &["8 runs looked at: 0 actions"]);
    told(6, "runstore recover log", 0, &["close-as-failed", "adopt-result", "done"]);
    told(7, "runstore recover undo", 0, &["4 taken back"]);
    assert_eq!(said.len(), 8, "every line of the section is known here");

    let shown = &said[1].2;
    for line in blocks["text"].iter().filter(|line| !line.contains('…')) {
        let line = line.replace("/tmp/store", ask::utf8(&copy));
        assert!(shown.contains(&line), "the plan says {line:?}:\n{shown}");
    }
    // What is offered can be typed as it is shown.
    let hint = |at: usize| {
        let (line, _, _, errors) = &said[at];
        let hint = errors.lines().find(|line| line.starts_with("hint: "));
        let hint = hint.unwrap_or_else(|| panic!("{line}: a next step: {errors}"));
        hint[hint.find("runstore ").expect("a command")..].to_owned()
    };
    assert_eq!(hint(1), format!("runstore recover {} --apply", copy.display()));
    assert!(hint(2).ends_with(&format!(" --root {}", copy.display())), "{}", hint(2));
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/store");
    assert_eq!(files(&copy), files(&shipped), "as it was, byte for byte");
}
