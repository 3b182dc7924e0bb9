//! Trying again while another program holds a file: how often, how long, and what the caller is told.
//!
//! The host in memory makes each attempt fail as the system would, and only a wait moves its clock, so
//! the times are exact. On Windows the same is seen with real files (`tests/windows`).
//! Spec: RS-RETRY-01 to RS-RETRY-07; facts W-10 to W-15.

use std::io;

use runstore::store::atomic::{Durability, Options, Step, Target, replace};
use runstore::store::directory::{Made, create};
use runstore::store::host::{Host as _, WriteHost as _};
use runstore::store::retry::{BUDGET_VARIABLES, LADDER_MS, RetryPolicy, is_transient};
use testkit::fault::{FaultHost, Injected};

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const NAME: &str = "status.json";
/// Effects of an ordered replace before its rename: create, write, flush.
const RENAME: usize = 3;

/// A host whose rename is refused for the first `times` attempts.
fn held(times: usize, errno: i32) -> FaultHost {
    let host = FaultHost::new();
    (RENAME..RENAME + times).for_each(|n| host.fail_at(n, Injected::Errno(errno)));
    host
}

fn always() -> Options {
    Options::new(Durability::Ordered).retry(RetryPolicy::always())
}

fn names(host: &FaultHost) -> Vec<String> {
    host.tree().into_keys().collect()
}

#[test]
fn the_ladder_has_nine_waits_of_7885_ms_in_all() {
    assert_eq!(LADDER_MS, [10, 25, 50, 100, 200, 500, 1000, 2000, 4000]);
    assert_eq!(LADDER_MS.iter().sum::<u64>(), 7885);
    assert_eq!(RetryPolicy::always().waits_ms(), LADDER_MS);
}

#[test]
fn without_being_asked_only_windows_tries_again() {
    let expected: &[u64] = if cfg!(windows) { &LADDER_MS } else { &[] };
    assert_eq!(RetryPolicy::default().waits_ms(), expected);
    assert_eq!(Options::new(Durability::Durable).retry, RetryPolicy::default());
    assert!(RetryPolicy::never().waits_ms().is_empty());
}

#[test]
fn every_rung_is_climbed_and_told() {
    for errno in [EPERM, EACCES, EBUSY] {
        for times in 0..=LADDER_MS.len() {
            let host = held(times, errno);
            let started_ms = host.now_ms();
            let done = replace(&host, &0, NAME, b"{}", &always()).expect("let go in time");
            let waited_ms: u64 = LADDER_MS[..times].iter().sum();
            assert_eq!(done.rename.made as usize, times + 1, "one attempt more than refusals");
            assert_eq!(done.rename.waited_ms, waited_ms, "errno {errno}, {times} refusals");
            assert_eq!(host.now_ms() - started_ms, waited_ms as i64, "what is told was waited");
            assert_eq!(names(&host), [NAME]);
        }
    }
}

#[test]
fn a_file_that_is_never_let_go_is_an_error_that_says_what_to_do_and_leaves_no_temp_file() {
    let host = held(10, EBUSY);
    let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("held all the time");
    assert_eq!((e.step, e.attempts.made, e.attempts.waited_ms), (Step::Rename, 10, 7885));
    assert!(is_transient(&e.source), "the cause is the system's: {}", e.source);
    let text = e.to_string();
    for part in [NAME, "10 attempts over 7885 ms", "another program", "try again"] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    assert!(names(&host).is_empty(), "{:?}", names(&host));
}

#[test]
fn whatever_does_not_say_held_is_not_tried_again() {
    for errno in [2, 5, 17, 20, 28, 30, 39] {
        let host = held(1, errno);
        let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("refused");
        assert_eq!((e.attempts.made, e.attempts.waited_ms), (1, 0), "errno {errno}");
        assert!(names(&host).is_empty(), "errno {errno}: {:?}", names(&host));
    }
}

#[test]
fn a_refusal_of_our_own_is_no_held_file() {
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ResourceBusy] {
        assert!(!is_transient(&io::Error::new(kind, "another user's")), "{kind:?}");
        assert!(!is_transient(&kind.into()), "{kind:?}");
    }
    let host = FaultHost::new();
    host.create(&0, "d".as_ref(), 0o600).expect("room");
    let e = create(&host, &0, "d", &RetryPolicy::always()).expect_err("a file is in its place");
    assert_eq!((e.attempts.made, e.attempts.waited_ms), (1, 0));
}

