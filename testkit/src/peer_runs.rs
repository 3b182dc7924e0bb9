//! Recorded stores of other harnesses, made whole again.
//!
//! Theory of operation. A recording is `PEER/CASE/case.json` plus one folder for each snapshot. Git
//! keeps neither modes nor empty directories, so `case.json` lists both; [`Recording::materialise`]
//! copies a snapshot's folder and makes what git dropped. The bytes of the records stay as recorded,
//! including the placeholder paths in them: the store has moved, as a copied one has.
//!
//! Listed files whose bytes were left out of a recording stay absent; `case.json` says which those are.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tree;

/// Makes every snapshot of every recording below `top` whole, one after the other, and shows its name and its root.
///
/// # Errors
/// What could not be read or made, and a recording without lists of its files.
pub fn each_snapshot(top: &Path, mut look: impl FnMut(&str, &Path)) -> io::Result<()> {
    for recording in Recording::all(top)? {
        let lists = recording.case.get("files").and_then(Value::as_object);
        let lists = lists.ok_or_else(|| wrong(&recording.name, &"no lists of files"))?;
        for snapshot in lists.keys() {
            let (_dir, root) = recording.fresh(snapshot)?;
            look(&format!("{} {snapshot}", recording.name), &root);
        }
    }
    Ok(())
}

/// One recorded case of one peer.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The folder that holds `case.json`.
    pub folder: PathBuf,
    /// `PEER/CASE`, for messages.
    pub name: String,
    /// The whole `case.json`.
    pub case: Value,
}

impl Recording {
    /// Every recording below `top`, in the order of their names.
    ///
    /// # Errors
    /// What could not be read, and a `case.json` that is not JSON.
    pub fn all(top: &Path) -> io::Result<Vec<Self>> {
        let mut out = Vec::new();
        for path in tree::walk(top)? {
            if path.file_name().is_none_or(|n| n != "case.json") {
                continue;
            }
            let folder = path.parent().expect("a file has a parent").to_owned();
            let name = folder.strip_prefix(top).expect("a walk stays below its top");
            let name = name.display().to_string();
            let case = serde_json::from_slice(&fs::read(&path)?).map_err(|e| wrong(&name, &e))?;
            out.push(Self { folder, name, case });
        }
        Ok(out)
    }

    /// The entries of `expected`: what is to be said of one run in one snapshot.
    pub fn expected(&self) -> &[Value] {
        self.case.get("expected").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Makes one snapshot whole in a directory of its own, which goes with the first of both; the second is its root.
    ///
    /// # Errors
    /// What could not be read or made.
    pub fn fresh(&self, snapshot: &str) -> io::Result<(tempfile::TempDir, PathBuf)> {
        let dir = tempfile::tempdir()?;
        let root = fs::canonicalize(dir.path())?.join("root");
        self.materialise(snapshot, &root)?;
        Ok((dir, root))
    }

    /// Copies one snapshot to `to`, which must not exist, with the directories and modes that its list
    /// names.
    ///
    /// # Errors
    /// What could not be copied or made, a snapshot without a list, and a line that cannot be read.
    pub fn materialise(&self, snapshot: &str, to: &Path) -> io::Result<()> {
        tree::copy(&self.folder.join(snapshot), to)?;
        let list = self.case.pointer("/files").and_then(|files| files.get(snapshot)?.as_array());
        let list = list.ok_or_else(|| wrong(&self.name, &format!("no list of {snapshot}")))?;
        let lines: Option<Vec<_>> = list.iter().map(|line| parse(line.as_str()?)).collect();
        let lines = lines.ok_or_else(|| wrong(&self.name, &"a line is not `MODE PATH [SIZE]`"))?;
        for line in lines.iter().filter(|line| line.folder) {
            fs::create_dir_all(to.join(line.path))?;
        }
        // From the inside out, so that a directory that may not be entered is closed last.
        let sorted: BTreeSet<_> = lines.iter().map(|line| (line.path, line.mode)).collect();
        for (path, mode) in sorted.iter().rev() {
            let path = to.join(path);
            if path.exists() {
                fs::set_permissions(&path, Permissions::from_mode(*mode))?;
            }
        }
        Ok(())
    }
}

/// The directory of run `id` in a materialised store: the only one of that name with a status.
pub fn run_directory(root: &Path, id: &str) -> io::Result<PathBuf> {
    let paths = tree::walk(root)?;
    let mut found = paths.into_iter().filter(|path| {
        path.file_name().is_some_and(|n| n == id) && path.join("status.json").is_file()
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(wrong(id, &"no directory of this run")),
        (Some(_), Some(_)) => Err(wrong(id, &"more than one directory of this run")),
    }
}

struct Line<'a> {
    mode: u32,
    path: &'a str,
    folder: bool,
}

/// A directory is `MODE PATH/`, a file `MODE PATH SIZE`.
fn parse(line: &str) -> Option<Line<'_>> {
    let (mode, rest) = line.split_once(' ')?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    if let Some(path) = rest.strip_suffix('/') {
        return Some(Line { mode, path, folder: true });
    }
    let (path, size) = rest.rsplit_once(' ')?;
    size.parse::<u64>().ok()?;
    Some(Line { mode, path, folder: false })
}

fn wrong(name: &str, what: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_materialised_snapshot_has_the_modes_and_empty_directories_of_its_list() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = dir.path().join("peer/case");
        fs::create_dir_all(folder.join("final/runs/r")).expect("made");
        fs::write(folder.join("final/runs/r/status.json"), "{}").expect("written");
        let case = json!({"files": {"final": [
            "0755 runs/", "0700 runs/r/", "0600 runs/r/status.json 2", "0750 runs/r/control/",
            "0644 runs/r/left out.log 7",
        ]}, "expected": [{}]});
        fs::write(folder.join("case.json"), case.to_string()).expect("written");
        let all = Recording::all(dir.path()).expect("read");
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "peer/case");
        assert_eq!(all[0].expected().len(), 1);
        let to = dir.path().join("copy");
        all[0].materialise("final", &to).expect("made");
        let tree = tree::snapshot(&to).expect("seen");
        let mode = |name: &str| tree.get(name).map(|e| e.mode & 0o777);
        assert_eq!(mode("runs/r"), Some(0o700));
        assert_eq!(mode("runs/r/status.json"), Some(0o600));
        assert_eq!(mode("runs/r/control"), Some(0o750), "git keeps no empty directory");
        assert_eq!(mode("runs/r/left out.log"), None, "bytes that were not recorded stay absent");
        assert_eq!(run_directory(&to, "r").expect("found"), to.join("runs/r"));
        assert!(all[0].materialise("other", &dir.path().join("x")).is_err(), "no such snapshot");
    }
}
