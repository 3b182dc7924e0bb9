//! The proof of the suite: implementations with one mistake each, and the checks that saw it.
//!
//! Theory of operation. Runner, reader and observer of [`crate::zoo`] are judged once without a mistake by every scenario; they have
//! to pass, or nothing that follows means anything. Then each mistake is made in the scenario in which it shows. It is
//! *killed* if a check of the clause that it breaks does not pass; what else did not pass is told beside it. A mistake
//! that no check of its clause sees has *survived*: a hole in the suite.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cases::{self, Scenario};
use crate::clauses;
use crate::judge::{Found, judge};
use crate::raw;
use crate::script::play;
use crate::subject::Template;
use crate::suite::{self, Outcome, Refused, Scratch, Verdict, Wanted};
use crate::zoo::{FAULTS, Fault};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command of the faulty runner, before the name of the mistake and the configuration.
    pub zoo: Vec<String>,
    /// Only these mistakes, if there are any.
    pub faults: Vec<String>,
    /// How many scenarios are played at once.
    pub jobs: usize,
    /// Where the scratch directories are made.
    pub scratch: PathBuf,
}

/// One mistake and who saw it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The mistake.
    pub fault: Fault,
    /// Checks of its clause that did not pass.
    pub killers: Vec<String>,
    /// Other clauses with a check that did not pass.
    pub also: BTreeSet<String>,
    /// Why the scenario could not be played, if it could not.
    pub broken: Option<String>,
}

