//! `runstore wait`: sleeps until runs have come to what was asked for, or never will.
//!
//! Theory of operation. All ids are looked up before anything is waited for: one that leads nowhere is a
//! mistake, and whoever made it wants to hear of it now. The waiting is the library's
//! ([`wait`](mod@runstore::wait)). Each run is told as its wait ends and written out at once: whoever reads a pipe
//! acts on the first one while the others go on. Nothing is changed.
//!
//! Spec: RS-OBS-26, RS-OBS-27, RS-DIAG-31.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde::Serialize;

use runstore::inspect::{LookupError, NextReport, ProofReport, RunReport, find};
use runstore::protocol::Word as _;
use runstore::protocol::error::with_causes;
use runstore::protocol::evidence::Times;
use runstore::store::{Host as _, Opened, RealHost};
use runstore::wait::{self, Outcome, Until, Waited, Wish};

use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::wait_args::WaitArgs;

/// The end of the wait for one run, on the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunEnd {
    run_id: String,
    path: String,
    outcome: &'static str,
    waited_ms: u64,
    #[serde(flatten)]
    last: Option<Last>,
}

/// What was known of a run last.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Last {
    recorded_state: Option<String>,
    liveness: &'static str,
    verdict: &'static str,
    because: String,
    /// What the run says went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How the runner's process ended, where that was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    proof: ProofReport,
    next: Vec<NextReport>,
}

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    schema: &'static str,
    now_ms: i64,
    #[serde(rename = "for")]
    until: &'static str,
    runs: &'a [RunEnd],
    summary: Summary,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    total: usize,
    by_outcome: BTreeMap<&'static str, usize>,
}

