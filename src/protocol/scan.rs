//! A scanner for JSON that is well formed, which nearly every file is.
//!
//! Theory of operation. [`members`] and [`elements`] split an object or array into the spans of its
//! parts in one pass over the bytes, checking the whole syntax on the way. They say yes or nothing:
//! for whatever they do not accept, the caller asks the full parser, which has the last word and
//! finds the place of the error. So this module must never accept what the full parser refuses; the
//! other way round costs time and nothing else. The fuzz target `document` holds both against each
//! other.
//!
//! A part of a document that was accepted is well formed as well. Of such a text ([`Trust::Checked`],
//! which every array is) only the level at hand is read; what lies deeper is passed over by its quotes
//! and brackets.
//!
//! Nesting is held in the bits of one number, so no input makes it recurse or allocate for depth.
//! Every step takes the bytes and a position and gives the position after what it passed.

use super::limits;

/// One bit per open bracket: set for an object.
type Nesting = u128;

const _: () = assert!(limits::MAX_DEPTH <= Nesting::BITS as usize, "one bit per level");

/// What is known of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Nothing: it may be any text.
    Unchecked,
    /// It is a value out of a document that was accepted.
    Checked,
}

/// Gives `each` the spans of the members of an object that is the whole text but for white space: the
/// key with its quotes, and the value. `None` when the text turns out to be anything else.
pub(super) fn members<'t>(
    text: &'t str,
    trust: Trust,
    mut each: impl FnMut(&'t str, &'t str),
) -> Option<()> {
    let b = text.as_bytes();
    let mut at = white(b, token(b, white(b, 0), b'{')?);
    if b.get(at) == Some(&b'}') {
        return is_end(b, at + 1);
    }
    loop {
        let key_end = string(b, at)?;
        let value = colon(b, key_end)?;
        let value_end = pass(b, value, trust)?;
        each(text.get(at..key_end)?, text.get(value..value_end)?);
        at = white(b, value_end);
        match b.get(at)? {
            b',' => at = white(b, at + 1),
            b'}' => return is_end(b, at + 1),
            _ => return None,
        }
    }
}

/// The spans of the elements of an array out of a document that was accepted. With `most` of them
/// found, the rest is not looked at.
pub(super) fn elements(text: &str, most: usize) -> Option<Vec<&str>> {
    let b = text.as_bytes();
    let mut found = Vec::new();
    let mut at = white(b, token(b, white(b, 0), b'[')?);
    if b.get(at) == Some(&b']') {
        return is_end(b, at + 1).map(|()| found);
    }
    loop {
        let end = pass(b, at, Trust::Checked)?;
        found.push(text.get(at..end)?);
        if found.len() >= most {
            return Some(found);
        }
        at = white(b, end);
        match b.get(at)? {
            b',' => at = white(b, at + 1),
            b']' => return is_end(b, at + 1).map(|()| found),
            _ => return None,
        }
    }
}

/// Whether bytes are a text out of a document that was accepted, but that lines of the text begin with more spaces,
/// each with the same number of them; white space around the whole is no difference. No string holds the end of a
/// line, so such bytes are as well formed as the text and have the same words. No means nothing: other white space
/// may differ.
pub(super) fn is_same_but_for_indentation(bytes: &[u8], text: &str) -> bool {
    let whole = text.as_bytes().trim_ascii();
    let (mut a, mut b) = (bytes.trim_ascii(), whole);
    let mut more = None;
    loop {
        let same = same_start(a, b);
        (a, b) = match (a.get(same..), b.get(same..)) {
            (Some([]), Some([])) => return true,
            (Some(own), Some(theirs)) => (own, theirs),
            _ => return false,
        };
        // What may differ is the rest of an indentation.
        let (passed, _) = whole.split_at(whole.len() - b.len());
        if !is_indented(passed) {
            return false;
        }
        let more = *more.get_or_insert_with(|| b.iter().take_while(|c| **c == b' ').count());
        match b.split_at_checked(more) {
            Some((spaces @ [_, ..], rest)) if spaces.iter().all(|c| *c == b' ') => b = rest,
            _ => return false,
        }
    }
}

