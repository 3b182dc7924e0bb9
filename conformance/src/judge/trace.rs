//! Judges of what happened when: orders, replacements, silence, transitions.
//!
//! Theory of operation. The trace is walked; see [`super`]. Where a text was read later than the event that announced
//! it, its inode tells the last event that it can belong to, and an order that this leaves open is *unsure*.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Found, not_reached, text, texts, value};
use crate::evidence::{Event, Evidence, Op};
use crate::raw;

const NO_ORDER: &str = "the system told no complete order of events";

/// First and last index at which something happened that a check describes.
struct Moment {
    early: usize,
    late: usize,
    is_found: bool,
}

fn describes(what: &Value, event: &Event) -> bool {
    if let Some(mark) = text(what, "mark") {
        return event.op == Op::Mark && event.path == mark;
    }
    if event.op == Op::Mark || event.by_suite {
        return false;
    }
    let is_removal = event.op == Op::Removed;
    let wants_removal = what.get("removed").and_then(Value::as_bool).unwrap_or_default();
    let path = texts(what, "path").iter().any(|pattern| raw::matches(pattern, &event.path));
    let holds = what.get("where").is_none_or(|members| {
        let doc = event.version.as_ref().and_then(|version| version.json());
        doc.is_some_and(|doc| value::hold(&doc, members).is_ok())
    });
    let made = text(what, "op") != Some("made") || event.op == Op::Created;
    path && is_removal == wants_removal && made && (is_removal || holds)
}

fn moment(seen: &Evidence, what: &Value) -> Option<Moment> {
    let is_so = |event: &Event| describes(what, event);
    let early = match what.get("last").and_then(Value::as_bool) {
        Some(true) => seen.trace.iter().rposition(is_so)?,
        _ => seen.trace.iter().position(is_so)?,
    };
    let event = &seen.trace[early];
    let same = |other: &Event| {
        let inodes = (other.version.as_ref(), event.version.as_ref());
        other.path == event.path
            && matches!(inodes, (Some(a), Some(b)) if a.ino == b.ino && a.text == b.text)
    };
    let late = seen.trace.iter().rposition(same).unwrap_or(early);
    Some(Moment { early, late: late.max(early), is_found: event.op == Op::Found })
}

fn told(what: &Value) -> String {
    let path = text(what, "mark").map_or_else(|| texts(what, "path").join(" or "), str::to_owned);
    let end = if what.get("removed").is_some() { " removed" } else { "" };
    match what.get("where") {
        Some(members) => format!("{path}{end} with {members}"),
        None => format!("{path}{end}"),
    }
}

/// `first` comes before `then`. Both have to come, unless `optional` is set, which excuses what never came.
pub(super) fn order(seen: &Evidence, args: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure(NO_ORDER.into());
    }
    let (first, then) = (args.get("first").unwrap_or(args), args.get("then").unwrap_or(args));
    let optional = args.get("optional").and_then(Value::as_bool).unwrap_or_default();
    let (before, after) = match (moment(seen, first), moment(seen, then)) {
        (_, None) if optional => return Found::Good(format!("{} never came", told(then))),
        (_, None) if text(then, "mark").is_some() => {
            return not_reached(seen, text(then, "mark").unwrap_or_default());
        }
        (None, None) => {
            return Found::Bad(format!("neither {} nor {} came", told(first), told(then)));
        }
        (None, Some(_)) => {
            return Found::Bad(format!("{} came without {}", told(then), told(first)));
        }
        (Some(_), None) => return Found::Bad(format!("{} never came", told(then))),
        (Some(before), Some(after)) => (before, after),
    };
    let at = |index: usize| seen.trace[index].at_ms;
    if before.late < after.early {
        let (a, b) = (at(before.early), at(after.early));
        return Found::Good(format!("{} at {a} ms, {} at {b} ms", told(first), told(then)));
    }
    if after.is_found || before.early < after.late {
        return Found::Unsure(format!(
            "{} and {} came too close together",
            told(first),
            told(then)
        ));
    }
    Found::Bad(format!(
        "{} came at {} ms, after {} at {} ms",
        told(first),
        at(before.early),
        told(then),
        at(after.late)
    ))
}

