//! A small world of runs, launchers, observers, parents and recoverers, on the host in memory.
//!
//! Theory of operation. Everybody acts through the operations of the library, in the order of the real
//! programs, and has a process that the records name. Whoever is cut off is gone from then on: the host does
//! nothing more for it, and its process leaves its number. What the world has been *told* (an operation
//! returned) is what the files are held to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use runstore::protocol::account::Author;
use runstore::protocol::evidence::Times;
use runstore::protocol::ids::RunId;
use runstore::protocol::observer_record::ObserverRecord;
use runstore::protocol::process::{Presence, ProcessRecord, ProcessSeen, RecordedIdentity};
use runstore::protocol::proof::ProofState;
use runstore::protocol::slot::SlotKind;
use runstore::protocol::state::StepState;
use runstore::protocol::written_run::{RunResult, StepAccount, event, steps};
use runstore::protocol::written_startup::LaunchNote;
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{Document, RunMode, RunState, Word as _, layout, limits, written};
use runstore::recover::{ApplyError, Policy, Wanted};
use runstore::store::atomic::{self, Durability, Options};
use runstore::store::delivery::mark_delivered;
use runstore::store::host::{Exit, Host as _};
use runstore::store::proof::{ExitWitness, RunPlace};
use runstore::store::publish::{self, ResultNames};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StatusPlace};
use runstore::store::slot::{self, SlotRequest};
use runstore::store::{candidate, directory, journal, markers, observer_record, proof};
use testkit::fault::{FaultHost, power_cut};

use super::{RUNS, Step};

pub(super) const SESSION: &str = "S";

type Done = Result<(), Box<dyn std::error::Error>>;

/// What one run has been through.
#[derive(Debug, Default)]
pub(super) struct Run {
    launched: bool,
    runner: Option<i64>,
    observer: Option<i64>,
    /// Its runner wrote this end, and was told that it stands.
    pub(super) told_end: Option<RunState>,
    /// Its runner was about to write an end.
    pub(super) may_have_ended: bool,
    pub(super) witnessed: bool,
    /// What was handed to its parent: state and instant.
    pub(super) delivered: BTreeSet<(String, i64)>,
    /// A repair of it was taken back after something was handed over.
    pub(super) undone: bool,
    /// The last end that stood in its status.
    pub(super) last_end: Option<String>,
}

impl Run {
    /// Whether its runner lives.
    pub(super) fn lives(&self) -> bool {
        self.runner.is_some()
    }
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    steps: usize,
    crashes: usize,
    power_cuts: usize,
    ends: usize,
    proofs: usize,
    pub(super) repairs: BTreeMap<String, usize>,
    undone: usize,
    deliveries: usize,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.power_cuts += other.power_cuts;
        self.ends += other.ends;
        self.proofs += other.proofs;
        self.undone += other.undone;
        self.deliveries += other.deliveries;
        for (kind, count) in &other.repairs {
            *self.repairs.entry(kind.clone()).or_default() += count;
        }
    }

    pub(super) fn is_of_everything(&self) -> bool {
        let repaired = |kind: &str| self.repairs.contains_key(kind);
        let counts =
            [self.crashes, self.power_cuts, self.ends, self.proofs, self.undone, self.deliveries];
        counts.iter().all(|count| *count > 0)
            && repaired("close-as-failed")
            && repaired("adopt-result")
            && repaired("free-slot")
    }
}

/// Something that no operation of the library would do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lie {
    EndChanged,
    ProofWithoutWitness,
    SlotOfNobody,
    SecondResult,
}

pub(super) const LIES: [Lie; 4] =
    [Lie::EndChanged, Lie::ProofWithoutWitness, Lie::SlotOfNobody, Lie::SecondResult];

pub(super) struct World {
    pub(super) host: FaultHost,
    pub(super) runs: [Run; RUNS],
    pub(super) counts: Counts,
    /// Why the last recovery left something alone.
    pub(super) refused: Vec<String>,
    last_pid: i64,
    boots: usize,
}

pub(super) fn id(run: usize) -> RunId {
    RunId::parse(&format!("run-{run}")).expect("an id")
}

fn instance(run: usize) -> String {
    format!("instance-{run}")
}

