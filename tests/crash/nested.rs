//! Routes of nested runs: every crash of making one, of putting news into it, and of folding news in; and of making
//! the budget of a tree. Spec: RS-NEST-30 to RS-NEST-36, RS-START-90.

use std::path::Path;

use runstore::protocol::budget::{BudgetRef, Manifest};
use runstore::protocol::nested::{NestedEvent, Route, RouteIndexEntry};
use runstore::protocol::nested_summary::{ChildEvent, Registry};
use runstore::protocol::written_nested::{NestedSelf, SummaryText};
use runstore::protocol::{Document, RunMode, RunState};
use runstore::store::budget::{self, BudgetError};
use runstore::store::host::WriteHost as _;
use runstore::store::nested::{
    OpenRoute, Projected, RouteError, create_route, open_route, project, put_event, results_dir,
    runs_root,
};
use testkit::fault::{Crash, FaultHost, Model, Sabotage, explore, explore_sabotaged};

use crate::sweep::{self, every_call};
use crate::table;

const EVENTS: &str = "nested-subagent-events";

fn empty(_: &FaultHost) {}

/// Every file below the directory of routes whose name is like this: path and text.
fn files(host: &FaultHost, wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let tree = host.tree();
    let files = tree.iter().filter(|(path, bytes)| {
        path.starts_with(EVENTS) && bytes.is_some() && !path.ends_with(".tmp") && wanted(path)
    });
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    files
        .map(|(path, bytes)| (path.clone(), bytes.as_ref().map(text).unwrap_or_default()))
        .collect()
}

