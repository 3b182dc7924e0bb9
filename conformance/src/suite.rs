//! The scenarios that were asked for, side by side, and their verdicts.
//!
//! Theory of operation. Ordered steps of [`run`]: select checks; play the smoke scenario alone, which tells whether
//! the subject can be started at all and whether it runs the commands of a configuration; play every other scenario,
//! slow ones in threads of their own and the rest in a pool, because nearly all of the time is waiting; judge; repeat,
//! if that was asked for. Verdicts come in the order of the scenarios, whatever ended first.
//!
//! Everything lies in one scratch directory with mode 0700, which is removed at the end unless it is to be kept. A
//! crash leaves it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::cases::{self, Check, Grade, Scenario};
use crate::evidence::{Event, Evidence, Op};
use crate::judge::{Found, judge};
use crate::script::play;
use crate::subject::Adapter;

/// The scenario of a role that is played first.
fn smoke_of(role: &str) -> &'static str {
    if role == "runner" { "fresh-complete" } else { "smoke" }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The role that the subject plays.
    pub role: String,
    /// The grade up to which checks are selected.
    pub level: Grade,
    /// Only checks of these clauses, if there are any.
    pub clauses: Vec<String>,
    /// Only scenarios of these names, if there are any.
    pub scenarios: Vec<String>,
    /// Only scenarios of this dialect, if one is named.
    pub dialect: Option<String>,
    /// How often each scenario is played; verdicts that differ fail.
    pub repeat: u32,
    /// From what the ids of runs are made.
    pub seed: String,
    /// How many scenarios are played at once.
    pub jobs: usize,
    /// Whether the stores stay.
    pub keep: bool,
    /// Checks or clauses that the subject is known to miss.
    pub gaps: Vec<Gap>,
    /// Where the scratch directory is made.
    pub scratch: PathBuf,
}

impl Wanted {
    /// Every check of a role, once.
    pub fn of(role: &str, jobs: usize, scratch: PathBuf) -> Self {
        Self {
            role: role.to_owned(),
            level: Grade::L3,
            clauses: Vec::new(),
            scenarios: Vec::new(),
            dialect: None,
            repeat: 1,
            seed: "1".into(),
            jobs,
            keep: false,
            gaps: Vec::new(),
            scratch,
        }
    }
}

/// A known gap of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The id of a clause or of a check.
    pub id: String,
    /// Why.
    pub reason: String,
    /// Until when, in milliseconds since the epoch; later it counts no more.
    pub expires_ms: i64,
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As expected.
    Pass,
    /// A MUST was missed.
    Fail,
    /// A SHOULD was missed.
    NonStrict,
    /// Nothing can be said.
    Inconclusive,
    /// Not asked of this subject.
    Skipped,
    /// Missed, and declared.
    Gap,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 6] =
        [Self::Pass, Self::Fail, Self::NonStrict, Self::Inconclusive, Self::Skipped, Self::Gap];

    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NonStrict => "non-strict",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
            Self::Gap => "gap",
        }
    }
}

/// One check with its verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The check.
    pub check: Check,
    /// The scenario that it belongs to.
    pub scenario: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What was seen, or why nothing can be said.
    pub seen: String,
}

/// One scenario as it was played.
#[derive(Debug)]
pub struct Played {
    /// Its name.
    pub id: String,
    /// What happens in it.
    pub about: String,
    /// How long it may take, in milliseconds.
    pub limit_ms: u64,
    /// What was seen the last time.
    pub seen: Evidence,
}

/// What came of a suite.
#[derive(Debug)]
pub struct Outcome {
    /// The role.
    pub role: String,
    /// The grade.
    pub level: Grade,
    /// The command of the subject.
    pub command: Vec<String>,
    /// The seed.
    pub seed: String,
    /// What the smoke scenario told.
    pub smoke: String,
    /// Every check that was selected.
    pub judged: Vec<Judged>,
    /// Every scenario that was played.
    pub played: Vec<Played>,
    /// How long all of it took, in milliseconds.
    pub took_ms: u64,
    /// Where the stores stay, if they do.
    pub kept: Option<PathBuf>,
}

