//! Files of the faulty runner.
//!
//! Theory of operation. [`Zoo::put`] replaces a file as chapter 12 has it: refuse what is no plain file, a temp file
//! that is new, its mode set, its text flushed, the rename, the directory flushed. [`Zoo::append`] adds one line with
//! one write.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use serde_json::Value;

use super::Zoo;
use crate::raw;

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
const NO_WAIT: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// A plain file that is not larger than a bound; `None` if it is not there.
pub(super) fn read(path: &Path, most: u64, flags: (bool, bool)) -> io::Result<Option<Vec<u8>>> {
    let (follow, wait) = flags;
    let flags = if follow { 0 } else { NO_FOLLOW } | if wait { 0 } else { NO_WAIT };
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let meta = file.metadata()?;
    if !wait && !meta.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other("it is too large"));
    }
    Ok(Some(bytes))
}

fn random() -> String {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    read.map(|()| text)
        .unwrap_or_else(|_| raw::sha256(format!("{}", raw::now_ms()).as_bytes())[..16].to_owned())
}

impl Zoo {
    /// Makes a directory and what leads to it, each a real one below the store.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        let root = self.root();
        let mut at = root.clone();
        for part in path.strip_prefix(&root).unwrap_or(path).components() {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_dir() => continue,
                Ok(_) if self.is("linked-directory-used") => continue,
                Ok(_) => return Err(io::Error::other(format!("{} is no directory", at.display()))),
                Err(_) => {}
            }
            let mode = if self.is("open-directories") { 0o755 } else { 0o700 };
            DirBuilder::new().mode(mode).create(&at)?;
            fs::set_permissions(&at, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// Replaces a document.
    pub(super) fn put(&self, path: &Path, value: &Value) -> io::Result<()> {
        let mut text = raw::pretty(value);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self.fault.as_str() {
            "compact-form" => text = value.to_string().into_bytes(),
            "newline-at-the-end" => text.push(b'\n'),
            "byte-order-mark" if name.contains("closed") => {
                drop(text.splice(0..0, *b"\xef\xbb\xbf"))
            }
            _ => {}
        }
        self.put_text(path, &name, &text)
    }

    fn put_text(&self, path: &Path, name: &str, text: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(path);
        self.make_dir(dir)?;
        let is_status = name == "status.json";
        let mut mode = 0o600;
        if let Ok(there) = fs::symlink_metadata(path) {
            if !there.is_file() && !self.is("link-replaced") && !self.is("link-followed") {
                return Err(io::Error::other(format!("{name} is no plain file")));
            }
            if there.is_file() && self.is("mode-widened") {
                mode = 0o644;
            }
        } else if self.is("open-files") {
            mode = 0o644;
        }
        let in_place = (self.is("status-in-place") && is_status)
            || (self.is("candidate-in-place") && name.contains("candidate"))
            || (self.is("message-in-place") && name == "runner-startup.json")
            || (self.is("result-in-place") && path.to_string_lossy().contains("result-pending"))
            || (self.is("link-followed") && is_status);
        if in_place {
            return fs::write(path, text);
        }
        if self.is("torn-status") && is_status {
            return self.put_torn(path, text);
        }
        let ms = raw::now_ms();
        let pid = std::process::id();
        let temp = match self.fault.as_str() {
            "odd-temp-name" => format!("{name}.new"),
            "weak-temp-name" => format!(".{name}.{pid}.{ms}.{}.tmp", &random()[..6]),
            "other-temp-name" => format!(".other.{pid}.{ms}.{}.tmp", random()),
            _ => format!(".{name}.{pid}.{ms}.{}.tmp", random()),
        };
        let temp = if self.is("temp-elsewhere") { self.runs().join(temp) } else { dir.join(temp) };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .custom_flags(NO_FOLLOW)
            .open(&temp)?;
        if !self.is("mode-left-to-umask") {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        let flush = |file: &File| if self.is("texts-unflushed") { Ok(()) } else { file.sync_all() };
        let written = file.write_all(text).and_then(|()| flush(&file));
        if let Err(e) = written.and_then(|()| fs::rename(&temp, path)) {
            let _ = fs::remove_file(&temp);
            return Err(e);
        }
        let is_run = dir == self.dir;
        if (is_run && self.is("run-unflushed")) || (!is_run && self.is("indexes-unflushed")) {
            return Ok(());
        }
        File::open(dir)?.sync_all()
    }

    /// Half of a text gets the name, and the rest comes later.
    fn put_torn(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let temp = path.with_file_name(format!(
            ".status.json.{}.{}.{}.tmp",
            std::process::id(),
            raw::now_ms(),
            random()
        ));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        file.write_all(&text[..text.len() / 2])?;
        fs::rename(&temp, path)?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.write_all(&text[text.len() / 2..])
    }

    /// Adds an event. The log is advice, so a failure is nobody's.
    pub(super) fn tell(&self, kind: &str, more: &Value) -> io::Result<()> {
        let mut event = serde_json::json!({"type": kind, "ts": raw::now_ms(), "runId": self.id});
        for (key, value) in more.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
        if self.is("event-without-run") {
            event["runId"] = Value::Null;
        }
        let told = self.append(&event.to_string());
        if self.is("log-failure-fatal") { told } else { Ok(()) }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let path = self.path("events.jsonl");
        if let Ok(meta) = fs::symlink_metadata(&path)
            && meta.is_file()
            && meta.nlink() > 1
            && !self.is("linked-log-appended")
        {
            fs::rename(&path, self.path("events.previous.jsonl"))?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(NO_FOLLOW | NO_WAIT)
            .open(&path)?;
        let mut text = String::new();
        if file.metadata()?.len() > 0 && !self.is("torn-line-glued") {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last[0] != b'\n' {
                text.push('\n');
            }
        }
        text.push_str(line);
        if !self.is("event-without-newline") {
            text.push('\n');
        }
        file.write_all(text.as_bytes())
    }
}
