//! One launch of the library in a process of its own, with any program as the runner.
//!
//! `peer-launch FILE` reads what is to be launched from a JSON object, launches it, leads the launch to its
//! end, waits for the end of the runner, proves it, and prints one JSON line. So a script can have this library as
//! the launcher of somebody else's runner.
//!
//! Members of the object: `root` (the temp root, absolute), `runId`, `mode`, `steps` (as in a configuration),
//! `cwd`, `runner` (a program that is given the path of the configuration), and maybe `sessionId`,
//! `completionOwnerId`, `toolCallId`, `parentSessionId`, `timeoutMs`, `slotLimit`, `more` (further members of the
//! configuration), `descriptor` (the fan-out budget of a recovery descriptor), `revival` (`sessionFile`,
//! `sourceRunId`), `confirm` (`both` or `never`), `shim` (the program `runstore`, which is to be
//! the parent of the runner), `prove` (`false` leaves the proof to somebody else), `env` (a value, or null for a variable that the runner does
//! not get).
//!
//! The line: `outcome` (`refused`, `started`, `died`, `timed-out`, and `not-started` when there never was a
//! process), `cause`, `pid`, `instanceId`, `exit` (the code or the name of the signal), `closedAt` (ms since the
//! epoch), and `proof` with its `reason`, if it is to be proven.
//!
//! Without a shim this process is the parent of the runner and waits for it: what it proves, it has seen. With
//! one it waits for the shim, and tells what that proved; `exit` is then the one of the proof. A crash leaves a launch as any crash of a
//! launcher does.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "its line is its answer")]
#![expect(clippy::disallowed_methods, reason = "reads what it is told outside the store")]

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use runstore::launcher::{self, Confirm, Outcome, Place, Prepared, Request, Shims, SlotWish};
use runstore::protocol::error::with_causes;
use runstore::protocol::ids::RunId;
use runstore::protocol::process::Presence;
use runstore::protocol::proof::ProofState;
use runstore::protocol::written_launch::{DescriptorText, RevivalText};
use runstore::protocol::{Open, RunMode, layout, limits};
use runstore::store::host::Part;
use runstore::store::process::{Children, Exit, Life, Spawn, Spawned};
use runstore::store::proof::{self, ExitWitness, RunPlace};
use runstore::store::retry::RetryPolicy;
use runstore::store::{Host, RealHost, WriteHost as _, directory, observer_record, slot};
use serde_json::{Value, json};
use testkit::driver;

type Answer = Result<Value, Box<dyn Error>>;
type Dir = <RealHost as Host>::Dir;

/// How often the runner is looked at, in ms.
const LOOK_MS: u64 = 5;

fn main() -> ExitCode {
    driver::main(|args| match *args {
        [file] => {
            let wish: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            println!("{}", Wish(&wish).launch()?);
            Ok(())
        }
        _ => Err("usage: peer-launch FILE".into()),
    })
}

/// What is to be launched.
#[derive(Clone, Copy)]
struct Wish<'a>(&'a Value);

