//! How a subject is called: its commands, and a mistake around one.
//!
//! Theory of operation. An [`Adapter`] is what is declared of an implementation: a command for each operation that it offers, as
//! a [`Template`] with places, and what it does not do. Filling a template is a pure function of names and arguments, and
//! `Adapter::called` puts the program that makes a mistake around the words. Nothing is started here: `process` does that.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cell::numbers;
use crate::evidence::fill_value;

/// A command with places, `{name}`, for what is known when it is called.
#[derive(Clone, Debug, Default)]
pub struct Template(pub Vec<String>);

/// How a subject is called: one command for the work of its role, and one for each further operation that it offers.
#[derive(Clone, Debug, Default)]
pub struct Adapter {
    /// The command of the role.
    pub main: Template,
    /// The commands of operations, by name.
    pub operations: BTreeMap<String, Template>,
    /// The roles that it plays, if it does not play all.
    pub(crate) roles: Option<Vec<String>>,
    /// The dialects that it speaks, if it does not speak all.
    pub(crate) dialects: Option<Vec<String>>,
    /// Which members of an answer it tells, if it does not tell all that the contract names.
    pub(crate) answers: Option<Vec<String>>,
    /// Members that its steps need beside `command`.
    pub(crate) step: Option<Value>,
    /// A mistake that is made around the command, and the program that makes it ([`crate::zoo::around`]).
    pub(crate) mistake: Option<Mistake>,
}

/// What [`crate::zoo::around`] does to a command.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    /// The words of the program that makes it, before the command.
    pub(crate) program: Vec<String>,
    /// What it does; names in it are filled when the command is called.
    pub(crate) how: Value,
    /// The operation at which it is made.
    pub(crate) operation: String,
}

impl Mistake {
    /// Whether it is made at a call of this name: at the one that it names (`of`), else at each.
    fn is_at(&self, call: Option<&str>) -> bool {
        let of = self.how.get("of").and_then(Value::as_str);
        of.is_none() || of == call
    }

    /// Whether signals are for the subject within alone.
    pub(crate) fn is_deaf(&self) -> bool {
        self.how.get("deaf") == Some(&Value::Bool(true))
    }
}

impl From<Template> for Adapter {
    fn from(main: Template) -> Self {
        Self { main, ..Self::default() }
    }
}

