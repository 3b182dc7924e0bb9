//! A filesystem-protocol toolkit for detached agent runs.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests fail by panicking"))]

pub mod inspect;
pub mod protocol;
pub mod store;
