//! `runstore release`: one slot or lease is freed, if it is demonstrably over.
//!
//! Theory of operation. The path leads to the store and to what is held there; the library judges and frees
//! (`store::release`), and judges again where it writes. Nothing is asked back, nothing else is touched: what
//! blocks the release is the answer then, in the words of the rule. To release twice changes nothing.
//! Spec: RS-CHECK-30 to RS-CHECK-33.

use std::io::Write as _;
use std::path::PathBuf;

use runstore::protocol::error::with_causes;
use runstore::store::atomic::Step;
use runstore::store::host::Host as _;
use runstore::store::release::{FreeError, Freed, Place, Standing, free, look};
use runstore::store::slot::SlotError;
use runstore::store::{Opened, RealHost, directory};
use serde::Serialize;

use crate::cli::args::{Format, Policy, ReleaseArgs};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render;

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: &'static str,
    path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    state: &'static str,
    /// Whether it would be, or was, by policy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_policy: bool,
    why: String,
    dry_run: bool,
    /// The effects, in order.
    writes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// Answers.
pub(crate) fn run(args: &ReleaseArgs, output: &mut Output) -> Result<Code, Failure> {
    let host = RealHost::new();
    let (root, place) = find(&host, args)?;
    let by_policy = args.policy == Some(Policy::Abandoned);
    let path = root.join(place.path()).to_string_lossy().into_owned();
    let freed = if args.dry_run {
        let opened = super::open_at(&host, &root, host.now_ms(), <_>::default())?;
        let Opened::Store(store) = opened else { return Err(super::not_a_store(&root)) };
        Freed::Left(look(&store, &place))
    } else {
        let temp = directory::open_root(&host, &root).map_err(|e| {
            let code = match e.kind() {
                std::io::ErrorKind::PermissionDenied => Code::DAMAGED,
                std::io::ErrorKind::NotFound => Code::NOT_FOUND,
                _ => Code::IO,
            };
            Failure::user(code, "the store cannot be written to").because(e)
        })?;
        free(&host, (&temp, &root), &place, by_policy).map_err(|e| failed(&path, &e))?
    };
    let (answer, code) = answer(args, path, &place, by_policy, freed);
    write(&answer, args.format, output)?;
    Ok(code)
}

/// The store and the place that a path means.
fn find(host: &RealHost, args: &ReleaseArgs) -> Result<(PathBuf, Place), Failure> {
    let path = match &args.root {
        Some(root) => root.join(&args.target),
        None => args.target.clone(),
    };
    let path = host.absolute(&path);
    let shown = args.target.display();
    let Some((root, place)) = Place::of(&path) else {
        if let Err(e) = host.stat(&path)
            && e.kind() == std::io::ErrorKind::NotFound
        {
            return Err(Failure::user(Code::NOT_FOUND, format!("{shown} is not there"))
                .hint("runstore slots and runstore leases show the paths of what is held")
                .hint("a path below the store needs --root STORE"));
        }
        return Err(Failure::user(Code::USAGE, format!("{shown} is neither a slot nor a lease"))
            .hint("runstore slots and runstore leases show the paths of both")
            .hint("a path below the store needs --root STORE"));
    };
    // A place that is not there is free; one in a store that is not there is a mistake.
    let kind = host.stat(&root).map_err(|e| super::not_opened(&root, e))?.kind;
    let is_store = kind == runstore::store::host::FileKind::Directory && {
        let opened = super::open_at(host, &root, host.now_ms(), <_>::default())?;
        matches!(opened, Opened::Store(_))
    };
    if !is_store {
        return Err(Failure::user(Code::NOT_FOUND, format!("{} is no store", root.display())));
    }
    Ok((root, place))
}

