//! Measures what a detached start costs beside the start of the bare program, and what a shim costs while it waits.
//!
//! Theory of operation. `runstore run --detach -- true` is timed from its start to its end, which is the
//! acknowledgement; that what it started has ended is waited for outside of the time. Beside it, in turn
//! ([`bench::contest`]), a process starts `true`, waits for it, and flushes as often as the other one did
//! until its acknowledgement: so many calls are counted once by `strace`, over all processes. Without it there is a line
//! `skip`. A shim that waits is asked for its memory and for how often the system has woken it.
//!
//! Not promised: that two machines agree on anything but ratios.

#![cfg(unix)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the point")]
#![expect(
    clippy::disallowed_methods,
    reason = "runs programs and reads what the system shows of them"
)]

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bench::bare::{Bare, Flush};
use bench::contest::{self, Entrant};
use bench::make_dir;
use bench::report::{ratio, skip};
use runstore::store::RealHost;
use runstore::store::host::ProcessHost as _;

type Done = Result<(), Box<dyn Error>>;

/// Batches of each entrant, without the first.
const ROUNDS: usize = 21;
/// Operations of a batch at most.
const MOST: u32 = 8;
/// How long a shim is watched while it waits.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Args {
    program: PathBuf,
    work: PathBuf,
    rounds: usize,
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("usage: measure-starts --program FILE --work DIRECTORY [--rounds N]");
        return ExitCode::from(2);
    };
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("measure-starts: {e}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { rounds: ROUNDS, ..Args::default() };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--program" => args.program = value.into(),
            "--work" => args.work = value.into(),
            "--rounds" => args.rounds = value.parse().ok().filter(|n| *n > 0)?,
            // Of the other measuring programs.
            "--runs" | "--only" => {}
            _ => return None,
        }
    }
    let named = [&args.program, &args.work];
    named.iter().all(|path| !path.as_os_str().is_empty()).then_some(args)
}

fn measure(args: &Args) -> Done {
    let store = args.work.join("starts");
    shim(args, &store)?;
    starts(args, &store)
}

/// A detached run of some words, and its directory.
fn detached(args: &Args, store: &Path, words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(&args.program);
    command
        .args(["run", "--detach", "--format", "jsonl", "--root"])
        .arg(store)
        .arg("--")
        .args(words);
    command.stdin(Stdio::null());
    Ok(command)
}

fn run_of(answer: &[u8]) -> io::Result<PathBuf> {
    let text = String::from_utf8_lossy(answer);
    let path = text.split("\"path\":\"").nth(1).and_then(|rest| rest.split('"').next());
    path.map(PathBuf::from).ok_or_else(|| io::Error::other(format!("no run was started: {text}")))
}

/// The shim of a run.
fn shim_of(run: &Path) -> io::Result<i64> {
    let text = fs::read_to_string(run.join(".runstore-observer.json"))?;
    let pid = text.split("\"pid\": ").nth(1).and_then(|rest| rest.split(',').next());
    pid.and_then(|pid| pid.trim().parse().ok()).ok_or_else(|| io::Error::other("a shim has a pid"))
}

/// Waits until nothing of a run is there any more.
fn settle(host: &RealHost, run: &Path) -> io::Result<()> {
    if let Some(shim) = host.hold(shim_of(run)?)? {
        host.wait_held(&shim, None)?;
    }
    Ok(())
}

fn starts(args: &Args, store: &Path) -> Done {
    let host = RealHost::new();
    let Some(flushes) = flushes(args, store)? else {
        skip("run-detach/true", "strace is not there or may not trace");
        return Ok(());
    };
    let place = args.work.join("starts-bare");
    make_dir(&place)?;
    let mut bare = Bare::new(&place)?;
    let ours = Entrant::batch("run-detach", |ops| {
        let mut ns = 0.0;
        for _ in 0..ops {
            let begin = Instant::now();
            let output = detached(args, store, &["true"])?.output()?;
            ns += begin.elapsed().as_secs_f64() * 1e9;
            settle(&host, &run_of(&output.stdout)?)?;
        }
        Ok(ns / f64::from(ops))
    });
    let floor = Entrant::timed("true", move || {
        Command::new("true").stdin(Stdio::null()).output()?;
        (0..flushes / 2).try_for_each(|_| bare.replace(b"{}\n", Flush::Both))?;
        if flushes % 2 == 1 { bare.replace(b"{}\n", Flush::File) } else { Ok(()) }
    });
    let times = contest::run(vec![ours, floor], args.rounds, MOST)?;
    println!("a detached start: {flushes} flushes: {}", times.medians());
    ratio("run-detach/true", times.quotient("run-detach", "true"), "<=", 5.0);
    Ok(())
}

/// How many flushes all processes make until the acknowledgement.
fn flushes(args: &Args, store: &Path) -> Result<Option<usize>, Box<dyn Error>> {
    let log = args.work.join("starts.strace");
    let ours = detached(args, store, &["true"])?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,exit_group", "-o"]).arg(&log);
    let output = match strace.arg(ours.get_program()).args(ours.get_args()).output() {
        Ok(output) if output.status.success() => output,
        _ => return Ok(None),
    };
    // It follows all processes, so the run has settled as well.
    run_of(&output.stdout)?;
    let text = fs::read_to_string(&log)?;
    // The first line is of the launcher, or of a shim that cannot be there before it has flushed.
    let launcher = text.split_whitespace().next().unwrap_or_default().to_owned();
    let until = text
        .lines()
        .take_while(|line| !(line.starts_with(&launcher) && line.contains("exit_group(")));
    Ok(Some(until.filter(|line| line.contains("sync(")).count()))
}

fn shim(args: &Args, store: &Path) -> Done {
    let host = RealHost::new();
    let output = detached(args, store, &["sleep", "1000"])?.output()?;
    let run = run_of(&output.stdout)?;
    let pid = shim_of(&run)?;
    let number = |name: &str| -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line
            .and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok());
        value.ok_or_else(|| io::Error::other(format!("the system does not tell {name}")))
    };
    let woken = |()| number("voluntary_ctxt_switches");
    // It goes to sleep right after the acknowledgement.
    sleep(IDLE / 10);
    let before = woken(())?;
    sleep(IDLE);
    let (after, anon_kib) = (woken(())?, number("RssAnon")?);
    println!("a shim that waits: {anon_kib} KiB of its own memory");
    ratio("shim-rss-anon-mib", anon_kib / 1024.0, "<=", 1.0);
    ratio("shim-wake-ups-idle", after - before, "=", 0.0);
    let text = fs::read_to_string(run.join("status.json"))?;
    let runner = text.split("\"pid\": ").nth(1).and_then(|rest| rest.split(',').next());
    let runner = runner.and_then(|pid| pid.trim().parse().ok());
    let runner = runner.ok_or("a run has a pid")?;
    if let Some(held) = host.hold(runner)? {
        host.signal_held(&held, runstore::store::host::Signal::Kill)?;
    }
    settle(&host, &run)?;
    Ok(())
}
