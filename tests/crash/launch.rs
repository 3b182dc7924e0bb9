//! Launches: nothing is let in before it is complete, nothing is held that nobody can be asked about, and a
//! failure is told before it is acted upon.
//! Spec: RS-START-11, RS-START-23, RS-START-37 to RS-START-43, RS-START-47, RS-START-50.

use std::path::Path;

use runstore::launcher::{
    Launch, Outcome, Place, Poll, Prepared, Refused, Request, SlotWish, prepare,
};
use runstore::protocol::ids::RunId;
use runstore::protocol::lease::LeaseState;
use runstore::protocol::slot::SlotOwner;
use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::protocol::status::StatusView;
use runstore::protocol::written_launch::RevivalText;
use runstore::protocol::written_startup::LaunchNote;
use runstore::protocol::{Document, RunMode, RunState};
use runstore::runner::startup::{Progress, Startup, read_config};
use runstore::store::host::WriteHost as _;
use runstore::store::lease::{self, canonical_id};
use runstore::store::slot::pool_name;
use testkit::child::{Child, Spawner};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};
use testkit::launch::{DESCRIPTOR, STEPS, lead};

use crate::sweep::{self, at, every_call, last, recorded};
use crate::table;

const RUN: &str = "/async-subagent-runs/run-1";

pub(crate) fn empty(host: &FaultHost) {
    host.make_dir("/async-subagent-runs");
    host.put("/s.jsonl", "{}\n");
}

/// The same, with a pool, a root of leases and an active index that are there already.
fn used(host: &FaultHost) {
    empty(host);
    host.make_dir("/session-leases");
    host.make_dir("/session-active-async-capacity");
    host.make_dir(&format!("/session-active-async-capacity/{}", pool_name("S")));
    host.make_dir("/async-subagent-runs/.active-runs");
}

fn request(run_id: &RunId, is_revival: bool) -> Request<'_> {
    let session_file = "/s.jsonl";
    Request {
        session_id: Some("S"),
        descriptor: Some(&DESCRIPTOR),
        slot: Some(SlotWish { limit: 1, source: None }),
        revival: is_revival.then_some(RevivalText { session_file, source_run_id: "run-0" }),
        ..Request::new(run_id, RunMode::Single, STEPS, Path::new("/"), Path::new("/r/run-1.json"))
    }
}

