//! What came of a suite, in the forms that people and programs read.
//!
//! Theory of operation. The report in JSON is a pure function of an [`Outcome`], every other form one of the report, so
//! all of them tell the same. Text from a
//! subject or a kept report is data: what is no plain character is escaped in each form by its own rules.

mod drawing;
mod html;
mod machine;
mod paths;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use html::html;
pub use machine::{badge, diff, junit, tap};

use crate::cases::{Grade, Scenario};
use crate::clauses::{self, Clause};
use crate::evidence::{Ended, Entry, Event, Evidence, Op, Tree};
use crate::raw;
use crate::suite::{Outcome, Verdict};

/// Events of one scenario that a report holds.
const TRACE: usize = 400;

/// Names of one scenario that a report holds.
const FILES: usize = 200;

/// What a check asks for, in one word.
pub fn strength(is_must: bool) -> &'static str {
    if is_must { "MUST" } else { "SHOULD" }
}

/// How a subject ended, in words.
fn ended(ended: Option<&Ended>) -> String {
    match ended {
        None => "never started".into(),
        Some(Ended::Exit(code)) => format!("exit {code}"),
        Some(Ended::Signal(signal)) => format!("signal {signal}"),
        Some(Ended::Forced(why)) => format!("ended by the suite: {why}"),
    }
}

/// How many MUST clauses of a role there are, and how many of them have a check.
pub fn coverage(scenarios: &[Scenario], role: &str) -> (usize, usize) {
    let binds = |clause: &Clause| {
        clause.is_must()
            && clause.roles.iter().any(|one| {
                *one == role
                    || [("writer", "runner"), ("recoverer", "repairer")].contains(&(*one, role))
            })
    };
    let must: Vec<_> = clauses::all().iter().filter(|clause| binds(clause)).collect();
    let has = |clause: &&&Clause| {
        scenarios
            .iter()
            .filter(|scenario| scenario.role == role)
            .any(|scenario| scenario.checks.iter().any(|check| check.clause == clause.id))
    };
    (must.len(), must.iter().filter(has).count())
}

/// The highest grade up to which everything is as expected.
fn reached(outcome: &Outcome) -> Option<Grade> {
    let asked = Grade::ALL.into_iter().take_while(|grade| *grade <= outcome.level);
    asked.take_while(|grade| outcome.reaches(*grade)).last()
}

fn event(event: &Event) -> Value {
    let mut out = json!({
        "atMs": event.at_ms, "what": event.op.word(), "path": event.path,
        "by": if event.by_suite { "suite" } else { "subject" },
    });
    if let Some(from) = &event.from {
        out["from"] = from.clone().into();
    }
    if let Some(text) = event.version.as_ref().and_then(|version| version.text.as_ref()) {
        out["text"] = raw::brief(text, 2000).into();
    }
    out
}

/// What became of a name, in one word.
fn became(start: Option<&Entry>, end: Option<&Entry>, is_touched: bool) -> &'static str {
    match (start, end) {
        (None, _) => "made",
        (_, None) => "removed",
        // The size of a directory says nothing that the names in it do not say.
        (Some(old), Some(new)) if [old.kind, new.kind] == ["directory"; 2] => {
            if old.mode == new.mode { "same" } else { "changed" }
        }
        (Some(old), Some(new)) if old != new => "changed",
        // A text that was not read may differ.
        (_, Some(new)) if new.kind == "file" && new.text.is_none() && is_touched => "changed",
        _ => "same",
    }
}

/// Names of the store at the end of a scenario, and those that are gone, with what became of them. Directories that were
/// there all the time are left out.
fn files(seen: &Evidence) -> Vec<Value> {
    let none = Tree::new();
    let tree = |name: &str| seen.trees.get(name).unwrap_or(&none);
    let (start, end) = (tree("start"), tree("end"));
    // The last that happened to a name: who did it, and whether its text was read.
    let last: BTreeMap<&str, &Event> = seen
        .trace
        .iter()
        .filter(|event| event.op != Op::Mark)
        .map(|event| (event.path.as_str(), event))
        .collect();
    let mut all: BTreeMap<&String, _> = start.iter().collect();
    all.extend(end);
    let of = |(path, entry): (&String, &Entry)| {
        let last = last.get(path.as_str());
        let is_touched = last.is_some_and(|event| event.op != Op::Found);
        let became = became(start.get(path), end.get(path), is_touched);
        if became == "same" && entry.kind == "directory" {
            return None;
        }
        let mut out = json!({
            "path": path, "became": became, "kind": entry.kind, "bytes": entry.size,
            "mode": format!("{:04o}", entry.mode),
        });
        if let Some(event) = last {
            out["by"] = if event.by_suite { "suite" } else { "subject" }.into();
        }
        let is_told = last.is_some_and(|event| event.version.is_some());
        if let Some(text) = entry.text.as_ref().filter(|_| became != "same" && !is_told) {
            out["text"] = raw::brief(text, 1000).into();
        }
        Some(out)
    };
    all.into_iter().filter_map(of).collect()
}

