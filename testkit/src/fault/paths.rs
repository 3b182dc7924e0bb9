//! What tests put on the disk in memory and look at, by paths from its root.
//!
//! Theory of operation. What is put there is an effect like any other, so whoever wants it to be the disk
//! *before* an operation calls [`FaultHost::begin`] after it. Looking is no look of an operation: it is not
//! counted, and cannot be made to fail.

use std::collections::BTreeMap;
use std::path::Path;

use runstore::store::host::WriteHost as _;

use super::disk::{Disk, Node, NodeId};
use super::host::FaultHost;

impl FaultHost {
    /// The directory at a path.
    ///
    /// # Panics
    /// When there is none.
    pub fn dir(&self, path: &str) -> NodeId {
        let node = {
            let world = self.world();
            let node = world.walk(Path::new(path)).ok();
            node.filter(|node| world.disk.entries(*node).is_some())
        };
        node.unwrap_or_else(|| panic!("{path}: there is no directory"))
    }

    /// Makes a private directory in one that is there.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn make_dir(&self, path: &str) {
        let (dir, name) = self.split(path);
        let made = self.create_dir(&dir, name.as_ref(), 0o700);
        made.unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Puts a file into a directory that is there, in the place of another one.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let (dir, name) = self.split(path);
        // Nothing may be there.
        let _ = self.unlink(&dir, name.as_ref());
        let file = self.create(&dir, name.as_ref(), 0o600);
        let file = file.unwrap_or_else(|e| panic!("{path}: {e}"));
        let taken = self.write(&file, bytes.as_ref());
        assert_eq!(taken.ok(), Some(bytes.as_ref().len()), "{path}: there is room");
    }

    /// As [`FaultHost::put`], in directories that are made where they are not there.
    ///
    /// # Panics
    /// When something of it cannot be made.
    pub fn put_below(&self, path: &str, bytes: impl AsRef<[u8]>) {
        for (at, _) in path.match_indices('/').skip(1) {
            if !self.has(&path[..at]) {
                self.make_dir(&path[..at]);
            }
        }
        self.put(path, bytes);
    }

    fn split<'p>(&self, path: &'p str) -> (NodeId, &'p str) {
        let (dir, name) = path.rsplit_once('/').expect("a path from the root");
        (self.dir(if dir.is_empty() { "/" } else { dir }), name)
    }

    /// Whether anything is at a path.
    pub fn has(&self, path: &str) -> bool {
        self.world().walk(Path::new(path)).is_ok()
    }

    /// Whether the file at a path was read since [`FaultHost::begin`].
    pub fn was_read(&self, path: &str) -> bool {
        let world = self.world();
        world.walk(Path::new(path)).is_ok_and(|node| world.reads.contains(&node))
    }

    /// The content of the file at a path, if there is one.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let world = self.world();
        match world.disk.nodes.get(&world.walk(Path::new(path)).ok()?)? {
            Node::File { data, .. } => Some(data.clone()),
            Node::Dir { .. } => None,
        }
    }

    /// The same as text; what is no text is replaced.
    pub fn text(&self, path: &str) -> Option<String> {
        self.bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Every path with its content (directories end in `/` and have none), for comparing disks.
    pub fn tree(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        fn walk(
            disk: &Disk,
            dir: NodeId,
            prefix: &str,
            out: &mut BTreeMap<String, Option<Vec<u8>>>,
        ) {
            for (name, node) in disk.entries(dir).into_iter().flatten() {
                let path = format!("{prefix}{}", name.to_string_lossy());
                match disk.nodes.get(node) {
                    Some(Node::File { data, .. }) => {
                        out.insert(path, Some(data.clone()));
                    }
                    Some(Node::Dir { .. }) => {
                        let path = path + "/";
                        walk(disk, *node, &path, out);
                        out.insert(path, None);
                    }
                    None => {}
                }
            }
        }
        let mut out = BTreeMap::new();
        walk(&self.world().disk, 0, "", &mut out);
        out
    }
}
