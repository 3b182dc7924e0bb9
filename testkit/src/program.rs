//! Runs a program to its end, or ends it when its time is over.
//!
//! Theory of operation. The environment is the test's own without what would lead the program to a
//! real store: variables of harnesses are removed, the home directory is an empty one. Both outputs
//! are read by threads, so a full pipe blocks nobody; the wait for them is bounded, and a program that
//! is late is killed and marked. A program may be held before it becomes itself, so that a record can
//! name its pid before it runs.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit code, or the negative number of the signal that ended it.
    pub code: i32,
    /// Everything it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// From its start to the end of its output, in milliseconds.
    pub elapsed_ms: f64,
    /// Whether it was killed because its time was over.
    pub late: bool,
}

impl Outcome {
    /// The standard output as text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The standard error as text; bytes that are not UTF-8 become U+FFFD.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// What is called with the pid of a held program.
pub type BeforeStart<'a> = &'a mut dyn FnMut(u32) -> io::Result<()>;

/// Makes a command of `program` that sees `home` as home directory, no colours, and no variable that
/// names a store.
pub fn command<S: AsRef<OsStr>>(program: &Path, args: &[S], home: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    isolate(&mut command, home);
    command
}

/// As [`command`], held by a shell until a line arrives on its standard input; the shell then becomes
/// the program, with the same pid.
pub fn held_command<S: AsRef<OsStr>>(program: &Path, args: &[S], home: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "read x; exec \"$0\" \"$@\""]).arg(program).args(args);
    isolate(&mut command, home);
    command
}

/// Whether there is a program that says its version.
pub fn is_there(program: impl AsRef<OsStr>) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

fn isolate(command: &mut Command, home: &Path) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("PI_SUBAGENT") || text.starts_with("DM_SUBAGENT") {
            command.env_remove(&name);
        }
    }
    command.env("HOME", home).env("USERPROFILE", home).env("NO_COLOR", "1");
}

/// Runs a command for at most `limit`. With `before`, the command is one of [`held_command`], and
/// `before` is called with its pid while it is held.
///
/// # Errors
/// When it could not be started, or `before` failed.
pub fn run(
    mut command: Command,
    limit: Duration,
    before: Option<BeforeStart<'_>>,
) -> io::Result<Outcome> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command)?;
    let mut stdin = child.stdin.take().expect("was asked for as a pipe");
    if let Some(before) = before {
        if let Err(error) = before(child.id()) {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        stdin.write_all(b"go\n")?;
    }
    drop(stdin);
    let start = Instant::now();
    let stdout = collect(child.stdout.take().expect("was asked for as a pipe"));
    let stderr = collect(child.stderr.take().expect("was asked for as a pipe"));
    let mut late = false;
    let mut outputs = [Vec::new(), Vec::new()];
    for (out, from) in outputs.iter_mut().zip([&stdout, &stderr]) {
        *out = match from.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(bytes) => bytes,
            Err(_) => {
                late = true;
                child.kill()?;
                // A grandchild may hold the pipe open for longer than anyone wants to wait.
                from.recv_timeout(Duration::from_secs(5)).unwrap_or_default()
            }
        };
    }
    let elapsed_ms = start.elapsed().as_secs_f64() * 1000.0;
    let status = child.wait()?;
    let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
    let [stdout, stderr] = outputs;
    Ok(Outcome { code, stdout, stderr, elapsed_ms, late })
}

/// Starts the program. A freshly copied one may be busy for a moment: a child that another thread has
/// just forked holds the copy open for writing until it becomes its own program.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let start = Instant::now();
    loop {
        match command.spawn() {
            Err(e)
                if e.kind() == io::ErrorKind::ExecutableFileBusy
                    && start.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

/// The lines of an output, each when it comes, so that a wait for one can have an end. Once nobody receives them
/// any more, the next line is the last that is read.
pub fn lines(from: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<String>> {
    let (to, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (to, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the output like its end does; what was read until then is the answer.
        let _ = from.read_to_end(&mut bytes);
        let _ = to.send(bytes);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_program_starts_after_its_pid_was_told() {
        let mut told = 0;
        let command = held_command(Path::new("/bin/sh"), &["-c", "echo $$"], Path::new("/"));
        let mut before = |pid| {
            told = pid;
            Ok(())
        };
        let outcome = run(command, Duration::from_secs(30), Some(&mut before)).expect("ran");
        assert_eq!(
            outcome.text().trim(),
            told.to_string(),
            "the program keeps the pid it was held with"
        );
    }

    #[test]
    fn a_late_program_is_killed_and_marked() {
        let command = command(Path::new("/bin/sh"), &["-c", "exec sleep 60"], Path::new("/"));
        let outcome = run(command, Duration::from_millis(50), None).expect("ran");
        assert!(outcome.late, "a program over its time is late");
        assert_eq!(outcome.code, -9, "a late program was ended by a signal");
    }
}
