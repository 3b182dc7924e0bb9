//! Results: found by name for one run, or listed for a store.
//!
//! A result of one run is looked up directly, because its names follow from the run and its session;
//! listing the whole area for each run would make a store quadratic. The whole area is listed once,
//! for the store's own answer, so that a result whose run is gone is seen as well.
//! Spec: RS-RESULT-*, facts §3.10.

use std::ops::ControlFlow;

use crate::protocol::evidence::{FileFact, ResultFact};
use crate::protocol::result::{ResultPlace, ResultView};
use crate::protocol::{layout, limits, segment};

use super::host::{FileKind, Host};
use super::read::{self, ExpectedOwner};

/// An open results root.
pub struct ResultsRoot<H: Host> {
    dir: H::Dir,
    /// Path relative to the store, for display.
    label: String,
    pending: Option<H::Dir>,
    replay: Option<H::Dir>,
}

/// A result found by listing the area.
#[derive(Clone, Debug)]
pub struct ListedResult {
    /// The stem of the file, or the id inside.
    pub run_id: String,
    /// The fact.
    pub result: ResultFact,
    /// Modification time of the file, ms since the epoch.
    pub mtime_ms: Option<i64>,
}

impl<H: Host> ResultsRoot<H> {
    /// Opens a results root below an open directory; `None` when there is none.
    pub(super) fn open(host: &H, parent: &H::Dir, name: &str, label: String) -> Option<Self> {
        let dir = host.open_dir_at(parent, name.as_ref()).ok()?;
        let pending = host.open_dir_at(&dir, layout::RESULT_PENDING.as_ref()).ok();
        let replay = host.open_dir_at(&dir, layout::COMPLETION_REPLAY.as_ref()).ok();
        Some(Self { dir, label, pending, replay })
    }

    /// Opens the area of the nested runs of one root run.
    pub(super) fn nested(&self, host: &H, root_run: &str) -> Option<Self> {
        let nested = host.open_dir_at(&self.dir, layout::NESTED_RESULTS.as_ref()).ok()?;
        let label = format!("{}/{}/{root_run}", self.label, layout::NESTED_RESULTS);
        Self::open(host, &nested, root_run, label)
    }

    /// The results of one run, pending first: a pending payload is newer than the public one.
    pub(super) fn of_run(
        &self,
        host: &H,
        run_id: &str,
        session: Option<&str>,
        owner: ExpectedOwner,
    ) -> Vec<ResultFact> {
        let mut found = Vec::new();
        let mut look = |dir: &H::Dir, name: &str, place, label: String| {
            let (fact, _) =
                read::document(host, dir, name, limits::RESULT_MAX_BYTES, owner, |doc| {
                    Ok(ResultView::read(doc))
                });
            if fact.is_there() {
                found.push(ResultFact { place, path: label, fact });
            }
        };
        if let Some(pending) = &self.pending {
            let file = segment::encode_str(run_id, limits::JSON_STEM_MAX_BYTES) + ".json";
            for session in session
                .into_iter()
                .flat_map(|s| segment::aliases(&s.into(), limits::NAME_MAX_BYTES))
            {
                if let Ok(dir) = host.open_dir_at(pending, session.as_ref()) {
                    let label =
                        format!("{}/{}/{session}/{file}", self.label, layout::RESULT_PENDING);
                    look(&dir, &file, ResultPlace::Pending, label);
                }
            }
        }
        let public = format!("{run_id}.json");
        if public.len() <= limits::NAME_MAX_BYTES {
            look(&self.dir, &public, ResultPlace::Public, format!("{}/{public}", self.label));
        }
        if let Some(replay) = &self.replay {
            let file = segment::percent_encode(run_id) + ".json";
            let label = format!("{}/{}/{file}", self.label, layout::COMPLETION_REPLAY);
            look(replay, &file, ResultPlace::Replay, label);
        }
        found
    }

    /// Every public and pending result, until `each` breaks.
    pub(super) fn list(
        &self,
        host: &H,
        owner: ExpectedOwner,
        each: &mut dyn FnMut(ListedResult) -> ControlFlow<()>,
    ) {
        self.list_dir(host, &self.dir, &self.label, ResultPlace::Public, owner, each);
        let Some(pending) = &self.pending else { return };
        let mut sessions = Vec::new();
        let _ = host.list(pending, &mut |entry| {
            sessions.push(entry.name);
            if sessions.len() < limits::MAX_SMALL_RECORDS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        for session in sessions {
            let Ok(dir) = host.open_dir_at(pending, &session) else { continue };
            let label =
                format!("{}/{}/{}", self.label, layout::RESULT_PENDING, session.to_string_lossy());
            self.list_dir(host, &dir, &label, ResultPlace::Pending, owner, each);
        }
    }

    fn list_dir(
        &self,
        host: &H,
        dir: &H::Dir,
        label: &str,
        place: ResultPlace,
        owner: ExpectedOwner,
        each: &mut dyn FnMut(ListedResult) -> ControlFlow<()>,
    ) {
        let _ = host.list(dir, &mut |entry| {
            let Some(name) = entry.name.to_str() else { return ControlFlow::Continue(()) };
            if name.starts_with('.') || entry.kind == Some(FileKind::Directory) {
                return ControlFlow::Continue(());
            }
            let Some(stem) = name.strip_suffix(".json") else { return ControlFlow::Continue(()) };
            let (fact, stat) =
                read::document(host, dir, name, limits::RESULT_MAX_BYTES, owner, |doc| {
                    Ok(ResultView::read(doc))
                });
            let inside = fact.value().and_then(|v| v.run_id.clone());
            // A hashed pending name does not tell its run; only the content does.
            let run_id = match place {
                ResultPlace::Pending => inside.unwrap_or_else(|| stem.to_owned()),
                _ => stem.to_owned(),
            };
            let path = format!("{label}/{name}");
            if !matches!(fact, FileFact::Absent) {
                let mtime_ms = stat.map(|s| s.mtime_ms);
                return each(ListedResult {
                    run_id,
                    result: ResultFact { place, path, fact },
                    mtime_ms,
                });
            }
            ControlFlow::Continue(())
        });
    }
}
