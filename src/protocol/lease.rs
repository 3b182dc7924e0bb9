//! The session lease: at most one revival works on one session file.
//!
//! Theory of operation. A lease is a directory named after the session file, with `owner.json`
//! inside. Whoever renames a prepared directory onto that path holds it; the rename fails while
//! another owner's directory stands there. A later contender may set a lease aside only when the
//! owner *and* its writer are demonstrably gone on this host. It does so by renaming the directory to
//! a tombstone named after the owner's token: every contender that saw the same owner aims at the
//! same name, so exactly one of them wins, and the tombstone stays for ever.
//!
//! An owner record that cannot be read is never evidence of an end: such a lease is held until
//! somebody removes it by hand. The same goes for `spawning`, where a writer may exist whose pid was
//! not yet recorded.
//!
//! A crash of the owner leaves an owned lease behind. Reading alone does not judge it; [`staleness`]
//! does, from facts that the store gathers.
//!
//! Not promised: anything about an owner on another host, or in another pid namespace of this one.

use super::document::Document;
use super::error::DecodeError;
use super::liveness::Alive;
use super::member;
use super::open::{Word as _, words};
use super::process::RecordedIdentity;
use super::raw::Raw;

words! {
    /// Whether the owner of a lease has a separate writer process. Facts K-2.
    WriterState {
        /// It has none.
        None = "none",
        /// It is about to have one, whose pid nobody recorded yet.
        Spawning = "spawning",
        /// It has one.
        Running = "running",
    }
}

/// `owner.json` of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOwner {
    /// The token that authorizes its release.
    pub token: String,
    /// The real path of the session file, as the owner saw it.
    pub canonical_session_file: String,
    /// The run that holds the lease.
    pub run_id: String,
    /// The run whose session is continued.
    pub source_run_id: String,
    /// The session that asked for it.
    pub parent_session_id: Option<String>,
    /// The owner's process, at least 1.
    pub pid: i64,
    /// The owner's host.
    pub hostname: String,
    /// When that process started, as `scheme:value`.
    pub process_start_identity: Option<String>,
    /// Whether there is a separate writer.
    pub writer_state: WriterState,
    /// The writer's process; present exactly when the writer is running.
    pub writer_pid: Option<i64>,
    /// When the writer started, as `scheme:value`.
    pub writer_process_start_identity: Option<String>,
    /// When the lease was acquired, as text; the existing readers do not check that it is a date.
    pub acquired_at: String,
    /// The same as a number.
    pub acquired_at_ms: i64,
    /// When the record was last written.
    pub updated_at_ms: i64,
    /// The boot in which it was acquired; an additive member.
    pub boot_id: Option<String>,
    /// Inode of the owner's pidfd; an additive member.
    pub pidfd_inode: Option<u64>,
    /// The owner's pid namespace; an additive member.
    pub pid_namespace: Option<String>,
}

impl LeaseOwner {
    /// Reads an owner record.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that breaks the rules of facts K-2.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let writer_state = doc
            .get("writerState")
            .and_then(Raw::string)
            .and_then(|word| WriterState::from_word(&word))
            .ok_or_else(|| DecodeError::member("writerState", "none, spawning or running"))?;
        let running = writer_state == WriterState::Running;
        let identity = RecordedIdentity::read(doc);
        for key in ["writerPid", "writerProcessStartIdentity"] {
            if !running && doc.get(key).is_some() {
                return Err(DecodeError::member(key, "absent unless the writer is running"));
            }
        }
        Ok(Self {
            token: member::string(doc, "token")?,
            canonical_session_file: member::string(doc, "canonicalSessionFile")?,
            run_id: member::string(doc, "runId")?,
            source_run_id: member::string(doc, "sourceRunId")?,
            parent_session_id: member::optional_string(doc, "parentSessionId")?,
            pid: member::whole(doc, "pid", 1)?,
            hostname: member::string(doc, "hostname")?,
            process_start_identity: member::optional_string(doc, "processStartIdentity")?,
            writer_state,
            writer_pid: running.then(|| member::whole(doc, "writerPid", 1)).transpose()?,
            writer_process_start_identity: member::optional_string(
                doc,
                "writerProcessStartIdentity",
            )?,
            acquired_at: member::string(doc, "acquiredAt")?,
            acquired_at_ms: member::instant_ms(doc, "acquiredAtMs")?,
            updated_at_ms: member::instant_ms(doc, "updatedAtMs")?,
            boot_id: identity.boot_id,
            pidfd_inode: identity.pidfd_inode,
            // No other reader looks at it, so a wrong type is as good as none.
            pid_namespace: member::loose_string(doc, "pidNamespaceScope"),
        })
    }
}

