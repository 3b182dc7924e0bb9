//! A new run and the accounts of it: never without its status once acknowledged, never torn, and the
//! first real end stays.

use std::ops::ControlFlow;
use std::path::Path;

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::account::Author;
use runstore::protocol::evidence::Times;
use runstore::protocol::ids::RunId;
use runstore::protocol::process::ProcessRecord;
use runstore::protocol::status::StatusView;
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{Document, RunMode, RunState};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{
    RunError, StartupFailure, StatusPlace, create, record_startup_failure, update, write_first,
};
use runstore::store::sidecar::{PatchError, Patched};
use runstore::store::{Depth, Opened, Store, identity};
use testkit::fault::{
    Crash, Effect, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged,
};

use crate::sweep::{self, every_call};
use crate::table;

const RUNS: &str = "/async-subagent-runs";
const RUN: &str = "/async-subagent-runs/run-1";
const RUNNER: Author<'static> = Author::Runner { instance: "i" };
const STATUS: &str = "status.json";
const CANDIDATE: &str = "process-terminal-candidate.json";

fn run_id() -> RunId {
    RunId::parse("run-1").expect("an id")
}

fn empty(host: &FaultHost) {
    host.make_dir(RUNS);
}

fn run_dir(host: &FaultHost) -> usize {
    host.dir(RUN)
}

fn try_make(host: &FaultHost) -> Result<(), RunError> {
    let runs = host.dir(RUNS);
    let run = create(host, &runs, &run_id(), &RetryPolicy::never())?;
    let first = FirstStatus {
        run_id: "run-1",
        session_id: Some("S"),
        completion_owner_id: None,
        tool_call_id: None,
        mode: RunMode::Single,
        agents: &["a"],
        groups: &[],
        started_at_ms: 5,
        process: &ProcessRecord { pid: 7, ..ProcessRecord::default() },
        instance_id: "i",
    };
    write_first(host, &run, &first)
}

fn make(host: &FaultHost) {
    try_make(host).expect("nothing fails here");
}

fn made(host: &FaultHost) {
    empty(host);
    make(host);
}

/// A run directory without a status.
fn bare(host: &FaultHost) {
    empty(host);
    let runs = host.dir(RUNS);
    create(host, &runs, &run_id(), &RetryPolicy::never()).expect("nothing fails here");
}

fn content(host: &FaultHost, name: &str) -> Option<String> {
    host.text(&format!("{RUN}/{name}"))
}

fn put(host: &FaultHost, name: &str, text: &str) {
    host.put(&format!("{RUN}/{name}"), text);
}

/// The state that the status tells; an error when it is torn.
fn state(host: &FaultHost) -> Result<Option<RunState>, String> {
    let Some(text) = content(host, STATUS) else { return Ok(None) };
    let doc = Document::parse(&text).map_err(|e| format!("the status is torn: {e}: {text:?}"))?;
    let view = StatusView::read(&doc);
    if !view.damage.is_empty() {
        return Err(format!("the status is damaged: {:?}", view.damage));
    }
    view.known_state().map(Some).ok_or_else(|| format!("no state in {text}"))
}

/// What the library's own reader says of the whole store.
fn reports(host: &FaultHost) -> Result<Vec<RunReport>, String> {
    let opened = Store::open(host, Path::new(RUNS), host.now_ms(), Times::default());
    let Ok(Opened::Store(store)) = opened else { return Err("no store".to_owned()) };
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut each = |report: RunReport| {
        found.push(report);
        ControlFlow::Continue(())
    };
    Inspection::new(&store, Depth::Full).each(&mut each, &mut problems);
    Ok(found)
}

/// Its verdicts.
fn verdicts(host: &FaultHost) -> Result<Vec<String>, String> {
    let said = |report: &RunReport| format!("{}: {}", report.run_id, report.verdict);
    Ok(reports(host)?.iter().map(said).collect())
}

// A new run.

