//! The record of each action, on disk before the first of its changes.
//!
//! Theory of operation. An apply has a directory of its own, `.runstore/recovery/<apply>`, named by its time.
//! Each action has one record in it, `<number>.<state>.json`, that holds its changes whole: what was there,
//! what is there after. Its state is a part of the *name*, so that a step forward is one rename.
//!
//! | state | what it says |
//! |---|---|
//! | `begun` | some of the changes may have been made |
//! | `done` | all were made |
//! | `undone` | all were taken back |
//! | `superseded` | somebody else has been there since; what was made stands, and is not taken back |
//!
//! The record is durable before the first change, or a crash could leave a change that nobody knows of. The
//! rename to `done` is not flushed: a power cut that undoes it leaves `begun`, and the next apply finds all
//! changes made. What is set aside lies beside the records as `<number>-<change>.aside`.
//! Spec: RS-REC-25, RS-REC-26.

use std::io;

use serde::{Deserialize, Serialize};

use crate::protocol::layout;
use crate::protocol::open::{Word as _, words};
use crate::store::atomic::{self, Durability, Options, Target, WriteError};
use crate::store::directory;
use crate::store::host::{Host, Part, WriteHost};
use crate::store::retry::RetryPolicy;

use super::change::{Change, ChangeError};

words! {
    /// How far an action came.
    State {
        /// Some of its changes may have been made.
        Begun = "begun",
        /// All were made.
        Done = "done",
        /// All were taken back.
        Undone = "undone",
        /// Somebody else has been there since.
        Superseded = "superseded",
    }
}

/// One action as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Logged {
    version: u32,
    /// The id of the action.
    pub id: String,
    /// The run.
    pub run_id: String,
    /// What it was about; absolute.
    pub path: String,
    /// What was done.
    pub action: String,
    /// Why.
    pub why: String,
    /// What it rested on.
    pub evidence: Vec<String>,
    /// When it was begun, in ms since the epoch.
    pub at_ms: i64,
    /// Its changes, in order.
    pub changes: Vec<Change>,
}

impl Logged {
    pub(super) fn new(action: &super::plan::Action, at_ms: i64, changes: Vec<Change>) -> Self {
        Self {
            version: 1,
            id: action.id.clone(),
            run_id: action.run_id.clone(),
            path: action.path.to_string_lossy().into_owned(),
            action: action.kind.to_string(),
            why: action.why.clone(),
            evidence: action.evidence.clone(),
            at_ms,
            changes,
        }
    }
}

/// The records of one apply.
#[derive(Debug)]
pub struct ApplyLog {
    /// The id of the apply, which begins with its time.
    pub id: String,
    /// Its actions in order: their states and records, or why one cannot be read.
    pub actions: Vec<(u32, State, Result<Logged, String>)>,
}

/// The directory of a recovery, below the root.
pub(super) fn place(apply: &str) -> String {
    format!("{}/{}/{apply}", layout::OWN_DIR, layout::RECOVERY_DIR)
}

fn name(number: u32, state: State) -> String {
    format!("{number:05}.{state}.json")
}

/// The number and state in the name of a record.
fn read_name(name: &str) -> Option<(u32, State)> {
    let (number, rest) = name.split_once('.')?;
    let word = rest.strip_suffix(".json")?;
    let state = State::from_word(word)?;
    let is_number = number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten().map(|number| (number, state))
}

