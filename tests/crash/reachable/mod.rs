//! Whatever happens to a store, in any order: what must hold always holds.
//!
//! Theory of operation. A story is a list of steps: runs are launched, work, end, die and are observed; parents take
//! results; recoverers repair and are taken back; the clock is set; the power goes. Any step may be cut off after
//! any of its effects, which is the death of whoever made it. [`world`] plays it with the operations of the library
//! on the host in memory, and looks at all files after each step. At last everybody is gone and a day passes; then
//! one recoverer must be able to clean up.
//!
//! `RUNSTORE_REACHABLE_CASES` sets the number of stories, and then they are new ones. RS-REC-03, RS-REC-05, RS-REC-12, RS-REC-14, RS-REC-19,
//! RS-REC-26, RS-REC-28.

mod clock;
mod look;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use runstore::protocol::RunState;

use world::World;

/// Runs of a story, all of one session.
const RUNS: usize = 3;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    Launch(usize),
    Work(usize),
    End(usize, RunState),
    /// Its runner is killed.
    Die(usize),
    /// Another process gets the number of its runner.
    Stranger(usize),
    Observe(usize),
    ObserverDies(usize),
    Deliver(usize),
    Recover,
    Undo,
    /// The clock is set by so many ms.
    Clock(i64),
    PowerCut(u64),
}

/// A step, and after how many effects whoever makes it dies.
type Scene = (Step, Option<usize>);

fn step() -> impl Strategy<Value = Step> {
    let run = 0..RUNS;
    let outcome = prop_oneof![
        3 => Just(RunState::Complete),
        1 => Just(RunState::Failed),
        1 => Just(RunState::Stopped),
    ];
    let clock = prop_oneof![Just(3_600_000), Just(-3_600_000), Just(61_000), 1_i64..10_000];
    prop_oneof![
        6 => run.clone().prop_map(Step::Launch),
        3 => run.clone().prop_map(Step::Work),
        5 => (run.clone(), outcome).prop_map(|(run, state)| Step::End(run, state)),
        3 => run.clone().prop_map(Step::Die),
        1 => run.clone().prop_map(Step::Stranger),
        4 => run.clone().prop_map(Step::Observe),
        2 => run.clone().prop_map(Step::ObserverDies),
        3 => run.prop_map(Step::Deliver),
        6 => Just(Step::Recover),
        2 => Just(Step::Undo),
        4 => clock.prop_map(Step::Clock),
        1 => any::<u64>().prop_map(Step::PowerCut),
    ]
}

fn scene() -> impl Strategy<Value = Scene> {
    (step(), prop_oneof![3 => Just(None), 1 => (0_usize..40).prop_map(Some)])
}

fn play(story: &[Scene]) -> Result<World, String> {
    let mut world = World::new();
    for (at, (step, cut)) in story.iter().enumerate() {
        world.play(*step, *cut).map_err(|why| format!("step {at}, {step:?} {cut:?}: {why}"))?;
    }
    world.clean_up()?;
    Ok(world)
}

#[test]
fn whatever_is_reached_ends_stay_proofs_are_true_slots_come_free_and_one_result_is_delivered() {
    let wanted = std::env::var("RUNSTORE_REACHABLE_CASES").ok();
    let cases = wanted.as_ref().map_or(200, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    // The same stories each time, unless somebody asks for others.
    let mut runner = match wanted {
        None => {
            let dice = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(config, dice)
        }
        Some(_) => TestRunner::new(config),
    };
    let mut seen = world::Counts::default();
    let story = proptest::collection::vec(scene(), 1..40);
    let done = runner.run(&story, |story| {
        let world = play(&story).map_err(TestCaseError::fail)?;
        COUNTS.with_borrow_mut(|counts| counts.add(&world.counts));
        Ok(())
    });
    COUNTS.with_borrow(|counts| seen.add(counts));
    println!("{cases} stories: {seen:?}");
    match done {
        Ok(()) => {}
        Err(TestError::Fail(why, story)) => panic!("{why}\nin {story:?}"),
        Err(e) => panic!("{e}"),
    }
    assert!(
        cases < 200 || seen.is_of_everything(),
        "a story that is never told proves nothing: {seen:?}"
    );
}

thread_local! {
    static COUNTS: std::cell::RefCell<world::Counts> = std::cell::RefCell::default();
}

/// Stories like those that went wrong once, cut off at every effect.
#[test]
fn what_was_found_stays_found() {
    use Step::{Clock, Deliver, Die, Launch, Recover, Undo};
    let tell = |story: &[Scene]| {
        play(story).map(drop).unwrap_or_else(|why| panic!("{why}\nin {story:?}"));
    };
    let orphan = [(Launch(0), None), (Die(0), None), (Clock(61_000), None)];
    for cut in 0..70 {
        // A recoverer dies with its text of a status in a temporary file, and may be taken back.
        let killed = [&orphan[..], &[(Recover, Some(cut))]].concat();
        tell(&killed);
        tell(&[&killed[..], &[(Undo, None)]].concat());
        // A result is about to be published anew, before its public name is free again.
        for mark in [4, 6] {
            let undone = [(Recover, None), (Undo, Some(cut)), (Deliver(0), Some(mark))];
            tell(&[&orphan[..], &undone].concat());
        }
    }
}

/// The check must be able to fail: a world with one lie in it is caught.
#[test]
fn a_lie_is_caught() {
    use Step::{Die, End, Launch, Observe};
    let told = [Launch(0), End(0, RunState::Complete), Observe(0)].map(|step| (step, None));
    for lie in world::LIES {
        let mut world = World::new();
        for (step, cut) in told.into_iter().chain([(Launch(1), None), (Die(1), None)]) {
            world.play(step, cut).expect("the truth");
        }
        world.lie(lie);
        let caught = world.look(Step::Recover).and_then(|()| world.clean_up());
        assert!(caught.is_err(), "{lie:?}");
    }
}
