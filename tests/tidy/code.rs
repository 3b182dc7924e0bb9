//! Rust source without what is not code, and the names that it mentions.
//!
//! Theory of operation. [`strip`] blanks comments and the insides of literals, byte for byte, so that
//! lines keep their numbers. [`without_tests`] ends a file at its own test module. [`names_after`]
//! lists what follows a path root, also inside the braces of a grouped import. All three work on text;
//! a macro that builds a path is beyond them.

/// The source with comments, and the content of string and character literals, made blank.
pub(crate) fn strip(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (keep, skip) = if rest.starts_with(b"//") {
            (0, rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (0, block_comment(rest))
        } else if let Some(hashes) = raw_string(rest, at.checked_sub(1).map(|i| bytes[i])) {
            (0, raw_string_end(rest, hashes))
        } else if rest[0] == b'"' {
            (1, string_end(rest))
        } else if let Some(length) = character(rest) {
            (1, length)
        } else {
            (1, 1)
        };
        // A literal keeps its first quote, so that `#[ignore = "…"]` still shows that it had one.
        out.extend_from_slice(&rest[..keep]);
        out.extend(rest[keep..skip].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        at += skip;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The number of hashes when a raw string starts here; `before` is the byte in front of it.
fn raw_string(rest: &[u8], before: Option<u8>) -> Option<usize> {
    if before.is_some_and(|b| b.is_ascii_alphanumeric() && b != b'b' && b != b'c' || b == b'_') {
        return None;
    }
    let hashes = rest.strip_prefix(b"r")?.iter().take_while(|b| **b == b'#').count();
    (rest.get(1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_string_end(rest: &[u8], hashes: usize) -> usize {
    let end = [b"\"".as_slice(), "#".repeat(hashes).as_bytes()].concat();
    let body = 2 + hashes;
    let found = rest[body..].windows(end.len()).position(|w| w == end);
    found.map_or(rest.len(), |at| body + at + end.len())
}

fn string_end(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal that starts here; a lifetime is none.
fn character(rest: &[u8]) -> Option<usize> {
    let inside = rest.strip_prefix(b"'")?;
    if inside.first() == Some(&b'\\') {
        let end = inside.iter().skip(2).position(|b| *b == b'\'')?;
        return Some(end + 4);
    }
    // One character of up to four bytes, then the quote; `'a, 'b` has none that close.
    let text = std::str::from_utf8(&inside[..inside.len().min(8)]);
    let valid = match text {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&inside[..e.valid_up_to()]).expect("checked to be valid"),
    };
    let length = valid.chars().next()?.len_utf8();
    (inside.get(length) == Some(&b'\'')).then_some(length + 2)
}

/// Stripped code up to the test module at its end.
pub(crate) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let at = from + found;
        from = at + "#[cfg(test)]".len();
        let next = code[from..].trim_start();
        if next.starts_with("mod ")
            && next.lines().next().is_some_and(|l| l.trim_end().ends_with('{'))
        {
            return &code[..at];
        }
    }
    code
}

/// The names that follow `root::` in stripped code, with their line numbers: for `root::{a, b::{c, d}}`
/// these are `a` and `b`.
pub(crate) fn names_after(code: &str, root: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for at in words(code, root) {
        let Some(after) = code[at + root.len()..].trim_start().strip_prefix("::") else {
            continue;
        };
        let line = line_of(code, at);
        match after.trim_start().strip_prefix('{') {
            None => out.push((line, first_name(after))),
            Some(group) => out.extend(group_heads(group).map(|name| (line, name))),
        }
    }
    out.retain(|(_, name)| !name.is_empty());
    out
}

/// The line numbers at which a word stands by itself in stripped code.
pub(crate) fn lines_of_word(code: &str, word: &str) -> Vec<usize> {
    words(code, word).into_iter().map(|at| line_of(code, at)).collect()
}

fn words(code: &str, word: &str) -> Vec<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| {
            !part(code[..*at].chars().next_back()) && !part(code[at + word.len()..].chars().next())
        })
        .collect()
}

pub(crate) fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn first_name(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first name of each item of a group whose opening brace has just been read.
fn group_heads(group: &str) -> impl Iterator<Item = String> {
    let mut depth = 1;
    let mut items = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => items.push(String::new()),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if c != ',' || depth != 1 {
            items.last_mut().expect("starts with one").push(c);
        }
    }
    items.into_iter().map(|item| first_name(&item))
}
