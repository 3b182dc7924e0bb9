//! `runstore witness`: attach to a live run that has no observer, and prove its end.
//!
//! Theory of operation. The library does it ([`observer::witness`]); this says what came of it. That the
//! process is held is told at once and on standard error, because from then on its end can be observed, and
//! whoever waits for that must not wait for the end of the run.
//!
//! Spec: RS-OBS-31.

use std::io::Write as _;

use serde::Serialize;

use runstore::observer::{self, Subject, WitnessError, Witnessed};
use runstore::protocol::Word as _;
use runstore::protocol::error::with_causes;
use runstore::protocol::proof::ProofState;
use runstore::store::host::Exit;
use runstore::store::proof::RunPlace;
use runstore::store::{RealHost, Snapshot};

use super::one_run::OneRun;
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;
use crate::cli::run_args::WitnessArgs;

/// The answer in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: &'static str,
    run_id: String,
    path: String,
    /// What came of it, in one word.
    outcome: &'static str,
    /// The state of the proof that holds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_evidence: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    slot_released: bool,
    /// Why, in words.
    because: String,
    problems: Vec<String>,
}

/// Answers.
pub(crate) fn run(args: &WitnessArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = RealHost::new();
    let run = OneRun::find(&host, "witness", &args.run)?;
    let (snapshot, _) = run.look(&host)?;
    let instance = instance(&snapshot).ok_or_else(|| {
        Failure::user(Code::UNDETERMINED, format!("{} names no runner instance", run.shown()))
            .because("neither its proof nor its candidate nor its status says which one it is for")
            .hint(format!("runstore inspect {} says what is known", run.shown()))
    })?;
    let place = run.open(&host)?;
    let Some(temp) = &place.temp else {
        let what = format!("{} lies in no store", run.shown());
        return Err(Failure::user(Code::USAGE, what)
            .because("what a proof frees lies beside its runs root, in the temp root"));
    };
    let run_id = run.id()?;
    let place = RunPlace { temp, runs_root: &place.runs, run_dir: &place.run, run_id: &run_id };
    let subject = Subject { place, instance_id: &instance };
    let ms = args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let shown = run.name.to_string_lossy().into_owned();
    let mut held =
        |pid| output.talk(&format!("watching process {pid} of {}", render::escape(&shown)));
    let witnessed = observer::witness(&host, &subject, ms, &mut held).map_err(|e| {
        let code = match e {
            WitnessError::NoProcess => Code::UNDETERMINED,
            _ => Code::IO,
        };
        Failure::user(code, format!("{shown} was not witnessed")).because(with_causes(&e))
    })?;
    let (answer, code) = answer(&run, witnessed);
    write(output, args.run.format, &answer)?;
    Ok(code)
}

/// The runner that a proof of this run has to be about.
fn instance(snapshot: &Snapshot) -> Option<String> {
    let e = &snapshot.evidence;
    let candidate = e.candidate.value().map(|candidate| candidate.instance_id.clone());
    let proof = || e.proof.value().map(|proof| proof.instance_id.clone());
    let overlay = || e.status.value().and_then(|s| s.overlay_instance().map(str::to_owned));
    candidate.or_else(proof).or_else(overlay)
}

fn answer(run: &OneRun, witnessed: Witnessed) -> (Answer, Code) {
    let mut answer = Answer {
        schema: "runstore.witness/1",
        run_id: run.name.to_string_lossy().into_owned(),
        path: run.shown(),
        outcome: "settled",
        proof: None,
        exit_evidence: None,
        exit_code: None,
        signal: None,
        slot_released: false,
        because: String::new(),
        problems: Vec::new(),
    };
    let of_proof = |state| match state {
        ProofState::Observed => Code::FINE,
        _ => Code::UNDETERMINED,
    };
    let code = match witnessed {
        Witnessed::Settled(state) => {
            answer.proof = Some(state.as_str());
            answer.because = format!("its proof is final: {state}");
            of_proof(state)
        }
        Witnessed::Attended(pid) => {
            answer.outcome = "attended";
            answer.because = format!("its observer lives and will prove its end: process {pid}");
            Code::FINE
        }
        Witnessed::Observed(exit, settled) => {
            let proof = &settled.finalised.proof;
            answer.outcome = "observed";
            answer.proof = Some(proof.state.as_str());
            answer.exit_evidence = Some("pidfd-exit");
            answer.slot_released = settled.slot_released;
            answer.because = format!("the system told how the runner ended: {}", said(&exit));
            if proof.state != ProofState::Observed {
                answer.because +=
                    "; what became of its writers is not known, so the proof is not observed";
            }
            (answer.exit_code, answer.signal) = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(name) => (None, Some(name)),
            };
            answer.problems = settled.problems;
            of_proof(proof.state)
        }
        Witnessed::Unobserved(finalised, grade) => {
            answer.outcome = "unobserved";
            answer.proof = Some(finalised.proof.state.as_str());
            answer.exit_evidence = Some(grade.as_str());
            answer.because = "its process is gone and nobody saw how it ended".to_owned();
            of_proof(finalised.proof.state)
        }
        Witnessed::Undetermined(why) => {
            answer.outcome = "undetermined";
            answer.because = format!("nothing was done: {why}");
            Code::UNDETERMINED
        }
        Witnessed::StillRunning => {
            answer.outcome = "still-running";
            answer.because = "the time is over, and nobody witnesses its end now".to_owned();
            Code::TIMED_OUT
        }
        // The library may come to tell more.
        _ => Code::UNDETERMINED,
    };
    (answer, code)
}

fn said(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(name) => name.clone(),
    }
}

fn write(output: &mut Output, format: Format, answer: &Answer) -> Result<(), Failure> {
    if format != Format::Text {
        return super::acting::write_json(output, answer);
    }
    let out = output.writer();
    writeln!(out, "{}  {}", answer.outcome, render::escape(&answer.run_id))?;
    if let Some(proof) = answer.proof {
        let evidence = answer.exit_evidence.map_or_else(String::new, |it| format!(" · by {it}"));
        writeln!(out, "  proof     {proof}{evidence}")?;
    }
    writeln!(out, "  path      {}", render::escape(&answer.path))?;
    writeln!(out, "  because   {}", render::escape(&answer.because))?;
    if answer.slot_released {
        writeln!(out, "  released  its capacity slot")?;
    }
    for problem in &answer.problems {
        writeln!(out, "  problem   {}", render::escape(problem))?;
    }
    Ok(())
}
