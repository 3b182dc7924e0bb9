//! The power is cut under real file systems: nothing is torn, and nothing that was acknowledged is lost.
//!
//! Theory of operation. The rig (`testkit::power`) records the block writes and flushes under ext4, xfs and
//! btrfs while the driver writes, builds disks that a power cut could leave, mounts each and looks at it. It
//! also runs three saboteurs, which it has to find out: a writer without flushes, one without the flush of the
//! directory, and without a journal one that gives an old file no second name. It needs root, `/dev/fuse`, loop
//! devices and the tools that make the file systems; each part that the machine does not permit is a `SKIP` with
//! the reason.
//!
//! `RUNSTORE_POWER_CUT=ROUNDSxSEED` sets the number of disks that are built for each flush (one, and two more
//! for each round) and the seed that they are chosen by.
//!
//! Not covered: operations of more than one file, and the flush of the parent of a new directory by itself,
//! because each of these file systems brings the entry of a directory along with the first flush inside it.
//! The explorations in this folder have both.

use std::process::Command;
use std::time::Duration;

use testkit::driver;
use testkit::power;
use testkit::process::skip;
use testkit::program::{self, Outcome};

/// The exit code of a rig that could not look at anything.
const UNABLE: i32 = 77;
/// File systems of the ring, with their ways of being mounted.
const FILE_SYSTEMS: usize = 6;
/// A rig that takes longer hangs; of the default size it takes some two minutes.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Rounds and seed.
fn size() -> [String; 2] {
    let Ok(text) = std::env::var("RUNSTORE_POWER_CUT") else { return ["1".into(), "1".into()] };
    let numbers: Vec<&str> = text.split('x').collect();
    match numbers[..] {
        [rounds, seed] if numbers.iter().all(|number| number.parse::<u32>().is_ok()) => {
            [rounds.into(), seed.into()]
        }
        _ => panic!("RUNSTORE_POWER_CUT is ROUNDSxSEED, not {text}"),
    }
}

fn run(mut command: Command, args: &[String]) -> Outcome {
    command.arg(driver::program()).args(args).env_remove("RUST_BACKTRACE");
    let outcome = program::run(command, LIMIT, None).expect("it was built");
    assert!(!outcome.late, "the rig hangs:\n{}{}", outcome.text(), outcome.errors());
    outcome
}

/// Says again, past the capture of the test harness, what the rig has left out. Returns how much that was.
fn skipped(outcome: &Outcome) -> usize {
    let errors = outcome.errors();
    let lines = errors.lines().filter_map(|line| line.strip_prefix("SKIP ")?.split_once(": "));
    lines.map(|(what, why)| skip(what, why)).count()
}

#[test]
fn no_power_cut_tears_a_file_or_loses_an_acknowledged_one() {
    if let Some(why) = power::refusal() {
        skip("power cuts", &why);
        return;
    }
    let outcome = run(power::command(&driver::power_cut()), &size());
    let skipped = skipped(&outcome);
    print!("{}", outcome.text());
    let said = format!("{}{}", outcome.text(), outcome.errors());
    if outcome.code == UNABLE {
        assert_eq!(skipped, FILE_SYSTEMS, "whatever was left out has a reason:\n{said}");
        return;
    }
    assert_eq!(outcome.code, 0, "a promise was broken or a saboteur not caught:\n{said}");
    let looked = format!("power cuts: {} of {FILE_SYSTEMS} file systems", FILE_SYSTEMS - skipped);
    assert!(outcome.text().contains(&looked), "whatever was left out has a reason:\n{said}");
}
