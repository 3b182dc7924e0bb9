//! Judges of what is left: exits, names, modes, processes, outputs, durations.

use serde_json::Value;

use super::{Found, not_reached, said, text, texts};
use crate::evidence::{Ended, Entry, Evidence, Tree};
use crate::raw;

/// How the subject, or the call that `of` names, ended: `code` is `zero`, `non-zero`, `any`, or a number.
pub(super) fn exits(seen: &Evidence, args: &Value) -> Found {
    let wanted = text(args, "code").unwrap_or("zero");
    let number = args.get("code").and_then(Value::as_i64);
    let said = match said(seen, args) {
        Ok(said) => said,
        Err(found) => return found,
    };
    let ended = match &said.ended {
        None => return Found::Unsure("it was never started".into()),
        Some(ended) => ended,
    };
    let (good, told) = match ended {
        Ended::Exit(code) => {
            let good = match (number, wanted) {
                (Some(number), _) => i64::from(*code) == number,
                (None, "zero") => *code == 0,
                (None, "non-zero") => *code != 0,
                _ => true,
            };
            (good, format!("it exited with {code}"))
        }
        Ended::Signal(signal) => (wanted == "any", format!("it was ended by signal {signal}")),
        Ended::Forced(why) => (false, format!("it had to be ended: {why}")),
    };
    if good { Found::Good(told) } else { Found::Bad(told) }
}

fn tree<'e>(seen: &'e Evidence, args: &Value) -> Result<&'e Tree, Found> {
    let name = text(args, "at").unwrap_or("end");
    seen.trees.get(name).ok_or_else(|| not_reached(seen, name))
}

/// The names of a picture that fit one of the patterns and, if `text` is given, hold that text.
fn fitting<'t>(tree: &'t Tree, args: &Value) -> Vec<(&'t String, &'t Entry)> {
    let (patterns, but) = (texts(args, "path"), texts(args, "but"));
    let wanted = text(args, "text");
    let is_in = |list: &[&str], path: &str| list.iter().any(|pattern| raw::matches(pattern, path));
    let holds = |entry: &Entry| {
        wanted.is_none_or(|wanted| entry.text.as_deref().is_some_and(|text| text.contains(wanted)))
    };
    let kind = text(args, "kind");
    tree.iter()
        .filter(|(path, entry)| {
            is_in(&patterns, path)
                && !is_in(&but, path)
                && holds(entry)
                && kind.is_none_or(|kind| entry.kind == kind)
        })
        .collect()
}

/// Something that fits is there.
pub(super) fn present(seen: &Evidence, args: &Value) -> Found {
    is_there(seen, args, Found::Good, Found::Bad)
}

/// Nothing that fits is there.
pub(super) fn absent(seen: &Evidence, args: &Value) -> Found {
    is_there(seen, args, Found::Bad, Found::Good)
}

type Told = fn(String) -> Found;

fn is_there(seen: &Evidence, args: &Value, there: Told, not_there: Told) -> Found {
    match tree(seen, args) {
        Err(unsure) => unsure,
        Ok(tree) => match fitting(tree, args).first() {
            Some((path, entry)) => there(format!("{path} is there, a {}", entry.kind)),
            None => not_there(format!("{} is not there", texts(args, "path").join(" or "))),
        },
    }
}

/// What stands at a path is what stood there before, as text or as link.
pub(super) fn same(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let before = text(args, "before").unwrap_or("start");
    let Some(old) = seen.trees.get(before) else { return not_reached(seen, before) };
    let new = match tree(seen, args) {
        Err(unsure) => return unsure,
        Ok(tree) => tree,
    };
    let shown =
        |tree: &Tree| tree.get(path).map(|entry| (entry.kind, entry.size, entry.text.clone()));
    match (shown(old), shown(new)) {
        (old, new) if old == new => Found::Good(format!("{path} is as it was")),
        (_, None) => Found::Bad(format!("{path} is gone")),
        (None, _) => Found::Bad(format!("{path} is new")),
        (_, Some((kind, size, _))) => Found::Bad(format!("{path} is now a {kind} of {size} bytes")),
    }
}

/// What the subject made may be read by its user alone.
pub(super) fn modes(seen: &Evidence, args: &Value) -> Found {
    let (Some(start), Some(end)) = (seen.trees.get("start"), seen.trees.get("end")) else {
        return not_reached(seen, "end");
    };
    let wants = text(args, "kind").unwrap_or("file");
    let mut count = 0;
    for (path, entry) in end {
        let is_new = !start.contains_key(path) && entry.kind == wants;
        let excused = texts(args, "but").iter().any(|pattern| raw::matches(pattern, path));
        let of_suite = seen.said.contains(path) && entry.size == 0;
        if !is_new || excused || of_suite {
            continue;
        }
        count += 1;
        if entry.mode & 0o077 != 0 {
            return Found::Bad(format!("{path} has mode {:04o}", entry.mode));
        }
    }
    match count {
        0 => Found::Unsure(format!("it made no {wants}")),
        n => Found::Good(format!("{n} looked at")),
    }
}

