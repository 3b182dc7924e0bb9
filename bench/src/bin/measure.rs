//! Measures the program against the floor and prints one line per ratio.
//!
//! Theory of operation. Every program runs as a process of its own, warm, and is measured from
//! outside: wall time from start to end, processor time by what the kernel charged this process for
//! its children. Two programs that are compared run in turn within one loop, so that a slow moment of
//! the machine meets both; medians are compared, and the first round is thrown away. Goals stand in
//! this file and nowhere else. A missed goal is printed; only what could not be measured fails.
//!
//! Not promised: that two machines agree on anything but ratios.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the point")]
#![expect(clippy::disallowed_methods, reason = "measures with a clock and child processes")]

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use bench::report::{median, ratio};
use bench::{RUNS, hostile, make_dir, write_store};

/// What was asked.
struct Args {
    program: PathBuf,
    floor: PathBuf,
    work: PathBuf,
    runs: u64,
    rounds: usize,
    only: Option<String>,
}

/// One bench: makes its stores, measures, prints.
type Bench = fn(&Args) -> io::Result<()>;

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!(
            "usage: measure --program FILE --floor FILE --work DIRECTORY [--runs N] [--rounds N] \
             [--only NAME]"
        );
        return ExitCode::from(2);
    };
    let benches: [(&str, Bench); 5] = [
        ("list-all", list_all),
        ("memory", memory),
        ("hostile", hostile_records),
        ("size", size),
        ("start", start),
    ];
    for (name, bench) in benches {
        if args.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        if let Err(e) = bench(&args) {
            eprintln!("measure: {name}: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args {
        program: PathBuf::new(),
        floor: PathBuf::new(),
        work: PathBuf::new(),
        runs: 10_000,
        rounds: 21,
        only: None,
    };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--program" => args.program = value.into(),
            "--floor" => args.floor = value.into(),
            "--work" => args.work = value.into(),
            "--runs" => args.runs = value.parse().ok()?,
            "--rounds" => args.rounds = value.parse().ok().filter(|n| *n > 0)?,
            "--only" => args.only = Some(value),
            _ => return None,
        }
    }
    let named = [&args.program, &args.floor, &args.work];
    named.iter().all(|path| !path.as_os_str().is_empty()).then_some(args)
}

/// Runs a program whose output is thrown away; milliseconds of wall time.
fn wall_ms(command: &mut Command) -> io::Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    // Usage, input and output, internal: no answer. The other codes are verdicts on the store.
    match status.code() {
        Some(0 | 1 | 5 | 6 | 8) => Ok(took),
        _ => Err(io::Error::other(format!("{command:?} ended with {status}"))),
    }
}

fn ours(args: &Args, words: &[&str], path: &Path) -> Command {
    let mut command = Command::new(&args.program);
    command.args(words).arg(path).env("NO_COLOR", "1");
    command
}

/// A list of every run, beside a bare read of the same two files of each.
fn list_all(args: &Args) -> io::Result<()> {
    let root = args.work.join("list-all");
    write_store(&root, args.runs)?;
    let mut floor = Command::new(&args.floor);
    floor.arg(root.join(RUNS));
    let forms = [("text", "list-all"), ("jsonl", "list-all-jsonl")];
    let mut times = [const { Vec::new() }; 3];
    for round in 0..=args.rounds {
        let mut taken = [0.0; 3];
        taken[0] = wall_ms(&mut floor)?;
        for (at, (form, _)) in forms.iter().enumerate() {
            taken[at + 1] = wall_ms(&mut ours(args, &["list", "--all", "--format", form], &root))?;
        }
        // The first round fills the caches.
        if round > 0 {
            times.iter_mut().zip(taken).for_each(|(all, one)| all.push(one));
        }
    }
    let [floor_ms, text_ms, jsonl_ms] = times.map(median);
    println!(
        "list of {} runs: floor {floor_ms:.1} ms, text {text_ms:.1} ms, jsonl {jsonl_ms:.1} ms",
        args.runs
    );
    let thousands = args.runs / 1000;
    ratio(&format!("list-all-{thousands}k/floor"), text_ms / floor_ms, "<=", 1.5);
    ratio(&format!("list-all-jsonl-{thousands}k/floor"), jsonl_ms / floor_ms, "<=", 1.5);
    fs::remove_dir_all(root)
}

