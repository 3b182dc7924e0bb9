//! Files whose bytes are not what they should be.

use std::fs;
use std::path::Path;

use runstore::inspect::Inspection;
use runstore::protocol::evidence::Times;
use runstore::store::{Depth, Opened, RealHost, Store as Opening};
use serde_json::{Value, json};
use testkit::process::now_ms;
use testkit::records::{self, with};

use super::Hostile;

/// The JSON files of a run directory that decide something.
const DOCUMENTS: [&str; 8] = [
    "status.json",
    "process-terminal.json",
    "process-terminal-candidate.json",
    "runner-startup.json",
    "runner-startup-ack.json",
    "runner-startup-confirm.json",
    "runner-startup-proceed.json",
    "workflow-result.json",
];

/// Bytes that are no JSON object, by name.
fn damaged() -> Vec<(&'static str, Vec<u8>)> {
    let deep = |open: &str, close: &str| {
        let mut text = open.repeat(100_000);
        text.push_str(&close.repeat(100_000));
        text.into_bytes()
    };
    let whole = records::complete("r1", 1_790_000_000_000).to_string();
    let mut bom = b"\xef\xbb\xbf".to_vec();
    bom.extend_from_slice(whole.as_bytes());
    let utf16: Vec<u8> = whole.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let half = whole.len() / 2;
    let mut zero_tail = whole.as_bytes()[..half].to_vec();
    zero_tail.resize(whole.len(), 0);
    vec![
        ("100,000 arrays deep", deep("[", "]")),
        ("100,000 objects deep", deep("{\"a\":", "}")),
        ("100,000 brackets, never closed", b"[".repeat(100_000)),
        ("a deep member", format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000)).into()),
        ("a byte-order mark", bom),
        ("UTF-16", utf16),
        ("empty", Vec::new()),
        ("only white space", b" \n\t ".to_vec()),
        ("zero-filled", vec![0; 4096]),
        ("zero-filled from the middle on", zero_tail),
        ("a NUL in a string", b"{\"state\":\"run\0ning\"}".to_vec()),
        ("invalid UTF-8 in a string", b"{\"state\":\"run\xffning\"}".to_vec()),
        ("invalid UTF-8 in a key", b"{\"st\xc3ate\":\"running\"}".to_vec()),
        ("an overlong encoding", b"{\"state\":\"\xc0\xaf\"}".to_vec()),
        ("torn", whole.as_bytes()[..half].to_vec()),
        ("two documents", format!("{whole}{whole}").into_bytes()),
        ("garbage behind it", format!("{whole}xyz").into_bytes()),
        ("a conflict marker", format!("<<<<<<< HEAD\n{whole}").into_bytes()),
        ("an array", b"[]".to_vec()),
        ("a string", b"\"running\"".to_vec()),
        ("a number", b"7".to_vec()),
        ("null", b"null".to_vec()),
        ("a comment", b"{/* */}".to_vec()),
        ("a trailing comma", b"{\"state\":\"running\",}".to_vec()),
        ("not a number", b"{\"state\":\"running\",\"pid\":NaN}".to_vec()),
    ]
}

#[test]
fn a_damaged_status_is_corrupt_and_hides_nothing() {
    let hostile = Hostile::new();
    let corpus = damaged();
    for (i, (_, bytes)) in corpus.iter().enumerate() {
        hostile.store.run(&format!("bad-{i:02}")).file("status.json", bytes);
    }
    let answer = hostile.assert_answered("damaged statuses");
    for (i, (name, _)) in corpus.iter().enumerate() {
        let id = format!("bad-{i:02}");
        assert_eq!(answer.verdict(&id), "corrupt", "{name}: {:#}", answer.one(&id));
        assert_eq!(answer.one(&id)["recordedState"], Value::Null, "{name}: nothing was read");
    }
    assert_eq!(answer.code, 8, "damaged records were met");
}

