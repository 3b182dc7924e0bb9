//! The configuration of a runner: read once, judged, removed.
//!
//! Ordered steps of [`read_config`]:
//! 1. read the file: bounded, following no link, of this user only;
//! 2. parse it. A file that cannot be parsed is left: what it is cannot be told, so it may not be ours;
//! 3. remove it, best effort. It holds prompts, and whether it is taken or not nobody needs it any more;
//! 4. judge it ([`validate`]), and whether it contradicts itself about its run.
//!
//! Nothing of the run is touched. A crash leaves the file or does not. No error carries a value.
//! Spec: RS-START-44, RS-START-45; facts L-30 to L-33, IR-1 to IR-4.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::protocol::config::{RunnerConfig, validate};
use crate::protocol::ids::RunId;
use crate::protocol::{DecodeError, Document, limits};
use crate::store::host::{Part, ReadError, WriteHost};
use crate::store::message;

/// How a runner is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant {
    /// It waits for `proceed` under this token.
    Fresh {
        /// The token.
        token: String,
    },
    /// It takes over a session.
    Revival {
        /// The session file.
        session_file: PathBuf,
        /// The run that is resumed.
        source_run_id: String,
        /// The session that asks for it.
        parent_session_id: Option<String>,
    },
    /// It begins at once, as launchers of old dialects want it.
    Immediate,
}

/// A configuration that a runner takes.
#[derive(Clone, Debug)]
pub struct Config {
    text: String,
    view: RunnerConfig,
    run_id: RunId,
    async_dir: PathBuf,
    variant: Variant,
}

impl Config {
    /// The whole text, for the members that are the runner's business.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The members that the protocol needs.
    pub fn view(&self) -> &RunnerConfig {
        &self.view
    }

    /// The run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// The run directory.
    pub fn async_dir(&self) -> &Path {
        &self.async_dir
    }

    /// How to begin.
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// The instance that the launcher chose for this process.
    pub fn instance_id(&self) -> Option<&str> {
        self.view.runner_instance_id.as_deref()
    }

    /// The owning session.
    pub fn session_id(&self) -> Option<&str> {
        self.view.session_id.as_deref()
    }

    /// Which parent delivers the completion.
    pub fn completion_owner_id(&self) -> Option<&str> {
        self.view.completion_owner_id.as_deref()
    }
}

/// Why a configuration is not taken. The runner says so on its standard error and exits with a code other
/// than 0; nothing of the run was touched.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read; the text says why.
    Unreadable(String),
    /// It is no configuration; it was left where it is.
    Damaged(DecodeError),
    /// A member is missing or wrong.
    Invalid(DecodeError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "the runner configuration cannot be read: {why}"),
            Self::Damaged(_) => f.write_str("the runner configuration is damaged"),
            Self::Invalid(_) => f.write_str("the runner configuration is not taken"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Damaged(e) | Self::Invalid(e) => Some(e),
            Self::Unreadable(_) => None,
        }
    }
}

/// Reads and removes a configuration. See the module's ordered steps.
/// Spec: RS-START-44, RS-START-45.
///
/// # Errors
/// [`ConfigError`]; it never carries a value of the file.
pub fn read_config<H: WriteHost>(host: &H, path: &Path) -> Result<Config, ConfigError> {
    let unreadable = |why: &str| ConfigError::Unreadable(why.to_owned());
    let name = path.file_name().ok_or_else(|| unreadable("its path names no file"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = host.open_dir(&host.absolute(parent.unwrap_or(Path::new("."))));
    let dir = dir.map_err(|e| unreadable(&e.to_string()))?;
    let read = match host.read_at(&dir, name, Part::All(limits::CONFIG_MAX_BYTES)) {
        Ok(read) => read,
        Err(ReadError::Absent) => return Err(unreadable("it is not there")),
        Err(ReadError::NotPlain(kind)) => {
            return Err(unreadable(&format!("it is {}", kind.name())));
        }
        Err(ReadError::TooLarge { bytes, limit_bytes, .. }) => {
            return Err(ConfigError::Damaged(DecodeError::TooLarge { bytes, limit_bytes }));
        }
        Err(ReadError::Io(e)) => return Err(unreadable(&e.to_string())),
    };
    if let Some(own) = host.system().uid.filter(|own| *own != 0 && *own != read.stat.uid) {
        let uid = read.stat.uid;
        return Err(unreadable(&format!("it is owned by another user (uid {uid}, not {own})")));
    }
    let doc = Document::from_bytes(&read.bytes).map_err(ConfigError::Damaged)?;
    let text = doc.source().to_owned();
    if let Some(name) = name.to_str() {
        let _ = message::clear(host, &dir, &[name]);
    }
    validate(&doc).map_err(ConfigError::Invalid)?;
    taken(&doc, text).map_err(ConfigError::Invalid)
}

/// Step 4, beyond the check that every runner makes.
fn taken(doc: &Document<'_>, text: String) -> Result<Config, DecodeError> {
    let view = RunnerConfig::read(doc);
    let id = view.id.as_deref().unwrap_or_default();
    let run_id = RunId::parse(id).map_err(|_| DecodeError::member("id", "the id of a run"))?;
    let async_dir = PathBuf::from(view.async_dir.as_deref().unwrap_or_default());
    // A configuration that was moved to another run would end that one.
    let own = async_dir.file_name().is_some_and(|name| name == run_id.as_str());
    if !own || !async_dir.is_absolute() {
        return Err(DecodeError::member(
            "asyncDir",
            "the absolute path of the directory of this run",
        ));
    }
    let variant = variant(doc, &view, &run_id)?;
    let has_instance = view.runner_instance_id.as_deref().is_some_and(|id| !id.is_empty());
    if !has_instance && variant != Variant::Immediate {
        return Err(DecodeError::member("runnerProcessInstanceId", "a non-empty string"));
    }
    Ok(Config { text, view, run_id, async_dir, variant })
}

fn variant(
    doc: &Document<'_>,
    view: &RunnerConfig,
    run_id: &RunId,
) -> Result<Variant, DecodeError> {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    // The barrier first, as every runner looks for it.
    let token = doc.get("launchBarrierToken").and_then(|raw| raw.exact_string());
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        if view.runner_instance_id.as_deref() != Some(token.as_str()) {
            return Err(DecodeError::member("launchBarrierToken", "the instance of the runner"));
        }
        return Ok(Variant::Fresh { token });
    }
    let Some(lease) = doc.get("revivalLease").and_then(|raw| raw.object()) else {
        return Ok(Variant::Immediate);
    };
    let text =
        |key: &str| lease.get(key).and_then(|raw| raw.string()).map(|text| text.into_owned());
    let need = |key: &str| {
        let member = format!("revivalLease.{key}");
        filled(&text(key)).ok_or_else(|| DecodeError::member(member, "a non-empty string"))
    };
    if need("runId")? != run_id.as_str() {
        return Err(DecodeError::member("revivalLease.runId", "the id of the run"));
    }
    let session_file = PathBuf::from(need("sessionFile")?);
    let source_run_id = need("sourceRunId")?;
    Ok(Variant::Revival { session_file, source_run_id, parent_session_id: text("parentSessionId") })
}
