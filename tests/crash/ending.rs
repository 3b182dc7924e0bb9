//! Ends: what a runner and its observer leave for the proof, and every crash of a whole observation.

use runstore::observer::{Leftovers, ShimCommand, ShimReport, Subject, Witnessed, shim, witness};
use runstore::protocol::candidate::{Candidate, Instance, InstanceKind, ProcessTree};
use runstore::protocol::ids::RunId;
use runstore::protocol::observer_record::ObserverRecord;
use runstore::protocol::process::{Presence, ProcessRecord, ProcessSeen};
use runstore::protocol::proof::{ExitGrade, Proof, ProofState};
use runstore::protocol::slot::SlotKind;
use runstore::protocol::{Document, Open, layout};
use runstore::store::candidate::{record_no_writers, record_writers};
use runstore::store::host::{Adopted, Exit, Host as _, Signal};
use runstore::store::observer_record;
use runstore::store::proof::{RunPlace, complete, initialise, record_unobserved};
use runstore::store::slot::{self, SlotRequest};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, every_call};
use crate::table;

const STATUS: &str = r#"{"runId":"run-1","sessionId":"S","state":"running","pid":7,"processStartIdentity":"linux:9","startedAt":1,"lastUpdate":1790000000000,"steps":[{"agent":"a","status":"running"},{"agent":"b","status":"pending"}]}"#;

/// Puts a file into the run directory.
pub(crate) fn put(host: &FaultHost, name: &str, text: &str) {
    host.put(&format!("/runs/run-1/{name}"), text);
}

pub(crate) fn run_dir(host: &FaultHost) -> usize {
    host.dir("/runs/run-1")
}

/// A run that its launcher has let in: marker, status, pending proof, untouched candidate, bound slot.
pub(crate) fn under_way(host: &FaultHost) {
    for path in ["/runs", "/runs/.active-runs", "/runs/run-1"] {
        host.make_dir(path);
    }
    host.put("/runs/.active-runs/run-1", "");
    initialise(host, &run_dir(host), &run_id(), "i").expect("room");
    put(host, "status.json", STATUS);
    let own = ProcessSeen { presence: Presence::Present, ..ProcessSeen::default() };
    host.set_process(host.system().own_pid, own);
    let kind = SlotKind::Runner;
    let request =
        SlotRequest { session_id: "S", run_id: "run-1", async_dir: "/runs/run-1", kind, limit: 1 };
    let mut held = slot::acquire(host, &0, &request).expect("free").expect("there is a limit");
    slot::bind(host, &0, &mut held, "i", 5).expect("ours");
    let mut script = host.script();
    script.spawns.push_back(7);
    script.ends.push_back((7, Exit::Signal("SIGKILL".to_owned())));
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("run-1").expect("an id")
}

fn with_subject<T>(host: &FaultHost, act: impl FnOnce(&Subject<'_, usize>) -> T) -> T {
    let (runs_root, run_dir) = (host.dir("/runs"), run_dir(host));
    let run_id = run_id();
    let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id };
    act(&Subject { place, instance_id: "i" })
}

fn observe(host: &FaultHost) -> ShimReport {
    let command = ShimCommand { program: "runner".as_ref(), args: &[], cwd: None, env: &[] };
    with_subject(host, |subject| shim(host, subject, &command, &mut |_| {}))
        .expect("nothing fails here")
}

fn observed(host: &FaultHost) {
    let report = observe(host);
    assert_eq!(report.problems, [""; 0], "{report:?}");
    assert_eq!(report.finalised.proof.state, ProofState::Observed, "{report:?}");
    assert!(report.slot_released, "{report:?}");
}

pub(crate) fn content(host: &FaultHost, name: &str) -> Option<String> {
    host.text(&format!("/runs/run-1/{name}"))
}

pub(crate) fn proof(host: &FaultHost) -> Result<Proof, String> {
    let text = content(host, "process-terminal.json").ok_or("the proof is missing")?;
    let doc = Document::parse(&text).map_err(|e| format!("the proof is torn: {e}"))?;
    Proof::read(&doc).map_err(|e| e.to_string())
}

