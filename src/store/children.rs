//! The runs of a workflow's asynchronous steps, as far as the workflow depends on them.
//!
//! Theory of operation. Such a run lies beside its workflow, in the same runs root, under the id that
//! the step names. An id is checked like any other before it is joined to a path; the directory is
//! opened without following a link, and of its files only the status and the proof are read. That
//! costs two reads a step, so it is done only where something depends on it: a workflow that has a
//! slot (facts K-31), and one whose host is gone, so that what its steps left can be named. At most
//! [`limits::CHILDREN_LOOKED_AT`] are looked at; one that was not counts as not found, which keeps a
//! slot.
//!
//! Not promised: that the children are of the same moment as the workflow.

use std::ffi::OsStr;

use crate::protocol::Open;
use crate::protocol::evidence::{ChildFact, FileFact, RunEvidence};
use crate::protocol::ids::RunId;
use crate::protocol::proof::{Proof, ProofState};
use crate::protocol::slot::SlotKind;
use crate::protocol::state::RunState;
use crate::protocol::status::StatusView;
use crate::protocol::{layout, limits};

use super::host::Host;
use super::open::{RunsRoot, Store};
use super::read;

impl<H: Host> Store<'_, H> {
    /// Fills [`RunEvidence::children`] where something depends on it.
    pub(super) fn add_children(&self, runs: &RunsRoot<H>, e: &mut RunEvidence) {
        let Some(s) = e.status.value().filter(|s| s.is_workflow()) else { return };
        let has_slot = e.slots.iter().any(|slot| slot.owner.kind == SlotKind::Workflow);
        let is_open = s.ended_at_ms.is_none() || s.known_state().is_some_and(RunState::is_active);
        let is_left = is_open && e.life.word.is_gone();
        if !(has_slot || is_left) {
            return;
        }
        let asynchronous = s.steps.iter().filter(|step| step.is_async == Some(true));
        let named = asynchronous.filter_map(|step| step.run_id.as_deref());
        let mut children: Vec<ChildFact> = Vec::new();
        for id in named.filter(|id| **id != *e.run_id) {
            if children.len() == limits::CHILDREN_LOOKED_AT {
                break;
            }
            if !children.iter().any(|child| child.run_id == id) {
                children.push(self.child(runs, id));
            }
        }
        e.children = children;
    }

    fn child(&self, runs: &RunsRoot<H>, id: &str) -> ChildFact {
        let mut child = ChildFact { run_id: id.to_owned(), ..ChildFact::default() };
        let opened = RunId::from_entry(id)
            .ok()
            .and_then(|_| self.host.open_dir_at(&runs.dir, OsStr::new(id)).ok());
        let Some(dir) = opened else { return child };
        child.found = true;
        let (status, _) = read::document_unlisted(
            self.host,
            &dir,
            layout::STATUS,
            limits::STATUS_MAX_BYTES,
            runs.owner,
            |doc| Ok(StatusView::read(doc)),
        );
        child.has_status = status.is_there();
        let FileFact::Present(s, _) = status else { return child };
        child.state = s.state.as_ref().map(Open::as_str).map(str::to_owned);
        child.has_ended = s.known_state().is_some_and(|state| !state.holds_slot());
        let overlay = s.overlay.as_ref().and_then(|overlay| overlay.as_ref().ok());
        let Some(instance) = s.overlay_instance() else { return child };
        child.bound = true;
        child.failed_to_start = s.error.is_some()
            && overlay.is_some_and(|p| p.state == ProofState::NotStarted && p.run_id == id);
        let side = limits::SIDECAR_MAX_BYTES;
        let (proof, _) =
            read::document_unlisted(self.host, &dir, layout::PROOF, side, runs.owner, Proof::read);
        child.observed = proof.value().is_some_and(|p| {
            p.state == ProofState::Observed && p.check_identity(Some(id), Some(instance)).is_ok()
        });
        child
    }
}
