//! The fixed words of an answer: verdicts, flags, stages, severities. Source: the contract in
//! `spec/` chapter 11; nothing here may be renamed.

use super::open::words;

words! {
    /// What is true of a run, in one word.
    Verdict {
        /// Launch under way, inside its time.
        Starting = "starting",
        /// A launch stage over its time; nothing has begun.
        StartStuck = "start-stuck",
        /// Recorded start-up failure.
        StartFailed = "start-failed",
        /// Launch abandoned before any work.
        NeverStarted = "never-started",
        /// Active, and demonstrably the same live process.
        Running = "running",
        /// Active; life neither proven nor excluded.
        RunningUnverified = "running-unverified",
        /// Active, and the runner is demonstrably gone.
        Orphaned = "orphaned",
        /// Terminal; result or proof still inside its time.
        Settling = "settling",
        /// Recorded paused.
        Paused = "paused",
        /// Terminal, with a matching observed exit proof.
        Finished = "finished",
        /// Terminal, without one.
        FinishedUnproven = "finished-unproven",
        /// Two records disagree about the outcome.
        Conflict = "conflict",
        /// Unreadable or of wrong types.
        Corrupt = "corrupt",
        /// Well-formed, but newer or of an unknown word.
        Unsupported = "unsupported",
        /// Not a plain file in its place.
        Unsafe = "unsafe",
        /// No evidence of a run.
        NotARun = "not-a-run",
    }
}

words! {
    /// How far a launch came.
    Stage {
        /// The directory and its descriptors exist.
        Prepared = "prepared",
        /// A process was started.
        Spawned = "spawned",
        /// The runner said ready.
        Ready = "ready",
        /// The runner acknowledged.
        Acknowledged = "acknowledged",
        /// The runner confirmed.
        Confirmed = "confirmed",
        /// The launcher wrote proceed: the commit point.
        Proceed = "proceed",
    }
}

words! {
    /// Facts beside the verdict; any number of them.
    Flag {
        /// A repairer wrote the account.
        Repaired = "repaired",
        /// A result waits for its session.
        Undelivered = "undelivered",
        /// A result that no session can receive.
        Undeliverable = "undeliverable",
        /// A terminal run whose result is nowhere.
        ResultMissing = "result-missing",
        /// A write was begun and not published after the last one that was.
        UnpublishedWrite = "unpublished-write",
        /// Not successful, but the answer was committed.
        OutputCommitted = "output-committed",
        /// Requests that nobody has read.
        ControlPending = "control-pending",
        /// Past its own deadline.
        Overdue = "overdue",
        /// The last line of the event log is cut.
        LogTorn = "log-torn",
        /// A line in the middle of the event log is damaged.
        LogCorrupt = "log-corrupt",
        /// A capacity slot must stay.
        SlotRetained = "slot-retained",
        /// A capacity slot may be released.
        SlotReleasable = "slot-releasable",
        /// A session lease is held for the run.
        LeaseHeld = "lease-held",
        /// Two directories have the run's id.
        Shadow = "shadow",
        /// The run lies in a fallback root.
        SplitRoot = "split-root",
        /// Leftovers of interrupted replacements.
        TempLitter = "temp-litter",
        /// The active marker has outlived the run.
        MarkerStale = "marker-stale",
        /// Active, but not in the index.
        MarkerMissing = "marker-missing",
        /// Several runs record one pid.
        SharedPid = "shared-pid",
        /// Others may write here.
        LoosePermissions = "loose-permissions",
        /// Not everything was looked at.
        Truncated = "truncated",
    }
}

words! {
    /// How bad a finding is.
    Severity {
        /// Something is broken.
        Error = "error",
        /// Something needs a look.
        Warning = "warning",
        /// Worth knowing.
        Note = "note",
    }
}

words! {
    /// How a line of evidence is known.
    Grade {
        /// Seen by this look itself.
        Observed = "observed",
        /// Stated by a record.
        Claimed = "claimed",
        /// Concluded by rule.
        Inferred = "inferred",
    }
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceLine {
    /// How it is known.
    pub grade: Grade,
    /// The statement.
    pub text: String,
    /// The file it comes from, relative to the run directory or the store.
    pub file: Option<String>,
    /// The instant it is about, ms since the epoch.
    pub at_ms: Option<i64>,
}

/// One thing that is wrong or odd. `id` is explained by `runstore explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Diagnosis id, from [`crate::protocol::finding`].
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// The statement.
    pub text: String,
    /// The file.
    pub file: Option<String>,
    /// The line in it, counted from 1.
    pub line: Option<u64>,
}

/// Something that may be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextAction {
    /// A stable word.
    pub action: &'static str,
    /// Why it is safe or useful.
    pub why: String,
    /// The verb of the program that does it to a path, where there is one.
    pub verb: Option<&'static str>,
}

/// What the exit evidence amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofSummary {
    /// State word of the sidecar, else of the overlay, else `missing`.
    pub state: &'static str,
    /// The recorded reason, or why it does not count.
    pub reason: Option<String>,
    /// Whether the sidecar is observed, valid, and names this run and its runner instance.
    pub counts: bool,
}

/// The answer for one run.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The verdict.
    pub verdict: Verdict,
    /// How far the launch came, where that matters.
    pub stage: Option<Stage>,
    /// Whether the run can be resumed now, and why (not).
    pub resumable: Option<(bool, &'static str)>,
    /// Of a conflict: the record with the better evidence.
    pub preferred: Option<&'static str>,
    /// The dialect, or `unknown`.
    pub dialect: &'static str,
    /// Flags, in the order of the contract, without repetition.
    pub flags: Vec<Flag>,
    /// The exit proof.
    pub proof: ProofSummary,
    /// Why this verdict.
    pub because: String,
    /// Evidence.
    pub evidence: Vec<EvidenceLine>,
    /// Findings.
    pub findings: Vec<Finding>,
    /// What may be done.
    pub next: Vec<NextAction>,
    /// What must not be done.
    pub must_not: Vec<String>,
}

impl Diagnosis {
    /// Whether a flag is set.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
}
