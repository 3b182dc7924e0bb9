//! Every mixed pair of the table of dialects, with ours on either side.
//! Spec: RS-START-34, RS-START-39, RS-START-49.

use runstore::launcher::{Confirm, Outcome, Request};
use runstore::protocol::startup::RUNNER_BUDGET_MS;
use runstore::runner::startup::{Config, Progress, Startup, StartupError, read_config};
use runstore::store::host::WriteHost as _;
use testkit::child::Child;
use testkit::fault::FaultHost;
use testkit::launch::lead;

use super::World;
use super::peers::{ALL, Dialect, Launcher, Runner, Told};

/// Reads the configuration that our launcher wrote, as the runner that it started would.
pub(super) fn config(world: &World) -> Config {
    read_config(&world.host, std::path::Path::new("/async-cfg-run-1.json")).expect("it is ours")
}

/// Leads our runner to its end; the other side has its turn at every pause.
pub(super) fn run<'a>(
    world: &'a World,
    config: &'a Config,
    mut other: impl FnMut(),
) -> Result<runstore::runner::startup::Committed<'a, FaultHost>, StartupError> {
    let startup = Startup::begin(&world.host, &0, config, RUNNER_BUDGET_MS)?;
    startup.wait_with(&mut |ms| {
        other();
        world.host.wait_ms(ms);
    })
}

