//! Makes a store of finished runs: `gen-store DIRECTORY RUNS`.

#![expect(clippy::print_stderr, reason = "a program says why it ends")]

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let parsed = match args.as_slice() {
        [root, runs] => {
            runs.to_str().and_then(|n| n.parse().ok()).map(|n| (PathBuf::from(root), n))
        }
        _ => None,
    };
    let Some((root, runs)) = parsed else {
        eprintln!("usage: gen-store DIRECTORY RUNS");
        return ExitCode::from(2);
    };
    match bench::write_store(&root, runs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gen-store: {}: {e}", root.display());
            ExitCode::FAILURE
        }
    }
}