/// One object: `conformance/schemas/conformance-v1/report.schema.json`.
pub fn json(outcome: &Outcome, scenarios: &[Scenario]) -> Value {
    let counts: serde_json::Map<_, _> = Verdict::ALL
        .into_iter()
        .map(|verdict| (verdict.word().to_owned(), outcome.count(verdict).into()))
        .collect();
    let (must, with_check) = coverage(scenarios, &outcome.role);
    let limit = |id: &str| outcome.played.iter().find(|p| p.id == id).map(|p| p.limit_ms);
    let checks: Vec<_> = outcome
        .judged
        .iter()
        .map(|judged| {
            let check = &judged.check;
            json!({
                "id": check.id, "clause": check.clause, "strength": strength(check.is_must),
                "level": check.grade.word(), "scenario": judged.scenario, "verdict": judged.verdict.word(),
                "expected": check.expect, "seen": judged.seen, "limitMs": limit(&judged.scenario),
            })
        })
        .collect();
    let played: Vec<_> = outcome
        .played
        .iter()
        .map(|played| {
            let trace: Vec<_> = played.seen.trace.iter().take(TRACE).map(event).collect();
            let mut files = files(&played.seen);
            let are_whole = files.len() <= FILES;
            files.truncate(FILES);
            json!({
                "id": played.id, "about": played.about, "tookMs": played.seen.took_ms, "limitMs": played.limit_ms,
                "ended": ended(played.seen.last.ended.as_ref()), "missed": played.seen.missed,
                "stdout": raw::brief(&played.seen.last.stdout, 4000), "stderr": raw::brief(&played.seen.last.stderr, 4000), "trace": trace,
                "traceIsWhole": played.seen.trace.len() <= TRACE, "files": files,
                "filesAreWhole": are_whole,
            })
        })
        .collect();
    json!({
        "schema": "runstore.conformance/1", "role": outcome.role, "level": outcome.level.word(),
        "levelReached": reached(outcome).map(Grade::word), "command": outcome.command, "seed": outcome.seed,
        "smoke": outcome.smoke, "tookMs": outcome.took_ms,
        "summary": {
            "checks": outcome.judged.len(), "verdicts": counts, "mustClauses": must,
            "mustClausesWithCheck": with_check,
        },
        "checks": checks, "scenarios": played,
    })
}

/// For people: what is wrong first, then the count. Whoever shows it escapes it.
pub fn text(report: &Value) -> String {
    let of = machine::text;
    let words: Vec<_> = machine::list(report, "command").iter().filter_map(Value::as_str).collect();
    let mut out = format!("{}: {}\n", of(report, "role"), raw::brief(&words.join(" "), 200));
    out.push_str(&format!("smoke: {}\n", of(report, "smoke")));
    let checks = machine::list(report, "checks");
    for verdict in [Verdict::Fail, Verdict::NonStrict, Verdict::Inconclusive, Verdict::Gap] {
        for check in checks.iter().filter(|check| of(check, "verdict") == verdict.word()) {
            let (clause, level, id) = (of(check, "clause"), of(check, "level"), of(check, "id"));
            out.push_str(&format!("\n{}  {clause}  {level}  {id}\n", verdict.word()));
            out.push_str(&format!("  expected: {}\n", of(check, "expected")));
            out.push_str(&format!("  seen:     {}\n", raw::brief(of(check, "seen"), 400)));
        }
    }
    let summary = &report["summary"];
    let counts: Vec<_> = Verdict::ALL
        .into_iter()
        .map(|verdict| (machine::number(&summary["verdicts"], verdict.word()), verdict.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let seconds = machine::number(report, "tookMs").div_ceil(1000);
    out.push_str(&format!("\n{} checks: {} ({seconds} s)\n", checks.len(), counts.join(", ")));
    out.push_str(&format!(
        "{} of the {} MUST clauses that bind a {} have a check\n",
        machine::number(summary, "mustClausesWithCheck"),
        machine::number(summary, "mustClauses"),
        of(report, "role")
    ));
    let level = report["levelReached"].as_str().unwrap_or("none");
    out.push_str(&format!("level reached: {level}\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &'static str, size: u64, text: Option<&str>) -> Entry {
        Entry { kind, mode: 0o600, size, text: text.map(str::to_owned) }
    }

    #[test]
    fn a_report_tells_what_became_of_each_name_and_leaves_out_what_says_nothing() {
        let start = [
            ("dir", entry("directory", 10, None)),
            ("gone", entry("file", 1, Some("a"))),
            ("kept", entry("file", 1, Some("a"))),
            ("large", entry("file", 9, None)),
            ("text", entry("file", 1, Some("a"))),
        ];
        let end = [
            ("dir", entry("directory", 20, None)),
            ("kept", entry("file", 1, Some("a"))),
            ("large", entry("file", 9, None)),
            ("new", entry("file", 1, Some("b"))),
            ("text", entry("file", 1, Some("b"))),
        ];
        let tree = |names: &[(&str, Entry)]| -> Tree {
            names.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone())).collect()
        };
        let mut seen = Evidence::default();
        seen.trees.insert("start".into(), tree(&start));
        seen.trees.insert("end".into(), tree(&end));
        let event = |path: &str, op: Op| Event {
            at_ms: 0,
            op,
            path: path.into(),
            from: None,
            version: None,
            by_suite: false,
            is_dir: false,
        };
        seen.trace = vec![event("large", Op::Modified), event("new", Op::Created)];
        let told = files(&seen);
        let told: Vec<_> = told
            .iter()
            .map(|file| {
                [
                    machine::text(file, "path"),
                    machine::text(file, "became"),
                    machine::text(file, "text"),
                ]
            })
            .collect();
        let expected = [
            ["gone", "removed", "a"],
            ["kept", "same", ""],
            ["large", "changed", ""],
            ["new", "made", "b"],
            ["text", "changed", "b"],
        ];
        assert_eq!(told, expected);
        seen.trace.clear();
        let large = files(&seen).into_iter().find(|file| file["path"] == "large").expect("told");
        assert_eq!((&large["became"], large.get("by")), (&json!("same"), None));
    }
}
