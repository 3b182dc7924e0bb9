//! A run of plain commands is started: what `run` and `resume` have in common.
//!
//! Ordered steps: the store, which is made if it is not there; what is refused before anything is made;
//! the launch itself, led by the library to one of its ends. This program is the launcher; the shim and the
//! runner are this program again, under hidden verbs.
//!
//! A start that fails is told with the words of the runner and the end of its standard error, and with the
//! place where its record lies. Spec: RS-START-35, RS-STEP-09, RS-STEP-10.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runstore::launcher::{
    Failed, Outcome, Place, Refusal, Refused, Request, Shims, SlotWish, Started, prepare,
};
use runstore::protocol::command_step::{self, CommandStep};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::protocol::{RunMode, layout};
use runstore::store::retry::RetryPolicy;
use runstore::store::slot::SlotError;
use runstore::store::{RealHost, directory, identity};

use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// What is to be started.
pub(crate) struct Wish<'a> {
    /// The store, absolute.
    pub(crate) root: &'a Path,
    /// The commands.
    pub(crate) groups: &'a [Vec<CommandStep>],
    /// Where they run, absolute.
    pub(crate) cwd: &'a Path,
    /// The session that the run belongs to.
    pub(crate) session: Option<&'a str>,
    /// How long it may take.
    pub(crate) timeout: Option<Duration>,
    /// The slot, if it is to have one.
    pub(crate) slot: Option<SlotWish<'a>>,
    /// What is resumed, if something is.
    pub(crate) revival: Option<RevivalText<'a>>,
}

/// A run that was started.
pub(crate) struct Launched {
    /// The run.
    pub(crate) run_id: String,
    /// Its directory.
    pub(crate) path: PathBuf,
    /// The store, absolute.
    pub(crate) root: PathBuf,
    /// The runner.
    pub(crate) pid: u32,
    /// How many steps it has.
    pub(crate) steps: usize,
}

/// Starts it.
pub(crate) fn launch(
    host: &Arc<RealHost>,
    wish: &Wish<'_>,
    output: &Output,
) -> Result<Launched, Failure> {
    let failed =
        |code: Code, what: &str| Failure::user(code, format!("the run was not started: {what}"));
    let steps = command_step::steps_text(wish.groups);
    let mode = match wish.groups {
        [group] if group.len() == 1 => RunMode::Single,
        [_] => RunMode::Parallel,
        _ => RunMode::Chain,
    };
    let root = wish.root;
    let shown = root.display().to_string();
    let no_root = |why: String| {
        failed(Code::IO, &format!("the store {shown} cannot be used"))
            .because(why)
            .hint("name a directory of your own: runstore run --root PATH …")
    };
    let temp = directory::create_root(&**host, root).map_err(|e| no_root(e.to_string()))?;
    let retry = RetryPolicy::default();
    let runs_root = directory::create_path(&**host, &temp, &[layout::RUNS_DIR], &retry)
        .map_err(|e| no_root(with_causes(&e)))?;
    let runs_path = root.join(layout::RUNS_DIR);
    let run_id = RunId::parse(&identity::instance_id(&**host))
        .map_err(|e| failed(Code::INTERNAL, "no id could be made").because(with_causes(&e)))?;
    let result = root.join(layout::RESULTS_DIR).join(format!("{run_id}.json"));
    let timeout_ms = wish.timeout.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let request = Request {
        session_id: wish.session,
        timeout_ms: timeout_ms.map(|ms| ms.max(1)),
        slot: wish.slot.clone(),
        revival: wish.revival,
        ..Request::new(&run_id, mode, &steps, wish.cwd, &result)
    };
    let place =
        Place { temp: &temp, temp_path: root, runs_root: &runs_root, runs_path: &runs_path };
    let program = host
        .own_program()
        .map_err(|e| failed(Code::IO, "this program does not find itself").because(e))?;
    let runner: Vec<OsString> = vec![program.clone().into(), "runner".into()];
    let mut shims = Shims::new(Arc::clone(host), program.into(), root.to_path_buf(), runner);
    let refused = |e: Refused| refusal(&e, wish.cwd);
    let prepared = prepare(&**host, place, request).map_err(refused)?;
    let mut launch = prepared.start(&mut shims).map_err(refused)?;
    let path = runs_path.join(run_id.as_str());
    match launch.wait() {
        Outcome::Started(Started { pid, problems, .. }) => {
            for problem in problems {
                output.talk(&format!("note: {}", render::escape(&with_causes(problem))));
            }
            Ok(Launched {
                run_id: run_id.to_string(),
                path,
                root: root.to_path_buf(),
                pid: *pid,
                steps: wish.groups.iter().map(Vec::len).sum(),
            })
        }
        outcome => Err(not_begun(outcome, &path)),
    }
}

/// Nothing was started.
fn refusal(refused: &Refused, cwd: &Path) -> Failure {
    let (code, hint) = match &refused.why {
        Refusal::WorkingDirectory(_) => {
            (Code::USAGE, format!("{} has to be there: --cwd PATH", cwd.display()))
        }
        Refusal::Slot(SlotError::Full { .. }) => (
            Code::CONTENDED,
            "wait for a run of this session to end, or allow more: --slot-limit N".to_owned(),
        ),
        Refusal::Spawn(_) => {
            (Code::START_FAILED, "nothing runs and nothing is left; try again".to_owned())
        }
        _ => (Code::IO, "nothing runs; free what is named and try again".to_owned()),
    };
    Failure::user(code, "the run was not started").because(with_causes(refused)).hint(hint)
}

/// A process was made, and was not let in.
fn not_begun(outcome: &Outcome, path: &Path) -> Failure {
    let Some(failed) = outcome.failed() else {
        return Failure::user(Code::INTERNAL, "the run was started and is said not to be");
    };
    let mut why = failed.to_string();
    if let Failed { stderr_tail: Some(tail), .. } = failed {
        why = format!("{why}; its standard error ends with: {}", tail.trim_end());
    }
    Failure::user(Code::START_FAILED, "the run did not start")
        .because(why)
        .hint(format!("runstore inspect {} shows what is on record", path.display()))
}
