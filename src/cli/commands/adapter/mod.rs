//! `runstore conformance adapter`: this program as a subject that the conformance suite can call.
//!
//! Theory of operation. A request on standard input (`docs/conformance-adapter.md`) names an operation, a store and
//! arguments; the library does it, and one JSON object says what came of it. `launch` is a launcher, `fold` speaks for a
//! root, the others write one thing each. Whatever a crash leaves is what a crash of the library's call leaves.

mod fold;
mod launch;
mod stay;
mod write;

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};

/// The longest request, in bytes.
const REQUEST_BYTES: u64 = 1 << 20;

/// What came of an operation, and how the program ends; the error says what is wrong with the request.
type Answer = Result<(Value, Code), String>;

/// Reads the request and answers it.
pub(crate) fn run(output: &mut Output) -> Result<Code, Failure> {
    let wrong = |why: String| {
        Failure::user(Code::USAGE, "the request on standard input cannot be answered")
            .because(why)
            .hint("docs/conformance-adapter.md says what it holds")
    };
    let mut text = String::new();
    let read = std::io::stdin().lock().take(REQUEST_BYTES).read_to_string(&mut text);
    read.map_err(|e| wrong(e.to_string()))?;
    let request: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let (answer, code) = answer(&request).map_err(wrong)?;
    super::write_json(output, &answer)?;
    Ok(code)
}

fn answer(request: &Value) -> Answer {
    let text = |key: &str| request[key].as_str().ok_or_else(|| format!("`{key}` is no text"));
    let (op, root, args) = (text("op")?, Path::new(text("root")?), &request["args"]);
    match op {
        "launch" => launch::answer(root, args),
        "fold" => fold::answer(root, args),
        "write" => write::answer(write::replace, root, args),
        "change" => write::answer(write::change, root, args),
        "append" => write::answer(write::append, root, args),
        "mark" => write::answer(write::mark, root, args),
        other => Err(format!("nobody knows the operation `{other}`")),
    }
}
