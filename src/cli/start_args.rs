//! What may be asked of the verbs that start runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;

use runstore::protocol::startup::RUNNER_BUDGET_MS;

use super::args::Format;
use super::run_args::OneRunArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct RunnerArgs {
    /// The configuration, which is read once and removed.
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// How long to wait for each word of the launcher.
    #[arg(long, value_name = "MS", default_value_t = RUNNER_BUDGET_MS)]
    pub(crate) budget_ms: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The store (temp root); it is made if it is not there. Without it: the default store of this user.
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// What its steps are called [default: the name of each program].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The session that the run belongs to, and that its result is for.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// End the run when it takes longer, for example 90s or 5m.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How many runs of the session may be under way at once; 0 is no limit.
    #[arg(long, value_name = "N", requires = "session", default_value_t = 0)]
    pub(crate) slot_limit: u32,
    /// Where the commands run [default: here].
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) steps: StepArgs,
    #[command(flatten)]
    pub(crate) manner: MannerArgs,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// A command and its arguments, as they are. With --step or --parallel it comes last.
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<OsString>,
}

/// How a run that was started is left or followed.
#[derive(Debug, clap::Args)]
pub(crate) struct MannerArgs {
    /// Return as soon as the run is under way, and say its id.
    #[arg(long, short)]
    pub(crate) detach: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) run: OneRunArgs,
    /// End the run when it takes longer, for example 90s or 5m.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) manner: MannerArgs,
}

/// Command lines for a shell, in the order in which they were given: one after the other, and those of
/// neighbouring `--parallel` side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepArgs {
    /// Groups, one after the other.
    pub(crate) groups: Vec<Vec<String>>,
}

impl clap::Args for StepArgs {
    fn augment_args(command: Command) -> Command {
        let step = |name: &'static str, help: &'static str| {
            clap::Arg::new(name)
                .long(name)
                .value_name("LINE")
                .action(clap::ArgAction::Append)
                .allow_hyphen_values(true)
                .help(help)
        };
        command
            .arg(step(
                "step",
                "A command line for sh; may be given again, and they run one after the other",
            ))
            .arg(step("parallel", "The same; neighbouring ones run side by side"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for StepArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut steps = Self::default();
        steps.update_from_arg_matches(matches)?;
        Ok(steps)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        let mut lines: Vec<(usize, bool, String)> = Vec::new();
        for (name, is_parallel) in [("step", false), ("parallel", true)] {
            let indices = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            lines.extend(indices.zip(values).map(|(at, line)| (at, is_parallel, line.clone())));
        }
        lines.sort();
        let mut was_parallel = false;
        for (_, is_parallel, line) in lines {
            match self.groups.last_mut() {
                Some(group) if is_parallel && was_parallel => group.push(line),
                _ => self.groups.push(vec![line]),
            }
            was_parallel = is_parallel;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn steps_keep_their_order_and_neighbours_run_side_by_side() {
        let words = "run --step a --parallel b --parallel c --step d --parallel e -- f g";
        let run = Line::try_parse_from(words.split(' ')).expect("a command line");

        assert_eq!(run.run.steps.groups, [vec!["a"], vec!["b", "c"], vec!["d"], vec!["e"]]);
        assert_eq!(run.run.command, ["f", "g"]);
    }
}
