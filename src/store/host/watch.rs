//! Sleeping until something may have changed: the fourth part of the door.
//!
//! Theory of operation. Whoever waits for what others do (a message, a status, the end of a process) owns a
//! [`WatchHost::Watch`]: a set of directories and processes, each under a number of the caller's choice. One
//! [`WatchHost::pause`] sleeps over all of them, and says under which numbers something happened, or nothing
//! when the time was over. What happens is never believed: it is a reason to look, and the look decides. So
//! a number too many costs a look, and one that is lost costs the rest of the pause; the caller chooses the
//! pause as if nothing could be watched.
//!
//! Ordered steps of a wait:
//! 1. add what is to be watched;
//! 2. look. After step 1, because what happens between a look and a later step 1 would wake nobody;
//! 3. pause, and go on with step 2.
//!
//! Where the system does not tell (no instance is left to this user, no such call, no `/proc`), a pause is a
//! plain one, and [`WatchHost::watch_dir`] says so.
//!
//! Reads only, and no signal is sent; so a crash leaves nothing. Not promised: that a change by another
//! machine on a shared file system wakes anybody. Spec: RS-OBS-20, RS-OBS-21, RS-OBS-22.

use super::Host;
use crate::protocol::process::RecordedProcess;

/// Sleeping until something may have changed. See the module's text.
pub trait WatchHost: Host {
    /// What ends a pause.
    type Watch: Send;

    /// A watch with nothing in it. It can be had also where nothing can be watched.
    fn watch(&self) -> Self::Watch;

    /// Lets a pause end when a file was renamed into a directory, or the directory itself is moved or
    /// removed. Names of temp files do not count. `false`: the system does not tell, so only the time ends a
    /// pause.
    /// Spec: RS-OBS-20.
    fn watch_dir(&self, watch: &mut Self::Watch, dir: &Self::Dir, number: usize) -> bool;

    /// Lets a pause end when the recorded process ends; once, because it ends once. The process is held
    /// first and compared with the record through the handle. `false`: it is not there, it is another one,
    /// or the system gives no handles.
    /// Spec: RS-OBS-20.
    fn watch_process(
        &self,
        watch: &mut Self::Watch,
        record: &RecordedProcess<'_>,
        number: usize,
    ) -> bool;

    /// Sleeps until something happened, and says under which numbers, each once and in order; under none
    /// when so many ms are over first.
    /// Spec: RS-OBS-21.
    fn pause(&self, watch: &mut Self::Watch, ms: u64) -> Vec<usize>;
}
