//! Processes on Unix: the standard library starts them, the system's own calls watch them.
//!
//! Theory of operation. A child is waited for by its number, which stays its own until it is reaped, and
//! signalled through a handle where the system has handles (Linux), else by the same number. What a group
//! or this process has for members is read from `/proc`; elsewhere than on Linux it cannot be told, and
//! the answer says so.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus};

use super::process::{Adopted, Command, Exit, ProcessHost, Signal, Waited};
use super::unix::RealHost;
use crate::protocol::process::ProcessSeen;

/// A child of this process.
#[derive(Debug)]
pub struct RealChild {
    pid: Pid,
    reaped: bool,
    #[cfg(target_os = "linux")]
    handle: Option<OwnedFd>,
}

/// A handle of any process, with the number that it had when it was opened.
#[derive(Debug)]
pub struct RealHandle {
    #[cfg(target_os = "linux")]
    fd: OwnedFd,
    #[cfg(target_os = "linux")]
    pid: Pid,
}

#[cfg(target_os = "linux")]
impl RealHandle {
    /// Its descriptor, which `pidfd_open` gave: nothing else makes a handle.
    pub(super) fn pidfd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn number(signal: Signal) -> rustix::process::Signal {
    match signal {
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Continue => rustix::process::Signal::CONT,
    }
}

/// The name of a signal: the numbers differ between systems.
fn name(raw: i32) -> String {
    use rustix::process::Signal as S;
    let known = [
        (S::HUP, "SIGHUP"),
        (S::INT, "SIGINT"),
        (S::QUIT, "SIGQUIT"),
        (S::ILL, "SIGILL"),
        (S::TRAP, "SIGTRAP"),
        (S::ABORT, "SIGABRT"),
        (S::BUS, "SIGBUS"),
        (S::FPE, "SIGFPE"),
        (S::KILL, "SIGKILL"),
        (S::USR1, "SIGUSR1"),
        (S::SEGV, "SIGSEGV"),
        (S::USR2, "SIGUSR2"),
        (S::PIPE, "SIGPIPE"),
        (S::ALARM, "SIGALRM"),
        (S::TERM, "SIGTERM"),
        (S::XCPU, "SIGXCPU"),
        (S::XFSZ, "SIGXFSZ"),
        (S::SYS, "SIGSYS"),
    ];
    let found = known.iter().find(|(signal, _)| signal.as_raw() == raw);
    found.map_or_else(|| format!("SIG{raw}"), |(_, name)| (*name).to_owned())
}

/// Two calls tell an end, each with a type of its own.
fn exit_of(code: Option<i32>, signal: Option<i32>) -> Exit {
    match (code, signal) {
        (Some(code), _) => Exit::Code(i64::from(code)),
        (None, signal) => Exit::Signal(name(signal.unwrap_or_default())),
    }
}

fn exit_of_child(status: &WaitIdStatus) -> Exit {
    exit_of(status.exit_status(), status.terminating_signal())
}

/// A wait status as Linux encodes it: a signal in the low seven bits, or the code in the next byte.
#[cfg(target_os = "linux")]
fn exit_of_status(status: i32) -> Exit {
    match status & 0x7f {
        0 => exit_of(Some(status >> 8 & 0xff), None),
        signal => exit_of(None, Some(signal)),
    }
}

/// Waits through interruptions.
fn waitid(id: WaitId<'_>, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
    loop {
        let id = match &id {
            WaitId::Pid(pid) => WaitId::Pid(*pid),
            _ => WaitId::All,
        };
        match rustix::process::waitid(id, options | WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the process was reaped")
}

impl RealChild {
    fn unreaped(&self) -> io::Result<Pid> {
        if self.reaped { Err(not_found()) } else { Ok(self.pid) }
    }
}

impl RealHost {
    /// Leaves the session, group and terminal of whoever started this process.
    /// Spec: RS-OBS-02.
    ///
    /// # Errors
    /// As the system says: the leader of a process group cannot.
    pub fn leave_session(&self) -> io::Result<()> {
        match rustix::process::setsid() {
            // It is the leader of one already.
            Err(_) if rustix::process::getsid(None)? == rustix::process::getpid() => Ok(()),
            left => Ok(left.map(drop)?),
        }
    }

    /// Becomes this program with other arguments and no descriptor but the three standard ones. Those
    /// that were inherited can be closed safely in no other way.
    /// Spec: RS-OBS-02.
    #[expect(clippy::disallowed_methods, reason = "this is the host: the one home of processes")]
    pub fn become_alone(&self, args: &[std::ffi::OsString]) -> io::Error {
        let program = match self.own_program() {
            Ok(program) => program,
            Err(e) => return e,
        };
        close_fds::CloseFdsBuilder::new().cloexecfrom(3);
        std::process::Command::new(program).args(args).exec()
    }

    /// The path of this program.
    ///
    /// # Errors
    /// As the system says.
    pub fn own_program(&self) -> io::Result<std::path::PathBuf> {
        std::env::current_exe()
    }

    /// Whether nobody can read any more what this process writes to its standard output.
    pub fn is_output_abandoned(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let out = rustix::stdio::stdout();
        let mut asked = [PollFd::new(&out, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Of a pipe without a reader the system says so unasked; of anything else it says nothing.
        poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::ERR)
    }

    /// Gives up the three standard descriptors, so that nobody waits for their end.
    ///
    /// # Errors
    /// As the system says.
    pub fn give_up_outputs(&self) -> io::Result<()> {
        use rustix::fs::{Mode, OFlags};
        let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        Ok(rustix::stdio::dup2_stderr(&nothing)?)
    }
}

impl ProcessHost for RealHost {
    type Child = RealChild;
    type Handle = RealHandle;
    type Pipe = OwnedFd;

    fn pipe(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        #[cfg(not(target_vendor = "apple"))]
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        #[cfg(target_vendor = "apple")]
        let (read, write) = rustix::pipe::pipe()?;
        #[cfg(target_vendor = "apple")]
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        // Of this end only: the other one belongs to a program that knows nothing of it.
        rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
        Ok((read, write))
    }

    fn read_pipe(&self, pipe: &OwnedFd, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(pipe, &mut *into) {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the host: the one home of processes")]
    fn spawn(&self, command: &Command<'_, Self::File>) -> io::Result<RealChild> {
        let sink = |file: Option<&Self::File>| match file {
            Some(file) => Ok::<_, io::Error>(Stdio::from(file.try_clone()?)),
            None => Ok(Stdio::null()),
        };
        let mut start = std::process::Command::new(command.program);
        start.args(command.args).stdin(Stdio::null());
        if command.own_group {
            start.process_group(0);
        }
        start.stdout(sink(command.stdout)?).stderr(sink(command.stderr)?);
        if let Some(cwd) = command.cwd {
            start.current_dir(cwd);
        }
        for (key, value) in command.env {
            match value {
                Some(value) => start.env(key, value),
                None => start.env_remove(key),
            };
        }
        let pid = Pid::from_child(&start.spawn()?);
        Ok(RealChild {
            pid,
            reaped: false,
            // Nobody has waited for it, so the number is its own.
            #[cfg(target_os = "linux")]
            handle: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok(),
        })
    }

    fn child_pid(&self, child: &RealChild) -> u32 {
        child.pid.as_raw_pid().unsigned_abs()
    }

    fn peek(&self, child: &RealChild) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(child.unreaped()?), options)?.as_ref().map(exit_of_child))
    }

    fn reap(&self, child: &mut RealChild) -> io::Result<Exit> {
        let pid = child.unreaped()?;
        let status = waitid(WaitId::Pid(pid), WaitIdOptions::empty())?;
        child.reaped = true;
        status.as_ref().map(exit_of_child).ok_or_else(not_found)
    }

    #[cfg(target_os = "linux")]
    fn wait_for_one(&self, children: &[&RealChild], pipes: &[&OwnedFd], ms: u64) -> io::Result<()> {
        use super::WriteHost as _;
        let mut handles: Vec<_> =
            children.iter().filter_map(|child| child.handle.as_ref()).collect();
        if handles.len() < children.len() {
            // Without a handle nothing can be waited for with a bound: look often.
            self.wait_ms(ms.min(NO_HANDLE_WAIT_MS));
            return Ok(());
        }
        handles.extend(pipes);
        poll(&handles, Some(ms)).map(drop)
    }

    #[cfg(not(target_os = "linux"))]
    fn wait_for_one(
        &self,
        _children: &[&RealChild],
        _pipes: &[&OwnedFd],
        ms: u64,
    ) -> io::Result<()> {
        use super::WriteHost as _;
        self.wait_ms(ms.min(NO_HANDLE_WAIT_MS));
        Ok(())
    }

    fn signal(&self, child: &RealChild, signal: Signal) -> io::Result<()> {
        let pid = child.unreaped()?;
        #[cfg(target_os = "linux")]
        if let Some(handle) = &child.handle {
            return Ok(rustix::process::pidfd_send_signal(handle, number(signal))?);
        }
        Ok(rustix::process::kill_process(pid, number(signal))?)
    }

    fn signal_group(&self, child: &RealChild, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::kill_process_group(child.unreaped()?, number(signal))?)
    }

    fn group_size(&self, child: &RealChild) -> Option<usize> {
        let pid = child.unreaped().ok()?;
        #[cfg(target_os = "linux")]
        return super::linux::count(|stat| stat.group == pid.as_raw_pid() && !stat.has_ended());
        #[cfg(not(target_os = "linux"))]
        {
            let _ = pid;
            None
        }
    }

    fn become_reaper(&self) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        {
            // Any number but zero turns it on.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            Ok(true)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(false)
    }

    fn wait_any(&self, ms: Option<u64>) -> io::Result<Waited> {
        let options = match ms {
            None => WaitIdOptions::empty(),
            Some(_) => WaitIdOptions::NOHANG,
        };
        let mut attempt = 0;
        loop {
            // Looked at without reaping first: only that tells the number of what ended.
            let found = match waitid(WaitId::All, options | WaitIdOptions::NOWAIT) {
                Err(e) if e.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {
                    return Ok(Waited::NoChild);
                }
                found => found?,
            };
            if found.is_some() {
                if let Some(ended) = reap_any()? {
                    return Ok(ended);
                }
                continue;
            }
            // Once more after the wait: what woke it is reaped in this call.
            attempt += 1;
            if attempt > 1 {
                return Ok(Waited::TimeOver);
            }
            wait_for_any(self, ms.unwrap_or_default())?;
        }
    }

    fn adopted(&self) -> io::Result<Vec<Adopted>> {
        #[cfg(target_os = "linux")]
        {
            let own = rustix::process::getpid().as_raw_pid();
            let session = rustix::process::getsid(None)?.as_raw_pid();
            let mut found = Vec::new();
            super::linux::each(|pid, stat| {
                if stat.parent == own {
                    let in_session = stat.session == session;
                    found.push(Adopted { pid, in_session, ended: stat.has_ended() });
                }
            })?;
            Ok(found)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(Vec::new())
    }

    fn signal_adopted(&self, child: &Adopted, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(child.pid).ok().and_then(Pid::from_raw).ok_or_else(not_found)?;
        // Still a child of ours: nobody else could have reaped it, so the number is its own.
        waitid(WaitId::Pid(pid), WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)?;
        Ok(rustix::process::kill_process(pid, number(signal))?)
    }

    #[cfg(target_os = "linux")]
    fn hold(&self, pid: i64) -> io::Result<Option<RealHandle>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(RealHandle { fd, pid })),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn hold(&self, _pid: i64) -> io::Result<Option<RealHandle>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(target_os = "linux")]
    fn look_at(&self, handle: &RealHandle) -> ProcessSeen {
        use super::Host as _;
        super::linux::by_handle(handle.pid, &handle.fd, self.system().boot_time_ms)
    }

    #[cfg(not(target_os = "linux"))]
    fn look_at(&self, _handle: &RealHandle) -> ProcessSeen {
        ProcessSeen::default()
    }

    #[cfg(target_os = "linux")]
    fn wait_held(&self, handle: &RealHandle, ms: Option<u64>) -> io::Result<bool> {
        poll(&[&handle.fd], ms)
    }

    #[cfg(not(target_os = "linux"))]
    fn wait_held(&self, _handle: &RealHandle, _ms: Option<u64>) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(target_os = "linux")]
    fn told(&self, handle: &RealHandle) -> io::Result<Option<Exit>> {
        Ok(super::pidfd_info::exit_status(handle)?.map(exit_of_status))
    }

