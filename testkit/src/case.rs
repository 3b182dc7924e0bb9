//! Case directories made ready to be inspected.
//!
//! Theory of operation. A case under `conformance/cases` is a stored tree plus, sometimes, a `setup.sh`
//! for what cannot be stored. [`build`] makes the copy look like the original, in this order:
//!
//! 1. the tree is copied with modes and times;
//! 2. the path [`ORIGINAL`] inside its records becomes the copy's own path;
//! 3. `setup.sh TARGET` runs; the processes that it starts are listed in `TARGET/.pids`;
//! 4. every file gets the modification time that its own content names ([`set_times`]), because a
//!    copied tree has the time of the copy and readers compare the two.
//!
//! Dropping a [`Case`] ends the processes of step 3, and no others: a pid whose program is not the
//! `sleep` that a case starts has been reused and is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::{program, tree};

/// The temp root that the records of stored cases name.
pub const ORIGINAL: &str = "/tmp/pi-subagents-uid-1000";

/// Larger files are neither searched for paths nor given a time.
pub const SMALL_BYTES: u64 = 4 << 20;

/// How long a `setup.sh` may take.
const SETUP_LIMIT: Duration = Duration::from_secs(300);

/// Members of a record that hold the instant at which it was written.
const TIMES: [&str; 11] = [
    "lastUpdate",
    "endedAt",
    "startedAt",
    "observedAt",
    "closeObservedAt",
    "writtenAt",
    "timestamp",
    "ts",
    "updatedAtMs",
    "acquiredAtMs",
    "reservedAt",
];

/// A built case. Dropping it ends the processes it started.
#[derive(Debug)]
pub struct Case {
    /// The directory above the root.
    pub target: PathBuf,
    /// The copied store.
    pub root: PathBuf,
}

impl Drop for Case {
    fn drop(&mut self) {
        end_processes(&self.target);
    }
}

/// Builds the case stored in `case` below the directory `work`.
///
/// # Errors
/// What could not be copied, or what `setup.sh` said when it failed.
pub fn build(case: &Path, work: &Path) -> io::Result<Case> {
    let name = case.file_name().expect("a case directory has a name");
    let target = work.join(name);
    let root = target.join("root");
    // From here on a failure must still end what setup.sh may have started.
    let built = Case { target, root };
    fs::create_dir_all(&built.target)?;
    if case.join("root").is_dir() {
        tree::copy(&case.join("root"), &built.root)?;
    } else {
        fs::create_dir(&built.root)?;
    }
    let own = serde_json::to_string(&built.root).map_err(io::Error::other)?;
    let own = own.trim_matches('"');
    for path in small_files(&built.root)? {
        let data = fs::read(&path)?;
        if contains(&data, ORIGINAL.as_bytes()) {
            fs::write(&path, replace(&data, ORIGINAL.as_bytes(), own.as_bytes()))?;
        }
    }
    let setup = case.join("setup.sh");
    if setup.is_file() {
        let mut command = Command::new("sh");
        command.arg(&setup).arg(&built.target);
        let outcome = program::run(command, SETUP_LIMIT, None)?;
        if outcome.late || outcome.code != 0 {
            let said = outcome.errors();
            let what = format!("{}: exit code {}: {said}", setup.display(), outcome.code);
            return Err(io::Error::other(what));
        }
    }
    set_times(&built.root)?;
    Ok(built)
}

