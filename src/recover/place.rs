//! Paths of records, opened name by name below the root.
//!
//! A path comes out of a file, so each of its components is checked, and each directory is opened by its name
//! without following a link. Spec: RS-REC-20.

use std::io;

use crate::store::directory;
use crate::store::host::{FileKind, Host, Part, ReadError, Stat};

use super::change::ChangeError;

/// The components of a path of a record; none of them leads up, and none is a path itself.
pub(super) fn components(path: &str) -> Result<(Vec<&str>, &str), ChangeError> {
    let mut names: Vec<&str> = path.split('/').collect();
    let is_name = |name: &&str| {
        !name.is_empty() && *name != "." && *name != ".." && !name.contains(['\0', '\\'])
    };
    match names.pop() {
        Some(last) if is_name(&last) && names.iter().all(is_name) => Ok((names, last)),
        _ => Err(ChangeError::BadPath(path.to_owned())),
    }
}

/// Does something with the directory of a path and its last name; `None` when a directory is not there.
pub(super) fn at<H: Host, T>(
    host: &H,
    root: &H::Dir,
    path: &str,
    act: impl FnOnce(&H::Dir, &str) -> T,
) -> Result<Option<T>, ChangeError> {
    let (names, last) = components(path)?;
    if names.is_empty() {
        return Ok(Some(act(root, last)));
    }
    let dir =
        directory::open_path(host, root, &names).map_err(|e| ChangeError::system(path, &e))?;
    Ok(dir.map(|dir| act(&dir, last)))
}

/// Reads a plain file whole; `None` when it is not there. With its permission bits.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn read<H: Host>(
    host: &H,
    root: &H::Dir,
    path: &str,
    part: Part,
) -> Result<Option<(Vec<u8>, Stat)>, ChangeError> {
    let looked = at(host, root, path, |dir, name| {
        // Opening a pipe may wake somebody.
        match host.stat_at(dir, name.as_ref()) {
            Ok(stat) if stat.kind != FileKind::Regular => Err(ReadError::NotPlain(stat.kind)),
            Ok(_) => host.read_at(dir, name.as_ref(), part),
            Err(e) => Err(e.into()),
        }
    })?;
    match looked {
        None | Some(Err(ReadError::Absent)) => Ok(None),
        Some(Ok(found)) => Ok(Some((found.bytes, found.stat))),
        Some(Err(ReadError::NotPlain(kind))) => {
            Err(ChangeError::changed(path, format!("it is {}", kind.name())))
        }
        Some(Err(ReadError::TooLarge { bytes, .. })) => {
            Err(ChangeError::changed(path, format!("it is {bytes} bytes long")))
        }
        Some(Err(ReadError::Io(e))) => Err(ChangeError::system(path, &e)),
    }
}

/// Looks at a name; `None` when it is not there.
pub(super) fn stat<H: Host>(
    host: &H,
    root: &H::Dir,
    path: &str,
) -> Result<Option<Stat>, ChangeError> {
    match at(host, root, path, |dir, name| host.stat_at(dir, name.as_ref()))? {
        None => Ok(None),
        Some(Ok(stat)) => Ok(Some(stat)),
        Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Some(Err(e)) => Err(ChangeError::system(path, &e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_record_stays_below_the_root() {
        for bad in ["", "/etc/passwd", "a//b", "a/../b", "..", "./a", "a/", "a\\b", "a\0"] {
            assert!(components(bad).is_err(), "{bad:?}");
        }
        assert_eq!(components("a/b/c").ok(), Some((vec!["a", "b"], "c")));
        assert_eq!(components("a").ok(), Some((vec![], "a")));
    }
}
