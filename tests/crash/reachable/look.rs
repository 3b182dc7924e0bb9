//! What must hold of the files of a world, after every step and at the end.

use runstore::protocol::{RunState, Word as _, layout};
use runstore::store::slot;
use serde_json::Value;
use testkit::fault::FaultHost;

use super::world::{SESSION, World, id, path};
use super::{RUNS, Step};

fn json(host: &FaultHost, path: &str) -> Result<Option<Value>, String> {
    let Some(bytes) = host.bytes(path) else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| format!("{path} is torn: {e}"))
}

fn pending(run: usize) -> String {
    let (results, pending) = (layout::RESULTS_DIR, layout::RESULT_PENDING);
    format!("/{results}/{pending}/{SESSION}/{}.json", id(run))
}

fn public(run: usize) -> String {
    format!("/{}/{}.json", layout::RESULTS_DIR, id(run))
}

/// The result of a run as its parent finds it.
pub(super) fn result(host: &FaultHost, run: usize) -> Option<String> {
    host.text(&pending(run)).or_else(|| host.text(&public(run)))
}

impl World {
    /// What must hold after every step.
    pub(super) fn look(&mut self, step: Step) -> Result<(), String> {
        for run in 0..RUNS {
            let why = |why: String| format!("{}: {why}", id(run));
            self.ends_stay(run, step).map_err(why)?;
            self.proofs_are_true(run).map_err(why)?;
            self.one_result(run).map_err(why)?;
        }
        Ok(())
    }

    fn ends_stay(&mut self, run: usize, step: Step) -> Result<(), String> {
        let status = json(&self.host, &path(run, layout::STATUS))?;
        let told = self.runs[run].told_end;
        let Some(status) = status else {
            return if told.is_some() { Err("its status is lost".to_owned()) } else { Ok(()) };
        };
        let state = status["state"].as_str().unwrap_or_default().to_owned();
        let is_end = RunState::from_word(&state).is_some_and(RunState::is_outcome);
        if let Some(told) = told.filter(|told| told.as_str() != state) {
            return Err(format!("it ended as {told:?} and is {state}"));
        }
        let own = &mut self.runs[run];
        if own.lives() && is_end {
            return Err(format!("it lives and is {state}"));
        }
        let before = own.last_end.take();
        // What nobody was told of may be taken back, by a person or with the power.
        let is_taken_back = matches!(step, Step::Undo | Step::PowerCut(_));
        if let Some(before) = before.filter(|before| *before != state && !is_taken_back) {
            return Err(format!("it was {before} and is {state}"));
        }
        if is_end {
            own.last_end = Some(state);
        }
        Ok(())
    }

    /// `observed` only with a witness; in a status only what the proof beside it says.
    fn proofs_are_true(&self, run: usize) -> Result<(), String> {
        let proof = json(&self.host, &path(run, layout::PROOF))?.unwrap_or_default();
        let is_observed = proof["state"] == "observed";
        if is_observed && !self.runs[run].witnessed {
            return Err("its end is called observed, and nobody has seen it".to_owned());
        }
        let status = self.host.text(&path(run, layout::STATUS)).unwrap_or_default();
        if status.contains("\"observed\"") && !is_observed {
            return Err("its status says observed, and no proof does".to_owned());
        }
        Ok(())
    }

    fn one_result(&self, run: usize) -> Result<(), String> {
        let marked = |path: &str| -> Result<bool, String> {
            let result = json(&self.host, path)?.unwrap_or_default();
            Ok(result["notificationDeliveredAt"].is_number())
        };
        if marked(&pending(run))? && marked(&public(run))? {
            return Err("two results of it are marked as delivered".to_owned());
        }
        let own = &self.runs[run];
        // Who takes a repair back after its result was handed over gets another one of the same kind.
        let states: std::collections::BTreeSet<_> = own.delivered.iter().map(|(s, _)| s).collect();
        let count = if own.undone { states.len() } else { own.delivered.len() };
        if count > 1 {
            return Err(format!("two results of it were delivered: {:?}", own.delivered));
        }
        Ok(())
    }

    /// What must hold when everybody is gone and a recoverer found nothing more to do.
    pub(super) fn is_clean(&self) -> Result<(), String> {
        for run in 0..RUNS {
            let Some(status) = json(&self.host, &path(run, layout::STATUS))? else { continue };
            let state = status["state"].as_str().unwrap_or_default();
            if !RunState::from_word(state).is_some_and(RunState::is_outcome) {
                return Err(format!("{} is {state} for ever: {:?}", id(run), self.refused));
            }
            let result = json(&self.host, &public(run))?;
            let result = result.ok_or_else(|| format!("{} has no result", id(run)))?;
            if result["state"] != state {
                let told = &result["state"];
                return Err(format!("{} is {state}, and its result says {told}", id(run)));
            }
        }
        let held = slot::occupied(&self.host, &0, SESSION).map_err(|e| e.to_string())?;
        if !held.is_empty() {
            let tree = self.host.tree();
            let owners = tree.iter().filter(|(path, _)| path.ends_with(layout::OWNER));
            let owners: Vec<_> = owners
                .filter_map(|(_, bytes)| Some(String::from_utf8_lossy(bytes.as_deref()?)))
                .collect();
            return Err(format!("slots that no rule frees: {held:?} {owners:?}"));
        }
        Ok(())
    }
}