/// Whether the last line of a text is spaces alone.
#[inline]
fn is_indented(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk() {
        // The spaces are what is zero after the difference to spaces.
        let others = u128::from_le_bytes(*last) ^ u128::from_le_bytes([b' '; 16]);
        if others != 0 {
            let spaces = others.leading_zeros() as usize / 8;
            return last.get(15 - spaces) == Some(&b'\n');
        }
    }
    text.iter().rev().find(|c| **c != b' ') == Some(&b'\n')
}

/// How many bytes at the start of both are the same.
#[inline]
fn same_start(a: &[u8], b: &[u8]) -> usize {
    let (mut own, mut theirs) = (a, b);
    while let (Some((one, behind)), Some((other, beyond))) =
        (own.split_first_chunk(), theirs.split_first_chunk())
    {
        let others = u128::from_le_bytes(*one) ^ u128::from_le_bytes(*other);
        if others != 0 {
            return a.len() - own.len() + others.trailing_zeros() as usize / 8;
        }
        (own, theirs) = (behind, beyond);
    }
    let more = own.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    a.len() - own.len() + more
}

pub(super) fn is_end(b: &[u8], at: usize) -> Option<()> {
    (white(b, at) == b.len()).then_some(())
}

#[inline]
fn token(b: &[u8], at: usize, wanted: u8) -> Option<usize> {
    (*b.get(at)? == wanted).then_some(at + 1)
}

/// The next eight bytes as a number, the first one lowest.
#[inline]
fn eight(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

const ONES: u64 = u64::MAX / 255;
const TOPS: u64 = ONES * 0x80;

/// The top bit of each byte that is below `limit`. Only the lowest one is sure: a borrow runs upwards
/// and may set a bit above a true one.
#[inline]
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(limit)) & !word & TOPS
}

/// The same for bytes that are equal to `byte`.
#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * u64::from(byte)), 1)
}

