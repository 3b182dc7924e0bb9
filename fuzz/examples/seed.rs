//! Makes a seed corpus out of the recorded stores and the cases of this repository.
//!
//! Run in this folder: `cargo run --example seed`. It writes to `corpus/<target>/`, which is not part
//! of the repository; what is there already stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files of a run in the order in which the target `verdict` wants them.
const VERDICT_FILES: [&str; 7] = [
    "status.json",
    "process-terminal.json",
    "process-terminal-candidate.json",
    "runner-startup.json",
    "runner-startup-ack.json",
    "runner-startup-confirm.json",
    "events.jsonl",
];

/// The same names as numbers of the target `snapshot`.
const SNAPSHOT_FILES: [(&str, u8); 11] = [
    ("status.json", 0),
    ("process-terminal.json", 1),
    ("process-terminal-candidate.json", 2),
    ("events.jsonl", 3),
    ("runner-startup.json", 4),
    ("runner-startup-ack.json", 5),
    ("runner-startup-confirm.json", 6),
    ("runner-startup-proceed.json", 7),
    ("runner.stderr.log", 8),
    ("output-0.log", 9),
    ("workflow-result.json", 10),
];

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for source in ["../tests/golden", "../conformance/cases"] {
        walk(&here.join(source), &mut files)?;
    }
    files.sort();
    let corpus = here.join("corpus");
    for target in ["document", "events", "verdict", "snapshot"] {
        fs::create_dir_all(corpus.join(target))?;
    }
    for (at, file) in files.iter().enumerate() {
        let bytes = fs::read(file)?;
        if bytes.len() > 16 << 10 {
            continue;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".json") {
            fs::write(corpus.join("document").join(format!("{at:05}")), &bytes)?;
        }
        if name.ends_with(".jsonl") {
            fs::write(corpus.join("events").join(format!("{at:05}")), &bytes)?;
        }
        if name == "status.json" {
            let run = file.parent().expect("a file is in a directory");
            fs::write(corpus.join("verdict").join(format!("{at:05}")), verdict(run, at))?;
            fs::write(corpus.join("snapshot").join(format!("{at:05}")), snapshot(run))?;
        }
    }
    Ok(())
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The files under the name of run that the target expects.
fn renamed(run: &Path, file: &str) -> Vec<u8> {
    let id = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read(run.join(file)).unwrap_or_default();
    String::from_utf8(text).map(|t| t.replace(&id, "run-1").into_bytes()).unwrap_or_default()
}

fn verdict(run: &Path, at: usize) -> Vec<u8> {
    // Dead, live and unknown in turn.
    let mut out = vec![(at % 6) as u8, 0, 0, 0, 0, 0, 4, 0];
    for file in VERDICT_FILES {
        out.extend(renamed(run, file));
        out.push(0xff);
    }
    out
}

fn snapshot(run: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for (file, number) in SNAPSHOT_FILES {
        let bytes = renamed(run, file);
        let Ok(length) = u16::try_from(bytes.len()) else { continue };
        if length > 0 {
            out.extend([2, number, 7]);
            out.extend(length.to_be_bytes());
            out.extend(bytes);
        }
    }
    out
}