/// Nothing that the check describes happened between two marks, or no more often than `most`. `but` excuses paths.
pub(super) fn never(seen: &Evidence, args: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure(NO_ORDER.into());
    }
    let (from, to) = (text(args, "from"), text(args, "to"));
    let part = match seen.between(from, to) {
        Ok(part) => part,
        // What was to come before a moment that never came may have come at any time.
        Err(mark) => match seen.between(from, None) {
            Ok(part) if to == Some(mark.as_str()) => part,
            _ => return not_reached(seen, &mark),
        },
    };
    let but = texts(args, "but");
    let excused = |event: &Event| but.iter().any(|pattern| raw::matches(pattern, &event.path));
    let any = args.get("removed").is_none() && args.get("any") == Some(&Value::Bool(true));
    let most = args.get("most").and_then(Value::as_u64).unwrap_or_default();
    let mut hits = part.iter().filter(|event| {
        let described = if any {
            let paths = texts(args, "path");
            event.op != Op::Mark
                && !event.by_suite
                && paths.iter().any(|pattern| raw::matches(pattern, &event.path))
        } else {
            describes(args, event)
        };
        described && event.op != Op::Found && !excused(event)
    });
    match hits.nth(usize::try_from(most).unwrap_or(usize::MAX)) {
        Some(event) => {
            Found::Bad(format!("{} was {} at {} ms", event.path, event.op.word(), event.at_ms))
        }
        None => match to.filter(|mark| seen.mark(mark).is_none()) {
            Some(mark) => not_reached(seen, mark),
            None => Found::Good("nothing of the kind happened".into()),
        },
    }
}

/// What the texts of `path` had at the pointer `at` at any time, every later one has there: no member of the first is gone.
pub(super) fn kept(seen: &Evidence, args: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure(NO_ORDER.into());
    }
    let (path, at) = (text(args, "path").unwrap_or_default(), text(args, "at").unwrap_or_default());
    let mut known = BTreeSet::new();
    for (index, version) in seen.versions(path) {
        let doc = version.json();
        let Some(members) = doc.as_ref().and_then(|doc| doc.pointer(at)?.as_object()) else {
            continue;
        };
        if let Some(gone) = known.iter().find(|key: &&String| !members.contains_key(*key)) {
            let at_ms = seen.trace[index].at_ms;
            return Found::Bad(format!("at {at_ms} ms {path} did not have {at}/{gone} any more"));
        }
        known.extend(members.keys().cloned());
    }
    match known.len() {
        0 => Found::Unsure(format!("{path} never had anything at {at}")),
        n => Found::Good(format!("{n} members were kept")),
    }
}

/// How the texts of some paths came: `part` is `place` (by a rename), `directory` (from the same one), `names` (from a
/// temp name), `random` (with so many random characters) or `promoted` (from the pending area).
pub(super) fn replaced(seen: &Evidence, args: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure(NO_ORDER.into());
    }
    let patterns = texts(args, "path");
    let part = text(args, "part").unwrap_or("place");
    let mut count = 0;
    let concerns = |event: &&Event| {
        !event.by_suite
            && !event.is_dir
            && patterns.iter().any(|pattern| raw::matches(pattern, &event.path))
    };
    for event in seen.trace.iter().filter(concerns) {
        let Event { path, at_ms, .. } = event;
        match event.op {
            Op::Created | Op::Modified if matches!(part, "place" | "promoted") => {
                return Found::Bad(format!(
                    "{path} was {} under its own name at {at_ms} ms",
                    event.op.word()
                ));
            }
            Op::Renamed => {
                count += 1;
                if let Some(why) = bad_rename(event, part, args) {
                    return Found::Bad(format!("{path} at {at_ms} ms: {why}"));
                }
            }
            _ => {}
        }
    }
    match count {
        0 if part == "promoted" => Found::Good("it was never made public".into()),
        0 => Found::Unsure(format!("{} was never replaced", patterns.join(" or "))),
        n => Found::Good(format!("{n} replacements, each by a rename")),
    }
}

