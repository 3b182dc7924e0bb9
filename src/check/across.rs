//! What shows only when records are held against one another.
//!
//! One function per rule; each takes what was read and adds what breaks it. Times decide only where the spec
//! gives a record a time: an index entry without its result has a day, an unfinished replacement an hour.
//! Spec: RS-CHECK-10 to RS-CHECK-20.

use std::collections::{HashMap, HashSet};

use crate::protocol::evidence::FileFact;
use crate::protocol::finding::{self, FindingKind};
use crate::protocol::marker::{TerminalStatus, TerminalVerdict, judge_terminal};
use crate::protocol::state::RunState;
use crate::protocol::verdict::Verdict;
use crate::protocol::{Open, limits, segment};
use crate::store::StoreProblem;
use crate::store::survey::{NameFound, ResultIndex, Survey};

/// What one run was found to be.
#[derive(Clone, Debug)]
pub struct RunFact {
    /// The state word, where there is one.
    pub state: Option<Open<RunState>>,
    /// `sessionId` of its status.
    pub session_id: Option<String>,
    /// The verdict.
    pub verdict: Option<Verdict>,
}

/// Somebody's slot or result, as far as its run is concerned.
#[derive(Clone, Debug)]
pub struct Held {
    /// Path relative to the store.
    pub path: String,
    /// The run that it names.
    pub run_id: String,
    /// The session that it names.
    pub session_id: Option<String>,
    /// Whether that run has a directory.
    pub has_run: bool,
    /// Of a slot: when it was claimed, if a claim is there, ms since the epoch.
    pub claimed_ms: Option<i64>,
    /// Of a result: whether its session finds it by its place, because it is pending.
    pub is_pending: bool,
}

/// Everything that a check across records looks at.
struct Look<'a> {
    survey: &'a Survey,
    runs: &'a HashMap<String, RunFact>,
    now_ms: i64,
    found: Vec<StoreProblem>,
}

/// Holds the records of a store against one another. `runs` is by absolute path; `slot_limit` is how many slots
/// a session may have, where that is known: no file of a store tells it.
pub fn across(
    survey: &Survey,
    runs: &HashMap<String, RunFact>,
    (slots, slot_limit): (&[Held], Option<usize>),
    results: &[Held],
    now_ms: i64,
) -> Vec<StoreProblem> {
    let mut look = Look { survey, runs, now_ms, found: Vec::new() };
    look.terminal_index();
    look.active_index();
    look.result_indexes(results);
    look.slots(slots, slot_limit);
    look.leases();
    look.names();
    for (path, why) in &survey.unread {
        look.find(&finding::DIR_UNREADABLE, path, why.as_str());
    }
    look.found
}

