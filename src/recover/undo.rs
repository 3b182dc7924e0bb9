//! Taking an apply back: every file as it was, byte for byte.
//!
//! Ordered steps of [`undo`]:
//! 1. lock as [`apply`](super::apply()) does;
//! 2. find the apply: the last one with something to take back, or the one that is named;
//! 3. for each of its actions, the last first, with the lock of its run's own writers: look at all its changes. If somebody has changed one of the
//!    files since, the action stays as it is, whole;
//! 4. take its changes back, the last first; of one that was begun the unfinished replacements go first;
//! 5. mark its record as undone.
//!
//! A crash in step 4 leaves some changes taken back and the record `done`; calling again goes on, because each
//! change tells how it stands. What others appended to a log since stays. Spec: RS-REC-28.

use std::path::Path;

use crate::store::host::WriteHost;

use super::apply::{ApplyError, enter, opened, turn};
use super::change::{self, Change, ChangeError, Stand};
use super::journal::{self, State};

/// What was taken back.
#[derive(Debug, Default)]
pub struct Undone {
    /// The apply; `None` when there is none to take back.
    pub id: Option<String>,
    /// Actions that were taken back: run and action.
    pub undone: Vec<(String, String)>,
    /// Actions that stay: run, and why.
    pub left: Vec<(String, String)>,
}

/// Takes an apply back: the last one, or that of `id`. See the module's ordered steps.
///
/// # Errors
/// [`ApplyError`]; nothing was taken back then.
pub fn undo<H: WriteHost>(host: &H, path: &Path, id: Option<&str>) -> Result<Undone, ApplyError> {
    let (root, _held) = enter(host, path)?;
    let mut all = journal::applies(host, &root).map_err(ApplyError::Read)?;
    if let Some(id) = id {
        all.retain(|known| known == id);
    }
    let mut undone = Undone::default();
    for id in all.into_iter().rev() {
        let failed = ApplyError::Read;
        let Some(dir) = journal::open(host, &root, &id).map_err(failed)? else { continue };
        let mut records = journal::records(host, &dir).map_err(failed)?;
        // One that was begun and not finished may have made changes as well.
        records.retain(|(_, state)| matches!(state, State::Done | State::Begun));
        if records.is_empty() {
            continue;
        }
        undone.id = Some(id);
        let store = opened(host, path).map_err(failed)?;
        let told = |e: ChangeError| e.to_string();
        for (number, state) in records.into_iter().rev() {
            let record = match journal::read(host, &dir, (number, state)) {
                Ok(record) => record,
                Err(why) => {
                    undone.left.push((String::new(), why));
                    continue;
                }
            };
            let turn = turn(host, &store, Path::new(&record.path));
            let back = turn.and_then(|_turn| {
                if state == State::Begun {
                    change::drop_unfinished(host, &root, &record.changes).map_err(told)?;
                }
                take_back(host, &root, &record.changes).map_err(told)
            });
            // Whether it was taken back can be told from its files, so the next undo only marks it.
            let marked = back.and_then(|()| {
                let marked = journal::mark(host, &dir, number, (state, State::Undone));
                marked
                    .map_err(|e| format!("it was taken back, and its record does not say so: {e}"))
            });
            match marked {
                Ok(()) => undone.undone.push((record.run_id, record.action)),
                Err(why) => undone.left.push((record.run_id, why)),
            }
        }
        return Ok(undone);
    }
    Ok(undone)
}

/// Steps 3 and 4, for one action.
fn take_back<H: WriteHost>(host: &H, root: &H::Dir, changes: &[Change]) -> Result<(), ChangeError> {
    for (change, stand) in change::stands(host, root, changes)? {
        if let Stand::Other(why) = stand {
            return Err(ChangeError::changed(change.path(), why));
        }
    }
    for change in changes.iter().rev() {
        // Told anew for each: what a later change moved away is back by now.
        if change::stand(host, root, change)? == Stand::After {
            change::take_back(host, root, change)?;
        }
    }
    Ok(())
}
