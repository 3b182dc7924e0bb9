//! Any bytes as the files of one run, any word for its process: one verdict that keeps the rules
//! that others rely on.
//!
//! Input: eight bytes of choices, then the files in a fixed order, separated by the byte 0xFF, which
//! occurs in no UTF-8 text.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use runstore::protocol::candidate::Candidate;
use runstore::protocol::config::RunnerConfig;
use runstore::protocol::diagnose::diagnose;
use runstore::protocol::evidence::{
    ControlFacts, FileFact, FileMeta, LeaseFact, MarkerFacts, ResultFact, RunEvidence, SlotFact,
    StderrTail, TempFacts,
};
use runstore::protocol::lease::LeaseOwner;
use runstore::protocol::process::{Life, Liveness};
use runstore::protocol::proof::{Proof, ProofState};
use runstore::protocol::result::{ResultPlace, ResultView};
use runstore::protocol::slot::SlotOwner;
use runstore::protocol::startup::{ControlMessage, StartupMessage};
use runstore::protocol::state::RunState;
use runstore::protocol::status::StatusView;
use runstore::protocol::verdict::{Diagnosis, Verdict};
use runstore::protocol::{DecodeError, Document, Word, event, finding};

const NOW: i64 = 1_790_000_000_000;
const META: FileMeta = FileMeta { mtime_ms: NOW - 5_000, bytes: 100, mode: 0o600 };

fuzz_target!(|data: &[u8]| {
    let Some((choices, files)) = data.split_first_chunk::<8>() else { return };
    let files: Vec<&[u8]> = files.split(|b| *b == 0xff).collect();
    let e = evidence(*choices, &files);
    check(&e, &diagnose(&e));
});

fn fact<T>(
    bytes: Option<&&[u8]>,
    read: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>,
) -> FileFact<T> {
    match bytes.copied() {
        None | Some([]) => FileFact::Absent,
        Some(b"unsafe") => FileFact::Unsafe("a symbolic link".to_owned()),
        Some(b"unreadable") => FileFact::Unreadable("permission denied".to_owned()),
        Some(bytes) => match Document::from_bytes(bytes).and_then(|doc| read(&doc)) {
            Ok(value) => FileFact::Present(Box::new(value), META),
            Err(e) => FileFact::Damaged(e, META),
        },
    }
}

fn life(choice: u8) -> Life {
    let word = Liveness::ALL[usize::from(choice) % Liveness::ALL.len()];
    Life { word, why: "so it was chosen".into() }
}

