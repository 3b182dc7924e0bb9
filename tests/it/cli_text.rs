//! What an answer looks like, as far as people and scripts rely on it.
//!
//! Theory of operation. Only what the contract fixes is checked: what comes first, which words begin
//! a line, which members an object has. The wording of the sentences is free.

use serde_json::Value;
use testkit::Store;
use testkit::process::now_ms;
use testkit::program;
use testkit::records;

use crate::ask::{self, assert_harmless, utf8};

/// A store with an orphan and a finished run.
fn two_runs() -> Store {
    let store = Store::new();
    records::finish(&store.run("run-finished"), now_ms());
    let run = store.run("run-orphaned");
    run.status(&records::running("run-orphaned", 999_999_999, now_ms() - 60_000));
    run.file("runner.stderr.log", "first line\nlast words\n");
    run.event(
        &serde_json::json!({"type": "subagent.run.started", "ts": 5, "runId": "run-orphaned"}),
    );
    store.active_marker("run-orphaned").terminal_marker("session-1", "run-finished", 5);
    store
}

#[test]
fn a_report_of_one_run_tells_verdict_evidence_reason_and_what_may_be_done() {
    let store = two_runs();
    let path = store.run("run-orphaned").path().to_owned();
    let outcome = ask::run(&["inspect", utf8(&path)]);
    let text = outcome.text();
    assert_eq!(outcome.code, 1, "an orphan needs attention");
    let first = text.lines().next().expect("a report has lines");
    assert!(
        first.starts_with("orphaned") && first.contains("run-orphaned"),
        "verdict first: {first}"
    );
    let line = |key: &str| {
        let head = format!("  {key}");
        text.lines().position(|l| l.starts_with(&head)).unwrap_or_else(|| panic!("{key}: {text}"))
    };
    let order = [line("observed"), line("because"), line("you may"), line("must not")];
    assert!(order.is_sorted(), "evidence, because, you may, must not, in this order:\n{text}");
    assert!(line("claimed") < line("because"), "what files say is evidence:\n{text}");
    let claimed = text.lines().nth(line("claimed")).expect("found above");
    assert!(claimed.contains("status.json"), "evidence names its file: {claimed}");
    assert!(claimed.contains(" ago"), "evidence names its time: {claimed}");
    assert!(text.contains("last words"), "the end of the error log is shown:\n{text}");
    assert!(text.contains(utf8(&path)), "the report says where the run is:\n{text}");
}

#[test]
fn a_report_of_a_store_shows_what_needs_attention_last_and_sums_up() {
    let store = two_runs();
    let outcome = ask::run(&["inspect", utf8(store.root())]);
    let text = outcome.text();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}:\n{text}"));
    assert!(at("run-finished") < at("run-orphaned"), "next to the prompt stands what matters");
    let last = text.trim_end().lines().last().expect("a report has lines");
    assert!(last.contains("orphaned") && last.contains("finished"), "a sum at the end: {last}");
    assert!(outcome.errors().is_empty(), "an answer is no talk: {}", outcome.errors());
}

#[test]
fn a_list_has_one_line_for_each_run() {
    let store = two_runs();
    let outcome = ask::run(&["list", utf8(store.root()), "--all"]);
    let text = outcome.text();
    let rows: Vec<_> = text.lines().filter(|line| line.contains("run-")).collect();
    assert_eq!(rows.len(), 2, "one line for each run:\n{text}");
    assert!(rows.iter().any(|r| r.starts_with("orphaned") && r.contains("running")), "{text}");
    assert!(rows.iter().any(|r| r.starts_with("finished") && r.contains("complete")), "{text}");
    let indexed = ask::run(&["list", utf8(store.root())]).text();
    assert_eq!(indexed.lines().filter(|l| l.contains("run-")).count(), 2, "{indexed}");
    let active = ask::run(&["list", utf8(store.root()), "--active"]).text();
    assert!(!active.contains("run-finished"), "a finished run is not active: {active}");
    let one = ask::run(&["list", utf8(store.root()), "--all", "--limit", "1"]).text();
    assert_eq!(one.lines().filter(|l| l.contains("run-")).count(), 1, "a limit limits: {one}");
}

