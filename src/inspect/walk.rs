//! The walk over a store, and what runs must know of one another.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;

use crate::protocol::finding;
use crate::protocol::status::StatusView;
use crate::protocol::verdict::Verdict;
use crate::protocol::{layout, limits};
use crate::store::host::{FileKind, Host};
use crate::store::{Depth, Routes, Snapshot, Store, StoreProblem};

use super::crew::{Crew, Eyes, Job, Met, Prepare, at_a_time};
use super::report::{LeaseReport, ResultReport, RunReport, SlotReport};

/// Which runs are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only runs of this session.
    pub session: Option<String>,
    /// Only these verdicts; empty means all.
    pub verdicts: Vec<Verdict>,
}

impl Filter {
    /// Whether a report passes.
    pub fn wants(&self, report: &RunReport) -> bool {
        let session = self.session.as_ref().is_none_or(|s| report.session_id.as_ref() == Some(s));
        let verdict = self.verdicts.is_empty()
            || report.verdict_word.is_some_and(|v| self.verdicts.contains(&v));
        session && verdict
    }
}

/// Which active runs record which pid. Bounded by the number of active runs.
#[derive(Debug, Default)]
pub struct PidTable {
    runs: HashMap<i64, Vec<String>>,
}

impl PidTable {
    fn add(&mut self, pid: i64, run: &str) {
        let runs = self.runs.entry(pid).or_default();
        if runs.len() < 1000 && !runs.iter().any(|r| r == run) {
            runs.push(run.to_owned());
        }
    }

    fn others(&self, pid: i64, run: &str) -> Vec<String> {
        let runs = self.runs.get(&pid).into_iter().flatten();
        runs.filter(|r| *r != run).cloned().collect()
    }
}

/// A store being inspected.
pub struct Inspection<'s, 'h, H: Host> {
    store: &'s Store<'h, H>,
    pids: PidTable,
    /// Nested runs by root run.
    nested: HashMap<String, Vec<String>>,
    /// What the routes of nested runs say; empty for rows.
    routes: Routes,
    /// Nested runs that routes name, by the run that launched them.
    routed: HashMap<String, Vec<String>>,
    depth: Depth,
    brief: bool,
    at_a_time: usize,
}

impl<'s, 'h, H: Host> Inspection<'s, 'h, H> {
    /// Prepares a walk: reads the active index for shared pids and the names of nested runs.
    pub fn new(store: &'s Store<'h, H>, depth: Depth) -> Self {
        let routes = if depth == Depth::Full { store.routes() } else { Routes::default() };
        let mut routed: HashMap<String, Vec<String>> = HashMap::new();
        for child in &routes.children {
            routed.entry(child.parent.clone()).or_default().push(child.id.clone());
        }
        let (pids, nested) = (PidTable::default(), HashMap::new());
        let (brief, at_a_time) = (false, at_a_time(store.host()));
        let mut inspection = Self { store, pids, nested, routes, routed, depth, brief, at_a_time };
        inspection.index_pids();
        inspection.index_nested();
        inspection
    }