/// Prepares a run and hands it on.
fn with_prepared<T>(
    host: &FaultHost,
    is_revival: bool,
    act: impl FnOnce(Prepared<'_, FaultHost>) -> T,
) -> Result<T, Refused> {
    let run_id = RunId::parse("run-1").expect("an id");
    let runs = host.dir("/async-subagent-runs");
    let place = Place {
        temp: &0,
        temp_path: Path::new("/"),
        runs_root: &runs,
        runs_path: Path::new("/async-subagent-runs"),
    };
    Ok(act(prepare(host, place, request(&run_id, is_revival))?))
}

/// Prepares a run and hands the start of it on.
pub(crate) fn with_launch<T>(
    host: &FaultHost,
    is_revival: bool,
    child: &Child,
    act: impl FnOnce(Launch<'_, FaultHost>) -> T,
) -> Result<T, Refused> {
    let start =
        |prepared: Prepared<'_, FaultHost>| Ok(act(prepared.start(&mut Spawner::of(child))?));
    with_prepared(host, is_revival, start)?
}

fn only_prepared(host: &FaultHost) -> Result<(), Refused> {
    with_prepared(host, false, |prepared| drop(prepared))
}

/// A run whose runner was started and has not begun.
pub(crate) fn launched(host: &FaultHost, is_revival: bool) {
    with_launch(host, is_revival, &Child::new(77), |launch| drop(launch))
        .expect("nothing fails here");
}

fn in_run(host: &FaultHost, name: &str) -> Option<Vec<u8>> {
    host.bytes(&format!("{RUN}/{name}"))
}

pub(crate) fn put(host: &FaultHost, name: &str, text: &str) {
    host.put(&format!("{RUN}/{name}"), text);
}

/// A member of a file that has to be whole, if it is there.
fn member(host: &FaultHost, name: &str, key: &str) -> Result<Option<String>, String> {
    let Some(bytes) = in_run(host, name) else { return Ok(None) };
    let doc = Document::from_bytes(&bytes).map_err(|e| format!("{name} is torn: {e}"))?;
    Ok(Some(doc.get(key).map(|raw| raw.text().to_owned()).unwrap_or_default()))
}

fn state(host: &FaultHost) -> Result<Option<RunState>, String> {
    let Some(bytes) = in_run(host, "status.json") else { return Ok(None) };
    let doc = Document::from_bytes(&bytes).map_err(|e| format!("the status is torn: {e}"))?;
    let view = StatusView::read(&doc);
    Ok(Some(view.known_state().ok_or("the status tells no state")?))
}

fn note(host: &FaultHost) -> Result<Option<LaunchNote>, String> {
    let Some(bytes) = in_run(host, ".runstore-launch.json") else { return Ok(None) };
    let doc = Document::from_bytes(&bytes).map_err(|e| format!("the note is torn: {e}"))?;
    LaunchNote::read(&doc).map(Some).ok_or_else(|| "the note cannot be read".to_owned())
}

/// The instance that the slot is bound to; the outer `None` when there is no slot.
fn bound(host: &FaultHost) -> Result<Option<Option<String>>, String> {
    let slot = format!("/session-active-async-capacity/{}/slot-0", pool_name("S"));
    if !host.has(&slot) {
        return Ok(None);
    }
    let bytes = host.bytes(&format!("{slot}/owner.json")).ok_or("a slot without an owner")?;
    let owner = Document::from_bytes(&bytes).and_then(|doc| SlotOwner::read(&doc));
    Ok(Some(owner.map_err(|e| format!("a slot with a torn owner: {e}"))?.runner_instance_id))
}

/// Nothing is held that a note does not account for.
fn what_is_held_is_accounted_for(host: &FaultHost) -> Result<(), String> {
    let (note, bound) = (note(host)?, bound(host)?);
    match (&bound, &note) {
        (Some(_), None) => Err("a slot is held, and nobody can be asked".to_owned()),
        (Some(Some(instance)), Some(note)) if *instance != note.instance_id => {
            Err("the slot is bound to another instance than the note says".to_owned())
        }
        _ => Ok(()),
    }
}

/// What has to be there before the runner may be let in, and before each of it.
fn each_thing_is_there_before_the_next(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    what_is_held_is_accounted_for(host)?;
    let state = state(host)?;
    if state.is_some() && note(host)?.is_none() {
        return Err("a status without a note".to_owned());
    }
    let marked = host.has("/async-subagent-runs/.active-runs/run-1");
    if marked && state.is_none() {
        return Err("a marker without a status".to_owned());
    }
    let proof = member(host, "process-terminal.json", "state")?;
    // Both names are flushed at once: a power cut may keep either.
    let candidate = in_run(host, "process-terminal-candidate.json").is_some();
    if crash.model == Model::Process && candidate && proof.is_none() {
        return Err("a candidate without a proof".to_owned());
    }
    if in_run(host, "runner-startup-proceed.json").is_none() {
        return Ok(());
    }
    let candidate = member(host, "process-terminal-candidate.json", "writers")?;
    let whole = state == Some(RunState::Running)
        && marked
        && proof.as_deref() == Some("\"pending\"")
        && candidate.is_some()
        && bound(host)?.is_some_and(|instance| instance.is_some())
        && in_run(host, "recovery-descriptor.json").is_some();
    if whole { Ok(()) } else { Err(format!("let in, with {:?}", host.tree().keys())) }
}

fn a_preparation_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    what_is_held_is_accounted_for(host)?;
    if host.has("/async-cfg-run-1.json") && note(host)?.is_none() {
        return Err("a configuration without a note".to_owned());
    }
    let held = bound(host)?.flatten().is_some() && note(host)?.is_some();
    if crash.acknowledged && !held {
        return Err("acknowledged, but the slot is not bound".to_owned());
    }
    Ok(())
}

fn try_prepare(host: &FaultHost) {
    only_prepared(host).expect("nothing fails here");
}

#[test]
pub(crate) fn what_a_preparation_holds_is_accounted_for_after_every_crash() {
    for (what, setup) in
        [("prepare::prepare", used as fn(&FaultHost)), ("prepare::prepare, a new store", empty)]
    {
        let seen = explore(setup, try_prepare, a_preparation_holds);
        table::seen(what, &seen);
    }
    let effects = recorded(used, try_prepare);
    let note = at(&effects, |e| e.contains("Rename") && e.contains("runstore-launch"));
    for (mistake, sabotage) in [
        ("the note is never flushed", Sabotage::Drop(note - 1)),
        ("the note is not durable before the slot", Sabotage::Drop(note + 1)),
        ("the directory is flushed before the note has its name", Sabotage::Swap(note)),
    ] {
        let seen = explore_sabotaged(used, try_prepare, a_preparation_holds, sabotage);
        table::caught("prepare::prepare", mistake, &seen);
    }
}

/// Launches a fresh run, whose runner does nothing.
fn fresh(host: &FaultHost) {
    let started = with_launch(host, false, &Child::new(77), |mut launch| {
        matches!(launch.poll(), Poll::Done(Outcome::Started(_)))
    });
    assert!(started.expect("nothing fails here"), "a fresh launch waits for nobody");
}

fn a_launch_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    each_thing_is_there_before_the_next(host, crash)?;
    if !crash.acknowledged {
        return Ok(());
    }
    let kept = state(host)? == Some(RunState::Running)
        && host.has("/async-subagent-runs/.active-runs/run-1")
        && bound(host)?.flatten().is_some();
    if !kept {
        return Err("an acknowledged run is lost".to_owned());
    }
    if crash.model == Model::Process {
        let said = member(host, "runner-startup-proceed.json", "action")?;
        return if said.as_deref() == Some("\"proceed\"") {
            Ok(())
        } else {
            Err("not let in".to_owned())
        };
    }
    Ok(())
}

