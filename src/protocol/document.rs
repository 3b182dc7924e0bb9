//! A JSON object that keeps its bytes.
//!
//! Theory of operation. A sidecar file belongs to several writers of several versions, so the only
//! safe way to hold it is as its own text plus the places of its members. [`Document`] parses one
//! level: the keys are decoded, each value stays a span of the source. Nothing else is interpreted,
//! so numbers such as `1e400`, lone surrogates and unknown members come out as they went in.
//!
//! Reading looks members up one by one through [`Raw`]. Writing replaces the spans of the members
//! that the caller's role owns and appends new ones before the closing brace; every other byte is
//! copied. An unpatched document renders to exactly its source.
//!
//! Duplicate keys: the last one wins on reading (`RS-JSON-05`), and such a document refuses patches,
//! because no patch could say which of the two it meant.
//!
//! Not promised: validation of nested values beyond their syntax, and any canonical form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::DecodeError;
use super::limits;
use super::scan::{self, Trust};

/// One JSON value as found in a file: its exact text, not yet interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

/// The JSON type of a [`Raw`] value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// The name used in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> Raw<'a> {
    /// Parses a text that holds exactly one JSON value.
    ///
    /// # Errors
    /// [`DecodeError`] when the text is not JSON or nests deeper than [`limits::MAX_DEPTH`].
    pub fn parse(text: &'a str) -> Result<Self, DecodeError> {
        check_depth(text)?;
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|e| DecodeError::from_json(text, &e))?;
        Ok(Self(raw.get()))
    }

    /// The exact text of the value.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// The JSON type, told from the first byte.
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// The decoded string, or `None` for any other type. An unpaired surrogate becomes U+FFFD: the
    /// result is for comparing and showing, the file keeps its bytes.
    pub fn string(self) -> Option<Cow<'a, str>> {
        let body = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if !body.contains('\\') {
            return Some(Cow::Borrowed(body));
        }
        Some(match serde_json::from_str::<String>(self.0) {
            Ok(text) => Cow::Owned(text),
            Err(_) => Cow::Owned(decode_lossy(body)),
        })
    }

    /// As [`Raw::string`], but of a string of more than `most` bytes in the file only about so much from
    /// its start. For texts that are shown, or compared with short ones.
    pub fn string_start(self, most: usize) -> Option<Cow<'a, str>> {
        if self.0.len() <= most {
            return self.string();
        }
        let body = self.0.strip_prefix('"')?.strip_suffix('"')?;
        let end = (0..=most.min(body.len())).rev().find(|at| body.is_char_boundary(*at))?;
        Some(Cow::Owned(decode_lossy(&body[..end])))
    }

    /// The decoded string, or `None` for any other type and for a string with an unpaired surrogate.
    /// For tokens and other values whose equality grants something.
    pub fn exact_string(self) -> Option<String> {
        serde_json::from_str::<String>(self.0).ok()
    }

    /// The number as a double, or `None` for another type or a number that no double can hold.
    pub fn number(self) -> Option<f64> {
        if self.kind() != Kind::Number {
            return None;
        }
        self.0.parse::<f64>().ok().filter(|n| n.is_finite())
    }

    /// The number as a whole number of any sign, or `None` when it has a fraction or does not fit
    /// the range in which doubles are exact (±2^53).
    pub fn integer(self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let n = self.number()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within ±2^53")]
        (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64)
    }

    /// An instant in milliseconds since the Unix epoch; a fraction is cut off (`RS-JSON-07`).
    /// `None` for another type or a value outside ±2^53.
    pub fn instant_ms(self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let n = self.number()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be within ±2^53")]
        (n.abs() <= EXACT).then_some(n.floor() as i64)
    }

    /// The boolean, or `None` for another type.
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The object, one level parsed, or `None` for another type.
    pub fn object(self) -> Option<Document<'a>> {
        if self.kind() != Kind::Object {
            return None;
        }
        let scanned = Document::scanned(self.0, Trust::Checked);
        scanned.unwrap_or_else(|| Document::parse_unchecked(self.0)).ok()
    }

    /// The elements of an array, or `None` for another type.
    pub fn array(self) -> Option<Vec<Raw<'a>>> {
        self.array_start(usize::MAX)
    }

    /// The first elements of an array, `most` of them, or `None` for another type.
    pub fn array_start(self, most: usize) -> Option<Vec<Raw<'a>>> {
        if self.kind() != Kind::Array {
            return None;
        }
        if let Some(spans) = scan::elements(self.0, Trust::Checked, most) {
            return Some(spans.into_iter().map(Raw).collect());
        }
        let mut de = serde_json::Deserializer::from_str(self.0);
        let mut all = de.deserialize_seq(ElementsVisitor).ok()?;
        all.truncate(most);
        Some(all)
    }
}

