//! What belongs to no run any more: leases, configurations and markers whose run has no directory.
//!
//! Theory of operation. Slots without a run are not among them: no rule frees one, because the end of its run
//! cannot be proven (facts K-29, rule 1). A configuration is left for an hour, because a launcher writes it
//! beside the directory of its run. Spec: RS-REC-14, RS-REC-16; RS-INDEX-05.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;

use crate::protocol::ids::RunId;
use crate::protocol::lease::tombstone_name;
use crate::protocol::{layout, limits};
use crate::store::Store;
use crate::store::host::{FileKind, Host};

use super::decide::ActionKind;
use super::draft::{Draft, below};
use super::plan::{Action, Around, label};

/// Actions that are about no run directory. `names` are those of all runs.
pub(super) fn found<H: Host>(
    store: &Store<'_, H>,
    around: &Around<'_, H>,
    names: &[(usize, OsString, Option<FileKind>)],
) -> io::Result<Vec<Action>> {
    let known: HashSet<&OsStr> = names.iter().map(|(_, name, _)| name.as_os_str()).collect();
    let is_known = |run: &str| known.contains(OsStr::new(run));
    let host = store.host();
    let mut actions = Vec::new();
    let mut add = |kind, run: &str, path: &str, why: &str, draft: Draft<'_, H>| {
        if !draft.is_empty() {
            let path = store.root.join(path);
            actions.push(Action::new(run, path, kind, why.to_owned(), draft.finish()));
        }
    };
    for lease in store.locks.leases.iter().filter(|lease| lease.stale) {
        let Some(owner) = lease.owner.value().filter(|owner| !is_known(&owner.run_id)) else {
            continue;
        };
        let mut draft = Draft::new(host, &around.root);
        let tombstone = tombstone_name(&lease.path, &owner.token);
        // One that cannot be read now is left for a later look.
        if draft.free_lease(&lease.path, tombstone).is_ok() {
            add(ActionKind::FreeLease, &owner.run_id, &lease.path, &lease.why, draft);
        }
    }
    let mut configs = Vec::new();
    host.list(&around.root, &mut |entry| {
        let name = entry.name.to_str().map(str::to_owned);
        let run = name.as_deref().and_then(layout::runner_config_run_id).map(str::to_owned);
        configs.extend(name.zip(run));
        ControlFlow::Continue(())
    })?;
    configs.sort_unstable();
    for (name, run) in configs.into_iter().filter(|(_, run)| !is_known(run)) {
        let stat = host.stat_at(&around.root, name.as_ref());
        let is_old = stat
            .is_ok_and(|stat| store.now_ms.saturating_sub(stat.mtime_ms) > limits::LITTER_AGE_MS);
        let mut draft = Draft::new(host, &around.root);
        if is_old && RunId::from_entry(&run).is_ok() && draft.shift(&name, "").is_ok() {
            let why = "its run has no directory, so no runner takes it up, and it holds prompts";
            add(ActionKind::RemoveConfig, &run, &name, why, draft);
        }
    }
    for runs in &store.runs_roots {
        for name in runs.active_names(host).unwrap_or_default() {
            if runs.has_name(host, OsStr::new(&name)) {
                continue;
            }
            let index = below(&label(store, runs), layout::ACTIVE_INDEX);
            let marker = format!("{index}/{name}");
            let mut draft = Draft::new(host, &around.root);
            if draft.shift(&marker, "").is_ok() {
                let why = "the active index names a run that has no directory";
                add(ActionKind::IndexRun, &name, &marker, why, draft);
            }
        }
    }
    Ok(actions)
}
