//! What the explorations of this folder came to, operation by operation.
//!
//! Theory of operation. Each exploration hands its outcome to [`seen`], and each deliberate mistake to
//! [`caught`]; both fail the test that they are called from when the outcome is not as it has to be.
//! Both print a line, which `--nocapture` shows.

use testkit::fault::Exploration;

/// An exploration without a deliberate mistake: no disk may break an invariant, and both models have to
/// have been played out.
pub(crate) fn seen(operation: &str, seen: &Exploration) {
    assert!(seen.violations.is_empty(), "{operation}: {:#?}", seen.violations);
    assert_eq!(seen.process_states, seen.steps + 1, "{operation}: a crash after every step");
    assert!(seen.states >= 2 * (seen.steps + 1), "{operation}: both models were played out");
    let power = seen.states - seen.process_states;
    println!("{operation}: {} steps, {} + {power} states", seen.steps, seen.process_states);
}

/// An exploration with a deliberate mistake, which has to break an invariant.
pub(crate) fn caught(operation: &str, mistake: &str, seen: &Exploration) {
    assert!(!seen.violations.is_empty(), "{operation}: not caught: {mistake}");
    println!("{operation}: caught: {mistake}");
}
