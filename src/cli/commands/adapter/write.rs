//! A writer: each operation is one call of the library and one JSON object about it: `replace` puts a file in
//! place, `change` sets members of the status of a run, `append` asks a chain for further steps, `mark` marks a result
//! as delivered. The directories on the way are made as a writer makes them. What a crash leaves is what a crash of that
//! call leaves. Spec: chapter 12.

use std::path::Path;

use runstore::protocol::account::Author;
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::written_status::StatusPatch;
use runstore::protocol::{Open, RunState, layout};
use runstore::store::advisory::Locks;
use runstore::store::append;
use runstore::store::atomic::{self, Durability, Options, Step, WriteError};
use runstore::store::delivery::{self, Delivered};
use runstore::store::publish::ResultNames;
use runstore::store::retry::RetryPolicy;
use runstore::store::run::{self, StatusPlace};
use runstore::store::sidecar::{PatchError, Patched};
use runstore::store::{Host as _, RealHost, directory};
use serde_json::{Value, json};

use super::Answer;
use super::launch::Dir;
use crate::cli::exit_code::Code;

/// How long a change waits for its lock, in ms, where the request does not say so.
const LOCK_MS: u64 = 2_000;

/// What one write came to; the error says what is wrong with the request.
type Written = Result<Value, String>;

/// Does one of the operations below in a store, which is made if it is not there.
pub(super) fn answer(
    act: fn(&RealHost, &Dir, &Value) -> Written,
    root: &Path,
    args: &Value,
) -> Answer {
    let host = RealHost::new();
    let answer = match directory::create_root(&host, root) {
        Ok(temp) => act(&host, &temp, args)?,
        Err(e) => json!({"outcome": "failed", "error": e.to_string()}),
    };
    Ok((answer, Code::FINE))
}

/// As often as the system's kind wants it, or as often as on any (`retry`), until an instant (`deadlineMs` from now).
fn policy(host: &RealHost, args: &Value) -> RetryPolicy {
    let policy = if args["retry"] == true { RetryPolicy::always() } else { RetryPolicy::default() };
    match args["deadlineMs"].as_i64() {
        Some(ms) => policy.until(host.now_ms().saturating_add(ms)),
        None => policy,
    }
}

fn failed(e: &WriteError) -> Value {
    // The new text is in place then.
    let outcome = if e.step == Step::FlushDirectory { "in-doubt" } else { "failed" };
    json!({"outcome": outcome, "error": with_causes(e), "attempts": e.attempts.made, "waitedMs": e.attempts.waited_ms})
}

pub(super) fn replace(host: &RealHost, temp: &Dir, args: &Value) -> Written {
    let path = args["path"].as_str().ok_or("`path` is no text")?;
    let mut names: Vec<&str> = path.split('/').collect();
    let name = names.pop().unwrap_or_default();
    let retry = policy(host, args);
    let level = match args["level"].as_str() {
        Some("process-safe") => Durability::ProcessSafe,
        Some("ordered") => Durability::Ordered,
        _ => Durability::Durable,
    };
    let done = directory::create_path(host, temp, &names, &retry).and_then(|dir| {
        let text = args["text"].as_str().unwrap_or_default();
        let options = Options::new(level).retry(retry);
        let written = atomic::replace(host, &dir, name, text.as_bytes(), &options);
        written.map_err(|e| if names.is_empty() { e } else { below(e, &names) })
    });
    Ok(match done {
        Ok(written) => {
            let spent = written.rename;
            json!({"outcome": "written", "attempts": spent.made, "waitedMs": spent.waited_ms})
        }
        Err(e) => failed(&e),
    })
}

fn below(e: WriteError, names: &[&str]) -> WriteError {
    WriteError { name: format!("{}/{}", names.join("/"), e.name), ..e }
}

/// What an operation on one run needs.
struct Run {
    id: RunId,
    runs: Dir,
    dir: Dir,
}

impl Run {
    fn open(host: &RealHost, temp: &Dir, args: &Value) -> Result<Self, String> {
        let id = args["runId"].as_str().and_then(|id| RunId::parse(id).ok());
        let id = id.ok_or("`runId` is no id of a run")?;
        let open = |dir: &Dir, name: &str| {
            host.open_dir_at(dir, name.as_ref()).map_err(|e| format!("{name}: {e}"))
        };
        let runs = open(temp, layout::RUNS_DIR)?;
        let dir = open(&runs, id.as_str())?;
        Ok(Self { id, runs, dir })
    }
}

