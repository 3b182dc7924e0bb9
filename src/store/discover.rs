//! Store roots of this user: where the two families put their temp roots.
//!
//! A root is only *looked for*: by the variable that names it, else by the rule that derives its
//! name. Nothing is created. The other way round, a store is of the family whose rule leads to it.
//! Spec: RS-LAYOUT-01 to RS-LAYOUT-05, RS-CAND-08; facts §1.1.

use std::path::{Path, PathBuf};

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
    let working_dir = host.absolute(Path::new("."));
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

/// The family whose readers look into the store that this run directory lies in: the one whose root it is,
/// else the one that the name of a directory above it speaks of, else the first.
/// Spec: RS-CAND-08.
pub fn family_of_run<H: Host>(host: &H, run_path: &Path) -> Family {
    let own = default_roots(host).into_iter().find(|root| run_path.starts_with(&root.path));
    let named = || {
        let mut names = run_path.iter().map(|name| name.to_string_lossy());
        names.any(|name| name.starts_with(Family::Dm.root_prefix())).then_some(Family::Dm)
    };
    own.map(|root| root.family).or_else(named).unwrap_or(Family::Pi)
}

#[cfg(all(test, any(unix, windows)))]
mod tests {
    use super::*;
    use crate::store::RealHost;

    #[test]
    fn a_store_at_its_usual_place_is_of_its_family_and_any_other_of_the_first() {
        let host = RealHost::new();
        for root in default_roots(&host) {
            let run = root.path.join("async-subagent-runs").join("run-1");
            assert_eq!(family_of_run(&host, &run), root.family, "{root:?}");
        }
        for (path, family) in [
            ("/elsewhere/dm-subagents-uid-1/async-subagent-runs/run-1", Family::Dm),
            ("/elsewhere/async-subagent-runs/run-1", Family::Pi),
        ] {
            assert_eq!(family_of_run(&host, Path::new(path)), family, "{path}");
        }
    }
}