impl Outcome {
    /// How many checks have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.judged.iter().filter(|judged| judged.verdict == verdict).count()
    }

    /// Whether every selected check up to a grade is as expected; MUSTs alone.
    pub fn reaches(&self, grade: Grade) -> bool {
        let mut asked = self.judged.iter().filter(|judged| judged.check.grade <= grade);
        asked.all(|judged| {
            matches!(judged.verdict, Verdict::Pass | Verdict::NonStrict | Verdict::Skipped)
        })
    }
}

/// Why nothing was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No check fits what was asked for.
    NothingSelected,
    /// The subject cannot be started.
    Adapter(String),
    /// There is no command for this role.
    NoCommand(String),
    /// The scratch directory cannot be made.
    Scratch(String),
}

/// The scenarios and checks that fit.
pub fn select(all: &[Scenario], wanted: &Wanted) -> Vec<Scenario> {
    let is_wanted = |check: &Check| {
        check.grade <= wanted.level
            && (wanted.clauses.is_empty()
                || wanted.clauses.iter().any(|id| *id == check.clause || *id == check.id))
    };
    let mut out = Vec::new();
    for scenario in all.iter().filter(|scenario| scenario.role == wanted.role) {
        let named = wanted.scenarios.is_empty() || wanted.scenarios.contains(&scenario.id);
        let named = named && wanted.dialect.as_deref().is_none_or(|word| word == scenario.family());
        let mut scenario = scenario.clone();
        scenario.checks.retain(is_wanted);
        if named && !scenario.checks.is_empty() {
            out.push(scenario);
        }
    }
    out
}

/// Judges a subject. `told` hears of each scenario that ended.
///
/// # Errors
/// [`Refused`].
pub fn run(
    all: &[Scenario],
    wanted: &Wanted,
    subject: &Adapter,
    told: &(dyn Fn(&str, u64) + Sync),
) -> Result<Outcome, Refused> {
    let began = std::time::Instant::now();
    let selected = select(all, wanted);
    if selected.is_empty() {
        return Err(Refused::NothingSelected);
    }
    let subject = &subject.in_role(&wanted.role);
    let plays = |roles: &Vec<String>| roles.contains(&wanted.role);
    if subject.main.0.is_empty() || !subject.roles.as_ref().is_none_or(plays) {
        return Err(Refused::NoCommand(wanted.role.clone()));
    }
    let scratch = Scratch::make(&wanted.scratch, wanted.keep)?;
    let smoke_id = smoke_of(&wanted.role);
    let case = cases::find(all, &wanted.role, smoke_id).ok_or(Refused::NothingSelected)?;
    let first = play(
        case,
        subject,
        &scratch.path.join("smoke"),
        &format!("{}:smoke", wanted.seed),
        wanted.keep,
    );
    let (smoke, mut skills) = smoke(&first, &wanted.role)?;
    skills.extend(subject.skills(&wanted.role));
    if can_record_calls() {
        skills.push("strace".to_owned());
    }
    let asked = |scenario: &Scenario| scenario.needs.iter().all(|need| skills.contains(need));
    let mut played = BTreeMap::new();
    for round in 0..wanted.repeat.max(1) {
        let mut cases: Vec<_> = selected.iter().filter(|case| asked(case)).collect();
        // The evidence of the smoke scenario counts as its first time.
        cases.retain(|case| round > 0 || case.id != smoke_id);
        cases.sort_by_key(|case| std::cmp::Reverse(case.limit_ms));
        for (id, seen) in side_by_side(&cases, subject, &scratch, wanted, round, told) {
            played.entry(id).or_insert_with(Vec::new).push(seen);
        }
    }
    played.entry(smoke_id.to_owned()).or_insert_with(Vec::new).insert(0, first);
    let mut judged = Vec::new();
    for scenario in &selected {
        let seen = played.get(&scenario.id).map(Vec::as_slice).unwrap_or_default();
        judged.extend(scenario.checks.iter().map(|check| {
            let needs = scenario.needs.iter().chain(&check.needs);
            let mut lacks: Vec<_> = needs.filter(|need| !skills.contains(need)).cloned().collect();
            lacks.extend(subject.untold(&check.args));
            verdict(scenario, check, seen, &lacks, wanted)
        }));
    }
    let played = selected.iter().filter_map(|scenario| {
        let seen = played.get_mut(&scenario.id)?.pop()?;
        let (id, about) = (scenario.id.clone(), scenario.about.clone());
        Some(Played { id, about, limit_ms: scenario.limit_ms, seen })
    });
    Ok(Outcome {
        role: wanted.role.clone(),
        level: wanted.level,
        command: subject.main.0.clone(),
        seed: wanted.seed.clone(),
        smoke,
        judged,
        played: played.collect(),
        took_ms: crate::raw::since_ms(began),
        kept: wanted.keep.then(|| scratch.path.clone()),
    })
}

