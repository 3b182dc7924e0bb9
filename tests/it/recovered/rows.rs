//! The crash windows of our own processes: who dies before which call, and what is to come of it.

use super::after::{
    After, CLOSED, ENDED, FAILED, FINISHED, NEVER, ORPHAN, TOLD_FAILED, UNBORN, UNSEEN, UNSTARTED,
    UNTOLD,
};
use super::rig::{BLIND, Before, Killed};
use crate::killed::rig::Role;

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) row: &'static str,
    pub(crate) what: &'static str,
    pub(crate) killed: Killed,
    /// What a reader may make of the store before a recovery.
    pub(crate) before: &'static [&'static str],
    pub(crate) after: After,
}

const fn second(killed: Killed) -> Killed {
    Killed { is_second: true, ..killed }
}

const fn row(
    row: &'static str,
    what: &'static str,
    killed: Killed,
    before: &'static [&'static str],
    after: After,
) -> Window {
    Window { row, what, killed, before, after }
}

const fn of(role: Role, is_revival: bool, before: Before) -> Killed {
    Killed { role, is_revival, before_work: "", runner: None, is_second: false, before }
}

const fn blind(killed: Killed) -> Killed {
    Killed { before_work: BLIND, ..killed }
}

const fn launcher(before: Before) -> Killed {
    of(Role::Launcher, false, before)
}

const fn revival(before: Before) -> Killed {
    of(Role::Launcher, true, before)
}

const CLONE: (&str, &str) = ("clone", "");
const STATUS: (&str, &str) = ("rename", ", \"status.json\"");
const PROOF: (&str, &str) = ("rename", ", \"process-terminal.json\"");
const CANDIDATE: (&str, &str) = ("rename", ", \"process-terminal-candidate.json\"");
const PROCEED: (&str, &str) = ("rename", "\"runner-startup-proceed.json\"");

/// A launcher dies.
pub(crate) const LAUNCHING: [Window; 15] = [
    row(
        "CW-1",
        "an empty directory",
        launcher(&[("openat", "runstore-launch")]),
        UNBORN,
        NEVER.quietly(),
    ),
    row(
        "CW-1",
        "before the slot",
        launcher(&[("mkdirat", ".candidate-")]),
        UNBORN,
        NEVER.quietly(),
    ),
    row("CW-1", "the slot is bound", launcher(&[("openat", "async-cfg-run-1")]), UNBORN, NEVER),
    row("CW-2", "the configuration is there", launcher(&[CLONE]), UNBORN, NEVER),
    row("CW-3", "no status: the shim tells it", launcher(&[CLONE, STATUS]), FAILED, TOLD_FAILED),
    row("CW-4", "no marker", launcher(&[CLONE, ("mkdirat", ".active-runs")]), UNSTARTED, CLOSED),
    row(
        "CW-5",
        "no proof: ours comes before the candidate",
        launcher(&[CLONE, PROOF]),
        UNSTARTED,
        CLOSED,
    ),
    row("CW-6", "no candidate", launcher(&[CLONE, CANDIDATE]), UNSTARTED, CLOSED),
    row("CW-8", "not let in", launcher(&[CLONE, PROCEED]), UNSTARTED, CLOSED),
    row(
        "CW-8",
        "a revival, not acknowledged",
        revival(&[("rename", "startup-ack")]),
        UNSTARTED,
        CLOSED,
    ),
    row("CW-8", "a revival, not let in", revival(&[PROCEED]), UNSTARTED, CLOSED),
    row(
        "CW-9",
        "let in, nobody returns",
        launcher(&[("exit_group", "")]),
        ENDED,
        FINISHED.quietly(),
    ),
    row("CW-9", "nobody observes", blind(launcher(&[("exit_group", "")])), ENDED, UNSEEN),
    row(
        "CW-10",
        "a revival",
        revival(&[("unlink", "runner-startup.json")]),
        ENDED,
        FINISHED.quietly(),
    ),
    row("CW-61", "the claim of a slot", launcher(&[("unlinkat", "capacity.claim")]), UNBORN, NEVER),
];

const CLOSED_INBOX: (&str, &str) = ("rename", "\"steer-inbox-closed.json\"");
const A_RESULT: (&str, &str) = ("rename", ", \"run-1.json\")");
const PROMOTION: (&str, &str) = ("rename", ", \"run-1.json\", ");
const ENDED_INDEX: (&str, &str) = ("rename", "-run-1.json\")");
const MARKER: (&str, &str) = ("unlinkat", "\"run-1\"");
const TOLD: (&str, &str) = ("write", "subagent.run.comp");
const RELEASED: (&str, &str) = ("rename", ".released-");

const fn runner(before: Before) -> Killed {
    of(Role::Runner, true, before)
}

