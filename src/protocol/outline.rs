//! Where every value of a small JSON text begins and ends, found in one pass.
//!
//! Theory of operation. [`scan`](super::scan) splits one level of a text; whoever looks into nested
//! objects that way passes over the same bytes once for every level. An [`Outline`] is room for the
//! places of all values and keys of one text, in the order of the text: a value, then what is in it.
//! Each [`Node`] says how many nodes belong to it, so the next sibling is found without looking
//! between. [`Outline::of`] fills the room while it checks the whole syntax; afterwards nothing of
//! the text is scanned again.
//!
//! It says yes or nothing, like the scanner: a text that is no JSON, or needs more than
//! [`MAX_NODES`] places, is left to the other parsers. The bound is there because a hostile text is
//! little else than values, and would need several times its own size.

use std::ops::Range;

use super::limits;
use super::scan::{colon, is_end, number, text_end, white, word};

/// A text of more values and keys than this gets no outline: 48 KiB of places, four times what the
/// largest recorded status has.
const MAX_NODES: usize = 4096;
const _: () = assert!(MAX_NODES <= u16::MAX as usize, "a number of a value");
/// Room for an ordinary status without growing.
const USUAL_NODES: usize = 256;
/// Marks a string that has an escape, and an object with such a key, in [`Node::size`].
const ESCAPED: u32 = 1 << 31;
/// No enclosing value.
const NONE: u32 = u32::MAX;

/// The place of one value or key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    start: u32,
    /// While it is open: 0, or [`ESCAPED`] once a key had an escape.
    end: u32,
    /// How many nodes belong to it, itself included. While it is open: the node around it.
    size: u32,
}

impl Node {
    fn count(&self) -> usize {
        (self.size & !ESCAPED) as usize
    }

    #[inline]
    fn span(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// What stands between the quotes of a string.
    #[inline]
    fn inside(&self) -> Range<usize> {
        self.start as usize + 1..(self.end as usize).saturating_sub(1)
    }
}

/// Room for the places of one text. What it has grown to is kept for the next one.
#[derive(Debug, Default)]
pub struct Outline(Vec<Node>);

impl Outline {
    /// No room yet; it is made when a text needs it.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Finds all places of a text that is one object; `None` when it is anything else, or too much.
    pub(super) fn of(&mut self, text: &str) -> Option<&[Node]> {
        // So every place in it fits as well.
        u32::try_from(text.len()).ok().filter(|n| *n < NONE)?;
        loop {
            let mut places = Places { room: &mut self.0, count: 0 };
            let found = places.fill(text.as_bytes());
            let (count, is_full) = (places.count, places.count >= places.room.len());
            if found.is_some() {
                return self.0.get(..count);
            }
            // No, or no room: with more of it the text is gone through anew, which happens a few times ever.
            if !is_full || self.0.len() >= MAX_NODES {
                return None;
            }
            let more = (self.0.len() * 4).clamp(USUAL_NODES, MAX_NODES);
            self.0.resize(more, place(0, 0, 1));
        }
    }
}

/// The places that were found so far: the first ones of the room.
struct Places<'r> {
    room: &'r mut [Node],
    count: usize,
}

