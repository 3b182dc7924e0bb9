//! What a launch leaves, whatever becomes of it.
//! Spec: RS-START-13, RS-START-21 to RS-START-27, RS-START-31 to RS-START-43, RS-START-70 to RS-START-72, RS-START-90 to RS-START-94.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use runstore::launcher::environment::{FANOUT_BUDGET, NOT_INHERITED, PARENT_SESSION};
use runstore::launcher::{Cause, Failed, Outcome, Poll, Refusal, Request, SlotWish, prepare};
use runstore::protocol::budget::BudgetRef;
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::DescriptorText;
use runstore::protocol::{Open, RunMode, RunState};
use runstore::store::budget;
use runstore::store::host::Host as _;
use runstore::store::lease::{self, LeaseRequest};
use runstore::store::process::{Exit, Life, Spawn, SpawnPlan, Spawned, Terminate};
use runstore::store::slot::{self, occupied};
use serde_json::json;
use testkit::child::{Child, Spawner, Temper};
use testkit::launch::{DESCRIPTOR, STEPS, lead};

use super::{REVIVAL, World};

const LIMIT: Option<SlotWish<'static>> = Some(SlotWish { limit: 1, source: None });

fn failed(outcome: &Outcome) -> &Failed {
    outcome.failed().unwrap_or_else(|| panic!("{outcome:?}"))
}

/// What every failure before `proceed` leaves, and what it does not.
fn a_failure_is_whole(world: &World, failed: &Failed) {
    assert_eq!(failed.unrecorded, None);
    let status = world.file("status.json").expect("there");
    assert_eq!(status["state"], "failed");
    assert!(status["error"].as_str().is_some_and(|text| !text.is_empty()), "{status}");
    assert!(status.get("endedAt").is_none() && status["steps"][0]["status"] == "pending");
    assert_eq!(status["processTerminal"]["state"], "not-started");
    let instance = failed.instance_id.as_str();
    assert_eq!(status["processTerminal"]["runnerProcessInstanceId"], instance);
    let candidate = world.file("process-terminal-candidate.json").expect("there");
    assert_eq!(candidate["expectedWriters"], json!({"0": 0}));
    assert_eq!(candidate["writers"], json!({}));
    assert!(world.file("runner-startup-proceed.json").is_none(), "it was not let in");
    assert!(!world.has("/async-cfg-run-1.json"), "no prompts are left");
    assert!(!world.has("/async-subagent-results"), "nobody worked");
    assert!(!world.has("/async-subagent-runs/run-1/events.jsonl"));
    assert!(world.has("/async-subagent-runs/.active-runs/run-1"), "the proof takes it away");
}

