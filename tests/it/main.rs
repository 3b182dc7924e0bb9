//! Behaviour tests of runstore, one file per behaviour.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at trees and run the program from outside the store"
)]

mod cases;
mod inspect_neighbours;
mod nested;
mod peer_runs;
mod schemas;
mod side_records;
mod spec_text;
mod vectors;
mod vectors_decisions;
mod vectors_names;
mod vectors_status;