impl Places<'_> {
    /// `None` when the text is no object, or when the room is full.
    fn fill(&mut self, b: &[u8]) -> Option<()> {
        let mut at = white(b, 0);
        if *b.get(at)? != b'{' {
            return None;
        }
        // The innermost value that is still open, and how many are.
        let (mut inner, mut depth, mut in_object) = (NONE, 0, false);
        loop {
            // Here a value begins, or a member.
            if in_object {
                let (end, mark) = self.string(b, at)?;
                if mark != 0 {
                    self.room.get_mut(inner as usize)?.end = mark;
                }
                at = colon(b, end)?;
            }
            let start = at;
            let first = *b.get(at)?;
            match first {
                b'"' => at = self.string(b, at)?.0,
                b'{' | b'[' => {
                    if depth >= limits::MAX_DEPTH {
                        return None;
                    }
                    (depth, in_object) = (depth + 1, first == b'{');
                    let own = number_of(self.count);
                    self.add(Node { start: number_of(start), end: 0, size: inner })?;
                    inner = own;
                    at = white(b, at + 1);
                    if *b.get(at)? != if in_object { b'}' } else { b']' } {
                        continue;
                    }
                }
                _ => {
                    at = match first {
                        b'-' | b'0'..=b'9' => number(b, at)?,
                        b't' => word(b, at, b"true")?,
                        b'f' => word(b, at, b"false")?,
                        b'n' => word(b, at, b"null")?,
                        _ => return None,
                    };
                    self.add(place(start, at, 1))?;
                }
            }
            // Here one has ended, or the end of an empty one stands here.
            loop {
                at = white(b, at);
                match (*b.get(at)?, in_object) {
                    (b',', _) => {
                        at = white(b, at + 1);
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        at += 1;
                        let count = self.count;
                        let own = self.room.get_mut(inner as usize)?;
                        let outer = own.size;
                        own.size = (number_of(count) - inner) | own.end;
                        own.end = number_of(at);
                        (inner, depth) = (outer, depth - 1);
                        if outer == NONE {
                            return is_end(b, at);
                        }
                        let around = self.room.get(outer as usize)?;
                        in_object = *b.get(around.start as usize)? == b'{';
                    }
                    _ => return None,
                }
            }
        }
    }

    #[inline]
    fn add(&mut self, node: Node) -> Option<()> {
        *self.room.get_mut(self.count)? = node;
        self.count += 1;
        Some(())
    }

    /// Notes a string; gives the place behind it, and its mark.
    #[inline]
    fn string(&mut self, b: &[u8], at: usize) -> Option<(usize, u32)> {
        let (end, escaped) = text_end(b, at)?;
        let mark = if escaped { ESCAPED } else { 0 };
        self.add(place(at, end, 1 | mark))?;
        Some((end, mark))
    }
}

/// A place or count of a text whose length was checked.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the text is shorter than that")]
fn number_of(place: usize) -> u32 {
    place as u32
}

#[inline]
fn place(start: usize, end: usize, size: u32) -> Node {
    Node { start: number_of(start), end: number_of(end), size }
}

/// A value and the places in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlined<'a> {
    /// The text that the places are of.
    whole: &'a str,
    /// The place of the value, and of what is in it.
    nodes: &'a [Node],
}

impl<'a> Outlined<'a> {
    /// The value that the first of some places in a text stands for; `None` without one.
    #[inline]
    pub(super) fn new(whole: &'a str, nodes: &'a [Node]) -> Option<Self> {
        if nodes.is_empty() { None } else { Some(Self { whole, nodes }) }
    }

    /// The text that the places are of, and the places.
    #[inline]
    pub(super) fn parts_of(self) -> (&'a str, &'a [Node]) {
        (self.whole, self.nodes)
    }

    /// The exact text of the value.
    #[inline]
    pub(super) fn text(self) -> &'a str {
        self.nodes.first().and_then(|own| self.whole.get(own.span())).unwrap_or_default()
    }

    /// The first byte of that.
    #[inline]
    pub(super) fn first_byte(self) -> Option<u8> {
        self.whole.as_bytes().get(self.nodes.first()?.start as usize).copied()
    }

    /// What stands between the quotes of a string.
    #[inline]
    pub(super) fn inside(self) -> Option<&'a str> {
        self.whole.get(self.nodes.first()?.inside())
    }

    /// Whether a string has an escape; of an object, whether one of its keys has.
    #[inline]
    pub(super) fn has_escape(self) -> bool {
        self.nodes.first().is_some_and(|own| own.size & ESCAPED != 0)
    }

    /// Gives `each` every key of an object as written, without its quotes, and the number of its
    /// value, which is above 0 and which [`Outlined::at`] takes.
    #[inline]
    pub(super) fn each_member(self, mut each: impl FnMut(&'a [u8], u16)) {
        let mut rest = self.nodes.get(1..).unwrap_or_default();
        let mut number = 2;
        while let [key, value, ..] = rest {
            if let Some(key) = self.whole.as_bytes().get(key.inside()) {
                each(key, number);
            }
            let passed = 1 + value.count();
            rest = rest.get(passed..).unwrap_or_default();
            #[expect(clippy::cast_possible_truncation, reason = "there are at most MAX_NODES")]
            (number += passed as u16);
        }
    }

    /// Whether a key may occur twice: no means no. For objects of few members.
    pub(super) fn may_repeat(self) -> bool {
        const FEW: usize = 64;
        let (mut seen, mut count) = ([0_u64; FEW], 0);
        let mut may = false;
        self.each_member(|key, _| {
            // The last bytes and the length tell nearly all keys apart.
            let short = key.iter().rev().take(7).fold(0, |sum, b| sum << 8 | u64::from(*b));
            let short = short << 8 | key.len() as u64;
            may |= count >= FEW || seen[..count].contains(&short);
            if count < FEW {
                seen[count] = short;
                count += 1;
            }
        });
        may
    }

    /// The value of a number.
    #[inline]
    pub(super) fn at(self, number: usize) -> Option<Outlined<'a>> {
        let nodes = self.nodes.get(number..)?;
        Some(Outlined { whole: self.whole, nodes: nodes.get(..nodes.first()?.count())? })
    }

    /// What is directly in it: the elements of an array; of an object each key, then its value.
    pub(super) fn parts(self) -> Parts<'a> {
        Parts { whole: self.whole, rest: self.nodes.get(1..).unwrap_or_default() }
    }
}

