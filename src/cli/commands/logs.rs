//! `runstore logs`: what the steps of a run wrote, or its runner on standard error.
//!
//! Theory of operation. Each log has a cursor of the store ([`Cursor`]), which knows how logs are moved aside.
//! One round prints what every cursor has, in the order of the steps, and looks for logs that are new. Without
//! `-f` there is one round. With it there are rounds until one began after the run had ended: whether it goes on
//! is looked at *before* the logs, so that the last words of a run are printed.
//!
//! On a terminal everything but line ends and tabs that a terminal would obey is escaped, because the text comes
//! from whatever a step wrote. Elsewhere the bytes are printed as they are: they are data for the next program.
//!
//! Spec: RS-OBS-32, RS-OBS-33, RS-READ-10.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use runstore::inspect::RunReport;
use runstore::protocol::limits::{LOG_LOOK_MS, LOG_RUN_LOOK_MS};
use runstore::protocol::{Open, StepState, layout};
use runstore::store::host::ReadError;
use runstore::store::logs::{Cursor, output_name, steps};
use runstore::store::{RealHost, Snapshot, WriteHost as _};

use super::one_run::{Dir, OneRun, goes_on};
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::run_args::LogsArgs;

/// One line, as JSON has it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<&'a str>,
    text: &'a str,
}

/// One log that is shown.
struct Log {
    /// Its name.
    name: String,
    /// The step, of the log of a step.
    step: Option<u32>,
    cursor: Cursor,
    /// Bytes that wait: of a character that is not whole, or of a line in JSON.
    held: Vec<u8>,
    /// Whether anything was there.
    wrote: bool,
}

/// Everything that is shown.
pub(super) struct Show<'a> {
    args: &'a LogsArgs,
    host: &'a RealHost,
    dir: Dir,
    output: &'a mut Output,
    is_terminal: bool,
    logs: BTreeMap<(Option<u32>, String), Log>,
    /// Whose text was printed last, and whether its line was ended.
    last: Option<(String, bool)>,
    lines: u64,
    has_many: bool,
    /// Whether a round was begun.
    has_begun: bool,
}

/// Answers.
pub(crate) fn run(args: &LogsArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = RealHost::new();
    let run = OneRun::find(&host, "logs", &args.run)?;
    let (snapshot, report) = run.look(&host)?;
    let known = snapshot.evidence.status.value().map_or(0, |status| status.steps.len());
    let dir = run.open_to_read(&host)?;
    if let Some(step) = args.step.filter(|step| known > 0 && *step as usize >= known) {
        let there = steps(&host, &dir).unwrap_or_default().contains(&step);
        if !there {
            let what = format!("there is no step {step}; the run has {known}, counted from 0");
            return Err(Failure::user(Code::NOT_FOUND, what));
        }
    }
    let mut show = Show::new(args, &host, dir, output, known);
    show.is_terminal = std::io::stdout().is_terminal();
    show.begin(&report.run_id, &run)?;
    let mut is_last = !args.follow || !goes_on(&snapshot, &report);
    let mut since_look_ms = 0;
    loop {
        show.round()?;
        if is_last {
            break;
        }
        host.wait_ms(LOG_LOOK_MS);
        since_look_ms += LOG_LOOK_MS;
        if since_look_ms >= LOG_RUN_LOOK_MS {
            since_look_ms = 0;
            let (snapshot, report) = run.look(&host)?;
            is_last = !goes_on(&snapshot, &report);
        }
    }
    let (snapshot, report) = run.look(&host)?;
    show.finish(&snapshot, &report)?;
    Ok(Code::FINE)
}

impl<'a> Show<'a> {
    /// Shows the logs of a run with so many steps, as they are.
    pub(super) fn new(
        args: &'a LogsArgs,
        host: &'a RealHost,
        dir: Dir,
        output: &'a mut Output,
        steps: usize,
    ) -> Self {
        let has_many = args.step.is_none() && !args.stderr && steps > 1;
        Self {
            args,
            host,
            dir,
            output,
            is_terminal: false,
            logs: BTreeMap::new(),
            last: None,
            lines: 0,
            has_many,
            has_begun: false,
        }
    }