/// A JSON object as ordered members over its own source text.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    source: &'a str,
    members: Vec<(Cow<'a, str>, Raw<'a>)>,
    /// The marks of all keys: a key whose mark is missing is not there.
    marks: u64,
    /// See [`order_of`].
    order: Vec<usize>,
    duplicates: bool,
    undecodable_keys: bool,
}

impl<'a> Document<'a> {
    /// Parses the bytes of a whole file: rejects what no conforming reader accepts (a byte-order
    /// mark, zero-filled or empty content, invalid UTF-8, anything but one object), and says which.
    ///
    /// # Errors
    /// [`DecodeError`] naming the first thing that was wrong. Spec: RS-JSON-01, RS-JSON-02,
    /// RS-JSON-03, RS-JSON-08.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::parse(text_of(bytes)?)
    }

    /// Parses one JSON object, surrounded by nothing but white space.
    /// Spec: RS-JSON-04, RS-JSON-08.
    ///
    /// # Errors
    /// As [`Document::from_bytes`].
    pub fn parse(text: &'a str) -> Result<Self, DecodeError> {
        if let Some(doc) = Self::scanned(text, Trust::Unchecked) {
            return doc;
        }
        check_depth(text)?;
        Self::parse_unchecked(text)
    }

    /// The usual case, in one pass; `None` when the text needs the full parser.
    fn scanned(text: &'a str, trust: Trust) -> Option<Result<Self, DecodeError>> {
        let mut members = Vec::with_capacity(24);
        // One above the bound is enough to know that there are too many.
        scan::members(text, trust, |key, value| {
            if members.len() <= limits::MAX_MEMBERS {
                members.push((decoded_key(key), Raw(value)));
            }
        })?;
        Some(Self::of_members(text, members))
    }

    fn parse_unchecked(text: &'a str) -> Result<Self, DecodeError> {
        if !text.trim_ascii_start().starts_with('{') {
            // Syntax first: `[1` is torn JSON, `[1]` is JSON of the wrong type.
            return Err(match Raw::parse(text) {
                Ok(raw) => DecodeError::NotAnObject { found: raw.kind().name() },
                Err(e) => e,
            });
        }
        let mut de = serde_json::Deserializer::from_str(text);
        let parsed = de
            .deserialize_map(MembersVisitor)
            .and_then(|m| de.end().map(|()| m))
            .map_err(|e| DecodeError::from_json(text, &e))?;
        Self::of_members(text, parsed)
    }

    fn of_members(
        source: &'a str,
        members: Vec<(Cow<'a, str>, Raw<'a>)>,
    ) -> Result<Self, DecodeError> {
        if members.len() > limits::MAX_MEMBERS {
            return Err(DecodeError::TooManyMembers { limit: limits::MAX_MEMBERS });
        }
        // A key without escapes is its own text and cannot be undecodable.
        let lossy = |key: &Cow<'_, str>| matches!(key, Cow::Owned(k) if k.contains('\u{fffd}'));
        let undecodable_keys = members.iter().any(|(key, _)| lossy(key));
        let order = order_of(&members);
        let duplicates = has_duplicates(&members, &order);
        let marks = members.iter().fold(0, |marks, (key, _)| marks | mark(key));
        Ok(Self { source, members, marks, order, duplicates, undecodable_keys })
    }

    /// The source text.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// The value of a member; of duplicates the last one (`RS-JSON-05`). Absent and `null` differ.
    /// Spec: RS-JSON-11, RS-JSON-13.
    pub fn get(&self, key: &str) -> Option<Raw<'a>> {
        // Views ask for many members that most documents do not have.
        if self.marks & mark(key) == 0 {
            return None;
        }
        if self.order.is_empty() {
            return self.members.iter().rev().find(|(k, _)| is_same(k, key)).map(|(_, v)| *v);
        }
        let behind = self.order.partition_point(|place| self.members[*place].0.as_ref() <= key);
        let (found, value) = &self.members[*self.order.get(behind.checked_sub(1)?)?];
        (found == key).then_some(*value)
    }

    /// Whether a key occurs more than once.
    pub fn has_duplicate_keys(&self) -> bool {
        self.duplicates
    }

    /// Whether patches are refused, with the reason (`RS-JSON-05`).
    pub fn read_only_reason(&self) -> Option<&'static str> {
        if self.duplicates {
            Some("it has duplicate keys")
        } else if self.undecodable_keys {
            Some("it has a key that is not valid Unicode")
        } else {
            None
        }
    }

    /// The members in file order, duplicates included.
    pub fn members(&self) -> impl Iterator<Item = (&str, Raw<'a>)> + '_ {
        self.members.iter().map(|(k, v)| (k.as_ref(), *v))
    }

    /// Renders the document with some members replaced or added. All other bytes stay.
    ///
    /// `patch` pairs a key with the exact JSON text of its new value; new keys are appended in
    /// order, indented like the first member.
    ///
    /// # Errors
    /// [`DecodeError::ReadOnly`] when the document has duplicate or undecodable keys, and
    /// [`DecodeError::NotJson`] when a new value is not JSON.
    pub fn patched(&self, patch: &[(&str, &str)]) -> Result<String, DecodeError> {
        if let Some(why) = self.read_only_reason() {
            return Err(DecodeError::ReadOnly { why });
        }
        let base = self.source.as_ptr() as usize;
        let mut out = String::with_capacity(self.source.len() + 64);
        let mut copied = 0;
        for (key, value) in &self.members {
            let Some((_, new)) = patch.iter().find(|(k, _)| *k == key.as_ref()) else { continue };
            Raw::parse(new)?;
            let start = value.0.as_ptr() as usize - base;
            out.push_str(&self.source[copied..start]);
            out.push_str(new);
            copied = start + value.0.len();
        }
        let close = self.source.rfind('}').expect("a parsed object ends in a brace");
        let added: Vec<_> =
            patch.iter().filter(|(k, _)| !self.members.iter().any(|(m, _)| m == k)).collect();
        if added.is_empty() {
            out.push_str(&self.source[copied..]);
            return Ok(out);
        }
        let body_end = self.source[..close].trim_ascii_end().len();
        let (separator, first) = self.indentation();
        out.push_str(&self.source[copied..body_end.max(copied)]);
        for (i, (key, value)) in added.into_iter().enumerate() {
            Raw::parse(value)?;
            let between = if i == 0 && self.members.is_empty() { &first } else { &separator };
            out.push_str(between);
            out.push_str(&string_text(key));
            out.push_str(": ");
            out.push_str(value);
        }
        out.push_str(&self.source[body_end..]);
        Ok(out)
    }

    /// What stands between two members, and before the first: taken from the source.
    fn indentation(&self) -> (String, String) {
        let open = self.source.find('{').expect("a parsed object starts with a brace") + 1;
        let inner = &self.source[open..];
        let white = &inner[..inner.len() - inner.trim_ascii_start().len()];
        if self.members.is_empty() {
            return (",".to_owned(), String::new());
        }
        (format!(",{white}"), white.to_owned())
    }
}

