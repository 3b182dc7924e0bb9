//! Whole operations on a store, and the answers of the library and of the program.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use runstore::inspect::Inspection;
use runstore::protocol::RunState;
use runstore::protocol::evidence::Times;
use runstore::protocol::ids::RunId;
use runstore::protocol::lease::LeaseState;
use runstore::protocol::segment::SegmentInput;
use runstore::protocol::slot::SlotKind;
use runstore::store::atomic::{Durability, Options, replace};
use runstore::store::directory::{create_path, open_root};
use runstore::store::host::Host as _;
use runstore::store::lease::{self, AcquireError, LeaseRequest, Released};
use runstore::store::markers::update;
use runstore::store::publish::{Place, publish};
use runstore::store::retry::RetryPolicy;
use runstore::store::slot::{self, SlotError, SlotRequest};
use runstore::store::{Depth, Opened, RealHost, Store};

use crate::names;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/store");

/// Verdict, liveness and id of each run, as the library tells them.
fn told(root: &Path) -> Vec<(String, String, String)> {
    let host = RealHost::new();
    let opened = Store::open(&host, root, host.now_ms(), Times::default()).expect("a store");
    let Opened::Store(store) = opened else { panic!("a whole store") };
    let (mut told, mut problems) = (Vec::new(), Vec::new());
    Inspection::new(&store, Depth::Full).each(
        &mut |report| {
            let run = report.run_id.to_string();
            told.push((report.verdict.to_string(), report.liveness.to_string(), run));
            ControlFlow::Continue(())
        },
        &mut problems,
    );
    told.sort();
    told
}

/// Every file below a directory with its bytes and its time.
fn picture(top: &Path, out: &mut Vec<(String, Vec<u8>, std::time::SystemTime)>) {
    for name in names(top) {
        let path = top.join(name);
        let meta = std::fs::symlink_metadata(&path).expect("there");
        let modified = meta.modified().expect("a time");
        if meta.is_dir() {
            picture(&path, out);
        } else {
            let bytes = std::fs::read(&path).expect("readable");
            out.push((path.display().to_string(), bytes, modified));
        }
    }
}

#[test]
fn a_recorded_store_is_told_with_unknown_processes_and_stays_as_it_was() {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    picture(EXAMPLE.as_ref(), &mut before);
    let told = told(EXAMPLE.as_ref());
    picture(EXAMPLE.as_ref(), &mut after);
    assert!(told.len() >= 8, "{told:#?}");
    for (verdict, liveness, run) in &told {
        let word = liveness.as_str();
        assert!(matches!(word, "unknown" | "not-recorded" | "foreign"), "{run} is {liveness}");
        assert_ne!(verdict, "orphaned", "{run}: unknown is never dead");
    }
    let of =
        |id: &str| told.iter().find(|(.., run)| run == id).map(|(verdict, ..)| verdict.as_str());
    assert_eq!(of("run-orphan"), Some("running-unverified"));
    assert_eq!(of("run-root"), Some("finished"));
    assert_eq!(before, after, "looking changes nothing");
}

#[test]
fn the_program_answers_as_the_library_does() {
    let out = Command::new(env!("CARGO_BIN_EXE_runstore"))
        .args(["inspect", EXAMPLE, "--format", "jsonl"])
        .output()
        .expect("started");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(out.status.code().is_some_and(|code| code < 64), "{:?}: {text}", out.status);
    for (verdict, _, run) in told(EXAMPLE.as_ref()) {
        let line = text.lines().find(|line| line.contains(&format!("\"{run}\"")));
        let line = line.unwrap_or_else(|| panic!("{run} is missing in {text}"));
        assert!(line.contains(&format!("\"{verdict}\"")), "{run} is {verdict}: {line}");
    }
}

