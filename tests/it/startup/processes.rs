//! Start-ups with a runner that is a process: started, killed at every word, and left alone by its launcher.
//! Spec: RS-START-27, RS-START-31 to RS-START-33, RS-START-40 to RS-START-42, RS-START-48, RS-START-52.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use runstore::launcher::{Launch, Outcome, Place, Poll, Request, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::lease::LeaseState;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::process::{Children, Exit, Life, Spawn, SpawnPlan, Spawned, Terminate};
use runstore::store::slot::occupied;
use runstore::store::{RealHost, proof};
use serde_json::{Value, json};
use testkit::driver;
use testkit::launch::STEPS;

use super::real::Real;
use crate::place::until;

/// A process of `start-runner`, which this test is the parent of: the launch has it, and the test too.
#[derive(Clone)]
struct Process(Rc<RefCell<Box<dyn Spawned>>>);

impl Process {
    fn wait(&self) -> Exit {
        loop {
            if let Life::Ended(exit) = self.0.borrow_mut().look() {
                return exit.expect("its parent is told");
            }
            RealHost::new().wait_ms(1);
        }
    }
}

impl Spawned for Process {
    fn pid(&self) -> u32 {
        self.0.borrow().pid()
    }

    fn look(&mut self) -> Life {
        self.0.borrow_mut().look()
    }

    fn terminate(&mut self, how: Terminate) -> io::Result<()> {
        self.0.borrow_mut().terminate(how)
    }
}

struct Runners {
    children: Children<RealHost>,
    last: Option<Process>,
}

impl Spawn for Runners {
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        let process = Process(Rc::new(RefCell::new(self.children.spawn(plan)?)));
        self.last = Some(process.clone());
        Ok(Box::new(process))
    }
}

