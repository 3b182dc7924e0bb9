//! One run in a process of its own, cheap enough that hundreds of them live at a time.
//!
//! `race-run ROOT RUN-ID SESSION LIFE_MS FATE OFFSET_MS PLACE TRAITS` begins the run as a launcher and its
//! runner would, lives until its time is over or its standard input ends, and then meets its fate:
//!
//! * `end`, `fail`: it ends in the order of a runner, as complete or failed;
//! * `die`: it is killed, as it stands;
//! * `cut:MICROSECONDS`: it ends as complete, and is killed so long after it began to.
//!
//! `OFFSET_MS` is how far its clock is off: the instants of its records and the times of its files. `PLACE`
//! is `here`, or a name of another host, of which it says to be. `TRAITS` are letters: `l` takes the lock of
//! the run for each update, `p` prepares a proof that nobody decides, `s` holds a slot.
//!
//! It tells what is there for certain, one line each, after it was written: `up RUN DIGEST`, `result RUN DIGEST`,
//! `status RUN DIGEST`, `done RUN`; and `problem RUN TEXT`. A digest is that of the file. A killed run has told
//! less than it wrote, never more.
//!
//! Not promised: a proof. Nobody watches these runs, so none may ever be called observed.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "its output is its answer")]

use std::error::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use runstore::protocol::account::Author;
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::process::ProcessRecord;
use runstore::protocol::segment::sha256_hex;
use runstore::protocol::slot::SlotKind;
use runstore::protocol::state::StepState;
use runstore::protocol::written_run::{self, RunResult, StepAccount};
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{RunMode, RunState, Word as _, layout, limits, written};
use runstore::store::advisory::Locks;
use runstore::store::host::{Host, Part};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StatusPlace};
use runstore::store::slot::{self, SlotRequest};
use runstore::store::{RealHost, candidate, directory, identity, journal, markers, proof, publish};
use testkit::driver::{self, Done};
use testkit::tree;

/// More slots than runs of one session that are left behind in a race.
const SLOT_LIMIT: u32 = 10_000;

fn main() -> ExitCode {
    driver::main(|args| match args {
        [root, id, session, life_ms, fate, offset_ms, place, traits] => {
            let story = Story {
                fate: Fate::read(fate)?,
                life: Duration::from_millis(life_ms.parse()?),
                offset_ms: offset_ms.parse()?,
                elsewhere: (*place != "here").then_some(place),
                traits,
            };
            let run_id = RunId::parse(id)?;
            Racer::new(Path::new(root), &run_id, session, story)?.race()
        }
        _ => Err("usage: race-run ROOT RUN-ID SESSION LIFE_MS FATE OFFSET_MS PLACE TRAITS".into()),
    })
}

/// How a run is to end.
#[derive(Clone, Copy)]
enum Fate {
    End(RunState),
    Die,
    Cut(Duration),
}

impl Fate {
    fn read(text: &str) -> Result<Self, Box<dyn Error>> {
        Ok(match text {
            "end" => Self::End(RunState::Complete),
            "fail" => Self::End(RunState::Failed),
            "die" => Self::Die,
            _ => {
                let after = text.strip_prefix("cut:").ok_or("which fate?")?;
                Self::Cut(Duration::from_micros(after.parse()?))
            }
        })
    }
}

struct Story<'a> {
    fate: Fate,
    life: Duration,
    offset_ms: i64,
    elsewhere: Option<&'a str>,
    traits: &'a str,
}

impl Story<'_> {
    fn has(&self, letter: char) -> bool {
        self.traits.contains(letter)
    }
}

type Dir = <RealHost as Host>::Dir;

struct Racer<'a> {
    host: RealHost,
    temp: Dir,
    runs: Dir,
    results: Dir,
    path: PathBuf,
    run_id: &'a RunId,
    session: &'a str,
    instance: String,
    story: Story<'a>,
}

