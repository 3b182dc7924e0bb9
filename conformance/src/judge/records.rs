//! Judges of what documents say: members, candidates, results, index entries, event lines.

use serde_json::Value;

use super::{Found, not_reached, said, text, texts, value};
use crate::evidence::Evidence;
use crate::raw;

/// A document at the end, or in a picture.
fn document(seen: &Evidence, at: &str, path: &str) -> Result<Value, Found> {
    let tree = seen.trees.get(at).ok_or_else(|| not_reached(seen, at))?;
    let entry = tree.iter().find(|(name, _)| raw::matches(path, name));
    let (name, entry) = entry.ok_or_else(|| Found::Bad(format!("{path} is not there")))?;
    let text = entry.text.as_deref().unwrap_or_default();
    serde_json::from_str(text).map_err(|_| Found::Bad(format!("{name} is no JSON document")))
}

/// Members of a document: in a picture (`at`), or of the texts that came (`when`: `first`, `each`, `last`).
pub(super) fn json(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let nothing = Value::Null;
    let want = args.get("want").unwrap_or(&nothing);
    let Some(when) = text(args, "when") else {
        return match document(seen, text(args, "at").unwrap_or("end"), path) {
            Err(found) => found,
            Ok(doc) => match value::hold(&doc, want) {
                Ok(()) => Found::Good(format!("{path} says so")),
                Err(why) => Found::Bad(format!("in {path} {why}")),
            },
        };
    };
    versions(seen, args, path, when, want)
}

fn versions(seen: &Evidence, args: &Value, path: &str, when: &str, want: &Value) -> Found {
    if !seen.is_ordered {
        return Found::Unsure("the system told no complete order of events".into());
    }
    let from = text(args, "from");
    let Some(begin) = from.map_or(Some(0), |mark| seen.mark(mark)) else {
        return not_reached(seen, from.unwrap_or_default());
    };
    let filter = args.get("where");
    let own = args.get("ownProcess") == Some(&Value::Bool(true));
    let mut docs = Vec::new();
    for (at, version) in seen.versions(path).filter(|(at, _)| *at >= begin) {
        let at_ms = seen.trace[at].at_ms;
        let Some(doc) = version.json() else {
            return Found::Bad(format!("at {at_ms} ms {path} was no JSON document"));
        };
        if filter.is_none_or(|filter| value::hold(&doc, filter).is_ok()) {
            docs.push((at_ms, doc, version.own_process));
        }
    }
    let chosen = match when {
        "first" => docs.get(..1.min(docs.len())).unwrap_or_default(),
        "last" => docs.get(docs.len().saturating_sub(1)..).unwrap_or_default(),
        _ => docs.as_slice(),
    };
    if chosen.is_empty() {
        let told = filter.map(|filter| format!(" with {filter}")).unwrap_or_default();
        return match &seen.missed {
            Some(why) if from.is_some() && filter.is_none() => Found::Unsure(why.clone()),
            _ => Found::Bad(format!("{path}{told} never came")),
        };
    }
    for (at_ms, doc, process) in chosen {
        if let Err(why) = value::hold(doc, want) {
            return Found::Bad(format!("at {at_ms} ms in {path} {why}"));
        }
        if own && *process == Some(false) {
            return Found::Bad(format!(
                "at {at_ms} ms {path} named a process that is not of the subject"
            ));
        }
        if own && process.is_none() {
            return Found::Bad(format!("at {at_ms} ms {path} named no process"));
        }
    }
    Found::Good(format!("{} texts of {path} say so", chosen.len()))
}

fn is_finite(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_number)
}