impl Real {
    fn json(&self, run: &str, name: &str) -> Value {
        let bytes = fs::read(self.runs.join(run).join(name)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }

    fn slots(&self) -> usize {
        let temp = self.host.open_dir(&self.root).expect("there");
        occupied(&self.host, &temp, "S").expect("readable").len()
    }

    /// Starts a run and hands the launch on.
    fn started<T>(
        &self,
        run: &str,
        is_revival: bool,
        runners: &mut Runners,
        act: impl FnOnce(&mut Launch<'_, RealHost>) -> T,
    ) -> T {
        self.with(run, is_revival, |prepared| {
            act(&mut prepared.start(runners).expect("it is made"))
        })
    }

    fn runners(&self, budget_ms: u32, how: &str) -> Runners {
        let args = vec![self.root.clone().into(), budget_ms.to_string().into(), how.into()];
        let program = driver::start_runner().into();
        Runners { children: Children::new(Arc::new(RealHost::new()), program, args), last: None }
    }
}

#[test]
fn a_process_is_let_in_in_both_variants_and_its_end_can_be_proven() {
    for is_revival in [false, true] {
        let real = Real::new();
        let mut runners = real.runners(30_000, "work");
        let (pid, instance) = real.started("run-1", is_revival, &mut runners, |launch| {
            let outcome = launch.wait();
            let Outcome::Started(started) = outcome else { panic!("{outcome:?}") };
            assert!(started.problems.is_empty() && !started.ran_ahead, "{started:?}");
            (started.pid, started.instance_id.clone())
        });
        let exit = runners.last.expect("made").wait();
        assert_eq!(exit, Exit::Code(0));
        let status = real.json("run-1", "status.json");
        assert_eq!(status["pid"], pid, "{status}");
        let left = fs::read_dir(real.runs.join("run-1")).expect("there");
        let left: Vec<_> = left.map(|e| e.expect("readable").file_name()).collect();
        let messages = left.iter().filter(|name| name.to_string_lossy().contains("startup"));
        assert_eq!(messages.count(), 0, "everything was consumed: {left:?}");
        assert!(!real.root.join("async-cfg-run-1.json").exists(), "no prompts are left");
        assert_eq!(real.lease("run-1"), LeaseState::Free);
        let candidate = real.json("run-1", "process-terminal-candidate.json");
        assert_eq!(candidate["runnerProcessInstanceId"], instance.as_str());
        assert_eq!(candidate["revivalLeaseReleaseAcknowledged"] == true, is_revival);
    }
}

#[test]
fn a_process_that_is_killed_at_any_word_is_noticed_and_everything_is_taken_back() {
    for state in ["begin", "ready", "acknowledged", "confirmed"] {
        let real = Real::new();
        let how = format!("die-{state}");
        // A launcher that answers before the runner has to wait lets it in.
        let mut runners = real.runners(30_000, &how);
        let started = real.started("run-1", true, &mut runners, |launch| match launch.wait() {
            Outcome::Started(_) => true,
            Outcome::Died(failed) => {
                let killed = Some(Some(Exit::Signal("SIGKILL".to_owned())));
                assert_eq!(failed.ended, killed, "{state}");
                assert_eq!((failed.left.len(), &failed.unrecorded), (0, &None), "{state}");
                false
            }
            other => panic!("{state}: {other:?}"),
        });
        runners.last.expect("made").wait();
        if started {
            assert_ne!(state, "begin", "somebody has to say something");
            continue;
        }
        let status = real.json("run-1", "status.json");
        assert_eq!(status["state"], "failed", "{state}");
        let candidate = real.json("run-1", "process-terminal-candidate.json");
        assert_eq!(candidate["expectedWriters"], json!({"0": 0}), "{state}");
        assert_eq!((real.slots(), real.lease("run-1")), (0, LeaseState::Free), "{state}");
        assert!(!real.root.join("async-cfg-run-1.json").exists(), "{state}: no prompts are left");
    }
}

/// Says so many words to a runner of this patience and is gone then. `None` when the runner lost it before, or
/// answered so quickly that one look of the launcher went all the way: a machine that has other things to do
/// has either.
fn left_alone(real: &Real, words: usize, budget_ms: u32) -> Option<Exit> {
    let mut runners = real.runners(budget_ms, "work");
    let said = |name: &str| real.runs.join("run-1").join(name).exists();
    let enough = || match words {
        0 => true,
        1 => said("runner-startup-ack.json"),
        _ => said("runner-startup-confirm.json"),
    };
    let is_left = real.started("run-1", true, &mut runners, |launch| {
        while !enough() {
            match launch.poll() {
                Poll::Wait(ms) => real.host.wait_ms(ms),
                Poll::Done(_) => return false,
            }
        }
        true
    });
    let exit = runners.last.expect("made").wait();
    is_left.then_some(exit)
}

#[test]
fn a_process_whose_launcher_is_gone_gives_up_by_itself_and_frees_its_session() {
    // After so many words of the launcher, which then says nothing any more.
    for words in 0..3 {
        let patience = [300, 3_000, 300, 3_000, 300, 3_000, 30_000, 30_000];
        let (real, exit, budget_ms) = patience
            .into_iter()
            .find_map(|budget_ms| {
                let real = Real::new();
                let exit = left_alone(&real, words, budget_ms)?;
                Some((real, exit, budget_ms))
            })
            .expect("a launcher can be left alone with its runner");
        assert_eq!(exit, Exit::Code(1), "{words}");
        let within = format!("within {budget_ms} ms");
        let said = real.json("run-1", "runner-startup.json");
        assert_eq!(said["state"], "error", "{words}: {said}");
        assert!(said["error"].as_str().is_some_and(|e| e.contains(&within)), "{said}");
        assert_eq!(real.lease("run-1"), LeaseState::Free, "{words}");
        let log = fs::read_to_string(real.runs.join("run-1/runner.stderr.log")).expect("there");
        assert!(log.contains(&within), "{words}: it is in its log as well: {log}");
    }
}

#[test]
fn a_process_that_cannot_begin_after_it_was_let_in_is_a_failed_run() {
    let real = Real::new();
    let mut runners = real.runners(30_000, "fail");
    let instance = real.started("run-1", true, &mut runners, |launch| {
        assert!(matches!(launch.wait(), Outcome::Started(_)), "it was let in");
        launch.instance_id().to_owned()
    });
    let exit = runners.last.expect("made").wait();
    assert_eq!(exit, Exit::Code(1));
    assert_eq!(real.json("run-1", "status.json")["processTerminal"]["state"], "not-started");
    assert_eq!(real.lease("run-1"), LeaseState::Free);
    // Whoever waited for it proves its end.
    let (temp, runs_root) = (real.host.open_dir(&real.root), real.host.open_dir(&real.runs));
    let run_dir = real.host.open_dir(&real.runs.join("run-1")).expect("there");
    let run_id = RunId::parse("run-1").expect("an id");
    let place = proof::RunPlace {
        temp: &temp.expect("there"),
        runs_root: &runs_root.expect("there"),
        run_dir: &run_dir,
        run_id: &run_id,
    };
    let witness = proof::ExitWitness::from_wait(&instance, real.host.now_ms(), exit);
    let done = proof::finalise(&real.host, &place, &witness).expect("room");
    assert_eq!((done.row, done.missing.len()), ("F-12", 0), "observed: {done:?}");
    assert!(!real.runs.join(".active-runs/run-1").exists());
}

#[test]
fn many_launches_are_led_at_once_by_one_thread() {
    const RUNS: usize = 12;
    let real = Real::new();
    let ids: Vec<_> =
        (0..RUNS).map(|n| RunId::parse(&format!("run-{n:02}")).expect("an id")).collect();
    let temp = real.host.open_dir(&real.root).expect("there");
    let runs_root = real.host.open_dir(&real.runs).expect("there");
    let (temp_path, runs_path) = (real.root.as_path(), real.runs.as_path());
    let place = Place { temp: &temp, temp_path, runs_root: &runs_root, runs_path };
    let sessions: Vec<_> = ids.iter().map(|id| real.session(id.as_str())).collect();
    let result = real.root.join("results");
    let mut runners = real.runners(30_000, "work");
    let mut processes = Vec::new();
    let mut launches: Vec<_> = ids
        .iter()
        .zip(&sessions)
        .map(|(run_id, session)| {
            let session_file = session.to_str().expect("text");
            let revival = Some(RevivalText { session_file, source_run_id: "run-0" });
            let request = Request {
                session_id: Some("S"),
                revival,
                ..Request::new(run_id, RunMode::Single, STEPS, &real.root, &result)
            };
            let prepared = prepare(&real.host, place, request).expect("nothing is in the way");
            let launch = prepared.start(&mut runners).expect("it is made");
            processes.extend(runners.last.take());
            launch
        })
        .collect();
    loop {
        let mut pause = None;
        for launch in &mut launches {
            match launch.poll() {
                Poll::Wait(ms) => pause = Some(pause.unwrap_or(ms).min(ms)),
                Poll::Done(outcome) => {
                    assert!(matches!(outcome, Outcome::Started(_)), "{outcome:?}")
                }
            }
        }
        let Some(ms) = pause else { break };
        real.host.wait_ms(ms);
    }
    for process in &processes {
        assert_eq!(process.wait(), Exit::Code(0));
    }
    assert_eq!(processes.len(), RUNS);
    let marked = fs::read_dir(real.runs.join(".active-runs")).expect("there").count();
    assert_eq!(marked, RUNS, "the index is exact");
}

/// A plan whose configuration is this script, for a shell.
fn plan(real: &Real, script: &str) -> SpawnPlan {
    let config_path = real.root.join("script");
    fs::write(&config_path, script).expect("room");
    SpawnPlan {
        config_path,
        run_dir: real.runs.clone(),
        cwd: real.root.clone(),
        stdout_log: "out.log",
        stderr_log: "err.log",
        set_env: vec![("SET".into(), "set".into())],
        remove_env: vec!["CARGO_MANIFEST_DIR".into()],
        instance_id: "i".to_owned(),
    }
}

#[test]
fn a_child_gets_what_the_plan_says_and_ends_when_it_is_told_to() {
    for (how, signal) in [(Terminate::Ask, "SIGTERM"), (Terminate::Force, "SIGKILL")] {
        let real = Real::new();
        let script = concat!(
            "pwd\ncase $- in *f*) set -- \"$1 -f\";; esac\n",
            "echo \"$SET ${CARGO_MANIFEST_DIR-gone} $1\" >&2\nwhile :; do :; done\n"
        );
        let args = vec!["after".into()];
        let children = Children::new(Arc::new(RealHost::new()), "/bin/sh".into(), args);
        let mut children = children.words(vec!["-f".into()]);
        let child = children.spawn(&plan(&real, script)).expect("it is made");
        let mut child = Process(Rc::new(RefCell::new(child)));
        let log = |name: &str| fs::read_to_string(real.runs.join(name)).expect("it is there");
        until("it says what it has", || log("err.log").ends_with('\n'));
        assert_eq!(log("err.log"), "set gone after -f\n");
        assert_eq!(log("out.log"), format!("{}\n", real.root.display()));
        assert_eq!(child.look(), Life::Running, "nobody told it to end");
        child.terminate(how).expect("it is ours");
        assert_eq!(child.wait(), Exit::Signal(signal.to_owned()));
        child.terminate(how).expect("one that has ended is no error");
        assert!(child.look().has_ended(), "once ended it stays ended");
    }
}

#[test]
fn a_program_that_is_not_there_is_no_child() {
    let real = Real::new();
    let mut none = Children::new(Arc::new(RealHost::new()), "/no/such/program".into(), Vec::new());
    let failed = none.spawn(&plan(&real, "")).err().expect("nothing is there");
    assert_eq!(failed.kind(), io::ErrorKind::NotFound);
}