impl<'a> Racer<'a> {
    fn new(
        root: &Path,
        run_id: &'a RunId,
        session: &'a str,
        story: Story<'a>,
    ) -> Result<Self, Box<dyn Error>> {
        let host = RealHost::new();
        let retry = RetryPolicy::default();
        let temp = directory::open_root(&host, root)?;
        let runs = directory::create_path(&host, &temp, &[layout::RUNS_DIR], &retry)?;
        let results = directory::create_path(&host, &temp, &[layout::RESULTS_DIR], &retry)?;
        let path = root.join(layout::RUNS_DIR).join(run_id.as_str());
        let instance = identity::instance_id(&host);
        Ok(Self { host, temp, runs, results, path, run_id, session, instance, story })
    }

    fn race(&self) -> Done {
        let started_at_ms = self.now_ms();
        let run_dir = run::create(&self.host, &self.runs, self.run_id, &RetryPolicy::default())?;
        if self.story.has('s') {
            self.take_slot(started_at_ms)?;
        }
        self.begin(&run_dir, started_at_ms)?;
        self.tell("up", &self.digest(&run_dir)?);
        self.live();
        match self.story.fate {
            Fate::Die => die(),
            Fate::Cut(after) => {
                std::thread::spawn(move || {
                    // The moment is drawn by whoever tells this story; nothing waits for it.
                    let (_nobody, never) = mpsc::channel::<()>();
                    let _ = never.recv_timeout(after);
                    die();
                });
                self.end(&run_dir, RunState::Complete, started_at_ms)?;
                // The cut may come late; nothing more is written.
                self.tell("done", "late");
                die()
            }
            Fate::End(state) => {
                self.end(&run_dir, state, started_at_ms)?;
                self.tell("done", "whole");
                Ok(())
            }
        }
    }

    /// What the clock of this run shows.
    fn now_ms(&self) -> i64 {
        self.host.now_ms() + self.story.offset_ms
    }

    /// The files of this run have times of its clock.
    fn date(&self) -> Done {
        if self.story.offset_ms != 0 {
            let at_ms = u64::try_from(self.now_ms())?;
            tree::set_time_ms(&self.path.join(layout::STATUS), at_ms)?;
            tree::set_time_ms(&self.path, at_ms)?;
        }
        Ok(())
    }

    fn tell(&self, what: &str, more: &str) {
        println!("{what} {} {more}", self.run_id);
    }

    fn note(&self, what: &str, e: &dyn Error) {
        self.tell("problem", &format!("{what}: {}", with_causes(e)).replace('\n', " "));
    }

    fn digest(&self, run_dir: &Dir) -> Result<String, Box<dyn Error>> {
        let part = Part::All(limits::STATUS_MAX_BYTES);
        let read = self.host.read_at(run_dir, layout::STATUS.as_ref(), part);
        let read = read.map_err(|e| format!("the status cannot be read: {e:?}"))?;
        Ok(sha256_hex(&read.bytes))
    }

    fn take_slot(&self, started_at_ms: i64) -> Done {
        let async_dir = self.path.to_string_lossy();
        let request = SlotRequest {
            session_id: self.session,
            run_id: self.run_id.as_str(),
            async_dir: &async_dir,
            kind: SlotKind::Runner,
            limit: SLOT_LIMIT,
        };
        let held = slot::acquire(&self.host, &self.temp, &request)?;
        let mut held = held.ok_or("there is a limit")?;
        Ok(slot::bind(&self.host, &self.temp, &mut held, &self.instance, started_at_ms)?)
    }

    fn process(&self) -> ProcessRecord {
        let own = identity::own(&self.host);
        match self.story.elsewhere {
            None => own,
            Some(name) => ProcessRecord { host: Some(name.to_owned()), pid_namespace: None, ..own },
        }
    }

    fn begin(&self, run_dir: &Dir, started_at_ms: i64) -> Done {
        let (host, run_id) = (&self.host, self.run_id.as_str());
        let first = FirstStatus {
            run_id,
            session_id: Some(self.session),
            completion_owner_id: None,
            tool_call_id: Some(run_id),
            mode: RunMode::Single,
            agents: &["racer"],
            groups: &[],
            started_at_ms,
            process: &self.process(),
            instance_id: &self.instance,
        };
        run::write_first(host, run_dir, &first)?;
        self.mark(RunState::Running)?;
        if self.story.has('p') {
            proof::initialise(host, run_dir, self.run_id, &self.instance)?;
        }
        let step = self.step(StepState::Running, started_at_ms);
        let steps = written_run::steps(&[step], run_id, &self.instance);
        self.update(run_dir, &StatusPatch::at(self.now_ms()).member("steps", steps))?;
        self.date()
    }

