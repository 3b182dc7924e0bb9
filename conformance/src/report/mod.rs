//! What came of a suite, in the forms that people and programs read.
//!
//! Theory of operation. Every form is a pure function of an [`Outcome`], so all of them tell the same. Text from a
//! subject is data: what is no plain character is escaped in each form by its own rules.

use serde_json::{Value, json};

use crate::cases::{Grade, Scenario};
use crate::clauses::{self, Clause};
use crate::evidence::{Ended, Event};
use crate::raw;
use crate::suite::{Outcome, Verdict};

/// Events of one scenario that a report holds.
const TRACE: usize = 400;

/// What a check asks for, in one word.
pub fn strength(is_must: bool) -> &'static str {
    if is_must { "MUST" } else { "SHOULD" }
}

/// How a subject ended, in words.
pub fn ended(ended: Option<&Ended>) -> String {
    match ended {
        None => "never started".into(),
        Some(Ended::Exit(code)) => format!("exit {code}"),
        Some(Ended::Signal(signal)) => format!("signal {signal}"),
        Some(Ended::Ended(why)) => format!("ended by the suite: {why}"),
    }
}

/// How many MUST clauses of a role there are, and how many of them have a check.
pub fn coverage(scenarios: &[Scenario], role: &str) -> (usize, usize) {
    let binds = |clause: &Clause| {
        clause.is_must()
            && clause.roles.iter().any(|one| *one == role || (*one == "writer" && role == "runner"))
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
pub fn reached(outcome: &Outcome) -> Option<Grade> {
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
            json!({
                "id": played.id, "about": played.about, "tookMs": played.seen.took_ms, "limitMs": played.limit_ms,
                "ended": ended(played.seen.ended.as_ref()), "missed": played.seen.missed,
                "stderr": raw::brief(&played.seen.stderr, 4000), "trace": trace,
                "traceIsWhole": played.seen.trace.len() <= TRACE,
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

/// For people: what is wrong first, then the count.
pub fn text(outcome: &Outcome, scenarios: &[Scenario]) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("{}: {}", outcome.role, raw::brief(&outcome.command.join(" "), 200)));
    line(format!("smoke: {}", outcome.smoke));
    for verdict in [Verdict::Fail, Verdict::NonStrict, Verdict::Inconclusive, Verdict::Gap] {
        for judged in outcome.judged.iter().filter(|judged| judged.verdict == verdict) {
            let check = &judged.check;
            line(String::new());
            line(format!(
                "{}  {}  {}  {}",
                verdict.word(),
                check.clause,
                check.grade.word(),
                check.id
            ));
            line(format!("  expected: {}", check.expect));
            line(format!("  seen:     {}", raw::brief(&judged.seen, 400)));
        }
    }
    line(String::new());
    let counts: Vec<_> = Verdict::ALL
        .into_iter()
        .filter(|verdict| outcome.count(*verdict) > 0)
        .map(|verdict| format!("{} {}", outcome.count(verdict), verdict.word()))
        .collect();
    let seconds = outcome.took_ms.div_ceil(1000);
    line(format!("{} checks: {} ({seconds} s)", outcome.judged.len(), counts.join(", ")));
    let (must, with_check) = coverage(scenarios, &outcome.role);
    line(format!(
        "{with_check} of the {must} MUST clauses that bind a {} have a check",
        outcome.role
    ));
    line(match reached(outcome) {
        Some(grade) => format!("level reached: {}", grade.word()),
        None => "level reached: none".into(),
    });
    out
}
