//! Store roots of this user: where the two families put their temp roots.
//!
//! A root is only *looked for*: by the variable that names it, else by the rule that derives its
//! name. Nothing is created. Spec: RS-LAYOUT-01 to RS-LAYOUT-05; facts §1.1.

use std::path::PathBuf;

use crate::protocol::temp_root::{self, Family, TempRootFacts};

use super::host::{FileKind, Host};

/// A root that may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The family whose rule gave it.
    pub family: Family,
    /// Absolute path.
    pub path: PathBuf,
    /// Why this path: the variable's name, or the rule.
    pub why: String,
    /// Whether a directory is there.
    pub exists: bool,
}

/// The default roots of this user, one per family.
pub fn default_roots<H: Host>(host: &H) -> Vec<Root> {
    let text = |name: &str| host.env(name).and_then(|v| v.into_string().ok());
    let users = ["USERNAME", "USER", "LOGNAME"].map(text);
    let home = text("USERPROFILE").or_else(|| text("HOME"));
    let working_dir = host.absolute(std::path::Path::new("."));
    let temp = host.temp_dir();
    [Family::Pi, Family::Dm]
        .into_iter()
        .map(|family| {
            let variable = host.env(family.root_variable());
            let facts = TempRootFacts {
                root_variable: variable.as_deref(),
                working_dir: &working_dir,
                system_temp_dir: &temp,
                uid: host.system().uid,
                user_variables: [users[0].as_deref(), users[1].as_deref(), users[2].as_deref()],
                account_name: None,
                home: home.as_deref(),
            };
            let path = temp_root::temp_root(family, &facts);
            let derived = TempRootFacts { root_variable: None, ..facts };
            let why = if path == temp_root::temp_root(family, &derived) {
                "the default place of this user".to_owned()
            } else {
                format!("named by {}", family.root_variable())
            };
            let exists = host.stat(&path).is_ok_and(|s| s.kind == FileKind::Directory);
            Root { family, path, why, exists }
        })
        .collect()
}
