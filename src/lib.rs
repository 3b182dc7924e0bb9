//! The library behind the program `runstore`. What follows first is the README.
//!
#![doc = include_str!("../README.md")]
//!
//! # File overview
//!
//! | on disk | read by |
//! |---|---|
//! | `status.json`, proof, candidate, start-up files, logs of a run | [`store`]'s snapshot, decoded by [`protocol`] |
//! | `.active-runs`, `.terminal-runs` | [`store::index`] |
//! | `async-subagent-results/**` | [`store::results`] |
//! | `session-leases/**`, `session-active-async-capacity/**` | [`store::locks`] |
//!
//! [`protocol`] is pure, [`store`] has all effects, [`inspect`] answers. A library user turns the
//! default feature `cli` off.
//!
//! # Limitations
//!
//! Everything is read, nothing is written yet. Processes are judged completely on Linux only;
//! elsewhere their liveness is `unknown`, which is never taken for dead.

pub mod inspect;
pub mod protocol;
pub mod store;
