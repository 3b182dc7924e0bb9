//! The host over the tree in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use runstore::protocol::process::{Presence, ProcessSeen, SystemFacts};
use runstore::store::host::{
    DirEntry, FileKind, FileRead, Host, Part, ReadError, Space, Stat, WriteHost,
};

use crate::power::recording::Chance;

use super::disk::{Disk, Effect, Node, NodeId};
use super::process::Script;

/// What an injected failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// This error number, and nothing happens.
    Errno(i32),
    /// A write takes only this many bytes (other calls succeed).
    ShortWrite(usize),
}

/// A host in memory. See the module's theory of operation.
pub struct FaultHost {
    world: Mutex<World>,
    system: SystemFacts,
    pub(super) script: Mutex<Script>,
}

pub(super) struct World {
    pub(super) disk: Disk,
    /// The disk at the last [`FaultHost::begin`].
    base: Disk,
    dead_from: Option<usize>,
    effects: Vec<(usize, Effect)>,
    calls: usize,
    next: NodeId,
    now_ms: i64,
    chance: Chance,
    failures: BTreeMap<usize, Injected>,
    looks: usize,
    pub(super) reads: Vec<NodeId>,
    blind: BTreeMap<usize, i32>,
    umask: u32,
    processes: BTreeMap<i64, ProcessSeen>,
    env: BTreeMap<String, OsString>,
    interlopers: BTreeMap<usize, Interloper>,
    on_probe: Option<(usize, Interloper)>,
    locked: BTreeSet<NodeId>,
    room_bytes: Option<u64>,
    numbered: bool,
    journal: bool,
}

/// What another process does at one moment of an operation.
type Interloper = Box<dyn FnOnce(&FaultHost) + Send>;

impl Default for FaultHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultHost {
    /// An empty disk at a fixed instant.
    pub fn new() -> Self {
        Self::over(Disk::new(), 1, 1_790_000_000_000)
    }

