//! Arbitrary bytes and trees through the library: what must hold of any input at all.
//!
//! The fuzz targets under `fuzz/` ask the same questions for much longer; these run with every test.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use runstore::inspect::Inspection;
use runstore::protocol::evidence::Times;
use runstore::protocol::status::StatusView;
use runstore::protocol::{Document, Raw};
use runstore::store::{Depth, Opened, RealHost, Store};
use serde_json::{Map, Value};
use testkit::tree;

const NOW: i64 = 1_790_000_000_000;

/// Members that decide something, so that arbitrary values often meet a reader that cares.
const MEMBERS: [&str; 18] = [
    "state",
    "runId",
    "sessionId",
    "mode",
    "pid",
    "runnerPid",
    "startedAt",
    "endedAt",
    "lastUpdate",
    "lifecycleArtifactVersion",
    "steps",
    "processTerminal",
    "error",
    "version",
    "instances",
    "runnerProcessInstanceId",
    "observedAt",
    "status",
];

/// Words and numbers that some reader knows.
const WORDS: [&str; 10] = [
    "running", "complete", "queued", "paused", "observed", "pending", "unknown", "run-1", "runner",
    "workflow",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (NOW - 1_000_000..NOW + 1_000_000).prop_map(Value::from),
        (0_i64..5).prop_map(Value::from),
        proptest::sample::select(&WORDS[..]).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![
        4 => proptest::sample::select(&MEMBERS[..]).prop_map(str::to_owned),
        1 => ".{0,8}",
    ];
    proptest::collection::vec((key, value), 0..10).prop_map(|pairs| pairs.into_iter().collect())
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    members(value())
}

/// One thing to put into a store.
#[derive(Clone, Debug)]
enum Thing {
    Json(Map<String, Value>),
    Bytes(Vec<u8>),
    Directory,
    Link(String),
    Fifo,
}

const PLACES: [&str; 10] = [
    "async-subagent-runs",
    "async-subagent-runs/run-1",
    "async-subagent-runs/run-2",
    "async-subagent-runs/run-1/control",
    "async-subagent-runs/.active-runs",
    "async-subagent-runs-77/run-1",
    "async-subagent-results",
    "nested-subagent-runs/run-1/run-3",
    "session-leases/aa",
    "session-active-async-capacity/p/slot-0",
];

const NAMES: [&str; 14] = [
    "status.json",
    "process-terminal.json",
    "process-terminal-candidate.json",
    "events.jsonl",
    "runner-startup.json",
    "runner-startup-ack.json",
    "runner-startup-proceed.json",
    "owner.json",
    "run-1",
    "run-4",
    "run-1.json",
    "output-0.log",
    "workflow-result.json",
    ".status.json.7.1790000000000.ab12cd.tmp",
];

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        6 => object().prop_map(Thing::Json),
        2 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Thing::Bytes),
        1 => Just(Thing::Directory),
        1 => prop_oneof![Just("/etc/passwd".to_owned()), "[a-z./]{1,12}"].prop_map(Thing::Link),
        1 => Just(Thing::Fifo),
    ]
}

fn entry() -> impl Strategy<Value = (&'static str, Vec<u8>, Thing)> {
    let name = prop_oneof![
        8 => proptest::sample::select(&NAMES[..]).prop_map(|name| name.as_bytes().to_vec()),
        1 => proptest::collection::vec(1..=255_u8, 1..40).prop_map(|mut name| {
            name.iter_mut().filter(|b| **b == b'/').for_each(|b| *b = b'_');
            name
        }),
    ];
    (proptest::sample::select(&PLACES[..]), name, thing())
}

/// Puts a thing where nothing is yet; what the file system refuses is left out.
fn put(path: &Path, thing: &Thing) {
    if fs::symlink_metadata(path).is_ok() {
        return;
    }
    let _ = match thing {
        Thing::Json(members) => fs::write(path, Value::from(members.clone()).to_string()),
        Thing::Bytes(bytes) => fs::write(path, bytes),
        Thing::Directory => fs::create_dir(path),
        Thing::Link(target) => symlink(target, path),
        Thing::Fifo => {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).map_err(Into::into)
        }
    };
}

