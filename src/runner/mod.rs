//! What a runner written in Rust needs of this library, and the built-in runner of plain commands.
//!
//! A runner is the process that a launcher starts for one run; from `proceed` on it owns the run's files.
//! [`startup`] leads its side of the start, [`steps`] runs the commands, [`output`] keeps what they write,
//! [`finish`] ends the run in order, and [`plain`] is all of it, from the configuration to the end.
//! Spec: chapters 14 and 15.

pub mod finish;
mod live;
pub mod output;
pub mod plain;
pub mod startup;
pub mod steps;
