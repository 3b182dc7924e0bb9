//! One launch with a process in it that is watched, and killed before an effect if that is asked for.
//!
//! Theory of operation. Every launch has a place of its own. The watched process is a shell first: it tells
//! its number by a pipe, waits at another one until `strace` is attached to it, and becomes the program. So
//! its number, its parent and its records are those of a process that nobody watches, and every effect
//! from its first is seen.
//!
//! The processes of a launch are known by a variable in their environment, which each of them passes on.
//! [`Rig::launch`] returns when none is left.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runstore::store::RealHost;
use runstore::store::host::ProcessHost as _;
use testkit::{driver, trace};

use crate::ask;

/// The process that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Launcher,
    Shim,
    Runner,
}

/// How long a runner waits for each word of its launcher, in ms: more than a launcher that is watched
/// needs, and little enough to be waited for.
const BUDGET_MS: u32 = 1_500;

/// Nothing of a launch takes longer, in ms, however busy the machine is.
const LIMIT_MS: u64 = 60_000;

const MARK: &str = "RUNSTORE_TEST_PLACE";

/// The calls among which effects are looked for.
const CALLS: &str = "trace=/^(rename|unlink|mkdir|rmdir|link|symlink|open|creat|write|pwrite|fsync|\
                     fdatasync|ftruncate|fchmod|chmod|utime|clone|fork|vfork|exec|kill|tgkill|pidfd_send|\
                     setsid|setpgid|dup|wait|exit_group)";

pub(super) struct Rig {
    _dir: tempfile::TempDir,
    place: PathBuf,
    role: Role,
    is_revival: bool,
    host: RealHost,
}

/// An effect: a call, the how-maniest of its name, and how far the process is.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    name: String,
    number: usize,
    text: String,
    pub(super) stage: &'static str,
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

/// What begins with a call: the words in it, and the name of the stage.
fn turns(role: Role) -> [(&'static str, &'static str); 2] {
    match role {
        Role::Launcher => [("clone", "spawned"), ("runner-startup-proceed.json\"", "let in")],
        Role::Shim => [("write(1, \"{", "run"), ("process-terminal.json", "end")],
        Role::Runner => [("unlinkat(5, \"runner-startup", "run"), ("-inbox-closed", "end")],
    }
}

/// The effects in what `strace` wrote.
pub(super) fn effects(role: Role, log: &str) -> Vec<Effect> {
    let mut numbers = std::collections::BTreeMap::<&str, usize>::new();
    let mut found = Vec::new();
    let mut stage = "launch";
    let mut turns = turns(role).into_iter().peekable();
    for line in log.lines() {
        let Some((name, rest)) = line.split_once('(') else { continue };
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let number = numbers.entry(name).or_default();
        *number += 1;
        if let Some((_, next)) = turns.next_if(|(word, _)| line.contains(word)) {
            stage = next;
        }
        if is_effect(name, rest) {
            let text = rest.chars().take(90).collect();
            found.push(Effect { name: name.to_owned(), number: *number, text, stage });
        }
    }
    assert!(turns.peek().is_none(), "{role:?}: every stage is seen: {log}");
    found
}

