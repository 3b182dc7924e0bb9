//! `runstore runner CONFIG`, which shims start: the built-in runner of plain commands.
//!
//! What it does is the library's ([`plain::execute`]). Its outputs are the logs of the run, so an error is
//! told there in one line, and its launcher hears of it through the start-up messages.
//! Spec: RS-STEP-07, RS-STEP-09.

use runstore::protocol::error::with_causes;
use runstore::runner::plain;
use runstore::store::RealHost;

use crate::cli::exit_code::Code;
use crate::cli::output::Failure;
use crate::cli::start_args::RunnerArgs;

/// Runs a configuration to the end of its run.
pub(crate) fn run(args: &RunnerArgs) -> Result<Code, Failure> {
    let host = RealHost::new();
    match plain::execute(&host, &args.config, args.budget_ms) {
        Ok(finished) if finished.problems.is_empty() => Ok(Code::FINE),
        Ok(finished) => {
            // The end is recorded; whoever reads the log learns what was best effort and failed.
            use std::io::Write as _;
            let mut err = std::io::stderr().lock();
            for problem in finished.problems {
                let _ = writeln!(err, "problem: {problem}");
            }
            Ok(Code::FINE)
        }
        Err(e) => Err(Failure::user(Code::START_FAILED, "the run was not begun or not ended")
            .because(with_causes(&e))),
    }
}
