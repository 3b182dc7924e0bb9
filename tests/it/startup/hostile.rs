//! Files that are no messages: links, pipes, directories, huge ones, of another run, used before.
//! Spec: RS-START-29, RS-START-44, RS-START-95.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use runstore::launcher::handshake::Why;
use runstore::launcher::{Cause, Outcome, Refusal, Request, SlotWish};
use runstore::protocol::lease::LeaseState;
use runstore::runner::startup::{Config, ConfigError, Startup, read_config};
use runstore::store::host::Host as _;
use runstore::store::process::Terminate;
use runstore::store::slot::occupied;
use testkit::child::{Child, Spawner};

use super::World;
use super::real::Real;

impl Real {
    fn run(&self, name: &str) -> PathBuf {
        self.runs.join("run-1").join(name)
    }

    fn config(&self) -> Config {
        read_config(&self.host, &self.root.join("async-cfg-run-1.json")).expect("it is ours")
    }
}

/// Puts something that is no message at a path, and says by which word it is known.
type Plant = fn(&Path);

const PLANTS: [(&str, Plant); 5] = [
    ("a symbolic link", |at| symlink("/etc/hostname", at).expect("room")),
    ("a symbolic link", |at| symlink("nowhere", at).expect("room")),
    ("a named pipe", |at| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0)
            .expect("room");
    }),
    ("a directory", |at| fs::create_dir(at).expect("room")),
    ("bytes long", |at| fs::write(at, vec![b' '; 70_000]).expect("room")),
];

#[test]
fn the_launcher_takes_nothing_for_a_message_that_is_none() {
    for (what, plant) in PLANTS {
        let real = Real::new();
        let child = Child::new(i32::MAX as u32);
        real.with("run-1", true, |prepared| {
            let mut launch = prepared.start(&mut Spawner::of(&child)).expect("made");
            plant(&real.run("runner-startup.json"));
            let outcome = launch.wait();
            let Outcome::Refused(failed) = outcome else { panic!("{what}: {outcome:?}") };
            let Cause::Handshake(Why::Unsafe(found)) = &failed.cause else {
                panic!("{what}: {failed:?}")
            };
            assert!(found.contains(what), "{found}");
            assert_eq!(failed.unrecorded, None, "{what}");
        });
        assert!(child.has_ended(), "{what}: nothing runs");
        let status = fs::read_to_string(real.run("status.json")).expect("there");
        assert!(status.contains("\"failed\"") && status.contains(what), "it is named: {status}");
        assert!(!real.run("runner-startup-proceed.json").exists(), "{what}");
    }
}

#[test]
fn the_runner_takes_nothing_for_a_control_that_is_none() {
    for is_revival in [false, true] {
        for (what, plant) in PLANTS {
            let real = Real::new();
            real.with("run-1", is_revival, |_prepared| {
                let config = real.config();
                let temp = real.host.open_dir(&real.root).expect("there");
                let mut startup = Startup::begin(&real.host, &temp, &config, 30_000)
                    .expect("nothing is in the way");
                let name = if is_revival {
                    "runner-startup-ack.json"
                } else {
                    "runner-startup-proceed.json"
                };
                plant(&real.run(name));
                let error = startup.poll().expect_err(what);
                assert!(error.to_string().contains(name), "it is named: {error}");
                let said = fs::read_to_string(real.run("runner-startup.json")).expect("told");
                assert!(said.contains(what), "{said}");
                assert_eq!(real.lease("run-1"), LeaseState::Free, "{what}");
            });
        }
    }
}

#[test]
fn a_message_is_never_written_through_a_planted_link() {
    let real = Real::new();
    let outside = real.root.join("outside");
    fs::write(&outside, "mine").expect("room");
    real.with("run-1", false, |prepared| {
        symlink(&outside, real.run("runner-startup-proceed.json")).expect("room");
        let mut launch = prepared.start(&mut Spawner::of(&Child::new(77))).expect("made");
        let outcome = launch.wait();
        assert!(
            matches!(outcome, Outcome::Refused(_)),
            "it is not let in through a link: {outcome:?}"
        );
    });
    assert_eq!(fs::read_to_string(&outside).expect("there"), "mine");
}

#[test]
fn a_configuration_that_is_no_plain_file_is_not_taken() {
    for (what, plant) in PLANTS {
        let real = Real::new();
        let path = real.root.join("cfg.json");
        plant(&path);
        let error = read_config(&real.host, &path).expect_err(what);
        match error {
            ConfigError::Unreadable(why) => assert!(why.contains(what), "{why}"),
            // Below the bound of a configuration, and blank.
            ConfigError::Damaged(_) => assert_eq!(what, "bytes long"),
            other => panic!("{what}: {other:?}"),
        }
        assert!(path.symlink_metadata().is_ok(), "{what}: it is left");
    }
    let real = Real::new();
    let path = real.root.join("cfg.json");
    let file = fs::File::create(&path).expect("room");
    file.set_len((16 << 20) + 1).expect("a hole takes no room");
    let error = read_config(&real.host, &path).expect_err("huge");
    assert!(matches!(error, ConfigError::Damaged(_)), "{error:?}");
}

#[test]
fn a_word_that_was_said_before_lets_nobody_in() {
    // A control of an earlier start of the same session lies there.
    let real = Real::new();
    real.with("run-1", true, |_prepared| {
        let config = real.config();
        let temp = real.host.open_dir(&real.root).expect("there");
        fs::write(real.run("runner-startup-ack.json"), r#"{"action":"ack","token":"old"}"#)
            .expect("room");
        let mut startup = Startup::begin(&real.host, &temp, &config, 30_000).expect("it can begin");
        let error = startup.poll().expect_err("it is of another start");
        assert!(error.to_string().contains("another token"), "{error}");
    });
    // The configuration is read once: a second runner finds none.
    let again = read_config(&real.host, &real.root.join("async-cfg-run-1.json"));
    assert!(matches!(again, Err(ConfigError::Unreadable(_))), "{again:?}");
}

#[test]
fn a_process_without_a_number_is_none_and_leaves_nothing_bound() {
    let world = World::new();
    let before = world.host.tree();
    let child = Child::new(0);
    let slot = Some(SlotWish { limit: 1, source: None });
    let prepared = world.prepared(Request { slot, ..world.request() });
    let refused = prepared.start(&mut Spawner::of(&child)).expect_err("nobody could be told of it");
    assert!(matches!(refused.why, Refusal::Spawn(_)) && refused.left.is_empty(), "{refused:?}");
    assert_eq!(child.asked(), [Terminate::Force]);
    let free = occupied(&world.host, &0, "S").expect("readable");
    assert_eq!((free.len(), world.file("status.json")), (0, None));
    let made = |path: &String| !before.contains_key(path) && !path.contains("capacity");
    assert_eq!(world.host.tree().keys().filter(|path| made(path)).count(), 0, "no trace of a run");
}