#[test]
fn a_fresh_run_is_complete_when_it_is_let_in() {
    let world = World::new();
    let request = Request {
        slot: LIMIT,
        tool_call_id: Some("call"),
        timeout_ms: Some(60_000),
        more: &[("model", r#"{"name":"m"}"#)],
        ..world.request()
    };
    let mut launch = world.launch(request, &Child::new(77));
    let instance = launch.instance_id().to_owned();
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    assert!(matches!(outcome, Outcome::Started(started) if started.problems.is_empty()));
    let config = world.host.bytes("/async-cfg-run-1.json").expect("there");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    assert_eq!(config["launchBarrierToken"], instance.as_str());
    assert_eq!(config["runnerProcessInstanceId"], instance.as_str());
    assert_eq!((&config["model"]["name"], &config["timeoutMs"]), (&json!("m"), &json!(60_000)));
    assert!(config.get("revivalLease").is_none());
    let stat = world.host.stat(Path::new("/async-cfg-run-1.json")).expect("there");
    assert_eq!(stat.mode, 0o600, "it holds prompts");
    let status = world.file("status.json").expect("there");
    assert_eq!((&status["pid"], &status["state"]), (&json!(77), &json!("running")));
    assert_eq!(status["toolCallId"], "call");
    assert_eq!(world.file("process-terminal.json").expect("there")["state"], "pending");
    let candidate = world.file("process-terminal-candidate.json").expect("there");
    assert!(candidate.get("expectedWriters").is_none(), "it proves nothing");
    assert_eq!(
        world.file("runner-startup-proceed.json").expect("there"),
        json!({"action": "proceed", "token": instance})
    );
    let note = world.file(".runstore-launch.json").expect("there");
    assert_eq!((&note["pid"], &note["runId"]), (&json!(4242), &json!("run-1")));
    assert_eq!(occupied(&world.host, &0, "S").expect("readable"), [Some(0)]);
    let pool = slot::pool_name("S");
    let owner = format!("session-active-async-capacity/{pool}/slot-0/owner.json");
    let owner =
        String::from_utf8(world.host.tree()[&owner].clone().expect("a file")).expect("text");
    assert!(owner.contains(&instance), "bound: {owner}");
    assert!(world.has("/async-subagent-runs/.active-runs/tool-calls/call/run-1"));
}

#[test]
fn two_launches_have_two_instances_and_a_directory_is_used_once() {
    let world = World::new();
    let first = world.prepared(world.request());
    let instance = first.instance_id().to_owned();
    let before = world.host.tree();
    let refused = prepare(&world.host, world.place(), world.request()).expect_err("it is taken");
    assert!(matches!(refused.why, Refusal::Taken(_)), "{refused}");
    assert_eq!(world.host.tree(), before, "the first one is as it was");
    assert_eq!(first.abandon(), [""; 0]);
    let second = world.prepared(world.request());
    assert_ne!(second.instance_id(), instance);
}

#[test]
fn what_is_refused_before_the_start_leaves_nothing() {
    let world = World::new();
    let other = RunId::parse("other").expect("an id");
    let wrong = DescriptorText { output_mode: "none", ..DESCRIPTOR };
    // The only slot of the session is another run's.
    let held =
        world.launch(Request { run_id: &other, slot: LIMIT, ..world.request() }, &Child::new(5));
    drop(held);
    let before = world.host.tree();
    for (what, request) in [
        ("no step", Request { steps: "[]", ..world.request() }),
        ("no directory", Request { cwd: Path::new("/nowhere"), ..world.request() }),
        ("a bad descriptor", Request { descriptor: Some(&wrong), ..world.request() }),
        ("another parent", Request { parent_session_id: Some("P"), ..world.request() }),
        ("no session for a slot", Request { slot: LIMIT, session_id: None, ..world.request() }),
        ("no slot", Request { slot: LIMIT, descriptor: Some(&DESCRIPTOR), ..world.request() }),
    ] {
        let refused = prepare(&world.host, world.place(), request).expect_err(what);
        assert_eq!(refused.left, [""; 0], "{what}");
        assert_eq!(world.host.tree(), before, "{what}: {refused}");
    }
    // The same with everything that a start makes.
    let request = Request { descriptor: Some(&DESCRIPTOR), ..world.request() };
    let prepared = world.prepared(request);
    assert!(world.has("/async-subagent-runs/run-1/recovery-descriptor.json"));
    let refused = prepared.start(&mut Spawner::failing(io::ErrorKind::OutOfMemory));
    let refused = refused.expect_err("there is no process");
    assert!(matches!(refused.why, Refusal::Spawn(_)) && refused.left.is_empty(), "{refused:?}");
    assert_eq!(world.host.tree(), before, "no process, no trace");
}

#[test]
fn a_runner_that_ends_is_noticed_in_every_state_and_everything_is_taken_back() {
    // At which look: the handshake looks twice before it commits.
    for (look, states) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3)] {
        let world = World::new();
        let child = Child::new(77).ends_at_look(look, Exit::Code(3));
        let mut launch = world.launch(Request { slot: LIMIT, ..world.revival() }, &child);
        let token = "11111111-1111-4111-8111-111111111111";
        let request = LeaseRequest {
            session_file: Path::new("/s.jsonl"),
            run_id: "run-1",
            source_run_id: "run-0",
            parent_session_id: None,
            token,
        };
        let held = lease::acquire(&world.host, &0, &request).expect("free");
        world.put("runner.stderr.log", "last words\n");
        let mut said = 0;
        let mut say = || {
            if said < states {
                let state = ["ready", "acknowledged", "confirmed"][said];
                world.put(
                    "runner-startup.json",
                    &json!({"state": state, "token": token}).to_string(),
                );
                said += 1;
            }
        };
        say();
        let (outcome, _) = lead(&world.host, &mut launch, say);
        let Outcome::Died(failed) = outcome else { panic!("{look}: {outcome:?}") };
        assert_eq!(failed.ended, Some(Some(Exit::Code(3))), "{look}");
        assert_eq!(failed.stderr_tail.as_deref(), Some("last words"), "{look}");
        assert_eq!(failed.left, [""; 0], "{look}");
        a_failure_is_whole(&world, failed);
        assert!(child.asked().is_empty(), "{look}: nobody is asked who has ended");
        assert_eq!(
            occupied(&world.host, &0, "S").expect("readable"),
            [],
            "{look}: the slot is free"
        );
        let state = lease::inspect(&world.host, &0, &held.id);
        assert_eq!(state, runstore::protocol::lease::LeaseState::Free, "{look}");
        let error = world.file("status.json").expect("there")["error"].to_string();
        assert!(error.contains("exit code 3"), "{look}: {error}");
    }
}

