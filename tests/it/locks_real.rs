//! Leases and slots on a real disk, with contenders that run at the same time.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use runstore::protocol::layout;
use runstore::protocol::slot::SlotKind;
use runstore::store::host::{FileKind, Host as _, RealHost};
use runstore::store::lease::{self, AcquireError, LeaseRequest, Released};
use runstore::store::slot::{self, SlotRequest, acquire, bind, occupied};
use tempfile::TempDir;

const CONTENDERS: usize = 8;
const ROUNDS: usize = 12;

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("there");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn root() -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("a directory");
    let session = temp.path().join("s.jsonl");
    std::fs::write(&session, "").expect("room");
    (temp, session)
}

fn request<'a>(session_file: &'a Path, token: &'a str) -> LeaseRequest<'a> {
    let (run_id, source_run_id) = ("run-new", "run-1");
    LeaseRequest { session_file, run_id, source_run_id, parent_session_id: None, token }
}

fn slots(limit: u32) -> SlotRequest<'static> {
    let kind = SlotKind::Runner;
    SlotRequest { session_id: "S", run_id: "run-1", async_dir: "/RUNS/run-1", kind, limit }
}

#[test]
fn a_lease_and_a_slot_are_private_and_leave_nothing() {
    let (temp, session) = root();
    let host = RealHost::new();
    let dir = host.open_dir(temp.path()).expect("there");
    let held = lease::acquire(&host, &dir, &request(&session, "t")).expect("free");
    let again = lease::acquire(&host, &dir, &request(&session, "u"));
    assert!(matches!(again, Err(AcquireError::Held { .. })), "it lives: {again:?}");
    let look = |path: &Path| {
        let stat = host.stat(path).expect("there");
        (stat.kind, stat.mode)
    };
    let leases = temp.path().join(layout::LEASES_DIR);
    assert_eq!(look(&leases), (FileKind::Directory, 0o700));
    assert_eq!(look(&leases.join(&held.id)), (FileKind::Directory, 0o700));
    assert_eq!(look(&leases.join(&held.id).join(layout::OWNER)), (FileKind::Regular, 0o600));
    let released = lease::release(&host, &dir, &held.id, "t").expect("ours");
    assert!(matches!(released, Released::Free { litter: None }), "{released:?}");
    assert_eq!(names(&leases), [""; 0], "nothing is left");
    let mut slot = acquire(&host, &dir, &slots(1)).expect("free").expect("there is a limit");
    bind(&host, &dir, &mut slot, "i", 5).expect("ours");
    acquire(&host, &dir, &slots(1)).expect_err("full");
    slot::release(&host, &dir, &slot.owner).expect("ours");
    assert_eq!(occupied(&host, &dir, "S").expect("readable"), []);
    let pool = temp.path().join(layout::CAPACITY_DIR).join(slot::pool_name("S"));
    assert_eq!(names(&pool), [""; 0], "nothing is left");
}

/// Lets contenders race once; how many of them won.
fn race(contender: impl Fn(usize) -> bool + Sync) -> usize {
    let (start, winners) = (Barrier::new(CONTENDERS), AtomicUsize::new(0));
    thread::scope(|scope| {
        for i in 0..CONTENDERS {
            let (start, winners, contender) = (&start, &winners, &contender);
            scope.spawn(move || {
                start.wait();
                winners.fetch_add(usize::from(contender(i)), Ordering::SeqCst);
            });
        }
    });
    winners.into_inner()
}

#[test]
fn of_many_contenders_for_a_free_or_stale_lease_one_holds_it() {
    let (temp, session) = root();
    let host = RealHost::new();
    let dir = host.open_dir(temp.path()).expect("there");
    let id = lease::canonical_id(&host, &session).expect("there").id;
    let leases = temp.path().join(layout::LEASES_DIR);
    for round in 0..ROUNDS {
        let won = race(|i| {
            let token = format!("{round}-{i}");
            lease::acquire(&host, &dir, &request(&session, &token)).is_ok()
        });
        assert_eq!(won, 1, "round {round}: one of {CONTENDERS}");
        // The winner dies: its record names a process that cannot be.
        let owner = leases.join(&id).join(layout::OWNER);
        let text = std::fs::read_to_string(&owner).expect("a whole record");
        let pid = format!("\"pid\": {}", std::process::id());
        assert!(text.contains(&pid), "{text}");
        std::fs::write(&owner, text.replace(&pid, "\"pid\": 999999999")).expect("room");
    }
    let tombstones = names(&leases).iter().filter(|name| name.contains(".stale-")).count();
    assert_eq!(tombstones, ROUNDS - 1, "each stale owner was set aside once");
    assert_eq!(names(&leases).len(), ROUNDS, "and nothing else is left");
}

#[test]
fn many_contenders_never_take_more_slots_than_there_are() {
    let (temp, _) = root();
    let host = RealHost::new();
    let dir = host.open_dir(temp.path()).expect("there");
    for round in 0..ROUNDS {
        let won = race(|_| acquire(&host, &dir, &slots(3)).is_ok());
        assert_eq!(won, 3, "round {round}: every slot has one holder");
        let numbers = occupied(&host, &dir, "S").expect("readable");
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
        // All release the same slots: each goes once.
        let owners: Vec<_> = numbers.into_iter().flatten().map(|n| owner(temp.path(), n)).collect();
        let won = race(|i| slot::release(&host, &dir, &owners[i % 3]).is_ok());
        assert_eq!(won, 3, "round {round}: each slot is released by one");
        assert_eq!(occupied(&host, &dir, "S").expect("readable"), []);
    }
}

fn owner(temp: &Path, number: i64) -> runstore::protocol::slot::SlotOwner {
    let pool = temp.join(layout::CAPACITY_DIR).join(slot::pool_name("S"));
    let path = pool.join(format!("slot-{number}")).join(layout::OWNER);
    let text = std::fs::read_to_string(path).expect("a whole record");
    let doc = runstore::protocol::Document::parse(&text).expect("JSON");
    runstore::protocol::slot::SlotOwner::read(&doc).expect("an owner")
}
