//! What the steps of a run and its runner wrote, from the beginning or the last lines, and on as it grows.
//!
//! Theory of operation. A log is followed by name, because its writer moves a full one aside
//! (`output-<i>.previous.log`) and begins a new one; where a reader was is a number of a file and a number of
//! bytes. A [`Cursor`] reads the file that was moved aside first and then the one under the name, and looks
//! before and after that the former was not replaced in between. What it reads at once is bounded.
//!
//! A writer that fills two logs between two looks takes away what nobody read: a piece that comes after such a gap
//! says so ([`Piece::lost`]). So does a log that was cut in place.
//!
//! The number of a file that is gone is given to the next one, so what was read last is compared as well.
//!
//! Reads only; nothing is followed or waited for, and what is no plain file is an error. Not promised: a gap
//! between files that hold the same, or on a system whose files have no numbers. Spec: RS-OBS-32; facts §1.4.

use std::io;

use crate::protocol::layout::{self, RunEntry};
use crate::protocol::limits;

use super::host::{FileKind, FileRead, Host, Part, ReadError, Stat};
use super::journal::rotated_name;
use super::read;

/// The logs of steps that are there, by step: those of the steps, or for the errors of external ones.
///
/// # Errors
/// As the system says.
pub fn steps<H: Host>(host: &H, run_dir: &H::Dir) -> io::Result<Vec<u32>> {
    let (mut steps, listed) = read::listed(host, run_dir, limits::RUN_DIR_MAX_ENTRIES, |entry| {
        let name = entry.name.to_str()?;
        // A log that was moved aside may be there alone for a moment.
        let name = name.replace(".previous.log", ".log");
        match RunEntry::of(&name) {
            RunEntry::OutputLog(step) => Some(step),
            _ => None,
        }
    });
    listed?;
    steps.sort_unstable();
    steps.dedup();
    Ok(steps)
}

/// The name of the log of a step.
pub fn output_name(step: u32) -> String {
    format!("{}{step}.log", layout::OUTPUT_LOG_PREFIX)
}

/// A part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes; none when there is nothing more for now.
    pub bytes: Vec<u8>,
    /// Whether something before them is gone that was not read.
    pub lost: bool,
}

/// A place in a log.
#[derive(Debug)]
pub struct Cursor {
    name: String,
    /// Whether it is in the file that was moved aside.
    aside: bool,
    /// The file it is in, once it has read of it.
    file: Option<(u64, u64)>,
    at_bytes: u64,
    /// What stands before that place, at most [`SEEN_BYTES`] of it.
    seen: Vec<u8>,
    /// The file that was moved aside and was read, or passed over. With its times: a number that is free again
    /// is given to the next file, so that after two moves all numbers may be the same.
    done: Option<Stat>,
    lost: bool,
}

/// How much of what was read last is compared when a file is read on.
const SEEN_BYTES: usize = 256;

/// How often a look is begun again because the log was moved aside underneath; the next look goes on.
const ATTEMPTS: u32 = 8;

