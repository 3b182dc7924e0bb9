//! Is it still that process? A record, what the system shows now, and one of six words.
//!
//! Theory of operation. A pid alone names nobody: it is reused, it lives in a namespace, and another
//! host counts its own. So the record brings whatever identity its writer left, the store brings what
//! the kernel shows, and [`judge`] compares them. It leans to one side on purpose: *dead* and *reused*
//! free things and repair things, so they need positive evidence; everything else is *unknown*.
//! Spec: chapter 11, RS-LIVE-*.
//!
//! Not promised: that the answer still holds when it is read. A process may end at any moment, so
//! whoever acts on an answer asks again right before the act.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::document::{Document, Lookup};
use super::limits;
use super::member;
use super::open::words;
use super::raw::Raw;

words! {
    /// What became of the process that a record names.
    Liveness {
        /// Demonstrably the same process, still there.
        Live = "live",
        /// Gone, or a zombie.
        Dead = "dead",
        /// The pid is there, but it is demonstrably another process.
        Reused = "reused",
        /// Recorded on another host or in another pid namespace.
        Foreign = "foreign",
        /// Cannot be told.
        Unknown = "unknown",
        /// The record names no process.
        NotRecorded = "not-recorded",
    }
}

impl Liveness {
    /// Whether the recorded process is demonstrably gone. Unknown is never dead.
    /// Spec: RS-DIAG-02.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Reused)
    }
}

/// Identity members beyond the bare pid, from `runnerIdentity` or `processStartIdentity`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedIdentity {
    /// `linux:<start time in ticks>`; other spellings are kept but not comparable here.
    pub start_identity: Option<String>,
    /// The kernel's boot id.
    pub boot_id: Option<String>,
    /// Inode of the pidfd: unique for the boot where the kernel has pidfs.
    pub pidfd_inode: Option<u64>,
}

impl RecordedIdentity {
    /// Reads the additive member `runnerIdentity`, else the flat `processStartIdentity`.
    pub fn read(doc: &Document<'_>) -> Self {
        Self::of(doc)
    }

    /// The members that this looks at.
    pub(super) const KEYS: [&'static str; 5] =
        ["runnerIdentity", "startIdentity", "processStartIdentity", "pidfdInode", "bootId"];

    pub(super) fn of<'a>(doc: &impl Lookup<'a>) -> Self {
        let nested = doc.get("runnerIdentity").and_then(Raw::object);
        let own = |key: &str| nested.as_ref().map_or_else(|| doc.get(key), |own| own.get(key));
        let text = |key: &str| own(key).and_then(Raw::string).map(Cow::into_owned);
        let start = text("startIdentity").or_else(|| text("processStartIdentity"));
        // An inode may exceed 2^53, so it is written as text; small ones may come as numbers.
        let pidfd_inode = own("pidfdInode").and_then(|raw| match raw.string() {
            Some(digits) => digits.parse().ok(),
            None => raw.integer().and_then(|n| u64::try_from(n).ok()),
        });
        let boot_id = text("bootId");
        // Beside an object of its own the flat member is another one.
        let flat = || nested.as_ref().and_then(|_| doc.get("processStartIdentity")?.string());
        let start_identity = start.or_else(|| flat().map(Cow::into_owned));
        Self { start_identity, boot_id, pidfd_inode }
    }

    /// Its members in a record of ours, in their order.
    fn members(&self) -> [(&'static str, Option<Cow<'_, str>>); 3] {
        let text = |text| Option::as_deref(text).map(Cow::Borrowed);
        [
            ("processStartIdentity", text(&self.start_identity)),
            ("bootId", text(&self.boot_id)),
            // Text, because an inode may exceed what every reader's numbers hold.
            ("pidfdInode", self.pidfd_inode.map(|inode| inode.to_string().into())),
        ]
    }
}

/// The members that are known: `processStartIdentity`, `bootId`, `pidfdInode`.
impl Serialize for RecordedIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = self.members().into_iter().filter_map(|(key, text)| Some((key, text?)));
        serializer.collect_map(known)
    }
}

