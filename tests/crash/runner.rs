//! A whole run of a plain command, one of a runner that does its own work, an inbox, and the release of a lease: every
//! crash of each.

use runstore::protocol::candidate::InstanceKind;
use runstore::protocol::control::InboxClosed;
use runstore::protocol::ids::RunId;
use runstore::protocol::status::{StatusView, StepView};
use runstore::protocol::written_run::Activity;
use runstore::protocol::{Document, Open, RunMode, RunState, StepState};
use runstore::runner::finish::Finished;
use runstore::runner::session::{Session, StepEnd, Work};
use runstore::runner::steps::{Job, Plan, RunnerError, Step, run};
use runstore::store::append;
use runstore::store::atomic::{Durability, Options, replace};
use runstore::store::candidate::acknowledge_release;
use runstore::store::host::{Exit, Host as _, WriteHost as _};
use runstore::store::inbox::{Message, Request, close, take};
use runstore::store::proof::RunPlace;
use runstore::store::run::StatusPlace;
use testkit::fault::{Crash, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged};
use testkit::launch::STEPS;

use crate::ending::{candidate, content, put, run_dir, run_id, under_way};
use crate::sweep::{self, every_call};
use crate::table;

/// A run that was let in, with a place for its result.
fn let_in(host: &FaultHost) {
    under_way(host);
    host.make_dir("/results");
    let mut script = host.script();
    script.ends.clear();
    script.ends.push_back((7, Exit::Code(0)));
}

fn job<'a>(
    host: &'a FaultHost,
    (runs_root, run_dir, results): (&'a usize, &'a usize, &'a usize),
    run_id: &'a RunId,
) -> Job<'a, FaultHost> {
    Job {
        host,
        place: RunPlace { temp: &0, runs_root, run_dir, run_id },
        results,
        locks: None,
        instance_id: "i",
        session_id: Some("S"),
        completion_owner_id: None,
        cwd: "/",
        async_dir: "/runs/run-1",
        lease: None,
    }
}

fn try_run(host: &FaultHost) -> Result<Finished, RunnerError> {
    let (runs_root, run_dir, results) = (host.dir("/runs"), run_dir(host), host.dir("/results"));
    let run_id = run_id();
    let job = job(host, (&runs_root, &run_dir, &results), &run_id);
    let step = Step {
        agent: "a".to_owned(),
        program: "a".into(),
        args: Vec::new(),
        cwd: None,
        env: Vec::new(),
    };
    run(&job, &Plan { groups: vec![vec![step]], deadline_at_ms: None, output_max_bytes: 1 << 20 })
}

fn executed(host: &FaultHost) {
    let done = try_run(host).expect("nothing fails here");
    assert_eq!((done.state, done.problems.as_slice()), (RunState::Complete, &[][..]));
}

fn state(host: &FaultHost) -> Result<StatusView, String> {
    let text = content(host, "status.json").ok_or("the status is missing")?;
    let doc = Document::parse(&text).map_err(|e| format!("the status is torn: {e}"))?;
    Ok(StatusView::read(&doc))
}

fn is_open(step: &StepView) -> bool {
    step.state.as_ref().and_then(Open::known).is_none_or(StepState::is_open)
}

/// Whether the result is public or pending.
fn has_result(host: &FaultHost) -> bool {
    host.tree().iter().any(|(path, bytes)| {
        let in_place = path == "results/run-1.json"
            || path.starts_with("results/result-pending/") && path.ends_with("run-1.json");
        let whole = bytes.as_ref().and_then(|bytes| Document::from_bytes(bytes).ok().map(drop));
        in_place && whole.is_some()
    })
}

/// The end is told in its order: no account of writers without an end, no end without its result.
fn an_end_has_its_result(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    // While the run is active its status is ordered only, and without a journal a power cut may take the
    // name of such a file.
    if !crash.journal && content(host, "status.json").is_none() {
        return if crash.acknowledged { Err("the end is lost".to_owned()) } else { Ok(()) };
    }
    let status = state(host)?;
    let ended = status.known_state().is_some_and(RunState::is_terminal);
    if ended && !has_result(host) {
        return Err("an end without its result".to_owned());
    }
    if ended && status.steps.iter().any(is_open) {
        return Err("an end with a step that runs".to_owned());
    }
    if candidate(host)?.has_counts() && !ended {
        return Err("the account of the writers is ahead of the end".to_owned());
    }
    let marked = host.has("/runs/.active-runs/run-1");
    if !ended && !marked {
        return Err("a run that runs is in no index".to_owned());
    }
    let all = ended && candidate(host)?.has_counts();
    if crash.acknowledged && !(all && (crash.model == Model::Power || !marked)) {
        return Err("what was acknowledged is lost".to_owned());
    }
    Ok(())
}

