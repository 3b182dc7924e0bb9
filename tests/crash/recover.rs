//! Repairs that are cut off: the next apply ends like one that was never disturbed, and an undo as well.
//!
//! Theory of operation. Each kind of action has a store of its own, because what is not flushed adds up over
//! actions and the disks that a power cut may leave multiply. Each crash of an apply is followed by another
//! apply, each crash of an undo by another undo; what they come to is compared with what an undisturbed one
//! comes to, times left out. What an apply keeps for itself is not compared.
//!
//! Covers RS-REC-05, RS-REC-19 to RS-REC-26, RS-REC-28, RS-REC-32 and RS-SLOT-18.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::segment::sha256_hex;
use runstore::recover::{Applied, ApplyError, Undone, Wanted, apply, undo};
use runstore::store::host::Host as _;
use serde_json::{Value, json};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};
use testkit::records::{self, GONE, SESSION, with};
use testkit::tree;

use crate::sweep::{at, every_call, every_look, recorded};
use crate::table;

const RUNS: &str = "/async-subagent-runs";
const RESULTS: &str = "/async-subagent-results";
const HOUR_MS: i64 = 3_600_000;

fn put(host: &FaultHost, path: &str, value: &Value) {
    host.put(path, value.to_string());
}

/// A run that says it works, and whose process is gone.
fn orphan(host: &FaultHost, run: &str) {
    host.make_dir(&format!("{RUNS}/{run}"));
    let status = records::running(run, GONE, host.now_ms());
    put(host, &format!("{RUNS}/{run}/status.json"), &with(status, "toolCallId", "call-1"));
    host.put(&format!("{RUNS}/{run}/events.jsonl"), "{\"type\":\"subagent.run.started\"}\n");
    host.put(&format!("{RUNS}/.active-runs/{run}"), "");
    host.put(&format!("{RUNS}/.active-runs/tool-calls/call-1/{run}"), "");
}

fn nobody(host: &FaultHost) {
    let gone = ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
    host.set_process(i64::from(GONE), gone);
}

/// A store with one thing to be done, and what is done.
struct Scene {
    name: &'static str,
    store: fn(&FaultHost),
    actions: &'static [&'static str],
}

const SCENES: [Scene; 5] = [
    Scene { name: "of a closed run", store: lost, actions: &["close-as-failed"] },
    Scene { name: "of an adopted result", store: told, actions: &["adopt-result"] },
    Scene { name: "of a completed end", store: half, actions: &["complete-end"] },
    Scene { name: "of a slot", store: slotted, actions: &["free-slot"] },
    Scene { name: "of a lease", store: leased, actions: &["free-lease"] },
];

fn runs(host: &FaultHost) {
    nobody(host);
    for dir in ["", "/.active-runs", "/.active-runs/tool-calls", "/.active-runs/tool-calls/call-1"]
    {
        host.make_dir(&format!("{RUNS}{dir}"));
    }
}

/// An orphan without a result, with litter and a configuration.
fn lost(host: &FaultHost) {
    runs(host);
    orphan(host, "lost");
    let old = host.now_ms() - 3 * HOUR_MS;
    host.put(&format!("{RUNS}/lost/.status.json.{GONE}.{old}.abc.tmp"), "{");
    host.put("/async-cfg-lost.json", "{\"id\":\"lost\"}");
    host.set_now_ms(host.now_ms() + HOUR_MS);
}

/// An orphan with a pending result.
fn told(host: &FaultHost) {
    pending(host, "told.json");
}

fn pending(host: &FaultHost, name: &str) {
    runs(host);
    orphan(host, "told");
    let pending = format!("{RESULTS}/result-pending/{SESSION}/{name}");
    host.put_below(&pending, records::result("told", host.now_ms()).to_string());
    host.set_now_ms(host.now_ms() + HOUR_MS);
}