#[test]
pub(crate) fn a_run_is_complete_when_it_is_let_in_after_every_crash() {
    let seen = explore(used, fresh, a_launch_holds);
    table::seen("Prepared::start and Launch::poll, a fresh run", &seen);
    let effects = recorded(used, fresh);
    let renamed = |name: &str| at(&effects, |e| e.contains("Rename") && e.contains(name));
    let (status, proof) = (renamed("status.json"), renamed("\"process-terminal.json\""));
    let marker = at(&effects, |e| {
        e.contains("Create") && e.contains("\"run-1\"") && e.contains("mode: 384")
    });
    let candidate = renamed("\"process-terminal-candidate.json\"");
    for (mistake, sabotage) in [
        ("the first status is never flushed", Sabotage::Drop(status - 1)),
        ("the first status is not durable before the marker", Sabotage::Drop(status + 1)),
        ("the marker is not durable before the runner is let in", Sabotage::Drop(marker + 1)),
        ("the proof is never flushed", Sabotage::Drop(proof - 1)),
        ("the candidate is not durable before the runner is let in", Sabotage::Drop(candidate + 1)),
    ] {
        let seen = explore_sabotaged(used, fresh, a_launch_holds, sabotage);
        table::caught("Prepared::start and Launch::poll, a fresh run", mistake, &seen);
    }
}