#[test]
fn a_run_goes_from_its_start_to_its_result() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let root = open_root(&host, top.path()).expect("our own");
    let retry = RetryPolicy::default();
    let run = RunId::parse("run-1").expect("an id");
    let call = SegmentInput::from("call-1");
    let runs = create_path(&host, &root, &["async-subagent-runs"], &retry).expect("made");
    let dir = create_path(&host, &runs, &["run-1"], &retry).expect("made");
    let status = |state: &str| {
        let now_ms = host.now_ms();
        let text = format!(
            "{{\"runId\":\"run-1\",\"sessionId\":\"S\",\"state\":\"{state}\",\"mode\":\"single\",\
             \"pid\":4200001,\"startedAt\":{now_ms},\"lastUpdate\":{now_ms},\"endedAt\":{now_ms}}}"
        );
        let options = Options::new(Durability::Durable);
        replace(&host, &dir, "status.json", text.as_bytes(), &options).expect("written");
    };
    status("running");
    update(&host, &runs, &run, RunState::Running, Some(&call), &retry).expect("entered");
    assert_eq!(
        names(&top.path().join("async-subagent-runs/.active-runs")),
        ["run-1", "tool-calls"]
    );
    let verdict = |told: Vec<(String, String, String)>| told[0].0.clone();
    assert_eq!(verdict(told(top.path())), "running-unverified");

    let results = create_path(&host, &root, &["async-subagent-results"], &retry).expect("made");
    let payload = "{\"id\":\"run-1\",\"runId\":\"run-1\",\"sessionId\":\"S\",\"success\":true,\
                   \"state\":\"complete\",\"summary\":\"done\",\"timestamp\":5}";
    let done = publish(&host, &results, "run-1.json", payload, Some(&dir), &retry);
    let done = done.expect("published");
    assert_eq!((done.place, done.problems.len()), (Place::Public, 0));
    status("complete");
    let left = update(&host, &runs, &run, RunState::Complete, None, &retry).expect("left");
    assert!(left.problems.is_empty(), "{:?}", left.problems);
    assert_eq!(names(&top.path().join("async-subagent-runs/.terminal-runs/S")).len(), 1);
    assert!(
        !top.path().join("async-subagent-runs/.active-runs/run-1").exists(),
        "an ended run is not listed as active"
    );
    let verdict = verdict(told(top.path()));
    assert_eq!(verdict, "settling", "it ended just now, and nobody saw its process");
}

#[test]
fn a_lease_has_one_owner_and_is_free_again_after_its_release() {
    let top = tempfile::tempdir().expect("room");
    let session = top.path().join("Session.jsonl");
    std::fs::write(&session, "").expect("room");
    let host = RealHost::new();
    let temp = open_root(&host, top.path()).expect("our own");
    let request = |token| LeaseRequest {
        session_file: &session,
        run_id: token,
        source_run_id: "run-0",
        parent_session_id: None,
        token,
    };
    let held = lease::acquire(&host, &temp, &request("a")).expect("free");
    let e = lease::acquire(&host, &temp, &request("b")).expect_err("it is held");
    assert!(matches!(e, AcquireError::Held { .. }), "unknown is never dead: {e}");
    // The file system does not tell capitals apart, so neither does the name of the lease.
    let other = top.path().join("sESSION.JSONL");
    let id = |path: &Path| lease::canonical_id(&host, path).expect("the session is there").id;
    assert_eq!(id(&other), id(&session));
    let released = lease::release(&host, &temp, &held.id, "a").expect("ours");
    assert!(matches!(released, Released::Free { litter: None }), "{released:?}");
    assert!(matches!(lease::inspect(&host, &temp, &held.id), LeaseState::Free));
    let again = lease::acquire(&host, &temp, &request("b")).expect("free again");
    assert_eq!(names(&top.path().join("session-leases")), [again.id.as_str()], "no litter");
}

#[test]
fn of_several_that_want_the_last_slot_one_gets_it() {
    const WANTED: usize = 4;
    let top = tempfile::tempdir().expect("room");
    let barrier = std::sync::Barrier::new(WANTED);
    let runs: Vec<String> = (0..WANTED).map(|n| format!("run-{n}")).collect();
    let take = |run: &String| {
        let host = RealHost::new();
        let temp = open_root(&host, top.path()).expect("our own");
        let request = SlotRequest {
            session_id: "S",
            run_id: run,
            async_dir: "C:/RUNS/r",
            kind: SlotKind::Runner,
            limit: 1,
        };
        barrier.wait();
        match slot::acquire(&host, &temp, &request) {
            Ok(held) => Some(held.expect("there is a limit").owner),
            Err(SlotError::Full { used: 1, limit: 1 }) => None,
            Err(e) => panic!("{run}: {e}"),
        }
    };
    let take = &take;
    let mut owners: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(move || take(run))).collect();
        threads.into_iter().filter_map(|t| t.join().expect("no taker panics")).collect()
    });
    let owner = owners.pop().expect("somebody has it");
    assert!(owners.is_empty(), "one slot, one owner: {owners:?}");
    let host = RealHost::new();
    let temp = open_root(&host, top.path()).expect("our own");
    let litter = slot::release(&host, &temp, &owner).expect("ours");
    assert!(litter.is_none(), "{litter:?}");
    assert!(slot::occupied(&host, &temp, "S").expect("looked").is_empty(), "it is free");
}