/// A proven end that was left half done.
fn half(host: &FaultHost) {
    runs(host);
    let now = host.now_ms();
    ended(host, "half", now);
    let overlay = json!({
        "version": 1, "state": "pending", "runId": "half", "runnerProcessInstanceId": records::INSTANCE,
    });
    let status = with(records::complete("half", now), "processTerminal", overlay);
    put(host, &format!("{RUNS}/half/status.json"), &status);
    host.set_now_ms(now + HOUR_MS);
}

fn ended(host: &FaultHost, run: &str, at_ms: i64) {
    host.make_dir(&format!("{RUNS}/{run}"));
    put(host, &format!("{RUNS}/{run}/status.json"), &records::complete(run, at_ms));
    put(host, &format!("{RUNS}/{run}/process-terminal.json"), &records::proof(run, at_ms));
    let candidate = format!("{RUNS}/{run}/process-terminal-candidate.json");
    put(host, &candidate, &records::candidate(run));
}

/// The slot of a run whose end is proven.
fn slotted(host: &FaultHost) {
    runs(host);
    let now = host.now_ms();
    ended(host, "ended", now);
    let pool = sha256_hex(SESSION.as_bytes());
    let mut slot = records::slot("ended", now);
    slot["ownerSessionKey"] = json!(pool);
    slot["runnerProcessInstanceId"] = json!(records::INSTANCE);
    let owner = format!("/session-active-async-capacity/{pool}/slot-0/owner.json");
    host.put_below(&owner, slot.to_string());
    host.set_now_ms(now + HOUR_MS);
}

/// A lease whose owner is gone.
fn leased(host: &FaultHost) {
    runs(host);
    let key = "ab".repeat(32);
    let lease = records::lease("gone", GONE, &host.system().host, host.now_ms());
    host.put_below(&format!("/session-leases/{key}/owner.json"), lease.to_string());
    host.set_now_ms(host.now_ms() + HOUR_MS);
}

fn recover(host: &FaultHost) -> Result<Applied, ApplyError> {
    apply(host, Path::new("/"), None, &Wanted::default(), &mut |_| {})
}

fn take_back(host: &FaultHost) -> Result<Undone, ApplyError> {
    undo(host, Path::new("/"), None)
}

impl Scene {
    fn recovered(&self, host: &FaultHost) {
        let done = recover(host).expect("nothing fails here");
        let actions: Vec<_> = done.done.iter().map(|one| one.action.as_str()).collect();
        assert_eq!(actions, self.actions, "{done:?}");
        let is_clean = done.left.is_empty() && done.problems.is_empty() && done.stopped.is_none();
        assert!(is_clean, "{done:?}");
    }

    fn undone(&self, host: &FaultHost) {
        let undone = take_back(host).expect("nothing fails here");
        assert_eq!((undone.undone.len(), undone.left.len()), (self.actions.len(), 0), "{undone:?}");
    }

    /// What an undisturbed apply comes to, with the logs or without.
    fn end(&self, logs: bool) -> Files {
        let host = FaultHost::new();
        (self.store)(&host);
        self.recovered(&host);
        state(&host, logs)
    }

    /// What there was before.
    fn beginning(&self, logs: bool) -> Files {
        let host = FaultHost::new();
        (self.store)(&host);
        state(&host, logs)
    }
}

/// Content by path.
type Files = BTreeMap<String, String>;

/// What a store has come to ([`tree::timeless`]), with the logs or without.
fn state(host: &FaultHost, logs: bool) -> Files {
    let tree = host.tree().into_iter();
    tree::timeless(tree.filter(|(path, _)| logs || !path.ends_with("events.jsonl")))
}

/// A look at what the crash left, before anybody repairs it: an end that is told has its result.
fn tells_no_lie(host: &FaultHost) -> Result<(), String> {
    let Some(text) = host.text(&format!("{RUNS}/lost/status.json")) else { return Ok(()) };
    let status: Value =
        serde_json::from_str(&text).map_err(|e| format!("the status is torn: {e}"))?;
    let pending = format!("{RESULTS}/result-pending/{SESSION}/lost.json");
    let told = [format!("{RESULTS}/lost.json"), pending].iter().any(|path| host.has(path));
    if status["state"] == "failed" && !told {
        return Err("it says failed and has no result".to_owned());
    }
    Ok(())
}

