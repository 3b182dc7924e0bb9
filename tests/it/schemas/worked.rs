//! What runners that do their own work write, and nested runs: for the judge of [`written`](super::written).

use std::path::Path;

use runstore::launcher::{Nested, Place, Request, prepare};
use runstore::protocol::written_nested::NestedSelf;
use runstore::protocol::written_run::Activity;
use runstore::protocol::{RunMode, RunState, layout};
use runstore::runner::job::{Desk, Job};
use runstore::runner::session::{Session, StepEnd, Work};
use runstore::runner::startup::{Startup, read_config};
use runstore::store::append;
use runstore::store::budget;
use runstore::store::directory::create;
use runstore::store::host::WriteHost as _;
use runstore::store::nested;
use runstore::store::proof::{self, RunPlace};
use runstore::store::run::StatusPlace;
use testkit::child::{Child, Spawner};
use testkit::launch;

use super::written::{Judge, disk, never, new_run, run_dir, run_id, runs};

/// What a runner that does its own work leaves, while it is at work and afterwards.
pub(super) fn worked(judge: &Judge) {
    let host = disk(true);
    new_run(&host, true);
    let run_dir = run_dir(&host);
    proof::initialise(&host, &run_dir, &run_id(), "i").expect("room");
    create(&host, &0, layout::RESULTS_DIR, &never()).expect("room");
    let (runs_root, run_id) = (runs(&host), run_id());
    let results = host.dir("/async-subagent-results");
    let job = Job {
        host: &host,
        place: RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id },
        results: &results,
        locks: None,
        instance_id: "i",
        session_id: Some("S"),
        completion_owner_id: None,
        cwd: "/",
        async_dir: "/async-subagent-runs/run-1",
        lease: None,
    };
    let work = Work::new(RunMode::Chain, &["a", "expand:b", "expand:c"]);
    let mut session = Session::begin(&job, &work).expect("ours");
    session.step_started(0, None).expect("pending");
    let activity = Activity {
        at_ms: None,
        tool: Some("edit".to_owned()),
        tool_since_ms: Some(5),
        path: Some("/w".to_owned()),
        turns: Some(1),
        tools: Some(2),
    };
    session.activity(0, &activity);
    session.describe(0, "sessionFile", r#""/s.jsonl""#).expect("the runner's own");
    session.expand(1, &["b", "b"]).expect("pending");
    session.expand(3, &[]).expect("pending");
    session.answer("m", Ok(()));
    let place = StatusPlace { host: &host, run_dir: &run_dir, run_id: &run_id, locks: None };
    append::request(&place, launch::STEPS).expect("a chain that runs");
    judge.disk("a runner at work", &host);
    host.wait_ms(250);
    session.look().expect("ours");
    session.append(Some("q"), &[&["d"]]).expect("ours");
    session.refuse_append("q", "no room");
    session.step_ended(0, StepEnd::partial("half")).expect("at work");
    session.step_not_started(1, "no room").expect("pending");
    let done = session.finish().expect("ours");
    assert_eq!((done.state, done.problems), (RunState::Failed, Vec::new()));
    judge.disk("a runner that worked", &host);
}

/// A route, what a nested run tells, and what is folded in of it.
pub(super) fn routed(judge: &Judge) {
    let host = disk(true);
    let route = nested::create_route(&host, &0, "root").expect("room");
    let budget = budget::create(&host, &0, Path::new("/"), "root", 3).expect("room");
    let (own, run_id) = (NestedSelf::of_root("root", Some(1)), run_id());
    let runs_root = nested::runs_root(&host, &0, "root").expect("room");
    create(&host, &0, layout::RESULTS_DIR, &never()).expect("room");
    let result = Path::new("/async-subagent-results/nested/root/run-1.json");
    let request = Request {
        session_id: Some("S"),
        nested: Some(Nested { route: &route.route, own: Some(&own) }),
        budget: Some(&budget),
        ..Request::new(&run_id, RunMode::Single, launch::STEPS, Path::new("/"), result)
    };
    let place = Place {
        temp: &0,
        temp_path: Path::new("/"),
        runs_root: &runs_root,
        runs_path: Path::new("/nested-subagent-runs/root"),
    };
    let prepared = prepare(&host, place, request).expect("in its place");
    let mut launch = prepared.start(&mut Spawner::of(&Child::new(77))).expect("made");
    launch::lead(&host, &mut launch, || {});
    judge.disk("a nested run", &host);
    let config = read_config(&host, Path::new("/async-cfg-run-1.json")).expect("valid");
    let startup = Startup::begin(&host, &0, &config, 30_000).expect("fresh");
    let committed = startup.wait().expect("it was let in");
    let desk = Desk::open(&committed).expect("reachable");
    let job = desk.job(None);
    let work = Work::new(RunMode::Single, &["a"]);
    let mut session = Session::begin_at(&desk, &job, &work).expect("ours");
    session.step_started(0, None).expect("pending");
    session.step_ended(0, StepEnd::failed("why")).expect("at work");
    session.finish().expect("ours");
    nested::project(&host, &route).expect("readable");
    judge.disk("a nested run that told of itself", &host);
}