    fn step(&self, state: StepState, started_at_ms: i64) -> StepAccount {
        let started_at_ms = Some(started_at_ms);
        StepAccount { state, started_at_ms, ..StepAccount::pending("racer") }
    }

    fn mark(&self, state: RunState) -> Done {
        let (call, retry) = (self.run_id.as_str().into(), RetryPolicy::default());
        let updated =
            markers::update(&self.host, &self.runs, self.run_id, state, Some(&call), &retry)?;
        updated.problems.iter().for_each(|e| self.note("the indexes", e));
        Ok(())
    }

    /// Until its time is over, or there is nobody any more who started it.
    fn live(&self) {
        let (tell, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read(&mut [0]);
            let _ = tell.send(());
        });
        let _ = ended.recv_timeout(self.story.life);
    }

    fn update(&self, run_dir: &Dir, patch: &StatusPatch) -> Done {
        let place = self.path.parent().map(|dir| dir.to_string_lossy()).unwrap_or_default();
        let locks = Locks::new(&self.host, &self.runs, &place, 10_000);
        let locks = self.story.has('l').then_some(&locks);
        let (host, run_id) = (&self.host, self.run_id);
        let place = StatusPlace { host, run_dir, run_id, locks };
        run::update(&place, Author::Runner { instance: &self.instance }, patch)?;
        Ok(())
    }

    /// In the order of a runner: result, status, indexes, event, candidate; then the slot.
    fn end(&self, run_dir: &Dir, state: RunState, started_at_ms: i64) -> Done {
        let (host, run_id) = (&self.host, self.run_id.as_str());
        let ended_at_ms = self.now_ms();
        let success = state == RunState::Complete;
        let step = StepAccount {
            ended_at_ms: Some(ended_at_ms),
            exit_code: Some(i64::from(!success)),
            ..self
                .step(if success { StepState::Complete } else { StepState::Failed }, started_at_ms)
        };
        let text = RunResult {
            run_id,
            session_id: self.session,
            completion_owner_id: None,
            mode: RunMode::Single,
            state,
            error: (!success).then_some("it lost"),
            timed_out: false,
            steps: std::slice::from_ref(&step),
            outputs: &[],
            ended_at_ms,
            duration_ms: ended_at_ms - started_at_ms,
            cwd: "/",
            async_dir: &self.path.to_string_lossy(),
        }
        .text();
        let retry = RetryPolicy::default();
        let file = format!("{run_id}.json");
        let published = publish::publish(host, &self.results, &file, &text, Some(run_dir), &retry)?;
        published.problems.iter().for_each(|e| self.note("the result", e));
        self.tell("result", &sha256_hex(text.as_bytes()));
        let steps = written_run::steps(&[step], run_id, &self.instance);
        let patch = StatusPatch::at(ended_at_ms)
            .state(state)
            .ended_at_ms(ended_at_ms)
            .member("steps", steps);
        let patch = if success { patch } else { patch.error("it lost") };
        self.update(run_dir, &patch)?;
        self.tell("status", &self.digest(run_dir)?);
        self.date()?;
        self.mark(state)?;
        let members = [("status", written::string(state.as_str()))];
        let kind = "subagent.run.completed";
        let line = written_run::event(kind, run_id, ended_at_ms, true, &members);
        journal::append(host, run_dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES)?;
        if self.story.has('p') {
            candidate::record_writers(host, run_dir, run_id, &self.instance, &[Vec::new()])?;
        }
        if self.story.has('s') {
            let freed =
                slot::release_of_run(host, &self.temp, self.session, run_id, &self.instance)?;
            if !freed {
                self.tell("problem", "its slot was taken from it");
            }
        }
        Ok(())
    }
}

/// Ends this process without another step.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The first process of a namespace takes no signal of its own.
    std::process::exit(137)
}