impl Cursor {
    /// At the beginning of all that is kept.
    pub fn begin(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            aside: true,
            file: None,
            at_bytes: 0,
            seen: Vec::new(),
            done: None,
            lost: false,
        }
    }

    /// After all that is there, and the last lines of it: at most so many, and at most what stands in the last
    /// [`limits::LOG_LINES_BYTES`] of each file.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn last_lines<H: Host>(
        host: &H,
        dir: &H::Dir,
        name: &str,
        lines: usize,
    ) -> Result<(Self, Vec<u8>), ReadError> {
        let mut cursor = Self::begin(name);
        let aside = stat(host, dir, &rotated_name(name))?;
        cursor.done = aside;
        cursor.aside = false;
        let mut text = Vec::new();
        if let Some((mut read, cut)) = tail(host, dir, name, lines)? {
            (cursor.file, cursor.at_bytes) = (Some(read.stat.id), read.stat.bytes);
            // Also what is passed over: by few lines or none the file would not be known again.
            cursor.saw(&read.bytes);
            text = read.bytes.split_off(cut);
        }
        let missing = lines.saturating_sub(count(&text));
        if missing > 0
            && aside.is_some()
            && let Some((read, cut)) = tail(host, dir, &rotated_name(name), missing)?
        {
            text = [&read.bytes[cut..], &text].concat();
        }
        Ok((cursor, text))
    }

    /// What comes next, at most [`limits::LOG_PIECE_BYTES`].
    ///
    /// # Errors
    /// [`ReadError`], but for a log that is not there: that has nothing more for now.
    pub fn next<H: Host>(&mut self, host: &H, dir: &H::Dir) -> Result<Piece, ReadError> {
        for _ in 0..ATTEMPTS {
            let found = if self.aside { self.aside(host, dir) } else { self.current(host, dir) };
            if let Some(bytes) = found? {
                let lost = !bytes.is_empty() && std::mem::take(&mut self.lost);
                return Ok(Piece { bytes, lost });
            }
        }
        Ok(Piece::default())
    }

    /// A piece of the file that was moved aside; `None` when there is no more of it.
    fn aside<H: Host>(&mut self, host: &H, dir: &H::Dir) -> Result<Option<Vec<u8>>, ReadError> {
        match self.read_on(host, dir, &rotated_name(&self.name))? {
            Some((read, true)) => {
                if !read.bytes.is_empty() {
                    self.file = Some(read.stat.id);
                    return Ok(Some(self.took(read)));
                }
                self.done = Some(read.stat);
            }
            Some((_, false)) => {
                // Another one stands there: the rest of ours is gone, and this one was not read.
                self.lost = true;
                self.restart();
                return Ok(None);
            }
            None => self.lost |= self.file.is_some(),
        }
        self.aside = false;
        self.restart();
        Ok(None)
    }

    /// A piece of the file under the name, which is empty when there is no more for now; `None` when another
    /// one has to be read before.
    fn current<H: Host>(&mut self, host: &H, dir: &H::Dir) -> Result<Option<Vec<u8>>, ReadError> {
        // What was moved aside since the last look comes first: the file that this one was in, or one after it.
        if self.was_moved(host, dir)? {
            self.aside = true;
            return Ok(None);
        }
        let Some((read, is_same)) = self.read_on(host, dir, &self.name)? else {
            return Ok(Some(Vec::new()));
        };
        if !is_same {
            // Moved aside between the two looks, or cut or replaced by somebody who keeps nothing.
            if !self.was_moved(host, dir)? {
                self.lost = true;
                self.restart();
            }
            return Ok(None);
        }
        // After it as well: it may have been moved aside and begun anew between the two looks.
        if self.file.is_none() && self.was_moved(host, dir)? {
            return Ok(None);
        }
        self.file = Some(read.stat.id);
        Ok(Some(self.took(read)))
    }

    /// What comes after the place in the file at a name, and whether it is the file that the place is in.
    fn read_on<H: Host>(
        &self,
        host: &H,
        dir: &H::Dir,
        name: &str,
    ) -> Result<Option<(FileRead, bool)>, ReadError> {
        let start = self.at_bytes.saturating_sub(self.seen.len() as u64);
        let Some(mut read) = after(host, dir, name, start)? else { return Ok(None) };
        let has_number = self.file.is_none_or(|file| file == read.stat.id);
        let is_same = has_number && read.bytes.starts_with(&self.seen);
        if is_same {
            read.bytes.drain(..self.seen.len());
        }
        Ok(Some((read, is_same)))
    }

    fn restart(&mut self) {
        (self.file, self.at_bytes) = (None, 0);
        self.seen.clear();
    }

    /// Keeps the end of what was read.
    fn saw(&mut self, bytes: &[u8]) {
        self.seen.extend_from_slice(&bytes[bytes.len().saturating_sub(SEEN_BYTES)..]);
        let beyond = self.seen.len().saturating_sub(SEEN_BYTES);
        self.seen.drain(..beyond);
    }

    /// Whether another file stands aside than the one that was read there.
    fn was_moved<H: Host>(&self, host: &H, dir: &H::Dir) -> Result<bool, ReadError> {
        Ok(match (&self.done, &stat(host, dir, &rotated_name(&self.name))?) {
            (Some(done), Some(now)) => !now.is_same_as(done),
            // One that was removed took nothing with it that was not read.
            (_, None) => false,
            (None, Some(_)) => true,
        })
    }

    fn took(&mut self, read: FileRead) -> Vec<u8> {
        self.at_bytes += read.bytes.len() as u64;
        self.saw(&read.bytes);
        read.bytes
    }
}

/// What is at a name, if it is a plain file. It is looked at before it is opened, because opening a pipe wakes a
/// waiting writer.
fn stat<H: Host>(host: &H, dir: &H::Dir, name: &str) -> Result<Option<Stat>, ReadError> {
    match host.stat_at(dir, name.as_ref()) {
        Ok(stat) if stat.kind == FileKind::Regular => Ok(Some(stat)),
        Ok(stat) => Err(ReadError::NotPlain(stat.kind)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ReadError::Io(e)),
    }
}

fn plain<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    part: Part,
) -> Result<Option<FileRead>, ReadError> {
    if stat(host, dir, name)?.is_none() {
        return Ok(None);
    }
    match host.read_at(dir, name.as_ref(), part) {
        Ok(read) => Ok(Some(read)),
        Err(ReadError::Absent) => Ok(None),
        Err(e) => Err(e),
    }
}

fn after<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    start_bytes: u64,
) -> Result<Option<FileRead>, ReadError> {
    plain(host, dir, name, Part::After { start_bytes, limit_bytes: limits::LOG_PIECE_BYTES })
}

/// The end of one file, and where in it its last lines begin; read in growing parts.
fn tail<H: Host>(
    host: &H,
    dir: &H::Dir,
    name: &str,
    lines: usize,
) -> Result<Option<(FileRead, usize)>, ReadError> {
    let mut part_bytes = limits::LOG_PIECE_BYTES;
    loop {
        let Some(read) = plain(host, dir, name, Part::Tail(part_bytes))? else {
            return Ok(None);
        };
        // One more than wanted: the first one of a part may have begun before it.
        let enough = read.from_start || count(&read.bytes) > lines;
        if enough || part_bytes >= limits::LOG_LINES_BYTES {
            let cut = start_of_last(&read.bytes, lines);
            return Ok(Some((read, cut)));
        }
        part_bytes = (part_bytes * 4).min(limits::LOG_LINES_BYTES);
    }
}

/// How many lines there are; one that is not ended counts.
fn count(text: &[u8]) -> usize {
    let ended = text.iter().filter(|b| **b == b'\n').count();
    ended + usize::from(text.last().is_some_and(|b| *b != b'\n'))
}

/// Where the last so many lines begin.
fn start_of_last(text: &[u8], lines: usize) -> usize {
    let skip = count(text).saturating_sub(lines);
    if skip == 0 {
        return 0;
    }
    let ends = text.iter().enumerate().filter(|(_, b)| **b == b'\n');
    ends.map(|(at, _)| at + 1).nth(skip - 1).unwrap_or(text.len())
}
