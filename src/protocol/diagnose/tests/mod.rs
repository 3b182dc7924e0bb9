//! Tests of the verdicts, on evidence made by hand.
//!
//! [`Case`] starts as a healthy run that has begun and lives; each test changes what it is about. All
//! documents are given as text and go through the same decoders as files do.
//!
//! | file | question |
//! |---|---|
//! | `active` | active runs, launches, directories without a status |
//! | `terminal` | ends, proofs, pauses, resuming |
//! | `precedence` | which of two verdicts that both fit |
//! | `flags` | each flag, with and without its cause |
//! | `locks` | leases and capacity slots |
//! | `words` | liveness, dialects, next steps and prohibitions |

mod active;
mod flags;
mod locks;
mod precedence;
mod terminal;
mod words;

use std::sync::Arc;

use super::super::candidate::Candidate;
use super::super::error::DecodeError;
use super::super::event;
use super::super::evidence::{FileFact, FileMeta, MarkerFacts, ResultFact, RunEvidence, TempFacts};
use super::super::process::{Life, Liveness};
use super::super::proof::Proof;
use super::super::result::{ResultPlace, ResultView};
use super::super::startup::{ControlMessage, StartupMessage};
use super::super::status::StatusView;
use super::super::verdict::{Diagnosis, Flag, Stage, Verdict};
use super::super::{Document, Word as _};
use super::diagnose;

/// When the run of every case was started.
const T: i64 = 1_790_000_000_000;
const ID: &str = "run-1";

/// A status that has begun, by the runner; `state` and `more` members (with a leading comma).
fn begun(state: &str, more: &str) -> String {
    format!(
        r#"{{"lifecycleArtifactVersion":3,"runId":"run-1","sessionId":"S","mode":"single",
        "state":"{state}","startedAt":{T},"lastUpdate":{T},"pid":42,"cwd":"/p",
        "steps":[{{"agent":"a","status":"running","startedAt":{T}}}]{more}}}"#
    )
}

/// A status as a launcher leaves it: nothing has begun.
fn launched(state: &str, more: &str) -> String {
    format!(
        r#"{{"lifecycleArtifactVersion":3,"runId":"run-1","sessionId":"S","mode":"single",
        "state":"{state}","startedAt":{T},"lastUpdate":{T},
        "steps":[{{"agent":"a","status":"pending"}}]{more}}}"#
    )
}

/// A terminal status that ended at `T`.
fn ended(state: &str, more: &str) -> String {
    begun(state, &format!(r#","endedAt":{T}{more}"#))
}

/// A proof of this run and runner `i`, with more members.
fn proof(state: &str, more: &str) -> String {
    format!(
        r#"{{"version":1,"state":"{state}","runId":"run-1","runnerProcessInstanceId":"i"{more}}}"#
    )
}

const SEEN: &str = r#","observedAt":1790000000000,"instances":[{"kind":"runner",
    "processInstanceId":"i","closeObservedAt":1790000000000,"exitCode":0,"signal":null}]"#;

fn observed() -> String {
    proof("observed", SEEN)
}

