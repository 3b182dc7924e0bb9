//! The registry of clauses, `spec/clauses.toml`, as it is compiled in.
//!
//! Theory of operation. The registry is written by hand in one fixed form, a table of one-line members for each
//! clause, and a test of the repository holds it to that. So its lines are read directly and no TOML reader is
//! compiled in. A member that is not known here is passed over, a table without an id too.

use std::borrow::Cow;

static REGISTRY: &str = include_str!("../../spec/clauses.toml");

/// One clause of the spec, as the registry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Its id, such as `RS-START-47`.
    pub id: &'static str,
    /// `MUST`, `MUST NOT`, `SHOULD`, `SHOULD NOT` or `MAY`.
    pub level: &'static str,
    /// The file of its chapter, such as `14-start-up.md`.
    pub chapter: &'static str,
    /// Whom it binds.
    pub roles: Vec<&'static str>,
    /// Its first sentence, which is the rule.
    pub text: Cow<'static, str>,
    /// The facts that it rests on. A clause about our own files may have none.
    pub facts: Vec<&'static str>,
    /// The version of the spec that it came with.
    pub since: &'static str,
    /// The version of the spec from which it is to be avoided, if there is one.
    pub deprecated: Option<&'static str>,
    /// Whether it no longer binds. Its id stays taken.
    pub withdrawn: bool,
}

impl Clause {
    /// What its id begins with, such as `RS-START`.
    pub fn area(&self) -> &'static str {
        self.id.rsplit_once('-').map_or(self.id, |(area, _)| area)
    }
}

/// Every clause, in the order of the registry, which is that of the chapters.
pub fn clauses() -> Vec<Clause> {
    REGISTRY.split("[[clause]]").skip(1).filter_map(read).collect()
}

/// The version of the spec that this build has.
pub fn spec_version() -> &'static str {
    let head = REGISTRY.split("[[clause]]").next().unwrap_or_default();
    members(head).find(|(key, _)| *key == "spec").map_or("", |(_, value)| quoted(value))
}

fn members(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let pairs = table.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

fn read(table: &'static str) -> Option<Clause> {
    let member = |key: &str| members(table).find(|(name, _)| *name == key).map(|(_, value)| value);
    let text = |key: &str| member(key).map_or("", quoted);
    Some(Clause {
        id: member("id").map(quoted)?,
        level: text("level"),
        chapter: text("chapter"),
        roles: list(member("role").unwrap_or_default()),
        text: unescape(text("text")),
        facts: list(member("facts").unwrap_or_default()),
        since: text("since"),
        deprecated: member("deprecated").map(quoted).filter(|version| *version != "false"),
        withdrawn: member("withdrawn").is_some_and(|value| value != "false")
            || text("status") == "withdrawn",
    })
}

/// What stands between the outer quotes.
fn quoted(value: &'static str) -> &'static str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

/// The texts of a list. None of them has a comma.
fn list(value: &'static str) -> Vec<&'static str> {
    let items = value.trim_start_matches('[').trim_end_matches(']').split(',');
    items.map(|item| quoted(item.trim())).filter(|item| !item.is_empty()).collect()
}

/// A basic string of TOML has other escapes too; the registry uses these two.
fn unescape(text: &'static str) -> Cow<'static, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_becomes_a_clause_with_all_that_it_says() {
        let all = clauses();
        assert_eq!(all.len(), REGISTRY.matches("\n[[clause]]\n").count());
        assert!(all.len() > 500, "{}", all.len());
        assert_eq!(spec_version(), "1.0-draft");
        let first = &all[0];
        assert_eq!((first.id, first.area(), first.level), ("RS-ROLE-01", "RS-ROLE", "MUST"));
        assert_eq!(first.facts, ["S-1", "S-4", "S-5", "S-6"]);
        for clause in &all {
            let told = [clause.level, clause.chapter, clause.since, &*clause.text];
            assert!(told.iter().all(|text| !text.is_empty()), "{clause:?}");
            assert!(!clause.roles.is_empty(), "{clause:?}");
        }
    }

    #[test]
    fn what_is_quoted_in_a_text_loses_its_escapes_only() {
        assert_eq!(unescape(r#"`/` or `\\`, \": \""#), r#"`/` or `\`, ": ""#);
        let table =
            "\nid = \"RS-ROLE-01\"\ntext = \"a = b\"\ndeprecated = \"1.1\"\nwithdrawn = true\n";
        let read = read(table).expect("it has an id");
        assert_eq!((&*read.text, read.deprecated, read.withdrawn), ("a = b", Some("1.1"), true));
        assert_eq!(super::read("level = \"MUST\""), None);
    }
}
