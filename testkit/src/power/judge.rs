//! What a mounted image holds, judged with plain reads.
//!
//! Theory of operation. The texts of the workloads tell their version, and their whole content follows
//! from it, so a text is whole or it is not. Whatever is wrong is one of four: *torn* (a file that is no
//! whole text), *lost* (older than acknowledged, or not there), *astray* (the name is gone, but a text that
//! is not older than acknowledged lies whole in a temp file), *loose* (another mode than 0600 or 0700).
//! Otherwise temp files are litter and may hold anything.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{FRESH, REPLACED, Shape, VERSIONS, WRITER, run_name};
use crate::driver;

/// What is wrong with one image: an example of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// A file is no whole text.
    pub torn: Option<String>,
    /// An acknowledged version is not there.
    pub lost: Option<String>,
    /// An acknowledged version, or a newer one, is there under a temp name only.
    pub astray: Option<String>,
    /// A mode is not private.
    pub loose: Option<String>,
}

/// Looks at a mounted image, for what one shape of workload has left.
///
/// # Errors
/// When what is there cannot be read: an image that was mounted is expected to be readable.
pub fn look(top: &Path, shape: Shape, acknowledged: u64) -> io::Result<Verdict> {
    let mut verdict = Verdict::default();
    match shape {
        Shape::Replaced => replaced(&top.join(REPLACED), acknowledged, &mut verdict)?,
        Shape::Fresh => {
            for version in 1..=VERSIONS {
                let run = top.join(FRESH).join(run_name(version));
                fresh(&run, version, version <= acknowledged, &mut verdict)?;
            }
        }
    }
    Ok(verdict)
}

/// One file: some version, not older than acknowledged. It was there before the recording began.
fn replaced(dir: &Path, acknowledged: u64, verdict: &mut Verdict) -> io::Result<()> {
    let Some(version) = version(&dir.join("status.json"), verdict)? else {
        match newest_temp(dir)?.filter(|version| *version >= acknowledged) {
            Some(version) => {
                verdict.astray = Some(format!("no file, but version {version} in a temp file"));
            }
            None => verdict.lost = Some(format!("no file, {acknowledged} was acknowledged")),
        }
        return Ok(());
    };
    match version {
        Ok(version) if version < acknowledged => {
            verdict.lost = Some(format!("version {version}, {acknowledged} was acknowledged"));
        }
        Ok(_) => {}
        Err(torn) => verdict.torn = Some(torn),
    }
    Ok(())
}

/// The newest whole text in a temp file.
fn newest_temp(dir: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(b".tmp") {
            newest =
                newest.max(version(&entry.path(), &mut Verdict::default())?.and_then(Result::ok));
        }
    }
    Ok(newest)
}

/// One run directory: with its file if it was acknowledged, else with or without.
fn fresh(run: &Path, wanted: u64, acknowledged: bool, verdict: &mut Verdict) -> io::Result<()> {
    let mode = mode(run)?;
    if mode.is_some_and(|mode| mode != 0o700) {
        verdict.loose = Some(format!("run-{wanted} has mode {:o}", mode.unwrap_or_default()));
    }
    let found = match mode {
        Some(_) => version(&run.join("status.json"), verdict)?,
        None => None,
    };
    match found {
        Some(Ok(version)) if version == wanted => {}
        Some(Ok(version)) => verdict.torn = Some(format!("run-{wanted} holds version {version}")),
        Some(Err(torn)) => verdict.torn = Some(format!("run-{wanted}: {torn}")),
        None if acknowledged => {
            let what = if mode.is_some() { "has no file" } else { "is not there" };
            verdict.lost = Some(format!("run-{wanted} {what}, but was acknowledged"));
        }
        None => {}
    }
    Ok(())
}

/// The version of a file, or how it is torn; nothing if there is none.
fn version(file: &Path, verdict: &mut Verdict) -> io::Result<Option<Result<u64, String>>> {
    let Some(mode) = mode(file)? else { return Ok(None) };
    if mode != 0o600 {
        verdict.loose = Some(format!("a file has mode {mode:o}"));
    }
    let bytes = fs::read(file)?;
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    Ok(Some(match driver::hammered_by(&bytes) {
        Some((WRITER, version)) => Ok(version),
        _ => Err(format!("no whole text: {} bytes, {zeros} of them zero", bytes.len())),
    }))
}

fn mode(path: &Path) -> io::Result<Option<u32>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.mode() & 0o7777)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use super::*;

    fn put(file: &Path, bytes: &[u8]) {
        fs::write(file, bytes).expect("room");
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("ours");
    }

    fn private(dir: &Path) {
        fs::DirBuilder::new().mode(0o700).create(dir).expect("room");
    }

    #[test]
    fn a_replaced_file_is_whole_and_not_older_than_acknowledged() {
        let top = tempfile::tempdir().expect("a temporary directory");
        private(&top.path().join(REPLACED));
        let file = top.path().join(REPLACED).join("status.json");
        let look = |acknowledged| look(top.path(), Shape::Replaced, acknowledged).expect("ours");
        assert!(look(0).lost.is_some(), "the first version was there before");
        let text = driver::hammered(WRITER, 3);
        put(&file, text.as_bytes());
        assert_eq!(look(3), Verdict::default());
        assert_eq!(look(2), Verdict::default(), "a newer one is as good");
        assert!(look(4).lost.is_some(), "it is older");
        for torn in [&text.as_bytes()[1..], b"", &vec![0; text.len()]] {
            put(&file, torn);
            assert!(look(0).torn.is_some());
        }
        put(&file, text.as_bytes());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(look(3).loose.is_some());
        put(&top.path().join(REPLACED).join(".status.json.7.tmp"), text.as_bytes());
        assert_eq!(
            look(4).astray,
            None,
            "the temp file does not matter as long as there is a file"
        );
        fs::remove_file(&file).expect("ours");
        assert!(look(4).lost.is_some(), "what is in the temp file is older");
        assert!(look(3).astray.is_some() && look(3).lost.is_none());
    }

    #[test]
    fn an_acknowledged_run_has_its_directory_and_its_file() {
        let top = tempfile::tempdir().expect("a temporary directory");
        private(&top.path().join(FRESH));
        let run = top.path().join(FRESH).join(run_name(1));
        let look = |acknowledged| look(top.path(), Shape::Fresh, acknowledged).expect("ours");
        assert_eq!(look(0), Verdict::default());
        assert!(look(1).lost.is_some(), "no directory");
        private(&run);
        assert_eq!(look(0), Verdict::default(), "an empty directory may be on its way");
        assert!(look(1).lost.is_some(), "no file");
        put(&run.join("status.json"), driver::hammered(WRITER, 1).as_bytes());
        assert_eq!(look(1), Verdict::default());
        put(&run.join("status.json"), b"");
        assert!(look(0).torn.is_some(), "empty is torn, acknowledged or not");
    }
}
