//! One JSON value as found: its exact text, and what can be read from it.
//!
//! Theory of operation. A [`Raw`] is a span of a document that was accepted, so it is well formed and
//! nothing in it was interpreted. Each reading says of which type the value must be and gives `None`
//! for any other; what that means is said by the caller. What lies deeper is taken from the outline of
//! its document, where there is one; else the scanner splits the text again.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::document::{Document, check_depth};
use super::error::DecodeError;
use super::outline::{Node, Outlined};
use super::scan::{self, Trust};

/// One JSON value as found in a file: its exact text, not yet interpreted.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    /// Its text, or the one that the places are of.
    source: &'a str,
    /// The places of the value and of what is in it; empty where no outline was made.
    nodes: &'a [Node],
}

impl PartialEq for Raw<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Raw<'_> {}

/// Up to here, on either side of zero, doubles hold every whole number: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

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
        f.write_str(self.text())
    }
}

impl<'a> Raw<'a> {
    /// A value that is known to be well formed.
    pub(super) fn bare(text: &'a str) -> Self {
        Self { source: text, nodes: &[] }
    }

    pub(super) fn part(part: Outlined<'a>) -> Self {
        let (source, nodes) = part.parts_of();
        Self { source, nodes }
    }

    /// Parses a text that holds exactly one JSON value.
    ///
    /// # Errors
    /// [`DecodeError`] when the text is not JSON or nests deeper than [`MAX_DEPTH`](super::limits::MAX_DEPTH).
    pub fn parse(text: &'a str) -> Result<Self, DecodeError> {
        check_depth(text)?;
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|e| DecodeError::from_json(text, &e))?;
        Ok(Self::bare(raw.get()))
    }

    /// The exact text of the value.
    pub fn text(self) -> &'a str {
        self.outlined().map_or(self.source, Outlined::text)
    }

    /// The JSON type, told from the first byte.
    pub fn kind(self) -> Kind {
        match self.first_byte() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    #[inline]
    fn first_byte(self) -> Option<u8> {
        match self.outlined() {
            Some(outlined) => outlined.first_byte(),
            None => self.source.as_bytes().first().copied(),
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.first_byte() == Some(b'n')
    }

    /// The decoded string, or `None` for any other type. An unpaired surrogate becomes U+FFFD: the
    /// result is for comparing and showing, the file keeps its bytes.
    pub fn string(self) -> Option<Cow<'a, str>> {
        if self.first_byte() != Some(b'"') {
            return None;
        }
        if let Some(outlined) = self.outlined().filter(|outlined| !outlined.has_escape()) {
            return outlined.inside().map(Cow::Borrowed);
        }
        let body = self.text().strip_prefix('"')?.strip_suffix('"')?;
        if !body.contains('\\') {
            return Some(Cow::Borrowed(body));
        }
        Some(match serde_json::from_str::<String>(self.text()) {
            Ok(text) => Cow::Owned(text),
            Err(_) => Cow::Owned(decode_lossy(body)),
        })
    }

    /// As [`Raw::string`], but of a string of more than `most` bytes in the file only about so much from
    /// its start. For texts that are shown, or compared with short ones.
    pub fn string_start(self, most: usize) -> Option<Cow<'a, str>> {
        if self.text().len() <= most {
            return self.string();
        }
        let body = self.text().strip_prefix('"')?.strip_suffix('"')?;
        let end = (0..=most.min(body.len())).rev().find(|at| body.is_char_boundary(*at))?;
        Some(Cow::Owned(decode_lossy(&body[..end])))
    }

    /// The decoded string, or `None` for any other type and for a string with an unpaired surrogate.
    /// For tokens and other values whose equality grants something.
    pub fn exact_string(self) -> Option<String> {
        serde_json::from_str::<String>(self.text()).ok()
    }

    /// The number as a double, or `None` for another type or a number that no double can hold.
    pub fn number(self) -> Option<f64> {
        if let Some(whole) = self.plain_whole() {
            #[expect(clippy::cast_precision_loss, reason = "15 digits are below 2^53")]
            return Some(whole as f64);
        }
        if self.kind() != Kind::Number {
            return None;
        }
        self.text().parse::<f64>().ok().filter(|n| n.is_finite())
    }

    /// The value of digits alone, few enough for a double to hold them: nearly every number.
    pub(super) fn plain_whole(self) -> Option<i64> {
        let text = self.text().as_bytes();
        if text.len() > 15 || text.is_empty() {
            return None;
        }
        let (first, rest) = match text.split_first_chunk() {
            Some((digits, rest)) => (i64::from(scan::eight_digits(digits)?), rest),
            None => (0, text),
        };
        rest.iter().try_fold(first, |n, b| {
            let digit = b.wrapping_sub(b'0');
            (digit <= 9).then(|| n * 10 + i64::from(digit))
        })
    }

    /// The number as a whole number of any sign, or `None` when it has a fraction or does not fit
    /// the range in which doubles are exact (±2^53).
    pub fn integer(self) -> Option<i64> {
        if let Some(whole) = self.plain_whole() {
            return Some(whole);
        }
        let n = self.number()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within ±2^53")]
        (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64)
    }

    /// An instant in milliseconds since the Unix epoch; a fraction is cut off (`RS-JSON-07`).
    /// `None` for another type or a value outside ±2^53.
    pub fn instant_ms(self) -> Option<i64> {
        if let Some(whole) = self.plain_whole() {
            return Some(whole);
        }
        let n = self.number()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be within ±2^53")]
        (n.abs() <= EXACT).then_some(n.floor() as i64)
    }

    /// The boolean, or `None` for another type.
    pub fn boolean(self) -> Option<bool> {
        match self.text() {
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
        if let Some(outlined) = self.outlined() {
            return Some(Document::of_outline(outlined.text(), outlined));
        }
        let scanned = Document::scanned(self.text(), Trust::Checked);
        scanned.unwrap_or_else(|| Document::parse_unchecked(self.text())).ok()
    }

    /// The elements of an array, or `None` for another type.
    pub fn array(self) -> Option<Vec<Raw<'a>>> {
        self.array_start(usize::MAX)
    }

    /// The first elements of an array, `most` of them, or `None` for another type.
    pub fn array_start(self, most: usize) -> Option<Vec<Raw<'a>>> {
        Some(self.elements(most)?.collect())
    }

    /// As [`Raw::array_start`], one after the other: of an outlined text without a list of them.
    pub(super) fn elements(self, most: usize) -> Option<impl Iterator<Item = Raw<'a>>> {
        if self.kind() != Kind::Array {
            return None;
        }
        let outlined = self.outlined();
        let listed = if outlined.is_some() { Vec::new() } else { self.split(most)? };
        let parts = outlined.into_iter().flat_map(Outlined::parts).take(most).map(Raw::part);
        Some(parts.chain(listed))
    }

    fn split(self, most: usize) -> Option<Vec<Raw<'a>>> {
        if let Some(spans) = scan::elements(self.text(), most) {
            return Some(spans.into_iter().map(Raw::bare).collect());
        }
        let mut de = serde_json::Deserializer::from_str(self.text());
        let mut all = de.deserialize_seq(ElementsVisitor).ok()?;
        all.truncate(most);
        Some(all)
    }

    #[inline]
    fn outlined(self) -> Option<Outlined<'a>> {
        Outlined::new(self.source, self.nodes)
    }
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

struct ElementsVisitor;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Vec<Raw<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            elements.push(Raw::bare(element.get()));
        }
        Ok(elements)
    }
}
