//! `recovery-descriptor.json`: how a single run could be resumed.
//!
//! Theory of operation. The launcher writes the file before the run starts, so it is there or it will
//! never be. A resume must take all of it or nothing, and an older reader refuses what a newer one
//! wrote; an inspector only wants to see what it says. So [`RecoveryDescriptor::read`] is lenient and
//! never fails, and [`RecoveryDescriptor::objections`] lists what a resume needs and does not get.
//!
//! Not promised: that a resume accepts what has no objection here. Whether each further member is
//! known to the version that resumes is its own business. Facts Q-52 to Q-54.

use super::document::Document;
use super::error::DecodeError;
use super::member;
use super::raw::{Kind, Raw};

/// What a descriptor says, as far as it decides anything. A wrong type reads as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryDescriptor {
    /// `version`.
    pub version: Option<i64>,
    /// `sourceRunId`: must be the run that it lies in.
    pub source_run_id: Option<String>,
    /// `agent`: must be that of the step to resume.
    pub agent: Option<String>,
    /// `cwd`.
    pub cwd: Option<String>,
    /// `sessionFile`.
    pub session_file: Option<String>,
    /// `systemPromptMode`.
    pub system_prompt_mode: Option<String>,
    /// `outputMode`.
    pub output_mode: Option<String>,
    /// `maxSubagentDepth`.
    pub max_subagent_depth: Option<i64>,
    /// `absoluteDeadlineAt`, in milliseconds since the epoch.
    pub deadline_at_ms: Option<i64>,
    /// Whether there is a `runFanoutBudget` object.
    pub has_fanout_budget: bool,
    /// `inheritProjectContext`, `inheritSkills` and `share`, in this order.
    pub booleans: [Option<bool>; 3],
}

const BOOLEANS: [&str; 3] = ["inheritProjectContext", "inheritSkills", "share"];

impl RecoveryDescriptor {
    /// Reads a descriptor.
    pub fn read(doc: &Document<'_>) -> Self {
        let text = |key: &str| member::loose_string(doc, key);
        Self {
            version: doc.get("version").and_then(Raw::integer),
            source_run_id: text("sourceRunId"),
            agent: text("agent"),
            cwd: text("cwd"),
            session_file: text("sessionFile"),
            system_prompt_mode: text("systemPromptMode"),
            output_mode: text("outputMode"),
            max_subagent_depth: doc.get("maxSubagentDepth").and_then(Raw::integer),
            deadline_at_ms: doc.get("absoluteDeadlineAt").and_then(Raw::instant_ms),
            has_fanout_budget: doc.get("runFanoutBudget").map(Raw::kind) == Some(Kind::Object),
            booleans: BOOLEANS.map(|key| doc.get(key).and_then(Raw::boolean)),
        }
    }

    /// What a resume of run `run_id` would refuse, in the order of facts Q-52; empty when it has what
    /// it needs. Errors name members, never values.
    pub fn objections(&self, run_id: &str) -> Vec<DecodeError> {
        let mut out = Vec::new();
        let mut need = |ok: bool, member: &str, expected: &'static str| {
            if !ok {
                out.push(DecodeError::member(member, expected));
            }
        };
        let filled = |text: &Option<String>| text.as_deref().is_some_and(|t| !t.trim().is_empty());
        let one_of = |text: &Option<String>, words: &[&str]| {
            text.as_deref().is_some_and(|t| words.contains(&t))
        };
        need(self.version == Some(1), "version", "the number 1");
        need(filled(&self.source_run_id), "sourceRunId", "a string that is not blank");
        need(filled(&self.agent), "agent", "a string that is not blank");
        need(filled(&self.cwd), "cwd", "a string that is not blank");
        let mode = one_of(&self.system_prompt_mode, &["append", "replace"]);
        need(mode, "systemPromptMode", "append or replace");
        let output = one_of(&self.output_mode, &["inline", "file-only"]);
        need(output, "outputMode", "inline or file-only");
        need(self.has_fanout_budget, "runFanoutBudget", "an object");
        for (value, key) in self.booleans.iter().zip(BOOLEANS) {
            need(value.is_some(), key, "a boolean");
        }
        let depth = self.max_subagent_depth.is_some_and(|n| n >= 0);
        need(depth, "maxSubagentDepth", "a whole number, 0 or more");
        let own = !filled(&self.source_run_id) || self.source_run_id.as_deref() == Some(run_id);
        need(own, "sourceRunId", "the id of the run");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"version":1,"sourceRunId":"r","agent":"a","cwd":"/w",
        "systemPromptMode":"replace","outputMode":"inline","runFanoutBudget":{"version":1},
        "inheritProjectContext":false,"inheritSkills":false,"share":false,"maxSubagentDepth":0,
        "someNewMember":1}"#;

    fn objections(text: &str) -> Vec<String> {
        let doc = Document::parse(text).expect("valid");
        let found = RecoveryDescriptor::read(&doc).objections("r");
        found.into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn a_whole_descriptor_has_no_objections() {
        assert_eq!(objections(WHOLE), [""; 0]);
    }

    #[test]
    fn each_needed_member_is_missed_by_name() {
        for (from, to, member) in [
            (r#""version":1,"sourceRunId""#, r#""version":2,"sourceRunId""#, "version"),
            (r#""sourceRunId":"r""#, r#""sourceRunId":"q""#, "sourceRunId"),
            (r#""sourceRunId":"r""#, r#""sourceRunId":" ""#, "sourceRunId"),
            (r#""agent":"a""#, r#""agent":7"#, "agent"),
            (r#""cwd":"/w""#, r#""cwd":"""#, "cwd"),
            ("replace", "prepend", "systemPromptMode"),
            ("inline", "none", "outputMode"),
            (r#"{"version":1},"#, "7,", "runFanoutBudget"),
            (r#""share":false"#, r#""share":0"#, "share"),
            (r#""maxSubagentDepth":0"#, r#""maxSubagentDepth":-1"#, "maxSubagentDepth"),
        ] {
            let text = WHOLE.replace(from, to);
            assert_ne!(text, WHOLE, "{from} is in the sample");
            let found = objections(&text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("member {member} ")), "{found:?}");
        }
        assert_eq!(objections("{}").len(), 11, "everything is missed at once");
    }
}
