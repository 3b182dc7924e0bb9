//! Everything that is known of one run, as plain values: the input of every verdict.
//!
//! The store fills it from one consistent look at the disk and the process table; nothing in here
//! can change while it is judged. Each file is a [`FileFact`], so that "absent", "not a plain file",
//! "unreadable" and "damaged" stay four different answers.

use std::sync::Arc;

use super::candidate::Candidate;
use super::config::RunnerConfig;
use super::error::DecodeError;
use super::event::EventSummary;
use super::lease::LeaseOwner;
use super::process::{Life, RecordedProcess};
use super::proof::Proof;
use super::result::{ResultPlace, ResultView};
use super::slot::SlotOwner;
use super::startup::{ControlMessage, StartupMessage};
use super::status::StatusView;
use super::{layout, limits};

/// What is known of an open file besides its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMeta {
    /// Modification time, ms since the epoch.
    pub mtime_ms: i64,
    /// Size in bytes.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
}

/// One file of the protocol, as found.
/// Spec: RS-CAND-02, RS-PROOF-04.
#[derive(Clone, Debug, Default)]
pub enum FileFact<T> {
    /// The name is not there.
    #[default]
    Absent,
    /// The name is there, but not as a plain file of this user; the text says what it is.
    Unsafe(String),
    /// The system refused to read it; the text is its reason.
    Unreadable(String),
    /// Read, but not what the protocol needs there.
    Damaged(DecodeError, FileMeta),
    /// Read and decoded. Boxed, because most facts of most runs are absent.
    Present(Box<T>, FileMeta),
}

impl<T> FileFact<T> {
    /// The decoded value.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Present(value, _) => Some(value),
            _ => None,
        }
    }

    /// What is known of the file, if it could be opened.
    pub fn meta(&self) -> Option<FileMeta> {
        match self {
            Self::Present(_, meta) | Self::Damaged(_, meta) => Some(*meta),
            _ => None,
        }
    }

    /// Whether the name is there at all.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

/// Times that verdicts depend on, in ms. All settable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Grace for a directory without a status.
    pub missing_status_ms: i64,
    /// Grace for `queued` with no process recorded.
    pub queued_ms: i64,
    /// Time of one start-up stage.
    pub startup_stage_ms: i64,
    /// Time in which a terminal run may lack result and proof.
    pub settling_ms: i64,
    /// Silence that lowers confidence.
    pub stale_alive_ms: i64,
    /// Inactivity after which policy may release a failed run's slot; `None` turns the policy off.
    pub abandoned_slot_ms: Option<i64>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            missing_status_ms: limits::MISSING_STATUS_GRACE_MS,
            queued_ms: limits::QUEUED_GRACE_MS,
            startup_stage_ms: limits::STARTUP_STAGE_MS,
            settling_ms: limits::SETTLING_MS,
            stale_alive_ms: limits::STALE_ALIVE_MS,
            abandoned_slot_ms: Some(limits::ABANDONED_SLOT_MS),
        }
    }
}

/// A result payload found for the run.
#[derive(Clone, Debug)]
pub struct ResultFact {
    /// Where it lies.
    pub place: ResultPlace,
    /// Path relative to the store root, for display.
    pub path: String,
    /// What it says.
    pub fact: FileFact<ResultView>,
}

impl ResultFact {
    /// Whether it was written and is not public yet: in the results root, or in the run directory of a child of a
    /// workflow.
    pub fn is_pending(&self) -> bool {
        let beside_its_run = || self.path.split('/').next() == Some(layout::RESULT_PENDING);
        self.place == ResultPlace::Pending
            || (self.place == ResultPlace::Workflow && beside_its_run())
    }
}

/// Leftovers of interrupted replacements in the run directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TempFacts {
    /// Number of leftovers.
    pub count: u64,
    /// How many of them were looked at one by one.
    pub measured: u64,
    /// The size of those in all.
    pub bytes: u64,
    /// Names of leftovers that were begun after the last completed write of their target.
    pub newer_than_target: Vec<String>,
}

/// Requests in the control inbox that nobody has consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlFacts {
    /// Paths relative to the run directory, bounded.
    pub pending: Vec<String>,
    /// Modification time of the oldest one.
    pub oldest_ms: Option<i64>,
    /// Those of them that a runner would remove and ignore, with the reason.
    pub invalid: Vec<(String, String)>,
    /// Names of closed markers beside pending requests of their kind.
    pub closed: Vec<&'static str>,
}

/// The run's name in the active-run index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkerFacts {
    /// Whether the index directory exists.
    pub index_exists: bool,
    /// Modification time of the marker, if there is one.
    pub marker_mtime_ms: Option<i64>,
}

/// A slot whose owner record names the run.
#[derive(Clone, Debug)]
pub struct SlotFact {
    /// Path relative to the store root.
    pub path: String,
    /// The owner record.
    pub owner: SlotOwner,
    /// Whether a claim file freezes it.
    pub claimed: bool,
}

