//! Every system call of every operation, killed at and failed, with the real host under it.
//!
//! Theory of operation. The driver (`testkit::driver`) performs one operation in a process of its own.
//! One run under `strace` lists its calls; then there is one run for each of them in which `strace`
//! kills the process when it makes that call, and one for each call and error number in which the call
//! is not made and fails (`testkit::trace`). What is left on the disk is looked at by this
//! process, with the readers of the library.
//!
//! The in-memory explorations of this folder see the operations as lists of effects; here the effects
//! are those of the kernel, reads and looks among them, so a step that the list has forgotten shows.
//!
//! Where the machine has a file system of the ext family for temporary files, the operations that give an
//! old file a second name there (RS-ATOM-14) are killed and failed on it as well.
//!
//! Not covered: what is lost with the power (see the explorations), and failing calls that no operation
//! can answer: `close`, `fcntl` and those of the allocator are killed at, but not failed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use runstore::inspect::Inspection;
use runstore::protocol::Document;
use runstore::protocol::evidence::Times;
use runstore::protocol::temp_name::TempName;
use runstore::store::{Depth, Host as _, Opened, RealHost, Store};
use testkit::process::skip;
use testkit::program::{self, Outcome};
use testkit::trace::{self, Call, calls, refusal};
use testkit::{driver, tree};

use crate::states;
use crate::sweep::is_second_name;

/// Error numbers of Linux with their names.
const ERRNOS: [(&str, i32); 7] = [
    ("ENOSPC", 28),
    ("EIO", 5),
    ("EACCES", 13),
    ("EPERM", 1),
    ("EBUSY", 16),
    ("EMFILE", 24),
    ("EINTR", 4),
];

/// Calls without an answer to their failure, or whose failure is no fault of a disk.
const NEVER_FAILED: [&str; 9] = [
    "close",
    "fcntl",
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "madvise",
    "getrandom",
    "sched_getaffinity",
];

const LIMIT: Duration = Duration::from_secs(30);

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kill,
    Fail(&'static str, i32),
}

/// Where a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// In memory, where that can be had: nothing here waits for a disk.
    Memory,
    /// On a file system of the ext family.
    Ext,
}

/// One run.
#[derive(Clone, Debug)]
struct Point {
    on: On,
    operation: &'static str,
    call: Call,
    fate: Fate,
}

/// An empty temp root.
struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
    log: PathBuf,
}

impl Place {
    fn new(on: On) -> Self {
        let dir = match on {
            On::Memory => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()),
            On::Ext => tempfile::tempdir(),
        };
        let dir = dir.expect("a temporary directory");
        let root = dir.path().join("root");
        states::make_private(&root);
        let log = dir.path().join("log");
        Self { _dir: dir, root, log }
    }

    /// Runs the driver under `strace` with these options.
    fn run(&self, options: &[String], operation: &str) -> (Outcome, String) {
        let mut command = Command::new("strace");
        command.arg("-o").arg(&self.log).args(options).arg("--");
        command.arg(driver::program()).arg(&self.root).arg(operation);
        command.env_remove("RUST_BACKTRACE");
        let outcome = program::run(command, LIMIT, None).expect("strace was there before");
        assert!(!outcome.late, "{operation}: it ends in time");
        let log = std::fs::read_to_string(&self.log).expect("strace has written its file");
        (outcome, log)
    }
}

/// Why there is no file system of the ext family here, if so.
fn no_ext() -> Option<String> {
    const EXT_FS_MAGIC: i128 = 0xef53;
    match rustix::fs::statfs(std::env::temp_dir()) {
        Ok(fs) if i128::from(fs.f_type) == EXT_FS_MAGIC => None,
        Ok(fs) => Some(format!("temporary files are on a file system of type {:#x}", fs.f_type)),
        Err(e) => Some(format!("the directory for temporary files cannot be asked: {e}")),
    }
}

/// The library's own reader sees the one run of the store; a run that is being made may not be there yet.
fn the_reader_answers(host: &RealHost, root: &Path, operation: &str) -> Result<(), String> {
    let opened = Store::open(host, root, host.now_ms(), Times::default());
    let store = match opened {
        Ok(Opened::Store(store)) => store,
        Ok(_) => return Err("the store is taken for a run".to_owned()),
        Err(e) => return Err(format!("the store cannot be opened: {e}")),
    };
    let mut runs = Vec::new();
    let mut problems = Vec::new();
    let mut each = |report: runstore::inspect::RunReport| {
        runs.push(report.run_id);
        ControlFlow::Continue(())
    };
    Inspection::new(&store, Depth::Full).each(&mut each, &mut problems);
    let not_yet = operation == "run-create" && runs.is_empty();
    if runs == ["run-1"] || not_yet { Ok(()) } else { Err(format!("it reports {runs:?}")) }
}

