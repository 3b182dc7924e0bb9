//! Everything that a run needs before its process is made, and the process.
//!
//! Ordered steps of [`prepare`]:
//! 1. check, without writing: the texts of configuration and descriptor, the environment ([`environment()`]), the
//!    working directory, and of a nested run its place and its route;
//! 2. the run directory, which must be new ([`run::create`]);
//! 3. the reference to the fan-out budget and the recovery descriptor, flushed (their names are flushed by
//!    step 4): they are there before the run begins or never;
//! 4. the launch note, durable. It comes before the slot: a slot whose launcher died leads to a run
//!    directory in which somebody can read who that was and which instance it is bound to. The other order
//!    leaves a slot that is held by nobody who can be asked;
//! 5. the slot, bound to the instance that was chosen for the runner; where all are occupied, those of runs that
//!    have ended are released first ([`ended_slots`]). A slot that is bound only after the
//!    spawn is held for ever when the launcher dies in between (facts CW-7);
//! 6. the configuration, mode 0600, not flushed: it is read once, by a process that is made next, and holds
//!    prompts that need not outlive it.
//!
//! Ordered steps of [`Prepared::start`]:
//! 1. make the process;
//! 2. the first status, durable, with what identifies the process while nobody has waited for it;
//! 3. the active marker, durable. A marker without a status would be taken away by the next listing;
//! 4. proof and candidate ([`proof::initialise`]).
//!
//! What a crash leaves: after 2 to 4 of the first list a directory without a status, which readers call
//! abandoned before its start; after 5 a slot that its note accounts for, and that the next launcher of the
//! session frees; after 6 a configuration that no runner read, which readers report. After the spawn a runner that waits for `proceed`, gives up by itself
//! and says so.
//!
//! An error before the spawn takes back what was made, in the opposite order.
//!
//! Not promised: that a directory which could not be removed is empty; the error says so.
//! Spec: RS-START-11, RS-START-23 to RS-START-26, RS-START-37 to RS-START-39; facts §4.3, CW-1 to CW-8.

use std::path::Path;

use crate::protocol::budget::BudgetRef;
use crate::protocol::config::Shape;
use crate::protocol::error::with_causes;
use crate::protocol::nested_summary::ChildEvent;
use crate::protocol::slot::SlotKind;
use crate::protocol::written_launch::{ConfigText, NestedText};
use crate::protocol::written_nested::SummaryText;
use crate::protocol::written_run::StepAccount;
use crate::protocol::written_startup::LaunchNote;
use crate::protocol::written_status::FirstStatus;
use crate::protocol::{DecodeError, Document, Raw, RunMode, RunState, config, layout};
use crate::store::atomic::{self, Durability, Options, Target, WriteError};
use crate::store::budget;
use crate::store::host::WriteHost;
use crate::store::nested::{self, OpenRoute};
use crate::store::process::{Spawn, SpawnPlan, Spawned, Terminate};
use crate::store::proof::ProofError;
use crate::store::retry::RetryPolicy;
use crate::store::run::{self, RunError};
use crate::store::slot::{self, HeldSlot, RolledBack, SlotError, SlotRequest};
use crate::store::{directory, ended_slots, identity, markers, message, proof};

use super::drive::Launch;
use super::environment::{Environment, environment};
use super::handshake::Handshake;
use super::request::{Cause, Nested, Place, Refusal, Refused, Request};

/// A run that is ready to be started.
#[must_use = "a prepared run holds a name, and perhaps a slot, until it is started or abandoned"]
pub struct Prepared<'a, H: WriteHost> {
    pub(super) host: &'a H,
    pub(super) place: Place<'a, H::Dir>,
    pub(super) request: Request<'a>,
    pub(super) run_dir: H::Dir,
    pub(super) instance_id: String,
    pub(super) slot: Option<HeldSlot>,
    shape: Shape,
    environment: Environment,
    route: Option<OpenRoute<H::Dir>>,
}

impl<H: WriteHost> std::fmt::Debug for Prepared<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("run_id", &self.request.run_id)
            .field("instance_id", &self.instance_id)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// Prepares a run. See the module's ordered steps.
