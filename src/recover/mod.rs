//! Give runs whose runner is gone a truthful end, and take away what they left behind.
//!
//! Theory of operation. A recoverer is a client of the store like any other: it judges each run with
//! [`diagnose`](crate::protocol::diagnose::diagnose), as an inspector does, and acts only where that judgement
//! and the rules of chapter 16 leave one thing to do. It never signals, starts or witnesses a process, so
//! nothing here can say `observed`.
//!
//! | file | what |
//! |---|---|
//! | `plan` | reads a store and says what would be done, and what is refused |
//! | `run` | all actions for one run |
//! | `store_wide` | what belongs to no run any more |
//! | `decide` | the rules for one run, from its evidence alone |
//! | `draft` | an action as exact changes of files |
//! | `change` | one change: how it stands, how it is made and taken back |
//! | `place` | paths of records, opened name by name |
//! | `journal` | the record of an action on disk |
//! | `apply` | carries a plan out, under the recovery lock |
//! | `undo` | takes it back |
//! | `sweep` | the same again and again, reading only what may have changed |
//! | `together` | what ended several runs at once |
//!
//! Everything that it keeps lies in `.runstore/recovery` below the root, one directory for each apply.
//! What a crash leaves is told by the record that was written before the first change: the next apply
//! finishes it. Spec: chapter 16, RS-REC-*.

mod apply;
mod change;
mod decide;
mod draft;
mod journal;
mod place;
mod plan;
mod run;
mod store_wide;
mod sweep;
mod together;
mod undo;

pub use apply::{Applied, ApplyError, Done, LeftOver, Wanted, apply};
pub use change::{Before, Change, ChangeError, Moved, Stand, stand};
pub use decide::{ActionKind, Policy};
pub use journal::{ApplyLog, Logged, State, log};
pub use plan::{Action, Plan, Refusal, Requirement, Scope, plan};
pub use sweep::{Memory, sweep};
pub use together::{Event, Lost, events};
pub use undo::{Undone, undo};