/// A lease whose owner record names the run.
#[derive(Clone, Debug)]
pub struct LeaseFact {
    /// Path relative to the store root.
    pub path: String,
    /// The owner record.
    pub owner: LeaseOwner,
    /// Why it is held, or `None` when it is demonstrably stale.
    pub held_because: Option<String>,
}

/// What a look at the run of an asynchronous step showed. Such a run is judged for itself; here it
/// only matters for the workflow that waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildFact {
    /// The run that the step names.
    pub run_id: String,
    /// Whether it has a directory beside the workflow's.
    pub found: bool,
    /// Whether it has a status, readable or not.
    pub has_status: bool,
    /// Its recorded state, verbatim; `None` without a readable status.
    pub state: Option<String>,
    /// Whether that state is an end that gives a slot free.
    pub has_ended: bool,
    /// Whether its status names a runner instance.
    pub bound: bool,
    /// Whether its status says `not-started` with an error.
    pub failed_to_start: bool,
    /// Whether its proof is observed, for it and that instance.
    pub observed: bool,
}

/// The end of `runner.stderr.log`, already bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StderrTail {
    /// The last lines, verbatim. Display escapes them.
    pub text: String,
    /// Whether more was there.
    pub cut: bool,
}

/// A launch of this library, by its note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFact {
    /// The instance that was chosen for the runner.
    pub instance_id: String,
    /// Whether the launcher is demonstrably gone.
    pub launcher_gone: bool,
}

/// What became of an observer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObserverFact {
    /// None is recorded.
    #[default]
    NotRecorded,
    /// It lives, or cannot be told to be gone.
    MayLive,
    /// It is demonstrably gone.
    Gone,
}

/// Who of this library is in charge of a run that occupies a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keepers {
    /// What the launcher left about itself, if it names this run.
    pub launch: Option<LaunchFact>,
    /// What became of the observer that recorded itself for this run.
    pub observer: ObserverFact,
}

/// Everything that is known of one run.
#[derive(Clone, Debug)]
pub struct RunEvidence {
    /// The instant of the judgement, ms since the epoch.
    pub now_ms: i64,
    /// Times of the judgement.
    pub times: Times,
    /// The directory's name: the identity of the run.
    pub run_id: String,
    /// Modification time of the directory.
    pub dir_mtime_ms: Option<i64>,
    /// Permission bits of the directory.
    pub dir_mode: u32,
    /// Things that are not plain files or directories in their place: file (empty for the directory
    /// itself) and what is wrong.
    pub unsafe_things: Vec<(String, String)>,
    /// `status.json`.
    pub status: FileFact<StatusView>,
    /// `process-terminal-candidate.json`.
    pub candidate: FileFact<Candidate>,
    /// `process-terminal.json`. Nearly always it is the copy in the status, which is then shared.
    pub proof: FileFact<Arc<Proof>>,
    /// `runner-startup.json`.
    pub startup: FileFact<StartupMessage>,
    /// `runner-startup-ack.json`.
    pub ack: FileFact<ControlMessage>,
    /// `runner-startup-confirm.json`.
    pub confirm: FileFact<ControlMessage>,
    /// `runner-startup-proceed.json`.
    pub proceed: FileFact<ControlMessage>,
    /// Permission bits of `events.jsonl`; 0 when it was not opened.
    pub events_mode: u32,
    /// `events.jsonl`, or `None` when there is none.
    pub events: Option<EventSummary>,
    /// Results found for the run, best evidence first. A replay is only here while it is valid.
    pub results: Vec<ResultFact>,
    /// Replays that are evidence of nothing: path relative to the store root, and why.
    pub unused_replays: Vec<(String, String)>,
    /// Whether a results area is there that was not looked at, or not to its end, so that a result may lie in it.
    pub results_unread: bool,
    /// Size of all `output-<i>.log` files.
    pub output_bytes: u64,
    /// Whether a log file of the runner holds text. The launcher opens them before it starts a process, so empty
    /// ones tell of none. Only looked at where the run is not over.
    pub has_runner_logs: bool,
    /// Whether any file of the protocol is there.
    pub has_protocol_files: bool,
    /// Names that are not of the protocol, bounded.
    pub foreign_names: Vec<String>,
    /// Whether entries were left out of the look.
    pub truncated: bool,
    /// The runner's last words.
    pub stderr: Option<StderrTail>,
    /// Temp litter.
    pub temp: TempFacts,
    /// Control inbox.
    pub control: ControlFacts,
    /// Active-run index.
    pub marker: MarkerFacts,
    /// Slots held for the run.
    pub slots: Vec<SlotFact>,
    /// Who is in charge of it; asked only where slots are held, the runner of an active run is gone, or a full report
    /// is made of a run whose proof is pending.
    pub keepers: Keepers,
    /// Leases held for the run.
    pub leases: Vec<LeaseFact>,
    /// What became of the recorded process.
    pub life: Life,
    /// Of the process that `runner-startup.json` names, when the status names none.
    pub startup_life: Option<Life>,
    /// The runs of a workflow's asynchronous steps, where the workflow has a slot or has lost its
    /// host; bounded by [`limits::CHILDREN_LOOKED_AT`].
    pub children: Vec<ChildFact>,
    /// Other active runs that record the same pid.
    pub pid_shared_with: Vec<String>,
    /// Whether the session file that a resume needs exists; `None` when none is named.
    pub session_file_exists: Option<bool>,
    /// Whether the working directory exists; `None` when none is named.
    pub cwd_exists: Option<bool>,
    /// Whether the run lies in a sibling fallback root, and its name.
    pub split_root: Option<String>,
    /// Whether this directory only shadows the real run of the same id, and where that is.
    pub shadowed_by: Option<String>,
    /// Whether the path says that the run is nested.
    pub is_nested: bool,
    /// Whether the store's name shows the D family.
    pub is_dm_store: bool,
    /// Whether an `async-cfg-<run>.json` is still there.
    pub config_left: bool,
    /// What that configuration says; absent where it was not read.
    pub config: FileFact<RunnerConfig>,
    /// Whether files kept changing while they were read.
    pub unstable: bool,
}

