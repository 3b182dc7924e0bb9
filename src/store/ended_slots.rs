//! The slots of runs that have ended, released by whoever needs one.
//!
//! Theory of operation. A slot is released by the observer of its run, or by the launch that failed. What
//! neither of them could do, because it died, is made good by the next launcher that finds every slot
//! occupied: it judges each slot of its session with everything that is known of the run
//! ([`slot_verdict`]), under the slot's claim, as [`slot::reconcile`] does. It is asked only then, because
//! that means reading the runs of the session.
//!
//! A release by policy is told in the log of its run (RS-SLOT-06), after it was made: a log that cannot be
//! written must not keep a slot.
//!
//! A crash leaves what a release leaves ([`slot`]). Spec: RS-SLOT-18 to RS-SLOT-21; facts K-22.

use std::path::Path;

use crate::protocol::diagnose::slot_verdict;
use crate::protocol::evidence::Times;
use crate::protocol::slot::{SlotOwner, SlotVerdict};
use crate::protocol::{layout, limits};

use super::host::WriteHost;
use super::journal;
use super::open::{Opened, Store};
use super::slot::{self, Reconciled, SlotError};
use super::snapshot::{Depth, Snapshot};

/// Releases the slots of a session whose runs have ended by the rules. `temp_path` is the temp root, `runs` the
/// runs root below it, `runs_path` its path; a slot of a run elsewhere is left alone.
///
/// # Errors
/// [`SlotError`]; nothing was released then.
/// Spec: RS-SLOT-21.
pub fn release<H: WriteHost>(
    host: &H,
    (temp, temp_path): (&H::Dir, &Path),
    (runs, runs_path): (&H::Dir, &Path),
    session_id: &str,
) -> Result<Reconciled, SlotError> {
    let unreadable = |why: String| SlotError::Unreadable(format!("cannot be judged: {why}"));
    let times = Times::default();
    let opened = Store::open(host, temp_path, host.now_ms(), times);
    let Opened::Store(store) = opened.map_err(|e| unreadable(e.to_string()))? else {
        return Err(unreadable("the temp root is taken for a run".to_owned()));
    };
    let root = store.runs_roots.iter().find(|root| root.path == runs_path);
    let root = root.ok_or_else(|| unreadable("the runs root is not there".to_owned()))?;
    let judge = |owner: &SlotOwner| {
        let snapshot = store.snapshot(root, owner.run_id.as_ref(), None, Depth::Full);
        snapshot.map_or(
            SlotVerdict { release: false, rule: 1, reason: "there is no run", by_policy: false },
            |snapshot| slot_verdict(&snapshot.evidence, owner),
        )
    };
    let done = slot::reconcile(host, temp, session_id, judge)?;
    for (owner, _) in done.released.iter().filter(|(_, verdict)| verdict.by_policy) {
        let snapshot = store.snapshot(root, owner.run_id.as_ref(), None, Depth::Row);
        // See the module's text.
        let _ = snapshot.map(|snapshot| tell(host, runs, &snapshot, owner));
    }
    Ok(done)
}

/// Tells a release by policy in the log of its run; the error is a sentence.
pub(super) fn tell<H: WriteHost>(
    host: &H,
    runs: &H::Dir,
    snapshot: &Snapshot,
    owner: &SlotOwner,
) -> Result<(), String> {
    let run_dir = host.open_dir_at(runs, owner.run_id.as_ref()).map_err(|e| e.to_string())?;
    let status = snapshot.evidence.status.value();
    let last_ms = status.and_then(|s| s.last_activity_ms.or(s.last_update_ms).or(s.ended_at_ms));
    let now_ms = host.now_ms();
    let age_ms = now_ms.saturating_sub(last_ms.unwrap_or(now_ms));
    let limit_ms = snapshot.evidence.times.abandoned_slot_ms.unwrap_or_default();
    let line = slot::released_event(owner, now_ms, age_ms, limit_ms);
    journal::append(host, &run_dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES)
        .map(drop)
        .map_err(|e| e.to_string())
}
