//! A launcher that stays: it waits for the end of its runner, and proves it as the parent that waited.
//!
//! Ordered steps: reap the child; decide and publish the proof; release the slot, if the end was observed. With a shim
//! between them it is the shim that proves, and this process waits for it and tells what its proof says. A crash
//! leaves a launch as any crash of a launcher does.

use runstore::launcher::{Launch, Place};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::process::Presence;
use runstore::protocol::proof::ProofState;
use runstore::protocol::{Open, layout, limits};
use runstore::store::host::Part;
use runstore::store::process::{Exit, Life, Spawned};
use runstore::store::proof::{self, ExitWitness, RunPlace};
use runstore::store::{Host, RealHost, WriteHost as _, observer_record, slot};
use serde_json::{Value, json};

use super::launch::Dir;

/// How often the runner is looked at, in ms.
const LOOK_MS: u64 = 5;

/// How a launch goes on once the runner was let in or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// The end is proven.
    Prove,
    /// The end is waited for, and left to others.
    Wait,
}

/// Waits, and adds to the answer how the runner ended (`exit`), when (`closedAt`), and its `proof` with the `reason`.
pub(super) fn stay(
    host: &RealHost,
    place: Place<'_, Dir>,
    run_id: &RunId,
    session: Option<&str>,
    launch: Launch<'_, RealHost>,
    how: Stay,
    answer: &mut Value,
) -> Result<(), String> {
    let instance = launch.instance_id().to_owned();
    let mut child = launch.into_child();
    let run_dir = host
        .open_dir_at(place.runs_root, run_id.as_str().as_ref())
        .map_err(|e| format!("{run_id}: {e}"))?;
    let exit = end_of(host, &mut *child)?;
    let closed_at_ms = host.now_ms();
    answer["closedAt"] = closed_at_ms.into();
    answer["exit"] = told(&exit);
    if how == Stay::Wait {
        return Ok(());
    }
    let (temp, runs_root) = (place.temp, place.runs_root);
    let place = RunPlace { temp, runs_root, run_dir: &run_dir, run_id };
    let witness = ExitWitness::from_wait(&instance, closed_at_ms, exit);
    let proof = proof::finalise(host, &place, &witness).map_err(|e| with_causes(&e))?.proof;
    // A slot before its proof could be taken again while nobody knows how its run ended.
    if let Some(session) = session.filter(|_| proof.state == ProofState::Observed) {
        slot::release_of_run(host, temp, session, run_id.as_str(), &instance)
            .map_err(|e| with_causes(&e))?;
    }
    answer["proof"] = proof.state.to_string().into();
    answer["reason"] = proof.reason.as_ref().map(Open::as_str).into();
    Ok(())
}

/// The same with a shim: its proof is told, once it has ended itself.
pub(super) fn stay_for_shim(
    host: &RealHost,
    place: Place<'_, Dir>,
    run_id: &RunId,
    launch: Launch<'_, RealHost>,
    answer: &mut Value,
) -> Result<(), String> {
    let mut child = launch.into_child();
    let run_dir = host
        .open_dir_at(place.runs_root, run_id.as_str().as_ref())
        .map_err(|e| format!("{run_id}: {e}"))?;
    let observer = observer_record::read(host, &run_dir).map_err(|e| with_causes(&e))?;
    let observer = observer.ok_or("no shim has said who it is")?;
    let is_gone = || host.process(observer.process.pid).presence == Presence::Gone;
    // A look reaps the shim as well, which is a child of this process.
    while !child.look().has_ended() || !is_gone() {
        host.wait_ms(LOOK_MS);
    }
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    let read = host.read_at(&run_dir, layout::PROOF.as_ref(), part);
    let read = read.map_err(|e| format!("{}: {e}", layout::PROOF))?;
    let proof: Value =
        serde_json::from_slice(&read.bytes).map_err(|e| format!("{}: {e}", layout::PROOF))?;
    answer["proof"] = proof["state"].clone();
    answer["reason"] = proof["reason"].clone();
    let runner = &proof["instances"][0];
    let ends = [&runner["exitCode"], &runner["signal"]];
    answer["exit"] = ends.into_iter().find(|end| !end.is_null()).cloned().into();
    Ok(())
}

/// The code of an exit, or the name of a signal.
pub(super) fn told(exit: &Exit) -> Value {
    match exit {
        Exit::Code(code) => json!(code),
        Exit::Signal(name) => json!(name),
    }
}

fn end_of(host: &RealHost, child: &mut dyn Spawned) -> Result<Exit, String> {
    loop {
        match child.look() {
            Life::Ended(exit) => return exit.ok_or_else(|| "a parent is told the exit".into()),
            Life::Running => host.wait_ms(LOOK_MS),
        }
    }
}
