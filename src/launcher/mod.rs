//! Launching a run: from nothing to a runner that was let in, or to nothing again.
//!
//! Theory of operation. The launcher owns everything of a run until `proceed` is in its place; from then
//! on the runner does. So each thing that the run needs is on the disk, as durable as it has to be, before
//! that one rename, and whatever goes wrong before it is taken back or told.
//!
//! Ordered steps:
//! 1. [`prepare()`]: check everything that can be checked without writing; make the run directory, the
//!    recovery descriptor, the launch note, the slot (bound to the instance that the runner will be), the
//!    configuration;
//! 2. [`Prepared::start`](prepare::Prepared::start): make the process, through the caller's
//!    [`Spawn`](crate::store::process::Spawn); write the first status, the active marker, the pending proof
//!    and the candidate;
//! 3. [`Launch`]: lead the start-up ([`handshake`], a pure machine), look at the child once more, and write
//!    `proceed`. This is the commit point: nothing that happens after it is a failed launch.
//!
//! A launch that fails after step 1 is undone: nothing was started. One that fails after step 2 goes through
//! `undo`: the candidate, the status, the runner's end, its lease, the slot, the configuration, in this
//! order.
//!
//! Nothing waits inside a call but the disk: a [`Launch`] is polled, and says how long to wait before the
//! next look. [`Launch::wait`] is woken by what happens; [`Launch::wait_with`] takes another pause.
//!
//! What a crash leaves: a prefix of the steps, which `spec/durability.md` goes through. A launcher that dies
//! before `proceed` leaves a runner that gives up after its own budget and says so; one that dies after it
//! leaves a run as any other.
//!
//! Not promised: that a runner which was let in has read it; that its end is observed. Both are other
//! roles' business. Spec: chapter 14; facts §4.3, §4.5, §4.8.

mod drive;
pub mod environment;
pub mod handshake;
pub mod prepare;
pub mod request;
mod shims;
mod undo;

pub use drive::{Launch, Poll};
pub use handshake::Confirm;
pub use prepare::{Prepared, prepare};
pub use request::{
    Cause, Failed, Nested, Outcome, Place, Refusal, Refused, Request, SlotWish, Started,
};
pub use shims::Shims;