pub(crate) fn candidate(host: &FaultHost) -> Result<Candidate, String> {
    let text = content(host, "process-terminal-candidate.json").ok_or("no candidate")?;
    let doc = Document::parse(&text).map_err(|e| format!("the candidate is torn: {e}"))?;
    Candidate::read(&doc).map_err(|e| e.to_string())
}

pub(crate) fn slots(host: &FaultHost) -> usize {
    slot::occupied(host, &0, "S").expect("readable").len()
}

/// Nothing is let go of before the end is proven, and what was cut off can be completed.
fn nothing_goes_before_its_proof(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let proof = proof(host)?;
    let before = candidate(host)?;
    let marked = host.has("/runs/.active-runs/run-1");
    if proof.state == ProofState::Pending && (!marked || slots(host) == 0) {
        return Err("marker or slot went before the proof".to_owned());
    }
    if proof.state == ProofState::Observed && !before.has_counts() {
        return Err("the proof is ahead of its candidate".to_owned());
    }
    if crash.acknowledged && (proof.state != ProofState::Observed || marked || slots(host) > 0) {
        return Err("what was acknowledged is lost".to_owned());
    }
    let completed = with_subject(host, |subject| complete(host, &subject.place));
    let completed = completed.map_err(|e| e.to_string())?;
    if completed.is_some() != (proof.state == ProofState::Observed) {
        return Err("a completion invents or misses an end".to_owned());
    }
    Ok(())
}

#[test]
pub(crate) fn every_crash_of_an_observation_leaves_a_pending_proof_or_a_true_one() {
    let seen = explore(under_way, observed, nothing_goes_before_its_proof);
    table::seen("observer::shim", &seen);
    // From the start: 4 of the record, 2 of the logs, 5 of the candidate, then those of the proof.
    let rows = [
        ("the candidate is never flushed", Sabotage::Drop(8)),
        ("the proof is never flushed", Sabotage::Drop(13)),
        ("the directory is never flushed after the proof", Sabotage::Drop(15)),
    ];
    for (mistake, sabotage) in rows {
        let seen = explore_sabotaged(under_way, observed, nothing_goes_before_its_proof, sabotage);
        table::caught("observer::shim", mistake, &seen);
    }
}

#[test]
fn a_runner_that_was_killed_is_observed_because_nothing_of_it_is_left() {
    let host = FaultHost::new();
    under_way(&host);
    observed(&host);
    let proof = proof(&host).expect("whole");
    assert_eq!(proof.instances[0].signal.as_deref(), Some("SIGKILL"));
    assert_eq!(proof.exit_evidence, Some(Open::Known(ExitGrade::ParentWait)));
    let counts = candidate(&host).expect("whole").expected_writers;
    let zero = |step: &str| (step.to_owned(), 0);
    assert_eq!(counts, Some(vec![zero("0"), zero("1")]), "a zero for each step of the status");
    let record = observer_record::read(&host, &run_dir(&host)).expect("readable").expect("there");
    assert_eq!((record.instance_id.as_str(), record.process.pid), ("i", host.system().own_pid));
}

#[test]
fn what_is_left_in_the_session_is_ended_and_what_left_the_session_is_told() {
    let child = |pid, in_session| Adopted { pid, in_session, ended: false };
    let host = FaultHost::new();
    under_way(&host);
    host.script().left = vec![(child(8, true), false), (child(9, true), true)];
    let report = observe(&host);
    let ended = Leftovers { reaped: 2, signalled: 2, remaining: 0 };
    assert_eq!(report.leftovers, ended, "asked first, killed when it does not listen");
    assert!(host.script().sent.contains(&(9, Signal::Kill)), "{:?}", host.script().sent);
    assert!(!host.script().sent.contains(&(8, Signal::Kill)), "one that listens is not killed");
    assert!(
        host.script().sent.contains(&(8, Signal::Continue)),
        "one that is stopped must hear it"
    );
    assert_eq!(proof(&host).expect("whole").state, ProofState::Observed);

    let host = FaultHost::new();
    under_way(&host);
    host.script().left = vec![(child(8, false), false)];
    let report = observe(&host);
    assert_eq!(host.script().sent, [], "what has a session of its own is left alone");
    assert_eq!(report.leftovers.remaining, 1);
    assert_eq!(report.finalised.row, "F-10", "nobody knows that nothing is left");
    assert!(!report.slot_released && slots(&host) == 1, "so nothing is let go of");
    assert!(content(&host, "events.jsonl").expect("there").contains("runstore.observer.problem"));
}

