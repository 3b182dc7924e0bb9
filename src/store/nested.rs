//! Routes of nested runs, for those who write: a route is made, news is put into it, news is folded in.
//!
//! Ordered steps of [`create_route`]:
//! 1. the directory of routes, the route, its `events` and `controls`, each durable. A reader takes an empty
//!    route for one in the making;
//! 2. the index entry, durable: from here on a reader that finds the directory can rebuild `route.json`;
//! 3. `route.json`, durable. Last, because whoever holds the route from here on may rely on all of it.
//!
//! Ordered steps of [`put_event`]: a replacement at the level ordered, under a new name. News is never
//! flushed for itself: the nested run's own directory decides (`RS-NEST-06`), and a reader that misses an
//! event learns the same from there.
//!
//! Ordered steps of [`project`], for whoever speaks for the root:
//! 1. read the registry, and the event files that it has not folded in, in the order of their names;
//! 2. fold them in, and replace the registry, ordered;
//! 3. remove the files of the names that it forgot. After step 2: an event that is removed before it is folded
//!    in would be lost, one that is folded in twice changes nothing. A file with an answer to a
//!    control request stays: who asked has to find it.
//!
//! What a crash leaves: a route without `route.json`, which readers rebuild in memory and [`open_route`]
//! rebuilds on the disk; an event or none; an old registry, or a new one with files that are folded in again.
//! Two projectors may write over each other: what one of them forgets is folded in by the next.
//!
//! Everything is entered by name below the temp root and by handle; no path of a record is opened, and no
//! error shows a token. Spec: RS-NEST-30 to RS-NEST-36; facts, W-31.

use std::fmt;
use std::io;

use crate::protocol::nested::{self, NestedEvent, Route};
use crate::protocol::nested_summary::{ChildEvent, Merge};
use crate::protocol::written_nested::{NestedSelf, RegistryText, SummaryText, event_text};
use crate::protocol::{DecodeError, Document, Raw, layout, limits, segment};

use super::atomic::{self, Durability, Options, Target, WriteError};
use super::directory;
use super::host::{Host, Part, ReadError, WriteHost};
use super::retry::RetryPolicy;
use super::{identity, read};

/// A route that is held open.
pub struct OpenRoute<D> {
    /// Whose it is. Its token is shown by nobody.
    pub route: Route,
    dir: D,
    events: D,
}

impl<D> fmt::Debug for OpenRoute<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRoute").field("route", &self.route).finish_non_exhaustive()
    }
}

/// Why a route cannot be used. No text shows its token.
#[derive(Debug)]
#[non_exhaustive]
pub enum RouteError {
    /// The id of the root, or of a run, is none that can be nested.
    Id(DecodeError),
    /// There is no such route.
    Absent,
    /// Something else stands in its place, or it names another root or token; what.
    Foreign(String),
    /// The system does not let it be looked at.
    Io(io::Error),
    /// It could not be made or changed.
    Write(WriteError),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(_) => f.write_str("the record of a nested run would be passed over"),
            Self::Absent => f.write_str("there is no route for the runs of this root"),
            Self::Foreign(what) => write!(f, "the route of the root is not taken: {what}"),
            Self::Io(_) => f.write_str("the route of the root cannot be entered"),
            Self::Write(_) => f.write_str("the route of the root cannot be written to"),
        }
    }
}

impl std::error::Error for RouteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Id(e) => Some(e),
            Self::Io(e) => Some(e),
            Self::Write(e) => Some(e),
            Self::Absent | Self::Foreign(_) => None,
        }
    }
}

impl From<WriteError> for RouteError {
    fn from(e: WriteError) -> Self {
        // The name of a route ends in its token.
        let shown = e.name.starts_with(layout::NESTED_EVENTS_DIR) || e.name.ends_with(".json");
        let name = if shown { e.name.clone() } else { layout::NESTED_EVENTS_DIR.to_owned() };
        Self::Write(WriteError { name, ..e })
    }
}

/// Makes a route for the nested runs of a root. See the module's ordered steps.
/// Spec: RS-NEST-30.
///
/// # Errors
/// [`RouteError`]; a part of it may be there then, in which nobody has put anything.
pub fn create_route<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    root_run_id: &str,
) -> Result<OpenRoute<H::Dir>, RouteError> {
    let route = Route::new(root_run_id, &identity::instance_id(host), host.now_ms());
    let route = route.map_err(RouteError::Id)?;
    let retry = RetryPolicy::default();
    let made = |dir: &H::Dir, name: &str| {
        let made = directory::create_durable(host, dir, name, &retry);
        made.map(|(dir, _)| dir).map_err(RouteError::from)
    };
    let all = made(temp, layout::NESTED_EVENTS_DIR)?;
    let dir = made(&all, &route.dir_name())?;
    let events = made(&dir, nested::EVENTS_DIR)?;
    made(&dir, nested::CONTROLS_DIR)?;
    let index = made(&all, nested::ROUTE_INDEX_DIR)?;
    let index =
        made(&made(&index, nested::ROUTE_INDEX_ROOTS)?, &segment::percent_encode(root_run_id))?;
    let new = Options::new(Durability::Durable).target(Target::New);
    let (name, text) = route.index_entry();
    // The name is that of the token; an error must not show it.
    atomic::replace(host, &index, &name, text.as_bytes(), &new)
        .map_err(|e| WriteError { name: nested::ROUTE_INDEX_DIR.to_owned(), ..e })
        .map_err(RouteError::Write)?;
    atomic::replace(host, &dir, nested::ROUTE_FILE, route.text().as_bytes(), &new)?;
    Ok(OpenRoute { route, dir, events })
}

