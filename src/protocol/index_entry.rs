//! Entries of the result indexes: from a session, a run or a tool call to a payload.
//!
//! Theory of operation. An entry is written after the pending payload and names the file that the
//! payload has in the public and in the pending area. It is a hint: the payload decides whose it is,
//! and an entry without a payload is litter that its owners remove after a day. Nothing here removes
//! one. Spec: RS-RESULT-06; facts §3.10, S-97.

use super::document::Document;
use super::error::DecodeError;
use super::member;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultIndexEntry {
    /// `runId`.
    pub run_id: String,
    /// `sessionId`.
    pub session_id: String,
    /// `file`: a plain name that ends in `.json`, safe to join to a results directory.
    pub file: String,
    /// `writtenAt`, in milliseconds since the epoch.
    pub written_at_ms: i64,
    /// `asyncDir`, where it is given. Never opened.
    pub async_dir: Option<String>,
}

impl ResultIndexEntry {
    /// Reads an entry; whatever is not one is ignored by all readers.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        let run_id = member::string(doc, "runId")?;
        let session_id = member::string(doc, "sessionId")?;
        let file = member::string(doc, "file")?;
        let is_base_name = !file.contains(['/', '\\', '\0'])
            && file.strip_suffix(".json").is_some_and(|stem| !stem.is_empty());
        if !is_base_name {
            return Err(DecodeError::member("file", "a base name that ends in .json"));
        }
        let written_at_ms = member::instant_ms(doc, "writtenAt")?;
        let async_dir = member::loose_string(doc, "asyncDir");
        Ok(Self { run_id, session_id, file, written_at_ms, async_dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_entry_cannot_leave_its_directory() {
        for (version, file, ok) in [
            (1, "r.json", true),
            (1, "~sha256-00.json", true),
            (1, "../r.json", false),
            (1, "a\\\\r.json", false),
            (1, ".json", false),
            (1, "r.txt", false),
            (2, "r.json", false),
        ] {
            let text = format!(
                r#"{{"version":{version},"runId":"r","sessionId":"s","file":"{file}","writtenAt":1}}"#
            );
            let read = ResultIndexEntry::read(&Document::parse(&text).expect("valid"));
            assert_eq!(read.is_ok(), ok, "{text}");
        }
        let text = r#"{"version":1,"runId":"r","sessionId":"s","file":"r.json"}"#;
        assert!(ResultIndexEntry::read(&Document::parse(text).expect("valid")).is_err());
    }
}
