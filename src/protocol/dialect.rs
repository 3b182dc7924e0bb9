//! Which version of which family wrote a directory. Facts §4.6, strongest evidence first.
//!
//! Most finished runs no longer show it: a successful revival leaves no start-up files. Then the
//! answer is `unknown`, which is an answer and not an error.

use super::Open;
use super::candidate::WriterDialect;
use super::evidence::RunEvidence;
use super::startup::{Action, StartupState};

/// The name of the dialect, or `unknown`. The names are those of facts §0.1: `p` and `d` families,
/// `+` for "this or newer", `-` for "this or older".
/// Spec: RS-ROLE-11, RS-START-19.
pub fn name(e: &RunEvidence) -> &'static str {
    by_handshake(e)
        .or_else(|| by_members(e))
        .or_else(|| by_writers(e))
        .or_else(|| by_version(e))
        .unwrap_or("unknown")
}

/// Whether runners of this dialect know no queue of stop requests and take `control/stop.json` alone: those
/// from before 0.55. A dialect that is not certain counts as newer; newer ones take the old file as well.
/// Spec: RS-CTRL-23; facts C-2.
pub fn stops_by_file(name: &str) -> bool {
    matches!(name, "p36-" | "p34" | "p35-p36" | "p43-p44" | "p48-p49")
}

fn by_handshake(e: &RunEvidence) -> Option<&'static str> {
    let said = e.startup.value().and_then(|m| m.state.as_ref()).and_then(Open::known);
    let acked = e.ack.value().and_then(|m| m.action.as_ref()).and_then(Open::known);
    if e.confirm.is_there() || (said == Some(StartupState::Confirmed) && acked == Some(Action::Ack))
    {
        return Some("p70+");
    }
    if acked == Some(Action::Confirm) {
        return Some("p69");
    }
    let old = said == Some(StartupState::Acknowledged) && e.proceed.is_there();
    old.then_some(if e.is_dm_store { "d4" } else { "p67-" })
}

fn by_members(e: &RunEvidence) -> Option<&'static str> {
    let s = e.status.value()?;
    if s.pid_member == Some("runnerPid") {
        return Some("p77+");
    }
    if s.pid_namespace.is_some() {
        return Some("p72+");
    }
    if s.has_requested_model {
        return Some("p68+");
    }
    let dm = e.is_dm_store || writers(e) == Some(WriterDialect::Dm);
    s.has_attempted_models.then_some(if dm { "d4" } else { "p67-" })
}

fn by_version(e: &RunEvidence) -> Option<&'static str> {
    let s = e.status.value()?;
    if !s.is_workflow() && s.lifecycle_version.is_none_or(|v| v < 3) {
        return Some(match s.lifecycle_version {
            Some(2) => "p35-p36",
            Some(_) => "p34",
            // Absent before 0.32; a status made up after a failed launch has neither member.
            None if s.mode.is_some() && s.started_at_ms.is_some() => "p36-",
            None => return None,
        });
    }
    None
}

fn by_writers(e: &RunEvidence) -> Option<&'static str> {
    match writers(e) {
        Some(WriterDialect::Dm) => Some("d4"),
        Some(WriterDialect::PiWithTree) => Some("p48-p49"),
        Some(WriterDialect::PiWithoutTree) => Some("p43-p44"),
        _ if e.is_dm_store => Some("d"),
        _ => None,
    }
}

fn writers(e: &RunEvidence) -> Option<WriterDialect> {
    e.candidate.value()?.writer_dialect()
}
