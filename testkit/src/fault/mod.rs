//! A host in memory whose every effect is recorded, so that any crash can be played out.
//!
//! Theory of operation. [`FaultHost`] holds a small file tree, a clock that only waits move, and a
//! list of [`Effect`]s. An operation is run on it once. From the recording, [`explore`] builds the
//! disk as each crash would leave it:
//!
//! * *process crash* after effect *k*: the first *k* effects are there, the others are not;
//! * *power loss* after effect *k*: only flushed content and flushed entries are certain. Every
//!   unflushed change of an entry may have reached the disk or not, in any combination, and every
//!   unflushed content is empty, zero-filled, cut, or whole;
//! * *without a journal* ([`FaultHost::without_journal`]) a file or directory that has lost its last name may
//!   also have ended on the disk before the entry that leads to it is gone there: the repair takes that
//!   entry away. Of the files that may have ended so, all have or each alone.
//!
//! [`explore`] plays everything out with a journal and without.
//!
//! Each such disk becomes a new [`FaultHost`] on which invariants are checked with the library's own
//! readers. In countdown mode ([`FaultHost::fail_at`], [`FaultHost::fail_look_at`]) the *n*-th effect or
//! look fails instead.
//!
//! The model is meaner than real file systems: flushing a file does not flush its entry, entries of
//! one directory may persist in any order, and a rename between two directories needs both flushed.
//! Not modelled: a rename between two directories of which one half arrives, bad sectors.

mod disk;
mod explore;
mod host;
mod paths;
mod process;

pub use disk::{Effect, NodeId};
pub use explore::{
    Crash, Exploration, Model, Sabotage, explore, explore_sabotaged,
    explore_sabotaged_without_journal, power_cut,
};
pub use host::{FaultHost, Injected};
pub use process::{Nap, Script, Watched};
