//! Identifiers as file names of the indexes.
//!
//! Theory of operation. The indexes are directories whose entries are named after session, run and
//! tool-call ids, and an id may be any text: a path, a reserved device name, a thousand characters.
//! [`encode`] turns an id into one portable path segment. The readable form is percent-encoding;
//! whatever would be unsafe, ambiguous or too long becomes a digest instead. The function is total
//! and pure, so a reader finds an entry by encoding the id again and never by decoding a name.
//!
//! Older writers knew only percent-encoding. [`aliases`] lists the names under which a reader of the
//! result indexes has to look, newest first; writers use the first one only.
//!
//! Not promised: that two ids get two names. An id that itself looks like a digest keeps its
//! spelling, and ids that differ only in unpaired surrogates share a digest, so the content of an
//! entry decides whose it is. Facts §6.3.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::raw::Raw;

/// What a digest segment starts with; 64 lower-case hexadecimal digits follow.
pub const HASH_PREFIX: &str = "~sha256-";

/// An id as the index functions need it: its text, and whether it was valid Unicode.
///
/// JSON strings of the reference writers may hold unpaired surrogates, which no Rust string can
/// carry but which decide between the readable form and the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInput {
    text: String,
    well_formed: bool,
}

impl SegmentInput {
    /// An id given as UTF-16 code units, paired or not.
    pub fn from_utf16(units: &[u16]) -> Self {
        match String::from_utf16(units) {
            Ok(text) => Self { text, well_formed: true },
            Err(_) => Self { text: String::from_utf16_lossy(units), well_formed: false },
        }
    }

    /// The id in a JSON string, or `None` for another type.
    pub fn read(raw: Raw<'_>) -> Option<Self> {
        let text = raw.string()?.into_owned();
        // The lossy text alone cannot tell a replaced surrogate from a U+FFFD of the writer's.
        let well_formed = !text.contains('\u{fffd}') || raw.exact_string().is_some();
        Some(Self { text, well_formed })
    }

    /// The text, with U+FFFD for each unpaired surrogate.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the id had no unpaired surrogate.
    pub fn is_well_formed(&self) -> bool {
        self.well_formed
    }
}

impl From<&str> for SegmentInput {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), well_formed: true }
    }
}

/// The segment under which writers file an id: readable where that is portable and fits, else a
/// digest of [`HASH_PREFIX`] and 64 digits, whatever the limit. Facts X-30 to X-32.
///
/// `max_bytes` is 255 for a whole name and 250 for a name that gets `.json` appended.
/// Spec: RS-SEG-02, RS-SEG-03.
pub fn encode(value: &SegmentInput, max_bytes: usize) -> String {
    if value.well_formed {
        let encoded = percent_encode(&value.text);
        if encoded.len() <= max_bytes && is_portable(&encoded) {
            return encoded;
        }
    }
    format!("{HASH_PREFIX}{}", sha256_hex(value.text.as_bytes()))
}

/// [`encode`] for an id that is known to be valid Unicode.
pub fn encode_str(value: &str, max_bytes: usize) -> String {
    encode(&value.into(), max_bytes)
}

/// The names under which a reader of the result indexes looks for an id: the current one, then the
/// historical one where it is another and was possible. Facts X-34.
/// Spec: RS-SEG-04.
pub fn aliases(value: &SegmentInput, max_bytes: usize) -> Vec<String> {
    let current = encode(value, max_bytes);
    let historical = value
        .well_formed
        .then(|| percent_encode(&value.text))
        .filter(|name| name.len() <= max_bytes && is_historically_valid(name) && *name != current);
    std::iter::once(current).chain(historical).collect()
}

/// Percent-encoding of the UTF-8 text that leaves ASCII letters, digits and `-_.!~*'()` alone, with
/// upper-case digits. Completion replays, output archives and nested route indexes use it without
/// further rule (facts X-30, X-36).
/// Spec: RS-SEG-01.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&b) {
            out.push(char::from(b));
        } else {
            write!(out, "%{b:02X}").expect("a string takes any text");
        }
    }
    out
}

