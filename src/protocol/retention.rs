//! Retention: which runs may be removed, and the records of those who remove them.
//!
//! Theory of operation. A run may be removed when nobody can want anything of it any more: its end is *proven*,
//! its result was delivered, nothing refers to it, nothing can resume it, and it is old. [`keep`] asks in a fixed
//! order and names the first reason to keep a run; what is not known keeps it. The existing implementations ask
//! less (facts §8.7): they take an end without proof, and a result that nobody has received does not count.
//!
//! Whoever removes holds the *retention lock* ([`RetentionOwner`]), which all implementations share, and honours
//! *wait subscriptions* ([`Subscription`]): a record of one that cannot be read stops every removal, because it
//! may be about any run.
//!
//! Not promised: that the facts still hold when the run is removed. They are asked again then.
//! Spec: RS-RET-01 to RS-RET-12; facts §7.4, §7.5, §8.7.

use serde::Serialize;

use super::document::Document;
use super::error::DecodeError;
use super::evidence::{FileFact, RunEvidence};
use super::open::Open;
use super::process::Liveness;
use super::result::ResultPlace;
use super::state::RunState;
use super::verdict::{Diagnosis, Verdict};
use super::{limits, member, written};

/// `owner.json` of the retention lock. Facts K-50.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionOwner {
    /// The token that authorizes its release.
    pub token: String,
    /// The owner's process, at least 1.
    pub pid: i64,
    /// The owner's host.
    pub hostname: String,
    /// Since when it is held, ms since the epoch.
    pub started_at_ms: i64,
    /// When that process started, as `scheme:value`.
    pub process_start_identity: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerText<'a> {
    version: u8,
    token: &'a str,
    pid: i64,
    hostname: &'a str,
    started_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_start_identity: Option<&'a str>,
}

impl RetentionOwner {
    /// Reads an owner record.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        Ok(Self {
            token: member::filled_string(doc, "token")?,
            pid: member::whole(doc, "pid", 1)?,
            hostname: member::string(doc, "hostname")?,
            started_at_ms: member::instant_ms(doc, "startedAt")?,
            process_start_identity: member::optional_string(doc, "processStartIdentity")?,
        })
    }

    /// Its text: nothing but what every implementation knows.
    pub fn text(&self) -> String {
        written::pretty(&OwnerText {
            version: 1,
            token: &self.token,
            pid: self.pid,
            hostname: &self.hostname,
            started_at: self.started_at_ms,
            process_start_identity: self.process_start_identity.as_deref(),
        })
    }
}

/// Why the retention lock may not be set aside; `None` when it may. `owner` is the record, if it reads, with
/// what became of its process; `dir_age_ms` the age of the directory.
///
/// An owner that lives, or of which nothing is known, keeps it for ever; the existing implementations take it
/// after a day. Facts K-51. Spec: RS-RET-08.
pub fn lock_held_because(
    owner: Option<(&RetentionOwner, Liveness)>,
    our_host: &str,
    dir_age_ms: i64,
) -> Option<&'static str> {
    match owner {
        None if dir_age_ms > limits::STALE_MARKER_MS => None,
        None => Some("its owner record cannot be read, and it is not a day old"),
        Some((owner, _)) if owner.hostname != our_host => Some("its owner is on another host"),
        Some((_, life)) if life.is_gone() => None,
        Some(_) => Some("its owner is not known to be gone"),
    }
}

/// A wait that somebody has armed. Facts K-60.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The run that is waited for.
    pub run_id: String,
    /// When nobody waits any more, ms since the epoch.
    pub expires_at_ms: i64,
}

impl Subscription {
    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError::Member`]; then no run may be removed.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            run_id: member::filled_string(doc, "runId")?,
            expires_at_ms: member::instant_ms(doc, "expiresAt")?,
        })
    }
}

/// How far the removal of a run has come; for whoever finds it interrupted. Spec: RS-RET-10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being set aside: to be put back.
    Moving,
    /// It was judged again, and is being deleted: to be finished.
    Deleting,
}

/// The note of a removal, `.runstore/prune/<uuid>.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalNote {
    /// The runs root, relative to the temp root.
    pub runs_root: String,
    /// The run.
    pub run_id: String,
    /// The name that it is set aside to.
    pub aside: String,
    /// How far it has come.
    pub phase: Phase,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NoteText<'a> {
    version: u8,
    runs_root: &'a str,
    run_id: &'a str,
    aside: &'a str,
    phase: &'a str,
}

impl RemovalNote {
    /// Its text.
    pub fn text(&self) -> String {
        let (runs_root, run_id, aside) = (&*self.runs_root, &*self.run_id, &*self.aside);
        let phase = match self.phase {
            Phase::Moving => "moving",
            Phase::Deleting => "deleting",
        };
        written::pretty(&NoteText { version: 1, runs_root, run_id, aside, phase })
    }

