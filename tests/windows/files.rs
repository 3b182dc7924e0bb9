//! One file at a time, with nobody in the way: replaced, patched, appended to, locked, refused.

use std::io;
use std::path::Path;

use runstore::protocol::Document;
use runstore::store::RealHost;
use runstore::store::advisory::{LockError, Locks};
use runstore::store::atomic::{Durability, Options, Target, replace};
use runstore::store::host::{FileKind, Host as _, Part, ReadError, WriteHost as _};
use runstore::store::journal;
use runstore::store::sidecar::{Decision, Patched, patch, patch_locked};

use crate::{names, text};

const NAME: &str = "status.json";

#[test]
fn a_file_is_made_and_replaced_at_every_level() {
    for durability in [Durability::ProcessSafe, Durability::Ordered, Durability::Durable] {
        let top = tempfile::tempdir().expect("room");
        let host = RealHost::new();
        let dir = host.open_dir(top.path()).expect("there");
        for body in ["{\"state\":\"running\"}", "{}", "{\"state\":\"complete\"}"] {
            let done = replace(&host, &dir, NAME, body.as_bytes(), &Options::new(durability));
            let done = done.expect("nobody is in the way");
            assert_eq!((done.rename.made, done.rename.waited_ms), (1, 0));
            assert_eq!(text(&top.path().join(NAME)), body);
            assert_eq!(names(top.path()), [NAME], "no temp file is left");
        }
    }
}

#[test]
fn a_file_that_must_be_new_is_made_once() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let options = Options::new(Durability::Durable).target(Target::New);
    replace(&host, &dir, NAME, b"first", &options).expect("it was not there");
    let e = replace(&host, &dir, NAME, b"second", &options).expect_err("it is there");
    assert_eq!((e.source.kind(), e.attempts.made), (io::ErrorKind::AlreadyExists, 1));
    assert_eq!(text(&top.path().join(NAME)), "first");
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn of_several_that_make_a_new_file_at_once_one_wins() {
    const WRITERS: usize = 4;
    for round in 0..20 {
        let top = tempfile::tempdir().expect("room");
        let barrier = std::sync::Barrier::new(WRITERS);
        let write = |writer: usize| {
            let host = RealHost::new();
            let dir = host.open_dir(top.path()).expect("there");
            let options = Options::new(Durability::ProcessSafe).target(Target::New);
            barrier.wait();
            let body = writer.to_string();
            replace(&host, &dir, NAME, body.as_bytes(), &options).ok().map(|_| writer)
        };
        let write = &write;
        let won: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            threads.into_iter().filter_map(|t| t.join().expect("no writer panics")).collect()
        });
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        assert_eq!(text(&top.path().join(NAME)), won[0].to_string(), "the winner's text");
        assert_eq!(names(top.path()), [NAME], "no temp file is left");
    }
}

