//! From an id to run directories. Spec: RS-LAYOUT-10 to RS-LAYOUT-17; facts L-10 to L-14.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;

use crate::protocol::ids::{self, IdError, RunId};
use crate::store::host::{FileKind, Host};
use crate::store::{Depth, Snapshot, Store};

/// A directory that an id leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the runs root.
    pub root: usize,
    /// Name in it.
    pub name: OsString,
}

/// Why an id leads nowhere, or to too many places.
#[derive(Debug)]
#[non_exhaustive]
pub enum LookupError {
    /// The text cannot be an id.
    Invalid(String, IdError),
    /// No run has it.
    NotFound(String),
    /// Several runs fit; here are some of them.
    Ambiguous(String, Vec<String>),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(id, _) => write!(f, "'{id}' cannot be a run id"),
            Self::NotFound(id) => write!(f, "no run with the id '{id}'"),
            Self::Ambiguous(id, runs) => {
                write!(f, "'{id}' fits several runs: {}", runs.join(", "))
            }
        }
    }
}

impl std::error::Error for LookupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(_, e) => Some(e),
            _ => None,
        }
    }
}

/// Every directory of a run id: of a run of the store exactly, by tool-call alias, of a nested run exactly, or by a
/// prefix of 8 to 35 characters, in this order.
///
/// Several directories of one exact id are all returned, the run itself first: the one with a status.
/// Spec: RS-LAYOUT-16, RS-LAYOUT-17, RS-DIAG-32.
///
/// # Errors
/// [`LookupError`].
pub fn find<H: Host>(store: &Store<'_, H>, id: &str) -> Result<Vec<Found>, LookupError> {
    // A tool-call id may hold anything, so only the other ways need a name that is safe.
    let safe = RunId::parse(id);
    let exact = if safe.is_ok() { exact(store, OsStr::new(id)) } else { Vec::new() };
    let is_nested = |found: &Found| store.runs_roots[found.root].nested_under.is_some();
    // The id of a nested run is chosen by its parent, so it must not hide what a tool call leads to.
    if exact.iter().any(|found| !is_nested(found)) {
        return Ok(exact);
    }
    let called = by_tool_call(store, id);
    if !called.is_empty() {
        return unique(store, id, called);
    }
    if !exact.is_empty() {
        return Ok(exact);
    }
    if let Err(e) = safe {
        return Err(LookupError::Invalid(id.to_owned(), e));
    }
    if ids::is_prefix_candidate(id) {
        let fits = by_prefix(store, id);
        if !fits.is_empty() {
            return unique(store, id, fits);
        }
    }
    Err(LookupError::NotFound(id.to_owned()))
}

fn exact<H: Host>(store: &Store<'_, H>, name: &OsStr) -> Vec<Found> {
    let mut found: Vec<(bool, Found)> = Vec::new();
    for (root, runs) in store.runs_roots.iter().enumerate() {
        if runs.has_name(store.host(), name) {
            let has_status = runs.has_run(store.host(), name).is_some_and(|there| there.has_status);
            found.push((has_status, Found { root, name: name.to_owned() }));
        }
    }
    found.sort_by_key(|(has_status, f)| (!has_status, f.root));
    found.into_iter().map(|(_, f)| f).collect()
}

/// Runs filed under a tool call, each confirmed by its own status or result: an alias is only a hint.
fn by_tool_call<H: Host>(store: &Store<'_, H>, id: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (root, runs) in store.runs_roots.iter().enumerate() {
        for run in runs.tool_call_runs(store.host(), id) {
            let name = OsString::from(&run);
            let snapshot = store.snapshot(runs, &name, None, Depth::Row);
            if snapshot.is_some_and(|s| is_called(&s, id)) {
                found.push(Found { root, name });
            }
        }
    }
    // The index of the results knows ended runs as well (facts L-14).
    for (run, by_payload) in store.result_tool_call_runs(id) {
        if RunId::from_entry(&run).is_err() {
            continue;
        }
        for place in exact(store, OsStr::new(&run)) {
            let runs = &store.runs_roots[place.root];
            let confirmed = by_payload
                || store
                    .snapshot(runs, &place.name, None, Depth::Row)
                    .is_some_and(|s| is_called(&s, id));
            if confirmed && !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// Whether the status or a result of a run names a tool call.
fn is_called(snapshot: &Snapshot, id: &str) -> bool {
    let e = &snapshot.evidence;
    e.status.value().is_some_and(|v| v.tool_call_id.as_deref() == Some(id))
        || e.own_results()
            .any(|r| r.fact.value().is_some_and(|v| v.tool_call_id.as_deref() == Some(id)))
}

fn by_prefix<H: Host>(store: &Store<'_, H>, prefix: &str) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (root, runs) in store.runs_roots.iter().enumerate() {
        let _ = runs.each_name(store.host(), &mut |name, kind| {
            let fits = name.to_str().is_some_and(|n| n.starts_with(prefix));
            if fits && kind == Some(FileKind::Directory) {
                found.push(Found { root, name });
            }
            ControlFlow::Continue(())
        });
    }
    found
}

/// Spec: RS-LAYOUT-15.
fn unique<H: Host>(
    store: &Store<'_, H>,
    id: &str,
    found: Vec<Found>,
) -> Result<Vec<Found>, LookupError> {
    let first = found[0].name.clone();
    if found.iter().all(|f| f.name == first) {
        return Ok(exact(store, &first));
    }
    let mut names: Vec<String> =
        found.iter().map(|f| f.name.to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(10);
    Err(LookupError::Ambiguous(id.to_owned(), names))
}
