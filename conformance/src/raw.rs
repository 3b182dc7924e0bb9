//! Names, digests and JSON lookups, written for the suite alone.
//!
//! Theory of operation. Small pure functions, and the one way in which the suite puts a file in place: whole, by a
//! rename from its own scratch directory, so that a subject never sees half of it. The vectors in
//! `conformance/vectors/` are what the names are tested against.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The 64 lower-case hex digits of the SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The percent-encoding of a text, as chapter 8.3 of the spec has it.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// An id made fit for a file name; `limit` is 255, or 250 where `.json` follows.
pub(crate) fn segment(text: &str, limit: usize) -> String {
    let plain = percent(text);
    if plain.len() <= limit && is_portable(&plain) {
        return plain;
    }
    format!("~sha256-{}", sha256(text.as_bytes()))
}

fn is_portable(plain: &str) -> bool {
    let lower = plain.to_ascii_lowercase();
    let stem = lower.split('.').next().unwrap_or_default();
    let numbered = ["com", "lpt"]
        .iter()
        .any(|name| stem.strip_prefix(name).is_some_and(|n| matches!(n.as_bytes(), [b'1'..=b'9'])));
    let device = matches!(stem, "con" | "prn" | "aux" | "nul") || numbered;
    let ending = plain.rsplit_once('.').is_some_and(|(_, end)| {
        let mut bytes = end.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
            && end.len() <= 8
            && bytes.all(|b| b.is_ascii_alphanumeric())
    });
    !plain.is_empty() && !plain.ends_with('.') && !device && !lower.contains("%5c") && !ending
}

/// Whether a name has the form of a temp name for some file: `.<base>.<pid>.<ms>.<random>.tmp`.
pub(crate) fn is_temp_name(name: &str) -> bool {
    let Some(inner) = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")) else {
        return false;
    };
    let mut parts = inner.rsplitn(4, '.');
    let (random, ms, pid, base) = (parts.next(), parts.next(), parts.next(), parts.next());
    let digits = |text: Option<&str>| {
        text.is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
    };
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    random.is_some_and(|r| r.bytes().all(word))
        && digits(ms)
        && digits(pid)
        && base.is_some_and(|b| !b.is_empty())
}

/// The random part of a temp name, if it is one.
pub(crate) fn temp_random(name: &str) -> Option<&str> {
    let inner = name.strip_suffix(".tmp").filter(|_| is_temp_name(name))?;
    inner.rsplit('.').next()
}

/// Whether a path matches a pattern, in which `*` stands for anything but `/` and `**` for anything.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let Some(star) = pattern.find('*') else { return pattern == path };
    let (head, rest) = pattern.split_at(star);
    let Some(path) = path.strip_prefix(head) else { return false };
    let (any, rest) = match rest.strip_prefix("**") {
        Some(rest) => (true, rest),
        None => (false, &rest[1..]),
    };
    let ends = path.char_indices().map(|(at, _)| at).chain([path.len()]);
    ends.take_while(|at| any || !path[..*at].contains('/')).any(|at| matches(rest, &path[at..]))
}

/// Puts a file in place as a whole, for its user alone.
///
/// # Errors
/// What the system says.
pub(crate) fn put(scratch: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let name = format!("put-{}", sha256(path.as_os_str().as_encoded_bytes()));
    let temp = scratch.join(name);
    fs::write(&temp, text)?;
    fs::set_permissions(&temp, fs::Permissions::from_mode(0o600))?;
    fs::rename(&temp, path)
}

/// A text as the protocol's writers form it: two spaces, no newline at the end.
pub(crate) fn pretty(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

/// The name of this host.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// When a process began, in clock ticks since the start of the system.
pub(crate) fn start_identity(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    Some(format!("linux:{ticks}"))
}

/// The inode of a handle of a process, where the kernel gives each process its own (Linux 6.9 and later).
#[cfg(target_os = "linux")]
pub(crate) fn process_inode(pid: u32) -> Option<u64> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The magic number of pidfs; elsewhere all handles share one inode.
    let is_pidfs = rustix::fs::fstatfs(&handle).ok()?.f_type == 0x5049_4446;
    is_pidfs.then(|| rustix::fs::fstat(&handle).ok().map(|stat| stat.st_ino))?
}

/// Without handles no process has one.
#[cfg(not(target_os = "linux"))]
pub(crate) fn process_inode(_pid: u32) -> Option<u64> {
    None
}

/// Which start of the system this is.
pub(crate) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The namespace that process numbers of this process belong to.
pub(crate) fn pid_scope() -> Option<String> {
    let scope = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(scope.to_string_lossy().into_owned())
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds since a moment.
pub(crate) fn since_ms(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A text for one line: control characters become spaces, and it is cut.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_those_of_the_vectors() {
        for (text, wanted) in [
            ("abc", "abc"),
            ("a b", "a%20b"),
            ("/x/y", "%2Fx%2Fy"),
            ("console", "console"),
            ("v1.2", "v1.2"),
            ("a.b-c", "a.b-c"),
            ("x.longextension", "x.longextension"),
            ("%5C", "%255C"),
            ("con", "~sha256-1143da2bc54c495c4be31d3868785d39ffdfd56df5668f0645d8f14d47647952"),
            (
                "/x/s.jsonl",
                "~sha256-3fb2c4f429bac8076b82f2acf7feeecbf6fb25eb010d8af08bf7c2a8d55a35f1",
            ),
            ("a.", "~sha256-5ab640fad553cbf927dc96b8e7878a9844b2fa79b7a4f5c515e186970ec53027"),
            ("", "~sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ] {
            assert_eq!(segment(text, 255), wanted, "{text:?}");
        }
        assert!(segment("a.b", 255).starts_with("~sha256-"));
        assert!(segment("con.x", 255).starts_with("~sha256-"));
        assert!(segment("C:\\x", 255).starts_with("~sha256-"));
        assert_eq!(segment(&"é".repeat(42), 255).len(), 252);
        assert!(segment(&"é".repeat(43), 255).starts_with("~sha256-"));
    }

    #[test]
    fn two_processes_have_two_inodes_where_they_have_any() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("a process");
        let (own, other) = (process_inode(std::process::id()), process_inode(child.id()));
        child.kill().expect("ended");
        child.wait().expect("waited for");
        assert_eq!(own.is_some(), other.is_some());
        assert!(own.is_none() || own != other, "{own:?}");
    }

    #[test]
    fn temp_names_are_told_from_others() {
        assert!(is_temp_name(".status.json.12.1790000000000.ab12.tmp"));
        assert!(is_temp_name(".status.json.12.1790000000000..tmp"));
        for other in ["status.json", ".status.json.tmp", ".status.json.x.1.a.tmp", ".1.2.a.tmp"] {
            assert!(!is_temp_name(other), "{other}");
        }
    }

    #[test]
    fn a_star_stops_at_a_slash() {
        assert!(matches("a/*/c", "a/b/c") && !matches("a/*/c", "a/b/b/c"));
        assert!(matches("a/**", "a/b/b/c") && matches("a/*", "a/") && !matches("a", "b"));
    }
}