#[test]
fn only_a_rename_and_a_new_directory_are_tried_again() {
    for (effect, step) in [(0, Step::Create), (1, Step::Write), (2, Step::Flush)] {
        let host = FaultHost::new();
        host.fail_at(effect, Injected::Errno(EACCES));
        let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("refused");
        assert_eq!((e.step, e.attempts.waited_ms), (step, 0));
    }
    let host = FaultHost::new();
    host.fail_at(RENAME, Injected::Errno(28));
    host.fail_at(RENAME + 1, Injected::Errno(EACCES));
    let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("refused");
    assert!(e.cleanup.is_some(), "cleaning up is tried once, and the rest is told");
    assert_eq!(host.calls(), RENAME + 2);
}

#[test]
fn a_rename_that_must_find_nothing_is_tried_again_as_well_but_not_when_something_is_there() {
    let host = held(2, EACCES);
    let new = always().target(Target::New);
    let done = replace(&host, &0, NAME, b"{}", &new).expect("let go in time");
    assert_eq!((done.rename.made, done.rename.waited_ms), (3, 35));
    let e = replace(&host, &0, NAME, b"{}", &new).expect_err("it is there");
    assert_eq!((e.source.kind(), e.attempts.made), (io::ErrorKind::AlreadyExists, 1));
}

#[test]
fn somebody_who_lets_go_while_it_is_waited_is_noticed_at_the_next_attempt() {
    let host = held(1, EACCES);
    // Right before the second attempt another writer has put its text there.
    host.interrupt_at(RENAME + 1, |host| {
        let file = host.create(&0, NAME.as_ref(), 0o600).expect("room");
        host.write(&file, b"theirs").expect("room");
    });
    let done = replace(&host, &0, NAME, b"ours", &always()).expect("let go in time");
    assert_eq!((done.rename.made, done.rename.waited_ms), (2, 10));
    assert_eq!(host.tree()[NAME].as_deref(), Some(b"ours".as_slice()));
}

#[test]
fn a_new_directory_tells_its_attempts_too() {
    let host = FaultHost::new();
    (0..3).for_each(|n| host.fail_at(n, Injected::Errno(EBUSY)));
    let (_, made) = create(&host, &0, "d", &RetryPolicy::always()).expect("let go in time");
    let Made::Created(attempts) = made else { panic!("it was not there") };
    assert_eq!((attempts.made, attempts.waited_ms), (4, 85));
    let host = FaultHost::new();
    (0..10).for_each(|n| host.fail_at(n, Injected::Errno(EBUSY)));
    let e = create(&host, &0, "d", &RetryPolicy::always()).expect_err("held all the time");
    assert_eq!((e.step, e.attempts.made), (Step::CreateDirectory, 10));
    assert_eq!(e.attempts.waited_ms, 7885);
}

#[test]
fn a_budget_shortens_the_waits_and_keeps_their_number() {
    let clamped = |budget| RetryPolicy::always().within(budget).waits_ms().to_vec();
    for (budget, expected) in [
        (0, vec![0; 9]),
        (9, vec![9, 0, 0, 0, 0, 0, 0, 0, 0]),
        (10, vec![10, 0, 0, 0, 0, 0, 0, 0, 0]),
        (100, vec![10, 25, 50, 15, 0, 0, 0, 0, 0]),
        (7884, vec![10, 25, 50, 100, 200, 500, 1000, 2000, 3999]),
        (7885, LADDER_MS.to_vec()),
        (u64::MAX, LADDER_MS.to_vec()),
    ] {
        assert_eq!(clamped(budget), expected, "budget {budget}");
        let host = held(10, EACCES);
        let policy = RetryPolicy::always().within(budget);
        let e = replace(&host, &0, NAME, b"{}", &always().retry(policy)).expect_err("held");
        assert_eq!(e.attempts.made, 10, "the number of attempts never changes");
        assert_eq!(e.attempts.waited_ms, budget.min(7885));
    }
    let twice = RetryPolicy::always().within(100).within(5000);
    assert_eq!(twice.waits_ms(), clamped(100), "a second budget takes nothing back");
}

