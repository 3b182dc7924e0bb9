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
use std::cell::{Cell, OnceCell};
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::DecodeError;
use super::limits;
use super::outline::{Outline, Outlined};
use super::raw::Raw;
use super::scan::{self, Trust};

/// A JSON object as ordered members over its own source text.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    source: &'a str,
    /// The object, where an outline was made of it.
    places: Option<Outlined<'a>>,
    /// Its members. With an outline they are only listed when somebody asks for all of them.
    list: OnceCell<List<'a>>,
}

/// Whatever members can be looked up in.
pub(super) trait Lookup<'a> {
    /// The value of a member; of duplicates the last one (`RS-JSON-05`).
    fn get(&self, key: &str) -> Option<Raw<'a>>;
}

impl<'a> Lookup<'a> for Document<'a> {
    fn get(&self, key: &str) -> Option<Raw<'a>> {
        Document::get(self, key)
    }
}

/// Keys that a view asks for, in an order in which one is found at once. Made at compile time.
#[derive(Debug)]
pub(super) struct Keys<const N: usize> {
    words: [&'static str; N],
    /// By [`bucket`]: a bit for each word in it.
    buckets: [u64; 64],
}

impl<const N: usize> Keys<N> {
    /// Of at most 64 words.
    pub(super) const fn new(words: [&'static str; N]) -> Self {
        let mut buckets = [0; 64];
        let mut at = 0;
        while at < N {
            buckets[bucket(words[at].as_bytes())] |= 1 << at;
            at += 1;
        }
        Self { words, buckets }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<usize> {
        let mut fits = self.buckets[bucket(key)];
        while fits != 0 {
            let at = fits.trailing_zeros() as usize;
            if self.words.get(at)?.as_bytes() == key {
                return Some(at);
            }
            fits &= fits - 1;
        }
        None
    }
}

/// Some members of an object: those of the keys that were asked for, and no other. Views ask for them in the
/// order of their keys, so the one behind the last one is tried first.
#[derive(Debug)]
pub(super) struct Picked<'a, const N: usize> {
    keys: &'static Keys<N>,
    next: Cell<usize>,
    values: Values<'a, N>,
}

#[derive(Debug)]
enum Values<'a, const N: usize> {
    /// In an outlined object: the number of each value, and 0, which is the object itself, for none.
    Places(Outlined<'a>, [u16; N]),
    Found(Box<[Option<Raw<'a>>; N]>),
}

impl<'a, const N: usize> Picked<'a, N> {
    fn new(keys: &'static Keys<N>, values: Values<'a, N>) -> Self {
        Self { keys, next: Cell::new(0), values }
    }
}

impl<'a, const N: usize> Lookup<'a> for Picked<'a, N> {
    // A view asks dozens of times, mostly for what is not there: that is told sooner than a call is made.
    #[inline(always)]
    fn get(&self, key: &str) -> Option<Raw<'a>> {
        let next = self.next.get();
        let at = match self.keys.words.get(next) {
            Some(word) if std::ptr::eq(*word, key) => Some(next),
            _ => self.keys.find(key.as_bytes()),
        };
        debug_assert!(at.is_some(), "'{key}' was not picked");
        let at = at?;
        self.next.set(at + 1);
        match &self.values {
            Values::Places(object, places) => match places.get(at)? {
                0 => None,
                place => object.at(usize::from(*place)).map(Raw::part),
            },
            Values::Found(values) => *values.get(at)?,
        }
    }
}

/// All members of an object.
#[derive(Clone, Debug)]
struct List<'a> {
    members: Vec<(Cow<'a, str>, Raw<'a>)>,
    /// The marks of all keys: a key whose mark is missing is not there.
    marks: u64,
    /// See [`order_of`].
    order: Vec<usize>,
}

impl<'a> From<Vec<(Cow<'a, str>, Raw<'a>)>> for List<'a> {
    fn from(members: Vec<(Cow<'a, str>, Raw<'a>)>) -> Self {
        let order = order_of(&members);
        let marks = members.iter().fold(0, |marks, (key, _)| marks | mark(key));
        Self { members, marks, order }
    }
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

    /// As [`Document::from_bytes`]. With room for an outline, what lies deeper in a text of ordinary
    /// size is found in this one pass, however much of it is looked at afterwards.
    ///
    /// # Errors
    /// As [`Document::from_bytes`].
    pub fn outlined(bytes: &'a [u8], room: &'a mut Outline) -> Result<Self, DecodeError> {
        let text = text_of(bytes)?;
        match room.of(text).and_then(|nodes| Outlined::new(text, nodes)) {
            Some(whole) => Ok(Self::of_outline(text, whole)),
            None => Self::parse(text),
        }
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

    /// An object of which an outline was made.
    pub(super) fn of_outline(source: &'a str, object: Outlined<'a>) -> Self {
        Self { source, places: Some(object), list: OnceCell::new() }
    }

    fn listed(&self) -> Vec<(Cow<'a, str>, Raw<'a>)> {
        let mut members = Vec::new();
        let mut parts = self.places.into_iter().flat_map(Outlined::parts);
        // Keys and values take turns.
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            members.push((decoded_key(Raw::part(key)), Raw::part(value)));
        }
        members
    }

