//! Writing as a user without rights: nothing outside the store is touched, and modes are right.
//!
//! Theory of operation. The driver (`testkit::driver`) performs operations as `nobody` in a store that
//! belongs to `nobody`, in which something was planted: a link or a second name in the place of a
//! file, a link in the place of a directory. What a planted link leads to belongs to `nobody` as well,
//! so that only the writer's own care keeps it as it is. Without root the driver runs as this user,
//! except where two users are needed.
//!
//! The last part asks the program itself, as that user, about stores with a directory that is closed to him: what
//! cannot be looked at or written is told, keeps what it may be about, and concerns nothing else (RS-READ-05, RS-REC-05,
//! RS-REC-32, RS-RET-14).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::slot::pool_name;
use runstore::store::{RealHost, directory};
use serde_json::{Value, json};
use testkit::driver::{self, OPERATIONS};
use testkit::process::{NOBODY, for_everybody, is_root, now_ms, skip};
use testkit::program::{self, Outcome};
use testkit::records::{self, GONE};
use testkit::tree;

use crate::ask::{self, Answer, LIMIT, utf8};

/// A store for one operation, and a place outside of it.
struct Place {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
        Self::in_dir(dir.expect("a temporary directory"))
    }

    /// On the disk: a file system of the ext family there has second names for old files (RS-ATOM-14).
    fn on_disk() -> Self {
        Self::in_dir(tempfile::tempdir().expect("a temporary directory"))
    }

    fn in_dir(dir: tempfile::TempDir) -> Self {
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("ours");
        let program = for_everybody(&driver::program(), dir.path()).expect("room");
        let place = Self { dir, program };
        fs::create_dir(place.outside()).expect("ours");
        give(&place.outside());
        place.folder("");
        place
    }

    /// Begins with an empty store again.
    fn renew(&self) {
        fs::remove_dir_all(self.root()).expect("ours");
        self.folder("");
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// A private directory of the store, with those above it.
    fn folder(&self, relative: &str) -> PathBuf {
        let mut path = self.dir.path().to_owned();
        for part in ["root"].into_iter().chain(relative.split('/').filter(|part| !part.is_empty()))
        {
            path.push(part);
            if !path.is_dir() {
                fs::create_dir(&path).expect("ours");
                fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("ours");
                give(&path);
            }
        }
        path
    }

    /// A file outside with mode 0640.
    fn secret(&self) -> PathBuf {
        let path = self.outside().join("secret");
        fs::write(&path, "{\"secret\":1}").expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("ours");
        give(&path);
        path
    }

    /// Plants a link at a path of the store.
    fn plant(&self, relative: &str, to: &Path) {
        let (folder, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let link = self.folder(folder).join(name);
        symlink(to, &link).expect("room");
        give(&link);
    }

    fn run(&self, operation: &str, umask: &str) -> Outcome {
        let mut command = Command::new(&self.program);
        command.arg(self.root()).args([operation, umask]);
        command.env_remove("RUST_BACKTRACE").current_dir("/");
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let outcome = program::run(command, LIMIT, None).expect("it was built");
        assert!(!outcome.late, "{operation}: it ends in time");
        assert!(!outcome.errors().contains("panicked"), "{operation}: {}", outcome.errors());
        outcome
    }
}

fn give(path: &Path) {
    if is_root() {
        lchown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// Fails unless the operation is refused and nothing outside has changed.
fn refused(place: &Place, operation: &str, what: &str) {
    let before = tree::snapshot(&place.outside()).expect("ours");
    let outcome = place.run(operation, "022");
    let changes = tree::diff(&before, &tree::snapshot(&place.outside()).expect("ours"));
    assert!(changes.is_empty(), "{operation}, {what}: outside is changed: {changes:#?}");
    assert_eq!(outcome.code, 1, "{operation}, {what}: it is refused: {}", outcome.text());
    assert!(!outcome.errors().is_empty(), "{operation}, {what}: and says why");
}

#[test]
fn a_link_in_the_place_of_a_file_is_neither_followed_nor_replaced() {
    let pool = format!("session-active-async-capacity/{}", pool_name("S"));
    let run = "async-subagent-runs/run-1";
    let results = "async-subagent-results";
    let planted = [
        (format!("{run}/status.json"), "replace-process"),
        (format!("{run}/status.json"), "replace-durable"),
        (format!("{run}/status.json"), "replace-new"),
        (format!("{run}/status.json"), "patch"),
        (format!("{run}/status.json"), "patch-locked"),
        (format!("{run}/status.json"), "status-end"),
        (format!("{run}/status.json"), "status-failed-first"),
        (format!("{run}/process-terminal-candidate.json"), "status-failed"),
        (format!("{run}/events.jsonl"), "append"),
        (format!("{run}/process-terminal.json"), "proof-initialise"),
        (format!("{run}/process-terminal-candidate.json"), "proof-initialise"),
        ("async-subagent-runs/.active-runs/run-1".to_owned(), "marker-active"),
        (
            "async-subagent-runs/.terminal-runs/S/0001700000000000-run-1.json".to_owned(),
            "marker-ended",
        ),
        (format!("{results}/result-pending/S/run-1.json"), "result-first"),
        (format!("{results}/result-index/sessions/S/run-1.json"), "result-first"),
        (format!("{pool}/slot-0"), "slot-acquire"),
    ];
    for (path, operation) in &planted {
        let place = Place::new();
        let secret = place.secret();
        place.plant(path, &secret);
        refused(&place, operation, path);
        let link = fs::read_link(place.root().join(path)).expect("the link is still there");
        assert_eq!(link, secret, "{path}: somebody else's link stays as it is");
    }
}

#[test]
fn a_link_in_the_place_of_a_directory_leads_nothing_outside() {
    let planted = [
        ("async-subagent-runs", "replace-durable"),
        ("async-subagent-runs/run-1", "replace-durable"),
        ("async-subagent-runs/.active-runs", "marker-active"),
        ("async-subagent-runs/.terminal-runs", "marker-ended"),
        ("async-subagent-runs/.terminal-runs/S", "marker-ended"),
        ("async-subagent-results", "result-first"),
        ("async-subagent-results/result-pending", "result-first"),
        ("async-subagent-results/result-pending/S", "result-first"),
        ("async-subagent-results/result-index", "result-first"),
        ("async-subagent-results/result-index/sessions", "result-first"),
        ("session-leases", "lease-acquire"),
        ("session-active-async-capacity", "slot-acquire"),
    ];
    for (path, operation) in planted {
        let place = Place::new();
        place.plant(path, &place.outside());
        refused(&place, operation, path);
    }
}

#[test]
fn what_stands_at_a_temp_name_is_not_opened() {
    let place = Place::new();
    let secret = place.secret();
    let host = RealHost::new();
    let dir = host.open_dir(&place.root()).expect("ours");
    let before = tree::snapshot(&place.outside()).expect("ours");
    fs::write(place.root().join("status.json"), "{}").expect("room");
    // The random part of a temp name cannot be guessed, so the name is given here.
    let name = ".status.json.1.1700000000000.0000000000000.tmp";
    let nothing = place.outside().join("made");
    let targets = [secret.as_path(), nothing.as_path(), Path::new(name)];
    for target in targets {
        let link = place.root().join(name);
        symlink(target, &link).expect("room");
        let e = host.create(&dir, name.as_ref(), 0o600).expect_err("something stands there");
        assert_eq!(e.kind(), std::io::ErrorKind::AlreadyExists, "{}", target.display());
        let e = host.add_name(&dir, "status.json".as_ref(), name.as_ref()).expect_err("the same");
        assert_eq!(e.kind(), std::io::ErrorKind::AlreadyExists, "{}", target.display());
        fs::remove_file(&link).expect("the link is still there");
    }
    fs::hard_link(&secret, place.root().join(name)).expect("one file system");
    host.create(&dir, name.as_ref(), 0o600).expect_err("a second name stands there");
    host.add_name(&dir, "status.json".as_ref(), name.as_ref()).expect_err("the same");
    fs::remove_file(place.root().join(name)).expect("it is still there");
    let after = tree::snapshot(&place.outside()).expect("ours");
    let content = |tree: &std::collections::BTreeMap<String, tree::Entry>| {
        tree.iter().map(|(path, e)| (path.clone(), e.content.clone())).collect::<Vec<_>>()
    };
    assert_eq!(content(&before), content(&after), "nothing outside is touched");
}

#[test]
fn a_second_name_of_the_target_keeps_its_old_bytes() {
    let operations = [
        "replace-process",
        "replace-ordered",
        "replace-durable",
        "patch",
        "patch-locked",
        "status-step",
        "status-end",
        "status-failed",
    ];
    let places = [Place::new as fn() -> Place, Place::on_disk];
    for (make, operation) in places.into_iter().flat_map(|make| operations.map(|o| (make, o))) {
        let place = make();
        let secret = place.secret();
        let status = place.folder("async-subagent-runs/run-1").join("status.json");
        fs::hard_link(&secret, &status).expect("one file system");
        let outcome = place.run(operation, "022");
        assert_eq!(outcome.code, 0, "{operation}: {}", outcome.errors());
        assert_eq!(fs::read_to_string(&secret).expect("there"), "{\"secret\":1}", "{operation}");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&secret), 0o640, "{operation}: the other name keeps its mode");
        assert_eq!(mode(&status), 0o600, "{operation}: the new file is private");
        let names = fs::metadata(&secret).expect("there").nlink();
        assert_eq!(names, 1, "{operation}: no name in the store leads to it any more");
    }
}

// RS-ATOM-14.
#[test]
fn a_second_name_of_a_link_is_one_of_the_link_and_not_of_what_it_leads_to() {
    let place = Place::on_disk();
    let secret = place.secret();
    let before = tree::snapshot(&place.outside()).expect("ours");
    let host = RealHost::new();
    let dir = host.open_dir(&place.root()).expect("ours");
    // Swapped for a link between the look of a writer and its second name.
    symlink(&secret, place.root().join("status.json")).expect("room");
    let other = ".status.json.old.1.1700000000000.0000000000000.tmp";
    host.add_name(&dir, "status.json".as_ref(), other.as_ref()).expect("a link may have two names");
    let stat = host.stat_at(&dir, other.as_ref()).expect("there");
    assert_eq!(stat.kind, runstore::store::host::FileKind::Link);
    host.unlink(&dir, other.as_ref()).expect("ours");
    let changes = tree::diff(&before, &tree::snapshot(&place.outside()).expect("ours"));
    assert!(changes.is_empty(), "outside is changed: {changes:#?}");
}

// RS-EVENT-12.
#[test]
fn a_log_with_a_second_name_is_moved_aside_and_never_written_to() {
    let place = Place::new();
    let secret = place.secret();
    let run = place.folder("async-subagent-runs/run-1");
    fs::hard_link(&secret, run.join("events.jsonl")).expect("one file system");
    let outcome = place.run("append", "022");
    assert_eq!(outcome.code, 0, "the line is not lost: {}", outcome.errors());
    assert_eq!(fs::read_to_string(&secret).expect("there"), "{\"secret\":1}", "not written to");
    let moved = fs::read_to_string(run.join("events.previous.jsonl")).expect("moved aside");
    assert_eq!(moved, "{\"secret\":1}", "what it held can still be found");
    let log = fs::read_to_string(run.join("events.jsonl")).expect("a new log");
    assert!(log.contains("{\"type\":\"new\"}"), "{log}");
    // A name that is planted between the look and the opening is met by the opening itself.
    let host = RealHost::new();
    let dir = host.open_dir(&place.root()).expect("ours");
    fs::hard_link(&secret, place.root().join("log")).expect("one file system");
    let e = host.open_append(&dir, "log".as_ref(), 0o600, true).expect_err("a second name");
    assert!(e.to_string().contains("another name"), "{e}");
}

#[test]
fn another_users_root_is_refused() {
    if !is_root() {
        return skip("another user's root", "only root can make one");
    }
    // Open to everybody, with the sticky bit: only the owner is wrong.
    let place = Place::new();
    for operation in OPERATIONS {
        place.renew();
        lchown(place.root(), Some(0), Some(0)).expect("root may");
        fs::set_permissions(place.root(), Permissions::from_mode(0o1777)).expect("root may");
        let outcome = place.run(operation, "022");
        assert_eq!(outcome.code, 1, "{operation}: it is refused");
        assert!(outcome.errors().contains("owned by another user (uid 0"), "{}", outcome.errors());
        let left = fs::read_dir(place.root()).expect("ours").count();
        assert_eq!(left, 0, "{operation}: nothing is written");
    }
}

#[test]
fn another_users_directory_in_the_store_is_refused() {
    if !is_root() {
        return skip("another user's directory", "only root can make one");
    }
    let planted = [
        ("async-subagent-runs", "replace-durable"),
        ("async-subagent-runs/run-1", "replace-durable"),
        ("async-subagent-runs/.active-runs", "marker-active"),
        ("async-subagent-results", "result-first"),
        ("async-subagent-results/result-pending/S", "result-first"),
        ("session-leases", "lease-acquire"),
        ("session-active-async-capacity", "slot-acquire"),
    ];
    for (path, operation) in planted {
        let place = Place::new();
        let folder = place.folder(path);
        lchown(&folder, Some(0), Some(0)).expect("root may");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("root may");
        let outcome = place.run(operation, "022");
        assert_eq!(outcome.code, 1, "{operation}, {path}: it is refused: {}", outcome.text());
        let left = fs::read_dir(&folder).expect("ours").count();
        assert_eq!(left, 0, "{operation}, {path}: nothing is written into it");
    }
}

// RS-ATOM-12.
#[test]
fn a_root_that_others_control_is_refused_with_what_to_do() {
    let place = Place::new();
    let host = RealHost::new();
    let root = place.root();
    let link = place.dir.path().join("link");
    symlink(&root, &link).expect("room");
    let refusal = |path: &Path| directory::open_root(&host, path).expect_err("refused").to_string();
    assert!(refusal(&link).contains("name the directory that it leads to"), "{}", refusal(&link));
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(&root, Permissions::from_mode(mode)).expect("ours");
        assert!(refusal(&root).contains("set its mode to 0700"), "{mode:o}: {}", refusal(&root));
    }
    for mode in [0o700, 0o755, 0o1777] {
        fs::set_permissions(&root, Permissions::from_mode(mode)).expect("ours");
        directory::open_root(&host, &root).unwrap_or_else(|e| panic!("{mode:o}: {e}"));
    }
}

