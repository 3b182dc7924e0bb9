//! Which names Windows takes for a file of that name and of no other.
//!
//! Windows reads `C:x` as a place on a drive, `a:b` as a stream of `a`, drops dots and spaces at the
//! end, and opens a device for `NUL` and its like in any directory and with any ending. A name of these
//! kinds is refused before it is joined to a path. A pure function, so that its test runs everywhere.
//! Spec: RS-ATOM-13.

use crate::protocol::segment;

/// Whether a name is one plain component on Windows.
pub(super) fn is_plain(name: &str) -> bool {
    let refused =
        |c: char| c < ' ' || matches!(c, '<' | '>' | ':' | '"' | '/' | '\\' | '|' | '?' | '*');
    // A dot at the end covers `.` and `..`.
    !name.is_empty() && !name.contains(refused) && !name.ends_with(['.', ' ']) && !is_device(name)
}

/// Spaces before the first dot do not save a device name.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ');
    segment::starts_with_device_name(stem)
        || ["conin$", "conout$"].iter().any(|device| stem.eq_ignore_ascii_case(device))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for name in [
            "", ".", "..", "a.", "a ", "a/b", r"a\b", r"\a", "C:a", "a:b", "a?b", "a*", "a|b",
            "<a", "a\"b", "a\u{1}b", "NUL", "nul.json", "Con", "com1.txt", "LPT9", "aux .x",
            "CONOUT$",
        ] {
            assert!(!is_plain(name), "{name:?} is another file or none");
        }
    }

    #[test]
    fn names_of_a_store_are_taken() {
        for name in [
            "status.json",
            ".status.json.1.2.abc.tmp",
            ".active-runs",
            "slot-0",
            ".runstore",
            "console",
            "com10",
            "nulls.json",
            "%2Fa",
            "h~abc",
            "rmw-a.lock",
            "owner.json",
            "lease.stale-a-b",
            "ü.json",
            " a",
        ] {
            assert!(is_plain(name), "{name:?} is a name");
        }
    }
}
