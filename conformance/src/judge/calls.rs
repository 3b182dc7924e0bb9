//! Judges of system calls: what was flushed before and after a rename.
//!
//! Theory of operation. The lines are those of `strace -f -y`, which shows the path of every descriptor in angle brackets. A
//! call counts from the line that begins it; of a call that another thread interrupts, that is the first of its two.

use serde_json::Value;

use super::{Found, not_reached, text, texts};
use crate::evidence::Evidence;
use crate::raw;

/// The paths of a rename: from the top of the store, old and new.
fn renamed(line: &str, root: &str) -> Option<(String, String)> {
    let (_, call) = line.split_once("rename")?;
    let mut paths = Vec::new();
    let mut rest = call;
    let mut dir = String::new();
    while let Some(at) = rest.find(['<', '"']) {
        let (end, is_dir) = if rest[at..].starts_with('<') { ('>', true) } else { ('"', false) };
        let inner = rest[at + 1..].split(end).next()?;
        rest = rest.get(at + inner.len() + 2..)?;
        if is_dir {
            inner.clone_into(&mut dir);
        } else if inner.starts_with('/') {
            paths.push(inner.to_owned());
        } else {
            paths.push(format!("{dir}/{inner}"));
        }
        if paths.len() == 2 {
            break;
        }
    }
    let below = |path: &String| path.strip_prefix(root)?.strip_prefix('/').map(str::to_owned);
    Some((below(paths.first()?)?, below(paths.get(1)?)?))
}

/// Whether a line flushes a path.
fn flushes(line: &str, path: &str) -> bool {
    let is_flush = line.contains("fsync(") || line.contains("fdatasync(");
    is_flush && line.contains(&format!("<{path}>"))
}

/// Every rename onto `path` came after a flush of the temp file (`part` `file`), or was followed by one of its directory
/// (`part` `directory`; of the last rename onto each name).
pub(super) fn flushed(seen: &Evidence, args: &Value) -> Found {
    let Some(root) = seen.names.get("root") else { return not_reached(seen, "start") };
    let patterns = texts(args, "path");
    let part = text(args, "part").unwrap_or("file");
    let mut last = std::collections::BTreeMap::new();
    let mut count = 0;
    for (at, line) in seen.calls.iter().enumerate() {
        let Some((old, new)) = renamed(line, root) else { continue };
        if !patterns.iter().any(|pattern| raw::matches(pattern, &new)) {
            continue;
        }
        count += 1;
        let temp = format!("{root}/{old}");
        if part == "file" && !seen.calls[..at].iter().any(|line| flushes(line, &temp)) {
            return Found::Bad(format!("{new} got its name before `{old}` was flushed"));
        }
        last.insert(new, at);
    }
    for (new, at) in last.iter().filter(|_| part == "directory") {
        let dir = new.rsplit_once('/').map_or(root.clone(), |(dir, _)| format!("{root}/{dir}"));
        if !seen.calls[*at..].iter().any(|line| flushes(line, &dir)) {
            return Found::Bad(format!("the directory of {new} was not flushed after the rename"));
        }
    }
    match count {
        0 => Found::Unsure(format!("no rename onto {} was recorded", patterns.join(" or "))),
        n => Found::Good(format!("{n} renames were looked at")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_are_read_in_each_form() {
        let expected = Some(("a/.t.tmp".to_owned(), "a/t".to_owned()));
        for line in [
            "12 rename(\"/r/a/.t.tmp\", \"/r/a/t\") = 0",
            "12 renameat(5</r/a>, \".t.tmp\", 5</r/a>, \"t\") = 0",
            "12 renameat2(AT_FDCWD</x>, \"/r/a/.t.tmp\", AT_FDCWD</x>, \"/r/a/t\", 0 <unfinished ...>",
        ] {
            assert_eq!(renamed(line, "/r"), expected, "{line}");
        }
        assert_eq!(renamed("12 fsync(3</r/a>) = 0", "/r"), None);
        assert!(
            flushes("12 fsync(3</r/a>) = 0", "/r/a") && !flushes("12 fsync(3</r/ab>) = 0", "/r/a")
        );
    }
}