    pub(super) fn over(disk: Disk, next: NodeId, now_ms: i64) -> Self {
        let world = World {
            base: disk.clone(),
            dead_from: None,
            disk,
            effects: Vec::new(),
            calls: 0,
            next,
            now_ms,
            // After a crash chance goes another way: a new process never draws the same names again.
            chance: Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(next as u64)),
            failures: BTreeMap::new(),
            looks: 0,
            reads: Vec::new(),
            blind: BTreeMap::new(),
            umask: 0o022,
            processes: BTreeMap::new(),
            env: BTreeMap::new(),
            interlopers: BTreeMap::new(),
            on_probe: None,
            locked: BTreeSet::new(),
            room_bytes: None,
            numbered: true,
            journal: true,
        };
        let system = SystemFacts {
            host: "host-a".to_owned(),
            boot_id: Some("boot-1".to_owned()),
            boot_time_ms: Some(now_ms - 3_600_000),
            pid_namespace: Some("pid:[1]".to_owned()),
            own_pid: 4242,
            uid: Some(1000),
        };
        Self { world: Mutex::new(world), system, script: Mutex::default() }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test panics while it holds the world")
    }

    /// Forgets what was recorded: what is there now is the disk before the operation.
    pub fn begin(&self) {
        let mut world = self.world();
        world.base = world.disk.clone();
        world.dead_from = None;
        world.effects.clear();
        world.calls = 0;
        world.looks = 0;
        world.reads.clear();
    }

    /// What was recorded since [`FaultHost::begin`].
    pub fn effects(&self) -> Vec<Effect> {
        self.world().effects.iter().map(|(_, effect)| effect.clone()).collect()
    }

    /// The same, each with its number among the calls (see [`FaultHost::fail_at`]).
    pub fn numbered_effects(&self) -> Vec<(usize, Effect)> {
        self.world().effects.clone()
    }

    /// Number of effects that were asked for since [`FaultHost::begin`], failed ones included.
    pub fn calls(&self) -> usize {
        self.world().calls
    }

    pub(super) fn disk(&self) -> (Disk, NodeId, i64) {
        let world = self.world();
        (world.disk.clone(), world.next, world.now_ms)
    }

    /// Lets whoever acts now die after `n` more effects: no later one happens.
    pub fn die_after(&self, n: usize) {
        let mut world = self.world();
        world.dead_from = Some(world.calls + n);
    }

    /// From here on somebody else acts; says whether the last one died.
    pub fn others_turn(&self) -> bool {
        let mut world = self.world();
        let (calls, from) = (world.calls, world.dead_from.take());
        from.is_some_and(|from| calls > from)
    }

    /// The disk at the last [`FaultHost::begin`], with what was recorded since.
    pub(super) fn since_begin(&self) -> (Disk, Vec<Effect>) {
        let base = self.world().base.clone();
        (base, self.effects())
    }

    /// Makes the `n`-th effect (from 0, counted from [`FaultHost::begin`]) fail.
    pub fn fail_at(&self, n: usize, how: Injected) {
        self.world().failures.insert(n, how);
    }

    /// Number of looks at files, directories and paths since [`FaultHost::begin`].
    pub fn looks(&self) -> usize {
        self.world().looks
    }

    /// Number of files that were read since [`FaultHost::begin`].
    pub fn reads(&self) -> usize {
        self.world().reads.len()
    }

    /// Makes the `n`-th look (from 0, counted from [`FaultHost::begin`]) fail with this error number.
    pub fn fail_look_at(&self, n: usize, errno: i32) {
        self.world().blind.insert(n, errno);
    }

    /// The world for one look, which may be made to fail.
    fn look(&self) -> io::Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        let n = world.looks;
        world.looks += 1;
        match world.blind.get(&n) {
            Some(number) => Err(errno(*number)),
            None => Ok(world),
        }
    }

    /// Gives a file a second name. Not an effect: tests plant it.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn link(&self, dir: NodeId, name: &str, to_dir: NodeId, to: &str) {
        let mut world = self.world();
        let node = world.at(dir, name.as_ref()).expect("there is a file to be linked");
        let now_ms = world.now_ms;
        let effect = Effect::Create { dir: to_dir, name: to.into(), node, mode: 0, at_ms: now_ms };
        world.disk.apply_entries(&effect, now_ms);
    }

    /// Lets `other` act right before the `n`-th effect (from 0, counted from [`FaultHost::begin`]), as
    /// another process would. Its own effects count as well.
    pub fn interrupt_at(&self, n: usize, other: impl FnOnce(&Self) + Send + 'static) {
        self.world().interlopers.insert(n, Box::new(other));
    }

    /// Lets `other` act right before a look at a process, after `passed` more looks: between reading a
    /// record and judging it.
    pub fn interrupt_probe(&self, passed: usize, other: impl FnOnce(&Self) + Send + 'static) {
        self.world().on_probe = Some((passed, Box::new(other)));
    }

    /// The world at the start of an effect, after whoever was to come first.
    fn turn(&self) -> MutexGuard<'_, World> {
        let mut world = self.world();
        let n = world.calls;
        let Some(other) = world.interlopers.remove(&n) else { return world };
        drop(world);
        other(self);
        self.world()
    }

    /// Sets the umask.
    pub fn set_umask(&self, umask: u32) {
        self.world().umask = umask;
    }

    /// Sets the size of the disk: a write that would lead above it takes nothing and finds no space.
    /// Only the contents of files that have a name take space.
    pub fn set_room_bytes(&self, room_bytes: Option<u64>) {
        self.world().room_bytes = room_bytes;
    }

    /// Makes this a system whose files have no number, as Windows is for the standard library.
    pub fn without_numbers(&self) {
        self.world().numbered = false;
    }

    /// Makes this a file system without a journal, which may split a rename.
    #[must_use]
    pub fn without_journal(self) -> Self {
        self.world().journal = false;
        self
    }

    pub(super) fn has_journal(&self) -> bool {
        self.world().journal
    }

    /// Sets an environment variable.
    pub fn set_env(&self, name: &str, value: &str) {
        self.world().env.insert(name.to_owned(), value.into());
    }

    /// Says what stands at a pid.
    pub fn set_process(&self, pid: i64, seen: ProcessSeen) {
        self.world().processes.insert(pid, seen);
    }

    /// Makes this host another process of the same machine.
    #[must_use]
    pub fn with_pid(mut self, pid: i64) -> Self {
        self.system.own_pid = pid;
        self
    }

    /// Makes this host another machine.
    #[must_use]
    pub fn with_host_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.system.host);
        self
    }

    /// Makes this the same machine after a restart.
    #[must_use]
    pub fn with_boot(mut self, boot_id: &str) -> Self {
        self.system.boot_id = Some(boot_id.to_owned());
        self.system.boot_time_ms = Some(self.now_ms());
        self
    }

    /// Sets the clock.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.world().now_ms = now_ms;
    }
}

