//! Crashes and faults, played out over every step of every store operation.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "the counts of an exploration are shown with --nocapture")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at real trees and run programs from outside the store"
)]

mod advisory;
mod ask;
mod atomic;
mod deferred;
mod directory;
mod ending;
mod full_disk;
mod hammer;
mod held_session;
mod journal;
mod launch;
mod lease;
mod markers;
mod nested;
mod power_cut;
mod proof;
mod prune;
mod publish;
mod reachable;
mod recover;
mod release;
mod reserve;
mod retry;
mod run;
mod runner;
mod sidecar;
mod slot;
mod startup;
mod states;
mod strace;
mod sweep;
mod table;
mod unlaunched;
