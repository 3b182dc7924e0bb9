//! Runners under a shim: each gets a process of its own that waits for its end and outlives the launcher.
//!
//! Ordered steps of [`Shims::spawn`]:
//! 1. start the shim with one pipe for its standard output and the environment of the runner;
//! 2. wait for its one line ([`Told`]): who the runner is, or why there is none. At most
//!    [`SHIM_START_MS`](limits::SHIM_START_MS); a shim that says nothing in that time is made to end;
//! 3. hold the runner by a handle, and compare what it holds with what the shim told. In this order: the
//!    other one could hold a successor of the same number.
//!
//! From then on the end of the runner is told by its handle, and signals go through it. The shim is a child
//! of the launcher as long as that lives, so it is reaped when somebody looks; afterwards it is nobody's
//! business but the system's.
//!
//! What a crash of the launcher leaves: after 1 a shim whose runner is not let in and gives up, and whose
//! end is proven all the same.
//!
//! Not promised: an end without handles. Where the system has none (anything but Linux) the process is
//! looked for by its record, and nothing is sent to it: the number may have changed hands.
//! Spec: RS-START-27, RS-OBS-02, RS-OBS-04, RS-OBS-12.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::protocol::error::with_causes;
use crate::protocol::limits;
use crate::protocol::observer_record::Told;
use crate::protocol::process::{self, Liveness, ProcessRecord};
use crate::store::host::{Command, ProcessHost, Signal};
use crate::store::identity;
use crate::store::process::{Life, Spawn, SpawnPlan, Spawned, Terminate};

/// Starts runners, each as the child of a shim. See the module's ordered steps.
pub struct Shims<H> {
    host: Arc<H>,
    shim: OsString,
    root: PathBuf,
    runner: Vec<OsString>,
}

impl<H> fmt::Debug for Shims<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shims")
            .field("shim", &self.shim)
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

impl<H: ProcessHost> Shims<H> {
    /// `shim` is the program `runstore`; `root` the temp root, absolute; `runner` the program of the runner
    /// and its first arguments, after which it gets the path of its configuration.
    pub fn new(host: Arc<H>, shim: OsString, root: PathBuf, runner: Vec<OsString>) -> Self {
        Self { host, shim, root, runner }
    }

    fn words(&self, plan: &SpawnPlan) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["shim".into()];
        words.extend(["--root".into(), self.root.clone().into_os_string()]);
        words.extend(["--run-dir".into(), plan.run_dir.clone().into_os_string()]);
        words.extend(["--instance".into(), plan.instance_id.clone().into()]);
        words.extend(["--cwd".into(), plan.cwd.clone().into_os_string()]);
        words.push("--".into());
        words.extend(self.runner.iter().cloned());
        words.push(plan.config_path.clone().into_os_string());
        words
    }

    /// Step 2.
    fn hear(&self, shim: &H::Child, pipe: &H::Pipe) -> io::Result<ProcessRecord> {
        let since_ms = self.host.steady_ms();
        let mut line = Vec::new();
        let mut piece = [0; 1024];
        loop {
            match self.host.read_pipe(pipe, &mut piece)? {
                Some(0) => break,
                Some(n) => {
                    line.extend_from_slice(&piece[..n]);
                    if line.contains(&b'\n') || line.len() as u64 > limits::SIDECAR_MAX_BYTES {
                        break;
                    }
                }
                None => {
                    let waited = self.host.steady_ms().saturating_sub(since_ms);
                    let left = limits::SHIM_START_MS.saturating_sub(waited.unsigned_abs());
                    if left == 0 {
                        let why = format!(
                            "the shim did not say in {} s who the runner is",
                            limits::SHIM_START_MS / 1000
                        );
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                    self.host.wait_for_one(&[shim], &[pipe], left)?;
                }
            }
        }
        let wrong = |why: String| io::Error::other(format!("the shim did not start it: {why}"));
        match Told::read(&String::from_utf8_lossy(&line)) {
            Ok(Told::Started(record)) => Ok(record),
            Ok(Told::Failed(why)) => Err(wrong(why)),
            Err(_) if line.is_empty() => Err(wrong("it ended without a word".to_owned())),
            Err(e) => Err(wrong(with_causes(&e))),
        }
    }
}