/// What was found at the path of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// No directory: nobody holds it.
    Free,
    /// A directory without an owner record.
    NoOwner,
    /// An owner record that cannot be read, with the reason.
    Unreadable(DecodeError),
    /// A readable owner record. It says nothing about whether the owner still lives.
    Owned(Box<LeaseOwner>),
}

impl LeaseState {
    /// Judges what was found: whether the directory exists, and the owner record if there is one.
    /// Spec: RS-LEASE-01.
    pub fn of(directory: bool, owner: Option<Result<LeaseOwner, DecodeError>>) -> Self {
        match owner {
            _ if !directory => Self::Free,
            None => Self::NoOwner,
            Some(Err(error)) => Self::Unreadable(error),
            Some(Ok(owner)) => Self::Owned(Box::new(owner)),
        }
    }
}

/// What the probe of one recorded process found now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSeen<'a> {
    /// Whether a process has the number.
    pub alive: Alive,
    /// When that process started, as `scheme:value`, when it can be told.
    pub start_identity: Option<&'a str>,
}

/// Everything besides the record that decides whether a lease is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFacts<'a> {
    /// The name of this host.
    pub our_host: &'a str,
    /// The owner's process.
    pub owner: ProcessSeen<'a>,
    /// The writer's process, when the record names one.
    pub writer: Option<ProcessSeen<'a>>,
}

/// Whether a lease may be set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Staleness {
    /// It may not.
    Held {
        /// The first condition that stands in the way.
        why: &'static str,
    },
    /// It may.
    Stale {
        /// What shows that it is over.
        why: &'static str,
    },
}

impl Staleness {
    /// Whether the lease may be set aside.
    pub fn is_stale(self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// The reason of either verdict.
    pub fn why(self) -> &'static str {
        match self {
            Self::Held { why } | Self::Stale { why } => why,
        }
    }
}

/// Whether a lease is demonstrably stale: same host, owner gone, and no writer left or possibly
/// about to start. Facts K-5.
/// Spec: RS-LEASE-02, RS-LEASE-03, RS-LEASE-04, RS-LEASE-06.
pub fn staleness(owner: &LeaseOwner, facts: &LeaseFacts<'_>) -> Staleness {
    if owner.hostname != facts.our_host {
        return Staleness::Held { why: "its owner is on another host" };
    }
    if !gone(owner.process_start_identity.as_deref(), facts.owner) {
        return Staleness::Held { why: "its owner is not known to be gone" };
    }
    match owner.writer_state {
        WriterState::None => Staleness::Stale { why: "its owner is gone and had no writer" },
        // A writer may exist whose pid the owner did not live to record.
        WriterState::Spawning => Staleness::Held { why: "its writer may have been started" },
        WriterState::Running => {
            let recorded = owner.writer_process_start_identity.as_deref();
            if facts.writer.is_some_and(|writer| gone(recorded, writer)) {
                Staleness::Stale { why: "its owner and its writer are gone" }
            } else {
                Staleness::Held { why: "its writer is not known to be gone" }
            }
        }
    }
}

/// Whether a recorded process is demonstrably gone: no such process, or another one has its number.
///
/// Identities of different schemes (`linux:`, `runtime:`) measure different things, so their
/// difference shows nothing. The existing readers take it for another process; that can set aside the
/// lease of a live owner, which is the one error that this lease exists to prevent.
/// Spec: RS-LEASE-05, RS-LEASE-08.
fn gone(recorded: Option<&str>, seen: ProcessSeen<'_>) -> bool {
    match seen.alive {
        Alive::No => true,
        Alive::Unknown => false,
        Alive::Yes => match (recorded, seen.start_identity) {
            (Some(then), Some(now)) => then != now && scheme(then) == scheme(now),
            _ => false,
        },
    }
}

/// What stands before the first colon; older textual start times have no scheme.
fn scheme(identity: &str) -> Option<&str> {
    identity
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|scheme| !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_lowercase()))
}

/// What an attempt to acquire a lease would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquisition {
    /// Rename the prepared directory onto the path: nothing, or an empty directory, is there.
    Take,
    /// Set the stale lease aside first.
    Reclaim {
        /// The name of the tombstone, a sibling of the lease.
        tombstone: String,
    },
    /// Leave it.
    Refuse {
        /// Why.
        why: &'static str,
    },
}

