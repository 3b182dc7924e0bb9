//! Names of files and directories, and what a name inside a run directory means.
//!
//! Theory of operation. Every name of the protocol stands here once, so that writer, inspector and
//! recoverer cannot disagree. [`RunEntry::of`] sorts the entries of a run directory by name alone:
//! it says what a file is meant to be, never what it holds. Names that the protocol gives to parts
//! outside it are [`RunEntry::OtherKnown`]; a stranger's name is [`RunEntry::Unknown`] and is left
//! alone. Facts §1.2 to §1.5.

use super::temp_name::{TempName, TempTarget, decimal, is_uuid, original_of};

// Inside the temp root.

/// The runs root: one directory per run, and two indexes.
pub const RUNS_DIR: &str = "async-subagent-runs";
/// The results root.
pub const RESULTS_DIR: &str = "async-subagent-results";
/// One directory per leased session file.
pub const LEASES_DIR: &str = "session-leases";
/// The capacity pools.
pub const CAPACITY_DIR: &str = "session-active-async-capacity";
/// The fan-out budgets.
pub const FANOUT_BUDGETS_DIR: &str = "run-fanout-budgets";
/// Run directories of nested detached runs, as `ROOT_RUN_ID/ID`.
pub const NESTED_RUNS_DIR: &str = "nested-subagent-runs";
/// Nested routes.
pub const NESTED_EVENTS_DIR: &str = "nested-subagent-events";
/// Armed waits.
pub const WAIT_SUBSCRIPTIONS_DIR: &str = "wait-subscriptions";
/// Supervisor messages; outside the protocol.
pub const SUPERVISOR_CHANNELS_DIR: &str = "supervisor-channels";
/// The retention lock.
pub const RETENTION_LOCK_DIR: &str = ".async-retention.lock";
/// What a reclaimed retention lock is renamed to, with a token appended.
pub const RETENTION_LOCK_STALE_PREFIX: &str = ".async-retention.lock.stale-";
/// What the name of a retention lock in the making starts with; a token follows. Only we write it.
pub const RETENTION_LOCK_CANDIDATE_PREFIX: &str = ".async-retention.lock.candidate-";
/// The retention scan position.
pub const RETENTION_CURSOR: &str = ".async-retention-cursor.json";
/// The retention log.
pub const RETENTION_LOG: &str = "async-retention-maintenance.jsonl";
/// Marks of run directories that are being deleted.
pub const RETENTION_TOMBSTONES_DIR: &str = "async-retention-run-tombstones";
/// What the name of a runner configuration starts with; the run id and `.json` follow.
pub const RUNNER_CONFIG_PREFIX: &str = "async-cfg-";

// Inside the runs root.

/// The active-run index: one empty file per run that may be under way.
pub const ACTIVE_INDEX: &str = ".active-runs";
/// Inside the active-run index: the aliases by tool call.
pub const TOOL_CALLS_DIR: &str = "tool-calls";
/// The terminal-run index.
pub const TERMINAL_INDEX: &str = ".terminal-runs";
/// What a run directory in deletion is renamed to, with a UUID appended.
pub const DELETING_RUN_PREFIX: &str = ".deleting-run-";
/// Everything that this implementation keeps for itself lives under this name.
pub const OWN_DIR: &str = ".runstore";
/// Inside [`OWN_DIR`] of a temp root: notes of removals under way, `<uuid>.json`. Spec: RS-RET-10.
pub const PRUNE_DIR: &str = "prune";
/// Inside [`OWN_DIR`] of a root: one directory for each apply of a recovery. Spec: RS-REC-25.
pub const RECOVERY_DIR: &str = "recovery";
/// Inside [`OWN_DIR`] of a root: locked by the recoverer that is at work. Spec: RS-REC-23.
pub const RECOVERY_LOCK: &str = "recovery.lock";
/// Inside [`OWN_DIR`] of a runs root: what the name of an advisory lock file starts with; a digit and
/// [`LOCK_SUFFIX`] follow.
pub const LOCK_PREFIX: &str = "rmw-";
/// What the name of an advisory lock file ends with.
pub const LOCK_SUFFIX: &str = ".lock";

