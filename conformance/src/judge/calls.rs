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
    let paths = paths_of(line.split_once("rename")?.1, root, 2)?;
    Some((paths.first()?.clone(), paths.get(1)?.clone()))
}

/// What a line removes, from the top of the store.
fn removed(line: &str, root: &str) -> Option<String> {
    let call = line.split_once("unlink").or_else(|| line.split_once("rmdir"))?.1;
    paths_of(call, root, 1)?.pop()
}

/// The first paths of a call, from the top of the store; `None` if one is not in it.
fn paths_of(call: &str, root: &str, count: usize) -> Option<Vec<String>> {
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
        if paths.len() == count {
            break;
        }
    }
    let below = |path: &String| path.strip_prefix(root)?.strip_prefix('/').map(str::to_owned);
    paths.iter().map(below).collect()
}

/// Whether a line flushes a path.
fn flushes(line: &str, path: &str) -> bool {
    let is_flush = line.contains("fsync(") || line.contains("fdatasync(");
    is_flush && line.contains(&format!("<{path}>"))
}

/// Every rename onto `path` came after a flush of the temp file (`part` `file`), or was followed by one of its directory
/// (`part` `directory`; of the last rename onto each name), and before something that fits `until` was removed.
pub(super) fn flushed(seen: &Evidence, args: &Value) -> Found {
    let Some(root) = seen.names.get("root") else { return not_reached(seen, "start") };
    let patterns = texts(args, "path");
    let (part, until) = (text(args, "part").unwrap_or("file"), texts(args, "until"));
    let ends = |line: &String| {
        removed(line, root).is_some_and(|path| until.iter().any(|p| raw::matches(p, &path)))
    };
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
        let mut later = seen.calls[*at..].iter().take_while(|line| !ends(line));
        if !later.any(|line| flushes(line, &dir)) {
            let limit = if until.is_empty() { "" } else { ", or not before the removal" };
            return Found::Bad(format!(
                "the directory of {new} was not flushed after the rename{limit}"
            ));
        }
    }
    match count {
        0 => Found::Unsure(format!("no rename onto {} was recorded", patterns.join(" or "))),
        n => Found::Good(format!("{n} renames were looked at")),
    }
}

/// Whether a line holds every one of some texts.
fn holds(line: &str, words: &[&str]) -> bool {
    words.iter().all(|word| line.contains(word))
}

/// Of the recorded calls, those that hold all texts of `of` (every one, without it): one of them `has` these texts, none
/// of them does (`lacks`), `each` does, there are so many (`count`), or the first of them comes before the first that holds `then`.
/// With `after` only what came after the first call with these texts counts.
pub(super) fn calls(seen: &Evidence, args: &Value) -> Found {
    if seen.calls.is_empty() {
        return Found::Unsure("no system calls were recorded".into());
    }
    let of = texts(args, "of");
    let after = texts(args, "after");
    let begin = seen.calls.iter().position(|line| holds(line, &after));
    let Some(recorded) = begin.and_then(|at| seen.calls.get(at + usize::from(!after.is_empty())..))
    else {
        return Found::Unsure(format!("no call holds {}", after.join(" and ")));
    };
    let lines: Vec<_> = recorded.iter().enumerate().filter(|(_, line)| holds(line, &of)).collect();
    let list = |key: &str| args.get(key).map(|_| texts(args, key));
    let told = |what: &str| format!("{what} ({} calls hold {})", lines.len(), of.join(" and "));
    let line_that = |bad: &dyn Fn(&str) -> bool| {
        let hit = lines.iter().find(|(_, line)| bad(line.as_str()));
        hit.map(|(_, line)| Found::Bad(told(&format!("there is `{}`", raw::brief(line, 160)))))
    };
    let wanted = args.get("count").and_then(Value::as_u64);
    if let Some(count) = wanted.filter(|count| lines.len() as u64 != *count) {
        return Found::Bad(told(&format!("there are not {count}")));
    }
    if let Some(has) = list("has").filter(|has| !lines.iter().any(|(_, line)| holds(line, has))) {
        return Found::Bad(told(&format!("none of them holds {}", has.join(" and "))));
    }
    if let Some(bad) = list("lacks").and_then(|lacks| line_that(&|line| holds(line, &lacks))) {
        return bad;
    }
    if let Some(bad) = list("each").and_then(|each| line_that(&|line| !holds(line, &each))) {
        return bad;
    }
    if let Some(then) = list("then") {
        let later = recorded.iter().position(|line| holds(line, &then));
        match (lines.first(), later) {
            (Some((first, _)), Some(later)) if *first < later => {}
            (Some(_), Some(_)) => {
                return Found::Bad(told(&format!("{} came before them", then.join(" and "))));
            }
            _ => return Found::Unsure(told(&format!("no order with {}", then.join(" and ")))),
        }
    }
    Found::Good(told("so it was"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_looked_for() {
        let lines = ["1 openat(a, O_EXCL)", "1 openat(b)", "1 rename(a, b)"];
        let seen = Evidence { calls: lines.map(str::to_owned).into(), ..Evidence::default() };
        for (args, good) in [
            (serde_json::json!({"of": "openat", "has": "O_EXCL"}), true),
            (serde_json::json!({"of": "rename", "has": "O_EXCL"}), false),
            (serde_json::json!({"of": "openat", "each": "O_EXCL"}), false),
            (serde_json::json!({"of": "openat", "each": ["1", "("]}), true),
            (serde_json::json!({"of": "openat", "count": 2}), true),
            (serde_json::json!({"of": "openat", "count": 1}), false),
            (serde_json::json!({"lacks": "unlink"}), true),
            (serde_json::json!({"lacks": "rename"}), false),
            (serde_json::json!({"of": "openat", "then": "rename"}), true),
            (serde_json::json!({"of": "rename", "then": "openat"}), false),
            (serde_json::json!({"after": "O_EXCL", "of": "openat", "count": 1}), true),
            (serde_json::json!({"after": "openat(b)", "of": "rename", "lacks": "openat"}), true),
            (serde_json::json!({"after": "openat(b)", "of": "openat", "then": "rename"}), false),
        ] {
            let found = calls(&seen, &args);
            assert_eq!(matches!(found, Found::Good(_)), good, "{args}: {found:?}");
        }
    }

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
        for line in ["12 unlinkat(5</r/a>, \"t\", 0) = 0", "12 unlink(\"/r/a/t\") = 0"] {
            assert_eq!(removed(line, "/r"), Some("a/t".to_owned()), "{line}");
        }
        assert!(
            flushes("12 fsync(3</r/a>) = 0", "/r/a") && !flushes("12 fsync(3</r/ab>) = 0", "/r/a")
        );
    }
}
