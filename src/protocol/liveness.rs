//! What a probe of a pid says about a process.
//!
//! Theory of operation. The store sends signal 0 and reports how that ended as a [`KillOutcome`];
//! this module turns the outcome into a word. Only "no such process" is evidence of an end. A refused
//! permission shows that *some* process has the number, which may or may not be ours, so it stays
//! unknown; every other failure says nothing at all.
//!
//! A pid comes out of a file, so it is a JSON number first. [`pid_of`] lets through only numbers that
//! name one process: zero and negative numbers address groups, and passing them to the kernel would
//! ask about somebody else.
//!
//! Not promised: identity. A live number may belong to another process by now; the caller compares
//! start identities where the record has one.

use super::open::words;

words! {
    /// Whether a process exists.
    Alive {
        /// A process with this number exists.
        Yes = "alive",
        /// The system says that there is none.
        No = "dead",
        /// Nothing can be said.
        Unknown = "unknown",
    }
}

/// How sending signal 0 ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillOutcome {
    /// It was delivered.
    Ok,
    /// No such process.
    Esrch,
    /// The process belongs to another user.
    Eperm,
    /// Any other error, also an error without a code.
    Other,
}

/// The word for an outcome: only "no such process" is dead. Facts §8.1.
pub fn probe_word(outcome: KillOutcome) -> Alive {
    match outcome {
        KillOutcome::Ok => Alive::Yes,
        KillOutcome::Esrch => Alive::No,
        KillOutcome::Eperm | KillOutcome::Other => Alive::Unknown,
    }
}

/// The pid that a number from a file names: whole, at least 1, and within the kernel's type. `None`
/// means that the number must not be probed and its process is unknown.
pub fn pid_of(number: f64) -> Option<i32> {
    let names_one = number.fract() == 0.0 && (1.0..=f64::from(i32::MAX)).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
    names_one.then_some(number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_esrch_is_dead() {
        let rows = [
            (KillOutcome::Ok, Alive::Yes),
            (KillOutcome::Esrch, Alive::No),
            (KillOutcome::Eperm, Alive::Unknown),
            (KillOutcome::Other, Alive::Unknown),
        ];
        for (outcome, word) in rows {
            assert_eq!(probe_word(outcome), word, "{outcome:?}");
        }
    }

    #[test]
    fn a_number_that_names_no_single_process_is_not_probed() {
        for number in [0.0, -1.0, 1.5, 2_147_483_648.0, f64::NAN, f64::INFINITY, -0.0] {
            assert_eq!(pid_of(number), None, "{number} must not reach the kernel");
        }
        assert_eq!(pid_of(1.0), Some(1), "the smallest pid");
        assert_eq!(pid_of(2_147_483_647.0), Some(i32::MAX), "the largest pid");
    }
}
