//! Waits that end when the other side has spoken, or has ended, and not when their time is over.
//! Spec: RS-START-60 to RS-START-62; RS-START-54.
//!
//! Theory of operation. The other side acts during a pause of the host in memory, and says whether that
//! wakes. The clock moves only in pauses that nothing ends, so it tells how much time was waited away.

use std::path::Path;

use runstore::launcher::Outcome;
use runstore::runner::startup::{Startup, read_config};
use runstore::store::host::Host as _;
use runstore::store::process::Exit;
use testkit::child::Child;
use testkit::fault::{FaultHost, Nap};

use super::World;

const RUN: &str = "/async-subagent-runs/run-1";

/// During a pause, the runner says this.
fn says(state: &'static str, wakes: bool) -> Nap {
    Box::new(move |host: &FaultHost| {
        let text = format!(r#"{{"state":"{state}","token":"t","pid":77,"owner":{{}}}}"#);
        host.put(&format!("{RUN}/runner-startup.json"), &text);
        if wakes { vec![0] } else { Vec::new() }
    })
}

fn on_the_way(world: &World, naps: impl IntoIterator<Item = Nap>) {
    world.host.script().naps.extend(naps);
}

#[test]
fn a_launcher_is_woken_by_each_word_and_waits_no_time_away() {
    for wakes in [true, false] {
        let world = World::new();
        let mut launch = world.launch(world.revival(), &Child::new(77));
        let words = ["ready", "acknowledged", "confirmed"];
        on_the_way(&world, words.map(|word| says(word, wakes)));
        let since = world.host.now_ms();
        assert!(matches!(launch.wait(), Outcome::Started(_)));
        let waited = world.host.now_ms() - since;
        // An event that is lost costs the pause that there would be without any.
        assert_eq!(waited, if wakes { 0 } else { 3 });
        assert!(world.host.script().naps.is_empty(), "each pause brought one word");
    }
}

#[test]
fn a_launcher_is_woken_by_the_end_of_the_process() {
    let world = World::new();
    let child = Child::new(77);
    let mut launch = world.launch(world.revival(), &child);
    let ends: Nap = Box::new(move |_| {
        child.end(Exit::Code(3));
        vec![0]
    });
    on_the_way(&world, [ends]);
    let since = world.host.now_ms();
    let Outcome::Died(failed) = launch.wait() else { panic!("it ended before it was let in") };
    assert_eq!(failed.ended, Some(Some(Exit::Code(3))));
    assert_eq!(world.host.now_ms(), since, "no time was waited away");
}

#[test]
fn a_fresh_launch_watches_nothing() {
    let world = World::new();
    let mut launch = world.launch(world.request(), &Child::new(77));
    assert!(matches!(launch.wait(), Outcome::Started(_)));
    assert!(world.host.script().watched_at_ms.is_empty(), "there is nothing to wait for");
}

#[test]
fn a_runner_is_woken_by_each_word() {
    for wakes in [true, false] {
        let world = World::new();
        let launch = world.launch(world.revival(), &Child::new(77));
        let config = read_config(&world.host, Path::new("/async-cfg-run-1.json")).expect("written");
        let startup = Startup::begin(&world.host, &0, &config, 30_000).expect("it is free");
        let said = world.file("runner-startup.json").expect("it says ready");
        let token = said["token"].as_str().expect("text").to_owned();
        let word = |file: &'static str, action: &'static str| -> Nap {
            let text = format!(r#"{{"action":"{action}","token":"{token}"}}"#);
            Box::new(move |host: &FaultHost| {
                host.put(&format!("{RUN}/{file}"), &text);
                if wakes { vec![0] } else { Vec::new() }
            })
        };
        on_the_way(
            &world,
            [
                word("runner-startup-ack.json", "ack"),
                word("runner-startup-confirm.json", "confirm"),
                word("runner-startup-proceed.json", "proceed"),
            ],
        );
        let since = world.host.now_ms();
        let committed = startup.wait().expect("it was let in");
        assert_eq!(world.host.now_ms() - since, if wakes { 0 } else { 3 });
        drop((committed, launch));
    }
}

#[test]
fn a_fresh_runner_watches_only_when_it_is_kept_waiting() {
    let world = World::new();
    let launch = world.launch(world.request(), &Child::new(77));
    let config = read_config(&world.host, Path::new("/async-cfg-run-1.json")).expect("written");
    let startup = Startup::begin(&world.host, &0, &config, 150).expect("nothing is taken");
    let since = world.host.now_ms();
    startup.wait().expect_err("nobody lets it in");
    assert_eq!(world.host.script().watched_at_ms, [since + 100], "after the quick looks");
    drop(launch);
}
