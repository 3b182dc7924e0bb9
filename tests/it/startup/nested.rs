//! Nested runs: a route is made, a run is launched into it, its news reaches the root and its result its place.
//! Spec: RS-NEST-30 to RS-NEST-38, RS-RESULT-40.

use std::fs;
use std::path::Path;

use runstore::launcher::{Launch, Nested, Outcome, Place, Refusal, Request, prepare};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::nested::Route;
use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::protocol::written_nested::NestedSelf;
use runstore::protocol::{RunMode, RunState};
use runstore::runner::job::Desk;
use runstore::runner::session::{Session, StepEnd, Work};
use runstore::runner::startup::{Startup, read_config};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::nested::{
    OpenRoute, RouteError, create_route, open_route, project, results_dir, runs_root,
};
use serde_json::{Value, json};
use testkit::child::{Child, Spawner};
use testkit::fault::FaultHost;
use testkit::launch::{STEPS, lead};

use super::real::Real;
use crate::ask;

const RUNS: &str = "/nested-subagent-runs/root";
const RESULT: &str = "/async-subagent-results/nested/root/run-1.json";

/// A root with a route, and the places of its nested runs.
struct World {
    host: FaultHost,
    route: OpenRoute<usize>,
    run_id: RunId,
    runs: usize,
}

impl World {
    fn new() -> Self {
        let host = FaultHost::new();
        host.make_dir("/async-subagent-results");
        let route = create_route(&host, &0, "root").expect("room");
        let runs = runs_root(&host, &0, "root").expect("room");
        results_dir(&host, &host.dir("/async-subagent-results"), "root").expect("room");
        Self { host, route, run_id: RunId::parse("run-1").expect("an id"), runs }
    }

    fn place(&self) -> Place<'_, usize> {
        Place {
            temp: &0,
            temp_path: Path::new("/"),
            runs_root: &self.runs,
            runs_path: Path::new(RUNS),
        }
    }

    fn request<'a>(&'a self, own: &'a NestedSelf) -> Request<'a> {
        let nested = Nested { route: &self.route.route, own: Some(own) };
        Request {
            session_id: Some("S"),
            nested: Some(nested),
            ..Request::new(&self.run_id, RunMode::Single, STEPS, Path::new("/"), Path::new(RESULT))
        }
    }

    fn launch<'a>(&'a self, own: &'a NestedSelf) -> Launch<'a, FaultHost> {
        let prepared = prepare(&self.host, self.place(), self.request(own)).expect("in its place");
        prepared.start(&mut Spawner::of(&Child::new(77))).expect("it is made")
    }

    fn json(&self, path: &str) -> Value {
        let text = self.host.text(path).unwrap_or_else(|| panic!("{path} is not there"));
        serde_json::from_str(&text).expect("JSON")
    }

    fn dir(&self) -> String {
        format!("/nested-subagent-events/{}", self.route.route.dir_name())
    }

    /// The events of the route, by time, and what each of them is called.
    fn events(&self) -> Vec<(String, Value)> {
        let prefix = format!("{}/events/", self.dir());
        let tree = self.host.tree();
        let files = tree.iter().filter_map(|(path, bytes)| {
            let name = format!("/{path}").strip_prefix(&prefix)?.to_owned();
            Some((name, serde_json::from_slice(bytes.as_ref()?).expect("JSON")))
        });
        files.collect()
    }

    fn kinds(&self) -> Vec<String> {
        let word = |event: &Value| event["type"].as_str().expect("a word").to_owned();
        self.events().iter().map(|(_, event)| word(event)).collect()
    }
}

fn own() -> NestedSelf {
    NestedSelf::of_root("root", Some(2))
}

/// Lets a runner do its work and end.
fn work(world: &World) {
    let config = read_config(&world.host, Path::new("/async-cfg-run-1.json")).expect("valid");
    let startup = Startup::begin(&world.host, &0, &config, RUNNER_BUDGET_MS).expect("fresh");
    let committed = startup.wait().expect("it was let in");
    let desk = Desk::open(&committed).expect("reachable");
    let job = desk.job(None);
    let mut session =
        Session::begin_at(&desk, &job, &Work::new(RunMode::Single, &["a"])).expect("ours");
    world.host.wait_ms(1);
    session.step_started(0, None).expect("pending");
    world.host.wait_ms(1);
    session.step_ended(0, StepEnd::complete()).expect("at work");
    world.host.wait_ms(1);
    let finished = session.finish().expect("ours");
    assert_eq!((finished.state, finished.problems), (RunState::Complete, Vec::new()));
}