/// The text of a key that is given with its quotes.
fn decoded_key(text: &str) -> Cow<'_, str> {
    Raw(text).string().unwrap_or(Cow::Borrowed(text))
}

/// One of 64 bits, told by the length and the ends of a key.
#[inline]
fn mark(key: &str) -> u64 {
    let bytes = key.as_bytes();
    let (first, last) = (bytes.first().copied(), bytes.last().copied());
    let mixed =
        key.len() + usize::from(first.unwrap_or(0)) * 5 + usize::from(last.unwrap_or(0)) * 3;
    1 << (mixed % 64)
}

/// Equality that settles most pairs without a call: keys differ in length or in their last byte.
#[inline]
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.as_bytes().last() == b.as_bytes().last() && a == b
}

/// Renders an object of a few members, each given as key and exact JSON text, in the form of every
/// writer: two spaces, `": "`, no newline at the end. Facts W-4.
pub fn object_text(members: &[(&str, &str)]) -> String {
    let mut out = String::from("{");
    for (i, (key, value)) in members.iter().enumerate() {
        out.push_str(if i == 0 { "\n  " } else { ",\n  " });
        out.push_str(&string_text(key));
        out.push_str(": ");
        out.push_str(value);
    }
    out.push_str(if members.is_empty() { "}" } else { "\n}" });
    out
}

