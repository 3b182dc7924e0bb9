//! A launcher: what the request says is launched with the runner that it names.
//!
//! Ordered steps: route and fan-out budget, if they are to be made; the launch by the library, with this process as the
//! parent of the runner or with a shim between them; with `stay` the end ([`super::stay`]). Without it this process
//! ends, and the runner goes on as under any launcher that dies. What a crash leaves is what a crash of a launcher
//! leaves.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstore::launcher::{
    self, Confirm, Failed, Nested, Outcome, Place, Refused, Request, Shims, SlotWish, Started,
};
use runstore::protocol::budget::BudgetRef;
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::nested::Route;
use runstore::protocol::written_launch::{DescriptorText, RevivalText};
use runstore::protocol::written_nested::NestedSelf;
use runstore::protocol::{Document, Open, RunMode, RunState, layout, limits};
use runstore::store::host::{Host, Part};
use runstore::store::process::{Children, Spawn};
use runstore::store::retry::RetryPolicy;
use runstore::store::slot::Source;
use runstore::store::{RealHost, budget, directory, identity, nested};
use serde_json::{Value, json};

use super::Answer;
use super::stay::{self, Stay};
use crate::cli::exit_code::Code;

/// Launches what is asked for.
pub(super) fn answer(root: &Path, args: &Value) -> Answer {
    let answer = Wish { root, args }.launch()?;
    let code = if answer["outcome"] == "started" { Code::FINE } else { Code::START_FAILED };
    Ok((answer, code))
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
        let temp = directory::create_root(&*host, self.root).map_err(|e| told(&e))?;
        let id = self.text("runId").map_or_else(|| identity::instance_id(&*host), str::to_owned);
        let Ok(run_id) = RunId::parse(&id) else {
            return Ok(json!({"outcome": "refused", "cause": format!("`{id}` is no id of a run")}));
        };
        let laid = match self.laid(&host, &temp, &id)? {
            Ok(laid) => laid,
            Err(why) => return Ok(json!({"outcome": "refused", "cause": why})),
        };
        let place = Place {
            temp: &temp,
            temp_path: self.root,
            runs_root: &laid.runs_root,
            runs_path: &laid.runs_path,
        };
        let given = self.given(&laid);
        let more: Vec<_> = given.more.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let descriptor = self.descriptor(&id, &given);
        let source = self.source(&host);
        let mut request = Request {
            more: &more,
            descriptor: descriptor.as_ref(),
            set_env: &given.set_env,
            remove_env: &given.remove_env,
            budget: laid.budget.as_ref(),
            nested: laid.route.as_ref().map(|route| Nested { route, own: laid.own.as_ref() }),
            ..Request::new(&run_id, self.mode()?, &given.steps, &given.cwd, &laid.result)
        };
        self.fill(&mut request);
        let source = source.as_ref().map(Resumed::source);
        request.slot = self.limit().map(|limit| SlotWish { limit, source });
        let answer = self.lead(&host, place, &run_id, request)?;
        Ok(laid.tell(answer, &id))
    }

    /// The launch itself, once everything is said.
    fn lead(
        self,
        host: &Arc<RealHost>,
        place: Place<'_, Dir>,
        run_id: &RunId,
        request: Request<'_>,
    ) -> Result<Value, String> {
        let prepared = match launcher::prepare(&**host, place, request) {
            Ok(prepared) => prepared,
            Err(refused) => return Ok(not_started(&refused)),
        };
        let mut launch = match prepared.start(&mut *self.runner(host)?) {
            Ok(launch) => launch,
            Err(refused) => return Ok(not_started(&refused)),
        };
        let mut answer = outcome(launch.wait());
        answer["pid"] = launch.pid().into();
        answer["instanceId"] = launch.instance_id().into();
        if let Some(how) = self.stay()? {
            if self.has_shim() {
                stay::stay_for_shim(host, place, run_id, launch, &mut answer)?;
            } else {
                let session = self.text("session");
                stay::stay(host, place, run_id, session, launch, how, &mut answer)?;
            }
        }
        Ok(answer)
    }

    /// Whether this process waits for the end of the runner, and what it does then.
    fn stay(self) -> Result<Option<Stay>, String> {
        match self.text("stay") {
            None => Ok(None),
            Some("prove") => Ok(Some(Stay::Prove)),
            Some("wait") => Ok(Some(Stay::Wait)),
            Some(other) => Err(format!("`stay` is `{other}`, neither `prove` nor `wait`")),
        }
    }

    fn has_shim(self) -> bool {
        self.args["shim"] == true
    }

    fn mode(self) -> Result<RunMode, String> {
        let mode = Open::<RunMode>::read(self.text("mode").unwrap_or("single"));
        mode.known().ok_or_else(|| "`mode` is no shape of a run".to_owned())
    }

    /// What the launch is about, apart from texts that were made for it.
    fn fill<'r>(self, request: &mut Request<'r>)
    where
        'a: 'r,
    {
        request.session_id = self.text("session");
        request.completion_owner_id = self.text("completionOwner");
        request.tool_call_id = self.text("toolCall");
        request.parent_session_id = self.text("parentSession");
        request.budget_ms = self.args["budgetMs"].as_u64();
        request.timeout_ms = self.args["timeoutMs"].as_i64();
        request.deadline_at_ms = self.args["deadlineAt"].as_i64();
        let revival = &self.args["revival"];
        if let (Some(session_file), Some(source_run_id)) =
            (revival["sessionFile"].as_str(), revival["sourceRunId"].as_str())
        {
            request.revival = Some(RevivalText { session_file, source_run_id });
        }
        if self.text("confirm") == Some("never") {
            request.confirm = Confirm::Never;
        }
    }

    fn limit(self) -> Option<u32> {
        self.args["slotLimit"].as_u64().and_then(|limit| u32::try_from(limit).ok())
    }

    /// Where the run lies, and what is there or made for its tree. The inner error is why it is refused.
    fn laid(self, host: &RealHost, temp: &Dir, id: &str) -> Result<Result<Laid, String>, String> {
        let of_tree = self.of_its_tree(host, temp).and_then(|both| Ok((both, self.own()?)));
        let ((route, budget), own) = match of_tree {
            Ok(all) => all,
            Err(why) => return Ok(Err(why)),
        };
        let root = route.as_ref().filter(|_| own.is_some()).map(|route| route.root_run_id.as_str());
        let runs = root.map_or_else(
            || layout::RUNS_DIR.to_owned(),
            |root| format!("{}/{root}", layout::NESTED_RUNS_DIR),
        );
        let runs = self.text("runsRoot").unwrap_or(&runs);
        let results = self.root.join(layout::RESULTS_DIR);
        let results =
            root.map_or(results.clone(), |root| results.join(layout::NESTED_RESULTS).join(root));
        let result = results.join(format!("{id}.json"));
        let result = self.text("resultPath").map_or(result, PathBuf::from);
        let names: Vec<&str> = runs.split('/').collect();
        let runs_root = directory::create_path(host, temp, &names, &RetryPolicy::default());
        let runs_root = runs_root.map_err(|e| told(&e))?;
        let runs_path = self.root.join(runs);
        Ok(Ok(Laid { runs_root, runs_path, result, route, own, budget }))
    }

    /// Whose child the run is.
    fn own(self) -> Result<Option<NestedSelf>, String> {
        let Some(own) = self.args.get("nestedSelf") else { return Ok(None) };
        let text = own.to_string();
        let doc = Document::parse(&text).map_err(|e| told(&e))?;
        NestedSelf::read(&doc).map(Some).map_err(|e| told(&e))
    }

    /// Route and fan-out budget: those that the request names, or new ones.
    fn of_its_tree(
        self,
        host: &RealHost,
        temp: &Dir,
    ) -> Result<(Option<Route>, Option<BudgetRef>), String> {
        let (route, budget) = (&self.args["route"], &self.args["budget"]);
        let route = match (route["rootRunId"].as_str(), route["capabilityToken"].as_str()) {
            (None, _) => None,
            (Some(root), Some(token)) => {
                Some(Route::new(root, token, host.now_ms()).map_err(|e| told(&e))?)
            }
            (Some(root), None) => {
                Some(nested::create_route(host, temp, root).map_err(|e| told(&e))?.route)
            }
        };
        let limit = budget["limit"].as_u64().and_then(|limit| u32::try_from(limit).ok());
        let budget = match (budget["rootRunId"].as_str(), budget["directory"].as_str()) {
            (None, _) => None,
            (Some(root), Some(directory)) => Some(BudgetRef {
                root_run_id: root.to_owned(),
                directory: directory.to_owned(),
                limit: limit.unwrap_or_default(),
                parent_path: None,
            }),
            (Some(root), None) => Some(
                budget::create(host, temp, self.root, root, limit.unwrap_or_default())
                    .map_err(|e| told(&e))?,
            ),
        };
        Ok((route, budget))
    }

    /// How the run could be resumed.
    fn descriptor<'t>(self, id: &'t str, given: &'t Given<'a>) -> Option<DescriptorText<'t>>
    where
        'a: 't,
    {
        let descriptor = self.args.get("descriptor")?;
        let text = |key: &str| descriptor.get(key).and_then(Value::as_str);
        let depth = descriptor.get("maxSubagentDepth").and_then(Value::as_u64).unwrap_or(2);
        Some(DescriptorText {
            run_id: text("sourceRunId").unwrap_or(id),
            agent: text("agent").unwrap_or("worker-0"),
            cwd: text("cwd").or(self.text("cwd")).unwrap_or_default(),
            system_prompt_mode: text("systemPromptMode").unwrap_or("append"),
            output_mode: text("outputMode").unwrap_or("inline"),
            fanout_budget: &given.budget,
            inherit_project_context: false,
            inherit_skills: false,
            share: false,
            max_subagent_depth: u32::try_from(depth).unwrap_or(u32::MAX),
            session_file: text("sessionFile"),
            deadline_at_ms: descriptor.get("absoluteDeadlineAt").and_then(Value::as_i64),
            more: &[],
        })
    }

    /// The run whose slot is taken over, and what its status says.
    fn source(self, host: &RealHost) -> Option<Resumed> {
        let run_id = self.args["revival"]["sourceRunId"].as_str()?;
        let dir = host.open_dir(&self.root.join(layout::RUNS_DIR).join(run_id)).ok();
        let part = Part::All(limits::STATUS_MAX_BYTES);
        let read = dir.and_then(|dir| host.read_at(&dir, layout::STATUS.as_ref(), part).ok());
        let status = read.and_then(|read| serde_json::from_slice(&read.bytes).ok());
        Some(Resumed { run_id: run_id.to_owned(), status })
    }

    /// The texts of the request.
    fn given(self, laid: &Laid) -> Given<'a> {
        let map = |value: &'a Value| value.as_object().into_iter().flatten();
        let pair = |(key, value): (&String, &Value)| Some((key.into(), value.as_str()?.into()));
        let names = self.args["removeEnv"].as_array().into_iter().flatten();
        let more = map(&self.args["config"]);
        let descriptor = &self.args["descriptor"];
        let budget = descriptor.get("runFanoutBudget").map(Value::to_string);
        Given {
            steps: self.args["steps"].to_string(),
            cwd: self.text("cwd").map_or(self.root, Path::new).to_owned(),
            more: more.map(|(key, value)| (key.as_str(), value.to_string())).collect(),
            set_env: map(&self.args["env"]).filter_map(pair).collect(),
            remove_env: names.filter_map(Value::as_str).map(Into::into).collect(),
            budget: budget
                .or_else(|| laid.budget.as_ref().map(BudgetRef::text))
                .unwrap_or_default(),
        }
    }

    /// The parent of the runner: this process, or a shim.
    fn runner(self, host: &Arc<RealHost>) -> Result<Box<dyn Spawn>, String> {
        let words = self.args["runner"].as_array().into_iter().flatten();
        let words: Option<Vec<OsString>> = words.map(|word| Some(word.as_str()?.into())).collect();
        let words =
            words.filter(|words| !words.is_empty()).ok_or("`runner` is no list of words")?;
        if self.has_shim() {
            let shim = host.own_program().map_err(|e| e.to_string())?.into();
            let root = self.root.to_path_buf();
            return Ok(Box::new(Shims::new(Arc::clone(host), shim, root, words)));
        }
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let children = Children::new(Arc::clone(host), program, Vec::new());
        Ok(Box::new(children.words(words.collect())))
    }
}

