//! A step that is a plain command: how a launcher tells it, and how the runner of this library reads it.
//!
//! Theory of operation. In the configuration of a runner a step is an object with a few members that every
//! runner checks and others that are its own. The built-in runner has three of its own: `command`, the words
//! of the command; `cwd`, where it runs if not where the run does; `env`, variables that are set, or removed
//! where the value is `null`. A group of steps that run side by side is `{"parallel": [...]}`, as in every
//! dialect; the members of the configuration that the protocol has are read elsewhere.
//!
//! A step without `command` is one of an agent, which this runner cannot run: it says so and names the step,
//! instead of taking the task for a command. No error carries a value: it may be a secret.
//!
//! Not promised: words that are not text. JSON has none.
//! Spec: RS-STEP-09; facts L-33.

use super::document::{Document, object_text, string_text};
use super::error::DecodeError;
use super::member;
use super::raw::Raw;

/// One command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandStep {
    /// Its name in the status.
    pub agent: String,
    /// The program, a path or a name that is looked for in `PATH`, and its arguments.
    pub command: Vec<String>,
    /// Its working directory, absolute, if not that of the run.
    pub cwd: Option<String>,
    /// Variables that are set, or removed.
    pub env: Vec<(String, Option<String>)>,
}

impl CommandStep {
    fn read(raw: Raw<'_>, at: &str) -> Result<Self, DecodeError> {
        let wrong =
            |key: &str, what: &'static str| DecodeError::member(format!("{at}.{key}"), what);
        let step = raw.object().ok_or_else(|| DecodeError::member(at, "an object"))?;
        let words = step.get("command").and_then(Raw::array);
        let words = words.and_then(|words| words.into_iter().map(Raw::exact_string).collect());
        let words: Option<Vec<String>> = words;
        let is_one = |words: &Vec<String>| words.first().is_some_and(|word| !word.is_empty());
        let command = words.filter(is_one).ok_or_else(|| {
            wrong(
                "command",
                "an array of strings, the first of them a program; agents are not run here",
            )
        })?;
        // A system call ends a word there, and would run another command.
        if command.iter().any(|word| word.contains('\0')) {
            return Err(wrong("command", "words without a NUL character"));
        }
        let cwd = match step.get("cwd").filter(|raw| !raw.is_null()) {
            None => None,
            Some(raw) => {
                let path = raw.exact_string().filter(|path| !path.is_empty());
                Some(path.ok_or_else(|| wrong("cwd", "a non-empty string"))?)
            }
        };
        let mut env = Vec::new();
        if let Some(raw) = step.get("env").filter(|raw| !raw.is_null()) {
            let object = raw.object().ok_or_else(|| wrong("env", "an object"))?;
            for (key, value) in object.members() {
                let text = value.exact_string();
                let is_name = !key.is_empty() && !key.contains(['=', '\0']);
                let is_value = text.as_ref().map_or(value.is_null(), |text| !text.contains('\0'));
                if !is_name || !is_value {
                    return Err(wrong("env", "an object of strings and nulls"));
                }
                env.push((key.to_owned(), text));
            }
        }
        let agent = member::filled_string(&step, "agent")
            .map_err(|_| wrong("agent", "a non-empty string"))?;
        Ok(Self { agent, command, cwd, env })
    }

    /// The step as a member of `steps`, with what every runner checks. Its task is the command for people.
    pub fn text(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| string_text(word)).collect();
        let mut members = vec![
            ("agent", string_text(&self.agent)),
            ("task", string_text(&self.command.join(" "))),
            ("inheritProjectContext", "false".to_owned()),
            ("inheritGlobalContext", "false".to_owned()),
            ("inheritSkills", "false".to_owned()),
            ("command", format!("[{}]", words.join(","))),
        ];
        if let Some(cwd) = &self.cwd {
            members.push(("cwd", string_text(cwd)));
        }
        if !self.env.is_empty() {
            let value = |value: &Option<String>| {
                value.as_ref().map_or_else(|| "null".to_owned(), |text| string_text(text))
            };
            let env: Vec<_> = self.env.iter().map(|(key, text)| (key, value(text))).collect();
            members.push(("env", object_text(&env)));
        }
        object_text(&members)
    }
}

