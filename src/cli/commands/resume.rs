//! `runstore resume`: a paused run of commands goes on in a new one.
//!
//! Ordered steps:
//! 1. judge the run: only one that is paused, and whose session is there and free, can be resumed;
//! 2. read from its session file what is left to be done. Nothing left is no error of the run, and starts
//!    nothing;
//! 3. launch a new run that takes over the session, under its lease, and the slot, if the paused run holds
//!    one. Its runner says in the session file what it has done of it, so that a second resume does not do it
//!    again.
//!
//! The directory of the paused run is read and not changed. A run of an agent is resumed by its own harness,
//! which knows how; the answer says so. Spec: RS-STEP-10, RS-START-46, RS-SLOT-17, RS-DIAG-25.

use std::path::Path;
use std::sync::Arc;

use runstore::inspect::RunReport;
use runstore::launcher::SlotWish;
use runstore::protocol::command_session::CommandSession;
use runstore::protocol::error::with_causes;
use runstore::protocol::limits::CONFIG_MAX_BYTES;
use runstore::protocol::status::StatusView;
use runstore::protocol::written_launch::RevivalText;
use runstore::store::host::Part;
use runstore::store::slot::{self, Source};
use runstore::store::{Host as _, RealHost};

use super::launch::{Wish, launch};
use super::one_run::OneRun;
use super::run::Manner;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::start_args::ResumeArgs;

/// Starts what is left of a paused run.
pub(crate) fn run(args: &ResumeArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = Arc::new(RealHost::new());
    let run = OneRun::find(&host, "resume", &args.run)?;
    let (snapshot, report) = run.look_around(&host)?;
    let status = snapshot.evidence.status.value().ok_or_else(|| refused(&report, &run))?;
    if report.resumable != Some(true) {
        return Err(refused(&report, &run));
    }
    let session_file = status.resume_session_file().ok_or_else(|| refused(&report, &run))?;
    let left = left(&host, session_file, &report)?;
    if left.groups.is_empty() {
        return Err(not_resumed(&report)
            .because(format!("nothing is left to be done: run {} has done the rest", left.run_id))
            .hint("start the commands again with runstore run"));
    }
    let root = run.temp().ok_or_else(|| {
        not_resumed(&report)
            .because("its directory lies in no store")
            .hint("name the store and the id: runstore resume ID --root STORE")
    })?;
    let source_run_id = report.run_id.as_str();
    let source = Source {
        run_id: source_run_id,
        status: Some((status.run_id.as_deref(), status.state.clone())),
    };
    let wish = Wish {
        root,
        groups: &left.groups,
        cwd: Path::new(&left.cwd),
        session: status.session_id.as_deref(),
        timeout: args.timeout,
        slot: holds_slot(&host, root, status, source_run_id)
            .then_some(SlotWish { limit: u32::MAX, source: Some(source) }),
        revival: Some(RevivalText { session_file, source_run_id }),
    };
    let launched = launch(&host, &wish, output)?;
    let manner = Manner { detach: args.manner.detach, format: args.run.format };
    super::run::begun(&host, &launched, manner, args.run.root.as_deref(), output)
}

fn not_resumed(report: &RunReport) -> Failure {
    Failure::user(Code::ATTENTION, format!("run {} is not resumed", report.run_id))
}

/// Why a run cannot be resumed.
fn refused(report: &RunReport, run: &OneRun) -> Failure {
    let why = report.resumable_because.map_or_else(
        || format!("it is {}: {}", report.verdict, report.because),
        |why| format!("it is {}, and {why}", report.verdict),
    );
    let code = Code::of_report(report).worse(Code::ATTENTION);
    Failure::user(code, format!("run {} is not resumed", report.run_id))
        .because(why)
        .hint(format!("runstore inspect {} shows what is true of it", run.shown()))
}

/// What is left, by the session file.
fn left(host: &RealHost, file: &str, report: &RunReport) -> Result<CommandSession, Failure> {
    let unreadable = |why: String| {
        not_resumed(report).because(format!("its session file {file} cannot be used: {why}")).hint(
            "a run of an agent is resumed by the program that started it; its session is not ours to read",
        )
    };
    let path = Path::new(file);
    let (parent, name) = path
        .parent()
        .zip(path.file_name())
        .ok_or_else(|| unreadable("it is no path of a file".to_owned()))?;
    let dir = host.open_dir(parent).map_err(|e| unreadable(e.to_string()))?;
    let part = Part::All(CONFIG_MAX_BYTES);
    let read = host.read_at(&dir, name, part).map_err(|e| unreadable(e.to_string()))?;
    CommandSession::last(&String::from_utf8_lossy(&read.bytes))
        .map_err(|e| unreadable(with_causes(&e)))
}

/// Whether the paused run holds a slot of its session.
fn holds_slot(host: &RealHost, root: &Path, status: &StatusView, run_id: &str) -> bool {
    let instance = status.overlay.as_ref().and_then(|proof| proof.as_ref().ok());
    let Some((session, proof)) = status.session_id.as_deref().zip(instance) else { return false };
    // What cannot be seen is not taken over; it stays with the paused run.
    let Ok(temp) = host.open_dir(root) else { return false };
    let held = slot::of_runner(host, &temp, session, run_id, &proof.instance_id);
    matches!(held, Ok(Some(_)))
}
