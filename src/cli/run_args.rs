//! What may be asked of the verbs that act on one run.

use std::path::PathBuf;
#[cfg(unix)]
use std::time::Duration;

use super::args::Format;

/// Which run, and in which form the answer comes.
#[derive(Debug, clap::Args)]
pub(crate) struct OneRunArgs {
    /// A run directory, or a run id, a prefix of one of at least 8 characters, or a tool-call id.
    #[arg(value_name = "ID|PATH")]
    pub(crate) target: PathBuf,
    /// The store (temp root) that an id is looked up in. Without it: the default stores of this user.
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) run: OneRunArgs,
    /// Go on as it grows, until the run has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only this step, counted from 0.
    #[arg(long, value_name = "N")]
    pub(crate) step: Option<u32>,
    /// What the runner wrote on standard error, or with --step an external step.
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only the last lines of each log.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) lines: Option<usize>,
}

/// What asking a runner has in common, whatever is asked.
#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) run: OneRunArgs,
    /// Why, for whoever reads the records later.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Wait until the runner has done it.
    #[arg(long)]
    pub(crate) wait: bool,
    /// With --wait: for at most this long.
    #[arg(long, value_name = "TIME", requires = "wait", default_value = "60s",
        value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Only this step, counted from 0; the others go on.
    #[arg(long, value_name = "N")]
    pub(crate) step: Option<i64>,
    /// If the runner does not take the request up within 10 s, send it SIGTERM: only where its process is
    /// proven to be the run's own, and no other run's.
    #[arg(long, conflicts_with = "step")]
    pub(crate) signal: bool,
}

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct InterruptArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct WitnessArgs {
    #[command(flatten)]
    pub(crate) run: OneRunArgs,
    /// Watch for at most this long, for example 90s or 5m [default: until the run ends].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}
