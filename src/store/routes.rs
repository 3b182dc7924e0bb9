//! Routes of nested runs: which runs somebody spoke of as the children of which run.
//!
//! Ordered steps: read the route index → list the routes, bounded → of each route read `route.json`
//! (or what the index holds in its place), then the registry, then the events that it has not folded
//! in, in the order of their names. Only names inside the events root are opened, each by handle, so
//! an entry that leads elsewhere is reported and not followed.
//!
//! What comes out is a list of names with their parents. It judges nothing: a nested run is judged by
//! its own directory. A record that cannot be used costs the others nothing. Nothing is rebuilt,
//! folded in or removed on disk. Spec: RS-NEST-03 to RS-NEST-08, facts §8.5.

use std::collections::HashMap;
use std::ffi::OsStr;

use crate::protocol::evidence::FileFact;
use crate::protocol::finding::{self, FindingKind};
use crate::protocol::nested::{self, EventRefusal, NestedEvent, Route, RouteIndexEntry};
use crate::protocol::nested_summary::Registry;
use crate::protocol::{Document, layout, limits, segment};

use super::host::{FileKind, Host, Part};
use super::open::{Store, StoreProblem};
use super::read::{self, ExpectedOwner};

/// A nested run that a route names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedChild {
    /// Its id: safe to join to the directory of its root run.
    pub id: String,
    /// The run that launched it.
    pub parent: String,
    /// The root run of the route.
    pub root: String,
    /// Whether the route says that it has a run directory. Children without one run inside their
    /// parent's process.
    pub has_dir: bool,
    /// Path of the route, relative to the store.
    pub route: String,
}

/// What the routes of a store say.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// Every nested run that is named, in the order of the routes.
    pub children: Vec<RoutedChild>,
    /// Records that were not used, and why.
    pub problems: Vec<StoreProblem>,
}

impl<H: Host> Store<'_, H> {
    /// Reads the routes of the store; of a store that was opened for one run, only those of its root
    /// run. Nothing is kept: the caller decides how often it looks.
    pub fn routes(&self) -> Routes {
        let Some(temp) = &self.temp_dir else { return Routes::default() };
        let mut look = Look { host: self.host, owner: self.owner, routes: Routes::default() };
        look.all(temp, self.only_root_run.as_deref());
        look.routes
    }
}

struct Look<'h, H: Host> {
    host: &'h H,
    owner: ExpectedOwner,
    routes: Routes,
}

