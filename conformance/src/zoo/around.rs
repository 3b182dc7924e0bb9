//! Mistakes that are made around a command, as data.
//!
//! Theory of operation. What a scenario holds under `mutants` says what a subject with one mistake does beside or
//! instead of what a faultless one does. This program stands in the place of the subject, starts the faultless command, and
//! does what is said before it, while it runs, and after it; then it changes what the command answered. Everything that it
//! writes is written as by a subject: from a temp name beside the file. A wait that is in vain ends by itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cell::bytes_of;

/// The variable that says what is done.
pub(crate) const MISTAKE: &str = "RUNSTORE_CONFORMANCE_MISTAKE";

/// How long a step waits.
const WAIT: Duration = Duration::from_secs(20);

/// Does what the environment says around a command, from the top of the store; the exit code.
pub fn around(words: &[String]) -> u8 {
    let how = std::env::var(MISTAKE).ok().and_then(|text| serde_json::from_str(&text).ok());
    let how: Value = how.unwrap_or_default();
    let steps = |key: &str| how.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let over = AtomicBool::new(false);
    let all = |key: &str| steps(key).iter().all(|step| act(step, &over));
    all("before");
    let instead = how.get("instead").is_some();
    let (mut out, mut code) = (String::new(), 0);
    if instead {
        all("instead");
    } else {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| all("during"));
            let done = run(words, &steps("while"), &over);
            over.store(true, Ordering::Relaxed);
            done
        });
        match done {
            Ok((said, exit)) => (out, code) = (said, exit),
            Err(e) => {
                let _ = writeln!(std::io::stderr().lock(), "zoo: {e}");
                return 1;
            }
        }
    }
    all("after");
    let patches = steps("answer");
    if let Some(mut answer) =
        serde_json::from_str::<Value>(&out).ok().filter(|_| !patches.is_empty())
    {
        patches.iter().for_each(|patch| change_answer(&mut answer, patch));
        out = format!("{answer}\n");
    }
    if let Some(text) = how.get("says").and_then(Value::as_str) {
        text.clone_into(&mut out);
    }
    let _ = std::io::stdout().lock().write_all(out.as_bytes());
    let exit = how.get("exit").and_then(Value::as_u64).and_then(|code| u8::try_from(code).ok());
    exit.unwrap_or(code)
}

/// Runs the command; a step `kill` of `stop` ends it as soon as what it waits for is there.
fn run(words: &[String], stop: &[Value], over: &AtomicBool) -> std::io::Result<(String, u8)> {
    let (program, args) = words.split_first().ok_or_else(|| std::io::Error::other("no command"))?;
    let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn()?;
    let mut pipe = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut out = Vec::new();
        if let Some(pipe) = &mut pipe {
            let _ = pipe.read_to_end(&mut out);
        }
        String::from_utf8_lossy(&out).into_owned()
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.iter().any(is_there) {
            let _ = child.kill();
            break child.wait()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    over.store(true, Ordering::Relaxed);
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok((reader.join().unwrap_or_default(), code))
}

fn text<'v>(step: &'v Value, key: &str) -> &'v str {
    step.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The file of a step, by its whole path.
