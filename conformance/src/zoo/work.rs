//! The work of the faulty runner: steps in groups of their own, an inbox, a deadline.
//!
//! Theory of operation. One loop looks at every step that is at work, into the inbox, at the deadline, and whether
//! somebody else has told the end. The end of a step is that of its process group: its leader is looked at without being
//! reaped, what is left is asked to end and then killed, and only then is the leader reaped.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde_json::{Value, json};

use super::{Stop, Zoo};
use crate::raw;

const OUTPUT_BYTES: u64 = 16 << 20;

/// Why a run ends before its work does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Stopped,
    TimedOut,
    Interrupted,
}

impl Cut {
    fn step_word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::TimedOut => "failed",
            Self::Interrupted => "paused",
        }
    }
}

/// A step at work.
struct Live {
    index: usize,
    child: Child,
    asked: Option<Instant>,
    killed: bool,
    word: Option<&'static str>,
    reader: Option<std::thread::JoinHandle<()>>,
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().cast_signed())
}

/// Processes of a group that have not ended, apart from an ended leader.
fn members(group: u32) -> usize {
    let wanted = group.to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
            let mut words = rest.split_whitespace();
            let (state, own) = (words.next(), words.nth(1));
            own == Some(&wanted) && !matches!(state, Some("Z" | "X"))
        })
        .count()
}

impl Zoo {
    /// Everything from the first status to the end.
    pub(super) fn work_and_end(&mut self) -> Result<u8, Stop> {
        let deadline = self.deadline();
        let mut first = json!({"currentStep": 0});
        if let Some(at) = deadline.filter(|_| !self.is("deadline-untold")) {
            first["deadlineAt"] = at.into();
        }
        if !self.is("status-late") {
            self.write_status("running", &first)?;
        }
        self.tell("subagent.run.started", &json!({"pid": std::process::id()}))?;
        let place = PathBuf::from(self.text("resultPath"));
        let place = place.parent().map(PathBuf::from).unwrap_or_default();
        if let Err(e) = self.make_dir(&place)
            && !self.is("blocked-result-ignored")
        {
            let more = json!({"endedAt": raw::now_ms(), "error": e.to_string()});
            self.write_status("failed", &more)?;
            return Ok(0);
        }
        let groups =
            self.config.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut next = 0;
        for group in &groups {
            let steps = match group.get("parallel").and_then(Value::as_array) {
                Some(members) => members.clone(),
                None => vec![group.clone()],
            };
            let each = if self.is("groups-in-turn") { 1 } else { steps.len().max(1) };
            for part in steps.chunks(each) {
                self.group(next, part, deadline)?;
                next += part.len();
            }
            let failed = self.steps.iter().any(|step| step["status"] == "failed");
            let ended = self.cut.is_some() && !self.is("begins-after-stop");
            if ended || (failed && !self.is("goes-on-after-failure")) {
                break;
            }
        }
        if self.is("status-late") {
            self.write_status("running", &first)?;
        }
        self.finish()
    }

    fn deadline(&self) -> Option<i64> {
        let number = |key: &str| self.config.get(key).and_then(Value::as_i64);
        let by_length = number("timeoutMs").map(|ms| self.began_ms + ms);
        let by_instant = number("deadlineAt").filter(|_| !self.is("deadline-instant-ignored"));
        by_length.into_iter().chain(by_instant).min()
    }

    /// Writes the status of this moment, with the members of others kept.
    pub(super) fn write_status(&self, state: &str, more: &Value) -> Result<(), Stop> {
        let path = self.path("status.json");
        let text = fs::read(&path).unwrap_or_default();
        let there = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        let word = there.get("state").and_then(Value::as_str).unwrap_or_default();
        let ended = ["complete", "failed", "partial", "stopped", "rejected"].contains(&word);
        if ended && !self.is("end-of-another-overwritten") && !self.is("used-config-begins") {
            return Err(Stop::Displaced);
        }
        let mut status = self.status(state, more);
        if let Some(cut) = &self.cut {
            match cut {
                Cut::Stopped => status["stopped"] = true.into(),
                Cut::TimedOut if !self.is("timeout-untold") => status["timedOut"] = true.into(),
                _ => {}
            }
        }
        if let Some(at) = self.deadline().filter(|_| !self.is("deadline-untold")) {
            status["deadlineAt"] = at.into();
        }
        if let (Some(old), Some(new)) = (there.as_object(), status.as_object_mut())
            && !self.is("other-members-lost")
        {
            let others = old.iter().filter(|(key, _)| key.starts_with("x-"));
            new.extend(others.map(|(key, value)| (key.clone(), value.clone())));
        }
        self.put(&path, &status)?;
        Ok(())
    }