#[test]
fn a_nested_run_tells_its_root_from_start_to_end_and_lies_where_it_belongs() {
    let world = World::new();
    let own = own();
    let mut launch = world.launch(&own);
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    let Outcome::Started(started) = outcome else { panic!("{outcome:?}") };
    assert_eq!(started.untold, None);
    let config = world.json("/async-cfg-run-1.json");
    let dir = world.dir();
    assert_eq!(config["nestedRoute"]["eventSink"], format!("{dir}/events").as_str());
    assert_eq!(config["nestedSelf"]["path"], json!([{"runId": "root", "stepIndex": 2}]));
    assert_eq!(config["asyncDir"], format!("{RUNS}/run-1").as_str());
    let [(_, event)] = &world.events()[..] else { panic!("{:?}", world.events()) };
    assert_eq!(event["type"], "subagent.nested.started");
    assert_eq!((&event["child"]["pid"], &event["child"]["state"]), (&json!(77), &json!("running")));
    assert_eq!((&event["parentStepIndex"], &event["child"]["depth"]), (&json!(2), &json!(1)));
    world.host.wait_ms(1);
    work(&world);
    assert_eq!(
        world.kinds(),
        [
            "subagent.nested.started",
            "subagent.nested.updated",
            "subagent.nested.updated",
            "subagent.nested.updated",
            "subagent.nested.completed"
        ]
    );
    let (_, last) = world.events().pop().expect("there");
    assert_eq!(
        (&last["child"]["state"], &last["child"]["steps"][0]["status"]),
        (&json!("complete"), &json!("complete"))
    );
    let status = world.json(&format!("{RUNS}/run-1/status.json"));
    assert_eq!((&status["isNested"], &status["state"]), (&json!(true), &json!("complete")));
    assert_eq!(world.json(RESULT)["id"], "run-1");
    assert!(!world.host.has("/async-subagent-results/run-1.json"), "no session watches it there");
    assert!(world.host.has(&format!("{RUNS}/.terminal-runs/S")), "its indexes are beside it");
}

#[test]
fn what_is_told_is_folded_in_once_and_what_is_forgotten_is_removed() {
    let world = World::new();
    let own = own();
    let mut launch = world.launch(&own);
    lead(&world.host, &mut launch, || {});
    world.host.wait_ms(1);
    work(&world);
    let events = format!("{}/events", world.dir());
    world
        .host
        .put(&format!("{events}/0000000000001-00000000-0000-4000-8000-000000000001.json"), "{");
    world.host.put(&format!("{events}/note.txt"), "no event");
    let done = project(&world.host, &world.route).expect("readable");
    assert_eq!((done.folded, done.problems.len()), (5, 1), "{:?}", done.problems);
    let registry = format!("{}/registry.json", world.dir());
    let first = world.json(&registry);
    assert_eq!(first["children"][0]["state"], "complete");
    assert_eq!(first["processedEvents"].as_array().expect("names").len(), 5);
    let again = project(&world.host, &world.route).expect("readable");
    assert_eq!((again.folded, again.changed), (0, 0));
    // A registry that is full: the oldest names go, but an answer stays for whoever asked.
    let name = |n: usize| format!("{:013}-00000000-0000-4000-8000-{n:012}.json", n + 1);
    let mut names: Vec<String> = (0..1_000).map(name).collect();
    let text = world.host.text(&registry).expect("there");
    let mut full: Value = serde_json::from_str(&text).expect("JSON");
    full["processedEvents"] = json!(names);
    full["processedEvents"][2] = json!("../../route.json");
    world.host.put(&registry, full.to_string());
    let token = world.route.route.dir_name().replacen("root-", "", 1);
    let answer = json!({"type": "subagent.nested.control-result", "ts": 1, "rootRunId": "root", "capabilityToken": token, "requestId": "q", "targetRunId": "c", "ok": true});
    world.host.put(&format!("{events}/{}", name(0)), "{}");
    world.host.put(&format!("{events}/{}", name(1)), answer.to_string());
    let done = project(&world.host, &world.route).expect("readable");
    assert_eq!(done.folded, 5, "they were not known any more, and change nothing");
    assert_eq!(done.changed, 0);
    assert!(!world.host.has(&format!("{events}/{}", name(0))), "forgotten and removed");
    assert!(world.host.has(&format!("{events}/{}", name(1))), "an answer stays");
    assert!(world.host.has(&format!("{}/route.json", world.dir())), "a name leads nowhere else");
    names.drain(..5);
    let kept = world.json(&registry);
    assert_eq!(kept["processedEvents"].as_array().expect("names").len(), 1_000);
    assert_eq!(kept["processedEvents"][0], names[0].as_str());
}

