//! Every bound, with its reason. Sizes in bytes, times in milliseconds. Spec: RS-READ-13.

/// Largest `status.json` or result payload that is read (facts Z-41).
pub const STATUS_MAX_BYTES: u64 = 16 << 20;
/// Largest result payload that is read (facts Z-41).
pub const RESULT_MAX_BYTES: u64 = 16 << 20;
/// Largest proof, candidate, owner record, marker or index entry that is read (facts Z-41).
pub const SIDECAR_MAX_BYTES: u64 = 1 << 20;
/// Largest start-up or control message that is read (facts Z-41).
pub const STARTUP_MAX_BYTES: u64 = 64 << 10;
/// Most characters of the text of a start-up error: as many as of the stderr tail, and six bytes for each
/// of them stay far below [`STARTUP_MAX_BYTES`].
pub const STARTUP_ERROR_CHARS: usize = 4000;
/// How much of the end of `events.jsonl` is read: an event log may be hundreds of gigabytes.
pub const EVENTS_TAIL_BYTES: u64 = 256 << 10;
/// How much of the end of `events.jsonl` is read for one row of a list, when the run has ended and has
/// a proof.
pub const EVENTS_ROW_TAIL_BYTES: u64 = 16 << 10;
/// How much of the end of `runner.stderr.log` is read (facts Q-30).
pub const STDERR_TAIL_BYTES: u64 = 64 << 10;
/// How many lines of the stderr tail are shown (facts Q-30).
pub const STDERR_TAIL_LINES: usize = 30;
/// How many characters of the stderr tail are shown (facts Q-30).
pub const STDERR_TAIL_CHARS: usize = 4000;
/// Deepest nesting of a JSON document: four times what any known writer produces, and far below
/// what a recursive reader of another language survives.
pub const MAX_DEPTH: usize = 128;
/// Most members of one JSON object: twice the most steps, which may be keys, and a hundred times what
/// any known writer produces. More would make every look-up of a hostile record cost. Spec: RS-JSON-10.
pub const MAX_MEMBERS: usize = 20_000;
/// Most entries of one run directory that are looked at; the rest is counted as `truncated`. Known
/// writers make a few per step, and reading this many takes some hundredths of a second. Spec: RS-READ-04.
pub const RUN_DIR_MAX_ENTRIES: usize = 30_000;
/// Most steps of one status that are looked at.
pub const MAX_STEPS: usize = 10_000;
/// Most runs of asynchronous steps that are looked at for one workflow.
pub const CHILDREN_LOOKED_AT: usize = 64;
/// Most control requests, slots per pool or leases that are read one by one.
pub const MAX_SMALL_RECORDS: usize = 10_000;
/// Most requests of one control queue whose content is looked at: what a runner would do with the
/// first ones tells what is wrong with their client.
pub const REQUESTS_READ: usize = 100;
/// Most requests of one control queue that are counted: nobody looks at so many, and a queue that is filled
/// by mistake must not fill a report.
pub const REQUESTS_LISTED: usize = 1000;
/// Largest runner configuration that is read: prompts and skills of all steps.
pub const CONFIG_MAX_BYTES: u64 = 16 << 20;
/// Most nested routes of one store that are read.
pub const MAX_ROUTES: usize = 1000;
/// Most event files of one route that nobody folded in and that are read (facts Q-43: the registry
/// remembers as many).
pub const ROUTE_EVENTS: usize = 1000;
/// Longest file name of the supported file systems.
pub const NAME_MAX_BYTES: usize = 255;
/// Longest stem of a name that gets `.json` appended.
pub const JSON_STEM_MAX_BYTES: usize = 250;
/// Shortest id prefix that a lookup accepts (facts L-12).
pub const ID_PREFIX_MIN: usize = 8;
/// Length from which an id is never a prefix (facts L-12).
pub const ID_PREFIX_BELOW: usize = 36;
/// Times a run is read again when a file changed while it was read.
pub const SNAPSHOT_RETRIES: usize = 4;
/// Newest `lifecycleArtifactVersion` that is understood.
/// Spec: RS-ROLE-07.
pub const LIFECYCLE_VERSION: i64 = 3;

/// Grace for a directory without a status, counted from its modification time.
/// Spec: RS-DIAG-15.
pub const MISSING_STATUS_GRACE_MS: i64 = 10_000;
/// Grace for a run that only the memory of its launcher knows (facts §8.1).
pub const STARTED_GRACE_MS: i64 = 1_000;
/// How long `queued` may last with no process recorded.
pub const QUEUED_GRACE_MS: i64 = 300_000;
/// How long a start-up stage may last, on the runner's side.
pub const STARTUP_STAGE_MS: i64 = 30_000;
/// How long a terminal run may lack its result or proof.
pub const SETTLING_MS: i64 = 60_000;
/// Silence after which confidence drops; never a verdict by itself.
pub const STALE_ALIVE_MS: i64 = 86_400_000;
/// Deepest nesting of directories in a run directory that is measured or removed.
pub const TREE_DEPTH: u32 = 64;
/// Age from which an unfinished replacement or a claim is left over: no writer takes so long.
pub const LEFTOVER_MS: i64 = 3_600_000;
/// Age from which a marker of a terminal run is stale even without a proof (facts X-8).
pub const STALE_MARKER_MS: i64 = 86_400_000;
/// A start later than the last write by more than this shows another process.
pub const REUSE_MARGIN_MS: i64 = 7_200_000;
/// How much later than the first write that names it a process may seem to have started: one clock
/// tick plus the rounding of the boot time.
pub const START_SLACK_MS: i64 = 1_000;
/// Inactivity after which a failed run's slot is releasable by policy (facts K-30).
pub const ABANDONED_SLOT_MS: i64 = 1_200_000;
/// Age from which a claim file of a slot is shown as stuck (facts appendix C).
pub const STUCK_CLAIM_MS: i64 = 60_000;
/// Orphans whose last writes lie this close together are reported as one event.
pub const SAME_EVENT_MS: i64 = 1_000;

