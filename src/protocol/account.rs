//! Who may replace which terminal account.
//!
//! The first real terminal account stays. A repairer's account is a stand-in: the runner that it
//! stands in for may still tell its own, and nobody else may. Spec: RS-RMW-06; facts T-13, T-14,
//! CW-53.

use super::state::RunState;
use super::status::StatusView;

/// Who wants to write an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author<'a> {
    /// The runner of this instance.
    Runner {
        /// Its process instance id.
        instance: &'a str,
    },
    /// A launcher that records a start-up failure.
    Launcher,
    /// A repairer.
    Recoverer,
    /// Whoever asks a live run for something, and counts that.
    Client,
}

/// What a launcher that records a failure may set. Facts S-2, §4.8.
const OF_LAUNCHER: [&str; 7] =
    ["runId", "sessionId", "completionOwnerId", "state", "lastUpdate", "error", "processTerminal"];

/// What a repairer may set. Facts §8.3, §8.4.
const OF_RECOVERER: [&str; 8] = [
    "state",
    "steps",
    "lastUpdate",
    "endedAt",
    "error",
    "processTerminal",
    "activityState",
    "displayDismissedAt",
];

/// What a client may set. Facts S-9.
const OF_CLIENT: [&str; 2] = ["pendingAppends", "lastUpdate"];

impl Author<'_> {
    /// Whether the author may set this member of a status that is there.
    ///
    /// The runner owns the file from the commit point on; what others put into it is kept because it
    /// patches, not because it may not set it.
    /// Spec: RS-RUN-04, RS-ROLE-01.
    pub fn owns(self, member: &str) -> bool {
        match self {
            Self::Runner { .. } => true,
            Self::Launcher => OF_LAUNCHER.contains(&member),
            Self::Recoverer => OF_RECOVERER.contains(&member),
            Self::Client => OF_CLIENT.contains(&member),
        }
    }
}

/// The account that is on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded<'a> {
    /// Its state, when it is one of the protocol's.
    pub state: Option<RunState>,
    /// Whether a repairer wrote it.
    pub repaired: bool,
    /// The runner instance that the record names, if it names one.
    pub instance: Option<&'a str>,
}

impl<'a> Recorded<'a> {
    /// The account of a status. `beside` is the instance that the files beside it name: a repairer
    /// writes a placeholder over the one in the status (facts Q-22).
    pub fn of(status: &'a StatusView, beside: Option<&'a str>) -> Self {
        Self {
            state: status.known_state(),
            repaired: status.is_repaired(),
            instance: status.overlay_instance().or(beside),
        }
    }
}

/// Why an account is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The state on disk is not one of the protocol's: nothing is known of what it allows.
    UnknownState,
    /// A terminal account is there already.
    Settled(RunState),
    /// The record belongs to another runner instance.
    OtherInstance,
    /// No transition leads from a confirmed end back to an active state.
    NoWayBack(RunState),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownState => f.write_str("its state is not a word of the protocol"),
            Self::Settled(state) => write!(f, "it already tells the outcome {state}"),
            Self::OtherInstance => f.write_str("it belongs to another runner instance"),
            Self::NoWayBack(state) => write!(f, "no transition leads out of {state}"),
        }
    }
}

