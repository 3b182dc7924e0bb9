//! All effects: reading run stores without believing anything, and writing so that nothing is lost.
//!
//! # The reading half
//!
//! It takes a [`Host`] and cannot change anything. A [`Store`] is one temp root of one user, or a part of one. Opening it takes
//! directory handles for the roots that exist and reads the small shared records (slots, leases)
//! once. Each run is then read on its own by [`Store::snapshot`]: what goes wrong there stays there.
//!
//! | file on disk | read by |
//! |---|---|
//! | everything in a run directory | `snapshot`, `keepers` |
//! | `control/` and `append-requests/` in it | `control` |
//! | what its steps and its runner wrote, from beginning to end | `logs` |
//! | status and proof of the runs beside a workflow | `children` |
//! | `async-subagent-results/**` | `results` |
//! | `nested-subagent-events/**` | `routes` |
//! | `.active-runs`, `.terminal-runs` | `index` |
//! | `session-leases/**`, `session-active-async-capacity/**` | `locks` |
//! | the temp roots themselves | `discover` |
//! | what can wake a wait for a run | `watch` |
//! | what proves that a run has not changed | `stamps` |
//! | indexes, leases and names as a whole, for a check | `survey` |
//!
//! It opens, looks and closes; it holds no lock, creates no file and runs no program, so a crash of a
//! reader leaves nothing. Spec: chapters 02 and 03, RS-READ-*.
//!
//! # The writing half
//!
//! It takes a [`WriteHost`]. Every operation is a numbered list of effects, and `spec/durability.md`
//! says for each of them what a crash after it leaves.
//!
//! | what is written | by |
//! |---|---|
//! | one whole file, at a level of durability | `atomic`, with `retry` |
//! | the same, when the disk is full | `deferred`, `reserve` |
//! | a run directory and its status | `run`, `identity` |
//! | some members of a file that others write too | `sidecar`, `advisory` |
//! | a line of a log | `journal` |
//! | the run indexes | `markers` |
//! | results | `publish`, `delivery` |
//! | session leases, capacity slots; the slots of runs that have ended | `lease`, `slot`; `ended_slots`; one that is named: `release` |
//! | candidate, proof and overlay | `proof`, `candidate` |
//! | what launcher and runner say to each other | `message` |
//! | who observes a run | `observer_record` |
//! | runs that are removed, and the lock of whoever removes | `prune`, `retention` |
//! | requests to a live runner; the same, taken up | `ask`; `inbox` |
//!
//! `process` is what a launcher asks of whoever starts processes, and the plain answer: children of its own.
//! Spec: chapters 12 to 14.
//!
//! # Processes
//!
//! Whoever starts or waits for processes takes a [`ProcessHost`]. Spec: chapter 15.

pub mod advisory;
mod ahead;
pub mod append;
pub mod ask;
pub mod atomic;
pub mod budget;
pub mod candidate;
mod children;
mod claim;
pub(crate) mod consequences;
mod control;
pub mod deferred;
pub mod delivery;
pub mod directory;
pub mod discover;
pub mod ended_slots;
pub mod host;
pub mod identity;
pub mod inbox;
pub mod index;
pub mod journal;
mod keepers;
pub mod lease;
mod listing;
mod lock_dir;
pub mod locks;
pub mod logs;
pub mod markers;
pub mod message;
pub mod nested;
pub mod observer_record;
mod open;
pub mod process;
pub mod proof;
pub mod prune;
mod prune_around;
pub mod publish;
mod read;
pub mod release;
pub mod reserve;
pub mod results;
mod retention;
pub mod retry;
pub mod routes;
pub mod run;
mod second_name;
pub mod sidecar;
pub mod signal;
pub mod slot;
mod snapshot;
pub(crate) mod stamps;
pub mod survey;
mod watch;

#[cfg(any(unix, windows))]
pub use ahead::Ahead;
pub use host::RealHost;
pub use host::{Host, ProcessHost, WatchHost, WriteHost};
pub use open::{Opened, RunsRoot, Store, StoreProblem};
pub use routes::{RoutedChild, Routes};
pub use snapshot::{Depth, Snapshot};
