//! The environment of a runner: what it is told by variables, and what it does not inherit.
//!
//! Theory of operation. A runner gets the variables of its launcher, which was itself started by somebody:
//! perhaps out of a hook of Git, perhaps as a step of another run. [`environment()`] says what is set and
//! what is removed, as plain names and values, so that whoever makes the process has nothing to decide:
//! 1. the variables of the caller are judged. One that no system takes, that is named twice, or that
//!    belongs to the launch is refused: what wins would depend on who makes the process;
//! 2. the parent session is set or removed, never inherited: the one of the launcher is that of its own
//!    launch, and a runner that believed it would answer to the wrong session;
//! 3. variables that lead Git to one repository, that bind extensions, or that name a runner configuration are
//!    removed. With them a runner would work on the repository of the launcher, whatever its working
//!    directory, or on somebody else's configuration. A caller that sets one by name means it.
//!
//! Both families have a name for each of theirs, and a runner looks for its own only; so both names are
//! treated alike, and nobody has to know of what family the runner is.
//!
//! Pure; no crash leaves anything. No error carries a value. Spec: RS-START-70 to RS-START-72, RS-START-92; facts L-34, U-13,
//! K-40.

use std::ffi::{OsStr, OsString};

use crate::protocol::DecodeError;

/// The session that asked for the run, by the names of both families.
pub const PARENT_SESSION: [&str; 2] = ["PI_SUBAGENT_PARENT_SESSION", "DM_SUBAGENT_PARENT_SESSION"];

/// What a runner inherits from nobody: which repository Git works on (the names that
/// `git rev-parse --local-env-vars` lists, and the namespace), what extensions are bound to, and the
/// configuration of another runner.
pub const NOT_INHERITED: [&str; 20] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
    "PI_SUBAGENT_EXTENSION_BINDINGS",
    "DM_SUBAGENT_EXTENSION_BINDINGS",
    "PI_SUBAGENT_RUNNER_CONFIG",
    "DM_SUBAGENT_RUNNER_CONFIG",
];

/// What a runner's environment differs in from that of its launcher. No name stands in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// What is set.
    pub set: Vec<(OsString, OsString)>,
    /// What is removed.
    pub remove: Vec<OsString>,
}

/// The fan-out budget of a tree, by the names of both families.
pub const FANOUT_BUDGET: [&str; 2] =
    ["PI_SUBAGENT_RUN_FANOUT_BUDGET", "DM_SUBAGENT_RUN_FANOUT_BUDGET"];

impl Environment {
    /// The same for a run whose configuration names its budget: what its launcher inherited may be that of
    /// another tree. A run whose configuration names none keeps what it inherits, or it would leave its tree.
    /// Spec: RS-START-92.
    #[must_use]
    pub fn with_own_budget(mut self) -> Self {
        let known = |own: &str, this: &Self| {
            this.remove.iter().any(|name| name == own)
                || this.set.iter().any(|(name, _)| name == own)
        };
        let inherited: Vec<OsString> =
            FANOUT_BUDGET.into_iter().filter(|own| !known(own, &self)).map(Into::into).collect();
        self.remove.extend(inherited);
        self
    }
}