/// Whole records, private modes; returns the names of temp files and private directories.
fn nothing_is_torn(root: &Path) -> Result<Vec<String>, String> {
    let mut litter = Vec::new();
    for (path, entry) in tree::snapshot(root).map_err(|e| e.to_string())? {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_dir = entry.mode & 0o170_000 == 0o040_000;
        let private = if is_dir { 0o700 } else { 0o600 };
        if entry.mode & 0o777 != private {
            return Err(format!("{path} has mode {:o}", entry.mode & 0o777));
        }
        let aside = [".candidate-", ".released-", ".stale-"].iter().any(|word| name.contains(word));
        let second = is_second_name(name);
        if TempName::parse(name).is_some() || is_dir && aside {
            litter.push(path.clone());
        }
        let record = !is_dir && TempName::parse(name).is_none() && name.ends_with(".json");
        if second || record && !path.contains(".candidate-") {
            let bytes = std::fs::read(root.join(&path)).map_err(|e| e.to_string())?;
            Document::from_bytes(&bytes).map_err(|e| format!("{path} is torn: {e}"))?;
        }
    }
    Ok(litter)
}

/// What one run came to.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: usize,
    kills: usize,
    failures: usize,
    errors: usize,
}

/// Makes one run and checks what it leaves.
fn check(host: &RealHost, point: &Point) -> Result<Counts, String> {
    let Point { on, operation, call, fate } = point;
    let place = Place::new(*on);
    let what = match fate {
        Fate::Kill => "signal=KILL".to_owned(),
        Fate::Fail(errno, _) => format!("error={errno}"),
    };
    let options = [
        "-e".to_owned(),
        format!("trace={}", call.name),
        "-e".to_owned(),
        format!("inject={}:{what}:when={}", call.name, call.number),
    ];
    let (outcome, log) = place.run(&options, operation);
    let (said, errors) = (outcome.text(), outcome.errors());
    if !said.starts_with("begin\n") {
        return Err(format!("the fault came before the operation: {said}{errors}"));
    }
    let litter = nothing_is_torn(&place.root)?;
    the_reader_answers(host, &place.root, operation)?;
    let new = states::is_new(host, &place.root, operation)?;
    match fate {
        Fate::Kill => {
            if outcome.code != -9 || said.contains("ok\n") {
                return Err(format!("it was not killed: {}, {said}{errors}", outcome.code));
            }
            // The word of success is the last call: all was done before it.
            if call.name == "write" && log.contains("\"ok\\n\"") && !new {
                return Err("done, but the new state is not there".to_owned());
            }
            let second = litter.iter().filter(|path| is_second_name(path)).count();
            if second > 1 || litter.len() - second > 1 {
                return Err(format!("more than one temp file: {litter:?}"));
            }
            Ok(Counts { kills: 1, ..Counts::default() })
        }
        Fate::Fail(errno, number) => {
            if !log.contains("(INJECTED)") {
                return Err("the fault was not made".to_owned());
            }
            if errors.contains("panicked") || !matches!(outcome.code, 0 | 1) {
                return Err(format!("it ended with {}: {errors}", outcome.code));
            }
            // A removal that is made to fail leaves what it was to remove, and says so. A lock whose
            // new, private name could not be flushed is kept whole: a power cut may bring its old name
            // back, and then it must have its record.
            // The second name of an old file stays after the same failure; and removing it is no step of
            // the replacement, so that only the caller of that is told.
            let unflushed =
                [&said, &errors].iter().any(|text| text.contains("flush the directory"));
            let second = litter.iter().all(|path| is_second_name(path))
                && (unflushed || call.name.starts_with("unlink"));
            let told = second
                || said.contains("litter")
                || errors.contains("left over")
                || ["slot-release", "slot-rollback", "slot-reconcile", "lease-release"]
                    .contains(operation)
                    && errors.contains("flush the directory");
            if !litter.is_empty() && !told {
                return Err(format!("litter after a handled error: {litter:?}: {said}{errors}"));
            }
            // What is forbidden stays so; anything else may be asked again, and `unknown` is for ever.
            if states::is_unknown(&place.root) && !["EACCES", "EPERM"].contains(errno) {
                return Err("a fault that passes made the end unknown".to_owned());
            }
            if outcome.code == 0 && !new {
                return Err(format!("it said ok, but the new state is not there: {said}"));
            }
            if outcome.code == 1 {
                let file = states::names_of(operation).iter().any(|name| errors.contains(name));
                let cause = std::io::Error::from_raw_os_error(*number).to_string().to_lowercase();
                let cause = cause.split(" (os error").next().unwrap_or_default();
                let cause = errors.to_lowercase().contains(cause);
                if !file || !cause {
                    return Err(format!("the error does not name file and cause: {errors}"));
                }
            }
            let errors = usize::from(outcome.code == 1);
            Ok(Counts { failures: 1, errors, ..Counts::default() })
        }
    }
}

/// The runs for one operation.
fn points(on: On, operation: &'static str) -> (Vec<Call>, Vec<Point>) {
    let place = Place::new(on);
    let (outcome, log) = place.run(&[], operation);
    assert_eq!(outcome.code, 0, "{operation}: {}", outcome.errors());
    let calls = calls(&log);
    assert!(calls.len() > 3, "{operation}: its calls are seen: {log}");
    let mut points = Vec::new();
    for call in &calls {
        let with = |fate| Point { on, operation, call: call.clone(), fate };
        points.push(with(Fate::Kill));
        if NEVER_FAILED.contains(&call.name.as_str()) || call == calls.last().expect("not empty") {
            continue;
        }
        points.extend(ERRNOS.iter().map(|(name, number)| with(Fate::Fail(name, *number))));
    }
    (calls, points)
}