#[test]
fn our_launcher_starts_a_fresh_runner_of_every_dialect() {
    for dialect in ALL {
        let world = World::new();
        let child = Child::new(77);
        let prepared = world.prepared(world.request());
        let token = prepared.instance_id().to_owned();
        if dialect == Dialect::NoBarrier {
            // It does not wait: its status is there before that of the launcher.
            world.put("status.json", r#"{"runId":"run-1","state":"running","pid":77}"#);
        }
        let mut launch = prepared.start(&mut testkit::child::Spawner::of(&child)).expect("made");
        let mut runner = Runner::fresh(&world, dialect, &child, &token);
        let (outcome, took) = lead(&world.host, &mut launch, || runner.turn());
        let Outcome::Started(started) = outcome else { panic!("{dialect:?}: {outcome:?}") };
        assert_eq!(started.ran_ahead, dialect == Dialect::NoBarrier, "{dialect:?}");
        assert_eq!(took, 0, "{dialect:?}: a fresh launch waits for nobody");
        let status = world.file("status.json").expect("there");
        let own = status["processTerminal"]["runnerProcessInstanceId"].is_string();
        assert_eq!(own, dialect != Dialect::NoBarrier, "{dialect:?}: the runner's status stays");
        runner.turn();
        assert!(runner.works, "{dialect:?}: it was let in");
    }
}

#[test]
fn our_launcher_revives_a_runner_of_every_dialect_that_it_is_told_of() {
    for dialect in ALL {
        let fitting: &[Confirm] = match dialect {
            Dialect::NoBarrier | Dialect::TwoStep => &[Confirm::Never],
            Dialect::ConfirmInAck => &[Confirm::Both, Confirm::AckFile],
            Dialect::ConfirmFile => &[Confirm::Both, Confirm::OwnFile],
        };
        for confirm in [Confirm::Both, Confirm::OwnFile, Confirm::AckFile, Confirm::Never] {
            let at = format!("{dialect:?}, {confirm:?}");
            let world = World::new();
            let child = Child::new(77);
            let mut launch = world.launch(Request { confirm, ..world.revival() }, &child);
            let mut runner = Runner::revived(&world, dialect, &child);
            let (outcome, took) = lead(&world.host, &mut launch, || runner.turn());
            if fitting.contains(&confirm) {
                assert!(matches!(outcome, Outcome::Started(_)), "{at}: {outcome:?}");
                assert!(took < 1_000, "{at}: {took} ms");
                runner.turn();
                assert!(runner.works, "{at}: it was let in");
                assert!(!child.has_ended(), "{at}");
            } else if confirm == Confirm::Never {
                // The first row of the table: the launcher is done, and the runner waits for a word that
                // never comes.
                assert!(matches!(outcome, Outcome::Started(_)), "{at}: {outcome:?}");
                for _ in 0..2_000 {
                    runner.turn();
                    world.host.wait_ms(20);
                }
                assert!(!runner.works && child.has_ended(), "{at}");
            } else {
                let Outcome::TimedOut(failed) = outcome else { panic!("{at}: {outcome:?}") };
                assert!((10_000..12_100).contains(&took), "{at}: {took} ms");
                assert!(failed.ended.is_some() && failed.unrecorded.is_none(), "{at}: {failed:?}");
                let status = world.file("status.json").expect("there");
                assert_eq!(status["state"], "failed", "{at}: it is on record");
                assert!(
                    status["error"].as_str().is_some_and(|e| e.contains("'confirmed'")),
                    "{at}"
                );
            }
        }
    }
}

#[test]
fn our_runner_is_started_by_a_launcher_of_every_dialect() {
    for dialect in ALL {
        let world = World::new();
        let _prepared = world.prepared(world.revival());
        let config = config(&world);
        let mut launcher = Launcher::revival(&world, dialect);
        let committed = run(&world, &config, || launcher.turn());
        let committed = committed.unwrap_or_else(|e| panic!("{dialect:?}: {e}"));
        launcher.turn();
        assert_eq!(launcher.told, Told::Success, "{dialect:?}: both sides say the same");
        assert!(committed.lease.is_some(), "{dialect:?}");
        let left = ["ack", "confirm", "proceed"]
            .iter()
            .any(|name| world.file(&format!("runner-startup-{name}.json")).is_some());
        assert!(!left, "{dialect:?}: the controls are removed");
    }
}

#[test]
fn our_launcher_and_our_runner_start_each_other_in_both_variants() {
    for is_revival in [false, true] {
        let world = World::new();
        let child = Child::new(77);
        let request = if is_revival { world.revival() } else { world.request() };
        let mut launch = world.launch(request, &child);
        let config = config(&world);
        assert!(!world.has("/async-cfg-run-1.json"), "it is removed once it is read");
        let mut startup = Startup::begin(&world.host, &0, &config, RUNNER_BUDGET_MS)
            .expect("nothing is in the way");
        let (outcome, took) = lead(&world.host, &mut launch, || {
            startup.poll().expect("a launcher of ours");
        });
        assert!(matches!(outcome, Outcome::Started(_)), "{outcome:?}");
        assert!(took <= 3, "three words are three short pauses at most: {took} ms");
        assert_eq!(startup.poll().expect("let in"), Progress::Let);
        let committed = startup.commit().expect("nothing fails here");
        assert_eq!(committed.run_id().as_str(), "run-1");
        let left: Vec<_> =
            world.host.tree().into_keys().filter(|path| path.contains("runner-startup")).collect();
        assert_eq!(left, [""; 0], "no message is left");
        let candidate = world.file("process-terminal-candidate.json").expect("there");
        assert_eq!(candidate["revivalLeaseToken"].is_string(), is_revival, "{candidate}");
        assert_eq!(candidate["sessionFile"] == "/s.jsonl", is_revival, "{candidate}");
    }
}

#[test]
fn the_table_of_pairs_of_known_dialects_is_as_the_spec_says() {
    // Without ours: what the scripted sides do among themselves is what chapter 5 says of mixed pairs, so
    // the scripts are of the dialects they claim to be.
    for launcher_of in ALL {
        for runner_of in ALL {
            let at = format!("{launcher_of:?} and {runner_of:?}");
            let world = World::new();
            let _prepared = world.prepared(world.revival());
            let child = Child::new(77);
            let mut runner = Runner::revived(&world, runner_of, &child);
            let mut launcher = Launcher::revival(&world, launcher_of);
            for _ in 0..2_200 {
                launcher.turn();
                if launcher.told != Told::TimedOut {
                    runner.turn();
                }
                world.host.wait_ms(20);
            }
            let two_step = |dialect: Dialect| !dialect.has_confirm();
            let (told, works) = match (launcher_of, runner_of) {
                (a, b) if two_step(a) && two_step(b) || a == b => (Told::Success, true),
                (a, _) if two_step(a) => (Told::Success, false),
                _ => (Told::TimedOut, false),
            };
            assert_eq!((launcher.told, runner.works), (told, works), "{at}");
        }
    }
}
