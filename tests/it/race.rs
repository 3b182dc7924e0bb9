//! A run that ends, or a status that is replaced, while it is looked at.
//!
//! Theory of operation. The library is given a host that is the real one with a hook in front of every
//! call and behind every read. A test counts the calls of one look and then repeats the look once for
//! each call (or pair of calls), letting the run end exactly there. Nothing depends on timing: every
//! order that the reader can meet is made. The process is scripted, because a real one cannot be
//! ended between two chosen system calls.
//!
//! The last test races for real: a thread replaces a status as fast as it can while it is read.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::evidence::Times;
use runstore::protocol::process::{Presence, ProcessSeen, SystemFacts};
use runstore::store::host::{DirEntry, FileRead, Part, ReadError, Stat};
use runstore::store::{Depth, Host, Opened, RealHost, Snapshot, Store as Opening};
use serde_json::{Value, json};
use testkit::Store;
use testkit::process::now_ms;
use testkit::records::{self, with};

/// The pid of the scripted process; no real one is ever asked for.
const PID: u32 = 4242;

/// Where the hook is called.
#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    /// Before a call that looks at anything.
    Before,
    /// After a file was read.
    Read(OsString),
}

type Hook<'t> = Box<dyn FnMut(&At) + Send + 't>;

/// The real host with a hook, and one process that lives until it is told otherwise.
struct Scripted<'t> {
    real: RealHost,
    hook: Mutex<Hook<'t>>,
    alive: &'t AtomicBool,
}

impl<'t> Scripted<'t> {
    fn new(alive: &'t AtomicBool, hook: impl FnMut(&At) + Send + 't) -> Self {
        Self { real: RealHost::new(), hook: Mutex::new(Box::new(hook)), alive }
    }

    fn at(&self, at: &At) {
        (self.hook.lock().expect("a hook does not panic"))(at);
    }
}

impl Host for Scripted<'_> {
    type Dir = <RealHost as Host>::Dir;

    fn open_dir(&self, path: &Path) -> io::Result<Self::Dir> {
        self.at(&At::Before);
        self.real.open_dir(path)
    }

    fn open_dir_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Self::Dir> {
        self.at(&At::Before);
        self.real.open_dir_at(dir, name)
    }

    fn stat_dir(&self, dir: &Self::Dir) -> io::Result<Stat> {
        self.at(&At::Before);
        self.real.stat_dir(dir)
    }

    fn stat_at(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Stat> {
        self.at(&At::Before);
        self.real.stat_at(dir, name)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.at(&At::Before);
        self.real.stat(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.at(&At::Before);
        self.real.real_path(path)
    }

    fn read_at(&self, dir: &Self::Dir, name: &OsStr, part: Part) -> Result<FileRead, ReadError> {
        self.at(&At::Before);
        let read = self.real.read_at(dir, name, part);
        self.at(&At::Read(name.to_owned()));
        read
    }

    fn list(
        &self,
        dir: &Self::Dir,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.at(&At::Before);
        self.real.list(dir, each)
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.real.absolute(path)
    }

    fn now_ms(&self) -> i64 {
        self.real.now_ms()
    }

    fn system(&self) -> &SystemFacts {
        self.real.system()
    }

    fn process(&self, pid: i64) -> ProcessSeen {
        self.at(&At::Before);
        let mut seen = ProcessSeen::default();
        let alive = pid == i64::from(PID) && self.alive.load(Ordering::SeqCst);
        seen.presence = if alive { Presence::Present } else { Presence::Gone };
        seen.start_ms = self.system().boot_time_ms;
        seen
    }

    fn env(&self, name: &str) -> Option<OsString> {
        self.real.env(name)
    }

    fn temp_dir(&self) -> PathBuf {
        self.real.temp_dir()
    }
}

fn look<H: Host>(host: &H, path: &Path, depth: Depth) -> (Snapshot, RunReport) {
    look_in(Way::Alone, host, path, depth)
}

/// How a run comes to be looked at.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By itself.
    Alone,
    /// With what was read ahead, as in a walk over many runs.
    Ahead,
}

