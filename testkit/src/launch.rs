//! The pieces of a launch that is played on a host in memory.
//!
//! Theory of operation. What a request needs and no test is about is here once, as small as it can be;
//! [`lead`] leads a launch to its end. Whenever the launcher pauses, the other side has its turn, so no order
//! depends on chance and nothing sleeps: the clock of the host moves with its waits only.

use runstore::launcher::{Launch, Outcome, Poll};
use runstore::protocol::written_launch::DescriptorText;
use runstore::store::host::{Host as _, WriteHost as _};

use crate::fault::FaultHost;

/// The one step of a run.
pub const STEPS: &str = r#"[{"agent":"a","task":"t","inheritProjectContext":true,"inheritGlobalContext":false,"inheritSkills":false}]"#;

/// How the run `run-1` could be resumed, with as few members as can be.
pub const DESCRIPTOR: DescriptorText<'static> = DescriptorText {
    run_id: "run-1",
    agent: "a",
    cwd: "/",
    system_prompt_mode: "append",
    output_mode: "inline",
    fanout_budget: "{}",
    inherit_project_context: false,
    inherit_skills: false,
    share: false,
    max_subagent_depth: 0,
    session_file: None,
    deadline_at_ms: None,
    more: &[],
};

/// More turns than any start-up takes: 90 s in steps of 20 ms.
const MAX_TURNS: usize = 4_500;

/// Leads a launch to its end; `other` is called at every pause. Says how long it took, in ms.
///
/// # Panics
/// When it does not come to an end.
pub fn lead<'l>(
    host: &FaultHost,
    launch: &'l mut Launch<'_, FaultHost>,
    mut other: impl FnMut(),
) -> (&'l Outcome, i64) {
    let since = host.now_ms();
    let mut turns = 0;
    while let Poll::Wait(ms) = launch.poll() {
        turns += 1;
        assert!(turns < MAX_TURNS, "a start-up has an end");
        other();
        host.wait_ms(ms);
    }
    let took = host.now_ms() - since;
    match launch.poll() {
        Poll::Done(outcome) => (outcome, took),
        Poll::Wait(_) => unreachable!("done stays done"),
    }
}
