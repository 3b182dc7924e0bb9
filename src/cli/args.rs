//! What may be asked.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use runstore::protocol::Word as _;
use runstore::protocol::evidence::Times;
use runstore::protocol::verdict::Verdict;

#[cfg(unix)]
use super::conformance_args::ConformanceArgs;
use super::run_args::LogsArgs;
#[cfg(unix)]
use super::run_args::{InterruptArgs, StopArgs, WitnessArgs};
#[cfg(unix)]
use super::start_args::{ResumeArgs, RunArgs, RunnerArgs};
use super::wait_args::WaitArgs;

/// Read run stores of detached agent runs and say what is true; start such runs, and follow them.
///
/// A run store is the directory in which an agent harness keeps the state of its detached runs. The
/// program reads it, compares what the files say with the processes that are there, and names each
/// run's true state with the evidence. Only the verbs that start, ask, or witness a run write to it.
#[derive(Debug, Parser)]
#[command(name = "runstore", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// When to use colours.
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 nothing needs attention; 1 something does (orphaned, start-stuck, start-failed, \
conflict, undeliverable); 2 usage; 4 no such run or path; 5 something could not be determined; \
6 a newer version; 7 contended, or the time was over; 8 damaged or unsafe records; 9 the run did not \
start; 70 internal error; 74 I/O error. When several apply, the most serious wins: 74, 70, 8, 6, 1, 5, \
0.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what is true of a run, a runs root or a whole store.
    Inspect(InspectArgs),
    /// One line for each run.
    List(ListArgs),
    /// Whether a store at rest is as the protocol wants it.
    Check(CheckArgs),
    /// Capacity slots: whose they are, and what keeps them from being freed.
    Slots(HeldArgs),
    /// Session leases: whose they are, and whether they are stale.
    Leases(HeldArgs),
    /// Results that were not delivered yet.
    Results(HeldArgs),
    /// Free one slot or lease that is demonstrably over.
    Release(ReleaseArgs),
    /// Remove runs that nobody can want any more; without --apply say which, and why the rest stays.
    Prune(PruneArgs),
    /// Give runs whose runner is gone a truthful end; without --apply say what would be done, and what not.
    Recover(RecoverArgs),
    /// Recover every store of this user, once or again and again.
    Sweep(SweepArgs),
    /// Where the stores of this user are.
    Roots(RootsArgs),
    /// What a verdict, flag, finding or clause means.
    Explain(ExplainArgs),
    /// The text of the protocol's spec: one clause, an area, a chapter, or what there is.
    Spec(SpecArgs),
    /// Sleep until runs have ended, or never will.
    Wait(WaitArgs),
    /// Start commands as a run that outlives this program.
    #[cfg(unix)]
    Run(RunArgs),
    /// Go on with a paused run, in a new one.
    #[cfg(unix)]
    Resume(ResumeArgs),
    /// What the steps of a run wrote.
    Logs(LogsArgs),
    /// Ask the runner of a run to stop it.
    #[cfg(unix)]
    Stop(StopArgs),
    /// Ask the runner of a run to pause it.
    #[cfg(unix)]
    Interrupt(InterruptArgs),
    /// Attach to a live run that has no observer, and prove its end.
    #[cfg(unix)]
    Witness(WitnessArgs),
    /// Judge an implementation of the protocol from the outside.
    #[cfg(unix)]
    Conformance(ConformanceArgs),
    /// Starts a runner and witnesses its end; for launchers.
    #[cfg(unix)]
    #[command(hide = true)]
    Shim(ShimArgs),
    /// Runs the commands of a configuration; for launchers.
    #[cfg(unix)]
    #[command(hide = true)]
    Runner(RunnerArgs),
}