impl Look<'_> {
    fn find(&mut self, kind: &'static FindingKind, path: &str, text: impl Into<String>) {
        self.found.push(StoreProblem { kind, path: path.to_owned(), text: text.into() });
    }

    fn is_older(&self, at_ms: Option<i64>, than_ms: i64) -> bool {
        at_ms.is_some_and(|at| self.now_ms.saturating_sub(at) > than_ms)
    }

    /// Spec: RS-CHECK-10, RS-CHECK-11, RS-CHECK-12.
    fn terminal_index(&mut self) {
        let mut named: HashSet<&str> = HashSet::new();
        for entry in &self.survey.terminal {
            let wrong = &finding::TERMINAL_ENTRY_WRONG;
            let Some(content) = entry.fact.value() else {
                if let Some(what) = broken(&entry.fact) {
                    self.find(wrong, &entry.path, what);
                }
                continue;
            };
            let own = segment::encode_str(&content.session_id, limits::NAME_MAX_BYTES);
            let run = entry.run_path.as_deref();
            let Some(run) = run else {
                self.find(wrong, &entry.path, "its run id cannot be one");
                continue;
            };
            let status = self.runs.get(run).and_then(|fact| {
                Some(TerminalStatus {
                    state: fact.state.clone()?,
                    run_id: content.run_id.clone(),
                    session_id: fact.session_id.clone(),
                })
            });
            // The directory tells the session only in its encoded form.
            let session = if own == entry.session_dir { &*content.session_id } else { "" };
            match judge_terminal(content, session, status.as_ref()) {
                TerminalVerdict::Valid => {
                    named.insert(run);
                }
                TerminalVerdict::OtherSession => {
                    let text = format!("it names the session '{}'", content.session_id);
                    self.find(wrong, &entry.path, text);
                }
                TerminalVerdict::NoStatus => {
                    let text =
                        format!("its run {} has no status that tells a state", content.run_id);
                    self.find(&finding::TERMINAL_ENTRY_ORPHAN, &entry.path, text);
                }
                TerminalVerdict::NotTerminal => {
                    let state = status.as_ref().map_or("", |status| status.state.as_str());
                    let text = format!("the status of its run says '{state}'");
                    self.find(wrong, &entry.path, text);
                }
                TerminalVerdict::Mismatch => {
                    let text = "the status of its run names another session";
                    self.find(wrong, &entry.path, text);
                }
            }
        }
        let both: Vec<&String> =
            self.survey.active.iter().filter(|path| named.contains(path.as_str())).collect();
        for path in both {
            let text = "a marker and an entry name it, and it has ended";
            self.find(&finding::IN_BOTH_INDEXES, path, text);
        }
        let mut missing: Vec<&String> = Vec::new();
        for (path, run) in self.runs {
            let root = path.rsplit_once('/').map_or("", |(root, _)| root);
            let ended = run.state.as_ref().and_then(Open::known).is_some_and(RunState::is_terminal);
            let has_session = run.session_id.as_deref().is_some_and(|session| !session.is_empty());
            // What has just ended may still be on its way, and a launch that failed gets no entry.
            let settled = !matches!(run.verdict, Some(Verdict::Settling | Verdict::StartFailed));
            let indexed = self.survey.indexed_roots.iter().any(|known| known == root);
            let listed = named.contains(path.as_str()) || self.survey.active.contains(path);
            if ended && has_session && settled && indexed && !listed {
                missing.push(path);
            }
        }
        missing.sort_unstable();
        for path in missing {
            let text = "it has ended, and no index names it";
            self.find(&finding::TERMINAL_ENTRY_MISSING, path, text);
        }
    }

    /// Spec: RS-CHECK-12.
    fn active_index(&mut self) {
        for alias in self.survey.aliases.iter().filter(|alias| !alias.is_marked) {
            let text = "the active index has no marker of its run";
            self.find(&finding::ALIAS_ORPHAN, &alias.path, text);
        }
    }

    /// Spec: RS-CHECK-13, RS-CHECK-14.
    fn result_indexes(&mut self, results: &[Held]) {
        let mut indexed: HashSet<(&str, &str)> = HashSet::new();
        for entry in &self.survey.entries {
            let wrong = &finding::RESULT_ENTRY_WRONG;
            let Some(content) = entry.fact.value() else {
                if let Some(what) = broken(&entry.fact) {
                    self.find(wrong, &entry.path, what);
                }
                continue;
            };
            let stem = segment::encode_str(&content.run_id, limits::JSON_STEM_MAX_BYTES);
            let sessions = segment::aliases(&(&*content.session_id).into(), limits::NAME_MAX_BYTES);
            let names = segment::aliases(&(&*content.run_id).into(), limits::JSON_STEM_MAX_BYTES);
            let is_its_name = names.iter().any(|stem| entry.name == format!("{stem}.json"))
                || entry.name == format!("{stem}.json");
            let is_its_place = entry.index != ResultIndex::Session || sessions.contains(&entry.dir);
            if !is_its_name || !is_its_place {
                let text = format!(
                    "it names run {} of session '{}', which do not lead here",
                    content.run_id, content.session_id
                );
                self.find(wrong, &entry.path, text);
            } else if entry.has_payload {
                if entry.index == ResultIndex::Session {
                    indexed.insert((&content.session_id, &content.run_id));
                }
            } else if self.is_older(Some(content.written_at_ms), limits::STALE_MARKER_MS) {
                let text = "there is no result where it leads to";
                self.find(&finding::RESULT_ENTRY_ORPHAN, &entry.path, text);
            }
        }
        for result in results {
            let session = result.session_id.as_deref().filter(|session| !session.is_empty());
            let unnamed = session.filter(|s| !indexed.contains(&(*s, &*result.run_id)));
            if let Some(session) = unnamed.filter(|_| !result.is_pending) {
                let text = format!("the index of session '{session}' does not name it");
                self.find(&finding::RESULT_UNINDEXED, &result.path, text);
            }
            if !result.has_run {
                let text = format!("its run {} has no directory", result.run_id);
                self.find(&finding::RESULT_WITHOUT_RUN, &result.path, text);
            }
        }
    }

    /// Spec: RS-CHECK-15, RS-CHECK-16.
    fn slots(&mut self, slots: &[Held], limit: Option<usize>) {
        let mut pools: Vec<(&str, usize)> = Vec::new();
        for slot in slots {
            let pool = slot.path.rsplit_once('/').map_or("", |(pool, _)| pool);
            match pools.iter_mut().find(|(known, _)| *known == pool) {
                Some((_, count)) => *count += 1,
                None => pools.push((pool, 1)),
            }
            if !slot.has_run && !slot.run_id.is_empty() {
                let text = format!("its run {} has no directory here", slot.run_id);
                self.find(&finding::SLOT_WITHOUT_RUN, &slot.path, text);
            }
            if self.is_older(slot.claimed_ms, limits::LEFTOVER_MS) {
                let text = "its claim is more than an hour old";
                self.find(&finding::CLAIM_LEFT, &slot.path, text);
            }
        }
        for (pool, count) in pools {
            if let Some(limit) = limit.filter(|limit| count > *limit) {
                let text = format!("{count} slots are held, and {limit} are allowed");
                self.find(&finding::SLOTS_ABOVE_LIMIT, pool, text);
            }
        }
    }

    /// Spec: RS-CHECK-17.
    fn leases(&mut self) {
        for lease in &self.survey.leases {
            let name = lease.path.rsplit('/').next().unwrap_or_default();
            match &lease.id {
                None => {
                    let text = format!("its session file {} is not there", lease.file);
                    self.find(&finding::LEASE_OF_NO_SESSION, &lease.path, text);
                }
                Some(id) if id != name => {
                    let text = format!("the lease of its session file {} is {id}", lease.file);
                    self.find(&finding::LEASE_MISPLACED, &lease.path, text);
                }
                Some(_) => {}
            }
        }
    }

    /// Spec: RS-CHECK-18, RS-CHECK-19, RS-CHECK-20.
    fn names(&mut self) {
        let old = |look: &Self, found: &NameFound, ms| look.is_older(found.at_ms, ms);
        for temp in &self.survey.temps {
            if old(self, temp, limits::LEFTOVER_MS) {
                let text = "an unfinished replacement, more than an hour old";
                self.find(&finding::TEMP_LITTER_OUTSIDE, &temp.path, text);
            }
        }
        for strange in &self.survey.strange {
            self.find(&finding::NAME_OUTSIDE, &strange.path, "it is no name of the protocol");
        }
        for deletion in &self.survey.deletions {
            if old(self, deletion, limits::STALE_MARKER_MS) {
                let text = "its deletion was begun more than a day ago";
                self.find(&finding::DELETION_UNFINISHED, &deletion.path, text);
            }
        }
        for (path, mode) in &self.survey.loose {
            let text = format!("other users may write to it (mode {mode:04o})");
            self.find(&finding::LOOSE_PERMISSIONS, path, text);
        }
    }
}

/// Why a record is none; `None` for one that is there or has gone meanwhile.
fn broken<T>(fact: &FileFact<T>) -> Option<String> {
    match fact {
        FileFact::Absent | FileFact::Present(..) => None,
        FileFact::Unsafe(what) => Some(format!("it is {what}; it was not opened")),
        FileFact::Unreadable(why) => Some(format!("it cannot be read: {why}")),
        FileFact::Damaged(error, _) => Some(format!("it is damaged: {error}")),
    }
}
