//! The implementation under test as a process that may do anything.
//!
//! Theory of operation. A subject runs in a process group of its own; on its standard input is a request, or nothing. What it says
//! is read by threads that keep the first bytes and count the rest, so a flood costs nothing but its own time; one
//! above the bound ends it. Its environment carries a token that is new for each start.
//! Every process that shows the token is its own or was started by it; those are ended, and no other one: a process
//! that changes its group or session keeps its environment. Ending is repeated, because a process may fork meanwhile,
//! and bounded.
//!
//! A crash of the suite leaves the subject, which then ends by its own limits or never.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::evidence::{Ended, Said};

/// What is kept of each output.
const KEEP_BYTES: usize = 4 << 20;
/// A subject that says more is ended.
const FLOOD_BYTES: u64 = 64 << 20;
/// Variable in the environment of every process of a subject.
const TOKEN: &str = "RUNSTORE_CONFORMANCE_CELL";
/// How often what is left is looked for and ended.
const ROUNDS: usize = 40;

/// An output that is read and mostly thrown away.
struct Drain {
    kept: Arc<Mutex<Vec<u8>>>,
    bytes: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Drain {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let (kept, bytes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (keep, count) = (Arc::clone(&kept), Arc::clone(&bytes));
        // The thread ends with the last process that holds the pipe.
        let thread = std::thread::spawn(move || {
            let mut piece = [0; 8192];
            while let Ok(n) = pipe.read(&mut piece) {
                if n == 0 {
                    return;
                }
                count.fetch_add(n as u64, Ordering::Relaxed);
                let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEEP_BYTES.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&piece[..room]);
            }
        });
        Self { kept, bytes, thread }
    }

    fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

/// A subject that was started.
pub(crate) struct Subject {
    child: Child,
    token: String,
    out: Option<Drain>,
    err: Option<Drain>,
    ended: Option<Ended>,
}

impl Subject {
    /// Starts a command in the directory of the suite, so that relative paths in it mean what its caller means. `env`
    /// is set beside the token; `input` is a file for its standard input; its standard output may be a terminal.
    ///
    /// # Errors
    /// What the system says, as text.
    pub(crate) fn start(
        command: &[String],
        token: &str,
        env: &[(String, String)],
        input: Option<&Path>,
        on_terminal: bool,
    ) -> Result<Self, String> {
        let pair = on_terminal.then(terminal).transpose();
        let pair = pair.map_err(|e| format!("there is no terminal: {e}"))?;
        let (program, args) = command.split_first().ok_or("the command is empty")?;
        let stdin = match input {
            None => Stdio::null(),
            Some(path) => fs::File::open(path).map_err(|e| format!("its input: {e}"))?.into(),
        };
        let (near, far) = pair.unzip();
        let mut child = Command::new(program)
            .args(args)
            .env_remove("PI_SUBAGENT_PARENT_SESSION")
            .env_remove("DM_SUBAGENT_PARENT_SESSION")
            .envs(env.iter().map(|(key, value)| (key, value)))
            .env(TOKEN, token)
            .stdin(stdin)
            .stdout(far.map_or_else(Stdio::piped, Stdio::from))
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("{program} cannot be started: {e}"))?;
        let out = near.map(Drain::of).or_else(|| child.stdout.take().map(Drain::of));
        let err = child.stderr.take().map(Drain::of);
        Ok(Self { child, token: token.to_owned(), out, err, ended: None })
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> i64 {
        i64::from(self.child.id())
    }

    /// How it ended, if it has. A flood ends it.
    pub(crate) fn ended(&mut self) -> Option<&Ended> {
        if self.ended.is_none() {
            if let Ok(Some(status)) = self.child.try_wait() {
                let code = status.code().map(Ended::Exit);
                let signal = status.signal().map(Ended::Signal);
                self.ended = code.or(signal);
            } else {
                let drains = [&self.out, &self.err];
                let said = drains.into_iter().flatten().map(|d| d.bytes.load(Ordering::Relaxed));
                if said.sum::<u64>() > FLOOD_BYTES {
                    self.end("it said more than any log may hold");
                }
            }
        }
        self.ended.as_ref()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if self.ended().is_some() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            pause();
        }
    }

    /// Sends a signal to the process that was started, or to all of its group. It was not waited for, so its number
    /// is its own.
    pub(crate) fn signal(&mut self, signal: Signal, to_group: bool) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let sent = match (self.ended(), pid) {
            (None, Some(pid)) if to_group => rustix::process::kill_process_group(pid, signal),
            (None, Some(pid)) => rustix::process::kill_process(pid, signal),
            _ => Ok(()),
        };
        // It may have ended by now.
        let _ = sent;
    }

    /// Ends it, because its time is over or it does what no subject may.
    fn end(&mut self, why: &str) {
        if self.ended.is_some() {
            return;
        }
        self.signal_group();
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.ended = Some(Ended::Forced(why.to_owned()));
    }

    fn signal_group(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    /// Everything that shows the token, apart from the subject itself.
    pub(crate) fn left(&self) -> Vec<(i64, String)> {
        let own = self.pid();
        let mut found = carriers(&self.token);
        found.retain(|(pid, _)| *pid != own);
        found
    }

    /// Ends it and what else shows the token, and says what it said.
    pub(crate) fn finish(mut self) -> Said {
        self.end("its time was over");
        for _ in 0..ROUNDS {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            for (pid, _) in left {
                end_carrier(pid, &self.token);
            }
            pause();
        }
        self.said()
    }

    /// Whether a text stands in what it has said so far.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        [&self.out, &self.err].into_iter().flatten().any(|drain| drain.text().contains(text))
    }

    /// What it said and how it ended, if it has. What it started goes on.
    pub(crate) fn said(&mut self) -> Said {
        // Another process may hold the pipe; it is not waited for.
        let until = Instant::now() + Duration::from_secs(2);
        let drains = || [&self.out, &self.err].into_iter().flatten();
        while drains().any(|drain| !drain.thread.is_finished()) && Instant::now() < until {
            pause();
        }
        let text = |drain: &Option<Drain>| drain.as_ref().map(Drain::text).unwrap_or_default();
        let (stdout, stderr) = (text(&self.out), text(&self.err));
        let answer = serde_json::from_str(&stdout).ok();
        Said { ended: self.ended().cloned(), answer, stdout, stderr }
    }
}