const ENOSPC: i32 = 28;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;

fn errno(n: i32) -> io::Error {
    io::Error::from_raw_os_error(n)
}

impl World {
    /// One effect: counted, failed if asked for, else applied and recorded.
    fn effect(&mut self, effect: Effect) -> io::Result<()> {
        let number = self.calls;
        self.count()?;
        let now_ms = self.now_ms;
        self.disk.apply_content(&effect);
        self.disk.apply_entries(&effect, now_ms);
        self.effects.push((number, effect));
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        let n = self.calls;
        self.calls += 1;
        if self.dead_from.is_some_and(|from| n >= from) {
            return Err(errno(EIO));
        }
        match self.failures.get(&n) {
            Some(Injected::Errno(number)) => Err(errno(*number)),
            _ => Ok(()),
        }
    }

    /// Refuses a name that is taken: a call that does nothing, and counts.
    fn refuse_taken(&mut self, dir: NodeId, name: &OsStr) -> io::Result<()> {
        if self.at(dir, name).is_err() {
            return Ok(());
        }
        self.count()?;
        Err(errno(EEXIST))
    }

    fn at(&self, dir: NodeId, name: &OsStr) -> io::Result<NodeId> {
        let entries = self.disk.entries(dir).ok_or_else(|| errno(ENOTDIR))?;
        entries.get(name).copied().ok_or_else(|| errno(ENOENT))
    }

    pub(super) fn walk(&self, path: &Path) -> io::Result<NodeId> {
        path.components().try_fold(0, |node, part| match part {
            Component::Normal(name) => self.at(node, name),
            _ => Ok(node),
        })
    }

    fn stat(&self, node: NodeId) -> Stat {
        let (kind, mode, bytes, mtime_ms) = match &self.disk.nodes[&node] {
            Node::File { data, mode, mtime_ms } => {
                (FileKind::Regular, *mode, data.len() as u64, *mtime_ms)
            }
            Node::Dir { mode, mtime_ms, .. } => (FileKind::Directory, *mode, 0, *mtime_ms),
        };
        let links = self.disk.names_of(node).max(1);
        let ns = i128::from(mtime_ms) * 1_000_000;
        let stamp_ns = (ns, ns + i128::from(self.disk.changes_of(node)));
        let id = if self.numbered { (1, node as u64) } else { (0, 0) };
        Stat { kind, mode, uid: 1000, bytes, links, id, mtime_ms, stamp_ns }
    }

    /// Bytes in files that can be reached.
    fn used_bytes(&self, dir: NodeId) -> u64 {
        let entries = self.disk.entries(dir).into_iter().flatten();
        entries
            .map(|(_, node)| match &self.disk.nodes[node] {
                Node::File { data, .. } => data.len() as u64,
                Node::Dir { .. } => self.used_bytes(*node),
            })
            .sum()
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.room_bytes?.saturating_sub(self.used_bytes(0)))
    }

    fn fresh(&mut self) -> NodeId {
        self.next += 1;
        self.next - 1
    }
}

impl Host for FaultHost {
    type Dir = NodeId;

    fn open_dir(&self, path: &Path) -> io::Result<NodeId> {
        let world = self.look()?;
        let node = world.walk(path)?;
        world.disk.entries(node).map(|_| node).ok_or_else(|| errno(ENOTDIR))
    }

    fn open_dir_at(&self, dir: &NodeId, name: &OsStr) -> io::Result<NodeId> {
        let world = self.look()?;
        let node = world.at(*dir, name)?;
        world.disk.entries(node).map(|_| node).ok_or_else(|| errno(ENOTDIR))
    }

    fn stat_dir(&self, dir: &NodeId) -> io::Result<Stat> {
        Ok(self.look()?.stat(*dir))
    }

    fn stat_at(&self, dir: &NodeId, name: &OsStr) -> io::Result<Stat> {
        let world = self.look()?;
        Ok(world.stat(world.at(*dir, name)?))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let world = self.look()?;
        Ok(world.stat(world.walk(path)?))
    }

