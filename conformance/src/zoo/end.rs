//! The end of a run in the hands of the faulty runner, in the order of RS-STEP-07.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, json};

use super::work::Cut;
use super::{Stop, Zoo};
use crate::raw;

impl Zoo {
    fn outcome(&self) -> &'static str {
        let all = |word: &str| self.steps.iter().all(|step| step["status"] == word);
        match &self.cut {
            _ if all("complete") => "complete",
            Some(Cut::Stopped) => "stopped",
            Some(Cut::TimedOut) => "failed",
            Some(Cut::Interrupted) => "paused",
            None if self.is("failure-is-complete") => "complete",
            None => "failed",
        }
    }

    fn segment(&self, text: &str, limit: usize) -> String {
        match self.fault.as_str() {
            "segment-plus" => raw::segment(text, limit).replace("%20", "+"),
            "segment-never-hashed" if text.contains('/') => text.replace('/', "%2F"),
            "segment-extension" if !text.contains('/') => text.to_owned(),
            _ => raw::segment(text, limit),
        }
    }

    /// Ends the run; the exit code.
    pub(super) fn finish(&mut self) -> Result<u8, Stop> {
        let state = self.outcome();
        if !self.is("inbox-stays-open") {
            for name in ["stop-inbox-closed.json", "steer-inbox-closed.json"] {
                let path = self.path("control").join(name);
                self.put(&path, &json!({"version": 1, "closedAt": raw::now_ms(), "state": state}))?;
            }
        }
        let ended = raw::now_ms();
        if self.is("litter-outside") {
            fs::write(self.root().join("litter.txt"), b"")?;
        }
        if self.is("marker-before-status") {
            self.marker(state, ended)?;
        }
        if self.is("candidate-early") {
            self.candidate(true, false)?;
        }
        if !self.is("result-after-status") {
            self.publish(state, ended)?;
        }
        let mut more = json!({"endedAt": ended, "lastUpdate": raw::now_ms(), "currentStep": self.steps.len().saturating_sub(1)});
        if self.is("ended-before-started") {
            more["endedAt"] = (self.began_ms - 5).into();
        }
        if self.is("last-steps-untold") {
            self.steps[0]["status"] = "running".into();
        }
        self.write_status(state, &more)?;
        if self.is("back-to-running") {
            self.put(&self.path("status.json"), &self.status("running", &json!({})))?;
            self.put(&self.path("status.json"), &self.status(state, &more))?;
        }
        if self.is("result-after-status") {
            self.publish(state, ended)?;
        }
        if !self.is("marker-before-status") {
            self.marker(state, ended)?;
        }
        if !self.is("end-untold") {
            let told = if self.is("end-told-otherwise") { "partial" } else { state };
            self.tell("subagent.run.completed", &json!({"lifecycleArtifactVersion": 3, "status": told, "durationMs": ended - self.began_ms}))?;
        }
        self.account_for_writers()?;
        self.proofs()?;
        let failed = self.is("exit-tells-the-state") && state != "complete";
        Ok(u8::from(failed || self.is("exit-never-zero")))
    }

    /// What no runner may write.
    fn proofs(&self) -> Result<(), Stop> {
        let path = self.path("process-terminal.json");
        let mut proof = json!({"version": 1, "state": "pending", "runId": self.id, "runnerProcessInstanceId": self.instance});
        if self.is("proof-touched") {
            proof["observerNote"] = "touched".into();
            self.put(&path, &proof)?;
        }
        if self.is("proof-imitated") {
            let runner = json!({"kind": "runner", "processInstanceId": self.instance, "closeObservedAt": raw::now_ms(), "exitCode": 0, "signal": null});
            proof["state"] = "observed".into();
            proof["observedAt"] = raw::now_ms().into();
            proof["instances"] = json!([runner]);
            self.put(&path, &proof)?;
        }
        Ok(())
    }

    fn publish(&self, state: &str, ended: i64) -> Result<(), Stop> {
        let anonymous = self.is("result-without-session");
        let Some(session) = self.session.clone().or_else(|| anonymous.then(|| "none".to_owned()))
        else {
            return Ok(());
        };
        let good = state == "complete";
        let public = if self.is("result-usual-place") {
            self.root().join("async-subagent-results").join(format!("{}.json", self.id))
        } else {
            PathBuf::from(self.text("resultPath"))
        };
        let place = public.parent().map(PathBuf::from).unwrap_or_default();
        let name = format!("{}.json", self.segment(&self.id, 250));
        let folder = self.segment(&session, 255);
        let pending = place.join("result-pending").join(&folder).join(&name);
        let (told, success) =
            if self.is("result-disagrees") { ("failed", false) } else { (state, good) };
        let id = if self.is("result-names-another") { "another" } else { self.id.as_str() };
        let payload = json!({
            "id": id, "agent": self.steps[0]["agent"], "mode": "single", "success": success, "state": told,
            "summary": "done", "results": [], "exitCode": i64::from(told != "complete" && told != "paused"), "timestamp": ended,
            "durationMs": ended - self.began_ms, "sessionId": session, "asyncDir": self.dir.to_string_lossy(),
        });
        let mut entry = json!({
            "version": 1, "runId": self.id, "sessionId": session, "writtenAt": ended,
            "file": public.file_name().unwrap_or_default().to_string_lossy(), "asyncDir": self.dir.to_string_lossy(),
        });
        match self.fault.as_str() {
            "entry-without-version" => drop(entry.as_object_mut().map(|m| m.remove("version"))),
            "entry-file-is-path" => entry["file"] = public.to_string_lossy().into_owned().into(),
            "entry-names-another" => entry["runId"] = "another".into(),
            _ => {}
        }
        let index = place.join("result-index/sessions").join(&folder).join(&name);
        if self.is("index-before-result") {
            self.put(&index, &entry)?;
        }
        self.put(&pending, &payload)?;
        if self.is("public-before-index") {
            fs::rename(&pending, &public)?;
            return Ok(self.put(&index, &entry)?);
        }
        if !self.is("index-before-result") {
            self.put(&index, &entry)?;
        }
        self.put(&place.join("result-index/runs").join(&name), &entry)?;
        if self.is("public-copied") {
            self.put(&public, &payload)?;
            return Ok(fs::remove_file(pending)?);
        }
        Ok(fs::rename(&pending, &public)?)
    }

    /// The indexes of runs.
    fn marker(&self, state: &str, ended: i64) -> Result<(), Stop> {
        let anonymous = self.is("marker-without-session");
        let session = self.session.clone().or_else(|| anonymous.then(|| "none".to_owned()));
        let active = self.runs().join(".active-runs").join(&self.id);
        if self.is("active-removed-first") {
            let _ = fs::remove_file(&active);
        }
        if let Some(session) = session.filter(|_| !self.is("no-terminal-marker")) {
            let stamp = if self.is("marker-misstamped") {
                format!("{ended}")
            } else {
                format!("{ended:016}")
            };
            let name = format!("{stamp}-{}.json", self.segment(&self.id, 250));
            let mut marker =
                json!({"version": 1, "runId": self.id, "sessionId": session, "endedAt": ended});
            if self.is("marker-without-end") {
                drop(marker.as_object_mut().map(|members| members.remove("endedAt")));
            }
            let dir = self.runs().join(".terminal-runs").join(self.segment(&session, 255));
            self.put(&dir.join(name), &marker)?;
        }
        if state != "running" && !self.is("active-left") {
            let _ = fs::remove_file(active);
        }
        Ok(())
    }

    /// The candidate: with counts, and with the release acknowledged.
    pub(super) fn candidate(&self, counted: bool, released: bool) -> Result<(), Stop> {
        let instance =
            if self.is("candidate-names-another") { "another" } else { self.instance.as_str() };
        let mut doc = json!({"version": 1, "runId": self.id, "runnerProcessInstanceId": instance, "writers": {}});
        if let Some(lease) = &self.lease {
            doc["sessionFile"] = lease.session_file.clone().into();
            if counted && self.is("session-replaced") {
                fs::write(&lease.session_file, "{}\n").map_err(|e| Stop::Failed(e.to_string()))?;
            }
            if !(self.is("token-unnamed") && counted) {
                doc["revivalLeaseToken"] = lease.token.clone().into();
            }
            if self.is("session-unnamed") {
                drop(doc.as_object_mut().map(|members| members.remove("sessionFile")));
            }
        }
        if counted {
            let (mut writers, mut counts) = (Map::new(), Map::new());
            for (i, list) in self.writers.iter().enumerate() {
                let more = usize::from(self.is("counts-disagree"));
                writers.insert(i.to_string(), list.clone().into());
                counts.insert(i.to_string(), (list.len() + more).into());
            }
            if self.is("counts-of-first-only") {
                counts.retain(|step, _| step == "0");
                writers.retain(|step, _| step == "0");
            }
            doc["writers"] = writers.into();
            doc["expectedWriters"] = counts.into();
        }
        if released {
            doc["revivalLeaseReleaseAcknowledged"] = true.into();
        }
        Ok(self.put(&self.path("process-terminal-candidate.json"), &doc)?)
    }

    fn account_for_writers(&self) -> Result<(), Stop> {
        if self.is("released-before-counts") {
            if let Some(lease) = &self.lease {
                self.release(lease)?;
            }
            return self.candidate(true, self.lease.is_some());
        }
        if !self.is("candidate-early") {
            self.candidate(true, false)?;
        }
        let Some(held) = &self.lease else { return Ok(()) };
        if self.is("acknowledged-before-release") {
            self.candidate(true, true)?;
            return Ok(self.release(held)?);
        }
        self.release(held)?;
        if self.is("release-unacknowledged") {
            return Ok(());
        }
        self.candidate(true, true)
    }
}
