//! A run in the hands of a runner that does its own work, on a disk in memory whose clock only waits move.
//! Spec: RS-STEP-02 to RS-STEP-05, RS-STEP-08, RS-START-80 to RS-START-88, RS-RESULT-40.

use std::path::Path;

use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::protocol::written_run::Activity;
use runstore::protocol::written_status::StepGroup;
use runstore::protocol::{RunMode, RunState, StepState};
use runstore::runner::job::{Desk, DeskError, Job, RunnerError};
use runstore::runner::session::{Cut, Order, Session, StepEnd, Work};
use runstore::runner::startup::{Startup, read_config};
use runstore::store::append::{self, AppendError};
use runstore::store::host::{Exit, Host as _, WriteHost as _};
use runstore::store::inbox::Message;
use runstore::store::proof::{RunPlace, initialise};
use runstore::store::run::StatusPlace;
use serde_json::{Value, json};
use testkit::fault::{Effect, FaultHost};

const RUN: &str = "/async-subagent-runs/run-1";

/// A run that was let in, and its places.
struct World {
    host: FaultHost,
    run_id: RunId,
    runs_root: usize,
    run_dir: usize,
    results: usize,
}

impl World {
    fn new() -> Self {
        let host = FaultHost::new();
        for path in ["/async-subagent-runs", RUN, "/async-subagent-results"] {
            host.make_dir(path);
        }
        let (runs_root, run_dir) = (host.dir("/async-subagent-runs"), host.dir(RUN));
        let results = host.dir("/async-subagent-results");
        let run_id = RunId::parse("run-1").expect("an id");
        initialise(&host, &run_dir, &run_id, "i").expect("room");
        let steps = r#"[{"agent":"a","status":"pending"},{"agent":"b","status":"pending"}]"#;
        let status = format!(
            r#"{{"runId":"run-1","sessionId":"S","state":"running","lastUpdate":1,"steps":{steps},"theirs":1}}"#
        );
        host.put(&format!("{RUN}/status.json"), &status);
        host.make_dir("/async-subagent-runs/.active-runs");
        host.put("/async-subagent-runs/.active-runs/run-1", "");
        Self { host, run_id, runs_root, run_dir, results }
    }

    fn job(&self) -> Job<'_, FaultHost> {
        let (runs_root, run_dir, run_id) = (&self.runs_root, &self.run_dir, &self.run_id);
        Job {
            host: &self.host,
            place: RunPlace { temp: &0, runs_root, run_dir, run_id },
            results: &self.results,
            locks: None,
            instance_id: "i",
            session_id: Some("S"),
            completion_owner_id: Some("o"),
            cwd: "/",
            async_dir: RUN,
            lease: None,
        }
    }

    fn json(&self, path: &str) -> Value {
        let text = self.host.text(path).unwrap_or_else(|| panic!("{path} is not there"));
        serde_json::from_str(&text).expect("JSON")
    }

    fn status(&self) -> Value {
        self.json(&format!("{RUN}/status.json"))
    }

    fn events(&self) -> Vec<Value> {
        let text = self.host.text(&format!("{RUN}/events.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    fn kinds(&self) -> Vec<String> {
        let kind = |event: &Value| event["type"].as_str().expect("a word").to_owned();
        self.events().iter().map(kind).collect()
    }

    fn ask(&self, name: &str, text: &str) {
        let mut dir = RUN.to_owned();
        for part in format!("control/{name}").rsplit_once('/').expect("a folder").0.split('/') {
            dir = format!("{dir}/{part}");
            if !self.host.has(&dir) {
                self.host.make_dir(&dir);
            }
        }
        self.host.put(&format!("{RUN}/control/{name}"), text);
    }
}

fn two() -> Work<'static> {
    Work::new(RunMode::Parallel, &["a", "b"])
}

