//! Every crash of one recorded operation.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::{Disk, Effect, Node, NodeId};
use super::host::FaultHost;

/// What died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The process: every finished effect is there.
    Process,
    /// The machine: only what was flushed is certain.
    Power,
}

/// Where the operation was cut.
#[derive(Clone, Debug)]
pub struct Crash {
    /// What died.
    pub model: Model,
    /// Number of effects that had finished.
    pub after: usize,
    /// Whether the operation had returned success.
    pub acknowledged: bool,
    /// Whether the file system has a journal.
    pub journal: bool,
    /// What was lost of unflushed contents, and which unflushed entries arrived.
    pub detail: String,
}

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Effects of the operation.
    pub steps: usize,
    /// Disks that were built and checked.
    pub states: usize,
    /// How many of them were left by the death of the process; the others by a power cut.
    pub process_states: usize,
    /// What the invariants objected to, with the crash.
    pub violations: Vec<String>,
    /// The same on a file system without a journal, if it was explored there as well.
    pub without_journal: Option<Box<Exploration>>,
}

/// A deliberate mistake in the recorded order, to prove that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The flush that is the `n`-th effect never happened.
    Drop(usize),
    /// The `n`-th effect and the one after it happened in the other order.
    Swap(usize),
}

/// How an unflushed content may look after a power cut.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Whole,
    Empty,
    Zeros,
    Cut,
}

const LOSSES: [Loss; 4] = [Loss::Whole, Loss::Empty, Loss::Zeros, Loss::Cut];

/// Most unflushed entry changes whose combinations are all built; above, prefixes and single losses.
const ALL_COMBINATIONS_UP_TO: usize = 9;

/// Runs `operation` on the disk that `setup` makes, and checks every crash of it; then the same on a file
/// system without a journal.
///
/// `check` gets the disk after the crash and says what is wrong with it, if anything.
pub fn explore<A>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> A,
    check: impl Fn(&FaultHost, &Crash) -> Result<(), String>,
) -> Exploration {
    let seen = explore_with(FaultHost::new(), &setup, &operation, &check, None);
    let without = FaultHost::new().without_journal();
    let without = explore_with(without, &setup, &operation, &check, None);
    Exploration { without_journal: Some(Box::new(without)), ..seen }
}

/// The same with a deliberate mistake, with a journal only.
pub fn explore_sabotaged<A>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> A,
    check: impl Fn(&FaultHost, &Crash) -> Result<(), String>,
    sabotage: Sabotage,
) -> Exploration {
    explore_with(FaultHost::new(), setup, operation, check, Some(sabotage))
}

/// The same without a journal only.
pub fn explore_sabotaged_without_journal<A>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> A,
    check: impl Fn(&FaultHost, &Crash) -> Result<(), String>,
    sabotage: Sabotage,
) -> Exploration {
    explore_with(FaultHost::new().without_journal(), setup, operation, check, Some(sabotage))
}

fn explore_with<A>(
    host: FaultHost,
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> A,
    check: impl Fn(&FaultHost, &Crash) -> Result<(), String>,
    sabotage: Option<Sabotage>,
) -> Exploration {
    let journal = host.has_journal();
    setup(&host);
    host.begin();
    let (base, _, _) = host.disk();
    operation(&host);
    let (_, next, now_ms) = host.disk();
    let mut effects = host.effects();
    match sabotage {
        Some(Sabotage::Drop(n)) => {
            effects.remove(n);
        }
        Some(Sabotage::Swap(n)) => effects.swap(n, n + 1),
        None => {}
    }
    let mut seen = Exploration { steps: effects.len(), ..Exploration::default() };
    for after in 0..=effects.len() {
        let acknowledged = after == effects.len();
        let prefix = &effects[..after];
        let mut visit = |disk: Disk, model, detail: String| {
            let crash = Crash { model, after, acknowledged, journal, detail };
            seen.states += 1;
            seen.process_states += usize::from(model == Model::Process);
            let crashed = FaultHost::over(disk, next, now_ms);
            let crashed = if journal { crashed } else { crashed.without_journal() };
            if let Err(why) = check(&crashed, &crash) {
                seen.violations.push(format!("{why}, after {crash:?}"));
            }
        };
        visit(after_process_crash(&base, prefix, now_ms), Model::Process, String::new());
        for (disk, detail) in after_power_loss(&base, prefix, now_ms) {
            if !journal {
                for ended in ended_too_early(&disk, &base, prefix, now_ms) {
                    let mut repaired = disk.clone();
                    repaired.end(&ended);
                    let detail = format!("{detail}, ended before their entries went: {ended:?}");
                    visit(repaired, Model::Power, detail);
                }
            }
            visit(disk, Model::Power, detail);
        }
    }
    seen
}

fn after_process_crash(base: &Disk, effects: &[Effect], now_ms: i64) -> Disk {
    let mut disk = base.clone();
    for effect in effects {
        disk.apply_content(effect);
        disk.apply_entries(effect, now_ms);
    }
    disk
}