fn failed(path: &str, e: &FreeError) -> Failure {
    let code = match e {
        FreeError::Taken | FreeError::Slot(SlotError::Claimed(_) | SlotError::Changed(_)) => {
            Code::CONTENDED
        }
        FreeError::Slot(SlotError::Unreadable(_)) => Code::DAMAGED,
        _ => Code::IO,
    };
    let failure = Failure::user(code, format!("{path} was not freed")).because(with_causes(e));
    let write = match e {
        FreeError::Slot(SlotError::Write(e)) | FreeError::Lease(e) => Some(e),
        _ => None,
    };
    match write {
        // The rename was made, and a power cut may undo it.
        Some(e) if e.step == Step::FlushDirectory => failure.hint("ask again to make it last"),
        _ => failure,
    }
}

fn answer(
    args: &ReleaseArgs,
    path: String,
    place: &Place,
    may_by_policy: bool,
    freed: Freed,
) -> (Answer, Code) {
    let mut answer = Answer {
        schema: "runstore.release/1",
        path,
        kind: place.word(),
        run_id: None,
        state: "free",
        by_policy: false,
        why: "nothing is held there".to_owned(),
        dry_run: args.dry_run,
        writes: Vec::new(),
        problems: Vec::new(),
    };
    let (standing, is_done) = match freed {
        Freed::Left(standing) => (standing, false),
        Freed::Freed { was, litter, untold } => {
            let litter = litter.map(|e| format!("something is left under a private name: {e}"));
            let untold = untold.map(|e| format!("the log of the run does not tell it: {e}"));
            answer.problems = litter.into_iter().chain(untold).collect();
            (was, true)
        }
    };
    let code = match standing {
        Standing::Free => Code::FINE,
        Standing::Held { run_id, why } => {
            (answer.run_id, answer.state, answer.why) = (Some(run_id), "held", why);
            Code::ATTENTION
        }
        Standing::Unreadable { why } => {
            (answer.state, answer.why) = ("unreadable", why);
            Code::DAMAGED
        }
        Standing::Over { run_id, why, by_policy, aside } => {
            (answer.run_id, answer.why, answer.by_policy) = (Some(run_id), why, by_policy);
            let may = may_by_policy || !by_policy;
            answer.state = match (is_done, may) {
                (true, _) => "freed",
                (false, true) => "releasable",
                (false, false) => "held",
            };
            if may || is_done {
                answer.writes = effects(place, &aside, by_policy);
                Code::FINE
            } else {
                answer.why = format!("only by policy: {}", answer.why);
                Code::ATTENTION
            }
        }
    };
    (answer, code)
}

/// What a release does, in order.
fn effects(place: &Place, aside: &str, by_policy: bool) -> Vec<String> {
    let path = place.path();
    match place {
        Place::Lease(_) => vec![format!("rename {path} to {aside}, which stays")],
        Place::Slot { .. } => {
            let told = by_policy.then(|| "append a line to the log of its run".to_owned());
            let moved = format!("rename {path} to {aside}…");
            [moved, "delete that".to_owned()].into_iter().chain(told).collect()
        }
    }
}

fn write(answer: &Answer, format: Format, output: &mut Output) -> Result<(), Failure> {
    let out = output.writer();
    match format {
        Format::Json | Format::Jsonl => {
            serde_json::to_writer(&mut *out, answer)?;
            writeln!(out)?;
        }
        Format::Text => {
            let run = answer.run_id.as_deref().map_or("".into(), render::escape);
            let of = if run.is_empty() { String::new() } else { format!(" of run {run}") };
            writeln!(out, "{:<11} the {}{of}", answer.state, answer.kind)?;
            let key = if answer.state == "held" || answer.state == "unreadable" {
                "blocked"
            } else {
                "because"
            };
            writeln!(out, "            {key}  {}", render::escape(&answer.why))?;
            writeln!(out, "            path     {}", render::escape(&answer.path))?;
            let what = if answer.dry_run { "would   " } else { "did     " };
            for effect in &answer.writes {
                writeln!(out, "            {what} {}", render::escape(effect))?;
            }
            if answer.state == "held" && answer.by_policy {
                output.talk("hint: --policy abandoned frees it");
            }
        }
    }
    for problem in &answer.problems {
        output.talk(&format!("note: {}", render::escape(problem)));
    }
    Ok(())
}
