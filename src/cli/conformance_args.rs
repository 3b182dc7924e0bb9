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
    /// A runner that makes one mistake; for the suite.
    #[command(hide = true)]
    Zoo(ConformanceZooArgs),
}

impl ConformanceArgs {
    /// The form of the answer, as far as it is one of the common ones.
    pub(crate) fn format(&self) -> Format {
        let format = match &self.verb {
            ConformanceVerb::List(a) => a.format,
            ConformanceVerb::Run(a) => a.format,
            ConformanceVerb::Prove(a) => a.format,
            ConformanceVerb::Zoo(_) => ReportFormat::Text,
        };
        if format == ReportFormat::Text { Format::Text } else { Format::Json }
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

/// `runstore conformance prove`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceProveArgs {
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Only this mistake. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) fault: Vec<String>,
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
    /// The runner configuration.
    pub(crate) config: PathBuf,
}

/// `runstore conformance run`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceRunArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Play every scenario so often; verdicts that differ fail.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) repeat: u32,
    /// From what run ids and tokens are made.
    #[arg(long, default_value = "1", value_name = "TEXT")]
    pub(crate) seed: String,
    /// How many scenarios are played at once.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// What is known of the subject: gaps with reason and expiry, as JSON (docs/conformance.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) subject: Option<PathBuf>,
    /// Leave the stores of the scenarios where they are, and say where.
    #[arg(long)]
    pub(crate) keep: bool,
    /// The command of the subject; `{config}` is replaced by the path of the configuration, else it is appended.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