/// What an attempt to acquire the lease `name` would do. The verdict of [`staleness`] is needed only for an
/// owned lease; without one it is refused. `tombstone_exists` tells whether the name of [`tombstone_name`] is
/// taken: then another contender already won this very owner's lease, and the directory that is there
/// now must not be touched. Facts K-3 to K-6.
pub fn acquisition(
    name: &str,
    state: &LeaseState,
    staleness: Option<Staleness>,
    tombstone_exists: bool,
) -> Acquisition {
    match (state, staleness) {
        (LeaseState::Free | LeaseState::NoOwner, _) => Acquisition::Take,
        (LeaseState::Unreadable(_), _) => {
            Acquisition::Refuse { why: "its owner record cannot be read" }
        }
        (LeaseState::Owned(_), None) => {
            Acquisition::Refuse { why: "nothing is known about its owner" }
        }
        (LeaseState::Owned(_), Some(Staleness::Held { why })) => Acquisition::Refuse { why },
        (LeaseState::Owned(_), Some(Staleness::Stale { .. })) if tombstone_exists => {
            Acquisition::Refuse { why: "its tombstone is taken" }
        }
        (LeaseState::Owned(owner), Some(Staleness::Stale { .. })) => {
            Acquisition::Reclaim { tombstone: tombstone_name(name, &owner.token) }
        }
    }
}

/// The name to which a stale lease is renamed. Facts K-6.
pub fn tombstone_name(lease: &str, token: &str) -> String {
    format!("{lease}.stale-{}", name_part(token))
}

/// The name under which a lease is prepared. Facts K-3.
pub fn candidate_name(lease: &str, token: &str) -> String {
    format!("{lease}.candidate-{}", name_part(token))
}

/// A token as part of a file name.
fn name_part(token: &str) -> String {
    let kept = |unit: char| unit.is_ascii_alphanumeric() || matches!(unit, '.' | '_' | '-');
    let mut name = String::with_capacity(token.len());
    for unit in token.chars() {
        // The existing implementations replace UTF-16 units, so a character beyond U+FFFF counts
        // twice. All contenders must arrive at the same name.
        let dashes = unit.len_utf16();
        if kept(unit) { name.push(unit) } else { name.extend(std::iter::repeat_n('-', dashes)) }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(more: &str) -> Result<LeaseOwner, DecodeError> {
        let source = format!(
            r#"{{"version":1,"token":"t","canonicalSessionFile":"/s","runId":"r","sourceRunId":"q","pid":9,"hostname":"h","acquiredAt":"x","acquiredAtMs":1,"updatedAtMs":2,{more}}}"#
        );
        LeaseOwner::read(&Document::parse(&source).expect("parses"))
    }

    fn seen(alive: Alive, start_identity: Option<&str>) -> ProcessSeen<'_> {
        ProcessSeen { alive, start_identity }
    }

    #[test]
    fn a_writer_pid_goes_with_a_running_writer_and_with_no_other() {
        assert!(owner(r#""writerState":"running","writerPid":5"#).is_ok());
        assert!(owner(r#""writerState":"running""#).is_err(), "running without a pid");
        assert!(owner(r#""writerState":"none","writerPid":5"#).is_err(), "a pid without a writer");
        assert!(owner(r#""writerState":"new""#).is_err(), "a state nobody knows is not believed");
    }

    #[test]
    fn a_lease_is_stale_only_when_owner_and_writer_are_gone_on_this_host() {
        let idle = owner(r#""writerState":"none","processStartIdentity":"linux:1""#)
            .expect("a valid owner");
        let spawning = owner(r#""writerState":"spawning""#).expect("a valid owner");
        let busy = owner(r#""writerState":"running","writerPid":5"#).expect("a valid owner");
        let (dead, alive) = (seen(Alive::No, None), seen(Alive::Yes, Some("linux:1")));
        let reused = seen(Alive::Yes, Some("linux:2"));
        let rows = [
            (&idle, "h", dead, None, true, "gone"),
            (&idle, "h", reused, None, true, "the number has another owner"),
            (&idle, "h", alive, None, false, "the same process"),
            (&idle, "h", seen(Alive::Unknown, Some("linux:2")), None, false, "unknown is not gone"),
            (&idle, "h", seen(Alive::Yes, Some("runtime:2")), None, false, "other scheme"),
            (&idle, "g", dead, None, false, "another host"),
            (&spawning, "h", dead, None, false, "a writer may have started"),
            (&busy, "h", dead, Some(alive), false, "the writer lives"),
            (&busy, "h", dead, Some(dead), true, "both are gone"),
            (&busy, "h", dead, None, false, "nobody looked at the writer"),
        ];
        for (owner, our_host, process, writer, stale, case) in rows {
            let facts = LeaseFacts { our_host, owner: process, writer };
            assert_eq!(staleness(owner, &facts).is_stale(), stale, "{case}");
        }
    }

    #[test]
    fn every_contender_aims_at_the_same_tombstone() {
        assert_eq!(tombstone_name("ab", "a/b c:d"), "ab.stale-a-b-c-d");
        assert_eq!(tombstone_name("ab", "A.z_0-9"), "ab.stale-A.z_0-9", "safe units stay");
        assert_eq!(tombstone_name("ab", "é😀"), "ab.stale----", "one dash per UTF-16 unit");
    }
}
