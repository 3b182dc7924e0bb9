//! The texts of owner records, proofs and claims, as this implementation writes them.
//!
//! Theory of operation. Reading is lenient and keeps what it does not know; writing is the other
//! half: one order of members, two spaces of indentation, absent members left out. What is written
//! here reads back through the views of the same file, which is tested for each. Members beyond the
//! collected protocol (`pidNamespaceScope`, `bootId`, `pidfdInode`) come last and are ignored by every other reader.
//!
//! Not promised: the text of a file that somebody else wrote. Such a file is patched, not written
//! anew, so that no member is lost.

use serde::Serialize;

use super::candidate::{Instance, ProcessTree};
use super::document::{Document, object_text};
use super::finalize::CanonicalSession;
use super::lease::LeaseOwner;
use super::open::{Open, Word as _};
use super::process::{ProcessRecord, RecordedIdentity, RecordedProcess};
use super::proof::{OBSERVER_UNAVAILABLE, Proof};
use super::raw::Raw;
use super::slot::SlotOwner;

pub use super::document::string_text as string;

/// Pretty JSON with two spaces and no newline at the end.
pub(super) fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain members always serialize")
}

/// JSON in one line, without white space between its tokens.
pub(super) fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain members always serialize")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseText<'a> {
    version: u8,
    token: &'a str,
    canonical_session_file: &'a str,
    run_id: &'a str,
    source_run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<&'a str>,
    pid: i64,
    hostname: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_start_identity: Option<&'a str>,
    writer_state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer_pid: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer_process_start_identity: Option<&'a str>,
    acquired_at: &'a str,
    acquired_at_ms: i64,
    updated_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace_scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pidfd_inode: Option<String>,
}