impl Adapter {
    /// Reads what is declared of a subject. `own` stands for `{self}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn declared(doc: &Value, own: &str) -> Result<Self, String> {
        let step = doc.get("step").filter(|step| step.is_object()).cloned();
        let list = |key: &str| -> Result<Option<Vec<String>>, String> {
            let Some(list) = doc.get(key) else { return Ok(None) };
            let words = list.as_array().and_then(|list| {
                list.iter().map(|word| word.as_str().map(str::to_owned)).collect()
            });
            words.map(Some).ok_or_else(|| format!("`{key}` is no list of words"))
        };
        let (roles, dialects, answers) = (list("roles")?, list("dialects")?, list("answers")?);
        let mut out = Self { step, roles, dialects, answers, ..Self::default() };
        let operations = doc.get("operations").and_then(Value::as_object);
        for (name, words) in operations.into_iter().flatten() {
            let words = words.as_array().filter(|words| !words.is_empty());
            let words = words.ok_or_else(|| format!("operation `{name}` is no list of words"))?;
            let read = |word: &Value| word.as_str().map(|word| word.replace("{self}", own));
            let words = words.iter().map(read).collect::<Option<Vec<_>>>();
            let words =
                words.ok_or_else(|| format!("operation `{name}` has a word that is none"))?;
            out.operations.insert(name.clone(), Template(words));
        }
        Ok(out)
    }

    /// The same subject in a role: the declared operation stands for a command that was not given.
    pub(crate) fn in_role(&self, role: &str) -> Self {
        let mut out = self.clone();
        if let (true, Some(main)) =
            (out.main.0.is_empty(), self.operation(role, main_operation(role)))
        {
            out.main = main.clone();
        }
        out
    }

    /// What it can do in a role, as checks ask for it.
    pub(crate) fn skills(&self, role: &str) -> Vec<String> {
        let names = self.operations.keys().map(String::as_str);
        let all = names.chain([main_operation(role)]).map(|name| format!("op:{name}"));
        let speaks =
            |word: &str| self.dialects.as_ref().is_none_or(|all| all.iter().any(|one| one == word));
        let spoken = ["pi", "dm"].into_iter().filter(|word| speaks(word));
        all.chain(spoken.map(|word| format!("dialect:{word}"))).collect()
    }

    /// The first member that an answer is asked for and that it is declared not to tell.
    pub(crate) fn untold(&self, args: &Value) -> Option<String> {
        let told = self.answers.as_ref()?;
        args.get("judge").filter(|judge| *judge == "answer")?;
        let wanted = args.get("want").and_then(Value::as_object)?;
        let names = wanted.keys().filter_map(|pointer| pointer.split('/').nth(1));
        let mut names = names.filter(|name| !told.iter().any(|known| known == name));
        names.next().map(|name| format!("answer:{name}"))
    }

    /// The command of an operation of a role.
    pub(crate) fn operation(&self, role: &str, name: &str) -> Option<&Template> {
        let main = (name == main_operation(role) && !self.main.0.is_empty()).then_some(&self.main);
        main.or_else(|| self.operations.get(name))
    }

    /// The words of an operation of a role: each place is filled, and what the operation is about is appended where the
    /// command has no place for it.
    pub(crate) fn words(
        &self,
        role: &str,
        name: &str,
        args: &BTreeMap<String, Value>,
    ) -> Option<Vec<String>> {
        let template = self.operation(role, name)?;
        let own = match name {
            "run" => "config",
            "inspect" => "root",
            "observe" => "runner",
            _ => return Some(template.filled(args)),
        };
        let mut template = template.clone();
        if !template.has(own) {
            template.0.push(format!("{{{own}}}"));
        }
        Some(template.filled(args))
    }

    /// A command as it is called for an operation, and the environment that it needs: as it is, or in the hands of
    /// the program that makes a mistake. `call` is the name of the call, if it has one.
    pub(crate) fn called(
        &self,
        words: Vec<String>,
        operation: &str,
        call: Option<&str>,
        names: &BTreeMap<String, String>,
    ) -> (Vec<String>, Vec<(String, String)>) {
        let is_here = |mistake: &&Mistake| mistake.operation == operation && mistake.is_at(call);
        match self.mistake.as_ref().filter(is_here) {
            None => (words, Vec::new()),
            Some(mistake) => {
                let how = numbers(&fill_value(names, &mistake.how)).to_string();
                let deaf = ["sh", "-c", "trap '' TERM USR2; exec \"$@\"", "sh"].map(str::to_owned);
                let deaf: &[String] = if mistake.is_deaf() { &deaf } else { &[] };
                let words = [deaf, &mistake.program, &words].concat();
                (words, vec![(crate::zoo::MISTAKE.to_owned(), how)])
            }
        }
    }
}

/// The operation that the command of a role is.
pub fn main_operation(role: &str) -> &'static str {
    match role {
        "reader" => "inspect",
        "observer" => "observe",
        "launcher" => "launch",
        "repairer" => "recover",
        _ => "run",
    }
}