/// What a record says about its process.
#[derive(Clone, Debug, Default)]
pub struct RecordedProcess<'a> {
    /// The pid; `Some(0)` for a number that is no pid.
    pub pid: Option<i64>,
    /// The host, where recorded.
    pub host: Option<&'a str>,
    /// The pid namespace, where recorded.
    pub pid_namespace: Option<&'a str>,
    /// Identity beyond the pid.
    pub identity: RecordedIdentity,
    /// The first write that names the process.
    pub first_named_ms: Option<i64>,
    /// The last write of the record.
    pub last_write_ms: Option<i64>,
}

/// Whether something answers at a pid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presence {
    /// Nothing is there.
    Gone,
    /// It has exited and waits to be reaped.
    Zombie,
    /// It is there.
    Present,
    /// It cannot be told; the text says why.
    Unknown(String),
    /// Nobody asked.
    #[default]
    NotProbed,
}

/// What the system shows at a pid, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSeen {
    /// Whether something is there.
    pub presence: Presence,
    /// `linux:<ticks>`.
    pub start_identity: Option<String>,
    /// Start by the wall clock, in ms since the epoch.
    pub start_ms: Option<i64>,
    /// Inode of its pidfd, where the kernel gives each process its own.
    pub pidfd_inode: Option<u64>,
}

/// The observing side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemFacts {
    /// Host name.
    pub host: String,
    /// Boot id.
    pub boot_id: Option<String>,
    /// Start of this boot by the wall clock.
    pub boot_time_ms: Option<i64>,
    /// Own pid namespace.
    pub pid_namespace: Option<String>,
    /// Own pid.
    pub own_pid: i64,
    /// Effective user id, where there is one.
    pub uid: Option<u32>,
}

/// The answer and its one-line reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The word.
    pub word: Liveness,
    /// Why, in one line.
    pub why: Cow<'static, str>,
}

impl Life {
    fn new(word: Liveness, why: impl Into<Cow<'static, str>>) -> Self {
        Self { word, why: why.into() }
    }

    /// The answer where no process is named.
    pub fn not_recorded() -> Self {
        Self::new(Liveness::NotRecorded, "the record names no process")
    }
}

/// Whether a probe of this record's pid on this system would mean anything; if not, the answer.
/// Spec: RS-LIVE-02, RS-LIVE-03, RS-LIVE-04, RS-STATUS-15.
pub fn judge_unprobed(record: &RecordedProcess<'_>, system: &SystemFacts) -> Option<Life> {
    let Some(pid) = record.pid else {
        return Some(Life::not_recorded());
    };
    if let Some(host) = record.host.filter(|host| *host != system.host) {
        let why = format!("pid {pid} was recorded on host {host}, this is {}", system.host);
        return Some(Life::new(Liveness::Foreign, why));
    }
    if let Some(recorded) = record.pid_namespace {
        match &system.pid_namespace {
            Some(own) if own == recorded => {}
            Some(own) => {
                let why = format!("pid {pid} belongs to pid namespace {recorded}, this is {own}");
                return Some(Life::new(Liveness::Foreign, why));
            }
            None => {
                let why = format!("pid {pid} belongs to a pid namespace that cannot be compared");
                return Some(Life::new(Liveness::Unknown, why));
            }
        }
    }
    if !(1..=i64::from(i32::MAX)).contains(&pid) {
        return Some(Life::new(Liveness::Unknown, "the recorded number is not a process id"));
    }
    None
}

/// Judges one record against what the system shows. Pure; call [`judge_unprobed`] first and probe
/// only when it has no answer (this function asks it again).
/// Spec: RS-LIVE-01, RS-LIVE-05, RS-LIVE-10, RS-LIVE-11.
pub fn judge(record: &RecordedProcess<'_>, seen: &ProcessSeen, system: &SystemFacts) -> Life {
    if let Some(life) = judge_unprobed(record, system) {
        return life;
    }
    let pid = record.pid.unwrap_or_default();
    match &seen.presence {
        Presence::Gone => Life::new(Liveness::Dead, format!("no process has pid {pid}")),
        Presence::Zombie => Life::new(
            Liveness::Dead,
            format!("pid {pid} has exited and waits to be reaped (zombie)"),
        ),
        Presence::Unknown(why) => {
            Life::new(Liveness::Unknown, format!("pid {pid} cannot be judged: {why}"))
        }
        Presence::NotProbed => Life::new(Liveness::Unknown, format!("pid {pid} was not probed")),
        Presence::Present => judge_present(pid, record, seen, system),
    }
}