#[test]
pub(crate) fn every_crash_of_a_run_leaves_an_end_with_its_result_or_none() {
    let seen = explore(let_in, executed, an_end_has_its_result);
    table::seen("runner::steps::run", &seen);
}

#[test]
fn a_failing_effect_of_a_run_is_told_and_no_end_is_without_its_result() {
    every_call(let_in, try_run, |host, answer, fault| {
        let at = format!("{fault:?}: {answer:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
        let status = state(host).expect(&at);
        let ended = status.known_state().is_some_and(RunState::is_terminal);
        match answer {
            Ok(done) => {
                assert!(ended, "{at}: it said so");
                assert_eq!(status.known_state(), Some(done.state), "{at}");
                assert!(has_result(host) || done.state == RunState::Failed, "{at}");
            }
            Err(_) => assert!(!ended || has_result(host), "{at}"),
        }
    });
}

/// The kinds of the writers that a run leaves under these variables.
fn kinds(variables: &[(&str, &str)]) -> Vec<InstanceKind> {
    let host = FaultHost::new();
    let_in(&host);
    for (name, value) in variables {
        host.set_env(name, value);
    }
    executed(&host);
    let writers = candidate(&host).expect("whole").writers;
    writers.into_iter().flat_map(|(_, records)| records).map(|record| record.kind).collect()
}

/// Spec: RS-CAND-08.
#[test]
fn a_writer_is_of_the_kind_that_the_readers_of_the_store_know() {
    let (pi, dm) = ("PI_SUBAGENTS_TEMP_ROOT", "DM_SUBAGENTS_TEMP_ROOT");
    assert_eq!(kinds(&[]), [InstanceKind::PiWriter], "nothing says whose store it is");
    assert_eq!(kinds(&[(dm, "/")]), [InstanceKind::DmWriter]);
    assert_eq!(kinds(&[(pi, "/"), (dm, "/other")]), [InstanceKind::PiWriter]);
}

#[test]
fn a_run_whose_end_somebody_else_has_told_says_nothing_more() {
    let host = FaultHost::new();
    let_in(&host);
    let text = content(&host, "status.json").expect("there").replace("running", "complete");
    put(&host, "status.json", &text);
    assert!(matches!(try_run(&host), Err(RunnerError::Displaced(_))));
    assert_eq!(content(&host, "status.json").as_deref(), Some(&*text), "the first end stays");
    assert!(!has_result(&host) && !candidate(&host).expect("whole").has_counts());
}

#[test]
fn what_goes_wrong_at_the_end_of_a_run_is_told_with_the_cause_that_the_system_gave() {
    let host = FaultHost::new();
    let_in(&host);
    host.put("/results/result-pending", "no directory");
    host.put("/runs/.terminal-runs", "no directory");
    let done = try_run(&host).expect("the end itself can be recorded");
    let error = done.error.expect("nobody is told of a success without a result");
    assert!(error.contains("result-pending") && error.contains("stands in its place"), "{error}");
    assert_eq!(state(&host).expect("whole").error.as_deref(), Some(&*error));
    assert_eq!(done.problems.len(), 2, "{:?}", done.problems);
    for problem in &done.problems {
        assert!(problem.contains("stands in its place"), "{problem}");
    }
}

/// A runner that does its own work: a step in itself, one that it ends early, a group that it makes, and
/// what it says meanwhile.
fn try_session(host: &FaultHost) -> Result<Finished, RunnerError> {
    let (runs_root, run_dir, results) = (host.dir("/runs"), run_dir(host), host.dir("/results"));
    let run_id = run_id();
    let job = job(host, (&runs_root, &run_dir, &results), &run_id);
    let mut session = Session::begin(&job, &Work::new(RunMode::Chain, &["a", "expand:b"]))?;
    session.step_started(0, None)?;
    session.activity(0, &Activity { turns: Some(1), ..Activity::default() });
    session.output(0, b"said");
    let described = session.describe(0, "sessionFile", "\"/s.jsonl\"");
    described.expect("it is the runner's own");
    host.wait_ms(1_000);
    session.look()?;
    session.step_ended(0, StepEnd::complete())?;
    session.expand(1, &["b", "c"])?;
    for step in [1, 2] {
        session.step_started(step, None)?;
        session.step_ended(step, StepEnd::complete())?;
    }
    session.finish()
}

fn worked(host: &FaultHost) {
    let done = try_session(host).expect("nothing fails here");
    assert_eq!((done.state, done.problems.as_slice()), (RunState::Complete, &[][..]));
}

#[test]
pub(crate) fn every_crash_of_a_session_leaves_an_end_with_its_result_or_none() {
    let seen = explore(let_in, worked, an_end_has_its_result);
    table::seen("session::Session", &seen);
}

#[test]
pub(crate) fn an_end_of_a_session_before_its_result_is_caught() {
    let before_the_result = |host: &FaultHost| {
        let (runs_root, run_dir, results) =
            (host.dir("/runs"), run_dir(host), host.dir("/results"));
        let run_id = run_id();
        let job = job(host, (&runs_root, &run_dir, &results), &run_id);
        let mut session = Session::begin(&job, &Work::new(RunMode::Single, &["a"])).expect("ours");
        session.step_started(0, None).expect("ours");
        let text = content(host, "status.json").expect("there").replace("running", "complete");
        let options = Options::new(Durability::Durable);
        replace(host, &run_dir, "status.json", text.as_bytes(), &options).expect("room");
    };
    let seen = explore(let_in, before_the_result, an_end_has_its_result);
    table::caught("session::Session", "a runner writes its end itself, before the result", &seen);
}

#[test]
fn a_failing_effect_of_a_session_is_told_and_no_end_is_without_its_result() {
    every_call(let_in, try_session, |host, answer, fault| {
        let at = format!("{fault:?}: {answer:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
        let status = state(host).expect(&at);
        let ended = status.known_state().is_some_and(RunState::is_terminal);
        match answer {
            Ok(done) => {
                assert_eq!(status.known_state(), Some(done.state), "{at}");
                assert!(has_result(host) || done.state == RunState::Failed, "{at}");
            }
            Err(_) => assert!(!ended || has_result(host), "{at}"),
        }
    });
}

#[test]
fn a_run_waits_for_room_before_its_first_step() {
    const ENOSPC: i32 = 28;
    // Whatever of the first status meets the full disk.
    for n in 0..3 {
        let host = FaultHost::new();
        let_in(&host);
        host.begin();
        let before_ms = host.now_ms();
        host.fail_at(n, Injected::Errno(ENOSPC));
        let done = try_session(&host).expect("there is room a moment later");
        assert_eq!(done.state, RunState::Complete, "effect {n}");
        assert!(host.now_ms() >= before_ms + 1_000, "effect {n}: it was waited for");
    }
}

#[test]
fn a_run_that_cannot_tell_its_begin_says_so() {
    let host = FaultHost::new();
    let_in(&host);
    host.begin();
    host.fail_at(0, Injected::Errno(5));
    let done = try_session(&host);
    assert!(matches!(done, Err(RunnerError::Begin(_))), "{done:?}");
}

/// An inbox with one request of each kind, and two that break a rule.
fn asked(host: &FaultHost) {
    under_way(host);
    for dir in ["control", "control/stop-requests", "control/steer-requests"] {
        host.make_dir(&format!("/runs/run-1/{dir}"));
    }
    put(host, "control/interrupt.json", "whatever");
    put(host, "control/timeout.json", "");
    let stops = "control/stop-requests";
    put(host, &format!("{stops}/1-b.json"), r#"{"type":"stop","targetIndex":1}"#);
    put(host, &format!("{stops}/0-a.json"), r#"{"type":"stop","reason":"why"}"#);
    put(host, &format!("{stops}/2-c.json"), r#"{"type":"halt"}"#);
    host.make_dir(&format!("/runs/run-1/{stops}/3-d.json"));
    let steer = r#"{"type":"steer","id":"m","ts":1,"message":"m"}"#;
    put(host, "control/steer-requests/0-a.json", steer);
}

fn requests() -> Vec<Request> {
    vec![
        Request::Stop { step: None, reason: Some("why".to_owned()) },
        Request::Stop { step: Some(1), reason: None },
        Request::Timeout,
        Request::Interrupt,
        Request::Steer(Message {
            id: "m".to_owned(),
            text: "m".to_owned(),
            mode: None,
            targets: Vec::new(),
        }),
    ]
}

fn taken(host: &FaultHost) -> Vec<Request> {
    take(host, &run_dir(host), "run-1").expect("readable").requests
}

fn all_taken(host: &FaultHost) {
    assert_eq!(taken(host), requests(), "stop, timeout, interrupt, steer; each in order");
}

fn lines(host: &FaultHost) -> usize {
    content(host, "events.jsonl").map_or(0, |log| log.matches("runstore.control.taken").count())
}

/// A chain that is asked for further steps.
fn a_chain(host: &FaultHost) {
    under_way(host);
    let text = content(host, "status.json").expect("there");
    put(host, "status.json", &text.replacen('{', "{\"mode\":\"chain\",", 1));
}

fn try_ask(host: &FaultHost) -> Result<String, append::AppendError> {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    append::request(&place, STEPS)
}

fn asked_for_steps(host: &FaultHost) {
    try_ask(host).expect("nothing fails here");
}

fn open_requests(host: &FaultHost) -> Vec<Request> {
    let taken = take(host, &run_dir(host), "run-1").expect("readable");
    assert_eq!(taken.ignored, 0, "no request is torn");
    taken.requests
}

/// What a status counts is there, and a request is whole: a runner takes every one that it finds.
fn a_request_is_whole_or_absent(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let counted = content(host, "status.json").is_some_and(|text| text.contains("pendingAppends"));
    let taken = take(host, &run_dir(host), "run-1").map_err(|e| e.to_string())?;
    if taken.ignored > 0 && crash.journal {
        return Err("a torn request".to_owned());
    }
    // Neither is flushed for itself, so a power cut may take one of them.
    if counted && taken.requests.is_empty() && crash.model == Model::Process {
        return Err("the status counts a request that is not there".to_owned());
    }
    let lost = taken.requests.is_empty() && crash.model == Model::Process;
    if crash.acknowledged && lost { Err("the request is lost".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn every_crash_of_asking_for_steps_leaves_a_request_or_none() {
    let seen = explore(a_chain, asked_for_steps, a_request_is_whole_or_absent);
    table::seen("append::request", &seen);
    every_call(a_chain, try_ask, |host, answer, fault| {
        let at = format!("{fault:?}: {answer:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
        assert_eq!(open_requests(host).len(), usize::from(answer.is_ok()), "{at}");
    });
}

#[test]
pub(crate) fn every_crash_of_taking_up_requests_leaves_each_there_or_told() {
    let seen = explore(asked, all_taken, |host, crash| {
        let told = lines(host);
        let left = taken(host).len();
        if crash.model == Model::Process && told + left < requests().len() {
            return Err(format!("{told} told, {left} left: a request went without a word"));
        }
        // A power cut may bring a removed file back: nobody lives to obey it then.
        if crash.acknowledged && crash.model == Model::Process && left > 0 {
            return Err("taken up twice".to_owned());
        }
        Ok(())
    });
    table::seen("inbox::take", &seen);
    // Per request: create of the log, write, removal; here those of the first.
    let check = |host: &FaultHost, crash: &Crash| {
        let told = lines(host);
        let left = taken(host).len();
        let lost = crash.model == Model::Process && told + left < requests().len();
        if lost { Err("a request went without a word".to_owned()) } else { Ok(()) }
    };
    let seen = explore_sabotaged(asked, all_taken, check, Sabotage::Swap(1));
    table::caught("inbox::take", "a request is removed before it is told", &seen);
}

#[test]
fn a_request_that_cannot_be_removed_is_not_carried_out_unless_twice_is_as_good() {
    every_call(
        asked,
        |host| take(host, &run_dir(host), "run-1"),
        |host, answer, fault| {
            let at = format!("{fault:?}: {answer:?}");
            let first = answer.map(|taken| taken.requests).unwrap_or_default();
            let again = taken(host);
            let twice = |request: &&Request| {
                matches!(request, Request::Stop { .. } | Request::Steer { .. })
                    && again.contains(request)
            };
            assert_eq!(first.iter().find(twice), None, "{at}: a stop is obeyed once");
            let all = requests();
            let seen = all.iter().filter(|r| first.contains(r) || again.contains(r)).count();
            assert_eq!(seen, all.len(), "{at}: none is lost");
        },
    );
}

fn closed(host: &FaultHost) {
    close(host, &run_dir(host), Some(RunState::Complete)).expect("room");
}

#[test]
pub(crate) fn every_crash_of_closing_an_inbox_leaves_whole_markers_or_none() {
    let seen = explore(under_way, closed, |host, crash| {
        for name in ["stop-inbox-closed.json", "steer-inbox-closed.json"] {
            match content(host, &format!("control/{name}")) {
                None if crash.acknowledged && crash.model == Model::Process => {
                    return Err(format!("acknowledged without {name}"));
                }
                None => {}
                Some(text) => {
                    let doc = Document::parse(&text).map_err(|e| format!("torn: {e}"))?;
                    InboxClosed::read(&doc).map_err(|e| e.to_string())?;
                }
            }
        }
        Ok(())
    });
    table::seen("inbox::close", &seen);
}

/// A candidate of a revived run whose lease was released.
fn released(host: &FaultHost) {
    under_way(host);
    let text = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{},"sessionFile":"/s","revivalLeaseToken":"t"}"#;
    put(host, "process-terminal-candidate.json", text);
}

fn acknowledged(host: &FaultHost) {
    acknowledge_release(host, &run_dir(host), "t", true).expect("room");
}

#[test]
pub(crate) fn every_crash_of_an_acknowledgement_leaves_it_whole_or_absent() {
    let seen = explore(released, acknowledged, |host, crash| {
        match candidate(host)?.lease_release_acknowledged {
            Some(true) => Ok(()),
            None if !crash.acknowledged => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    table::seen("candidate::acknowledge_release", &seen);
    let host = FaultHost::new();
    released(&host);
    acknowledge_release(&host, &run_dir(&host), "other", true).expect_err("another lease");
}
