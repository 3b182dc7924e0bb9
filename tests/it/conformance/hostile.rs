//! Subjects that hang, fork, flood, exit at once, or ignore what they are told.

use super::{judge, suite_in};

/// The verdict of each check of one scenario.
fn verdicts(scenario: &str, script: &str) -> Vec<(String, String)> {
    let (report, code) = judge(&["--scenario", scenario], &["sh", "-c", script, "subject"]);
    assert_eq!(code, 1, "{script}: {report}");
    let checks = report["checks"].as_array().expect("checks").iter();
    checks
        .map(|check| {
            let word = |key: &str| check[key].as_str().expect("a word").to_owned();
            (word("id"), word("verdict"))
        })
        .collect()
}

fn failed(verdicts: &[(String, String)]) -> Vec<&str> {
    verdicts.iter().filter(|(_, word)| word == "fail").map(|(id, _)| id.as_str()).collect()
}

#[test]
fn a_subject_that_exits_at_once_misses_what_it_did_not_do() {
    let seen = verdicts("fresh-complete", "exit 0");
    let failed = failed(&seen);
    for id in ["state", "first-status", "result-there", "candidate-counts", "config-gone"] {
        let id = format!("fresh-complete/{id}");
        let missed = seen.iter().any(|(check, word)| *check == id && word != "pass");
        assert!(missed, "{id}: {seen:?}");
    }
    assert!(failed.len() > 10, "{failed:?}");
    assert!(!failed.contains(&"fresh-complete/exit"), "it exits with 0");
}

#[test]
fn a_subject_that_hangs_and_takes_no_request_is_ended_within_its_time() {
    let script = "trap '' TERM INT HUP; while :; do sleep 1; done";
    let seen = verdicts("unknown-action", script);
    assert!(failed(&seen).contains(&"unknown-action/exit"), "{seen:?}");
}

#[test]
fn a_subject_that_floods_forks_and_writes_everywhere_is_cleaned_up() {
    let token = format!("conformance-{}", std::process::id());
    let script = format!(
        "for i in 1 2 3 4 5; do (setsid sh -c 'exec sleep 3{token_digits}' &) ; done; \
         mkdir -p \"$PI_SUBAGENTS_TEMP_ROOT/a/b/c\"; : >\"$PI_SUBAGENTS_TEMP_ROOT/a/b/c/d\"; \
         echo {token} >\"$PI_SUBAGENTS_TEMP_ROOT/async-subagent-runs/litter\"; yes",
        token_digits = std::process::id()
    );
    let seen = verdicts("unknown-action", &script);
    assert!(failed(&seen).contains(&"unknown-action/exit"), "{seen:?}");
    let left = std::fs::read_dir("/proc").into_iter().flatten().flatten().any(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&format!("3{}", std::process::id()))
    });
    assert!(!left, "nothing that it forked is left");
}

#[test]
fn stores_are_kept_when_that_is_asked_for() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let args = ["run", "--keep", "--clause", "fresh-complete/exit", "--", "true"];
    let outcome = suite_in(scratch.path(), &args);
    assert_eq!(outcome.code, 0, "{}", outcome.errors());
    let kept: Vec<_> = scratch.path().read_dir().expect("there").flatten().collect();
    assert_eq!(kept.len(), 1, "one directory holds all of it");
    let told = format!("the stores stay below {}", kept[0].path().display());
    assert!(outcome.errors().contains(&told), "{}", outcome.errors());
}