/// Spec: RS-LIVE-06, RS-LIVE-07, RS-LIVE-08, RS-LIVE-09.
fn judge_present(
    pid: i64,
    record: &RecordedProcess<'_>,
    seen: &ProcessSeen,
    system: &SystemFacts,
) -> Life {
    let same_boot = record.identity.boot_id.as_ref().zip(system.boot_id.as_ref());
    let same_boot = same_boot.map(|(recorded, own)| recorded == own);
    if same_boot == Some(false) {
        let why = format!("pid {pid} was recorded in an earlier boot; its holder now is another");
        return Life::new(Liveness::Reused, why);
    }
    // Before any comparison of ticks: they restart at zero with each boot. A recorded boot id knows
    // better than the clock, which may have been set since the record was written.
    if let (Some(last), Some(boot), None) = (record.last_write_ms, system.boot_time_ms, same_boot)
        && last.saturating_add(limits::START_SLACK_MS) < boot
    {
        let why = format!(
            "the record is older than this boot ({last} < {boot}), so pid {pid} was reused"
        );
        return Life::new(Liveness::Reused, why);
    }
    let comparable = record.identity.start_identity.as_deref().filter(|s| s.starts_with("linux:"));
    let starts = comparable.zip(seen.start_identity.as_deref());
    let inodes = record.identity.pidfd_inode.zip(seen.pidfd_inode);
    // Within one boot an inode names one process for ever; ticks may be shown shifted by a time
    // namespace. Without a boot id an equal inode may be one of another boot, and the ticks tell.
    let certain = same_boot == Some(true) && inodes.is_some_and(|(recorded, now)| recorded == now);
    if let Some((recorded, now)) = starts.filter(|(recorded, now)| recorded != now && !certain) {
        let why = format!("pid {pid} was reused: it started at {now}, recorded is {recorded}");
        return Life::new(Liveness::Reused, why);
    }
    // Equal ticks decide only where there is no inode: they are equal in most quick reuses.
    if let Some((recorded, now)) = inodes {
        return if recorded == now {
            Life::new(Liveness::Live, format!("pid {pid} has the recorded process identity"))
        } else {
            Life::new(Liveness::Reused, format!("pid {pid} was reused: its identity differs"))
        };
    }
    if let Some((_, now)) = starts {
        return Life::new(Liveness::Live, format!("pid {pid} has the recorded start ({now})"));
    }
    let Some(start) = seen.start_ms else {
        return Life::new(Liveness::Unknown, format!("the start of pid {pid} cannot be read"));
    };
    if let Some(first) = record.first_named_ms
        && start <= first.saturating_add(limits::START_SLACK_MS)
    {
        let why = format!("pid {pid} started at {start}, before the record first named it");
        return Life::new(Liveness::Live, why);
    }
    match record.last_write_ms {
        Some(last) if start > last.saturating_add(limits::REUSE_MARGIN_MS) => Life::new(
            Liveness::Reused,
            format!(
                "pid {pid} was reused: its process started at {start}, more than 2 h after the \
                 run's last write at {last}"
            ),
        ),
        _ => Life::new(
            Liveness::Unknown,
            format!("pid {pid} started at {start}, after the record named it: identity unproven"),
        ),
    }
}

/// A process as its own host knows it, for a record that somebody else will judge.
///
/// Readers take the pid from any record; the rest is what lets them tell the process from a later one
/// of the same number (facts Z-30). The existing readers ignore what they do not know.
/// Spec: RS-RUN-05.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its number on this host, in this pid namespace.
    pub pid: i64,
    /// This host, unless it has no name.
    pub host: Option<String>,
    /// The pid namespace that the number belongs to.
    pub pid_namespace: Option<String>,
    /// Identity beyond the number.
    pub identity: RecordedIdentity,
}

impl ProcessRecord {
    /// What this system shows at `pid`. It is about the right process only while the number cannot have
    /// changed hands: for the own process, and for a child that nobody has waited for yet.
    pub fn of(pid: i64, seen: &ProcessSeen, system: &SystemFacts) -> Self {
        Self {
            pid,
            host: Some(system.host.clone()).filter(|host| !host.is_empty()),
            pid_namespace: system.pid_namespace.clone(),
            identity: RecordedIdentity {
                start_identity: seen.start_identity.clone(),
                boot_id: system.boot_id.clone(),
                pidfd_inode: seen.pidfd_inode,
            },
        }
    }

