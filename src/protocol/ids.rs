//! Run ids: which texts name a run directory.
//!
//! Theory of operation. The name of a run directory is the identity of the run, so an id becomes a
//! path segment. Two doors lead here. [`RunId::parse`] takes what a person or another program
//! supplied and refuses everything that could name something outside the runs root or one of the
//! indexes in it. [`RunId::from_entry`] takes a name that a directory listing returned, which cannot
//! leave the directory, and refuses only what is not a run. A value of [`RunId`] is therefore always
//! safe to join to a runs root; whether a plain directory of that name exists, and whether it is a
//! link, the store finds out. Facts L-10 to L-13.

use std::fmt;

use super::{layout, limits};

/// The name of a run directory, safe to join to a runs root.
/// Spec: RS-LAYOUT-08.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

impl RunId {
    /// Takes an id that somebody supplied. Facts L-10, L-11, L-13.
    /// Spec: RS-LAYOUT-10, RS-LAYOUT-11.
    ///
    /// # Errors
    /// [`IdError`] naming the first rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.trim().is_empty() {
            return Err(IdError::Blank);
        }
        if text.contains(['/', '\\']) {
            return Err(IdError::Separator);
        }
        if text.contains("..") {
            return Err(IdError::ParentReference);
        }
        Self::from_entry(text)
    }

    /// Takes the name of an entry of a runs root. Looser than [`RunId::parse`], because a run that
    /// is there is reported even under a name that nobody would be allowed to ask for.
    /// Spec: RS-LAYOUT-13, RS-LAYOUT-18.
    ///
    /// # Errors
    /// [`IdError`] when the name is too long, belongs to the store itself, or is no single segment.
    pub fn from_entry(name: &str) -> Result<Self, IdError> {
        if name.is_empty() {
            return Err(IdError::Blank);
        }
        if name.contains('/') {
            return Err(IdError::Separator);
        }
        if name.contains('\0') {
            return Err(IdError::Nul);
        }
        if name == "." || name == ".." {
            return Err(IdError::ParentReference);
        }
        if name.len() > limits::NAME_MAX_BYTES {
            return Err(IdError::TooLong { bytes: name.len() });
        }
        if layout::is_reserved_in_runs_root(name) {
            return Err(IdError::Reserved);
        }
        Ok(Self(name.to_owned()))
    }

    /// The id as text, which is also the directory name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for RunId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a lookup may take the text as the beginning of an id: long enough to be meant, shorter
/// than a whole id, and itself acceptable as one. The length counts UTF-16 units, as the reference
/// readers do. Facts L-12.
/// Spec: RS-LAYOUT-14.
pub fn is_prefix_candidate(text: &str) -> bool {
    let length = text.encode_utf16().count();
    (limits::ID_PREFIX_MIN..limits::ID_PREFIX_BELOW).contains(&length) && RunId::parse(text).is_ok()
}

/// Why a text is not a run id. The text itself is left out: it may hold terminal escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// Nothing, or nothing but white space.
    Blank,
    /// A `/` or a `\`, which also covers absolute paths.
    Separator,
    /// A `..`, or the name of the directory itself.
    ParentReference,
    /// A NUL character, which no file name can hold.
    Nul,
    /// A name that belongs to the store: an index, a directory in deletion, or our own.
    Reserved,
    /// Longer than a file name can be; such a run is never opened.
    TooLong {
        /// Length in UTF-8 bytes.
        bytes: usize,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("a run id cannot be blank"),
            Self::Separator => f.write_str("a run id cannot contain a path separator"),
            Self::ParentReference => f.write_str("a run id cannot be '.' or contain '..'"),
            Self::Nul => f.write_str("a run id cannot contain a NUL character"),
            Self::Reserved => f.write_str("this name is reserved for the store itself"),
            Self::TooLong { bytes } => {
                let limit = limits::NAME_MAX_BYTES;
                write!(f, "a run id of {bytes} bytes is longer than the limit of {limit}")
            }
        }
    }
}

impl std::error::Error for IdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supplied_id_cannot_leave_the_runs_root_or_name_an_index() {
        for (text, want) in [
            ("", IdError::Blank),
            (" \t", IdError::Blank),
            (".", IdError::ParentReference),
            ("..", IdError::ParentReference),
            ("a..b", IdError::ParentReference),
            ("/abs", IdError::Separator),
            ("a/b", IdError::Separator),
            ("a\\b", IdError::Separator),
            ("a\0", IdError::Nul),
            (".active-runs", IdError::Reserved),
            (".terminal-runs", IdError::Reserved),
            (".runstore", IdError::Reserved),
            (".deleting-run-1", IdError::Reserved),
        ] {
            assert_eq!(RunId::parse(text), Err(want), "{text:?}");
        }
        assert_eq!(RunId::parse("run-1").expect("plain").as_str(), "run-1");
        assert!(RunId::parse(&"x".repeat(255)).is_ok());
        assert_eq!(RunId::parse(&"x".repeat(256)), Err(IdError::TooLong { bytes: 256 }));
    }

    #[test]
    fn a_directory_that_is_there_is_taken_under_any_name_of_its_own() {
        for name in ["a..b", "a\\b", " ", ".hidden"] {
            assert!(RunId::from_entry(name).is_ok(), "{name:?}");
        }
        for name in ["", ".", "..", "a/b", ".active-runs"] {
            assert!(RunId::from_entry(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_prefix_has_eight_to_thirty_five_characters() {
        for (length, want) in [(7, false), (8, true), (35, true), (36, false)] {
            assert_eq!(is_prefix_candidate(&"a".repeat(length)), want, "{length}");
        }
        assert!(!is_prefix_candidate("../../ab"));
        assert!(!is_prefix_candidate("        "));
    }
}