// Inside a run directory.

/// The run's state.
pub const STATUS: &str = "status.json";
/// The process-terminal proof.
pub const PROOF: &str = "process-terminal.json";
/// The runner's claim about its writers.
pub const CANDIDATE: &str = "process-terminal-candidate.json";
/// The event log.
pub const EVENTS: &str = "events.jsonl";
/// The runner's side of the start-up.
pub const STARTUP: &str = "runner-startup.json";
/// The launcher's acknowledgement.
pub const STARTUP_ACK: &str = "runner-startup-ack.json";
/// The launcher's confirmation.
pub const STARTUP_CONFIRM: &str = "runner-startup-confirm.json";
/// The launcher's go-ahead: the commit point.
pub const STARTUP_PROCEED: &str = "runner-startup-proceed.json";
/// Raw standard output of the runner.
pub const RUNNER_STDOUT_LOG: &str = "runner.stdout.log";
/// Raw standard error of the runner.
pub const RUNNER_STDERR_LOG: &str = "runner.stderr.log";
/// Below it, in a temp root: what is left of runs of plain commands that were paused, `<run>.jsonl`. Spec: RS-STEP-10.
pub const SESSIONS_DIR: &str = "sessions";
/// How to resume the run.
pub const RECOVERY_DESCRIPTOR: &str = "recovery-descriptor.json";
/// Reference to a fan-out budget.
pub const FANOUT_BUDGET: &str = "run-fanout-budget.json";
/// Mission binding.
pub const MISSION: &str = "mission.json";
/// Worktree hand-off manifest.
pub const HANDOFF: &str = "handoff.json";
/// The control inbox.
pub const CONTROL_DIR: &str = "control";
/// Chain append requests.
pub const APPEND_REQUESTS_DIR: &str = "append-requests";
/// Schemas and outputs of structured steps.
pub const STRUCTURED_OUTPUT_DIR: &str = "structured-output";
/// Result of a child that a workflow awaits.
pub const WORKFLOW_RESULT: &str = "workflow-result.json";
/// Terminal receipt of a workflow.
pub const WORKFLOW_RECEIPT: &str = "workflow-receipt.json";
/// What the name of a step's output log starts with; the step index and `.log` follow.
pub const OUTPUT_LOG_PREFIX: &str = "output-";
/// What the name of the human log starts with; the run id and `.md` follow.
pub const SUBAGENT_LOG_PREFIX: &str = "subagent-log-";
/// Room that is given back when the disk is full, so that the end of the run can be written. Only we
/// write it; it says nothing.
pub const RESERVE: &str = ".runstore-reserve";
/// Which process prepares the run. Only we write it.
pub const LAUNCH_NOTE: &str = ".runstore-launch.json";
/// Which process of ours waits for the end of the runner.
pub const OBSERVER: &str = ".runstore-observer.json";

// Inside the control inbox.

/// Request to interrupt.
pub const CONTROL_INTERRUPT: &str = "interrupt.json";
/// Request to end for lack of time.
pub const CONTROL_TIMEOUT: &str = "timeout.json";
/// Request to stop, as older clients write it.
pub const CONTROL_STOP: &str = "stop.json";
/// Requests to stop.
pub const STOP_REQUESTS_DIR: &str = "stop-requests";
/// Requests to steer.
pub const STEER_REQUESTS_DIR: &str = "steer-requests";
/// Follow-ups for the next resume.
pub const REVIVAL_BRIEFS_DIR: &str = "revival-briefs";
/// The claim of the only steering recovery that a run may have.
pub const STEER_RECOVERY_DIR: &str = "steer-recovery";
/// Says that no steering request will be read any more.
pub const STEER_INBOX_CLOSED: &str = "steer-inbox-closed.json";
/// Says that no stop request will be read any more.
pub const STOP_INBOX_CLOSED: &str = "stop-inbox-closed.json";

// Inside the results root.

