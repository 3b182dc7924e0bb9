//! Reading single members with the checks that every sidecar reader makes.
//!
//! Theory of operation. The existing readers test the type of a member and little else, so these
//! helpers do the same and name the member that failed. They decide nothing: whether a member is
//! required, and what a missing one means, is said by the caller. A string here may be empty unless
//! the name of the helper says otherwise.

use std::borrow::Cow;

use super::document::Lookup;
use super::error::DecodeError;
use super::raw::Raw;

/// Requires `version` to be the number 1, however it is spelled.
/// Spec: RS-ROLE-09.
pub(super) fn version_one<'a>(doc: &impl Lookup<'a>) -> Result<(), DecodeError> {
    let one = doc.get("version").and_then(Raw::number) == Some(1.0);
    one.then_some(()).ok_or_else(|| DecodeError::member("version", "the number 1"))
}

/// A string; a member of another type reads as absent.
pub(super) fn text<'a>(doc: &impl Lookup<'a>, key: &str) -> Option<Cow<'a, str>> {
    doc.get(key)?.string()
}

/// The same, for a view that outlives the document.
pub(super) fn loose_string<'a>(doc: &impl Lookup<'a>, key: &str) -> Option<String> {
    text(doc, key).map(Cow::into_owned)
}

/// A required string.
pub(super) fn string<'a>(doc: &impl Lookup<'a>, key: &str) -> Result<String, DecodeError> {
    optional_string(doc, key)?.ok_or_else(|| DecodeError::member(key, "a string"))
}

/// A required string that is not empty.
pub(super) fn filled_string<'a>(doc: &impl Lookup<'a>, key: &str) -> Result<String, DecodeError> {
    let text = string(doc, key)?;
    if text.is_empty() { Err(DecodeError::member(key, "a non-empty string")) } else { Ok(text) }
}

/// A string that may be absent. `null` is not absent: the existing readers refuse it.
pub(super) fn optional_string<'a>(
    doc: &impl Lookup<'a>,
    key: &str,
) -> Result<Option<String>, DecodeError> {
    let Some(raw) = doc.get(key) else {
        return Ok(None);
    };
    let text = raw.string().ok_or_else(|| DecodeError::member(key, "a string"))?;
    Ok(Some(text.into_owned()))
}

/// A required finite number of milliseconds since the Unix epoch.
pub(super) fn instant_ms<'a>(doc: &impl Lookup<'a>, key: &str) -> Result<i64, DecodeError> {
    doc.get(key).and_then(finite_ms).ok_or_else(|| DecodeError::member(key, "a finite number"))
}

/// A required whole number of at least `least`.
pub(super) fn whole<'a>(doc: &impl Lookup<'a>, key: &str, least: i64) -> Result<i64, DecodeError> {
    let expected = if least > 0 { "a whole number above 0" } else { "a whole number, 0 or more" };
    doc.get(key)
        .and_then(whole_number)
        .filter(|n| *n >= least)
        .ok_or_else(|| DecodeError::member(key, expected))
}

/// Any finite number, cut to whole milliseconds. A number beyond the range of `i64` becomes its
/// nearest end, because the existing readers ask for no more than a finite number.
pub(super) fn finite_ms(raw: Raw<'_>) -> Option<i64> {
    if let Some(whole) = raw.plain_whole() {
        return Some(whole);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is the rule")]
    raw.number().map(|n| n.floor() as i64)
}

/// A number without a fraction. Beyond the range of `i64` it becomes the nearest end.
pub(super) fn whole_number(raw: Raw<'_>) -> Option<i64> {
    if let Some(whole) = raw.plain_whole() {
        return Some(whole);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is the rule")]
    raw.number().filter(|n| n.fract() == 0.0).map(|n| n as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Document;

    #[test]
    fn version_one_is_a_number_not_a_spelling() {
        for (text, ok) in
            [("1", true), ("1.0", true), ("1e0", true), ("\"1\"", false), ("2", false)]
        {
            let source = format!("{{\"version\":{text}}}");
            let doc = Document::parse(&source).expect("parses");
            assert_eq!(version_one(&doc).is_ok(), ok, "version {text}");
        }
    }

    #[test]
    fn a_huge_number_saturates_and_an_infinite_one_is_refused() {
        let read = |text| finite_ms(Raw::parse(text).expect("parses"));
        assert_eq!(read("1e300"), Some(i64::MAX), "finite is enough");
        assert_eq!(read("1e400"), None, "no double holds it");
        assert_eq!(read("-1.5"), Some(-2), "cut towards the past");
    }
}