#[test]
fn damage_beside_a_healthy_status_hides_nothing_and_proves_nothing() {
    for file in DOCUMENTS.into_iter().skip(1) {
        let hostile = Hostile::new();
        let corpus = damaged();
        for (i, (_, bytes)) in corpus.iter().enumerate() {
            let run = hostile.store.run(&format!("bad-{i:02}"));
            let at = now_ms() - 600_000;
            records::finish(&run, at);
            let status = records::complete(&format!("bad-{i:02}"), at);
            run.status(&records::without(status, "processTerminal")).file(file, bytes);
        }
        let answer = hostile.assert_answered(file);
        for (i, (name, _)) in corpus.iter().enumerate() {
            let report = answer.one(&format!("bad-{i:02}"));
            assert_eq!(report["recordedState"], "complete", "{file}, {name}: the status is whole");
            if file == "process-terminal.json" {
                assert_eq!(report["proof"]["counts"], false, "{name}: a damaged proof is none");
                assert_ne!(report["verdict"], "finished", "{name}: a damaged proof is none");
            }
        }
    }
}

#[test]
fn damaged_locks_results_and_indexes_hide_nothing() {
    let hostile = Hostile::new();
    let store = &hostile.store;
    for (i, (_, bytes)) in damaged().iter().enumerate() {
        store.file(&format!("session-leases/l{i}/owner.json"), bytes);
        store.file(&format!("session-active-async-capacity/p/slot-{i}/owner.json"), bytes);
        store.file(&format!("async-subagent-results/x{i}.json"), bytes);
        store.file(&format!("async-subagent-results/result-pending/s/x{i}.json"), bytes);
        store.file(&format!("async-subagent-runs/.active-runs/x{i}"), bytes);
        let marker = format!("async-subagent-runs/.terminal-runs/s/{i:016}-x.json");
        store.file(&marker, bytes);
        store.file(&format!("async-cfg-x{i}.json"), bytes);
    }
    let answer = hostile.assert_answered("damaged locks, results and indexes");
    let count = |key: &str| answer.json[key].as_array().map_or(0, Vec::len);
    let corpus = damaged().len();
    assert!(count("leases") >= corpus, "every lease is in the answer: {}", count("leases"));
    assert!(count("slots") >= corpus, "every slot is in the answer: {}", count("slots"));
    assert!(count("results") >= corpus, "every result is in the answer: {}", count("results"));
}

#[test]
fn of_a_repeated_key_the_last_wins_and_it_is_said() {
    let hostile = Hostile::new();
    let at = now_ms();
    let run = hostile.store.run("twice");
    records::finish(&run, at);
    let whole = records::complete("twice", at).to_string();
    run.file("status.json", format!("{{\"state\":\"running\",{}", &whole[1..]));
    let answer = hostile.assert_answered("a repeated key");
    assert_eq!(answer.one("twice")["recordedState"], "complete", "the last wins");
    let findings = answer.one("twice")["findings"].as_array().expect("findings").clone();
    let said = findings.iter().any(|f| f["severity"] == "warning" && f["file"] == "status.json");
    assert!(said, "a repeated key is a warning: {findings:#?}");
}

#[test]
fn odd_numbers_and_types_are_judged_without_a_panic() {
    let odd = [
        json!(-1),
        json!(0),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(-1e300),
        json!(0.5),
        json!(8_640_000_000_000_000_i64),
        json!(253_402_300_800_000_i64),
        json!(9_007_199_254_740_993_i64),
        json!("1790000000000"),
        json!([]),
        json!({}),
        json!(true),
        Value::Null,
    ];
    let members = [
        "startedAt",
        "lastUpdate",
        "endedAt",
        "lastActivityAt",
        "deadlineAt",
        "pid",
        "steps",
        "lifecycleArtifactVersion",
        "state",
        "mode",
        "runId",
        "sessionId",
        "displayDismissedAt",
        "processTerminal",
        "runnerIdentity",
        "hostname",
        "lane",
        "currentStep",
        "cwd",
        "error",
    ];
    let hostile = Hostile::of(testkit::Store::in_memory());
    for (m, member) in members.iter().enumerate() {
        for (i, value) in odd.iter().enumerate() {
            for (kind, base) in
                [("a", records::running("x", 1, 5)), ("t", records::complete("x", 5))]
            {
                let id = format!("{kind}-{m:02}-{i:02}");
                let run = hostile.store.run(&id);
                records::finish(&run, 5);
                run.status(&with(with(base, "runId", id), member, value.clone()));
                run.event(&with(json!({"type": "subagent.run.started"}), "ts", value.clone()));
            }
        }
    }
    // A literal that no number type holds.
    for (i, literal) in ["1e999", "-1e999", "99999999999999999999999999"].iter().enumerate() {
        let text = format!("{{\"state\":\"running\",\"pid\":1,\"startedAt\":{literal}}}");
        hostile.store.run(&format!("l-{i}")).file("status.json", text);
    }
    let mut far = Vec::new();
    let root = crate::ask::utf8(hostile.store.root());
    for now in ["0", "-1", "9223372036854775807", "-9223372036854775808", "253402300800001"] {
        let outcome = crate::ask::run(&["inspect", root, "--verbose", &format!("--now={now}")]);
        crate::ask::assert_harmless(now, &outcome.stdout);
        far.push(outcome.code);
    }
    hostile.assert_answered("odd numbers and types");
    assert!(far.iter().all(|code| *code == 8), "any instant can be asked about: {far:?}");
}

