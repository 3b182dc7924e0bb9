//! The shapes of an answer, as JSON writes them.
//!
//! These are wire types: camelCase members that are only ever added to. The domain types behind them
//! never serialize themselves. Schema: `spec/schemas/v1/inspect.schema.json`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::protocol::diagnose::slot_verdict;
use crate::protocol::evidence::{FileFact, RunEvidence};
use crate::protocol::finding;
use crate::protocol::result::ResultPlace;
use crate::protocol::verdict::{Diagnosis, Flag, Verdict};
use crate::protocol::{Open, Word as _};
use crate::store::locks::{Lease, Slot};
use crate::store::results::ListedResult;
use crate::store::{Snapshot, StoreProblem};

/// The report of one run directory.
/// Spec: RS-DIAG-01.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The directory's name.
    pub run_id: String,
    /// Absolute path.
    pub path: String,
    /// The `state` word found, verbatim; `null` when there is none.
    pub recorded_state: Option<Cow<'static, str>>,
    /// Liveness word.
    pub liveness: &'static str,
    /// Verdict word.
    pub verdict: &'static str,
    /// Flag words.
    pub flags: Vec<&'static str>,
    /// Stage word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// Whether it can be resumed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// Why it can, or cannot, be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumable_because: Option<&'static str>,
    /// The record with the better evidence, of a conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<&'static str>,
    /// Dialect name, or `unknown`.
    pub dialect: &'static str,
    /// Why this verdict.
    pub because: String,
    /// Owning session, where recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Mode word, where recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'static, str>>,
    /// Recorded process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Recorded start, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    /// Recorded end, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// Newest instant that the record or its log names, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_evidence_ms: Option<i64>,
    /// Whether the run is nested.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// The exit proof.
    pub proof: ProofReport,
    /// Evidence.
    pub evidence: Vec<EvidenceReport>,
    /// Findings.
    pub findings: Vec<FindingReport>,
    /// What may be done.
    pub next: Vec<NextReport>,
    /// What must not be done.
    pub must_not: Vec<String>,
    /// Runs that belong to this one.
    pub children: Vec<String>,
    /// The verdict itself, for callers in this process.
    #[serde(skip)]
    pub verdict_word: Option<Verdict>,
    /// Leftover temp files, for the summary.
    #[serde(skip)]
    pub temp_files: u64,
}

/// `proof` of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ProofReport {
    /// State word.
    pub state: &'static str,
    /// Reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it counts.
    pub counts: bool,
}

/// One line of evidence.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceReport {
    /// Grade word.
    pub kind: &'static str,
    /// Statement.
    pub text: String,
    /// File.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Instant, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<i64>,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub struct FindingReport {
    /// Id, explained by `runstore explain`.
    pub id: &'static str,
    /// Severity word.
    pub severity: &'static str,
    /// Statement.
    pub text: String,
    /// File.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Clauses of the spec.
    pub clauses: &'static [&'static str],
}

/// One possible next step.
#[derive(Clone, Debug, Serialize)]
pub struct NextReport {
    /// Stable word.
    pub action: &'static str,
    /// Why.
    pub why: String,
    /// Command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// One capacity slot.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotReport {
    /// Path relative to the store.
    pub path: String,
    /// Run that holds it, where the owner record can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Session it is counted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Since when, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_at_ms: Option<i64>,
    /// Verdict word of that run, where it has a directory here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_verdict: Option<&'static str>,
    /// The same, typed.
    #[serde(skip)]
    pub run_verdict_word: Option<Verdict>,
    /// Whether the rule for freeing it is met.
    pub releasable: bool,
    /// Whether that would be by the policy for abandoned slots.
    pub by_policy: bool,
    /// Why (not).
    pub reason: String,
}

/// One session lease.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseReport {
    /// Path relative to the store.
    pub path: String,
    /// Run that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The session that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The leased session file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// Since when, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquired_at_ms: Option<i64>,
    /// Owning process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Owning host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Liveness word of the owning process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<&'static str>,
    /// Writer state word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer_state: Option<String>,
    /// `held`, `stale` or `unreadable`.
    pub state: &'static str,
    /// Why.
    pub reason: String,
}

/// One result payload that is still in the store.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultReport {
    /// Run it belongs to.
    pub run_id: String,
    /// Path relative to the store.
    pub path: String,
    /// Place word.
    pub place: &'static str,
    /// Session it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Outcome word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Instant it names, else the file's time, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<i64>,
    /// Age at the instant of the answer, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<i64>,
    /// What is wrong with it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Something wrong with the store itself.
#[derive(Clone, Debug, Serialize)]
pub struct ProblemReport {
    /// Finding id.
    pub id: &'static str,
    /// Severity word.
    pub severity: &'static str,
    /// Path.
    pub path: String,
    /// Statement.
    pub text: String,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// Absolute paths that were looked at.
    pub paths: Vec<String>,
    /// Ids that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Session that the answer is restricted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Verdicts that the answer is restricted to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<&'static str>,
    /// Host name of the observing side.
    pub host: String,
}