#[test]
fn a_registry_that_is_not_ours_is_left_alone() {
    for text in ["{", r#"{"rootRunId":"other","children":[]}"#] {
        let world = World::new();
        let own = own();
        let mut launch = world.launch(&own);
        lead(&world.host, &mut launch, || {});
        let registry = format!("{}/registry.json", world.dir());
        world.host.put(&registry, text);
        let e = project(&world.host, &world.route).expect_err("it is not of this root");
        assert!(matches!(e, RouteError::Foreign(_)), "{e}");
        assert_eq!(world.host.text(&registry).as_deref(), Some(text));
    }
}

#[test]
fn a_run_that_does_not_lie_below_its_root_is_refused_before_anything_is_written() {
    let world = World::new();
    world.host.make_dir("/async-subagent-runs");
    let before = world.host.tree();
    let own = own();
    let runs = world.host.dir("/async-subagent-runs");
    let outside =
        Place { runs_root: &runs, runs_path: Path::new("/async-subagent-runs"), ..world.place() };
    let public = Path::new("/async-subagent-results/run-1.json");
    let root = RunId::parse("root").expect("an id");
    let other = Route::new("root", "other", 5).expect("ids");
    let no_route = Some(Nested { route: &other, own: Some(&own) });
    let lost = NestedSelf { parent_run_id: "a/b".to_owned(), ..own.clone() };
    let request = || world.request(&own);
    for (what, place, request) in [
        ("another place", outside, request()),
        ("a public result", world.place(), Request { result_path: public, ..request() }),
        ("the root itself", world.place(), Request { run_id: &root, ..request() }),
        ("another token", world.place(), Request { nested: no_route, ..request() }),
        ("no parent", world.place(), world.request(&lost)),
    ] {
        let refused = prepare(&world.host, place, request).expect_err(what);
        let told = with_causes(&refused);
        assert!(!told.contains("other"), "{what}: no token is shown: {told}");
        assert_eq!(
            matches!(refused.why, Refusal::Route(RouteError::Absent)),
            what == "another token",
            "{told}"
        );
        assert_eq!(refused.left, [""; 0], "{what}");
        assert_eq!(world.host.tree(), before, "{what}");
    }
}

#[test]
fn a_route_is_entered_only_where_root_and_token_lead() {
    let world = World::new();
    let named = world.route.route.clone();
    let file = format!("{}/route.json", world.dir());
    let text = world.host.text(&file).expect("there");
    world.host.unlink(&world.host.dir(&world.dir()), "route.json".as_ref()).expect("there");
    let again = open_route(&world.host, &0, &named).expect("the index entry says the same");
    assert_eq!(again.route.dir_name(), named.dir_name());
    assert!(world.host.has(&file), "it is made again");
    for (text, what) in [
        (text.replace(": \"root\"", ": \"toor\""), "another root or token"),
        ("{".to_owned(), "route.json"),
        (" ".repeat(70_000), "too large"),
    ] {
        world.host.put(&file, &text);
        let e = open_route(&world.host, &0, &named).expect_err(what);
        assert!(e.to_string().contains(what), "{e}");
    }
    assert!(matches!(create_route(&world.host, &0, "../x"), Err(RouteError::Id(_))));
    assert!(matches!(runs_root(&world.host, &0, "a/b"), Err(RouteError::Id(_))));
}