#[test]
fn the_words_of_a_runner_reach_caller_and_status_in_both_variants() {
    for is_revival in [true, false] {
        let world = World::new();
        let child = Child::new(77);
        let request = if is_revival { world.revival() } else { world.request() };
        let mut launch = world.launch(request, &child);
        world.put("runner-startup.json", r#"{"state":"error","pid":77,"error":"no \u001b room"}"#);
        let (outcome, _) = lead(&world.host, &mut launch, || {});
        let Outcome::Died(failed) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failed.words.as_deref(), Some("no \u{1b} room"));
        a_failure_is_whole(&world, failed);
        assert!(child.has_ended(), "it was made to end");
        let status = world.file("status.json").expect("there");
        assert!(status["error"].as_str().is_some_and(|e| e.contains("no \u{1b} room")), "{status}");
    }
}

#[test]
fn a_lease_of_another_run_is_left_alone() {
    let world = World::new();
    let request = LeaseRequest {
        session_file: Path::new("/s.jsonl"),
        run_id: "run-9",
        source_run_id: "run-0",
        parent_session_id: None,
        token: "t",
    };
    let held = lease::acquire(&world.host, &0, &request).expect("free");
    let child = Child::new(77).ends_at_look(1, Exit::Code(1));
    let mut launch = world.launch(world.revival(), &child);
    failed(lead(&world.host, &mut launch, || {}).0);
    let state = lease::inspect(&world.host, &0, &held.id);
    assert!(matches!(state, runstore::protocol::lease::LeaseState::Owned(_)), "{state:?}");
}

#[test]
fn a_silent_runner_is_asked_to_end_and_then_made_to() {
    for (temper, asked, took_ms) in [
        (Temper::Meek, vec![Terminate::Ask], 10_000),
        (Temper::Stubborn, vec![Terminate::Ask, Terminate::Force], 11_000),
        (Temper::Stuck, vec![Terminate::Ask, Terminate::Force], 12_000),
    ] {
        let world = World::new();
        let child = Child::new(77).temper(temper);
        let mut launch = world.launch(Request { slot: LIMIT, ..world.revival() }, &child);
        let (outcome, took) = lead(&world.host, &mut launch, || {});
        let Outcome::TimedOut(failed) = outcome else { panic!("{temper:?}: {outcome:?}") };
        a_failure_is_whole(&world, failed);
        assert_eq!(child.asked(), asked, "{temper:?}");
        assert!((took_ms..took_ms + 50).contains(&took), "{temper:?}: {took} ms");
        let ended = temper != Temper::Stuck;
        assert_eq!(failed.ended.is_some(), ended, "{temper:?}");
        assert_eq!(failed.left.is_empty(), ended, "{temper:?}: {:?}", failed.left);
        let used = occupied(&world.host, &0, "S").expect("readable").len();
        assert_eq!(used, usize::from(!ended), "{temper:?}: a process that lives uses its slot");
    }
}

