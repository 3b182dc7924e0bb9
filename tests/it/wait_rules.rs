//! When a wait is over and when it goes on, on a host in memory.
//! Spec: RS-OBS-20 to RS-OBS-26.
//!
//! Theory of operation. The world changes during the pauses of the waiter, and says whether that wakes it. The
//! clock moves only in pauses that nothing ends, so it tells what was waited away.

use std::ops::ControlFlow;
use std::path::PathBuf;

use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::store::Host as _;
use runstore::wait::{Outcome, Until, Waited, Wish, wait};
use serde_json::{Value, json};
use testkit::fault::{FaultHost, Nap};
use testkit::records::{self, with, without};

const PID: u32 = 77;
const RUNS: &str = "/t/async-subagent-runs";

/// A store in memory with a live process.
struct World {
    host: FaultHost,
}

impl World {
    fn new() -> Self {
        let world = Self { host: FaultHost::new() };
        world.host.make_dir("/t");
        world.host.make_dir(RUNS);
        world.process(Presence::Present);
        world
    }

    fn now_ms(&self) -> i64 {
        self.host.now_ms()
    }

    fn process(&self, presence: Presence) {
        set_process(&self.host, presence);
    }

    fn put(&self, run: &str, name: &str, value: &Value) {
        put(&self.host, run, name, value);
    }

    fn running(&self, run: &str) {
        self.put(run, "status.json", &records::running(run, PID, self.now_ms()));
    }

    fn naps(&self, naps: impl IntoIterator<Item = Nap>) {
        self.host.script().naps.extend(naps);
    }

    fn wait(&self, runs: &[&str], wish: &Wish) -> Vec<Waited> {
        let paths: Vec<_> = runs.iter().map(|run| PathBuf::from(format!("{RUNS}/{run}"))).collect();
        let mut all = Vec::new();
        let waited = wait(&self.host, &paths, wish, &mut |waited| {
            all.push(waited);
            ControlFlow::Continue(())
        });
        waited.expect("all are there");
        all
    }

    fn one(&self, wish: &Wish) -> Outcome {
        let all = self.wait(&["run-1"], wish);
        assert_eq!(all.len(), 1, "it is told once");
        all[0].outcome
    }
}

fn put(host: &FaultHost, run: &str, name: &str, value: &Value) {
    let dir = format!("{RUNS}/{run}");
    if !host.has(&dir) {
        host.make_dir(&dir);
    }
    host.put(&format!("{dir}/{name}"), value.to_string());
}

fn set_process(host: &FaultHost, presence: Presence) {
    // Started before the record of it, so it is the recorded one.
    let start_ms = Some(host.now_ms() - 5_000);
    host.set_process(PID.into(), ProcessSeen { presence, start_ms, ..ProcessSeen::default() });
}

fn wish(until: Until) -> Wish {
    Wish { until, ..Wish::default() }
}

/// At once, or only when the time is over.
fn at_once(until: Until) -> Wish {
    Wish { timeout_ms: Some(0), ..wish(until) }
}

const ALL: [Until; 3] = [Until::Ready, Until::Terminal, Until::Proof];

