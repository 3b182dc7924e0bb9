//! The proof of the suite: implementations with one mistake each, and the checks that saw it.
//!
//! Theory of operation. Runner, reader and observer of [`crate::zoo`] are judged once without a mistake by every scenario; they have
//! to pass, or nothing that follows means anything. Then each mistake is made in the scenario in which it shows. It is
//! *killed* if a check of the clause that it breaks does not pass; what else did not pass is told beside it. A mistake
//! that no check of its clause sees has *survived*: a hole in the suite.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cases::{self, Mutant, Scenario};
use crate::clauses;
use crate::judge::{Found, judge};
use crate::raw;
use crate::script::play;
use crate::subject::{self, Adapter, Template};
use crate::suite::{self, Outcome, Refused, Scratch, Verdict, Wanted};
use crate::zoo::{FAULTS, Fault};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The words of this program that make it an implementation with a mistake.
    pub zoo: Vec<String>,
    /// A faultless implementation with every operation that scenarios call.
    pub reference: Adapter,
    /// Only these mistakes, if there are any.
    pub faults: Vec<String>,
    /// Only mistakes of this role, if one is named.
    pub role: Option<String>,
    /// How many scenarios are played at once.
    pub jobs: usize,
    /// Where the scratch directories are made.
    pub scratch: PathBuf,
}

/// One mistake: in the words of the zoo, or as data around the reference.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// The role that makes it.
    pub role: String,
    /// By this name it is asked for.
    pub name: String,
    /// The clause that it breaks.
    pub clause: String,
    /// The scenario in which it shows.
    pub scenario: String,
    /// What an implementation with it does.
    pub about: String,
    around: Option<subject::Mistake>,
}

impl Mistake {
    fn of_zoo(fault: &Fault) -> Self {
        let own = str::to_owned;
        Self {
            role: own(fault.role),
            name: own(fault.name),
            clause: own(fault.clause),
            scenario: own(fault.scenario),
            about: own(fault.about),
            around: None,
        }
    }

    fn of_data(zoo: &[String], scenario: &Scenario, mutant: &Mutant) -> Self {
        let words = ["--role", "around", "--"].map(str::to_owned);
        Self {
            role: scenario.role.clone(),
            name: format!("{}/{}", scenario.id, mutant.name),
            clause: mutant.clause.clone(),
            scenario: scenario.id.clone(),
            about: mutant.about.clone(),
            around: Some(subject::Mistake {
                program: [zoo, &words].concat(),
                how: mutant.how.clone(),
                operation: mutant.operation.clone(),
            }),
        }
    }
}

/// Every mistake that is known.
pub fn mistakes(all: &[Scenario], zoo: &[String]) -> Vec<Mistake> {
    let data = all.iter().flat_map(|scenario| {
        scenario.mutants.iter().map(move |mutant| Mistake::of_data(zoo, scenario, mutant))
    });
    FAULTS.iter().map(Mistake::of_zoo).chain(data).collect()
}

/// One mistake and who saw it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The mistake.
    pub fault: Mistake,
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
    /// The implementations without a mistake.
    pub baselines: Vec<Outcome>,
    /// Every mistake.
    pub rows: Vec<Row>,
    /// How many of them were seen by nobody beside the others, and tried once more alone.
    pub again: usize,
    /// Whether every mistake was tried.
    pub is_whole: bool,
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

    /// MUST clauses of the registry, and those of them that are neither waived nor have a mistake that was killed.
    pub fn coverage(&self) -> (usize, Vec<&'static str>) {
        let killed = self.rows.iter().filter(|row| row.is_killed());
        let killed: BTreeSet<&str> = killed.map(|row| row.fault.clause.as_str()).collect();
        let must = clauses::all().iter().filter(|clause| clause.is_must());
        let without = must.clone().filter(|c| c.waiver.is_none() && !killed.contains(c.id));
        (must.count(), without.map(|clause| clause.id).collect())
    }
}