fn look_in<H: Host>(way: Way, host: &H, path: &Path, depth: Depth) -> (Snapshot, RunReport) {
    let opened = Opening::open(host, path, now_ms(), Times::default()).expect("the run is there");
    let Opened::Run(store, root, name) = opened else { panic!("a run directory was named") };
    let mut inspection = Inspection::new(&store, depth);
    match way {
        Way::Alone => inspection.one(root, &name, None).expect("the run is there"),
        Way::Ahead => {
            let runs = &store.runs_roots[root];
            let mut ahead = store.read_ahead(runs, &name, None);
            let found = store.snapshot_with(runs, (&name, None), depth, ahead.as_mut());
            inspection.judge(found.expect("the run is there"))
        }
    }
}

/// A store with one active run of the scripted process.
fn active() -> (Store, PathBuf) {
    let store = Store::in_memory();
    let run = store.run("r1");
    run.status(&records::running("r1", PID, now_ms())).event(&json!({
        "type": "subagent.run.started", "ts": now_ms(), "runId": "r1", "pid": PID,
    }));
    store.active_marker("r1");
    (store, run.path().to_owned())
}

/// Replaces a file as writers do.
fn replace(path: &Path, value: &Value) {
    let temp = path.with_extension("tmp");
    fs::write(&temp, value.to_string()).expect("the tree is ours");
    fs::rename(&temp, path).expect("the tree is ours");
}

/// The end of a run in the order in which its writers leave it: event, candidate, result, status, then
/// the process exits, and its parent writes the proof and the overlay.
struct Ending {
    root: PathBuf,
    at_ms: i64,
    done: usize,
}

impl Ending {
    const STEPS: usize = 6;

    fn step(&mut self, alive: &AtomicBool) {
        let run = self.root.join("async-subagent-runs/r1");
        let at = self.at_ms;
        let without_proof = records::without(records::complete("r1", at), "processTerminal");
        match self.done {
            0 => {
                let log = run.join("events.jsonl");
                let mut text = fs::read(&log).expect("the log is there");
                let event = json!({"type": "subagent.run.completed", "ts": at, "runId": "r1",
                    "status": "complete"});
                text.extend_from_slice(format!("{event}\n").as_bytes());
                fs::write(log, text).expect("the tree is ours");
                replace(&run.join("process-terminal-candidate.json"), &records::candidate("r1"));
            }
            1 => {
                let results = self.root.join("async-subagent-results");
                fs::create_dir_all(&results).expect("the tree is ours");
                replace(&results.join("r1.json"), &records::result("r1", at));
            }
            2 => replace(&run.join("status.json"), &with(without_proof, "pid", PID)),
            3 => alive.store(false, Ordering::SeqCst),
            4 => replace(&run.join("process-terminal.json"), &records::proof("r1", at)),
            5 => replace(&run.join("status.json"), &records::complete("r1", at)),
            _ => return,
        }
        self.done += 1;
    }
}

/// One look at an active run, whose end is carried out step by step: step `i` before call `calls[i]`.
fn look_while_it_ends(way: Way, calls: [usize; Ending::STEPS], depth: Depth) -> (String, usize) {
    let (store, path) = active();
    let alive = AtomicBool::new(true);
    let count = AtomicUsize::new(0);
    let mut ending = Ending { root: store.root().to_owned(), at_ms: now_ms(), done: 0 };
    let host = Scripted::new(&alive, |at| {
        if *at == At::Before {
            let now = count.fetch_add(1, Ordering::SeqCst);
            while calls.get(ending.done).is_some_and(|call| *call <= now) {
                ending.step(&alive);
            }
        }
    });
    let (_, report) = look_in(way, &host, &path, depth);
    drop(host);
    (format!("{} ({})", report.verdict, report.because), count.into_inner())
}

fn assert_no_orphan(calls: [usize; Ending::STEPS], depth: Depth) {
    for way in [Way::Alone, Way::Ahead] {
        assert_no_orphan_of(way, calls, depth);
    }
}

