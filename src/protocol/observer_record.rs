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
use super::process::{ProcessRecord, RecordedIdentity};
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
    pid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace_scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_start_identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pidfd_inode: Option<String>,
    since: i64,
}

impl ObserverRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let text = |key: &str| doc.get(key).and_then(Raw::string).map(Into::into);
        let pid = doc.get("pid").and_then(Raw::integer);
        Ok(Self {
            run_id: member::filled_string(doc, "runId")?,
            instance_id: member::filled_string(doc, "runnerProcessInstanceId")?,
            process: ProcessRecord {
                pid: pid.ok_or_else(|| DecodeError::member("pid", "a number"))?,
                host: text("hostname"),
                pid_namespace: text("pidNamespaceScope"),
                identity: RecordedIdentity::read(doc),
            },
            since_ms: member::instant_ms(doc, "since")?,
        })
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let process = &self.process;
        written::pretty(&Text {
            version: 1,
            run_id: &self.run_id,
            runner_process_instance_id: &self.instance_id,
            pid: process.pid,
            pid_namespace_scope: process.pid_namespace.as_deref(),
            hostname: process.host.as_deref(),
            process_start_identity: process.identity.start_identity.as_deref(),
            boot_id: process.identity.boot_id.as_deref(),
            pidfd_inode: process.identity.pidfd_inode.map(|inode| inode.to_string()),
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
        let members = match self {
            Self::Started(process) => {
                process.members().into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
            }
            Self::Failed(why) => vec![("error", written::string(why))],
        };
        let members: Vec<_> =
            members.iter().map(|(key, text)| format!("\"{key}\":{text}")).collect();
        format!("{{{}}}", members.join(","))
    }

    /// Reads the line.
    ///
    /// # Errors
    /// [`DecodeError`] when it is no such line, as that of a shim that died while it wrote.
    pub fn read(line: &str) -> Result<Self, DecodeError> {
        let doc = Document::parse(line.trim())?;
        let text = |key: &str| doc.get(key).and_then(Raw::string).map(Into::into);
        if let Some(why) = text("error") {
            return Ok(Self::Failed(why));
        }
        let pid = doc.get("pid").and_then(Raw::integer).filter(|pid| *pid > 0);
        Ok(Self::Started(ProcessRecord {
            pid: pid.ok_or_else(|| DecodeError::member("pid", "a number above 0"))?,
            host: text("hostname"),
            pid_namespace: text("pidNamespaceScope"),
            identity: RecordedIdentity::read(&doc),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
