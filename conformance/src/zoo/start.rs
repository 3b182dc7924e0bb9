//! Configuration and conversation of the faulty runner.
//!
//! Theory of operation. The configuration is read bounded, removed once it is parsed, and judged before anything of the
//! run is touched. Then the launcher is waited for, each word by itself for 30 s. A failure gives the lease back, says
//! `error` and ends with code 1, in this order.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Stop, Zoo, disk};
use crate::raw;

const PROCEED: &str = "runner-startup-proceed.json";
const ACK: &str = "runner-startup-ack.json";
const CONFIRM: &str = "runner-startup-confirm.json";
const WORD_MS: u64 = 30_000;

/// What is wrong with a configuration.
fn wrong(config: &Value) -> Option<String> {
    let filled = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).is_some_and(|t| !t.is_empty())
    };
    let needed = ["id", "resultPath", "cwd", "asyncDir", "runnerProcessInstanceId"];
    if let Some(key) = needed.iter().find(|key| !filled(config, key)) {
        return Some(format!("{key} is not a non-empty string"));
    }
    if !config.get("placeholder").is_some_and(Value::is_string) {
        return Some("placeholder is not a string".into());
    }
    let steps = config.get("steps").and_then(Value::as_array).filter(|steps| !steps.is_empty());
    let Some(steps) = steps else { return Some("steps is not a non-empty array".into()) };
    let members = |group: &Value| match group.get("parallel") {
        Some(members) => members.as_array().cloned().unwrap_or_default(),
        None => vec![group.clone()],
    };
    steps.iter().enumerate().find_map(|(i, group)| {
        let members = members(group);
        let flags = ["inheritProjectContext", "inheritGlobalContext", "inheritSkills"];
        let bad = |step: &Value| match step {
            _ if !filled(step, "agent") => {
                Some(format!("steps[{i}].agent is not a non-empty string"))
            }
            _ if !step.get("task").is_some_and(Value::is_string) => {
                Some(format!("steps[{i}].task is not a string"))
            }
            _ => flags
                .iter()
                .find(|key| !step.get(**key).is_some_and(Value::is_boolean))
                .map(|key| format!("steps[{i}].{key} is not a boolean")),
        };
        if members.is_empty() {
            Some(format!("steps[{i}] is no step"))
        } else {
            members.iter().find_map(bad)
        }
    })
}

/// What a configuration says against itself.
fn contradicts(config: &Value, fault: &str) -> Option<String> {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
    let dir = text("/asyncDir").map(PathBuf::from).unwrap_or_default();
    let own = dir.is_absolute()
        && dir.file_name().is_some_and(|name| Some(&*name.to_string_lossy()) == text("/id"));
    let token = text("/launchBarrierToken").filter(|token| !token.is_empty());
    if !own && fault != "another-run-taken" {
        return Some("asyncDir is not the directory of this run".into());
    }
    if token.is_some()
        && token != text("/runnerProcessInstanceId")
        && fault != "another-token-taken"
    {
        return Some("launchBarrierToken is not the instance".into());
    }
    let lease = config.get("revivalLease").filter(|lease| lease.is_object());
    if token.is_none()
        && lease.is_some()
        && text("/revivalLease/runId") != text("/id")
        && fault != "another-lease-taken"
    {
        return Some("revivalLease.runId is not the run".into());
    }
    None
}