/// Both ends of a new terminal: what is written to the second is read from the first.
fn terminal() -> std::io::Result<(fs::File, fs::File)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&near, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    // It must not become the terminal of whoever has none.
    let flags = OpenptFlags::NOCTTY.bits().cast_signed();
    let far = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(name)?;
    Ok((near.into(), far))
}

/// The shortest wait between two looks.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(4));
}

/// Ends a process through a handle that was compared with the token, so that no other process of its number is met.
#[cfg(target_os = "linux")]
fn end_carrier(pid: i64, token: &str) {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    if carries(pid, token) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

/// Without handles nothing but the group of the subject is ended.
#[cfg(not(target_os = "linux"))]
fn end_carrier(_pid: i64, _token: &str) {}

/// How long a process may take to become another program before it counts as one without the token.
const EXEC_LIMIT: Duration = Duration::from_millis(200);

/// Whether a process was started with the token. A process that has ended and was not waited for shows nothing. One that
/// becomes another program at this moment shows nothing or a part, and is looked at again: it would be left behind.
pub(crate) fn carries(pid: i64, token: &str) -> bool {
    let wanted = format!("{TOKEN}={token}");
    let until = Instant::now() + EXEC_LIMIT;
    let mut before = None;
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()) {
            return true;
        }
        let Some(place) = environment_place(pid) else { return false };
        let (start, end) = place;
        let is_whole = match end {
            // Some systems tell no place at all.
            0 => !environment.is_empty(),
            _ => end.checked_sub(start) == Some(environment.len() as u64),
        };
        // While it is made, it is empty for a moment.
        if is_whole && before == Some(place) || Instant::now() >= until {
            return false;
        }
        before = Some(place);
        std::thread::yield_now();
    }
}

/// Where the environment of a process begins and ends in its memory; zeros while there is none yet. `None`: a thread of
/// the kernel, a process that has ended or one of another user, which have no program to be seen.
fn environment_place(pid: i64) -> Option<(u64, u64)> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(47);
    let mut next = || fields.next()?.parse().ok();
    Some((next()?, next()?))
}

fn carriers(token: &str) -> Vec<(i64, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut out: Vec<(i64, String)> = Vec::new();
    for pid in numbers.filter(|pid| carries(*pid, token)) {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        out.push((pid, words.trim().to_owned()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Subject {
        let token = crate::raw::sha256(script.as_bytes());
        let command = ["sh", "-c", script].map(str::to_owned);
        Subject::start(&command, &token, &[], None, false).expect("a shell")
    }

    #[test]
    fn what_a_subject_leaves_is_found_and_ended() {
        let mut subject = sh("(trap '' TERM INT HUP; sleep 300) & setsid sleep 300 & exit 3");
        assert!(subject.wait(Duration::from_secs(20)), "it exits");
        assert_eq!(subject.ended(), Some(&Ended::Exit(3)));
        let token = subject.token.clone();
        let until = Instant::now() + Duration::from_secs(20);
        let mut left = subject.left();
        while left.len() < 2 && Instant::now() < until {
            pause();
            left = subject.left();
        }
        assert!(left.len() >= 2, "{left:?}");
        subject.finish();
        let until = Instant::now() + Duration::from_secs(20);
        while !carriers(&token).is_empty() && Instant::now() < until {
            pause();
        }
        assert_eq!(carriers(&token), [], "nothing is left");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_becomes_another_program_all_the_time_is_found_at_every_look() {
        let again = r#"exec sh -c "$0" "$0""#;
        let mut subject = sh(&format!("setsid sh -c '{again}' '{again}' & exit 0"));
        assert!(subject.wait(Duration::from_secs(20)), "it exits");
        for n in 0..300 {
            assert!(!subject.left().is_empty(), "look {n}");
        }
        let token = subject.token.clone();
        subject.finish();
        assert_eq!(carriers(&token), [], "nothing is left");
    }

    #[test]
    fn a_subject_that_floods_and_hangs_is_ended() {
        let mut subject = sh("trap '' TERM; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxx; done");
        let until = Instant::now() + Duration::from_secs(20);
        while !subject.has_said("xxx") && Instant::now() < until {
            pause();
        }
        assert!(subject.has_said("xxx") && !subject.has_said("y"), "what it says is known at once");
        assert!(!subject.wait(Duration::from_millis(50)), "it goes on");
        let said = subject.finish();
        assert_eq!(said.ended, Some(Ended::Forced("its time was over".into())));
        assert!(said.stdout.len() <= KEEP_BYTES && said.stdout.starts_with("xxx"));
    }

    #[test]
    fn a_subject_may_have_a_terminal() {
        let script = "test -t 1 && echo yes; echo no >&2";
        let command = ["sh", "-c", script].map(str::to_owned);
        for (on_terminal, want) in [(true, "yes\r\n"), (false, "")] {
            let mut subject =
                Subject::start(&command, "terminal", &[], None, on_terminal).expect("a shell");
            assert!(subject.wait(Duration::from_secs(20)), "it exits");
            assert_eq!(subject.said().stdout, want);
        }
    }
}
