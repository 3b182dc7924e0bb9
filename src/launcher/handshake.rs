//! The launcher's side of a start-up as a pure machine: what was seen goes in, what to do comes out.
//!
//! Theory of operation. [`Handshake`] knows the variant, the state that it waits for, the token and how
//! long it has waited. A caller looks at the child and at `runner-startup.json` and hands both to
//! [`Handshake::step`]; it gets one [`Act`]: wait so long, say this, write `proceed`, or give up. No file,
//! clock or process is touched here, so every order of events can be played with plain values.
//!
//! The caller looks at the child first and at the file after it. Then a child that has ended cannot write
//! any more, and what the file says is its last word: an error that is there wins over the mere end. The
//! other order could find the file silent, then the child gone, and lose the words that came in between.
//!
//! Waits. Each state has its own budget from the moment at which the one before was answered, and all of
//! them end at the caller's deadline, if there is one. One look is made in any case.
//!
//! Not promised: that the runner still lives when `proceed` is renamed into place (facts Z-63). Whoever
//! acts on [`Act::Commit`] looks at it once more right before.
//! Spec: RS-START-31 to RS-START-34; facts U-30 to U-34, §4.6, Z-50, Z-62.

use crate::protocol::startup::{
    LAUNCHER_BUDGET_MS, LauncherFailure, LauncherStep, StartupState, eager_pause_ms,
    launcher_pause_ms, read_startup,
};

/// Where `confirm` is written in a revival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// Into both files, so that a runner of either dialect finds it.
    /// Spec: RS-START-34.
    #[default]
    Both,
    /// Into its own file only, as launchers of P70 and later.
    OwnFile,
    /// Into the ack file only, as launchers of P69.
    AckFile,
    /// Nowhere, and no `confirmed` is waited for: the runner is of a dialect without that step.
    Never,
}

/// What the launcher saw, the child looked at first.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Whether the child has ended.
    pub has_ended: bool,
    /// `runner-startup.json`.
    pub file: File<'a>,
    /// A steady clock, in ms.
    pub now_ms: i64,
}

/// What is at `runner-startup.json`.
#[derive(Clone, Copy, Debug)]
pub enum File<'a> {
    /// Nothing.
    Absent,
    /// These bytes.
    Said(&'a [u8]),
    /// Something that is no message; the text says what.
    Unsafe(&'a str),
    /// The system did not answer.
    Busy,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Look again, at the latest after so long.
    Wait {
        /// In ms.
        pause_ms: u64,
    },
    /// Write the ack and look again.
    Ack {
        /// The token of this start-up.
        token: String,
    },
    /// Write the confirm and look again.
    Confirm {
        /// The token of this start-up.
        token: String,
        /// Where.
        place: Confirm,
    },
    /// Look at the child once more, and write `proceed` if it runs.
    Commit {
        /// The token of this start-up.
        token: String,
    },
    /// Give up.
    Fail(Why),
}

/// Why a start-up is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The runner said so, or wrote something that is no message of this start-up, or took too long.
    Conversation(LauncherFailure),
    /// What stands in the place of its message is no plain file of ours.
    Unsafe(String),
    /// It ended without a word, before this state. `None`: before a fresh run could be let in.
    Ended(Option<StartupState>),
    /// The caller's deadline passed.
    Deadline,
}

/// One start-up. See the module's theory of operation.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// What is waited for; `None` in a fresh start, which waits for nothing.
    wanted: Option<StartupState>,
    token: Option<String>,
    confirm: Confirm,
    budget_ms: u64,
    since_ms: i64,
    until_ms: Option<i64>,
}

impl Handshake {
    /// A fresh run: its runner says nothing and waits for `proceed` under the token it was given.
    pub fn fresh(token: &str, now_ms: i64) -> Self {
        Self {
            wanted: None,
            token: Some(token.to_owned()),
            ..Self::revival(Confirm::Never, now_ms)
        }
    }

    /// A revival, which begins with `ready`.
    pub fn revival(confirm: Confirm, now_ms: i64) -> Self {
        Self {
            wanted: Some(StartupState::Ready),
            token: None,
            confirm,
            budget_ms: LAUNCHER_BUDGET_MS,
            since_ms: now_ms,
            until_ms: None,
        }
    }

