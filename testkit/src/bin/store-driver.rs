//! Performs one named operation of the store on a directory, so that a test can watch, kill or starve it.
//!
//! `store-driver DIR OPERATION [UMASK]` takes `DIR` as an empty temp root, makes there what the
//! operation needs, says `begin`, performs it and says `ok`; or it prints the chain of the error, one
//! line, and ends with 1. What was best effort and failed is told as a line `problem: …` before the
//! `ok`. The preparation is made by the same process, so that nothing but `DIR` has to be given, and
//! the word between the two is a system call of its own that a trace shows.
//!
//! `store-driver DIR write NUMBER MS` and `store-driver DIR read MS` are the two sides of the race for
//! one file: the first replaces it, the second looks at it, and each prints how often.
//!
//! `store-driver DIR acknowledge WORKLOAD WORD` is a workload of the power cuts (`testkit::power`): it writes
//! one version after the other below `DIR` and puts the number of each into the file `WORD` once it is
//! written.
//!
//! Not promised: anything about what a killed driver leaves; that is what its tests look at.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "its output is its answer")]
#![expect(clippy::disallowed_methods, reason = "runs outside the store and reads the clock")]

use std::error::Error;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use runstore::protocol::account::Author;
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::segment::SegmentInput;
use runstore::protocol::slot::{SlotKind, SlotVerdict};
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{Document, Open, RunMode, RunState};
use runstore::store::advisory::Locks;
use runstore::store::atomic::{Durability, Options, Target, replace};
use runstore::store::delivery::mark_delivered;
use runstore::store::directory::{create, create_durable, create_path, open_root};
use runstore::store::host::{Host, Part};
use runstore::store::lease::{self, HeldLease, LeaseRequest};
use runstore::store::proof::{self, Exit, ExitWitness, RunPlace};
use runstore::store::publish::{
    Place, Published, ResultNames, Snapshotted, promote, publish, snapshot,
};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StartupFailure, StatusPlace};
use runstore::store::sidecar::{Decision, patch, patch_locked};
use runstore::store::slot::{self, HeldSlot, SlotRequest, Source};
use runstore::store::{RealHost, WriteHost as _, identity, journal, markers};
use testkit::driver::{
    self, CANDIDATE, Done, EVENT_LIMIT_BYTES, FIRST_EVENT, NEW_RESULT, NEW_STATUS, OLD_RESULT,
    OLD_STATUS, hammered, is_hammered,
};
use testkit::power::{self, Level, Shape, Workload};

fn main() -> ExitCode {
    driver::main(|args| {
        match *args {
            [dir, "write", number, ms] => write(Path::new(dir), number, ms),
            [dir, "read", ms] => read(Path::new(dir), ms),
            [dir, "acknowledge", workload, word] => acknowledge(Path::new(dir), workload, word),
            [dir, operation] => perform(dir, operation),
            [dir, operation, umask] => set_umask(umask).and_then(|()| perform(dir, operation)),
            _ => Err("usage: store-driver DIR OPERATION".into()),
        }?;
        println!("ok");
        Ok(())
    })
}

fn perform(dir: &str, operation: &str) -> Done {
    let driver = Driver::new(Path::new(dir))?;
    driver.perform(operation)?;
    // Closing what only the preparation has opened is no part of the operation; the system does it.
    std::mem::forget(driver);
    Ok(())
}

/// Sets the umask from octal digits, as the first thing of all.
fn set_umask(digits: &str) -> Done {
    let bits = u32::from_str_radix(digits, 8)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(bits as rustix::fs::RawMode));
    Ok(())
}

/// From here on every call belongs to the operation.
fn begin() {
    println!("begin");
}

fn problems<'a>(all: impl IntoIterator<Item = &'a (dyn Error + 'static)>) {
    for problem in all {
        println!("problem: {}", with_causes(problem));
    }
}

