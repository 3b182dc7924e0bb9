//! Fan-out budgets on the disk: made once for a tree of runs, checked by every launch in it.
//!
//! Ordered steps of [`create`]: the directory of budgets, a new directory, its `claims`, each durable; the manifest
//! last, durable. A directory without a manifest is no budget, so nobody spends of one that is half made.
//!
//! [`check`] enters the directory by its name below the temp root, by handle, and compares the manifest. It writes
//! nothing.
//!
//! What a crash leaves: a directory that nobody refers to. Not promised: that anybody keeps to a budget; that
//! is the business of those who launch. Spec: RS-START-90, RS-START-91; facts K-40.

use std::fmt;
use std::io;
use std::path::Path;

use crate::protocol::budget::{self, BudgetRef, Manifest};
use crate::protocol::{DecodeError, Document, layout, limits};

use super::atomic::{self, Durability, Options, Target, WriteError};
use super::directory;
use super::host::{Host, Part, ReadError, WriteHost};
use super::identity;
use super::retry::RetryPolicy;

/// Why a budget cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum BudgetError {
    /// What was asked for is no budget, or a record is none.
    Invalid(DecodeError),
    /// There is no such budget.
    Absent,
    /// Something else stands in its place, or its manifest is of another tree or limit; what.
    Foreign(String),
    /// The system does not let it be looked at.
    Io(io::Error),
    /// It could not be made.
    Write(WriteError),
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(_) => f.write_str("this is no fan-out budget"),
            Self::Absent => f.write_str("the fan-out budget is not there"),
            Self::Foreign(what) => write!(f, "the fan-out budget is not taken: {what}"),
            Self::Io(_) => f.write_str("the fan-out budget cannot be looked at"),
            Self::Write(_) => f.write_str("the fan-out budget could not be made"),
        }
    }
}

impl std::error::Error for BudgetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(e) => Some(e),
            Self::Io(e) => Some(e),
            Self::Write(e) => Some(e),
            Self::Absent | Self::Foreign(_) => None,
        }
    }
}

/// Makes the budget of a tree of runs. `temp_path` is the path of the temp root, absolute.
/// Spec: RS-START-90.
///
/// # Errors
/// [`BudgetError`]; a directory may be there then, to which nobody refers.
pub fn create<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    temp_path: &Path,
    root_run_id: &str,
    limit: u32,
) -> Result<BudgetRef, BudgetError> {
    if limit == 0 || root_run_id.is_empty() {
        let (member, expected) = match limit {
            0 => ("limit", "a whole number above 0"),
            _ => ("rootRunId", "a non-empty string"),
        };
        return Err(BudgetError::Invalid(DecodeError::member(member, expected)));
    }
    let name = budget::dir_name(root_run_id, &identity::instance_id(host));
    let retry = RetryPolicy::default();
    let parts = [layout::FANOUT_BUDGETS_DIR, &name, budget::CLAIMS_DIR];
    directory::create_path(host, temp, &parts, &retry).map_err(BudgetError::Write)?;
    let dir = directory::open_path(host, temp, &parts[..2]).map_err(BudgetError::Io)?;
    let dir = dir.ok_or(BudgetError::Absent)?;
    let root_run_id = root_run_id.to_owned();
    let manifest =
        Manifest { root_run_id: root_run_id.clone(), limit, created_at_ms: host.now_ms() };
    let options = Options::new(Durability::Durable).target(Target::New);
    atomic::replace(host, &dir, budget::MANIFEST_FILE, manifest.text().as_bytes(), &options)
        .map_err(BudgetError::Write)?;
    let directory = temp_path.join(layout::FANOUT_BUDGETS_DIR).join(&name);
    let directory = directory.to_string_lossy().into_owned();
    Ok(BudgetRef { root_run_id, directory, limit, parent_path: None })
}

/// Checks a reference against the budget that it names.
/// Spec: RS-START-91.
///
/// # Errors
/// [`BudgetError`].
pub fn check<H: Host>(host: &H, temp: &H::Dir, named: &BudgetRef) -> Result<(), BudgetError> {
    let elsewhere =
        || DecodeError::member("runFanoutBudget.directory", "a directory of the budgets");
    let name = named.name().ok_or_else(|| BudgetError::Invalid(elsewhere()))?;
    let dir = directory::open_path(host, temp, &[layout::FANOUT_BUDGETS_DIR, name]);
    let dir = dir.map_err(BudgetError::Io)?.ok_or(BudgetError::Absent)?;
    let foreign = |what: String| Err(BudgetError::Foreign(format!("manifest.json {what}")));
    let part = Part::All(limits::SIDECAR_MAX_BYTES);
    match host.read_at(&dir, budget::MANIFEST_FILE.as_ref(), part) {
        Ok(found) => {
            match Document::from_bytes(&found.bytes).and_then(|doc| Manifest::read(&doc)) {
                Ok(manifest) if named.agrees(&manifest) => Ok(()),
                Ok(_) => foreign("is of another tree or limit".to_owned()),
                Err(e) => foreign(format!("is none: {e}")),
            }
        }
        Err(ReadError::Absent) => Err(BudgetError::Absent),
        Err(ReadError::NotPlain(kind)) => foreign(format!("is {}", kind.name())),
        Err(ReadError::TooLarge { .. }) => foreign("is too large".to_owned()),
        Err(ReadError::Io(e)) => Err(BudgetError::Io(e)),
    }
}
