//! A run in the foreground: it is followed to its end, which becomes the exit code of the program.
//!
//! Theory of operation. The run does not know that anybody watches. So this is a reader like any other: it
//! prints what the steps write as `logs -f` does, and judges the run as `inspect` does, again and again, until its
//! end is recorded and proven, or nothing more can come. The commands are the caller's own, so what they write is
//! handed on as it is, also to a terminal.
//!
//! A signal that asks this program to end becomes a request to stop the run, in the same inbox as `runstore stop`
//! uses; the run then ends in order, and is followed to its end. A second one ends this program alone: the
//! run goes on ending, and the last line says so. On a terminal a line tells how far the run is while nothing
//! else is printed.
//!
//! Ordered steps of one round: signals; the state; the logs, if anything is new; the end, if the *state before
//! the logs* was one. In the other order the last words of a run would be missed. Spec: RS-CTRL-20, RS-OBS-32.

use std::path::PathBuf;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use runstore::inspect::RunReport;
use runstore::protocol::verdict::Verdict;
use runstore::protocol::written_control::Asking;
use runstore::store::ask::{Said, ask};
use runstore::store::{Host as _, RealHost, Snapshot, WriteHost as _};

use super::launch::Launched;
use super::logs::Show;
use super::one_run::OneRun;
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::run_args::{LogsArgs, OneRunArgs};

/// Shortest and longest pause between two rounds, in ms: a short command is not waited for long, and a long one costs
/// nothing.
const PAUSE_MS: (u64, u64) = (4, 100);
/// From when on a line tells how far the run is, in ms.
const PROGRESS_MS: i64 = 1_000;

/// Follows a run to its end.
pub(crate) fn to_the_end(
    host: &RealHost,
    launched: &Launched,
    format: Format,
    output: &mut Output,
) -> Result<Code, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| {
        Failure::user(Code::IO, "signals cannot be handed on to the run").because(e)
    })?;
    let args = LogsArgs {
        run: OneRunArgs { target: launched.path.clone(), root: None, format: Format::Text },
        follow: true,
        step: None,
        stderr: false,
        lines: None,
    };
    let run = OneRun::find(host, "run", &args.run)?;
    let mut watch =
        Watch { host, run: &run, launched, was_signalled: false, began_ms: host.steady_ms() };
    let shows = format == Format::Text;
    let mut show = Show::new(&args, host, run.open_to_read(host)?, output, launched.steps);
    let mut pause_ms = PAUSE_MS.0;
    loop {
        for _ in signals.pending() {
            if watch.signalled(show.output())? {
                return Ok(Code::ATTENTION);
            }
        }
        let (snapshot, report) = run.look(host)?;
        let is_over = is_over(&report);
        let watched = shows && show.output().shows_progress();
        if shows {
            show.output().end_progress();
            show.round()?;
        }
        if is_over {
            return end(&snapshot, &report, launched, format, show.output());
        }
        if watched && host.steady_ms() - watch.began_ms >= PROGRESS_MS {
            show.output().progress(&watch.progress(&snapshot));
        }
        host.wait_ms(pause_ms);
        pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
    }
}

struct Watch<'a> {
    host: &'a RealHost,
    run: &'a OneRun,
    launched: &'a Launched,
    was_signalled: bool,
    began_ms: i64,
}

impl Watch<'_> {
    /// Answers a signal; whether this program is to end at once.
    fn signalled(&mut self, output: &Output) -> Result<bool, Failure> {
        let is_first = !std::mem::replace(&mut self.was_signalled, true);
        output.end_progress();
        let run_id = &self.launched.run_id;
        let root = render::shell_word(&self.launched.root.to_string_lossy()).into_owned();
        if !is_first {
            output.talk(&format!(
                "run {run_id} is left to itself; runstore wait {run_id} --root {root}"
            ));
            return Ok(true);
        }
        let said =
            Said { source: "runstore", reason: Some("a signal to the program that follows it") };
        let stop = Asking::Stop { step: None, as_file: false };
        match ask(self.host, &self.run.open(self.host)?.run, &stop, said) {
            Ok(_) => output
                .talk(&format!("run {run_id} is asked to stop; once more leaves it to itself")),
            // It has ended, or is about to: the end is told next.
            Err(e) => output.talk(&format!("run {run_id}: {}", render::escape(&e.to_string()))),
        }
        Ok(false)
    }

    fn progress(&self, snapshot: &Snapshot) -> String {
        let seconds = (self.host.steady_ms() - self.began_ms) / 1000;
        let steps = snapshot.evidence.status.value().map_or(&[][..], |status| &status.steps);
        let done = steps.iter().filter(|step| step.ended_at_ms.is_some()).count();
        let all = steps.len();
        format!("{done} of {all} steps ended, {seconds} s")
    }
}

/// Whether nothing more is to be expected.
fn is_over(report: &RunReport) -> bool {
    !matches!(
        report.verdict_word,
        Some(Verdict::Starting | Verdict::Running | Verdict::RunningUnverified | Verdict::Settling)
    )
}

fn end(
    snapshot: &Snapshot,
    report: &RunReport,
    launched: &Launched,
    format: Format,
    output: &mut Output,
) -> Result<Code, Failure> {
    let state = report.recorded_state.as_deref().unwrap_or("unknown");
    let is_complete = state == "complete";
    let code = Code::of_report(report);
    // An end that is not proven is told, and is no failure of the commands.
    let code = if is_complete { code } else { code.worse(Code::ATTENTION) };
    let error = snapshot.evidence.status.value().and_then(|status| status.error.clone());
    if format != Format::Text {
        let answer = json!({
            "schema": "runstore.run/1",
            "runId": launched.run_id,
            "path": launched.path.to_string_lossy(),
            "root": launched.root.to_string_lossy(),
            "pid": launched.pid,
            "recordedState": report.recorded_state,
            "verdict": report.verdict,
            "because": report.because,
            "error": error,
        });
        super::write_json(output, &answer)?;
        return Ok(code);
    }
    if is_complete && code == Code::FINE {
        output.talk(&format!("run {} is complete", report.run_id));
        return Ok(code);
    }
    let why = error.unwrap_or_else(|| report.because.to_string());
    output.talk(&format!(
        "run {} is {}: {}",
        report.run_id,
        render::escape(state),
        render::escape(&why)
    ));
    if report.verdict_word != Some(Verdict::Finished) {
        let path: &PathBuf = &launched.path;
        let path = render::shell_word(&path.to_string_lossy()).into_owned();
        output.talk(&format!("hint: runstore inspect {path} shows what is true of it"));
    }
    Ok(code)
}
