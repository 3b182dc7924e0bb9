//! Replacements that wait for room.
//!
//! A full disk, a used-up quota or a lack of handles is a state that passes. A write that meets it is
//! kept in memory and tried again, so that a run survives an hour without room and its files are right
//! afterwards. Every other error goes to the caller at once. The queue has no thread and no clock: the
//! caller drives it with [`Deferred::tick`] and asks it with [`Deferred::drain`] before it ends.
//!
//! Ordered steps of [`Deferred::write`]:
//! 1. replace the file (see [`atomic`]);
//! 2. if there is no space and the write is terminal: release the reserve of the run directory, and
//!    replace once more *at once*, before anybody else takes the room;
//! 3. if there is still no room: keep the payload, in the place of an older one of the same path;
//! 4. tell the log, best effort: the same disk is full.
//!
//! Ordered steps of [`Deferred::tick`], once in each second: steps 1 and 2 for every path in the order
//! in which they began to wait; then tell the log what was completed; then make a released reserve
//! again, if nothing waits and there is plenty of room.
//!
//! What depends on a write has to wait for it (a marker follows its status, a terminal status its
//! result): the caller makes it when the [`Report`] of that write says [`Change::Completed`]. The queue
//! itself never writes anything that it was not given.
//!
//! What a crash leaves: of each path the last text that was written; what waits is lost. That is why a
//! terminal record is insisted on, and why a runner does not end, nor claim that its writers are
//! closed, while something waits (facts W-23).
//!
//! Not promised: that a payload which was replaced by a newer one was ever on the disk. Bounded in
//! entries and bytes; when it is full, a terminal write makes room by giving up the oldest that are
//! not, and everything else gets its error back.
//! Spec: RS-DEFER-01 to RS-DEFER-06; facts W-20 to W-23, Z-8.

use std::fmt;
use std::sync::Arc;

use crate::protocol::written::{self, WaitText};
use crate::protocol::{layout, limits};

use super::atomic::{self, Options, Step, Target, WriteError, Written};
use super::host::WriteHost;
use super::{journal, reserve};

/// One file to be replaced.
pub struct Item<D> {
    /// The path of the directory as the caller names it. With the name it tells one path from another.
    pub place: String,
    /// The open directory.
    pub dir: Arc<D>,
    /// The name in it.
    pub name: String,
    /// The new text.
    pub bytes: Vec<u8>,
    /// How it is replaced.
    pub options: Options,
    /// Whether it is insisted on: a status, result, candidate or proof that nobody writes again.
    pub terminal: bool,
}

impl<D> fmt::Debug for Item<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl<D> Item<D> {
    fn path(&self) -> String {
        format!("{}/{}", self.place, self.name)
    }

    fn is_for(&self, other: &Self) -> bool {
        self.place == other.place && self.name == other.name
    }
}

/// Names one payload that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The file was replaced.
    Written(Written),
    /// It waits; a [`Report`] with this ticket will tell its end.
    Deferred(Ticket),
}

/// What became of a payload that waited.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// The file was replaced. What follows from it may be written now.
    Completed(Written),
    /// A newer payload of the same path took its place.
    Superseded,
    /// It was given up for a terminal write, because the queue was full.
    GivenUp,
    /// It failed for another reason than a lack of room, and was given up.
    Failed(WriteError),
    /// It has waited for a minute. It goes on waiting; told once.
    Overdue(WriteError),
}

/// News of a payload that waits or waited.
#[derive(Debug)]
pub struct Report {
    /// Which payload.
    pub ticket: Ticket,
    /// Its path as the caller named it.
    pub path: String,
    /// Attempts until now.
    pub attempts: u32,
    /// How long its path has waited, in ms, older payloads included.
    pub deferred_ms: i64,
    /// The news.
    pub change: Change,
}

/// What a [`Deferred::drain`] came to.
#[derive(Debug, Default)]
pub struct Drained {
    /// News, in their order.
    pub reports: Vec<Report>,
    /// What still waits: path and the last error. Empty when everything was written or given up.
    pub left: Vec<(String, String)>,
}

struct Waiting<D> {
    item: Item<D>,
    ticket: Ticket,
    since_ms: i64,
    attempts: u32,
    overdue_told: bool,
    last_error: String,
}

impl<D> Waiting<D> {
    fn report(&self, now_ms: i64, change: Change) -> Report {
        Report {
            ticket: self.ticket,
            path: self.item.path(),
            attempts: self.attempts,
            deferred_ms: now_ms.saturating_sub(self.since_ms).max(0),
            change,
        }
    }
}

/// The run that the queue writes for.
struct Run<D> {
    dir: Arc<D>,
    id: String,
    reserve_released: bool,
}

/// The queue. See the module's theory of operation.
pub struct Deferred<H: WriteHost> {
    waiting: Vec<Waiting<H::Dir>>,
    run: Option<Run<H::Dir>>,
    next_ticket: u64,
    tried_at_ms: Option<i64>,
    news: Vec<Report>,
    max_entries: usize,
    max_bytes: u64,
}

