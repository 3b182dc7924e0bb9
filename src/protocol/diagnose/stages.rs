//! How far did the launch come? Spec: RS-START-*, facts §4.

use super::super::Open;
use super::super::layout;
use super::super::startup::StartupState;
use super::{FileFact, RunEvidence, Stage, has_begun, status};

/// The newest file of the start-up handshake, and when it was written. Its messages carry no time,
/// so here the file's time is the only one there is.
fn newest_startup_file(e: &RunEvidence) -> Option<i64> {
    let metas = [e.startup.meta(), e.ack.meta(), e.confirm.meta(), e.proceed.meta()];
    metas.into_iter().flatten().map(|m| m.mtime_ms).max()
}

/// What the start-up file says, when it can be read.
pub(super) fn startup_word(e: &RunEvidence) -> Option<StartupState> {
    e.startup.value()?.state.as_ref().and_then(Open::known)
}

/// The error text of a start-up failure recorded by the runner itself.
pub(super) fn startup_error(e: &RunEvidence) -> Option<&str> {
    let message = e.startup.value()?;
    (startup_word(e)? == StartupState::Error)
        .then(|| message.error.as_deref().unwrap_or("no reason given"))
}

/// How far the launch came, by the files alone. Spec: RS-START-15.
pub(super) fn reached(e: &RunEvidence) -> Stage {
    if has_begun(e) || e.proceed.is_there() {
        return Stage::Proceed;
    }
    match startup_word(e) {
        Some(StartupState::Confirmed) => Stage::Confirmed,
        Some(StartupState::Acknowledged) => Stage::Acknowledged,
        Some(StartupState::Ready) => Stage::Ready,
        // An error says that a process was there, not how far it came.
        _ if e.ack.is_there() || e.confirm.is_there() => Stage::Ready,
        _ if e.has_runner_logs
            || e.startup.is_there()
            || status(e).is_some_and(|s| s.pid.is_some()) =>
        {
            Stage::Spawned
        }
        _ => Stage::Prepared,
    }
}

/// A launch that is still under way: its stage and the age of that stage in ms. Spec: RS-START-16.
pub(super) fn under_way(e: &RunEvidence) -> Option<(Stage, i64)> {
    if has_begun(e) {
        return None;
    }
    if let Some(at) = newest_startup_file(e) {
        return Some((reached(e), e.now_ms.saturating_sub(at).max(0)));
    }
    // No message yet: a status as only a launcher writes it (facts S-40), with nothing of the
    // runner's in it. The runner's first own write adds its working directory. A workflow has no
    // launch of its own, so its untouched steps say nothing.
    let s = status(e)?;
    let by_launcher =
        !s.is_workflow() && s.cwd.is_none() && s.all_steps_pending() && s.pid.is_some();
    if !by_launcher {
        return None;
    }
    let since = s.last_update_ms.or(s.started_at_ms)?;
    Some((Stage::Spawned, e.now_ms.saturating_sub(since).max(0)))
}

/// Whether any message of the handshake is there (also an unreadable one).
pub(super) fn has_messages(e: &RunEvidence) -> bool {
    e.startup.is_there() || e.ack.is_there() || e.confirm.is_there() || e.proceed.is_there()
}

/// When the handshake last moved, else when the directory did.
pub(super) fn last_move_ms(e: &RunEvidence) -> Option<i64> {
    newest_startup_file(e).or(e.dir_mtime_ms)
}

/// Whether a start-up file is damaged, with its name.
pub(super) fn damaged(e: &RunEvidence) -> Vec<(&'static str, String)> {
    fn error<T>(fact: &FileFact<T>) -> Option<String> {
        match fact {
            FileFact::Damaged(error, _) => Some(error.to_string()),
            FileFact::Unreadable(why) => Some(why.clone()),
            _ => None,
        }
    }
    let files = [
        (layout::STARTUP, error(&e.startup)),
        (layout::STARTUP_ACK, error(&e.ack)),
        (layout::STARTUP_CONFIRM, error(&e.confirm)),
        (layout::STARTUP_PROCEED, error(&e.proceed)),
    ];
    files.into_iter().filter_map(|(name, error)| Some((name, error?))).collect()
}