/// Whether a name is the id of an apply: thirteen digits of its time, a hyphen, eight hexadecimal digits.
pub(super) fn is_apply(name: &str) -> bool {
    name.split_once('-').is_some_and(|(time, rest)| {
        time.len() == 13
            && time.bytes().all(|b| b.is_ascii_digit())
            && rest.len() == 8
            && rest.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Makes the directory of an apply, durable.
pub(super) fn begin<H: WriteHost>(host: &H, root: &H::Dir) -> Result<(String, H::Dir), WriteError> {
    let tail = u32::try_from(host.random() & 0xffff_ffff).unwrap_or(0);
    let id = format!("{:013}-{tail:08x}", host.now_ms().max(0));
    let names = [layout::OWN_DIR, layout::RECOVERY_DIR, &id];
    let dir = directory::create_path(host, root, &names, &RetryPolicy::default())?;
    Ok((id, dir))
}

/// Writes the record of an action that is begun.
pub(super) fn write<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    number: u32,
    record: &Logged,
) -> Result<(), ChangeError> {
    let name = name(number, State::Begun);
    let text =
        serde_json::to_string(record).map_err(|e| ChangeError::changed(&name, e.to_string()))?;
    let options = Options::new(Durability::Durable).target(Target::New);
    let written = atomic::replace(host, dir, &name, text.as_bytes(), &options);
    written.map(drop).map_err(|e| ChangeError::write(&name, &e))
}

/// Moves a record on. See the module's text for why it is not flushed.
pub(super) fn mark<H: WriteHost>(
    host: &H,
    dir: &H::Dir,
    number: u32,
    (from, to): (State, State),
) -> io::Result<()> {
    host.rename(dir, name(number, from).as_ref(), dir, name(number, to).as_ref())
}

/// Forgets an action of which nothing was made.
pub(super) fn forget<H: WriteHost>(host: &H, dir: &H::Dir, number: u32) -> io::Result<()> {
    host.unlink(dir, name(number, State::Begun).as_ref())
}

/// The open directory of an apply; `None` when there is none of this id.
pub(super) fn open<H: Host>(host: &H, root: &H::Dir, apply: &str) -> io::Result<Option<H::Dir>> {
    if !is_apply(apply) {
        return Ok(None);
    }
    directory::open_path(host, root, &[layout::OWN_DIR, layout::RECOVERY_DIR, apply])
}

/// The ids of all applies, the oldest first.
pub(super) fn applies<H: Host>(host: &H, root: &H::Dir) -> io::Result<Vec<String>> {
    let opened = directory::open_path(host, root, &[layout::OWN_DIR, layout::RECOVERY_DIR])?;
    let Some(dir) = opened else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    host.list(&dir, &mut |entry| {
        names.extend(entry.name.to_str().filter(|name| is_apply(name)).map(str::to_owned));
        std::ops::ControlFlow::Continue(())
    })?;
    names.sort_unstable();
    Ok(names)
}

/// The numbers and states of the records of an apply, in order.
pub(super) fn records<H: Host>(host: &H, dir: &H::Dir) -> io::Result<Vec<(u32, State)>> {
    let mut found = Vec::new();
    host.list(dir, &mut |entry| {
        found.extend(entry.name.to_str().and_then(read_name));
        std::ops::ControlFlow::Continue(())
    })?;
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found)
}

/// Most bytes of a record: two texts of a status or result, as strings of JSON.
const RECORD_MAX_BYTES: u64 = 256 << 20;

/// Reads a record; the error is a sentence.
pub(super) fn read<H: Host>(
    host: &H,
    dir: &H::Dir,
    (number, state): (u32, State),
) -> Result<Logged, String> {
    let name = name(number, state);
    let read = host.read_at(dir, name.as_ref(), Part::All(RECORD_MAX_BYTES));
    let bytes = read.map_err(|e| format!("{name} cannot be read: {e}"))?.bytes;
    let record: Logged = serde_json::from_slice(&bytes).map_err(|e| format!("{name}: {e}"))?;
    if record.version == 1 { Ok(record) } else { Err(format!("{name} is of a newer version")) }
}

/// Everything that was ever applied below a root, the oldest first. Reads only.
///
/// # Errors
/// The system's.
pub fn log<H: Host>(host: &H, root: &H::Dir) -> io::Result<Vec<ApplyLog>> {
    let mut log = Vec::new();
    for id in applies(host, root)? {
        let Some(dir) = open(host, root, &id)? else { continue };
        let records = records(host, &dir)?;
        let read = |(number, state)| (number, state, read(host, &dir, (number, state)));
        log.push(ApplyLog { id, actions: records.into_iter().map(read).collect() });
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_records() {
        assert_eq!(read_name("00007.done.json"), Some((7, State::Done)));
        for name in [
            "7.done.json",
            "00007.odd.json",
            "00007.json",
            ".00007.done.json.tmp",
            "000x7.done.json",
        ] {
            assert_eq!(read_name(name), None, "{name}");
        }
        assert!(is_apply("1790000000000-0123abcd"));
        for id in
            ["1790000000000", "../1790000000000-0123abcd", "1790000000000-0123abcg", "x-0123abcd"]
        {
            assert!(!is_apply(id), "{id}");
        }
    }
}
