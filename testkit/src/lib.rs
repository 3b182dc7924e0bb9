//! Helpers for the tests of runstore: trees, stores, cases, recordings and programs.
//!
//! Theory of operation. Almost everything here works on directories that a test owns, with plain files and
//! child processes, and knows nothing of the library: what it builds is what a foreign harness would
//! have left. The library is known to a few modules: [`fault`] is a host for it to run on, [`child`] and
//! [`launch`] are what a launcher is played with, [`driver`] is about the programs that run it. A builder panics or returns an error with the path when it
//! cannot build; it never half-builds in silence. Temporary directories are removed when their owner is
//! dropped, processes that a case started are ended with it.
//!
//! Not promised: anything outside Unix. Modes, links and pipes are the point of most trees.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "builds and reads the trees of tests with plain files and processes, outside the store"
)]

pub mod bindings;
pub mod browser;
pub mod case;
pub mod child;
pub mod driver;
pub mod fault;
pub mod launch;
pub mod peer_runs;
pub mod power;
pub mod process;
pub mod program;
pub mod records;
pub mod schema;
pub mod store;
pub mod trace;
pub mod tree;

pub use store::Store;
