//! The command line. It uses only the public API of the library, like any other client.
//!
//! Theory of operation. `args` says what may be asked; one file in `commands` answers each verb;
//! `render` turns answers into text; `chapters` is the text of the spec; `exit_code` turns them into one number. Data goes to standard
//! output, talk to standard error. A reader that closes the pipe ends the program quietly with 0.

mod args;
mod chapters;
mod commands;
#[cfg(unix)]
mod conformance_args;
mod exit_code;
mod output;
mod render;
mod run_args;
#[cfg(unix)]
mod start_args;
mod wait_args;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command, Format};
use exit_code::Code;
use output::{Failure, Output};

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            // Help and version are answers, not errors; a closed pipe is neither.
            let _ = if hostile_arguments() { print_escaped(&e) } else { e.print() };
            let code = if e.use_stderr() { Code::USAGE } else { Code::FINE };
            return ExitCode::from(code.number());
        }
    };
    let mut output = Output::new(args.color.into(), args.command.format() == Format::Text);
    let result = match &args.command {
        Command::Inspect(a) => commands::inspect::run(a, &mut output),
        Command::List(a) => commands::list::run(a, &mut output),
        Command::Check(a) => commands::check::run(a, &mut output),
        Command::Prune(a) => commands::prune::run(a, &mut output),
        Command::Recover(a) => commands::recover::run(a, &mut output),
        Command::Sweep(a) => commands::sweep::run(a, &mut output),
        Command::Release(a) => commands::release::run(a, &mut output),
        Command::Slots(a) => commands::held::slots(a, &mut output),
        Command::Leases(a) => commands::held::leases(a, &mut output),
        Command::Results(a) => commands::held::results(a, &mut output),
        Command::Roots(a) => commands::roots::run(a, &mut output),
        Command::Explain(a) => commands::explain::run(a, &mut output),
        Command::Spec(a) => commands::spec::run(a, &mut output),
        Command::Wait(a) => commands::wait::run(a, &mut output),
        #[cfg(unix)]
        Command::Conformance(a) => commands::conformance::run(a, &mut output),
        #[cfg(unix)]
        Command::Run(a) => commands::run::run(a, &mut output),
        #[cfg(unix)]
        Command::Resume(a) => commands::resume::run(a, &mut output),
        #[cfg(unix)]
        Command::Shim(a) => commands::shim::run(a),
        Command::Logs(a) => commands::logs::run(a, &mut output),
        #[cfg(unix)]
        Command::Runner(a) => commands::runner::run(a),
        #[cfg(unix)]
        Command::Stop(a) => commands::ask::stop(a, &mut output),
        #[cfg(unix)]
        Command::Interrupt(a) => commands::ask::interrupt(a, &mut output),
        #[cfg(unix)]
        Command::Witness(a) => commands::witness::run(a, &mut output),
    };
    let result = result.and_then(|code| output.finish().map(|()| code));
    let code = match result {
        Ok(code) => code,
        Err(Failure::ClosedPipe) => Code::FINE,
        Err(failure) => output.report(&failure),
    };
    ExitCode::from(code.number())
}

/// Whether an argument holds what a terminal would obey. The parser repeats arguments as they are.
fn hostile_arguments() -> bool {
    std::env::args_os().any(|arg| {
        let text = arg.to_string_lossy();
        render::escape(&text) != text
    })
}

/// Prints an error of the parser without colours, so that all control characters can be escaped.
fn print_escaped(e: &clap::Error) -> std::io::Result<()> {
    let text = e.render().to_string();
    text.lines().try_for_each(|line| writeln!(std::io::stderr().lock(), "{}", render::escape(line)))
}
