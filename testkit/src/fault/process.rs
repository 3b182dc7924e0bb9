//! Scripted processes for the host in memory.
//!
//! Theory of operation. A test says beforehand which numbers will be given to what is started, in which
//! order children end and how, and what is left when the first of them is gone. Nothing runs, and no
//! call waits for anybody but the clock of the host. What the disk says is recorded as always, so that
//! every crash of whatever starts processes can be played out.

use std::collections::VecDeque;
use std::io;
use std::sync::MutexGuard;

use runstore::protocol::process::{self, Presence, ProcessSeen, RecordedProcess};
use runstore::store::host::{
    Adopted, Command, Exit, Host, ProcessHost, Signal, Waited, WatchHost, WriteHost,
};

use super::host::FaultHost;

/// What happens while somebody sleeps: it acts, and says whom that wakes. Nobody is woken when the pause is
/// over by itself.
pub type Nap = Box<dyn FnOnce(&FaultHost) -> Vec<usize> + Send>;

/// What processes do.
#[derive(Default)]
pub struct Script {
    /// What happens during the next pauses, in order. One in which nothing does lasts its time.
    pub naps: VecDeque<Nap>,
    /// What happens right before a directory is watched for the first time. Nobody sleeps yet.
    pub on_watch: Option<Nap>,
    /// When directories were watched, ms since the epoch.
    pub watched_at_ms: Vec<i64>,
    /// Numbers of what is started, in order.
    pub spawns: VecDeque<u32>,
    /// How children end, in the order in which they do.
    pub ends: VecDeque<(u32, Exit)>,
    /// Which of them end only when their group is told to.
    pub lingering: Vec<u32>,
    /// What is left when they have; each with whether it ends only when it is killed.
    pub left: Vec<(Adopted, bool)>,
    /// What a handle is told of the end, if the system tells it.
    pub told: Option<Exit>,
    /// Every signal that was sent, with its receiver.
    pub sent: Vec<(u32, Signal)>,
}

/// What a scripted watch was given: each directory or process with its number.
#[derive(Debug, Default)]
pub struct Watched {
    /// Numbers of directories.
    pub dirs: Vec<usize>,
    /// Pids with their numbers.
    pub processes: Vec<(i64, usize)>,
}

impl WatchHost for FaultHost {
    type Watch = Watched;

    fn watch(&self) -> Watched {
        Watched::default()
    }

    fn watch_dir(&self, watch: &mut Watched, _dir: &Self::Dir, number: usize) -> bool {
        let other = self.script().on_watch.take();
        if let Some(other) = other {
            other(self);
        }
        watch.dirs.push(number);
        self.script().watched_at_ms.push(self.now_ms());
        true
    }

    fn watch_process(
        &self,
        watch: &mut Watched,
        record: &RecordedProcess<'_>,
        number: usize,
    ) -> bool {
        let Some(pid) = record.pid else { return false };
        let is_there = !process::judge(record, &self.process(pid), self.system()).word.is_gone();
        if is_there {
            watch.processes.push((pid, number));
        }
        is_there
    }

    fn pause(&self, _watch: &mut Watched, ms: u64) -> Vec<usize> {
        let nap = self.script().naps.pop_front();
        let woken = nap.map_or_else(Vec::new, |nap| nap(self));
        if woken.is_empty() {
            self.wait_ms(ms);
        }
        woken
    }
}

impl FaultHost {
    /// The script of this host's processes.
    ///
    /// # Panics
    /// When a test panicked while it held it.
    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it holds the script")
    }

    fn is_scripted_child(&self, pid: u32) -> Option<Exit> {
        let script = self.script();
        if script.lingering.contains(&pid) {
            return None;
        }
        script.ends.iter().find(|(ended, _)| *ended == pid).map(|(_, exit)| exit.clone())
    }
}

impl ProcessHost for FaultHost {
    type Child = u32;
    type Handle = i64;
    type Pipe = ();

    fn pipe(&self) -> io::Result<((), Self::File)> {
        Ok(((), 0))
    }

    fn read_pipe(&self, _pipe: &(), _into: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(Some(0))
    }

    fn spawn(&self, _command: &Command<'_, Self::File>) -> io::Result<u32> {
        self.script().spawns.pop_front().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn child_pid(&self, child: &u32) -> u32 {
        *child
    }

    fn peek(&self, child: &u32) -> io::Result<Option<Exit>> {
        Ok(self.is_scripted_child(*child))
    }

    fn reap(&self, child: &mut u32) -> io::Result<Exit> {
        let exit = self.is_scripted_child(*child).ok_or(io::ErrorKind::NotFound)?;
        self.script().ends.retain(|(pid, _)| pid != child);
        Ok(exit)
    }

    fn wait_for_one(&self, children: &[&u32], _pipes: &[&()], ms: u64) -> io::Result<()> {
        if !children.iter().any(|child| self.is_scripted_child(**child).is_some()) {
            self.wait_ms(ms);
        }
        Ok(())
    }

    fn signal(&self, child: &u32, signal: Signal) -> io::Result<()> {
        self.script().sent.push((*child, signal));
        Ok(())
    }

    fn signal_group(&self, child: &u32, signal: Signal) -> io::Result<()> {
        if signal != Signal::Continue {
            self.script().lingering.retain(|pid| pid != child);
        }
        self.signal(child, signal)
    }

    fn group_size(&self, child: &u32) -> Option<usize> {
        Some(usize::from(self.is_scripted_child(*child).is_none()))
    }

    fn become_reaper(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn wait_any(&self, ms: Option<u64>) -> io::Result<Waited> {
        let mut script = self.script();
        if let Some((pid, exit)) = script.ends.pop_front() {
            return Ok(Waited::Ended(pid, exit));
        }
        if let Some(at) = script.left.iter().position(|(child, _)| child.ended) {
            let (child, _) = script.left.remove(at);
            return Ok(Waited::Ended(child.pid, Exit::Signal("SIGTERM".to_owned())));
        }
        if script.left.is_empty() {
            return Ok(Waited::NoChild);
        }
        drop(script);
        // Without a bound this would never return.
        self.wait_ms(ms.expect("something is left and will not end by itself"));
        Ok(Waited::TimeOver)
    }

    fn adopted(&self) -> io::Result<Vec<Adopted>> {
        Ok(self.script().left.iter().map(|(child, _)| *child).collect())
    }

    fn signal_adopted(&self, child: &Adopted, signal: Signal) -> io::Result<()> {
        let mut script = self.script();
        script.sent.push((child.pid, signal));
        for (known, stubborn) in &mut script.left {
            let ends = signal == Signal::Kill || signal == Signal::Terminate && !*stubborn;
            known.ended |= known.pid == child.pid && ends;
        }
        Ok(())
    }

    fn hold(&self, pid: i64) -> io::Result<Option<i64>> {
        Ok((self.process(pid).presence != Presence::Gone).then_some(pid))
    }

    fn look_at(&self, handle: &i64) -> ProcessSeen {
        self.process(*handle)
    }

    fn wait_held(&self, _handle: &i64, ms: Option<u64>) -> io::Result<bool> {
        Ok(ms.is_none())
    }

    fn told(&self, _handle: &i64) -> io::Result<Option<Exit>> {
        Ok(self.script().told.clone())
    }

    fn signal_held(&self, handle: &i64, signal: Signal) -> io::Result<()> {
        self.script().sent.push((u32::try_from(*handle).unwrap_or_default(), signal));
        Ok(())
    }
}
