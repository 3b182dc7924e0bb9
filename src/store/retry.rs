//! Trying again when another program holds a file for a moment.
//!
//! On Windows a virus scanner or a reader without delete sharing makes a rename fail for a while, so
//! directory creation and rename are tried ten times over 7.885 s. Elsewhere such an error is a real
//! refusal and one attempt is made, unless somebody asked for more (network file systems).
//! Facts W-10 to W-15, Z-7. Spec: RS-RETRY-01 to RS-RETRY-06.
//!
//! The number of attempts never depends on the budget: a smaller budget shortens the waits, from the
//! back, so that code which counts attempts behaves the same. A deadline of the caller does end the
//! attempts, because waiting past it helps nobody.

use std::io;

use super::host::WriteHost;

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
        Self { waits_ms: LADDER_MS, enabled: cfg!(windows) }
    }
}

impl RetryPolicy {
    /// One attempt.
    pub fn never() -> Self {
        Self { waits_ms: LADDER_MS, enabled: false }
    }

    /// The full ladder, on any system.
    pub fn always() -> Self {
        Self { waits_ms: LADDER_MS, enabled: true }
    }

    /// The same within a total budget, spent from the front of the ladder.
    #[must_use]
    pub fn within(mut self, budget_ms: u64) -> Self {
        let mut left = budget_ms;
        for wait in &mut self.waits_ms {
            *wait = (*wait).min(left);
            left -= *wait;
        }
        self
    }

    /// The default policy, clamped by the first budget variable that is set and not blank.
    ///
    /// # Errors
    /// [`BudgetError`] when its value is not a whole number.
    pub fn from_env<H: WriteHost>(host: &H) -> Result<Self, BudgetError> {
        for variable in BUDGET_VARIABLES {
            let Some(value) = host.env(variable) else { continue };
            let text = value.to_string_lossy();
            if text.trim().is_empty() {
                continue;
            }
            let budget = text.trim().parse().map_err(|_| BudgetError { variable })?;
            return Ok(Self::default().within(budget));
        }
        Ok(Self::default())
    }

    /// The waits between attempts, in ms; empty when one attempt is made.
    pub fn waits_ms(&self) -> &[u64] {
        if self.enabled { &self.waits_ms } else { &[] }
    }

    /// Calls `attempt` until it succeeds, fails for another reason, or the ladder or the deadline
    /// ends. Returns the last result and what it took.
    pub fn run<H: WriteHost, T>(
        &self,
        host: &H,
        deadline_ms: Option<i64>,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> (io::Result<T>, Attempts) {
        let mut spent = Attempts::default();
        let mut waits = self.waits_ms().iter();
        loop {
            spent.made += 1;
            let result = attempt();
            let again = matches!(&result, Err(e) if is_transient(e));
            let Some(wait) = waits.next().filter(|_| again) else { return (result, spent) };
            let late = deadline_ms.is_some_and(|deadline| {
                host.now_ms().saturating_add(i64::try_from(*wait).unwrap_or(i64::MAX)) > deadline
            });
            if late {
                return (result, spent);
            }
            host.wait_ms(*wait);
            spent.waited_ms += wait;
        }
    }
}

/// Whether another program may only be holding the file: access denied, busy, sharing violation or
/// lock violation. Facts W-12.
pub fn is_transient(e: &io::Error) -> bool {
    if cfg!(windows) {
        // ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION, ERROR_BUSY
        return matches!(e.raw_os_error(), Some(5 | 32 | 33 | 170))
            || matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy);
    }
    // EACCES and EPERM have one kind; EBUSY has its own.
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy)
}
