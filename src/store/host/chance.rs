//! 64 bits of chance where the system's own call for it is not within reach.
//!
//! The standard library keys each new hash table with chance of the system, so that nobody can guess
//! where its entries lie. A hasher that was fed nothing is a function of that key alone. No two calls
//! of one thread have the same key, no two threads and no two processes either.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

pub(super) fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