/// The directory in which all stores of one suite lie.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes one below a directory.
    pub(crate) fn make(below: &Path, keep: bool) -> Result<Self, Refused> {
        use std::os::unix::fs::DirBuilderExt as _;
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("runstore-conformance-{}-{number}", std::process::id());
            let path = below.join(name);
            // A directory that is there may be another user's, or what a suite of this number has left: it must be new.
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, keep }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && number < 1000 => {}
                Err(e) => return Err(Refused::Scratch(format!("{}: {e}", path.display()))),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What the smoke scenario told, and what the subject can do.
fn smoke(seen: &Evidence, role: &str) -> Result<(String, Vec<String>), Refused> {
    if let Some(why) = &seen.broken {
        return Err(Refused::Adapter(why.clone()));
    }
    let no_answer = |wanted: &str| {
        let all = format!("{}{}", seen.last.stdout, seen.last.stderr);
        let said = match all.trim() {
            "" => "and said nothing".to_owned(),
            said => format!("but `{}`", crate::raw::brief(said, 200)),
        };
        Refused::Adapter(format!("it gave no {wanted}, {said}"))
    };
    let in_json = "the subject answered in JSON".to_owned();
    if role == "reader" {
        let answer = seen.last.answer.as_ref();
        let runs = answer.and_then(|answer| answer.get("runs")?.as_array());
        let runs = runs.ok_or_else(|| no_answer("JSON object with `runs`"))?;
        let tops = [runs.first(), answer].into_iter().flatten().filter_map(Value::as_object);
        let members = tops.flat_map(|members| members.keys());
        let skills = members.map(|name| format!("answer:{name}"));
        let pidfs = crate::raw::process_inode(std::process::id()).map(|_| "pidfs".to_owned());
        return Ok((in_json, skills.chain(pidfs).collect()));
    }
    if role == "launcher" || role == "repairer" {
        return match &seen.last.answer {
            None => Err(no_answer("JSON")),
            Some(_) => Ok((in_json, Vec::new())),
        };
    }
    if role == "observer" {
        let wrote =
            |event: &Event| !event.by_suite && event.path.ends_with("/process-terminal.json");
        let told = if seen.trace.iter().any(wrote) {
            "the subject observed the end of a runner"
        } else {
            "the subject wrote no proof: look at the command first, then at the implementation"
        };
        return Ok((told.into(), Vec::new()));
    }
    let is_work = |event: &Event| event.op == Op::Mark && event.path.starts_with("work-");
    let runs_commands = seen.trace.iter().any(is_work);
    let touched = seen.trace.iter().any(|event| {
        !event.by_suite
            && !matches!(event.op, Op::Mark | Op::Found)
            && !event.path.starts_with("async-cfg-")
    });
    let told = match (touched, !runs_commands) {
        (true, false) => "the subject was let in and ran the commands of its configuration",
        (true, true) => {
            "the subject was let in, and does not run `command` of a step; checks that need it are skipped"
        }
        (false, _) => {
            "the subject did not touch its run: look at the command first, then at the implementation"
        }
    };
    Ok((told.to_owned(), runs_commands.then(|| "commands".to_owned()).into_iter().collect()))
}

