//! Processes that the suite itself starts, for records that name one.
//!
//! Theory of operation. A scenario asks for one by a name, and gets names for its number and its identity. It sleeps, or
//! does what a script says, until the scenario ends it: with `reap` nothing is left, without it stays a zombie until the
//! scenario is over. All of them are children of the suite, so no number is used again before it was waited for.
//! A crash of the suite closes their standard input, at which those that only sleep end.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use crate::raw;

/// Those of one scenario, by name.
#[derive(Debug, Default)]
pub(crate) struct Helpers(BTreeMap<String, Child>);

impl Helpers {
    /// Starts one. `${name.pid}`, `${name.start}` and `${name.inode}` are then names of the scenario.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn start(
        &mut self,
        name: &str,
        script: Option<&str>,
        names: &mut BTreeMap<String, String>,
    ) -> std::io::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", script.unwrap_or("read line")]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        let pid = child.id();
        names.insert(format!("{name}.pid"), pid.to_string());
        names.insert(format!("{name}.start"), raw::start_identity(pid).unwrap_or_default());
        let inode = raw::process_inode(pid).map(|inode| inode.to_string());
        names.insert(format!("{name}.inode"), inode.unwrap_or_default());
        self.0.insert(name.to_owned(), child);
        Ok(())
    }

    /// Ends one; with `reap` nothing is left of it, else a zombie.
    pub(crate) fn end(&mut self, name: &str, reap: bool) {
        let Some(child) = self.0.get_mut(name) else { return };
        let _ = child.kill();
        if reap {
            let _ = child.wait();
            return;
        }
        // It is a zombie once the system says so.
        let path = format!("/proc/{}/stat", child.id());
        let is_zombie = || {
            std::fs::read_to_string(&path).is_ok_and(|stat| {
                stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
            })
        };
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !is_zombie() && std::time::Instant::now() < until {
            crate::process::pause();
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        for child in self.0.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
