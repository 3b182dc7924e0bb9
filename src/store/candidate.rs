//! What a revived runner says in its candidate of the session that it holds.
//!
//! Theory of operation. The candidate decides over the proof, and the lease of the session that it names
//! decides as well. A runner names session and token right after it was told to proceed, before it does
//! anything: from then on an end that nobody prepared is not proven while the lease is held. After it
//! gave the lease back it says so, and only then: an acknowledgement beside a lease that is still there
//! would free a session that is written to.
//!
//! Both are patches ([`sidecar`]) of a candidate that is there and is this runner's own; everything else
//! in it stays. A crash leaves the old candidate or the new one. Spec: RS-CAND-07, RS-START-30; facts
//! P-3, P-5, U-25, U-27.

use std::path::Path;

use crate::protocol::{Document, layout, limits, written};

use super::atomic::{Durability, Options};
use super::host::WriteHost;
use super::sidecar::{self, Decision, PatchError, Patched};

/// Names the session file and the token of its lease. A run without a candidate has a launcher that makes
/// none, so there is nothing to be done.
///
/// # Errors
/// [`PatchError`]; the candidate is as it was then, unless only the last flush failed.
pub fn name_session<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    (run_id, instance_id): (&str, &str),
    session_file: &Path,
    token: &str,
) -> Result<Patched, PatchError> {
    patch(host, run_dir, |doc| {
        let text = |key: &str| doc.get(key).and_then(|raw| raw.string());
        let ours = text("runId").as_deref() == Some(run_id)
            && text("runnerProcessInstanceId").as_deref() == Some(instance_id);
        if !ours {
            return Decision::Refuse("it belongs to another runner instance".to_owned());
        }
        Decision::Patch(vec![
            ("sessionFile", written::string(&session_file.to_string_lossy())),
            ("revivalLeaseToken", written::string(token)),
        ])
    })
}

/// Says whether the lease of this token was given back. A candidate of another token, or of none, is
/// left as it is.
///
/// # Errors
/// [`PatchError`]; the candidate is as it was then, unless only the last flush failed.
pub fn acknowledge_release<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    token: &str,
    released: bool,
) -> Result<Patched, PatchError> {
    patch(host, run_dir, |doc| {
        let named = doc.get("revivalLeaseToken").and_then(|raw| raw.exact_string());
        if named.as_deref() != Some(token) {
            return Decision::Keep;
        }
        Decision::Patch(vec![("revivalLeaseReleaseAcknowledged", released.to_string())])
    })
}

fn patch<H: WriteHost>(
    host: &H,
    run_dir: &H::Dir,
    decide: impl Fn(&Document<'_>) -> Decision,
) -> Result<Patched, PatchError> {
    let options = Options::new(Durability::Durable);
    let limit = limits::SIDECAR_MAX_BYTES;
    match sidecar::patch(host, run_dir, layout::CANDIDATE, limit, &options, decide) {
        Err(PatchError::Absent(_)) => Ok(Patched::Kept),
        other => other,
    }
}
