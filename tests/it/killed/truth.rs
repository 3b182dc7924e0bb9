//! What must hold after any kill, told from what is known to have happened.

use std::ops::ControlFlow;

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::diagnose::slot_verdict;
use runstore::protocol::evidence::Times;
use runstore::protocol::layout;
use runstore::protocol::slot::{SlotOwner, SlotVerdict};
use runstore::store::host::Host as _;
use runstore::store::slot;
use runstore::store::{Depth, Opened, RealHost, Store};
use serde_json::Value;

use crate::ask;

use super::rig::{Rig, Role};

/// What came of one launch.
pub(super) struct Seen {
    pub(super) was_killed: bool,
    pub(super) worked: bool,
    pub(super) proven: bool,
}

/// Later than any time that a verdict waits for, in ms.
const LATER_MS: i64 = 3_600_000;

/// Checks everything. See the module's text.
pub(super) fn check(rig: &Rig) -> Result<Seen, String> {
    let was_killed = rig.was_killed();
    let work = rig.work();
    let runs = rig.root().join(layout::RUNS_DIR);
    let mut proven = false;
    if runs.exists() {
        let answer = ask::inspect(&rig.root());
        let later = reports(rig, LATER_MS)?;
        match (answer.runs(), &later[..]) {
            ([], []) if work == 0 => {}
            ([now], [later]) => {
                let results = answer.json["results"].as_array().map_or(0, Vec::len);
                proven = tells_the_truth(rig, (work, results), now, later)?;
            }
            (now, later) => return Err(format!("{} and {} runs", now.len(), later.len())),
        }
    } else if work > 0 {
        return Err("there was work without a run".to_owned());
    }
    is_free_again(rig, work)?;
    Ok(Seen { was_killed, worked: work == 1, proven })
}

/// Every report, as a reader sees it so much later.
fn reports(rig: &Rig, ms: i64) -> Result<Vec<RunReport>, String> {
    let host = rig.host();
    let store = open(rig, host, ms)?;
    let mut found = Vec::new();
    let mut problems = Vec::new();
    let mut each = |report: RunReport| {
        found.push(report);
        ControlFlow::Continue(())
    };
    Inspection::new(&store, Depth::Full).each(&mut each, &mut problems);
    Ok(found)
}

fn open<'a>(rig: &Rig, host: &'a RealHost, ms: i64) -> Result<Store<'a, RealHost>, String> {
    match Store::open(host, &rig.root(), host.now_ms() + ms, Times::default()) {
        Ok(Opened::Store(store)) => Ok(store),
        Ok(_) => Err("it is no store".to_owned()),
        Err(e) => Err(format!("the store cannot be opened: {e}")),
    }
}

/// Whether the end is proven, if the answers now and later fit what happened.
fn tells_the_truth(
    rig: &Rig,
    (work, results): (usize, usize),
    now: &Value,
    later: &RunReport,
) -> Result<bool, String> {
    let text = |key: &str| now[key].as_str().unwrap_or("-");
    let (verdict, state) = (text("verdict"), text("recordedState"));
    let told = format!(
        "work {work}, {state}, {verdict} ({}), later {} ({}), proof {}, launcher: {}",
        text("because"),
        later.verdict,
        later.because,
        now["proof"],
        rig.errors(),
    );
    let wrong = |what: &str| Err(format!("{what}: {told}"));
    if work > 1 {
        return wrong("the work was done twice");
    }
    // Nothing runs any more.
    if text("liveness") == "live" || ["running", "running-unverified"].contains(&verdict) {
        return wrong("it is said to run");
    }
    let allowed: (&[&str], &[&str]) = match state {
        "-" => (
            &["starting", "start-failed", "never-started", "start-stuck"],
            &["start-failed", "never-started", "start-stuck"],
        ),
        "queued" | "running" if work == 0 => {
            (&["orphaned", "start-failed"], &["orphaned", "start-failed"])
        }
        "queued" | "running" => (&["orphaned"], &["orphaned"]),
        "failed" => (&["start-failed"], &["start-failed"]),
        "complete" => (&["finished", "settling"], &["finished", "finished-unproven"]),
        _ => (&[], &[]),
    };
    if !allowed.0.contains(&verdict) || !allowed.1.contains(&later.verdict) {
        return wrong("the verdict is another one");
    }
    if state == "complete" && (work != 1 || results != 1) {
        return wrong("a success has work and a result");
    }
    if ["failed", "-"].contains(&state) && (work > 0 || results > 0) {
        return wrong("work that was done is told as none");
    }
    let counts = now["proof"]["counts"] == true;
    let is_observed = now["proof"]["state"] == "observed";
    // Whoever waits for the runner was not killed, so its end is proven.
    if rig.role() != Role::Shim && state != "-" && !(counts && is_observed) {
        return wrong("the end of the runner was seen and is not proven");
    }
    Ok(is_observed)
}

/// Slot and lease of the session can be had. The next launcher frees by itself what nobody else will; what a
/// shim leaves that died before its proof is freed by policy, so time has to pass.
fn is_free_again(rig: &Rig, work: usize) -> Result<(), String> {
    let mut started = rig.launch_unwatched("run-2");
    if !started && rig.role() == Role::Shim {
        release_later(rig)?;
        started = rig.launch_unwatched("run-2");
    }
    if !started {
        return Err(format!("the session cannot be used again: {}", rig.errors()));
    }
    let answer = ask::inspect(&rig.root());
    let verdict = answer.verdict("run-2");
    if verdict != "finished" || rig.work() != work + 1 {
        return Err(format!("the next run is {verdict}, work {}", rig.work()));
    }
    Ok(())
}

/// Releases slots as a launcher would so much later.
fn release_later(rig: &Rig) -> Result<(), String> {
    let host = rig.host();
    let store = open(rig, host, LATER_MS)?;
    let judge = |owner: &SlotOwner| -> SlotVerdict {
        let none = SlotVerdict { release: false, rule: 1, reason: "no run", by_policy: false };
        let root = &store.runs_roots[0];
        let snapshot = store.snapshot(root, owner.run_id.as_ref(), None, Depth::Full);
        snapshot.map_or(none, |snapshot| slot_verdict(&snapshot.evidence, owner))
    };
    let temp = host.open_dir(&rig.root()).map_err(|e| e.to_string())?;
    let done = slot::reconcile(host, &temp, "S", judge).map_err(|e| e.to_string())?;
    if done.used == 0 {
        return Ok(());
    }
    let runs = reports(rig, LATER_MS)?;
    let run = runs.first().map(|run| (run.verdict, &run.recorded_state, &run.because));
    Err(format!("the slot is held for ever: {run:?}"))
}