/// The owner record of a lease. Facts K-2.
pub fn lease_owner(owner: &LeaseOwner) -> String {
    pretty(&LeaseText {
        version: 1,
        token: &owner.token,
        canonical_session_file: &owner.canonical_session_file,
        run_id: &owner.run_id,
        source_run_id: &owner.source_run_id,
        parent_session_id: owner.parent_session_id.as_deref(),
        pid: owner.pid,
        hostname: &owner.hostname,
        process_start_identity: owner.process_start_identity.as_deref(),
        writer_state: owner.writer_state.as_str(),
        writer_pid: owner.writer_pid,
        writer_process_start_identity: owner.writer_process_start_identity.as_deref(),
        acquired_at: &owner.acquired_at,
        acquired_at_ms: owner.acquired_at_ms,
        updated_at_ms: owner.updated_at_ms,
        pid_namespace_scope: owner.pid_namespace.as_deref(),
        boot_id: owner.boot_id.as_deref(),
        pidfd_inode: owner.pidfd_inode.map(|inode| inode.to_string()),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SlotText<'a> {
    version: u8,
    reservation_token: &'a str,
    owner_session_id: &'a str,
    owner_session_key: &'a str,
    slot: i64,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_run_id: Option<&'a str>,
    generation: i64,
    kind: &'a str,
    async_dir: &'a str,
    reserved_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    runner_process_instance_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runner_started_at: Option<i64>,
}

/// The owner record of a slot, which ends in a newline. Facts K-21, K-22.
pub fn slot_owner(owner: &SlotOwner) -> String {
    let mut text = pretty(&SlotText {
        version: 1,
        reservation_token: &owner.reservation_token,
        owner_session_id: &owner.owner_session_id,
        owner_session_key: &owner.owner_session_key,
        slot: owner.slot,
        run_id: &owner.run_id,
        source_run_id: owner.source_run_id.as_deref(),
        generation: owner.generation,
        kind: owner.kind.as_str(),
        async_dir: &owner.async_dir,
        reserved_at: owner.reserved_at_ms,
        runner_process_instance_id: owner.runner_instance_id.as_deref(),
        runner_started_at: owner.runner_started_at_ms,
    });
    text.push('\n');
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimText<'a> {
    token: &'a str,
    pid: i64,
    hostname: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace_scope: Option<&'a str>,
    #[serde(flatten)]
    identity: &'a RecordedIdentity,
}

/// Who holds a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Chance, so that no two claims have the same text.
    pub token: String,
    /// The process that holds it.
    pub pid: i64,
    /// Its host.
    pub host: String,
    /// Its pid namespace.
    pub pid_namespace: Option<String>,
    /// Its identity.
    pub identity: RecordedIdentity,
}

impl Claim {
    /// The text of the claim file, in one line. Other implementations only compare it.
    pub fn text(&self) -> String {
        compact(&ClaimText {
            token: &self.token,
            pid: self.pid,
            hostname: &self.host,
            pid_namespace_scope: self.pid_namespace.as_deref(),
            identity: &self.identity,
        })
    }

    /// The process that holds it. It is told of without a time.
    pub fn process(&self) -> RecordedProcess<'_> {
        RecordedProcess {
            pid: Some(self.pid),
            host: Some(&self.host),
            pid_namespace: self.pid_namespace.as_deref(),
            identity: self.identity.clone(),
            ..RecordedProcess::default()
        }
    }

    /// Reads a claim of this form; `None` for the bare token of another implementation, which names
    /// nobody.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let doc = Document::from_bytes(bytes).ok()?;
        let token = doc.get("token")?.string()?.into_owned();
        let process = ProcessRecord::read(&doc)?;
        Some(Self {
            token,
            pid: process.pid,
            host: process.host?,
            pid_namespace: process.pid_namespace,
            identity: process.identity,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceText<'a> {
    kind: &'a str,
    process_instance_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
    close_observed_at: i64,
    exit_code: Option<i64>,
    signal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_tree: Option<TreeText<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TreeText<'a> {
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_group_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostic: Option<&'a str>,
}

fn instance(instance: &Instance) -> InstanceText<'_> {
    let none = TreeText {
        state: "unknown",
        mechanism: None,
        process_group_id: None,
        verified_at: None,
        reason: None,
        diagnostic: None,
    };
    let process_tree = instance.tree.as_ref().map(|tree| match tree {
        ProcessTree::Observed { process_group_id, verified_at_ms } => TreeText {
            state: "observed",
            mechanism: Some("posix-process-group"),
            process_group_id: Some(*process_group_id),
            verified_at: Some(*verified_at_ms),
            ..none
        },
        ProcessTree::Unknown { reason, diagnostic } => {
            TreeText { reason: Some(reason), diagnostic: diagnostic.as_deref(), ..none }
        }
    });
    InstanceText {
        kind: instance.kind.as_str(),
        process_instance_id: &instance.id,
        attempt: instance.attempt,
        close_observed_at: instance.close_observed_at_ms,
        exit_code: instance.exit_code,
        signal: instance.signal.as_deref(),
        process_tree,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProofText<'a> {
    version: u8,
    state: &'a str,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    child_index: Option<i64>,
    runner_process_instance_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<InstanceText<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_disposition: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical_session: Option<SessionText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_evidence: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionText<'a> {
    canonical_session_id: &'a str,
    lease_disposition: &'a str,
    free_at_observation: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical_session_lease_released: Option<bool>,
}

/// A proof, of a run or of one step. `session` is the id of the session file (64 hexadecimal digits)
/// and what is known about its lease. Facts §5.2.
pub fn proof(proof: &Proof, session: Option<(&str, CanonicalSession)>) -> String {
    let observed = proof.state == super::proof::ProofState::Observed;
    pretty(&ProofText {
        version: 1,
        state: proof.state.as_str(),
        run_id: &proof.run_id,
        child_index: proof.child_index,
        runner_process_instance_id: &proof.instance_id,
        observed_at: proof.observed_at_ms,
        instances: observed.then(|| proof.instances.iter().map(instance).collect()),
        resume_disposition: proof.resume_disposition.map(super::open::Word::as_str),
        canonical_session: session.map(|(id, session)| SessionText {
            canonical_session_id: id,
            lease_disposition: if session.released { "released" } else { "not-held" },
            free_at_observation: true,
            canonical_session_lease_released: session.released.then_some(true),
        }),
        reason: proof.reason.as_ref().map(Open::as_str),
        diagnostic: proof.diagnostic.as_deref(),
        exit_evidence: proof.exit_evidence.as_ref().map(Open::as_str),
    })
}

/// A proof before anything was observed, or when nothing was started. Facts §5.3, §4.8.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreparedProof<'a> {
    version: u8,
    state: &'a str,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    child_index: Option<usize>,
    runner_process_instance_id: &'a str,
}

impl<'a> PreparedProof<'a> {
    pub(super) fn pending(run_id: &'a str, runner_process_instance_id: &'a str) -> Self {
        Self::of("pending", run_id, runner_process_instance_id)
    }

    /// The same of one step. Facts S-41.
    pub(super) fn pending_step(run_id: &'a str, instance_id: &'a str, step: usize) -> Self {
        Self { child_index: Some(step), ..Self::pending(run_id, instance_id) }
    }

    fn of(state: &'a str, run_id: &'a str, runner_process_instance_id: &'a str) -> Self {
        debug_assert!(
            runner_process_instance_id != OBSERVER_UNAVAILABLE,
            "the placeholder names no runner"
        );
        Self { version: 1, state, run_id, child_index: None, runner_process_instance_id }
    }
}

/// The proof before anything was observed. Facts §5.3.
pub fn pending_proof(run_id: &str, instance_id: &str) -> String {
    pretty(&PreparedProof::pending(run_id, instance_id))
}

/// The proof of a run that was never started, for its status only. Facts §4.8.
pub fn not_started_proof(run_id: &str, instance_id: &str) -> String {
    pretty(&PreparedProof::of("not-started", run_id, instance_id))
}

/// The launcher's candidate: no writers and no counts, which proves nothing. Facts P-1.
pub fn initial_candidate(run_id: &str, instance_id: &str) -> String {
    candidate_text(run_id, instance_id, NO_WRITERS, None)
}

/// The candidate of a run that was never started: for each step that there was no writer. Facts §4.8.
pub fn failed_candidate(run_id: &str, instance_id: &str, steps: usize) -> String {
    candidate(run_id, instance_id, NO_WRITERS, &zero_counts(steps))
}

/// The counts of [`failed_candidate`], for a candidate that is there already.
pub fn zero_counts(steps: usize) -> String {
    counts(std::iter::repeat_n(0, steps))
}

/// `writers` and `expectedWriters` of the runner's own candidate: for each step that came to a result its
/// attempts, in the order of the steps, and how many they were. Facts P-4.
/// Spec: RS-CAND-06.
pub fn writers(steps: &[Vec<Instance>]) -> (String, String) {
    (pretty(&Writers(steps)), counts(steps.iter().map(Vec::len)))
}

struct Writers<'a>(&'a [Vec<Instance>]);

