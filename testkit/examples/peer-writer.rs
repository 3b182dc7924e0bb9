//! Our side of the round trip with the published peers; `conformance/peers` is the other side.
//!
//! Theory of operation. Both sides agree on one small store: a run that goes on, `run-live`, a run that
//! has ended, `run-done`, a slot for each, and a lease on one session file. `write` makes it with the
//! writing half of the library; `facts` says how the reading half understands a store, whoever wrote
//! it; `go-on` does to a store of somebody else what a second process would do, and `finish` ends a run
//! that somebody else prepared. Every verb prints one
//! line of JSON, so that the other side can compare it with what its own readers say.
//!
//! `write` ends only when its standard input does: until then the lease has a living owner. It is an
//! error of this program, and its end, when an operation fails that must not.
//!
//! ```text
//! peer-writer write ROOT SESSION-FILE pi|dm
//! peer-writer facts ROOT SESSION-FILE
//! peer-writer go-on ROOT SESSION-FILE
//! peer-writer finish ROOT SESSION-FILE pi|dm
//! peer-writer take-lease ROOT SESSION-FILE
//! ```

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "the answer of a program")]

use std::error::Error;
use std::io::Read as _;
use std::path::Path;

use runstore::inspect::Inspection;
use runstore::protocol::account::Author;
use runstore::protocol::candidate::{Candidate, Instance};
use runstore::protocol::diagnose::slot_verdict;
use runstore::protocol::evidence::{RunEvidence, Times};
use runstore::protocol::ids::RunId;
use runstore::protocol::lease::{LeaseOwner, LeaseState};
use runstore::protocol::proof::Proof;
use runstore::protocol::result::ResultPlace;
use runstore::protocol::slot::{SlotKind, SlotOwner, SlotVerdict};
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{RunMode, RunState, Word as _};
use runstore::store::atomic::{Durability, Options, replace};
use runstore::store::directory::create_path;
use runstore::store::host::{Host as _, Part, RealHost};
use runstore::store::lease::{AcquireError, HeldLease, LeaseRequest};
use runstore::store::proof::{Exit, ExitWitness, RunPlace};
use runstore::store::publish::ResultNames;
use runstore::store::retry::RetryPolicy;
use runstore::store::run::StatusPlace;
use runstore::store::slot::SlotRequest;
use runstore::store::{Depth, Opened, Store};
use runstore::store::{identity, lease, markers, proof, publish, run, slot};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Dir = <RealHost as runstore::store::Host>::Dir;

const SESSION: &str = "session-peers";
/// Looks like a file name, so that the alias is stored under a hash.
const TOOL_CALL: &str = "toolu_peers.json";
const LIVE: &str = "run-live";
const DONE: &str = "run-done";
const STARTED_MS: i64 = 1_700_000_000_000;
const CLOSED_MS: i64 = 1_700_000_009_000;
const LIMIT: u32 = 3;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let host = RealHost::new();
    match args[..] {
        ["write", root, session_file, peer] => {
            let stage = Stage::new(&host, root, session_file)?;
            let held = stage.write(peer)?;
            println!("{}", stage.facts()?);
            std::io::stdin().read_to_end(&mut Vec::new())?;
            // Not released: the next owner has to find out that this one is gone.
            drop(held);
        }
        ["facts", root, session_file] => {
            println!("{}", Stage::new(&host, root, session_file)?.facts()?);
        }
        ["go-on", root, session_file] => {
            println!("{}", Stage::new(&host, root, session_file)?.go_on()?);
        }
        ["finish", root, session_file, peer] => {
            Stage::new(&host, root, session_file)?.end(LIVE, &format!("{peer}-writer"))?;
            println!("{{}}");
        }
        ["take-lease", root, session_file] => {
            let stage = Stage::new(&host, root, session_file)?;
            println!("{}", stage.take_lease("token-next"));
        }
        _ => return Err("usage: see the head of this program".into()),
    }
    Ok(())
}

fn instance(run: &str) -> String {
    format!("instance-of-{run}")
}

/// When the runner's close was seen: later for the run that goes on first.
fn closed_ms(run: &str) -> i64 {
    if run == LIVE { CLOSED_MS + 1000 } else { CLOSED_MS }
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}").into_bytes()
}

/// The store, its directories and its session file.
struct Stage<'a> {
    host: &'a RealHost,
    root: &'a Path,
    session_file: &'a Path,
    temp: Dir,
    runs: Dir,
    results: Dir,
    retry: RetryPolicy,
}

impl<'a> Stage<'a> {
    fn new(host: &'a RealHost, root: &'a str, session_file: &'a str) -> Outcome<Self> {
        let (root, session_file) = (Path::new(root), Path::new(session_file));
        let retry = RetryPolicy::default();
        let temp = host.open_dir(root)?;
        let runs = create_path(host, &temp, &["async-subagent-runs"], &retry)?;
        let results = create_path(host, &temp, &["async-subagent-results"], &retry)?;
        Ok(Self { host, root, session_file, temp, runs, results, retry })
    }