fn filled(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

fn number_or_null(value: Option<&Value>) -> bool {
    value.is_some_and(|v| v.is_null() || v.is_number())
}

/// Why a writer instance is not valid.
fn bad_writer(writer: &Value) -> Option<&'static str> {
    let get = |key: &str| writer.get(key);
    let signal = get("signal").is_some_and(|v| v.is_null() || v.is_string());
    let attempt = get("attempt").is_some_and(Value::is_u64);
    let tree = match get("processTree") {
        None => true,
        Some(tree) => match tree.get("state").and_then(Value::as_str) {
            Some("observed") => {
                tree.get("mechanism").and_then(Value::as_str) == Some("posix-process-group")
                    && tree.get("processGroupId").and_then(Value::as_i64).is_some_and(|id| id > 0)
                    && is_finite(tree.get("verifiedAt"))
            }
            Some("unknown") => filled(tree.get("reason")),
            _ => false,
        },
    };
    let kind = get("kind").and_then(Value::as_str);
    [
        (filled(get("processInstanceId")), "has no instance id"),
        (matches!(kind, Some("pi-writer" | "dm-writer")), "has no known kind"),
        (is_finite(get("closeObservedAt")), "has no instant of its close"),
        (number_or_null(get("exitCode")), "has no exit code"),
        (signal, "has no signal member"),
        (attempt, "has no attempt"),
        (tree, "has a process tree that no reader accepts"),
    ]
    .into_iter()
    .find_map(|(good, why)| (!good).then_some(why))
}

/// The last candidate: `part` is `valid`, `ids`, `counts`, `agree`, `records`, `trees` or `kind`.
pub(super) fn candidate(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let doc = match document(seen, "end", path) {
        Ok(doc) => doc,
        Err(found) => return found,
    };
    let name = |key: &str| seen.names.get(key).map(String::as_str);
    let nothing = serde_json::Map::new();
    let writers = doc.get("writers").and_then(Value::as_object);
    let counts = doc.get("expectedWriters").and_then(Value::as_object).unwrap_or(&nothing);
    let all = || writers.unwrap_or(&nothing).values().filter_map(Value::as_array).flatten();
    let steps = args.get("steps").and_then(Value::as_u64).unwrap_or(1);
    let missing = (0..steps).find(|i| !counts.contains_key(&i.to_string()));
    let bad = match text(args, "part").unwrap_or_default() {
        "valid" => invalid(&doc),
        "ids" => {
            let right = doc.get("runId").and_then(Value::as_str) == name("runId")
                && doc.get("runnerProcessInstanceId").and_then(Value::as_str) == name("instance");
            (!right).then(|| "it names another run or instance".to_owned())
        }
        "counts" if counts.is_empty() => Some("it has no expected counts".to_owned()),
        "counts" => missing.map(|i| format!("it has no expected count for step {i}")),
        "agree" => disagree(writers.unwrap_or(&nothing), counts),
        "records" => {
            let ran = args.get("ran").and_then(Value::as_u64).unwrap_or(steps);
            (all().count() as u64 != ran).then(|| {
                format!("it has {} writer records for {ran} steps that ran", all().count())
            })
        }
        "trees" => all()
            .find(|w| w.pointer("/processTree/state").and_then(Value::as_str) != Some("observed"))
            .map(|w| {
                format!("the tree of a writer is {}", w.get("processTree").unwrap_or(&Value::Null))
            }),
        "kind" => all()
            .find(|w| w.get("kind").and_then(Value::as_str) != text(args, "kind"))
            .map(|w| format!("a writer is of kind {}", w.get("kind").unwrap_or(&Value::Null))),
        other => return Found::Unsure(format!("no part of a candidate is called `{other}`")),
    };
    match bad {
        Some(why) => Found::Bad(format!("{path}: {why}")),
        None => Found::Good(format!("{} writer records, {} counts", all().count(), counts.len())),
    }
}

fn invalid(doc: &Value) -> Option<String> {
    if doc.get("version") != Some(&Value::from(1)) {
        return Some("its version is not 1".into());
    }
    for key in ["runId", "runnerProcessInstanceId"] {
        if !doc.get(key).is_some_and(Value::is_string) {
            return Some(format!("`{key}` is no text"));
        }
    }
    let Some(writers) = doc.get("writers").and_then(Value::as_object) else {
        return Some("`writers` is no object".into());
    };
    for (step, list) in writers {
        let Some(list) = list.as_array() else {
            return Some(format!("`writers.{step}` is no list"));
        };
        if let Some(why) = list.iter().find_map(bad_writer) {
            return Some(format!("a writer of step {step} {why}"));
        }
    }
    match doc.get("expectedWriters") {
        None => None,
        Some(Value::Object(counts)) => {
            let bad = counts.iter().find(|(_, n)| !n.is_u64());
            bad.map(|(step, _)| format!("the count of step {step} is no number of 0 or more"))
        }
        Some(_) => Some("`expectedWriters` is no object".into()),
    }
}

