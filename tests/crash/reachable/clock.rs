//! A clock that is set by an hour, back and forth, in the middle of a recovery.
//!
//! Theory of operation. One run lives, one has ended, one is an orphan. The clock is set at one look at a process,
//! which is between reading a run and judging it, and back at one effect, which is between two changes or
//! within one; pairs of such moments are played. RS-REC-03, RS-REC-04, RS-REC-20.

use runstore::protocol::{RunState, layout};
use runstore::recover::Policy;

use super::Step;
use super::world::{World, path};

const HOUR_MS: i64 = 3_600_000;

fn world() -> World {
    let mut world = World::new();
    let end = Step::End(2, RunState::Complete);
    let told =
        [Step::Launch(0), Step::Launch(1), Step::Launch(2), Step::Work(0), Step::Die(1), end];
    for step in told {
        world.play(step, None).expect("nothing fails here");
    }
    world
}

/// Recovers while the clock is set at look `look` and back at effect `effect`, and then once more in peace.
fn recover(step_ms: i64, look: usize, effect: usize, policy: Policy) -> Result<(), String> {
    let mut world = world();
    let status = |world: &World, run| world.host.text(&path(run, layout::STATUS));
    let before = [0, 2].map(|run| status(&world, run));
    world.pass_ms(120_000);
    let set = |ms: i64| {
        move |host: &testkit::fault::FaultHost| {
            use runstore::store::host::Host as _;
            host.set_now_ms(host.now_ms() + ms);
        }
    };
    world.host.begin();
    world.host.interrupt_probe(look, set(step_ms));
    world.host.interrupt_at(effect, set(-step_ms));
    world.recover(policy).map_err(|e| e.to_string())?;
    world.look(Step::Recover)?;
    for _ in 0..2 {
        world.pass_ms(120_000);
        world.recover(policy).map_err(|e| e.to_string())?;
        world.look(Step::Recover)?;
    }
    if [0, 2].map(|run| status(&world, run)) != before {
        return Err("a run that lives, or has ended, was touched".to_owned());
    }
    let closed = world.counts.repairs.get("close-as-failed").copied().unwrap_or_default();
    let log = world.host.text(&path(1, layout::EVENTS)).unwrap_or_default();
    let told = log.matches("subagent.run.repaired_stale").count();
    if (closed, told) != (1, 1) {
        return Err(format!("closed {closed} times, told {told} times: {:?}", world.refused));
    }
    Ok(())
}

#[test]
fn a_clock_that_is_set_within_a_recovery_ends_nothing_that_lives_and_an_orphan_once() {
    for policy in [Policy::default(), Policy { grace_ms: 0, ..Policy::default() }] {
        for step_ms in [HOUR_MS, -HOUR_MS] {
            for look in [0, 1, 2, 4, 7] {
                for effect in (0..80).step_by(8) {
                    let done = recover(step_ms, look, effect, policy);
                    done.unwrap_or_else(|why| {
                        panic!("{step_ms} ms at look {look}, back at effect {effect}: {why}")
                    });
                }
            }
        }
    }
}
