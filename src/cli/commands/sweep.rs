//! `runstore sweep`: every store of this user is recovered, once or again and again.
//!
//! Theory of operation. A sweep is `recover --apply` for each store on its own: what goes wrong with one is told,
//! and the others are swept all the same. A store in which another recovery works is passed over; that one does
//! what would be done here. With `--every` a memory for each store remembers what needs no second look
//! ([`Memory`]), and a pass in which nothing happened says nothing in text. Nothing stays behind when the program
//! ends, and nothing is started: who wants a timer of the system gets its text from `--print-unit`.
//!
//! Ordered steps of a pass: signals; which stores there are, anew, because one may have been made since; each of
//! them; the answer, written out at once; the pause. A signal or a reader that is gone ends the program before the
//! next action, or in the pause. What was begun is whole or is finished by the next sweep.
//! Spec: RS-REC-40, RS-REC-41, RS-REC-44, RS-REC-45.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use runstore::protocol::error::with_causes;
use runstore::recover::{self, Applied, ApplyError, Event, Memory, Wanted};
use runstore::store::{Host as _, Opened, RealHost, WriteHost as _, discover};
use serde::Serialize;

use super::recover::{AppliedText, applied_text, code_of, not_applied, read_policy, write_applied};
use crate::cli::args::{Format, SweepArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render::{escape, shell_word};

/// Longest part of a pause in which nobody looks for signals, in ms.
const LOOK_MS: u64 = 200;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PassText<'a> {
    schema: &'static str,
    now_ms: i64,
    roots: Vec<RootText<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RootText<'a> {
    root: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Runs in it, and how many of them were read.
    runs: usize,
    read: usize,
    events: Vec<EventText>,
    #[serde(flatten)]
    applied: AppliedText<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventText {
    cause: &'static str,
    text: String,
    runs: Vec<String>,
}

/// What came of one store.
struct Swept {
    root: PathBuf,
    outcome: Result<Applied, Missed>,
}

/// Why a store was not swept.
enum Missed {
    /// Another recovery is at work.
    Contended(String),
    /// Anything else.
    Failed(Code, String),
}

/// Answers.
pub(crate) fn run(args: &SweepArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = RealHost::new();
    let wanted =
        Wanted { policy: read_policy(&host, args.policy.as_deref())?, ..Wanted::default() };
    if let Some(kind) = args.print_unit {
        return super::sweep_unit::print(&host, args, kind, output);
    }
    let mut signals = Signals::new()?;
    let every_ms =
        args.every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1));
    let mut memories: HashMap<PathBuf, Memory> = HashMap::new();
    let mut last_news = String::new();
    loop {
        let begun_ms = host.steady_ms();
        let mut pass = Vec::new();
        for root in roots(&host, &args.targets) {
            if signals.came() {
                return Ok(Code::FINE);
            }
            let memory = memories.entry(root.clone()).or_default();
            let outcome = one(&host, &root, &wanted, memory, &mut signals);
            pass.push(Swept { root, outcome });
        }
        let Some(every_ms) = every_ms else { return once(&host, args, &pass, output) };
        tell_pass(&host, args, &pass, &mut last_news, output)?;
        // A pass that took long is followed by a whole pause: the machine has other work.
        let until_ms = host.steady_ms().max(begun_ms).saturating_add_unsigned(every_ms);
        while host.steady_ms() < until_ms {
            if signals.came() || is_abandoned(&host) {
                return Ok(Code::FINE);
            }
            let left_ms = until_ms.saturating_sub(host.steady_ms());
            host.wait_ms(u64::try_from(left_ms).unwrap_or(0).min(LOOK_MS));
        }
    }
}

/// The stores of a pass: those that were named, else the default ones that are there. Each once.
pub(super) fn roots(host: &RealHost, named: &[PathBuf]) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = if named.is_empty() {
        let known = discover::default_roots(host).into_iter();
        known.filter(|root| root.exists).map(|root| root.path).collect()
    } else {
        named.iter().map(|path| host.absolute(path)).collect()
    };
    let mut seen = std::collections::HashSet::new();
    // Two names of one store would contend with each other.
    roots.retain(|root| seen.insert(host.real_path(root).unwrap_or_else(|_| root.clone())));
    roots
}