/// Counts.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Number of reports.
    pub total: u64,
    /// Reports by verdict.
    pub by_verdict: BTreeMap<&'static str, u64>,
    /// Leftover temp files.
    pub temp_files: u64,
    /// Tombstones and abandoned candidates of locks.
    pub lock_litter: u64,
}

impl Summary {
    /// Counts one report.
    pub fn count(&mut self, report: &RunReport) {
        self.add(report.verdict, report.temp_files);
    }

    /// Counts a report of which only this is known.
    pub fn add(&mut self, verdict: &'static str, temp_files: u64) {
        self.total += 1;
        *self.by_verdict.entry(verdict).or_default() += 1;
        self.temp_files += temp_files;
    }
}

/// The whole answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreReport {
    /// Always `runstore.inspect/1`.
    pub schema: &'static str,
    /// Instant of the answer, ms.
    pub now_ms: i64,
    /// What was asked for.
    pub scope: Scope,
    /// Run reports.
    pub runs: Vec<RunReport>,
    /// Slots.
    pub slots: Vec<SlotReport>,
    /// Leases.
    pub leases: Vec<LeaseReport>,
    /// Results that were not delivered.
    pub results: Vec<ResultReport>,
    /// What is wrong with the store itself.
    pub problems: Vec<ProblemReport>,
    /// Counts.
    pub summary: Summary,
}

impl RunReport {
    /// Puts snapshot and diagnosis into wire form.
    pub fn new(snapshot: &Snapshot, d: Diagnosis, nested_children: &[String]) -> Self {
        let mut children = snapshot.children.clone();
        children.extend(nested_children.iter().filter(|c| !snapshot.children.contains(c)).cloned());
        let evidence = d.evidence.iter().map(EvidenceReport::new).collect();
        let findings = d.findings.iter().map(FindingReport::new).collect();
        let next = d.next.iter().map(|n| NextReport::new(n, &snapshot.path)).collect();
        let must_not = d.must_not.clone();
        let path = snapshot.path.to_string_lossy().into_owned();
        Self { path, evidence, findings, next, must_not, children, ..Self::brief(snapshot, d) }
    }

    /// The same without path, evidence, findings, advice and children: a row of a table needs none.
    pub fn brief(snapshot: &Snapshot, d: Diagnosis) -> Self {
        let e = &snapshot.evidence;
        let s = e.status.value();
        let log = e.events.as_ref().and_then(|log| log.newest_ms);
        let (resumable, resumable_because) = d.resumable.unzip();
        Self {
            run_id: e.run_id.clone(),
            path: String::new(),
            recorded_state: recorded_state(e),
            liveness: liveness_word(e),
            verdict: d.verdict.as_str(),
            flags: d.flags.iter().map(|f| f.as_str()).collect(),
            stage: d.stage.map(|stage| stage.as_str()),
            resumable,
            resumable_because,
            preferred: d.preferred,
            dialect: d.dialect,
            because: d.because,
            session_id: s.and_then(|s| s.session_id.clone()),
            mode: s.and_then(|s| s.mode.as_ref()).map(word),
            pid: s.and_then(|s| s.pid).filter(|pid| *pid > 0),
            started_at_ms: s.and_then(|s| s.started_at_ms),
            ended_at_ms: s.and_then(|s| s.ended_at_ms),
            last_evidence_ms: s.and_then(|s| s.last_write_ms()).max(log),
            nested: e.is_nested || s.is_some_and(|s| s.is_nested),
            proof: ProofReport {
                state: d.proof.state,
                reason: d.proof.reason,
                counts: d.proof.counts,
            },
            evidence: Vec::new(),
            findings: Vec::new(),
            next: Vec::new(),
            must_not: Vec::new(),
            children: Vec::new(),
            verdict_word: Some(d.verdict),
            temp_files: e.temp.count,
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag.as_str())
    }
}

/// The `state` word, verbatim; nothing of a record that could not be decoded.
/// Spec: RS-STATUS-06.
fn recorded_state(e: &RunEvidence) -> Option<Cow<'static, str>> {
    e.status.value().and_then(|s| s.state.as_ref()).map(word)
}

fn word<K: crate::protocol::Word>(word: &Open<K>) -> Cow<'static, str> {
    match word {
        Open::Known(known) => known.as_str().into(),
        Open::Unrecognized(text) => text.clone().into(),
    }
}

fn liveness_word(e: &RunEvidence) -> &'static str {
    let life = e.startup_life.as_ref().unwrap_or(&e.life);
    life.word.as_str()
}

impl EvidenceReport {
    fn new(line: &crate::protocol::verdict::EvidenceLine) -> Self {
        Self {
            kind: line.grade.as_str(),
            text: line.text.clone(),
            file: line.file.clone(),
            at_ms: line.at_ms,
        }
    }
}