#[test]
fn a_launch_has_a_deadline_of_its_own_and_can_be_given_up() {
    let world = World::new();
    let request = Request { budget_ms: Some(250), ..world.revival() };
    let mut launch = world.launch(request, &Child::new(77));
    let (outcome, took) = lead(&world.host, &mut launch, || {});
    assert!(matches!(outcome, Outcome::TimedOut(_)), "{outcome:?}");
    assert_eq!(took, 250);
    let world = World::new();
    let mut launch = world.launch(world.revival(), &Child::new(77));
    assert!(matches!(launch.poll(), Poll::Wait(1)));
    launch.cancel();
    let Poll::Done(outcome) = launch.poll() else { panic!("it ended when it was asked to") };
    assert!(
        matches!(outcome, Outcome::Refused(failed) if matches!(failed.cause, Cause::Cancelled))
    );
    a_failure_is_whole(&world, failed(outcome));
    // Once let in, it is too late.
    let world = World::new();
    let child = Child::new(77);
    let mut launch = world.launch(world.request(), &child);
    lead(&world.host, &mut launch, || {});
    launch.cancel();
    assert!(matches!(launch.poll(), Poll::Done(Outcome::Started(_))));
    assert!(!child.has_ended());
    assert_eq!(launch.into_child().pid(), 77, "its end is for somebody to observe");
}

/// A child that looks at the disk when it is asked to end.
struct Witness {
    world: &'static World,
    seen: std::sync::mpsc::Sender<(String, bool)>,
    ended: bool,
}

impl Spawned for Witness {
    fn pid(&self) -> u32 {
        77
    }

    fn look(&mut self) -> Life {
        if self.ended { Life::Ended(None) } else { Life::Running }
    }

    fn terminate(&mut self, _: Terminate) -> io::Result<()> {
        let status = self.world.file("status.json").expect("there");
        let candidate = self.world.file("process-terminal-candidate.json").expect("there");
        let counted = candidate.get("expectedWriters").is_some();
        self.seen.send((status["state"].to_string(), counted)).expect("the test listens");
        self.ended = true;
        Ok(())
    }
}

struct SpawnWitness(Option<Witness>);

impl Spawn for SpawnWitness {
    fn spawn(&mut self, _: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        Ok(Box::new(self.0.take().expect("it is asked once")))
    }
}

#[test]
fn the_failure_is_on_record_before_the_runner_is_asked_to_end() {
    let world: &'static World = Box::leak(Box::new(World::new()));
    let (seen, heard) = std::sync::mpsc::channel();
    let witness = Witness { world, seen, ended: false };
    let prepared = world.prepared(world.revival());
    let mut launch = prepared.start(&mut SpawnWitness(Some(witness))).expect("made");
    world.put("runner-startup.json", "{");
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    assert!(matches!(outcome, Outcome::Refused(_)), "it is no message: {outcome:?}");
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [("\"failed\"".to_owned(), true)]);
    a_failure_is_whole(world, failed(outcome));
}