/// Sweeps one store.
fn one(
    host: &RealHost,
    path: &Path,
    wanted: &Wanted,
    memory: &mut Memory,
    signals: &mut Signals,
) -> Result<Applied, Missed> {
    let failed = |failure: Failure| match failure {
        Failure::User { code, what, cause, .. } => {
            Missed::Failed(code, cause.map_or(what.clone(), |cause| format!("{what}: {cause}")))
        }
        Failure::ClosedPipe => Missed::Failed(Code::IO, "nobody reads the answer".to_owned()),
        Failure::Write(e) => Missed::Failed(Code::IO, e.to_string()),
    };
    // A path inside of a store leads to the store around it.
    let root = match super::open_at(host, path, host.now_ms(), wanted.times).map_err(failed)? {
        Opened::Store(store) => store.root,
        Opened::Run(..) => {
            let why = format!("{} is a run directory, not a store", path.display());
            return Err(Missed::Failed(Code::USAGE, why));
        }
    };
    let swept = recover::sweep(host, &root, wanted, memory, &mut |_| {
        if signals.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    swept.map_err(|e| match e {
        ApplyError::Contended(_) => Missed::Contended(with_causes(&e)),
        e => failed(not_applied(&root, &e)),
    })
}

/// The answer of a single pass.
fn once(
    host: &RealHost,
    args: &SweepArgs,
    pass: &[Swept],
    output: &mut Output,
) -> Result<Code, Failure> {
    if args.format == Format::Text {
        for swept in pass {
            match &swept.outcome {
                Ok(applied) => {
                    if pass.len() > 1 {
                        writeln!(output.writer(), "{}", escape(&swept.root.to_string_lossy()))?;
                    }
                    write_applied(
                        std::slice::from_ref(applied),
                        host.now_ms(),
                        args.format,
                        output,
                    )?;
                    for event in events(applied) {
                        writeln!(output.writer(), "{event}: {}", named(&event.runs))?;
                    }
                }
                Err(missed) => writeln!(output.writer(), "{}", line_of(&swept.root, missed))?,
            }
        }
        if pass.is_empty() {
            output.talk("this user has no run store yet; runstore roots says where it would be");
        }
    } else {
        write_pass(host.now_ms(), pass, args.format, output)?;
    }
    Ok(pass.iter().fold(Code::FINE, |code, swept| code.worse(code_of_one(swept))))
}

fn code_of_one(swept: &Swept) -> Code {
    match &swept.outcome {
        Ok(applied) => code_of(std::slice::from_ref(applied)),
        Err(Missed::Contended(_)) => Code::CONTENDED,
        Err(Missed::Failed(code, _)) => *code,
    }
}

/// Tells a pass of many: in JSON each, in text what is new.
fn tell_pass(
    host: &RealHost,
    args: &SweepArgs,
    pass: &[Swept],
    last_news: &mut String,
    output: &mut Output,
) -> Result<(), Failure> {
    if args.format != Format::Text {
        write_pass(host.now_ms(), pass, Format::Jsonl, output)?;
        return output.finish();
    }
    let (mut news, mut has_done) = (String::new(), false);
    for swept in pass {
        match &swept.outcome {
            Ok(applied) => {
                has_done |= !applied.done.is_empty() || !applied.finished.is_empty();
                news.extend(state_of(&swept.root, applied));
            }
            // Who holds the lock is at work, and by the next pass it is another story.
            Err(missed) => news += &(line_of(&swept.root, missed) + "\n"),
        }
    }
    if has_done || news != *last_news {
        let out = output.writer();
        let mut lines: Vec<String> = Vec::new();
        for swept in pass {
            match &swept.outcome {
                Ok(applied) => lines.extend(summary(&swept.root, applied, &news, last_news)),
                Err(missed) => lines.push(line_of(&swept.root, missed)),
            }
        }
        if lines.is_empty() {
            lines.push("nothing is left to be done".to_owned());
        }
        writeln!(out, "{}  {}", time(host.now_ms()), lines.join("; "))?;
        output.finish()?;
    }
    // What was done is over; what is left is no news until it changes.
    *last_news = news;
    Ok(())
}

/// What is left in a store, for telling whether it is news. Nothing for one in order.
fn state_of(root: &Path, applied: &Applied) -> Option<String> {
    let left = applied.left.iter().map(|left| format!("{} {}\n", left.id, left.run_id));
    let refused = applied.refused.iter().map(|r| format!("{} {}\n", r.run_id, r.verdict));
    let problems = applied.problems.iter().chain(&applied.stopped).map(|text| format!("{text}\n"));
    let state: String = left.chain(refused).chain(problems).collect();
    (!state.is_empty()).then(|| format!("{}\n{state}", root.display()))
}

/// The line of a store in which something happened, or in which something is left.
fn summary(root: &Path, applied: &Applied, news: &str, last_news: &str) -> Option<String> {
    let Applied { done, finished, left, refused, .. } = applied;
    let state = state_of(root, applied);
    let has_news = state.is_some() && news != last_news;
    if done.is_empty() && finished.is_empty() && !has_news {
        return None;
    }
    let mut line = escape(&root.to_string_lossy()).into_owned() + ": ";
    if let [only] = done.as_slice() {
        line += &format!("{} {}", only.action, escape(&only.run_id));
    } else {
        line += &format!("{} done", done.len() + finished.len());
    }
    line += &format!(", {} not done, {} left alone", left.len(), refused.len());
    for event in events(applied) {
        line += &format!(", {event}");
    }
    for problem in applied.problems.iter().chain(&applied.stopped) {
        line += &format!(", {}", escape(problem));
    }
    if let Some(id) = &applied.id {
        let root = root.to_string_lossy();
        line += &format!(" (runstore recover undo {id} --root {})", shell_word(&root));
    }
    Some(line)
}

fn line_of(root: &Path, missed: &Missed) -> String {
    let root = root.to_string_lossy();
    match missed {
        Missed::Contended(why) => format!("{}: passed over: {}", escape(&root), escape(why)),
        Missed::Failed(_, why) => format!("{}: not swept: {}", escape(&root), escape(why)),
    }
}

fn events(applied: &Applied) -> Vec<Event> {
    recover::events(applied.done.iter().filter_map(|done| Some((&*done.run_id, done.lost?))))
}

/// The first names of a group.
fn named(runs: &[String]) -> String {
    let shown: Vec<_> = runs.iter().take(5).map(|run| escape(run)).collect();
    let more = if runs.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}

/// An instant for people.
fn time(at_ms: i64) -> String {
    let since = std::time::Duration::from_millis(u64::try_from(at_ms).unwrap_or(0));
    let at = std::time::SystemTime::UNIX_EPOCH.checked_add(since);
    at.map_or_else(|| at_ms.to_string(), |at| humantime::format_rfc3339_seconds(at).to_string())
}

fn write_pass(
    now_ms: i64,
    pass: &[Swept],
    format: Format,
    output: &mut Output,
) -> Result<(), Failure> {
    let nothing = Applied::default();
    let root = |swept: &'_ Swept| swept.root.to_string_lossy().into_owned();
    let roots = pass.iter().map(|swept| {
        let (applied, outcome, why) = match &swept.outcome {
            Ok(applied) => (applied, "swept", None),
            Err(Missed::Contended(why)) => (&nothing, "contended", Some(why.clone())),
            Err(Missed::Failed(_, why)) => (&nothing, "failed", Some(why.clone())),
        };
        let text = |event: Event| EventText {
            cause: if event.restart { "restart" } else { "same-moment" },
            text: event.to_string(),
            runs: event.runs,
        };
        RootText {
            root: root(swept),
            outcome,
            why,
            runs: applied.looked_at,
            read: applied.read,
            events: events(applied).into_iter().map(text).collect(),
            applied: applied_text(std::slice::from_ref(applied), now_ms),
        }
    });
    let text = PassText { schema: "runstore.sweep/1", now_ms, roots: roots.collect() };
    let out = output.writer();
    match format {
        Format::Json => serde_json::to_writer_pretty(&mut *out, &text)?,
        Format::Jsonl | Format::Text => serde_json::to_writer(&mut *out, &text)?,
    }
    Ok(writeln!(out)?)
}

/// Whether nobody reads the answer any more; a pass that says nothing would never find out.
#[cfg(unix)]
fn is_abandoned(host: &RealHost) -> bool {
    host.is_output_abandoned()
}

/// The system does not tell before something is written.
#[cfg(not(unix))]
fn is_abandoned(_: &RealHost) -> bool {
    false
}

/// The signals that ask this program to end.
#[cfg(unix)]
struct Signals {
    taken: signal_hook::iterator::Signals,
    has_come: bool,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let taken = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|e| Failure::user(Code::IO, "signals cannot be answered").because(e))?;
        Ok(Self { taken, has_come: false })
    }

    /// Whether one has come since the start.
    fn came(&mut self) -> bool {
        self.has_come |= self.taken.pending().next().is_some();
        self.has_come
    }
}

/// Where signals are not taken: the system ends the program, and the next sweep finishes what it had begun.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self)
    }

    fn came(&mut self) -> bool {
        false
    }
}
