//! Every clause that binds a reader is named where it is kept, or waived with a reason.
//!
//! Theory of operation. A clause counts as kept when its id stands in a Rust file below `src` or
//! `tests` (outside of this checker): in the docs of the item that does it, in the table of findings, or
//! in a test. That a named item really does what the clause says is for tests and reviewers; what this
//! rule shows is which clauses nobody has thought of. A waiver that is no longer needed is a problem as
//! well, so the list only ever tells what is missing.

use std::collections::BTreeSet;

use crate::rules::{File, ids};

/// Clauses for readers that nothing keeps yet, or that nothing can break yet, with the reason.
pub(crate) const WAIVED: [(&str, &str); 1] =
    [("RS-INDEX-06", "a marker with a bad name is passed over, but not reported")];

/// Clauses for readers that are neither named nor waived, and waivers without a need.
pub(crate) fn covered(files: &[File], waived: &[(&str, &str)]) -> Vec<String> {
    let Some(registry) = files.iter().find(|file| file.path == "spec/clauses.toml") else {
        return vec!["spec/clauses.toml: the clause registry is missing".into()];
    };
    let named: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path.starts_with("src/") || file.path.starts_with("tests/"))
        .filter(|file| file.path.ends_with(".rs") && !file.path.starts_with("tests/tidy"))
        .flat_map(|file| file.text.lines().flat_map(ids))
        .collect();
    let needed = needed(&registry.text);
    let mut out = Vec::new();
    for (line, id) in &needed {
        let (is_named, is_waived) = (named.contains(id), waived.iter().any(|(w, _)| w == id));
        let path = &registry.path;
        match (is_named, is_waived) {
            (false, false) => {
                out.push(format!("{path}:{line}: {id} binds readers and nothing names it"))
            }
            (true, true) => out.push(format!("{path}:{line}: {id} is waived although it is named")),
            _ => {}
        }
    }
    for (id, reason) in waived {
        if !needed.iter().any(|(_, known)| known == id) || reason.is_empty() {
            out.push(format!("{id}: a waiver is about a clause for readers and has a reason"));
        }
    }
    out
}

/// Line and id of every clause that a reader must keep.
fn needed(registry: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let (mut at, mut id, mut must) = (0, "", false);
    for (number, line) in registry.lines().enumerate() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key.trim() {
            "id" => (at, id, must) = (number + 1, value.trim().trim_matches('"'), false),
            "level" => must = value.contains("MUST"),
            // The order of members in an entry is fixed: the level stands before the roles.
            "role" if must && value.contains("\"reader\"") => out.push((at, id)),
            _ => {}
        }
    }
    out
}