/// Results that are written but not yet promoted.
pub const RESULT_PENDING: &str = "result-pending";
/// The result indexes.
pub const RESULT_INDEX: &str = "result-index";
/// Inside the result indexes: by session.
pub const INDEX_SESSIONS: &str = "sessions";
/// Inside the result indexes: by run.
pub const INDEX_RUNS: &str = "runs";
/// Inside the result indexes: by tool call.
pub const INDEX_TOOL_CALLS: &str = "tool-calls";
/// Inside the result indexes: entries that an observer has yet to see.
pub const INDEX_OBSERVERS: &str = "observers";
/// Inside the observers' part of the result indexes: entries for a mission.
pub const INDEX_MISSION: &str = "mission";
/// Copies of delivered completions.
pub const COMPLETION_REPLAY: &str = "completion-replay";
/// Outputs that belong to the copies.
pub const OUTPUT_ARCHIVES: &str = "output-archives";
/// Results of nested detached runs.
pub const NESTED_RESULTS: &str = "nested";
/// What a result in deletion is renamed to, with a kind and a UUID appended.
pub const DELETING_RESULT_PREFIX: &str = ".deleting-result-";

// Inside lock directories.

/// The owner record of a lease, a slot or a lock.
pub const OWNER: &str = "owner.json";
/// The claim under which a slot is changed.
pub const SLOT_CLAIM: &str = "capacity.claim";

/// Names in a runs root that are not runs. Facts §1.3.
/// Spec: RS-LAYOUT-18.
pub fn is_reserved_in_runs_root(name: &str) -> bool {
    matches!(name, ACTIVE_INDEX | TERMINAL_INDEX | OWN_DIR) || name.starts_with(DELETING_RUN_PREFIX)
}

/// The process number in the name of a sibling that a process fell back to when `base` refused it:
/// `BASE-DIGITS`. Facts L-6.
/// Spec: RS-LAYOUT-05, RS-LAYOUT-06.
pub fn fallback_pid(name: &str, base: &str) -> Option<u64> {
    let digits = name.strip_prefix(base)?.strip_prefix('-')?;
    decimal(digits).filter(|pid| *pid > 0)
}

/// What an entry of a run directory is meant to be, told from its name.
/// Spec: RS-LAYOUT-20, RS-LAYOUT-24.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEntry {
    /// [`STATUS`]
    Status,
    /// [`PROOF`]
    Proof,
    /// [`CANDIDATE`]
    Candidate,
    /// [`EVENTS`]
    Events,
    /// [`STARTUP`]
    Startup,
    /// [`STARTUP_ACK`]
    Ack,
    /// [`STARTUP_CONFIRM`]
    Confirm,
    /// [`STARTUP_PROCEED`]
    Proceed,
    /// [`RUNNER_STDOUT_LOG`]
    Stdout,
    /// [`RUNNER_STDERR_LOG`]
    Stderr,
    /// [`RECOVERY_DESCRIPTOR`]
    RecoveryDescriptor,
    /// [`FANOUT_BUDGET`]
    Fanout,
    /// [`MISSION`]
    Mission,
    /// [`STRUCTURED_OUTPUT_DIR`]
    StructuredOutput,
    /// The output log of the step with this index.
    OutputLog(u32),
    /// The human log, whatever run id it names.
    SubagentLog,
    /// [`HANDOFF`]
    Handoff,
    /// [`CONTROL_DIR`]
    Control,
    /// [`APPEND_REQUESTS_DIR`]
    AppendRequests,
    /// [`WORKFLOW_RESULT`]
    WorkflowResult,
    /// [`RESULT_PENDING`]: of the child of a workflow, whose result lies beside it.
    WorkflowPending,
    /// [`WORKFLOW_RECEIPT`]
    WorkflowReceipt,
    /// [`LAUNCH_NOTE`]
    LaunchNote,
    /// [`RESERVE`]
    Reserve,
    /// [`OBSERVER`]
    Observer,
    /// An unfinished replacement.
    Temp(TempName),
    /// A name that a known writer uses for something outside the protocol.
    OtherKnown,
    /// A stranger's name.
    Unknown,
}