impl Zoo {
    /// Reads a configuration, and removes it.
    pub(super) fn read(fault: &str, path: &Path) -> Result<Self, Stop> {
        let flags = (fault == "linked-config-followed", fault == "piped-config-waited-for");
        let refused = |what: &str| Stop::Refused(format!("the configuration {what}"));
        let bytes = disk::read(path, 16 << 20, flags).map_err(|e| refused(&e.to_string()))?;
        let bytes = bytes.ok_or_else(|| refused("is not there"))?;
        let Ok(config) = serde_json::from_slice::<Value>(&bytes) else {
            if fault == "damaged-config-removed" {
                let _ = fs::remove_file(path);
            }
            return Err(refused("is no JSON"));
        };
        let problem = if fault == "config-unchecked" { None } else { wrong(&config) };
        let problem = problem.or_else(|| contradicts(&config, fault));
        if fault != "config-kept" && !(fault == "refused-config-kept" && problem.is_some()) {
            let _ = fs::remove_file(path);
        }
        let text =
            |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(problem) = problem {
            if fault == "refusal-touches-run" {
                let _ = fs::write(PathBuf::from(text("asyncDir")).join("refused.txt"), b"");
            }
            return Err(Stop::Refused(match fault {
                "refusal-unnamed" => "the configuration is not taken".into(),
                "refusal-echoes" => format!("{problem}: {config}"),
                _ => problem,
            }));
        }
        if fault == "unknown-member-refused" && config.get("x-unknown").is_some() {
            return Err(refused("has a member that is not known"));
        }
        let flat = |group: &Value| match group.get("parallel").and_then(Value::as_array) {
            Some(members) => members.clone(),
            None => vec![group.clone()],
        };
        let groups = config.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
        let steps: Vec<Value> = groups
            .iter()
            .flat_map(flat)
            .map(|step| json!({"agent": step.get("agent"), "status": "pending"}))
            .collect();
        Ok(Self {
            fault: fault.to_owned(),
            dir: PathBuf::from(text("asyncDir")),
            id: text("id"),
            instance: text("runnerProcessInstanceId"),
            session: config.get("sessionId").and_then(Value::as_str).map(str::to_owned),
            lease: None,
            writers: vec![Vec::new(); steps.len()],
            steps,
            config,
            began_ms: raw::now_ms(),
            cut: None,
        })
    }

    /// The conversation, up to the right to work.
    pub(super) fn talk(&mut self) -> Result<(), Stop> {
        let token = self.text("launchBarrierToken").to_owned();
        let lease = self.config.get("revivalLease").filter(|lease| lease.is_object()).cloned();
        if !token.is_empty() {
            if self.is("writes-before-proceed") {
                fs::write(self.path("runner.txt"), b"here")?;
            }
            if self.is("no-barrier") {
                return Ok(());
            }
            self.hear(PROCEED, "proceed", &token, None)?;
            if !self.is("control-left") {
                let _ = fs::remove_file(self.path(PROCEED));
            }
        } else if let Some(wanted) = lease {
            self.revive(&wanted)?;
        }
        self.not_ended_yet()
    }

    fn not_ended_yet(&self) -> Result<(), Stop> {
        let text = fs::read(self.path("status.json")).unwrap_or_default();
        let status = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        let state = status.get("state").and_then(Value::as_str).unwrap_or_default();
        let ended = ["complete", "failed", "partial", "stopped", "rejected"].contains(&state);
        if ended && !self.is("used-config-begins") {
            return Err(Stop::Refused("the run has ended before".into()));
        }
        Ok(())
    }

    fn revive(&mut self, wanted: &Value) -> Result<(), Stop> {
        let text =
            |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if self.is("writes-into-source") {
            let source = self.runs().join(text("sourceRunId"));
            self.make_dir(&source)?;
            fs::write(source.join("revived.txt"), b"")?;
        }
        if self.is("ready-before-lease") {
            let owner = json!({"token": "early"});
            self.say(&json!({"state": "ready", "token": "early", "pid": std::process::id(), "owner": owner}))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let lease = self.take_lease(&text("sessionFile"), &text("sourceRunId"))?;
        let (token, owner) = (lease.token.clone(), lease.owner.clone());
        self.lease = Some(lease);
        let until = Instant::now() + Duration::from_millis(WORD_MS);
        let until = self.is("one-budget").then_some(until);
        let mut ready =
            json!({"state": "ready", "token": token, "pid": std::process::id(), "owner": owner});
        match self.fault.as_str() {
            "ready-without-owner" => drop(ready.as_object_mut().map(|m| m.remove("owner"))),
            "ready-more-members" => ready["runId"] = self.id.clone().into(),
            "ready-other-token" => ready["owner"]["token"] = "another".into(),
            _ => {}
        }
        self.say(&ready)?;
        if !self.is("ack-not-awaited") {
            self.hear(ACK, "ack", &token, until)?;
        }
        let other = if self.is("token-changes") { "another".to_owned() } else { token.clone() };
        self.say(&json!({"state": "acknowledged", "token": other, "pid": std::process::id()}))?;
        let early = !self.is("confirm-not-awaited") && self.hear_confirm(&token, until)?;
        if !early {
            self.say(&json!({"state": "confirmed", "token": token, "pid": std::process::id()}))?;
            if !self.is("proceed-not-awaited") {
                self.hear(PROCEED, "proceed", &token, until)?;
            }
        }
        if !self.is("candidate-unnamed") {
            self.candidate(false, false)?;
        }
        if !self.is("control-left") {
            for name in [ACK, CONFIRM, PROCEED, "runner-startup.json"] {
                let _ = fs::remove_file(self.path(name));
            }
        }
        Ok(())
    }

    pub(super) fn say(&self, message: &Value) -> Result<(), Stop> {
        Ok(self.put(&self.path("runner-startup.json"), message)?)
    }

    /// `confirm` from either file, or `proceed` in its place, which is `true`.
    fn hear_confirm(&self, token: &str, until: Option<Instant>) -> Result<bool, Stop> {
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_millis(WORD_MS));
        let strict = self.is("confirm-from-its-file-only");
        loop {
            if self.look(CONFIRM, "confirm", token)?
                || (!strict && self.look(ACK, "confirm", token)?)
            {
                return Ok(false);
            }
            if !strict && self.look(PROCEED, "proceed", token)? {
                return Ok(true);
            }
            self.wait(until, "confirm")?;
        }
    }

