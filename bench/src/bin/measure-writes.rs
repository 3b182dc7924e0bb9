//! Measures what a write of the library costs beside the bare calls, two crates and the published peers.
//!
//! Theory of operation. It starts itself again in a mount namespace of its own, makes one file system after
//! the other there ([`bench::ground`]) and lets the writers compete on it ([`bench::contest`]), all of
//! them on the same file in the same directory. The peers are processes that time themselves
//! ([`bench::peer`]). System calls are counted by `strace` in a run of the driver program. One line is
//! printed for each ratio; what the machine does not permit is a line `skip NAME: reason`.
//!
//! What is compared: the writer with the bare calls at each level; at the levels that flush with the crates
//! `atomic-write-file` and `atomicwrites`, which flush as well; without a flush with the peers, which flush
//! nothing. A peer makes its text in each write and the writer is given one; how long that takes is told.
//!
//! Not promised: that two machines agree on anything but ratios.

#![cfg(unix)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the point")]
#![expect(clippy::disallowed_methods, reason = "builds trees and runs programs beside the store")]

use std::cell::RefCell;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atomic_write_file::AtomicWriteFile;
use atomicwrites::{AtomicFile, OverwriteBehavior};
use bench::bare::{Bare, Flush};
use bench::contest::{self, Entrant, Times};
use bench::ground::{self, Ground};
use bench::peer::{self, Peer};
use bench::report::{count, ratio, skip};
use bench::{make_dir, put, text_of};
use runstore::protocol::account::Author;
use runstore::protocol::ids::RunId;
use runstore::protocol::process::ProcessRecord;
use runstore::protocol::written_status::{FirstStatus, StatusPatch};
use runstore::protocol::{Document, RunMode};
use runstore::store::atomic::{Durability, Options, Target, replace};
use runstore::store::directory::open_path;
use runstore::store::publish::{Place, publish};
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StatusPlace};
use runstore::store::sidecar::{Decision, patch};
use runstore::store::{Host as _, RealHost, identity};

type Done = Result<(), Box<dyn Error>>;
type Dir = <RealHost as runstore::store::Host>::Dir;

/// The file that everybody replaces.
const NAME: &str = "status.json";
/// Its size.
const SMALL: usize = 1024;
/// The run of a status, and its runner.
const RUN: &str = "run-1";
const INSTANCE: &str = "instance-1";
/// The size of the status that is changed.
const LARGE: usize = 5 * 1024;
/// Batches of each entrant, without the first.
const ROUNDS: usize = 41;
/// Operations of a batch at most.
const MOST: u32 = 500;
/// The same where each one makes files that stay.
const MOST_MADE: u32 = 100;

/// What was asked.
#[derive(Default)]
struct Args {
    driver: PathBuf,
    work: PathBuf,
    /// Where the peers are installed, if they are.
    peers: Option<PathBuf>,
    /// The program that makes them write.
    script: PathBuf,
    rounds: usize,
    only: Option<String>,
    /// This is the process with mounts of its own.
    apart: bool,
}

