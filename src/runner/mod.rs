//! What a runner written in Rust needs of this library, and the built-in runner of plain commands.
//!
//! A runner is the process that a launcher starts for one run; from `proceed` on it owns the run's files.
//! [`startup`] leads its side of the start, [`job`] opens its places, and a [`session`] is the run in its
//! hands: what a runner tells, what it is asked, how it ends ([`finish`]). The built-in runner is one of them:
//! [`steps`] runs the commands, [`output`] keeps what they write, and [`plain`] is all of it, from the
//! configuration to the end.
//! Spec: chapters 14 and 15.

mod board;
pub mod finish;
mod grow;
pub mod job;
mod live;
pub mod output;
pub mod plain;
pub mod session;
pub mod startup;
pub mod steps;
mod work;
