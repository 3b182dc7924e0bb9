//! What a removal needs to know of a run and does not see in a look at it.
//!
//! Theory of operation. [`Extra`] reads the members of a status that only retention asks for; [`judged`] looks
//! around the run and asks [`keep`](crate::protocol::retention::keep). What cannot be looked at counts as there:
//! a removal cannot be taken back, and the next one comes anyway. What may be about any run ([`closed_area`])
//! keeps all of them. Reads only. Spec: RS-RET-01 to RS-RET-06, RS-RET-14; facts §8.7.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use crate::protocol::diagnose::diagnose;
use crate::protocol::evidence::FileFact;
use crate::protocol::finding;
use crate::protocol::recovery::RecoveryDescriptor;
use crate::protocol::retention::{Around, HandOff, Keep, Wish, keep};
use crate::protocol::{Document, Raw, layout, limits, segment};

use super::host::Host;
use super::locks::Locks;
use super::open::{RunsRoot, Store, StoreProblem};
use super::snapshot::Snapshot;
use super::{directory, read};

/// What a look at the whole store knows of who refers to whom.
pub(super) type References = HashMap<String, String>;

/// Members of a status that only retention asks for.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) source_run_id: Option<String>,
    has_workflow_key: bool,
    has_children: bool,
    has_hand_off: bool,
}

impl Extra {
    /// What the status says; nothing, where it is none or not there.
    ///
    /// # Errors
    /// Why it could not be read, in words.
    pub(super) fn of<H: Host>(
        store: &Store<'_, H>,
        runs: &RunsRoot<H>,
        name: &OsStr,
    ) -> Result<Self, String> {
        let unread = |why: &str| format!("its status cannot be read again: {why}");
        let dir = match store.host.open_dir_at(&runs.dir, name) {
            Ok(dir) => dir,
            Err(e) => return Err(unread(&read::plain(&e))),
        };
        let read = |doc: &Document<'_>| {
            let steps = doc.get("steps").and_then(Raw::array).unwrap_or_default();
            let children = |step: &Raw<'_>| {
                let children = step.object().and_then(|step| step.get("children"));
                children.and_then(Raw::array).is_some_and(|children| !children.is_empty())
            };
            Ok(Self {
                source_run_id: doc.get("sourceRunId").and_then(Raw::string).map(Into::into),
                has_workflow_key: doc.get("workflowKey").is_some(),
                has_children: steps.iter().any(children),
                has_hand_off: doc.get("parallelHandoff").is_some(),
            })
        };
        let limit = limits::STATUS_MAX_BYTES;
        let fact =
            read::document_unlisted(store.host, &dir, layout::STATUS, limit, store.owner, read).0;
        match fact {
            FileFact::Present(extra, _) => Ok(*extra),
            FileFact::Unreadable(why) => Err(unread(&why)),
            _ => Ok(Self::default()),
        }
    }
}

/// What may be about any run and cannot be looked at: an area of the store, or the owner record of a lock.
/// Spec: RS-RET-14.
pub(super) fn closed_area<'p>(
    problems: impl IntoIterator<Item = &'p StoreProblem>,
    locks: &Locks,
) -> Option<String> {
    let closed = [&finding::DIR_UNREADABLE, &finding::NOT_PLAIN];
    let area = problems.into_iter().find(|problem| closed.contains(&problem.kind)).map(|problem| {
        let path = if problem.path.is_empty() { "the store" } else { &problem.path };
        format!("{path}: {}", problem.text)
    });
    area.or_else(|| {
        let (path, why) = locks.unread()?;
        Some(format!("{path}: its owner record cannot be read: {why}"))
    })
}