fn assert_no_orphan_of(way: Way, calls: [usize; Ending::STEPS], depth: Depth) {
    let (verdict, _) = look_while_it_ends(way, calls, depth);
    let word = verdict.split(' ').next().unwrap_or_default();
    // Its end stood on the disk before the process died, so none of these may be said of it.
    assert!(
        !matches!(word, "orphaned" | "conflict" | "corrupt" | "start-stuck" | "start-failed"),
        "a run that wrote its end before dying, with its steps before calls {calls:?} ({way:?}): {verdict}"
    );
}

/// Spec: RS-READ-14.
#[test]
fn a_run_that_ends_while_it_is_looked_at_is_never_called_orphaned() {
    let (verdict, calls) = look_while_it_ends(Way::Alone, [usize::MAX; Ending::STEPS], Depth::Full);
    assert!(verdict.starts_with("running "), "an undisturbed look finds it running: {verdict}");
    assert!(calls > 10, "a look takes several calls: {calls}");
    // A look that must start over takes more calls than an undisturbed one.
    let last = 3 * calls;
    for depth in [Depth::Full, Depth::Row] {
        for first in 0..last {
            assert_no_orphan([first; Ending::STEPS], depth);
            // The end is written, and the process dies at any later call.
            for later in (first..last).step_by(11) {
                assert_no_orphan([first, first, first, later, later, later], depth);
            }
            let spread = std::array::from_fn(|i| first + i);
            assert_no_orphan(spread, depth);
        }
    }
}

#[test]
fn a_run_that_died_without_an_end_is_orphaned_whenever_it_died() {
    let (_, calls) = look_while_it_ends(Way::Alone, [usize::MAX; Ending::STEPS], Depth::Full);
    for death in 0..calls {
        let (_store, path) = active();
        let alive = AtomicBool::new(true);
        let count = AtomicUsize::new(0);
        let host = Scripted::new(&alive, |_| {
            if count.fetch_add(1, Ordering::SeqCst) == death {
                alive.store(false, Ordering::SeqCst);
            }
        });
        let (_, report) = look(&host, &path, Depth::Full);
        let word = report.verdict;
        assert!(matches!(word, "running" | "orphaned"), "died before call {death}: {word}");
        let (_, report) = look(&host, &path, Depth::Full);
        assert_eq!(report.verdict, "orphaned", "the next look finds it gone");
    }
}

/// A look during which the status is replaced after each of its first `times` readings.
fn look_while_it_is_replaced(times: usize) -> (Snapshot, RunReport, usize) {
    let (_store, path) = active();
    let alive = AtomicBool::new(true);
    let readings = AtomicUsize::new(0);
    let status = path.join("status.json");
    let host = Scripted::new(&alive, |at| {
        if *at == At::Read("status.json".into()) {
            let n = readings.fetch_add(1, Ordering::SeqCst);
            if n < times {
                let next = with(records::running("r1", PID, now_ms()), "error", format!("no. {n}"));
                replace(&status, &next);
            }
        }
    });
    let opened = Opening::open(&host, &path, now_ms(), Times::default()).expect("it is there");
    let Opened::Run(store, root, name) = opened else { panic!("a run directory was named") };
    let runs = &store.runs_roots[root];
    let snapshot = store.snapshot(runs, &name, None, Depth::Full).expect("it is there");
    let (snapshot, report) = Inspection::new(&store, Depth::Full).judge(snapshot);
    (snapshot, report, readings.load(Ordering::SeqCst))
}

#[test]
fn a_status_that_was_replaced_while_it_was_read_is_read_again() {
    for times in 0..=4 {
        let (snapshot, report, readings) = look_while_it_is_replaced(times);
        let seen = snapshot.evidence.status.value().and_then(|s| s.error.clone());
        let last = times.checked_sub(1).map(|n| format!("no. {n}"));
        assert_eq!(seen, last, "after {times} replacements the last one counts");
        assert!(!snapshot.evidence.unstable && readings > times, "the picture is of one moment");
        assert_eq!(report.verdict, "running", "a replacement is no damage");
    }
}

