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
//! [`protocol`] is pure, [`store`] has all effects, [`inspect`] answers, [`observer`] witnesses ends, [`wait`] waits for them. What changes a file asks for a
//! [`store::WriteHost`]; nothing that inspects does. A library user turns the
//! default feature `cli` off.
//!
//! # Limitations
//!
//! [`launcher`] and [`runner`] lead a run's start from both sides, [`observer`] proves the end of a runner
//! that somebody starts, and [`runner`] runs plain commands. There is no repair yet: [`store`] can read
//! everything, and write each kind of file on its own. Processes are judged completely on Linux only;
//! elsewhere their liveness is
//! `unknown`, which is never taken for dead.

pub mod check;
pub mod inspect;
pub mod launcher;
pub mod observer;
pub mod protocol;
pub mod recover;
pub mod runner;
pub mod store;
pub mod wait;