impl<H: Host> Look<'_, H> {
    fn problem(&mut self, kind: &'static FindingKind, path: String, text: impl Into<String>) {
        self.routes.problems.push(StoreProblem { kind, path, text: text.into() });
    }

    /// Opens a directory of a directory; what stands there instead is a problem.
    fn dir(&mut self, parent: &H::Dir, name: &OsStr, path: &str) -> Option<H::Dir> {
        match self.host.open_dir_at(parent, name) {
            Ok(dir) => Some(dir),
            Err(e) => {
                let (kind, text) = match self.host.stat_at(parent, name).ok()?.kind {
                    FileKind::Directory => (&finding::DIR_UNREADABLE, read::plain(&e)),
                    other => {
                        let text = format!("it is {}; it was not entered", other.name());
                        (&finding::NOT_PLAIN, text)
                    }
                };
                self.problem(kind, path.to_owned(), text);
                None
            }
        }
    }

    /// Names in a directory that do not begin with a dot, sorted, at most `limit`.
    fn names(
        &self,
        dir: &H::Dir,
        limit: usize,
        wants: &mut dyn FnMut(&str, Option<FileKind>) -> bool,
    ) -> Vec<String> {
        let (mut names, _) = read::listed(self.host, dir, limit, |entry| {
            let name = entry.name.to_str().filter(|n| !n.starts_with('.'));
            name.filter(|n| wants(n, entry.kind)).map(str::to_owned)
        });
        names.sort_unstable();
        names
    }

    fn all(&mut self, temp: &H::Dir, only: Option<&str>) {
        const TOP: &str = layout::NESTED_EVENTS_DIR;
        let Some(events) = self.dir(temp, TOP.as_ref(), TOP) else { return };
        let index = self.index(&events, only);
        let prefix = only.map(|root| format!("{root}-")).unwrap_or_default();
        let names = self.names(&events, limits::MAX_ROUTES, &mut |name, kind| {
            name.starts_with(&prefix) && kind != Some(FileKind::Regular)
        });
        for name in names {
            let path = format!("{TOP}/{name}");
            let Some(dir) = self.dir(&events, name.as_ref(), &path) else { continue };
            let (fact, _) = read::document_unlisted(
                self.host,
                &dir,
                nested::ROUTE_FILE,
                nested::RECORD_MAX_BYTES,
                self.owner,
                Route::read,
            );
            let route = match (fact, index.get(&name)) {
                (FileFact::Present(route, _), _) => *route,
                // The index holds the same, and the file is rebuilt from it (facts Q-40).
                (FileFact::Absent, Some(route)) => route.clone(),
                (FileFact::Absent, None) => {
                    // The directory comes first, so an empty one is a route in the making.
                    if self.has_news(&dir) {
                        let text = "it has events, but no route.json and no index entry";
                        self.problem(&finding::NESTED_ROUTE_INVALID, path, text);
                    }
                    continue;
                }
                (other, _) => {
                    let text = format!("route.json: {}", why_not(&other));
                    self.problem(&finding::NESTED_ROUTE_INVALID, path, text);
                    continue;
                }
            };
            if route.dir_name() != name {
                let text = "route.json names another root or token than its directory";
                self.problem(&finding::NESTED_ROUTE_INVALID, path, text);
                continue;
            }
            // `run-1` is also how the name of a route of `run-1-2` begins.
            if only.is_none_or(|root| root == route.root_run_id) {
                self.route(&dir, &route, &path);
            }
        }
    }

    /// Whether a route has any event or a registry.
    fn has_news(&self, dir: &H::Dir) -> bool {
        let events = self.host.open_dir_at(dir, nested::EVENTS_DIR.as_ref());
        events.is_ok_and(|events| !self.names(&events, 1, &mut |_, _| true).is_empty())
            || self.host.stat_at(dir, nested::REGISTRY_FILE.as_ref()).is_ok()
    }

    /// The route index: routes by the name of their directory.
    fn index(&mut self, events: &H::Dir, only: Option<&str>) -> HashMap<String, Route> {
        let mut found = HashMap::new();
        let open = |dir: &H::Dir, name: &str| self.host.open_dir_at(dir, name.as_ref()).ok();
        let roots = open(events, nested::ROUTE_INDEX_DIR)
            .and_then(|dir| open(&dir, nested::ROUTE_INDEX_ROOTS));
        let Some(roots) = roots else { return found };
        let only = only.map(segment::percent_encode);
        let names = self.names(&roots, limits::MAX_ROUTES, &mut |name, _| {
            only.as_deref().is_none_or(|wanted| wanted == name)
        });
        let mut room = limits::MAX_SMALL_RECORDS;
        for root in names {
            let Ok(dir) = self.host.open_dir_at(&roots, root.as_ref()) else { continue };
            let most = room.min(limits::MAX_ROUTES);
            let mut entries = self.names(&dir, most, &mut |name, _| name.ends_with(".json"));
            entries.truncate(room);
            room -= entries.len();
            for name in entries {
                let path = format!(
                    "{}/{}/{}/{root}/{name}",
                    layout::NESTED_EVENTS_DIR,
                    nested::ROUTE_INDEX_DIR,
                    nested::ROUTE_INDEX_ROOTS
                );
                let limit = nested::RECORD_MAX_BYTES;
                let (fact, _) = read::document_unlisted(
                    self.host,
                    &dir,
                    &name,
                    limit,
                    self.owner,
                    RouteIndexEntry::read,
                );
                let Some(entry) = fact.value() else {
                    self.problem(&finding::NESTED_ROUTE_INVALID, path, why_not(&fact));
                    continue;
                };
                match entry.base_name() {
                    None => {
                        let text = "it leads outside the directory of routes; it was not followed";
                        self.problem(&finding::NESTED_ROUTE_OUTSIDE, path, text);
                    }
                    Some(base) if base == entry.route.dir_name() => {
                        found.insert(base.to_owned(), entry.route.clone());
                    }
                    Some(_) => {
                        let text = "it leads to the route of another root or token";
                        self.problem(&finding::NESTED_ROUTE_INVALID, path, text);
                    }
                }
            }
        }
        found
    }

    /// The children that one route names.
    fn route(&mut self, dir: &H::Dir, route: &Route, path: &str) {
        let limit = limits::STATUS_MAX_BYTES;
        let name = nested::REGISTRY_FILE;
        let (fact, _) =
            read::document_unlisted(self.host, dir, name, limit, self.owner, Registry::read);
        let empty = || Registry { root_run_id: route.root_run_id.clone(), ..Registry::default() };
        let mut registry = match fact {
            FileFact::Absent => empty(),
            FileFact::Present(found, _) if found.root_run_id == route.root_run_id => *found,
            other => {
                let why = match &other {
                    FileFact::Present(..) => "it names another root".to_owned(),
                    fact => why_not(fact),
                };
                let text = format!("{name}: {why}");
                self.problem(&finding::NESTED_ROUTE_INVALID, path.to_owned(), text);
                empty()
            }
        };
        self.fold_events(dir, route, path, &mut registry);
        self.look_at_controls(dir, path);
        for child in &registry.children {
            child.each_run(&route.root_run_id, &mut |run, parent| {
                if run.id != parent && self.routes.children.len() < limits::MAX_SMALL_RECORDS {
                    self.routes.children.push(RoutedChild {
                        id: run.id.clone(),
                        parent: parent.to_owned(),
                        root: route.root_run_id.clone(),
                        has_dir: run.async_dir.is_some(),
                        route: path.to_owned(),
                    });
                }
            });
        }
    }

    /// Folds in what nobody folded in yet, in the order of names, which is that of time.
    fn fold_events(&mut self, dir: &H::Dir, route: &Route, path: &str, registry: &mut Registry) {
        let path = format!("{path}/{}", nested::EVENTS_DIR);
        let Some(events) = self.dir(dir, nested::EVENTS_DIR.as_ref(), &path) else { return };
        let processed: std::collections::HashSet<&str> =
            registry.processed.iter().map(String::as_str).collect();
        let names = self.names(&events, limits::ROUTE_EVENTS, &mut |name, _| {
            (name.ends_with(".json") || name.ends_with(".jsonl")) && !processed.contains(name)
        });
        drop(processed);
        let mut ignored = Vec::new();
        for name in names {
            if let Some(why) = self.fold_file(&events, &name, route, registry) {
                ignored.push((name, why));
            }
        }
        self.tell_ignored(&path, "event", &ignored);
    }

    /// What is asked of nested runs is their runners' business; what no runner could take is told.
    fn look_at_controls(&mut self, dir: &H::Dir, path: &str) {
        let path = format!("{path}/{}", nested::CONTROLS_DIR);
        let Some(controls) = self.dir(dir, nested::CONTROLS_DIR.as_ref(), &path) else { return };
        let mut ignored = Vec::new();
        for name in
            self.names(&controls, limits::ROUTE_EVENTS, &mut |name, _| name.ends_with(".json"))
        {
            let part = Part::All(nested::RECORD_MAX_BYTES);
            let why = match read::bytes::<H, ()>(self.host, &controls, &name, part, self.owner) {
                Ok(read) => Document::from_bytes(&read.bytes).err().map(|e| e.to_string()),
                // Taken up between the listing and the read.
                Err(FileFact::Absent) => None,
                Err(fact) => Some(why_not(&fact)),
            };
            ignored.extend(why.map(|why| (name, why)));
        }
        self.tell_ignored(&path, "control file", &ignored);
    }

    /// One problem for all files of a directory that were passed over: a broken writer may have left thousands.
    fn tell_ignored(&mut self, path: &str, what: &str, ignored: &[(String, String)]) {
        if let Some((name, why)) = ignored.first() {
            let text = match ignored.len() {
                1 => format!("the {what} was passed over: {why}"),
                n => format!("the first of {n} {what}s that were passed over: {why}"),
            };
            self.problem(&finding::NESTED_EVENT_IGNORED, format!("{path}/{name}"), text);
        }
    }

    /// Folds one event file in; the answer is the first reason for which a part of it was not used.
    fn fold_file(
        &self,
        events: &H::Dir,
        name: &str,
        route: &Route,
        registry: &mut Registry,
    ) -> Option<String> {
        let part = Part::All(nested::RECORD_MAX_BYTES);
        let read = match read::bytes::<H, ()>(self.host, events, name, part, self.owner) {
            Ok(read) => read,
            // Evicted by a projector between the listing and the read.
            Err(FileFact::Absent) => return None,
            Err(fact) => return Some(why_not(&fact)),
        };
        let mut problem = None;
        for text in nested::texts_of(name, &read.bytes) {
            let event = Document::from_bytes(text)
                .map_err(EventRefusal::from)
                .and_then(|doc| NestedEvent::read(&doc, route));
            match event {
                Ok(NestedEvent::Child { kind, child, .. }) => {
                    registry.fold(kind, *child);
                }
                Ok(_) => {}
                Err(refusal) => {
                    problem.get_or_insert_with(|| refusal.to_string());
                }
            }
        }
        problem
    }
}

fn why_not<T>(fact: &FileFact<T>) -> String {
    match fact {
        FileFact::Absent => "it is not there".to_owned(),
        FileFact::Unsafe(what) => format!("it is {what}; it was not opened"),
        FileFact::Unreadable(why) => why.clone(),
        FileFact::Damaged(error, _) => error.to_string(),
        FileFact::Present(..) => "it cannot be used".to_owned(),
    }
}