/// What the crash left is found: the next apply ends like one that was never disturbed.
fn the_next_apply_ends_alike(
    host: &FaultHost,
    crash: &Crash,
    ends: &[Files; 2],
) -> Result<(), String> {
    tells_no_lie(host)?;
    nobody(host);
    host.set_now_ms(host.now_ms() + HOUR_MS);
    let done = recover(host).map_err(|e| format!("the next one is refused: {e}"))?;
    if !done.left.is_empty() || done.stopped.is_some() || !done.problems.is_empty() {
        return Err(format!("the next one leaves something: {done:?}"));
    }
    if crash.acknowledged && crash.model == Model::Process && !done.done.is_empty() {
        return Err(format!("something was done twice: {done:?}"));
    }
    // A line of the log is advice and not flushed.
    let logs = crash.model == Model::Process;
    let differ = tree::differing(&state(host, logs), &ends[usize::from(logs)]);
    if !differ.is_empty() {
        return Err(format!("it ends otherwise: {differ:?}"));
    }
    host.set_now_ms(host.now_ms() + HOUR_MS);
    let again = recover(host).map_err(|e| format!("a third one is refused: {e}"))?;
    // What was cut off is litter an hour later.
    let more = again.done.iter().any(|one| one.action != "remove-litter");
    if more { Err(format!("there is more to do: {again:?}")) } else { Ok(()) }
}

fn the_next_undo_ends_alike(
    host: &FaultHost,
    crash: &Crash,
    beginnings: &[Files; 2],
) -> Result<(), String> {
    nobody(host);
    let undone = take_back(host).map_err(|e| format!("the next one is refused: {e}"))?;
    if !undone.left.is_empty() {
        return Err(format!("the next one leaves something: {undone:?}"));
    }
    let logs = crash.model == Model::Process;
    let differ = tree::differing(&state(host, logs), &beginnings[usize::from(logs)]);
    if differ.is_empty() { Ok(()) } else { Err(format!("it ends otherwise: {differ:?}")) }
}

#[test]
pub(crate) fn every_crash_of_an_apply_is_made_good_by_the_next_one() {
    for scene in SCENES {
        let ends = [false, true].map(|logs| scene.end(logs));
        let operation = |host: &FaultHost| scene.recovered(host);
        let check = |host: &FaultHost, crash: &Crash| the_next_apply_ends_alike(host, crash, &ends);
        let seen = explore(scene.store, operation, check);
        table::seen(&format!("recover::apply {}", scene.name), &seen);
    }
}

#[test]
pub(crate) fn every_crash_of_an_undo_is_made_good_by_the_next_one() {
    for scene in SCENES {
        let beginnings = [false, true].map(|logs| scene.beginning(logs));
        let applied = |host: &FaultHost| {
            (scene.store)(host);
            scene.recovered(host);
        };
        let operation = |host: &FaultHost| scene.undone(host);
        let check =
            |host: &FaultHost, crash: &Crash| the_next_undo_ends_alike(host, crash, &beginnings);
        table::seen(&format!("recover::undo {}", scene.name), &explore(applied, operation, check));
    }
}

#[test]
pub(crate) fn a_record_that_comes_too_late_and_a_status_before_its_result_are_caught() {
    let scene = &SCENES[0];
    let ends = [false, true].map(|logs| scene.end(logs));
    let operation = |host: &FaultHost| scene.recovered(host);
    let check = |host: &FaultHost, crash: &Crash| the_next_apply_ends_alike(host, crash, &ends);
    let effects = recorded(scene.store, operation);
    // Of the record, whose flush comes before its name; of the result, which the status relies on.
    let renamed = |name: &str| {
        at(&effects, |effect| {
            effect.starts_with("Rename") && effect.contains(&format!("\"{name}\""))
        })
    };
    for (mistake, name) in [
        ("the record is not flushed", "00001.begun.json"),
        ("the result is not flushed", "lost.json"),
    ] {
        let end = renamed(name);
        let flushes = (end.saturating_sub(3)..end + 3)
            .filter(|n| effects.get(*n).is_some_and(|e| format!("{e:?}").starts_with("Sync")));
        let caught = flushes
            .map(|n| explore_sabotaged(scene.store, operation, check, Sabotage::Drop(n)))
            .find(|seen| !seen.violations.is_empty());
        table::caught("recover::apply", mistake, &caught.expect(mistake));
    }
}

