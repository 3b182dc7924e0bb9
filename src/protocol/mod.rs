//! The on-disk protocol as types: pure functions of bytes and facts, no file, clock or process.
//!
//! Theory of operation. Every file of a run store has one module here that says what its bytes mean:
//! lenient *views* that read any dialect and keep what they do not know, and pure *decisions* that
//! turn facts into verdicts. The store gathers the facts, the roles act on the verdicts. Nothing in
//! this module can block, fail for lack of a resource, or change anything, so all of it is testable
//! with plain values. The normative text is `spec/`; each item names its clause.

pub mod account;
pub mod budget;
pub mod candidate;
pub mod command_session;
pub mod command_step;
pub mod config;
pub mod control;
pub mod diagnose;
pub mod dialect;
pub mod document;
pub mod error;
pub mod event;
pub mod evidence;
pub mod finalize;
pub mod finding;
pub mod ids;
pub mod index_entry;
pub mod layout;
pub mod lease;
pub mod limits;
pub mod liveness;
pub mod marker;
mod member;
pub mod nested;
pub mod nested_summary;
pub mod observer_record;
pub mod open;
mod outline;
pub mod process;
pub mod proof;
mod raw;
pub mod reconcile;
pub mod recovery;
pub mod repair;
pub mod replay;
pub mod result;
pub mod retention;
mod scan;
pub mod segment;
pub mod slot;
pub mod startup;
pub mod state;
pub mod status;
pub mod temp_name;
pub mod temp_root;
pub mod verdict;
pub mod written;
pub mod written_control;
pub mod written_launch;
pub mod written_nested;
pub mod written_run;
pub mod written_startup;
pub mod written_status;

pub use document::Document;
pub use error::DecodeError;
pub use open::{Open, Word};
pub use outline::Outline;
pub use raw::{Kind, Raw};
pub use state::{RunMode, RunState, StepState};