/// The groups of a configuration, one after the other; the steps of each side by side.
/// Spec: RS-STEP-09.
///
/// # Errors
/// [`DecodeError::Member`] naming the first step that is no command.
pub fn groups(config: &Document<'_>) -> Result<Vec<Vec<CommandStep>>, DecodeError> {
    let steps = config.get("steps").and_then(Raw::array).unwrap_or_default();
    let group = |(i, raw): (usize, Raw<'_>)| {
        let at = format!("steps[{i}]");
        match raw.object().and_then(|step| step.get("parallel")) {
            None => Ok(vec![CommandStep::read(raw, &at)?]),
            Some(group) => {
                let at = format!("{at}.parallel");
                let steps = group.array().ok_or_else(|| DecodeError::member(&at, "an array"))?;
                let step = |(j, one)| CommandStep::read(one, &format!("{at}[{j}]"));
                steps.into_iter().enumerate().map(step).collect()
            }
        }
    };
    steps.into_iter().enumerate().map(group).collect()
}

/// The `steps` of a configuration, which [`groups`] reads back.
pub fn steps_text(groups: &[Vec<CommandStep>]) -> String {
    let group = |steps: &Vec<CommandStep>| match steps.as_slice() {
        [one] => one.text(),
        steps => {
            let steps: Vec<_> = steps.iter().map(CommandStep::text).collect();
            object_text(&[("parallel", format!("[{}]", steps.join(",")))])
        }
    };
    format!("[{}]", groups.iter().map(group).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(steps: &str) -> Result<Vec<Vec<CommandStep>>, String> {
        let text = format!("{{\"steps\":{steps}}}");
        groups(&Document::parse(&text).expect("an object")).map_err(|e| e.to_string())
    }

    fn step(words: &[&str]) -> CommandStep {
        CommandStep {
            agent: "a".to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            ..CommandStep::default()
        }
    }

    // RS-STEP-09
    #[test]
    fn what_is_written_reads_back_and_is_taken_by_every_runner() {
        let full = CommandStep {
            cwd: Some("/w \u{1}".to_owned()),
            env: vec![("A".to_owned(), Some("b\n".to_owned())), ("C".to_owned(), None)],
            ..step(&["sh", "-c", "echo \"x\"", ""])
        };
        let groups = vec![vec![step(&["true"])], vec![full, step(&["false"])]];
        let steps = steps_text(&groups);
        assert_eq!(read(&steps).expect("ours"), groups);
        let config = format!(
            r#"{{"id":"r","resultPath":"/r","cwd":"/","asyncDir":"/a","placeholder":"","steps":{steps}}}"#
        );
        let config = Document::parse(&config).expect("an object");
        super::super::config::validate(&config).expect("a runner takes it");
    }

    // RS-STEP-09
    #[test]
    fn a_step_that_is_no_command_is_named_and_its_value_is_not() {
        let rows = [
            (r#"[{"agent":"a","task":"secret"}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":[]}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":["", "secret"]}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":["a", 1]}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":["a\u0000"]}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":"secret"}]"#, "steps[0].command"),
            (r#"[{"agent":"a","command":["x"],"cwd":7}]"#, "steps[0].cwd"),
            (r#"[{"agent":"a","command":["x"],"env":[]}]"#, "steps[0].env"),
            (r#"[{"agent":"a","command":["x"],"env":{"A=secret":"b"}}]"#, "steps[0].env"),
            (r#"[{"agent":"a","command":["x"],"env":{"A":1}}]"#, "steps[0].env"),
            (r#"[{"command":["x"]}]"#, "steps[0].agent"),
            (r#"[{"agent":"a","command":["x"]},{"parallel":{"agent":"b"}}]"#, "steps[1].parallel"),
            (
                r#"[{"parallel":[{"agent":"a","command":["x"]},{"agent":"b"}]}]"#,
                "steps[0].parallel[1].command",
            ),
        ];
        for (steps, member) in rows {
            let error = read(steps).expect_err(steps);
            assert!(error.contains(member) && !error.contains("secret"), "{steps}: {error}");
        }
    }
}
