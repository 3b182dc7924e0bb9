//! All actions for one run: about its end, and about what it holds and left over.
//!
//! Theory of operation. [`RunDesk::plan`] first decides about the end of the run. If that changes its status,
//! the evidence is brought up to what will be true then, and judged again; slots, markers, results and the
//! rest are decided with that. Spec: RS-REC-09 to RS-REC-17.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::protocol::diagnose::diagnose;
use crate::protocol::evidence::{FileFact, FileMeta, LeaseFact, RunEvidence};
use crate::protocol::ids::RunId;
use crate::protocol::open::Word as _;
use crate::protocol::process::{Liveness, Presence};
use crate::protocol::reconcile;
use crate::protocol::repair::{self, Cause, Repair};
use crate::protocol::result::ResultPlace;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::temp_name::{TempName, TempTarget};
use crate::protocol::verdict::{Diagnosis, Flag, Verdict};
use crate::protocol::written::Claim;
use crate::protocol::{Document, Raw, layout, limits, written};
use crate::store::host::{FileKind, Host, Part};
use crate::store::sidecar::Decision;
use crate::store::{RunsRoot, Store, consequences, identity};

use super::change::ChangeError;
use super::decide::{self, ActionKind, Beside, End};
use super::draft::{self, Draft, below};
use super::place;
use super::plan::{Action, Around, Found, Listed, Refusal, listed, unplanned};
use super::together::Lost;

/// Everything around one run.
pub(super) struct RunDesk<'a, 'h, H: Host> {
    pub(super) store: &'a Store<'h, H>,
    pub(super) around: &'a Around<'a, H>,
    pub(super) runs: &'a RunsRoot<H>,
    /// The run directory.
    pub(super) path: PathBuf,
    /// The path of its runs root below the root.
    pub(super) label: String,
}

/// What an action about the end makes of a run.
struct Ended {
    kind: ActionKind,
    why: String,
    /// The new text of its status, where it changes.
    status: Option<String>,
}

type Made<T> = Result<T, ChangeError>;

/// A run, and the text of its proof where one counts.
type Proven<'e> = (&'e RunEvidence, Option<&'e str>);

