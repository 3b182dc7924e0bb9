//! Paths and texts for people: ids in them are cut to what tells them apart.
//!
//! Theory of operation. The names of runs and instances are UUIDs, and three of them make a path that no line holds.
//! Their first eight characters stand for them; the whole id is in the title of the place.

use super::machine::escape;

/// Characters of an id that are shown.
const SHOWN: usize = 8;
const LENGTH: usize = 36;

/// Whether a UUID begins at this byte.
fn is_id(bytes: &[u8]) -> bool {
    let Some(id) = bytes.get(..LENGTH) else { return false };
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    id.iter().enumerate().all(fits)
}

/// Parts of a text: what stands between ids, and ids.
fn parts(text: &str) -> Vec<(bool, &str)> {
    let bytes = text.as_bytes();
    let (mut out, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        if is_id(&bytes[at..]) {
            out.push((false, &text[from..at]));
            out.push((true, &text[at..at + LENGTH]));
            at += LENGTH;
            from = at;
        } else {
            at += 1;
        }
    }
    out.push((false, &text[from..]));
    out.retain(|(_, part)| !part.is_empty());
    out
}

/// A text as plain text.
pub(super) fn plain(path: &str) -> String {
    let part = |(is_id, part): (bool, &str)| match is_id {
        true => format!("{}…", &part[..SHOWN]),
        false => part.to_owned(),
    };
    parts(path).into_iter().map(part).collect()
}

/// A text as escaped HTML.
pub(super) fn prose(text: &str) -> String {
    let part = |(is_id, part): (bool, &str)| match is_id {
        true => format!("<abbr title=\"{part}\">{}…</abbr>", &part[..SHOWN]),
        false => escape(part),
    };
    parts(text).into_iter().map(part).collect()
}

/// A path as escaped HTML, which may be broken after each slash.
pub(super) fn html(path: &str) -> String {
    let pieces: Vec<_> = path.split('/').map(prose).collect();
    format!("<code>{}</code>", pieces.join("/<wbr>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "f9d52581-212c-4b32-8d97-e85260af5570";

    #[test]
    fn an_id_is_cut_wherever_it_stands() {
        assert_eq!(plain(&format!("a/{ID}/b")), "a/f9d52581…/b");
        assert_eq!(plain(&format!("é{ID}{ID}")), "éf9d52581…f9d52581…");
        assert_eq!(plain(&ID[1..]), &ID[1..], "one that is too short is no id");
        assert_eq!(html("<a>/b"), "<code>&lt;a&gt;/<wbr>b</code>");
        assert_eq!(html(ID), format!("<code><abbr title=\"{ID}\">f9d52581…</abbr></code>"));
    }
}
