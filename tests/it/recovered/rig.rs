//! A process of ours that is stopped between two named effects.
//!
//! Theory of operation. An effect is named by words: what the calls look like that lead to it, one after the
//! other, the last of them the one that is not made. A first, whole run lists the calls ([`number_of`]), a second
//! one is killed before the call of that number. What is left is a store as a crash leaves it, written by the
//! program alone. Whether the kill hit its call is read from what `strace` wrote; numbers that were off, because
//! something else ran at the time, are tried again.
//!
//! [`launch`] does so with a launcher, a shim or a runner ([`crate::killed`]), [`program`] with any other verb.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::trace::{Seen, killing, seen, was_killed};

use crate::ask;
use crate::killed::rig::{Effect, Rig, Role};

/// The calls that lead to one, each by its beginning and a text in it. The last is not made.
pub(crate) type Before = &'static [(&'static str, &'static str)];

/// How often a build is tried.
const TRIES: usize = 5;

/// Name and number of the call that these words lead to.
pub(crate) fn number_of(log: &str, before: Before) -> Option<(String, usize)> {
    let mut steps = before.iter().peekable();
    let mut is_last = |call: &Seen<'_>| {
        let is_it = |(name, text): &&(&str, &str)| is_call(call, name, text);
        steps.next_if(is_it).is_some() && steps.peek().is_none()
    };
    let last = seen(log).find(|call| is_last(call))?;
    Some((last.name.to_owned(), last.number))
}

/// Whether this is a call that begins so and has this text in it.
fn is_call(call: &Seen<'_>, name: &str, text: &str) -> bool {
    call.name.starts_with(name) && call.line.contains(text)
}

/// Whether the process was killed, and before that call.
fn was_hit(log: &str, before: Before) -> bool {
    let (name, text) = before.last().expect("a window has an end");
    was_killed(log) && seen(log).last().is_some_and(|call| is_call(&call, name, text))
}

/// A launch in which one process is killed before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Killed {
    pub(crate) role: Role,
    pub(crate) is_revival: bool,
    /// What the step does first.
    pub(crate) before_work: &'static str,
    /// What is started as the runner, if not ours.
    pub(crate) runner: Option<&'static str>,
    /// Whether another run of the session has ended before, so that its index of ended runs is in use.
    pub(crate) is_second: bool,
    pub(crate) before: Before,
}

/// The words of a step that kills the shim of its runner: nobody sees the end of the runner.
pub(crate) const BLIND: &str = "read -r _ _ _ shim _ </proc/$PPID/stat; kill -9 $shim; ";

impl Killed {
    fn rig(&self) -> Rig {
        let rig = Rig::new(self.role, self.is_revival);
        if self.is_second {
            assert!(rig.launch_unwatched("run-0"), "nothing hinders it: {}", rig.errors());
        }
        let rig = rig.with_before_work(self.before_work);
        match self.runner {
            Some(script) => rig.with_runner(script),
            None => rig,
        }
    }

    /// The store that is left; nothing of it runs any more.
    pub(crate) fn launch(&self) -> Result<Rig, String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let whole = self.rig();
            if !whole.launch(None) {
                return Err("strace may not attach to a process that runs".to_owned());
            }
            let Some((name, number)) = number_of(&whole.log(), self.before) else {
                last = format!("no such call: {:?}", self.before);
                continue;
            };
            let rig = self.rig();
            if rig.launch(Some(&Effect::of(&name, number))) && was_hit(&rig.log(), self.before) {
                return Ok(rig);
            }
            last = format!("{name} {number} was not hit: {:?}", rig.log().lines().last());
        }
        Err(last)
    }
}

/// Runs a verb of the program on the stores that `build` makes, killed before a call. The store that is left.
pub(crate) fn program<S>(
    build: impl Fn() -> S,
    words: impl Fn(&S) -> Vec<String>,
    before: Before,
) -> Result<S, String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        let whole = build();
        let log = traced(&words(&whole), &["-e".to_owned(), "trace=all".to_owned()]);
        let Some((name, number)) = number_of(&log, before) else {
            last = format!("no such call: {before:?}");
            continue;
        };
        let store = build();
        let log = traced(&words(&store), &killing(&name, number));
        if was_hit(&log, before) {
            return Ok(store);
        }
        last = format!("{name} {number} was not hit: {:?}", log.lines().last());
    }
    Err(last)
}

/// What `strace` writes about a verb that runs under it. Its threads are not followed: the verbs that write have
/// one.
fn traced(words: &[String], options: &[String]) -> String {
    let log = tempfile::NamedTempFile::new().expect("room");
    let home = tempfile::tempdir().expect("room");
    let mut command = Command::new("strace");
    command.arg("-o").arg(log.path()).args(options).arg("--").arg(ask::binary()).args(words);
    command.env("HOME", home.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).status().expect("strace was there before");
    std::fs::read_to_string(log.path()).unwrap_or_default()
}

/// The words of a verb for the store at a root.
pub(crate) fn words(root: &Path, words: &[&str]) -> Vec<String> {
    let root = ask::utf8(root);
    words.iter().map(|word| word.replace("ROOT", root)).collect()
}
