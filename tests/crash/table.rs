//! What the explorations of this folder come to, operation by operation.
//!
//! Theory of operation. Each exploration hands its outcome to [`seen`], and each deliberate mistake to
//! [`caught`]; both fail the test that they are called from when the outcome is not as it has to be.
//! Both also remember it for the thread that they run on, so that the test below can run every such
//! test again and print one table:
//!
//! ```sh
//! cargo test --test crash table -- --nocapture
//! ```
//!
//! It reads the sources as well: every public function of the store that takes a writing host has to
//! stand in the table, so has one of the launcher and of a runner's start, and every test that adds to it
//! in the list here.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use testkit::fault::Exploration;

use crate::{
    advisory, ask, atomic, deferred, directory, ending, held_session, journal, launch, lease,
    markers, nested, proof, prune, publish, recover, release, reserve, run, runner, sidecar, slot,
    startup,
};

thread_local! {
    static SEEN: RefCell<Vec<(String, Exploration)>> = const { RefCell::new(Vec::new()) };
    static CAUGHT: RefCell<Vec<(String, String)>> = const { RefCell::new(Vec::new()) };
}

/// An exploration without a deliberate mistake: no disk may break an invariant, with a journal or without,
/// and both models have to have been played out.
pub(crate) fn seen(operation: &str, seen: &Exploration) {
    whole(operation, seen);
    let without = seen.without_journal.as_deref().expect("it was explored without one as well");
    whole(&format!("{operation}, without a journal"), without);
}

/// The same of an operation whose number of effects stands in a table of the spec.
pub(crate) fn stepped(operation: &str, seen: &Exploration, steps: usize) {
    self::seen(operation, seen);
    assert_eq!(seen.steps, steps, "{operation}: the steps are those of the table");
}

fn whole(operation: &str, seen: &Exploration) {
    assert!(seen.violations.is_empty(), "{operation}: {:#?}", seen.violations);
    assert_eq!(seen.process_states, seen.steps + 1, "{operation}: a crash after every step");
    assert!(seen.states > seen.process_states, "{operation}: both models were played out");
    SEEN.with_borrow_mut(|rows| rows.push((operation.to_owned(), seen.clone())));
}

/// An exploration with a deliberate mistake, which has to break an invariant.
pub(crate) fn caught(operation: &str, mistake: &str, seen: &Exploration) {
    assert!(!seen.violations.is_empty(), "{operation}: not caught: {mistake}");
    CAUGHT.with_borrow_mut(|rows| rows.push((operation.to_owned(), mistake.to_owned())));
}

/// A list of tests with their names.
macro_rules! tests {
    ($($module:ident :: $test:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($test)), $module::$test as fn())),*]
    };
}

/// Functions that take a writing host and are no operation on the disk, with the reason.
const NO_OPERATION: [(&str, &str); 5] = [
    (
        "ended_slots::release",
        "it is slot::reconcile with what is known of the runs, and a line in a log",
    ),
    ("identity::instance_id", "it draws chance"),
    ("retry::from_env", "it reads a variable"),
    ("retry::run", "it calls what it is given, and waits"),
    ("slot::of_runner", "it looks only; its errors tell the free room of a disk"),
];