impl Serialize for Writers<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = self.0.iter().enumerate();
        serializer.collect_map(steps.map(|(step, records)| {
            (step.to_string(), records.iter().map(instance).collect::<Vec<_>>())
        }))
    }
}

/// How many writers each step has, in the order of the steps.
fn counts(of_steps: impl Iterator<Item = usize>) -> String {
    let steps = of_steps.enumerate();
    let members: Vec<_> = steps.map(|(step, n)| (step.to_string(), n.to_string())).collect();
    object_text(&members)
}

/// A whole candidate of a runner without a session, with the texts of its writers and counts.
pub fn candidate(run_id: &str, instance_id: &str, writers: &str, counts: &str) -> String {
    candidate_text(run_id, instance_id, writers, Some(counts))
}

/// The `writers` of a candidate before its runner recorded any.
const NO_WRITERS: &str = "{}";

fn candidate_text(run_id: &str, instance_id: &str, writers: &str, counts: Option<&str>) -> String {
    let mut members = vec![
        ("version", "1".to_owned()),
        ("runId", string(run_id)),
        ("runnerProcessInstanceId", string(instance_id)),
        ("writers", indented(writers, 2)),
    ];
    members.extend(counts.map(|counts| ("expectedWriters", indented(counts, 2))));
    object_text(&members)
}

/// The event that tells of a proof, as one line without its newline. Facts §3.8.
pub fn proof_event(run_id: &str, now_ms: i64, proof_text: &str) -> String {
    format!(
        r#"{{"type":"subagent.run.process_terminal","lifecycleArtifactVersion":3,"ts":{now_ms},"runId":{},"processTerminal":{}}}"#,
        string(run_id),
        one_line(proof_text)
    )
}