/// One bench on one file system.
type Bench = fn(&Field<'_>) -> Done;

const BENCHES: [(&str, Bench); 5] = [
    ("process-safe", process_safe),
    ("peers", peers),
    ("flushed", flushed),
    ("rmw", read_modify_write),
    ("publish", publication),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(args) = parse(words.iter().cloned()) else {
        eprintln!(
            "usage: measure-writes --driver FILE --work DIRECTORY [--peers DIRECTORY --script FILE] \
             [--rounds N] [--only NAME]"
        );
        return ExitCode::from(2);
    };
    let refusal = if args.apart { None } else { testkit::power::refusal() };
    if !args.apart && refusal.is_none() {
        return apart(&words);
    }
    match measure(&args, refusal.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("measure-writes: {e}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { rounds: ROUNDS, ..Args::default() };
    while let Some(word) = words.next() {
        if word == "--apart" {
            args.apart = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--driver" => args.driver = value.into(),
            "--work" => args.work = value.into(),
            "--peers" => args.peers = Some(value.into()),
            "--script" => args.script = value.into(),
            "--rounds" => args.rounds = value.parse().ok().filter(|n| *n > 0)?,
            "--only" => args.only = Some(value),
            // The stores of the other measuring program.
            "--runs" => {}
            _ => return None,
        }
    }
    let named = [&args.driver, &args.work];
    named.iter().all(|path| !path.as_os_str().is_empty()).then_some(args)
}

/// The same again with mounts of its own.
fn apart(words: &[String]) -> ExitCode {
    let own = std::env::current_exe().expect("this program has a place");
    let status = testkit::power::command(&own).args(words).arg("--apart").status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// One file system, and what is needed on it.
struct Field<'a> {
    args: &'a Args,
    host: &'a RealHost,
    ground: &'a Ground,
    small: &'a [u8],
    peers: &'a [(&'static str, RefCell<Peer>)],
}

fn measure(args: &Args, mounts: Option<&str>) -> Done {
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| only == name);
    if wanted("calls") {
        calls(args)?;
    }
    let benches: Vec<_> = BENCHES.into_iter().filter(|(name, _)| wanted(name)).collect();
    if benches.is_empty() {
        return Ok(());
    }
    let (host, small) = (RealHost::new(), text_of(SMALL));
    let peers = start_peers(args, &small)?;
    println!("load before the writes: {}", load());
    for name in ground::NAMES {
        let ground = match ground::make(name, mounts) {
            Ok(ground) => ground,
            Err(why) => {
                skip(&format!("writes-{name}"), &why);
                continue;
            }
        };
        let (small, ground) = (small.as_bytes(), &ground);
        let field = Field { args, host: &host, ground, small, peers: &peers };
        for (bench, measure) in &benches {
            measure(&field).map_err(|e| format!("{bench} on {name}: {e}"))?;
        }
    }
    println!("load after the writes: {}", load());
    Ok(())
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

fn start_peers(args: &Args, small: &str) -> io::Result<Vec<(&'static str, RefCell<Peer>)>> {
    let Some(installed) = &args.peers else { return Ok(Vec::new()) };
    let payload = args.work.join("payload.json");
    put(&payload, small.as_bytes())?;
    let start = |name| {
        let mut peer = Peer::start(&args.script, name, installed, &payload)?;
        peer.batch(1000, None)?;
        println!("the peer {name} makes its text in {:.1} us", peer.batch(1000, None)? / 1000.0);
        Ok((name, RefCell::new(peer)))
    };
    peer::NAMES.into_iter().map(start).collect()
}

/// System calls and flushes of single operations.
fn calls(args: &Args) -> Done {
    if let Some(why) = testkit::trace::refusal() {
        skip("calls", &why);
        return Ok(());
    }
    let traced = |words: &[&str]| -> Result<Vec<String>, Box<dyn Error>> {
        let dir = tempfile::tempdir_in(&args.work)?;
        let root = dir.path().join("root");
        make_dir(&root)?;
        Ok(testkit::trace::of(&args.driver, &root, words)?)
    };
    count("replace-process-safe-calls", traced(&["replace-known"])?.len(), "=", 4);
    count("replace-process-safe-look-calls", traced(&["replace-process"])?.len(), "<=", 6);
    let set_mode = traced(&["replace-process", "277"])?.len();
    count("replace-process-safe-look-and-mode-calls", set_mode, "<=", 6);
    for (name, operation, limit) in [
        ("replace-process-safe-flushes", "replace-known", 0),
        ("replace-ordered-flushes", "replace-ordered", 1),
        ("replace-durable-flushes", "replace-durable", 2),
        ("new-run-flushes", "run-create", 3),
    ] {
        count(name, testkit::trace::flushes(&traced(&[operation])?), "=", limit);
    }
    Ok(())
}

impl<'a> Field<'a> {
    /// A new directory, with the file in it where `text` is given.
    fn arena(&self, name: &str, text: Option<&[u8]>) -> io::Result<(PathBuf, Dir)> {
        let path = self.ground.top.join(name);
        make_dir(&path)?;
        if let Some(text) = text {
            put(&path.join(NAME), text)?;
        }
        let dir = self.host.open_dir(&path)?;
        Ok((path, dir))
    }

    /// Lets them compete, and takes the arena away.
    fn compete(
        &self,
        what: &str,
        arena: &Path,
        most: u32,
        entrants: Vec<Entrant<'_>>,
    ) -> io::Result<Times> {
        let times = contest::run(entrants, self.args.rounds, most)?;
        println!("{what} on {}: {}", self.ground.name, times.medians());
        fs::remove_dir_all(arena)?;
        // What is still in memory is not to be written during the next contest.
        rustix::fs::syncfs(File::open(&self.ground.top)?)?;
        Ok(times)
    }

    fn name(&self, one: &str, other: &str) -> String {
        format!("{one}-{}/{other}", self.ground.name)
    }

    /// Our writer, which knows the mode.
    fn ours(&self, dir: &'a Dir, level: Durability, text: &'a [u8]) -> Entrant<'a> {
        let host = self.host;
        let options = Options::new(level).target(Target::Known(0o600));
        Entrant::timed("ours", move || {
            replace(host, dir, NAME, text, &options).map(drop).map_err(io::Error::other)
        })
    }
}