    /// The process as a record that was written once, at this instant, tells of it.
    pub fn told_at(&self, at_ms: i64) -> RecordedProcess<'_> {
        RecordedProcess {
            pid: Some(self.pid),
            host: self.host.as_deref(),
            pid_namespace: self.pid_namespace.as_deref(),
            identity: self.identity.clone(),
            first_named_ms: Some(at_ms),
            last_write_ms: Some(at_ms),
        }
    }

    /// Reads the members of [`ProcessRecord::members`]; `None` without a whole number as pid. Any other
    /// member of a wrong type reads as absent.
    pub fn read(doc: &Document<'_>) -> Option<Self> {
        let text = |key: &str| member::loose_string(doc, key);
        Some(Self {
            pid: doc.get("pid").and_then(Raw::integer)?,
            host: text("hostname"),
            pid_namespace: text("pidNamespaceScope"),
            identity: RecordedIdentity::read(doc),
        })
    }

    /// Its members in a status, with the JSON text of each; `None` for what is not known. A writer that
    /// replaces one process by another has to replace all of them: the old identity beside the new
    /// number would make a live process look reused.
    pub fn members(&self) -> [(&'static str, Option<String>); 6] {
        let json = |(key, text): (_, Option<Cow<'_, str>>)| {
            (key, text.as_deref().map(super::written::string))
        };
        let [scope, host] = self.place().map(json);
        let [start, boot, inode] = self.identity.members().map(json);
        [("pid", Some(self.pid.to_string())), scope, host, start, boot, inode]
    }

    /// Where the number counts.
    fn place(&self) -> [(&'static str, Option<Cow<'_, str>>); 2] {
        let text = |text| Option::as_deref(text).map(Cow::Borrowed);
        [("pidNamespaceScope", text(&self.pid_namespace)), ("hostname", text(&self.host))]
    }
}