#[test]
fn no_umask_opens_or_closes_what_is_written() {
    let place = Place::new();
    for operation in OPERATIONS {
        for umask in ["0", "022", "777"] {
            place.renew();
            let outcome = place.run(operation, umask);
            let said = format!("{operation}, umask {umask}: {}", outcome.errors());
            assert_eq!((outcome.code, outcome.text().as_str()), (0, "begin\nok\n"), "{said}");
            for (path, entry) in tree::snapshot(&place.root()).expect("ours") {
                let is_dir = entry.mode & 0o170_000 == 0o040_000;
                let private = if is_dir { 0o700 } else { 0o600 };
                assert_eq!(entry.mode & 0o7777, private, "{operation}, umask {umask}: {path}");
            }
        }
    }
}

/// Asks a verb as the user that the store belongs to.
fn asked(place: &Place, copy: &Path, verb: &str, more: &[&str]) -> Answer {
    let root = place.root();
    let args = [&[verb, utf8(&root), "--format", "json"], more].concat();
    Answer::of(&if is_root() { ask::run_as_nobody(copy, &args) } else { ask::run(&args) })
}

fn applied(place: &Place, copy: &Path, verb: &str) -> Answer {
    asked(place, copy, verb, &["--apply"])
}

fn recovered(place: &Place, copy: &Path) -> Answer {
    applied(place, copy, "recover")
}

