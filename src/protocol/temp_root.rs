//! Where a user's store is.
//!
//! Theory of operation. Writers do not agree on a root by message; each derives it from its own
//! environment by the same rules. [`TempRootFacts`] is what those rules look at, gathered by the
//! caller, and [`temp_root`] is the rules. Two families of writers differ only in names. The result
//! is a guess about where writers with this environment put their store: a writer with another
//! environment has another root, and nothing here says that the directory exists, is ours, or is
//! not a link. Facts L-1 to L-4.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::open::words;

words! {
    /// The families of writers.
    Family {
        /// The TypeScript family.
        Pi = "pi",
        /// Its JavaScript port.
        Dm = "dm",
    }
}

impl Family {
    /// The environment variable that sets the temp root.
    pub fn root_variable(self) -> &'static str {
        match self {
            Self::Pi => "PI_SUBAGENTS_TEMP_ROOT",
            Self::Dm => "DM_SUBAGENTS_TEMP_ROOT",
        }
    }

    /// What the name of the default temp root starts with; the scope follows.
    pub fn root_prefix(self) -> &'static str {
        match self {
            Self::Pi => "pi-subagents-",
            Self::Dm => "dm-subagents-",
        }
    }
}

/// What decides where the temp root is.
#[derive(Clone, Copy, Debug)]
pub struct TempRootFacts<'a> {
    /// Value of [`Family::root_variable`].
    pub root_variable: Option<&'a OsStr>,
    /// The working directory, absolute; a relative variable is taken from here.
    pub working_dir: &'a Path,
    /// The directory for temporary files of the system.
    pub system_temp_dir: &'a Path,
    /// Numeric user id, where the system has one.
    pub uid: Option<u32>,
    /// Values of `USERNAME`, `USER` and `LOGNAME`, in this order.
    pub user_variables: [Option<&'a str>; 3],
    /// Name in the account database.
    pub account_name: Option<&'a str>,
    /// `USERPROFILE`, else `HOME`, else the home directory that the system knows.
    pub home: Option<&'a str>,
}

/// The temp root of a family. Facts L-1, L-2.
/// Spec: RS-LAYOUT-01, RS-LAYOUT-02.
pub fn temp_root(family: Family, facts: &TempRootFacts<'_>) -> PathBuf {
    if let Some(set) = facts.root_variable.and_then(trimmed) {
        return normalized(&facts.working_dir.join(set));
    }
    facts.system_temp_dir.join(format!("{}{}", family.root_prefix(), scope(facts)))
}

/// What tells the roots of different users apart. Facts L-3.
/// Spec: RS-LAYOUT-03.
pub fn scope(facts: &TempRootFacts<'_>) -> String {
    if let Some(uid) = facts.uid {
        return format!("uid-{uid}");
    }
    let non_empty = |name: &Option<&str>| name.is_some_and(|n| !n.is_empty());
    let user = facts.user_variables.into_iter().chain([facts.account_name]).find(non_empty);
    if let Some(name) = user.flatten() {
        return format!("user-{}", sanitize(name));
    }
    match facts.home.filter(|home| !home.is_empty()) {
        Some(home) => format!("home-{}", sanitize(home)),
        None => "shared".to_owned(),
    }
}

/// A name as part of a directory name: each run of other characters than `A-Za-z0-9._-` becomes one
/// `-`, and none stays at either end. Facts L-4.
/// Spec: RS-LAYOUT-04.
pub fn sanitize(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut replaced = false;
    for c in name.trim().chars() {
        let kept = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if kept {
            out.push(c);
        } else if !replaced {
            out.push('-');
        }
        replaced = !kept;
    }
    match out.trim_matches('-') {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

/// The value without surrounding white space, or `None` when nothing is left. A value that is not
/// Unicode is taken as it is.
fn trimmed(value: &OsStr) -> Option<&OsStr> {
    match value.to_str() {
        Some(text) => Some(OsStr::new(text.trim())).filter(|t| !t.is_empty()),
        None => Some(value),
    }
}

/// Removes `.` and `..` by name, as the writers do, without asking the file system about links.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> TempRootFacts<'static> {
        TempRootFacts {
            root_variable: None,
            working_dir: Path::new("/srv/dir"),
            system_temp_dir: Path::new("/tmp"),
            uid: Some(1000),
            user_variables: [None, Some(""), Some("Ann Lee")],
            account_name: Some("ann"),
            home: Some("/home/ann"),
        }
    }

    #[test]
    fn the_variable_wins_unless_it_is_blank() {
        for (value, want) in [
            ("/a/b", "/a/b"),
            (" /a/b ", "/a/b"),
            ("/a/./b/../c/", "/a/c"),
            ("/../..", "/"),
            ("x/y", "/srv/dir/x/y"),
            ("..", "/srv"),
            ("", "/tmp/pi-subagents-uid-1000"),
            (" \t", "/tmp/pi-subagents-uid-1000"),
        ] {
            let facts = TempRootFacts { root_variable: Some(OsStr::new(value)), ..facts() };
            assert_eq!(temp_root(Family::Pi, &facts), Path::new(want), "{value:?}");
        }
        assert_eq!(temp_root(Family::Dm, &facts()), Path::new("/tmp/dm-subagents-uid-1000"));
    }

    #[test]
    fn the_scope_falls_back_from_user_id_to_names_to_shared() {
        let mut f = TempRootFacts { uid: None, ..facts() };
        assert_eq!(scope(&f), "user-Ann-Lee");
        f.user_variables = [None; 3];
        assert_eq!(scope(&f), "user-ann");
        f.account_name = None;
        assert_eq!(scope(&f), "home-home-ann");
        f.home = Some("");
        assert_eq!(scope(&f), "shared");
        f.uid = Some(0);
        assert_eq!(scope(&f), "uid-0");
    }

    #[test]
    fn a_name_is_reduced_to_portable_characters() {
        for (name, want) in [
            ("ann", "ann"),
            ("  ann  ", "ann"),
            ("DOMAIN\\ann", "DOMAIN-ann"),
            ("a - b", "a---b"),
            ("a//b", "a-b"),
            ("--a--", "a"),
            ("会话", "unknown"),
            ("", "unknown"),
            ("a.b_c-d", "a.b_c-d"),
        ] {
            assert_eq!(sanitize(name), want, "{name:?}");
        }
    }
}