#[test]
fn a_status_that_never_stands_still_is_reported_and_said_to_change() {
    let (snapshot, report, readings) = look_while_it_is_replaced(usize::MAX);
    assert!(readings < 20, "the readings are bounded: {readings}");
    assert!(snapshot.evidence.unstable, "the picture is of several moments, and says so");
    assert!(report.findings.iter().any(|f| f.id == "unstable"), "{:?}", report.findings);
    assert_eq!(report.verdict, "running", "it is reported all the same");
}

#[test]
fn a_status_that_vanishes_and_a_run_that_vanishes_get_an_answer() {
    let (_store, path) = active();
    let alive = AtomicBool::new(true);
    let status = path.join("status.json");
    let host = Scripted::new(&alive, |at| {
        if *at == At::Read("status.json".into()) {
            // Gone already when the status is looked for again.
            let _ = fs::remove_file(&status);
        }
    });
    let (_, report) = look(&host, &path, Depth::Full);
    assert_ne!(report.verdict, "orphaned", "a status that is gone accuses nobody");
    let (_, calls) = look_while_it_ends(Way::Alone, [usize::MAX; Ending::STEPS], Depth::Full);
    for call in 0..2 * calls {
        let (_store, path) = active();
        let count = AtomicUsize::new(0);
        let run = path.clone();
        let host = Scripted::new(&alive, |_| {
            if count.fetch_add(1, Ordering::SeqCst) == call {
                let _ = fs::remove_dir_all(&run);
            }
        });
        let Ok(opened) = Opening::open(&host, &path, now_ms(), Times::default()) else { continue };
        // A directory that is removed while it is opened may be taken for any kind.
        let Opened::Run(store, root, name) = opened else { continue };
        let found = Inspection::new(&store, Depth::Full).one(root, &name, None);
        let word = found.map(|(_, report)| report.verdict);
        assert_ne!(word, Some("orphaned"), "removed before call {call}");
    }
}

#[test]
fn a_file_replaced_ten_thousand_times_while_it_is_read_gives_only_whole_states() {
    let (_store, path) = active();
    let status = path.join("status.json");
    let state = |n: i64| {
        let at = 1_790_000_000_000 + n;
        // Lengths differ a lot, so that a mixture of two states could not be overlooked.
        let filler = "x".repeat(usize::try_from(n % 7).expect("small") * 4000);
        let mut status = with(records::running("r1", PID, at), "filler", filler);
        status["error"] = json!(at.to_string());
        status
    };
    replace(&status, &state(0));
    let done = AtomicBool::new(false);
    let host = RealHost::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=10_000 {
                replace(&status, &state(n));
            }
            done.store(true, Ordering::SeqCst);
        });
        let opened = Opening::open(&host, &path, now_ms(), Times::default()).expect("it is there");
        let Opened::Run(store, root, name) = opened else { panic!("a run directory was named") };
        let mut looks = 0_u32;
        let mut newest = 0;
        // One look is made after the last state was written.
        let mut is_over = false;
        while !is_over || looks < 100 {
            is_over = done.load(Ordering::SeqCst);
            let runs = &store.runs_roots[root];
            let found = store.snapshot(runs, &name, None, Depth::Row).expect("it is there");
            let fact = &found.evidence.status;
            let seen = fact.value().unwrap_or_else(|| panic!("not a whole status: {fact:?}"));
            assert!(seen.damage.is_empty(), "a whole state has no damage: {:?}", seen.damage);
            let at = seen.started_at_ms.expect("each state has its instant");
            assert_eq!(seen.last_update_ms, Some(at), "all members are of one state");
            assert_eq!(
                seen.error.as_deref(),
                Some(&*at.to_string()),
                "all members are of one state"
            );
            assert!(at >= newest, "a later look never sees an earlier state");
            newest = at;
            looks += 1;
        }
        assert_eq!(newest, 1_790_000_010_000, "the last state is seen in the end");
    });
}