/// Opens the route of which a configuration says the root and the token; a `route.json` that is missing is
/// made again.
/// Spec: RS-NEST-31.
///
/// # Errors
/// [`RouteError`].
pub fn open_route<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    named: &Route,
) -> Result<OpenRoute<H::Dir>, RouteError> {
    let entered = |dir: &H::Dir, name: &str| match host.open_dir_at(dir, name.as_ref()) {
        Ok(dir) => Ok(dir),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(RouteError::Absent),
        Err(e) => Err(RouteError::Io(e)),
    };
    let dir = entered(&entered(temp, layout::NESTED_EVENTS_DIR)?, &named.dir_name())?;
    let events = entered(&dir, nested::EVENTS_DIR)?;
    let foreign = |what: String| Err(RouteError::Foreign(what));
    let part = Part::All(nested::RECORD_MAX_BYTES);
    let route = match host.read_at(&dir, nested::ROUTE_FILE.as_ref(), part) {
        Ok(found) => match Document::from_bytes(&found.bytes).and_then(|doc| Route::read(&doc)) {
            Ok(route) if route.dir_name() == named.dir_name() => route,
            Ok(_) => return foreign("route.json names another root or token".to_owned()),
            Err(e) => return foreign(format!("route.json: {e}")),
        },
        Err(ReadError::Absent) => {
            let mut route = named.clone();
            route.created_at_ms = host.now_ms();
            let options = Options::new(Durability::Durable);
            atomic::replace(host, &dir, nested::ROUTE_FILE, route.text().as_bytes(), &options)?;
            route
        }
        Err(ReadError::NotPlain(kind)) => {
            return foreign(format!("route.json is {}", kind.name()));
        }
        Err(ReadError::TooLarge { .. }) => return foreign("route.json is too large".to_owned()),
        Err(ReadError::Io(e)) => return Err(RouteError::Io(e)),
    };
    Ok(OpenRoute { route, dir, events })
}

/// Puts news of a nested run into its route. See the module's ordered steps.
/// Spec: RS-NEST-32, RS-NEST-33.
///
/// # Errors
/// [`RouteError`]; nothing is there then.
pub fn put_event<H: WriteHost>(
    host: &H,
    route: &OpenRoute<H::Dir>,
    kind: ChildEvent,
    own: &NestedSelf,
    of: &SummaryText<'_>,
) -> Result<(), RouteError> {
    let text = event_text(kind, &route.route, own, of).map_err(RouteError::Id)?;
    let name = format!("{:013}-{}.json", of.now_ms.max(0), identity::instance_id(host));
    let options = Options::new(Durability::Ordered).target(Target::New);
    atomic::replace(host, &route.events, &name, text.as_bytes(), &options)?;
    Ok(())
}

/// What a projection did.
#[derive(Debug, Default)]
pub struct Projected {
    /// How many event files were folded in.
    pub folded: usize,
    /// How many changed what is known of a run.
    pub changed: usize,
    /// What was passed over or could not be removed, each as one sentence.
    pub problems: Vec<String>,
}