    fn run_dir(&self, run: &str) -> Outcome<Dir> {
        Ok(create_path(self.host, &self.runs, &[run], &self.retry)?)
    }

    fn path_of(&self, run: &str) -> String {
        self.root.join("async-subagent-runs").join(run).to_string_lossy().into_owned()
    }

    /// Both runs, their results, slots and the lease.
    fn write(&self, peer: &str) -> Outcome<HeldLease> {
        for run in [LIVE, DONE] {
            self.start(run)?;
        }
        self.end(DONE, &format!("{peer}-writer"))?;
        let pending = publish::snapshot(
            self.host,
            &self.results,
            &format!("{LIVE}.json"),
            &self.payload(LIVE, "paused"),
            None,
            &self.retry,
        )?;
        if !matches!(pending, publish::Snapshotted::Pending(_)) {
            return Err(format!("{pending:?}").into());
        }
        Ok(lease::acquire(self.host, &self.temp, &self.request("token-ours"))?)
    }

    /// What a launcher leaves: status, prepared proof, markers, a bound slot.
    fn start(&self, run: &str) -> Outcome<()> {
        let (host, id, instance) = (self.host, RunId::parse(run)?, instance(run));
        let dir = run::create(host, &self.runs, &id, &self.retry)?;
        let first = FirstStatus {
            run_id: run,
            session_id: Some(SESSION),
            completion_owner_id: None,
            tool_call_id: Some(TOOL_CALL),
            mode: RunMode::Single,
            agents: &["worker"],
            groups: &[],
            started_at_ms: STARTED_MS,
            process: &identity::own(host),
            instance_id: &instance,
        };
        run::write_first(host, &dir, &first)?;
        let steps = json!([{ "agent": "worker", "status": "running", "startedAt": STARTED_MS }]);
        let begun = StatusPatch::at(STARTED_MS).member("steps", steps.to_string());
        self.update(&dir, &id, &begun)?;
        proof::initialise(host, &dir, &id, &instance)?;
        let call = TOOL_CALL.into();
        markers::update(host, &self.runs, &id, RunState::Running, Some(&call), &self.retry)?;
        let (session_id, async_dir) = (SESSION, &self.path_of(run));
        let kind = SlotKind::Runner;
        let request = SlotRequest { session_id, run_id: run, async_dir, kind, limit: LIMIT };
        let mut held = slot::acquire(host, &self.temp, &request)?.ok_or("there is a limit")?;
        slot::bind(host, &self.temp, &mut held, &instance, STARTED_MS)?;
        Ok(())
    }

    /// What a runner and its observer leave: candidate, result, terminal status, marker, proof.
    fn end(&self, run: &str, writer_kind: &str) -> Outcome<()> {
        let (host, dir, id) = (self.host, self.run_dir(run)?, RunId::parse(run)?);
        let durable = Options::new(Durability::Durable);
        let closed_ms = closed_ms(run);
        let candidate = json!({
            "version": 1, "runId": run, "runnerProcessInstanceId": instance(run),
            "writers": { "0": [{
                "kind": writer_kind, "processInstanceId": "writer-1", "attempt": 0,
                "closeObservedAt": closed_ms - 1000, "exitCode": 0, "signal": null,
                "processTree": {
                    "state": "observed", "mechanism": "posix-process-group",
                    "processGroupId": 777, "verifiedAt": closed_ms - 900,
                },
            }] },
            "expectedWriters": { "0": 1 }, "sessionFile": self.session_file,
        });
        let name = "process-terminal-candidate.json";
        replace(host, &dir, name, &pretty(&candidate), &durable)?;
        let file = format!("{run}.json");
        let payload = self.payload(run, "complete");
        publish::publish(host, &self.results, &file, &payload, Some(&dir), &self.retry)?;
        let steps = json!([{
            "agent": "worker", "status": "complete", "startedAt": STARTED_MS,
            "endedAt": closed_ms - 500, "exitCode": 0, "sessionFile": self.session_file,
        }]);
        let end = StatusPatch::at(closed_ms - 500)
            .state(RunState::Complete)
            .ended_at_ms(closed_ms - 500)
            .member("steps", steps.to_string());
        self.update(&dir, &id, &end)?;
        markers::write_terminal(host, &self.runs, &id, RunState::Complete, &self.retry)?;
        let (temp, runs_root, run_dir, run_id) = (&self.temp, &self.runs, &dir, &id);
        let place = RunPlace { temp, runs_root, run_dir, run_id };
        let witness = ExitWitness::from_wait(&instance(run), closed_ms, Exit::Code(0));
        let done = proof::finalise(host, &place, &witness)?;
        if !done.missing.is_empty() {
            return Err(format!("not made: {:?}", done.missing).into());
        }
        Ok(())
    }

