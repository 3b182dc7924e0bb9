//! From evidence to verdict: one pure function, shared by every command that has an opinion.
//!
//! Theory of operation. [`diagnose`] asks the questions in the order of the contract, and the first
//! match wins: unsafe, corrupt, unsupported, conflict, then what the state and the process say. Each
//! answer carries its *because*; beside it stand flags, findings, evidence with its grade, what may
//! be done and what must not.
//!
//! Three things are never mixed: what was *observed* by this look, what a record *claims*, and what
//! is *inferred* from both. `orphaned` needs an observed absence; unknown is never dead; the age of a
//! file is never activity. Spec: chapter 11, RS-DIAG-*.
//!
//! | file | question |
//! |---|---|
//! | `proofs` | does an exit proof count? |
//! | `accounts` | who tells which outcome, and do they agree? |
//! | `stages` | how far did the launch come? |
//! | `rules` | which verdict? |
//! | `flags` | which flags and findings? |
//! | `locks` | of those, what is held, and what became of it? |
//! | `fate` | what is to become of a run whose runner is gone? |
//! | `advice` | what may be done, what must not? |

mod accounts;
mod advice;
mod fate;
mod flags;
mod locks;
mod proofs;
mod rules;
mod stages;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use super::candidate::Candidate;
use super::dialect;
use super::evidence::{FileFact, RunEvidence};
use super::finding::{self, FindingKind};
use super::process::Liveness;
use super::status::StatusView;
use super::verdict::{Diagnosis, EvidenceLine, Finding, Flag, Grade, ProofSummary, Stage, Verdict};

pub use accounts::{Account, Source};
pub use fate::{Fate, fate, unfit};
pub use locks::slot_verdict;

/// Judges one run. Spec: RS-DIAG-03, RS-DIAG-28, RS-DIAG-29.
pub fn diagnose(e: &RunEvidence) -> Diagnosis {
    judge(e, Notes::default())
}

/// The same judgement without its texts: no evidence, no findings and no advice. For a table of many
/// runs, which shows none of them.
pub fn diagnose_briefly(e: &RunEvidence) -> Diagnosis {
    judge(e, Notes { wordless: true, ..Notes::default() })
}

fn judge(e: &RunEvidence, mut notes: Notes) -> Diagnosis {
    let proof = proofs::summarize(e);
    let accounts = accounts::collect(e);
    let ruling = rules::rule(e, &proof, &accounts, &mut notes);
    flags::collect(e, &proof, &ruling, &accounts, &mut notes);
    let resumable = rules::resumable(e, ruling.verdict);
    let (next, must_not) =
        if notes.wordless { Default::default() } else { advice::advise(e, &ruling, &notes) };
    notes.flags.sort_unstable();
    notes.flags.dedup();
    Diagnosis {
        verdict: ruling.verdict,
        stage: ruling.stage,
        resumable,
        preferred: ruling.preferred,
        dialect: dialect::name(e),
        flags: notes.flags,
        proof,
        because: ruling.because,
        evidence: notes.evidence,
        findings: notes.findings,
        next,
        must_not,
    }
}

/// A verdict with its reason.
struct Ruling {
    verdict: Verdict,
    stage: Option<Stage>,
    preferred: Option<&'static str>,
    because: String,
}

impl Ruling {
    fn new(verdict: Verdict, because: impl Into<String>) -> Self {
        Self { verdict, stage: None, preferred: None, because: because.into() }
    }

    fn conflict(because: impl Into<String>, preferred: Source) -> Self {
        Self { preferred: Some(preferred.as_str()), ..Self::new(Verdict::Conflict, because) }
    }

    fn at(mut self, stage: Stage) -> Self {
        self.stage = Some(stage);
        self
    }
}

/// What is collected beside the verdict.
#[derive(Default)]
struct Notes {
    /// Only flags are kept.
    wordless: bool,
    flags: Vec<Flag>,
    evidence: Vec<EvidenceLine>,
    findings: Vec<Finding>,
}

impl Notes {
    fn flag(&mut self, flag: Flag) {
        self.flags.push(flag);
    }

    fn say(&mut self, grade: Grade, text: impl Display, file: Option<&str>, at: Option<i64>) {
        if self.wordless {
            return;
        }
        let (text, file) = (text.to_string(), file.map(str::to_owned));
        self.evidence.push(EvidenceLine { grade, text, file, at_ms: at });
    }

    fn find(&mut self, kind: &'static FindingKind, text: impl Display, file: Option<&str>) {
        self.find_at(kind, text, file, None);
    }

    fn find_at(
        &mut self,
        kind: &'static FindingKind,
        text: impl Display,
        file: Option<&str>,
        line: Option<u64>,
    ) {
        if self.wordless {
            return;
        }
        self.findings.push(Finding {
            id: kind.id,
            severity: kind.severity,
            text: text.to_string(),
            file: file.map(str::to_owned),
            line,
        });
    }
}

/// The status, if it could be decoded.
fn status(e: &RunEvidence) -> Option<&StatusView> {
    e.status.value()
}

/// Whether work has demonstrably begun: more than a launcher alone can have written.
/// Spec: RS-START-12, RS-START-15.
fn has_begun(e: &RunEvidence) -> bool {
    let from_status = status(e).is_some_and(|s| {
        s.has_steering
            || s.steps
                .iter()
                .any(|step| step.state.as_ref().is_some_and(|w| w.as_str() != "pending"))
    });
    from_status
        || e.output_bytes > 0
        || e.events.as_ref().is_some_and(|log| log.begun)
        || e.candidate.value().is_some_and(Candidate::shows_work)
        || e.own_results().next().is_some()
}

/// The recorded process of the run: the status's, else that of the start-up file.
fn life_word(e: &RunEvidence) -> Liveness {
    match &e.startup_life {
        Some(life) if e.life.word == Liveness::NotRecorded => life.word,
        _ => e.life.word,
    }
}
