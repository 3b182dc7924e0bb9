//! Marking a result as delivered.
//!
//! Ordered steps of [`mark_delivered`]:
//! 1. read the result, pending before public;
//! 2. refuse one that is not what was delivered: the run may have published again;
//! 3. add the mark and [`publish`] the whole text again.
//!
//! A crash leaves the result without the mark or with it; the mark is one member of one payload, so it
//! is never half there. A result without it is delivered again, which its receiver has to bear; a
//! result with it is not, so the mark comes after the delivery. Removing a delivered result belongs to
//! whoever delivers. Spec: RS-RESULT-24; facts S-95.

use std::io;

use crate::protocol::{Document, layout};

use super::atomic::{Step, WriteError};
use super::directory;
use super::host::WriteHost;
use super::publish::{Payload, PublishError, Published, ResultNames, publish, read_payload};
use super::retry::RetryPolicy;

/// What became of a delivery mark.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivered {
    /// The result carries the mark.
    Marked(Published),
    /// It had the mark already.
    Already,
    /// It is not what was delivered: state or time differ. Read and deliver it again.
    Changed,
    /// There is no result any more.
    Gone,
}

/// Marks a result as delivered: `notificationDeliveredAt` and `runId` are added, every other byte stays,
/// and the result is published again. Facts S-95.
///
/// `is_what_was_delivered` sees the document that is there now; the caller compares `state` and
/// `timestamp` with what it handed over. A run that publishes between the look and the write is the
/// same window as that of [`sidecar::patch`](super::sidecar::patch).
///
/// # Errors
/// As [`publish`], and [`PublishError::NotADocument`] for a result that cannot be rewritten.
pub fn mark_delivered<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    names: &ResultNames,
    delivered_at_ms: i64,
    is_what_was_delivered: impl Fn(&Document<'_>) -> bool,
    retry: &RetryPolicy,
) -> Result<Delivered, PublishError> {
    let path = [layout::RESULT_PENDING, &names.session];
    let look =
        |name: &str, e| PublishError::Write(WriteError::of(host, results, Step::Look, name, e));
    let other = |why: String| io::Error::other(why);
    // A pending result is the newer one (RS-RESULT-02).
    let pending =
        directory::open_path(host, results, &path).map_err(|e| look(&path.join("/"), e))?;
    let mut text = None;
    if let Some(pending) = &pending {
        text =
            read_payload(host, pending, &names.entry).map_err(|e| look(&names.entry, other(e)))?;
    }
    if text.is_none() {
        text = read_payload(host, results, &names.file).map_err(|e| look(&names.file, other(e)))?;
    }
    let Some(text) = text else { return Ok(Delivered::Gone) };
    let damaged = |e| PublishError::NotADocument(names.file.clone(), e);
    let doc = Document::parse(&text).map_err(damaged)?;
    if doc.get("notificationDeliveredAt").is_some_and(|raw| raw.number().is_some()) {
        return Ok(Delivered::Already);
    }
    let payload = Payload::read(&names.file, &doc)?;
    if payload.names != *names || !is_what_was_delivered(&doc) {
        return Ok(Delivered::Changed);
    }
    let at = delivered_at_ms.to_string();
    let members = [("notificationDeliveredAt", at.as_str()), ("runId", payload.run.1.as_str())];
    let text = doc.patched(&members).map_err(damaged)?;
    Ok(Delivered::Marked(publish(host, results, &names.file, &text, None, retry)?))
}