/// Row F-10 of chapter 6.
fn disagree(
    writers: &serde_json::Map<String, Value>,
    counts: &serde_json::Map<String, Value>,
) -> Option<String> {
    let records =
        |step: &str| writers.get(step).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if let Some(step) = writers.keys().find(|step| !counts.contains_key(*step)) {
        return Some(format!("writers of step {step} have no expected count"));
    }
    counts.iter().find_map(|(step, count)| {
        let count = count.as_u64().unwrap_or(u64::MAX);
        let is = records(step);
        (is != count)
            .then(|| format!("step {step} has {is} records and an expected count of {count}"))
    })
}

/// The result, public or pending, agrees with the status: `part` is `there`, `agrees` or `ids`.
pub(super) fn result(seen: &Evidence, args: &Value) -> Found {
    let Some(tree) = seen.trees.get("end") else { return not_reached(seen, "end") };
    let paths = texts(args, "path");
    let entry = paths.iter().find_map(|path| tree.get(*path));
    let Some(entry) = entry else {
        return Found::Bad("there is no result, public or pending".into());
    };
    let Ok(doc) = serde_json::from_str::<Value>(entry.text.as_deref().unwrap_or_default()) else {
        return Found::Bad("the result is no JSON document".into());
    };
    let status = match document(seen, "end", text(args, "status").unwrap_or_default()) {
        Ok(status) => status,
        Err(found) => return found,
    };
    let word = |doc: &Value, key: &str| doc.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = |key: &str| seen.names.get(key).cloned();
    match text(args, "part").unwrap_or_default() {
        "ids" => {
            let run = word(&doc, "runId").or_else(|| word(&doc, "id"));
            if run != name("runId") || word(&doc, "sessionId") != name("session") {
                return Found::Bad(format!(
                    "it names run {run:?} and session {:?}",
                    word(&doc, "sessionId")
                ));
            }
        }
        _ => {
            let (state, told) = (word(&status, "state"), outcome(&doc));
            if state.as_deref() != Some(told.as_str()) {
                return Found::Bad(format!("the result says `{told}`, the status {state:?}"));
            }
            let stated = word(&doc, "state");
            if stated.is_some() && stated != state {
                return Found::Bad(format!(
                    "the result has state {stated:?}, the status {state:?}"
                ));
            }
        }
    }
    Found::Good("the result agrees".into())
}

/// The outcome of a payload, RS-RESULT-05.
fn outcome(doc: &Value) -> String {
    let state = doc.get("state").and_then(Value::as_str).unwrap_or_default();
    if doc.get("success") == Some(&Value::Bool(true)) {
        return "complete".into();
    }
    if matches!(state, "stopped" | "rejected" | "partial" | "paused") {
        return state.into();
    }
    let zero = doc.get("exitCode").and_then(Value::as_i64) == Some(0);
    if zero { "paused".into() } else { "failed".into() }
}

/// The name of a terminal marker begins with the end that the status tells, in 16 digits.
pub(super) fn stamped(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let status = match document(seen, "end", text(args, "status").unwrap_or_default()) {
        Ok(status) => status,
        Err(found) => return found,
    };
    let instant =
        ["endedAt", "lastUpdate", "startedAt"].iter().find_map(|key| status.get(key)?.as_f64());
    let stamp = format!("{:016}", instant.unwrap_or_default().max(0.0).floor());
    let tree = seen.trees.get("end");
    let name = tree.and_then(|tree| tree.keys().find(|name| raw::matches(path, name)));
    let Some(name) = name else { return Found::Bad(format!("{path} is not there")) };
    let begins = name.rsplit('/').next().unwrap_or_default().starts_with(&format!("{stamp}-"));
    if begins {
        Found::Good(name.clone())
    } else {
        Found::Bad(format!("{name} does not begin with {stamp}"))
    }
}