#[test]
fn a_failing_effect_of_an_observation_is_told_or_made_good_and_invents_nothing() {
    every_call(
        under_way,
        |host| {
            let command =
                ShimCommand { program: "runner".as_ref(), args: &[], cwd: None, env: &[] };
            with_subject(host, |subject| shim(host, subject, &command, &mut |_| {}))
        },
        |host, answer, fault| {
            let at = format!("{fault:?}: {answer:?}");
            assert_eq!(sweep::litter(host), [""; 0], "{at}");
            let proof = proof(host).expect(&at);
            match answer {
                Ok(_) => {
                    assert_ne!(proof.state, ProofState::Pending, "{at}: it said so");
                    let released = slots(host) == 0;
                    assert!(!released || proof.state == ProofState::Observed, "{at}");
                }
                Err(_) => assert_eq!(proof.state, ProofState::Pending, "{at}: nothing was seen"),
            }
        },
    );
}

#[test]
fn the_logs_of_a_runner_are_private_whatever_the_umask() {
    for umask in [0, 0o022, 0o777] {
        let host = FaultHost::new();
        host.set_umask(umask);
        under_way(&host);
        observe(&host);
        for log in [layout::RUNNER_STDOUT_LOG, layout::RUNNER_STDERR_LOG] {
            let stat =
                host.stat_at(&run_dir(&host), log.as_ref()).expect("the runner writes to it");
            assert_eq!(stat.mode, 0o600, "{log}, umask {umask:o}");
        }
    }
}

fn writer() -> Instance {
    Instance {
        kind: InstanceKind::PiWriter,
        id: "w".to_owned(),
        close_observed_at_ms: 5,
        exit_code: Some(0),
        signal: None,
        attempt: Some(0),
        tree: Some(ProcessTree::Observed { process_group_id: 7, verified_at_ms: 6 }),
    }
}

fn written(host: &FaultHost) {
    let steps = [vec![writer()], Vec::new()];
    record_writers(host, &run_dir(host), "run-1", "i", &steps).expect("nothing fails here");
}

fn none_written(host: &FaultHost) {
    record_no_writers(host, &run_dir(host), "run-1", "i", 2).expect("nothing fails here");
}

fn old_or(count: u64) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> {
    move |host, crash| {
        let counts = candidate(host)?.expected_writers;
        let new = Some(vec![("0".to_owned(), count), ("1".to_owned(), 0)]);
        match counts {
            None if !crash.acknowledged => Ok(()),
            counts if counts == new => Ok(()),
            other => Err(format!("neither the old account nor the new one: {other:?}")),
        }
    }
}

fn recorded(host: &FaultHost) {
    let process = ProcessRecord { pid: 4, ..ProcessRecord::default() };
    let (run_id, instance_id) = ("run-1".to_owned(), "i".to_owned());
    let record = ObserverRecord { run_id, instance_id, process, since_ms: 5 };
    observer_record::write(host, &run_dir(host), &record).expect("nothing fails here");
}

fn released(host: &FaultHost) {
    assert!(slot::release_of_run(host, &0, "S", "run-1", "i").expect("ours"), "it was held");
}

