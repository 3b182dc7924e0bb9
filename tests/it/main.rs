//! Behaviour tests of runstore, one file per behaviour.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at trees and run the program from outside the store"
)]

mod advisory;
mod arbitrary;
mod arbitrary_patch;
mod ask;
mod bindings;
mod cases;
mod check;
mod cli_errors;
mod cli_text;
mod conformance;
mod control_verbs;
mod directories;
mod exit_codes;
mod hostile;
mod indexes;
mod inspect_neighbours;
mod killed;
mod launch;
mod lists;
mod live;
mod locks_real;
mod logs;
mod many_runs;
mod nested;
mod offers;
mod peer_runs;
mod permissions;
mod place;
mod prune;
mod race;
mod race_recover;
mod read_only;
mod readme;
mod recover;
mod recover_killed;
mod recovered;
mod release;
mod reserve;
mod resume;
mod run_record;
mod run_verb;
mod runner;
mod schemas;
mod session;
mod shim;
mod shim_killed;
mod side_records;
mod spec_text;
mod spec_verb;
mod startup;
mod sweep;
mod unruly;
mod vectors;
mod vectors_decisions;
mod vectors_locks;
mod vectors_names;
mod vectors_status;
mod vectors_writes;
mod wait;
mod wait_rules;
mod walk;
mod watching;
mod witness;
