//! Pictures of a directory tree, their comparison, and copies that keep links, modes and times.
//!
//! Theory of operation. [`snapshot`] walks a tree without following links and notes of each entry what
//! a program that only reads must leave alone; two snapshots are compared with [`diff`]. Contents are
//! hashed for plain files of at most [`HASH_LIMIT_BYTES`] in trees of at most [`HASH_LIMIT_ENTRIES`]
//! entries; beyond that a write still shows in the change time. Special files are noted, never opened.
//!
//! Not promised: a consistent picture of a tree that somebody changes meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use regex_lite::Regex;
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

/// Larger files are not hashed: a sparse file of a test may be terabytes long.
pub const HASH_LIMIT_BYTES: u64 = 4 << 20;

/// Of a tree with more entries no content is hashed, so that a big store can be checked often.
pub const HASH_LIMIT_ENTRIES: usize = 3000;

/// What one entry of a tree was at the time of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type and permission bits.
    pub mode: u32,
    /// Length in bytes; 0 for a directory, whose own size means nothing.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since the Unix epoch.
    pub mtime_ns: i128,
    /// Time of the last change of anything, in nanoseconds since the Unix epoch.
    pub ctime_ns: i128,
    /// The inode number: a replaced file has another one.
    pub ino: u64,
    /// What is inside.
    pub content: Content,
}

/// The inside of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// SHA-256 of a plain file.
    Hash([u8; 32]),
    /// The text of a symbolic link.
    Link(PathBuf),
    /// Not read: a directory, a special file, or too large.
    NotRead,
}

/// A picture of every entry below `top`, and of `top` itself under the empty name. Keys are relative
/// paths; bytes that are not UTF-8 appear as `\xNN`.
///
/// # Errors
/// The first entry that could not be looked at.
pub fn snapshot(top: &Path) -> io::Result<BTreeMap<String, Entry>> {
    let paths = walk(top)?;
    let hashing = paths.len() < HASH_LIMIT_ENTRIES;
    let mut out = BTreeMap::new();
    for path in paths {
        let meta = fs::symlink_metadata(&path)?;
        let content = if meta.is_symlink() {
            Content::Link(fs::read_link(&path)?)
        } else if hashing && meta.is_file() && meta.len() <= HASH_LIMIT_BYTES {
            Content::Hash(Sha256::digest(fs::read(&path)?).into())
        } else {
            Content::NotRead
        };
        let relative = path.strip_prefix(top).expect("a walk stays below its top");
        let entry = Entry {
            mode: meta.mode(),
            size: if meta.is_dir() { 0 } else { meta.len() },
            mtime_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
            ino: meta.ino(),
            content,
        };
        out.insert(readable(relative.as_os_str()), entry);
    }
    Ok(out)
}

/// One line for each entry that appeared, vanished or changed, naming what changed of it. Empty when
/// the trees are equal.
pub fn diff(before: &BTreeMap<String, Entry>, after: &BTreeMap<String, Entry>) -> Vec<String> {
    let name = |key: &String| {
        if key.is_empty() { ".".to_owned() } else { key.clone() }
    };
    let mut out = Vec::new();
    out.extend(after.keys().filter(|k| !before.contains_key(*k)).map(|k| name(k) + " appeared"));
    out.extend(before.keys().filter(|k| !after.contains_key(*k)).map(|k| name(k) + " vanished"));
    for (key, was) in before {
        let Some(is) = after.get(key).filter(|is| *is != was) else {
            continue;
        };
        let parts = [
            ("mode", was.mode != is.mode),
            ("size", was.size != is.size),
            ("mtime", was.mtime_ns != is.mtime_ns),
            ("ctime", was.ctime_ns != is.ctime_ns),
            ("inode", was.ino != is.ino),
            ("content", was.content != is.content),
        ];
        let changed: Vec<_> = parts.iter().filter(|(_, yes)| *yes).map(|(what, _)| *what).collect();
        out.push(format!("{}: {}", name(key), changed.join("+")));
    }
    out
}