/// The environment of a runner. See the module's theory of operation.
/// Spec: RS-START-70, RS-START-71, RS-START-72.
///
/// # Errors
/// [`DecodeError::Member`] naming the first variable of the caller that is not taken, never its value.
pub fn environment(
    parent_session: Option<&str>,
    set: &[(OsString, OsString)],
    remove: &[OsString],
) -> Result<Environment, DecodeError> {
    let names: Vec<&OsStr> =
        set.iter().map(|(name, _)| name).chain(remove).map(OsString::as_os_str).collect();
    for (at, name) in names.iter().enumerate() {
        let refuse = |expected| Err(DecodeError::member(name.to_string_lossy(), expected));
        let bytes = name.as_encoded_bytes();
        if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) {
            return refuse("the name of a variable");
        }
        if PARENT_SESSION.iter().any(|own| name == own) {
            return refuse("a variable that is set by the parent session of the launch");
        }
        if names[..at].contains(name) {
            return refuse("a variable that is named once");
        }
    }
    if let Some((name, _)) = set.iter().find(|(_, value)| value.as_encoded_bytes().contains(&0)) {
        return Err(DecodeError::member(name.to_string_lossy(), "a value without a NUL"));
    }
    let mut environment = Environment { set: set.to_vec(), remove: remove.to_vec() };
    match parent_session {
        Some(id) if id.contains('\0') => {
            return Err(DecodeError::member("parentSessionId", "a string without a NUL"));
        }
        Some(id) => environment.set.extend(PARENT_SESSION.map(|name| (name.into(), id.into()))),
        None => environment.remove.extend(PARENT_SESSION.map(OsString::from)),
    }
    let named = |own: &str| names.iter().any(|name| *name == own);
    let inherited = NOT_INHERITED.iter().filter(|own| !named(own)).map(OsString::from);
    environment.remove.extend(inherited);
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(set: &[(&str, &str)], remove: &[&str]) -> Option<String> {
        let set: Vec<_> = set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let remove: Vec<_> = remove.iter().map(OsString::from).collect();
        match environment(None, &set, &remove) {
            Ok(_) => None,
            Err(DecodeError::Member { member, .. }) => Some(member),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_parent_session_is_set_or_removed_and_never_inherited() {
        let set = environment(Some("P"), &[], &[]).expect("plain");
        let none = environment(None, &[], &[]).expect("plain");
        for name in PARENT_SESSION {
            assert!(set.set.contains(&(name.into(), "P".into())), "{set:?}");
            assert!(!set.remove.contains(&name.into()), "{set:?}");
            assert!(none.set.is_empty() && none.remove.contains(&name.into()), "{none:?}");
        }
        assert!(environment(Some("P\0"), &[], &[]).is_err(), "no system takes it");
    }

    #[test]
    fn what_leads_elsewhere_is_removed_unless_the_caller_names_it() {
        let plain = environment(None, &[], &[]).expect("plain");
        assert!(NOT_INHERITED.iter().all(|name| plain.remove.contains(&name.into())), "{plain:?}");
        let own = [("GIT_DIR".into(), "/r".into())];
        let meant = environment(None, &own, &["GIT_PREFIX".into()]).expect("named once");
        assert_eq!(meant.set, own, "whoever sets it means it");
        let times = |name: &str| meant.remove.iter().filter(|other| *other == name).count();
        assert_eq!((times("GIT_DIR"), times("GIT_PREFIX"), times("GIT_WORK_TREE")), (0, 1, 1));
    }

    #[test]
    fn the_budget_of_another_tree_is_not_inherited_by_a_run_that_has_its_own() {
        let plain = environment(None, &[], &[]).expect("plain");
        let has = |of: &Environment, name: &str| of.remove.iter().any(|known| known == name);
        assert!(FANOUT_BUDGET.iter().all(|name| !has(&plain, name)), "or it would leave its tree");
        let own = plain.with_own_budget();
        assert!(FANOUT_BUDGET.iter().all(|name| has(&own, name)), "{own:?}");
        assert_eq!(own.clone().with_own_budget(), own, "named once");
    }

    #[test]
    fn a_variable_that_nobody_could_set_or_that_is_the_launchs_is_refused_by_name() {
        assert_eq!(refused(&[("A", "b")], &["C"]), None);
        for (set, remove, want) in [
            (&[("", "b")][..], &[][..], ""),
            (&[("A=B", "b")], &[], "A=B"),
            (&[("A\0", "b")], &[], "A\0"),
            (&[("A", "b\0")], &[], "A"),
            (&[], &["="], "="),
            (&[("A", "b"), ("A", "c")], &[], "A"),
            (&[("A", "b")], &["A"], "A"),
            (&[("PI_SUBAGENT_PARENT_SESSION", "S")], &[], "PI_SUBAGENT_PARENT_SESSION"),
            (&[], &["DM_SUBAGENT_PARENT_SESSION"], "DM_SUBAGENT_PARENT_SESSION"),
        ] {
            assert_eq!(refused(set, remove).as_deref(), Some(want), "{set:?} {remove:?}");
        }
        let set = [("A".into(), "secret".into()), ("A".into(), "secret".into())];
        let e = environment(None, &set, &[]).expect_err("twice");
        assert!(!e.to_string().contains("secret"), "{e}");
    }
}