/// Spec: RS-START-37, RS-START-38.
///
/// # Errors
/// [`Refused`]; what was made is taken back, and what could not be is named in it.
pub fn prepare<'a, H: WriteHost>(
    host: &'a H,
    place: Place<'a, H::Dir>,
    request: Request<'a>,
) -> Result<Prepared<'a, H>, Refused> {
    let instance_id = identity::instance_id(host);
    let (config, shape) = check(host, &place, &request, &instance_id)?;
    let environment = environment(request.parent_session_id, request.set_env, request.remove_env)
        .map_err(|e| Refusal::Invalid("environment of the runner", e))?;
    let environment = match request.budget {
        Some(_) => environment.with_own_budget(),
        None => environment,
    };
    let descriptor = request.descriptor.map(|d| d.text()).transpose();
    let descriptor = descriptor.map_err(|e| Refusal::Invalid("recovery descriptor", e))?;
    check_budget(host, &place, &request, descriptor.as_deref())?;
    let route = route_of(host, &place, &request)?;
    let run_dir = match run::create(host, place.runs_root, request.run_id, &RetryPolicy::default())
    {
        Ok(dir) => dir,
        Err(RunError::Taken(name)) => return Err(Refusal::Taken(name).into()),
        Err(RunError::Write(e)) => return Err(Refusal::Write(e).into()),
    };
    let mut prepared = Prepared {
        host,
        place,
        request,
        run_dir,
        instance_id,
        slot: None,
        shape,
        environment,
        route,
    };
    match prepared.fill(descriptor.as_deref(), &config) {
        Ok(()) => Ok(prepared),
        Err(why) => Err(prepared.take_back(why)),
    }
}

/// Step 1: the text of the configuration, and the shape of its steps.
fn check<H: WriteHost>(
    host: &H,
    place: &Place<'_, H::Dir>,
    request: &Request<'_>,
    instance_id: &str,
) -> Result<(String, Shape), Refusal> {
    let async_dir = place.runs_path.join(request.run_id.as_str());
    let events_root = place.temp_path.join(layout::NESTED_EVENTS_DIR);
    let events_root = events_root.to_string_lossy();
    let text = ConfigText {
        run_id: request.run_id.as_str(),
        async_dir: &async_dir.to_string_lossy(),
        result_path: &request.result_path.to_string_lossy(),
        cwd: &request.cwd.to_string_lossy(),
        placeholder: request.placeholder,
        steps: request.steps,
        session_id: request.session_id,
        completion_owner_id: request.completion_owner_id,
        timeout_ms: request.timeout_ms,
        deadline_at_ms: request.deadline_at_ms,
        instance_id,
        parent_session_id: request.parent_session_id,
        revival: request.revival,
        nested: request.nested.map(|Nested { route, own }| NestedText {
            route,
            events_root: &events_root,
            own,
        }),
        budget: request.budget,
        more: request.more,
    };
    let text = text.text().map_err(|e| Refusal::Invalid("runner configuration", e))?;
    let shape = Document::parse(&text).map(|doc| config::shape(&doc)).unwrap_or_default();
    is_of_its_mode(request, &shape)?;
    if request.slot.as_ref().is_some_and(|wish| wish.limit > 0) && request.session_id.is_none() {
        let e = DecodeError::member("sessionId", "a session, for a run that is to have a slot");
        return Err(Refusal::Invalid("runner configuration", e));
    }
    host.open_dir(request.cwd).map_err(Refusal::WorkingDirectory)?;
    Ok((text, shape))
}

/// A detached run is no workflow, a single run has one step, and only that one can be resumed as a descriptor
/// says.
/// Spec: RS-START-26, RS-START-93, RS-START-94.
fn is_of_its_mode(request: &Request<'_>, shape: &Shape) -> Result<(), Refusal> {
    let refuse = |what, member: &str, expected| {
        Err(Refusal::Invalid(what, DecodeError::member(member, expected)))
    };
    let single = matches!(shape.agents.as_slice(), [agent] if !agent.starts_with("expand:"))
        && shape.groups.is_empty();
    match request.mode {
        RunMode::Workflow => {
            let expected = "single, parallel or chain: a workflow has no runner of its own";
            return refuse("runner configuration", "mode", expected);
        }
        RunMode::Single if !single => {
            return refuse("runner configuration", "steps", "one step, of a single run");
        }
        _ => {}
    }
    match request.descriptor {
        Some(descriptor) if descriptor.run_id != request.run_id.as_str() => {
            refuse("recovery descriptor", "sourceRunId", "the run that it lies in")
        }
        Some(_) if request.mode != RunMode::Single => {
            refuse("recovery descriptor", "agent", "absent: only a single run can be resumed so")
        }
        Some(descriptor) if shape.agents.first().is_none_or(|agent| agent != descriptor.agent) => {
            refuse("recovery descriptor", "agent", "the agent of the only step")
        }
        _ => Ok(()),
    }
}

