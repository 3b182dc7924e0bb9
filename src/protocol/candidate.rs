//! The candidate: the runner's private evidence for a later proof.
//!
//! Theory of operation. `process-terminal-candidate.json` is written by the launcher before the
//! runner may proceed (empty writers, no counts), and by the runner as its very last act (one entry
//! per step that produced a result). It claims which writer processes ran and how each one closed.
//! It is never a verdict: the observer turns it into a proof after it has seen the runner close.
//!
//! Three forms of a writer record exist: `pi-writer` with a process tree, `pi-writer` without one
//! (older runners), and `dm-writer` with one. Each existing reader knows a single form. This one
//! reads all three, and [`Candidate::writer_dialect`] says which was seen.
//!
//! A crash between the two writes leaves the launcher's empty candidate, which proves nothing.
//!
//! Not promised: that the keys of `writers` are step numbers. The existing readers do not check
//! this, so such a key is kept. Unknown members are left out of the view; the file keeps them.

use std::fmt;

use super::document::{Document, Keys, Lookup};
use super::error::DecodeError;
use super::member;
use super::open::{Word as _, words};
use super::raw::Raw;
use super::temp_root::Family;

words! {
    /// What a recorded process was. Facts §5.1.
    InstanceKind {
        /// The runner itself.
        Runner = "runner",
        /// A writer of the first family.
        PiWriter = "pi-writer",
        /// A writer of the second family.
        DmWriter = "dm-writer",
    }
}

impl InstanceKind {
    /// What a writer is called in a store of this family, whose readers refuse the other name.
    /// Spec: RS-CAND-08.
    pub fn writer_of(family: Family) -> Self {
        match family {
            Family::Pi => Self::PiWriter,
            Family::Dm => Self::DmWriter,
        }
    }
}

/// What is known about the processes that a writer started itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessTree {
    /// Somebody verified that the whole process group was gone.
    Observed {
        /// The process group that was watched.
        process_group_id: i64,
        /// When it was found empty.
        verified_at_ms: i64,
    },
    /// Nobody could verify it.
    Unknown {
        /// `unsupported-platform`, `signal-failed` or `verification-failed`.
        reason: String,
        /// What went wrong, for people.
        diagnostic: Option<String>,
    },
}

/// One process that was seen to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Runner or writer.
    pub kind: InstanceKind,
    /// `processInstanceId`, never empty.
    pub id: String,
    /// When the close was observed.
    pub close_observed_at_ms: i64,
    /// The exit code, when the process exited by itself. A number with a fraction is no exit code
    /// and reads as `None`.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Which attempt of its step a writer was; a runner has none.
    pub attempt: Option<u64>,
    /// The writer's own children; absent from older writers and from runners.
    pub tree: Option<ProcessTree>,
}

/// The members of a record of a process.
static INSTANCE_MEMBERS: Keys<7> = Keys::new([
    "kind",
    "processInstanceId",
    "closeObservedAt",
    "exitCode",
    "signal",
    "attempt",
    "processTree",
]);

impl Instance {
    /// Reads one record. `member` is its place in the document, for messages.
    /// Spec: RS-CAND-01, RS-CAND-03.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that breaks the rules of facts §5.1.
    pub fn read(raw: Raw<'_>, member: &(impl fmt::Display + ?Sized)) -> Result<Self, DecodeError> {
        let doc =
            raw.object().ok_or_else(|| DecodeError::member(member.to_string(), "an object"))?;
        let doc = doc.pick(&INSTANCE_MEMBERS);
        let at = |key: &str| format!("{member}.{key}");
        let fail = |key: &str, expected| DecodeError::member(at(key), expected);
        let kind = member::text(&doc, "kind")
            .and_then(|word| InstanceKind::from_word(&word))
            .ok_or_else(|| fail("kind", "runner, pi-writer or dm-writer"))?;
        let id = member::text(&doc, "processInstanceId")
            .filter(|id| !id.is_empty())
            .ok_or_else(|| fail("processInstanceId", "a non-empty string"))?;
        let close_observed_at_ms = doc
            .get("closeObservedAt")
            .and_then(member::finite_ms)
            .ok_or_else(|| fail("closeObservedAt", "a finite number"))?;
        let exit_code = match doc.get("exitCode") {
            Some(raw) if raw.is_null() => None,
            Some(raw) if raw.number().is_some() => raw.integer(),
            _ => return Err(fail("exitCode", "a number or null")),
        };
        let signal = match doc.get("signal") {
            Some(raw) if raw.is_null() => None,
            raw => {
                let name = raw.and_then(Raw::string);
                Some(name.ok_or_else(|| fail("signal", "a string or null"))?.into_owned())
            }
        };
        let (attempt, tree) = if kind == InstanceKind::Runner {
            if doc.get("attempt").is_some() {
                return Err(fail("attempt", "absent from a runner"));
            }
            (None, None)
        } else {
            let attempt = doc
                .get("attempt")
                .and_then(member::whole_number)
                .and_then(|n| u64::try_from(n).ok())
                .ok_or_else(|| fail("attempt", "a whole number, 0 or more"))?;
            let tree = doc
                .get("processTree")
                .map(|tree| ProcessTree::read(tree, &format_args!("{member}.processTree")))
                .transpose()?;
            // Only the older writers of the first family come without a tree.
            if tree.is_none() && kind != InstanceKind::PiWriter {
                return Err(fail("processTree", "present in a dm-writer record"));
            }
            (Some(attempt), tree)
        };
        let id = id.into_owned();
        Ok(Self { kind, id, close_observed_at_ms, exit_code, signal, attempt, tree })
    }