#[test]
fn a_run_without_its_route_works_and_says_that_nobody_was_told() {
    for (what, broken) in [
        ("a route that is gone", "gone-token"),
        ("a path that leads elsewhere", "/elsewhere/events"),
    ] {
        let world = World::new();
        let own = own();
        let mut launch = world.launch(&own);
        lead(&world.host, &mut launch, || {});
        let mut config = world.json("/async-cfg-run-1.json");
        if broken == "gone-token" {
            let gone = world.dir().replace(&world.route.route.dir_name(), "root-gone-token");
            config["nestedRoute"]["capabilityToken"] = json!(broken);
            config["nestedRoute"]["eventSink"] = json!(format!("{gone}/events"));
            config["nestedRoute"]["controlInbox"] = json!(format!("{gone}/controls"));
        } else {
            config["nestedRoute"]["eventSink"] = json!(broken);
        }
        world.host.put("/async-cfg-run-1.json", config.to_string());
        work(&world);
        assert_eq!(world.kinds(), ["subagent.nested.started"], "{what}");
        let log = world.host.text(&format!("{RUNS}/run-1/events.jsonl")).expect("there");
        assert_eq!(log.matches("runstore.nested.untold").count(), 1, "{what}: {log}");
        assert!(!log.contains("gone-token"), "{what}: no log shows a token");
    }
}

#[test]
fn a_full_disk_costs_a_started_run_its_news_and_nothing_else() {
    let world = World::new();
    let own = own();
    let mut launch = world.launch(&own);
    // From the moment at which it is let in nothing can be written any more.
    world.host.interrupt_at(world.host.calls() + 3, |host| host.set_room_bytes(Some(0)));
    let (outcome, _) = lead(&world.host, &mut launch, || {});
    let Outcome::Started(started) = outcome else { panic!("{outcome:?}") };
    let untold = started.untold.as_deref().expect("nobody was told");
    assert!(
        untold.contains("cannot be written to") && !untold.contains(&world.route.route.dir_name()),
        "{untold}"
    );
}

#[test]
fn a_reader_finds_the_run_below_its_root() {
    let real = Real::new();
    let temp = real.host.open_dir(&real.root).expect("there");
    let route = create_route(&real.host, &temp, "root").expect("room");
    let runs = runs_root(&real.host, &temp, "root").expect("room");
    let runs_path = real.root.join("nested-subagent-runs/root");
    let place =
        Place { temp: &temp, temp_path: &real.root, runs_root: &runs, runs_path: &runs_path };
    let (run_id, own) = (RunId::parse("run-1").expect("an id"), own());
    let result = real.root.join("async-subagent-results/nested/root/run-1.json");
    let request = Request {
        session_id: Some("S"),
        nested: Some(Nested { route: &route.route, own: Some(&own) }),
        ..Request::new(&run_id, RunMode::Single, STEPS, &real.root, &result)
    };
    let prepared = prepare(&real.host, place, request).expect("in its place");
    let mut launch = prepared.start(&mut Spawner::of(&Child::new(77))).expect("it is made");
    let Outcome::Started(started) = launch.wait() else { panic!("it was not started") };
    assert_eq!(started.untold, None);
    let dir = real.runs.join("root");
    fs::create_dir(&dir).expect("room");
    let status = r#"{"runId":"root","state":"complete","startedAt":1,"lastUpdate":2,"endedAt":2}"#;
    fs::write(dir.join("status.json"), status).expect("room");
    let children = || {
        let answer = ask::inspect(&real.root);
        assert_eq!(answer.json["problems"], json!([]), "{:#}", answer.json);
        assert_eq!(answer.one("run-1")["nested"], true);
        answer.one("root")["children"].clone()
    };
    assert_eq!(children(), json!(["run-1"]), "by the event");
    project(&real.host, &route).expect("readable");
    assert_eq!(children(), json!(["run-1"]), "by the registry");
}
