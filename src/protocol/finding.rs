//! Every finding that a diagnosis can name, and what to say when somebody asks about it.
//!
//! One table: the id that stands in the answer, its severity, the clauses it rests on, what it means
//! and what to do. `runstore explain ID` prints a row; a test asserts that no row is missing.

use super::error::DecodeError;
use super::verdict::Severity;

/// One kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct FindingKind {
    /// The id in reports. Permanent.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Clauses of the spec that it rests on.
    pub clauses: &'static [&'static str],
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
}

macro_rules! findings {
    ($($(#[$meta:meta])* $name:ident = $id:literal, $severity:ident, [$($clause:literal),*], $meaning:literal, $advice:literal;)+) => {
        $($(#[$meta])* #[doc = $meaning] pub static $name: FindingKind = FindingKind {
            id: $id, severity: Severity::$severity, clauses: &[$($clause),*], meaning: $meaning, advice: $advice,
        };)+
        /// Every finding, in the order of the table.
        pub static ALL: &[&FindingKind] = &[$(&$name),+];
    };
}

findings! {
    NOT_PLAIN = "not-plain", Error, ["RS-READ-01", "RS-READ-03"],
        "A name of the protocol is a link, a pipe, a device, a directory or another user's file. It was not opened.",
        "Find out who put it there. Never follow it with a tool that follows links.";
    STATUS_UNREADABLE = "status-unreadable", Error, ["RS-DIAG-07"],
        "The system refused to read status.json.",
        "Check the permissions of the file and its directory.";
    STATUS_EMPTY = "status-empty", Error, ["RS-JSON-03"],
        "status.json has no bytes: its name survived a crash, its content did not.",
        "Keep the file. The outcome may be in the result, the proof or the event log.";
    STATUS_ZERO_FILLED = "status-zero-filled", Error, ["RS-JSON-03"],
        "status.json has its length but only zero bytes: the rename was durable, the data was not.",
        "Keep the file. The outcome may be in the result, the proof or the event log.";
    STATUS_TORN = "status-torn", Error, ["RS-JSON-08"],
        "status.json ends in the middle of a value.",
        "Keep the file. A leftover temp file beside it may hold the whole text.";
    STATUS_NOT_JSON = "status-not-json", Error, ["RS-JSON-01", "RS-JSON-02", "RS-JSON-08"],
        "status.json is not one JSON object in UTF-8 without a byte-order mark.",
        "Keep the file and find out which writer made it.";
    STATUS_TOO_LARGE = "status-too-large", Error, ["RS-JSON-09", "RS-JSON-10"],
        "status.json is longer or deeper than any writer makes it, so it was not read.",
        "Look at the size and the first bytes by hand.";
    STATUS_WRONG_TYPE = "status-wrong-type", Error, ["RS-JSON-14", "RS-STATUS-02"],
        "A member of status.json has a type that the protocol does not allow there. Nothing is coerced.",
        "Find the version that wrote it; do not edit the value.";
    STATUS_MISSING = "status-missing", Error, ["RS-DIAG-08"],
        "There is evidence of work (a proof, a result, output, step events or a candidate with counts), but no status.json.",
        "Keep the directory: the other files tell the outcome.";
    STATUS_NEWER = "status-newer", Warning, ["RS-ROLE-08"],
        "The record names a newer lifecycle version than this program knows.",
        "Use a newer runstore. Nothing in the record was interpreted.";
    STATE_UNKNOWN = "state-unknown", Warning, ["RS-JSON-06", "RS-STATUS-05"],
        "The state is not a word of the protocol. It is never matched by prefix or case.",
        "A newer writer, or a damaged word: compare with the event log.";
    RUN_ID_DIFFERS = "run-id-differs", Warning, ["RS-LAYOUT-09"],
        "The record names another run than its directory. The directory's name is the identity.",
        "The directory was copied or renamed; indexes and slots go by the directory.";
    DUPLICATE_KEYS = "duplicate-keys", Warning, ["RS-JSON-05"],
        "A key occurs twice in one object. Readers take the last one; writers must not touch the file.",
        "Find the writer. Recovery leaves such a record alone.";
    PEERS_REFUSE = "peers-refuse", Warning, ["RS-JSON-15"],
        "A member is of a kind that other implementations refuse, although nothing here depends on it.",
        "Other readers will not list this run; this one does.";
    PID_INVALID = "pid-invalid", Warning, ["RS-LIVE-10"],
        "The recorded pid is a number that cannot be a process id.",
        "Liveness stays unknown: nothing is concluded from it.";
    DISMISSED = "dismissed", Note, ["RS-STATUS-12"],
        "Somebody hid this run from listings. That changes no verdict.",
        "Recovery refuses such a run unless a result exists.";
    SILENT = "silent", Note, ["RS-DIAG-30"],
        "An active run has not written for longer than a day. A quiet run may be healthy.",
        "Age only lowers confidence. Look at the process and its output.";
    CLOCK_AHEAD = "clock-ahead", Warning, ["RS-JSON-16"],
        "The record is dated after now. A clock was stepped, or --now is in the past.",
        "Ages of this record are not to be relied on.";
    SHARED_PID = "shared-pid", Warning, ["RS-DIAG-22"],
        "Several active runs record one pid, so it is the pid of a host process and not of a runner.",
        "Never signal it: that would end all of them. Use request files.";
    PROOF_INVALID = "proof-invalid", Warning, ["RS-PROOF-01"],
        "process-terminal.json is not a valid proof. It reads as unknown and stays as it is.",
        "The exit is unproven. Keep the file.";
    PROOF_FOREIGN = "proof-foreign", Warning, ["RS-PROOF-02"],
        "The proof says observed, but names another run or another runner instance. It does not count.",
        "Never release anything on it, and never repair it by editing ids.";
    END_UNOBSERVABLE = "end-unobservable", Note, ["RS-PROOF-14"],
        "The proof is pending, and whoever could have seen the end of the runner is gone. Nobody can observe it any more.",
        "Do not wait for the proof. The end stays unproven; recovery tells what may be done.";
    OVERLAY_DIFFERS = "overlay-differs", Note, ["RS-PROOF-03"],
        "The proof and its copy in the status differ. The sidecar decides.",
        "The observer or a repairer stopped half-way; no data is lost.";
    CANDIDATE_INVALID = "candidate-invalid", Warning, ["RS-CAND-01"],
        "process-terminal-candidate.json is not a valid candidate.",
        "No observed proof can come from it.";
    STARTUP_INVALID = "startup-invalid", Warning, ["RS-START-01"],
        "A start-up or control message is not what the handshake needs.",
        "Both sides fail at once when they read it.";
    CONFIG_LEFT = "config-left", Note, ["RS-START-06"],
        "The runner's configuration, which holds prompts in clear, is still there: the runner never read it.",
        "It can be removed once no process can still start from it.";
    OUTCOMES_DISAGREE = "outcomes-disagree", Error, ["RS-DIAG-10"],
        "Two records tell different outcomes of one run.",
        "Read both. `preferred` names the one with the better evidence; neither may vanish.";
    LOG_AHEAD_OF_STATUS = "log-ahead-of-status", Error, ["RS-DIAG-11"],
        "The event log tells the end of the run, its status still says active, and there is no result.",
        "The status was lost on the way. The log is the only account of the end.";
    STATUS_WRITES_LOST = "status-writes-lost", Warning, ["RS-DIAG-11"],
        "The writer logged that status writes failed. The status is older than the run.",
        "Trust the log for what came later.";
    RESULT_INVALID = "result-invalid", Error, ["RS-FLAG-03"],
        "A result payload cannot be read, so no session can receive it.",
        "Keep it; its text may still be read by a person.";
    RESULT_UNDELIVERABLE = "result-undeliverable", Warning, ["RS-FLAG-03"],
        "A result names no session, or another one than its run. Nobody will pick it up.",
        "Hand it over by hand, or leave it.";
    RESULT_MISSING = "result-missing", Warning, ["RS-FLAG-04"],
        "The run has ended and its result is in no area, although nothing proves that it was delivered.",
        "Look in the run's own output files.";
    LOG_TORN = "log-torn", Note, ["RS-FLAG-09"],
        "The last line of the event log is cut: ordinary after a crash.",
        "Nothing. A writer starts a new line before it appends.";
    LOG_CORRUPT = "log-corrupt", Warning, ["RS-FLAG-10"],
        "A line in the middle of the event log is not JSON: events were lost there.",
        "The other lines were read.";
    LOG_LARGE = "log-large", Note, ["RS-FLAG-21"],
        "The event log is longer than what is read of it; only its end was.",
        "Counts and the first events are not known.";
    LOG_BUDGET = "log-budget", Note, ["RS-EVENT-05"],
        "The writer stopped logging child events at its own budget.",
        "Lifecycle events are still there.";
    TEMP_LITTER = "temp-litter", Note, ["RS-LAYOUT-25", "RS-FLAG-16"],
        "Temp files of interrupted replacements are left over. They are evidence until judged, never data.",
        "They can be removed when their writer is gone and their target is newer.";
    UNPUBLISHED_WRITE = "unpublished-write", Warning, ["RS-FLAG-05"],
        "A writer died between writing a new version and publishing it. The leftover may be newer than the file.",
        "Never remove it before the run is settled.";
    CONTROL_PENDING = "control-pending", Warning, ["RS-FLAG-07"],
        "Requests lie in the control inbox that nobody has taken up.",
        "A live runner takes them within seconds; a dead one never will.";
    DIR_TRUNCATED = "dir-truncated", Note, ["RS-READ-05"],
        "The run directory has more entries than are looked at.",
        "Look at it by hand.";
    UNSTABLE = "unstable", Note, ["RS-READ-06"],
        "Files of the run kept changing while they were read, so the picture may mix two moments.",
        "Ask again.";
    MARKER_STALE = "marker-stale", Note, ["RS-FLAG-17"],
        "The run is still in the active index although it has ended and its proof is in.",
        "Peers release it when they list the run.";
    MARKER_MISSING = "marker-missing", Warning, ["RS-FLAG-18"],
        "The run is active but not in the active index, so listings of peers do not see it.",
        "Ask for it by its exact id.";
    LEASE_STALE = "lease-stale", Note, ["RS-LEASE-02"],
        "A session lease outlived its owner and, where there was one, its writer; both are demonstrably gone from this host.",
        "The next revival reclaims it.";
    LEASE_UNREADABLE = "lease-unreadable", Error, ["RS-LEASE-04", "RS-LEASE-07"],
        "A lease directory has no valid owner record. No implementation may reclaim it.",
        "It blocks its session until a person removes it.";
    SLOT_RELEASABLE = "slot-releasable", Note, ["RS-SLOT-04"],
        "The rule for freeing the run's capacity slot is met.",
        "Its owner frees it at its next look at the pool.";
    SLOT_RETAINED = "slot-retained", Note, ["RS-SLOT-04"],
        "The run's capacity slot must stay; the text says by which rule.",
        "It frees when the named evidence appears.";
    SLOT_UNREADABLE = "slot-unreadable", Error, ["RS-SLOT-02"],
        "A slot has no valid owner record. It counts as occupied for ever.",
        "It blocks one place of its pool until a person removes it.";
    SPLIT_ROOT = "split-root", Warning, ["RS-LAYOUT-05"],
        "One user's runs lie in two roots, because a writer could not use the usual one.",
        "Neither root is litter. Inspect the store to see both.";
    SHADOW = "shadow", Warning, ["RS-LAYOUT-17"],
        "Two directories have the same run id. The one with a status is the run.",
        "The other one only hides it from look-ups.";
    LOOSE_PERMISSIONS = "loose-permissions", Warning, ["RS-FLAG-20"],
        "Other users may write to the run directory or its records, so anyone may have written them.",
        "Take the permission away; treat the content with care.";
    ROOT_UNSAFE = "root-unsafe", Error, ["RS-LAYOUT-07"],
        "The store's directory is a link, another user's, or writable by others without the sticky bit.",
        "Use a directory of your own with mode 0700.";
    DIR_UNREADABLE = "dir-unreadable", Error, ["RS-READ-07"],
        "A directory of the store cannot be read, so what is in it is not reported.",
        "Check its permissions.";
    VANISHED = "vanished", Note, ["RS-READ-08"],
        "A directory was gone when it was about to be read.",
        "Nothing: its owner removed it meanwhile.";
    MARKER_ORPHAN = "marker-orphan", Note, ["RS-FLAG-17"],
        "The active index names a run that has no directory.",
        "Peers remove it when they list runs.";
    REPLAY_UNUSED = "replay-unused", Note, ["RS-RESULT-13"],
        "A completion replay is not evidence of a delivery: it has expired, names another run or session, or is damaged.",
        "Nothing. Its owner removes it at its next look; the result itself decides.";
    NESTED_ROUTE_INVALID = "nested-route-invalid", Warning, ["RS-NEST-03", "RS-NEST-04"],
        "A route of nested runs, its index entry or its registry is not what the protocol needs, so it was not used.",
        "Nested runs are judged by their own directories. Only the names of children may be missing.";
    NESTED_ROUTE_OUTSIDE = "nested-route-outside", Error, ["RS-NEST-07"],
        "An index entry of a nested route leads outside the directory of routes. It was not followed.",
        "Find out who wrote it.";
    NESTED_EVENT_IGNORED = "nested-event-ignored", Warning, ["RS-NEST-03", "RS-NEST-04"],
        "An event of a nested route is of another root or token, or an event or control file is too large, not a plain file or not JSON. It says nothing.",
        "Nothing. Readers pass it over each time until somebody removes it.";
    NESTED_CHILD_MISSING = "nested-child-missing", Note, ["RS-NEST-06", "RS-NEST-08"],
        "A route names a nested run with a directory of its own, and the store has none of that name.",
        "The route is only news of the run. Look for its directory, or take it as removed.";
    SAME_MOMENT = "same-moment", Note, ["RS-DIAG-04"],
        "Several runs lost their process within the same second: one event ended them all.",
        "Look for what happened then: a reboot, a closed session, a killed group.";
    TERMINAL_ENTRY_WRONG = "terminal-entry-wrong", Warning, ["RS-CHECK-10", "RS-INDEX-11"],
        "An entry of the terminal index is damaged, or tells another session or state than the status of its run.",
        "The status decides. Peers remove the entry when they list its session.";
    TERMINAL_ENTRY_ORPHAN = "terminal-entry-orphan", Note, ["RS-CHECK-11"],
        "An entry of the terminal index names a run that has no directory or no status.",
        "Peers remove it when they list its session.";
    TERMINAL_ENTRY_MISSING = "terminal-entry-missing", Note, ["RS-CHECK-11"],
        "A run has ended and no entry of the terminal index names it, so listings of peers do not show it.",
        "Ask for it by its exact id; an entry may be added at any time.";
    IN_BOTH_INDEXES = "in-both-indexes", Note, ["RS-CHECK-12"],
        "A run stands in the active and in the terminal index.",
        "The status decides. Peers release the marker of a run that has ended.";
    ALIAS_ORPHAN = "alias-orphan", Note, ["RS-CHECK-12"],
        "A tool call leads to a run that the active index does not name.",
        "Peers confirm an alias with the status before they use it; it may be removed.";
    RESULT_ENTRY_WRONG = "result-entry-wrong", Warning, ["RS-CHECK-13"],
        "An entry of a result index is damaged, or lies where its session or run does not lead.",
        "Readers pass it over. The result itself is found by its name.";
    RESULT_ENTRY_ORPHAN = "result-entry-orphan", Note, ["RS-CHECK-14"],
        "An entry of a result index has had no result for more than a day.",
        "Its owners remove it at their next look.";
    RESULT_UNINDEXED = "result-unindexed", Warning, ["RS-CHECK-13"],
        "A result names its session, and the index of that session does not name the result.",
        "Its session does not find it by the index. It may be published again.";
    RESULT_WITHOUT_RUN = "result-without-run", Note, ["RS-CHECK-14"],
        "A result waits for its session, and its run has no directory.",
        "Nothing is lost: the result can still be delivered.";
    SLOT_WITHOUT_RUN = "slot-without-run", Warning, ["RS-CHECK-15"],
        "A capacity slot is held for a run that has no directory, so no rule can ever free it.",
        "It blocks one place of its pool until a person removes it.";
    SLOTS_ABOVE_LIMIT = "slots-above-limit", Warning, ["RS-CHECK-16"],
        "A session holds more slots than it may have.",
        "Let runs end, or look for slots that nothing can free: runstore slots.";
    CLAIM_LEFT = "claim-left", Warning, ["RS-CHECK-15"],
        "A claim has frozen a slot for longer than any change of one takes.",
        "A claim that names no process blocks until a person removes it.";
    LEASE_MISPLACED = "lease-misplaced", Warning, ["RS-CHECK-17"],
        "A lease does not lie under the name that its session file leads to, so it protects nothing.",
        "Find the version that wrote it.";
    LEASE_OF_NO_SESSION = "lease-of-no-session", Note, ["RS-CHECK-17"],
        "A lease is held on a session file that is not there.",
        "It blocks nobody. It frees when its owner is proven to be gone.";
    TEMP_LITTER_OUTSIDE = "temp-litter-outside", Note, ["RS-CHECK-18", "RS-LAYOUT-25"],
        "A temp file of an interrupted replacement lies outside of the run directories for more than an hour.",
        "It can be removed when its writer is gone and its target is newer.";
    NAME_OUTSIDE = "name-outside", Note, ["RS-CHECK-19"],
        "A name in a directory of the store is none of the protocol's.",
        "Nobody of the protocol reads or removes it. Find out who put it there.";
    DELETION_UNFINISHED = "deletion-unfinished", Note, ["RS-CHECK-20"],
        "Somebody began to delete a run or a result more than a day ago and did not finish.",
        "The retention of peers finishes it; until then it is no data.";
}

/// The kind of finding for a damaged `status.json`.
pub fn of_damage(error: &DecodeError) -> &'static FindingKind {
    match error {
        DecodeError::Empty => &STATUS_EMPTY,
        DecodeError::ZeroFilled { .. } => &STATUS_ZERO_FILLED,
        DecodeError::Torn => &STATUS_TORN,
        DecodeError::TooDeep { .. }
        | DecodeError::TooManyMembers { .. }
        | DecodeError::TooLarge { .. } => &STATUS_TOO_LARGE,
        DecodeError::Member { .. } => &STATUS_WRONG_TYPE,
        _ => &STATUS_NOT_JSON,
    }
}

/// Looks a finding up by its id.
pub fn by_id(id: &str) -> Option<&'static FindingKind> {
    ALL.iter().copied().find(|kind| kind.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_row_says_what_to_do() {
        for (i, kind) in ALL.iter().enumerate() {
            assert!(
                !kind.meaning.is_empty() && !kind.advice.is_empty(),
                "{} is explained",
                kind.id
            );
            assert!(!kind.clauses.is_empty(), "{} rests on a clause", kind.id);
            assert!(ALL[..i].iter().all(|k| k.id != kind.id), "{} is unique", kind.id);
        }
    }
}