/// Waits.
pub(crate) fn run(args: &WaitArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = RealHost::new();
    let paths = paths(&host, args)?;
    let timeout_ms = args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let wish = Wish {
        until: args.until.into(),
        timeout_ms,
        look_ms: args.look_ms,
        times: Times::from(&args.times),
    };
    let (mut code, mut ends, mut failed) = (Code::FINE, Vec::new(), None);
    let waited = wait::wait(&host, &paths, &wish, &mut |waited| {
        let outcome = waited.outcome;
        let number = waited.number;
        let (end, own) = ended(waited);
        code = code.worse(own);
        let told = match args.format {
            Format::Json => Ok(()),
            Format::Jsonl => super::write_json(output, &end).and_then(|()| output.finish()),
            Format::Text => {
                let told = tell(output, args, outcome, &end);
                told.and_then(|()| output.finish())
            }
        };
        ends.push((number, end));
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    waited.map_err(|e| failure(&host, e))?;
    if args.format == Format::Json {
        // In the order in which they were asked for.
        ends.sort_by_key(|(number, _)| *number);
        let runs: Vec<_> = ends.into_iter().map(|(_, end)| end).collect();
        let mut summary = Summary { total: runs.len(), ..Summary::default() };
        for run in &runs {
            *summary.by_outcome.entry(run.outcome).or_default() += 1;
        }
        let until = wish.until.as_str();
        let schema = "runstore.wait/1";
        let answer = Answer { schema, now_ms: host.now_ms(), until, runs: &runs, summary };
        let out = output.writer();
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        writeln!(out)?;
    }
    // Before the host goes: closing what woke it takes a while.
    output.finish()?;
    Ok(code)
}

/// The run directories that were asked for, each once.
fn paths(host: &RealHost, args: &WaitArgs) -> Result<Vec<PathBuf>, Failure> {
    let root = args.root.as_ref();
    let (named, ids) = super::split_targets(host, &args.targets, root);
    let mut paths: Vec<PathBuf> = named.iter().map(|path| host.absolute(path)).collect();
    if !ids.is_empty() {
        let hint =
            format!("say which store it is in: runstore wait {} --root STORE", ids.join(" "));
        let roots = super::default_paths(host, root, &hint)?;
        let mut stores = Vec::new();
        for root in &roots {
            match super::open_at(host, root, host.now_ms(), Times::default())? {
                Opened::Store(store) => stores.push(store),
                Opened::Run(..) => return Err(super::not_a_store(root)),
            }
        }
        for id in &ids {
            let mut found: Vec<PathBuf> = Vec::new();
            for store in &stores {
                match find(store, id) {
                    // The run itself is the first; the others only have its name.
                    Ok(places) => found.extend(
                        places.first().map(|at| store.runs_roots[at.root].path.join(&at.name)),
                    ),
                    Err(LookupError::NotFound(_)) => {}
                    Err(e) => return Err(super::no_lookup(&e)),
                }
            }
            match found.as_slice() {
                [] => return Err(super::no_run_of(id, root, &roots)),
                [path] => paths.push(path.clone()),
                several => {
                    let shown: Vec<_> = several.iter().map(|p| p.display().to_string()).collect();
                    let what = format!("'{id}' stands in several stores: {}", shown.join(", "));
                    return Err(Failure::user(Code::USAGE, what)
                        .hint(format!("name the directory: runstore wait {}", shown[0])));
                }
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    Ok(paths)
}

fn failure(host: &RealHost, e: wait::WaitError) -> Failure {
    match e {
        wait::WaitError::Open(path, e) => super::not_opened(&path, e),
        wait::WaitError::Many(path) if path.file_name().is_none() => super::no_run_at(host, &path),
        wait::WaitError::Many(path) => {
            let shown = path.display();
            Failure::user(Code::USAGE, format!("{shown} holds many runs"))
                .hint(format!("say which ones to wait for: runstore wait ID… --root {shown}"))
        }
        e => Failure::user(Code::INTERNAL, with_causes(&e)),
    }
}

/// The wire form of an end, and its exit code.
fn ended(waited: Waited) -> (RunEnd, Code) {
    let Waited { path, outcome, seen, waited_ms, .. } = waited;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut code, mut last) = (Code::of_wait(outcome, None), None);
    if let Some(seen) = seen {
        let evidence = &seen.snapshot.evidence;
        let error = evidence.status.value().and_then(|status| status.error.clone());
        let runner = evidence.proof.value().and_then(|proof| proof.runner());
        let (exit_code, signal) =
            runner.map_or((None, None), |end| (end.exit_code, end.signal.clone()));
        let report = RunReport::new(&seen.snapshot, seen.diagnosis, &[]);
        code = Code::of_wait(outcome, Some(&report));
        last = Some(Last {
            recorded_state: report.recorded_state.map(std::borrow::Cow::into_owned),
            liveness: report.liveness,
            verdict: report.verdict,
            because: report.because,
            error,
            exit_code,
            signal,
            proof: report.proof,
            next: report.next,
        });
    }
    let path = path.to_string_lossy().into_owned();
    (RunEnd { run_id: name, path, outcome: outcome.as_str(), waited_ms, last }, code)
}

/// One line that says what came of the wait, and what to do where it did not end well.
fn tell(
    output: &mut Output,
    args: &WaitArgs,
    outcome: Outcome,
    end: &RunEnd,
) -> Result<(), Failure> {
    let out = output.writer();
    let id = render::escape(&end.run_id);
    let after = render::age(i64::try_from(end.waited_ms).unwrap_or(i64::MAX));
    let state = end.last.as_ref().and_then(|last| last.recorded_state.as_deref());
    let because = end.last.as_ref().map_or("", |last| last.because.as_str());
    let word = match outcome {
        Outcome::Ended | Outcome::Proven => render::escape(state.unwrap_or(end.outcome)),
        _ => end.outcome.into(),
    };
    write!(out, "{word:<13}  {id}  after {after}")?;
    match outcome {
        Outcome::Gone => writeln!(out, ": its directory was removed")?,
        _ if because.is_empty() => writeln!(out)?,
        _ => writeln!(out, ": {}", render::escape(because))?,
    }
    let line = |out: &mut dyn std::io::Write, key: &str, text: &str| {
        writeln!(out, "  {key:<11}{}", render::escape(text))
    };
    if let Some(error) = end.last.as_ref().and_then(|last| last.error.as_deref()) {
        line(out, "error", error.lines().next().unwrap_or_default())?;
    }
    if let Some(how) = end.last.as_ref().and_then(how_it_ended) {
        line(out, "runner", &how)?;
    }
    let path = render::shell_word(&end.path);
    match outcome {
        Outcome::Ready | Outcome::Gone => {}
        Outcome::Ended | Outcome::Proven if state == Some("complete") => {}
        Outcome::Timeout => {
            let until = Until::from(args.until).as_str();
            line(out, "you may", &format!("wait longer: runstore wait --for {until} {path}"))?;
        }
        _ => line(out, "you may", &format!("look closer: runstore inspect {path}"))?,
    }
    Ok(())
}

/// How the runner's process ended, if it did so badly.
fn how_it_ended(last: &Last) -> Option<String> {
    match (&last.signal, last.exit_code) {
        (Some(signal), _) => Some(format!("ended by {signal}")),
        (None, Some(code)) if code != 0 => Some(format!("ended with code {code}")),
        _ => None,
    }
}