impl FindingReport {
    fn new(f: &crate::protocol::verdict::Finding) -> Self {
        Self {
            id: f.id,
            severity: f.severity.as_str(),
            text: f.text.clone(),
            file: f.file.clone(),
            line: f.line,
            clauses: finding::by_id(f.id).map_or(&[], |kind| kind.clauses),
        }
    }
}

impl NextReport {
    fn new(n: &crate::protocol::verdict::NextAction, path: &Path) -> Self {
        // A path that is not plain text could not be typed as it is shown.
        let text = path.to_str().filter(|text| !text.contains(char::is_control));
        let command = n.verb.zip(text).map(|(verb, path)| {
            let path = shell_word(path);
            format!("runstore {verb} {path}")
        });
        Self { action: n.action, why: n.why.clone(), command }
    }
}

/// A word as a shell takes it.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

impl ProblemReport {
    /// Puts a store problem into wire form.
    pub fn new(p: &StoreProblem) -> Self {
        Self {
            id: p.kind.id,
            severity: p.kind.severity.as_str(),
            path: p.path.clone(),
            text: p.text.clone(),
        }
    }
}

impl SlotReport {
    /// A slot before its run was seen: nothing frees it.
    pub fn new(slot: &Slot) -> Self {
        let owner = slot.owner.value();
        let reason = match &slot.owner {
            FileFact::Present(..) => "its run has no directory here".to_owned(),
            FileFact::Absent => "no owner record: occupied until a person removes it".to_owned(),
            FileFact::Unsafe(what) => {
                format!("its owner record is {what}: occupied until a person removes it")
            }
            FileFact::Unreadable(why) => format!("its owner record cannot be read: {why}"),
            FileFact::Damaged(error, _) => {
                format!("its owner record is damaged: {error}; occupied until a person removes it")
            }
        };
        Self {
            path: slot.path.clone(),
            run_id: owner.map(|o| o.run_id.clone()),
            session_id: owner.map(|o| o.owner_session_id.clone()),
            reserved_at_ms: owner.map(|o| o.reserved_at_ms),
            run_verdict: None,
            run_verdict_word: None,
            releasable: false,
            by_policy: false,
            reason,
        }
    }

    /// Judges the slot with the evidence of its run.
    pub fn judge(&mut self, e: &RunEvidence) {
        let Some(fact) = e.slots.iter().find(|slot| slot.path == self.path) else { return };
        let verdict = slot_verdict(e, &fact.owner);
        self.releasable = verdict.release && !fact.claimed;
        self.by_policy = self.releasable && verdict.by_policy;
        self.reason = if fact.claimed {
            "a claim file freezes it".to_owned()
        } else {
            verdict.reason.to_owned()
        };
    }
}

impl LeaseReport {
    /// Puts a lease into wire form.
    pub fn new(lease: &Lease) -> Self {
        let owner = lease.owner.value();
        Self {
            path: lease.path.clone(),
            run_id: owner.map(|o| o.run_id.clone()),
            session_id: owner.and_then(|o| o.parent_session_id.clone()),
            session_file: owner.map(|o| o.canonical_session_file.clone()),
            acquired_at_ms: owner.map(|o| o.acquired_at_ms),
            pid: owner.map(|o| o.pid),
            hostname: owner.map(|o| o.hostname.clone()),
            liveness: lease.owner_life.map(|word| word.as_str()),
            writer_state: owner.map(|o| o.writer_state.as_str().to_owned()),
            state: match owner {
                None => "unreadable",
                Some(_) if lease.stale => "stale",
                Some(_) => "held",
            },
            reason: lease.why.clone(),
        }
    }
}

impl ResultReport {
    /// Puts a listed result into wire form; `None` when it was delivered already.
    pub fn new(listed: &ListedResult, now_ms: i64) -> Option<Self> {
        let view = listed.result.fact.value();
        if listed.replayed
            || view.is_some_and(|v| v.delivered_at_ms.is_some())
            || listed.result.place == ResultPlace::Replay
        {
            return None;
        }
        let at_ms = view.and_then(|v| v.at_ms).or(listed.mtime_ms);
        let problem = match &listed.result.fact {
            FileFact::Unsafe(what) => Some(format!("it is {what}")),
            FileFact::Unreadable(why) => Some(format!("it cannot be read: {why}")),
            FileFact::Damaged(error, _) => Some(error.to_string()),
            FileFact::Present(v, _) if v.session_id.is_none() => {
                Some("it names no session, so nobody will pick it up".to_owned())
            }
            _ => None,
        };
        Some(Self {
            run_id: listed.run_id.clone(),
            path: listed.result.path.clone(),
            place: listed.result.place.as_str(),
            session_id: view.and_then(|v| v.session_id.clone()),
            outcome: view.and_then(|v| v.outcome).map(|o| o.as_str()),
            at_ms,
            age_ms: at_ms.map(|at| now_ms.saturating_sub(at).max(0)),
            problem,
        })
    }
}