impl<'a> Wish<'a> {
    fn text(self, key: &str) -> Option<&'a str> {
        self.0[key].as_str()
    }

    fn needed(self, key: &str) -> Result<&'a str, Box<dyn Error>> {
        self.text(key).ok_or_else(|| format!("{key} is not said").into())
    }

    /// Its members as JSON texts.
    fn members(self, key: &str) -> BTreeMap<&'a str, String> {
        let members = self.0[key].as_object().into_iter().flatten();
        members.map(|(key, value)| (key.as_str(), value.to_string())).collect()
    }

    fn launch(self) -> Answer {
        let host = Arc::new(RealHost::new());
        let root = Path::new(self.needed("root")?);
        let temp = host.open_dir(root)?;
        let retry = RetryPolicy::default();
        let runs_root = directory::create_path(&*host, &temp, &[layout::RUNS_DIR], &retry)?;
        let runs_path = root.join(layout::RUNS_DIR);
        let place =
            Place { temp: &temp, temp_path: root, runs_root: &runs_root, runs_path: &runs_path };
        let run_id = RunId::parse(self.needed("runId")?)?;
        let mode = Open::<RunMode>::read(self.needed("mode")?).known();
        let mode = mode.ok_or("mode is no shape of a run")?;
        let steps = self.0["steps"].to_string();
        let result = root.join(layout::RESULTS_DIR).join(format!("{run_id}.json"));
        let mut request =
            Request::new(&run_id, mode, &steps, Path::new(self.needed("cwd")?), &result);
        request.session_id = self.text("sessionId");
        request.completion_owner_id = self.text("completionOwnerId");
        request.tool_call_id = self.text("toolCallId");
        request.parent_session_id = self.text("parentSessionId");
        request.timeout_ms = self.0["timeoutMs"].as_i64();
        if let Some(limit) = self.0["slotLimit"].as_u64() {
            request.slot = Some(SlotWish { limit: u32::try_from(limit)?, source: None });
        }
        let more = self.members("more");
        let more: Vec<_> = more.iter().map(|(key, text)| (*key, text.as_str())).collect();
        request.more = &more;
        let revival = Wish(&self.0["revival"]);
        if !revival.0.is_null() {
            let session_file = revival.needed("sessionFile")?;
            let source_run_id = revival.needed("sourceRunId")?;
            request.revival = Some(RevivalText { session_file, source_run_id });
        }
        if self.text("confirm") == Some("never") {
            request.confirm = Confirm::Never;
        }
        let budget = self.0["descriptor"].to_string();
        let descriptor = DescriptorText {
            run_id: run_id.as_str(),
            agent: self.0["steps"][0]["agent"].as_str().unwrap_or_default(),
            cwd: self.needed("cwd")?,
            system_prompt_mode: "replace",
            output_mode: "inline",
            fanout_budget: &budget,
            inherit_project_context: false,
            inherit_skills: false,
            share: false,
            max_subagent_depth: 1,
            session_file: revival.text("sessionFile"),
            deadline_at_ms: None,
            more: &[],
        };
        if !self.0["descriptor"].is_null() {
            request.descriptor = Some(&descriptor);
        }
        let env = self.0["env"].as_object().into_iter().flatten();
        let (set, removed): (Vec<_>, Vec<_>) = env.partition(|(_, value)| value.is_string());
        let own = |text: &str| -> OsString { text.into() };
        let set: Vec<_> =
            set.iter().filter_map(|(key, value)| Some((own(key), own(value.as_str()?)))).collect();
        let removed: Vec<_> = removed.iter().map(|(key, _)| own(key)).collect();
        (request.set_env, request.remove_env) = (&set, &removed);
        match launcher::prepare(&*host, place, request) {
            Ok(prepared) => self.start(&host, place, &run_id, prepared),
            Err(refused) => Ok(not_started(&refused)),
        }
    }

    fn start(
        self,
        host: &Arc<RealHost>,
        place: Place<'_, Dir>,
        run_id: &RunId,
        prepared: Prepared<'_, RealHost>,
    ) -> Answer {
        let program = self.needed("runner")?.into();
        let mut spawn: Box<dyn Spawn> = match self.text("shim") {
            Some(shim) => {
                let root = place.temp_path.to_path_buf();
                Box::new(Shims::new(Arc::clone(host), shim.into(), root, vec![program]))
            }
            None => Box::new(Children::new(Arc::clone(host), program, Vec::new())),
        };
        let mut launch = match prepared.start(&mut *spawn) {
            Ok(launch) => launch,
            Err(refused) => return Ok(not_started(&refused)),
        };
        let outcome = launch.wait();
        let word = match outcome {
            Outcome::Started(_) => "started",
            Outcome::Refused(_) => "refused",
            Outcome::Died(_) => "died",
            Outcome::TimedOut(_) => "timed-out",
        };
        let cause = outcome.failed().map(ToString::to_string);
        let (pid, instance_id) = (launch.pid(), launch.instance_id().to_owned());
        let mut child = launch.into_child();
        let run_dir = host.open_dir_at(place.runs_root, run_id.as_str().as_ref())?;
        let mut answer = json!({
            "outcome": word,
            "cause": cause,
            "pid": pid,
            "instanceId": instance_id,
        });
        if self.text("shim").is_some() {
            let proof = wait_for_shim(host, &run_dir, &mut *child)?;
            answer["proof"] = proof["state"].clone();
            answer["reason"] = proof["reason"].clone();
            let runner = &proof["instances"][0];
            answer["exit"] = [&runner["exitCode"], &runner["signal"]]
                .into_iter()
                .find(|it| !it.is_null())
                .cloned()
                .into();
            return Ok(answer);
        }
        let exit = wait(host, &mut *child)?;
        let closed_at_ms = host.now_ms();
        answer["closedAt"] = closed_at_ms.into();
        answer["exit"] = match &exit {
            Exit::Code(code) => json!(code),
            Exit::Signal(name) => json!(name),
        };
        if self.0["prove"] == false {
            return Ok(answer);
        }
        let (temp, runs_root) = (place.temp, place.runs_root);
        let place = RunPlace { temp, runs_root, run_dir: &run_dir, run_id };
        let witness = ExitWitness::from_wait(&instance_id, closed_at_ms, exit);
        let proof = proof::finalise(&**host, &place, &witness)?.proof;
        let session = self.text("sessionId").filter(|_| proof.state == ProofState::Observed);
        if let Some(session) = session {
            slot::release_of_run(&**host, temp, session, run_id.as_str(), &instance_id)?;
        }
        answer["proof"] = proof.state.to_string().into();
        answer["reason"] = proof.reason.as_ref().map(Open::as_str).into();
        Ok(answer)
    }
}

/// The proof that a shim has left, once it has ended itself.
fn wait_for_shim(host: &RealHost, run_dir: &Dir, child: &mut dyn Spawned) -> Answer {
    let observer = observer_record::read(host, run_dir)?.ok_or("no shim has said who it is")?;
    // A look reaps the shim as well, which is a child of this process.
    while !child.look().has_ended() || host.process(observer.process.pid).presence != Presence::Gone
    {
        host.wait_ms(LOOK_MS);
    }
    let proof = host.read_at(run_dir, layout::PROOF.as_ref(), Part::All(limits::SIDECAR_MAX_BYTES));
    Ok(serde_json::from_slice(&proof.map_err(|e| format!("{e:?}"))?.bytes)?)
}

fn not_started(refused: &launcher::Refused) -> Value {
    json!({ "outcome": "not-started", "cause": with_causes(refused) })
}

/// How the child ended.
fn wait(host: &RealHost, child: &mut dyn Spawned) -> Result<Exit, Box<dyn Error>> {
    loop {
        match child.look() {
            Life::Ended(exit) => return exit.ok_or_else(|| "a parent is told the exit".into()),
            Life::Running => host.wait_ms(LOOK_MS),
        }
    }
}
