//! `.runstore-observer.json`: which process waits for the end of the runner.
//!
//! Theory of operation. The existing observers are the launching process itself and leave no record, so
//! that nobody can tell whether the end of a run will still be witnessed. An observer of this library
//! writes one before it starts the runner. The record says who it is, never that it is still there: its
//! process is judged as every other (`RS-LIVE-*`). Other implementations do not look at the file.
//!
//! A crash of the observer leaves the record with a process that is gone, which is what it is for.
//! Spec: RS-OBS-03.

use serde::Serialize;

use super::document::Document;
use super::error::DecodeError;
use super::member;
use super::process::ProcessRecord;
use super::raw::Raw;
use super::written;

/// Who observes a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverRecord {
    /// The run.
    pub run_id: String,
    /// The runner that is waited for.
    pub instance_id: String,
    /// The observing process.
    pub process: ProcessRecord,
    /// Since when, in ms since the epoch.
    pub since_ms: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Text<'a> {
    version: u8,
    run_id: &'a str,
    runner_process_instance_id: &'a str,
    #[serde(flatten)]
    process: &'a ProcessRecord,
    since: i64,
}

impl ObserverRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        Ok(Self {
            run_id: member::filled_string(doc, "runId")?,
            instance_id: member::filled_string(doc, "runnerProcessInstanceId")?,
            process: ProcessRecord::read(doc)
                .ok_or_else(|| DecodeError::member("pid", "a number"))?,
            since_ms: member::instant_ms(doc, "since")?,
        })
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        written::pretty(&Text {
            version: 1,
            run_id: &self.run_id,
            runner_process_instance_id: &self.instance_id,
            process: &self.process,
            since: self.since_ms,
        })
    }
}

/// What a shim tells its starter, in one line on its standard output. Spec: RS-OBS-04.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The runner was started, and is this process.
    Started(ProcessRecord),
    /// No runner was started, for this reason.
    Failed(String),
}

impl Told {
    /// The line, without its end.
    pub fn text(&self) -> String {
        match self {
            Self::Started(process) => written::compact(process),
            Self::Failed(why) => format!("{{\"error\":{}}}", written::string(why)),
        }
    }

    /// Reads the line.
    ///
    /// # Errors
    /// [`DecodeError`] when it is no such line, as that of a shim that died while it wrote.
    pub fn read(line: &str) -> Result<Self, DecodeError> {
        let doc = Document::parse(line.trim())?;
        if let Some(why) = doc.get("error").and_then(Raw::string) {
            return Ok(Self::Failed(why.into_owned()));
        }
        let process = ProcessRecord::read(&doc).filter(|process| process.pid > 0);
        let process = process.ok_or_else(|| DecodeError::member("pid", "a number above 0"))?;
        Ok(Self::Started(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::process::RecordedIdentity;

    fn record() -> ObserverRecord {
        ObserverRecord {
            run_id: "r".to_owned(),
            instance_id: "i".to_owned(),
            process: ProcessRecord {
                pid: 7,
                host: Some("h".to_owned()),
                pid_namespace: None,
                identity: RecordedIdentity {
                    pidfd_inode: Some(u64::MAX),
                    ..RecordedIdentity::default()
                },
            },
            since_ms: 5,
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_and_needs_its_runner() {
        let own = record();
        let text = own.text();
        let lines = [
            "{",
            r#"  "version": 1,"#,
            r#"  "runId": "r","#,
            r#"  "runnerProcessInstanceId": "i","#,
            r#"  "pid": 7,"#,
            r#"  "hostname": "h","#,
            r#"  "pidfdInode": "18446744073709551615","#,
            r#"  "since": 5"#,
            "}",
        ];
        assert_eq!(text, lines.join("\n"), "the process stands in its place");
        assert_eq!(ObserverRecord::read(&Document::parse(&text).expect("JSON")), Ok(own));
        let started = Told::Started(record().process);
        assert_eq!(Told::read(&started.text()), Ok(started));
        let failed = Told::Failed("no \"such\" file".to_owned());
        assert_eq!(Told::read(&failed.text()), Ok(failed));
        assert!(Told::read("{\"pid\":").is_err(), "a line that is cut is none");
        let nobody = r#"{"version":1,"runId":"r","pid":7,"since":5}"#;
        assert!(ObserverRecord::read(&Document::parse(nobody).expect("JSON")).is_err());
    }
}