fn bare<'a>(arena: &Path, text: &'a [u8], flush: Flush) -> io::Result<Entrant<'a>> {
    let mut bare = Bare::new(arena)?;
    Ok(Entrant::timed("bare", move || bare.replace(text, flush)))
}

/// Without a flush, beside the bare calls.
fn process_safe(field: &Field<'_>) -> Done {
    let (arena, dir) = field.arena("process-safe", Some(field.small))?;
    let ours = field.ours(&dir, Durability::ProcessSafe, field.small);
    let entrants = vec![ours, bare(&arena, field.small, Flush::Nothing)?];
    let times = field.compete("process-safe replace", &arena, MOST, entrants)?;
    let name = field.name("replace-process-safe", "bare");
    ratio(&name, times.quotient("ours", "bare"), "<=", 1.10);
    Ok(())
}

/// Without a flush, beside the peers.
fn peers(field: &Field<'_>) -> Done {
    if field.peers.is_empty() {
        skip(&format!("peers-{}", field.ground.name), "the published peers are not installed");
        return Ok(());
    }
    let (arena, dir) = field.arena("peers", Some(field.small))?;
    let file = arena.join(NAME);
    let mut entrants = vec![field.ours(&dir, Durability::ProcessSafe, field.small)];
    for (name, peer) in field.peers {
        let file = &file;
        entrants.push(Entrant::batch(name, move |ops| peer.borrow_mut().batch(ops, Some(file))));
    }
    // They have to write what we write, or nothing is compared.
    for (name, peer) in field.peers {
        peer.borrow_mut().batch(1, Some(&file))?;
        if fs::read(&file)? != field.small {
            return Err(format!("the peer {name} writes another text").into());
        }
    }
    let times = field.compete("replace by a peer", &arena, MOST, entrants)?;
    let limit = if field.ground.name == "tmpfs" { 4.0 } else { 1.8 };
    for (name, _) in field.peers {
        let ratio_name = field.name(name, "replace-process-safe");
        ratio(&ratio_name, times.quotient(name, "ours"), ">=", limit);
    }
    Ok(())
}

