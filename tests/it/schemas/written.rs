//! Everything that the library writes against both layers of the schemas.
//!
//! Theory of operation. Operations are performed on disks in memory, and each file that is found there
//! afterwards is held to the schema for its place: the writer's layer, which is closed where the file
//! is wholly ours, and the reader's, which everybody keeps. A file without a schema fails the test, so
//! nothing is written that no schema describes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use runstore::launcher::{Outcome, Place, Poll, Request, SlotWish, prepare};
use runstore::protocol::account::Author;
use runstore::protocol::budget::MANIFEST_FILE;
use runstore::protocol::candidate::{Instance, InstanceKind, ProcessTree};
use runstore::protocol::control::SteerMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::nested::REGISTRY_FILE;
use runstore::protocol::observer_record::ObserverRecord;
use runstore::protocol::process::{Presence, ProcessRecord, ProcessSeen};
use runstore::protocol::proof::ExitGrade;
use runstore::protocol::segment::SegmentInput;
use runstore::protocol::slot::{SlotKind, SlotOwner};
use runstore::protocol::written_control::Asking;
use runstore::protocol::written_launch::{DescriptorText, RevivalText};
use runstore::protocol::written_status::{FirstStatus, StatusPatch, StepGroup};
use runstore::protocol::{Open, RunMode, RunState, layout};
use runstore::runner::startup::{Startup, read_config};
use runstore::runner::steps::{self, Job, Plan, Step};
use runstore::store::ask::{Said, ask};
use runstore::store::atomic::{Durability, Options};
use runstore::store::deferred::{Deferred, Item};
use runstore::store::delivery::mark_delivered;
use runstore::store::directory::create;
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::lease::{self, HeldLease, LeaseRequest, Writer};
use runstore::store::proof::{self, Exit, ExitWitness, RunPlace};
use runstore::store::publish::{ResultNames, publish, snapshot};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StartupFailure, StatusPlace};
use runstore::store::slot::{self, HeldSlot, SlotRequest, Source};
use runstore::store::{candidate, identity, markers, observer_record};
use serde_json::Value;
use testkit::child::{Child, Spawner};
use testkit::fault::{FaultHost, Injected};
use testkit::launch;
use testkit::schema::Schemas;

use super::documents::schema_of;
use super::{here, schemas, worked, writers};

const RUN: &str = "/async-subagent-runs/run-1";
const WRITER: Author<'static> = Author::Runner { instance: "i" };

/// Reads every file of a disk and counts what was judged.
pub(super) struct Judge {
    reader: Schemas,
    writer: Schemas,
    counts: RefCell<BTreeMap<String, usize>>,
    wrong: RefCell<Vec<String>>,
    documents: RefCell<Vec<(String, Value)>>,
}

impl Judge {
    fn new() -> Self {
        let (counts, wrong, documents) = Default::default();
        Self { reader: schemas(), writer: writers(), counts, wrong, documents }
    }

    /// Holds one document to a schema of the writer's layer, or a part of it, and to the reader's.
    fn document(&self, what: &str, schema: &str, part: &str, text: &[u8]) {
        let value: Value = serde_json::from_slice(text).expect("the library writes JSON");
        let mut bad = self.writer.check(schema, part, &value);
        if self.reader.names().any(|name| name == schema) {
            let theirs = self.reader.check(schema, "", &value);
            bad.extend(theirs.into_iter().map(|why| format!("reader's layer: {why}")));
        }
        *self.counts.borrow_mut().entry(format!("{schema}{part}")).or_default() += 1;
        if part.is_empty() {
            self.documents.borrow_mut().push((schema.to_owned(), value.clone()));
        }
        for step in value["steps"].as_array().into_iter().flatten() {
            if step.get("processTerminal").is_some() {
                let text = step["processTerminal"].to_string();
                self.document(what, "process-terminal-step", "", text.as_bytes());
            }
        }
        if !bad.is_empty() {
            self.wrong.borrow_mut().push(format!("{what}: {schema}: {}: {value}", bad.join("; ")));
        }
    }