/// How many bytes come before the lowest marked one.
#[inline]
fn before(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// Sixteen bytes as two numbers.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower and the upper half")]
fn halves(bytes: [u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(bytes);
    (both as u64, (both >> 64) as u64)
}

/// How many bytes come before the lowest marked one of two words.
#[inline]
fn first_of_two(low: u64, high: u64) -> Option<usize> {
    if low | high == 0 {
        return None;
    }
    Some(if low != 0 { before(low) } else { 8 + before(high) })
}

/// The place behind the white space here.
#[inline]
pub(super) fn white(b: &[u8], at: usize) -> usize {
    match b.get(at) {
        // Nearly always the end of a line and an indentation.
        Some(b'\n') => {
            let at = indentation(b, at + 1);
            if b.get(at).is_some_and(|c| *c > b' ') { at } else { odd_white(b, at) }
        }
        Some(c) if *c > b' ' => at,
        _ => odd_white(b, at),
    }
}

#[cold]
fn odd_white(b: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = b.get(at) {
        at += 1;
    }
    at
}

/// The place behind the spaces here, or before some of them.
#[inline]
fn indentation(b: &[u8], at: usize) -> usize {
    let mut rest = b.get(at..).unwrap_or_default();
    while let Some((word, behind)) = rest.split_first_chunk() {
        // The spaces are what is zero after the difference to spaces.
        let others = u64::from_le_bytes(*word) ^ (ONES * u64::from(b' '));
        if others != 0 {
            return b.len() - rest.len() + before(others);
        }
        rest = behind;
    }
    b.len() - rest.len()
}

/// What stands between a key and its value.
#[inline]
pub(super) fn colon(b: &[u8], at: usize) -> Option<usize> {
    // As every known writer has it.
    if let Some([b':', b' ', c, ..]) = b.get(at..)
        && *c > b' '
    {
        return Some(at + 2);
    }
    odd_colon(b, at)
}

#[cold]
fn odd_colon(b: &[u8], at: usize) -> Option<usize> {
    Some(white(b, token(b, white(b, at), b':')?))
}

#[inline]
fn pass(b: &[u8], at: usize, trust: Trust) -> Option<usize> {
    match b.get(at)? {
        b'"' => string(b, at),
        b'{' | b'[' if trust == Trust::Checked => brackets(b, at),
        _ => value(b, at),
    }
}

/// An object or array that is known to be well formed.
fn brackets(b: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        while let Some(word) = eight(b, at) {
            // The four brackets differ from one another in these bits alone, and no character that
            // occurs outside strings shares the others with them.
            let bracket = equal(word & (ONES * 0xd9), 0x59);
            let marks = bracket | equal(word, b'"');
            if marks != 0 {
                at += before(marks);
                break;
            }
            at += 8;
        }
        match b.get(at)? {
            b'"' => at = string(b, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// One value of any kind.
fn value(b: &[u8], mut at: usize) -> Option<usize> {
    let (mut open, mut depth): (Nesting, usize) = (0, 0);
    loop {
        // Here a value begins.
        match *b.get(at)? {
            b'"' => at = string(b, at)?,
            b'-' | b'0'..=b'9' => at = number(b, at)?,
            bracket @ (b'{' | b'[') => {
                // The enclosing object or array is a level as well.
                if depth + 1 >= limits::MAX_DEPTH {
                    return None;
                }
                let is_object = bracket == b'{';
                at = white(b, at + 1);
                if *b.get(at)? == if is_object { b'}' } else { b']' } {
                    at += 1;
                } else {
                    depth += 1;
                    open = open << 1 | Nesting::from(is_object);
                    if is_object {
                        at = colon(b, string(b, at)?)?;
                    }
                    continue;
                }
            }
            b't' => at = word(b, at, b"true")?,
            b'f' => at = word(b, at, b"false")?,
            b'n' => at = word(b, at, b"null")?,
            _ => return None,
        }
        // Here one has ended.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = white(b, at);
            let in_object = open & 1 == 1;
            match (*b.get(at)?, in_object) {
                (b',', _) => {
                    at = white(b, at + 1);
                    if in_object {
                        at = colon(b, string(b, at)?)?;
                    }
                    break;
                }
                (b'}', true) | (b']', false) => {
                    at += 1;
                    open >>= 1;
                    depth -= 1;
                }
                _ => return None,
            }
        }
    }
}

fn string(b: &[u8], at: usize) -> Option<usize> {
    text_end(b, at).map(|(end, _)| end)
}

/// The place behind a string, and whether it has an escape.
#[inline]
pub(super) fn text_end(b: &[u8], at: usize) -> Option<(usize, bool)> {
    let at = token(b, at, b'"')?;
    let end = plain_end(b, at)?;
    match b.get(end)? {
        b'"' => Some((end + 1, false)),
        _ => text_end_slowly(b, end),
    }
}

/// The first place that may end a run of plain text; in the last few bytes any.
#[inline]
fn plain_end(b: &[u8], at: usize) -> Option<usize> {
    let mut rest = b.get(at..)?;
    // Two words at once: nearly every key ends within the first two.
    while let Some((words, behind)) = rest.split_first_chunk() {
        let (low, high) = halves(*words);
        if let Some(place) = first_of_two(text_marks(low), text_marks(high)) {
            return Some(b.len() - rest.len() + place);
        }
        rest = behind;
    }
    Some(b.len() - rest.len())
}

/// The same from somewhere within a string: one with an escape, with what no string may hold, or one that ends
/// with the text.
#[cold]
fn text_end_slowly(b: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut escaped = false;
    loop {
        match b.get(at)? {
            b'"' => return Some((at + 1, escaped)),
            b'\\' => {
                escaped = true;
                // Eight bytes at a time: between escapes there is little else.
                at = escape(b, at + 1)?;
                while let Some(word) = eight(b, at) {
                    let marks = text_marks(word);
                    if marks != 0 {
                        at += before(marks);
                        break;
                    }
                    at += 8;
                }
            }
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// The top bit of each byte that ends a run of plain text: a quote, a backslash, a control character. As
/// with [`below`], only the lowest one is sure.
#[inline]
fn text_marks(word: u64) -> u64 {
    // With this bit turned the quote follows on the control characters, and so does nothing else.
    let turned = word ^ (ONES * 0x02);
    let control = turned.wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    (control | backslash) & !word & TOPS
}

/// What follows a backslash.
fn escape(b: &[u8], at: usize) -> Option<usize> {
    match b.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => {
            let digits = b.get(at + 1..at + 5)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 5)
        }
        _ => None,
    }
}

#[inline]
pub(super) fn number(b: &[u8], at: usize) -> Option<usize> {
    let first = at + usize::from(b.get(at) == Some(&b'-'));
    let at = digits(b, first);
    // `01` is no number.
    if at == first || (at > first + 1 && b.get(first) == Some(&b'0')) {
        return None;
    }
    match b.get(at) {
        Some(b'.' | b'e' | b'E') => fraction(b, at),
        // Every other follower is judged by whoever expects one.
        _ => Some(at),
    }
}

/// What follows the whole part of a number.
fn fraction(b: &[u8], mut at: usize) -> Option<usize> {
    if b.get(at) == Some(&b'.') {
        at = some_digits(b, at + 1)?;
    }
    if let Some(b'e' | b'E') = b.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = b.get(at) {
            at += 1;
        }
        at = some_digits(b, at)?;
    }
    Some(at)
}

#[inline]
fn digits(b: &[u8], at: usize) -> usize {
    let mut rest = b.get(at..).unwrap_or_default();
    while let Some((word, behind)) = rest.split_first_chunk() {
        let others = no_digits(u64::from_le_bytes(*word));
        if others != 0 {
            return b.len() - rest.len() + before(others);
        }
        rest = behind;
    }
    let more = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    b.len() - rest.len() + more
}

/// The top bit of each byte that is no digit.
#[inline]
fn no_digits(word: u64) -> u64 {
    // A digit less `0` is at most 9; what is more carries into its top bit, and no further.
    let values = word ^ (ONES * u64::from(b'0'));
    (((values & !TOPS) + ONES * 0x76) | values) & TOPS
}

/// The value of eight digits; `None` when one of them is none.
#[inline]
pub(super) fn eight_digits(digits: &[u8; 8]) -> Option<u32> {
    let word = u64::from_le_bytes(*digits);
    if no_digits(word) != 0 {
        return None;
    }
    // Neighbours become one number, whose digits are twice as many: two, four, eight.
    let twos = (word & (ONES * 0x0f)).wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (twos & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    let eights = (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32;
    u32::try_from(eights).ok()
}

fn some_digits(b: &[u8], at: usize) -> Option<usize> {
    let end = digits(b, at);
    (end > at).then_some(end)
}

pub(super) fn word(b: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    b.get(at..)?.starts_with(word).then_some(at + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Option<Vec<(&str, &str)>> {
        split(text, Trust::Unchecked)
    }

    fn split(text: &str, trust: Trust) -> Option<Vec<(&str, &str)>> {
        let mut found = Vec::new();
        super::members(text, trust, |key, value| found.push((key, value)))?;
        Some(found)
    }

    #[test]
    fn parts_are_spans_of_the_source() {
        let found =
            members(" {\"a\" : [1, {\"b\":\"]}\"}] ,\"\\u0063\":-1.5e+3}\n").expect("is JSON");
        assert_eq!(found, [("\"a\"", "[1, {\"b\":\"]}\"}]"), ("\"\\u0063\"", "-1.5e+3")]);
        assert_eq!(
            elements("[true,[],{} , \"\"]", usize::MAX),
            Some(vec!["true", "[]", "{}", "\"\""])
        );
        assert_eq!(
            (members("{ }").map(|m| m.len()), elements("[ ]", usize::MAX)),
            (Some(0), Some(vec![]))
        );
    }

    #[test]
    fn whatever_is_not_json_is_left_to_the_full_parser() {
        for text in [
            "",
            "{",
            "{}x",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":01}",
            "{\"a\":1.}",
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":tru}",
            "{\"a\":[}",
            "{\"a\":[1}]",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"",
            "{a:1}",
            "{\"a\":{1:2}}",
            "[1]",
        ] {
            assert_eq!(members(text), None, "{text:?}");
        }
        assert_eq!(elements("[1,2,x", 2), Some(vec!["1", "2"]), "the rest is not looked at");
        assert_eq!(elements("[1,]", usize::MAX), None);
    }

    #[test]
    fn a_long_string_ends_at_its_first_quote_wherever_that_is() {
        for pad in 0..20 {
            let text = format!("{{\"{}\":\"é{}\\\"\u{1f980}\"}}", "k".repeat(pad), "v".repeat(pad));
            let found = members(&text).expect("is JSON");
            assert_eq!(found[0].0.len(), pad + 2, "{text}");
            let cut = text.replace('v', "\u{1}");
            assert!(pad == 0 || members(&cut).is_none(), "a control character is refused: {cut:?}");
        }
    }

    #[test]
    fn a_checked_text_is_split_like_an_unchecked_one() {
        for text in [
            "[{\"a\":[1,\"]}\\\"\",{}]}, [[ [] ]],\"[\" ,12,{\"long key with {\":null}]",
            "[]",
            "[ \"\\\\\" , {\"\u{15b}\u{17b}\u{17d}\":\"\u{15b}\u{17b}\u{17d}\"} ]",
        ] {
            let object = format!("{{\"array\":{text} , \"elements\": {text}}}");
            assert!(members(&object).is_some(), "{text}");
            assert_eq!(split(&object, Trust::Checked), members(&object), "{text}");
            let elements = elements(text, usize::MAX).expect("an array");
            for element in &elements {
                let object = format!("{{\"a\":{element}}}");
                assert_eq!(members(&object), Some(vec![("\"a\"", *element)]), "{text}");
            }
        }
    }

    #[test]
    fn indentation_is_no_difference_and_everything_else_is() {
        let text = "{\n    \"a\": [\n      1,\n      \"a b c d e f g\"\n    ],\n    \"c\": {}\n  }";
        let less = "{\n  \"a\": [\n    1,\n    \"a b c d e f g\"\n  ],\n  \"c\": {}\n}\n";
        assert!(is_same_but_for_indentation(less.as_bytes(), text));
        assert!(is_same_but_for_indentation(text.as_bytes(), text));
        assert!(is_same_but_for_indentation(b"{\"a\":1}", "{\"a\":1}"));
        for other in [
            less.replace("1", "2"),
            less.replace("a b", "a  b"),
            less.replace("    1", "   1"),
            less.replace("\"c\": ", "\"c\":"),
            less.replace("c\": {}", "d\": {}"),
            less.replace("]", ""),
            less.replace("]", "]]"),
            format!("{less}}}"),
            less.trim_end().trim_end_matches('}').to_owned(),
            String::new(),
        ] {
            assert!(!is_same_but_for_indentation(other.as_bytes(), text), "{other}");
            assert!(!is_same_but_for_indentation(text.as_bytes(), &other), "{other}");
        }
    }

    #[test]
    fn eight_digits_are_a_number_and_anything_else_is_none() {
        let mut number: u32 = 7;
        for _ in 0..10_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let text = format!("{:08}", number % 100_000_000);
            let mut digits = *text.as_bytes().first_chunk().expect("eight bytes");
            assert_eq!(eight_digits(&digits), text.parse().ok(), "{text}");
            let [place, other, ..] = number.to_le_bytes();
            digits[usize::from(place % 8)] = other;
            let is_number = digits.iter().all(u8::is_ascii_digit);
            assert_eq!(eight_digits(&digits).is_some(), is_number, "{digits:?}");
        }
    }

    #[test]
    fn nesting_at_the_limit_is_left_to_the_full_parser() {
        let nested = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
        assert!(members(&nested(limits::MAX_DEPTH - 1)).is_some());
        assert!(members(&nested(limits::MAX_DEPTH)).is_none());
        assert!(members(&nested(100_000)).is_none());
    }
}