    /// Changes a status as the runner of that run.
    fn update(&self, run_dir: &Dir, run_id: &RunId, patch: &StatusPatch) -> Outcome<()> {
        let place = StatusPlace { host: self.host, run_dir, run_id, locks: None };
        let instance = instance(run_id.as_str());
        run::update(&place, Author::Runner { instance: &instance }, patch)?;
        Ok(())
    }

    fn payload(&self, run: &str, state: &str) -> String {
        let payload = json!({
            "id": run, "runId": run, "sessionId": SESSION, "toolCallId": TOOL_CALL,
            "agent": "worker", "mode": "single", "success": state == "complete", "state": state,
            "summary": "done \u{4f1a}", "exitCode": 0, "timestamp": closed_ms(run) - 400,
            "asyncDir": self.path_of(run),
            "results": [{ "agent": "worker", "output": "x", "success": true }],
        });
        format!("{payload:#}")
    }

    fn request(&self, token: &'a str) -> LeaseRequest<'a> {
        let (session_file, run_id, source_run_id) = (self.session_file, LIVE, "run-source");
        let parent_session_id = Some(SESSION);
        LeaseRequest { session_file, run_id, source_run_id, parent_session_id, token }
    }

    /// Whether the lease can be had.
    fn take_lease(&self, token: &'a str) -> Value {
        match lease::acquire(self.host, &self.temp, &self.request(token)) {
            Ok(held) => json!({ "taken": true, "setAside": held.set_aside.len() }),
            Err(AcquireError::Held { owner, .. }) => json!({ "heldBy": owner.token }),
            Err(e) => json!({ "error": e.to_string() }),
        }
    }

    fn open(&self) -> Outcome<Store<'_, RealHost>> {
        match Store::open(self.host, self.root, self.host.now_ms(), Times::default())? {
            Opened::Store(store) => Ok(store),
            Opened::Run(..) => Err("a temp root was expected".into()),
        }
    }

    /// What a second process does to the store: it contends for the lease, releases the slots of runs
    /// that have ended and makes a pending result public.
    fn go_on(&self) -> Outcome<Value> {
        let store = self.open()?;
        let judge = |owner: &SlotOwner| -> SlotVerdict {
            let run = store.runs_roots[0].path.join(&owner.run_id);
            let name = run.file_name().unwrap_or_default();
            let snapshot = store.snapshot(&store.runs_roots[0], name, None, Depth::Full);
            snapshot.map_or(
                SlotVerdict { release: false, rule: 1, reason: "no run", by_policy: false },
                |snapshot| slot_verdict(&snapshot.evidence, owner),
            )
        };
        let reconciled = slot::reconcile(self.host, &self.temp, SESSION, judge)?;
        let released: Vec<_> = reconciled.released.iter().map(|(o, _)| &o.run_id).collect();
        let names = ResultNames::new(&format!("{LIVE}.json"), &SESSION.into(), &LIVE.into())?;
        let place = publish::promote(self.host, &self.results, &names, &self.retry)?;
        Ok(json!({
            "lease": self.take_lease("token-second"),
            "releasedSlots": released, "usedSlots": reconciled.used,
            "promoted": place == publish::Place::Public,
        }))
    }

    /// How the store reads.
    fn facts(&self) -> Outcome<Value> {
        let store = self.open()?;
        let runs = &store.runs_roots[0];
        let mut inspection = Inspection::new(&store, Depth::Full);
        let mut facts = json!({
            "active": runs.active_names(self.host), "ended": runs.ended_names(self.host, Some(SESSION), 9),
            "byToolCall": sorted(runs.tool_call_runs(self.host, TOOL_CALL)),
            "resultsByToolCall":
                sorted(store.result_tool_call_runs(TOOL_CALL).into_iter().map(|(run, _)| run).collect()),
            "lease": self.lease_facts(), "slots": slots(&store, &inspection),
        });
        for run in [LIVE, DONE] {
            let (snapshot, report) =
                inspection.one(0, run.as_ref(), None).ok_or("the run has no directory")?;
            let e = snapshot.evidence;
            facts["status"][run] = status(&e);
            facts["candidate"][run] = e.candidate.value().map(candidate).into();
            facts["proof"][run] = e.proof.value().map(|proof| proof_facts(proof)).into();
            facts["result"][run] = self.result(&e)?;
            facts["verdict"][run] = json!(report.verdict);
        }
        Ok(facts)
    }