impl Command {
    /// The form of the answer.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Inspect(InspectArgs { common, .. }) | Self::List(ListArgs { common, .. }) => {
                common.format
            }
            Self::Check(a) => a.common.format,
            Self::Release(a) => a.format,
            Self::Prune(a) => a.common.format,
            Self::Recover(a) => match &a.command {
                Some(RecoverCommand::Undo { format, .. } | RecoverCommand::Log { format, .. }) => {
                    *format
                }
                None => a.common.format,
            },
            Self::Sweep(a) => a.format,
            Self::Slots(a) | Self::Leases(a) | Self::Results(a) => a.common.format,
            Self::Roots(RootsArgs { format })
            | Self::Explain(ExplainArgs { format, .. })
            | Self::Spec(SpecArgs { format, .. }) => *format,
            Self::Logs(LogsArgs { run, .. }) => run.format,
            Self::Wait(WaitArgs { format, .. }) => *format,
            #[cfg(unix)]
            Self::Run(RunArgs { format, .. }) => *format,
            #[cfg(unix)]
            Self::Resume(ResumeArgs { run, .. }) => run.format,
            #[cfg(unix)]
            Self::Stop(StopArgs { ask, .. }) | Self::Interrupt(InterruptArgs { ask }) => {
                ask.run.format
            }
            #[cfg(unix)]
            Self::Witness(WitnessArgs { run, .. }) => run.format,
            #[cfg(unix)]
            Self::Conformance(a) => a.format(),
            #[cfg(unix)]
            Self::Shim(_) | Self::Runner(_) => Format::Text,
        }
    }
}

/// Colours.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// One JSON object per run and line, as they are read.
    Jsonl,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// Run directories, runs roots or whole stores; with --root also run ids, prefixes of at least 8
    /// characters, or tool-call ids. Without any: the default stores of this user.
    #[arg(value_name = "PATH|ID")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Only these verdicts.
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', value_parser = verdict)]
    pub(crate) verdict: Vec<Verdict>,
    /// Show all evidence, also of runs that need no attention.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Stores or runs roots. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Only runs that are recorded active.
    #[arg(long)]
    pub(crate) active: bool,
    /// Read every run directory, not only what the indexes name.
    #[arg(long)]
    pub(crate) all: bool,
    /// At most this many runs [default: 50; with --all: no limit].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HeldArgs {
    /// Stores, runs roots or run directories. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Stores, runs roots or run directories. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Also what should not stay, although nothing relies on its absence.
    #[arg(long, short = 'x')]
    pub(crate) strict: bool,
    /// How many slots a session may have: no file of a store tells it.
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The slot or lease: its path, or with --root its path below the store, as `slots` and `leases` show it.
    #[arg(value_name = "PATH")]
    pub(crate) target: PathBuf,
    /// The store (temp root) that a relative path begins at.
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// Also free what no proof frees but this policy: abandoned, the slot of a run that failed, whose process
    /// is gone and which has been silent for 20 minutes.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<Policy>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    /// Stores. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Only what has not changed for so long, for example 30d or 12h.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = humantime::parse_duration)]
    pub(crate) older_than: std::time::Duration,
    /// Keep the runs that ended last, so many of them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) keep_last: usize,
    /// Remove them.
    #[arg(long)]
    pub(crate) apply: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RecoverArgs {
    /// Stores, runs roots or run directories. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Say what would be done, and do nothing. This is the default.
    #[arg(long, conflicts_with_all = ["apply", "from"])]
    pub(crate) plan: bool,
    /// Carry it out.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Carry out a plan that was saved as JSON, as far as everything it relies on is as it was.
    #[arg(long, value_name = "FILE", conflicts_with = "targets")]
    pub(crate) from: Option<PathBuf>,
    /// Only these actions or runs.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Also do what this file allows: a JSON object with version 1 and any of graceMs, abandonedSlots,
    /// closeQueued, setAsideCorrupt.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// How long a run must have been quiet [default: 5000].
    #[arg(long, value_name = "MS", help_heading = "Times (milliseconds)",
          value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) grace_ms: Option<i64>,
    #[command(subcommand)]
    pub(crate) command: Option<RecoverCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// Take the last apply back, or the one that is named.
    Undo {
        /// The id of the apply, as `log` shows it.
        id: Option<String>,
        /// The store.
        #[arg(long, value_name = "PATH")]
        root: Option<PathBuf>,
        /// Form of the answer.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Show what was applied.
    Log {
        /// The store.
        #[arg(long, value_name = "PATH")]
        root: Option<PathBuf>,
        /// Form of the answer.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// Stores. Without any: the default stores of this user.
    #[arg(value_name = "PATH")]
    pub(crate) targets: Vec<PathBuf>,
    /// Stay in the foreground and sweep again and again, with so long a pause, for example 60s or 5m.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) every: Option<std::time::Duration>,
    /// Print what a timer of the system wants to read, and do nothing else. Without a kind: the usual one here.
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "asked for, and which: two questions")]
    pub(crate) print_unit: Option<Option<UnitKind>>,
    /// Also do what this file allows, as with recover.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Whose timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnitKind {
    /// A user service and its timer.
    Systemd,
    /// A property list of launchd.
    Launchd,
    /// A line for crontab.
    Cron,
}

