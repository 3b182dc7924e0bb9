//! `runstore recover log` and `undo`: what was repaired, and taking it back.
//!
//! Theory of operation. The log only reads the records that each apply leaves below its root. An undo takes
//! back the last apply, or the one that is named, each action whole or not at all. Spec: RS-REC-28.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use runstore::protocol::Word as _;
use runstore::recover::{self, Logged, State};
use runstore::store::{Host as _, Opened, RealHost};
use serde::Serialize;

use super::recover::not_applied;
use crate::cli::args::Format;
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render::{self, escape};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UndoText<'a> {
    schema: &'static str,
    id: Option<&'a str>,
    undone: Vec<RunText<'a>>,
    left: Vec<LeftText<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunText<'a> {
    run_id: &'a str,
    action: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftText<'a> {
    run_id: &'a str,
    why: &'a str,
}

#[derive(Debug, Serialize)]
struct LogText<'a> {
    schema: &'static str,
    applies: Vec<ApplyText<'a>>,
}

#[derive(Debug, Serialize)]
struct ApplyText<'a> {
    id: &'a str,
    actions: Vec<EntryText<'a>>,
}

#[derive(Debug, Serialize)]
struct EntryText<'a> {
    number: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a Logged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

/// The root of the store that a path leads into.
fn root_of(host: &RealHost, path: Option<&PathBuf>, verb: &str) -> Result<PathBuf, Failure> {
    let hint = format!("name it: runstore recover {verb} --root STORE");
    let roots = super::default_paths(host, path, &hint)?;
    let [root] = roots.as_slice() else {
        let what = "this user has several stores";
        return Err(Failure::user(Code::USAGE, what).hint(hint));
    };
    match super::open_at(host, root, host.now_ms(), Default::default())? {
        Opened::Store(store) => Ok(store.root),
        Opened::Run(..) => Err(super::not_a_store(root)),
    }
}

/// Takes an apply back.
pub(crate) fn undo(
    id: Option<&str>,
    root: &Option<PathBuf>,
    format: Format,
    output: &mut Output,
) -> Result<Code, Failure> {
    let host = RealHost::new();
    let root = root_of(&host, root.as_ref(), "undo")?;
    let undone = recover::undo(&host, &root, id).map_err(|e| not_applied(&root, &e))?;
    if let (None, Some(id)) = (&undone.id, id) {
        return Err(Failure::user(
            Code::NOT_FOUND,
            format!("there is nothing to take back of '{id}'"),
        )
        .hint(format!(
            "runstore recover log --root {} shows what was applied",
            render::shell_word(&root.to_string_lossy())
        )));
    }
    let text = UndoText {
        schema: "runstore.undo/1",
        id: undone.id.as_deref(),
        undone: undone.undone.iter().map(|(run_id, action)| RunText { run_id, action }).collect(),
        left: undone.left.iter().map(|(run_id, why)| LeftText { run_id, why }).collect(),
    };
    let out = output.writer();
    match format {
        Format::Json | Format::Jsonl => {
            serde_json::to_writer(&mut *out, &text)?;
            writeln!(out)?;
        }
        Format::Text => {
            for run in &text.undone {
                writeln!(out, "taken back       {}: {}", escape(run.run_id), run.action)?;
            }
            for left in &text.left {
                writeln!(out, "stays            {}", escape(left.run_id))?;
                writeln!(out, "  because  {}", escape(left.why))?;
            }
            match text.id {
                Some(id) => writeln!(out, "{id}: {} taken back", text.undone.len())?,
                None => writeln!(
                    out,
                    "there is nothing to take back in {}",
                    escape(&root.to_string_lossy())
                )?,
            }
        }
    }
    Ok(if undone.left.is_empty() { Code::FINE } else { Code::ATTENTION })
}

/// Shows what was applied.
pub(crate) fn log(
    root: &Option<PathBuf>,
    format: Format,
    output: &mut Output,
) -> Result<Code, Failure> {
    let host = RealHost::new();
    let root = root_of(&host, root.as_ref(), "log")?;
    let cannot = |e: std::io::Error| super::not_opened(Path::new(&root), e);
    let dir = host.open_dir(&root).map_err(cannot)?;
    let log = recover::log(&host, &dir).map_err(cannot)?;
    let mut code = Code::FINE;
    let mut applies = Vec::new();
    for apply in &log {
        let mut actions = Vec::new();
        for (number, state, read) in &apply.actions {
            if read.is_err() {
                code = code.worse(Code::DAMAGED);
            }
            if *state == State::Begun {
                code = code.worse(Code::ATTENTION);
            }
            actions.push(EntryText {
                number: *number,
                state: state.as_str(),
                record: read.as_ref().ok(),
                problem: read.as_ref().err().map(String::as_str),
            });
        }
        applies.push(ApplyText { id: &apply.id, actions });
    }
    let out = output.writer();
    match format {
        Format::Json | Format::Jsonl => {
            serde_json::to_writer(&mut *out, &LogText { schema: "runstore.log/1", applies })?;
            writeln!(out)?;
        }
        Format::Text => {
            let now_ms = host.now_ms();
            for apply in &applies {
                writeln!(out, "{}", apply.id)?;
                for entry in &apply.actions {
                    match (entry.record, entry.problem) {
                        (Some(record), _) => writeln!(
                            out,
                            "  {:<10} {:<16} {}  {}",
                            entry.state,
                            record.action,
                            escape(&record.run_id),
                            render::when(record.at_ms, now_ms)
                        )?,
                        (None, problem) => {
                            let problem = problem.unwrap_or_default();
                            writeln!(out, "  {:<10} {}", entry.state, escape(problem))?;
                        }
                    }
                }
            }
            if applies.is_empty() {
                writeln!(out, "nothing was ever applied in {}", escape(&root.to_string_lossy()))?;
            }
        }
    }
    Ok(code)
}
