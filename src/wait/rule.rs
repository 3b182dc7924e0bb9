//! When a wait is over: a pure function of what is known of a run.
//!
//! Theory of operation. The verdict is given ([`diagnose`](crate::protocol::diagnose::diagnose)); this only
//! says what it means to somebody who waits. A wait ends with what was wanted, with an end that came instead,
//! or when nobody is left who could change the answer. It goes on as long as some process may: unknown is never
//! dead here either. Spec: RS-OBS-23, RS-OBS-24, RS-OBS-25.

use crate::protocol::Word;
use crate::protocol::evidence::RunEvidence;
use crate::protocol::process::Liveness;
use crate::protocol::status::StatusView;
use crate::protocol::verdict::{Diagnosis, Verdict};

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// That the run works: its runner was let in and has begun.
    Ready,
    /// That its end is recorded.
    #[default]
    Terminal,
    /// That its end is proven.
    Proof,
}

/// How a wait for one run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run works.
    Ready,
    /// The end of the run is recorded.
    Ended,
    /// The end of the run is recorded and proven.
    Proven,
    /// The run says that it goes on, and its runner is gone.
    Orphaned,
    /// Nothing that is known to live can bring what was waited for.
    CannotChange,
    /// The run directory was removed meanwhile.
    Gone,
    /// The time was over first.
    Timeout,
}

impl Word for Until {
    const ALL: &'static [Self] = &[Self::Ready, Self::Terminal, Self::Proof];

    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Terminal => "terminal",
            Self::Proof => "proof",
        }
    }
}

impl Word for Outcome {
    const ALL: &'static [Self] = &[
        Self::Ready,
        Self::Ended,
        Self::Proven,
        Self::Orphaned,
        Self::CannotChange,
        Self::Gone,
        Self::Timeout,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Ended => "ended",
            Self::Proven => "proven",
            Self::Orphaned => "orphaned",
            Self::CannotChange => "cannot-change",
            Self::Gone => "gone",
            Self::Timeout => "timeout",
        }
    }
}

/// Whether a wait is over, and how. `is_attended` is asked only where it matters: whether a live observer may
/// still bring a proof.
/// Spec: RS-OBS-23, RS-OBS-24, RS-OBS-25.
pub fn decide(
    until: Until,
    e: &RunEvidence,
    d: &Diagnosis,
    is_attended: &dyn Fn() -> bool,
) -> Option<Outcome> {
    let status = e.status.value();
    let proof_may_come = || until == Until::Proof && !d.proof.counts && is_attended();
    match d.verdict {
        Verdict::Starting => None,
        Verdict::Running | Verdict::RunningUnverified => {
            (until == Until::Ready).then_some(Outcome::Ready)
        }
        Verdict::StartStuck => {
            let life = e.startup_life.as_ref().unwrap_or(&e.life).word;
            let may_go_on = matches!(life, Liveness::Live | Liveness::Unknown | Liveness::Foreign);
            (!may_go_on).then_some(Outcome::CannotChange)
        }
        // A killed runner has an observer that may be about to say how it ended.
        Verdict::Orphaned => (!proof_may_come()).then_some(Outcome::Orphaned),
        Verdict::Settling if until == Until::Proof => None,
        Verdict::FinishedUnproven if until == Until::Proof => {
            (!proof_may_come()).then_some(Outcome::CannotChange)
        }
        Verdict::Settling | Verdict::FinishedUnproven => Some(Outcome::Ended),
        Verdict::Finished if until == Until::Proof => Some(Outcome::Proven),
        Verdict::Finished => Some(Outcome::Ended),
        // The failure may be recorded before its launcher has said so in the status.
        Verdict::StartFailed
            if status.and_then(StatusView::known_state).is_some_and(|s| s.is_terminal()) =>
        {
            Some(Outcome::Ended)
        }
        // A pause that is not confirmed is about to be, as long as its runner lives.
        Verdict::Paused if status.is_some_and(|s| s.ended_at_ms.is_none()) => None,
        Verdict::Paused if until == Until::Proof && d.proof.counts => Some(Outcome::Proven),
        Verdict::Paused => (!proof_may_come()).then_some(Outcome::CannotChange),
        Verdict::StartFailed
        | Verdict::NeverStarted
        | Verdict::Conflict
        | Verdict::Corrupt
        | Verdict::Unsupported
        | Verdict::Unsafe
        | Verdict::NotARun => Some(Outcome::CannotChange),
    }
}
