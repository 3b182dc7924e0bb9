//! What of one run can wake a wait: its directory and its process.
//!
//! Theory of operation. A wait for a run sleeps until a file of it was renamed or its runner has ended. Both are
//! asked for here, through the open directory of the runs root and the record that was just read, so that a path
//! or number that leads elsewhere by now wakes nobody. What is true of the run is
//! [`Store::snapshot`]'s to say.
//!
//! Reads only; a crash leaves nothing. Spec: RS-OBS-20, RS-OBS-25.

use std::ffi::OsStr;

use crate::protocol::process::Liveness;
use crate::protocol::status::StatusView;

use super::host::{Host, WatchHost};
use super::open::{RunsRoot, Store};
use super::{identity, observer_record};

impl<H: Host> Store<'_, H> {
    /// Whether an observer of this library is at a run and alive, so that a proof will still come.
    /// Spec: RS-OBS-25.
    pub fn is_attended(&self, runs: &RunsRoot<H>, name: &OsStr) -> bool {
        let Ok(dir) = self.host.open_dir_at(&runs.dir, name) else { return false };
        let Ok(Some(observer)) = observer_record::read(self.host, &dir) else { return false };
        let recorded = observer.process.told_at(observer.since_ms);
        name.to_str() == Some(&observer.run_id)
            && identity::judge(self.host, &recorded).word == Liveness::Live
    }
}

impl<H: WatchHost> Store<'_, H> {
    /// Lets what happens in a run directory end a pause. `false`: nothing tells.
    pub fn watch_run(
        &self,
        runs: &RunsRoot<H>,
        name: &OsStr,
        watch: &mut H::Watch,
        number: usize,
    ) -> bool {
        let dir = self.host.open_dir_at(&runs.dir, name);
        dir.is_ok_and(|dir| self.host.watch_dir(watch, &dir, number))
    }

    /// Lets the end of the process that a status names end a pause. `false`: it is not there any more, or
    /// nothing tells.
    pub fn watch_runner(&self, status: &StatusView, watch: &mut H::Watch, number: usize) -> bool {
        self.host.watch_process(watch, &status.process(), number)
    }
}
