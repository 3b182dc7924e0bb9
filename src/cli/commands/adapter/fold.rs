//! A process that speaks for a root: what lies in the route of the request is folded into its registry once.
//!
//! A crash leaves what one of [`project`] leaves. Spec: RS-NEST-34, RS-NEST-35.

use std::path::Path;

use runstore::protocol::error::with_causes;
use runstore::protocol::nested::Route;
use runstore::store::nested::{open_route, project};
use runstore::store::{Host as _, RealHost};
use serde_json::{Value, json};

use super::Answer;
use crate::cli::exit_code::Code;

pub(super) fn answer(root: &Path, args: &Value) -> Answer {
    let word = |key: &str| args[key].as_str().unwrap_or_default();
    let host = RealHost::new();
    let route = Route::new(word("rootRunId"), word("capabilityToken"), host.now_ms())
        .map_err(|e| with_causes(&e))?;
    let temp = host.open_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    let folded = open_route(&host, &temp, &route).and_then(|route| project(&host, &route));
    Ok(match folded {
        Ok(done) => {
            let (folded, changed, problems) = (done.folded, done.changed, done.problems);
            (json!({"folded": folded, "changed": changed, "problems": problems}), Code::FINE)
        }
        Err(e) => (json!({"refused": with_causes(&e)}), Code::ATTENTION),
    })
}
