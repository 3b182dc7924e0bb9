//! What may be asked of the conformance suite.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::args::Format;

/// `runstore conformance`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    #[command(subcommand)]
    pub(crate) verb: ConformanceVerb,
}

/// What is done.
#[derive(Debug, Subcommand)]
pub(crate) enum ConformanceVerb {
    /// The checks, with clause, strength and level.
    List(ConformanceListArgs),
    /// Judge an implementation.
    Run(ConformanceRunArgs),
    /// Judge the suite: does it see each mistake that a runner can make?
    Prove(ConformanceProveArgs),
    /// Show a report that was kept in JSON in another form.
    Report(ConformanceReportArgs),
    /// What differs between two reports that were kept in JSON.
    Diff(ConformanceDiffArgs),
    /// This program as a subject of the suite: a request on standard input, the answer as JSON.
    #[command(hide = true)]
    Adapter,
    /// An implementation that makes one mistake; for the suite.
    #[command(hide = true)]
    Zoo(ConformanceZooArgs),
}

impl ConformanceArgs {
    /// The form of the answer, as far as it is one of the common ones.
    pub(crate) fn format(&self) -> Format {
        let is_text = match &self.verb {
            ConformanceVerb::List(ConformanceListArgs { format, .. })
            | ConformanceVerb::Prove(ConformanceProveArgs { format, .. })
            | ConformanceVerb::Diff(ConformanceDiffArgs { format, .. }) => {
                *format == ReportFormat::Text
            }
            ConformanceVerb::Run(ConformanceRunArgs { format, .. })
            | ConformanceVerb::Report(ConformanceReportArgs { format, .. }) => {
                *format == RunFormat::Text
            }
            ConformanceVerb::Zoo(_) => true,
            ConformanceVerb::Adapter => false,
        };
        if is_text { Format::Text } else { Format::Json }
    }
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Forms of a report about an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// For people.
    Text,
    /// One JSON object; the other forms can be made of it later.
    Json,
    /// JUnit XML.
    Junit,
    /// TAP version 14.
    Tap,
    /// One page that needs nothing else.
    Html,
    /// The level, as shields.io reads it.
    Badge,
}

/// Which checks.
#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// The role that is tested.
    #[arg(long, default_value = "runner")]
    pub(crate) role: String,
    /// Up to which level: L1 a run ends in order, L2 it is led, L3 it meets accidents.
    #[arg(long, default_value = "L3")]
    pub(crate) level: String,
    /// Only this clause, or the check of this name. May be given several times.
    #[arg(long, value_name = "ID")]
    pub(crate) clause: Vec<String>,
    /// Only this scenario. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Vec<String>,
    /// Only scenarios whose store has the names of this family.
    #[arg(long, value_name = "FAMILY", value_parser = ["pi", "dm"])]
    pub(crate) dialect: Option<String>,
    /// Scenarios of this directory, laid out as conformance/checks, instead of those that are built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) checks: Option<PathBuf>,
}

/// `runstore conformance list`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceListArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}

/// `runstore conformance report`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceReportArgs {
    /// The report.
    pub(crate) file: PathBuf,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = RunFormat::Html)]
    pub(crate) format: RunFormat,
}

/// `runstore conformance diff`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceDiffArgs {
    /// The report from before.
    pub(crate) old: PathBuf,
    /// The report of now.
    pub(crate) new: PathBuf,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}

/// `runstore conformance prove`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceProveArgs {
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Only this mistake, or those of this scenario. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) fault: Vec<String>,
    /// Only mistakes of this role.
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Scenarios of this directory, laid out as conformance/checks, instead of those that are built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) checks: Option<PathBuf>,
    /// How many scenarios are played at once.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

/// `runstore conformance zoo`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceZooArgs {
    /// The mistake; none if it is empty.
    #[arg(long, default_value = "")]
    pub(crate) fault: String,
    /// What it is: a runner, a reader, an observer, or `around` another command.
    #[arg(long, default_value = "runner")]
    pub(crate) role: String,
    /// The runner configuration, or the store.
    pub(crate) path: Option<PathBuf>,
    /// Of an observer: the run directory.
    pub(crate) run_dir: Option<PathBuf>,
    /// Of an observer: the instance of the runner.
    pub(crate) instance: Option<String>,
    /// Of an observer: the runner. The command that something is done around.
    #[arg(last = true)]
    pub(crate) runner: Vec<String>,
}

/// `runstore conformance run`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceRunArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = RunFormat::Text)]
    pub(crate) format: RunFormat,
    /// Play every scenario so often; verdicts that differ fail.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) repeat: u32,
    /// From what run ids and tokens are made.
    #[arg(long, default_value = "1", value_name = "TEXT")]
    pub(crate) seed: String,
    /// How many scenarios are played at once.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// What is declared of the subject, as JSON: commands of operations, gaps with reason and expiry
    /// (docs/conformance.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) subject: Option<PathBuf>,
    /// Leave the stores of the scenarios where they are, and say where.
    #[arg(long)]
    pub(crate) keep: bool,
    /// The command of the subject; `{config}` is replaced by the path of the configuration, else it is appended.
    /// What --subject declares for the role stands for one that is not given.
    #[arg(last = true, required_unless_present = "subject", value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
