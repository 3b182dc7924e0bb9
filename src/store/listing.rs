//! The names in a run directory, sorted into what they are.
//!
//! A run directory is listed once for each pass over it, so that only files that exist are opened, and nothing is
//! opened that the listing calls a pipe or a device.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::ControlFlow;

use crate::protocol::layout::RunEntry;
use crate::protocol::limits;
use crate::protocol::temp_name::TempName;

use super::host::{FileKind, Host};

/// How many names of a run directory are asked for.
const PLACES: usize = 14;

/// The place of a name that is asked for.
fn place(entry: &RunEntry) -> Option<usize> {
    let asked_for = match entry {
        RunEntry::Status => 0,
        RunEntry::Proof => 1,
        RunEntry::Candidate => 2,
        RunEntry::Events => 3,
        RunEntry::Startup => 4,
        RunEntry::Ack => 5,
        RunEntry::Confirm => 6,
        RunEntry::Proceed => 7,
        RunEntry::Stdout => 8,
        RunEntry::Stderr => 9,
        RunEntry::Control => 10,
        RunEntry::AppendRequests => 11,
        RunEntry::WorkflowResult => 12,
        RunEntry::WorkflowPending => 13,
        _ => return None,
    };
    Some(asked_for)
}

/// Names found in a run directory, sorted into what they are.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// By [`place`]: whether it is there, and of which kind, where the listing tells one.
    there: [Option<Option<FileKind>>; PLACES],
    pub(super) output_logs: Vec<String>,
    pub(super) temps: Vec<(String, TempName)>,
    pub(super) foreign: Vec<String>,
    /// Names of the protocol that are neither plain files nor directories, bounded.
    pub(super) strange: Vec<(String, FileKind)>,
    pub(super) known: bool,
    pub(super) truncated: bool,
}

impl Listing {
    pub(super) fn kind(&self, wanted: &RunEntry) -> Option<Option<FileKind>> {
        let at = place(wanted);
        debug_assert!(at.is_some(), "{wanted:?} has no place");
        self.there.get(at?).copied()?
    }

    /// Whether it is there, and nothing else than a plain file by what the listing tells.
    pub(super) fn may_open(&self, wanted: &RunEntry) -> bool {
        self.kind(wanted).is_some_and(|kind| kind.is_none_or(|kind| kind == FileKind::Regular))
    }

    pub(super) fn has(&self, wanted: &RunEntry) -> bool {
        self.kind(wanted).is_some()
    }
}

/// Spec: RS-READ-04, RS-LAYOUT-24.
pub(super) fn list_run<H: Host>(host: &H, dir: &H::Dir) -> Listing {
    let mut listing = Listing::default();
    let mut seen = 0_usize;
    let _ = host.list(dir, &mut |entry| {
        seen += 1;
        if seen > limits::RUN_DIR_MAX_ENTRIES {
            listing.truncated = true;
            return ControlFlow::Break(());
        }
        let name = text_of(&entry.name);
        let sorted = RunEntry::of(&name);
        let strange = entry
            .kind
            .filter(|kind| !matches!(kind, FileKind::Regular | FileKind::Directory))
            .filter(|_| {
                !matches!(sorted, RunEntry::Temp(_) | RunEntry::OtherKnown | RunEntry::Unknown)
            });
        if let Some(kind) = strange.filter(|_| listing.strange.len() < 100) {
            listing.strange.push((name.clone().into_owned(), kind));
        }
        match sorted {
            RunEntry::Temp(temp) => {
                listing.known = true;
                listing.temps.push((name.into_owned(), temp));
            }
            RunEntry::Unknown => {
                if listing.foreign.len() < 100 {
                    listing.foreign.push(name.into_owned());
                }
            }
            RunEntry::OutputLog(_) => {
                listing.known = true;
                if listing.output_logs.len() < limits::MAX_STEPS {
                    listing.output_logs.push(name.into_owned());
                }
            }
            known => {
                listing.known = true;
                if let Some(there) = place(&known).and_then(|at| listing.there.get_mut(at)) {
                    *there = Some(entry.kind);
                }
            }
        }
        ControlFlow::Continue(())
    });
    listing
}

/// A name as text. Nearly every name is text already, and telling that is cheap.
pub(super) fn text_of(name: &OsStr) -> Cow<'_, str> {
    name.to_str().map_or_else(|| name.to_string_lossy(), Cow::Borrowed)
}