impl RunEvidence {
    /// The process that the status names, with everything that tells it from a later one of its number.
    /// `None` without a status.
    pub fn process(&self) -> Option<RecordedProcess<'_>> {
        let s = self.status.value()?;
        // Facts: the host of a run is its own, else that of a lease owner naming it.
        let lease = self.leases.iter().map(|l| &l.owner).find(|o| Some(o.pid) == s.pid);
        let any_lease = self.leases.first().map(|l| &l.owner);
        let mut process = s.process();
        let identity = &mut process.identity.start_identity;
        if identity.is_none() {
            *identity = lease.and_then(|o| o.process_start_identity.clone());
        }
        process.host = process.host.or(any_lease.map(|o| &*o.hostname));
        let started = self.events.as_ref().and_then(|log| log.started);
        let logged = started.and_then(|(pid, at)| at.filter(|_| pid == s.pid));
        process.first_named_ms = process.first_named_ms.into_iter().chain(logged).min();
        Some(process)
    }

    /// A run of which nothing was found yet: no file, no process, nothing held for it.
    pub fn empty(run_id: String, now_ms: i64) -> Self {
        Self {
            now_ms,
            times: Times::default(),
            run_id,
            dir_mtime_ms: None,
            dir_mode: 0,
            unsafe_things: Vec::new(),
            status: FileFact::Absent,
            candidate: FileFact::Absent,
            proof: FileFact::Absent,
            startup: FileFact::Absent,
            ack: FileFact::Absent,
            confirm: FileFact::Absent,
            proceed: FileFact::Absent,
            events_mode: 0,
            events: None,
            results: Vec::new(),
            unused_replays: Vec::new(),
            results_unread: false,
            output_bytes: 0,
            has_runner_logs: false,
            has_protocol_files: false,
            foreign_names: Vec::new(),
            truncated: false,
            stderr: None,
            temp: TempFacts::default(),
            control: ControlFacts::default(),
            marker: MarkerFacts::default(),
            slots: Vec::new(),
            keepers: Keepers::default(),
            leases: Vec::new(),
            life: Life::not_recorded(),
            startup_life: None,
            children: Vec::new(),
            pid_shared_with: Vec::new(),
            session_file_exists: None,
            cwd_exists: None,
            split_root: None,
            shadowed_by: None,
            is_nested: false,
            is_dm_store: false,
            config_left: false,
            config: FileFact::Absent,
            unstable: false,
        }
    }

    /// The results that may be taken for the run's own: not those that name another run or another
    /// session (`RS-RESULT-04`), nor what was public before a pending one was written (`RS-RESULT-02`). What
    /// cannot be read names nobody, so it stays.
    pub fn own_results(&self) -> impl Iterator<Item = &ResultFact> {
        let own = || self.results.iter().filter(|result| self.foreign_name(result).is_none());
        let at = |result: &ResultFact| result.fact.value().and_then(|view| view.at_ms);
        let pending_ms = own().filter(|result| result.is_pending()).filter_map(at).max();
        own().filter(move |result| {
            let may_be_older = !result.is_pending() && result.place != ResultPlace::Replay;
            !may_be_older || pending_ms.zip(at(result)).is_none_or(|(pending, own)| own >= pending)
        })
    }

    /// The member and value by which a result names another run or session than this one.
    pub fn foreign_name<'r>(&self, result: &'r ResultFact) -> Option<(&'static str, &'r str)> {
        let view = result.fact.value()?;
        let session = self.status.value().and_then(|s| s.session_id.as_deref());
        let other_run = view.run_id.as_deref().filter(|id| *id != self.run_id);
        let other_session =
            view.session_id.as_deref().filter(|id| session.is_some_and(|own| own != *id));
        other_run.map(|id| ("run", id)).or(other_session.map(|id| ("session", id)))
    }
}
