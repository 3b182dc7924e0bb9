//! Measures what recovery costs: a plan beside an inspection, an apply beside its bare writes, a sweep of a store in
//! which nothing changes.
//!
//! Theory of operation. The plan and the inspection of one store run in turn, each as a process of its own, and the
//! medians of their times are compared; once for a store in order, once for one in which every tenth run has lost its
//! runner. Beside an apply lies a second store like the first. After each repair that one is given what the first was,
//! by bare calls: the record of the repair tells its changes, and each of them is made again with the calls and the
//! flushes that it cannot do without. So the two take turns a thousand times, and meet the same moments of the disk.
//!
//! What a sweep opens is told by `strace`, over several passes: a run whose status was opened twice was read twice.
//! Without it there is a line `skip`.
//!
//! Not promised: that two machines agree on anything but ratios.

#![cfg(unix)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the point")]
#![expect(
    clippy::disallowed_methods,
    reason = "measures with a clock, plain files and child processes"
)]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::bare::Tree;
use bench::report::{count, median, ratio, skip};
use bench::{RUNS, orphan, write_store};
use runstore::recover::{self, Change, Logged, Policy, Wanted};
use runstore::store::RealHost;

type Done = Result<(), Box<dyn Error>>;
/// One bench: makes its stores, measures, prints.
type Bench = fn(&Args) -> Done;

/// Repairs of one apply.
const REPAIRS: u64 = 1000;
/// Runs and passes of the sweep.
const SWEPT: u64 = 300;
const PASSES: usize = 4;

struct Args {
    program: PathBuf,
    work: PathBuf,
    runs: u64,
    rounds: usize,
    only: Option<String>,
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!(
            "usage: measure-recovery --program FILE --work DIRECTORY [--runs N] [--rounds N] [--only NAME]"
        );
        return ExitCode::from(2);
    };
    let benches: [(&str, Bench); 3] = [("plan", plan), ("apply", apply), ("sweep", sweep)];
    for (name, bench) in benches {
        if args.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        if let Err(e) = bench(&args) {
            eprintln!("measure-recovery: {name}: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let (program, work) = (PathBuf::new(), PathBuf::new());
    let mut args = Args { program, work, runs: 10_000, rounds: 11, only: None };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--program" => args.program = value.into(),
            "--work" => args.work = value.into(),
            "--runs" => args.runs = value.parse().ok()?,
            "--rounds" => args.rounds = value.parse().ok().filter(|n| *n > 0)?,
            "--only" => args.only = Some(value),
            _ => return None,
        }
    }
    let named = [&args.program, &args.work];
    named.iter().all(|path| !path.as_os_str().is_empty()).then_some(args)
}

fn now_ms() -> Result<u64, Box<dyn Error>> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// A run of the program; milliseconds of wall time. The codes are those of a store that needs attention or not.
fn wall_ms(args: &Args, words: &[&str], root: &Path) -> io::Result<f64> {
    let mut command = Command::new(&args.program);
    command.args(words).arg(root).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    match status.code() {
        Some(0 | 1) => Ok(took),
        _ => Err(io::Error::other(format!("{command:?} ended with {status}"))),
    }
}

/// A plan of a store, beside its inspection.
fn plan(args: &Args) -> Done {
    let thousands = args.runs / 1000;
    for (name, lost) in [("plan", 0), ("plan-with-orphans", args.runs / 10)] {
        let root = args.work.join(name);
        write_store(&root, args.runs - lost)?;
        let at_ms = now_ms()? - 60_000;
        (0..lost).try_for_each(|number| orphan(&root, args.runs + number, at_ms))?;
        let mut times = [const { Vec::new() }; 2];
        for round in 0..=args.rounds {
            let inspect = wall_ms(args, &["inspect", "--format", "jsonl"], &root)?;
            let plan = wall_ms(args, &["recover", "--plan", "--format", "jsonl"], &root)?;
            // The first round fills the caches.
            if round > 0 {
                times[0].push(inspect);
                times[1].push(plan);
            }
        }
        let [inspect_ms, plan_ms] = times.map(median);
        println!(
            "{name} of {} runs, {lost} without a runner: inspect {inspect_ms:.1} ms, plan {plan_ms:.1} ms",
            args.runs
        );
        ratio(&format!("{name}-{thousands}k/inspect"), plan_ms / inspect_ms, "<=", 1.3);
        fs::remove_dir_all(root)?;
    }
    Ok(())
}