/// An entry of the index by session leads to the result: `part` is `form` or `ids`.
pub(super) fn index(seen: &Evidence, args: &Value) -> Found {
    let path = text(args, "path").unwrap_or_default();
    let doc = match document(seen, "end", path) {
        Ok(doc) => doc,
        Err(found) => return found,
    };
    let name = |key: &str| seen.names.get(key).map(String::as_str);
    let word = |key: &str| doc.get(key).and_then(Value::as_str);
    let ids = [
        (word("runId") == name("runId"), "it names another run"),
        (word("sessionId") == name("session"), "it names another session"),
    ];
    let form = [
        (doc.get("version") == Some(&Value::from(1)), "its version is not 1"),
        (
            word("file").is_some_and(|f| f.ends_with(".json") && !f.contains('/')),
            "its file is no base name",
        ),
        (is_finite(doc.get("writtenAt")), "it does not say when it was written"),
    ];
    let asked = if text(args, "part") == Some("ids") { ids.as_slice() } else { form.as_slice() };
    let bad = asked.iter().find_map(|(good, why)| (!good).then_some(*why));
    match bad {
        Some(why) => Found::Bad(format!("{path}: {why}")),
        None => Found::Good(format!("{path} leads to the result")),
    }
}

/// What was answered (`of` a call, else of the last one), about one run (`run`) or as a whole: members (`want`), how
/// many reports a run gets (`count`), or that it gets none (`absent`).
pub(super) fn answer(seen: &Evidence, args: &Value) -> Found {
    let said = match said(seen, args) {
        Ok(said) => said,
        Err(found) => return found,
    };
    let Some(answer) = &said.answer else {
        return Found::Bad(format!("the answer was no JSON: `{}`", raw::brief(&said.stdout, 80)));
    };
    let nothing = Value::Null;
    let want = args.get("want").unwrap_or(&nothing);
    let Some(run) = text(args, "run") else {
        return match value::hold(answer, want) {
            Ok(()) => Found::Good("the answer says so".into()),
            Err(why) => Found::Bad(format!("in the answer {why}")),
        };
    };
    let runs = answer.get("runs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_it = |report: &&Value| report.get("runId").and_then(Value::as_str) == Some(run);
    let reports: Vec<_> = runs.iter().filter(is_it).collect();
    if args.get("absent") == Some(&Value::Bool(true)) {
        return match reports.first() {
            None => Found::Good(format!("there is no report of {run}")),
            Some(_) => Found::Bad(format!("there is a report of {run}")),
        };
    }
    let wanted = args.get("count").and_then(Value::as_u64);
    if let Some(n) = wanted.filter(|n| *n != reports.len() as u64) {
        return Found::Bad(format!("there are {} reports of {run} instead of {n}", reports.len()));
    }
    let Some(report) = reports.first() else {
        return Found::Bad(format!("there is no report of {run}"));
    };
    if let Err(found) = is_like(runs, report, args) {
        return found;
    }
    match value::hold(report, want) {
        Ok(()) => Found::Good(format!("the report of {run} says so")),
        Err(why) => Found::Bad(format!("in the report of {run} {why}")),
    }
}

/// A report says of some `members` (pointers) what that of the run `alike` says, and not what that of `unlike` says.
fn is_like(runs: &[Value], report: &Value, args: &Value) -> Result<(), Found> {
    for (key, wanted) in [("alike", true), ("unlike", false)] {
        let Some(other) = text(args, key) else { continue };
        let named = |report: &&Value| report.get("runId").and_then(Value::as_str) == Some(other);
        let theirs = runs.iter().find(named);
        let theirs = theirs.ok_or_else(|| Found::Bad(format!("there is no report of {other}")))?;
        for member in texts(args, "members") {
            let (own, theirs) = (report.pointer(member), theirs.pointer(member));
            if (own == theirs) != wanted || own.is_none() {
                let shown = |value: Option<&Value>| {
                    value.map_or_else(|| "nothing".to_owned(), |v| raw::brief(&v.to_string(), 80))
                };
                let (own, theirs) = (shown(own), shown(theirs));
                return Err(Found::Bad(format!("{member} is {own}, and of {other} {theirs}")));
            }
        }
    }
    Ok(())
}

fn log<'e>(seen: &'e Evidence, args: &Value) -> Result<&'e str, Found> {
    let path = text(args, "path").unwrap_or_default();
    let tree = seen.trees.get("end").ok_or_else(|| not_reached(seen, "end"))?;
    let entry = tree.get(path).ok_or_else(|| Found::Bad(format!("{path} is not there")))?;
    entry.text.as_deref().ok_or_else(|| Found::Bad(format!("{path} is no text")))
}