/// Whether a name is there, or may be.
pub(super) fn may_be_there<H: Host>(host: &H, dir: &H::Dir, name: &str) -> bool {
    !host.stat_at(dir, name.as_ref()).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// The first reason to keep a run, with everything around it looked at now.
pub(super) fn judged<H: Host>(
    store: &Store<'_, H>,
    runs: &RunsRoot<H>,
    snapshot: &Snapshot,
    extra: Result<Extra, String>,
    (waits, references): (&[String], Option<&References>),
    wish: &Wish,
) -> Option<Keep> {
    let (host, e) = (store.host, &snapshot.evidence);
    let diagnosis = diagnose(e);
    // What is kept by its own record needs no look around it.
    let Ok(dir) = host.open_dir_at(&runs.dir, OsStr::new(&e.run_id)) else {
        return Some(Keep::new("damaged", "its directory cannot be entered"));
    };
    let is_there = |name: &str| may_be_there(host, &dir, name);
    let (extra, unread) = match extra {
        Ok(extra) => (extra, None),
        Err(why) => (Extra::default(), Some(why)),
    };
    let owner = runs.owner;
    let descriptor = read::document_unlisted(
        host,
        &dir,
        layout::RECOVERY_DESCRIPTOR,
        limits::SIDECAR_MAX_BYTES,
        owner,
        |doc| Ok(RecoveryDescriptor::read(doc)),
    )
    .0;
    let descriptor_why = match &descriptor {
        FileFact::Absent => None,
        FileFact::Present(d, _) if d.source_run_id.as_deref() == Some(&e.run_id) => None,
        FileFact::Present(..) => Some("its recovery descriptor is of another run"),
        _ => Some("its recovery descriptor cannot be read"),
    };
    let hand_off = if extra.has_hand_off || is_there(layout::HANDOFF) {
        let limit = limits::SIDECAR_MAX_BYTES;
        let read = |doc: &Document<'_>| Ok(is_complete(doc));
        match read::document_unlisted(host, &dir, layout::HANDOFF, limit, owner, read).0 {
            FileFact::Present(complete, _) if *complete => HandOff::Complete,
            _ => HandOff::Unresolved,
        }
    } else {
        HandOff::None
    };
    let status = e.status.value();
    let files = status
        .into_iter()
        .flat_map(|s| {
            s.session_file.iter().chain(s.steps.iter().filter_map(|x| x.session_file.as_ref()))
        })
        .chain(descriptor.value().and_then(|d| d.session_file.as_ref()));
    let is_file_there = |file: &&String| {
        let path = Path::new(file.as_str());
        !path.is_absolute() || !host.stat(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    };
    let around = Around {
        waited_for: waits.contains(&e.run_id),
        referenced_by: references.and_then(|references| references.get(&e.run_id).cloned()),
        has_workflow_key: extra.has_workflow_key,
        has_nested: extra.has_children
            || store.runs_roots.iter().any(|r| r.nested_under.as_deref() == Some(&e.run_id)),
        has_mission: is_there(layout::MISSION) || has_mission_entry(store, runs, &e.run_id),
        hand_off,
        session_file: files.into_iter().find(is_file_there).cloned(),
        descriptor: descriptor_why,
        changed_ms: [e.dir_mtime_ms, e.status.meta().map(|m| m.mtime_ms)]
            .into_iter()
            .chain([e.proof.meta().map(|m| m.mtime_ms)])
            .flatten()
            .max(),
    };
    keep(e, &diagnosis, &around, wish).or_else(|| Some(Keep::new("undetermined", unread?)))
}

/// Whether every group of a hand-off is complete. Facts §8.7.
fn is_complete(doc: &Document<'_>) -> bool {
    let groups = doc.get("groups").and_then(Raw::array).unwrap_or_default();
    let state = |group: &Raw<'_>| {
        let cleanup = group.object()?.get("cleanup")?.object()?;
        Some(cleanup.get("state")?.string()? == "complete")
    };
    !groups.is_empty() && groups.iter().all(|group| state(group) == Some(true))
}

fn has_mission_entry<H: Host>(store: &Store<'_, H>, runs: &RunsRoot<H>, run_id: &str) -> bool {
    let name = segment::encode_str(run_id, limits::JSON_STEM_MAX_BYTES) + ".json";
    let path = [layout::RESULT_INDEX, layout::INDEX_OBSERVERS, layout::INDEX_MISSION];
    runs.results.iter().any(|index| {
        let (dir, _) = store.results_roots[*index].place();
        match directory::open_path(store.host, dir, &path) {
            Ok(Some(entries)) => may_be_there(store.host, &entries, &name),
            Ok(None) => false,
            // It may be there.
            Err(_) => true,
        }
    })
}
