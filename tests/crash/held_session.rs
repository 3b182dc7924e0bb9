//! The session of a runner that ended without giving it back: freed by whoever saw the end, never taken from
//! anybody else.
//!
//! Covers RS-OBS-40.

use std::path::Path;

use runstore::observer::{ShimCommand, ShimReport, Subject, shim};
use runstore::protocol::lease::LeaseState;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::protocol::proof::ProofState;
use runstore::store::candidate::name_session;
use runstore::store::host::Host as _;
use runstore::store::lease::{self, LeaseRequest, acquire, canonical_id};
use runstore::store::proof::RunPlace;
use testkit::fault::{Crash, FaultHost, explore};

use crate::ending::{candidate, proof, run_dir, run_id, slots, under_way};
use crate::table;

const SESSION: &str = "/s.jsonl";

fn id(host: &FaultHost) -> String {
    canonical_id(host, Path::new(SESSION)).expect("there").id
}

fn record_of(host: &FaultHost) -> String {
    format!("/session-leases/{}/owner.json", id(host))
}

/// A revived run that its launcher has let in: the runner, number 7, holds the session.
fn revived(host: &FaultHost) {
    under_way(host);
    host.put(SESSION, "{}\n");
    let request = LeaseRequest {
        session_file: Path::new(SESSION),
        run_id: "run-1",
        source_run_id: "run-0",
        parent_session_id: None,
        token: "t",
    };
    let held = acquire(host, &0, &request).expect("free");
    assert_eq!(held.id, id(host));
    let text = host.text(&record_of(host)).expect("there");
    let own = format!("\"pid\": {}", host.system().own_pid);
    assert!(text.contains(&own), "{text}");
    host.put(&record_of(host), text.replace(&own, "\"pid\": 7"));
    let named = name_session(host, &run_dir(host), ("run-1", "i"), Path::new(SESSION), "t");
    named.expect("room");
}

fn observe(host: &FaultHost) -> ShimReport {
    let (runs_root, run_dir, run_id) = (host.dir("/runs"), run_dir(host), run_id());
    let place = RunPlace { temp: &0, runs_root: &runs_root, run_dir: &run_dir, run_id: &run_id };
    let command = ShimCommand { program: "runner".as_ref(), args: &[], cwd: None, env: &[] };
    let subject = Subject { place, instance_id: "i" };
    shim(host, &subject, &command, &mut |_| {}).expect("nothing fails here")
}

fn state(host: &FaultHost) -> LeaseState {
    lease::inspect(host, &0, &id(host))
}

fn is_free_before_it_is_said(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let (proof, said) = (proof(host)?, candidate(host)?.lease_release_acknowledged);
    let is_free = state(host) == LeaseState::Free;
    if said == Some(true) && !is_free {
        return Err("said to be gone, and held".to_owned());
    }
    if proof.state == ProofState::Observed && !(said == Some(true) && is_free) {
        return Err("proven with a session that is held".to_owned());
    }
    let all = proof.state == ProofState::Observed && slots(host) == 0;
    if crash.acknowledged && !all {
        Err("what was acknowledged is lost".to_owned())
    } else {
        Ok(())
    }
}

#[test]
pub(crate) fn every_crash_of_an_observer_that_frees_a_session_says_so_only_when_it_is_free() {
    let freed = |host: &FaultHost| {
        let report = observe(host);
        assert_eq!(report.problems, [""; 0], "{report:?}");
        assert_eq!(report.finalised.row, "F-12", "{report:?}");
    };
    table::seen(
        "observer::shim of a revived run",
        &explore(revived, freed, is_free_before_it_is_said),
    );
}

#[test]
fn a_session_that_the_runner_freed_and_did_not_say_so_is_proven_all_the_same() {
    let host = FaultHost::new();
    revived(&host);
    lease::release(&host, &0, &id(&host), "t").expect("ours");
    assert_eq!(observe(&host).finalised.row, "F-12");
}

#[test]
fn a_session_that_somebody_may_still_write_to_is_not_freed() {
    // A successor that took it over meanwhile, and a writer of the runner that lives.
    for (from, to) in [
        ("\"token\": \"t\"", "\"token\": \"u\""),
        (
            "\"writerState\": \"none\"",
            "\"writerState\": \"running\",\n  \"writerPid\": 9,\n  \"writerProcessStartIdentity\": \"linux:4\"",
        ),
    ] {
        let host = FaultHost::new();
        revived(&host);
        let text = host.text(&record_of(&host)).expect("there");
        assert!(text.contains(from), "{text}");
        host.put(&record_of(&host), text.replace(from, to));
        let alive = ProcessSeen {
            presence: Presence::Present,
            start_identity: Some("linux:4".to_owned()),
            ..ProcessSeen::default()
        };
        host.set_process(9, alive);
        let report = observe(&host);
        assert_eq!(report.finalised.row, "F-6", "{to}: {report:?}");
        assert!(matches!(state(&host), LeaseState::Owned(_)), "{to}: it is left alone");
        assert_eq!(slots(&host), 1, "{to}");
        assert_eq!(candidate(&host).expect("whole").lease_release_acknowledged, None, "{to}");
    }
}
