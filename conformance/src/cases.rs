//! Scenarios and checks as data.
//!
//! Theory of operation. A scenario is one JSON file in `checks/<role>/`; `checks/README.md` says what its members mean.
//! The files are built in, so that the program carries them. A file that says something unknown is an error here and
//! not a check that never fails: words are looked up when a scenario is read.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::clauses;
use crate::evidence::fill;
use crate::judge::{Judge, judge_of};
use crate::subject::main_operation;

/// How much an implementation has to do: `L1` runs end in order, `L2` runs are led, `L3` runs meet accidents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// A fresh run is let in, works, and ends in order.
    L1,
    /// Also: requests, deadlines, revivals.
    L2,
    /// Also: planted files, accidents, long waits, modes.
    L3,
}

impl Grade {
    /// Every grade.
    pub const ALL: [Self; 3] = [Self::L1, Self::L2, Self::L3];

    /// `L1`, `L2` or `L3`.
    pub fn word(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }

    /// The grade of a word, in any case.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grade| grade.word().eq_ignore_ascii_case(word))
    }
}

/// One check of a scenario.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its own name: scenario and number of words.
    pub id: String,
    /// The clause that it covers.
    pub clause: String,
    /// Whether missing it fails; else it is only non-strict.
    pub is_must: bool,
    /// What the subject must be able to do beside the needs of the scenario, or the check is skipped.
    pub needs: Vec<String>,
    /// From which grade on it is asked for.
    pub grade: Grade,
    /// What is expected, in a sentence.
    pub expect: String,
    /// Which judge decides.
    pub(crate) judge: Judge,
    /// What the judge is told.
    pub args: Value,
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name, that of its file.
    pub id: String,
    /// The role that is tested.
    pub role: String,
    /// What happens, in a sentence.
    pub about: String,
    /// What the subject must be able to do, or the checks are skipped.
    pub needs: Vec<String>,
    /// What the store holds and the configuration says.
    pub store: Value,
    /// What the suite does.
    pub script: Vec<Value>,
    /// How long it may take, in milliseconds.
    pub limit_ms: u64,
    /// Which system calls of the subject are recorded and refused, if any.
    pub calls: Option<Calls>,
    /// Whether files are read at full rate meanwhile.
    pub hammer: bool,
    /// What is judged.
    pub checks: Vec<Check>,
    /// Mistakes that a subject may make here, for the proof of the suite.
    pub mutants: Vec<Mutant>,
}

/// System calls of a subject that are recorded, and what of them the system is made to refuse or to answer late.
#[derive(Clone, Debug)]
pub struct Calls {
    record: String,
    refuse: Vec<String>,
    paths: Vec<String>,
}

impl Calls {
    /// Those that flush and rename, and what a scenario asks for besides.
    fn read(value: &Value, needs: &[String]) -> Option<Self> {
        let list = |key: &str| -> Vec<String> {
            let items = value.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let more = list("calls").into_iter().map(|call| format!(",{call}")).collect::<String>();
        let record = format!("fsync,fdatasync,rename,renameat,renameat2{more}");
        let is_wanted = needs.iter().any(|need| need == "strace");
        is_wanted.then(|| Self { record, refuse: list("refuse"), paths: list("refuseAt") })
    }

    /// The words of `strace` for it.
    pub(crate) fn words(&self, names: &BTreeMap<String, String>) -> Vec<String> {
        let mut words = vec!["-e".to_owned(), format!("trace={}", self.record)];
        for what in &self.refuse {
            words.extend(["-e".to_owned(), format!("inject={what}")]);
        }
        for path in &self.paths {
            words.extend(["-P".to_owned(), fill(names, path)]);
        }
        words
    }
}

/// A mistake as data: what a subject with it does around a faultless one.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its name, of its scenario alone.
    pub name: String,
    /// The clause that it breaks.
    pub clause: String,
    /// What a subject with it does.
    pub about: String,
    /// What is done ([`crate::zoo::around`]).
    pub(crate) how: Value,
    /// At which operation.
    pub(crate) operation: String,
}

impl Scenario {
    /// Whether it calls operations beside that of its role, which only a subject that declares them can do.
    pub(crate) fn is_called(&self) -> bool {
        let own = main_operation(&self.role);
        let is_other = |step: &Value| step.get("op").is_some_and(|op| op != own);
        self.script.iter().any(is_other)
    }

    /// Whose names the store has, and so the dialect: `pi` or `dm`.
    pub(crate) fn family(&self) -> &str {
        self.store.get("family").and_then(Value::as_str).unwrap_or("pi")
    }
}

/// The words that a script may say.
const STEPS: [&str; 19] = [
    "age",
    "call",
    "process",
    "end-process",
    "observe",
    "prepare",
    "start",
    "say",
    "plant",
    "remove",
    "await",
    "await-gone",
    "await-exit",
    "await-said",
    "hold",
    "mark",
    "snapshot",
    "remember",
    "signal",
];

macro_rules! files {
    ($($role:literal: $($name:literal)*;)*) => {
        &[$($(($role, $name, include_str!(concat!("../checks/", $role, "/", $name, ".json"))),)*)*]
    };
}

include!("../checks/list.in");

/// Every scenario that is built in.
///
/// # Errors
/// What is wrong with which file.
pub fn all() -> Result<Vec<Scenario>, String> {
    FILES.iter().map(|(role, name, text)| read(role, name, text)).collect()
}