/// Gives every file below `root` the modification time that its own content names; files that name
/// none get that of the status beside them, a marker that of its run, a run directory that of its
/// status. Directories without a status keep theirs.
///
/// # Errors
/// The first file that could not be read or timed.
pub fn set_times(root: &Path) -> io::Result<()> {
    let mut runs: Vec<(PathBuf, u64)> = Vec::new();
    let mut rest = Vec::new();
    for path in small_files(root)? {
        match own_time_ms(&path)? {
            Some(at) => {
                if path.file_name().is_some_and(|n| n == "status.json") {
                    runs.push((parent(&path), at));
                }
                tree::set_time_ms(&path, at)?;
            }
            None => rest.push(path),
        }
    }
    for path in rest {
        let is_marker = path.components().any(|c| c.as_os_str() == ".active-runs");
        let folder = parent(&path);
        let found = if is_marker {
            runs.iter().find(|(run, _)| run.file_name() == path.file_name())
        } else {
            runs.iter().find(|(run, _)| *run == folder)
        };
        if let Some((_, at)) = found {
            tree::set_time_ms(&path, *at)?;
        }
    }
    for (run, at) in &runs {
        tree::set_time_ms(run, *at)?;
    }
    Ok(())
}

/// The records of a case that name the inspecting process itself. Its pid is only known once it
/// exists, so the number stands for it until [`SelfPid::adopt`].
#[derive(Debug)]
pub struct SelfPid {
    mark: Vec<u8>,
    originals: Vec<(PathBuf, Vec<u8>)>,
}

impl SelfPid {
    /// Finds the records below `root` that hold the number `mark`.
    ///
    /// # Errors
    /// The first file that could not be read.
    pub fn find(root: &Path, mark: u64) -> io::Result<Self> {
        let mark = mark.to_string().into_bytes();
        let mut originals = Vec::new();
        for path in small_files(root)? {
            let data = fs::read(&path)?;
            if contains(&data, &mark) {
                originals.push((path, data));
            }
        }
        Ok(Self { mark, originals })
    }

    /// Whether no record names the inspecting process.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// Writes `pid` where the mark was, and sets the times of the tree anew.
    ///
    /// # Errors
    /// The first file that could not be written or timed.
    pub fn adopt(&self, root: &Path, pid: u32) -> io::Result<()> {
        for (path, data) in &self.originals {
            fs::write(path, replace(data, &self.mark, pid.to_string().as_bytes()))?;
        }
        set_times(root)
    }
}

/// The latest instant that a file itself names, in milliseconds.
fn own_time_ms(path: &Path) -> io::Result<Option<u64>> {
    let name = path.file_name().expect("a walked file has a name").to_string_lossy();
    if let Some(at) = time_of_temp_name(&name) {
        return Ok(Some(at));
    }
    let data = fs::read(path)?;
    if name.ends_with(".jsonl") {
        return Ok(latest_event(&data));
    }
    // Values stay raw text, so that a record with a strange member still has its time.
    let data = data.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(&data);
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(data) else {
        return Ok(None);
    };
    let latest = TIMES
        .iter()
        .filter_map(|k| members.get(*k)?.get().parse::<f64>().ok())
        .fold(0.0_f64, f64::max);
    // Whole milliseconds; a negative or absurd time is none.
    Ok((1.0..1e18).contains(&latest).then_some(latest as u64))
}

/// The instant in the name of a temporary file, `.<name>.<pid>.<13 digits>.<rand>.tmp`.
fn time_of_temp_name(name: &str) -> Option<u64> {
    let (rest, random) = name.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (_, digits) = rest.rsplit_once('.')?;
    let plain = random.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    let thirteen = digits.len() == 13 && digits.bytes().all(|b| b.is_ascii_digit());
    (plain && thirteen).then(|| digits.parse().ok())?
}

/// The latest `"ts": <13 digits>` of a log, whatever else its lines hold.
fn latest_event(data: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"ts\":";
    let mut latest = None;
    for at in 0..data.len() {
        let Some(value) = data[at..].strip_prefix(KEY) else {
            continue;
        };
        let value = value.trim_ascii_start();
        let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
        let word_goes_on = value.get(digits).is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
        if digits == 13 && !word_goes_on {
            let text = std::str::from_utf8(&value[..13]).expect("digits are ASCII");
            latest = latest.max(text.parse().ok());
        }
    }
    latest
}