#[test]
fn table_of_every_operation_with_its_states_and_of_every_mistake_that_is_caught() {
    let tests = tests![
        atomic::each_level_keeps_its_promise_after_every_crash,
        atomic::a_dropped_flush_or_a_wrong_order_is_caught,
        sidecar::a_patch_is_whole_or_absent_after_every_crash,
        advisory::a_patch_under_the_lock_is_whole_or_absent_after_every_crash,
        journal::a_process_crash_loses_no_earlier_line,
        journal::a_log_that_is_moved_aside_loses_no_line_to_the_death_of_a_process,
        directory::a_durable_file_in_new_directories_is_reached_after_every_crash,
        directory::a_single_directory_is_there_once_acknowledged_and_gone_once_removed,
        directory::a_directory_that_is_not_flushed_is_caught,
        deferred::what_waits_is_lost_in_a_crash_and_nothing_else,
        deferred::a_terminal_record_out_of_the_reserve_is_whole_after_every_crash,
        prune::every_crash_of_a_removal_leaves_a_run_that_is_whole_gone_or_found_again,
        prune::a_note_that_is_lost_or_goes_too_early_is_caught,
        recover::a_record_that_comes_too_late_and_a_status_before_its_result_are_caught,
        recover::every_crash_of_an_apply_is_made_good_by_the_next_one,
        recover::every_crash_of_an_undo_is_made_good_by_the_next_one,
        release::every_crash_of_freeing_a_slot_leaves_it_with_its_owner_or_free,
        release::every_crash_of_freeing_a_lease_leaves_it_stale_or_free,
        reserve::a_reserve_is_whole_absent_or_made_whole_after_every_crash,
        reserve::a_reserve_that_is_made_again_is_whole_absent_or_made_whole_after_every_crash,
        reserve::a_release_gives_the_room_back_in_one_step,
        run::a_new_run_is_absent_empty_or_whole_after_every_crash,
        run::a_dropped_flush_or_a_wrong_order_of_a_new_run_is_caught,
        run::an_account_is_whole_and_an_end_is_kept_after_every_crash,
        run::a_dropped_flush_or_a_wrong_order_of_an_account_is_caught,
        run::a_failed_launch_is_told_whole_after_every_crash,
        markers::a_marker_is_kept_after_every_crash,
        markers::a_run_that_ends_is_in_an_index_after_every_crash,
        markers::a_released_run_is_out_of_the_active_index_after_every_crash,
        markers::a_terminal_marker_is_whole_and_kept_after_every_crash,
        markers::a_wrong_order_or_a_dropped_flush_of_the_indexes_is_caught,
        markers::a_removal_that_does_not_happen_is_caught,
        publish::a_first_result_is_found_after_every_crash,
        publish::a_second_result_takes_the_place_of_the_first_after_every_crash,
        publish::a_promotion_is_complete_or_still_to_do_after_every_crash,
        publish::a_snapshot_is_found_after_every_crash,
        publish::a_delivery_mark_is_whole_after_every_crash,
        publish::a_wrong_order_or_a_dropped_flush_of_a_publication_is_caught,
        publish::a_wrong_order_or_a_dropped_flush_of_the_smaller_operations_is_caught,
        publish::an_index_before_its_payload_is_caught,
        lease::every_crash_of_an_acquisition_leaves_a_lease_that_someone_can_take,
        lease::every_crash_of_an_update_leaves_the_old_record_or_the_new_one,
        lease::every_crash_of_a_release_leaves_a_lease_that_someone_can_take,
        lease::a_dropped_flush_or_a_wrong_order_is_caught,
        slot::every_crash_leaves_a_slot_with_its_owner_or_none_and_never_a_frozen_one,
        slot::a_dropped_flush_or_a_wrong_order_is_caught,
        proof::every_crash_of_a_preparation_can_be_gone_on_from,
        proof::every_crash_of_a_finalisation_can_be_completed,
        proof::the_first_proof_stays_after_every_crash,
        proof::a_runner_that_died_before_it_released_its_lease_leaves_an_unknown_end,
        proof::a_dropped_flush_or_a_wrong_order_is_caught,
        nested::a_budget_is_whole_or_none_after_every_crash,
        nested::a_route_is_in_the_making_or_whole_after_every_crash,
        nested::a_route_that_lost_its_file_has_it_again_after_every_crash,
        nested::news_of_a_nested_run_are_whole_or_absent_after_every_crash,
        nested::no_news_are_lost_by_a_projection_after_every_crash,
        nested::news_that_are_removed_before_they_are_folded_in_are_caught,
        nested::the_places_of_nested_runs_are_there_once_acknowledged,
        launch::what_a_preparation_holds_is_accounted_for_after_every_crash,
        launch::a_run_is_complete_when_it_is_let_in_after_every_crash,
        launch::a_revival_is_led_in_order_after_every_crash,
        launch::a_runner_speaks_only_of_a_session_that_it_holds_after_every_crash,
        launch::a_launch_that_fails_is_told_before_anything_is_given_back_after_every_crash,
        startup::a_message_is_whole_or_absent_after_the_death_of_its_process,
        startup::a_configuration_is_there_or_gone_after_every_crash,
        startup::the_session_in_a_candidate_is_whole_after_every_crash,
        startup::a_runner_that_gives_up_gives_its_session_back_first_after_every_crash,
        startup::a_runner_that_cannot_begin_says_so_before_it_frees_its_session_after_every_crash,
        ending::every_crash_of_an_observation_leaves_a_pending_proof_or_a_true_one,
        ending::every_crash_of_a_witness_that_was_told_leaves_a_pending_proof_or_a_true_one,
        ending::every_crash_of_an_account_of_writers_leaves_the_old_one_or_the_new_one,
        ending::every_crash_of_a_record_of_an_observer_leaves_it_whole_or_absent,
        ending::every_crash_of_a_release_for_a_runner_leaves_the_slot_or_a_free_one,
        ending::every_crash_of_a_statement_that_nobody_saw_leaves_pending_or_the_statement,
        held_session::every_crash_of_an_observer_that_frees_a_session_says_so_only_when_it_is_free,
        runner::every_crash_of_a_run_leaves_an_end_with_its_result_or_none,
        runner::every_crash_of_a_session_leaves_an_end_with_its_result_or_none,
        runner::an_end_of_a_session_before_its_result_is_caught,
        runner::every_crash_of_asking_for_steps_leaves_a_request_or_none,
        runner::every_crash_of_taking_up_requests_leaves_each_there_or_told,
        ask::every_crash_of_a_request_leaves_it_whole_or_absent,
        runner::every_crash_of_closing_an_inbox_leaves_whole_markers_or_none,
        runner::every_crash_of_an_acknowledgement_leaves_it_whole_or_absent,
    ];
    assert_eq!(sources_that_add(), {
        let mut names: Vec<_> = tests.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.sort();
        names
    });
    for (_, test) in tests {
        test();
    }
    let (rows, mistakes) = (SEEN.take(), CAUGHT.take());
    let (mut steps, mut process, mut power) = (0, 0, 0);
    println!("operation: steps, process-crash states, power-loss states, violations");
    for (operation, seen) in &rows {
        let by_power = seen.states - seen.process_states;
        let violations = seen.violations.len();
        println!("{operation}: {}, {}, {by_power}, {violations}", seen.steps, seen.process_states);
        steps += seen.steps;
        process += seen.process_states;
        power += by_power;
    }
    println!("{} explorations: {steps}, {process}, {power}, 0", rows.len());
    println!("sabotages that are caught:");
    for (number, (operation, mistake)) in mistakes.iter().enumerate() {
        println!("{}. {operation}: {mistake}", number + 1);
    }
    assert!(mistakes.len() >= 10, "{} mistakes", mistakes.len());
    for operation in operations_of_the_store() {
        let told = rows.iter().any(|(name, _)| names(name).contains(&operation.as_str()));
        let excused = NO_OPERATION.iter().any(|(name, _)| *name == operation);
        assert!(told || excused, "{operation} takes a writing host and is not explored");
    }
}

