//! Behaviour tests, one binary.