    fn start(&mut self, index: usize, step: &Value) -> Result<Option<Live>, Stop> {
        self.steps[index]["status"] = "running".into();
        self.steps[index]["startedAt"] = raw::now_ms().into();
        if !self.is("step-untold") {
            let agent = self.steps[index]["agent"].clone();
            self.tell("subagent.step.started", &json!({"stepIndex": index, "agent": agent}))?;
        }
        if !self.is("status-late") {
            self.write_status("running", &json!({"currentStep": index}))?;
        }
        let words: Vec<String> = step
            .get("command")
            .and_then(Value::as_array)
            .map(|words| words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        let Some((program, args)) = words.split_first() else {
            self.steps[index]["status"] = "complete".into();
            return Ok(None);
        };
        let (pipe, out) = io::pipe()?;
        let stdin = if self.is("step-waits-for-input") { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.text("cwd"))
            .stdin(stdin)
            .stdout(out.try_clone()?)
            .stderr(out);
        if !self.is("no-groups") {
            command.process_group(0);
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                self.steps[index]["status"] = "failed".into();
                self.steps[index]["error"] = e.to_string().into();
                return Ok(None);
            }
        };
        // The other ends of the pipe must not stay open here.
        drop(command);
        let reader = self.keep_output(index, pipe)?;
        Ok(Some(Live { index, child, asked: None, killed: false, word: None, reader }))
    }

    fn keep_output(
        &self,
        index: usize,
        mut pipe: io::PipeReader,
    ) -> Result<Option<std::thread::JoinHandle<()>>, Stop> {
        let (path, before) = (
            self.path(&format!("output-{index}.log")),
            self.path(&format!("output-{index}.previous.log")),
        );
        let open =
            |path: &PathBuf| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let mut file = match open(&path) {
            Err(e) if self.is("output-failure-fatal") => return Err(e.into()),
            other => other.ok(),
        };
        let (lost, unbounded) = (self.is("output-lost"), self.is("output-unbounded"));
        Ok(Some(std::thread::spawn(move || {
            let (mut piece, mut size) = (vec![0; 64 << 10], 0);
            while let Ok(n) = pipe.read(&mut piece) {
                if n == 0 {
                    return;
                }
                size += n as u64;
                if size > OUTPUT_BYTES && !unbounded {
                    let _ = fs::rename(&path, &before);
                    (file, size) = (open(&path).ok(), n as u64);
                }
                if let Some(file) = file.as_mut().filter(|_| !lost) {
                    let _ = file.write_all(&piece[..n]);
                }
            }
        })))
    }