fn told(e: &dyn std::error::Error) -> String {
    with_causes(e)
}

/// A store that is open for writing.
pub(super) type Dir = <RealHost as Host>::Dir;

/// Where a run lies and what there is for its tree.
struct Laid {
    runs_root: Dir,
    runs_path: PathBuf,
    result: PathBuf,
    route: Option<Route>,
    own: Option<NestedSelf>,
    budget: Option<BudgetRef>,
}

impl Laid {
    /// Adds what the caller cannot know.
    fn tell(&self, mut answer: Value, id: &str) -> Value {
        answer["runId"] = id.into();
        if let Some(budget) = &self.budget {
            answer["budget"] = serde_json::from_str(&budget.text()).unwrap_or_default();
        }
        if let Some(route) = &self.route {
            answer["route"] = serde_json::from_str(&route.text()).unwrap_or_default();
        }
        answer
    }
}

/// Texts that a request refers to.
struct Given<'a> {
    steps: String,
    cwd: PathBuf,
    more: Vec<(&'a str, String)>,
    set_env: Vec<(OsString, OsString)>,
    remove_env: Vec<OsString>,
    budget: String,
}

/// The run that is resumed.
struct Resumed {
    run_id: String,
    status: Option<Value>,
}

impl Resumed {
    fn source(&self) -> Source<'_> {
        let told = |status| {
            let text = |key: &str| Value::get(status, key).and_then(Value::as_str);
            (text("runId"), text("state").map(Open::<RunState>::read))
        };
        Source { run_id: &self.run_id, status: self.status.as_ref().map(told) }
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
        (Outcome::Started(Started { problems, untold, ran_ahead, .. }), _) => {
            let problems: Vec<_> = problems.iter().map(|e| with_causes(e)).collect();
            json!({"outcome": word, "problems": problems, "untold": untold, "ranAhead": ran_ahead})
        }
        (_, Some(failed)) => {
            let Failed { words, stderr_tail, ended, unrecorded, left, .. } = failed;
            let exit = ended.as_ref().and_then(Option::as_ref).map(stay::told);
            json!({"outcome": word, "cause": failed.to_string(), "words": words, "stderrTail": stderr_tail,
                "exit": exit, "unrecorded": unrecorded, "left": left})
        }
        _ => json!({"outcome": word}),
    }
}
