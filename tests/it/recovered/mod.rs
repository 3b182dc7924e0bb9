//! Crash recovery: what is left of a run is finished or closed, and that can be taken back.
//!
//! Theory of operation. Stores are made in three ways: by processes of ours that are killed between two effects
//! (`rig`, `rows`, `windows`, `matrix`, `interrupted`), by hand in the way of a peer (`table`, `vectors`), and from
//! what was recorded (`recorded`). Each is taken through one whole recovery and back (`prove`), and judged in
//! between (`after`). `race` has two who write.

mod after;
mod interrupted;
mod matrix;
pub(crate) mod prove;
mod race;
mod recorded;
pub(crate) mod rig;
mod rows;
mod table;
mod vectors;
mod windows;