#[test]
fn every_state_has_its_row() {
    use Outcome::{CannotChange, Ended, Orphaned, Proven, Ready, Timeout};
    let now = World::new().now_ms();
    let running = records::running("run-1", PID, now);
    let complete = without(records::complete("run-1", now), "processTerminal");
    let paused = with(with(running.clone(), "state", "paused"), "endedAt", now);
    let failed_start = with(
        with(without(complete.clone(), "endedAt"), "state", "failed"),
        "error",
        "there is no program",
    );
    let failed_start =
        with(failed_start, "steps", json!([{"agent": "worker", "status": "pending"}]));
    let old = with(complete.clone(), "endedAt", now - 3_600_000);
    let old = with(with(old, "lastUpdate", now - 3_600_000), "startedAt", now - 3_600_001);
    let rows: [(&str, Value, [Outcome; 3]); 9] = [
        ("running", running.clone(), [Ready, Timeout, Timeout]),
        ("complete, proof to come", complete, [Ended, Ended, Timeout]),
        ("complete, and never proven", old, [Ended, Ended, CannotChange]),
        ("paused", paused, [CannotChange; 3]),
        ("pausing", with(running.clone(), "state", "paused"), [Timeout; 3]),
        ("not started", failed_start, [Ended; 3]),
        ("orphaned", with(running.clone(), "pid", 5), [Orphaned; 3]),
        (
            "a word of another version",
            with(running.clone(), "state", "levitating"),
            [CannotChange; 3],
        ),
        ("no process", without(running, "pid"), [Ready, Timeout, Timeout]),
    ];
    for (what, status, outcomes) in rows {
        for (until, outcome) in ALL.into_iter().zip(outcomes) {
            let world = World::new();
            world
                .host
                .set_process(5, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
            world.put("run-1", "status.json", &status);
            assert_eq!(world.one(&at_once(until)), outcome, "{what} until {until:?}");
        }
    }
    let world = World::new();
    world.put("run-1", "status.json", &json!(7));
    assert_eq!(world.one(&wish(Until::Terminal)), CannotChange, "what is damaged stays so");
    let world = World::new();
    world.put("run-1", "status.json", &records::complete("run-1", now));
    world.put("run-1", "process-terminal.json", &records::proof("run-1", now));
    world.put("run-1", "process-terminal-candidate.json", &records::candidate("run-1"));
    assert_eq!(world.one(&wish(Until::Proof)), Proven);
}

#[test]
fn a_death_wakes_at_once_and_a_lost_event_costs_one_pause() {
    for wakes in [true, false] {
        let world = World::new();
        world.running("run-1");
        let dies: Nap = Box::new(move |host: &FaultHost| {
            set_process(host, Presence::Gone);
            if wakes { vec![0] } else { Vec::new() }
        });
        world.naps([dies]);
        let since = world.now_ms();
        assert_eq!(world.one(&wish(Until::Terminal)), Outcome::Orphaned);
        assert_eq!(world.now_ms() - since, if wakes { 0 } else { 1_000 });
        assert_eq!(world.host.script().watched_at_ms.len(), 1, "asked for before the pause");
    }
}

#[test]
fn what_changes_between_the_first_look_and_the_subscription_is_found_by_the_next_look() {
    let world = World::new();
    world.running("run-1");
    world.host.script().on_watch = Some(Box::new(|host: &FaultHost| {
        put(host, "run-1", "status.json", &records::complete("run-1", host.now_ms()));
        Vec::new()
    }));
    let since = world.now_ms();
    assert_eq!(world.one(&wish(Until::Terminal)), Outcome::Ended);
    assert_eq!(world.now_ms(), since, "it did not sleep over it");
}

#[test]
fn what_is_over_takes_nothing_that_could_wake() {
    let world = World::new();
    world.put("run-1", "status.json", &records::complete("run-1", world.now_ms()));
    assert_eq!(world.one(&wish(Until::Terminal)), Outcome::Ended);
    assert!(world.host.script().watched_at_ms.is_empty());
}

#[test]
fn a_busy_run_keeps_no_other_from_being_looked_at() {
    let world = World::new();
    world.running("run-1");
    world.running("run-2");
    let mut naps: Vec<Nap> = Vec::new();
    for n in 0..40 {
        naps.push(Box::new(move |host: &FaultHost| {
            // The other run ends without a word; of this one there is always some.
            put(host, "run-2", "status.json", &records::complete("run-2", host.now_ms()));
            put(host, "run-1", "status.json", &records::running("run-1", PID, host.now_ms() - n));
            host.set_now_ms(host.now_ms() + 100);
            vec![0]
        }));
    }
    world.naps(naps);
    let since = world.now_ms();
    let waited =
        world.wait(&["run-1", "run-2"], &Wish { timeout_ms: Some(3_500), ..wish(Until::Terminal) });
    let ends: Vec<_> = waited.iter().map(|end| (end.number, end.outcome, end.waited_ms)).collect();
    assert_eq!(ends[0].0, 1);
    assert_eq!((ends[0].1, ends[1].1), (Outcome::Ended, Outcome::Timeout));
    assert!(ends[0].2 <= 1_100, "it was looked at each second: {ends:?}");
    assert!(world.now_ms() - since >= 3_500);
}

#[test]
fn the_time_is_kept_and_the_last_look_comes_at_its_end() {
    let world = World::new();
    world.running("run-1");
    let since = world.now_ms();
    let within = Wish { timeout_ms: Some(2_500), ..wish(Until::Terminal) };
    assert_eq!(world.one(&within), Outcome::Timeout);
    assert_eq!(world.now_ms() - since, 2_500);
    let ends = |host: &FaultHost| {
        put(host, "run-1", "status.json", &records::complete("run-1", host.now_ms()));
        Vec::new()
    };
    world.naps([
        Box::new(|_: &FaultHost| Vec::new()) as Nap,
        Box::new(|_: &FaultHost| Vec::new()),
        Box::new(ends),
    ]);
    assert_eq!(world.one(&within), Outcome::Ended, "it came in the last half second");
}

#[test]
fn a_proof_is_waited_for_as_long_as_its_observer_lives() {
    let world = World::new();
    let gone = || ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
    world.put(
        "run-1",
        "status.json",
        &with(records::running("run-1", PID, world.now_ms()), "pid", 5),
    );
    world.host.set_process(5, gone());
    let observer = json!({
        "version": 1, "runId": "run-1", "runnerProcessInstanceId": records::INSTANCE,
        "pid": PID, "hostname": "host-a", "since": world.now_ms(),
    });
    world.put("run-1", ".runstore-observer.json", &observer);
    assert_eq!(world.one(&at_once(Until::Terminal)), Outcome::Orphaned, "nobody asked for a proof");
    assert_eq!(world.one(&at_once(Until::Proof)), Outcome::Timeout, "it may still come");
    world.process(Presence::Gone);
    assert_eq!(world.one(&at_once(Until::Proof)), Outcome::Orphaned, "nobody is left to bring it");
}
