//! An action in the making: exact changes, in the order in which they are made.
//!
//! Theory of operation. A [`Draft`] looks at each file that it is about to change and notes what was there,
//! so that the change can tell later whether it still is. What needs no change adds none; a directory that
//! is missing on the way becomes a change of its own, so that taking the action back leaves no trace.
//!
//! The orders are those of the writers of the protocol: a result before the status, because a run that says
//! it has ended has a result; the pending payload before the index, the index before the public name; the
//! status before the indexes, which follow it; the terminal marker before the active one goes, or a listing
//! would show the run nowhere in between; the event last. Facts, S-90, X-4.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::protocol::error::with_causes;
use crate::protocol::ids::RunId;
use crate::protocol::{Document, layout, limits};
use crate::store::host::{FileKind, Host, Part, Stat};
use crate::store::{directory, markers, publish};

use super::change::{Before, Change, ChangeError, Moved};
use super::place;
use super::plan::Requirement;

/// See the module's text.
pub(super) struct Draft<'a, H: Host> {
    host: &'a H,
    root: &'a H::Dir,
    changes: Vec<Change>,
    made: HashSet<String>,
    requires: Vec<Requirement>,
}

/// A file that was read.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) stat: Stat,
}

/// What is seen of a name that leads nowhere.
const ABSENT: &str = "absent";

/// What is seen of a file whose content is relied on.
fn content(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// What is seen of a file that is relied on as it lies there.
fn file(stat: &Stat) -> String {
    format!("file:{}:{}:{}", stat.id.0, stat.id.1, stat.bytes)
}

impl Requirement {
    /// What is seen now in the same way.
    ///
    /// # Errors
    /// [`ChangeError`].
    /// Spec: RS-REC-18, RS-REC-21.
    pub(super) fn seen_now<H: Host>(&self, host: &H, root: &H::Dir) -> Result<String, ChangeError> {
        match place::stat(host, root, &self.path)? {
            None => Ok(ABSENT.to_owned()),
            Some(stat) if self.seen.starts_with("file:") => Ok(file(&stat)),
            Some(_) => {
                let whole = Part::All(limits::RESULT_MAX_BYTES);
                let found = place::read(host, root, &self.path, whole)?;
                Ok(found.map_or_else(|| ABSENT.to_owned(), |(bytes, _)| content(&bytes)))
            }
        }
    }
}

/// Reads a file of the protocol; `None` when it is not there.
pub(super) fn text<H: Host>(
    host: &H,
    root: &H::Dir,
    path: &str,
) -> Result<Option<Text>, ChangeError> {
    let part = Part::All(limits::RESULT_MAX_BYTES);
    let Some((bytes, stat)) = place::read(host, root, path, part)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(Text { text, stat })),
        Err(_) => Err(ChangeError::changed(path, "it is not text")),
    }
}

impl<'a, H: Host> Draft<'a, H> {
    pub(super) fn new(host: &'a H, root: &'a H::Dir) -> Self {
        Self { host, root, changes: Vec::new(), made: HashSet::new(), requires: Vec::new() }
    }