/// What may be freed without a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Slots of runs that were given up.
    Abandoned,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RootsArgs {
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// A verdict, flag, state, finding id or clause id. Without one: everything that has a name.
    pub(crate) id: Option<String>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SpecArgs {
    /// A clause (RS-START-47), an area (RS-START), or a chapter by its number, its file name or a part of its
    /// title. Without one: the chapters and areas.
    #[arg(value_name = "CLAUSE|AREA|CHAPTER")]
    pub(crate) name: Option<String>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct ShimArgs {
    /// The store (temp root).
    #[arg(long, value_name = "PATH")]
    pub(crate) root: PathBuf,
    /// The run directory, prepared by a launcher.
    #[arg(long, value_name = "PATH")]
    pub(crate) run_dir: PathBuf,
    /// The instance id that the launcher chose for the runner.
    #[arg(long, value_name = "ID")]
    pub(crate) instance: String,
    /// The working directory of the runner.
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<PathBuf>,
    /// That the process has left everybody else's session and descriptors.
    #[arg(long, hide = true)]
    pub(crate) alone: bool,
    /// The runner.
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// The store (temp root) that ids are looked up in.
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Judge as of this instant (ms since 1970) instead of now.
    #[arg(long, value_name = "MS")]
    pub(crate) now: Option<i64>,
    /// Judge as if this host had this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Only runs of this session.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) times: TimeArgs,
}

/// Times that verdicts depend on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Times (milliseconds)")]
pub(crate) struct TimeArgs {
    /// How long a directory may lack a status.
    #[arg(long, value_name = "MS", default_value_t = Times::default().missing_status_ms)]
    pub(crate) missing_status_ms: i64,
    /// How long a run may be queued with no process.
    #[arg(long, value_name = "MS", default_value_t = Times::default().queued_ms)]
    pub(crate) queued_ms: i64,
    /// How long a start-up stage may last.
    #[arg(long, value_name = "MS", default_value_t = Times::default().startup_stage_ms)]
    pub(crate) startup_stage_ms: i64,
    /// How long result and proof may take after the end.
    #[arg(long, value_name = "MS", default_value_t = Times::default().settling_ms)]
    pub(crate) settling_ms: i64,
    /// Silence that is mentioned; it never decides.
    #[arg(long, value_name = "MS", default_value_t = Times::default().stale_alive_ms)]
    pub(crate) stale_alive_ms: i64,
    /// Inactivity after which a failed run's slot counts as abandoned; 0 turns that off.
    #[arg(long, value_name = "MS", default_value_t = Times::default().abandoned_slot_ms.unwrap_or(0))]
    pub(crate) abandoned_slot_ms: i64,
}

impl From<&TimeArgs> for Times {
    fn from(a: &TimeArgs) -> Self {
        Self {
            missing_status_ms: a.missing_status_ms,
            queued_ms: a.queued_ms,
            startup_stage_ms: a.startup_stage_ms,
            settling_ms: a.settling_ms,
            stale_alive_ms: a.stale_alive_ms,
            abandoned_slot_ms: (a.abandoned_slot_ms > 0).then_some(a.abandoned_slot_ms),
        }
    }
}

fn verdict(word: &str) -> Result<Verdict, String> {
    Verdict::from_word(word).ok_or_else(|| {
        let known: Vec<_> = Verdict::ALL.iter().map(|v| v.as_str()).collect();
        format!("not a verdict; the verdicts are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