/// Every line of the log is one whole event. Lines of others (`skip`) are passed over.
pub(super) fn lines(seen: &Evidence, args: &Value) -> Found {
    let log = match log(seen, args) {
        Ok(log) => log,
        Err(found) => return found,
    };
    if !log.ends_with('\n') {
        return Found::Bad("the last line has no end".into());
    }
    let skip = texts(args, "skip");
    let mut count = 0;
    for (number, line) in log.lines().enumerate() {
        if skip.contains(&line) || line.is_empty() {
            continue;
        }
        let doc = serde_json::from_str::<Value>(line).ok().filter(Value::is_object);
        let Some(doc) = doc else {
            return Found::Bad(format!(
                "line {} is no object: {}",
                number + 1,
                raw::brief(line, 80)
            ));
        };
        let kind = doc.get("type").and_then(Value::as_str).unwrap_or_default();
        let own = kind.starts_with("subagent.") && kind != "subagent.child.stderr";
        let named =
            doc.get("runId").and_then(Value::as_str) == seen.names.get("runId").map(String::as_str);
        if kind.is_empty() || (own && !(is_finite(doc.get("ts")) && named)) {
            return Found::Bad(format!("line {} lacks type, ts or runId", number + 1));
        }
        count += 1;
    }
    Found::Good(format!("{count} events"))
}

/// An event of a type is there, with members; `count` says how often.
pub(super) fn event(seen: &Evidence, args: &Value) -> Found {
    let log = match log(seen, args) {
        Ok(log) => log,
        Err(found) => return found,
    };
    let kind = text(args, "type").unwrap_or_default();
    let nothing = Value::Null;
    let want = args.get("want").unwrap_or(&nothing);
    let docs = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_kind: Vec<_> =
        docs.filter(|doc| doc.get("type").and_then(Value::as_str) == Some(kind)).collect();
    let fitting = of_kind.iter().filter(|doc| value::hold(doc, want).is_ok()).count();
    if fitting == 0 {
        let why = of_kind.first().and_then(|doc| value::hold(doc, want).err());
        return Found::Bad(why.unwrap_or_else(|| format!("no event `{kind}`")));
    }
    let wanted = args.get("count").and_then(Value::as_u64);
    match wanted.filter(|n| *n != fitting as u64) {
        Some(n) => Found::Bad(format!("{fitting} events `{kind}` instead of {n}")),
        None => Found::Good(format!("{fitting} events `{kind}`")),
    }
}

/// No text was torn while the suite read at full rate.
pub(super) fn after_torn(seen: &Evidence, _args: &Value) -> Found {
    match seen.torn.iter().next() {
        Some((path, times)) => Found::Bad(format!("{path} was torn {times} times")),
        None if seen.whole == 0 => Found::Unsure("nothing was read at full rate".into()),
        None => Found::Good(format!("{} texts were read, each whole", seen.whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_are_compared_in_the_members_that_a_check_names() {
        let runs = [
            json!({"runId": "a", "d": "x"}),
            json!({"runId": "b", "d": "x"}),
            json!({"runId": "c", "d": "y"}),
        ];
        for (args, good) in [
            (json!({"alike": "b", "members": "/d"}), true),
            (json!({"alike": "c", "members": ["/d"]}), false),
            (json!({"unlike": "c", "members": "/d"}), true),
            (json!({"unlike": "b", "members": "/d"}), false),
            (json!({"unlike": "c", "members": "/e"}), false),
            (json!({"alike": "z", "members": "/d"}), false),
            (json!({}), true),
        ] {
            assert_eq!(is_like(&runs, &runs[0], &args).is_ok(), good, "{args}");
        }
    }
}
