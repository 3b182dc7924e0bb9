//! What can be wrong with the bytes of a protocol file.
//!
//! A decode error is a fact about one file. It never carries the path (the store adds it) and never
//! the offending value, which may be a secret or a terminal escape.

use std::fmt;

/// Why bytes are not the document that the protocol needs there.
/// Spec: RS-JSON-17.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The file has no bytes.
    Empty,
    /// Every byte is zero: the name survived a power cut, the data did not.
    ZeroFilled {
        /// Length of the file.
        bytes: u64,
    },
    /// The text starts with U+FEFF, which the reference readers refuse.
    ByteOrderMark,
    /// Not UTF-8.
    NotUtf8 {
        /// Offset of the first bad byte.
        offset: u64,
    },
    /// The text ends in the middle of a value.
    Torn,
    /// A syntax error that is not an early end.
    NotJson {
        /// Line, counted from 1.
        line: u64,
        /// Column, counted from 1.
        column: u64,
    },
    /// JSON, but not an object.
    NotAnObject {
        /// What was found, as a noun phrase.
        found: &'static str,
    },
    /// Nested deeper than the limit.
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// An object with more members than the limit.
    TooManyMembers {
        /// The limit.
        limit: usize,
    },
    /// Longer than the limit for files of this kind.
    TooLarge {
        /// Length of the file.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A member is missing or has a wrong type or value.
    Member {
        /// Path of the member, such as `steps[2].status`.
        member: String,
        /// What the protocol needs there.
        expected: &'static str,
    },
    /// The document may be read but not rewritten.
    ReadOnly {
        /// Why.
        why: &'static str,
    },
}

/// An error with its causes, down to the system's, as one line. Spec: RS-ATOM-11.
pub fn with_causes(e: &dyn std::error::Error) -> String {
    let mut out = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        out.push_str(": ");
        out.push_str(&cause.to_string());
        next = cause.source();
    }
    out
}

impl DecodeError {
    pub(crate) fn from_json(text: &str, e: &serde_json::Error) -> Self {
        // NUL bytes after a valid prefix are what a lost tail looks like on some file systems.
        if e.is_eof() || text.ends_with('\0') {
            return Self::Torn;
        }
        Self::NotJson { line: e.line() as u64, column: e.column() as u64 }
    }

    pub(crate) fn member(member: impl Into<String>, expected: &'static str) -> Self {
        Self::Member { member: member.into(), expected }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty (zero bytes)"),
            Self::ZeroFilled { bytes } => {
                write!(f, "all {bytes} bytes are zero: the data never reached the disk")
            }
            Self::ByteOrderMark => f.write_str("it starts with a byte-order mark"),
            Self::NotUtf8 { offset } => write!(f, "not UTF-8 at byte {offset}"),
            Self::Torn => f.write_str("it ends in the middle of a value (torn write)"),
            Self::NotJson { line, column } => {
                write!(f, "not JSON at line {line}, column {column}")
            }
            Self::NotAnObject { found } => write!(f, "expected an object, found {found}"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} levels"),
            Self::TooManyMembers { limit } => write!(f, "an object has more than {limit} members"),
            Self::TooLarge { bytes, limit_bytes } => {
                write!(f, "{bytes} bytes, more than the limit of {limit_bytes}")
            }
            Self::Member { member, expected } => write!(f, "member {member} must be {expected}"),
            Self::ReadOnly { why } => write!(f, "it cannot be rewritten, because {why}"),
        }
    }
}

impl std::error::Error for DecodeError {}