#[test]
fn a_reader_sees_one_text_or_the_other_while_a_file_is_replaced_again_and_again() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    const ROUNDS: usize = 50;
    /// Reads for each replacement: with more, a system that refuses to rename over an open file would
    /// be kept waiting by chance.
    const READS: usize = 3;
    let top = tempfile::tempdir().expect("room");
    let body = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(n * 79 % 4096));
    std::fs::write(top.path().join(NAME), body(0)).expect("room");
    let round = AtomicUsize::new(1);
    let read_all = || {
        let host = RealHost::new();
        let dir = host.open_dir(top.path()).expect("there");
        let mut seen = 0;
        for turn in 1..=ROUNDS {
            while round.load(SeqCst) < turn {
                std::thread::yield_now();
            }
            for _ in 0..READS {
                // The system may refuse a look in the moment of the rename; it never shows a part.
                let Ok(read) = host.read_at(&dir, NAME.as_ref(), Part::All(1 << 20)) else {
                    continue;
                };
                let text = String::from_utf8(read.bytes).expect("text");
                let doc = Document::parse(&text).expect("a whole text");
                let n = doc.get("n").expect("a number").text().parse().expect("a number");
                assert_eq!(text, body(n), "a whole text");
                seen += 1;
            }
        }
        seen
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(read_all);
        let host = RealHost::new();
        let dir = host.open_dir(top.path()).expect("there");
        let written: Result<Vec<_>, _> = (1..=ROUNDS)
            .map(|n| {
                round.store(n, SeqCst);
                let options = Options::new(Durability::ProcessSafe);
                replace(&host, &dir, NAME, body(n).as_bytes(), &options).map(|w| w.rename.made)
            })
            .collect();
        // The reader does not wait for rounds that an error has left out.
        round.store(ROUNDS, SeqCst);
        let attempts = written.expect("a reader does not keep a writer out for long");
        let attempts: u32 = attempts.iter().sum();
        let seen = reader.join().expect("every text was whole");
        println!("{ROUNDS} replacements in {attempts} attempts, {seen} texts read");
    });
    assert_eq!(text(&top.path().join(NAME)), body(ROUNDS));
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn a_patch_keeps_every_byte_of_the_rest() {
    let top = tempfile::tempdir().expect("room");
    let old = "{\r\n  \"state\": \"running\",\r\n  \"odd\": 1e400, \"more\": {\"x\":  1}\r\n}";
    std::fs::write(top.path().join(NAME), old).expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let to_failed = |_: &Document<'_>| Decision::Patch(vec![("state", "\"failed\"".to_owned())]);
    let options = Options::new(Durability::Durable);
    let done = patch(&host, &dir, NAME, 1 << 20, &options, to_failed).expect("nobody disturbs");
    assert!(matches!(done, Patched::Written { attempts: 1, .. }), "{done:?}");
    assert_eq!(text(&top.path().join(NAME)), old.replace("running", "failed"));
    let done = patch(&host, &dir, NAME, 1 << 20, &options, to_failed).expect("nobody disturbs");
    assert_eq!(done, Patched::Kept, "a patch that changes nothing writes nothing");
}

#[test]
fn a_text_of_the_same_length_that_comes_in_between_is_not_lost() {
    let top = tempfile::tempdir().expect("room");
    let path = top.path().join(NAME);
    std::fs::write(&path, "{\"state\":\"running\",\"n\":1}").expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let times = std::cell::Cell::new(0);
    let options = Options::new(Durability::ProcessSafe);
    let done = patch(&host, &dir, NAME, 1 << 20, &options, |_| {
        times.set(times.get() + 1);
        if times.get() == 1 {
            // Its time is set back as well: only the bytes tell.
            let modified = std::fs::metadata(&path).and_then(|m| m.modified()).expect("a time");
            std::fs::write(&path, "{\"state\":\"running\",\"n\":2}").expect("room");
            let file = std::fs::File::options().write(true).open(&path).expect("there");
            file.set_modified(modified).expect("our own file");
        }
        Decision::Patch(vec![("state", "\"failed\"".to_owned())])
    });
    assert!(matches!(done, Ok(Patched::Written { attempts: 2, .. })), "{done:?}");
    assert_eq!(text(&path), "{\"state\":\"failed\",\"n\":2}");
}

#[test]
fn no_update_of_several_writers_is_lost_under_the_lock() {
    const WRITERS: usize = 4;
    const UPDATES: usize = 10;
    let top = tempfile::tempdir().expect("room");
    std::fs::write(top.path().join(NAME), "{\"count\": 0, \"odd\": 1e400}").expect("room");
    let add_one = || {
        let host = RealHost::new();
        let dir = host.open_dir(top.path()).expect("there");
        let locks = Locks::new(&host, &dir, "runs", 60_000);
        let count_up = |doc: &Document<'_>| {
            let count: u64 = doc.get("count").expect("there").text().parse().expect("a number");
            Decision::Patch(vec![("count", (count + 1).to_string())])
        };
        let options = Options::new(Durability::ProcessSafe);
        patch_locked(&locks, "run-1", (&dir, NAME), 1 << 20, &options, count_up).expect("patched");
    };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..UPDATES).for_each(|_| add_one()));
        }
    });
    let expected = format!("{{\"count\": {}, \"odd\": 1e400}}", WRITERS * UPDATES);
    assert_eq!(text(&top.path().join(NAME)), expected);
}

