//! What may be asked of the verbs that act on one run.

use std::path::PathBuf;
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

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct WitnessArgs {
    #[command(flatten)]
    pub(crate) run: OneRunArgs,
    /// Watch for at most this long, for example 90s or 5m [default: until the run ends].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}
