//! `runstore conformance adapter`: this program as a launcher that the conformance suite can call.
//!
//! Theory of operation. A request on standard input (`docs/conformance-adapter.md`) says what is to be launched and which
//! program is the runner. The library launches it, with this process as the parent of the runner or with a shim between
//! them, and one JSON object says what came of it. Then this process ends, and the runner goes on, as under any launcher
//! that dies. What a crash leaves is what a crash of a launcher leaves.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use runstore::launcher::{
    self, Confirm, Failed, Outcome, Place, Refused, Request, Shims, SlotWish, Started,
};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_launch::RevivalText;
use runstore::protocol::{Open, RunMode, layout};
use runstore::store::process::{Children, Exit, Spawn};
use runstore::store::retry::RetryPolicy;
use runstore::store::{RealHost, directory, identity};
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
    let root = request["root"].as_str().unwrap_or_default();
    let answer = Wish { root: Path::new(root), args: &request["args"] }.launch().map_err(wrong)?;
    super::write_json(output, &answer)?;
    Ok(if answer["outcome"] == "started" { Code::FINE } else { Code::START_FAILED })
}

/// What is to be launched.
#[derive(Clone, Copy)]
struct Wish<'a> {
    root: &'a Path,
    args: &'a Value,
}

impl<'a> Wish<'a> {
    fn text(self, key: &str) -> Option<&'a str> {
        self.args[key].as_str()
    }

    fn launch(self) -> Result<Value, String> {
        let host = Arc::new(RealHost::new());
        let told = |e: &dyn std::error::Error| with_causes(e);
        let retry = RetryPolicy::default();
        let temp = directory::create_root(&*host, self.root).map_err(|e| told(&e))?;
        let runs_root = directory::create_path(&*host, &temp, &[layout::RUNS_DIR], &retry)
            .map_err(|e| told(&e))?;
        let runs_path = self.root.join(layout::RUNS_DIR);
        let place = Place {
            temp: &temp,
            temp_path: self.root,
            runs_root: &runs_root,
            runs_path: &runs_path,
        };
        let id = self.text("runId").map_or_else(|| identity::instance_id(&*host), str::to_owned);
        let Ok(run_id) = RunId::parse(&id) else {
            return Ok(json!({"outcome": "refused", "cause": format!("`{id}` is no id of a run")}));
        };
        let mode = Open::<RunMode>::read(self.text("mode").unwrap_or("single"));
        let mode = mode.known().ok_or("`mode` is no shape of a run")?;
        let steps = self.args["steps"].to_string();
        let result = self.root.join(layout::RESULTS_DIR).join(format!("{run_id}.json"));
        let cwd = self.text("cwd").map_or(self.root, Path::new);
        let mut request = Request::new(&run_id, mode, &steps, cwd, &result);
        request.session_id = self.text("session");
        request.tool_call_id = self.text("toolCall");
        request.parent_session_id = self.text("parentSession");
        request.budget_ms = self.args["budgetMs"].as_u64();
        let limit = self.args["slotLimit"].as_u64().and_then(|limit| u32::try_from(limit).ok());
        request.slot = limit.map(|limit| SlotWish { limit, source: None });
        let more = self.args["config"].as_object().into_iter().flatten();
        let more: Vec<_> = more.map(|(key, value)| (key.as_str(), value.to_string())).collect();
        let more: Vec<_> = more.iter().map(|(key, text)| (*key, text.as_str())).collect();
        request.more = &more;
        let revival = &self.args["revival"];
        if let (Some(session_file), Some(source_run_id)) =
            (revival["sessionFile"].as_str(), revival["sourceRunId"].as_str())
        {
            request.revival = Some(RevivalText { session_file, source_run_id });
        }
        if self.text("confirm") == Some("never") {
            request.confirm = Confirm::Never;
        }
        let env = self.args["env"].as_object().into_iter().flatten();
        let pair = |(key, value): (&String, &Value)| Some((key.into(), value.as_str()?.into()));
        let set: Vec<(OsString, OsString)> = env.filter_map(pair).collect();
        request.set_env = &set;
        let prepared = match launcher::prepare(&*host, place, request) {
            Ok(prepared) => prepared,
            Err(refused) => return Ok(not_started(&refused)),
        };
        let mut launch = match prepared.start(&mut *self.runner(&host)?) {
            Ok(launch) => launch,
            Err(refused) => return Ok(not_started(&refused)),
        };
        let mut answer = outcome(launch.wait());
        answer["runId"] = run_id.as_str().into();
        answer["pid"] = launch.pid().into();
        answer["instanceId"] = launch.instance_id().into();
        Ok(answer)
    }

    /// The parent of the runner: this process, or a shim.
    fn runner(self, host: &Arc<RealHost>) -> Result<Box<dyn Spawn>, String> {
        let words = self.args["runner"].as_array().into_iter().flatten();
        let words: Option<Vec<OsString>> = words.map(|word| Some(word.as_str()?.into())).collect();
        let words =
            words.filter(|words| !words.is_empty()).ok_or("`runner` is no list of words")?;
        if self.args["shim"] == true {
            let shim = host.own_program().map_err(|e| e.to_string())?.into();
            let root = self.root.to_path_buf();
            return Ok(Box::new(Shims::new(Arc::clone(host), shim, root, words)));
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        Ok(Box::new(Children::new(Arc::clone(host), program, words.collect())))
    }
}

fn not_started(refused: &Refused) -> Value {
    json!({"outcome": "refused", "cause": with_causes(refused), "left": refused.left})
}

fn outcome(outcome: &Outcome) -> Value {
    let word = match outcome {
        Outcome::Started(_) => "started",
        Outcome::Refused(_) => "refused",
        Outcome::Died(_) => "died",
        Outcome::TimedOut(_) => "timed-out",
    };
    match (outcome, outcome.failed()) {
        (Outcome::Started(Started { problems, .. }), _) => {
            let problems: Vec<_> = problems.iter().map(|e| with_causes(e)).collect();
            json!({"outcome": word, "problems": problems})
        }
        (_, Some(failed)) => {
            let Failed { words, stderr_tail, ended, unrecorded, left, .. } = failed;
            let exit = ended.as_ref().and_then(Option::as_ref).map(|exit| match exit {
                Exit::Code(code) => json!(code),
                Exit::Signal(name) => json!(name),
            });
            json!({"outcome": word, "cause": failed.to_string(), "words": words, "stderrTail": stderr_tail,
                "exit": exit, "unrecorded": unrecorded, "left": left})
        }
        _ => json!({"outcome": word}),
    }
}
