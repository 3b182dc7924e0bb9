//! 64 bits of chance without a call of the system for each.
//!
//! The standard library keys each new hash table with chance of the system, which it asks for once in each
//! thread, so that nobody can guess where entries lie. What a hasher makes of the clock is a function of
//! that key. No two calls of one thread have the same key, no two threads and no two processes either. A
//! process that was forked has the keys of its parent: the clock tells the two apart.

use std::hash::{BuildHasher as _, RandomState};
use std::time::SystemTime;

#[expect(clippy::disallowed_methods, reason = "this is the host: the one home of the clock")]
pub(super) fn chance() -> u64 {
    RandomState::new().hash_one(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::chance;

    #[test]
    fn no_two_draws_are_equal() {
        let mut drawn: Vec<u64> = (0..1000).map(|_| chance()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000, "64 bits of chance do not meet");
        assert!(drawn.iter().any(|n| n >> 63 == 1) && drawn.iter().any(|n| n >> 63 == 0));
    }
}