/// Highest resident memory of a run of the program, in KiB, seen each time it wrote something.
fn peak_kib(command: &mut Command) -> io::Result<u64> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let mut buffer = vec![0; 16 << 10];
    let mut peak = 0;
    while out.read(&mut buffer)? > 0 {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
    }
    child.wait()?;
    if peak == 0 {
        return Err(io::Error::other("the memory of the program could not be seen"));
    }
    Ok(peak)
}

/// Memory must not grow with the number of runs.
fn memory(args: &Args) -> io::Result<()> {
    let mut peaks = Vec::new();
    for runs in [2_000, 20_000] {
        let root = args.work.join("memory");
        write_store(&root, runs)?;
        let list: &[&str] = &["list", "--all", "--format", "jsonl"];
        for words in [list, &["inspect", "--format", "jsonl"]] {
            let mut all = Vec::new();
            for _ in 0..3 {
                #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 KiB")]
                all.push(peak_kib(&mut ours(args, words, &root))? as f64);
            }
            peaks.push(median(all));
        }
        fs::remove_dir_all(root)?;
    }
    let [list_few, inspect_few, list_many, inspect_many] = peaks[..] else {
        return Err(io::Error::other("four peaks were measured"));
    };
    println!(
        "peak memory: list {list_few} KiB at 2k runs, {list_many} KiB at 20k; inspect \
         {inspect_few} KiB and {inspect_many} KiB"
    );
    ratio("list-all-memory-20k/2k", list_many / list_few, "<=", 1.3);
    ratio("inspect-memory-20k/2k", inspect_many / inspect_few, "<=", 1.3);
    Ok(())
}

/// What one hostile record adds to the time of an answer.
fn hostile_records(args: &Args) -> io::Result<()> {
    let root = args.work.join("hostile");
    write_store(&root, 10)?;
    let words = ["inspect", "--format", "jsonl"];
    let rounds = args.rounds.min(7);
    for kind in hostile::KINDS {
        let run = root.join(RUNS).join("hostile");
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            without.push(wall_ms(&mut ours(args, &words, &root))?);
        }
        make_dir(&run)?;
        (kind.make)(&root, &run)?;
        for _ in 0..rounds {
            with.push(wall_ms(&mut ours(args, &words, &root))?);
        }
        fs::remove_dir_all(&run)?;
        for extra in kind.beside {
            let _ = fs::remove_file(root.join(extra));
        }
        let cost = (median(with) - median(without)).max(0.0);
        ratio(&format!("hostile-{}-ms", kind.name), cost, "<=", 100.0);
    }
    fs::remove_dir_all(root)
}

/// The size of the program.
fn size(args: &Args) -> io::Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "a program is far below 2^53 bytes")]
    let mib = fs::metadata(&args.program)?.len() as f64 / f64::from(1 << 20);
    // What reads and judges had 4 MiB, and kept to them. The program that also starts, repairs and judges
    // other implementations has 12.
    ratio("binary-mib", mib, "<=", 12.0);
    Ok(())
}

/// Processor time of the shortest call: what the program needs to be there at all.
fn start(args: &Args) -> io::Result<()> {
    const CALLS: u32 = 300;
    let before = children_ms()?;
    for _ in 0..CALLS {
        wall_ms(Command::new(&args.program).arg("--version"))?;
    }
    ratio("start-own-ms", (children_ms()? - before) / f64::from(CALLS), "<=", 5.0);
    Ok(())
}

/// User and system time that this process was charged for children that have ended.
fn children_ms() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in brackets may hold spaces; what follows the last one is numbers.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        rest.split_whitespace().skip(13).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    #[expect(clippy::cast_precision_loss, reason = "ticks of a short run")]
    let ms = ticks as f64 * 1000.0 / rustix::param::clock_ticks_per_second() as f64;
    Ok(ms)
}
