//! Scripted launchers and runners of every dialect, on raw files.

use runstore::store::host::Host as _;
use runstore::store::process::Exit;
use serde_json::{Value, json};
use testkit::child::Child;

use super::World;

/// A dialect, as far as the start-up tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// P34 to P49: no barrier in a fresh launch; in a revival as two-step.
    NoBarrier,
    /// D4, D5, P67: no confirm step.
    TwoStep,
    /// P69: `confirm` in the ack file.
    ConfirmInAck,
    /// P70 and later, D7.
    ConfirmFile,
}

pub(super) const ALL: [Dialect; 4] =
    [Dialect::NoBarrier, Dialect::TwoStep, Dialect::ConfirmInAck, Dialect::ConfirmFile];

impl Dialect {
    pub(super) fn has_confirm(self) -> bool {
        matches!(self, Self::ConfirmInAck | Self::ConfirmFile)
    }

    pub(super) fn confirm_file(self) -> &'static str {
        if self == Self::ConfirmInAck {
            "runner-startup-ack.json"
        } else {
            "runner-startup-confirm.json"
        }
    }
}

/// A runner of a dialect. It gives up 30 s after its last progress, as all of them do.
pub(super) struct Runner<'w> {
    world: &'w World,
    dialect: Dialect,
    child: Child,
    /// What it waits for: file and action.
    waits: Vec<(&'static str, &'static str)>,
    token: String,
    since_ms: i64,
    /// Whether it works.
    pub(super) works: bool,
}

impl<'w> Runner<'w> {
    pub(super) fn fresh(world: &'w World, dialect: Dialect, child: &Child, token: &str) -> Self {
        let waits = vec![("runner-startup-proceed.json", "proceed")];
        Self::new(world, dialect, child, token, waits)
    }

    pub(super) fn revived(world: &'w World, dialect: Dialect, child: &Child) -> Self {
        let mut waits = vec![("runner-startup-proceed.json", "proceed")];
        if dialect.has_confirm() {
            waits.push((dialect.confirm_file(), "confirm"));
        }
        waits.push(("runner-startup-ack.json", "ack"));
        let runner = Self::new(world, dialect, child, "peer-token", waits);
        runner.say(&json!({"state": "ready", "token": "peer-token", "pid": 77, "owner": {}}));
        runner
    }

    fn new(
        world: &'w World,
        dialect: Dialect,
        child: &Child,
        token: &str,
        waits: Vec<(&'static str, &'static str)>,
    ) -> Self {
        let (child, token, since_ms) = (child.clone(), token.to_owned(), world.host.now_ms());
        Self { world, dialect, child, waits, token, since_ms, works: false }
    }

    fn say(&self, message: &Value) {
        self.world.put("runner-startup.json", &message.to_string());
    }

    /// One poll of it.
    pub(super) fn turn(&mut self) {
        if self.child.has_ended() || self.works {
            return;
        }
        let Some((file, wanted)) = self.waits.last().copied() else { return };
        let Some(found) = self.world.file(file) else { return self.wait() };
        if found["token"] != self.token.as_str() {
            return self.give_up("token does not match");
        }
        match found["action"].as_str() {
            Some(action) if action == wanted => {}
            Some("ack" | "proceed") => return self.wait(),
            Some("confirm") if self.dialect.has_confirm() => return self.wait(),
            _ => return self.give_up("action is invalid"),
        }
        self.waits.pop();
        self.since_ms = self.world.host.now_ms();
        let state = match wanted {
            "ack" => "acknowledged",
            "confirm" => "confirmed",
            _ => {
                self.works = true;
                for file in ["ack", "confirm", "proceed"] {
                    self.world.remove(&format!("runner-startup-{file}.json"));
                }
                return;
            }
        };
        self.say(&json!({"state": state, "token": self.token, "pid": 77}));
    }

    fn wait(&mut self) {
        if self.world.host.now_ms() - self.since_ms > 30_000 {
            self.give_up("timed out");
        }
    }

    fn give_up(&mut self, why: &str) {
        self.say(&json!({"state": "error", "pid": 77, "error": why}));
        self.child.end(Exit::Code(1));
    }
}

/// What became of a launch, as its launcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Still under way.
    Nothing,
    /// It reported success.
    Success,
    /// It gave up after its time.
    TimedOut,
    /// The runner said an error.
    Refused,
}

/// A launcher of a dialect, in a revival. It gives up 10 s after its last progress.
pub(super) struct Launcher<'w> {
    world: &'w World,
    dialect: Dialect,
    wanted: &'static str,
    token: Option<String>,
    since_ms: i64,
    /// What it told its user.
    pub(super) told: Told,
}

impl<'w> Launcher<'w> {
    pub(super) fn revival(world: &'w World, dialect: Dialect) -> Self {
        let since_ms = world.host.now_ms();
        Self { world, dialect, wanted: "ready", token: None, since_ms, told: Told::Nothing }
    }

    fn say(&self, file: &str, action: &str) {
        let message = json!({"action": action, "token": self.token});
        self.world.put(file, &message.to_string());
    }

    /// One poll of it.
    pub(super) fn turn(&mut self) {
        if self.told != Told::Nothing {
            return;
        }
        let found = self.world.file("runner-startup.json").unwrap_or_default();
        if found["state"] == "error" {
            self.told = Told::Refused;
            return;
        }
        if found["state"] != self.wanted {
            if self.world.host.now_ms() - self.since_ms >= 10_000 {
                self.told = Told::TimedOut;
            }
            return;
        }
        let token = found["token"].as_str().expect("a state has a token").to_owned();
        assert!(
            self.token.as_ref().is_none_or(|known| *known == token),
            "one token for all states"
        );
        self.token = Some(token);
        self.since_ms = self.world.host.now_ms();
        match self.wanted {
            "ready" => {
                self.say("runner-startup-ack.json", "ack");
                self.wanted = "acknowledged";
            }
            "acknowledged" if self.dialect.has_confirm() => {
                self.say(self.dialect.confirm_file(), "confirm");
                self.wanted = "confirmed";
            }
            _ => {
                self.say("runner-startup-proceed.json", "proceed");
                self.world.remove("runner-startup.json");
                self.told = Told::Success;
            }
        }
    }
}