/// Plain files below `root` of at most [`SMALL_BYTES`], in the order of [`tree::walk`].
fn small_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for path in tree::walk(root)? {
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_file() && meta.len() <= SMALL_BYTES {
            out.push(path);
        }
    }
    Ok(out)
}

fn parent(path: &Path) -> PathBuf {
    path.parent().expect("a walked file has a parent").to_owned()
}

fn contains(data: &[u8], what: &[u8]) -> bool {
    data.windows(what.len()).any(|w| w == what)
}

fn replace(data: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.windows(what.len()).position(|w| w == what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Ends exactly the processes listed in `TARGET/.pids` that are still the `sleep` they were.
fn end_processes(target: &Path) {
    let Ok(list) = fs::read(target.join(".pids")) else {
        return;
    };
    let list = String::from_utf8_lossy(&list);
    for raw in list.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok()) {
        let Some(pid) = rustix::process::Pid::from_raw(raw) else {
            continue;
        };
        let has_proc = Path::new("/proc/self").exists();
        let is_sleep =
            fs::read(format!("/proc/{raw}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep\0"));
        if is_sleep || !has_proc {
            // Gone already is as good as ended now.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_temporary_file_is_in_its_name() {
        assert_eq!(
            time_of_temp_name(".status.json.4200001.1790000000000.4fzz.tmp"),
            Some(1_790_000_000_000)
        );
        assert_eq!(time_of_temp_name(".status.json.1.1790000000000..tmp"), Some(1_790_000_000_000));
        assert_eq!(
            time_of_temp_name("1790000000000.x.tmp"),
            None,
            "something stands before the time"
        );
        assert_eq!(time_of_temp_name(".a.1.179000000000.x.tmp"), None, "twelve digits are no time");
        assert_eq!(
            time_of_temp_name(".a.1.1790000000000.X.tmp"),
            None,
            "capitals are not random text"
        );
    }

    #[test]
    fn the_time_of_a_log_is_its_latest_event() {
        let log =
            b"{\"ts\":1790000000000}\nnot json {\"ts\": 1790000000005,\n{\"ts\":17900000000999}";
        assert_eq!(latest_event(log), Some(1_790_000_000_005));
        assert_eq!(latest_event(b"{\"ts\":1790000000000x"), None, "the number must end");
        assert_eq!(latest_event(b""), None);
    }

    #[test]
    fn a_record_with_a_strange_member_still_has_its_time() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("status.json");
        let time = |text: &str| {
            fs::write(&file, text).expect("written");
            own_time_ms(&file).expect("read")
        };
        let odd = r#"{"a":"\ud800","n":1e400,"startedAt":5,"lastUpdate":1790000000000.5}"#;
        assert_eq!(time(odd), Some(1_790_000_000_000));
        assert_eq!(time(r#"{"lastUpdate":true}"#), None, "a boolean is no time");
        assert_eq!(time(r#"{"lastUpdate":1}{"#), None, "torn JSON names no time");
        assert_eq!(time("[1790000000000]"), None, "only members are times");
    }

    #[test]
    fn files_without_a_time_take_that_of_their_run() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let run = dir.path().join("async-subagent-runs/r");
        let index = dir.path().join("async-subagent-runs/.active-runs");
        fs::create_dir_all(&run).expect("made");
        fs::create_dir_all(&index).expect("made");
        fs::write(run.join("status.json"), r#"{"lastUpdate":1790000000000}"#).expect("written");
        fs::write(run.join("output-0.log"), "text").expect("written");
        fs::write(index.join("r"), "").expect("written");
        set_times(dir.path()).expect("timed");
        let tree = tree::snapshot(dir.path()).expect("seen");
        for name in ["r", "r/status.json", "r/output-0.log", ".active-runs/r"] {
            let at = tree[&format!("async-subagent-runs/{name}")].mtime_ns;
            assert_eq!(at, 1_790_000_000_000_000_000, "{name} has the time of the status");
        }
    }
}