    /// Whether this record says that the whole process tree was seen to end.
    pub fn tree_observed(&self) -> bool {
        matches!(self.tree, Some(ProcessTree::Observed { .. }))
    }
}

/// The members of what is known of a process tree.
static TREE_MEMBERS: Keys<6> =
    Keys::new(["state", "mechanism", "processGroupId", "verifiedAt", "reason", "diagnostic"]);

impl ProcessTree {
    fn read(raw: Raw<'_>, member: &(impl fmt::Display + ?Sized)) -> Result<Self, DecodeError> {
        let doc =
            raw.object().ok_or_else(|| DecodeError::member(member.to_string(), "an object"))?;
        let doc = doc.pick(&TREE_MEMBERS);
        let fail = |key: &str, expected| DecodeError::member(format!("{member}.{key}"), expected);
        match member::text(&doc, "state").as_deref() {
            Some("observed") => {
                if member::text(&doc, "mechanism").as_deref() != Some("posix-process-group") {
                    return Err(fail("mechanism", "posix-process-group"));
                }
                let process_group_id = doc
                    .get("processGroupId")
                    .and_then(member::whole_number)
                    .filter(|id| *id > 0)
                    .ok_or_else(|| fail("processGroupId", "a whole number above 0"))?;
                let verified_at_ms = doc
                    .get("verifiedAt")
                    .and_then(member::finite_ms)
                    .ok_or_else(|| fail("verifiedAt", "a finite number"))?;
                Ok(Self::Observed { process_group_id, verified_at_ms })
            }
            Some("unknown") => {
                const REASONS: [&str; 3] =
                    ["unsupported-platform", "signal-failed", "verification-failed"];
                let reason = member::text(&doc, "reason")
                    .filter(|word| REASONS.contains(&word.as_ref()))
                    .ok_or_else(|| fail("reason", "a known reason"))?
                    .into_owned();
                let diagnostic = match doc.get("diagnostic") {
                    None => None,
                    Some(raw) => {
                        let text = raw.string().ok_or_else(|| fail("diagnostic", "a string"))?;
                        Some(text.into_owned())
                    }
                };
                Ok(Self::Unknown { reason, diagnostic })
            }
            _ => Err(fail("state", "observed or unknown")),
        }
    }
}

/// Which form the writer records of a candidate have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterDialect {
    /// `pi-writer` with a process tree.
    PiWithTree,
    /// `pi-writer` of an older runner, without a process tree.
    PiWithoutTree,
    /// `dm-writer`.
    Dm,
    /// More than one form in one file.
    Mixed,
}

/// `process-terminal-candidate.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `runId`; may be empty.
    pub run_id: String,
    /// `runnerProcessInstanceId`; may be empty.
    pub instance_id: String,
    /// Per step index its writer records, numeric indexes in ascending order before other keys.
    pub writers: Vec<(String, Vec<Instance>)>,
    /// Per step index how many writers were started; absent from older and from untouched
    /// candidates. Ordered like [`Candidate::writers`].
    pub expected_writers: Option<Vec<(String, u64)>>,
    /// The session file whose lease the runner held; an empty string reads as absent.
    pub session_file: Option<String>,
    /// The token of that lease; an empty string reads as absent.
    pub lease_token: Option<String>,
    /// What the runner says about the release of that lease.
    pub lease_release_acknowledged: Option<bool>,
}

