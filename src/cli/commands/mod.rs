//! One file per verb, and what several of them need.

#[cfg(unix)]
mod acting;
#[cfg(unix)]
pub(crate) mod adapter;
#[cfg(unix)]
pub(crate) mod ask;
pub(crate) mod check;
#[cfg(unix)]
pub(crate) mod conformance;
pub(crate) mod explain;
#[cfg(unix)]
pub(crate) mod follow;
pub(crate) mod held;
pub(crate) mod inspect;
#[cfg(unix)]
pub(crate) mod launch;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod one_run;
pub(crate) mod prune;
pub(crate) mod recover;
mod recover_log;
pub(crate) mod release;
#[cfg(unix)]
pub(crate) mod resume;
pub(crate) mod roots;
#[cfg(unix)]
pub(crate) mod run;
#[cfg(unix)]
pub(crate) mod runner;
#[cfg(unix)]
pub(crate) mod shim;
pub(crate) mod spec;
pub(crate) mod sweep;
mod sweep_unit;
pub(crate) mod wait;
#[cfg(unix)]
pub(crate) mod witness;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use runstore::inspect::LookupError;
use runstore::protocol::evidence::Times;
use runstore::store::discover;
use runstore::store::{Host as _, Opened, RealHost, Store};

use super::args::CommonArgs;
use super::exit_code::Code;
use super::output::{Failure, Output};

/// The host of a command.
pub(crate) fn host(common: &CommonArgs) -> RealHost {
    match &common.host {
        Some(name) => RealHost::new().with_host_name(name),
        None => RealHost::new(),
    }
}

/// The paths to look at when none was named: the root, else the default roots that exist. `hint` says what
/// else to ask where there is none.
pub(crate) fn default_paths(
    host: &RealHost,
    root: Option<&PathBuf>,
    hint: &str,
) -> Result<Vec<PathBuf>, Failure> {
    if let Some(root) = root {
        return Ok(vec![root.clone()]);
    }
    let roots = discover::default_roots(host);
    let there: Vec<_> = roots.iter().filter(|r| r.exists).map(|r| r.path.clone()).collect();
    if there.is_empty() {
        let places: Vec<_> = roots.iter().map(|r| r.path.to_string_lossy().into_owned()).collect();
        return Err(Failure::user(Code::NOT_FOUND, "this user has no run store")
            .because(format!("none of these is a directory: {}", places.join(", ")))
            .hint(hint));
    }
    Ok(there)
}

/// The stores that a verb looks at: those that were named, else the default ones. `verb` is for the hint.
pub(crate) fn store_paths(
    host: &RealHost,
    verb: &str,
    named: &[PathBuf],
    common: &CommonArgs,
) -> Result<Vec<PathBuf>, Failure> {
    match named {
        [] => {
            let hint = format!("name a store: runstore {verb} PATH");
            default_paths(host, common.root.as_ref(), &hint)
        }
        named => Ok(named.to_vec()),
    }
}

/// Says that a path which was opened holds nothing that could be a run.
/// Spec: RS-DIAG-32.
pub(crate) fn no_run_at(host: &RealHost, path: &Path) -> Failure {
    let shown = path.display();
    if host.absolute(path).file_name().is_none() {
        return Failure::user(
            Code::USAGE,
            format!("{shown} has no name, so it is no run directory"),
        )
        .hint("name a run directory, a runs root or a store");
    }
    Failure::user(Code::NOT_FOUND, format!("there is nothing at {shown}"))
}

/// Opens a path, or says why not.
pub(crate) fn open<'h>(
    host: &'h RealHost,
    path: &Path,
    common: &CommonArgs,
) -> Result<Opened<'h, RealHost>, Failure> {
    let now_ms = common.now.unwrap_or_else(|| host.now_ms());
    open_at(host, path, now_ms, Times::from(&common.times))
}

/// Opens a path as of an instant, or says why not.
pub(crate) fn open_at<'h>(
    host: &'h RealHost,
    path: &Path,
    now_ms: i64,
    times: Times,
) -> Result<Opened<'h, RealHost>, Failure> {
    Store::open(host, path, now_ms, times).map_err(|e| not_opened(path, e))
}

/// Says why a path was not opened.
pub(crate) fn not_opened(path: &Path, e: io::Error) -> Failure {
    let shown = path.display();
    match e.kind() {
        // Nothing can be at a path that is too long to be one.
        io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename => {
            Failure::user(Code::NOT_FOUND, format!("there is nothing at {shown}"))
                .hint("for an id, say which store it is in: runstore inspect ID --root STORE")
        }
        io::ErrorKind::NotADirectory => {
            Failure::user(Code::NOT_FOUND, format!("{shown} is not a directory"))
                .hint("name a run directory, a runs root or a store")
        }
        _ => Failure::user(Code::IO, format!("{shown} cannot be opened")).because(e),
    }
}

/// Which targets are paths and which are ids. Only with `--root` can a word be an id in any case; without
/// it a word that names something from here stays a path.
pub(crate) fn split_targets(
    host: &RealHost,
    targets: &[PathBuf],
    root: Option<&PathBuf>,
) -> (Vec<PathBuf>, Vec<String>) {
    let (mut paths, mut ids) = (Vec::new(), Vec::new());
    for target in targets {
        let word = target.to_str();
        let is_path =
            word.is_none_or(|w| w.contains(std::path::is_separator) || w == "." || w == "..");
        match word.filter(|_| !is_path) {
            Some(id) if root.is_some() => ids.push(id.to_owned()),
            // Without a root a plain word is a path if it is there, else an id in the default stores.
            Some(id) if host.stat(Path::new(id)).is_err() => ids.push(id.to_owned()),
            _ => paths.push(target.clone()),
        }
    }
    (paths, ids)
}

/// Says that a path in which an id is to be looked up is no store.
pub(crate) fn not_a_store(root: &Path) -> Failure {
    let what = format!("{} is a run directory, not a store", root.display());
    Failure::user(Code::USAGE, what).hint("--root takes a whole store")
}

/// Says why an id leads nowhere. That no run has it is [`no_run_of`]'s to say.
pub(crate) fn no_lookup(e: &LookupError) -> Failure {
    let failure = Failure::user(Code::USAGE, e.to_string());
    match std::error::Error::source(e) {
        Some(cause) => failure.because(cause),
        None => failure.hint("use a longer prefix"),
    }
}

/// Says that no run has an id, and where it was looked for.
pub(crate) fn no_run_of(id: &str, root: Option<&PathBuf>, roots: &[PathBuf]) -> Failure {
    let named = root.map(|root| format!(" {}", root.display()));
    let places: Vec<_> = roots.iter().map(|r| r.to_string_lossy().into_owned()).collect();
    Failure::user(Code::NOT_FOUND, format!("no run with the id '{id}'"))
        .because(format!("looked in {}", places.join(", ")))
        .hint(format!("runstore list --all{} shows every run", named.unwrap_or_default()))
}

/// Writes one object on one line.
pub(crate) fn write_json(
    output: &mut Output,
    answer: &impl serde::Serialize,
) -> Result<(), Failure> {
    let out = output.writer();
    serde_json::to_writer(&mut *out, answer)?;
    Ok(writeln!(out)?)
}