/// The parts of a value, one after the other.
pub(super) struct Parts<'a> {
    whole: &'a str,
    rest: &'a [Node],
}

impl<'a> Iterator for Parts<'a> {
    type Item = Outlined<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (nodes, rest) = self.rest.split_at_checked(self.rest.first()?.count())?;
        self.rest = rest;
        Some(Outlined { whole: self.whole, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<Vec<String>> {
        let mut room = Outline::default();
        let nodes = room.of(text)?;
        let whole = Outlined::new(text, nodes)?;
        Some(all(whole))
    }

    /// Every part at every depth, in order.
    fn all(value: Outlined<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for part in value.parts() {
            found.push(part.text().to_owned());
            if part.text().starts_with(['{', '[']) {
                found.extend(all(part));
            }
        }
        found
    }

    #[test]
    fn every_value_at_every_depth_has_its_place() {
        let found = parts(" {\"a\": [1, {\"b\":\"]}\"}, []] ,\n\"c\\n\":-1.5e+3, \"d\":{ }}\n");
        let want = [
            "\"a\"",
            "[1, {\"b\":\"]}\"}, []]",
            "1",
            "{\"b\":\"]}\"}",
            "\"b\"",
            "\"]}\"",
            "[]",
            "\"c\\n\"",
            "-1.5e+3",
            "\"d\"",
            "{ }",
        ];
        assert_eq!(found.expect("is JSON"), want);
        assert_eq!(parts("{}"), Some(vec![]));
    }

    #[test]
    fn an_escape_is_remembered_with_its_string() {
        let text = r#"{"plain":"a\"b","esc\u0061ped":1,"o":{"k\n":2}}"#;
        let mut room = Outline::default();
        let nodes = room.of(text).expect("is JSON");
        let whole = Outlined::new(text, nodes).expect("has a place");
        let flags: Vec<_> = whole.parts().map(Outlined::has_escape).collect();
        assert_eq!(flags, [false, true, true, false, false, true]);
        assert!(whole.has_escape(), "one of its keys is written with an escape");
    }

    #[test]
    fn what_is_no_object_or_too_much_is_left_to_the_other_parsers() {
        let many = |n: usize| format!("{{\"a\":[{}1]}}", "1,".repeat(n));
        assert!(parts(&many(MAX_NODES - 8)).is_some());
        let nested = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
        assert!(parts(&nested(limits::MAX_DEPTH - 1)).is_some());
        for text in [
            "",
            "[1]",
            "{",
            "{}x",
            "{\"a\"}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":01}",
            "{\"a\":[}",
            "{\"a\":[1}]",
            "{\"a\":{]}",
            "{\"a\":{1:2}}",
            "{\"a\":\"\n\"}",
            "{\"a\":tru}",
            &many(MAX_NODES),
            &nested(limits::MAX_DEPTH),
        ] {
            assert!(parts(text).is_none(), "{text:.40}");
        }
    }
}
