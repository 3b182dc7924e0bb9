//! A disk that is really full: nothing is lost, nothing is left over, and the error says how full.
//!
//! Theory of operation. A file system in memory of 64 KiB is mounted for each test, which only root may
//! do; a file is grown in it until the system refuses, and then taken back by a number of pages. The
//! operations run on the real host. Without the right to mount, the tests say `SKIP`.
//!
//! Not covered: quotas, and disks that promise room and take it back when data is flushed.

use std::error::Error as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use runstore::store::atomic::{Durability, Options, Step, WriteError, replace};
use runstore::store::host::Host as _;
use runstore::store::publish::{PublishError, publish};
use runstore::store::retry::RetryPolicy;
use runstore::store::{RealHost, directory, journal};
use testkit::driver::{EVENT_LIMIT_BYTES, NEW_RESULT, OLD_RESULT, OLD_STATUS};
use testkit::process::skip;

/// The unit in which this file system gives room.
const PAGE: usize = 4096;
const FILLER: &str = "filler";

/// A mounted file system; dropping it unmounts.
struct Disk {
    _dir: tempfile::TempDir,
    top: PathBuf,
}

impl Disk {
    /// Mounts one with `more` options, or says `SKIP` for `test`.
    fn mount(test: &str, more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = dir.path().join("disk");
        fs::create_dir(&top).expect("the place is ours");
        let options = format!("size=64k,mode=0700{more}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "runstore-test"]).arg(&top);
        match command.output() {
            Ok(out) if out.status.success() => Some(Self { _dir: dir, top }),
            Ok(out) => {
                skip(test, String::from_utf8_lossy(&out.stderr).trim());
                None
            }
            Err(e) => {
                skip(test, &format!("mount cannot be started: {e}"));
                None
            }
        }
    }

    /// Fills it, but for some pages.
    fn fill(&self, but_pages: usize) {
        let path = self.top.join(FILLER);
        let mut file = fs::File::create(&path).expect("there is room for a name");
        let mut written = 0;
        while file.write_all(&[b'x'; PAGE]).is_ok() {
            written += PAGE;
        }
        let kept = written.checked_sub(but_pages * PAGE).expect("the disk has that many pages");
        file.set_len(kept as u64).expect("a file can be cut");
    }

    fn empty(&self) {
        fs::remove_file(self.top.join(FILLER)).expect("it is there");
    }

    /// Every file but the filler, by its path in the disk.
    fn files(&self) -> Vec<String> {
        let tree = testkit::tree::snapshot(&self.top).expect("it is ours");
        let is_file = |mode: u32| mode & 0o170_000 == 0o100_000;
        tree.into_iter()
            .filter(|(path, entry)| is_file(entry.mode) && path != FILLER)
            .map(|(path, _)| path)
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a handle of a failed test may still be open.
        let _ = Command::new("umount").arg("-l").arg(&self.top).status();
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it is there and is text")
}

/// What every error of a full disk says.
fn says_how_full(e: &WriteError, step: Step, name: &str) {
    assert_eq!(e.step, step, "{e}");
    assert!(e.is_capacity(), "trying later makes sense: {e:?}");
    let free = e.free_bytes.expect("the free bytes are told");
    assert!(free < PAGE as u64 * 3, "{free} bytes are free");
    assert!(e.cleanup.is_none(), "cleaning up needs no room: {e}");
    let said = e.to_string();
    assert!(said.contains(name), "the error names the file: {said}");
    assert!(said.contains(&format!("{free} bytes are free")), "{said}");
    let cause = e.source().expect("an error of the system has a cause").to_string();
    assert!(cause.contains("No space") || cause.contains("no storage space"), "{cause}");
}

#[test]
fn a_replace_on_a_full_disk_leaves_the_old_file_and_no_litter() {
    let Some(disk) = Disk::mount("a replace on a full disk", "") else { return };
    let host = RealHost::new();
    let dir = host.open_dir(&disk.top).expect("mounted");
    let status = disk.top.join("status.json");
    let new = format!("{{\"pad\":\"{}\"}}", "n".repeat(2 * PAGE));
    let mut refused = 0;
    for level in [Durability::ProcessSafe, Durability::Ordered, Durability::Durable] {
        for pages in 0..5 {
            fs::write(&status, OLD_STATUS).expect("room");
            disk.fill(pages);
            let done = replace(&host, &dir, "status.json", new.as_bytes(), &Options::new(level));
            assert_eq!(disk.files(), ["status.json"], "{level:?}, {pages} pages: no litter");
            match done {
                Ok(_) => assert_eq!(text(&status), new, "{level:?}, {pages} pages"),
                Err(e) => {
                    refused += 1;
                    assert!(pages < 3, "{pages} pages are enough: {e}");
                    says_how_full(&e, Step::Write, "status.json");
                    assert_eq!(text(&status), OLD_STATUS, "{level:?}, {pages} pages");
                }
            }
            disk.empty();
            replace(&host, &dir, "status.json", new.as_bytes(), &Options::new(level))
                .expect("with room it works again");
        }
    }
    assert_eq!(refused, 9, "three levels, and no, one or two pages are too few");
    println!("full disk: replace refused {refused} times of 15");
}

#[test]
fn a_replace_on_a_disk_without_names_leaves_the_old_file() {
    let Some(disk) = Disk::mount("a replace without names", ",nr_inodes=3") else { return };
    let host = RealHost::new();
    let dir = host.open_dir(&disk.top).expect("mounted");
    fs::write(disk.top.join("status.json"), OLD_STATUS).expect("room");
    fs::write(disk.top.join(FILLER), "").expect("room for one more");
    let options = Options::new(Durability::Durable);
    let e = replace(&host, &dir, "status.json", b"{}", &options).expect_err("no name is left");
    assert_eq!(e.step, Step::Create, "{e}");
    assert!(e.is_capacity() && e.free_bytes.is_some(), "{e}");
    assert_eq!(text(&disk.top.join("status.json")), OLD_STATUS);
}

#[test]
fn an_append_on_a_full_disk_loses_its_own_line_only() {
    let Some(disk) = Disk::mount("an append on a full disk", "") else { return };
    let host = RealHost::new();
    let dir = host.open_dir(&disk.top).expect("mounted");
    let log = disk.top.join("events.jsonl");
    let append = |line: &str| journal::append(&host, &dir, "events.jsonl", line, EVENT_LIMIT_BYTES);
    // The last page of the log is full, or has room for a part of the line.
    for room in [0, 6] {
        let old = format!("{}\n", "o".repeat(PAGE - room - 1));
        fs::write(&log, &old).expect("room");
        disk.fill(0);
        let e = append("{\"type\":\"lost\"}").expect_err("there is no room");
        says_how_full(&e, Step::Append, "events.jsonl");
        let now = text(&log);
        assert!(now.starts_with(&old), "what was there stays");
        assert_eq!(now.len(), old.len() + room, "at most a part of the line was added");
        disk.empty();
        append("{\"type\":\"next\"}").expect("with room it works again");
        let last = text(&log).lines().last().map(str::to_owned);
        assert_eq!(last.as_deref(), Some("{\"type\":\"next\"}"), "the next line is whole");
        assert_eq!(disk.files(), ["events.jsonl"]);
    }
}

#[test]
fn a_publication_on_a_full_disk_leaves_the_old_result_or_the_new_one_pending() {
    let Some(disk) = Disk::mount("a publication on a full disk", "") else { return };
    let host = RealHost::new();
    let dir = host.open_dir(&disk.top).expect("mounted");
    let never = RetryPolicy::never();
    let mut outcomes = [0, 0];
    for pages in 0..7 {
        let name = format!("results-{pages}");
        let results = directory::create(&host, &dir, &name, &never).expect("room").0;
        let put = |text| publish(&host, &results, "run-1.json", text, None, &never);
        put(OLD_RESULT).expect("room");
        let before = disk.files();
        disk.fill(pages);
        let done = put(NEW_RESULT);
        let top = disk.top.join(&name);
        let (pending, public) = (top.join("result-pending/S/run-1.json"), top.join("run-1.json"));
        match done {
            Err(PublishError::Write(e)) => {
                outcomes[0] += 1;
                says_how_full(&e, Step::Write, "run-1.json");
                assert_eq!(text(&public), OLD_RESULT, "{pages} pages: the old result stays");
                if pending.is_file() {
                    assert_eq!(text(&pending), NEW_RESULT, "{pages} pages: it is whole");
                }
            }
            Err(e) => panic!("{pages} pages: {e}"),
            Ok(published) => {
                outcomes[1] += 1;
                for e in &published.problems {
                    says_how_full(e, Step::Write, "run-1.json");
                }
                assert_eq!(text(&public), NEW_RESULT, "{pages} pages");
            }
        }
        let mut after = disk.files();
        after.retain(|path| !path.contains("result-pending"));
        assert_eq!(after, before, "{pages} pages: no litter");
        disk.empty();
        put(NEW_RESULT).expect("with room it works again");
        assert_eq!(text(&public), NEW_RESULT);
        fs::remove_dir_all(&top).expect("ours");
    }
    println!("full disk: publish refused {} times, done {} times", outcomes[0], outcomes[1]);
    assert!(outcomes[0] >= 2 && outcomes[1] >= 1, "both were seen: {outcomes:?}");
}