fn new_run_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let told = state(host)?;
    if crash.acknowledged && told != Some(RunState::Running) {
        return Err(format!("acknowledged, but its status tells {told:?}"));
    }
    let there = host.has(RUN);
    let found = verdicts(host)?;
    // One run or none, under its own name: nothing half-made is listed as another one.
    let one = found.len() == usize::from(there) && found.iter().all(|v| v.starts_with("run-1: "));
    if !one || found.iter().any(|verdict| verdict.ends_with("corrupt")) {
        return Err(format!("it is listed as {found:?}"));
    }
    // The same id is refused while anything stands there, and free if nothing does.
    match try_make(host) {
        Err(RunError::Taken(_)) if there => Ok(()),
        Ok(()) if !there => Ok(()),
        other => Err(format!("there: {there}, made again: {other:?}")),
    }
}

#[test]
pub(crate) fn a_new_run_is_absent_empty_or_whole_after_every_crash() {
    let seen = explore(empty, make, new_run_holds);
    assert_eq!(seen.steps, 7, "make, flush the root; create, write, flush, rename, flush");
    table::seen("run::create and run::write_first", &seen);
    let host = FaultHost::new();
    empty(&host);
    host.begin();
    make(&host);
    let is_flush = |e: &Effect| matches!(e, Effect::Sync { .. } | Effect::SyncDir { .. });
    assert_eq!(host.effects().iter().filter(|e| is_flush(e)).count(), 3, "status, run, root");
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_of_a_new_run_is_caught() {
    for (mistake, sabotage) in [
        ("the runs root is never flushed", Sabotage::Drop(1)),
        ("the first status is never flushed", Sabotage::Drop(4)),
        ("the run directory is never flushed", Sabotage::Drop(6)),
        ("the first status is renamed before it is flushed", Sabotage::Swap(4)),
        ("acknowledged before the first status is in place", Sabotage::Swap(5)),
    ] {
        let seen = explore_sabotaged(empty, make, new_run_holds, sabotage);
        table::caught("run::create and run::write_first", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_of_a_new_run_leaves_it_absent_or_whole() {
    let points = every_call(empty, try_make, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        let told = state(host).expect(&at);
        if fault.is_made_good() {
            assert!(done.is_ok(), "{at}: it goes on");
        }
        match done {
            Ok(()) => assert_eq!(told, Some(RunState::Running), "{at}"),
            Err(e) => {
                let name = if fault.call < 2 { "run-1" } else { STATUS };
                assert!(e.to_string().contains(name), "{at}: the error names the file");
                let there = host.has(RUN);
                assert_eq!(there, fault.call >= 2, "{at}: what is not flushed is removed");
                // After the last flush the status is in place, and only its survival is in doubt.
                assert_eq!(told.is_some(), fault.call == 6, "{at}");
            }
        }
    });
    assert_eq!(points, 7 * 8);
}

#[test]
fn a_name_that_is_taken_is_refused_whatever_stands_there() {
    let host = FaultHost::new();
    empty(&host);
    let runs = host.dir(RUNS);
    for make in [
        |host: &FaultHost, runs| host.create(&runs, "run-1".as_ref(), 0o600).map(drop),
        |host: &FaultHost, runs| host.create_dir(&runs, "run-1".as_ref(), 0o700),
    ] {
        make(&host, runs).expect("room");
        let before = host.tree();
        let refused = create(&host, &runs, &run_id(), &RetryPolicy::never());
        assert!(matches!(refused, Err(RunError::Taken(_))), "{refused:?}");
        assert_eq!(host.tree(), before, "nothing is changed");
        let _ = host.unlink(&runs, "run-1".as_ref());
    }
    // A first status is written once.
    let host = FaultHost::new();
    made(&host);
    let first = FirstStatus {
        run_id: "run-1",
        session_id: None,
        completion_owner_id: None,
        tool_call_id: None,
        mode: RunMode::Single,
        agents: &[],
        groups: &[],
        started_at_ms: 6,
        process: &ProcessRecord::default(),
        instance_id: "j",
    };
    let before = host.tree();
    let refused = write_first(&host, &run_dir(&host), &first);
    assert!(matches!(refused, Err(RunError::Taken(_))), "{refused:?}");
    assert_eq!(host.tree(), before, "nothing is changed");
}

// Changes of the status.

fn change(
    host: &FaultHost,
    author: Author<'_>,
    patch: &StatusPatch,
) -> Result<Patched, PatchError> {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    update(&place, author, patch)
}

fn ended() -> StatusPatch {
    StatusPatch::at(9).state(RunState::Complete).ended_at_ms(9)
}

fn try_end(host: &FaultHost) -> Result<Patched, PatchError> {
    change(host, RUNNER, &ended())
}

fn try_step(host: &FaultHost) -> Result<Patched, PatchError> {
    change(host, RUNNER, &StatusPatch::at(8).member("currentStep", "1".to_owned()))
}

fn an_end_is_kept(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let told = state(host)?.ok_or("the status is lost")?;
    if crash.acknowledged && told != RunState::Complete {
        return Err(format!("an acknowledged end is lost: {told}"));
    }
    // Whatever a crash left, the same call makes it so.
    try_end(host).map_err(|e| format!("the same again: {e}"))?;
    if state(host)? == Some(RunState::Complete) { Ok(()) } else { Err("no end".to_owned()) }
}

fn a_step_is_not_torn(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    if state(host)?.is_none() {
        // The level ordered keeps no name where the rename may be split.
        let bearable = crash.model == Model::Power && !crash.journal;
        return if bearable { Ok(()) } else { Err("the status is lost".to_owned()) };
    }
    let text = content(host, STATUS).unwrap_or_default();
    let new = text.contains("\"currentStep\": 1");
    let kept = new || !crash.acknowledged || crash.model == Model::Power;
    if kept && text.contains("\"runnerProcessInstanceId\": \"i\"") { Ok(()) } else { Err(text) }
}

#[test]
pub(crate) fn an_account_is_whole_and_an_end_is_kept_after_every_crash() {
    let seen = explore(made, |host| try_end(host).expect("nothing fails here"), an_end_is_kept);
    assert_eq!(seen.steps, 5, "an end is durable");
    table::seen("run::update, an end", &seen);
    let step = |host: &FaultHost| try_step(host).expect("nothing fails here");
    let seen = explore(made, step, a_step_is_not_torn);
    assert_eq!(seen.steps, 4, "an account of an active run is ordered");
    table::seen("run::update, a step", &seen);
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_of_an_account_is_caught() {
    for (mistake, sabotage) in [
        ("the status is never flushed", Sabotage::Drop(2)),
        ("an end is not durable", Sabotage::Drop(4)),
        ("the status is renamed before it is flushed", Sabotage::Swap(2)),
        ("the directory is flushed before the rename", Sabotage::Swap(3)),
    ] {
        let end = |host: &FaultHost| try_end(host).expect("nothing fails here");
        let seen = explore_sabotaged(made, end, an_end_is_kept, sabotage);
        table::caught("run::update, an end", mistake, &seen);
    }
    let step = |host: &FaultHost| try_step(host).expect("nothing fails here");
    let seen = explore_sabotaged(made, step, a_step_is_not_torn, Sabotage::Drop(2));
    table::caught("run::update, a step", "the status is never flushed", &seen);
}

#[test]
fn every_failing_effect_of_an_account_leaves_the_old_one_or_the_new_one() {
    for (operation, new) in [
        (try_end as fn(&FaultHost) -> Result<Patched, PatchError>, RunState::Complete),
        (try_step, RunState::Running),
    ] {
        let points = every_call(made, operation, |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
            let told = state(host).expect(&at).expect(&at);
            match done {
                Ok(_) => assert_eq!(told, new, "{at}"),
                Err(PatchError::Write(e)) => {
                    assert!(!fault.is_made_good() && e.to_string().contains(STATUS), "{at}");
                    let in_doubt = fault.is_of_a_directory_flush();
                    assert_eq!(told == RunState::Complete, in_doubt, "{at}");
                }
                Err(e) => panic!("{at}: {e}"),
            }
            operation(host).expect("a second call completes it");
            assert_eq!(state(host).expect(&at), Some(new), "{at}: a second call completes it");
        });
        assert!(points >= 32, "{points} points");
    }
}

// RS-ATOM-14.
#[test]
fn an_old_account_under_its_second_name_is_litter_and_no_unpublished_write() {
    // Cut off after the old account got its second name: after create, write, flush and that.
    for cut_at in [4, 5] {
        let host = FaultHost::new().without_journal();
        made(&host);
        host.begin();
        host.fail_at(cut_at, Injected::Errno(5));
        // What died removes nothing.
        (5..9).filter(|n| *n > cut_at).for_each(|n| host.fail_at(n, Injected::Errno(5)));
        try_end(&host).expect_err("it is cut off");
        let told = reports(&host).expect("a store");
        let [report] = &told[..] else { panic!("one run: {told:?}") };
        assert!(report.flags.contains(&"temp-litter"), "{cut_at}: {:?}", report.flags);
        // Before the rename the new text is there, unpublished; after it only the old one is left.
        let newer = report.flags.contains(&"unpublished-write");
        assert_eq!(newer, cut_at == 4, "{cut_at}: {:?}", report.flags);
        let of_old = report.findings.iter().any(|finding| format!("{finding:?}").contains(".old."));
        assert!(!of_old, "{cut_at}: {:?}", report.findings);
    }
}

#[test]
fn an_end_that_was_not_flushed_is_made_durable_by_the_same_call_again() {
    let host = FaultHost::new();
    made(&host);
    try_end(&host).expect("nothing fails here");
    host.begin();
    assert!(matches!(try_end(&host), Ok(Patched::Kept)));
    let effects = host.effects();
    assert!(matches!(effects[..], [Effect::SyncDir { .. }]), "the directory only: {effects:?}");
}

#[test]
fn the_first_real_end_stays_and_a_repairers_gives_way_to_the_same_instance_only() {
    let repair = |reason: &str| {
        let proof = format!(
            r#"{{"version":1,"state":"unknown","runId":"run-1","runnerProcessInstanceId":"observer-unavailable","reason":"{reason}"}}"#
        );
        StatusPatch::at(7).state(RunState::Failed).member("processTerminal", proof)
    };
    let host = FaultHost::new();
    made(&host);
    put(
        &host,
        "process-terminal.json",
        r#"{"version":1,"state":"pending","runId":"run-1","runnerProcessInstanceId":"i"}"#,
    );
    change(&host, Author::Recoverer, &repair("stale-repair")).expect("it was running");
    assert_eq!(state(&host), Ok(Some(RunState::Failed)));
    // Another instance may not, the own one may; then it is its own account, and stays.
    let other = change(&host, Author::Runner { instance: "j" }, &ended());
    assert!(matches!(other, Err(PatchError::Refused(..))), "{other:?}");
    try_end(&host).expect("the run's own account");
    assert_eq!(state(&host), Ok(Some(RunState::Complete)));
    let text = content(&host, STATUS).expect("there");
    assert!(!text.contains("observer-unavailable"), "it is no longer one of a repairer: {text}");
    for (author, what) in [(Author::Recoverer, "a repairer"), (Author::Launcher, "a launcher")] {
        let late = change(&host, author, &StatusPatch::at(99).state(RunState::Failed));
        assert!(matches!(late, Err(PatchError::Refused(..))), "{what}: {late:?}");
    }
    let same = change(&host, Author::Recoverer, &StatusPatch::at(99).state(RunState::Complete));
    assert!(matches!(same, Ok(Patched::Kept)), "the same word: its own text stays: {same:?}");
    assert_eq!(content(&host, STATUS), Some(text), "byte for byte");
    let back = change(&host, RUNNER, &StatusPatch::at(99).state(RunState::Running));
    assert!(matches!(back, Err(PatchError::Refused(..))), "no way back: {back:?}");
}

#[test]
fn an_end_that_comes_in_between_is_judged_as_it_is_then() {
    for n in 0..3 {
        let host = FaultHost::new();
        made(&host);
        host.begin();
        // Right before the temp file is made, is filled, is flushed: the look after them sees it only
        // in the first case, which is why it is repeated right before the rename.
        host.interrupt_at(n, |host| {
            try_end(host).expect("the run's own end");
        });
        let late = change(&host, Author::Recoverer, &StatusPatch::at(99).state(RunState::Failed));
        let told = state(&host).expect("whole").expect("there");
        match late {
            Err(PatchError::Refused(..)) => assert_eq!(told, RunState::Complete, "before {n}"),
            Ok(_) => assert_eq!(told, RunState::Failed, "before {n}: within the window"),
            other => panic!("before {n}: {other:?}"),
        }
    }
}

#[test]
fn a_member_of_another_author_and_a_foreign_or_strange_status_are_left_alone() {
    let refused = |host: &FaultHost, author, patch: &StatusPatch| {
        let before = host.tree();
        let done = change(host, author, patch);
        assert!(matches!(done, Err(PatchError::Refused(..))), "{done:?}");
        assert_eq!(host.tree(), before, "nothing is changed");
    };
    let host = FaultHost::new();
    made(&host);
    refused(&host, Author::Launcher, &StatusPatch::at(9).ended_at_ms(9));
    refused(&host, Author::Recoverer, &StatusPatch::at(9).process(ProcessRecord::default()));
    refused(&host, Author::Runner { instance: "j" }, &ended());
    for status in [
        r#"{"runId":"run-2","state":"running"}"#,
        r#"{"runId":"run-1","state":"dreaming"}"#,
        r#"{"runId":"run-1"}"#,
    ] {
        put(&host, STATUS, status);
        refused(&host, RUNNER, &ended());
    }
    put(&host, STATUS, r#"{"state":"failed","state":"running"}"#);
    let done = try_end(&host);
    assert!(matches!(done, Err(PatchError::Damaged(..))), "{done:?}");
}

#[test]
fn a_process_is_replaced_with_everything_that_was_said_of_it() {
    let host = FaultHost::new();
    made(&host);
    let own = StatusPatch::at(9).process(identity::own(&host));
    change(&host, RUNNER, &own).expect("the runner takes over");
    let text = content(&host, STATUS).expect("there");
    let view = StatusView::read(&Document::parse(&text).expect("JSON"));
    assert_eq!(view.pid, Some(4242));
    assert_eq!(view.hostname.as_deref(), Some("host-a"));
    assert_eq!(view.identity.boot_id.as_deref(), Some("boot-1"));
    assert_eq!(view.identity.start_identity, None, "nothing is made up: the process shows none");
}

// A launch that failed.

const FAILURE: StartupFailure<'static> = StartupFailure {
    instance_id: "i",
    session_id: Some("S"),
    completion_owner_id: Some("o"),
    message: "why",
};

fn try_fail(host: &FaultHost) -> Result<(), PatchError> {
    let (run_dir, run_id) = (run_dir(host), run_id());
    let place = StatusPlace { host, run_dir: &run_dir, run_id: &run_id, locks: None };
    record_startup_failure(&place, Author::Launcher, &FAILURE)
}

fn fail(host: &FaultHost) {
    try_fail(host).expect("nothing fails here");
}

fn counted(host: &FaultHost) -> Result<bool, String> {
    let Some(text) = content(host, CANDIDATE) else { return Ok(false) };
    let doc = Document::parse(&text).map_err(|e| format!("the candidate is torn: {e}"))?;
    Ok(doc.get("expectedWriters").is_some())
}

fn a_failure_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let (told, counted) = (state(host)?, counted(host)?);
    let failed = told == Some(RunState::Failed);
    if failed && !counted {
        return Err("it failed, and an observer would find no counts".to_owned());
    }
    if crash.acknowledged && !(failed && counted) {
        return Err(format!("acknowledged, but {told:?}, counts: {counted}"));
    }
    try_fail(host).map_err(|e| format!("the same again: {e}"))?;
    let done = state(host)? == Some(RunState::Failed) && self::counted(host)?;
    if done { Ok(()) } else { Err("the same call does not complete it".to_owned()) }
}

#[test]
pub(crate) fn a_failed_launch_is_told_whole_after_every_crash() {
    for (what, setup) in [
        ("run::record_startup_failure", made as fn(&FaultHost)),
        ("run::record_startup_failure, no status yet", bare),
    ] {
        let seen = explore(setup, fail, a_failure_holds);
        assert_eq!(seen.steps, 10, "{what}: two durable files");
        table::seen(what, &seen);
        for (mistake, sabotage) in [
            ("the candidate is never flushed", Sabotage::Drop(2)),
            ("the candidate is not durable before the status", Sabotage::Drop(4)),
            ("the status is never flushed", Sabotage::Drop(7)),
            ("the status is not durable", Sabotage::Drop(9)),
        ] {
            let seen = explore_sabotaged(setup, fail, a_failure_holds, sabotage);
            table::caught(what, mistake, &seen);
        }
    }
}

#[test]
fn every_failing_effect_of_a_failed_launch_is_told_and_completed_by_a_second_call() {
    for setup in [made as fn(&FaultHost), bare] {
        let points = every_call(setup, try_fail, |host, done, fault| {
            let at = format!("{fault:?}: {done:?}");
            assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
            assert_eq!(done.is_ok(), fault.is_made_good(), "{at}");
            if let Err(PatchError::Write(e)) = &done {
                let name = if fault.call < 5 { CANDIDATE } else { STATUS };
                assert!(e.to_string().contains(name), "{at}: the error names the file");
            }
            try_fail(host).expect("a second call completes it");
            assert_eq!(state(host).expect(&at), Some(RunState::Failed), "{at}");
            assert!(counted(host).expect(&at), "{at}");
        });
        assert!(points >= 80, "{points} points");
    }
}

#[test]
fn a_failed_launch_keeps_what_it_finds() {
    // A status of many steps, a proof that was made meanwhile, a candidate that knows of a session.
    let host = FaultHost::new();
    bare(&host);
    put(
        &host,
        STATUS,
        r#"{"odd":1e400,"state":"running","steps":[{"agent":"a","status":"pending"},{"agent":"b","status":"pending"}],"processTerminal":{"version":1,"state":"unknown","runId":"run-1","runnerProcessInstanceId":"i","reason":"runner-candidate-missing"}}"#,
    );
    let candidate = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{},"sessionFile":"/s"}"#;
    put(&host, CANDIDATE, candidate);
    fail(&host);
    let status = content(&host, STATUS).expect("there");
    assert!(status.contains("\"odd\":1e400"), "unknown data stays: {status}");
    assert!(status.contains("runner-candidate-missing"), "a final proof stays: {status}");
    assert!(!status.contains("endedAt"), "it sets no end: {status}");
    let candidate = content(&host, CANDIDATE).expect("there");
    assert!(candidate.contains("\"sessionFile\":\"/s\""), "{candidate}");
    let doc = Document::parse(&candidate).expect("JSON");
    let counts = doc.get("expectedWriters").expect("set").text().to_owned();
    assert_eq!(counts.split_whitespace().collect::<String>(), r#"{"0":0,"1":0}"#, "one a step");
    // A status that cannot be rewritten is left alone, and so is the candidate.
    let host = FaultHost::new();
    bare(&host);
    put(&host, STATUS, "{");
    assert!(matches!(try_fail(&host), Err(PatchError::Damaged(..))));
    assert_eq!((content(&host, STATUS).as_deref(), content(&host, CANDIDATE)), (Some("{"), None));
    // A run that has ended has begun.
    let host = FaultHost::new();
    made(&host);
    try_end(&host).expect("nothing fails here");
    assert!(matches!(try_fail(&host), Err(PatchError::Refused(..))));
    assert_eq!(content(&host, CANDIDATE), None, "a run that has begun may have writers");
}
