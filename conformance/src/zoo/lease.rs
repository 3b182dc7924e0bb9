//! The session lease of the faulty runner.
//!
//! Theory of operation. A lease is built whole under another name and gets its own by a rename (RS-LEASE-10). One that
//! is there is taken back only if its owner is demonstrably gone (RS-LEASE-02), by a rename to its tombstone
//! (RS-LEASE-13). It is given back by a rename to a private name and a deletion after that (RS-LEASE-16).

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Stop, Zoo};
use crate::raw;

/// A lease that is held.
pub(super) struct Lease {
    pub(super) path: PathBuf,
    pub(super) token: String,
    pub(super) session_file: String,
    pub(super) owner: Value,
}

fn is_gone(pid: Option<i64>) -> bool {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        matches!(rustix::process::test_kill_process(pid), Err(e) if e == rustix::io::Errno::SRCH)
    })
}

impl Zoo {
    /// Takes the lease of a session file.
    pub(super) fn take_lease(&self, session_file: &str, source: &str) -> Result<Lease, Stop> {
        let failed = |what: &str| Stop::Failed(format!("the session {what}: {session_file}"));
        let real = if self.is("lease-of-nothing") {
            fs::canonicalize(session_file).unwrap_or_else(|_| PathBuf::from(session_file))
        } else {
            fs::canonicalize(session_file).map_err(|_| failed("file is not there"))?
        };
        let leases = self.root().join("session-leases");
        self.make_dir(&leases)?;
        let name = raw::sha256(real.as_os_str().as_encoded_bytes());
        let name = if self.is("lease-misnamed") { raw::sha256(name.as_bytes()) } else { name };
        let path = leases.join(name);
        let token =
            raw::sha256(format!("{}:{}", self.instance, raw::now_ms()).as_bytes())[..32].to_owned();
        let now = raw::now_ms();
        let mut owner = json!({
            "version": 1, "token": token, "canonicalSessionFile": real.to_string_lossy(), "runId": self.id,
            "sourceRunId": source, "pid": std::process::id(), "hostname": raw::host(), "writerState": "none",
            "acquiredAt": "2026-01-01T00:00:00.000Z", "acquiredAtMs": now, "updatedAtMs": now,
            "processStartIdentity": raw::start_identity(std::process::id()), "bootId": raw::boot_id(),
        });
        if self.is("lease-thin-owner") {
            drop(owner.as_object_mut().map(|members| members.remove("acquiredAtMs")));
        }
        if self.is("lease-without-identity") {
            drop(owner.as_object_mut().map(|members| members.remove("processStartIdentity")));
        }
        if let Ok(there) = fs::symlink_metadata(&path) {
            if !there.is_dir() || !self.may_take(&path) {
                return Err(failed("is held by somebody else"));
            }
            self.set_aside(&path)?;
            if self.is("stale-owner-kept") {
                owner["runId"] = "other-run".into();
            }
        }
        let built = if self.is("lease-in-place") {
            path.clone()
        } else {
            path.with_extension(format!("candidate-{token}"))
        };
        let mode = if self.is("lease-open") { 0o755 } else { 0o700 };
        fs::DirBuilder::new().mode(mode).create(&built)?;
        self.put(&built.join("owner.json"), &owner)?;
        if built != path {
            fs::rename(&built, &path).map_err(|_| failed("was taken meanwhile"))?;
        }
        Ok(Lease { path, token, session_file: session_file.to_owned(), owner })
    }

    fn may_take(&self, path: &Path) -> bool {
        let Ok(text) = fs::read(path.join("owner.json")) else { return false };
        let Ok(owner) = serde_json::from_slice::<Value>(&text) else {
            return self.is("damaged-lease-taken");
        };
        let number = |key: &str| owner.get(key).and_then(Value::as_i64);
        let word = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        if word("hostname") != raw::host() {
            return self.is("foreign-lease-taken");
        }
        if !is_gone(number("pid")) {
            return self.is("live-lease-taken");
        }
        match word("writerState") {
            "none" => !self.is("stale-lease-honoured"),
            "running" => is_gone(number("writerPid")) || self.is("writers-lease-taken"),
            _ => self.is("spawning-lease-taken"),
        }
    }

    fn set_aside(&self, path: &Path) -> io::Result<()> {
        let text = fs::read(path.join("owner.json")).unwrap_or_default();
        let owner = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        let token = owner.get("token").and_then(Value::as_str).unwrap_or("unknown");
        if self.is("no-tombstone") {
            return fs::remove_dir_all(path);
        }
        fs::rename(path, path.with_extension(format!("stale-{token}")))
    }

    /// Gives the lease back.
    pub(super) fn release(&self, lease: &Lease) -> io::Result<()> {
        if self.is("lease-kept") {
            return Ok(());
        }
        if self.is("lease-deleted-in-place") {
            return fs::remove_dir_all(&lease.path);
        }
        let away = lease.path.with_extension(format!("released-{}", lease.token));
        fs::rename(&lease.path, &away)?;
        if self.is("lease-litter") {
            return Ok(());
        }
        fs::remove_dir_all(away)
    }
}