impl Row {
    /// Whether a check of its clause saw it.
    fn is_killed(&self) -> bool {
        !self.killers.is_empty()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Proof {
    /// The implementations without a mistake, one for each role.
    pub baselines: Vec<Outcome>,
    /// Every mistake.
    pub rows: Vec<Row>,
    /// How long all of it took, in milliseconds.
    pub took_ms: u64,
}

impl Proof {
    /// Mistakes that nobody saw.
    pub fn survivors(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_killed())
    }

    /// Checks that implementations without a mistake did not pass.
    pub fn false_alarms(&self) -> Vec<&suite::Judged> {
        self.baselines
            .iter()
            .flat_map(|outcome| &outcome.judged)
            .filter(|judged| !matches!(judged.verdict, Verdict::Pass | Verdict::Skipped))
            .collect()
    }

    /// MUST clauses of the registry, and those of them without a mistake that was killed.
    pub fn coverage(&self) -> (usize, Vec<&'static str>) {
        let killed = self.rows.iter().filter(|row| row.is_killed());
        let killed: BTreeSet<&str> = killed.map(|row| row.fault.clause).collect();
        let must = clauses::all().iter().filter(|clause| clause.is_must());
        let without = must.clone().filter(|c| !killed.contains(c.id));
        (must.count(), without.map(|clause| clause.id).collect())
    }
}

/// Lets the suite judge every mistake.
///
/// # Errors
/// [`Refused`], if nothing was selected or the faulty runner cannot be started.
pub fn run(all: &[Scenario], request: &Request) -> Result<Proof, Refused> {
    let began = std::time::Instant::now();
    // What shows in system calls alone cannot be seen where nobody records them.
    let records_calls = suite::can_record_calls();
    let can_show = |fault: &Fault| {
        let scenario = cases::find(all, fault.role, fault.scenario);
        records_calls || scenario.is_none_or(|s| s.needs.iter().all(|need| need != "strace"))
    };
    let is_wanted = |fault: &Fault| {
        let named =
            request.faults.is_empty() || request.faults.iter().any(|name| name == fault.name);
        named && can_show(fault)
    };
    let faults: Vec<Fault> = FAULTS.iter().copied().filter(is_wanted).collect();
    if faults.is_empty() {
        return Err(Refused::NothingSelected);
    }
    let scratch = Scratch::make(&request.scratch, false)?;
    let wanted = |role: &str| Wanted {
        seed: "prove".into(),
        ..Wanted::of(role, request.jobs, request.scratch.clone())
    };
    let roles: BTreeSet<&str> = faults.iter().map(|fault| fault.role).collect();
    let baseline =
        |role: &str| suite::run(all, &wanted(role), &template(request, role, ""), &|_, _| {});
    // All of it mostly waits, so it waits together.
    let (baselines, rows) = std::thread::scope(|scope| {
        let baseline = &baseline;
        let running: Vec<_> =
            roles.iter().map(|role| scope.spawn(move || baseline(role))).collect();
        let rows = judge_all(all, request, &scratch, &faults);
        let broken = || Err(Refused::Adapter("nothing was judged without a mistake".into()));
        let ended = running.into_iter().map(|one| one.join().unwrap_or_else(|_| broken()));
        (ended.collect::<Result<Vec<_>, _>>(), rows)
    });
    let baselines = baselines?;
    Ok(Proof { baselines, rows, took_ms: raw::since_ms(began) })
}

fn template(request: &Request, role: &str, fault: &str) -> Template {
    let mut words = request.zoo.clone();
    words.extend(["--role", role, "--fault", fault].map(str::to_owned));
    let places: &[&str] = match role {
        "runner" => &["{config}"],
        "observer" => &["{root}", "{runDir}", "{instance}", "--"],
        _ => &["{root}"],
    };
    words.extend(places.iter().map(|place| (*place).to_owned()));
    Template(words)
}

fn judge_all(all: &[Scenario], request: &Request, scratch: &Scratch, faults: &[Fault]) -> Vec<Row> {
    let limit =
        |fault: &Fault| cases::find(all, fault.role, fault.scenario).map_or(0, |s| s.limit_ms);
    // The longest first, so that none of them is alone at the end.
    let mut order: Vec<usize> = (0..faults.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(limit(&faults[*i])));
    let judged = |at: &usize| (*at, one(all, request, scratch, faults[*at]));
    let mut rows = suite::pool(&order, request.jobs, &judged);
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn one(all: &[Scenario], request: &Request, scratch: &Scratch, fault: Fault) -> Row {
    let mut row = Row { fault, killers: Vec::new(), also: BTreeSet::new(), broken: None };
    let Some(scenario) = cases::find(all, fault.role, fault.scenario) else {
        row.broken = Some("there is no such scenario".into());
        return row;
    };
    let base = scratch.path.join(format!("{}-{}", fault.role, fault.name));
    let seen = play(scenario, &template(request, fault.role, fault.name), &base, "prove", false);
    row.broken.clone_from(&seen.broken);
    for check in &scenario.checks {
        if let Found::Bad(_) = judge(&seen, check) {
            if check.clause == fault.clause {
                row.killers.push(check.id.clone());
            } else {
                row.also.insert(check.clause.clone());
            }
        }
    }
    row
}

/// One object; its `summary` is what a program needs.
pub fn json(proof: &Proof) -> Value {
    let (must, without) = proof.coverage();
    let rows: Vec<_> = proof
        .rows
        .iter()
        .map(|row| {
            let Fault { role, name, clause, scenario, about } = row.fault;
            json!({"mutant": name, "role": role, "clause": clause, "scenario": scenario, "about": about,
                "killedBy": row.killers, "also": row.also, "survived": !row.is_killed(), "broken": row.broken})
        })
        .collect();
    let alarms: Vec<_> =
        proof.false_alarms().iter().map(|judged| judged.check.id.clone()).collect();
    let alone = proof.rows.iter().filter(|row| row.is_killed() && row.also.is_empty());
    json!({
        "schema": "runstore.prove/1",
        "summary": {
            "mutants": proof.rows.len(), "survivors": proof.survivors().count(), "mustClauses": must,
            "mustClausesWithoutMutant": without.len(), "killedByTheirClauseAlone": alone.count(),
            "falseAlarms": alarms.len(), "tookMs": proof.took_ms,
        },
        "mutants": rows, "falseAlarms": alarms, "withoutMutant": without,
    })
}

/// The kill matrix, for people.
pub fn text(proof: &Proof) -> String {
    let mut out = String::new();
    for row in &proof.rows {
        let Fault { role, name, clause, about, .. } = row.fault;
        let word = if row.is_killed() { "killed" } else { "SURVIVED" };
        out.push_str(&format!("{word:<8} {clause:<13} {role} {name}: {about}\n"));
        for killer in &row.killers {
            out.push_str(&format!("           by {killer}\n"));
        }
        if !row.also.is_empty() {
            let also: Vec<_> = row.also.iter().map(String::as_str).collect();
            out.push_str(&format!("           also {}\n", also.join(", ")));
        }
        if let Some(why) = &row.broken {
            out.push_str(&format!("           not played: {why}\n"));
        }
    }
    for judged in proof.false_alarms() {
        let (word, id) = (judged.verdict.word(), &judged.check.id);
        out.push_str(&format!("false alarm: {id} ({word}): {}\n", judged.seen));
    }
    let (must, without) = proof.coverage();
    let (mutants, survivors) = (proof.rows.len(), proof.survivors().count());
    out.push_str(&format!(
        "{mutants} mutants, {survivors} survivors, {} false alarms ({} s)\n",
        proof.false_alarms().len(),
        proof.took_ms.div_ceil(1000)
    ));
    out.push_str(&format!(
        "{} of {must} MUST clauses have a mutant that a check of theirs kills; {} have none\n",
        must - without.len(),
        without.len()
    ));
    out
}
