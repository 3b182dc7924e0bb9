//! The active index under many writers at once, on a real file system.

use runstore::protocol::RunState;
use runstore::protocol::ids::RunId;
use runstore::protocol::segment::SegmentInput;
use runstore::store::RealHost;
use runstore::store::host::Host as _;
use runstore::store::markers::update;
use runstore::store::retry::RetryPolicy;

#[test]
fn writers_that_share_an_alias_directory_do_not_disturb_one_another() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 100;
    let top = tempfile::tempdir().expect("room");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = top.path();
            scope.spawn(move || {
                let host = RealHost::new();
                let runs = host.open_dir(path).expect("there");
                let (call, never) = (SegmentInput::from("shared"), RetryPolicy::never());
                for round in 0..ROUNDS {
                    let run = RunId::parse(&format!("run-{writer}-{round}")).expect("an id");
                    let marker = path.join(".active-runs").join(run.as_str());
                    // An alias is best effort: with all others pruning, a few attempts may fail.
                    update(&host, &runs, &run, RunState::Running, Some(&call), &never)
                        .expect("a marker is made whatever the others prune");
                    assert!(std::fs::exists(&marker).expect("looked"), "{run} is listed");
                    update(&host, &runs, &run, RunState::Complete, None, &never)
                        .expect("a marker is removed whatever the others prune");
                    assert!(!std::fs::exists(&marker).expect("looked"), "{run} is not listed");
                }
            });
        }
    });
    let left = std::fs::read_dir(top.path().join(".active-runs/tool-calls")).expect("there");
    assert_eq!(left.count(), 0, "the shared directory is gone with the last alias in it");
    let left = std::fs::read_dir(top.path().join(".active-runs")).expect("there");
    assert_eq!(left.count(), 1, "only the directory of aliases is left");
}