impl Rig {
    pub(super) fn new(role: Role, is_revival: bool) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("room");
        let place = dir.path().canonicalize().expect("there");
        for pipe in ["told", "go"] {
            let path = place.join(pipe);
            rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).expect("a pipe");
        }
        fs::write(place.join("session.jsonl"), "{}\n").expect("room");
        let rig = Self { _dir: dir, place, role, is_revival, host: RealHost::new() };
        let program = match role {
            Role::Launcher => driver::launch_run(),
            Role::Shim | Role::Runner => ask::binary(),
        };
        let here = rig.place.display();
        let script = format!(
            "#!/bin/sh\nexec 3<>'{here}/go'\necho $$ >'{here}/told'\nread -r word <&3\nexec '{}' \"$@\" 3<&-\n",
            program.display()
        );
        fs::write(rig.gate(), script).expect("room");
        fs::set_permissions(rig.gate(), fs::Permissions::from_mode(0o700)).expect("ours");
        rig
    }

    fn gate(&self) -> PathBuf {
        self.place.join("gate")
    }

    pub(super) fn root(&self) -> PathBuf {
        self.place.join("root")
    }

    pub(super) fn host(&self) -> &RealHost {
        &self.host
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// What `strace` wrote.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.place.join("log")).unwrap_or_default()
    }

    /// What the launcher said about its failure.
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.place.join("errors")).unwrap_or_default()
    }

    /// How often the work was done.
    pub(super) fn work(&self) -> usize {
        fs::read_to_string(self.place.join("work")).map_or(0, |text| text.lines().count())
    }

    fn launcher(&self, run: &str, watched: Option<Role>) -> Command {
        let program = |role: Role, plain: PathBuf| {
            if watched == Some(role) { self.gate() } else { plain }
        };
        let mut command = Command::new(program(Role::Launcher, driver::launch_run()));
        let session = self.place.join("session.jsonl");
        let session = if self.is_revival { ask::utf8(&session) } else { "-" };
        command.arg(self.root()).args([run, session, &BUDGET_MS.to_string()]);
        command.arg(program(Role::Shim, ask::binary()));
        command.arg(program(Role::Runner, ask::binary()));
        command.args(["sh", "-c", &format!("echo done >>'{}/work'", self.place.display())]);
        let errors = fs::File::create(self.place.join("errors")).expect("room");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        command.env(MARK, &self.place);
        command
    }

    /// Launches `run-1`, kills the watched process before an effect if there is one, and waits until
    /// nothing of it runs. `false` when nothing may be watched here.
    pub(super) fn launch(&self, effect: Option<&Effect>) -> bool {
        let mut launcher = self.launcher("run-1", Some(self.role)).spawn().expect("a launcher");
        let told = fs::read_to_string(self.place.join("told")).expect("it tells its number");
        let pid = told.trim().parse().expect("a number");
        let log = self.place.join("log");
        let mut options = vec!["-o", ask::utf8(&log), "-e"];
        let (trace, inject);
        match effect {
            None => options.push(CALLS),
            Some(Effect { name, number, .. }) => {
                trace = format!("trace={name}");
                inject = format!("inject={name}:signal=KILL:when={number}");
                options.extend([&*trace, "-e", &*inject]);
            }
        }
        let strace = trace::attach(pid, &options).expect("strace was there before");
        let mut go = OpenOptions::new().write(true).open(self.place.join("go")).expect("a reader");
        std::io::Write::write_all(&mut go, b"go\n").expect("it waits");
        if let Some(mut strace) = strace {
            strace.wait().expect("ours");
        } else {
            launcher.wait().expect("ours");
            self.until_nothing_runs();
            return false;
        }
        launcher.wait().expect("ours");
        self.until_nothing_runs();
        true
    }

    /// Launches `run-2` in the same session with nobody watched; whether it was let in.
    pub(super) fn launch_again(&self) -> bool {
        let status = self.launcher("run-2", None).status().expect("a launcher");
        self.until_nothing_runs();
        status.success()
    }

    /// Whether the watched process was killed.
    pub(super) fn was_killed(&self) -> bool {
        self.log().contains("+++ killed by SIGKILL +++")
    }

    fn until_nothing_runs(&self) {
        let mut looks = 0;
        // A process that was made during a look, by one that then ended, is found by the next.
        while looks < 2 {
            looks += 1;
            for pid in living(&self.place) {
                looks = 0;
                if let Some(process) = self.host.hold(pid).expect("there are handles") {
                    let ended = self.host.wait_held(&process, Some(LIMIT_MS)).expect("a handle");
                    assert!(ended, "{pid} ends by itself: {}", ask::utf8(&self.place));
                }
            }
        }
    }
}

/// Every process of a place that has not ended.
fn living(place: &Path) -> Vec<i64> {
    let mark = format!("{MARK}={}", place.display());
    let entries = fs::read_dir("/proc").expect("Linux");
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i64>().ok());
    pids.filter(|pid| {
        // That of a process which has ended is empty.
        let vars = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        vars.split(|b| *b == 0).any(|var| var == mark.as_bytes())
    })
    .collect()
}