#[test]
fn a_transferred_slot_goes_back_to_the_run_that_was_to_be_resumed() {
    let world = World::new();
    let old = RunId::parse("run-0").expect("an id");
    let mut first =
        world.launch(Request { run_id: &old, slot: LIMIT, ..world.request() }, &Child::new(5));
    lead(&world.host, &mut first, || {});
    let pool = format!("session-active-async-capacity/{}", slot::pool_name("S"));
    let owner = || world.host.tree()[&format!("{pool}/slot-0/owner.json")].clone();
    let before = owner();
    let ended = Some((Some("run-0"), Some(Open::Known(RunState::Failed))));
    let source = slot::Source { run_id: REVIVAL.source_run_id, status: ended };
    let wish = SlotWish { limit: 1, source: Some(source) };
    let child = Child::new(77).ends_at_look(1, Exit::Code(1));
    let mut launch = world.launch(Request { slot: Some(wish), ..world.revival() }, &child);
    assert_ne!(owner(), before, "it was taken over");
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    assert_eq!(failed(outcome).left, [""; 0]);
    assert_eq!(owner(), before, "byte for byte");
}

#[test]
fn a_slot_that_somebody_else_has_released_is_not_said_to_be_held() {
    let free = |world: &World, instance: &str| {
        let released = slot::release_of_run(&world.host, &0, "S", "run-1", instance);
        assert!(released.expect("readable"), "it was held");
    };
    let world = World::new();
    let child = Child::new(77).ends_at_look(1, Exit::Code(1));
    let mut launch = world.launch(Request { slot: LIMIT, ..world.revival() }, &child);
    free(&world, launch.instance_id());
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    assert_eq!(failed(outcome).left, [""; 0]);

    let world = World::new();
    let prepared = world.prepared(Request { slot: LIMIT, ..world.request() });
    free(&world, prepared.instance_id());
    assert_eq!(prepared.abandon(), [""; 0]);
    assert!(!world.has("/async-subagent-runs/run-1"), "nothing is left of it");
}

