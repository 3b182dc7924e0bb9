//! Say what is true of a store: one report per run directory, and the store's own answer.
//!
//! Theory of operation. An [`Inspection`] walks the runs roots of an open store, looks at each run
//! with [`Store::snapshot`](crate::store::Store::snapshot), judges it with
//! [`diagnose`](crate::protocol::diagnose::diagnose), and hands each report to its caller at once.
//! What one run needs to know of others is gathered before: which pids several active runs record,
//! and which ids stand in more than one place. Both come from the active index and from directory
//! names, so the memory of a walk does not grow with the number of finished runs.
//!
//! Nothing is changed, locked, held open or signalled.
//! Spec: chapter 11; the fixed words are those of `protocol::verdict`.
//! RS-ROLE-03, RS-ROLE-04, RS-RESULT-14.

mod crew;
mod explain;
mod lookup;
mod registry;
mod report;
mod walk;

pub use explain::{Explanation, explain, explain_all};
pub use lookup::{Found, LookupError, find};
pub use registry::{Clause, clauses, spec_version};
pub use report::{
    LeaseReport, NextReport, ProblemReport, ProofReport, ResultReport, RunReport, Scope,
    SlotReport, StoreReport, Summary, shell_word,
};
pub use walk::{Filter, Inspection, PidTable};
