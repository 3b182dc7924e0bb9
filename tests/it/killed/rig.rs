//! One launch with a process in it that is watched, and killed before an effect if that is asked for.
//!
//! Theory of operation. Every launch has a place of its own. The watched process is a shell first: it tells
//! its number by a pipe, waits at another one until `strace` is attached to it, and becomes the program. So
//! its number, its parent and its records are those of a process that nobody watches, and every effect
//! from its first is seen.
//!
//! [`Rig::launch`] returns when no process of the launch is left ([`place`](crate::place)).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use runstore::store::RealHost;
use testkit::trace::{Seen, seen};
use testkit::{driver, trace};

use crate::ask;
use crate::place::Place;

/// The process that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Launcher,
    Shim,
    Runner,
}

/// How long a runner waits for each word of its launcher, in ms: more than a launcher that is watched
/// needs, and little enough to be waited for.
const BUDGET_MS: u32 = 1_500;

/// The calls among which effects are looked for.
const CALLS: &str = "trace=/^(rename|unlink|mkdir|rmdir|link|symlink|open|creat|write|pwrite|fsync|\
                     fdatasync|ftruncate|fchmod|chmod|utime|clone|fork|vfork|exec|kill|tgkill|pidfd_send|\
                     setsid|setpgid|dup|wait|exit_group)";

pub(crate) struct Rig {
    place: Place,
    role: Role,
    is_revival: bool,
    /// What is started as the runner.
    runner: PathBuf,
    /// What the step does before its work is done.
    before_work: String,
}

/// An effect: a call, the how-maniest of its name, and how far the process is.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    name: String,
    number: usize,
    text: String,
    pub(crate) stage: &'static str,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.number, self.text)
    }
}

/// Whether a call changes anything.
fn is_effect(name: &str, text: &str) -> bool {
    match name {
        "open" | "openat" | "openat2" => text.contains("O_CREAT"),
        "waitid" => !text.contains("WNOWAIT"),
        // A wait for nothing is repeated as often as chance has it.
        "wait4" => !text.contains("WNOHANG"),
        _ => true,
    }
}