#[test]
fn the_plan_names_what_a_process_needs_and_the_steps_are_carried_unread() {
    let world = World::new();
    let mut spawner = Spawner::of(&Child::new(77));
    let group =
        format!(r#"[{{"parallel":[{0},{0}],"odd":{{"x": 1e400}}}}]"#, &STEPS[1..STEPS.len() - 1]);
    let request = Request {
        steps: &group,
        mode: RunMode::Parallel,
        set_env: &[("A".into(), "b".into())],
        remove_env: &["GIT_DIR".into()],
        ..world.request()
    };
    let launch = world.prepared(request).start(&mut spawner).expect("made");
    let plan = spawner.plan.take().expect("asked");
    assert_eq!(plan.config_path, Path::new("/async-cfg-run-1.json"));
    assert_eq!(plan.run_dir, Path::new("/async-subagent-runs/run-1"));
    assert_eq!((plan.stdout_log, plan.stderr_log), ("runner.stdout.log", "runner.stderr.log"));
    assert_eq!(plan.set_env, [("A".into(), "b".into())]);
    assert_eq!(plan.remove_env[0], "GIT_DIR");
    assert_eq!(plan.instance_id, launch.instance_id());
    let status = world.file("status.json").expect("there");
    assert_eq!(status["steps"].as_array().map(Vec::len), Some(2), "one for each child: {status}");
    assert_eq!(status["chainStepCount"], 1, "a group is one logical step");
    assert_eq!(status["parallelGroups"], json!([{"start": 0, "count": 2, "stepIndex": 0}]));
    let config = world.host.tree()["async-cfg-run-1.json"].clone().expect("a file");
    assert!(String::from_utf8_lossy(&config).contains("{\"x\": 1e400}"), "unread, as it was");
}

#[test]
fn a_runner_has_the_parent_session_of_its_launch_and_no_way_into_another_repository() {
    let steps = STEPS.replace(r#""agent""#, r#""parentSessionId":"P","agent""#);
    for parent in [Some("P"), None] {
        let world = World::new();
        let mut spawner = Spawner::of(&Child::new(77));
        let request = match parent {
            Some(_) => Request { parent_session_id: parent, steps: &steps, ..world.request() },
            None => world.request(),
        };
        let launch = world.prepared(request).start(&mut spawner).expect("made");
        let plan = spawner.plan.take().expect("asked");
        for name in PARENT_SESSION {
            let set =
                plan.set_env.iter().find(|(set, _)| set == name).map(|(_, id)| id.as_os_str());
            assert_eq!(set, parent.map(OsStr::new), "{name}");
            assert_eq!(plan.remove_env.contains(&name.into()), parent.is_none(), "{name}");
        }
        for name in NOT_INHERITED {
            assert!(plan.remove_env.contains(&name.into()), "{name}");
        }
        drop(launch);
    }
    let world = World::new();
    let before = world.host.tree();
    let set_env = [(PARENT_SESSION[0].into(), "S".into())];
    let request = Request { set_env: &set_env, ..world.request() };
    let refused = prepare(&world.host, world.place(), request).expect_err("not the caller's");
    assert!(matches!(refused.why, Refusal::Invalid("environment of the runner", _)), "{refused}");
    assert_eq!(world.host.tree(), before, "nothing is written");
}

#[test]
fn every_graph_of_steps_is_carried_and_one_of_another_mode_is_refused_by_name() {
    let step = &STEPS[1..STEPS.len() - 1];
    let dynamic =
        format!(r#"{{"parallel":{step},"expand":{{"from":"x"}},"collect":{{"as":"y"}}}}"#);
    let group = format!(r#"{{"parallel":[{step},{step}]}}"#);
    for (mode, steps, agents, groups, logical) in [
        (RunMode::Single, format!("[{step}]"), vec!["a"], json!(null), 1),
        (
            RunMode::Parallel,
            format!("[{group}]"),
            vec!["a", "a"],
            json!([{"start": 0, "count": 2, "stepIndex": 0}]),
            1,
        ),
        (
            RunMode::Chain,
            format!("[{step},{dynamic},{group}]"),
            vec!["a", "expand:a", "a", "a"],
            json!([{"start": 2, "count": 2, "stepIndex": 2}]),
            3,
        ),
    ] {
        let world = World::new();
        let request = Request { mode, steps: &steps, ..world.request() };
        drop(world.launch(request, &Child::new(77)));
        let status = world.file("status.json").expect("there");
        let found: Vec<_> =
            status["steps"].as_array().expect("steps").iter().map(|step| &step["agent"]).collect();
        assert_eq!(found, agents, "{mode}");
        assert_eq!(status.get("parallelGroups").cloned().unwrap_or_default(), groups, "{mode}");
        assert_eq!(status["chainStepCount"], logical, "{mode}");
        let config = world.host.bytes("/async-cfg-run-1.json").expect("there");
        let config = String::from_utf8(config).expect("text");
        assert!(config.contains(&steps), "{mode}: unread, as it was");
    }
    let world = World::new();
    let before = world.host.tree();
    let another = DescriptorText { agent: "b", ..DESCRIPTOR };
    let elsewhere = DescriptorText { run_id: "run-2", ..DESCRIPTOR };
    let two = format!("[{step},{step}]");
    let torn = dynamic.replace("collect", "collects");
    let torn = format!("[{step},{torn}]");
    let request = || world.request();
    for (named, request) in [
        ("mode", Request { mode: RunMode::Workflow, ..request() }),
        ("steps", Request { steps: &two, ..request() }),
        ("steps", Request { steps: &format!("[{dynamic}]"), ..request() }),
        ("steps[1].collect", Request { steps: &torn, mode: RunMode::Chain, ..request() }),
        ("agent", Request { descriptor: Some(&another), ..request() }),
        ("sourceRunId", Request { descriptor: Some(&elsewhere), ..request() }),
        (
            "agent",
            Request {
                descriptor: Some(&DESCRIPTOR),
                steps: &two,
                mode: RunMode::Chain,
                ..request()
            },
        ),
    ] {
        let refused = prepare(&world.host, world.place(), request).expect_err(named);
        let told = with_causes(&refused);
        assert!(told.contains(&format!("member {named} ")), "{named}: {told}");
        assert_eq!(world.host.tree(), before, "{named}: nothing is written");
    }
}

#[test]
fn a_fan_out_budget_is_there_before_the_run_and_the_same_everywhere() {
    let world = World::new();
    let temp = Path::new("/");
    let own = budget::create(&world.host, &0, temp, "run-1", 3).expect("room");
    let text = own.text();
    let descriptor = DescriptorText { fanout_budget: &text, ..DESCRIPTOR };
    let other = budget::create(&world.host, &0, temp, "root", 3).expect("room");
    let more = BudgetRef { limit: 4, ..own.clone() };
    let gone = BudgetRef { directory: "/run-fanout-budgets/gone".to_owned(), ..own.clone() };
    let after = world.host.tree();
    for (what, named, descriptor) in [
        ("another tree", &other, None),
        ("another limit", &more, None),
        ("no such budget", &gone, None),
        ("a descriptor with another one", &own, Some(&DESCRIPTOR)),
    ] {
        let request = Request { budget: Some(named), descriptor, ..world.request() };
        let refused = prepare(&world.host, world.place(), request).expect_err(what);
        assert_eq!(
            (refused.left.len(), world.host.tree()),
            (0, after.clone()),
            "{what}: {refused}"
        );
    }
    let mut spawner = Spawner::of(&Child::new(77));
    let request = Request { budget: Some(&own), descriptor: Some(&descriptor), ..world.request() };
    let launch = world.prepared(request).start(&mut spawner).expect("made");
    drop(launch);
    let plan = spawner.plan.take().expect("asked");
    for name in FANOUT_BUDGET {
        assert!(plan.remove_env.contains(&name.into()), "{name} may be that of another tree");
    }
    let file = world.file("run-fanout-budget.json").expect("there");
    let config = world.host.bytes("/async-cfg-run-1.json").expect("there");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let in_descriptor = world.file("recovery-descriptor.json").expect("there");
    for named in [&file, &config["runFanoutBudget"], &in_descriptor["runFanoutBudget"]] {
        assert_eq!(named["directory"], own.directory.as_str(), "{named}");
        assert_eq!((&named["limit"], &named["rootRunId"]), (&json!(3), &json!("run-1")));
    }
    let world = World::new();
    for (text, what) in [("{", "none"), ("", "none"), (r#"{"version":2}"#, "none")] {
        let own = budget::create(&world.host, &0, temp, "run-1", 3).expect("room");
        world.host.put(&format!("{}/manifest.json", own.directory), text);
        let e = budget::check(&world.host, &0, &own).expect_err(text);
        assert!(e.to_string().contains(what), "{e}");
    }
    assert!(budget::create(&world.host, &0, temp, "run-1", 0).is_err());
}

#[test]
fn a_full_disk_during_a_launch_is_recorded_or_said() {
    // From the moment at which nothing can be written any more, also not the failure.
    let world = World::new();
    let child = Child::new(77);
    let prepared = world.prepared(world.request());
    world.host.set_room_bytes(Some(0));
    let mut launch = prepared.start(&mut Spawner::of(&child)).expect("a process needs no room");
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    let failed = failed(outcome);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert!(failed.unrecorded.is_some() && failed.to_string().contains("recorded"), "{failed}");
    assert!(child.has_ended(), "nothing runs unaccounted for");
    world.host.set_room_bytes(None);
    // Room comes back in between.
    let world = World::new();
    let prepared = world.prepared(world.request());
    world.host.begin();
    world.host.fail_at(0, testkit::fault::Injected::Errno(28));
    let mut launch = prepared.start(&mut Spawner::of(&Child::new(77))).expect("made");
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    assert_eq!(self::failed(outcome).unrecorded, None);
    assert_eq!(world.file("status.json").expect("there")["state"], "failed");
}