    /// Leaves paths, evidence, findings, advice and children out of the reports, for tables.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.brief = true;
        self
    }

    /// Which active runs share a pid is told by the active index: reading every status first would
    /// cost a second walk. Active runs that are missing in the index are added as they are met.
    fn index_pids(&mut self) {
        for runs in &self.store.runs_roots {
            for name in runs.active_names(self.store.host()).unwrap_or_default() {
                let found = self.store.snapshot(runs, OsStr::new(&name), None, Depth::Row);
                if let Some(snapshot) = found {
                    self.note_pid(&snapshot);
                }
            }
        }
    }

    /// Spec: RS-NEST-01.
    fn index_nested(&mut self) {
        for runs in &self.store.runs_roots {
            let Some(root_run) = &runs.nested_under else { continue };
            let mut names = Vec::new();
            let _ = runs.each_name(self.store.host(), &mut |name, _| {
                names.push(name.to_string_lossy().into_owned());
                if names.len() < limits::MAX_SMALL_RECORDS {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            names.sort_unstable();
            self.nested.insert(root_run.clone(), names);
        }
    }

    fn note_pid(&mut self, snapshot: &Snapshot) {
        if let Some((pid, run)) = active_pid(snapshot) {
            self.pids.add(pid, run);
        }
    }

    fn eyes(&self) -> Eyes<'_, 'h, H> {
        let Self { store, nested, routed, depth, brief, at_a_time, .. } = self;
        let (depth, brief, at_a_time) = (*depth, *brief, *at_a_time);
        Eyes { store, nested, routed, depth, brief, at_a_time }
    }

    /// Looks at one run and judges it. `None` when it is gone.
    pub fn one(
        &mut self,
        root: usize,
        name: &OsStr,
        kind: Option<FileKind>,
    ) -> Option<(Snapshot, RunReport)> {
        let snapshot = self.look(root, name, kind)?;
        self.note_pid(&snapshot);
        Some(self.judge(snapshot))
    }

    /// The first half of [`Inspection::one`], free of shared state: may run on any thread.
    pub fn look(&self, root: usize, name: &OsStr, kind: Option<FileKind>) -> Option<Snapshot> {
        self.eyes().look(root, name, kind, None)
    }

    /// The second half: judges a snapshot with what is known of the other runs.
    pub fn judge(&self, snapshot: Snapshot) -> (Snapshot, RunReport) {
        judge(self.eyes(), &self.pids, snapshot)
    }

    /// What is wrong with the routes of nested runs, and runs that only a route knows.
    pub fn route_problems(&self) -> Vec<StoreProblem> {
        let mut problems = self.routes.problems.clone();
        for child in self.routes.children.iter().filter(|child| child.has_dir) {
            let nested = self.nested.get(&child.root);
            let is_there = nested.is_some_and(|names| names.contains(&child.id))
                || self.store.runs_roots.iter().any(|runs| {
                    runs.nested_under.is_none()
                        && runs.has_name(self.store.host(), OsStr::new(&child.id))
                });
            if !is_there {
                problems.push(StoreProblem {
                    kind: &finding::NESTED_CHILD_MISSING,
                    path: child.route.clone(),
                    text: format!("it names the nested run {}, which has no directory", child.id),
                });
            }
        }
        problems
    }

    /// Walks every run, some thousands at a time in the order of their inodes; where a listing tells none, in its
    /// own order. Runs whose process may be shared with a run that is still to come are judged last; they are few,
    /// because they are active and not demonstrably gone.
    ///
    /// After the first few runs two more threads look ahead. What they may be ahead is bounded, and
    /// they have ended when this returns.
    pub fn each(
        &mut self,
        each: &mut dyn FnMut(RunReport) -> ControlFlow<()>,
        problems: &mut Vec<StoreProblem>,
    ) {
        let add = |reports: &mut Vec<RunReport>, report| reports.push(report);
        let mut each_of = |reports: Vec<RunReport>| reports.into_iter().try_for_each(&mut *each);
        self.each_prepared(&add, &mut each_of, problems);
    }

    /// As [`Inspection::each`], but what is handed on is what `prepare` made of the reports of some runs that
    /// follow one another, on the thread that looked at them: it adds a report to what was made of those before.
    pub fn each_prepared<T: Default + Send>(
        &mut self,
        prepare: &(dyn Fn(&mut T, RunReport) + Sync),
        each: &mut dyn FnMut(T) -> ControlFlow<()>,
        problems: &mut Vec<StoreProblem>,
    ) {
        let mut held: Vec<Snapshot> = Vec::new();
        let mut unlisted = Vec::new();
        let Self { store, pids, nested, routed, depth, brief, at_a_time, .. } = self;
        let (store, depth, brief, at_a_time) = (*store, *depth, *brief, *at_a_time);
        let eyes = Eyes { store, nested, routed, depth, brief, at_a_time };
        let stopped = std::thread::scope(|scope| {
            let mut take =
                |met: Met<T>| take_one(met, eyes, prepare, pids, &mut held, each, problems);
            let mut crew = Crew::new(scope, eyes, prepare);
            for (root, runs) in eyes.store.runs_roots.iter().enumerate() {
                let mut flow = ControlFlow::Continue(());
                let listed = runs.each_entry(eyes.store.host(), &mut |entry| {
                    flow = crew.add(Job { root, entry }, &mut take);
                    flow
                });
                if flow.is_continue() {
                    flow = crew.drain(&mut take);
                }
                if let Err(e) = listed {
                    let (path, text) = (runs.label.clone(), e.to_string());
                    unlisted.push(StoreProblem { kind: &finding::DIR_UNREADABLE, path, text });
                }
                if flow.is_break() {
                    return true;
                }
            }
            false
        });
        problems.append(&mut unlisted);
        if stopped {
            return;
        }
        let mut made = T::default();
        for snapshot in held {
            prepare(&mut made, self.judge(snapshot).1);
            if each(std::mem::take(&mut made)).is_break() {
                return;
            }
        }
    }

    /// Markers in the active index that name no directory.
    pub fn orphan_markers(&self) -> Vec<StoreProblem> {
        let mut problems = Vec::new();
        for runs in &self.store.runs_roots {
            for name in runs.active_names(self.store.host()).unwrap_or_default() {
                if runs.has_run(self.store.host(), OsStr::new(&name)).is_none() {
                    problems.push(StoreProblem {
                        kind: &finding::MARKER_ORPHAN,
                        path: format!("{}/{}/{name}", runs.label, layout::ACTIVE_INDEX),
                        text: "the active index names a run that has no directory".to_owned(),
                    });
                }
            }
        }
        problems
    }

    /// Reports of all slots, each judged with the evidence of its run.
    pub fn slots(&self, session: Option<&str>) -> Vec<SlotReport> {
        let wanted = |report: &SlotReport| {
            session.is_none_or(|s| report.session_id.as_deref().is_none_or(|own| own == s))
        };
        let mut reports: Vec<_> =
            self.store.locks.slots.iter().map(SlotReport::new).filter(wanted).collect();
        for report in &mut reports {
            let Some(run) = report.run_id.clone() else { continue };
            for root in 0..self.store.runs_roots.len() {
                let name = OsString::from(&run);
                if crate::protocol::ids::RunId::from_entry(&run).is_err() {
                    continue;
                }
                if let Some(snapshot) = self.look(root, &name, None) {
                    let (snapshot, run) = self.judge(snapshot);
                    report.judge(&snapshot.evidence);
                    (report.run_verdict, report.run_verdict_word) =
                        (Some(run.verdict), run.verdict_word);
                    break;
                }
            }
        }
        reports
    }

    /// Reports of all leases; of a session: those that it asked for, and those of nobody that is known.
    pub fn leases(&self, session: Option<&str>) -> Vec<LeaseReport> {
        let reports = self.store.locks.leases.iter().map(LeaseReport::new);
        let wanted = |report: &LeaseReport| {
            session.is_none_or(|s| report.session_id.as_deref().is_none_or(|own| own == s))
        };
        reports.filter(wanted).collect()
    }

    /// Calls `each` with the report of every result that was not delivered, of one session if so asked.
    pub fn each_result(&self, session: Option<&str>, each: &mut dyn FnMut(ResultReport)) {
        self.store.each_result(&mut |listed| {
            let report = ResultReport::new(&listed, self.store.now_ms);
            let wanted = |report: &ResultReport| {
                session.is_none_or(|session| report.session_id.as_deref() == Some(session))
            };
            if let Some(report) = report.filter(wanted) {
                each(report);
            }
            ControlFlow::Continue(())
        });
    }
}

fn judge<H: Host>(
    eyes: Eyes<'_, '_, H>,
    pids: &PidTable,
    mut snapshot: Snapshot,
) -> (Snapshot, RunReport) {
    if let Some((pid, run)) = active_pid(&snapshot) {
        // A number that several dead runs had one after the other is no host's; a workflow's is.
        let workflow = snapshot.evidence.status.value().is_some_and(StatusView::is_workflow);
        if workflow || !snapshot.evidence.life.word.is_gone() {
            snapshot.evidence.pid_shared_with = pids.others(pid, run);
        }
    }
    let report = eyes.report(&snapshot);
    (snapshot, report)
}

/// Takes what was met at one name: counts its pid, holds it back or hands it on.
fn take_one<H: Host, T: Default>(
    met: Met<T>,
    eyes: Eyes<'_, '_, H>,
    prepare: &Prepare<'_, T>,
    pids: &mut PidTable,
    held: &mut Vec<Snapshot>,
    each: &mut dyn FnMut(T) -> ControlFlow<()>,
    problems: &mut Vec<StoreProblem>,
) -> ControlFlow<()> {
    let snapshot = match met {
        Met::Judged(prepared) => return each(prepared),
        Met::Active(snapshot) => *snapshot,
        Met::Nothing(job) => {
            let label = &eyes.store.runs_roots[job.root].label;
            problems.push(StoreProblem {
                kind: &finding::VANISHED,
                path: format!("{label}/{}", job.name().to_string_lossy()),
                text: "it was gone before it could be read".to_owned(),
            });
            return ControlFlow::Continue(());
        }
    };
    if let Some((pid, run)) = active_pid(&snapshot) {
        pids.add(pid, run);
    }
    if !snapshot.evidence.life.word.is_gone() && held.len() < limits::MAX_SMALL_RECORDS {
        held.push(snapshot);
        return ControlFlow::Continue(());
    }
    let mut made = T::default();
    prepare(&mut made, judge(eyes, pids, snapshot).1);
    each(made)
}

/// The recorded pid of a run that says it is active.
pub(super) fn active_pid(snapshot: &Snapshot) -> Option<(i64, &str)> {
    let s = snapshot.evidence.status.value()?;
    let active = StatusView::known_state(s)?.is_active();
    Some((s.pid.filter(|pid| active && *pid > 0)?, &snapshot.evidence.run_id))
}
