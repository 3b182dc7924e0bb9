//! What may be asked of `runstore wait`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use runstore::wait::{LOOK_MS, Until};

use super::args::{Format, TimeArgs};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WaitArgs {
    /// Run ids, prefixes of at least 8 characters, tool-call ids, or run directories.
    #[arg(value_name = "ID|PATH", required = true)]
    pub(crate) targets: Vec<PathBuf>,
    /// The store (temp root) that ids are looked up in. Without it: the default stores of this user.
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// What to wait for.
    #[arg(long = "for", value_enum, value_name = "WHAT", default_value_t = WaitFor::Terminal)]
    pub(crate) until: WaitFor,
    /// Give up after this time, for example 250ms, 30s or 5m. With 0s: look once.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Form of the answer; with jsonl each run is told as its wait ends.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) times: TimeArgs,
    /// The longest time without a look.
    #[arg(long, hide = true, value_name = "MS", default_value_t = LOOK_MS)]
    pub(crate) look_ms: u64,
}

const EXIT_CODES: &str = "\
A wait ends early when the runner of a run is gone or nothing can change its state any more.

Exit codes: 0 every run came to it (complete, where it has ended); 1 another end, orphaned, or it cannot \
come to it; 4 no such run, or it was removed; 5 it cannot be proven; 6 a newer version; 7 the time was over; \
8 damaged or unsafe records. Of several runs the most serious counts: 8, 6, 4, 7, 1, 5, 0.";

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// The runner was let in and has begun.
    Ready,
    /// The end of the run is recorded.
    Terminal,
    /// The end of the run is proven.
    Proof,
}

impl From<WaitFor> for Until {
    fn from(until: WaitFor) -> Self {
        match until {
            WaitFor::Ready => Self::Ready,
            WaitFor::Terminal => Self::Terminal,
            WaitFor::Proof => Self::Proof,
        }
    }
}