fn place(step: &Value) -> &Path {
    Path::new(text(step, "path"))
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn is_there(step: &Value) -> bool {
    match step.get("where") {
        None => place(step).symlink_metadata().is_ok(),
        Some(values) => read(place(step)).is_some_and(|doc| has_values(&doc, values)),
    }
}

fn wait(over: &AtomicBool, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + WAIT;
    while !is_so() {
        if Instant::now() > until || over.load(Ordering::Relaxed) {
            return is_so();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Does one step; whether those after it are done too.
fn act(step: &Value, over: &AtomicBool) -> bool {
    let path = place(step);
    let done = match text(step, "do") {
        "put" => put(path, &bytes_of(step)),
        "patch" => match read(path) {
            None => Err(std::io::Error::other("there is no JSON to change")),
            Some(mut doc) => {
                change(&mut doc, step);
                put(path, &crate::raw::pretty(&doc))
            }
        },
        "write" => fs::write(path, bytes_of(step)),
        "append" => fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(&bytes_of(step))),
        "remove" if path.is_dir() => fs::remove_dir_all(path),
        "remove" => fs::remove_file(path),
        "directory" => fs::create_dir_all(path),
        "link" => std::os::unix::fs::symlink(text(step, "target"), path),
        "move" => fs::rename(path, text(step, "to")),
        "mode" => {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = u32::from_str_radix(text(step, "mode"), 8).unwrap_or(0o644);
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }
        "await" => return wait(over, || is_there(step)),
        "await-gone" => return wait(over, || path.symlink_metadata().is_err()),
        "run" => Command::new("sh").args(["-c", text(step, "script")]).status().map(|_| ()),
        other => Err(std::io::Error::other(format!("nobody knows how to `{other}`"))),
    };
    if let Err(e) = &done {
        let _ = writeln!(std::io::stderr().lock(), "zoo: {}: {e}", path.display());
    }
    done.is_ok()
}

/// Replaces a file as a subject does.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (pid, now) = (std::process::id(), crate::raw::now_ms());
    let temp = path.with_file_name(format!(".{name}.{pid}.{now}.aaaaaaaaaaaaaaaa.tmp"));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temp, path)
}

/// Changes the reports of a run, the elements of a list (`in`) that hold some values (`where`), or the answer as a whole.
fn change_answer(answer: &mut Value, patch: &Value) {
    let (list, wanted) = match (patch.get("run"), patch.get("in").and_then(Value::as_str)) {
        (Some(run), _) => ("/runs", json!({ "/runId": run })),
        (None, Some(list)) => (list, patch.get("where").cloned().unwrap_or_default()),
        (None, None) => return change(answer, patch),
    };
    let Some(items) = answer.pointer_mut(list).and_then(Value::as_array_mut) else { return };
    if patch.get("away").is_some() {
        items.retain(|item| !has_values(item, &wanted));
    }
    let hit = items.iter_mut().filter(|item| has_values(item, &wanted));
    hit.for_each(|item| change(item, patch));
}

/// Whether a document has these values at these pointers.
fn has_values(doc: &Value, wanted: &Value) -> bool {
    let wanted = wanted.as_object().into_iter().flatten();
    wanted.into_iter().all(|(pointer, value)| doc.pointer(pointer) == Some(value))
}

/// `set`: pointers and new values (`-` at the end of one appends); `drop`: pointers of what goes.
fn change(doc: &mut Value, patch: &Value) {
    for (pointer, value) in patch.get("set").and_then(Value::as_object).unwrap_or(&Map::new()) {
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        match doc.pointer_mut(parent) {
            Some(Value::Object(members)) => drop(members.insert(key.to_owned(), value.clone())),
            Some(Value::Array(items)) if key == "-" => items.push(value.clone()),
            Some(Value::Array(items)) => {
                if let Some(item) = key.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                    *item = value.clone();
                }
            }
            _ => {}
        }
    }
    let drops = patch.get("drop").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for pointer in drops.iter().filter_map(Value::as_str) {
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        match doc.pointer_mut(parent) {
            Some(Value::Object(members)) => drop(members.remove(key)),
            Some(Value::Array(items)) => {
                if let Some(at) = key.parse::<usize>().ok().filter(|at| *at < items.len()) {
                    items.remove(at);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_changed_where_a_mistake_says_so() {
        let answer = json!({"runs": [{"runId": "a", "v": 1}, {"runId": "b"}], "slots": [{"p": 1, "s": "x"}, {"p": 2}]});
        for (patch, pointer, want) in [
            (json!({"run": "a", "set": {"/v": 2}}), "/runs/0/v", json!(2)),
            (json!({"run": "a", "away": true}), "/runs", json!([{"runId": "b"}])),
            (
                json!({"in": "/slots", "where": {"/p": 1}, "drop": ["/s"]}),
                "/slots/0",
                json!({"p": 1}),
            ),
            (
                json!({"in": "/slots", "where": {"/p": 2}, "away": true}),
                "/slots",
                json!([{"p": 1, "s": "x"}]),
            ),
            (
                json!({"in": "/slots", "where": {"/p": 3}, "set": {"/s": "y"}}),
                "/slots/0/s",
                json!("x"),
            ),
            (json!({"set": {"/slots/-": 3}}), "/slots/2", json!(3)),
        ] {
            let mut changed = answer.clone();
            change_answer(&mut changed, &patch);
            assert_eq!(changed.pointer(pointer), Some(&want), "{patch}");
        }
    }
}