    /// Holds every file of a disk to the schemas for its place.
    pub(super) fn disk(&self, what: &str, host: &FaultHost) {
        for (path, content) in host.tree() {
            let Some(bytes) = content.filter(|bytes| !bytes.is_empty()) else { continue };
            let at = format!("{what}: {path}");
            let name = path.rsplit('/').next().unwrap_or_default();
            match schema_of(Path::new(&path)) {
                Some("event") => {
                    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
                        self.document(&at, "event", "", line);
                    }
                }
                // A payload is its author's text until it is marked.
                Some("result") if !String::from_utf8_lossy(&bytes).contains("DeliveredAt") => {}
                Some(schema) => self.document(&at, schema, "", &bytes),
                None if name == layout::LAUNCH_NOTE => {
                    self.document(&at, "launch-note", "", &bytes)
                }
                None if name == layout::RECOVERY_DESCRIPTOR => {
                    self.document(&at, "recovery-descriptor", "", &bytes);
                }
                None if [layout::STOP_INBOX_CLOSED, layout::STEER_INBOX_CLOSED].contains(&name) => {
                    self.document(&at, "inbox-closed", "", &bytes);
                }
                None if path.contains("/control/") => {
                    self.document(&at, "control-request", "", &bytes);
                }
                None if path.contains(layout::APPEND_REQUESTS_DIR) => {
                    self.document(&at, "append-request", "", &bytes);
                }
                None if name == layout::FANOUT_BUDGET => {
                    self.document(&at, "fanout-budget", "", &bytes);
                }
                None if name == MANIFEST_FILE => {
                    self.document(&at, "fanout-manifest", "", &bytes);
                }
                None if name == REGISTRY_FILE => {
                    self.document(&at, "nested-registry", "", &bytes);
                }
                None if name == layout::OBSERVER => {
                    self.document(&at, "observer-record", "", &bytes);
                }
                None if name == layout::SLOT_CLAIM => {
                    self.document(&at, "capacity-claim", "", &bytes);
                }
                None if name == layout::RESERVE || name == "s.jsonl" || name == "mission.json" => {}
                None => self.wrong.borrow_mut().push(format!("{at}: no schema describes it")),
            }
        }
    }
}

pub(super) fn never() -> RetryPolicy {
    RetryPolicy::never()
}

pub(super) fn run_id() -> RunId {
    RunId::parse("run-1").expect("an id")
}

/// A disk with a runs root and a session file; the own process shows itself.
pub(super) fn disk(identity: bool) -> FaultHost {
    let host = FaultHost::new();
    host.put("/s.jsonl", "");
    create(&host, &0, layout::RUNS_DIR, &never()).expect("room");
    let seen = ProcessSeen {
        presence: Presence::Present,
        start_identity: identity.then(|| "linux:9".to_owned()),
        start_ms: None,
        pidfd_inode: identity.then_some(u64::MAX),
    };
    host.set_process(host.system().own_pid, seen);
    host
}

pub(super) fn runs(host: &FaultHost) -> usize {
    host.dir("/async-subagent-runs")
}

pub(super) fn run_dir(host: &FaultHost) -> usize {
    host.dir(RUN)
}

/// Puts a file into the run directory.
fn put(host: &FaultHost, name: &str, text: &str) {
    host.put(&format!("{RUN}/{name}"), text);
}

fn text(host: &FaultHost, path: &str) -> Vec<u8> {
    host.bytes(&format!("/{path}")).unwrap_or_else(|| panic!("{path} is there"))
}

const GROUP: [StepGroup; 1] = [StepGroup { start: 0, count: 2, step_index: 0 }];

/// A new run, with every member of its first status or with as few as can be.
pub(super) fn new_run(host: &FaultHost, full: bool) {
    let run = run::create(host, &runs(host), &run_id(), &never()).expect("room");
    let full_record = identity::own(host);
    let bare = ProcessRecord { pid: 7, ..ProcessRecord::default() };
    let first = FirstStatus {
        run_id: "run-1",
        session_id: full.then_some("S"),
        completion_owner_id: full.then_some("o"),
        tool_call_id: full.then_some("call"),
        mode: if full { RunMode::Parallel } else { RunMode::Single },
        agents: if full { &["a", "b"] } else { &["a"] },
        groups: if full { &GROUP } else { &[] },
        started_at_ms: host.now_ms(),
        process: if full { &full_record } else { &bare },
        instance_id: "i",
    };
    run::write_first(host, &run, &first).expect("room");
}

