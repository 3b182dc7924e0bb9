//! Every call of an operation made to fail in every way, one at a time.
//!
//! Theory of operation. The operation is run once without a fault to count its calls; then once for
//! each call and each way of failing, on a fresh disk; all of it with a journal and without. What must hold
//! after it is the caller's to say; that the fault was met is seen here. Looks fail in the same way, one at a time, but
//! there are fewer ways, and a journal changes none of them.

use runstore::protocol::temp_name::{TempName, TempTarget, original_of};
use testkit::fault::{Effect, FaultHost, Injected};

/// No room, broken disk, refused twice, busy, too many files, interrupted, and a write that takes one
/// byte only.
pub(crate) const WAYS: [Injected; 8] = [
    Injected::Errno(28),
    Injected::Errno(5),
    Injected::Errno(13),
    Injected::Errno(1),
    Injected::Errno(16),
    Injected::Errno(24),
    Injected::Errno(4),
    Injected::ShortWrite(1),
];

/// The error numbers among them, for what cannot be said of a [`Fault`].
pub(crate) const ERRNOS: [i32; 7] = [28, 5, 13, 1, 16, 24, 4];

/// What an operation does on the disk that `setup` makes.
pub(crate) fn recorded(setup: impl Fn(&FaultHost), operation: impl Fn(&FaultHost)) -> Vec<Effect> {
    let host = FaultHost::new();
    setup(&host);
    host.begin();
    operation(&host);
    host.effects()
}

/// The number of the first effect whose text is so.
pub(crate) fn at(effects: &[Effect], what: impl Fn(&str) -> bool) -> usize {
    let found = effects.iter().position(|effect| what(&format!("{effect:?}")));
    found.unwrap_or_else(|| panic!("{effects:?}"))
}

/// The number of the last effect whose text is so.
pub(crate) fn last(effects: &[Effect], what: impl Fn(&str) -> bool) -> usize {
    let found = effects.iter().rposition(|effect| what(&format!("{effect:?}")));
    found.unwrap_or_else(|| panic!("{effects:?}"))
}

/// One fault.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The number of the call, from 0.
    pub(crate) call: usize,
    /// What the call does when nothing fails, if it is an effect on the disk.
    pub(crate) effect: Option<Effect>,
    /// How it fails.
    pub(crate) how: Injected,
}

impl Fault {
    /// Whether the writer of a whole file goes on from it as if nothing had happened: a write that was
    /// interrupted or took a part is continued, and a short write of what is no write is no fault. Nor is it
    /// one of the replacement when a second name cannot be made or removed (RS-ATOM-14).
    pub(crate) fn is_made_good(&self) -> bool {
        let is_write = matches!(self.effect, Some(Effect::Write { .. }));
        matches!(self.how, Injected::ShortWrite(_))
            || is_write && self.how == Injected::Errno(4)
            || matches!(self.effect, Some(Effect::AddName { .. }))
            || self.keeps_a_second_name()
    }

    /// Whether there is no room for anything any more, which concerns every action and not one alone.
    pub(crate) fn is_of_no_room(&self) -> bool {
        matches!(self.how, Injected::Errno(24 | 28))
    }

    /// Whether the flush of a directory fails.
    pub(crate) fn is_of_a_directory_flush(&self) -> bool {
        matches!(self.effect, Some(Effect::SyncDir { .. }))
    }

    /// Whether the removal of a second name fails.
    fn keeps_a_second_name(&self) -> bool {
        match &self.effect {
            Some(Effect::Unlink { name, .. }) => is_second_name(&name.to_string_lossy()),
            _ => false,
        }
    }
}

/// Runs `operation` with each fault on the disk that `setup` makes, and gives `check` the disk, the answer
/// and the fault. Returns the number of runs with a journal.
pub(crate) fn every_call<T>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> T,
    check: impl Fn(&FaultHost, T, &Fault),
) -> usize {
    let on = |host: fn() -> FaultHost| every_call_on(host, &setup, &operation, &check);
    on(|| FaultHost::new().without_journal());
    on(FaultHost::new)
}

fn every_call_on<T>(
    host_of: fn() -> FaultHost,
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> T,
    check: impl Fn(&FaultHost, T, &Fault),
) -> usize {
    let host = host_of();
    setup(&host);
    host.begin();
    operation(&host);
    let (calls, effects) = (host.calls(), host.numbered_effects());
    for call in 0..calls {
        let effect = effects.iter().find(|(number, _)| *number == call);
        let effect = effect.map(|(_, effect)| effect.clone());
        for how in WAYS {
            let host = host_of();
            setup(&host);
            host.begin();
            host.fail_at(call, how);
            let answer = operation(&host);
            let fault = Fault { call, effect: effect.clone(), how };
            let second = temp_files(&host).into_iter().filter(|path| is_second_name(path));
            let may_stay = fault.is_of_a_directory_flush() || fault.keeps_a_second_name();
            assert!(second.count() == 0 || may_stay, "{fault:?}: a second name is left");
            check(&host, answer, &fault);
        }
    }
    calls * WAYS.len()
}

/// How a look fails: broken disk, refused, too many files.
const UNSEEN: [i32; 3] = [5, 13, 24];

/// Runs `operation` with each look failing in each way on the disk that `setup` makes, and gives `check` the disk, the
/// answer and which look it was. Returns the answer where none fails.
pub(crate) fn every_look<T>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> T,
    mut check: impl FnMut(&FaultHost, T, &str),
) -> T {
    let host = FaultHost::new();
    setup(&host);
    host.begin();
    let whole = operation(&host);
    for n in 0..host.looks() {
        for errno in UNSEEN {
            let host = FaultHost::new();
            setup(&host);
            host.begin();
            host.fail_look_at(n, errno);
            let answer = operation(&host);
            check(&host, answer, &format!("look {n}, errno {errno}"));
        }
    }
    whole
}

/// Names of temp files that are left. Second names do not count: [`every_call`] looks at them.
pub(crate) fn litter(host: &FaultHost) -> Vec<String> {
    temp_files(host).into_iter().filter(|path| !is_second_name(path)).collect()
}

fn temp_files(host: &FaultHost) -> Vec<String> {
    host.tree().into_keys().filter(|path| path.ends_with(".tmp")).collect()
}

/// Whether the old text of a file is kept under this path. Spec: RS-ATOM-14.
pub(crate) fn is_second_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let target = TempName::parse(name).map(|temp| temp.target);
    matches!(target, Some(TempTarget::Name(target)) if original_of(&target).is_some())
}
