//! `runstore stop` and `runstore interrupt`: ask the runner of a live run.
//!
//! Ordered steps:
//! 1. judge the run. One that has ended or whose runner is gone is not asked: the answer says what is true and
//!    what may be done next. A record that is damaged, unsafe or newer is not touched;
//! 2. place the request ([`ask`]), which looks at everything once more where it matters;
//! 3. with `--signal`, wait for the request to be taken up, and send the request to end only if it is not
//!    ([`end_runner`]). Requests first: only they let the runner end in order;
//! 4. with `--wait`, look again and again until the runner has done it, or the time is over ([`until`]).
//!
//! Asking twice changes nothing more: the second answer says that it was asked already.
//!
//! Spec: RS-CTRL-20 to RS-CTRL-26.

use serde::Serialize;

use runstore::inspect::RunReport;
use runstore::protocol::Open;
use runstore::protocol::dialect;
use runstore::protocol::error::with_causes;
use runstore::protocol::limits::{REQUEST_TAKEN_MS, WAIT_LOOK_MS};
use runstore::protocol::status::StatusView;
use runstore::protocol::verdict::Verdict;
use runstore::protocol::written_control::Asking;
use runstore::store::ask::{AskError, Asked, Said, ask};
use runstore::store::atomic::Step;
use runstore::store::signal::end_runner;
use runstore::store::{Host as _, RealHost, Snapshot, WriteHost as _};

use super::one_run::{OneRun, goes_on};
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::run_args::{AskArgs, InterruptArgs, StopArgs};

/// What came of it, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The request lies there.
    Asked,
    /// It was taken up at once.
    TakenUp,
    /// An earlier one lies there or was taken up.
    AlreadyAsked,
    /// The run, or the step, has ended.
    Ended,
    /// The runner is finishing the run and takes no more requests.
    Closing,
    /// The runner is gone without an end on record.
    Dead,
    /// The records are not to be touched.
    Refused,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::TakenUp => "taken up",
            Self::AlreadyAsked => "already asked",
            Self::Ended => "already ended",
            Self::Closing => "closing",
            Self::Dead => "already dead",
            Self::Refused => "not asked",
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: &'static str,
    run_id: String,
    path: String,
    request: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<i64>,
    outcome: Outcome,
    /// The request, below the run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The signal that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
    /// Whether the runner has done it, where that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<bool>,
    recorded_state: Option<String>,
    liveness: &'static str,
    verdict: &'static str,
    because: String,
    next: Vec<Next>,
    must_not: Vec<String>,
    #[serde(skip)]
    code: Code,
}

