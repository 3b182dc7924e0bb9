//! Stores that are recovered again and again: `sweep`.
//!
//! Theory of operation. What a memory may pass over is played on a disk in memory, which counts every file that is
//! read: a second sweep of a store in which nothing changed reads none, and each kind of change is noticed at the
//! next one. The verb itself is asked with the real program. RS-REC-40 to RS-REC-46.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Stdio};

use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::recover::{Applied, Memory, Wanted, sweep};
use runstore::store::Host as _;
use serde_json::{Value, json};
use testkit::Store;
use testkit::fault::FaultHost;
use testkit::process::{now_ms, wait_for_the_next_millisecond};
use testkit::program;
use testkit::records::{self, GONE, SESSION, with};

use crate::ask::{self, Answer, utf8};
use crate::place::end_of;
use crate::recover::locked;

const RUNS: &str = "/async-subagent-runs";
const RESULTS: &str = "/async-subagent-results";
const HOUR_MS: i64 = 3_600_000;

fn put(host: &FaultHost, path: &str, value: &Value) {
    host.put(path, value.to_string());
}

/// A run that ended now, with a proof.
fn ended(host: &FaultHost, run: &str) {
    let at_ms = host.now_ms();
    host.make_dir(&format!("{RUNS}/{run}"));
    put(host, &format!("{RUNS}/{run}/status.json"), &records::complete(run, at_ms));
    put(host, &format!("{RUNS}/{run}/process-terminal.json"), &records::proof(run, at_ms));
}

/// A run that works, under a process that is there.
fn working(host: &FaultHost, run: &str, pid: u32) {
    host.set_process(pid.into(), present());
    host.make_dir(&format!("{RUNS}/{run}"));
    let status =
        with(records::running(run, pid, host.now_ms()), "hostname", host.system().host.clone());
    let identity = json!({ "startIdentity": "linux:9", "bootId": "boot-1" });
    put(host, &format!("{RUNS}/{run}/status.json"), &with(status, "runnerIdentity", identity));
    put(host, &format!("{RUNS}/.active-runs/{run}"), &json!({}));
}

fn present() -> ProcessSeen {
    let start_identity = Some("linux:9".to_owned());
    ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() }
}

/// Five runs that ended an hour ago, one of them with an entry in the terminal index, one with a result that nobody
/// has fetched; and one that works since then.
fn settled() -> FaultHost {
    let host = FaultHost::new();
    for path in [RUNS, RESULTS] {
        host.make_dir(path);
    }
    host.make_dir(&format!("{RUNS}/.active-runs"));
    for number in 0..5 {
        ended(&host, &format!("run-{number}"));
    }
    let stamp = host.now_ms();
    let entry =
        json!({"runId": "run-1", "sessionId": SESSION, "state": "complete", "endedAt": stamp});
    let path = format!("{RUNS}/.terminal-runs/{SESSION}/{stamp:013}-run-1.json");
    host.put_below(&path, entry.to_string());
    put(
        &host,
        &format!("{RESULTS}/run-2.json"),
        &with(records::result("run-2", stamp), "runId", "run-2"),
    );
    working(&host, "works", 77);
    host.set_now_ms(host.now_ms() + HOUR_MS);
    host
}

fn swept(host: &FaultHost, memory: &mut Memory) -> Applied {
    host.begin();
    let on = &mut |_: &_| ControlFlow::Continue(());
    let applied = sweep(host, Path::new("/"), &Wanted::default(), memory, on);
    applied.expect("nothing fails here")
}

/// A store that was swept until nothing was left to be done or to be read.
fn known() -> (FaultHost, Memory) {
    let (host, mut memory) = (settled(), Memory::default());
    swept(&host, &mut memory);
    host.set_now_ms(host.now_ms() + HOUR_MS);
    let again = swept(&host, &mut memory);
    assert!(again.done.is_empty(), "{again:?}");
    host.set_now_ms(host.now_ms() + HOUR_MS);
    (host, memory)
}

#[test]
fn a_store_in_which_nothing_changed_is_not_read_again() {
    let (host, mut memory) = known();
    for _ in 0..3 {
        let again = swept(&host, &mut memory);
        assert_eq!((again.looked_at, again.read), (6, 0), "{again:?}");
        assert_eq!(host.reads(), 0, "no file was read");
        assert!(again.done.is_empty() && again.refused.is_empty(), "{again:?}");
        assert_eq!(memory.len(), 6);
        host.set_now_ms(host.now_ms() + HOUR_MS);
    }
    // Without what was remembered all of it is read.
    assert_eq!(swept(&host, &mut Memory::default()).read, 6);
}

