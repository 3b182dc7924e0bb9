//! What a step writes, in `output-<i>.log`, never more than it may.
//!
//! Theory of operation. A step writes into a pipe and the runner takes what is there, a bounded part at a
//! time, so that no step can fill the disk or keep the others waiting. The log is opened for appending with
//! mode 0600; when the next piece would lead above the bound, it is moved aside to
//! `output-<i>.previous.log`, in place of what was there, and begun anew. Of a step that floods, the last
//! part of what it wrote is left: at least the bound, at most twice as much.
//!
//! Output is never worth a run: what cannot be written, because the disk is full or something else stands at
//! the name, is dropped, counted and told at the end, and the step goes on.
//!
//! A crash leaves a log that ends where it was cut. It is never flushed.
//! Spec: RS-STEP-02.

use crate::protocol::{layout, limits};
use crate::store::host::{Host, Part, WriteHost};
use crate::store::journal::{self, rotated_name};

/// The log of one step.
#[derive(Debug)]
pub struct OutputLog<F> {
    name: String,
    file: Option<F>,
    bytes: u64,
    max_bytes: u64,
    dropped_bytes: u64,
}

/// The name of the log of a step.
pub fn log_name(step: usize) -> String {
    format!("{}{step}.log", layout::OUTPUT_LOG_PREFIX)
}

impl<F> OutputLog<F> {
    /// The log of a step, which is opened when there is something to be written.
    pub fn new(step: usize, max_bytes: u64) -> Self {
        Self { name: log_name(step), file: None, bytes: 0, max_bytes, dropped_bytes: 0 }
    }

    /// How many bytes could not be written.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Writes a piece, which is shorter than the bound.
    pub fn write<H: WriteHost<File = F>>(&mut self, host: &H, run_dir: &H::Dir, piece: &[u8]) {
        if self.put(host, run_dir, piece).is_err() {
            self.dropped_bytes += piece.len() as u64;
            // Whatever was wrong with it, the next piece begins with a new look.
            self.file = None;
        }
    }

    fn put<H: WriteHost<File = F>>(
        &mut self,
        host: &H,
        run_dir: &H::Dir,
        mut piece: &[u8],
    ) -> std::io::Result<()> {
        if self.file.is_none() {
            let there = host.stat_at(run_dir, self.name.as_ref());
            self.bytes = there.map_or(0, |stat| stat.bytes);
        }
        if self.bytes > 0 && self.bytes + piece.len() as u64 > self.max_bytes {
            let aside = rotated_name(&self.name);
            host.rename(run_dir, self.name.as_ref(), run_dir, aside.as_ref())?;
            (self.file, self.bytes) = (None, 0);
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => journal::open(host, run_dir, &self.name)?,
        };
        while !piece.is_empty() {
            match host.write(&file, piece) {
                Ok(n) => {
                    self.bytes += n as u64;
                    piece = &piece[n..];
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.file = Some(file);
        Ok(())
    }
}

/// The end of the output of a step, for its result. Bytes that are no text become U+FFFD.
pub fn tail<H: Host>(host: &H, run_dir: &H::Dir, step: usize) -> String {
    let part = Part::Tail(limits::OUTPUT_TAIL_BYTES);
    let read = host.read_at(run_dir, log_name(step).as_ref(), part);
    read.map_or_else(|_| String::new(), |read| String::from_utf8_lossy(&read.bytes).into_owned())
}