/// How a crate is told to write a file.
type Crate = (&'static str, fn(&Path, &[u8]) -> io::Result<()>);

const CRATES: [Crate; 2] = [
    ("atomic-write-file", |path, text| {
        let mut file = AtomicWriteFile::open(path)?;
        file.write_all(text)?;
        file.commit()
    }),
    ("atomicwrites", |path, text| {
        let file = AtomicFile::new(path, OverwriteBehavior::AllowOverwrite);
        file.write(|file| file.write_all(text)).map_err(io::Error::from)
    }),
];

/// The levels that flush, and a new run directory, beside the bare calls and the crates.
fn flushed(field: &Field<'_>) -> Done {
    for (what, level, flush) in [
        ("replace-ordered", Durability::Ordered, Flush::File),
        ("replace-durable", Durability::Durable, Flush::Both),
    ] {
        let (arena, dir) = field.arena(what, Some(field.small))?;
        let file = arena.join(NAME);
        let ours = field.ours(&dir, level, field.small);
        let mut entrants = vec![ours, bare(&arena, field.small, flush)?];
        for (name, write) in CRATES {
            let file = &file;
            entrants.push(Entrant::timed(name, move || write(file, field.small)));
        }
        compare_flushed(field, what, &field.compete(what, &arena, MOST, entrants)?);
    }
    new_run(field)
}

fn compare_flushed(field: &Field<'_>, what: &str, times: &Times) {
    ratio(&field.name(what, "bare"), times.quotient("ours", "bare"), "<=", 1.10);
    for (name, _) in CRATES {
        ratio(&field.name(name, what), times.quotient(name, "ours"), ">=", 1.0);
    }
}

fn first_status(process: &ProcessRecord) -> FirstStatus<'_> {
    FirstStatus {
        run_id: RUN,
        session_id: Some("session"),
        completion_owner_id: Some("owner"),
        tool_call_id: Some("call"),
        mode: RunMode::Single,
        agents: &["worker"],
        groups: &[],
        started_at_ms: 1_790_000_000_000,
        process,
        instance_id: INSTANCE,
    }
}

/// A run directory and its first status. All of them make the text, and the crates are given the directory
/// and its flush.
fn new_run(field: &Field<'_>) -> Done {
    let (arena, dir) = field.arena("new-run", None)?;
    let host = field.host;
    let process = identity::own(host);
    let first = first_status(&process);
    let mut number = 0;
    let ours = Entrant::timed("ours", || {
        number += 1;
        let id = RunId::parse(&format!("ours-{number}")).map_err(io::Error::other)?;
        let run = run::create(host, &dir, &id, &RetryPolicy::never()).map_err(io::Error::other)?;
        run::write_first(host, &run, &first).map_err(io::Error::other)
    });
    let (mut bare, mut number) = (Bare::new(&arena)?, 0);
    let bare = Entrant::timed("bare", || {
        number += 1;
        bare.new_run(&format!("bare-{number}"), first.text().as_bytes())
    });
    let mut entrants = vec![ours, bare];
    for (name, write) in CRATES {
        let (arena, first, mut number) = (&arena, &first, 0);
        let parent = File::open(arena)?;
        entrants.push(Entrant::timed(name, move || {
            number += 1;
            let run = arena.join(format!("{name}-{number}"));
            fs::create_dir(&run)?;
            parent.sync_all()?;
            write(&run.join(NAME), first.text().as_bytes())
        }));
    }
    let times = field.compete("new-run", &arena, MOST_MADE, entrants)?;
    compare_flushed(field, "new-run", &times);
    Ok(())
}

/// A status of a run that goes on.
fn large_status(host: &RealHost) -> Result<String, Box<dyn Error>> {
    let process = identity::own(host);
    let first = first_status(&process).text();
    let mut steps = String::new();
    let mut number = 0;
    while first.len() + steps.len() < LARGE {
        let comma = if number > 0 { ",\n" } else { "" };
        steps += &format!(
            "{comma}    {{\n      \"agent\": \"worker-{number}\",\n      \"status\": \"running\",\n      \
             \"startedAt\": 1790000000000,\n      \"toolCount\": {number},\n      \"recentOutput\": [\n        \
             \"the first line of what the worker said last\",\n        \"and the second one\"\n      ]\n    }}"
        );
        number += 1;
    }
    let steps = format!("[\n{steps}\n  ]");
    Ok(Document::parse(&first)?.patched(&[("steps", &steps)])?)
}