/// One change, and the run that has to be read then.
type Change = (&'static str, &'static str, fn(&FaultHost));

#[test]
fn every_change_is_noticed_by_the_next_sweep() {
    let changes: [Change; 13] = [
        ("a status is replaced", "run-0", |host| {
            let path = format!("{RUNS}/run-0/status.json");
            let text = host.bytes(&path).expect("there");
            host.put(&path, text);
        }),
        ("a file appears in the directory", "run-0", |host| {
            put(host, &format!("{RUNS}/run-0/.status.json.1.1.x.tmp"), &json!({}));
        }),
        ("a status is written in place", "run-0", |host| {
            use runstore::store::WriteHost as _;
            let dir = host.dir(&format!("{RUNS}/run-0"));
            let file = host.open_append(&dir, "status.json".as_ref(), 0o600, false).expect("opens");
            host.write(&file, b" ").expect("is written");
        }),
        ("the run is replaced by another directory", "run-0", |host| {
            use runstore::store::WriteHost as _;
            let runs = host.dir(RUNS);
            host.rename(&runs, "run-0".as_ref(), &runs, "run-9".as_ref()).expect("moves");
            ended(host, "run-0");
        }),
        ("a result appears", "run-0", |host| {
            let result = with(records::result("run-0", host.now_ms()), "state", "failed");
            put(host, &format!("{RESULTS}/run-0.json"), &with(result, "success", false));
        }),
        ("a pending result appears", "run-0", |host| {
            let path = format!("{RESULTS}/result-pending/{SESSION}/run-0.json");
            host.put_below(&path, records::result("run-0", host.now_ms()).to_string());
        }),
        ("a replay appears", "run-0", |host| {
            let path = format!("{RESULTS}/completion-replay/run-0.json");
            host.put_below(&path, json!({"version": 1}).to_string());
        }),
        ("a result is fetched", "run-2", |host| {
            use runstore::store::WriteHost as _;
            host.unlink(&host.dir(RESULTS), "run-2.json".as_ref()).expect("goes");
        }),
        ("a result is put under a name that nobody derives", "run-2", |host| {
            let path = format!("{RESULTS}/result-pending/odd/odd.json");
            let result = with(records::result("run-2", host.now_ms()), "runId", "run-2");
            host.put_below(&path, result.to_string());
        }),
        ("a slot appears", "run-0", |host| {
            let path = "/session-active-async-capacity/key-1/slot-0/owner.json";
            host.put_below(path, records::slot("run-0", host.now_ms()).to_string());
        }),
        ("a lease appears", "run-0", |host| {
            let lease = records::lease("run-0", GONE, "elsewhere", host.now_ms());
            host.put_below("/session-leases/key-1/owner.json", lease.to_string());
        }),
        ("a marker appears", "run-0", |host| {
            put(host, &format!("{RUNS}/.active-runs/run-0"), &json!({}));
        }),
        ("the entry of the terminal index goes", "run-1", |host| {
            use runstore::store::WriteHost as _;
            let dir = format!("{RUNS}/.terminal-runs/{SESSION}");
            let stamp = host.now_ms() - 3 * HOUR_MS;
            let name = format!("{stamp:013}-run-1.json");
            host.unlink(&host.dir(&dir), name.as_ref()).expect("goes");
        }),
    ];
    for (what, run, change) in changes {
        let (host, mut memory) = known();
        change(&host);
        let again = swept(&host, &mut memory);
        let status = format!("{RUNS}/{run}/status.json");
        assert!(host.was_read(&status), "{what}: {run} has to be read again: {again:?}");
        assert!((1..=2).contains(&again.read), "{what}: and few others: {again:?}");
        // And what is read is what a sweep without a memory sees.
        let refused: Vec<_> = again.refused.iter().map(|one| &one.run_id).collect();
        let fresh = swept(&host, &mut Memory::default());
        let anew: Vec<_> = fresh.refused.iter().map(|one| &one.run_id).collect();
        assert_eq!(refused, anew, "{what}");
        assert!(fresh.done.is_empty(), "{what}: nothing was overlooked: {fresh:?}");
    }
}