/// Path and verdict of every report of a store.
fn reports(store: &Store<'_, RealHost>, depth: Depth) -> BTreeMap<String, &'static str> {
    let mut reports = BTreeMap::new();
    let mut problems = Vec::new();
    Inspection::new(store, depth).each(
        &mut |report| {
            let again = reports.insert(report.path.clone(), report.verdict);
            assert!(again.is_none(), "one report per directory, not two of {}", report.path);
            ControlFlow::Continue(())
        },
        &mut problems,
    );
    assert!(problems.is_empty(), "nothing vanished from a quiet store: {problems:?}");
    reports
}

/// How many names in a runs root must have a report.
fn runs_in(root: &Path) -> usize {
    let entries = fs::read_dir(root).expect("the root was opened").flatten();
    let is_run = |entry: &fs::DirEntry| {
        !entry.file_type().is_ok_and(|kind| kind.is_file())
            && !entry.file_name().as_bytes().starts_with(b".")
    };
    entries.filter(is_run).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_document_is_its_source_and_a_patch_keeps_all_other_bytes(
        members in object(),
        pretty in any::<bool>(),
        new in value(),
    ) {
        let text = if pretty {
            serde_json::to_string_pretty(&members).expect("serializes")
        } else {
            serde_json::to_string(&members).expect("serializes")
        };
        let doc = Document::parse(&text).expect("what is JSON is read");
        for (key, value) in &members {
            let raw = doc.get(key).expect("a member is found under its key");
            let again: Value = serde_json::from_str(raw.text()).expect("a value is its text");
            prop_assert_eq!(&again, value, "the value of {}", key);
        }
        prop_assume!(doc.read_only_reason().is_none());
        let same = doc.patched(&[]).expect("an empty patch is taken");
        prop_assert_eq!(&same, &text, "no patch changes nothing");
        let new = new.to_string();
        let patched = doc.patched(&[("state", &new)]).expect("a valid value is taken");
        let after = Document::parse(&patched).expect("a patched document is a document");
        prop_assert_eq!(after.get("state").map(Raw::text), Some(&*new));
        for (key, raw) in doc.members().filter(|(key, _)| *key != "state") {
            prop_assert_eq!(after.get(key), Some(raw), "{} keeps its bytes", key);
        }
    }

    #[test]
    fn cut_and_changed_json_is_read_as_another_reader_reads_it(
        members in object(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = serde_json::to_vec(&members).expect("serializes");
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        let ours = Document::from_bytes(&bytes).is_ok();
        let theirs = serde_json::from_slice::<Map<String, Value>>(&bytes);
        // Numbers that no double holds and lone surrogates are kept here and refused there.
        let kept = theirs.as_ref().is_err_and(|e| {
            let text = e.to_string();
            ["out of range", "surrogate", "escape", "code point"].iter().any(|k| text.contains(k))
        });
        prop_assert!(ours == theirs.is_ok() || kept, "{:?}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_object_can_be_read_as_a_status(members in object()) {
        let text = Value::from(members).to_string();
        let doc = Document::parse(&text).expect("what is JSON is read");
        let view = StatusView::read(&doc);
        prop_assert!(view.state.is_some() || !view.damage.is_empty(), "no state is damage");
        prop_assert!(view.pid.is_none_or(|pid| pid >= 0), "a number that is no pid reads as 0");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_gets_one_report_per_directory_and_stays_as_it_was(
        entries in proptest::collection::vec(entry(), 0..20),
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = dir.path().join("store");
        fs::create_dir_all(top.join("async-subagent-runs")).expect("a directory can be made");
        for (place, name, thing) in &entries {
            let parent = top.join(place);
            // A parent may already be a file or a link; then this entry cannot be.
            let inside = fs::create_dir_all(&parent).is_ok()
                && fs::canonicalize(&parent).is_ok_and(|real| {
                    fs::canonicalize(&top).is_ok_and(|top| real.starts_with(top))
                });
            let name = std::ffi::OsStr::from_bytes(name);
            if inside && name != "." && name != ".." {
                put(&parent.join(name), thing);
            }
        }
        let before = tree::snapshot(&top).expect("the tree can be walked");
        let host = RealHost::new();
        let opened = Store::open(&host, &top, NOW, Times::default()).expect("a directory opens");
        let Opened::Store(store) = opened else { panic!("a temp root is a store") };
        let full = reports(&store, Depth::Full);
        prop_assert_eq!(&full, &reports(&store, Depth::Row), "a row has the verdict of the report");
        let expected: usize = store.runs_roots.iter().map(|root| runs_in(&root.path)).sum();
        prop_assert_eq!(full.len(), expected, "one report per directory");
        let after = tree::snapshot(&top).expect("the tree can be walked");
        prop_assert_eq!(tree::diff(&before, &after), Vec::<String>::new(), "looking changes nothing");
    }
}
