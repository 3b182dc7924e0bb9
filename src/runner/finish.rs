//! The end of a run, in the order that every reader relies on.
//!
//! Ordered steps of the end of a run:
//! 1. close the inbox, and take up once more what came before it was closed: a stop that a client takes
//!    for accepted is honoured;
//! 2. publish the result. Before the status: a run that says it has ended has a result (facts IR-27). If
//!    it cannot be published for a reason that stays, the run has failed, and says so;
//! 3. the status with the end, durable, and whole: state, steps, instant;
//! 4. the indexes, which follow the status;
//! 5. the event, and the news of a nested run, which are about what the status says already;
//! 6. the account of the writers in the candidate. Last of what tells of the run: whoever finds it knows
//!    that everything before it is there;
//! 7. release the lease of a revived run, and only then
//! 8. say in the candidate that it was released (`RS-CAND-07`).
//!
//! Where there is no room, the reserve of the run directory is given back and the step is tried again,
//! because the process that knows the outcome is about to end.
//!
//! What a crash leaves is what the existing readers know (facts CW-20 to CW-29): a closed inbox; a result
//! with a status that says `running`; an end without its indexes; and without an account of writers an
//! end that the shim accounts for. Spec: RS-STEP-07, RS-STEP-08.

use crate::protocol::error::with_causes;
use crate::protocol::nested_summary::ChildEvent;
use crate::protocol::written_nested::SummaryText;
use crate::protocol::written_run::RunResult;
use crate::protocol::written_status::StatusPatch;
use crate::protocol::{RunState, Word as _, limits, written};
use crate::store::host::WriteHost;
use crate::store::inbox::{self, Request};
use crate::store::lease::{self, Released};
use crate::store::publish::{self, PublishError};
use crate::store::retry::RetryPolicy;
use crate::store::sidecar::PatchError;
use crate::store::{candidate, markers, reserve};

use super::board::{Board, Cut};
use super::grow::refuse_append;
use super::job::{Job, News, RunnerError, tell, update};
use super::output;
use super::session::cut_of;

/// What holds at the end of a run.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub state: RunState,
    /// Why it did not succeed, for people.
    pub error: Option<String>,
    /// What could not be made of the rest, in words.
    pub problems: Vec<String>,
}

/// Ends a run. See the module's ordered steps.
pub(super) fn finish<H: WriteHost>(
    job: &Job<'_, H>,
    mut board: Board,
    result_file: &str,
    news: Option<&News<H::Dir>>,
) -> Result<Finished, RunnerError> {
    let (host, place) = (job.host, &job.place);
    let (run_dir, run_id) = (place.run_dir, place.run_id.as_str());
    let mut problems = Vec::new();
    let mut note = |what: &str, e: &dyn std::error::Error| {
        problems.push(format!("{what}: {}", with_causes(e)));
    };
    if let Err(e) = inbox::close(host, run_dir, Some(board.outcome())) {
        note("the inbox could not be closed", &e);
    }
    take_what_is_left(job, &mut board);
    let ended_at_ms = host.now_ms();
    let (mut state, mut error) = (board.outcome(), board.error());
    if let Err(e) = publish(job, &board, result_file, state, error.as_deref(), ended_at_ms) {
        // Nobody would be told of a success that has no result (facts T-12).
        note("the run is told as failed", &e);
        state = RunState::Failed;
        error = Some(with_causes(&e));
    }
    board.activity = board.activity.at_rest();
    let patch = board.status(run_id, job.instance_id, host.now_ms());
    let patch = patch.state(state).ended_at_ms(ended_at_ms);
    let patch = match &error {
        Some(error) => patch.error(error),
        None => patch,
    };
    insist(job, || update(job, &patch), is_full).map_err(|e| match e {
        PatchError::Refused(..) => RunnerError::Displaced(e),
        e => RunnerError::Status(e),
    })?;
    let retry = RetryPolicy::default();
    let indexed = insist(
        job,
        || markers::update(host, place.runs_root, place.run_id, state, None, &retry),
        |e| e.is_capacity(),
    );
    match indexed {
        Ok(done) => done.problems.iter().for_each(|e| note("the indexes", e)),
        Err(e) => note("the indexes", &e),
    }
    let duration_ms = ended_at_ms - board.started_at_ms;
    let members =
        [("status", written::string(state.as_str())), ("durationMs", duration_ms.to_string())];
    tell(job, "subagent.run.completed", true, &members);
    if let Some(news) = news {
        let ids = (run_id, job.async_dir);
        let of = board.summary(ids, state, error.as_deref(), ended_at_ms);
        let (pid, session_id) = (Some(host.system().own_pid), job.session_id);
        news.put(job, ChildEvent::Completed, &SummaryText { pid, session_id, ..of });
    }
    let write =
        || candidate::record_writers(host, run_dir, run_id, job.instance_id, &board.writers);
    if let Err(e) = insist(job, write, is_full) {
        note("the account of the writers", &e);
    }
    if let Some((id, token)) = job.lease {
        let released = match lease::release(host, place.temp, id, token) {
            Ok(Released::Free { .. }) => true,
            Ok(Released::NotOurs) => false,
            Err(e) => {
                note("the lease", &e);
                false
            }
        };
        if let Err(e) = candidate::acknowledge_release(host, run_dir, token, released) {
            note("the release of the lease", &e);
        }
    }
    // An end needs its room no more.
    let _ = reserve::release(host, run_dir);
    Ok(Finished { state, error, problems })
}

