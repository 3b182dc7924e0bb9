//! Names of unfinished replacements.
//!
//! Theory of operation. A writer replaces a file by writing a temporary one beside it and renaming.
//! The temporary name says which file was meant, which process wrote and when, so what a crash
//! leaves behind is evidence: [`TempName::parse`] reads it back. Three writers have three grammars;
//! all start with a dot and end in `.tmp`:
//!
//! * the atomic writer: `.TARGET.PID.MS.RANDOM.tmp`, random in base 36 (facts W-2). When that would
//!   be longer than a file name, TARGET is the SHA-256 of the target's name instead (W-3);
//! * the control writer: the same with a UUID as RANDOM (W-30);
//! * the nested record writer: `.TARGET.tmp` (W-31).
//!
//! A TARGET that ends in `.old` is the second name of a file while it is replaced, see [`old_of`]: the text
//! that is there already, or was there before, and never a newer one.
//!
//! Not promised: that the process number is still that process, that the clock was right, or that
//! the content is whole. A 64-digit hexadecimal target is taken for a digest, since no protocol file
//! has such a name.

use std::fmt::Write as _;

use super::limits;
use super::segment::sha256_hex;

/// Which writer's grammar a name follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TempForm {
    /// The atomic JSON writer (W-2, W-3).
    Atomic,
    /// The control writer for a prepared directory (W-30).
    Control,
    /// The nested record writer, which names no process (W-31).
    Record,
}

/// The file that an unfinished replacement was meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempTarget {
    /// Its name.
    Name(String),
    /// The SHA-256 of its name, as 64 lower-case hexadecimal digits.
    Hashed(String),
}

impl TempTarget {
    /// Whether the replacement was meant for the file of this name.
    pub fn is(&self, name: &str) -> bool {
        match self {
            Self::Name(target) => target == name,
            Self::Hashed(digest) => *digest == sha256_hex(name.as_bytes()),
        }
    }
}

/// The parts of the name of an unfinished replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempName {
    /// The file that was to be replaced.
    pub target: TempTarget,
    /// Which writer's grammar the name follows.
    pub form: TempForm,
    /// The process that wrote it; `None` in the record form.
    pub pid: Option<u64>,
    /// When it was begun, in milliseconds since the Unix epoch; `None` in the record form.
    pub at_ms: Option<i64>,
    /// The random part, possibly empty.
    pub random: String,
}

impl TempName {
    /// Reads a file name, or `None` when no writer would have produced it.
    /// Spec: RS-LAYOUT-22, RS-LAYOUT-23.
    pub fn parse(name: &str) -> Option<Self> {
        let body = name.strip_prefix('.')?.strip_suffix(".tmp")?;
        Self::parse_stamped(body).or_else(|| {
            (!body.is_empty()).then(|| Self {
                target: TempTarget::Name(body.to_owned()),
                form: TempForm::Record,
                pid: None,
                at_ms: None,
                random: String::new(),
            })
        })
    }

    fn parse_stamped(body: &str) -> Option<Self> {
        let mut parts = body.rsplitn(4, '.');
        let (random, ms, pid, target) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let form = if is_base36(random) {
            TempForm::Atomic
        } else if is_uuid(random) {
            TempForm::Control
        } else {
            return None;
        };
        if target.is_empty() {
            return None;
        }
        let target = if target.len() == 64 && target.bytes().all(is_hex) {
            TempTarget::Hashed(target.to_owned())
        } else {
            TempTarget::Name(target.to_owned())
        };
        Some(Self {
            target,
            form,
            pid: Some(decimal(pid)?),
            at_ms: Some(decimal(ms)?.try_into().ok()?),
            random: random.to_owned(),
        })
    }
}

/// The temporary name that the atomic writer uses for `target`, a base name. `now_ms` is in
/// milliseconds since the Unix epoch; `random_text` is lower-case base 36. Facts W-2, W-3.
/// Spec: RS-LAYOUT-22, RS-LAYOUT-23.
pub fn temp_name(target: &str, pid: u64, now_ms: i64, random_text: &str) -> String {
    let with = |target: &str| {
        // Room for two numbers of any size, so that it never grows.
        let mut name = String::with_capacity(target.len() + random_text.len() + 48);
        let written = write!(name, ".{target}.{pid}.{now_ms}.{random_text}.tmp");
        written.expect("a string takes every text");
        name
    };
    let name = with(target);
    if name.len() <= limits::NAME_MAX_BYTES {
        return name;
    }
    with(&sha256_hex(target.as_bytes()))
}