fn said_unobserved(host: &FaultHost) {
    let done = with_subject(host, |subject| {
        record_unobserved(host, &subject.place, "i", ExitGrade::IdentityGone)
    });
    assert!(done.expect("nothing fails here").written);
}

#[test]
pub(crate) fn every_crash_of_an_account_of_writers_leaves_the_old_one_or_the_new_one() {
    table::seen("candidate::record_writers", &explore(under_way, written, old_or(1)));
    table::seen("candidate::record_no_writers", &explore(under_way, none_written, old_or(0)));
    for (mistake, sabotage) in [
        ("the account is never flushed", Sabotage::Drop(2)),
        ("the directory is never flushed", Sabotage::Drop(4)),
    ] {
        let seen = explore_sabotaged(under_way, written, old_or(1), sabotage);
        table::caught("candidate::record_writers", mistake, &seen);
    }
}

#[test]
pub(crate) fn every_crash_of_a_record_of_an_observer_leaves_it_whole_or_absent() {
    let seen = explore(under_way, recorded, |host, crash| {
        let there = content(host, ".runstore-observer.json");
        let Some(text) = there else {
            let lost = crash.acknowledged && crash.model == Model::Process;
            return if lost { Err("acknowledged, but lost".to_owned()) } else { Ok(()) };
        };
        let doc = Document::parse(&text).map_err(|e| format!("torn: {e}"))?;
        ObserverRecord::read(&doc).map(drop).map_err(|e| e.to_string())
    });
    table::seen("observer_record::write", &seen);
}

#[test]
pub(crate) fn every_crash_of_a_release_for_a_runner_leaves_the_slot_or_a_free_one() {
    let seen = explore(under_way, released, |host, crash| {
        if crash.acknowledged && slots(host) > 0 {
            return Err("what was acknowledged is lost".to_owned());
        }
        if slots(host) > 0 {
            // The process that died is gone, so its claim freezes nothing.
            let again = slot::release_of_run(host, &0, "S", "run-1", "i");
            again.map(drop).map_err(|e| format!("frozen: {e}"))?;
        }
        Ok(())
    });
    table::seen("slot::release_of_run", &seen);
}

#[test]
fn only_the_slot_of_this_runner_is_released() {
    let host = FaultHost::new();
    under_way(&host);
    for (session, run, instance) in
        [("S", "run-1", "other"), ("S", "run-2", "i"), ("T", "run-1", "i")]
    {
        let released = slot::release_of_run(&host, &0, session, run, instance).expect("readable");
        assert!(!released, "{session} {run} {instance}");
    }
    assert_eq!(slots(&host), 1);
}

#[test]
pub(crate) fn every_crash_of_a_statement_that_nobody_saw_leaves_pending_or_the_statement() {
    let seen = explore(under_way, said_unobserved, |host, crash| {
        let proof = proof(host)?;
        let marked = host.has("/runs/.active-runs/run-1");
        match proof.state {
            ProofState::Pending if !crash.acknowledged && marked => Ok(()),
            ProofState::Unknown if marked => {
                let grade = proof.exit_evidence == Some(Open::Known(ExitGrade::IdentityGone));
                if grade { Ok(()) } else { Err("without its evidence".to_owned()) }
            }
            state => Err(format!("{state}, marked: {marked}")),
        }
    });
    table::seen("proof::record_unobserved", &seen);
}

fn alive(host: &FaultHost) {
    let seen = ProcessSeen {
        presence: Presence::Present,
        start_identity: Some("linux:9".to_owned()),
        ..ProcessSeen::default()
    };
    host.set_process(7, seen);
}

fn attach(host: &FaultHost, ms: Option<u64>) -> Witnessed {
    with_subject(host, |subject| witness(host, subject, ms, &mut |_| {}))
        .expect("nothing fails here")
}