fn change(host: &FaultHost, author: Author<'_>, patch: &StatusPatch) {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    run::update(&place, author, patch).expect("its own");
}

fn fail_launch(host: &FaultHost, full: bool) {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    let failure = StartupFailure {
        instance_id: "i",
        session_id: full.then_some("S"),
        completion_owner_id: full.then_some("o"),
        message: "why",
    };
    run::record_startup_failure(&place, Author::Launcher, &failure).expect("room");
}

fn statuses(judge: &Judge) {
    const STATUS: &str = "async-subagent-runs/run-1/status.json";
    for full in [true, false] {
        let host = disk(full);
        new_run(&host, full);
        judge.disk("a new run", &host);
        judge.document("a first status", "status", "/$defs/first", &text(&host, STATUS));
        let now = host.now_ms();
        change(&host, WRITER, &StatusPatch::at(now).member("currentStep", "1".to_owned()));
        judge.disk("a step", &host);
        change(
            &host,
            WRITER,
            &StatusPatch::at(now).process(ProcessRecord { pid: 8, ..ProcessRecord::default() }),
        );
        judge.disk("another process", &host);
        change(&host, WRITER, &StatusPatch::at(now).process(identity::own(&host)));
        judge.disk("the own process", &host);
        let end = StatusPatch::at(now).state(RunState::Failed).ended_at_ms(now).error("e \"q\"");
        change(&host, WRITER, &end);
        judge.disk("an end", &host);
        let host = disk(full);
        new_run(&host, full);
        fail_launch(&host, full);
        judge.disk("a failed launch", &host);
        let host = disk(full);
        run::create(&host, &runs(&host), &run_id(), &never()).expect("room");
        fail_launch(&host, full);
        judge.disk("a failed launch without a status", &host);
        judge.document("its status", "status", "/$defs/failedFirst", &text(&host, STATUS));
    }
}

const WITH_WRITERS: &str = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{"0":[{"kind":"dm-writer","processInstanceId":"w","attempt":0,"closeObservedAt":5,"exitCode":0,"signal":null,"processTree":{"state":"observed","mechanism":"posix-process-group","processGroupId":77,"verifiedAt":6}}],"1":[{"kind":"pi-writer","processInstanceId":"v","attempt":1,"closeObservedAt":5,"exitCode":null,"signal":"SIGKILL","processTree":{"state":"TREE","MORE":"x"}}]},"expectedWriters":{"0":1,"1":1}EXTRA}"#;

