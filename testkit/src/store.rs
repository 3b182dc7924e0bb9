//! A builder of run stores.
//!
//! Theory of operation. [`Store::new`] owns an empty temp root; every method adds one file or directory
//! at once, with plain writes, so the tree is at any time what the calls so far say. Nothing is
//! checked: a builder that refused a broken store could not serve tests about broken stores. What
//! cannot be written panics with the path, because a test could do nothing else about it.
//!
//! Not promised: realistic times. Files have the time of the call unless [`Run::modified`] says
//! otherwise.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tree;

/// A temp root under construction, removed when dropped.
#[derive(Debug)]
pub struct Store {
    dir: TempDir,
    root: PathBuf,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// An empty store with its runs root and nothing else.
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// An empty store on a file system in memory, where this machine has one: for tests that write
    /// thousands of files and would wait for a disk.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if tempfile::tempdir_in(memory).is_ok() { Self::below(memory) } else { Self::new() }
    }

    fn below(place: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("store-").tempdir_in(place);
        let dir = dir.expect("a temporary directory");
        // The real path, because reports name real paths and macOS keeps its temp directory behind a
        // link.
        let root = fs::canonicalize(dir.path()).expect("exists").join("root");
        let store = Self { dir, root };
        store.folder("async-subagent-runs");
        fs::set_permissions(&store.root, Permissions::from_mode(0o700)).expect("is ours");
        store
    }

    /// The temp root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A directory beside the root that is not part of the store: a home, a place for outputs.
    pub fn beside(&self, name: &str) -> PathBuf {
        let path = self.root.parent().expect("the root lies in the temporary directory").join(name);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Makes a directory below the root, with its parents.
    pub fn folder(&self, relative: &str) -> PathBuf {
        let path = self.root.join(relative);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Writes a file below the root, making its directory.
    pub fn file(&self, relative: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        write(&self.root.join(relative), bytes.as_ref())
    }

    /// A run directory below the runs root.
    pub fn run(&self, id: &str) -> Run {
        Run::at(self.folder(&format!("async-subagent-runs/{id}")))
    }

    /// The directory of a nested run below that of its root run.
    pub fn nested_run(&self, root_id: &str, id: &str) -> Run {
        Run::at(self.folder(&format!("nested-subagent-runs/{root_id}/{id}")))
    }

    /// An active marker: an empty file with the run's name.
    pub fn active_marker(&self, id: &str) -> &Self {
        self.file(&format!("async-subagent-runs/.active-runs/{id}"), "");
        self
    }

    /// A tool-call alias of an active run. `segment` is the encoded tool-call id.
    pub fn tool_call_alias(&self, segment: &str, id: &str) -> &Self {
        self.file(&format!("async-subagent-runs/.active-runs/tool-calls/{segment}/{id}"), "");
        self
    }

    /// A terminal marker of a run. `session` and `id` must be their own segments.
    pub fn terminal_marker(&self, session: &str, id: &str, ended_at_ms: u64) -> &Self {
        let content =
            json!({"version": 1, "runId": id, "sessionId": session, "endedAt": ended_at_ms});
        let name = format!("{ended_at_ms:016}-{id}.json");
        let path = format!("async-subagent-runs/.terminal-runs/{session}/{name}");
        self.file(&path, content.to_string());
        self
    }

    /// An undelivered public result.
    pub fn result(&self, id: &str, result: &Value) -> &Self {
        self.file(&format!("async-subagent-results/{id}.json"), pretty(result));
        self
    }

    /// The owner record of a capacity slot.
    pub fn slot(&self, pool: &str, number: u32, owner: &Value) -> &Self {
        let path = format!("session-active-async-capacity/{pool}/slot-{number}/owner.json");
        self.file(&path, pretty(owner));
        self
    }

    /// The owner record of a session lease. `key` is the name of the lease's directory.
    pub fn lease(&self, key: &str, owner: &Value) -> &Self {
        self.file(&format!("session-leases/{key}/owner.json"), pretty(owner));
        self
    }

    /// Gives the whole tree to a user, and a copy of `program` that this user may run. Only root can.
    pub fn open_to(&self, uid: u32, program: &Path) -> PathBuf {
        let top = self.root.parent().expect("the root lies in the temporary directory");
        for path in tree::walk(&self.root).expect("the tree is ours") {
            std::os::unix::fs::lchown(&path, Some(uid), Some(uid))
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        fs::set_permissions(top, Permissions::from_mode(0o755)).expect("is ours");
        crate::process::for_everybody(program, top)
            .unwrap_or_else(|e| panic!("{}: {e}", program.display()))
    }

    /// Leaves the tree in place after the test and says where it is, for looking at a failure.
    pub fn keep(mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.root.clone()
    }
}

/// One run directory under construction.
#[derive(Clone, Debug)]
pub struct Run {
    dir: PathBuf,
}

impl Run {
    /// Builds in a directory that exists.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The run directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes `status.json`.
    pub fn status(&self, status: &Value) -> &Self {
        self.json("status.json", status)
    }

    /// Writes `process-terminal.json`.
    pub fn proof(&self, proof: &Value) -> &Self {
        self.json("process-terminal.json", proof)
    }

    /// Writes `process-terminal-candidate.json`.
    pub fn candidate(&self, candidate: &Value) -> &Self {
        self.json("process-terminal-candidate.json", candidate)
    }

    /// Writes `runner-startup.json`.
    pub fn startup(&self, message: &Value) -> &Self {
        self.json("runner-startup.json", message)
    }

    /// Writes the launcher's message `action` (`ack`, `confirm` or `proceed`) to its own file.
    pub fn control(&self, action: &str, token: &str) -> &Self {
        let message = json!({"action": action, "token": token});
        self.json(&format!("runner-startup-{action}.json"), &message)
    }

    /// Appends one line to `events.jsonl`.
    pub fn event(&self, event: &Value) -> &Self {
        self.event_text(format!("{event}\n"))
    }

    /// Appends bytes to `events.jsonl` as they are: a torn line, for one.
    pub fn event_text(&self, text: impl AsRef<[u8]>) -> &Self {
        let path = self.dir.join("events.jsonl");
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_ref()))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Writes a JSON file.
    pub fn json(&self, name: &str, value: &Value) -> &Self {
        self.file(name, pretty(value))
    }

    /// Writes any file, making its directory.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        write(&self.dir.join(name), bytes.as_ref());
        self
    }

    /// Makes a directory inside the run.
    pub fn folder(&self, name: &str) -> &Self {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Makes a symbolic link inside the run.
    pub fn link(&self, name: &str, to: impl AsRef<Path>) -> &Self {
        let path = self.dir.join(name);
        std::os::unix::fs::symlink(to, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Sets the permission bits of a file; the empty name is the run directory.
    pub fn mode(&self, name: &str, mode: u32) -> &Self {
        let path = self.dir.join(name);
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Sets the modification time of a file; the empty name is the run directory.
    pub fn modified(&self, name: &str, at_ms: u64) -> &Self {
        let path = self.dir.join(name);
        tree::set_time_ms(&path, at_ms).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("a value without maps of other keys prints")
}

fn write(path: &Path, bytes: &[u8]) -> PathBuf {
    let parent = path.parent().expect("a file lies in a directory");
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, bytes))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_store_has_the_files_that_were_asked_for() {
        let store = Store::new();
        let run = store.run("r1");
        run.status(&json!({"runId": "r1"})).event(&json!({"ts": 1})).event_text("{\"ts\":");
        run.control("ack", "t").mode("status.json", 0o600).modified("", 1_790_000_000_000);
        store.active_marker("r1").terminal_marker("s", "r0", 5);
        let tree = tree::snapshot(store.root()).expect("seen");
        let runs = "async-subagent-runs";
        assert_eq!(tree[&format!("{runs}/r1/status.json")].mode & 0o777, 0o600);
        assert_eq!(tree[&format!("{runs}/r1")].mtime_ns, 1_790_000_000_000_000_000);
        assert!(tree.contains_key(&format!("{runs}/.terminal-runs/s/0000000000000005-r0.json")));
        let log = fs::read_to_string(run.path().join("events.jsonl")).expect("written");
        assert_eq!(log, "{\"ts\":1}\n{\"ts\":", "events are appended as they are");
    }
}