#[test]
fn a_witness_observes_only_what_the_system_tells_it() {
    let host = FaultHost::new();
    under_way(&host);
    alive(&host);
    assert!(matches!(attach(&host, Some(5)), Witnessed::StillRunning), "it runs");
    written(&host);
    host.script().told = Some(Exit::Code(3));
    let Witnessed::Observed(exit, settled) = attach(&host, None) else { panic!("told the end") };
    let done = settled.finalised;
    assert_eq!((exit, done.row), (Exit::Code(3), "F-12"));
    assert_eq!(done.proof.instances[0].exit_code, Some(3));
    assert_eq!((settled.slot_released, slots(&host)), (true, 0), "an end that was seen frees it");
    assert_eq!(done.proof.exit_evidence, Some(Open::Known(ExitGrade::PidfdExit)));
    assert!(matches!(attach(&host, None), Witnessed::Settled(ProofState::Observed)));

    for (change, grade) in
        [("", ExitGrade::IdentityGone), (r#","bootId":"boot-0""#, ExitGrade::Rebooted)]
    {
        let host = FaultHost::new();
        under_way(&host);
        alive(&host);
        let status = STATUS.replace(r#","startedAt""#, &format!(r#"{change},"startedAt""#));
        put(&host, "status.json", &status);
        let Witnessed::Unobserved(done, seen) = attach(&host, None) else { panic!("not told") };
        assert_eq!((done.proof.state, seen), (ProofState::Unknown, grade), "{change}");
        assert_eq!(proof(&host).expect("whole").exit_evidence, Some(Open::Known(grade)));
        assert_eq!(slots(&host), 1, "nothing is let go of for an end that nobody saw");
    }
}

/// A live run whose runner has given its account, and a system that tells its end to a witness.
fn watched(host: &FaultHost) {
    under_way(host);
    alive(host);
    written(host);
    host.script().told = Some(Exit::Code(3));
}

fn told(host: &FaultHost) {
    let witnessed = attach(host, None);
    let Witnessed::Observed(_, settled) = witnessed else { panic!("told: {witnessed:?}") };
    assert_eq!((settled.slot_released, settled.problems), (true, Vec::new()));
}

/// Covers RS-OBS-31.
#[test]
pub(crate) fn every_crash_of_a_witness_that_was_told_leaves_a_pending_proof_or_a_true_one() {
    let seen = explore(watched, told, nothing_goes_before_its_proof);
    table::stepped("observer::witness", &seen, 22);
    for (mistake, sabotage) in [
        ("the proof is never flushed", Sabotage::Drop(2)),
        ("the directory is never flushed after the proof", Sabotage::Drop(4)),
    ] {
        let seen = explore_sabotaged(watched, told, nothing_goes_before_its_proof, sabotage);
        table::caught("observer::witness", mistake, &seen);
    }
}

#[test]
fn a_witness_leaves_a_run_to_its_observer_and_one_that_cannot_be_judged_alone() {
    let host = FaultHost::new();
    under_way(&host);
    alive(&host);
    let process = ProcessRecord {
        pid: host.system().own_pid,
        identity: runstore::protocol::process::RecordedIdentity {
            start_identity: Some("linux:5".to_owned()),
            ..Default::default()
        },
        ..ProcessRecord::default()
    };
    let seen = ProcessSeen {
        presence: Presence::Present,
        start_identity: Some("linux:5".to_owned()),
        ..ProcessSeen::default()
    };
    host.set_process(process.pid, seen);
    let (run_id, instance_id) = ("run-1".to_owned(), "i".to_owned());
    let record = ObserverRecord { run_id, instance_id, process, since_ms: host.now_ms() };
    observer_record::write(&host, &run_dir(&host), &record).expect("room");
    assert!(matches!(attach(&host, None), Witnessed::Attended(_)), "its observer lives");

    let host = FaultHost::new();
    under_way(&host);
    let unknown = Presence::Unknown("hidden".to_owned());
    host.set_process(7, ProcessSeen { presence: unknown, ..ProcessSeen::default() });
    assert!(matches!(attach(&host, None), Witnessed::Undetermined(_)), "silence ends nothing");
    assert_eq!(proof(&host).expect("whole").state, ProofState::Pending);
}
