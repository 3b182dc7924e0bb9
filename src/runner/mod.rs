//! What a runner written in Rust needs of this library.
//!
//! A runner is the process that a launcher starts for one run; from `proceed` on it owns the run's files.
//! Spec: chapter 14.

pub mod startup;
