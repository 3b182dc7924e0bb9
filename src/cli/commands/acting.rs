//! What a verb that writes to one run needs: its open directories, and what is known of the runs around it.
//!
//! Theory of operation. The root is opened by its path and refused where others control it; from there on
//! everything is opened by handles, and no link is followed on the way. Reads only, itself.
//! Spec: RS-ATOM-12.

use std::io::{self, Write as _};

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::store::{Depth, Host as _, Opened, RealHost, Snapshot, directory};

use super::one_run::{Dir, OneRun, open};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};

/// The open directories around a run.
pub(crate) struct Place {
    /// The temp root, where there is one.
    pub(crate) temp: Option<Dir>,
    /// The runs root.
    pub(crate) runs: Dir,
    /// The run directory.
    pub(crate) run: Dir,
}

impl OneRun {
    /// What is true of it now, with what is known of every other run of its store: which of them record the
    /// same process. Reads the whole active index.
    pub(crate) fn look_around(&self, host: &RealHost) -> Result<(Snapshot, RunReport), Failure> {
        let Some(temp) = &self.temp else { return self.look(host) };
        let Opened::Store(store) = open(host, temp)? else { return self.look(host) };
        let root = store.runs_roots.iter().position(|runs| runs.path == self.runs.0);
        let Some(root) = root else { return self.look(host) };
        let found = Inspection::new(&store, Depth::Full).one(root, &self.name, None);
        found.ok_or_else(|| super::no_run_at(host, &self.path))
    }

    /// Its id.
    pub(crate) fn id(&self) -> Result<RunId, Failure> {
        let name = self.name.to_string_lossy();
        RunId::parse(&name).map_err(|e| {
            Failure::user(Code::DAMAGED, format!("'{name}' cannot be a run id"))
                .because(with_causes(&e))
        })
    }

    /// Opens its directories, for whoever may write there.
    pub(crate) fn open(&self, host: &RealHost) -> Result<Place, Failure> {
        let unsafe_root = |e: io::Error| {
            let code = match e.kind() {
                io::ErrorKind::PermissionDenied => Code::DAMAGED,
                _ => Code::IO,
            };
            Failure::user(code, "the store cannot be written to").because(e)
        };
        let failed = |e: io::Error| self.not_opened(&e);
        let (temp, runs) = match &self.temp {
            None => (None, directory::open_root(host, &self.runs.0).map_err(unsafe_root)?),
            Some(temp) => {
                let temp = directory::open_root(host, temp).map_err(unsafe_root)?;
                let names: Vec<&str> = self.runs.1.split('/').collect();
                let runs = directory::open_path(host, &temp, &names).map_err(failed)?;
                let runs = runs.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
                (Some(temp), runs)
            }
        };
        let run = host.open_dir_at(&runs, &self.name).map_err(failed)?;
        Ok(Place { temp, runs, run })
    }
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