/// Step 1, second half. Only what still means something: the steps have ended.
fn take_what_is_left<H: WriteHost>(job: &Job<'_, H>, board: &mut Board) {
    let taken = inbox::take(job.host, job.place.run_dir, job.place.run_id.as_str());
    for request in taken.map(|taken| taken.requests).unwrap_or_default() {
        if let Request::Append(append) = &request {
            refuse_append(job, &append.id, "the run has ended");
        }
        if let (Some(Cut::Stopped(why)), Some(Cut::Interrupted)) = (cut_of(request), &board.cut) {
            tell(job, "subagent.run.stopped", false, &[("message", written::string(&why))]);
            board.cut = Some(Cut::Stopped(why));
        }
    }
}

/// Step 2. A run without a session has no result (facts S-98).
fn publish<H: WriteHost>(
    job: &Job<'_, H>,
    board: &Board,
    file: &str,
    state: RunState,
    error: Option<&str>,
    ended_at_ms: i64,
) -> Result<(), PublishError> {
    let Some(session_id) = job.session_id else { return Ok(()) };
    let (host, run_dir) = (job.host, job.place.run_dir);
    let outputs: Vec<_> =
        (0..board.accounts.len()).map(|step| output::tail(host, run_dir, step)).collect();
    let text = RunResult {
        run_id: job.place.run_id.as_str(),
        session_id,
        completion_owner_id: job.completion_owner_id,
        mode: board.mode,
        state,
        error,
        timed_out: state == RunState::Failed && matches!(board.cut, Some(Cut::TimedOut(_))),
        steps: &board.accounts,
        outputs: &outputs,
        ended_at_ms,
        duration_ms: ended_at_ms - board.started_at_ms,
        cwd: job.cwd,
        async_dir: job.async_dir,
    }
    .text();
    let retry = RetryPolicy::default();
    let write = || publish::publish(host, job.results, file, &text, Some(run_dir), &retry);
    let is_full = |e: &PublishError| matches!(e, PublishError::Write(e) if e.is_capacity());
    insist(job, write, is_full).map(drop)
}

fn is_full(e: &PatchError) -> bool {
    matches!(e, PatchError::Write(e) if e.is_capacity())
}

/// Tries again while there is no room, after the reserve was given back.
fn insist<H: WriteHost, T, E>(
    job: &Job<'_, H>,
    act: impl FnMut() -> Result<T, E>,
    is_full: impl Fn(&E) -> bool,
) -> Result<T, E> {
    // The first time there may be room at once.
    let room = || matches!(reserve::release(job.host, job.place.run_dir), Ok(true));
    again(job, act, is_full, room)
}

/// Changes the status, and tries again while there is no room. The reserve is for what comes at the end.
pub(super) fn update_patiently<H: WriteHost>(
    job: &Job<'_, H>,
    patch: &StatusPatch,
) -> Result<(), PatchError> {
    again(job, || update(job, patch).map(drop), is_full, || false)
}

fn again<H: WriteHost, T, E>(
    job: &Job<'_, H>,
    mut act: impl FnMut() -> Result<T, E>,
    is_full: impl Fn(&E) -> bool,
    make_room: impl Fn() -> bool,
) -> Result<T, E> {
    let mut attempt = 0;
    loop {
        match act() {
            Err(e) if is_full(&e) && attempt < limits::PROOF_ATTEMPTS => {
                attempt += 1;
                if !make_room() {
                    job.host.wait_ms(limits::PROOF_RETRY_MS);
                }
            }
            other => return other,
        }
    }
}