/// Folds the events of a route into its registry. See the module's ordered steps.
/// Spec: RS-NEST-34, RS-NEST-35.
///
/// # Errors
/// [`RouteError`]; the registry is as it was then. One that is damaged or of another root is left alone.
pub fn project<H: WriteHost>(host: &H, route: &OpenRoute<H::Dir>) -> Result<Projected, RouteError> {
    let root = route.route.root_run_id.as_str();
    let part = Part::All(limits::STATUS_MAX_BYTES);
    let mut registry = match host.read_at(&route.dir, nested::REGISTRY_FILE.as_ref(), part) {
        Ok(found) => Document::from_bytes(&found.bytes)
            .and_then(|doc| RegistryText::read(&doc, root))
            .map_err(|e| RouteError::Foreign(format!("{}: {e}", nested::REGISTRY_FILE)))?,
        Err(ReadError::Absent) => RegistryText::new(root),
        Err(ReadError::Io(e)) => return Err(RouteError::Io(e)),
        Err(_) => {
            return Err(RouteError::Foreign(format!("{} is no plain file", nested::REGISTRY_FILE)));
        }
    };
    let (mut names, listed) = read::listed(host, &route.events, limits::ROUTE_EVENTS, |entry| {
        let name = entry.name.to_str()?;
        let is_event = nested::event_file_ms(name).is_some() && !registry.knows(name);
        is_event.then(|| name.to_owned())
    });
    listed.map_err(RouteError::Io)?;
    // Names begin with the time.
    names.sort_unstable();
    let mut done = Projected::default();
    for name in names {
        match fold(host, route, &name, &mut registry) {
            Ok(changed) => {
                done.folded += 1;
                done.changed += usize::from(changed);
                registry.note(&name);
            }
            // It is passed over by every reader, and looked at again by the next projector (facts Q-42).
            Err(why) => done.problems.push(format!("{name} was passed over: {why}")),
        }
    }
    if done.folded == 0 {
        return Ok(done);
    }
    let forgotten = registry.evict();
    let text = registry.text(host.now_ms());
    let options = Options::new(Durability::Ordered);
    atomic::replace(host, &route.dir, nested::REGISTRY_FILE, text.as_bytes(), &options)?;
    for name in forgotten {
        // A name of a registry is anybody's text.
        if nested::event_file_ms(&name).is_none() || has_answer(host, route, &name) {
            continue;
        }
        match host.unlink(&route.events, name.as_ref()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                done.problems.push(format!("{name} stays: {e}"));
            }
            _ => {}
        }
    }
    Ok(done)
}

/// Folds one event file in: whether it changed anything.
fn fold<H: Host>(
    host: &H,
    route: &OpenRoute<H::Dir>,
    name: &str,
    registry: &mut RegistryText,
) -> Result<bool, String> {
    // Evicted by another projector between the listing and the read.
    let Some(bytes) = contents(host, route, name)? else { return Ok(false) };
    let mut changed = false;
    for text in nested::texts_of(name, &bytes) {
        let doc = Document::from_bytes(text).map_err(|e| e.to_string())?;
        match NestedEvent::read(&doc, &route.route).map_err(|e| e.to_string())? {
            NestedEvent::Child { kind, .. } => {
                let taken = doc.get("child").and_then(|child: Raw<'_>| registry.fold(kind, child));
                changed |= taken == Some(Merge::Taken);
            }
            NestedEvent::ControlResult { .. } | NestedEvent::Other => {}
        }
    }
    Ok(changed)
}

fn contents<H: Host>(
    host: &H,
    route: &OpenRoute<H::Dir>,
    name: &str,
) -> Result<Option<Vec<u8>>, String> {
    let part = Part::All(nested::RECORD_MAX_BYTES);
    match host.read_at(&route.events, name.as_ref(), part) {
        Ok(found) => Ok(Some(found.bytes)),
        Err(ReadError::Absent) => Ok(None),
        Err(ReadError::NotPlain(kind)) => Err(format!("it is {}", kind.name())),
        Err(ReadError::TooLarge { .. }) => Err("it is too large".to_owned()),
        Err(ReadError::Io(e)) => Err(e.to_string()),
    }
}

/// Whether a file answers a control request. One that cannot be read may.
fn has_answer<H: Host>(host: &H, route: &OpenRoute<H::Dir>, name: &str) -> bool {
    let bytes = match contents(host, route, name) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return false,
        Err(_) => return true,
    };
    nested::texts_of(name, &bytes).iter().any(|text| {
        let doc = Document::from_bytes(text);
        let event = doc.ok().and_then(|doc| NestedEvent::read(&doc, &route.route).ok());
        matches!(event, Some(NestedEvent::ControlResult { .. }))
    })
}

/// The directory in which the run directories of a root's nested runs lie, with their indexes.
/// Spec: RS-NEST-36.
///
/// # Errors
/// [`RouteError`].
pub fn runs_root<H: WriteHost>(
    host: &H,
    temp: &H::Dir,
    root_run_id: &str,
) -> Result<H::Dir, RouteError> {
    below(host, temp, &[layout::NESTED_RUNS_DIR, root_run_id])
}

/// The directory in which the results of a root's nested runs lie, with their pending area and indexes.
/// Spec: RS-NEST-36.
///
/// # Errors
/// [`RouteError`].
pub fn results_dir<H: WriteHost>(
    host: &H,
    results: &H::Dir,
    root_run_id: &str,
) -> Result<H::Dir, RouteError> {
    below(host, results, &[layout::NESTED_RESULTS, root_run_id])
}

fn below<H: WriteHost>(host: &H, top: &H::Dir, names: &[&str; 2]) -> Result<H::Dir, RouteError> {
    nested::check_id(names[1])
        .map_err(|_| RouteError::Id(DecodeError::member("rootRunId", "an id of a nested run")))?;
    directory::create_path(host, top, names, &RetryPolicy::default()).map_err(RouteError::Write)
}
