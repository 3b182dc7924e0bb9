//! Every call of an operation made to fail in every way, one at a time.
//!
//! Theory of operation. The operation is run once without a fault to count its calls; then once for
//! each call and each way of failing, on a fresh disk. What must hold after it is the caller's to say; that
//! the fault was met is seen here.

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
    /// interrupted or took a part is continued, and a short write of what is no write is no fault.
    pub(crate) fn is_made_good(&self) -> bool {
        let is_write = matches!(self.effect, Some(Effect::Write { .. }));
        matches!(self.how, Injected::ShortWrite(_)) || is_write && self.how == Injected::Errno(4)
    }
}

/// Runs `operation` with each fault on the disk that `setup` makes, and gives `check` the disk, the answer
/// and the fault. Returns the number of runs.
pub(crate) fn every_call<T>(
    setup: impl Fn(&FaultHost),
    operation: impl Fn(&FaultHost) -> T,
    check: impl Fn(&FaultHost, T, &Fault),
) -> usize {
    let host = FaultHost::new();
    setup(&host);
    host.begin();
    operation(&host);
    let (calls, effects) = (host.calls(), host.numbered_effects());
    for call in 0..calls {
        let effect = effects.iter().find(|(number, _)| *number == call);
        let effect = effect.map(|(_, effect)| effect.clone());
        for how in WAYS {
            let host = FaultHost::new();
            setup(&host);
            host.begin();
            host.fail_at(call, how);
            let answer = operation(&host);
            check(&host, answer, &Fault { call, effect: effect.clone(), how });
        }
    }
    calls * WAYS.len()
}

/// Names of temp files that are left.
pub(crate) fn litter(host: &FaultHost) -> Vec<String> {
    host.tree().into_keys().filter(|path| path.ends_with(".tmp")).collect()
}