/// The event that tells what an observer could not do, as one line without its newline. Its type is ours.
pub fn observer_event(run_id: &str, now_ms: i64, message: &str) -> String {
    let (run_id, message) = (string(run_id), string(message));
    format!(
        r#"{{"type":"runstore.observer.problem","ts":{now_ms},"runId":{run_id},"message":{message}}}"#
    )
}

/// What a line of the log tells of a replacement that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitText<'a> {
    /// It began to wait, for this reason.
    Deferred {
        /// The error, as one sentence.
        cause: &'a str,
        /// Free bytes of the file system, where known.
        free_bytes: Option<u64>,
    },
    /// It was made.
    Completed {
        /// Attempts in all.
        attempts: u32,
        /// How long it waited, in ms.
        deferred_ms: i64,
    },
}

/// The event that tells of a replacement that waits for room, or no longer does, as one line without
/// its newline. Its types are ours; a reader that does not know them passes over them (facts E-3).
/// Spec: RS-DEFER-05.
pub fn wait_event(run_id: &str, now_ms: i64, file: &str, what: &WaitText<'_>) -> String {
    let (word, rest) = match what {
        WaitText::Deferred { cause, free_bytes } => {
            let free = free_bytes.map(|n| format!(r#","freeBytes":{n}"#)).unwrap_or_default();
            ("deferred", format!(r#""cause":{}{free}"#, string(cause)))
        }
        WaitText::Completed { attempts, deferred_ms } => {
            ("completed", format!(r#""attempts":{attempts},"deferredMs":{deferred_ms}"#))
        }
    };
    let (run_id, file) = (string(run_id), string(file));
    format!(
        r#"{{"type":"runstore.write.{word}","ts":{now_ms},"runId":{run_id},"file":{file},{rest}}}"#
    )
}

/// JSON text moved to the right, all lines but the first. A JSON string holds no line end.
pub fn indented(json: &str, by: usize) -> String {
    json.replace('\n', &format!("\n{}", " ".repeat(by)))
}

/// JSON without the white space between its tokens.
pub fn one_line(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut inside, mut escaped) = (false, false);
    for c in json.chars() {
        if inside {
            out.push(c);
            inside = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_ascii_whitespace() {
            inside = c == '"';
            out.push(c);
        }
    }
    out
}

/// A document with some members left out and some set, in the order of the file. What it does not
/// know stays, value by value; white space becomes ours.
pub fn rebuilt(doc: &Document<'_>, without: &[&str], set: &[(&str, String)]) -> String {
    let mut members: Vec<(String, String)> = doc
        .members()
        .filter(|(key, _)| !without.contains(key))
        .map(|(key, raw): (&str, Raw<'_>)| (key.to_owned(), raw.text().to_owned()))
        .collect();
    for (key, text) in set {
        match members.iter_mut().find(|(known, _)| known == key) {
            Some(member) => member.1.clone_from(text),
            None => members.push(((*key).to_owned(), text.clone())),
        }
    }
    object_text(&members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::candidate::{Candidate, InstanceKind};
    use crate::protocol::lease::WriterState;
    use crate::protocol::proof::{ProofReason, ProofState, ResumeDisposition};
    use crate::protocol::slot::SlotKind;

    #[test]
    fn an_owner_record_reads_back_as_it_was() {
        let lease = LeaseOwner {
            token: "t".to_owned(),
            canonical_session_file: "/s \"q\"".to_owned(),
            run_id: "r".to_owned(),
            source_run_id: "q".to_owned(),
            parent_session_id: Some("p".to_owned()),
            pid: 7,
            hostname: "h".to_owned(),
            process_start_identity: Some("linux:1".to_owned()),
            writer_state: WriterState::Running,
            writer_pid: Some(8),
            writer_process_start_identity: None,
            acquired_at: "x".to_owned(),
            acquired_at_ms: 1,
            updated_at_ms: 2,
            boot_id: Some("b".to_owned()),
            pidfd_inode: Some(u64::MAX),
            pid_namespace: Some("pid:[1]".to_owned()),
        };
        let text = lease_owner(&lease);
        assert_eq!(LeaseOwner::read(&Document::parse(&text).expect("JSON")), Ok(lease), "{text}");
        let slot = SlotOwner {
            reservation_token: "t".to_owned(),
            owner_session_id: "S".to_owned(),
            owner_session_key: "k".to_owned(),
            slot: 0,
            run_id: "r".to_owned(),
            generation: 2,
            kind: SlotKind::Runner,
            async_dir: "/r".to_owned(),
            reserved_at_ms: 5,
            source_run_id: Some("q".to_owned()),
            runner_instance_id: Some("i".to_owned()),
            runner_started_at_ms: Some(6),
        };
        let text = slot_owner(&slot);
        assert!(text.ends_with("}\n"), "an owner of a slot ends in a newline");
        assert_eq!(SlotOwner::read(&Document::parse(&text).expect("JSON")), Ok(slot));
    }

    #[test]
    fn a_proof_and_a_candidate_read_back_as_they_were() {
        let runner = Instance {
            kind: InstanceKind::Runner,
            id: "i".to_owned(),
            close_observed_at_ms: 5,
            exit_code: None,
            signal: Some("SIGKILL".to_owned()),
            attempt: None,
            tree: None,
        };
        let tree = |reason: &str| ProcessTree::Unknown {
            reason: reason.to_owned(),
            diagnostic: Some("d".to_owned()),
        };
        let writer = Instance {
            kind: InstanceKind::PiWriter,
            attempt: Some(1),
            tree: Some(tree("signal-failed")),
            ..runner.clone()
        };
        let gone = ProcessTree::Observed { process_group_id: 7, verified_at_ms: 6 };
        let other = Instance { tree: Some(gone), ..writer.clone() };
        let observed = Proof {
            state: ProofState::Observed,
            observed_at_ms: Some(5),
            instances: vec![runner, writer, other],
            resume_disposition: Some(ResumeDisposition::Resumable),
            reason: None,
            ..Proof::unknown("r", "i", ProofReason::StaleRepair)
        };
        let text = proof(&observed, Some(("ab", CanonicalSession { released: true })));
        assert_eq!(Proof::read(&Document::parse(&text).expect("JSON")), Ok(observed), "{text}");
        assert!(text.contains("\"canonicalSessionLeaseReleased\": true"), "{text}");
        let pending = pending_proof("r", "i");
        let read = Proof::read(&Document::parse(&pending).expect("JSON")).expect("valid");
        assert_eq!(read.state, ProofState::Pending);
        let first = initial_candidate("r", "i");
        let read = Candidate::read(&Document::parse(&first).expect("JSON")).expect("valid");
        assert!(!read.has_counts(), "the launcher's candidate says nothing");
        let failed = failed_candidate("r", "i", 2);
        let lines = [
            "{",
            r#"  "version": 1,"#,
            r#"  "runId": "r","#,
            r#"  "runnerProcessInstanceId": "i","#,
            r#"  "writers": {},"#,
            r#"  "expectedWriters": {"#,
            r#"    "0": 0,"#,
            r#"    "1": 0"#,
            "  }",
            "}",
        ];
        assert_eq!(failed, lines.join("\n"));
    }

    #[test]
    fn a_claim_reads_back_and_a_bare_token_names_nobody() {
        let claim = Claim {
            token: "t".to_owned(),
            pid: 7,
            host: "h".to_owned(),
            pid_namespace: Some("pid:[1]".to_owned()),
            identity: RecordedIdentity { boot_id: Some("b".to_owned()), ..Default::default() },
        };
        assert_eq!(
            claim.text(),
            r#"{"token":"t","pid":7,"hostname":"h","pidNamespaceScope":"pid:[1]","bootId":"b"}"#
        );
        assert_eq!(Claim::read(claim.text().as_bytes()), Some(claim));
        assert_eq!(Claim::read(b"6f1c2a54-0000-4000-8000-000000000000"), None);
    }

    #[test]
    fn white_space_goes_only_between_tokens() {
        assert_eq!(one_line("{ \"a b\" :\n [ 1 , \"\\\" \" ] }"), "{\"a b\":[1,\"\\\" \"]}");
    }

    #[test]
    fn a_rebuilt_document_keeps_what_it_does_not_know() {
        let doc = Document::parse("{\"a\": 1e400, \"b\":2,\"c\":{\"x\":  1}}").expect("JSON");
        let text = rebuilt(&doc, &["b"], &[("a", "3".to_owned()), ("d", "4".to_owned())]);
        assert_eq!(text, "{\n  \"a\": 3,\n  \"c\": {\"x\":  1},\n  \"d\": 4\n}");
    }
}