/// Whether `author` may write `new` over what is recorded.
///
/// # Errors
/// [`Refused`] with the rule. Writing the same outcome again is allowed: it changes nothing that
/// counts, and a writer that was cut off may not know that it succeeded.
pub fn may_write(
    recorded: &Recorded<'_>,
    author: Author<'_>,
    new: RunState,
) -> Result<(), Refused> {
    let Some(old) = recorded.state else { return Err(Refused::UnknownState) };
    if let (Author::Runner { instance }, Some(named)) = (author, recorded.instance)
        && instance != named
    {
        return Err(Refused::OtherInstance);
    }
    if !old.is_outcome() {
        // A recoverer that finds a pause leaves it; only the run's own side goes on from there.
        let paused = old == RunState::Paused;
        return match author {
            Author::Recoverer if paused => Err(Refused::NoWayBack(old)),
            _ if paused && new.is_active() => Err(Refused::NoWayBack(old)),
            _ => Ok(()),
        };
    }
    if new.is_active() {
        return Err(Refused::NoWayBack(old));
    }
    if old == new {
        return Ok(());
    }
    let supersedes = recorded.repaired && matches!(author, Author::Runner { .. });
    if supersedes { Ok(()) } else { Err(Refused::Settled(old)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNER: Author<'static> = Author::Runner { instance: "i" };

    fn recorded(state: RunState, repaired: bool) -> Recorded<'static> {
        Recorded { state: Some(state), repaired, instance: Some("i") }
    }

    #[test]
    fn the_first_real_account_stays() {
        let real = recorded(RunState::Complete, false);
        for author in [RUNNER, Author::Launcher, Author::Recoverer] {
            let refused = may_write(&real, author, RunState::Failed);
            assert_eq!(refused, Err(Refused::Settled(RunState::Complete)));
            assert_eq!(may_write(&real, author, RunState::Complete), Ok(()), "the same again");
        }
    }

    #[test]
    fn a_repaired_account_gives_way_to_its_own_runner_only() {
        let repaired = recorded(RunState::Failed, true);
        assert_eq!(may_write(&repaired, RUNNER, RunState::Complete), Ok(()));
        let other = Author::Runner { instance: "j" };
        assert_eq!(may_write(&repaired, other, RunState::Complete), Err(Refused::OtherInstance));
        let refused = may_write(&repaired, Author::Recoverer, RunState::Stopped);
        assert_eq!(refused, Err(Refused::Settled(RunState::Failed)));
    }

    #[test]
    fn no_way_leads_back_to_an_active_state() {
        for old in [RunState::Complete, RunState::Paused, RunState::Stopped] {
            let refused = may_write(&recorded(old, false), RUNNER, RunState::Running);
            assert_eq!(refused, Err(Refused::NoWayBack(old)));
        }
        assert_eq!(
            may_write(&recorded(RunState::Paused, false), RUNNER, RunState::Stopped),
            Ok(())
        );
    }

    #[test]
    fn an_account_of_a_repairer_is_known_by_its_proof() {
        let status = |overlay: &str| {
            let text = format!(r#"{{"state":"failed","processTerminal":{overlay}}}"#);
            StatusView::read(&crate::protocol::Document::parse(&text).expect("JSON"))
        };
        let placeholder = status(
            r#"{"version":1,"state":"unknown","runId":"r","runnerProcessInstanceId":"observer-unavailable","reason":"observer-unavailable"}"#,
        );
        let found = Recorded::of(&placeholder, Some("i"));
        assert_eq!((found.repaired, found.instance), (true, Some("i")), "the sidecar knows better");
        let witnessed = status(
            r#"{"version":1,"state":"unknown","runId":"r","runnerProcessInstanceId":"i","reason":"observer-unavailable"}"#,
        );
        assert!(!Recorded::of(&witnessed, None).repaired, "nobody saw the end; the account stays");
        let own =
            status(r#"{"version":1,"state":"pending","runId":"r","runnerProcessInstanceId":"j"}"#);
        let found = Recorded::of(&own, Some("i"));
        assert_eq!((found.repaired, found.instance), (false, Some("j")), "the status comes first");
    }

    #[test]
    fn each_author_sets_its_own_members_only() {
        assert!(RUNNER.owns("anything") && !Author::Launcher.owns("steps"));
        assert!(Author::Launcher.owns("error") && !Author::Launcher.owns("endedAt"));
        assert!(Author::Recoverer.owns("steps") && !Author::Recoverer.owns("pid"));
    }

    #[test]
    fn a_stranger_state_is_left_alone() {
        let stranger = Recorded::default();
        assert_eq!(may_write(&stranger, RUNNER, RunState::Failed), Err(Refused::UnknownState));
    }
}
