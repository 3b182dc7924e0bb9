//! All effects: reading run stores without believing or changing anything.
//!
//! Theory of operation. A [`Store`] is one temp root of one user, or a part of one. Opening it takes
//! directory handles for the roots that exist and reads the small shared records (slots, leases)
//! once. Each run is then read on its own by [`Store::snapshot`]: what goes wrong there stays there.
//!
//! | file on disk | read by |
//! |---|---|
//! | everything in a run directory | `snapshot` |
//! | `control/` and `append-requests/` in it | `control` |
//! | status and proof of the runs beside a workflow | `children` |
//! | `async-subagent-results/**` | `results` |
//! | `nested-subagent-events/**` | `routes` |
//! | `.active-runs`, `.terminal-runs` | `index` |
//! | `session-leases/**`, `session-active-async-capacity/**` | `locks` |
//! | the temp roots themselves | `discover` |
//!
//! Ownership: nothing on disk belongs to this module; it opens, looks and closes. It holds no lock,
//! creates no file and runs no program, so a crash of the reader leaves nothing.
//! Spec: chapters 02 and 03, RS-READ-*.

mod children;
mod control;
pub mod discover;
pub mod host;
pub mod index;
pub mod locks;
mod open;
mod read;
pub mod results;
pub mod routes;
mod snapshot;

pub use host::{Host, RealHost};
pub use open::{Opened, RunsRoot, Store, StoreProblem};
pub use routes::{RoutedChild, Routes};
pub use snapshot::{Depth, Snapshot};