/// The verdict of one run, asked of the library, which is faster than a process for each.
fn judge(run: &Path) -> (String, bool) {
    let host = RealHost::new();
    let opened = Opening::open(&host, run, now_ms(), Times::default()).expect("it is there");
    let Opened::Run(store, root, name) = opened else { panic!("a run directory was named") };
    let found = Inspection::new(&store, Depth::Full).one(root, &name, None);
    let (_, report) = found.expect("it is there");
    (report.verdict.to_owned(), report.proof.counts)
}

/// Every prefix of a file of a finished run, judged.
fn prefixes(file: &str, mut check: impl FnMut(usize, bool, &str, bool)) {
    let store = testkit::Store::in_memory();
    let run = store.run("r1");
    let at = now_ms() - 600_000;
    records::finish(&run, at);
    for ts in [at, at + 1] {
        run.event(&json!({"type": "subagent.run.started", "ts": ts, "runId": "r1"}));
    }
    let whole = fs::read(run.path().join(file)).expect("a finished run has it");
    for length in 0..=whole.len() {
        run.file(file, &whole[..length]);
        let (verdict, counts) = judge(run.path());
        check(length, length == whole.len(), &verdict, counts);
    }
}

#[test]
fn a_status_truncated_anywhere_is_corrupt() {
    prefixes("status.json", |length, whole, verdict, _| {
        let expected = if whole { "finished" } else { "corrupt" };
        assert_eq!(verdict, expected, "cut after {length} bytes");
    });
}

#[test]
fn a_proof_truncated_anywhere_proves_nothing() {
    prefixes("process-terminal.json", |length, whole, verdict, counts| {
        assert_eq!(counts, whole, "cut after {length} bytes: {verdict}");
        assert_eq!(verdict == "finished", whole, "cut after {length} bytes: {verdict}");
    });
}

#[test]
fn a_candidate_or_log_truncated_anywhere_is_no_damage_of_the_run() {
    for file in ["process-terminal-candidate.json", "events.jsonl"] {
        prefixes(file, |length, _, verdict, _| {
            assert!(
                matches!(verdict, "finished" | "finished-unproven"),
                "{file} cut after {length} bytes: {verdict}"
            );
        });
    }
}

#[test]
fn hostile_event_logs_are_read_to_their_end() {
    let hostile = Hostile::new();
    let line = json!({"type": "subagent.run.started", "ts": 5, "runId": "x"}).to_string();
    let logs: Vec<(&str, Vec<u8>)> = vec![
        ("no line feed in 3 MiB", b"x".repeat(3 << 20)),
        ("only line feeds", b"\n".repeat(1 << 20)),
        ("zero-filled", vec![0; 1 << 20]),
        ("a line of 1 MiB", format!("{{\"a\":\"{}\"}}\n{line}\n", "y".repeat(1 << 20)).into()),
        ("a deep line", [b"[".repeat(100_000), b"\n".to_vec(), line.clone().into()].concat()),
        ("invalid UTF-8", [b"\xff\xfe\n".to_vec(), line.clone().into()].concat()),
        ("carriage returns", line.replace(',', ",\r").into_bytes()),
        ("many short lines", format!("{line}\n").repeat(20_000).into_bytes()),
    ];
    for (i, (_, bytes)) in logs.iter().enumerate() {
        let run = hostile.store.run(&format!("log-{i}"));
        records::finish(&run, now_ms());
        run.file("events.jsonl", bytes);
    }
    let answer = hostile.assert_answered("hostile logs");
    for (i, (name, _)) in logs.iter().enumerate() {
        let verdict = answer.verdict(&format!("log-{i}"));
        assert_eq!(verdict, "finished", "{name}: a log changes no observed end");
    }
}
