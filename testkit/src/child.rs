//! A child process that is played by a test.
//!
//! Theory of operation. A [`Child`] is a handle that can be copied: the launcher gets one through a
//! [`Spawner`], the test keeps another and says when the process ends. It ends when it is asked to, unless it
//! was told to be stubborn. Nothing runs.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use runstore::store::process::{Exit, Life, Spawn, SpawnPlan, Spawned, Terminate};

/// What a child puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// It ends when it is asked to.
    Meek,
    /// It ends only when it is forced to.
    Stubborn,
    /// It ends never, like a process in a call that cannot be interrupted.
    Stuck,
}

#[derive(Debug)]
struct State {
    life: Life,
    temper: Temper,
    asked: Vec<Terminate>,
    looks: usize,
    ends_at_look: Option<(usize, Exit)>,
}

/// A child. See the module's theory of operation.
#[derive(Clone, Debug)]
pub struct Child {
    pid: u32,
    state: Arc<Mutex<State>>,
}

impl Child {
    /// A child that runs.
    pub fn new(pid: u32) -> Self {
        let state = State {
            life: Life::Running,
            temper: Temper::Meek,
            asked: Vec::new(),
            looks: 0,
            ends_at_look: None,
        };
        Self { pid, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds a child")
    }

    /// Says what it puts up with.
    #[must_use]
    pub fn temper(self, temper: Temper) -> Self {
        self.state().temper = temper;
        self
    }

    /// Makes it end at the `n`-th look, counted from 1.
    #[must_use]
    pub fn ends_at_look(self, n: usize, exit: Exit) -> Self {
        self.state().ends_at_look = Some((n, exit));
        self
    }

    /// Ends it.
    pub fn end(&self, exit: Exit) {
        self.state().life = Life::Ended(Some(exit));
    }

    /// How it was asked to end.
    pub fn asked(&self) -> Vec<Terminate> {
        self.state().asked.clone()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.state().life.has_ended()
    }
}

impl Spawned for Child {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn look(&mut self) -> Life {
        let mut state = self.state();
        state.looks += 1;
        let looks = state.looks;
        if let Some((_, exit)) = state.ends_at_look.take_if(|(n, _)| *n == looks) {
            state.life = Life::Ended(Some(exit));
        }
        state.life.clone()
    }

    fn terminate(&mut self, how: Terminate) -> io::Result<()> {
        let mut state = self.state();
        state.asked.push(how);
        let signal = match (how, state.temper) {
            (Terminate::Ask, Temper::Meek) => "SIGTERM",
            (Terminate::Force, Temper::Meek | Temper::Stubborn) => "SIGKILL",
            _ => return Ok(()),
        };
        if !state.life.has_ended() {
            state.life = Life::Ended(Some(Exit::Signal(signal.to_owned())));
        }
        Ok(())
    }
}

/// Gives out one child and keeps the plan that it was asked for.
#[derive(Debug)]
pub struct Spawner {
    child: Result<Child, io::ErrorKind>,
    /// What was to be started.
    pub plan: Option<SpawnPlan>,
}

impl Spawner {
    /// Gives out this child.
    pub fn of(child: &Child) -> Self {
        Self { child: Ok(child.clone()), plan: None }
    }

    /// Fails.
    pub fn failing(kind: io::ErrorKind) -> Self {
        Self { child: Err(kind), plan: None }
    }
}

impl Spawn for Spawner {
    fn spawn(&mut self, plan: &SpawnPlan) -> io::Result<Box<dyn Spawned>> {
        self.plan = Some(plan.clone());
        match &self.child {
            Ok(child) => Ok(Box::new(child.clone())),
            Err(kind) => Err((*kind).into()),
        }
    }
}