    /// Reads a note.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let phase = match &*member::string(doc, "phase")? {
            "moving" => Phase::Moving,
            "deleting" => Phase::Deleting,
            _ => return Err(DecodeError::member("phase", "moving or deleting")),
        };
        Ok(Self {
            runs_root: member::filled_string(doc, "runsRoot")?,
            run_id: member::filled_string(doc, "runId")?,
            aside: member::filled_string(doc, "aside")?,
            phase,
        })
    }
}

/// What is to be removed.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How long nothing may have changed.
    pub older_than_ms: i64,
    /// How many of the runs that ended last stay in any case.
    pub keep_last: usize,
    /// Only runs of this session.
    pub session: Option<String>,
}

/// A hand-off of work trees that the run may still owe. Facts §8.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// There is none.
    None,
    /// Every group of it is complete.
    Complete,
    /// It is not, or cannot be read.
    Unresolved,
}

/// What a look at one run does not tell and its removal needs to know.
#[derive(Clone, Debug)]
pub struct Around {
    /// Whether somebody waits for it.
    pub waited_for: bool,
    /// What refers to it, in words.
    pub referenced_by: Option<String>,
    /// Whether it belongs to a workflow by its key.
    pub has_workflow_key: bool,
    /// Whether a step has children, or nested runs lie below it.
    pub has_nested: bool,
    /// Whether a mission may still want it.
    pub has_mission: bool,
    /// Its hand-off.
    pub hand_off: HandOff,
    /// A session file that is there, or of which that cannot be told.
    pub session_file: Option<String>,
    /// Why the recovery descriptor stands in the way.
    pub descriptor: Option<&'static str>,
    /// The newest time of directory, status and proof, ms since the epoch.
    pub changed_ms: Option<i64>,
}

/// Why a run stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The reason, a fixed word.
    pub word: &'static str,
    /// The same in a sentence.
    pub why: String,
}

impl Keep {
    /// A reason.
    pub fn new(word: &'static str, why: impl Into<String>) -> Self {
        Self { word, why: why.into() }
    }
}

/// When a run ended, by its status, ms since the epoch.
pub fn ended_ms(e: &RunEvidence) -> Option<i64> {
    let s = e.status.value()?;
    s.ended_at_ms.max(s.last_update_ms)
}

/// The first reason to keep a run; `None` when it may be removed. Facts §8.7.
/// Spec: RS-RET-01 to RS-RET-06.
pub fn keep(e: &RunEvidence, d: &Diagnosis, around: &Around, wish: &Wish) -> Option<Keep> {
    of_record(e, d).or_else(|| of_others(e, around)).or_else(|| of_age(e, around, wish))
}

/// Spec: RS-RET-01, RS-RET-02.
fn of_record(e: &RunEvidence, d: &Diagnosis) -> Option<Keep> {
    let unsure = |why: String| Some(Keep::new("undetermined", why));
    match d.verdict {
        Verdict::Unsafe | Verdict::Corrupt | Verdict::Unsupported | Verdict::Conflict => {
            return Some(Keep::new("damaged", format!("it is {}: {}", d.verdict, d.because)));
        }
        _ => {}
    }
    let Some(s) = e.status.value() else {
        return Some(Keep::new("no-status", "it has no status, so nothing says that it ended"));
    };
    if s.run_id.as_deref() != Some(&e.run_id) {
        return Some(Keep::new("identity-mismatch", "its status names another run"));
    }
    let deletable = [RunState::Complete, RunState::Failed, RunState::Stopped, RunState::Rejected];
    let state = s.state.as_ref().map_or("no state", Open::as_str);
    if !s.known_state().is_some_and(|state| deletable.contains(&state)) {
        return Some(Keep::new("non-terminal", format!("its state is '{state}'")));
    }
    if d.verdict != Verdict::Finished || !d.proof.counts {
        return Some(Keep::new("unproven", "its end is not proven"));
    }
    if e.unstable || e.truncated || s.has_more_steps || s.duplicate_keys {
        return unsure("not all of it could be looked at".to_owned());
    }
    if e.results_unread {
        return unsure("an area of results was not looked at, or not to its end".to_owned());
    }
    if !e.temp.newer_than_target.is_empty() {
        return unsure("a write was begun and never published".to_owned());
    }
    None
}

