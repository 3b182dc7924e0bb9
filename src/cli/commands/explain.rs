//! `runstore explain [ID]`: what a word of an answer means.

use std::io::Write as _;

use runstore::inspect::{Explanation, explain, explain_all};

use crate::cli::args::{ExplainArgs, Format};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};

/// Up to the first end of a sentence that is not part of something quoted.
fn first_sentence(text: &str) -> &str {
    let is_outside = |at: &usize| text[..*at].matches('`').count().is_multiple_of(2);
    let end = text.match_indices(". ").map(|(at, _)| at).find(is_outside);
    end.map_or(text, |at| &text[..=at])
}

/// Answers.
pub(crate) fn run(args: &ExplainArgs, output: &mut Output) -> Result<Code, Failure> {
    let found = match &args.id {
        Some(id) => explain(id),
        None => explain_all(),
    };
    if found.is_empty() {
        let id = args.id.as_deref().unwrap_or_default();
        return Err(Failure::user(Code::NOT_FOUND, format!("nothing is named '{id}'"))
            .hint("runstore explain lists every verdict, flag, finding and clause"));
    }
    let json = |e: &Explanation| {
        serde_json::json!({
            "id": e.id, "kind": e.kind, "meaning": e.meaning, "advice": e.advice, "clauses": e.clauses,
        })
    };
    let out = output.writer();
    match args.format {
        Format::Json => {
            let all: Vec<_> = found.iter().map(json).collect();
            let answer = serde_json::json!({ "schema": "runstore.explain/1", "entries": all });
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for e in &found {
                serde_json::to_writer(&mut *out, &json(e))?;
                writeln!(out)?;
            }
        }
        Format::Text if args.id.is_none() => {
            for e in &found {
                let first = first_sentence(&e.meaning);
                writeln!(out, "{:<8} {:<20} {first}", e.kind, e.id)?;
            }
        }
        Format::Text => {
            for e in &found {
                writeln!(out, "{} ({})", e.id, e.kind)?;
                writeln!(out, "  means   {}", e.meaning)?;
                if let Some(advice) = &e.advice {
                    writeln!(out, "  do      {advice}")?;
                }
                if e.kind == "clause" {
                    writeln!(out, "  whole   runstore spec {}", e.id)?;
                }
                if !e.clauses.is_empty() {
                    writeln!(out, "  see     {}", e.clauses.join(", "))?;
                }
            }
        }
    }
    Ok(Code::FINE)
}