#[test]
fn a_lock_keeps_another_opening_out_until_it_is_let_go() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let locks = Locks::new(&host, &dir, "runs", 0);
    let held = locks.acquire("run-1").expect("free");
    let e = locks.acquire("run-1").expect_err("it is held");
    assert!(matches!(e, LockError::Contended { waited_ms: 0, .. }), "{e}");
    drop(held);
    drop(locks.acquire("run-1").expect("let go"));
}

#[test]
fn a_line_is_appended_after_what_is_there_and_a_full_log_is_moved_aside() {
    let top = tempfile::tempdir().expect("room");
    let log = top.path().join("events.jsonl");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let append = |line: &str, max_bytes| {
        journal::append(&host, &dir, "events.jsonl", line, max_bytes).expect("room");
    };
    append("{\"n\":1}", 1 << 20);
    append("{\"n\":2}", 1 << 20);
    std::fs::write(&log, text(&log) + "{\"torn\"").expect("room");
    append("{\"n\":3}", 1 << 20);
    let whole = "{\"n\":1}\n{\"n\":2}\n{\"torn\"\n{\"n\":3}\n";
    assert_eq!(text(&log), whole, "only the torn line is lost");
    append("{\"n\":4}", 30);
    assert_eq!(text(&log), "{\"n\":4}\n");
    assert_eq!(text(&top.path().join("events.previous.jsonl")), whole);
    assert_eq!(names(top.path()), ["events.jsonl", "events.previous.jsonl"]);
}

#[test]
fn lines_of_several_writers_are_whole() {
    const WRITERS: usize = 4;
    const LINES: usize = 50;
    let system = std::env::var_os("SystemRoot").expect("set on every Windows");
    if Path::new(&system).join("system32").join("winecfg.exe").exists() {
        println!("SKIP: Wine looks for the end of a file and writes there in two steps");
        return;
    }
    let top = tempfile::tempdir().expect("room");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = top.path();
            scope.spawn(move || {
                let host = RealHost::new();
                let dir = host.open_dir(path).expect("there");
                for n in 0..LINES {
                    let line = format!("{{\"writer\":{writer},\"n\":{n},\"pad\":\"{n:>200}\"}}");
                    journal::append(&host, &dir, "events.jsonl", &line, 1 << 20).expect("room");
                }
            });
        }
    });
    let log = text(&top.path().join("events.jsonl"));
    assert_eq!(log.lines().count(), WRITERS * LINES);
    for line in log.lines() {
        Document::parse(line).expect("a whole line");
    }
}

#[test]
fn a_name_that_windows_takes_for_another_is_refused_before_anything_is_made() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    for name in ["NUL", "con.json", "a:b", "x.", "x ", r"..\x", "../x", "C:x", "..", "", "x?"] {
        let e = replace(&host, &dir, name, b"{}", &Options::new(Durability::ProcessSafe));
        let e = e.expect_err("refused");
        assert_eq!(e.source.kind(), io::ErrorKind::InvalidFilename, "{name:?}");
        let refused =
            |e: io::Error| assert_eq!(e.kind(), io::ErrorKind::InvalidFilename, "{name:?}");
        refused(host.create(&dir, name.as_ref(), 0o600).expect_err("refused"));
        refused(host.open_append(&dir, name.as_ref(), 0o600, true).expect_err("refused"));
        refused(host.create_dir(&dir, name.as_ref(), 0o700).expect_err("refused"));
        refused(host.open_dir_at(&dir, name.as_ref()).expect_err("refused"));
    }
    assert!(names(top.path()).is_empty(), "{:?}", names(top.path()));
}