fn told(published: &Published) {
    problems(published.problems.iter().map(|e| e as &(dyn Error + 'static)));
}

/// The store that an operation works on.
struct Driver {
    host: RealHost,
    path: PathBuf,
    temp: <RealHost as Host>::Dir,
    runs: <RealHost as Host>::Dir,
    run: <RealHost as Host>::Dir,
    run_id: RunId,
}

impl Driver {
    fn new(path: &Path) -> Result<Self, Box<dyn Error>> {
        let host = RealHost::new();
        let temp = open_root(&host, path)?;
        let retry = RetryPolicy::never();
        let runs = create(&host, &temp, "async-subagent-runs", &retry)?.0;
        let run = create(&host, &runs, "run-1", &retry)?.0;
        let run_id = RunId::parse("run-1").map_err(|e| e.to_string())?;
        Ok(Self { host, path: path.to_owned(), temp, runs, run, run_id })
    }

    fn perform(&self, operation: &str) -> Done {
        match operation.split_once('-').map_or(operation, |(area, _)| area) {
            "replace" => self.replace(operation),
            "patch" => self.patch(operation),
            "run" => self.new_run(),
            "status" => self.status(operation),
            "append" => self.append(operation),
            "marker" => self.marker(operation),
            "result" => self.result(operation),
            "lease" => self.lease(operation),
            "slot" => self.slot(operation),
            "proof" => self.proof(operation),
            _ => Err(format!("there is no operation {operation}").into()),
        }
    }

    fn put(&self, name: &str, text: &str) -> Done {
        let options = Options::new(Durability::ProcessSafe);
        replace(&self.host, &self.run, name, text.as_bytes(), &options)?;
        Ok(())
    }

    /// How a writer without care replaces a file, to see that its tests would see it: in place, or
    /// with a temp file that stays when the rename fails.
    fn replace_badly(&self, operation: &str) -> Done {
        self.put("status.json", OLD_STATUS)?;
        let run = self.path.join("async-subagent-runs/run-1");
        let status = run.join("status.json");
        begin();
        if operation == "replace-in-place" {
            return Ok(std::fs::write(status, NEW_STATUS)?);
        }
        let temp = run.join(".status.json.1.1700000000000.0000000000000.tmp");
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        file.write_all(NEW_STATUS.as_bytes())?;
        Ok(std::fs::rename(temp, status)?)
    }

    fn replace(&self, operation: &str) -> Done {
        let (level, target) = match operation {
            "replace-in-place" | "replace-and-leave" => return self.replace_badly(operation),
            "replace-process" => (Durability::ProcessSafe, Target::Unknown),
            // As in a loop: the driver wrote it last, and the system was asked for what it says once.
            "replace-known" => (Durability::ProcessSafe, Target::Known(0o600)),
            "replace-ordered" => (Durability::Ordered, Target::Unknown),
            "replace-durable" => (Durability::Durable, Target::Unknown),
            "replace-new" => (Durability::Durable, Target::New),
            _ => return Err("which level?".into()),
        };
        if target != Target::New {
            self.put("status.json", OLD_STATUS)?;
        }
        let options = Options::new(level).target(target);
        begin();
        let written =
            replace(&self.host, &self.run, "status.json", NEW_STATUS.as_bytes(), &options)?;
        if written.left_over {
            println!("problem: a second name of status.json is litter");
        }
        Ok(())
    }

    fn patch(&self, operation: &str) -> Done {
        self.put("status.json", OLD_STATUS)?;
        let options = Options::new(Durability::Durable);
        let ended = |_: &Document<'_>| {
            let members = [("state", "\"complete\""), ("endedAt", "1700000000000")];
            Decision::Patch(members.map(|(key, text)| (key, text.to_owned())).into())
        };
        let locks = Locks::new(&self.host, &self.runs, "async-subagent-runs", 0);
        begin();
        if operation == "patch-locked" {
            let file = (&self.run, "status.json");
            patch_locked(&locks, "run-1", file, 1 << 20, &options, ended)?;
        } else {
            patch(&self.host, &self.run, "status.json", 1 << 20, &options, ended)?;
        }
        Ok(())
    }

    fn new_run(&self) -> Done {
        // The driver has made the directory; here that is the operation.
        self.host.remove_dir(&self.runs, "run-1".as_ref())?;
        begin();
        let run = run::create(&self.host, &self.runs, &self.run_id, &RetryPolicy::never())?;
        let process = identity::own(&self.host);
        let first = FirstStatus {
            run_id: "run-1",
            session_id: Some("S"),
            completion_owner_id: None,
            tool_call_id: None,
            mode: RunMode::Single,
            agents: &["a"],
            groups: &[],
            started_at_ms: 1_700_000_000_000,
            process: &process,
            instance_id: "i",
        };
        Ok(run::write_first(&self.host, &run, &first)?)
    }

    fn status(&self, operation: &str) -> Done {
        if operation != "status-failed-first" {
            self.put("status.json", OLD_STATUS)?;
        }
        let (host, run_id) = (&self.host, &self.run_id);
        let place = StatusPlace { host, run_dir: &self.run, run_id, locks: None };
        let runner = Author::Runner { instance: "i" };
        let patch = StatusPatch::at(1_700_000_000_000);
        begin();
        match operation {
            "status-step" => {
                run::update(&place, runner, &patch.member("currentStep", "1".to_owned()))?;
            }
            "status-end" => {
                let end = patch.state(RunState::Complete).ended_at_ms(1_700_000_000_000);
                run::update(&place, runner, &end)?;
            }
            "status-failed" | "status-failed-first" => {
                let failure = StartupFailure {
                    instance_id: "i",
                    session_id: Some("S"),
                    completion_owner_id: None,
                    message: "why",
                };
                run::record_startup_failure(&place, Author::Launcher, &failure)?;
            }
            _ => return Err("which status?".into()),
        }
        Ok(())
    }

    fn append(&self, operation: &str) -> Done {
        let limit = if operation == "append-rotate" { 16 } else { EVENT_LIMIT_BYTES };
        journal::append(&self.host, &self.run, "events.jsonl", FIRST_EVENT, EVENT_LIMIT_BYTES)?;
        begin();
        journal::append(&self.host, &self.run, "events.jsonl", "{\"type\":\"new\"}", limit)?;
        Ok(())
    }

    fn marker(&self, operation: &str) -> Done {
        let never = RetryPolicy::never();
        let call = SegmentInput::from("call");
        let update = |state| {
            markers::update(&self.host, &self.runs, &self.run_id, state, Some(&call), &never)
        };
        self.put("status.json", NEW_STATUS)?;
        let updated = if operation == "marker-active" {
            begin();
            update(RunState::Running)?
        } else {
            update(RunState::Running)?;
            begin();
            match operation {
                "marker-ended" => update(RunState::Complete)?,
                "marker-release" => markers::release(&self.host, &self.runs, &self.run_id)?,
                _ => return Err("which marker?".into()),
            }
        };
        problems(updated.problems.iter().map(|e| e as &(dyn Error + 'static)));
        Ok(())
    }

    fn result(&self, operation: &str) -> Done {
        let never = RetryPolicy::never();
        let results = create(&self.host, &self.temp, "async-subagent-results", &never)?.0;
        let file = "run-1.json";
        let names = ResultNames::new(file, &"S".into(), &"run-1".into())?;
        let put = |text| publish(&self.host, &results, file, text, Some(&self.run), &never);
        match operation {
            "result-publish" => {
                put(OLD_RESULT)?;
                begin();
                told(&put(NEW_RESULT)?);
            }
            // The first result of a store makes every directory as well.
            "result-first" => {
                begin();
                told(&put(NEW_RESULT)?);
            }
            "result-snapshot" => {
                begin();
                let done = snapshot(&self.host, &results, file, NEW_RESULT, None, &never)?;
                if let Snapshotted::Pending(all) = &done {
                    problems(all.iter().map(|e| e as &(dyn Error + 'static)));
                } else {
                    return Err(format!("the snapshot run-1.json was not made: {done:?}").into());
                }
            }
            "result-promote" => {
                put(OLD_RESULT)?;
                let path = ["result-pending", "S"];
                let pending = create_path(&self.host, &results, &path, &never)?;
                let options = Options::new(Durability::Durable);
                replace(&self.host, &pending, file, NEW_RESULT.as_bytes(), &options)?;
                begin();
                if let Place::Pending(why) = promote(&self.host, &results, &names, &never)? {
                    return Err(format!("the result run-1.json stays pending: {why}").into());
                }
            }
            "result-deliver" => {
                put(NEW_RESULT)?;
                begin();
                let done = mark_delivered(&self.host, &results, &names, 7, |_| true, &never)?;
                if let runstore::store::delivery::Delivered::Marked(published) = &done {
                    told(published);
                } else {
                    return Err(format!("the result run-1.json was not marked: {done:?}").into());
                }
            }
            _ => return Err("which result?".into()),
        }
        Ok(())
    }

    fn acquire_lease(&self) -> Result<HeldLease, Box<dyn Error>> {
        let session_file = self.path.join("async-subagent-runs/run-1/session.jsonl");
        let request = LeaseRequest {
            session_file: &session_file,
            run_id: "run-1",
            source_run_id: "run-0",
            parent_session_id: None,
            token: "token-1",
        };
        Ok(lease::acquire(&self.host, &self.temp, &request)?)
    }

    fn lease(&self, operation: &str) -> Done {
        self.put("session.jsonl", "{}\n")?;
        if operation == "lease-acquire" {
            begin();
            let _ = self.acquire_lease()?;
            return Ok(());
        }
        let mut held = self.acquire_lease()?;
        begin();
        match operation {
            "lease-writer" => {
                let spawning = lease::Writer::Spawning;
                lease::update_writer(&self.host, &self.temp, &mut held, &spawning)?;
            }
            "lease-release" => match lease::release(&self.host, &self.temp, &held.id, "token-1")? {
                lease::Released::Free { litter: Some(e) } => println!("problem: litter: {e}"),
                lease::Released::Free { litter: None } => {}
                lease::Released::NotOurs => {
                    return Err(format!("the lease {} is not ours", held.id).into());
                }
            },
            _ => return Err("which lease?".into()),
        }
        Ok(())
    }

    fn request<'a>(&self, run_id: &'a str) -> SlotRequest<'a> {
        let kind = SlotKind::Runner;
        SlotRequest { session_id: "S", run_id, async_dir: "/RUNS/r", kind, limit: 1 }
    }

    fn slot(&self, operation: &str) -> Done {
        let acquire = || -> Result<HeldSlot, Box<dyn Error>> {
            let held = slot::acquire(&self.host, &self.temp, &self.request("run-1"))?;
            Ok(held.ok_or("there is a limit")?)
        };
        if operation == "slot-acquire" {
            begin();
            let _ = acquire()?;
            return Ok(());
        }
        let mut held = acquire()?;
        begin();
        match operation {
            "slot-bind" => slot::bind(&self.host, &self.temp, &mut held, "i", 5)?,
            "slot-release" => {
                if let Some(e) = slot::release(&self.host, &self.temp, &held.owner)? {
                    println!("problem: litter: {e}");
                }
            }
            "slot-rollback" => {
                let done = slot::rollback(&self.host, &self.temp, &held)?;
                if let slot::RolledBack::Released { litter: Some(e) } = done {
                    println!("problem: litter: {e}");
                }
            }
            "slot-reconcile" => {
                let release = SlotVerdict {
                    release: true,
                    rule: 6,
                    reason: "it has ended",
                    by_policy: false,
                };
                let done = slot::reconcile(&self.host, &self.temp, "S", |_| release)?;
                for e in done.litter {
                    println!("problem: litter: {e}");
                }
                let failed = done.failed.into_iter().map(|(_, e)| e).next();
                if let Some(e) = failed.or(done.unseen) {
                    return Err(e.into());
                }
                if done.released.is_empty() {
                    return Err("the slot slot-0 was not released".into());
                }
            }
            "slot-transfer" => {
                let status = Some((Some("run-1"), Some(Open::Known(RunState::Failed))));
                let source = Source { run_id: "run-1", status };
                let _ = slot::transfer(&self.host, &self.temp, &self.request("run-2"), &source)?;
            }
            _ => return Err("which slot?".into()),
        }
        Ok(())
    }

    fn proof(&self, operation: &str) -> Done {
        let place = RunPlace {
            temp: &self.temp,
            runs_root: &self.runs,
            run_dir: &self.run,
            run_id: &self.run_id,
        };
        let initialise = || proof::initialise(&self.host, &self.run, &self.run_id, "i");
        if operation == "proof-initialise" {
            begin();
            return Ok(initialise()?);
        }
        let alias = [".active-runs", "tool-calls", "call"];
        create_path(&self.host, &self.runs, &alias, &RetryPolicy::never())?;
        let call = SegmentInput::from("call");
        let (never, running) = (RetryPolicy::never(), RunState::Running);
        markers::update(&self.host, &self.runs, &self.run_id, running, Some(&call), &never)?;
        initialise()?;
        self.put("status.json", NEW_STATUS)?;
        self.put("process-terminal-candidate.json", CANDIDATE)?;
        let witness = ExitWitness::from_wait("i", 9, Exit::Code(0));
        let done = match operation {
            "proof-finalise" => {
                begin();
                proof::finalise(&self.host, &place, &witness)?
            }
            // As an observer left it that died right after its proof.
            "proof-complete" => {
                proof::finalise(&self.host, &place, &witness)?;
                self.put("status.json", NEW_STATUS)?;
                self.host.unlink(&self.run, "events.jsonl".as_ref())?;
                create_path(&self.host, &self.runs, &alias, &RetryPolicy::never())?;
                markers::update(
                    &self.host,
                    &self.runs,
                    &self.run_id,
                    running,
                    Some(&call),
                    &never,
                )?;
                begin();
                let done = proof::complete(&self.host, &place)?;
                let done = done.ok_or("process-terminal.json is no final proof")?;
                if let Some((what, why)) = done.missing.first() {
                    return Err(format!("{what:?}: {why}").into());
                }
                done
            }
            _ => return Err("which proof?".into()),
        };
        for (what, why) in done.missing {
            println!("problem: {what:?}: {why}");
        }
        Ok(())
    }
}

/// Replaces the one file of the race until its time is over.
fn write(dir: &Path, number: &str, ms: &str) -> Done {
    let host = RealHost::new();
    let dir = host.open_dir(dir)?;
    let number: u64 = number.parse()?;
    let (start, time) = (Instant::now(), Duration::from_millis(ms.parse()?));
    let options = Options::new(Durability::ProcessSafe);
    let mut turn = 0;
    while start.elapsed() < time {
        replace(&host, &dir, "status.json", hammered(number, turn).as_bytes(), &options)?;
        turn += 1;
    }
    println!("replaces: {turn}");
    Ok(())
}

/// Looks at the one file of the race until its time is over. Every look has to find a whole file.
fn read(dir: &Path, ms: &str) -> Done {
    let host = RealHost::new();
    let dir = host.open_dir(dir)?;
    let (start, time) = (Instant::now(), Duration::from_millis(ms.parse()?));
    let mut looks = 0_u64;
    while start.elapsed() < time {
        let read = host
            .read_at(&dir, "status.json".as_ref(), Part::All(1 << 20))
            .map_err(|e| format!("look {looks} found no file: {e:?}"))?;
        if read.stat.mode & 0o777 != 0o600 {
            return Err(format!("look {looks} found mode {:o}", read.stat.mode).into());
        }
        if !is_hammered(&read.bytes) {
            return Err(format!("look {looks} found {} torn bytes", read.bytes.len()).into());
        }
        looks += 1;
    }
    println!("looks: {looks}");
    Ok(())
}

/// Writes every version of a workload and says so of each.
fn acknowledge(top: &Path, workload: &str, word: &str) -> Done {
    let workload = Workload::named(workload).ok_or("which workload?")?;
    let open = |path: &Path| std::fs::OpenOptions::new().write(true).open(path);
    let (mut word, mut neighbour) = (open(Path::new(word))?, open(&top.join(power::NEIGHBOUR))?);
    for version in 1..=power::VERSIONS {
        write_version(top, workload, version)?;
        // One call: the place of the word in the log is where the write was acknowledged.
        word.write_all(format!("{version}\n").as_bytes())?;
        if version % power::NEIGHBOUR_EVERY == 0 {
            neighbour.write_all(b"x")?;
            neighbour.sync_all()?;
        }
    }
    Ok(())
}

fn write_version(top: &Path, workload: Workload, version: u64) -> Done {
    let host = RealHost::new();
    let level = match workload.level {
        Level::Process => Durability::ProcessSafe,
        Level::Ordered => Durability::Ordered,
        Level::Durable | Level::Nameless => Durability::Durable,
    };
    let (dir, target) = match workload.shape {
        Shape::Replaced => (open_root(&host, &top.join(power::REPLACED))?, Target::Unknown),
        Shape::Fresh => {
            let parent = open_root(&host, &top.join(power::FRESH))?;
            let name = power::run_name(version);
            let make = if level == Durability::Durable { create_durable } else { create };
            (make(&host, &parent, &name, &RetryPolicy::never())?.0, Target::New)
        }
    };
    let options = Options::new(level).target(target);
    let text = hammered(power::WRITER, version);
    if workload.level == Level::Nameless {
        return replace_nameless(&host, &dir, text.as_bytes());
    }
    replace(&host, &dir, "status.json", text.as_bytes(), &options)?;
    Ok(())
}

/// A durable replacement that gives the old file no second name, to see that its test would see it.
fn replace_nameless(host: &RealHost, dir: &<RealHost as Host>::Dir, text: &[u8]) -> Done {
    let temp = ".status.json.1.1700000000000.0000000000000.tmp".as_ref();
    let file = host.create(dir, temp, 0o600)?;
    if host.write(&file, text)? != text.len() {
        return Err("a part was written".into());
    }
    host.sync(&file)?;
    host.rename(dir, temp, dir, "status.json".as_ref())?;
    Ok(host.sync_dir(dir)?)
}
