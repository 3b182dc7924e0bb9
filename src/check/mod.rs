//! Whether a store at rest is as the spec wants it: across records, and which findings are problems at all.
//!
//! Theory of operation. A diagnosis tells what is true of one run; much of it is ordinary while a run is under
//! way. A check asks another question: what is there that should not be there when nobody is at work? Its
//! answer has two parts. What the diagnosis of each run and the opening of the store found counts by the table
//! of [`level`]. What only shows when records are held against one another ([`across`]) is found here, from a
//! [`Survey`] that the store has read and from what each run was found to be.
//!
//! Both are pure: nothing is read, asked or changed. A store that is at work while it is read may show a pair
//! of records in between two writes; a problem that is gone in a second look was one of those.
//! Spec: chapter 17, RS-CHECK-03 to RS-CHECK-20.

mod across;
mod level;

pub use across::{Held, RunFact, across};
pub use level::{Level, level, of_verdict};

#[cfg(doc)]
use crate::store::survey::Survey;
