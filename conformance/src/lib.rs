//! Case data, and the engine that judges implementations of the protocol from the outside.
//!
//! Theory of operation. A *scenario* (a JSON file in `checks/`) says what a store holds, what the suite does in the
//! place of the other roles, and which *checks* judge what came of it. `cases` reads scenarios. For each one
//! `cell` makes a store of its own, `recorder` watches it, `subject` says how the implementation under test is called,
//! `process` starts it, and `script` plays the other side, with processes of its own (`helpers`). What was seen is
//! `evidence`; `judge` holds the checks against it. `suite` does that side by side for all scenarios that were asked for.
//! `report` tells what came of it, and `prove` lets the suite judge the mistakes of `zoo`.
//!
//! Nothing here uses the library `runstore`: files are read as bytes, JSON by a parser of its own, names are made by
//! `raw`. If both shared a parser they would be wrong together. A crash of the engine leaves its scratch directory
//! below the directory for temporary files, and at worst subjects that end by their own limits.
//!
//! The engine needs a system with process groups; elsewhere the crate is empty.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "the suite looks at raw files and starts processes; it shares nothing with the store's host trait"
)]

mod cell;
mod clauses;
mod evidence;
mod helpers;
mod judge;
mod process;
mod raw;
mod recorder;
mod script;

pub mod cases;
pub mod prove;
pub mod report;
pub mod subject;
pub mod suite;
pub mod zoo;