/// The fan-out budget is there, and everything that names one names the same.
/// Spec: RS-START-91, RS-START-92.
fn check_budget<H: WriteHost>(
    host: &H,
    place: &Place<'_, H::Dir>,
    request: &Request<'_>,
    descriptor: Option<&str>,
) -> Result<(), Refusal> {
    let Some(named) = request.budget else { return Ok(()) };
    budget::check(host, place.temp, named).map_err(Refusal::Budget)?;
    let Some(text) = descriptor else { return Ok(()) };
    let refuse = |e| Refusal::Invalid("recovery descriptor", e);
    let doc = Document::parse(text).map_err(refuse)?;
    let member = doc.get("runFanoutBudget").and_then(Raw::object);
    let same = member.and_then(|member| BudgetRef::read(&member).ok());
    if same.as_ref() == Some(named) {
        return Ok(());
    }
    Err(refuse(DecodeError::member("runFanoutBudget", "the fan-out budget of the launch")))
}

/// The route of a nested run, which lies where its root's runs and results lie.
/// Spec: RS-NEST-36, RS-NEST-38.
fn route_of<H: WriteHost>(
    host: &H,
    place: &Place<'_, H::Dir>,
    request: &Request<'_>,
) -> Result<Option<OpenRoute<H::Dir>>, Refusal> {
    let Some(Nested { route, own }) = request.nested else { return Ok(None) };
    let root = route.root_run_id.as_str();
    let results = request.result_path.parent().unwrap_or(request.result_path);
    for (member, path, own_place) in [
        ("asyncDir", place.runs_path, layout::NESTED_RUNS_DIR),
        ("resultPath", results, layout::NESTED_RESULTS),
    ] {
        if own.is_some() && !path.ends_with(Path::new(own_place).join(root)) {
            let e = DecodeError::member(member, "a path in the place of the root's nested runs");
            return Err(Refusal::Invalid("runner configuration", e));
        }
    }
    nested::open_route(host, place.temp, route).map(Some).map_err(Refusal::Route)
}

impl<'a, H: WriteHost> Prepared<'a, H> {
    /// Tells the root of a nested run that it was started; why not, if it cannot be told.
    /// Spec: RS-NEST-37.
    pub(super) fn tell_root(&self, pid: u32) -> Option<String> {
        let request = &self.request;
        let (route, own) = (self.route.as_ref()?, request.nested?.own?);
        let agents = self.shape.agents.iter();
        let steps: Vec<_> = agents.map(|agent| StepAccount::pending(agent)).collect();
        let (now_ms, run_path) = (self.host.now_ms(), self.run_path());
        let of = SummaryText {
            run_id: request.run_id.as_str(),
            async_dir: &run_path.to_string_lossy(),
            pid: Some(i64::from(pid)),
            session_id: request.session_id,
            mode: request.mode,
            state: RunState::Running,
            error: None,
            steps: &steps,
            started_at_ms: now_ms,
            ended_at_ms: None,
            now_ms,
        };
        let told = nested::put_event(self.host, route, ChildEvent::Started, own, &of);
        told.err().map(|e| with_causes(&e))
    }