/// The path of a file of a run.
pub(super) fn path(run: usize, name: &str) -> String {
    format!("/{}/{}/{name}", layout::RUNS_DIR, id(run))
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self {
            host: FaultHost::new(),
            runs: Default::default(),
            counts: Counts::default(),
            refused: Vec::new(),
            last_pid: 100,
            boots: 1,
        };
        world.next_actor();
        world.make_roots();
        world
    }

    fn make_roots(&self) {
        for name in [layout::RUNS_DIR, layout::RESULTS_DIR] {
            directory::create_durable(&self.host, &0, name, &RetryPolicy::default()).expect("room");
        }
    }

    fn seen(number: i64) -> ProcessSeen {
        ProcessSeen {
            presence: Presence::Present,
            start_identity: Some(format!("linux:{number}")),
            pidfd_inode: u64::try_from(number).ok(),
            ..ProcessSeen::default()
        }
    }

    /// Whoever acts next in the number of this process is another one.
    fn next_actor(&mut self) {
        self.last_pid += 1;
        self.host.set_process(self.host.system().own_pid, Self::seen(self.last_pid));
    }

    fn start(&mut self) -> i64 {
        self.last_pid += 1;
        self.host.set_process(self.last_pid, Self::seen(self.last_pid));
        self.last_pid
    }

    fn kill(&self, pid: Option<i64>) {
        if let Some(pid) = pid {
            let gone = ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
            self.host.set_process(pid, gone);
        }
    }

    fn kill_runner(&mut self, run: usize) {
        let runner = self.runs[run].runner.take();
        self.kill(runner);
    }

    fn kill_observer(&mut self, run: usize) {
        let observer = self.runs[run].observer.take();
        self.kill(observer);
    }

    fn record(&self, pid: i64) -> ProcessRecord {
        let system = self.host.system();
        ProcessRecord {
            pid,
            host: Some(system.host.clone()),
            pid_namespace: system.pid_namespace.clone(),
            identity: RecordedIdentity {
                start_identity: Some(format!("linux:{pid}")),
                boot_id: system.boot_id.clone(),
                pidfd_inode: u64::try_from(pid).ok(),
            },
        }
    }

    pub(super) fn pass_ms(&self, ms: i64) {
        self.host.set_now_ms(self.host.now_ms() + ms);
    }

    fn run_dir(&self, run: usize) -> usize {
        self.host.dir(&format!("/{}/{}", layout::RUNS_DIR, id(run)))
    }

    fn place<T>(&self, run: usize, act: impl FnOnce(&RunPlace<'_, usize>) -> T) -> T {
        let runs_root = self.host.dir(&format!("/{}", layout::RUNS_DIR));
        let (run_dir, run_id) = (self.run_dir(run), id(run));
        act(&RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id })
    }

    /// One step, and a look at everything.
    pub(super) fn play(&mut self, step: Step, cut: Option<usize>) -> Result<(), String> {
        self.counts.steps += 1;
        // What cannot happen yet begins with a launch.
        let step = match step {
            Step::Work(run) | Step::End(run, _) | Step::Observe(run) | Step::Deliver(run)
                if !self.runs[run].launched =>
            {
                Step::Launch(run)
            }
            step => step,
        };
        // Nothing happens in no time; and what is of this very moment has not been quiet.
        self.pass_ms(2);
        if let Some(after) = cut {
            self.host.die_after(after);
        }
        let done = self.act(step);
        let died = self.host.others_turn();
        if died {
            self.counts.crashes += 1;
            self.next_actor();
            self.bury(step);
        } else if let Err(why) = done {
            return Err(format!("it was refused: {why}"));
        }
        self.look(step)
    }

    /// Who acts in a step is gone with it.
    fn bury(&mut self, step: Step) {
        match step {
            Step::Launch(run) => {
                self.kill_observer(run);
                self.kill_runner(run);
            }
            Step::Work(run) | Step::End(run, _) => self.kill_runner(run),
            Step::Observe(run) => self.kill_observer(run),
            _ => {}
        }
    }

    fn act(&mut self, step: Step) -> Done {
        match step {
            Step::Launch(run) if !self.runs[run].launched => self.launch(run),
            Step::Work(run) if self.runs[run].lives() => self.work(run),
            Step::End(run, state) if self.runs[run].lives() => {
                self.end(run, state)?;
                self.kill_runner(run);
                Ok(())
            }
            Step::Die(run) => {
                self.kill_runner(run);
                Ok(())
            }
            Step::Stranger(run) => {
                self.stranger(run);
                Ok(())
            }
            Step::Observe(run) if !self.runs[run].lives() => self.observe(run),
            Step::ObserverDies(run) => {
                self.kill_observer(run);
                Ok(())
            }
            Step::Deliver(run) => self.deliver(run),
            Step::Recover => self.recover(Policy { grace_ms: 0, ..Policy::default() }).map(drop),
            Step::Undo => self.undo(),
            Step::Clock(ms) => {
                self.pass_ms(ms);
                Ok(())
            }
            Step::PowerCut(seed) => {
                self.cut_power(seed);
                Ok(())
            }
            // It cannot happen any more.
            Step::Launch(_) | Step::Work(_) | Step::End(..) | Step::Observe(_) => Ok(()),
        }
    }

    /// In the order of a launcher. Spec: RS-START-23.
    fn launch(&mut self, run: usize) -> Done {
        self.runs[run].launched = true;
        let (run_id, instance) = (id(run), instance(run));
        let (observer, runner) = (self.start(), self.start());
        self.runs[run].observer = Some(observer);
        self.runs[run].runner = Some(runner);
        let host = &self.host;
        let now_ms = host.now_ms();
        let runs_root = host.dir(&format!("/{}", layout::RUNS_DIR));
        let run_dir = run::create(host, &runs_root, &run_id, &RetryPolicy::default())?;
        let own = host.system().own_pid;
        let launcher = ProcessRecord::of(own, &host.process(own), host.system());
        let note = LaunchNote {
            run_id: run_id.to_string(),
            instance_id: instance.clone(),
            config_file: layout::runner_config_name(run_id.as_str()),
            created_at_ms: now_ms,
            session_id: Some(SESSION.to_owned()),
            launcher,
        };
        let options = Options::new(Durability::Durable);
        atomic::replace(host, &run_dir, layout::LAUNCH_NOTE, note.text().as_bytes(), &options)?;
        let async_dir = format!("/{}/{run_id}", layout::RUNS_DIR);
        let request = SlotRequest {
            session_id: SESSION,
            run_id: run_id.as_str(),
            async_dir: &async_dir,
            kind: SlotKind::Runner,
            limit: u32::try_from(RUNS)?,
        };
        let mut held = slot::acquire(host, &0, &request)?.ok_or("there is a limit")?;
        slot::bind(host, &0, &mut held, &instance, now_ms)?;
        let record = ObserverRecord {
            run_id: run_id.to_string(),
            instance_id: instance.clone(),
            process: self.record(observer),
            since_ms: now_ms,
        };
        observer_record::write(host, &run_dir, &record)?;
        let first = FirstStatus {
            run_id: run_id.as_str(),
            session_id: Some(SESSION),
            completion_owner_id: None,
            tool_call_id: Some(run_id.as_str()),
            mode: RunMode::Single,
            agents: &["a"],
            groups: &[],
            started_at_ms: now_ms,
            process: &self.record(runner),
            instance_id: &instance,
        };
        run::write_first(host, &run_dir, &first)?;
        self.mark(run, RunState::Running)?;
        Ok(proof::initialise(host, &run_dir, &run_id, &instance)?)
    }

    fn mark(&self, run: usize, state: RunState) -> Done {
        let (call, retry) = (id(run).as_str().into(), RetryPolicy::default());
        let runs_root = self.host.dir(&format!("/{}", layout::RUNS_DIR));
        markers::update(&self.host, &runs_root, &id(run), state, Some(&call), &retry)?;
        Ok(())
    }

    fn update(&self, run: usize, patch: &StatusPatch) -> Done {
        let (run_dir, run_id, instance) = (self.run_dir(run), id(run), instance(run));
        let place =
            StatusPlace { host: &self.host, run_dir: &run_dir, run_id: &run_id, locks: None };
        run::update(&place, Author::Runner { instance: &instance }, patch)?;
        Ok(())
    }

    fn step(&self, state: StepState) -> StepAccount {
        let started_at_ms = Some(self.host.now_ms());
        StepAccount { state, started_at_ms, ..StepAccount::pending("a") }
    }

    fn work(&mut self, run: usize) -> Done {
        let step = self.step(StepState::Running);
        let patch = StatusPatch::at(self.host.now_ms());
        self.update(run, &patch.member("steps", steps(&[step], id(run).as_str(), &instance(run))))
    }

    /// In the order of a runner. Spec: RS-STEP-07.
    fn end(&mut self, run: usize, state: RunState) -> Done {
        self.runs[run].may_have_ended = true;
        self.counts.ends += 1;
        let (host, run_id, instance) = (&self.host, id(run), instance(run));
        let (run_dir, now_ms) = (self.run_dir(run), host.now_ms());
        let step = match state {
            RunState::Complete => self.step(StepState::Complete),
            RunState::Stopped => self.step(StepState::Stopped),
            _ => self.step(StepState::Failed),
        };
        let payload = RunResult {
            run_id: run_id.as_str(),
            session_id: SESSION,
            completion_owner_id: None,
            mode: RunMode::Single,
            state,
            error: (state == RunState::Failed).then_some("it failed"),
            timed_out: false,
            steps: std::slice::from_ref(&step),
            outputs: &[],
            ended_at_ms: now_ms,
            duration_ms: 1,
            cwd: "/",
            async_dir: "/",
        }
        .text();
        let results = host.dir(&format!("/{}", layout::RESULTS_DIR));
        let (file, retry) = (format!("{run_id}.json"), RetryPolicy::default());
        publish::publish(host, &results, &file, &payload, Some(&run_dir), &retry)?;
        let patch = StatusPatch::at(now_ms).state(state).ended_at_ms(now_ms);
        self.update(run, &patch.member("steps", steps(&[step], run_id.as_str(), &instance)))?;
        self.runs[run].told_end = Some(state);
        self.mark(run, state)?;
        let host = &self.host;
        let members = [("status", written::string(state.as_str()))];
        let line = event("subagent.run.completed", run_id.as_str(), now_ms, true, &members);
        journal::append(host, &run_dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES)?;
        let writers = [Vec::new()];
        Ok(candidate::record_writers(host, &run_dir, run_id.as_str(), &instance, &writers)?)
    }

    /// The number of a runner that is gone is given to another process.
    fn stranger(&mut self, run: usize) {
        let text = self.host.text(&path(run, layout::STATUS));
        let pid = text.and_then(|text| Document::parse(&text).ok()?.get("pid")?.integer());
        if let Some(pid) = pid.filter(|_| !self.runs[run].lives()) {
            self.last_pid += 1;
            self.host.set_process(pid, Self::seen(self.last_pid));
        }
    }

    /// In the order of a shim. Spec: RS-OBS-06, RS-OBS-07.
    fn observe(&mut self, run: usize) -> Done {
        let (host, run_id, instance) = (&self.host, id(run), instance(run));
        // A runner without a proof was never told to proceed, and its shim ends with it.
        let is_let_in = host.has(&path(run, layout::PROOF));
        if self.runs[run].observer.is_none() || !is_let_in {
            return Ok(());
        }
        let now_ms = host.now_ms();
        candidate::record_no_writers(host, &self.run_dir(run), run_id.as_str(), &instance, 1)?;
        self.runs[run].witnessed = true;
        let witness = ExitWitness::from_wait(&instance, now_ms, Exit::Code(0));
        let done = self.place(run, |place| proof::finalise(&self.host, place, &witness))?;
        if done.proof.state == ProofState::Observed {
            self.counts.proofs += 1;
            slot::release_of_run(&self.host, &0, SESSION, run_id.as_str(), &instance)?;
        }
        self.kill_observer(run);
        Ok(())
    }

    /// A parent reads what waits for it, hands it over, and marks it.
    fn deliver(&mut self, run: usize) -> Done {
        let (host, file) = (&self.host, format!("{}.json", id(run)));
        let (session, run_name) = (SESSION.into(), id(run).as_str().to_owned());
        let names = ResultNames::new(&file, &session, &run_name.as_str().into())?;
        let Some(text) = super::look::result(host, run) else { return Ok(()) };
        let doc = Document::parse(&text)?;
        if doc.get("notificationDeliveredAt").is_some() {
            return Ok(());
        }
        let what = |doc: &Document<'_>| {
            let state = doc.get("state").and_then(|raw| raw.exact_string());
            let at_ms = doc.get("timestamp").and_then(|raw| raw.integer());
            state.zip(at_ms)
        };
        let handed = what(&doc).ok_or("a result has a state and an instant")?;
        self.counts.deliveries += 1;
        self.runs[run].delivered.insert(handed.clone());
        let results = host.dir(&format!("/{}", layout::RESULTS_DIR));
        let is_it = |doc: &Document<'_>| what(doc).as_ref() == Some(&handed);
        let retry = RetryPolicy::default();
        mark_delivered(host, &results, &names, host.now_ms(), is_it, &retry)?;
        Ok(())
    }

    /// Says how much was done.
    pub(super) fn recover(&mut self, policy: Policy) -> Result<usize, Box<dyn std::error::Error>> {
        let wanted = Wanted { policy, times: Times::default(), ..Wanted::default() };
        let done = runstore::recover::apply(&self.host, Path::new("/"), None, &wanted, &mut |_| {});
        let done = match done {
            Err(ApplyError::Contended(what)) => return Err(format!("{what} is held").into()),
            done => done?,
        };
        for one in &done.done {
            *self.counts.repairs.entry(one.action.clone()).or_default() += 1;
        }
        let left = done.left.iter().map(|left| format!("{}: {}", left.run_id, left.why));
        let refused = done.refused.iter().map(|one| format!("{}: {}", one.run_id, one.why));
        self.refused = left.chain(refused).chain(done.problems.clone()).collect();
        if let Some(why) = done.stopped {
            return Err(why.into());
        }
        Ok(done.done.len() + done.finished.len())
    }

    fn undo(&mut self) -> Done {
        // Also where it is cut off.
        self.runs.iter_mut().for_each(|run| run.undone = true);
        let undone = runstore::recover::undo(&self.host, Path::new("/"), None)?;
        self.counts.undone += undone.undone.len();
        Ok(())
    }

    fn cut_power(&mut self, seed: u64) {
        self.counts.power_cuts += 1;
        self.boots += 1;
        let boot = format!("boot-{}", self.boots);
        self.host = power_cut(&self.host, seed).with_boot(&boot);
        for run in &mut self.runs {
            run.runner = None;
            run.observer = None;
        }
        self.next_actor();
    }

    /// Everybody is gone, a day passes, and one recoverer cleans up.
    pub(super) fn clean_up(&mut self) -> Result<(), String> {
        for run in 0..RUNS {
            self.kill_runner(run);
            self.kill_observer(run);
        }
        self.next_actor();
        // Also where the clock was set back since.
        self.pass_ms(40 * 3_600_000);
        let policy = Policy { grace_ms: 0, abandoned_slots: true, ..Policy::default() };
        for _ in 0..5 {
            let done = self.recover(policy).map_err(|e| format!("the last recovery: {e}"))?;
            self.look(Step::Recover).map_err(|why| format!("the last recovery: {why}"))?;
            self.pass_ms(40 * 3_600_000);
            if done == 0 {
                return self.is_clean();
            }
        }
        Err("recoveries find something to do for ever".to_owned())
    }

    pub(super) fn lie(&mut self, lie: Lie) {
        let replace = |path: &str, from: &str, to: &str| {
            let text = self.host.text(path).expect("there");
            assert!(text.contains(from), "{text}");
            self.host.put(path, text.replace(from, to));
        };
        let slot = format!("/{}/{}/slot-9", layout::CAPACITY_DIR, slot::pool_name(SESSION));
        match lie {
            Lie::EndChanged => replace(
                &path(0, layout::STATUS),
                "\"state\": \"complete\"",
                "\"state\": \"failed\"",
            ),
            Lie::ProofWithoutWitness => {
                let proof = self.host.text(&path(0, layout::PROOF)).expect("there");
                let proof = proof.replace("run-0", "run-1").replace("instance-0", "instance-1");
                self.host.put(&path(1, layout::PROOF), proof);
            }
            Lie::SlotOfNobody => {
                self.host.make_dir(&slot);
                let owner = testkit::records::slot("run-9", 1);
                self.host.put(&format!("{slot}/owner.json"), owner.to_string());
            }
            Lie::SecondResult => {
                self.runs[0].delivered.insert(("complete".to_owned(), 1));
                self.runs[0].delivered.insert(("failed".to_owned(), 2));
            }
        }
    }
}
