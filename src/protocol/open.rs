//! Words that another version may have invented.
//!
//! [`Open`] holds a known word or the text as found. It is not a catch-all: the stranger keeps its
//! spelling, so it can be shown, compared and written back. Views hold `Open<K>`, patches take `K`:
//! any word is read, only our own are written (`RS-JSON-06`).

use std::fmt;

/// A closed set of words, each with one spelling on disk.
pub trait Word: Copy + Eq + fmt::Debug + 'static {
    /// Every member, in the order of the spec.
    const ALL: &'static [Self];

    /// The spelling on disk.
    fn as_str(self) -> &'static str;

    /// The member with exactly this spelling. Never a prefix, never another case.
    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| k.as_str() == word)
    }
}

/// A known word, or the text as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open<K> {
    /// A word of this version.
    Known(K),
    /// A word of somebody else's.
    Unrecognized(String),
}

impl<K: Word> Open<K> {
    /// Reads a word.
    pub fn read(word: &str) -> Self {
        K::from_word(word).map_or_else(|| Self::Unrecognized(word.to_owned()), Self::Known)
    }

    /// The spelling on disk.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(k) => k.as_str(),
            Self::Unrecognized(text) => text,
        }
    }

    /// The known word, if it is one.
    pub fn known(&self) -> Option<K> {
        match self {
            Self::Known(k) => Some(*k),
            Self::Unrecognized(_) => None,
        }
    }
}

/// Declares a word enum with its spellings.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $crate::protocol::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::protocol::Word::as_str(*self))
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::RunState;

    #[test]
    fn a_stranger_keeps_its_spelling_and_is_never_matched_by_prefix() {
        assert_eq!(Open::<RunState>::read("complet").as_str(), "complet");
        assert_eq!(Open::<RunState>::read("complet").known(), None);
        assert_eq!(Open::<RunState>::read("COMPLETE").known(), None);
        assert_eq!(Open::<RunState>::read("complete").known(), Some(RunState::Complete));
    }
}