/// A runner dies at its end. Each row is built with a shim that sees it, and with none.
pub(crate) const ENDING: [Window; 12] = [
    row(
        "CW-20",
        "the inbox is closed",
        runner(&[CLOSED_INBOX, A_RESULT]),
        ORPHAN,
        CLOSED.with_done_steps(),
    ),
    row("CW-21", "a pending result", runner(&[CLOSED_INBOX, A_RESULT, A_RESULT]), ORPHAN, FINISHED),
    row(
        "CW-22",
        "indexes and a pending result",
        runner(&[CLOSED_INBOX, PROMOTION]),
        ORPHAN,
        FINISHED,
    ),
    row("CW-23", "a public result", runner(&[PROMOTION, STATUS]), ORPHAN, FINISHED),
    row(
        "CW-24",
        "in no index of ended runs",
        second(runner(&[PROMOTION, STATUS, ENDED_INDEX])),
        ENDED,
        FINISHED,
    ),
    row(
        "CW-24",
        "the first of its session, in no index of ended runs: none is in use",
        runner(&[PROMOTION, STATUS, ENDED_INDEX]),
        ENDED,
        FINISHED.unlisted(),
    ),
    row(
        "CW-24",
        "in both indexes",
        runner(&[PROMOTION, STATUS, MARKER]),
        ENDED,
        FINISHED.at_will(),
    ),
    row("CW-25", "no event", runner(&[MARKER, TOLD]), ENDED, FINISHED.at_will()),
    row(
        "CW-26",
        "no account of the writers",
        runner(&[TOLD, CANDIDATE]),
        ENDED,
        FINISHED.at_will(),
    ),
    row(
        "CW-27",
        "a lease is held",
        runner(&[TOLD, CANDIDATE, RELEASED]),
        ENDED,
        FINISHED.at_will(),
    ),
    row(
        "CW-28",
        "the release is not told",
        runner(&[TOLD, RELEASED, CANDIDATE]),
        ENDED,
        FINISHED.at_will(),
    ),
    row(
        "CW-29",
        "all is told",
        runner(&[TOLD, CANDIDATE, ("unlinkat", "reserve")]),
        ENDED,
        FINISHED.at_will(),
    ),
];

/// A runner dies elsewhere.
pub(crate) const RUNNING: [Window; 3] = [
    row(
        "CW-63",
        "a candidate of a lease: the launcher tells it",
        runner(&[("rename", ".candidate-")]),
        FAILED,
        TOLD_FAILED,
    ),
    row(
        "CW-64",
        "a released lease: ours is renamed first",
        runner(&[RELEASED, ("unlinkat", "owner.json")]),
        ENDED,
        FINISHED.at_will(),
    ),
    row(
        "CW-10",
        "what was said at the start",
        runner(&[CANDIDATE, ("unlinkat", "startup-ack")]),
        ORPHAN,
        CLOSED,
    ),
];

const fn shim(before: Before) -> Killed {
    of(Role::Shim, false, before)
}

/// A shim dies.
pub(crate) const OBSERVING: [Window; 5] = [
    row("CW-30", "a proof without an overlay", shim(&[PROOF, STATUS]), ENDED, FINISHED),
    row(
        "CW-31",
        "an overlay without an event",
        shim(&[PROOF, STATUS, ("write", "run.process_te")]),
        ENDED,
        FINISHED,
    ),
    row("CW-32", "no proof", shim(&[PROOF]), ENDED, UNSEEN),
    row(
        "CW-62",
        "a slot that is to be freed",
        shim(&[PROOF, ("rename", "\"slot-0\"")]),
        ENDED,
        FINISHED,
    ),
    row(
        "CW-62",
        "a slot on its way out",
        shim(&[("rename", "\"slot-0\""), ("unlinkat", "owner.json")]),
        ENDED,
        FINISHED.at_will(),
    ),
];

/// A runner that says two tokens, and ends when its launcher is gone.
const TWO_TOKENS: &str = "for config; do :; done\nroot=$(dirname \"$config\")\n\
    run=$root/async-subagent-runs/run-1\n\
    say() { printf '{\"state\":\"%s\",\"token\":\"%s\"}' \"$1\" \"$2\" >\"$run/say.tmp\"; \
    mv \"$run/say.tmp\" \"$run/runner-startup.json\"; }\n\
    say ready one\nuntil [ -e \"$run/runner-startup-ack.json\" ]; do sleep 0.01; done\n\
    say acknowledged two\n\
    launcher=$(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' \"$run/.runstore-launch.json\")\n\
    while kill -0 \"$launcher\" 2>/dev/null; do sleep 0.01; done\n";

const fn failing(before: Before) -> Killed {
    Killed { runner: Some(TWO_TOKENS), ..revival(before) }
}

const ACK: (&str, &str) = ("rename", "startup-ack");

/// A launcher dies whose launch has failed.
pub(crate) const FAILING: [Window; 4] = [
    row(
        "CW-40",
        "the account and no status: ours comes first",
        failing(&[ACK, CANDIDATE, ("write", "lifecycleArtifactVersion")]),
        ORPHAN,
        CLOSED,
    ),
    row(
        "CW-40",
        "a whole text of the failure without its name",
        failing(&[ACK, CANDIDATE, STATUS]),
        ORPHAN,
        UNTOLD,
    ),
    row(
        "CW-41",
        "the failure is told, the runner lives",
        failing(&[ACK, CANDIDATE, STATUS, ("pidfd_send", "")]),
        FAILED,
        TOLD_FAILED,
    ),
    row(
        "CW-42",
        "the runner has ended",
        failing(&[ACK, STATUS, ("unlink", "async-cfg")]),
        FAILED,
        TOLD_FAILED,
    ),
];

/// Every row, as it is built.
pub(crate) fn all() -> Vec<Window> {
    let unseen = ENDING.map(|window| Window {
        killed: blind(window.killed),
        after: window.after.with_any_slot(),
        ..window
    });
    let groups: [&[Window]; 6] = [&LAUNCHING, &ENDING, &unseen, &RUNNING, &OBSERVING, &FAILING];
    groups.concat()
}
