//! What an inspection says of a run at each stage of its start.
//! Spec: RS-START-12, RS-START-14 to RS-START-16, RS-START-23.

use std::ops::ControlFlow;
use std::path::Path;

use runstore::inspect::{Inspection, RunReport};
use runstore::protocol::evidence::Times;
use runstore::protocol::process::{Presence, ProcessSeen};
use runstore::runner::startup::Startup;
use runstore::store::host::Host as _;
use runstore::store::process::Exit;
use runstore::store::{Depth, Opened, Store};
use testkit::child::{Child, Spawner};
use testkit::launch::lead;

use super::World;
use super::pairs::config;

/// Verdict, stage and the ids of what is found.
fn told(world: &World, later_ms: i64) -> (String, String, Vec<String>) {
    let now_ms = world.host.now_ms() + later_ms;
    let opened = Store::open(&world.host, Path::new("/"), now_ms, Times::default());
    let Ok(Opened::Store(store)) = opened else { panic!("it is a store") };
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut each = |report: RunReport| {
        let stage = report.stage.map(|stage| stage.to_string()).unwrap_or_default();
        let findings = report.findings.iter().map(|finding| finding.id.to_string()).collect();
        found.push((report.verdict.to_string(), stage, findings));
        ControlFlow::Continue(())
    };
    Inspection::new(&store, Depth::Full).each(&mut each, &mut problems);
    assert_eq!(found.len(), 1, "one run: {found:?}, {problems:?}");
    found.remove(0)
}

fn runs(world: &World, pid: i64) {
    let presence = Presence::Present;
    world.host.set_process(pid, ProcessSeen { presence, ..ProcessSeen::default() });
}

#[test]
fn each_stage_of_a_start_is_told_as_it_is() {
    const HOUR_MS: i64 = 3_600_000;
    let is = |world: &World, later_ms: i64, verdict: &str, stage: &str, findings: &[&str]| {
        let (found, at, told) = told(world, later_ms);
        assert_eq!((found.as_str(), at.as_str()), (verdict, stage));
        assert_eq!(told, findings, "{verdict}, {stage}");
    };
    let world = World::new();
    let prepared = world.prepared(world.revival());
    // The note is preparation, and no finding by itself.
    is(&world, 0, "starting", "prepared", &["config-left"]);
    is(&world, HOUR_MS, "never-started", "prepared", &["config-left"]);
    let child = Child::new(77);
    runs(&world, 77);
    runs(&world, world.host.system().own_pid);
    let mut launch = prepared.start(&mut Spawner::of(&child)).expect("made");
    is(&world, 0, "starting", "spawned", &["config-left"]);
    let config = config(&world);
    let mut startup = Startup::begin(&world.host, &0, &config, 30_000).expect("free");
    is(&world, 0, "starting", "ready", &[]);
    lead(&world.host, &mut launch, || {
        startup.poll().expect("our words");
    });
    is(&world, 0, "starting", "proceed", &[]);
    startup.poll().expect("let in");
    let committed = startup.commit().expect("nothing fails here");
    is(&world, 0, "starting", "spawned", &[]);
    drop(committed);
    // A failure before that, with a proof still to be made.
    let world = World::new();
    let child = Child::new(77).ends_at_look(1, Exit::Code(1));
    let mut launch = world.launch(world.request(), &child);
    lead(&world.host, &mut launch, || {});
    is(&world, 0, "start-failed", "spawned", &["end-unobservable", "overlay-differs"]);
    is(&world, HOUR_MS, "start-failed", "spawned", &["end-unobservable", "overlay-differs"]);
}