/// A store of runs that have lost their runners.
fn lost(root: &Path) -> Done {
    write_store(root, 0)?;
    let at_ms = now_ms()? - 60_000;
    Ok((0..REPAIRS).try_for_each(|number| orphan(root, number, at_ms))?)
}

/// An apply, beside the bare writes that it consists of.
fn apply(args: &Args) -> Done {
    let (ours, bare) = (args.work.join("applied"), args.work.join("bare"));
    lost(&ours)?;
    lost(&bare)?;
    rustix::fs::sync();
    let host = RealHost::new();
    let policy = Policy { grace_ms: 0, ..Policy::default() };
    let wanted = Wanted { policy, ..Wanted::default() };
    let mut mirror = Mirror { ours: &ours, tree: Tree::new(&bare)?, place: None, number: 0 };
    let (mut bare_ms, mut aside_ms, mut failed) = (0.0, 0.0, None);
    let begin = Instant::now();
    let applied = recover::apply(&host, &ours, None, &wanted, &mut |_| {
        let came = Instant::now();
        match mirror.again() {
            Ok(took) => bare_ms += took,
            Err(e) => failed = failed.take().or(Some(e)),
        }
        aside_ms += came.elapsed().as_secs_f64() * 1000.0;
    })?;
    let ours_ms = begin.elapsed().as_secs_f64() * 1000.0 - aside_ms;
    if let Some(e) = failed {
        return Err(e);
    }
    if applied.done.len() != usize::try_from(REPAIRS)? {
        return Err(format!("{} of {REPAIRS} runs were repaired", applied.done.len()).into());
    }
    same(&ours, &bare)?;
    let flushes = mirror.tree.flushes();
    println!("{REPAIRS} repairs, {flushes} flushes: ours {ours_ms:.0} ms, bare {bare_ms:.0} ms");
    ratio("apply-1k/bare", ours_ms / bare_ms, "<=", 1.2);
    fs::remove_dir_all(&ours)?;
    Ok(fs::remove_dir_all(&bare)?)
}

/// Does after each repair what it did, in the other store.
struct Mirror<'a> {
    ours: &'a Path,
    tree: Tree,
    /// The directory of the records, once there is one.
    place: Option<String>,
    number: usize,
}

impl Mirror<'_> {
    /// Makes the changes of the repair that was made last; milliseconds that took.
    fn again(&mut self) -> Result<f64, Box<dyn Error>> {
        let is_first = self.place.is_none();
        let place = match self.place.take() {
            Some(place) => place,
            None => {
                let applies = fs::read_dir(self.ours.join(".runstore/recovery"))?.next();
                let name = applies.ok_or("an apply has a directory")??.file_name();
                format!(".runstore/recovery/{}", name.display())
            }
        };
        self.number += 1;
        let name = format!("{place}/{:05}", self.number);
        let (begun, done) = (format!("{name}.begun.json"), format!("{name}.done.json"));
        let text = fs::read(self.ours.join(&done))?;
        let record: Logged = serde_json::from_slice(&text)?;
        let begin = Instant::now();
        if is_first {
            for path in [".runstore", ".runstore/recovery", &place] {
                self.tree.make_dir(path)?;
            }
        }
        self.tree.replace(begun.as_ref(), &text)?;
        record.changes.iter().try_for_each(|change| make(&mut self.tree, change))?;
        self.tree.rename(begun.as_ref(), done.as_ref())?;
        self.place = Some(place);
        Ok(begin.elapsed().as_secs_f64() * 1000.0)
    }
}

