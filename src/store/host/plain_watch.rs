//! Watching where the system has no such thing that can be had here: a pause is over when its time is.
//!
//! Spec: RS-OBS-21.
#![expect(clippy::disallowed_methods, reason = "this is the host: the one home of waiting")]

use super::RealHost;
use super::watch::WatchHost;
use crate::protocol::process::RecordedProcess;

impl WatchHost for RealHost {
    type Watch = ();

    fn watch(&self) {}

    fn watch_dir(&self, _watch: &mut (), _dir: &Self::Dir, _number: usize) -> bool {
        false
    }

    fn watch_process(
        &self,
        _watch: &mut (),
        _record: &RecordedProcess<'_>,
        _number: usize,
    ) -> bool {
        false
    }

    fn pause(&self, _watch: &mut (), ms: u64) -> Vec<usize> {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        Vec::new()
    }
}
