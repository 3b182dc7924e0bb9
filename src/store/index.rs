//! The two run indexes, as hints: which names are active, which ended last.
//!
//! An index is rebuildable and may be wrong in both directions, so a name from it is only a place to
//! look; it is checked like any id before it is joined to a path. Nothing is removed from it here.
//! Spec: RS-INDEX-*, facts §6.

use std::ffi::OsStr;
use std::ops::ControlFlow;

use crate::protocol::ids::RunId;
use crate::protocol::marker::TerminalEntry;
use crate::protocol::{layout, limits, segment};

use super::host::{FileKind, Host};
use super::open::RunsRoot;
use super::read;

impl<H: Host> RunsRoot<H> {
    /// Names in the active index, sorted, at most [`limits::MAX_SMALL_RECORDS`]; `None` when there is
    /// no index.
    /// Spec: RS-INDEX-01, RS-INDEX-02, RS-INDEX-03.
    pub fn active_names(&self, host: &H) -> Option<Vec<String>> {
        let index = self.active_index.as_ref()?;
        let (mut names, _) = read::listed(host, index, limits::MAX_SMALL_RECORDS, |entry| {
            let plain = matches!(entry.kind, Some(FileKind::Regular) | None);
            let is_run = |name: &&str| {
                plain && RunId::from_entry(name).is_ok() && *name != layout::TOOL_CALLS_DIR
            };
            entry.name.to_str().filter(is_run).map(str::to_owned)
        });
        names.sort_unstable();
        Some(names)
    }

    /// Run ids under which a tool call is filed.
    pub fn tool_call_runs(&self, host: &H, tool_call: &str) -> Vec<String> {
        let Some(index) = self.active_index.as_ref() else { return Vec::new() };
        let Ok(calls) = host.open_dir_at(index, layout::TOOL_CALLS_DIR.as_ref()) else {
            return Vec::new();
        };
        let name = segment::encode_str(tool_call, limits::NAME_MAX_BYTES);
        let Ok(dir) = host.open_dir_at(&calls, name.as_ref()) else { return Vec::new() };
        let run = |name: &str| RunId::from_entry(name).is_ok().then(|| name.to_owned());
        let limit = limits::MAX_SMALL_RECORDS;
        read::listed(host, &dir, limit, |entry| entry.name.to_str().and_then(run)).0
    }

    /// Ids of the runs that ended last, newest first, without repetition.
    /// Spec: RS-INDEX-09, RS-INDEX-10, RS-INDEX-13, RS-SEG-05.
    pub fn ended_names(&self, host: &H, session: Option<&str>, limit: usize) -> Vec<String> {
        let Ok(index) = host.open_dir_at(&self.dir, layout::TERMINAL_INDEX.as_ref()) else {
            return Vec::new();
        };
        let wanted = session.map(|s| segment::encode_str(s, limits::NAME_MAX_BYTES));
        let (sessions, _) = read::listed(host, &index, limits::MAX_SMALL_RECORDS, |entry| {
            let is_wanted = wanted.as_ref().is_none_or(|w| entry.name == OsStr::new(w));
            is_wanted.then_some(entry.name)
        });
        let mut markers: Vec<(String, std::ffi::OsString)> = Vec::new();
        for session in &sessions {
            let Ok(dir) = host.open_dir_at(&index, session) else { continue };
            let _ = host.list(&dir, &mut |entry| {
                if let Some(name) = entry.name.to_str().filter(|n| n.ends_with(".json")) {
                    markers.push((name.to_owned(), session.clone()));
                }
                ControlFlow::Continue(())
            });
        }
        // The stamp at the front of the name makes the newest the largest (facts X-20).
        markers.sort_unstable_by(|a, b| b.cmp(a));
        let mut names: Vec<String> = Vec::new();
        for (marker, session) in markers {
            if names.len() == limit {
                break;
            }
            let Ok(dir) = host.open_dir_at(&index, &session) else { continue };
            let (fact, _) = read::document_unlisted(
                host,
                &dir,
                &marker,
                limits::SIDECAR_MAX_BYTES,
                self.owner,
                TerminalEntry::read,
            );
            // A name inside a file is checked before it is joined to a path (facts Z-43).
            let id =
                fact.value().map(|entry| &entry.run_id).filter(|id| RunId::from_entry(id).is_ok());
            if let Some(id) = id.filter(|id| !names.contains(id)) {
                names.push(id.clone());
            }
        }
        names
    }
}