/// Every scenario of a directory that is laid out as `checks` is.
///
/// # Errors
/// What is wrong with which file.
pub fn in_directory(top: &std::path::Path) -> Result<Vec<Scenario>, String> {
    let wrong = |path: &std::path::Path, e: std::io::Error| format!("{}: {e}", path.display());
    let entries = |path: &std::path::Path| -> Result<Vec<std::path::PathBuf>, String> {
        let list = std::fs::read_dir(path).map_err(|e| wrong(path, e))?;
        let mut list: Vec<_> = list.flatten().map(|entry| entry.path()).collect();
        list.sort();
        Ok(list)
    };
    let stem = |path: &std::path::Path| {
        path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let mut out = Vec::new();
    for role in entries(top)?.iter().filter(|path| path.is_dir()) {
        for path in entries(role)? {
            if path.extension().is_some_and(|end| end == "json") {
                let text = std::fs::read_to_string(&path).map_err(|e| wrong(&path, e))?;
                out.push(read(&stem(role), &stem(&path), &text)?);
            }
        }
    }
    Ok(out)
}

/// The scenario of a role that has a name.
pub(crate) fn find<'s>(all: &'s [Scenario], role: &str, id: &str) -> Option<&'s Scenario> {
    all.iter().find(|scenario| scenario.role == role && scenario.id == id)
}

/// Reads one scenario; what is wrong is told with the name of the file.
fn read(role: &str, name: &str, text: &str) -> Result<Scenario, String> {
    let wrong = |what: String| format!("checks/{role}/{name}.json: {what}");
    let value: Value = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
    let say = |key: &str| text_of(&value, key).map_err(&wrong);
    if say("schema")? != "runstore.conformance.scenario/1" {
        return Err(wrong("an unknown schema".into()));
    }
    let list = |key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let script = list("script");
    for step in &script {
        let word = text_of(step, "do").map_err(&wrong)?;
        if !STEPS.contains(&word.as_str()) {
            return Err(wrong(format!("the script says `{word}`, which nobody knows")));
        }
    }
    let mut needs = needs(&value);
    let called = script.iter().filter(|step| step.get("do").is_some_and(|word| word == "call"));
    for step in called {
        let need = format!("op:{}", text_of(step, "op").map_err(&wrong)?);
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    let calls = Calls::read(&value, &needs);
    let checks: Result<Vec<_>, _> = list("checks").iter().map(|one| check(name, one)).collect();
    let checks = checks.map_err(&wrong)?;
    let mutants = list("mutants");
    let mutants: Result<Vec<_>, _> = mutants.iter().map(|one| mutant(role, one, &checks)).collect();
    let mut scenario = Scenario {
        id: name.to_owned(),
        role: role.to_owned(),
        about: say("about")?,
        needs,
        store: value.get("store").cloned().unwrap_or_default(),
        script,
        calls,
        limit_ms: value.get("limitMs").and_then(Value::as_u64).unwrap_or(30_000),
        hammer: value.get("hammer").and_then(Value::as_bool).unwrap_or_default(),
        checks,
        mutants: mutants.map_err(wrong)?,
    };
    let dialect = format!("dialect:{}", scenario.family());
    scenario.needs.push(dialect);
    Ok(scenario)
}

fn needs(value: &Value) -> Vec<String> {
    let list = value.get("needs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|need| need.as_str().map(str::to_owned)).collect()
}

fn text_of(value: &Value, key: &str) -> Result<String, String> {
    let text = value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| format!("`{key}` is no text"))
}

fn mutant(role: &str, value: &Value, checks: &[Check]) -> Result<Mutant, String> {
    let (name, clause) = (text_of(value, "name")?, text_of(value, "clause")?);
    if !checks.iter().any(|check| check.clause == clause) {
        return Err(format!("mutant {name}: no check of its scenario covers {clause}"));
    }
    let operation = value.get("op").and_then(Value::as_str).unwrap_or(main_operation(role));
    let (about, operation) = (text_of(value, "about")?, operation.to_owned());
    Ok(Mutant { name, clause, about, operation, how: value.clone() })
}

fn check(scenario: &str, value: &Value) -> Result<Check, String> {
    let id = format!("{scenario}/{}", text_of(value, "name")?);
    let wrong = |what: &str| format!("{id}: {what}");
    let name = text_of(value, "clause")?;
    let clause = clauses::find(&name).ok_or_else(|| wrong("its clause is not registered"))?;
    let grade = Grade::parse(&text_of(value, "level")?).ok_or_else(|| wrong("its level"))?;
    let judge = text_of(value, "judge")?;
    let judge = judge_of(&judge).ok_or_else(|| wrong("its judge is not known"))?;
    // A MUST clause may hold a sentence that is only advice; the file says so.
    let is_must = match value.get("strength").and_then(Value::as_str) {
        Some("SHOULD") => false,
        None => clause.is_must(),
        Some(_) => return Err(wrong("its strength")),
    };
    let expect = text_of(value, "expect")?;
    let (args, needs) = (value.clone(), needs(value));
    Ok(Check { needs, id, clause: name, is_must, grade, expect, judge, args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_and_every_scenario_is_read() {
        let all = all().expect("every file is in order");
        let top = concat!(env!("CARGO_MANIFEST_DIR"), "/checks");
        let mut on_disk = 0;
        for role in std::fs::read_dir(top).expect("there") {
            let role = role.expect("readable").path();
            if role.is_dir() {
                on_disk += std::fs::read_dir(role).expect("readable").count();
            }
        }
        assert_eq!(all.len(), on_disk, "the list names every file");
        let checks = |s: &Scenario| -> Vec<_> {
            s.checks.iter().map(|check| (s.role.clone(), check.id.clone())).collect()
        };
        let mut ids: Vec<_> = all.iter().flat_map(checks).collect();
        let checks = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), checks, "every check has a name of its own");
        for scenario in &all {
            let names: std::collections::BTreeSet<_> =
                scenario.mutants.iter().map(|mutant| &mutant.name).collect();
            assert_eq!(names.len(), scenario.mutants.len(), "so has every mutant: {}", scenario.id);
        }
    }
}
