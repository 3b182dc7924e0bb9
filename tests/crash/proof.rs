//! Proofs: the first one stays, nothing follows from one that a power cut can take, and what was cut
//! off is completed.

use std::path::Path;

use runstore::protocol::ids::RunId;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::proof::{Proof, ProofReason, ProofState};
use runstore::protocol::{Document, Open};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::lease;
use runstore::store::proof::{
    Consequence, Exit, ExitWitness, Finalised, ProofError, RunPlace, complete, finalise, initialise,
};
use testkit::fault::{
    Crash, Effect, FaultHost, Injected, Model, Sabotage, explore, explore_sabotaged,
};

use crate::sweep::{self, ERRNOS, every_call};
use crate::table;

const STATUS: &str = "{\n  \"runId\": \"run-1\",\n  \"state\": \"complete\",\n  \"odd\": 1e400,\n  \
                      \"steps\": [\n    {\n      \"agent\": \"a\",\n      \"status\":  \
                      \"complete\",\n      \"more\": {\"x\":  1}\n    }\n  ],\n  \"last\": 1\n}";
const CANDIDATE: &str = r#"{"version":1,"runId":"run-1","runnerProcessInstanceId":"i","writers":{"0":[]},"expectedWriters":{"0":0}}"#;
const PENDING: &str =
    r#"{"version":1,"state":"pending","runId":"run-1","runnerProcessInstanceId":"i"}"#;
const UNKNOWN: &str = r#"{"version":1,"state":"unknown","runId":"run-1","runnerProcessInstanceId":"i","reason":"process-tree-unverified","own":1}"#;

fn in_run(name: &str) -> String {
    format!("/runs/run-1/{name}")
}

fn make_dirs(host: &FaultHost) {
    let index = "/runs/.active-runs";
    let calls = format!("{index}/tool-calls");
    for path in ["/runs", index, &calls, &format!("{calls}/call"), "/runs/run-1"] {
        host.make_dir(path);
    }
}

/// A run that ended in order, with everything that its runner and launcher left.
fn ended(host: &FaultHost) {
    make_dirs(host);
    host.put("/runs/.active-runs/run-1", "");
    host.put("/runs/.active-runs/tool-calls/call/run-1", "");
    host.put(&in_run("status.json"), STATUS);
    host.put(&in_run("process-terminal-candidate.json"), CANDIDATE);
    host.put(&in_run("process-terminal.json"), PENDING);
}

/// The same, with a proof that the runner published itself.
fn ended_unknown(host: &FaultHost) {
    ended(host);
    host.put(&in_run("process-terminal.json"), UNKNOWN);
}

/// The same, with an observer that died right after its proof.
fn cut_off(host: &FaultHost) {
    ended(host);
    finalised(host);
    host.put("/runs/.active-runs/run-1", "");
    host.put(&in_run("status.json"), STATUS);
    host.unlink(&host.dir("/runs/run-1"), "events.jsonl".as_ref()).expect("there");
}

fn run_id() -> RunId {
    RunId::parse("run-1").expect("an id")
}