impl<H: WriteHost> Default for Deferred<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: WriteHost> fmt::Debug for Deferred<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl<H: WriteHost> Deferred<H> {
    /// A queue without a log and without a reserve.
    pub fn new() -> Self {
        Self {
            waiting: Vec::new(),
            run: None,
            next_ticket: 0,
            tried_at_ms: None,
            news: Vec::new(),
            max_entries: limits::DEFERRED_MAX_ENTRIES,
            max_bytes: limits::DEFERRED_MAX_BYTES,
        }
    }

    /// A queue that tells the event log of a run, and may release the reserve in its directory.
    pub fn for_run(run_dir: Arc<H::Dir>, run_id: &str) -> Self {
        let run = Run { dir: run_dir, id: run_id.to_owned(), reserve_released: false };
        Self { run: Some(run), ..Self::new() }
    }

    /// The same with other bounds than those of [`limits`].
    #[must_use]
    pub fn within(mut self, max_entries: usize, max_bytes: u64) -> Self {
        (self.max_entries, self.max_bytes) = (max_entries, max_bytes);
        self
    }

    /// Number of payloads that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Replaces a file, or keeps the payload until there is room. See the module's ordered steps.
    ///
    /// A payload that takes the place of an older one keeps what the older one promised: it is terminal
    /// if that was, and at least as durable.
    ///
    /// # Errors
    /// [`WriteError`] for any other reason than a lack of room, and when the queue is full. An older
    /// payload of the path goes on waiting then, unless the newer text is in place.
    pub fn write(&mut self, host: &H, mut item: Item<H::Dir>) -> Result<Submitted, WriteError> {
        let now_ms = host.now_ms();
        let older = self.waiting.iter().position(|waiting| waiting.item.is_for(&item));
        if let Some(older) = older.map(|at| &self.waiting[at].item) {
            item.terminal |= older.terminal;
            item.options.durability = item.options.durability.max(older.options.durability);
        }
        let error = match self.attempt(host, &item) {
            Ok(written) => {
                self.supersede(older, now_ms);
                return Ok(Submitted::Written(written));
            }
            Err(e) => e,
        };
        let in_place = error.step == Step::FlushDirectory;
        if !error.is_capacity() {
            if in_place {
                // The older payload would take the newer text away again.
                self.supersede(older, now_ms);
            }
            return Err(error);
        }
        let at = match self.make_room(&item, older, now_ms) {
            Some(at) => at,
            None => return Err(error),
        };
        forget_target(&mut item, in_place);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let last_error = sentence(&error);
        let free_bytes = error.free_bytes;
        let (since_ms, attempts, overdue_told) = (now_ms, 1, false);
        let mut waiting = Waiting { item, ticket, since_ms, attempts, overdue_told, last_error };
        if let Some(at) = at {
            let old = &mut self.waiting[at];
            // The path has waited since then; else a status that changes each second is never overdue.
            (waiting.since_ms, waiting.overdue_told) = (old.since_ms, old.overdue_told);
            let old = std::mem::replace(old, waiting);
            self.news.push(old.report(now_ms, Change::Superseded));
        } else {
            let what = WaitText::Deferred { cause: &waiting.last_error, free_bytes };
            self.tell(host, &waiting.item, &what);
            self.waiting.push(waiting);
        }
        // The second of an empty queue starts here.
        self.tried_at_ms.get_or_insert(now_ms);
        Ok(Submitted::Deferred(ticket))
    }

    /// Tries everything that waits, if a second has passed since the last time, and returns the news.
    pub fn tick(&mut self, host: &H, now_ms: i64) -> Vec<Report> {
        let early = self.tried_at_ms.is_some_and(|at| {
            // A clock that was set back must not stop the retries.
            now_ms >= at && now_ms - at < limits::DEFERRED_RETRY_MS
        });
        if !early {
            self.try_all(host, now_ms);
        }
        std::mem::take(&mut self.news)
    }

    /// Tries everything that waits until nothing does or the deadline (ms since the epoch) has come,
    /// waiting through the host. What is left then is named, and still waits.
    pub fn drain(&mut self, host: &H, deadline_ms: i64) -> Drained {
        loop {
            let now_ms = host.now_ms();
            self.try_all(host, now_ms);
            let left_ms = deadline_ms.saturating_sub(now_ms);
            if self.waiting.is_empty() || left_ms <= 0 {
                break;
            }
            let wait_ms = left_ms.min(limits::DEFERRED_RETRY_MS);
            host.wait_ms(u64::try_from(wait_ms).unwrap_or(0));
        }
        let left = self.waiting.iter().map(|w| (w.item.path(), w.last_error.clone())).collect();
        Drained { reports: std::mem::take(&mut self.news), left }
    }

    /// Drains, and removes the reserve of the run if nothing is left: for the end of a run, after its
    /// terminal records were given to the queue.
    pub fn finish(mut self, host: &H, deadline_ms: i64) -> Drained {
        let drained = self.drain(host, deadline_ms);
        if let Some(run) = self.run.filter(|_| drained.left.is_empty()) {
            // A reserve that is left over costs its bytes and nothing else.
            let _ = reserve::release(host, &run.dir);
        }
        drained
    }