    /// The changes, and what they rely on.
    pub(super) fn finish(self) -> (Vec<Change>, Vec<Requirement>) {
        (self.changes, self.requires)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Notes that the action relies on a file being as it is.
    pub(super) fn rely_on(&mut self, path: &str, found: Option<&[u8]>) {
        self.require(path, found.map_or_else(|| ABSENT.to_owned(), content));
    }

    fn require(&mut self, path: &str, seen: String) {
        if self.requires.iter().all(|known| known.path != path) {
            self.requires.push(Requirement { path: path.to_owned(), seen });
        }
    }

    /// Makes the directories on the way to a path.
    fn way_to(&mut self, path: &str) -> Result<(), ChangeError> {
        for (at, _) in path.match_indices('/') {
            let dir = &path[..at];
            if self.made.contains(dir) {
                continue;
            }
            if place::stat(self.host, self.root, dir)?.is_none() {
                self.changes.push(Change::MakeDir { path: dir.to_owned() });
            }
            self.made.insert(dir.to_owned());
        }
        Ok(())
    }

    /// Makes or replaces a file.
    pub(super) fn write(&mut self, path: &str, after: String) -> Result<(), ChangeError> {
        let there = text(self.host, self.root, path)?;
        self.rely_on(path, there.as_ref().map(|found| found.text.as_bytes()));
        if there.as_ref().is_some_and(|found| found.text == after) {
            return Ok(());
        }
        self.way_to(path)?;
        let before = there.map(|Text { text, stat }| Before { text, mode: stat.mode });
        self.changes.push(Change::Write { path: path.to_owned(), before, after });
        Ok(())
    }

    /// Appends lines to a log. A log at its bound gets none: moving it aside is its writers' business.
    pub(super) fn append(&mut self, path: &str, lines: &[String]) -> Result<(), ChangeError> {
        let tail = place::read(self.host, self.root, path, Part::Tail(1))?;
        let (before_bytes, is_torn) = match &tail {
            None => (None, false),
            Some((last, stat)) => (Some(stat.bytes), last.last().is_some_and(|b| *b != b'\n')),
        };
        let mut added = String::new();
        // As every appender does: only the torn line is lost then.
        if is_torn {
            added.push('\n');
        }
        for line in lines {
            added.push_str(line);
            added.push('\n');
        }
        let linked = tail.is_some_and(|(_, stat)| stat.links > 1);
        let total = before_bytes.unwrap_or(0) + added.len() as u64;
        if !lines.is_empty() && !linked && total < limits::EVENTS_MAX_BYTES {
            self.changes.push(Change::Append { path: path.to_owned(), before_bytes, added });
        }
        Ok(())
    }

    /// Moves a plain file to a name that is free; to the directory of the repair when `to` is empty. Says
    /// whether it was there.
    pub(super) fn shift(&mut self, path: &str, to: &str) -> Result<bool, ChangeError> {
        let Some(stat) = place::stat(self.host, self.root, path)? else { return Ok(false) };
        if stat.kind != FileKind::Regular {
            return Err(ChangeError::changed(path, format!("it is {}", stat.kind.name())));
        }
        self.require(path, file(&stat));
        let what = Moved::There(stat.id.0, stat.id.1, stat.bytes);
        let (path, to) = (path.to_owned(), to.to_owned());
        self.changes.push(Change::Move { path, to, what });
        Ok(true)
    }

    /// Publishes a result: pending, indexes, public.
    pub(super) fn publish(
        &mut self,
        results: &str,
        run: &RunId,
        payload: &str,
        now_ms: i64,
    ) -> Result<(), ChangeError> {
        let files = files(results, run, payload, now_ms)?;
        let below = |path: &str| format!("{results}/{path}");
        let (pending, public) = (below(&files.pending), below(&files.public));
        // RS-REC-05: its own one would have been followed.
        if place::stat(self.host, self.root, &public)?.is_some() {
            let why = "it stands in the place of the result, and is of another run";
            return Err(ChangeError::changed(&public, why));
        }
        self.write(&pending, payload.to_owned())?;
        for entry in &files.entries {
            self.write(&below(entry), files.entry.clone())?;
        }
        self.rely_on(&public, None);
        let what = Moved::Made(payload.to_owned());
        self.changes.push(Change::Move { path: pending, to: public, what });
        Ok(())
    }

    /// Makes a result that is pending, or public without an index entry, found and public. Entries that are
    /// there and valid stay.
    pub(super) fn promote(
        &mut self,
        results: &str,
        run: &RunId,
        (path, payload): (&str, &str),
        now_ms: i64,
    ) -> Result<(), ChangeError> {
        let files = files(results, run, payload, now_ms)?;
        let public = format!("{results}/{}", files.public);
        // The entry of the session is what its lookup begins at; the others are short cuts.
        let of_session = files.entries.first().map(|entry| format!("{results}/{entry}"));
        let is_listed = match &of_session {
            Some(entry) => place::stat(self.host, self.root, entry)?.is_some(),
            None => true,
        };
        if path == public && is_listed {
            return Ok(());
        }
        for entry in &files.entries {
            let entry = format!("{results}/{entry}");
            if place::stat(self.host, self.root, &entry)?.is_none() {
                self.write(&entry, files.entry.clone())?;
            }
        }
        if path == public {
            return Ok(());
        }
        if place::stat(self.host, self.root, &public)?.is_some() {
            // A pending payload is newer than a public one (facts S-91); the older one is kept aside.
            self.shift(&public, "")?;
        }
        self.way_to(&public)?;
        self.shift(path, &public)?;
        Ok(())
    }

    /// Brings the indexes in step with the status of a run that has ended: `status` is its text.
    pub(super) fn index(
        &mut self,
        runs: &str,
        run: &RunId,
        status: &str,
    ) -> Result<(), ChangeError> {
        self.index_terminal(runs, run, status)?;
        self.release(runs, run)
    }

    /// Adds the terminal marker, where the status asks for one that is not there.
    pub(super) fn index_terminal(
        &mut self,
        runs: &str,
        run: &RunId,
        status: &str,
    ) -> Result<(), ChangeError> {
        let doc = Document::parse(status).ok();
        let Some(file) = doc.and_then(|doc| markers::terminal_file(&doc, run)) else {
            return Ok(());
        };
        let path =
            below(runs, &format!("{}/{}/{}", layout::TERMINAL_INDEX, file.segment, file.name));
        // A name that is too long for a file is a run that no terminal index can hold (facts X-20).
        if file.name.len() > limits::NAME_MAX_BYTES {
            return Ok(());
        }
        self.write(&path, file.text)
    }

    /// Takes a run out of the active index, and out of every directory of aliases (facts X-4): the status need not
    /// name the tool call.
    pub(super) fn release(&mut self, runs: &str, run: &RunId) -> Result<(), ChangeError> {
        let index = below(runs, layout::ACTIVE_INDEX);
        self.shift(&format!("{index}/{run}"), "")?;
        let calls = format!("{index}/{}", layout::TOOL_CALLS_DIR);
        let parts: Vec<&str> = calls.split('/').collect();
        let opened = directory::open_path(self.host, self.root, &parts).ok().flatten();
        // Aliases are short cuts: where they cannot be listed, they stay.
        let names = opened.map(|dir| markers::aliases_of(self.host, &dir, run));
        for name in names.and_then(Result::ok).unwrap_or_default() {
            let dir = format!("{calls}/{name}");
            if self.shift(&format!("{dir}/{run}"), "")? {
                let mode = place::stat(self.host, self.root, &dir)?.map_or(0o700, |s| s.mode);
                self.changes.push(Change::RemoveDir { path: dir, mode });
            }
        }
        Ok(())
    }

    /// Frees a slot.
    pub(super) fn free_slot(&mut self, path: &str) -> Result<(), ChangeError> {
        let claim = text(self.host, self.root, &format!("{path}/{}", layout::SLOT_CLAIM))?;
        if let Some(Text { text: owner, .. }) = self.owner(path)? {
            let claim = claim.map(|found| found.text);
            let (path, to) = (path.to_owned(), String::new());
            self.changes.push(Change::FreeSlot { path, to, owner, claim });
        }
        Ok(())
    }

    /// Sets a lease aside.
    pub(super) fn free_lease(&mut self, path: &str, to: String) -> Result<(), ChangeError> {
        if let Some(Text { text: owner, .. }) = self.owner(path)? {
            self.changes.push(Change::FreeLease { path: path.to_owned(), to, owner });
        }
        Ok(())
    }

    fn owner(&mut self, path: &str) -> Result<Option<Text>, ChangeError> {
        let record = format!("{path}/{}", layout::OWNER);
        let there = text(self.host, self.root, &record)?;
        self.rely_on(&record, there.as_ref().map(|found| found.text.as_bytes()));
        Ok(there)
    }
}

fn files(
    results: &str,
    run: &RunId,
    payload: &str,
    now_ms: i64,
) -> Result<publish::ResultFiles, ChangeError> {
    publish::files(&format!("{run}.json"), payload, now_ms)
        .map_err(|e| ChangeError::changed(&format!("{results}/{run}.json"), with_causes(&e)))
}

/// Where the pending payload of a run is looked for, below the root.
pub(super) fn pending_path(results: &str, run: &RunId, payload: &str) -> Option<String> {
    let files = publish::files(&format!("{run}.json"), payload, 0).ok()?;
    Some(format!("{results}/{}", files.pending))
}

/// A path below a directory that may be the root itself.
pub(super) fn below(dir: &str, path: &str) -> String {
    if dir.is_empty() { path.to_owned() } else { format!("{dir}/{path}") }
}