    /// The object, where its keys are their text and nobody has listed them.
    fn plain_keys(&self) -> Option<Outlined<'a>> {
        self.places.filter(|object| self.list.get().is_none() && !object.has_escape())
    }

    fn list(&self) -> &List<'a> {
        self.list.get_or_init(|| self.listed().into())
    }

    /// The usual case, in one pass; `None` when the text needs the full parser.
    pub(super) fn scanned(text: &'a str, trust: Trust) -> Option<Result<Self, DecodeError>> {
        let mut members = Vec::with_capacity(24);
        // One above the bound is enough to know that there are too many.
        scan::members(text, trust, |key, value| {
            if members.len() <= limits::MAX_MEMBERS {
                members.push((decoded_key(Raw::bare(key)), Raw::bare(value)));
            }
        })?;
        Some(Self::of_members(text, members))
    }

    pub(super) fn parse_unchecked(text: &'a str) -> Result<Self, DecodeError> {
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
        Ok(Self { source, places: None, list: List::from(members).into() })
    }

    /// The source text.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// The value of a member; of duplicates the last one (`RS-JSON-05`). Absent and `null` differ.
    /// Spec: RS-JSON-11, RS-JSON-13.
    pub fn get(&self, key: &str) -> Option<Raw<'a>> {
        if let Some(object) = self.plain_keys() {
            let mut found = None;
            object.each_member(|k, value| {
                if is_same(k, key.as_bytes()) {
                    // Of duplicates the last one stays.
                    found = Some(usize::from(value));
                }
            });
            return object.at(found?).map(Raw::part);
        }
        let List { members, marks, order } = self.list();
        // Views ask for many members that most documents do not have.
        if marks & mark(key) == 0 {
            return None;
        }
        if order.is_empty() {
            return members
                .iter()
                .rev()
                .find(|(k, _)| is_same(k.as_bytes(), key.as_bytes()))
                .map(|(_, v)| *v);
        }
        let behind = order.partition_point(|place| members[*place].0.as_ref() <= key);
        let (found, value) = &members[*order.get(behind.checked_sub(1)?)?];
        (found == key).then_some(*value)
    }

    /// The members of these keys, found in one pass. Worth it for a view that asks for several.
    pub(super) fn pick<const N: usize>(&self, keys: &'static Keys<N>) -> Picked<'a, N> {
        self.pick_all(keys, |_| ()).0
    }

    /// The same, and whether any key of the object occurs more than once.
    pub(super) fn pick_noting_repeats<const N: usize>(
        &self,
        keys: &'static Keys<N>,
    ) -> (Picked<'a, N>, bool) {
        const FEW: usize = 16;
        // Of the keys that are asked for a second one is noticed in passing.
        let mut others: [&[u8]; FEW] = [&[]; FEW];
        let (mut count, mut other_repeats) = (0, false);
        let (picked, repeats) = self.pick_all(keys, |key| {
            other_repeats |= others.iter().take(count).any(|other| *other == key);
            if let Some(room) = others.get_mut(count) {
                *room = key;
            }
            count += 1;
        });
        let known = repeats.filter(|_| count <= FEW).map(|repeats| repeats || other_repeats);
        (picked, known.unwrap_or_else(|| self.has_duplicate_keys()))
    }

    /// Gives `stranger` every key that is not asked for. Says whether one of the others repeats, where that
    /// was seen.
    #[inline]
    fn pick_all<const N: usize>(
        &self,
        keys: &'static Keys<N>,
        mut stranger: impl FnMut(&'a [u8]),
    ) -> (Picked<'a, N>, Option<bool>) {
        let Some(object) = self.plain_keys() else {
            let values = Values::Found(Box::new(keys.words.map(|key| self.get(key))));
            return (Picked::new(keys, values), None);
        };
        let (mut places, mut repeats) = ([0; N], false);
        object.each_member(|key, value| match keys.find(key) {
            Some(at) => {
                repeats |= places[at] != 0;
                // Of duplicates the last one stays.
                places[at] = value;
            }
            None => stranger(key),
        });
        (Picked::new(keys, Values::Places(object, places)), Some(repeats))
    }

    /// Whether a key occurs more than once.
    pub fn has_duplicate_keys(&self) -> bool {
        if self.plain_keys().is_some_and(|object| !object.may_repeat()) {
            return false;
        }
        let List { members, order, .. } = self.list();
        has_duplicates(members, order)
    }

    /// Whether patches are refused, with the reason (`RS-JSON-05`).
    pub fn read_only_reason(&self) -> Option<&'static str> {
        // A key without escapes is its own text and cannot be undecodable.
        let lossy = |key: &Cow<'_, str>| matches!(key, Cow::Owned(k) if k.contains('\u{fffd}'));
        if self.has_duplicate_keys() {
            Some("it has duplicate keys")
        } else if self.list().members.iter().any(|(key, _)| lossy(key)) {
            Some("it has a key that is not valid Unicode")
        } else {
            None
        }
    }

    /// The members in file order, duplicates included.
    pub fn members(&self) -> impl Iterator<Item = (&str, Raw<'a>)> + '_ {
        self.list().members.iter().map(|(k, v)| (k.as_ref(), *v))
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
        let members = &self.list().members;
        let base = self.source.as_ptr() as usize;
        let mut out = String::with_capacity(self.source.len() + 64);
        let mut copied = 0;
        for (key, value) in members {
            let Some((_, new)) = patch.iter().find(|(k, _)| *k == key.as_ref()) else { continue };
            Raw::parse(new)?;
            let start = value.text().as_ptr() as usize - base;
            out.push_str(&self.source[copied..start]);
            out.push_str(new);
            copied = start + value.text().len();
        }
        let close = self.source.rfind('}').expect("a parsed object ends in a brace");
        let added: Vec<_> =
            patch.iter().filter(|(k, _)| !members.iter().any(|(m, _)| m == k)).collect();
        if added.is_empty() {
            out.push_str(&self.source[copied..]);
            return Ok(out);
        }
        let body_end = self.source[..close].trim_ascii_end().len();
        let (separator, first) = self.indentation();
        out.push_str(&self.source[copied..body_end.max(copied)]);
        for (i, (key, value)) in added.into_iter().enumerate() {
            Raw::parse(value)?;
            let between = if i == 0 && members.is_empty() { &first } else { &separator };
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
        if self.list().members.is_empty() {
            return (",".to_owned(), String::new());
        }
        (format!(",{white}"), white.to_owned())
    }
}

/// The text of a key that is given with its quotes.
fn decoded_key(key: Raw<'_>) -> Cow<'_, str> {
    key.string().unwrap_or(Cow::Borrowed(key.text()))
}

/// One of 64 numbers, told by the length and the ends of a key.
#[inline]
const fn bucket(key: &[u8]) -> usize {
    let (Some(first), Some(last)) = (key.first(), key.last()) else { return 0 };
    (key.len() + *first as usize * 5 + *last as usize * 3) % 64
}

/// The bit of that number.
#[inline]
fn mark(key: &str) -> u64 {
    1 << bucket(key.as_bytes())
}

/// Equality that settles most pairs without a call: keys differ in length or in their last byte.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

/// Renders an object of a few members, each given as key and exact JSON text, in the form of every
/// writer: two spaces, `": "`, no newline at the end. Facts W-4.
pub fn object_text(members: &[(impl AsRef<str>, impl AsRef<str>)]) -> String {
    let mut out = String::from("{");
    for (i, (key, value)) in members.iter().enumerate() {
        out.push_str(if i == 0 { "\n  " } else { ",\n  " });
        out.push_str(&string_text(key.as_ref()));
        out.push_str(": ");
        out.push_str(value.as_ref());
    }
    out.push_str(if members.is_empty() { "}" } else { "\n}" });
    out
}

/// An array with some elements replaced, and what stands between them as it was.
pub(crate) fn spliced(
    array: Raw<'_>,
    elements: &[Raw<'_>],
    new: impl Fn(usize) -> Option<String>,
) -> String {
    let source = array.text();
    let base = source.as_ptr() as usize;
    let mut out = String::with_capacity(source.len() + 256 * elements.len());
    let mut copied = 0;
    for (at, element) in elements.iter().enumerate() {
        let start = element.text().as_ptr() as usize - base;
        out.push_str(&source[copied..start]);
        out.push_str(new(at).as_deref().unwrap_or(element.text()));
        copied = start + element.text().len();
    }
    out.push_str(&source[copied..]);
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
pub(super) fn check_depth(text: &str) -> Result<(), DecodeError> {
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
            members[..i].iter().any(|(earlier, _)| is_same(earlier.as_bytes(), key.as_bytes()))
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
            members.push((decoded_key(Raw::bare(key.get())), Raw::bare(value.get())));
        }
        Ok(members)
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
