//! The suite sees every mistake that it claims to see, and raises no alarm without one.

use serde_json::Value;

use super::{has_strace, held_to, suite, tells_orders};

#[test]
fn every_mistake_is_seen_by_a_check_of_its_clause_and_none_where_there_is_none() {
    if !tells_orders("every mistake of the zoo") {
        return;
    }
    let outcome = suite(&["prove", "--format", "json"]);
    let proof = held_to("prove", &outcome);
    let survivors: Vec<&Value> = proof["mutants"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|mutant| mutant["survived"] == true)
        .collect();
    assert!(survivors.is_empty(), "{survivors:#?}");
    assert_eq!(proof["falseAlarms"], serde_json::json!([]));
    assert_eq!(outcome.code, 0, "{}", outcome.errors());
    let summary = |key: &str| proof["summary"][key].as_u64().expect("a number");
    // Where nobody records system calls, what shows in them alone has no mistake.
    let without = proof["withoutMutant"].as_array().expect("a list");
    let (waived, must) = (summary("waived"), summary("mustClauses"));
    assert!(waived * 20 <= must, "{waived} of {must} clauses are waived");
    if has_strace() {
        assert!(without.is_empty(), "no check of these kills a mistake: {without:?}");
        assert!(summary("mutants") >= must - waived, "{}", proof["summary"]);
    }
}