fn read<T, E: std::fmt::Display>(
    text: &str,
    what: &str,
    read: impl Fn(&Document<'_>) -> Result<T, E>,
) -> Result<T, String> {
    let doc = Document::parse(text).map_err(|e| format!("{what} is torn: {e}"))?;
    read(&doc).map_err(|e| format!("{what}: {e}"))
}

fn made(host: &FaultHost) -> OpenRoute<usize> {
    create_route(host, &0, "root").expect("nothing fails here")
}

/// Where it is named it can be used, and the directory comes before both names.
fn a_route_is_in_the_making_or_whole(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let routes = files(host, |path| path.ends_with("/route.json"));
    let entries = files(host, |path| path.contains(".route-index"));
    for (path, text) in &routes {
        let route = read(text, "the route", Route::read)?;
        let dir = format!("{EVENTS}/{}", route.dir_name());
        for name in ["events", "controls"] {
            if *path != format!("{dir}/route.json") || !host.has(&format!("/{dir}/{name}")) {
                return Err(format!("{path} is no whole route"));
            }
        }
    }
    for (_, text) in &entries {
        let entry = read(text, "the index entry", RouteIndexEntry::read)?;
        let dir = format!("/{EVENTS}/{}/events", entry.route.dir_name());
        if !host.has(&dir) {
            return Err("an index entry leads to nothing".to_owned());
        }
    }
    let whole = routes.len() == 1 && entries.len() == 1;
    if !routes.is_empty() && entries.is_empty() {
        return Err("the route is ahead of its index entry".to_owned());
    }
    if crash.acknowledged && !whole { Err("it is lost".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn a_route_is_in_the_making_or_whole_after_every_crash() {
    let seen = explore(empty, made, a_route_is_in_the_making_or_whole);
    table::seen("nested::create_route", &seen);
}

/// A route whose `route.json` is gone, as after an old crash.
fn without_its_file(host: &FaultHost) {
    let route = made(host);
    let dir = host.dir(&format!("/{EVENTS}/{}", route.route.dir_name()));
    host.unlink(&dir, "route.json".as_ref()).expect("there");
    host.sync_dir(&dir).expect("there");
}

/// What a configuration says of the only route.
fn named(host: &FaultHost) -> Route {
    let entries = files(host, |path| path.contains(".route-index"));
    read(&entries[0].1, "the entry", RouteIndexEntry::read).expect("whole").route
}

fn opened(host: &FaultHost) -> OpenRoute<usize> {
    open_route(host, &0, &named(host)).expect("nothing fails here")
}

#[test]
pub(crate) fn a_route_that_lost_its_file_has_it_again_after_every_crash() {
    let seen = explore(without_its_file, opened, a_route_is_in_the_making_or_whole);
    table::seen("nested::open_route", &seen);
}

fn with_route(host: &FaultHost) {
    made(host);
}

fn put(
    host: &FaultHost,
    kind: ChildEvent,
    run_id: &str,
    state: RunState,
) -> Result<(), RouteError> {
    let route = open_route(host, &0, &named(host))?;
    let own = NestedSelf::of_root("root", Some(0));
    host.wait_ms(1);
    let of = SummaryText {
        run_id,
        async_dir: "/nested-subagent-runs/root/c",
        pid: Some(7),
        session_id: Some("S"),
        mode: RunMode::Single,
        state,
        error: None,
        steps: &[],
        started_at_ms: 1,
        ended_at_ms: None,
        now_ms: runstore::store::Host::now_ms(host),
    };
    put_event(host, &route, kind, &own, &of)
}

fn told(host: &FaultHost) {
    put(host, ChildEvent::Started, "c", RunState::Running).expect("nothing fails here");
}

fn events(host: &FaultHost) -> Vec<(String, String)> {
    files(host, |path| path.contains("/events/"))
}

fn an_event_is_whole_or_absent(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let (route, events) = (named(host), events(host));
    for (_, text) in &events {
        read(text, "the event", |doc| NestedEvent::read(doc, &route))?;
    }
    // News is not flushed for itself; the directory of the run decides.
    let kept = !events.is_empty() || crash.model == Model::Power;
    if crash.acknowledged && !kept { Err("it is lost".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn news_of_a_nested_run_are_whole_or_absent_after_every_crash() {
    let seen = explore(with_route, told, an_event_is_whole_or_absent);
    table::seen("nested::put_event", &seen);
    let seen = explore_sabotaged(with_route, told, an_event_is_whole_or_absent, Sabotage::Swap(2));
    table::caught("nested::put_event", "it has its name before it is on the disk", &seen);
}

/// A registry that forgets one event, and three that it does not know.
fn with_news(host: &FaultHost) {
    let route = made(host);
    let dir = format!("/{EVENTS}/{}", route.route.dir_name());
    let name = |n: usize| format!("{:013}-00000000-0000-4000-8000-{n:012}.json", n + 1);
    let names: Vec<String> = (0..998).map(name).map(|name| format!("\"{name}\"")).collect();
    let registry = format!(
        r#"{{"rootRunId":"root","updatedAt":1,"children":[],"processedEvents":[{}]}}"#,
        names.join(",")
    );
    host.put(&format!("{dir}/registry.json"), registry);
    host.put(&format!("{dir}/events/{}", name(0)), "{}");
    put(host, ChildEvent::Started, "c", RunState::Running).expect("room");
    put(host, ChildEvent::Updated, "c", RunState::Running).expect("room");
    put(host, ChildEvent::Completed, "c", RunState::Failed).expect("room");
}

fn try_project(host: &FaultHost) -> Result<Projected, RouteError> {
    project(host, &open_route(host, &0, &named(host))?)
}

fn projected(host: &FaultHost) {
    let done = try_project(host).expect("nothing fails here");
    assert_eq!((done.folded, done.problems), (3, Vec::new()));
}

/// What is known of the run, from the registry and what it has not folded in: as every reader does it.
fn nothing_is_lost(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let route = named(host);
    let registries = files(host, |path| path.ends_with("/registry.json"));
    let mut registry = match registries.first() {
        Some((_, text)) => read(text, "the registry", Registry::read)?,
        // Without a journal a power cut may take a name of this level: the events are still there.
        None if !crash.journal => Registry::default(),
        None => return Err("the registry is gone".to_owned()),
    };
    let mut unknown = 0;
    for (path, text) in events(host) {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        if registry.processed.contains(&name) {
            continue;
        }
        match read(&text, "the event", |doc| NestedEvent::read(doc, &route)) {
            Ok(NestedEvent::Child { kind, child, .. }) => {
                unknown += 1;
                registry.fold(kind, *child);
            }
            // The one that was to be forgotten.
            _ if text == "{}" => {}
            other => return Err(format!("{name}: {other:?}")),
        }
    }
    let ended = registry.children.first().is_some_and(|child| child.is_terminal());
    if !ended {
        return Err("the end of the run is lost".to_owned());
    }
    let done = unknown == 0 || crash.model == Model::Power;
    if crash.acknowledged && !done { Err("it was not folded in".to_owned()) } else { Ok(()) }
}

#[test]
pub(crate) fn no_news_are_lost_by_a_projection_after_every_crash() {
    let seen = explore(with_news, projected, nothing_is_lost);
    table::seen("nested::project", &seen);
}

#[test]
pub(crate) fn news_that_are_removed_before_they_are_folded_in_are_caught() {
    let early = |host: &FaultHost| {
        let route = named(host);
        let dir = host.dir(&format!("/{EVENTS}/{}/events", route.dir_name()));
        let (last, _) = events(host).pop().expect("there");
        let name = last.rsplit('/').next().expect("a name").to_owned();
        host.unlink(&dir, name.as_ref()).expect("there");
    };
    let seen = explore(with_news, early, nothing_is_lost);
    table::caught("nested::project", "news are removed before they are folded in", &seen);
}

#[test]
pub(crate) fn the_places_of_nested_runs_are_there_once_acknowledged() {
    type Make = for<'h> fn(&'h FaultHost) -> Result<usize, RouteError>;
    let rows: [(&str, &str, Make); 2] = [
        ("nested::runs_root", "/nested-subagent-runs/root", |host| runs_root(host, &0, "root")),
        ("nested::results_dir", "/nested/root", |host| results_dir(host, &0, "root")),
    ];
    for (row, parts, make) in rows {
        let act = |host: &FaultHost| make(host).expect("nothing fails here");
        let seen = explore(empty, act, |host, crash| {
            let lost = crash.acknowledged && !host.has(parts);
            if lost { Err(format!("{parts} is lost")) } else { Ok(()) }
        });
        table::seen(row, &seen);
    }
}

fn try_budget(host: &FaultHost) -> Result<BudgetRef, BudgetError> {
    budget::create(host, &0, Path::new("/"), "root", 3)
}

/// Whoever finds a manifest finds a whole budget.
fn a_budget_is_whole_or_none(host: &FaultHost, crash: &Crash) -> Result<(), String> {
    let tree = host.tree();
    let manifest = tree.iter().find(|(path, _)| path.ends_with("/manifest.json"));
    let Some((path, bytes)) = manifest else {
        return if crash.acknowledged { Err("it is lost".to_owned()) } else { Ok(()) };
    };
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    read(&text, "the manifest", Manifest::read)?;
    let claims = format!("/{}", path.replace("manifest.json", "claims"));
    if host.has(&claims) { Ok(()) } else { Err("a budget without its claims".to_owned()) }
}

#[test]
pub(crate) fn a_budget_is_whole_or_none_after_every_crash() {
    let made = |host: &FaultHost| drop(try_budget(host).expect("nothing fails here"));
    let seen = explore(empty, made, a_budget_is_whole_or_none);
    table::seen("budget::create", &seen);
    every_call(empty, try_budget, |host, answer, fault| {
        let at = format!("{fault:?}: {answer:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
        a_budget_is_whole_or_none(host, &died()).unwrap_or_else(|e| panic!("{at}: {e}"));
        if let Ok(named) = answer {
            budget::check(host, &0, &named).unwrap_or_else(|e| panic!("{at}: {e}"));
        }
    });
}

#[test]
fn a_failing_effect_is_told_without_a_token_and_leaves_nothing_half() {
    let crash = |host: &FaultHost| a_route_is_in_the_making_or_whole(host, &died());
    every_call(
        empty,
        |host| create_route(host, &0, "root").map(drop),
        |host, answer, fault| {
            let at = format!("{fault:?}: {answer:?}");
            assert_eq!(sweep::litter(host), [""; 0], "{at}");
            crash(host).unwrap_or_else(|e| panic!("{at}: {e}"));
            if let Err(e) = answer {
                let text = runstore::protocol::error::with_causes(&e);
                assert!(!text.contains("root-"), "no error shows a token: {text}");
            }
        },
    );
    every_call(with_news, try_project, |host, answer, fault| {
        let at = format!("{fault:?}: {answer:?}");
        assert_eq!(sweep::litter(host), [""; 0], "{at}");
        nothing_is_lost(host, &died()).unwrap_or_else(|e| panic!("{at}: {e}"));
    });
}

/// A process that died before its operation returned.
fn died() -> Crash {
    let detail = String::new();
    Crash { model: Model::Process, after: 0, acknowledged: false, journal: true, detail }
}
