//! The `runstore` program: parse, run, exit.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
