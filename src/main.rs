//! The `runstore` program.
fn main() {}