impl Candidate {
    /// Reads a candidate.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that breaks the rules of facts §5.1.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let run_id = member::string(doc, "runId")?;
        let instance_id = member::string(doc, "runnerProcessInstanceId")?;
        let by_index = doc
            .get("writers")
            .and_then(Raw::object)
            .ok_or_else(|| DecodeError::member("writers", "an object"))?;
        let mut writers = Vec::new();
        for (index, raw) in in_index_order(&by_index) {
            writers.push((index.clone(), read_writers(raw, &format!("writers.{index}"))?));
        }
        let expected_writers = doc.get("expectedWriters").map(read_counts).transpose()?;
        let filled = |key| {
            member::optional_string(doc, key).map(|text| text.filter(|text| !text.is_empty()))
        };
        let lease_release_acknowledged = match doc.get("revivalLeaseReleaseAcknowledged") {
            None => None,
            Some(raw) => Some(raw.boolean().ok_or_else(|| {
                DecodeError::member("revivalLeaseReleaseAcknowledged", "a boolean")
            })?),
        };
        Ok(Self {
            run_id,
            instance_id,
            writers,
            expected_writers,
            session_file: filled("sessionFile")?,
            lease_token: filled("revivalLeaseToken")?,
            lease_release_acknowledged,
        })
    }

    /// Whether the runner left counts: the launcher's untouched candidate has neither counts nor
    /// writer entries, so `false` says that the runner never came to its last act.
    /// Spec: RS-CAND-04.
    pub fn has_counts(&self) -> bool {
        self.expected_writers.as_ref().is_some_and(|counts| !counts.is_empty())
            || !self.writers.is_empty()
    }

    /// Whether a writer was recorded or counted: only a runner that works does that. Counts of zero are also what a
    /// failed launch leaves.
    /// Spec: RS-START-15, RS-CAND-05.
    pub fn shows_work(&self) -> bool {
        let counted = self.expected_writers.iter().flatten().any(|(_, count)| *count > 0);
        counted || self.writers.iter().any(|(_, records)| !records.is_empty())
    }

    /// Which form the writer records have; `None` when there is no writer record.
    /// Spec: RS-CAND-03.
    pub fn writer_dialect(&self) -> Option<WriterDialect> {
        let mut seen = None;
        for instance in self.writers.iter().flat_map(|(_, records)| records) {
            let form = match (instance.kind, instance.tree.is_some()) {
                (InstanceKind::DmWriter, _) => WriterDialect::Dm,
                (_, true) => WriterDialect::PiWithTree,
                (_, false) => WriterDialect::PiWithoutTree,
            };
            match seen {
                Some(other) if other != form => return Some(WriterDialect::Mixed),
                _ => seen = Some(form),
            }
        }
        seen
    }

    /// The writer records of one step index, empty when it has no entry.
    pub fn records(&self, index: &str) -> &[Instance] {
        self.writers.iter().find(|(key, _)| key == index).map_or(&[], |(_, records)| records)
    }

    /// How many writers one step index should have: the recorded count, or, in a candidate without
    /// counts, the number of its records. `None` when nothing says so.
    pub fn expected(&self, index: &str) -> Option<u64> {
        match &self.expected_writers {
            Some(counts) => counts.iter().find(|(key, _)| key == index).map(|(_, count)| *count),
            None => {
                let entry = self.writers.iter().find(|(key, _)| key == index);
                entry.map(|(_, records)| records.len() as u64)
            }
        }
    }
}

fn read_writers(raw: Raw<'_>, member: &str) -> Result<Vec<Instance>, DecodeError> {
    let records = raw.array().ok_or_else(|| DecodeError::member(member, "an array"))?;
    let mut writers = Vec::with_capacity(records.len());
    for (at, raw) in records.into_iter().enumerate() {
        let instance = Instance::read(raw, &format_args!("{member}[{at}]"))?;
        if instance.kind == InstanceKind::Runner {
            let place = format!("{member}[{at}].kind");
            return Err(DecodeError::member(place, "a kind of writer"));
        }
        writers.push(instance);
    }
    Ok(writers)
}

fn read_counts(raw: Raw<'_>) -> Result<Vec<(String, u64)>, DecodeError> {
    let by_index =
        raw.object().ok_or_else(|| DecodeError::member("expectedWriters", "an object"))?;
    let mut counts = Vec::new();
    for (index, raw) in in_index_order(&by_index) {
        let count = member::whole_number(raw).and_then(|n| u64::try_from(n).ok());
        let count = count.ok_or_else(|| {
            DecodeError::member(format!("expectedWriters.{index}"), "a whole number, 0 or more")
        })?;
        counts.push((index, count));
    }
    Ok(counts)
}

