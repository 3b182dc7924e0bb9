//! What ended several runs at once: a restart of the system, or one event in the same second.
//!
//! Theory of operation. Twenty runs that lost their runners with one restart are one piece of news. Each run whose
//! runner is gone is told with its last write and with whether the system was restarted since; [`events`] puts
//! those together that have one cause. It is a way of telling, and nothing is decided by it. Pure.
//! Spec: RS-REC-44.

use std::fmt;

use crate::protocol::evidence::RunEvidence;
use crate::protocol::limits;
use crate::protocol::process::SystemFacts;
use crate::protocol::status::StatusView;

/// How a run lost its runner, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The last write of the run itself, ms since the epoch.
    pub last_write_ms: Option<i64>,
    /// Whether the system was restarted since.
    pub restarted: bool,
}

impl Lost {
    /// What the evidence of a run whose runner is gone tells.
    pub(super) fn of(e: &RunEvidence, system: &SystemFacts) -> Self {
        let last_write_ms = e.status.value().and_then(StatusView::last_write_ms);
        let logged_ms = e.events.as_ref().and_then(|log| log.newest_ms);
        let restarted = was_restarted(e, system);
        Self { last_write_ms: last_write_ms.max(logged_ms), restarted }
    }
}

/// Whether the system was restarted since the run recorded its process. A boot that was recorded knows better
/// than the clock, which may have been set since.
/// Spec: RS-REC-10.
pub(super) fn was_restarted(e: &RunEvidence, system: &SystemFacts) -> bool {
    let Some(process) = e.process().filter(|_| e.life.word.is_gone()) else { return false };
    match (&process.identity.boot_id, &system.boot_id) {
        (Some(recorded), Some(own)) => recorded != own,
        _ => process.last_write_ms.zip(system.boot_time_ms).is_some_and(|(last_ms, boot_ms)| {
            last_ms.saturating_add(limits::START_SLACK_MS) < boot_ms
        }),
    }
}

/// Several runs that one event ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The runs, in the order in which they were told.
    pub runs: Vec<String>,
    /// Whether it was a restart of the system; else all that is known is that they ended together.
    pub restart: bool,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.runs.len();
        if self.restart {
            write!(f, "{count} runs ended with a restart of the system")
        } else {
            write!(f, "{count} runs wrote last within the same second, so one event ended them")
        }
    }
}

/// The events that ended more than one of these runs, those of a restart first.
pub fn events<'a>(lost: impl IntoIterator<Item = (&'a str, Lost)>) -> Vec<Event> {
    let (restarted, mut rest): (Vec<_>, Vec<_>) =
        lost.into_iter().partition(|(_, lost)| lost.restarted);
    let named = |group: &[(&str, Lost)]| group.iter().map(|(run, _)| (*run).to_owned()).collect();
    let mut events = Vec::new();
    if restarted.len() > 1 {
        events.push(Event { runs: named(&restarted), restart: true });
    }
    rest.retain(|(_, lost)| lost.last_write_ms.is_some());
    rest.sort_by_key(|(_, lost)| lost.last_write_ms);
    let mut from = 0;
    while from < rest.len() {
        let first_ms = rest[from].1.last_write_ms.unwrap_or_default();
        let is_near = |(_, lost): &&(&str, Lost)| {
            lost.last_write_ms
                .is_some_and(|at| at.saturating_sub(first_ms) <= limits::SAME_EVENT_MS)
        };
        let count = rest[from..].iter().take_while(is_near).count();
        if count > 1 {
            events.push(Event { runs: named(&rest[from..from + count]), restart: false });
        }
        from += count.max(1);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(last_write_ms: i64, restarted: bool) -> Lost {
        Lost { last_write_ms: Some(last_write_ms), restarted }
    }

    #[test]
    fn runs_are_put_together_by_restart_and_by_second() {
        let at_ms = 1_790_000_000_000;
        let told = [
            ("a", lost(at_ms, true)),
            ("b", lost(at_ms + 90_000, true)),
            ("c", lost(at_ms + 500, false)),
            ("d", lost(at_ms + 1_000, false)),
            ("e", lost(at_ms + 2_100, false)),
            ("f", Lost { last_write_ms: None, restarted: false }),
        ];
        let found = events(told);
        let runs: Vec<_> =
            found.iter().map(|event| (event.runs.join(" "), event.restart)).collect();
        assert_eq!(runs, [("a b".to_owned(), true), ("c d".to_owned(), false)]);
        assert_eq!(found[0].to_string(), "2 runs ended with a restart of the system");
        assert!(events(told.into_iter().skip(4)).is_empty(), "one run is no news of its own");
    }
}