#[test]
fn a_directory_in_the_place_of_a_file_is_told_by_what_it_is() {
    let top = tempfile::tempdir().expect("room");
    std::fs::create_dir(top.path().join(NAME)).expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let read = host.read_at(&dir, NAME.as_ref(), Part::All(10)).expect_err("a directory");
    assert!(matches!(read, ReadError::NotPlain(FileKind::Directory)), "{read:?}");
    host.open_append(&dir, NAME.as_ref(), 0o600, true).expect_err("a directory");
    // The caller says that it knows the file, so only the rename finds out, and at once.
    let options = Options::new(Durability::ProcessSafe).target(Target::Known(0o600));
    let e = replace(&host, &dir, NAME, b"{}", &options).expect_err("a directory");
    assert_eq!((e.source.kind(), e.attempts.made), (io::ErrorKind::IsADirectory, 1));
    assert_eq!(names(top.path()), [NAME], "no temp file is left");
}

#[test]
fn no_link_is_followed() {
    let top = tempfile::tempdir().expect("room");
    let outside = top.path().join("outside.json");
    std::fs::write(&outside, "secret").expect("room");
    let store = top.path().join("store");
    std::fs::create_dir(&store).expect("room");
    let link = std::os::windows::fs::symlink_file(&outside, store.join(NAME))
        .and_then(|()| std::os::windows::fs::symlink_dir(top.path(), store.join("runs")));
    if let Err(e) = link.and_then(|()| std::fs::symlink_metadata(store.join(NAME)).map(drop)) {
        println!("SKIP: no link can be made here: {e}");
        return;
    }
    let host = RealHost::new();
    let dir = host.open_dir(&store).expect("there");
    let read = host.read_at(&dir, NAME.as_ref(), Part::All(100)).expect_err("a link");
    assert!(matches!(read, ReadError::NotPlain(FileKind::Link)), "{read:?}");
    host.open_dir_at(&dir, "runs".as_ref()).expect_err("a link");
    host.open_append(&dir, NAME.as_ref(), 0o600, true).expect_err("a link");
    replace(&host, &dir, NAME, b"{}", &Options::new(Durability::ProcessSafe)).expect_err("a link");
    assert_eq!(text(&outside), "secret");
    host.unlink(&dir, "runs".as_ref()).expect("the link is removed");
    assert_eq!(text(&outside), "secret", "and not what it leads to");
}

#[test]
fn a_path_may_be_longer_than_260_characters() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let mut dir = host.open_dir(top.path()).expect("there");
    let long = "d".repeat(100);
    for _ in 0..3 {
        host.create_dir(&dir, long.as_ref(), 0o700).expect("room");
        dir = host.open_dir_at(&dir, long.as_ref()).expect("made");
    }
    let options = Options::new(Durability::Durable);
    replace(&host, &dir, NAME, b"new", &options.target(Target::New)).expect("made");
    replace(&host, &dir, NAME, b"old", &options).expect("replaced");
    let read = host.read_at(&dir, NAME.as_ref(), Part::All(100)).expect("there");
    assert_eq!(read.bytes, b"old");
}

#[test]
fn the_system_tells_its_room_and_gives_chance() {
    let top = tempfile::tempdir().expect("room");
    let host = RealHost::new();
    let dir = host.open_dir(top.path()).expect("there");
    let space = host.space(&dir).expect("a local disk tells");
    assert!(space.free_bytes > 0 && space.total_bytes >= space.free_bytes, "{space:?}");
    let mut drawn: Vec<u64> = (0..1000).map(|_| host.random()).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 1000, "no two draws are equal");
    assert!(drawn.iter().any(|n| *n >> 63 == 1) && drawn.iter().any(|n| n >> 63 == 0));
}