/// Most files whose replacement waits for room; more are refused. A run writes a dozen.
pub const DEFERRED_MAX_ENTRIES: usize = 256;
/// Most bytes of waiting replacements, which are held in memory: four results of the largest size that
/// is read without being asked.
pub const DEFERRED_MAX_BYTES: u64 = 64 << 20;
/// How often waiting replacements are tried (facts W-21).
pub const DEFERRED_RETRY_MS: i64 = 1_000;
/// How long a replacement may wait before it is told of once more: a leak of handles never heals by
/// itself (facts Z-8).
pub const DEFERRED_OVERDUE_MS: i64 = 60_000;
/// Bytes of a reserve file: a terminal status of some dozen steps, a result, a candidate and a proof,
/// with the blocks of their temp files.
pub const RESERVE_BYTES: usize = 128 << 10;
/// Free bytes from which a released reserve is made again: several times its size, so that it does not
/// take the room that others were waiting for.
pub const RESERVE_AGAIN_BYTES: u64 = 1 << 20;
/// Size from which an event log is moved aside: the budget of the existing writers (facts E-2).
pub const EVENTS_MAX_BYTES: u64 = 50 << 20;

/// How long a process group may take to end after the request (facts §5.1).
pub const GROUP_TERM_MS: u64 = 3_000;
/// How long it may take after the end that cannot be refused (facts §5.1).
pub const GROUP_KILL_MS: u64 = 1_000;
/// How often it is looked at meanwhile (facts §5.1).
pub const GROUP_POLL_MS: u64 = 25;
/// How many times an observer ends what a runner left: each time the children of what ended before
/// become its own. Something that forks faster than it is ended must not keep the proof for ever.
pub const LEFTOVER_ROUNDS: u32 = 16;
/// How often an observer tries to write a proof that could not be written: ten minutes long. It is the
/// only one who knows, but a disk that stays full must not keep it for ever.
pub const PROOF_ATTEMPTS: u32 = 600;
/// How long it waits in between.
pub const PROOF_RETRY_MS: u64 = 1_000;
/// How often it tries to make what follows from the proof; anybody can make it later.
pub const COMPLETE_ATTEMPTS: u32 = 10;
/// How long a witness that saw no exit waits for the real observer, which writes its proof right after
/// the close; a full disk aside.
pub const OBSERVER_GRACE_MS: u64 = 10_000;
/// How long an observer waits for a live launcher to decide over a runner that has ended: what a launcher
/// may take for one state, and much more than it needs to notice an end and to record it.
pub const LAUNCH_GRACE_MS: u64 = 10_000;
/// How often either looks meanwhile.
pub const OBSERVER_LOOK_MS: u64 = 100;
/// How long a launcher waits for a shim to say who the runner is: two starts of a small program and one file,
/// so this is over only where something hangs.
pub const SHIM_START_MS: u64 = 10_000;

/// Most run directories of a root of which a short list asks which changed last: about a ms.
pub const LIST_DIRECTORIES: usize = 1_000;

/// How long a replacement may take before its temp file counts as left over, its retries included.
pub const REPLACEMENT_MS: i64 = 10_000;
/// How long a run must have been quiet before a recoverer does anything about it, in ms. Facts Z-35.
pub const RECOVERY_GRACE_MS: i64 = 5_000;
/// Age from which an unfinished replacement of a dead writer is litter, in ms. Facts Z-3.
pub const LITTER_AGE_MS: i64 = 3_600_000;

/// How often a runner looks into its inbox (facts C-4): often enough for a person, and cheap. It is a look
/// because a user has few watches, and the end of a step wakes it anyway.
pub const CONTROL_POLL_MS: i64 = 250;
/// How often a status is written for the activity of its steps alone: a status is flushed, and a person who
/// looks sees no difference. The existing runners write ten times as often and flush nothing (facts S-43).
pub const ACTIVITY_MS: u64 = 1_000;
/// Size from which the output of a step is moved aside. The one before is dropped, so at most twice as much
/// is kept of each step.
pub const OUTPUT_MAX_BYTES: u64 = 16 << 20;
/// How much of a step's output is taken before the others have their turn.
pub const OUTPUT_TURN_BYTES: usize = 1 << 20;
/// How much of the end of a step's output stands in the result.
pub const OUTPUT_TAIL_BYTES: u64 = 4 << 10;
/// How long a client waits for its request to be taken up before a signal is thought of: twice the safety
/// look of the existing runners (facts C-4).
pub const REQUEST_TAKEN_MS: u64 = 10_000;
/// How often a client that waits looks at the run again: often enough for a person.
pub const WAIT_LOOK_MS: u64 = 100;
/// How much of a log is read at once when it is shown: a log may be longer than the memory.
pub const LOG_PIECE_BYTES: u64 = 64 << 10;
/// How far from the end of a log its last lines are looked for: as much as is kept of the output of a step.
pub const LOG_LINES_BYTES: u64 = 16 << 20;
/// How often a log that is followed is looked at.
pub const LOG_LOOK_MS: u64 = 100;
/// How often whoever follows a log looks whether its run goes on: that costs more than a look at the log.
pub const LOG_RUN_LOOK_MS: u64 = 500;
/// Most requests that a runner takes up at one look; the others wait for the next.
pub const REQUESTS_TAKEN: usize = 100;