    /// The same with another budget for each state, in ms.
    #[must_use]
    pub fn budget(mut self, budget_ms: u64) -> Self {
        self.budget_ms = budget_ms;
        self
    }

    /// The same with an end of all waits, on the steady clock.
    #[must_use]
    pub fn until(mut self, until_ms: Option<i64>) -> Self {
        self.until_ms = until_ms;
        self
    }

    /// The token, once it is known.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// What follows from one look.
    pub fn step(&mut self, seen: &Seen<'_>) -> Act {
        let Some(wanted) = self.wanted else {
            return self.fresh_step(seen);
        };
        let bytes = match seen.file {
            File::Unsafe(what) => return Act::Fail(Why::Unsafe(what.to_owned())),
            File::Said(bytes) => Some(bytes),
            // A file that could not be looked at is looked at again, until the time is up.
            File::Absent | File::Busy => None,
        };
        match read_startup(bytes, wanted, self.token.as_deref()) {
            LauncherStep::Fail(failure) => Act::Fail(Why::Conversation(failure)),
            // Its state is good, but nobody is left who would go on from it.
            _ if seen.has_ended => Act::Fail(Why::Ended(Some(wanted))),
            LauncherStep::Accept { token } => self.answer(wanted, token, seen.now_ms),
            LauncherStep::Wait => self.pause(wanted, seen.now_ms),
        }
    }

    /// The runner of a fresh run speaks only to say that it gave up.
    fn fresh_step(&self, seen: &Seen<'_>) -> Act {
        let said = match seen.file {
            File::Said(bytes) => read_startup(Some(bytes), StartupState::Error, None),
            _ => LauncherStep::Wait,
        };
        match said {
            LauncherStep::Fail(failure @ LauncherFailure::Reported { .. }) => {
                Act::Fail(Why::Conversation(failure))
            }
            _ if seen.has_ended => Act::Fail(Why::Ended(None)),
            _ => Act::Commit { token: self.token.clone().unwrap_or_default() },
        }
    }

    fn answer(&mut self, reached: StartupState, token: String, now_ms: i64) -> Act {
        self.token = Some(token.clone());
        self.since_ms = now_ms;
        match reached {
            StartupState::Ready => {
                self.wanted = Some(StartupState::Acknowledged);
                Act::Ack { token }
            }
            StartupState::Acknowledged if self.confirm != Confirm::Never => {
                self.wanted = Some(StartupState::Confirmed);
                Act::Confirm { token, place: self.confirm }
            }
            _ => Act::Commit { token },
        }
    }