/// Some members of a status changed, beside a replace of the same text.
fn read_modify_write(field: &Field<'_>) -> Done {
    let host = field.host;
    let text = large_status(host)?;
    for (what, level) in
        [("patch", Durability::ProcessSafe), ("status-update", Durability::Ordered)]
    {
        let (arena, dir) = field.arena(what, Some(text.as_bytes()))?;
        let alone = field.ours(&dir, level, text.as_bytes());
        let mut now_ms = 1_790_000_000_000_i64;
        let options = Options::new(level);
        let run_id = RunId::parse(RUN)?;
        let dir_of_update = &dir;
        let changed = Entrant::timed("changed", || {
            now_ms += 1;
            if level == Durability::Ordered {
                let place =
                    StatusPlace { host, run_dir: dir_of_update, run_id: &run_id, locks: None };
                let author = Author::Runner { instance: INSTANCE };
                let wanted = StatusPatch::at(now_ms).member("currentStep", now_ms.to_string());
                run::update(&place, author, &wanted).map_err(io::Error::other)?;
            } else {
                patch(host, dir_of_update, NAME, 1 << 20, &options, |_| {
                    let members = ["lastUpdate", "currentStep"];
                    Decision::Patch(members.map(|key| (key, now_ms.to_string())).into())
                })
                .map_err(io::Error::other)?;
            }
            Ok(())
        });
        let times = field.compete(what, &arena, MOST, vec![alone, changed])?;
        let name = field.name(&format!("{what}-5k"), "replace");
        ratio(&name, times.quotient("changed", "ours"), "<=", 1.5);
    }
    Ok(())
}

/// A result published, beside replaces of the five files that it writes.
fn publication(field: &Field<'_>) -> Done {
    let host = field.host;
    let (arena, results) = field.arena("publish", None)?;
    let (_, run_dir) = field.arena("publish-run", None)?;
    let (never, file) = (RetryPolicy::never(), "run-1.json");
    let pad = "x".repeat(SMALL - 120);
    let payload = format!(
        r#"{{"id":"run-1","sessionId":"S","toolCallId":"t","state":"complete","success":true,"output":"{pad}"}}"#
    );
    let (results, payload) = (&results, &payload);
    let put = || publish(host, results, file, payload, Some(&run_dir), &never);
    let published = put()?;
    if published.place != Place::Public || !published.problems.is_empty() {
        return Err(format!("the result was not published: {published:?}").into());
    }
    let entry = fs::read(arena.join("result-index/sessions/S/run-1.json"))?;
    let mut files = Vec::new();
    for (path, text) in [
        (&["result-pending", "S"][..], payload.as_bytes()),
        (&["result-index", "sessions", "S"], &entry),
        (&["result-index", "runs"], &entry),
        (&["result-index", "tool-calls", "t"], &entry),
        (&[], payload.as_bytes()),
    ] {
        let dir = if path.is_empty() {
            Some(host.open_dir(&arena)?)
        } else {
            open_path(host, results, path)?
        };
        files.push((dir.ok_or_else(|| format!("{path:?} was not made"))?, text));
    }
    let options = Options::new(Durability::Durable);
    let replaces = Entrant::timed("replaces", || {
        for (dir, text) in &files {
            replace(host, dir, "other.json", text, &options).map_err(io::Error::other)?;
        }
        Ok(())
    });
    let published = Entrant::timed("published", || {
        let done = put().map_err(io::Error::other)?;
        if done.place == Place::Public { Ok(()) } else { Err(io::Error::other("it stays pending")) }
    });
    let times = field.compete("publish", &arena, MOST_MADE, vec![published, replaces])?;
    ratio(&field.name("publish", "replaces"), times.quotient("published", "replaces"), "<=", 1.0);
    Ok(())
}