/// The members of [`ProcessRecord::members`] that are known, in this order.
impl Serialize for ProcessRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pid", &self.pid)?;
        for (key, text) in self.place().into_iter().chain(self.identity.members()) {
            if let Some(text) = text {
                map.serialize_entry(key, &text)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_790_000_000_000;

    fn system() -> SystemFacts {
        SystemFacts {
            host: "h".into(),
            boot_id: Some("b1".into()),
            boot_time_ms: Some(T - 86_400_000),
            pid_namespace: Some("pid:[1]".into()),
            own_pid: 1,
            uid: Some(0),
        }
    }

    fn record() -> RecordedProcess<'static> {
        RecordedProcess {
            pid: Some(7),
            first_named_ms: Some(T),
            last_write_ms: Some(T + 1000),
            ..RecordedProcess::default()
        }
    }

    fn present(start: i64) -> ProcessSeen {
        ProcessSeen {
            presence: Presence::Present,
            start_identity: Some("linux:500".into()),
            start_ms: Some(start),
            pidfd_inode: Some(99),
        }
    }

    fn word(r: &RecordedProcess<'_>, s: &ProcessSeen) -> Liveness {
        judge(r, s, &system()).word
    }

    #[test]
    fn without_identity_the_start_must_precede_the_first_naming() {
        assert_eq!(word(&record(), &present(T)), Liveness::Live);
        assert_eq!(word(&record(), &present(T + 1001)), Liveness::Unknown);
    }

    #[test]
    fn a_clock_step_below_two_hours_makes_no_orphan() {
        let margin = T + 1000 + limits::REUSE_MARGIN_MS;
        assert_eq!(word(&record(), &present(margin)), Liveness::Unknown);
        assert_eq!(word(&record(), &present(margin + 1)), Liveness::Reused);
    }

    #[test]
    fn a_record_older_than_the_boot_has_no_live_process() {
        let mut r = record();
        r.first_named_ms = Some(T - 86_402_000);
        r.last_write_ms = Some(T - 86_401_001);
        r.identity.start_identity = Some("linux:500".into());
        assert_eq!(word(&r, &present(T)), Liveness::Reused, "equal ticks of another boot");
        assert_eq!(
            word(&r, &ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() }),
            Liveness::Dead
        );
    }

    #[test]
    fn the_inode_decides_over_equal_ticks() {
        let mut r = record();
        r.identity.start_identity = Some("linux:500".into());
        assert_eq!(word(&r, &present(T + 9_000_000_000)), Liveness::Live);
        r.identity.pidfd_inode = Some(98);
        assert_eq!(word(&r, &present(T)), Liveness::Reused);
        r.identity.pidfd_inode = Some(99);
        assert_eq!(word(&r, &present(T)), Liveness::Live, "both are equal");
        r.identity.start_identity = Some("linux:501".into());
        assert_eq!(word(&r, &present(T)), Liveness::Reused, "an equal inode alone is not enough");
    }

    #[test]
    fn an_equal_inode_needs_equal_ticks_unless_the_boot_is_known_to_be_this_one() {
        let mut r = record();
        r.identity.pidfd_inode = Some(99);
        r.identity.start_identity = Some("linux:7".into());
        assert_eq!(word(&r, &present(T)), Liveness::Reused, "an inode of another boot, by chance");
        r.identity.boot_id = Some("b1".into());
        assert_eq!(word(&r, &present(T)), Liveness::Live, "ticks shifted by a time namespace");
    }

    #[test]
    fn a_recorded_boot_id_knows_better_than_a_clock_that_was_set() {
        let mut r = record();
        r.last_write_ms = Some(1_000_000);
        r.first_named_ms = Some(1_000_000);
        r.identity.start_identity = Some("linux:500".into());
        assert_eq!(word(&r, &present(T)), Liveness::Reused, "older than this boot, by the clock");
        r.identity.boot_id = Some("b1".into());
        assert_eq!(word(&r, &present(T)), Liveness::Live, "written in this boot, by the kernel");
    }

    #[test]
    fn another_host_or_namespace_is_foreign_and_no_permission_is_unknown() {
        let mut r = record();
        r.host = Some("other");
        let gone = ProcessSeen { presence: Presence::Gone, ..ProcessSeen::default() };
        assert_eq!(word(&r, &gone), Liveness::Foreign);
        let mut r = record();
        r.pid_namespace = Some("pid:[2]");
        assert_eq!(word(&r, &gone), Liveness::Foreign);
        let hidden = ProcessSeen {
            presence: Presence::Unknown("no permission".into()),
            ..ProcessSeen::default()
        };
        assert_eq!(word(&record(), &hidden), Liveness::Unknown);
    }

    #[test]
    fn a_zombie_is_dead_and_no_pid_is_not_a_dead_pid() {
        let zombie = ProcessSeen { presence: Presence::Zombie, ..ProcessSeen::default() };
        assert_eq!(word(&record(), &zombie), Liveness::Dead);
        let none = RecordedProcess::default();
        assert_eq!(word(&none, &zombie), Liveness::NotRecorded);
        let zero = RecordedProcess { pid: Some(0), ..RecordedProcess::default() };
        assert_eq!(word(&zero, &zombie), Liveness::Unknown);
    }

    #[test]
    fn a_record_is_written_as_a_patch_sets_it_and_reads_back() {
        let whole = ProcessRecord::of(7, &present(T), &system());
        let bare = ProcessRecord { pid: 7, ..ProcessRecord::default() };
        for record in [whole, bare] {
            let text = serde_json::to_string(&record).expect("serializes");
            let doc = Document::parse(&text).expect("an object");
            let written: Vec<_> = doc.members().map(|(k, raw)| (k, raw.text())).collect();
            let members = record.members();
            let set: Vec<_> =
                members.iter().filter_map(|(key, text)| Some((*key, text.as_deref()?))).collect();
            assert_eq!(written, set, "one order and one spelling");
            assert_eq!(ProcessRecord::read(&doc), Some(record));
        }
        let whole = serde_json::to_string(&ProcessRecord::of(7, &present(T), &system()));
        assert_eq!(
            whole.expect("serializes"),
            r#"{"pid":7,"pidNamespaceScope":"pid:[1]","hostname":"h","processStartIdentity":"linux:500","bootId":"b1","pidfdInode":"99"}"#
        );
    }
}