/// What may be done next.
#[derive(Debug, Serialize)]
struct Next {
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Answer {
    fn new(run: &OneRun, asking: &Asking<'_>, report: &RunReport) -> Self {
        let step = match asking {
            Asking::Stop { step, .. } => *step,
            _ => None,
        };
        let mut answer = Self {
            schema: "runstore.control/1",
            run_id: report.run_id.clone(),
            path: run.shown(),
            request: asking.word(),
            step,
            outcome: Outcome::Asked,
            file: None,
            signal: None,
            done: None,
            recorded_state: None,
            liveness: report.liveness,
            verdict: report.verdict,
            because: String::new(),
            next: Vec::new(),
            must_not: Vec::new(),
            code: Code::FINE,
        };
        answer.sees(report);
        answer
    }

    /// Takes over what a look showed.
    fn sees(&mut self, report: &RunReport) {
        self.recorded_state = report.recorded_state.as_ref().map(|state| state.to_string());
        (self.liveness, self.verdict) = (report.liveness, report.verdict);
        self.code = Code::of_report(report);
    }

    /// An answer that asks nobody, with the advice that `inspect` gives.
    fn instead(mut self, outcome: Outcome, because: impl Into<String>, report: &RunReport) -> Self {
        (self.outcome, self.because) = (outcome, because.into());
        self.next = report
            .next
            .iter()
            .map(|n| Next { why: format!("{}: {}", n.action, n.why), command: n.command.clone() })
            .collect();
        self.must_not.clone_from(&report.must_not);
        self
    }

    fn may(&mut self, why: impl Into<String>, command: Option<String>) {
        self.next.push(Next { why: why.into(), command });
    }
}

/// Stops a run or one of its steps.
pub(crate) fn stop(args: &StopArgs, output: &mut Output) -> Result<Code, Failure> {
    verb("stop", &args.ask, Some(args), output)
}

/// Pauses a run.
pub(crate) fn interrupt(args: &InterruptArgs, output: &mut Output) -> Result<Code, Failure> {
    verb("interrupt", &args.ask, None, output)
}

fn verb(
    verb: &'static str,
    args: &AskArgs,
    stop: Option<&StopArgs>,
    output: &mut Output,
) -> Result<Code, Failure> {
    let host = RealHost::new();
    let run = OneRun::find(&host, verb, &args.run)?;
    let (snapshot, report) = run.look_around(&host)?;
    let asking = match stop {
        Some(stop) => {
            Asking::Stop { step: stop.step, as_file: dialect::stops_by_file(report.dialect) }
        }
        None => Asking::Interrupt,
    };
    let answer = Answer::new(&run, &asking, &report);
    let mut answer = match not_asked(answer, &snapshot, &report)? {
        Ok(answer) => return write(output, args.run.format, &answer),
        Err(answer) => answer,
    };
    place(&host, &run, args, &asking, &mut answer)?;
    let asks = matches!(answer.outcome, Outcome::Asked | Outcome::AlreadyAsked | Outcome::Closing);
    if stop.is_some_and(|stop| stop.signal) && asks {
        signal(&host, &run, &asking, &mut answer)?;
    }
    if args.wait && answer.outcome != Outcome::Ended {
        let ms = u64::try_from(args.timeout.as_millis()).unwrap_or(u64::MAX);
        let seen =
            until(&host, &run, ms, &mut |snapshot, report| is_done(&asking, snapshot, report));
        let (report, done) = seen?;
        answer.done = Some(done);
        answer.sees(&report);
        match (done, report.verdict_word) {
            (true, Some(Verdict::Orphaned)) => {
                answer = answer.instead(Outcome::Dead, dead(&report), &report);
            }
            (true, _) => answer.because = did(&answer),
            (false, _) => {
                answer.code = Code::TIMED_OUT;
                answer.because = format!(
                    "it was not done within {}; the request stays, and the runner may still take it up",
                    humantime::format_duration(args.timeout)
                );
            }
        }
    } else if answer.done.is_none() {
        let again = format!("runstore {verb} {} --wait", quoted(&answer.path));
        answer.may("wait until it is done", Some(again));
    }
    write(output, args.run.format, &answer)
}

/// Step 1: the answer, where nobody is to be asked; else the answer to be filled in.
fn not_asked(
    answer: Answer,
    snapshot: &Snapshot,
    report: &RunReport,
) -> Result<Result<Answer, Answer>, Failure> {
    let because = &report.because;
    let refused = |why: &str| format!("{why}: {because}");
    let instead = match report.verdict_word {
        Some(Verdict::NotARun) | None => {
            let what = format!("{} is no run", answer.path);
            return Err(Failure::user(Code::NOT_FOUND, what).because(because));
        }
        Some(Verdict::Unsafe | Verdict::Corrupt | Verdict::Unsupported) => {
            (Outcome::Refused, refused("its records are not touched"))
        }
        Some(Verdict::Conflict) => (Outcome::Refused, refused("its records disagree")),
        Some(Verdict::Orphaned) => (Outcome::Dead, dead(report)),
        Some(
            Verdict::StartFailed
            | Verdict::NeverStarted
            | Verdict::Settling
            | Verdict::Finished
            | Verdict::FinishedUnproven,
        ) => (Outcome::Ended, format!("no request reaches it any more: {because}")),
        // A pause without an end is not confirmed: its steps may still be ending.
        Some(Verdict::Paused) if !goes_on(snapshot, report) => {
            (Outcome::Ended, "it is paused, and no process of it is left to be asked".to_owned())
        }
        Some(
            Verdict::Paused
            | Verdict::Starting
            | Verdict::StartStuck
            | Verdict::Running
            | Verdict::RunningUnverified,
        ) => return Ok(Err(answer)),
        // A word of a later version: who does not know it acts on nothing.
        Some(_) => (Outcome::Refused, refused("this program does not know what is true of it")),
    };
    Ok(Ok(answer.instead(instead.0, instead.1, report)))
}

fn dead(report: &RunReport) -> String {
    format!("nobody is left who could take a request up: {}", report.because)
}

/// Step 2.
fn place(
    host: &RealHost,
    run: &OneRun,
    args: &AskArgs,
    asking: &Asking<'_>,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let place = run.open(host)?;
    let said = Said { source: "runstore", reason: args.reason.as_deref() };
    let (outcome, file, because) = match ask(host, &place.run, asking, said) {
        Ok(Asked::Placed(file)) => (Outcome::Asked, Some(file), reader(answer)),
        Ok(Asked::Taken(file)) => {
            (Outcome::TakenUp, Some(file), "its runner has taken the request up".to_owned())
        }
        Ok(Asked::Already(file)) => (
            Outcome::AlreadyAsked,
            Some(file),
            format!("an earlier request lies there; {}", reader(answer)),
        ),
        Ok(_) => {
            let why = "its runner has taken an earlier request up and is at it";
            (Outcome::AlreadyAsked, None, why.to_owned())
        }
        Err(e @ (AskError::Ended(_) | AskError::StepEnded(..))) => {
            answer.code = Code::FINE;
            (Outcome::Ended, None, e.to_string())
        }
        Err(e @ AskError::Closed(_)) => {
            (Outcome::Closing, None, format!("{e}: it is finishing the run"))
        }
        Err(e) => return Err(not_placed(run, &e)),
    };
    (answer.outcome, answer.file, answer.because) = (outcome, file, because);
    Ok(())
}

/// Who will read it, as far as that is known.
fn reader(answer: &Answer) -> String {
    match answer.liveness {
        "live" => "its runner lives and looks into its inbox within 5 s".to_owned(),
        word => format!("whether its runner lives to take it up cannot be told (process {word})"),
    }
}

fn not_placed(run: &OneRun, e: &AskError) -> Failure {
    use std::io::ErrorKind::{AlreadyExists, PermissionDenied};
    let code = match e {
        AskError::NoStep(..) | AskError::Unknown(_) | AskError::Refused(_) => Code::USAGE,
        AskError::NoStatus => Code::UNDETERMINED,
        AskError::Status(_) => Code::DAMAGED,
        // Something else stands there, or it is another user's.
        AskError::Write(e)
            if e.step == Step::CreateDirectory
                && matches!(e.source.kind(), AlreadyExists | PermissionDenied) =>
        {
            Code::DAMAGED
        }
        _ => Code::IO,
    };
    let failure = Failure::user(code, format!("{} was not asked", run.shown()));
    let failure = failure.because(with_causes(e));
    match e {
        AskError::NoStatus => failure.hint("the launch has not come so far; ask again in a moment"),
        AskError::NoStep(..) => {
            failure.hint(format!("runstore inspect {} shows its steps", quoted(&run.shown())))
        }
        _ => failure,
    }
}

/// Step 3.
fn signal(
    host: &RealHost,
    run: &OneRun,
    asking: &Asking<'_>,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let file = answer.file.clone();
    let mut taken = |snapshot: &Snapshot, report: &RunReport| {
        let lies =
            file.as_ref().is_some_and(|file| snapshot.evidence.control.pending.contains(file));
        is_done(asking, snapshot, report) || (file.is_some() && !lies)
    };
    let (report, is_taken) = until(host, run, REQUEST_TAKEN_MS, &mut taken)?;
    answer.sees(&report);
    if is_taken {
        answer.because = "its runner has taken the request up, so no signal was sent".to_owned();
        return Ok(());
    }
    // Which other runs have its process is asked anew: right before the act.
    let (snapshot, report) = run.look_around(host)?;
    match end_runner(host, &snapshot.evidence) {
        Ok(()) => {
            answer.signal = Some("SIGTERM");
            answer.because =
                "its runner did not take the request up, so it was sent SIGTERM".to_owned();
        }
        Err(e) => {
            answer.sees(&report);
            answer.because = format!(
                "its runner did not take the request up, and no signal was sent: {}",
                with_causes(&e)
            );
            answer.code = Code::ATTENTION;
        }
    }
    Ok(())
}

/// Whether what was asked is done, or cannot be done any more.
fn is_done(asking: &Asking<'_>, snapshot: &Snapshot, report: &RunReport) -> bool {
    let status = snapshot.evidence.status.value();
    let step = match asking {
        Asking::Stop { step, .. } => *step,
        _ => None,
    };
    let step_ended = step.and_then(|step| usize::try_from(step).ok()).is_some_and(|step| {
        let found = status.and_then(|s: &StatusView| s.steps.get(step));
        found
            .and_then(|step| step.state.as_ref().and_then(Open::known))
            .is_some_and(|state| !state.is_open())
    });
    step_ended || !goes_on(snapshot, report)
}

fn did(answer: &Answer) -> String {
    let state = answer.recorded_state.as_deref().unwrap_or("unknown");
    match answer.step {
        Some(step) => format!("step {step} has ended; the run is {state}"),
        None => format!("the run is {state}"),
    }
}

/// Step 4, and the whole of waiting: looks at the run until `wanted` holds or so many ms are over. Gives the last
/// look, and whether it holds.
fn until(
    host: &RealHost,
    run: &OneRun,
    ms: u64,
    wanted: &mut dyn FnMut(&Snapshot, &RunReport) -> bool,
) -> Result<(RunReport, bool), Failure> {
    let began_ms = host.steady_ms();
    loop {
        let (snapshot, report) = run.look(host)?;
        if wanted(&snapshot, &report) {
            return Ok((report, true));
        }
        let waited_ms = u64::try_from(host.steady_ms() - began_ms).unwrap_or_default();
        if waited_ms >= ms {
            return Ok((report, false));
        }
        host.wait_ms(WAIT_LOOK_MS.min(ms - waited_ms));
    }
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn write(output: &mut Output, format: Format, answer: &Answer) -> Result<Code, Failure> {
    if format != Format::Text {
        super::acting::write_json(output, answer)?;
        return Ok(answer.code);
    }
    use std::io::Write as _;
    let out = output.writer();
    let what = answer.step.map_or_else(String::new, |step| format!(" of step {step}"));
    let id = render::escape(&answer.run_id);
    // Whatever it was that led there: it is done.
    let word = if answer.done == Some(true) && answer.outcome != Outcome::Dead {
        "done"
    } else {
        answer.outcome.word()
    };
    writeln!(out, "{word}  {id}  ({}{what})", answer.request)?;
    let state = answer.recorded_state.as_deref().map_or("no state recorded".to_owned(), |state| {
        format!("recorded '{}'", render::escape(state))
    });
    writeln!(out, "  {state} · process {} · {}", answer.liveness, answer.verdict)?;
    render::line(out, "path", &answer.path)?;
    if let Some(file) = &answer.file {
        render::line(out, "request", file)?;
    }
    if let Some(signal) = answer.signal {
        render::line(out, "signal", signal)?;
    }
    render::line(out, "because", &answer.because)?;
    for next in &answer.next {
        render::line(out, "you may", &next.why)?;
        if let Some(command) = &next.command {
            render::line(out, "", command)?;
        }
    }
    for not in &answer.must_not {
        render::line(out, "must not", not)?;
    }
    Ok(answer.code)
}
