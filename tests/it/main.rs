//! Behaviour tests of runstore, one file per behaviour.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at trees and run the program from outside the store"
)]

mod cases;
mod peer_runs;
mod vectors_decisions;
mod vectors_names;
