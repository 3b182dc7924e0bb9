//! Crashes and faults, played out over every step of every store operation.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "the counts of an exploration are shown with --nocapture")]

mod advisory;
mod atomic;
mod deferred;
mod directory;
mod journal;
mod lease;
mod markers;
mod proof;
mod publish;
mod reserve;
mod sidecar;
mod slot;
