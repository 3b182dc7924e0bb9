//! `runstore prune`: runs that nobody can want any more are removed.
//!
//! Theory of operation. Without `--apply` it says what would be removed and why everything else stays, and writes
//! nothing. With it the library makes the plan anew under the retention lock and judges each run again
//! (`store::prune`). To apply twice changes nothing. Spec: RS-RET-09.

use std::io::Write as _;

use runstore::protocol::error::with_causes;
use runstore::protocol::retention::Wish;
use runstore::store::host::Host as _;
use runstore::store::prune::{Candidate, Kept, PruneError, apply, plan};
use runstore::store::{Opened, RealHost, directory};
use serde::Serialize;

use crate::cli::args::{Format, PruneArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// A run that is, or would be, removed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gone {
    run_id: String,
    path: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at_ms: Option<i64>,
}

/// A run that stays.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stays {
    run_id: String,
    path: String,
    reason: &'static str,
    why: String,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: &'static str,
    now_ms: i64,
    applied: bool,
    remove: Vec<Gone>,
    kept: Vec<Stays>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked: Vec<String>,
    leftovers: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finished: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    put_back: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    summary: Summary,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    runs: usize,
    bytes: u64,
    kept: usize,
}

impl Answer {
    fn add(&mut self, remove: Vec<Candidate>, kept: Vec<Kept>, blocked: Option<String>) {
        self.remove.extend(remove.into_iter().map(|c| Gone {
            run_id: c.run_id,
            path: c.path,
            bytes: c.bytes,
            ended_at_ms: c.ended_ms,
        }));
        self.kept.extend(kept.into_iter().map(|k| Stays {
            run_id: k.run_id,
            path: k.path,
            reason: k.keep.word,
            why: k.keep.why,
        }));
        self.blocked.extend(blocked);
    }
}

/// Answers.
pub(crate) fn run(args: &PruneArgs, output: &mut Output) -> Result<Code, Failure> {
    if args.apply && (args.common.now.is_some() || args.common.host.is_some()) {
        let what = "what is removed is judged as of now and of this host";
        return Err(Failure::user(Code::USAGE, what).hint("leave --now and --host to the plan"));
    }
    let host = super::host(&args.common);
    let paths = super::store_paths(&host, "prune", &args.targets, &args.common)?;
    let older_than_ms = i64::try_from(args.older_than.as_millis()).unwrap_or(i64::MAX);
    let (keep_last, session) = (args.keep_last, args.common.session.clone());
    let wish = Wish { older_than_ms, keep_last, session };
    let mut answer = Answer {
        schema: "runstore.prune/1",
        now_ms: args.common.now.unwrap_or_else(|| host.now_ms()),
        applied: args.apply,
        ..Answer::default()
    };
    let (mut code, mut looked_at) = (Code::FINE, 0);
    let mut done = Ok(());
    for path in &paths {
        match one_store(&host, args, path, &wish, &mut answer) {
            Ok(of_store) => (code, looked_at) = (code.worse(of_store), looked_at + 1),
            Err(failure) => {
                done = Err(failure);
                break;
            }
        }
    }
    // What was removed from one store is told also where the next one cannot be touched.
    if done.is_err() && (looked_at == 0 || !args.apply) {
        return done.map(|()| code);
    }
    // A wait that cannot be read is a damaged record, and keeps everything.
    if !answer.blocked.is_empty() {
        code = code.worse(Code::DAMAGED);
    }
    if !answer.problems.is_empty() {
        code = code.worse(Code::ATTENTION);
    }
    let bytes = answer.remove.iter().map(|gone| gone.bytes).sum();
    answer.summary = Summary { runs: answer.remove.len(), bytes, kept: answer.kept.len() };
    write(&answer, args.common.format, output)?;
    done.map(|()| code)
}

