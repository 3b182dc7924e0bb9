//! A run in the foreground: it is followed to its end, which becomes the exit code of the program.
//!
//! Theory of operation. The run does not know that anybody watches. So this is a reader like any other: it
//! judges the run as `inspect` does, again and again, until its end is recorded and proven, or nothing more
//! can come. Whoever ends this program ends the watching only.
//! Nothing of the store is changed.

use std::path::Path;

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::Word as _;
use runstore::protocol::evidence::Times;
use runstore::protocol::verdict::Verdict;
use runstore::store::{Depth, Host as _, Opened, RealHost, Store, WriteHost as _};

use super::launch::Launched;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// Pause between two looks, in ms.
const LOOK_MS: u64 = 50;

/// Follows a run to its end.
pub(crate) fn to_the_end(
    host: &RealHost,
    launched: &Launched,
    output: &mut Output,
) -> Result<Code, Failure> {
    loop {
        let report = look(host, &launched.path)?;
        if is_over(&report) {
            return end(&report, output);
        }
        host.wait_ms(LOOK_MS);
    }
}

fn look(host: &RealHost, path: &Path) -> Result<RunReport, Failure> {
    let times = Times::default();
    let opened = Store::open(host, path, host.now_ms(), times);
    let gone = |why: String| {
        Failure::user(Code::NOT_FOUND, format!("the run at {} is gone", path.display()))
            .because(why)
    };
    match opened.map_err(|e| gone(e.to_string()))? {
        Opened::Run(store, root, name) => {
            let mut inspection = Inspection::new(&store, Depth::Full);
            let report = inspection.one(root, &name, None).map(|(_, report)| report);
            report.ok_or_else(|| gone("nothing in it tells of a run".to_owned()))
        }
        Opened::Store(_) => Err(gone("it is no run directory any more".to_owned())),
    }
}

/// Whether nothing more is to be expected.
fn is_over(report: &RunReport) -> bool {
    !matches!(
        report.verdict_word,
        Some(Verdict::Starting | Verdict::Running | Verdict::RunningUnverified | Verdict::Settling)
    )
}

fn end(report: &RunReport, output: &Output) -> Result<Code, Failure> {
    let state = report.recorded_state.as_deref().unwrap_or("unknown");
    output.talk(&format!(
        "run {} ended: {}, {}",
        report.run_id,
        render::escape(state),
        report.verdict_word.map_or("no verdict", |word| word.as_str()),
    ));
    let complete = report.recorded_state.as_deref() == Some("complete");
    let code = Code::of_report(report);
    Ok(if complete { code } else { code.worse(Code::ATTENTION) })
}