/// Makes one change with bare calls.
fn make(tree: &mut Tree, change: &Change) -> io::Result<()> {
    match change {
        Change::Write { path, after, .. } => tree.replace(path.as_ref(), after.as_bytes()),
        Change::Append { path, added, .. } => tree.append(path.as_ref(), added.as_bytes()),
        Change::Move { path, to, .. } => tree.move_durably(path.as_ref(), to.as_ref()),
        Change::MakeDir { path } => tree.make_dir(path),
        other => Err(io::Error::other(format!("no repair here has a {other:?}"))),
    }
}

/// Whether both stores have the same names, so that nothing was left out of the bare writes.
fn same(ours: &Path, bare: &Path) -> Done {
    let names = |root: &Path| -> Result<usize, Box<dyn Error>> {
        let (mut count, mut open) = (0, vec![root.to_owned()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                let name = entry.file_name();
                // The locks are no writes of a repair.
                if name == "recovery.lock" || name.to_string_lossy().starts_with("lock-") {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    // Those of the locks of a runs root.
                    if name == ".runstore" && entry.path() != root.join(".runstore") {
                        continue;
                    }
                    open.push(entry.path());
                }
                count += 1;
            }
        }
        Ok(count)
    };
    match (names(ours)?, names(bare)?) {
        (ours, bare) if ours == bare => Ok(()),
        (ours, bare) => Err(format!("ours has {ours} names, the bare one {bare}").into()),
    }
}

/// What a sweep reads of a store in which nothing changes.
fn sweep(args: &Args) -> Done {
    let root = args.work.join("swept");
    write_store(&root, SWEPT)?;
    age(&root.join(RUNS))?;
    // Until the stamps of the directories are old enough to vouch for what is in them.
    sleep(Duration::from_secs(4));
    let log = args.work.join("sweep.strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=openat,execve", "-o"]).arg(&log).arg(&args.program);
    command.arg("sweep").arg(&root).args(["--every", "100ms", "--format", "jsonl"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        skip("sweep-unchanged", "strace is not there");
        return Ok(());
    };
    let out = child.stdout.take().ok_or("no pipe")?;
    let passes: Vec<_> = BufReader::new(out).lines().take(PASSES).collect::<Result<_, _>>()?;
    // The reader is gone, which ends the sweep.
    child.wait()?;
    if passes.len() < PASSES {
        skip("sweep-unchanged", "strace may not trace");
        return Ok(());
    }
    let text = fs::read_to_string(&log)?;
    let mut opened: HashMap<&str, usize> = HashMap::new();
    for line in text.lines().filter(|line| line.contains("openat(")) {
        let Some(name) = line.split('"').nth(1) else { continue };
        // Whoever reads a run opens its directory by its name.
        if name.contains("-4000-8000-") {
            *opened.entry(name).or_default() += 1;
        }
    }
    if opened.len() != usize::try_from(SWEPT)? {
        return Err(format!("{} of {SWEPT} runs were opened", opened.len()).into());
    }
    let twice = opened.values().filter(|times| **times > 1).count();
    println!("{PASSES} passes over {SWEPT} runs that do not change");
    count("sweep-unchanged", twice, "=", 0);
    Ok(fs::remove_dir_all(root)?)
}

/// Makes every run directory an hour old.
fn age(runs: &Path) -> Done {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let then = Timespec { tv_sec: i64::try_from(now_ms()? / 1000)? - 3600, tv_nsec: 0 };
    let times = Timestamps { last_access: then, last_modification: then };
    for entry in fs::read_dir(runs)? {
        let dir = entry?.path();
        for file in fs::read_dir(&dir)? {
            utimensat(CWD, file?.path(), &times, AtFlags::empty())?;
        }
        utimensat(CWD, &dir, &times, AtFlags::empty())?;
    }
    Ok(())
}