fn bad_rename(event: &Event, part: &str, args: &Value) -> Option<String> {
    let split = |path: &str| {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (dir.to_owned(), name.to_owned())
    };
    let from = event.from.as_deref();
    let ((old_dir, old), (dir, name)) = (split(from.unwrap_or_default()), split(&event.path));
    match part {
        "place" => None,
        "promoted" => {
            let good = from.is_some() && old_dir.contains("result-pending/");
            (!good).then(|| format!("it came from {}", from.unwrap_or("outside of the store")))
        }
        "directory" => match from {
            None => Some("it came from outside of the store".into()),
            Some(_) if old_dir == dir => None,
            Some(from) => Some(format!("it came from another directory, {from}")),
        },
        "names" => {
            let named = [format!(".{name}."), format!(".{}.", raw::sha256(name.as_bytes()))];
            let good = raw::is_temp_name(&old) && named.iter().any(|start| old.starts_with(start));
            (from.is_some() && !good).then(|| format!("`{old}` is no temp name of `{name}`"))
        }
        // 13 letters and digits hold 64 bits; the reference has 10 to 12, which the clause calls too few.
        _ => {
            let least = args.get("least").and_then(Value::as_u64).unwrap_or(13);
            let random = raw::temp_random(&old).map(|random| random.len() as u64);
            random.filter(|n| *n < least).map(|n| format!("`{old}` has {n} random characters"))
        }
    }
}

/// Only places that a runner owns were changed.
pub(super) fn outside(seen: &Evidence, args: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure(NO_ORDER.into());
    }
    let allowed = texts(args, "allowed");
    let is_allowed = |path: &str| allowed.iter().any(|pattern| raw::matches(pattern, path));
    let hit = seen.trace.iter().find(|event| {
        !matches!(event.op, Op::Mark | Op::Found) && !event.by_suite && !is_allowed(&event.path)
    });
    match hit {
        Some(event) => {
            Found::Bad(format!("{} was {} at {} ms", event.path, event.op.word(), event.at_ms))
        }
        None => Found::Good("nothing else was touched".into()),
    }
}

/// Nothing that fits `path` (everything, if there is none) and not `but` was changed: no event, and the same in picture
/// `before` (`start`) and picture `at` (`end`).
pub(super) fn untouched(seen: &Evidence, args: &Value) -> Found {
    let name = |key: &str, other| text(args, key).unwrap_or(other).to_owned();
    let (before, at) = (name("before", "start"), name("at", "end"));
    let Some(first) = seen.trees.get(&before) else { return not_reached(seen, &before) };
    let Some(last) = seen.trees.get(&at) else { return not_reached(seen, &at) };
    let (paths, but) = (texts(args, "path"), texts(args, "but"));
    let is_in = |list: &[&str], path: &str| list.iter().any(|pattern| raw::matches(pattern, path));
    let is_asked = |path: &str| (paths.is_empty() || is_in(&paths, path)) && !is_in(&but, path);
    let is_change = |event: &&Event| !matches!(event.op, Op::Mark | Op::Found) && !event.by_suite;
    let mut events = seen.trace.iter().filter(is_change);
    if let Some(event) = events.find(|event| is_asked(&event.path)) {
        return Found::Bad(format!("{} was {}", event.path, event.op.word()));
    }
    let names: BTreeSet<&String> = first.keys().chain(last.keys()).collect();
    match names.into_iter().find(|path| is_asked(path) && first.get(*path) != last.get(*path)) {
        None => Found::Good("nothing was changed".into()),
        Some(path) => Found::Bad(format!("{path} is not what it was")),
    }
}

/// Every text of the status is whole and has a known word, and no transition leads out of an end.
pub(super) fn states(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let known =
        ["queued", "running", "complete", "failed", "partial", "paused", "stopped", "rejected"];
    let mut before: Option<(String, bool)> = None;
    let mut count = 0;
    for (at, version) in seen.versions(path) {
        let at_ms = seen.trace[at].at_ms;
        let Some(doc) = version.json() else {
            return Found::Bad(format!("at {at_ms} ms the status was no JSON"));
        };
        let word = doc.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !known.contains(&word.as_str()) {
            return Found::Bad(format!("at {at_ms} ms the state was `{word}`"));
        }
        let is_active = matches!(word.as_str(), "queued" | "running");
        let is_final = !is_active && doc.get("endedAt").is_some_and(Value::is_number);
        if let Some((old, true)) = &before {
            let is_later_failure = word == "failed";
            if is_active || (*old != word && !is_later_failure && old != "paused") {
                return Found::Bad(format!(
                    "at {at_ms} ms the state went from `{old}` to `{word}`"
                ));
            }
        }
        before = Some((word, is_final));
        count += 1;
    }
    match count {
        0 => Found::Unsure("the subject wrote no status".into()),
        n => Found::Good(format!("{n} texts")),
    }
}