/// The JSON text of a string.
pub fn string_text(text: &str) -> String {
    serde_json::to_string(text).expect("a string always serializes")
}

/// Decodes the bytes of a file to text, or says why that cannot be a JSON document.
///
/// # Errors
/// [`DecodeError::Empty`], [`DecodeError::ZeroFilled`], [`DecodeError::ByteOrderMark`] or
/// [`DecodeError::NotUtf8`].
pub fn text_of(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    if bytes[0] == 0 && bytes.iter().all(|b| *b == 0) {
        return Err(DecodeError::ZeroFilled { bytes: bytes.len() as u64 });
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(DecodeError::ByteOrderMark);
    }
    std::str::from_utf8(bytes).map_err(|e| {
        // A cut inside the last character is a torn file, not a wrong encoding.
        if e.error_len().is_none() {
            DecodeError::Torn
        } else {
            DecodeError::NotUtf8 { offset: e.valid_up_to() as u64 }
        }
    })
}

/// Refuses a text that nests deeper than [`limits::MAX_DEPTH`]. The count of opening brackets is an
/// upper bound of the depth, so ordinary documents cost one pass without a state machine.
fn check_depth(text: &str) -> Result<(), DecodeError> {
    let bytes = text.as_bytes();
    let opens =
        bytes.iter().map(|b| usize::from(*b == b'[') + usize::from(*b == b'{')).sum::<usize>();
    if opens <= limits::MAX_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for b in bytes {
        if in_string {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > limits::MAX_DEPTH {
                    return Err(DecodeError::TooDeep { limit: limits::MAX_DEPTH });
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Decodes a JSON string body whose escapes hold unpaired surrogates, which become U+FFFD.
fn decode_lossy(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut units: Vec<u16> = Vec::new();
    let mut rest = body.chars();
    let flush = |units: &mut Vec<u16>, out: &mut String| {
        out.push_str(&String::from_utf16_lossy(units));
        units.clear();
    };
    while let Some(c) = rest.next() {
        if c != '\\' {
            flush(&mut units, &mut out);
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('u') => {
                let digits = rest.as_str().get(..4).unwrap_or(rest.as_str());
                rest = rest.as_str()[digits.len()..].chars();
                units.push(u16::from_str_radix(digits, 16).unwrap_or(0xfffd));
            }
            other => {
                flush(&mut units, &mut out);
                out.push(match other {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some('b') => '\u{8}',
                    Some('f') => '\u{c}',
                    Some(c) => c,
                    None => '\u{fffd}',
                });
            }
        }
    }
    flush(&mut units, &mut out);
    out
}

/// Documents with at most this many members are searched from the end.
const FEW_MEMBERS: usize = 64;

/// The places of many members, by key and then by place: with an order, looking one up and telling
/// whether a key occurs twice take no time. Empty for few members, where the order would cost more.
fn order_of(members: &[(Cow<'_, str>, Raw<'_>)]) -> Vec<usize> {
    if members.len() <= FEW_MEMBERS {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    // A stable sort keeps equal keys in the order of the file.
    order.sort_by_key(|place| members[*place].0.as_ref());
    order
}

/// Whether a key occurs twice.
fn has_duplicates(members: &[(Cow<'_, str>, Raw<'_>)], order: &[usize]) -> bool {
    if order.is_empty() {
        let twice = |(i, (key, _)): (usize, &(Cow<'_, str>, Raw<'_>))| {
            members[..i].iter().any(|(earlier, _)| is_same(earlier, key))
        };
        return members.iter().enumerate().any(twice);
    }
    order.windows(2).any(|pair| members[pair[0]].0 == members[pair[1]].0)
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, Raw<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(24);
        // Keys are taken raw as well: a key with a lone surrogate must not make the file unreadable.
        while let Some(key) = map.next_key::<&'de RawValue>()? {
            let value: &'de RawValue = map.next_value()?;
            members.push((decoded_key(key.get()), Raw(value.get())));
        }
        Ok(members)
    }
}

struct ElementsVisitor;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Vec<Raw<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            elements.push(Raw(element.get()));
        }
        Ok(elements)
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