    /// Runs the steps of one group to their ends.
    fn group(&mut self, first: usize, steps: &[Value], deadline: Option<i64>) -> Result<(), Stop> {
        let mut live = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            live.extend(self.start(first + i, step)?);
        }
        if self.is("next-group-early") && live.len() > 1 {
            // The last one is left to itself.
            if let Some(step) = live.pop() {
                self.steps[step.index]["status"] = "complete".into();
                self.account(step.index, json!(0), Value::Null, true, step.child.id());
            }
        }
        let mut looked = Instant::now();
        let mut deadline = deadline.filter(|_| !self.is("deadline-ignored"));
        while !live.is_empty() {
            if let Err(why) = self.round(&mut live, &mut looked, &mut deadline) {
                live.iter().for_each(|step| signal(step, Signal::KILL));
                live.iter_mut().for_each(|step| drop(step.child.wait()));
                return Err(why);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn round(
        &mut self,
        live: &mut Vec<Live>,
        looked: &mut Instant,
        deadline: &mut Option<i64>,
    ) -> Result<(), Stop> {
        if deadline.is_some_and(|at| at <= raw::now_ms()) {
            *deadline = None;
            self.cut_by(Cut::TimedOut, live, None)?;
        }
        let pause = if self.is("slow-inbox") { 15_000 } else { 50 };
        if looked.elapsed() >= Duration::from_millis(pause) {
            *looked = Instant::now();
            self.inbox(live)?;
            self.look_for_another_end()?;
        }
        let mut at = 0;
        while at < live.len() {
            if self.has_ended(&mut live[at]) {
                let step = live.remove(at);
                self.ended(step)?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn look_for_another_end(&self) -> Result<(), Stop> {
        let text = fs::read(self.path("status.json")).unwrap_or_default();
        let there = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        let word = there.get("state").and_then(Value::as_str).unwrap_or_default();
        let ended = ["complete", "failed", "partial", "stopped", "rejected"].contains(&word);
        let blind = self.is("end-of-another-overwritten")
            || self.is("end-of-another-unseen")
            || self.is("used-config-begins");
        if ended && !blind { Err(Stop::Displaced) } else { Ok(()) }
    }

    fn has_ended(&self, step: &mut Live) -> bool {
        let Some(pid) = pid_of(&step.child) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let leader_ended =
            matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(Some(_)));
        if leader_ended && (self.is("rest-of-group-left") || self.is("no-groups")) {
            return true;
        }
        let left = if leader_ended { members(step.child.id()) } else { 1 };
        if left == 0 {
            return true;
        }
        match step.asked {
            None if leader_ended => {
                step.asked = Some(Instant::now());
                signal(step, Signal::TERM);
                signal(step, Signal::CONT);
            }
            Some(since) if since.elapsed() > Duration::from_millis(1000) && !step.killed => {
                step.killed = !self.is("never-kills");
                if step.killed {
                    signal(step, Signal::KILL);
                }
            }
            _ => {}
        }
        false
    }

    fn ended(&mut self, mut step: Live) -> Result<(), Stop> {
        let pid = step.child.id();
        let status = step.child.wait()?;
        let until = Instant::now() + Duration::from_millis(500);
        while step.reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let own = if status.success() { "complete" } else { "failed" };
        let word = step.word.filter(|_| !self.is("stopped-step-own-word")).unwrap_or(own);
        let account = &mut self.steps[step.index];
        account["status"] = word.into();
        account["endedAt"] = raw::now_ms().into();
        account["exitCode"] = i64::from(!matches!(word, "complete" | "paused")).into();
        if self.is("failed-step-complete") && word == "failed" {
            self.steps[step.index]["status"] = "complete".into();
        }
        let signal = status.signal().map_or(Value::Null, |n| format!("SIG{n}").into());
        self.account(
            step.index,
            status.code().map_or(Value::Null, Value::from),
            signal,
            false,
            pid,
        );
        let kind = if word == "complete" { "completed" } else { word };
        self.tell(
            &format!("subagent.step.{kind}"),
            &json!({"stepIndex": step.index, "agent": self.steps[step.index]["agent"]}),
        )?;
        if self.is("status-late") {
            return Ok(());
        }
        self.write_status("running", &json!({}))
    }

    /// The record of a writer.
    fn account(&mut self, index: usize, code: Value, signal: Value, is_early: bool, pid: u32) {
        let now = raw::now_ms();
        let above = self.dir.ancestors().filter_map(|dir| dir.file_name());
        let is_second =
            above.into_iter().any(|name| name.to_string_lossy().starts_with("dm-subagents-"));
        let kind =
            if is_second && !self.is("writers-misnamed") { "dm-writer" } else { "pi-writer" };
        let mut tree = json!({"state": "observed", "mechanism": "posix-process-group", "processGroupId": pid, "verifiedAt": now});
        if self.is("trees-unknown") || is_early {
            tree = json!({"state": "unknown", "reason": "verification-failed"});
        }
        let mut writer = json!({
            "processInstanceId": format!("{}-{index}", self.instance), "kind": kind, "closeObservedAt": now,
            "exitCode": code, "signal": signal, "attempt": 0, "processTree": tree,
        });
        if self.is("writer-without-attempt") {
            drop(writer.as_object_mut().map(|members| members.remove("attempt")));
        }
        if !self.is("writers-unrecorded") {
            self.writers[index].push(writer);
        }
    }

    fn inbox(&mut self, live: &mut [Live]) -> Result<(), Stop> {
        for name in ["interrupt.json", "timeout.json"] {
            let path = self.path("control").join(name);
            if path.symlink_metadata().is_ok() {
                let cut = match name {
                    "interrupt.json" if self.is("interrupt-stops") => Cut::Stopped,
                    "interrupt.json" => Cut::Interrupted,
                    _ => Cut::TimedOut,
                };
                self.cut_by(cut, live, Some(path))?;
            }
        }
        for name in self.requests("stop-requests") {
            let text = fs::read(&name).unwrap_or_default();
            let request = serde_json::from_slice::<Value>(&text).ok();
            let is_stop = request.as_ref().is_some_and(|r| r["type"] == "stop");
            let Some(request) = request.filter(|_| is_stop || self.is("malformed-obeyed")) else {
                if !self.is("malformed-kept") {
                    let _ = fs::remove_file(&name);
                }
                continue;
            };
            let target = request
                .get("targetIndex")
                .and_then(Value::as_u64)
                .filter(|_| !self.is("target-ignored"));
            match target {
                Some(index) => {
                    let _ = fs::remove_file(&name);
                    for step in live.iter_mut().filter(|step| step.index as u64 == index) {
                        ask(step, "stopped");
                    }
                }
                None if self.is("stop-unheard") => {}
                None => self.cut_by(Cut::Stopped, live, Some(name))?,
            }
        }
        for name in
            self.requests("steer-requests").into_iter().filter(|_| !self.is("messages-left"))
        {
            let _ = fs::remove_file(&name);
            self.tell("subagent.steer.failed", &json!({"reason": "a command takes no messages"}))?;
        }
        Ok(())
    }

    pub(super) fn requests(&self, folder: &str) -> Vec<PathBuf> {
        let entries =
            fs::read_dir(self.path("control").join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .filter(|path| {
                !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
            })
            .collect();
        names.sort();
        names
    }

    /// Ends the run early: told in the log, the request removed, told in the status, then carried out.
    fn cut_by(
        &mut self,
        cut: Cut,
        live: &mut [Live],
        request: Option<PathBuf>,
    ) -> Result<(), Stop> {
        let late = self.is("request-removed-late");
        if let Some(path) = &request {
            if !self.is("request-untold") {
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.tell("runstore.control.taken", &json!({"file": file, "request": "end"}))?;
            }
            if !late && !self.is("request-left") {
                let _ = fs::remove_file(path);
            }
        }
        let word = cut.step_word();
        if self.cut.is_none() {
            self.cut = Some(cut.clone());
            if !self.is("stop-untold") && cut != Cut::Interrupted {
                self.write_status("running", &json!({"error": "ended early"}))?;
            }
        } else if !self.is("stopped-twice") {
            return Ok(());
        }
        match cut {
            Cut::Stopped => self.tell("subagent.run.stopped", &json!({"message": "asked"}))?,
            Cut::TimedOut => self.tell("subagent.run.timed_out", &json!({"message": "time"}))?,
            Cut::Interrupted => self.tell("subagent.run.paused", &json!({}))?,
        }
        live.iter_mut().for_each(|step| ask(step, word));
        if let Some(path) = request.filter(|_| late) {
            std::thread::sleep(Duration::from_millis(300));
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

fn signal(step: &Live, signal: Signal) {
    if let Some(pid) = pid_of(&step.child) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

fn ask(step: &mut Live, word: &'static str) {
    if step.asked.is_none() {
        step.asked = Some(Instant::now());
        step.word = Some(word);
        signal(step, Signal::TERM);
        signal(step, Signal::CONT);
    }
}