#[test]
fn each_budget_variable_counts_and_ours_comes_first() {
    for variable in BUDGET_VARIABLES {
        let host = held(10, EACCES);
        host.set_env(variable, " 100 ");
        let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("held");
        assert_eq!((e.attempts.made, e.attempts.waited_ms), (10, 100), "{variable}");
    }
    let host = FaultHost::new();
    host.set_env("PI_SUBAGENT_FS_RETRY_MAX_TOTAL_MS", "100");
    host.set_env("DM_SUBAGENT_FS_RETRY_MAX_TOTAL_MS", "200");
    let waits = |host: &FaultHost| {
        let policy = RetryPolicy::always().within_env(host).expect("a number");
        policy.waits_ms().iter().sum::<u64>()
    };
    assert_eq!(waits(&host), 100);
    host.set_env("RUNSTORE_FS_RETRY_MAX_TOTAL_MS", "  ");
    assert_eq!(waits(&host), 100, "a blank variable is not set");
    host.set_env("RUNSTORE_FS_RETRY_MAX_TOTAL_MS", "0");
    assert_eq!(waits(&host), 0, "ours comes first");
    host.set_env("RUNSTORE_FS_RETRY_MAX_TOTAL_MS", "99999999999999999999999");
    assert_eq!(waits(&host), 7885, "more than the ladder is the ladder");
}

#[test]
fn a_budget_that_is_no_number_is_an_error_where_it_is_read() {
    for value in ["1.5", "-1", "+1", "abc", "1e3", "10ms", "0x10"] {
        for variable in BUDGET_VARIABLES {
            let host = held(1, EACCES);
            host.set_env(variable, value);
            let e = RetryPolicy::from_env(&host).expect_err("no whole number");
            assert_eq!(e.variable, variable, "{value}");
            let e = replace(&host, &0, NAME, b"{}", &always()).expect_err("not tried again");
            assert_eq!((e.attempts.made, e.attempts.waited_ms), (1, 0));
            assert_eq!(e.source.kind(), io::ErrorKind::PermissionDenied, "the cause stays");
            assert!(e.source.to_string().contains(variable), "{}", e.source);
            assert!(names(&host).is_empty(), "{:?}", names(&host));
        }
    }
}

#[test]
fn a_bad_budget_is_no_matter_where_nothing_is_held_or_one_attempt_was_asked_for() {
    let host = FaultHost::new();
    host.set_env(BUDGET_VARIABLES[0], "abc");
    replace(&host, &0, NAME, b"{}", &always()).expect("nobody holds it");
    let host = held(1, EACCES);
    host.set_env(BUDGET_VARIABLES[0], "abc");
    let never = always().retry(RetryPolicy::never());
    let e = replace(&host, &0, NAME, b"{}", &never).expect_err("one attempt");
    assert!(!e.source.to_string().contains(BUDGET_VARIABLES[0]), "{}", e.source);
}

#[test]
fn a_deadline_cuts_the_last_wait_and_ends_the_attempts() {
    for (left_ms, made, waited_ms) in [
        (0, 1, 0),
        (-5, 1, 0),
        (1, 2, 1),
        (10, 2, 10),
        (40, 4, 40),
        (385, 6, 385),
        (9000, 10, 7885),
    ] {
        // The clean-up after the last attempt goes through.
        let host = held(made as usize, EACCES);
        let policy = RetryPolicy::always().until(host.now_ms() + left_ms);
        let e = replace(&host, &0, NAME, b"{}", &always().retry(policy)).expect_err("held");
        let spent = (e.attempts.made, e.attempts.waited_ms);
        assert_eq!(spent, (made, waited_ms), "{left_ms} ms left");
        assert!(names(&host).is_empty(), "{:?}", names(&host));
        let host = FaultHost::new();
        (0..10).for_each(|n| host.fail_at(n, Injected::Errno(EACCES)));
        let e = create(&host, &0, "d", &policy).expect_err("held");
        let spent = (e.attempts.made, e.attempts.waited_ms);
        assert_eq!(spent, (made, waited_ms), "a directory, {left_ms} ms left");
    }
}

#[test]
fn the_earlier_deadline_counts_and_wins_over_a_budget() {
    let host = held(10, EACCES);
    let now_ms = host.now_ms();
    let policy = RetryPolicy::always().within(1000).until(now_ms + 50).until(now_ms + 5000);
    let e = replace(&host, &0, NAME, b"{}", &always().retry(policy)).expect_err("held");
    assert_eq!(e.attempts.waited_ms, 50);
    assert_eq!(host.now_ms() - now_ms, 50);
}

#[test]
fn a_file_that_is_let_go_at_the_deadline_is_written() {
    let host = held(2, EACCES);
    let policy = RetryPolicy::always().until(host.now_ms() + 20);
    let done = replace(&host, &0, NAME, b"{}", &always().retry(policy)).expect("let go in time");
    assert_eq!((done.rename.made, done.rename.waited_ms), (3, 20), "10 ms, then the rest of 20");
}