pub(super) fn change(host: &RealHost, temp: &Dir, args: &Value) -> Written {
    let run = Run::open(host, temp, args)?;
    let author = match args["author"].as_str() {
        Some("runner") => {
            Author::Runner { instance: args["instance"].as_str().unwrap_or_default() }
        }
        Some("launcher") => Author::Launcher,
        Some("recoverer") => Author::Recoverer,
        _ => Author::Client,
    };
    let mut patch = StatusPatch::empty();
    for (key, value) in args["set"].as_object().into_iter().flatten() {
        let state = value.as_str().filter(|_| key == "state").map(Open::<RunState>::read);
        patch = match state.and_then(|word| word.known()) {
            Some(state) => patch.state(state),
            // This process ends after one answer.
            None => patch.member(key.clone().leak(), value.to_string()),
        };
    }
    let wait_ms = args["lockMs"].as_u64().unwrap_or(LOCK_MS);
    let locks = Locks::new(host, &run.runs, layout::RUNS_DIR, wait_ms);
    let place = StatusPlace { host, run_dir: &run.dir, run_id: &run.id, locks: Some(&locks) };
    Ok(match run::update(&place, author, &patch) {
        Ok(Patched::Written { attempts, .. }) => {
            json!({"outcome": "written", "attempts": attempts})
        }
        Ok(Patched::Kept) => json!({"outcome": "kept"}),
        Err(PatchError::Write(e)) => failed(&e),
        Err(e) => {
            let outcome = match e {
                PatchError::Refused(..) => "refused",
                PatchError::Contended(..) | PatchError::Locked(_) => "contended",
                _ => "failed",
            };
            json!({"outcome": outcome, "error": with_causes(&e)})
        }
    })
}

pub(super) fn append(host: &RealHost, temp: &Dir, args: &Value) -> Written {
    let run = Run::open(host, temp, args)?;
    let place = StatusPlace { host, run_dir: &run.dir, run_id: &run.id, locks: None };
    Ok(match append::request(&place, &args["steps"].to_string()) {
        Ok(id) => json!({"outcome": "written", "id": id}),
        Err(e @ append::AppendError::Write(_)) => {
            json!({"outcome": "failed", "error": with_causes(&e)})
        }
        Err(e) => json!({"outcome": "refused", "error": with_causes(&e)}),
    })
}

pub(super) fn mark(host: &RealHost, temp: &Dir, args: &Value) -> Written {
    let text = |key: &str| args[key].as_str().unwrap_or_default();
    let names = ResultNames::new(text("file"), &text("session").into(), &text("runId").into());
    let names = names.map_err(|e| with_causes(&e))?;
    let results = host.open_dir_at(temp, layout::RESULTS_DIR.as_ref());
    let results = results.map_err(|e| format!("{}: {e}", layout::RESULTS_DIR))?;
    let (state, timestamp) = (text("state"), args["timestamp"].as_f64());
    let delivered = delivery::mark_delivered(
        host,
        &results,
        &names,
        args["at"].as_i64().unwrap_or_else(|| host.now_ms()),
        |doc| {
            let told = doc.get("state").and_then(|raw| raw.string());
            let at = doc.get("timestamp").and_then(|raw| raw.number());
            told.as_deref() == Some(state) && at == timestamp
        },
        &RetryPolicy::default(),
    );
    Ok(match delivered {
        Ok(Delivered::Marked(_)) => json!({"outcome": "written"}),
        Ok(Delivered::Already) => json!({"outcome": "kept"}),
        Ok(Delivered::Changed) => {
            json!({"outcome": "refused", "error": "it is not what was delivered"})
        }
        Ok(Delivered::Gone) => json!({"outcome": "refused", "error": "there is no result"}),
        Ok(_) => json!({"outcome": "failed", "error": "an unknown outcome"}),
        Err(e) => json!({"outcome": "failed", "error": with_causes(&e)}),
    })
}