impl RunEntry {
    /// Sorts a name.
    pub fn of(name: &str) -> Self {
        match name {
            STATUS => Self::Status,
            PROOF => Self::Proof,
            CANDIDATE => Self::Candidate,
            EVENTS => Self::Events,
            STARTUP => Self::Startup,
            STARTUP_ACK => Self::Ack,
            STARTUP_CONFIRM => Self::Confirm,
            STARTUP_PROCEED => Self::Proceed,
            RUNNER_STDOUT_LOG => Self::Stdout,
            RUNNER_STDERR_LOG => Self::Stderr,
            RECOVERY_DESCRIPTOR => Self::RecoveryDescriptor,
            FANOUT_BUDGET => Self::Fanout,
            MISSION => Self::Mission,
            STRUCTURED_OUTPUT_DIR => Self::StructuredOutput,
            HANDOFF => Self::Handoff,
            CONTROL_DIR => Self::Control,
            APPEND_REQUESTS_DIR => Self::AppendRequests,
            WORKFLOW_RESULT => Self::WorkflowResult,
            RESULT_PENDING => Self::WorkflowPending,
            WORKFLOW_RECEIPT => Self::WorkflowReceipt,
            LAUNCH_NOTE => Self::LaunchNote,
            RESERVE => Self::Reserve,
            OBSERVER => Self::Observer,
            _ => Self::by_pattern(name),
        }
    }

    fn by_pattern(name: &str) -> Self {
        if let Some(index) = numbered(name, OUTPUT_LOG_PREFIX, ".log") {
            return Self::OutputLog(index);
        }
        if let Some(temp) = TempName::parse(name) {
            return Self::Temp(temp);
        }
        if affixed(name, SUBAGENT_LOG_PREFIX, ".md").is_some() {
            return Self::SubagentLog;
        }
        if is_other_known(name) { Self::OtherKnown } else { Self::Unknown }
    }

    /// Whether a launcher lays the entry down before it starts a process, so that it is no sign of
    /// one. The unfinished replacement of such a file counts as well, and so does its old text.
    /// Spec: RS-START-12.
    pub fn is_preparation(&self) -> bool {
        match self {
            Self::RecoveryDescriptor
            | Self::Fanout
            | Self::Mission
            | Self::StructuredOutput
            | Self::Stdout
            | Self::Stderr
            | Self::LaunchNote
            | Self::Reserve
            | Self::Observer => true,
            Self::Temp(TempName { target: TempTarget::Name(target), .. }) => {
                // One level only: a replacement of a replacement has no meaning.
                let target = original_of(target).unwrap_or(target);
                matches!(
                    target,
                    RECOVERY_DESCRIPTOR | FANOUT_BUDGET | MISSION | LAUNCH_NOTE | OBSERVER
                )
            }
            _ => false,
        }
    }
}

/// Names that known writers use inside a run directory for parts outside the protocol. The index tree
/// stands here for a child whose result goes into its own directory (facts S-99); it is looked up by nobody.
fn is_other_known(name: &str) -> bool {
    matches!(
        name,
        "worktree-diffs"
            | "progress"
            | "external-job-requests"
            | "external-job-responses"
            | "inspectors"
            | RESULT_INDEX
            | OWN_DIR
    ) || affixed(name, ".mission-sync-skipped-", ".json").is_some()
        || numbered(name, "external-job-", ".result.md").is_some()
        || [".stdout.log", ".stderr.log", ".final-message.txt", ".cursor-prompt"]
            .iter()
            .any(|suffix| numbered(name, "external-", suffix).is_some())
}

/// What stands between a prefix and a suffix, if it is not empty.
fn affixed<'a>(name: &'a str, prefix: &str, suffix: &str) -> Option<&'a str> {
    name.strip_prefix(prefix)?.strip_suffix(suffix).filter(|middle| !middle.is_empty())
}

/// The index between a prefix and a suffix, as writers spell it.
fn numbered(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    affixed(name, prefix, suffix).and_then(decimal)?.try_into().ok()
}

/// The name of the runner configuration of a run, in the temp root. Facts L-30.
pub fn runner_config_name(run_id: &str) -> String {
    format!("{RUNNER_CONFIG_PREFIX}{run_id}.json")
}