    /// Where it is shown.
    #[cfg(unix)]
    pub(super) fn output(&mut self) -> &mut Output {
        self.output
    }

    fn begin(&mut self, run_id: &str, run: &OneRun) -> Result<(), Failure> {
        if self.args.run.format != Format::Json {
            return Ok(());
        }
        // In pieces: the lines may be more than the memory holds.
        let (run_id, path) = (serde_json::to_string(run_id)?, serde_json::to_string(&run.shown())?);
        let out = self.output.writer();
        write!(out, r#"{{"schema":"runstore.logs/1","runId":{run_id},"path":{path},"lines":["#)?;
        Ok(())
    }

    /// Prints what is new.
    pub(super) fn round(&mut self) -> Result<(), Failure> {
        self.find()?;
        self.has_begun = true;
        let mut keys: Vec<_> = self.logs.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            // Taken out, so that it can be printed while it is read.
            let Some(mut log) = self.logs.remove(&key) else { continue };
            let read = self.read(&mut log);
            self.logs.insert(key, log);
            read?;
        }
        self.output.finish()
    }

    /// The logs that are to be shown and are there.
    fn find(&mut self) -> Result<(), Failure> {
        let names: Vec<(Option<u32>, String)> = match (self.args.stderr, self.args.step) {
            (true, None) => vec![(None, layout::RUNNER_STDERR_LOG.to_owned())],
            (true, Some(step)) => vec![(Some(step), format!("external-{step}.stderr.log"))],
            (false, Some(step)) => vec![(Some(step), output_name(step))],
            (false, None) => {
                let steps = steps(self.host, &self.dir);
                let steps = steps.map_err(|e| unreadable("the run directory", &e.to_string()))?;
                steps.into_iter().map(|step| (Some(step), output_name(step))).collect()
            }
        };
        for (step, name) in names {
            let key = (step, name.clone());
            if self.logs.contains_key(&key) {
                continue;
            }
            let mut log =
                Log { cursor: Cursor::begin(&name), name, step, held: Vec::new(), wrote: false };
            // A log that appears later is shown from its beginning.
            if let Some(lines) = self.args.lines.filter(|_| !self.has_begun) {
                let found = Cursor::last_lines(self.host, &self.dir, &log.name, lines);
                let (cursor, text) = found.map_err(|e| of_log(&log.name, &e))?;
                log.cursor = cursor;
                self.print(&mut log, &text)?;
            }
            self.logs.insert(key, log);
        }
        Ok(())
    }

    fn read(&mut self, log: &mut Log) -> Result<(), Failure> {
        loop {
            let piece = log.cursor.next(self.host, &self.dir).map_err(|e| of_log(&log.name, &e))?;
            if piece.lost {
                self.output.finish()?;
                self.output
                    .talk(&format!("{}: output was overwritten before it was read", log.name));
            }
            if piece.bytes.is_empty() {
                return Ok(());
            }
            self.print(log, &piece.bytes)?;
        }
    }

    fn print(&mut self, log: &mut Log, bytes: &[u8]) -> Result<(), Failure> {
        log.wrote |= !bytes.is_empty();
        if self.args.run.format != Format::Text {
            log.held.extend_from_slice(bytes);
            while let Some(end) = log.held.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = log.held.drain(..=end).collect();
                self.line(log, &line[..end])?;
            }
            return Ok(());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.head(log)?;
        if !self.is_terminal {
            self.output.write_styled(bytes)?;
        } else {
            log.held.extend_from_slice(bytes);
            let whole = whole_characters(&log.held);
            let text: Vec<u8> = log.held.drain(..whole).collect();
            let text = String::from_utf8_lossy(&text);
            self.output.write_styled(render::escape_lines(&text).as_bytes())?;
        }
        self.last = Some((log.name.clone(), bytes.last() == Some(&b'\n')));
        Ok(())
    }