/// A candidate in which the second writer's process tree was verified or not, and which names a session.
fn candidate(verified: bool, extra: &str) -> String {
    let (tree, more) = if verified {
        ("observed", r#""mechanism":"posix-process-group","processGroupId":7,"verifiedAt":6"#)
    } else {
        ("unknown", r#""reason":"signal-failed","diagnostic":"d""#)
    };
    let with = WITH_WRITERS.replace("TREE", tree).replace(r#""MORE":"x""#, more);
    with.replace("EXTRA", extra)
}

fn proofs(judge: &Judge) {
    let session = r#","sessionFile":"/s.jsonl""#;
    let released =
        format!(r#"{session},"revivalLeaseToken":"t","revivalLeaseReleaseAcknowledged":true"#);
    let mut rows = BTreeSet::new();
    for (candidate, held, exit) in [
        (Some(candidate(true, "")), false, Exit::Code(0)),
        (Some(candidate(true, session)), false, Exit::Code(1)),
        (Some(candidate(true, &released)), false, Exit::Signal("SIGKILL".to_owned())),
        (Some(candidate(false, "")), false, Exit::Code(0)),
        (Some(candidate(true, session)), true, Exit::Code(0)),
        (Some(candidate(true, r#","revivalLeaseToken":"t""#)), false, Exit::Code(0)),
        (Some(candidate(true, r#","sessionFile":"/gone""#)), false, Exit::Code(0)),
        (Some(candidate(true, "").replace("run-1", "run-2")), false, Exit::Code(0)),
        (Some("{".to_owned()), false, Exit::Code(0)),
        (Some(String::new()), false, Exit::Code(0)),
        (None, false, Exit::Code(0)),
    ] {
        let host = disk(true);
        new_run(&host, true);
        let run = run_dir(&host);
        proof::initialise(&host, &run, &run_id(), "i").expect("room");
        judge.disk("a prepared proof", &host);
        if held {
            let _ = acquire_lease(&host);
        }
        let now = host.now_ms();
        let end = StatusPatch::at(now).state(RunState::Complete).ended_at_ms(now);
        change(&host, WRITER, &end);
        // The runner's candidate is not ours: it is taken away before the disk is judged.
        match candidate.as_deref() {
            Some("") => {}
            Some(text) => put(&host, layout::CANDIDATE, text),
            None => host.unlink(&run, layout::CANDIDATE.as_ref()).expect("there"),
        }
        let (runs_root, run_id) = (runs(&host), run_id());
        let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run, run_id: &run_id };
        let witness = ExitWitness::from_wait("i", now, exit);
        let done = proof::finalise(&host, &place, &witness).expect("room");
        assert!(done.written && done.missing.is_empty(), "{done:?}");
        rows.insert(done.row);
        let _ = host.unlink(&run, layout::CANDIDATE.as_ref());
        judge.disk(done.row, &host);
    }
    let wanted = ["F-10", "F-11", "F-12", "F-3", "F-4", "F-5", "F-6", "F-8", "F-9"];
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), wanted, "the rows that were met");
}

/// What an observer writes: its record, an account of no writers or those of two steps, and a proof that
/// nobody saw the end.
fn endings(judge: &Judge) {
    for identity in [true, false] {
        let host = disk(identity);
        new_run(&host, true);
        let run = run_dir(&host);
        let record = ObserverRecord {
            run_id: "run-1".to_owned(),
            instance_id: "i".to_owned(),
            process: identity::own(&host),
            since_ms: host.now_ms(),
        };
        observer_record::write(&host, &run, &record).expect("room");
        candidate::record_no_writers(&host, &run, "run-1", "i", 2).expect("room");
        judge.disk("an account of nobody where there was no candidate", &host);
        host.unlink(&run, layout::CANDIDATE.as_ref()).expect("there");
        proof::initialise(&host, &run, &run_id(), "i").expect("room");
        let tree = |gone| match gone {
            true => ProcessTree::Observed { process_group_id: 7, verified_at_ms: 6 },
            false => ProcessTree::Unknown { reason: "signal-failed".to_owned(), diagnostic: None },
        };
        let writer = |gone, signal: Option<&str>| Instance {
            kind: if gone { InstanceKind::DmWriter } else { InstanceKind::PiWriter },
            id: "w".to_owned(),
            close_observed_at_ms: 5,
            exit_code: signal.is_none().then_some(0),
            signal: signal.map(str::to_owned),
            attempt: Some(0),
            tree: Some(tree(gone)),
        };
        let steps = [vec![writer(true, None)], vec![writer(false, Some("SIGTERM"))], Vec::new()];
        candidate::record_writers(&host, &run, "run-1", "i", &steps).expect("room");
        judge.disk("an account of writers", &host);
        let (runs_root, run_id) = (runs(&host), run_id());
        let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run, run_id: &run_id };
        let gone = ExitGrade::IdentityGone;
        proof::record_unobserved(&host, &place, "i", gone).expect("room");
        judge.disk("an end that nobody saw", &host);
    }
}

/// Whole runs of the built-in runner: one that succeeds, one that fails, one that is stopped, one that is
/// interrupted, one that is late.
fn executed(judge: &Judge) {
    let step = |agent: &str| Step {
        agent: agent.to_owned(),
        program: agent.into(),
        args: Vec::new(),
        cwd: None,
        env: Vec::new(),
    };
    let stop = Some(("stop-requests/1-a.json", r#"{"type":"stop"}"#));
    let steer = r#"{"type":"steer","id":"m","ts":1,"message":"m"}"#;
    let steer = Some(("steer-requests/1-a.json", steer));
    for (what, ends, request, deadline, state) in [
        ("a success", [Exit::Code(0), Exit::Code(0)], steer, None, RunState::Complete),
        (
            "a failure",
            [Exit::Code(3), Exit::Signal("SIGKILL".to_owned())],
            None,
            None,
            RunState::Failed,
        ),
        ("a stop", [Exit::Code(0), Exit::Code(0)], stop, None, RunState::Stopped),
        (
            "a pause",
            [Exit::Code(0), Exit::Code(0)],
            Some(("interrupt.json", "{}")),
            None,
            RunState::Paused,
        ),
        ("a late run", [Exit::Code(0), Exit::Code(0)], None, Some(5), RunState::Failed),
    ] {
        let host = disk(true);
        new_run(&host, true);
        let run_dir = run_dir(&host);
        proof::initialise(&host, &run_dir, &run_id(), "i").expect("room");
        create(&host, &0, layout::RESULTS_DIR, &never()).expect("room");
        if let Some((path, text)) = request {
            create(&host, &run_dir, layout::CONTROL_DIR, &never()).expect("room");
            if let Some((queue, _)) = path.split_once('/') {
                let control = host.dir(&format!("{RUN}/control"));
                create(&host, &control, queue, &never()).expect("room");
            }
            put(&host, &format!("control/{path}"), text);
        }
        let mut script = host.script();
        script.spawns.extend([7, 8]);
        script.ends.extend([7, 8].into_iter().zip(ends));
        if ["a stop", "a pause", "a late run"].contains(&what) {
            script.lingering.extend([7, 8]);
        }
        drop(script);
        let (runs_root, run_id) = (runs(&host), run_id());
        let results = host.dir("/async-subagent-results");
        let job = Job {
            host: &host,
            place: RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id },
            results: &results,
            locks: None,
            instance_id: "i",
            session_id: Some("S"),
            completion_owner_id: Some("o"),
            cwd: "/",
            async_dir: "/async-subagent-runs/run-1",
            lease: None,
        };
        let groups = vec![vec![step("a"), step("b")]];
        let plan = Plan { groups, deadline_at_ms: deadline, output_max_bytes: 1 << 20 };
        let done = steps::run(&job, &plan).expect("room");
        assert_eq!((done.state, done.problems), (state, Vec::new()), "{what}");
        judge.disk(what, &host);
        let result = text(&host, "async-subagent-results/run-1.json");
        judge.document(what, "run-result", "", &result);
    }
}

fn acquire_lease(host: &FaultHost) -> HeldLease {
    let request = LeaseRequest {
        session_file: Path::new("/s.jsonl"),
        run_id: "run-1",
        source_run_id: "run-0",
        parent_session_id: Some("S"),
        token: "t",
    };
    lease::acquire(host, &0, &request).expect("free")
}

fn leases(judge: &Judge) {
    for identity in [true, false] {
        let host = disk(identity);
        let mut held = acquire_lease(&host);
        judge.disk("a lease", &host);
        for writer in [
            Writer::Spawning,
            Writer::Running { pid: 5, start_identity: Some("linux:1".to_owned()) },
            Writer::Running { pid: 5, start_identity: None },
            Writer::None,
        ] {
            lease::update_writer(&host, &0, &mut held, &writer).expect("ours");
            judge.disk("a writer", &host);
        }
    }
}

fn slots(judge: &Judge) {
    let request = |run_id, kind| SlotRequest {
        session_id: "/sessions/S.jsonl",
        run_id,
        async_dir: "/runs/r",
        kind,
        limit: 2,
    };
    for (identity, kind) in [(true, SlotKind::Runner), (false, SlotKind::Workflow)] {
        let host = disk(identity);
        let acquire = |host: &FaultHost| -> HeldSlot {
            let slot = slot::acquire(host, &0, &request("run-1", kind)).expect("free");
            slot.expect("there is a limit")
        };
        let mut held = acquire(&host);
        judge.disk("a slot", &host);
        host.begin();
        // The removal of the claim fails, so that it can be looked at.
        slot::bind(&host, &0, &mut held, "i", host.now_ms()).expect("ours");
        let last = host.calls() - 1;
        let claimed = disk(identity);
        let mut held_too = acquire(&claimed);
        claimed.begin();
        claimed.fail_at(last, Injected::Errno(5));
        slot::bind(&claimed, &0, &mut held_too, "i", 5).expect("ours");
        judge.disk("a slot under a claim", &claimed);
        judge.disk("a bound slot", &host);
        let ended = Some((Some("run-1"), Some(Open::Known(RunState::Failed))));
        let source = Source { run_id: "run-1", status: ended };
        let moved = slot::transfer(&host, &0, &request("run-2", kind), &source).expect("ended");
        judge.disk("a transferred slot", &host);
        slot::rollback(&host, &0, &moved.expect("there is a limit")).expect("ours");
        judge.disk("a slot that was given back", &host);
        let owner: &SlotOwner = &held.owner;
        let line = slot::released_event(owner, host.now_ms(), 7, 1_200_000);
        judge.document("a released slot", "event", "", line.as_bytes());
    }
}

fn indexes_and_results(judge: &Judge) {
    let host = disk(true);
    new_run(&host, true);
    let call = SegmentInput::from("call");
    let update = |host: &FaultHost, state| {
        markers::update(host, &runs(host), &run_id(), state, Some(&call), &never()).expect("room")
    };
    update(&host, RunState::Running);
    let now = host.now_ms();
    change(&host, WRITER, &StatusPatch::at(now).state(RunState::Complete).ended_at_ms(now));
    update(&host, RunState::Complete);
    judge.disk("a terminal marker", &host);
    let (results, _) = create(&host, &0, layout::RESULTS_DIR, &never()).expect("room");
    let run = run_dir(&host);
    put(&host, "mission.json", "{}");
    let payload = |key: &str| {
        format!(
            r#"{{"{key}":"run-1","sessionId":"S\u0031","toolCallId":"t","asyncDir":"/r","state":"complete","timestamp":2}}"#
        )
    };
    snapshot(&host, &results, "run-1.json", &payload("runId"), Some(&run), &never()).expect("room");
    judge.disk("a snapshot", &host);
    publish(&host, &results, "run-1.json", &payload("id"), Some(&run), &never()).expect("room");
    judge.disk("a result", &host);
    let names = ResultNames::new("run-1.json", &"S1".into(), &"run-1".into()).expect("names");
    mark_delivered(&host, &results, &names, now, |_| true, &never()).expect("room");
    judge.disk("a delivered result", &host);
}

fn waits(judge: &Judge) {
    for (errno, name) in [(28, "no room"), (24, "no handle")] {
        let host = disk(true);
        new_run(&host, true);
        let run = run_dir(&host);
        host.begin();
        host.fail_at(0, Injected::Errno(errno));
        let mut queue = Deferred::for_run(Arc::new(run), "run-1");
        let item = Item {
            place: "run-1".to_owned(),
            dir: Arc::new(run),
            name: layout::STATUS.to_owned(),
            bytes: text(&host, "async-subagent-runs/run-1/status.json"),
            options: Options::new(Durability::Durable),
            terminal: false,
        };
        queue.write(&host, item).expect("it waits");
        let drained = queue.finish(&host, host.now_ms() + 5_000);
        assert!(drained.left.is_empty(), "{name}: there is room");
        judge.disk(name, &host);
    }
}

const STEPS: &str = r#"[{"agent":"a","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false,"parentSessionId":"P"}]"#;
const DESCRIPTOR: DescriptorText<'static> = DescriptorText {
    session_file: Some("/s.jsonl"),
    deadline_at_ms: Some(9),
    more: &[("model", "\"m\"")],
    ..launch::DESCRIPTOR
};

/// Whole start-ups, ours on both sides, looked at after every turn.
fn starts(judge: &Judge) {
    let revival = RevivalText { session_file: "/s.jsonl", source_run_id: "run-0" };
    for (full, revival, fails) in [
        (true, None, false),
        (false, None, false),
        (true, Some(revival), false),
        (true, Some(revival), true),
    ] {
        let host = disk(full);
        let (runs_root, run_id) = (runs(&host), run_id());
        let runs_path = Path::new("/async-subagent-runs");
        let place = Place { temp: &0, temp_path: Path::new("/"), runs_root: &runs_root, runs_path };
        let (cwd, result) = (Path::new("/"), Path::new("/r/run-1.json"));
        let mut request = Request::new(&run_id, RunMode::Single, STEPS, cwd, result);
        (request.parent_session_id, request.revival) = (Some("P"), revival);
        if full {
            request.session_id = Some("S");
            request.completion_owner_id = Some("o");
            (request.timeout_ms, request.deadline_at_ms) = (Some(5), Some(6));
            request.descriptor = Some(&DESCRIPTOR);
            request.slot = Some(SlotWish { limit: 1, source: None });
            request.more = &[("model", "{}")];
        }
        let prepared = prepare(&host, place, request).expect("room");
        judge.disk("a prepared run", &host);
        let mut launch = prepared.start(&mut Spawner::of(&Child::new(7))).expect("it is made");
        let config = read_config(&host, Path::new("/async-cfg-run-1.json")).expect("ours");
        let mut runner = Startup::begin(&host, &0, &config, 30_000).expect("free");
        judge.disk("a runner that has begun", &host);
        while matches!(launch.poll(), Poll::Wait(_)) {
            judge.disk("the launcher spoke", &host);
            runner.poll().expect("our words");
            judge.disk("the runner spoke", &host);
        }
        assert!(matches!(launch.poll(), Poll::Done(Outcome::Started(_))));
        if !fails {
            runner.poll().expect("let in");
            let committed = runner.commit().expect("room");
            judge.disk("a run that was let in", &host);
            committed.fail("no code").expect("room");
            judge.disk("a runner that cannot begin", &host);
            continue;
        }
        let run = run_dir(&host);
        host.unlink(&run, layout::STARTUP_PROCEED.as_ref()).expect("there");
        host.wait_ms(31_000);
        runner.poll().expect_err("time is up");
        judge.disk("a runner that gave up", &host);
    }
}

/// Every kind of request to a live runner.
fn requests(judge: &Judge) {
    let host = disk(true);
    let dir = run::create(&host, &host.dir("/async-subagent-runs"), &run_id(), &never());
    let dir = dir.expect("room");
    host.put(&format!("{RUN}/status.json"), r#"{"state":"running","steps":[{},{}]}"#);
    let steer = |id, mode, targets| Asking::Steer { id, message: "go on", mode, targets };
    for asking in [
        Asking::Stop { step: Some(1), as_file: false },
        Asking::Stop { step: None, as_file: false },
        Asking::Interrupt,
        Asking::Timeout,
        steer("a", None, &[]),
        steer("b", Some(SteerMode::FollowUp), &[0]),
        steer("c", Some(SteerMode::Auto), &[0, 1]),
    ] {
        let said = Said { source: "runstore", reason: Some("why") };
        ask(&host, &dir, &asking, said).expect("room");
    }
    host.unlink(&dir, "status.json".as_ref()).expect("there");
    judge.disk("requests", &host);
}

/// Judges everything that is written.
fn all() -> Judge {
    let judge = Judge::new();
    statuses(&judge);
    proofs(&judge);
    endings(&judge);
    executed(&judge);
    worked::worked(&judge);
    worked::routed(&judge);
    leases(&judge);
    slots(&judge);
    indexes_and_results(&judge);
    waits(&judge);
    starts(&judge);
    requests(&judge);
    judge
}

/// Every document that is written, each with its schema.
pub(crate) fn documents() -> Vec<(String, Value)> {
    all().documents.into_inner()
}

#[test]
fn everything_that_is_written_is_valid_in_both_layers() {
    let judge = all();
    let wrong = judge.wrong.into_inner();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let counts = judge.counts.into_inner();
    for schema in judge.writer.names() {
        assert!(counts.contains_key(schema), "{schema} is tried on what is written");
    }
    assert!(counts.values().sum::<usize>() >= 100, "{counts:?}");
}

#[test]
fn the_example_of_a_first_status_is_one_that_this_library_could_write() {
    let path = here("spec/examples/v1/status.initial-with-identity.json");
    let bytes = std::fs::read(path).expect("there is an example");
    let judge = Judge::new();
    judge.document("the example", "status", "/$defs/first", &bytes);
    assert_eq!(judge.wrong.into_inner(), [""; 0], "it is valid in both layers");
}
