//! The control inbox of one run: which requests lie there, and what a runner would do with them.
//!
//! Ordered steps: look for the three single files, of which only the existence counts; list each
//! queue, bounded and in the order in which a runner takes it; read the first requests of each and
//! ask the protocol whether a runner would drop them; look for the marker that closes the queue.
//! Nothing is removed, and no text of a request is kept. Spec: RS-CTRL-*, facts §3.9.

use std::ffi::{OsStr, OsString};

use crate::protocol::control::{self, Queue};
use crate::protocol::evidence::{ControlFacts, FileFact};
use crate::protocol::{layout, limits};

use super::host::{Host, Part};
use super::read::{self, ExpectedOwner};

/// Looks at the inbox of an open run directory. Requests are only read if `reads` is set: a row of a
/// list needs their number.
/// Spec: RS-CTRL-01, RS-CTRL-02, RS-CTRL-03.
pub(super) fn facts<H: Host>(
    host: &H,
    run: &H::Dir,
    owner: ExpectedOwner,
    reads: bool,
) -> ControlFacts {
    let mut inbox = Inbox { host, owner, reads, facts: ControlFacts::default() };
    if let Ok(control) = host.open_dir_at(run, layout::CONTROL_DIR.as_ref()) {
        // Facts C-1: of these only the existence of the path matters, whatever it is.
        for name in [layout::CONTROL_INTERRUPT, layout::CONTROL_TIMEOUT, layout::CONTROL_STOP] {
            inbox.note(&control, OsStr::new(name), format!("{}/{name}", layout::CONTROL_DIR));
        }
        for (name, queue) in
            [(layout::STOP_REQUESTS_DIR, Queue::Stop), (layout::STEER_REQUESTS_DIR, Queue::Steer)]
        {
            let label = format!("{}/{name}", layout::CONTROL_DIR);
            let found = inbox.queue(&control, name, &label, queue);
            let marker = queue.closed_marker().filter(|_| found > 0);
            if let Some(marker) = marker.filter(|m| host.stat_at(&control, m.as_ref()).is_ok()) {
                inbox.facts.closed.push(marker);
            }
        }
    }
    let append = layout::APPEND_REQUESTS_DIR;
    inbox.queue(run, append, append, Queue::Append);
    inbox.facts
}

struct Inbox<'h, H: Host> {
    host: &'h H,
    owner: ExpectedOwner,
    reads: bool,
    facts: ControlFacts,
}

impl<H: Host> Inbox<'_, H> {
    fn note(&mut self, dir: &H::Dir, name: &OsStr, label: String) {
        if let Ok(stat) = self.host.stat_at(dir, name) {
            let oldest = self.facts.oldest_ms;
            self.facts.oldest_ms = Some(oldest.map_or(stat.mtime_ms, |o| o.min(stat.mtime_ms)));
            self.facts.pending.push(label);
        }
    }

    /// Notes the requests of one queue; returns how many there are.
    fn queue(&mut self, parent: &H::Dir, name: &str, label: &str, queue: Queue) -> usize {
        let Ok(dir) = self.host.open_dir_at(parent, name.as_ref()) else { return 0 };
        let names = self.names(&dir);
        for (i, name) in names.iter().enumerate() {
            let label = format!("{label}/{}", name.to_string_lossy());
            self.note(&dir, name, label.clone());
            let looked_at = self.reads && i < limits::REQUESTS_READ;
            let refusal = looked_at.then(|| self.refusal(&dir, name, queue)).flatten();
            self.facts.invalid.extend(refusal.map(|why| (label, why)));
        }
        names.len()
    }

    fn refusal(&self, dir: &H::Dir, name: &OsStr, queue: Queue) -> Option<String> {
        let part = Part::All(control::REQUEST_MAX_BYTES);
        match read::bytes::<H, ()>(self.host, dir, name.to_str()?, part, self.owner) {
            Ok(read) => queue.refusal(&read.bytes).map(|error| error.to_string()),
            Err(FileFact::Damaged(error, _)) => Some(error.to_string()),
            Err(FileFact::Unsafe(what)) => Some(format!("it is {what}")),
            // Taken up meanwhile, or not readable by this user: nothing is known of it.
            Err(_) => None,
        }
    }

    /// Names of request files in a queue, sorted and bounded.
    fn names(&self, dir: &H::Dir) -> Vec<OsString> {
        let (mut names, _) = read::listed(self.host, dir, limits::REQUESTS_LISTED, |entry| {
            let name = entry.name.to_string_lossy();
            (name.ends_with(".json") && !name.starts_with('.')).then_some(entry.name)
        });
        names.sort_unstable();
        names
    }
}