/// The members of an object keyed by step index: whole numbers ascending, other keys after them in
/// file order, of duplicates the last value.
fn in_index_order<'a>(by_index: &Document<'a>) -> Vec<(String, Raw<'a>)> {
    let mut entries: Vec<(String, Raw<'a>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (key, raw) in by_index.members() {
        let place = *places.entry(key.to_owned()).or_insert(entries.len());
        if place == entries.len() {
            entries.push((key.to_owned(), raw));
        } else {
            entries[place].1 = raw;
        }
    }
    // The sort is stable, so keys that are no index keep their order.
    entries.sort_by_key(|(key, _)| index_of(key).map_or((1, 0), |index| (0, index)));
    entries
}

/// The index that a key spells in plain decimal.
fn index_of(key: &str) -> Option<u32> {
    key.parse::<u32>().ok().filter(|index| index.to_string() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = r#","processTree":{"state":"observed","mechanism":"posix-process-group","processGroupId":7,"verifiedAt":6}"#;

    fn writer(kind: &str, tree: &str) -> String {
        format!(
            r#"{{"kind":"{kind}","processInstanceId":"w","attempt":0,"closeObservedAt":5,"exitCode":0,"signal":null{tree}}}"#
        )
    }

    fn read(writers: &str, more: &str) -> Result<Candidate, DecodeError> {
        let source = format!(
            r#"{{"version":1,"runId":"r","runnerProcessInstanceId":"i","writers":{writers}{more}}}"#
        );
        Candidate::read(&Document::parse(&source).expect("parses"))
    }

    #[test]
    fn the_form_of_the_writer_records_is_named() {
        let (pi, old, dm) =
            (writer("pi-writer", TREE), writer("pi-writer", ""), writer("dm-writer", TREE));
        let rows = [
            (format!("{{\"0\":[{pi}]}}"), Some(WriterDialect::PiWithTree)),
            (format!("{{\"0\":[{old}]}}"), Some(WriterDialect::PiWithoutTree)),
            (format!("{{\"0\":[{dm}]}}"), Some(WriterDialect::Dm)),
            (format!("{{\"0\":[{pi}],\"1\":[{dm}]}}"), Some(WriterDialect::Mixed)),
            ("{\"0\":[]}".to_owned(), None),
            ("{}".to_owned(), None),
        ];
        for (writers, dialect) in rows {
            let candidate = read(&writers, "").expect("all three forms are read");
            assert_eq!(candidate.writer_dialect(), dialect, "{writers}");
        }
    }

    #[test]
    fn a_dm_writer_without_a_tree_is_nobodys_form() {
        let error = read(&format!("{{\"0\":[{}]}}", writer("dm-writer", "")), "").unwrap_err();
        assert!(error.to_string().contains("writers.0[0].processTree"), "{error}");
    }

    #[test]
    fn the_launchers_untouched_candidate_has_no_counts() {
        assert!(!read("{}", "").expect("reads").has_counts(), "as initialised");
        assert!(!read("{}", r#","expectedWriters":{}"#).expect("reads").has_counts(), "empty");
        let done = read("{\"0\":[]}", r#","expectedWriters":{"0":0}"#).expect("reads");
        assert!(done.has_counts(), "the runner's last act");
    }

    #[test]
    fn indexes_come_in_ascending_order_and_strangers_after_them() {
        let candidate = read(r#"{"x":[],"10":[],"2":[],"01":[]}"#, "").expect("reads");
        let keys: Vec<_> = candidate.writers.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["2", "10", "x", "01"], "numeric order, then file order");
    }

    #[test]
    fn an_expected_count_falls_back_to_the_records_only_without_counts() {
        let pi = writer("pi-writer", TREE);
        let without = read(&format!("{{\"0\":[{pi}]}}"), "").expect("reads");
        assert_eq!(without.expected("0"), Some(1), "counted from the records");
        assert_eq!(without.expected("1"), None, "no entry, no count");
        let with =
            read(&format!("{{\"0\":[{pi}]}}"), r#","expectedWriters":{"1":2}"#).expect("reads");
        assert_eq!(with.expected("0"), None, "the counts are there and do not name it");
        assert_eq!(with.expected("1"), Some(2), "as recorded");
    }
}
