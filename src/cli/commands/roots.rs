//! `runstore roots`: where the stores of this user are.

use std::io::Write as _;

use runstore::protocol::Word as _;
use runstore::store::{RealHost, discover};

use crate::cli::args::{Format, RootsArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// Answers.
pub(crate) fn run(args: &RootsArgs, output: &mut Output) -> Result<Code, Failure> {
    let roots = discover::default_roots(&RealHost::new());
    let json = |root: &discover::Root| {
        serde_json::json!({
            "family": root.family.as_str(),
            "path": root.path.to_string_lossy(),
            "exists": root.exists,
            "because": root.why,
        })
    };
    let out = output.writer();
    match args.format {
        Format::Text => {
            for root in &roots {
                let there = if root.exists { "exists" } else { "absent" };
                let path = root.path.to_string_lossy();
                let path = render::escape(&path);
                writeln!(out, "{there:<7} {:<3} {path}  [{}]", root.family.as_str(), root.why)?;
            }
        }
        Format::Json => {
            let all: Vec<_> = roots.iter().map(json).collect();
            let answer = serde_json::json!({ "schema": "runstore.roots/1", "roots": all });
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for root in &roots {
                serde_json::to_writer(&mut *out, &json(root))?;
                writeln!(out)?;
            }
        }
    }
    Ok(Code::FINE)
}