    fn try_all(&mut self, host: &H, now_ms: i64) {
        self.tried_at_ms = (!self.waiting.is_empty()).then_some(now_ms);
        for mut waiting in std::mem::take(&mut self.waiting) {
            waiting.attempts += 1;
            let change = match self.attempt(host, &waiting.item) {
                Ok(written) => Change::Completed(written),
                Err(e) if !e.is_capacity() => Change::Failed(e),
                Err(e) => {
                    waiting.last_error = sentence(&e);
                    forget_target(&mut waiting.item, e.step == Step::FlushDirectory);
                    let waited_ms = now_ms.saturating_sub(waiting.since_ms);
                    if waited_ms >= limits::DEFERRED_OVERDUE_MS && !waiting.overdue_told {
                        waiting.overdue_told = true;
                        self.news.push(waiting.report(now_ms, Change::Overdue(e)));
                    }
                    self.waiting.push(waiting);
                    continue;
                }
            };
            let report = waiting.report(now_ms, change);
            if matches!(report.change, Change::Completed(_)) {
                let (attempts, deferred_ms) = (report.attempts, report.deferred_ms);
                self.tell(host, &waiting.item, &WaitText::Completed { attempts, deferred_ms });
            }
            self.news.push(report);
        }
        if self.waiting.is_empty() {
            self.tried_at_ms = None;
            if let Some(run) = self.run.as_mut().filter(|run| run.reserve_released) {
                run.reserve_released = !reserve::renew(host, &run.dir);
            }
        }
    }

    /// Steps 1 and 2.
    fn attempt(&mut self, host: &H, item: &Item<H::Dir>) -> Result<Written, WriteError> {
        let replace = || {
            atomic::replace(host, &item.dir, &item.name, &item.bytes, &item.options)
                .map_err(|e| e.below(&item.place))
        };
        let error = match replace() {
            Err(e)
                if item.terminal
                    && atomic::is_space(&e.source)
                    && e.step != Step::FlushDirectory =>
            {
                e
            }
            other => return other,
        };
        let Some(run) = &mut self.run else { return Err(error) };
        match reserve::release(host, &run.dir) {
            Ok(true) => {
                run.reserve_released = true;
                replace()
            }
            Ok(false) | Err(_) => Err(error),
        }
    }

    /// Where the payload may wait: `Some(Some(at))` in the place of an older one, `Some(None)` at the
    /// end, `None` nowhere.
    fn make_room(
        &mut self,
        item: &Item<H::Dir>,
        mut older: Option<usize>,
        now_ms: i64,
    ) -> Option<Option<usize>> {
        let bytes = |item: &Item<H::Dir>| item.bytes.len() as u64;
        let others = self.waiting.iter().enumerate().filter(|(at, _)| Some(*at) != older);
        let fixed = others.filter(|(_, waiting)| !item.terminal || waiting.item.terminal);
        let fixed: Vec<u64> = fixed.map(|(_, waiting)| bytes(&waiting.item)).collect();
        // Nothing is given up in vain.
        let too_many = fixed.len() >= self.max_entries;
        if too_many || fixed.iter().sum::<u64>() + bytes(item) > self.max_bytes {
            return None;
        }
        loop {
            let others = self.waiting.iter().enumerate().filter(|(at, _)| Some(*at) != older);
            let used: u64 = others.clone().map(|(_, waiting)| bytes(&waiting.item)).sum();
            if others.clone().count() < self.max_entries && used + bytes(item) <= self.max_bytes {
                return Some(older);
            }
            let victim = others.clone().find(|(_, waiting)| !waiting.item.terminal);
            let victim = victim.map(|(at, _)| at).filter(|_| item.terminal)?;
            let lost = self.waiting.remove(victim);
            self.news.push(lost.report(now_ms, Change::GivenUp));
            older = older.map(|at| if at > victim { at - 1 } else { at });
        }
    }

    fn supersede(&mut self, older: Option<usize>, now_ms: i64) {
        if let Some(at) = older {
            let old = self.waiting.remove(at);
            self.news.push(old.report(now_ms, Change::Superseded));
        }
    }

    fn tell(&self, host: &H, item: &Item<H::Dir>, what: &WaitText<'_>) {
        let Some(run) = &self.run else { return };
        let line = written::wait_event(&run.id, host.now_ms(), &item.name, what);
        // The log is advice, and the disk may be full for it as well.
        let _ = journal::append(host, &run.dir, layout::EVENTS, &line, limits::EVENTS_MAX_BYTES);
    }
}

/// An error with its cause.
fn sentence(e: &WriteError) -> String {
    format!("{e}: {}", e.source)
}

/// What was known of the target may no longer hold when a retry comes; and what had to be new is
/// there, and ours, once only the flush of its directory failed.
fn forget_target<D>(item: &mut Item<D>, in_place: bool) {
    if in_place || item.options.target != Target::New {
        item.options.target = Target::Unknown;
    }
}