#[test]
fn a_runner_of_its_own_work_is_recorded_as_it_says_and_ends_in_order() {
    let world = World::new();
    let job = world.job();
    let mut session = Session::begin(&job, &two()).expect("ours");
    session.step_started(0, None).expect("pending");
    session.step_started(1, Some(8)).expect("pending");
    session.output(0, b"said\n");
    session.describe(0, "sessionFile", r#""/s.jsonl""#).expect("the runner's own");
    session.tell("mine.turn", &[("tokens", " {\"in\": 1,\n \"out\": 2} ")]).expect("JSON");
    world.host.wait_ms(5);
    session.step_ended(0, StepEnd::complete()).expect("at work");
    session.step_ended(1, StepEnd::exited(Exit::Code(0))).expect("at work");
    let finished = session.finish().expect("ours");
    assert_eq!((finished.state, finished.problems), (RunState::Complete, Vec::new()));
    let status = world.status();
    assert_eq!((&status["state"], &status["theirs"]), (&json!("complete"), &json!(1)));
    assert_eq!(status["steps"][0]["sessionFile"], "/s.jsonl");
    assert_eq!(status["steps"][0]["durationMs"], 5);
    assert_eq!(
        world.kinds(),
        [
            "subagent.run.started",
            "subagent.step.started",
            "subagent.step.started",
            "mine.turn",
            "subagent.step.completed",
            "subagent.step.completed",
            "subagent.run.completed"
        ]
    );
    assert_eq!(world.events()[3]["tokens"], json!({"in": 1, "out": 2}));
    assert_eq!(world.events()[2]["pid"], 8);
    let result = world.json("/async-subagent-results/run-1.json");
    assert_eq!((&result["success"], &result["completionOwnerId"]), (&json!(true), &json!("o")));
    assert_eq!(result["results"][0]["output"], "said\n");
    let candidate = world.json(&format!("{RUN}/process-terminal-candidate.json"));
    assert_eq!(candidate["expectedWriters"], json!({"0": 0, "1": 0}), "no process of their own");
    assert_eq!(candidate["writers"], json!({"0": [], "1": []}));
}

#[test]
fn a_session_takes_only_what_can_be() {
    let world = World::new();
    let job = world.job();
    let nothing = Work::new(RunMode::Single, &[]);
    assert!(matches!(Session::begin(&job, &nothing), Err(RunnerError::Nothing)));
    let mut session = Session::begin(&job, &two()).expect("ours");
    let misplaced = |told: Result<(), RunnerError>, step: usize| {
        let e = told.expect_err("it cannot be");
        assert!(matches!(e, RunnerError::Misplaced { step: told, .. } if told == step), "{e}");
        assert!(e.to_string().contains(&format!("steps[{step}]")), "{e}");
    };
    misplaced(session.step_started(2, None), 2);
    misplaced(session.step_ended(0, StepEnd::complete()), 0);
    session.step_started(0, None).expect("pending");
    misplaced(session.step_started(0, None), 0);
    misplaced(session.step_not_started(0, "late"), 0);
    misplaced(session.expand(0, &["c"]), 0);
    session.step_ended(0, StepEnd::complete()).expect("at work");
    misplaced(session.step_ended(0, StepEnd::complete()), 0);
    for key in ["status", "processTerminal", "currentTool"] {
        let e = session.describe(0, key, "1").expect_err("not the runner's");
        assert!(e.to_string().contains(&format!("steps[0].{key}")), "{e}");
    }
    let e = session.describe(0, "model", "{secret").expect_err("no JSON");
    assert!(!e.to_string().contains("secret"), "{e}");
    assert!(session.describe(9, "model", "1").is_err());
    for (key, text) in [("ts", "1"), ("x\"", "1"), ("x", "{"), ("x", "1} {")] {
        assert!(session.tell("mine", &[(key, text)]).is_err(), "{key} {text}");
    }
    for kind in ["", "subagent.run.completed", "runstore.control.taken"] {
        assert!(session.tell(kind, &[]).is_err(), "{kind:?} is the session's");
    }
    assert!(session.cut(Cut::Failed("the budget is spent".to_owned())).expect("ours"));
    misplaced(session.step_started(1, None), 1);
    assert!(!session.cut(Cut::Interrupted).expect("ours"), "the first one decides");
    let finished = session.finish().expect("ours");
    assert_eq!(finished.state, RunState::Failed);
    assert_eq!(finished.error.as_deref(), Some("the budget is spent"));
    assert_eq!(world.status()["error"], "the budget is spent");
    assert!(world.status().get("timedOut").is_none());
}

#[test]
fn activity_is_written_at_most_once_in_its_time_and_with_every_change() {
    let world = World::new();
    let job = world.job();
    let mut session = Session::begin(&job, &two()).expect("ours");
    session.activity(0, &Activity { turns: Some(9), ..Activity::default() });
    session.step_started(0, None).expect("pending");
    assert!(world.status()["steps"][0].get("turnCount").is_none(), "it was not at work yet");
    let busy = |turns: u64| Activity {
        tool: Some("edit".to_owned()),
        path: Some("/w/f".to_owned()),
        turns: Some(turns),
        ..Activity::default()
    };
    let writes = || {
        let effects = world.host.effects();
        effects
            .iter()
            .filter(|e| matches!(e, Effect::Rename { to, .. } if to == "status.json"))
            .count()
    };
    let before = writes();
    for turn in 1..=100 {
        session.activity(0, &busy(turn));
        assert_eq!(session.look().expect("ours"), []);
        world.host.wait_ms(50);
    }
    assert_eq!(session.look().expect("ours"), []);
    let written = writes() - before;
    assert!((4..=6).contains(&written), "five seconds of activity: {written}");
    let status = world.status();
    assert_eq!((&status["turnCount"], &status["currentTool"]), (&json!(100), &json!("edit")));
    assert_eq!(status["steps"][0]["currentPath"], "/w/f");
    assert!(status["lastActivityAt"].is_i64(), "{status}");
    session.activity(0, &busy(101));
    session.step_ended(0, StepEnd::partial("half of it")).expect("at work");
    let status = world.status();
    assert_eq!(status["turnCount"], 101, "it comes with every change");
    assert_eq!(status["currentTool"], Value::Null, "it does nothing any more");
    assert!(status["steps"][0].get("currentTool").is_none(), "{status}");
    session.step_started(1, None).expect("pending");
    session.step_ended(1, StepEnd::complete()).expect("at work");
    let finished = session.finish().expect("ours");
    assert_eq!(finished.state, RunState::Partial, "part of the work, and nothing failed");
    assert_eq!(finished.error.as_deref(), Some("a: half of it"));
}

#[test]
fn what_is_asked_comes_once_in_order_and_told_before() {
    let world = World::new();
    let job = world.job();
    let mut session = Session::begin(&job, &two()).expect("ours");
    session.step_started(0, None).expect("pending");
    session.step_started(1, None).expect("pending");
    assert_eq!(session.look().expect("ours"), []);
    let steer =
        r#"{"type":"steer","id":"m","ts":1,"message":"go on","mode":"auto","targetIndex":1}"#;
    world.ask("steer-requests/0000000000001-bQ.json", steer);
    let stop = r#"{"type":"stop","targetIndex":0}"#;
    world.ask("stop-requests/0000000000001-00000000-0000-4000-8000-000000000001.json", stop);
    assert_eq!(session.look().expect("ours"), [], "four times a second, not more often");
    assert!((1..=250).contains(&session.next_look_ms()), "{}", session.next_look_ms());
    world.host.wait_ms(session.next_look_ms());
    let orders = session.look().expect("ours");
    let [Order::StopStep(0), Order::Message(Message { id, text, targets, .. })] = &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((id.as_str(), text.as_str(), targets.as_slice()), ("m", "go on", &[1][..]));
    assert!(!format!("{orders:?}").contains("go on"), "no log shows what is said to an agent");
    session.answer("m", Ok(()));
    session.answer("n", Err("nobody is there"));
    world.ask("interrupt.json", "{}");
    world.host.wait_ms(250);
    assert_eq!(session.look().expect("ours"), [Order::End(Cut::Interrupted)]);
    let status = world.status();
    assert_eq!((&status["state"], status.get("endedAt")), (&json!("paused"), None));
    assert_eq!(status["steps"][1]["status"], "paused");
    assert!(!world.host.has("/async-subagent-runs/.active-runs/run-1"), "it is active no more");
    world.ask("stop.json", r#"{"type":"stop","reason":"enough"}"#);
    world.host.wait_ms(250);
    let stopped = Cut::Stopped("enough".to_owned());
    assert_eq!(session.look().expect("ours"), [Order::End(stopped)], "a stop ends a pause");
    session.step_ended(0, StepEnd::complete()).expect("at work");
    session.step_ended(1, StepEnd::complete()).expect("at work");
    assert_eq!(session.step(0), Some(StepState::Stopped), "the reason stays");
    assert_eq!(session.finish().expect("ours").state, RunState::Stopped);
    let kinds = world.kinds();
    let at = |kind: &str| kinds.iter().position(|known| known == kind).expect(kind);
    assert!(at("runstore.control.taken") < at("subagent.step.stop_requested"));
    assert!(at("subagent.steer.delivered") < at("subagent.steer.failed"));
    assert!(at("subagent.run.paused") < at("subagent.run.stopped"), "{kinds:?}");
}

#[test]
fn a_deadline_is_told_and_work_that_is_not_ended_has_failed() {
    let world = World::new();
    let job = world.job();
    let now_ms = world.host.now_ms();
    let work = Work { deadline_at_ms: Some(now_ms + 100), ..two() };
    let mut session = Session::begin(&job, &work).expect("ours");
    session.step_started(0, None).expect("pending");
    session.look().expect("ours");
    assert_eq!(session.next_look_ms(), 100, "the deadline comes before the next look at the inbox");
    world.host.wait_ms(100);
    let orders = session.look().expect("ours");
    assert!(matches!(orders[..], [Order::End(Cut::TimedOut(_))]), "{orders:?}");
    assert!(session.next_look_ms() > 1, "it is not looked at again and again");
    let status = world.status();
    assert_eq!((&status["state"], &status["timedOut"]), (&json!("running"), &json!(true)));
    let finished = session.finish().expect("ours");
    assert_eq!(finished.state, RunState::Failed);
    let status = world.status();
    assert_eq!(status["steps"][0]["status"], "failed");
    assert_eq!(
        (&status["steps"][0]["timedOut"], &status["steps"][1]["status"]),
        (&json!(true), &json!("pending"))
    );
}

#[test]
fn a_group_takes_the_place_of_what_stood_for_it_and_others_are_added_at_the_end() {
    let world = World::new();
    let job = world.job();
    let agents = ["a", "expand:b", "c", "d"];
    let groups = [StepGroup { start: 2, count: 2, step_index: 2 }];
    let work = Work { groups: &groups, ..Work::new(RunMode::Chain, &agents) };
    let mut session = Session::begin(&job, &work).expect("ours");
    session.step_started(0, None).expect("pending");
    session.step_ended(0, StepEnd::complete()).expect("at work");
    session.expand(1, &["b", "b", "b"]).expect("pending");
    session.append(None, &[&["e", "f"]]).expect("ours");
    session.append(None, &[&["g"]]).expect("ours");
    let status = world.status();
    let agents: Vec<_> =
        status["steps"].as_array().expect("steps").iter().map(|s| &s["agent"]).collect();
    assert_eq!(agents, ["a", "b", "b", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(
        status["parallelGroups"],
        json!([
            {"start": 1, "count": 3, "stepIndex": 1},
            {"start": 4, "count": 2, "stepIndex": 2},
            {"start": 6, "count": 2, "stepIndex": 3}
        ])
    );
    assert_eq!((&status["chainStepCount"], &status["currentStep"]), (&json!(5), &json!(1)));
    assert_eq!((session.steps(), session.step(8)), (9, Some(StepState::Pending)));
    let finished = session.finish().expect("ours");
    assert_eq!(finished.state, RunState::Failed, "work that never began is not done");
    let candidate = world.json(&format!("{RUN}/process-terminal-candidate.json"));
    assert_eq!(candidate["expectedWriters"].as_object().expect("counts").len(), 9);
}

#[test]
fn a_status_that_could_not_be_written_is_caught_up_with_and_a_foreign_account_ends_it_all() {
    let world = World::new();
    let job = world.job();
    let mut session = Session::begin(&job, &two()).expect("ours");
    world.host.set_room_bytes(Some(0));
    session.step_started(0, None).expect("it goes on all the same");
    world.host.set_room_bytes(None);
    assert_eq!(world.status()["steps"][0]["status"], "pending");
    world.host.wait_ms(1_000);
    session.look().expect("ours");
    assert_eq!(world.status()["steps"][0]["status"], "running", "the next look catches up");
    let path = format!("{RUN}/status.json");
    let other =
        r#"{"version":1,"state":"pending","runId":"run-1","runnerProcessInstanceId":"other"}"#;
    let text = format!(
        r#"{{"runId":"run-1","state":"running","lastUpdate":1,"processTerminal":{other}}}"#
    );
    world.host.put(&path, &text);
    let told = session.step_ended(0, StepEnd::complete());
    assert!(matches!(told, Err(RunnerError::Displaced(_))), "{told:?}");
    assert!(matches!(session.finish(), Err(RunnerError::Displaced(_))));
    assert_eq!(world.host.text(&path).as_deref(), Some(&*text), "it stays");
}

const STEP: &str = r#"{"agent":"e","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false}"#;

impl World {
    fn asked_for(&self, steps: &str) -> Result<String, AppendError> {
        let (host, run_dir, run_id) = (&self.host, &self.run_dir, &self.run_id);
        append::request(&StatusPlace { host, run_dir, run_id, locks: None }, steps)
    }

    fn open_requests(&self) -> usize {
        let tree = self.host.tree();
        tree.keys()
            .filter(|path| path.contains("/append-requests/") && path.ends_with(".json"))
            .count()
    }
}

#[test]
fn a_chain_takes_further_steps_once_and_says_so() {
    let world = World::new();
    let job = world.job();
    let mut session = Session::begin(&job, &Work::new(RunMode::Chain, &["a", "b"])).expect("ours");
    session.step_started(0, None).expect("pending");
    let id =
        world.asked_for(&format!(r#"[{STEP},{{"parallel":[{STEP},{STEP}]}}]"#)).expect("taken");
    assert_eq!((world.open_requests(), &world.status()["pendingAppends"]), (1, &json!(1)));
    let orders = session.look().expect("ours");
    let [Order::Append(append)] = &orders[..] else { panic!("{orders:?}") };
    assert!(append.id == id && append.steps.contains("parallel"), "{append:?}");
    assert!(!format!("{append:?}").contains("task"), "it may hold prompts");
    session.append(Some(&append.id), &[&["e"], &["e", "e"]]).expect("ours");
    let status = world.status();
    assert_eq!((world.open_requests(), &status["pendingAppends"]), (0, &json!(0)));
    assert_eq!((session.steps(), &status["chainStepCount"]), (5, &json!(4)));
    assert_eq!(status["parallelGroups"], json!([{"start": 3, "count": 2, "stepIndex": 3}]));
    assert_eq!(world.events().last().expect("a line")["requestId"], id.as_str());
    let second = world.asked_for(&format!("[{STEP}]")).expect("it still runs");
    world.host.wait_ms(250);
    assert!(matches!(session.look().expect("ours")[..], [Order::Append(_)]));
    session.refuse_append(&second, "no room");
    assert!(session.cut(Cut::Stopped("enough".to_owned())).expect("ours"));
    assert_eq!(world.status()["pendingAppends"], 0);
    world.asked_for(&format!("[{STEP}]")).expect("its status still says that it runs");
    world.host.wait_ms(250);
    assert_eq!(session.look().expect("ours"), [], "it was told to end");
    world.asked_for(&format!("[{STEP}]")).expect("its status still says that it runs");
    session.step_ended(0, StepEnd::complete()).expect("at work");
    session.finish().expect("ours");
    assert_eq!(world.open_requests(), 0, "the last look takes what is left");
    let kinds = world.kinds();
    let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
    assert_eq!(count("subagent.chain.append.requested"), 4);
    assert_eq!(count("subagent.chain.append.accepted"), 1);
    assert_eq!(count("runstore.append.refused"), 3);
}

#[test]
fn steps_are_asked_for_only_where_somebody_takes_them() {
    let world = World::new();
    let job = world.job();
    let steps = format!("[{STEP}]");
    let why = |asked: Result<String, AppendError>| with_causes(&asked.expect_err("refused"));
    assert!(why(world.asked_for(&steps)).contains("no chain"), "it says nothing of its mode");
    let mut session = Session::begin(&job, &Work::new(RunMode::Chain, &["a"])).expect("ours");
    for (steps, member) in [
        ("[", "steps"),
        ("[]", "steps"),
        ("{}", "steps"),
        (r#"[{"agent":""}]"#, "steps[0].agent"),
        (&*format!(r#"[{STEP},{{"parallel":{STEP},"expand":{{}}}}]"#), "steps[1].collect"),
    ] {
        let told = why(world.asked_for(steps));
        assert!(told.contains(&format!("member {member} ")), "{steps}: {told}");
    }
    let large = format!("[{}]", STEP.replace("\"t\"", &format!("\"{}\"", "t".repeat(1 << 20))));
    assert!(matches!(world.asked_for(&large), Err(AppendError::Invalid(_))));
    assert_eq!(world.open_requests(), 0);
    session.step_started(0, None).expect("pending");
    session.step_ended(0, StepEnd::complete()).expect("at work");
    assert!(why(world.asked_for(&steps)).contains("have ended"));
    session.finish().expect("ours");
    assert!(why(world.asked_for(&steps)).contains("does not run"));
    assert!(!world.host.has(&format!("{RUN}/append-requests")), "nothing was made");
}

#[test]
fn a_request_that_comes_with_the_end_is_withdrawn() {
    let world = World::new();
    let job = world.job();
    let session = Session::begin(&job, &Work::new(RunMode::Chain, &["a"])).expect("ours");
    drop(session);
    world.host.begin();
    let path = format!("{RUN}/status.json");
    // Right before the request has its name: the directory, the temp file, its bytes, its flush.
    world.host.interrupt_at(4, move |host| {
        let text = host.text(&path).expect("there").replacen("\"running\"", "\"failed\"", 1);
        host.put(&path, text);
    });
    let asked = world.asked_for(&format!("[{STEP}]"));
    assert!(matches!(asked, Err(AppendError::NotTaken(_))), "{asked:?}");
    assert_eq!(world.open_requests(), 0, "nobody would take it up");
}

/// A run directory as a launcher leaves it, whose result goes elsewhere.
fn let_in(world: &World, result_path: &str) {
    let step = r#"{"agent":"a","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false}"#;
    let config = format!(
        r#"{{"id":"run-1","steps":[{step}],"resultPath":"{result_path}","cwd":"/","placeholder":"p","asyncDir":"{RUN}","sessionId":"S","runnerProcessInstanceId":"i","launchBarrierToken":"i"}}"#
    );
    world.host.put("/async-cfg-run-1.json", &config);
    world
        .host
        .put(&format!("{RUN}/runner-startup-proceed.json"), r#"{"action":"proceed","token":"i"}"#);
}

#[test]
fn a_result_lies_where_the_configuration_has_it() {
    for (path, found) in [
        ("/async-subagent-results/run-1.json", "/async-subagent-results/run-1.json"),
        (
            "/async-subagent-results/nested/root/run-1.json",
            "/async-subagent-results/nested/root/run-1.json",
        ),
        (&*format!("{RUN}/workflow-result.json"), &*format!("{RUN}/workflow-result.json")),
    ] {
        let world = World::new();
        let_in(&world, path);
        let config = read_config(&world.host, Path::new("/async-cfg-run-1.json")).expect("valid");
        let startup = Startup::begin(&world.host, &0, &config, RUNNER_BUDGET_MS).expect("fresh");
        let committed = startup.wait().expect("it was let in");
        let desk = Desk::open(&committed).expect("reachable");
        let locks = desk.locks(1_000);
        let job = desk.job(Some(&locks));
        let work = Work::new(RunMode::Single, &["a"]);
        let mut session = Session::begin_at(&desk, &job, &work).expect("ours");
        session.step_started(0, None).expect("pending");
        session.step_ended(0, StepEnd::complete()).expect("at work");
        let finished = session.finish().expect("ours");
        assert_eq!((finished.state, finished.problems), (RunState::Complete, Vec::new()), "{path}");
        assert_eq!(world.json(found)["id"], "run-1");
        let above = Path::new(path).parent().expect("a folder").display().to_string();
        assert!(world.host.has(&format!("{above}/result-index/sessions/S/run-1.json")), "{path}");
        let public = world.host.has("/async-subagent-results/run-1.json");
        assert_eq!(public, found == "/async-subagent-results/run-1.json", "nobody else finds it");
    }
}

#[test]
fn a_result_without_a_place_is_told_before_any_work() {
    for (path, wants_place) in [
        ("relative/run-1.json", false),
        ("/", false),
        ("/file/run-1.json", true),
        ("/async-subagent-results/run-1", false),
        ("/async-subagent-results/.json", false),
    ] {
        let world = World::new();
        world.host.put("/file", "no directory");
        let_in(&world, path);
        let config = read_config(&world.host, Path::new("/async-cfg-run-1.json")).expect("valid");
        let startup = Startup::begin(&world.host, &0, &config, RUNNER_BUDGET_MS).expect("fresh");
        let committed = startup.wait().expect("it was let in");
        let e = Desk::open(&committed).map(drop).expect_err("there is no place");
        assert_eq!(matches!(e, DeskError::Results(_)), wants_place, "{path}: {e}");
        committed.fail(&e.to_string()).expect("room");
        let status = world.status();
        assert_eq!(status["state"], "failed", "{path}");
        assert!(status["error"].as_str().is_some_and(|why| why.contains("could not begin")));
    }
}