#[test]
fn every_system_call_may_be_the_last_one_or_fail() {
    if let Some(why) = refusal() {
        return skip("kills and errors at every system call", &why);
    }
    driver::program();
    let mut counts: BTreeMap<(&str, bool), Counts> = BTreeMap::new();
    let mut all = Vec::new();
    let mut add = |on, operation, calls: &[Call], points: Vec<Point>| {
        counts
            .insert((operation, on == On::Ext), Counts { calls: calls.len(), ..Counts::default() });
        all.extend(points);
    };
    for operation in driver::OPERATIONS {
        let (calls, points) = points(On::Memory, operation);
        add(On::Memory, operation, &calls, points);
    }
    let no_ext = no_ext();
    if let Some(why) = &no_ext {
        skip("kills and errors at every system call with a second name", why);
    } else {
        let mut named = Vec::new();
        for operation in driver::OPERATIONS {
            let (calls, points) = points(On::Ext, operation);
            if calls.iter().any(|call| call.name == "linkat") {
                add(On::Ext, operation, &calls, points);
                named.push(operation);
            }
        }
        assert!(named.contains(&"replace-durable"), "a second name is made: {named:?}");
        assert!(!named.contains(&"replace-ordered"), "at the level durable only: {named:?}");
    }
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(counts);
    let violations = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let host = RealHost::new();
                while let Some(point) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match check(&host, point) {
                        Ok(seen) => {
                            let mut counts = counts.lock().expect("no worker panics");
                            let key = (point.operation, point.on == On::Ext);
                            let sum = counts.entry(key).or_default();
                            sum.kills += seen.kills;
                            sum.failures += seen.failures;
                            sum.errors += seen.errors;
                        }
                        Err(why) => {
                            let Point { on, operation, call: Call { name, number }, fate } = point;
                            let at = format!("{operation} on {on:?}, {name} {number}, {fate:?}");
                            let text = format!("{at}: {why}");
                            violations.lock().expect("no worker panics").push(text);
                        }
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no worker panics");
    let mut sum = Counts::default();
    for ((operation, ext), seen) in &counts {
        let Counts { calls, kills, failures, errors } = seen;
        let on = if *ext { ", ext" } else { "" };
        println!(
            "{operation}{on}: {calls} calls, {kills} kills, {failures} failed, {errors} errors"
        );
        sum.calls += calls;
        sum.kills += kills;
        sum.failures += failures;
    }
    println!("in all: {} calls, {} kills, {} failed", sum.calls, sum.kills, sum.failures);
    let violations = violations.into_inner().expect("no worker panics");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    assert!(sum.kills >= 1000 && sum.failures >= 3000, "every call is tried: {sum:?}");
}

#[test]
fn a_replace_makes_the_calls_that_are_promised_and_no_other() {
    if let Some(why) = refusal() {
        return skip("system calls of a replace", &why);
    }
    for (words, promised) in [
        // Create, write, close, rename.
        (&["replace-known"][..], 4),
        // And a look at the target.
        (&["replace-process"], 5),
        // And the mode, because the umask takes a bit of the owner.
        (&["replace-process", "277"], 6),
    ] {
        let place = Place::new(On::Memory);
        let mut names = trace::of(&driver::program(), &place.root, words).expect("it is traced");
        // The standard library asks before each close whether the file is open, with debug assertions.
        names.retain(|name| name != "fcntl" || !cfg!(debug_assertions));
        assert_eq!(names.len(), promised, "{words:?}: {names:?}");
        assert_eq!(trace::flushes(&names), 0, "{words:?}: {names:?}");
    }
    for (operation, promised) in
        [("replace-ordered", 1), ("replace-durable", 2), ("replace-new", 2), ("run-create", 3)]
    {
        let place = Place::new(On::Memory);
        let names = trace::of(&driver::program(), &place.root, &[operation]).expect("it is traced");
        assert_eq!(trace::flushes(&names), promised, "{operation}: {names:?}");
    }
}

#[test]
fn a_writer_without_care_is_caught() {
    if let Some(why) = refusal() {
        return skip("a writer without care", &why);
    }
    let host = RealHost::new();
    for (operation, fate, sign) in [
        ("replace-in-place", "Kill", "is torn"),
        ("replace-and-leave", "Fail", "litter after a handled error"),
    ] {
        let (_, points) = points(On::Memory, operation);
        let wanted = points.iter().filter(|point| format!("{:?}", point.fate).starts_with(fate));
        let violations: Vec<String> =
            wanted.filter_map(|point| check(&host, point).err()).collect();
        let caught = violations.iter().filter(|why| why.contains(sign)).count();
        assert!(caught > 0, "{operation} is not caught: {violations:?}");
        println!("{operation}: caught {caught} times");
    }
}
