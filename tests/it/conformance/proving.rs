//! The suite sees every mistake that it claims to see, and raises no alarm without one.

use serde_json::Value;

use super::{held_to, suite, tells_orders};

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
    assert!(summary("mutants") >= 280, "{}", proof["summary"]);
    // Every MUST clause that has a check has a mistake too; the others wait for their roles.
    let without = proof["withoutMutant"].as_array().expect("a list");
    let checks = ["runner", "reader", "observer"].map(|role| {
        let list = suite(&["list", "--role", role, "--format", "json"]);
        let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
        list["checks"].as_array().expect("a list").clone()
    });
    // Where nobody records system calls, flushes have neither checks nor mistakes.
    let has_flushes =
        proof["mutants"].as_array().expect("a list").iter().any(|m| m["clause"] == "RS-DUR-01");
    let all = checks.iter().flatten();
    for check in all.filter(|check| has_flushes || check["scenario"] != "flushes") {
        assert!(
            !without.contains(&check["clause"]),
            "{} has a check and no mutant",
            check["clause"]
        );
    }
}