/// One of the disks that a power cut may leave now, with nobody at work on it. What is lost of everything that
/// was not flushed since [`FaultHost::begin`] is drawn from `seed`.
pub fn power_cut(host: &FaultHost, seed: u64) -> FaultHost {
    let (base, effects) = host.since_begin();
    let (_, next, now_ms) = host.disk();
    let (certain, open) = entries_by_certainty(&effects);
    let arrives = |i: &usize| {
        let at = open.iter().position(|one| one == i).unwrap_or_default();
        seed >> (at % 60) & 1 == 1
    };
    let mut disk = base;
    for (i, effect) in effects.iter().enumerate() {
        disk.apply_content(effect);
        if certain.contains(&i) || arrives(&i) {
            disk.apply_entries(effect, now_ms);
        }
    }
    let losses = u64::try_from(LOSSES.len()).unwrap_or(1);
    for (at, (node, bytes)) in unflushed_contents(&effects).into_iter().enumerate() {
        let loss = usize::try_from((seed >> (at % 60)) % losses).unwrap_or_default();
        lose(&mut disk, node, bytes, LOSSES[loss]);
    }
    FaultHost::over(disk, next, now_ms)
}

/// Every disk that a power cut may leave.
fn after_power_loss(base: &Disk, effects: &[Effect], now_ms: i64) -> Vec<(Disk, String)> {
    let (certain, open) = entries_by_certainty(effects);
    let combinations = combinations(&open);
    let unflushed = unflushed_contents(effects);
    let losses: &[Loss] = if unflushed.is_empty() { &LOSSES[..1] } else { &LOSSES };
    let mut disks = Vec::new();
    for arrived in &combinations {
        for loss in losses {
            let mut disk = base.clone();
            for (i, effect) in effects.iter().enumerate() {
                disk.apply_content(effect);
                if certain.contains(&i) || arrived.contains(&i) {
                    disk.apply_entries(effect, now_ms);
                }
            }
            for (node, bytes) in &unflushed {
                lose(&mut disk, *node, *bytes, *loss);
            }
            disks.push((disk, format!("{loss:?}, unflushed entries that arrived: {arrived:?}")));
        }
    }
    disks
}

/// What may have ended although the disk still has an entry for it: all of it, or each alone.
fn ended_too_early(
    disk: &Disk,
    base: &Disk,
    effects: &[Effect],
    now_ms: i64,
) -> BTreeSet<BTreeSet<NodeId>> {
    let nameless = disk.named_only_here(&after_process_crash(base, effects, now_ms));
    let mut sets: BTreeSet<_> = nameless.iter().map(|node| BTreeSet::from([*node])).collect();
    sets.insert(nameless);
    sets.remove(&BTreeSet::new());
    sets
}

/// Which entry changes are flushed for certain, and which are open. A change is certain once each of
/// its directories was flushed after it.
fn entries_by_certainty(effects: &[Effect]) -> (BTreeSet<usize>, Vec<usize>) {
    let (mut certain, mut open) = (BTreeSet::new(), Vec::new());
    for (i, effect) in effects.iter().enumerate() {
        let dirs = effect.entry_dirs();
        if dirs.is_empty() {
            continue;
        }
        let flushed = dirs.iter().all(|dir| {
            effects[i..].iter().any(|later| matches!(later, Effect::SyncDir { dir: d } if d == dir))
        });
        if flushed {
            certain.insert(i);
        } else {
            open.push(i);
        }
    }
    (certain, open)
}

fn combinations(open: &[usize]) -> Vec<BTreeSet<usize>> {
    if open.len() <= ALL_COMBINATIONS_UP_TO {
        return (0..1_usize << open.len())
            .map(|bits| {
                let chosen = open.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1);
                chosen.map(|(_, effect)| *effect).collect()
            })
            .collect();
    }
    let mut all: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for end in 0..=open.len() {
        all.insert(open[..end].iter().copied().collect());
        all.insert(open[end..].iter().copied().collect());
    }
    for lost in open {
        all.insert(open.iter().copied().filter(|i| i != lost).collect());
        all.insert(BTreeSet::from([*lost]));
    }
    all.into_iter().collect()
}

/// Files with unflushed bytes, and how many bytes at their end are unflushed.
fn unflushed_contents(effects: &[Effect]) -> BTreeMap<NodeId, usize> {
    let mut unflushed: BTreeMap<NodeId, usize> = BTreeMap::new();
    for effect in effects {
        match effect {
            Effect::Write { node, bytes, .. } => {
                *unflushed.entry(*node).or_default() += bytes.len();
            }
            Effect::Sync { node } => {
                unflushed.remove(node);
            }
            _ => {}
        }
    }
    unflushed.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
}

/// Loses the last `unflushed` bytes of a file in one of the ways of a disk.
fn lose(disk: &mut Disk, node: NodeId, unflushed: usize, loss: Loss) {
    let Some(Node::File { data, .. }) = disk.nodes.get_mut(&node) else { return };
    let keep = data.len().saturating_sub(unflushed);
    match loss {
        Loss::Whole => {}
        Loss::Empty => data.truncate(keep),
        Loss::Zeros => data[keep..].fill(0),
        Loss::Cut => data.truncate(keep + unflushed / 2),
    }
}