/// Spec: RS-RET-03, RS-RET-04, RS-RET-05.
fn of_others(e: &RunEvidence, around: &Around) -> Option<Keep> {
    let s = e.status.value()?;
    if around.waited_for {
        return Some(Keep::new("waited-for", "somebody has armed a wait for it"));
    }
    if e.marker.marker_mtime_ms.is_some() {
        return Some(Keep::new("active-marker", "the active index names it"));
    }
    if !e.slots.is_empty() || !e.leases.is_empty() {
        return Some(Keep::new("held", "a slot or a lease is held for it"));
    }
    let replayed =
        e.own_results().any(|r| matches!(r.place, ResultPlace::Replay) && r.fact.value().is_some());
    let unread = e.results.iter().any(|result| {
        matches!(result.place, ResultPlace::Public | ResultPlace::Pending)
            && !matches!(&result.fact, FileFact::Absent)
            && !replayed
            && result.fact.value().is_none_or(|view| view.delivered_at_ms.is_none())
    });
    if unread {
        return Some(Keep::new("unread", "its result was not delivered"));
    }
    if s.is_workflow() || s.parent_workflow_run_id.is_some() || around.has_workflow_key {
        return Some(Keep::new("workflow", "it belongs to a workflow"));
    }
    if s.is_nested || e.is_nested || around.has_nested {
        return Some(Keep::new("nested", "it is nested, or has nested runs"));
    }
    if around.has_mission {
        return Some(Keep::new("mission", "a mission may want it"));
    }
    if around.hand_off == HandOff::Unresolved {
        return Some(Keep::new("hand-off", "its hand-off of work trees is not complete"));
    }
    if let Some(by) = &around.referenced_by {
        return Some(Keep::new("referenced", format!("{by} refers to it")));
    }
    if let Some(why) = around.descriptor {
        return Some(Keep::new("resumable", why));
    }
    let file = around.session_file.as_ref();
    file.map(|file| Keep::new("resumable", format!("its session file {file} may be there")))
}

/// Spec: RS-RET-06.
fn of_age(e: &RunEvidence, around: &Around, wish: &Wish) -> Option<Keep> {
    let Some(newest_ms) = ended_ms(e).and_then(|ended| Some(ended.max(around.changed_ms?))) else {
        return Some(Keep::new("unknown-age", "nothing says when it ended"));
    };
    let age_ms = e.now_ms.saturating_sub(newest_ms);
    (age_ms < wish.older_than_ms).then(|| {
        let days = age_ms.max(0) / 86_400_000;
        Keep::new("recent", format!("it changed {days} days ago"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_read_back_what_they_say() {
        let owner = RetentionOwner {
            token: "t".into(),
            pid: 7,
            hostname: "h".into(),
            started_at_ms: 5,
            process_start_identity: Some("linux:9".into()),
        };
        let text = owner.text();
        let doc = Document::parse(&text).expect("JSON");
        assert_eq!(RetentionOwner::read(&doc), Ok(owner));
        let note = RemovalNote {
            runs_root: "async-subagent-runs".into(),
            run_id: "r".into(),
            aside: ".deleting-run-x".into(),
            phase: Phase::Deleting,
        };
        let text = note.text();
        assert_eq!(RemovalNote::read(&Document::parse(&text).expect("JSON")), Ok(note));
        let wait = r#"{"version":1,"token":"t","runId":"r","expiresAt":9}"#;
        let wait = Subscription::read(&Document::parse(wait).expect("JSON")).expect("valid");
        assert_eq!((wait.run_id.as_str(), wait.expires_at_ms), ("r", 9));
        for text in [r#"{"runId":"r"}"#, r#"{"expiresAt":9}"#, r#"{"runId":"","expiresAt":9}"#] {
            assert!(Subscription::read(&Document::parse(text).expect("JSON")).is_err(), "{text}");
        }
    }

    #[test]
    fn the_lock_of_an_owner_that_may_live_is_never_taken() {
        let owner = |host: &str| RetentionOwner {
            token: "t".into(),
            pid: 7,
            hostname: host.into(),
            started_at_ms: 5,
            process_start_identity: None,
        };
        let (own, other, day) = (owner("h"), owner("g"), limits::STALE_MARKER_MS);
        for (owner, age_ms, held) in [
            (Some((&own, Liveness::Dead)), 0, false),
            (Some((&own, Liveness::Reused)), 0, false),
            (Some((&own, Liveness::Live)), 9 * day, true),
            (Some((&own, Liveness::Unknown)), 9 * day, true),
            (Some((&other, Liveness::Dead)), 9 * day, true),
            (None, day, true),
            (None, day + 1, false),
        ] {
            let why = lock_held_because(owner, "h", age_ms);
            assert_eq!(why.is_some(), held, "{owner:?} {age_ms}");
        }
    }
}