/// Opens or closes a directory of the store.
fn set_mode(place: &Place, relative: &str, mode: u32) {
    let path = place.root().join(relative);
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

/// Writes a file into the store.
fn file(place: &Place, relative: &str, content: &Value) -> PathBuf {
    let (folder, name) = relative.rsplit_once('/').expect("a folder");
    let path = place.folder(folder).join(name);
    fs::write(&path, content.to_string()).expect("room");
    give(&path);
    path
}

/// A run that says it works, long ago, and whose process is gone.
fn orphan(place: &Place, id: &str) {
    let run = format!("async-subagent-runs/{id}");
    let status = records::running(id, GONE, now_ms() - 120_000);
    file(place, &format!("{run}/status.json"), &status);
    tree::age(&place.folder(&run), 1).expect("ours");
}

fn told(place: &Place, id: &str) -> String {
    let path = place.root().join(format!("async-subagent-runs/{id}/status.json"));
    let status: Value = serde_json::from_slice(&fs::read(path).expect("there")).expect("JSON");
    status["state"].as_str().expect("a word").to_owned()
}

// RS-REC-32: what the system refuses for one run concerns no other.
#[test]
fn a_run_that_cannot_be_written_keeps_no_other_from_its_end() {
    let place = Place::new();
    let copy = for_everybody(&ask::binary(), place.dir.path()).expect("room");
    orphan(&place, "locked");
    set_mode(&place, "async-subagent-runs/locked", 0o500);
    let refused = recovered(&place, &copy);
    let why = refused.json["left"][0]["why"].as_str().expect("a text");
    assert_eq!((refused.code, told(&place, "locked").as_str()), (1, "running"), "{refused:?}");
    assert!(why.contains("locked/status.json") && why.contains("denied"), "{why}");
    let results = place.root().join("async-subagent-results/locked.json");
    assert!(!results.exists(), "what was made of it is taken back");
    orphan(&place, "free");
    let next = recovered(&place, &copy);
    assert_eq!((next.code, told(&place, "free").as_str()), (1, "failed"), "{next:?}");
    assert_eq!(told(&place, "locked"), "running");
    set_mode(&place, "async-subagent-runs/locked", 0o700);
    let last = recovered(&place, &copy);
    assert_eq!((last.code, told(&place, "locked").as_str()), (0, "failed"), "{last:?}");
    assert!(results.exists(), "it has its result now");
}

// RS-REC-05: a result that cannot be looked at may be there.
#[test]
fn a_closed_place_of_results_keeps_a_run_from_being_closed() {
    for closed in
        ["async-subagent-results/result-pending", "async-subagent-results/result-pending/session-1"]
    {
        let place = Place::new();
        let copy = for_everybody(&ask::binary(), place.dir.path()).expect("room");
        orphan(&place, "told");
        let pending = "async-subagent-results/result-pending/session-1/stray.json";
        let stray = file(&place, pending, &records::result("told", now_ms() - 120_000));
        tree::set_time_ms(&stray, 1).expect("ours");
        set_mode(&place, closed, 0);
        let refused = recovered(&place, &copy);
        let why = refused.json["refused"][0]["why"].as_str().expect("a text");
        assert_eq!(told(&place, "told"), "running", "{refused:?}");
        assert!(why.contains("its result may lie there"), "{why}");
        set_mode(&place, closed, 0o700);
        let last = recovered(&place, &copy);
        assert_eq!((last.code, told(&place, "told").as_str()), (0, "complete"), "{last:?}");
    }
}

// RS-RET-14: what cannot be looked at may be about any run.
#[test]
fn a_closed_place_keeps_every_run_from_being_removed() {
    let lease = format!("session-leases/{}", "ab".repeat(32));
    let nested = "nested-subagent-runs/old";
    for closed in
        ["session-leases", &lease, "nested-subagent-runs", nested, "nested-subagent-events"]
    {
        let place = Place::new();
        let copy = for_everybody(&ask::binary(), place.dir.path()).expect("room");
        let (run, at) = ("async-subagent-runs/old", now_ms() - 40 * 86_400_000);
        let files = [
            file(&place, &format!("{run}/status.json"), &records::complete("old", at)),
            file(&place, &format!("{run}/process-terminal.json"), &records::proof("old", at)),
            place.root().join(run),
        ];
        tree::age(&files[2], at).expect("ours");
        if nested.starts_with(closed) {
            file(&place, &format!("{nested}/child/status.json"), &records::complete("child", at));
        } else {
            let owner =
                records::with(records::lease("next", 1, "elsewhere", at), "sourceRunId", "old");
            file(&place, &format!("{lease}/owner.json"), &owner);
        }
        place.folder(closed);
        set_mode(&place, closed, 0);
        let kept = applied(&place, &copy, "prune");
        assert!(files[0].exists(), "{closed}: {kept:?}");
        let why = kept.json["blocked"][0].as_str().expect("a text");
        assert!(kept.code == 8 && why.starts_with(closed), "{closed}: {why}");
        set_mode(&place, closed, 0o700);
        let known = applied(&place, &copy, "prune");
        assert!(files[0].exists() && known.json.get("blocked").is_none(), "{closed}: {known:?}");
        let by = if closed.contains("nested-subagent-runs") { closed } else { "session-leases" };
        fs::remove_dir_all(place.root().join(by)).expect("ours");
        let gone = applied(&place, &copy, "prune");
        assert!(!files[0].exists(), "{closed}: nothing else keeps it: {gone:?}");
    }
}

// RS-READ-05: what was not looked at is not said to be in order.
#[test]
fn a_closed_index_is_a_problem_of_its_store() {
    let runs = "async-subagent-runs";
    let results = "async-subagent-results";
    for closed in [
        format!("{runs}/.terminal-runs"),
        format!("{runs}/.active-runs"),
        format!("{results}/result-index"),
        format!("{results}/result-index/sessions/session-1"),
        format!("{results}/result-pending/session-1"),
    ] {
        let place = Place::new();
        let copy = for_everybody(&ask::binary(), place.dir.path()).expect("room");
        place.folder(runs);
        place.folder(&closed);
        let sound = asked(&place, &copy, "check", &[]);
        assert_eq!((sound.code, &sound.json["problems"]), (0, &json!([])), "{closed}");
        set_mode(&place, &closed, 0);
        let told = asked(&place, &copy, "check", &[]);
        let problem = &told.json["problems"][0];
        let path = problem["path"].as_str().expect("a path");
        assert_eq!((told.code, &problem["id"]), (8, &json!("dir-unreadable")), "{told:?}");
        assert!(path.ends_with(&closed), "{path}");
    }
}