fn with_place<T>(host: &FaultHost, act: impl FnOnce(&RunPlace<'_, usize>) -> T) -> T {
    let (runs_root, run_dir) = (host.dir("/runs"), host.dir("/runs/run-1"));
    let run_id = run_id();
    let (temp, runs_root, run_dir) = (&0, &runs_root, &run_dir);
    act(&RunPlace { temp, runs_root, run_dir, run_id: &run_id })
}

fn try_finalise(host: &FaultHost) -> Result<Finalised, ProofError> {
    let witness = ExitWitness::from_wait("i", 9, Exit::Code(0));
    with_place(host, |place| finalise(host, place, &witness))
}

fn try_complete(host: &FaultHost) -> Result<Option<Finalised>, ProofError> {
    with_place(host, |place| complete(host, place))
}

fn try_prepare(host: &FaultHost) -> Result<(), ProofError> {
    initialise(host, &host.dir("/runs/run-1"), &run_id(), "i")
}

fn finalised(host: &FaultHost) {
    let done = try_finalise(host).expect("nothing fails here");
    assert_eq!(done.missing, [], "everything that follows was made");
}

fn completed(host: &FaultHost) {
    let done = try_complete(host).expect("everything can be read").expect("there is a proof");
    assert_eq!(done.missing, [], "everything that follows was made");
}

fn prepared(host: &FaultHost) {
    try_prepare(host).expect("nothing fails here");
}

fn content(host: &FaultHost, name: &str) -> Option<String> {
    host.text(&in_run(name))
}

fn proof(host: &FaultHost) -> Result<Proof, String> {
    let text = content(host, "process-terminal.json").ok_or("the proof is missing")?;
    let doc = Document::parse(&text).map_err(|e| format!("the proof is damaged: {e}"))?;
    Proof::read(&doc).map_err(|e| format!("the proof is invalid: {e}"))
}

fn marked(host: &FaultHost) -> bool {
    host.has("/runs/.active-runs/run-1")
}

fn overlay(host: &FaultHost) -> Result<Option<Proof>, String> {
    let text = content(host, "status.json").ok_or("the status is missing")?;
    let doc = Document::parse(&text).map_err(|e| format!("the status is torn: {e}"))?;
    doc.get("processTerminal").map(Proof::read_raw).transpose().map_err(|e| e.to_string())
}

fn events(host: &FaultHost) -> usize {
    content(host, "events.jsonl").map_or(0, |log| log.matches("run.process_terminal").count())
}

/// Marker, overlay and event say nothing that the proof does not.
fn nothing_without_its_proof(host: &FaultHost) -> Result<(), String> {
    let proof = proof(host)?;
    if !marked(host) && proof.state != ProofState::Observed {
        return Err(format!("the marker is gone, but the proof is {}", proof.state));
    }
    match overlay(host)? {
        Some(overlay) if overlay != proof => Err("the overlay is ahead of the proof".to_owned()),
        _ if proof.state == ProofState::Pending && events(host) > 0 => {
            Err("the event is ahead of the proof".to_owned())
        }
        _ => Ok(()),
    }
}

/// Every byte of the status but those of the overlays.
fn the_rest_of_the_status_stays(host: &FaultHost) -> Result<(), String> {
    let text = content(host, "status.json").ok_or("the status is missing")?;
    for kept in
        ["\"odd\": 1e400,", "\"status\":  \"complete\"", "\"more\": {\"x\":  1}", "\"last\": 1"]
    {
        if !text.contains(kept) {
            return Err(format!("{kept} is lost from {text}"));
        }
    }
    Ok(())
}

/// What an acknowledged finalisation promises; the event is advice and may be lost with the power.
fn acknowledged_holds(host: &FaultHost, crash: &Crash, state: ProofState) -> Result<(), String> {
    if !crash.acknowledged {
        return Ok(());
    }
    let kept = proof(host)?;
    let all = kept.state == state
        && marked(host) == (state == ProofState::Unknown)
        && overlay(host)?.as_ref() == Some(&kept)
        && (crash.model == Model::Power || events(host) == 1);
    if all { Ok(()) } else { Err(format!("acknowledged, but {:?}", host.tree().keys())) }
}

/// After the crash a completion makes what is missing, once, and no proof of its own.
fn completion_converges(host: &FaultHost) -> Result<(), String> {
    let before = content(host, "process-terminal.json");
    let done = try_complete(host).map_err(|e| e.to_string())?;
    if content(host, "process-terminal.json") != before {
        return Err("a completion wrote a proof".to_owned());
    }
    let kept = proof(host)?;
    if kept.state == ProofState::Pending {
        return if done.is_none() { Ok(()) } else { Err("nothing to complete".to_owned()) };
    }
    let done = done.ok_or("a final proof was not completed")?;
    let log = content(host, "events.jsonl").unwrap_or_default();
    let whole = log.lines().filter(|line| Document::parse(line).is_ok()).count();
    let converged = done.missing.is_empty()
        && marked(host) == (kept.state == ProofState::Unknown)
        && overlay(host)? == Some(kept)
        && whole == 1;
    if converged { Ok(()) } else { Err(format!("not completed: {done:?}, log {log:?}")) }
}

fn invariants(state: ProofState) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> + Copy {
    move |host, crash| {
        nothing_without_its_proof(host)?;
        the_rest_of_the_status_stays(host)?;
        acknowledged_holds(host, crash, state)?;
        completion_converges(host)
    }
}

/// A proof that was there before is there byte for byte.
fn first_proof_stays(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    if content(host, "process-terminal.json").as_deref() != Some(UNKNOWN) {
        return Err("the first proof is replaced".to_owned());
    }
    invariants(ProofState::Unknown)(host, crash)
}

/// Prepared files are whole or absent, the candidate never without the proof before it, and kept.
fn preparation_holds(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let names = ["process-terminal.json", "process-terminal-candidate.json"];
    let texts = names.map(|name| content(host, name));
    for text in texts.iter().flatten() {
        Document::parse(text).map_err(|e| format!("torn: {e}"))?;
    }
    let before_the_flush = crash.model == Model::Power && !crash.acknowledged;
    match texts {
        [None, Some(_)] if !before_the_flush => Err("a candidate without a proof".to_owned()),
        [None, _] | [_, None] if crash.acknowledged => Err("acknowledged, but lost".to_owned()),
        _ => {
            // A launcher that tries again finds its own files and goes on.
            try_prepare(host).map_err(|e| e.to_string())
        }
    }
}

#[test]
pub(crate) fn every_crash_of_a_finalisation_can_be_completed() {
    let seen = explore(ended, finalised, invariants(ProofState::Observed));
    table::stepped("proof::finalise", &seen, 16);
    let seen = explore(cut_off, completed, invariants(ProofState::Observed));
    table::stepped("proof::complete", &seen, 9);
}

#[test]
pub(crate) fn the_first_proof_stays_after_every_crash() {
    let seen = explore(ended_unknown, finalised, first_proof_stays);
    table::stepped("proof::finalise, over a proof of the runner", &seen, 7);
}

#[test]
pub(crate) fn every_crash_of_a_preparation_can_be_gone_on_from() {
    let seen = explore(make_dirs, prepared, preparation_holds);
    table::stepped("proof::initialise", &seen, 9);
}

#[test]
pub(crate) fn a_dropped_flush_or_a_wrong_order_is_caught() {
    // finalise: create, write, flush, rename, flush of the proof; unlink, unlink, rmdir, flush of the
    // marker; create, write, flush, rename, flush of the status; create, write of the event.
    let rows = [
        ("the proof is never flushed", Sabotage::Drop(2)),
        ("the directory is never flushed after the proof", Sabotage::Drop(4)),
        ("the proof is renamed before it is flushed", Sabotage::Swap(2)),
        ("the marker goes before the proof is durable", Sabotage::Swap(4)),
        ("the index is never flushed", Sabotage::Drop(8)),
        ("the status is never flushed", Sabotage::Drop(11)),
        ("a terminal status is not durable", Sabotage::Drop(13)),
    ];
    for (mistake, sabotage) in rows {
        let check = invariants(ProofState::Observed);
        let seen = explore_sabotaged(ended, finalised, check, sabotage);
        table::caught("proof::finalise", mistake, &seen);
    }
    let rows = [
        ("the pending proof is never flushed", Sabotage::Drop(2)),
        ("the candidate is never flushed", Sabotage::Drop(6)),
        ("the run directory is never flushed", Sabotage::Drop(8)),
        ("acknowledged before the candidate is in place", Sabotage::Swap(7)),
    ];
    for (mistake, sabotage) in rows {
        let seen = explore_sabotaged(make_dirs, prepared, preparation_holds, sabotage);
        table::caught("proof::initialise", mistake, &seen);
    }
}

#[test]
fn every_failing_effect_is_reported_and_nothing_follows_from_a_proof_that_failed() {
    for n in 0..16 {
        for errno in ERRNOS {
            let host = FaultHost::new();
            ended(&host);
            host.begin();
            host.fail_at(n, Injected::Errno(errno));
            let result = try_finalise(&host);
            let at = format!("effect {n}, errno {errno}: {result:?}");
            nothing_without_its_proof(&host).expect(&at);
            let litter = host.tree().keys().filter(|path| path.ends_with(".tmp")).count();
            assert_eq!(litter, 0, "{at}: no temp file is left");
            match result {
                Err(e) => {
                    assert!(n <= 4, "{at}: only the proof itself fails the whole");
                    assert!(matches!(e, ProofError::Write(_)), "{at}");
                    assert!(marked(&host) && events(&host) == 0, "{at}: nothing else was done");
                }
                Ok(done) => {
                    // An interrupted write is tried again; aliases are best effort.
                    let quiet = errno == 4 && [1, 10, 15].contains(&n) || [6, 7].contains(&n);
                    assert_eq!(done.missing.is_empty(), quiet, "{at}: it says what is missing");
                }
            }
            completed_or_pending(&host, &at);
        }
    }
}

fn completed_or_pending(host: &FaultHost, at: &str) {
    if proof(host).expect(at).state == ProofState::Observed {
        completion_converges(host).expect(at);
    }
}

#[test]
fn a_proof_that_comes_in_between_is_not_replaced() {
    for (n, is_pending) in (0..4).flat_map(|n| [(n, true), (n, false)]) {
        let host = FaultHost::new();
        ended(&host);
        if !is_pending {
            let run = host.dir("/runs/run-1");
            host.unlink(&run, "process-terminal.json".as_ref()).expect("there");
        }
        host.begin();
        host.interrupt_at(n, |host| host.put(&in_run("process-terminal.json"), UNKNOWN));
        let done = try_finalise(&host).expect("decided again");
        let at = format!("before effect {n}, pending before: {is_pending}: {done:?}");
        let kept = content(&host, "process-terminal.json").as_deref() == Some(UNKNOWN);
        assert_eq!(kept, !done.written, "{at}: it says whose proof is there");
        // Between the last look, which comes after the flush, and the rename over a pending proof nothing can be
        // noticed; a name that must be free is refused by the rename itself.
        if !is_pending || n < 3 {
            assert!(kept && done.row == "F-2", "{at}: the first proof stays");
        }
    }
}

#[test]
fn a_directory_that_was_used_is_not_prepared_again() {
    let host = FaultHost::new();
    ended(&host);
    let run = host.dir("/runs/run-1");
    let before = host.tree();
    let again = initialise(&host, &run, &run_id(), "j");
    assert!(matches!(again, Err(ProofError::Occupied("process-terminal.json"))), "{again:?}");
    assert_eq!(host.tree(), before, "nothing was changed");
}

#[test]
fn a_damaged_status_costs_the_overlay_and_nothing_else() {
    let host = FaultHost::new();
    ended(&host);
    host.put(&in_run("status.json"), "{");
    let done = try_finalise(&host).expect("the proof is written");
    let missing: Vec<_> = done.missing.iter().map(|(what, _)| *what).collect();
    assert_eq!(missing, [Consequence::Overlay]);
    assert!(!marked(&host) && events(&host) == 1, "the rest is made");
    assert_eq!(content(&host, "status.json").as_deref(), Some("{"), "it is left as it was");
}

#[test]
fn every_failing_effect_of_a_preparation_is_told_and_completed_by_a_second_call() {
    let points = every_call(make_dirs, try_prepare, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        assert_eq!(done.is_ok(), fault.is_made_good(), "{at}");
        assert!(!matches!(done, Err(ProofError::Occupied(_))), "{at}");
        let names = ["process-terminal.json", "process-terminal-candidate.json"];
        let there = names.map(|name| content(host, name).is_some());
        assert_ne!(there, [false, true], "{at}: a candidate without a proof");
        for text in names.iter().filter_map(|name| content(host, name)) {
            Document::parse(&text).expect(&at);
        }
        try_prepare(host).expect("a second call completes it");
    });
    assert_eq!(points, 9 * 8);
}