fn one_store(
    host: &RealHost,
    args: &PruneArgs,
    path: &std::path::Path,
    wish: &Wish,
    answer: &mut Answer,
) -> Result<Code, Failure> {
    let Opened::Store(store) = super::open(host, path, &args.common)? else {
        return Err(Failure::user(Code::USAGE, format!("{} is one run", path.display()))
            .hint("prune takes a whole store"));
    };
    if args.apply {
        let root = store.root.clone();
        drop(store);
        return applied(host, &root, wish, answer);
    }
    let planned = plan(&store, wish).ok_or_else(|| no_store(path))?;
    answer.leftovers += planned.leftovers;
    answer.add(planned.remove, planned.kept, planned.blocked);
    Ok(Code::FINE)
}

fn no_store(path: &std::path::Path) -> Failure {
    Failure::user(Code::USAGE, format!("{} is no whole store", path.display()))
        .hint("who waits for a run is known only at the store (temp root)")
}

fn applied(
    host: &RealHost,
    root: &std::path::Path,
    wish: &Wish,
    answer: &mut Answer,
) -> Result<Code, Failure> {
    let temp = directory::open_root(host, root).map_err(|e| {
        let code = match e.kind() {
            std::io::ErrorKind::PermissionDenied => Code::DAMAGED,
            _ => Code::IO,
        };
        Failure::user(code, "the store cannot be written to").because(e)
    })?;
    let done = apply(host, (&temp, root), wish, &mut |_| {}).map_err(|e| match e {
        PruneError::NotAStore => no_store(root),
        PruneError::Locked(why) => {
            Failure::user(Code::CONTENDED, "nothing was removed").because(why)
        }
        e => Failure::user(Code::IO, "nothing was removed").because(with_causes(&e)),
    })?;
    answer.add(done.removed, done.kept, done.blocked);
    answer.finished.extend(done.finished);
    answer.put_back.extend(done.put_back);
    answer.problems.extend(done.problems);
    Ok(done.stopped.map_or(Code::FINE, |e| {
        answer.problems.push(format!("it stopped: {}", with_causes(&e)));
        Code::IO
    }))
}

fn write(answer: &Answer, format: Format, output: &mut Output) -> Result<(), Failure> {
    let out = output.writer();
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, answer)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            for gone in &answer.remove {
                serde_json::to_writer(&mut *out, gone)?;
                writeln!(out)?;
            }
            for stays in &answer.kept {
                serde_json::to_writer(&mut *out, stays)?;
                writeln!(out)?;
            }
        }
        Format::Text => {
            for stays in &answer.kept {
                let (run, why) = (render::escape(&stays.run_id), render::escape(&stays.why));
                writeln!(out, "keep    {:<18} {run}: {why}", stays.reason)?;
            }
            let word = if answer.applied { "removed" } else { "remove " };
            for gone in &answer.remove {
                let ended = gone.ended_at_ms.unwrap_or(answer.now_ms);
                let age = render::age(answer.now_ms.saturating_sub(ended));
                let run = render::escape(&gone.run_id);
                writeln!(out, "{word} {run}: ended {age} ago, {} bytes", gone.bytes)?;
            }
            for (what, runs) in [("finished", &answer.finished), ("put back", &answer.put_back)] {
                for run in runs {
                    writeln!(out, "{what} {}: its removal was interrupted", render::escape(run))?;
                }
            }
            let Summary { runs, bytes, kept } = answer.summary;
            let (noun, done) = (
                if runs == 1 { "run" } else { "runs" },
                if answer.applied { "removed" } else { "to be removed" },
            );
            writeln!(out, "{runs} {noun} {done}, {bytes} bytes; {kept} kept")?;
            if !answer.applied && runs + answer.leftovers > 0 {
                output.talk("hint: --apply removes them");
            }
        }
    }
    for line in &answer.blocked {
        output.talk(&format!("nothing may be removed: {}", render::escape(line)));
    }
    for line in &answer.problems {
        output.talk(&format!("problem: {}", render::escape(line)));
    }
    Ok(())
}