    /// Steps 3 to 6.
    fn fill(&mut self, descriptor: Option<&str>, config: &str) -> Result<(), Refusal> {
        let write = |dir: &H::Dir, name: &str, text: &str, level| {
            let options = Options::new(level).target(Target::New);
            atomic::replace(self.host, dir, name, text.as_bytes(), &options)
                .map(drop)
                .map_err(Refusal::Write)
        };
        if let Some(budget) = self.request.budget {
            let text = budget.file_text();
            write(&self.run_dir, layout::FANOUT_BUDGET, &text, Durability::Ordered)?;
        }
        if let Some(text) = descriptor {
            write(&self.run_dir, layout::RECOVERY_DESCRIPTOR, text, Durability::Ordered)?;
        }
        let note = LaunchNote {
            run_id: self.request.run_id.to_string(),
            instance_id: self.instance_id.clone(),
            config_file: self.config_name(),
            created_at_ms: self.host.now_ms(),
            session_id: self.request.session_id.map(str::to_owned),
            launcher: identity::own(self.host),
        };
        write(&self.run_dir, layout::LAUNCH_NOTE, &note.text(), Durability::Durable)?;
        self.slot = self.reserve().map_err(Refusal::Slot)?;
        if let Some(held) = &mut self.slot {
            let now_ms = self.host.now_ms();
            slot::bind(self.host, self.place.temp, held, &self.instance_id, now_ms)
                .map_err(Refusal::Slot)?;
        }
        let name = self.config_name();
        write(self.place.temp, &name, config, Durability::ProcessSafe)
    }

    fn reserve(&self) -> Result<Option<HeldSlot>, SlotError> {
        let Some((wish, session_id)) = self.request.slot.as_ref().zip(self.request.session_id)
        else {
            return Ok(None);
        };
        let async_dir = self.run_path();
        let wanted = SlotRequest {
            session_id,
            run_id: self.request.run_id.as_str(),
            async_dir: &async_dir.to_string_lossy(),
            kind: SlotKind::Runner,
            limit: wish.limit,
        };
        let (host, temp) = (self.host, self.place.temp);
        let take = || match &wish.source {
            Some(source) => slot::transfer(host, temp, &wanted, source),
            None => slot::acquire(host, temp, &wanted),
        };
        let full = match take() {
            Err(e @ SlotError::Full { .. }) => e,
            taken => return taken,
        };
        // Whoever was to release a slot may have died. Asked only now: it means to read the runs.
        let place = &self.place;
        let runs = (place.runs_root, place.runs_path);
        match ended_slots::release(host, (temp, place.temp_path), runs, session_id) {
            Ok(done) if !done.released.is_empty() => take(),
            // That nobody could be judged makes no room.
            Ok(_) | Err(_) => Err(full),
        }
    }

    pub(super) fn config_name(&self) -> String {
        layout::runner_config_name(self.request.run_id.as_str())
    }

    fn run_path(&self) -> std::path::PathBuf {
        self.place.runs_path.join(self.request.run_id.as_str())
    }

    /// The run directory, for what else a caller wants to lay down before the start.
    pub fn run_dir(&self) -> &H::Dir {
        &self.run_dir
    }

    /// The instance that was chosen for the runner.
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// Takes everything back that was prepared: nothing is started.
    ///
    /// Returns what could not be taken back, each as one sentence.
    pub fn abandon(self) -> Vec<String> {
        self.undone()
    }

    fn take_back(self, why: Refusal) -> Refused {
        Refused { why, left: self.undone() }
    }

    /// Gives back the slot, or says why it is still held.
    pub(super) fn give_back_slot(&self) -> Result<(), String> {
        let Some(held) = &self.slot else { return Ok(()) };
        match slot::rollback_before_proceed(self.host, self.place.temp, held, &self.instance_id) {
            Ok(RolledBack::Released { .. } | RolledBack::Restored) => Ok(()),
            // Somebody has released it meanwhile, or taken it over: it is not ours any more.
            Err(SlotError::Changed(_)) => Ok(()),
            Ok(RolledBack::Bound) => Err("the slot has another runner".to_owned()),
            Err(e) => Err(format!("the slot is still held: {}", with_causes(&e))),
        }
    }

    /// What was made, in the opposite order: the configuration holds prompts, and the note accounts for the
    /// slot until the slot is gone.
    fn undone(&self) -> Vec<String> {
        let (host, temp) = (self.host, self.place.temp);
        let mut left: Vec<String> = Vec::new();
        let told = |e: &WriteError| with_causes(e);
        let config = self.config_name();
        left.extend(message::clear(host, temp, &[&config]).iter().map(told));
        if let Err(held) = self.give_back_slot() {
            left.push(held);
            // Whoever looks for its owner needs the note.
            return left;
        }
        let names = [
            layout::RUNNER_STDOUT_LOG,
            layout::RUNNER_STDERR_LOG,
            layout::RECOVERY_DESCRIPTOR,
            layout::FANOUT_BUDGET,
            layout::LAUNCH_NOTE,
        ];
        left.extend(message::clear(host, &self.run_dir, &names).iter().map(told));
        let run_id = self.request.run_id.as_str();
        match directory::remove_if_empty(host, self.place.runs_root, run_id) {
            Ok(true) => {}
            Ok(false) => left.push(format!("the directory of {run_id} is not empty and stays")),
            Err(e) => left.push(format!("the directory of {run_id} stays: {e}")),
        }
        left
    }