    #[cfg(not(target_os = "linux"))]
    fn told(&self, _handle: &RealHandle) -> io::Result<Option<Exit>> {
        Ok(None)
    }

    #[cfg(target_os = "linux")]
    fn signal_held(&self, handle: &RealHandle, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&handle.fd, number(signal))?)
    }

    #[cfg(not(target_os = "linux"))]
    fn signal_held(&self, _handle: &RealHandle, _signal: Signal) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// How long a wait without handles lasts before the next look.
const NO_HANDLE_WAIT_MS: u64 = 20;

/// Reaps one child that has ended, by its number.
fn reap_any() -> io::Result<Option<Waited>> {
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(Some(Waited::NoChild)),
            Err(e) => return Err(e.into()),
            Ok(None) => return Ok(None),
            Ok(Some((pid, status))) => {
                let exit = exit_of(status.exit_status(), status.terminating_signal());
                return Ok(Some(Waited::Ended(pid.as_raw_pid().unsigned_abs(), exit)));
            }
        }
    }
}

/// Waits until a child that is there now has ended, or the time is over.
fn wait_for_any(host: &RealHost, ms: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let pids = host
            .adopted()?
            .into_iter()
            .filter_map(|child| i32::try_from(child.pid).ok().and_then(Pid::from_raw));
        let handles: Vec<OwnedFd> = pids
            .filter_map(|pid| {
                rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
            })
            .collect();
        if !handles.is_empty() {
            return poll(&handles.iter().collect::<Vec<_>>(), Some(ms)).map(drop);
        }
    }
    use super::WriteHost as _;
    host.wait_ms(ms.min(NO_HANDLE_WAIT_MS));
    Ok(())
}

