//! What was seen of one scenario.
//!
//! Theory of operation. Plain data, made by [`crate::script`] and [`crate::recorder`], read by [`crate::judge`]. The
//! trace is in the order in which the system told the events; a *mark* in it is a moment of the script, put there as
//! a file in a watched directory, so that it is ordered with everything else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::raw;

/// What happened to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It was made, and not by a rename.
    Created,
    /// It got its name by a rename.
    Renamed,
    /// Something was written into it, or it was truncated.
    Modified,
    /// It lost its name.
    Removed,
    /// It was there when its directory began to be watched; it came some time before.
    Found,
    /// A moment of the script.
    Mark,
}

impl Op {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "made",
            Self::Renamed => "renamed into place",
            Self::Modified => "written into",
            Self::Removed => "removed",
            Self::Found => "found",
            Self::Mark => "mark",
        }
    }
}

/// One text of a file, as it was read right after the event.
#[derive(Clone, Debug)]
pub struct Version {
    /// The text; `None` for one that is too large or no text.
    pub text: Option<String>,
    /// Inode of the file that was read.
    pub ino: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Whether the process that a status names was one that the suite had started.
    pub own_process: Option<bool>,
}

impl Version {
    /// The text as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(self.text.as_deref()?).ok()
    }
}

/// One entry of the trace.
#[derive(Clone, Debug)]
pub struct Event {
    /// Since the subject was started, in milliseconds.
    pub at_ms: u64,
    /// What happened.
    pub op: Op,
    /// To which name, from the top of the store; the name of a mark.
    pub path: String,
    /// The old name, where a rename stayed inside of the store.
    pub from: Option<String>,
    /// The text, of files that the suite reads.
    pub version: Option<Version>,
    /// Whether the suite did it.
    pub by_suite: bool,
    /// Whether it is about a directory.
    pub is_dir: bool,
}

/// One name in a picture of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `file`, `directory`, `link`, or `pipe`, which stands for everything else.
    pub kind: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// The text of a small file.
    pub text: Option<String>,
}

/// Names and what stood there.
pub(crate) type Tree = BTreeMap<String, Entry>;

/// How the subject ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// It had to be ended.
    Forced(String),
}

/// What came of one call of an operation.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// How it ended.
    pub ended: Option<Ended>,
    /// The JSON of its standard output, if it is some.
    pub answer: Option<Value>,
    /// What it said, cut.
    pub stdout: String,
    /// What it said, cut.
    pub stderr: String,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Events in order.
    pub trace: Vec<Event>,
    /// Whether the system told the order of events; without it no order is judged.
    pub is_ordered: bool,
    /// Pictures of the store, by name; `end` is the last one, `start` that before the subject.
    pub trees: BTreeMap<String, Tree>,
    /// What came of the subject, or of its last call.
    pub last: Said,
    /// What came of the calls that have a name.
    pub said_as: BTreeMap<String, Said>,
    /// Processes that were left when the subject had ended, as text.
    pub left: Vec<String>,
    /// Paths whose text was torn when the suite read them at full rate, with how often.
    pub torn: BTreeMap<String, u64>,
    /// System calls that flush or rename, in order, one a line as `strace -f -y` tells them.
    pub calls: Vec<String>,
    /// How many whole texts the reader at full rate saw.
    pub whole: u64,
    /// What the script waited for in vain.
    pub missed: Option<String>,
    /// Names of the scenario, for the texts of checks.
    pub names: BTreeMap<String, String>,
    /// Why the scenario could not be played at all.
    pub broken: Option<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Paths that the suite wrote.
    pub said: BTreeSet<String>,
}

impl Evidence {
    /// What came of a call by its name, else of the last one.
    pub fn said_by(&self, name: Option<&str>) -> Option<&Said> {
        name.map_or(Some(&self.last), |name| self.said_as.get(name))
    }

    /// Where a mark stands in the trace.
    pub fn mark(&self, name: &str) -> Option<usize> {
        self.trace.iter().position(|event| event.op == Op::Mark && event.path == name)
    }

    /// The part of the trace from one mark to another. A mark that is not there is an error that names it.
    ///
    /// # Errors
    /// The name of the mark.
    pub fn between(&self, from: Option<&str>, to: Option<&str>) -> Result<&[Event], String> {
        let find = |name: &str| self.mark(name).ok_or_else(|| name.to_owned());
        let from = from.map(find).transpose()?.unwrap_or(0);
        let to = to.map(find).transpose()?.unwrap_or(self.trace.len());
        Ok(self.trace.get(from..to).unwrap_or_default())
    }

    /// Texts of files that the subject put in place, in order, with where in the trace.
    pub fn versions<'e>(&'e self, pattern: &'e str) -> impl Iterator<Item = (usize, &'e Version)> {
        let wanted = move |event: &Event| {
            !event.by_suite && event.op != Op::Removed && raw::matches(pattern, &event.path)
        };
        let events = self.trace.iter().enumerate().filter(move |(_, event)| wanted(event));
        events.filter_map(|(at, event)| Some((at, event.version.as_ref()?)))
    }
}

/// Puts names into a text: `${name}`.
pub(crate) fn fill(names: &BTreeMap<String, String>, text: &str) -> String {
    names
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// Puts names into every text and key of a value.
pub(crate) fn fill_value(names: &BTreeMap<String, String>, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(fill(names, text)),
        Value::Array(items) => items.iter().map(|item| fill_value(names, item)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (fill(names, key), fill_value(names, value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}