#[test]
fn a_process_that_ends_is_noticed_although_no_file_changes() {
    let (host, mut memory) = known();
    assert_eq!(swept(&host, &mut memory).read, 0);
    host.set_process(77, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
    let again = swept(&host, &mut memory);
    assert_eq!(again.read, 1, "{again:?}");
    let done: Vec<_> = again.done.iter().map(|d| (&*d.run_id, &*d.action)).collect();
    assert_eq!(done, [("works", "close-as-failed")], "{again:?}");
}

#[test]
fn a_time_that_is_over_is_noticed_although_no_file_changes() {
    let (host, mut memory) = known();
    host.make_dir(&format!("{RUNS}/late"));
    let orphan = records::running("late", GONE, host.now_ms());
    put(
        &host,
        &format!("{RUNS}/late/status.json"),
        &with(orphan, "hostname", host.system().host.clone()),
    );
    let early = swept(&host, &mut memory);
    assert!(early.done.is_empty() && early.refused.len() == 1, "inside the grace: {early:?}");
    host.set_now_ms(host.now_ms() + 4_000);
    assert_eq!(swept(&host, &mut memory).read, 1, "only that one is looked at");
    host.set_now_ms(host.now_ms() + 2_000);
    let late = swept(&host, &mut memory);
    assert_eq!(late.done.len(), 1, "{late:?}");
    // What was closed is young, and is read until its stamps vouch for it. A result waits now that did not, so the
    // run whose own result waits is looked at as well.
    assert_eq!(swept(&host, &mut memory).read, 2);
}

#[test]
fn another_wish_or_another_clock_of_judgement_forgets_everything() {
    let (host, mut memory) = known();
    let mut wanted = Wanted::default();
    wanted.policy.close_queued = true;
    let on = &mut |_: &_| ControlFlow::Continue(());
    let again = sweep(&host, Path::new("/"), &wanted, &mut memory, on).expect("nothing fails here");
    assert_eq!(again.read, 6, "{again:?}");
    wanted.times.settling_ms += 1;
    let again = sweep(&host, Path::new("/"), &wanted, &mut memory, on).expect("nothing fails here");
    assert_eq!(again.read, 6, "{again:?}");
}

#[test]
fn files_without_numbers_are_read_each_time() {
    let (host, mut memory) = known();
    host.without_numbers();
    swept(&host, &mut memory);
    assert_eq!(swept(&host, &mut memory).read, 6, "a replaced file could look the same");
}

/// A run whose process was recorded in an earlier boot, and is gone.
fn lost_with_the_system(store: &Store, id: &str) {
    let status = records::running(id, GONE, now_ms() - 60_000);
    let identity = json!({ "startIdentity": "linux:1", "bootId": "an-earlier-boot" });
    store.run(id).status(&with(status, "runnerIdentity", identity));
    store.active_marker(id);
}

/// A policy without a grace, so that a store that was just made can be swept.
fn at_once(store: &Store) -> String {
    let path = store.beside("policies").join("policy.json");
    fs::write(&path, r#"{"version":1,"graceMs":0}"#).expect("is written");
    utf8(&path).to_owned()
}

/// PC-116, PC-119, PC-130: a restart is one event, and a record that is bad hides none of the others.
#[test]
fn twenty_runs_that_ended_with_the_system_are_one_event() {
    let store = Store::new();
    for number in 0..20 {
        lost_with_the_system(&store, &format!("run-{number:02}"));
    }
    store.run("bad").status(&json!("no object"));
    let policy = at_once(&store);
    wait_for_the_next_millisecond();
    let args = ["sweep", utf8(store.root()), "--policy", &policy];
    let outcome = ask::run(&args);
    ask::assert_harmless("sweep", &outcome.stdout);
    let text = outcome.text();
    assert!(text.contains("20 runs ended with a restart of the system: run-"), "{text}");
    assert_eq!(text.matches("close-as-failed").count(), 20, "{text}");
    assert_eq!(outcome.code, 8, "{text}");
    let status = fs::read_to_string(store.root().join("async-subagent-runs/run-00/status.json"));
    let status = status.expect("there");
    assert!(status.contains("the system was restarted since"), "{status}");
    let again = Answer::of(&ask::run(&[&args[..], &["--format", "json"]].concat()));
    assert_eq!(again.json["schema"], "runstore.sweep/1");
    assert_eq!(again.json["roots"][0]["summary"]["done"], 0, "{again:?}");
}

#[test]
fn runs_that_wrote_last_within_a_second_are_one_event() {
    let store = Store::new();
    let at_ms = now_ms() - 60_000;
    for number in 0..5_u32 {
        let id = format!("run-{number}");
        store.run(&id).status(&records::running(&id, GONE, at_ms + i64::from(number) * 200));
    }
    let policy = at_once(&store);
    wait_for_the_next_millisecond();
    let args = ["sweep", utf8(store.root()), "--policy", &policy, "--format", "json"];
    let answer = Answer::of(&ask::run(&args));
    let events = &answer.json["roots"][0]["events"];
    assert_eq!(events.as_array().map(Vec::len), Some(1), "{answer:?}");
    assert_eq!(events[0]["cause"], "same-moment");
    assert_eq!(events[0]["runs"].as_array().map(Vec::len), Some(5), "{events}");
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn one_bad_root_hides_no_other_and_a_contended_one_is_passed_over() {
    let (good, held) = (Store::new(), Store::new());
    lost_with_the_system(&good, "run-1");
    lost_with_the_system(&held, "run-2");
    let own = held.folder(".runstore");
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("ours");
    let _lock = locked(&held.file(".runstore/recovery.lock", ""));
    let (missing, policy) = (good.beside("empty").join("nothing"), at_once(&good));
    wait_for_the_next_millisecond();
    let paths = [utf8(&missing), utf8(held.root()), utf8(good.root()), utf8(good.root())];
    let args = [&["sweep", "--policy", &policy], &paths[..]].concat();
    let answer = Answer::of(&ask::run(&[&args[..], &["--format", "json"]].concat()));
    let roots = answer.json["roots"].as_array().expect("a list");
    let outcomes: Vec<_> = roots.iter().map(|root| root["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("failed"), Some("contended"), Some("swept")], "{answer:?}");
    assert_eq!(roots[2]["done"][0]["runId"], "run-1");
    assert!(
        roots[1]["why"].as_str().is_some_and(|why| why.contains("recovery.lock")),
        "{answer:?}"
    );
    assert_eq!(answer.code, 4, "of what went wrong the most serious: {answer:?}");
    let outcome = ask::run(&["sweep", utf8(held.root())]);
    assert_eq!(outcome.code, 7, "{}", outcome.text());
    assert!(
        outcome.text().contains("passed over: another recovery is at work"),
        "{}",
        outcome.text()
    );
}

/// A program that sweeps again and again.
fn spawn(store: &Store, more: &[&str]) -> Child {
    let policy = at_once(store);
    let args = ["sweep", utf8(store.root()), "--policy", &policy, "--every", "20ms"];
    let args = [&args[..], more].concat();
    let mut command = program::command(&ask::binary(), &args, Path::new("/"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("the program can be started")
}

fn signal(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a child has a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
}

#[test]
fn a_sweep_in_the_foreground_says_what_happens_and_ends_at_a_signal() {
    let store = Store::new();
    let mut child = spawn(&store, &[]);
    let lines = program::lines(child.stdout.take().expect("piped"));
    lost_with_the_system(&store, "run-1");
    // It is quiet until something happens, so the first line is about that.
    let line = loop {
        let line = lines.recv_timeout(ask::LIMIT);
        let line = line.expect("it says what it did").expect("text");
        if line.contains("1 done") || line.contains("close-as-failed run-1") {
            break line;
        }
    };
    assert!(line.contains("recover undo"), "{line}");
    signal(&child);
    assert!(end_of("a sweep that was asked to", &mut child).success(), "a signal is no failure");
}

#[test]
fn a_sweep_in_the_foreground_ends_when_nobody_reads_it() {
    let store = Store::new();
    for more in [&[][..], &["--format", "jsonl"]] {
        let mut child = spawn(&store, more);
        drop(child.stdout.take());
        assert!(end_of("a sweep that nobody reads", &mut child).success(), "{more:?}");
    }
}

#[test]
fn a_unit_is_printed_and_nothing_is_done() {
    let store = Store::new();
    lost_with_the_system(&store, "run-1");
    let policy = at_once(&store);
    wait_for_the_next_millisecond();
    for (kind, has) in [
        ("systemd", "OnUnitInactiveSec=60s"),
        ("launchd", "<key>StartInterval</key>"),
        ("cron", "* * * * * "),
    ] {
        let args = ["sweep", utf8(store.root()), "--policy", &policy, "--print-unit", kind];
        let outcome = ask::run(&args);
        let text = outcome.text();
        assert_eq!(outcome.code, 0, "{text}");
        assert!(text.contains(has) && text.contains(utf8(store.root())), "{text}");
        assert!(text.contains(utf8(&ask::binary())), "{text}");
    }
    assert_eq!(ask::run(&["sweep", "--print-unit"]).code, 0, "the usual one of this system");
    assert!(!store.root().join(".runstore").exists(), "nothing was done");
}