/// Names have no bits for others, or exactly these (`exact`, octal).
pub(super) fn mode_of(seen: &Evidence, args: &Value) -> Found {
    let tree = match tree(seen, args) {
        Err(unsure) => return unsure,
        Ok(tree) => tree,
    };
    let exact = text(args, "exact").and_then(|mode| u32::from_str_radix(mode, 8).ok());
    for pattern in texts(args, "path") {
        let fits = tree.iter().filter(|(path, _)| raw::matches(pattern, path)).collect::<Vec<_>>();
        if fits.is_empty() {
            return Found::Bad(format!("{pattern} is not there"));
        }
        let good =
            |entry: &Entry| exact.map_or(entry.mode & 0o077 == 0, |exact| entry.mode == exact);
        if let Some((path, entry)) = fits.into_iter().find(|(_, entry)| !good(entry)) {
            return Found::Bad(format!("{path} has mode {:04o}", entry.mode));
        }
    }
    Found::Good("as expected".into())
}

/// A file is there and not larger than `mostBytes`.
pub(super) fn size(seen: &Evidence, args: &Value) -> Found {
    let most = args.get("mostBytes").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let tree = match tree(seen, args) {
        Err(unsure) => return unsure,
        Ok(tree) => tree,
    };
    match fitting(tree, args).first() {
        None => Found::Bad(format!("{} is not there", texts(args, "path").join(" or "))),
        Some((path, entry)) if entry.size > most => {
            Found::Bad(format!("{path} has {} bytes", entry.size))
        }
        Some((path, entry)) => Found::Good(format!("{path} has {} bytes", entry.size)),
    }
}

/// A document is indented by two spaces and has no newline at its end.
pub(super) fn form(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let tree = match tree(seen, args) {
        Err(unsure) => return unsure,
        Ok(tree) => tree,
    };
    let Some(text) = tree.get(path).and_then(|entry| entry.text.as_deref()) else {
        return Found::Bad(format!("{path} is not there"));
    };
    if text.ends_with('\n') {
        return Found::Bad(format!("{path} ends in a newline"));
    }
    let second = text.lines().nth(1).unwrap_or_default();
    if second.starts_with("  \"") && second.contains("\": ") {
        return Found::Good(format!("{path} has the form"));
    }
    Found::Bad(format!("the second line of {path} is `{}`", raw::brief(second, 60)))
}

/// No process of the subject was left when it had ended.
pub(super) fn gone(seen: &Evidence, _args: &Value) -> Found {
    if !cfg!(target_os = "linux") {
        return Found::Unsure("processes can be looked for on Linux only".into());
    }
    match (&seen.last.ended, seen.left.as_slice()) {
        (None | Some(Ended::Forced(_)), _) => Found::Unsure("it did not end by itself".into()),
        (_, []) => Found::Good("nothing was left".into()),
        (_, left) => Found::Bad(format!("{} was left", raw::brief(&left.join("; "), 200))),
    }
}

/// What the subject said: it `has` some text, or `lacks` it.
pub(super) fn says(seen: &Evidence, args: &Value) -> Found {
    let said = match said(seen, args) {
        Ok(said) => format!("{}{}", said.stderr, said.stdout),
        Err(found) => return found,
    };
    if let Some(secret) = text(args, "lacks").filter(|secret| said.contains(secret)) {
        return Found::Bad(format!("it said `{secret}`"));
    }
    if let Some(word) = text(args, "has").filter(|word| !said.contains(word)) {
        return Found::Bad(format!("it did not say `{word}`, but `{}`", raw::brief(&said, 120)));
    }
    Found::Good(format!("it said `{}`", raw::brief(&said, 120)))
}

/// From one mark to another it took so long.
pub(super) fn took(seen: &Evidence, args: &Value) -> Found {
    let (from, to) = (text(args, "from").unwrap_or("start"), text(args, "to").unwrap_or("exit"));
    let at = |mark: &str| seen.mark(mark).map(|at| seen.trace[at].at_ms);
    let Some(began) = at(from) else { return not_reached(seen, from) };
    let limit = |key: &str| args.get(key).and_then(Value::as_u64);
    let most = limit("mostMs").unwrap_or(u64::MAX);
    let Some(ended) = at(to) else {
        let waited = seen.took_ms.saturating_sub(began);
        if waited > most && seen.missed.is_some() {
            return Found::Bad(format!("`{to}` did not come within {waited} ms"));
        }
        return not_reached(seen, to);
    };
    let ms = ended.saturating_sub(began);
    if ms < limit("leastMs").unwrap_or(0) || ms > most {
        return Found::Bad(format!("it took {ms} ms"));
    }
    Found::Good(format!("it took {ms} ms"))
}
