//! Steps that a run did not have when it began: groups that are made later, and steps that are asked for.
//!
//! Theory of operation. A group that is made later has a place from the beginning, and its members take it
//! ([`Session::expand`]); what is asked for comes after everything else ([`Session::append`]). Both are one change
//! of the status, with all numbers right, because every reader counts steps flat. A request for further steps is
//! taken up with the inbox and answered by the log; one that comes after the end was told is refused.
//!
//! A crash leaves the steps of before or of after, and a request that was taken up without an answer.
//! Spec: RS-START-86, RS-START-88; facts C-6, S-47.

use crate::protocol::written;
use crate::store::append::Append;
use crate::store::host::WriteHost;

use super::job::{Job, RunnerError, tell};
use super::session::Session;
use super::work::Order;

impl<H: WriteHost> Session<'_, '_, H> {
    /// Puts the members of a group in the place of the pending step that stood for it. The steps after it
    /// move.
    /// Spec: RS-START-86.
    ///
    /// # Errors
    /// [`RunnerError::Misplaced`] for a step that is not pending; else as [`Session::look`].
    pub fn expand(&mut self, step: usize, agents: &[&str]) -> Result<(), RunnerError> {
        self.only(step, self.is_pending(step), "a pending step of a run that goes on")?;
        // What is at work has told its number to somebody.
        let nobody = !self.board.live[step..].iter().any(|live| *live);
        self.only(step, nobody, "before every step at work")?;
        self.board.expand(step, agents);
        self.write_status()
    }

    /// Steps that come after the end of the run was told are not begun.
    pub(super) fn take_append(&mut self, append: Append, orders: &mut Vec<Order>) {
        if self.board.cut.is_some() {
            self.refuse_append(&append.id, "the run was told to end");
        } else {
            orders.push(Order::Append(append));
        }
    }

    /// Adds logical steps at the end: each of them a group that runs side by side, or a single step. `request` is
    /// the request that asked for them, if one did.
    /// Spec: RS-START-86, RS-START-88.
    ///
    /// # Errors
    /// As [`Session::look`].
    pub fn append(&mut self, request: Option<&str>, groups: &[&[&str]]) -> Result<(), RunnerError> {
        groups.iter().for_each(|agents| self.board.append(agents));
        let Some(id) = request else { return self.write_status() };
        self.board.appends = Some(0);
        self.write_status()?;
        let members = [
            ("requestId", written::string(id)),
            ("stepCount", groups.len().to_string()),
            ("pendingAppends", "0".to_owned()),
        ];
        tell(self.job, "subagent.chain.append.accepted", false, &members);
        Ok(())
    }

    /// Says that the steps of a request are not taken; why not. The count of open requests is right with the
    /// next change.
    /// Spec: RS-START-88.
    pub fn refuse_append(&mut self, request: &str, why: &str) {
        self.board.appends = Some(0);
        self.is_ahead = true;
        refuse_append(self.job, request, why);
    }
}

/// Says in the log that further steps are not taken.
pub(super) fn refuse_append<H: WriteHost>(job: &Job<'_, H>, request: &str, why: &str) {
    let members = [("requestId", written::string(request)), ("reason", written::string(why))];
    tell(job, "runstore.append.refused", false, &members);
}