    fn hear(
        &self,
        name: &str,
        action: &str,
        token: &str,
        until: Option<Instant>,
    ) -> Result<(), Stop> {
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_millis(WORD_MS));
        while !self.look(name, action, token)? {
            self.wait(until, action)?;
        }
        Ok(())
    }

    fn wait(&self, until: Instant, action: &str) -> Result<(), Stop> {
        if Instant::now() > until && !self.is("waits-for-ever") {
            return Err(Stop::Failed(format!("nobody said {action} within 30 s")));
        }
        if self.is("impatient")
            && until.saturating_duration_since(Instant::now()).as_millis() < 25_000
        {
            return Err(Stop::Failed(format!("nobody said {action} within 5 s")));
        }
        std::thread::sleep(Duration::from_millis(15));
        Ok(())
    }

    /// RS-START-07, in its order.
    fn look(&self, name: &str, action: &str, token: &str) -> Result<bool, Stop> {
        let failed = |what: &str| Err(Stop::Failed(format!("{name} {what}")));
        let most = if self.is("large-control-taken") { 1 << 20 } else { 64 << 10 };
        let flags = (self.is("linked-control-followed"), self.is("piped-control-waited-for"));
        let bytes = match disk::read(&self.path(name), most, flags) {
            Err(e) => return failed(&format!("cannot be read: {e}")),
            Ok(None) => return Ok(false),
            Ok(Some(bytes)) => bytes,
        };
        let control = match serde_json::from_slice::<Value>(&bytes) {
            Ok(control) if control.is_object() => control,
            _ if self.is("damaged-control-waits") => return Ok(false),
            _ => return failed("is no object in JSON"),
        };
        if control.get("token").and_then(Value::as_str) != Some(token) && !self.is("token-ignored")
        {
            return failed("names another launch");
        }
        if self.is("strict-control")
            && control.as_object().is_some_and(|members| members.len() != 2)
        {
            return failed("has members that are not known");
        }
        match control.get("action").and_then(Value::as_str) {
            Some(said) if said == action => Ok(true),
            Some("ack" | "confirm" | "proceed") if self.is("known-action-fails") => {
                failed("is not awaited")
            }
            Some("ack" | "confirm" | "proceed") => Ok(self.is("any-action-accepted")),
            _ if self.is("unknown-action-waits") => Ok(false),
            _ => failed("has an unknown action"),
        }
    }

    /// What is done when it gives up.
    pub(super) fn give_up(&mut self, why: &Stop) {
        let Stop::Failed(text) = why else { return };
        let text =
            if self.is("long-error") { text.clone() } else { text.chars().take(4000).collect() };
        let mut error = json!({"state": "error", "pid": std::process::id(), "error": text});
        if self.is("error-with-token") {
            error["token"] = self.instance.clone().into();
        }
        if self.is("error-touches-status") {
            let _ = self.put(&self.path("status.json"), &self.status("failed", &json!({})));
        }
        if self.is("error-before-release") {
            let _ = self.say(&error);
            std::thread::sleep(Duration::from_millis(30));
        }
        if let Some(lease) = self.lease.take().filter(|_| !self.is("failure-keeps-lease")) {
            let _ = self.release(&lease);
        }
        if !self.is("error-unsaid") {
            let _ = self.say(&error);
        }
    }
}