/// The run id in the name of a runner configuration. Facts L-30.
pub fn runner_config_run_id(name: &str) -> Option<&str> {
    affixed(name, RUNNER_CONFIG_PREFIX, ".json")
}

/// Whether a name in a runs root is a run directory in the middle of its deletion.
pub fn is_deleting_run(name: &str) -> bool {
    name.strip_prefix(DELETING_RUN_PREFIX).is_some_and(is_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_run_directory_has_its_meaning() {
        for (name, want) in [
            ("status.json", RunEntry::Status),
            ("process-terminal.json", RunEntry::Proof),
            ("process-terminal-candidate.json", RunEntry::Candidate),
            ("events.jsonl", RunEntry::Events),
            ("runner-startup.json", RunEntry::Startup),
            ("runner-startup-ack.json", RunEntry::Ack),
            ("runner-startup-confirm.json", RunEntry::Confirm),
            ("runner-startup-proceed.json", RunEntry::Proceed),
            ("output-0.log", RunEntry::OutputLog(0)),
            ("output-17.log", RunEntry::OutputLog(17)),
            ("output-01.log", RunEntry::Unknown),
            ("output-.log", RunEntry::Unknown),
            ("output-4294967296.log", RunEntry::Unknown),
            ("subagent-log-run-1.md", RunEntry::SubagentLog),
            ("external-2.stderr.log", RunEntry::OtherKnown),
            ("external-job-0.result.md", RunEntry::OtherKnown),
            (".runstore-reserve", RunEntry::Reserve),
            (".runstore-launch.json", RunEntry::LaunchNote),
            ("result-pending", RunEntry::WorkflowPending),
            ("Status.json", RunEntry::Unknown),
            ("status.json.tmp", RunEntry::Unknown),
            ("", RunEntry::Unknown),
        ] {
            assert_eq!(RunEntry::of(name), want, "{name:?}");
        }
        assert!(matches!(RunEntry::of(".status.json.1.2.x.tmp"), RunEntry::Temp(_)));
    }

    #[test]
    fn preparation_is_what_exists_before_any_process() {
        for (name, want) in [
            ("recovery-descriptor.json", true),
            ("run-fanout-budget.json", true),
            ("mission.json", true),
            ("structured-output", true),
            ("runner.stdout.log", true),
            ("runner.stderr.log", true),
            (".runstore-reserve", true),
            (".mission.json.1.2.x.tmp", true),
            (".mission.json.old.1.2.x.tmp", true),
            (".status.json.old.1.2.x.tmp", false),
            (".status.json.1.2.x.tmp", false),
            ("status.json", false),
            ("runner-startup.json", false),
            ("process-terminal-candidate.json", false),
            ("output-0.log", false),
            ("strange", false),
        ] {
            assert_eq!(RunEntry::of(name).is_preparation(), want, "{name}");
        }
    }

    #[test]
    fn a_fallback_sibling_ends_in_a_process_number() {
        for (name, want) in [
            ("async-subagent-runs-4242", Some(4242)),
            ("async-subagent-runs", None),
            ("async-subagent-runs-", None),
            ("async-subagent-runs-0", None),
            ("async-subagent-runs-007", None),
            ("async-subagent-runs-42x", None),
            ("async-subagent-runs-42-43", None),
            ("async-subagent-results-42", None),
        ] {
            assert_eq!(fallback_pid(name, RUNS_DIR), want, "{name}");
        }
    }

    #[test]
    fn configurations_and_deletions_are_recognised() {
        assert_eq!(runner_config_run_id("async-cfg-run-1.json"), Some("run-1"));
        assert_eq!(runner_config_run_id("async-cfg-.json"), None);
        assert!(is_deleting_run(".deleting-run-0f4d8a3e-1c1b-4e43-9f0e-6d1f5d1a2b3c"));
        assert!(!is_deleting_run(".deleting-run-x"));
        assert!(is_reserved_in_runs_root(".deleting-run-x"), "the prefix alone reserves the name");
    }
}
