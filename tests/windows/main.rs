//! Real files on Windows: what the system refuses while others hold a file, and what is made of it.
//!
//! Theory of operation. Everything runs on the real host in a temporary directory. Who holds a file
//! lets go at a wait of the writer (`host.rs`), never after some time. Windows 10 and Wine differ in
//! what they refuse: a test asks the system first and says which of the two answers it saw. Run by
//! `tests/windows/run`, under Wine where there is no Windows.
//! Spec: RS-ATOM-01, RS-ATOM-05, RS-ATOM-06, RS-ATOM-09, RS-ATOM-11, RS-ATOM-13, RS-RETRY-01 to
//! RS-RETRY-07, RS-RMW-01, RS-RMW-03, RS-LOCK-01.

#![cfg(windows)]
#![expect(clippy::print_stdout, reason = "which answers were seen is shown with --nocapture")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at real trees and run programs from outside the store"
)]

mod directories;
mod files;
mod held;
mod host;
mod store;

use std::path::Path;

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory of the test");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("a name of the test")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file of the test")
}
