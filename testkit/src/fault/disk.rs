//! The tree in memory and its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// A file or directory, for the life of a world.
pub type NodeId = usize;

/// A file or directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File { data: Vec<u8>, mode: u32, mtime_ms: i64 },
    Dir { entries: BTreeMap<OsString, NodeId>, mode: u32, mtime_ms: i64 },
}

/// One change of the disk, or one flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A file was created.
    Create {
        /// Directory.
        dir: NodeId,
        /// Name.
        name: OsString,
        /// The new file.
        node: NodeId,
        /// Its mode.
        mode: u32,
        /// When.
        at_ms: i64,
    },
    /// A directory was created.
    CreateDir {
        /// Directory.
        dir: NodeId,
        /// Name.
        name: OsString,
        /// The new directory.
        node: NodeId,
        /// Its mode.
        mode: u32,
        /// When.
        at_ms: i64,
    },
    /// Bytes were added at the end of a file.
    Write {
        /// File.
        node: NodeId,
        /// Bytes.
        bytes: Vec<u8>,
        /// When.
        at_ms: i64,
    },
    /// A mode was set.
    SetMode {
        /// File or directory.
        node: NodeId,
        /// Mode.
        mode: u32,
    },
    /// A file was flushed.
    Sync {
        /// File.
        node: NodeId,
    },
    /// A directory was flushed.
    SyncDir {
        /// Directory.
        dir: NodeId,
    },
    /// A file was given another name in its directory.
    AddName {
        /// Directory.
        dir: NodeId,
        /// The other name.
        name: OsString,
        /// The file.
        node: NodeId,
    },
    /// A name was moved.
    Rename {
        /// Directory of the old name.
        from_dir: NodeId,
        /// Old name.
        from: OsString,
        /// Directory of the new name.
        to_dir: NodeId,
        /// New name.
        to: OsString,
        /// What the name leads to.
        node: NodeId,
    },
    /// A name was removed.
    Unlink {
        /// Directory.
        dir: NodeId,
        /// Name.
        name: OsString,
    },
}

impl Effect {
    /// Whether it changes entries of a directory, and of which.
    pub(super) fn entry_dirs(&self) -> Vec<NodeId> {
        match self {
            Self::Create { dir, .. }
            | Self::CreateDir { dir, .. }
            | Self::AddName { dir, .. }
            | Self::Unlink { dir, .. } => vec![*dir],
            Self::Rename { from_dir, to_dir, .. } if from_dir == to_dir => vec![*from_dir],
            Self::Rename { from_dir, to_dir, .. } => vec![*from_dir, *to_dir],
            _ => Vec::new(),
        }
    }
}

/// The disk: nodes by id, the root is 0.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    /// How often the mode or a name of each node changed, which moves its change time.
    changes: BTreeMap<NodeId, u32>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let root = Node::Dir { entries: BTreeMap::new(), mode: 0o700, mtime_ms: 0 };
        Self { nodes: BTreeMap::from([(0, root)]), changes: BTreeMap::new() }
    }

    pub(super) fn entries(&self, dir: NodeId) -> Option<&BTreeMap<OsString, NodeId>> {
        match self.nodes.get(&dir)? {
            Node::Dir { entries, .. } => Some(entries),
            Node::File { .. } => None,
        }
    }

    /// How many names lead to a node.
    pub(super) fn names_of(&self, node: NodeId) -> u64 {
        let dirs = self.nodes.values().filter_map(|dir| match dir {
            Node::Dir { entries, .. } => Some(entries),
            Node::File { .. } => None,
        });
        dirs.flat_map(BTreeMap::values).filter(|named| **named == node).count() as u64
    }

    /// How often the mode or a name of a node changed.
    pub(super) fn changes_of(&self, node: NodeId) -> u32 {
        self.changes.get(&node).copied().unwrap_or_default()
    }

    fn changed(&mut self, node: NodeId) {
        *self.changes.entry(node).or_default() += 1;
    }

    /// Nodes with an entry here that have none on the other disk.
    pub(super) fn named_only_here(&self, other: &Self) -> BTreeSet<NodeId> {
        let named = |disk: &Self| -> BTreeSet<NodeId> {
            let dirs = disk.nodes.keys().filter_map(|node| disk.entries(*node));
            dirs.flat_map(BTreeMap::values).copied().collect()
        };
        &named(self) - &named(other)
    }

    /// Takes every entry away that leads to one of these, as a repair does with files that have ended.
    pub(super) fn end(&mut self, ended: &BTreeSet<NodeId>) {
        for node in self.nodes.values_mut() {
            if let Node::Dir { entries, .. } = node {
                entries.retain(|_, node| !ended.contains(node));
            }
        }
    }

    fn entries_mut(&mut self, dir: NodeId) -> Option<&mut BTreeMap<OsString, NodeId>> {
        match self.nodes.get_mut(&dir)? {
            Node::Dir { entries, .. } => Some(entries),
            Node::File { .. } => None,
        }
    }

    fn touch(&mut self, dir: NodeId, now_ms: i64) {
        if let Some(Node::Dir { mtime_ms, .. }) = self.nodes.get_mut(&dir) {
            *mtime_ms = now_ms;
        }
    }

    /// Applies what an effect does to nodes, without its entries.
    pub(super) fn apply_content(&mut self, effect: &Effect) {
        match effect {
            Effect::Create { node, mode, at_ms, .. } => {
                let file = Node::File { data: Vec::new(), mode: *mode, mtime_ms: *at_ms };
                self.nodes.entry(*node).or_insert(file);
            }
            Effect::CreateDir { node, mode, at_ms, .. } => {
                let dir = Node::Dir { entries: BTreeMap::new(), mode: *mode, mtime_ms: *at_ms };
                self.nodes.entry(*node).or_insert(dir);
            }
            Effect::Write { node, bytes, at_ms } => {
                if let Some(Node::File { data, mtime_ms, .. }) = self.nodes.get_mut(node) {
                    data.extend_from_slice(bytes);
                    *mtime_ms = *at_ms;
                }
            }
            Effect::SetMode { node, mode } => {
                if let Some(Node::File { mode: own, .. } | Node::Dir { mode: own, .. }) =
                    self.nodes.get_mut(node)
                {
                    *own = *mode;
                }
                self.changed(*node);
            }
            _ => {}
        }
    }

    /// Applies what an effect does to entries. `now_ms` becomes the time of the directory.
    pub(super) fn apply_entries(&mut self, effect: &Effect, now_ms: i64) {
        match effect {
            Effect::Create { dir, name, node, .. }
            | Effect::CreateDir { dir, name, node, .. }
            | Effect::AddName { dir, name, node } => {
                if let Some(entries) = self.entries_mut(*dir) {
                    entries.insert(name.clone(), *node);
                }
                self.changed(*node);
            }
            Effect::Rename { from_dir, from, to_dir, to, node } => {
                if let Some(entries) = self.entries_mut(*from_dir) {
                    // Only the name that was moved: another one may have taken its place since.
                    if entries.get(from) == Some(node) {
                        entries.remove(from);
                    }
                }
                if let Some(entries) = self.entries_mut(*to_dir) {
                    let old = entries.insert(to.clone(), *node);
                    [Some(*node), old].into_iter().flatten().for_each(|node| self.changed(node));
                }
            }
            Effect::Unlink { dir, name } => {
                let removed = self.entries_mut(*dir).and_then(|entries| entries.remove(name));
                removed.into_iter().for_each(|node| self.changed(node));
            }
            _ => {}
        }
        for dir in effect.entry_dirs() {
            self.touch(dir, now_ms);
        }
    }
}