impl<H: Host> RunDesk<'_, '_, H> {
    fn draft(&self) -> Draft<'_, H> {
        Draft::new(self.store.host(), &self.around.root)
    }

    /// A path in the run directory, below the root.
    fn own(&self, e: &RunEvidence, name: &str) -> String {
        below(&self.label, &format!("{}/{name}", e.run_id))
    }

    fn action(
        &self,
        e: &RunEvidence,
        kind: ActionKind,
        why: String,
        draft: Draft<'_, H>,
    ) -> Action {
        Action::new(&e.run_id, self.path.clone(), kind, why, draft.finish())
    }

    /// Everything that is to be done with the run.
    pub(super) fn plan(&self, e: &RunEvidence, d: &Diagnosis) -> Found {
        let mut found = Found::default();
        let refuse = |why: String| {
            let (run_id, path) = (e.run_id.clone(), self.path.clone());
            Some(Refusal { run_id, path, verdict: d.verdict, why })
        };
        let Ok(run) = RunId::from_entry(&e.run_id) else {
            found.refused = refuse("its name cannot be a run id".to_owned());
            return found;
        };
        let later = self.later_end(e);
        let lost = Lost::of(e, self.store.host().system());
        let beside = Beside {
            later_end: later.as_deref(),
            is_listed: &|| self.is_listed(e),
            restarted: lost.restarted,
        };
        let mut end = decide::end_of(e, d, beside, self.around.policy);
        if let Some(why) = self.breaks_a_rule(e, &end) {
            end = End::Refuse(why);
        }
        let mut draft = self.draft();
        // Judged by what was there before the repair, so it goes along with it.
        if matches!(end, End::Close(_) | End::Adopt(..))
            && self.leftovers(e, d, &mut draft).is_err()
        {
            draft = self.draft();
        }
        let ended = match self.end((e, d), &run, &end, &mut draft) {
            Ok(Some(ended)) => ended,
            Ok(None) => {
                if let End::Refuse(why) = &end {
                    found.refused = refuse(why.clone());
                }
                self.rest(e, d, &run, false, &mut found);
                return found;
            }
            Err(error) => {
                found.refused = refuse(unplanned(&error));
                return found;
            }
        };
        let mut action = self.action(e, ended.kind, ended.why, draft);
        action.evidence = evidence(d);
        action.lost = matches!(end, End::Close(_) | End::Adopt(..)).then_some(lost);
        // What was to be completed may be complete: only a full look tells.
        if !action.changes.is_empty() {
            found.actions.push(action);
        }
        let closes = ended.status.is_some() || ended.kind == ActionKind::CompleteEnd;
        let next = self.after(e, ended.status.as_deref());
        let judged = diagnose(&next);
        self.rest(&next, if closes { &judged } else { d }, &run, closes, &mut found);
        found
    }

    /// A rule of the protocol that the status or the result breaks, if the end of the run is to be written: the
    /// existing implementations refuse such a record whole (facts Q-3, S-24), and would go on to do so.
    /// Spec: RS-REC-07.
    fn breaks_a_rule(&self, e: &RunEvidence, end: &End<'_>) -> Option<String> {
        let result = match end {
            End::Close(_) => None,
            End::Adopt(result, _) if result.place != ResultPlace::Workflow => Some(&*result.path),
            End::Adopt(..) => None,
            _ => return None,
        };
        let status = self.own(e, layout::STATUS);
        let broken = |path: &str, list: &str| {
            let text = draft::text(self.store.host(), &self.around.root, path).ok()??.text;
            let doc = Document::parse(&text).ok()?;
            let inner = doc.get("completion").and_then(Raw::object);
            let broken = reconcile::check_models(inner.as_ref().unwrap_or(&doc), list).err()?;
            Some(format!("{path} breaks a rule of the protocol: {broken}"))
        };
        broken(&status, "steps").or_else(|| broken(result?, "results"))
    }

    /// Whether a run that is taken out of the active index is found by its session all the same.
    fn is_listed(&self, e: &RunEvidence) -> bool {
        listed(self.store, self.around, self.runs, e) != Listed::NotInUse
    }

    /// The evidence as it will be when the status has this text.
    fn after(&self, e: &RunEvidence, status: Option<&str>) -> RunEvidence {
        let mut next = e.clone();
        if let Some(doc) = status.and_then(|text| Document::parse(text).ok()) {
            let meta = FileMeta { mtime_ms: e.now_ms, ..e.status.meta().unwrap_or_default() };
            next.status = FileFact::Present(Box::new(StatusView::read(&doc)), meta);
            next.marker.marker_mtime_ms = None;
            if let Some(log) = &mut next.events {
                log.repaired = true;
            }
        }
        next
    }

    /// An unfinished replacement of the status, whole and later than it, that tells an end.
    fn later_end(&self, e: &RunEvidence) -> Option<String> {
        e.temp.newer_than_target.iter().find_map(|name| {
            TempName::parse(name).filter(|temp| temp.target.is(layout::STATUS))?;
            let path = self.own(e, name);
            let host = self.store.host();
            let text = draft::text(host, &self.around.root, &path).ok()??.text;
            let view = StatusView::read(&Document::parse(&text).ok()?);
            // A repair that was cut off tells nothing of the run.
            let ends = view.known_state().is_some_and(RunState::is_terminal) && !view.is_repaired();
            (ends && view.run_id.as_deref() == Some(&e.run_id)).then(|| name.clone())
        })
    }

    /// The action about the end of the run.
    fn end(
        &self,
        (e, d): (&RunEvidence, &Diagnosis),
        run: &RunId,
        end: &End<'_>,
        draft: &mut Draft<'_, H>,
    ) -> Made<Option<Ended>> {
        match end {
            End::Nothing | End::Refuse(_) => Ok(None),
            End::Close(cause) => {
                let proof = self.proof(e, d)?;
                self.close((e, proof.as_deref()), run, cause, draft).map(Some)
            }
            End::Adopt(result, state) => {
                let path = match result.place {
                    ResultPlace::Workflow => self.own(e, &result.path),
                    _ => result.path.clone(),
                };
                let proof = self.proof(e, d)?;
                let (e, result) = ((e, proof.as_deref()), (&*path, result.place));
                self.adopt(e, run, result, *state, draft).map(Some)
            }
            End::Complete => {
                let proof = self.proof(e, d)?;
                self.complete((e, proof.as_deref()), run, draft)
            }
            End::SetAside(why) => {
                draft.shift(&self.own(e, layout::STATUS), "")?;
                let why = format!("its status is set aside, so that the rest can be judged: {why}");
                Ok(Some(Ended { kind: ActionKind::SetAsideStatus, why, status: None }))
            }
        }
    }

    /// The text of the status, on which the action relies.
    fn status(&self, e: &RunEvidence, draft: &mut Draft<'_, H>) -> Made<String> {
        let path = self.own(e, layout::STATUS);
        let found = draft::text(self.store.host(), &self.around.root, &path)?;
        draft.rely_on(&path, found.as_ref().map(|found| found.text.as_bytes()));
        found.map(|found| found.text).ok_or_else(|| ChangeError::changed(&path, "it is gone"))
    }

    /// The text of a proof that counts; `None` when there is none.
    fn proof(&self, e: &RunEvidence, d: &Diagnosis) -> Made<Option<String>> {
        if e.proof.value().is_none() || !d.proof.counts {
            return Ok(None);
        }
        let path = self.own(e, layout::PROOF);
        let found = draft::text(self.store.host(), &self.around.root, &path)?;
        Ok(found.map(|found| found.text))
    }

    fn repaired(&self, (e, proof): Proven<'_>, source: &str, repair: &Repair<'_>) -> Made<String> {
        let failed = |why: String| ChangeError::changed(&self.own(e, layout::STATUS), why);
        let doc = Document::parse(source).map_err(|e| failed(e.to_string()))?;
        let text = repair.status(&doc).map_err(|e| failed(e.to_string()))?;
        Ok(self.shown((e, proof), &text)?.unwrap_or(text))
    }

    /// The text of a status with a proof that counts in it; `None` when it is there already, or none counts.
    fn shown(&self, (e, sidecar): Proven<'_>, status: &str) -> Made<Option<String>> {
        let (Some(proof), Some(sidecar)) = (e.proof.value(), sidecar) else { return Ok(None) };
        let failed = |why: String| ChangeError::changed(&self.own(e, layout::STATUS), why);
        let doc = Document::parse(status).map_err(|e| failed(e.to_string()))?;
        let host = self.store.host();
        let with = (sidecar, e.candidate.value());
        match consequences::members(host, &doc, &e.run_id, proof, with) {
            Decision::Keep => Ok(None),
            Decision::Refuse(why) => Err(failed(why)),
            Decision::Patch(members) => {
                let members: Vec<_> = members.iter().map(|(k, text)| (*k, text.as_str())).collect();
                doc.patched(&members).map(Some).map_err(|e| failed(e.to_string()))
            }
        }
    }

    /// The line about a proof that counts, if the log does not have it.
    fn proof_line(&self, (e, proof): Proven<'_>) -> Option<String> {
        let (proof, host) = (proof?, self.store.host());
        let dir = host.open_dir_at(self.runs.dir(), OsStr::new(&e.run_id));
        let told = dir.is_ok_and(|dir| consequences::is_told(host, &dir, &e.run_id));
        (!told).then(|| written::proof_event(&e.run_id, e.now_ms, proof))
    }

    /// Spec: RS-REC-10 to RS-REC-13.
    fn close(
        &self,
        (e, proof): Proven<'_>,
        run: &RunId,
        cause: &Cause,
        draft: &mut Draft<'_, H>,
    ) -> Made<Ended> {
        let source = self.status(e, draft)?;
        let words = e.stderr.as_ref().map(|tail| tail.text.as_str());
        let message = repair::closing_message(&e.life.why, cause, words);
        let (now_ms, state) = (e.now_ms, RunState::Failed);
        let error = Some(message.as_str());
        let repair = Repair { run_id: &e.run_id, now_ms, state, error, result: None };
        let status = self.repaired((e, proof), &source, &repair)?;
        let failed = |why: String| ChangeError::changed(&self.own(e, layout::STATUS), why);
        let doc = Document::parse(&status).map_err(|e| failed(e.to_string()))?;
        let async_dir = self.path.to_string_lossy();
        if let Some(payload) = repair::failed_result(&doc, &e.run_id, &async_dir, &message, now_ms)
        {
            let Some(results) = self.store.results_label(self.runs) else {
                return Err(failed(
                    "the store around it is not known, so its result has no place".to_owned(),
                ));
            };
            draft.publish(&results, run, &payload, now_ms)?;
        }
        draft.write(&self.own(e, layout::STATUS), status.clone())?;
        draft.index(&self.label, run, &status)?;
        let mut lines = vec![repair::closed_event(&e.run_id, now_ms, cause, &message)];
        lines.extend(self.proof_line((e, proof)));
        draft.append(&self.own(e, layout::EVENTS), &lines)?;
        let why = format!("{}, and it left no result", e.life.why);
        Ok(Ended { kind: ActionKind::CloseAsFailed, why, status: Some(status) })
    }

    /// Spec: RS-REC-09, RS-REC-11, RS-REC-12.
    fn adopt(
        &self,
        (e, proof): Proven<'_>,
        run: &RunId,
        (path, place): (&str, ResultPlace),
        state: RunState,
        draft: &mut Draft<'_, H>,
    ) -> Made<Ended> {
        let source = self.status(e, draft)?;
        let found = draft::text(self.store.host(), &self.around.root, path)?;
        draft.rely_on(path, found.as_ref().map(|found| found.text.as_bytes()));
        let payload = found.ok_or_else(|| ChangeError::changed(path, "it is gone"))?.text;
        let doc =
            Document::parse(&payload).map_err(|e| ChangeError::changed(path, e.to_string()))?;
        let inner = doc.get("completion").and_then(Raw::object);
        let result = inner.as_ref().unwrap_or(&doc);
        let (now_ms, error) = (e.now_ms, None);
        let repair = Repair { run_id: &e.run_id, now_ms, state, error, result: Some(result) };
        let status = self.repaired((e, proof), &source, &repair)?;
        if let Some(results) = self.store.results_label(self.runs) {
            let own = match place {
                // A payload under a name that nobody derives stays: nobody could have looked it up.
                ResultPlace::Pending => draft::pending_path(&results, run, &payload),
                ResultPlace::Public => Some(format!("{results}/{run}.json")),
                ResultPlace::Replay | ResultPlace::Workflow => None,
            };
            if own.as_deref() == Some(path) && e.split_root.is_none() {
                draft.promote(&results, run, (path, &payload), now_ms)?;
            }
        }
        draft.write(&self.own(e, layout::STATUS), status.clone())?;
        draft.index(&self.label, run, &status)?;
        let lines: Vec<String> = self.proof_line((e, proof)).into_iter().collect();
        draft.append(&self.own(e, layout::EVENTS), &lines)?;
        let why = format!("{}, and its {place} result says {}", e.life.why, state.as_str());
        Ok(Ended { kind: ActionKind::AdoptResult, why, status: Some(status) })
    }

    /// Spec: RS-REC-15.
    fn complete(
        &self,
        (e, proof): Proven<'_>,
        run: &RunId,
        draft: &mut Draft<'_, H>,
    ) -> Made<Option<Ended>> {
        let source = self.status(e, draft)?;
        let shown = self.shown((e, proof), &source)?;
        if e.marker.marker_mtime_ms.is_some() && self.is_listed(e) {
            draft.index(&self.label, run, shown.as_deref().unwrap_or(&source))?;
        }
        if let Some(status) = &shown {
            draft.write(&self.own(e, layout::STATUS), status.clone())?;
        }
        let lines: Vec<String> = self.proof_line((e, proof)).into_iter().collect();
        draft.append(&self.own(e, layout::EVENTS), &lines)?;
        let why = "its exit was observed, and not all that follows was made".to_owned();
        Ok(Some(Ended { kind: ActionKind::CompleteEnd, why, status: shown }))
    }

    /// What is held, indexed and left over, with the run as it will be.
    fn rest(
        &self,
        e: &RunEvidence,
        d: &Diagnosis,
        run: &RunId,
        was_closed: bool,
        found: &mut Found,
    ) {
        let mut problem = None;
        let mut add = |kind: ActionKind, why: String, made: Made<Draft<'_, H>>| match made {
            Ok(draft) if draft.is_empty() => {}
            Ok(draft) => found.actions.push(self.action(e, kind, why, draft)),
            Err(error) => problem = Some(unplanned(&error)),
        };
        let is_sound = !matches!(
            d.verdict,
            Verdict::Unsafe | Verdict::Corrupt | Verdict::Unsupported | Verdict::Conflict
        ) && e.shadowed_by.is_none();
        let is_settled =
            matches!(d.verdict, Verdict::Finished | Verdict::FinishedUnproven) && is_sound;
        let quiet = decide::is_quiet(e, self.around.policy).is_ok() && !was_closed;
        if is_settled && quiet {
            let why = "it has ended, and the indexes do not say so".to_owned();
            add(ActionKind::IndexRun, why, self.index(e, d, run));
            let why = "its result waits where its session does not look first".to_owned();
            add(ActionKind::PublishResult, why, self.publish(e, run));
        }
        if d.verdict == Verdict::Running && d.has(Flag::MarkerMissing) && is_sound && quiet {
            let why = "it runs, and the active index does not name it".to_owned();
            add(ActionKind::AddMarker, why, self.add_marker(run));
        }
        if is_sound || d.verdict == Verdict::Conflict {
            for slot in e.slots.iter().filter(|slot| self.may_claim(&slot.path, slot.claimed)) {
                if let Some(reason) = decide::frees(e, slot, self.around.policy) {
                    let mut draft = self.draft();
                    let made = draft.free_slot(&slot.path).map(|()| draft);
                    add(ActionKind::FreeSlot, reason.to_owned(), made);
                }
            }
        }
        for lease in e.leases.iter().filter(|lease| lease.held_because.is_none()) {
            let why = "its owner and writer are gone from this host".to_owned();
            add(ActionKind::FreeLease, why, self.free_lease(lease));
        }
        if e.config_left && !was_closed && is_over(e, d) {
            let mut draft = self.draft();
            let name = layout::runner_config_name(&e.run_id);
            let made = draft.shift(&name, "").map(|_| draft);
            let why = "no runner will take the configuration up, and it holds prompts".to_owned();
            add(ActionKind::RemoveConfig, why, made);
        }
        if is_sound && !was_closed {
            let mut draft = self.draft();
            let made = self.litter(e, d, &mut draft).map(|()| draft);
            let why = "their writers are gone, and what they were to replace is newer".to_owned();
            add(ActionKind::RemoveLitter, why, made);
        }
        if let Some(why) = problem {
            let (run_id, path) = (e.run_id.clone(), self.path.clone());
            found.refused = Some(Refusal { run_id, path, verdict: d.verdict, why });
        }
    }

    fn index(&self, e: &RunEvidence, d: &Diagnosis, run: &RunId) -> Made<Draft<'_, H>> {
        let mut draft = self.draft();
        let how = listed(self.store, self.around, self.runs, e);
        let is_stale = d.has(Flag::MarkerStale) && how != Listed::NotInUse;
        let waits = e.marker.marker_mtime_ms.is_some();
        if !is_stale && (waits || how != Listed::Lacking) {
            return Ok(draft);
        }
        let source = self.status(e, &mut draft)?;
        draft.index_terminal(&self.label, run, &source)?;
        if is_stale {
            draft.release(&self.label, run)?;
        }
        Ok(draft)
    }

    /// Spec: RS-REC-17.
    fn publish(&self, e: &RunEvidence, run: &RunId) -> Made<Draft<'_, H>> {
        let mut draft = self.draft();
        let Some(results) = self.store.results_label(self.runs) else { return Ok(draft) };
        let state = e.status.value().and_then(StatusView::known_state);
        let waiting = e.own_results().find(|result| {
            let lies = matches!(result.place, ResultPlace::Pending | ResultPlace::Public);
            let view = result.fact.value();
            lies && view.is_some_and(|v| v.delivered_at_ms.is_none() && v.outcome == state)
        });
        let replayed = e.own_results().any(|r| r.place == ResultPlace::Replay);
        // In a fallback root nobody else looks, so nobody waits for its index.
        let is_due = !replayed && e.split_root.is_none();
        let Some(result) = waiting.filter(|_| is_due) else { return Ok(draft) };
        let found = draft::text(self.store.host(), &self.around.root, &result.path)?;
        let Some(payload) = found.map(|found| found.text) else { return Ok(draft) };
        let own = match result.place {
            ResultPlace::Pending => draft::pending_path(&results, run, &payload),
            _ => Some(format!("{results}/{run}.json")),
        };
        let has_session = result.fact.value().is_some_and(|view| view.session_id.is_some());
        if own.as_deref() == Some(&*result.path) && has_session {
            draft.promote(&results, run, (&result.path, &payload), e.now_ms)?;
        }
        Ok(draft)
    }

    fn add_marker(&self, run: &RunId) -> Made<Draft<'_, H>> {
        let mut draft = self.draft();
        draft.write(
            &below(&self.label, &format!("{}/{run}", layout::ACTIVE_INDEX)),
            String::new(),
        )?;
        Ok(draft)
    }

    fn free_lease(&self, lease: &LeaseFact) -> Made<Draft<'_, H>> {
        let mut draft = self.draft();
        let tombstone = crate::protocol::lease::tombstone_name(&lease.path, &lease.owner.token);
        draft.free_lease(&lease.path, tombstone)?;
        Ok(draft)
    }

    /// Whether a slot can be claimed: it has no claim, or one of ours whose process is gone.
    fn may_claim(&self, slot: &str, is_claimed: bool) -> bool {
        if !is_claimed {
            return true;
        }
        let host = self.store.host();
        let path = format!("{slot}/{}", layout::SLOT_CLAIM);
        let part = Part::All(limits::SIDECAR_MAX_BYTES);
        let found = place::read(host, &self.around.root, &path, part).ok().flatten();
        let claim = found.and_then(|(bytes, _)| Claim::read(&bytes));
        claim.is_some_and(|claim| identity::judge(host, &claim.process()).word.is_gone())
    }

    /// What a run that gets its end has left over: its configuration, and unfinished replacements.
    fn leftovers(&self, e: &RunEvidence, d: &Diagnosis, draft: &mut Draft<'_, H>) -> Made<()> {
        self.litter(e, d, draft)?;
        if e.config_left {
            draft.shift(&layout::runner_config_name(&e.run_id), "")?;
        }
        Ok(())
    }

    /// Sets unfinished replacements aside whose writers are gone.
    fn litter(&self, e: &RunEvidence, d: &Diagnosis, draft: &mut Draft<'_, H>) -> Made<()> {
        if e.temp.count == 0 || matches!(e.life.word, Liveness::Foreign | Liveness::Unknown) {
            return Ok(());
        }
        let host = self.store.host();
        let path = below(&self.label, &e.run_id);
        let system = |e: std::io::Error| ChangeError::system(&path, &e);
        let dir = host.open_dir_at(self.runs.dir(), OsStr::new(&e.run_id)).map_err(system)?;
        let mut names = Vec::new();
        host.list(&dir, &mut |entry| {
            let name = entry.name.to_str().map(str::to_owned);
            let is_plain = entry.kind.is_none_or(|kind| kind == FileKind::Regular);
            names.extend(name.filter(|name| is_plain && TempName::parse(name).is_some()));
            std::ops::ControlFlow::Continue(())
        })
        .map_err(system)?;
        names.sort_unstable();
        for name in names {
            let Some(temp) = TempName::parse(&name) else { continue };
            let TempTarget::Name(target) = &temp.target else { continue };
            // A second name of an old text is litter of its own file.
            let target = crate::protocol::temp_name::original_of(target).unwrap_or(target);
            if decide::was_repaired(d, target) {
                continue;
            }
            let stat = host.stat_at(&dir, target.as_ref()).ok();
            let target_ms = stat.filter(|s| s.kind == FileKind::Regular).map(|s| s.mtime_ms);
            let is_gone = |pid: i64| {
                (1..=i64::from(i32::MAX)).contains(&pid)
                    && host.process(pid).presence == Presence::Gone
            };
            if decide::may_remove(&temp, e.now_ms, is_gone, target_ms) {
                draft.shift(&self.own(e, &name), "")?;
            }
        }
        Ok(())
    }
}

/// Whether no runner will take up the configuration of a run any more.
/// Spec: RS-REC-16.
fn is_over(e: &RunEvidence, d: &Diagnosis) -> bool {
    let is_old = e
        .config
        .meta()
        .is_some_and(|m| e.now_ms.saturating_sub(m.mtime_ms) > limits::LITTER_AGE_MS);
    let gone = |life: &crate::protocol::process::Life| life.word.is_gone();
    match d.verdict {
        // Whoever prepared it may still be about to start its runner.
        Verdict::NeverStarted | Verdict::StartStuck => {
            is_old && e.startup_life.as_ref().is_none_or(gone)
        }
        Verdict::StartFailed => is_old || gone(&e.life),
        _ => false,
    }
}

/// The lines that a diagnosis rests on.
fn evidence(d: &Diagnosis) -> Vec<String> {
    let line = |line: &crate::protocol::verdict::EvidenceLine| {
        let file = line.file.as_ref().map_or_else(String::new, |file| format!(" [{file}]"));
        let first = line.text.lines().next().unwrap_or_default();
        format!("{}: {first}{file}", line.grade.as_str())
    };
    d.evidence.iter().take(12).map(line).collect()
}