    /// Says whose text follows, where several are shown.
    fn head(&mut self, log: &Log) -> Result<(), Failure> {
        self.has_many |= self.logs.len() > 1;
        if !self.has_many || self.last.as_ref().is_some_and(|(name, _)| *name == log.name) {
            return Ok(());
        }
        let end = if self.last.as_ref().is_some_and(|(_, ended)| !ended) { "\n" } else { "" };
        let what = log.step.map_or_else(|| log.name.clone(), |step| format!("step {step}"));
        Ok(self.output.write_styled(format!("{end}==> {what} <==\n").as_bytes())?)
    }

    fn line(&mut self, log: &Log, bytes: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(bytes);
        let name = (log.step.is_none() || self.args.stderr).then_some(log.name.as_str());
        let line = Line { step: log.step, log: name, text: &text };
        let out = self.output.writer();
        if self.args.run.format == Format::Json && self.lines > 0 {
            write!(out, ",")?;
        }
        serde_json::to_writer(&mut *out, &line)?;
        if self.args.run.format == Format::Jsonl {
            writeln!(out)?;
        }
        self.lines += 1;
        Ok(())
    }

    /// Prints what waits, and says why there was nothing.
    fn finish(&mut self, snapshot: &Snapshot, report: &RunReport) -> Result<(), Failure> {
        let is_text = self.args.run.format == Format::Text;
        for (_, mut log) in std::mem::take(&mut self.logs) {
            let held = std::mem::take(&mut log.held);
            if held.is_empty() {
                continue;
            }
            if is_text {
                let text = String::from_utf8_lossy(&held).into_owned();
                self.output.write_styled(render::escape_lines(&text).as_bytes())?;
            } else {
                self.line(&log, &held)?;
            }
            self.lines += 1;
        }
        let nothing =
            (self.lines == 0 && self.last.is_none()).then(|| self.why_nothing(snapshot, report));
        if self.args.run.format == Format::Json {
            let because = nothing.as_ref().map(serde_json::to_string).transpose()?;
            let because = because.map_or_else(String::new, |why| format!(r#","because":{why}"#));
            writeln!(self.output.writer(), "]{because}}}")?;
        }
        self.output.finish()?;
        if let Some(why) = nothing {
            self.output.talk(&render::escape(&why));
        }
        Ok(())
    }

    fn why_nothing(&self, snapshot: &Snapshot, report: &RunReport) -> String {
        let run = format!("the run is {}", report.verdict);
        if self.args.stderr && self.args.step.is_none() {
            return format!("its runner wrote nothing on standard error; {run}");
        }
        // The runner itself may say why nothing came of it.
        let last_words = snapshot.evidence.stderr.is_some() && !self.args.stderr;
        let hint = if last_words { "; --stderr shows what its runner wrote" } else { "" };
        let Some(step) = self.args.step else {
            return format!("no step has written anything; {run}{hint}");
        };
        let status = snapshot.evidence.status.value();
        let found = status.and_then(|status| status.steps.get(step as usize));
        let state = found.and_then(|step| step.state.as_ref().and_then(Open::known));
        match state {
            Some(StepState::Pending) => format!("step {step} has not begun; {run}{hint}"),
            Some(StepState::Running) => {
                format!("step {step} has begun and wrote nothing so far; {run}{hint}")
            }
            Some(state) => format!("step {step} wrote nothing; it is {state}{hint}"),
            None => format!("step {step} wrote nothing; {run}{hint}"),
        }
    }
}

/// How many bytes of a text are whole characters, or none at all.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // Cut inside a character, which the next piece may complete.
        Err(e) if e.error_len().is_none() => e.valid_up_to(),
        Err(e) => {
            let bad = e.valid_up_to() + e.error_len().unwrap_or(1);
            bad + whole_characters(&bytes[bad..])
        }
    }
}

fn unreadable(what: &str, why: &str) -> Failure {
    Failure::user(Code::IO, format!("{what} cannot be read")).because(why)
}

fn of_log(name: &str, e: &ReadError) -> Failure {
    match e {
        ReadError::NotPlain(kind) => {
            Failure::user(Code::DAMAGED, format!("{name} is {}; it was not read", kind.name()))
        }
        ReadError::Io(e) => unreadable(name, &e.to_string()),
        _ => unreadable(name, "it changed"),
    }
}