/// A part of a word of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'w> {
    /// It stays as it is.
    Text(&'w str),
    /// `{name}`, of which this is the name.
    Place(&'w str),
}

/// The parts of a word. Other braces belong to whoever reads the word, such as the `${name}` of a shell.
fn parts(word: &str) -> Vec<Part<'_>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let (mut parts, mut told, mut from) = (Vec::new(), 0, 0);
    while let Some(open) = word[from..].find('{').map(|at| from + at) {
        from = open + 1;
        let Some((name, _)) = word[from..].split_once('}') else { break };
        let is_place = !name.is_empty() && name.chars().all(is_part);
        if is_place && !word[..open].ends_with('$') {
            parts.extend([Part::Text(&word[told..open]), Part::Place(name)]);
            from += name.len() + 1;
            told = from;
        }
    }
    parts.push(Part::Text(&word[told..]));
    parts.retain(|part| *part != Part::Text(""));
    parts
}

impl Template {
    /// Whether it has a place of that name.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| parts(word).contains(&Part::Place(name)))
    }

    /// The command for one call of an operation: each `{name}` is replaced by the argument or name of the scenario. A
    /// word that is nothing but the name of a list becomes the words of the list.
    fn filled(&self, args: &BTreeMap<String, Value>) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut out = Vec::new();
        for word in &self.0 {
            let parts = parts(word);
            match parts[..] {
                [Part::Place(name)] => match args.get(name) {
                    Some(Value::Array(items)) => out.extend(items.iter().map(text)),
                    Some(value) => out.push(text(value)),
                    // What the call does not say is left out.
                    None => {}
                },
                _ => out.push(
                    parts
                        .iter()
                        .map(|part| match part {
                            Part::Text(same) => (*same).to_owned(),
                            Part::Place(name) => {
                                args.get(*name).map_or_else(|| format!("{{{name}}}"), text)
                            }
                        })
                        .collect(),
                ),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistake_is_made_where_it_is_said() {
        let mistake = |of: Option<&str>| Adapter {
            mistake: Some(Mistake {
                program: vec!["zoo".into()],
                how: json!({ "of": of }),
                operation: "find".into(),
            }),
            ..Adapter::default()
        };
        for (of, operation, call, made) in [
            (None, "find", Some("a"), true),
            (None, "inspect", Some("a"), false),
            (Some("a"), "find", Some("a"), true),
            (Some("a"), "find", Some("b"), false),
            (Some("a"), "find", None, false),
        ] {
            let none = BTreeMap::new();
            let (words, _) = mistake(of).called(vec!["x".into()], operation, call, &none);
            assert_eq!(words.len() == 2, made, "{of:?} {operation} {call:?}");
        }
    }

    #[test]
    fn every_place_is_filled_and_what_the_operation_is_about_has_one() {
        let args = [
            ("config", json!("/c")),
            ("root", json!("/r")),
            ("now", json!(7)),
            ("runner", json!(["sh", "-c", "exit {now}"])),
            ("twice", json!("{root}")),
        ];
        let args = args.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        for (role, words, want) in [
            ("runner", &["a", "x{config}y"][..], &["a", "x/cy"][..]),
            ("runner", &["a", "b"], &["a", "b", "/c"]),
            ("reader", &["a", "{now}"], &["a", "7", "/r"]),
            ("reader", &["a", "--at={now}", "{root}", "{more}"], &["a", "--at=7", "/r"]),
            ("observer", &["a", "{root}"], &["a", "/r", "sh", "-c", "exit {now}"]),
            ("observer", &["a", "{runner}", "b"], &["a", "sh", "-c", "exit {now}", "b"]),
            ("repairer", &["sh", "-c", "{ a; }", "{}"], &["sh", "-c", "{ a; }", "{}"]),
            ("reader", &["sh", "-c", "a ${root} {", "{"], &["sh", "-c", "a ${root} {", "{", "/r"]),
            // What is put in is not looked through for places.
            ("reader", &["{twice}", "{root}{{now}{more}"], &["{root}", "/r{7{more}"]),
        ] {
            let main = Template(words.iter().map(|word| (*word).to_owned()).collect());
            let found = Adapter::from(main).words(role, main_operation(role), &args);
            assert_eq!(
                found.as_deref(),
                Some(want.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>().as_slice()),
                "{words:?}"
            );
        }
    }
}