/// MUST clauses that no suite can check, each with the reason.
pub fn waived() -> Vec<(&'static str, &'static str)> {
    let waived = clauses::all().iter().filter(|clause| clause.is_must());
    waived.filter_map(|clause| Some((clause.id, clause.waiver?))).collect()
}

/// Lets the suite judge every mistake.
///
/// # Errors
/// [`Refused`], if nothing was selected or the faulty runner cannot be started.
pub fn run(all: &[Scenario], request: &Request) -> Result<Proof, Refused> {
    let began = std::time::Instant::now();
    // What shows in system calls alone cannot be seen where nobody records them.
    let records_calls = suite::can_record_calls();
    let can_show = |fault: &Mistake| {
        let scenario = cases::find(all, &fault.role, &fault.scenario);
        records_calls || scenario.is_none_or(|s| s.needs.iter().all(|need| need != "strace"))
    };
    let is_wanted = |fault: &Mistake| {
        let names = [&fault.name, &fault.scenario];
        let named = request.faults.is_empty() || request.faults.iter().any(|n| names.contains(&n));
        named && request.role.as_ref().is_none_or(|role| *role == fault.role) && can_show(fault)
    };
    let faults: Vec<Mistake> = mistakes(all, &request.zoo).into_iter().filter(is_wanted).collect();
    if faults.is_empty() {
        return Err(Refused::NothingSelected);
    }
    let scratch = Scratch::make(&request.scratch, false)?;
    let subjects = faultless(all, request, &faults);
    // All of it mostly waits, so it waits together.
    let (baselines, rows) = std::thread::scope(|scope| {
        let one = |(wanted, subject): (Wanted, Adapter)| {
            scope.spawn(move || suite::run(all, &wanted, &subject, &|_, _| {}))
        };
        let running: Vec<_> = subjects.into_iter().map(one).collect();
        let rows = judge_all(all, request, &scratch, &faults);
        let broken = || Err(Refused::Adapter("nothing was judged without a mistake".into()));
        let ended = running.into_iter().map(|one| one.join().unwrap_or_else(|_| broken()));
        (ended.collect::<Result<Vec<_>, _>>(), rows)
    });
    let baselines = baselines?;
    // What was not seen beside all the others, for want of time, is tried once more alone.
    let mut again = 0;
    let mut rows = rows;
    for (at, row) in rows.iter_mut().enumerate().filter(|(_, row)| !row.is_killed()) {
        again += 1;
        *row = one(all, request, &scratch, faults.len() + at, &row.fault);
    }
    let is_whole = request.faults.is_empty() && request.role.is_none();
    Ok(Proof { baselines, rows, again, is_whole, took_ms: raw::since_ms(began) })
}

/// Who has to pass what without a mistake: the zoo in each role that has mistakes there, and the reference wherever
/// mistakes are made around it.
fn faultless(all: &[Scenario], request: &Request, faults: &[Mistake]) -> Vec<(Wanted, Adapter)> {
    let of = |around: bool| faults.iter().filter(move |fault| fault.around.is_some() == around);
    let wanted = |role: &str, scenarios: Vec<String>| Wanted {
        seed: "prove".into(),
        scenarios,
        ..Wanted::of(role, request.jobs, request.scratch.clone())
    };
    let named = |scenarios: BTreeSet<&str>| scenarios.into_iter().map(str::to_owned).collect();
    let mut out = Vec::new();
    let roles: BTreeSet<&str> = of(false).map(|fault| fault.role.as_str()).collect();
    for role in roles {
        // Where only some mistakes are tried, only their scenarios are. Where all mistakes are made around the
        // reference, it alone has to pass.
        let tried = |id: &str| of(false).any(|fault| fault.role == role && fault.scenario == id);
        let plain = all.iter().filter(|s| s.role == role && !s.is_called());
        let is_played =
            |s: &&Scenario| tried(&s.id) || (request.faults.is_empty() && s.mutants.is_empty());
        let plain = plain.filter(is_played);
        let ids: Vec<_> = plain.map(|scenario| scenario.id.clone()).collect();
        out.push((wanted(role, ids), zoo(request, role, "").into()));
    }
    let roles: BTreeSet<&str> = of(true).map(|fault| fault.role.as_str()).collect();
    for role in roles {
        let ids = of(true).filter(|fault| fault.role == role).map(|fault| fault.scenario.as_str());
        out.push((wanted(role, named(ids.collect())), request.reference.clone()));
    }
    out
}