#[test]
fn every_failing_effect_of_an_apply_is_made_good_by_the_next_one() {
    for scene in SCENES {
        let end = scene.end(false);
        every_call(scene.store, recover, |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            tells_no_lie(host).expect(&at);
            nobody(host);
            host.set_now_ms(host.now_ms() + HOUR_MS);
            let again = recover(host).expect(&at);
            assert!(again.left.is_empty() && again.stopped.is_none(), "{at}: {again:?}");
            let differ = tree::differing(&state(host, false), &end);
            assert!(differ.is_empty(), "{at}: {differ:?}; {again:?}");
        });
    }
}

// RS-REC-32: what the system refuses for one run concerns no other, unless there is no room for anything.
#[test]
fn a_failing_effect_on_one_run_keeps_no_other_from_its_end() {
    let pair = |host: &FaultHost| {
        runs(host);
        orphan(host, "lost");
        orphan(host, "lost-too");
        host.set_now_ms(host.now_ms() + HOUR_MS);
    };
    let (left, stopped) = (Cell::new(0), Cell::new(0));
    every_call(pair, recover, |host, done, fault| {
        let Ok(done) = done else { return };
        let at = format!("{fault:?}: {done:?}");
        let no_room = fault.is_of_no_room();
        if let Some(why) = &done.stopped {
            stopped.set(stopped.get() + 1);
            assert!(no_room || why.contains("recovery"), "only its own record may stop it: {at}");
            return;
        }
        assert!(done.done.len() + done.left.len() == 2 && done.left.len() < 2, "{at}");
        for one in &done.left {
            left.set(left.get() + 1);
            assert!(!no_room, "{at}");
            let run = &one.run_id;
            let status = host.text(&format!("{RUNS}/{run}/status.json")).expect("there");
            let is_whole = status.contains("\"running\"")
                && !host.has(&format!("{RESULTS}/{run}.json"))
                && host.has(&format!("{RUNS}/.active-runs/{run}"));
            assert!(is_whole, "what was made of it is taken back: {at}");
        }
    });
    assert!(left.get() > 0 && stopped.get() > 0, "{left:?} left, {stopped:?} stopped");
}

// RS-REC-32: a slot is moved by an operation of the store, which fails in the same ways.
#[test]
fn a_slot_that_cannot_be_set_aside_is_in_its_place_or_known() {
    let pool = sha256_hex(SESSION.as_bytes());
    let owner = format!("/session-active-async-capacity/{pool}/slot-0/owner.json");
    let (left, stopped) = (Cell::new(0), Cell::new(0));
    every_call(slotted, recover, |host, done, fault| {
        let Ok(done) = done else { return };
        let at = format!("{fault:?}: {done:?}");
        let no_room = fault.is_of_no_room();
        if done.stopped.is_some() {
            stopped.set(stopped.get() + 1);
        } else if !done.left.is_empty() {
            left.set(left.get() + 1);
            assert!(!no_room, "a lack of room concerns every action: {at}");
            let is_begun = host.tree().keys().any(|path| path.ends_with(".begun.json"));
            assert!(host.has(&owner) || is_begun, "what was made of it is taken back: {at}");
        }
    });
    assert!(left.get() > 0 && stopped.get() > 0, "{left:?} left, {stopped:?} stopped");
}

/// An orphan with a result that was published.
fn published(host: &FaultHost) {
    runs(host);
    orphan(host, "told");
    let result = records::result("told", host.now_ms());
    host.put_below(&format!("{RESULTS}/told.json"), result.to_string());
    host.set_now_ms(host.now_ms() + HOUR_MS);
}