/// What the target of a second name ends with.
const OLD_SUFFIX: &str = ".old";

/// The target for the temp name under which the old text of `target` is kept while it is replaced. No file
/// of the protocol is called so, hence nobody takes what is there for an unfinished text of `target`.
/// Spec: RS-ATOM-14.
pub fn old_of(target: &str) -> String {
    format!("{target}{OLD_SUFFIX}")
}

/// The file whose old text is kept under a temp name with this target, if it is such a target.
/// Spec: RS-ATOM-14.
pub fn original_of(target: &str) -> Option<&str> {
    target.strip_suffix(OLD_SUFFIX)
}

/// A number as writers spell it: digits only, no leading zero.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

fn is_base36(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

fn is_hex(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether a text has the shape of a lower-case UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => is_hex(b),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_as_it_was_made() {
        for target in ["status.json", ".x.json", "a b.json", "owner", "会话.json"] {
            for random in ["4fzzzxjylrx", ""] {
                let parsed = TempName::parse(&temp_name(target, 42, 1_700_000_000_000, random));
                let want = TempName {
                    target: TempTarget::Name(target.to_owned()),
                    form: TempForm::Atomic,
                    pid: Some(42),
                    at_ms: Some(1_700_000_000_000),
                    random: random.to_owned(),
                };
                assert_eq!(parsed, Some(want), "{target} {random}");
            }
        }
    }

    #[test]
    fn a_long_target_is_hashed_at_256_bytes_and_still_recognised() {
        let suffix = temp_name("", 42, 1_700_000_000_000, "r").len();
        let fits = "x".repeat(255 - suffix);
        assert_eq!(temp_name(&fits, 42, 1_700_000_000_000, "r").len(), 255);
        let long = format!("{fits}x");
        let parsed = TempName::parse(&temp_name(&long, 42, 1_700_000_000_000, "r")).expect("ours");
        assert!(matches!(parsed.target, TempTarget::Hashed(_)));
        assert!(parsed.target.is(&long) && !parsed.target.is(&fits));
    }

    // RS-ATOM-14.
    #[test]
    fn an_old_text_under_its_second_name_is_no_newer_text_of_its_file() {
        for target in ["status.json", &"x".repeat(240)] {
            let name = temp_name(&old_of(target), 42, 1_700_000_000_000, "r");
            let parsed = TempName::parse(&name).expect("litter of a known form");
            assert!(!parsed.target.is(target) && parsed.target.is(&old_of(target)), "{name}");
            assert_eq!((parsed.pid, parsed.at_ms), (Some(42), Some(1_700_000_000_000)));
        }
        assert_eq!(original_of(&old_of("mission.json")), Some("mission.json"));
        assert_eq!(original_of("mission.json"), None);
    }

    #[test]
    fn the_other_writers_names_are_told_apart() {
        let uuid = ".r.json.7.1700000000000.0f4d8a3e-1c1b-4e43-9f0e-6d1f5d1a2b3c.tmp";
        let control = TempName::parse(uuid).expect("control writer");
        assert_eq!((control.form, control.pid), (TempForm::Control, Some(7)));
        let record = TempName::parse(".1700000000000-u.json.tmp").expect("record writer");
        assert_eq!((record.form, record.pid), (TempForm::Record, None));
        assert!(record.target.is("1700000000000-u.json"));
    }

    #[test]
    fn other_names_are_not_litter() {
        for name in ["status.json", "status.json.tmp", ".tmp", "..tmp", ".x.tmp~", "", ".x"] {
            let parsed = TempName::parse(name);
            assert!(parsed.is_none(), "{name:?} parsed as {parsed:?}");
        }
        // Numbers that no writer spells so make the whole body a name, never a wrong process.
        for name in [".s.007.17.r.tmp", ".s.-1.17.r.tmp", ".s.99999999999999999999.1.r.tmp"] {
            assert_eq!(TempName::parse(name).expect("litter").pid, None, "{name:?}");
        }
    }
}