fn zoo(request: &Request, role: &str, fault: &str) -> Template {
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

fn judge_all(
    all: &[Scenario],
    request: &Request,
    scratch: &Scratch,
    faults: &[Mistake],
) -> Vec<Row> {
    let limit =
        |fault: &Mistake| cases::find(all, &fault.role, &fault.scenario).map_or(0, |s| s.limit_ms);
    // The longest first, so that none of them is alone at the end.
    let mut order: Vec<usize> = (0..faults.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(limit(&faults[*i])));
    let judged = |at: &usize| (*at, one(all, request, scratch, *at, &faults[*at]));
    let mut rows = suite::pool(&order, request.jobs, &judged);
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn one(
    all: &[Scenario],
    request: &Request,
    scratch: &Scratch,
    number: usize,
    fault: &Mistake,
) -> Row {
    let fault = fault.clone();
    let mut row = Row { fault, killers: Vec::new(), also: BTreeSet::new(), broken: None };
    let fault = &row.fault;
    let Some(scenario) = cases::find(all, &fault.role, &fault.scenario) else {
        row.broken = Some("there is no such scenario".into());
        return row;
    };
    let base = scratch.path.join(format!("mistake-{number}"));
    let subject = match &fault.around {
        None => zoo(request, &fault.role, &fault.name).into(),
        Some(_) => {
            let reference = request.reference.in_role(&fault.role);
            Adapter { mistake: fault.around.clone(), ..reference }
        }
    };
    let seen = play(scenario, &subject, &base, "prove", false);
    row.broken.clone_from(&seen.broken);
    for check in &scenario.checks {
        if let Found::Bad(_) = judge(&seen, check) {
            if check.clause == row.fault.clause {
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
    let waived = waived();
    let rows: Vec<_> = proof
        .rows
        .iter()
        .map(|row| {
            let Mistake { role, name, clause, scenario, about, .. } = &row.fault;
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
            "mustClausesWithoutMutant": without.len(), "waived": waived.len(), "killedByTheirClauseAlone": alone.count(),
            "falseAlarms": alarms.len(), "triedAgain": proof.again, "tookMs": proof.took_ms,
        },
        "mutants": rows, "falseAlarms": alarms, "withoutMutant": without,
        "waived": waived.iter().map(|(id, why)| json!({"clause": id, "reason": why})).collect::<Vec<_>>(),
    })
}

/// The kill matrix, for people.
pub fn text(proof: &Proof) -> String {
    let mut out = String::new();
    for row in &proof.rows {
        let Mistake { role, name, clause, about, .. } = &row.fault;
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
    let waived = if proof.is_whole { waived() } else { Vec::new() };
    for (id, why) in &waived {
        out.push_str(&format!("waived   {id:<13} {why}\n"));
    }
    let (mutants, survivors) = (proof.rows.len(), proof.survivors().count());
    out.push_str(&format!(
        "{mutants} mutants, {survivors} survivors, {} false alarms ({} s)\n",
        proof.false_alarms().len(),
        proof.took_ms.div_ceil(1000)
    ));
    if !proof.is_whole {
        return out;
    }
    out.push_str(&format!(
        "{} of {must} MUST clauses have a mutant that a check of theirs kills; {} are waived; {} have none{}\n",
        must - without.len() - waived.len(),
        waived.len(),
        without.len(),
        if without.is_empty() { String::new() } else { format!(": {}", without.join(" ")) }
    ));
    out
}