impl<H: ProcessHost + 'static> Spawn for Shims<H> {
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        let host = &self.host;
        let (pipe, end) = host.pipe()?;
        let set = plan.set_env.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
        let removed = plan.remove_env.iter().map(|key| (key.clone(), None));
        let mut shim = host.spawn(&Command {
            program: &self.shim,
            args: &self.words(plan),
            cwd: None,
            env: &set.chain(removed).collect::<Vec<_>>(),
            // The leader of a group could not make a session.
            own_group: false,
            stdout: Some(&end),
            stderr: None,
        })?;
        // As long as this end is open, that of the shim is not the last one.
        drop(end);
        let record = match self.hear(&shim, &pipe) {
            Ok(record) => record,
            Err(e) => {
                // It is asked for nothing more. One that has ended is no error.
                let _ = host.signal(&shim, Signal::Kill);
                let _ = host.reap(&mut shim);
                return Err(e);
            }
        };
        let pid = u32::try_from(record.pid).map_err(|_| {
            io::Error::other(format!("the shim told a wrong number: {}", record.pid))
        })?;
        let told_ms = host.now_ms();
        let handle = match host.hold(record.pid) {
            Ok(Some(handle)) => {
                let recorded = record.told_at(told_ms);
                let word = process::judge(&recorded, &host.look_at(&handle), host.system()).word;
                // It has ended, and the number is another's.
                if word.is_gone() { Held::Ended } else { Held::Handle(handle) }
            }
            Ok(None) => Held::Ended,
            Err(_) => Held::Record,
        };
        let runner =
            Runner { host: Arc::clone(host), shim: Some(shim), record, pid, told_ms, handle };
        Ok(Box::new(runner))
    }
}

/// What is known of a runner that is somebody else's child.
enum Held<T> {
    /// A handle that was compared with its record.
    Handle(T),
    /// The system gave no handle.
    Record,
    /// It ended before it could be held.
    Ended,
}

struct Runner<H: ProcessHost> {
    host: Arc<H>,
    /// Until it was reaped.
    shim: Option<H::Child>,
    record: ProcessRecord,
    pid: u32,
    told_ms: i64,
    handle: Held<H::Handle>,
}

impl<H: ProcessHost> Runner<H> {
    fn reap_shim(&mut self) {
        // An error says nothing about the shim.
        let has_ended =
            self.shim.as_ref().is_some_and(|shim| matches!(self.host.peek(shim), Ok(Some(_))));
        if has_ended && let Some(mut shim) = self.shim.take() {
            let _ = self.host.reap(&mut shim);
        }
    }
}

impl<H: ProcessHost> Spawned for Runner<H> {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn look(&mut self) -> Life {
        self.reap_shim();
        match &self.handle {
            Held::Handle(handle) => match self.host.wait_held(handle, Some(0)) {
                Ok(true) => Life::Ended(self.host.told(handle).ok().flatten()),
                Ok(false) | Err(_) => Life::Running,
            },
            Held::Record => {
                let recorded = self.record.told_at(self.told_ms);
                let word: Liveness = identity::judge(&*self.host, &recorded).word;
                if word.is_gone() { Life::Ended(None) } else { Life::Running }
            }
            Held::Ended => Life::Ended(None),
        }
    }

    fn terminate(&mut self, how: Terminate) -> io::Result<()> {
        if self.look().has_ended() {
            return Ok(());
        }
        let Held::Handle(handle) = &self.handle else {
            let why = "this system gives no handle of a process that is not a child";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let signal = match how {
            Terminate::Ask => Signal::Terminate,
            Terminate::Force => Signal::Kill,
        };
        match self.host.signal_held(handle, signal) {
            // It ended in between.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            sent => sent,
        }
    }
}