fn evidence(choices: [u8; 8], files: &[&[u8]]) -> RunEvidence {
    let [c0, c1, c2, c3, c4, c5, c6, c7] = choices;
    let bit = |byte: u8, n: u8| byte >> n & 1 == 1;
    let status = fact(files.first(), |doc| Ok(StatusView::read(doc)));
    let place = |n: u8| {
        [ResultPlace::Pending, ResultPlace::Public, ResultPlace::Replay, ResultPlace::Workflow]
            [usize::from(n) % 4]
    };
    let results = [(7, place(c2)), (8, place(c2 >> 2))].into_iter().filter_map(|(i, place)| {
        let fact = fact(files.get(i), |doc| Ok(ResultView::read(doc)));
        fact.is_there().then_some(ResultFact { place, path: format!("result-{i}.json"), fact })
    });
    let lease = fact(files.get(9), LeaseOwner::read).value().cloned();
    let slot = fact(files.get(10), SlotOwner::read).value().cloned();
    let unsafe_thing = bit(c3, 0).then(|| ("status.json".to_owned(), "a socket".to_owned()));
    let unsafe_status = matches!(status, FileFact::Unsafe(_));
    // Far ahead, far behind, and in the middle.
    let now_ms = [NOW, 0, i64::from(c4) << 40, NOW + i64::from(c5) * 1000][usize::from(c4) % 4];
    RunEvidence {
        dir_mtime_ms: (!bit(c3, 1)).then_some(NOW - i64::from(c5) * 1000),
        dir_mode: if bit(c3, 2) { 0o777 } else { 0o700 },
        unsafe_things: unsafe_thing
            .into_iter()
            .chain(unsafe_status.then(|| ("status.json".to_owned(), "a link".to_owned())))
            .collect(),
        status,
        proof: fact(files.get(1), |doc| Proof::read(doc).map(Arc::new)),
        candidate: fact(files.get(2), Candidate::read),
        startup: fact(files.get(3), |doc| Ok(StartupMessage::read(doc))),
        ack: fact(files.get(4), |doc| Ok(ControlMessage::read(doc))),
        confirm: fact(files.get(5), |doc| Ok(ControlMessage::read(doc))),
        proceed: if bit(c3, 3) {
            fact(files.get(4), |doc| Ok(ControlMessage::read(doc)))
        } else {
            FileFact::Absent
        },
        events: files.get(6).filter(|f| !f.is_empty()).map(|f| event::summarize(f, !bit(c3, 4))),
        events_mode: 0o600,
        results: results.collect(),
        results_unread: bit(c1, 3),
        config: fact(files.get(12), |doc| Ok(RunnerConfig::read(doc))),
        output_bytes: u64::from(c6 & 1),
        has_runner_logs: bit(c6, 1),
        has_protocol_files: bit(c6, 2),
        foreign_names: if bit(c6, 3) { vec!["x".to_owned()] } else { Vec::new() },
        truncated: bit(c6, 4),
        stderr: files.get(11).map(|text| StderrTail {
            text: String::from_utf8_lossy(text).into_owned(),
            cut: bit(c6, 5),
        }),
        temp: TempFacts {
            count: u64::from(c6 >> 6),
            measured: 1,
            bytes: 9,
            newer_than_target: if bit(c6, 6) { vec![".t".to_owned()] } else { Vec::new() },
        },
        control: ControlFacts {
            pending: if bit(c7, 0) { vec!["control/stop.json".to_owned()] } else { Vec::new() },
            oldest_ms: bit(c7, 1).then_some(NOW),
            invalid: Vec::new(),
            closed: Vec::new(),
        },
        marker: MarkerFacts {
            index_exists: bit(c7, 2),
            marker_mtime_ms: bit(c7, 3).then_some(NOW - 1),
        },
        slots: slot
            .into_iter()
            .map(|owner| SlotFact { path: "slot-0".to_owned(), owner, claimed: bit(c7, 4) })
            .collect(),
        leases: lease
            .into_iter()
            .map(|owner| LeaseFact {
                path: "lease".to_owned(),
                owner,
                held_because: bit(c7, 5).then(|| "its owner lives".to_owned()),
            })
            .collect(),
        life: life(c0),
        startup_life: bit(c1, 7).then(|| life(c1 & 0x7f)),
        pid_shared_with: if bit(c7, 6) { vec!["run-2".to_owned()] } else { Vec::new() },
        session_file_exists: [None, Some(true), Some(false)][usize::from(c2 >> 4) % 3],
        cwd_exists: bit(c3, 5).then_some(bit(c3, 6)),
        shadowed_by: bit(c7, 7).then(|| "elsewhere".to_owned()),
        is_nested: bit(c3, 7),
        is_dm_store: bit(c1, 6),
        config_left: bit(c1, 5),
        unstable: bit(c1, 4),
        ..RunEvidence::empty("run-1".to_owned(), now_ms)
    }
}

fn check(e: &RunEvidence, d: &Diagnosis) {
    let state = e.status.value().and_then(StatusView::known_state);
    let active = state.is_some_and(RunState::is_active);
    assert!(!d.because.is_empty(), "a verdict has its reason");
    if d.verdict == Verdict::Orphaned {
        assert!(e.life.word.is_gone(), "unknown is never dead: {:?}", e.life);
    }
    if d.verdict == Verdict::Running {
        assert!(e.life.word == Liveness::Live && active, "running needs a live process");
    }
    if d.proof.counts {
        let p = e.proof.value().expect("only a sidecar counts");
        assert_eq!((p.state, p.run_id.as_str()), (ProofState::Observed, "run-1"));
    }
    if d.verdict == Verdict::Finished {
        assert!(d.proof.counts && !active, "finished needs a proof that counts");
    }
    let is_unsafe = !e.unsafe_things.is_empty();
    assert_eq!(is_unsafe, d.verdict == Verdict::Unsafe, "unsafe comes first");
    if matches!(e.status, FileFact::Damaged(..) | FileFact::Unreadable(_)) && !is_unsafe {
        assert_eq!(d.verdict, Verdict::Corrupt, "a damaged status is corrupt");
    }
    if active {
        let ends = [Verdict::Finished, Verdict::FinishedUnproven, Verdict::Settling];
        assert!(!ends.contains(&d.verdict), "an active state has not ended: {}", d.verdict);
    }
    assert!(d.flags.is_sorted_by(|a, b| a < b), "flags in order, each once");
    for f in &d.findings {
        assert!(finding::by_id(f.id).is_some(), "{} has no explanation", f.id);
    }
    if d.resumable.as_ref().is_some_and(|(can, _)| *can) {
        assert!(!active, "an active run is not resumed");
        assert!(e.leases.iter().all(|l| l.held_because.is_none()), "a leased session stays");
    }
}