/// The overlay member made of a proof.
fn overlay(proof: &str) -> String {
    format!(r#","processTerminal":{proof}"#)
}

/// A result payload of this run and session.
fn payload(success: bool, state: &str, more: &str) -> String {
    format!(
        r#"{{"id":"run-1","sessionId":"S","success":{success},"state":"{state}","timestamp":{T}{more}}}"#
    )
}

fn fact<T>(text: &str, read: impl FnOnce(&Document<'_>) -> Result<T, DecodeError>) -> FileFact<T> {
    let meta = FileMeta { mtime_ms: T, bytes: text.len() as u64, mode: 0o600 };
    match Document::from_bytes(text.as_bytes()).and_then(|doc| read(&doc)) {
        Ok(value) => FileFact::Present(Box::new(value), meta),
        Err(error) => FileFact::Damaged(error, meta),
    }
}

/// One change to the evidence.
type Change = fn(&mut RunEvidence);

/// Evidence under construction.
struct Case {
    e: RunEvidence,
}

impl Case {
    /// A directory made at `T` with nothing in it, looked at at `T`.
    fn empty() -> Self {
        let e = RunEvidence {
            dir_mtime_ms: Some(T),
            dir_mode: 0o700,
            life: life(Liveness::NotRecorded),
            ..RunEvidence::empty(ID.to_owned(), T)
        };
        Self { e }
    }

    /// A run that has begun and whose process lives.
    fn healthy() -> Self {
        Self::of(&begun("running", ""))
    }

    /// A run with this status. Its process lives if the status names one.
    fn of(status: &str) -> Self {
        let mut case = Self::empty();
        case.e.has_protocol_files = true;
        case.e.status = fact(status, |doc| Ok(StatusView::read(doc)));
        let named = case.e.status.value().is_some_and(|s| s.pid.is_some());
        case.e.life = life(if named { Liveness::Live } else { Liveness::NotRecorded });
        case
    }

    fn with(mut self, change: impl FnOnce(&mut RunEvidence)) -> Self {
        change(&mut self.e);
        self
    }

    fn life(self, word: Liveness) -> Self {
        self.with(|e| e.life = life(word))
    }

    fn at(self, after_ms: i64) -> Self {
        self.with(|e| e.now_ms = T + after_ms)
    }

    fn proof(self, text: &str) -> Self {
        self.with(|e| e.proof = fact(text, |doc| Proof::read(doc).map(Arc::new)))
    }

    fn candidate(self, text: &str) -> Self {
        self.with(|e| e.candidate = fact(text, Candidate::read))
    }

    fn startup(self, text: &str) -> Self {
        self.with(|e| {
            e.has_protocol_files = true;
            e.startup = fact(text, |doc| Ok(StartupMessage::read(doc)));
        })
    }

    fn ack(self, action: &str) -> Self {
        self.with(|e| e.ack = control(action))
    }

    fn confirm(self) -> Self {
        self.with(|e| e.confirm = control("confirm"))
    }

    fn proceed(self) -> Self {
        self.with(|e| e.proceed = control("proceed"))
    }

    fn events(self, lines: &str) -> Self {
        self.with(|e| e.events = Some(event::summarize(lines.as_bytes(), true)))
    }

    fn result(self, place: ResultPlace, text: &str) -> Self {
        self.with(|e| {
            let fact = fact(text, |doc| Ok(ResultView::read(doc)));
            let path = format!("results/{}", place.as_str());
            e.results.push(ResultFact { place, path, fact });
        })
    }

    fn diagnose(&self) -> Diagnosis {
        diagnose(&self.e)
    }

    #[track_caller]
    fn is(&self, verdict: Verdict, rule: &str) -> Diagnosis {
        let d = self.diagnose();
        assert_eq!(d.verdict, verdict, "{rule} (because {})", d.because);
        assert!(!d.because.is_empty(), "every verdict has its reason");
        d
    }

    #[track_caller]
    fn at_stage(&self, verdict: Verdict, stage: Stage, rule: &str) {
        assert_eq!(self.is(verdict, rule).stage, Some(stage), "{rule}");
    }

    #[track_caller]
    fn has(&self, flag: Flag, rule: &str) {
        assert!(self.diagnose().has(flag), "{flag} is set: {rule}");
    }

    #[track_caller]
    fn lacks(&self, flag: Flag, rule: &str) {
        assert!(!self.diagnose().has(flag), "{flag} is not set: {rule}");
    }
}

fn life(word: Liveness) -> Life {
    Life { word, why: format!("the process is {word}").into() }
}

fn control(action: &str) -> FileFact<ControlMessage> {
    let text = format!(r#"{{"action":"{action}","token":"t"}}"#);
    fact(&text, |doc| Ok(ControlMessage::read(doc)))
}

const COMPLETED: &str = "{\"type\":\"subagent.run.completed\",\"ts\":1,\"status\":\"complete\"}\n";
