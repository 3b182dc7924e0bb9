//! Hostile run directories, one kind each.

use std::fs::File;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{make_dir, put};

/// One kind of hostile record.
pub struct Kind {
    /// Its name, without spaces.
    pub name: &'static str,
    /// Makes it: the temp root, and the run directory, which is there and empty.
    pub make: fn(&Path, &Path) -> io::Result<()>,
    /// Files beside the run directory that it makes, relative to the temp root.
    pub beside: &'static [&'static str],
}

/// The largest status and result that are read at all.
const FULL: usize = 16 << 20;
/// An active record, so that everything else is looked at as well.
const ACTIVE: &str =
    r#""state":"running","runId":"hostile","sessionId":"s1","startedAt":1,"pid":4190000"#;
const RESULT: &str = "async-subagent-results/hostile.json";

const fn kind(name: &'static str, make: fn(&Path, &Path) -> io::Result<()>) -> Kind {
    Kind { name, make, beside: &[] }
}

/// Every kind.
pub const KINDS: [Kind; 22] = [
    kind("fifo", |_, run| node(&run.join("status.json"), FileType::Fifo)),
    kind("socket", |_, run| node(&run.join("status.json"), FileType::Socket)),
    kind("link", |_, run| symlink("/etc/passwd", run.join("status.json"))),
    kind("directory", |_, run| make_dir(&run.join("status.json"))),
    kind("sparse-2-gib", |_, run| sparse(&run.join("status.json"), 2 << 30)),
    kind("zeros-16-mib", |_, run| sparse(&run.join("status.json"), FULL as u64)),
    kind("deep-100k", |_, run| {
        let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
        status(run, &format!("{{{ACTIVE},\"x\":{deep}}}"))
    }),
    kind("flat-brackets-16-mib", |_, run| filled(run, "\"x\":[", "[],", "0]")),
    kind("same-key-16-mib", |_, run| filled(run, "", "\"x\":1,", "\"x\":1")),
    kind("many-keys-16-mib", |_, run| {
        let mut text = format!("{{{ACTIVE}");
        for key in 0.. {
            if text.len() > FULL - 32 {
                break;
            }
            text.push_str(&format!(",\"{key:x}\":1"));
        }
        status(run, &(text + "}"))
    }),
    kind("many-steps-16-mib", |_, run| {
        filled(run, "\"steps\":[", "{\"status\":\"running\"},", "{}]")
    }),
    kind("escapes-16-mib", |_, run| filled(run, "\"error\":\"", "\\u00e9", "\"")),
    kind("surrogates-16-mib", |_, run| filled(run, "\"error\":\"", "\\ud800", "\"")),
    kind("one-string-16-mib", |_, run| filled(run, "\"error\":\"", "x", "\"")),
    kind("not-utf8-16-mib", |_, run| {
        let mut bytes = vec![b' '; FULL - 1];
        bytes.push(0xff);
        put(&run.join("status.json"), &bytes)
    }),
    kind("torn-16-mib", |_, run| {
        status(run, &format!("{{{ACTIVE},\"x\":\"{}", "x".repeat(FULL - 200)))
    }),
    kind("log-1-gib", |_, run| {
        status(run, &format!("{{{ACTIVE}}}"))?;
        sparse(&run.join("events.jsonl"), 1 << 30)
    }),
    kind("log-of-litter", |_, run| {
        status(run, &format!("{{{ACTIVE}}}"))?;
        put(&run.join("events.jsonl"), "{\"type\":\n".repeat(100_000).as_bytes())
    }),
    kind("names-100k", |_, run| {
        status(run, &format!("{{{ACTIVE}}}"))?;
        (0..100_000).try_for_each(|n| File::create(run.join(format!("stranger-{n}"))).map(drop))
    }),
    kind("temps-20k", |_, run| {
        status(run, &format!("{{{ACTIVE}}}"))?;
        let at = crate::START_MS;
        (0..20_000).try_for_each(|n| {
            put(&run.join(format!(".status.json.{n}.{at}.ab12cd.tmp")), b"{\"state\":1}")
        })
    }),
    kind("requests-10k", |_, run| {
        status(run, &format!("{{{ACTIVE}}}"))?;
        let queue = run.join("control/stop-requests");
        make_dir(&queue)?;
        (0..10_000).try_for_each(|n| File::create(queue.join(format!("{n}.json"))).map(drop))
    }),
    Kind {
        name: "result-16-mib",
        make: |root, run| {
            status(run, &format!("{{{ACTIVE}}}"))?;
            let text = format!("{{\"id\":\"hostile\",\"x\":[{}0]}}", "{},".repeat(FULL / 3 - 100));
            put(&root.join(RESULT), text.as_bytes())
        },
        beside: &[RESULT],
    },
];

fn status(run: &Path, text: &str) -> io::Result<()> {
    put(&run.join("status.json"), text.as_bytes())
}

/// An active status of the largest size, filled by repeating a part.
fn filled(run: &Path, open: &str, part: &str, close: &str) -> io::Result<()> {
    let head = format!("{{{ACTIVE},{open}");
    let room = FULL - head.len() - close.len() - 1;
    status(run, &[&head, part.repeat(room / part.len()).as_str(), close, "}"].concat())
}

fn sparse(path: &Path, length: u64) -> io::Result<()> {
    File::create(path)?.set_len(length)
}

fn node(path: &Path, kind: FileType) -> io::Result<()> {
    Ok(mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), 0)?)
}