/// The names that are not the same in both.
pub fn differing<V: PartialEq>(
    one: &BTreeMap<String, V>,
    other: &BTreeMap<String, V>,
) -> BTreeSet<String> {
    let all = one.keys().chain(other.keys());
    all.filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// Whether a path lies in what runstore keeps for itself.
pub fn is_own(path: impl AsRef<Path>) -> bool {
    path.as_ref().iter().any(|part| part == ".runstore")
}

/// What the same steps come to whenever they are made: texts by path, without times, without runstore's own files,
/// and without what a writer leaves that was cut off. A directory has no bytes.
pub fn timeless(
    entries: impl IntoIterator<Item = (String, Option<Vec<u8>>)>,
) -> BTreeMap<String, String> {
    let times = Regex::new(r#"\d{13,16}|"durationMs": ?\d+"#).expect("a pattern");
    let litter = Regex::new(r"\.tmp$|\.released-|\.candidate-|capacity\.claim").expect("a pattern");
    let masked = |text: &str| times.replace_all(text, "T").into_owned();
    let lasts = |path: &str| !is_own(path) && !litter.is_match(path);
    let entries = entries.into_iter().filter(|(path, _)| lasts(path));
    entries
        .map(|(path, bytes)| {
            let text = bytes.map(|bytes| String::from_utf8(bytes).expect("records are text"));
            (masked(&path), masked(text.as_deref().unwrap_or("a directory")))
        })
        .collect()
}

/// Copies a tree to a place that does not exist yet, with modes and times, links as links.
///
/// # Errors
/// The first entry that could not be copied; special files are refused.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let paths = walk(from)?;
    let mut folders = Vec::new();
    for path in paths {
        let target = to.join(path.strip_prefix(from).expect("a walk stays below its top"));
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            fs::create_dir_all(&target)?;
            folders.push((target, meta));
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path)?, &target)?;
        } else if meta.is_file() {
            fs::write(&target, fs::read(&path)?)?;
            keep_mode_and_time(&target, &meta)?;
        } else {
            let what = format!("{}: neither file, link nor directory", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    // Last and from the inside out: filling a directory changes its time, and a read-only one could
    // not be filled at all.
    for (target, meta) in folders.iter().rev() {
        keep_mode_and_time(target, meta)?;
    }
    Ok(())
}

/// Sets access and modification time of a file or directory, in milliseconds since the Unix epoch.
///
/// # Errors
/// When it cannot be opened or is not ours.
pub fn set_time_ms(path: &Path, at_ms: u64) -> io::Result<()> {
    set_time(path, SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms))
}

/// Gives everything in a tree the same times, in milliseconds since the Unix epoch; links are left alone.
///
/// # Errors
/// The first entry that could not be read or timed.
pub fn age(top: &Path, at_ms: i64) -> io::Result<()> {
    let at_ms = u64::try_from(at_ms).map_err(io::Error::other)?;
    // From the inside out, as whoever looks into a directory may change its time.
    let paths = walk(top)?;
    let mut plain = paths.iter().rev().filter(|path| !path.is_symlink());
    plain.try_for_each(|path| set_time_ms(path, at_ms))
}

/// Every path below `top` and `top` itself, parents first, names in byte order, links not followed.
///
/// # Errors
/// The first directory that could not be read.
pub fn walk(top: &Path) -> io::Result<Vec<PathBuf>> {
    WalkDir::new(top)
        .follow_links(false)
        .follow_root_links(false)
        .sort_by_file_name()
        .into_iter()
        .map(|entry| entry.map(walkdir::DirEntry::into_path).map_err(io::Error::from))
        .collect()
}

fn keep_mode_and_time(target: &Path, meta: &Metadata) -> io::Result<()> {
    set_time(target, meta.modified()?)?;
    fs::set_permissions(target, meta.permissions())
}

fn set_time(path: &Path, at: SystemTime) -> io::Result<()> {
    File::open(path)?.set_times(FileTimes::new().set_accessed(at).set_modified(at))
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

fn readable(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("from/sub")).expect("made");
        fs::write(dir.path().join("from/sub/file"), "text").expect("written");
        std::os::unix::fs::symlink("nowhere", dir.path().join("from/link")).expect("linked");
        set_time_ms(&dir.path().join("from/sub/file"), 1_790_000_000_000).expect("timed");
        set_time_ms(&dir.path().join("from/sub"), 1_790_000_001_000).expect("timed");
        dir
    }

    #[test]
    fn a_copy_keeps_links_modes_and_times() {
        let dir = sample();
        copy(&dir.path().join("from"), &dir.path().join("to")).expect("copied");
        let strip = |tree: BTreeMap<String, Entry>| -> Vec<_> {
            tree.into_iter().map(|(k, e)| (k, e.mode, e.size, e.mtime_ns, e.content)).collect()
        };
        let from = strip(snapshot(&dir.path().join("from")).expect("seen"));
        let to = strip(snapshot(&dir.path().join("to")).expect("seen"));
        // A link has its own time, which nobody can set through a path that follows it.
        let without_link = |v: &[(String, u32, u64, i128, Content)]| -> Vec<_> {
            v.iter().filter(|e| e.0 != "link" && !e.0.is_empty()).cloned().collect()
        };
        assert_eq!(without_link(&from), without_link(&to), "a copy equals its source");
        assert_eq!(
            to.iter().find(|e| e.0 == "link").expect("there").4,
            Content::Link("nowhere".into())
        );
    }

    #[test]
    fn a_difference_names_the_entry_and_what_changed_of_it() {
        let dir = sample();
        let before = snapshot(dir.path()).expect("seen");
        assert_eq!(diff(&before, &before), [""; 0], "a tree equals itself");
        fs::write(dir.path().join("from/sub/file"), "TEXT").expect("written");
        fs::write(dir.path().join("from/new"), "").expect("written");
        fs::remove_file(dir.path().join("from/link")).expect("removed");
        let lines = diff(&before, &snapshot(dir.path()).expect("seen"));
        assert!(lines.contains(&"from/new appeared".to_owned()), "{lines:?}");
        assert!(lines.contains(&"from/link vanished".to_owned()), "{lines:?}");
        let file = lines.iter().find(|l| l.starts_with("from/sub/file: ")).expect("reported");
        assert!(file.contains("content") && !file.contains("size"), "{file}");
    }
}
