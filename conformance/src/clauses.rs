//! The clause registry, as far as the suite needs it: id, level, roles, and the first sentence.
//!
//! Theory of operation. `spec/clauses.toml` is built in. Only `[[clause]]` tables with one-line members are
//! understood, which is the form that a test of the repository enforces; an entry without an id is passed over.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Its id, such as `RS-START-47`.
    pub(crate) id: &'static str,
    /// `MUST`, `MUST NOT`, `SHOULD`, `SHOULD NOT` or `MAY`.
    pub(crate) level: &'static str,
    /// Whom it binds, as the registry names them.
    pub(crate) roles: Vec<&'static str>,
    /// Its first sentence.
    pub(crate) text: &'static str,
    /// Why no suite can check it, if so.
    pub(crate) waiver: Option<&'static str>,
}

impl Clause {
    /// Whether breaking it is a failure.
    pub(crate) fn is_must(&self) -> bool {
        self.level.starts_with("MUST")
    }
}

const REGISTRY: &str = include_str!("../../spec/clauses.toml");

/// Every clause that is not withdrawn, in the order of the registry.
pub(crate) fn all() -> &'static [Clause] {
    static ALL: OnceLock<Vec<Clause>> = OnceLock::new();
    ALL.get_or_init(|| REGISTRY.split("[[clause]]").skip(1).filter_map(read).collect())
}

fn read(table: &'static str) -> Option<Clause> {
    let member = |key: &str| {
        table.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim())
        })
    };
    let text = |key: &str| member(key).map(|value| value.trim_matches('"'));
    let withdrawn = member("withdrawn").is_some_and(|value| value != "false")
        || text("status") == Some("withdrawn");
    if withdrawn {
        return None;
    }
    let roles = member("role")?.trim_matches(['[', ']']);
    Some(Clause {
        id: text("id")?,
        level: text("level")?,
        roles: roles.split(',').map(|role| role.trim().trim_matches('"')).collect(),
        text: text("text").unwrap_or_default(),
        waiver: text("waiver"),
    })
}

/// One clause by its id.
pub(crate) fn find(id: &str) -> Option<&'static Clause> {
    static BY_ID: OnceLock<BTreeMap<&str, &Clause>> = OnceLock::new();
    let by_id = BY_ID.get_or_init(|| all().iter().map(|clause| (clause.id, clause)).collect());
    by_id.get(id).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_read() {
        let all = all();
        assert!(all.len() > 500, "{}", all.len());
        let one = find("RS-START-47").expect("registered");
        assert_eq!((one.level, one.roles.as_slice()), ("MUST", ["runner"].as_slice()));
        assert!(one.is_must() && one.text.starts_with("In a revival"), "{}", one.text);
        assert!(!find("RS-CAND-06").expect("registered").is_must());
    }
}
