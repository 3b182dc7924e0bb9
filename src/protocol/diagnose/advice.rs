//! What may be done now, and what must not. Words are stable; sentences are for people.

use super::super::layout;
use super::super::process::Liveness;
use super::super::state::RunState;
use super::super::status::StatusView;
use super::super::temp_name::TempName;
use super::super::verdict::NextAction;
use super::fate::{Fate, fate, unfit};
use super::{
    Flag, Notes, Ruling, RunEvidence, Verdict, accounts, rules, slot_verdict, stages, status,
};

fn action(action: &'static str, why: impl Into<String>) -> NextAction {
    NextAction { action, why: why.into(), verb: None }
}

/// What a recovery does; its plan tells which files.
fn repair(action: &'static str, why: impl Into<String>) -> NextAction {
    NextAction { action, why: why.into(), verb: Some("recover") }
}

fn again(seconds: i64, why: &str) -> NextAction {
    let seconds = seconds.max(1);
    NextAction {
        action: "look-again",
        why: format!("{why}; look again in {seconds} s"),
        verb: None,
    }
}

/// Next steps and prohibitions of one run.
pub(super) fn advise(
    e: &RunEvidence,
    ruling: &Ruling,
    notes: &Notes,
) -> (Vec<NextAction>, Vec<String>) {
    let mut next = Vec::new();
    let mut not: Vec<&str> = Vec::new();
    match ruling.verdict {
        Verdict::Orphaned => {
            if let Some(s) = status(e) {
                gone(e, s, &mut next);
            }
            not.push("treat the run as successful or failed before it is repaired");
        }
        Verdict::Starting => {
            next.push(again(launch_ms(e) / 1000, "the launch is inside its time"));
            not.push("launch the run again: this launch may still succeed");
        }
        Verdict::StartStuck => {
            next.push(action(
                "check-launcher",
                "the launch is over its time; find out whether its launcher lives",
            ));
            not.push("launch into the same directory");
        }
        Verdict::StartFailed => {
            next.push(action("report-start-failure", "nothing ran; the recorded error says why"));
            // The error was recorded, and nobody told the status.
            let untold = |s: &&StatusView| s.known_state().is_some_and(RunState::is_active);
            if let Some(s) = status(e).filter(untold).filter(|_| e.life.word.is_gone()) {
                gone(e, s, &mut next);
            }
        }
        Verdict::NeverStarted => {
            next.push(action("launch-anew", "nothing ran; a new launch makes a new directory"));
            not.push("count the run as failed work");
        }
        Verdict::Running => not.push("repair, relaunch or remove the run"),
        Verdict::RunningUnverified => {
            next.push(action(
                "verify-process",
                "find out on the recorded host whether the process lives",
            ));
            not.push("repair, relaunch or remove the run: unknown is never dead");
        }
        Verdict::Settling => {
            next.push(again(e.times.settling_ms / 1000, "result and proof may still come"));
            not.push("deliver a placeholder");
        }
        Verdict::Paused => next.push(match rules::resumable(e, ruling.verdict) {
            Some((true, why)) => action("resume", why),
            Some((false, why)) => action("keep", format!("not resumable now: {why}")),
            None => action("keep", "a paused run is kept"),
        }),
        Verdict::FinishedUnproven => {
            next.push(action("use-outcome", "the outcome is recorded; only the exit is unproven"));
            not.push("release anything on the word of the status alone");
            not.push("write an observed proof: only who saw the exit may");
        }
        Verdict::Conflict => {
            next.push(action("decide", format!("read both accounts; {}", ruling.because)));
            not.push("let either account vanish");
        }
        Verdict::Corrupt => {
            next.push(action(
                "keep-for-repair",
                "keep the damaged file; repair needs its bytes as evidence",
            ));
            not.push("delete or overwrite the damaged file");
        }
        Verdict::Unsupported => {
            next.push(action("upgrade", "a newer program may know this record"));
            not.push("rewrite the record");
        }
        Verdict::Unsafe => {
            next.push(action("examine-by-hand", "find out who put it there"));
            not.push("follow the link or open the file with a tool that does");
        }
        Verdict::Finished | Verdict::NotARun => {}
    }
    if notes.flags.contains(&Flag::Undelivered) {
        next.push(action("deliver-result", "the result still waits for its session"));
        not.push("prune the result: it is unread");
    }
    if notes.flags.contains(&Flag::SlotReleasable) {
        let by_policy = e.slots.iter().any(|slot| slot_verdict(e, &slot.owner).by_policy);
        next.push(if by_policy {
            action("release-slot", "the policy for abandoned slots is met")
        } else {
            repair("release-slot", "the rule for its capacity slot is met")
        });
    }
    signals(e, &mut not);
    if status(e).is_some_and(|s| s.duplicate_keys) {
        not.push("rewrite status.json: it has duplicate keys");
    }
    (next, not.into_iter().map(str::to_owned).collect())
}

/// The time that the launch is judged by.
fn launch_ms(e: &RunEvidence) -> i64 {
    match status(e) {
        _ if stages::has_messages(e) => e.times.startup_stage_ms,
        None => e.times.missing_status_ms,
        Some(s) if s.pid.is_none() => e.times.queued_ms,
        Some(_) => e.times.startup_stage_ms,
    }
}

/// What the rules of recovery call for, in their words. Spec: RS-REC-05 to RS-REC-07.
fn gone(e: &RunEvidence, s: &StatusView, next: &mut Vec<NextAction>) {
    if let Some(why) = unfit(e, s) {
        next.push(action("keep", format!("no repair touches it: {why}")));
        return;
    }
    next.push(match fate(e, s) {
        Fate::Adopt(result, _) if accounts::is_replay(result.place) => {
            repair("adopt-result", "the result was delivered; only the status is behind")
        }
        Fate::Adopt(result, _) => repair(
            "adopt-result",
            format!("the {} result outlived the status; take its outcome", result.place),
        ),
        Fate::Keep(why) => action("keep", format!("no repair touches it: {why}")),
        Fate::Queued => action(
            "keep",
            "it was queued and never ran; only a recovery with the policy closeQueued closes it",
        ),
        Fate::Close => match later_status(e) {
            Some(name) => repair(
                "close-as-failed",
                format!("the runner is gone and left no result, unless {name} tells an end"),
            ),
            None => repair("close-as-failed", "the runner is gone and left no result"),
        },
    });
}

/// An unfinished replacement of the status that is newer than it: the recoverer reads it.
fn later_status(e: &RunEvidence) -> Option<&str> {
    let is_status =
        |name: &&String| TempName::parse(name).is_some_and(|t| t.target.is(layout::STATUS));
    e.temp.newer_than_target.iter().find(is_status).map(String::as_str)
}

/// Prohibitions that follow from the process, whatever the verdict. Spec: RS-CTRL-05.
fn signals(e: &RunEvidence, not: &mut Vec<&str>) {
    match e.life.word {
        Liveness::Reused => not.push("signal the recorded pid: it belongs to another process now"),
        Liveness::Foreign => {
            not.push("signal the recorded pid: it belongs to another host or namespace")
        }
        _ if !e.pid_shared_with.is_empty() => {
            not.push("signal the recorded pid: it is the host of several runs");
        }
        Liveness::Unknown => not.push("signal the recorded pid: its identity is unproven"),
        _ => {}
    }
}
