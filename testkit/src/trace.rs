//! The system calls of one operation of the driver, as `strace` sees them.
//!
//! Theory of operation. The driver ([`crate::driver`]) says `begin` before its operation and `ok` after it.
//! Both words are calls of their own, so the calls in between are those of the operation: [`calls`] reads
//! them from the log, [`of`] makes the log. A call is named by its number among the calls of its name,
//! which is the same in each run because the driver has one thread. A process that somebody else started is
//! attached to instead ([`attach`]).
//!
//! Not promised: anything where `strace` is missing or may not trace; [`refusal`] says so beforehand.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// One call: its name, and its number among those of that name since the start, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name.
    pub name: String,
    /// Number.
    pub number: usize,
}

/// Why nothing can be traced here, if so.
pub fn refusal() -> Option<String> {
    let mut command = Command::new("strace");
    command.args(["-e", "trace=getcwd", "-e", "inject=getcwd:error=EIO", "true"]);
    match command.output() {
        Err(e) => Some(format!("strace cannot be started: {e}")),
        Ok(out) if !out.status.success() => {
            Some(format!("strace may not trace: {}", String::from_utf8_lossy(&out.stderr).trim()))
        }
        Ok(_) => None,
    }
}

/// Attaches `strace` to a process that runs already, with these options; its children are left alone. It
/// is attached when this returns, and ends with the process. `None` when the system does not permit it.
///
/// # Errors
/// When it cannot be started or heard.
pub fn attach(pid: i64, options: &[&str]) -> io::Result<Option<Child>> {
    let mut strace = Command::new("strace")
        .args(options)
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let Some(told) = strace.stderr.take() else { return Ok(None) };
    let mut lines = BufReader::new(told);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    if !line.contains("attached") {
        strace.wait()?;
        return Ok(None);
    }
    // The rest is read, so that it never waits for us.
    std::thread::spawn(move || lines.lines().count());
    Ok(Some(strace))
}

/// A call as `strace` wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its number among those of that name, from 1.
    pub number: usize,
    /// What it was given, and what it came to.
    pub text: &'a str,
    /// The whole line.
    pub line: &'a str,
}

/// Every call of a log.
pub fn seen(log: &str) -> impl Iterator<Item = Seen<'_>> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    log.lines().filter_map(move |line| {
        let (name, text) = line.split_once('(')?;
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return None;
        }
        let number = numbers.entry(name).or_default();
        *number += 1;
        Some(Seen { name, number: *number, text, line })
    })
}

/// The options by which a process is killed before its `number`-th call of a name.
pub fn killing(name: &str, number: usize) -> [String; 4] {
    let inject = format!("inject={name}:signal=KILL:when={number}");
    ["-e".to_owned(), format!("trace={name}"), "-e".to_owned(), inject]
}

/// Whether the process of a log was killed.
pub fn was_killed(log: &str) -> bool {
    log.contains("+++ killed by SIGKILL +++")
}

/// The calls of an operation, from the word that begins it to the word that ends it, which is the last
/// one.
pub fn calls(log: &str) -> Vec<Call> {
    let mut found = Vec::new();
    let mut inside = false;
    for Seen { name, number, text, .. } in seen(log) {
        if inside {
            found.push(Call { name: name.to_owned(), number });
        }
        if name == "write" && text.starts_with("1, \"begin\\n\"") {
            inside = true;
        }
        if name == "write" && text.starts_with("1, \"ok\\n\"") {
            break;
        }
    }
    found
}

/// Names of the calls that the driver makes below `dir` for these words (see [`crate::driver`]), without
/// the word of success.
///
/// # Errors
/// When it could not be traced, or the operation failed.
pub fn of(driver: &Path, dir: &Path, words: &[&str]) -> Result<Vec<String>, String> {
    let log = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    let mut command = Command::new("strace");
    command.arg("-o").arg(log.path()).arg("--").arg(driver).arg(dir).args(words);
    let out = command.output().map_err(|e| format!("strace cannot be started: {e}"))?;
    if !out.status.success() {
        return Err(format!("{words:?}: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    let text = std::fs::read_to_string(log.path()).map_err(|e| e.to_string())?;
    let mut names: Vec<String> = calls(&text).into_iter().map(|call| call.name).collect();
    names.pop().map(|_| names).ok_or_else(|| format!("{words:?}: no call was seen"))
}

/// How many of these calls flush a file or a directory.
pub fn flushes(names: &[String]) -> usize {
    let flushing = ["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"];
    names.iter().filter(|name| flushing.contains(&name.as_str())).count()
}
