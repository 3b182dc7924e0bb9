//! Measures how long launcher and runner talk in a revival, beside two bare processes that say the same.
//!
//! Theory of operation. Each conversation has a runner of its own, a process that is there and has said `ready`
//! before the clock starts; the clock stops when `proceed` is in its place. Preparing the run, starting the process
//! and ending it are outside of the time. Ours is the library's launcher with `start-runner`; the bare ones
//! are [`bench::talk`], this program again. They take turns ([`bench::contest`]).
//!
//! Not promised: that two machines agree on anything but ratios.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the point")]
#![expect(clippy::disallowed_methods, reason = "runs programs and measures with a clock")]

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::contest::{self, Entrant};
use bench::make_dir;
use bench::report::ratio;
use bench::talk::{self, Launcher, Manner};
use runstore::launcher::{Outcome, Place, Request, prepare};
use runstore::protocol::RunMode;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::process::Children;
use runstore::store::{Host as _, RealHost};
use testkit::launch::STEPS;

/// Batches of each entrant, without the first.
const ROUNDS: usize = 21;
/// Conversations of a batch at most.
const MOST: u32 = 8;

#[derive(Default)]
struct Args {
    runner: PathBuf,
    work: PathBuf,
    rounds: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--bare-runner", dir, manner] => match Manner::of(manner) {
            Some(manner) => talk::runner(Path::new(dir), manner).map_err(Into::into),
            None => return usage(),
        },
        _ => match parse(words.into_iter()) {
            Some(args) => measure(&args),
            None => return usage(),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("measure-handshake: {e}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: measure-handshake --runner FILE --work DIRECTORY [--rounds N]");
    ExitCode::from(2)
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { rounds: ROUNDS, ..Args::default() };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            // Absolute: the runner is started in the directory of its run.
            "--runner" => args.runner = std::path::absolute(value).ok()?,
            "--work" => args.work = std::path::absolute(value).ok()?,
            "--rounds" => args.rounds = value.parse().ok().filter(|n| *n > 0)?,
            // Of the other measuring programs.
            "--runs" | "--only" => {}
            _ => return None,
        }
    }
    let named = [&args.runner, &args.work];
    named.iter().all(|path| !path.as_os_str().is_empty()).then_some(args)
}

fn measure(args: &Args) -> Result<(), Box<dyn Error>> {
    let ours = Ours::new(args)?;
    let places = [Manner::Woken, Manner::Polling].map(|manner| args.work.join(manner.as_str()));
    places.iter().try_for_each(|place| make_dir(place))?;
    let (woken, polling) = (&places[0], &places[1]);
    let entrants = vec![
        Entrant::batch("ours", |ops| average(ops, || ours.one())),
        Entrant::batch("bare", |ops| average(ops, || bare(woken, Manner::Woken))),
        Entrant::batch("polling", |ops| average(ops, || bare(polling, Manner::Polling))),
    ];
    let times = contest::run(entrants, args.rounds, MOST)?;
    println!("a handshake of a revival: {}", times.medians());
    ratio("handshake-revival/bare", times.quotient("ours", "bare"), "<=", 2.5);
    ratio("handshake-revival/peers-polling", times.quotient("ours", "polling"), "<=", 0.1);
    Ok(())
}

/// Nanoseconds of one conversation.
fn average(ops: u32, mut one: impl FnMut() -> io::Result<Duration>) -> io::Result<f64> {
    let mut sum = Duration::ZERO;
    for _ in 0..ops {
        sum += one()?;
    }
    Ok(sum.as_secs_f64() * 1e9 / f64::from(ops))
}

fn bare(place: &Path, manner: Manner) -> io::Result<Duration> {
    for entry in fs::read_dir(place)? {
        fs::remove_file(entry?.path())?;
    }
    let mut launcher = Launcher::new(place, manner)?;
    let own = std::env::current_exe()?;
    let mut runner = Command::new(own);
    runner.arg("--bare-runner").arg(place).arg(manner.as_str());
    let mut runner = runner.stdin(Stdio::null()).spawn()?;
    launcher.until_ready()?;
    let begin = Instant::now();
    launcher.talk()?;
    let took = begin.elapsed();
    if runner.wait()?.success() { Ok(took) } else { Err(io::Error::other("the runner failed")) }
}

/// A store in which runs are revived.
struct Ours {
    host: Arc<RealHost>,
    root: PathBuf,
    runs: PathBuf,
    runner: PathBuf,
    number: std::cell::Cell<u64>,
}

impl Ours {
    fn new(args: &Args) -> io::Result<Self> {
        let root = args.work.join("handshakes");
        let runs = root.join(bench::RUNS);
        make_dir(&runs)?;
        let (root, runs) = (root.canonicalize()?, runs.canonicalize()?);
        let number = std::cell::Cell::new(0);
        Ok(Self {
            host: Arc::new(RealHost::new()),
            root,
            runs,
            runner: args.runner.clone(),
            number,
        })
    }

    fn one(&self) -> io::Result<Duration> {
        self.number.set(self.number.get() + 1);
        let name = format!("run-{:08}", self.number.get());
        let session = self.root.join(format!("{name}.jsonl"));
        bench::put(&session, b"{}\n")?;
        let host = &*self.host;
        let run_id = RunId::parse(&name).map_err(io::Error::other)?;
        let (temp, runs_root) = (host.open_dir(&self.root)?, host.open_dir(&self.runs)?);
        let place = Place {
            temp: &temp,
            temp_path: &self.root,
            runs_root: &runs_root,
            runs_path: &self.runs,
        };
        let session_file = session.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let result = self.root.join("results").join(&name);
        let request = Request {
            session_id: Some("S"),
            revival: Some(RevivalText { session_file, source_run_id: "run-0" }),
            ..Request::new(&run_id, RunMode::Single, STEPS, &self.root, &result)
        };
        let args = vec![self.root.clone().into(), "30000".into(), "work".into()];
        let program = self.runner.clone().into();
        let mut children = Children::new(Arc::clone(&self.host), program, args);
        let prepared = prepare(host, place, request).map_err(io::Error::other)?;
        let mut launch = prepared.start(&mut children).map_err(io::Error::other)?;
        let said = self.runs.join(&name).join(talk::SAID);
        while !fs::exists(&said)? {
            std::thread::sleep(Duration::from_micros(100));
        }
        let begin = Instant::now();
        let outcome = launch.wait();
        let took = begin.elapsed();
        if !matches!(outcome, Outcome::Started(_)) {
            return Err(io::Error::other(format!("it was not started: {outcome:?}")));
        }
        let mut child = launch.into_child();
        while !child.look().has_ended() {
            std::thread::sleep(Duration::from_micros(100));
        }
        fs::remove_dir_all(self.runs.join(&name))?;
        Ok(took)
    }
}