/// The functions that the name of a row is about: `module::function`, also of a type.
fn names(row: &str) -> Vec<&str> {
    row.split([' ', ',']).filter(|word| word.contains("::")).collect()
}

fn sources(folder: &str) -> Vec<(String, String)> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the sources are part of the project") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            let stem = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            files.push((stem, std::fs::read_to_string(&path).expect("text")));
        }
    }
    files.sort();
    files
}

/// Every test of this folder that others may call: those that add to the table.
fn sources_that_add() -> Vec<String> {
    let mut found = Vec::new();
    for (module, text) in sources("tests/crash") {
        for part in text.split("#[test]\npub(crate) fn ").skip(1) {
            let name = part.split('(').next().unwrap_or_default();
            found.push(format!("{module}::{name}"));
        }
        let calls = ["table::seen(", "table::stepped(", "table::caught("];
        let calls = calls.iter().any(|call| text.contains(call));
        let adds = text.contains("#[test]\npub(crate) fn ");
        assert!(adds || !calls || module == "table", "{module} adds to the table from outside");
    }
    found.sort();
    found
}

/// Every public function of the store, the launcher and the start of a runner that takes a writing host.
fn operations_of_the_store() -> Vec<String> {
    let mut found = Vec::new();
    let folders = ["src/store", "src/launcher", "src/runner/startup"];
    for (module, text) in folders.into_iter().flat_map(sources) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for part in code.split("pub fn ").skip(1) {
            let head = part.split('{').next().unwrap_or_default();
            let name = head.split(['<', '(']).next().unwrap_or_default();
            if head.contains("WriteHost") {
                found.push(format!("{module}::{name}"));
            }
        }
    }
    found.sort();
    found.dedup();
    assert!(found.len() >= 30, "the operations are found: {found:?}");
    found
}
