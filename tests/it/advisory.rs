//! The lock among our own processes on a real file system.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use runstore::protocol::Document;
use runstore::store::RealHost;
use runstore::store::advisory::{LockError, Locks, lock_name};
use runstore::store::atomic::{Durability, Options};
use runstore::store::host::Host as _;
use runstore::store::sidecar::{Decision, Patched, patch_locked};

const KEY: &str = "run-1";
/// Set in a process that only holds the lock of this directory.
const HOLD: &str = "RUNSTORE_TEST_HOLDS_THE_LOCK_OF";

/// Adds one to a member, under the lock.
fn add_one(root: &std::path::Path) {
    let host = RealHost::new();
    let dir = host.open_dir(root).expect("there");
    let locks = Locks::new(&host, &dir, "runs", 60_000);
    let count_up = |doc: &Document<'_>| {
        let count: u64 = doc.get("count").expect("it is there").text().parse().expect("a number");
        Decision::Patch(vec![("count", (count + 1).to_string())])
    };
    let options = Options::new(Durability::ProcessSafe);
    let done = patch_locked(&locks, KEY, (&dir, "status.json"), 1 << 20, &options, count_up);
    assert!(matches!(done, Ok(Patched::Written { attempts: 1, .. })), "none starts over: {done:?}");
}

#[test]
fn no_update_of_several_writers_is_lost_under_the_lock() {
    const WRITERS: usize = 4;
    const UPDATES: usize = 50;
    let root = tempfile::tempdir().expect("room");
    std::fs::write(root.path().join("status.json"), "{\"count\": 0, \"odd\": 1e400}")
        .expect("room");
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..UPDATES).for_each(|_| add_one(root.path())));
        }
    });
    let text = std::fs::read_to_string(root.path().join("status.json")).expect("there");
    assert_eq!(text, format!("{{\"count\": {}, \"odd\": 1e400}}", WRITERS * UPDATES));
}

/// Not a test of its own: run as another process by the one below.
#[test]
fn holds_the_lock_if_asked_to() {
    let Some(root) = std::env::var_os(HOLD) else { return };
    let host = RealHost::new();
    let dir = host.open_dir(root.as_ref()).expect("there");
    let _held = Locks::new(&host, &dir, "runs", 0).acquire(KEY).expect("free");
    let mut out = std::io::stdout();
    out.write_all(b"\nheld\n").and_then(|()| out.flush()).expect("somebody listens");
    // Until it is killed, or whoever started it has ended.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn another_process_is_kept_out_and_its_death_lets_go() {
    let root = tempfile::tempdir().expect("room");
    let mut holder = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "advisory::holds_the_lock_if_asked_to", "--nocapture"])
        .env(HOLD, root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    let held = lines.map_while(Result::ok).any(|line| line == "held");
    assert!(held, "the other process took the lock");

    let host = RealHost::new();
    let dir = host.open_dir(root.path()).expect("there");
    let locks = Locks::new(&host, &dir, "runs", 20);
    let e = locks.acquire(KEY).expect_err("another process holds it");
    assert!(matches!(e, LockError::Contended { waited_ms: 20, .. }), "{e:?}");
    assert!(e.to_string().contains(&format!("runs/.runstore/{}", lock_name(KEY))), "{e}");

    holder.kill().expect("ours");
    holder.wait().expect("ours");
    drop(locks.acquire(KEY).expect("the system let go"));
}

#[test]
fn a_link_in_the_place_of_a_lock_file_is_not_followed() {
    let root = tempfile::tempdir().expect("room");
    let own = root.path().join(".runstore");
    std::fs::create_dir(&own).expect("room");
    let target = root.path().join("target");
    std::fs::write(&target, "x").expect("room");
    std::os::unix::fs::symlink(&target, own.join(lock_name(KEY))).expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(root.path()).expect("there");
    let e = Locks::new(&host, &dir, "runs", 0).acquire(KEY).expect_err("a link");
    assert!(matches!(e, LockError::Unavailable(_)), "{e:?}");
}