/// An orphan with a pending result under a name that nobody derives.
fn strayed(host: &FaultHost) {
    pending(host, "stray.json");
}

// RS-REC-05: a result that cannot be looked at may be there.
#[test]
fn a_look_that_fails_closes_no_run_that_has_a_result() {
    let state_of = |host: &FaultHost| {
        let status = host.text(&format!("{RUNS}/told/status.json")).expect("there");
        let status: Value = serde_json::from_str(&status).expect("JSON");
        status["state"].as_str().expect("a word").to_owned()
    };
    let mut adopted = 0;
    for store in [told as fn(&FaultHost), published, strayed] {
        let whole = every_look(store, recover, |host, done, at| {
            let at = format!("{at}: {done:?}");
            let state = state_of(host);
            assert!(["running", "complete"].contains(&&*state), "{at}: {state}");
            adopted += usize::from(state == "complete");
            // What was taken back of it has changed the run just now.
            host.set_now_ms(host.now_ms() + HOUR_MS);
            recover(host).expect(&at);
            assert_eq!(state_of(host), "complete", "{at}: the next one adopts it");
        });
        whole.expect("nothing fails here");
    }
    assert!(adopted > 0, "a look may fail that nothing depends on");
}

/// A runner that was only thought to be gone, or another repairer, ends the run right before each effect.
#[test]
fn whoever_ends_the_run_meanwhile_is_not_overruled() {
    let alone = |host: &FaultHost| {
        runs(host);
        orphan(host, "lost");
        host.set_now_ms(host.now_ms() + HOUR_MS);
    };
    let steps = recorded(alone, |host| drop(recover(host))).len();
    let (mut kept, mut closed) = (0, 0);
    for n in 0..steps {
        let host = FaultHost::new();
        alone(&host);
        host.begin();
        host.interrupt_at(n, |host| {
            let path = format!("{RUNS}/lost/status.json");
            let active = host.text(&path).is_some_and(|text| text.contains("\"running\""));
            if active {
                put(host, &path, &records::complete("lost", host.now_ms()));
            }
        });
        let done = recover(&host).expect("nobody else has the lock");
        let text = host.text(&format!("{RUNS}/lost/status.json")).expect("there");
        let status: Value = serde_json::from_str(&text).expect("whole");
        if status["state"] == "complete" {
            kept += 1;
            assert!(done.done.is_empty(), "before effect {n}: {done:?}");
            assert!(
                !host.has(&format!("{RESULTS}/lost.json")),
                "before effect {n}: a failed result over a success"
            );
        } else {
            closed += 1;
        }
    }
    assert!(kept > 0 && closed > 0, "{kept} kept, {closed} closed");
}

/// The proof of a run goes right before each effect: once its action is recorded, only the verdict under the claim can
/// see that. Covers RS-SLOT-18.
#[test]
fn a_slot_is_judged_once_more_under_its_claim() {
    let pool = format!("/session-active-async-capacity/{}", sha256_hex(SESSION.as_bytes()));
    let owner = format!("{pool}/slot-0/owner.json");
    let steps = recorded(slotted, |host| drop(recover(host))).len();
    let (mut kept, mut freed) = (0, 0);
    for n in 0..steps {
        let host = FaultHost::new();
        slotted(&host);
        host.begin();
        let begun = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&begun);
        host.interrupt_at(n, move |host| {
            told.store(
                host.tree().keys().any(|path| path.ends_with(".begun.json")),
                Ordering::Relaxed,
            );
            host.put(&format!("{RUNS}/ended/process-terminal.json"), "{}");
        });
        let done = recover(&host).expect("nobody else has the lock");
        assert_eq!(host.has(&owner), done.done.is_empty(), "before effect {n}: {done:?}");
        kept += usize::from(host.has(&owner) && begun.load(Ordering::Relaxed));
        freed += done.done.len();
    }
    assert!(kept > 0 && freed > 0, "{kept} kept, {freed} freed");
}
