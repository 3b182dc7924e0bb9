//! Trying again when another program holds a file for a moment.
//!
//! On Windows a virus scanner or a reader without delete sharing makes a rename fail for a while, so
//! directory creation and rename are tried ten times over 7.885 s. Elsewhere such an error is a real
//! refusal and one attempt is made, unless somebody asked for more (network file systems).
//! Facts W-10 to W-15, Z-7. Spec: RS-RETRY-01 to RS-RETRY-07.
//!
//! The number of attempts never depends on the budget: a smaller budget shortens the waits, from the
//! back, so that code which counts attempts behaves the same. The budget of the environment is asked
//! for when the first wait is due, so every policy keeps it, also one that nobody passed in. A deadline
//! of the caller does end the attempts, because waiting past it helps nobody: the last wait is cut to
//! end at the deadline, and one more attempt is made there.
//!
//! Nothing is kept between two calls, and a crash while waiting leaves what stood before the attempt.

use std::io;

use super::host::{Host, WriteHost};

/// Waits between the attempts, in ms. Ten attempts in all.
pub const LADDER_MS: [u64; 9] = [10, 25, 50, 100, 200, 500, 1000, 2000, 4000];

/// The budget variable of this program; the peers' own come after it.
pub const BUDGET_VARIABLES: [&str; 3] = [
    "RUNSTORE_FS_RETRY_MAX_TOTAL_MS",
    "PI_SUBAGENT_FS_RETRY_MAX_TOTAL_MS",
    "DM_SUBAGENT_FS_RETRY_MAX_TOTAL_MS",
];

/// How often and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    waits_ms: [u64; 9],
    enabled: bool,
    deadline_ms: Option<i64>,
}

/// A value of a budget variable that is not a whole number of milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetError {
    /// The variable.
    pub variable: &'static str,
}

impl std::fmt::Display for BudgetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} must be a whole number of milliseconds, 0 or more", self.variable)
    }
}

impl std::error::Error for BudgetError {}

/// What the attempts came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Number of attempts, at least 1.
    pub made: u32,
    /// Time waited between them, in ms.
    pub waited_ms: u64,
}

impl Default for RetryPolicy {
    /// The full ladder, on Windows only.
    fn default() -> Self {
        Self { enabled: cfg!(windows), ..Self::always() }
    }
}

impl RetryPolicy {
    /// One attempt.
    pub fn never() -> Self {
        Self { enabled: false, ..Self::always() }
    }

    /// The full ladder, on any system.
    pub fn always() -> Self {
        Self { waits_ms: LADDER_MS, enabled: true, deadline_ms: None }
    }

    /// The same within a total budget, spent from the front of the ladder. The number of waits stays.
    #[must_use]
    pub fn within(mut self, budget_ms: u64) -> Self {
        let mut left = budget_ms;
        for wait in &mut self.waits_ms {
            *wait = (*wait).min(left);
            left -= *wait;
        }
        self
    }

    /// The same with no attempt after an instant, ms since the epoch. Of two deadlines the earlier one
    /// counts. The first attempt is made in any case.
    #[must_use]
    pub fn until(mut self, deadline_ms: i64) -> Self {
        self.deadline_ms = Some(self.deadline_ms.map_or(deadline_ms, |d| d.min(deadline_ms)));
        self
    }

    /// The same within the first budget variable that is set and not blank.
    ///
    /// [`RetryPolicy::run`] does this by itself when the first wait is due. Who calls it at the start
    /// learns of a bad value before anything depends on it.
    ///
    /// # Errors
    /// [`BudgetError`] when its value is not a whole number of ms, 0 or more.
    pub fn within_env<H: Host>(self, host: &H) -> Result<Self, BudgetError> {
        for variable in BUDGET_VARIABLES {
            let Some(value) = host.env(variable) else { continue };
            let text = value.to_string_lossy();
            if text.trim().is_empty() {
                continue;
            }
            // A number that does not fit is larger than the ladder in any case.
            let digits = text.trim();
            if !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(BudgetError { variable });
            }
            return Ok(self.within(digits.parse().unwrap_or(u64::MAX)));
        }
        Ok(self)
    }

    /// The default within the budget of the environment.
    ///
    /// # Errors
    /// As [`RetryPolicy::within_env`].
    pub fn from_env<H: Host>(host: &H) -> Result<Self, BudgetError> {
        Self::default().within_env(host)
    }

    /// The waits between attempts, in ms; empty when one attempt is made.
    pub fn waits_ms(&self) -> &[u64] {
        if self.enabled { &self.waits_ms } else { &[] }
    }

    /// Calls `attempt` until it succeeds, fails for another reason, or the ladder or the deadline
    /// ends. Returns the last result and what it took. A bad budget variable ends the attempts at the
    /// first wait, and the error says so besides its cause.
    pub fn run<H: WriteHost, T>(
        &self,
        host: &H,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> (io::Result<T>, Attempts) {
        let mut spent = Attempts { made: 1, waited_ms: 0 };
        let mut result = attempt();
        if !self.enabled || !is_held(&result) {
            return (result, spent);
        }
        let clamped = match self.within_env(host) {
            Ok(policy) => policy,
            Err(bad) => {
                let told = |e: io::Error| {
                    io::Error::new(e.kind(), format!("{e}; not tried again, because {bad}"))
                };
                return (result.map_err(told), spent);
            }
        };
        for wait in clamped.waits_ms {
            let left = self.deadline_ms.map(|deadline| deadline.saturating_sub(host.now_ms()));
            if left.is_some_and(|left| left <= 0) {
                break;
            }
            let wait = left.map_or(wait, |left| wait.min(left.unsigned_abs()));
            // A spent budget leaves attempts without a wait between them.
            if wait > 0 {
                host.wait_ms(wait);
                spent.waited_ms += wait;
            }
            spent.made += 1;
            result = attempt();
            if !is_held(&result) {
                break;
            }
        }
        (result, spent)
    }
}

fn is_held<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(e) if is_transient(e))
}

/// Codes of Windows that [`is_transient`] knows: access denied, sharing violation, lock violation, busy.
#[cfg(windows)]
const HELD_CODES: [i32; 4] = [5, 32, 33, 170];

/// Whether another program may only be holding the file: access denied, busy, sharing violation or
/// lock violation. Facts W-12.
pub fn is_transient(e: &io::Error) -> bool {
    // Two of the codes have no kind of their own.
    #[cfg(windows)]
    if e.raw_os_error().is_some_and(|code| HELD_CODES.contains(&code)) {
        return true;
    }
    // A refusal of our own has no code of the system, and waiting does not change it. EACCES and EPERM
    // have one kind; EBUSY has its own.
    e.raw_os_error().is_some()
        && matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy)
}

/// Whether an error says nothing about the thing that was looked at, so that asking again later may
/// bring an answer: no handle, no memory, a disk or a network that did not answer.
///
/// Not among them are the errors that *are* an answer, such as a name that is not there or may not be
/// entered.
pub(super) fn may_pass(e: &io::Error) -> bool {
    use io::ErrorKind::{
        Interrupted, OutOfMemory, ResourceBusy, StaleNetworkFileHandle, TimedOut, WouldBlock,
    };
    const EIO: i32 = 5;
    let kinds =
        [Interrupted, OutOfMemory, ResourceBusy, StaleNetworkFileHandle, TimedOut, WouldBlock];
    // A broken read has no stable kind.
    let broken = cfg!(unix) && e.raw_os_error() == Some(EIO);
    broken || kinds.contains(&e.kind()) || super::atomic::is_capacity(e)
}