#[test]
fn every_word_of_an_answer_is_explained() {
    let store = two_runs();
    store.run("torn").file("status.json", "{").file(".status.json.1.2.abc.tmp", "{}");
    store.run("linked").link("status.json", "x");
    let answer = ask::inspect(store.root());
    let mut words = Vec::new();
    for run in answer.runs() {
        words.push(run["verdict"].clone());
        words.extend(run["flags"].as_array().expect("flags").iter().cloned());
        words.extend(run["findings"].as_array().expect("findings").iter().map(|f| f["id"].clone()));
    }
    words.sort_by_key(Value::to_string);
    words.dedup();
    assert!(words.len() > 5, "the store has several words: {words:?}");
    for word in &words {
        let word = word.as_str().expect("a word is a string");
        let outcome = ask::run(&["explain", word]);
        assert_eq!(outcome.code, 0, "{word}: {}", outcome.errors());
        let first = outcome.text().lines().next().unwrap_or_default().to_owned();
        assert!(first.starts_with(word), "{word}: what is explained comes first: {first}");
    }
    let all = ask::run(&["explain"]).text();
    for word in ["orphaned", "never-started", "undelivered", "temp-litter", "RS-LIVE-06"] {
        assert!(all.contains(word), "without an id everything is listed: {word}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let store = two_runs();
    let root = utf8(store.root());
    // One instant for all, because a text tells ages.
    let now = format!("--now={}", now_ms());
    let plain = ask::run(&["inspect", root, &now]);
    assert_harmless("a pipe gets no colours", &plain.stdout);
    let never = ask::run(&["inspect", root, &now, "--color", "never"]);
    assert_eq!(never.text(), plain.text(), "never is what a pipe gets");
    let always = ask::run(&["inspect", root, &now, "--color", "always"]);
    assert!(always.text().contains("\u{1b}["), "always is also in a pipe, and over NO_COLOR");
    let stripped = regex_lite::Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern");
    let stripped = stripped.replace_all(&always.text(), "").into_owned();
    assert_eq!(stripped, plain.text(), "colours change no word");
    for format in ["json", "jsonl"] {
        let outcome = ask::run(&["inspect", root, "--format", format, "--color", "always"]);
        assert!(!outcome.text().contains('\u{1b}'), "{format} is for programs: no colours");
    }
    let coloured = |no_color: Option<&str>| {
        let mut command = program::command(&ask::binary(), &["inspect", root], store.root());
        command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        program::run(command, ask::LIMIT, None).expect("started").text().contains('\u{1b}')
    };
    assert!(coloured(None), "a pipe can be forced");
    assert!(!coloured(Some("1")), "NO_COLOR is obeyed");
}

#[test]
fn json_has_the_members_of_the_contract() {
    let store = two_runs();
    store.slot("pool", 0, &records::slot("run-orphaned", 5));
    store.lease("lease", &records::lease("run-gone", 1, "h", 5));
    store.result("run-gone", &records::result("run-gone", 5));
    let json = ask::inspect_with(store.root(), &["--now", "1790000000000"]).json;
    assert_eq!(json["schema"], "runstore.inspect/1");
    assert_eq!(json["nowMs"], 1_790_000_000_000_i64, "the instant of the answer");
    assert!(json["scope"].is_object(), "what was asked");
    for list in ["runs", "slots", "leases", "results", "problems"] {
        assert!(json[list].is_array(), "{list} is a list");
    }
    for list in ["slots", "leases", "results"] {
        assert_eq!(json[list].as_array().map(Vec::len), Some(1), "{list} of the store");
    }
    assert_eq!(json["summary"]["total"], 2);
    assert_eq!(json["summary"]["byVerdict"]["orphaned"], 1);
    for run in json["runs"].as_array().expect("a list") {
        assert_run(run);
    }
}

fn assert_run(run: &Value) {
    for text in ["runId", "path", "liveness", "verdict"] {
        assert!(run[text].is_string(), "{text} is a text: {run:#}");
    }
    assert!(run["path"].as_str().is_some_and(|p| p.starts_with('/')), "a path is absolute");
    assert!(run.get("recordedState").is_some(), "also when it is null: {run:#}");
    for list in ["flags", "evidence", "findings", "next", "mustNot", "children"] {
        assert!(run[list].is_array(), "{list} is a list: {run:#}");
    }
    assert!(run["proof"]["state"].is_string() && run["proof"]["counts"].is_boolean(), "{run:#}");
    for evidence in run["evidence"].as_array().expect("a list") {
        let kind = evidence["kind"].as_str().unwrap_or_default();
        assert!(matches!(kind, "observed" | "claimed" | "inferred"), "{evidence}");
        assert!(evidence["text"].is_string(), "{evidence}");
    }
    for finding in run["findings"].as_array().expect("a list") {
        let severity = finding["severity"].as_str().unwrap_or_default();
        assert!(matches!(severity, "error" | "warning" | "note"), "{finding}");
        assert!(finding["id"].is_string() && finding["text"].is_string(), "{finding}");
    }
    for next in run["next"].as_array().expect("a list") {
        assert!(next["action"].is_string() && next["why"].is_string(), "{next}");
    }
}

#[test]
fn jsonl_has_one_whole_report_in_each_line() {
    let store = two_runs();
    for verb in [vec!["inspect"], vec!["list", "--all"]] {
        let mut args = verb.clone();
        args.extend([utf8(store.root()), "--format", "jsonl"]);
        let outcome = ask::run(&args);
        let text = outcome.text();
        assert!(text.ends_with('\n'), "{verb:?}: every line is ended");
        let reports: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert_eq!(reports.len(), 2, "{verb:?}: one line for each run");
        reports.iter().for_each(assert_run);
    }
}

#[test]
fn json_keeps_every_character_of_a_name() {
    let store = Store::new();
    let name = "del\u{7f}csi\u{9b}31m esc\u{1b}[31m bidi\u{202e}";
    records::finish(&store.run(name), now_ms());
    for color in ["auto", "always", "never"] {
        let answer = ask::inspect_with(store.root(), &["--color", color]);
        assert_eq!(answer.verdict(name), "finished", "--color {color}: a string is data");
    }
}

#[test]
fn roots_are_those_of_the_environment() {
    let store = two_runs();
    let mut command =
        program::command(&ask::binary(), &["roots", "--format", "json"], store.root());
    command.env("PI_SUBAGENTS_TEMP_ROOT", store.root());
    let outcome = program::run(command, ask::LIMIT, None).expect("started");
    let json: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    assert_eq!(json["schema"], "runstore.roots/1");
    for root in json["roots"].as_array().expect("a list") {
        assert!(root["path"].is_string() && root["exists"].is_boolean(), "{root}");
    }
    let lines = ask::run(&["roots"]);
    assert_harmless("roots", &lines.stdout);
    assert_eq!(lines.code, 0, "where stores would be is always known");
}

#[test]
fn a_record_that_cannot_be_read_claims_nothing_of_a_process() {
    let store = Store::new();
    let torn = store.run("torn").file("status.json", "{").path().to_owned();
    let linked = store.run("linked").link("status.json", "x").path().to_owned();
    for path in [torn, linked] {
        let text = ask::run(&["inspect", utf8(&path)]).text();
        assert!(!text.contains("names no process"), "nothing was read: {text}");
    }
}

#[test]
fn a_run_that_no_index_names_is_listed_and_a_limit_says_that_there_may_be_more() {
    let store = Store::new();
    for run in ["run-one", "run-two"] {
        records::finish(&store.run(run), now_ms());
    }
    let listed = ask::run(&["list", utf8(store.root())]);
    let text = listed.text();
    assert!(text.contains("run-one") && text.contains("run-two"), "{text}");
    assert!(!listed.errors().contains("--all"), "that is all: {}", listed.errors());
    let one = ask::run(&["list", utf8(store.root()), "--limit", "1"]);
    assert_eq!(one.text().lines().filter(|line| line.contains("run-")).count(), 1);
    assert!(one.errors().contains("1 run; there may be more: --all"), "{}", one.errors());
    let active = ask::run(&["list", utf8(store.root()), "--active"]);
    assert!(!active.text().contains("run-"), "{}", active.text());
    // A store of any size answers at once: of so many directories none is asked.
    for i in 0..1_000 {
        store.run(&format!("run-{i:04}"));
    }
    let many = ask::run(&["list", utf8(store.root())]);
    assert_eq!(many.text(), "", "nothing is in the indexes");
    assert!(many.errors().contains("0 runs; there may be more: --all"), "{}", many.errors());
}