    fn read_at(&self, dir: &NodeId, name: &OsStr, part: Part) -> Result<FileRead, ReadError> {
        let mut world = self.look()?;
        let node = world.at(*dir, name)?;
        world.reads.push(node);
        let stat = world.stat(node);
        let Some(Node::File { data, .. }) = world.disk.nodes.get(&node) else {
            return Err(ReadError::NotPlain(FileKind::Directory));
        };
        let from = match part {
            Part::All(limit) if stat.bytes > limit => {
                return Err(ReadError::TooLarge { bytes: stat.bytes, limit_bytes: limit, stat });
            }
            Part::All(_) => 0,
            Part::Tail(limit) => stat.bytes.saturating_sub(limit),
            Part::After { start_bytes, .. } => start_bytes.min(stat.bytes),
        };
        let most = match part {
            Part::After { limit_bytes, .. } => limit_bytes,
            Part::All(_) | Part::Tail(_) => stat.bytes,
        };
        let start = usize::try_from(from).expect("a file in memory fits");
        let most = usize::try_from(most).expect("a file in memory fits");
        let bytes = data[start..].iter().copied().take(most).collect();
        Ok(FileRead { stat, bytes, from_start: from == 0 })
    }

    fn list(
        &self,
        dir: &NodeId,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> io::Result<()> {
        // The lock is not held while the caller looks at entries one by one.
        let entries: Vec<_> = {
            let world = self.look()?;
            let entries = world.disk.entries(*dir).ok_or_else(|| errno(ENOTDIR))?;
            entries.iter().map(|(name, node)| (name.clone(), world.stat(*node).kind)).collect()
        };
        for (name, kind) in entries {
            if each(DirEntry { name, kind: Some(kind), inode: 0 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.look()?.walk(path)?;
        // There are no links here: the path without its dots is the real one.
        let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
        Ok(Path::new("/").join(names.collect::<PathBuf>()))
    }

    fn now_ms(&self) -> i64 {
        self.world().now_ms
    }

    fn system(&self) -> &SystemFacts {
        &self.system
    }

    fn process(&self, pid: i64) -> ProcessSeen {
        let due = {
            let mut world = self.world();
            match &mut world.on_probe {
                Some((passed, _)) if *passed > 0 => {
                    *passed -= 1;
                    None
                }
                _ => world.on_probe.take(),
            }
        };
        if let Some((_, other)) = due {
            other(self);
        }
        let gone = ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
        self.world().processes.get(&pid).cloned().unwrap_or(gone)
    }

    fn env(&self, name: &str) -> Option<OsString> {
        self.world().env.get(name).cloned()
    }

    fn temp_dir(&self) -> PathBuf {
        PathBuf::from("/tmp")
    }
}

impl WriteHost for FaultHost {
    type File = NodeId;

    fn create(&self, dir: &NodeId, name: &OsStr, mode: u32) -> io::Result<NodeId> {
        let mut world = self.turn();
        world.refuse_taken(*dir, name)?;
        let (node, at_ms) = (world.fresh(), world.now_ms);
        let mode = mode & !world.umask;
        let effect = Effect::Create { dir: *dir, name: name.to_owned(), node, mode, at_ms };
        world.effect(effect)?;
        Ok(node)
    }

    fn open_append(
        &self,
        dir: &NodeId,
        name: &OsStr,
        mode: u32,
        create: bool,
    ) -> io::Result<NodeId> {
        {
            let mut world = self.turn();
            match world.at(*dir, name) {
                Ok(node) if matches!(world.disk.nodes[&node], Node::File { .. }) => {
                    world.count()?;
                    if world.disk.names_of(node) > 1 {
                        return Err(errno(EINVAL));
                    }
                    return Ok(node);
                }
                Ok(_) => return Err(errno(EISDIR)),
                Err(e) if !create => return Err(e),
                Err(_) => {}
            }
        }
        self.create(dir, name, mode)
    }

    fn set_mode(&self, file: &NodeId, mode: u32) -> io::Result<()> {
        self.turn().effect(Effect::SetMode { node: *file, mode })
    }

    fn write(&self, file: &NodeId, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.turn();
        let taken = match world.failures.get(&world.calls) {
            Some(Injected::ShortWrite(n)) => bytes.len().min(*n),
            _ => bytes.len(),
        };
        if world.free_bytes().is_some_and(|free| free < taken as u64) {
            world.count()?;
            return Err(errno(ENOSPC));
        }
        let at_ms = world.now_ms;
        let effect = Effect::Write { node: *file, bytes: bytes[..taken].to_vec(), at_ms };
        world.effect(effect)?;
        Ok(taken)
    }

    fn sync(&self, file: &NodeId) -> io::Result<()> {
        self.turn().effect(Effect::Sync { node: *file })
    }

    fn sync_dir(&self, dir: &NodeId) -> io::Result<()> {
        self.turn().effect(Effect::SyncDir { dir: *dir })
    }

    fn rename(
        &self,
        from_dir: &NodeId,
        from: &OsStr,
        to_dir: &NodeId,
        to: &OsStr,
    ) -> io::Result<()> {
        let mut world = self.turn();
        let node = world.at(*from_dir, from)?;
        if let Ok(old) = world.at(*to_dir, to) {
            let full = world.disk.entries(old).is_some_and(|entries| !entries.is_empty());
            if full {
                world.count()?;
                return Err(errno(ENOTEMPTY));
            }
        }
        let effect = Effect::Rename {
            from_dir: *from_dir,
            from: from.to_owned(),
            to_dir: *to_dir,
            to: to.to_owned(),
            node,
        };
        world.effect(effect)
    }

    fn rename_new(
        &self,
        from_dir: &NodeId,
        from: &OsStr,
        to_dir: &NodeId,
        to: &OsStr,
    ) -> io::Result<()> {
        self.turn().refuse_taken(*to_dir, to)?;
        self.rename(from_dir, from, to_dir, to)
    }

    fn add_name(&self, dir: &NodeId, name: &OsStr, other: &OsStr) -> io::Result<()> {
        let mut world = self.turn();
        let node = world.at(*dir, name)?;
        world.refuse_taken(*dir, other)?;
        let name = other.to_owned();
        world.effect(Effect::AddName { dir: *dir, name, node })
    }

    fn may_split_rename(&self, _dir: &NodeId) -> bool {
        !self.world().journal
    }

    fn unlink(&self, dir: &NodeId, name: &OsStr) -> io::Result<()> {
        let mut world = self.turn();
        let node = world.at(*dir, name)?;
        if world.disk.entries(node).is_some() {
            return Err(errno(EISDIR));
        }
        world.effect(Effect::Unlink { dir: *dir, name: name.to_owned() })
    }

    fn create_dir(&self, dir: &NodeId, name: &OsStr, mode: u32) -> io::Result<()> {
        let mut world = self.turn();
        world.refuse_taken(*dir, name)?;
        let (node, at_ms) = (world.fresh(), world.now_ms);
        let mode = mode & !world.umask;
        let effect = Effect::CreateDir { dir: *dir, name: name.to_owned(), node, mode, at_ms };
        world.effect(effect)
    }

    fn set_dir_mode(&self, dir: &NodeId, name: &OsStr, mode: u32) -> io::Result<()> {
        let mut world = self.world();
        let node = world.at(*dir, name)?;
        if world.disk.entries(node).is_none() {
            return Err(errno(ENOTDIR));
        }
        world.effect(Effect::SetMode { node, mode })
    }

    fn remove_dir(&self, dir: &NodeId, name: &OsStr) -> io::Result<()> {
        let mut world = self.turn();
        let node = world.at(*dir, name)?;
        match world.disk.entries(node) {
            None => Err(errno(ENOTDIR)),
            Some(entries) if !entries.is_empty() => Err(errno(ENOTEMPTY)),
            Some(_) => world.effect(Effect::Unlink { dir: *dir, name: name.to_owned() }),
        }
    }

    fn try_lock(&self, file: &NodeId) -> io::Result<bool> {
        let mut world = self.turn();
        world.count()?;
        Ok(world.locked.insert(*file))
    }

    fn unlock(&self, file: &NodeId) -> io::Result<()> {
        self.world().locked.remove(file);
        Ok(())
    }

    fn umask(&self) -> u32 {
        self.world().umask
    }

    fn random(&self) -> u64 {
        // Enough to make names differ, and the same in every run.
        self.world().chance.number()
    }

    fn wait_ms(&self, ms: u64) {
        self.world().now_ms += i64::try_from(ms).unwrap_or(i64::MAX / 2);
    }

    fn space(&self, _dir: &NodeId) -> Option<Space> {
        let world = self.world();
        let total_bytes = world.room_bytes.unwrap_or(1 << 20);
        Some(Space { free_bytes: world.free_bytes().unwrap_or(0), total_bytes })
    }
}