    fn result(&self, e: &RunEvidence) -> Outcome<Value> {
        let Some(found) = e.results.first() else { return Ok(Value::Null) };
        let parts: Vec<&str> = found.path.split('/').collect();
        let (name, above) = parts.split_last().ok_or("a path has a name")?;
        let mut dir = self.host.open_dir(self.root)?;
        for part in above {
            dir = self.host.open_dir_at(&dir, part.as_ref())?;
        }
        let read = self.host.read_at(&dir, name.as_ref(), Part::All(1 << 20));
        let bytes = read.map_err(|e| format!("{}: {e:?}", found.path))?.bytes;
        let place = if found.place == ResultPlace::Pending { "pending" } else { "public" };
        Ok(json!({
            "place": place, "file": found.path,
            "payload": serde_json::from_slice::<Value>(&bytes)?,
        }))
    }

    fn lease_facts(&self) -> Value {
        let Ok(id) = lease::canonical_id(self.host, self.session_file) else { return Value::Null };
        match lease::inspect(self.host, &self.temp, &id.id) {
            LeaseState::Free => json!({ "state": "free", "id": id.id }),
            LeaseState::Owned(owner) => {
                json!({ "state": "owned", "id": id.id, "owner": lease_owner(&owner) })
            }
            _ => json!({ "state": "unreadable", "id": id.id }),
        }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn slots(store: &Store<'_, RealHost>, inspection: &Inspection<'_, '_, RealHost>) -> Vec<Value> {
    let reports = inspection.slots(None);
    let slots = store.locks.slots.iter().filter_map(|found| {
        let owner = found.owner.value()?;
        let releasable = reports.iter().any(|r| r.path == found.path && r.releasable);
        Some(json!({
            "slot": owner.slot, "runId": owner.run_id, "generation": owner.generation,
            "token": owner.reservation_token, "session": owner.owner_session_id,
            "pool": owner.owner_session_key, "dir": owner.async_dir, "kind": owner.kind.as_str(),
            "instance": owner.runner_instance_id, "releasable": releasable,
        }))
    });
    slots.collect()
}

fn status(e: &RunEvidence) -> Value {
    let Some(status) = e.status.value() else { return Value::Null };
    let overlay = status.overlay.as_ref().and_then(|overlay| overlay.as_deref().ok());
    let steps = status.steps.iter().map(|step| {
        json!({
            "agent": step.agent, "status": step.state.as_ref().map(|s| s.as_str().to_owned()),
            "startedAt": step.started_at_ms, "endedAt": step.ended_at_ms,
        })
    });
    json!({
        "runId": status.run_id, "sessionId": status.session_id, "toolCallId": status.tool_call_id,
        "state": status.state.as_ref().map(|s| s.as_str().to_owned()), "pid": status.pid,
        "startedAt": status.started_at_ms, "endedAt": status.ended_at_ms,
        "lastUpdate": status.last_update_ms, "steps": steps.collect::<Vec<_>>(),
        "overlay": overlay.map(proof_facts),
    })
}

fn candidate(found: &Candidate) -> Value {
    let mut writers = serde_json::Map::new();
    for (step, records) in &found.writers {
        writers.insert(step.clone(), records.iter().map(record).collect());
    }
    let expected = found.expected_writers.as_ref().map(|expected| {
        let pairs = expected.iter().map(|(step, count)| (step.clone(), json!(count)));
        Value::Object(pairs.collect())
    });
    json!({
        "runId": found.run_id, "instance": found.instance_id, "writers": writers,
        "expectedWriters": expected, "sessionFile": found.session_file,
    })
}

fn proof_facts(found: &Proof) -> Value {
    json!({
        "state": found.state.as_str(), "runId": found.run_id, "instance": found.instance_id,
        "observedAt": found.observed_at_ms,
        "instances": found.instances.iter().map(record).collect::<Vec<_>>(),
        "resumeDisposition": found.resume_disposition.map(|word| word.as_str()),
        "reason": found.reason.as_ref().map(|word| word.as_str().to_owned()),
    })
}

fn record(found: &Instance) -> Value {
    json!({
        "kind": found.kind.as_str(), "id": found.id, "closedAt": found.close_observed_at_ms,
        "exitCode": found.exit_code, "signal": found.signal, "attempt": found.attempt,
        "hasTree": found.tree.is_some(),
    })
}

fn lease_owner(owner: &LeaseOwner) -> Value {
    json!({
        "token": owner.token, "sessionFile": owner.canonical_session_file, "runId": owner.run_id,
        "sourceRunId": owner.source_run_id, "parentSessionId": owner.parent_session_id,
        "pid": owner.pid, "hostname": owner.hostname, "start": owner.process_start_identity,
        "writerState": owner.writer_state.as_str(), "acquiredAt": owner.acquired_at,
        "acquiredAtMs": owner.acquired_at_ms, "updatedAtMs": owner.updated_at_ms,
    })
}
