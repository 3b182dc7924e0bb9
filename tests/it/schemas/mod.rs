//! The hand-written schemas of `spec/schemas` against the code that reads and writes such documents.
//!
//! Theory of operation. Neither is made from the other, so each is held to the other from both sides:
//! `documents` hands recorded files to both and compares what they accept, `answers` hands what the
//! program prints to the schema of its output, `written` holds what the library writes to the closed
//! schemas of `spec/schemas/writer-v1`, `stricter` shows that these refuse more, `words` compares lists of words and members. What
//! the two judge differently on purpose is listed with the reason, and the lists are exact.

mod answers;
pub(crate) mod documents;
mod stricter;
mod words;
mod worked;
pub(crate) mod written;

use std::path::{Path, PathBuf};

use testkit::schema::Schemas;

/// A path of this repository.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The schemas of what a reader has to bear.
pub(crate) fn schemas() -> Schemas {
    Schemas::load(&here("spec/schemas/v1")).expect("the schemas are of known keywords")
}

/// The schemas of what the library writes.
pub(crate) fn writers() -> Schemas {
    Schemas::load(&here("spec/schemas/writer-v1")).expect("the schemas are of known keywords")
}