/// The SHA-256 digest as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(64);
    for b in Sha256::digest(bytes) {
        write!(out, "{b:02x}").expect("a string takes any text");
    }
    out
}

/// What writers of every version refused as a file name. Facts X-34.
fn is_historically_valid(encoded: &str) -> bool {
    // A trailing dot covers `.` and `..`.
    !encoded.is_empty() && !encoded.ends_with('.') && !starts_with_device_name(encoded)
}

/// What current writers accept as a readable name. Facts X-31.
fn is_portable(encoded: &str) -> bool {
    is_historically_valid(encoded)
        && !encoded.to_ascii_uppercase().contains("%5C")
        && !ends_like_an_extension(encoded)
}

/// Whether the part before the first dot is a Windows device name, in any case.
pub(crate) fn starts_with_device_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let numbered =
        |prefix| stem.strip_prefix(prefix).is_some_and(|n| matches!(n.as_bytes(), [b'1'..=b'9']));
    matches!(stem.as_str(), "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
}

/// Whether a name ends in a dot, a letter, and up to seven letters or digits.
fn ends_like_an_extension(name: &str) -> bool {
    let Some((_, tail)) = name.rsplit_once('.') else {
        return false;
    };
    tail.len() <= 8
        && tail.starts_with(|c: char| c.is_ascii_alphabetic())
        && tail.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_hashed(value: &str) -> bool {
        encode_str(value, 255).starts_with(HASH_PREFIX)
    }

    #[test]
    fn only_portable_names_stay_readable() {
        for (value, hashed) in [
            ("", true),
            (".", true),
            ("a.", true),
            ("CON", true),
            ("con.x", true),
            ("conx", false),
            ("com0", false),
            ("com10", false),
            ("LPT9", true),
            ("a.b", true),
            ("a.1b", false),
            ("a.abcdefgh", true),
            ("a.abcdefghi", false),
            ("a\\b", true),
            ("%5C", false),
            ("a/b", false),
        ] {
            assert_eq!(is_hashed(value), hashed, "{value:?}");
        }
    }

    #[test]
    fn the_limit_counts_the_encoded_bytes() {
        assert_eq!(encode_str(&"x".repeat(250), 250).len(), 250);
        assert_eq!(encode_str(&"x".repeat(251), 250).len(), 72);
        assert_eq!(encode_str(&" ".repeat(85), 255).len(), 255);
        assert_eq!(encode_str(&" ".repeat(86), 255).len(), 72);
    }

    #[test]
    fn unpaired_surrogates_are_hashed_and_a_written_replacement_character_is_not() {
        let read = |text| SegmentInput::read(Raw::parse(text).expect("valid")).expect("string");
        let lone = read(r#""\ud800""#);
        assert_eq!(lone, SegmentInput::from_utf16(&[0xd800]));
        assert!(encode(&lone, 255).starts_with(HASH_PREFIX));
        assert_eq!(aliases(&lone, 255).len(), 1, "there was never a readable form");
        assert_eq!(encode(&read("\"\u{fffd}\""), 255), "%EF%BF%BD");
        assert_eq!(encode(&read(r#""\ufffd""#), 255), "%EF%BF%BD");
        assert_eq!(encode(&read(r#""\ud83d\ude80""#), 255), "%F0%9F%9A%80");
    }

    #[test]
    fn the_historical_name_comes_second_and_only_where_it_was_possible() {
        assert_eq!(aliases(&"run-1".into(), 255), ["run-1"]);
        assert_eq!(aliases(&"s.jsonl".into(), 255)[1], "s.jsonl");
        assert_eq!(aliases(&"nul".into(), 255).len(), 1);
        assert_eq!(aliases(&"".into(), 255).len(), 1);
    }
}