/// What begins with a call: the call, a word in it, and the name of the stage.
type Turn = (&'static str, &'static str, &'static str);

fn turns(role: Role) -> [Turn; 2] {
    match role {
        Role::Launcher => {
            [("clone", "", "spawned"), ("rename", "\"runner-startup-proceed.json\"", "let in")]
        }
        Role::Shim => [("write", "(1, \"{", "run"), ("openat", "process-terminal.json", "end")],
        Role::Runner => [
            ("unlink", "\"runner-startup-proceed.json\"", "run"),
            ("openat", "-inbox-closed", "end"),
        ],
    }
}

impl Effect {
    /// The n-th call of this name.
    pub(crate) fn of(name: &str, number: usize) -> Self {
        Self { name: name.to_owned(), number, text: String::new(), stage: "" }
    }

    /// One that was seen in a stage.
    pub(crate) fn seen(seen: &Seen<'_>, stage: &'static str) -> Self {
        let text = seen.text.chars().take(90).collect();
        Self { name: seen.name.to_owned(), number: seen.number, text, stage }
    }

    /// The options by which a process is killed before it.
    pub(crate) fn killing(&self) -> [String; 4] {
        trace::killing(&self.name, self.number)
    }
}

/// The effects in what `strace` wrote.
pub(crate) fn effects(role: Role, log: &str) -> Vec<Effect> {
    let mut found = Vec::new();
    let mut stage = "launch";
    let mut turns = turns(role).into_iter().peekable();
    for call in seen(log) {
        let begins = |turn: &Turn| call.name.starts_with(turn.0) && call.line.contains(turn.1);
        if let Some((_, _, next)) = turns.next_if(begins) {
            stage = next;
        }
        if is_effect(call.name, call.text) {
            found.push(Effect::seen(&call, stage));
        }
    }
    assert!(turns.peek().is_none(), "{role:?}: every stage is seen: {log}");
    found
}

impl Rig {
    pub(crate) fn new(role: Role, is_revival: bool) -> Self {
        let place = Place::new();
        let [told, go] = ["told", "go"].map(|name| place.pipe(name));
        fs::write(place.path("session.jsonl"), "{}\n").expect("room");
        let rig =
            Self { place, role, is_revival, runner: ask::binary(), before_work: String::new() };
        let program = match role {
            Role::Launcher => driver::launch_run(),
            Role::Shim | Role::Runner => ask::binary(),
        };
        let words = [&go, &told, &program].map(|path| path.display().to_string());
        let [go, told, program] = words;
        rig.script(
            "gate",
            &format!(
                "exec 3<>'{go}'\necho $$ >'{told}'\nread -r word <&3\nexec '{program}' \"$@\" 3<&-"
            ),
        );
        rig
    }

    /// Writes a program in the words of a shell.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.place.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
        path
    }

    /// Has this script for a runner.
    pub(crate) fn with_runner(mut self, script: &str) -> Self {
        self.runner = self.script("runner", script);
        self
    }

    /// Has the step do this first, in the words of a shell.
    pub(crate) fn with_before_work(mut self, script: &str) -> Self {
        script.clone_into(&mut self.before_work);
        self
    }

    fn gate(&self) -> PathBuf {
        self.place.path("gate")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.place.root()
    }

    pub(crate) fn host(&self) -> &RealHost {
        &self.place.host
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// What `strace` wrote.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    /// What the launcher said about its failure.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(self.place.path("errors")).unwrap_or_default()
    }

    /// How often the work was done.
    pub(crate) fn work(&self) -> usize {
        fs::read_to_string(self.place.path("work")).map_or(0, |text| text.lines().count())
    }

    fn launcher(&self, run: &str, watched: Option<Role>) -> Command {
        let program = |role: Role, plain: PathBuf| {
            if watched == Some(role) { self.gate() } else { plain }
        };
        let mut command = self.place.command(&program(Role::Launcher, driver::launch_run()));
        let session = self.place.path("session.jsonl");
        let session = if self.is_revival { ask::utf8(&session) } else { "-" };
        command.arg(self.root()).args([run, session, &BUDGET_MS.to_string()]);
        command.arg(program(Role::Shim, ask::binary()));
        command.arg(program(Role::Runner, self.runner.clone()));
        let work = self.place.path("work");
        command.args([
            "sh",
            "-c",
            &format!("{}echo done >>'{}'", self.before_work, work.display()),
        ]);
        let errors = fs::File::create(self.place.path("errors")).expect("room");
        command.stdout(Stdio::null()).stderr(errors);
        command
    }

    /// Launches `run-1`, kills the watched process before an effect if there is one, and waits until
    /// nothing of it runs. `false` when nothing may be watched here.
    pub(crate) fn launch(&self, effect: Option<&Effect>) -> bool {
        let mut launcher = self.launcher("run-1", Some(self.role)).spawn().expect("a launcher");
        let told = fs::read_to_string(self.place.path("told")).expect("it tells its number");
        let pid = told.trim().parse().expect("a number");
        let log = self.place.path("log");
        let mut options = vec!["-o", ask::utf8(&log)];
        let killing = effect.map(Effect::killing);
        match &killing {
            None => options.extend(["-e", CALLS]),
            Some(killing) => options.extend(killing.iter().map(String::as_str)),
        }
        let strace = trace::attach(pid, &options).expect("strace was there before");
        let mut go = OpenOptions::new().write(true).open(self.place.path("go")).expect("a reader");
        std::io::Write::write_all(&mut go, b"go\n").expect("it waits");
        if let Some(mut strace) = strace {
            strace.wait().expect("ours");
        } else {
            launcher.wait().expect("ours");
            self.place.until_nothing_runs();
            return false;
        }
        launcher.wait().expect("ours");
        self.place.until_nothing_runs();
        true
    }

    /// Launches a run in the same session with nobody watched; whether it was let in.
    pub(crate) fn launch_unwatched(&self, run: &str) -> bool {
        let status = self.launcher(run, None).status().expect("a launcher");
        self.place.until_nothing_runs();
        status.success()
    }

    /// Whether the watched process was killed.
    pub(crate) fn was_killed(&self) -> bool {
        trace::was_killed(&self.log())
    }
}