/// Whether one of the processes has ended, at the latest after so many ms.
#[cfg(target_os = "linux")]
fn poll(handles: &[&OwnedFd], ms: Option<u64>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags};
    let timeout = ms.map(|ms| rustix::time::Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or_default(),
    });
    let mut fds: Vec<_> =
        handles.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    loop {
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            // An interruption only makes the wait longer.
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> RealChild {
        let args = ["-c".into(), script.into()];
        let command = Command {
            program: "sh".as_ref(),
            args: &args,
            cwd: None,
            env: &[],
            own_group: true,
            stdout: None,
            stderr: None,
        };
        RealHost::new().spawn(&command).expect("a shell can be started")
    }

    #[test]
    fn an_end_is_seen_before_it_is_reaped_and_told_with_its_code_or_signal() {
        let host = RealHost::new();
        for (script, exit) in
            [("exit 3", Exit::Code(3)), ("kill -SEGV $$", Exit::Signal("SIGSEGV".to_owned()))]
        {
            let mut child = shell(script);
            while host.peek(&child).expect("a child of ours").is_none() {
                host.wait_for_one(&[&child], &[], 1000).expect("it can be waited for");
            }
            assert_eq!(
                host.peek(&child).expect("still ours"),
                Some(exit.clone()),
                "not reaped yet"
            );
            assert_eq!(host.reap(&mut child).expect("ours"), exit, "{script}");
            let gone = host.signal(&child, Signal::Kill).expect_err("its number is another's now");
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
            assert!(host.signal_group(&child, Signal::Kill).is_err(), "and its group's as well");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_is_counted_without_those_that_have_ended() {
        let host = RealHost::new();
        let mut child = shell("sleep 1000 & exec sleep 1000");
        while host.group_size(&child) != Some(2) {
            host.wait_for_one(&[&child], &[], 5).expect("it can be waited for");
        }
        host.signal(&child, Signal::Kill).expect("it is ours");
        while host.peek(&child).expect("ours").is_none() {
            host.wait_for_one(&[&child], &[], 1000).expect("it can be waited for");
        }
        assert_eq!(host.group_size(&child), Some(1), "the other one is there");
        host.signal_group(&child, Signal::Kill).expect("the leader is not reaped");
        while host.group_size(&child) != Some(0) {
            host.wait_for_one(&[], &[], 5).expect("it can be waited for");
        }
        host.reap(&mut child).expect("ours");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_held_process_is_waited_for_and_never_another() {
        let host = RealHost::new();
        let mut child = shell("exec sleep 1000");
        let pid = i64::from(host.child_pid(&child));
        let handle = host.hold(pid).expect("Linux has handles").expect("it is there");
        assert!(!host.wait_held(&handle, Some(0)).expect("a handle"), "it runs");
        host.signal_held(&handle, Signal::Kill).expect("it is ours");
        assert!(host.wait_held(&handle, None).expect("a handle"), "it has ended");
        host.reap(&mut child).expect("ours");
        assert!(host.signal_held(&handle, Signal::Kill).is_err(), "nobody is there any more");
        assert!(host.hold(999_999_999).expect("no such number").is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_end_of_a_process_is_told_to_a_holder_once_it_was_reaped() {
        let host = RealHost::new();
        for (script, exit) in [
            ("exit 3", Exit::Code(3)),
            ("exit 255", Exit::Code(255)),
            ("kill -SEGV $$", Exit::Signal("SIGSEGV".to_owned())),
            ("kill -KILL $$", Exit::Signal("SIGKILL".to_owned())),
        ] {
            let mut child = shell(script);
            let handle = host.hold(i64::from(host.child_pid(&child))).expect("asked");
            let handle = handle.expect("nobody has reaped it");
            assert!(host.wait_held(&handle, None).expect("a handle"), "{script}: it has ended");
            let reaped = host.reap(&mut child).expect("ours");
            // What is told must be the same, and nothing where the kernel is older.
            let told = host.told(&handle).expect("a handle");
            assert_eq!(told.unwrap_or_else(|| exit.clone()), reaped, "{script}");
            assert_eq!(reaped, exit, "{script}");
        }
    }
}