    fn pause(&self, state: StartupState, now_ms: i64) -> Act {
        let budget_ms = self.budget_ms;
        let elapsed = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        let left = self.until_ms.map(|until| until.saturating_sub(now_ms));
        if left.is_some_and(|left| left <= 0) {
            return Act::Fail(Why::Deadline);
        }
        match launcher_pause_ms(elapsed, budget_ms) {
            Some(pause) => {
                let pause = eager_pause_ms(elapsed, pause);
                let left = left.and_then(|left| u64::try_from(left).ok());
                Act::Wait { pause_ms: left.map_or(pause, |left| pause.min(left)) }
            }
            None => Act::Fail(Why::Conversation(LauncherFailure::TimedOut { state, budget_ms })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::written_startup::{error, state};

    fn said(text: &str) -> File<'_> {
        File::Said(text.as_bytes())
    }

    fn alive(file: File<'_>, now_ms: i64) -> Seen<'_> {
        Seen { has_ended: false, file, now_ms }
    }

    fn states() -> [String; 3] {
        [
            r#"{"state":"ready","token":"t"}"#.to_owned(),
            state(StartupState::Acknowledged, "t", 5),
            state(StartupState::Confirmed, "t", 5),
        ]
    }

    #[test]
    fn a_revival_is_led_through_its_states_in_their_order() {
        for confirm in [Confirm::Both, Confirm::OwnFile, Confirm::AckFile, Confirm::Never] {
            let mut talk = Handshake::revival(confirm, 0);
            let [ready, acknowledged, confirmed] = states();
            let token = "t".to_owned();
            assert!(matches!(talk.step(&alive(File::Absent, 0)), Act::Wait { pause_ms: 1 }));
            assert!(matches!(talk.step(&alive(File::Absent, 100)), Act::Wait { pause_ms: 20 }));
            assert!(matches!(talk.step(&alive(said(&confirmed), 0)), Act::Wait { .. }));
            assert_eq!(talk.step(&alive(said(&ready), 0)), Act::Ack { token: token.clone() });
            assert!(matches!(talk.step(&alive(said(&ready), 0)), Act::Wait { .. }), "said before");
            let next = talk.step(&alive(said(&acknowledged), 0));
            if confirm == Confirm::Never {
                assert_eq!(next, Act::Commit { token });
                continue;
            }
            assert_eq!(next, Act::Confirm { token: token.clone(), place: confirm });
            assert_eq!(talk.step(&alive(said(&confirmed), 0)), Act::Commit { token });
        }
    }

    #[test]
    fn an_end_is_noticed_in_every_state_and_its_words_win() {
        let [ready, ..] = states();
        let words = error(5, "no room");
        for file in [File::Absent, said(&ready), File::Busy] {
            let mut talk = Handshake::revival(Confirm::Both, 0);
            let act = talk.step(&Seen { has_ended: true, file, now_ms: 0 });
            assert_eq!(act, Act::Fail(Why::Ended(Some(StartupState::Ready))), "{file:?}");
        }
        let reported = LauncherFailure::Reported { text: "no room".to_owned() };
        for mut talk in [Handshake::revival(Confirm::Both, 0), Handshake::fresh("t", 0)] {
            for has_ended in [true, false] {
                let act = talk.step(&Seen { has_ended, file: said(&words), now_ms: 0 });
                assert_eq!(act, Act::Fail(Why::Conversation(reported.clone())));
            }
        }
        let mut talk = Handshake::fresh("t", 0);
        let act = talk.step(&Seen { has_ended: true, file: File::Absent, now_ms: 0 });
        assert_eq!(act, Act::Fail(Why::Ended(None)));
        assert_eq!(talk.step(&alive(File::Absent, 0)), Act::Commit { token: "t".to_owned() });
    }

    #[test]
    fn each_state_has_its_own_budget_and_all_of_them_end_at_the_deadline() {
        let [ready, acknowledged, _] = states();
        let mut talk = Handshake::revival(Confirm::Both, 0);
        assert!(matches!(talk.step(&alive(File::Absent, 9_990)), Act::Wait { pause_ms: 10 }));
        assert!(
            matches!(talk.step(&alive(said(&ready), 10_000)), Act::Ack { .. }),
            "the final look"
        );
        assert!(matches!(talk.step(&alive(said(&acknowledged), 19_000)), Act::Confirm { .. }));
        let Act::Fail(Why::Conversation(failure)) = talk.step(&alive(File::Absent, 29_000)) else {
            panic!("10 s after the last progress");
        };
        let state = StartupState::Confirmed;
        assert_eq!(failure, LauncherFailure::TimedOut { state, budget_ms: 10_000 });
        let mut talk = Handshake::revival(Confirm::Both, 0).until(Some(200));
        assert!(matches!(talk.step(&alive(File::Absent, 195)), Act::Wait { pause_ms: 5 }));
        assert_eq!(talk.step(&alive(File::Absent, 200)), Act::Fail(Why::Deadline));
        let mut talk = Handshake::revival(Confirm::Both, 0).budget(107);
        assert!(matches!(talk.step(&alive(File::Busy, 100)), Act::Wait { pause_ms: 7 }));
    }

    #[test]
    fn what_is_no_message_ends_the_start_up_and_is_named() {
        let mut talk = Handshake::revival(Confirm::Both, 0);
        let act = talk.step(&alive(File::Unsafe("a named pipe"), 0));
        assert_eq!(act, Act::Fail(Why::Unsafe("a named pipe".to_owned())));
        let act = talk.step(&alive(said("{\"state\":\"rea"), 0));
        assert!(matches!(act, Act::Fail(Why::Conversation(LauncherFailure::Unreadable(_)))));
        assert_eq!(talk.token(), None, "nothing was learnt from it");
    }
}
