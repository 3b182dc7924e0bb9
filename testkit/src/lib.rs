//! Helpers for the tests of runstore.