/// Whether there is a program that records system calls, and the system lets it.
pub(crate) fn can_record_calls() -> bool {
    let null = std::process::Stdio::null;
    let mut strace = std::process::Command::new("strace");
    strace.args(["-qq", "-y", "-e", "trace=fsync", "--", "true"]);
    let ended = strace.stdin(null()).stdout(null()).stderr(null()).status();
    ended.is_ok_and(|status| status.success())
}

fn side_by_side(
    cases: &[&Scenario],
    subject: &Adapter,
    scratch: &Scratch,
    wanted: &Wanted,
    round: u32,
    told: &(dyn Fn(&str, u64) + Sync),
) -> Vec<(String, Evidence)> {
    let one = |case: &&Scenario| {
        let base = scratch.path.join(format!("{}-{round}", case.id));
        let seed = format!("{}:{}", wanted.seed, case.id);
        let seen = play(case, subject, &base, &seed, wanted.keep);
        told(&case.id, seen.took_ms);
        (case.id.clone(), seen)
    };
    // What only waits costs nothing, and would keep the others from their turn.
    let (slow, rest): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.limit_ms > 60_000);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool(&slow, slow.len(), &one));
        let mut out = pool(&rest, wanted.jobs, &one);
        out.extend(waiting.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        out
    })
}

/// Does something with each item, `jobs` of them at once and at least one; what came of it, in the order in which it
/// ended.
pub(crate) fn pool<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    one: &(impl Fn(&T) -> R + Sync),
) -> Vec<R> {
    let (next, out) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1).min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let made = one(item);
                    out.lock().unwrap_or_else(PoisonError::into_inner).push(made);
                }
            });
        }
    });
    out.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn verdict(
    scenario: &Scenario,
    check: &Check,
    seen: &[Evidence],
    lacks: &[String],
    wanted: &Wanted,
) -> Judged {
    let judged = |verdict, text: String| Judged {
        check: check.clone(),
        scenario: scenario.id.clone(),
        verdict,
        seen: text,
    };
    if seen.is_empty() || !lacks.is_empty() {
        let why = format!("the subject does not do what this needs: {}", lacks.join(", "));
        return judged(Verdict::Skipped, why);
    }
    let found: Vec<_> = seen.iter().map(|seen| judge(seen, check)).collect();
    let kind = std::mem::discriminant(&found[0]);
    if let Some(other) = found.iter().find(|one| std::mem::discriminant(*one) != kind) {
        return judged(
            Verdict::Fail,
            format!("differs from time to time: {:?}, then {other:?}", found[0]),
        );
    }
    let now = crate::raw::now_ms();
    let names = |gap: &&Gap| gap.id == check.clause || gap.id == check.id;
    let gap = wanted.gaps.iter().filter(|gap| gap.expires_ms > now).find(names);
    match (&found[0], gap) {
        (Found::Good(seen), Some(gap)) if gap.id == check.id => {
            judged(Verdict::Fail, format!("declared as a gap, and it passes: {seen}"))
        }
        (Found::Good(seen), _) => judged(Verdict::Pass, seen.clone()),
        (Found::Bad(seen), Some(gap)) => judged(Verdict::Gap, format!("{seen} ({})", gap.reason)),
        (Found::Bad(seen), None) if check.is_must => judged(Verdict::Fail, seen.clone()),
        (Found::Bad(seen), None) => judged(Verdict::NonStrict, seen.clone()),
        (Found::Unsure(why), _) => judged(Verdict::Inconclusive, why.clone()),
    }
}