#[test]
fn every_failing_effect_of_a_completion_is_told_and_completed_by_a_second_call() {
    let points = every_call(cut_off, try_complete, |host, done, fault| {
        let at = format!("{fault:?}: {done:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}: no temp file is left");
        nothing_without_its_proof(host).expect(&at);
        let done = done.expect("everything can be read").expect("there is a proof");
        // A part of a line is no line; a part of a file is continued. Aliases are gone already.
        let line =
            matches!(&fault.effect, Some(Effect::Write { bytes, .. }) if bytes.ends_with(b"\n"));
        let event = line && matches!(fault.how, Injected::ShortWrite(_));
        assert_eq!(done.missing.is_empty(), fault.is_made_good() && !event, "{at}");
        completion_converges(host).expect(&at);
    });
    assert_eq!(points, 9 * 8);
}

// A revived run: its runner holds the lease of a session file.

const SESSION: &str = "/s.jsonl";

/// A revived run that ended, as its runner left it when it died: candidate, lease and acknowledgement.
fn revived(host: &FaultHost, released: bool, acknowledged: bool) {
    ended(host);
    host.put(SESSION, "");
    let start_identity = Some("linux:9".to_owned());
    let own = host.system().own_pid;
    let seen =
        ProcessSeen { presence: Presence::Present, start_identity, ..ProcessSeen::default() };
    host.set_process(own, seen);
    let held = acquire_lease(host).expect("free");
    if released {
        lease::release(host, &0, &held.id, "token-1").expect("its own");
    }
    let word = if acknowledged { r#","revivalLeaseReleaseAcknowledged":true"# } else { "" };
    let more = format!(r#""sessionFile":"{SESSION}","revivalLeaseToken":"token-1"{word}"#);
    let candidate = CANDIDATE.replacen('{', &format!("{{{more},"), 1);
    host.put(&in_run("process-terminal-candidate.json"), &candidate);
    host.set_process(own, ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() });
}

fn acquire_lease(host: &FaultHost) -> Result<lease::HeldLease, lease::AcquireError> {
    let request = lease::LeaseRequest {
        session_file: Path::new(SESSION),
        run_id: "run-1",
        source_run_id: "run-0",
        parent_session_id: None,
        token: "token-1",
    };
    lease::acquire(host, &0, &request)
}

fn revived_in_order(host: &FaultHost) {
    revived(host, true, true);
}

/// The proof of a revived run whose runner died in between stays `unknown`, for this reason.
fn unknown_for(reason: ProofReason) -> impl Fn(&FaultHost, &Crash) -> Result<(), String> {
    move |host, crash| {
        invariants(ProofState::Unknown)(host, crash)?;
        let kept = proof(host)?;
        let why = kept.reason.as_ref().and_then(Open::known);
        if kept.state == ProofState::Unknown && why != Some(reason) {
            return Err(format!("the reason is {why:?}"));
        }
        Ok(())
    }
}

#[test]
pub(crate) fn a_runner_that_died_before_it_released_its_lease_leaves_an_unknown_end() {
    // Between candidate and release (facts CW-27): the lease of a dead process stands in the way.
    let seen = explore(
        |host| revived(host, false, false),
        finalised,
        unknown_for(ProofReason::CanonicalSessionLeaseActive),
    );
    table::seen("proof::finalise, the lease not released", &seen);
    // Between release and acknowledgement (facts CW-28): nobody says that it was the runner's doing.
    let seen = explore(
        |host| revived(host, true, false),
        finalised,
        unknown_for(ProofReason::CanonicalSessionReleaseUnverified),
    );
    table::seen("proof::finalise, the release not acknowledged", &seen);
    // After both the end is observed.
    let seen = explore(revived_in_order, finalised, invariants(ProofState::Observed));
    table::seen("proof::finalise, of a revived run", &seen);
    // The lease that was left is taken back by the next one, whatever the proof says.
    let host = FaultHost::new();
    revived(&host, false, false);
    finalised(&host);
    let next = acquire_lease(&host).expect("its owner is gone");
    assert_eq!(next.set_aside.len(), 1, "it says what it set aside");
}

// RS-PROOF-25.
#[test]
fn a_look_that_fails_for_now_decides_nothing() {
    // Broken disk, no handle, no handle in the whole system, no memory, interrupted.
    const PASSING: [i32; 5] = [5, 24, 23, 12, 4];
    let mut points = 0;
    let mut refused = 0;
    for setup in [ended as fn(&FaultHost), revived_in_order] {
        let host = FaultHost::new();
        setup(&host);
        host.begin();
        finalised(&host);
        let (looks, wanted) = (host.looks(), proof(&host).expect("written"));
        assert_eq!(wanted.state, ProofState::Observed, "the run ended in order");
        let status = content(&host, "status.json");
        for n in 0..looks {
            for errno in PASSING {
                let host = FaultHost::new();
                setup(&host);
                let before = host.tree();
                host.begin();
                host.fail_look_at(n, errno);
                let done = try_finalise(&host);
                points += 1;
                let at = format!("look {n}, errno {errno}: {done:?}");
                match done {
                    Err(ProofError::Evidence(e)) => {
                        refused += 1;
                        assert_eq!(host.tree(), before, "{at}: nothing is done");
                        assert!(e.to_string().starts_with("cannot look at "), "{at}: {e}");
                    }
                    // The proof was written before; what follows from it may be missing.
                    Ok(done) => assert_eq!(done.proof, wanted, "{at}: and it is the true one"),
                    Err(e) => panic!("{at}: {e}"),
                }
                finalise_again(&host, &at);
                assert_eq!(proof(&host).expect(&at), wanted, "{at}: made again");
                assert_eq!(content(&host, "status.json"), status, "{at}: no overlay is wrong");
            }
        }
    }
    assert!(refused >= 40 && points >= 100, "{refused} of {points} points");
}

fn finalise_again(host: &FaultHost, at: &str) {
    let done = try_finalise(host).expect(at);
    assert_eq!(done.missing, [], "{at}: everything that follows is made");
}

#[test]
fn a_look_that_is_forbidden_is_an_answer() {
    const EACCES: i32 = 13;
    let host = FaultHost::new();
    ended(&host);
    let candidate = (0..host_looks(&host)).find_map(|n| {
        let host = FaultHost::new();
        ended(&host);
        host.begin();
        host.fail_look_at(n, EACCES);
        try_finalise(&host).ok().filter(|done| done.row == "F-4")
    });
    let done = candidate.expect("the candidate is one of the looks");
    assert_eq!(done.proof.state, ProofState::Unknown, "it will not be allowed later either");
}

fn host_looks(host: &FaultHost) -> usize {
    host.begin();
    finalised(host);
    host.looks()
}