    /// Makes the process and everything that has to be there before it is let in. See the module's ordered
    /// steps. A failure after the process was made is found by the first poll.
    ///
    /// # Errors
    /// [`Refused`] when no process was made; everything is taken back then.
    /// Spec: RS-START-11, RS-START-39, RS-START-95.
    pub fn start(self, spawn: &mut dyn Spawn) -> Result<Launch<'a, H>, Refused> {
        let plan = SpawnPlan {
            config_path: self.place.temp_path.join(self.config_name()),
            run_dir: self.run_path(),
            cwd: Path::to_path_buf(self.request.cwd),
            stdout_log: layout::RUNNER_STDOUT_LOG,
            stderr_log: layout::RUNNER_STDERR_LOG,
            set_env: self.environment.set.clone(),
            remove_env: self.environment.remove.clone(),
            instance_id: self.instance_id.clone(),
        };
        let child = match spawn.spawn(&plan) {
            Ok(child) if child.pid() != 0 => child,
            Ok(mut child) => {
                // Nobody could be told who runs, and 0 is the group of whoever asks. What was made is its maker's.
                let _ = child.terminate(Terminate::Force);
                let e = std::io::Error::other("it has no number");
                return Err(self.take_back(Refusal::Spawn(e)));
            }
            Err(e) => return Err(self.take_back(Refusal::Spawn(e))),
        };
        let mut problems = Vec::new();
        let laid = self.lay_down(child.as_ref(), &mut problems);
        let now_ms = self.host.steady_ms();
        let until = self
            .request
            .budget_ms
            .map(|ms| now_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)));
        let talk = match &self.request.revival {
            None => Handshake::fresh(&self.instance_id, now_ms),
            Some(_) => Handshake::revival(self.request.confirm, now_ms),
        };
        let talk = talk.budget(self.request.state_budget_ms).until(until);
        let (ran_ahead, failed) = match laid {
            Ok(ran_ahead) => (ran_ahead, None),
            Err(cause) => (false, Some(cause)),
        };
        Ok(Launch::new(self, child, talk, ran_ahead, problems, failed))
    }

    /// Steps 2 to 4. Says whether the runner was ahead.
    fn lay_down(&self, child: &dyn Spawned, problems: &mut Vec<WriteError>) -> Result<bool, Cause> {
        let (host, request) = (self.host, &self.request);
        let agents: Vec<&str> = self.shape.agents.iter().map(String::as_str).collect();
        let first = FirstStatus {
            run_id: request.run_id.as_str(),
            session_id: request.session_id,
            completion_owner_id: request.completion_owner_id,
            tool_call_id: request.tool_call_id,
            mode: request.mode,
            agents: &agents,
            groups: &self.shape.groups,
            started_at_ms: host.now_ms(),
            process: &identity::child(host, child.pid()),
            instance_id: &self.instance_id,
        };
        let store = |e: &dyn std::error::Error| Cause::Store(with_causes(e));
        let ran_ahead = match run::write_first(host, &self.run_dir, &first) {
            Ok(()) => false,
            // A runner without a barrier has begun. Its own text says more than ours.
            Err(RunError::Taken(_)) => true,
            Err(e) => return Err(store(&e)),
        };
        let tool_call = request.tool_call_id.map(Into::into);
        let retry = RetryPolicy::default();
        let state = RunState::Running;
        if !ran_ahead {
            let runs = self.place.runs_root;
            markers::update(host, runs, request.run_id, state, tool_call.as_ref(), &retry)
                .map(|updated| problems.extend(updated.problems))
                .map_err(|e| store(&e))?;
        }
        match proof::initialise(host, &self.run_dir, request.run_id, &self.instance_id) {
            Ok(()) => Ok(ran_ahead),
            Err(ProofError::Occupied(_)) if ran_ahead => Ok(true),
            Err(e) => Err(store(&e)),
        }
    }
}