/// Launches a revival; its runner says what it has to and holds nothing.
fn revived(host: &FaultHost) {
    with_launch(host, true, &Child::new(77), |mut launch| {
        for state in ["ready", "acknowledged", "confirmed"] {
            assert!(matches!(launch.poll(), Poll::Wait(_)), "it waits for {state}");
            put(host, "runner-startup.json", &format!(r#"{{"state":"{state}","token":"t"}}"#));
        }
        assert!(matches!(launch.poll(), Poll::Done(Outcome::Started(_))));
    })
    .expect("nothing fails here");
}

fn a_revival_is_led_in_order(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    each_thing_is_there_before_the_next(host, crash)?;
    let action = |name: &str| match crash.model {
        Model::Process => member(host, name, "action").map(Option::unwrap_or_default),
        // What is not flushed says nothing after a power cut.
        Model::Power => Ok(String::new()),
    };
    let (confirm, proceed) =
        (action("runner-startup-confirm.json")?, action("runner-startup-proceed.json")?);
    let copied = action("runner-startup-ack.json")? == "\"confirm\"";
    if copied && confirm.is_empty() || !proceed.is_empty() && !copied {
        return Err("it was let in out of turn".to_owned());
    }
    let kept = state(host)? == Some(RunState::Running) && bound(host)?.flatten().is_some();
    if crash.acknowledged && !kept { Err("an acknowledged run is lost".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn a_revival_is_led_in_order_after_every_crash() {
    let seen = explore(used, revived, a_revival_is_led_in_order);
    table::seen("Prepared::start and Launch::poll, a revival", &seen);
    let effects = recorded(used, revived);
    let copied =
        last(&effects, |e| e.contains("Rename") && e.contains("\"runner-startup-ack.json\""));
    let sabotage = Sabotage::Swap(copied - 1);
    let seen = explore_sabotaged(used, revived, a_revival_is_led_in_order, sabotage);
    let mistake = "a message has its name before it has its bytes";
    table::caught("Prepared::start and Launch::poll, a revival", mistake, &seen);
}

/// A revival whose runner was started and has not begun.
fn started(host: &FaultHost) {
    used(host);
    launched(host, true);
}

/// The runner of a revival, whose launcher answers at once.
fn begun(host: &FaultHost) {
    begun_with(host, &["ack", "confirm", "proceed"]);
}

/// The same, with a launcher without the confirm step.
fn begun_shortly(host: &FaultHost) {
    begun_with(host, &["ack", "proceed"]);
}

fn begun_with(host: &FaultHost, actions: &[&str]) {
    let config = read_config(host, Path::new("/async-cfg-run-1.json")).expect("ours");
    let mut startup = Startup::begin(host, &0, &config, RUNNER_BUDGET_MS).expect("free");
    let held = lease_token(host).expect("readable").expect("it is held");
    for action in actions {
        assert!(matches!(startup.poll(), Ok(Progress::Wait(_))), "it waits for {action}");
        let text = format!(r#"{{"action":"{action}","token":"{held}"}}"#);
        put(host, &format!("runner-startup-{action}.json"), &text);
    }
    assert_eq!(startup.poll().expect("let in"), Progress::Let);
    assert!(startup.commit().expect("nothing fails here").lease.is_some());
}

fn lease_token(host: &FaultHost) -> Result<Option<String>, String> {
    let id = canonical_id(host, Path::new("/s.jsonl")).map_err(|e| e.to_string())?.id;
    match lease::inspect(host, &0, &id) {
        LeaseState::Free => Ok(None),
        LeaseState::Owned(owner) => Ok(Some(owner.token)),
        other => Err(format!("the session is blocked: {other:?}")),
    }
}

/// A token that a message or the candidate names. A message that a power cut tore says nothing.
fn token_in(
    host: &FaultHost,
    name: &str,
    key: &str,
    crash: &Crash,
) -> Result<Option<String>, String> {
    let Some(bytes) = in_run(host, name) else { return Ok(None) };
    match Document::from_bytes(&bytes) {
        Ok(doc) => Ok(doc.get(key).and_then(|raw| raw.exact_string())),
        Err(_) if crash.model == Model::Power && name.starts_with("runner-startup") => Ok(None),
        Err(e) => Err(format!("{name} is torn: {e}")),
    }
}

fn a_session_is_held_by_whoever_speaks_of_it(
    host: &FaultHost,
    crash: &Crash,
) -> Result<(), String> {
    let held = lease_token(host)?;
    for (name, key) in
        [("runner-startup.json", "token"), ("process-terminal-candidate.json", "revivalLeaseToken")]
    {
        let named = token_in(host, name, key, crash)?;
        if named.is_some() && named != held {
            return Err(format!("{name} speaks of a session that is not held"));
        }
    }
    let named = member(host, "process-terminal-candidate.json", "sessionFile")?;
    let named = named.as_deref() == Some("\"/s.jsonl\"");
    if crash.acknowledged && !(named && held.is_some()) {
        return Err("a runner works on a session that nobody knows of".to_owned());
    }
    Ok(())
}

#[test]
pub(crate) fn a_runner_speaks_only_of_a_session_that_it_holds_after_every_crash() {
    let name = "Startup::begin, Startup::poll and Startup::commit";
    let seen = explore(started, begun, a_session_is_held_by_whoever_speaks_of_it);
    table::seen(name, &seen);
    let effects = recorded(started, begun_shortly);
    let lease = at(&effects, |e| {
        e.contains("Rename") && e.contains(".candidate-") && !e.contains(".json.")
    });
    let named =
        at(&effects, |e| e.contains("Rename") && e.contains("\"process-terminal-candidate.json\""));
    for (mistake, sabotage) in [
        ("ready is said before the lease is durable", Sabotage::Drop(lease + 1)),
        ("the session is not durable in the candidate", Sabotage::Drop(named + 1)),
        ("the candidate is never flushed", Sabotage::Drop(named - 1)),
    ] {
        let holds = a_session_is_held_by_whoever_speaks_of_it;
        let seen = explore_sabotaged(started, begun_shortly, holds, sabotage);
        table::caught(name, mistake, &seen);
    }
}

/// A launch that fails because its runner says so, with a session and a slot to be given back.
fn refused(host: &FaultHost) {
    let failed = try_refused(host).expect("nothing fails here");
    assert!(failed, "the runner said an error");
}

fn try_refused(host: &FaultHost) -> Result<bool, Refused> {
    let child = Child::new(77);
    with_launch(host, true, &child, |mut launch| {
        let request = lease::LeaseRequest {
            session_file: Path::new("/s.jsonl"),
            run_id: "run-1",
            source_run_id: "run-0",
            parent_session_id: None,
            token: "t",
        };
        let _held = lease::acquire(host, &0, &request);
        let run = host.dir(RUN);
        if let Ok(file) = host.create(&run, "runner-startup.json".as_ref(), 0o600) {
            let _ = host.write(&file, br#"{"state":"error","error":"why"}"#);
        }
        let is_failed = lead(host, &mut launch, || {}).0.failed().is_some();
        assert_eq!(is_failed, child.has_ended(), "{:?}", launch.poll());
        is_failed
    })
}

fn a_failure_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let told = state(host)?;
    let counted = member(host, "process-terminal-candidate.json", "expectedWriters")?;
    let counted = counted.is_some_and(|text| !text.is_empty());
    let failed = told == Some(RunState::Failed);
    if failed && !counted {
        return Err("it failed, and an observer would find no counts".to_owned());
    }
    let held = lease_token(host)?.is_some();
    let slot = bound(host)?.is_some();
    if told.is_some() && !slot && !failed {
        return Err("the slot is given back, and nobody knows why".to_owned());
    }
    if crash.acknowledged && (!failed || held || slot) {
        return Err(format!("acknowledged: {told:?}, lease {held}, slot {slot}"));
    }
    let config = host.has("/async-cfg-run-1.json");
    if crash.acknowledged && crash.model == Model::Process && config {
        return Err("the prompts are still there".to_owned());
    }
    Ok(())
}

#[test]
pub(crate) fn a_launch_that_fails_is_told_before_anything_is_given_back_after_every_crash() {
    let seen = explore(used, refused, a_failure_holds);
    table::seen("Launch::poll, a failure", &seen);
    let effects = recorded(used, refused);
    let failed = last(&effects, |e| e.contains("Rename") && e.contains("\"status.json\""));
    for (mistake, sabotage) in [
        ("the failure is never flushed", Sabotage::Drop(failed - 1)),
        ("the failure is not durable before the slot is given back", Sabotage::Drop(failed + 1)),
    ] {
        let seen = explore_sabotaged(used, refused, a_failure_holds, sabotage);
        table::caught("Launch::poll, a failure", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_preparation_takes_everything_back_or_says_what_is_left() {
    let points = every_call(used, only_prepared, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        let left = host.tree().into_keys().find(|path| {
            path.starts_with("async-cfg") || path.contains("run-1") || path.contains("slot-0/")
        });
        match &done {
            Ok(()) => assert!(left.is_some(), "{at}"),
            Err(refused) => {
                assert_eq!(left.is_none(), refused.left.is_empty(), "{at}: {left:?}");
                assert!(!refused.to_string().is_empty(), "{at}");
            }
        }
        assert!(
            !sweep::litter(host).iter().any(|name| name.contains("cfg")),
            "{at}: no prompts are left"
        );
    });
    assert!(points >= 100, "{points} points");
}

#[test]
fn every_failing_effect_of_a_launch_ends_the_runner_or_lets_it_in() {
    let launch = |host: &FaultHost| {
        let child = Child::new(77);
        let outcome = with_launch(host, false, &child, |mut launch| {
            let outcome = lead(host, &mut launch, || {}).0;
            outcome.failed().map(|failed| failed.unrecorded.is_none())
        });
        (outcome, child.has_ended())
    };
    let points = every_call(used, launch, |host, (outcome, has_ended), fault| {
        let at = format!("{fault:?}: {outcome:?}");
        let let_in = in_run(host, "runner-startup-proceed.json").is_some();
        match outcome {
            // Nothing was started.
            Err(_) => assert!(!let_in && !has_ended, "{at}"),
            Ok(None) => assert!(let_in && !has_ended, "{at}: a run that was let in is started"),
            Ok(Some(is_recorded)) => {
                assert!(!let_in && has_ended, "{at}: a failure lets nobody in");
                assert!(is_recorded, "{at}: only one call failed");
                assert_eq!(state(host).expect(&at), Some(RunState::Failed), "{at}");
                let pool = bound(host).expect(&at);
                assert_eq!(pool, None, "{at}: the slot is free");
            }
        }
    });
    assert!(points >= 200, "{points} points");
}

#[test]
fn every_failing_effect_of_a_failed_launch_still_ends_the_runner() {
    let points = every_call(used, try_refused, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        let let_in = in_run(host, "runner-startup-proceed.json").is_some();
        assert!(!let_in, "{at}: a failure lets nobody in");
        if let Ok(failed) = done {
            assert!(failed, "{at}: a runner that gave up is not started");
        }
    });
    assert!(points >= 300, "{points} points");
}
