//! `runstore conformance fold`: this program as a process that speaks for a root, so that the conformance suite can call it.
//!
//! Theory of operation. A request on standard input (`docs/conformance-adapter.md`) names a root and the token of its route. What
//! lies in the route is folded into its registry once ([`project`]), and one JSON object says what came of it. A crash leaves
//! what one of [`project`] leaves. Spec: RS-NEST-34, RS-NEST-35.

use std::io::Read as _;
use std::path::Path;

use runstore::protocol::error::with_causes;
use runstore::protocol::nested::Route;
use runstore::store::nested::{open_route, project};
use runstore::store::{Host as _, RealHost};
use serde_json::{Value, json};

use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};

/// The longest request, in bytes.
const REQUEST_BYTES: u64 = 1 << 20;

/// Reads the request and answers it.
pub(crate) fn run(output: &mut Output) -> Result<Code, Failure> {
    let wrong = |why: String| Failure::user(Code::USAGE, "the request cannot be read").because(why);
    let mut text = String::new();
    let read = std::io::stdin().lock().take(REQUEST_BYTES).read_to_string(&mut text);
    read.map_err(|e| wrong(e.to_string()))?;
    let request: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let word = |key: &str| request["args"][key].as_str().unwrap_or_default();
    let host = RealHost::new();
    let route = Route::new(word("rootRunId"), word("capabilityToken"), host.now_ms())
        .map_err(|e| wrong(e.to_string()))?;
    let root = Path::new(request["root"].as_str().unwrap_or_default());
    let temp = host.open_dir(root).map_err(|e| wrong(e.to_string()))?;
    let folded = open_route(&host, &temp, &route).and_then(|route| project(&host, &route));
    let (answer, code) = match folded {
        Ok(done) => {
            let (folded, changed, problems) = (done.folded, done.changed, done.problems);
            (json!({"folded": folded, "changed": changed, "problems": problems}), Code::FINE)
        }
        Err(e) => (json!({"refused": with_causes(&e)}), Code::ATTENTION),
    };
    super::write_json(output, &answer)?;
    Ok(code)
}
