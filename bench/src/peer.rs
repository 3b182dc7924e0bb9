//! A published peer's writer, in a process of its own that performs batches when asked.
//!
//! Theory of operation. `peer-write.mjs` loads the atomic JSON writer of one package, once, and then
//! answers each line of its standard input: it writes its payload as often as asked and says how many
//! nanoseconds one write took, by its own clock. So starting node, loading the package and the way of the
//! question through a pipe are not measured. The process ends when its input is closed.

#![expect(clippy::disallowed_methods, reason = "runs another program")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The peers, as the script names them.
pub const NAMES: [&str; 2] = ["pi", "dm"];

/// A running peer.
#[derive(Debug)]
pub struct Peer {
    // `None` once its input is closed.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    child: Child,
}

impl Peer {
    /// Starts one, with the file that holds its payload.
    ///
    /// # Errors
    /// When node cannot be started or the package not be loaded.
    pub fn start(script: &Path, name: &str, installed: &Path, payload: &Path) -> io::Result<Self> {
        let mut command = Command::new("node");
        command.arg(script).arg(name).arg(installed).arg(payload);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (ask, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or_else(|| io::Error::other("no pipe"))?);
        let mut peer = Self { ask, answers, child };
        if peer.line()? != "ready" {
            return Err(io::Error::other(format!("the peer {name} is not ready")));
        }
        Ok(peer)
    }

    /// Nanoseconds of one write of `file`, over `ops` of them. Without a file: of making the text alone.
    ///
    /// # Errors
    /// When it says something else, or has ended.
    pub fn batch(&mut self, ops: u32, file: Option<&Path>) -> io::Result<f64> {
        let file = file.map(|path| path.to_string_lossy()).unwrap_or_default();
        let ask = self.ask.as_mut().expect("it is open until the drop");
        ask.write_all(format!("{ops} {file}\n").as_bytes())?;
        let line = self.line()?;
        line.parse().map_err(|_| io::Error::other(format!("the peer said {line:?}")))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.ask.take());
        // It has nothing left to read, so it ends.
        let _ = self.child.wait();
    }
}
